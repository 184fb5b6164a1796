//! What renewing the leases of a thousand channels costs a Redis.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bench::stand::{Failure, servers::redis_connection};
use redis::cmd;
use shard::registry::{Claim, Holder, RedisOptions, RedisRegistry, Registry, Resource};

use super::{subject::Stand, worker::spread};

const CHANNELS: u32 = 1000;
const RENEWALS: u32 = 200;

/// How often scripts were run, and how many microseconds they took.
async fn scripts(url: &str) -> Result<(u64, u64), Failure> {
    let mut connection = redis_connection(url).await?;
    let stats: String = cmd("INFO").arg("commandstats").query_async(&mut connection).await?;
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).ok_or("no script was run")?;
    let facts: HashMap<_, _> = line.trim().split(',').filter_map(|fact| fact.split_once('=')).collect();
    let fact = |name: &str| facts.get(name).and_then(|value| value.parse().ok()).ok_or("statistics of another form");
    Ok((fact("calls")?, fact("usec")?))
}

pub(crate) async fn measure(stand: &Stand) -> Result<(), Failure> {
    let url = stand.redis.redis_url(1);
    let holder = Holder { worker: "bench".to_owned(), incarnation: 1 };
    let options = RedisOptions { prefix: "leases:".to_owned(), settle: Duration::ZERO, ..RedisOptions::default() };
    let registry = RedisRegistry::connect(url.parse()?, holder.clone(), options);
    let spread = spread(1);
    let channels: Vec<_> = (0..CHANNELS).map(|number| Resource::Channel(spread.channel(number))).collect();
    let claims = registry.claim(&holder, &channels, false).await?;
    let held = claims.into_iter().filter_map(|claim| match claim {
        Claim::Held(lease) => Some(lease),
        Claim::Taken { .. } => None,
    });
    let leases: Vec<_> = held.collect();
    if leases.len() != CHANNELS as usize || !registry.renew(&holder, &leases).await?.lost.is_empty() {
        return Err("not all channels could be held".into());
    }
    let (calls, usec) = scripts(&url).await?;
    let began = Instant::now();
    for _ in 0..RENEWALS {
        registry.renew(&holder, &leases).await?;
    }
    let each = began.elapsed() / RENEWALS;
    let (calls_after, usec_after) = scripts(&url).await?;
    let calls = (calls_after - calls) as f64 / f64::from(RENEWALS);
    let usec = (usec_after - usec) as f64 / f64::from(RENEWALS);
    println!(
        "renewal of {CHANNELS} leases: {calls} round trips, {:.2} ms of Redis time (bar 5), {:.2} ms as its caller sees it",
        usec / 1e3,
        each.as_secs_f64() * 1e3,
    );
    Ok(())
}
