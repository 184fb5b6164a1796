//! How often tickets are asked for: once a second for each app, over all lives of its connection. The platform's own limit is
//! in no document; a backoff after failures is the channel's business, this only keeps a quick succession apart.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::identity::ChannelId;

/// At least so long between two.
const APART: Duration = Duration::from_secs(1);
/// From so many apps on, those at rest are forgotten.
const MANY: usize = 1024;

/// When each app may ask again.
#[derive(Debug, Default)]
pub(super) struct Opens(Mutex<HashMap<ChannelId, Instant>>);

impl Opens {
    /// Waits for the app's turn, which is taken at once.
    pub(super) async fn turn(&self, channel: ChannelId) {
        let now = Instant::now();
        let at = {
            let mut next = self.0.lock().expect("opens");
            if next.len() >= MANY {
                next.retain(|_, at| *at > now);
            }
            let next = next.entry(channel).or_insert(now);
            let at = (*next).max(now);
            *next = at + APART;
            at
        };
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_app_opens_once_a_second_and_holds_no_other_up() {
        let (opens, begun) = (Opens::default(), Instant::now());
        let channel = |last: u8| ChannelId::from_uuid(uuid::Uuid::from_bytes([last; 16]));
        for expected in [0, 1, 2] {
            opens.turn(channel(1)).await;
            assert_eq!(begun.elapsed(), APART * expected);
        }
        opens.turn(channel(2)).await;
        assert_eq!(begun.elapsed(), APART * 2);
    }
}
