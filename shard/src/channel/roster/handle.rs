//! What the rest of the shard asks and tells the roster by.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::timeout,
};

use super::RosterPorts;
use crate::{
    channel::{OnChanged, State, hold::Hold, post::Post},
    clock::Clock,
    directory::{ChannelSpec, Directory, DirectoryError},
    dispatch::{Availability, Channels, Ready},
    identity::ChannelId,
    platform::{Platform, PlatformKind, Sender},
};

/// How long it is remembered that somebody asked for a channel that the directory doesn't know.
const ASKED_FOR: Duration = Duration::from_secs(30);
/// So many such channels are remembered.
const ASKED_MOST: usize = 4096;
/// A lease's proof runs out without anybody telling: who waits for a change looks this often anyway.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// Where a channel stands, for `/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelStatus {
    /// Which.
    pub channel: ChannelId,
    /// On which network.
    pub platform: PlatformKind,
    /// Where it stands.
    pub state: State,
    /// Why.
    pub reason: Option<String>,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// When the platform was last heard.
    pub heard_ms: Option<i64>,
}

/// What is asked of the loop.
pub(super) enum Request {
    /// Ask the directory now.
    Reconcile,
    /// Start this channel now, whatever it waits for.
    Kick(ChannelId),
    /// Connect it anew.
    Restart(ChannelId),
    /// Tell when the channel has come to rest.
    AwaitStopped(ChannelId, oneshot::Sender<()>),
    /// Close and give back everything, then end.
    Drain(oneshot::Sender<()>),
}

/// A member as others see it.
#[derive(Clone)]
pub(super) struct Page {
    pub(super) platform: Arc<dyn Platform>,
    pub(super) post: Arc<Post>,
    pub(super) hold: Option<Arc<Hold>>,
    pub(super) sender: Option<Arc<dyn Sender>>,
}

/// What others read while the loop writes it.
pub(super) struct Book {
    pub(super) pages: RwLock<HashMap<ChannelId, Page>>,
    pub(super) disabled: RwLock<std::collections::BTreeSet<ChannelId>>,
    /// Channels asked for that have no page, and when that was (time since boot).
    asked: Mutex<HashMap<ChannelId, Duration>>,
    /// When the question began that the directory last answered.
    answered: Mutex<Option<Duration>>,
    /// Told whenever any of this changed.
    changed: Notify,
    on_changed: OnChanged,
}

impl Book {
    pub(super) fn new(on_changed: OnChanged) -> Self {
        Self {
            pages: RwLock::default(),
            disabled: RwLock::default(),
            asked: Mutex::default(),
            answered: Mutex::default(),
            changed: Notify::new(),
            on_changed,
        }
    }

    /// The directory answered a question that was put at `began`; forgets what was asked long ago.
    pub(super) fn answered(&self, began: Duration) {
        *self.answered.lock().expect("answered") = Some(began);
        self.asked.lock().expect("asked").retain(|_, at| *at + ASKED_FOR > began);
        self.tell();
    }

    /// Tells of a channel whose page was written.
    pub(super) fn tell_of(&self, channel: ChannelId) {
        (self.on_changed)(channel);
        self.tell();
    }

    /// Wakes who waits for a change.
    fn tell(&self) {
        self.changed.notify_waiters();
    }
}

/// The roster's other side. Cheap to clone.
#[derive(Clone)]
pub struct RosterHandle {
    book: Arc<Book>,
    requests: mpsc::UnboundedSender<Request>,
    ready: watch::Receiver<bool>,
    directory: Arc<dyn Directory>,
    clock: Arc<dyn Clock>,
}

impl RosterHandle {
    pub(super) fn new(
        book: Arc<Book>,
        requests: mpsc::UnboundedSender<Request>,
        ready: watch::Receiver<bool>,
        ports: &RosterPorts,
    ) -> Self {
        Self { book, requests, ready, directory: ports.directory.clone(), clock: ports.clock.clone() }
    }

    /// A channel's settings as they are now; `None` while it is not this shard's to run.
    pub fn spec(&self, channel: ChannelId) -> Option<Arc<ChannelSpec>> {
        self.book.pages.read().expect("pages").get(&channel).map(|page| page.post.spec())
    }

