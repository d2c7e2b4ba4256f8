//! Forwards a port of a pod over a WebSocket of the API server (`v4.channel.k8s.io`): a channel for
//! bytes, and one for why the port can't be used. Only what this takes: binary messages, pings, and
//! the end.
//!
//! The Kubernetes client can do it with a WebSocket crate that nothing else here needs; the frames
//! are a page.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex, split,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

const PROTOCOL: &str = "v4.channel.k8s.io";
/// What the key is hashed with (RFC 6455).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Longer frames are none of a kubelet's.
const LONGEST: u64 = 16 << 20;
/// Bytes that are sent in one message.
const PART: usize = 16 << 10;
/// The channel of the port's bytes.
const DATA: u8 = 0;
/// The channel that says why the port can't be used.
const ERROR: u8 = 1;

const CONTINUED: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A port that is forwarded, for as long as this lives.
pub(super) struct Forwarded {
    /// The port's bytes.
    pub(super) stream: DuplexStream,
    /// Told why it can't be used.
    pub(super) failure: oneshot::Receiver<String>,
    /// What moves the bytes.
    pub(super) pump: JoinSet<()>,
}

/// Forwards a port of a pod.
pub(super) async fn forward(
    client: &Client,
    namespace: &str,
    pod: &str,
    port: u16,
) -> Result<Forwarded, kube::Error> {
    let key = STANDARD.encode([random().to_le_bytes(), random().to_le_bytes()].concat());
    let request =
        Request::get(format!("/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}"))
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
            .body(Body::empty())
            .map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(response.status(), response.into_body()).await);
    }
    let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
    if accepted.map(HeaderValue::as_bytes) != Some(accept(&key).as_bytes()) {
        let why = "the WebSocket handshake failed: a proxy has answered";
        return Err(kube::Error::Service(why.into()));
    }
    let upgraded = hyper::upgrade::on(response).await;
    let upgraded = upgraded.map_err(|error| kube::Error::Service(error.into()))?;
    let (stream, near) = duplex(2 * PART);
    let (said, failure) = oneshot::channel();
    let mut pump = JoinSet::new();
    pump.spawn(async move {
        // An error is one side that went away: whoever reads the stream sees its end.
        let _ = carry(TokioIo::new(upgraded), near, port, said).await;
    });
    Ok(Forwarded { stream, failure, pump })
}

/// Why the API server does not forward a port.
async fn refusal(status: StatusCode, body: Body) -> kube::Error {
    let body = Limited::new(body, PART).collect().await.map(http_body_util::Collected::to_bytes);
    let read = body.ok().and_then(|body| serde_json::from_slice::<Status>(&body).ok());
    let read = read.unwrap_or_else(|| {
        Status::failure(&format!("the API server answers {status}"), "Unknown")
            .with_code(status.as_u16())
    });
    kube::Error::Api(read.boxed())
}

/// What the server has to answer to a key.
fn accept(key: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
    STANDARD.encode(hash.as_ref())
}

/// A number that cannot be foreseen: the standard library's seeds are.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Moves bytes between the stream and the WebSocket until one of them ends.
async fn carry(
    socket: impl AsyncRead + AsyncWrite,
    near: DuplexStream,
    port: u16,
    said: oneshot::Sender<String>,
) -> io::Result<()> {
    let (mut from, mut to) = split(socket);
    let (mut read, mut write) = split(near);
    let (pong, mut pongs) = mpsc::channel::<Vec<u8>>(4);
    let outgoing = async {
        let mut part = vec![DATA; PART + 1];
        loop {
            tokio::select! {
                n = read.read(&mut part[1..]) => match n? {
                    0 => {
                        to.write_all(&frame(CLOSE, &[])).await?;
                        return to.flush().await;
                    }
                    n => to.write_all(&frame(BINARY, &part[..=n])).await?,
                },
                Some(payload) = pongs.recv() => to.write_all(&frame(PONG, &payload)).await?,
            }
            to.flush().await?;
        }
    };
    let incoming = async {
        let mut said = Some(said);
        // The first message of a channel has the port.
        let mut known = [false; 2];
        let mut channel = DATA;
        loop {
            let (opcode, payload) = read_frame(&mut from).await?;
            let bytes = match opcode {
                BINARY => {
                    let Some((first, rest)) = payload.split_first() else { continue };
                    channel = *first;
                    rest
                }
                CONTINUED => &payload[..],
                PING => {
                    // Who is not listening does not miss it.
                    let _ = pong.try_send(payload);
                    continue;
                }
                CLOSE => return Ok(()),
                _ => continue,
            };
            let Some(known) = known.get_mut(usize::from(channel)) else { continue };
            if !std::mem::replace(known, true) {
                if bytes != port.to_le_bytes() {
                    return Err(io::Error::other("another port is forwarded"));
                }
            } else if channel == DATA {
                write.write_all(bytes).await?;
            } else if channel == ERROR
                && let Some(said) = said.take()
            {
                // Nobody may be interested any more.
                let _ = said.send(String::from_utf8_lossy(bytes).into_owned());
            }
        }
    };
    tokio::select! {
        ended = outgoing => ended,
        ended = incoming => ended,
    }
}

