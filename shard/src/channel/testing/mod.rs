//! Our own ports and a network, held in memory, for the unit tests of this module.

mod network;
mod ports;

use std::sync::Arc;

use uuid::Uuid;

pub(super) use self::network::{Script, TestPlatform};
use self::ports::{TestClock, TestDirectory, TestOutbox, TestRegistry};
use super::{Roster, RosterConfig, RosterPorts};
use crate::{
    directory::{ChannelSpec, Handler},
    identity::{ChannelId, ShardId},
    metrics::Metrics,
    platform::{Platform, PlatformKind},
    progress::Progress,
    registry::Holder,
    secret::Secret,
};

pub(super) fn id(n: u32) -> ChannelId {
    ChannelId::from_uuid(Uuid::from_u128(u128::from(n) << 96 | 1))
}

pub(super) fn spec(n: u32) -> Arc<ChannelSpec> {
    Arc::new(ChannelSpec {
        id: id(n),
        platform: PlatformKind::Telegram,
        token: Some(Secret::new(format!("{n}:token"))),
        handler: Handler::Echo,
        enabled: true,
        label: None,
    })
}

/// All of it, wired to a roster.
pub(super) struct World {
    pub(super) clock: Arc<TestClock>,
    pub(super) registry: Arc<TestRegistry>,
    pub(super) directory: Arc<TestDirectory>,
    pub(super) outbox: Arc<TestOutbox>,
    pub(super) platform: Arc<TestPlatform>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) progress: Progress,
}

impl World {
    pub(super) fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        Self {
            registry: Arc::new(TestRegistry::new(clock.clone())),
            directory: Arc::default(),
            outbox: Arc::default(),
            platform: Arc::new(TestPlatform::new()),
            metrics: Arc::default(),
            progress: Progress::default(),
            clock,
        }
    }

    pub(super) fn script(&self, n: u32, lines: impl IntoIterator<Item = Script>) {
        self.platform.scripts.lock().unwrap().insert(id(n), lines.into_iter().collect());
    }

    pub(super) fn config(&self) -> RosterConfig {
        let holder = Holder { worker: "w".into(), incarnation: 1 };
        RosterConfig { endpoint: true, ..RosterConfig::new(ShardId::new(0, 1), holder) }
    }

    pub(super) fn roster(&self, config: RosterConfig) -> Roster {
        self.roster_on(config, self.platform.clone())
    }

    /// The same on another network than the test's own.
    pub(super) fn roster_on(&self, config: RosterConfig, platform: Arc<dyn Platform>) -> Roster {
        let ports = RosterPorts {
            registry: self.registry.clone(),
            directory: self.directory.clone(),
            outbox: self.outbox.clone(),
            platforms: vec![platform],
            on_stored: Arc::new(|_| {}),
            on_changed: Arc::new(|_| {}),
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
            progress: self.progress.clone(),
        };
        Roster::new(config, ports)
    }
}
