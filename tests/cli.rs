//! The commands from outside: what each prints, how it ends, and what it never shows.

mod support;

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use support::{Home, files_below, wait_for};

const TOKEN: &str = "4839574812:AAFD39kkdpWt3ywyRZergyOLMaJhac60qcK";
const CHANNEL: &str = "6f9619ff-8b86-4011-b42d-00c04fc964ff";
/// Bots, fleets, and whose the bot is by the plain ring.
const ORACLE: [(&str, &str, &str); 5] = [
    ("6f9619ff-8b86-4011-b42d-00c04fc964ff", "a,b,c", "b"),
    ("bot-1", "w1,w2,w3,w4", "w1"),
    ("bot-2", "w1,w2,w3,w4", "w3"),
    ("00000000-0000-4000-8000-000000000001", "box-0,box-1", "box-1"),
    ("bot-1", "w1,w2,w4", "w1"),
];

/// The one line that a failed command says.
fn fails(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert!(text.starts_with("shardvisor: ") && text.trim_end().lines().count() == 1, "not one line: {text:?}");
    text.trim_end().to_owned()
}

fn says(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8").trim().to_owned()
}

#[test]
fn a_wrong_command_line_is_one_line_and_exit_64() {
    for (args, expected) in [
        (&["fly"][..], "unrecognized subcommand 'fly'"),
        (&[], "a command is missing: --help lists them all"),
        (&["dead"], "a command is missing"),
        (&["where"], "required"),
        (&["where", CHANNEL, "--shard-cuont", "2"], "--shard-count"),
        (&["send", CHANNEL, "7"], "<TEXT>"),
        (&["send", CHANNEL, "7", "hi", "--on-uncertain", "maybe"], "dead_letter"),
        (&["send", "--json", CHANNEL], "cannot be used with"),
        (&["send", CHANNEL, "7", "hi", "--id", ""], "1 to 128 characters"),
        (&["dead", "replay"], "<NUMBER>"),
        (&["dead", "drop", "3"], "--queue"),
        (&["dead", "list", "--queue", "other"], "no queue of shardvisor"),
        (&["channel", "add", "telegram"], "--token-file"),
        (&["channel", "add", "irc", "--token-file", "-"], "expected telegram"),
        (&["channel", "add", "whatsapp", "--token-file", "-"], "WhatsApp has no token"),
        (&["channel", "add", "telegram", "--token-file", "-", "--handler", "ftp://u:p@h"], "http: or https: URL"),
    ] {
        let line = fails(&Home::new().run(args), 64);
        assert!(line.contains(expected), "{args:?}: {line}");
    }
    let version = Home::new().ok(&["--version"]);
    let said = format!("shardvisor {}", env!("CARGO_PKG_VERSION"));
    // A loopback build says what it is besides.
    assert!(version == said || cfg!(feature = "loopback") && version.starts_with(&said), "{version}");
}

/// Contract: I1. Field report R55. What is no UUID is refused the same way everywhere.
#[test]
fn where_tells_shard_and_queues_and_refuses_what_is_no_uuid() {
    let home = Home::new();
    let plain = CHANNEL.replace('-', "").to_uppercase();
    for spelling in [CHANNEL, &CHANNEL.to_uppercase(), &plain, &plain.to_lowercase()] {
        let answer = home.ok(&["where", spelling, "--shard-count", "2", "--json"]);
        let expected =
            r#"{"shard":1,"queues":{"send":"whatsapp-1","media":"whatsapp_media-1","avatars":"whatsapp_avatars-1"}}"#;
        assert_eq!(answer, expected);
    }
    let answer = home.ok(&["where", CHANNEL, "--json"]);
    assert_eq!(
        answer,
        r#"{"shard":0,"queues":{"send":"whatsapp","media":"whatsapp_media","avatars":"whatsapp_avatars"}}"#
    );
    for refused in [
        "{6f9619ff-8b86-4011-b42d-00c04fc964ff}",
        "urn:uuid:6f9619ff-8b86-4011-b42d-00c04fc964ff",
        " 6f9619ff-8b86-4011-b42d-00c04fc964ff",
        "12xy5678-8b86-4011-b42d-00c04fc964ff",
        "+0000001-8b86-4011-b42d-00c04fc964ff",
        "6f9619ff8b86-4011-b42d-00c04fc964ff",
        "",
    ] {
        let line = fails(&home.run(&["where", refused]), 64);
        assert!(line.contains("is not a channel id"), "{line}");
    }
    let line = fails(&home.run(&["where", CHANNEL, "--shard-count", "02"]), 78);
    assert!(line.contains("--shard-count=\"02\" is refused"), "{line}");
    assert!(!home.data_dir().exists(), "where made the data directory");
}

