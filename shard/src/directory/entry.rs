//! One entry of a remote directory, as JSON: a channel, one that is left alone, or what is wrong with it. Pure.
//!
//! An entry is the id of a WhatsApp channel, or an object. Members that are not known are skipped, since a platform's API tells
//! more than we need. What is wrong is told without the value: a token ends in the wrong member sooner than one thinks.

use std::fmt;

use serde_json::{Map, Value, json};
use url::Url;

use super::{ChannelSpec, Handler};
use crate::{identity::ChannelId, keyring::Keyring, platform::PlatformKind, secret::Secret};

/// The longest token, secret or URL.
const LONGEST: usize = 4096;
/// The longest label, in characters.
const LONGEST_LABEL: usize = 200;
/// How PostgreSQL writes bytes in a JSON text; no token of a platform begins so.
const BYTES: &str = "\\x";

/// What a usable entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A channel, enabled or not.
    Channel(ChannelSpec),
    /// A channel whose events go elsewhere: a Slack app in event mode, a Telegram bot with a webhook. It is not run.
    LeftAlone(ChannelSpec),
}

/// An entry that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadEntry {
    /// Whose it is, where that can be read.
    pub id: Option<ChannelId>,
    /// Its place in the answer, from 1.
    pub at: usize,
    /// What is wrong, without the value.
    pub problem: String,
}

impl fmt::Display for BadEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "channel {id}: {}", self.problem),
            None => write!(f, "entry {}: {}", self.at, self.problem),
        }
    }
}

impl Entry {
    /// The channel.
    pub fn spec(&self) -> &ChannelSpec {
        match self {
            Self::Channel(spec) | Self::LeftAlone(spec) => spec,
        }
    }

    /// Reads the entry at a place. Tokens and secrets may be sealed by the key file.
    pub(super) fn read(at: usize, value: &Value, keys: &Keyring) -> Result<Self, BadEntry> {
        let nameless = |problem: &str| BadEntry { id: None, at, problem: problem.to_owned() };
        let (id, object) = match value {
            Value::String(id) => (Some(id.as_str()), None),
            Value::Object(object) => (object.get("id").and_then(Value::as_str), Some(object)),
            _ => return Err(nameless("is neither an id nor an object")),
        };
        let id = id.ok_or_else(|| nameless("has no id"))?;
        let id: ChannelId = id.parse().map_err(|_| nameless("id: expected a UUID of 32 hexadecimal digits"))?;
        let Some(object) = object else { return Ok(Self::Channel(linked_device(id))) };
        Fields { id, object, keys }.read().map_err(|problem| BadEntry { id: Some(id), at, problem })
    }

    /// The entry as it would be written, for [`Self::read`] to read back.
    pub(super) fn write(&self) -> Value {
        let spec = self.spec();
        let (handler, url, secret) = match &spec.handler {
            Handler::None => ("none", None, None),
            Handler::Echo => ("echo", None, None),
            Handler::Agent { url, secret } => ("agent", Some(url), secret.as_ref().map(Secret::expose)),
        };
        let mode = match (self, spec.platform) {
            (Self::LeftAlone(_), PlatformKind::Telegram) => Some("webhook"),
            (Self::LeftAlone(_), _) => Some("events"),
            _ => None,
        };
        json!({
            "id": spec.id, "platform": spec.platform, "token": spec.token.as_ref().map(Secret::expose), "handler": handler,
            "handler_url": url, "handler_secret": secret, "enabled": spec.enabled, "label": spec.label, "mode": mode,
        })
    }
}

fn linked_device(id: ChannelId) -> ChannelSpec {
    ChannelSpec {
        id,
        platform: PlatformKind::Whatsapp,
        token: None,
        handler: Handler::None,
        enabled: true,
        label: None,
    }
}

/// The members of an object.
struct Fields<'a> {
    id: ChannelId,
    object: &'a Map<String, Value>,
    keys: &'a Keyring,
}

