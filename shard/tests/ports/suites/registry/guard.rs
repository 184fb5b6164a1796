//! The send guard.

use super::*;

fn request(id: &str, by: &Holder, token: u64, provider_id: Option<&str>) -> Reserve {
    Reserve {
        job: job(id),
        fence: Fence { channel: channel(1), token },
        holder: by.clone(),
        provider_id: provider_id.map(str::to_owned),
        resend: false,
    }
}

async fn reserve(registry: &Arc<dyn Registry>, id: &str, by: &Holder, provider_id: Option<&str>) -> Reservation {
    registry.reserve(request(id, by, 1, provider_id)).await.expect("answered")
}

const FENCE: fn(u64) -> Fence = |token| Fence { channel: channel(1), token };

fn sent(id: &str) -> Sent {
    Sent { provider_id: Some(id.to_owned()), result: Some(json!({"message_id": id, "parts": [1, 2.5, null]})) }
}

/// Contract: Q8.
pub(crate) async fn a_send_that_was_done_answers_every_later_job_of_its_id(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    assert_eq!(reserve(&registry, "j", &me, None).await, Reservation::Fresh);
    assert_eq!(reserve(&registry, "other", &me, None).await, Reservation::Fresh);
    assert_eq!(reserve(&registry, "j", &me, None).await, Reservation::Busy { by: me.clone() });
    registry.mark_sent(&FENCE(1), &job("j"), sent("42")).await.expect("marked");
    assert_eq!(reserve(&registry, "j", &me, None).await, Reservation::Sent(sent("42")));
    // Nothing takes that back.
    registry.mark_sent(&FENCE(1), &job("j"), sent("43")).await.expect("too late");
    registry.cancel(&FENCE(1), &job("j")).await.expect("too late");
    registry.mark_uncertain(&FENCE(1), &job("j"), "timed out").await.expect("too late");
    drop(registry);
    let (registry, me) = harness.start().await;
    assert_eq!(reserve(&registry, "j", &me, Some("mine")).await, Reservation::Sent(sent("42")));
    registry.mark_sent(&FENCE(1), &job("unreserved"), Sent { provider_id: None, result: None }).await.expect("marked");
    let answer = reserve(&registry, "unreserved", &me, None).await;
    assert_eq!(answer, Reservation::Sent(Sent { provider_id: None, result: None }));
}

/// Contract: Q8.
pub(crate) async fn a_send_that_did_not_happen_can_be_tried_again(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    reserve(&registry, "j", &me, None).await;
    registry.cancel(&FENCE(1), &job("j")).await.expect("cancelled");
    registry.cancel(&FENCE(1), &job("j")).await.expect("cancelled twice");
    assert_eq!(reserve(&registry, "j", &me, None).await, Reservation::Fresh);
}

/// Contract: Q8. Field report R33.
pub(crate) async fn what_a_dead_process_had_on_the_wire_is_sent_again_under_its_id_or_uncertain(
    mut harness: impl RegistryHarness,
) {
    let (registry, dead) = harness.start().await;
    reserve(&registry, "chosen", &dead, Some("id-1")).await;
    reserve(&registry, "open", &dead, None).await;
    drop(registry);

    let (registry, me) = harness.start().await;
    assert!(me.incarnation > dead.incarnation);
    let again = reserve(&registry, "chosen", &me, Some("id-2")).await;
    assert_eq!(again, Reservation::Again { provider_id: "id-1".into() });
    assert_eq!(reserve(&registry, "chosen", &me, None).await, Reservation::Busy { by: me.clone() });
    for _ in 0..2 {
        assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Uncertain { by: dead.clone() });
    }
    drop(registry);

    let (registry, me) = harness.start().await;
    let again = reserve(&registry, "chosen", &me, None).await;
    assert_eq!(again, Reservation::Again { provider_id: "id-1".into() });
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Uncertain { by: dead.clone() });
    registry.cancel(&FENCE(1), &job("open")).await.expect("a resend begins");
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Fresh);
    registry.mark_sent(&FENCE(1), &job("open"), sent("9")).await.expect("marked");
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Sent(sent("9")));
}

/// Contract: Q8.
pub(crate) async fn a_doubt_is_kept_until_it_is_settled(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    reserve(&registry, "j", &me, None).await;
    registry.mark_uncertain(&FENCE(1), &job("j"), "timed out").await.expect("marked");
    registry.mark_uncertain(&FENCE(1), &job("unreserved"), "timed out").await.expect("marked");
    drop(registry);
    let (registry, next) = harness.start().await;
    assert_eq!(reserve(&registry, "j", &next, Some("id")).await, Reservation::Uncertain { by: me });
    assert!(matches!(reserve(&registry, "unreserved", &next, None).await, Reservation::Uncertain { .. }));
    registry.mark_sent(&FENCE(1), &job("j"), sent("5")).await.expect("found out");
    assert_eq!(reserve(&registry, "j", &next, None).await, Reservation::Sent(sent("5")));
}

/// Contract: Q8.
pub(crate) async fn another_worker_is_waited_for_only_while_it_provably_lives(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    let other = holder("elsewhere", 4);
    let lease = held(&registry, &other, Resource::Slot(77)).await;
    reserve(&registry, "open", &other, None).await;
    reserve(&registry, "chosen", &other, Some("id-1")).await;
    harness.advance(LEASE * 6 / 10).await;
    assert_eq!(lost(&registry, &other, &[lease]).await, []);
    harness.advance(LEASE * 6 / 10).await;
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Busy { by: other.clone() });
    harness.advance(LEASE * 6 / 10).await;
    assert_eq!(reserve(&registry, "open", &me, None).await, Reservation::Uncertain { by: other.clone() });
    lost(&registry, &other, &[lease]).await;
    let still = reserve(&registry, "open", &me, None).await;
    assert_eq!(still, Reservation::Uncertain { by: other.clone() }, "a doubt that was told is stored");
    harness.advance(LEASE * 11 / 10).await;
    let again = reserve(&registry, "chosen", &me, None).await;
    assert_eq!(again, Reservation::Again { provider_id: "id-1".into() });
    let never_seen = holder("nobody", 1);
    reserve(&registry, "x", &never_seen, None).await;
    assert_eq!(reserve(&registry, "x", &me, None).await, Reservation::Uncertain { by: never_seen });
}

/// Contract: C1.
pub(crate) async fn an_older_token_writes_nothing(mut harness: impl RegistryHarness) {
    let (registry, me) = harness.start().await;
    registry.reserve(request("a", &me, 5, None)).await.expect("reserved");
    fenced(registry.reserve(request("b", &me, 4, None)).await);
    fenced(registry.mark_sent(&FENCE(4), &job("a"), sent("1")).await);
    fenced(registry.cancel(&FENCE(4), &job("a")).await);
    fenced(registry.mark_uncertain(&FENCE(4), &job("a"), "late").await);
    assert_eq!(
        registry.reserve(request("a", &me, 5, None)).await.expect("still"),
        Reservation::Busy { by: me.clone() }
    );
    registry.mark_sent(&FENCE(6), &job("a"), sent("1")).await.expect("a newer owner");
    fenced(registry.reserve(request("c", &me, 5, None)).await);
    let elsewhere = Reserve { fence: Fence { channel: channel(2), token: 1 }, ..request("d", &me, 1, None) };
    assert_eq!(registry.reserve(elsewhere).await.expect("another channel"), Reservation::Fresh);
}