/// Contract: I1, I3. Field reports R54, R55. The fixture that all three languages read, refusals included.
#[test]
fn where_agrees_with_the_fixture() {
    let fixture = fs::read_to_string("tests/fixtures/shard_parity.json").expect("the fixture");
    let fixture: Value = serde_json::from_str(&fixture).expect("JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let home = Home::new();
    for channel in list(&fixture["channels"]).iter().step_by(8) {
        let spelling = text(list(&channel["spellings"]).last().expect("a spelling"));
        for (count, shard) in channel["shards"].as_object().expect("shards") {
            let answer = home.ok(&["where", "--shard-count", count, "--json", "--", &spelling]);
            assert_eq!(serde_json::from_str::<Value>(&answer).expect("JSON")["shard"], *shard, "{spelling} of {count}");
        }
    }
    // No argument can hold a NUL; `auto` is the daemon's own word, resolved before the grammar is asked.
    let passable = |value: &String| !value.contains('\0') && value != "auto";
    for refused in list(&fixture["refused_ids"]).iter().map(|id| text(&id["value"])).filter(passable) {
        let output = home.run(&["where", "--shard-count", "2", "--", &refused]);
        assert_eq!(output.status.code(), Some(64), "{refused:?}: {output:?}");
    }
    for refused in list(&fixture["count_grammar"]["refused"]).iter().map(|count| text(&count["value"])).filter(passable)
    {
        let output = home.run(&["where", CHANNEL, &format!("--shard-count={refused}")]);
        assert_eq!(output.status.code(), Some(78), "{refused:?}: {output:?}");
    }
}

/// Contract: W2, W5. The plain ring's answer for any fleet, as computed by its documentation's own Python.
#[test]
fn bot_where_answers_for_any_fleet_without_a_daemon() {
    let home = Home::new().with("SHARDVISOR_CONFIG", "/nonexistent.toml");
    let plain = ["bot", "where", "--load-factor", "0"];
    let ask = |id: &str, workers: &str| home.ok(&[&plain[..], &[id, "--workers", workers]].concat());
    for (id, workers, owner) in ORACLE {
        assert_eq!(ask(id, workers), owner, "{id} of {workers}");
    }
    assert_eq!(ask(&CHANNEL.to_uppercase(), "a,b,c"), ask(CHANNEL, "c,b,a"), "one id, one set");
    let answer = home.ok(&[&plain[..], &[CHANNEL, "--workers", "w2", "--json"]].concat());
    assert_eq!(answer, r#"{"worker_id":"w2"}"#);
    assert!(!home.data_dir().exists());
    for (args, expected) in [
        (&["bot", "where", CHANNEL][..], "--workers"),
        (&["bot", "where", CHANNEL, "--workers", "a,,b"], "no worker id"),
        (&["bot", "where", CHANNEL, "--workers", "a", "--load-factor", "0.5"], "expected 0, or 1 to 10"),
    ] {
        let line = fails(&home.run(args), 64);
        assert!(line.contains(expected), "{line}");
    }
}

/// Contract: W2. With a load factor the answer follows from all bots of the directory, linked devices left out.
#[test]
fn bot_where_keeps_loads_even_among_the_bots_of_the_directory() {
    let home = Home::new();
    let ids: Vec<String> = (0..20).map(|n| home.add_telegram(&format!("{n}{TOKEN}"), "none")).collect();
    let mut loads = std::collections::HashMap::<String, u32>::new();
    for id in &ids {
        *loads.entry(home.ok(&["bot", "where", id, "--workers", "a,b,c,d"])).or_default() += 1;
    }
    assert_eq!((loads.len(), loads.values().sum::<u32>(), loads.values().max()), (4, 20, Some(&5)));
    let line = fails(&home.run(&["bot", "where", CHANNEL, "--workers", "a"]), 64);
    assert!(line.contains("--load-factor 0"), "{line}");
}

/// The configuration may be readable for the daemon alone: with the count given it is not needed.
#[test]
fn where_with_a_count_needs_no_configuration() {
    let home = Home::new().with("SHARDVISOR_CONFIG", "/nonexistent.toml");
    home.ok(&["where", CHANNEL, "--shard-count", "2"]);
    fails(&home.run(&["where", CHANNEL]), 78);
}

/// A token is read from a file or standard input alone, is stored encrypted, and is in no output.
#[test]
fn a_token_is_in_no_argument_no_output_and_no_file() {
    let home = Home::new();
    let mut child = home
        .command(&["channel", "add", "telegram", "--token-file", "-", "--handler", "echo", "--label", "support"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let arguments = format!("/proc/{}/cmdline", child.id());
    let arguments = wait_for("its arguments", Duration::from_secs(10), || {
        fs::read_to_string(&arguments).ok().filter(|text| text.contains("token-file"))
    });
    assert!(!arguments.contains("AAFD39"), "{arguments:?}");
    writeln!(child.stdin.take().expect("piped"), "{TOKEN}").expect("written");
    let output = child.wait_with_output().expect("ended");
    let id = says(&output);
    let listed = home.ok(&["channel", "list", "--json"]);
    let expected =
        json!([{"id": id, "platform": "telegram", "shard": 0, "enabled": true, "handler": "echo", "label": "support"}]);
    assert_eq!(serde_json::from_str::<Value>(&listed).expect("JSON"), expected);
    let files = files_below(&home.data_dir());
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        let bytes = fs::read(&file).expect("read");
        assert!(!bytes.windows(6).any(|part| part == b"AAFD39"), "the token is in {file:?}");
    }
}

/// Somebody will give the token as an argument: it must not come back in an error that ends in a log.
#[test]
fn a_token_given_where_it_does_not_belong_is_not_repeated() {
    let home = Home::new();
    for args in [
        &["channel", "add", "telegram", TOKEN][..],
        &["channel", "add", TOKEN],
        &["channel", "add", "telegram", "--token", TOKEN],
        &["channel", "add", "telegram", "--token-file", "-", "--handler", TOKEN],
        &["channel", "remove", TOKEN],
        &["send", TOKEN, "7", "hi"],
    ] {
        let line = fails(&home.run(args), 64);
        assert!(!line.contains("AAFD39"), "{args:?}: {line}");
    }
    for text in [TOKEN.replace(':', "="), format!("{TOKEN} {TOKEN}"), String::new(), format!("{TOKEN}\nAAFD39")] {
        let output = home.with_input(&["channel", "add", "telegram", "--token-file", "-"], &text);
        let line = fails(&output, 64);
        assert!(line.contains("--token-file -") && !line.contains("AAFD39"), "{line}");
    }
    assert!(!home.data_dir().exists(), "a refused channel made the data directory");
}

/// Contract: W6.
#[test]
fn a_slack_app_needs_both_tokens_to_be_held_and_neither_is_repeated() {
    let home = Home::new();
    let (app, bot) = ("xapp-1-A0123456789-1234567890-deadbeefcafe", "xoxb-1234567890-0987654321-hunter2hunter2");
    let add = ["channel", "add", "slack", "--token-file", "-"];
    for text in [
        app.to_owned(),
        format!("{bot}\n{bot}"),
        format!("{app} {bot} x"),
        "xoxp-1-2-hunter2".to_owned(),
        String::new(),
    ] {
        let line = fails(&home.with_input(&add, &text), 64);
        assert!(line.contains("--token-file -"), "{line}");
        assert!(!line.contains("deadbeef") && !line.contains("hunter2"), "{line}");
    }
    assert!(!home.data_dir().exists(), "a refused channel made the data directory");
    let held = says(&home.with_input(&add, &format!("{bot}\n{app}\n")));
    let by_http = says(&home.with_input(&add, bot));
    let listed = home.ok(&["channel", "list"]);
    let line_of = |id: &str| listed.lines().find(|line| line.starts_with(id)).expect("listed").to_owned();
    assert_eq!(line_of(&held), format!("{held} slack shard 0 enabled none"));
    assert_eq!(line_of(&by_http), format!("{by_http} slack shard 0 not held none"));
    let objects: Vec<Value> = serde_json::from_str(&home.ok(&["channel", "list", "--json"])).expect("JSON");
    let not_held: Vec<_> =
        objects.iter().filter(|object| object["held"] == false).map(|object| &object["id"]).collect();
    assert_eq!(not_held, [&json!(by_http)]);
}

#[test]
fn a_channel_is_disabled_enabled_replaced_and_removed() {
    let home = Home::new();
    let token = home.dir.path().join("token");
    fs::write(&token, TOKEN).expect("written");
    let token = token.to_str().expect("UTF-8");
    let add = ["channel", "add", "telegram", "--token-file", token, "--id", CHANNEL];
    assert_eq!(home.ok(&add), CHANNEL);
    let line = fails(&home.run(&add), 64);
    assert!(line.contains("is there already") && line.contains("--replace"), "{line}");
    let agent = ["--replace", "--handler", "https://u:hunter2@agent.test/hook/hunter2", "--label", "second"];
    home.ok(&[&add[..], &agent].concat());
    home.ok(&["channel", "disable", CHANNEL]);
    let listed = home.ok(&["channel", "list"]);
    assert_eq!(listed, format!("{CHANNEL} telegram shard 0 disabled https://agent.test/… \"second\""));
    home.ok(&["channel", "enable", &CHANNEL.to_uppercase()]);
    assert!(home.ok(&["channel", "list"]).contains(" enabled "));
    home.ok(&["channel", "remove", CHANNEL]);
    assert_eq!(home.ok(&["channel", "list"]), "");
    for command in ["remove", "enable", "disable"] {
        let line = fails(&home.run(&["channel", command, CHANNEL]), 69);
        assert!(line.contains(&format!("there is no channel {CHANNEL}")), "{line}");
    }
}

/// Bad input: a key file that others can read, that holds no key, or that is another one.
#[test]
fn a_key_file_that_can_not_be_used_is_one_clear_line() {
    let home = Home::new();
    home.add_telegram(TOKEN, "echo");
    let key = home.data_dir().join("secret.key");
    let good = fs::read(&key).expect("the key file");
    assert_eq!(key.metadata().expect("there").permissions().mode() & 0o777, 0o600);

    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("set");
    let line = fails(&home.run(&["channel", "list"]), 78);
    assert!(line.contains("secret.key") && line.contains("0644"), "{line}");

    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
    fs::write(&key, "hunter2\n").expect("written");
    let line = fails(&home.run(&["channel", "list"]), 78);
    assert!(line.contains("secret.key") && !line.contains("hunter2"), "{line}");

    fs::remove_file(&key).expect("removed");
    fs::create_dir(&key).expect("made");
    fails(&home.run(&["channel", "list"]), 78);
    fs::remove_dir(&key).expect("removed");
    fs::write(&key, good).expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
    home.ok(&["channel", "list"]);
}

/// Bad input: a data directory that is a file, is read-only, or holds somebody else's database.
#[test]
fn a_data_directory_that_can_not_be_used_is_one_clear_line() {
    let home = Home::new();
    fs::write(home.data_dir(), "a file").expect("written");
    for args in [&["channel", "list"][..], &["send", CHANNEL, "7", "hi"], &["dead", "list"]] {
        let line = fails(&home.run(args), 78);
        assert!(line.contains("data: is no directory"), "{line}");
    }
    fs::remove_file(home.data_dir()).expect("removed");
    fs::create_dir(home.data_dir()).expect("made");
    fs::write(home.data_dir().join("queue.db"), "this is no database at all, and long enough to be read")
        .expect("written");
    let line = fails(&home.run(&["send", CHANNEL, "7", "hi"]), 78);
    assert!(line.contains("queue.db"), "{line}");
    assert!(fs::read(home.data_dir().join("queue.db")).expect("read").starts_with(b"this is"), "it was overwritten");

    let read_only = Home::new().with("SHARDVISOR_DATA_DIR", "/proc/shardvisor");
    let line = fails(&read_only.run(&["send", CHANNEL, "7", "hi"]), 78);
    assert!(line.contains("/proc/shardvisor"), "{line}");
    let token = home.with_input(&["channel", "add", "telegram", "--token-file", "-", "--data-dir", "/proc/x"], TOKEN);
    let line = fails(&token, 78);
    assert!(line.contains("/proc/x") && !line.contains("AAFD39"), "{line}");
}

/// Bad input: a full disk, a read-only one. In a mount namespace of its own, which takes root's rights.
#[test]
fn a_full_or_read_only_disk_is_one_clear_line_and_costs_nothing_queued() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    fs::create_dir(home.data_dir()).expect("made");
    let (disk, bin) = (home.data_dir().display().to_string(), support::BIN);
    let send = format!("{bin} send {CHANNEL} 7 hi");
    let script = format!(
        "mount -t tmpfs -o size=2m none {disk} && {send} && head -c 3m /dev/zero > {disk}/fill 2>/dev/null; \
         {send} --shard-count 2; echo full $?; rm {disk}/fill; mount -o remount,ro {disk} && {send}; echo read-only $?; \
         mount -o remount,rw {disk} && {send} && {bin} dead list; echo rest $?"
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("SHARDVISOR_DATA_DIR", &disk);
    let output = command.output().expect("unshare");
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let told: Vec<&str> = told.lines().filter(|line| line.len() != 36).collect();
    assert_eq!(told, ["full 78", "read-only 78", "rest 0"], "{output:?}");
    let errors: Vec<&str> = errors.lines().collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("shardvisor: ") && errors[0].contains("disk"), "{errors:?}");
    assert!(errors[1].starts_with("shardvisor: ") && errors[1].contains("writable"), "{errors:?}");
}

/// Root's commands leave nothing behind that the daemon's user could not open.
#[test]
fn a_command_of_root_becomes_the_owner_of_the_data_directory() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    fs::create_dir(home.data_dir()).expect("made");
    chown(home.data_dir(), Some(65534), Some(65534)).expect("given away");
    fs::set_permissions(home.dir.path(), fs::Permissions::from_mode(0o711)).expect("set");
    let secret = home.dir.path().join("token");
    fs::write(&secret, TOKEN).expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    home.ok(&["channel", "add", "telegram", "--token-file", secret.to_str().expect("UTF-8"), "--id", CHANNEL]);
    home.ok(&["send", CHANNEL, "7", "hi"]);
    let files = files_below(&home.data_dir());
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        assert_eq!(file.metadata().expect("there").uid(), 65534, "{file:?}");
    }
}

