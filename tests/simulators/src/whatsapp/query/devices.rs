//! `usync`: whether a number is on the platform, its hidden id, and its devices.

use wacore_binary::{Jid, Node};

use super::{Answer, Unanswerable};
use crate::whatsapp::{
    Server,
    account::Account,
    node::{bytes, children, copy, el, jid},
    state::State,
};

pub(super) fn answer(server: &Server, iq: &Node) -> Answer {
    let usync = iq.get_optional_child("usync").ok_or(Unanswerable::BAD_REQUEST)?;
    let query = usync.get_optional_child("query").ok_or(Unanswerable::BAD_REQUEST)?;
    let state = server.state();
    let asked = usync.get_optional_child("list").map(children).unwrap_or_default();
    let users = asked.iter().filter_map(|user| describe(&state, user, query));
    let list = el("list").children(users).build();
    let answer = copy(copy(copy(el("usync"), usync, "sid"), usync, "index"), usync, "last");
    Ok(vec![copy(copy(answer, usync, "mode"), usync, "context").children([el("result").build(), list]).build()])
}

fn describe(state: &State, user: &Node, query: &Node) -> Option<Node> {
    let contact = user.get_optional_child("contact").map(bytes).filter(|contact| !contact.is_empty());
    let asked = jid(user, "jid").filter(|jid| !jid.user.is_empty()).or_else(|| {
        let number = String::from_utf8(contact.clone()?).ok()?;
        Some(Jid::pn(number.trim_start_matches('+')))
    })?;
    let wants = |protocol: &str| query.get_optional_child(protocol).is_some();
    let Some(account) = state.resolve(&asked).and_then(|address| state.account(&address.number)) else {
        let out = wants("contact").then(|| el("contact").attr("type", "out").build());
        return Some(el("user").attr("jid", asked.to_non_ad()).children(out).build());
    };
    let mut answers = Vec::new();
    if wants("contact") {
        let found = el("contact").attr("type", "in");
        answers.push(match contact {
            Some(contact) => found.bytes(contact).build(),
            None => found.build(),
        });
    }
    if wants("lid") {
        answers.push(el("lid").attr("val", Jid::lid(account.lid.as_str())).build());
    }
    if wants("devices") {
        answers.push(devices(account));
    }
    let user = el("user").attr("jid", asked.to_non_ad()).attr("pn_jid", Jid::pn(account.number.as_str()));
    Some(user.children(answers).build())
}

fn devices(account: &Account) -> Node {
    let list = account.addresses().map(|address| {
        let device = el("device").attr("id", address.device.to_string());
        match account.devices.get(&address.device).filter(|_| !address.is_phone()) {
            Some(known) => device.attr("key-index", known.key_index.to_string()).build(),
            None => device.build(),
        }
    });
    el("devices").children([el("device-list").children(list).build(), account.key_index_list()]).build()
}
