//! A shard without a primary: the only one (`SHARD_COUNT=1`), or a static one. It holds its slot's lock itself, answers on
//! a health port of its own, and notifies systemd itself.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use futures_util::StreamExt;
use serde_json::{Value, json};
use shard::http::{HttpConfig, HttpThread, Limits, PortClaim, Sharing};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;
use supervisor::{SlotLock, systemd::Notifier};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    ports::{self, note_port},
    runtime, settings,
    stock::Stock,
    work,
};
use crate::{
    announce::announce,
    box_view::{OneSlot, OwnFacts, PrimaryFacts, SlotFacts},
    config::{Config, Sources, plain},
    exit::{Failure, INTERNAL},
};

/// How long a new process waits for the one before it to be gone.
const HANDOVER: Duration = Duration::from_secs(3);

/// Runs the shard until it is asked to stop.
pub(crate) fn run(config: &Config, sources: &Sources, index: u32) -> Result<(), Failure> {
    announce(config, Some(index));
    shard::store::make_directory(&config.data_dir).map_err(crate::commands::store_failure)?;
    let _lock = SlotLock::acquire(&config.data_dir, index, HANDOVER).map_err(crate::primary::lock_failure)?;
    let stock = Stock::new(config, index);
    let source = Arc::new(OneSlot::new({
        let (stock, config) = (stock.clone(), config.clone());
        move || own_facts(&config, index, &stock)
    }));
    let http = HttpThread::spawn(
        HttpConfig {
            address: SocketAddr::new(config.health.bind, config.health.port),
            sharing: Sharing::Alone,
            limits: Limits::default(),
        },
        source,
    )
    .map_err(|error| Failure::Internal(format!("the health thread: {}", plain(&error))))?;
    runtime()?.block_on(live(config, sources, index, stock, http))
}

async fn live(config: &Config, sources: &Sources, index: u32, stock: Stock, http: HttpThread) -> Result<(), Failure> {
    if config.health.port != 0 {
        // Only a look: whoever holds the port is named, which the bind alone would not do.
        let wanted = SocketAddr::new(config.health.bind, config.health.port);
        PortClaim::new(wanted).map_err(|error| Failure::Config(error.to_string()))?;
    }
    let address = http.listen().await.map_err(|error| Failure::Config(error.to_string()))?;
    note_port(config, address.port())?;
    info!(address = %address, "health port");
    let stop = CancellationToken::new();
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| Failure::Internal(format!("signals: {}", plain(&error))))?;
    let listening = tokio::spawn(listen(signals, stop.clone(), stock.clone(), sources.clone()));
    let notifying = tokio::spawn(notify(stock.clone(), stop.clone()));
    let opened = ports::open(config, index, &stock).await?;
    let settings = settings::of(config, index, opened.holder.clone(), true)?;
    let ended = work(opened, settings, stock.standing.clone(), stop).await;
    notifying.abort();
    listening.abort();
    let left = http.leave().await;
    if let Err(error) = left {
        warn!(%error, "the health port was not left in good order");
    }
    ended
}

/// SIGTERM and SIGINT stop, a second one at once; SIGHUP reads the configuration again and looks for changed channels.
async fn listen(mut signals: Signals, stop: CancellationToken, stock: Stock, sources: Sources) {
    while let Some(signal) = signals.next().await {
        match signal {
            SIGHUP => {
                if let Err(problems) = Config::load(&sources) {
                    error!("the configuration is wrong now and was not taken over: {problems}");
                }
                info!("looking for changed channels; changed settings take effect at the next start");
                if let Some(roster) = stock.standing.roster() {
                    roster.reconcile();
                }
            }
            _ if stop.is_cancelled() => {
                warn!("asked a second time: ending at once");
                std::process::exit(i32::from(INTERNAL));
            }
            _ => {
                info!("stopping");
                stop.cancel();
            }
        }
    }
}

/// Tells systemd when the shard is ready, that it stops, and, as long as its loops get on, that it lives.
async fn notify(stock: Stock, stop: CancellationToken) {
    let mut notifier = Notifier::from_env();
    let mut ticks = tokio::time::interval(notifier.watchdog().unwrap_or(Duration::from_secs(4)) / 4);
    let (mut ready, mut stuck) = (false, false);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => {
                notifier.stopping();
                return;
            }
        }
        if !ready && stock.standing.not_ready().is_none() {
            ready = true;
            notifier.ready();
        }
        let stalled = stock.stalled();
        if stalled.is_empty() {
            notifier.pet(supervisor::clock::boottime());
        } else if !stuck {
            error!(loops = stalled.join(", "), "loops do not get on; systemd is no longer told that all is well");
        }
        stuck = !stalled.is_empty();
    }
}

fn own_facts(config: &Config, index: u32, stock: &Stock) -> OwnFacts {
    let stalled = stock.stalled();
    let reason = (!stalled.is_empty()).then(|| format!("loops that do not get on: {}", stalled.join(", ")));
    OwnFacts {
        slot: SlotFacts {
            index,
            pid: Some(std::process::id() as i32),
            incarnation: 1,
            up: stalled.is_empty(),
            phase: if stock.standing.not_ready().is_none() { "ready" } else { "starting" }.to_owned(),
            reason,
            restarts: BTreeMap::new(),
        },
        primary: PrimaryFacts {
            shard_count: config.shard_count,
            epoch: stock.epoch(),
            layout: layout(config, Some(index)),
            closing: false,
            process: None,
        },
        report: stock.report(),
    }
}

/// The effective layout, as it is logged at start.
pub(crate) fn layout(config: &Config, index: Option<u32>) -> Value {
    json!({ "line": config.layout_line(index) })
}
