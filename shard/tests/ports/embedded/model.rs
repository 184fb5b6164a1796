//! Random sequences of what processes do with a queue, kills among them, against a model: nothing is lost, nothing is
//! doubled, order is kept, and what was out in a kill is marked.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use shard::{
    identity::{QueueBase, QueueName, ShardId},
    job::Lane,
    queue::{Consumer, EmbeddedQueue, Message, Queue, Receipt},
};
use tempfile::TempDir;

use super::{data_dir, open_slot};
use crate::suites::within;

const PREFETCH: u16 = 4;

#[derive(Debug, Clone)]
enum Op {
    Publish { elsewhere: bool },
    Take,
    Ack(usize),
    Release(usize),
    Forward(usize),
    Park(usize),
    Bury(usize),
    Unpark,
    Consume,
    Kill,
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    prop_oneof![
        6 => any::<bool>().prop_map(|elsewhere| Op::Publish { elsewhere }),
        8 => Just(Op::Take),
        3 => which().prop_map(Op::Ack),
        2 => which().prop_map(Op::Release),
        1 => which().prop_map(Op::Forward),
        2 => which().prop_map(Op::Park),
        1 => which().prop_map(Op::Bury),
        2 => Just(Op::Unpark),
        1 => Just(Op::Consume),
        1 => Just(Op::Kill),
    ]
}

/// Where the model believes a message to be, by its place.
#[derive(Default)]
struct Model {
    next_place: usize,
    next_body: usize,
    next_seq: u64,
    ready: BTreeMap<usize, String>,
    parked: BTreeMap<u64, String>,
    dead: Vec<String>,
    /// Was out when a process was killed and has not been settled since.
    suspects: std::collections::BTreeSet<String>,
}

/// What is out: where it goes back to, and what it is.
enum Place {
    Ready(usize),
    Parked(u64),
}

struct Out {
    receipt: Receipt,
    place: Place,
    message: Message,
    body: String,
}

struct World {
    dir: TempDir,
    shard: ShardId,
    incarnation: u64,
    queue: Arc<EmbeddedQueue>,
    producer: EmbeddedQueue,
    consumer: Option<Box<dyn Consumer>>,
    out: Vec<Out>,
    model: Model,
    lane: Lane,
}

impl World {
    async fn new() -> Self {
        let (dir, shard) = (data_dir(), ShardId::new(0, 1));
        let queue = Arc::new(EmbeddedQueue::new(open_slot(dir.path(), shard, 1).expect("opened")));
        let producer = EmbeddedQueue::producer(dir.path());
        let channel = "0b7c1f3e-0000-4000-8000-000000000001".parse().expect("id");
        let lane = Lane { base: QueueBase::Main, channel, chat: Some("c".into()) };
        let mut world = Self {
            dir,
            shard,
            incarnation: 1,
            queue,
            producer,
            consumer: None,
            out: Vec::new(),
            model: Model::default(),
            lane,
        };
        world.queue.declare(world.name()).await.expect("declared");
        world.consume().await;
        world
    }

    fn name(&self) -> QueueName {
        self.shard.queue(QueueBase::Main)
    }

    async fn consume(&mut self) {
        self.consumer = None;
        self.give_up();
        self.consumer = Some(self.queue.consume(self.name(), PREFETCH).await.expect("consumes"));
    }

    /// What is out goes back to its place, and is under suspicion from then on.
    fn give_up(&mut self) {
        for out in self.out.drain(..) {
            self.model.suspects.insert(out.body.clone());
            match out.place {
                Place::Ready(place) => drop(self.model.ready.insert(place, out.body)),
                Place::Parked(seq) => drop(self.model.parked.insert(seq, out.body)),
            }
        }
    }

    fn room(&self) -> bool {
        self.out.iter().filter(|out| matches!(out.place, Place::Ready(_))).count() < usize::from(PREFETCH)
    }

    async fn take(&mut self) {
        if !self.room() || self.model.ready.is_empty() {
            return;
        }
        let consumer = self.consumer.as_mut().expect("consumes");
        let delivery = within("a delivery", consumer.next()).await.expect("not ended").expect("delivered");
        let (place, body) = self.model.ready.pop_first().expect("one is ready");
        assert_eq!(delivery.message.body, body, "the first of those that are ready");
        assert!(delivery.redelivered || !self.model.suspects.contains(&body), "{body} was out in a kill");
        self.out.push(Out { receipt: delivery.receipt, place: Place::Ready(place), message: delivery.message, body });
    }

