//! One life of a channel: connect, pair or log in, take what comes, and say why it ended.
//!
//! A restart that the server asks for, and a window of codes that ran out, begin the next connection within the same
//! life; all else ends it. Each connection begins from what the session holds.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use whatsapp_rust::{
    Client,
    pair_code::PairCodeOptions,
    store::{commands::DeviceCommand, error::StoreError, persistence_manager::PersistenceManager, traits::Backend},
    types::events::{Event as Told, EventHandler, EventInterest, EventKind as ToldKind},
    wacore::store::device::DevicePropsOverride,
    waproto::whatsapp::device_props::PlatformType,
};

use super::{
    Shared,
    close::{self, End, Life, Verdict},
    content,
    history::{Anchors, Histories},
    hook::Hook,
    line::{Line, Link, Standing},
    runtime::ShardRuntime,
    seen::{self, Seen},
};
use crate::{
    directory::ChannelSpec,
    event::{Event, EventKind, Other},
    identity::ChannelId,
    platform::{Closed, Inbox, PlatformKind},
    session::{DeviceSession, Restored, Right, SessionError},
};

/// What of the library's bus is listened to.
const LISTENED: [ToldKind; 15] = [
    ToldKind::Connected,
    ToldKind::PairSuccess,
    ToldKind::PairingQrCode,
    ToldKind::PairingCode,
    ToldKind::PairingCodeError,
    ToldKind::PairingQrCodesExhausted,
    ToldKind::Disconnected,
    ToldKind::RawNode,
    ToldKind::ServerAck,
    ToldKind::Receipt,
    ToldKind::GroupUpdate,
    ToldKind::UndecryptableMessage,
    ToldKind::HistorySync,
    ToldKind::Messages,
    ToldKind::QrScannedWithoutMultidevice,
];
/// How long a client may take to end in good order.
const GOOD_ORDER: Duration = Duration::from_secs(4);
/// How long the server may take to close a connection that it has said it would.
const CLOSING: Duration = Duration::from_secs(2);
/// How much longer than the codes to scan a code to type in holds.
const CODE_HOLDS_ON: Duration = Duration::from_secs(25);
/// How often silence is looked for.
const LOOK: Duration = Duration::from_secs(5);
/// Events stored at a time.
const BATCH: usize = 64;

/// Runs one life of a channel.
pub(super) async fn live(
    shared: &Arc<Shared>,
    spec: &Arc<ChannelSpec>,
    inbox: &Arc<dyn Inbox>,
    stop: &CancellationToken,
) -> Closed {
    let asked = inbox.clone();
    let right = Right { fence: inbox.fence(), held: Arc::new(move || asked.held().is_ok()) };
    let opened = match shared.sessions.open(right).await {
        Ok(opened) => opened,
        Err(error) => return closed_by(&error),
    };
    if let Some(restored) = opened.restored
        && let Err(closed) = inbox.store(vec![rolled_back(spec.id, restored)], None).await
    {
        return closed;
    }
    let line = shared.line(spec.id);
    let mut life = Life::default();
    let closed = loop {
        let connection = Connection::open(shared, spec, inbox, &opened.session, &line).await;
        let ended = match connection {
            Ok(connection) => connection.run(stop, &mut life).await,
            Err(closed) => Err(closed),
        };
        line.stand(Standing::Down);
        match ended.map(|end| close::decide(&end, life)) {
            Ok(Verdict::Again) => tracing::debug!(channel = %spec.id, "connecting again at once"),
            Ok(Verdict::Over(closed)) | Err(closed) => break closed,
        }
    };
    if matches!(closed, Closed::LoggedOut { .. }) {
        line.stand(Standing::LoggedOut);
    }
    if closed != Closed::Fenced && !opened.session.broken().is_cancelled() {
        shared.sessions.settle(&opened.session).await;
    }
    closed
}

fn closed_by(error: &SessionError) -> Closed {
    match error {
        SessionError::Fenced(_) => Closed::Fenced,
        SessionError::Unavailable(reason) => Closed::Transient { reason: reason.clone(), after: None },
        SessionError::Refused(reason) => Closed::Misconfigured { reason: reason.clone() },
    }
}

