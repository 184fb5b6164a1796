//! What is measured: a command that holds these bots, made ready by a function of its own.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

type Prepare = Box<dyn Fn(&Scene) -> io::Result<Start>>;

/// On which platform the bots are.
#[derive(Debug, Clone, Copy)]
pub enum Platform {
    /// Telegram: a token is the bot's.
    Telegram,
    /// Slack: a token is the app's and the bot's, a blank between them.
    Slack,
}

impl Platform {
    fn name(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Slack => "slack",
        }
    }

    fn api_url(self, prefix: &str) -> String {
        format!("{prefix}{}_API_URL", self.name().to_uppercase())
    }
}

/// One way to hold the bots.
pub struct Subject {
    /// What it is called.
    pub name: &'static str,
    prepare: Prepare,
}

/// What a subject is given.
pub struct Scene {
    /// The API's URL.
    pub url: String,
    /// One for each bot.
    pub tokens: Vec<String>,
    /// A directory of its own.
    pub directory: TempDir,
}

/// What is started when all is ready.
pub struct Start {
    command: Command,
    input: String,
}

/// A subject that runs; it ends when dropped.
pub struct Running(Child);

impl Subject {
    /// A script that holds all bots in one process. It is told where by `<PLATFORM>_API_URL`, and the tokens by its
    /// standard input, one a line, an empty line after the last.
    pub fn script(name: &'static str, platform: Platform, program: PathBuf, arguments: Vec<OsString>) -> Self {
        let prepare = move |scene: &Scene| {
            let mut command = Command::new(&program);
            command.args(&arguments).env(platform.api_url(""), &scene.url).env("NO_PROXY", "127.0.0.1");
            Ok(Start { command, input: format!("{}\n\n", scene.tokens.join("\n")) })
        };
        Self { name, prepare: Box::new(prepare) }
    }

    /// `shardvisor run` with one shard, its built-in echo as the handler, all limits as they are by default.
    pub fn daemon(name: &'static str, platform: Platform, daemon: PathBuf) -> Self {
        let prepare = move |scene: &Scene| {
            let command = |arguments: &[&str]| {
                let mut command = Command::new(&daemon);
                command.args(arguments).current_dir(scene.directory.path());
                command.env("SHARDVISOR_DATA_DIR", scene.directory.path().join("data"));
                command.env(platform.api_url("SHARDVISOR_"), &scene.url);
                command.env("SHARD_COUNT", "1").env("HEALTH_PORT", "0");
                command
            };
            let file = scene.directory.path().join("token");
            for token in &scene.tokens {
                fs::write(&file, token)?;
                let mut add = command(&["channel", "add", platform.name(), "--handler", "echo", "--token-file"]);
                let added = add.arg(&file).stdin(Stdio::null()).output()?;
                if !added.status.success() {
                    let said = String::from_utf8_lossy(&added.stderr).into_owned();
                    return Err(io::Error::other(format!("channel add ended with {}: {said}", added.status)));
                }
            }
            Ok(Start { command: command(&["run"]), input: String::new() })
        };
        Self { name, prepare: Box::new(prepare) }
    }

    /// Makes everything ready; nothing of this is measured.
    pub fn prepare(&self, scene: &Scene) -> io::Result<Start> {
        (self.prepare)(scene)
    }
}

impl Start {
    /// Starts it. What it says goes to `log`.
    pub fn run(mut self, log: &Path) -> io::Result<Running> {
        let log = fs::File::create(log)?;
        self.command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let mut child = Running(self.command.spawn()?);
        if let Some(mut input) = child.0.stdin.take() {
            input.write_all(self.input.as_bytes())?;
        }
        Ok(child)
    }
}

impl Running {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its status, if it ended by itself.
    pub fn ended(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        self.0.try_wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
