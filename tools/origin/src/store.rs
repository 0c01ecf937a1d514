//! Which buckets and objects exist: files below a folder, bytes in memory, synthetic sets.
//!
//! Keys are strings in the order of their UTF-8 bytes, which is S3's order. A synthetic set is
//! never written out: its keys are computed from an index, so a million of them cost nothing.
//!
//! Not here: the order and pages of a listing (`list.rs`), and how bytes leave (`body.rs`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::iter::Peekable;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::checksum::{
    ChecksumAlgorithm, ChecksumKind, ChecksumPolicy, Parts, StoredChecksum, Sums, combined, encoded,
};
use crate::config::{Config, ObjectContent, ObjectSpec, SyntheticSet};
use crate::error::Error;
use crate::map::map_file;
use crate::request::KEY_BYTES_MAX;
use crate::signature::hex;
use crate::source::Source;
use crate::synthetic::{fingerprint, index, seed_of};

/// When everything that is not a file was "written": 2024-01-01T00:00:00Z, the same on every run.
const FIXED_SECONDS: i64 = 1_704_067_200;
/// Folders below the root are followed so deep; a link that points upwards would never end.
const FOLDER_DEPTH_MAX: usize = 64;
/// Mapped files are kept, so that a range does not pay for a mapping; half of the 65,530 mappings
/// that the kernel allows a process.
const MAPPED_FILES_MAX: usize = 32_768;

/// All buckets.
#[derive(Debug, Default)]
pub(crate) struct Store {
    buckets: BTreeMap<String, Bucket>,
    mapped: Mutex<Mapped>,
    /// What objects are uploaded with that do not say otherwise.
    checksum: Option<ChecksumPolicy>,
    md5_etags: bool,
    sums: Sums,
}

/// One bucket: what is held by name, and the sets that are computed.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    held: BTreeMap<String, Held>,
    sets: Vec<SyntheticSet>,
    /// Further headers of the few objects that have some.
    headers: BTreeMap<String, HeaderMap>,
    /// The checksums of those that are not as the configuration has all others.
    checksums: BTreeMap<String, StoredChecksum>,
}

#[derive(Debug)]
enum Held {
    Memory { bytes: Bytes, etag: String },
    File { path: PathBuf, length_bytes: u64, modified_nanoseconds: i128 },
    Synthetic { length_bytes: u64 },
}

/// What HEAD and a listing say about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) length_bytes: u64,
    /// Without the quotes.
    pub(crate) etag: String,
    pub(crate) modified_seconds: i64,
}

/// How the bytes of an answer were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Whole,
    /// By a Range header.
    Range,
    /// By `partNumber`.
    Part,
}

/// Files that are mapped already, oldest first.
#[derive(Debug, Default)]
struct Mapped {
    files: HashMap<PathBuf, Bytes>,
    order: VecDeque<PathBuf>,
}