/// A message in one frame, masked as a client has to.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = random().to_le_bytes();
    let mask = [mask[0], mask[1], mask[2], mask[3]];
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | u8::try_from(length).unwrap_or_default()),
        length => match u16::try_from(length) {
            Ok(length) => {
                bytes.push(0x80 | 0x7e);
                bytes.extend(length.to_be_bytes());
            }
            Err(_) => {
                bytes.push(0x80 | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        },
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The next frame: its opcode and its payload.
async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let head = from.read_u8().await?;
    let second = from.read_u8().await?;
    let length = match second & 0x7f {
        126 => u64::from(from.read_u16().await?),
        127 => from.read_u64().await?,
        length => u64::from(length),
    };
    if second & 0x80 != 0 || length > LONGEST {
        return Err(io::Error::other("no frame of a server"));
    }
    let mut payload = vec![0; usize::try_from(length).unwrap_or_default()];
    from.read_exact(&mut payload).await?;
    Ok((head & 0x0f, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accepted_key_is_that_of_the_standard() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    /// A server's frame, which is not masked.
    fn served(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x80 | opcode];
        match u8::try_from(payload.len()).ok().filter(|length| *length < 126) {
            Some(length) => bytes.push(length),
            None => {
                bytes.push(126);
                bytes.extend(u16::try_from(payload.len()).expect("a short one").to_be_bytes());
            }
        }
        bytes.extend(payload);
        bytes
    }

    /// A client's frame: opcode and payload.
    async fn sent(from: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
        let head = from.read_u8().await.expect("a frame");
        let second = from.read_u8().await.expect("a length");
        assert_eq!(second & 0x80, 0x80, "a client masks");
        let length = match second & 0x7f {
            126 => usize::from(from.read_u16().await.expect("a length")),
            127 => usize::try_from(from.read_u64().await.expect("a length")).expect("a length"),
            length => usize::from(length),
        };
        let mut mask = [0; 4];
        from.read_exact(&mut mask).await.expect("a mask");
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await.expect("a payload");
        let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        (head & 0x0f, payload.collect())
    }

    /// A connection whose server has named its port on both channels.
    struct Forwarded {
        server: DuplexStream,
        stream: DuplexStream,
        failure: oneshot::Receiver<String>,
        pump: JoinSet<io::Result<()>>,
    }

    async fn forwarded() -> Forwarded {
        let (socket, mut server) = duplex(1 << 20);
        let (stream, near) = duplex(2 * PART);
        let (said, failure) = oneshot::channel();
        let mut pump = JoinSet::new();
        pump.spawn(async move { carry(socket, near, 8085, said).await });
        let port = 8085_u16.to_le_bytes();
        for channel in [DATA, ERROR] {
            server
                .write_all(&served(BINARY, &[&[channel], &port[..]].concat()))
                .await
                .expect("sent");
        }
        Forwarded { server, stream, failure, pump }
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_pings_are_answered() {
        let Forwarded { mut server, mut stream, failure: _failure, mut pump } = forwarded().await;
        server.write_all(&served(PING, b"x")).await.expect("sent");
        assert_eq!(sent(&mut server).await, (PONG, b"x".to_vec()));
        let long = vec![7; 300];
        server.write_all(&served(BINARY, &[&[DATA], &long[..]].concat())).await.expect("sent");
        let mut read = vec![0; 300];
        stream.read_exact(&mut read).await.expect("it came");
        assert_eq!(read, long);
        stream.write_all(&[9; 1000]).await.expect("taken");
        assert_eq!(sent(&mut server).await, (BINARY, [&[DATA][..], &[9; 1000]].concat()));
        drop(stream);
        assert_eq!(sent(&mut server).await.0, CLOSE);
        pump.join_next().await.expect("it ends").expect("no panic").expect("no error");
    }

    #[tokio::test]
    async fn a_port_that_can_not_be_used_says_why() {
        let Forwarded { mut server, mut stream, failure, pump: _pump } = forwarded().await;
        let why = [&[ERROR], &b"connection refused"[..]].concat();
        server.write_all(&served(BINARY, &why)).await.expect("sent");
        server.write_all(&served(CLOSE, &[])).await.expect("sent");
        assert_eq!(failure.await.as_deref(), Ok("connection refused"));
        assert_eq!(stream.read(&mut [0; 1]).await.expect("its end"), 0);
    }
}
