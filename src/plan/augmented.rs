//! An augmented manifest: JSON Lines, each line an object with attributes, of which some are named
//! to be streamed, in the order of their names.
//!
//! An attribute whose name ends in `-ref` stands for the bytes of an object of S3, whose address is
//! its value. Of any other the value itself is meant: of a string its text, of everything else the
//! JSON as it was written. Names are case-sensitive; of one that a line has twice the last counts.
//!
//! The text stays in memory as it is, with the place of each line: epochs want any order. So do the
//! numbers of the keys ([`super::named`]).

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

/// How the name of an attribute ends that stands for an object of S3.
const REFERENCE_SUFFIX: &str = "-ref";

/// A manifest whose lines all have the attributes that are wanted.
#[derive(Debug)]
pub struct AugmentedManifest {
    /// What it is called in errors.
    name: String,
    text: Vec<u8>,
    /// Where each line begins, empty ones left out.
    starts: Vec<u64>,
    attributes: Vec<String>,
    /// A reference into each bucket.
    buckets: Vec<S3Uri>,
    named: Arc<Named>,
    /// Bytes of the values of all lines that are no objects.
    text_bytes: u64,
}

impl AugmentedManifest {
    /// Takes a text that has been read from `name`, and looks at every line.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] that names the first line that is wrong, or when there is none.
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

    /// How many lines there are.
    ///
    /// # Panics
    /// Never: none has more.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.starts.len()).expect("`new` counts in 32 bits")
    }

    /// How many objects each line names.
    #[must_use]
    pub fn references(&self) -> usize {
        self.attributes.iter().filter(|name| name.ends_with(REFERENCE_SUFFIX)).count()
    }

    /// Bytes of the values of all lines, without records around them; `None` where some are those
    /// of objects.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        (self.references() == 0).then_some(self.text_bytes)
    }

    /// An address in each bucket that it names.
    #[must_use]
    pub fn buckets(&self) -> &[S3Uri] {
        &self.buckets
    }

    /// The keys of all objects that its lines name.
    #[must_use]
    pub fn named(&self) -> Arc<Named> {
        Arc::clone(&self.named)
    }

    /// What a line adds to the stream, in order.
    ///
    /// # Panics
    /// When there is no such line.
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

    /// Where a value stands, for people: the file, the line as they count, the attribute.
    ///
    /// # Panics
    /// When there is no such value.
    #[must_use]
    pub fn place(&self, index: u32, attribute: usize) -> String {
        let before = &self.text[..self.start(index)];
        let number = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("{}, line {number}, attribute '{}'", self.name, self.attributes[attribute])
    }
}

/// What one attribute adds to the stream.
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
/// What is wrong with the line, in words that name the attribute.
fn values<'a>(line: &'a [u8], names: &[String]) -> Result<Vec<Value<'a>>, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut json = Deserializer::from_str(line);
    let found = json.deserialize_map(Wanted(names)).and_then(|found| json.end().map(|()| found));
    let found = found.map_err(|error| format!("it is no JSON object: {error}"))?;
    let value = |(name, raw): (&String, Option<&'a RawValue>)| {
        let raw = raw.ok_or_else(|| format!("it has no attribute '{name}'"))?;
        let told = |why| format!("attribute '{name}': {why}");
        if name.ends_with(REFERENCE_SUFFIX) {
            return reference(raw).map(Box::new).map(Value::Reference).map_err(told);
        }
        text(raw).map(Value::Text).map_err(told)
    };
    names.iter().zip(found).map(value).collect()
}

/// The text of a string; of anything else the JSON.
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

/// Takes the values of these names out of an object.
struct Wanted<'n>(&'n [String]);

impl<'de> Visitor<'de> for Wanted<'_> {
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

    fn told(line: &str, names: &[&str]) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let told = |value: &Value<'_>| match value {
            Value::Text(text) => text.to_string(),
            Value::Reference(uri) => format!("-> {uri}"),
        };
        Ok(values(line.as_bytes(), &names)?.iter().map(told).collect())
    }

    #[test]
    fn values_come_in_the_order_of_the_names_and_as_they_were_written() {
        let line = r#" {"source-ref": "s3://bkt/a b/\u00fc.jpg", "class":"0", "id": 1e3,
            "box": {"a" : [1, 2 ], "b":null}, "list":[ ], "other": {"x": 1},
            "told":"say \"hi\"\n\u20ac", "\u0063aps": true, "none":null} "#;
        let check = |names: &[&str], expected: &[&str]| {
            assert_eq!(told(line, names).expect("values"), expected, "{names:?}");
        };
        check(&["source-ref", "class"], &["-> s3://bkt/a b/ü.jpg", "0"]);
        check(&["class", "source-ref", "class"], &["0", "-> s3://bkt/a b/ü.jpg", "0"]);
        check(&["box", "list", "id"], &[r#"{"a" : [1, 2 ], "b":null}"#, "[ ]", "1e3"]);
        check(&["told", "caps", "none"], &["say \"hi\"\n€", "true", "null"]);
        assert_eq!(told(r#"{"a":1,"a":"2"}"#, &["a"]).expect("the last"), ["2"]);
        assert_eq!(told(r#"{"a":"","b":"\\"}"#, &["a", "b"]).expect("texts"), ["", "\\"]);
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
    fn the_first_wrong_line_is_told_and_bounds_hold() {
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
    fn what_is_wrong_is_told_with_its_attribute() {
        let check = |line: &str, expected: &str| {
            let error = told(line, &["a-ref", "b"]).expect_err(line);
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
