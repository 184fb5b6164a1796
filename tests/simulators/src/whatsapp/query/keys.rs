//! `encrypt`: the keys that devices leave for those who write to them first. Each one-time key is handed out once.

use wacore_binary::Node;

use super::{Answer, Unanswerable};
use crate::whatsapp::{
    Server,
    account::Bundle,
    address::Address,
    node::{SERVER, bytes, child_bytes, children, el, jid, now},
    pairing,
};

/// With fewer one-time keys than this a device is asked for more.
const LOW: usize = 8;
/// The kind of all keys: points on Curve25519.
const KIND: u8 = 5;

pub(super) fn answer(server: &Server, me: &Address, iq: &Node) -> Answer {
    if let Some(list) = iq.get_optional_child("list") {
        return upload(server, me, iq, list);
    }
    if iq.get_optional_child("count").is_some() {
        let state = server.state();
        let count = state.device(me).map_or(0, |device| device.bundle.one_time.len());
        return Ok(vec![el("count").attr("value", count.to_string()).build()]);
    }
    if iq.get_optional_child("digest").is_some() {
        let state = server.state();
        let bundle = state.device(me).map(|device| &device.bundle).ok_or(Unanswerable::NOT_FOUND)?;
        return Ok(vec![digest(bundle)?]);
    }
    if let Some(rotate) = iq.get_optional_child("rotate") {
        let mut state = server.state();
        let device = state.device_mut(me).ok_or(Unanswerable::NOT_FOUND)?;
        device.bundle.signed = rotate.get_optional_child("skey").cloned();
        return Ok(Vec::new());
    }
    let asked = iq.get_optional_child("key").ok_or(Unanswerable::BAD_REQUEST)?;
    let users = children(asked).iter().map(|user| hand_out(server, user)).collect::<Vec<_>>();
    Ok(vec![el("list").children(users).build()])
}

fn upload(server: &Server, me: &Address, iq: &Node, list: &Node) -> Answer {
    let mut state = server.state();
    let device = state.device_mut(me).ok_or(Unanswerable::NOT_FOUND)?;
    let bundle = &mut device.bundle;
    bundle.registration = child_bytes(iq, "registration");
    bundle.identity = child_bytes(iq, "identity");
    bundle.signed = iq.get_optional_child("skey").cloned();
    for key in children(list) {
        // An upload that is repeated because its answer was lost brings the same keys again.
        if !bundle.one_time.iter().any(|known| child_bytes(known, "id") == child_bytes(key, "id")) {
            bundle.one_time.push_back(key.clone());
        }
    }
    device.told_low = false;
    // From now on it can be written to.
    if !std::mem::replace(&mut device.announced, true) {
        pairing::announce(server, &mut state, me);
    }
    Ok(Vec::new())
}

fn digest(bundle: &Bundle) -> Result<Node, Unanswerable> {
    let signed = bundle.signed.clone().ok_or(Unanswerable::NOT_FOUND)?;
    let values: Vec<Vec<u8>> = bundle.one_time.iter().map(|key| child_bytes(key, "value")).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let (value, signature) = (child_bytes(&signed, "value"), child_bytes(&signed, "signature"));
    let hash = wacore::prekeys::compute_key_bundle_digest(&bundle.identity, &value, &signature, &values);
    let ids = bundle.one_time.iter().filter_map(|key| key.get_optional_child("id").cloned());
    Ok(el("digest")
        .children([
            el("registration").bytes(bundle.registration.clone()).build(),
            el("type").bytes(vec![KIND]).build(),
            el("identity").bytes(bundle.identity.clone()).build(),
            signed,
            el("list").children(ids).build(),
            el("hash").bytes(hash).build(),
        ])
        .build())
}

fn hand_out(server: &Server, user: &Node) -> Node {
    let answer = super::copy(el("user"), user, "jid");
    let mut state = server.state();
    let address = jid(user, "jid").and_then(|jid| state.resolve(&jid));
    let bundle = address.as_ref().and_then(|address| take(&mut state, server, address));
    match bundle {
        Some(children) => answer.children(children).build(),
        None => {
            let error = el("error").attr("code", "406").attr("text", "not-acceptable").build();
            answer.children([error]).build()
        }
    }
}

/// The keys for one who writes to this device, and one of its one-time keys while there are any.
pub(in crate::whatsapp) fn take(
    state: &mut crate::whatsapp::state::State,
    server: &Server,
    address: &Address,
) -> Option<Vec<Node>> {
    let device = state.device_mut(address)?;
    let bundle = &mut device.bundle;
    let signed = bundle.signed.clone()?;
    let mut children = vec![
        el("registration").bytes(bundle.registration.clone()).build(),
        el("type").bytes(vec![KIND]).build(),
        el("identity").bytes(bundle.identity.clone()).build(),
    ];
    children.extend(bundle.one_time.pop_front());
    children.push(signed);
    if !bundle.device_identity.is_empty() {
        children.push(el("device-identity").bytes(bundle.device_identity.clone()).build());
    }
    let left = bundle.one_time.len();
    if left < LOW && !address.is_phone() && !std::mem::replace(&mut device.told_low, true) {
        let count = el("count").attr("value", left.to_string()).build();
        let notification = el("notification").attr("type", "encrypt").attr("from", SERVER).attr("id", server.next_id());
        let notification = notification.attr("t", now().to_string()).children([count]).build();
        server.deliver(state, address, notification);
    }
    Some(children)
}

/// A key as it is uploaded: three bytes of id, and the point; with a signature where there is one.
pub(in crate::whatsapp) fn key_node(tag: &'static str, id: u32, value: &[u8], signature: Option<&[u8]>) -> Node {
    let mut children =
        vec![el("id").bytes(id.to_be_bytes()[1..].to_vec()).build(), el("value").bytes(value.to_vec()).build()];
    children.extend(signature.map(|signature| el("signature").bytes(signature.to_vec()).build()));
    el(tag).children(children).build()
}

/// Reads what [`key_node`] writes.
pub(in crate::whatsapp) fn read_key(node: &Node) -> Option<(u32, [u8; 32], Vec<u8>)> {
    let id = child_bytes(node, "id").iter().fold(0, |id, byte| (id << 8) | u32::from(*byte));
    let value = node.get_optional_child("value").map(bytes)?.try_into().ok()?;
    Some((id, value, child_bytes(node, "signature")))
}
