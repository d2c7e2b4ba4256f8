//! A TCP connection that can be made to hang: open, and dead in both directions.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// What a connection is told.
#[derive(Debug, Default)]
pub(super) struct Gate {
    hung: AtomicBool,
    cut: CancellationToken,
}

impl Gate {
    /// No byte passes any more, and nobody is told; for good.
    pub(super) fn hang(&self) {
        self.hung.store(true, Ordering::Relaxed);
    }

    /// Closes the connection.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    /// Waits until the connection is to be closed.
    pub(super) async fn is_cut(&self) {
        self.cut.cancelled().await;
    }

    fn hangs(&self) -> bool {
        self.hung.load(Ordering::Relaxed)
    }
}

/// A connection behind its gate.
#[derive(Debug)]
pub(super) struct Gated {
    stream: TcpStream,
    gate: Arc<Gate>,
}

impl Gated {
    pub(super) const fn new(stream: TcpStream, gate: Arc<Gate>) -> Self {
        Self { stream, gate }
    }
}

// Nobody has to be woken by a gate that hangs: it never opens again. Whoever waits for the stream
// itself is woken in vain.
impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.gate.hangs() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.gate.hangs() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.gate.hangs() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.gate.hangs() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
