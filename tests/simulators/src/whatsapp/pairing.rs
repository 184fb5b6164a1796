//! Linking a device: the server hands out references, the phone answers to one of them, the device signs and restarts.

use std::sync::Arc;

use base64::Engine as _;
use buffa::Message as _;
use hmac::{KeyInit as _, Mac as _};
use wacore_binary::{Jid, Node};
use waproto::whatsapp::{ADVDeviceIdentity, ADVSignedDeviceIdentity, ADVSignedDeviceIdentityHMAC};

use super::{
    Server,
    account::{Account, Bundle, Device},
    address::Address,
    certificate::{public, sign},
    connection::{Session, Wire},
    fault::End,
    node::{SERVER, bytes, child_bytes, el, now},
    phone::Order,
    state::State,
};

/// How many codes a client may show before it has to connect again.
const REFERENCES: u32 = 6;
/// What is signed before a device's identity.
const ACCOUNT_PREFIX: [u8; 2] = [6, 0];

/// Why a phone can't link a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PairingRefused {
    /// The code doesn't read as one.
    #[error("this is no code of a device that wants to be linked")]
    NotACode,
    /// Nobody shows this code any more.
    #[error("the code is no longer shown")]
    Gone,
    /// No device asked this number for a link by code.
    #[error("no device asked to be linked to this number")]
    NobodyAsked,
    /// The digits aren't the ones that the device shows.
    #[error("the code is wrong")]
    WrongCode,
}

/// A client that wants to be linked.
#[derive(Debug, Clone)]
pub(super) struct Pairing {
    pub(super) wire: Wire,
    /// Where it asked for a link by code: whom, and its half of the secret.
    pub(super) by_code: Option<ByCode>,
}

/// What a device says of itself when it asks for a link by code.
#[derive(Debug, Clone)]
pub(super) struct ByCode {
    pub(super) number: String,
    pub(super) reference: String,
    pub(super) wrapped: Vec<u8>,
}

/// Sends the references that a client turns into codes.
pub(super) fn offer(server: &Server, wire: &Wire) {
    let references: Vec<String> = (0..REFERENCES).map(|turn| format!("2@sim{}x{turn}", wire.id)).collect();
    let mut state = server.state();
    for reference in &references {
        state.pairings.insert(reference.clone(), Pairing { wire: wire.clone(), by_code: None });
    }
    drop(state);
    let references = references.into_iter().map(|reference| el("ref").bytes(reference.into_bytes()).build());
    let iq = el("iq").attr("from", SERVER).attr("type", "set").attr("xmlns", "md").attr("id", format!("pd{}", wire.id));
    wire.send(iq.children([el("pair-device").children(references).build()]).build());
}

/// What a code shows: the reference, the device's identity and the secret that the phone proves itself with.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) reference: String,
    pub(super) identity: Vec<u8>,
    pub(super) secret: Vec<u8>,
}

impl Code {
    pub(super) fn read(shown: &str) -> Option<Self> {
        let shown = shown.rsplit_once('#').map_or(shown, |(_, code)| code);
        let mut parts = shown.split(',');
        let reference = parts.next()?.to_owned();
        let base64 = base64::engine::general_purpose::STANDARD;
        let (_noise, identity, secret) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { reference, identity: base64.decode(identity).ok()?, secret: base64.decode(secret).ok()? })
    }
}

/// The phone accepts the device: it gets a place, and the proof that goes with it.
pub(super) fn accept(server: &Server, number: &str, code: &Code) -> Result<Address, PairingRefused> {
    let mut state = server.state();
    let pairing = state.pairings.get(&code.reference).cloned();
    let pairing = pairing.filter(|pairing| !pairing.wire.has_ended()).ok_or(PairingRefused::Gone)?;
    // A client is linked once, whichever of its codes was read.
    state.pairings.retain(|_, other| other.wire.id != pairing.wire.id);
    let account = state.account_mut(number).ok_or(PairingRefused::Gone)?;
    let device = account.next_device();
    let proof = proof(account, device, code);
    let bundle = Bundle { identity: code.identity.clone(), ..Bundle::default() };
    account.devices.insert(device, Device { bundle, key_index: u32::from(device), ..Device::default() });
    let address = account.address(device);
    let pair_success = el("pair-success").children([
        el("device-identity").bytes(proof).build(),
        el("device").attr("jid", address.jid()).attr("lid", Jid::lid_device(account.lid.as_str(), device)).build(),
        el("platform").attr("name", "android").build(),
    ]);
    let id = format!("pair-{address}");
    let iq = el("iq").attr("from", SERVER).attr("type", "set").attr("id", id).attr("t", now().to_string());
    pairing.wire.send(iq.children([pair_success.build()]).build());
    Ok(address)
}

