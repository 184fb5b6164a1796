//! The thread that answers on the health port, whatever the rest of the process is busy with.
//!
//! It listens when it is told to and not before: a group's order is the order in which its sockets began to listen, and
//! whoever steers the group must know it. It leaves without losing a connection when new ones have been steered away
//! first.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    coalesce::Coalesced,
    connections::{Connections, Limits},
    routes,
    sockopt::{self, Share},
    steering::{self, SteerError},
    view::ViewSource,
};

/// With whom the port is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// With the other shards of the box.
    Group,
    /// With nobody: the process is the only one.
    Alone,
}

/// How the health port is served.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Where to listen; `[::]` takes IPv4 too.
    pub address: SocketAddr,
    /// With whom.
    pub sharing: Sharing,
    /// What clients may take.
    pub limits: Limits,
}

/// Why the health port did not do as told.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address can't be had.
    #[error("can't listen on the health port {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// It must listen first.
    #[error("the health port is not open")]
    NotListening,
    /// It does already.
    #[error("the health port is open already")]
    Listening,
    /// The targets make no sense.
    #[error("can't steer new connections")]
    Targets(#[from] SteerError),
    /// The kernel refuses.
    #[error("can't steer new connections")]
    Steer {
        /// What the system says.
        source: io::Error,
    },
    /// The thread has ended.
    #[error("the health port's thread has ended")]
    Gone,
}

/// How a listener ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Connections that were taken from the queue after new ones had been steered away.
    pub drained: usize,
    /// Connections that did not end in time.
    pub cut_off: usize,
}

enum Command {
    Listen(oneshot::Sender<Result<SocketAddr, HttpError>>),
    Steer(Option<Vec<steering::Instruction>>, oneshot::Sender<Result<(), HttpError>>),
    Leave(oneshot::Sender<Result<Left, HttpError>>),
}

/// A handle to the thread. The thread ends with the last one.
#[derive(Debug, Clone)]
pub struct HttpThread {
    commands: mpsc::Sender<Command>,
    runtime: Handle,
}

impl HttpThread {
    /// Starts the thread; it does not listen yet.
    pub fn spawn(config: HttpConfig, source: Arc<dyn ViewSource>) -> io::Result<Self> {
        let (commands, received) = mpsc::channel(16);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || runtime.block_on(run(config, source, received)))?;
        Ok(Self { commands, runtime: handle })
    }

    /// Binds and listens. Returns when the socket is in its group.
    pub async fn listen(&self) -> Result<SocketAddr, HttpError> {
        self.ask(Command::Listen).await
    }

    /// Sends the group's new connections to `targets`, indices in a group of `total` sockets. It holds for the whole
    /// group, also after this socket has left it.
    pub async fn steer(&self, targets: &[u32], total: u32) -> Result<(), HttpError> {
        let program = steering::program(targets, total)?;
        self.ask(|done| Command::Steer(Some(program), done)).await
    }

    /// Lets the kernel spread new connections over the whole group again.
    pub async fn unsteer(&self) -> Result<(), HttpError> {
        self.ask(|done| Command::Steer(None, done)).await
    }

    /// Ends: takes what is still in the queue, closes, lets answers under way finish. New connections must have been
    /// steered away; where this is the only socket, those that come too late are refused. It may listen again.
    pub async fn leave(&self) -> Result<Left, HttpError> {
        self.ask(Command::Leave).await
    }

    /// Runs something else on this thread.
    pub fn spawn_on<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.runtime.spawn(future)
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, HttpError>>) -> Command,
    ) -> Result<T, HttpError> {
        let (done, answer) = oneshot::channel();
        self.commands.send(command(done)).await.map_err(|_| HttpError::Gone)?;
        answer.await.map_err(|_| HttpError::Gone)?
    }
}

async fn run(config: HttpConfig, source: Arc<dyn ViewSource>, mut commands: mpsc::Receiver<Command>) {
    let router = routes::router(Coalesced::new(source, config.limits.answer));
    let mut connections = Connections::new(router, config.limits.clone());
    let mut listener: Option<TcpListener> = None;
    let mut deaf = false;
    loop {
        let room = connections.has_room();
        tokio::select! {
            command = commands.recv() => {
                // A caller that no longer waits for the answer loses nothing.
                match command {
                    None => return,
                    Some(Command::Listen(done)) => drop(done.send(open(&config, &mut listener))),
                    Some(Command::Steer(program, done)) => drop(done.send(steer(listener.as_ref(), program))),
                    Some(Command::Leave(done)) => drop(done.send(match listener.take() {
                        Some(listener) => Ok(leave(listener, &mut connections, &config.limits).await),
                        None => Err(HttpError::NotListening),
                    })),
                }
            }
            stream = accept(listener.as_ref(), &mut deaf), if room => connections.add(stream),
            () = connections.changed() => {}
        }
    }
}

fn open(config: &HttpConfig, listener: &mut Option<TcpListener>) -> Result<SocketAddr, HttpError> {
    if listener.is_some() {
        return Err(HttpError::Listening);
    }
    let share = if config.sharing == Sharing::Group { Share::Port } else { Share::Nothing };
    let opened = sockopt::bound(config.address, share).and_then(sockopt::listening).and_then(TcpListener::from_std);
    let failed = |source| HttpError::Listen { address: config.address, source };
    let opened = opened.map_err(failed)?;
    let address = opened.local_addr().map_err(failed)?;
    tracing::info!(%address, "the health port is open");
    *listener = Some(opened);
    Ok(address)
}

fn steer(listener: Option<&TcpListener>, program: Option<Vec<steering::Instruction>>) -> Result<(), HttpError> {
    let listener = listener.ok_or(HttpError::NotListening)?;
    let done = match program {
        Some(program) => sockopt::steer(listener, &program),
        None => sockopt::unsteer(listener),
    };
    done.map_err(|source| HttpError::Steer { source })
}

/// The next connection. Errors are waited out: out of descriptors now is no reason to be deaf later. `deaf` tells a
/// state from its repetitions.
async fn accept(listener: Option<&TcpListener>, deaf: &mut bool) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                *deaf = false;
                return stream;
            }
            Err(error) if !*deaf => {
                *deaf = true;
                tracing::warn!(%error, "connections to the health port can't be accepted");
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn leave(listener: TcpListener, connections: &mut Connections, limits: &Limits) -> Left {
    let mut drained = 0;
    let mut deaf = false;
    connections.last_answers();
    // A client whose first packet was answered by this socket completes its connection here, a round trip later.
    let lingered = tokio::time::sleep(limits.linger);
    tokio::pin!(lingered);
    loop {
        let room = connections.has_room();
        tokio::select! {
            stream = accept(Some(&listener), &mut deaf), if room => {
                drained += 1;
                connections.add(stream);
            }
            () = connections.changed() => {}
            () = lingered.as_mut() => break,
        }
    }
    // Asked of the kernel itself: the runtime may not have heard of the last ones yet.
    if let Ok(listener) = listener.into_std() {
        while let Ok((stream, _)) = listener.accept() {
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                drained += 1;
                connections.add(stream);
            }
        }
    }
    let under_way = connections.len();
    let cut_off = connections.end().await;
    tracing::info!(drained, under_way, cut_off, "the health port is closed");
    Left { drained, cut_off }
}
