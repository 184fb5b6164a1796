//! Linking a device: codes, their end, the restart after it.

use simulators::whatsapp::{ALWAYS, End, Fault, On};

use super::*;

/// Contract: C1. Field report R03.
#[tokio::test(flavor = "multi_thread")]
async fn a_scanned_code_links_the_device_and_a_new_process_logs_in_without_one() {
    let mut world = World::linked().await;
    assert_eq!(world.inbox.waits.load(Ordering::SeqCst), 1, "a person was waited for, once");
    assert_eq!(world.server.logins().len(), 1, "one login after the restart that linking asks for");
    assert_eq!(world.close().await, Closed::Asked);
    drop(world.whatsapp);
    let codes = |inbox: &TestInbox| kinds(inbox).iter().filter(|kind| **kind == "channel.pairing_code").count();
    let before = codes(&world.inbox);
    world.inbox.revive();
    let whatsapp = whatsapp(&world.server, world.dir.path(), 2);
    let _living = live(&whatsapp, &world.inbox, &CancellationToken::new(), spec(None));
    world.inbox.wait_connected(2).await;
    assert_eq!(codes(&world.inbox), before, "no new code");
    assert!(world.server.unknown_queries().is_empty(), "{:?}", world.server.unknown_queries());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_is_typed_on_the_phone_links_the_device_too() {
    let server = WhatsApp::start().await.expect("listening");
    let owner = server.phone("4915100000001");
    let dir = tempfile::tempdir().expect("directory");
    let whatsapp = whatsapp(&server, dir.path(), 1);
    let inbox = Arc::new(TestInbox::default());
    let _living = live(&whatsapp, &inbox, &CancellationToken::new(), spec(Some("4915100000001")));
    let code = inbox.code("code", 0).await;
    owner.link(&code.replace('-', ""), SOON).await.expect("linked");
    inbox.wait_connected(1).await;
}

/// Field report R04.
#[tokio::test(flavor = "multi_thread")]
async fn codes_that_nobody_scans_end_after_three_windows_and_cost_no_backoff() {
    let server = WhatsApp::start().await.expect("listening");
    let dir = tempfile::tempdir().expect("directory");
    // A window of 160 s, twenty times as fast.
    let whatsapp = whatsapp_as(WhatsappConfig { hurry: 20, ..config(&server) }, dir.path(), 1);
    let inbox = Arc::new(TestInbox::default());
    let living = live(&whatsapp, &inbox, &CancellationToken::new(), spec(None));
    let closed = tokio::time::timeout(SOON, living).await.expect("in time").expect("no panic");
    assert!(matches!(&closed, Closed::NeedsPairing { reason } if reason.contains("pairing_timeout")), "{closed:?}");
    assert_eq!(inbox.waits.load(Ordering::SeqCst), 3, "windows");
}

/// Field report R04.
#[tokio::test(flavor = "multi_thread")]
async fn a_drop_while_a_code_shows_is_a_drop() {
    let server = WhatsApp::start().await.expect("listening");
    server.fault(On::pairing(), Fault::EndLater(End::Error(503), Duration::from_millis(200)), ALWAYS);
    let dir = tempfile::tempdir().expect("directory");
    let whatsapp = whatsapp(&server, dir.path(), 1);
    let inbox = Arc::new(TestInbox::default());
    let living = live(&whatsapp, &inbox, &CancellationToken::new(), spec(None));
    let closed = tokio::time::timeout(SOON, living).await.expect("in time").expect("no panic");
    assert!(matches!(closed, Closed::Transient { .. }), "{closed:?}");
}
