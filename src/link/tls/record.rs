//! Protects single records after the handshake: decrypts from the receive buffer directly to the
//! destination of the plaintext, and encrypts directly into the send buffer.
//!
//! rustls does the handshake, the certificates and the key schedule. It can decrypt records, too,
//! but allocates each, which would have to be copied again into a slot. Here the one pass that
//! decrypts the bytes is also the copy. TLS 1.3: RFC 8446 section 5. TLS 1.2: RFC 5246 section
//! 6.2.3.3 with the nonces of RFC 5288 (AES-GCM) and RFC 7905 (ChaCha20-Poly1305).

use std::fmt;
use std::ops::Range;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use rustls::{ConnectionTrafficSecrets, ContentType, Error, InvalidMessage, PeerMisbehaved};
use zeroize::Zeroizing;

/// Length of a record's header, in bytes (RFC 8446 section 5.1).
pub const HEADER_BYTES: usize = 5;

/// Most plaintext in a record, in bytes (RFC 8446 section 5.1, RFC 5246 section 6.2.1).
pub const PLAINTEXT_BYTES_MAX: usize = 1 << 14;

/// Length of a tag, in bytes; equal in all suites.
const TAG_BYTES: usize = 16;

/// Length of a nonce's part that is sent in a record, in bytes (RFC 5288 section 3).
const EXPLICIT_BYTES: usize = 8;

/// The version in record headers (RFC 8446 section 5.1: TLS 1.3 uses it, too).
const RECORD_VERSION: [u8; 2] = [3, 3];

/// A record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The content type in TLS 1.2; always `ApplicationData` in TLS 1.3.
    pub content_type: ContentType,
    /// As sent by the peer.
    version: [u8; 2],
    /// Number of bytes after the header.
    pub length: usize,
}

impl Header {
    /// Parses the header at the front of these bytes; `None` if there are too few of them.
    #[must_use]
    pub fn read(records: &[u8]) -> Option<Self> {
        let &[content_type, major, minor, high, low, ..] = records else { return None };
        Some(Self {
            content_type: ContentType::from(content_type),
            version: [major, minor],
            length: usize::from(u16::from_be_bytes([high, low])),
        })
    }

    /// The bytes of the header.
    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let [high, low] = u16::try_from(self.length).expect("a record's length").to_be_bytes();
        [self.content_type.into(), self.version[0], self.version[1], high, low]
    }

    /// Length of the first record, including the header; `None` if it is incomplete.
    #[must_use]
    pub fn whole_record(records: &[u8]) -> Option<usize> {
        let length = HEADER_BYTES + Self::read(records)?.length;
        (length <= records.len()).then_some(length)
    }
}

/// The layout of records by version and suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordLayout {
    /// TLS 1.3: the content's type and padding are encrypted after it.
    Tls13,
    /// TLS 1.2 with AES-GCM: part of the nonce precedes the ciphertext.
    Tls12Explicit,
    /// TLS 1.2 with ChaCha20-Poly1305: ciphertext and tag only.
    Tls12,
}

/// The keys of one direction, and the number of records that they have protected.
pub struct Protection {
    key: LessSafeKey,
    /// Zeroed when dropped; aws-lc zeroes the key.
    iv: Zeroizing<[u8; NONCE_LEN]>,
    layout: RecordLayout,
    sequence: u64,
}

