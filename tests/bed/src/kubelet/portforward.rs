//! What the API server asks a kubelet for when somebody forwards a port of a pod:
//! `/portForward/<namespace>/<pod>?port=…`, over a WebSocket with a channel for bytes and one for
//! an error (`v4.channel.k8s.io`), as kubelets serve it to clients that do not speak SPDY. One port
//! per connection.

use std::io;
use std::net::Ipv4Addr;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tenon_aws_double::request::Params;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PROTOCOL: &str = "v4.channel.k8s.io";
/// What the key is hashed with (RFC 6455).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes to and from the port.
const DATA: u8 = 0;
/// Why the port can't be used.
const ERROR: u8 = 1;
/// Opcodes of frames.
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// Agrees to forward a port of the pod at this address, and the forwarding itself.
pub(super) fn accept(
    mut request: Request<Incoming>,
    address: Ipv4Addr,
) -> Result<(Response<Full<Bytes>>, impl Future<Output = ()> + Send + use<>), &'static str> {
    let params = Params::of_query(request.uri().query().unwrap_or_default());
    let port = params.get("port").or_else(|| params.get("ports"));
    let port: u16 = port.and_then(|port| port.parse().ok()).ok_or("one port has to be named")?;
    let key = request.headers().get(SEC_WEBSOCKET_KEY).ok_or("only WebSockets are supported")?;
    let key = key.to_str().map_err(|_| "the key is no text")?;
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
    let accepted = HeaderValue::try_from(STANDARD.encode(hash.as_ref())).map_err(|_| "bad key")?;
    let upgrade = hyper::upgrade::on(&mut request);
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    let forwarding = async move {
        if let Ok(upgraded) = upgrade.await {
            // An error is one side that went away.
            drop(forward(upgraded, address, port).await);
        }
    };
    Ok((response, forwarding))
}

async fn forward(upgraded: Upgraded, address: Ipv4Addr, port: u16) -> io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(upgraded));
    let [low, high] = port.to_le_bytes();
    for channel in [DATA, ERROR] {
        to_client.write_all(&frame(BINARY, &[channel, low, high])).await?;
    }
    let stream = match TcpStream::connect((address, port)).await {
        Ok(stream) => stream,
        Err(error) => {
            let why = format!("failed to connect to {address}:{port} inside the pod: {error}");
            to_client.write_all(&frame(BINARY, &[&[ERROR], why.as_bytes()].concat())).await?;
            to_client.write_all(&frame(CLOSE, &[])).await?;
            return to_client.flush().await;
        }
    };
    let (mut from_pod, mut to_pod) = stream.into_split();
    let answers = async {
        let mut part = vec![DATA; 32 << 10];
        loop {
            to_client.flush().await?;
            let n = from_pod.read(&mut part[1..]).await?;
            if n == 0 {
                to_client.write_all(&frame(CLOSE, &[])).await?;
                return to_client.flush().await;
            }
            to_client.write_all(&frame(BINARY, &part[..=n])).await?;
        }
    };
    let questions = async {
        loop {
            let (opcode, payload) = read_frame(&mut from_client).await?;
            match (opcode, payload.split_first()) {
                (BINARY, Some((&DATA, bytes))) => to_pod.write_all(bytes).await?,
                (CLOSE, _) => return io::Result::Ok(()),
                _ => {}
            }
        }
    };
    tokio::select! {
        ended = answers => ended,
        ended = questions => ended,
    }
}

/// A message in one frame, not masked: a server's.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80 | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..126), _) => bytes.push(length),
        (_, Ok(length)) => {
            bytes.push(126);
            bytes.extend(length.to_be_bytes());
        }
        _ => {
            bytes.push(127);
            bytes.extend((payload.len() as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

/// The next frame of a client, which is masked: its opcode and its payload.
async fn read_frame(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let (head, second) = (from.read_u8().await?, from.read_u8().await?);
    let length = match second & 0x7f {
        126 => usize::from(from.read_u16().await?),
        127 => usize::try_from(from.read_u64().await?).map_err(io::Error::other)?,
        length => usize::from(length),
    };
    if second & 0x80 == 0 || length > 1 << 20 {
        return Err(io::Error::other("no frame of a client"));
    }
    let mut mask = [0; 4];
    from.read_exact(&mut mask).await?;
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await?;
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok((head & 0x0f, payload))
}
