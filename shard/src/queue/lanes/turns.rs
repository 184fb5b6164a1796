//! Who is next: channels take turns, a channel's lanes take turns, and barriers and suspects hold what they must.

use super::{
    Action, Arrival, Key, Lanes,
    state::{Barrier, Item, Order, Place},
};
use crate::{identity::ChannelId, job::Lane};

impl Lanes {
    /// Takes a fresh delivery into memory.
    pub(super) fn hold(&mut self, arrival: Arrival, seq: u64, now_ms: i64) {
        self.order += 1;
        self.take_in(Item { order: (self.order, 0), seq, since_ms: now_ms, arrival }, false, now_ms);
    }

    /// The head of a lane that waits has come from the work queue: it goes before all that is parked, and so before each
    /// barrier that waits for that.
    pub(super) fn hold_head(&mut self, arrival: Arrival, now_ms: i64) {
        let barriers = self.channels.get(&arrival.lane.channel).map(|channel| &channel.barriers);
        let mut waiting =
            barriers.into_iter().flatten().filter(|(_, barrier)| barrier.cuts.contains_key(&arrival.lane));
        let before = waiting.next().map(|(order, _)| *order);
        self.order += 1;
        let order = before.map_or((self.order, 0), |(major, _)| (major - 1, self.order));
        self.take_in(Item { order, seq: 0, since_ms: now_ms, arrival }, true, now_ms);
    }

    /// Takes a parked delivery into memory; with a barrier before which it was published, it comes before that.
    pub(super) fn hold_parked(&mut self, arrival: Arrival, seq: u64, before: Option<Order>, now_ms: i64) {
        self.order += 1;
        let order = before.map_or((self.order, 0), |(major, _)| (major - 1, self.order));
        let name = arrival.lane.clone();
        self.take_in(Item { order, seq, since_ms: now_ms, arrival }, false, now_ms);
        if let Some(lane) = self.lanes.get_mut(&name)
            && !std::mem::replace(&mut lane.lot, true)
        {
            self.lots += 1;
            self.channels.entry(name.channel).or_default().lots += 1;
        }
    }

    fn take_in(&mut self, item: Item, first: bool, now_ms: i64) {
        let name = item.arrival.lane.clone();
        let order = item.order;
        let channel = self.channels.entry(name.channel).or_default();
        channel.open.insert(order);
        if item.arrival.barrier {
            channel.barriers.insert(order, Barrier { lane: name.clone(), cuts: Default::default() });
            self.cut_off(order, &name, now_ms);
        }
        self.keys.insert(item.arrival.key, name.clone());
        let lane = self.lanes.entry(name).or_default();
        if first {
            lane.waiting.push_front(item);
        } else {
            lane.waiting.push_back(item);
        }
    }

    /// No parked work of the lane is in memory any more.
    pub(super) fn end_lot(&mut self, name: &Lane) {
        if let Some(lane) = self.lanes.get_mut(name)
            && lane.lot
            && lane.is_idle()
        {
            lane.lot = false;
            self.lots -= 1;
            if let Some(channel) = self.channels.get_mut(&name.channel) {
                channel.lots -= 1;
            }
            for starved in std::mem::take(&mut self.starved) {
                self.join(starved);
            }
        }
    }

    pub(super) fn take_running(&mut self, key: Key) -> Option<Item> {
        let name = self.keys.remove(&key)?;
        let item = self.lanes.get_mut(&name)?.running.take()?;
        debug_assert_eq!(item.arrival.key, key);
        self.running -= 1;
        self.busy -= 1;
        if let Some(channel) = self.channels.get_mut(&name.channel) {
            channel.busy -= 1;
        }
        self.end_lot(&name);
        Some(item)
    }

    /// An item that was at work is no longer in memory: whoever it held may go on.
    pub(super) fn left(&mut self, item: &Item, now_ms: i64) {
        let id = item.arrival.lane.channel;
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.open.remove(&item.order);
        if channel.barriers.remove(&item.order).is_some() {
            self.unblock_all(id, now_ms);
        }
        self.free_barrier(id, now_ms);
        if item.arrival.suspect {
            self.suspects_running -= 1;
            for name in std::mem::take(&mut self.suspects) {
                self.unblock(&name, now_ms);
            }
        }
        self.join(id);
        self.forget(id);
    }

    /// A barrier is gone: whatever it held is looked at again.
    pub(super) fn unblock_all(&mut self, id: ChannelId, now_ms: i64) {
        let blocked = self.channels.get_mut(&id).map(|channel| std::mem::take(&mut channel.blocked));
        for name in blocked.unwrap_or_default() {
            self.unblock(&name, now_ms);
        }
    }

    fn unblock(&mut self, name: &Lane, now_ms: i64) {
        if let Some(lane) = self.lanes.get_mut(name)
            && lane.place == Place::Blocked
        {
            lane.place = Place::None;
            self.place(name, now_ms);
        }
    }

