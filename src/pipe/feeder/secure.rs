//! TLS under a line: ciphertext between its socket and its buffer, plaintext into its pipe.
//!
//! What is decrypted is in user memory, so it is written into the private pipe, as much at once as
//! one receive has brought; from there on it goes the way that spliced bytes go.

use super::Feeder;
use super::line::{Pending, Want};
use crate::conn::Event;
use crate::host::PipeHost;
use crate::http;
use crate::limits::TLS_PIECE_BYTES;
use crate::sys::{Errno, Ring};
use crate::tls::session::{Fault, Need, Read, Session};

/// How one exchange with a socket went.
enum Exchanged {
    /// Bytes moved.
    Moved,
    /// Not now: the ring waits for the socket.
    Waits,
    /// The connection failed, and knows it.
    Failed,
}

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// The socket is connected: a proxy must lead on first, where there is one.
    pub(super) fn tunnel_or_secure(&mut self, index: usize) {
        let line = &mut self.lines[index];
        let endpoint = line.endpoint.as_ref().expect("connected");
        let Some(request) = endpoint.tunnel_request() else {
            return self.secure_begin(index);
        };
        line.control[..request.len()].copy_from_slice(&request);
        line.conn.handle(Event::Tunnel { length: count_of(request.len()) });
    }

    /// The socket leads to the server: the session comes next.
    pub(super) fn secure_begin(&mut self, index: usize) {
        let line = &mut self.lines[index];
        line.cipher.resize(TLS_PIECE_BYTES as usize, 0);
        line.piece.resize(TLS_PIECE_BYTES as usize, 0);
        let endpoint = line.endpoint.clone().expect("connected");
        let config = self.tls.clone().expect("a run over TLS has its configuration");
        match Session::new(config, endpoint.server_name(), TLS_PIECE_BYTES) {
            Ok(session) => {
                line.session = Some(session);
                line.want = Want::Handshake;
            }
            Err(fault) => self.secure_failed(index, fault),
        }
    }

    fn secure_failed(&mut self, index: usize, fault: Fault) {
        let failure = fault.failure();
        let line = &mut self.lines[index];
        line.want = Want::Nothing;
        line.fault = Some(fault);
        line.conn.handle(Event::Fault(failure));
    }

    /// Sends or receives what the session needs, once.
    fn exchange(&mut self, index: usize) -> Exchanged {
        let line = &mut self.lines[index];
        let session = line.session.as_mut().expect("it has a session");
        let socket = line.socket.as_ref().expect("connected");
        let need = match session.need(&mut line.cipher) {
            Ok(need) => need,
            Err(fault) => {
                self.secure_failed(index, fault);
                return Exchanged::Failed;
            }
        };
        let (outcome, pending) = match need {
            Need::Send { at, length } => {
                let bytes = &line.cipher[at as usize..(at + length) as usize];
                (self.host.send(socket, bytes), Pending::Writable)
            }
            Need::Receive { at, length } => {
                let into = &mut line.cipher[at as usize..(at + length) as usize];
                (self.host.receive(socket, into, false), Pending::Readable)
            }
        };
        match (outcome, pending) {
            (Ok(count), Pending::Writable) => session.sent(count_of(count)),
            (Ok(count), _) => session.received(count_of(count)),
            (Err(errno), pending) if errno.is_transient() => {
                return if self.wait_for(index, pending) {
                    Exchanged::Failed
                } else {
                    Exchanged::Waits
                };
            }
            (Err(errno), _) => {
                line.want = Want::Nothing;
                line.conn.handle(Event::Failed(errno));
                return Exchanged::Failed;
            }
        }
        Exchanged::Moved
    }

    /// Goes on with the handshake; like all of these true when the connection was told something.
    pub(super) fn secure_handshake(&mut self, index: usize) -> bool {
        loop {
            let line = &mut self.lines[index];
            let session = line.session.as_mut().expect("it has a session");
            match session.handshake(&mut line.cipher) {
                Ok(true) => {
                    line.want = Want::Nothing;
                    line.conn.handle(Event::Connected);
                    return true;
                }
                Ok(false) => {}
                Err(fault) => {
                    self.secure_failed(index, fault);
                    return true;
                }
            }
            match self.exchange(index) {
                Exchanged::Moved => {}
                Exchanged::Waits => return false,
                Exchanged::Failed => return true,
            }
        }
    }

    /// Encrypts a request; [`Self::secure_flush`] sends it.
    pub(super) fn secure_send(&mut self, index: usize, at: u32, length: u32) -> bool {
        let line = &mut self.lines[index];
        let session = line.session.as_mut().expect("it has a session");
        let bytes = &line.control[at as usize..(at + length) as usize];
        match session.write(&mut line.cipher, bytes) {
            Ok(()) => line.want = Want::Flush { length },
            Err(Fault::Ended) => {
                line.want = Want::Nothing;
                line.conn.handle(Event::Failed(Errno::RESET));
            }
            Err(fault) => self.secure_failed(index, fault),
        }
        true
    }

    /// Sends what is encrypted.
    pub(super) fn secure_flush(&mut self, index: usize, length: u32) -> bool {
        loop {
            let line = &mut self.lines[index];
            if line.session.as_ref().is_some_and(Session::is_flushed) {
                line.want = Want::Nothing;
                line.conn.handle(Event::Sent(length));
                return true;
            }
            match self.exchange(index) {
                Exchanged::Moved => {}
                Exchanged::Waits => return false,
                Exchanged::Failed => return true,
            }
        }
    }

    /// Receives head bytes and not one byte beyond the head: the body goes another way.
    pub(super) fn secure_head(&mut self, index: usize, at: u32, length: u32) -> bool {
        loop {
            let line = &mut self.lines[index];
            let session = line.session.as_mut().expect("it has a session");
            match session.peek(&mut line.cipher) {
                Ok(Some(plain)) => {
                    let (start, seen) = (at as usize, plain.len().min(length as usize));
                    line.control[start..start + seen].copy_from_slice(&plain[..seen]);
                    let take = match http::parse(&line.control[..start + seen]) {
                        Ok(Some(head)) if line.conn.awaits_head() => head.length as usize - start,
                        _ => seen,
                    };
                    session.consume(take);
                    line.want = Want::Nothing;
                    line.conn.handle(Event::Received(count_of(take), &line.control));
                    return true;
                }
                Ok(None) => {}
                Err(fault) => {
                    self.secure_failed(index, fault);
                    return true;
                }
            }
            match self.exchange(index) {
                Exchanged::Moved => {}
                Exchanged::Waits => return false,
                Exchanged::Failed => return true,
            }
        }
    }

    /// Writes decrypted body bytes into the line's own pipe; true when some were written or the
    /// connection failed.
    pub(super) fn secure_body(&mut self, index: usize) -> bool {
        let Some(target) = self.own_pipe(index) else { return false };
        loop {
            let line = &mut self.lines[index];
            if !line.unwritten.is_empty() {
                match self.host.write(&target, &line.piece[line.unwritten.clone()]) {
                    Ok(count) => {
                        line.unwritten.start += count;
                        line.in_pipe += count as u64;
                        line.conn.handle(Event::Moved(count as u64));
                    }
                    Err(errno) if errno.is_transient() && line.in_pipe > 0 => {
                        line.full = true;
                        return false;
                    }
                    Err(errno) => line.conn.handle(Event::Failed(errno)),
                }
                return true;
            }
            let left = usize::try_from(line.conn.body_left()).unwrap_or(usize::MAX);
            let room = left.min(line.piece.len());
            let session = line.session.as_mut().expect("it has a session");
            // What one receive has brought, and no more: the next may end the connection, and what
            // came before that has come.
            match session.read(&mut line.cipher, &mut line.piece[..room]) {
                Ok(Read::Bytes(count)) => {
                    line.unwritten = 0..count;
                    continue;
                }
                Ok(Read::End) => {
                    line.conn.handle(Event::Moved(0));
                    return true;
                }
                Ok(Read::More) => {}
                Err(fault) => {
                    self.secure_failed(index, fault);
                    return true;
                }
            }
            match self.exchange(index) {
                Exchanged::Moved => {}
                Exchanged::Waits => return false,
                Exchanged::Failed => return true,
            }
        }
    }
}

fn count_of(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("at most a buffer")
}
