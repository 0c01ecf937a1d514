//! `ManifestFile` of a SageMaker channel: a JSON list of objects.
//!
//! ```json
//! [ {"prefix": "s3://bucket/some/prefix/"}, "relative/a", "relative/b" ]
//! ```
//!
//! Every other entry is appended to the first one's prefix character by character, so a prefix
//! without a trailing slash is the start of names. Each of them is one object, in this order
//! (`S3DataSource` of Amazon's `CreateTrainingJob` API).

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::epoch::Shard;
use super::filter::Filter;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::{KeyPattern, S3Uri};

/// Longest error text in characters: a key, and some more.
const WHY_CHARS_MAX: usize = 1_000;

/// Which part of a key is its path below the destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// The entry: what follows the prefix.
    #[default]
    Relative,
    /// The whole key, as a user of SageMaker's File mode reported in 2019
    /// (aws/sagemaker-python-sdk#723); Amazon documents neither.
    Full,
}

/// Reads a manifest of at most `objects_max` objects; each is a [`KeyPattern::Exact`].
///
/// # Errors
/// [`ErrorKind::Usage`] if it is not a manifest, with the index of the entry; the prefix is entry
/// 0.
pub fn parse(bytes: &[u8], layout: Layout, objects_max: usize) -> Result<Vec<S3Uri>> {
    // A byte order mark, which Windows editors write.
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let objects = json.deserialize_seq(Entries { layout, objects_max });
    let objects = objects.and_then(|objects| json.end().map(|()| objects));
    objects.map_err(|error| {
        // The text is escaped already, but JSON may be one long word.
        let why: String = error.to_string().chars().take(WHY_CHARS_MAX).collect();
        let message = format!("it is not a manifest: {why}");
        Error::new(ErrorKind::Usage, message)
            .advise("expected [{\"prefix\": \"s3://BUCKET/PREFIX\"}, \"KEY\", ...]")
    })
}

/// The objects that pass the filter, and of those the shard's, in order.
///
/// # Errors
/// The number of objects, if the filter leaves none of them.
pub fn choose(objects: Vec<S3Uri>, filter: &Filter, shard: Shard) -> Result<Vec<S3Uri>, u64> {
    let all = objects.len() as u64;
    let mut place = 0u64;
    let taken = objects.into_iter().filter(|object| filter.takes(path(object)));
    let mine = taken.filter(|_| {
        place += 1;
        shard.takes(place - 1)
    });
    let mine = mine.collect();
    if place == 0 && all > 0 { Err(all) } else { Ok(mine) }
}

fn path(object: &S3Uri) -> &str {
    match &object.key {
        KeyPattern::Exact { key, path_start } => &key[*path_start..],
        _ => object.literal_key(),
    }
}

/// Reads the list entry by entry.
struct Entries {
    layout: Layout,
    objects_max: usize,
}

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<S3Uri>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let refuse = |index: usize, why: &dyn fmt::Display| {
            Err(A::Error::custom(format_args!("entry {index}: {why}")))
        };
        let prefix = match list.next_element_seed(Prefix)? {
            Some(Some(prefix)) => prefix,
            Some(None) => return refuse(0, &"it has no \"prefix\""),
            None => return refuse(0, &format_args!("expected {PREFIX_ENTRY}")),
        };
        let bucket = match S3Uri::parse_prefix(&prefix) {
            Ok(parsed) => parsed.bucket,
            Err(error) => return refuse(0, &error),
        };
        let mut objects = Vec::new();
        while let Some(entry) = list.next_element_seed(Text(objects.len() + 1))? {
            let index = objects.len() + 1;
            if index > self.objects_max {
                let most = self.objects_max;
                return refuse(index, &format_args!("more than {most} objects are listed"));
            }
            if entry.is_empty() {
                return refuse(index, &"it is empty");
            }
            let path_bytes = match self.layout {
                Layout::Relative => entry.len(),
                Layout::Full => usize::MAX,
            };
            match S3Uri::parse_exact(&format!("{prefix}{entry}"), path_bytes) {
                Ok(object) if object.bucket == bucket => objects.push(object),
                Ok(object) => {
                    let why = format!("{object} is not in the bucket {bucket} of the prefix");
                    return refuse(index, &why);
                }
                Err(error) => return refuse(index, &error),
            }
        }
        Ok(objects)
    }
}

