//! Leases when the server forgets, and what a thousand of them cost.

use std::time::Duration;

use shard::{
    identity::{QueueBase, QueueName},
    job::Lane,
    registry::{Claim, LEASE, LaneFact, Layout, Lease, Registry, Resource},
};

use super::{Server, channel, claim, fenced, held, holder, job, lost, request, taken};

fn channels(count: u128) -> Vec<Resource> {
    (1..=count).map(|number| Resource::Channel(channel(number))).collect()
}

fn leases(claims: Vec<Claim>) -> Vec<Lease> {
    let lease = |claim| match claim {
        Claim::Held(lease) => lease,
        Claim::Taken { by, .. } => panic!("taken by {by}"),
    };
    claims.into_iter().map(lease).collect()
}

/// How often scripts ran since the statistics were reset, and for how long each on average.
async fn scripts(server: &Server) -> (u64, Duration) {
    let info: String = server.ask(&["INFO", "commandstats"]).await;
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("ran");
    let value = |name: &str| {
        let after = line.split_once(name).expect("there").1;
        after.split(',').next().expect("a value").parse::<f64>().expect("a number")
    };
    (value("calls=") as u64, Duration::from_secs_f64(value("usec_per_call=") / 1e6))
}

/// Contract: C1. One round trip, and at most 5 ms of the server's time.
#[tokio::test]
async fn a_thousand_leases_are_claimed_and_renewed_in_one_round_trip_each() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    lost(&registry, &me, &[]).await;
    registry.claim(&me, &[], true).await.expect("the script is there");
    let _: String = server.ask(&["CONFIG", "RESETSTAT"]).await;
    let leases = leases(registry.claim(&me, &channels(1000), true).await.expect("answered"));
    let (calls, each) = scripts(&server).await;
    println!("claim of 1,000 leases: {each:?} of the server's time");
    assert_eq!(calls, 1);
    let _: String = server.ask(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..20 {
        assert_eq!(lost(&registry, &me, &leases).await, []);
    }
    let (calls, each) = scripts(&server).await;
    println!("renewal of 1,000 leases: {each:?} of the server's time");
    assert_eq!(calls, 20);
    assert!(each <= Duration::from_millis(5), "{each:?}");
    // One that was taken is found among them, also in another batch.
    let more = self::leases(registry.claim(&me, &channels(2500), true).await.expect("answered"));
    assert_eq!(more[..1000], leases);
    server.advance(LEASE * 2).await;
    held(&registry, &holder("b", 1), more[2300].resource).await;
    assert_eq!(lost(&registry, &me, &more).await, [more[2300]]);
}

/// Contract: C1. Field report R36.
#[tokio::test]
async fn scripts_that_the_server_forgot_are_loaded_again() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    let _: String = server.ask(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(lost(&registry, &me, &[lease]).await, []);
    let _: String = server.ask(&["SCRIPT", "FLUSH"]).await;
    registry.reserve(request("j", &me, 1, None)).await.expect("reserved");
}