    /// A barrier goes on when nothing earlier is left.
    pub(super) fn free_barrier(&mut self, id: ChannelId, now_ms: i64) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Some(name) = channel.freed_barrier()
            && channel.blocked.remove(&name)
        {
            self.unblock(&name, now_ms);
        }
    }

    /// Puts a lane where it belongs, unless it stands somewhere or something of it is going on.
    pub(super) fn place(&mut self, name: &Lane, now_ms: i64) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        if lane.place == Place::Timer && !lane.waiting.is_empty() {
            // Its head has come from the work queue just before its time was noticed.
            if let Some(aside) = &lane.aside {
                self.timers.remove(&(aside.due_ms, name.clone()));
            }
            lane.place = Place::None;
        }
        if lane.place != Place::None || lane.running.is_some() {
            return;
        }
        if !lane.waiting.is_empty() {
            lane.place = Place::Ready;
            self.channels.entry(name.channel).or_default().ready.push_back(name.clone());
            return self.join(name.channel);
        }
        match &lane.aside {
            Some(aside) if aside.asked || aside.clearing || (aside.recovered && !self.caught_up) => {}
            Some(aside) if aside.due_ms > now_ms => {
                self.timers.insert((aside.due_ms, name.clone()));
                lane.place = Place::Timer;
            }
            Some(_) => {
                lane.place = Place::Due;
                self.channels.entry(name.channel).or_default().due.push_back(name.clone());
                self.join(name.channel);
            }
            None => {
                self.lanes.remove(name);
                self.forget(name.channel);
            }
        }
    }

    fn forget(&mut self, id: ChannelId) {
        if self.channels.get(&id).is_some_and(|channel| channel.is_over()) {
            self.channels.remove(&id);
        }
    }

    /// The channel is in line as long as it has something to begin and a share left.
    pub(super) fn join(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id)
            && !channel.in_turn
            && channel.busy < self.limits.running_per_channel
            && !(channel.ready.is_empty() && channel.due.is_empty())
        {
            channel.in_turn = true;
            self.turn.push_back(id);
        }
    }

    /// Begins what may begin.
    pub(super) fn start(&mut self, now_ms: i64, actions: &mut Vec<Action>) {
        while self.busy < self.limits.running {
            let Some(id) = self.turn.pop_front() else { break };
            if let Some(channel) = self.channels.get_mut(&id) {
                channel.in_turn = false;
            }
            if let Some(action) = self.begin_one(id, now_ms) {
                actions.push(action);
                self.join(id);
            }
            self.forget(id);
        }
    }

    /// Begins one thing of a channel, if there is one.
    fn begin_one(&mut self, id: ChannelId, now_ms: i64) -> Option<Action> {
        loop {
            let room = self.lots < self.limits.running;
            let channel = self.channels.get_mut(&id)?;
            if channel.busy >= self.limits.running_per_channel {
                return None;
            }
            // What a barrier waits for comes in whatever else is in memory: the barrier itself may have been parked.
            let may_fetch = (room && channel.lots < self.limits.running_per_channel) || !channel.barriers.is_empty();
            let due = may_fetch && !channel.due.is_empty() && (channel.due_next || channel.ready.is_empty());
            let next = if due { channel.due.pop_front() } else { channel.ready.pop_front() };
            let Some(name) = next else {
                if channel.due.is_empty() {
                    channel.crowds = false;
                } else if !room {
                    self.starved.push(id);
                }
                return None;
            };
            channel.due_next = !due;
            if let Some(lane) = self.lanes.get_mut(&name) {
                lane.place = Place::None;
            }
            let begun = if due { self.begin_fetch(&name, now_ms) } else { self.begin_work(&name) };
            if begun.is_some() {
                return begun;
            }
            self.place(&name, now_ms);
        }
    }

    /// Whether a channel that crowds others out has all at work that it may.
    pub(super) fn has_its_share(&self, id: ChannelId) -> bool {
        let full = self.limits.running_per_channel;
        self.channels.get(&id).is_some_and(|channel| channel.crowds && channel.busy >= full)
    }

    fn begin_work(&mut self, name: &Lane) -> Option<Action> {
        let lane = self.lanes.get_mut(name)?;
        let item = lane.waiting.front().filter(|_| lane.running.is_none())?;
        let channel = self.channels.get_mut(&name.channel)?;
        if !channel.may_start(item) {
            lane.place = Place::Blocked;
            channel.blocked.insert(name.clone());
            return None;
        }
        if item.arrival.suspect && self.suspects_running > 0 {
            lane.place = Place::Blocked;
            self.suspects.push_back(name.clone());
            return None;
        }
        let item = lane.waiting.pop_front()?;
        self.suspects_running += usize::from(item.arrival.suspect);
        self.running += 1;
        self.busy += 1;
        channel.busy += 1;
        let key = item.arrival.key;
        lane.running = Some(item);
        Some(Action::Start(key))
    }

    fn begin_fetch(&mut self, name: &Lane, now_ms: i64) -> Option<Action> {
        let lane = self.lanes.get_mut(name)?;
        let idle = lane.is_idle();
        let aside = lane.aside.as_mut()?;
        if !idle || aside.asked || aside.clearing || aside.due_ms > now_ms {
            return None;
        }
        let channel = self.channels.get_mut(&name.channel)?;
        if !channel.may_fetch(name) {
            lane.place = Place::Blocked;
            channel.blocked.insert(name.clone());
            return None;
        }
        aside.asked = true;
        aside.parked_since_fetch = false;
        self.busy += 1;
        channel.busy += 1;
        Some(Action::Unpark { lane: name.clone(), limit: self.limits.lot })
    }
}
