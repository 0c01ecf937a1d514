//! ListObjectsV2: builds the query string, and parses a page.
//!
//! Pure. A page is parsed completely or rejected: anything missing, truncated or unknown is an
//! error, never a shorter list. [`crate::control`] follows the pages.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

use crate::checksum::Algorithm;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::s3::answer::explain;
use crate::s3::uri::{encode_query, quote_etag, shown};
use crate::s3::{ListedChecksum, Object};

/// Longest page in bytes. A thousand keys of 1,024 bytes, all percent-encoded, need about 4 MiB
/// with their elements.
pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest page after the first one of a listing, in bytes: many of them are in flight or buffered
/// at the same time.
pub const LATER_PAGE_BYTES_MAX: usize = 6 * 1024 * 1024;
/// Keys per request; S3's limit.
pub const PAGE_KEYS_MAX: u32 = 1_000;
/// Deepest nesting of a page's elements.
const DEPTH_MAX: usize = 16;

/// One ListObjectsV2 request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Prefix of the keys; may be empty.
    pub prefix: String,
    /// Groups keys below the next slash into common prefixes.
    pub by_folder: bool,
    /// Continuation token of the previous page.
    pub token: Option<String>,
    /// The key after which the page begins; a token takes precedence.
    pub start_after: Option<String>,
    /// Most keys; [`PAGE_KEYS_MAX`] if `None`.
    pub keys_max: Option<u32>,
}

impl ListQuery {
    /// Everything that starts with `prefix`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    /// True if it requests a page after the first one of a listing.
    fn is_later(&self) -> bool {
        self.token.is_some() || self.start_after.is_some()
    }

    /// Longest answer in bytes.
    #[must_use]
    pub fn page_bytes_max(&self) -> usize {
        if self.is_later() { LATER_PAGE_BYTES_MAX } else { PAGE_BYTES_MAX }
    }

    /// The query string, sorted and encoded for `SigV4`, without the question mark.
    #[must_use]
    pub fn to_query(&self) -> String {
        let mut query = String::new();
        if let Some(token) = &self.token {
            query.push_str(&format!("continuation-token={}&", encode_query(token)));
        }
        if self.by_folder {
            query.push_str("delimiter=%2F&");
        }
        let keys_max = self.keys_max.unwrap_or(PAGE_KEYS_MAX);
        let prefix = encode_query(&self.prefix);
        query.push_str("encoding-type=url&list-type=2&");
        query.push_str(&format!("max-keys={keys_max}&prefix={prefix}"));
        if let Some(key) = &self.start_after {
            query.push_str(&format!("&start-after={}", encode_query(key)));
        }
        query
    }
}

/// One page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects, in the server's order.
    pub objects: Vec<Object>,
    /// The common prefixes, if the request groups by folder.
    pub folders: Vec<String>,
    /// Token for the next page; `None` on the last.
    pub next_token: Option<String>,
}

impl Page {
    /// True if nothing is listed here or later. A page may be empty and still have a successor.
    #[must_use]
    pub fn has_nothing(&self) -> bool {
        self.objects.is_empty() && self.folders.is_empty() && self.next_token.is_none()
    }

    /// Refuses a page with more keys than requested, or with folders if none were. A listing that
    /// is complete in its first page is accepted: simple servers return only such.
    ///
    /// # Errors
    /// [`ErrorKind::Endpoint`] that names the server's fault.
    pub fn require_asked(self, query: &ListQuery) -> Result<Self> {
        // Its keys would be missing, and `sync --delete` would remove their files.
        let folder = self.folders.iter().find(|folder| !folder.is_empty() && !query.by_folder);
        if let Some(folder) = folder {
            let folder = shown(folder);
            return Err(unreadable(format!(
                "it has the folder '{folder}' instead of the keys below it"
            )));
        }
        let most = PAGE_KEYS_MAX as usize;
        let keys = self.objects.len().max(self.folders.len());
        if keys <= most || !query.is_later() && self.next_token.is_none() {
            return Ok(self);
        }
        let why = format!("it has {keys} keys, but at most {most} were asked for (max-keys)");
        Err(unreadable(why))
    }

    /// True if this first page of a listing proves that no key equals `key`, or begins with it if
    /// it ends in a slash. If keys are unordered, only a listing of one page proves it.
    #[must_use]
    pub fn proves_absence(&self, key: &str, unordered: bool) -> bool {
        let is_it = |found: &str| found == key || key.ends_with('/') && found.starts_with(key);
        let is_past = |object: &Object| !unordered && object.key.as_str() > key;
        let is_whole = self.next_token.is_none() || self.objects.last().is_some_and(is_past);
        is_whole && !self.objects.iter().any(|object| is_it(&object.key))
    }
}

