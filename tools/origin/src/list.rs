//! ListObjectsV2: a bucket and a query in, one page of XML out. Pure.
//!
//! Not here: version 1 of listing, versions, owners. S3's order is that of UTF-8 bytes, which is
//! the order of Rust's strings.

use std::io;
use std::ops::Bound;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::checksum::ChecksumPolicy;
use crate::dates::iso_millis;
use crate::error::{Code, S3Error, element};
use crate::request::Query;
use crate::store::{About, Bucket, Store};
use crate::synthetic::fingerprint;

/// S3's cap on entries of one page; `max-keys` may only lower it.
const MAX_KEYS: usize = 1000;
/// What a continuation token was made by; another version's token is refused.
const TOKEN_NUMBER: u64 = 1;

/// What `encoding-type=url` leaves as it is; a space becomes '+', as in forms.
const URL: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*').remove(b'/').remove(b' ');

/// The parameters of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListRequest {
    prefix: String,
    delimiter: String,
    start_after: String,
    token: Option<(String, Last)>,
    max_keys: usize,
    url_encoding: bool,
}

/// What a page ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Last {
    Key(String),
    Prefix(String),
}

#[derive(Debug, Default)]
struct Page {
    objects: Vec<(String, About)>,
    common_prefixes: Vec<String>,
    last: Option<Last>,
    truncated: bool,
}

impl ListRequest {
    pub(crate) fn parse(query: &Query) -> Result<Self, S3Error> {
        let invalid = |name: &'static str, why: &str| {
            let error = S3Error::new(Code::InvalidArgument, why);
            let value = query.get(name).unwrap_or_default();
            error.with("ArgumentName", name).with("ArgumentValue", value)
        };
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let max_keys = match query.get("max-keys") {
            None | Some("") => MAX_KEYS,
            Some(number) => match number.parse::<u32>() {
                Ok(number) => usize::try_from(number).unwrap_or(MAX_KEYS).min(MAX_KEYS),
                Err(_) => {
                    return Err(invalid(
                        "max-keys",
                        "Provided max-keys not an integer or within \
                                        integer range",
                    ));
                }
            },
        };
        let url_encoding = match query.get("encoding-type") {
            None | Some("") => false,
            Some("url") => true,
            Some(_) => {
                return Err(invalid(
                    "encoding-type",
                    "Invalid Encoding Method specified in Request",
                ));
            }
        };
        let token = match query.get("continuation-token") {
            None => None,
            Some(token) => {
                let why = "The continuation token provided is incorrect";
                let last = Last::from_token(token);
                let last = last.ok_or_else(|| invalid("continuation-token", why))?;
                Some((token.to_owned(), last))
            }
        };
        Ok(Self {
            prefix: text("prefix"),
            delimiter: text("delimiter"),
            start_after: text("start-after"),
            token,
            max_keys,
            url_encoding,
        })
    }

    /// The whole answer.
    pub(crate) fn answer(&self, store: &Store, name: &str, bucket: &Bucket) -> io::Result<String> {
        let mut page = self.page(bucket);
        for (key, about) in &mut page.objects {
            about.etag = store.etag((name, bucket), key, about)?;
        }
        Ok(self.render(name, &page, |key| store.policy(bucket, key)))
    }

    fn page(&self, bucket: &Bucket) -> Page {
        let mut page = Page::default();
        if self.max_keys == 0 {
            return page;
        }
        let mut start = self.start();
        'scan: while let Some(from) = start.take() {
            for (key, about) in bucket.scan(as_str(&from)) {
                let Some(rest) = key.strip_prefix(&self.prefix) else { break 'scan };
                let common = (!self.delimiter.is_empty())
                    .then(|| rest.find(&self.delimiter))
                    .flatten()
                    .map(|at| &key[..self.prefix.len() + at + self.delimiter.len()]);
                if page.objects.len() + page.common_prefixes.len() == self.max_keys {
                    page.truncated = true;
                    break 'scan;
                }
                if let Some(common) = common {
                    // All keys below it are this one entry: go on behind them.
                    page.last = Some(Last::Prefix(common.to_owned()));
                    page.common_prefixes.push(common.to_owned());
                    start = successor(common).map(Bound::Included);
                    continue 'scan;
                }
                page.last = Some(Last::Key(key.clone()));
                page.objects.push((key, about));
            }
        }
        page
    }

    /// Where to begin; `None` when nothing can follow.
    fn start(&self) -> Option<Bound<String>> {
        let after = match &self.token {
            // A token replaces start-after.
            Some((_, Last::Prefix(prefix))) => Bound::Included(successor(prefix)?),
            Some((_, Last::Key(key))) => Bound::Excluded(key.clone()),
            None if self.start_after.is_empty() => Bound::Unbounded,
            None => Bound::Excluded(self.start_after.clone()),
        };
        let below_prefix = match &after {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => *key < self.prefix,
        };
        Some(if below_prefix { Bound::Included(self.prefix.clone()) } else { after })
    }

    fn render(
        &self,
        name: &str,
        page: &Page,
        policy: impl Fn(&str) -> Option<ChecksumPolicy>,
    ) -> String {
        let entries = page.objects.len() + page.common_prefixes.len();
        let mut xml = String::with_capacity(512 + 320 * entries);
        xml.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        xml.push_str("<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        element(&mut xml, "Name", name);
        self.text(&mut xml, "Prefix", &self.prefix);
        if !self.delimiter.is_empty() {
            self.text(&mut xml, "Delimiter", &self.delimiter);
        }
        if !self.start_after.is_empty() {
            self.text(&mut xml, "StartAfter", &self.start_after);
        }
        if let Some((token, _)) = &self.token {
            element(&mut xml, "ContinuationToken", token);
        }
        if let Some(last) = page.last.as_ref().filter(|_| page.truncated) {
            element(&mut xml, "NextContinuationToken", &last.to_token());
        }
        element(&mut xml, "KeyCount", &entries.to_string());
        element(&mut xml, "MaxKeys", &self.max_keys.to_string());
        if self.url_encoding {
            element(&mut xml, "EncodingType", "url");
        }
        element(&mut xml, "IsTruncated", if page.truncated { "true" } else { "false" });
        let mut date = (i64::MIN, String::new());
        for (key, about) in &page.objects {
            if date.0 != about.modified_seconds {
                date = (about.modified_seconds, iso_millis(about.modified_seconds));
            }
            xml.push_str("<Contents>");
            self.text(&mut xml, "Key", key);
            element(&mut xml, "LastModified", &date.1);
            xml.push_str("<ETag>&quot;");
            xml.push_str(&about.etag);
            xml.push_str("&quot;</ETag>");
            if let Some(policy) = policy(key) {
                let algorithm = policy.algorithm.name().to_ascii_uppercase();
                element(&mut xml, "ChecksumAlgorithm", &algorithm);
                element(&mut xml, "ChecksumType", policy.kind.name());
            }
            element(&mut xml, "Size", &about.length_bytes.to_string());
            xml.push_str("<StorageClass>STANDARD</StorageClass></Contents>");
        }
        for prefix in &page.common_prefixes {
            xml.push_str("<CommonPrefixes>");
            self.text(&mut xml, "Prefix", prefix);
            xml.push_str("</CommonPrefixes>");
        }
        xml.push_str("</ListBucketResult>");
        xml
    }

    fn text(&self, xml: &mut String, name: &str, value: &str) {
        if self.url_encoding {
            element(xml, name, &utf8_percent_encode(value, URL).to_string().replace(' ', "+"));
        } else {
            element(xml, name, value);
        }
    }
}

