//! The WhatsApp simulator, held against the library that the daemon's connector is built on.

mod device;

use simulators::whatsapp::WhatsApp;

use self::device::{Device, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_links_by_a_scanned_code_and_talks_with_a_phone() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;

    bob.say(alice.number(), "hello device").await.expect("written");
    device.text("hello device").await;
    let id = device.say(&bob.jid(), "hello phone").await;
    let read = bob.wait_for_text("hello phone", SOON).await.expect("read");
    assert_eq!((read.id, read.from), (id, address));
    assert_eq!(whatsapp.unknown_queries(), Vec::<String>::new());
    device.shut_down().await;
}
