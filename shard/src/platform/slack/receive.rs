//! One life of an app's connection: the loop that feeds [`Link`](super::link::Link) and does what it decides.
//!
//! What comes in is stored before it is acknowledged, as much at a time as is there; whoever stores knows what it has stored
//! before, so that an event told again (a retry, a second socket, a restart) is acknowledged and not kept twice.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    api::Api,
    envelope::{self, Envelope, Frame, acknowledgement},
    event::{self, Me},
    link::{Action, Event, Link, SlackTimes, SocketId},
    opens::Opens,
    outcome::closed,
    socket::{Heard, Socket, Sockets, dial},
    tokens::Tokens,
};
use crate::{
    directory::ChannelSpec,
    identity::ChannelId,
    platform::{Closed, Inbox},
    secret::Secret,
};

/// How long the app may take to show itself.
const AUTH: Duration = Duration::from_secs(10);
/// So many envelopes are stored at once.
const BATCH: usize = 64;

/// What all connections of a shard share.
pub(super) struct Shared {
    pub(super) api: Arc<Api>,
    pub(super) times: SlackTimes,
    pub(super) opens: Opens,
}

type Dialing<'a> = BoxFuture<'a, (SocketId, Result<Socket, Closed>)>;

/// One life: the sockets, the one that is dialed, and what has happened and is not yet decided about.
struct Life<'a> {
    shared: &'a Shared,
    channel: ChannelId,
    app_token: &'a Secret,
    inbox: &'a dyn Inbox,
    me: Me,
    link: Link,
    born: Instant,
    sockets: Sockets,
    dialing: Option<(SocketId, Dialing<'a>)>,
    happened: VecDeque<Event>,
}

/// Holds the app's sockets until `stop` is cancelled or something ends them all.
pub(super) async fn receive(
    shared: &Shared,
    spec: &ChannelSpec,
    inbox: &dyn Inbox,
    stop: &CancellationToken,
) -> Result<Closed, Closed> {
    let logged_out = |reason: String| Closed::LoggedOut { reason };
    let secret = spec.token.as_ref().ok_or_else(|| logged_out("the channel has no tokens".into()))?;
    let tokens = Tokens::read(secret).map_err(|error| logged_out(format!("the channel's secret {error}")))?;
    let Some(app_token) = &tokens.app else {
        return Err(Closed::Misconfigured { reason: super::NOT_HELD.into() });
    };
    inbox.held()?;
    let nothing = json!({});
    let me = tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(Closed::Asked),
        me = shared.api.call(&tokens.bot, "auth.test", &nothing, AUTH) => me,
    };
    let me = Me::of(&me.map_err(|error| closed(&error, "auth.test"))?);
    let life = Life {
        shared,
        channel: spec.id,
        app_token,
        inbox,
        me,
        link: Link::new(shared.times.clone()),
        born: Instant::now(),
        sockets: Sockets::default(),
        dialing: None,
        happened: VecDeque::from([Event::Begin]),
    };
    life.run(stop).await
}

