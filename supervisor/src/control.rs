//! The control socket: one JSON line asks, one answers. For `shardvisor status` and for a reload that can be waited for.
//!
//! Whoever may open it may restart shards, so it is made with mode 0600 in a directory of mode 0700.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener as StdListener, UnixStream as StdStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader as AsyncBufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};
use tracing::debug;

/// A question is one short line.
const MAX_REQUEST: u64 = 64 << 10;
/// So many may ask at once; the rest waits.
const MAX_CONNECTIONS: usize = 16;
/// Who has connected must ask soon.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the primary is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "request")]
pub enum Request {
    /// What does the box look like?
    Status,
    /// Replace all shards one after the other, and answer when that is done.
    Reload,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The box, as the observer shows it.
    Status {
        /// The view.
        view: Box<RawValue>,
    },
    /// It is done.
    Done,
    /// It could not be done.
    Failed {
        /// Why, for people.
        reason: String,
    },
}

/// The socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It cannot be made.
    #[error("cannot make the control socket {}", path.display())]
    Bind {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Nobody answers there.
    #[error("no answer from {}", path.display())]
    Call {
        /// Where.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

/// Answers questions of one kind. Each runs in a task of its own.
pub trait Handler: Send + Sync + 'static {
    /// What is asked.
    type Request: DeserializeOwned + Send;
    /// What is answered.
    type Response: Serialize + Send;
    /// Answers.
    fn answer(&self, request: Self::Request) -> impl Future<Output = Self::Response> + Send;
}

/// The listening socket; removed when dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: StdListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Makes the socket. What is left of an earlier life is replaced: call this with the slot locks in hand.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        let make = || {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = StdListener::bind(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let path = path.to_owned();
        match make() {
            Ok(listener) => Ok(Self { listener, path }),
            Err(source) => Err(ControlError::Bind { path, source }),
        }
    }

    /// Answers until dropped. Needs a tokio runtime.
    pub async fn serve<H: Handler>(self, handler: H) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        let (handler, free) = (Arc::new(handler), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        loop {
            let Ok(place) = free.clone().acquire_owned().await else { return Ok(()) };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    debug!(%error, "control connection not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let handler = handler.clone();
            tokio::spawn(async move {
                if let Err(error) = converse(stream, &*handler).await {
                    debug!(%error, "control connection ended");
                }
                drop(place);
            });
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

async fn converse<H: Handler>(stream: UnixStream, handler: &H) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = AsyncBufReader::new(reader.take(MAX_REQUEST));
    let mut line = Vec::new();
    timeout(PATIENCE, reader.read_until(b'\n', &mut line)).await??;
    let mut answer = match serde_json::from_slice(&line) {
        Ok(request) => serde_json::to_vec(&handler.answer(request).await)?,
        Err(error) => serde_json::to_vec(&Response::Failed { reason: format!("not understood: {error}") })?,
    };
    answer.push(b'\n');
    timeout(PATIENCE, writer.write_all(&answer)).await?
}

/// Asks and waits for the answer, for at most `patience`.
pub fn call<Q: Serialize, A: DeserializeOwned>(
    path: &Path,
    request: &Q,
    patience: Duration,
) -> Result<A, ControlError> {
    let ask = || -> io::Result<A> {
        let mut stream = StdStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        if BufReader::new(stream).read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    };
    ask().map_err(|source| ControlError::Call { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_survives_the_wire() {
        let view = RawValue::from_string("{\"a\":[1]}".to_owned()).unwrap();
        let wire = serde_json::to_string(&Response::Status { view }).unwrap();
        assert_eq!(wire, "{\"status\":{\"view\":{\"a\":[1]}}}");
        let back: Response = serde_json::from_str(&wire).unwrap();
        assert!(matches!(back, Response::Status { view } if view.get() == "{\"a\":[1]}"));
    }

    struct Echo;

    impl Handler for Echo {
        type Request = Request;
        type Response = Response;
        async fn answer(&self, request: Request) -> Response {
            Response::Failed { reason: format!("{request:?}") }
        }
    }

    async fn asked(path: &Path, line: &'static str) -> String {
        let path = path.to_owned();
        let ask = move || {
            let mut stream = StdStream::connect(path).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).unwrap();
            answer
        };
        tokio::task::spawn_blocking(ask).await.unwrap()
    }

    #[tokio::test]
    async fn it_answers_its_owner_alone_and_survives_nonsense() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(StdListener::bind(&path).unwrap());
        let socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let serving = tokio::spawn(socket.serve(Echo));
        for nonsense in ["\n", "{\"request\":\"reboot\"}\n", "{}\n", "\u{0}\n"] {
            assert!(asked(&path, nonsense).await.contains("not understood"), "{nonsense}");
        }
        assert!(asked(&path, "{\"request\":\"reload\"}\n").await.contains("Reload"));
        let there = path.clone();
        let answer: Response =
            tokio::task::spawn_blocking(move || call(&there, &Request::Status, PATIENCE)).await.unwrap().unwrap();
        assert!(matches!(answer, Response::Failed { reason } if reason == "Status"));
        serving.abort();
        assert!(serving.await.unwrap_err().is_cancelled());
        assert!(!path.exists());
    }

    #[test]
    fn nobody_there_is_an_error_that_names_the_socket() {
        let error =
            call::<_, Response>(Path::new("/nonexistent/control.sock"), &Request::Status, PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "no answer from /nonexistent/control.sock");
    }
}
