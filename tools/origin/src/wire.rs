//! The socket below hyper: counts what the kernel took, and can end with a reset.
//!
//! Not here: when to reset; a fault says so through the connection's [`Link`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::link::Link;
use crate::stats::Counters;

/// One accepted connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    link: Rc<Link>,
    counters: Arc<Counters>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, link: Rc<Link>, counters: Arc<Counters>) -> Self {
        counters.count_connection(link.address_index);
        counters.connections_open.add(1);
        Self { stream, link, counters }
    }

    fn count(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = result {
            self.counters.bytes_sent.add(bytes as u64);
        }
        result
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.counters.connections_open.subtract(1);
        if self.link.reset.get() {
            // Closing with a linger time of 0 sends RST. Should the socket be gone already, the
            // peer knows it by other means.
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.count(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.link.reset.get() {
            // An orderly end first would hide the reset that follows.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
