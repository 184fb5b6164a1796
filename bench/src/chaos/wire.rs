//! The network on which clients choose ids: a server in the harness, one line for each request and answer.
//!
//! A request is `<key> <chat> <id> <text>` with tabs between; the answer is its key and a word: `shown` when the chat has this id
//! now (or had it), `refused` when nothing was done, `lost` when it was done and the client shall not learn of it. An id that a
//! chat knows is shown no second time.

use std::{collections::HashSet, net::SocketAddr, sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Mutex, mpsc},
    task::JoinHandle,
};

use super::{Scene, judge::number};
use crate::stand::Failure;

/// One in so many requests is refused, and in one the answer is lost.
const FAILS_ONE_IN: u32 = 500;
/// An answer takes up to so long, so that there is always something on the wire.
const SLOWEST_MS: u64 = 6;

/// The server. It ends when dropped.
pub(super) struct Server {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

struct Chats {
    seen: HashSet<(String, String)>,
    rng: StdRng,
}

impl Server {
    pub(super) async fn start(scene: &Arc<Scene>) -> Result<Self, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let chats = Chats { seen: HashSet::new(), rng: StdRng::seed_from_u64(scene.plan.seed) };
        let (scene, chats) = (scene.clone(), Arc::new(Mutex::new(chats)));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // It ends with its client, which may be in the middle of a line.
                tokio::spawn(serve(stream, scene.clone(), chats.clone()));
            }
        });
        Ok(Self { address, serving })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, scene: Arc<Scene>, chats: Arc<Mutex<Chats>>) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let (answers, mut answered) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(answer) = answered.recv().await {
            if write.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.next_line().await? {
        let mut words = line.splitn(4, '\t');
        let (Some(key), Some(chat), Some(id), Some(text)) = (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (word, wait) = {
            let mut chats = chats.lock().await;
            let wait = Duration::from_millis(chats.rng.random_range(0..SLOWEST_MS));
            let luck = chats.rng.random_range(0..FAILS_ONE_IN);
            if luck != 0
                && chats.seen.insert((chat.to_owned(), id.to_owned()))
                && let Some(job) = number(text)
            {
                scene.judge.lock().expect("judge").see(job);
            }
            (["refused", "lost"].get(luck as usize).copied().unwrap_or("shown"), wait)
        };
        let (answers, answer) = (answers.clone(), format!("{key}\t{word}\n"));
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = answers.send(answer);
        });
    }
    Ok(())
}
