//! What a client asks of its account when it starts: settings, lists and properties, all as of a fresh account.

use wacore_binary::Node;

use super::{Answer, Unanswerable};
use crate::whatsapp::{
    connection::Session,
    node::{SERVER, el},
};

pub(super) fn answer(session: &Session, namespace: &str, iq: &Node) -> Answer {
    match namespace {
        "abt" => {
            let props = el("props").attr("protocol", "1").attr("hash", "simulated").attr("refresh", "86400");
            Ok(vec![props.build()])
        }
        "w" => Ok(vec![el("props").attr("version", "1").attr("hash", "simulated").build()]),
        "privacy" => {
            let category = |name: &'static str, value: &'static str| {
                el("category").attr("name", name).attr("value", value).build()
            };
            let categories = [
                category("readreceipts", "all"),
                category("profile", "all"),
                category("status", "all"),
                category("last", "all"),
                category("online", "all"),
                category("groupadd", "all"),
                category("calladd", "all"),
            ];
            if iq.get_optional_child("tokens").is_some() {
                return Ok(vec![el("tokens").build()]);
            }
            Ok(vec![el("privacy").children(categories).build()])
        }
        "blocklist" => Ok(vec![el("list").build()]),
        "w:mex" => Err(Unanswerable::NOT_IMPLEMENTED),
        // Pings, statistics, dirty bits and what is set for the account alone need no more than a yes.
        "w:p"
        | "w:stats"
        | "urn:xmpp:whatsapp:dirty"
        | "urn:xmpp:whatsapp:push"
        | "status"
        | "disappearing_mode"
        | "tctoken"
        | "urn:xmpp:ping"
        | "w:biz"
        | "fb:thrift_iq"
        | "urn:xmpp:whatsapp:account" => Ok(Vec::new()),
        _ => {
            session.server.note_unknown(&format!("{namespace} to {SERVER}"), iq);
            Err(Unanswerable::NOT_IMPLEMENTED)
        }
    }
}
