//! One call of the Web API: the request, and its answer or why there is none.
//!
//! Tokens travel in a header, but addresses hold tickets (a socket's, an upload's), and an error likes to show its address.
//! So this is the one boundary: what leaves here holds no address and of the server's words only those of its closed list.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use reqwest::{
    RequestBuilder, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use url::Url;

use super::SlackError;
use crate::secret::Secret;

/// An answer larger than this is none.
const LARGEST_ANSWER: usize = 8 << 20;
/// When a 429 doesn't say when to come back.
const COME_BACK: Duration = Duration::from_secs(30);

/// The Web API's server, and the client that all apps share.
pub(super) struct Api {
    client: reqwest::Client,
    base: String,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// No connection could be made, or there was nothing to send: nothing was done.
    #[error("Slack can't be reached: {0}")]
    Unsent(String),
    /// The request was on its way, and no whole answer came.
    #[error("Slack gave no answer: {0}")]
    Lost(String),
    /// Something in between answered, or the server in words that aren't the Web API's.
    #[error("HTTP {status} without a word of the Web API")]
    Foreign {
        /// The HTTP status.
        status: u16,
    },
    /// Too many calls: nothing was done.
    #[error("ratelimited")]
    Limited {
        /// When to come back.
        after: Duration,
    },
    /// The Web API refused.
    #[error("{word}")]
    Refused {
        /// Its word.
        word: String,
    },
}

impl CallError {
    /// The word of a refusal.
    pub(super) fn word(&self) -> Option<&str> {
        match self {
            Self::Refused { word } => Some(word),
            _ => None,
        }
    }
}

impl Api {
    pub(super) fn new(address: &Url) -> Result<Self, SlackError> {
        if !matches!(address.scheme(), "http" | "https") {
            return Err(SlackError::Address { scheme: address.scheme().to_owned() });
        }
        // The few idle connections are for sends; they are let go before a server would, since a request that meets a
        // closing connection may or may not have been read.
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .http1_only()
            .pool_max_idle_per_host(16)
            .pool_idle_timeout(Duration::from_secs(20))
            .tcp_keepalive(Duration::from_secs(30))
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("shardvisor/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| SlackError::Client(error.without_url()))?;
        Ok(Self { client, base: address.as_str().trim_end_matches('/').to_owned() })
    }

    /// The client, for what is no method: sockets and uploads.
    pub(super) fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Whether a token may be shown to this address.
    pub(super) fn is_slacks_own(&self, address: &Url) -> bool {
        let of_slack = |host: &str| host == "slack.com" || host.ends_with(".slack.com");
        let ours = Url::parse(&self.base).is_ok_and(|base| base.origin() == address.origin());
        ours || (address.scheme() == "https" && address.host_str().is_some_and(of_slack))
    }

    /// Calls a method with parameters as JSON; `patience` is for all of it.
    pub(super) async fn call(
        &self,
        token: &Secret,
        method: &str,
        params: &Value,
        patience: Duration,
    ) -> Result<Value, CallError> {
        let request = self.client.post(format!("{}/{method}", self.base));
        let kind = HeaderValue::from_static("application/json; charset=utf-8");
        self.ask(token, request.header(CONTENT_TYPE, kind).body(params.to_string()), patience).await
    }

    /// Calls a method that doesn't read JSON.
    pub(super) async fn call_form(
        &self,
        token: &Secret,
        method: &str,
        params: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Value, CallError> {
        self.ask(token, self.client.post(format!("{}/{method}", self.base)).form(params), patience).await
    }

    async fn ask(&self, token: &Secret, request: RequestBuilder, patience: Duration) -> Result<Value, CallError> {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
            .map_err(|_| CallError::Unsent("the token has no form that fits into a header".to_owned()))?;
        bearer.set_sensitive(true);
        let request = request.header(AUTHORIZATION, bearer).timeout(patience);
        let exchange = async {
            let mut response = request.send().await?;
            let (status, mut body) = (response.status(), Vec::new());
            let after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
            while let Some(chunk) = response.chunk().await? {
                if body.len() + chunk.len() > LARGEST_ANSWER {
                    return Ok((status, after, Bytes::new()));
                }
                body.extend_from_slice(&chunk);
            }
            Ok((status, after, Bytes::from(body)))
        };
        match exchange.await {
            Ok((status, after, body)) => understood(status, after.map(Duration::from_secs), &body),
            Err(error) => Err(unanswered(error)),
        }
    }
}

fn understood(status: StatusCode, after: Option<Duration>, body: &[u8]) -> Result<Value, CallError> {
    let limited = CallError::Limited { after: after.unwrap_or(COME_BACK).max(Duration::from_secs(1)) };
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Err(limited);
    }
    let foreign = CallError::Foreign { status: status.as_u16() };
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return Err(foreign) };
    match (answer["ok"].as_bool(), answer["error"].as_str()) {
        (Some(true), _) if status.is_success() => Ok(answer),
        (Some(false), Some("ratelimited" | "rate_limited")) => Err(limited),
        (Some(false), Some(word)) => Err(CallError::Refused { word: word_of_the_list(word) }),
        _ => Err(foreign),
    }
}

/// The platform's error words are lower case with underscores: anything else could be what was sent, echoed.
pub(super) fn word_of_the_list(word: &str) -> String {
    let of_a_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_one = (1..=64).contains(&word.len()) && word.bytes().all(of_a_word);
    if is_one { word.to_owned() } else { "unnamed_error".to_owned() }
}

/// Whether the request can have been read is all that matters; the cause is told by the innermost error.
pub(super) fn unanswered(error: reqwest::Error) -> CallError {
    let error = error.without_url();
    let (is_unsent, is_late) = (error.is_connect() || error.is_builder(), error.is_timeout());
    let mut cause: &dyn Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let cause = if is_late { "no answer in time".to_owned() } else { cause.to_string() };
    if is_unsent { CallError::Unsent(cause) } else { CallError::Lost(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_web_apis_own_or_a_foreign_one() {
        let read = |status: u16, after: Option<u64>, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            understood(status, after.map(Duration::from_secs), body.as_bytes())
        };
        assert!(read(200, None, r#"{"ok":true,"ts":"1.2"}"#).is_ok());
        for (status, body) in [
            (200, ""),
            (200, r#"{"ok":1}"#),
            (200, r#"{"ok":false}"#),
            (200, r#"{"ok":true,"#),
            (502, "<html>bad gateway</html>"),
            (503, r#"{"ok":true}"#),
            (401, r#"{"error":"proxy wants a login"}"#),
        ] {
            assert_eq!(read(status, None, body), Err(CallError::Foreign { status }), "{body}");
        }
        let refused = |word: &str| Err(CallError::Refused { word: word.into() });
        assert_eq!(read(200, None, r#"{"ok":false,"error":"invalid_auth"}"#), refused("invalid_auth"));
        assert_eq!(read(500, None, r#"{"ok":false,"error":"internal_error"}"#), refused("internal_error"));
        assert_eq!(read(200, None, r#"{"ok":false,"error":"no xoxb-1-Abc!"}"#), refused("unnamed_error"));
    }

    #[test]
    fn a_retry_after_is_read_and_is_never_nothing() {
        let limited = |seconds| Err(CallError::Limited { after: Duration::from_secs(seconds) });
        let status = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(understood(status, Some(Duration::from_secs(42)), b"later"), limited(42));
        assert_eq!(understood(status, Some(Duration::ZERO), b""), limited(1));
        assert_eq!(understood(status, None, b""), limited(30));
        assert_eq!(understood(StatusCode::OK, None, br#"{"ok":false,"error":"ratelimited"}"#), limited(30));
    }
}
