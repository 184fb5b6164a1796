//! The send guard when answers are lost, and when several want to send the same.

use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use shard::registry::{LEASE, Registry, Reservation, Resource, Sent};

use super::{Server, channel, held, holder, job, request, unavailable};

/// Contract: Q8.
#[tokio::test]
async fn of_many_who_want_to_send_a_job_one_does() {
    let Some(server) = Server::start(&[]) else { return };
    let workers: Vec<_> = (0..4).map(|number| format!("w{number}")).collect();
    let registries: Vec<_> = workers.iter().map(|worker| server.registry(worker, 1)).collect();
    for (number, worker) in workers.iter().enumerate() {
        held(&registries[number], &holder(worker, 1), Resource::Slot(number as u32)).await;
    }
    for round in 0..20 {
        let id = format!("j{round}");
        let asking = (0..16).map(|number| {
            let (registry, by) = (&registries[number % 4], holder(&workers[number % 4], 1));
            let request = request(&id, &by, 1, None);
            async move { registry.reserve(request).await.expect("answered") }
        });
        let answers = join_all(asking).await;
        let fresh = answers.iter().filter(|answer| **answer == Reservation::Fresh).count();
        let busy = answers.iter().filter(|answer| matches!(answer, Reservation::Busy { .. })).count();
        assert_eq!((fresh, busy), (1, 15), "{answers:?}");
    }
}

/// Contract: Q8. The server was stopped when it was asked, carries it out later, and nobody hears of it.
#[tokio::test]
async fn a_reservation_whose_answer_was_lost_is_taken_over_and_not_waited_for() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let fence = request("j", &me, 1, None).fence;
    held(&registry, &me, Resource::Slot(0)).await;
    registry.reserve(request("cancelled", &me, 1, None)).await.expect("reserved");

    server.signal(Signal::SIGSTOP);
    let doomed = job("cancelled");
    let (open, chosen, cancelled) = tokio::join!(
        registry.reserve(request("open", &me, 1, None)),
        registry.reserve(request("chosen", &me, 1, Some("id-1"))),
        registry.cancel(&fence, &doomed),
    );
    unavailable(open);
    unavailable(chosen);
    unavailable(cancelled);
    server.signal(Signal::SIGCONT);

    let back = |id: &'static str, provider_id: Option<&'static str>| {
        let (registry, request) = (registry.clone(), request(id, &me, 1, provider_id));
        async move { registry.reserve(request).await }
    };
    super::until("it answers", async || back("other", None).await.is_ok()).await;
    assert_eq!(server.ask::<String>(&["HGET", "shardvisor:guard:open", "state"]).await, "reserved", "it was stored");
    assert_eq!(back("open", None).await.expect("answered"), Reservation::Fresh);
    assert_eq!(back("open", None).await.expect("answered"), Reservation::Busy { by: me.clone() });
    let again = back("chosen", Some("id-2")).await.expect("answered");
    assert_eq!(again, Reservation::Again { provider_id: "id-1".into() });
    registry.cancel(&fence, &job("cancelled")).await.expect("cancelled, perhaps twice");
    assert_eq!(back("cancelled", None).await.expect("answered"), Reservation::Fresh);
}

/// Contract: Q8. What was sent over a connection that was given up must not undo what came after it.
#[tokio::test]
async fn what_comes_late_over_an_older_connection_changes_nothing() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    registry.reserve(request("j", &me, 1, None)).await.expect("reserved");
    let sessions: Vec<String> = server.ask(&["KEYS", "shardvisor:session:*"]).await;
    assert_eq!(sessions.len(), 1);
    // As if a newer connection of the same process had been made since.
    let _: i64 = server.ask(&["INCRBY", &sessions[0], "10"]).await;
    let fence = request("j", &me, 1, None).fence;
    unavailable(registry.cancel(&fence, &job("j")).await);
    unavailable(registry.mark_uncertain(&fence, &job("j"), "late").await);
    unavailable(registry.reserve(request("k", &me, 1, None)).await);
    assert_eq!(server.ask::<String>(&["HGET", "shardvisor:guard:j", "state"]).await, "reserved");
}

/// Contract: Q8. Alive means: heard of lately, and not succeeded by a later life.
#[tokio::test]
async fn a_holder_that_was_succeeded_is_not_waited_for() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let other = holder("b", 1);
    let of_other = server.registry("b", 1);
    held(&of_other, &other, Resource::Slot(1)).await;
    of_other.reserve(request("j", &other, 1, None)).await.expect("reserved");
    let ask = async || registry.reserve(request("j", &me, 1, None)).await.expect("answered");
    assert_eq!(ask().await, Reservation::Busy { by: other.clone() });
    server.registry("b", 2).count_deaths(&[], 1).await.expect("its next life is there");
    assert_eq!(ask().await, Reservation::Uncertain { by: other });
}

/// Contract: Q8.
#[tokio::test]
async fn what_came_of_a_send_is_kept_for_a_week_and_a_doubt_stays_on_record() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    let fence = request("j", &me, 1, None).fence;
    let week = 7 * 24 * 3600 * 1000;
    registry.reserve(request("j", &me, 1, None)).await.expect("reserved");
    registry.mark_uncertain(&fence, &job("j"), "timed out").await.expect("marked");
    let since: i64 = server.ask(&["HGET", "shardvisor:guard:j", "uncertain_ms"]).await;
    let left: i64 = server.ask(&["PTTL", "shardvisor:guard:j"]).await;
    assert!(left > week - 60_000 && left <= week, "{left}");
    let resend = shard::registry::Reserve { resend: true, ..request("j", &me, 1, None) };
    assert_eq!(registry.reserve(resend).await.expect("answered"), Reservation::Fresh);
    registry.cancel(&fence, &job("j")).await.expect("cancelled");
    assert_eq!(server.ask::<String>(&["HGET", "shardvisor:guard:j", "state"]).await, "cancelled");
    assert_eq!(registry.reserve(request("j", &me, 1, None)).await.expect("answered"), Reservation::Fresh);
    let _: i64 = server.ask(&["PEXPIRE", "shardvisor:guard:j", "60000"]).await;
    let empty = Sent { provider_id: Some(String::new()), result: None };
    registry.mark_sent(&fence, &job("j"), empty.clone()).await.expect("marked");
    assert_eq!(server.ask::<i64>(&["HGET", "shardvisor:guard:j", "uncertain_ms"]).await, since);
    assert!(server.ask::<i64>(&["PTTL", "shardvisor:guard:j"]).await > week - 60_000, "a week from then on");
    assert_eq!(registry.reserve(request("j", &me, 1, None)).await.expect("answered"), Reservation::Sent(empty));
    registry.count_deaths(&[(channel(1), job("d"))], 9).await.expect("counted");
    assert!(server.ask::<i64>(&["PTTL", "shardvisor:deaths:d"]).await > week - 60_000);
    assert!(Duration::from_millis(week as u64) > LEASE);
}
