//! A directory that lies elsewhere, made safe to follow: an adapter only asks ([`Source`]), and what is done with its answers is
//! the same for all.
//!
//! | what comes | what is done |
//! |---|---|
//! | a good answer | it is followed and kept |
//! | an entry that can't be used | named once; what ran under it goes on, the others are used |
//! | an entry without a readable id | it may be any of those that are missing: all of them go on |
//! | most channels gone, or all | they go on until somebody confirms it; once an error in the log, and a gauge |
//! | nothing, or nonsense | the answer before it holds, over a restart too |

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

use super::{
    BadEntry, ChannelSpec, Directory, DirectoryError, Entry, Kept, MassRemoval,
    caution::held_back,
    kept::{Diff, Notes},
};
use crate::{
    identity::ChannelId,
    keyring::Keyring,
    metrics::Metrics,
    store::{Wake, knocked},
};

/// So many unusable entries of one answer are named.
const MOST_NAMED: usize = 50;

/// What a source answered.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The entries that can be used; each channel once.
    pub entries: Vec<Entry>,
    /// Those that can't.
    pub bad: Vec<BadEntry>,
}

impl Answer {
    /// Sorts what was read. A channel that is there twice is wrong the second time.
    pub fn of(read: impl IntoIterator<Item = Result<Entry, BadEntry>>) -> Self {
        let (mut answer, mut seen) = (Self::default(), BTreeSet::new());
        for (at, entry) in (1..).zip(read) {
            match entry {
                Ok(entry) if seen.insert(entry.spec().id) => answer.entries.push(entry),
                Ok(entry) => {
                    let (id, problem) = (Some(entry.spec().id), "is listed twice; the first counts".to_owned());
                    answer.bad.push(BadEntry { id, at, problem });
                }
                Err(bad) => answer.bad.push(bad),
            }
        }
        answer
    }
}

/// Who is asked.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// What kind it is, as the metric says it.
    fn kind(&self) -> &'static str;

    /// Which one it is, without credentials; another name is another directory.
    fn name(&self) -> String;

    /// All it lists now. Sealed tokens are opened with `keys`.
    async fn ask(&self, keys: &Keyring) -> Result<Answer, DirectoryError>;

    /// Returns when something may have changed since the last call, or never, should it not tell. Cancel-safe.
    async fn changed(&self);
}

/// With what care a source is followed.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// What becomes of a removal of many.
    pub mass_removal: MassRemoval,
    /// It is not asked more often than this, whoever wants to know.
    pub gap: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { mass_removal: MassRemoval::default(), gap: Duration::from_secs(1) }
    }
}

/// A source that is followed with care.
pub struct RemoteDirectory {
    source: Arc<dyn Source>,
    kept: Kept,
    options: RemoteOptions,
    metrics: Arc<Metrics>,
    wake: Option<Wake>,
    state: Mutex<State>,
}

/// What was accepted, and what was said about it.
#[derive(Default)]
struct State {
    /// The last good answer, of this life or a life before.
    accepted: Option<BTreeMap<ChannelId, Entry>>,
    /// What of it is on the disk.
    stored: BTreeMap<ChannelId, Entry>,
    not_before: Option<Instant>,
    told: BTreeSet<String>,
    left_alone: BTreeSet<ChannelId>,
    holding: bool,
    unkept: bool,
}

impl RemoteDirectory {
    /// Follows a source. What it answered before is found in `kept`.
    pub fn new(source: Arc<dyn Source>, kept: Kept, options: RemoteOptions, metrics: Arc<Metrics>) -> Self {
        metrics.directory_source.with_label_values(&[source.kind()]).set(1);
        Self { source, kept, options, metrics, wake: None, state: Mutex::default() }
    }

    /// Listens for what other processes of the box set or confirm; `slot` keeps the listeners of a box apart. Must be called within
    /// the runtime.
    pub fn listen(&mut self, slot: u32) {
        match Wake::bind(self.kept.dir(), &format!("directory-{slot}")) {
            Ok(wake) => self.wake = Some(wake),
            Err(error) => tracing::warn!(%error, "no wake-up socket: what is confirmed is seen at the next interval"),
        }
    }

    async fn load(&self, state: &mut State) -> Result<(), DirectoryError> {
        if state.accepted.is_none() {
            let kept = self.kept.load(&self.source.name()).await?;
            state.stored.clone_from(&kept);
            state.accepted = Some(kept);
        }
        Ok(())
    }

    /// Takes a good answer in, and keeps it.
    async fn accept(&self, state: &mut State, answer: Answer, notes: &Notes) {
        let known = state.accepted.take().unwrap_or_default();
        self.name_bad(state, &answer.bad);
        let mut now: BTreeMap<_, _> = answer.entries.into_iter().map(|entry| (entry.spec().id, entry)).collect();
        let go_on = |now: &mut BTreeMap<_, _>, id: &ChannelId| {
            if let Some(entry) = known.get(id) {
                now.entry(*id).or_insert_with(|| entry.clone());
            }
        };
        answer.bad.iter().filter_map(|bad| bad.id).for_each(|id| go_on(&mut now, &id));
        let held = if answer.bad.iter().any(|bad| bad.id.is_none()) {
            known.keys().for_each(|id| go_on(&mut now, id));
            BTreeSet::new()
        } else {
            let confirmed = notes.held.iter().filter(|(_, confirmed)| **confirmed).map(|(id, _)| *id).collect();
            let (known, listed) = (known.keys().copied().collect(), now.keys().copied().collect());
            held_back(&known, &listed, &confirmed, self.options.mass_removal)
        };
        held.iter().for_each(|id| go_on(&mut now, id));
        self.tell_held(state, held.len(), known.len());
        for (id, entry) in &now {
            let alone = matches!(entry, Entry::LeftAlone(_));
            if alone && state.left_alone.insert(*id) {
                tracing::info!(channel = %id, platform = %entry.spec().platform, "channel is not held: its events go elsewhere");
            } else if !alone {
                state.left_alone.remove(id);
            }
        }
        self.keep(state, &now, notes, &held).await;
        state.accepted = Some(now);
    }

