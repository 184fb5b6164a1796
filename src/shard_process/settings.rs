//! From the configuration to what a shard is told.

use std::time::Duration;

use shard::{
    channel::{RampConfig, RosterConfig},
    queue::RetryPolicy,
    registry::Holder,
    run::ShardSettings,
    sink::{Backoff, DeliveryConfig, Target},
};

use crate::{config::Config, exit::Failure};

/// How long a job waits for a channel that is starting before that counts as a failed attempt.
const PATIENCE: Duration = Duration::from_secs(30);

/// The settings of one shard in one life. `cold` says that nothing of the fleet ran just before.
pub(super) fn of(config: &Config, index: u32, holder: Holder, cold: bool) -> Result<ShardSettings, Failure> {
    let endpoint = match &config.events.url {
        Some(url) => {
            let target = Target::new(url.as_str(), config.events.secrets.clone());
            Some(target.map_err(|error| Failure::Config(format!("events.url: {error}")))?)
        }
        None => None,
    };
    let roster = RosterConfig {
        // The slot's lock is held by now, by this process or its primary: whoever held the slot before is dead.
        supersede: true,
        cold_start: cold,
        endpoint: endpoint.is_some(),
        reconcile_every: config.channels.reconcile_interval,
        ramp: RampConfig {
            in_flight: config.channels.max_connecting as usize,
            jitter: config.bot_worker.startup_jitter_max,
            ..RampConfig::default()
        },
        ..RosterConfig::new(config.shard(index), holder)
    };
    Ok(ShardSettings {
        roster,
        delivery: DeliveryConfig {
            endpoint,
            endpoint_timeout: config.events.timeout,
            agent_timeout: config.events.handler_timeout,
            backoff: Backoff { give_up_after: config.events.give_up_after, ..Backoff::default() },
            ..DeliveryConfig::default()
        },
        prefetch: config.jobs.prefetch,
        retry: RetryPolicy {
            attempts: config.jobs.attempts,
            first: config.jobs.retry_first,
            cap: config.jobs.retry_max,
            ..RetryPolicy::default()
        },
        grace: config.jobs.grace,
        patience: PATIENCE,
        retention: config.events.retention,
    })
}
