//! The known name that a misspelt one was probably meant to be.

use strsim::damerau_levenshtein;

/// The nearest of `known`, if it is near enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    known
        .into_iter()
        .map(|name| (distance(&word, &name.to_ascii_lowercase()), name))
        .filter(|(distance, name)| *distance <= (name.len().min(word.len()) / 3).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// A key in the wrong section (`port` for `health.port`) is as near as one with a slip of the finger.
fn distance(word: &str, name: &str) -> usize {
    let leaf = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    let whole = damerau_levenshtein(word, name);
    if leaf(word) == leaf(name) { whole.min(1) } else { whole }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_and_a_wrong_section_are_told_from_a_stranger() {
        let known = ["health.port", "health.bind", "data_dir", "log.level"];
        assert_eq!(nearest("health.prot", known), Some("health.port"));
        assert_eq!(nearest("port", known), Some("health.port"));
        assert_eq!(nearest("Data_Dri", known), Some("data_dir"));
        assert_eq!(nearest("database.pool_size", known), None);
    }
}
