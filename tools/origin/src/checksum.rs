//! Checksums and MD5 ETags as S3 stores them beside an object: of the whole, or of its parts and
//! then of those. Computed when first asked for, and kept.
//!
//! Not here: which answers carry them (`respond.rs`, `list.rs`), and whose bytes they are of
//! (`store.rs`).

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::num::NonZeroU64;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash64};

use crate::parse::{ParseError, parse_size};
use crate::source::{MADE_FRAME_BYTES, Source, slice};
use crate::synthetic::{fill, index};

/// More parts than this S3 does not take.
const PARTS_MAX: u64 = 10_000;
/// Most objects whose sums are kept; after that all are forgotten.
const KEPT_MAX: usize = 1 << 20;

/// What S3 computes checksums by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChecksumAlgorithm {
    /// That of zip and Ethernet.
    Crc32,
    /// Castagnoli's, as iSCSI has it.
    Crc32c,
    /// NVMe's; S3's own choice for what is uploaded without one.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// MD5, stored as a checksum beside the ETag.
    Md5,
    /// XXH64.
    Xxhash64,
    /// XXH3 of 64 bits.
    Xxhash3,
    /// XXH3 of 128 bits.
    Xxhash128,
}

impl ChecksumAlgorithm {
    /// All of them, S3's own choice first.
    pub const ALL: [Self; 10] = [
        Self::Crc64Nvme,
        Self::Crc32c,
        Self::Crc32,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
        Self::Md5,
        Self::Xxhash64,
        Self::Xxhash3,
        Self::Xxhash128,
    ];

    /// How it is called in headers, after `x-amz-checksum-`, and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "crc32",
            Self::Crc32c => "crc32c",
            Self::Crc64Nvme => "crc64nvme",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
            Self::Md5 => "md5",
            Self::Xxhash64 => "xxhash64",
            Self::Xxhash3 => "xxhash3",
            Self::Xxhash128 => "xxhash128",
        }
    }
}

/// What a stored checksum speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChecksumKind {
    /// The checksums of all parts, one behind the other; its value ends in `-N`, the parts.
    Composite,
    /// The object's bytes, in however many parts they came.
    FullObject,
}

impl ChecksumKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Composite => "COMPOSITE",
            Self::FullObject => "FULL_OBJECT",
        }
    }
}

/// How an object was uploaded and what S3 keeps of that: its checksum and its parts.
///
/// Written as `crc64nvme`, `crc64nvme:8MiB` (a checksum of the whole of an upload in parts) or
/// `sha256:composite:8MiB`. What S3 would refuse, such as a composite CRC-64, is not refused:
/// other servers have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumPolicy {
    /// By what.
    pub algorithm: ChecksumAlgorithm,
    /// Of what. Composite without parts is that of one part.
    pub kind: ChecksumKind,
    /// Bytes of each part of the upload but the last; `None`: no upload in parts.
    pub part_bytes: Option<NonZeroU64>,
}

impl ChecksumPolicy {
    /// Uploaded in one piece.
    pub fn full_object(algorithm: ChecksumAlgorithm) -> Self {
        Self { algorithm, kind: ChecksumKind::FullObject, part_bytes: None }
    }

    /// Uploaded in parts, each with its checksum.
    pub fn composite(algorithm: ChecksumAlgorithm, part_bytes: NonZeroU64) -> Self {
        Self { algorithm, kind: ChecksumKind::Composite, part_bytes: Some(part_bytes) }
    }

    /// Uploaded in parts of this size, whatever the checksum is of.
    #[must_use]
    pub fn with_parts(mut self, part_bytes: NonZeroU64) -> Self {
        self.part_bytes = Some(part_bytes);
        self
    }
}

