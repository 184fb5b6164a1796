//! One call of the Bot API: the request, and its answer or why there is none.
//!
//! The token is part of the address, and an HTTP error likes to show the address. So this is the one boundary: what
//! leaves here holds neither, whatever the server or the library put into it.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use reqwest::{RequestBuilder, Response, StatusCode, header::CONTENT_TYPE, multipart::Form};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use teloxide_core::requests::Payload;
use url::Url;

use super::TelegramError;
use crate::secret::Secret;

/// An answer larger than this is none: 100 updates come to a small part of it.
const LARGEST_ANSWER: usize = 32 << 20;
/// A person reads it; a page of HTML would not help.
const LONGEST_DESCRIPTION: usize = 512;

/// The Bot API server, and the client that all bots share.
pub(super) struct Api {
    client: reqwest::Client,
    base: String,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// There is no usable token: nothing was sent.
    #[error("the channel has no token of the form <id>:<secret>")]
    NoToken,
    /// No connection could be made: nothing was sent.
    #[error("the Bot API can't be reached: {0}")]
    Unsent(String),
    /// The request was on its way, and no whole answer came.
    #[error("the Bot API gave no answer: {0}")]
    Lost(String),
    /// Something in between answered, or the server in words that aren't the Bot API's.
    #[error("HTTP {status} without a word of the Bot API")]
    Foreign {
        /// The HTTP status.
        status: u16,
    },
    /// The Bot API refused.
    #[error("{code} {description}")]
    Refused {
        /// Its code.
        code: u16,
        /// Its words.
        description: String,
        /// When to come back.
        retry_after: Option<Duration>,
        /// The group's new id.
        migrated_to: Option<i64>,
    },
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    result: Option<Box<RawValue>>,
    error_code: Option<u16>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Deserialize, Default)]
struct Parameters {
    retry_after: Option<u64>,
    migrate_to_chat_id: Option<i64>,
}

impl Api {
    pub(super) fn new(address: &Url) -> Result<Self, TelegramError> {
        if !matches!(address.scheme(), "http" | "https") {
            return Err(TelegramError::Address { scheme: address.scheme().to_owned() });
        }
        // A connection is used again at once by the bot whose poll it carried; the few idle ones are for sends. They are
        // let go before a server would, since a request that meets a closing connection may or may not have been read.
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .pool_max_idle_per_host(32)
            .pool_idle_timeout(Duration::from_secs(20))
            .tcp_keepalive(Duration::from_secs(30))
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("shardvisor/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| TelegramError::Client(error.without_url()))?;
        Ok(Self { client, base: address.as_str().trim_end_matches('/').to_owned() })
    }

    /// Calls a method with one of teloxide's payloads.
    pub(super) async fn call<P: Payload + Serialize>(
        &self,
        token: Option<&Secret>,
        payload: &P,
        patience: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        self.post(token, &name_of::<P>(), payload, patience).await
    }

    /// Calls a method; `patience` is for all of it.
    pub(super) async fn post(
        &self,
        token: Option<&Secret>,
        method: &str,
        params: &(impl Serialize + ?Sized),
        patience: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        let token = usable(token)?;
        let body = serde_json::to_vec(params).map_err(|error| CallError::Unsent(error.to_string()))?;
        let request = self.client.post(self.method(token, method)).header(CONTENT_TYPE, "application/json").body(body);
        Self::exchange(token, request.timeout(patience)).await
    }

    /// Calls a method with a file in it.
    pub(super) async fn upload<P: Payload>(
        &self,
        token: Option<&Secret>,
        form: Form,
        patience: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        let token = usable(token)?;
        let request = self.client.post(self.method(token, &name_of::<P>())).multipart(form);
        Self::exchange(token, request.timeout(patience)).await
    }

    /// Begins to fetch a file from where `getFile` says it lies.
    pub(super) async fn file(&self, token: Option<&Secret>, path: &str) -> Result<Response, CallError> {
        let token = usable(token)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
        if !path.bytes().all(fits) || path.starts_with('/') || path.contains("..") {
            let description = "the file's path is none of the Bot API's".to_owned();
            return Err(CallError::Refused { code: 400, description, retry_after: None, migrated_to: None });
        }
        let address = format!("{}/file/bot{}/{path}", self.base, token.expose());
        let response = self.client.get(address).send().await.map_err(|error| unanswered(error, token))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::NOT_FOUND => {
                let description = "the file is gone".to_owned();
                Err(CallError::Refused { code: 404, description, retry_after: None, migrated_to: None })
            }
            status => Err(CallError::Foreign { status: status.as_u16() }),
        }
    }

