//! The media servers over one HTTP client that all channels share.
//!
//! The library reads and writes bodies as plain readers on a blocking thread; here they are fed from the shard's runtime,
//! piece by piece, so that a file is never whole in memory.

use std::{
    io::{self, Read},
    time::Duration,
};

use bytes::{Buf, Bytes};
use reqwest::{Body, Client, Method, Response};
use tokio::{runtime::Handle, sync::mpsc};
use url::Url;
use whatsapp_rust::{
    anyhow::{self, Context, anyhow},
    async_trait,
    http::{HttpClient, HttpRequest, HttpResponse},
    wacore::net::{StreamingHttpResponse, UploadBody},
};

/// No answer that is kept in memory is longer.
const LONGEST: usize = 128 << 20;
/// A piece of a body.
const PIECE: usize = 64 << 10;
/// How long an answer may take to begin, or a piece of it to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The shared client, as the library wants it.
#[derive(Clone)]
pub(super) struct MediaHttp {
    client: Client,
    runtime: Handle,
    /// Where media requests go instead (loopback builds): the library's addresses are always `https:`.
    instead: Option<Url>,
}

impl MediaHttp {
    /// Must be made within the runtime.
    pub(super) fn new(client: Client, instead: Option<Url>) -> Self {
        Self { client, runtime: Handle::current(), instead }
    }

    fn request(&self, request: &HttpRequest) -> anyhow::Result<reqwest::RequestBuilder> {
        let mut url = Url::parse(&request.url).context("a media address that is none")?;
        if let Some(instead) = &self.instead {
            let same = url.set_scheme(instead.scheme()).and_then(|()| url.set_port(instead.port()));
            same.map_err(|()| anyhow!("a media address that can't be redirected"))?;
            url.set_host(instead.host_str()).context("a media address that can't be redirected")?;
        }
        let method = Method::from_bytes(request.method.as_bytes()).context("a method that is none")?;
        let mut builder = self.client.request(method, url);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        Ok(builder)
    }

    async fn send(builder: reqwest::RequestBuilder) -> anyhow::Result<Response> {
        let sent = tokio::time::timeout(PATIENCE, builder.send()).await;
        sent.context("no answer in time")?.map_err(without_address)
    }
}

/// An address of the media servers holds a key.
fn without_address(error: reqwest::Error) -> anyhow::Error {
    error.without_url().into()
}

async fn whole(mut response: Response) -> anyhow::Result<HttpResponse> {
    let status_code = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(piece) = next(&mut response).await? {
        if body.len() + piece.len() > LONGEST {
            return Err(anyhow!("an answer of more than {LONGEST} bytes"));
        }
        body.extend_from_slice(&piece);
    }
    Ok(HttpResponse { status_code, body })
}

async fn next(response: &mut Response) -> anyhow::Result<Option<Bytes>> {
    let piece = tokio::time::timeout(PATIENCE, response.chunk()).await;
    piece.context("the answer stopped")?.map_err(without_address)
}

#[async_trait]
impl HttpClient for MediaHttp {
    async fn execute(&self, mut request: HttpRequest) -> anyhow::Result<HttpResponse> {
        let body = request.body.take();
        let builder = self.request(&request)?;
        let builder = match body {
            Some(body) => builder.body(body),
            None => builder,
        };
        whole(Self::send(builder).await?).await
    }

    fn supports_streaming(&self) -> bool {
        true
    }

    fn execute_streaming(&self, request: HttpRequest) -> anyhow::Result<StreamingHttpResponse> {
        let response = self.runtime.block_on(Self::send(self.request(&request)?))?;
        let status_code = response.status().as_u16();
        let body = Pieces { response, piece: Bytes::new(), runtime: self.runtime.clone() };
        Ok(StreamingHttpResponse { status_code, body: Box::new(body) })
    }

    fn supports_upload_streaming(&self) -> bool {
        true
    }

    fn execute_upload(&self, request: HttpRequest, mut body: UploadBody, length: u64) -> anyhow::Result<HttpResponse> {
        let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(2);
        let pieces = futures_util::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        let builder =
            self.request(&request)?.header(reqwest::header::CONTENT_LENGTH, length).body(Body::wrap_stream(pieces));
        let answer = self.runtime.spawn(async move { whole(Self::send(builder).await?).await });
        let mut left = length;
        while left > 0 {
            let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            let read = body.read(&mut piece)?;
            if read == 0 {
                return Err(anyhow!("the file is shorter than it said"));
            }
            piece.truncate(read);
            left -= read as u64;
            if sender.blocking_send(Ok(piece.into())).is_err() {
                // The server has answered before it had all.
                break;
            }
        }
        drop(sender);
        self.runtime.block_on(answer)?
    }
}

/// An answer's body, read on a blocking thread.
struct Pieces {
    response: Response,
    piece: Bytes,
    runtime: Handle,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.runtime.block_on(next(&mut self.response)) {
                Ok(Some(piece)) => self.piece = piece,
                Ok(None) => return Ok(0),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}
