//! The channels of the world, and how one process sees those that are its own.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use shard::{
    directory::{ChannelSpec, DirectoryError, Handler},
    dispatch::{Availability, Channels, Ready},
    identity::{ChannelId, ShardId},
    platform::Platform,
    registry::Fence,
};
use tokio::sync::Notify;

use super::wire::TestPlatform;

/// Where a channel stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Ready,
    Starting,
    Disabled,
    Unknown,
}

/// Where channels stand; those not named are ready.
#[derive(Default)]
pub(crate) struct Book {
    standing: Mutex<HashMap<ChannelId, Standing>>,
    /// Connects and disconnects, in order.
    pub(crate) controls: Mutex<Vec<(ChannelId, bool)>>,
    /// How often every lease was lost and claimed anew.
    pub(crate) claims: AtomicU64,
    changed: Notify,
}

impl Book {
    pub(crate) fn set(&self, channel: ChannelId, standing: Standing) {
        self.standing.lock().expect("standing").insert(channel, standing);
        self.changed.notify_waiters();
    }

    fn get(&self, channel: ChannelId) -> Standing {
        self.standing.lock().expect("standing").get(&channel).copied().unwrap_or(Standing::Ready)
    }
}

/// The channels as one process in one life sees them.
pub(crate) struct TestChannels {
    pub(crate) book: Arc<Book>,
    pub(crate) shard: ShardId,
    pub(crate) platform: Arc<TestPlatform>,
    pub(crate) token: u64,
}

impl TestChannels {
    fn control(&self, channel: ChannelId, to: Standing) -> bool {
        if self.book.get(channel) == Standing::Unknown {
            return false;
        }
        self.book.controls.lock().expect("controls").push((channel, to == Standing::Ready));
        self.book.set(channel, to);
        true
    }
}

#[async_trait]
impl Channels for TestChannels {
    fn availability(&self, channel: ChannelId) -> Availability {
        assert!(self.shard.owns(channel), "{channel} is asked for in {:?}", self.shard);
        match self.book.get(channel) {
            Standing::Ready => {}
            Standing::Starting => return Availability::Starting,
            Standing::Disabled => return Availability::Disabled,
            Standing::Unknown => return Availability::Unknown,
        }
        let spec = Arc::new(ChannelSpec {
            id: channel,
            platform: self.platform.kind(),
            token: None,
            handler: Handler::None,
            enabled: true,
            label: None,
        });
        let sender = self.platform.sender(&spec).expect("it always sends");
        let fence = Fence { channel, token: self.token + self.book.claims.load(Ordering::Relaxed) };
        Availability::Ready(Ready { spec, fence, platform: self.platform.clone(), sender })
    }

    async fn changed(&self) {
        let _ = tokio::time::timeout(std::time::Duration::from_millis(200), self.book.changed.notified()).await;
    }

    async fn connect(&self, channel: ChannelId) -> Result<bool, DirectoryError> {
        Ok(self.control(channel, Standing::Ready))
    }

    async fn disconnect(&self, channel: ChannelId, _: bool) -> Result<bool, DirectoryError> {
        Ok(self.control(channel, Standing::Disabled))
    }
}
