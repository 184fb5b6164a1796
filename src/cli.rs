//! The command line: what can be asked for. Values of settings are read by the configuration, by the same strict
//! grammar from wherever they come.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use shard::identity::ChannelId;

use crate::{
    config::{Sources, keys},
    exit::Failure,
};

/// Keeps hundreds of chat connections alive on one small box and spreads them over its cores.
#[derive(Debug, Parser)]
#[command(name = "shardvisor", version, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Settings that can be given for one command; they beat environment and file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Settings {
    /// The configuration file [default: /etc/shardvisor/shardvisor.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
    /// Where everything durable lies
    #[arg(long, global = true, value_name = "DIR", help_heading = "Settings")]
    pub(crate) data_dir: Option<String>,
    /// How many shards the fleet has, or auto
    #[arg(long, global = true, value_name = "N", help_heading = "Settings", allow_hyphen_values = true)]
    pub(crate) shard_count: Option<String>,
    /// Run this one static shard
    #[arg(long, global = true, value_name = "I", help_heading = "Settings", allow_hyphen_values = true)]
    pub(crate) shard_index: Option<String>,
    /// The health port; 0 takes a free one
    #[arg(long, global = true, value_name = "PORT", help_heading = "Settings", allow_hyphen_values = true)]
    pub(crate) health_port: Option<String>,
}

impl Settings {
    /// Where the configuration comes from, these flags included.
    pub(crate) fn sources(&self) -> Sources {
        let flags = [
            (keys::DATA_DIR.name, &self.data_dir),
            (keys::SHARD_COUNT.name, &self.shard_count),
            (keys::SHARD_INDEX.name, &self.shard_index),
            (keys::HEALTH_PORT.name, &self.health_port),
        ];
        let given = flags.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        Sources::of_process(self.config.clone(), given)
    }
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon
    Run,
    /// Check the configuration: every error, or nothing
    CheckConfig(CheckConfig),
    /// Tell which shard and queues a channel's work belongs to
    Where(Where),
    /// Show how the daemon on this box is doing
    Status(Status),
    /// Print the JSON Schema of every job
    Schema,
}

/// `check-config`.
#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// Print the settings in force as JSON, secrets redacted
    #[arg(long)]
    pub(crate) show: bool,
    /// Print a configuration file with every setting at its default, commented out
    #[arg(long, conflicts_with = "show")]
    pub(crate) template: bool,
}

/// `where`.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The channel
    pub(crate) id: ChannelId,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is wrong with the command line, as one line. Stray arguments are not repeated: one of them may be a token.
pub(crate) fn usage(error: &clap::Error) -> Failure {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let stray = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => !argument.starts_with('-'),
        _ => false,
    };
    if error.kind() == ErrorKind::UnknownArgument && stray {
        return Failure::Usage("there is an argument too many (not repeated here; a token is read from a file)".into());
    }
    let text = error.render().to_string();
    let told: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .collect();
    Failure::Usage(without_tokens(told.join(" ").trim_start_matches("error: ")))
}

/// Long opaque words left out, UUIDs kept: somebody who gives a token where something else belongs must not read it in a
/// log afterwards.
fn without_tokens(text: &str) -> String {
    let of_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | ':');
    let opaque =
        |word: &str| word.len() >= 24 && !word.starts_with("--") && word.contains(|c: char| c.is_ascii_digit());
    let uuid = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(|letter| !of_word(letter)) {
        let word = part.trim_end_matches(|letter| !of_word(letter));
        if opaque(word) && !uuid(word) {
            shown.push_str("[redacted]");
            shown.push_str(&part[word.len()..]);
        } else {
            shown.push_str(part);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_token_in_an_error_is_left_out_and_a_uuid_stays() {
        let shown = without_tokens("'123456:AAE-xyz_abcdefghijklmnopqrstuvw' and 6f9619ff-8b86-4011-b42d-00c04fc964ff");
        assert_eq!(shown, "'[redacted]' and 6f9619ff-8b86-4011-b42d-00c04fc964ff");
    }
}
