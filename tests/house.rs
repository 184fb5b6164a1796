//! The rules of the house, read from the sources and from cargo: who may know whom, what may decide, where `unsafe` may
//! stand. CONTRIBUTING.md says why.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The ports of a shard. They do not import one another; `channel/`, `dispatch/` and `run.rs` join them.
const PORTS: [&str; 6] = ["queue", "registry", "directory", "session", "platform", "sink"];

/// The types of one port that another may name: words of the contract between them, without behaviour.
const SHARED_TYPES: [(&str, &str); 8] = [
    // Which network a channel is of: said by whoever lists channels or tells what happened on them.
    ("directory", "platform::PlatformKind"),
    ("sink", "platform::PlatformKind"),
    // What a platform is shown when it shall connect.
    ("platform", "directory::ChannelSpec"),
    // Under what right an event is stored.
    ("sink", "registry::Fence"),
    // Under what right a platform stores beside events, and a session is written.
    ("platform", "registry::Fence"),
    ("session", "registry::Fence"),
    // The session of a linked device: opened, and given to the library that speaks the protocol.
    ("platform", "session"),
    // Which lanes wait: stored by the registry, decided by the order of a queue.
    ("queue", "registry::LaneFact"),
];

/// What decides: functions of state, event and time. No runtime, no clock, no input or output.
const PURE: [&str; 19] = [
    "shard/src/channel/state.rs",
    "shard/src/directory/api/page.rs",
    "shard/src/directory/caution.rs",
    "shard/src/directory/entry.rs",
    "shard/src/platform/rate.rs",
    "shard/src/platform/slack/event.rs",
    "shard/src/platform/slack/link.rs",
    "shard/src/queue/lanes.rs",
    "shard/src/queue/lanes/",
    "shard/src/queue/retry.rs",
    "shard/src/sink/agent.rs",
    "shard/src/sink/delivery/backoff.rs",
    "shard/src/sink/delivery/plan/",
    "supervisor/src/action.rs",
    "supervisor/src/backoff.rs",
    "supervisor/src/exit_status.rs",
    "supervisor/src/intensity.rs",
    "supervisor/src/policy/",
    "supervisor/src/state.rs",
];

/// The only files with `unsafe` in them.
const UNSAFE: [&str; 3] = ["supervisor/src/spawn.rs", "supervisor/src/link/fd.rs", "shard/src/http/sockopt.rs"];

/// A file that says more than this has several ideas. The house aims at 80 to 300.
const MOST_LINES: usize = 600;

struct Source {
    path: String,
    text: String,
    /// The text without comments, string contents and whatever is compiled for tests alone.
    code: String,
    for_tests: bool,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).expect("a folder").flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    rust_files(root(), &mut paths);
    let texts: Vec<(String, String)> = paths
        .iter()
        .map(|path| {
            let shown = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
            (shown, fs::read_to_string(path).expect("UTF-8"))
        })
        .collect();
    let test_modules: Vec<String> = texts.iter().flat_map(|(path, text)| modules_for_tests(path, text)).collect();
    texts
        .into_iter()
        .map(|(path, text)| {
            let of_test = |module: &String| path == format!("{module}.rs") || path.starts_with(&format!("{module}/"));
            let for_tests = path.starts_with("tests/") || path.contains("/tests/") || test_modules.iter().any(of_test);
            let code = without_test_modules(&without_comments_and_strings(&text));
            Source { path, text, code, for_tests }
        })
        .collect()
}

/// The folder in which a file's child modules lie.
fn module_folder(path: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    if matches!(name, "mod" | "lib" | "main") { folder.to_owned() } else { stem.to_owned() }
}

/// `#[cfg(test)] mod name;`: the paths of such modules, without extension.
fn modules_for_tests(path: &str, text: &str) -> Vec<String> {
    let folder = module_folder(path);
    let declared = text.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let mut rest = rest.trim_start();
        let mut place = None;
        if let Some(renamed) = rest.strip_prefix("#[path = \"") {
            let (file, after) = renamed.split_once("\"]")?;
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            place = Some(format!("{folder}/{}", file.trim_end_matches(".rs")));
            rest = after.trim_start();
        }
        let name = rest.strip_prefix("mod ")?.split_once(';').map(|(name, _)| name)?;
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        plain.then(|| place.unwrap_or_else(|| format!("{folder}/{name}")))
    });
    declared.collect()
}