/// Contract: Q1. What is queued is told once it is durable: its id, and with `--json` its queue.
#[test]
fn send_prints_the_id_of_what_it_queued() {
    let home = Home::new();
    assert_eq!(home.ok(&["send", CHANNEL, "7", "hi", "--id", "job-1", "--on-uncertain", "dead_letter"]), "job-1");
    let made = home.ok(&["send", CHANNEL, "-1001234567890", "--", "-- dashes --"]);
    assert_eq!(made.len(), 36, "a UUID: {made}");
    let piped = home.with_input(&["send", CHANNEL, "7", "-"], "several\nlines\n");
    assert_eq!(says(&piped).len(), 36);

    let home = Home::new().with("SHARD_COUNT", "2");
    let jobs = [
        json!({"name": "send", "id": "a", "channel_id": CHANNEL, "data": {"chat_id": "7", "text": "hi"}, "trace": "kept"}),
        json!({"name": "fetch_avatar", "id": "b", "channel_id": CHANNEL, "data": {"chat_id": "7"}}),
        json!({"name": "connect", "id": "c", "channel_id": CHANNEL.replace("6f9619ff", "6f9619fe"), "data": {}}),
    ];
    let lines: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let told = says(&home.with_input(&["send", "--json"], &format!("{}\n\n", lines.join("\n"))));
    let expected = [
        r#"{"id":"a","queue":"whatsapp-1"}"#,
        r#"{"id":"b","queue":"whatsapp_avatars-1"}"#,
        r#"{"id":"c","queue":"whatsapp-0"}"#,
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
    assert!(home.data_dir().join("queue-1.db").exists() && home.data_dir().join("queue-0.db").exists());
}

/// Contract: Q5. A mistake in one line is told with its number, and nothing of the input is queued.
#[test]
fn a_line_that_is_no_job_is_named_and_nothing_is_queued() {
    let home = Home::new();
    let good =
        json!({"name": "send", "id": "a", "channel_id": CHANNEL, "data": {"chat_id": "7", "text": "hi"}}).to_string();
    let input = format!("{good}\nnull\n{}\n", good.replace("\"send\"", "\"sned\""));
    let output = home.with_input(&["send", "--json"], &input);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let lines = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("standard input, line 2: expected a JSON object, found null"), "{lines:?}");
    assert!(lines[1].contains("line 3: field `name`: \"sned\" is no job"), "{lines:?}");
    assert!(!home.data_dir().exists(), "something was queued");
    let line = fails(&home.with_input(&["send", "--json"], "\n"), 64);
    assert!(line.contains("holds no job"), "{line}");
}

