//! Parses response heads: returns incomplete, or status, framing and the few relevant headers.
//!
//! Pure; it sees no bodies. Framing follows RFC 9112 section 6, ranges RFC 9110 section 14.4.

use std::mem::MaybeUninit;

use crate::checksum::{Algorithm, Stored, unverified};
use crate::limits::{HEAD_BYTES_MAX, HEADER_NAME_BYTES_MAX, HEADERS_MAX};

/// A complete response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// Status code; see [`ContentRange::status_of`].
    pub status: u16,
    /// Length of the head in bytes, including the empty line: the offset of the body.
    pub length: u32,
    /// `Content-Length` in bytes.
    pub content_length: Option<u64>,
    /// `Content-Range`.
    pub content_range: Option<ContentRange>,
    /// `Transfer-Encoding` is present: the body is not delimited by `Content-Length`.
    pub transfer_encoded: bool,
    /// `Transfer-Encoding` is `chunked` alone.
    pub is_chunked: bool,
    /// `Content-Encoding` is present: the bytes may not be the stored ones.
    pub content_encoded: bool,
    /// The connection may carry another request after this answer.
    pub keep_alive: bool,
    /// `ETag`, with its quotes.
    pub etag: Option<&'a [u8]>,
    /// `Last-Modified`.
    pub last_modified: Option<&'a [u8]>,
    /// `x-amz-request-id`.
    pub request_id: Option<&'a [u8]>,
    /// `x-amz-checksum-ALGORITHM`; the cheapest one if there are several.
    pub checksum: Option<(Algorithm, &'a [u8])>,
    /// `x-amz-checksum-type`.
    pub checksum_type: Option<&'a [u8]>,
    /// There is a checksum of an unknown algorithm.
    pub checksum_unknown: bool,
    /// The object is encrypted so that its ETag is not an MD5.
    pub opaque_etag: bool,
}

/// `Content-Range: bytes first-last/size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// First byte.
    pub first: u64,
    /// Last byte, included.
    pub last: u64,
    /// Size of the whole object; `None` for `*`.
    pub size: Option<u64>,
}

impl ContentRange {
    /// The range of a header's value; `None` if that is none.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let rest = value.trim_ascii().strip_prefix(b"bytes ")?;
        let slash = rest.iter().position(|byte| *byte == b'/')?;
        let (range, size) = (&rest[..slash], &rest[slash + 1..]);
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let (first, last) = (number(&range[..dash])?, number(&range[dash + 1..])?);
        let size = if size == b"*" { None } else { Some(number(size)?) };
        let inside = size.is_none_or(|size| last < size);
        (first <= last && inside).then_some(Self { first, last, size })
    }

    /// The status of an answer to a request for a range that has this header: 206 also where a
    /// server sends 200, if `length`, the body's in bytes, is the range's.
    #[must_use]
    pub fn status_of(self, status: u16, length: Option<u64>) -> u16 {
        let is_length =
            length.and_then(|length| length.checked_sub(1)) == Some(self.last - self.first);
        if status == 200 && is_length { 206 } else { status }
    }
}

/// Why bytes are not a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// A relevant header occurs twice with different values, or is not a number.
    Contradictory,
    /// Not HTTP/1.
    Malformed,
    /// Longer than [`HEAD_BYTES_MAX`].
    TooLong,
    /// More than [`HEADERS_MAX`] headers.
    TooManyHeaders,
}

/// Parses the bytes so far; `None` if the head is incomplete. Interim answers before it (RFC 9110
/// section 15.2) are skipped, and count towards its length; a protocol switch (101) is not skipped.
///
/// # Errors
/// If further bytes cannot make it a valid head.
pub fn parse(bytes: &[u8]) -> Result<Option<Head<'_>>, HeadError> {
    let mut begin = 0;
    loop {
        match parse_from(bytes, begin)? {
            Some(head) if (100..200).contains(&head.status) && head.status != 101 => {
                begin = head.length as usize;
            }
            found => return Ok(found),
        }
    }
}

/// Name prefixes of the headers that are retained of a head longer than its buffer.
const RETAINED: [&str; 11] = [
    "content-encoding",
    "content-length",
    "content-range",
    "transfer-encoding",
    "connection",
    "etag",
    "last-modified",
    "location",
    "x-amz-request-id",
    "x-amz-checksum-",
    "x-amz-server-side-encryption",
];

