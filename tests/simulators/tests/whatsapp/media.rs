//! Files and pictures: uploaded, fetched, gone, and uploaded again.

use simulators::whatsapp::{Attachment, Fault, Kind, On, WhatsApp};
use whatsapp_rust::{
    media,
    prelude::*,
    upload::UploadOptions,
    wacore::{
        download::{Downloadable, MediaType},
        iq::contacts::ProfilePictureSpec,
    },
};

use crate::device::{Device, SOON};

fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|place| u8::try_from(place * 7 % 251).unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_go_both_ways() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, _) = Device::of(&whatsapp, &alice).await;
    let client = device.client();

    let picture = noise(200_000);
    bob.attach(alice.number(), &Attachment::new(Kind::Image, picture.clone()).with_caption("look"))
        .await
        .expect("sent");
    let message = device.message().await;
    let image = message.message.image_message.as_option().expect("an image");
    assert_eq!(image.caption.as_deref(), Some("look"));
    assert_eq!(client.download(image as &dyn Downloadable).await.expect("fetched"), picture);

    let uploaded = client.upload(noise(70_000), MediaType::Image, UploadOptions::new()).await.expect("uploaded");
    let options = media::ImageOptions { caption: Some("and you".to_owned()), ..Default::default() };
    let to: Jid = bob.jid().parse().expect("an address");
    client.send_message(to, media::image_message(uploaded, options)).await.expect("sent");
    let received = bob.wait_for_text("and you", SOON).await.expect("shown");
    assert_eq!(bob.open(&received).expect("opened"), noise(70_000));
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn media_that_is_gone_is_uploaded_again_by_the_phone_if_it_has_it() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, _) = Device::of(&whatsapp, &alice).await;
    let client = device.client();
    for (lost, text) in [(false, "kept"), (true, "lost")] {
        alice.lose_media(lost);
        let attachment = Attachment::new(Kind::Document, noise(5000)).with_caption(text);
        bob.attach(alice.number(), &attachment).await.expect("sent");
        let message = device.message().await;
        let document = message.message.document_message.as_option().expect("a document").clone();
        alice.wait_for_text(text, SOON).await.expect("on the phone too");
        whatsapp.expire_all_media();
        client.download(&document as &dyn Downloadable).await.expect_err("gone");

        let request = whatsapp_rust::features::MediaReuploadRequest {
            msg_id: &message.info.id,
            chat_jid: &message.info.source.chat,
            media_key: document.media_key.as_deref().expect("a key"),
            is_from_me: false,
            participant: None,
        };
        let answer = client.media_reupload().request(&request).await.expect("answered");
        match answer {
            whatsapp_rust::features::MediaRetryResult::Success { direct_path } if !lost => {
                let renewed = wa::message::DocumentMessage { direct_path: Some(direct_path), url: None, ..document };
                assert_eq!(client.download(&renewed as &dyn Downloadable).await.expect("fetched"), noise(5000));
            }
            whatsapp_rust::features::MediaRetryResult::NotFound if lost => {}
            other => panic!("{text}: {other:?}"),
        }
    }
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_media_host_can_refuse() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, _) = Device::of(&whatsapp, &alice).await;
    bob.attach(alice.number(), &Attachment::new(Kind::Voice, noise(3000))).await.expect("sent");
    let message = device.message().await;
    let audio = message.message.audio_message.as_option().expect("a voice").clone();
    let fault = whatsapp.fault(On::download(), Fault::Refuse(410), 100);
    device.client().download(&audio as &dyn Downloadable).await.expect_err("refused");
    assert!(whatsapp.fired(fault) > 0);
    whatsapp.heal(fault);
    assert_eq!(device.client().download(&audio as &dyn Downloadable).await.expect("fetched"), noise(3000));
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_is_shown_and_a_hidden_one_and_none_are_told_apart() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, _) = Device::of(&whatsapp, &alice).await;
    let client = device.client();
    let to: Jid = bob.jid().parse().expect("an address");
    // The client's own call has one word for both refusals.
    let refusal = async || match client.execute(ProfilePictureSpec::full(&to)).await {
        Err(IqError::ServerError { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal().await, 404);
    bob.hide_picture();
    assert_eq!(refusal().await, 401);
    bob.set_picture(b"a face");
    let shown = client.contacts().get_profile_picture(&to, false).await.expect("asked").expect("shown");
    let fetched = reqwest::get(shown.url.replace("https://", "http://")).await.expect("fetched");
    assert_eq!(&fetched.bytes().await.expect("read")[..], b"a face");
    device.shut_down().await;
}
