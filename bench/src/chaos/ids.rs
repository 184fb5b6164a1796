//! The shard's side of the network on which clients choose ids, and the process that such a shard is.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use clap::Args;
use shard::{
    directory::ChannelSpec,
    identity::ShardId,
    job::{Job, Task},
    metrics::Metrics,
    platform::{Closed, Done, Failed, Inbox, Platform, PlatformKind, Sender},
    queue::RetryPolicy,
    registry::RedisOptions,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::{SHARDS, Scene};
use crate::stand::{
    Failure,
    jobs::Spread,
    network::stay_up,
    shard::{ShardPlan, run, stop_with_input},
};

/// A shard of a run, as it is started.
#[derive(Debug, Args)]
pub struct ShardArguments {
    #[arg(long)]
    index: u32,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    queue_url: String,
    #[arg(long)]
    registry_url: String,
    #[arg(long)]
    network: SocketAddr,
    #[arg(long)]
    channels: u32,
}

/// How such a shard is started.
pub(super) fn command(program: &Path, scene: &Scene, index: u32, network: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.arg("shard").arg("--dir").arg(&scene.dir).args(["--index", &index.to_string()]);
    command.args(["--queue-url", &scene.amqp, "--registry-url", &scene.redis]);
    command.args(["--network", &network.to_string(), "--channels", &scene.spread.channels.to_string()]);
    command
}

/// Is a shard of a run, until its standard input ends.
pub async fn run_shard(arguments: ShardArguments) -> Result<(), Failure> {
    let ShardArguments { index, dir, queue_url, registry_url, network, channels } = arguments;
    let plan = ShardPlan {
        dir,
        shard: ShardId::new(index, SHARDS),
        queue_url: Some(queue_url),
        registry_url: Some(registry_url),
        registry: RedisOptions::default(),
        prefetch: 200,
        retry: RetryPolicy { first: Duration::from_millis(200), ..RetryPolicy::default() },
        channels: Spread { channels, chats: 0, shards: SHARDS }.specs(PlatformKind::Telegram),
        metrics: Arc::new(Metrics::default()),
    };
    run(plan, |life| Ids { life, line: Arc::new(Line::new(network)) }, stop_with_input()).await
}

/// The network, as one life of a shard sees it.
#[derive(Clone)]
struct Ids {
    life: u64,
    line: Arc<Line>,
}

#[async_trait]
impl Platform for Ids {
    fn kind(&self) -> PlatformKind {
        PlatformKind::Telegram
    }

    /// Another one in each life, which no real platform's should be: so nothing but the id that the guard keeps from an earlier
    /// life stands between a job and a second copy of it.
    fn provider_id(&self, job: &Job) -> Option<String> {
        Some(format!("{}@{}", job.id, self.life))
    }

    fn sender(&self, _: &Arc<ChannelSpec>) -> Option<Arc<dyn Sender>> {
        Some(Arc::new(self.clone()))
    }

    async fn receive(&self, _: Arc<ChannelSpec>, inbox: Arc<dyn Inbox>, stop: CancellationToken) -> Closed {
        inbox.connected();
        stay_up(&*inbox, &stop).await
    }
}

#[async_trait]
impl Sender for Ids {
    async fn perform(&self, job: &Job, provider_id: Option<&str>) -> Result<Done, Failed> {
        let (Task::Send(data), Some(id)) = (&job.task, provider_id) else {
            return Err(Failed::Permanent { reason: "unsupported", error: "this network knows sends alone".into() });
        };
        let chat = format!("{}/{}", job.channel, data.chat_id);
        match self.line.ask(&chat, id, &data.text).await.as_deref() {
            Some("shown") => Ok(Done { provider_id: Some(id.to_owned()), result: None }),
            Some("refused") => Err(Failed::Retry { error: "the network refused it".into(), after: None }),
            _ => Err(Failed::Ambiguous { error: "the answer was lost".into() }),
        }
    }
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>;

/// A connection to the network's server, made when it is first used.
struct Line {
    network: SocketAddr,
    requests: OnceLock<mpsc::UnboundedSender<String>>,
    waiting: Waiting,
    next: Mutex<u64>,
}

impl Line {
    fn new(network: SocketAddr) -> Self {
        Self { network, requests: OnceLock::new(), waiting: Waiting::default(), next: Mutex::new(0) }
    }

    async fn ask(&self, chat: &str, id: &str, text: &str) -> Option<String> {
        let requests = self.requests.get_or_init(|| {
            let (requests, asked) = mpsc::unbounded_channel();
            tokio::spawn(speak(self.network, asked, self.waiting.clone()));
            requests
        });
        let key = {
            let mut next = self.next.lock().expect("keys");
            *next += 1;
            *next
        };
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().expect("waiting").insert(key, answer);
        requests.send(format!("{key}\t{chat}\t{id}\t{text}\n")).ok()?;
        answered.await.ok()
    }
}

/// Carries requests and answers. The server outlives every shard: should it not, those who wait are never answered, and the
/// run is seen to stand still.
async fn speak(network: SocketAddr, mut asked: mpsc::UnboundedReceiver<String>, waiting: Waiting) {
    let Ok(stream) = TcpStream::connect(network).await else { return };
    let _ = stream.set_nodelay(true);
    let (read, mut write) = stream.into_split();
    tokio::spawn(async move {
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let Some((key, word)) = line.split_once('\t') else { continue };
            let key = key.parse().unwrap_or_default();
            if let Some(answer) = waiting.lock().expect("waiting").remove(&key) {
                let _ = answer.send(word.to_owned());
            }
        }
    });
    while let Some(request) = asked.recv().await {
        if write.write_all(request.as_bytes()).await.is_err() {
            return;
        }
    }
}