impl<'a> Life<'a> {
    async fn run(mut self, stop: &CancellationToken) -> Result<Closed, Closed> {
        let mut stopped = false;
        loop {
            while let Some(event) = self.happened.pop_front() {
                if let Some(ended) = self.decide(event).await {
                    return Ok(ended);
                }
            }
            let due = self.link.deadline().map(|due| self.born + due);
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopped => {
                    stopped = true;
                    self.happened.push_back(Event::Stop);
                }
                (id, dialed) = dialed(&mut self.dialing) => self.dialed(id, dialed)?,
                () = sleep_until(due.unwrap_or(self.born)), if due.is_some() => self.happened.push_back(Event::Due),
                (id, heard) = self.sockets.next() => self.hear(id, heard).await?,
            }
        }
    }

    /// Does what follows from an event; how it ended, if it did.
    async fn decide(&mut self, event: Event) -> Option<Closed> {
        for action in self.link.on(event, self.born.elapsed(), rand::random()) {
            match action {
                Action::Dial(id) => self.dialing = Some((id, self.dial(id))),
                Action::Ping(id) => self.sockets.ping(id).await,
                Action::Close(id) => self.sockets.close(id).await,
                Action::Drop(id) => {
                    self.sockets.remove(id);
                    self.dialing.take_if(|(dialing, _)| *dialing == id);
                }
                Action::Connected => self.inbox.connected(),
                Action::End(closed) => return Some(closed),
            }
        }
        None
    }

    fn dial(&self, id: SocketId) -> Dialing<'a> {
        let (shared, channel, app_token, inbox) = (self.shared, self.channel, self.app_token, self.inbox);
        Box::pin(async move {
            shared.opens.turn(channel).await;
            // A ticket takes a place among the app's sockets, which a former owner must not do.
            match inbox.held() {
                Ok(()) => (id, dial(&shared.api, app_token).await),
                Err(closed) => (id, Err(closed)),
            }
        })
    }

    fn dialed(&mut self, id: SocketId, dialed: Result<Socket, Closed>) -> Result<(), Closed> {
        self.dialing = None;
        match dialed {
            Ok(socket) => {
                self.sockets.add(id, socket);
                self.happened.push_back(Event::Opened(id));
            }
            Err(Closed::Fenced) => return Err(Closed::Fenced),
            Err(closed) => self.happened.push_back(Event::Failed(id, closed)),
        }
        Ok(())
    }

    /// Takes in what is there, stores it, and only then acknowledges.
    async fn hear(&mut self, id: SocketId, heard: Heard) -> Result<(), Closed> {
        let mut envelopes = Vec::new();
        self.take(id, heard, &mut envelopes);
        while envelopes.len() < BATCH
            && let Some((id, heard)) = self.sockets.next().now_or_never()
        {
            self.take(id, heard, &mut envelopes);
        }
        self.inbox.heard();
        if envelopes.is_empty() {
            return Ok(());
        }
        let now = Timestamp::now();
        let told: Vec<_> =
            envelopes.iter().filter_map(|(_, envelope)| event::read(self.channel, &self.me, now, envelope)).collect();
        if !told.is_empty() {
            self.inbox.store(told, None).await?;
        }
        self.inbox.held()?;
        while let Some(at) = envelopes.first().map(|(at, _)| *at) {
            let here = envelopes.extract_if(.., |(id, _)| *id == at);
            let acknowledged: Vec<_> = here.map(|(_, envelope)| acknowledgement(&envelope.id)).collect();
            if !self.sockets.send(at, acknowledged).await {
                self.happened.push_back(Event::Ended(at));
            }
        }
        Ok(())
    }

    fn take(&mut self, id: SocketId, heard: Heard, envelopes: &mut Vec<(SocketId, Envelope)>) {
        let text = match &heard {
            Heard::End => return self.happened.push_back(Event::Ended(id)),
            Heard::Other => None,
            Heard::Text(message) => message.as_text(),
        };
        self.happened.push_back(Event::Heard(id));
        match text.map(envelope::read) {
            Some(Frame::Hello) => self.happened.push_back(Event::Hello(id)),
            Some(Frame::Disconnect(reason, word)) => {
                tracing::debug!(channel = %self.channel, reason = word, "Slack wants a socket to go");
                self.happened.push_back(Event::Disconnect(id, reason));
            }
            Some(Frame::Envelope(envelope)) => envelopes.push((id, envelope)),
            Some(Frame::Strange) => tracing::debug!(channel = %self.channel, "a frame that nobody knows"),
            None => {}
        }
    }
}

/// Waits for the dial's end; for ever when there is none.
async fn dialed(dialing: &mut Option<(SocketId, Dialing<'_>)>) -> (SocketId, Result<Socket, Closed>) {
    match dialing {
        Some((_, dialing)) => dialing.await,
        None => std::future::pending().await,
    }
}
