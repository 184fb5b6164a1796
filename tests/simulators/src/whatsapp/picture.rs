//! Profile pictures: one that anybody sees, one that is hidden, or none at all; three answers that differ.

use wacore_binary::{JidExt as _, Node};

use super::{
    Server,
    address::Address,
    node::{attr, bytes, children, el, jid},
    query::{Answer, Unanswerable},
};

/// What an account or a group shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Picture {
    /// Nothing was ever set.
    #[default]
    None,
    /// It is shown to nobody.
    Hidden,
    /// Where it lies, and its id.
    Shown {
        /// Its path on the media host.
        path: String,
        /// Changes with each picture.
        id: String,
    },
}

/// `w:profile:picture`: whose picture, or a new one.
pub(super) fn answer(server: &Server, me: &Address, iq: &Node) -> Answer {
    let asked = jid(iq, "target").or_else(|| jid(iq, "to")).filter(|jid| !jid.user.is_empty());
    let picture = children(iq).iter().find(|child| child.tag == "picture");
    if attr(iq, "type").as_deref() == Some("set") {
        let shown = match picture.map(bytes).filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => server.show(bytes),
            None => Picture::None,
        };
        let mut state = server.state();
        match asked.as_ref().filter(|jid| jid.is_group()) {
            Some(group) => {
                let group = state.groups.get_mut(group.user.as_str()).ok_or(Unanswerable::NOT_FOUND)?;
                group.picture = shown.clone();
            }
            None => state.account_mut(&me.number).ok_or(Unanswerable::NOT_FOUND)?.picture = shown.clone(),
        }
        let Picture::Shown { id, .. } = shown else { return Ok(Vec::new()) };
        return Ok(vec![el("picture").attr("id", id).build()]);
    }
    let asked = asked.ok_or(Unanswerable::BAD_REQUEST)?;
    let state = server.state();
    let shown = if asked.is_group() {
        state.groups.get(asked.user.as_str()).map(|group| group.picture.clone())
    } else {
        state.resolve(&asked).and_then(|address| state.account(&address.number)).map(|account| account.picture.clone())
    };
    match shown.ok_or(Unanswerable::NOT_FOUND)? {
        Picture::None => Err(Unanswerable::NOT_FOUND),
        Picture::Hidden => Err(Unanswerable::NOT_AUTHORIZED),
        Picture::Shown { path, id } => {
            let kind = picture.and_then(|picture| attr(picture, "type")).unwrap_or_else(|| "image".to_owned());
            let url = format!("https://{}{path}", server.media_host());
            let picture = el("picture").attr("id", id).attr("type", kind).attr("url", url).attr("direct_path", path);
            Ok(vec![picture.build()])
        }
    }
}
