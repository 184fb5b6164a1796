//! One signed HTTP request for one event, to an endpoint or an agent.
//!
//! Redirects are not followed (they would carry a signed body to somebody else), an answer's body is bounded, and no
//! error repeats the URL.

use std::{error::Error, time::Duration};

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use reqwest::{Client, Response, header, redirect::Policy};

use super::{
    settings::Target,
    signature::{SIGNATURE_HEADER, sign},
};
use crate::event::Event;

/// How much of an answer's body is read.
pub const MAX_ANSWER_BYTES: usize = 256 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A receiver may ask for patience, but not for ever.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Sends events over one connection pool.
#[derive(Debug, Clone)]
pub(super) struct Webhook {
    client: Client,
}

/// Why an event did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PostError {
    /// No connection.
    #[error("no connection: {0}")]
    Connect(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection broke, or what came was not HTTP.
    #[error("request failed: {0}")]
    Broken(String),
    /// An answer that says no.
    #[error("answered {status}")]
    Status {
        /// The status.
        status: u16,
        /// The receiver's own word on when to come back.
        retry_after: Option<Duration>,
    },
    /// The answer's body is over the limit.
    #[error("the answer is over {MAX_ANSWER_BYTES} bytes")]
    TooLarge,
}

impl PostError {
    /// Whether trying again is useless: the receiver says that it is gone, or that it will never take so large an event.
    pub(super) fn permanent(&self) -> bool {
        matches!(self, Self::Status { status: 410 | 413, .. })
    }

    /// How long the receiver asked us to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    fn of(error: reqwest::Error, timeout: Duration) -> Self {
        let error = error.without_url();
        if error.is_timeout() && !error.is_connect() {
            return Self::Timeout(timeout);
        }
        // The outer layers only say "client error"; the innermost cause is what helps.
        let mut cause: &dyn Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let text = cause.to_string();
        if error.is_connect() { Self::Connect(text) } else { Self::Broken(text) }
    }
}

impl Webhook {
    /// A client of its own. `idle` connections a host are kept open.
    pub(super) fn new(idle: usize) -> Result<Self, String> {
        let client = Client::builder()
            .user_agent(concat!("shardvisor/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(idle)
            .build()
            .map_err(|error| error.without_url().to_string())?;
        Ok(Self { client })
    }

    /// Sends an event to whoever only takes note: any 2xx is an answer, whatever its body.
    pub(super) async fn tell(
        &self,
        target: &Target,
        event: &Event,
        now: Timestamp,
        timeout: Duration,
    ) -> Result<(), PostError> {
        let response = self.post(target, event, now, timeout).await?;
        // Read to its end, the connection can be used again; what is too long is cut by closing it.
        let _ = bounded(response, timeout).await;
        Ok(())
    }

    /// Sends an event and returns the body of a 2xx answer.
    pub(super) async fn ask(
        &self,
        target: &Target,
        event: &Event,
        now: Timestamp,
        timeout: Duration,
    ) -> Result<Bytes, PostError> {
        let response = self.post(target, event, now, timeout).await?;
        bounded(response, timeout).await
    }

    async fn post(
        &self,
        target: &Target,
        event: &Event,
        now: Timestamp,
        timeout: Duration,
    ) -> Result<Response, PostError> {
        let body = serde_json::to_vec(event).map_err(|_| PostError::Broken("the event is no JSON".into()))?;
        let mut request = self
            .client
            .post(target.url().clone())
            .timeout(timeout)
            .header(header::CONTENT_TYPE, "application/json")
            .header("shardvisor-event-id", event.id.to_string())
            .header("shardvisor-event-type", event.kind.name());
        if let Some(signature) = sign(target.secrets(), now.as_second(), &body) {
            request = request.header(SIGNATURE_HEADER, signature);
        }
        let response = request.body(body).send().await.map_err(|error| PostError::of(error, timeout))?;
        let status = response.status();
        if !status.is_success() {
            let retry_after = retry_after(&response, now);
            return Err(PostError::Status { status: status.as_u16(), retry_after });
        }
        Ok(response)
    }
}

async fn bounded(mut response: Response, timeout: Duration) -> Result<Bytes, PostError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| PostError::of(error, timeout))? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(PostError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// `Retry-After` in either form: seconds, or a date.
fn retry_after(response: &Response, now: Timestamp) -> Option<Duration> {
    let value = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
            Duration::try_from(at.duration_since(now)).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}