impl Store {
    /// Everything that the configuration names; the root is walked once.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mut store =
            Self { checksum: config.checksum, md5_etags: config.md5_etags, ..Self::default() };
        if let Some(root) = &config.root {
            store.add_root(root).map_err(|(path, source)| Error::Root { path, source })?;
        }
        for set in &config.synthetic {
            store.buckets.entry(set.bucket.clone()).or_default().sets.push(set.clone());
        }
        for object in &config.objects {
            store.add_object(object)?;
        }
        Ok(store)
    }

    pub(crate) fn bucket(&self, name: &str) -> Option<&Bucket> {
        self.buckets.get(name)
    }

    /// The names of all buckets, in order.
    pub(crate) fn bucket_names(&self) -> impl Iterator<Item = &str> {
        self.buckets.keys().map(String::as_str)
    }

    pub(crate) fn add_object(&mut self, object: &ObjectSpec) -> Result<(), Error> {
        let length_bytes = object.key.len();
        if length_bytes == 0 || length_bytes > KEY_BYTES_MAX {
            let (bucket, key) = (object.bucket.clone(), object.key.clone());
            return Err(Error::Key { bucket, key, length_bytes });
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &object.headers {
            let (Ok(known), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) else {
                let (bucket, key) = (object.bucket.clone(), object.key.clone());
                return Err(Error::Header { bucket, key, name: name.clone() });
            };
            headers.append(known, value);
        }
        let held = match &object.content {
            ObjectContent::Bytes(bytes) => {
                let etag = hex(&Sha256::digest(bytes)[..16]);
                Held::Memory { bytes: bytes.clone(), etag }
            }
            ObjectContent::Synthetic { length_bytes } => {
                Held::Synthetic { length_bytes: *length_bytes }
            }
        };
        self.sums.forget(&object.bucket, &object.key);
        let bucket = self.buckets.entry(object.bucket.clone()).or_default();
        bucket.held.insert(object.key.clone(), held);
        bucket.headers.remove(&object.key);
        bucket.checksums.remove(&object.key);
        if object.checksum != StoredChecksum::Configured {
            bucket.checksums.insert(object.key.clone(), object.checksum);
        }
        if !headers.is_empty() {
            bucket.headers.insert(object.key.clone(), headers);
        }
        Ok(())
    }

    /// Takes an object away that is held by name; true when it was there.
    pub(crate) fn remove(&mut self, bucket: &str, key: &str) -> bool {
        self.sums.forget(bucket, key);
        let Some(bucket) = self.buckets.get_mut(bucket) else { return false };
        bucket.headers.remove(key);
        bucket.checksums.remove(key);
        bucket.held.remove(key).is_some()
    }

    /// The bytes of an object that [`Bucket::about`] knows.
    pub(crate) fn source(&self, bucket: &Bucket, key: &str) -> io::Result<Source> {
        match bucket.held.get(key) {
            Some(Held::Memory { bytes, .. }) => Ok(Source::Bytes(bytes.clone())),
            Some(Held::File { path, length_bytes, .. }) => {
                let mut mapped = self.mapped.lock().unwrap_or_else(|broken| broken.into_inner());
                mapped.map(path, *length_bytes).map(Source::Bytes)
            }
            Some(Held::Synthetic { .. }) | None => Ok(Source::Synthetic { seed: seed_of(key) }),
        }
    }

    /// How the object was uploaded.
    pub(crate) fn policy(&self, bucket: &Bucket, key: &str) -> Option<ChecksumPolicy> {
        match bucket.checksums.get(key) {
            None | Some(StoredChecksum::Configured) => self.checksum,
            Some(StoredChecksum::Nothing) => None,
            Some(StoredChecksum::Of(policy)) => Some(*policy),
        }
    }

    /// The parts that the object was uploaded in; `None`: in one piece.
    pub(crate) fn parts(&self, bucket: &Bucket, key: &str, length_bytes: u64) -> Option<Parts> {
        let part_bytes = self.policy(bucket, key)?.part_bytes?;
        Some(Parts::new(part_bytes, length_bytes))
    }

    /// The ETag as S3 would have it: with the number of parts, and of the content if wanted.
    pub(crate) fn etag(
        &self,
        (bucket_name, bucket): (&str, &Bucket),
        key: &str,
        about: &About,
    ) -> io::Result<String> {
        let parts = self.parts(bucket, key, about.length_bytes);
        let mut etag = about.etag.clone();
        if self.md5_etags {
            let pieces = parts.unwrap_or_else(|| one_piece(about.length_bytes));
            let source = self.source(bucket, key)?;
            let sums = self.sums.get((bucket_name, key), ChecksumAlgorithm::Md5, &pieces, &source);
            let sums = sums.wait();
            etag = hex(&if parts.is_some() {
                combined(ChecksumAlgorithm::Md5, sums)
            } else {
                sums[0].clone()
            });
        }
        if let Some(parts) = parts {
            etag.push_str(&format!("-{}", parts.count()));
        }
        Ok(etag)
    }

    /// What S3 says of the checksum in an answer with these bytes; `None`: nothing. `ranged`: by
    /// a header, `numbered`: by the number of a part.
    pub(crate) fn checksum(
        &self,
        (bucket_name, bucket): (&str, &Bucket),
        key: &str,
        about: &About,
        range: &std::ops::Range<u64>,
        how: Asked,
    ) -> io::Result<Option<(ChecksumPolicy, String)>> {
        let Some(policy) = self.policy(bucket, key) else { return Ok(None) };
        let sum = policy.algorithm;
        let one = one_piece(about.length_bytes);
        let parts = self.parts(bucket, key, about.length_bytes).unwrap_or(one);
        let whole = *range == (0..about.length_bytes);
        let composite = policy.kind == ChecksumKind::Composite;
        let number = parts.number_of(range).filter(|_| composite && how != Asked::Whole);
        if !whole && number.is_none() {
            return Ok(None);
        }
        let pieces = if composite { parts } else { one };
        let sums = self.sums.get((bucket_name, key), sum, &pieces, &self.source(bucket, key)?);
        let sums = sums.wait();
        let value = match number {
            Some(number) => encoded(&sums[index(number - 1)]),
            None if !composite => encoded(&sums[0]),
            // Asked for the whole as a range, S3 leaves the number of parts out.
            None if how == Asked::Range => encoded(&combined(sum, sums)),
            None => format!("{}-{}", encoded(&combined(sum, sums)), parts.count()),
        };
        Ok(Some((policy, value)))
    }

    fn add_root(&mut self, root: &Path) -> Result<(), (PathBuf, io::Error)> {
        for (name, path) in entries(root)? {
            if path.is_dir() {
                let bucket = self.buckets.entry(name).or_default();
                bucket.add_folder(&path, "", FOLDER_DEPTH_MAX)?;
            }
        }
        Ok(())
    }
}