/// The first bytes of what is compressed by gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Parses one page.
pub fn parse_page(bytes: &[u8]) -> Result<Page> {
    if bytes.len() > PAGE_BYTES_MAX {
        return Err(unreadable(format!(
            "it has {} bytes of at most {PAGE_BYTES_MAX}",
            bytes.len()
        )));
    }
    if bytes.starts_with(&GZIP) {
        return Err(unreadable("it is compressed (gzip), which was not asked for"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8"))?;
    // Some servers begin their answer before they know whether they can give it.
    let refusal = explain(200, bytes, "");
    if !refusal.code.is_empty() {
        return Err(refusal.into_error("the listing is an error"));
    }
    let mut parser = Parser::default();
    let mut reader = Reader::from_str(text);
    while !parser.closed {
        match reader.read_event().map_err(unreadable)? {
            Event::Start(start) => parser.open(start.local_name().as_ref())?,
            Event::Empty(empty) => {
                parser.open(empty.local_name().as_ref())?;
                parser.close()?;
            }
            Event::End(_) => parser.close()?,
            Event::Text(piece) => parser.text.push_str(&piece.xml10_content()),
            Event::CData(piece) => parser.text.push_str(&piece.xml10_content()),
            Event::GeneralRef(reference) => parser
                .text
                .push(resolve_reference(&reference).ok_or_else(|| unreadable("a bad entity"))?),
            Event::Eof => return Err(unreadable("it is incomplete")),
            _ => {}
        }
    }
    parser.finish()
}

fn unreadable(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Endpoint, format!("the listing cannot be read: {why}"))
        .because(ErrorReason::Server)
        .advise("check that --endpoint-url is an S3 server with ListObjectsV2")
}

/// The character of `&amp;`, `&#10;` and similar entities; `None` for any other entity.
pub(crate) fn resolve_reference(reference: &BytesRef<'_>) -> Option<char> {
    match &**reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => reference.resolve_char_ref().ok().flatten(),
    }
}

/// An element of a listing, by its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    ChecksumAlgorithm,
    ChecksumType,
    CommonPrefixes,
    Contents,
    EncodingType,
    Etag,
    IsTruncated,
    Key,
    LastModified,
    /// Of ListObjects, the first version.
    Marker,
    NextContinuationToken,
    /// An element that is ignored, and its content.
    Other,
    Prefix,
    Root,
    Size,
}

impl Element {
    fn of(parent: Self, name: &str) -> Self {
        match (parent, name) {
            (Self::Root, "CommonPrefixes") => Self::CommonPrefixes,
            (Self::Root, "Contents") => Self::Contents,
            (Self::Root, "EncodingType") => Self::EncodingType,
            (Self::Root, "IsTruncated") => Self::IsTruncated,
            (Self::Root, "Marker" | "NextMarker") => Self::Marker,
            (Self::Root, "NextContinuationToken") => Self::NextContinuationToken,
            (Self::CommonPrefixes, "Prefix") => Self::Prefix,
            (Self::Contents, "ChecksumAlgorithm") => Self::ChecksumAlgorithm,
            (Self::Contents, "ChecksumType") => Self::ChecksumType,
            (Self::Contents, "ETag") => Self::Etag,
            (Self::Contents, "Key") => Self::Key,
            (Self::Contents, "LastModified") => Self::LastModified,
            (Self::Contents, "Size") => Self::Size,
            _ => Self::Other,
        }
    }
}

/// The state of parsing a page; names are still encoded, since `EncodingType` may come last.
#[derive(Default)]
struct Parser {
    /// The open elements, outermost first.
    path: Vec<Element>,
    text: String,
    closed: bool,
    encoding: String,
    truncated: Option<bool>,
    has_marker: bool,
    next_token: Option<String>,
    contents: Vec<Contents>,
    folders: Vec<String>,
    current: Contents,
}

#[derive(Default)]
struct Contents {
    key: Option<String>,
    /// The ETag with its quotes; the inner `None` if it is invalid.
    etag: Option<Option<String>>,
    size: Option<Result<u64, &'static str>>,
    last_modified: String,
    checksum: ListedChecksum,
    is_composite: bool,
}

