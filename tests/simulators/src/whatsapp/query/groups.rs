//! `w:g2`: groups are made, described and changed; each change is told to everybody who is in them.

use wacore_binary::{Jid, Node};

use super::{Answer, Unanswerable};
use crate::whatsapp::{
    Server,
    address::Address,
    group::{Group, Rank},
    node::{attr, bytes, child_bytes, children, el, jid, now},
    state::State,
};

pub(super) fn answer(server: &Server, me: &Address, iq: &Node) -> Answer {
    let mut state = server.state();
    let request = children(iq).first().ok_or(Unanswerable::BAD_REQUEST)?;
    let id = jid(iq, "to").map(|jid| jid.user.to_string()).unwrap_or_default();
    match request.tag.as_ref() {
        "create" => create(server, &mut state, me, request),
        "participating" => {
            let mine = state.groups.values().filter(|group| group.has(&me.number));
            let mine: Vec<Node> = mine.map(|group| group.node(&state)).collect();
            Ok(vec![el("groups").children(mine).build()])
        }
        "query" => {
            let group = state.groups.get(&id).ok_or(Unanswerable::NOT_FOUND)?;
            if group.has(&me.number) { Ok(vec![group.node(&state)]) } else { Err(Unanswerable::FORBIDDEN) }
        }
        "invite" => {
            let asked = attr(request, "code");
            if let Some(code) = asked {
                return join(server, &mut state, me, &code, attr(iq, "type").as_deref() == Some("set"));
            }
            let group = state.groups.get(&id).ok_or(Unanswerable::NOT_FOUND)?;
            Ok(vec![el("invite").attr("code", group.invite.as_str()).build()])
        }
        "leave" => {
            let left: Vec<String> = children(request).iter().filter_map(|group| attr(group, "id")).collect();
            let mut answers = Vec::new();
            for id in left {
                let id = id.split('@').next().unwrap_or_default().to_owned();
                members(server, &mut state, me, &id, "remove", std::slice::from_ref(&me.number))?;
                answers.push(el("group").attr("id", Jid::group(id.as_str())).build());
            }
            Ok(vec![el("leave").children(answers).build()])
        }
        change @ ("add" | "remove" | "promote" | "demote") => {
            let whom = numbers(&state, request);
            let change = ["add", "remove", "promote", "demote"].into_iter().find(|known| *known == change);
            members(server, &mut state, me, &id, change.unwrap_or("add"), &whom)
        }
        _ => setting(server, &mut state, me, &id, request),
    }
}

fn numbers(state: &State, request: &Node) -> Vec<String> {
    let participants = request.get_children_by_tag("participant").filter_map(|participant| jid(participant, "jid"));
    participants.filter_map(|jid| state.resolve(&jid)).map(|address| address.number).collect()
}

fn create(server: &Server, state: &mut State, me: &Address, request: &Node) -> Answer {
    let subject = attr(request, "subject").unwrap_or_default();
    let mut group = Group::new(state.groups.len() + 1, subject, &me.number, server.hides_members());
    for number in numbers(state, request) {
        group.members.entry(number).or_insert(Rank::Member);
    }
    let described = group.node(state);
    let members: Vec<String> = group.members.keys().cloned().collect();
    let jid = group.jid();
    state.groups.insert(group.id.clone(), group);
    let create = el("create").attr("type", "new").children([described.clone()]).build();
    tell(server, state, me, &jid, &members, create);
    Ok(vec![described])
}

fn join(server: &Server, state: &mut State, me: &Address, code: &str, joins: bool) -> Answer {
    let group = state.groups.values().find(|group| group.invite == code).ok_or(Unanswerable::NOT_FOUND)?;
    if !joins {
        return Ok(vec![group.node(state)]);
    }
    let id = group.id.clone();
    if let Some(group) = state.groups.get_mut(&id) {
        group.members.entry(me.number.clone()).or_insert(Rank::Member);
    }
    told_of(server, state, me, &id, "add", std::slice::from_ref(&me.number));
    Ok(vec![el("group").attr("jid", Jid::group(id.as_str())).build()])
}

