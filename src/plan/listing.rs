//! A compact listing to be sorted: one record per object, all texts in one buffer.
//!
//! It holds what a stream needs of an object: key, ETag, size, version and endpoint. An object
//! takes [`OBJECT_BYTES`], including its index in the order, plus the bytes of its key. An ETag
//! that is an MD5, or one of parts (`"HEX-COUNT"`), is in the record; any other follows the key,
//! and the record has its length. Buffers grow by an eighth, so at most that much is reserved in
//! vain, and are reused for the next epoch's listing.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::s3::{Endpoint, Object};

/// Bytes per object in addition to its key: the record, and its index in the order.
pub const OBJECT_BYTES: u64 = (size_of::<Record>() + size_of::<u32>()) as u64;

/// Smallest growth of a buffer, in elements.
const GROWTH_MIN: usize = 1024;

/// Marks an ETag that is stored in the text.
const ETAG_IN_TEXT: u16 = u16::MAX;

/// One object.
#[derive(Debug, Clone, Copy)]
struct Record {
    size_bytes: u64,
    /// Offset of its key in the text; ETag and version may follow.
    text_at: u64,
    /// The MD5 of an ETag, or the length of another ETag in the first two bytes.
    etag: [u8; 16],
    key_length: u16,
    version_length: u16,
    /// Number of parts of the ETag, or 0.
    etag_parts: u16,
    endpoint: u16,
}

/// The objects of one epoch.
#[derive(Debug)]
pub struct Listing {
    records: Vec<Record>,
    text: String,
    endpoints: Vec<Arc<Endpoint>>,
    bytes_max: u64,
}

impl Listing {
    /// An empty listing that may take `bytes_max` bytes.
    #[must_use]
    pub const fn new(bytes_max: u64) -> Self {
        Self { records: Vec::new(), text: String::new(), endpoints: Vec::new(), bytes_max }
    }

    /// Number of objects.
    ///
    /// # Panics
    /// Never: `push` bounds it.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.records.len()).expect("`push` counts in 32 bits")
    }

    /// Memory use in bytes, including the indexes of an order.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.records.len() as u64 * OBJECT_BYTES + self.text.len() as u64
    }

    /// Frees memory reserved for more objects.
    pub fn shrink(&mut self) {
        self.records.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    /// Removes the objects and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.text.clear();
        self.endpoints.clear();
    }

    /// Appends an object.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there are too many to be sorted.
    pub fn push(&mut self, object: &Object, endpoint: &Arc<Endpoint>) -> Result<()> {
        let md5 = md5_of(&object.etag);
        let beside = if md5.is_some() { "" } else { object.etag.as_str() };
        let texts = [object.key.as_str(), beside, object.version_id.as_str()];
        let Some([key_length, etag_length, version_length]) = lengths(texts) else {
            return Err(Error::new(ErrorKind::Endpoint, "a key or an ETag is over 65,535 bytes"));
        };
        let text_bytes = texts.iter().map(|text| text.len()).sum::<usize>();
        let bytes = self.bytes() + OBJECT_BYTES + text_bytes as u64;
        if bytes > self.bytes_max || self.records.len() == u32::MAX as usize {
            return Err(self.refusal());
        }
        let endpoint = self.endpoint_number(endpoint)?;
        let (etag, etag_parts) = md5.unwrap_or_else(|| {
            let mut etag = [0; 16];
            etag[..2].copy_from_slice(&etag_length.to_le_bytes());
            (etag, ETAG_IN_TEXT)
        });
        let text_at = self.text.len() as u64;
        if self.text.capacity() - self.text.len() < text_bytes {
            self.text.reserve_exact(growth(self.text.len()).max(text_bytes));
        }
        texts.iter().for_each(|text| self.text.push_str(text));
        if self.records.capacity() == self.records.len() {
            self.records.reserve_exact(growth(self.records.len()));
        }
        self.records.push(Record {
            size_bytes: object.size_bytes,
            text_at,
            etag,
            key_length,
            version_length,
            etag_parts,
            endpoint,
        });
        Ok(())
    }

    fn refusal(&self) -> Error {
        let message = format!(
            "more than {} objects cannot be sorted: their listing needs over {} bytes",
            self.records.len(),
            self.bytes_max
        );
        Error::new(ErrorKind::Usage, message)
            .advise("omit --shuffle-seed, give fewer sources, or store fewer, larger objects")
    }

    /// The endpoint's index; adds it if it is new.
    fn endpoint_number(&mut self, endpoint: &Arc<Endpoint>) -> Result<u16> {
        let known = self.endpoints.iter().rposition(|known| Arc::ptr_eq(known, endpoint));
        let number = known.unwrap_or(self.endpoints.len());
        if number == self.endpoints.len() {
            self.endpoints.push(Arc::clone(endpoint));
        }
        u16::try_from(number)
            .map_err(|_| Error::new(ErrorKind::Usage, "more than 65,536 buckets are given"))
    }

    /// Sorts the objects by the bytes of their keys.
    pub fn sort(&mut self) {
        let Self { records, text, .. } = self;
        records.sort_unstable_by(|one, other| one.key(text).cmp(other.key(text)));
    }

    /// An object as listed, without its time and checksum.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn object(&self, index: u32) -> Object {
        let record = &self.records[index as usize];
        let key = record.key(&self.text);
        let (etag, rest) = record.etag(&self.text[record.text_start() + key.len()..]);
        Object {
            key: key.to_owned(),
            etag,
            size_bytes: record.size_bytes,
            version_id: rest[..usize::from(record.version_length)].to_owned(),
            ..Object::default()
        }
    }

    /// Index of the object with this key, in a listing sorted by [`Self::sort`].
    #[must_use]
    pub fn find(&self, key: &str) -> Option<u32> {
        let found = self.records.binary_search_by(|record| record.key(&self.text).cmp(key));
        u32::try_from(found.ok()?).ok()
    }

    /// Key of the object pushed last.
    #[must_use]
    pub fn last_key(&self) -> Option<&str> {
        self.records.last().map(|record| record.key(&self.text))
    }

    /// Its key and its size.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn key(&self, index: u32) -> (&str, u64) {
        let record = &self.records[index as usize];
        (record.key(&self.text), record.size_bytes)
    }

    /// An object's endpoint.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn endpoint(&self, index: u32) -> &Arc<Endpoint> {
        &self.endpoints[usize::from(self.records[index as usize].endpoint)]
    }
}