impl Parser {
    fn open(&mut self, name: &str) -> Result<()> {
        let element = match self.path.last() {
            Some(parent) => Element::of(*parent, name),
            None if name == "ListBucketResult" => Element::Root,
            None => {
                return Err(unreadable(format!("it is <{}>, not <ListBucketResult>", shown(name))));
            }
        };
        if self.path.len() == DEPTH_MAX {
            return Err(unreadable("it is nested too deeply"));
        }
        self.path.push(element);
        self.text.clear();
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let text = self.text.as_str();
        let current = &mut self.current;
        match self.path.pop().unwrap_or(Element::Other) {
            Element::Root => self.closed = true,
            Element::EncodingType => text.clone_into(&mut self.encoding),
            Element::IsTruncated => {
                self.truncated = Some(match text.trim() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(unreadable("IsTruncated is neither true nor false")),
                });
            }
            Element::Marker => self.has_marker = true,
            Element::NextContinuationToken => self.next_token = Some(text.to_owned()),
            Element::Contents => self.contents.push(std::mem::take(current)),
            Element::Key => current.key = Some(text.to_owned()),
            Element::Etag => current.etag = Some(quote_etag(text)),
            Element::Size => current.size = Some(Object::parse_size(text)),
            Element::LastModified => text.clone_into(&mut current.last_modified),
            // There may be several.
            Element::ChecksumAlgorithm => {
                let is_crc = Algorithm::of_name(text).is_some_and(Algorithm::is_crc);
                let had_crc = matches!(current.checksum, ListedChecksum::Named { crc: true, .. });
                current.checksum =
                    ListedChecksum::Named { composite: false, crc: is_crc || had_crc };
            }
            Element::ChecksumType => current.is_composite = text == "COMPOSITE",
            Element::Prefix => self.folders.push(text.to_owned()),
            Element::CommonPrefixes | Element::Other => {}
        }
        self.text.clear();
        Ok(())
    }

    fn finish(self) -> Result<Page> {
        let encoded = match self.encoding.trim() {
            "" => false,
            "url" => true,
            other => return Err(unreadable(format!("encoding type '{}'", shown(other)))),
        };
        let next_token = match (self.truncated, self.next_token) {
            (None, _) => return Err(unreadable("IsTruncated is missing")),
            (Some(false), _) => None,
            (Some(true), Some(token)) if !token.is_empty() => Some(token),
            (Some(true), _) if self.has_marker => {
                return Err(unreadable(
                    "it is one of ListObjects (version 1), in answer to list-type=2, and not whole",
                ));
            }
            (Some(true), _) => {
                return Err(unreadable("it is truncated, but has no NextContinuationToken"));
            }
        };
        let objects = self
            .contents
            .into_iter()
            .map(|contents| contents.into_object(encoded))
            .collect::<Result<_>>()?;
        let folders = self
            .folders
            .into_iter()
            .map(|folder| decode(folder, encoded))
            .collect::<Result<_>>()?;
        Ok(Page { objects, folders, next_token })
    }
}

impl Contents {
    fn into_object(self, encoded: bool) -> Result<Object> {
        let key = self.key.filter(|key| !key.is_empty());
        let key = decode(key.ok_or_else(|| unreadable("an object has no Key"))?, encoded)?;
        let trouble = |what: &str| unreadable(format!("{what} of '{}'", shown(&key)));
        let size = self.size.ok_or_else(|| trouble("there is no Size"))?;
        let size_bytes = size.map_err(|why| trouble(&format!("the Size {why}")))?;
        // Some servers list none; then answers are compared with each other.
        let etag = self.etag.unwrap_or_else(|| Some(String::new()));
        let etag = etag.ok_or_else(|| trouble("the ETag has bad characters"))?;
        let checksum = match self.checksum {
            ListedChecksum::Named { crc, .. } => {
                ListedChecksum::Named { composite: self.is_composite, crc }
            }
            _ => ListedChecksum::Unnamed,
        };
        let last_modified = self.last_modified;
        Ok(Object { key, etag, size_bytes, last_modified, checksum, ..Object::default() })
    }
}

