//! Where tokens must not be.

use super::*;

/// Field report R23.
#[tokio::test]
async fn tokens_and_tickets_are_in_no_error_no_debug_form_and_no_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _capturing = tracing::subscriber::set_default(subscriber);

    let world = World::new().await;
    world.app.dm("U7");
    let mut told = String::new();
    let text = || json!({"chat_id": "D7", "text": "x"});
    let echoes = Fault::refuse(&format!("no {} and {}", world.app.app_token(), world.app.bot_token()));
    for fault in [echoes, Fault::Page(502), Fault::ResetBefore, Fault::Malformed, Fault::refuse("invalid_auth")] {
        world.simulator.fault(On::method("apps.connections.open"), fault.clone(), 1);
        told += &format!("{:?}\n", world.closed().await);
        world.simulator.fault(On::method("chat.postMessage"), fault, 1);
        let failed = world.perform("send", text()).await.unwrap_err();
        told += &format!("{failed} {failed:?}\n");
    }
    // A ticket is part of the address that the socket is opened with.
    let (receiving, _stop) = world.connected().await;
    world.app.greet(Greeting::Slam);
    world.app.reset_sockets();
    told += &format!("{:?}\n", receiving.await.unwrap());
    told += &format!("{:?}\n", world.closed().await);
    world.simulator.outage();
    told += &format!("{:?}\n", world.closed().await);
    let failed = world.perform("send", text()).await.unwrap_err();
    assert!(matches!(failed, Failed::Retry { .. }), "{failed:?}");
    told += &format!("{failed} {failed:?}\n");
    for secret in [format!("{} strange", secret_of(&world.app)), format!("{}\r\nx", world.app.bot_token())] {
        let closed = world.slack.receive(spec_of(&secret), world.inbox.clone(), CancellationToken::new()).await;
        told += &format!("{closed:?} {:?} {:?}\n", spec_of(&secret), Tokens::read(&Secret::new(secret.as_str())));
    }

    tracing::info!("the log is captured");
    let told = told + &String::from_utf8_lossy(&log.0.lock().unwrap());
    assert!(told.contains("the log is captured") && told.contains("[redacted]"));
    for secret in [world.app.app_token(), world.app.bot_token(), "ticket="] {
        assert!(!told.contains(secret), "{told}");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
