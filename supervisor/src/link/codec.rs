//! Frames on a byte stream: a length of four bytes, big-endian, then JSON. A frame may come in any pieces.

use serde::{Serialize, de::DeserializeOwned};

/// No frame is longer.
pub const MAX_FRAME: usize = 4 << 20;

/// The other end does not speak the protocol.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Its length is above [`MAX_FRAME`].
    #[error("a frame of {length} bytes is above the limit of {MAX_FRAME}")]
    TooLong {
        /// The length announced, or made.
        length: usize,
    },
    /// Its text is not a message.
    #[error("a frame of {length} bytes is no message")]
    NoMessage {
        /// Its length.
        length: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
}

/// A message as bytes for the wire.
pub(crate) fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).map_err(|source| FrameError::NoMessage { length: 0, source })?;
    let length = bytes.len() - 4;
    if length > MAX_FRAME {
        return Err(FrameError::TooLong { length });
    }
    bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(bytes)
}

/// Bytes from the wire, until they are messages.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    taken: usize,
}

impl Decoder {
    /// More bytes have come.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message and its length on the wire, if it is complete.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<(T, usize)>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let Some(head) = rest.first_chunk::<4>() else {
            self.compact();
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLong { length });
        }
        let Some(text) = rest.get(4..4 + length) else {
            self.compact();
            return Ok(None);
        };
        let message = serde_json::from_slice(text).map_err(|source| FrameError::NoMessage { length, source })?;
        self.taken += 4 + length;
        Ok(Some((message, 4 + length)))
    }

    /// Gives back what has been read, and the room of a frame that was large.
    fn compact(&mut self) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(64 << 10);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_survive_any_cutting(words in proptest::collection::vec(".{0,40}", 0..12), cut in 1usize..50) {
            let wire: Vec<u8> = words.iter().flat_map(|word| encode(word).unwrap()).collect();
            let (mut decoder, mut read) = (Decoder::default(), Vec::<String>::new());
            for piece in wire.chunks(cut) {
                decoder.feed(piece);
                while let Some((word, _)) = decoder.next().unwrap() {
                    read.push(word);
                }
            }
            prop_assert_eq!(read, words);
            prop_assert!(decoder.bytes.is_empty());
        }

        #[test]
        fn noise_is_an_error_or_an_incomplete_frame_and_never_a_panic(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.feed(&noise);
            while let Ok(Some(_)) = decoder.next::<String>() {}
        }
    }

    #[test]
    fn a_frame_above_the_limit_is_refused_before_it_is_read() {
        let mut decoder = Decoder::default();
        decoder.feed(&u32::MAX.to_be_bytes());
        assert!(matches!(decoder.next::<String>(), Err(FrameError::TooLong { .. })));
        assert!(matches!(encode(&"x".repeat(MAX_FRAME)), Err(FrameError::TooLong { .. })));
    }
}
