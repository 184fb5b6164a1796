//! The server's side of the noise handshake: XX with whoever it doesn't know, IK with a client that kept its key.

use buffa::{Message as _, MessageField};
use wacore::{crypto::generate_curve_key_pair, libsignal::protocol::KeyPair};
use wacore_binary::consts::{NOISE_PATTERN_IK, NOISE_PATTERN_XX, WA_CONN_HEADER};
use wacore_noise::{HandshakeError, NoiseCipher, NoiseHandshake};
use waproto::whatsapp::{
    ClientPayload, HandshakeMessage,
    handshake_message::{ClientHello, ServerHello},
};

use super::{
    certificate::{Identity, public},
    connection::Broken,
    frames::{Reader, Writer},
};

/// Which handshake a client chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Three messages: neither knows the other.
    Xx,
    /// Two messages: the client has kept the server's key.
    Ik,
}

/// What the handshake leaves behind.
pub(super) struct Secured {
    pub(super) pattern: Pattern,
    pub(super) to_client: NoiseCipher,
    pub(super) from_client: NoiseCipher,
    pub(super) payload: ClientPayload,
}

/// Greets a client and learns who it says it is.
pub(super) async fn shake(identity: &Identity, reader: &mut Reader, writer: &mut Writer) -> Result<Secured, Broken> {
    let hello = read(reader).await?.client_hello.into_option().ok_or(Broken::Handshake("no hello"))?;
    let theirs: [u8; 32] = key(hello.ephemeral.as_deref())?;
    let ours = generate_curve_key_pair();
    match (&hello.r#static, &hello.payload) {
        (Some(_), Some(_)) => ik(identity, &ours, &theirs, &hello, writer).await,
        _ => xx(identity, &ours, &theirs, reader, writer).await,
    }
}

async fn ik(
    identity: &Identity,
    ours: &KeyPair,
    theirs: &[u8; 32],
    hello: &ClientHello,
    writer: &mut Writer,
) -> Result<Secured, Broken> {
    let mut noise = NoiseHandshake::new(NOISE_PATTERN_IK, &WA_CONN_HEADER)?;
    noise.authenticate(&public(&identity.key));
    noise.authenticate(theirs);
    noise.mix_shared_secret(identity.key.private_key.serialize(), theirs)?;
    let client: [u8; 32] = key(Some(&noise.decrypt(hello.r#static.as_deref().unwrap_or_default())?))?;
    noise.mix_shared_secret(identity.key.private_key.serialize(), &client)?;
    let payload = noise.decrypt(hello.payload.as_deref().unwrap_or_default())?;
    noise.authenticate(&public(ours));
    noise.mix_shared_secret(ours.private_key.serialize(), theirs)?;
    noise.mix_shared_secret(ours.private_key.serialize(), &client)?;
    let chain = noise.encrypt(&identity.chain)?;
    answer(writer, ours, None, chain).await?;
    secured(Pattern::Ik, noise, &payload)
}

async fn xx(
    identity: &Identity,
    ours: &KeyPair,
    theirs: &[u8; 32],
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<Secured, Broken> {
    let mut noise = NoiseHandshake::new(NOISE_PATTERN_XX, &WA_CONN_HEADER)?;
    noise.authenticate(theirs);
    noise.authenticate(&public(ours));
    noise.mix_shared_secret(ours.private_key.serialize(), theirs)?;
    let known = noise.encrypt(&public(&identity.key))?;
    noise.mix_shared_secret(identity.key.private_key.serialize(), theirs)?;
    let chain = noise.encrypt(&identity.chain)?;
    answer(writer, ours, Some(known), chain).await?;
    let finish = read(reader).await?.client_finish.into_option().ok_or(Broken::Handshake("no finish"))?;
    let client = noise.decrypt(finish.r#static.as_deref().unwrap_or_default())?;
    let client: [u8; 32] = key(Some(&client))?;
    noise.mix_shared_secret(ours.private_key.serialize(), &client)?;
    let payload = noise.decrypt(finish.payload.as_deref().unwrap_or_default())?;
    secured(Pattern::Xx, noise, &payload)
}

/// The client writes with the first cipher, so the server reads with it.
fn secured(pattern: Pattern, noise: NoiseHandshake, payload: &[u8]) -> Result<Secured, Broken> {
    let (from_client, to_client) = noise.finish()?;
    let payload = ClientPayload::decode_from_slice(payload).map_err(|_| Broken::Handshake("no client payload"))?;
    Ok(Secured { pattern, to_client, from_client, payload })
}

async fn read(reader: &mut Reader) -> Result<HandshakeMessage, Broken> {
    let frame = reader.next().await?.ok_or(Broken::Handshake("the client left"))?;
    waproto::codec::handshake_message_decode(&frame).map_err(|_| Broken::Handshake("no handshake message"))
}

async fn answer(writer: &mut Writer, ours: &KeyPair, known: Option<Vec<u8>>, chain: Vec<u8>) -> Result<(), Broken> {
    let hello = ServerHello {
        ephemeral: Some(public(ours).to_vec()),
        r#static: known,
        payload: Some(chain),
        ..Default::default()
    };
    let message = HandshakeMessage { server_hello: MessageField::some(hello), ..Default::default() };
    writer.send(&waproto::codec::handshake_message_to_vec(&message)).await
}

fn key(bytes: Option<&[u8]>) -> Result<[u8; 32], Broken> {
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(Broken::Handshake("a key of another length"))
}

impl From<HandshakeError> for Broken {
    fn from(error: HandshakeError) -> Self {
        Self::Noise(format!("{error:?}"))
    }
}