/// Contract: I3b. A producer that counts differently from the daemon is told so before anything is queued.
#[test]
fn send_refuses_another_shard_count_than_the_daemons() {
    let home = Home::new();
    home.add_telegram(TOKEN, "echo");
    let store = rusqlite::Connection::open(home.data_dir().join("box.db")).expect("the store");
    store
        .execute("INSERT OR REPLACE INTO layout (one, shard_count, epoch) VALUES (1, 2, 1)", [])
        .expect("a daemon of two shards ran");
    let line = fails(&home.run(&["send", CHANNEL, "7", "hi"]), 78);
    assert!(line.contains("SHARD_COUNT is 1 here, and 2 for the daemon"), "{line}");
    assert!(!home.data_dir().join("queue.db").exists(), "something was queued");
    home.ok(&["send", CHANNEL, "7", "hi", "--shard-count", "2"]);
    home.ok(&["send", CHANNEL, "7", "hi", "--any-layout"]);
}

#[test]
fn an_empty_box_lists_nothing_and_makes_nothing() {
    let home = Home::new();
    assert_eq!(home.ok(&["channel", "list"]), "");
    assert_eq!(home.ok(&["channel", "list", "--json"]), "[]");
    assert_eq!(home.ok(&["dead", "list"]), "");
    assert_eq!(home.ok(&["dead", "list", "--events"]), "");
    assert_eq!(home.ok(&["dead", "drop", "--all"]), "0 dropped");
    assert_eq!(home.ok(&["where", "--channels", "--shard-count", "2"]).lines().count(), 2);
    assert!(!home.data_dir().exists(), "looking made the data directory");
}

