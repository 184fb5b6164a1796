//! WhatsApp through the real binary: link, talk, die, restart, move, log out; the simulator, its phones and Baileys on the
//! other side.

mod baileys;
mod deaths;
#[path = "../support/endpoint.rs"]
mod endpoint;
mod history;
mod import;
mod peer;
#[path = "../support/mod.rs"]
mod support;
mod world;

use serde_json::json;
use simulators::whatsapp::{Attachment, Kind};
use support::{Home, signal, wait_for};
use world::{SOON, a_box, of};

/// Contract: P1, P3, Q1, Q8, C4, E1, E2. Field reports R03, R33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_linked_talks_dies_goes_on_and_is_logged_out() {
    for shards in [1, 2] {
        let world = a_box(shards).await;
        let mut daemon = world.home.start();
        daemon.wait_ready();
        world.link();
        world.peer.say(world.owner.number(), "good morning").await.expect("sent");
        world.peer.wait_for_text("good morning", SOON).await.expect("an echo");

        // Killed without a word, and started again: nobody scans.
        for pid in support::children(daemon.pid()) {
            signal(pid, 9);
        }
        if shards == 1 {
            signal(daemon.pid(), 9);
            daemon.wait_exit(SOON);
            daemon = world.home.start();
            daemon.wait_ready();
        }
        world.peer.say(world.owner.number(), "still there?").await.expect("sent");
        world.peer.wait_for_text("still there?", SOON).await.expect("an echo");
        assert_eq!(world.peer.times_shown("good morning"), 1);
        assert!(world.peer.unreadable().is_empty(), "{:?}", world.peer.unreadable());

        // A job, the same job again, a file, a group.
        world.home.ok(&["send", &world.channel, world.peer.number(), "by hand", "--id", "job-1"]);
        world.peer.wait_for_text("by hand", SOON).await.expect("shown");
        world.home.ok(&["send", &world.channel, world.peer.number(), "by hand", "--id", "job-1"]);
        world.home.ok(&["send", &world.channel, world.peer.number(), "another", "--id", "job-2"]);
        world.peer.wait_for_text("another", SOON).await.expect("shown");
        assert_eq!(world.peer.times_shown("by hand"), 1);
        let attached = Attachment::new(Kind::Image, b"a picture".to_vec()).with_caption("look");
        let id = world.peer.attach(world.owner.number(), &attached).await.expect("sent");
        let media = wait_for("the picture's event", SOON, || {
            let told =
                of(&world.events, "message.received").into_iter().find(|event| event["data"]["message_id"] == *id)?;
            Some(told["data"]["media"].clone())
        });
        let fetch = json!({"chat_id": world.peer.jid(), "message_id": id, "media": media});
        world.job("fetch", "download_media", &fetch);
        let stored = world.done("fetch")["data"]["result"]["path"].as_str().expect("a path").to_owned();
        assert_eq!(std::fs::read(stored).expect("read"), b"a picture");
        let third = world.server.phone("4915100000003");
        let group = world.peer.create_group("friends", &[&world.owner, &third]);
        third.say(&group, "to all").await.expect("sent");
        world
            .peer
            .wait_for("an echo in the group", SOON, |message| {
                (message.chat == group && message.from.number == world.owner.number()).then_some(())
            })
            .await
            .expect("shown");

        world.job("bye", "disconnect", &json!({"logout": true}));
        wait_for("the device is unlinked", SOON, || world.owner.devices().is_empty().then_some(()));
        assert!(daemon.terminate().success());
        assert!(world.server.unknown_queries().is_empty(), "{:?}", world.server.unknown_queries());
        let log = daemon.log();
        assert!(!log.contains(world.peer.number()) && !log.contains("good morning"), "a log names nobody");
    }
}

/// Contract: C4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_leaves_as_a_file_and_comes_back_without_a_scan() {
    let world = a_box(1).await;
    let mut daemon = world.home.start();
    daemon.wait_ready();
    world.link();
    let file = world.home.dir.path().join("device.session");
    let path = file.to_str().expect("UTF-8");
    let import = ["session", "import", &world.channel, "--from", path];
    assert!(!world.home.run(&import).status.success(), "not while it is connected");
    world.home.ok(&["channel", "disable", &world.channel]);
    let delete = ["session", "delete", world.channel.as_str()];
    world.home.ok(&["session", "export", &world.channel, "--to", path]);
    wait_for("the lease to be given back", SOON, || world.home.run(&delete).status.success().then_some(()));
    assert!(!world.home.run(&delete).status.success(), "there is nothing left to delete");
    world.home.ok(&import);
    assert!(!world.home.run(&import).status.success(), "not over one that is there");
    let codes = of(&world.events, "channel.pairing_code").len();
    world.home.ok(&["channel", "enable", &world.channel]);
    world.connected(2);
    world.peer.say(world.owner.number(), "hello again").await.expect("sent");
    world.peer.wait_for_text("hello again", SOON).await.expect("an echo");
    assert_eq!(of(&world.events, "channel.pairing_code").len(), codes, "nobody had to scan");
    assert!(daemon.terminate().success());
}

#[test]
fn a_loopback_build_says_so_and_reaches_nothing_else() {
    let home = Home::new();
    let said = home.ok(&["--version"]);
    assert!(said.contains("loopback"), "{said}");
    let away = home.with("SHARDVISOR_WHATSAPP_ENDPOINT", "wss://web.whatsapp.com/ws/chat");
    let refused = away.run(&["run"]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("loopback addresses alone"), "{said}");
}
