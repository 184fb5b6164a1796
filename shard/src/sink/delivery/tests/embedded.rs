//! Delivery over the outbox of a slot's file.

use super::{server::say, *};
use crate::{identity::ShardId, registry::Holder, sink::outbox::EmbeddedOutbox, store::SlotStore};

use Destination::{Endpoint, Handler};

/// Contract: E1, E2. Killed again and again while an endpoint has its moods: everything arrives, in order, and what is
/// told twice has the id of the first time.
#[tokio::test]
async fn nothing_is_lost_or_out_of_order_over_restarts_on_a_file() {
    let moods = AtomicUsize::new(0);
    let server =
        Server::start(move |_| say(if moods.fetch_add(1, Ordering::SeqCst) % 7 == 3 { 500 } else { 204 }, "")).await;
    let mut rig = Rig::new().endpoint(&server.url("/"));
    rig.config.window = 64;
    for of in 1..=3 {
        rig = rig.handler(of, HandlerSettings::Echo);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let names: Vec<(u128, String)> = (0..600).map(|n| (n % 3 + 1, format!("{}-{n}", n % 10))).collect();
    let mut left: &[(u128, String)] = &names;
    for incarnation in 1.. {
        let holder = Holder { worker: "w".into(), incarnation };
        let shard = ShardId::new(0, 1);
        let slot = SlotStore::open(dir.path(), shard, &holder, Arc::new(SystemClock)).expect("opened");
        let outbox: Arc<dyn Outbox> = Arc::new(EmbeddedOutbox::new(slot));
        let delivery = Delivery { outbox: outbox.clone(), ..rig.delivery() };
        let delivery = delivery.start(&Progress::default()).expect("started");
        let so_far = server.count();
        let (now, later) = left.split_at(left.len().min(150));
        left = later;
        for (of, name) in now {
            let batch = Batch {
                fence: Fence { channel: channel(*of), token: 1 },
                events: vec![text(*of, &name[..1], name)],
                offset: None,
            };
            delivery.on_stored(outbox.append(batch, &[Endpoint, Handler]).await.expect("stored"));
        }
        if now.is_empty() {
            in_time("all is delivered", async {
                while !outbox.open(0, 1).await.expect("read").is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            assert_eq!(outbox.dead(1).await.expect("dead").len(), 0);
            break;
        }
        until("some more are delivered", || server.count() >= so_far + 40).await;
        // The loop ends without a word: what was under way is cut off.
        drop(delivery);
    }
    for of in 1..=3 {
        for chat in 0..10 {
            let expected: Vec<_> = names
                .iter()
                .filter(|(n, name)| *n == of && name.starts_with(&format!("{chat}-")))
                .map(|(_, name)| name)
                .collect();
            let came = server.received();
            let came: Vec<_> = came
                .iter()
                .filter(|request| request.event().channel_id == channel(of))
                .map(server::Received::text)
                .filter(|text| text.starts_with(&format!("{chat}-")))
                .collect();
            let mut firsts: Vec<&String> = Vec::new();
            for text in &came {
                if !firsts.contains(&text) {
                    firsts.push(text);
                }
            }
            assert_eq!(firsts, expected, "channel {of}, chat {chat}");
        }
    }
    let mut ids = rig.replies.ids();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 600);
}