/// `encoding-type=url` encodes a space as `+` and a plus as `%2B`, like web forms.
fn decode(name: String, encoded: bool) -> Result<String> {
    if !encoded || !name.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Ok(name);
    }
    let spaced = if name.contains('+') { Cow::Owned(name.replace('+', " ")) } else { name.into() };
    percent_decode_str(&spaced)
        .decode_utf8()
        .map(Cow::into_owned)
        .map_err(|_| unreadable(format!("the key '{}' is not UTF-8", shown(&spaced))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>
<Prefix>a%2F</Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><Delimiter>%2F</Delimiter>
<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
<NextContinuationToken>1/x+y==</NextContinuationToken>
<Contents><Key>a/b+c%2Bd%C3%BC</Key><LastModified>2024-01-02T03:04:05.000Z</LastModified>
<ETag>&quot;e1&quot;</ETag><Size>7</Size><Owner><ID>o</ID><Key>no</Key></Owner>
<StorageClass>STANDARD</StorageClass></Contents>
<Contents><Key>a/z</Key><ETag>"e2"</ETag><Size>0</Size></Contents>
<CommonPrefixes><Prefix>a/f+g/</Prefix></CommonPrefixes>
</ListBucketResult>"#;

    fn object(key: &str, etag: &str, size_bytes: u64, last_modified: &str) -> Object {
        Object {
            key: key.to_owned(),
            etag: etag.to_owned(),
            size_bytes,
            last_modified: last_modified.to_owned(),
            checksum: ListedChecksum::Unnamed,
            ..Object::default()
        }
    }

    #[test]
    fn a_page_of_more_keys_than_were_asked_for_is_refused() {
        let page = |keys: usize, token: Option<&str>| Page {
            objects: vec![Object::default(); keys],
            next_token: token.map(str::to_owned),
            ..Page::default()
        };
        let first = ListQuery::new("a/");
        let later = ListQuery { token: Some("t".to_owned()), ..first.clone() };
        let behind = ListQuery { start_after: Some("k".to_owned()), ..first.clone() };
        for (keys, token, query, is_taken) in [
            (1000, Some("t"), &first, true),
            (1001, Some("t"), &first, false),
            (5000, None, &first, true),
            (1000, None, &later, true),
            (1001, None, &later, false),
            (1001, None, &behind, false),
        ] {
            let taken = page(keys, token).require_asked(query);
            assert_eq!(taken.is_ok(), is_taken, "{keys} {query:?}");
            if let Err(error) = taken {
                assert!(error.to_string().contains("1001 keys, but at most 1000"), "{error}");
            }
        }
        let folders = Page { folders: vec![String::new(); 1001], ..page(0, Some("t")) };
        folders.require_asked(&first).expect_err("too many folders");
        assert!(later.page_bytes_max() < first.page_bytes_max());
    }

    #[test]
    fn a_page() {
        let page = parse_page(PAGE.as_bytes()).expect("a good page");
        assert_eq!(
            page.objects,
            [
                object("a/b c+dü", "\"e1\"", 7, "2024-01-02T03:04:05.000Z"),
                object("a/z", "\"e2\"", 0, ""),
            ]
        );
        assert_eq!(page.folders, ["a/f g/"]);
        assert_eq!(page.next_token.as_deref(), Some("1/x+y=="));
    }

    #[test]
    fn checksums_are_named() {
        let check = |elements: &str, expected: ListedChecksum| {
            let text = PAGE.replace("<StorageClass>", &format!("{elements}<StorageClass>"));
            let page = parse_page(text.as_bytes()).expect("a good page");
            assert_eq!(page.objects[0].checksum, expected, "{elements}");
            assert_eq!(page.objects[1].checksum, ListedChecksum::Unnamed);
        };
        let named = |composite, crc| ListedChecksum::Named { composite, crc };
        let [nvme, sha, other] = ["CRC64NVME", "SHA256", "XXHASH3"]
            .map(|name| format!("<ChecksumAlgorithm>{name}</ChecksumAlgorithm>"));
        check("", ListedChecksum::Unnamed);
        check(&format!("{nvme}<ChecksumType>FULL_OBJECT</ChecksumType>"), named(false, true));
        check(&format!("{sha}<ChecksumType>COMPOSITE</ChecksumType>"), named(true, false));
        check(&format!("{sha}{nvme}"), named(false, true));
        check(&other, named(false, false));
    }

    #[test]
    fn names_stay_as_they_are_without_encoding_type() {
        let text = PAGE.replace("<EncodingType>url</EncodingType>", "");
        let page = parse_page(text.as_bytes()).expect("a good page");
        assert_eq!(page.objects[0].key, "a/b+c%2Bd%C3%BC");
        let last = "</ListBucketResult>";
        let late = text.replace(last, &format!("<EncodingType>url</EncodingType>{last}"));
        assert_eq!(parse_page(late.as_bytes()).expect("a good page").objects[0].key, "a/b c+dü");
    }

    #[test]
    fn entities_and_long_keys() {
        let check = |written: &str, expected: &str| {
            let text = format!(
                "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>{written}</Key>\
                 <Size>1</Size><ETag>e</ETag></Contents></ListBucketResult>"
            );
            let page = parse_page(text.as_bytes()).expect("a good page");
            assert_eq!(page.objects, [object(expected, "\"e\"", 1, "")]);
            assert_eq!(page.next_token, None);
        };
        check("a &amp; &lt;b&gt; &quot;c&quot; &apos;d&apos; &#x41;&#66;", "a & <b> \"c\" 'd' AB");
        check("<![CDATA[a & <b>]]>", "a & <b>");
        check(&"k".repeat(1_000), &"k".repeat(1_000));
        check(" a ", " a ");
    }

    #[test]
    fn every_prefix_is_an_error() {
        for end in 0..PAGE.len() {
            assert!(parse_page(&PAGE.as_bytes()[..end]).is_err(), "{}", &PAGE[..end]);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |from: &str, to: &str, expected: &str| {
            let error = parse_page(PAGE.replace(from, to).as_bytes()).expect_err("a bad page");
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(error.kind(), ErrorKind::Endpoint);
        };
        check("<Size>0</Size>", "", "no Size of 'a/z'");
        check("<Size>0</Size>", "<Size>-1</Size>", "not a number of 'a/z'");
        check("<Size>0</Size>", "<Size/>", "not a number of 'a/z'");
        let long = format!("<Size>{}</Size>", crate::s3::OBJECT_BYTES_MAX + 1);
        check("<Size>0</Size>", &long, "over 2^53 bytes of 'a/z'");
        check("\"e2\"", "\"e&#13;&#10;x\"", "bad characters of 'a/z'");
        check("<Key>a/z</Key>", "", "no Key");
        check("<IsTruncated>true</IsTruncated>", "", "IsTruncated is missing");
        check("<NextContinuationToken>1/x+y==</NextContinuationToken>", "", "no NextCont");
        check("ListBucketResult", "html", "it is <html>");
        check("%C3", "%FF", "not UTF-8");
        check("a/z", "&nope;", "bad entity");
        check(">url<", ">rot13<", "encoding type 'rot13'");
        let token = "<NextContinuationToken>1/x+y==</NextContinuationToken>";
        check(token, "<Marker></Marker><NextMarker>a</NextMarker>", "ListObjects (version 1)");
    }

    #[test]
    fn an_error_with_the_status_of_a_page_is_that_error() {
        let error = |code: &str| {
            let text = format!(
                "<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>Not now.</Message>\
                 <RequestId>R1</RequestId></Error>"
            );
            parse_page(text.as_bytes()).expect_err("no page")
        };
        let expected = "the listing is an error: the server answered 200 AccessDenied (Not now), \
                        request id R1";
        assert_eq!(error("AccessDenied").message(), expected);
        assert_eq!(error("AccessDenied").kind(), ErrorKind::Access);
        assert_eq!(error("InternalError").kind(), ErrorKind::Endpoint);
        assert_eq!(error("AccessDenied").request_id(), Some("R1"));
    }

    #[test]
    fn an_object_without_a_tag_is_an_object() {
        let page = parse_page(PAGE.replace("<ETag>\"e2\"</ETag>", "").as_bytes()).expect("a page");
        let object = page.objects.iter().find(|object| object.key == "a/z").expect("listed");
        assert_eq!(object.etag, "");
    }

    #[test]
    fn questions() {
        let mut query = ListQuery::new("a/b c");
        assert_eq!(
            query.to_query(),
            "encoding-type=url&list-type=2&max-keys=1000&prefix=a%2Fb%20c"
        );
        query.token = Some("x+y/=".to_owned());
        query.by_folder = true;
        query.keys_max = Some(1);
        assert_eq!(
            query.to_query(),
            "continuation-token=x%2By%2F%3D&delimiter=%2F&encoding-type=url&list-type=2\
             &max-keys=1&prefix=a%2Fb%20c"
        );
        let query = ListQuery { start_after: Some("a/ü+".to_owned()), ..ListQuery::new("a/") };
        assert_eq!(
            query.to_query(),
            "encoding-type=url&list-type=2&max-keys=1000&prefix=a%2F&start-after=a%2F%C3%BC%2B"
        );
    }
}