impl FromStr for ChecksumPolicy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = || {
            let algorithms = ChecksumAlgorithm::ALL.map(ChecksumAlgorithm::name).join(", ");
            ParseError(format!(
                "invalid checksum '{text}', expected one of {algorithms}, then :PARTSIZE or \
                 :composite:PARTSIZE if uploaded in parts"
            ))
        };
        let mut fields = text.split(':');
        let name = fields.next().unwrap_or_default();
        let algorithm = ChecksumAlgorithm::ALL.into_iter().find(|known| known.name() == name);
        let algorithm = algorithm.ok_or_else(refuse)?;
        let size = |text: &str| {
            let bytes = parse_size(text).ok().and_then(NonZeroU64::new);
            bytes.ok_or_else(refuse)
        };
        match (fields.next(), fields.next(), fields.next()) {
            (None, _, _) => Ok(Self::full_object(algorithm)),
            (Some("composite"), Some(parts), None) => Ok(Self::composite(algorithm, size(parts)?)),
            (Some(parts), None, _) => Ok(Self::full_object(algorithm).with_parts(size(parts)?)),
            _ => Err(refuse()),
        }
    }
}

/// What is stored beside one object, if it is not what
/// [`Config::checksum`](crate::Config::checksum) says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoredChecksum {
    /// What the configuration says of all objects.
    #[default]
    Configured,
    /// None, and no parts.
    Nothing,
    /// This.
    Of(ChecksumPolicy),
}

/// The parts that an object came in: their size, and so their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) part_bytes: NonZeroU64,
    pub(crate) length_bytes: u64,
}

impl Parts {
    /// Parts of `part_bytes`, or longer ones where there would be more than S3 takes.
    pub(crate) fn new(part_bytes: NonZeroU64, length_bytes: u64) -> Self {
        let least = NonZeroU64::new(length_bytes.div_ceil(PARTS_MAX));
        Self { part_bytes: least.map_or(part_bytes, |least| least.max(part_bytes)), length_bytes }
    }

    pub(crate) fn count(&self) -> u64 {
        self.length_bytes.div_ceil(self.part_bytes.get()).max(1)
    }

    /// The bytes of a part, counted from 1.
    pub(crate) fn range(&self, number: u64) -> Option<Range<u64>> {
        let start = number.checked_sub(1)?.checked_mul(self.part_bytes.get())?;
        let end = start.saturating_add(self.part_bytes.get()).min(self.length_bytes);
        (number <= self.count()).then_some(start..end)
    }

    /// Which part these bytes are exactly.
    pub(crate) fn number_of(&self, range: &Range<u64>) -> Option<u64> {
        let number = range.start / self.part_bytes.get() + 1;
        (self.range(number).as_ref() == Some(range)).then_some(number)
    }
}

/// The sums of an object's parts; one where it has no parts.
pub(crate) type PartSums = Vec<Vec<u8>>;

type Name = (String, String, ChecksumAlgorithm, u64);

/// What was computed already, by bucket, key, algorithm and part size.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    known: Mutex<HashMap<Name, Arc<OnceLock<PartSums>>>>,
}

impl Sums {
    /// The sums of all parts. One object's are computed once, whoever else asks meanwhile.
    pub(crate) fn get(
        &self,
        (bucket, key): (&str, &str),
        sum: ChecksumAlgorithm,
        parts: &Parts,
        source: &Source,
    ) -> Arc<OnceLock<PartSums>> {
        let name = (bucket.to_owned(), key.to_owned(), sum, parts.part_bytes.get());
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= KEPT_MAX {
                known.clear();
            }
            Arc::clone(known.entry(name).or_default())
        };
        cell.get_or_init(|| {
            let ranges = (1..=parts.count()).filter_map(|number| parts.range(number));
            ranges.map(|range| sum_of(sum, source, range)).collect()
        });
        cell
    }

    /// Forgets an object that has another content now.
    pub(crate) fn forget(&mut self, bucket: &str, key: &str) {
        let known = self.known.get_mut().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| name.0 != bucket || name.1 != key);
    }
}

