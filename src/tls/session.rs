//! One TLS session as a state machine over its connection's buffer.
//!
//! It performs no I/O. Whoever drives it sends and receives what [`Need`] says, and reports back.
//! The buffer belongs to the driver (a slot while the kernel has it) and is given to each call; its
//! first part holds what is to be sent, the rest what has been received. Records are decrypted
//! where they lie and their plaintext is copied to where the connection wants it. Cryptography,
//! versions, tickets, key updates and alerts are rustls's (RFC 8446, RFC 5246).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{AlertDescription, CertificateError, ClientConfig, ProtocolVersion};

use super::explain::explain;
use crate::error::{Error, ErrorKind};
use crate::failure::Failure;
use crate::limits::{TLS_OUT_BYTES, TLS_RECORD_BYTES_MAX};

/// Where the received part of a buffer begins.
const INBOUND: usize = TLS_OUT_BYTES as usize;

/// What the socket must do before the session can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Send these bytes of the buffer.
    Send {
        /// First byte.
        at: u32,
        /// How many.
        length: u32,
    },
    /// Receive into the buffer.
    Receive {
        /// First byte.
        at: u32,
        /// How many at most.
        length: u32,
    },
}

/// Why a session cannot go on.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// TLS failed; `lasting` when another try would fail the same way.
    Tls {
        /// What rustls says.
        error: rustls::Error,
        /// A certificate or a configuration stands in the way, not a moment.
        lasting: bool,
    },
    /// The stream ended before the session was there.
    Ended,
    /// A message is longer than the buffer, or the peer asks for more answers than it takes.
    TooLong,
}

impl Fault {
    /// The failure that this is to a connection.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Tls { lasting: true, .. } => Failure::TlsRefused,
            Self::Ended => Failure::TlsEnded,
            Self::Tls { .. } | Self::TooLong => Failure::TlsBroken,
        }
    }
}

/// The error for a `failure` of TLS with `host`, in TLS's own words where it left a `fault`.
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
            // What a wrong bit on the way does to a good certificate.
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

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes of plaintext; at least one.
    Bytes(usize),
    /// Nothing yet: see [`Session::need`].
    More,
    /// The peer has ended the stream, by close_notify or without.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    Open,
    /// No more plaintext will come.
    Ended,
}

/// How far a look at the received records came.
enum Step {
    /// So many bytes of plaintext went to the reader; there may be more in `plain`.
    Plain(usize),
    /// More records are needed.
    Blocked,
    /// The handshake is done and all records are used.
    Writable,
    /// The peer has closed (close_notify).
    Closed,
}

/// One session.
pub struct Session {
    connection: Box<UnbufferedClientConnection>,
    stage: Stage,
    /// Bytes of the buffer that are to be sent.
    unsent: Range<usize>,
    /// Bytes of the buffer that were received and not used yet.
    received: Range<usize>,
    /// Length of the buffer.
    length: usize,
    /// What a reader had no room for: the rest of one record.
    plain: Vec<u8>,
    taken: usize,
    /// The socket's stream is over.
    ended: bool,
    /// What is wrong with the records behind those that were read.
    fault: Option<Fault>,
}

