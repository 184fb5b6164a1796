//! The server restarts, stops, fills up, loads, becomes a replica: what is said, and that work goes on afterwards.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use shard::{
    identity::{QueueBase, QueueName},
    job::Lane,
    registry::{LEASE, LaneFact, Registry, Reservation, Resource, Sent},
};
use tokio_util::sync::CancellationToken;

use super::{Sentinel, Server, at, channel, held, holder, job, lost, refused, request, taken, unavailable, until};

/// Contract: C1, Q8. Field report R36.
#[tokio::test]
async fn a_server_that_died_and_came_back_knows_all_that_it_said_it_stored() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let (registry, me, other) = (server.registry("a", 1), holder("a", 1), holder("b", 1));
    let queue = QueueName { base: QueueBase::Main, index: Some(1) };
    let lane = Lane { base: QueueBase::Main, channel: channel(1), chat: Some("chat".into()) };
    let fact = LaneFact { queue, lane, head: job("head"), due_ms: 5, next_seq: 2 };
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    let layout = registry.publish_layout(2).await.expect("published");
    let fence = request("j", &me, 1, None).fence;
    registry.reserve(request("j", &me, 1, None)).await.expect("reserved");
    registry.reserve(request("sent", &me, 1, None)).await.expect("reserved");
    let sent = Sent { provider_id: Some("42".into()), result: None };
    registry.mark_sent(&fence, &job("sent"), sent.clone()).await.expect("marked");
    registry.put_lane_fact(&fact).await.expect("stored");

    server.die().await;
    let began = Instant::now();
    unavailable(registry.renew(&me, &[lease]).await);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    server.up();
    until("it is back", async || registry.renew(&me, &[lease]).await.is_ok_and(|renewal| renewal.lost.is_empty()))
        .await;

    let standby = server.settling("b", 1, LEASE);
    assert_eq!(taken(&standby, &other, Resource::Slot(1)).await.0, me);
    assert_eq!(registry.layout().await.expect("read"), Some(layout));
    assert_eq!(registry.lane_facts(queue).await.expect("read"), [fact]);
    let ask = async |id| registry.reserve(request(id, &me, 1, None)).await.expect("answered");
    assert_eq!(ask("j").await, Reservation::Busy { by: me.clone() });
    assert_eq!(ask("sent").await, Reservation::Sent(sent));
    assert_eq!(lost(&registry, &me, &[lease]).await, []);
}

/// Contract: C1. Time does not run for leases while the server is away, whatever its clock says when it is back.
#[tokio::test]
async fn owners_that_come_back_with_their_server_are_not_robbed() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    server.die().await;
    server.up();
    server.step_wall(600_000).await;
    let standby = server.settling("b", 1, LEASE);
    assert_eq!(taken(&standby, &holder("b", 1), Resource::Slot(1)).await.0, me);
    until("it is back", async || registry.renew(&me, &[lease]).await.is_ok_and(|renewal| renewal.lost.is_empty()))
        .await;
    assert_eq!(taken(&standby, &holder("b", 1), Resource::Slot(1)).await.0, me);
}

#[tokio::test]
async fn a_server_that_stands_still_is_unavailable_within_two_seconds_and_then_back() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    server.signal(Signal::SIGSTOP);
    for _ in 0..2 {
        // The second finds no connection, and none can be made.
        let began = Instant::now();
        unavailable(registry.renew(&me, &[lease]).await);
        let took = began.elapsed();
        assert!(took < Duration::from_millis(2600), "{took:?}");
    }
    server.signal(Signal::SIGCONT);
    until("it is back", async || registry.renew(&me, &[lease]).await.is_ok_and(|renewal| renewal.lost.is_empty()))
        .await;
}

#[tokio::test]
async fn a_daemon_may_start_before_its_server() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.die().await;
    let registry = server.registry("a", 1);
    for _ in 0..3 {
        unavailable(registry.layout().await);
    }
    server.up();
    until("it is there", async || registry.layout().await.is_ok()).await;
    held(&registry, &holder("a", 1), Resource::Slot(1)).await;
}

#[tokio::test]
async fn a_server_that_is_full_refuses_with_one_line_and_works_when_it_has_room() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "1000"]).await;
    for outcome in [registry.renew(&me, &[lease]).await.map(|_| ()), registry.publish_layout(2).await.map(|_| ())] {
        let said = refused(outcome);
        assert!(said.contains("maxmemory"), "{said}");
    }
    // Also for one that connects just then.
    let said = refused(server.registry("b", 1).reserve(request("j", &me, 1, None)).await);
    assert!(said.contains("maxmemory"), "{said}");
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(lost(&registry, &me, &[lease]).await, []);
}

