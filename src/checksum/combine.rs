//! Combines the CRCs of an object's pieces, in any order, into the CRC of the object.
//!
//! A CRC is linear: the CRC of A followed by B is the CRC of A, shifted by the length of B, XOR the
//! CRC of B. This holds for finished CRCs if the initial and the final XOR are equal, as they are
//! for all three here. So the CRC of the whole is the XOR of all pieces' CRCs, each shifted by the
//! number of bytes after the piece: one number that every thread can update without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use super::stored::{Form, Mismatch, Stored};
use super::{Algorithm, Digest};

/// Polynomials modulo a CRC's polynomial, lowest power in the highest bit, as in reflected CRCs.
struct Field {
    width: u32,
    polynomial: u64,
    /// `x^(8 * 2^k)` at k: the factor that shifts a CRC by 2^k bytes. Objects have at most 2^53
    /// bytes.
    powers: [u64; POWERS],
}

const POWERS: usize = 54;

impl Field {
    const fn new(width: u32, polynomial: u64) -> Self {
        let mut field = Self { width, polynomial, powers: [0; POWERS] };
        field.powers[0] = 1 << (width - 1 - 8);
        let mut k = 1;
        while k < POWERS {
            field.powers[k] = field.multiply(field.powers[k - 1], field.powers[k - 1]);
            k += 1;
        }
        field
    }

    /// The product of two polynomials.
    const fn multiply(&self, one: u64, other: u64) -> u64 {
        let (mut sum, mut factor, mut bit) = (0, other, 1 << (self.width - 1));
        while bit != 0 {
            // Branchless: the bits of a CRC cannot be predicted.
            sum ^= factor & 0_u64.wrapping_sub((one & bit != 0) as u64);
            factor = (factor >> 1) ^ (self.polynomial & 0_u64.wrapping_sub(factor & 1));
            bit >>= 1;
        }
        sum
    }

    /// Shifts a CRC by `bytes` zero bytes.
    fn shift(&self, crc: u64, bytes: u64) -> u64 {
        let set = (0..POWERS).filter(|k| bytes >> k & 1 == 1);
        set.fold(crc, |crc, k| self.multiply(self.powers[k], crc))
    }
}

static CRC64_NVME: Field = Field::new(64, 0x9a6c_9329_ac4b_c9b5);
static CRC32C: Field = Field::new(32, 0x82f6_3b78);
static CRC32: Field = Field::new(32, 0xedb8_8320);

/// An object's stored checksum, and the sum of its pieces so far.
#[derive(Debug)]
pub struct Sum {
    stored: Stored,
    size: u64,
    /// Length of each part but the last; the object's size if the checksum covers all bytes.
    part: u64,
    crcs: Crcs,
}

#[derive(Debug)]
enum Crcs {
    One(AtomicU64),
    PerPart(Box<[AtomicU64]>),
}

impl Sum {
    /// An empty sum for an object of `size` bytes, uploaded in parts of `part` bytes. `None` if
    /// digests of pieces cannot be combined: hashes, and parts of different lengths (except the
    /// last).
    #[must_use]
    pub fn new(stored: Stored, size: u64, part: u64) -> Option<Self> {
        stored.algorithm.crc()?;
        let (part, crcs) = match stored.form {
            Form::FullObject | Form::Etag | Form::Composite { parts: 1 } => {
                (size, Crcs::One(AtomicU64::new(0)))
            }
            Form::Composite { parts } => {
                let fit = part > 0 && size.div_ceil(part) == u64::from(parts);
                let sums = (0..parts).map(|_| AtomicU64::new(0)).collect();
                (Some(part).filter(|_| fit)?, Crcs::PerPart(sums))
            }
        };
        Some(Self { stored, size, part, crcs })
    }

    /// The stored checksum.
    #[must_use]
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Adds the bytes at `offset`. Each byte of the object must be added exactly once.
    ///
    /// # Panics
    /// If the object does not have these bytes.
    pub fn add(&self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        assert!(end <= self.size, "a piece lies within its object");
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let part_end = (at / self.part + 1).saturating_mul(self.part).min(self.size);
            let room = usize::try_from(part_end - at).unwrap_or(usize::MAX);
            let (piece, beyond) = rest.split_at(room.min(rest.len()));
            let after = part_end - at - piece.len() as u64;
            self.slot(at / self.part).fetch_xor(self.shifted(piece, after), Ordering::Relaxed);
            at += piece.len() as u64;
            rest = beyond;
        }
    }

    fn slot(&self, part: u64) -> &AtomicU64 {
        match &self.crcs {
            Crcs::One(crc) => crc,
            Crcs::PerPart(crcs) => &crcs[usize::try_from(part).expect("a part of the object")],
        }
    }

    fn shifted(&self, piece: &[u8], after: u64) -> u64 {
        let algorithm = self.stored.algorithm;
        let crc = crc_fast::checksum(algorithm.crc().expect("only CRCs are summed"), piece);
        field(algorithm).shift(crc, after)
    }

    /// Compares the sum of all pieces with the stored checksum.
    ///
    /// # Errors
    /// If they differ.
    pub fn check(&self) -> Result<(), Mismatch> {
        let algorithm = self.stored.algorithm;
        let digest = |crc: &AtomicU64| Digest::of_crc(algorithm, crc.load(Ordering::Acquire));
        match &self.crcs {
            Crcs::One(crc) => self.stored.check(digest(crc)),
            Crcs::PerPart(crcs) => {
                let all: Vec<u8> =
                    crcs.iter().flat_map(|crc| digest(crc).bytes().to_vec()).collect();
                self.stored.compare(algorithm.digest(&all))
            }
        }
    }
}