/// Contract: I1b.
#[test]
fn where_shows_the_share_of_each_shard_and_warns_of_time_ordered_ids() {
    let home = Home::new().with("SHARD_COUNT", "4");
    for n in 0..12 {
        let id = format!("0198a3f4-0000-7000-8000-0000000000{n:02}");
        let output = home.with_input(&["channel", "add", "telegram", "--token-file", "-", "--id", &id], TOKEN);
        assert!(output.status.success(), "{output:?}");
    }
    let output = home.run(&["where", "--channels", "--json"]);
    assert_eq!(says(&output), r#"{"channels":[12,0,0,0],"time_ordered":12}"#);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warned.contains("warning: channels are spread unevenly: shard 0 has 12 of 12"), "{warned}");
}

/// Contract: Q1. The schema accepts what the parser accepts, by the names of all jobs.
#[test]
fn schema_prints_all_jobs() {
    let schema: Value = serde_json::from_str(&Home::new().ok(&["schema"])).expect("JSON");
    let text = schema.to_string();
    for name in ["connect", "send", "send_media", "revoke", "group_invite_link", "download_media", "fetch_avatar"] {
        assert!(text.contains(&format!("\"const\":\"{name}\"")), "{name} is not in the schema");
    }
    assert_eq!(schema["required"], json!(["name", "id", "channel_id", "data"]));
}

/// Answers one request, as a daemon's health port or as something else on that port.
fn one_answer(answer: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 1024];
        let read = stream.read(&mut request).expect("a request");
        assert!(request[..read].starts_with(b"GET /status HTTP/1."));
        stream.write_all(answer.as_bytes()).expect("written");
    });
    port
}

