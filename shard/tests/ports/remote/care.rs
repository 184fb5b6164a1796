//! What a remote directory is not believed at once, and what this box sets against its word.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use serde_json::json;
use shard::directory::Directory;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use super::{
    api::source,
    follow, id, kept, listed, running, stale,
    web::{Reply, Web, bot, bots},
};
use crate::{embedded::data_dir, suites::within};

/// What was logged on this thread.
#[derive(Clone, Default)]
pub(super) struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    pub(super) fn new() -> (DefaultGuard, Self) {
        let this = Self::default();
        let subscriber = tracing_subscriber::fmt().with_writer(this.clone()).with_ansi(false).finish();
        (tracing::subscriber::set_default(subscriber), this)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("log")).into_owned()
    }

    pub(super) fn count(&self, part: &str) -> usize {
        self.text().matches(part).count()
    }
}

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("log").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logged {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Contract: C2.
#[tokio::test]
async fn most_channels_or_all_are_not_removed_until_somebody_confirms_it() {
    let (_log, logged) = Logged::new();
    let web = Web::listing(1..41).await;
    let dir = data_dir();
    let (directory, metrics) = follow(dir.path(), source(&web));
    assert_eq!(listed(&directory).await, running(1..41));
    for (left, gone) in [(1..11, 30), (1..1, 40)] {
        web.list(bots(left));
        for _ in 0..3 {
            assert_eq!(listed(&directory).await, running(1..41), "they go on");
        }
        assert_eq!(metrics.directory_held.get(), gone);
    }
    assert_eq!(logged.count("looks like a mistake"), 1, "{}", logged.text());
    web.list(bots(1..41));
    assert_eq!(listed(&directory).await, running(1..41));
    assert_eq!(metrics.directory_held.get(), 0);
    assert_eq!(kept(dir.path()).confirm().await.expect("confirmed"), 0, "nothing is held back any longer");

    web.list(bots(1..11));
    listed(&directory).await;
    drop(directory);
    // It is held back over a restart, too, and then confirmed by another process.
    let (mut directory, _) = follow(dir.path(), source(&web));
    directory.listen(0);
    assert_eq!(listed(&directory).await, running(1..41));
    assert_eq!(kept(dir.path()).confirm().await.expect("confirmed"), 30);
    within("the word of it", directory.changed()).await;
    assert_eq!(listed(&directory).await, running(1..11));
    // Who came back and is lost again is a new mistake.
    web.list(bots(1..41));
    listed(&directory).await;
    web.list(bots(1..11));
    assert_eq!(listed(&directory).await, running(1..41));
}

/// Contract: C2. Each shard of a box acts on the same confirmation.
#[tokio::test]
async fn a_confirmation_counts_for_every_shard_of_the_box() {
    let web = Web::listing(1..41).await;
    let dir = data_dir();
    let shards = [follow(dir.path(), source(&web)).0, follow(dir.path(), source(&web)).0];
    for shard in &shards {
        listed(shard).await;
    }
    web.list(json!([]));
    for shard in &shards {
        assert_eq!(listed(shard).await, running(1..41));
    }
    assert_eq!(kept(dir.path()).confirm().await.expect("confirmed"), 40);
    for _ in 0..2 {
        for shard in &shards {
            assert_eq!(listed(shard).await, running([]));
        }
    }
}

/// Contract: C2. That a channel is disabled was said by somebody.
#[tokio::test]
async fn a_mass_disable_is_taken_at_its_word() {
    let web = Web::listing(1..41).await;
    let dir = data_dir();
    let (directory, metrics) = follow(dir.path(), source(&web));
    listed(&directory).await;
    let off = |number| {
        let mut entry = bot(number);
        entry["enabled"] = json!(false);
        entry
    };
    web.list((1..41).map(off).collect());
    assert!(listed(&directory).await.values().all(|enabled| !enabled));
    assert_eq!(metrics.directory_held.get(), 0);
}

/// Contract: C2. `connect` and `disconnect` work where the directory is only read.
#[tokio::test]
async fn what_a_job_sets_holds_until_the_directory_itself_changes_its_mind() {
    let web = Web::listing(1..3).await;
    let dir = data_dir();
    let (mut directory, _) = follow(dir.path(), source(&web));
    directory.listen(0);
    listed(&directory).await;
    assert!(directory.set_enabled(id(1), false).await.expect("set"));
    assert!(!directory.set_enabled(id(9), false).await.expect("there is none"));
    within("the word of it", directory.changed()).await;
    assert_eq!(listed(&directory).await, [(1, false), (2, true)].into());
    drop(directory);
    // It holds over a restart, and while the directory is away.
    let (directory, _) = follow(dir.path(), source(&web));
    web.answer(|_| Reply::Status(500));
    assert_eq!(stale(directory.channels().await).1, [(1, false), (2, true)].into());
    assert!(directory.set_enabled(id(2), false).await.expect("set"));
    assert!(directory.set_enabled(id(2), true).await.expect("set back"));
    assert_eq!(stale(directory.channels().await).1, [(1, false), (2, true)].into());
    // It is gone, and comes back as something new.
    web.list(bots(2..3));
    assert_eq!(listed(&directory).await, running(2..3));
    web.list(bots(1..3));
    assert_eq!(listed(&directory).await, running(1..3));
    // Disabled there, enabled by a job, enabled there, disabled there: the last word counts.
    let with = |enabled: bool| {
        let mut entry = bot(1);
        entry["enabled"] = json!(enabled);
        json!([entry, bot(2)])
    };
    web.list(with(false));
    assert_eq!(listed(&directory).await, [(1, false), (2, true)].into());
    assert!(directory.set_enabled(id(1), true).await.expect("set"));
    assert_eq!(listed(&directory).await, running(1..3));
    web.list(with(true));
    assert_eq!(listed(&directory).await, running(1..3));
    web.list(with(false));
    assert_eq!(listed(&directory).await, [(1, false), (2, true)].into());
}
