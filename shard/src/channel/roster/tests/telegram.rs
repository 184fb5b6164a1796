//! The roster with Telegram on it, against the simulator, in real time.

use std::time::Duration;

use simulators::telegram::{ALWAYS, BotHandle, Fault, On, Telegram as Simulator};
use tokio::time::{Instant, sleep};

use super::super::*;
use crate::{
    channel::{
        State,
        testing::{World, id, spec},
    },
    clock::SystemClock,
    directory::ChannelSpec,
    identity::ChannelId,
    platform::telegram::{Telegram, TelegramConfig},
    secret::Secret,
};

const SOON: Duration = Duration::from_secs(20);

struct Fleet {
    world: World,
    simulator: Simulator,
    bots: Vec<BotHandle>,
    handle: RosterHandle,
}

/// So many bots, all polling.
async fn fleet(count: u32) -> Fleet {
    let simulator = Simulator::start().await.unwrap();
    let bots: Vec<_> = (0..count).map(|_| simulator.add_bot()).collect();
    let world = World::new();
    world.directory.set(bots.iter().zip(0..).map(|(bot, n)| with_token(n, bot.token())));
    let telegram = Telegram::new(
        TelegramConfig::new(simulator.url().parse().unwrap()),
        crate::media::for_tests(true),
        Arc::new(SystemClock),
    )
    .unwrap();
    let roster = world.roster_on(RosterConfig { cold_start: false, ..world.config() }, Arc::new(telegram));
    let handle = roster.handle();
    tokio::spawn(roster.run());
    simulator.wait_for_polls(count as usize, SOON).await.unwrap();
    Fleet { world, simulator, bots, handle }
}

fn with_token(n: u32, token: &str) -> Arc<ChannelSpec> {
    Arc::new(ChannelSpec { token: Some(Secret::new(token)), ..(*spec(n)).clone() })
}

impl Fleet {
    fn state(&self, channel: ChannelId) -> State {
        self.handle.states().iter().find(|status| status.channel == channel).unwrap().state
    }

    async fn until(&self, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + SOON;
        while !holds() {
            assert!(Instant::now() < deadline, "it never came about");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Field report R21.
#[tokio::test]
async fn a_revoked_bot_falls_silent_and_the_others_poll_on() {
    let fleet = fleet(5).await;
    let before = fleet.bots[0].stats().polls;
    fleet.bots[0].revoke();
    fleet.until(|| fleet.state(id(0)) == State::LoggedOut).await;
    assert!(fleet.bots[0].stats().polls - before <= 3);
    assert_eq!(fleet.world.outbox.told(id(0)), ["connecting", "connected", "logged_out"]);
    fleet.bots[1].user(7).say("hello");
    fleet.bots[1].wait_for_confirmed(SOON).await.unwrap();
    assert_eq!(fleet.simulator.polls_open(), 4);

    let fresh = fleet.simulator.add_bot();
    let mut specs = fleet.world.directory.specs.lock().unwrap().clone();
    specs[0] = with_token(0, fresh.token());
    fleet.world.directory.set(specs);
    fresh.wait_for_poll(SOON).await.unwrap();
    fleet.until(|| fleet.state(id(0)) == State::Connected).await;
}

/// Field report R19.
#[tokio::test]
async fn a_conflict_at_a_redeploy_heals_by_itself() {
    let fleet = fleet(2).await;
    fleet.simulator.fault(On::bot(&fleet.bots[0]).and_method("getUpdates"), Fault::conflict(), 1);
    fleet.simulator.reset_connections();
    fleet.until(|| fleet.bots[0].stats().refused.get(&409) == Some(&1)).await;
    fleet.until(|| fleet.state(id(0)) == State::Connected && fleet.simulator.polls_open() == 2).await;
}

/// Contract: C3.
#[tokio::test]
async fn an_outage_is_survived_by_all_and_nothing_is_lost() {
    let fleet = fleet(20).await;
    fleet.simulator.outage();
    fleet.until(|| fleet.handle.states().iter().all(|status| status.state == State::Reconnecting)).await;
    for bot in &fleet.bots {
        bot.user(7).say("while you were away");
    }
    fleet.simulator.recover();
    for bot in &fleet.bots {
        bot.wait_for_confirmed(SOON).await.unwrap();
    }
    fleet.until(|| fleet.handle.states().iter().all(|status| status.state == State::Connected)).await;
}

/// Contract: C3.
#[tokio::test]
async fn a_bot_that_is_always_refused_is_told_once_and_holds_no_other_up() {
    let fleet = fleet(3).await;
    fleet.simulator.fault(On::bot(&fleet.bots[0]), Fault::server_error(500), ALWAYS);
    fleet.simulator.reset_connections();
    fleet.until(|| fleet.bots[0].stats().refused.get(&500).is_some_and(|refused| *refused >= 3)).await;
    assert_eq!(fleet.world.outbox.told(id(0)), ["connecting", "connected", "reconnecting"]);
    fleet.until(|| fleet.simulator.polls_open() == 2).await;
    assert!(fleet.bots[0].stats().polls < 10, "it backs off");
}
