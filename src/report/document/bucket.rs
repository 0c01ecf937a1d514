//! The line of a bucket, for `ls` without a source.

use serde::Serialize;

use super::json;
use crate::s3::buckets::Bucket;
use crate::text::shown::shown;

/// A bucket that the credentials may list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedBucket<'a> {
    /// The kind of line: `bucket`.
    pub kind: &'static str,
    /// Its name.
    pub bucket: &'a str,
    /// Creation time in ISO 8601; empty if the server did not send it.
    pub creation_date: &'a str,
    /// Its region; null if the server did not send it.
    pub region: Option<&'a str>,
}

impl<'a> ListedBucket<'a> {
    /// Makes the line of a bucket.
    #[must_use]
    pub fn new(bucket: &'a Bucket) -> Self {
        Self {
            kind: "bucket",
            bucket: &bucket.name,
            creation_date: &bucket.creation_date,
            region: Some(bucket.region.as_str()).filter(|region| !region.is_empty()),
        }
    }

    /// The line for scripts.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The line for people: time, formatted as for objects, and name.
    #[must_use]
    pub fn to_text(&self) -> String {
        let time = if self.creation_date.is_empty() { "-" } else { self.creation_date };
        format!("{:24} {}", shown(time), shown(self.bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(name: &str, creation_date: &str, region: &str) -> Bucket {
        let [name, creation_date, region] = [name, creation_date, region].map(str::to_owned);
        Bucket { name, creation_date, region }
    }

    #[test]
    fn text() {
        let check = |date: &str, expected: &str| {
            let bucket = bucket("lab\u{1b}", date, "");
            assert_eq!(ListedBucket::new(&bucket).to_text(), expected);
        };
        check("2024-01-02T03:04:05.678Z", "2024-01-02T03:04:05.678Z lab\\u{1b}");
        check("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z     lab\\u{1b}");
        check("", "-                        lab\\u{1b}");
        check("soon\u{1b}", "soon\\u{1b}               lab\\u{1b}");
    }

    #[test]
    fn lines_of_json() {
        let lab = bucket("lab", "2024-01-02T03:04:05.000Z", "eu-west-1");
        assert_eq!(
            ListedBucket::new(&lab).to_json(),
            concat!(
                r#"{"kind":"bucket","bucket":"lab","creation_date":"2024-01-02T03:04:05.000Z","#,
                r#""region":"eu-west-1"}"#
            )
        );
        let bare = bucket("lab", "", "");
        let line = ListedBucket::new(&bare).to_json();
        assert!(line.ends_with(r#""creation_date":"","region":null}"#), "{line}");
    }
}
