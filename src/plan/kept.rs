//! A compact listing that is kept from the first pass for the download that follows.
//!
//! In addition to [`Listing`] it stores what files need: where in the key the object's path begins,
//! its time, and its listed checksum. An object takes [`KEPT_OBJECT_BYTES`] plus the bytes of its
//! key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::epoch::Shard;
use super::listing::{Listing, OBJECT_BYTES, growth};
use crate::error::{Error, Result};
use crate::s3::{Endpoint, ListedChecksum, Object, is_folder_mark};

/// Bytes per object in addition to its key.
pub const KEPT_OBJECT_BYTES: u64 = OBJECT_BYTES + size_of::<More>() as u64;

/// An object's data for files.
#[derive(Debug, Clone, Copy)]
struct More {
    /// Time in whole seconds since the Epoch, or [`ODD_TIME`].
    seconds: i64,
    /// Offset in the key at which its path below the destination begins.
    path_start: u16,
    checksum: ListedChecksum,
}

/// The time is stored as text in [`KeptListing::odd_times`].
const ODD_TIME: i64 = i64::MIN;

/// Objects in listing order.
#[derive(Debug)]
pub struct KeptListing {
    listing: Listing,
    more: Vec<More>,
    /// Times that are not whole seconds, by object index.
    odd_times: BTreeMap<u32, String>,
    odd_bytes: u64,
}

impl Default for KeptListing {
    fn default() -> Self {
        // The caller bounds its size.
        let listing = Listing::new(u64::MAX);
        Self { listing, more: Vec::new(), odd_times: BTreeMap::new(), odd_bytes: 0 }
    }
}

impl KeptListing {
    /// Number of objects.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.listing.count()
    }

    /// Memory use in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.listing.bytes() + size_of_val(self.more.as_slice()) as u64 + self.odd_bytes
    }

    /// Appends an object whose path is its key from byte `path_start` on.
    ///
    /// # Errors
    /// The errors of [`Listing::push`].
    pub fn push(
        &mut self,
        object: &Object,
        endpoint: &Arc<Endpoint>,
        path_start: usize,
    ) -> Result<()> {
        let number = self.listing.count();
        // Refuses keys that are too long for `path_start`.
        self.listing.push(object, endpoint)?;
        let path_start = u16::try_from(path_start)
            .map_err(|_| Error::bug("a path begins behind the end of its key"))?;
        let plain = object.modified_seconds();
        let plain = plain.filter(|seconds| iso_time(*seconds) == object.last_modified);
        if plain.is_none() && !object.last_modified.is_empty() {
            let text = object.last_modified.clone();
            // Approximate overhead of a map entry in addition to the text.
            self.odd_bytes += text.len() as u64 + 48;
            self.odd_times.insert(number, text);
        }
        if self.more.capacity() == self.more.len() {
            self.more.reserve_exact(growth(self.more.len()));
        }
        let seconds = plain.unwrap_or(ODD_TIME);
        self.more.push(More { seconds, path_start, checksum: object.checksum });
        Ok(())
    }

    /// Frees memory reserved for more objects.
    pub fn shrink(&mut self) {
        self.listing.shrink();
        self.more.shrink_to_fit();
    }

    /// An object as pushed, and where its path begins in its key.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn object(&self, index: u32) -> (Object, usize) {
        let More { seconds, path_start, checksum } = self.more[index as usize];
        let last_modified = match seconds {
            ODD_TIME => self.odd_times.get(&index).cloned().unwrap_or_default(),
            seconds => iso_time(seconds),
        };
        let object = Object { last_modified, checksum, ..self.listing.object(index) };
        (object, usize::from(path_start))
    }

    /// Its key and its size.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn key(&self, index: u32) -> (&str, u64) {
        self.listing.key(index)
    }

    /// Its path below the destination.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn path(&self, index: u32) -> &str {
        &self.key(index).0[self.path_start(index)..]
    }

    /// Where its path begins in its key.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn path_start(&self, index: u32) -> usize {
        usize::from(self.more[index as usize].path_start)
    }

    /// Its time in whole seconds since the Epoch, if known.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn seconds(&self, index: u32) -> Option<i64> {
        match self.more[index as usize].seconds {
            ODD_TIME => {
                let last_modified = self.odd_times.get(&index)?.clone();
                Object { last_modified, ..Object::default() }.modified_seconds()
            }
            seconds => Some(seconds),
        }
    }

    /// Paths and sizes of the files of this shard. Folder markers are neither returned nor counted.
    pub fn files(&self, shard: Shard) -> impl Iterator<Item = (&str, u64)> {
        let all = (0..self.count()).map(|index| (index, self.key(index)));
        let files = all.filter(|(_, (key, size_bytes))| !is_folder_mark(key, *size_bytes));
        let mine = files.zip(0..).filter(move |(_, place)| shard.takes(*place));
        mine.map(|((index, (key, size_bytes)), _)| {
            (&key[usize::from(self.more[index as usize].path_start)..], size_bytes)
        })
    }

    /// An object's endpoint.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn endpoint(&self, index: u32) -> &Arc<Endpoint> {
        self.listing.endpoint(index)
    }
}

