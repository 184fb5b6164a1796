//! The configuration from outside: a table of what is refused and with which line, precedence, secrets that are never
//! repeated, and the documents that are generated from the code.

mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use support::Home;

/// What is done with a home before `check-config` runs in it.
struct Case {
    name: &'static str,
    env: &'static [(&'static str, &'static str)],
    file: &'static str,
    /// Every line of the answer, in order, by what it must contain.
    lines: &'static [&'static [&'static str]],
}

const fn case(
    name: &'static str,
    env: &'static [(&'static str, &'static str)],
    file: &'static str,
    lines: &'static [&'static [&'static str]],
) -> Case {
    Case { name, env, file, lines }
}

const CASES: &[Case] = &[
    case(
        "index equal to count",
        &[("SHARD_COUNT", "2"), ("SHARD_INDEX", "2")],
        "",
        &[&["SHARD_INDEX=\"2\"", "from 0 to 1", "SHARD_COUNT is 2"]],
    ),
    case("index without count", &[("SHARD_INDEX", "1")], "", &[&["SHARD_INDEX=\"1\"", "from 0 to 0"]]),
    case("negative index", &[("SHARD_COUNT", "2"), ("SHARD_INDEX", "-1")], "", &[&["SHARD_INDEX=\"-1\""]]),
    case("index with a leading zero", &[("SHARD_COUNT", "4"), ("SHARD_INDEX", "01")], "", &[&["SHARD_INDEX=\"01\""]]),
    case(
        "both are wrong",
        &[("SHARD_COUNT", "x"), ("SHARD_INDEX", "y")],
        "",
        &[&["SHARD_COUNT=\"x\""], &["SHARD_INDEX=\"y\""]],
    ),
    case(
        "aliases that disagree",
        &[("SHARD_COUNT", "2"), ("WHATSAPP_SHARD_COUNT", "3")],
        "",
        &[&["SHARD_COUNT=\"2\"", "WHATSAPP_SHARD_COUNT=\"3\"", "differ"]],
    ),
    case("a bad alias", &[("WHATSAPP_SHARD_COUNT", "2_0")], "", &[&["WHATSAPP_SHARD_COUNT=\"2_0\""]]),
    case(
        "worker ids that disagree",
        &[("WORKER_ID", "a"), ("BOT_WORKER_WORKER_ID", "b")],
        "",
        &[&["WORKER_ID=\"a\"", "BOT_WORKER_WORKER_ID=\"b\""]],
    ),
    case("a worker id for the wrong alphabet", &[("WORKER_ID", "a:b")], "", &[&["WORKER_ID=\"a:b\"", "letters"]]),
    case("a port out of range", &[("HEALTH_PORT", "65536")], "", &[&["HEALTH_PORT=\"65536\"", "from 0 to 65535"]]),
    case("a port with a sign", &[("HEALTH_PORT", "+80")], "", &[&["HEALTH_PORT=\"+80\""]]),
    case("an empty variable", &[("SHARDVISOR_EVENTS_URL", "")], "", &[&["SHARDVISOR_EVENTS_URL=\"\"", "URL"]]),
    case(
        "a relative data directory",
        &[("SHARDVISOR_DATA_DIR", "data")],
        "",
        &[&["SHARDVISOR_DATA_DIR=\"data\"", "an absolute path"]],
    ),
    case(
        "a broker's port that is none",
        &[("SHARDVISOR_QUEUE_URL", "amqp://u:hunter2@one,amqp://u:hunter2@rabbit:port/")],
        "",
        &[&["SHARDVISOR_QUEUE_URL=\"amqp://rabbit:port/\"", "amqp: or amqps:", "broker address 2"]],
    ),
    case(
        "a Redis with a path that is none",
        &[("SHARDVISOR_REGISTRY_URL", "rediss://:hunter2@redis/zero")],
        "",
        &[&["SHARDVISOR_REGISTRY_URL=\"rediss://redis/zero\"", "not the address of a Redis"]],
    ),
    case(
        "a broker as registry",
        &[("SHARDVISOR_REGISTRY_URL", "amqp://u:hunter2@rabbit/")],
        "",
        &[&["SHARDVISOR_REGISTRY_URL=\"amqp://rabbit/\"", "redis:"]],
    ),
    case(
        "a kind of queue that is none",
        &[("SHARDVISOR_QUEUE_TYPE", "mirrored")],
        "",
        &[&["SHARDVISOR_QUEUE_TYPE=\"mirrored\"", "quorum or classic"]],
    ),
    case("an unknown scheme", &[("SHARDVISOR_QUEUE_URL", "kafka://k")], "", &[&["SHARDVISOR_QUEUE_URL", "sqlite:"]]),
    case("a store with a path", &[("SHARDVISOR_QUEUE_URL", "sqlite:/tmp/q.db")], "", &[&["sqlite:", "data directory"]]),
    case(
        "a user of the platform's API",
        &[("SHARDVISOR_API_URL", "https://u:hunter2@api/")],
        "",
        &[&["SHARDVISOR_API_URL=\"https://api/\"", "no user here", "directory.token_file"]],
    ),
    case(
        "a database's password in the open",
        &[],
        "[directory]\nurl = \"postgres://u:hunter2@db/platform\"\n",
        &[&["directory.url=\"postgres://db/platform\"", "no password here", "directory.url_file"]],
    ),
    case(
        "a database without a name",
        &[("SHARDVISOR_DIRECTORY_URL", "postgres://u:hunter2@db")],
        "",
        &[&["SHARDVISOR_DIRECTORY_URL=\"postgres://db\"", "a postgres: URL", "names no database"]],
    ),
    case(
        "a directory with a query",
        &[("SHARDVISOR_DIRECTORY_URL", "https://api/?key=hunter2")],
        "",
        &[&["SHARDVISOR_DIRECTORY_URL=\"https://api/…\"", "without query"]],
    ),
    case(
        "a directory of an unknown kind",
        &[("SHARDVISOR_DIRECTORY_URL", "mysql://u:hunter2@db/x")],
        "",
        &[&["SHARDVISOR_DIRECTORY_URL=\"mysql://db/x\"", "sqlite:", "postgres:"]],
    ),
    case(
        "two names of the directory that differ",
        &[("SHARDVISOR_DIRECTORY_URL", "https://u:hunter2@a/"), ("SHARDVISOR_API_URL", "https://b/")],
        "",
        &[
            &["SHARDVISOR_DIRECTORY_URL=\"https://a/\"", "SHARDVISOR_API_URL=\"https://b/\"", "differ"],
            &["SHARDVISOR_DIRECTORY_URL", "no user here"],
        ],
    ),
    case(
        "a removal of many that is neither",
        &[("SHARDVISOR_DIRECTORY_MASS_REMOVAL", "maybe")],
        "",
        &[&["SHARDVISOR_DIRECTORY_MASS_REMOVAL=\"maybe\"", "hold or accept"]],
    ),
    case(
        "a URL that is none",
        &[("SHARDVISOR_EVENTS_URL", "ftp://u:hunter2@h/x")],
        "",
        &[&["SHARDVISOR_EVENTS_URL=\"ftp://h/x\"", "http: or https:"]],
    ),
    case(
        "a misspelt variable",
        &[("SHARDVISOR_DATADIR", "/x")],
        "",
        &[&["SHARDVISOR_DATADIR", "did you mean SHARDVISOR_DATA_DIR?"]],
    ),
    case(
        "a misspelt variable of the pool",
        &[("BOT_WORKER_CAPACTY", "5"), ("BOT_WORKER_HASH_REPLICA", "9")],
        "",
        &[&["BOT_WORKER_HASH_REPLICA", "did you mean BOT_WORKER_HASH_REPLICAS?"]],
    ),
    case(
        "misspelt keys",
        &[],
        "shard_cuont = 2\n[health]\nprot = 80\n",
        &[
            &["shardvisor.toml:3: health.prot", "did you mean health.port?"],
            &["shardvisor.toml:1: shard_cuont", "did you mean shard_count?"],
        ],
    ),
    case("a key in the wrong section", &[], "port = 80\n", &[&[":1: port", "did you mean health.port?"]]),
    case("a misspelt section", &[], "[helth]\nport = 80\n", &[&[":1: helth", "did you mean health?"]]),
    case("a stranger's key", &[], "[database]\npool = 5\n", &[&[":1: database", "docs/configuration.md"]]),
    case(
        "values of the wrong type",
        &[],
        "shard_count = [2]\ndata_dir = true\n[log]\nlevel = {}\n",
        &[
            &["data_dir is a boolean", "an absolute path"],
            &["log.level is a section", "error, warn"],
            &["shard_count is an array", "a whole number"],
        ],
    ),
    case("a value where a section belongs", &[], "health = 80\n", &[&["health is a value", "[health]"]]),
    case("a half-way number in quotes", &[], "shard_count = \"02\"\n", &[&[":1: shard_count=\"02\""]]),
    case("a float for a count", &[], "shard_count = 2.0\n", &[&[":1: shard_count=\"2.0\""]]),
    case("a duration without sense", &[], "[jobs]\ngrace = \"soon\"\n", &[&["jobs.grace=\"soon\"", "from 0s to 10m"]]),
    case("a duration out of bounds", &[], "[telegram]\npoll_timeout = \"2m\"\n", &[&["poll_timeout=\"2m\"", "50s"]]),
    case("no TOML", &[], "[log]\nlevel \"hunter2\"\n", &[&["shardvisor.toml:2:", "not TOML"]]),
    case("a key twice", &[], "shard_count = 1\nshard_count = 2\n", &[&[":2:", "not TOML", "duplicate"]]),
    case(
        "a secret in the file",
        &[],
        "[events]\nsecret = \"hunter2\"\n",
        &[&[":2: events.secret holds a secret itself", "events.secret_file"]],
    ),
    case(
        "a secret in a variable",
        &[("SHARDVISOR_EVENTS_SECRET", "hunter2")],
        "",
        &[&["SHARDVISOR_EVENTS_SECRET holds a secret itself", "SHARDVISOR_EVENTS_SECRET_FILE"]],
    ),
    case(
        "a secret file that is not there",
        &[("SHARDVISOR_EVENTS_SECRET_FILE", "/nonexistent/key")],
        "",
        &[&["SHARDVISOR_EVENTS_SECRET_FILE", "/nonexistent/key", "no such file"]],
    ),
    case(
        "a drain shorter than the grace",
        &[],
        "[jobs]\ngrace = \"30s\"\n[supervisor]\ndrain_timeout = \"30s\"\n",
        &[&["supervisor.drain_timeout=\"30s\"", "more than jobs.grace"]],
    ),
    case(
        "a heartbeat slower than its time-out",
        &[("BOT_WORKER_HEARTBEAT_INTERVAL", "10")],
        "",
        &[&["bot_worker.heartbeat_timeout (its default)=\"10s\"", "at least twice"]],
    ),
    case(
        "everything at once",
        &[("SHARD_COUNT", "0"), ("HEALTH_PORT", "http"), ("SHARDVISOR_LOG_LEVEL", "loud")],
        "speed = 9\n[jobs]\nattempts = 0\n",
        &[
            &[":1: speed is no setting"],
            &["SHARD_COUNT=\"0\""],
            &["HEALTH_PORT=\"http\""],
            &["jobs.attempts=\"0\""],
            &["SHARDVISOR_LOG_LEVEL=\"loud\"", "error, warn, info, debug or trace"],
        ],
    ),
];

fn prepared(home: &Home, env: &[(&str, &str)], file: &str, args: &[&str]) -> Command {
    let mut command = home.command(args);
    if !file.is_empty() {
        let path = home.dir.path().join("shardvisor.toml");
        fs::write(&path, file).expect("written");
        command.env("SHARDVISOR_CONFIG", path);
    }
    command.envs(env.iter().copied());
    command
}

fn refused(output: &Output, context: &str) -> Vec<String> {
    assert_eq!(output.status.code(), Some(78), "{context}: {output:?}");
    assert!(output.stdout.is_empty(), "{context}: {output:?}");
    let text = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(lines.iter().all(|line| line.starts_with("shardvisor: ")), "{context}: {text}");
    lines
}

/// Contract: I3, I5. Both commands say the same, and neither makes the data directory.
#[test]
fn every_bad_setting_is_one_clear_line_and_exit_78() {
    for case in CASES {
        for command in ["check-config", "run"] {
            let home = Home::new();
            let output = prepared(&home, case.env, case.file, &[command]).output().expect("runs");
            let lines = refused(&output, case.name);
            assert_eq!(lines.len(), case.lines.len(), "{}: {lines:#?}", case.name);
            for (line, parts) in lines.iter().zip(case.lines) {
                for part in *parts {
                    assert!(line.contains(part), "{}: {line:?} should contain {part:?}", case.name);
                }
                assert!(!line.contains("hunter2"), "{}: a secret in {line:?}", case.name);
            }
            assert!(!home.data_dir().exists(), "{}: {command} made the data directory", case.name);
        }
    }
}

/// Contract: I3. Field report R54.
#[test]
fn only_plain_digits_are_a_shard_count() {
    let refusals =
        ["02", "2 ", " 2", "+2", "-1", "0x2", "2.0", "1e1", "2_0", "٢", "", "0", "1025", "4294967296", "two", "AUTO"];
    for variable in ["SHARD_COUNT", "WHATSAPP_SHARD_COUNT"] {
        for value in refusals {
            let output = prepared(&Home::new(), &[(variable, value)], "", &["run"]).output().expect("runs");
            let lines = refused(&output, value);
            assert_eq!(lines.len(), 1, "{lines:?}");
            let expected =
                format!("shardvisor: {variable}={value:?} is refused: expected a whole number from 1 to 1024");
            assert!(lines[0].starts_with(&expected), "{}", lines[0]);
        }
        let home = Home::new();
        for value in ["1", "2", "1024"] {
            assert_eq!(shown(prepared(&home, &[(variable, value)], "", &[]))["shard_count"].to_string(), value);
        }
    }
    let flag = Home::new().run(&["check-config", "--shard-count", "-1"]);
    assert!(refused(&flag, "flag")[0].contains("--shard-count=\"-1\""), "{flag:?}");
}

/// The settings in force.
fn shown(mut command: Command) -> Value {
    let output = command.args(["check-config", "--show"]).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Contract: I5.
#[test]
fn environment_beats_file_and_flags_beat_both() {
    let home = Home::new();
    let file = "shard_count = 3\n[health]\nport = 1111\n[jobs]\ngrace = \"1m\"\n[supervisor]\ndrain_timeout = 90\n";
    let mut command = prepared(&home, &[("SHARD_COUNT", "4"), ("HEALTH_PORT", "2222")], file, &[]);
    command.args(["--health-port", "3333"]);
    let config = shown(command);
    assert_eq!(config["shard_count"], 4);
    assert_eq!(config["health"]["port"], 3333);
    assert_eq!((&config["jobs"]["grace"], &config["supervisor"]["drain_timeout"]), (&"1m".into(), &"90s".into()));
    assert_eq!(config["jobs"]["attempts"], 8);

    let mut command = prepared(&home, &[], file, &[]);
    command.env_remove("HEALTH_PORT");
    assert_eq!(shown(command)["health"]["port"], 1111);
}

/// Contract: I5, W1. The pool's settings as variables of the environment, durations in bare seconds.
#[test]
fn the_pools_variables_are_read_with_bare_seconds() {
    let env = [
        ("BOT_WORKER_WORKER_ID", "box-7"),
        ("BOT_WORKER_WORKER_CAPACITY", "10000"),
        ("BOT_WORKER_HEARTBEAT_INTERVAL", "10"),
        ("BOT_WORKER_HEARTBEAT_TIMEOUT", "30"),
        ("BOT_WORKER_STARTUP_JITTER_MAX", "5.0"),
        ("BOT_WORKER_HASH_REPLICAS", "100"),
        ("WHATSAPP_SHARD_COUNT", "2"),
        ("SHARD_COUNT", "2"),
    ];
    let config = shown(prepared(&Home::new(), &env, "", &[]));
    assert_eq!(config["worker_id"], "box-7");
    let pool = serde_json::json!({"worker_capacity": 10000, "heartbeat_interval": "10s", "heartbeat_timeout": "30s",
        "startup_jitter_max": "5s", "hash_replicas": 100});
    assert_eq!(config["bot_worker"], pool);
}

/// Contract: I5.
#[test]
fn a_named_file_must_be_there_and_an_absent_default_need_not() {
    let home = Home::new();
    let missing = home.dir.path().join("no.toml");
    let flag = home.run(&["check-config", "--config", missing.to_str().expect("UTF-8")]);
    let line = &refused(&flag, "flag")[0];
    assert!(line.contains("no.toml: can't be read: no such file") && line.contains("--config"), "{line}");
    let output = prepared(&home, &[("SHARDVISOR_CONFIG", "/nonexistent.toml")], "", &["run"]).output().expect("runs");
    assert!(refused(&output, "variable")[0].contains("SHARDVISOR_CONFIG"), "{output:?}");
    let directory = prepared(&home, &[("SHARDVISOR_CONFIG", "/tmp")], "", &["check-config"]).output().expect("runs");
    assert!(refused(&directory, "directory")[0].contains("is a directory"), "{directory:?}");
    let binary = home.dir.path().join("binary.toml");
    fs::write(&binary, [0xff, 0xfe]).expect("written");
    let output = home.run(&["check-config", "--config", binary.to_str().expect("UTF-8")]);
    assert!(refused(&output, "binary")[0].contains("not UTF-8"), "{output:?}");
    if !Path::new("/etc/shardvisor/shardvisor.toml").exists() {
        assert!(home.run(&["check-config"]).status.success());
        assert!(!home.data_dir().exists(), "check-config made the data directory");
    }
}

fn secret_file(home: &Home, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = home.dir.path().join(name);
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
    path
}

/// Contract: I4, I5. Field report R23.
#[test]
fn addresses_with_passwords_come_from_files_and_are_shown_without() {
    let home = Home::new();
    let queue = secret_file(&home, "queue", "amqp://u:hunter2@one/work\namqps://u:hunter2@two/work\n", 0o600);
    let registry = secret_file(&home, "registry", "rediss://u:hunter2@three:7000/1\n", 0o600);
    let mut command = home.command(&["check-config", "--show"]);
    command.env("SHARDVISOR_QUEUE_URL_FILE", &queue).env("SHARDVISOR_REGISTRY_URL_FILE", &registry);
    let output = command.output().expect("runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && !text.contains("hunter2"), "{text}");
    let shown: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(shown["queue"]["url"], "amqp://one:5672/work,amqps://two:5671/work");
    assert_eq!(shown["registry"]["url"], "rediss://three:7000/1");

    let both = home
        .command(&["check-config"])
        .env("SHARDVISOR_QUEUE_URL", "amqp://u:hunter2@one/")
        .env("SHARDVISOR_QUEUE_URL_FILE", &queue)
        .output()
        .expect("runs");
    let lines = refused(&both, "both");
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(line.contains("SHARDVISOR_QUEUE_URL=\"amqp://one/\"") && line.contains("queue.url_file"), "{line}");
    assert!(!line.contains("hunter2"), "{line}");
}

/// Contract: I5. Field report R23.
#[test]
fn secrets_come_from_files_and_credentials_and_are_never_shown() {
    let home = Home::new();
    let path = secret_file(&home, "key", "hunter2\nhunter3\n", 0o600);
    let mut command = home.command(&[]);
    command.env("SHARDVISOR_EVENTS_SECRET_FILE", &path);
    command.env("SHARDVISOR_EVENTS_URL", "https://u:hunter2@hooks.test/hunter2?k=hunter2");
    let config = shown(command);
    assert_eq!(config["events"]["secrets"], serde_json::json!(["[redacted]", "[redacted]"]));
    assert_eq!(config["events"]["url"], "https://hooks.test/…");
    assert!(!config.to_string().contains("hunter"), "{config}");

    secret_file(&home, "events-secret", "hunter2", 0o400);
    let mut command = home.command(&[]);
    command.env("CREDENTIALS_DIRECTORY", home.dir.path());
    assert_eq!(shown(command)["events"]["secrets"], serde_json::json!(["[redacted]"]));
}

/// A key that somebody else can write is somebody else's key; a directory or an empty file is none.
#[test]
fn a_secret_file_that_can_not_be_trusted_is_refused() {
    let home = Home::new();
    for (path, expected) in [
        (secret_file(&home, "loose", "hunter2", 0o622), "mode 0622 lets others write it: expected 0600"),
        (secret_file(&home, "group", "hunter2", 0o620), "mode 0620 lets others write it"),
        (secret_file(&home, "empty", "\n", 0o600), "is empty"),
        (secret_file(&home, "large", &"x".repeat(100_000), 0o600), "too many for a secret"),
        (home.dir.path().to_owned(), "no regular file"),
    ] {
        let mut command = home.command(&["run"]);
        let output = command.env("SHARDVISOR_EVENTS_SECRET_FILE", &path).output().expect("runs");
        let lines = refused(&output, expected);
        assert!(lines.len() == 1 && lines[0].contains(expected), "{lines:?}");
        assert!(!lines[0].contains("hunter2"), "{lines:?}");
    }
}

/// Variables that container platforms set unasked don't keep the daemon from starting.
#[test]
fn a_strangers_variable_is_a_warning() {
    let env = [("SHARDVISOR_SERVICE_HOST", "10.0.0.1"), ("SHARDVISOR_PORT_8080_TCP_ADDR", "10.0.0.1")];
    let output = prepared(&Home::new(), &env, "", &["check-config"]).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warned.contains("warning: SHARDVISOR_SERVICE_HOST is no setting"), "{warned}");
}

/// Contract: I3. `auto` is what the process may use, not what the machine has.
#[test]
fn auto_counts_the_cpus_that_this_process_may_use() {
    let home = Home::new();
    let mut pinned = Command::new("taskset");
    let inner = home.command(&[]);
    pinned.args(["-c", "0", support::BIN]).env_clear();
    pinned.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    pinned.env("SHARD_COUNT", "auto");
    assert_eq!(shown(pinned)["shard_count"], 1);
}

/// What packages install is what the code knows, and every default in it is accepted.
#[test]
fn the_sample_file_is_the_codes_own_and_its_defaults_are_valid() {
    let home = Home::new();
    let template = home.ok(&["check-config", "--template"]);
    let shipped = fs::read_to_string("packaging/shardvisor.toml").expect("packaging/shardvisor.toml");
    let how = "write `shardvisor check-config --template` to packaging/shardvisor.toml";
    for (shipped, known) in shipped.lines().zip(template.lines()) {
        assert_eq!(shipped, known, "{how}");
    }
    assert_eq!(shipped.trim().len(), template.len(), "{how}");

    let uncommented: Vec<&str> = template
        .lines()
        .filter(|line| !line.ends_with('='))
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .collect();
    let path = home.dir.path().join("defaults.toml");
    fs::write(&path, uncommented.join("\n")).expect("written");
    let bare = |file: &Path| {
        let mut command = home.command(&[]);
        command.env_remove("HEALTH_PORT").env_remove("SHARDVISOR_DATA_DIR").env("SHARDVISOR_CONFIG", file);
        let mut config = shown(command);
        config["file"] = Value::Null;
        config
    };
    let nothing = home.dir.path().join("nothing.toml");
    fs::write(&nothing, "").expect("written");
    assert_eq!(bare(&path), bare(&nothing));
}