    /// Has a channel connect anew; a try under way is joined.
    pub fn restart(&self, channel: ChannelId) {
        self.request(Request::Restart(channel));
    }

    /// Has the directory asked now.
    pub fn reconcile(&self) {
        self.request(Request::Reconcile);
    }

    /// Where all channels stand, by id.
    pub fn states(&self) -> Vec<ChannelStatus> {
        let pages = self.book.pages.read().expect("pages");
        let mut states: Vec<_> = pages
            .iter()
            .map(|(channel, page)| {
                let standing = page.post.standing();
                ChannelStatus {
                    channel: *channel,
                    platform: page.post.platform(),
                    state: standing.state,
                    reason: standing.reason,
                    since_ms: standing.since_ms,
                    heard_ms: page.post.heard_ms(),
                }
            })
            .collect();
        states.sort_by_key(|status| status.channel);
        states
    }

    /// `true` once every wanted channel has been claimed or found to be somebody's.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.clone()
    }

    /// Closes every connection, gives every lease back and ends the roster. Leases are renewed until the last is back.
    pub async fn drain(&self) {
        let (drained, is_drained) = oneshot::channel();
        self.request(Request::Drain(drained));
        let _ = is_drained.await;
    }

    fn request(&self, request: Request) {
        // Refused only when the roster has ended: then there is nothing to do.
        let _ = self.requests.send(request);
    }
}

#[async_trait]
impl Channels for RosterHandle {
    /// A channel that nobody knows has the directory asked again first: it may have been added a moment ago.
    fn availability(&self, channel: ChannelId) -> Availability {
        if let Some(page) = self.book.pages.read().expect("pages").get(&channel) {
            return match (&page.hold, &page.sender) {
                (Some(hold), Some(sender)) if hold.is_proven() => Availability::Ready(Ready {
                    spec: page.post.spec(),
                    fence: hold.fence(),
                    platform: page.platform.clone(),
                    sender: sender.clone(),
                }),
                _ => Availability::Starting,
            };
        }
        if self.book.disabled.read().expect("disabled").contains(&channel) {
            return Availability::Disabled;
        }
        let now = self.clock.boottime();
        let answered = *self.book.answered.lock().expect("answered");
        let mut asked = self.book.asked.lock().expect("asked");
        match asked.get(&channel) {
            Some(at) if answered.is_some_and(|answered| answered > *at) => return Availability::Unknown,
            Some(_) => return Availability::Starting,
            None if asked.len() < ASKED_MOST => asked.insert(channel, now),
            None => None,
        };
        self.request(Request::Reconcile);
        Availability::Starting
    }

    async fn changed(&self) {
        // Too late is as good as in time: it only means to look again.
        let _ = timeout(LOOK_ANYWAY, self.book.changed.notified()).await;
    }

    /// What the channel waits for is cut short, a try under way is joined.
    async fn connect(&self, channel: ChannelId) -> Result<bool, DirectoryError> {
        let known = self.directory.set_enabled(channel, true).await?;
        if known {
            self.request(Request::Kick(channel));
        }
        Ok(known)
    }

    /// Returns when the connection is closed and its lease given back. A login can be given up only while it is used: one
    /// that can't be reached now stays valid, and the job is tried again.
    async fn disconnect(&self, channel: ChannelId, logout: bool) -> Result<bool, DirectoryError> {
        let page = self.book.pages.read().expect("pages").get(&channel).cloned();
        if logout && let Some(page) = page {
            let given_up = page.platform.log_out(&page.post.spec()).await;
            given_up
                .map_err(|error| DirectoryError::Unavailable(format!("the login could not be given up: {error}")))?;
        }
        let known = self.directory.set_enabled(channel, false).await?;
        if known {
            let (stopped, is_stopped) = oneshot::channel();
            self.request(Request::AwaitStopped(channel, stopped));
            // Dropped when the roster ends, with everything closed.
            let _ = is_stopped.await;
        }
        Ok(known)
    }
}
