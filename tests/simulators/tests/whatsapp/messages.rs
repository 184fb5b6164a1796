//! Messages between phones and devices: what waits, what is acknowledged, what is told of it.

use simulators::whatsapp::{History, WhatsApp};
use whatsapp_rust::{prelude::*, wacore::types::presence::ReceiptType};

use crate::device::{Device, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_to_a_device_that_is_away_waits_for_it_in_order() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    let store = device.shut_down().await;
    whatsapp.wait_for("it left", SOON, || whatsapp.connection(&address).is_none().then_some(())).await.expect("left");
    for turn in 1..=5 {
        bob.say(alice.number(), &format!("message {turn}")).await.expect("written");
    }
    assert_eq!(whatsapp.waiting_for(&address), 5);

    let device = Device::with(&whatsapp, store, None).await;
    for turn in 1..=5 {
        device.text(&format!("message {turn}")).await;
    }
    whatsapp
        .wait_for("an empty mailbox", SOON, || (whatsapp.waiting_for(&address) == 0).then_some(()))
        .await
        .expect("empty");
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_reach_whoever_wrote() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, _) = Device::of(&whatsapp, &alice).await;

    let id = bob.say(alice.number(), "are you there?").await.expect("written");
    let message = device.message().await;
    bob.wait_for_receipt(&id, None, SOON).await.expect("delivered");
    device.client().mark_as_read(&message.info.source.chat, None, &[id.as_str()]).await.expect("sent");
    bob.wait_for_receipt(&id, Some("read"), SOON).await.expect("read");

    let id = device.say(&bob.jid(), "I am").await;
    let receipt = |kind: ReceiptType, id: String| {
        move |event: &Event| match event {
            Event::Receipt(receipt) if receipt.r#type == kind && receipt.message_ids.contains(&id) => Some(()),
            _ => None,
        }
    };
    device.wait_for("delivery", receipt(ReceiptType::Delivered, id.clone())).await;
    bob.read(&bob.wait_for_text("I am", SOON).await.expect("shown"));
    device.wait_for("reading", receipt(ReceiptType::Read, id)).await;
    device.shut_down().await;
}

/// Contract: Q8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_sent_again_under_its_id_is_shown_once() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    let to: Jid = bob.jid().parse().expect("an address");
    for _ in 0..2 {
        let options = SendOptions::default().with_message_id("3EB0AAAAAAAAAAAAAAAA");
        device.client().send_message_with_options(to.clone(), wa::Message::text("once"), options).await.expect("sent");
    }
    let twice = || bob.messages().first().filter(|message| message.copies == 2).cloned();
    let shown = whatsapp.wait_for("both copies", SOON, twice).await.expect("both came");
    assert_eq!(shown.text.as_deref(), Some("once"));
    assert_eq!(bob.times_shown("once"), 1);
    assert_eq!(whatsapp.sent_by(&address), ["3EB0AAAAAAAAAAAAAAAA"; 2]);
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_linked_later_is_written_to_as_well() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (writer, _) = Device::of(&whatsapp, &alice).await;
    writer.say(&bob.jid(), "to the phone alone").await;
    bob.wait_for_text("to the phone alone", SOON).await.expect("read");

    let (reader, _) = Device::of(&whatsapp, &bob).await;
    writer.say(&bob.jid(), "to both").await;
    bob.wait_for_text("to both", SOON).await.expect("read");
    reader.text("to both").await;
    // And what the reader writes is copied to its own phone.
    reader.say(&alice.jid(), "back").await;
    writer.text("back").await;
    bob.wait_for_text("back", SOON).await.expect("a copy");
    writer.shut_down().await;
    reader.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_device_is_handed_what_was_said_before() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    alice.remember(vec![History::of(&bob.jid(), "Bob", 30)]);
    let device = Device::unlinked(&whatsapp).await;
    let code = device.code().await;
    alice.scan(&code).expect("linked");
    let history = |event: &Event| match event {
        Event::HistorySync(history) => history.get().filter(|sync| !sync.conversations.is_empty()).cloned(),
        _ => None,
    };
    let sync = device.wait_for("the history", history).await;
    assert_eq!(sync.conversations[0].id, bob.jid());
    assert_eq!(sync.conversations[0].messages.len(), 30);
    device.shut_down().await;
}
