//! Parses `s3://bucket/key` as users write it, and encodes keys for request targets.
//!
//! Pure. Only a request ([`crate::control`]) can find out whether a key is an object or a folder.
//! An access point's ARN may replace the bucket's name. `https://` addresses are those of
//! [`super::web`], where a command takes them.

use std::fmt;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use crate::error::{Error, ErrorKind, Result};
use crate::s3::arn::{self, ARN};
use crate::s3::web::{WebUrl, is_url, location_without_query, meant_url};
use crate::text::glob::{Glob, GlobSet};
/// Escapes a name from outside for a message.
pub use crate::text::shown::shortened as shown;

/// Longest key in S3, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest version ID, in bytes.
pub const VERSION_ID_BYTES_MAX: usize = 1024;
/// Longest bucket name, in bytes: that of old S3 buckets.
const BUCKET_BYTES_MAX: usize = 255;
/// The scheme of every address.
pub const SCHEME: &str = "s3://";

/// Characters that `SigV4` and S3 leave unchanged in a path: the unreserved characters and the
/// slash.
const KEY_ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// Characters that they leave unchanged in a query value: not the slash.
const QUERY_ENCODED: &AsciiSet = &KEY_ENCODED.add(b'/');

/// The key, percent-encoded for a request target and for a canonical request, piece by piece.
#[must_use]
pub fn encode_key(key: &str) -> PercentEncode<'_> {
    utf8_percent_encode(key, KEY_ENCODED)
}

/// A query name or value, percent-encoded for `SigV4`.
#[must_use]
pub fn encode_query(value: &str) -> PercentEncode<'_> {
    utf8_percent_encode(value, QUERY_ENCODED)
}

/// An ETag with its quotes, for an `If-Match` header.
///
/// `None` if it is not allowed in a header: then the answer that it came from cannot be trusted.
#[must_use]
pub fn quote_etag(etag: &str) -> Option<String> {
    let etag = etag.trim();
    if !etag.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return None;
    }
    let quoted = etag.strip_prefix("W/").unwrap_or(etag).starts_with('"');
    Some(if quoted || etag.is_empty() { etag.to_owned() } else { format!("\"{etag}\"") })
}

/// A parsed `s3://` address, or a URL.
#[derive(Debug, Clone)]
pub struct S3Uri {
    /// The bucket's name, checked against S3's rules; or the ARN of an access point. Of a URL,
    /// scheme and host.
    pub bucket: String,
    /// Which keys of the bucket.
    pub key: KeyPattern,
    /// Version ID of a single object; empty for the newest.
    pub version_id: String,
    /// Why the key, in spite of its wildcards, is not a glob and taken literally.
    pub not_a_glob: Option<String>,
    /// The URL, if it is one; then the key is its path, exactly.
    pub url: Option<Arc<WebUrl>>,
    text: String,
}

/// Which keys of a bucket.
#[derive(Debug, Clone)]
pub enum KeyPattern {
    /// All of them: `s3://bucket`.
    Bucket,
    /// Everything below a folder; the prefix ends in a slash.
    Folder(String),
    /// One key, or the folder of that name.
    Key(String),
    /// The keys that match.
    Glob(KeyGlob),
    /// Every key with this prefix, whether or not a slash follows; may be empty.
    Prefix(String),
    /// This key, and no folder.
    Exact {
        /// The key; it may end in a slash.
        key: String,
        /// Offset in the key of the path below a destination.
        path_start: usize,
    },
}

/// A glob over whole keys.
#[derive(Debug, Clone)]
pub struct KeyGlob {
    /// The folder before the first segment with a wildcard, with its slash; empty at the top.
    pub folder: String,
    /// Prefix of every matching key, at least as long as `folder`; this is listed.
    pub list_prefix: String,
    matcher: GlobSet,
}

impl KeyGlob {
    /// True if the key matches.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        self.matcher.last_match(key).is_some()
    }
}

impl fmt::Display for S3Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.text))
    }
}

