//! Checksums that S3 stores with objects, and their comparison with the fetched bytes.
//!
//! Pure. A server's checksum headers are parsed and not trusted: an unreadable one counts as none.
//! `combine.rs` adds up CRCs of pieces in any order; `sequence.rs` takes bytes in order, for any
//! algorithm.

mod combine;
mod sequence;
mod stored;
pub mod unverified;
mod verification;

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use sha2::Digest as _;

pub use combine::Sum;
pub use sequence::{InOrder, Sequence};
pub use stored::{Form, Mismatch, Stored, etag_md5};
pub use verification::{AnswerCheck, Verification};

/// A checksum algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// CRC-64/NVME: the default of S3.
    Crc64Nvme,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-32 (ISO-HDLC).
    Crc32,
    /// SHA-256.
    Sha256,
    /// SHA-1.
    Sha1,
    /// MD5: the ETag of an object that was uploaded in one piece.
    Md5,
}

/// Longest digest, in bytes.
const DIGEST_BYTES_MAX: usize = 32;

impl Algorithm {
    /// All algorithms, cheapest first.
    pub const ALL: [Self; 6] =
        [Self::Crc64Nvme, Self::Crc32c, Self::Crc32, Self::Sha256, Self::Sha1, Self::Md5];

    /// The name in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc64Nvme => "CRC64NVME",
            Self::Crc32c => "CRC32C",
            Self::Crc32 => "CRC32",
            Self::Sha256 => "SHA256",
            Self::Sha1 => "SHA1",
            Self::Md5 => "MD5",
        }
    }

    /// The algorithm of this name, case-insensitive.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The algorithm of this `x-amz-checksum-*` header.
    #[must_use]
    pub fn of_header(name: &str) -> Option<Self> {
        const PREFIX: &str = "x-amz-checksum-";
        let start = name.get(..PREFIX.len())?;
        Self::of_name(&name[PREFIX.len()..]).filter(|_| start.eq_ignore_ascii_case(PREFIX))
    }

    /// Length of the digest in bytes.
    #[must_use]
    pub const fn length_bytes(self) -> usize {
        match self {
            Self::Crc64Nvme => 8,
            Self::Crc32c | Self::Crc32 => 4,
            Self::Sha256 => 32,
            Self::Sha1 => 20,
            Self::Md5 => 16,
        }
    }

    /// True if digests of pieces can be combined.
    #[must_use]
    pub const fn is_crc(self) -> bool {
        self.crc().is_some()
    }

    /// The digest of these bytes.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new(self);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The library's name of a CRC; `None` for hashes, whose digests cannot be combined.
    const fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Sha256 | Self::Sha1 | Self::Md5 => None,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A digest; the bytes of a CRC are big-endian, as in S3's headers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    bytes: [u8; DIGEST_BYTES_MAX],
    length: u8,
}

impl Digest {
    /// These bytes as a digest; `None` if they are more than any algorithm's.
    fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; DIGEST_BYTES_MAX];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { bytes, length: u8::try_from(from.len()).ok()? })
    }

    /// The digest that an algorithm returned.
    fn of(bytes: &[u8]) -> Self {
        Self::new(bytes).expect("no algorithm gives more")
    }

    /// The digest of a CRC's value.
    fn of_crc(algorithm: Algorithm, crc: u64) -> Self {
        Self::of(&crc.to_be_bytes()[8 - algorithm.length_bytes()..])
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for Digest {
    /// In base64, as in S3's headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.bytes()))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Computes a checksum of bytes that arrive in order.
#[derive(Clone)]
pub struct Hasher(Inner);

#[derive(Clone)]
enum Inner {
    Crc(Algorithm, crc_fast::Digest),
    Sha256(sha2::Sha256),
    Sha1(sha1::Sha1),
    Md5(md5::Md5),
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hasher({})", self.algorithm())
    }
}

impl Hasher {
    /// A hasher that has seen no bytes.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match (algorithm, algorithm.crc()) {
            (_, Some(crc)) => Inner::Crc(algorithm, crc_fast::Digest::new(crc)),
            (Algorithm::Sha1, _) => Inner::Sha1(sha1::Sha1::new()),
            (Algorithm::Md5, _) => Inner::Md5(md5::Md5::new()),
            _ => Inner::Sha256(sha2::Sha256::new()),
        })
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match &self.0 {
            Inner::Crc(algorithm, _) => *algorithm,
            Inner::Sha256(_) => Algorithm::Sha256,
            Inner::Sha1(_) => Algorithm::Sha1,
            Inner::Md5(_) => Algorithm::Md5,
        }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Inner::Crc(_, crc) => crc.update(bytes),
            Inner::Sha256(hash) => hash.update(bytes),
            Inner::Sha1(hash) => hash.update(bytes),
            Inner::Md5(hash) => hash.update(bytes),
        }
    }

    /// The digest of all bytes.
    #[must_use]
    pub fn finish(self) -> Digest {
        match self.0 {
            Inner::Crc(algorithm, crc) => Digest::of_crc(algorithm, crc.finalize()),
            Inner::Sha256(hash) => Digest::of(&hash.finalize()),
            Inner::Sha1(hash) => Digest::of(&hash.finalize()),
            Inner::Md5(hash) => Digest::of(&hash.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the CRCs from the catalogue (reveng.sourceforge.io), and hashes from
    /// OpenSSL.
    #[test]
    fn known_answers() {
        for (algorithm, expected) in [
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Crc32, "cbf43926"),
            (Algorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
            (Algorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (Algorithm::Md5, "25f9e794323b453885f5181f1b624d0b"),
        ] {
            let digest = algorithm.digest(b"123456789");
            assert_eq!(hex::encode(digest.bytes()), expected, "{algorithm}");
            assert_eq!(digest.bytes().len(), algorithm.length_bytes(), "{algorithm}");
            let mut hasher = Hasher::new(algorithm);
            assert_eq!(hasher.algorithm(), algorithm);
            b"123456789".chunks(4).for_each(|piece| hasher.update(piece));
            assert_eq!(hasher.finish(), digest, "{algorithm}");
        }
    }

    #[test]
    fn names_and_headers() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::of_name(&algorithm.name().to_lowercase()), Some(algorithm));
            let header = format!("X-Amz-Checksum-{}", algorithm.name());
            assert_eq!(Algorithm::of_header(&header), Some(algorithm));
        }
        for name in ["type", "", "ü"].map(|end| format!("x-amz-checksum-{end}")) {
            assert_eq!(Algorithm::of_header(&name), None, "{name}");
        }
        for other in ["crc32", "", "x-amz-metadata-crc32"] {
            assert_eq!(Algorithm::of_header(other), None, "{other}");
        }
    }

    #[test]
    fn the_processor_computes_crcs() {
        // Table look-ups would cost as much as the rest of a download.
        let target = crc_fast::get_calculator_target(CrcAlgorithm::Crc64Nvme);
        assert!(!target.contains("software"), "{target}");
    }
}