impl Last {
    /// Opaque, but not secret: a checksum, so that a damaged token is noticed, and the position.
    fn to_token(&self) -> String {
        let (kind, text) = match self {
            Self::Key(key) => (b'k', key),
            Self::Prefix(prefix) => (b'p', prefix),
        };
        let mut bytes = vec![0; 8];
        bytes.push(kind);
        bytes.extend_from_slice(text.as_bytes());
        let checksum = fingerprint(&bytes[8..], TOKEN_NUMBER).to_be_bytes();
        bytes[..8].copy_from_slice(&checksum);
        STANDARD.encode(bytes)
    }

    fn from_token(token: &str) -> Option<Self> {
        let bytes = STANDARD.decode(token).ok()?;
        let (checksum, rest) = bytes.split_first_chunk::<8>()?;
        if fingerprint(rest, TOKEN_NUMBER).to_be_bytes() != *checksum {
            return None;
        }
        let (kind, text) = rest.split_first()?;
        let text = String::from_utf8(text.to_vec()).ok()?;
        match kind {
            b'k' => Some(Self::Key(text)),
            b'p' => Some(Self::Prefix(text)),
            _ => None,
        }
    }
}

/// The least string above everything that begins with `prefix`; code points are ordered as their
/// UTF-8 bytes are.
fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // Surrogates are no characters: the one after U+D7FF is U+E000.
        let next =
            if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

fn as_str(bound: &Bound<String>) -> Bound<&str> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