    fn name_bad(&self, state: &mut State, bad: &[BadEntry]) {
        self.metrics.directory_refused.set(bad.len() as i64);
        let lines: BTreeSet<String> = bad.iter().map(ToString::to_string).collect();
        let fresh: Vec<_> = lines.difference(&state.told).collect();
        for entry in fresh.iter().take(MOST_NAMED) {
            tracing::warn!(%entry, "an entry of the directory can't be used: what ran under it goes on");
        }
        if fresh.len() > MOST_NAMED {
            tracing::warn!(entries = fresh.len() - MOST_NAMED, "more of them can't be used");
        }
        state.told = lines;
    }

    fn tell_held(&self, state: &mut State, held: usize, known: usize) {
        self.metrics.directory_held.set(held as i64);
        match (std::mem::replace(&mut state.holding, held > 0), held > 0) {
            (false, true) => tracing::error!(
                gone = held,
                of = known,
                "the directory no longer lists most channels, which looks like a mistake: they go on; `shardvisor directory \
                 confirm` ends them, should it be none"
            ),
            (true, false) => tracing::info!("no removal of channels is held back any longer"),
            _ => {}
        }
    }

    /// Puts on the disk what differs from what lies there.
    async fn keep(
        &self,
        state: &mut State,
        now: &BTreeMap<ChannelId, Entry>,
        notes: &Notes,
        held: &BTreeSet<ChannelId>,
    ) {
        let overtaken = |id: &ChannelId, listed: bool| now.get(id).is_none_or(|entry| entry.spec().enabled != listed);
        // A confirmation is kept until the channel is listed again: the other shards of the box may have yet to act on it.
        let over = |id: &ChannelId, confirmed: bool| if confirmed { now.contains_key(id) } else { !held.contains(id) };
        let diff = Diff {
            put: now.iter().filter(|(id, entry)| state.stored.get(id) != Some(entry)).map(|(_, entry)| entry).collect(),
            gone: state.stored.keys().filter(|id| !now.contains_key(id)).copied().collect(),
            unset: notes.set.iter().filter(|(id, (_, listed))| overtaken(id, *listed)).map(|(id, _)| *id).collect(),
            hold: held.iter().filter(|id| !notes.held.contains_key(id)).copied().collect(),
            free: notes.held.iter().filter(|(id, confirmed)| over(id, **confirmed)).map(|(id, _)| *id).collect(),
        };
        if diff.is_empty() {
            return;
        }
        match self.kept.keep(diff).await {
            Ok(()) => {
                state.stored.clone_from(now);
                state.unkept = false;
            }
            Err(error) if !std::mem::replace(&mut state.unkept, true) => {
                tracing::warn!(%error, "the directory's answer can't be kept: a restart without it would start from an older one");
            }
            Err(_) => {}
        }
    }
}

/// Asks a source once, for people: what it answers, but for what this box set against it. Nothing of it is kept.
pub async fn look(source: &dyn Source, kept: Option<&Kept>) -> Result<Answer, DirectoryError> {
    let Some(kept) = kept else { return source.ask(&Keyring::without_keys()).await };
    let (mut answer, notes) = (source.ask(kept.keys()).await?, kept.notes().await?);
    for entry in &mut answer.entries {
        if let Entry::Channel(spec) = entry {
            notes.apply(spec);
        }
    }
    Ok(answer)
}

/// The channels as they shall run here: what the directory says, but for what was set against it.
fn resolved(accepted: &BTreeMap<ChannelId, Entry>, notes: &Notes) -> Vec<Arc<ChannelSpec>> {
    let spec = |entry: &Entry| {
        let mut spec = entry.spec().clone();
        if let Entry::Channel(_) = entry {
            notes.apply(&mut spec);
        }
        Arc::new(spec)
    };
    accepted.values().map(spec).collect()
}

#[async_trait]
impl Directory for RemoteDirectory {
    async fn channels(&self) -> Result<Vec<Arc<ChannelSpec>>, DirectoryError> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        self.load(state).await?;
        if let Some(not_before) = state.not_before {
            sleep_until(not_before).await;
        }
        state.not_before = Some(Instant::now() + self.options.gap);
        let asked = self.source.ask(self.kept.keys()).await;
        // Read after the answer came: what was set or confirmed meanwhile counts.
        let notes = self.kept.notes().await?;
        match asked {
            Ok(answer) => {
                self.accept(state, answer, &notes).await;
                Ok(resolved(state.accepted.as_ref().unwrap_or(&BTreeMap::new()), &notes))
            }
            Err(error) => match &state.accepted {
                Some(accepted) if !accepted.is_empty() => {
                    Err(DirectoryError::Stale { why: error.to_string(), last: resolved(accepted, &notes) })
                }
                _ => Err(error),
            },
        }
    }

    async fn set_enabled(&self, channel: ChannelId, enabled: bool) -> Result<bool, DirectoryError> {
        self.kept.set_enabled(channel, enabled).await
    }

    async fn changed(&self) {
        tokio::select! {
            () = knocked(self.wake.as_ref()) => {}
            () = self.source.changed() => {}
        }
    }
}
