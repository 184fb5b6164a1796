//! Queries: each has a namespace, and exactly one answer.

mod account;
mod devices;
mod groups;
pub(super) mod keys;
mod sync;

use wacore_binary::Node;

use super::{
    connection::Session,
    media,
    node::{SERVER, attr, copy, el},
    pairing, picture,
};

pub(super) use groups::tell as tell_group;

/// What goes between the tags of an answer, or why there is none.
pub(super) type Answer = Result<Vec<Node>, Unanswerable>;

/// Why a query is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unanswerable(u16, &'static str);

impl Unanswerable {
    pub(super) const BAD_REQUEST: Self = Self(400, "bad-request");
    pub(super) const NOT_AUTHORIZED: Self = Self(401, "not-authorized");
    pub(super) const FORBIDDEN: Self = Self(403, "forbidden");
    pub(super) const NOT_FOUND: Self = Self(404, "item-not-found");
    pub(super) const NOT_IMPLEMENTED: Self = Self(501, "feature-not-implemented");
}

/// Answers a query; nothing for what is itself an answer.
pub(super) fn answer(session: &Session, iq: &Node) -> Option<Node> {
    let id = attr(iq, "id").unwrap_or_default();
    match attr(iq, "type").as_deref() {
        Some("result") => {
            pairing::signed(session, iq, &id);
            return None;
        }
        Some("error") => return None,
        _ => {}
    }
    let answer = match route(session, iq) {
        Ok(children) => {
            let answer = el("iq").attr("type", "result").attr("id", id);
            let answer = if children.is_empty() { answer } else { answer.children(children) };
            match iq.attrs.get("to") {
                Some(to) => answer.attr("from", to.clone()).build(),
                None => answer.attr("from", SERVER).build(),
            }
        }
        Err(Unanswerable(code, text)) => refused(&id, code, text),
    };
    Some(answer)
}

/// An answer that refuses.
pub(super) fn refused(id: &str, code: u16, text: &'static str) -> Node {
    let error = el("error").attr("code", code.to_string()).attr("text", text).build();
    el("iq").attr("type", "error").attr("id", id).attr("from", SERVER).children([error]).build()
}

fn route(session: &Session, iq: &Node) -> Answer {
    let namespace = attr(iq, "xmlns").unwrap_or_default();
    let Some(me) = &session.me else {
        return match namespace.as_str() {
            "md" => pairing::by_code(session, None, iq),
            "w:p" => Ok(Vec::new()),
            _ => Err(Unanswerable::NOT_AUTHORIZED),
        };
    };
    let server = &session.server;
    match namespace.as_str() {
        "encrypt" => keys::answer(server, me, iq),
        "passive" => {
            if iq.get_optional_child("active").is_some() {
                server.activate(me, session.wire.id);
            }
            Ok(Vec::new())
        }
        "usync" => devices::answer(server, iq),
        "w:g2" => groups::answer(server, me, iq),
        "w:sync:app:state" => sync::answer(server, me, iq),
        "w:profile:picture" => picture::answer(server, me, iq),
        "md" => pairing::by_code(session, Some(me), iq),
        "w:m" => {
            let host = el("host").attr("hostname", server.media_host()).attr("type", "primary").build();
            let connection =
                el("media_conn").attr("auth", media::authorization(me)).attr("ttl", "3600").attr("auth_ttl", "21600");
            let connection = connection.attr("max_buckets", "12").attr("id", "1");
            Ok(vec![connection.children([host]).build()])
        }
        _ => account::answer(session, &namespace, iq),
    }
}

/// Copies what tells two parts of an answer apart.
fn named(tag: &'static str, like: &Node) -> wacore_binary::builder::NodeBuilder {
    copy(el(tag), like, "name")
}
