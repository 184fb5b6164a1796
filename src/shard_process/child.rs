//! A shard under a primary. The link is spoken on the health thread: the primary hears how the loops are, and gets and
//! gives orders, also while the work is busy.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::StreamExt;
use serde_json::value::to_raw_value;
use shard::http::{HttpConfig, HttpThread, Limits, Part, Sharing, View, ViewSource};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;
use supervisor::{ChildLink, LinkEvent, LinkEvents, LinkHandle};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{ports, runtime, settings, stock::Stock, work};
use crate::{
    announce::announce,
    config::{Config, plain},
    exit::{Failure, INTERNAL},
};

/// How often a shard checks in. The primary shows one that is silent for a second as down.
const CHECK_IN: Duration = Duration::from_millis(250);
/// So many check-ins share a report.
const REPORT_EVERY: u64 = 4;

/// Asks the primary what the box looks like.
struct LinkView(OnceLock<LinkHandle>);

#[async_trait]
impl ViewSource for LinkView {
    async fn view(&self, part: Part) -> Option<View> {
        let view = self.0.get()?.view().await.ok()?;
        serde_json::from_str::<View>(view.get()).ok().map(|view| view.only(part))
    }
}

pub(super) fn run(config: &Config, index: u32, link: ChildLink) -> Result<(), Failure> {
    announce(config, Some(index));
    let cold = link.life() <= 1;
    let stock = Stock::new(config, index);
    let source = Arc::new(LinkView(OnceLock::new()));
    let http = HttpThread::spawn(
        HttpConfig {
            address: SocketAddr::new(config.health.bind, config.health.port),
            sharing: Sharing::Group,
            limits: Limits::default(),
        },
        source.clone(),
    )
    .map_err(|error| Failure::Internal(format!("the health thread: {}", plain(&error))))?;
    runtime()?.block_on(live(config, index, link, cold, stock, http, source))
}

async fn live(
    config: &Config,
    index: u32,
    link: ChildLink,
    cold: bool,
    stock: Stock,
    http: HttpThread,
    source: Arc<LinkView>,
) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let started = http.spawn_on(async move { link.start() }).await;
    let (handle, events) = started
        .map_err(|_| Failure::Internal("the health thread ended".to_owned()))?
        .map_err(|error| Failure::Internal(format!("the link to the primary: {error}")))?;
    let _ = source.0.set(handle.clone());
    http.spawn_on(obey(events, handle.clone(), http.clone(), stop.clone()));
    http.spawn_on(check_in(handle.clone(), stock.clone()));
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| Failure::Internal(format!("signals: {}", plain(&error))))?;
    tokio::spawn(listen(signals, stop.clone()));

    let telling = tokio::spawn(tell_standing(handle.clone(), stock.clone()));
    let opened = ports::open(config, index, &stock).await?;
    let settings = settings::of(config, index, opened.holder.clone(), cold)?;
    join_group(&handle, &http).await?;
    work(opened, settings, stock.standing.clone(), stop).await?;
    telling.abort();
    // New connections go elsewhere by now, if there is an elsewhere: the primary saw to that when it asked for the drain.
    match http.leave().await {
        Ok(left) if left.cut_off > 0 => warn!(connections = left.cut_off, "requests were cut off at the end"),
        Ok(_) => {}
        Err(error) => warn!(%error, "the health port was not left in good order"),
    }
    let told = async {
        handle.left_group().await?;
        handle.drained().await
    };
    // When the primary is gone it needn't hear it.
    let _ = told.await;
    Ok(())
}

/// Listens on the health port when it is this shard's turn, so that the primary knows everybody's place in the group.
async fn join_group(link: &LinkHandle, http: &HttpThread) -> Result<(), Failure> {
    let lost = |error: supervisor::link::LinkError| Failure::Internal(format!("the link to the primary: {error}"));
    link.listen().await.map_err(lost)?;
    let address = http.listen().await.map_err(|error| Failure::Config(error.to_string()))?;
    info!(address = %address, "health port");
    link.listening().await.map_err(lost)
}

/// Does what the primary asks for. Without a primary there is nothing to live for.
async fn obey(mut events: LinkEvents, link: LinkHandle, http: HttpThread, stop: CancellationToken) {
    loop {
        match events.next().await {
            LinkEvent::Drain { .. } => {
                info!("asked to drain");
                stop.cancel();
            }
            LinkEvent::Steer { id, total, targets } => {
                if let Err(error) = http.steer(&targets, total).await {
                    warn!(%error, "connections could not be steered");
                }
                let _ = link.steered(id).await;
            }
            LinkEvent::Unsteer { id } => {
                if let Err(error) = http.unsteer().await {
                    warn!(%error, "steering could not be ended");
                }
                let _ = link.steered(id).await;
            }
            LinkEvent::Lost => {
                error!("the primary is gone; ending at once");
                std::process::exit(i32::from(INTERNAL));
            }
        }
    }
}

/// How the loops are, four times a second; what there is to report, once.
async fn check_in(link: LinkHandle, stock: Stock) {
    let mut ticks = tokio::time::interval(CHECK_IN);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    for tick in 0u64.. {
        ticks.tick().await;
        let report = if tick % REPORT_EVERY == 0 { to_raw_value(&stock.report()) } else { to_raw_value(&()) };
        let Ok(report) = report else { continue };
        if link.check_in(stock.stalled(), report).await.is_err() {
            return;
        }
    }
}

/// Tells the primary whenever the shard becomes ready, or is no longer.
async fn tell_standing(link: LinkHandle, stock: Stock) {
    let mut told = Some(String::new());
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        let now = stock.standing.not_ready();
        if now == told {
            if now.is_none() {
                ticks = tokio::time::interval(Duration::from_millis(250));
                ticks.tick().await;
            }
            continue;
        }
        let sent = match &now {
            None => link.ready().await,
            Some(reason) if stock.standing.waits() => link.waiting(reason.clone()).await,
            Some(reason) => link.not_ready(reason.clone()).await,
        };
        if sent.is_err() {
            return;
        }
        told = now;
    }
}

/// A signal to the group (Ctrl-C in a terminal) is the primary's business; SIGTERM to this process alone drains it.
async fn listen(mut signals: Signals, stop: CancellationToken) {
    while let Some(signal) = signals.next().await {
        if signal == SIGTERM {
            info!("asked to stop by a signal");
            stop.cancel();
        }
    }
}
