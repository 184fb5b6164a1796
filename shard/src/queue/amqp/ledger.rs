//! What one consumer has out, and which frames settle it. Pure.
//!
//! Acks leave in batches: a run of acked deliveries that begins at the oldest one out goes as a single ack of all up to
//! its end; what is acked beyond an older one that is still out goes alone.
//!
//! What is released goes back only when nothing older is out any more: a broker puts a message that is handed back
//! before those that were never out, but behind those that were handed back earlier. So the places are kept. (When the channel
//! is closed, all that is out goes back in order anyway.)

use std::collections::BTreeMap;

/// A delivery's number on its channel.
pub(super) type Tag = u64;

/// A quorum queue (of RabbitMQ 3.10, for one) keeps what it handed out in an Erlang map, and puts what one frame hands back in
/// the map's order: that of the places up to 32 entries, and none beyond.
const BACK_IN_ORDER: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    Acked,
    Released,
}

/// A frame to be sent on the channel, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// Acknowledge one, or with `up_to` all that are out up to it.
    Ack { tag: Tag, up_to: bool },
    /// Put all that are out up to this one back.
    Release { up_to: Tag },
}

/// The deliveries of one channel that the broker has not been told about.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    out: BTreeMap<Tag, State>,
}

impl Ledger {
    /// It has been given out.
    pub(super) fn delivered(&mut self, tag: Tag) {
        self.out.insert(tag, State::Out);
    }

    /// Whether it may be settled.
    pub(super) fn is_out(&self, tag: Tag) -> bool {
        self.out.get(&tag) == Some(&State::Out)
    }

    /// Its work is done. `false` when it was not out.
    pub(super) fn ack(&mut self, tag: Tag) -> bool {
        self.settle(tag, State::Acked)
    }

    /// It goes back. `false` when it was not out.
    pub(super) fn release(&mut self, tag: Tag) -> bool {
        self.settle(tag, State::Released)
    }

    fn settle(&mut self, tag: Tag, to: State) -> bool {
        match self.out.get_mut(&tag) {
            Some(state) if *state == State::Out => {
                *state = to;
                true
            }
            _ => false,
        }
    }

    /// How many the broker still counts as delivered.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// The frames that tell the broker what can be told by now.
    pub(super) fn flush(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        let run = self.run(State::Acked);
        if let Some(last) = run.last() {
            frames.push(Frame::Ack { tag: *last, up_to: run.len() > 1 });
        }
        let acked = |(tag, state): (&Tag, &State)| (*state == State::Acked).then_some(*tag);
        let alone: Vec<Tag> = self.out.iter().skip(run.len()).filter_map(acked).collect();
        frames.extend(alone.iter().map(|tag| Frame::Ack { tag: *tag, up_to: false }));
        self.out.retain(|_, state| *state != State::Acked);
        let run = self.run(State::Released);
        for lot in run.chunks(BACK_IN_ORDER) {
            let last = lot[lot.len() - 1];
            frames.push(Frame::Release { up_to: last });
            self.out.retain(|tag, _| *tag > last);
        }
        frames
    }

    fn run(&self, of: State) -> Vec<Tag> {
        self.out.iter().take_while(|(_, state)| **state == of).map(|(tag, _)| *tag).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn out(tags: impl IntoIterator<Item = Tag>) -> Ledger {
        let mut ledger = Ledger::default();
        tags.into_iter().for_each(|tag| ledger.delivered(tag));
        ledger
    }

    /// Contract: Q2.
    #[test]
    fn acks_of_a_run_from_the_oldest_go_as_one_and_others_alone() {
        let mut ledger = out(1..=6);
        for tag in [2, 1, 3, 5] {
            assert!(ledger.ack(tag));
        }
        assert_eq!(ledger.flush(), [Frame::Ack { tag: 3, up_to: true }, Frame::Ack { tag: 5, up_to: false }]);
        assert_eq!(ledger.flush(), []);
        ledger.ack(4);
        ledger.ack(6);
        assert_eq!(ledger.flush(), [Frame::Ack { tag: 6, up_to: true }]);
    }

    /// Contract: Q10.
    #[test]
    fn what_is_released_waits_for_what_is_older() {
        let mut ledger = out(1..=4);
        for tag in [2, 3, 4] {
            assert!(ledger.release(tag));
        }
        assert_eq!(ledger.flush(), []);
        ledger.ack(1);
        assert_eq!(ledger.flush(), [Frame::Ack { tag: 1, up_to: false }, Frame::Release { up_to: 4 }]);
        assert_eq!(ledger.len(), 0);
    }

    /// Contract: Q10.
    #[test]
    fn no_more_goes_back_in_one_frame_than_a_broker_keeps_in_order() {
        let mut ledger = out(1..=70);
        assert!((1..=70).all(|tag| ledger.release(tag)));
        assert_eq!(ledger.flush(), [32, 64, 70].map(|up_to| Frame::Release { up_to }));
        assert_eq!(ledger.len(), 0);
    }

    /// Contract: Q2.
    #[test]
    fn nothing_is_settled_twice() {
        let mut ledger = out(1..=2);
        assert!(ledger.ack(1) && !ledger.ack(1) && !ledger.release(1));
        assert!(ledger.release(2) && !ledger.ack(2));
        assert!(!ledger.ack(3));
    }

    /// What a broker does with the frames.
    #[derive(Default)]
    struct Broker {
        unacked: BTreeSet<Tag>,
        gone: BTreeSet<Tag>,
        back: Vec<Tag>,
    }

    impl Broker {
        fn take(&mut self, frame: Frame) {
            let (tag, up_to) = match frame {
                Frame::Ack { tag, up_to } => (tag, up_to),
                Frame::Release { up_to } => (up_to, true),
            };
            assert!(self.unacked.contains(&tag), "an unknown tag closes the channel");
            let hit: Vec<Tag> = self.unacked.iter().copied().filter(|t| *t == tag || (up_to && *t <= tag)).collect();
            for tag in hit {
                self.unacked.remove(&tag);
                match frame {
                    Frame::Ack { .. } => drop(self.gone.insert(tag)),
                    Frame::Release { .. } => self.back.push(tag),
                }
            }
        }
    }

    proptest! {
        /// Contract: Q2, Q3, Q10.
        #[test]
        fn a_broker_loses_what_was_acked_and_gets_the_rest_back_in_order(
            count in 1_u64..80,
            steps in proptest::collection::vec((0_u64..80, 0_u8..4), 0..240),
        ) {
            let mut ledger = out(1..=count);
            let mut broker = Broker { unacked: (1..=count).collect(), ..Broker::default() };
            let (mut acked, mut released) = (BTreeSet::new(), BTreeSet::new());
            for (tag, what) in steps {
                match what {
                    0 | 1 => if ledger.ack(tag) { acked.insert(tag); },
                    2 => if ledger.release(tag) { released.insert(tag); },
                    _ => for frame in ledger.flush() { broker.take(frame) },
                }
            }
            for frame in ledger.flush() {
                broker.take(frame);
            }
            prop_assert_eq!(&broker.gone, &acked);
            // The channel is closed: the rest goes back in order.
            broker.back.extend(broker.unacked);
            let kept: Vec<Tag> = (1..=count).filter(|tag| !acked.contains(tag)).collect();
            prop_assert_eq!(broker.back, kept);
        }
    }
}
