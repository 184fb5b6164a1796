//! A small storm of each run of the suite, on the network where clients choose ids; `just chaos` is the large one.

use std::{path::PathBuf, time::Duration};

use bench::chaos::{Network, Plan, run};

/// Contract: Q2, Q3, Q8, P5.
#[tokio::test]
async fn killed_shards_and_restarted_servers_lose_nothing_and_show_nothing_twice() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed} repeats it");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_bench-chaos"));
    let plan = Plan {
        jobs: 3000,
        seed,
        rate: 150,
        channels: 12,
        kill_every: Duration::from_secs(2),
        network: Network::ClientIds { program },
        within: std::env::temp_dir(),
    };
    let report = run(plan).await.expect("it comes to an end");
    println!("{report}");
    assert!(report.holds(), "{report}");
    assert!(report.suffered.kills > 0 && report.suffered.broker_restarts == 2 && report.suffered.redis_restarts == 1);
}
