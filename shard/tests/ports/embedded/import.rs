//! A change of the shard count: what belongs to a channel follows it into the file of its new slot.

use std::{path::Path, sync::Arc};

use shard::{
    clock::{Clock, SystemClock},
    identity::{ChannelId, ShardId},
    job::JobId,
    registry::{EmbeddedRegistry, Fence, Holder, Registry, Reservation, Reserve, Sent},
    sink::{Batch, Destination, Outbox, OutboxError, outbox::EmbeddedOutbox},
    store::{BoxStore, SlotStore},
};

use super::{data_dir, holder};
use crate::suites::outbox::{batch, channel, event};

/// One life of a slot, with the ports that stand on its file.
struct Life {
    slot: Arc<SlotStore>,
    outbox: EmbeddedOutbox,
    registry: EmbeddedRegistry,
    me: Holder,
}

impl Life {
    async fn begin(dir: &Path, index: u32, count: u32, incarnation: u64) -> (Self, u64) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let shard = ShardId::new(index, count);
        let me = holder(shard, incarnation);
        let slot = SlotStore::open(dir, shard, &me, clock.clone()).expect("opened");
        let imported = slot.import_foreign().await.expect("imported");
        let shared = BoxStore::open(dir, clock).expect("opened");
        let registry = EmbeddedRegistry::new(shared, Some(slot.clone()));
        (Self { outbox: EmbeddedOutbox::new(slot.clone()), slot, registry, me }, imported.rows)
    }

    async fn reserve(&self, of: ChannelId, token: u64, job: &str) -> Reservation {
        let (fence, job) = (Fence { channel: of, token }, JobId::new(job).expect("id"));
        let request = Reserve { job, fence, holder: self.me.clone(), provider_id: None, resend: false };
        self.registry.reserve(request).await.expect("answered")
    }
}

async fn places(outbox: &EmbeddedOutbox) -> Vec<(ChannelId, u64)> {
    let open = outbox.open(0, 1000).await.expect("read");
    open.into_iter().map(|stored| (stored.event.channel_id, stored.event.seq)).collect()
}

/// Contract: Q7, Q8, E1. The layouts 1, 2, 1, 2 one after the other.
#[tokio::test]
async fn what_belongs_to_a_channel_follows_it_through_changes_of_the_count() {
    let dir = data_dir();
    let (even, odd) = (channel(2), channel(3));
    let both = [Destination::Handler];
    let (one, _) = Life::begin(dir.path(), 0, 1, 1).await;
    for number in [2, 3] {
        let of = channel(number);
        one.outbox.append(batch(number, 7, &["a", "b"], Some(number as i64)), &both).await.expect("stored");
        one.outbox.append(batch(number, 7, &["kept"], None), &[]).await.expect("stored");
        one.reserve(of, 7, &format!("sent-{number}")).await;
        let (fence, job) = (Fence { channel: of, token: 7 }, JobId::new(format!("sent-{number}")).expect("id"));
        one.registry
            .mark_sent(&fence, &job, Sent { provider_id: Some("9".into()), result: None })
            .await
            .expect("marked");
        one.reserve(of, 7, &format!("open-{number}")).await;
        one.registry.count_deaths(&[(of, job)], u32::MAX).await.expect("counted");
    }
    let buried = one.outbox.open(0, 1).await.expect("read").remove(0);
    one.outbox.bury(buried.position, Destination::Handler, "refused").await.expect("buried");
    drop(one);

    let mut incarnation = 1;
    for round in 0..2 {
        incarnation += 1;
        let (left, moved) = Life::begin(dir.path(), 0, 2, incarnation).await;
        assert!(moved > 0, "round {round}");
        let (right, _) = Life::begin(dir.path(), 1, 2, incarnation).await;
        assert_eq!(places(&left.outbox).await, [(even, 2)], "round {round}");
        let waiting = right.outbox.open(0, 10).await.expect("read");
        if round == 0 {
            assert_eq!(places(&right.outbox).await, [(odd, 1), (odd, 2)]);
            right.outbox.delivered(waiting[0].position, Destination::Handler).await.expect("delivered");
        }
        assert_eq!(places(&right.outbox).await, [(odd, 2)], "round {round}: delivered stays delivered");
        let dead = left.outbox.dead(10).await.expect("listed");
        assert_eq!((dead.len(), dead[0].event.seq), (1, 1));
        for (life, of, number) in [(&left, even, 2), (&right, odd, 3)] {
            assert_eq!(life.outbox.offset(of).await.expect("read"), Some(number));
            let sent = Sent { provider_id: Some("9".into()), result: None };
            assert_eq!(life.reserve(of, 7, &format!("sent-{number}")).await, Reservation::Sent(sent));
            let doubt = life.reserve(of, 7, &format!("open-{number}")).await;
            assert!(matches!(doubt, Reservation::Uncertain { .. } | Reservation::Busy { .. }), "{doubt:?}");
            let stale = Batch { fence: Fence { channel: of, token: 6 }, events: vec![event(of, "late")], offset: None };
            assert!(matches!(life.outbox.append(stale, &both).await, Err(OutboxError::Fenced(_))));
        }
        drop((left, right));

        incarnation += 1;
        let (one, moved) = Life::begin(dir.path(), 0, 1, incarnation).await;
        assert!(moved > 0, "round {round}");
        let mut back = places(&one.outbox).await;
        back.sort();
        assert_eq!(back, [(even, 2), (odd, 2)]);
        assert!(one.outbox.append(batch(3, 7, &["b"], None), &both).await.expect("stored").is_empty(), "known");
        drop(one);
    }
    let (again, moved) = Life::begin(dir.path(), 0, 1, incarnation + 1).await;
    assert_eq!(moved, 0, "nothing to do when the layout is that of the last time");
    let next = again.outbox.append(batch(3, 7, &["c"], None), &both).await.expect("stored");
    assert_eq!(next[0].event.seq, 4, "the sequence goes on");
    assert_eq!(again.slot.import_foreign().await.expect("imported").files, 0);
}
