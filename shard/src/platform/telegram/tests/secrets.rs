//! Where the token must not be.

use super::*;

/// Field report R23.
#[tokio::test]
async fn the_token_is_in_no_error_no_debug_form_and_no_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _capturing = tracing::subscriber::set_default(subscriber);

    let world = World::new().await;
    world.bot.user(7);
    let token = world.bot.token().to_owned();
    let mut told = String::new();
    let text = || json!({"chat_id": "7", "text": "x"});
    let echoes = |code| {
        let description = format!("Bad Request: no /bot{token}/sendMessage, nor bot{}", token.replace(':', "%3A"));
        Fault::Refuse(simulators::telegram::Refused::new(code, description))
    };
    let faults = [
        echoes(400),
        echoes(409),
        echoes(500),
        Fault::Page(502),
        Fault::ResetBefore,
        Fault::Malformed,
        Fault::unauthorized(),
    ];
    for fault in faults {
        world.simulator.fault(On::any(), fault, 2);
        told += &format!("{:?}\n", world.closed().await);
        let failed = world.perform("send", text()).await.unwrap_err();
        told += &format!("{failed} {failed:?}\n");
    }
    world.simulator.outage();
    told += &format!("{:?}\n", world.closed().await);
    let failed = world.perform("send", text()).await.unwrap_err();
    told += &format!("{failed} {failed:?}\n");
    // Nobody listens, no name resolves, the token has no form that fits into an address.
    for url in ["http://127.0.0.1:9/", "http://nowhere.invalid/"] {
        let telegram = telegram_at(url);
        let sender = telegram.sender(&spec_of(&token)).unwrap();
        let failed = sender.perform(&job("send", text()), None).await.unwrap_err();
        assert!(matches!(failed, Failed::Retry { .. }), "{failed:?}");
        told += &format!("{failed} {failed:?}\n");
    }
    let sender = world.telegram.sender(&spec_of(&format!("{token}/..?#"))).unwrap();
    told += &format!("{:?}\n", sender.perform(&job("send", text()), None).await);
    told += &format!("{:?}\n", spec_of(&token));

    tracing::info!("the log is captured");
    let told = told + &String::from_utf8_lossy(&log.0.lock().unwrap());
    assert!(told.contains("the log is captured") && told.contains("[redacted]"));
    let secret = token.split_once(':').unwrap().1;
    assert!(!told.contains(secret), "{told}");
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