impl Bucket {
    /// What is known of the object, or `None` if there is no such key.
    pub(crate) fn about(&self, key: &str) -> Option<About> {
        if let Some(held) = self.held.get(key) {
            return Some(held.about(key));
        }
        self.sets.iter().find(|set| set.contains(key)).map(|set| synthetic(key, set.length_bytes))
    }

    /// Headers that an object was given.
    pub(crate) fn headers(&self, key: &str) -> Option<&HeaderMap> {
        self.headers.get(key)
    }

    /// All objects from `start` on, in order.
    pub(crate) fn scan(&self, start: Bound<&str>) -> Scan<'_> {
        let held = self.held.range::<str, _>((start, Bound::Unbounded)).peekable();
        let sets = self.sets.iter().map(|set| SetCursor::new(set, start)).collect();
        Scan { held, sets }
    }

    fn add_folder(
        &mut self,
        folder: &Path,
        prefix: &str,
        depth_left: usize,
    ) -> Result<(), (PathBuf, io::Error)> {
        let fail = |path: &Path, why| (path.to_owned(), io::Error::other(why));
        if depth_left == 0 {
            return Err(fail(folder, "folders are nested too deep"));
        }
        for (name, path) in entries(folder)? {
            let metadata = std::fs::metadata(&path).map_err(|error| (path.clone(), error))?;
            let key = format!("{prefix}{name}");
            if metadata.is_dir() {
                self.add_folder(&path, &format!("{key}/"), depth_left - 1)?;
            } else if key.len() > KEY_BYTES_MAX {
                return Err(fail(&path, "its key would be longer than 1024 bytes"));
            } else if metadata.is_file() {
                let modified_nanoseconds = nanoseconds(metadata.modified().unwrap_or(UNIX_EPOCH));
                let length_bytes = metadata.len();
                self.held.insert(key, Held::File { path, length_bytes, modified_nanoseconds });
            }
        }
        Ok(())
    }
}