fn rolled_back(channel: ChannelId, restored: Restored) -> Event {
    let raw = serde_json::json!({ "snapshot_taken_ms": restored.taken_ms, "seq": restored.seq });
    let kind = EventKind::Other(Other { update: "session_rolled_back".to_owned(), raw });
    let key = format!("session/rolled_back/{}", restored.seq);
    Event::new(channel, PlatformKind::Whatsapp, None, jiff::Timestamp::now(), &key, kind)
}

/// Puts what the library tells into the loop's queue. Called on the receive path: it must not wait.
struct Listener {
    channel: ChannelId,
    seen: UnboundedSender<Seen>,
    inbox: Arc<dyn Inbox>,
    heard: Arc<Mutex<Instant>>,
}

impl EventHandler for Listener {
    fn handle_event(&self, told: Arc<Told>) {
        if let Told::RawNode(_) = &*told {
            *self.heard.lock().expect("heard") = Instant::now();
            self.inbox.heard();
        }
        if let Told::Messages(batch) = &*told {
            // What does not pass the hook: channels that are not encrypted, and what the phone gave again.
            for item in batch.iter() {
                let apart = item.info.unavailable_request_id.is_some() || content::is_channel(&item.info.source);
                if apart && let Some(event) = content::event(self.channel, &item.message, &item.info) {
                    let _ = self.seen.send(Seen::Happened(Box::new(event)));
                }
            }
        }
        if let Some(seen) = seen::read(self.channel, &told) {
            // Refused only when the loop has ended.
            let _ = self.seen.send(seen);
        }
    }
}

/// One connection: a client that lives as long as its socket.
struct Connection<'a> {
    shared: &'a Arc<Shared>,
    spec: &'a Arc<ChannelSpec>,
    inbox: &'a Arc<dyn Inbox>,
    session: &'a Arc<DeviceSession>,
    line: &'a Arc<Line>,
    client: Arc<Client>,
    persistence: Arc<PersistenceManager>,
    hook: Hook,
    /// Cancelled when one of the client's tasks has panicked.
    panicked: CancellationToken,
    seen: UnboundedReceiver<Seen>,
    /// What comes before all that is queued.
    first: Option<Seen>,
    heard: Arc<Mutex<Instant>>,
    link: Arc<Link>,
    histories: Arc<Histories>,
    is_linked: bool,
}

async fn next_seen(first: &mut Option<Seen>, queued: &mut UnboundedReceiver<Seen>) -> Option<Seen> {
    match first.take() {
        Some(seen) => Some(seen),
        None => queued.recv().await,
    }
}

/// What a connection has come to.
#[derive(Default)]
struct Progress {
    connected: bool,
    paired: bool,
    waits: bool,
    /// The server's own word on why it ends.
    ending: Option<End>,
    socket: Option<String>,
}

impl<'a> Connection<'a> {
    async fn open(
        shared: &'a Arc<Shared>,
        spec: &'a Arc<ChannelSpec>,
        inbox: &'a Arc<dyn Inbox>,
        session: &'a Arc<DeviceSession>,
        line: &'a Arc<Line>,
    ) -> Result<Self, Closed> {
        inbox.held()?;
        let broken = |error: String| {
            session.why_broken().map_or(Closed::Transient { reason: error, after: None }, |why| closed_by(&why))
        };
        let backend: Arc<dyn Backend> = session.clone();
        let persistence = PersistenceManager::new(backend).await.map_err(|error| broken(error.to_string()))?;
        let persistence = Arc::new(persistence);
        let props = DevicePropsOverride::new()
            .with_os(shared.config.device_name.clone())
            .with_platform_type(PlatformType::CHROME);
        persistence.process_command(DeviceCommand::SetDeviceProps(props)).await;
        let hook = Hook::new(spec.id, inbox.clone(), Anchors::new(session.clone()));
        let panicked = CancellationToken::new();
        let built = Client::builder()
            .with_runtime_arc(Arc::new(ShardRuntime { hurry: shared.config.hurry, panicked: panicked.clone() }))
            .with_persistence_manager(persistence.clone())
            .with_transport_factory_arc(shared.transport.clone())
            .with_http_client_arc(shared.http.clone())
            .with_version_override(shared.config.version)
            .with_wanted_pre_key_count(shared.config.pre_keys)
            .with_skip_history_sync(!shared.config.history)
            .with_background_saver_interval(Duration::from_secs(30))
            .with_inbound_durability_hook(hook.clone())
            .build()
            .await;
        let client = built.map_err(|error| broken(error.to_string()))?.into_client();
        client.enable_auto_reconnect.store(false, Ordering::Relaxed);
        let (sender, seen) = unbounded_channel();
        let heard = Arc::new(Mutex::new(Instant::now()));
        let listener = Listener { channel: spec.id, seen: sender, inbox: inbox.clone(), heard: heard.clone() };
        client.subscribe(EventInterest::of(&LISTENED), Arc::new(listener)).detach();
        let is_linked = client.pn().is_some();
        let link = Link::new(client.clone(), session.clone(), inbox.clone());
        Ok(Self {
            shared,
            spec,
            inbox,
            session,
            line,
            client,
            persistence,
            hook,
            panicked,
            seen,
            first: None,
            heard,
            link,
            histories: Histories::new(spec.id, inbox, session, &shared.histories),
            is_linked,
        })
    }