impl S3Uri {
    /// Parses `s3://bucket`, `s3://bucket/folder/`, `s3://bucket/key` or a glob.
    ///
    /// `*` and `?` stay within one segment, `**` crosses segments, `[a-z]` is one of a set. A
    /// backslash escapes the next character; braces have no meaning. As in a shell, an incomplete
    /// glob (`a[1`) is literal.
    pub fn parse(text: &str) -> Result<Self> {
        let mut not_a_glob = None;
        let uri = Self::parse_with(text, text.trim(), |key| match key_pattern(key)? {
            Ok(pattern) => Ok(pattern),
            Err(why) => {
                not_a_glob = Some(why);
                literal(key.to_owned())
            }
        })?;
        Ok(Self { not_a_glob, ..uri })
    }

    /// Like [`S3Uri::parse`], or a URL of one object.
    ///
    /// # Errors
    /// Those of [`S3Uri::parse`] and of [`WebUrl::parse`].
    pub fn parse_or_url(text: &str) -> Result<Self> {
        if is_url(text) {
            return Self::of_url(text);
        }
        Self::parse(text).map_err(|error| or_a_url(text, error))
    }

    /// Like [`S3Uri::parse_raw`], or a URL of one object.
    ///
    /// # Errors
    /// Those of [`S3Uri::parse_raw`] and of [`WebUrl::parse`].
    pub fn parse_raw_or_url(text: &str) -> Result<Self> {
        if is_url(text) {
            return Self::of_url(text);
        }
        Self::parse_raw(text).map_err(|error| or_a_url(text, error))
    }

    fn of_url(text: &str) -> Result<Self> {
        let url = WebUrl::parse(text.trim_end())?;
        let (key, path_start) = url.name().map_err(|why| malformed(text, &why))?;
        Ok(Self {
            bucket: url.origin(),
            key: KeyPattern::Exact { key, path_start },
            version_id: String::new(),
            not_a_glob: None,
            text: url.to_string(),
            url: Some(Arc::new(url)),
        })
    }

    /// Like [`S3Uri::parse`], but every character of the key is literal.
    ///
    /// # Errors
    /// The errors of [`S3Uri::parse`].
    pub fn parse_raw(text: &str) -> Result<Self> {
        // A key may end in white space.
        Self::parse_with(text, text.trim_start(), |key| literal(key.to_owned()))
    }

    /// Parses a prefix of keys, like `S3Prefix` of SageMaker: `s3://bucket/train` is every key that
    /// begins with `train`, and `s3://bucket` every key.
    ///
    /// # Errors
    /// The errors of [`S3Uri::parse`].
    pub fn parse_prefix(text: &str) -> Result<Self> {
        Self::parse_with(text, text.trim_start(), |key| {
            check_length(key)?;
            Ok(KeyPattern::Prefix(key.to_owned()))
        })
    }

    /// Parses exactly one key. Its path below a destination is its last `path_bytes` bytes, or all
    /// of it if it is shorter, without a leading slash.
    ///
    /// # Errors
    /// The errors of [`S3Uri::parse`], and if there is no key.
    pub fn parse_exact(text: &str, path_bytes: usize) -> Result<Self> {
        Self::parse_with(text, text.trim_start(), |key| {
            check_length(key)?;
            if key.is_empty() {
                return Err("the key is missing".to_owned());
            }
            let start = key.len().saturating_sub(path_bytes);
            let path_start = start + usize::from(key[start..].starts_with('/'));
            Ok(KeyPattern::Exact { key: key.to_owned(), path_start })
        })
    }

