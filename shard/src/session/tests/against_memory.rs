//! The storage traits, held against the library's own implementation in memory: random work, the same answers.

use bytes::Bytes;
use proptest::prelude::*;
use whatsapp_rust::wacore::store::{InMemoryBackend, traits::*};

use super::*;

/// One piece of work. Names come from a small set, so that they meet.
#[derive(Debug, Clone)]
enum Op {
    Identity(u8, u8),
    ForgetIdentity(u8),
    Session(u8, u8),
    Sessions(Vec<(u8, u8)>),
    ForgetSession(u8),
    PreKey(u32, u8),
    ForgetPreKey(u32),
    SenderKey(u8, u8),
    KeyDevices(u8, Vec<(u8, bool)>),
    ClearKeyDevices(u8),
    DropKeyDevices(Vec<u8>),
    Mapping(u8, u8),
    Devices(u8, u8),
    TouchToken(u8, i64),
    ReceiveToken(u8, i64),
    ExpireTokens(i64, i64),
    Sent(u8, u8),
    TakeSent(u8, u8),
    Pending(u8, u8),
    ForgetPending(u8, u8),
    Secret(u8, u8, i64),
    ExpireSecrets(i64),
    Mac(u8, u8),
    ClearMacs(u8),
    BaseKey(u8, u8),
}

fn op() -> impl Strategy<Value = Op> {
    let n = || 0u8..4;
    prop_oneof![
        (n(), any::<u8>()).prop_map(|(a, v)| Op::Identity(a, v)),
        n().prop_map(Op::ForgetIdentity),
        (n(), any::<u8>()).prop_map(|(a, v)| Op::Session(a, v)),
        prop::collection::vec((n(), any::<u8>()), 0..4).prop_map(Op::Sessions),
        n().prop_map(Op::ForgetSession),
        (0u32..6, any::<u8>()).prop_map(|(a, v)| Op::PreKey(a, v)),
        (0u32..6).prop_map(Op::ForgetPreKey),
        (n(), any::<u8>()).prop_map(|(a, v)| Op::SenderKey(a, v)),
        (n(), prop::collection::vec((n(), any::<bool>()), 0..4)).prop_map(|(a, v)| Op::KeyDevices(a, v)),
        n().prop_map(Op::ClearKeyDevices),
        prop::collection::vec(n(), 0..3).prop_map(Op::DropKeyDevices),
        (n(), n()).prop_map(|(a, b)| Op::Mapping(a, b)),
        (n(), any::<u8>()).prop_map(|(a, v)| Op::Devices(a, v)),
        (n(), 1i64..50).prop_map(|(a, v)| Op::TouchToken(a, v)),
        (n(), 1i64..50).prop_map(|(a, v)| Op::ReceiveToken(a, v)),
        (1i64..50, 1i64..50).prop_map(|(a, b)| Op::ExpireTokens(a, b)),
        (n(), n()).prop_map(|(a, b)| Op::Sent(a, b)),
        (n(), n()).prop_map(|(a, b)| Op::TakeSent(a, b)),
        (n(), n()).prop_map(|(a, b)| Op::Pending(a, b)),
        (n(), n()).prop_map(|(a, b)| Op::ForgetPending(a, b)),
        (n(), n(), 0i64..50).prop_map(|(a, b, c)| Op::Secret(a, b, c)),
        (1i64..50).prop_map(Op::ExpireSecrets),
        (n(), any::<u8>()).prop_map(|(a, v)| Op::Mac(a, v)),
        n().prop_map(Op::ClearMacs),
        (n(), any::<u8>()).prop_map(|(a, v)| Op::BaseKey(a, v)),
    ]
}

fn address(n: u8) -> String {
    format!("49{}:{n}@s.whatsapp.net", n % 2)
}