    /// Runs it to its end; why it ended, or that this life is over whatever the end was.
    async fn run(mut self, stop: &CancellationToken, life: &mut Life) -> Result<End, Closed> {
        let _raw = self.client.acquire_raw_node_forwarding();
        let client = self.client.clone();
        let mut running = AbortOnDropHandle::new(tokio::spawn(async move { client.run().await }));
        let mut has_ended = false;
        let _asking = self.ask_for_code();
        let mut progress = Progress::default();
        let mut deadline = Some(Instant::now() + self.shared.config.login_timeout);
        let ended = loop {
            let look = Instant::now() + LOOK;
            tokio::select! {
                biased;
                () = stop.cancelled() => break Err(Closed::Asked),
                () = self.session.broken().cancelled() => break Err(self.broken()),
                () = self.panicked.cancelled() => break Err(Closed::Rejected { reason: "panic".to_owned() }),
                () = self.hook.stop().cancelled() => break Err(self.hook.refused().unwrap_or(Closed::Fenced)),
                Some(seen) = next_seen(&mut self.first, &mut self.seen) => {
                    if let Err(closed) = self.take(seen, &mut progress, &mut deadline).await {
                        break Err(closed);
                    }
                    if progress.ending == Some(End::CodesUsedUp) && deadline.is_none() {
                        break Ok(End::CodesUsedUp);
                    }
                }
                ran = &mut running => {
                    has_ended = true;
                    break self.ran(ran, &mut progress, &mut deadline).await;
                }
                () = sleep_until(deadline.unwrap_or(look).min(look)) => {
                    if deadline.is_some_and(|at| at <= Instant::now()) {
                        break Ok(progress.ending.take().unwrap_or(End::NoConnection {
                            reason: "the login was not answered in time".to_owned(),
                        }));
                    }
                    let silent = self.heard.lock().expect("heard").elapsed();
                    if progress.connected && silent >= self.shared.config.idle_limit {
                        break Ok(End::Silent { seconds: silent.as_secs() });
                    }
                }
            }
        };
        self.line.stand(Standing::Down);
        self.link.hang_up();
        let ended = self.count(ended, &progress, life);
        self.hang_up((!has_ended).then_some(running)).await;
        if self.link.leaves() {
            return Err(Closed::LoggedOut { reason: "unlinked on request".to_owned() });
        }
        // What was decrypted and not stored while it ended is told again; what broke the session meanwhile goes first.
        if self.session.broken().is_cancelled() { Err(self.broken()) } else { ended }
    }

    /// Keeps the count of what may happen again and again.
    fn count(&self, ended: Result<End, Closed>, progress: &Progress, life: &mut Life) -> Result<End, Closed> {
        match &ended {
            Ok(End::CodesUsedUp) => life.windows += 1,
            Ok(End::StreamError { code: Some(code), .. }) if code == "515" && !progress.paired => life.restarts += 1,
            _ => {}
        }
        if progress.connected {
            *life = Life { restarts: life.restarts, windows: 0 };
        }
        ended
    }

