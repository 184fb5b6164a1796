//! A way to the broker that can be cut: what a process's end looks like from the broker's side.

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Passes on what is said, until it is dropped.
pub(crate) struct Proxy {
    port: u16,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A way to a port on this machine.
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let task = tokio::spawn(async move {
            let mut links = tokio::task::JoinSet::new();
            while let Ok((mut here, _)) = listener.accept().await {
                links.spawn(async move {
                    if let Ok(mut there) = TcpStream::connect(("127.0.0.1", target)).await {
                        let _ = copy_bidirectional(&mut here, &mut there).await;
                    }
                });
            }
        });
        Self { port, task }
    }

    /// Where it begins.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
