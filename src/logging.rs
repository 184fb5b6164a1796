//! Log lines on standard error: `key=value` text for people, one JSON object a line for machines, and priorities for the
//! journal where systemd reads them.
//!
//! A line is one line whatever is in it: control characters are escaped, so that nobody can forge a second one. A panic
//! is one line too, and repeats its message only when that is a constant of the program, which can hold no secret.

use std::{
    fmt::{self, Write as _},
    io::Write as _,
    os::fd::AsFd,
    panic::PanicHookInfo,
};

use nix::sys::stat::fstat;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::config::{Log, LogFormat};

/// The AMQP client writes whole messages into its warnings. What matters of them our own lines say.
const SAYS_TOO_MUCH: &str = "lapin";

/// How this process writes its lines.
#[derive(Debug, Clone, Copy)]
struct Style {
    format: LogFormat,
    journal: bool,
    shard: Option<u32>,
}

/// Starts logging. `shard` is `None` for the primary.
pub(crate) fn start(log: Log, shard: Option<u32>) {
    let style = Style { format: log.format, journal: reaches_journal(), shard };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).event_format(style);
    // Only a second call can fail, and then the first one's settings hold.
    let wanted =
        Targets::new().with_default(LevelFilter::from_level(log.level)).with_target(SAYS_TOO_MUCH, LevelFilter::OFF);
    let _ = tracing_subscriber::registry().with(wanted).with(lines).try_init();
    std::panic::set_hook(Box::new(move |panic| style.write_panic(panic)));
}

/// Until logging is started, and in commands: a panic is one line like every other fault.
pub(crate) fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| crate::exit::say(describe(panic))));
}

/// Whether standard error is the journal's socket: systemd names its device and inode.
fn reaches_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(std::io::stderr().as_fd()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map_or("an unknown place".to_owned(), ToString::to_string);
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    match panic.payload().downcast_ref::<&'static str>() {
        Some(constant) => format!("panicked at {place} in thread {thread}: {}", escaped(constant)),
        None => format!("panicked at {place} in thread {thread}"),
    }
}

impl Style {
    fn line(&self, level: Level, target: &str, message: &str, fields: Map<String, Value>) -> String {
        let now = jiff::Timestamp::now();
        let mut line = String::new();
        if self.journal {
            let _ = write!(line, "<{}>", priority(level));
        }
        match self.format {
            LogFormat::Text => {
                if !self.journal {
                    let _ = write!(line, "{now:.3} {level:<5} ");
                }
                if let Some(shard) = self.shard {
                    let _ = write!(line, "shard={shard} ");
                }
                line.push_str(&escaped(message));
                for (name, value) in fields {
                    let _ = write!(line, " {name}={}", text(&value));
                }
            }
            LogFormat::Json => {
                let mut object = Map::new();
                object.insert("time".into(), format!("{now:.3}").into());
                object.insert("level".into(), level.as_str().to_ascii_lowercase().into());
                if let Some(shard) = self.shard {
                    object.insert("shard".into(), shard.into());
                }
                object.insert("target".into(), target.into());
                object.insert("message".into(), message.into());
                for (name, value) in fields {
                    object.entry(name).or_insert(value);
                }
                line.push_str(&Value::Object(object).to_string());
            }
        }
        line
    }

    fn write_panic(&self, panic: &PanicHookInfo<'_>) {
        let line = self.line(Level::ERROR, "panic", &describe(panic), Map::new());
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

impl<S, N> FormatEvent<S, N> for Style
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut seen = Seen::default();
        event.record(&mut seen);
        let about = event.metadata();
        writeln!(writer, "{}", self.line(*about.level(), about.target(), &seen.message, seen.fields))
    }
}

#[derive(Default)]
struct Seen {
    message: String,
    fields: Map<String, Value>,
}

impl Seen {
    fn keep(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => {
                self.fields.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, value.into());
    }
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// A field's value: as it is when it can't be misread, else quoted.
fn text(value: &Value) -> String {
    match value {
        Value::String(plain) if !plain.is_empty() && !plain.contains([' ', '"', '=']) => escaped(plain),
        other => other.to_string(),
    }
}

fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Map<String, Value> {
        let Value::Object(map) = serde_json::json!({"n": 3, "why": "a b", "odd": "x\ny"}) else { unreachable!() };
        map
    }

    #[test]
    fn a_text_line_is_one_line_with_its_shard_and_fields() {
        let style = Style { format: LogFormat::Text, journal: true, shard: Some(1) };
        let line = style.line(Level::WARN, "t", "it\nhappened", fields());
        assert_eq!(line, r#"<4>shard=1 it\nhappened n=3 odd=x\ny why="a b""#);
    }

    #[test]
    fn a_json_line_is_one_object() {
        let style = Style { format: LogFormat::Json, journal: false, shard: None };
        let line = style.line(Level::INFO, "t", "it\nhappened", fields());
        assert!(!line.contains('\n'));
        let object: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&object["level"], &object["n"], &object["shard"]), (&"info".into(), &3.into(), &Value::Null));
    }
}
