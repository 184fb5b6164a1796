//! The command line: what can be asked for. Values of settings are read by the configuration, by the same strict
//! grammar from wherever they come.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use shard::{
    identity::{ChannelId, QueueName},
    platform::PlatformKind,
};

use crate::{
    config::{Sources, keys},
    exit::Failure,
};

/// A build that must not be used for anything but tests and demonstrations says so.
const VERSION: &str = if cfg!(feature = "loopback") {
    concat!(env!("CARGO_PKG_VERSION"), " (loopback build: connects WhatsApp to this machine alone)")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Keeps hundreds of chat connections alive on one small box and spreads them over its cores.
#[derive(Debug, Parser)]
#[command(name = "shardvisor", version = VERSION, disable_help_subcommand = true, max_term_width = 100)]
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

    /// The command line of a shard: `run` with the same settings, but for its port and index, which its primary gives it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let config = self.config.as_ref().map(|path| path.to_string_lossy().into_owned());
        let flags = [("--config", &config), ("--data-dir", &self.data_dir), ("--shard-count", &self.shard_count)];
        let given = flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value.clone()?]));
        std::iter::once("run".to_owned()).chain(given.flatten()).collect()
    }
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon
    Run,
    /// Replace the daemon's shards one after the other, and wait for the last
    Reload,
    /// Check the configuration: every error, or nothing
    CheckConfig(CheckConfig),
    /// Add, list, change and remove channels
    #[command(subcommand)]
    Channel(Channel),
    /// Confirm what a directory of channels that lies elsewhere says, and encrypt tokens for it
    #[command(subcommand)]
    Directory(Directory),
    /// Move device sessions (WhatsApp): out into a file, in from one, away
    #[cfg(feature = "whatsapp")]
    #[command(subcommand)]
    Session(Session),
    /// Put a job into the queue of its channel
    Send(Send),
    /// Tell which shard and queues a channel's work belongs to
    Where(Where),
    /// Ask where bots should be
    #[command(subcommand)]
    Bot(Bot),
    /// Show how the daemon on this box is doing
    Status(Status),
    /// List, replay and drop dead letters
    #[command(subcommand)]
    Dead(Dead),
    /// Print the JSON Schema of every job
    Schema,
    /// Write manual pages and completions below a directory
    #[command(hide = true)]
    Generate {
        /// The directory
        into: PathBuf,
    },
    /// Show it at work: simulators on loopback, real shards, people who chat
    #[cfg(feature = "demo")]
    Demo(Demo),
}

/// `demo`.
#[cfg(feature = "demo")]
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How long people chat, from the moment that all channels are connected
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = duration)]
    pub(crate) time: std::time::Duration,
    /// How many channels
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub(crate) channels: u32,
    /// How many shards
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) shards: u32,
    /// Which platforms
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "telegram")]
    pub(crate) platforms: Vec<PlatformKind>,
    /// Messages in a second, over all people [default: half a message for each channel, at most 50]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Only the summary, as one object on the last line
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "demo")]
fn duration(text: &str) -> Result<std::time::Duration, String> {
    crate::config::duration(text).ok_or_else(|| "expected a number and a unit, such as 20s".to_owned())
}

#[cfg(feature = "demo")]
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if (0.1..=1000.0).contains(&rate) { Ok(rate) } else { Err("expected 0.1 to 1000".to_owned()) }
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

/// `channel …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Channel {
    /// Add a channel to the built-in directory; prints its id
    Add(ChannelAdd),
    /// List all channels, wherever they are kept
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a channel and its token from the built-in directory
    Remove {
        /// The channel
        id: ChannelId,
    },
    /// Let a channel run; where the directory lies elsewhere, until that says something new of it
    Enable {
        /// The channel
        id: ChannelId,
    },
    /// Stop a channel, and keep it stopped; where the directory lies elsewhere, until that says something new of it
    Disable {
        /// The channel
        id: ChannelId,
    },
}

/// `directory …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Directory {
    /// End the channels that the directory suddenly listed no longer and that therefore went on
    Confirm,
    /// Encrypt a token for a column of bytes of a database, with the newest key of the key file; prints it as PostgreSQL reads it
    Seal {
        /// The channel, for which alone it will open
        id: ChannelId,
        /// The file that holds the token; `-` reads it from standard input. Several lines are one secret (Slack)
        #[arg(long, value_name = "FILE")]
        token_file: PathBuf,
        /// It is no token, but the key by which requests to the channel's agent are signed
        #[arg(long)]
        handler_secret: bool,
    },
}

/// `channel add`.
#[derive(Debug, Args)]
pub(crate) struct ChannelAdd {
    /// The platform: telegram, slack or whatsapp
    pub(crate) platform: PlatformKind,
    /// The file that holds the token (Slack: the app token and the bot token, each on a line); `-` reads it from standard
    /// input. A token is never an argument, where every user of the machine could see it. WhatsApp has none: a code that the
    /// events tell is scanned with the phone
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// WhatsApp: link by a code that is typed on the phone with this number, instead of one that is scanned
    #[arg(long, value_name = "DIGITS", conflicts_with = "token_file")]
    pub(crate) phone: Option<String>,
    /// The channel's id [default: a new random UUID]
    #[arg(long, value_name = "UUID")]
    pub(crate) id: Option<ChannelId>,
    /// Who answers: echo, none, or the agent behind a URL
    #[arg(long, default_value = "none", value_name = "echo|none|URL")]
    pub(crate) handler: String,
    /// The file that holds the key by which requests to the agent are signed
    #[arg(long, value_name = "FILE")]
    pub(crate) handler_secret_file: Option<PathBuf>,
    /// A name for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Replace the channel that has this id
    #[arg(long, requires = "id")]
    pub(crate) replace: bool,
}

