//! What a request asks for: operation, bucket, key, query and byte range, from bytes to values.
//!
//! Not here: whether the request is allowed (`signature.rs`), and whether the object exists.

use std::ops::Range;

use hyper::header::{HOST, HeaderMap};
use hyper::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use crate::error::{Code, S3Error};

/// Longest key that S3 allows.
pub(crate) const KEY_BYTES_MAX: usize = 1024;

/// What a client can ask of this origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum Operation {
    /// GET of an object or a range of it.
    GetObject,
    /// GET of a bucket with `?location`.
    GetBucketLocation,
    /// HEAD of a bucket.
    HeadBucket,
    /// HEAD of an object.
    HeadObject,
    /// GET of the service itself.
    ListBuckets,
    /// GET of a bucket with `?list-type=2`.
    ListObjects,
}

/// A request that makes sense, whether or not it is allowed and the object exists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) operation: Operation,
    /// Empty for the list of buckets alone.
    pub(crate) bucket: String,
    /// Empty for operations on buckets.
    pub(crate) key: String,
}

impl Target {
    pub(crate) fn parse(
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        query: &Query,
        domain: Option<&str>,
    ) -> Result<Self, S3Error> {
        let path = uri.path().strip_prefix('/').unwrap_or(uri.path());
        let host = headers.get(HOST).and_then(|value| value.to_str().ok());
        let host = host.or_else(|| uri.authority().map(hyper::http::uri::Authority::as_str));
        let (bucket, key) = match host.and_then(|host| bucket_of_host(host, domain)) {
            Some(bucket) => (bucket.to_owned(), path),
            None => {
                let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
                (text(bucket)?, key)
            }
        };
        let key = text(key)?;
        if bucket.is_empty() {
            let operation = match (method, key.is_empty()) {
                (&Method::GET, true) => Operation::ListBuckets,
                (_, true) => {
                    let error = S3Error::from(Code::MethodNotAllowed);
                    return Err(error
                        .with("Method", method.as_str())
                        .with("ResourceType", "SERVICE"));
                }
                (_, false) => return Err(Code::InvalidUri.into()),
            };
            return Ok(Self { operation, bucket, key });
        }
        if key.len() > KEY_BYTES_MAX {
            let error = S3Error::new(Code::InvalidUri, "Your key is too long");
            return Err(error.with("MaxSizeAllowed", KEY_BYTES_MAX.to_string()));
        }
        let operation = match (method, key.is_empty()) {
            (&Method::GET, false) => Operation::GetObject,
            (&Method::HEAD, false) => Operation::HeadObject,
            (&Method::HEAD, true) => Operation::HeadBucket,
            (&Method::GET, true) if query.get("location").is_some() => Operation::GetBucketLocation,
            (&Method::GET, true) if query.get("list-type") == Some("2") => Operation::ListObjects,
            (&Method::GET, true) => {
                let why = "only version 2 of listing is offered: list-type=2";
                return Err(S3Error::new(Code::NotImplemented, why));
            }
            _ => {
                let error = S3Error::from(Code::MethodNotAllowed);
                return Err(error.with("Method", method.as_str()).with("ResourceType", "OBJECT"));
            }
        };
        Ok(Self { operation, bucket, key })
    }
}

/// `bucket.localhost:9000` and `bucket.<domain>` name a bucket; a bucket's name may hold dots.
fn bucket_of_host<'a>(host: &'a str, domain: Option<&str>) -> Option<&'a str> {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let below = |domain: &str| host.strip_suffix(domain)?.strip_suffix('.');
    domain.and_then(below).or_else(|| below("localhost")).filter(|bucket| !bucket.is_empty())
}

/// The percent-decoded bytes of a path: once, whatever they look like afterwards.
pub(crate) fn decode(path: &str) -> Vec<u8> {
    percent_decode_str(path).collect()
}

fn text(path: &str) -> Result<String, S3Error> {
    String::from_utf8(decode(path)).map_err(|_| Code::InvalidUri.into())
}

/// The parameters of a request, decoded once, in the order they came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(raw: &str) -> Self {
        // S3 reads '+' in a query as a space, unlike in a path.
        let part = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let fields = raw.split('&').filter(|field| !field.is_empty());
        let pairs = fields.map(|field| {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            (part(name), part(value))
        });
        Self { pairs: pairs.collect() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// What a Range header means for an object of a certain size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// No range, or one that is to be ignored: several ranges, another unit, nonsense.
    Whole,
    /// These bytes; never empty.
    Part(Range<u64>),
    /// Nothing of the object lies in the range.
    Unsatisfiable,
}

impl Wanted {
    pub(crate) fn parse(header: Option<&str>, length_bytes: u64) -> Self {
        let range = header.and_then(|text| text.trim().strip_prefix("bytes="));
        let Some((first, last)) = range.and_then(|range| range.trim().split_once('-')) else {
            return Self::Whole;
        };
        match (number(first), number(last)) {
            // The last `n` bytes, or all of them.
            (None, Some(n)) if first.is_empty() => {
                let first = length_bytes.saturating_sub(n);
                if n == 0 || length_bytes == 0 {
                    Self::Unsatisfiable
                } else {
                    Self::Part(first..length_bytes)
                }
            }
            (Some(first), None) if last.is_empty() => Self::from(first..u64::MAX, length_bytes),
            (Some(first), Some(last)) if first <= last => {
                Self::from(first..last.saturating_add(1), length_bytes)
            }
            _ => Self::Whole,
        }
    }