    fn parse_with(
        text: &str,
        trimmed: &str,
        key_pattern: impl FnOnce(&str) -> Result<KeyPattern, String>,
    ) -> Result<Self> {
        let refuse = |why: &str| Err(malformed(text, why));
        if trimmed != text {
            return match text.starts_with(SCHEME) {
                true => refuse("it ends with white space; with --raw it is taken as written"),
                false => refuse("it starts or ends with white space"),
            };
        }
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return refuse(other_scheme(text));
        };
        let (bucket, key) = if rest.starts_with(ARN) {
            arn::split(rest).map_err(|why| malformed(text, &why))?
        } else {
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            if let Some(why) = bucket_problem(bucket) {
                return refuse(why);
            }
            (bucket, key)
        };
        if key.contains('\0') {
            return refuse("the key contains a NUL byte");
        }
        let key = key_pattern(key).map_err(|why| malformed(text, &why))?;
        let (bucket, text) = (bucket.to_owned(), text.to_owned());
        Ok(Self { bucket, key, version_id: String::new(), not_a_glob: None, url: None, text })
    }

    /// The key as typed, if no character of it is a wildcard.
    #[must_use]
    pub fn literal_key(&self) -> &str {
        if let (Some(_), KeyPattern::Exact { key, .. }) = (&self.url, &self.key) {
            return key;
        }
        let rest = &self.text[SCHEME.len() + self.bucket.len()..];
        rest.strip_prefix('/').unwrap_or(rest)
    }

    /// Selects a version of the object.
    ///
    /// # Errors
    /// If the address is not that of one object, or the text cannot be a version ID.
    pub fn with_version(mut self, version_id: &str) -> Result<Self> {
        let refuse =
            |what: String, advice: &str| Err(Error::new(ErrorKind::Usage, what).advise(advice));
        let fits = version_id.bytes().all(|byte| byte.is_ascii_graphic());
        if version_id.is_empty() || version_id.len() > VERSION_ID_BYTES_MAX || !fits {
            return refuse(
                format!("'{}' is not a valid version ID", shown(version_id)),
                "list the versions with aws s3api list-object-versions",
            );
        }
        if self.url.is_some() {
            return refuse(
                format!("{self} is a URL, which names its version itself"),
                "omit --version-id, or give s3://BUCKET/KEY",
            );
        }
        if !matches!(self.key, KeyPattern::Key(_)) {
            return refuse(
                format!("{self} is not a single object, so it has no version"),
                "give --version-id with s3://BUCKET/KEY alone",
            );
        }
        version_id.clone_into(&mut self.version_id);
        Ok(self)
    }
}

/// The error of an address that may have been meant as a URL, where URLs are taken, too.
fn or_a_url(text: &str, error: Error) -> Error {
    let is_of_s3 = text.get(..2).is_some_and(|begin| begin.eq_ignore_ascii_case("s3"));
    if let Some(meant) = meant_url(text) {
        return error.advise(format!("did you mean {}?", shown(&meant)));
    }
    match text.contains(":/") && !is_of_s3 {
        true => error.advise("expected s3://BUCKET/KEY, or a URL with http:// or https://"),
        false => error,
    }
}

fn malformed(text: &str, why: &str) -> Error {
    // The query of a URL may be a signature, also that of one with a typing error.
    let is_address = text.starts_with(SCHEME) || text.starts_with("arn:");
    let named = if is_address { text.to_owned() } else { location_without_query(text) };
    let named = shown(&named);
    let expected =
        "expected s3://BUCKET/KEY, s3://BUCKET/FOLDER/ or a glob such as s3://BUCKET/a/*.tar";
    let more = if is_url(text) { "; only get and cat take URLs, without --prefix" } else { "" };
    Error::new(ErrorKind::Usage, format!("'{named}' is not an S3 address: {why}"))
        .advise(format!("{expected}{more}"))
}

fn other_scheme(text: &str) -> &'static str {
    let lower = text.to_ascii_lowercase();
    if is_url(text) {
        "it is a URL; give s3://BUCKET/KEY, and the server with --endpoint-url"
    } else if lower.starts_with("arn:") {
        "it is an ARN; put s3:// before the ARN of an access point, or give the bucket name"
    } else if lower.starts_with(SCHEME)
        || lower.starts_with("s3a://")
        || lower.starts_with("s3n://")
    {
        "the scheme must be written s3://"
    } else if lower.starts_with("s3:") {
        "s3: must be followed by two slashes"
    } else {
        "it does not start with s3://"
    }
}

/// Why no server can have a bucket of this name. Servers have rules of their own.
fn bucket_problem(bucket: &str) -> Option<&'static str> {
    if bucket.is_empty() {
        Some("the bucket is missing")
    } else if bucket.contains(char::is_whitespace) {
        Some("the bucket name contains white space")
    } else if bucket.bytes().any(|byte| byte.is_ascii_control()) {
        Some("the bucket name contains a control character")
    } else if bucket.contains(['*', '?', '[']) {
        Some("the bucket name cannot contain a wildcard")
    } else if matches!(bucket, "." | "..") {
        Some("a path does not keep this bucket name")
    } else if bucket.len() > BUCKET_BYTES_MAX {
        Some("a bucket name has at most 255 characters")
    } else {
        None
    }
}