    /// Asks for a code to type in, where the channel has a phone number to link by.
    fn ask_for_code(&self) -> Option<AbortOnDropHandle<()>> {
        let number = self.spec.token.as_ref().filter(|_| !self.is_linked)?.expose().to_owned();
        let (client, patience) = (self.client.clone(), self.shared.config.login_timeout);
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            if client.wait_for_socket(patience).await.is_ok() {
                let options = PairCodeOptions { phone_number: number, ..PairCodeOptions::default() };
                // Both outcomes are told on the bus.
                let _ = client.pair_with_code(options).await;
            }
        })))
    }

    fn broken(&self) -> Closed {
        self.session.why_broken().map_or(Closed::Fenced, |why| closed_by(&why))
    }

    /// Returns when the device is on the disk as it is now. The library's own flush does nothing while its background saver
    /// is at work on what may be an older state, and does not wait for it.
    async fn write_down(&self) -> Result<(), StoreError> {
        self.persistence.modify_device(|_| ()).await;
        self.persistence.flush().await
    }

    async fn take(
        &mut self,
        seen: Seen,
        progress: &mut Progress,
        deadline: &mut Option<Instant>,
    ) -> Result<(), Closed> {
        match seen {
            Seen::Connected => {
                progress.connected = true;
                *deadline = None;
                self.line.stand(Standing::Up(self.link.clone()));
                self.inbox.connected();
                self.histories.go_on().await;
            }
            Seen::Paired => {
                progress.paired = true;
                *deadline = Some(Instant::now() + self.shared.config.login_timeout);
                // The phone believes in this link from now on: it must survive whatever comes next.
                self.write_down().await.map_err(|_| self.broken())?;
                tracing::info!(channel = %self.spec.id, "the device was linked");
            }
            Seen::Code { method, code, seconds } => {
                if !std::mem::replace(&mut progress.waits, true) {
                    *deadline = None;
                    self.inbox.waits_for_person();
                }
                let event = seen::code_event(self.spec.id, method, &code, seconds);
                self.inbox.store(vec![event], None).await?;
            }
            Seen::CodesUsedUp if !progress.paired => {
                progress.ending.get_or_insert(End::CodesUsedUp);
                // A code to type in outlives the window of those to scan.
                *deadline = self.spec.token.as_ref().map(|_| Instant::now() + CODE_HOLDS_ON);
            }
            Seen::CodesUsedUp => {}
            Seen::NoCode { error } => {
                tracing::warn!(channel = %self.spec.id, error, "no code to link by could be had; one to scan is shown");
            }
            Seen::Ending(end) => {
                progress.ending = Some(end);
                *deadline = Some(Instant::now() + CLOSING);
            }
            Seen::Socket { reason } => progress.socket = Some(reason),
            Seen::Happened(event) => {
                let mut events = vec![*event];
                while events.len() < BATCH
                    && let Some(event) = self.next_event()
                {
                    events.push(event);
                }
                self.inbox.store(events, None).await?;
            }
            Seen::History(found) => {
                self.histories.take(*found).await;
            }
            Seen::Acked { id, error } => self.link.acked(&id, error),
        }
        Ok(())
    }

    /// The event that is next in the queue; something else stays first.
    fn next_event(&mut self) -> Option<Event> {
        match self.seen.try_recv().ok()? {
            Seen::Happened(event) => Some(*event),
            other => {
                self.first = Some(other);
                None
            }
        }
    }

    /// The client has ended by itself: what it told last is read first.
    async fn ran(
        &mut self,
        ran: Result<(), tokio::task::JoinError>,
        progress: &mut Progress,
        deadline: &mut Option<Instant>,
    ) -> Result<End, Closed> {
        if ran.is_err() {
            // Its text may hold anything, so it isn't repeated here.
            return Err(Closed::Rejected { reason: "panic".to_owned() });
        }
        while let Some(seen) = self.first.take().or_else(|| self.seen.try_recv().ok()) {
            self.take(seen, progress, deadline).await?;
        }
        if let Some(end) = progress.ending.take() {
            return Ok(end);
        }
        Ok(match progress.socket.take() {
            Some(reason) => End::Socket { reason },
            None if progress.connected || progress.waits => End::Socket { reason: "it was closed".to_owned() },
            None => End::NoConnection { reason: "it was refused, or ended before the login".to_owned() },
        })
    }

    /// Ends the client: what it holds in memory is written down.
    async fn hang_up(&self, running: Option<AbortOnDropHandle<()>>) {
        let in_order = async {
            self.client.disconnect().await;
            if let Some(running) = running {
                let _ = running.await;
            }
            if !self.link.leaves() {
                // The next connection begins from it. What can't be written breaks the session, and is told by that.
                let _ = self.write_down().await;
            }
        };
        if timeout(GOOD_ORDER, in_order).await.is_err() {
            tracing::debug!(channel = %self.spec.id, "the connection was cut");
        }
    }
}
