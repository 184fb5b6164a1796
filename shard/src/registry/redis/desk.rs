//! Where errands to the send guard wait for one another: whatever comes up in one turn of the loop, or while an earlier lot is under
//! way, goes to the server in one run of a script and so in one round trip.
//!
//! Each errand is a step of its own and has its own answer. A lot that the server refuses is given to it one by one, so that
//! what is wrong with one is not held against the others. A server that does not answer is not asked again for those who
//! waited behind: nobody waits longer than one call may take.

use std::sync::{Arc, Mutex, MutexGuard};

use ::redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, aio::MultiplexedConnection, cmd};
use tokio::sync::oneshot;

use super::{
    super::{Fence, Holder, LEASE, RegistryError, Reserve, Sent},
    RedisOptions,
    guard::{Answer, KEPT, given, read},
    link::Link,
};
use crate::job::JobId;

/// So many in one run: the server serves nobody else meanwhile.
const MOST: usize = 64;

/// What is asked of the guard.
pub(super) enum Errand {
    /// May this be sent?
    Reserve { request: Reserve, attempt: u64, earlier: Vec<u64> },
    /// It was.
    Sent { fence: Fence, job: JobId, sent: Sent },
    /// `cancel` or `uncertain`.
    Other { event: &'static str, fence: Fence, job: JobId },
}

struct Waiting {
    errand: Errand,
    answer: oneshot::Sender<Result<Answer, RegistryError>>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    serving: bool,
}

/// The desk.
pub(super) struct Desk {
    link: Arc<Link>,
    script: Script,
    options: RedisOptions,
    holder: Holder,
    state: Mutex<State>,
}

impl Desk {
    pub(super) fn new(link: Arc<Link>, script: Script, options: RedisOptions, holder: Holder) -> Arc<Self> {
        Arc::new(Self { link, script, options, holder, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("desk")
    }

    /// Hands an errand in, and waits for its answer.
    pub(super) async fn ask(self: &Arc<Self>, errand: Errand) -> Result<Answer, RegistryError> {
        let (answer, answered) = oneshot::channel();
        let begin = {
            let mut state = self.state();
            state.waiting.push(Waiting { errand, answer });
            !std::mem::replace(&mut state.serving, true)
        };
        if begin {
            // It comes after whoever is to run in this turn of the loop, and has something to ask too.
            tokio::spawn(self.clone().serve());
        }
        answered.await.unwrap_or_else(|_| Err(RegistryError::Unavailable("nobody serves the send guard".to_owned())))
    }

    async fn serve(self: Arc<Self>) {
        let _serving = Serving(&self);
        loop {
            let lot: Vec<Waiting> = {
                let mut state = self.state();
                // Who has gone, unasked, asks again or never.
                state.waiting.retain(|waiting| !waiting.answer.is_closed());
                let most = MOST.min(state.waiting.len());
                state.waiting.drain(..most).collect()
            };
            if lot.is_empty() {
                let mut state = self.state();
                if state.waiting.is_empty() {
                    state.serving = false;
                    return;
                }
                continue;
            }
            self.serve_lot(lot).await;
        }
    }

    async fn serve_lot(&self, lot: Vec<Waiting>) {
        match self.run(&lot).await {
            Ok(answers) => {
                for (waiting, answer) in lot.into_iter().zip(answers) {
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(RegistryError::Refused(_)) if lot.len() > 1 => {
                for waiting in lot {
                    let alone = [waiting];
                    let answer = self
                        .run(&alone)
                        .await
                        .and_then(|answers| answers.into_iter().next().unwrap_or_else(|| Err(unreadable())));
                    let [waiting] = alone;
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(error) => {
                let behind = match error {
                    RegistryError::Unavailable(_) => std::mem::take(&mut self.state().waiting),
                    RegistryError::Fenced { .. } | RegistryError::Refused(_) => Vec::new(),
                };
                for waiting in lot.into_iter().chain(behind) {
                    let _ = waiting.answer.send(Err(again(&error)));
                }
            }
        }
    }

    async fn run(&self, lot: &[Waiting]) -> Result<Vec<Result<Answer, RegistryError>>, RegistryError> {
        let words: Vec<Option<String>> =
            self.link.call(|number, connection| invoke(&self.script, self.command(number, lot), connection)).await?;
        let mut words = words.into_iter();
        let letters = words.next().flatten().unwrap_or_default();
        if letters.len() != lot.len() {
            return Err(unreadable());
        }
        let answers = letters.bytes().zip(lot).map(|(letter, waiting)| read(letter, &mut words, &waiting.errand));
        Ok(answers.collect())
    }

    fn command(&self, number: u64, lot: &[Waiting]) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(self.script.get_hash()).arg(0).arg(&self.options.prefix);
        command.arg(&self.holder.worker).arg(self.holder.incarnation).arg(&self.link.session).arg(number);
        command.arg(LEASE.as_millis() as u64).arg(self.options.settle.as_millis() as u64);
        command.arg(KEPT.as_millis() as u64);
        for waiting in lot {
            waiting.errand.write(&mut command);
        }
        command
    }
}

/// However serving ends, the next who asks begins it anew.
struct Serving<'a>(&'a Desk);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state();
            state.serving = false;
            state.waiting.clear();
        }
    }
}

impl Errand {
    /// Which job it is about, and in which channel.
    pub(super) fn about(&self) -> (&JobId, &Fence) {
        match self {
            Self::Reserve { request, .. } => (&request.job, &request.fence),
            Self::Sent { fence, job, .. } | Self::Other { fence, job, .. } => (job, fence),
        }
    }

    /// As `scripts/guard.lua` reads it.
    fn write(&self, to: &mut Cmd) {
        match self {
            Self::Reserve { request, attempt, earlier } => {
                head(to, "reserve", &request.fence, &request.job);
                to.arg(&request.holder.worker).arg(request.holder.incarnation);
                to.arg(given(request.provider_id.clone()));
                to.arg(u8::from(request.resend)).arg(*attempt).arg(earlier.len());
                for number in earlier {
                    to.arg(*number);
                }
            }
            Self::Sent { fence, job, sent } => {
                head(to, "sent", fence, job);
                to.arg(given(sent.provider_id.clone()));
                to.arg(given(sent.result.as_ref().map(ToString::to_string)));
            }
            Self::Other { event, fence, job } => head(to, event, fence, job),
        }
    }
}

fn head(to: &mut Cmd, kind: &str, fence: &Fence, job: &JobId) {
    let mut channel = [0; 36];
    let channel: &str = fence.channel.uuid().hyphenated().encode_lower(&mut channel);
    to.arg(kind).arg(channel).arg(fence.token).arg(job.as_str());
}

async fn invoke(
    script: &Script,
    command: Cmd,
    mut connection: MultiplexedConnection,
) -> Result<Vec<Option<String>>, RedisError> {
    match command.query_async(&mut connection).await {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            script.load_async(&mut connection).await?;
            command.query_async(&mut connection).await
        }
        answered => answered,
    }
}

fn unreadable() -> RegistryError {
    RegistryError::Refused("the send guard gave an answer that can't be read".to_owned())
}

fn again(error: &RegistryError) -> RegistryError {
    match error {
        RegistryError::Unavailable(cause) => RegistryError::Unavailable(cause.clone()),
        RegistryError::Fenced { resource } => RegistryError::Fenced { resource: resource.clone() },
        RegistryError::Refused(cause) => RegistryError::Refused(cause.clone()),
    }
}