fn without_comments_and_strings(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if first == '"' {
            string_end(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.extend(rest[..skipped].chars().filter(|letter| *letter == '\n'));
        rest = &rest[skipped..];
    }
    code
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Inline test modules stand at a file's end here.
fn without_test_modules(code: &str) -> String {
    match code.split_once("#[cfg(test)]\nmod tests {") {
        Some((code, _)) => code.to_owned(),
        None => code.to_owned(),
    }
}

/// Every path that begins with `crate`, `super` or `self`, resolved to the crate's root, `use` trees spread out.
fn inner_paths(source: &Source, crate_root: &str) -> BTreeSet<String> {
    let below = source.path.strip_prefix(crate_root).expect("below the crate").trim_end_matches(".rs");
    let mut module: Vec<&str> = below.split('/').collect();
    if matches!(module.last(), Some(&("mod" | "lib" | "main"))) {
        module.pop();
    }
    let mut paths = BTreeSet::new();
    let code = source.code.split_whitespace().collect::<Vec<_>>().join(" ");
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':') {
                continue;
            }
            let mut spread = Vec::new();
            spread_tree(&code[at..], String::new(), &mut spread);
            paths.extend(spread.iter().filter_map(|path| resolve(path, &module)));
        }
    }
    paths
}

/// Spreads `a::{b, c::{d, e}}` into `a::b`, `a::c::d`, `a::c::e`; gives what follows.
fn spread_tree<'a>(text: &'a str, prefix: String, found: &mut Vec<String>) -> &'a str {
    let end =
        text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':')).unwrap_or(text.len());
    let path = format!("{prefix}{}", &text[..end]);
    let mut rest = &text[end..];
    if !rest.starts_with('{') {
        found.push(path);
        return rest;
    }
    rest = rest[1..].trim_start();
    while !rest.is_empty() && !rest.starts_with('}') {
        rest = spread_tree(rest, path.clone(), found).trim_start();
        // `as name`, a glob, or a comma.
        let next = rest.find([',', '}']).unwrap_or(rest.len());
        rest = rest[next..].trim_start_matches(',').trim_start();
    }
    rest.get(1..).unwrap_or_default()
}

fn resolve(path: &str, module: &[&str]) -> Option<String> {
    let mut place: Vec<&str> = module.to_vec();
    let mut parts = path.split("::").peekable();
    match parts.next()? {
        "crate" => place.clear(),
        "super" => {
            place.pop();
        }
        _ => {}
    }
    while parts.next_if_eq(&"super").is_some() {
        place.pop();
    }
    place.extend(parts.filter(|part| !part.is_empty()));
    Some(place.join("::"))
}

/// Rule 1: the primary knows processes, a shard knows channels.
#[test]
fn supervisor_and_shard_never_import_each_other() {
    for source in sources() {
        for (folder, other) in [("supervisor/", "shard::"), ("shard/", "supervisor::")] {
            let names_other = source.code.match_indices(other).any(|(at, _)| {
                !source.code[..at].ends_with(|letter: char| letter.is_alphanumeric() || "_:".contains(letter))
            });
            assert!(!(source.path.starts_with(folder) && names_other), "{} names {other}", source.path);
        }
    }
}

/// Rule 1, seen by cargo: nothing that speaks to a chat network, a broker or a database is behind the supervisor.
#[test]
fn nothing_behind_the_supervisor_knows_a_queue_or_a_chat() {
    let supervisor = behind("supervisor");
    for stranger in ["shard", "simulators", "reqwest", "hyper", "axum", "rusqlite", "teloxide-core", "lapin", "redis"] {
        assert!(!supervisor.contains(stranger), "supervisor depends on {stranger}");
    }
    assert!(!behind("shard").contains("supervisor"), "shard depends on supervisor");
    for source in sources().iter().filter(|source| source.path.starts_with("supervisor/src/")) {
        for word in ["telegram", "slack", "whatsapp", "rabbit", "redis", "sqlite"] {
            assert!(!source.code.to_lowercase().contains(word), "{} speaks of {word}", source.path);
        }
    }
}

/// The names of all packages behind one, development dependencies left out.
fn behind(package: &str) -> HashSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("UTF-8");
    let names: HashSet<String> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.contains(package) && names.contains("tokio"), "not what a tree looks like: {tree}");
    names
}

