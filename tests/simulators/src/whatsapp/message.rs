//! Messages: acknowledged to the sender, then handed to each device that they were encrypted for.

use wacore_binary::{Jid, JidExt as _, Node, builder::NodeBuilder};

use super::{
    Server,
    address::Address,
    node::{SERVER, attr, children, copy, el, jid, now},
    state::State,
};

/// Begins the acknowledgement of a stanza.
pub(super) fn ack(node: &Node) -> NodeBuilder {
    let ack = el("ack").attr("class", node.tag.to_string()).attr("t", now().to_string());
    let ack = copy(copy(ack, node, "id"), node, "participant");
    match node.attrs.get("to") {
        Some(to) => ack.attr("from", to.clone()),
        None => ack.attr("from", SERVER),
    }
}

/// Relays a message. The acknowledgement for its sender.
pub(super) fn relay(server: &Server, me: &Address, node: &Node) -> Node {
    let mut state = server.state();
    let Some(to) = jid(node, "to") else { return ack(node).attr("error", "400").build() };
    if to.is_group() {
        if !state.groups.get(to.user.as_str()).is_some_and(|group| group.has(&me.number)) {
            return ack(node).attr("error", "403").build();
        }
        to_group(server, &mut state, me, node, &to);
    } else {
        let Some(account) = state.resolve(&to) else { return ack(node).attr("error", "404").build() };
        state.meet(&me.number, &account.number);
        to_person(server, &mut state, me, node, &to);
    }
    drop(state);
    ack(node).build()
}

/// What was encrypted for one device each.
fn for_devices(node: &Node) -> Vec<(Jid, Node)> {
    let participants = node.get_optional_child("participants").map(children).unwrap_or_default();
    let each = |to: &Node| Some((jid(to, "jid")?, to.get_optional_child("enc")?.clone()));
    participants.iter().filter_map(each).collect()
}

/// What goes along with each copy.
fn companions<'a>(node: &'a Node, encrypted: &[Node]) -> impl Iterator<Item = &'a Node> + use<'a> {
    let introduces = encrypted.iter().any(|enc| attr(enc, "type").as_deref() == Some("pkmsg"));
    let goes = move |child: &&Node| match child.tag.as_ref() {
        "device-identity" => introduces,
        "meta" | "biz" | "bot" => true,
        _ => false,
    };
    children(node).iter().filter(goes)
}

fn copied(server: &Server, state: &State, me: &Address, node: &Node, encrypted: Vec<Node>) -> NodeBuilder {
    let name = state.account(&me.number).map(|account| account.name.clone()).unwrap_or_default();
    let mut copied = el("message").attr("t", now().to_string()).attr("notify", name);
    for key in ["id", "type", "edit", "category"] {
        copied = copy(copied, node, key);
    }
    if node.attrs.get("id").is_none() {
        copied = copied.attr("id", server.next_id());
    }
    let along: Vec<Node> = companions(node, &encrypted).cloned().collect();
    copied.children(encrypted.into_iter().chain(along))
}

fn to_person(server: &Server, state: &mut State, me: &Address, node: &Node, to: &Jid) {
    let mut targets = for_devices(node);
    // A message for one device alone carries what is encrypted for it directly.
    if let Some(enc) = node.get_optional_child("enc") {
        targets.push((to.clone(), enc.clone()));
    }
    let my_lid = state.lid(&me.number);
    for (target, enc) in targets {
        let Some(address) = state.resolve(&target) else { continue };
        let mut copied = copied(server, state, me, node, vec![enc]);
        copied = if target.is_lid() {
            let from = Jid::lid_device(my_lid.user.as_str(), me.device);
            copied.attr("from", from).attr("sender_pn", me.account())
        } else {
            copied.attr("from", me.jid()).attr("sender_lid", my_lid.clone())
        };
        if address.number == me.number && attr(node, "category").as_deref() != Some("peer") {
            let recipient = jid(node, "recipient").unwrap_or_else(|| to.to_non_ad());
            copied = copied.attr("recipient", recipient);
        }
        server.deliver(state, &address, copied.build());
    }
}

fn to_group(server: &Server, state: &mut State, me: &Address, node: &Node, to: &Jid) {
    let Some(group) = state.groups.get(to.user.as_str()) else { return };
    let hidden = group.hidden;
    let members = group.members.keys().cloned().collect::<Vec<_>>();
    let targets = for_devices(node);
    let shared = node.get_optional_child("enc");
    // Sent again for one device that could not read it.
    let only = jid(node, "participant").and_then(|jid| state.resolve(&jid));
    let my_lid = state.lid(&me.number);
    for address in state.devices_of(&members) {
        if address == *me || only.as_ref().is_some_and(|only| *only != address) {
            continue;
        }
        let own = targets.iter().filter(|(jid, _)| state.resolve(jid).as_ref() == Some(&address));
        let encrypted: Vec<Node> = own.map(|(_, enc)| enc.clone()).chain(shared.cloned()).collect();
        let copied = copied(server, state, me, node, encrypted).attr("from", to.clone());
        let copied = if hidden {
            let participant = Jid::lid_device(my_lid.user.as_str(), me.device);
            copied.attr("participant", participant).attr("participant_pn", me.account()).attr("addressing_mode", "lid")
        } else {
            copied.attr("participant", me.jid()).attr("participant_lid", my_lid.clone()).attr("addressing_mode", "pn")
        };
        server.deliver(state, &address, copied.build());
    }
}

/// Shows that somebody is there or writes, to those who are there too.
pub(super) fn relay_presence(server: &Server, me: &Address, node: &Node) {
    if let Some(name) = attr(node, "name").filter(|_| node.tag == "presence") {
        if let Some(account) = server.state().account_mut(&me.number) {
            account.name = name;
        }
        return;
    }
    let Some(to) = jid(node, "to").filter(|_| node.tag == "chatstate") else { return };
    let state = server.state();
    let mut shown = node.clone();
    shown.attrs.0.retain(|(key, _)| key != "to");
    let (numbers, from) = if to.is_group() {
        let Some(group) = state.groups.get(to.user.as_str()) else { return };
        shown.attrs.insert("participant", me.account());
        (group.members.keys().cloned().collect::<Vec<_>>(), to)
    } else {
        let Some(address) = state.resolve(&to) else { return };
        (vec![address.number], me.account())
    };
    shown.attrs.insert("from", from);
    for address in state.devices_of(&numbers).into_iter().filter(|address| address.number != me.number) {
        if let Some(wire) = state.device(&address).and_then(|device| device.wire.as_ref()) {
            server.send(&address, wire, shown.clone());
        }
    }
}
