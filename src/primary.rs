//! The primary: the supervisor with its locks, port and control socket, and the view of the box put together from what the
//! shards report. It holds no chat connection and no queue.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::value::{RawValue, to_raw_value};
use shard::http::{PortClaim, Report, UsageSampler};
use supervisor::{
    Supervisor,
    control::ControlSocket,
    exit_status::ExitReason,
    lock::{LockError, SlotLock},
    observer::Observer,
    spec::{ChildSpec, MemoryLimit, Policy},
    status::{Phase, SlotStatus},
};
use tracing::{info, warn};

use crate::{
    announce::announce,
    box_view::{BoxView, PrimaryFacts, PrimaryProcess, SlotFacts},
    config::Config,
    exit::Failure,
    shard_process::{layout, note_port},
};

/// How long a new daemon waits for the one before it to be gone.
const HANDOVER: Duration = Duration::from_secs(3);

/// Runs the primary until its shards have ended for good; the status to exit with.
pub(crate) fn run(config: &Config, shard_args: Vec<String>) -> Result<u8, Failure> {
    announce(config, None);
    shard::store::make_directory(&config.data_dir).map_err(crate::commands::store_failure)?;
    let locks = (0..config.shard_count)
        .map(|slot| SlotLock::acquire(&config.data_dir, slot, HANDOVER))
        .collect::<Result<Vec<_>, _>>()
        .map_err(lock_failure)?;
    let address = SocketAddr::new(config.health.bind, config.health.port);
    // Claimed for as long as the primary lives; the shards join it.
    let port = PortClaim::new(address).map_err(|error| Failure::Config(error.to_string()))?;
    note_port(config, port.address().port())?;
    info!(address = %port.address(), "health port");
    let control = ControlSocket::bind(&config.data_dir.join("control.sock"))
        .map_err(|error| Failure::Config(error.to_string()))?;

    let mut spec = ChildSpec::itself(shard_args);
    spec.arg0 = Some("shardvisor: shard".into());
    spec.env.push(("HEALTH_PORT".into(), port.address().port().to_string().into()));
    let outcome = Supervisor::new(config.shard_count, spec, Overview::new(config))
        .policy(policy(config))
        .locks(locks)
        .control(control)
        .run();
    Ok(outcome.exit_code)
}

/// Whose fault it is that a slot can't be had.
pub(crate) fn lock_failure(error: LockError) -> Failure {
    match error {
        LockError::Held { .. } => Failure::GaveUp(error.to_string()),
        other => Failure::Config(other.to_string()),
    }
}

fn policy(config: &Config) -> Policy {
    Policy {
        boot: config.supervisor.boot_timeout,
        hang: config.supervisor.hang_timeout,
        drain: config.supervisor.drain_timeout,
        memory: config.supervisor.shard_memory_limit.map(|bytes| MemoryLimit { bytes, samples: 5 }),
        ..Policy::default()
    }
}

/// What the shards report, put together.
struct Overview {
    view: BoxView,
    primary: PrimaryFacts,
    usage: UsageSampler,
    started: Instant,
    /// How often each slot was started again, by reason.
    restarts: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Overview {
    fn new(config: &Config) -> Self {
        Self {
            view: BoxView::default(),
            primary: PrimaryFacts {
                shard_count: config.shard_count,
                epoch: 0,
                layout: layout(config, None),
                closing: false,
                process: None,
            },
            usage: UsageSampler::default(),
            started: Instant::now(),
            restarts: BTreeMap::new(),
        }
    }

    fn facts(&self, slot: &SlotStatus) -> SlotFacts {
        let zeros = ExitReason::ALL.iter().map(|reason| (reason.as_str().to_owned(), 0));
        let mut restarts: BTreeMap<String, u64> = zeros.collect();
        restarts.extend(self.restarts.get(&slot.index).cloned().unwrap_or_default());
        let reason = match &slot.phase {
            Phase::Starting { waiting_for } => waiting_for.clone(),
            Phase::NotReady { reason } => Some(reason.clone()),
            Phase::Backoff { reason, .. } | Phase::Slow { reason, .. } => {
                Some(format!("ended by {}, starting again", reason.as_str()))
            }
            Phase::Silent => Some("nothing is heard of it".to_owned()),
            Phase::Config => Some("its configuration is wrong; reload when it is right".to_owned()),
            Phase::Ready | Phase::Draining | Phase::Stopped => None,
        };
        SlotFacts {
            index: slot.index,
            pid: slot.pid,
            incarnation: slot.incarnation,
            up: slot.up,
            phase: slot.phase.name().to_owned(),
            reason,
            restarts,
        }
    }
}

impl Observer for Overview {
    fn report(&mut self, slot: u32, incarnation: u64, report: &RawValue) {
        // Most check-ins carry none.
        if report.get() == "null" {
            return;
        }
        match serde_json::from_str::<Report>(report.get()) {
            Ok(report) => {
                let epoch = report.status.get("epoch").and_then(serde_json::Value::as_u64).unwrap_or_default();
                self.primary.epoch = self.primary.epoch.max(epoch);
                self.view.report(slot, incarnation, report);
            }
            Err(error) => warn!(slot, %error, "a shard's report can't be read"),
        }
    }

    fn lost(&mut self, slot: u32, incarnation: u64, reason: ExitReason) {
        if reason == ExitReason::Stop {
            self.primary.closing = true;
        } else {
            *self.restarts.entry(slot).or_default().entry(reason.as_str().to_owned()).or_default() += 1;
        }
        self.view.lost(slot, incarnation);
    }

    fn view(&mut self, slots: &[SlotStatus]) -> Box<RawValue> {
        self.primary.process = Some(PrimaryProcess {
            pid: std::process::id(),
            uptime: self.started.elapsed(),
            usage: self.usage.sample(),
        });
        self.primary.closing |= slots.iter().all(|slot| matches!(slot.phase, Phase::Draining | Phase::Stopped));
        let facts: Vec<SlotFacts> = slots.iter().map(|slot| self.facts(slot)).collect();
        let view = self.view.render(&facts, &self.primary);
        to_raw_value(&view).unwrap_or_default()
    }
}