    async fn unpark(&mut self) {
        let deliveries = self.queue.unpark(self.name(), &self.lane, 2).await.expect("unparked");
        for delivery in deliveries {
            let (seq, body) = self.model.parked.pop_first().expect("one is parked");
            assert_eq!(delivery.message.body, body);
            assert_eq!(delivery.message.headers.lane_seq, Some(seq));
            assert!(delivery.redelivered || !self.model.suspects.contains(&body), "{body} was out in a kill");
            let (receipt, message) = (delivery.receipt, delivery.message);
            self.out.push(Out { receipt, place: Place::Parked(seq), message, body });
        }
    }

    async fn settle(&mut self, op: &Op, which: usize) {
        if self.out.is_empty() {
            return;
        }
        let Out { receipt, place, message, body } = self.out.remove(which % self.out.len());
        if !matches!(op, Op::Release(_)) {
            self.model.suspects.remove(&body);
        }
        match op {
            Op::Ack(_) => self.queue.ack(receipt).await.expect("acked"),
            Op::Release(_) => {
                self.queue.release(vec![receipt]).await.expect("released");
                match place {
                    Place::Ready(place) => drop(self.model.ready.insert(place, body)),
                    Place::Parked(seq) => {
                        // Putting a parked message back clears the mark: it was looked at, and not begun.
                        self.model.suspects.remove(&body);
                        self.model.parked.insert(seq, body);
                    }
                }
            }
            Op::Forward(_) => {
                self.queue.forward(receipt, self.name(), message).await.expect("forwarded");
                self.model.ready.insert(self.model.next_place, body);
                self.model.next_place += 1;
            }
            Op::Park(_) => {
                let seq = match place {
                    Place::Parked(seq) => seq,
                    Place::Ready(_) => {
                        self.model.next_seq += 1;
                        self.model.next_seq
                    }
                };
                self.queue.park(receipt, &self.lane, seq, message).await.expect("parked");
                self.model.parked.insert(seq, body);
            }
            _ => {
                self.queue.bury(receipt, message).await.expect("buried");
                self.model.dead.push(body);
            }
        }
    }

    async fn kill(&mut self) {
        self.incarnation += 1;
        std::mem::forget(self.consumer.take());
        let slot = open_slot(self.dir.path(), self.shard, self.incarnation).expect("opened");
        let old = std::mem::replace(&mut self.queue, Arc::new(EmbeddedQueue::new(slot)));
        std::mem::forget(old);
        self.give_up();
        self.consume().await;
    }

    async fn run(&mut self, op: &Op) {
        match op {
            Op::Publish { elsewhere } => {
                let body = self.model.next_body.to_string();
                self.model.next_body += 1;
                let queue: &EmbeddedQueue = if *elsewhere { &self.producer } else { &self.queue };
                queue.publish(self.name(), Message::new(body.clone())).await.expect("published");
                self.model.ready.insert(self.model.next_place, body);
                self.model.next_place += 1;
            }
            Op::Take => self.take().await,
            Op::Unpark => self.unpark().await,
            Op::Consume => self.consume().await,
            Op::Kill => self.kill().await,
            Op::Ack(which) | Op::Release(which) | Op::Forward(which) | Op::Park(which) | Op::Bury(which) => {
                self.settle(op, *which).await;
            }
        }
        let depth = self.queue.depth(self.name()).await.expect("depth");
        let out = |parked| self.out.iter().filter(|out| matches!(out.place, Place::Parked(_)) == parked).count();
        assert_eq!(depth.ready as usize, self.model.ready.len() + out(false));
        assert_eq!(depth.parked as usize, self.model.parked.len() + out(true));
        assert_eq!(depth.dead as usize, self.model.dead.len());
    }

    /// All that is left comes out as the model has it.
    async fn drain(&mut self) {
        self.kill().await;
        while !self.model.ready.is_empty() {
            self.take().await;
            self.settle(&Op::Ack(0), 0).await;
        }
        while !self.model.parked.is_empty() {
            self.unpark().await;
        }
        let dead = self.queue.dead(self.name(), 0, 1000).await.expect("listed");
        let dead: Vec<_> = dead.into_iter().map(|letter| letter.message.body).collect();
        assert_eq!(dead, self.model.dead);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Contract: Q2, Q3, Q4, Q10.
    #[test]
    fn nothing_is_lost_or_doubled_and_order_is_kept_whatever_happens(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new().await;
            for op in &ops {
                world.run(op).await;
            }
            world.drain().await;
        });
    }
}