    fn method(&self, token: &Secret, method: &str) -> String {
        format!("{}/bot{}/{method}", self.base, token.expose())
    }

    async fn exchange(token: &Secret, request: RequestBuilder) -> Result<Box<RawValue>, CallError> {
        let exchange = async {
            let mut response = request.send().await?;
            let (status, mut body) = (response.status(), Vec::new());
            while let Some(chunk) = response.chunk().await? {
                if body.len() + chunk.len() > LARGEST_ANSWER {
                    return Ok((status, Bytes::new()));
                }
                body.extend_from_slice(&chunk);
            }
            Ok((status, Bytes::from(body)))
        };
        match exchange.await {
            Ok((status, body)) => understood(status, &body, token),
            Err(error) => Err(unanswered(error, token)),
        }
    }
}

/// The method of one of teloxide's payloads, whose names begin with a capital.
fn name_of<P: Payload>() -> String {
    let mut method = P::NAME.to_owned();
    if let Some(first) = method.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    method
}

fn usable(token: Option<&Secret>) -> Result<&Secret, CallError> {
    token.filter(|token| is_token(token.expose())).ok_or(CallError::NoToken)
}

/// `<digits>:<letters, digits, _ and ->`: all that may stand in an address as it is.
fn is_token(text: &str) -> bool {
    text.split_once(':').is_some_and(|(id, secret)| {
        !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_digit())
            && !secret.is_empty()
            && secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    })
}

fn understood(status: StatusCode, body: &[u8], token: &Secret) -> Result<Box<RawValue>, CallError> {
    let foreign = CallError::Foreign { status: status.as_u16() };
    let Ok(answer) = serde_json::from_slice::<Answer>(body) else { return Err(foreign) };
    match (answer.ok, answer.result, answer.error_code) {
        (true, Some(result), _) => Ok(result),
        (false, _, Some(code)) => Err(CallError::Refused {
            code,
            description: redacted(&answer.description, token),
            retry_after: answer.parameters.retry_after.map(Duration::from_secs),
            migrated_to: answer.parameters.migrate_to_chat_id,
        }),
        _ => Err(foreign),
    }
}

/// Whether the request can have been read is all that matters; the cause is told by the innermost error.
fn unanswered(error: reqwest::Error, token: &Secret) -> CallError {
    let error = error.without_url();
    let (is_unsent, is_late) = (error.is_connect() || error.is_builder(), error.is_timeout());
    let mut cause: &dyn Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let cause = if is_late { "no answer in time".to_owned() } else { redacted(&cause.to_string(), token) };
    if is_unsent { CallError::Unsent(cause) } else { CallError::Lost(cause) }
}

/// The text without the token, as it is and as an address spells it, cut to what a person reads.
fn redacted(text: &str, token: &Secret) -> String {
    let secret = token.expose().split_once(':').map_or(token.expose(), |(_, secret)| secret);
    text.replace(secret, "[redacted]").chars().take(LONGEST_DESCRIPTION).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_stand_in_an_address_is_a_token() {
        assert!(is_token("123:AAH-x_9"));
        for bad in ["", "1", ":a", "1:", "a:b", "1:a b", "1:a/../b", "1:a?b", "1:a#b", "1:ä"] {
            assert!(!is_token(bad), "{bad}");
        }
    }

    #[test]
    fn an_answer_is_the_bot_apis_own_or_a_foreign_one() {
        let token = Secret::new("1:abc");
        let read = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            understood(status, body.as_bytes(), &token).map(|result| result.get().to_owned())
        };
        assert_eq!(read(200, r#"{"ok":true,"result":[1]}"#), Ok("[1]".to_owned()));
        for (status, body) in [
            (200, ""),
            (200, r#"{"ok":true}"#),
            (200, r#"{"ok":true,"result":[{"#),
            (502, "<html>bad gateway</html>"),
            (401, r#"{"error":"proxy wants a login"}"#),
        ] {
            assert_eq!(read(status, body), Err(CallError::Foreign { status }), "{body}");
        }
        let refused =
            r#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":9}}"#;
        let Err(CallError::Refused { code: 429, retry_after, .. }) = read(429, refused) else { panic!("refused") };
        assert_eq!(retry_after, Some(Duration::from_secs(9)));
    }

    /// Field report R23.
    #[test]
    fn a_server_that_repeats_the_token_is_not_repeated() {
        let token = Secret::new("123:s3cr3t");
        for text in ["no /bot123:s3cr3t/sendMessage here", "no /bot123%3As3cr3t/x"] {
            assert!(!redacted(text, &token).contains("s3cr3t"));
        }
    }
}
