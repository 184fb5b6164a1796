//! `w:sync:app:state`: what the clients of an account sync among themselves. The server only numbers and keeps it.

use wacore_binary::Node;

use super::{Answer, Unanswerable, named};
use crate::whatsapp::{
    Server,
    address::Address,
    node::{SERVER, attr, bytes, children, el, now},
    state::State,
};

pub(super) fn answer(server: &Server, me: &Address, iq: &Node) -> Answer {
    let sync = iq.get_optional_child("sync").ok_or(Unanswerable::BAD_REQUEST)?;
    let mut state = server.state();
    let mut answers = Vec::new();
    for collection in children(sync).iter().filter(|child| child.tag == "collection") {
        answers.push(one(server, &mut state, me, collection)?);
    }
    Ok(vec![el("sync").children(answers).build()])
}

/// Takes a patch where one is brought, and hands out those that the client hasn't.
fn one(server: &Server, state: &mut State, me: &Address, asked: &Node) -> Result<Node, Unanswerable> {
    let name = attr(asked, "name").ok_or(Unanswerable::BAD_REQUEST)?;
    let version: usize = attr(asked, "version").and_then(|version| version.parse().ok()).unwrap_or_default();
    let account = state.account_mut(&me.number).ok_or(Unanswerable::NOT_FOUND)?;
    let patches = account.collections.entry(name.clone()).or_default();
    if let Some(patch) = asked.get_optional_child("patch").map(bytes) {
        if version != patches.len() {
            let error = el("error").attr("code", "409").attr("text", "conflict").build();
            let late = handed_out(patches, version);
            return Ok(named("collection", asked)
                .attr("type", "error")
                .children(late.into_iter().chain([error]))
                .build());
        }
        patches.push(numbered(&patch, patches.len() + 1).ok_or(Unanswerable::BAD_REQUEST)?);
        let newest = patches.len().to_string();
        let collection = named("collection", asked).attr("version", newest.as_str()).build();
        let notification = el("notification").attr("type", "server_sync").attr("from", SERVER);
        let notification = notification.attr("id", server.next_id()).attr("t", now().to_string());
        let notification = notification.children([collection]).build();
        let own = state.devices_of([&me.number]);
        for device in own.into_iter().filter(|device| device != me && !device.is_phone()) {
            server.deliver(state, &device, notification.clone());
        }
        return Ok(named("collection", asked).attr("version", newest).attr("type", "result").build());
    }
    let newest = patches.len().to_string();
    let late = handed_out(patches, version);
    let answer = named("collection", asked).attr("version", newest).attr("has_more_patches", "false");
    Ok(answer.children(late).build())
}

fn handed_out(patches: &[Vec<u8>], version: usize) -> Option<Node> {
    let late = patches.get(version..).filter(|late| !late.is_empty())?;
    Some(el("patches").children(late.iter().map(|patch| el("patch").bytes(patch.clone()).build())).build())
}

/// The patch with its version in it, which its author could not know.
fn numbered(patch: &[u8], version: usize) -> Option<Vec<u8>> {
    let mut patch = waproto::codec::syncd_patch_decode(patch).ok()?;
    let version = waproto::whatsapp::SyncdVersion { version: Some(version as u64) };
    patch.version = buffa::MessageField::some(version);
    Some(waproto::codec::syncd_patch_to_vec(&patch))
}
