//! The shelf by itself.

use super::*;
use crate::{
    identity::{ChannelId, QueueBase},
    job::Lane,
};

fn lane(chat: &str) -> LaneKey {
    let channel: ChannelId = "0b7c1f3e-0000-4000-8000-000000000001".parse().expect("id");
    LaneKey::from(&Lane { base: QueueBase::Main, channel, chat: Some(chat.to_owned()) })
}

fn put(shelf: &mut Shelf, tag: Tag, chat: &str, seq: u64, body: &str, attempts: u32) -> Option<Tag> {
    let mut message = Message::new(body.to_owned());
    message.headers.lane_seq = Some(seq);
    message.headers.attempts = attempts;
    let place = Place { lane: Some(lane(chat)), number: Some(1000 + tag) };
    shelf.arrived(tag, message, place, false)
}

fn given(shelf: &mut Shelf, chat: &str, limit: usize) -> Vec<(u64, String)> {
    match shelf.pick(&lane(chat), limit) {
        Picked::Ready(given) => given
            .into_iter()
            .map(|given| (given.number, String::from_utf8_lossy(&given.message.body).into_owned()))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn bodies(given: &[(u64, String)]) -> Vec<&str> {
    given.iter().map(|(_, body)| body.as_str()).collect()
}

/// Contract: Q3.
#[test]
fn a_lane_comes_in_the_order_of_its_places_and_others_stay() {
    let mut shelf = Shelf::new(1000);
    for (tag, chat, seq) in [(1, "a", 3), (2, "b", 1), (3, "a", 1), (4, "a", 2)] {
        assert_eq!(put(&mut shelf, tag, chat, seq, &format!("{chat}{seq}"), 0), None);
    }
    let first = given(&mut shelf, "a", 2);
    assert_eq!(bodies(&first), ["a1", "a2"]);
    let rest = given(&mut shelf, "a", 9);
    assert_eq!(bodies(&rest), ["a3"]);
    assert!(shelf.released(first[1].0) && !shelf.released(first[1].0));
    assert_eq!(shelf.settled(first[0].0), Some(3));
    assert_eq!(bodies(&given(&mut shelf, "a", 9)), ["a2"]);
    assert_eq!(shelf.len(), 3);
}

/// Contract: Q3. The process ended between the new copy and the end of the old one.
#[test]
fn of_two_copies_the_one_that_was_tried_more_often_stays() {
    for (first, second, gone) in [(0, 1, 1), (1, 0, 2), (1, 1, 2)] {
        let mut shelf = Shelf::new(1000);
        assert_eq!(put(&mut shelf, 1, "a", 1, "job", first), None);
        assert_eq!(put(&mut shelf, 2, "a", 1, "job", second), Some(gone));
        assert_eq!(shelf.len(), 1);
    }
}

/// Contract: Q3.
#[test]
fn a_copy_of_our_own_is_no_left_behind_one_and_is_waited_for() {
    let mut shelf = Shelf::new(1000);
    put(&mut shelf, 1, "a", 1, "job", 0);
    let out = given(&mut shelf, "a", 1);
    shelf.expect(lane("a"), 1002);
    assert!(matches!(shelf.pick(&lane("a"), 1), Picked::Coming));
    assert_eq!(put(&mut shelf, 2, "a", 1, "job", 1), None, "the old one is acknowledged by who parked it again");
    assert_eq!(shelf.settled(out[0].0), Some(1));
    assert_eq!(bodies(&given(&mut shelf, "a", 9)), ["job"]);
}

#[test]
fn bodies_beyond_the_budget_are_fetched_again_when_asked_for() {
    let mut shelf = Shelf::new(6);
    for tag in 1..=3 {
        put(&mut shelf, tag, "a", tag, "12345", 0);
    }
    assert_eq!(bodies(&given(&mut shelf, "a", 1)), ["12345"]);
    let Picked::HandBack(tags) = shelf.pick(&lane("a"), 9) else { panic!("no bodies") };
    assert_eq!(tags, [2, 3]);
    assert!(matches!(shelf.pick(&lane("a"), 9), Picked::Coming));
    for (tag, number) in [(4, 1002), (5, 1003)] {
        let mut message = Message::new("12345");
        message.headers.lane_seq = Some(number - 1000);
        let place = Place { lane: Some(lane("a")), number: Some(number) };
        assert_eq!(shelf.arrived(tag, message, place, true), None);
    }
    let rest = given(&mut shelf, "a", 9);
    assert_eq!(rest.len(), 2);
    assert_eq!(shelf.settled(rest[1].0), Some(5), "under its new tag");
    assert_eq!(shelf.len(), 2);
}
