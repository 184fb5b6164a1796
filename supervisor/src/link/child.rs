//! A shard's end of the link, for the runtime of its HTTP thread: busy work on the main thread neither delays a check-in
//! nor hides that the primary is gone.

use std::{os::unix::net::UnixStream as StdStream, sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot, watch},
};

use super::{
    codec::{Decoder, FrameError, encode},
    fd::{FdError, inherited},
    frame::{FromChild, ToChild},
    views::Views,
};
use crate::spec::{INCARNATION_ENV, LIFE_ENV, LINK_FD_ENV};

/// The link cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The primary handed over no usable descriptor.
    #[error("the link to the primary is unusable")]
    Descriptor(#[from] FdError),
    /// It is no socket that can be read here.
    #[error("the link to the primary is no socket")]
    Socket(#[source] std::io::Error),
    /// A message could not be put on the wire.
    #[error("message to the primary refused")]
    Frame(#[from] FrameError),
    /// The primary is gone.
    #[error("the primary is gone")]
    Lost,
}

/// What the primary wants, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// Finish and exit with status 0.
    Drain {
        /// When this process will be killed, from now.
        deadline: Duration,
    },
    /// Attach a program to the listener, then [`LinkHandle::steered`].
    Steer {
        /// For the answer.
        id: u64,
        /// How many listeners there are.
        total: u32,
        /// The places that get connections.
        targets: Vec<u32>,
    },
    /// Detach the program, then [`LinkHandle::steered`].
    Unsteer {
        /// For the answer.
        id: u64,
    },
    /// The primary is gone: exit at once, from this very thread.
    Lost,
}

/// An inherited link before it is in use.
#[derive(Debug)]
pub struct ChildLink {
    stream: StdStream,
    incarnation: u64,
    life: u64,
}

impl ChildLink {
    /// The link that the primary handed to this process; `None` without a primary.
    pub fn from_env() -> Result<Option<Self>, LinkError> {
        let Some(fd) = inherited(LINK_FD_ENV)? else { return Ok(None) };
        let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
        let link = Self::over(StdStream::from(fd), number(INCARNATION_ENV).unwrap_or_default())?;
        Ok(Some(Self { life: number(LIFE_ENV).unwrap_or(1), ..link }))
    }

    /// A link over a socket at hand.
    pub fn over(stream: StdStream, incarnation: u64) -> Result<Self, LinkError> {
        stream.local_addr().and_then(|_| stream.set_nonblocking(true)).map_err(LinkError::Socket)?;
        Ok(Self { stream, incarnation, life: 1 })
    }

    /// Which life of its slot this process is.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The first, second, … life of its slot under this primary: above one, this process replaces another.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Puts it to work on the current runtime, and says hello.
    pub fn start(self) -> Result<(LinkHandle, LinkEvents), LinkError> {
        let stream = UnixStream::from_std(self.stream).map_err(LinkError::Socket)?;
        let (reader, writer) = stream.into_split();
        let (out, outgoing) = mpsc::channel(64);
        let (events, incoming) = mpsc::unbounded_channel();
        let (granted, grants) = watch::channel(Some(0));
        let handle = LinkHandle { out, grants, views: Arc::default() };
        let hello = FromChild::Hello { pid: std::process::id() as i32, incarnation: self.incarnation };
        let first = encode(&hello)?;
        tokio::spawn(write(writer, first, outgoing));
        tokio::spawn(read(reader, events, granted, handle.views.clone(), handle.out.downgrade()));
        Ok((handle, LinkEvents(incoming)))
    }
}

/// What the primary wants, as it comes.
#[derive(Debug)]
pub struct LinkEvents(mpsc::UnboundedReceiver<LinkEvent>);

impl LinkEvents {
    /// The next one. After [`LinkEvent::Lost`] there is only that.
    pub async fn next(&mut self) -> LinkEvent {
        self.0.recv().await.unwrap_or(LinkEvent::Lost)
    }
}

/// Speaks to the primary; may be cloned.
#[derive(Debug, Clone)]
pub struct LinkHandle {
    out: mpsc::Sender<Vec<u8>>,
    grants: watch::Receiver<Option<u64>>,
    views: Arc<Views>,
}

impl LinkHandle {
    async fn say(&self, message: &FromChild) -> Result<(), LinkError> {
        self.out.send(encode(message)?).await.map_err(|_| LinkError::Lost)
    }

    /// Waits for leave to listen on the health port. Bind and listen then without delay, and say [`Self::listening`].
    pub async fn listen(&self) -> Result<(), LinkError> {
        let mut grants = self.grants.clone();
        let before = grants.borrow_and_update().ok_or(LinkError::Lost)?;
        self.say(&FromChild::Listen).await?;
        let seen = grants.wait_for(|granted| *granted != Some(before)).await.map_err(|_| LinkError::Lost)?;
        seen.map(drop).ok_or(LinkError::Lost)
    }

    /// This process listens.
    pub async fn listening(&self) -> Result<(), LinkError> {
        self.say(&FromChild::Listening).await
    }

    /// This process serves.
    pub async fn ready(&self) -> Result<(), LinkError> {
        self.say(&FromChild::Ready).await
    }

    /// This process does not serve yet, or any more.
    pub async fn not_ready(&self, reason: impl Into<String>) -> Result<(), LinkError> {
        self.say(&FromChild::NotReady { reason: reason.into() }).await
    }

    /// This process waits for something outside, for as long as it takes.
    pub async fn waiting(&self, reason: impl Into<String>) -> Result<(), LinkError> {
        self.say(&FromChild::Waiting { reason: reason.into() }).await
    }

    /// The loops that do not get on, and the report.
    pub async fn check_in(&self, stalled: Vec<String>, report: Box<RawValue>) -> Result<(), LinkError> {
        self.say(&FromChild::CheckIn { stalled, report }).await
    }

    /// A [`LinkEvent::Steer`] or [`LinkEvent::Unsteer`] is done, or cannot be done here.
    pub async fn steered(&self, id: u64) -> Result<(), LinkError> {
        self.say(&FromChild::Steered { id }).await
    }

    /// The listener is closed.
    pub async fn left_group(&self) -> Result<(), LinkError> {
        self.say(&FromChild::LeftGroup).await
    }

    /// Nothing is left to do.
    pub async fn drained(&self) -> Result<(), LinkError> {
        self.say(&FromChild::Drained).await
    }

    /// What the box looks like, no older than this call. However many ask at once, one request is under way.
    pub async fn view(&self) -> Result<Arc<RawValue>, LinkError> {
        let (answer, view) = oneshot::channel();
        if let Some(id) = self.views.ask(answer) {
            self.say(&FromChild::ViewRequest { id }).await?;
        }
        view.await.map_err(|_| LinkError::Lost)
    }
}

async fn write(mut writer: OwnedWriteHalf, first: Vec<u8>, mut outgoing: mpsc::Receiver<Vec<u8>>) {
    let mut bytes = Some(first);
    while let Some(next) = bytes {
        if writer.write_all(&next).await.is_err() {
            // The reading half sees the same end and says so.
            return;
        }
        bytes = outgoing.recv().await;
    }
}

async fn read(
    mut reader: OwnedReadHalf,
    events: mpsc::UnboundedSender<LinkEvent>,
    granted: watch::Sender<Option<u64>>,
    views: Arc<Views>,
    out: mpsc::WeakSender<Vec<u8>>,
) {
    let (mut decoder, mut buffer) = (Decoder::default(), vec![0; 16 << 10]);
    loop {
        match decoder.next::<ToChild>() {
            Ok(Some((message, _))) => {
                let event = match message {
                    ToChild::Drain { deadline_ms } => LinkEvent::Drain { deadline: Duration::from_millis(deadline_ms) },
                    ToChild::Steer { id, total, targets } => LinkEvent::Steer { id, total, targets },
                    ToChild::Unsteer { id } => LinkEvent::Unsteer { id },
                    ToChild::ListenGranted => {
                        granted.send_modify(|count| *count = count.map(|count| count + 1));
                        continue;
                    }
                    ToChild::View { id, payload } => {
                        if let Some(id) = views.answered(id, payload)
                            && let Some(out) = out.upgrade()
                            && let Ok(bytes) = encode(&FromChild::ViewRequest { id })
                        {
                            // With a full queue the next caller asks again, when its patience ends.
                            let _ = out.try_send(bytes);
                        }
                        continue;
                    }
                };
                // Whoever does not listen to the primary does not have to.
                let _ = events.send(event);
            }
            Ok(None) => match reader.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(length) => decoder.feed(&buffer[..length]),
            },
            Err(_) => break,
        }
    }
    granted.send_replace(None);
    views.lose();
    let _ = events.send(LinkEvent::Lost);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Incoming, Links, ParentLink};

    fn pair() -> (Links, ChildLink) {
        let (ours, theirs) = StdStream::pair().unwrap();
        let mut links = Links::new(1);
        links.set(0, Some(ParentLink::new(ours).unwrap()));
        (links, ChildLink::over(theirs, 7).unwrap())
    }

    async fn heard(links: &mut Links) -> FromChild {
        match links.next().await.1 {
            Incoming::Frame(frame) => frame,
            Incoming::Closed => panic!("closed"),
        }
    }

    #[tokio::test]
    async fn a_shard_listens_only_after_it_was_granted() {
        let (mut links, child) = pair();
        let (handle, _events) = child.start().unwrap();
        assert!(matches!(heard(&mut links).await, FromChild::Hello { incarnation: 7, .. }));
        let asking = tokio::spawn(async move { handle.listen().await });
        assert!(matches!(heard(&mut links).await, FromChild::Listen));
        assert!(!asking.is_finished());
        links.send(0, &ToChild::ListenGranted);
        asking.await.unwrap().unwrap();
    }

    /// Contract: H2.
    #[tokio::test]
    async fn many_that_ask_for_a_view_share_a_request_and_none_gets_an_older_one() {
        let (mut links, child) = pair();
        let (handle, _events) = child.start().unwrap();
        heard(&mut links).await;
        let ask = |count: usize| {
            let handle = handle.clone();
            (0..count)
                .map(move |_| {
                    tokio::spawn({
                        let handle = handle.clone();
                        async move { handle.view().await }
                    })
                })
                .collect::<Vec<_>>()
        };
        let first = ask(1);
        let FromChild::ViewRequest { id } = heard(&mut links).await else { panic!("no request") };
        let later = ask(20);
        while handle.views.queued() < 20 {
            tokio::task::yield_now().await;
        }
        links.send(0, &ToChild::View { id, payload: RawValue::from_string("1".into()).unwrap() });
        for view in first {
            assert_eq!(view.await.unwrap().unwrap().get(), "1");
        }
        let FromChild::ViewRequest { id } = heard(&mut links).await else { panic!("no request") };
        links.send(0, &ToChild::View { id, payload: RawValue::from_string("2".into()).unwrap() });
        for view in later {
            assert_eq!(view.await.unwrap().unwrap().get(), "2");
        }
    }

    /// Contract: P5. Field report R42.
    #[tokio::test]
    async fn the_primarys_end_is_an_end_for_everybody_who_waits() {
        let (mut links, child) = pair();
        let (handle, mut events) = child.start().unwrap();
        heard(&mut links).await;
        let (view, listen) = (handle.clone(), handle.clone());
        let view = tokio::spawn(async move { view.view().await.is_err() });
        let listen = tokio::spawn(async move { listen.listen().await.is_err() });
        heard(&mut links).await;
        heard(&mut links).await;
        drop(links);
        assert_eq!(events.next().await, LinkEvent::Lost);
        assert!(view.await.unwrap() && listen.await.unwrap());
        assert!(matches!(handle.view().await, Err(LinkError::Lost)));
        assert_eq!(events.next().await, LinkEvent::Lost);
    }
}
