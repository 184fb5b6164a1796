//! What was said before the device was linked, asked for by a job.

use serde_json::{Value, json};
use simulators::whatsapp::History;

use crate::{
    support::wait_for,
    world::{SOON, a_box, of},
};

/// Contract: Q1, E1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_asks_the_phone_for_what_is_older_than_what_is_known_until_nothing_is() {
    let world = a_box(1).await;
    let mut daemon = world.home.start();
    daemon.wait_ready();
    world.link();
    let told = || -> Vec<String> {
        let batches = of(&world.events, "history.batch");
        let messages = batches.iter().filter_map(|batch| batch["data"]["messages"].as_array()).flatten();
        messages.filter_map(|message| message["message_id"].as_str().map(str::to_owned)).collect()
    };
    let ask = |id: &str, data: &Value| {
        world.job(id, "resync_history", data);
        world.done(id)["data"]["result"]["chats"].as_u64()
    };
    assert_eq!(ask("too early", &json!({})), Some(0), "no chat is known yet");
    let unknown = json!({"chat_id": world.peer.jid()});
    world.job("unknown", "resync_history", &unknown);
    let failed = || of(&world.events, "job.failed").into_iter().find(|event| event["data"]["job_id"] == "unknown");
    let failed = wait_for("a refusal", SOON, failed);
    assert_eq!(failed["data"]["reason"], "rejected", "{failed}");

    world.peer.say(world.owner.number(), "the first one that is known").await.expect("sent");
    world.peer.wait_for_text("the first one that is known", SOON).await.expect("an echo");
    let old = History::of(&world.peer.jid(), "an old friend", 120);
    let ids: Vec<String> = old.messages.iter().map(|message| message.id.clone()).collect();
    world.owner.remember(vec![old]);
    let mut known = 0;
    for (turn, chats) in
        [json!({"count": 50}), json!({"chat_id": world.peer.jid(), "count": 50}), json!({})].iter().enumerate()
    {
        assert_eq!(ask(&format!("turn {turn}"), chats), Some(1));
        known = (known + 50).min(ids.len());
        wait_for("what is older", SOON, || (told().len() >= known).then_some(()));
        let (mut heard, mut expected) = (told(), ids[ids.len() - known..].to_vec());
        heard.sort();
        expected.sort();
        assert_eq!(heard, expected, "turn {turn}: no more than was asked for, and each once");
    }
    assert!(daemon.terminate().success());
}
