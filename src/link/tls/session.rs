//! One TLS session as a state machine over its connection's buffer.
//!
//! It performs no I/O. Its driver sends and receives as [`Need`] says, and reports back. The buffer
//! belongs to the driver (a slot while the kernel has it) and is passed to each call; its first
//! part holds bytes to send, the rest received bytes. Records are decrypted from there to where the
//! connection wants their plaintext, in one pass. The handshake, versions, certificates, keys and
//! tickets are rustls's (RFC 8446, RFC 5246); the records after the handshake are
//! [`super::traffic`]'s.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, PeerMisbehaved, ProtocolVersion,
    SupportedCipherSuite,
};

use super::explain::explain;
use super::record::Header;
use super::traffic::{Opened, Traffic, Unsealed};
use crate::error::{Error, ErrorKind};
use crate::limits::{TLS_OUT_BYTES, TLS_RECORD_BYTES_MAX};
use crate::link::failure::Failure;

/// Offset of the received part of a buffer.
const INBOUND: usize = TLS_OUT_BYTES as usize;

/// The socket operation that the session needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Send these bytes of the buffer.
    Send {
        /// First byte.
        at: u32,
        /// Number of bytes.
        length: u32,
    },
    /// Receive into the buffer.
    Receive {
        /// First byte.
        at: u32,
        /// Most bytes.
        length: u32,
    },
}

/// Why a session cannot go on.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// TLS failed; `lasting` if another try would fail alike.
    Tls {
        /// rustls's error.
        error: rustls::Error,
        /// The cause is a certificate or a configuration, so it lasts.
        lasting: bool,
    },
    /// The stream ended before the session was established.
    Ended,
    /// A message is longer than the buffer, or the peer requests more answers than it reads.
    TooLong,
}

impl Fault {
    /// The connection's failure for this fault.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Tls { lasting: true, .. } => Failure::TlsRefused,
            Self::Ended => Failure::TlsEnded,
            Self::Tls { .. } | Self::TooLong => Failure::TlsBroken,
        }
    }
}

/// The error for a `failure` of TLS with `host`, with TLS's own text if it left a `fault`.
#[must_use]
pub fn explain_failure(failure: Failure, fault: Option<&Fault>, host: &str) -> Error {
    match fault {
        Some(Fault::Tls { error, .. }) => explain(host, error),
        _ => Error::new(ErrorKind::Endpoint, failure.to_string()),
    }
}

impl From<rustls::Error> for Fault {
    fn from(error: rustls::Error) -> Self {
        use rustls::Error::{
            AlertReceived, InvalidCertificate, NoApplicationProtocol, NoCertificatesPresented,
            PeerIncompatible, UnsupportedNameType,
        };
        let lasting = match &error {
            // The effect of a flipped bit on a good certificate.
            InvalidCertificate(CertificateError::BadEncoding) => false,
            InvalidCertificate(_)
            | NoApplicationProtocol
            | NoCertificatesPresented
            | PeerIncompatible(_)
            | UnsupportedNameType => true,
            AlertReceived(alert) => matches!(
                alert,
                AlertDescription::AccessDenied
                    | AlertDescription::BadCertificate
                    | AlertDescription::CertificateRequired
                    | AlertDescription::HandshakeFailure
                    | AlertDescription::InappropriateFallback
                    | AlertDescription::InsufficientSecurity
                    | AlertDescription::NoApplicationProtocol
                    | AlertDescription::ProtocolVersion
                    | AlertDescription::UnknownCA
                    | AlertDescription::UnrecognisedName
            ),
            _ => false,
        };
        Self::Tls { error, lasting }
    }
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Bytes of plaintext; at least one.
    Bytes(usize),
    /// Nothing yet: see [`Session::need`].
    More,
    /// The peer has ended the stream, by close_notify or without.
    End,
}

/// The state of a session.
enum SessionStage {
    /// Requests are not possible yet.
    Handshake(Box<UnbufferedClientConnection>),
    /// Both sides have their keys.
    Open(Box<Traffic<KernelConnection<ClientConnectionData>>>),
    /// The session cannot be established.
    Failed,
}

/// The result of processing received records of a handshake.
enum HandshakeStep {
    /// More records are needed.
    Blocked,
    /// The handshake is done.
    Done,
}

/// The result of processing received records.
enum Received {
    /// Bytes of plaintext that were written to the reader.
    Written(usize),
    /// There is plaintext in `plain`.
    Held,
    /// More records are needed.
    Blocked,
    /// No more plaintext will come.
    End,
}

/// One session.
pub struct Session {
    stage: SessionStage,
    version: Option<ProtocolVersion>,
    /// Bytes of the buffer to send.
    unsent: Range<usize>,
    /// Bytes of the buffer that were received and not processed.
    received: Range<usize>,
    /// Bytes of them in records that the handshake has seen and still needs.
    seen: usize,
    /// Plaintext in the buffer for which the reader had no space: the rest of the record before
    /// `received`.
    plain: Range<usize>,
    /// Length of the buffer.
    length: usize,
    /// The socket's stream has ended.
    ended: bool,
}

