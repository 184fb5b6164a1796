//! What every [`Queue`] owes.

mod delivery;
mod moving;

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use shard::{
    identity::{ChannelId, QueueBase, QueueName, ShardId},
    job::Lane,
    queue::{Consumer, Delivery, Depth, Headers, Message, Queue, QueueError, Receipt},
};

pub(crate) use self::{delivery::*, moving::*};
use super::{nothing, within};

/// One slot's queues on one set of data, and the processes that come and go on it.
#[async_trait]
pub(crate) trait QueueHarness: Send {
    /// The slot: one of at least two.
    fn shard(&self) -> ShardId;
    /// The slot's next process, once the one before has ended.
    async fn start(&mut self) -> Arc<dyn Queue>;
    /// The process ends as by SIGKILL: nothing is tidied up.
    async fn kill(&mut self, queue: Arc<dyn Queue>, consumers: Vec<Box<dyn Consumer>>);
    /// Another process, which holds no slot.
    async fn producer(&self) -> Arc<dyn Queue>;
    /// Whether a process can count what another one has out.
    fn counts_what_others_hold(&self) -> bool {
        true
    }
    /// Whether parked messages that were not out when their process died are never marked as redelivered.
    fn marks_no_more_than_was_out(&self) -> bool {
        true
    }
}

fn own(harness: &dyn QueueHarness) -> QueueName {
    harness.shard().queue(QueueBase::Main)
}

fn other(harness: &dyn QueueHarness) -> QueueName {
    let shard = harness.shard();
    QueueName::of(QueueBase::Main, (shard.index + 1) % shard.count, shard.count)
}

fn lane(chat: &str) -> Lane {
    let channel: ChannelId = "0b7c1f3e-0000-4000-8000-000000000001".parse().expect("uuid");
    Lane { base: QueueBase::Main, channel, chat: Some(chat.to_owned()) }
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.message.body.to_vec()).expect("text")
}

async fn publish(queue: &Arc<dyn Queue>, name: QueueName, bodies: impl IntoIterator<Item = usize>) {
    for body in bodies {
        queue.publish(name, Message::new(body.to_string())).await.expect("published");
    }
}

async fn next(consumer: &mut Box<dyn Consumer>) -> Delivery {
    within("a delivery", consumer.next()).await.expect("not ended").expect("delivered")
}

async fn take(consumer: &mut Box<dyn Consumer>, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(next(consumer).await);
    }
    taken
}

fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

fn numbers(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| number.to_string()).collect()
}

async fn depth(queue: &Arc<dyn Queue>, name: QueueName) -> Depth {
    queue.depth(name).await.expect("depth")
}

async fn started(harness: &mut impl QueueHarness) -> (Arc<dyn Queue>, QueueName) {
    let queue = harness.start().await;
    let name = own(harness);
    for base in QueueBase::ALL {
        queue.declare(harness.shard().queue(base)).await.expect("declared");
    }
    (queue, name)
}

/// Makes one test of each function for an adapter.
macro_rules! queue_suite {
    ($harness:expr) => {
        queue_suite!(@ $harness,
            deliveries_come_in_publishing_order_whoever_publishes,
            no_more_than_the_prefetch_is_out,
            what_a_killed_process_had_out_comes_again_in_its_old_place_and_is_marked,
            what_was_settled_never_comes_again,
            what_is_released_goes_back_to_its_old_place_and_no_attempt_is_counted,
            a_stopped_consumer_ends_and_what_is_out_can_still_be_settled,
            what_a_dropped_consumer_had_out_goes_to_the_next_one,
            a_receipt_of_an_ended_session_is_refused,
            a_forwarded_message_goes_to_the_end_of_the_other_queue,
            what_can_not_be_forwarded_stays,
            parked_messages_come_back_in_the_order_of_their_lane_and_not_twice,
            parked_messages_survive_a_kill_and_those_that_were_out_are_marked,
            dead_letters_are_listed_replayed_and_dropped,
            a_waiting_consumer_is_woken_by_another_process,
            a_queue_that_was_never_declared_is_missing,
            bodies_of_any_content_and_beyond_a_mebibyte_pass_unchanged,
            depth_and_existence_are_told_for_any_layout,
        );
    };
    (@ $harness:expr, $($name:ident,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                crate::suites::queue::$name($harness.await).await;
            }
        )*
    };
}
pub(crate) use queue_suite;