impl fmt::Debug for Session {
    /// No plaintext: it may hold an answer's head.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("stage", &self.stage)
            .field("unsent", &self.unsent)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A session with the server of this name, over buffers of `length` bytes.
    ///
    /// # Errors
    /// When the name is none that a certificate can be for.
    ///
    /// # Panics
    /// When the buffer is too short for a record.
    pub fn new(config: Arc<ClientConfig>, name: &str, length: u32) -> Result<Self, Fault> {
        assert!(length >= TLS_OUT_BYTES + 2 * TLS_RECORD_BYTES_MAX, "room for records");
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Fault::from(rustls::Error::UnsupportedNameType))?;
        Ok(Self {
            connection: Box::new(UnbufferedClientConnection::new(config, name)?),
            stage: Stage::Handshake,
            unsent: 0..0,
            received: INBOUND..INBOUND,
            length: length as usize,
            plain: Vec::new(),
            taken: 0,
            ended: false,
            fault: None,
        })
    }

    /// Bytes that were sent from the buffer.
    pub fn sent(&mut self, count: u32) {
        self.unsent.start += count as usize;
        assert!(self.unsent.start <= self.unsent.end, "no more is sent than there was");
        if self.unsent.is_empty() {
            self.unsent = 0..0;
        }
    }

    /// Bytes that were received into the buffer; 0 is the end of the stream.
    pub fn received(&mut self, count: u32) {
        self.ended |= count == 0;
        self.received.end += count as usize;
        assert!(self.received.end <= self.length, "no more is received than there was room for");
    }

    /// What the socket must do next: what is to be sent goes first.
    ///
    /// # Errors
    /// [`Fault::TooLong`] when no more fits into the buffer.
    pub fn need(&mut self, buffer: &mut [u8]) -> Result<Need, Fault> {
        let short = |bytes: usize| u32::try_from(bytes).expect("within a buffer");
        if !self.unsent.is_empty() {
            return Ok(Need::Send {
                at: short(self.unsent.start),
                length: short(self.unsent.len()),
            });
        }
        if self.received.is_empty() {
            self.received = INBOUND..INBOUND;
        } else if self.length - self.received.end < TLS_RECORD_BYTES_MAX as usize {
            // Part of a record: to the front, so that the rest of it fits behind.
            buffer.copy_within(self.received.clone(), INBOUND);
            self.received = INBOUND..INBOUND + self.received.len();
        }
        match self.length - self.received.end {
            0 => Err(Fault::TooLong),
            room => Ok(Need::Receive { at: short(self.received.end), length: short(room) }),
        }
    }

    /// True when nothing of what was to be sent is left.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Bytes that came over the socket and were not read yet, as plaintext or before that: at most
    /// so much less than a body's rest will still come.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.received.len() + self.plain.len() - self.taken
    }

    /// The version that was agreed upon.
    #[must_use]
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.connection.protocol_version()
    }

    /// Goes on with the handshake; true when requests can be written.
    ///
    /// # Errors
    /// Why there will be no session.
    pub fn handshake(&mut self, buffer: &mut [u8]) -> Result<bool, Fault> {
        loop {
            match self.step(buffer, &mut [])? {
                // It speaks before it is asked; the answer to the first request is not that.
                Step::Plain(_) => {}
                Step::Writable => {
                    self.stage = Stage::Open;
                    return Ok(true);
                }
                Step::Blocked if self.ended => return Err(Fault::Ended),
                Step::Blocked => return Ok(false),
                Step::Closed => return Err(Fault::Ended),
            }
        }
    }

    /// Encrypts a request into the buffer; see [`Self::need`].
    ///
    /// # Errors
    /// When the session is over, or the request too long for the buffer.
    pub fn write(&mut self, buffer: &mut [u8], bytes: &[u8]) -> Result<(), Fault> {
        loop {
            let (out, received) = buffer.split_at_mut(INBOUND);
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut received[within(&self.received)]);
            self.received.start += discard;
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let room = &mut out[self.unsent.end..];
                    let written = traffic.encrypt(bytes, room).map_err(|error| match error {
                        EncryptError::InsufficientSize(_) => Fault::TooLong,
                        EncryptError::EncryptExhausted => rustls::Error::EncryptError.into(),
                    })?;
                    self.unsent.end += written;
                    return Ok(());
                }
                // Tickets and key updates that came after the last answer.
                ConnectionState::EncodeTlsData(mut data) => {
                    self.unsent.end += encode(&mut data, &mut out[self.unsent.end..])?;
                }
                ConnectionState::TransmitTlsData(transmit) => transmit.done(),
                // It has closed, or speaks without being asked: nothing more is to be had here.
                _ => return Err(Fault::Ended),
            }
        }
    }

    /// Reads plaintext, as much as has come and fits.
    ///
    /// # Errors
    /// What TLS finds wrong with the records: then no byte of the wrong one is given out.
    pub fn read(&mut self, buffer: &mut [u8], into: &mut [u8]) -> Result<Read, Fault> {
        let mut count = self.take(into);
        if let Some(fault) = self.fault.take_if(|_| count == 0) {
            return Err(fault);
        }
        while count < into.len() && self.stage == Stage::Open && self.fault.is_none() {
            match self.step(buffer, &mut into[count..]) {
                Ok(Step::Plain(copied)) => count += copied,
                Ok(Step::Writable | Step::Blocked) if !self.ended => break,
                Ok(Step::Writable | Step::Blocked | Step::Closed) => self.stage = Stage::Ended,
                Err(fault) if count == 0 => return Err(fault),
                // What came before it is good; the next read tells.
                Err(fault) => {
                    self.fault = Some(fault);
                    break;
                }
            }
        }
        Ok(match count {
            0 if self.stage == Stage::Ended => Read::End,
            0 => Read::More,
            count => Read::Bytes(count),
        })
    }

    /// Plaintext that has come and was not read, a record's at most; what of it was used is told by
    /// [`Self::consume`].
    ///
    /// # Errors
    /// See [`Self::read`].
    pub fn peek(&mut self, buffer: &mut [u8]) -> Result<Option<&[u8]>, Fault> {
        while self.taken == self.plain.len() && self.stage == Stage::Open {
            match self.step(buffer, &mut [])? {
                Step::Plain(_) => {}
                Step::Writable | Step::Blocked if !self.ended => break,
                Step::Writable | Step::Blocked | Step::Closed => self.stage = Stage::Ended,
            }
        }
        let plain = &self.plain[self.taken..];
        Ok((!plain.is_empty() || self.stage == Stage::Ended).then_some(plain))
    }

    /// Bytes of [`Self::peek`] that were used.
    pub fn consume(&mut self, count: usize) {
        self.taken += count;
        assert!(self.taken <= self.plain.len(), "no more is used than there was");
    }

    /// Copies what is left of a record.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let rest = &self.plain[self.taken..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        count
    }

    /// Uses received records until there is plaintext or nothing more to do.
    fn step(&mut self, buffer: &mut [u8], into: &mut [u8]) -> Result<Step, Fault> {
        let (out, received) = buffer.split_at_mut(INBOUND);
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut received[within(&self.received)]);
            self.received.start += discard;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    let mut count = 0;
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        self.received.start += record.discard;
                        let fits = record.payload.len().min(into.len() - count);
                        into[count..count + fits].copy_from_slice(&record.payload[..fits]);
                        count += fits;
                        if self.taken == self.plain.len() {
                            self.plain.clear();
                            self.taken = 0;
                        }
                        self.plain.extend_from_slice(&record.payload[fits..]);
                    }
                    return Ok(Step::Plain(count));
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    self.unsent.end += encode(&mut data, &mut out[self.unsent.end..])?;
                }
                ConnectionState::TransmitTlsData(transmit) => transmit.done(),
                ConnectionState::WriteTraffic(_) => return Ok(Step::Writable),
                ConnectionState::PeerClosed | ConnectionState::Closed => return Ok(Step::Closed),
                _ => return Ok(Step::Blocked),
            }
        }
    }
}

/// The same bytes, counted within the received part of the buffer.
fn within(received: &Range<usize>) -> Range<usize> {
    received.start - INBOUND..received.end - INBOUND
}

/// Writes what TLS itself has to say: flights of the handshake, answers to key updates.
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
