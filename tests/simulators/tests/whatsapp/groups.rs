//! Groups: made on either side, written to by everybody, changed and left.

use simulators::whatsapp::WhatsApp;
use whatsapp_rust::{
    prelude::*,
    wacore::iq::groups::{GroupCreateOptions, GroupParticipantOptions, GroupSubject},
};

use crate::device::{Device, SOON};

async fn talk_in_a_group(hidden: bool) {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    whatsapp.hide_members(hidden);
    let phones = [1, 2, 3].map(|number| whatsapp.phone(&format!("1555000000{number}")));
    let [alice, bob, carol] = &phones;
    let (device, _) = Device::of(&whatsapp, alice).await;
    let (other, _) = Device::of(&whatsapp, carol).await;
    let group = bob.create_group("a group", &[alice, carol]);

    bob.say(&group, "from the phone").await.expect("written");
    device.text("from the phone").await;
    other.text("from the phone").await;
    carol.wait_for_text("from the phone", SOON).await.expect("read");

    for turn in 1..=3 {
        let text = format!("from the device, {turn}");
        device.say(&group, &text).await;
        let read = bob.wait_for_text(&text, SOON).await.expect("read");
        assert_eq!(read.chat, group);
        assert_eq!(read.from.number, alice.number());
        other.text(&text).await;
    }
    bob.say(&group, "from the phone again").await.expect("written");
    device.text("from the phone again").await;
    assert_eq!(bob.unreadable(), []);
    device.shut_down().await;
    other.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_reads_everybody_in_a_group_that_goes_by_numbers() {
    talk_in_a_group(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_reads_everybody_in_a_group_that_goes_by_hidden_ids() {
    talk_in_a_group(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_makes_changes_and_leaves_a_group() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob, carol) =
        (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"), whatsapp.phone("15550000003"));
    let (device, _) = Device::of(&whatsapp, &alice).await;
    let (other, _) = Device::of(&whatsapp, &bob).await;
    let jid = |chat: String| chat.parse::<Jid>().expect("an address");
    let client = device.client();
    let member = GroupParticipantOptions::new(jid(bob.jid()));
    let options = GroupCreateOptions::builder().subject("made by a device").participants(vec![member]).build();
    let group = client.groups().create_group(options).await.expect("made").metadata.id;

    device.say(&group.to_string(), "welcome").await;
    other.text("welcome").await;
    bob.wait_for_text("welcome", SOON).await.expect("read");
    client.groups().set_subject(group.clone(), GroupSubject::new("renamed").expect("short")).await.expect("renamed");
    other.wait_for("the new name", |event| matches!(event, Event::GroupUpdate(_)).then_some(())).await;
    let added = client.groups().add_participants(group.clone(), &[jid(carol.jid())]).await.expect("added");
    assert_eq!(added.len(), 1);
    device.say(&group.to_string(), "hello carol").await;
    carol.wait_for_text("hello carol", SOON).await.expect("read");
    let groups = other.client().groups().get_participating().await.expect("listed");
    let known = groups.values().next().expect("one group");
    assert_eq!((known.subject.as_str(), known.participants.len()), ("renamed", 3));

    client.groups().remove_participants(group.clone(), &[jid(carol.jid())]).await.expect("removed");
    device.say(&group.to_string(), "without carol").await;
    bob.wait_for_text("without carol", SOON).await.expect("read");
    assert_eq!(carol.times_shown("without carol"), 0);
    other.client().groups().leave(group.clone()).await.expect("left");
    assert!(other.client().groups().get_participating().await.expect("listed").is_empty());
    device.shut_down().await;
    other.shut_down().await;
}
