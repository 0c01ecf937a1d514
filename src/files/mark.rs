//! The mark of a complete file: which object it is, and the file's state when it was named. A later
//! run recognizes the file by it.
//!
//! Pure: bytes and decisions. [`crate::files::system_host`] reads and writes the files.

use sha2::{Digest, Sha256};

/// Version of the layout; other versions are not read.
const VERSION: u8 = 1;
/// Flag: the bytes were synced to the device before the file was named.
const DURABLE: u8 = 1;
/// The other bits of the flags hold the verdict; earlier versions left them 0.
const VERDICT_SHIFT: u32 = 1;
/// Length of a mark in bytes: with the attribute's name it fits a 256-byte inode of ext4.
pub const MARK_BYTES: usize = 50;

/// 128 bits of SHA-256 over the words that identify an object in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// Hashes words, each with its length, so that no two lists have the same input.
    #[must_use]
    pub fn of(words: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for word in words {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word.as_bytes());
        }
        let digest = hash.finalize();
        Self(digest[..16].try_into().expect("sixteen of thirty-two"))
    }

    /// Its first 64 bits.
    #[must_use]
    pub fn short(self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight of sixteen"))
    }
}

/// A point in time within one boot of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// A digest of the kernel's boot identifier.
    pub boot: u64,
    /// Milliseconds since the boot, suspended time included.
    pub since_ms: u64,
}

/// Length of a moment in bytes.
pub const MOMENT_BYTES: usize = 16;

impl Moment {
    /// Serializes it.
    #[must_use]
    pub fn encode(self) -> [u8; MOMENT_BYTES] {
        let mut bytes = [0; MOMENT_BYTES];
        bytes[..8].copy_from_slice(&self.boot.to_le_bytes());
        bytes[8..].copy_from_slice(&self.since_ms.to_le_bytes());
        bytes
    }

    /// Parses [`MOMENT_BYTES`] bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MOMENT_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        Some(Self { boot: word(0), since_ms: word(8) })
    }
}

/// The mark of a complete file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The object's size in bytes.
    pub size_bytes: u64,
    /// The object.
    pub identity: Identity,
    /// The file's modification time when it was marked, in nanoseconds since the Epoch.
    pub changed_ns: i64,
    /// When it was marked.
    pub moment: Moment,
    /// The bytes had been synced.
    pub durable: bool,
    /// How the bytes were verified, by [`crate::checksum::unverified`]; 0 if unknown.
    pub verdict: u8,
}

impl Mark {
    /// Serializes it.
    #[must_use]
    pub fn encode(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[0] = VERSION;
        bytes[1] = (self.verdict << VERDICT_SHIFT) | (u8::from(self.durable) * DURABLE);
        bytes[2..10].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[10..26].copy_from_slice(&self.identity.0);
        bytes[26..34].copy_from_slice(&self.changed_ns.to_le_bytes());
        bytes[34..42].copy_from_slice(&self.moment.boot.to_le_bytes());
        bytes[42..50].copy_from_slice(&self.moment.since_ms.to_le_bytes());
        bytes
    }

    /// Parses a mark; `None` if the bytes are no mark of this version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().expect("eight bytes");
        if bytes[0] != VERSION {
            return None;
        }
        Some(Self {
            size_bytes: u64::from_le_bytes(word(2)),
            identity: Identity(bytes[10..26].try_into().expect("sixteen bytes")),
            changed_ns: i64::from_le_bytes(word(26)),
            moment: Moment {
                boot: u64::from_le_bytes(word(34)),
                since_ms: u64::from_le_bytes(word(42)),
            },
            durable: bytes[1] & DURABLE != 0,
            verdict: bytes[1] >> VERDICT_SHIFT,
        })
    }

    /// True if the bytes must be on the disk: they were synced, or written in this boot. After a
    /// power failure a name may have outlived its bytes. `synced`: moments of syncs of the whole
    /// file system.
    #[must_use]
    pub fn is_believed(&self, boot: u64, synced: &[Moment]) -> bool {
        let Moment { boot: mine, since_ms } = self.moment;
        self.durable
            || mine == boot
            || synced.iter().any(|sync| sync.boot == mine && since_ms < sync.since_ms)
    }
}

/// First bytes of an index record.
const INDEX_MAGIC: &[u8; 4] = b"irm1";
/// Length of an index record in bytes: magic, path, mark, check.
const INDEX_RECORD_BYTES: usize = 4 + 16 + MARK_BYTES + 8;

/// Index record for file systems without attributes: the mark of the file at this path; `None` for
/// the record of a sync.
#[must_use]
pub fn index_record(path: Option<&str>, mark: &Mark) -> [u8; INDEX_RECORD_BYTES] {
    let mut bytes = [0; INDEX_RECORD_BYTES];
    bytes[..4].copy_from_slice(INDEX_MAGIC);
    bytes[4..20].copy_from_slice(&place(path).0);
    bytes[20..20 + MARK_BYTES].copy_from_slice(&mark.encode());
    let check = check(&bytes[..20 + MARK_BYTES]);
    bytes[20 + MARK_BYTES..].copy_from_slice(&check);
    bytes
}

