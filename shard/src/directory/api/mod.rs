//! The platform's HTTP API as a directory: `GET <url>/internal/v1/channels/active`, page after page.
//!
//! A page that was read before is asked for with its `ETag`, so that nothing is sent again that has not changed. Redirects are
//! not followed and pages of another server not fetched, which would carry the token to somebody else. Body, pages, entries and
//! time are bounded, and no error repeats an address or a body.

mod page;

use std::{collections::HashSet, error::Error, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use reqwest::{Client, RequestBuilder, Response, StatusCode, header, redirect::Policy};
use tokio::{sync::Mutex, time::timeout};
use url::Url;

use self::page::Page;
use super::{Answer, BadEntry, DirectoryError, Entry, Source};
use crate::{keyring::Keyring, secret::Secret};

const PATH: &str = "internal/v1/channels/active";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The most pages of an answer.
const MOST_PAGES: usize = 200;
/// The most entries of an answer.
const MOST_ENTRIES: usize = 100_000;

/// How the API is asked.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// What the path is put behind.
    pub url: Url,
    /// What it is shown; the next one when it refuses the one before. None where it wants none.
    pub tokens: Vec<Secret>,
    /// How long one page may take.
    pub page_timeout: Duration,
    /// How long all of them may take.
    pub timeout: Duration,
    /// The most bytes of a page.
    pub largest_page: usize,
}

impl ApiConfig {
    /// The defaults for an address.
    pub fn new(url: Url, tokens: Vec<Secret>) -> Self {
        Self {
            url,
            tokens,
            page_timeout: Duration::from_secs(8),
            timeout: Duration::from_secs(16),
            largest_page: 8 << 20,
        }
    }
}

/// The platform's API.
pub struct ApiSource {
    config: ApiConfig,
    first: Url,
    client: Client,
    /// The pages of the last answer, in order.
    read: Mutex<Vec<ReadPage>>,
}

/// A page as it was read.
#[derive(Clone)]
struct ReadPage {
    url: Url,
    etag: Option<header::HeaderValue>,
    entries: Vec<Result<Entry, BadEntry>>,
    next: Option<Url>,
}

impl ApiSource {
    /// Opens no connection yet.
    pub fn new(config: ApiConfig) -> Result<Self, DirectoryError> {
        let mut first = config.url.clone();
        let path = format!("{}/{PATH}", first.path().trim_end_matches('/'));
        first.set_path(&path);
        let client = Client::builder()
            .user_agent(concat!("shardvisor/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(config.page_timeout)
            .pool_max_idle_per_host(1)
            .build()
            .map_err(|error| DirectoryError::Refused(error.without_url().to_string()))?;
        Ok(Self { config, first, client, read: Mutex::default() })
    }

    async fn pages(&self, before: &[ReadPage], keys: &Keyring) -> Result<Vec<ReadPage>, DirectoryError> {
        let mut pages: Vec<ReadPage> = Vec::new();
        let (mut next, mut seen, mut entries) = (Some(self.first.clone()), HashSet::new(), 0);
        while let Some(url) = next.take() {
            if pages.len() == MOST_PAGES {
                return Err(nonsense(&format!("more than {MOST_PAGES} pages")));
            }
            if !seen.insert(url.clone()) {
                return Err(nonsense("a page that names one before it as the next"));
            }
            let known = before.iter().find(|page| page.url == url);
            let page = self.page(url, known, entries, keys).await?;
            entries += page.entries.len();
            if entries > MOST_ENTRIES {
                return Err(nonsense(&format!("more than {MOST_ENTRIES} entries")));
            }
            next.clone_from(&page.next);
            pages.push(page);
        }
        Ok(pages)
    }

    async fn page(
        &self,
        url: Url,
        known: Option<&ReadPage>,
        at: usize,
        keys: &Keyring,
    ) -> Result<ReadPage, DirectoryError> {
        let etag = known.and_then(|page| page.etag.clone());
        let response = self.get(&url, etag.as_ref()).await?;
        let status = response.status();
        match (status, known) {
            (StatusCode::NOT_MODIFIED, Some(page)) if etag.is_some() => return Ok(page.clone()),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                let problem = if self.config.tokens.is_empty() {
                    "it wants a token, and directory.token_file gives none"
                } else {
                    "it does not accept the token of directory.token_file"
                };
                return Err(DirectoryError::Unavailable(format!("answered {}: {problem}", status.as_u16())));
            }
            (StatusCode::OK, _) => {}
            _ => return Err(DirectoryError::Unavailable(format!("answered {}", status.as_u16()))),
        }
        let etag = response.headers().get(header::ETAG).cloned();
        let body = self.body(response).await?;
        let Page { entries, next } = Page::read(&body).map_err(|problem| nonsense(&problem))?;
        let next = next.map(|next| page::following(&url, &next)).transpose().map_err(|problem| nonsense(&problem))?;
        let entries = (at + 1..).zip(&entries).map(|(at, value)| Entry::read(at, value, keys)).collect();
        Ok(ReadPage { url, etag, entries, next })
    }

    /// Shows the tokens one after the other.
    async fn get(&self, url: &Url, etag: Option<&header::HeaderValue>) -> Result<Response, DirectoryError> {
        let mut request = self.client.get(url.clone()).header(header::ACCEPT, "application/json");
        if let Some(etag) = etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        let mut tokens = self.config.tokens.iter().peekable();
        loop {
            let again = request.try_clone().ok_or_else(|| nonsense("a request that can't be repeated"))?;
            let token = tokens.next();
            let response = self.send(again, token).await?;
            if response.status() != StatusCode::UNAUTHORIZED || tokens.peek().is_none() {
                return Ok(response);
            }
        }
    }

    async fn send(&self, request: RequestBuilder, token: Option<&Secret>) -> Result<Response, DirectoryError> {
        let request = match token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        };
        request.send().await.map_err(|error| self.broken(error))
    }

    async fn body(&self, mut response: Response) -> Result<Bytes, DirectoryError> {
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(error))? {
            if body.len() + chunk.len() > self.config.largest_page {
                return Err(nonsense(&format!("more than {} bytes in a page", self.config.largest_page)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    fn broken(&self, error: reqwest::Error) -> DirectoryError {
        let error = error.without_url();
        if error.is_timeout() && !error.is_connect() {
            return DirectoryError::Unavailable(format!("no answer within {:?}", self.config.page_timeout));
        }
        // The outer layers only say "client error"; the innermost cause is what helps.
        let mut cause: &dyn Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let what = if error.is_connect() { "no connection" } else { "request failed" };
        DirectoryError::Unavailable(format!("{what}: {cause}"))
    }
}

fn nonsense(problem: &str) -> DirectoryError {
    DirectoryError::Nonsense(problem.to_owned())
}

#[async_trait]
impl Source for ApiSource {
    fn kind(&self) -> &'static str {
        "api"
    }

    fn name(&self) -> String {
        let mut name = self.first.clone();
        // An address with a user keeps its place without its password; neither can fail for one with a host.
        let _ = name.set_password(None);
        let _ = name.set_username("");
        name.set_query(None);
        name.into()
    }

    async fn ask(&self, keys: &Keyring) -> Result<Answer, DirectoryError> {
        let mut read = self.read.lock().await;
        let late = |_| DirectoryError::Unavailable(format!("no whole answer within {:?}", self.config.timeout));
        *read = timeout(self.config.timeout, self.pages(&read, keys)).await.map_err(late)??;
        Ok(Answer::of(read.iter().flat_map(|page| page.entries.iter().cloned())))
    }

    /// It does not tell: it is asked at intervals.
    async fn changed(&self) {
        std::future::pending().await
    }
}
