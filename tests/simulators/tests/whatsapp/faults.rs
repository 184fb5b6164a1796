//! What goes wrong on command is survived by the client, and seen in the record.

use std::time::Duration;

use simulators::whatsapp::{End, Fault, On, Way, WhatsApp};
use whatsapp_rust::prelude::*;

use crate::device::{Device, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_comes_back_with_what_was_written_meanwhile() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    for (turn, end) in [End::Cut, End::Closed, End::Error(503), End::Unnamed].into_iter().enumerate() {
        let before = whatsapp.wait_for_device(&address, SOON).await.expect("online");
        assert!(whatsapp.end(&address, end));
        let text = format!("after end {turn}");
        bob.say(alice.number(), &text).await.expect("written");
        device.text(&text).await;
        assert_ne!(whatsapp.wait_for_device(&address, SOON).await.expect("online"), before);
    }
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_never_acknowledged_is_delivered_again() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    let id = "3EB0CCCCCCCCCCCCCCCC";
    let fault = whatsapp.fault(On::from_device("receipt").and_id(id), Fault::Lost, 1);
    bob.send_as(id, alice.number(), wa::Message::text("hold on")).await.expect("written");
    device.text("hold on").await;
    whatsapp.wait_for("the loss", SOON, || (whatsapp.fired(fault) == 1).then_some(())).await.expect("lost");
    whatsapp.end(&address, End::Cut);
    let delivered = || {
        let stanzas = whatsapp.stanzas();
        let same = stanzas.iter().filter(|stanza| stanza.way == Way::ToDevice && stanza.id.as_deref() == Some(id));
        (same.count() == 2).then_some(())
    };
    whatsapp.wait_for("a second delivery", SOON, delivered).await.expect("delivered again");
    whatsapp
        .wait_for("an empty mailbox", SOON, || (whatsapp.waiting_for(&address) == 0).then_some(()))
        .await
        .expect("empty");
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_message_is_overtaken_and_still_read() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    bob.say(alice.number(), "first").await.expect("written");
    device.text("first").await;
    let late = Fault::Late(Duration::from_millis(500));
    whatsapp.fault(On::to_device("message").of_device(&address), late, 1);
    bob.say(alice.number(), "late").await.expect("written");
    bob.say(alice.number(), "in time").await.expect("written");
    device.text("in time").await;
    device.text("late").await;
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_message_is_told_to_its_sender_and_reaches_nobody() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    whatsapp.fault(On::from_device("message").of_device(&address), Fault::Refuse(463), 1);
    let id = device.say(&bob.jid(), "cold").await;
    let refused = |event: &Event| match event {
        Event::ServerAck(ack) if ack.id == id => Some(ack.error.clone()),
        _ => None,
    };
    let error = device.wait_for("the refusal", refused).await;
    assert_eq!(error.as_deref(), Some("463"));
    device.say(&bob.jid(), "warm").await;
    bob.wait_for_text("warm", SOON).await.expect("read");
    assert_eq!(bob.times_shown("cold"), 0);
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_refuses_everybody_and_ends() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    whatsapp.outage();
    whatsapp.wait_for("nobody", SOON, || (whatsapp.devices_online() == 0).then_some(())).await.expect("offline");
    bob.say(alice.number(), "during the outage").await.expect("written");
    whatsapp.recover();
    device.text("during the outage").await;
    whatsapp.wait_for_device(&address, SOON).await.expect("online");
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_lost_its_sessions_asks_again_and_reads() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    bob.say(alice.number(), "one").await.expect("written");
    device.text("one").await;
    device.say(&bob.jid(), "two").await;
    bob.wait_for_text("two", SOON).await.expect("read");
    let store = device.shut_down().await;
    whatsapp.wait_for("it left", SOON, || whatsapp.connection(&address).is_none().then_some(())).await.expect("left");
    for known in [bob.jid(), bob.lid()] {
        let user = known.split('@').next().unwrap_or_default().to_owned();
        for name in [format!("{user}.0"), format!("{user}@lid.0"), format!("{user}_1.0"), format!("{known}.0")] {
            store.delete_session(&name).await.expect("deleted");
        }
    }
    let device = Device::with(&whatsapp, store, None).await;
    device.connected().await;
    bob.say(alice.number(), "three").await.expect("written");
    device.text("three").await;
    device.shut_down().await;
}
