//! Frames on a WebSocket: three bytes of length, then that many bytes; a frame may be spread over several messages.

use bytes::{Bytes, BytesMut};
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use hyper_util::rt::TokioIo;
use tokio_websockets::{Message, WebSocketStream};
use wacore::framing::{FrameDecoder, encode_frame};
use wacore_binary::consts::WA_CONN_HEADER;

use super::connection::Broken;

pub(super) type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// What comes from the client.
pub(super) struct Reader {
    stream: SplitStream<Socket>,
    decoder: FrameDecoder,
    greeted: bool,
    greeting: BytesMut,
}

/// What goes to the client.
pub(super) struct Writer(SplitSink<Socket, Message>);

/// Both ends of one socket.
pub(super) fn split(socket: Socket) -> (Reader, Writer) {
    let (sink, stream) = socket.split();
    let reader = Reader { stream, decoder: FrameDecoder::new(), greeted: false, greeting: BytesMut::new() };
    (reader, Writer(sink))
}

impl Reader {
    /// The next frame; `None` when the client has closed.
    pub(super) async fn next(&mut self) -> Result<Option<BytesMut>, Broken> {
        loop {
            if let Some(frame) = self.decoder.decode_frame() {
                return Ok(Some(frame));
            }
            let Some(message) = self.stream.next().await else { return Ok(None) };
            let message = message.map_err(|error| Broken::Socket(error.to_string()))?;
            if message.is_close() {
                return Ok(None);
            }
            if message.is_binary() {
                self.feed(&message.into_payload())?;
            }
        }
    }

    /// The first bytes are a greeting: an optional preamble for the front end, which names its own length, and a header.
    fn feed(&mut self, payload: &[u8]) -> Result<(), Broken> {
        if self.greeted {
            self.decoder.feed(payload);
            return Ok(());
        }
        self.greeting.extend_from_slice(payload);
        let greeting = &self.greeting[..];
        let preamble = match greeting {
            [b'E', b'D', 0, 1, high, middle, low, ..] => {
                7 + (usize::from(*high) << 16) + (usize::from(*middle) << 8) + usize::from(*low)
            }
            [b'E', ..] if greeting.len() < 7 => return Ok(()),
            _ => 0,
        };
        let start = preamble + WA_CONN_HEADER.len();
        if greeting.len() < start {
            return Ok(());
        }
        if greeting[preamble..start] != WA_CONN_HEADER {
            return Err(Broken::Greeting);
        }
        self.decoder.feed(&greeting[start..]);
        self.greeted = true;
        self.greeting = BytesMut::new();
        Ok(())
    }
}

impl Writer {
    pub(super) async fn send(&mut self, payload: &[u8]) -> Result<(), Broken> {
        let frame = encode_frame(payload, None).map_err(|error| Broken::Socket(error.to_string()))?;
        let sent = self.0.send(Message::binary(Bytes::from(frame))).await;
        sent.map_err(|error| Broken::Socket(error.to_string()))
    }

    pub(super) async fn close(&mut self) {
        // Whoever is gone already needs no goodbye.
        let _ = self.0.close().await;
    }
}
