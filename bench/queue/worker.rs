//! The processes that are measured, but for the foreign one: this program once more, in a role.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bench::stand::{
    Failure,
    jobs::Spread,
    network::Nothing,
    shard::{ShardPlan, run as run_shard, stop_with_input},
};
use clap::{Args, ValueEnum};
use futures_util::StreamExt;
use lapin::{
    Connection, ConnectionProperties,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use shard::{
    identity::{QueueBase, ShardId},
    metrics::Metrics,
    platform::PlatformKind,
    queue::RetryPolicy,
    registry::RedisOptions,
};

use super::latency;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Consumes and acknowledges, nothing else.
    Raw,
    /// Is a shard over a broker and a Redis.
    Broker,
    /// Is a shard over the embedded store.
    Embedded,
}

/// A process that is measured.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// What it does
    #[arg(long, value_enum)]
    pub(crate) role: Role,
    /// The broker
    #[arg(long, default_value = "")]
    pub(crate) queue_url: String,
    /// The Redis
    #[arg(long, default_value = "")]
    pub(crate) registry_url: String,
    /// What the Redis's keys begin with
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,
    /// The data directory
    #[arg(long, default_value = "")]
    pub(crate) dir: PathBuf,
    /// Which shard
    #[arg(long, default_value_t = 0)]
    pub(crate) index: u32,
    /// Of how many
    #[arg(long, default_value_t = 1)]
    pub(crate) shards: u32,
    /// Jobs in hand
    #[arg(long)]
    pub(crate) prefetch: u16,
    /// After how many jobs it is done; never, when it measures latency
    #[arg(long)]
    pub(crate) jobs: Option<u64>,
}

/// The channels and chats of all runs.
pub(crate) fn spread(shards: u32) -> Spread {
    Spread { channels: 50 * shards, chats: 20, shards }
}

pub(crate) async fn run(work: &Work) -> Result<(), Failure> {
    match work.role {
        Role::Raw => raw(work).await,
        Role::Broker | Role::Embedded => whole(work).await,
    }
}

/// What the client library does by itself: one acknowledgement for each delivery.
async fn raw(work: &Work) -> Result<(), Failure> {
    // As the adapter does: with its own default the client makes buffers of eight megabytes.
    let url = format!("{}?frame_max=131072", work.queue_url);
    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(work.prefetch, BasicQosOptions::default()).await?;
    let queue = ShardId::new(work.index, work.shards).queue(QueueBase::Main).to_string();
    let tag = "raw".into();
    let consuming =
        channel.basic_consume(queue.as_str().into(), tag, BasicConsumeOptions::default(), FieldTable::default());
    let mut deliveries = consuming.await?;
    let mut done = 0;
    while let Some(delivery) = deliveries.next().await {
        if done == 0 {
            println!("first");
        }
        channel.basic_ack(delivery?.delivery_tag, BasicAckOptions::default()).await?;
        done += 1;
        if Some(done) == work.jobs {
            println!("done");
            stop_with_input().cancelled().await;
            // The last acknowledgements may still be on their way.
            connection.close(200, "".into()).await?;
            break;
        }
    }
    Ok(())
}

async fn whole(work: &Work) -> Result<(), Failure> {
    let metrics = Arc::new(Metrics::default());
    let stop = stop_with_input();
    let broker = work.role == Role::Broker;
    let plan = ShardPlan {
        dir: work.dir.clone(),
        shard: ShardId::new(work.index, work.shards),
        queue_url: broker.then(|| work.queue_url.clone()),
        registry_url: broker.then(|| work.registry_url.clone()),
        registry: RedisOptions { prefix: work.prefix.clone(), settle: Duration::ZERO, ..RedisOptions::default() },
        prefetch: work.prefetch,
        retry: RetryPolicy::default(),
        channels: spread(work.shards).specs(PlatformKind::Telegram),
        metrics: metrics.clone(),
    };
    match work.jobs {
        Some(jobs) => {
            let begun = AtomicU64::new(0);
            let network = Nothing::new(move |_| {
                if begun.fetch_add(1, Ordering::Relaxed) == 0 {
                    println!("first");
                }
            });
            tokio::spawn(async move {
                while metrics.jobs.with_label_values(&["whatsapp", "done"]).get() < jobs {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                println!("done");
            });
            run_shard(plan, |_| network, stop).await
        }
        None => {
            let waits = Arc::new(Mutex::new(Vec::new()));
            let seen = waits.clone();
            let network = Nothing::new(move |text| {
                if let Some(wait) = latency::since(text) {
                    seen.lock().expect("waits").push(wait);
                }
            });
            println!("first");
            run_shard(plan, |_| network, stop).await?;
            println!("waits {}", serde_json::to_string(&*waits.lock().expect("waits"))?);
            Ok(())
        }
    }
}
