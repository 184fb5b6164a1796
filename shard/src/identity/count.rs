//! The strict grammar of `SHARD_COUNT` and `SHARD_INDEX`: ASCII digits, no sign, no blank, no leading zero.
//!
//! Languages differ in what their number parsers take (`1e1`, `2_0`, `٢`); whoever accepts half of it disagrees with
//! a producer about which queue a job is in.

/// The largest shard count that is accepted.
pub const MAX_SHARD_COUNT: u32 = 1024;

/// A count or index that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?} is refused: expected {expected}")]
pub struct CountError {
    /// The variable or key that held the value.
    pub variable: String,
    /// The value as it was given.
    pub value: String,
    /// What would have been accepted.
    pub expected: String,
}

fn digits(value: &str) -> Option<u32> {
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = value.len() > 1 && value.starts_with('0');
    if plain && !leading_zero { value.parse().ok() } else { None }
}

/// Parses a shard count, 1 to [`MAX_SHARD_COUNT`]. (`auto` is resolved by the configuration, not here.)
pub fn parse_shard_count(variable: &str, value: &str) -> Result<u32, CountError> {
    digits(value).filter(|count| (1..=MAX_SHARD_COUNT).contains(count)).ok_or_else(|| CountError {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected: format!("a whole number from 1 to {MAX_SHARD_COUNT}, in plain digits"),
    })
}

/// Parses a shard index, 0 to `count - 1`.
pub fn parse_shard_index(variable: &str, value: &str, count: u32) -> Result<u32, CountError> {
    digits(value).filter(|index| *index < count).ok_or_else(|| CountError {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected: format!("a whole number from 0 to {} (SHARD_COUNT is {count}), in plain digits", count - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract: I3. Field report R54.
    #[test]
    fn only_plain_digits_are_a_count() {
        assert_eq!(parse_shard_count("SHARD_COUNT", "2"), Ok(2));
        assert_eq!(parse_shard_count("SHARD_COUNT", "1024"), Ok(1024));
        for refused in
            ["02", "2 ", " 2", "+2", "-1", "0x2", "2.0", "1e1", "2_0", "٢", "", "0", "1025", "4294967296", "two", "NaN"]
        {
            let error = parse_shard_count("SHARD_COUNT", refused).expect_err(refused);
            let text = error.to_string();
            assert!(text.contains("SHARD_COUNT") && text.contains(&format!("{refused:?}")), "{text}");
        }
    }

    /// Contract: I3.
    #[test]
    fn an_index_stays_below_its_count() {
        assert_eq!(parse_shard_index("SHARD_INDEX", "0", 1), Ok(0));
        assert_eq!(parse_shard_index("SHARD_INDEX", "1", 2), Ok(1));
        for refused in ["2", "02", "+1", "", "00", "1 "] {
            assert!(parse_shard_index("SHARD_INDEX", refused, 2).is_err(), "{refused}");
        }
    }
}
