//! Against the simulator of the Bot API, over real sockets.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Instant,
};

use serde_json::json;
use simulators::telegram::{ALWAYS, BotHandle, Fault, On, Telegram as Simulator, What};
use tokio::{sync::Notify, task::JoinHandle};

use super::*;
use crate::{
    clock::SystemClock,
    directory::Handler,
    event::{Event, EventKind},
    platform::Failed,
    secret::Secret,
};

const SOON: Duration = Duration::from_secs(10);

fn channel() -> ChannelId {
    "00000000000000000000000000000001".parse().unwrap()
}

fn spec_of(token: &str) -> Arc<ChannelSpec> {
    Arc::new(ChannelSpec {
        id: channel(),
        platform: PlatformKind::Telegram,
        token: Some(Secret::new(token)),
        handler: Handler::None,
        enabled: true,
        label: None,
    })
}

fn telegram_at(url: &str) -> Arc<Telegram> {
    let config = TelegramConfig::new(url.parse().unwrap());
    Arc::new(Telegram::new(config, Arc::new(SystemClock)).unwrap())
}

/// An inbox in memory that can refuse, or take its time.
#[derive(Default)]
struct TestInbox {
    events: Mutex<Vec<Event>>,
    offset: Mutex<Option<i64>>,
    connected: AtomicUsize,
    refuses: AtomicBool,
    fenced: AtomicBool,
    holds: AtomicBool,
    held_up: Notify,
    go_on: Notify,
}

impl TestInbox {
    fn texts(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::MessageReceived(message) => message.text.clone(),
                _ => None,
            })
            .collect()
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.events.lock().unwrap().iter().map(|event| event.kind.name()).collect()
    }
}

#[async_trait]
impl Inbox for TestInbox {
    async fn store(&self, events: Vec<Event>, offset: Option<i64>) -> Result<(), Closed> {
        if self.holds.load(Ordering::SeqCst) {
            self.held_up.notify_one();
            self.go_on.notified().await;
        }
        if self.refuses.load(Ordering::SeqCst) {
            return Err(Closed::Transient { reason: "disk full".into(), after: None });
        }
        self.events.lock().unwrap().extend(events);
        *self.offset.lock().unwrap() = offset;
        Ok(())
    }

    async fn offset(&self) -> Result<Option<i64>, Closed> {
        Ok(*self.offset.lock().unwrap())
    }

    fn held(&self) -> Result<(), Closed> {
        if self.fenced.load(Ordering::SeqCst) { Err(Closed::Fenced) } else { Ok(()) }
    }

    fn connected(&self) {
        self.connected.fetch_add(1, Ordering::SeqCst);
    }

    fn heard(&self) {}
}

struct World {
    simulator: Simulator,
    bot: BotHandle,
    telegram: Arc<Telegram>,
    inbox: Arc<TestInbox>,
}

impl World {
    async fn new() -> Self {
        let simulator = Simulator::start().await.unwrap();
        let bot = simulator.add_bot();
        let telegram = telegram_at(&simulator.url());
        Self { simulator, bot, telegram, inbox: Arc::default() }
    }

    fn receive(&self) -> (JoinHandle<Closed>, CancellationToken) {
        let stop = CancellationToken::new();
        let (telegram, inbox, stopped) = (self.telegram.clone(), self.inbox.clone(), stop.clone());
        let spec = spec_of(self.bot.token());
        (tokio::spawn(async move { telegram.receive(spec, inbox, stopped).await }), stop)
    }

    async fn closed(&self) -> Closed {
        let (receiving, _stop) = self.receive();
        tokio::time::timeout(SOON, receiving).await.expect("it ends").unwrap()
    }

    async fn perform(&self, name: &str, data: serde_json::Value) -> Result<Done, Failed> {
        let job = job(name, data);
        self.telegram.sender(&spec_of(self.bot.token())).unwrap().perform(&job, None).await
    }
}

use super::super::Done;

fn job(name: &str, data: serde_json::Value) -> Job {
    let body = json!({"name": name, "id": "j", "channel_id": channel(), "data": data});
    Job::parse(body.to_string().as_bytes()).unwrap()
}

