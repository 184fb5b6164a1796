//! The shard rule, read from the fixture that the Python and TypeScript clients read too: whoever differs in one bit puts
//! jobs where nobody owns the channel.

use std::path::Path;

use serde_json::Value;
use shard::{
    identity::{ChannelId, QueueBase, QueueName, ShardId, parse_shard_count, shard_for_channel},
    job::Job,
};

fn fixture() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/shard_parity.json");
    let text = std::fs::read_to_string(path).expect("the fixture is in the tree");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is a string"))
}

fn counts(fixture: &Value) -> Vec<u32> {
    list(fixture, "counts").iter().map(|count| count.as_u64().expect("a count") as u32).collect()
}

/// Contract: I1.
#[test]
fn the_fixture_holds_what_the_contract_asks_for() {
    let fixture = fixture();
    assert_eq!(counts(&fixture), [1, 2, 3, 4, 5, 7, 8, 16, 64]);
    let channels = list(&fixture, "channels");
    assert!(channels.len() >= 64, "{} channels", channels.len());
    for kind in ["nil", "max", "v1", "v4", "v7"] {
        assert!(channels.iter().any(|channel| text(channel, "kind") == kind), "no {kind}");
    }
    assert!(list(&fixture, "refused_ids").len() > 50);
}

/// Contract: I1. Field report R55.
#[test]
fn every_spelling_of_a_channel_has_one_canonical_form_and_one_shard() {
    let fixture = fixture();
    for channel in list(&fixture, "channels") {
        for spelling in list(channel, "spellings") {
            let spelling = spelling.as_str().expect("a spelling");
            let id: ChannelId = spelling.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(id.to_string(), text(channel, "canonical"), "{spelling}");
            for count in counts(&fixture) {
                let expected = channel["shards"][count.to_string()].as_u64().expect("a shard") as u32;
                assert_eq!(shard_for_channel(id, count), expected, "{spelling} of {count}");
                assert!(ShardId::new(expected, count).owns(id), "{spelling} of {count}");
            }
        }
    }
}

/// Contract: I2.
#[test]
fn queue_names_are_those_of_the_fixture() {
    let fixture = fixture();
    let bases: Vec<_> = QueueBase::ALL.iter().map(|base| Value::from(base.as_str())).collect();
    assert_eq!(&bases, list(&fixture, "bases"));
    for base in QueueBase::ALL {
        for count in counts(&fixture) {
            let names = list(&fixture["queues"][base.as_str()], &count.to_string());
            assert_eq!(names.len(), count as usize);
            for (index, name) in names.iter().enumerate() {
                assert_eq!(&Value::from(QueueName::of(base, index as u32, count).to_string()), name);
            }
            for channel in list(&fixture, "channels") {
                let id: ChannelId = text(channel, "canonical").parse().expect("canonical");
                let shard = channel["shards"][count.to_string()].as_u64().expect("a shard") as usize;
                let queue = ShardId::new(0, count).queue_for_channel(base, id);
                assert_eq!(Value::from(queue.to_string()), names[shard]);
            }
        }
    }
}

/// Contract: I1. Field report R55.
#[test]
fn what_is_no_channel_id_is_refused() {
    for refused in list(&fixture(), "refused_ids") {
        let value = text(refused, "value");
        assert!(value.parse::<ChannelId>().is_err(), "{value:?} ({}) was accepted", text(refused, "why"));
    }
}

/// Contract: I3. Field report R54.
#[test]
fn counts_follow_one_grammar() {
    let grammar = &fixture()["count_grammar"];
    for accepted in list(grammar, "accepted") {
        let parsed = parse_shard_count("SHARD_COUNT", text(accepted, "value")).expect("accepted");
        assert_eq!(Some(u64::from(parsed)), accepted["count"].as_u64());
    }
    for refused in list(grammar, "refused") {
        let value = text(refused, "value");
        let error = parse_shard_count("SHARD_COUNT", value);
        assert!(error.is_err(), "{value:?} ({}) was read as {error:?}", text(refused, "why"));
    }
}

/// Contract: Q1.
#[test]
fn every_job_that_the_clients_publish_is_a_job() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/jobs.json");
    let fixture: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("in the tree")).expect("JSON");
    let published = |name: &Value, data: &Value| {
        serde_json::json!({"name": name, "id": "j", "channel_id": fixture["channel_id"], "data": data}).to_string()
    };
    let mut names = std::collections::BTreeSet::new();
    for case in list(&fixture, "jobs") {
        let job = Job::parse(published(&case["name"], &case["data"]).as_bytes())
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(job.base().as_str(), text(case, "base"), "{case}");
        names.insert(job.task.name());
    }
    assert_eq!(names.len(), 21, "{names:?}");
    for case in list(&fixture, "refused") {
        let error = Job::parse(published(&case["name"], &case["arguments"]).as_bytes()).expect_err(text(case, "name"));
        assert!(error.to_string().contains(&format!("data.{}", text(case, "field"))), "{case}: {error}");
    }
}
