//! The jobs of a run: short texts, spread over channels, chats and shards.

use std::sync::Arc;

use shard::{
    directory::{ChannelSpec, Handler},
    identity::{ChannelId, QueueBase, ShardId},
    job::{Job, JobId, Send, Task},
    platform::PlatformKind,
    queue::{Message, Queue},
};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::Failure;

/// How jobs are spread.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// How many channels; they are dealt out to the shards in turn.
    pub channels: u32,
    /// How many chats each has.
    pub chats: u32,
    /// How many shards there are.
    pub shards: u32,
}

impl Spread {
    /// One of the channels.
    pub fn channel(&self, number: u32) -> ChannelId {
        ChannelId::from_uuid(Uuid::from_u128((u128::from(number) << 96) | 1))
    }

    /// What a directory says of them.
    pub fn specs(&self, platform: PlatformKind) -> Vec<Arc<ChannelSpec>> {
        let spec = |number| ChannelSpec {
            id: self.channel(number),
            platform,
            token: None,
            handler: Handler::None,
            enabled: true,
            label: None,
        };
        (0..self.channels).map(|number| Arc::new(spec(number))).collect()
    }

    /// A job; those that follow one another are of different channels.
    pub fn job(&self, number: u32, text: String) -> Result<Job, Failure> {
        let (of, chat) = (number % self.channels, number / self.channels % self.chats);
        Ok(Job {
            id: JobId::new(format!("job-{number}")).ok_or("an empty job id")?,
            channel: self.channel(of),
            task: Task::Send(Send { chat_id: (chat + 1).to_string(), text, ..Send::default() }),
            enqueued_at: None,
            expires_at: None,
        })
    }

    /// Puts a job where its shard looks for it.
    pub async fn put(&self, queue: &dyn Queue, job: &Job) -> Result<(), Failure> {
        let to = ShardId::new(0, self.shards).queue_for_channel(QueueBase::Main, job.channel);
        Ok(queue.publish(to, Message::new(job.to_json())).await?)
    }

    /// Declares the queues and fills them, many publishes at a time.
    pub async fn fill(self, queue: Arc<dyn Queue>, jobs: u32) -> Result<(), Failure> {
        for index in 0..self.shards {
            queue.declare(ShardId::new(index, self.shards).queue(QueueBase::Main)).await?;
        }
        let mut publishing: JoinSet<Result<(), Failure>> = JoinSet::new();
        for number in 0..jobs {
            let job = self.job(number, "Hello there".to_owned())?;
            let queue = queue.clone();
            publishing.spawn(async move { self.put(&*queue, &job).await });
            if publishing.len() >= 512 {
                publishing.join_next().await.transpose()?.transpose()?;
            }
        }
        while let Some(published) = publishing.join_next().await {
            published??;
        }
        Ok(())
    }

    /// What is left in the queues, parked jobs included.
    pub async fn left(&self, queue: &dyn Queue) -> Result<u64, Failure> {
        let mut left = 0;
        for index in 0..self.shards {
            let depth = queue.depth(ShardId::new(index, self.shards).queue(QueueBase::Main)).await?;
            left += depth.ready + depth.parked;
        }
        Ok(left)
    }
}
