//! `shardvisor channel add`: the token comes from a file or standard input, is checked for its form, and is stored
//! encrypted.

use std::{io::Read, path::Path};

use shard::{
    directory::{ChannelSpec, Directory, Handler},
    identity::ChannelId,
    platform::PlatformKind,
    secret::Secret,
};
use uuid::Uuid;

use super::open;
use crate::{
    cli::ChannelAdd,
    commands::{
        data::{self, block_on},
        print,
    },
    config::{self, Config, plain},
    directory::failure,
    exit::Failure,
};

/// Adds the channel and prints its id.
pub(super) fn run(config: &Config, options: &ChannelAdd) -> Result<(), Failure> {
    let form: Option<Form> = match options.platform {
        PlatformKind::Telegram => Some(telegram),
        #[cfg(feature = "slack")]
        PlatformKind::Slack => Some(slack),
        #[cfg(feature = "whatsapp")]
        PlatformKind::Whatsapp => None,
        #[allow(unreachable_patterns, reason = "not where all of them are built in")]
        other => return Err(Failure::Usage(format!("{other} is not built into this version"))),
    };
    let secret = options.handler_secret_file.as_deref().map(secret_file).transpose()?;
    let handler = handler(&options.handler, secret)?;
    let token = match (form, &options.token_file, &options.phone) {
        (Some(_), _, Some(_)) => {
            return Err(Failure::Usage("--phone: only WhatsApp links a device to a phone".to_owned()));
        }
        (Some(form), Some(path), None) => Some(token(path, form)?),
        (Some(_), None, None) => {
            let problem = "--token-file is missing: the file that holds what the platform gave the bot";
            return Err(Failure::Usage(problem.to_owned()));
        }
        (None, Some(_), _) => {
            return Err(Failure::Usage("--token-file: WhatsApp has no token; a device is linked to it".to_owned()));
        }
        (None, None, number) => number.as_deref().map(phone).transpose()?,
    };
    let spec = ChannelSpec {
        id: options.id.unwrap_or_else(|| ChannelId::from_uuid(Uuid::new_v4())),
        platform: options.platform,
        token,
        handler,
        enabled: true,
        label: options.label.clone(),
    };
    data::enter(config)?;
    block_on(async {
        let directory = open(config)?;
        let known = directory.channels().await.map_err(failure)?;
        if !options.replace && known.iter().any(|channel| channel.id == spec.id) {
            let id = spec.id;
            return Err(Failure::Usage(format!("channel {id} is there already; --replace gives it these settings")));
        }
        directory.put(&spec).await.map_err(failure)?;
        print(spec.id)
    })
}

/// What a platform makes of the lines of a token file; else what is wrong with them.
type Form = fn(&[Secret]) -> Result<Secret, String>;

fn token(path: &Path, form: Form) -> Result<Secret, Failure> {
    let wrong = |what: String| Failure::Usage(format!("--token-file {}: {what}", path.display()));
    let lines = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| wrong(plain(&error)))?;
        config::secrets_of_text(&text).map_err(wrong)?
    } else {
        config::secrets_of_file(path).map_err(|what| Failure::Config(format!("{}: {what}", path.display())))?
    };
    form(&lines).map_err(wrong)
}

fn telegram(lines: &[Secret]) -> Result<Secret, String> {
    match lines {
        [token] if is_telegram_token(token.expose()) => Ok(token.clone()),
        [_] => Err("is no bot token: expected <digits>:<key>".into()),
        several => Err(format!("holds {} lines: expected one", several.len())),
    }
}

/// Both tokens of an app, each on a line; the bot token alone for an app that gets its events by HTTP.
#[cfg(feature = "slack")]
fn slack(lines: &[Secret]) -> Result<Secret, String> {
    let words: Vec<&str> = lines.iter().map(Secret::expose).collect();
    let both = Secret::new(words.join(" "));
    shard::platform::slack::Tokens::read(&both).map(|_| both).map_err(|error| error.to_string())
}

/// A phone number: it is kept like a secret, since it is a person's.
fn phone(text: &str) -> Result<Secret, Failure> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let fits = (7..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if fits && !digits.starts_with('0') {
        Ok(Secret::new(digits))
    } else {
        Err(Failure::Usage("--phone: expected the number with its country code, digits alone".to_owned()))
    }
}

fn secret_file(path: &Path) -> Result<Secret, Failure> {
    config::secret_file(path).map_err(|what| Failure::Config(format!("{}: {what}", path.display())))
}

/// The form of a bot token; whether it is one, Telegram alone can tell.
fn is_telegram_token(token: &str) -> bool {
    let key =
        |key: &str| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    token
        .split_once(':')
        .is_some_and(|(id, rest)| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) && key(rest))
}

fn handler(text: &str, secret: Option<Secret>) -> Result<Handler, Failure> {
    let handler = match text {
        "none" => Handler::None,
        "echo" => Handler::Echo,
        url if config::is_web_address(url) => return Ok(Handler::Agent { url: url.to_owned(), secret }),
        _ => {
            // Not repeated: a token ends here when options are mixed up.
            return Err(Failure::Usage("--handler: expected echo, none, or an http: or https: URL".to_owned()));
        }
    };
    if secret.is_some() {
        return Err(Failure::Usage("--handler-secret-file: only an agent's URL has a key to sign with".to_owned()));
    }
    Ok(handler)
}