/// The sum of the sums of the parts.
pub(crate) fn combined(sum: ChecksumAlgorithm, parts: &PartSums) -> Vec<u8> {
    let mut summer = Summer::new(sum);
    for part in parts {
        summer.update(part);
    }
    summer.finish()
}

pub(crate) fn encoded(sum: &[u8]) -> String {
    STANDARD.encode(sum)
}

fn sum_of(sum: ChecksumAlgorithm, source: &Source, range: Range<u64>) -> Vec<u8> {
    let mut summer = Summer::new(sum);
    match source {
        Source::Bytes(bytes) => summer.update(&slice(bytes, range.start, range.end - range.start)),
        Source::Synthetic { seed } => {
            let mut buffer = vec![0; MADE_FRAME_BYTES];
            let mut at = range.start;
            while at < range.end {
                let length = (range.end - at).min(MADE_FRAME_BYTES as u64);
                let piece = &mut buffer[..index(length)];
                fill(*seed, at, piece);
                summer.update(piece);
                at += length;
            }
        }
    }
    summer.finish()
}

enum Summer {
    Crc32(crc_fast::Digest),
    Crc64(crc_fast::Digest),
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
    Xxhash64(XxHash64),
    Xxhash3(XxHash3_64),
    Xxhash128(XxHash3_128),
}

