//! Groups: who is in them, what they are called, and what is told to the members when that changes.

use std::collections::BTreeMap;

use wacore_binary::{Jid, Node, builder::NodeBuilder};

use super::{
    node::{el, now},
    picture::Picture,
    state::State,
};

/// What somebody may do in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Member,
    Admin,
    Creator,
}

/// A group.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) id: String,
    pub(super) subject: String,
    pub(super) description: Option<(String, String)>,
    pub(super) creator: String,
    pub(super) members: BTreeMap<String, Rank>,
    /// Members go by their hidden ids.
    pub(super) hidden: bool,
    /// Only admins write.
    pub(super) announcement: bool,
    /// Only admins change it.
    pub(super) locked: bool,
    pub(super) expiration: u32,
    pub(super) picture: Picture,
    pub(super) invite: String,
    created: u64,
}

impl Group {
    pub(super) fn new(number: usize, subject: String, creator: &str, hidden: bool) -> Self {
        Self {
            id: format!("12036300000{number:07}"),
            subject,
            description: None,
            creator: creator.to_owned(),
            members: BTreeMap::from([(creator.to_owned(), Rank::Creator)]),
            hidden,
            announcement: false,
            locked: false,
            expiration: 0,
            picture: Picture::None,
            invite: format!("SimInvite{number:07}"),
            created: now(),
        }
    }

    pub(super) fn has(&self, number: &str) -> bool {
        self.members.contains_key(number)
    }

    pub(super) fn jid(&self) -> Jid {
        Jid::group(self.id.as_str())
    }

    pub(super) fn may_change(&self, number: &str) -> bool {
        matches!(self.members.get(number), Some(Rank::Admin | Rank::Creator))
    }

    /// A member as the group names it.
    pub(super) fn participant(&self, state: &State, number: &str) -> NodeBuilder {
        let (pn, lid) = (Jid::pn(number), state.lid(number));
        if self.hidden {
            el("participant").attr("jid", lid).attr("phone_number", pn)
        } else {
            el("participant").attr("jid", pn).attr("lid", lid)
        }
    }

    /// The group as it is described to a member.
    pub(super) fn node(&self, state: &State) -> Node {
        let creator = if self.hidden { state.lid(&self.creator) } else { Jid::pn(self.creator.as_str()) };
        let members = self.members.iter().map(|(number, rank)| {
            let participant = self.participant(state, number);
            match rank {
                Rank::Member => participant,
                Rank::Admin => participant.attr("type", "admin"),
                Rank::Creator => participant.attr("type", "superadmin"),
            }
            .build()
        });
        let mut children: Vec<Node> = members.collect();
        if let Some((id, text)) = &self.description {
            let body = el("body").bytes(text.clone().into_bytes()).build();
            let description = el("description").attr("id", id.as_str()).attr("t", self.created.to_string());
            children.push(description.attr("participant", creator.clone()).children([body]).build());
        }
        if self.announcement {
            children.push(el("announcement").build());
        }
        if self.locked {
            children.push(el("locked").build());
        }
        if self.expiration > 0 {
            children.push(el("ephemeral").attr("expiration", self.expiration.to_string()).build());
        }
        el("group")
            .attr("id", self.id.as_str())
            .attr("subject", self.subject.as_str())
            .attr("creator", creator.clone())
            .attr("creation", self.created.to_string())
            .attr("s_o", creator)
            .attr("s_t", self.created.to_string())
            .attr("size", self.members.len().to_string())
            .attr("addressing_mode", if self.hidden { "lid" } else { "pn" })
            .children(children)
            .build()
    }
}
