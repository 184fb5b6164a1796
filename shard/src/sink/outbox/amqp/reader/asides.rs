//! The queues beside the main one that are held too.

use super::*;

impl Reader {
    /// Whether an aside queue is held.
    pub(in super::super) fn has_aside(&self, group: Group) -> bool {
        self.shared.state().held.as_ref().is_some_and(|held| held.asides.contains_key(&group))
    }

    /// The groups whose aside queues are held.
    pub(in super::super) fn asides(&self) -> Vec<(Group, Channel)> {
        let state = self.shared.state();
        let asides = state.held.as_ref().map(|held| held.asides.clone()).unwrap_or_default();
        asides.into_iter().collect()
    }

    /// An aside queue is held no longer.
    pub(in super::super) async fn let_go(&mut self, group: Group) {
        let held = self.shared.state().held.as_mut().and_then(|held| {
            held.told.remove(&Some(group));
            held.asides.remove(&group)
        });
        if let Some(channel) = held {
            self.channels.retain(|other| other.id() != channel.id());
            let _ = answered(self.shared.config.answer_timeout, channel.close(200, "".into())).await;
        }
    }

    /// Takes hold of one.
    pub(in super::super) async fn subscribe_aside(
        &mut self,
        group: Group,
        prefetch: u16,
        arrivals: &mut Arrivals,
    ) -> Result<(), Cause> {
        let channel = self.hold(Some(group), prefetch, arrivals).await?;
        if let Some(held) = &mut self.shared.state().held {
            held.asides.insert(group, channel);
        }
        Ok(())
    }
}
