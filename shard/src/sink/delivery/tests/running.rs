//! Starting, stopping, starting again.

use super::{server::say, *};

use Destination::{Endpoint, Handler};

/// Contract: E1. What a shard left behind is delivered by its next life, in order.
#[tokio::test]
async fn a_restart_delivers_what_was_left_in_order() {
    let server = Server::start(|_| say(204, "")).await;
    let rig = Rig::new().endpoint(&server.url("/")).handler(1, HandlerSettings::Echo);
    let idle = rig.start();
    idle.stop().await;
    let names: Vec<_> = (0..600).map(|n| format!("{}-{n}", n % 7)).collect();
    for name in &names {
        rig.store(&idle, vec![text(1, &name[..1], name)], &[Endpoint, Handler]).await;
    }
    assert_eq!((server.count(), rig.outbox.open_count()), (0, 1200));

    let delivery = rig.start();
    rig.drained().await;
    let texts = server.texts();
    for chat in 0..7 {
        let of =
            |all: &[String]| all.iter().filter(|t| t.starts_with(&format!("{chat}-"))).cloned().collect::<Vec<_>>();
        assert_eq!(of(&texts), of(&names));
    }
    assert_eq!((texts.len(), rig.replies.ids().len()), (600, 600));
    delivery.stop().await;
}

#[tokio::test]
async fn stop_lets_what_is_under_way_end_and_begins_nothing() {
    let released = Arc::new(tokio::sync::Notify::new());
    let server = Server::start(|_| say(204, "")).await;
    let rig = Rig::new().endpoint(&server.url("/")).handler(1, HandlerSettings::Echo);
    let held = Arc::new(Held { released: released.clone(), posted: rig.replies.clone(), asked: AtomicUsize::new(0) });
    let delivery = Delivery { replies: held.clone(), ..rig.delivery() };
    let delivery = delivery.start(&Progress::default()).expect("started");
    rig.store(&delivery, vec![text(1, "chat", "first"), text(1, "chat", "second")], &[Handler]).await;
    until("the first is under way", || held.asked.load(Ordering::SeqCst) == 1).await;
    let stopping = delivery.clone();
    let stop = tokio::spawn(async move { stopping.stop().await });
    until("stop was asked for", || delivery.stop.token().is_cancelled()).await;
    rig.store(&delivery, vec![text(1, "other", "third")], &[Handler, Endpoint]).await;
    released.notify_waiters();
    until("the first has ended", || rig.outbox.delivered_count() == 1).await;
    in_time("stop", stop).await.expect("stopped");
    assert_eq!((rig.replies.ids().len(), server.count()), (1, 0));
    assert_eq!(rig.outbox.open_count(), 3);
}

struct Held {
    released: Arc<tokio::sync::Notify>,
    posted: Arc<Posted>,
    asked: AtomicUsize,
}

