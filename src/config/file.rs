//! The configuration file: TOML, read into flat `section.name` keys with the line each one stands on.
//!
//! The parser's own report is not passed on as it is, since it quotes the offending line, and with it whatever secret
//! somebody put there.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::{
    keys,
    nearest::nearest,
    problem::{Origin, Problem},
    sources::Value,
};

/// What the file says: known keys with their values. What is wrong with it goes to `problems`.
pub(super) fn read(path: &Path, text: &str, problems: &mut Vec<Problem>) -> Vec<(&'static str, Value)> {
    let mut found = Vec::new();
    match DeTable::parse(text) {
        Ok(table) => walk(&Place { path, text }, "", table.get_ref(), &mut found, problems),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let (line, column) = position(text, at);
            let problem = error.message().lines().collect::<Vec<_>>().join(" ");
            problems.push(Problem::Syntax { path: path.display().to_string(), line, column, problem });
        }
    }
    found
}

struct Place<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Place<'_> {
    fn origin(&self, key: &str, at: usize) -> Origin {
        Origin::File { path: self.path.to_owned(), line: position(self.text, at).0, key: key.to_owned() }
    }
}

fn walk(
    place: &Place<'_>,
    prefix: &str,
    table: &DeTable<'_>,
    found: &mut Vec<(&'static str, Value)>,
    problems: &mut Vec<Problem>,
) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.get_ref().to_string() } else { format!("{prefix}.{}", name.get_ref()) };
        let origin = place.origin(&key, name.span().start);
        match (keys::by_name(&key), value.get_ref()) {
            (Some(known), value) => match scalar(value) {
                Ok(text) => found.push((known.name, Value { text, origin })),
                Err(kind) => {
                    problems.push(Problem::Kind { origin, found: kind, expected: known.accepts.to_owned() });
                }
            },
            (None, DeValue::Table(inner)) if keys::is_section(&key) => walk(place, &key, inner, found, problems),
            (None, _) if keys::is_section(&key) => problems.push(Problem::Kind {
                origin,
                found: "a value",
                expected: format!("the section [{key}] with settings of its own"),
            }),
            (None, _) => problems.push(unknown(origin, &key)),
        }
    }
}

fn unknown(origin: Origin, key: &str) -> Problem {
    let secret = keys::ALL.iter().find(|known| known.credential.is_some() && known.name == format!("{key}_file"));
    if let Some(secret) = secret {
        return Problem::OpenSecret { origin, instead: secret.name.to_owned() };
    }
    let sections = keys::ALL.iter().filter_map(|known| known.name.split_once('.')).map(|(section, _)| section);
    let names = keys::ALL.iter().map(|known| known.name);
    let hint = match nearest(key, names.chain(sections)) {
        Some(near) => format!("did you mean {near}?"),
        None => "docs/configuration.md lists them all".to_owned(),
    };
    Problem::Unknown { origin, hint }
}

/// A value as it would be written in an environment variable, or what it is instead.
fn scalar(value: &DeValue<'_>) -> Result<String, &'static str> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "a number out of range"),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(_) => Err("a boolean"),
        DeValue::Datetime(_) => Err("a date"),
        DeValue::Array(_) => Err("an array"),
        DeValue::Table(_) => Err("a section"),
    }
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    (line, before.len() - start + 1)
}
