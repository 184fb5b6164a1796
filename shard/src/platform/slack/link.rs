//! The sockets of one app, decided: (state, event, now, chance) → (state, actions). No runtime, no clock, no I/O.
//!
//! | phase    | meaning                                                  | leaves by                                              |
//! |----------|----------------------------------------------------------|--------------------------------------------------------|
//! | Dialing  | a ticket is asked for, the connection is made            | Opened → Greeting; Failed, too late → gone             |
//! | Greeting | connected, nothing said yet                              | Hello → Live; Ended, too late → gone                   |
//! | Live     | events come in                                           | a younger one's Hello → Leaving; Ended, silence → gone |
//! | Leaving  | a younger one is live; what is under way still comes in  | its time → Closing; Ended, silence → gone              |
//! | Closing  | a close frame is on its way                              | Ended, its time (Slack leaves connections open) → gone |
//!
//! A socket that is told to go (`warning`, `refresh_requested`) stays live until its successor has been greeted, so that
//! there is never none. At most one is on its way up. One that fails while another still works is tried again with a
//! backoff that a mere greeting does not end; when none is left, all is over for the reason of the last failure, and the
//! channel's life cycle decides when to begin anew. A silent socket is asked by a ping and given up in time: an open TCP
//! connection proves nothing.

use std::time::Duration;

use crate::platform::Closed;

/// Which socket of an app; never used again.
pub(super) type SocketId = u32;

/// The times by which is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackTimes {
    /// How long it may take until a socket is connected.
    pub dial: Duration,
    /// How long a connected socket may take to greet.
    pub hello: Duration,
    /// After what silence a socket is pinged.
    pub ping_after: Duration,
    /// After what silence it is given up.
    pub silence: Duration,
    /// How long a socket that has a successor is still listened to.
    pub leave: Duration,
    /// How long a close handshake may take.
    pub close: Duration,
    /// The wait before a second try to replace a socket; it doubles.
    pub redial_first: Duration,
    /// The longest such wait.
    pub redial_cap: Duration,
    /// How long a socket must have lived for the next failure to be the first.
    pub stable: Duration,
}

impl Default for SlackTimes {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(20),
            hello: Duration::from_secs(10),
            ping_after: Duration::from_secs(25),
            silence: Duration::from_secs(75),
            leave: Duration::from_secs(10),
            close: Duration::from_secs(1),
            redial_first: Duration::from_secs(1),
            redial_cap: Duration::from_secs(30),
            stable: Duration::from_secs(30),
        }
    }
}

/// Why the platform wants a socket to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// Soon, and there may be another: `warning`, `refresh_requested`.
    Refresh,
    /// Socket Mode was switched off.
    LinkDisabled,
    /// The app has too many sockets; others hold them.
    TooMany,
    /// A word of the platform's that is in no document.
    Unknown,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The app shall be connected.
    Begin,
    /// A socket is connected.
    Opened(SocketId),
    /// A socket could not be connected.
    Failed(SocketId, Closed),
    /// A socket was greeted.
    Hello(SocketId),
    /// Something came in, of whatever kind.
    Heard(SocketId),
    /// The platform wants a socket to go.
    Disconnect(SocketId, Reason),
    /// A socket's connection ended.
    Ended(SocketId),
    /// The time of [`Link::deadline`] has come.
    Due,
    /// The app shall no longer be connected.
    Stop,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask for a ticket and connect.
    Dial(SocketId),
    /// Ask a socket whether it lives.
    Ping(SocketId),
    /// Send a close frame; the connection is still read.
    Close(SocketId),
    /// Forget a socket, or a try, at once.
    Drop(SocketId),
    /// The app is connected; told once.
    Connected,
    /// All is over. Nothing follows.
    End(Closed),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Dialing,
    Greeting,
    Live,
    Leaving,
    Closing,
}

#[derive(Debug, Clone)]
struct Socket {
    id: SocketId,
    phase: Phase,
    since: Duration,
    heard: Duration,
    pinged: bool,
    /// It was told to go.
    told: bool,
}

/// The sockets of one app.
#[derive(Debug, Clone)]
pub(super) struct Link {
    times: SlackTimes,
    sockets: Vec<Socket>,
    next: SocketId,
    failures: u32,
    redial: Option<Duration>,
    verdict: Option<Closed>,
    connected: bool,
    stopping: bool,
    ended: bool,
}

impl Link {
    pub(super) fn new(times: SlackTimes) -> Self {
        Self {
            times,
            sockets: Vec::new(),
            next: 0,
            failures: 0,
            redial: None,
            verdict: None,
            connected: false,
            stopping: false,
            ended: false,
        }
    }