/// True if a line continues the header before it (RFC 9112 section 5.2).
fn is_fold(line: &[u8]) -> bool {
    matches!(line.first(), Some(b' ' | b'\t'))
}

/// The line from the first byte on that can begin a name.
fn from_name(line: &[u8]) -> &[u8] {
    &line[line.iter().position(u8::is_ascii_alphanumeric).unwrap_or(line.len())..]
}

/// True if a line of a head has, or seems to have, a value that [`parse`] or an error uses.
fn is_retained(line: &[u8]) -> bool {
    let names = if is_fold(line) { &COUNTED[..] } else { &RETAINED };
    let word = from_name(line);
    names.iter().any(|name| {
        word.get(..name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// Removes the irrelevant headers from the head so far, and the interim answers before it; returns
/// the number of bytes left. Bytes after the head stay, and the rest of an unfinished line is
/// appended at their end.
pub fn drop_headers(bytes: &mut [u8]) -> usize {
    let (mut from, mut left) = (0, 0);
    // Nothing of the head seen yet; the last line was retained; the head is an interim answer.
    let (mut is_first, mut retains, mut is_interim) = (true, true, false);
    let mut has_ended = false;
    while let Some(end) = bytes[from..].iter().position(|byte| *byte == b'\n') {
        let line = &bytes[from..=from + end];
        let is_empty = matches!(line, b"\r\n" | b"\n");
        if is_first && !is_empty {
            (is_first, retains) = (false, true);
            is_interim = line.get(9) == Some(&b'1') && line.get(9..12) != Some(b"101");
        } else {
            retains = is_empty || is_retained(line) || is_fold(line) && retains;
        }
        let length = line.len();
        if retains {
            bytes.copy_within(from..from + length, left);
            left += length;
        }
        from += length;
        if is_empty && !is_first {
            has_ended = !is_interim;
            if has_ended {
                break;
            }
            (is_first, left) = (true, 0);
        }
    }
    let rest = &bytes[from..];
    let name = from_name(rest);
    let is_named = name.contains(&b':') || name.len() > HEADER_NAME_BYTES_MAX;
    let is_of_retained = is_retained(rest) || is_fold(rest) && retains;
    // This header replaces one that has not ended, or that may continue in the next line.
    let (place, begin): (&[u8], usize) = match is_named && !is_of_retained {
        _ if has_ended || is_first => (b"", from),
        true => (b"x:", bytes.len()),
        false if !retains && (rest.is_empty() || is_fold(rest)) => (b"x:\n", from),
        false => (b"", from),
    };
    // Without space for it, nothing of the line is dropped.
    let has_room = left + place.len() <= begin;
    let (place, begin) = if has_room { (place, begin) } else { (&b""[..], from) };
    bytes[left..left + place.len()].copy_from_slice(place);
    left += place.len();
    bytes.copy_within(begin.., left);
    left + bytes.len() - begin
}

/// The `Location` of a complete head, if it is text.
#[must_use]
pub fn location(head: &[u8]) -> Option<&str> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| {
        let (name, value) = line.split_at_checked("location:".len())?;
        name.eq_ignore_ascii_case(b"location:").then_some(value)
    })?;
    std::str::from_utf8(value.trim_ascii()).ok()
}

/// The head that begins at `begin`; its length counts from the start of the bytes.
fn parse_from(bytes: &[u8], begin: usize) -> Result<Option<Head<'_>>, HeadError> {
    // Only the headers that the head has are written.
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    let window = &bytes[begin..bytes.len().min(HEAD_BYTES_MAX as usize)];
    let parsed = config.parse_response_with_uninit_headers(&mut response, window, &mut headers);
    let mut odd = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut odd_response = httparse::Response::new(&mut []);
    let (parsed, response) = match parsed {
        Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) => {
            // Headers that violate RFC 9110, such as metadata with spaces in its name, are skipped,
            // except relevant ones.
            config
                .ignore_invalid_headers_in_responses(true)
                .allow_spaces_after_header_name_in_responses(true)
                .allow_obsolete_multiline_headers_in_responses(true);
            let parsed =
                config.parse_response_with_uninit_headers(&mut odd_response, window, &mut odd);
            if let Ok(httparse::Status::Complete(length)) = parsed
                && hides_what_counts(&window[..length], odd_response.headers)
            {
                return Err(HeadError::Malformed);
            }
            (parsed, odd_response)
        }
        parsed => (parsed, response),
    };
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX as usize => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(HeadError::TooLong),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooManyHeaders),
        Err(_) => return Err(HeadError::Malformed),
    };
    let mut head = Head {
        status: response.code.ok_or(HeadError::Malformed)?,
        length: u32::try_from(begin + length).map_err(|_| HeadError::TooLong)?,
        content_length: None,
        content_range: None,
        transfer_encoded: false,
        is_chunked: false,
        content_encoded: false,
        // HTTP/1.1 keeps connections open by default (RFC 9112 section 9.3).
        keep_alive: response.version == Some(1),
        etag: None,
        last_modified: None,
        request_id: None,
        checksum: None,
        checksum_type: None,
        checksum_unknown: false,
        opaque_etag: false,
    };
    for header in response.headers.iter() {
        head.take(header.name, header.value)?;
    }
    if let (Some(range), false) = (head.content_range, head.transfer_encoded) {
        head.status = range.status_of(head.status, head.content_length);
    }
    Ok(Some(head))
}

