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
use std::hash::Hasher as _;

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
    /// XXH3 of 128 bits, without a seed, as the others of its family.
    Xxhash128,
    /// XXH3 of 64 bits.
    Xxhash3,
    /// XXH64.
    Xxhash64,
    /// SHA-256.
    Sha256,
    /// SHA-1.
    Sha1,
    /// SHA-512.
    Sha512,
    /// MD5: also the ETag of an object that was uploaded in one piece.
    Md5,
}

/// Longest digest, in bytes.
const DIGEST_BYTES_MAX: usize = 64;

impl Algorithm {
    /// All algorithms of S3 (API reference, `ChecksumAlgorithm`): those whose digests of pieces can
    /// be combined, and then the others, cheapest first.
    pub const ALL: [Self; 10] = [
        Self::Crc64Nvme,
        Self::Crc32c,
        Self::Crc32,
        Self::Xxhash128,
        Self::Xxhash3,
        Self::Xxhash64,
        Self::Sha256,
        Self::Sha1,
        Self::Sha512,
        Self::Md5,
    ];

    /// The name in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc64Nvme => "CRC64NVME",
            Self::Crc32c => "CRC32C",
            Self::Crc32 => "CRC32",
            Self::Xxhash128 => "XXHASH128",
            Self::Xxhash3 => "XXHASH3",
            Self::Xxhash64 => "XXHASH64",
            Self::Sha256 => "SHA256",
            Self::Sha1 => "SHA1",
            Self::Sha512 => "SHA512",
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
            Self::Crc64Nvme | Self::Xxhash3 | Self::Xxhash64 => 8,
            Self::Crc32c | Self::Crc32 => 4,
            Self::Xxhash128 | Self::Md5 => 16,
            Self::Sha256 => 32,
            Self::Sha1 => 20,
            Self::Sha512 => 64,
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
            _ => None,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A digest; the bytes of a number are big-endian, as in S3's headers.
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
    // Their states have half a kilobyte.
    Xxhash128(Box<twox_hash::XxHash3_128>),
    Xxhash3(Box<twox_hash::XxHash3_64>),
    Xxhash64(twox_hash::XxHash64),
    Sha256(sha2::Sha256),
    Sha1(sha1::Sha1),
    Sha512(sha2::Sha512),
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
            (Algorithm::Xxhash128, _) => Inner::Xxhash128(Box::default()),
            (Algorithm::Xxhash3, _) => Inner::Xxhash3(Box::default()),
            (Algorithm::Xxhash64, _) => Inner::Xxhash64(twox_hash::XxHash64::default()),
            (Algorithm::Sha1, _) => Inner::Sha1(sha1::Sha1::new()),
            (Algorithm::Sha512, _) => Inner::Sha512(sha2::Sha512::new()),
            (Algorithm::Md5, _) => Inner::Md5(md5::Md5::new()),
            _ => Inner::Sha256(sha2::Sha256::new()),
        })
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match &self.0 {
            Inner::Crc(algorithm, _) => *algorithm,
            Inner::Xxhash128(_) => Algorithm::Xxhash128,
            Inner::Xxhash3(_) => Algorithm::Xxhash3,
            Inner::Xxhash64(_) => Algorithm::Xxhash64,
            Inner::Sha256(_) => Algorithm::Sha256,
            Inner::Sha1(_) => Algorithm::Sha1,
            Inner::Sha512(_) => Algorithm::Sha512,
            Inner::Md5(_) => Algorithm::Md5,
        }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Inner::Crc(_, crc) => crc.update(bytes),
            Inner::Xxhash128(hash) => hash.write(bytes),
            Inner::Xxhash3(hash) => hash.write(bytes),
            Inner::Xxhash64(hash) => hash.write(bytes),
            Inner::Sha256(hash) => hash.update(bytes),
            Inner::Sha1(hash) => hash.update(bytes),
            Inner::Sha512(hash) => hash.update(bytes),
            Inner::Md5(hash) => hash.update(bytes),
        }
    }

    /// The digest of all bytes.
    #[must_use]
    pub fn finish(self) -> Digest {
        match self.0 {
            Inner::Crc(algorithm, crc) => Digest::of_crc(algorithm, crc.finalize()),
            Inner::Xxhash128(hash) => Digest::of(&hash.finish_128().to_be_bytes()),
            Inner::Xxhash3(hash) => Digest::of(&hash.finish().to_be_bytes()),
            Inner::Xxhash64(hash) => Digest::of(&hash.finish().to_be_bytes()),
            Inner::Sha256(hash) => Digest::of(&hash.finalize()),
            Inner::Sha1(hash) => Digest::of(&hash.finalize()),
            Inner::Sha512(hash) => Digest::of(&hash.finalize()),
            Inner::Md5(hash) => Digest::of(&hash.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the CRCs from the catalogue (reveng.sourceforge.io), and hashes from
    /// OpenSSL and xxhsum.
    #[test]
    fn known_answers() {
        for (algorithm, expected) in [
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Crc32, "cbf43926"),
            (Algorithm::Xxhash128, "33119477ede5dcd5e9716427681d5860"),
            (Algorithm::Xxhash3, "72dcb18b67a17dff"),
            (Algorithm::Xxhash64, "8cb841db40e6ae83"),
            (
                Algorithm::Sha512,
                "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274a\
                 d27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
            ),
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
