//! A strict reading of Prometheus' text format 0.0.4, and of what `promtool check metrics` finds fault with.

use std::collections::{BTreeMap, BTreeSet};

/// Every series of a page by its full name and labels; or what is wrong with it.
pub(super) fn validate(page: &str) -> Result<BTreeMap<String, f64>, String> {
    if !page.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut families = BTreeSet::new();
    let mut series = BTreeMap::new();
    let mut family: Option<(String, String)> = None;
    let mut helped: Option<String> = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or(format!("no help: {line}"))?;
            name_is_right(name)?;
            if help.is_empty() || !families.insert(name.to_owned()) {
                return Err(format!("empty help, or a family told twice: {line}"));
            }
            if families.last().map(String::as_str) != Some(name) {
                return Err(format!("not in order: {name}"));
            }
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or(format!("no type: {line}"))?;
            if helped.take().as_deref() != Some(name) {
                return Err(format!("type without help before it: {line}"));
            }
            if !["counter", "gauge", "histogram"].contains(&kind) || (kind == "counter") != name.ends_with("_total") {
                return Err(format!("kind and name do not go together: {line}"));
            }
            family = Some((name.to_owned(), kind.to_owned()));
        } else {
            let (name, labels, value) = sample(line)?;
            let (family, kind) = family.as_ref().ok_or(format!("a sample without a family: {line}"))?;
            let suffix = name.strip_prefix(family.as_str()).ok_or(format!("not of {family}: {line}"))?;
            let fits = match kind.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
                _ => suffix.is_empty(),
            };
            if !fits || (suffix == "_bucket") != labels.contains_key("le") {
                return Err(format!("not a {kind}'s sample: {line}"));
            }
            if kind != "gauge" && (value.is_nan() || value < 0.0) {
                return Err(format!("no count: {line}"));
            }
            let key = format!("{name}{labels:?}");
            if series.insert(key, value).is_some() {
                return Err(format!("told twice: {line}"));
            }
        }
    }
    buckets_are_right(page)?;
    Ok(series)
}

fn name_is_right(name: &str) -> Result<(), String> {
    let right = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !["gauge", "counter", "histogram", "summary"].iter().any(|kind| name.contains(kind))
        && !["_milliseconds", "_ms", "_percent", "_kb", "_minutes"].iter().any(|unit| name.ends_with(unit));
    if right { Ok(()) } else { Err(format!("no good name: {name}")) }
}

type Parsed = (String, BTreeMap<String, String>, f64);

fn sample(line: &str) -> Result<Parsed, String> {
    let wrong = |why: &str| format!("{why}: {line}");
    let end = line.find(['{', ' ']).ok_or(wrong("no value"))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or(wrong("no label"))?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().ok_or(wrong("open label"))? {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next().ok_or(wrong("open escape"))?.1 {
                        'n' => value.push('\n'),
                        c @ ('\\' | '"') => value.push(c),
                        _ => return Err(wrong("unknown escape")),
                    },
                    (_, c) => value.push(c),
                }
            };
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(wrong("a label twice"));
            }
            rest = &after[end + 1..];
            match rest.split_at_checked(1) {
                Some((",", more)) => rest = more,
                Some(("}", more)) => break rest = more,
                _ => return Err(wrong("no end of labels")),
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or(wrong("no blank before the value"))?;
    Ok((name.to_owned(), labels, value.parse().map_err(|_| wrong("no number"))?))
}

/// Each histogram's buckets grow with their bounds, and the infinite one is the count.
fn buckets_are_right(page: &str) -> Result<(), String> {
    let mut buckets = BTreeMap::<String, Vec<(f64, f64)>>::new();
    let mut counts = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, mut labels, value) = sample(line)?;
        if let Some(bound) = labels.remove("le") {
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().map_err(|_| line.to_owned())? };
            let key = format!("{}{labels:?}", name.trim_end_matches("_bucket"));
            buckets.entry(key).or_default().push((bound, value));
        } else if let Some(name) = name.strip_suffix("_count") {
            counts.insert(format!("{name}{labels:?}"), value);
        }
    }
    for (key, buckets) in buckets {
        let grows = buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
        let last = buckets.last().copied();
        if !grows || last != counts.get(&key).map(|count| (f64::INFINITY, *count)) {
            return Err(format!("buckets of {key}: {buckets:?}"));
        }
    }
    Ok(())
}

#[test]
fn it_finds_what_is_wrong() {
    let fine = "# HELP a_total x\n# TYPE a_total counter\na_total{s=\"\\\"\\\\\\n\"} 1\n";
    assert_eq!(validate(fine).map(|series| series.len()), Ok(1));
    for wrong in [
        "# HELP a_total x\n# TYPE a_total counter\na_total 1",
        "# HELP a x\n# TYPE a counter\na 1\n",
        "# HELP a_total x\n# TYPE a_total gauge\na_total 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
        "# HELP b x\n# TYPE b gauge\nb 1\n# HELP a x\n# TYPE a gauge\na 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\na{s=\"1\" 1\n",
        "# HELP a x\n# TYPE a gauge\na{s=\"1\",s=\"2\"} 1\n",
        "# HELP a x\n# TYPE a gauge\na{s=\"\\t\"} 1\n",
        "# HELP a x\n# TYPE a gauge\nb 1\n",
        "# HELP a x\n# TYPE a gauge\na one\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total -1\n",
        "# HELP a_ms x\n# TYPE a_ms gauge\na_ms 1\n",
        "# HELP h x\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
        "# HELP h x\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
    ] {
        assert!(validate(wrong).is_err(), "passed: {wrong}");
    }
}
