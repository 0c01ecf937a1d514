//! An augmented manifest: JSON Lines whose objects have attributes, some of which are streamed, in
//! the order of the names given.
//!
//! The value of an attribute whose name ends in `-ref` is the address of an S3 object, whose bytes
//! are streamed. For other attributes the value itself is streamed: a string's text, otherwise the
//! JSON as written. Names are case-sensitive; if a line has a name twice, the last one counts.
//!
//! The text stays in memory with the offset of each line, because epochs may need any order, and
//! with the hashes of the keys ([`super::named`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserializer as _;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

use super::named::Named;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{AUGMENTED_BUCKETS_MAX, AUGMENTED_LINE_BYTES_MAX};
use crate::s3::uri::{KeyPattern, S3Uri};

/// Suffix of attributes that refer to S3 objects.
const REFERENCE_SUFFIX: &str = "-ref";

/// A manifest all of whose lines have the requested attributes.
#[derive(Debug)]
pub struct AugmentedManifest {
    /// Its name in errors.
    name: String,
    text: Vec<u8>,
    /// Offset of each non-empty line.
    starts: Vec<u64>,
    attributes: Vec<String>,
    /// One reference into each bucket.
    buckets: Vec<S3Uri>,
    named: Arc<Named>,
    /// Total bytes of the values that are not objects.
    text_bytes: u64,
}

impl AugmentedManifest {
    /// Takes a text that was read from `name`, and checks every line.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] with the first wrong line, or if there is no line.
    pub fn new(name: String, text: Vec<u8>, attributes: Vec<String>) -> Result<Self> {
        let refuse = |why: String| Error::new(ErrorKind::Usage, why);
        let (starts, buckets, named) = (Vec::new(), Vec::new(), Arc::default());
        let mut manifest = Self { name, text, starts, attributes, buckets, named, text_bytes: 0 };
        let (mut buckets, mut named) = (BTreeMap::new(), Named::default());
        let (mut start, mut text_bytes) = (0, 0);
        for (number, line) in (1u64..).zip(manifest.text.split_inclusive(|byte| *byte == b'\n')) {
            let at = |why: String| refuse(format!("{}, line {number}: {why}", manifest.name));
            if line.len() > AUGMENTED_LINE_BYTES_MAX {
                return Err(at(format!("it has more than {AUGMENTED_LINE_BYTES_MAX} bytes")));
            }
            if !line.trim_ascii().is_empty() {
                for value in values(line, &manifest.attributes).map_err(at)? {
                    let uri = match value {
                        Value::Reference(uri) => uri,
                        Value::Text(text) => {
                            text_bytes += text.len() as u64;
                            continue;
                        }
                    };
                    named.push(&uri.bucket, uri.literal_key());
                    if buckets.len() < AUGMENTED_BUCKETS_MAX || buckets.contains_key(&uri.bucket) {
                        buckets.entry(uri.bucket.clone()).or_insert(*uri);
                    } else {
                        let most = AUGMENTED_BUCKETS_MAX;
                        return Err(at(format!("with it there are more than {most} buckets")));
                    }
                }
                manifest.starts.push(start);
            }
            start += line.len() as u64;
        }
        if manifest.starts.is_empty() || u32::try_from(manifest.starts.len()).is_err() {
            let what = if manifest.starts.is_empty() { "no" } else { "too many" };
            return Err(refuse(format!("{}: it has {what} lines", manifest.name)));
        }
        named.finish();
        manifest.named = Arc::new(named);
        manifest.buckets = buckets.into_values().collect();
        manifest.text_bytes = text_bytes;
        Ok(manifest)
    }