impl Fields<'_> {
    fn read(&self) -> Result<Entry, String> {
        let platform = self.text("platform")?.ok_or("platform: expected telegram, slack or whatsapp")?;
        let platform: PlatformKind =
            platform.parse().map_err(|_| "platform: expected telegram, slack or whatsapp".to_owned())?;
        let held = self.is_held(platform)?;
        let enabled = match self.object.get("enabled") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(enabled)) => *enabled,
            Some(_) => return Err("enabled: expected true or false".to_owned()),
        };
        let token = self.secret("token", "token")?;
        if held && enabled && token.is_none() && platform != PlatformKind::Whatsapp {
            return Err(format!("token: a channel on {platform} needs one"));
        }
        let label = self.text("label")?.map(|label| label.chars().take(LONGEST_LABEL).collect());
        let spec =
            ChannelSpec { id: self.id, platform, token, handler: self.handler()?, enabled: enabled && held, label };
        Ok(if held { Entry::Channel(spec) } else { Entry::LeftAlone(spec) })
    }

    /// Whether a connection is held for it.
    fn is_held(&self, platform: PlatformKind) -> Result<bool, String> {
        let Some(mode) = self.text("mode")? else { return Ok(true) };
        match (platform, mode) {
            (PlatformKind::Telegram, "polling") | (PlatformKind::Slack, "socket") => Ok(true),
            (PlatformKind::Telegram, "webhook") | (PlatformKind::Slack, "events") => Ok(false),
            (PlatformKind::Telegram, _) => Err("mode: expected polling or webhook".to_owned()),
            (PlatformKind::Slack, _) => Err("mode: expected socket or events".to_owned()),
            (PlatformKind::Whatsapp, _) => Err("mode: a channel on whatsapp has none".to_owned()),
        }
    }

    /// `none`, `echo`, a URL, or `agent` with the URL in `handler_url`.
    fn handler(&self) -> Result<Handler, String> {
        let url = match (self.text("handler")?, self.text("handler_url")?) {
            (None | Some("agent"), Some(url)) | (Some(url), None) if is_web(url) => url,
            (None | Some("none"), None) => return Ok(Handler::None),
            (Some("echo"), None) => return Ok(Handler::Echo),
            (None | Some("agent"), _) => return Err("handler_url: expected an http: or https: URL".to_owned()),
            (Some("none" | "echo"), Some(_)) => {
                return Err("handler_url: only the handler `agent` has one".to_owned());
            }
            (Some(_), _) => return Err("handler: expected none, echo, agent, or an http: or https: URL".to_owned()),
        };
        Ok(Handler::Agent { url: url.to_owned(), secret: self.secret("handler_secret", "secret")? })
    }

    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.object.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() <= LONGEST => Ok(Some(text)),
            Some(Value::String(_)) => Err(format!("{name}: longer than {LONGEST} bytes")),
            Some(_) => Err(format!("{name}: expected a text")),
        }
    }

    /// A secret in the open, or what the key file sealed for this channel and purpose.
    fn secret(&self, name: &str, purpose: &str) -> Result<Option<Secret>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let secret = match text.strip_prefix(BYTES) {
            Some(hex) => {
                let sealed = from_hex(hex).ok_or_else(|| format!("{name}: its bytes can't be read"))?;
                let opened = self.keys.unseal_by_any(self.id, purpose, &sealed);
                opened.map_err(|error| format!("{name}: {error}"))?
            }
            None => Secret::new(text),
        };
        let fits = |letter: char| !letter.is_control() || letter == '\n';
        if secret.expose().trim().is_empty() || !secret.expose().chars().all(fits) {
            return Err(format!("{name}: expected a secret of printable characters"));
        }
        Ok(Some(secret))
    }
}

fn is_web(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    let whole = text.len().is_multiple_of(2);
    whole.then(|| text.as_bytes().chunks(2).map(pair).collect::<Option<Vec<u8>>>())?
}
