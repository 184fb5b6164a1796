//! The bucket's requests over the HTTP client that the shard has anyway, so that no second one is built in.

use std::fmt;

use async_trait::async_trait;
use futures_util::TryStreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};

/// Gives the one client to whoever asks for a client.
pub(super) struct OwnConnector(reqwest::Client);

impl OwnConnector {
    pub(super) fn new(client: reqwest::Client) -> Self {
        Self(client)
    }
}

impl fmt::Debug for OwnConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnConnector")
    }
}

impl HttpConnector for OwnConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(OwnService(self.0.clone())))
    }
}

#[derive(Debug)]
struct OwnService(reqwest::Client);

fn error(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_decode() {
        HttpErrorKind::Decode
    } else if error.is_request() {
        HttpErrorKind::Request
    } else {
        HttpErrorKind::Unknown
    };
    HttpError::new(kind, error.without_url())
}

#[async_trait]
impl HttpService for OwnService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let request = request.map(reqwest::Body::wrap);
        let request = reqwest::Request::try_from(request).map_err(error)?;
        let response: http::Response<reqwest::Body> = self.0.execute(request).await.map_err(error)?.into();
        let (parts, body) = response.into_parts();
        let bytes = http_body_util::BodyDataStream::new(body).map_ok(Frame::data).map_err(error);
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(StreamBody::new(bytes))))
    }
}