/// Contract: C1. Field report R38.
#[tokio::test]
async fn a_server_that_lost_everything_grants_nothing_until_its_holders_have_spoken() {
    let Some(server) = Server::start(&[]) else { return };
    let (a, b, c) = (holder("a", 1), holder("b", 1), holder("c", 1));
    let (of_a, of_b) = (server.settling("a", 1, LEASE), server.settling("b", 1, LEASE));
    let (slot, mine) = (Resource::Slot(0), Resource::Slot(1));
    taken(&of_a, &a, slot).await;
    server.advance(LEASE).await;
    let leases_a = leases(of_a.claim(&a, &[&[slot], &channels(3)[..]].concat(), false).await.expect("answered"));
    let leases_b = [held(&of_b, &b, mine).await];
    of_a.publish_layout(2).await.expect("published");
    of_a.reserve(request("j", &a, leases_a[1].token, None)).await.expect("reserved");

    let _: String = server.ask(&["FLUSHALL"]).await;
    // Somebody who knows nothing of what was, and one who waited for the slot.
    let of_c = server.settling("c", 1, LEASE);
    for (registry, who) in [(&of_c, &c), (&of_b, &b)] {
        let (by, remaining) = taken(registry, who, slot).await;
        assert!(remaining <= LEASE && !by.worker.is_empty(), "{by} {remaining:?}");
    }
    assert_eq!(lost(&of_a, &a, &leases_a).await, [], "said again");
    assert_eq!(lost(&of_b, &b, &leases_b).await, []);
    assert_eq!(taken(&of_c, &c, slot).await.0, a);
    assert_eq!(of_c.layout().await.expect("read"), Some(Layout { shard_count: 2, epoch: 1 }));
    // An older owner that slept through all this is refused as before.
    fenced(of_c.reserve(request("k", &c, leases_a[1].token - 1, None)).await);

    // Who never says what they hold has let go by the end.
    let _: String = server.ask(&["FLUSHALL"]).await;
    taken(&of_c, &c, mine).await;
    server.advance(LEASE / 2).await;
    taken(&of_c, &c, mine).await;
    assert_eq!(lost(&of_a, &a, &leases_a).await, []);
    server.advance(LEASE / 2).await;
    let stolen = held(&of_c, &c, mine).await;
    assert!(stolen.token > leases_b[0].token, "also for one who never saw the token");
    assert_eq!(lost(&of_b, &b, &leases_b).await, leases_b);
    assert_eq!(taken(&of_c, &c, slot).await.0, a);
}

/// Contract: C1. Field report R38.
#[tokio::test]
async fn tokens_do_not_come_again_when_the_server_and_its_clock_went_back() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, a, b) = (server.registry("a", 1), holder("a", 1), holder("b", 1));
    let resource = Resource::Slot(1);
    let first = held(&registry, &a, resource).await;
    registry.release(&a, &[first]).await.expect("released");
    // As if the first had been given by a clock far ahead, before all was lost.
    let ahead = first.token + 1_000_000_000;
    let _: String = server.ask(&["SET", "shardvisor:lease:slot/1", &format!("{ahead} - a")]).await;
    let second = held(&registry, &b, resource).await;
    assert!(second.token > ahead);
    let _: String = server.ask(&["FLUSHALL"]).await;
    assert!(held(&registry, &a, resource).await.token > second.token);
}

/// Contract: C1. Field report R38. The server that took over lacks the last writes of the one before.
#[tokio::test]
async fn a_lease_whose_record_is_older_is_said_again_unless_somebody_lives_there() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, a, b) = (server.registry("a", 1), holder("a", 1), holder("b", 1));
    let resource = Resource::Channel(channel(1));
    let key = format!("shardvisor:lease:{resource}");
    let lease = held(&registry, &a, resource).await;
    let older = lease.token - 1;
    for record in [format!("{older} 7 gone"), format!("{older} - b"), format!("{older} 1 a")] {
        let _: String = server.ask(&["SET", &key, &record]).await;
        assert_eq!(lost(&registry, &a, &[lease]).await, [], "{record}");
        assert_eq!(taken(&registry, &b, resource).await.0, a);
    }
    // b lives, since it just asked.
    let _: String = server.ask(&["SET", &key, &format!("{older} 1 b")]).await;
    assert_eq!(lost(&registry, &a, &[lease]).await, [lease]);
    let _: i64 = server.ask(&["DEL", &key]).await;
    registry.reserve(request("j", &b, lease.token + 1, None)).await.expect("a newer owner wrote");
    assert_eq!(lost(&registry, &a, &[lease]).await, [lease], "where a newer owner has written it is not ours");
}

