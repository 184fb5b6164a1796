//! A slot file that this process consumes: its writer, what its three consumers know, and the one task that listens
//! for knocks and looks by itself once a second.

use std::sync::{
    Arc, Mutex, MutexGuard, Weak,
    atomic::{AtomicU64, Ordering},
};

use tokio::task::JoinHandle;

use super::{super::LOOK_ANYWAY, rows::wake_name, state::State};
use crate::{
    identity::QueueBase,
    store::{Index, Peers, Wake, Writer, base_number},
};

/// The states of a file's three queues.
pub(super) type States = [Mutex<State>; 3];

/// A file that is consumed.
#[derive(Debug)]
pub(super) struct QueueFile {
    pub(super) writer: Arc<Writer>,
    /// Grows with each opening of the file.
    pub(super) token: i64,
    peers: Arc<Peers>,
    index: Index,
    states: Arc<States>,
    sessions: AtomicU64,
    watch: Mutex<Option<JoinHandle<()>>>,
}

impl QueueFile {
    pub(super) fn new(peers: Arc<Peers>, index: Index, writer: Arc<Writer>, token: i64) -> Arc<Self> {
        let (states, sessions, watch) = Default::default();
        Arc::new(Self { writer, token, peers, index, states, sessions, watch })
    }

    pub(super) fn state(&self, base: QueueBase) -> MutexGuard<'_, State> {
        lock(&self.states, base)
    }

    pub(super) fn states(&self) -> Arc<States> {
        self.states.clone()
    }

    /// A session number that no other opening of this file gives.
    pub(super) fn next_session(&self) -> u64 {
        ((self.token as u64) << 24) | (self.sessions.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Begins to listen, once.
    pub(super) fn listen(&self) {
        let mut watch = self.watch.lock().expect("watch");
        if watch.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let wake = Wake::bind(self.peers.dir(), &wake_name(self.index));
        if let Err(error) = &wake {
            tracing::warn!(queue = wake_name(self.index), %error, "no wake-up socket: new jobs are seen within a second");
        }
        *watch = Some(tokio::spawn(watch_over(wake.ok(), Arc::downgrade(&self.writer), self.states.clone())));
    }
}

impl Drop for QueueFile {
    fn drop(&mut self) {
        if let Some(task) = self.watch.lock().expect("watch").take() {
            task.abort();
        }
    }
}

/// The state of one base.
pub(super) fn lock(states: &States, base: QueueBase) -> MutexGuard<'_, State> {
    states[base_number(base) as usize].lock().expect("queue state")
}

/// Holds the writer only while it looks: whoever drops the file's last handle waits for what is still to be written.
async fn watch_over(mut wake: Option<Wake>, writer: Weak<Writer>, states: Arc<States>) {
    let mut version = 0;
    loop {
        let knocked = async {
            match &wake {
                Some(wake) => wake.knocked().await,
                None => std::future::pending().await,
            }
        };
        let looked = tokio::select! {
            knocked = knocked => {
                if knocked.is_err() {
                    wake = None;
                    continue;
                }
                true
            }
            () = tokio::time::sleep(LOOK_ANYWAY) => {
                let Some(writer) = writer.upgrade() else { return };
                // Changes when somebody else has written to the file. An error is for the next consumer to find.
                let pragma = writer.read(|connection| {
                    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get::<_, i64>(0))?)
                });
                let now = pragma.await.unwrap_or(version);
                std::mem::replace(&mut version, now) != now
            }
        };
        if looked {
            for base in QueueBase::ALL {
                let mut state = lock(&states, base);
                if state.session() != 0 {
                    state.news();
                }
            }
        }
    }
}
