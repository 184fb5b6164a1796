//! A channel's connection as its jobs see it: up or down, and which answers are waited for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{oneshot, watch};
use whatsapp_rust::Client;

use crate::{
    platform::{Failed, Inbox},
    session::DeviceSession,
};

/// A connection that is up.
pub(super) struct Link {
    pub(super) client: Arc<Client>,
    pub(super) session: Arc<DeviceSession>,
    pub(super) inbox: Arc<dyn Inbox>,
    /// Messages whose acknowledgement is waited for.
    acks: Mutex<HashMap<String, oneshot::Sender<Option<String>>>>,
    /// Whether the device is being unlinked on request: its session goes with it.
    leaving: AtomicBool,
}

impl Link {
    pub(super) fn new(client: Arc<Client>, session: Arc<DeviceSession>, inbox: Arc<dyn Inbox>) -> Arc<Self> {
        Arc::new(Self { client, session, inbox, acks: Mutex::default(), leaving: AtomicBool::new(false) })
    }

    /// Refuses to write when the channel can't be proven to be ours at this moment.
    pub(super) fn held(&self) -> Result<(), Failed> {
        self.inbox.held().map_err(|_| Failed::NotConnected)
    }

    /// The device is about to be unlinked: however the connection ends, that is why.
    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    pub(super) fn leaves(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// Waits for the server's word on a message from now on.
    pub(super) fn expect(&self, id: &str) -> oneshot::Receiver<Option<String>> {
        let (sender, receiver) = oneshot::channel();
        self.acks.lock().expect("acks").insert(id.to_owned(), sender);
        receiver
    }

    pub(super) fn forget(&self, id: &str) {
        self.acks.lock().expect("acks").remove(id);
    }

    pub(super) fn acked(&self, id: &str, error: Option<String>) {
        if let Some(waiting) = self.acks.lock().expect("acks").remove(id) {
            // Whoever waited may have gone.
            let _ = waiting.send(error);
        }
    }

    /// The connection is gone: nobody waits for it any longer.
    pub(super) fn hang_up(&self) {
        self.acks.lock().expect("acks").clear();
    }
}

/// What is known of a channel's connection.
#[derive(Clone, Default)]
pub(super) enum Standing {
    /// Not now.
    #[default]
    Down,
    /// Not until a person does something.
    LoggedOut,
    /// Now.
    Up(Arc<Link>),
}

/// A channel's line. It outlives connections.
pub(super) struct Line(watch::Sender<Standing>);

impl Default for Line {
    fn default() -> Self {
        Self(watch::Sender::new(Standing::Down))
    }
}

impl Line {
    pub(super) fn stand(&self, standing: Standing) {
        self.0.send_replace(standing);
    }

    /// The connection, waited for.
    pub(super) async fn wait(&self, patience: Duration) -> Result<Arc<Link>, Failed> {
        let mut standing = self.0.subscribe();
        let found = standing.wait_for(|standing| !matches!(standing, Standing::Down));
        match tokio::time::timeout(patience, found).await.ok().and_then(Result::ok).as_deref() {
            Some(Standing::Up(link)) => Ok(link.clone()),
            Some(Standing::LoggedOut) => Err(Failed::Permanent {
                reason: "logged_out",
                error: "the device is no longer linked to the account".to_owned(),
            }),
            Some(Standing::Down) | None => Err(Failed::NotConnected),
        }
    }
}
