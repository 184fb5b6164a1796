//! A network that takes everything at once and shows it to nobody.

use std::sync::Arc;

use async_trait::async_trait;
use shard::{
    directory::ChannelSpec,
    job::{Job, Task},
    platform::{Closed, Done, Failed, Inbox, Platform, PlatformKind, Sender},
};
use tokio_util::sync::CancellationToken;

/// Hears of the text of each job as the work on it begins.
pub type Began = dyn Fn(&str) + Send + Sync;

/// The network.
#[derive(Clone)]
pub struct Nothing(Arc<Began>);

impl Nothing {
    /// One that tells of each job.
    pub fn new(began: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(began))
    }
}

#[async_trait]
impl Platform for Nothing {
    fn kind(&self) -> PlatformKind {
        PlatformKind::Telegram
    }

    fn provider_id(&self, _: &Job) -> Option<String> {
        None
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
impl Sender for Nothing {
    async fn perform(&self, job: &Job, _: Option<&str>) -> Result<Done, Failed> {
        if let Task::Send(data) = &job.task {
            (self.0)(&data.text);
        }
        Ok(Done { provider_id: Some(job.id.to_string()), result: None })
    }
}

/// A connection on which nothing comes in.
pub async fn stay_up(inbox: &dyn Inbox, stop: &CancellationToken) -> Closed {
    loop {
        inbox.heard();
        tokio::select! {
            () = stop.cancelled() => return Closed::Asked,
            () = tokio::time::sleep(std::time::Duration::from_secs(5)) => {}
        }
    }
}