impl Summer {
    fn new(algorithm: ChecksumAlgorithm) -> Self {
        let crc = crc_fast::Digest::new;
        match algorithm {
            ChecksumAlgorithm::Crc32 => Self::Crc32(crc(CrcAlgorithm::Crc32IsoHdlc)),
            ChecksumAlgorithm::Crc32c => Self::Crc32(crc(CrcAlgorithm::Crc32Iscsi)),
            ChecksumAlgorithm::Crc64Nvme => Self::Crc64(crc(CrcAlgorithm::Crc64Nvme)),
            ChecksumAlgorithm::Sha1 => Self::Sha1(Sha1::new()),
            ChecksumAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
            ChecksumAlgorithm::Sha512 => Self::Sha512(Sha512::new()),
            ChecksumAlgorithm::Md5 => Self::Md5(Md5::new()),
            ChecksumAlgorithm::Xxhash64 => Self::Xxhash64(XxHash64::default()),
            ChecksumAlgorithm::Xxhash3 => Self::Xxhash3(XxHash3_64::new()),
            ChecksumAlgorithm::Xxhash128 => Self::Xxhash128(XxHash3_128::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(digest) | Self::Crc64(digest) => digest.update(bytes),
            Self::Md5(digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
            Self::Sha512(digest) => digest.update(bytes),
            Self::Xxhash64(digest) => digest.write(bytes),
            Self::Xxhash3(digest) => digest.write(bytes),
            Self::Xxhash128(digest) => digest.write(bytes),
        }
    }

    /// Big-endian, as S3 encodes them.
    fn finish(self) -> Vec<u8> {
        match self {
            // The upper half of what comes back is empty.
            Self::Crc32(digest) => digest.finalize().to_be_bytes()[4..].to_vec(),
            Self::Crc64(digest) => digest.finalize().to_be_bytes().to_vec(),
            Self::Md5(digest) => digest.finalize().to_vec(),
            Self::Sha1(digest) => digest.finalize().to_vec(),
            Self::Sha256(digest) => digest.finalize().to_vec(),
            Self::Sha512(digest) => digest.finalize().to_vec(),
            Self::Xxhash64(digest) => digest.finish().to_be_bytes().to_vec(),
            Self::Xxhash3(digest) => digest.finish().to_be_bytes().to_vec(),
            Self::Xxhash128(digest) => digest.finish_128().to_be_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn sums_are_those_of_the_catalogues() {
        let source = Source::Bytes(Bytes::from_static(b"123456789"));
        let check = |sum, expected: &str| assert_eq!(hex(&sum_of(sum, &source, 0..9)), expected);
        // The check values of the CRC catalogue, and what sha1sum, sha256sum, sha512sum, md5sum and
        // xxhsum print.
        check(ChecksumAlgorithm::Crc32, "cbf43926");
        check(ChecksumAlgorithm::Crc32c, "e3069283");
        check(ChecksumAlgorithm::Crc64Nvme, "ae8b14860a799888");
        check(ChecksumAlgorithm::Md5, "25f9e794323b453885f5181f1b624d0b");
        check(ChecksumAlgorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        check(
            ChecksumAlgorithm::Sha256,
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
        );
        check(
            ChecksumAlgorithm::Sha512,
            "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274a\
             d27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
        );
        check(ChecksumAlgorithm::Xxhash64, "8cb841db40e6ae83");
        check(ChecksumAlgorithm::Xxhash3, "72dcb18b67a17dff");
        check(ChecksumAlgorithm::Xxhash128, "33119477ede5dcd5e9716427681d5860");
    }

    #[test]
    fn what_is_made_in_pieces_sums_up_as_in_one() {
        let mut whole = vec![0; 2 * MADE_FRAME_BYTES + 77];
        fill(7, 0, &mut whole);
        let sum = ChecksumAlgorithm::Crc64Nvme;
        let range = 5..whole.len() as u64;
        let made = sum_of(sum, &Source::Synthetic { seed: 7 }, range.clone());
        assert_eq!(made, sum_of(sum, &Source::Bytes(whole.into()), range));
    }

    #[test]
    fn parts() {
        let eight = NonZeroU64::new(8).unwrap();
        for (length_bytes, count, last) in [(0, 1, 0..0), (8, 1, 0..8), (9, 2, 8..9)] {
            let parts = Parts::new(eight, length_bytes);
            assert_eq!((parts.count(), parts.range(count)), (count, Some(last.clone())));
            assert_eq!((parts.range(0), parts.range(count + 1)), (None, None));
            assert_eq!(parts.number_of(&last), Some(count));
        }
        let parts = Parts::new(eight, 20);
        for wrong in [0..7, 0..9, 0..16, 8..15, 16..24, 1..8] {
            assert_eq!(parts.number_of(&wrong), None, "{wrong:?}");
        }
        assert_eq!(Parts::new(eight, 1 << 40).count(), PARTS_MAX);
    }

    #[test]
    fn an_object_s_sums_are_forgotten_alone() {
        let mut sums = Sums::default();
        let parts = Parts::new(NonZeroU64::MIN, 1);
        let get = |sums: &Sums, key, text: &'static [u8]| {
            let source = Source::Bytes(Bytes::from_static(text));
            sums.get(("b", key), ChecksumAlgorithm::Md5, &parts, &source).get().cloned().unwrap()
        };
        let first = get(&sums, "k", b"1");
        get(&sums, "other", b"1");
        assert_eq!(get(&sums, "k", b"2"), first, "kept");
        sums.forget("b", "k");
        assert_ne!(get(&sums, "k", b"2"), first);
        assert_eq!(get(&sums, "other", b"2"), first);
    }

    #[test]
    fn policies_are_parsed() {
        let (algorithm, size) = (ChecksumAlgorithm::Sha256, NonZeroU64::new(5 << 20).unwrap());
        for (text, expected) in [
            ("sha256", ChecksumPolicy::full_object(algorithm)),
            ("sha256:5MiB", ChecksumPolicy::full_object(algorithm).with_parts(size)),
            ("sha256:composite:5MiB", ChecksumPolicy::composite(algorithm, size)),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        for known in ChecksumAlgorithm::ALL {
            assert_eq!(known.name().parse::<ChecksumPolicy>().unwrap().algorithm, known);
        }
        for text in ["", "md4", "crc32:composite", "crc32:0", "crc32:1:1", "crc32:composite:1:1"] {
            assert!(text.parse::<ChecksumPolicy>().unwrap_err().to_string().contains("crc64nvme"));
        }
    }
}
