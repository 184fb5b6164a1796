//! The send guard: its states and answers are those of the embedded one (see its table); each change is one step of a script.
//!
//! A reservation may be stored though its answer is lost on the way. It then stands there as ours, and nobody sends under
//! it. Each attempt to reserve has a number, and those that were not answered are named by the next one, which takes
//! their reservation over instead of waiting for itself.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use rand::Rng;

use super::{
    super::{Fence, Holder, RegistryError, Reservation, Reserve, Sent},
    RedisRegistry,
    desk::Errand,
};
use crate::job::JobId;

/// How long what came of a send, and how often a job was out in a death, is remembered.
pub(super) const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Far more jobs than can be out at once.
const UNANSWERED_MOST: usize = 100_000;

/// Attempts to reserve whose answer never came.
#[derive(Default)]
pub(super) struct Unanswered(Mutex<HashMap<JobId, Vec<u64>>>);

impl Unanswered {
    fn begin(&self, job: &JobId) -> Attempt<'_> {
        let mut all = self.0.lock().expect("unanswered");
        let earlier = if all.is_empty() { Vec::new() } else { all.remove(job).unwrap_or_default() };
        drop(all);
        let number = rand::rng().random();
        Attempt { all: self, job: job.clone(), number, earlier, answered: false }
    }
}

/// One attempt; unless it is answered it is remembered when it is dropped.
struct Attempt<'a> {
    all: &'a Unanswered,
    job: JobId,
    number: u64,
    earlier: Vec<u64>,
    answered: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut all = self.all.0.lock().expect("unanswered");
        if all.len() >= UNANSWERED_MOST
            && let Some(any) = all.keys().next().cloned()
        {
            all.remove(&any);
        }
        let numbers = all.entry(self.job.clone()).or_default();
        numbers.append(&mut self.earlier);
        numbers.push(self.number);
    }
}

/// A value that may be absent, as scripts read it.
pub(super) fn given(value: Option<String>) -> String {
    value.map(|value| format!("={value}")).unwrap_or_default()
}

impl RedisRegistry {
    pub(super) async fn reserve_send(&self, request: Reserve) -> Result<Reservation, RegistryError> {
        let mut attempt = self.unanswered.begin(&request.job);
        let errand = Errand::Reserve { request, attempt: attempt.number, earlier: attempt.earlier.clone() };
        let answer = self.desk.ask(errand).await?;
        attempt.answered = true;
        match answer {
            Answer::Reservation(reservation) => Ok(reservation),
            Answer::Kept => Err(RegistryError::Refused("a reservation was answered as something else".to_owned())),
        }
    }

    pub(super) async fn settle(&self, event: &'static str, fence: &Fence, job: &JobId) -> Result<(), RegistryError> {
        self.desk.ask(Errand::Other { event, fence: *fence, job: job.clone() }).await.map(drop)
    }

    pub(super) async fn settle_sent(&self, fence: &Fence, job: &JobId, sent: Sent) -> Result<(), RegistryError> {
        self.desk.ask(Errand::Sent { fence: *fence, job: job.clone(), sent }).await.map(drop)
    }
}

/// What the guard says to an errand.
pub(super) enum Answer {
    /// To a reservation.
    Reservation(Reservation),
    /// What came of a send is stored.
    Kept,
}

/// Reads the answer to an errand, as `scripts/guard.lua` gives it: its letter, and the words that are its own.
pub(super) fn read(
    letter: u8,
    words: &mut impl Iterator<Item = Option<String>>,
    errand: &Errand,
) -> Result<Answer, RegistryError> {
    let (job, fence) = errand.about();
    let mut word = || words.next().flatten();
    let reservation = match letter {
        b'k' => return Ok(Answer::Kept),
        b'x' => return Err(RegistryError::Fenced { resource: format!("channel/{}", fence.channel) }),
        b'f' => Some(Reservation::Fresh),
        b'a' => word().map(|provider_id| Reservation::Again { provider_id }),
        b's' => {
            let (provider_id, result) = (word(), word());
            let result = result.map(|text| serde_json::from_str(&text)).transpose().ok();
            result.map(|result| Reservation::Sent(Sent { provider_id, result }))
        }
        b'u' => by(word(), word()).map(|by| Reservation::Uncertain { by }),
        b'b' => by(word(), word()).map(|by| Reservation::Busy { by }),
        _ => None,
    };
    reservation
        .map(Answer::Reservation)
        .ok_or_else(|| RegistryError::Refused(format!("job {job}: its record was not written by this version")))
}

fn by(worker: Option<String>, incarnation: Option<String>) -> Option<Holder> {
    Some(Holder { worker: worker?, incarnation: incarnation?.parse().ok()? })
}
