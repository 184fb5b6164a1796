//! The primary's ends of the links. One future looks at all of them; nothing here is a task, so that the loop that
//! decides is also the loop that reads.

use std::{
    collections::VecDeque,
    io,
    os::{fd::AsRawFd, unix::net::UnixStream as StdStream},
    task::{Context, Poll},
};

use nix::sys::socket::{Shutdown, shutdown};
use tokio::net::UnixStream;
use tracing::warn;

use super::{
    codec::{Decoder, FrameError, encode},
    frame::{FromChild, ToChild},
};

/// Views are dropped rather than queued above this; a shard that reads gets the next one.
const MAX_QUEUED: usize = 8 << 20;
/// Commands are small and few. A child that lets even these pile up has its link closed.
const MAX_QUEUED_COMMANDS: usize = 1 << 20;
/// Frames and bytes that one child may have read between two ticks.
const BUDGET: (usize, usize) = (512, 8 << 20);

/// What came from a child.
#[derive(Debug)]
pub enum Incoming {
    /// A message.
    Frame(FromChild),
    /// Its end is closed, or it does not speak the protocol. Nothing more will come.
    Closed,
}

/// Whom a read asks.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// The runtime first, which knows what the last look at all sockets has shown.
    Readiness,
    /// The socket itself.
    Kernel,
}

/// The primary's end of one link.
#[derive(Debug)]
pub struct ParentLink {
    stream: UnixStream,
    decoder: Decoder,
    out: VecDeque<u8>,
    budget: (usize, usize),
    closed: bool,
    told: bool,
}

impl ParentLink {
    /// Takes the primary's half of a socket pair.
    pub fn new(stream: StdStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        Ok(Self {
            stream,
            decoder: Decoder::default(),
            out: VecDeque::new(),
            budget: BUDGET,
            closed: false,
            told: false,
        })
    }

    /// Queues a message; what fits goes out at once. Never blocks.
    pub fn send(&mut self, message: &ToChild) {
        let limit = match message {
            ToChild::View { .. } => MAX_QUEUED,
            _ => MAX_QUEUED + MAX_QUEUED_COMMANDS,
        };
        let bytes = match encode(message) {
            Ok(bytes) => bytes,
            Err(error) => return warn!(%error, "message to a shard dropped"),
        };
        if self.closed {
            return;
        }
        if self.out.len() + bytes.len() > limit {
            if !matches!(message, ToChild::View { .. }) {
                warn!(queued = self.out.len(), "a shard does not read: its link is closed");
                self.close();
            }
            return;
        }
        self.out.extend(bytes);
        self.flush();
    }

    /// Bytes that wait for the child to read.
    pub fn queued(&self) -> usize {
        self.out.len()
    }

    /// The child reads its end of file; who reads here is told once.
    fn close(&mut self) {
        self.closed = true;
        // It may be closed from the other side already.
        let _ = shutdown(self.stream.as_raw_fd(), Shutdown::Both);
        self.out = VecDeque::new();
    }