/// Changes who is in a group, or what they may do there.
fn members(
    server: &Server,
    state: &mut State,
    me: &Address,
    id: &str,
    change: &'static str,
    whom: &[String],
) -> Answer {
    let group = state.groups.get_mut(id).ok_or(Unanswerable::NOT_FOUND)?;
    let leaves = change == "remove" && whom == std::slice::from_ref(&me.number);
    if !leaves && !group.may_change(&me.number) {
        return Err(Unanswerable::FORBIDDEN);
    }
    let before: Vec<String> = group.members.keys().cloned().collect();
    let mut outcomes = Vec::new();
    for number in whom {
        let there = group.members.contains_key(number);
        let done = match change {
            "add" if !there => group.members.insert(number.clone(), Rank::Member).is_none(),
            "remove" => group.members.remove(number).is_some(),
            "promote" => there && group.members.insert(number.clone(), Rank::Admin).is_some(),
            "demote" => there && group.members.insert(number.clone(), Rank::Member).is_some(),
            _ => false,
        };
        outcomes.push((
            number,
            if done {
                None
            } else if change == "add" {
                Some("409")
            } else {
                Some("404")
            },
        ));
    }
    let group = group.clone();
    let answers = outcomes.iter().map(|(number, error)| {
        let participant = group.participant(state, number);
        match error {
            Some(code) => participant.attr("error", *code).build(),
            None => participant.build(),
        }
    });
    let answer = el(change).children(answers).build();
    let done: Vec<String> =
        outcomes.iter().filter(|(_, error)| error.is_none()).map(|(number, _)| (*number).clone()).collect();
    if !done.is_empty() {
        let participants = done.iter().map(|number| group.participant(state, number).build());
        let told = el(change).children(participants.collect::<Vec<_>>()).build();
        let mut hear = before;
        hear.extend(done.into_iter().filter(|number| change == "add" && group.has(number)));
        hear.sort_unstable();
        hear.dedup();
        tell(server, state, me, &group.jid(), &hear, told);
    }
    Ok(vec![answer])
}

/// Changes a group itself.
fn setting(server: &Server, state: &mut State, me: &Address, id: &str, request: &Node) -> Answer {
    let group = state.groups.get_mut(id).ok_or(Unanswerable::NOT_FOUND)?;
    if !group.has(&me.number) || (group.locked && !group.may_change(&me.number)) {
        return Err(Unanswerable::FORBIDDEN);
    }
    let mut told = request.clone();
    match request.tag.as_ref() {
        "subject" => {
            group.subject = String::from_utf8(bytes(request)).unwrap_or_default();
            told = el("subject").attr("subject", group.subject.as_str()).attr("s_t", now().to_string()).build();
        }
        "description" => {
            let id = attr(request, "id").unwrap_or_default();
            let body = String::from_utf8(child_bytes(request, "body")).unwrap_or_default();
            group.description = (!body.is_empty()).then_some((id, body));
        }
        "announcement" => group.announcement = true,
        "not_announcement" => group.announcement = false,
        "locked" => group.locked = true,
        "unlocked" => group.locked = false,
        "ephemeral" => {
            group.expiration = attr(request, "expiration").and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
        }
        "not_ephemeral" => group.expiration = 0,
        _ => return Err(Unanswerable::NOT_IMPLEMENTED),
    }
    let (jid, members) = (group.jid(), group.members.keys().cloned().collect::<Vec<_>>());
    tell(server, state, me, &jid, &members, told);
    Ok(Vec::new())
}

fn told_of(server: &Server, state: &mut State, me: &Address, id: &str, change: &'static str, whom: &[String]) {
    let Some(group) = state.groups.get(id).cloned() else { return };
    let participants: Vec<Node> = whom.iter().map(|number| group.participant(state, number).build()).collect();
    let members: Vec<String> = group.members.keys().cloned().collect();
    tell(server, state, me, &group.jid(), &members, el(change).children(participants).build());
}

/// Tells these members of a change.
pub(in crate::whatsapp) fn tell(
    server: &Server,
    state: &mut State,
    me: &Address,
    group: &Jid,
    whom: &[String],
    what: Node,
) {
    let hidden = state.groups.get(group.user.as_str()).is_some_and(|group| group.hidden);
    let (pn, lid) = (me.account(), state.lid(&me.number));
    let notification = el("notification").attr("type", "w:gp2").attr("from", group.clone());
    let notification = notification.attr("id", server.next_id()).attr("t", now().to_string()).attr("notify", "");
    let notification = if hidden {
        notification.attr("participant", lid).attr("participant_pn", pn).attr("addressing_mode", "lid")
    } else {
        notification.attr("participant", pn).attr("participant_lid", lid).attr("addressing_mode", "pn")
    };
    let notification = notification.children([what]).build();
    for address in state.devices_of(whom) {
        if address != *me {
            server.deliver(state, &address, notification.clone());
        }
    }
}