#[async_trait]
impl Replies for Held {
    async fn reply(&self, jobs: Vec<Job>) -> Result<(), ReplyError> {
        let released = self.released.notified();
        self.asked.fetch_add(1, Ordering::SeqCst);
        released.await;
        self.posted.reply(jobs).await
    }
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_loop_and_its_stamp() {
    let rig = Rig::new();
    let progress = Progress::default();
    let outbox = Arc::downgrade(&rig.outbox);
    let delivery = rig.start();
    let other = delivery.clone();
    drop(delivery);
    rig.store(&other, vec![text(1, "chat", "hi")], &[]).await;
    drop(other);
    drop(rig);
    until("nothing holds the outbox", || outbox.strong_count() == 0).await;
    assert_eq!(progress.stalled(), []);
}

/// The outbox is away for a while: nothing is delivered again for it, and everything is marked in the end.
#[tokio::test]
async fn outcomes_that_can_not_be_stored_are_stored_later() {
    let server = Server::start(|_| say(204, "")).await;
    let rig = Rig::new().endpoint(&server.url("/"));
    let delivery = rig.start();
    rig.outbox.away.store(true, Ordering::SeqCst);
    let events: Vec<_> = (0..5).map(|n| text(1, "chat", &n.to_string())).collect();
    rig.store(&delivery, events, &[Endpoint]).await;
    until("all are delivered", || server.count() == 5).await;
    until("none is marked, twice", || rig.outbox.missed.load(Ordering::SeqCst) >= 10).await;
    delivery.rescan();
    rig.outbox.away.store(false, Ordering::SeqCst);
    rig.drained().await;
    assert_eq!(server.texts(), ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_dead_letter_that_is_opened_again_is_delivered_after_a_rescan() {
    let gone = AtomicUsize::new(1);
    let server = Server::start(move |_| say(if used_up(&gone) { 204 } else { 410 }, "")).await;
    let rig = Rig::new().endpoint(&server.url("/"));
    let delivery = rig.start();
    let event = text(1, "chat", "hi");
    let id = event.id;
    rig.store(&delivery, vec![event], &[Endpoint]).await;
    rig.drained().await;
    assert!(rig.outbox.replay(id, Endpoint).await.expect("replayed"));
    delivery.rescan();
    rig.drained().await;
    assert_eq!(server.texts(), ["hi", "hi"]);
    assert_eq!(rig.outbox.dead(10).await.expect("dead").len(), 0);
}

/// A task that was killed between storing and telling, or another process that opened a dead letter again.
#[tokio::test]
async fn what_nobody_told_of_is_found() {
    let clock = crate::clock::ManualClock::at(1_900_000_000_000);
    let rig = Rig::new().handler(1, HandlerSettings::Echo);
    let delivery = Delivery { clock: Arc::new(clock.clone()), ..rig.delivery() }.start(&Progress::default());
    let delivery = delivery.expect("started");
    rig.store(&delivery, vec![text(1, "chat", "told")], &[Handler]).await;
    rig.drained().await;
    let untold =
        Batch { fence: Fence { channel: channel(1), token: 1 }, events: vec![text(1, "chat", "untold")], offset: None };
    rig.outbox.append(untold, &[Handler]).await.expect("stored");
    clock.advance(Duration::from_secs(5));
    rig.drained().await;
    assert_eq!(rig.replies.ids().len(), 2);
}

/// An outbox on a broker learns of what others put there, or of what it had set aside.
#[tokio::test]
async fn what_the_outbox_has_news_of_is_looked_for_at_once() {
    // No time passes: nothing is found by looking from time to time.
    let clock = crate::clock::ManualClock::at(1_900_000_000_000);
    let rig = Rig::new().handler(1, HandlerSettings::Echo);
    let delivery = Delivery { clock: Arc::new(clock), ..rig.delivery() }.start(&Progress::default());
    let delivery = delivery.expect("started");
    rig.store(&delivery, vec![text(1, "chat", "told")], &[Handler]).await;
    rig.drained().await;
    let untold =
        Batch { fence: Fence { channel: channel(1), token: 1 }, events: vec![text(1, "chat", "untold")], offset: None };
    rig.outbox.append(untold, &[Handler]).await.expect("stored");
    rig.outbox.news.notify_one();
    rig.drained().await;
    assert_eq!(rig.replies.ids().len(), 2);
}

/// Contract: E1. An endpoint that was dead is served again as soon as it answers, from the store.
#[tokio::test]
async fn what_piled_up_is_delivered_once_the_endpoint_is_back() {
    let alive = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let up = alive.clone();
    let server = Server::start(move |_| if up.load(Ordering::SeqCst) { say(204, "") } else { say(503, "") }).await;
    let mut rig = Rig::new().endpoint(&server.url("/"));
    rig.config.window = 32;
    let rig = rig.handler(1, HandlerSettings::Echo);
    let delivery = rig.start();
    for n in 0..300 {
        rig.store(&delivery, vec![text(1, &format!("{}", n % 10), &format!("{}-{n}", n % 10))], &[Endpoint, Handler])
            .await;
    }
    until("the handler has had all", || rig.outbox.open_count() == 300).await;
    assert_eq!(rig.replies.ids().len(), 300);
    alive.store(true, Ordering::SeqCst);
    rig.drained().await;
    assert_eq!(rig.count(Endpoint, "delivered"), 300);
}