/// A time in the format of S3 listings.
fn iso_time(seconds: i64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs());
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn objects_come_back_as_they_were_listed() {
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let named = ListedChecksum::Named { composite: true, crc: true };
        let object = |key: &str, etag: &str, last_modified: &str, checksum| Object {
            key: key.to_owned(),
            etag: etag.to_owned(),
            size_bytes: key.len() as u64,
            last_modified: last_modified.to_owned(),
            version_id: String::new(),
            checksum,
            web: None,
        };
        let md5 = "\"0123456789abcdef0123456789abcdef-12\"";
        let objects = [
            object("a/b", md5, "2024-01-01T00:00:00.000Z", named),
            object("a/c/", "odd", "2024-01-01T00:00:00.123Z", ListedChecksum::Unnamed),
            object("d", "", "yesterday", ListedChecksum::NotListed),
            object("e", "", "", ListedChecksum::Named { composite: false, crc: false }),
            object("ü", "", "1970-01-01T00:00:00.000Z", ListedChecksum::NotListed),
        ];
        let mut kept = KeptListing::default();
        for (start, object) in (0..).zip(&objects) {
            kept.push(object, &endpoint, start).expect("short");
        }
        for (index, object) in (0..).zip(&objects) {
            assert_eq!(kept.object(index), (object.clone(), index as usize));
            assert_eq!(kept.key(index), (object.key.as_str(), object.size_bytes));
            assert_eq!(kept.endpoint(index).bucket, "bkt");
        }
        assert_eq!(kept.count(), 5);
    }

    #[test]
    fn a_part_has_its_files_and_marks_are_none() {
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let mut kept = KeptListing::default();
        for (key, size_bytes) in [("a/b", 1), ("a/c/", 0), ("a/c/d", 2), ("a/e", 0), ("a/f", 4)] {
            let object = Object { key: key.to_owned(), size_bytes, ..Object::default() };
            kept.push(&object, &endpoint, 2).expect("short");
        }
        let files = |index| kept.files(Shard { index, count: 2 }).collect::<Vec<_>>();
        assert_eq!(files(0), [("b", 1), ("e", 0)]);
        assert_eq!(files(1), [("c/d", 2), ("f", 4)]);
    }

    #[test]
    fn a_key_that_is_too_long_is_the_servers_fault() {
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let object = Object { key: "k".repeat(70_000), ..Object::default() };
        let error = KeptListing::default().push(&object, &endpoint, 69_000).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Endpoint, "{error}");
    }

    #[test]
    fn an_object_takes_what_is_documented() {
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let mut kept = KeptListing::default();
        for number in 0..1000 {
            let object = Object {
                key: format!("{number:060}"),
                etag: "\"0123456789abcdef0123456789abcdef\"".to_owned(),
                last_modified: "2024-01-01T00:00:00.000Z".to_owned(),
                ..Object::default()
            };
            kept.push(&object, &endpoint, 0).expect("short");
        }
        assert_eq!(kept.bytes(), 1000 * (KEPT_OBJECT_BYTES + 60));
        assert_eq!(KEPT_OBJECT_BYTES, 60, "the guide says what a million keys cost");
    }
}
