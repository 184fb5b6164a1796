//! What the index of an outbox knows is what lies there, whatever happens in whatever order.

use proptest::prelude::*;

use super::*;
use crate::{event::EventKind, platform::PlatformKind, sink::outbox::amqp::wire::BOTH};

const HANDLER: Destination = Destination::Handler;

fn event(key: u32, seq: u64) -> Event {
    let channel = ChannelId::from_uuid(Uuid::from_u128(7));
    let message = crate::event::Message { message_id: key.to_string(), ..Default::default() };
    let kind = EventKind::MessageReceived(message);
    let mut event = Event::new(
        channel,
        PlatformKind::Telegram,
        Some("chat".into()),
        jiff::Timestamp::UNIX_EPOCH,
        &key.to_string(),
        kind,
    );
    event.seq = seq;
    event
}

fn letter(event: &Event, number: u64, to: &[Destination]) -> Letter {
    let body = Bytes::from(serde_json::to_vec(event).expect("JSON"));
    Letter { number, stored_ms: 0, open: Open::fresh(to), again: false, body }
}

/// Contract: E1.
#[test]
fn what_comes_into_view_late_gets_a_position_behind_all_that_was_told() {
    let mut index = Index::default();
    let (a, b, c) = (event(1, 1), event(2, 2), event(3, 3));
    index.arrived(&b, &letter(&b, 20, &BOTH), None, 1, 1, false);
    index.caught_up(1, 25);
    assert_eq!(index.read(None, 0, 10)[0].position, 20);
    let (ack, news) = index.arrived(&a, &letter(&a, 10, &BOTH), None, 2, 1, false);
    assert!(ack.is_none() && news);
    assert!(index.read(None, 20, 10)[0].position > 20);
    let number = index.number(0, 0);
    index.publishing(&c, &letter(&c, number, &BOTH));
    assert!(index.read(None, 21, 10).is_empty(), "not stored yet");
    let told = index.read(None, 0, 10).last().expect("one").position;
    assert!(index.published(&[number], true)[0] > told);
}

/// Contract: E1.
#[test]
fn a_second_copy_is_dropped_and_a_replay_is_not() {
    let mut index = Index::default();
    let a = event(1, 1);
    index.arrived(&a, &letter(&a, 10, &[HANDLER]), None, 1, 1, false);
    let copy = Some(Ack { source: None, tag: 2 });
    assert_eq!(index.arrived(&a, &letter(&a, 11, &[HANDLER]), None, 2, 1, false), (copy, false), "it is open");
    assert_eq!(index.close(10, HANDLER, true).ack, Some(Ack { source: None, tag: 1 }));
    let copy = Some(Ack { source: None, tag: 3 });
    assert_eq!(index.arrived(&a, &letter(&a, 12, &[HANDLER]), None, 3, 1, false), (copy, false), "it was delivered");
    let again = Letter { again: true, ..letter(&a, 13, &[HANDLER]) };
    assert_eq!(index.arrived(&a, &again, None, 4, 1, false), (None, true));
}

/// Contract: E1. Whoever was told that it is not stored tells it again.
#[test]
fn what_was_told_to_be_not_stored_is_taken_away_when_it_comes() {
    let mut index = Index::default();
    let a = event(1, 1);
    index.publishing(&a, &letter(&a, 10, &[HANDLER]));
    assert_eq!(index.void(&[10]), []);
    index.publishing(&a, &letter(&a, 11, &[HANDLER]));
    assert_eq!(index.arrived(&a, &letter(&a, 10, &[HANDLER]), None, 1, 1, false).0, Some(Ack { source: None, tag: 1 }));
    assert_eq!(index.arrived(&a, &letter(&a, 11, &[HANDLER]), None, 2, 1, false), (None, false));
    assert_eq!(index.published(&[11], false), [11]);
    assert_eq!(index.read(None, 0, 10).len(), 1);
}

/// Contract: E1. An acknowledgement may get lost.
#[test]
fn what_was_done_before_a_new_holding_is_acknowledged_when_it_comes_again() {
    let mut index = Index::default();
    let (a, b) = (event(1, 1), event(2, 2));
    for (event, number, tag) in [(&a, 10, 1), (&b, 11, 2)] {
        index.arrived(event, &letter(event, number, &BOTH), None, tag, 1, false);
    }
    index.caught_up(1, 12);
    index.session_ended();
    for destination in BOTH {
        assert_eq!(index.close(10, destination, true).ack, None, "nobody can be told");
    }
    assert_eq!(index.arrived(&a, &letter(&a, 10, &BOTH), None, 1, 2, true).0, Some(Ack { source: None, tag: 1 }));
    index.caught_up(2, 13);
    assert!(index.read(None, 0, 10).is_empty(), "what did not come again is gone");
    assert_eq!(index.size(), (0, 0));
}

proptest! {
    /// Contract: E1. Whatever the clocks were, the queue's order is the order in which events are read.
    #[test]
    fn events_are_read_in_the_order_of_their_queue(
        steps in proptest::collection::vec((0_u64..40, any::<bool>()), 1..40),
        ours in 0_usize..40,
    ) {
        let mut index = Index::default();
        let mut queue = Vec::new();
        for (at, (number, _)) in steps.iter().enumerate() {
            let event = event(at as u32, at as u64 + 1);
            // Unique, and in any order.
            let letter = letter(&event, number * 100 + at as u64 + 1, &[HANDLER]);
            queue.push((event, letter));
        }
        for (event, letter) in queue.iter().skip(ours) {
            index.publishing(event, letter);
            index.published(&[letter.number], false);
        }
        for (tag, (event, letter)) in queue.iter().enumerate() {
            index.arrived(event, letter, None, tag as u64 + 1, 1, false);
        }
        index.caught_up(1, u64::MAX);
        let read: Vec<u64> = index.read(None, 0, 100).iter().map(|stored| stored.event.seq).collect();
        prop_assert_eq!(read, (1..=steps.len() as u64).collect::<Vec<_>>());
        let size = index.size();
        prop_assert_eq!(size.0, steps.len());
        let positions: Vec<u64> = index.read(None, 0, 100).iter().map(|stored| stored.position).collect();
        for position in positions {
            prop_assert!(index.close(position, HANDLER, true).ack.is_some());
        }
        prop_assert_eq!(index.size(), (0, 0));
    }
}
