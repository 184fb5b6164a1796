//! The packages on a machine of their own: a Debian 12 with a real systemd, from installation to purge. Needs root, mmdebstrap and
//! systemd-nspawn; says so aloud where they are missing.

mod support;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use simulators::telegram::{BotHandle, Telegram};
use support::{BIN, wait_for};

const SOON: Duration = Duration::from_secs(30);
const UNIT: &str = "shardvisor.service";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target")
}

/// What the test can't do without; `None`, said aloud, where it is missing.
fn equipped(tools: &[&str]) -> Option<()> {
    let missing = |tool: &&&str| Command::new(tool).arg("--version").output().is_err();
    let lacking = tools.iter().find(missing).map(|tool| (*tool).to_owned());
    let required = std::env::var("PACKAGE_TOOLS").is_ok_and(|value| value == "required");
    if let Some(tool) = lacking {
        assert!(!required, "{tool} is missing");
        eprintln!("SKIPPED: needs {tool}");
        return None;
    }
    // What no package brings: the right, and the kernel's leave, to boot a machine in namespaces.
    let apart =
        Command::new("unshare").args(["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "true"]).output();
    let boots = tools.contains(&"systemd-nspawn");
    if boots && !(nix::unistd::geteuid().is_root() && apart.is_ok_and(|output| output.status.success())) {
        eprintln!("SKIPPED: needs root, and namespaces of its own");
        return None;
    }
    Some(())
}

/// Packs the binary under test.
fn pack(kind: &str, version: &str, into: &Path) -> PathBuf {
    let output = Command::new(root().join("packaging/build"))
        .args([kind, "--fast", "--binary", BIN, "--version", version, "--out"])
        .arg(into)
        .output()
        .expect("packaging/build");
    assert!(output.status.success(), "{output:?}");
    PathBuf::from(String::from_utf8(output.stdout).expect("UTF-8").trim())
}

/// A machine that runs.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn boot() -> Self {
        // One root is kept for all runs; each test gets a copy.
        let kept = target().join("debian-root");
        boot("make", &kept, &[]);
        let dir = tempfile::tempdir().expect("a directory");
        let copied = Command::new("cp").args(["-a", "--reflink=auto"]).arg(&kept).arg(dir.path().join("root")).status();
        assert!(copied.expect("cp").success());
        let machine = Self { dir };
        boot("up", &machine.root(), &["--while", &std::process::id().to_string()]);
        machine
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// A path inside, as it is from outside.
    fn path(&self, inside: &str) -> PathBuf {
        self.root().join(inside.trim_start_matches('/'))
    }

    fn run(&self, command: &[&str]) -> Output {
        let mut run = Command::new(root().join("tests/support/boot"));
        run.arg("run").arg(self.root()).args(command).output().expect("boot")
    }

    fn ok(&self, command: &[&str]) -> String {
        let output = self.run(command);
        assert!(output.status.success(), "{command:?}: {output:?}\n{}", self.journal());
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn journal(&self) -> String {
        String::from_utf8_lossy(&self.run(&["journalctl", "--no-pager", "-u", UNIT, "-n", "60"]).stdout).into_owned()
    }

    fn property(&self, name: &str) -> String {
        self.ok(&["systemctl", "show", "-P", name, UNIT])
    }

    fn is_active(&self) -> bool {
        self.run(&["systemctl", "is-active", "--quiet", UNIT]).status.success()
    }

    /// Brings a package in, and installs it as an operator would.
    fn install(&self, package: &Path) {
        let inside = format!("/root/{}", package.file_name().expect("a name").to_string_lossy());
        fs::copy(package, self.path(&inside)).expect("copied");
        if inside.ends_with(".deb") {
            self.ok(&["apt-get", "install", "-y", "-o", "Dpkg::Options::=--force-confold", &inside]);
        } else {
            self.ok(&["rpm", "-U", "--nodeps", &inside]);
        }
    }

    /// Takes the comment sign away from a setting of the configuration, as an operator would, and gives it a value.
    fn configure(&self, key: &str, value: &str) {
        let path = self.path("/etc/shardvisor/shardvisor.toml");
        let before = fs::read_to_string(&path).expect("the configuration");
        let (wanted, name) = key.split_once('.').map_or(("", key), |(section, name)| (section, name));
        let (mut section, mut found) = ("", false);
        let lines: Vec<String> = before
            .lines()
            .map(|line| {
                if let Some(begun) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                    section = begun;
                }
                let is_it = section == wanted && line.trim_start_matches('#').starts_with(&format!("{name} ="));
                found |= is_it;
                if is_it { format!("{name} = {value}") } else { line.to_owned() }
            })
            .collect();
        assert!(found, "{key} is in the configuration");
        fs::write(&path, lines.join("\n")).expect("written");
    }

    fn shards(&self) -> Vec<String> {
        let main = self.property("MainPID");
        let mut pids: Vec<_> = self.ok(&["pgrep", "-P", &main]).lines().map(str::to_owned).collect();
        pids.sort();
        pids
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the journal\n{}", self.journal());
        }
        boot("down", &self.root(), &[]);
    }
}

