//! The bot-worker pool on Redis: who is there, what runs where, and that no event is lost unnoticed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use shard::registry::{
    Assignment, BotChange, BotEvent, Cursor, Member, Notice, Pool, RedisRegistry, WorkerInfo, WorkerState,
};

use super::{Server, asked, channel, connection, fenced, refused, until};
use crate::suites::{nothing, within};

fn info(state: WorkerState) -> WorkerInfo {
    let bots_by_type = BTreeMap::from([("slack".to_owned(), 3), ("telegram".to_owned(), 4)]);
    WorkerInfo { host: "box".to_owned(), state, capacity: 1000, active_bots: 7, bots_by_type }
}

async fn beat(registry: &RedisRegistry) -> Vec<String> {
    let members = registry.heartbeat(&info(WorkerState::Ready), false).await.expect("beat");
    members.alive().map(|member| member.worker.clone()).collect()
}

fn event(change: BotChange, number: u128) -> BotEvent {
    BotEvent { change, bot: channel(number), bot_type: "telegram".to_owned() }
}

/// Contract: W3, W3b, H3.
#[tokio::test]
async fn a_worker_is_a_member_from_its_first_heartbeat_until_it_leaves_or_falls_silent() {
    let Some(server) = Server::start(&[]) else { return };
    let (a, b) = (server.registry("a", 1), server.registry("b", 1));
    assert_eq!(beat(&a).await, ["a"]);
    assert_eq!(beat(&b).await, ["a", "b"]);
    let before: i64 = server.ask::<Vec<String>>(&["TIME"]).await[0].parse().expect("seconds");
    beat(&b).await;
    let score: f64 = server.ask(&["ZSCORE", "bot_worker:heartbeats", "b"]).await;
    assert!(score as i64 >= before && score as i64 <= before + 5, "seconds by the server's clock: {score}");
    let written: BTreeMap<String, String> = server.ask(&["HGETALL", "bot_worker:info:a"]).await;
    for (field, value) in [("worker_id", "a"), ("host", "box"), ("state", "ready"), ("capacity", "1000")] {
        assert_eq!(written.get(field).map(String::as_str), Some(value), "{written:?}");
    }
    assert_eq!(written["bots_by_type"], r#"{"slack":3,"telegram":4}"#);

    server.advance(Duration::from_secs(6)).await;
    beat(&b).await;
    server.advance(Duration::from_secs(6)).await;
    assert_eq!(beat(&b).await, ["b"], "a is silent for 12 seconds");
    let onlooker = server.registry("nobody", 1);
    let seen = onlooker.members().await.expect("read");
    let found = |name: &str| seen.all.iter().find(|member| member.worker == name).cloned().expect("known");
    let Member { incarnation, info: said, silent, alive, .. } = found("a");
    assert_eq!((incarnation, said, alive), (1, info(WorkerState::Ready), false));
    assert!(silent >= Duration::from_secs(12) && silent < Duration::from_secs(20), "{silent:?}");
    assert_eq!(seen.all.len(), 2, "an onlooker is no member");
    b.leave().await.expect("left");
    assert_eq!(onlooker.members().await.expect("read").alive().count(), 0);
    assert_eq!(server.ask::<Vec<String>>(&["ZRANGE", "bot_worker:heartbeats", "0", "-1"]).await, ["a"]);
    server.advance(Duration::from_secs(25 * 3600)).await;
    assert_eq!(onlooker.members().await.expect("read").all, [], "the dead are forgotten after a day");
    assert!(!server.ask::<bool>(&["EXISTS", "bot_worker:info:a"]).await);
}

/// Contract: W1.
#[tokio::test]
async fn a_worker_id_that_is_in_use_is_refused_naming_the_host() {
    let Some(server) = Server::start(&[]) else { return };
    let (first, second) = (server.registry("a", 1), server.registry("a", 2));
    beat(&first).await;
    let elsewhere = WorkerInfo { host: "other".to_owned(), ..info(WorkerState::Starting) };
    let said = refused(second.heartbeat(&elsewhere, false).await);
    assert!(said.contains("box") && said.contains('a'), "{said}");
    let twin = server.registry("a", 1);
    refused(twin.heartbeat(&elsewhere, true).await);
    second.heartbeat(&elsewhere, true).await.expect("its earlier life is proven dead");
    fenced(first.heartbeat(&info(WorkerState::Ready), false).await);
    first.leave().await.expect("harmless");
    assert_eq!(second.members().await.expect("read").alive().count(), 1);
    // One that fell silent is followed without proof.
    server.advance(Duration::from_secs(11)).await;
    server.registry("a", 3).heartbeat(&elsewhere, false).await.expect("the id is free");
}

/// Contract: W4. Field report R40.
#[tokio::test]
async fn neither_a_step_of_the_clock_nor_an_outage_makes_members_dead() {
    let Some(server) = Server::start(&[]) else { return };
    let (a, b) = (server.registry("a", 1), server.registry("b", 1));
    beat(&a).await;
    for step in [600_000, -600_000, 86_400_000] {
        server.step_wall(step).await;
        assert_eq!(beat(&b).await, ["a", "b"], "{step}");
        beat(&a).await;
    }
    let settling = server.settling("b", 1, Duration::from_secs(10));
    settling.heartbeat(&info(WorkerState::Ready), true).await.expect_err("a live twin");
    b.leave().await.expect("left");
    settling.heartbeat(&info(WorkerState::Ready), false).await.expect("beat");
    let _: String = server.ask(&["FLUSHALL"]).await;
    let members = settling.heartbeat(&info(WorkerState::Ready), false).await.expect("beat");
    assert!(members.settling > Duration::ZERO && members.settling <= Duration::from_secs(10), "{members:?}");
    server.advance(Duration::from_secs(10)).await;
    assert_eq!(settling.members().await.expect("read").settling, Duration::ZERO);
}

/// Contract: W3, W5.
#[tokio::test]
async fn it_is_known_where_a_bot_runs_and_only_its_worker_takes_that_back() {
    let Some(server) = Server::start(&[]) else { return };
    let (a, b) = (server.registry("a", 1), server.registry("b", 1));
    let bots = [(channel(1), "telegram".to_owned()), (channel(2), "slack".to_owned())];
    a.assign(&bots).await.expect("assigned");
    a.assign(&[]).await.expect("nothing");
    let written: String = server.ask(&["HGET", "bot_worker:assignments", &channel(2).to_string()]).await;
    assert_eq!(written, r#"{"worker_id":"a","bot_type":"slack"}"#);
    b.assign(&bots[..1]).await.expect("moved");
    a.unassign(&[channel(1), channel(2), channel(3)]).await.expect("taken back");
    let left = Assignment { worker_id: "b".to_owned(), bot_type: "telegram".to_owned() };
    assert_eq!(b.assignments().await.expect("read"), [(channel(1), left.clone())]);
    assert_eq!(a.assignment(channel(1)).await.expect("read"), Some(left));
    assert_eq!(a.assignment(channel(2)).await.expect("read"), None);
}

async fn all(registry: &RedisRegistry, from: &Cursor) -> (Vec<BotEvent>, Cursor, u32) {
    let (mut events, mut cursor, mut gaps) = (Vec::new(), from.clone(), 0);
    loop {
        let read = registry.events(Some(&cursor)).await.expect("read");
        if read.events.is_empty() && !read.gap {
            return (events, cursor, gaps);
        }
        gaps += u32::from(read.gap);
        events.extend(read.events);
        cursor = read.cursor;
    }
}

/// Contract: W4.
#[tokio::test]
async fn events_are_read_once_each_from_a_place_that_outlives_the_worker() {
    let Some(server) = Server::start(&[]) else { return };
    let producer = server.registry("api", 1);
    let a = server.registry("a", 1);
    producer.announce(&event(BotChange::Activate, 9)).await.expect("told");
    assert_eq!(a.cursor().await.expect("read"), None);
    let begin = a.events(None).await.expect("read");
    assert!(begin.gap && begin.events.is_empty(), "what was before must be looked at: {begin:?}");
    let changes = [BotChange::Activate, BotChange::Restart, BotChange::Deactivate];
    let told: Vec<_> = changes.into_iter().zip(1..).map(|(change, number)| event(change, number)).collect();
    for event in &told {
        producer.announce(event).await.expect("told");
    }
    let read = a.events(Some(&begin.cursor)).await.expect("read");
    assert_eq!((read.events, read.gap), (told, false));
    a.keep_cursor(&read.cursor).await.expect("kept");
    producer.announce(&event(BotChange::Activate, 4)).await.expect("told");
    let next = server.registry("a", 2);
    let cursor = next.cursor().await.expect("read").expect("kept");
    assert_eq!(all(&next, &cursor).await.0, [event(BotChange::Activate, 4)]);
    // One that comes while it is waited for.
    let (waiting, cursor) = (next.clone(), all(&next, &cursor).await.1);
    let waits = tokio::spawn(async move { waiting.events(Some(&cursor)).await });
    producer.announce(&event(BotChange::Restart, 5)).await.expect("told");
    let came = within("the event", waits).await.expect("ran").expect("read");
    assert_eq!(came.events, [event(BotChange::Restart, 5)]);
}

/// Contract: W4. Field report R35.
#[tokio::test]
async fn events_that_were_trimmed_away_are_a_gap_once() {
    let Some(server) = Server::start(&[]) else { return };
    let (producer, a) = (server.registry("api", 1), server.registry("a", 1));
    producer.announce(&event(BotChange::Activate, 1)).await.expect("told");
    let begin = a.events(None).await.expect("read").cursor;
    let empty = server.registry("b", 1);
    let mut redis = connection(&server.url()).await;
    let script = "for n = 1, 12000 do redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10000, '*', 'type', 'restart', 'bot_id', \
                  ARGV[1], 'bot_type', 'slack') end return redis.call('XLEN', KEYS[1])";
    let bot = channel(1).to_string();
    let kept: u32 = asked(&mut redis, &["EVAL", script, "1", "bot_worker:events", &bot]).await;
    let (events, cursor, gaps) = all(&a, &begin).await;
    assert_eq!((gaps, events.len() as u32), (1, kept));
    producer.announce(&event(BotChange::Activate, 2)).await.expect("told");
    let (events, cursor, gaps) = all(&a, &cursor).await;
    assert_eq!((gaps, events.len()), (0, 1), "told once");
    // The stream is lost, and begins again.
    let _: i64 = server.ask(&["DEL", "bot_worker:events"]).await;
    let (events, cursor, gaps) = all(&a, &cursor).await;
    assert_eq!((gaps, events.len()), (1, 0));
    producer.announce(&event(BotChange::Activate, 3)).await.expect("told");
    let (events, cursor, gaps) = all(&a, &cursor).await;
    assert_eq!((gaps, events.len()), (0, 1));
    // What this version can't read may have meant anything.
    let _: String = asked(&mut redis, &["XADD", "bot_worker:events", "*", "type", "explode", "bot_id", &bot]).await;
    assert_eq!(all(&a, &cursor).await.2, 1);
    assert!(empty.events(None).await.expect("read").gap);
}

/// Contract: W3, W5.
#[tokio::test]
async fn a_worker_hears_what_it_is_told_and_who_tells_knows_whether_it_did() {
    let Some(mut server) = Server::start(&[]) else { return };
    let (a, b): (Arc<RedisRegistry>, _) = (server.registry("a", 1), server.registry("b", 1));
    assert!(!b.tell("a", Notice::Stop(channel(1))).await.expect("told"), "nobody listens");
    assert_eq!(within("the first", a.next_notice()).await.expect("heard"), Notice::Members);
    for notice in [Notice::Stop(channel(1)), Notice::Restart(channel(2)), Notice::Members] {
        assert!(b.tell("a", notice).await.expect("told"));
        assert_eq!(within("the notice", a.next_notice()).await.expect("heard"), notice);
    }
    assert!(!b.tell("c", Notice::Stop(channel(1))).await.expect("told"));
    // Members come, change and go; a heartbeat that changes nothing is not told.
    let mut state = WorkerState::Starting;
    for _ in 0..2 {
        b.heartbeat(&info(state), false).await.expect("beat");
        assert_eq!(within("a change", a.next_notice()).await.expect("heard"), Notice::Members);
        b.heartbeat(&info(state), false).await.expect("beat");
        nothing("no change", a.next_notice()).await;
        state = WorkerState::Draining;
    }
    b.leave().await.expect("left");
    assert_eq!(within("a change", a.next_notice()).await.expect("heard"), Notice::Members);
    // Something that isn't ours on the channel is passed over.
    let heard: u64 = server.ask(&["PUBLISH", "bot_worker:commands:a", "nonsense"]).await;
    assert_eq!(heard, 1);
    assert!(b.tell("a", Notice::Restart(channel(3))).await.expect("told"));
    assert_eq!(within("the notice", a.next_notice()).await.expect("heard"), Notice::Restart(channel(3)));

    server.die().await;
    within("the loss", a.next_notice()).await.expect_err("nothing can be heard");
    server.up();
    until("it hears again", async || a.next_notice().await.is_ok_and(|notice| notice == Notice::Members)).await;
    until("it is told again", async || b.tell("a", Notice::Stop(channel(4))).await.is_ok_and(|heard| heard)).await;
    assert_eq!(within("the notice", a.next_notice()).await.expect("heard"), Notice::Stop(channel(4)));
}
