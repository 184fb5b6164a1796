//! Entries of an answer: which are channels, which are left alone, and what becomes of the others.

use serde_json::{Value, json};
use shard::{
    directory::{Directory, DirectoryError, Handler},
    platform::PlatformKind,
    secret::Secret,
};

use super::{
    TOKEN,
    api::source,
    care::Logged,
    follow, id, listed, running,
    web::{Web, bot, bots},
};
use crate::embedded::data_dir;

/// Contract: C2.
#[tokio::test]
async fn ids_and_objects_bare_or_wrapped_are_channels() {
    let web = Web::start(|_| unreachable!()).await;
    let dir = data_dir();
    let (directory, _) = follow(dir.path(), source(&web));
    web.list(json!([id(1), id(2).uuid().simple().to_string()]));
    let specs = directory.channels().await.expect("listed");
    assert!(specs.iter().all(|spec| spec.platform == PlatformKind::Whatsapp && spec.enabled && spec.token.is_none()));
    let full = json!({"id": id(3), "platform": "slack", "token": "xapp-1 xoxb-1", "handler": "agent",
        "handler_url": "https://agent/x", "handler_secret": "sign-with-this", "label": "shop", "enabled": false,
        "mode": "socket", "tenant": {"plan": "pro"}});
    let entries = json!([id(1), full, {"id": id(4), "platform": "telegram", "token": TOKEN, "handler": "echo",
        "mode": "polling", "label": null}, {"id": id(5), "platform": "whatsapp", "handler": "https://agent/y"}]);
    for answer in [entries.clone(), json!({"channels": entries})] {
        web.list(answer);
        let specs = directory.channels().await.expect("listed");
        let handlers: Vec<_> = specs.iter().map(|spec| spec.handler.clone()).collect();
        let agent =
            |url: &str, secret: Option<&str>| Handler::Agent { url: url.into(), secret: secret.map(Secret::new) };
        let expected = [
            Handler::None,
            agent("https://agent/x", Some("sign-with-this")),
            Handler::Echo,
            agent("https://agent/y", None),
        ];
        assert_eq!(handlers, expected);
        let enabled: Vec<_> = specs.iter().map(|spec| spec.enabled).collect();
        assert_eq!(enabled, [true, false, true, true]);
        assert_eq!(specs[1].label.as_deref(), Some("shop"));
        assert_eq!(specs[2].token, Some(Secret::new(TOKEN)));
    }
}

/// Contract: C2, W6.
#[tokio::test]
async fn apps_in_event_mode_and_bots_with_a_webhook_are_left_alone() {
    let (_log, logged) = Logged::new();
    let web = Web::listing(1..2).await;
    let dir = data_dir();
    let (directory, metrics) = follow(dir.path(), source(&web));
    web.list(json!([bot(1), {"id": id(2), "platform": "slack", "mode": "events", "token": "xoxb-1"},
        {"id": id(3), "platform": "telegram", "mode": "webhook"}]));
    for _ in 0..2 {
        assert_eq!(listed(&directory).await, [(1, true), (2, false), (3, false)].into());
    }
    assert_eq!(metrics.directory_refused.get(), 0);
    assert_eq!(logged.count("channel is not held"), 2, "once for each");
    let error = directory.set_enabled(id(2), true).await.expect_err("it can't be run here");
    assert!(matches!(&error, DirectoryError::Refused(why) if why.contains("not held")), "{error}");
}

/// Contract: C2.
#[tokio::test]
async fn an_unusable_entry_is_named_once_and_what_ran_under_it_goes_on() {
    let (_log, logged) = Logged::new();
    let web = Web::listing(1..5).await;
    let dir = data_dir();
    let (directory, metrics) = follow(dir.path(), source(&web));
    assert_eq!(listed(&directory).await, running(1..5));
    let wrong = |number: u128, member: &str, value: Value| {
        let mut entry = bot(number);
        entry[member] = value;
        entry
    };
    web.list(json!([
        bot(1),
        wrong(2, "platform", json!(TOKEN)),
        wrong(3, "token", json!(["s3cret"])),
        wrong(7, "handler", json!("s3cret")),
        bot(8),
        bot(8),
    ]));
    for _ in 0..3 {
        // 2 and 3 can't be read and go on; 4 is gone; 7 was never there.
        assert_eq!(listed(&directory).await, running([1, 2, 3, 8]));
    }
    assert_eq!(metrics.directory_refused.get(), 4);
    assert_eq!(logged.count("can't be used"), 4, "{}", logged.text());
    for line in [
        "channel 00000000-0000-0000-0000-000000000002: platform: expected",
        "000003: token: expected a text",
        "000007: handler: expected",
        "000008: is listed twice",
    ] {
        assert_eq!(logged.count(line), 1, "{line} in {}", logged.text());
    }
    assert_eq!(logged.count("s3cret"), 0, "{}", logged.text());
    web.list(bots([1, 2, 3, 8]));
    assert_eq!(listed(&directory).await, running([1, 2, 3, 8]));
    assert_eq!(metrics.directory_refused.get(), 0);
}

/// Contract: C2.
#[tokio::test]
async fn an_entry_without_a_readable_id_may_be_any_of_those_that_are_missing() {
    let web = Web::listing(1..5).await;
    let dir = data_dir();
    let (directory, metrics) = follow(dir.path(), source(&web));
    listed(&directory).await;
    for nameless in [json!(17), json!({"platform": "telegram"}), json!("urn:uuid:x"), json!({"id": {}})] {
        web.list(json!([bot(1), nameless, bot(9)]));
        assert_eq!(listed(&directory).await, running([1, 2, 3, 4, 9]));
        assert_eq!(metrics.directory_refused.get(), 1);
    }
    web.list(bots([1, 9]));
    assert_eq!(listed(&directory).await, running([1, 9]));
}