/// What cargo puts into the program with these features. (The tree of features itself names those that a dependency asks
/// for, not those that the package's own turn on.)
fn built_with(features: &str) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["tree", "--package", "shardvisor", "--edges", "normal", "--prefix", "none", "--format", "{p} {f}"])
        .args(["--offline", "--locked", "--no-default-features", "--features", features])
        .current_dir(root())
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// WhatsApp's chain of certificates is checked in every build but one for tests, and that one is seen here.
#[test]
fn no_package_skips_a_certificate() {
    let packed = Command::new(root().join("packaging/build")).arg("features").output().expect("packaging/build");
    let packed = String::from_utf8(packed.stdout).expect("UTF-8");
    let package = built_with(packed.trim());
    assert!(package.contains("whatsapp-rust"), "WhatsApp is in the package");
    let skips: Vec<&str> = package.lines().filter(|line| line.contains("danger")).collect();
    assert!(skips.is_empty(), "{skips:?}");
    let loopback = built_with(&format!("{},loopback", packed.trim()));
    assert!(loopback.contains("danger-skip-cert-chain-verify"), "this test can see it");
}

/// The demonstration needs no WhatsApp, and does not wait for it to be compiled.
#[test]
fn the_demonstration_alone_has_no_whatsapp() {
    let demo = built_with("demo");
    assert!(!demo.contains("whatsapp-rust") && !demo.contains("object_store"), "{demo}");
}

/// Rule 2: what decides is pure.
#[test]
fn what_decides_knows_no_runtime_no_clock_and_no_io() {
    let all = sources();
    for pure in PURE {
        let files: Vec<&Source> =
            all.iter().filter(|source| source.path.starts_with(pure) && !source.for_tests).collect();
        assert!(!files.is_empty(), "{pure} is not there: the list of this test is out of date");
        for source in files {
            for impure in [
                "tokio",
                "async ",
                ".await",
                "Instant",
                "SystemTime",
                "std::fs",
                "std::net",
                "std::thread",
                "rand::rng",
                "nix::unistd",
            ] {
                assert!(!source.code.contains(impure), "{} names {impure}", source.path);
            }
        }
    }
}

/// Rule 3: ports are few, and do not import one another.
#[test]
fn ports_do_not_import_one_another() {
    let all = sources();
    for source in all.iter().filter(|source| source.path.starts_with("shard/src/") && !source.for_tests) {
        let below = source.path.trim_start_matches("shard/src/").trim_end_matches(".rs");
        let port = below.split('/').next().unwrap_or_default();
        if !PORTS.contains(&port) {
            continue;
        }
        for path in inner_paths(source, "shard/src/") {
            let other = path.split("::").next().unwrap_or_default();
            let shared = SHARED_TYPES.iter().any(|(who, what)| *who == port && path.starts_with(what));
            let allowed = other == port || !PORTS.contains(&other) || shared;
            assert!(allowed, "{} imports {path}: ports do not import one another", source.path);
        }
    }
}

/// The test above sees through nested `use` trees and relative paths.
#[test]
fn imports_are_seen_however_they_are_spelt() {
    let of = |code: &str| {
        let source = Source {
            path: "shard/src/queue/x/mod.rs".into(),
            text: String::new(),
            code: code.into(),
            for_tests: false,
        };
        inner_paths(&source, "shard/src/").into_iter().collect::<Vec<_>>()
    };
    assert_eq!(
        of("use crate::{a::B, sink::{self, C as D, e::*}, f};"),
        ["a::B", "f", "sink::C", "sink::e", "sink::self"]
    );
    assert_eq!(of("fn f() -> super::super::registry::Lease {}"), ["registry::Lease"]);
    assert_eq!(of("use super::Depth; let x = self::y::Z;"), ["queue::Depth", "queue::x::y::Z"]);
}

/// `unsafe` has three rooms.
#[test]
fn unsafe_stands_in_three_files_alone() {
    for source in sources().iter().filter(|source| source.path != "tests/house.rs") {
        let words = source.code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        let has_unsafe = words.into_iter().any(|word| word == "unsafe");
        assert!(!has_unsafe || UNSAFE.contains(&source.path.as_str()), "{} has unsafe code", source.path);
    }
}

#[test]
fn every_file_says_what_it_is_and_has_one_idea() {
    for source in sources() {
        let lines = source.text.lines().count();
        assert!(source.text.starts_with("//! "), "{} does not open with //!", source.path);
        assert!(source.for_tests || lines <= MOST_LINES, "{} has {lines} lines", source.path);
    }
}

#[test]
fn nothing_is_left_for_later() {
    for source in sources().iter().filter(|source| source.path != "tests/house.rs") {
        for word in ["TODO", "FIXME", "XXX:", "todo!(", "unimplemented!(", "#[ignore"] {
            assert!(!source.text.contains(word), "{} has {word}", source.path);
        }
        // Each test takes from there what it needs.
        let support = source.path.starts_with("tests/support/");
        assert!(support || !source.code.contains("allow(dead_code)"), "{} keeps dead code", source.path);
    }
}