fn proof(account: &Account, device: u16, code: &Code) -> Vec<u8> {
    let details = ADVDeviceIdentity {
        raw_id: Some(account.raw_id()),
        timestamp: Some(now()),
        key_index: Some(u32::from(device)),
        ..Default::default()
    };
    let details = details.encode_to_vec();
    let signature = sign(&account.identity, &[&ACCOUNT_PREFIX[..], &details, &code.identity].concat());
    let signed = ADVSignedDeviceIdentity {
        details: Some(details),
        account_signature_key: Some(public(&account.identity).to_vec()),
        account_signature: Some(signature),
        ..Default::default()
    };
    let signed = waproto::codec::adv_signed_device_identity_to_vec(&signed);
    let mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&code.secret).map(|mac| mac.chain_update(&signed));
    let hmac = mac.map(|mac| mac.finalize().into_bytes().to_vec()).unwrap_or_default();
    ADVSignedDeviceIdentityHMAC { details: Some(signed), hmac: Some(hmac), ..Default::default() }.encode_to_vec()
}

/// The device has signed: it is to come back with its new identity. Whether this answer was meant for that.
pub(super) fn signed(session: &Session, iq: &Node, id: &str) -> bool {
    let Some((number, device)) = id.strip_prefix("pair-").and_then(|address| address.rsplit_once(':')) else {
        return false;
    };
    let Some(signed) = iq.get_optional_child("pair-device-sign") else { return false };
    let address = Address::new(number, device.parse().unwrap_or_default());
    if let Some(device) = session.server.state().device_mut(&address) {
        device.bundle.device_identity = signed.get_optional_child("device-identity").map(bytes).unwrap_or_default();
    }
    session.wire.end(End::Error(515));
    true
}

/// Tells the phone of the new device, and everybody who may write to it.
pub(super) fn announce(server: &Server, state: &mut State, address: &Address) {
    let Some(account) = state.account(&address.number) else { return };
    let _ = account.phone.send(Order::Linked(address.clone()));
    notify(server, state, address, "add");
}

/// Unlinks a device and tells everybody.
pub(super) fn remove(server: &Server, state: &mut State, address: &Address) {
    let Some(account) = state.account_mut(&address.number) else { return };
    let Some(device) = account.devices.remove(&address.device) else { return };
    if let Some(wire) = device.wire {
        wire.end(End::Removed);
    }
    notify(server, state, address, "remove");
}

fn notify(server: &Server, state: &mut State, address: &Address, what: &'static str) {
    let Some(account) = state.account(&address.number) else { return };
    let change = el(what).children([account.device_node(address.device), account.key_index_list()]).build();
    let notification = el("notification")
        .attr("type", "devices")
        .attr("from", address.account())
        .attr("lid", state.lid(&address.number))
        .attr("id", server.next_id())
        .attr("t", now().to_string())
        .children([change])
        .build();
    let acquainted = state.acquainted(&address.number);
    for other in state.devices_of(&acquainted) {
        if other != *address {
            server.deliver(state, &other, notification.clone());
        }
    }
}

/// `md`: a link by code, or the end of one.
pub(super) fn by_code(session: &Session, me: Option<&Address>, iq: &Node) -> super::query::Answer {
    if iq.get_optional_child("remove-companion-device").is_some() {
        if let Some(me) = me {
            let server: &Arc<Server> = &session.server;
            remove(server, &mut server.state(), me);
        }
        return Ok(Vec::new());
    }
    let Some(registration) = iq.get_optional_child("link_code_companion_reg") else { return Ok(Vec::new()) };
    let number = super::node::jid(registration, "jid").map(|jid| jid.user.to_string()).unwrap_or_default();
    match super::node::attr(registration, "stage").as_deref() {
        Some("companion_hello") => {
            let reference = format!("3@sim{}", session.wire.id);
            let wrapped = child_bytes(registration, "link_code_pairing_wrapped_companion_ephemeral_pub");
            let by_code = ByCode { number, reference: reference.clone(), wrapped };
            let pairing = Pairing { wire: session.wire.clone(), by_code: Some(by_code) };
            session.server.state().pairings.insert(reference.clone(), pairing);
            let reference = el("link_code_pairing_ref").bytes(reference.into_bytes()).build();
            Ok(vec![el("link_code_companion_reg").attr("stage", "companion_hello").children([reference]).build()])
        }
        Some("companion_finish") => {
            let state = session.server.state();
            if let Some(account) = state.account(&number) {
                let _ = account.phone.send(Order::CodeFinished(registration.clone()));
            }
            Ok(Vec::new())
        }
        _ => Ok(Vec::new()),
    }
}
