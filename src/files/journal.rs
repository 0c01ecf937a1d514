//! Journal of a large object's unfinished file: which bytes it has. A header, then one record per
//! range.
//!
//! Pure: bytes in and out. A record says that a range is complete, or how many bytes are written at
//! its start. Of several records of a range the largest counts, since written bytes stay. Records
//! are appended, so a journal may be torn at its end; records with a wrong checksum are not
//! trusted. Damage is distinguished from a journal of another object.

use sha2::{Digest, Sha256};

use crate::files::mark::Identity;
use crate::plan::ranges::{ALIGNMENT_BYTES, RangeSet};

const MAGIC: &[u8; 8] = b"inrushjn";
/// Version 1 recorded only complete ranges, and had a checksum in place of the count of bytes.
const VERSION: u32 = 2;
/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 60;
/// Length of a record in bytes.
pub const RECORD_BYTES: usize = 20;
/// In a record: the range is complete.
pub const WHOLE: u64 = u64::MAX;

/// Identity of a journal. A journal with another header says nothing about the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Digest of the boot ID at the time of writing: the bytes are not synced.
    pub boot: u64,
    /// The object.
    pub identity: Identity,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Length of its ranges in bytes.
    pub part_bytes: u64,
}

impl Header {
    /// Serializes it.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.boot.to_le_bytes());
        bytes[20..36].copy_from_slice(&self.identity.0);
        bytes[36..44].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.part_bytes.to_le_bytes());
        let check = check(&[&bytes[..52]]);
        bytes[52..].copy_from_slice(&check);
        bytes
    }

    fn ranges(&self) -> u64 {
        self.size_bytes.div_ceil(self.part_bytes.max(1))
    }

    /// Length of a range in bytes; `None` if the object has no such range.
    fn length_of(&self, index: u64) -> Option<u64> {
        let left = self.size_bytes.checked_sub(index.checked_mul(self.part_bytes)?)?;
        Some(left.min(self.part_bytes)).filter(|length| *length > 0)
    }
}

/// Record of a range: index, bytes at its start (or [`WHOLE`]), and a check over both and the
/// header.
#[must_use]
pub fn record(header: &[u8; HEADER_BYTES], index: u32, prefix_bytes: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..4].copy_from_slice(&index.to_le_bytes());
    bytes[4..12].copy_from_slice(&prefix_bytes.to_le_bytes());
    let check = check(&[header, &bytes[..12]]);
    bytes[12..].copy_from_slice(&check);
    bytes
}

/// First 64 bits of SHA-256: foreign bytes do not pass by chance.
fn check(pieces: &[&[u8]]) -> [u8; 8] {
    let mut hash = Sha256::new();
    pieces.iter().for_each(|piece| hash.update(piece));
    hash.finalize()[..8].try_into().expect("eight of thirty-two")
}

/// Why a journal cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unfit {
    /// Missing, of another version, torn, or corrupt.
    Damaged,
    /// The object has changed since.
    Changed,
    /// The object was cut into ranges of another length.
    Cut,
    /// The machine has rebooted, and the bytes were not synced.
    Rebooted,
    /// The files of these names belong to another user, or inrush did not create them.
    Foreign,
}

impl Unfit {
    /// The reason in words.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Damaged => "their journal is missing or damaged",
            Self::Changed => "the object has changed",
            Self::Cut => "the part size was different",
            Self::Rebooted => "the machine was rebooted before the data was synced",
            Self::Foreign => "their temporary names are used by files of another user",
        }
    }
}

/// Length of the ranges according to the journal; `None` if it is missing or damaged.
#[must_use]
pub fn part_bytes(bytes: &[u8]) -> Option<u64> {
    let header = bytes.get(..HEADER_BYTES)?;
    let is_right = check(&[&header[..52]]) == header[52..];
    let part = header[44..52].try_into().expect("eight bytes");
    is_right.then_some(u64::from_le_bytes(part))
}

