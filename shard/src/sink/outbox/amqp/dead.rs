//! Dead letters on a broker: looked through one by one, and put back by closing the channel that held them.
//!
//! One that was buried twice, by a process that ended in between, counts as one.

use lapin::{
    Channel,
    message::BasicGetMessage,
    options::{BasicAckOptions, BasicGetOptions},
};
use uuid::Uuid;

use super::{
    super::super::{DeadEvent, Destination, OutboxError},
    Shared,
    append::Incoming,
    shared::outbox_error,
    wire::Death,
};
use crate::{
    amqp::error::{Cause, answered},
    event::Event,
};

impl Shared {
    async fn dead_channel(&self) -> Result<Channel, Cause> {
        self.declare().await?;
        self.link.live().await?.channel().await
    }

    async fn next_dead(&self, channel: &Channel) -> Result<Option<BasicGetMessage>, Cause> {
        let got = channel.basic_get(self.names.dead.as_str().into(), BasicGetOptions::default());
        answered(self.config.answer_timeout, got).await
    }

    /// Dead letters, oldest first.
    pub(super) async fn list_dead(&self, limit: usize) -> Result<Vec<DeadEvent>, Cause> {
        let channel = self.dead_channel().await?;
        let mut dead: Vec<DeadEvent> = Vec::new();
        while let Some(got) = self.next_dead(&channel).await? {
            let Some((event, death)) = read(&got) else { continue };
            let Death { destination, reason, attempts } = death;
            let twin = dead.iter().position(|dead| dead.event.id == event.id && dead.destination == destination);
            let letter = DeadEvent { event, destination, reason, attempts };
            match twin {
                Some(twin) => dead[twin] = letter,
                None if dead.len() == limit => break,
                None => dead.push(letter),
            }
        }
        let _ = answered(self.config.answer_timeout, channel.close(200, "".into())).await;
        Ok(dead)
    }

    /// Takes a dead letter out; with `replay`, after it is open again. `false` when it is not there.
    pub(super) async fn take_dead(
        self: &std::sync::Arc<Self>,
        id: Uuid,
        to: Destination,
        replay: bool,
    ) -> Result<bool, OutboxError> {
        let at = |cause| outbox_error(&self.names.dead, cause);
        let channel = self.dead_channel().await.map_err(at)?;
        let mut found = Vec::new();
        while let Some(got) = self.next_dead(&channel).await.map_err(at)? {
            if let Some((event, _)) = read(&got).filter(|(event, death)| event.id == id && death.destination == to) {
                found.push((got.delivery.delivery_tag, event, got.delivery.data));
            }
        }
        let mut tags = Vec::with_capacity(found.len());
        for (at, (tag, event, data)) in found.into_iter().enumerate() {
            if replay && at == 0 {
                let incoming = Incoming::again(event, data.into(), to);
                let put = self.put(vec![incoming], async || Ok(())).await;
                if let Err(error) = put {
                    let _ = channel.close(200, "".into()).await;
                    return Err(error);
                }
            }
            tags.push(tag);
        }
        for tag in &tags {
            let acked = channel.basic_ack(*tag, BasicAckOptions::default());
            answered(self.config.answer_timeout, acked).await.map_err(at)?;
        }
        let _ = answered(self.config.answer_timeout, channel.close(200, "".into())).await;
        Ok(!tags.is_empty())
    }
}

fn read(got: &BasicGetMessage) -> Option<(Event, Death)> {
    let death = Death::read(&got.delivery.properties)?;
    Some((serde_json::from_slice(&got.delivery.data).ok()?, death))
}
