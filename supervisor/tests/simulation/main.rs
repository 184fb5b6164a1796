//! The whole policy against a world of children that crash, hang, stall, fail to boot and refuse to leave, with signals
//! at any moment and a machine that sleeps. After every step the invariants in `invariants.rs` must hold.
//!
//! Each seed is a world of its own. A failing one is printed; `SEED=<n>` replays it alone and shows what
//! happened, `SEEDS=<n>` runs more.

mod invariants;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a decimal number"))
}

fn run(seeds: u64, world: impl Fn(u64)) {
    // With `SEEDS` all tests grow alike.
    let range = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").map_or(seeds, |all| seeds * all / 2000),
    };
    for seed in range {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world(seed))) {
            eprintln!("failed in the world of SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// Contract: P1, P5.
#[test]
fn no_world_breaks_an_invariant() {
    run(2000, |seed| World::new(seed).live_and_stop());
}

/// Contract: P5. Field report R45.
#[test]
fn when_the_faults_end_every_slot_serves_again() {
    run(200, |seed| World::new(seed).live_and_heal());
}

/// Field report R45.
#[test]
fn a_shard_that_always_exits_gets_at_most_12_lives_in_ten_minutes() {
    run(50, |seed| World::new(seed).one_slot_always_exits());
}