    /// When [`Event::Due`] is to be told.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let of = |socket: &Socket| match socket.phase {
            Phase::Dialing => socket.since + self.times.dial,
            Phase::Greeting => socket.since + self.times.hello,
            Phase::Live => self.listening_until(socket),
            Phase::Leaving => self.listening_until(socket).min(socket.since + self.times.leave),
            Phase::Closing => socket.since + self.times.close,
        };
        self.sockets.iter().map(of).chain(self.redial).min()
    }

    fn listening_until(&self, socket: &Socket) -> Duration {
        socket.heard + if socket.pinged { self.times.silence } else { self.times.ping_after.min(self.times.silence) }
    }

    /// What follows from an event. `chance` is uniform in 0..1.
    pub(super) fn on(&mut self, event: Event, now: Duration, chance: f64) -> Vec<Action> {
        let mut out = Vec::new();
        if self.ended {
            return out;
        }
        match event {
            Event::Begin if self.sockets.is_empty() => self.dial(now, &mut out),
            Event::Begin => {}
            Event::Opened(id) => self.enter(id, Phase::Dialing, Phase::Greeting, now),
            Event::Failed(id, closed) => self.failed(id, closed, now, chance, &mut out),
            Event::Hello(id) => self.hello(id, now, &mut out),
            Event::Heard(id) => {
                if let Some(socket) = self.socket(id) {
                    socket.heard = now;
                    socket.pinged = false;
                }
            }
            Event::Disconnect(id, reason) => self.disconnect(id, &reason, now, chance, &mut out),
            Event::Ended(id) => self.gone(id, "the platform closed the socket", now, chance),
            Event::Due => self.due(now, chance, &mut out),
            Event::Stop => self.stop(now, &mut out),
        }
        self.settle(now, &mut out);
        out
    }

    fn socket(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets.iter_mut().find(|socket| socket.id == id)
    }

    fn enter(&mut self, id: SocketId, from: Phase, to: Phase, now: Duration) {
        if let Some(socket) = self.socket(id).filter(|socket| socket.phase == from) {
            socket.phase = to;
            socket.since = now;
            socket.heard = now;
        }
    }

    fn dial(&mut self, now: Duration, out: &mut Vec<Action>) {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.redial = None;
        self.sockets.push(Socket { id, phase: Phase::Dialing, since: now, heard: now, pinged: false, told: false });
        out.push(Action::Dial(id));
    }

    fn hello(&mut self, id: SocketId, now: Duration, out: &mut Vec<Action>) {
        if !self.sockets.iter().any(|socket| socket.id == id && socket.phase == Phase::Greeting) {
            return;
        }
        self.enter(id, Phase::Greeting, Phase::Live, now);
        self.redial = None;
        self.verdict = None;
        for socket in self.sockets.iter_mut().filter(|socket| socket.id != id && socket.phase == Phase::Live) {
            socket.phase = Phase::Leaving;
            socket.since = now;
        }
        if !std::mem::replace(&mut self.connected, true) {
            out.push(Action::Connected);
        }
    }

    fn disconnect(&mut self, id: SocketId, reason: &Reason, now: Duration, chance: f64, out: &mut Vec<Action>) {
        let Some(socket) = self.socket(id).filter(|socket| socket.phase != Phase::Closing) else { return };
        let verdict = match reason {
            Reason::Refresh => {
                socket.told = true;
                return;
            }
            Reason::LinkDisabled => {
                let reason = "Socket Mode is switched off for this app: switch it on, or take the channel out".into();
                return self.end(Closed::Misconfigured { reason }, out);
            }
            Reason::TooMany => {
                let reason = "too_many_websockets: other processes hold all sockets that the app may have".into();
                Closed::Replaced { reason }
            }
            Reason::Unknown => {
                let reason = "the platform wanted the socket to go, in words that are in no document".into();
                Closed::Transient { reason, after: None }
            }
        };
        let was_up = matches!(socket.phase, Phase::Live | Phase::Greeting);
        socket.phase = Phase::Closing;
        socket.since = now;
        out.push(Action::Close(id));
        if was_up {
            self.fail(verdict, now, chance);
        }
    }

    /// One that was on its way up, or up, is of no use.
    fn fail(&mut self, verdict: Closed, now: Duration, chance: f64) {
        self.failures = self.failures.saturating_add(1);
        let doubled = 1u32.checked_shl(self.failures - 1).unwrap_or(u32::MAX);
        let full = self.times.redial_first.saturating_mul(doubled).min(self.times.redial_cap);
        let told = match &verdict {
            Closed::Transient { after, .. } => after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        self.redial = Some(now + full.mul_f64(1.0 + chance / 2.0).max(told));
        self.verdict = Some(verdict);
    }

    fn failed(&mut self, id: SocketId, closed: Closed, now: Duration, chance: f64, out: &mut Vec<Action>) {
        let before = self.sockets.len();
        self.sockets.retain(|socket| socket.id != id || socket.phase != Phase::Dialing);
        if self.sockets.len() == before || self.stopping {
            return;
        }
        let may_pass = matches!(closed, Closed::Transient { .. } | Closed::Rejected { .. } | Closed::Replaced { .. });
        if may_pass { self.fail(closed, now, chance) } else { self.end(closed, out) }
    }

    /// A connection is no more.
    fn gone(&mut self, id: SocketId, why: &str, now: Duration, chance: f64) {
        let Some(at) = self.sockets.iter().position(|socket| socket.id == id) else { return };
        let socket = self.sockets.remove(at);
        let short = now.saturating_sub(socket.since) < self.times.stable;
        if !short && socket.phase == Phase::Live {
            self.failures = 0;
        }
        let closed = Closed::Transient { reason: why.to_owned(), after: None };
        match socket.phase {
            Phase::Greeting | Phase::Dialing => self.fail(closed, now, chance),
            // Greeted and gone: while an older one still works there is time not to storm the platform.
            Phase::Live if short => self.fail(closed, now, chance),
            Phase::Live => self.verdict = Some(closed),
            Phase::Leaving | Phase::Closing => {}
        }
    }

    fn due(&mut self, now: Duration, chance: f64, out: &mut Vec<Action>) {
        for socket in self.sockets.clone() {
            let (id, age) = (socket.id, now.saturating_sub(socket.since));
            let silent = now.saturating_sub(socket.heard);
            let listens = matches!(socket.phase, Phase::Live | Phase::Leaving);
            let late = match socket.phase {
                Phase::Dialing if age >= self.times.dial => Some("no connection in time"),
                Phase::Greeting if age >= self.times.hello => Some("no greeting in time"),
                Phase::Closing if age >= self.times.close => Some(""),
                _ if listens && silent >= self.times.silence => Some("nothing was heard for too long"),
                _ => None,
            };
            if let Some(why) = late {
                out.push(Action::Drop(id));
                self.gone(id, why, now, chance);
            } else if socket.phase == Phase::Leaving && age >= self.times.leave {
                self.close(id, now, out);
            } else if listens && !socket.pinged && silent >= self.times.ping_after {
                out.push(Action::Ping(id));
                if let Some(socket) = self.socket(id) {
                    socket.pinged = true;
                }
            }
        }
    }

    fn close(&mut self, id: SocketId, now: Duration, out: &mut Vec<Action>) {
        if let Some(socket) = self.socket(id) {
            socket.phase = Phase::Closing;
            socket.since = now;
            out.push(Action::Close(id));
        }
    }

    fn stop(&mut self, now: Duration, out: &mut Vec<Action>) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        self.redial = None;
        for socket in self.sockets.clone() {
            match socket.phase {
                Phase::Dialing | Phase::Greeting => {
                    self.sockets.retain(|other| other.id != socket.id);
                    out.push(Action::Drop(socket.id));
                }
                Phase::Live | Phase::Leaving => self.close(socket.id, now, out),
                Phase::Closing => {}
            }
        }
    }

    fn end(&mut self, closed: Closed, out: &mut Vec<Action>) {
        self.ended = true;
        self.sockets.clear();
        self.redial = None;
        out.push(Action::End(closed));
    }

    /// Sees to it that a socket is up or on its way, as long as there is one to replace; else that all is over.
    fn settle(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.ended {
            return;
        }
        if self.stopping {
            if self.sockets.is_empty() {
                self.end(Closed::Asked, out);
            }
            return;
        }
        if self.sockets.iter().any(|socket| socket.phase == Phase::Live && !socket.told) {
            self.redial = None;
            return;
        }
        // What was left for a successor that is no good is needed again.
        for socket in self.sockets.iter_mut().filter(|socket| socket.phase == Phase::Leaving) {
            socket.phase = Phase::Live;
            socket.told = true;
        }
        let any = |is: fn(&Socket) -> bool| self.sockets.iter().any(is);
        if any(|socket| matches!(socket.phase, Phase::Dialing | Phase::Greeting)) {
            // The next try begins when this one has failed.
            self.redial = None;
        } else if any(|socket| socket.phase == Phase::Live) {
            if *self.redial.get_or_insert(now) <= now {
                self.dial(now, out);
            }
        } else {
            let closed = self.verdict.take().unwrap_or(Closed::Asked);
            self.end(closed, out);
        }
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