fn boot(action: &str, dir: &Path, more: &[&str]) {
    let output = Command::new(root().join("tests/support/boot")).arg(action).arg(dir).args(more).output();
    let output = output.expect("tests/support/boot");
    assert!(output.status.success(), "boot {action}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A channel on a machine, added as in README.
fn add_channel(machine: &Machine, bot: &BotHandle) {
    fs::write(machine.path("/root/token"), bot.token()).expect("written");
    machine.ok(&["shardvisor", "channel", "add", "telegram", "--token-file", "/root/token", "--handler", "echo"]);
}

async fn answers(bot: &BotHandle, chat: i64) {
    let user = bot.user(chat);
    let before = user.answers().len();
    user.say("are you there?");
    user.wait_for_answers(before + 1, SOON).await.expect("an answer");
}

fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).expect("bound").local_addr().expect("an address").port()
}

/// Two shards on a port of their own, with the simulator as the platform.
fn configure(machine: &Machine, telegram: &Telegram) {
    machine.configure("shard_count", "2");
    machine.configure("health.bind", "\"127.0.0.1\"");
    machine.configure("health.port", &free_port().to_string());
    machine.configure("telegram.api_url", &format!("\"{}\"", telegram.url()));
}

/// Contract: P1, P5. Field report R42.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deb_is_installed_configured_started_upgraded_and_purged() {
    let Some(()) = equipped(&["mmdebstrap", "systemd-nspawn", "dpkg-deb"]) else { return };
    let packages = tempfile::tempdir().expect("a directory");
    let (older, newer) = (pack("deb", "0.0.9", packages.path()), pack("deb", "0.1.0", packages.path()));
    let telegram = Telegram::start().await.expect("a simulator");
    let bot = telegram.add_bot();
    let machine = Machine::boot();

    // Command 1. Installed: nothing runs, nothing is enabled, and nobody else can read what may hold secrets.
    machine.install(&older);
    assert!(!machine.is_active());
    assert!(!machine.run(&["systemctl", "is-enabled", "--quiet", UNIT]).status.success());
    let mode = |path: &str| {
        let about = fs::metadata(machine.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        (about.permissions().mode() & 0o7777, about.uid(), about.gid())
    };
    let id = |flag| machine.ok(&["id", flag, "shardvisor"]).parse::<u32>().expect("a number");
    let (user, group) = (id("-u"), id("-g"));
    assert_eq!(mode("/etc/shardvisor/shardvisor.toml"), (0o640, 0, group));
    assert_eq!(mode("/etc/shardvisor/credentials"), (0o700, 0, 0));
    assert_eq!(mode("/var/lib/shardvisor"), (0o700, user, group));
    assert_eq!(machine.ok(&["shardvisor", "check-config"]).lines().count(), 1);
    for path in [
        "/usr/share/man/man8/shardvisor.8.gz",
        "/usr/share/man/man5/shardvisor.toml.5.gz",
        "/usr/share/man/man1/shardvisor.1.gz",
        "/usr/share/bash-completion/completions/shardvisor",
        "/usr/share/zsh/vendor-completions/_shardvisor",
        "/usr/share/fish/vendor_completions.d/shardvisor.fish",
        "/etc/needrestart/conf.d/shardvisor.conf",
        "/usr/share/doc/shardvisor/CHANGELOG.md.gz",
        "/usr/share/doc/shardvisor/copyright",
        "/usr/share/doc/shardvisor/THIRD-PARTY.gz",
    ] {
        assert!(machine.path(path).exists(), "{path}");
    }
    for unit in [UNIT, "shardvisor-shard@0.service"] {
        let security = machine.ok(&["systemd-analyze", "security", "--no-pager", unit]);
        let exposure =
            security.lines().last().and_then(|line| line.split_whitespace().find_map(|word| word.parse::<f64>().ok()));
        assert!(exposure.is_some_and(|exposure| exposure <= 1.5), "{security}");
    }

    // 2: the one file is edited. 3: a channel. 4: started. Then it answers.
    configure(&machine, &telegram);
    fs::write(machine.path("/etc/shardvisor/credentials/events-secret"), "hunter2\n").expect("written");
    add_channel(&machine, &bot);
    machine.ok(&["systemctl", "enable", "--now", UNIT]);
    answers(&bot, 1).await;
    assert_eq!(machine.shards().len(), 2);
    assert!(!machine.journal().contains("hunter2"));

    // A reload that waits: when it is done, both shards are others, and the primary is the same.
    let (main, shards) = (machine.property("MainPID"), machine.shards());
    machine.ok(&["systemctl", "reload", UNIT]);
    assert_eq!(machine.property("MainPID"), main);
    assert!(machine.shards().iter().all(|pid| !shards.contains(pid)));
    answers(&bot, 2).await;

    // Killed, and stopped: it comes back.
    machine.ok(&["systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT]);
    wait_for("another primary", SOON, || (machine.is_active() && machine.property("MainPID") != main).then_some(()));
    answers(&bot, 3).await;
    let main = machine.property("MainPID");
    machine.ok(&["kill", "-STOP", &main]);
    wait_for("the watchdog", Duration::from_secs(60), || {
        (machine.is_active() && machine.property("MainPID") != main).then_some(())
    });
    answers(&bot, 4).await;

    // Upgraded while it runs: the configuration is kept, the shards are of the new version, the primary goes on.
    let (main, shards) = (machine.property("MainPID"), machine.shards());
    machine.install(&newer);
    let version = machine.ok(&["dpkg-query", "-W", "-f", "${Version}", "shardvisor"]);
    assert_eq!(version, "0.1.0");
    assert!(
        fs::read_to_string(machine.path("/etc/shardvisor/shardvisor.toml"))
            .expect("kept")
            .contains(&telegram.url().to_string())
    );
    assert_eq!(machine.property("MainPID"), main);
    assert!(machine.shards().iter().all(|pid| !shards.contains(pid)));
    answers(&bot, 5).await;

    // Stopped stays stopped over an upgrade.
    machine.ok(&["systemctl", "stop", UNIT]);
    assert_eq!(machine.property("Result"), "success");
    machine.ok(&[
        "apt-get",
        "install",
        "-y",
        "--reinstall",
        &format!("/root/{}", newer.file_name().expect("a name").to_string_lossy()),
    ]);
    assert!(!machine.is_active());

    // What only a person can mend is not tried again.
    machine.configure("shard_count", "0");
    assert!(!machine.run(&["systemctl", "start", UNIT]).status.success());
    wait_for("the end", SOON, || (machine.property("ActiveState") == "failed").then_some(()));
    assert_eq!(machine.property("ExecMainStatus"), "78");
    assert!(machine.journal().contains("shard_count=\"0\" is refused"), "{}", machine.journal());

    // Removed: what was set and what is queued stays. Purged: nothing does.
    machine.ok(&["apt-get", "remove", "-y", "shardvisor"]);
    assert!(
        machine.path("/etc/shardvisor/shardvisor.toml").exists() && machine.path("/var/lib/shardvisor/box.db").exists()
    );
    assert!(!machine.path("/usr/bin/shardvisor").exists());
    machine.ok(&["apt-get", "purge", "-y", "shardvisor"]);
    assert!(!machine.path("/etc/shardvisor").exists() && !machine.path("/var/lib/shardvisor").exists());
    let left = machine.run(&["systemctl", "list-unit-files", "--no-legend", "shardvisor*"]);
    assert!(left.stdout.is_empty(), "{left:?}");
}

/// Contract: P2. A box of static shards, each a unit of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rpm_is_installed_runs_static_shards_is_upgraded_and_erased() {
    let Some(()) = equipped(&["mmdebstrap", "systemd-nspawn", "rpmbuild"]) else { return };
    let packages = tempfile::tempdir().expect("a directory");
    let [older, newer, newest] = ["0.0.9", "0.1.0", "0.1.1"].map(|version| pack("rpm", version, packages.path()));
    let telegram = Telegram::start().await.expect("a simulator");
    let bots = [telegram.add_bot(), telegram.add_bot(), telegram.add_bot()];
    let machine = Machine::boot();
    machine.install(&older);
    assert_eq!(machine.ok(&["rpm", "-V", "--nodeps", "shardvisor"]), "");
    assert!(!machine.is_active());
    configure(&machine, &telegram);
    bots.iter().for_each(|bot| add_channel(&machine, bot));
    for shard in [0, 1] {
        let environment = format!("SHARD_COUNT=2\nHEALTH_PORT={}\n", free_port());
        fs::write(machine.path(&format!("/etc/shardvisor/shard-{shard}.env")), environment).expect("written");
        machine.ok(&["systemctl", "start", &format!("shardvisor-shard@{shard}.service")]);
    }
    for bot in &bots {
        answers(bot, 1).await;
    }
    machine.ok(&["systemctl", "reload", "shardvisor-shard@1.service"]);

    // Upgraded while they run: both are of the new version.
    let units = ["shardvisor-shard@0.service", "shardvisor-shard@1.service"];
    let pids = || units.map(|unit| machine.ok(&["systemctl", "show", "--value", "--property=MainPID", unit]));
    let before = pids();
    machine.install(&newer);
    assert!(pids().iter().zip(before).all(|(now, before)| *now != before && now != "0"));
    for bot in &bots {
        answers(bot, 2).await;
    }
    machine.ok(&["systemctl", "stop", units[0], units[1]]);

    // The same box as one service; upgraded while it runs.
    machine.ok(&["systemctl", "start", UNIT]);
    let (main, shards) = (machine.property("MainPID"), machine.shards());
    machine.install(&newest);
    assert_eq!(machine.property("MainPID"), main);
    assert!(machine.shards().iter().all(|pid| !shards.contains(pid)));
    for bot in &bots {
        answers(bot, 3).await;
    }
    machine.ok(&["rpm", "-e", "shardvisor"]);
    assert!(!machine.is_active() && !machine.path("/usr/bin/shardvisor").exists());
}

/// The same tree, the same bytes; and nothing that the checkers of either family find.
#[test]
fn packages_are_reproducible_and_clean() {
    let Some(()) = equipped(&["dpkg-deb", "rpmbuild", "lintian", "rpmlint"]) else { return };
    let (first, second) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    for kind in ["deb", "rpm"] {
        let (one, two) = (pack(kind, "0.1.0", first.path()), pack(kind, "0.1.0", second.path()));
        assert!(fs::read(&one).expect("read") == fs::read(&two).expect("read"), "two {kind} packages differ");
        let found = if kind == "deb" {
            Command::new("lintian").args(["--fail-on", "error,warning"]).arg(&one).output()
        } else {
            Command::new("rpmlint").arg("-c").arg(root().join("packaging/rpm/rpmlint.toml")).arg(&one).output()
        };
        let found = found.expect("ran");
        let said = String::from_utf8_lossy(&found.stdout).into_owned();
        assert!(found.status.success() && !said.contains(": W: "), "{said}");
    }
}