/// Headers that delimit a body or identify its object.
const COUNTED: [&str; 4] = ["content-length", "content-range", "transfer-encoding", "etag"];

/// True if a line seems to be one of those headers but was not parsed: it is damaged, and its value
/// is unknown.
fn hides_what_counts(head: &[u8], parsed: &[httparse::Header<'_>]) -> bool {
    COUNTED.iter().any(|name| {
        let seems = |line: &&[u8]| {
            let begin = line.iter().position(u8::is_ascii_alphanumeric).unwrap_or(line.len());
            let Some((word, rest)) = line[begin..].split_at_checked(name.len()) else {
                return false;
            };
            let is_longer = |next: &u8| next.is_ascii_alphanumeric() || b"-_".contains(next);
            word.eq_ignore_ascii_case(name.as_bytes()) && !rest.first().is_some_and(is_longer)
        };
        let is_sound = |header: &&httparse::Header<'_>| {
            header.name.eq_ignore_ascii_case(name) && !header.value.contains(&b'\n')
        };
        let lines = head.split(|byte| *byte == b'\n').filter(seems).count();
        lines > parsed.iter().filter(is_sound).count()
    })
}

impl<'a> Head<'a> {
    fn take(&mut self, name: &str, value: &'a [u8]) -> Result<(), HeadError> {
        if name.eq_ignore_ascii_case("content-length") {
            let length = number(value).ok_or(HeadError::Contradictory)?;
            if self.content_length.is_some_and(|before| before != length) {
                return Err(HeadError::Contradictory);
            }
            self.content_length = Some(length);
        } else if name.eq_ignore_ascii_case("content-range") && self.status != 416 {
            // With 416 it is `bytes */SIZE`, which does not describe a body.
            let range = ContentRange::parse(value).ok_or(HeadError::Contradictory)?;
            if self.content_range.is_some_and(|before| before != range) {
                return Err(HeadError::Contradictory);
            }
            self.content_range = Some(range);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            let is_only = !self.transfer_encoded;
            self.is_chunked = is_only && value.trim_ascii().eq_ignore_ascii_case(b"chunked");
            self.transfer_encoded = true;
        } else if name.eq_ignore_ascii_case("content-encoding") {
            self.content_encoded |= !value.trim_ascii().eq_ignore_ascii_case(b"identity");
        } else if name.eq_ignore_ascii_case("connection") {
            if has_token(value, b"close") {
                self.keep_alive = false;
            } else if has_token(value, b"keep-alive") {
                self.keep_alive = true;
            }
        } else if name.eq_ignore_ascii_case("etag") {
            self.etag = Some(value);
        } else if name.eq_ignore_ascii_case("last-modified") {
            self.last_modified = Some(value);
        } else if name.eq_ignore_ascii_case("x-amz-request-id") {
            self.request_id = Some(value);
        } else if let Some(algorithm) = Algorithm::of_header(name) {
            if self.checksum.is_none_or(|(other, _)| algorithm < other) {
                self.checksum = Some((algorithm, value));
            }
        } else if name.eq_ignore_ascii_case("x-amz-checksum-type") {
            self.checksum_type = Some(value);
        } else if starts_with(name, "x-amz-checksum-") {
            self.checksum_unknown = true;
        } else if name.eq_ignore_ascii_case("x-amz-server-side-encryption") {
            // `aws:kms`, `aws:kms:dsse`; AES256 keeps the MD5 (Object API, ETag).
            self.opaque_etag |= !value.trim_ascii().eq_ignore_ascii_case(b"AES256");
        } else if starts_with(name, "x-amz-server-side-encryption-customer-") {
            self.opaque_etag = true;
        }
        Ok(())
    }

