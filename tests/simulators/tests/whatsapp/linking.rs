//! Devices are linked, log in again, and are unlinked.

use simulators::whatsapp::{ALWAYS, End, Fault, On, PairingRefused, Pattern, WhatsApp};
use whatsapp_rust::prelude::*;

use crate::device::{Device, SOON};

/// Field report R03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_links_by_a_scanned_code_restarts_and_talks_with_a_phone() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;

    bob.say(alice.number(), "hello device").await.expect("written");
    device.text("hello device").await;
    let id = device.say(&bob.jid(), "hello phone").await;
    let read = bob.wait_for_text("hello phone", SOON).await.expect("read");
    assert_eq!((read.id, &read.from), (id, &address));
    // The phone of the same account sees what its device wrote.
    let copy = alice.wait_for_text("hello phone", SOON).await.expect("a copy");
    assert_eq!(copy.chat, bob.jid());
    assert_eq!(whatsapp.unknown_queries(), Vec::<String>::new());
    // How often the library's stock client comes back after the restart that linking asks for is its own affair.
    let logins = whatsapp.logins();
    assert!(!logins.is_empty() && logins.iter().all(|login| login.accepted && login.device == address), "{logins:?}");
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_session_logs_in_again_without_a_code_and_with_the_short_handshake() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    let (device, address) = Device::of(&whatsapp, &alice).await;
    let store = device.shut_down().await;
    whatsapp.wait_for("it left", SOON, || whatsapp.connection(&address).is_none().then_some(())).await.expect("left");

    let device = Device::with(&whatsapp, store, None).await;
    device.connected().await;
    assert_eq!(whatsapp.logins().last().map(|login| login.pattern), Some(Pattern::Ik));
    bob.say(alice.number(), "still there").await.expect("written");
    device.text("still there").await;
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_links_by_the_digits_that_it_shows() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let (alice, bob) = (whatsapp.phone("15550000001"), whatsapp.phone("15550000002"));
    assert_eq!(alice.link("ABCD2345", SOON).await, Err(PairingRefused::NobodyAsked));

    let device = Device::by_code(&whatsapp, alice.number(), "ABCD2345").await;
    whatsapp.wait_for("it asks", SOON, || alice.is_asked_for_digits().then_some(())).await.expect("asked");
    let address = alice.link("ABCD2345", SOON).await.expect("linked");
    device.connected().await;
    whatsapp.wait_for_device(&address, SOON).await.expect("online");
    device.say(&bob.jid(), "linked by digits").await;
    bob.wait_for_text("linked by digits", SOON).await.expect("read");
    device.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn digits_that_the_device_does_not_show_link_nothing() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let alice = whatsapp.phone("15550000001");
    let device = Device::by_code(&whatsapp, alice.number(), "ABCD2345").await;
    whatsapp.wait_for("it asks", SOON, || alice.is_asked_for_digits().then_some(())).await.expect("asked");
    assert_eq!(alice.link("ABCD2346", SOON).await, Err(PairingRefused::WrongCode));
    assert_eq!(alice.devices(), []);
    device.shut_down().await;
}

/// Field report R10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlinked_device_is_told_so_and_is_not_let_in_again() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let alice = whatsapp.phone("15550000001");
    let (device, address) = Device::of(&whatsapp, &alice).await;
    assert_eq!(alice.devices(), std::slice::from_ref(&address));

    alice.unlink(&address);
    device.wait_for("the logout", |event| matches!(event, Event::LoggedOut(_)).then_some(())).await;
    assert_eq!(alice.devices(), []);
    let store = device.shut_down().await;
    let again = Device::with(&whatsapp, store, None).await;
    let refused = || whatsapp.logins().iter().any(|login| !login.accepted).then_some(());
    whatsapp.wait_for("a refused login", SOON, refused).await.expect("refused");
    again.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_logs_out_is_unlinked() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let alice = whatsapp.phone("15550000001");
    let (device, _) = Device::of(&whatsapp, &alice).await;
    device.client().logout().await;
    whatsapp.wait_for("no device", SOON, || alice.devices().is_empty().then_some(())).await.expect("unlinked");
    device.shut_down().await;
}

/// Field report R01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_login_replaces_the_first_one() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let alice = whatsapp.phone("15550000001");
    let (first, address) = Device::of(&whatsapp, &alice).await;
    let connection = whatsapp.connection(&address);
    let second = Device::with(&whatsapp, first.store.clone(), None).await;
    second.connected().await;
    first.wait_for("the conflict", |event| matches!(event, Event::StreamReplaced(_)).then_some(())).await;
    assert_ne!(whatsapp.connection(&address), connection);
    first.shut_down().await;
    second.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outdated_client_is_refused_until_it_is_healed() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let alice = whatsapp.phone("15550000001");
    let (device, address) = Device::of(&whatsapp, &alice).await;
    let store = device.shut_down().await;
    let fault = whatsapp.fault(On::login().of_device(&address), Fault::Refuse(405), ALWAYS);

    let device = Device::with(&whatsapp, store.clone(), None).await;
    device.wait_for("the refusal", |event| matches!(event, Event::ClientOutdated(_)).then_some(())).await;
    device.shut_down().await;
    assert_eq!(whatsapp.fired(fault), 1);
    whatsapp.heal(fault);
    let device = Device::with(&whatsapp, store, None).await;
    device.connected().await;
    device.shut_down().await;
}

/// Field report R04.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_shows_a_code_can_be_cut_off() {
    let whatsapp = WhatsApp::start().await.expect("a free port");
    let fault = whatsapp.fault(On::pairing(), Fault::EndAfter(End::Error(503)), 1);
    let device = Device::unlinked(&whatsapp).await;
    whatsapp.wait_for("the end", SOON, || (whatsapp.fired(fault) == 1).then_some(())).await.expect("fired");
    // The code that it showed is worth nothing; it comes back by itself with another one.
    let alice = whatsapp.phone("15550000001");
    let mut code = device.code().await;
    while alice.scan(&code) == Err(PairingRefused::Gone) {
        code = device.code().await;
    }
    device.connected().await;
    assert_eq!(alice.devices().len(), 1);
    device.shut_down().await;
}
