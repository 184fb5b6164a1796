//! Groups: the `data` of the `group_*` jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `group_create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupCreate {
    /// The group's name.
    #[schemars(length(min = 1))]
    pub subject: String,
    /// Who is in it from the start.
    pub participants: Vec<String>,
}

/// `group_update_subject`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupUpdateSubject {
    /// The group.
    #[schemars(length(min = 1))]
    pub group_id: String,
    /// Its new name.
    #[schemars(length(min = 1))]
    pub subject: String,
}

/// `group_update_description`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupUpdateDescription {
    /// The group.
    #[schemars(length(min = 1))]
    pub group_id: String,
    /// Its new description; empty removes it.
    pub description: String,
}

/// `group_add_participants`, `group_remove_participants`, `group_promote`, `group_demote`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupParticipants {
    /// The group.
    #[schemars(length(min = 1))]
    pub group_id: String,
    /// Whom it concerns.
    #[schemars(length(min = 1))]
    pub participants: Vec<String>,
}

/// `group_leave`, `group_fetch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRef {
    /// The group.
    #[schemars(length(min = 1))]
    pub group_id: String,
}

/// `group_invite_link`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupInviteLink {
    /// The group.
    #[schemars(length(min = 1))]
    pub group_id: String,
    /// Make the old link invalid and a new one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset: bool,
}