impl Held {
    fn about(&self, key: &str) -> About {
        match self {
            Self::Memory { bytes, etag } => About {
                length_bytes: bytes.len() as u64,
                etag: etag.clone(),
                modified_seconds: FIXED_SECONDS,
            },
            Self::File { length_bytes, modified_nanoseconds, .. } => {
                let seconds = modified_nanoseconds.div_euclid(1_000_000_000);
                let version = format!("{key}\0{modified_nanoseconds}");
                About {
                    length_bytes: *length_bytes,
                    etag: etag_of(&version, *length_bytes),
                    modified_seconds: i64::try_from(seconds).unwrap_or(FIXED_SECONDS),
                }
            }
            Self::Synthetic { length_bytes } => synthetic(key, *length_bytes),
        }
    }
}

impl Mapped {
    fn map(&mut self, path: &Path, length_bytes: u64) -> io::Result<Bytes> {
        if let Some(bytes) = self.files.get(path) {
            return Ok(bytes.clone());
        }
        let bytes = map_file(path, length_bytes)?;
        if self.order.len() >= MAPPED_FILES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            // Bodies that still send it hold their own share of the mapping.
            self.files.remove(&oldest);
        }
        self.files.insert(path.to_owned(), bytes.clone());
        self.order.push_back(path.to_owned());
        Ok(bytes)
    }
}

/// The objects of a bucket in order, merged from what is held and what is computed.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    held: Peekable<std::collections::btree_map::Range<'a, String, Held>>,
    sets: Vec<SetCursor<'a>>,
}

/// The next key of a set, if there is one.
#[derive(Debug)]
struct SetCursor<'a> {
    set: &'a SyntheticSet,
    index: u64,
    key: Option<String>,
}

impl<'a> SetCursor<'a> {
    fn new(set: &'a SyntheticSet, start: Bound<&str>) -> Self {
        let index = match start {
            Bound::Unbounded => 0,
            Bound::Included(bound) | Bound::Excluded(bound) => set.lower_bound(bound),
        };
        let mut cursor = Self { set, index, key: None };
        cursor.look();
        if let (Bound::Excluded(bound), Some(key)) = (start, &cursor.key)
            && key == bound
        {
            cursor.advance();
        }
        cursor
    }

    fn look(&mut self) {
        self.key = (self.index < self.set.count).then(|| self.set.key(self.index));
    }

    fn advance(&mut self) -> Option<String> {
        let key = self.key.take();
        self.index += 1;
        self.look();
        key
    }
}

impl Iterator for Scan<'_> {
    type Item = (String, About);

    fn next(&mut self) -> Option<Self::Item> {
        let held = self.held.peek().map(|(key, _)| key.as_str());
        let computed = self.sets.iter().filter_map(|cursor| cursor.key.as_deref()).min();
        let least = match (held, computed) {
            (Some(held), Some(computed)) => held.min(computed),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return None,
        };
        let least = least.to_owned();
        let mut about = None;
        for cursor in &mut self.sets {
            // A key of two sets is one object, that of the first.
            if cursor.key.as_deref() == Some(&least) {
                let length_bytes = cursor.set.length_bytes;
                cursor.advance();
                about = about.or_else(|| Some(synthetic(&least, length_bytes)));
            }
        }
        // An object held by name hides a computed one.
        if let Some((key, held)) = self.held.next_if(|(key, _)| **key == least) {
            about = Some(held.about(key));
        }
        about.map(|about| (least, about))
    }
}

fn synthetic(key: &str, length_bytes: u64) -> About {
    let etag = etag_of(key, length_bytes);
    About { length_bytes, etag, modified_seconds: FIXED_SECONDS }
}

/// 32 digits like an MD5, which S3's ETags usually are, made from what identifies the content.
fn etag_of(identity: &str, length_bytes: u64) -> String {
    let first = fingerprint(identity.as_bytes(), length_bytes);
    let second = fingerprint(identity.as_bytes(), !length_bytes);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[8..].copy_from_slice(&second.to_be_bytes());
    hex(&bytes)
}