    fn from(range: Range<u64>, length_bytes: u64) -> Self {
        if range.start >= length_bytes {
            return Self::Unsatisfiable;
        }
        Self::Part(range.start..range.end.min(length_bytes))
    }
}

/// Digits only (`parse` would take a sign); more than 64 bits of them are as good as the maximum.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &str, uri: &str, host: &str) -> Result<Target, Code> {
        let uri: Uri = uri.parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        let query = Query::parse(uri.query().unwrap_or(""));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        Target::parse(&method, &uri, &headers, &query, Some("s3.test")).map_err(|error| error.code)
    }

    fn object(uri: &str, host: &str) -> (String, String) {
        let target = target("GET", uri, host).unwrap();
        assert_eq!(target.operation, Operation::GetObject);
        (target.bucket, target.key)
    }

    #[test]
    fn keys_are_decoded_exactly_once() {
        for (path, key) in [
            ("/b/a%20b", "a b"),
            ("/b/a+b", "a+b"),
            ("/b/a%2Bb", "a+b"),
            ("/b/a%252Fb", "a%2Fb"),
            ("/b/a%2Fb", "a/b"),
            ("/b/a=b&c", "a=b&c"),
            ("/b/%C3%A9/%E2%82%AC", "é/€"),
            ("/b/.hidden", ".hidden"),
            ("/b//a//b/", "/a//b/"),
            ("/b/a/../b", "a/../b"),
            ("/b/100%", "100%"),
        ] {
            assert_eq!(object(path, "x"), ("b".to_owned(), key.to_owned()), "{path}");
        }
        let longest = format!("/b/{}", "k".repeat(1024));
        assert_eq!(object(&longest, "x").1.len(), 1024);
        assert_eq!(target("GET", &format!("{longest}k"), "x"), Err(Code::InvalidUri));
        assert_eq!(target("GET", "/b/%ff", "x"), Err(Code::InvalidUri));
    }

    #[test]
    fn buckets_come_from_the_path_or_the_host() {
        let expected = ("b".to_owned(), "c/k".to_owned());
        for (path, host) in [
            ("/b/c/k", "127.0.0.1:9000"),
            ("/b/c/k", "localhost:9000"),
            ("/b/c/k", "s3.test"),
            ("/c/k", "b.s3.test"),
            ("/c/k", "b.s3.test:80"),
            ("/c/k", "b.localhost:9000"),
        ] {
            assert_eq!(object(path, host), expected, "{path} {host}");
        }
        assert_eq!(object("/k", "a.b.c.localhost").0, "a.b.c");
    }

    #[test]
    fn operations() {
        for (method, uri, expected) in [
            ("GET", "/b?list-type=2", Ok(Operation::ListObjects)),
            ("GET", "/b/?prefix=a&list-type=2", Ok(Operation::ListObjects)),
            ("HEAD", "/b", Ok(Operation::HeadBucket)),
            ("HEAD", "/b/k", Ok(Operation::HeadObject)),
            ("GET", "/b?location", Ok(Operation::GetBucketLocation)),
            ("GET", "/b", Err(Code::NotImplemented)),
            ("GET", "/", Ok(Operation::ListBuckets)),
            ("GET", "/?max-buckets=7", Ok(Operation::ListBuckets)),
            ("GET", "//k", Err(Code::InvalidUri)),
            ("PUT", "/", Err(Code::MethodNotAllowed)),
            ("PUT", "/b/k", Err(Code::MethodNotAllowed)),
            ("DELETE", "/b/k", Err(Code::MethodNotAllowed)),
            ("POST", "/b", Err(Code::MethodNotAllowed)),
        ] {
            let operation = target(method, uri, "x").map(|target| target.operation);
            assert_eq!(operation, expected, "{method} {uri}");
        }
    }

    #[test]
    fn ranges() {
        let check = |header, length, expected: Wanted| {
            assert_eq!(Wanted::parse(Some(header), length), expected, "{header} of {length}");
        };
        check("bytes=0-9", 100, Wanted::Part(0..10));
        check("bytes=90-", 100, Wanted::Part(90..100));
        check("bytes=-10", 100, Wanted::Part(90..100));
        check("bytes=-1000", 100, Wanted::Part(0..100));
        check("bytes=99-1000", 100, Wanted::Part(99..100));
        check("bytes=0-99999999999999999999999", 100, Wanted::Part(0..100));
        check("bytes=100-", 100, Wanted::Unsatisfiable);
        check("bytes=100-200", 100, Wanted::Unsatisfiable);
        check("bytes=-0", 100, Wanted::Unsatisfiable);
        check("bytes=0-0", 0, Wanted::Unsatisfiable);
        check("bytes=-1", 0, Wanted::Unsatisfiable);
        for ignored in ["bytes=0-1,5-6", "bytes=9-1", "items=0-1", "bytes=-", "bytes=a-b", "0-1"] {
            check(ignored, 100, Wanted::Whole);
        }
        assert_eq!(Wanted::parse(None, 100), Wanted::Whole);
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("a=1&b&c=x%2By+z&&prefix=%C3%A9%3D");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("b"), Some(""));
        assert_eq!(query.get("c"), Some("x+y z"));
        assert_eq!(query.get("prefix"), Some("é="));
        assert_eq!(query.get("d"), None);
    }
}
