//! TLS between the socket and hyper: a session driven by hand, so that its faults can be sent.
//!
//! Plain connections never come here. Not here: when a fault is due; [`Link`] says so.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::server::{ServerConfig, ServerConnection};
use rustls::{HandshakeKind, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::fault::Fault;
use crate::link::{Act, Link};
use crate::stats::Counters;
use crate::wire::Wire;

/// Plaintext that is sealed before the first of it is sent: still in the cache then.
const SEALED_AT_ONCE_BYTES: usize = 128 << 10;
/// What a client sends is short: a ClientHello, a request.
const RECEIVE_BYTES: usize = 16 << 10;
/// Offset of what is sealed in a record.
const RECORD_HEAD_BYTES: usize = 5;
/// A record that cannot be opened. Fed to our own session as if the client had sent it, it makes
/// the session send a fatal alert: rustls has no other way to ask for one.
const FOREIGN_RECORD: [u8; 37] = {
    let mut record = [0x5a; 37];
    [record[0], record[1], record[2], record[3], record[4]] = [23, 3, 3, 0, 32];
    record
};
/// What a server without TLS says to a ClientHello.
const PLAINTEXT_ANSWER: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// One connection with TLS.
#[derive(Debug)]
pub(crate) struct Tunnel {
    wire: Wire,
    session: ServerConnection,
    link: Rc<Link>,
    counters: Arc<Counters>,
    /// Records on their way to the socket, and how many bytes of them are there.
    sealed: Vec<u8>,
    sent: usize,
}

impl Tunnel {
    pub(crate) fn new(
        config: &Arc<ServerConfig>,
        wire: Wire,
        link: Rc<Link>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let mut session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        // What is written is bounded by who writes: by us.
        session.set_buffer_limit(None);
        let sealed = Vec::with_capacity(2 * SEALED_AT_ONCE_BYTES);
        Ok(Self { wire, session, link, counters, sealed, sent: 0 })
    }

    /// Speaks until requests can come. A client that breaks it off is counted.
    pub(crate) async fn shake_hands(&mut self) -> io::Result<()> {
        let shaken = poll_fn(|context| self.poll_handshake(context)).await;
        if shaken.is_err() {
            self.counters.tls_failed.add(1);
            // An alert gives the client the reason.
            let _ = poll_fn(|context| self.poll_drain(context)).await;
            return shaken;
        }
        let version = self.session.protocol_version();
        self.link.secured.set(true);
        self.link.renewable.set(version == Some(ProtocolVersion::TLSv1_3));
        let suite = self.session.negotiated_cipher_suite();
        if let Some((version, suite)) = version.zip(suite) {
            let resumed = self.session.handshake_kind() == Some(HandshakeKind::Resumed);
            let version = version.as_str().unwrap_or("unknown");
            let suite = suite.suite();
            self.counters.count_handshake(version, suite.as_str().unwrap_or("unknown"), resumed);
        }
        Ok(())
    }

    /// Carries out a fault that comes instead of the handshake, when the client has begun it.
    pub(crate) async fn refuse(mut self, fault: Fault) {
        let mut hello = vec![0; RECEIVE_BYTES];
        let mut buffer = ReadBuf::new(&mut hello);
        let read = poll_fn(|context| Pin::new(&mut self.wire).poll_read(context, &mut buffer));
        if read.await.is_err() {
            return;
        }
        match fault {
            Fault::TlsHandshakeCut { reset } => self.link.reset.set(reset),
            _ => {
                self.sealed.extend_from_slice(PLAINTEXT_ANSWER);
                let _ = poll_fn(|context| self.poll_drain(context)).await;
            }
        }
        self.leave().await;
    }

    /// Ends the connection, as a fault would have it or in good order.
    pub(crate) async fn end(mut self) {
        match self.link.act.take() {
            Some(Act::Cut) => {
                let _ = poll_fn(|context| self.poll_drain(context)).await;
                self.leave().await;
            }
            Some(Act::Alert) => {
                // It is an error on purpose, and leaves an alert to be sent.
                let _ = self.open(&FOREIGN_RECORD);
                let _ = poll_fn(|context| self.poll_drain(context)).await;
                self.leave().await;
            }
            Some(Act::CloseNotify) => {
                self.session.send_close_notify();
                let _ = poll_fn(|context| self.poll_drain(context)).await;
                // Until the client goes: who waits for the end of the connection waits for ever.
                while self.receive().await {}
            }
            _ => {
                let _ = poll_fn(|context| Pin::new(&mut self).poll_shutdown(context)).await;
            }
        }
    }

    /// Closes the socket's sending side; how the client takes it is its affair.
    async fn leave(mut self) {
        let _ = poll_fn(|context| Pin::new(&mut self.wire).poll_shutdown(context)).await;
    }

    /// Takes what the client sends and forgets it; `false` at its end.
    async fn receive(&mut self) -> bool {
        let mut bytes = [0; 512];
        let mut buffer = ReadBuf::new(&mut bytes);
        let read = poll_fn(|context| Pin::new(&mut self.wire).poll_read(context, &mut buffer));
        read.await.is_ok() && !buffer.filled().is_empty()
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_drain(context))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if !ready!(self.poll_receive(context))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Hands the client's next bytes to the session; `false` at their end.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut bytes = [0; RECEIVE_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.wire).poll_read(context, &mut buffer))?;
        let received = buffer.filled();
        if !received.is_empty() {
            self.open(received)?;
        }
        Poll::Ready(Ok(!received.is_empty()))
    }

    /// Opens records; what the session has to say to them is left to be sent.
    fn open(&mut self, mut records: &[u8]) -> io::Result<()> {
        while !records.is_empty() {
            self.session.read_tls(&mut records)?;
            self.session
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        Ok(())
    }

    /// Sends all records.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.sent < self.sealed.len() {
                let rest = &self.sealed[self.sent..];
                let count = ready!(Pin::new(&mut self.wire).poll_write(context, rest))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.sent += count;
            }
            self.sealed.clear();
            self.sent = 0;
            if !self.session.wants_write() {
                return Poll::Ready(Ok(()));
            }
            self.take_records()?;
        }
    }

    fn take_records(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.sealed)?;
        }
        Ok(())
    }

    /// Seals as much as goes at once; nothing may wait to be sent.
    fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let act = self.link.act.get().filter(|act| !act.is_end());
        if act.is_some() {
            self.link.act.set(None);
        }
        if act == Some(Act::KeyUpdate) {
            self.session.refresh_traffic_keys().map_err(io::Error::other)?;
            self.take_records()?;
        }
        let begin = self.sealed.len();
        let mut taken = 0;
        for piece in pieces {
            let piece = &piece[..piece.len().min(SEALED_AT_ONCE_BYTES - taken)];
            let record_bytes = self.link.record_bytes.get().unwrap_or(SEALED_AT_ONCE_BYTES);
            // Each call begins a record.
            for part in piece.chunks(record_bytes) {
                self.session.writer().write_all(part)?;
            }
            taken += piece.len();
        }
        self.take_records()?;
        if act == Some(Act::Garbage)
            && let Some(byte) = self.sealed.get_mut(begin + RECORD_HEAD_BYTES)
        {
            *byte ^= 0xff;
        }
        Ok(taken)
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.session.reader().read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let received = self.poll_receive(context);
            // An answer to new keys, or an alert; what has to wait wakes this task again.
            let _ = self.poll_drain(context)?;
            if !ready!(received)? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(context))?;
        let taken = self.seal(pieces)?;
        // What does not go now goes before the next: the pieces are taken either way.
        let _ = self.poll_drain(context)?;
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.wire).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.link.reset.get() {
            // Said once, however often it is asked for.
            self.session.send_close_notify();
            ready!(self.poll_drain(context))?;
        }
        Pin::new(&mut self.wire).poll_shutdown(context)
    }
}