/// The expected first entry.
const PREFIX_ENTRY: &str = "{\"prefix\": \"s3://BUCKET/PREFIX\"}";

/// Reads the first entry: its prefix, if it has one. Refuses other JSON types before reading on,
/// and skips other fields.
struct Prefix;

impl<'de> DeserializeSeed<'de> for Prefix {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, entry: D) -> Result<Self::Value, D::Error> {
        entry.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Prefix {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX_ENTRY} as entry 0")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entry: A) -> Result<Self::Value, A::Error> {
        let mut prefix = None;
        while let Some(name) = entry.next_key::<String>()? {
            match name.as_str() {
                "prefix" => prefix = Some(entry.next_value_seed(Text(0))?),
                _ => drop(entry.next_value::<IgnoredAny>()?),
            }
        }
        Ok(prefix)
    }
}

/// Reads the string of the entry with this index. Refuses other JSON types before reading on: a
/// list of numbers would take many times its length in memory.
struct Text(usize);

impl<'de> DeserializeSeed<'de> for Text {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<String, D::Error> {
        text.deserialize_any(self)
    }
}

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string in entry {}", self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::filter::Rule;
    use proptest::prelude::*;

    /// Each object as its address, a colon and its path.
    fn read(text: &str, layout: Layout) -> Result<Vec<String>> {
        let objects = parse(text.as_bytes(), layout, 4)?;
        Ok(objects.iter().map(|object| format!("{object} : {}", path(object))).collect())
    }

    #[test]
    fn entries_are_appended_to_the_prefix() {
        let check = |text: &str, layout: Layout, expected: &[&str]| {
            assert_eq!(read(text, layout).expect(text), expected, "{text}");
        };
        let documented = r#"[ {"prefix": "s3://customer_bucket/some/prefix/"},
            "relative/path/to/custdata-1", "relative/path/custdata-2" ]"#;
        let documented = documented.replace('_', "-");
        check(
            &documented,
            Layout::Relative,
            &[
                "s3://customer-bucket/some/prefix/relative/path/to/custdata-1 : \
                 relative/path/to/custdata-1",
                "s3://customer-bucket/some/prefix/relative/path/custdata-2 : \
                 relative/path/custdata-2",
            ],
        );
        check(
            &documented,
            Layout::Full,
            &[
                "s3://customer-bucket/some/prefix/relative/path/to/custdata-1 : \
                 some/prefix/relative/path/to/custdata-1",
                "s3://customer-bucket/some/prefix/relative/path/custdata-2 : \
                 some/prefix/relative/path/custdata-2",
            ],
        );
        let pieces = "\u{feff}[{\"prefix\":\"s3://bkt/some/pre\"},\"fix/a\",\"/b*\",\"c/\"]";
        check(
            pieces,
            Layout::Relative,
            &[
                "s3://bkt/some/prefix/a : fix/a",
                "s3://bkt/some/pre/b* : b*",
                "s3://bkt/some/prec/ : c/",
            ],
        );
        check(r#"[{"prefix":"s3://bkt"},"/a/b"]"#, Layout::Relative, &["s3://bkt/a/b : a/b"]);
        check(r#"[{"prefix":"s3://bkt/"},"ü\u0041"]"#, Layout::Relative, &["s3://bkt/üA : üA"]);
        // A repeated entry is a repeated object.
        let twice = r#"[{"prefix":"s3://bkt/d/", "more": 1},"a","a"]"#;
        check(twice, Layout::Full, &["s3://bkt/d/a : d/a", "s3://bkt/d/a : d/a"]);
        check(r#"[{"prefix":"s3://bkt/"}]"#, Layout::Relative, &[]);
    }

    #[test]
    fn a_wrong_entry_is_reported_with_its_index() {
        let check = |text: &str, expected: &str| {
            let error = read(text, Layout::Relative).expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(expected), "{text}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        };
        check("", "it is not a manifest: EOF");
        check("{}", "expected a list");
        check("[]", "entry 0: expected {\"prefix\"");
        check(r#"["a"]"#, "invalid type: string \"a\", expected {\"prefix\"");
        check(r#"[{"Prefix":"s3://bkt/"},"a"]"#, "entry 0: it has no \"prefix\"");
        check(r#"[{"prefix":7},"a"]"#, "integer `7`, expected a string in entry 0");
        check(r#"[{"prefix":""},"s3://bkt/a"]"#, "entry 0: '' is not an S3 address");
        check(
            r#"[{"prefix":"s3://b*t/"},"a"]"#,
            "entry 0: 's3://b*t/' is not an S3 address: the b",
        );
        check(r#"[{"prefix":"s3://bkt/"},"a",["b"]]"#, "sequence, expected a string in entry 2");
        // Refused before the rest is read: what follows is no JSON.
        check(r#"[{"prefix":"s3://bkt/"},[0,0,!"#, "sequence, expected a string in entry 1");
        check(r#"[[0,0,!"#, "sequence, expected {\"prefix\"");
        check(r#"[{"prefix":[0,0,!"#, "sequence, expected a string in entry 0");
        check(r#"[{"prefix":"s3://bkt/"},"a",""]"#, "entry 2: it is empty");
        check(r#"[{"prefix":"s3://bkt"},"s/a"]"#, "entry 1: s3://bkts/a is not in the bucket bkt");
        check(
            r#"[{"prefix":"s3://bkt"},"/"]"#,
            "entry 1: 's3://bkt/' is not an S3 address: the key",
        );
        check(r#"[{"prefix":"s3://bkt/"},"1","2","3","4","5"]"#, "entry 5: more than 4 objects");
        check(r#"[{"prefix":"s3://bkt/"},"a""#, "EOF");
        check(r#"[{"prefix":"s3://bkt/"},"a"] x"#, "trailing characters");
        let word = format!("\"{}\"", "\u{202e}".repeat(2_000));
        check(&word, "invalid type: string \"\\u{202e}");
        let error = read(&word, Layout::Relative).expect_err("a word").to_string();
        assert!(error.len() < 1_200, "{error}");
        let long = format!(r#"[{{"prefix":"s3://bkt/"}},"{}"]"#, "k".repeat(1_025));
        check(&long, "the key has 1025 bytes, but S3 allows at most 1024");
    }

    #[test]
    fn the_filter_chooses_before_the_shard_does() {
        let list = r#"[{"prefix":"s3://bkt/"},"a","b.no","c","d.no"]"#;
        let objects = || parse(list.as_bytes(), Layout::Relative, 9).expect("a list");
        let chosen = |rule: &str, index: u32| {
            let filter = Filter::new(&[Rule::Exclude(rule.to_owned())]).expect("a filter");
            choose(objects(), &filter, Shard { index, count: 2 })
                .map(|chosen| chosen.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(chosen("*.no", 0), Ok(vec!["s3://bkt/a".to_owned()]));
        assert_eq!(chosen("*.no", 1), Ok(vec!["s3://bkt/c".to_owned()]));
        assert_eq!(chosen("?.no", 1).map(|mine| mine.len()), Ok(1));
        assert_eq!(chosen("*", 0), Err(4));
        assert_eq!(choose(vec![], &Filter::default(), Shard::WHOLE).map(|mine| mine.len()), Ok(0));
    }

    proptest! {
        // The failing input is printed; it becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn hosts_have_each_object_once(count in 0usize..60, hosts in 1u32..12) {
            let entries: String = (0..count).map(|number| format!(",\"{number}\"")).collect();
            let text = format!("[{{\"prefix\":\"s3://bkt/\"}}{entries}]");
            let mut all = Vec::new();
            for index in 0..hosts {
                let objects = parse(text.as_bytes(), Layout::Relative, count).expect("a list");
                let shard = Shard { index, count: hosts };
                let mine = choose(objects, &Filter::default(), shard).expect("no filter");
                let places = mine.iter().map(|object| path(object).parse().expect("a number"));
                let places: Vec<usize> = places.collect();
                prop_assert!(places.is_sorted());
                prop_assert!(places.len().abs_diff(count / hosts as usize) <= 1);
                all.extend(places);
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }
}