/// Contract: E1.
#[tokio::test]
async fn an_update_is_confirmed_only_after_it_is_stored() {
    let world = World::new().await;
    world.inbox.holds.store(true, Ordering::SeqCst);
    world.bot.user(7).say("hello");
    let (receiving, stop) = world.receive();
    world.inbox.held_up.notified().await;
    assert_eq!(world.bot.stats().pending, 1, "it is being stored");
    world.inbox.holds.store(false, Ordering::SeqCst);
    world.inbox.go_on.notify_one();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    assert_eq!(world.inbox.texts(), ["hello"]);
    world.bot.wait_for_poll(SOON).await.unwrap();
    stop.cancel();
    assert_eq!(receiving.await.unwrap(), Closed::Asked);
}

/// Contract: E1.
#[tokio::test]
async fn what_could_not_be_stored_is_told_again() {
    let world = World::new().await;
    world.inbox.refuses.store(true, Ordering::SeqCst);
    world.bot.user(7).say("hello");
    assert!(matches!(world.closed().await, Closed::Transient { .. }));
    assert_eq!((world.bot.stats().pending, world.inbox.connected.load(Ordering::SeqCst)), (1, 0));
    world.inbox.refuses.store(false, Ordering::SeqCst);
    let (_receiving, _stop) = world.receive();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    assert_eq!(world.inbox.texts(), ["hello"]);
}

