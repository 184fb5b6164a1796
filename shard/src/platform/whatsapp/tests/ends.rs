//! How connections end, and what is made of it.

use simulators::whatsapp::{ALWAYS, End, Fault, On};

use super::*;

/// Ends the connection that is up and tells how the life ended.
async fn after(end: End) -> Closed {
    let mut world = World::linked().await;
    assert!(world.server.end(&world.device, end), "there was a connection");
    world.ended().await
}

/// Field reports R01, R10.
#[tokio::test(flavor = "multi_thread")]
async fn another_owner_is_told_from_a_removed_device() {
    assert!(matches!(after(End::Replaced).await, Closed::Replaced { .. }));
    assert!(matches!(after(End::Removed).await, Closed::LoggedOut { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_server_are_judged_by_their_code() {
    assert!(matches!(after(End::Error(503)).await, Closed::Transient { .. }));
    assert!(matches!(after(End::Error(500)).await, Closed::Rejected { .. }));
    assert!(matches!(after(End::Error(516)).await, Closed::LoggedOut { .. }));
    assert!(matches!(after(End::Error(429)).await, Closed::Transient { after: Some(_), .. }));
    assert!(matches!(after(End::Cut).await, Closed::Transient { .. }));
    assert!(matches!(after(End::Closed).await, Closed::Transient { .. }));
}

/// Field reports R06, R10.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_judged_by_its_reason() {
    let mut world = World::linked().await;
    world.close().await;
    type Fits = fn(&Closed) -> bool;
    let cases: [(u16, Fits); 6] = [
        (401, |closed| matches!(closed, Closed::LoggedOut { .. })),
        (402, |closed| matches!(closed, Closed::Banned { .. })),
        (403, |closed| matches!(closed, Closed::Banned { until: None, .. })),
        (405, |closed| matches!(closed, Closed::Misconfigured { .. })),
        (500, |closed| matches!(closed, Closed::Rejected { .. })),
        (503, |closed| matches!(closed, Closed::Transient { .. })),
    ];
    for (code, fits) in cases {
        let fault = world.server.fault(On::login(), Fault::EndBefore(End::Failure(code)), ALWAYS);
        world.again();
        let closed = world.ended().await;
        assert!(fits(&closed), "{code}: {closed:?}");
        world.server.heal(fault);
    }
    let times = world.inbox.times_connected();
    world.again();
    world.inbox.wait_connected(times + 1).await;
}

/// Field report R03.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_is_asked_for_is_one_and_not_an_end() {
    let world = World::linked().await;
    let times = world.inbox.times_connected();
    world.server.end(&world.device, End::Error(515));
    world.inbox.wait_connected(times + 1).await;
    assert!(!world.living.is_finished());
}

/// Contract: Q1. After a logout nothing is left that could connect.
#[tokio::test(flavor = "multi_thread")]
async fn a_logout_unlinks_the_device_and_removes_its_session() {
    let mut world = World::linked().await;
    world.whatsapp.log_out(&spec(None)).await.expect("logged out");
    assert!(world.owner.devices().is_empty());
    let closed = world.ended().await;
    assert!(matches!(closed, Closed::LoggedOut { .. }), "{closed:?}");
    world.inbox.revive();
    let before = world.inbox.events().len();
    world.again();
    let anew = world.inbox.wait_for("a new code", |inbox| {
        inbox.events()[before..].iter().find(|event| event.kind.name() == "channel.pairing_code").map(|_| ())
    });
    anew.await;
}

/// Field report R17.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_sound_is_dead() {
    let mut world = World::linked_as(|config| WhatsappConfig { idle_limit: Duration::from_secs(2), ..config }).await;
    world.server.fault(On::any(), Fault::Lost, ALWAYS);
    let closed = world.ended().await;
    assert!(matches!(closed, Closed::Transient { .. }), "{closed:?}");
}

/// Contract: Q9. Field report R02.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_the_connection_and_a_logged_out_channel_refuses_it_for_good() {
    let mut world = World::linked().await;
    world.close().await;
    let text = job("early", "send", json!({"chat_id": world.peer.number(), "text": "early"}));
    let (whatsapp, early) = (world.whatsapp.clone(), text.clone());
    let waiting = tokio::spawn(async move {
        let sender = whatsapp.sender(&spec(None)).expect("a sender");
        sender.perform(&early, whatsapp.provider_id(&early).as_deref()).await
    });
    world.again();
    waiting.await.expect("no panic").expect("sent");
    world.server.end(&world.device, End::Removed);
    world.ended().await;
    let refused = world.perform(&text).await;
    assert!(matches!(refused, Err(Failed::Permanent { reason: "logged_out", .. })), "{refused:?}");
}
