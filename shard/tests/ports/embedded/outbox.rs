//! The outbox suite on a slot file.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use shard::{
    clock::ManualClock,
    identity::ShardId,
    sink::{Destination, Outbox, OutboxError, outbox::EmbeddedOutbox},
    store::SlotStore,
};
use tempfile::TempDir;

use super::{data_dir, holder};
use crate::suites::outbox::{OutboxHarness, batch, outbox_suite};

struct Slot {
    dir: TempDir,
    clock: ManualClock,
    incarnation: u64,
}

impl Slot {
    async fn new() -> Self {
        Self { dir: data_dir(), clock: ManualClock::at(1_900_000_000_000), incarnation: 0 }
    }

    fn open(&mut self) -> Arc<EmbeddedOutbox> {
        self.incarnation += 1;
        let shard = ShardId::new(0, 1);
        let me = holder(shard, self.incarnation);
        let slot = SlotStore::open(self.dir.path(), shard, &me, Arc::new(self.clock.clone())).expect("opened");
        Arc::new(EmbeddedOutbox::new(slot))
    }
}

#[async_trait]
impl OutboxHarness for Slot {
    async fn start(&mut self) -> Arc<dyn Outbox> {
        self.open()
    }

    async fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
    }
}

outbox_suite!(async { Some(Slot::new().await) });

/// Contract: C1, E1. A stopped process that wakes after its successor began.
#[tokio::test]
async fn a_fenced_predecessor_stores_no_event() {
    let mut slot = Slot::new().await;
    let old = slot.open();
    let stored = old.append(batch(1, 1, &["a"], Some(1)), &[Destination::Handler]).await.expect("stored");
    let new = slot.open();
    fn refused<T: std::fmt::Debug>(outcome: Result<T, OutboxError>) {
        assert!(matches!(&outcome, Err(OutboxError::Refused(cause)) if cause.contains("fenced")), "{outcome:?}");
    }
    let (position, handler) = (stored[0].position, Destination::Handler);
    refused(old.append(batch(1, 1, &["b"], Some(2)), &[]).await);
    refused(old.delivered(position, handler).await);
    refused(old.failed(position, handler, "late").await);
    refused(old.bury(position, handler, "late").await);
    refused(old.open(0, 1).await);
    assert_eq!(new.offset(batch(1, 1, &[], None).fence.channel).await.expect("read"), Some(1));
    assert_eq!(new.open(0, 10).await.expect("read")[0].open, [(handler, 0)]);
}

/// Contract: E1. Dead letters are looked after from another process.
#[tokio::test]
async fn a_visitor_replays_dead_letters_of_a_running_slot() {
    let mut slot = Slot::new().await;
    let outbox = slot.open();
    let stored = outbox.append(batch(1, 1, &["a"], None), &[Destination::Handler]).await.expect("stored");
    outbox.bury(stored[0].position, Destination::Handler, "refused").await.expect("buried");
    let clock = Arc::new(slot.clock.clone());
    let visitor = EmbeddedOutbox::visit(slot.dir.path(), None, clock.clone()).await.expect("visits");
    let dead = visitor.dead(10).await.expect("listed");
    assert!(visitor.replay(dead[0].event.id, Destination::Handler).await.expect("replayed"));
    assert_eq!(outbox.open(stored[0].position, 10).await.expect("read").len(), 1);
    assert!(EmbeddedOutbox::visit(slot.dir.path(), Some(3), clock).await.is_err(), "there is no such slot");
}