    /// Number of lines.
    ///
    /// # Panics
    /// Never: `new` bounds it.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.starts.len()).expect("`new` counts in 32 bits")
    }

    /// Objects that each line names.
    #[must_use]
    pub fn references(&self) -> usize {
        self.attributes.iter().filter(|name| name.ends_with(REFERENCE_SUFFIX)).count()
    }

    /// Total bytes of all values, without record framing; `None` if some values are objects.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        (self.references() == 0).then_some(self.text_bytes)
    }

    /// One address in each bucket.
    #[must_use]
    pub fn buckets(&self) -> &[S3Uri] {
        &self.buckets
    }

    /// The keys of all objects that the lines name.
    #[must_use]
    pub fn named(&self) -> Arc<Named> {
        Arc::clone(&self.named)
    }

    /// The values of a line, in order.
    ///
    /// # Panics
    /// If there is no such line.
    #[must_use]
    pub fn values(&self, index: u32) -> Vec<Value<'_>> {
        let start = self.start(index);
        let rest = &self.text[start..];
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        values(&rest[..end], &self.attributes).expect("`new` has looked at it")
    }

    fn start(&self, index: u32) -> usize {
        usize::try_from(self.starts[index as usize]).expect("a place in memory")
    }

    /// The place of a value for messages: file, line number, attribute.
    ///
    /// # Panics
    /// If there is no such value.
    #[must_use]
    pub fn place(&self, index: u32, attribute: usize) -> String {
        let before = &self.text[..self.start(index)];
        let number = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{}, line {number}, attribute '{}'", self.name, self.attributes[attribute])
    }
}

/// One attribute's part of the stream.
#[derive(Debug)]
pub enum Value<'a> {
    /// This text.
    Text(Cow<'a, str>),
    /// The bytes of this object, which has a key.
    Reference(Box<S3Uri>),
}

/// The values of these attributes in a line, in the order of the names.
///
/// # Errors
/// What is wrong with the line, with the attribute's name.
fn values<'a>(line: &'a [u8], names: &[String]) -> Result<Vec<Value<'a>>, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut json = Deserializer::from_str(line);
    let found =
        json.deserialize_map(WantedNames(names)).and_then(|found| json.end().map(|()| found));
    let found = found.map_err(|error| format!("it is no JSON object: {error}"))?;
    let value = |(name, raw): (&String, Option<&'a RawValue>)| {
        let raw = raw.ok_or_else(|| format!("it has no attribute '{name}'"))?;
        let named = |why| format!("attribute '{name}': {why}");
        if name.ends_with(REFERENCE_SUFFIX) {
            return reference(raw).map(Box::new).map(Value::Reference).map_err(named);
        }
        text(raw).map(Value::Text).map_err(named)
    };
    names.iter().zip(found).map(value).collect()
}

/// The text of a string; other values as JSON.
fn text(raw: &RawValue) -> Result<Cow<'_, str>, String> {
    let json = raw.get();
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        None => Ok(Cow::Borrowed(json)),
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        Some(_) => serde_json::from_str(json).map(Cow::Owned).map_err(|error| error.to_string()),
    }
}

fn reference(raw: &RawValue) -> Result<S3Uri, String> {
    if !raw.get().starts_with('"') {
        return Err(format!("{} is no address: expected \"s3://BUCKET/KEY\"", raw.get()));
    }
    let uri = S3Uri::parse_raw(&text(raw)?).map_err(|error| error.to_string())?;
    match &uri.key {
        KeyPattern::Key(_) => Ok(uri),
        _ => Err(format!("{uri} is a folder, and the attribute stands for one object")),
    }
}

/// Deserializes the values of these names from a JSON object.
struct WantedNames<'n>(&'n [String]);

