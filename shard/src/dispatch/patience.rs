//! For how long channels that are not up have been waited for: by all jobs together, so that a job that made room for
//! others meanwhile has waited too.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use tokio::time::Instant;

use crate::identity::ChannelId;

/// So many channels may be remembered before those are looked for that nobody asks for any more.
const MANY: usize = 1024;

struct Asked {
    first: Instant,
    last: Instant,
}

/// The channels that are waited for.
pub(super) struct Patience {
    /// How long a channel is waited for.
    length: Duration,
    asked: Mutex<HashMap<ChannelId, Asked>>,
}

impl Patience {
    pub(super) fn new(length: Duration) -> Self {
        Self { length, asked: Mutex::default() }
    }

    /// Somebody waits for a channel: until when.
    pub(super) fn until(&self, channel: ChannelId, now: Instant) -> Instant {
        let mut asked = self.asked.lock().expect("asked");
        let is_old = |asked: &Asked| now > asked.last + self.length * 2;
        if asked.len() >= MANY {
            asked.retain(|_, asked| !is_old(asked));
        }
        let entry = asked.entry(channel).or_insert(Asked { first: now, last: now });
        if is_old(entry) {
            entry.first = now;
        }
        entry.last = now;
        entry.first + self.length
    }

    /// The channel is up.
    pub(super) fn over(&self, channel: ChannelId) {
        let mut asked = self.asked.lock().expect("asked");
        if !asked.is_empty() {
            asked.remove(&channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Contract: Q9.
    #[test]
    fn patience_is_shared_and_begins_anew_when_the_channel_was_up_or_forgotten() {
        let patience = Patience::new(Duration::from_secs(30));
        let channel = ChannelId::from_uuid(Uuid::from_u128(1));
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(patience.until(channel, now), now + 30 * second);
        assert_eq!(patience.until(channel, now + 20 * second), now + 30 * second, "another job");
        assert_eq!(patience.until(channel, now + 50 * second), now + 30 * second, "it is over");
        assert_eq!(patience.until(channel, now + 200 * second), now + 230 * second, "long ago");
        patience.over(channel);
        assert_eq!(patience.until(channel, now + 210 * second), now + 240 * second);
    }
}