impl fmt::Debug for Session {
    /// Shows no plaintext: it may hold an answer's head.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("version", &self.version)
            .field("unsent", &self.unsent)
            .field("received", &self.received)
            .field("plain", &self.plain)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A session with the server of this name, over buffers of `length` bytes.
    ///
    /// # Errors
    /// If a certificate cannot be for this name.
    ///
    /// # Panics
    /// If the buffer is too short for a record.
    pub fn new(config: Arc<ClientConfig>, name: &str, length: u32) -> Result<Self, Fault> {
        assert!(length >= TLS_OUT_BYTES + 2 * TLS_RECORD_BYTES_MAX, "room for records");
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Fault::from(rustls::Error::UnsupportedNameType))?;
        Ok(Self {
            stage: SessionStage::Handshake(Box::new(UnbufferedClientConnection::new(
                config, name,
            )?)),
            version: None,
            unsent: 0..0,
            received: INBOUND..INBOUND,
            seen: 0,
            plain: INBOUND..INBOUND,
            length: length as usize,
            ended: false,
        })
    }

    /// Records that bytes of the buffer were sent.
    pub fn sent(&mut self, count: u32) {
        self.unsent.start += count as usize;
        assert!(self.unsent.start <= self.unsent.end, "no more is sent than there was");
        if self.unsent.is_empty() {
            self.unsent = 0..0;
        }
    }

    /// Records that bytes were received into the buffer; 0 is the end of the stream.
    pub fn received(&mut self, count: u32) {
        self.ended |= count == 0;
        self.received.end += count as usize;
        assert!(self.received.end <= self.length, "no more is received than there was room for");
    }

    /// The socket operation that is needed next; sends come first.
    ///
    /// # Errors
    /// [`Fault::TooLong`] if no more fits into the buffer.
    pub fn need(&mut self, buffer: &mut [u8]) -> Result<Need, Fault> {
        let short = |bytes: usize| u32::try_from(bytes).expect("within a buffer");
        if !self.unsent.is_empty() {
            return Ok(Need::Send {
                at: short(self.unsent.start),
                length: short(self.unsent.len()),
            });
        }
        // Received and not processed.
        let start = if self.plain.is_empty() { self.received.start } else { self.plain.start };
        let room = self.length - self.received.end;
        if start == self.received.end || room < TLS_RECORD_BYTES_MAX as usize {
            // Moves part of a record to the front, so that the rest of it fits.
            buffer.copy_within(start..self.received.end, INBOUND);
            let moved = |at: usize| at.max(start) - start + INBOUND;
            self.plain = moved(self.plain.start)..moved(self.plain.end);
            self.received = moved(self.received.start)..moved(self.received.end);
        }
        match self.length - self.received.end {
            0 => Err(Fault::TooLong),
            room => Ok(Need::Receive { at: short(self.received.end), length: short(room) }),
        }
    }

    /// True if there is nothing left to send.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Received bytes that were not read yet, as ciphertext or plaintext: at most this much less
    /// than a body's rest will still come over the socket.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.received.len() + self.plain.len()
    }

    /// True if a read may return something: bytes or an end have come. Before that it needs no
    /// space for plaintext.
    #[must_use]
    pub fn has_input(&self) -> bool {
        let is_over = match &self.stage {
            SessionStage::Open(traffic) => traffic.is_over(),
            _ => true,
        };
        is_over || self.ended || self.held_bytes() > 0
    }

    /// The negotiated version, after the handshake.
    #[must_use]
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.version
    }

    /// Continues the handshake; true when requests can be written.
    ///
    /// # Errors
    /// Why the session cannot be established.
    pub fn handshake(&mut self, buffer: &mut [u8]) -> Result<bool, Fault> {
        match self.step(buffer)? {
            HandshakeStep::Done => self.open().map(|()| true),
            HandshakeStep::Blocked if self.ended => Err(Fault::Ended),
            HandshakeStep::Blocked => Ok(false),
        }
    }

    /// Processes received records of the handshake one by one: those after its last one are not
    /// rustls's.
    fn step(&mut self, buffer: &mut [u8]) -> Result<HandshakeStep, Fault> {
        let SessionStage::Handshake(connection) = &mut self.stage else { return Err(Fault::Ended) };
        let (out, received) = buffer.split_at_mut(INBOUND);
        let mut partial = false;
        loop {
            let all = within(&self.received);
            let end = if partial { all.end } else { all.start + self.seen };
            let UnbufferedStatus { discard, state } =
                connection.process_tls_records(&mut received[all.start..end]);
            self.received.start += discard;
            self.seen = self.seen.saturating_sub(discard);
            match state? {
                ConnectionState::EncodeTlsData(mut data) => {
                    self.unsent.end += encode(&mut data, &mut out[self.unsent.end..])?;
                }
                ConnectionState::TransmitTlsData(transmit) => transmit.done(),
                ConnectionState::WriteTraffic(_) => return Ok(HandshakeStep::Done),
                ConnectionState::PeerClosed | ConnectionState::Closed => return Err(Fault::Ended),
                _ if partial => return Ok(HandshakeStep::Blocked),
                _ => match Header::whole_record(&received[within(&self.received)][self.seen..]) {
                    Some(length) => self.seen += length,
                    // Its header is checked nevertheless: bytes that are not TLS would never
                    // complete a record.
                    None => partial = true,
                },
            }
        }
    }

    /// Takes the keys from the handshake.
    fn open(&mut self) -> Result<(), Fault> {
        let SessionStage::Handshake(connection) =
            std::mem::replace(&mut self.stage, SessionStage::Failed)
        else {
            return Err(Fault::Ended);
        };
        // Part of a message under the old keys (RFC 8446 section 5.1).
        if self.seen > 0 {
            return Err(rustls::Error::from(PeerMisbehaved::KeyEpochWithPendingFragment).into());
        }
        let (secrets, schedule) = connection.dangerous_into_kernel_connection()?;
        self.version = Some(schedule.protocol_version());
        let (is_tls13, common) = match schedule.negotiated_cipher_suite() {
            SupportedCipherSuite::Tls13(suite) => (true, &suite.common),
            SupportedCipherSuite::Tls12(suite) => (false, &suite.common),
        };
        let traffic = Traffic::new(is_tls13, secrets, common.confidentiality_limit, schedule)?;
        self.stage = SessionStage::Open(Box::new(traffic));
        Ok(())
    }

    /// Encrypts a request into the buffer; see [`Self::need`].
    ///
    /// # Errors
    /// If the session is over, or the request is too long for the buffer.
    pub fn write(&mut self, buffer: &mut [u8], bytes: &[u8]) -> Result<(), Fault> {
        // Tickets and key updates that came after the last answer.
        if self.plain.is_empty() && !matches!(self.find(buffer, &mut [])?, Received::Blocked) {
            // The peer has closed, or sends data unrequested: the session is of no further use.
            return Err(Fault::Ended);
        }
        let SessionStage::Open(traffic) = &mut self.stage else { return Err(Fault::Ended) };
        let sealed = traffic.seal(bytes, &mut buffer[self.unsent.end..INBOUND]);
        self.unsent.end += sealed.map_err(|unsealed| match unsealed {
            Unsealed::NoRoom => Fault::TooLong,
            Unsealed::Failed(error) => error.into(),
        })?;
        Ok(())
    }

    /// Reads plaintext, as much as has come and fits.
    ///
    /// # Errors
    /// The fault of a record: then no byte of it is returned.
    pub fn read(&mut self, buffer: &mut [u8], into: &mut [u8]) -> Result<Read, Fault> {
        let mut count = 0;
        let mut ended = false;
        while count < into.len() && !ended {
            count += self.take(buffer, &mut into[count..]);
            if count == into.len() {
                break;
            }
            match self.find(buffer, &mut into[count..]) {
                Ok(Received::Written(length)) => count += length,
                Ok(Received::Held) => {}
                Ok(Received::Blocked) if !self.ended => break,
                Ok(Received::Blocked | Received::End) => ended = true,
                Err(fault) if count == 0 => return Err(fault),
                // Earlier records are good; the next read returns the error.
                Err(_) => break,
            }
        }
        Ok(match count {
            0 if ended => Read::End,
            0 => Read::More,
            count => Read::Bytes(count),
        })
    }

    /// Copies the rest of a record.
    fn take(&mut self, buffer: &[u8], into: &mut [u8]) -> usize {
        let rest = &buffer[self.plain.clone()];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.plain.start += count;
        count
    }

    /// Processes received records until there is plaintext or nothing left to process; `plain` is
    /// empty.
    fn find(&mut self, buffer: &mut [u8], into: &mut [u8]) -> Result<Received, Fault> {
        let SessionStage::Open(traffic) = &mut self.stage else { return Err(Fault::Ended) };
        loop {
            let start = self.received.start;
            let used = match traffic.open(&mut buffer[self.received.clone()], into)? {
                Opened::Partial => return Ok(Received::Blocked),
                Opened::Closed => return Ok(Received::End),
                Opened::Other { used } => used,
                Opened::Written { used, length: 0 } => used,
                Opened::Written { used, length } => {
                    self.received.start += used;
                    return Ok(Received::Written(length));
                }
                Opened::Held { used, plain } => {
                    self.received.start += used;
                    self.plain = start + plain.start..start + plain.end;
                    if !plain.is_empty() {
                        return Ok(Received::Held);
                    }
                    continue;
                }
            };
            self.received.start += used;
        }
    }
}

/// Converts a range of the buffer to one of its received part.
fn within(received: &Range<usize>) -> Range<usize> {
    received.start - INBOUND..received.end - INBOUND
}

/// Writes TLS's own messages: flights of the handshake, answers to key updates.
fn encode<Data>(
    data: &mut rustls::unbuffered::EncodeTlsData<'_, Data>,
    out: &mut [u8],
) -> Result<usize, Fault> {
    data.encode(out).map_err(|error| match error {
        EncodeError::InsufficientSize(_) => Fault::TooLong,
        EncodeError::AlreadyEncoded => unreachable!("each is encoded once"),
    })
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
