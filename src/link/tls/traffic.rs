//! Records after the handshake: data, and TLS's own messages in between (alerts, tickets, key
//! updates).
//!
//! Every limit that rustls sets for a peer is set here, too; where the RFC leaves a choice, this
//! file does the same as rustls.

use std::fmt;
use std::ops::Range;

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets,
    HandshakeType, InvalidMessage, PeerMisbehaved,
};

use super::record::{HEADER_BYTES, Header, PLAINTEXT_BYTES_MAX, Protection};
use crate::limits::{TLS_MESSAGE_BYTES_MAX, TLS_RECORDS_WITHOUT_DATA_MAX};

/// Length of type and length before a handshake message, in bytes (RFC 8446 section 4).
const MESSAGE_HEADER_BYTES: usize = 4;

/// A KeyUpdate that requests none in return (RFC 8446 section 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Level of an alert that does not end the session by itself (RFC 5246 section 7.2).
const WARNING: u8 = 1;
/// Level of an alert that ends the session.
const FATAL: u8 = 2;

/// The key schedule: makes new keys and stores tickets.
pub trait Schedule {
    /// The next keys for receiving.
    ///
    /// # Errors
    /// If this version of TLS has no key updates.
    fn next_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;

    /// The next keys for sending.
    ///
    /// # Errors
    /// If this version of TLS has no key updates.
    fn next_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;

    /// Stores a NewSessionTicket (RFC 8446 section 4.6.1), without its header.
    ///
    /// # Errors
    /// If it is invalid.
    fn ticket(&mut self, message: &[u8]) -> Result<(), Error>;
}

impl Schedule for KernelConnection<ClientConnectionData> {
    fn next_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_rx_secret()
    }

    fn next_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_tx_secret()
    }

    fn ticket(&mut self, message: &[u8]) -> Result<(), Error> {
        self.handle_new_session_ticket(message)
    }
}

/// The result of opening a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// The first record is incomplete.
    Partial,
    /// Its plaintext is at the front of `into`.
    Written {
        /// Length of the record.
        used: usize,
        /// Length of the plaintext.
        length: usize,
    },
    /// Its plaintext is in the receive buffer: `into` was too small.
    Held {
        /// Length of the record.
        used: usize,
        /// Position of the plaintext in the record.
        plain: Range<usize>,
    },
    /// It was not data.
    Other {
        /// Length of the record.
        used: usize,
    },
    /// The peer has closed (close_notify): later records are ignored.
    Closed,
}

/// Why a record was not encrypted.
#[derive(Debug, Clone, PartialEq)]
pub enum Unsealed {
    /// It does not fit into `out`.
    NoRoom,
    /// The session has failed, or its keys are used up.
    Failed(Error),
}

impl From<Error> for Unsealed {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Both directions of a session with its keys.
pub struct Traffic<S> {
    schedule: S,
    receive: Protection,
    send: Protection,
    /// Most records that may be sent under one key (RFC 8446 section 5.5).
    pub(super) send_limit: u64,
    /// The beginning of a handshake message whose rest is still to come.
    joined: Vec<u8>,
    /// Records and messages since the last data.
    without_data: u32,
    /// The peer has requested new keys, or a renegotiation; the answer precedes the next request.
    owes_update: bool,
    owes_refusal: bool,
    renegotiations: u32,
    closed: bool,
    /// The error of a record: later ones are not processed.
    failed: Option<Error>,
}

impl<S> fmt::Debug for Traffic<S> {
    /// Shows neither keys nor received bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic")
            .field("receive", &self.receive)
            .field("send", &self.send)
            .field("closed", &self.closed)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl<S: Schedule> Traffic<S> {
    /// A session with these secrets that sends at most `send_limit` records under one key.
    ///
    /// # Errors
    /// If the suite is unknown.
    pub fn new(
        is_tls13: bool,
        secrets: ExtractedSecrets,
        send_limit: u64,
        schedule: S,
    ) -> Result<Self, Error> {
        Ok(Self {
            schedule,
            receive: Protection::new(is_tls13, secrets.rx)?,
            send: Protection::new(is_tls13, secrets.tx)?,
            send_limit,
            joined: Vec::new(),
            without_data: 0,
            owes_update: false,
            owes_refusal: false,
            renegotiations: 0,
            closed: false,
            failed: None,
        })
    }

    /// True if nothing more will be read: the peer has closed, or a record was invalid.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.closed || self.failed.is_some()
    }