/// The ranges, whole and partial, that a journal records for exactly this header. A torn last
/// record is ignored. A record with a wrong check or impossible values invalidates the whole
/// journal.
///
/// # Errors
/// Why it cannot be used.
pub fn replay(bytes: &[u8], expected: &Header) -> Result<RangeSet, Unfit> {
    let header = bytes.get(..HEADER_BYTES).ok_or(Unfit::Damaged)?;
    let right: &[u8; HEADER_BYTES] = header.try_into().expect("as long");
    if check(&[&right[..52]]) != right[52..] || right[..12] != expected.encode()[..12] {
        return Err(Unfit::Damaged);
    }
    let own = expected.encode();
    if right[20..44] != own[20..44] {
        return Err(Unfit::Changed);
    }
    if right[44..52] != own[44..52] {
        return Err(Unfit::Cut);
    }
    if right[12..20] != own[12..20] {
        return Err(Unfit::Rebooted);
    }
    let mut done = RangeSet::none(expected.ranges());
    for bytes in bytes[HEADER_BYTES..].chunks_exact(RECORD_BYTES) {
        let index = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        let prefix_bytes = u64::from_le_bytes(bytes[4..12].try_into().expect("eight bytes"));
        let right = record(&own, index, prefix_bytes) == bytes;
        let index = u64::from(index);
        let Some(length) = expected.length_of(index).filter(|_| right) else {
            return Err(Unfit::Damaged);
        };
        match prefix_bytes {
            WHOLE => done.insert(index),
            // The rest of a range starts at an aligned offset.
            _ if prefix_bytes > 0
                && prefix_bytes < length
                && prefix_bytes.is_multiple_of(ALIGNMENT_BYTES) =>
            {
                done.reach(index, prefix_bytes);
            }
            _ => return Err(Unfit::Damaged),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            boot: 77,
            identity: Identity::of(&["b", "k", "e"]),
            size_bytes: (200 << 20) + 5,
            part_bytes: 1 << 20,
        }
    }

    fn journal(indexes: &[u32]) -> Vec<u8> {
        journal_of(&indexes.iter().map(|index| (*index, WHOLE)).collect::<Vec<_>>())
    }

    fn journal_of(records: &[(u32, u64)]) -> Vec<u8> {
        let header = header().encode();
        let mut bytes = header.to_vec();
        records.iter().for_each(|(index, prefix)| bytes.extend(record(&header, *index, *prefix)));
        bytes
    }

    /// What the first of these records say.
    fn said(records: &[(u32, u64)]) -> RangeSet {
        let mut set = RangeSet::none(header().ranges());
        for (index, prefix_bytes) in records {
            match *prefix_bytes {
                WHOLE => set.insert(u64::from(*index)),
                prefix_bytes => set.reach(u64::from(*index), prefix_bytes),
            }
        }
        set
    }

    #[test]
    fn beginnings_of_ranges_are_replayed_and_the_most_counts() {
        let records = [(3, 8192), (5, 4096), (3, 4096), (9, 4096), (9, WHOLE), (5, 1 << 19)];
        let done = replay(&journal_of(&records), &header()).expect("good");
        let reached = [3, 5, 9, 10].map(|index| done.reached(index));
        assert_eq!((done.count(), reached), (1, [8192, 1 << 19, 0, 0]));
        assert!(done.contains(9));
        for (index, impossible) in
            [(3, 0), (3, 100), (3, 1 << 20), (3, 2 << 20), (200, 4096), (201, 4096), (3, WHOLE - 1)]
        {
            let bytes = journal_of(&[(1, WHOLE), (index, impossible)]);
            assert_eq!(replay(&bytes, &header()), Err(Unfit::Damaged), "{index} {impossible}");
        }
    }

    #[test]
    fn what_was_recorded_is_replayed() {
        let done = replay(&journal(&[3, 0, 200, 3]), &header()).expect("good");
        assert_eq!(done.count(), 3);
        let there: Vec<u64> = (0..300).filter(|index| done.contains(*index)).collect();
        assert_eq!(there, [0, 3, 200]);
        assert_eq!(replay(&journal(&[]), &header()).expect("good").count(), 0);
        assert_eq!(replay(&journal(&[201]), &header()), Err(Unfit::Damaged), "behind the end");
    }

    #[test]
    fn a_journal_of_something_else_says_nothing() {
        let bytes = journal(&[1, 2]);
        let check = |expected: Header, why: Unfit| {
            assert_eq!(replay(&bytes, &expected), Err(why));
        };
        check(Header { boot: 78, ..header() }, Unfit::Rebooted);
        check(Header { identity: Identity::of(&["b", "k", "f"]), ..header() }, Unfit::Changed);
        check(Header { size_bytes: 200 << 20, ..header() }, Unfit::Changed);
        check(Header { part_bytes: 2 << 20, ..header() }, Unfit::Cut);
        // Records of another journal behind a correct header.
        let other = Header { boot: 78, ..header() }.encode();
        let mut mixed = journal(&[1]);
        mixed.extend(record(&other, 5, WHOLE));
        assert_eq!(replay(&mixed, &header()), Err(Unfit::Damaged));
        // Another version with a correct check.
        for version in [1, 3] {
            let mut other = header().encode();
            other[8] = version;
            let right = super::check(&[&other[..52]]);
            other[52..].copy_from_slice(&right);
            assert_eq!(replay(&other, &header()), Err(Unfit::Damaged), "version {version}");
        }
    }

    #[test]
    fn the_length_of_ranges_is_read_where_the_header_is_whole() {
        let bytes = journal(&[1]);
        assert_eq!(part_bytes(&bytes), Some(1 << 20));
        assert_eq!(part_bytes(&bytes[..HEADER_BYTES - 1]), None);
        for at in 0..HEADER_BYTES {
            let mut garbled = bytes.clone();
            garbled[at] ^= 4;
            assert_eq!(part_bytes(&garbled), None, "byte {at}");
        }
    }

    #[test]
    fn every_end_and_every_wrong_byte() {
        let records = [(7, WHOLE), (0, 4096), (200, WHOLE), (31, 8192), (0, WHOLE)];
        let bytes = journal_of(&records);
        for end in 0..=bytes.len() {
            let mut expected = Err(Unfit::Damaged);
            if let Some(left) = end.checked_sub(HEADER_BYTES) {
                expected = Ok(said(&records[..left / RECORD_BYTES]));
            }
            assert_eq!(replay(&bytes[..end], &header()), expected, "{end} bytes");
        }
        for at in 0..bytes.len() {
            for wrong in 1..=u8::MAX {
                let mut garbled = bytes.clone();
                garbled[at] ^= wrong;
                assert!(replay(&garbled, &header()).is_err(), "byte {at}, {wrong:08b}");
            }
        }
    }

    proptest! {
        // The failing input is printed; it becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_torn_or_garbled_journal_claims_nothing_that_was_not_recorded(
            records in prop::collection::vec((0u32..200, 0u64..256), 0..20),
            cut in 0usize..600,
            flip in prop::option::of((0usize..600, 0u8..8)),
        ) {
            let length = |blocks: u64| if blocks == 0 { WHOLE } else { blocks * 4096 };
            let records: Vec<_> =
                records.into_iter().map(|(index, blocks)| (index, length(blocks))).collect();
            let mut bytes = journal_of(&records);
            let whole = (cut.min(bytes.len()).saturating_sub(HEADER_BYTES)) / RECORD_BYTES;
            bytes.truncate(cut.min(bytes.len()));
            if let Some((at, bit)) = flip && at < bytes.len() {
                bytes[at] ^= 1 << bit;
            }
            if let Ok(done) = replay(&bytes, &header()) {
                for index in 0..300u32 {
                    let claimed = done.contains(u64::from(index));
                    prop_assert!(!claimed || records.contains(&(index, WHOLE)), "{index}");
                    let reached = done.reached(u64::from(index));
                    prop_assert!(reached == 0 || records.contains(&(index, reached)), "{index}");
                }
                prop_assert_eq!(done, said(&records[..whole]));
            }
        }
    }
}