/// `session …`.
#[cfg(feature = "whatsapp")]
#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Write a channel's session into a file, encrypted with the key file's keys
    Export {
        /// The channel
        id: ChannelId,
        /// The file, which must not be there yet
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Take a session in; the channel must be disabled
    Import {
        /// The channel
        id: ChannelId,
        /// A file of `session export`, made with a key that this box's key file holds
        #[arg(long, value_name = "FILE", required_unless_present = "baileys")]
        from: Option<PathBuf>,
        /// The folder of a multi-file auth state that Baileys has kept; nobody has to scan again
        #[arg(long, value_name = "DIR", conflicts_with = "from")]
        baileys: Option<PathBuf>,
        /// Replace the session that is there
        #[arg(long)]
        replace: bool,
    },
    /// Remove a channel's session and its snapshots for good; the channel must be disabled
    Delete {
        /// The channel
        id: ChannelId,
    },
}

/// `send`.
#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The channel
    #[arg(required_unless_present = "json")]
    pub(crate) channel: Option<ChannelId>,
    /// The conversation, in the platform's own form
    #[arg(required_unless_present = "json", allow_negative_numbers = true)]
    pub(crate) chat: Option<String>,
    /// The text; `-` reads it from standard input
    #[arg(required_unless_present = "json")]
    pub(crate) text: Option<String>,
    /// The job's id, by which a repeated job is known [default: a new one]
    #[arg(long, value_name = "ID", conflicts_with = "json")]
    pub(crate) id: Option<String>,
    /// What to do when it can't be told whether an earlier try was seen
    #[arg(long, value_enum, value_name = "POLICY", default_value = "resend", conflicts_with = "json")]
    pub(crate) on_uncertain: OnUncertain,
    /// Queue even when the daemon of this box runs with another shard count
    #[arg(long)]
    pub(crate) any_layout: bool,
    /// Read jobs from standard input, one JSON object a line, and put each into its queue
    #[arg(long, conflicts_with_all = ["channel", "chat", "text"])]
    pub(crate) json: bool,
}

/// What happens to a send that may or may not have been seen.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnUncertain {
    /// Send again: seen twice perhaps, never not at all
    Resend,
    /// Put it aside: not seen perhaps, never twice
    #[value(name = "dead_letter")]
    DeadLetter,
}

/// `bot`.
#[derive(Debug, Subcommand)]
pub(crate) enum Bot {
    /// Say which worker of a fleet should hold a bot
    ///
    /// The answer follows from the names of the workers and the bots, and is the same everywhere. With a load factor of 0 it is
    /// the plain ring's, for any bot and fleet, and needs neither daemon nor data directory.
    Where(BotWhere),
}

/// `bot where`.
#[derive(Debug, Args)]
pub(crate) struct BotWhere {
    /// The bot
    pub(crate) id: String,
    /// The workers, by id
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',', required = true)]
    pub(crate) workers: Vec<String>,
    /// How much more than its share a worker takes at most; 0 for the plain ring
    #[arg(long, value_name = "FACTOR", default_value_t = shard::placement::LOAD_FACTOR)]
    pub(crate) load_factor: f64,
    /// Points of one worker on the ring
    #[arg(long, value_name = "N", default_value_t = shard::placement::REPLICAS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) replicas: u32,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `where`.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The channel
    #[arg(required_unless_present = "channels")]
    pub(crate) id: Option<ChannelId>,
    /// Show how the channels of the directory are spread over the shards
    #[arg(long, conflicts_with = "id")]
    pub(crate) channels: bool,
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

/// `dead …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List dead letters, oldest first
    List {
        #[command(flatten)]
        from: DeadFrom,
        /// As JSON, one object a line
        #[arg(long)]
        json: bool,
    },
    /// Put dead letters back, attempts forgotten
    Replay(DeadChoice),
    /// Drop dead letters for good
    Drop(DeadChoice),
}

/// Which dead letters.
#[derive(Debug, Args)]
pub(crate) struct DeadFrom {
    /// Only those of this queue, for example whatsapp-1 [default: all queues of this box]
    #[arg(long, value_name = "QUEUE", conflicts_with = "events")]
    pub(crate) queue: Option<QueueName>,
    /// Events that could not be delivered, instead of jobs
    #[arg(long)]
    pub(crate) events: bool,
}

/// Which dead letters to move.
#[derive(Debug, Args)]
pub(crate) struct DeadChoice {
    #[command(flatten)]
    pub(crate) from: DeadFrom,
    /// Their numbers (with --events their ids), as listed
    #[arg(required_unless_present = "all", value_name = "NUMBER")]
    pub(crate) which: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "which")]
    pub(crate) all: bool,
}

/// What is wrong with the command line, as one line. Stray arguments are not repeated: one of them may be a token.
pub(crate) fn usage(error: &clap::Error) -> Failure {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let stray = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => !argument.starts_with('-'),
        _ => false,
    };
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::Usage("a command is missing: --help lists them all".to_owned());
    }
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
