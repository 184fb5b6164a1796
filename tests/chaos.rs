//! A small storm of each run of the suite, on the real daemon and the Telegram simulator; `just chaos --platform telegram` is
//! the large one.

use std::{path::PathBuf, time::Duration};

use bench::chaos::{Network, Plan, run};

/// Contract: Q2, Q3, Q8, P2, P5. Where nobody but the platform knows whether a send that was cut off has happened, it is shown
/// once, or lies in the dead letters for just that reason.
#[tokio::test]
async fn static_shards_in_a_storm_show_nothing_twice_and_account_for_every_job() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed} repeats it");
    let daemon = PathBuf::from(env!("CARGO_BIN_EXE_shardvisor"));
    let plan = Plan {
        jobs: 3000,
        seed,
        rate: 150,
        channels: 12,
        kill_every: Duration::from_secs(2),
        network: Network::Telegram { daemon },
        within: std::env::temp_dir(),
    };
    let report = run(plan).await.expect("it comes to an end");
    println!("{report}");
    assert!(report.holds(), "{report}");
    assert!(report.suffered.kills > 0 && report.suffered.broker_restarts == 2 && report.suffered.redis_restarts == 1);
}
