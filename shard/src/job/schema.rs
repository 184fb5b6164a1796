//! The JSON Schema of a job, for producers.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::{JobId, Task};
use crate::identity::ChannelId;

/// The schema of every job, as `shardvisor schema` prints it.
pub fn job_schema() -> Value {
    let mut generator = SchemaGenerator::default();
    let task = generator.subschema_for::<Task>();
    let id = JobId::json_schema(&mut generator);
    let channel = ChannelId::json_schema(&mut generator);
    let definitions = generator.take_definitions(true);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "shardvisor job",
        "type": "object",
        "required": ["name", "id", "channel_id", "data"],
        "properties": {
            "id": id,
            "channel_id": channel,
            "enqueued_at": {"type": "string", "format": "date-time"},
            "expires_at": {"type": "string", "format": "date-time"},
        },
        "allOf": [task],
        "$defs": definitions,
    })
}
