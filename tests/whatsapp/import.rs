//! A tenant moves over from Baileys: what that client kept of a device is imported, and nobody scans again.

use simulators::whatsapp::WhatsApp;

use crate::{
    baileys::{Baileys, installed},
    support::Home,
    world::SOON,
};

/// Contract: C4, W6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_of_baileys_goes_on_here_without_a_scan_and_without_a_lost_ratchet() {
    if !installed() {
        return;
    }
    let server = WhatsApp::start().await.expect("a simulator");
    let (owner, peer) = (server.phone("4915100000001"), server.phone("4915100000002"));
    let auth = tempfile::tempdir().expect("a directory");
    let mut before = Baileys::start(&server, auth.path());
    before.link(&owner);
    for n in 0..3 {
        let text = format!("to baileys {n}");
        peer.say(owner.number(), &text).await.expect("sent");
        before.hears(&text);
        before.say(&peer.jid(), &format!("from baileys {n}"));
    }
    peer.wait_for_text("from baileys 2", SOON).await.expect("shown");
    before.leave();
    // It comes while nobody is there: the ratchet that opens it is the imported one.
    peer.say(owner.number(), "between the two").await.expect("sent");

    let home = Home::new().with("SHARDVISOR_WHATSAPP_ENDPOINT", server.url()).with("SHARDVISOR_WHATSAPP_PRE_KEYS", 20);
    let channel = home.ok(&["channel", "add", "whatsapp", "--handler", "echo"]).trim().to_owned();
    home.ok(&["channel", "disable", &channel]);
    home.ok(&["session", "import", &channel, "--baileys", auth.path().to_str().expect("UTF-8")]);
    home.ok(&["channel", "enable", &channel]);
    let mut daemon = home.start();
    daemon.wait_ready();
    peer.wait_for_text("between the two", SOON).await.expect("an echo of what came meanwhile");
    peer.say(owner.number(), "hello there").await.expect("sent");
    peer.wait_for_text("hello there", SOON).await.expect("an echo");
    assert_eq!(owner.devices().len(), 1, "it is the same device");
    assert!(peer.unreadable().is_empty(), "{:?}", peer.unreadable());
    assert!(daemon.terminate().success());
}