/// The pattern of a key; the inner error says why it is not a glob in spite of its wildcards.
fn key_pattern(key: &str) -> Result<Result<KeyPattern, String>, String> {
    let scanned = Scanned::scan(key);
    let Some(wild_at) = scanned.wild_at else { return literal(scanned.literal).map(Ok) };
    check_length(&scanned.literal)?;
    let list_prefix = scanned.literal[..wild_at].to_owned();
    let folder = list_prefix[..list_prefix.rfind('/').map_or(0, |at| at + 1)].to_owned();
    let glob = Glob::new(&scanned.glob).map_err(|error| error.kind().to_string());
    Ok(glob.and_then(|glob| {
        let matcher = GlobSet::new(vec![glob])?;
        Ok(KeyPattern::Glob(KeyGlob { folder, list_prefix, matcher }))
    }))
}

/// The pattern of a key without wildcards.
fn literal(key: String) -> Result<KeyPattern, String> {
    check_length(&key)?;
    Ok(match key {
        key if key.is_empty() => KeyPattern::Bucket,
        key if key.ends_with('/') => KeyPattern::Folder(key),
        key => KeyPattern::Key(key),
    })
}

fn check_length(key: &str) -> Result<(), String> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(format!("the key has {} bytes, but S3 allows at most {KEY_BYTES_MAX}", key.len()))
}

/// A typed key: the characters it stands for, and the pattern for globset.
struct Scanned {
    literal: String,
    glob: String,
    /// Offset of the first wildcard in `literal`.
    wild_at: Option<usize>,
}