    fn flush(&mut self) {
        while !self.out.is_empty() {
            let (head, _) = self.out.as_slices();
            match self.stream.try_write(head) {
                Ok(written) => drop(self.out.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The reading side will say that it is over.
                Err(_) => return self.out.clear(),
            }
        }
        self.out.shrink_to(64 << 10);
    }

    /// A message that is already here.
    fn decoded(&mut self) -> Option<Incoming> {
        match self.decoder.next() {
            Ok(Some((frame, length))) => {
                self.budget = (self.budget.0.saturating_sub(1), self.budget.1.saturating_sub(length));
                Some(Incoming::Frame(frame))
            }
            Ok(None) => None,
            Err(error) => self.violated(&error),
        }
    }

    fn violated(&mut self, error: &FrameError) -> Option<Incoming> {
        warn!(%error, "a shard does not speak the protocol: its link is closed");
        self.close();
        self.ended()
    }

    fn ended(&mut self) -> Option<Incoming> {
        (!std::mem::replace(&mut self.told, true)).then_some(Incoming::Closed)
    }

    fn has_budget(&self) -> bool {
        self.budget.0 > 0 && self.budget.1 > 0
    }

    /// Reads without waiting. `None`: nothing there now.
    fn read(&mut self, source: Source) -> Option<Incoming> {
        let mut buffer = [0; 16 << 10];
        loop {
            if self.closed {
                return self.ended();
            }
            if let Some(incoming) = self.decoded() {
                return Some(incoming);
            }
            let read = match source {
                Source::Readiness => self.stream.try_read(&mut buffer),
                Source::Kernel => nix::unistd::read(&self.stream, &mut buffer).map_err(io::Error::from),
            };
            match read {
                Ok(0) => self.close(),
                Ok(length) => self.decoder.feed(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => self.close(),
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Incoming> {
        while !self.out.is_empty() && self.stream.poll_write_ready(cx).is_ready() {
            self.flush();
        }
        // Without budget it is not looked at again before the next tick: a flood reaches the child's own buffer.
        while !self.told && self.has_budget() {
            if let Some(incoming) = self.read(Source::Readiness) {
                return Poll::Ready(incoming);
            }
            if self.stream.poll_read_ready(cx).is_pending() {
                break;
            }
        }
        Poll::Pending
    }
}

/// All links, by slot.
#[derive(Debug, Default)]
pub struct Links {
    links: Vec<Option<ParentLink>>,
    /// Who is looked at first: it goes round, so that none of them can talk over the others.
    first: usize,
}

impl Links {
    /// Room for this many slots.
    pub fn new(slots: u32) -> Self {
        Self { links: (0..slots).map(|_| None).collect(), first: 0 }
    }

    /// A slot has a new link, or none any more.
    pub fn set(&mut self, slot: u32, link: Option<ParentLink>) {
        self.links[slot as usize] = link;
    }

    /// Queues a message for a slot; without a link it goes nowhere.
    pub fn send(&mut self, slot: u32, message: &ToChild) {
        if let Some(link) = &mut self.links[slot as usize] {
            link.send(message);
        }
    }

    /// A tick: every child may be read again.
    pub fn refill(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.budget = BUDGET;
        }
    }

    /// What a slot has sent already, within its budget.
    pub fn read_now(&mut self, slot: u32) -> Option<Incoming> {
        let link = self.links[slot as usize].as_mut().filter(|link| link.has_budget())?;
        link.read(Source::Readiness)
    }

    /// The last words of a child that is dead, whether or not the runtime has noticed them yet.
    pub fn read_last(&mut self, slot: u32) -> Option<Incoming> {
        self.links[slot as usize].as_mut()?.read(Source::Kernel)
    }

    /// The next message of any child. Safe to drop and call again.
    pub async fn next(&mut self) -> (u32, Incoming) {
        std::future::poll_fn(|cx| {
            let count = self.links.len();
            for offset in 0..count {
                let slot = (self.first + offset) % count;
                if let Some(link) = &mut self.links[slot]
                    && let Poll::Ready(incoming) = link.poll(cx)
                {
                    self.first = (slot + 1) % count;
                    return Poll::Ready((slot as u32, incoming));
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pair() -> (ParentLink, StdStream) {
        let (ours, theirs) = StdStream::pair().unwrap();
        (ParentLink::new(ours).unwrap(), theirs)
    }

    fn view(bytes: usize) -> ToChild {
        let payload = serde_json::value::to_raw_value(&"x".repeat(bytes)).unwrap();
        ToChild::View { id: 1, payload }
    }

    /// Contract: P5.
    #[tokio::test]
    async fn a_child_that_does_not_read_neither_blocks_nor_bloats() {
        let (mut link, child) = pair();
        for _ in 0..50 {
            link.send(&view(1 << 20));
        }
        assert!(link.queued() <= MAX_QUEUED);
        let before = link.queued();
        link.send(&ToChild::ListenGranted);
        assert!(link.queued() > before, "commands still find room");
        drop(child);
    }

    #[tokio::test]
    async fn a_child_that_lets_commands_pile_up_loses_its_link() {
        let (mut link, _child) = pair();
        let steer = ToChild::Steer { id: 1, total: 1, targets: vec![0; 10_000] };
        while !link.closed {
            link.send(&steer);
            assert!(link.queued() <= MAX_QUEUED + MAX_QUEUED_COMMANDS);
        }
        assert_eq!(link.queued(), 0);
    }

    #[tokio::test]
    async fn a_flood_of_one_child_does_not_hide_another() {
        let mut links = Links::new(2);
        let (flooded, mut flooder) = pair();
        let (quiet, mut other) = pair();
        links.set(0, Some(flooded));
        links.set(1, Some(quiet));
        let many = encode(&FromChild::Ready).unwrap().repeat(5000);
        std::thread::spawn(move || flooder.write_all(&many));
        other.write_all(&encode(&FromChild::LeftGroup).unwrap()).unwrap();
        let mut frames = 0;
        while links.next().await.0 != 1 {
            frames += 1;
        }
        assert!(frames <= 4, "{frames} frames came first");
        // Between two ticks a child's share is bounded, whatever it sends.
        let more = async {
            loop {
                links.next().await;
                frames += 1;
            }
        };
        let quiet_for = std::time::Duration::from_millis(100);
        let _ = tokio::time::timeout(quiet_for, more).await;
        assert!(frames <= BUDGET.0, "{frames} frames in one tick");
    }

    #[tokio::test]
    async fn noise_closes_the_link_and_says_so_once() {
        let mut links = Links::new(1);
        let (link, mut child) = pair();
        links.set(0, Some(link));
        child.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(matches!(links.next().await, (0, Incoming::Closed)));
        assert!(links.read_now(0).is_none());
    }

    #[tokio::test]
    async fn last_words_are_read_after_the_child_is_gone() {
        let mut links = Links::new(1);
        let (link, mut child) = pair();
        links.set(0, Some(link));
        child.write_all(&encode(&FromChild::Drained).unwrap()).unwrap();
        drop(child);
        assert!(matches!(links.next().await, (0, Incoming::Frame(FromChild::Drained))));
        assert!(matches!(links.next().await, (0, Incoming::Closed)));
    }
}