#[test]
fn status_shows_what_the_health_port_says() {
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"shard_count\":2,\"shards\":[{\"up\":true}]}";
    let home = Home::new().with("HEALTH_PORT", one_answer(answer));
    assert_eq!(home.ok(&["status"]), "shard_count: 2\nshards[0].up: true");
    let home = Home::new();
    fs::create_dir(home.data_dir()).expect("made");
    fs::write(home.data_dir().join("health.port"), format!("{}\n", one_answer(answer))).expect("written");
    assert_eq!(home.ok(&["status", "--json"]), r#"{"shard_count":2,"shards":[{"up":true}]}"#);
}

#[test]
fn status_without_a_daemon_is_one_line_and_exit_69() {
    let line = fails(&Home::new().run(&["status"]), 69);
    assert!(line.contains("health.port: no such file or directory: is shardvisor running?"), "{line}");
    let closed = TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("bound").port();
    let line = fails(&Home::new().with("HEALTH_PORT", closed).run(&["status"]), 69);
    assert!(line.contains("connection refused: is shardvisor running?"), "{line}");
    for answer in ["HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n<html>", "SSH-2.0-x\r\n"] {
        fails(&Home::new().with("HEALTH_PORT", one_answer(answer)).run(&["status"]), 69);
    }
}

/// Answers one request on the control socket.
fn one_control_answer(home: &Home, answer: &'static str) -> std::thread::JoinHandle<String> {
    let _ = fs::create_dir(home.data_dir());
    let path = home.data_dir().join("control.sock");
    let _ = fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(path).expect("a socket");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 1024];
        let read = stream.read(&mut request).expect("a request");
        stream.write_all(answer.as_bytes()).expect("written");
        String::from_utf8_lossy(&request[..read]).into_owned()
    })
}

#[test]
fn reload_waits_for_the_answer_of_the_primary() {
    let alone = fails(&Home::new().run(&["reload"]), 69);
    assert!(alone.contains("nobody holds slot 0 in ") && alone.ends_with("is shardvisor running?"), "{alone}");
    let home = Home::new().with("SHARD_COUNT", "2");
    let line = fails(&home.run(&["reload"]), 69);
    assert!(line.contains("control.sock: no such file or directory: is shardvisor running"), "{line}");
    let primary = one_control_answer(&home, "\"done\"\n");
    assert_eq!(home.ok(&["reload"]), "");
    assert_eq!(primary.join().expect("asked"), "{\"request\":\"reload\"}\n");
    one_control_answer(&home, "{\"failed\":{\"reason\":\"shard 1 is not ready\"}}\n");
    let line = fails(&home.run(&["reload"]), 69);
    assert!(line.ends_with("not reloaded: shard 1 is not ready"), "{line}");
}

/// A reader that goes away early is no fault, and nobody sees a stack trace.
#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let mut child =
        Home::new().command(&["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ended");
    assert!(output.stderr.is_empty(), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}
