//! The keys that a manifest's lines name, stored compactly for comparison with a listing: a hash
//! per key, and the few folders that contain them all.
//!
//! A hash has 64 bits, 8 bytes per key. If two keys collide, a listed key may count as named
//! although it is not: that costs an unnecessary record and does no harm.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

use super::listing::growth;
use crate::limits::NAMED_FOLDERS_MAX;

/// The keys of a manifest, by bucket.
#[derive(Debug, Default)]
pub struct Named {
    buckets: BTreeMap<String, NamedKeys>,
}

impl Named {
    /// Adds a key; call [`Self::finish`] after the last one.
    pub fn push(&mut self, bucket: &str, key: &str) {
        if let Some(keys) = self.buckets.get_mut(bucket) {
            return keys.push(key);
        }
        let mut keys = NamedKeys::default();
        keys.push(key);
        self.buckets.insert(bucket.to_owned(), keys);
    }

    /// Sorts the keys for look-ups.
    pub fn finish(&mut self) {
        for keys in self.buckets.values_mut() {
            keys.numbers.sort_unstable();
            keys.numbers.dedup();
            keys.numbers.shrink_to_fit();
        }
    }

    /// The keys of each bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (&str, &NamedKeys)> {
        self.buckets.iter().map(|(bucket, keys)| (bucket.as_str(), keys))
    }

    /// The keys of this bucket.
    #[must_use]
    pub fn bucket(&self, bucket: &str) -> Option<&NamedKeys> {
        self.buckets.get(bucket)
    }
}

/// The keys of one bucket.
#[derive(Debug)]
pub struct NamedKeys {
    numbers: Vec<u64>,
    /// Number of references, including repeated ones.
    references: u64,
    /// Folders, and how many references precede the first one into each.
    folders: BTreeMap<String, u64>,
    /// Most slashes in a folder's name; deeper folders are merged into it.
    depth: usize,
}

impl Default for NamedKeys {
    fn default() -> Self {
        let (numbers, folders) = (Vec::new(), BTreeMap::new());
        Self { numbers, references: 0, folders, depth: usize::MAX }
    }
}

impl NamedKeys {
    fn push(&mut self, key: &str) {
        if self.numbers.len() == self.numbers.capacity() {
            self.numbers.reserve_exact(growth(self.numbers.len()));
        }
        self.numbers.push(number(key));
        let place = self.references;
        self.references += 1;
        let folder = folder_of(key, self.depth);
        if self.folders.contains_key(folder) {
            return;
        }
        self.folders.insert(folder.to_owned(), place);
        while self.folders.len() > NAMED_FOLDERS_MAX {
            self.join();
        }
    }

    /// Merges the deepest folders into their parents.
    fn join(&mut self) {
        let slashes = |folder: &String| folder.matches('/').count();
        self.depth = self.folders.keys().map(slashes).max().map_or(0, |most| most - 1);
        let mut joined: BTreeMap<String, u64> = BTreeMap::new();
        for (folder, first) in &self.folders {
            let known = joined.entry(folder_of(folder, self.depth).to_owned()).or_insert(*first);
            *known = (*first).min(*known);
        }
        self.folders = joined;
    }

    /// Number of references, including repeated ones.
    #[must_use]
    pub const fn references(&self) -> u64 {
        self.references
    }

    /// Number of different keys.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// True if this key is named.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.numbers.binary_search(&number(key)).is_ok()
    }

    /// Disjoint folders that contain all keys, in the order of the first reference into each. Each
    /// ends in a slash, or is empty: then it is the whole bucket.
    #[must_use]
    pub fn folders(&self) -> Vec<String> {
        let mut disjoint: Vec<(u64, &str)> = Vec::new();
        // Content of a folder sorts after it.
        for (folder, first) in &self.folders {
            match disjoint.last_mut() {
                Some(last) if folder.starts_with(last.1) => last.0 = last.0.min(*first),
                _ => disjoint.push((*first, folder)),
            }
        }
        disjoint.sort_unstable();
        disjoint.into_iter().map(|(_, folder)| folder.to_owned()).collect()
    }
}

fn number(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key.as_bytes());
    hasher.finish()
}

/// The folder of a key, with at most `depth` slashes.
fn folder_of(key: &str, depth: usize) -> &str {
    let end = match depth {
        usize::MAX => key.rfind('/'),
        _ => key.match_indices('/').take(depth).last().map(|(at, _)| at),
    };
    end.map_or("", |at| &key[..=at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(keys: &[String]) -> Named {
        let mut named = Named::default();
        keys.iter().for_each(|key| named.push("bkt", key));
        named.finish();
        named
    }

    fn folders(keys: &[&str]) -> Vec<String> {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        named(&keys).bucket("bkt").expect("keys").folders()
    }

    #[test]
    fn keys_are_known_and_counted() {
        let keys: Vec<String> = (0..5_000).map(|number| format!("a/{:05}", number / 2)).collect();
        let named = named(&keys);
        let bucket = named.bucket("bkt").expect("keys");
        assert_eq!((bucket.references(), bucket.count()), (5_000, 2_500));
        assert!(keys.iter().all(|key| bucket.has(key)));
        assert!(!bucket.has("a/02500") && !bucket.has("") && !bucket.has("00000"));
        assert!(named.bucket("other").is_none());
        assert!(named.buckets().map(|(name, _)| name).eq(["bkt"]));
        assert_eq!(bucket.numbers.capacity(), 2_500, "8 bytes each");
    }

    #[test]
    fn folders_are_those_of_the_keys_in_the_order_of_their_first_ones() {
        assert_eq!(folders(&["z/1", "a/b/1", "z/2", "a/c/1", "a/b/2"]), ["z/", "a/b/", "a/c/"]);
        assert_eq!(folders(&["a/b/c/1", "x/1", "a/1", "a/b/2"]), ["a/", "x/"], "none in another");
        assert_eq!(folders(&["a/1", "a-/1", "a/b/1"]), ["a/", "a-/"]);
        assert_eq!(folders(&["a/1", "top", "b/2"]), [""], "the bucket itself has one");
        assert_eq!(folders(&["/a", "//b"]), ["/"]);
        assert_eq!(folders(&["d/ü/1", "d/ü/2"]), ["d/ü/"]);
    }

    #[test]
    fn many_folders_are_named_by_those_above_them() {
        let keys = |count: usize, folder: fn(usize) -> String| {
            let keys: Vec<String> = (0..count).map(|at| format!("{}{at}", folder(at))).collect();
            named(&keys).bucket("bkt").expect("keys").folders()
        };
        let most = NAMED_FOLDERS_MAX;
        assert_eq!(keys(most, |at| format!("train/{at:02}/")).len(), most);
        assert_eq!(keys(most + 1, |at| format!("train/{at:02}/")), ["train/"]);
        let two = keys(1000, |at| format!("{}/{at}/x/", ["val", "all/train"][at % 2]));
        assert_eq!(two, ["val/", "all/"]);
        assert_eq!(keys(1000, |at| format!("{at}/")), [""]);
        let halves = keys(1000, |at| format!("{}/{at}/", if at < 500 { "b" } else { "a" }));
        assert_eq!(halves, ["b/", "a/"]);
        // Of merged folders, the first reference is not into the first one by name.
        let later = keys(100, |at| match at {
            1 => "a/1/".to_owned(),
            _ => format!("b/{}/", 999 - at),
        });
        assert_eq!(later, ["b/", "a/"]);
    }
}
