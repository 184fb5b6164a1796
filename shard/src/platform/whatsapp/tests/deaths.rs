//! Death at each durable step of receiving and of sending: what was stored by then is all that is left.

use std::collections::BTreeSet;

use serde_json::Map;
use simulators::whatsapp::History;

use super::*;

/// Everything of one process: its runtime ends, and with it whatever was under way.
fn in_a_process<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    let value = runtime.block_on(work);
    runtime.shutdown_background();
    value
}

struct Home {
    server: WhatsApp,
    _outside: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    owner: Phone,
    peer: Phone,
    device: Address,
    inbox: Arc<TestInbox>,
    incarnation: u64,
}

impl Home {
    fn new() -> Self {
        let outside =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
        let server = outside.block_on(WhatsApp::start()).expect("listening");
        let _entered = outside.enter();
        let (owner, peer) = (server.phone("4915100000001"), server.phone("4915100000002"));
        drop(_entered);
        let dir = tempfile::tempdir().expect("directory");
        let inbox = Arc::new(TestInbox::default());
        let device = in_a_process(async {
            let whatsapp = whatsapp(&server, dir.path(), 1);
            let stop = CancellationToken::new();
            let living = live(&whatsapp, &inbox, &stop, spec(None));
            let code = inbox.code("qr", 0).await;
            let device = owner.scan(&code).expect("scanned");
            inbox.wait_connected(1).await;
            peer.say(owner.number(), "known").await.expect("sent");
            inbox.wait_for_text("known").await;
            stop.cancel();
            living.await.expect("no panic");
            device
        });
        Self { server, _outside: outside, dir, owner, peer, device, inbox, incarnation: 1 }
    }

    /// A process that dies at the so-many-th step after its login; whether it got that far.
    fn life<T>(&mut self, die_at: u32, work: impl AsyncFnOnce(&Self, Arc<Whatsapp>) -> T) -> T {
        self.incarnation += 1;
        self.inbox.revive();
        let this = &*self;
        in_a_process(async {
            let whatsapp = whatsapp(&this.server, this.dir.path(), this.incarnation);
            let times = this.inbox.times_connected();
            let _living = live(&whatsapp, &OneLife::of(&this.inbox), &CancellationToken::new(), spec(None));
            this.inbox.wait_connected(times + 1).await;
            this.inbox.die_at(die_at);
            work(this, whatsapp).await
        })
    }
}

/// Contract: C4, E1.
#[test]
fn a_death_at_any_step_of_receiving_loses_nothing_and_shows_nothing_twice() {
    let mut home = Home::new();
    let mut survived = 0;
    for step in 1..=24 {
        let text = format!("message {step}");
        let died = home.life(step, async |home, _| {
            home.peer.say(home.owner.number(), &text).await.expect("sent");
            home.inbox
                .wait_for("stored or dead", |inbox| {
                    (inbox.is_dead() || inbox.texts().contains(&text)).then(|| inbox.is_dead())
                })
                .await
        });
        survived += u32::from(!died);
        home.life(0, async |home, _| {
            home.inbox.wait_for_text(&text).await;
            let acknowledged = || (home.server.waiting_for(&home.device) == 0).then_some(());
            home.server.wait_for("acknowledged", SOON, acknowledged).await.expect("acknowledged");
        });
        let shown = home.inbox.texts().iter().filter(|known| **known == text).count();
        assert_eq!(shown, 1, "step {step}");
        assert_eq!(home.inbox.others("message.undecryptable"), 0, "step {step}");
    }
    assert!(survived < 24, "no step of receiving was hit");
}

/// Contract: C4, Q8.
#[test]
fn a_death_at_any_step_of_sending_shows_the_message_once() {
    let mut home = Home::new();
    for step in 1..=16 {
        let text = format!("answer {step}");
        let send = |home: &Home| {
            job(&format!("job {step}"), "send", json!({"chat_id": home.peer.number(), "text": text.clone()}))
        };
        home.life(step, async |home, whatsapp| {
            let job = send(home);
            let (sender, id) = (whatsapp.sender(&spec(None)).expect("a sender"), whatsapp.provider_id(&job));
            let performed = tokio::time::timeout(Duration::from_secs(5), sender.perform(&job, id.as_deref()));
            let _ = performed.await;
        });
        home.life(0, async |home, whatsapp| {
            let job = send(home);
            let (sender, id) = (whatsapp.sender(&spec(None)).expect("a sender"), whatsapp.provider_id(&job));
            sender.perform(&job, id.as_deref()).await.expect("sent");
            home.peer.wait_for_text(&text, SOON).await.expect("shown");
        });
        assert_eq!(home.peer.times_shown(&text), 1, "step {step}");
        assert!(home.peer.unreadable().is_empty(), "step {step}: {:?}", home.peer.unreadable());
    }
}

/// Contract: E1. The phone is told that it need not send a history again before it can be told whole.
#[test]
fn a_death_while_a_history_is_told_loses_none_of_it() {
    const CHATS: usize = 6;
    let mut home = Home::new();
    for (round, piece) in [1, 2, 7, 12].into_iter().enumerate() {
        let chat = |n: usize| format!("44{round}{n:08}@s.whatsapp.net");
        let whole: BTreeSet<String> = (0..CHATS).flat_map(|n| (0..100).map(move |at| format!("{n}/{at}"))).collect();
        let told = |inbox: &TestInbox| -> Vec<String> {
            let batches = inbox.events().into_iter().filter_map(|event| match event.kind {
                EventKind::HistoryBatch(batch) => Some(batch),
                _ => None,
            });
            let of_chat = |batch: Map<String, Value>| {
                let n = (0..CHATS).find(|n| batch["chat_id"] == chat(*n))?;
                let messages = batch["messages"].as_array().cloned().unwrap_or_default();
                let number = |message: &Value| message["text"].as_str()?.split(' ').nth(1)?.parse::<usize>().ok();
                Some(messages.iter().filter_map(number).map(|at| format!("{n}/{at}")).collect::<Vec<_>>())
            };
            batches.filter_map(of_chat).flatten().collect()
        };
        home.life(0, async |home, _| {
            home.inbox.die_at_piece(piece);
            let chats = (0..CHATS).map(|n| History::of(&chat(n), "an old friend", 100)).collect();
            home.owner.hand_over(&home.device, chats).await.expect("handed over");
            home.inbox.wait_for("the death", |inbox| inbox.is_dead().then_some(())).await;
        });
        assert!(told(&home.inbox).len() < whole.len(), "piece {piece}: it died when all was told");
        home.life(0, async |home, _| {
            home.inbox.wait_for("the rest", |inbox| (told(inbox).len() >= whole.len()).then_some(())).await;
        });
        let told = told(&home.inbox);
        assert_eq!((told.len(), told.into_iter().collect::<BTreeSet<_>>()), (whole.len(), whole), "piece {piece}");
    }
}
