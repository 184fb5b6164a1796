//! Typed reading of what was given: each method returns the value, or notes the problem and goes on with the default,
//! so that one run names every error.

use std::{path::PathBuf, time::Duration};

use shard::identity::{parse_shard_count, parse_shard_index};
use url::Url;

use super::{
    address,
    keys::{self, Key},
    problem::{Origin, Problem},
    sources::{Given, Value},
};

/// Reads typed values and collects what is wrong.
pub(super) struct Reader<'a> {
    given: &'a Given,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(given: &'a Given, problems: Vec<Problem>) -> Self {
        Self { given, problems }
    }

    /// The value as it was written, and where.
    pub(super) fn value(&self, key: &Key) -> Option<&'a Value> {
        self.given.values.get(key.name)
    }

    /// Where a setting came from, its default included.
    pub(super) fn origin(&self, key: &Key) -> Origin {
        self.value(key).map_or(Origin::Default(key.name), |value| value.origin.clone())
    }

    /// Reads a setting that has a default, by a parser that refuses by `None`.
    pub(super) fn read<T>(&mut self, key: &Key, parse: impl Fn(&str) -> Option<T>) -> T {
        match self.read_if_set(key, &parse) {
            Some(read) => read,
            // The table's own defaults are parsed by a test, so that this can't fail for a user.
            None => parse(key.default).unwrap_or_else(|| panic!("the default of {} is refused", key.name)),
        }
    }

    /// Reads a setting that may be absent.
    pub(super) fn read_if_set<T>(&mut self, key: &Key, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = self.value(key)?;
        let read = parse(&value.text);
        if read.is_none() {
            self.problems.push(Problem::Refused {
                origin: value.origin.clone(),
                value: address::without_credentials(&value.text),
                expected: key.accepts.to_owned(),
            });
        }
        read
    }

    /// A whole number within bounds.
    pub(super) fn number(&mut self, key: &Key, bounds: std::ops::RangeInclusive<u32>) -> u32 {
        self.read(key, |text| whole(text).filter(|number| bounds.contains(number)))
    }

    /// A duration within bounds.
    pub(super) fn duration(&mut self, key: &Key, bounds: std::ops::RangeInclusive<Duration>) -> Duration {
        self.read(key, |text| duration(text).filter(|time| bounds.contains(time)))
    }

    /// An absolute path.
    pub(super) fn path(&mut self, key: &Key) -> PathBuf {
        self.read(key, absolute)
    }

    /// An absolute path, where one is set.
    pub(super) fn path_if_set(&mut self, key: &Key) -> Option<PathBuf> {
        self.read_if_set(key, absolute)
    }

    /// An `http:` or `https:` URL, where one is set.
    pub(super) fn web_address(&mut self, key: &Key) -> Option<Url> {
        self.read_if_set(key, address::web)
    }

    /// The shard count; the index is judged against it.
    pub(super) fn shard_count(&mut self) -> u32 {
        let Some(value) = self.value(&keys::SHARD_COUNT) else { return 1 };
        if value.text == "auto" {
            return cpus();
        }
        let mut problem = match parse_shard_count(&value.origin.to_string(), &value.text) {
            Ok(count) => return count,
            Err(problem) => problem,
        };
        problem.expected.push_str(", or auto");
        self.problems.push(problem.into());
        // The index can then only be judged by itself.
        shard::identity::MAX_SHARD_COUNT
    }

    /// The static shard's index, where one is set.
    pub(super) fn shard_index(&mut self, count: u32) -> Option<u32> {
        let value = self.value(&keys::SHARD_INDEX)?;
        let problem = match parse_shard_index(&value.origin.to_string(), &value.text, count) {
            Ok(index) => return Some(index),
            Err(problem) => problem,
        };
        self.problems.push(problem.into());
        None
    }
}

fn absolute(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    (path.is_absolute() && !text.contains(['\0', char::REPLACEMENT_CHARACTER])).then_some(path)
}

/// The CPUs this process may use: its affinity and the quota of its control group (v1 or v2), rounded down, at least 1.
pub(crate) fn cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    cpus.min(shard::identity::MAX_SHARD_COUNT)
}

/// A whole number by the grammar of shard counts: ASCII digits, no sign, no blank, no leading zero.
pub(super) fn whole(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if plain && !leading_zero { text.parse().ok() } else { None }
}

/// A duration: a number, whole or with a decimal fraction, and `ms`, `s`, `m`, `h` or `d`. A bare number is seconds, as
/// the variables of the bot-worker pool have it.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit_ms) = [("ms", 1.0), ("s", 1e3), ("m", 60e3), ("h", 3600e3), ("d", 86_400e3)]
        .into_iter()
        .find_map(|(unit, ms)| text.strip_suffix(unit).map(|number| (number, ms)))
        .unwrap_or((text, 1e3));
    let (integral, fraction) = number.split_once('.').map_or((number, None), |(left, right)| (left, Some(right)));
    whole(integral)?;
    if fraction.is_some_and(|digits| digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    Some(Duration::from_millis((number.parse::<f64>().ok()? * unit_ms).round() as u64))
}

/// A size: a whole number and `M` or `G`, in powers of 1024.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, shift) = match (text.strip_suffix('M'), text.strip_suffix('G')) {
        (Some(number), _) => (number, 20),
        (_, Some(number)) => (number, 30),
        _ => return None,
    };
    Some(u64::from(whole(number)?) << shift)
}

/// A duration as it would be written.
pub(crate) fn written(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    match units.into_iter().find(|(_, length)| ms > 0 && ms.is_multiple_of(*length)) {
        Some((unit, length)) => format!("{}{unit}", ms / length),
        None if ms == 0 => "0s".to_owned(),
        None => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field report R54.
    #[test]
    fn a_number_is_plain_digits_or_refused() {
        assert_eq!(whole("20"), Some(20));
        for refused in ["", "02", "2 ", " 2", "+2", "-2", "0x2", "2.0", "1e1", "2_0", "٢", "4294967296"] {
            assert_eq!(whole(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!((size("512M"), size("2G")), (Some(512 << 20), Some(2 << 30)));
        for refused in ["512", "M", "1.5G", "512m", "512MB", "-1G", " 1G", "01G"] {
            assert_eq!(size(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn a_duration_is_read_and_written_back() {
        for (text, ms) in
            [("0s", 0), ("5.0", 5000), ("10", 10_000), ("250ms", 250), ("1.5m", 90_000), ("7d", 604_800_000)]
        {
            let read = duration(text).expect(text);
            assert_eq!(read, Duration::from_millis(ms), "{text}");
            assert_eq!(duration(&written(read)), Some(read), "{text}");
        }
        for refused in ["", "s", "5 s", "-5s", "+5s", "05s", "1e3s", "5.s", ".5s", "5.0.0s", "5w", "5S", "inf", "NaN"] {
            assert_eq!(duration(refused), None, "{refused:?}");
        }
    }
}