/// Contract: C1.
#[tokio::test]
async fn a_successor_in_place_does_not_wait_for_a_server_that_came_back() {
    let Some(server) = Server::start(&[]) else { return };
    let (first, second) = (holder("a", 1), holder("a", 2));
    let registry = server.registry("a", 1);
    let (killed, given_back) = (Resource::Slot(1), Resource::Slot(2));
    held(&registry, &first, killed).await;
    let back = held(&registry, &first, given_back).await;
    registry.release(&first, &[back]).await.expect("released");
    let foreign = held(&registry, &holder("b", 1), Resource::Slot(3)).await;
    registry.release(&holder("b", 1), &[foreign]).await.expect("released");
    // Another life of the server: it has its data, perhaps not all of it.
    let _: i64 = server.ask(&["HSET", "shardvisor:clock", "server", "0123"]).await;
    let successor = server.settling("a", 2, LEASE);
    let all = [killed, given_back, Resource::Slot(3), Resource::Slot(4)];
    let claims = successor.claim(&second, &all, true).await.expect("answered");
    let held: Vec<bool> = claims.iter().map(|claim| matches!(claim, Claim::Held(_))).collect();
    assert_eq!(held, [true, true, false, false], "{claims:?}");
    server.advance(LEASE).await;
    let claims = successor.claim(&second, &all, true).await.expect("answered");
    assert!(claims.iter().all(|claim| matches!(claim, Claim::Held(_))), "{claims:?}");
}

/// Contract: C1. A time in which nobody could ask is not the death of all.
#[tokio::test]
async fn an_outage_ends_no_lease() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, a, b) = (server.registry("a", 1), holder("a", 1), holder("b", 1));
    let lease = held(&registry, &a, Resource::Slot(1)).await;
    server.step_wall(30_000).await;
    taken(&registry, &b, Resource::Slot(1)).await;
    assert_eq!(lost(&registry, &a, &[lease]).await, []);
    // Nor is a dead one spared for ever by those who ask rarely.
    let mut asked = 0;
    while matches!(claim(&registry, &b, Resource::Slot(1)).await, Claim::Taken { .. }) {
        server.step_wall(30_000).await;
        asked += 1;
        assert!(asked < 8, "still alive");
    }
    assert!(asked > 3, "{asked}");
}

/// Contract: C1. Both clocks are real here.
#[tokio::test]
async fn a_lease_ends_after_ten_seconds_of_real_time() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, a, b) = (server.registry("a", 1), holder("a", 1), holder("b", 1));
    let began = std::time::Instant::now();
    held(&registry, &a, Resource::Slot(1)).await;
    super::until("it ends", async || matches!(claim(&registry, &b, Resource::Slot(1)).await, Claim::Held(_))).await;
    let took = began.elapsed();
    assert!(took >= LEASE - Duration::from_millis(5) && took < LEASE + Duration::from_secs(3), "{took:?}");
}

/// Contract: C1. A stopped process that wakes after its successor began, or after another box took its slot.
#[tokio::test]
async fn who_was_succeeded_is_refused_at_every_write() {
    let Some(server) = Server::start(&[]) else { return };
    let (old, new) = (server.registry("a", 1), server.registry("a", 2));
    let (first, second) = (holder("a", 1), holder("a", 2));
    let queue = QueueName { base: QueueBase::Main, index: Some(1) };
    let lane = Lane { base: QueueBase::Main, channel: channel(1), chat: None };
    let fact = LaneFact { queue, lane: lane.clone(), head: job("j"), due_ms: 1, next_seq: 1 };
    let fence = request("j", &first, 1, None).fence;
    let lease = held(&old, &first, Resource::Slot(1)).await;
    old.put_lane_fact(&fact).await.expect("stored");
    old.reserve(request("j", &first, 1, None)).await.expect("reserved");

    new.count_deaths(&[], 1).await.expect("the successor is there");
    fenced(old.reserve(request("k", &first, 1, None)).await);
    fenced(old.cancel(&fence, &job("j")).await);
    fenced(old.mark_uncertain(&fence, &job("j"), "late").await);
    fenced(old.put_lane_fact(&fact).await);
    fenced(old.clear_lane_fact(queue, &lane).await);
    fenced(old.count_deaths(&[(channel(1), job("j"))], u32::MAX).await);
    fenced(old.claim(&first, &[Resource::Slot(1)], true).await);
    assert_eq!(lost(&old, &first, &[lease]).await, [lease]);
    assert_eq!(new.lane_facts(queue).await.expect("read"), [fact]);

    let claims = new.claim(&second, &[Resource::Slot(1)], true).await.expect("answered");
    assert!(matches!(claims[..], [Claim::Held(_)]), "{claims:?}");
    let elsewhere = server.registry("b", 1);
    fenced(elsewhere.clear_lane_fact(queue, &lane).await);
    server.advance(LEASE * 2).await;
    held(&elsewhere, &holder("b", 1), Resource::Slot(1)).await;
    fenced(new.clear_lane_fact(queue, &lane).await);
    elsewhere.clear_lane_fact(queue, &lane).await.expect("its slot now");
}