impl fmt::Debug for Protection {
    /// Shows no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protection")
            .field("layout", &self.layout)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl Protection {
    /// Protection by these secrets, starting at this record number.
    ///
    /// # Errors
    /// If the suite is unknown; rustls does not negotiate such.
    pub fn new(
        is_tls13: bool,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, Error> {
        use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        let (algorithm, key, iv, layout) = match &secrets {
            Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv, RecordLayout::Tls12Explicit),
            Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv, RecordLayout::Tls12Explicit),
            Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv, RecordLayout::Tls12),
            _ => return Err(Error::General("a suite without a record layer".to_owned())),
        };
        let wrong = |_| Error::General("a key of the wrong length".to_owned());
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(wrong)?;
        let mut own = Zeroizing::new([0; NONCE_LEN]);
        own.copy_from_slice(iv.as_ref());
        let layout = if is_tls13 { RecordLayout::Tls13 } else { layout };
        Ok(Self { key: LessSafeKey::new(key), iv: own, layout, sequence })
    }

    /// The number of the next record.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// True for TLS 1.3.
    #[must_use]
    pub fn is_tls13(&self) -> bool {
        self.layout == RecordLayout::Tls13
    }

    /// Bytes between header and ciphertext.
    fn explicit_length(&self) -> usize {
        if self.layout == RecordLayout::Tls12Explicit { EXPLICIT_BYTES } else { 0 }
    }

    /// Length of the decrypted record with this header in bytes, including TLS 1.3's type and
    /// padding.
    ///
    /// # Errors
    /// If no record of this session can have such a header.
    pub fn inner_length(&self, header: &Header) -> Result<usize, Error> {
        if header.version[0] != RECORD_VERSION[0] {
            return Err(InvalidMessage::UnknownProtocolVersion.into());
        }
        let expected: &[ContentType] = match self.layout {
            RecordLayout::Tls13 => &[ContentType::ApplicationData],
            _ => &[ContentType::ApplicationData, ContentType::Handshake, ContentType::Alert],
        };
        if !expected.contains(&header.content_type) {
            let (expect_types, got_type) = (expected.to_vec(), header.content_type);
            return Err(Error::InappropriateMessage { expect_types, got_type });
        }
        let around = self.explicit_length() + TAG_BYTES;
        let inner = header.length.checked_sub(around).ok_or(Error::DecryptError)?;
        if inner > PLAINTEXT_BYTES_MAX + usize::from(self.is_tls13()) {
            return Err(Error::PeerSentOversizedRecord);
        }
        Ok(inner)
    }

    /// Decrypts a record's `fragment` (the bytes after the header) into `into`, which has the
    /// length of [`Self::inner_length`]; returns the content's type and length. Bytes after that
    /// length are not content.
    ///
    /// # Errors
    /// If the record is not the peer's next one: then `into` is zeroed.
    pub fn open_into(
        &mut self,
        header: &Header,
        fragment: &[u8],
        into: &mut [u8],
    ) -> Result<(ContentType, usize), Error> {
        let (explicit, rest) = fragment.split_at(self.explicit_length());
        let (ciphertext, tag) = rest.split_at(into.len());
        let additional = self.additional(header, into.len());
        let nonce = self.next_nonce(explicit)?;
        if self.key.open_separate_gather(nonce, additional, ciphertext, tag, into).is_err() {
            into.fill(0);
            return Err(Error::DecryptError);
        }
        self.content(header, into)
    }

    /// Decrypts a record's `fragment` in place; returns the content's type and position.
    ///
    /// # Errors
    /// As [`Self::open_into`].
    pub fn open_in_place(
        &mut self,
        header: &Header,
        fragment: &mut [u8],
    ) -> Result<(ContentType, Range<usize>), Error> {
        let (explicit, rest) = fragment.split_at_mut(self.explicit_length());
        let (inner, tag) = rest.split_at_mut(rest.len() - TAG_BYTES);
        let additional = self.additional(header, inner.len());
        let nonce = self.next_nonce(explicit)?;
        if self.key.open_in_place_separate_tag(nonce, additional, tag, inner).is_err() {
            inner.fill(0);
            return Err(Error::DecryptError);
        }
        let (content_type, length) = self.content(header, inner)?;
        Ok((content_type, explicit.len()..explicit.len() + length))
    }

    /// The type and the length of the decrypted content (RFC 8446 section 5.4).
    fn content(&self, header: &Header, inner: &[u8]) -> Result<(ContentType, usize), Error> {
        if !self.is_tls13() {
            return Ok((header.content_type, inner.len()));
        }
        let last = inner.iter().rposition(|&byte| byte != 0);
        let length = last.ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
        Ok((ContentType::from(inner[length]), length))
    }

    /// Length of the record for `plain` bytes, including the header.
    #[must_use]
    pub fn sealed_length(&self, plain: usize) -> usize {
        let inner = plain + usize::from(self.is_tls13());
        HEADER_BYTES + self.explicit_length() + inner + TAG_BYTES
    }

    /// Encrypts a record into the front of `out`; returns its length.
    ///
    /// # Errors
    /// If the keys are used up.
    ///
    /// # Panics
    /// If it is too long for a record, or for `out`.
    pub fn seal(
        &mut self,
        content_type: ContentType,
        plain: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        assert!(plain.len() <= PLAINTEXT_BYTES_MAX, "a record's plaintext");
        let length = self.sealed_length(plain.len());
        let (front, rest) = out[..length].split_at_mut(HEADER_BYTES);
        let outer = if self.is_tls13() { ContentType::ApplicationData } else { content_type };
        let header = Header { content_type: outer, version: RECORD_VERSION, length: rest.len() };
        front.copy_from_slice(&header.bytes());
        let (explicit, rest) = rest.split_at_mut(self.explicit_length());
        let (inner, tag) = rest.split_at_mut(rest.len() - TAG_BYTES);
        inner[..plain.len()].copy_from_slice(plain);
        if let Some(last) = inner.get_mut(plain.len()) {
            *last = content_type.into();
        }
        let additional = self.additional(&header, inner.len());
        // As rustls chooses it for its own records under these keys: none is repeated.
        explicit.copy_from_slice(&self.counted()[NONCE_LEN - EXPLICIT_BYTES..][..explicit.len()]);
        let nonce = self.next_nonce(explicit)?;
        let sealed = self.key.seal_in_place_separate_tag(nonce, additional, inner);
        tag.copy_from_slice(sealed.map_err(|_| Error::EncryptError)?.as_ref());
        Ok(length)
    }

    /// The secret part of a nonce combined with the record's number (RFC 8446 section 5.3).
    fn counted(&self) -> [u8; NONCE_LEN] {
        let mut nonce = *self.iv;
        let number = self.sequence.to_be_bytes();
        for (byte, part) in nonce[NONCE_LEN - number.len()..].iter_mut().zip(number) {
            *byte ^= part;
        }
        nonce
    }

    /// The next nonce, which is counted; `explicit` is its part in the record.
    fn next_nonce(&mut self, explicit: &[u8]) -> Result<Nonce, Error> {
        let mut nonce = self.counted();
        nonce[NONCE_LEN - explicit.len()..].copy_from_slice(explicit);
        // It must not be repeated (RFC 8446 section 5.3).
        self.sequence = self.sequence.checked_add(1).ok_or(Error::EncryptError)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Additional authenticated data of a record with `plain` bytes of plaintext (RFC 8446 section
    /// 5.2, RFC 5246 section 6.2.3.3).
    fn additional(&self, header: &Header, plain: usize) -> Aad<Additional> {
        let mut bytes = [0; 13];
        if self.is_tls13() {
            // The version that a record should have: the received one is to be ignored.
            let header = Header { version: RECORD_VERSION, ..*header };
            bytes[..HEADER_BYTES].copy_from_slice(&header.bytes());
            return Aad::from(Additional { bytes, length: HEADER_BYTES });
        }
        bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&Header { length: plain, ..*header }.bytes());
        Aad::from(Additional { bytes, length: bytes.len() })
    }
}

/// Bytes that are authenticated and not encrypted.
struct Additional {
    bytes: [u8; 13],
    length: usize,
}

impl AsRef<[u8]> for Additional {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
