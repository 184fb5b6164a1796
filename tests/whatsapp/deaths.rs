//! The daemon is killed at the steps of receiving and of sending, on a seeded schedule.

use std::time::{Duration, Instant};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use simulators::whatsapp::{Stanza, Way};

use crate::{
    support::signal,
    world::{SOON, a_box, of},
};

const ROUNDS: u64 = 14;

/// What is on the wire at the moment of the death, or shortly before it.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Nothing yet: it was only given to the server, or to the queue.
    Given,
    /// A message was sent to the device.
    Delivered,
    /// The device has confirmed it.
    Confirmed,
    /// The device has sent a message.
    Sent,
    /// It is on the phone that it was for.
    Shown,
}

impl Step {
    fn is(self, stanza: &Stanza) -> bool {
        let (way, tag) = match self {
            Self::Given => return true,
            Self::Delivered => (Way::ToDevice, "message"),
            Self::Confirmed => (Way::FromDevice, "receipt"),
            Self::Sent => (Way::FromDevice, "message"),
            Self::Shown => (Way::ToDevice, "receipt"),
        };
        stanza.way == way && stanza.tag == tag
    }
}

/// Contract: C4, Q8, E1. Field report R03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_at_any_step_loses_no_message_shows_none_twice_and_spoils_no_ratchet() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_201_u64);
    eprintln!("SEED={seed}");
    let mut chance = StdRng::seed_from_u64(seed);
    let world = a_box(1).await;
    let mut daemon = world.home.start();
    daemon.wait_ready();
    let device = world.link();
    let mut texts = Vec::new();
    for round in 0..ROUNDS {
        // Each step once in turn for a message that comes, and for one that goes; how long after it, by chance.
        let receives = round % 2 == 0;
        let steps: &[Step] = if receives {
            &[Step::Given, Step::Delivered, Step::Confirmed, Step::Sent, Step::Shown]
        } else {
            &[Step::Given, Step::Sent, Step::Shown]
        };
        let step = steps[usize::try_from(round / 2).expect("few") % steps.len()];
        let after = Duration::from_micros(chance.random_range(0..15_000));
        let text = format!("round {round}");
        let before = world.server.stanzas().len();
        if receives {
            world.peer.say(world.owner.number(), &text).await.expect("sent");
        } else {
            world.home.ok(&["send", &world.channel, world.peer.number(), &text, "--id", &format!("job-{round}")]);
        }
        let there = || world.server.stanzas().iter().skip(before).any(|stanza| step.is(stanza)).then_some(());
        if !matches!(step, Step::Given) {
            world.server.wait_for("the step", SOON, there).await.unwrap_or_else(|_| {
                let seen: Vec<_> = world.server.stanzas().into_iter().skip(before).collect();
                panic!("round {round}: no {step:?} in {seen:?}\n{}", daemon.log());
            });
        }
        let reached = Instant::now();
        while reached.elapsed() < after {
            std::hint::spin_loop();
        }
        signal(daemon.pid(), 9);
        daemon.wait_exit(SOON);
        daemon = world.home.start();
        daemon.wait_ready();
        world.peer.wait_for_text(&text, SOON).await.unwrap_or_else(|_| {
            panic!("round {round}, {after:?} after {step:?}: not shown\n{}", daemon.log());
        });
        texts.push((text, format!("round {round}, {after:?} after {step:?}")));
    }
    // Whatever was still on its way has come by the time this one has.
    world.peer.say(world.owner.number(), "the last one").await.expect("sent");
    world.peer.wait_for_text("the last one", SOON).await.expect("shown");
    let acknowledged = || (world.server.waiting_for(&device) == 0).then_some(());
    world.server.wait_for("all is acknowledged", SOON, acknowledged).await.expect("acknowledged");
    for (text, when) in &texts {
        assert_eq!(world.peer.times_shown(text), 1, "{when}");
    }
    assert!(world.peer.unreadable().is_empty(), "{:?}", world.peer.unreadable());
    assert!(of(&world.events, "message.undecryptable").is_empty(), "{:?}", of(&world.events, "message.undecryptable"));
    let mut heard: Vec<_> =
        of(&world.events, "message.received").into_iter().map(|event| event["id"].clone()).collect();
    heard.sort_by_key(ToString::to_string);
    heard.dedup();
    assert_eq!(heard.len(), texts.len() / 2 + 1, "each message that came is one event, however often it is told");
    assert!(daemon.terminate().success());
}