fn field(algorithm: Algorithm) -> &'static Field {
    match algorithm {
        Algorithm::Crc32c => &CRC32C,
        Algorithm::Crc32 => &CRC32,
        _ => &CRC64_NVME,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CRCS: [Algorithm; 3] = [Algorithm::Crc64Nvme, Algorithm::Crc32c, Algorithm::Crc32];

    fn composite(algorithm: Algorithm, bytes: &[u8], part: usize) -> Stored {
        let digests: Vec<u8> =
            bytes.chunks(part).flat_map(|part| algorithm.digest(part).bytes().to_vec()).collect();
        let parts = u32::try_from(bytes.len().div_ceil(part)).expect("few");
        let digest = algorithm.digest(&digests);
        Stored { algorithm, form: Form::Composite { parts }, digest }
    }

    fn full(algorithm: Algorithm, bytes: &[u8]) -> Stored {
        Stored { algorithm, form: Form::FullObject, digest: algorithm.digest(bytes) }
    }

    #[test]
    fn shifts_agree_with_the_library() {
        for algorithm in CRCS {
            let crc = algorithm.crc().expect("a CRC");
            let one = crc_fast::checksum(crc, b"one");
            for length in [0, 1, 2, 7, 4096, (1 << 20) + 13, (1 << 53) - 1] {
                // The other half of the combination is the CRC of no bytes, which is 0.
                let expected = crc_fast::checksum_combine(crc, one, 0, length);
                assert_eq!(field(algorithm).shift(one, length), expected, "{algorithm} {length}");
            }
        }
    }

    #[test]
    fn pieces_come_in_any_order() {
        let bytes = b"12345678901";
        let cuts = [0..0, 0..3, 3..4, 4..11];
        for algorithm in CRCS {
            for stored in [full(algorithm, bytes), composite(algorithm, bytes, 4)] {
                for order in 0..24 {
                    let sum = Sum::new(stored, 11, 4).expect("it can be summed");
                    let mut left: Vec<_> = cuts.to_vec();
                    let mut order = order;
                    while !left.is_empty() {
                        assert!(sum.check().is_err() || left.len() == 1, "not all are there");
                        let piece = left.remove(order % left.len());
                        order /= left.len() + 1;
                        sum.add(piece.start as u64, &bytes[piece]);
                    }
                    assert_eq!(sum.check(), Ok(()), "{algorithm} {:?}", stored.form);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_summed() {
        let bytes = [7; 10];
        let check = |stored: Stored, part: u64, expected: bool| {
            assert_eq!(Sum::new(stored, 10, part).is_some(), expected, "{stored:?} {part}");
        };
        check(full(Algorithm::Sha256, &bytes), 10, false);
        check(full(Algorithm::Crc32, &bytes), 0, true);
        let three = composite(Algorithm::Crc32, &bytes, 4);
        for (part, expected) in [(0, false), (3, false), (4, true), (5, false), (11, false)] {
            check(three, part, expected);
        }
        check(composite(Algorithm::Crc32, &bytes, 10), 0, true);
    }

    proptest! {
        #[test]
        fn whatever_the_cuts_and_their_order(
            bytes in prop::collection::vec(any::<u8>(), 1..3000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            part in 1_usize..3000,
            seed: u64,
            wrong in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            ends.extend([0, bytes.len()]);
            ends.sort_unstable();
            let mut pieces: Vec<_> = ends.windows(2).map(|two| two[0]..two[1]).collect();
            // A different order for every seed.
            pieces.sort_by_key(|piece| (piece.start as u64 ^ seed).wrapping_mul(seed | 1));
            let mut received = bytes.clone();
            if let Some(wrong) = &wrong {
                received[wrong.index(bytes.len())] ^= 1 << (seed % 8);
            }
            for algorithm in CRCS {
                for stored in [full(algorithm, &bytes), composite(algorithm, &bytes, part)] {
                    let sum = Sum::new(stored, bytes.len() as u64, part as u64).expect("a CRC");
                    for piece in &pieces {
                        sum.add(piece.start as u64, &received[piece.clone()]);
                    }
                    prop_assert_eq!(sum.check().is_ok(), wrong.is_none());
                }
            }
        }
    }
}