    /// Opens the first record: into `into` if it fits, else in place.
    ///
    /// # Errors
    /// The record's fault, now and at each later call; no byte of it is returned.
    pub fn open(&mut self, records: &mut [u8], into: &mut [u8]) -> Result<Opened, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.closed {
            return Ok(Opened::Closed);
        }
        let opened = self.open_first(records, into);
        self.failed = opened.as_ref().err().cloned();
        opened
    }

    fn open_first(&mut self, records: &mut [u8], into: &mut [u8]) -> Result<Opened, Error> {
        let Some(header) = Header::read(records) else { return Ok(Opened::Partial) };
        let inner = self.receive.inner_length(&header)?;
        let used = HEADER_BYTES + header.length;
        let Some(fragment) = records.get_mut(HEADER_BYTES..used) else {
            return Ok(Opened::Partial);
        };
        let direct = into.get_mut(..inner);
        // In TLS 1.2 the header shows that a record is not data.
        let direct = direct.filter(|_| header.content_type == ContentType::ApplicationData);
        let Some(direct) = direct else {
            let (content_type, plain) = self.receive.open_in_place(&header, fragment)?;
            if content_type == ContentType::ApplicationData {
                self.data(plain.len())?;
                let plain = plain.start + HEADER_BYTES..plain.end + HEADER_BYTES;
                return Ok(Opened::Held { used, plain });
            }
            return self.other(content_type, &fragment[plain], used);
        };
        let (content_type, length) = self.receive.open_into(&header, fragment, direct)?;
        if content_type == ContentType::ApplicationData {
            self.data(length)?;
            return Ok(Opened::Written { used, length });
        }
        let other = self.other(content_type, &direct[..length], used);
        // TLS's own messages must not be among data.
        direct.fill(0);
        other
    }

    /// Counts a record of data.
    fn data(&mut self, length: usize) -> Result<(), Error> {
        if !self.joined.is_empty() {
            return Err(PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into());
        }
        if length == 0 {
            return self.count_without_data(PeerMisbehaved::TooManyEmptyFragments);
        }
        self.without_data = 0;
        Ok(())
    }

    /// Counts a record without data: a peer may not keep a connection busy with those.
    fn count_without_data(&mut self, otherwise: PeerMisbehaved) -> Result<(), Error> {
        self.without_data += 1;
        if self.without_data > TLS_RECORDS_WITHOUT_DATA_MAX {
            Err(otherwise.into())
        } else {
            Ok(())
        }
    }

    /// Processes a record that is not data.
    fn other(&mut self, what: ContentType, plain: &[u8], used: usize) -> Result<Opened, Error> {
        match what {
            ContentType::Handshake => self.handshake(plain)?,
            _ if !self.joined.is_empty() => {
                return Err(PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into());
            }
            ContentType::Alert => self.alert(plain)?,
            got_type => {
                use ContentType::{Alert, ApplicationData, Handshake};
                let expect_types = vec![ApplicationData, Handshake, Alert];
                return Err(Error::InappropriateMessage { expect_types, got_type });
            }
        }
        Ok(if self.closed { Opened::Closed } else { Opened::Other { used } })
    }

    /// An alert (RFC 8446 section 6, RFC 5246 section 7.2).
    fn alert(&mut self, alert: &[u8]) -> Result<(), Error> {
        let &[level, description] = alert else {
            return Err(InvalidMessage::MissingData("an alert").into());
        };
        let description = AlertDescription::from(description);
        let known = level == WARNING || level == FATAL;
        if known && description == AlertDescription::CloseNotify {
            self.closed = true;
            return Ok(());
        }
        let tolerated = !self.receive.is_tls13() || description == AlertDescription::UserCanceled;
        if level == WARNING && tolerated {
            return self.count_without_data(PeerMisbehaved::TooManyWarningAlertsReceived);
        }
        Err(Error::AlertReceived(description))
    }