/// Contract: I3b.
#[tokio::test]
async fn the_layout_is_written_as_producers_read_it_and_no_epoch_comes_again() {
    let Some(server) = Server::start(&[]) else { return };
    let registry = server.registry("a", 1);
    registry.publish_layout(3).await.expect("published");
    let layout = registry.publish_layout(2).await.expect("published");
    assert_eq!(server.ask::<String>(&["GET", "shardvisor:layout"]).await, r#"{"shard_count":2,"epoch":2}"#);
    let _: String = server.ask(&["FLUSHALL"]).await;
    assert_eq!(registry.publish_layout(2).await.expect("published"), layout, "as it was");
    let _: String = server.ask(&["FLUSHALL"]).await;
    assert_eq!(registry.publish_layout(4).await.expect("published").epoch, 3);
    let _: String = server.ask(&["SET", "shardvisor:layout", r#"{"shard_count":9,"epoch":9}"#]).await;
    registry.renew(&holder("a", 1), &[]).await.expect("renewed");
    assert_eq!(registry.layout().await.expect("read").expect("there").epoch, 9, "a newer one is left alone");
    for nonsense in ["", "[]", "{\"epoch\":\"x\"}", "nil"] {
        let _: String = server.ask(&["SET", "shardvisor:layout", nonsense]).await;
        super::refused(registry.layout().await);
        assert_eq!(registry.publish_layout(4).await.expect("published").epoch, 3, "{nonsense}");
    }
}

/// Contract: P2. A box that lost its disk does not begin again at one.
#[tokio::test]
async fn incarnations_grow_also_when_the_server_forgot_them() {
    let Some(server) = Server::start(&[]) else { return };
    let registry = server.registry("a", 1);
    let mut last = 0;
    for round in 0..6 {
        if round == 3 {
            let _: String = server.ask(&["FLUSHALL"]).await;
        }
        let next = registry.next_incarnation("a").await.expect("given");
        assert!(next > last, "{next} after {last}");
        last = next;
        // They are told apart by the server's clock when it forgot them: not within one millisecond.
        let clock = async || server.ask::<Vec<u64>>(&["TIME"]).await;
        super::until("time passes", async || clock().await[0] * 1000 + clock().await[1] / 1000 > last).await;
    }
    held(&registry, &holder("b", last + 1_000_000), Resource::Slot(1)).await;
    assert_eq!(registry.next_incarnation("b").await.expect("given"), last + 1_000_001);
}

/// As the module's documentation says it: an operator, or a test, knows that nobody is out there.
#[tokio::test]
async fn a_registry_that_is_told_to_be_new_grants_at_once() {
    let Some(server) = Server::start(&[]) else { return };
    let info: String = server.ask(&["INFO", "server"]).await;
    let life = info.lines().find_map(|line| line.strip_prefix("run_id:")).expect("there").trim().to_owned();
    let fields = ["HSET", "shardvisor:clock", "wall", "0", "now", "0", "settled", "0", "server", &life];
    let _: i64 = server.ask(&fields).await;
    held(&server.settling("a", 1, LEASE), &holder("a", 1), Resource::Slot(1)).await;
}