impl Record {
    fn text_start(&self) -> usize {
        usize::try_from(self.text_at).expect("it was a length in memory")
    }

    fn key<'a>(&self, text: &'a str) -> &'a str {
        let start = self.text_start();
        &text[start..start + usize::from(self.key_length)]
    }

    /// The ETag, and the text after it.
    fn etag<'a>(&self, text: &'a str) -> (String, &'a str) {
        match self.etag_parts {
            ETAG_IN_TEXT => {
                let length = u16::from_le_bytes([self.etag[0], self.etag[1]]);
                let (etag, rest) = text.split_at(usize::from(length));
                (etag.to_owned(), rest)
            }
            0 => (format!("\"{}\"", hex::encode(self.etag)), text),
            parts => (format!("\"{}-{parts}\"", hex::encode(self.etag)), text),
        }
    }
}

/// Growth of a buffer of this length, in elements.
pub(super) fn growth(length: usize) -> usize {
    (length / 8).max(GROWTH_MIN)
}

fn lengths(texts: [&str; 3]) -> Option<[u16; 3]> {
    let [key, etag, version] = texts.map(|text| u16::try_from(text.len()).ok());
    Some([key?, etag?, version?])
}

/// MD5 and number of parts of an ETag that can be rebuilt from them exactly.
fn md5_of(etag: &str) -> Option<([u8; 16], u16)> {
    let inner = etag.strip_prefix('"')?.strip_suffix('"')?;
    let (md5, parts) = match inner.split_once('-') {
        None => (inner, 0),
        Some((md5, count)) => {
            let parts: u16 = count.parse().ok()?;
            let canonical = (1..ETAG_IN_TEXT).contains(&parts) && parts.to_string() == count;
            (md5, canonical.then_some(parts)?)
        }
    };
    let mut bytes = [0; 16];
    hex::decode_to_slice(md5, &mut bytes).ok()?;
    (!md5.bytes().any(|byte| byte.is_ascii_uppercase())).then_some((bytes, parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(bucket: &str) -> Arc<Endpoint> {
        Arc::new(Endpoint::new(bucket, false, "h", "/", "r", vec![]))
    }

    fn object(key: &str, etag: &str) -> Object {
        Object { key: key.to_owned(), etag: etag.to_owned(), size_bytes: 7, ..Object::default() }
    }

    const MD5: &str = "\"0123456789abcdef0123456789abcdef\"";

    #[test]
    fn objects_come_back_as_they_were() {
        let mut objects: Vec<Object> = [
            "",
            MD5,
            "\"0123456789abcdef0123456789abcdef-1\"",
            "\"0123456789abcdef0123456789abcdef-10000\"",
            "\"0123456789abcdef0123456789abcdef-65534\"",
            "\"0123456789abcdef0123456789abcdef-65535\"",
            "\"0123456789abcdef0123456789abcdef-0\"",
            "\"0123456789abcdef0123456789abcdef-01\"",
            "\"0123456789abcdef0123456789abcdef-+1\"",
            "\"0123456789abcdef0123456789abcdef-\"",
            "\"0123456789ABCDEF0123456789abcdef\"",
            "\"0123456789abcdef0123456789abcde\"",
            "W/\"0123456789abcdef0123456789abcdef\"",
            "0123456789abcdef0123456789abcdef",
            "\"\"",
            "\"",
            "\"etag ü\"",
        ]
        .iter()
        .enumerate()
        .map(|(number, etag)| object(&format!("k/ü{number}"), etag))
        .collect();
        objects[1].version_id = "V1".to_owned();
        objects[6].version_id = "V2".to_owned();
        objects[3].size_bytes = u64::MAX;
        objects.push(object(&"x".repeat(1024), MD5));
        let mut listing = Listing::new(1 << 20);
        let buckets = [endpoint("one"), endpoint("two")];
        for _ in 0..2 {
            for (number, object) in objects.iter().enumerate() {
                listing.push(object, &buckets[number % 2]).expect("there is room");
            }
            assert_eq!(listing.count() as usize, objects.len());
            for (index, object) in (0..).zip(&objects) {
                assert_eq!(listing.object(index), *object);
                let bucket = &buckets[index as usize % 2];
                assert!(Arc::ptr_eq(listing.endpoint(index), bucket), "{index}");
            }
            // The next epoch's listing in the same memory.
            listing.clear();
            assert_eq!((listing.count(), listing.bytes()), (0, 0));
        }
    }

    #[test]
    fn an_object_takes_its_key_and_44_bytes() {
        assert_eq!(OBJECT_BYTES, 44);
        let count = 200_000u32;
        let bucket = endpoint("b");
        let mut listing = Listing::new(1 << 30);
        for number in 0..count {
            let parts = if number % 2 == 0 { MD5.to_owned() } else { MD5.replace("f\"", "f-9\"") };
            listing
                .push(&object(&format!("train/{number:010}.jpg"), &parts), &bucket)
                .expect("room");
        }
        assert_eq!(listing.bytes(), u64::from(count) * (20 + 44));
        // Including reserved memory: at most an eighth more.
        let reserved = listing.records.capacity() * 40 + listing.text.capacity();
        assert!(reserved as u64 <= u64::from(count) * (20 + 40) * 9 / 8, "{reserved}");
        let mut odd = Listing::new(1 << 20);
        odd.push(&object("key", "\"odd\""), &bucket).expect("room");
        assert_eq!(odd.bytes(), 44 + 3 + 5, "another ETag stands beside its key");
    }

    #[test]
    fn too_many_are_a_usage_error() {
        let bucket = endpoint("b");
        let mut listing = Listing::new(3 * (44 + 5));
        for key in ["a/000", "a/001", "a/002"] {
            listing.push(&object(key, MD5), &bucket).expect("room");
        }
        let error = listing.push(&object("a", MD5), &bucket).expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("more than 3 objects cannot be sorted"), "{error}");
        assert!(error.to_string().contains("--shuffle-seed"), "{error}");
        assert_eq!(listing.count(), 3, "nothing was taken by halves");
        let long = object(&"k".repeat(65_536), MD5);
        let error = Listing::new(1 << 20).push(&long, &bucket).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Endpoint);
    }

    #[test]
    fn it_is_sorted_by_the_bytes_of_keys() {
        let bucket = endpoint("b");
        let mut listing = Listing::new(1 << 20);
        for key in ["b", "a/b", "ü", "a", "Z", "a-", "a/", "b/1"] {
            listing.push(&object(key, MD5), &bucket).expect("room");
        }
        listing.sort();
        let keys: Vec<String> = (0..8).map(|index| listing.object(index).key).collect();
        assert_eq!(keys, ["Z", "a", "a-", "a/", "a/b", "b", "b/1", "ü"]);
        assert_eq!(listing.last_key(), Some("ü"));
        for (index, key) in (0..).zip(&keys) {
            assert_eq!(listing.find(key), Some(index));
        }
        for key in ["", "A", "a/b/", "c", "ü "] {
            assert_eq!(listing.find(key), None, "{key}");
        }
    }
}