impl Scanned {
    fn scan(key: &str) -> Self {
        let mut scanned = Self { literal: String::new(), glob: String::new(), wild_at: None };
        let mut rest = key.chars().peekable();
        while let Some(found) = rest.next() {
            let special = |c: &char| matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\');
            match found {
                '\\' => {
                    let plain = rest.next_if(special).unwrap_or('\\');
                    scanned.literal.push(plain);
                    scanned.glob.extend(['\\', plain]);
                }
                '*' | '?' | '[' => {
                    scanned.wild_at.get_or_insert(scanned.literal.len());
                    scanned.literal.push(found);
                    scanned.glob.push(found);
                }
                '{' | '}' => {
                    scanned.literal.push(found);
                    scanned.glob.extend(['\\', found]);
                }
                plain => {
                    scanned.literal.push(plain);
                    scanned.glob.push(plain);
                }
            }
        }
        scanned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        match S3Uri::parse(text) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Usage);
                error.to_string()
            }
            Ok(uri) => match uri.key {
                KeyPattern::Bucket => format!("{} bucket", uri.bucket),
                KeyPattern::Folder(prefix) => format!("{} folder {prefix}", uri.bucket),
                KeyPattern::Key(key) => format!("{} key {key}", uri.bucket),
                KeyPattern::Glob(glob) => {
                    format!("{} glob {} {}", uri.bucket, glob.folder, glob.list_prefix)
                }
                other => panic!("{text}: {other:?}"),
            },
        }
    }

    #[test]
    fn a_url_with_a_typing_error_is_named_without_its_query() {
        for text in [" https://h/f?sig=hunter2", "https:/h/f?sig=hunter2", "'https://h/f?hunter2'"]
        {
            let error = S3Uri::parse_or_url(text).expect_err("it is none").to_string();
            assert!(error.contains("h/f?...") && !error.contains("hunter2"), "{error}");
        }
        let error = S3Uri::parse("s3:///a?b").expect_err("no bucket").to_string();
        assert!(error.contains("s3:///a?b"), "an address of S3 is as it was typed: {error}");
    }

    #[test]
    fn a_url_without_its_two_slashes_is_suggested() {
        for (text, meant) in [
            ("https:/h/x", "https://h/x"),
            ("HTTPS:/h/x", "https://h/x"),
            ("http:x", "http://x"),
            ("http:me:hunter2@h/x", "http://h/x"),
            ("https:/h/x?sig=hunter2", "https://h/x?..."),
        ] {
            for parse in [S3Uri::parse_or_url, S3Uri::parse_raw_or_url] {
                let error = parse(text).expect_err("it is none").to_string();
                assert!(error.contains(&format!("did you mean {meant}?")), "{error}");
                assert!(!error.contains("hunter2"), "{error}");
            }
        }
        for other in ["http:", "https:/", "s3:/b/x", "ftp:/h/x", "file"] {
            let error = S3Uri::parse_or_url(other).expect_err("it is none").to_string();
            assert!(!error.contains("did you mean"), "{error}");
        }
    }

    #[test]
    fn addresses() {
        let check = |text: &str, expected: &str| assert_eq!(problem(text), expected, "{text}");
        check("s3://bucket", "bucket bucket");
        check("s3://Old_Bucket/a", "Old_Bucket key a");
        check("s3://tenant:b/", "tenant:b bucket");
        check("s3://bucket/", "bucket bucket");
        check("s3://bucket/a/b/", "bucket folder a/b/");
        check("s3://bucket/a/b", "bucket key a/b");
        check("s3://bucket//a", "bucket key /a");
        check("s3://my.bucket-1/a b+c=d", "my.bucket-1 key a b+c=d");
        check("s3://bucket/a/{b}", "bucket key a/{b}");
        check(r"s3://bucket/a\*b", "bucket key a*b");
        check(r"s3://bucket/a\\b\c", r"bucket key a\b\c");
        check("s3://bucket/a/b-*.tar", "bucket glob a/ a/b-");
        check(r"s3://bucket/a\[1\]/b/**/c", "bucket glob a[1]/b/ a[1]/b/");
        check("s3://bucket/*", "bucket glob  ");
        check("s3://train--usw2-az1--x-s3/k", "train--usw2-az1--x-s3 key k");
        let arn = "arn:aws:s3:us-west-2:123456789012:accesspoint/test";
        check(&format!("s3://{arn}"), &format!("{arn} bucket"));
        check(&format!("s3://{arn}/"), &format!("{arn} bucket"));
        check(&format!("s3://{arn}/a/b"), &format!("{arn} key a/b"));
        check(&format!("s3://{arn}/a/*.tar"), &format!("{arn} glob a/ a/"));
        let arn = "arn:aws:s3:us-west-2:123456789012:accesspoint:test";
        check(&format!("s3://{arn}/a/"), &format!("{arn} folder a/"));
        let arn = "arn:aws:s3::123456789012:accesspoint:mfzwi23gnjvgw.mrap";
        check(&format!("s3://{arn}/a/b"), &format!("{arn} key a/b"));
        check("s3://my-point-abcdefgh-s3alias/k", "my-point-abcdefgh-s3alias key k");
        check("s3://my-point-abcdefgh-ext-s3alias/a/", "my-point-abcdefgh-ext-s3alias folder a/");
    }

    #[test]
    fn every_character_may_be_meant_as_it_is_written() {
        for text in [
            r"s3://bucket//[x]*?.\t{a}",
            r"s3://arn:aws:s3:us-west-2:123456789012:accesspoint/test/a[1]",
        ] {
            let uri = S3Uri::parse_raw(text).expect("an address");
            let KeyPattern::Key(key) = &uri.key else { panic!("{text}: {:?}", uri.key) };
            assert_eq!(uri.literal_key(), key);
        }
        for (text, expected) in
            [("s3://bucket", ""), ("s3://bucket/", ""), ("s3://bucket/*/", "*/")]
        {
            let uri = S3Uri::parse_raw(text).expect("an address");
            let prefix = match uri.key {
                KeyPattern::Bucket => String::new(),
                KeyPattern::Folder(prefix) => prefix,
                other => panic!("{text}: {other:?}"),
            };
            assert_eq!(prefix, expected);
        }
    }

    #[test]
    fn prefixes_and_exact_keys_are_taken_as_they_are_written() {
        for (text, expected) in [
            ("s3://bucket", ""),
            ("s3://bucket/", ""),
            ("s3://bucket/a*/[b] ", "a*/[b] "),
            ("s3://bucket/a/", "a/"),
            ("s3://bucket//", "/"),
            ("s3://arn:aws:s3:us-west-2:123456789012:accesspoint/test/a[1]", "a[1]"),
        ] {
            let uri = S3Uri::parse_prefix(text).expect("an address");
            let KeyPattern::Prefix(prefix) = &uri.key else { panic!("{text}: {:?}", uri.key) };
            assert_eq!((prefix.as_str(), uri.literal_key()), (expected, expected), "{text}");
            assert!(uri.with_version("V").is_err(), "no single object");
        }
        let exact = |text: &str, path_bytes: usize| {
            let uri = S3Uri::parse_exact(text, path_bytes)?;
            let KeyPattern::Exact { key, path_start } = &uri.key else { panic!("{:?}", uri.key) };
            Ok::<_, Error>(format!("{key} > {}", &key[*path_start..]))
        };
        for (path_bytes, path) in [(usize::MAX, "a*/b/"), (5, "a*/b/"), (2, "b/"), (3, "b/")] {
            let found = exact("s3://bucket/a*/b/", path_bytes).expect("an address");
            assert_eq!(found, format!("a*/b/ > {path}"), "{path_bytes}");
        }
        let long = format!("s3://bucket/{}", "k".repeat(KEY_BYTES_MAX + 1));
        for (text, why) in [
            ("s3://bucket/", "the key is missing"),
            ("s3://bucket", "the key is missing"),
            ("s3://buck?t/k", "wildcard"),
            (" s3://bucket/k", "white space"),
            (&long, "1025 bytes"),
        ] {
            let error = exact(text, 1).expect_err(why);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn refusals_say_what_is_expected() {
        let check = |text: &str, expected: &str| {
            let error = problem(text);
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.contains("expected s3://BUCKET/KEY"), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        };
        check("https://bucket.s3.amazonaws.com/k", "--endpoint-url");
        check("arn:aws:s3:::bucket/k", "put s3:// before");
        check("s3://arn:aws:s3:::bucket/k", "the ARN of a bucket");
        check("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/x.mrap/k", "has no region");
        check("bucket/key", "does not start with s3://");
        check("s3:/bucket/key", "two slashes");
        check("S3://bucket/key", "written s3://");
        check("s3://", "bucket is missing");
        check("s3:///key", "bucket is missing");
        check("s3://buc ket/key", "white space");
        check(" s3://bucket/key", "white space");
        check("s3://bucket/key\n", "white space");
        check("s3://../key", "does not keep");
        check(&format!("s3://{}/key", "b".repeat(256)), "255");
        check("s3://buck*/key", "wildcard");
        check(&format!("s3://bucket/{}", "k".repeat(1025)), "1025 bytes");
    }

    #[test]
    fn urls_are_taken_where_they_are_wanted() {
        for parse in [S3Uri::parse_or_url, S3Uri::parse_raw_or_url] {
            let uri = parse("https://h.test:1/a%20b/c*.bin?sig=hunter2").expect("a URL");
            assert_eq!(
                (uri.bucket.as_str(), uri.literal_key()),
                ("https://h.test:1", "a b/c*.bin")
            );
            assert!(matches!(&uri.key, KeyPattern::Exact { path_start: 4, .. }), "{uri:?}");
            assert_eq!(uri.to_string(), "https://h.test:1/a%20b/c*.bin?...");
            assert!(!format!("{uri:?}").contains("hunter2"));
            assert!(parse("s3://bucket/key").expect("an address").url.is_none());
            let error = uri.with_version("v").expect_err("it has none").to_string();
            assert!(error.contains("is a URL") && error.contains("omit --version-id"), "{error}");
            let advice = |text: &str| parse(text).expect_err(text).advice().map(str::to_owned);
            for other in ["ftp://h/x", "ftp:/x", " https://h/x", "htps://h/x?sig=hunter2"] {
                let advice = advice(other).expect("advice");
                assert!(advice.ends_with("or a URL with http:// or https://"), "{advice}");
            }
            for address in ["S3://bucket/k", "s3:/bucket/k", "bucket/k"] {
                assert!(!advice(address).expect("advice").contains("URL"), "{address}");
            }
        }
        let refused = S3Uri::parse("https://u:hunter2@h/k?sig=hunter2").expect_err("no address");
        let refused = refused.to_string();
        assert!(refused.contains("'https://h/k?...' is not an S3 address"), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }

    #[test]
    fn a_raw_key_may_end_in_white_space() {
        let uri = S3Uri::parse_raw("s3://bucket/a ").expect("an address");
        assert!(matches!(&uri.key, KeyPattern::Key(key) if key == "a "));
        assert!(
            S3Uri::parse_raw(" s3://bucket/a").is_err() && S3Uri::parse_raw("s3://bkt ").is_err()
        );
    }

    #[test]
    fn what_is_no_glob_means_itself() {
        let uri = S3Uri::parse(r"s3://bucket/a\*[1").expect("an address");
        assert!(matches!(&uri.key, KeyPattern::Key(key) if key == r"a\*[1"), "{:?}", uri.key);
        let why = uri.not_a_glob.expect("a reason");
        assert!(why.contains("unclosed"), "{why}");
        assert_eq!(S3Uri::parse("s3://bucket/a[1]").expect("an address").not_a_glob, None);
    }

    #[test]
    fn a_version_is_of_one_object() {
        let with = |text: &str, version: &str| {
            S3Uri::parse(text).expect("a good address").with_version(version)
        };
        let uri = with("s3://bucket/k", "3HL4kqtJvjVBH40Nrjfkd").expect("one object");
        assert_eq!(uri.version_id, "3HL4kqtJvjVBH40Nrjfkd");
        for text in ["s3://bucket", "s3://bucket/a/", "s3://bucket/*"] {
            let error = with(text, "v").expect_err("not one object");
            assert!(error.to_string().contains("not a single object"), "{error}");
        }
        for bad in ["", "a b", "a\r\nx-evil: 1", "ü", &"v".repeat(1025)] {
            let error = with("s3://bucket/k", bad).expect_err("no version");
            assert!(error.to_string().contains("is not a valid version ID"), "{error}");
        }
    }

    #[test]
    fn globs_keep_to_their_segment() {
        let check = |glob: &str, key: &str, expected: bool| {
            let uri = S3Uri::parse(&format!("s3://bucket/{glob}")).expect("a good glob");
            let KeyPattern::Glob(glob) = uri.key else { panic!("not a glob: {glob}") };
            assert_eq!(glob.matches(key), expected, "{key}");
            assert!(!expected || key.starts_with(&glob.list_prefix), "{key}");
        };
        check("a/*.tar", "a/x.tar", true);
        check("a/*.tar", "a/b/x.tar", false);
        check("a/**/*.tar", "a/b/c/x.tar", true);
        check("a/**/*.tar", "a/x.tar", true);
        check("a/?", "a/x", true);
        check("a/?", "a//", false);
        check("a/[0-9]", "a/7", true);
        check("a/{x}*", "a/{x}y", true);
        check("a/{x,y}*", "a/x", false);
        check(r"a\*/*", "a*/b", true);
        check(r"a\*/*", "ab/b", false);
        check(r"a\b/*", r"a\b/c", true);
    }

    #[test]
    fn keys_in_targets() {
        let check =
            |key: &str, expected: &str| assert_eq!(encode_key(key).to_string(), expected, "{key}");
        check("a/b-._~", "a/b-._~");
        check("a b+c=d&e", "a%20b%2Bc%3Dd%26e");
        check("%2F//", "%252F//");
        check("ü*'()!", "%C3%BC%2A%27%28%29%21");
        assert_eq!(encode_query("a/b c").to_string(), "a%2Fb%20c");
    }

    #[test]
    fn names_in_messages() {
        let refused = S3Uri::parse("http://a\x1b\u{202e}b").expect_err("no address").to_string();
        assert!(refused.starts_with("'http://a\\u{1b}\\u{202e}b' is not an S3"), "{refused}");
        let named = S3Uri::parse("s3://bkt/a\n\u{2066}ü/").expect("an address").to_string();
        assert_eq!(named, "s3://bkt/a\\n\\u{2066}ü/");
    }

    #[test]
    fn etags() {
        let check = |etag: &str, expected: Option<&str>| {
            assert_eq!(quote_etag(etag).as_deref(), expected, "{etag}");
        };
        check("abc", Some("\"abc\""));
        check("\"abc-7\"", Some("\"abc-7\""));
        check("W/\"abc\"", Some("W/\"abc\""));
        check("", Some(""));
        check("a\r\nx-evil: 1", None);
        check("ä", None);
    }
}
