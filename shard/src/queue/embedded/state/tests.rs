//! What a consumer knows, step by step.

use super::*;

const NONE: Count = Count { rows: 0, last_id: 0, removed: 0 };

fn message(id: Id) -> Message {
    Message::new(id.to_string())
}

/// Reads from `1..=last` what a plan asks for.
fn read(state: &mut State, plan: &Plan, last: Id) {
    let fresh = (plan.after + 1..=last).take(plan.limit);
    let rows: Vec<_> = plan.again.iter().copied().chain(fresh).map(|id| (id, message(id))).collect();
    let top = rows.last().map_or(0, |(id, _)| *id);
    let mark = if top > plan.mark { top + plan.ahead } else { plan.mark };
    let complete = rows.len() - plan.again.len() < plan.limit;
    state.read(1, plan, Reading { rows, read_to: 0, mark, complete });
}

fn deliver(state: &mut State, last: Id) -> Option<(Id, bool)> {
    loop {
        match state.step(1) {
            Step::Deliver { id, redelivered, .. } => return Some((id, redelivered)),
            Step::Read(plan) => read(state, &plan, last),
            _ => return None,
        }
    }
}

/// Contract: Q3, Q10.
#[test]
fn what_is_released_comes_again_in_its_old_place_before_anything_newer() {
    let mut state = State::default();
    state.begin(1, 4, 0, 0, NONE);
    let first: Vec<_> = (0..4).filter_map(|_| deliver(&mut state, 9)).map(|(id, _)| id).collect();
    assert_eq!(first, [1, 2, 3, 4]);
    assert_eq!(deliver(&mut state, 9), None, "the prefetch bounds what is out");
    state.released(1, 2);
    state.settled(1, 1, false);
    state.released(1, 4);
    let then: Vec<_> = (0..3).filter_map(|_| deliver(&mut state, 9)).map(|(id, _)| id).collect();
    assert_eq!(then, [2, 4, 5]);
}

#[test]
fn what_may_have_been_out_before_is_marked_and_nothing_else() {
    let mut state = State::default();
    state.begin(1, 10, 0, 3, NONE);
    let seen: Vec<_> = (0..5).filter_map(|_| deliver(&mut state, 5)).collect();
    assert_eq!(seen, [(1, true), (2, true), (3, true), (4, false), (5, false)]);
}

#[test]
fn a_clean_end_leaves_no_bound_and_an_unclean_one_that_of_what_was_out() {
    let mut state = State::default();
    state.begin(1, 10, 0, 0, NONE);
    for _ in 0..5 {
        deliver(&mut state, 5);
    }
    for id in [1, 2, 4, 5] {
        state.settled(1, id, false);
    }
    assert_eq!(state.end(1), Some(3));
    assert_eq!(state.end(1), None);
    state.begin(2, 10, 0, 0, NONE);
    assert_eq!(state.end(2), Some(0));
}

#[test]
fn a_publish_of_our_own_is_handed_over_without_reading() {
    let mut state = State::default();
    state.begin(1, 10, 0, 0, NONE);
    assert_eq!(deliver(&mut state, 1), Some((1, false)));
    assert_eq!(deliver(&mut state, 1), None);
    state.published(2, &message(2));
    assert!(matches!(state.step(1), Step::Deliver { id: 2, .. }));
    state.published(4, &message(4));
    assert!(matches!(state.step(1), Step::Read(plan) if plan.after == 2), "somebody else published 3");
}

#[test]
fn news_during_a_reading_are_read_again() {
    let mut state = State::default();
    state.begin(1, 10, 0, 0, NONE);
    let Step::Read(plan) = state.step(1) else { panic!("reads first") };
    state.news();
    read(&mut state, &plan, 0);
    assert!(matches!(state.step(1), Step::Read(_)));
}

/// Contract: Q2. What was given out before it was stored, and then was not: whatever this session knows is void.
#[test]
fn a_row_that_is_not_there_after_all_ends_the_session() {
    let mut state = State::default();
    state.begin(1, 10, 0, 0, NONE);
    assert_eq!(deliver(&mut state, 1), Some((1, false)));
    assert_eq!(deliver(&mut state, 1), None);
    state.published(2, &message(2));
    state.revoke();
    assert!(matches!(state.step(1), Step::Replaced));
    assert!(!state.is_out(1, 1, false), "nothing of it can be settled");
    state.begin(2, 10, 0, 17, NONE);
    let Step::Read(plan) = state.step(2) else { panic!("a new one reads from the beginning") };
    assert_eq!(plan.after, 0);
}
