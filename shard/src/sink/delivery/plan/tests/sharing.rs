//! Who waits for whom: a failing conversation, a slow site, a dead endpoint.

use super::*;

/// Contract: E1.
#[test]
fn a_failing_head_holds_back_its_own_conversation_and_destination_alone() {
    let mut bench = Bench::new(limits());
    for n in 0..200 {
        bench.store(1, &format!("bad-{}", n % 40), &[Endpoint, Handler]);
    }
    // Everything of these conversations fails at the endpoint; their handler, and everybody else, goes on.
    let mut handled = 0;
    for _ in 0..100 {
        for attempt in bench.attempts() {
            handled += usize::from(attempt.lane.group.0 == Handler);
            let outcome = if attempt.lane.group.0 == Endpoint { failed() } else { Outcome::Done };
            bench.finish(&attempt, outcome);
        }
    }
    assert_eq!(handled, 200);
    bench.store(1, "good", &[Endpoint]);
    bench.store(2, "bad-1", &[Endpoint]);
    let attempts = bench.attempts();
    let chats: Vec<_> = attempts.iter().map(|attempt| attempt.lane.conversation.as_deref().unwrap_or("")).collect();
    assert_eq!(chats, ["good", "bad-1"]);
}

/// Contract: E1. Dead for an hour: what is remembered of it is bounded, and nobody else waits.
#[test]
fn a_dead_endpoint_keeps_memory_flat_and_loses_nothing() {
    let mut bench = Bench::new(limits());
    bench.wander = 0.618;
    let (mut events, mut lanes) = (0, 0);
    for second in 0..3600u32 {
        for n in 0..4 {
            bench.store(u128::from(n % 3), &format!("chat-{}", (second * 7 + n) % 500), &[Endpoint, Handler]);
        }
        let mut handled = 0;
        for _ in 0..2 {
            for attempt in bench.attempts() {
                let handler = attempt.lane.group.0 == Handler;
                handled += usize::from(handler);
                bench.finish(&attempt, if handler { Outcome::Done } else { failed() });
            }
        }
        assert!(handled >= 4, "only {handled} of 4 were handled at once");
        bench.pass(Duration::from_secs(1));
        let held = bench.plan.held[&Endpoint];
        (events, lanes) = (events.max(held.events), lanes.max(held.lanes));
    }
    assert!(events <= 3 * MOST_EVENTS, "{events} events are held");
    assert!(lanes <= limits().lanes + 3 * LEAST_LANES, "{lanes} lanes are remembered");
    assert_eq!(bench.plan.held[&Handler].events, 0);

    // It is back: all of it arrives, in order, within the time it takes and not at the pace of the longest backoff.
    let started = bench.now.mono;
    let mut last: HashMap<LaneKey, u64> = HashMap::new();
    while !bench.open.is_empty() {
        let attempts = bench.attempts();
        for attempt in &attempts {
            let before = last.insert(attempt.lane.clone(), attempt.position);
            assert!(before < Some(attempt.position), "out of order");
            bench.finish(attempt, Outcome::Done);
        }
        if attempts.is_empty() {
            bench.pass(Duration::from_millis(bench.wait_ms().expect("something to wait for") as u64));
        }
    }
    assert!(bench.now.mono - started < Duration::from_secs(30), "{:?}", bench.now.mono - started);
}

/// A slow agent has its limit, a channel has its own, and neither is anybody else's.
#[test]
fn a_slow_site_holds_nobody_else_back() {
    let mut bench = Bench::new(limits());
    for n in 0..60 {
        bench.store(n % 6, &format!("chat-{n}"), &[Endpoint, Handler]);
    }
    let attempts = bench.attempts();
    let to = |destination| attempts.iter().filter(|attempt| attempt.lane.group.0 == destination).count();
    assert_eq!((to(Endpoint), to(Handler)), (16, 6 * 8));
    // One place at the endpoint is given to one of those who wait there, and the next ones go round.
    let under_way: Vec<_> = attempts.iter().filter(|attempt| attempt.lane.group.0 == Endpoint).collect();
    bench.finish(under_way[0], Outcome::Done);
    assert_eq!(bench.attempts().len(), 1);
    for attempt in &under_way[1..] {
        bench.finish(attempt, Outcome::Done);
    }
    let next = bench.attempts();
    let served = (0..6).map(|n| next.iter().filter(|attempt| attempt.lane.group == (Endpoint, channel(n))).count());
    assert!(served.clone().all(|n| (1..=3).contains(&n)), "{:?}", served.collect::<Vec<_>>());
}

#[test]
fn a_site_is_told_to_be_down_once_and_up_once() {
    let mut bench = Bench::new(limits());
    for n in 0..8 {
        bench.store(1, &format!("chat-{n}"), &[Endpoint]);
    }
    let attempts = bench.attempts();
    let told: Vec<_> = attempts[..6].iter().map(|attempt| bench.finish(attempt, failed()).down).collect();
    assert_eq!(told, [None, None, Some(true), None, None, None]);
    assert_eq!(bench.finish(&attempts[6], Outcome::Done).down, Some(false));
    assert_eq!(bench.finish(&attempts[7], Outcome::Done).down, None);
}
