//! Random claims, renewals, releases, restarts and passing time: never do two processes believe at once that they hold
//! the same thing, and no token is given twice.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;
use shard::{
    clock::{Clock, ManualClock},
    registry::{Claim, EmbeddedRegistry, Holder, Lease, Registry, Resource, SELF_FENCE},
    store::BoxStore,
};

use super::data_dir;

const WORKERS: usize = 3;
const RESOURCES: u32 = 3;

#[derive(Debug, Clone)]
enum Op {
    Claim { worker: usize, resource: u32 },
    Renew { worker: usize },
    Release { worker: usize, resource: u32 },
    Restart { worker: usize },
    Pass { ms: u64 },
    StepWall { ms: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let claim = (0..WORKERS, 0..RESOURCES).prop_map(|(worker, resource)| Op::Claim { worker, resource });
    let release = (0..WORKERS, 0..RESOURCES).prop_map(|(worker, resource)| Op::Release { worker, resource });
    prop_oneof![
        6 => claim,
        5 => (0..WORKERS).prop_map(|worker| Op::Renew { worker }),
        1 => release,
        1 => (0..WORKERS).prop_map(|worker| Op::Restart { worker }),
        5 => (0..6000_u64).prop_map(|ms| Op::Pass { ms }),
        1 => (-1_000_000..1_000_000_i64).prop_map(|ms| Op::StepWall { ms }),
    ]
}

/// What one process knows of itself.
struct Process {
    holder: Holder,
    leases: BTreeMap<u32, Lease>,
    renewed: Duration,
}

impl Process {
    fn believes(&self, now: Duration) -> bool {
        now < self.renewed + SELF_FENCE
    }
}

struct World {
    clock: ManualClock,
    registry: EmbeddedRegistry,
    processes: Vec<Process>,
    /// The greatest token given for each resource.
    tokens: BTreeMap<u32, u64>,
}

impl World {
    async fn run(&mut self, op: &Op) {
        let now = self.clock.boottime();
        match *op {
            Op::Pass { ms } => self.clock.advance(Duration::from_millis(ms)),
            Op::StepWall { ms } => self.clock.step_wall(ms),
            Op::Restart { worker } => {
                // Killed and reaped: its successor has proof.
                let process = &mut self.processes[worker];
                process.holder.incarnation += 1;
                process.leases.clear();
                process.renewed = Duration::ZERO;
                let supersede = self.registry.claim(&process.holder, &[], true).await;
                assert_eq!(supersede.expect("answered"), []);
            }
            Op::Renew { worker } => {
                let process = &mut self.processes[worker];
                let leases: Vec<_> = process.leases.values().copied().collect();
                let lost = self.registry.renew(&process.holder, &leases).await.expect("renewed").lost;
                process.leases.retain(|_, lease| !lost.contains(lease));
                process.renewed = now;
            }
            Op::Release { worker, resource } => {
                let process = &mut self.processes[worker];
                if let Some(lease) = process.leases.remove(&resource) {
                    self.registry.release(&process.holder, &[lease]).await.expect("released");
                }
            }
            Op::Claim { worker, resource } => {
                let process = &mut self.processes[worker];
                if !process.believes(now) {
                    // Whoever has lost their belief asks first what is left of it.
                    let leases: Vec<_> = process.leases.values().copied().collect();
                    let lost = self.registry.renew(&process.holder, &leases).await.expect("renewed").lost;
                    process.leases.retain(|_, lease| !lost.contains(lease));
                    process.renewed = now;
                }
                let claims = self.registry.claim(&process.holder, &[Resource::Slot(resource)], false).await;
                if let Claim::Held(lease) = claims.expect("answered")[0] {
                    let last = self.tokens.entry(resource).or_default();
                    let kept = process.leases.insert(resource, lease) == Some(lease);
                    assert!(kept || lease.token > *last, "token {} after {last}", lease.token);
                    *last = lease.token;
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        let now = self.clock.boottime();
        for resource in 0..RESOURCES {
            let believers = self.processes.iter().filter(|process| process.believes(now));
            let holders: Vec<_> = believers.filter_map(|process| process.leases.get(&resource)).collect();
            assert!(holders.len() <= 1, "resource {resource} is held twice: {holders:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Contract: C1. Field report R40.
    #[test]
    fn nothing_is_held_twice_whoever_claims_renews_stops_or_restarts(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let dir = data_dir();
        let clock = ManualClock::at(1_900_000_000_000);
        let shared = BoxStore::open(dir.path(), Arc::new(clock.clone())).expect("opened");
        let process = |number: usize| Process {
            holder: Holder { worker: format!("w-{number}"), incarnation: 1 },
            leases: BTreeMap::new(),
            renewed: Duration::ZERO,
        };
        let mut world = World {
            clock,
            registry: EmbeddedRegistry::new(shared, None),
            processes: (0..WORKERS).map(process).collect(),
            tokens: BTreeMap::new(),
        };
        runtime.block_on(async {
            for op in &ops {
                world.run(op).await;
            }
        });
    }
}
