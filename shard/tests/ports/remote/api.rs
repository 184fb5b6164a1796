//! The platform's API: what is asked of it, and what is made of each kind of answer.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::json;
use shard::{
    directory::{
        Directory, DirectoryError,
        api::{ApiConfig, ApiSource},
    },
    secret::Secret,
};

use super::{
    TOKEN, follow, listed, running, stale,
    web::{Asked, Reply, Web, bots},
};
use crate::embedded::data_dir;

const BEARER: &str = "b3arer-hunter2";

pub(super) fn source(web: &Web) -> ApiSource {
    let tokens = vec![Secret::new(BEARER)];
    let config = ApiConfig {
        page_timeout: Duration::from_millis(300),
        largest_page: 64 << 10,
        ..ApiConfig::new(web.url(), tokens)
    };
    ApiSource::new(config).expect("a source")
}

fn asked(target: &str, etag: Option<&str>) -> Asked {
    let target = format!("/base/internal/v1/channels/active{target}");
    Asked { target, etag: etag.map(str::to_owned), bearer: Some(BEARER.to_owned()) }
}

/// Contract: C2.
#[tokio::test]
async fn it_is_asked_with_its_token_and_not_sent_again_what_has_not_changed() {
    let web = Web::start(|asked| match asked.etag.as_deref() {
        Some("\"one\"") => Reply::Status(304),
        _ => Reply::Tagged("\"one\"", bots(1..4)),
    })
    .await;
    let dir = data_dir();
    let (directory, _) = follow(dir.path(), source(&web));
    assert_eq!(listed(&directory).await, running(1..4));
    assert_eq!(listed(&directory).await, running(1..4));
    assert_eq!(web.asked(), [asked("", None), asked("", Some("\"one\""))]);
    web.answer(|_| Reply::Tagged("\"two\"", bots(2..5)));
    assert_eq!(listed(&directory).await, running(2..5));
    assert_eq!(web.asked(), [asked("", Some("\"one\""))]);
}

/// Contract: C2. Each page is known by a tag of its own.
#[tokio::test]
async fn pages_are_read_to_the_last_and_those_that_stayed_are_not_read_again() {
    let web = Web::start(|asked| match (asked.target.split_once('?').map(|(_, query)| query), asked.etag.is_some()) {
        (None, false) => Reply::Tagged("\"a\"", json!({"channels": bots(1..3), "next": "c2"})),
        (Some("cursor=c2"), _) => Reply::Json(json!({"channels": bots(3..5), "next": "?page=3"})),
        (Some("page=3"), _) => Reply::Json(json!({"channels": bots(5..6), "next": null})),
        _ => Reply::Status(304),
    })
    .await;
    let dir = data_dir();
    let (directory, _) = follow(dir.path(), source(&web));
    assert_eq!(listed(&directory).await, running(1..6));
    assert_eq!(listed(&directory).await, running(1..6));
    let (second, third) = (asked("?cursor=c2", None), asked("?page=3", None));
    let expected = [asked("", None), second.clone(), third.clone(), asked("", Some("\"a\"")), second, third];
    assert_eq!(web.asked(), expected);
}

/// Contract: C2.
#[tokio::test]
async fn whatever_it_answers_but_a_list_the_last_list_holds_and_no_secret_is_told() {
    let web = Web::listing(1..4).await;
    let other = Web::listing(7..9).await;
    let dir = data_dir();
    let (directory, _) = follow(dir.path(), source(&web));
    assert_eq!(listed(&directory).await, running(1..4));
    let replies = [
        (Reply::Status(500), "answered 500"),
        (Reply::Status(401), "directory.token_file"),
        (Reply::Status(304), "answered 304"),
        (Reply::Redirect(other.url().into()), "answered 302"),
        (Reply::Never, "no answer within 300ms"),
        (Reply::Text(format!("<html>{TOKEN}</html>")), "no JSON"),
        (Reply::Text("x".repeat(65 << 10)), "more than 65536 bytes"),
        (Reply::Json(json!({"error": TOKEN})), "`channels`"),
        (Reply::Json(json!({"channels": bots(1..4), "next": other.url()})), "another server"),
        (
            Reply::Json(json!({"channels": bots(1..4), "next": "/base/internal/v1/channels/active"})),
            "a page that names",
        ),
    ];
    for (reply, says) in replies {
        web.answer(move |_| reply.clone());
        let (why, last) = stale(directory.channels().await);
        assert!(why.contains(says) && !why.contains('\n'), "{why}");
        assert!(!why.contains("s3cret") && !why.contains("hunter2") && !why.contains("http"), "{why}");
        assert_eq!(last, running(1..4), "{why}");
    }
    let pages = AtomicUsize::new(0);
    web.answer(move |_| {
        let next = pages.fetch_add(1, Ordering::SeqCst).to_string();
        Reply::Json(json!({"channels": [], "next": next}))
    });
    assert!(stale(directory.channels().await).0.contains("200 pages"));
    assert!(other.asked().is_empty(), "the token is for one server alone");
    web.list(bots(2..5));
    assert_eq!(listed(&directory).await, running(2..5));
}

/// Contract: C2. A restart does not depend on it.
#[tokio::test]
async fn a_life_that_begins_while_it_is_down_starts_from_what_it_said_before() {
    let web = Web::listing(1..4).await;
    let dir = data_dir();
    let (directory, _) = follow(dir.path(), source(&web));
    listed(&directory).await;
    drop(directory);
    web.answer(|_| Reply::Status(503));
    let (directory, _) = follow(dir.path(), source(&web));
    let (why, last) = stale(directory.channels().await);
    assert!(why.contains("answered 503"), "{why}");
    assert_eq!(last, running(1..4));
    let Err(DirectoryError::Stale { last, .. }) = directory.channels().await else { panic!("a good answer") };
    assert_eq!(last[0].token.as_ref().map(Secret::expose), Some(TOKEN));
    drop(directory);
    for entry in dir.path().read_dir().expect("read") {
        let bytes = std::fs::read(entry.expect("entry").path()).unwrap_or_default();
        assert!(!bytes.windows(6).any(|part| part == b"s3cret"), "a token lies in the open");
    }
    // What one directory said is no word of another.
    let other = Web::start(|_| Reply::Status(503)).await;
    let (directory, _) = follow(dir.path(), source(&other));
    let error = directory.channels().await.expect_err("it never answered");
    assert!(matches!(error, DirectoryError::Unavailable(_)), "{error}");
}

/// Contract: C2. Two tokens, while one is replaced by the other.
#[tokio::test]
async fn the_next_token_is_shown_when_one_is_refused() {
    let web = Web::start(|asked| match asked.bearer.as_deref() {
        Some("new") => Reply::Json(bots(1..2)),
        _ => Reply::Status(401),
    })
    .await;
    let dir = data_dir();
    let tokens = |names: &[&str]| names.iter().copied().map(Secret::new).collect();
    let both = ApiSource::new(ApiConfig::new(web.url(), tokens(&["old", "new"]))).expect("a source");
    assert_eq!(listed(&follow(dir.path(), both).0).await, running(1..2));
    let none = ApiSource::new(ApiConfig::new(web.url(), Vec::new())).expect("a source");
    let (why, _) = stale(follow(dir.path(), none).0.channels().await);
    assert!(why.contains("wants a token"), "{why}");
}
