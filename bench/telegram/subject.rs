//! What is measured: a command that holds these bots, made ready by a function of its own.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

type Prepare = Box<dyn Fn(&Scene) -> io::Result<Start>>;

/// One way to hold the bots.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    prepare: Prepare,
}

/// What a subject is given.
pub(crate) struct Scene {
    /// The Bot API's URL.
    pub(crate) url: String,
    /// One for each bot.
    pub(crate) tokens: Vec<String>,
    /// A directory of its own.
    pub(crate) directory: TempDir,
}

/// What is started when all is ready.
pub(crate) struct Start {
    command: Command,
    input: String,
}

/// A subject that runs; it ends when dropped.
pub(crate) struct Running(Child);

impl Subject {
    /// python-telegram-bot, all bots in one process; `built` is the argument of `ptb.py`.
    pub(crate) fn python(name: &'static str, python: PathBuf, built: &'static str) -> Self {
        let prepare = move |scene: &Scene| {
            let mut command = Command::new(&python);
            command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("telegram/ptb.py")).arg(built);
            command.env("TELEGRAM_API_URL", &scene.url).env("NO_PROXY", "127.0.0.1");
            // The empty line ends the list.
            Ok(Start { command, input: format!("{}\n\n", scene.tokens.join("\n")) })
        };
        Self { name, prepare: Box::new(prepare) }
    }

    /// `shardvisor run` with one shard, its built-in echo as the handler, all limits as they are by default.
    pub(crate) fn daemon(name: &'static str, daemon: PathBuf) -> Self {
        let prepare = move |scene: &Scene| {
            let command = |arguments: &[&str]| {
                let mut command = Command::new(&daemon);
                command.args(arguments).current_dir(scene.directory.path());
                command.env("SHARDVISOR_DATA_DIR", scene.directory.path().join("data"));
                command.env("SHARDVISOR_TELEGRAM_API_URL", &scene.url);
                command.env("SHARD_COUNT", "1").env("HEALTH_PORT", "0");
                command
            };
            let file = scene.directory.path().join("token");
            for token in &scene.tokens {
                fs::write(&file, token)?;
                let mut add = command(&["channel", "add", "telegram", "--handler", "echo", "--token-file"]);
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
    pub(crate) fn prepare(&self, scene: &Scene) -> io::Result<Start> {
        (self.prepare)(scene)
    }
}

impl Start {
    /// Starts it. What it says goes to `log`.
    pub(crate) fn run(mut self, log: &Path) -> io::Result<Running> {
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
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its status, if it ended by itself.
    pub(crate) fn ended(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        self.0.try_wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
