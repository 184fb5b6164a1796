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
pub(super) struct Unanswered(Mutex<HashMap<JobId, Vec<String>>>);

impl Unanswered {
    fn begin(&self, job: &JobId) -> Attempt<'_> {
        let earlier = self.0.lock().expect("unanswered").remove(job).unwrap_or_default();
        let number = format!("{:016x}", rand::rng().random::<u64>());
        Attempt { all: self, job: job.clone(), number, earlier, answered: false }
    }
}

/// One attempt; unless it is answered it is remembered when it is dropped.
struct Attempt<'a> {
    all: &'a Unanswered,
    job: JobId,
    number: String,
    earlier: Vec<String>,
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
        numbers.push(std::mem::take(&mut self.number));
    }
}

/// A value that may be absent, as scripts read it.
pub(super) fn given(value: Option<String>) -> String {
    value.map(|value| format!("={value}")).unwrap_or_default()
}

impl RedisRegistry {
    pub(super) async fn reserve_send(&self, request: Reserve) -> Result<Reservation, RegistryError> {
        let job = request.job.clone();
        let mut attempt = self.unanswered.begin(&job);
        let errand = Errand::Reserve { request, attempt: attempt.number.clone(), earlier: attempt.earlier.clone() };
        let answer = self.desk.ask(errand).await?;
        attempt.answered = true;
        read(answer)
            .ok_or_else(|| RegistryError::Refused(format!("job {job}: its record was not written by this version")))
    }

    pub(super) async fn settle(&self, event: &'static str, fence: &Fence, job: &JobId) -> Result<(), RegistryError> {
        self.desk.ask(Errand::Other { event, fence: *fence, job: job.clone() }).await.map(drop)
    }

    pub(super) async fn settle_sent(&self, fence: &Fence, job: &JobId, sent: Sent) -> Result<(), RegistryError> {
        self.desk.ask(Errand::Sent { fence: *fence, job: job.clone(), sent }).await.map(drop)
    }
}

fn read(answer: Vec<Option<String>>) -> Option<Reservation> {
    let mut words = answer.into_iter();
    let state = words.next()??;
    let mut word = || words.next().flatten();
    Some(match state.as_str() {
        "fresh" => Reservation::Fresh,
        "again" => Reservation::Again { provider_id: word()? },
        "sent" => {
            let provider_id = word();
            let result = word().map(|text| serde_json::from_str(&text)).transpose().ok()?;
            Reservation::Sent(Sent { provider_id, result })
        }
        "uncertain" => Reservation::Uncertain { by: by(word(), word())? },
        "busy" => Reservation::Busy { by: by(word(), word())? },
        _ => return None,
    })
}

fn by(worker: Option<String>, incarnation: Option<String>) -> Option<Holder> {
    Some(Holder { worker: worker?, incarnation: incarnation?.parse().ok()? })
}
