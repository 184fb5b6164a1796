//! A way to the broker that can be cut (what a process's end looks like from the broker's side) or fall silent (a peer that
//! stands still behind a connection that stands).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::{JoinHandle, JoinSet},
};

/// Passes on what is said, until it is dropped.
pub(crate) struct Proxy {
    port: u16,
    silent: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A way to a port on this machine.
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let silent = Arc::new(AtomicBool::new(false));
        let swallows = silent.clone();
        let task = tokio::spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((here, _)) = listener.accept().await {
                let Ok(there) = TcpStream::connect(("127.0.0.1", target)).await else { continue };
                let ((from_here, to_here), (from_there, to_there)) = (here.into_split(), there.into_split());
                let swallows = swallows.clone();
                links.spawn(async move {
                    tokio::select! {
                        () = pass(from_here, to_there, &swallows) => {}
                        () = pass(from_there, to_here, &swallows) => {}
                    }
                });
            }
        });
        Self { port, silent, task }
    }

    /// Where it begins.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on everything is swallowed, or passed on again.
    pub(crate) fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallows: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !swallows.load(Ordering::Relaxed) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