impl<'de> Visitor<'de> for WantedNames<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = vec![None; self.0.len()];
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let mut places = self.0.iter().enumerate().filter(|(_, name)| **name == *key);
            let Some((first, _)) = places.next() else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let raw = map.next_value::<&'de RawValue>().map_err(A::Error::custom)?;
            found[first] = Some(raw);
            places.for_each(|(place, _)| found[place] = Some(raw));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str, names: &[&str]) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let text_of = |value: &Value<'_>| match value {
            Value::Text(text) => text.to_string(),
            Value::Reference(uri) => format!("-> {uri}"),
        };
        Ok(values(line.as_bytes(), &names)?.iter().map(text_of).collect())
    }

    #[test]
    fn values_come_in_the_order_of_the_names_and_as_they_were_written() {
        let line = r#" {"source-ref": "s3://bkt/a b/\u00fc.jpg", "class":"0", "id": 1e3,
            "box": {"a" : [1, 2 ], "b":null}, "list":[ ], "other": {"x": 1},
            "text":"say \"hi\"\n\u20ac", "\u0063aps": true, "none":null} "#;
        let check = |names: &[&str], expected: &[&str]| {
            assert_eq!(texts(line, names).expect("values"), expected, "{names:?}");
        };
        check(&["source-ref", "class"], &["-> s3://bkt/a b/ü.jpg", "0"]);
        check(&["class", "source-ref", "class"], &["0", "-> s3://bkt/a b/ü.jpg", "0"]);
        check(&["box", "list", "id"], &[r#"{"a" : [1, 2 ], "b":null}"#, "[ ]", "1e3"]);
        check(&["text", "caps", "none"], &["say \"hi\"\n€", "true", "null"]);
        assert_eq!(texts(r#"{"a":1,"a":"2"}"#, &["a"]).expect("the last"), ["2"]);
        assert_eq!(texts(r#"{"a":"","b":"\\"}"#, &["a", "b"]).expect("texts"), ["", "\\"]);
    }

    fn manifest(text: &str, names: &[&str]) -> Result<AugmentedManifest> {
        let names = names.iter().map(ToString::to_string).collect();
        AugmentedManifest::new("list".to_owned(), text.as_bytes().to_vec(), names)
    }

    #[test]
    fn any_line_can_be_had() {
        let text = "\n{\"a\":1}\r\n  \n{\"a\":\"two\",\"b-ref\":\"\"}\n{\"a\":3}";
        let manifest = manifest(text, &["a"]).expect("three lines");
        assert_eq!((manifest.count(), manifest.buckets().len()), (3, 0));
        assert_eq!((manifest.references(), manifest.bytes()), (0, Some(1 + 3 + 1)));
        for (index, expected) in [(2, "3"), (0, "1"), (1, "two")] {
            let values = manifest.values(index);
            assert!(matches!(&values[..], [Value::Text(text)] if text == expected), "{values:?}");
        }
        assert_eq!(manifest.place(0, 0), "list, line 2, attribute 'a'");
        assert_eq!(manifest.place(2, 0), "list, line 5, attribute 'a'");
    }

    #[test]
    fn the_first_wrong_line_is_named_and_bounds_hold() {
        let check = |text: &str, names: &[&str], expected: &str| {
            let error = manifest(text, names).expect_err(expected);
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Usage, expected.to_owned()));
        };
        check("", &["a"], "list: it has no lines");
        check("\n \n", &["a"], "list: it has no lines");
        check("{\"a\":1}\n\n{\"b\":1}\n[", &["a"], "list, line 3: it has no attribute 'a'");
        let long = format!("{{\"a\":\"{}\"}}\n", "x".repeat(AUGMENTED_LINE_BYTES_MAX - 8));
        assert_eq!(long.len(), AUGMENTED_LINE_BYTES_MAX + 1);
        check(&long, &["a"], "list, line 1: it has more than 1048576 bytes");
        assert!(manifest(&long.replacen('x', "", 1), &["a"]).is_ok());
        let line = |bucket| format!("{{\"a-ref\":\"s3://bucket-{bucket}/k\"}}\n");
        let most: String = (0..AUGMENTED_BUCKETS_MAX).chain(0..9).map(line).collect();
        let widest = manifest(&most, &["a-ref"]).expect("as many");
        assert_eq!((widest.buckets().len(), widest.references()), (100, 1));
        assert_eq!(widest.bytes(), None, "objects are not asked about");
        let more = most + &line(100);
        check(&more, &["a-ref"], "list, line 110: with it there are more than 100 buckets");
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_attribute() {
        let check = |line: &str, expected: &str| {
            let error = texts(line, &["a-ref", "b"]).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        };
        check(r#"{"a-ref":"s3://bkt/k"}"#, "it has no attribute 'b'");
        check(r#"{"A-ref":"s3://bkt/k","b":1}"#, "it has no attribute 'a-ref'");
        check(r#"{"a-ref":7,"b":1}"#, "attribute 'a-ref': 7 is no address");
        check(r#"{"a-ref":"bkt/k","b":1}"#, "attribute 'a-ref': 'bkt/k' is not an S3 address");
        check(r#"{"a-ref":"s3://bkt/k/","b":1}"#, "s3://bkt/k/ is a folder");
        check(r#"{"a-ref":"s3://bkt","b":1}"#, "s3://bkt is a folder");
        check(r#"{"a-ref":"s3://bkt/k","b":"\ud800"}"#, "attribute 'b': ");
        check("[1]", "it is no JSON object: ");
        check(r#"{"b":1"#, "it is no JSON object: ");
        check(r#"{"a-ref":"s3://bkt/k","b":1} x"#, "it is no JSON object: ");
        let error = values(b"{\"b\":\"\xff\"}", &["b".to_owned()]).expect_err("no text");
        assert_eq!(error, "it is not UTF-8");
    }
}
