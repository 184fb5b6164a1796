//! People who chat with an account whose device echoes.

use std::time::Duration;

use simulators::{
    traffic::{Plan, Traffic, WhatsAppAccounts},
    whatsapp::WhatsApp,
};

use whatsapp_rust::prelude::*;

use crate::device::{Device, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_echoing_device_answers_each_person_once() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let account = whatsapp.phone("15550000001");
    let (device, _) = Device::of(&whatsapp, &account).await;
    let plan =
        Plan { users_per_bot: 3, think: Duration::from_millis(5)..=Duration::from_millis(20), ..Plan::default() };
    let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let traffic = Traffic::start(vec![Box::new(WhatsAppAccounts::new(&whatsapp, &[account]))], plan, move |told| {
        let _ = answered.send(told.outcome);
    });
    let echo = async {
        loop {
            let message = device.message().await;
            let text = message.message.text_content().expect("a text").to_owned();
            device.say(&message.info.source.chat.to_string(), &text).await;
        }
    };
    let enough = async {
        for _ in 0..30 {
            tokio::time::timeout(SOON, answers.recv()).await.expect("in time").expect("told");
        }
        traffic.stop().await
    };
    let summary = tokio::select! {
        () = echo => unreachable!("it echoes for ever"),
        summary = enough => summary,
    };
    assert!(summary.answered >= 30, "{summary:?}");
    assert_eq!((summary.duplicated, summary.unexpected, summary.lost), (0, 0, 0), "{summary:?}");
    device.shut_down().await;
}