/// An upload that was not in parts.
fn one_piece(length_bytes: u64) -> Parts {
    let part_bytes = std::num::NonZeroU64::new(length_bytes).unwrap_or(std::num::NonZeroU64::MIN);
    Parts { part_bytes, length_bytes }
}

fn nanoseconds(time: SystemTime) -> i128 {
    let signed = |duration: std::time::Duration| i128::try_from(duration.as_nanos()).unwrap_or(0);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => signed(after),
        Err(before) => -signed(before.duration()),
    }
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, (PathBuf, io::Error)> {
    let fail = |error| (folder.to_owned(), error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err((path, io::Error::other("its name is not UTF-8, so it is no S3 key")));
        };
        found.push((name.to_owned(), path));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        let mut config = Config::default();
        config.synthetic.push(SyntheticSet::new("b", "s/", 5, 10));
        config.synthetic.push(SyntheticSet::new("b", "t/", 200_000, 39 << 10));
        for key in ["a", "s/000001.bin", "s/0000015", "z"] {
            config.objects.push(ObjectSpec::new("b", key, &b"held"[..]));
        }
        Store::new(&config).unwrap()
    }

    #[test]
    fn scans_are_merged_sorted_and_without_doubles() {
        let store = store();
        let bucket = store.bucket("b").unwrap();
        let all: Vec<_> = bucket.scan(Bound::Unbounded).collect();
        assert_eq!(all.len(), 200_005 + 3);
        assert!(all.is_sorted_by(|left, right| left.0 < right.0));
        let held = all.iter().find(|(key, _)| key == "s/000001.bin").unwrap();
        assert_eq!(held.1.length_bytes, 4, "what is held by name wins");
        for (key, about) in all.iter().step_by(9973) {
            assert_eq!(bucket.about(key).as_ref(), Some(about));
            let from = bucket.scan(Bound::Included(key)).next().unwrap();
            assert_eq!(&from.0, key);
            assert_ne!(
                bucket.scan(Bound::Excluded(key)).next().map(|next| next.0).as_ref(),
                Some(key)
            );
        }
        assert_eq!(bucket.about("s/5"), None);
    }

    #[test]
    fn files_are_objects() {
        let root = std::env::temp_dir().join(format!("inrush-origin-store-{}", std::process::id()));
        std::fs::create_dir_all(root.join("bucket/folder/.deep")).unwrap();
        std::fs::write(root.join("bucket/folder/.deep/a b+c"), b"hello").unwrap();
        std::fs::write(root.join("bucket/empty"), b"").unwrap();
        std::fs::write(root.join("no-bucket"), b"").unwrap();
        let config = Config { root: Some(root.clone()), ..Config::default() };
        let store = Store::new(&config).unwrap();
        let bucket = store.bucket("bucket").unwrap();
        let keys: Vec<_> = bucket.scan(Bound::Unbounded).map(|(key, _)| key).collect();
        assert_eq!(keys, ["empty", "folder/.deep/a b+c"]);
        let Source::Bytes(bytes) = store.source(bucket, "folder/.deep/a b+c").unwrap() else {
            panic!("a file is not synthetic")
        };
        assert_eq!(bytes, "hello");
        assert!(
            matches!(store.source(bucket, "empty"), Ok(Source::Bytes(empty)) if empty.is_empty())
        );
        assert!(store.bucket("no-bucket").is_none());
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn keys_are_bounded() {
        let mut store = Store::default();
        for length in [0, 1025] {
            let (bucket, key) = ("b".to_owned(), "k".repeat(length));
            let content = ObjectContent::Synthetic { length_bytes: 1 };
            assert!(store.add_object(&ObjectSpec::new(bucket, key, content)).is_err());
        }
    }
}
