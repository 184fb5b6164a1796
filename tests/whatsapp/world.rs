//! A box with one linked device on the simulator: its owner's phone, a peer's, and an endpoint that keeps every event.

use std::time::Duration;

use serde_json::{Value, json};
use simulators::whatsapp::{Address, Phone, WhatsApp};

use crate::{
    endpoint::{Events, endpoint},
    support::{Home, wait_for},
};

/// How long anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) fn of(events: &Events, kind: &str) -> Vec<Value> {
    events.lock().expect("events").iter().filter(|event| event["type"] == kind).cloned().collect()
}

pub(crate) struct Box {
    pub(crate) server: WhatsApp,
    pub(crate) home: Home,
    pub(crate) events: Events,
    pub(crate) owner: Phone,
    pub(crate) peer: Phone,
    pub(crate) channel: String,
}

pub(crate) async fn a_box(shards: u32) -> Box {
    let server = WhatsApp::start().await.expect("a simulator");
    let (url, events) = endpoint().await;
    let home = Home::new()
        .with("SHARD_COUNT", shards)
        .with("SHARDVISOR_WHATSAPP_ENDPOINT", server.url())
        .with("SHARDVISOR_WHATSAPP_PRE_KEYS", 20)
        .with("SHARDVISOR_EVENTS_URL", url);
    let (owner, peer) = (server.phone("4915100000001"), server.phone("4915100000002"));
    let channel = home.ok(&["channel", "add", "whatsapp", "--handler", "echo"]).trim().to_owned();
    Box { server, home, events, owner, peer, channel }
}

impl Box {
    pub(crate) fn link(&self) -> Address {
        let code = wait_for("a code", SOON, || {
            of(&self.events, "channel.pairing_code").pop()?["data"]["code"].as_str().map(str::to_owned)
        });
        let device = self.owner.scan(&code).expect("scanned");
        self.connected(1);
        device
    }

    pub(crate) fn connected(&self, times: usize) {
        let states =
            || of(&self.events, "channel.state").into_iter().filter(|event| event["data"]["state"] == "connected");
        wait_for("connected", SOON, || (states().count() >= times).then_some(()));
    }

    pub(crate) fn job(&self, id: &str, name: &str, data: &Value) {
        let job = json!({"name": name, "id": id, "channel_id": self.channel, "data": data});
        let queued = self.home.with_input(&["send", "--json"], &format!("{job}\n"));
        assert!(queued.status.success(), "{}", String::from_utf8_lossy(&queued.stderr));
    }

    pub(crate) fn done(&self, id: &str) -> Value {
        wait_for(id, SOON, || of(&self.events, "job.done").into_iter().find(|event| event["data"]["job_id"] == id))
    }
}