/// Index record of a sync of the whole file system.
#[must_use]
pub fn sync_record(moment: Moment) -> [u8; INDEX_RECORD_BYTES] {
    let (size_bytes, changed_ns, identity) = (0, 0, Identity::of(&[]));
    index_record(
        None,
        &Mark { size_bytes, identity, changed_ns, moment, durable: true, verdict: 0 },
    )
}

/// Digest of a path; a sync has that of an empty list.
fn place(path: Option<&str>) -> Identity {
    path.map_or_else(|| Identity::of(&[]), |path| Identity::of(&[path]))
}

fn check(bytes: &[u8]) -> [u8; 8] {
    Sha256::digest(bytes)[..8].try_into().expect("eight of thirty-two")
}

/// Calls `take` with each valid record of an index, oldest first, and skips all other bytes.
pub fn replay_index(bytes: &[u8], mut take: impl FnMut(Option<Identity>, Mark)) {
    let mut rest = bytes;
    while rest.len() >= INDEX_RECORD_BYTES {
        let record = &rest[..INDEX_RECORD_BYTES];
        let (body, own) = record.split_at(20 + MARK_BYTES);
        let mark = Mark::decode(&body[20..])
            .filter(|_| record.starts_with(INDEX_MAGIC) && check(body) == own);
        let Some(mark) = mark else {
            rest = &rest[1..];
            continue;
        };
        let path = Identity(body[4..20].try_into().expect("sixteen bytes"));
        take(Some(path).filter(|path| *path != place(None)), mark);
        rest = &rest[INDEX_RECORD_BYTES..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            size_bytes: 1 << 40,
            identity: Identity::of(&["bucket", "key", "\"etag\""]),
            changed_ns: 1_700_000_000_123_456_789,
            moment: Moment { boot: 7, since_ms: 5000 },
            durable: false,
            verdict: 0,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for durable in [false, true] {
            let mark = Mark { durable, ..mark() };
            assert_eq!(Mark::decode(&mark.encode()), Some(mark));
        }
        let bytes = mark().encode();
        for length in 0..bytes.len() {
            assert_eq!(Mark::decode(&bytes[..length]), None, "{length}");
        }
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(Mark::decode(&other), None, "another version");
        // An earlier version, which stored no verdict.
        assert_eq!((bytes[1], mark().verdict), (0, 0));
        for (verdict, durable) in [(1, false), (16, true), (127, true)] {
            let mark = Mark { verdict, durable, ..mark() };
            assert_eq!(Mark::decode(&mark.encode()), Some(mark));
        }
        const { assert!(MARK_BYTES < 64) };
    }

    #[test]
    fn words_are_distinguished() {
        assert_eq!(Identity::of(&["a", "b"]), Identity::of(&["a", "b"]));
        for other in [&["ab", ""][..], &["", "ab"], &["a", "b", ""], &["a", "c"]] {
            assert_ne!(Identity::of(&["a", "b"]), Identity::of(other), "{other:?}");
        }
    }

    #[test]
    fn bytes_that_a_power_loss_may_have_taken_are_not_believed() {
        let synced = |boot, since_ms| [Moment { boot, since_ms }];
        assert!(mark().is_believed(7, &[]), "nothing was lost since");
        assert!(!mark().is_believed(8, &[]), "the machine has started anew");
        assert!(Mark { durable: true, ..mark() }.is_believed(8, &[]));
        assert!(mark().is_believed(8, &synced(7, 5001)), "synced afterwards");
        assert!(!mark().is_believed(8, &synced(7, 5000)), "not surely before the sync");
        assert!(!mark().is_believed(8, &synced(6, 9000)), "a sync of another time");
    }

    #[test]
    fn an_index_is_read_over_torn_and_garbled_records() {
        let (one, two) = (mark(), Mark { size_bytes: 9, ..mark() });
        let sync = Moment { boot: 3, since_ms: 4 };
        let records =
            [index_record(Some("a/b"), &one), sync_record(sync), index_record(Some("c"), &two)];
        let mut bytes = Vec::new();
        for record in &records {
            bytes.extend(record);
            bytes.extend(&record[..40]);
        }
        let read = |bytes: &[u8]| {
            let mut seen = Vec::new();
            replay_index(bytes, |path, mark| seen.push((path, mark)));
            seen
        };
        let seen = read(&bytes);
        assert_eq!(seen.len(), 3);
        assert_eq!(seen[0], (Some(Identity::of(&["a/b"])), one));
        assert_eq!((seen[1].0, seen[1].1.moment), (None, sync));
        assert_eq!(seen[2], (Some(Identity::of(&["c"])), two));
        for at in 0..INDEX_RECORD_BYTES {
            let mut garbled = records[0];
            garbled[at] ^= 1;
            assert_eq!(read(&garbled), [], "byte {at}");
        }
    }
}
