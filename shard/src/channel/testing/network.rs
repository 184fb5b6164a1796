//! A network whose connections do as a test says.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    directory::ChannelSpec,
    identity::ChannelId,
    job::Job,
    platform::{Closed, Done, Failed, Inbox, Platform, PlatformKind, Sender},
};

/// What a connection of the test network does.
#[derive(Debug, Clone)]
pub(in crate::channel) enum Script {
    /// Logs in and stays until it is asked to end.
    Stay,
    /// Logs in, lasts so long, ends so.
    Last(Duration, Closed),
    /// Ends before it is up.
    Refuse(Closed),
    /// Logs in, then panics.
    Panic,
    /// Logs in, and does not listen when asked to end.
    Deaf,
}

/// A network whose connections follow a script, one line a login; the last line repeats. It counts.
pub(in crate::channel) struct TestPlatform {
    pub(in crate::channel) scripts: Mutex<HashMap<ChannelId, Vec<Script>>>,
    pub(in crate::channel) login: Mutex<Duration>,
    /// Each login: whose, when, with which token.
    pub(in crate::channel) logins: Mutex<Vec<(ChannelId, Instant, String)>>,
    pub(in crate::channel) dialing: AtomicUsize,
    pub(in crate::channel) most_dialing: AtomicUsize,
    pub(in crate::channel) open: Mutex<BTreeMap<ChannelId, usize>>,
    pub(in crate::channel) inboxes: Mutex<HashMap<ChannelId, Arc<dyn Inbox>>>,
}

struct OpenGuard<'a>(&'a TestPlatform, ChannelId);

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        *self.0.open.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

struct NoSender;

#[async_trait]
impl Sender for NoSender {
    async fn perform(&self, _: &Job, _: Option<&str>) -> Result<Done, Failed> {
        Ok(Done::default())
    }
}

impl TestPlatform {
    pub(in crate::channel) fn new() -> Self {
        Self {
            scripts: Mutex::default(),
            login: Mutex::new(Duration::from_millis(200)),
            logins: Mutex::default(),
            dialing: AtomicUsize::new(0),
            most_dialing: AtomicUsize::new(0),
            open: Mutex::default(),
            inboxes: Mutex::default(),
        }
    }

    pub(in crate::channel) fn logins_of(&self, channel: ChannelId) -> Vec<(Instant, String)> {
        let logins = self.logins.lock().unwrap();
        logins.iter().filter(|(of, ..)| *of == channel).map(|(_, at, token)| (*at, token.clone())).collect()
    }

    pub(in crate::channel) fn open_now(&self) -> usize {
        self.open.lock().unwrap().values().sum()
    }
}

#[async_trait]
impl Platform for TestPlatform {
    fn kind(&self) -> PlatformKind {
        PlatformKind::Telegram
    }

    fn provider_id(&self, _: &Job) -> Option<String> {
        None
    }

    fn sender(&self, _: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>> {
        Some(Arc::new(NoSender))
    }

    async fn receive(&self, spec: Arc<ChannelSpec>, inbox: Arc<dyn Inbox>, stop: CancellationToken) -> Closed {
        let token = spec.token.as_ref().unwrap().expose().to_owned();
        self.logins.lock().unwrap().push((spec.id, Instant::now(), token));
        {
            let mut open = self.open.lock().unwrap();
            let count = open.entry(spec.id).or_default();
            *count += 1;
            assert_eq!(*count, 1, "two connections of one channel");
        }
        let _guard = OpenGuard(self, spec.id);
        let script = {
            let mut scripts = self.scripts.lock().unwrap();
            match scripts.get_mut(&spec.id) {
                Some(lines) if lines.len() > 1 => lines.remove(0),
                Some(lines) => lines[0].clone(),
                None => Script::Stay,
            }
        };
        let dialing = self.dialing.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_dialing.fetch_max(dialing, Ordering::SeqCst);
        let login = *self.login.lock().unwrap();
        tokio::select! {
            () = tokio::time::sleep(login) => {}
            () = stop.cancelled() => {
                self.dialing.fetch_sub(1, Ordering::SeqCst);
                return Closed::Asked;
            }
        }
        self.dialing.fetch_sub(1, Ordering::SeqCst);
        if let Script::Refuse(closed) = script {
            return closed;
        }
        if let Err(closed) = inbox.held() {
            return closed;
        }
        inbox.connected();
        self.inboxes.lock().unwrap().insert(spec.id, inbox);
        match script {
            Script::Panic => panic!("a bug in this channel's code"),
            Script::Last(time, closed) => tokio::select! {
                () = tokio::time::sleep(time) => closed,
                () = stop.cancelled() => Closed::Asked,
            },
            Script::Deaf => std::future::pending().await,
            Script::Stay | Script::Refuse(_) => {
                stop.cancelled().await;
                Closed::Asked
            }
        }
    }
}