#[tokio::test]
async fn many_updates_come_in_order_and_none_twice_over_stops_at_any_time() {
    let world = World::new().await;
    let user = world.bot.user(7);
    for round in 0..10 {
        let (receiving, stop) = world.receive();
        for n in 0..30 {
            user.say(&format!("{round}-{n}"));
            if n % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        stop.cancel();
        assert_eq!(receiving.await.unwrap(), Closed::Asked);
    }
    let (_receiving, _stop) = world.receive();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    let expected: Vec<_> = (0..10).flat_map(|round| (0..30).map(move |n| format!("{round}-{n}"))).collect();
    assert_eq!(world.inbox.texts(), expected);
}

#[tokio::test]
async fn all_kinds_are_asked_for_and_a_strange_one_spoils_no_batch() {
    let world = World::new().await;
    let (_receiving, _stop) = world.receive();
    world.bot.wait_for_poll(SOON).await.unwrap();
    let user = world.bot.user(7);
    let said = user.say("one");
    user.edit(said.message_id, "two");
    user.react(said.message_id, &["👍"]);
    user.press(said.message_id, "yes");
    world.bot.push_update("message", &json!({"no": "message"}));
    world.bot.push_update("chat_member", &json!({"chat": {"id": -3}}));
    user.photo("bytes", Some("look"));
    user.venue(1.0, 2.0, "Café", "1 Way");
    user.block();
    world.bot.wait_for_confirmed(SOON).await.unwrap();
    assert_eq!(world.bot.stats().not_asked_for, 0);
    assert_eq!(
        world.inbox.kinds(),
        [
            "message.received",
            "message.edited",
            "message.reaction",
            "interaction.received",
            "platform.other",
            "platform.other",
            "message.received",
            "message.received",
            "platform.other",
        ]
    );
    assert_eq!(world.inbox.connected.load(Ordering::SeqCst), 1);
}

/// An update id may jump to anything after a week of silence.
#[tokio::test]
async fn update_ids_may_jump_far_and_back() {
    let world = World::new().await;
    let (_receiving, _stop) = world.receive();
    world.bot.wait_for_poll(SOON).await.unwrap();
    for id in [4_294_967_290, 17] {
        world.bot.jump_to_update(id);
        world.bot.user(7).say(&id.to_string());
        let stored = || (world.inbox.texts().last() == Some(&id.to_string())).then_some(());
        world.simulator.wait_for("the text", SOON, stored).await.unwrap();
    }
}

/// Field reports R19, R21, R22.
#[tokio::test]
async fn each_end_of_a_poll_is_told_apart() {
    let world = World::new().await;
    let closed_by = async |fault| {
        world.simulator.fault(On::method("getUpdates"), fault, 1);
        world.closed().await
    };
    assert!(matches!(closed_by(Fault::conflict()).await, Closed::Replaced { .. }));
    assert!(matches!(closed_by(Fault::unauthorized()).await, Closed::LoggedOut { .. }));
    let after = Some(Duration::from_secs(10_072));
    assert!(matches!(closed_by(Fault::too_many(10_072)).await, Closed::Transient { after: told, .. } if told == after));
    for fault in [
        Fault::server_error(500),
        Fault::Page(502),
        Fault::Page(404),
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::Malformed,
    ] {
        let told = format!("{fault:?}");
        assert!(matches!(closed_by(fault).await, Closed::Transient { after: None, .. }), "{told}");
    }
    let api = telegram_at(&world.simulator.url()).api.clone();
    let token = Secret::new(world.bot.token());
    let hook = json!({"url": "https://hook.test/"});
    api.post(Some(&token), "setWebhook", &hook, SOON).await.unwrap();
    assert!(matches!(world.closed().await, Closed::Misconfigured { .. }));
    assert_eq!(world.bot.stats().requests_of("deleteWebhook"), 0);
    world.bot.revoke();
    assert!(matches!(world.closed().await, Closed::LoggedOut { .. }));
}

#[tokio::test]
async fn a_second_poll_of_the_same_bot_ends_the_first_as_replaced() {
    let world = World::new().await;
    let (first, _stop) = world.receive();
    world.bot.wait_for_poll(SOON).await.unwrap();
    let (_second, _stop) = world.receive();
    assert!(matches!(first.await.unwrap(), Closed::Replaced { .. }));
}

/// Contract: C1.
#[tokio::test]
async fn a_channel_that_is_not_ours_asks_the_platform_nothing() {
    let world = World::new().await;
    world.inbox.fenced.store(true, Ordering::SeqCst);
    assert_eq!(world.closed().await, Closed::Fenced);
    assert_eq!(world.bot.stats().polls, 0);
}

#[tokio::test]
async fn each_kind_of_job_is_seen_by_the_person() {
    let world = World::new().await;
    let user = world.bot.user(7);
    let theirs = user.say("hello").message_id.to_string();
    let sent = world.perform("send", json!({"chat_id": "7", "text": "hi", "reply_to": theirs})).await.unwrap();
    let ours = sent.provider_id.unwrap();
    let edit = json!({"chat_id": "7", "text": "<b>hi!</b>", "edit_message_id": ours, "parse_mode": "HTML"});
    assert_eq!(world.perform("send", edit.clone()).await.unwrap().provider_id, Some(ours.clone()));
    assert_eq!(world.perform("send", edit).await, Ok(Done::default()), "the same edit again changes nothing");
    let react = json!({"chat_id": "7", "message_id": theirs, "emoji": "👍"});
    world.perform("send_reaction", react).await.unwrap();
    world.perform("send_reaction", json!({"chat_id": "7", "message_id": theirs, "emoji": ""})).await.unwrap();
    let revoke = json!({"chat_id": "7", "message_id": ours});
    world.perform("revoke", revoke.clone()).await.unwrap();
    assert_eq!(world.perform("revoke", revoke).await, Ok(Done::default()), "it is gone already");
    let seen: Vec<_> = user.conversation().iter().skip(1).map(|entry| entry.what).collect();
    assert_eq!(seen, [What::Message, What::Edit, What::Reaction, What::Reaction, What::Delete]);
    assert_eq!(user.conversation()[1].content["reply_to_message"]["text"], "hello");
}

#[tokio::test]
async fn each_kind_of_file_and_place_is_sent() {
    let world = World::new().await;
    for (n, (kind, field)) in [
        ("image", "photo"),
        ("video", "video"),
        ("audio", "audio"),
        ("voice", "voice"),
        ("document", "document"),
        ("sticker", "sticker"),
    ]
    .into_iter()
    .enumerate()
    {
        let chat = 100 + n as i64;
        let user = world.bot.user(chat);
        let mut data = json!({"chat_id": chat.to_string(), "kind": kind, "url": "https://files.test/x"});
        if kind != "sticker" {
            data["caption"] = "look".into();
        }
        world.perform("send_media", data).await.unwrap();
        let answer = user.answers().remove(0);
        assert!(!answer.content[field].is_null(), "{kind}: {}", answer.content);
    }
    let user = world.bot.user(7);
    let place = json!({"chat_id": "7", "latitude": 1.5, "longitude": 2.5});
    let mut venue = place.clone();
    venue["title"] = "Café".into();
    venue["address"] = "1 Way".into();
    world.perform("send_location", place).await.unwrap();
    world.perform("send_location", venue).await.unwrap();
    let answers = user.answers();
    assert_eq!(answers[0].content["location"]["latitude"], 1.5);
    assert_eq!(answers[1].content["venue"]["title"], "Café");
}

#[tokio::test]
async fn what_telegram_cannot_do_and_what_makes_no_sense_is_permanent() {
    let world = World::new().await;
    world.bot.user(7);
    let text = |chat: &str| json!({"chat_id": chat, "text": "x"});
    for (name, data, reason) in [
        ("group_create", json!({"subject": "s", "participants": ["7"]}), "unsupported"),
        ("mark_read", json!({"chat_id": "7", "message_ids": ["1"]}), "unsupported"),
        ("resync_history", json!({}), "unsupported"),
        ("send", text("somebody"), "bad_recipient"),
        ("send", text("404"), "bad_recipient"),
        ("send", json!({"chat_id": "7", "text": "x", "reply_to": "abc"}), "rejected"),
        ("send_media", json!({"chat_id": "7", "kind": "image", "url": "https://[x"}), "rejected"),
        (
            "send_media",
            json!({"chat_id": "7", "kind": "sticker", "url": "https://f.test/x", "caption": "c"}),
            "rejected",
        ),
    ] {
        match world.perform(name, data).await {
            Err(Failed::Permanent { reason: told, .. }) => assert_eq!(told, reason, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let user = world.bot.user(8);
    user.block();
    let blocked = world.perform("send", text("8")).await;
    assert!(matches!(blocked, Err(Failed::Permanent { reason: "bad_recipient", .. })), "{blocked:?}");
    world.bot.revoke();
    let revoked = world.perform("send", text("7")).await;
    assert!(matches!(revoked, Err(Failed::Permanent { reason: "logged_out", .. })), "{revoked:?}");
}

#[tokio::test]
async fn a_group_that_moved_is_written_to_where_it_is() {
    let world = World::new().await;
    world.bot.member(-5, 7);
    world.bot.migrate(-5, -1005);
    let done = world.perform("send", json!({"chat_id": "-5", "text": "x"})).await.unwrap();
    assert_eq!(done.result, Some(json!({"chat_id": "-1005"})));
    assert_eq!(world.bot.member(-1005, 7).answers().len(), 1);
}

/// Contract: Q8.
#[tokio::test]
async fn a_send_whose_outcome_is_not_known_says_so_and_one_that_was_not_sent_is_tried_again() {
    let world = World::new().await;
    let user = world.bot.user(7);
    let mut chat = 10;
    for (fault, happened) in [
        (Fault::ResetBefore, 0),
        (Fault::ResetAfter, 1),
        (Fault::Malformed, 1),
        (Fault::Page(502), 0),
        (Fault::server_error(500), 0),
    ] {
        chat += 1;
        let user = world.bot.user(chat);
        let told = format!("{fault:?}");
        world.simulator.fault(On::method("sendMessage"), fault, 1);
        let failed = world.perform("send", json!({"chat_id": chat.to_string(), "text": "x"})).await;
        assert!(matches!(failed, Err(Failed::Ambiguous { .. })), "{told}: {failed:?}");
        assert_eq!(user.answers().len(), happened, "{told}");
    }
    let theirs = user.say("x").message_id.to_string();
    world.simulator.fault(On::method("setMessageReaction"), Fault::ResetAfter, 1);
    let react = json!({"chat_id": "7", "message_id": theirs, "emoji": "👍"});
    assert!(
        matches!(world.perform("send_reaction", react).await, Err(Failed::Retry { .. })),
        "once more shows the same"
    );
    world.simulator.outage();
    let failed = world.perform("send", json!({"chat_id": "7", "text": "x"})).await;
    assert!(matches!(failed, Err(Failed::Retry { after: None, .. })), "{failed:?}");
}

/// Field report R22.
#[tokio::test]
async fn a_429_for_one_chat_keeps_that_chat_from_being_asked_and_no_other() {
    let world = World::new().await;
    (1..=26).for_each(|chat| drop(world.bot.user(chat)));
    world.simulator.fault(On::bot(&world.bot).and_chat(1), Fault::too_many(10_072), ALWAYS);
    let sender = world.telegram.sender(&spec_of(world.bot.token())).unwrap();
    let send = |chat: i64| job("send", json!({"chat_id": chat.to_string(), "text": "x"}));
    for _ in 0..3 {
        let failed = sender.perform(&send(1), None).await;
        let Err(Failed::Retry { after: Some(after), .. }) = failed else { panic!("{failed:?}") };
        assert!(after > Duration::from_secs(10_000));
    }
    assert_eq!(world.bot.stats().requests_of("sendMessage"), 1, "asked once");
    for chat in 2..=26 {
        sender.perform(&send(chat), None).await.unwrap();
    }
}

#[tokio::test]
async fn a_chat_is_written_to_in_bursts_and_then_put_off() {
    let world = World::new().await;
    let user = world.bot.user(7);
    let sender = world.telegram.sender(&spec_of(world.bot.token())).unwrap();
    let send = job("send", json!({"chat_id": "7", "text": "x"}));
    let begun = Instant::now();
    for _ in 0..4 {
        sender.perform(&send, None).await.unwrap();
    }
    assert!(begun.elapsed() > Duration::from_millis(800), "the fourth waits for its turn");
    let other = world.telegram.sender(&spec_of(world.bot.token())).unwrap();
    let (first, second) = tokio::join!(sender.perform(&send, None), other.perform(&send, None));
    assert!(first.is_ok(), "{first:?}");
    assert!(matches!(second, Err(Failed::Retry { after: Some(_), .. })), "two senders share a limit: {second:?}");
    assert_eq!(user.answers().len(), 5);
}

/// Field report R23.
#[tokio::test]
async fn the_token_is_in_no_error_no_debug_form_and_no_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _capturing = tracing::subscriber::set_default(subscriber);

    let world = World::new().await;
    world.bot.user(7);
    let token = world.bot.token().to_owned();
    let mut told = String::new();
    let text = || json!({"chat_id": "7", "text": "x"});
    let echoes = |code| {
        let description = format!("Bad Request: no /bot{token}/sendMessage, nor bot{}", token.replace(':', "%3A"));
        Fault::Refuse(simulators::telegram::Refused::new(code, description))
    };
    let faults = [
        echoes(400),
        echoes(409),
        echoes(500),
        Fault::Page(502),
        Fault::ResetBefore,
        Fault::Malformed,
        Fault::unauthorized(),
    ];
    for fault in faults {
        world.simulator.fault(On::any(), fault, 2);
        told += &format!("{:?}\n", world.closed().await);
        let failed = world.perform("send", text()).await.unwrap_err();
        told += &format!("{failed} {failed:?}\n");
    }
    world.simulator.outage();
    told += &format!("{:?}\n", world.closed().await);
    let failed = world.perform("send", text()).await.unwrap_err();
    told += &format!("{failed} {failed:?}\n");
    // Nobody listens, no name resolves, the token has no form that fits into an address.
    for url in ["http://127.0.0.1:9/", "http://nowhere.invalid/"] {
        let telegram = telegram_at(url);
        let sender = telegram.sender(&spec_of(&token)).unwrap();
        let failed = sender.perform(&job("send", text()), None).await.unwrap_err();
        assert!(matches!(failed, Failed::Retry { .. }), "{failed:?}");
        told += &format!("{failed} {failed:?}\n");
    }
    let sender = world.telegram.sender(&spec_of(&format!("{token}/..?#"))).unwrap();
    told += &format!("{:?}\n", sender.perform(&job("send", text()), None).await);
    told += &format!("{:?}\n", spec_of(&token));

    tracing::info!("the log is captured");
    let told = told + &String::from_utf8_lossy(&log.0.lock().unwrap());
    assert!(told.contains("the log is captured") && told.contains("[redacted]"));
    let secret = token.split_once(':').unwrap().1;
    assert!(!told.contains(secret), "{told}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
