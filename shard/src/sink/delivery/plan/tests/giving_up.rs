//! When a failing event is tried again, and when it is given up.

use super::*;

/// The waits of one event's attempts, each failing with `outcome`, until it is buried.
fn waits(bench: &mut Bench, outcome: Outcome) -> Vec<u128> {
    let mut waits = Vec::new();
    while bench.buried.is_empty() && waits.len() < 500 {
        let attempts = bench.attempts();
        assert_eq!(attempts.len(), 1);
        bench.finish(&attempts[0], outcome.clone());
        if bench.buried.is_empty() {
            let wait = bench.wait_ms().expect("another attempt");
            waits.push(wait);
            bench.pass(Duration::from_millis(wait as u64));
        }
    }
    waits
}

/// Contract: E1.
#[test]
fn a_failing_event_is_tried_for_a_day_and_then_buried_with_its_reason() {
    let mut bench = Bench::new(limits());
    let position = bench.store(1, "a", &[Endpoint]);
    let waits = waits(&mut bench, failed());
    assert_eq!(waits[..11], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600].map(|seconds| seconds * 1000));
    let (day, sum) = (24 * 3600 * 1000, waits.iter().sum::<u128>());
    assert!((day..day + 600_000).contains(&sum), "{waits:?}");
    let reason = format!("given up after {} attempts: answered 500", waits.len() + 1);
    assert_eq!(bench.buried, [(position, reason)]);
    assert!(bench.attempts().is_empty());
    assert_eq!(bench.wait_ms(), None);
}

/// What grew old while nothing ran gets several chances; what waits behind it, on a site known to be dead, does not.
#[test]
fn age_alone_buries_nothing() {
    let mut bench = Bench::new(limits());
    let old = bench.store(1, "a", &[Endpoint]);
    let behind = bench.store(1, "a", &[Endpoint]);
    bench.pass(Duration::from_secs(48 * 3600));
    assert_eq!(waits(&mut bench, failed()).len(), 7);
    assert_eq!(bench.buried[0].0, old);
    let attempts = bench.attempts();
    bench.finish(&attempts[0], failed());
    assert_eq!(bench.buried[1].0, behind);
}

#[test]
fn an_answer_that_makes_no_sense_is_given_up_soon() {
    let mut bench = Bench::new(limits());
    bench.store(1, "a", &[Handler]);
    let malformed = Outcome::Failed { error: "the answer is not JSON".into(), retry_after: None, malformed: true };
    assert_eq!(waits(&mut bench, malformed).len(), 4);
    assert_eq!(bench.buried[0].1, "given up after 5 attempts: the answer is not JSON");
}

#[test]
fn a_refusal_is_final_and_lets_the_next_event_go() {
    let mut bench = Bench::new(limits());
    bench.store(1, "a", &[Endpoint]);
    let next = bench.store(1, "a", &[Endpoint]);
    assert_eq!(waits(&mut bench, Outcome::Refused { error: "answered 410".into() }), []);
    assert_eq!(bench.buried[0].1, "answered 410");
    assert_eq!(bench.attempts()[0].position, next);
}

#[test]
fn a_receiver_that_asks_for_patience_gets_it_but_no_hot_loop() {
    let patience = |asked| {
        let mut bench = Bench::new(limits());
        bench.store(1, "a", &[Endpoint]);
        let attempts = bench.attempts();
        let outcome = Outcome::Failed {
            error: "answered 429".into(),
            retry_after: Some(Duration::from_secs(asked)),
            malformed: false,
        };
        bench.finish(&attempts[0], outcome);
        bench.wait_ms().expect("another attempt")
    };
    assert_eq!(patience(90), 90_000);
    assert_eq!(patience(0), 1000);
}

#[test]
fn an_unknown_channel_is_nobodys_failure_and_goes_on_when_it_is_known() {
    let mut bench = Bench::new(limits());
    let position = bench.store(1, "a", &[Handler]);
    for _ in 0..5 {
        let attempts = bench.attempts();
        assert_eq!(bench.finish(&attempts[0], Outcome::Unknown), Settled::default());
        bench.pass(Duration::from_millis(bench.wait_ms().expect("another look") as u64));
    }
    assert_eq!(bench.open[0].open, [(Handler, 0)]);
    let attempts = bench.attempts();
    bench.finish(&attempts[0], Outcome::Unknown);
    assert!(bench.attempts().is_empty());
    bench.plan.handler_changed(channel(1), bench.now);
    let attempts = bench.attempts();
    assert_eq!(attempts[0].position, position);
    bench.finish(&attempts[0], Outcome::Unknown);
    bench.pass(Duration::from_secs(25 * 3600));
    waits(&mut bench, Outcome::Unknown);
    assert_eq!(bench.buried[0].1, "its channel is not known");
}