    /// Part of the handshake messages: all that a record has, or a part of one.
    fn handshake(&mut self, part: &[u8]) -> Result<(), Error> {
        if part.is_empty() {
            return Err(InvalidMessage::InvalidEmptyPayload.into());
        }
        self.joined.extend_from_slice(part);
        let joined = std::mem::take(&mut self.joined);
        let mut rest = &joined[..];
        while let Some((header, behind)) = rest.split_at_checked(MESSAGE_HEADER_BYTES) {
            let length = u32::from_be_bytes([0, header[1], header[2], header[3]]);
            if length > TLS_MESSAGE_BYTES_MAX {
                return Err(InvalidMessage::HandshakePayloadTooLarge.into());
            }
            let Some((message, behind)) = behind.split_at_checked(length as usize) else { break };
            self.message(HandshakeType::from(header[0]), message, behind.is_empty())?;
            rest = behind;
        }
        let used = joined.len() - rest.len();
        self.joined = joined;
        self.joined.drain(..used);
        Ok(())
    }

    /// One handshake message; `last` if nothing follows it in its record.
    fn message(&mut self, what: HandshakeType, message: &[u8], last: bool) -> Result<(), Error> {
        match what {
            HandshakeType::NewSessionTicket if self.receive.is_tls13() => {
                self.count_without_data(PeerMisbehaved::TooManyEmptyFragments)?;
                self.schedule.ticket(message)
            }
            HandshakeType::KeyUpdate if self.receive.is_tls13() => {
                self.count_without_data(PeerMisbehaved::TooManyKeyUpdateRequests)?;
                let &[asks @ 0..=1] = message else {
                    return Err(InvalidMessage::InvalidKeyUpdate.into());
                };
                // The rest of this record was encrypted with the old keys (section 5.1).
                if !last {
                    return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into());
                }
                self.receive = Protection::new(true, self.schedule.next_receive()?)?;
                self.owes_update |= asks == 1;
                Ok(())
            }
            // RFC 5246 section 7.4.1.1. A second one is a misuse.
            HandshakeType::HelloRequest if !self.receive.is_tls13() => {
                self.renegotiations += 1;
                if self.renegotiations > 1 {
                    return Err(PeerMisbehaved::TooManyRenegotiationRequests.into());
                }
                self.owes_refusal = true;
                Ok(())
            }
            got_type => Err(Error::InappropriateHandshakeMessage {
                expect_types: vec![HandshakeType::NewSessionTicket, HandshakeType::KeyUpdate],
                got_type,
            }),
        }
    }

    /// Encrypts these bytes to the front of `out`, after TLS's own pending answers; returns the
    /// total length.
    ///
    /// # Errors
    /// Why the session cannot be used any more.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, Unsealed> {
        if let Some(error) = &self.failed {
            return Err(error.clone().into());
        }
        let mut at = 0;
        if std::mem::take(&mut self.owes_refusal) {
            let alert = [WARNING, AlertDescription::NoRenegotiation.into()];
            at += self.seal_one(ContentType::Alert, &alert, &mut out[at..])?;
        }
        for piece in plain.chunks(PLAINTEXT_BYTES_MAX) {
            // The announcement of new keys is the last record under the old ones.
            let used_up = self.send.sequence().saturating_add(1) >= self.send_limit;
            if std::mem::take(&mut self.owes_update) || used_up {
                if !self.send.is_tls13() {
                    return Err(Unsealed::Failed(Error::EncryptError));
                }
                at += self.seal_one(ContentType::Handshake, &KEY_UPDATE, &mut out[at..])?;
                self.send = Protection::new(true, self.schedule.next_send()?)?;
            }
            at += self.seal_one(ContentType::ApplicationData, piece, &mut out[at..])?;
        }
        Ok(at)
    }

    fn seal_one(
        &mut self,
        content_type: ContentType,
        plain: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Unsealed> {
        if self.send.sealed_length(plain.len()) > out.len() {
            return Err(Unsealed::NoRoom);
        }
        Ok(self.send.seal(content_type, plain, out)?)
    }
}

#[cfg(test)]
#[path = "traffic_tests.rs"]
mod tests;
