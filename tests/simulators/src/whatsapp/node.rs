//! Short words for the stanzas, which are trees of tags, attributes and children.

use std::time::{SystemTime, UNIX_EPOCH};

use wacore_binary::{Jid, Node, NodeContent, builder::NodeBuilder};

/// The server's own name on the wire.
pub(super) const SERVER: &str = "s.whatsapp.net";

/// Begins an element.
pub(super) fn el(tag: &'static str) -> NodeBuilder {
    NodeBuilder::new(tag)
}

/// An attribute as text.
pub(super) fn attr(node: &Node, key: &str) -> Option<String> {
    node.attrs.get(key).map(|value| value.to_string())
}

/// An attribute as an address.
pub(super) fn jid(node: &Node, key: &str) -> Option<Jid> {
    node.attrs.get(key).and_then(wacore_binary::NodeValue::to_jid)
}

/// What is between an element's tags, when that is no further element.
pub(super) fn bytes(node: &Node) -> Vec<u8> {
    match &node.content {
        Some(NodeContent::Bytes(bytes)) => bytes.clone(),
        Some(NodeContent::String(text)) => text.as_bytes().to_vec(),
        _ => Vec::new(),
    }
}

/// The bytes of a child, empty where there is none.
pub(super) fn child_bytes(node: &Node, tag: &str) -> Vec<u8> {
    node.get_optional_child(tag).map(bytes).unwrap_or_default()
}

/// All children, none where the content is something else.
pub(super) fn children(node: &Node) -> &[Node] {
    node.children().unwrap_or_default()
}

/// Copies an attribute where the original has it.
pub(super) fn copy(to: NodeBuilder, from: &Node, key: &'static str) -> NodeBuilder {
    match from.attrs.get(key) {
        Some(value) => to.attr(key, value.clone()),
        None => to,
    }
}

/// Seconds since 1970, as the platform stamps what it relays.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default()
}
