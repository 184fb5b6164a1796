//! Groups.

use serde_json::{Value, json};
use tokio::time::timeout;
use whatsapp_rust::{
    Jid,
    features::{
        GroupCreateOptions, GroupDescription, GroupError, GroupMetadata, GroupParticipantOptions, GroupSubject,
        ParticipantChangeResponse, PreviousDescription,
    },
};

use super::super::{content::plain, line::Link};
use super::{WRITING, WhatsappSender, outcome, recipient, refused};
use crate::{
    job::{GroupCreate, GroupParticipants, Task},
    platform::{Done, Failed},
};

impl WhatsappSender {
    /// Does a group's job. Only creating one twice would show something twice.
    pub(super) async fn group(&self, link: &Link, task: &Task) -> Result<Done, Failed> {
        link.held()?;
        let done = timeout(WRITING, change(link, task)).await;
        let lost = || Failed::Ambiguous { error: "the server did not answer in time".to_owned() };
        match done.unwrap_or_else(|_| Err(lost())) {
            Err(failed) if !task.is_send() => Err(failed.repeatable()),
            other => other,
        }
    }
}

async fn change(link: &Link, task: &Task) -> Result<Done, Failed> {
    let groups = link.client.groups();
    let failed = |error: GroupError| outcome::group(&error);
    Ok(match task {
        Task::GroupCreate(data) => {
            let created = groups.create_group(create(data)?).await.map_err(failed)?;
            Done { provider_id: Some(plain(&created.metadata.id)), result: Some(metadata(&created.metadata)) }
        }
        Task::GroupUpdateSubject(data) => {
            let subject = GroupSubject::new(data.subject.clone());
            let subject = subject.map_err(|_| refused("too_large", "the group's name is too long"))?;
            groups.set_subject(group(&data.group_id)?, subject).await.map_err(failed)?;
            Done::default()
        }
        Task::GroupUpdateDescription(data) => {
            let text = Some(&data.description).filter(|text| !text.is_empty());
            let text = text.map(|text| GroupDescription::new(text.clone())).transpose();
            let text = text.map_err(|_| refused("too_large", "the group's description is too long"))?;
            let group = group(&data.group_id)?;
            groups.set_description(group, text, PreviousDescription::Resolve).await.map_err(failed)?;
            Done::default()
        }
        Task::GroupAddParticipants(data) => {
            let (group, people) = people(data)?;
            told(&groups.add_participants(group, &people).await.map_err(failed)?)
        }
        Task::GroupRemoveParticipants(data) => {
            let (group, people) = people(data)?;
            told(&groups.remove_participants(group, &people).await.map_err(failed)?)
        }
        Task::GroupPromote(data) => {
            let (group, people) = people(data)?;
            told(&groups.promote_participants(group, &people).await.map_err(failed)?)
        }
        Task::GroupDemote(data) => {
            let (group, people) = people(data)?;
            told(&groups.demote_participants(group, &people).await.map_err(failed)?)
        }
        Task::GroupLeave(data) => {
            groups.leave(group(&data.group_id)?).await.map_err(failed)?;
            Done::default()
        }
        Task::GroupInviteLink(data) => {
            let link = groups.get_invite_link(group(&data.group_id)?, data.reset).await.map_err(failed)?;
            Done { provider_id: None, result: Some(json!({ "link": link })) }
        }
        Task::GroupFetch(data) => {
            let found = groups.get_metadata(&group(&data.group_id)?).await.map_err(failed)?;
            Done { provider_id: None, result: Some(metadata(&found)) }
        }
        _ => return Err(refused("unsupported", "this is no job of a group")),
    })
}

fn group(id: &str) -> Result<Jid, Failed> {
    use whatsapp_rust::wacore_binary::JidExt;
    let whole = if id.contains('@') { id.to_owned() } else { format!("{id}@g.us") };
    let jid = recipient(&whole)?;
    if jid.is_group() { Ok(jid) } else { Err(refused("bad_recipient", "this is no group")) }
}

fn people(data: &GroupParticipants) -> Result<(Jid, Vec<Jid>), Failed> {
    let people = data.participants.iter().map(|person| recipient(person));
    Ok((group(&data.group_id)?, people.collect::<Result<_, _>>()?))
}

fn create(data: &GroupCreate) -> Result<GroupCreateOptions, Failed> {
    let people = data.participants.iter().map(|person| Ok(GroupParticipantOptions::new(recipient(person)?)));
    let people: Vec<_> = people.collect::<Result<_, Failed>>()?;
    Ok(GroupCreateOptions::builder().subject(data.subject.clone()).participants(people).build())
}

/// What became of each person.
fn told(changes: &[ParticipantChangeResponse]) -> Done {
    let people: Vec<Value> = changes
        .iter()
        .map(|change| json!({ "id": plain(&change.jid), "done": change.is_ok(), "error": change.error }))
        .collect();
    Done { provider_id: None, result: Some(json!({ "participants": people })) }
}

fn metadata(group: &GroupMetadata) -> Value {
    let people: Vec<Value> = group
        .participants
        .iter()
        .map(|person| {
            json!({
                "id": plain(&person.jid),
                "phone": person.phone_number.as_ref().map(plain),
                "admin": person.is_admin() || person.is_super_admin(),
            })
        })
        .collect();
    json!({
        "id": plain(&group.id),
        "subject": group.subject,
        "description": group.description,
        "created_at": group.creation_time,
        "creator": group.creator.as_ref().map(plain),
        "participants": people,
    })
}