#[tokio::test]
async fn a_primary_that_became_a_replica_is_unavailable_until_it_is_one_again() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = nowhere.local_addr().expect("bound").port().to_string();
    let _: String = server.ask(&["REPLICAOF", "127.0.0.1", &port]).await;
    let said = unavailable(registry.renew(&me, &[lease]).await);
    assert!(said.contains("READONLY"), "{said}");
    let said = unavailable(registry.renew(&me, &[lease]).await);
    assert!(said.contains("replica"), "looked at anew: {said}");
    let _: String = server.ask(&["REPLICAOF", "NO", "ONE"]).await;
    until("it is back", async || registry.renew(&me, &[lease]).await.is_ok_and(|renewal| renewal.lost.is_empty()))
        .await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_unavailable_until_it_has() {
    let slow = ["--appendonly", "yes", "--key-load-delay", "0", "--loading-process-events-interval-bytes", "1024"];
    let Some(mut server) = Server::start(&slow) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    let _: i64 = server
        .ask(&["EVAL", "for n = 1, 1500 do redis.call('SET', 'k' .. n, string.rep('x', 200)) end return 1", "0"])
        .await;
    let _: String = server.ask(&["BGREWRITEAOF"]).await;
    until("it is rewritten", async || {
        let info: String = server.ask(&["INFO", "persistence"]).await;
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    })
    .await;
    server.die().await;
    server.arguments[3] = "1000".to_owned();
    server.up();
    let says = async || unavailable(registry.renew(&me, &[lease]).await).to_lowercase().contains("loading");
    until("it loads", says).await;
    until("it has loaded", async || registry.renew(&me, &[lease]).await.is_ok_and(|renewal| renewal.lost.is_empty()))
        .await;
}

/// Contract: C1. Field report R38. Sentinel, a primary that dies, a replica that takes over.
#[tokio::test]
async fn leases_outlive_a_failover_by_sentinel() {
    let Some(first) = Server::start(&["--repl-diskless-sync-delay", "0"]) else { return };
    let port = first.port().to_string();
    let second = Server::start(&["--replicaof", "127.0.0.1", &port]).expect("there is a redis-server");
    let sentinel = Sentinel::start(first.port()).await;
    until("the replica is known", async || {
        let replicas: Vec<::redis::Value> = sentinel.ask(&["SENTINEL", "REPLICAS", "main"]).await;
        let info: String = second.ask(&["INFO", "replication"]).await;
        replicas.len() == 1 && info.contains("master_link_status:up")
    })
    .await;

    let url = format!("redis+sentinel://127.0.0.1:1,{}/main", sentinel.host());
    let (registry, standby) = (at(&url, "a", 1, Duration::ZERO), at(&url, "b", 1, LEASE));
    let (me, other) = (holder("a", 1), holder("b", 1));
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    let replicated = async || second.ask::<Option<String>>(&["GET", "shardvisor:lease:slot/1"]).await.is_some();
    until("it is replicated", replicated).await;
    first.die().await;
    until("it went on", async || registry.renew(&me, &[lease]).await.is_ok_and(|renewal| renewal.lost.is_empty()))
        .await;
    assert!(second.ask::<String>(&["INFO", "replication"]).await.contains("role:master"));
    assert_eq!(taken(&standby, &other, Resource::Slot(1)).await.0, me);
    // What the replica may not have heard of is not granted yet.
    taken(&standby, &other, Resource::Slot(2)).await;
    let said = refused(at(&url.replace("/main", "/other"), "a", 1, LEASE).layout().await);
    assert!(said.contains("knows no service other"), "{said}");
}

/// A host that vanished answers nothing, not even that it is gone.
#[tokio::test]
async fn a_connection_that_went_deaf_is_given_up() {
    let Some(server) = Server::start(&[]) else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let through = listener.local_addr().expect("bound");
    let deaf = CancellationToken::new();
    let (first, port) = (deaf.clone(), server.port());
    tokio::spawn(async move {
        let mut silence = Some(first);
        while let Ok((mut client, _)) = listener.accept().await {
            let silence = silence.take();
            tokio::spawn(async move {
                let mut redis = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("it runs");
                let copying = tokio::io::copy_bidirectional(&mut client, &mut redis);
                match silence {
                    Some(silence) => {
                        silence.run_until_cancelled(copying).await;
                        std::future::pending::<()>().await;
                    }
                    None => drop(copying.await),
                }
            });
        }
    });
    let (registry, me) = (at(&format!("redis://{through}"), "a", 1, Duration::ZERO), holder("a", 1));
    let lease = held(&registry, &me, Resource::Slot(1)).await;
    deaf.cancel();
    unavailable(registry.renew(&me, &[lease]).await);
    assert_eq!(lost(&registry, &me, &[lease]).await, []);
}
