//! Who is let in: a client that says who it is, or one that wants to be linked.

use std::{sync::Arc, time::SystemTime};

use wacore_binary::Jid;
use waproto::whatsapp::ClientPayload;

use super::{
    Server,
    account::Login,
    address::Address,
    connection::Wire,
    fault::{End, Fault, Happening},
    handshake::Pattern,
    node::{el, now},
    pairing,
};

/// Lets a client in as a device, offers it codes, or ends the connection.
pub(super) fn admit(server: &Arc<Server>, wire: &Wire, pattern: Pattern, payload: &ClientPayload) -> Option<Address> {
    let Some(number) = payload.username else {
        struck(server.faults.strike(None, Happening::Pairing), wire, || pairing::offer(server, wire));
        return None;
    };
    let me = Address::new(number.to_string(), u16::try_from(payload.device.unwrap_or_default()).unwrap_or_default());
    let known = !me.is_phone() && server.state().device(&me).is_some();
    let fault = server.faults.strike(Some(&me), Happening::Login);
    let accepted = known && !matches!(fault, Some(Fault::EndBefore(_) | Fault::Lost));
    let login = Login { device: me.clone(), connection: wire.id, pattern, accepted, at: SystemTime::now() };
    server.record().logins.push(login);
    if known {
        struck(fault, wire, || welcome(server, wire, &me));
    } else {
        wire.end(End::Failure(401));
    }
    server.changed();
    accepted.then_some(me)
}

/// What a fault makes of the first step, which has no answer to lose.
fn struck(fault: Option<Fault>, wire: &Wire, step: impl FnOnce()) {
    match fault {
        None => step(),
        Some(Fault::Lost | Fault::Unanswered) => {}
        Some(Fault::Refuse(reason)) => wire.end(End::Failure(reason)),
        Some(Fault::EndBefore(end)) => wire.end(end),
        Some(Fault::EndAfter(end)) => {
            step();
            wire.end(end);
        }
        Some(Fault::EndLater(end, after)) => {
            step();
            let wire = wire.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                wire.end(end);
            });
        }
        Some(Fault::Late(_) | Fault::Twice) => step(),
    }
}

/// One connection for a device: whoever was there before is told that it was replaced.
fn welcome(server: &Server, wire: &Wire, me: &Address) {
    let mut state = server.state();
    let lid = state.lid(&me.number);
    let Some(device) = state.device_mut(me) else { return };
    device.active = false;
    if let Some(before) = device.wire.replace(wire.clone()) {
        before.end(End::Replaced);
    }
    let lid = Jid::lid_device(lid.user.as_str(), me.device);
    wire.send(
        el("success").attr("t", now().to_string()).attr("lid", lid).attr("display_name", me.number.as_str()).build(),
    );
}
