//! The listener and its connections, which can be reset from outside and shut as a whole.
//!
//! A reset is a real RST (no linger), for that is what clients meet when a front end of the platform goes away.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::{IncomingStream, Listener};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::lock;

/// Cuts one connection.
#[derive(Debug, Clone)]
pub(crate) struct Cutter(Arc<CancellationToken>);

impl Cutter {
    /// Resets the connection: nothing more is read from it or written to it.
    pub(crate) fn cut(&self) {
        self.0.cancel();
    }
}

impl axum::extract::connect_info::Connected<IncomingStream<'_, Door>> for Cutter {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.io().cutter.clone()
    }
}

/// All connections that are open, so that an outage can reset them.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Vec<Weak<CancellationToken>>>);

impl Lines {
    fn add(&self, cutter: &Cutter) {
        let mut lines = lock(&self.0);
        if lines.len() == lines.capacity() {
            lines.retain(|line| line.strong_count() > 0);
        }
        lines.push(Arc::downgrade(&cutter.0));
    }

    /// Resets every connection.
    pub(crate) fn cut_all(&self) {
        for line in std::mem::take(&mut *lock(&self.0)) {
            if let Some(token) = line.upgrade() {
                token.cancel();
            }
        }
    }
}

/// The listener; while `open` is false its port refuses connections.
pub(crate) struct Door {
    listener: Option<TcpListener>,
    address: SocketAddr,
    open: watch::Receiver<bool>,
    lines: Arc<Lines>,
}

impl Door {
    pub(crate) fn new(listener: TcpListener, open: watch::Receiver<bool>, lines: Arc<Lines>) -> io::Result<Self> {
        Ok(Self { address: listener.local_addr()?, listener: Some(listener), open, lines })
    }
}

impl Listener for Door {
    type Io = Line;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Line, SocketAddr) {
        loop {
            if !*self.open.borrow_and_update() {
                self.listener = None;
                if self.open.wait_for(|open| *open).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            let listener = match &self.listener {
                Some(listener) => listener,
                None => match TcpListener::bind(self.address).await {
                    Ok(listener) => self.listener.insert(listener),
                    Err(error) => {
                        tracing::warn!(%error, address = %self.address, "the simulator can't listen again yet");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    }
                },
            };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        // Answers are small and complete: waiting to fill a segment would only add latency.
                        let _ = stream.set_nodelay(true);
                        let line = Line::new(stream);
                        self.lines.add(&line.cutter);
                        return (line, peer);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the simulator can't accept a connection");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                },
                changed = self.open.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// One connection.
pub(crate) struct Line {
    stream: TcpStream,
    cutter: Cutter,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Line {
    fn new(stream: TcpStream) -> Self {
        let token = CancellationToken::new();
        Self { stream, cut: Box::pin(token.clone().cancelled_owned()), cutter: Cutter(Arc::new(token)) }
    }

    fn reset(&self) -> io::Error {
        let _ = self.stream.set_zero_linger();
        io::ErrorKind::ConnectionReset.into()
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.cutter.0.is_cancelled() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.cutter.0.is_cancelled() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cutter.0.is_cancelled() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