    /// The stored checksum of the whole object.
    ///
    /// # Errors
    /// Why there is none.
    pub fn stored(&self) -> Result<Stored, &'static str> {
        match self.checksum {
            Some((algorithm, value)) => {
                let etag = self.etag.unwrap_or_default();
                Stored::of_headers(algorithm, value, self.checksum_type, etag)
            }
            None if self.checksum_unknown => Err(unverified::UNSUPPORTED),
            None => Err(unverified::NOT_STORED),
        }
    }
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

fn starts_with(name: &str, start: &str) -> bool {
    name.get(..start.len()).is_some_and(|name| name.eq_ignore_ascii_case(start))
}

/// Parses a decimal number without sign, as RFC 9110 writes lengths.
fn number(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &[u8] = b"HTTP/1.1 206 Partial Content\r\nDate: x\r\nETag: \"abc\"\r\n\
        x-amz-request-id: R1\r\ncontent-range: bytes 8-15/100\r\nContent-Length: 8\r\n\r\n";

    #[test]
    fn a_whole_head_is_understood() {
        let head = parse(RESPONSE).expect("valid").expect("complete");
        assert_eq!((head.status, head.length as usize), (206, RESPONSE.len()));
        assert_eq!(head.content_length, Some(8));
        let range = ContentRange { first: 8, last: 15, size: Some(100) };
        assert_eq!(head.content_range, Some(range));
        assert_eq!(head.etag, Some(&b"\"abc\""[..]));
        assert_eq!(head.request_id, Some(&b"R1"[..]));
        assert!(head.keep_alive && !head.transfer_encoded);
    }

    #[test]
    fn every_prefix_is_incomplete_and_more_changes_nothing() {
        for end in 0..RESPONSE.len() {
            assert_eq!(parse(&RESPONSE[..end]), Ok(None), "{end} bytes");
        }
        let mut longer = RESPONSE.to_vec();
        longer.extend_from_slice(b"body\r\n\r\n");
        assert_eq!(parse(&longer), parse(RESPONSE));
    }

    fn check(headers: &str, expected: Result<(Option<u64>, bool, bool), HeadError>) {
        let text = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
        let seen = parse(text.as_bytes()).map(|head| {
            let head = head.expect("complete");
            (head.content_length, head.transfer_encoded, head.keep_alive)
        });
        assert_eq!(seen, expected, "{headers:?}");
    }

    #[test]
    fn framing_headers() {
        check("", Ok((None, false, true)));
        check("Content-Length: 5\r\nContent-Length: 5\r\n", Ok((Some(5), false, true)));
        check("Content-Length: 5\r\nContent-Length: 6\r\n", Err(HeadError::Contradictory));
        check("Content-Length: -5\r\n", Err(HeadError::Contradictory));
        check("Content-Length: +5\r\n", Err(HeadError::Contradictory));
        check("Content-Length: 99999999999999999999\r\n", Err(HeadError::Contradictory));
        check("Transfer-Encoding: chunked\r\n", Ok((None, true, true)));
        check("Connection: Close\r\n", Ok((None, false, false)));
        check("Connection: foo, close\r\n", Ok((None, false, false)));
        check("Content-Range: bytes 5-4/9\r\n", Err(HeadError::Contradictory));
        check("Content-Range: bytes 0-9/9\r\n", Err(HeadError::Contradictory));
        check("Content-Range: bytes */9\r\n", Err(HeadError::Contradictory));
        check("Content-Range: bytes 0-8/*\r\n", Ok((None, false, true)));
    }

    #[test]
    fn an_unsatisfiable_range_is_reported_by_its_status() {
        // RFC 9110 section 15.5.17: a 416 answer has the size in this form.
        let text = b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */9\r\n\r\n";
        let head = parse(text).expect("a good head").expect("complete");
        assert_eq!((head.status, head.content_range), (416, None));
    }

    #[test]
    fn checksums_and_encryption() {
        let check = |headers: &str, expected: Result<Algorithm, &str>, opaque: bool| {
            let text = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
            let head = parse(text.as_bytes()).expect("valid").expect("complete");
            let stored = head.stored().map(|stored| stored.algorithm);
            match (stored, expected) {
                (Ok(stored), Ok(expected)) => assert_eq!(stored, expected, "{headers}"),
                (Err(why), Err(word)) => assert!(why.contains(word), "{why}"),
                (stored, _) => panic!("{headers}: {stored:?}"),
            }
            assert_eq!(head.opaque_etag, opaque, "{headers}");
        };
        let (crc, nvme) = ("x-amz-checksum-crc32: y/Q5Jg==\r\n", "rosUhgp5mIg=\r\n");
        let nvme = format!("X-Amz-Checksum-Crc64nvme: {nvme}");
        check("", Err("no checksum"), false);
        check(crc, Ok(Algorithm::Crc32), false);
        check(&format!("{crc}{nvme}"), Ok(Algorithm::Crc64Nvme), false);
        check(&format!("{nvme}{crc}"), Ok(Algorithm::Crc64Nvme), false);
        check(&format!("{crc}x-amz-checksum-type: COMPOSITE\r\n"), Err("cannot be read"), false);
        check("x-amz-checksum-xxh3: AA==\r\n", Err("not supported"), false);
        check("x-amz-server-side-encryption: AES256\r\n", Err("no checksum"), false);
        check("x-amz-server-side-encryption: aws:kms\r\n", Err("no checksum"), true);
        let customer = "x-amz-server-side-encryption-customer-algorithm: AES256\r\n";
        check(customer, Err("no checksum"), true);
    }

    #[test]
    fn what_is_not_a_head() {
        assert_eq!(parse(b"SSH-2.0-OpenSSH\r\n"), Err(HeadError::Malformed));
        assert_eq!(parse(b"HTTP/2 200\r\n\r\n"), Err(HeadError::Malformed));
        let mut endless = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
        endless.resize(HEAD_BYTES_MAX as usize, b'y');
        assert_eq!(parse(&endless), Err(HeadError::TooLong));
    }

    /// The rest of the text when headers are dropped at each of these ends.
    fn dropped(text: &[u8], ends: [usize; 2]) -> Vec<u8> {
        let (mut bytes, mut begin) = (Vec::new(), 0);
        for end in ends {
            bytes.extend_from_slice(&text[begin..end]);
            let left = drop_headers(&mut bytes);
            bytes.truncate(left);
            begin = end;
        }
        [&bytes, &text[begin..]].concat()
    }

    /// Dropping headers at any point does not change the parsed head.
    #[test]
    fn dropped_headers_change_nothing() {
        let meta = format!("x-amz-meta-a: {}\r\nx-amz-meta-b: 1\r\n  2\r\n", "v".repeat(300));
        let odd = "x-amz-meta-(c)/d: \u{1}\r\nno colon\r\n";
        let counted = "Content-Length: 4\r\nETag: \"e\"\r\nContent-Range: bytes 0-3/9\r\n\
                       x-amz-checksum-crc32: y/Q5Jg==\r\nConnection: close\r\n";
        for (meta, status) in [(meta.clone(), "206"), (meta + odd, "206"), (String::new(), "400")] {
            for head in [format!("{meta}{counted}"), format!("{counted}{meta}")] {
                let interim = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
                let text = format!("{interim}HTTP/1.1 {status} Words\r\n{head}\r\nbody");
                let whole = parse(text.as_bytes()).expect("valid").expect("complete");
                let steps = [1, 2, 40, 400];
                for (at, step) in (0..=text.len()).flat_map(|at| steps.map(|step| (at, step))) {
                    let bytes = dropped(text.as_bytes(), [at, text.len().min(at + step)]);
                    assert!(bytes.len() <= text.len(), "{at} {step}");
                    let head = parse(&bytes).expect("valid").expect("complete");
                    assert_eq!(head, Head { length: head.length, ..whole }, "{at} {step}");
                    assert_eq!(&bytes[head.length as usize..], b"body", "{at} {step}");
                }
            }
        }
    }

    #[test]
    fn a_long_header_leaves_a_few_bytes() {
        let text = format!("HTTP/1.1 200 OK\r\nETag: \"e\"\r\nx-amz-meta-a: {}", "v".repeat(9000));
        let mut bytes = text.into_bytes();
        for _ in 0..3 {
            let left = drop_headers(&mut bytes);
            assert_eq!(&bytes[..left], b"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nx:");
            bytes.truncate(left);
            bytes.extend_from_slice(&[b'w'; 5000]);
        }
        // Seemingly relevant headers are retained, however damaged.
        let spaces = " ".repeat(2 * HEADER_NAME_BYTES_MAX);
        for begin in [" ", "\t: ", ":", &spaces] {
            let text = format!(
                "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nx-amz-meta-a: 1\r\n\
                 {begin}Transfer-Encoding: chunked\r\n\r\n"
            );
            assert_eq!(parse(text.as_bytes()), Err(HeadError::Malformed), "{begin:?}");
            for at in 0..=text.len() {
                let bytes = dropped(text.as_bytes(), [at, text.len().min(at + 20)]);
                assert_eq!(parse(&bytes), Err(HeadError::Malformed), "{begin:?} {at}");
            }
        }
        // No relevant header is left out.
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n".to_vec();
        let before = bytes.clone();
        assert_eq!((drop_headers(&mut bytes), bytes), (before.len(), before));
    }

    #[test]
    fn headers_that_are_none_are_passed_over() {
        let odd: &[u8] = b"HTTP/1.1 200 OK\r\nx-amz-meta-a b: 1\r\nx-amz-meta-(c)/d: 2\r\n\
            x-amz-meta-e: \x01\xff\r\nx-amz-meta-f\xc3\xa9: \xc3\xa9\r\n: none\r\nno colon\r\n\
            x-amz-meta-g: 1\r\n  2\r\nContent-Length : 5\r\nETag: \"e\"\r\n\r\n";
        let head = parse(odd).expect("valid").expect("complete");
        assert_eq!((head.length as usize, head.content_length), (odd.len(), Some(5)));
        assert_eq!(head.etag, Some(&b"\"e\""[..]));
        for end in 0..odd.len() {
            assert_eq!(parse(&odd[..end]), Ok(None), "{end} bytes");
        }
    }

    #[test]
    fn damaged_headers_that_count_are_not_passed_over() {
        for line in [
            "Content-Length: 5\x01",
            "Transfer-Encoding:\x0bchunked",
            " Transfer-Encoding: chunked",
            "\x01ETag: \"e\"",
            "Content-Range\x02: bytes 0-1/2",
            "ETag: \"e\"\r\n more",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\nx-amz-meta-a b: 1\r\n{line}\r\n\r\n");
            assert_eq!(parse(text.as_bytes()), Err(HeadError::Malformed), "{line:?}");
        }
    }

    #[test]
    fn headers_are_counted() {
        let head = |headers: usize, end: &str| {
            let lines = (0..headers).map(|number| format!("x-amz-meta-{number}: {number}\r\n"));
            format!("HTTP/1.1 200 OK\r\n{}{end}", lines.collect::<String>())
        };
        for headers in [65, HEADERS_MAX] {
            let text = head(headers, "\r\n");
            let parsed = parse(text.as_bytes()).expect("not too many").expect("complete");
            assert_eq!(parsed.length as usize, text.len());
        }
        // Further bytes do not repair it.
        for end in ["\r\n", ""] {
            let text = head(HEADERS_MAX + 1, end);
            assert_eq!(parse(text.as_bytes()), Err(HeadError::TooManyHeaders));
        }
    }

    #[test]
    fn a_range_is_one_by_its_length_whatever_its_status_is() {
        for (length, range, expected) in [
            ("8", "8-15/100", 206),
            ("100", "0-99/100", 206),
            ("1", "0-0/*", 206),
            ("100", "8-15/100", 200),
            ("0", "0-0/1", 200),
            ("8", "0-18446744073709551615/*", 200),
        ] {
            let text = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\
                 Content-Range: bytes {range}\r\n\r\n"
            );
            let head = parse(text.as_bytes()).expect("valid").expect("complete");
            assert_eq!(head.status, expected, "{length} {range}");
        }
        let chunked: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\
            Transfer-Encoding: chunked\r\nContent-Range: bytes 8-15/100\r\n\r\n";
        assert_eq!(parse(chunked).expect("valid").expect("complete").status, 200);
    }

    #[test]
    fn http_1_0_closes_unless_it_says_otherwise() {
        let head = parse(b"HTTP/1.0 200 OK\r\n\r\n").expect("valid").expect("complete");
        assert!(!head.keep_alive);
    }
}