async fn perform(backend: &dyn Backend, op: &Op) -> Option<Vec<u8>> {
    let text = |n: &u8| n.to_string();
    match op {
        Op::Identity(a, v) => backend.put_identity(&address(*a), [*v; 32]).await.unwrap(),
        Op::ForgetIdentity(a) => backend.delete_identity(&address(*a)).await.unwrap(),
        Op::Session(a, v) => backend.put_session(&address(*a), &[*v]).await.unwrap(),
        Op::Sessions(all) => {
            let all: Vec<(Arc<str>, Bytes)> =
                all.iter().map(|(a, v)| (address(*a).into(), Bytes::from(vec![*v]))).collect();
            backend.put_sessions_batch(&all).await.unwrap();
        }
        Op::ForgetSession(a) => backend.delete_session(&address(*a)).await.unwrap(),
        Op::PreKey(id, v) => backend.store_prekey(*id, &[*v], false).await.unwrap(),
        Op::ForgetPreKey(id) => backend.remove_prekey(*id).await.unwrap(),
        Op::SenderKey(a, v) => backend.put_sender_key(&text(a), &[*v]).await.unwrap(),
        Op::KeyDevices(group, devices) => {
            let names: Vec<(String, bool)> = devices.iter().map(|(device, has)| (text(device), *has)).collect();
            let entries: Vec<(&str, bool)> = names.iter().map(|(name, has)| (name.as_str(), *has)).collect();
            backend.set_sender_key_status(&text(group), &entries).await.unwrap();
        }
        Op::ClearKeyDevices(group) => backend.clear_sender_key_devices(&text(group)).await.unwrap(),
        Op::DropKeyDevices(devices) => {
            let names: Vec<String> = devices.iter().map(text).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            backend.delete_sender_key_device_rows(&names).await.unwrap();
        }
        Op::Mapping(lid, phone) => {
            let entry = LidPnMappingEntry {
                lid: format!("lid{lid}"),
                phone_number: format!("pn{phone}"),
                created_at: 1,
                updated_at: 1,
                learning_source: String::new(),
            };
            backend.put_lid_mapping(&entry).await.unwrap();
        }
        Op::Devices(user, v) => {
            let record = DeviceListRecord {
                user: text(user),
                devices: vec![DeviceInfo::new(u32::from(*v), None)],
                timestamp: 1,
                phash: None,
                raw_id: None,
            };
            backend.update_device_list(record).await.unwrap();
        }
        Op::TouchToken(a, at) => backend.touch_tc_token_sender_timestamp(&text(a), *at).await.unwrap(),
        Op::ReceiveToken(a, at) => backend.store_received_tc_token(&text(a), &[1], *at).await.unwrap(),
        Op::ExpireTokens(a, b) => {
            return Some(backend.delete_expired_tc_tokens(*a, *b).await.unwrap().to_le_bytes().to_vec());
        }
        Op::Sent(a, b) => backend.store_sent_message(&text(a), &text(b), &[*a, *b]).await.unwrap(),
        Op::TakeSent(a, b) => return backend.take_sent_message(&text(a), &text(b)).await.unwrap(),
        Op::Pending(a, b) => backend.store_pending_inbound("c", &text(a), &text(b), &[*a, *b]).await.unwrap(),
        Op::ForgetPending(a, b) => backend.delete_pending_inbound("c", &text(a), &text(b)).await.unwrap(),
        Op::Secret(a, b, expires_at) => {
            let entry = MsgSecretEntry {
                chat: text(a).into(),
                sender: text(a).into(),
                msg_id: text(b).into(),
                secret: [*b; 32],
                expires_at: *expires_at,
                message_ts: expires_at / 2,
            };
            backend.put_msg_secrets(vec![entry]).await.unwrap();
        }
        Op::ExpireSecrets(at) => {
            return Some(backend.delete_expired_msg_secrets(*at).await.unwrap().to_le_bytes().to_vec());
        }
        Op::Mac(a, v) => {
            let mac = whatsapp_rust::wacore::appstate::processor::AppStateMutationMAC {
                index_mac: vec![*a; 32],
                value_mac: vec![*v],
            };
            backend.put_mutation_macs(&text(&(a % 2)), 1, &[mac]).await.unwrap();
        }
        Op::ClearMacs(a) => backend.clear_mutation_macs(&text(&(a % 2))).await.unwrap(),
        Op::BaseKey(a, v) => backend.save_base_key(&address(*a), "m", &[*v]).await.unwrap(),
    }
    None
}

/// Everything that can be asked, as one text.
async fn picture(backend: &dyn Backend) -> String {
    let mut lines = Vec::new();
    for n in 0..4u8 {
        let (text, address) = (n.to_string(), address(n));
        lines.push(format!("{:?}", backend.load_identity(&address).await.unwrap()));
        lines.push(format!("{:?}", backend.get_session(&address).await.unwrap()));
        lines.push(format!("{:?}", backend.has_signal_state_for_user(&format!("49{}", n % 2)).await.unwrap()));
        lines.push(format!("{:?}", backend.get_sender_key(&text).await.unwrap()));
        let mut devices = backend.get_sender_key_devices(&text).await.unwrap();
        devices.sort();
        lines.push(format!("{devices:?}"));
        lines.push(format!("{:?}", backend.get_lid_mapping(&format!("lid{n}")).await.unwrap()));
        lines.push(format!("{:?}", backend.get_devices(&text).await.unwrap()));
        lines.push(format!("{:?}", backend.get_tc_token(&text).await.unwrap()));
        lines.push(format!("{:?}", backend.has_same_base_key(&address, "m", &[7]).await.unwrap()));
        lines.push(format!("{:?}", backend.get_mutation_mac(&(n % 2).to_string(), &[n; 32]).await.unwrap()));
        for m in 0..4u8 {
            let other = m.to_string();
            lines.push(format!("{:?}", backend.get_pending_inbound("c", &text, &other).await.unwrap()));
            lines.push(format!("{:?}", backend.get_msg_secret_with_ts(&text, &text, &other).await.unwrap()));
        }
    }
    let mut keys = backend.load_prekeys_batch(&[0, 1, 2, 3, 4, 5]).await.unwrap();
    keys.sort();
    lines.push(format!("{keys:?} {}", backend.get_max_prekey_id().await.unwrap()));
    let mut jids = backend.get_all_tc_token_jids().await.unwrap();
    jids.sort();
    lines.push(format!("{jids:?}"));
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Contract: C4.
    #[test]
    fn every_answer_is_the_one_that_the_library_in_memory_gives(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let home = TestBox::new(None);
            let mut session = open(&home.keeper(1), 1).await.session;
            let memory = InMemoryBackend::new();
            for (at, op) in ops.iter().enumerate() {
                assert_eq!(perform(&*session, op).await, perform(&memory, op).await, "{op:?}");
                if at == ops.len() / 2 {
                    drop(session);
                    session = open(&home.keeper(2), 2).await.session;
                }
            }
            assert_eq!(picture(&*session).await, picture(&memory).await);
        });
    }
}
