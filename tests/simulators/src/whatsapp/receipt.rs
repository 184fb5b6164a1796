//! Receipts: that a message arrived, was read, or could not be read; each also takes the message off its mailbox.

use wacore_binary::{Jid, JidExt as _, Node};

use super::{
    Server,
    address::Address,
    message,
    node::{attr, children, copy, el, jid, now},
    phone::Order,
    state::State,
};

/// The ids that a receipt is about.
pub(super) fn ids(receipt: &Node) -> Vec<String> {
    let listed = receipt.get_optional_child("list").map(children).unwrap_or_default();
    attr(receipt, "id").into_iter().chain(listed.iter().filter_map(|item| attr(item, "id"))).collect()
}

/// Relays a receipt. The acknowledgement for its sender.
pub(super) fn relay(server: &Server, me: &Address, node: &Node) -> Node {
    let mut state = server.state();
    let kind = attr(node, "type");
    if kind.as_deref() == Some("server-error") {
        // Media is gone: the phone is asked to upload it again.
        if let Some(account) = state.account(&me.number) {
            let _ = account.phone.send(Order::Reupload(me.clone(), node.clone()));
        }
        return message::ack(node).build();
    }
    if let Some(device) = state.device_mut(me) {
        device.acknowledge("message", &ids(node));
    }
    if let Some(to) = jid(node, "to") {
        forward(server, &mut state, me, node, &to);
    }
    message::ack(node).build()
}

fn forward(server: &Server, state: &mut State, me: &Address, node: &Node, to: &Jid) {
    let group = to.is_group();
    let author = if group { jid(node, "participant") } else { Some(to.clone()) };
    let Some(author) = author.and_then(|author| state.resolve(&author)) else { return };
    let kind = attr(node, "type");
    let base = |lid: bool, state: &State| {
        let mut receipt = el("receipt").attr("t", now().to_string());
        for key in ["id", "type"] {
            receipt = copy(receipt, node, key);
        }
        let mine = if lid { Jid::lid_device(state.lid(&me.number).user.as_str(), me.device) } else { me.jid() };
        receipt =
            if group { receipt.attr("from", to.clone()).attr("participant", mine) } else { receipt.attr("from", mine) };
        receipt.apply_content(node.content.clone())
    };
    let lid = if group { jid(node, "participant").is_some_and(|jid| jid.is_lid()) } else { to.is_lid() };
    let receipt = base(lid, state);
    // Only the device that wrote can write again; that something was read or delivered is news for all of them.
    let only_writer = kind.as_deref() == Some("retry");
    let receivers = if only_writer { vec![author.clone()] } else { state.devices_of([&author.number]) };
    let own_news = author.number == me.number;
    let receipt = if own_news && !group { copy(receipt, node, "recipient") } else { receipt };
    let receipt = receipt.build();
    for receiver in receivers.into_iter().filter(|receiver| receiver != me) {
        server.deliver(state, &receiver, receipt.clone());
    }
}

/// A device has a stanza in safety.
pub(super) fn acknowledged(server: &Server, me: &Address, node: &Node) {
    let Some(class) = attr(node, "class") else { return };
    if let Some(device) = server.state().device_mut(me) {
        device.acknowledge(&class, &attr(node, "id").into_iter().collect::<Vec<_>>());
    }
}
