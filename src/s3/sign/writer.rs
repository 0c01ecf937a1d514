//! Writes the complete, signed head of a range GET into the caller's memory.
//!
//! Pure: the time is an argument.

use std::fmt;
use std::io::Write;
use std::time::SystemTime;

use aws_sigv4::sign::v4;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::{ALL_REGIONS, SigningKeys, USER_AGENT, v4a};
use crate::s3::proxy::Proxy;
use crate::s3::uri::{encode_key, encode_query};
use crate::s3::{ByteRange, Endpoint};

/// Length of a head with the longest key (each byte percent-encoded), a long session token and the
/// rest, in bytes: with this much room [`RequestWriter::write_get`] does not run out.
pub const REQUEST_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most signing keys that one writer caches; more than one only if buckets have several regions or
/// sessions of their own.
const DAY_KEYS_MAX: usize = 64;

/// SHA-256 of no bytes. Every S3-compatible server accepts it, over http and https, signed or not,
/// unlike `UNSIGNED-PAYLOAD`.
pub(super) const EMPTY_BODY_SHA256: &str =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The parameters of a range GET.
#[derive(Debug, Clone, Copy)]
pub struct Get<'a> {
    /// The server of the bucket.
    pub endpoint: &'a Endpoint,
    /// The key, decoded.
    pub key: &'a str,
    /// Path and query of a URL as they are requested, in place of the key; such a request has no
    /// keys.
    pub target: Option<&'a str>,
    /// Version ID; empty for the newest.
    pub version_id: &'a str,
    /// Byte range; `None` for the whole object.
    pub range: Option<ByteRange>,
    /// The ETag that the object must still have, with quotes; empty for any.
    pub if_match: &'a str,
    /// Requests the checksum that the server stores with the object.
    pub with_checksum: bool,
    /// Accepts gzip: objects stored compressed are sent as they are.
    pub accepts_gzip: bool,
}

/// Why a head was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadProblem {
    /// The caller's memory is too small; [`REQUEST_HEAD_BYTES_MAX`] is enough.
    #[error("the request head is longer than its buffer")]
    TooLong,
    /// A value would break out of its header.
    #[error("a header value has a control character")]
    BadValue,
}

/// Writes heads of signed GETs.
///
/// It reuses its buffers and the day's signing keys. One allocation per request remains: aws-sigv4
/// returns the signature as a `String` of 64 bytes. One for all regions has some more.
#[derive(Default)]
pub struct RequestWriter {
    /// Wiped on drop: the session token is part of what is signed.
    canonical: Zeroizing<Vec<u8>>,
    to_sign: Vec<u8>,
    day_keys: Vec<DayKey>,
}

impl fmt::Debug for RequestWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestWriter").field("day_keys", &self.day_keys.len()).finish()
    }
}

/// The key that signs everything of one day in one region, or in all of them; wiped on drop.
struct DayKey {
    access_key: String,
    secret: Zeroizing<String>,
    /// When the keys that it was derived from expire.
    expires: Option<SystemTime>,
    region: String,
    service: &'static str,
    date: [u8; 8],
    key: SigningKey,
}

/// What signs; wiped on drop.
enum SigningKey {
    /// The key of a region.
    OfRegion(Zeroizing<[u8; 32]>),
    /// The key pair for all regions.
    OfAll(v4a::KeyPair),
}

impl SigningKey {
    fn derive(keys: &SigningKeys, endpoint: &Endpoint, now: SystemTime) -> Self {
        if endpoint.is_multi_region() {
            return Self::OfAll(v4a::KeyPair::derive(keys));
        }
        let Endpoint { region, service, .. } = endpoint;
        let made = v4::generate_signing_key(&keys.secret, now, region, service);
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(made.as_ref());
        Self::OfRegion(key)
    }

    /// The signature in hexadecimal.
    fn sign(&self, text: &[u8]) -> String {
        match self {
            Self::OfRegion(key) => v4::calculate_signature(&key[..], text),
            Self::OfAll(pair) => pair.sign(text),
        }
    }
}

impl DayKey {
    /// True if a new key replaces it: nothing is signed with it again.
    fn is_over(&self, keys: &SigningKeys, endpoint: &Endpoint, date: [u8; 8]) -> bool {
        let replaced = self.access_key == keys.access_key
            && self.region == endpoint.region
            && self.service == endpoint.service;
        replaced || self.date != date
    }
}

/// The time as `YYYYMMDDTHHMMSSZ`, for `SigV4`.
pub(super) struct Stamp([u8; 16]);

impl Stamp {
    pub(super) fn new(now: SystemTime) -> Self {
        let now = OffsetDateTime::from(now);
        let mut stamp = [b'0'; 16];
        let year = now.year().clamp(0, 9_999);
        let date = date_digits(year.unsigned_abs(), now.month().into(), now.day());
        stamp[..8].copy_from_slice(&date);
        stamp[8] = b'T';
        for (at, value) in [(9, now.hour()), (11, now.minute()), (13, now.second())] {
            stamp[at..at + 2].copy_from_slice(&two_digits(value));
        }
        stamp[15] = b'Z';
        Self(stamp)
    }

    fn date(&self) -> [u8; 8] {
        let mut date = [0; 8];
        date.copy_from_slice(&self.0[..8]);
        date
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a stamp is ASCII")
    }
}

fn two_digits(value: u8) -> [u8; 2] {
    [b'0' + value / 10 % 10, b'0' + value % 10]
}

fn date_digits(year: u32, month: u8, day: u8) -> [u8; 8] {
    let century = u8::try_from(year / 100 % 100).expect("at most 99");
    let [c, d] = two_digits(century);
    let [x, y] = two_digits(u8::try_from(year % 100).expect("at most 99"));
    let ([m, n], [e, f]) = (two_digits(month), two_digits(day));
    [c, d, x, y, m, n, e, f]
}

impl RequestWriter {
    /// A writer without cached keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the complete head, including its empty line, to the start of `out`; returns its
    /// length.
    ///
    /// Without `keys` the request is not signed. A signature is valid for about 15 minutes from
    /// `now`: write late, and again for a retry.
    pub fn write_get(
        &mut self,
        out: &mut [u8],
        get: &Get<'_>,
        keys: Option<&SigningKeys>,
        now: SystemTime,
    ) -> Result<usize, HeadProblem> {
        if !get.if_match.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            return Err(HeadProblem::BadValue);
        }
        let room = out.len();
        let mut left = out;
        write_plain(&mut left, get).map_err(|_| HeadProblem::TooLong)?;
        if let Some(keys) = keys {
            let stamp = Stamp::new(now);
            let signature = self.signature(get, keys, &stamp, now);
            write_signed(&mut left, get, keys, &stamp, &signature)
                .map_err(|_| HeadProblem::TooLong)?;
        }
        left.write_all(b"\r\n").map_err(|_| HeadProblem::TooLong)?;
        Ok(room - left.len())
    }

    fn signature(
        &mut self,
        get: &Get<'_>,
        keys: &SigningKeys,
        stamp: &Stamp,
        now: SystemTime,
    ) -> String {
        self.canonical.clear();
        write_canonical(&mut self.canonical, get, keys, stamp)
            .expect("writing to a Vec does not fail");
        let mut hash = [0; 64];
        hex::encode_to_slice(Sha256::digest(&self.canonical), &mut hash)
            .expect("32 bytes are 64 digits");
        let (at, date) = (stamp.as_str(), &stamp.as_str()[..8]);
        let Endpoint { region, service, .. } = get.endpoint;
        self.to_sign.clear();
        match get.endpoint.is_multi_region() {
            false => write!(
                self.to_sign,
                "AWS4-HMAC-SHA256\n{at}\n{date}/{region}/{service}/aws4_request\n"
            ),
            true => {
                write!(self.to_sign, "{}\n{at}\n{date}/{service}/aws4_request\n", v4a::ALGORITHM)
            }
        }
        .expect("writing to a Vec does not fail");
        self.to_sign.extend_from_slice(&hash);
        let day = self.day_key(keys, get.endpoint, stamp.date(), now);
        self.day_keys[day].key.sign(&self.to_sign)
    }

    /// Index of the day's signing key; derives it if it is new.
    fn day_key(
        &mut self,
        keys: &SigningKeys,
        endpoint: &Endpoint,
        date: [u8; 8],
        now: SystemTime,
    ) -> usize {
        let Endpoint { region, service, .. } = endpoint;
        let known = self.day_keys.iter().position(|day| {
            day.date == date
                && day.region == *region
                && day.service == *service
                && day.access_key == keys.access_key
                && day.secret == keys.secret
        });
        if let Some(at) = known {
            return at;
        }
        let has_ended = |day: &DayKey| day.expires.is_some_and(|end| end <= now);
        self.day_keys.retain(|day| !day.is_over(keys, endpoint, date) && !has_ended(day));
        if self.day_keys.len() == DAY_KEYS_MAX {
            self.day_keys.clear();
        }
        self.day_keys.push(DayKey {
            access_key: keys.access_key.clone(),
            secret: keys.secret.clone(),
            expires: keys.expires,
            region: region.clone(),
            service,
            date,
            key: SigningKey::derive(keys, endpoint, now),
        });
        self.day_keys.len() - 1
    }
}

/// The request line and the unsigned request's headers.
fn write_plain(out: &mut &mut [u8], get: &Get<'_>) -> std::io::Result<()> {
    let Endpoint { host, path_prefix, .. } = get.endpoint;
    out.write_all(b"GET ")?;
    let relay = get.endpoint.relay();
    if relay.is_some() {
        write!(out, "http://{host}")?;
    }
    match get.target {
        Some(target) => out.write_all(target.as_bytes())?,
        None => write!(out, "{path_prefix}{}", encode_key(get.key))?,
    }
    if !get.version_id.is_empty() {
        write!(out, "?versionId={}", encode_query(get.version_id))?;
    }
    write!(out, " HTTP/1.1\r\nhost: {host}\r\n")?;
    write!(out, "user-agent: {USER_AGENT}\r\n")?;
    if let Some(authorization) = relay.and_then(Proxy::authorization) {
        write!(out, "proxy-authorization: {authorization}\r\n")?;
    }
    if let Some((first, last)) = first_and_last(get.range) {
        write!(out, "range: bytes={first}-{last}\r\n")?;
    }
    if !get.if_match.is_empty() {
        write!(out, "if-match: {}\r\n", get.if_match)?;
    }
    if get.with_checksum {
        write!(out, "x-amz-checksum-mode: ENABLED\r\n")?;
    }
    if get.accepts_gzip {
        // Not signed, because reverse proxies may change it.
        write!(out, "accept-encoding: gzip, identity\r\n")?;
    }
    for (name, value) in get.endpoint.headers.iter(true) {
        write!(out, "{name}: {value}\r\n")?;
    }
    Ok(())
}

fn write_signed(
    out: &mut &mut [u8],
    get: &Get<'_>,
    keys: &SigningKeys,
    stamp: &Stamp,
    signature: &str,
) -> std::io::Result<()> {
    let (at, date) = (stamp.as_str(), &stamp.as_str()[..8]);
    write!(out, "x-amz-content-sha256: {EMPTY_BODY_SHA256}\r\nx-amz-date: {at}\r\n")?;
    if let Some((name, value)) = region_set(get.endpoint) {
        write!(out, "{name}: {value}\r\n")?;
    }
    if let Some(token) = &keys.session_token {
        write!(out, "{}: {}\r\n", keys.token_header, token.as_str())?;
    }
    let (key, Endpoint { region, service, .. }) = (&keys.access_key, get.endpoint);
    match get.endpoint.is_multi_region() {
        false => write!(
            out,
            "authorization: AWS4-HMAC-SHA256 Credential={key}/{date}/{region}/{service}/\
             aws4_request, SignedHeaders="
        ),
        true => write!(
            out,
            "authorization: {} Credential={key}/{date}/{service}/aws4_request, SignedHeaders=",
            v4a::ALGORITHM
        ),
    }?;
    write_signed_names(out, get, keys)?;
    write!(out, ", Signature={signature}\r\n")
}

fn write_canonical(
    out: &mut Vec<u8>,
    get: &Get<'_>,
    keys: &SigningKeys,
    stamp: &Stamp,
) -> std::io::Result<()> {
    let Endpoint { host, path_prefix, .. } = get.endpoint;
    write!(out, "GET\n{path_prefix}{}\n", encode_key(get.key))?;
    if !get.version_id.is_empty() {
        write!(out, "versionId={}", encode_query(get.version_id))?;
    }
    write!(out, "\nhost:{host}\n")?;
    if !get.if_match.is_empty() {
        // SigV4 wants one space in place of several, and none at the ends.
        out.extend_from_slice(b"if-match:");
        for (at, word) in get.if_match.split(' ').filter(|word| !word.is_empty()).enumerate() {
            write!(out, "{}{word}", if at == 0 { "" } else { " " })?;
        }
        out.push(b'\n');
    }
    if let Some((first, last)) = first_and_last(get.range) {
        writeln!(out, "range:bytes={first}-{last}")?;
    }
    if get.with_checksum {
        writeln!(out, "x-amz-checksum-mode:ENABLED")?;
    }
    write!(out, "x-amz-content-sha256:{EMPTY_BODY_SHA256}\nx-amz-date:{}\n", stamp.as_str())?;
    for (name, value) in last_headers(get, keys) {
        writeln!(out, "{name}:{value}")?;
    }
    out.push(b'\n');
    write_signed_names(out, get, keys)?;
    write!(out, "\n{EMPTY_BODY_SHA256}")
}

/// The names of the signed headers in order; the headers of [`write_canonical`].
fn write_signed_names(
    out: &mut impl Write,
    get: &Get<'_>,
    keys: &SigningKeys,
) -> std::io::Result<()> {
    out.write_all(b"host")?;
    for (signed, name) in [
        (!get.if_match.is_empty(), ";if-match"),
        (get.range.is_some(), ";range"),
        (get.with_checksum, ";x-amz-checksum-mode"),
        (true, ";x-amz-content-sha256;x-amz-date"),
    ] {
        if signed {
            out.write_all(name.as_bytes())?;
        }
    }
    for (name, _) in last_headers(get, keys) {
        write!(out, ";{name}")?;
    }
    Ok(())
}

/// The header of a signature for all regions.
fn region_set(endpoint: &Endpoint) -> Option<(&'static str, &'static str)> {
    endpoint.is_multi_region().then_some((v4a::REGION_SET_HEADER, ALL_REGIONS))
}

/// The signed headers whose names follow `x-amz-date`, in order: the regions, the endpoint's own,
/// and the session token among them.
fn last_headers<'a>(
    get: &Get<'a>,
    keys: &'a SigningKeys,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let token = keys.session_token.as_ref().map(|token| (keys.token_header, token.as_str()));
    let headers = &get.endpoint.headers;
    let before = headers.iter(true).filter(|(name, _)| *name < keys.token_header);
    let after = headers.iter(true).filter(|(name, _)| *name > keys.token_header);
    region_set(get.endpoint).into_iter().chain(before).chain(token).chain(after)
}

/// First and last byte for the `Range` header.
fn first_and_last(range: Option<ByteRange>) -> Option<(u64, u64)> {
    range.map(|range| {
        assert!(range.length > 0, "a range is never empty");
        (range.offset, range.offset + (range.length - 1))
    })
}

#[cfg(test)]
mod tests {
    use super::super::keys::SESSION_TOKEN_BYTES_MAX;
    use super::super::{DIRECTORY_SERVICE, PublishedKeys, sign_request};
    use super::*;
    use crate::error::ErrorKind;
    use crate::s3::headers::{CustomerKey, ExtraHeaders};
    use crate::s3::proxy::Proxies;
    use crate::s3::uri::VERSION_ID_BYTES_MAX;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const ACCESS: &str = "AKIAIOSFODNN7EXAMPLE";

    fn endpoint(host: &str, path_prefix: &str, region: &str) -> Endpoint {
        Endpoint::new("bucket", false, host, path_prefix, region, vec![([127, 0, 0, 1], 80).into()])
    }

    fn keys(token: Option<&str>) -> SigningKeys {
        SigningKeys::new(ACCESS, SECRET, token, None).expect("good keys")
    }

    /// The `Authorization` of aws-sigv4 for the same target and headers.
    fn general(head: &str, endpoint: &Endpoint, keys: &SigningKeys, now: SystemTime) -> String {
        let mut lines = head.trim_end().split("\r\n");
        let target = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a target");
        let mut request = http::Request::get(target);
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a header");
            let made = ["x-amz-content-sha256", "x-amz-date", "authorization", keys.token_header];
            let is_made = made.contains(&name) || name == v4a::REGION_SET_HEADER;
            if !is_made && name != "accept-encoding" {
                request = request.header(name, value);
            }
        }
        let mut request = request.body(()).expect("a request");
        sign_request(&mut request, endpoint, keys, now).expect("it can be signed");
        request.headers()["authorization"].to_str().expect("text").to_owned()
    }

    fn authorization(head: &str) -> &str {
        let line = head.lines().find(|line| line.starts_with("authorization: "));
        line.expect("an authorization").split_once(": ").expect("a header").1
    }

    fn customer_key() -> CustomerKey {
        CustomerKey::from_file(b"0123456789abcdef0123456789ABCDEF").expect("32 bytes")
    }

    fn proxy(url: &str, endpoint: &Endpoint) -> Option<Arc<Proxy>> {
        let proxies = Proxies::from_variables(|name| (name == "http_proxy").then(|| url.into()));
        let proxy = proxies.of(endpoint).expect("usable");
        assert!(proxy.is_some(), "there is one");
        proxy
    }

    #[test]
    fn a_url_is_requested_as_it_is_without_keys() {
        let endpoint = endpoint("cdn.test", "/", "us-east-1");
        let get = Get {
            endpoint: &endpoint,
            key: "a b",
            target: Some("/a%20b?X-Amz-Signature=x%2f"),
            version_id: "",
            range: Some(ByteRange { offset: 5, length: 3 }),
            if_match: "\"e\"",
            with_checksum: false,
            accepts_gzip: false,
        };
        let mut out = [0; REQUEST_HEAD_BYTES_MAX];
        let length = RequestWriter::new().write_get(&mut out, &get, None, UNIX_EPOCH);
        let head = std::str::from_utf8(&out[..length.expect("room")]).expect("ASCII");
        assert_eq!(
            head,
            format!(
                "GET /a%20b?X-Amz-Signature=x%2f HTTP/1.1\r\nhost: cdn.test\r\n\
                 user-agent: {USER_AGENT}\r\nrange: bytes=5-7\r\nif-match: \"e\"\r\n\r\n"
            )
        );
    }

    /// A proxy gets the whole URL; the signature does not change.
    #[test]
    fn a_proxy_is_asked_for_the_whole_url() {
        for host in ["b.s3.x", "[fd00::1]:9000", "h:9000"] {
            let mut endpoint = endpoint(host, "/bucket/", "r");
            let write = |endpoint: &Endpoint| {
                let get = Get {
                    endpoint,
                    key: "a/b c",
                    target: None,
                    version_id: "v+1",
                    range: Some(ByteRange { offset: 2, length: 3 }),
                    if_match: "\"e\"",
                    with_checksum: false,
                    accepts_gzip: false,
                };
                let mut out = [0; REQUEST_HEAD_BYTES_MAX];
                let keys = keys(Some("T"));
                let length = RequestWriter::new()
                    .write_get(&mut out, &get, Some(&keys), published_time())
                    .expect("there is room");
                String::from_utf8(out[..length].to_vec()).expect("text")
            };
            let direct = write(&endpoint);
            let target = "/bucket/a/b%20c?versionId=v%2B1";
            assert!(direct.starts_with(&format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n")));
            let whole = direct.replace("GET /", &format!("GET http://{host}/"));
            endpoint.proxy = proxy("p:3128", &endpoint);
            assert_eq!(write(&endpoint), whole);
            endpoint.proxy = proxy("http://me:hunter2@p:3128", &endpoint);
            // `printf me:hunter2 | base64`
            let named = "\r\nproxy-authorization: Basic bWU6aHVudGVyMg==\r\nrange:";
            assert_eq!(write(&endpoint), whole.replace("\r\nrange:", named));
            // Over TLS only the server sees the request; the proxy's user goes into CONNECT.
            endpoint.tls = true;
            assert_eq!(write(&endpoint), direct);
        }
    }

    /// 2013-05-24T00:00:00Z, the time of AWS's published examples.
    fn published_time() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_369_353_600)
    }

    #[test]
    fn the_published_example() {
        let endpoint = endpoint("examplebucket.s3.amazonaws.com", "/", "us-east-1");
        let range = Some(ByteRange { offset: 0, length: 10 });
        let get = Get {
            endpoint: &endpoint,
            key: "test.txt",
            target: None,
            version_id: "",
            range,
            if_match: "",
            with_checksum: false,
            accepts_gzip: false,
        };
        let mut out = [0; REQUEST_HEAD_BYTES_MAX];
        let length = RequestWriter::new()
            .write_get(&mut out, &get, Some(&keys(None)), published_time())
            .expect("there is room");
        let head = std::str::from_utf8(&out[..length]).expect("text");
        assert_eq!(
            authorization(head),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert!(head.starts_with("GET /test.txt HTTP/1.1\r\nhost: examplebucket.s3."), "{head}");
        assert!(head.contains("\r\nrange: bytes=0-9\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn keys_of_other_days_and_ended_ones_are_dropped_and_wiped() {
        fn wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let day = Duration::from_secs(86_400);
        let start = UNIX_EPOCH + day * 20_000;
        let (here, there) = (endpoint("h", "/b/", "one"), endpoint("h", "/b/", "two"));
        let mut writer = RequestWriter::new();
        let mut sign = |endpoint: &Endpoint, keys: &SigningKeys, now: SystemTime| {
            let get = Get {
                endpoint,
                key: "k",
                target: None,
                version_id: "",
                range: None,
                if_match: "",
                with_checksum: false,
                accepts_gzip: false,
            };
            let mut out = [0; 2048];
            writer.write_get(&mut out, &get, Some(keys), now).expect("it fits");
            let pair_of = |day: &DayKey| (day.access_key.clone(), day.region.clone());
            writer.day_keys.iter().map(pair_of).collect::<Vec<_>>()
        };
        let pair = |key: &str, region: &str| (key.to_owned(), region.to_owned());
        let hour = Duration::from_secs(3_600);
        let session = SigningKeys::new("session", SECRET, None, Some(start + hour)).expect("keys");
        let newer = SigningKeys::new("session", "another", None, Some(start + hour)).expect("keys");
        let long = keys(None);
        assert_eq!(sign(&here, &long, start), [pair(ACCESS, "one")]);
        sign(&there, &long, start);
        sign(&here, &session, start);
        let three = [pair(ACCESS, "one"), pair(ACCESS, "two"), pair("session", "one")];
        assert_eq!(sign(&here, &long, start), three, "all of them are used again");
        assert_eq!(sign(&here, &newer, start), three, "another secret takes the old one's place");
        let later = [pair(ACCESS, "one"), pair(ACCESS, "two"), pair("other", "one")];
        let other = SigningKeys::new("other", SECRET, None, None).expect("keys");
        assert_eq!(sign(&here, &other, start + hour), later, "the session has ended");
        assert_eq!(sign(&here, &long, start + day), [pair(ACCESS, "one")], "another day");
        let day = &writer.day_keys[0];
        wiped(&day.secret);
        let SigningKey::OfRegion(key) = &day.key else { panic!("the key of a region") };
        wiped(key);
        wiped(&writer.canonical);
    }

    #[test]
    fn secrets_are_not_shown() {
        let keys = keys(Some("TOKENTOKEN"));
        let mut writer = RequestWriter::new();
        let endpoint = endpoint("h", "/b/", "r");
        let get = Get {
            endpoint: &endpoint,
            key: "k",
            target: None,
            version_id: "",
            range: None,
            if_match: "",
            with_checksum: false,
            accepts_gzip: false,
        };
        let mut out = [0; REQUEST_HEAD_BYTES_MAX];
        writer.write_get(&mut out, &get, Some(&keys), published_time()).expect("there is room");
        let shown =
            format!("{keys:?} {keys:#?} {writer:?} {:?}", PublishedKeys::new(Some(keys.clone())));
        assert!(!shown.contains("wJalr") && !shown.contains("TOKEN"), "{shown}");
        assert!(shown.contains(ACCESS));
        let error = SigningKeys::new(ACCESS, "wJalr\u{e9}", None, None).expect_err("not ASCII");
        assert!(!error.to_string().contains("wJalr"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Access);
    }

    #[test]
    fn small_buffers_and_bad_values_are_refused() {
        let endpoint = endpoint("h", "/b/", "r");
        let get = Get {
            endpoint: &endpoint,
            key: "k",
            target: None,
            version_id: "",
            range: None,
            if_match: "\"e\"",
            with_checksum: true,
            accepts_gzip: false,
        };
        let mut writer = RequestWriter::new();
        let mut out = [0; REQUEST_HEAD_BYTES_MAX];
        let keys = keys(None);
        let mut write = |out: &mut [u8], get: &Get<'_>| {
            writer.write_get(out, get, Some(&keys), published_time())
        };
        let length = write(&mut out, &get).expect("there is room");
        for short in 0..length {
            assert_eq!(write(&mut out[..short], &get), Err(HeadProblem::TooLong));
        }
        assert_eq!(write(&mut out[..length], &get), Ok(length));
        let evil = Get { if_match: "\"e\"\r\nx-evil: 1", ..get };
        assert_eq!(write(&mut out, &evil), Err(HeadProblem::BadValue));
    }

    #[test]
    fn the_longest_head_fits() {
        for region in ["ap-southeast-2", ALL_REGIONS] {
            let path_prefix = format!("/{}/", "b".repeat(63));
            let mut endpoint = endpoint(&"h".repeat(253), &path_prefix, region);
            endpoint.headers = ExtraHeaders::new(true, Some(&customer_key()));
            endpoint.proxy = proxy(&format!("http://me:{}@p", "x".repeat(509)), &endpoint);
            let get = Get {
                endpoint: &endpoint,
                key: &"ü".repeat(512),
                target: None,
                version_id: &"v".repeat(VERSION_ID_BYTES_MAX),
                range: Some(ByteRange { offset: u64::MAX - 9, length: 9 }),
                if_match: "\"e\"",
                with_checksum: true,
                accepts_gzip: false,
            };
            let keys = keys(Some(&"t".repeat(SESSION_TOKEN_BYTES_MAX)));
            let mut out = [0; REQUEST_HEAD_BYTES_MAX];
            let written =
                RequestWriter::new().write_get(&mut out, &get, Some(&keys), published_time());
            assert!(written.is_ok(), "{region}");
        }
    }

    /// A head without its signature.
    fn unsigned(head: &str) -> String {
        let lines = head.split_inclusive("\r\n");
        lines.filter(|line| !line.starts_with("authorization: ")).collect()
    }

    /// The signature is of the canonical request that [`v4a::sign_request`] would sign.
    #[track_caller]
    fn check_for_all_regions(head: &str, keys: &SigningKeys, token: Option<&str>) {
        let mut lines = unsigned(head);
        lines.truncate(lines.trim_end().len());
        let mut lines = lines.split("\r\n");
        let target = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a target");
        let headers = lines.map(|line| line.split_once(": ").expect("a header"));
        let request = headers
            .fold(http::Request::get(target), |request, (name, value)| request.header(name, value));
        let (canonical, names) = v4a::canonical_request(&request.body(()).expect("a request"));
        let token_name = if token.is_some() { ";x-amz-security-token" } else { "" };
        assert!(names.contains("x-amz-date;x-amz-region-set"), "{names}");
        assert!(names.contains(token_name), "{names}");
        let start = format!(
            "AWS4-ECDSA-P256-SHA256 Credential={ACCESS}/20130524/s3/aws4_request, \
             SignedHeaders={names}, Signature="
        );
        let signature = authorization(head).strip_prefix(&start).expect("its parts");
        let hash = hex::encode(Sha256::digest(canonical.as_bytes()));
        let to_sign =
            format!("AWS4-ECDSA-P256-SHA256\n20130524T000000Z\n20130524/s3/aws4_request\n{hash}");
        assert!(v4a::is_signature(keys, to_sign.as_bytes(), signature), "{head}");
        let other = to_sign.replace("/s3/", "/s4/");
        assert!(!v4a::is_signature(keys, other.as_bytes(), signature), "{head}");
    }

    #[test]
    fn a_key_pair_signs_for_all_regions_and_is_kept() {
        let host = "mfzwi23gnjvgw.mrap.accesspoint.s3-global.amazonaws.com";
        let mut endpoint = endpoint(host, "/", ALL_REGIONS);
        endpoint.headers = ExtraHeaders::new(true, Some(&customer_key()));
        let mut writer = RequestWriter::new();
        for token in [None, Some("TOKEN"), None] {
            let keys = keys(token);
            let get = Get {
                endpoint: &endpoint,
                key: "a/b c",
                target: None,
                version_id: "v+1",
                range: Some(ByteRange { offset: 2, length: 3 }),
                if_match: "\"a  b\"",
                with_checksum: true,
                accepts_gzip: true,
            };
            let mut out = [0; REQUEST_HEAD_BYTES_MAX];
            let length = writer
                .write_get(&mut out, &get, Some(&keys), published_time())
                .expect("there is room");
            let head = std::str::from_utf8(&out[..length]).expect("text");
            assert!(head.contains("\r\nx-amz-region-set: *\r\n"), "{head}");
            check_for_all_regions(head, &keys, token);
            assert_eq!(writer.day_keys.len(), 1, "it is derived once");
            assert!(matches!(writer.day_keys[0].key, SigningKey::OfAll(_)));
        }
    }

    /// A directory bucket's request, whose signature was computed with Python's hashlib and hmac
    /// from the canonical request in the documentation of `SigV4`.
    #[test]
    fn a_session_signs_for_its_service() {
        let mut endpoint = endpoint(
            "train--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com",
            "/",
            "us-west-2",
        );
        endpoint.service = DIRECTORY_SERVICE;
        let get = Get {
            endpoint: &endpoint,
            key: "a/b c",
            target: None,
            version_id: "",
            range: None,
            if_match: "",
            with_checksum: false,
            accepts_gzip: false,
        };
        let keys = SigningKeys::of_session(ACCESS, SECRET, "TOKEN", published_time());
        let mut out = [0; REQUEST_HEAD_BYTES_MAX];
        let length = RequestWriter::new()
            .write_get(&mut out, &get, Some(&keys.expect("good keys")), published_time())
            .expect("there is room");
        let head = std::str::from_utf8(&out[..length]).expect("text");
        assert_eq!(
            head,
            format!(
                "GET /a/b%20c HTTP/1.1\r\n\
                 host: train--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com\r\n\
                 user-agent: {USER_AGENT}\r\n\
                 x-amz-content-sha256: {EMPTY_BODY_SHA256}\r\n\
                 x-amz-date: 20130524T000000Z\r\n\
                 x-amz-s3session-token: TOKEN\r\n\
                 authorization: AWS4-HMAC-SHA256 \
                 Credential={ACCESS}/20130524/us-west-2/s3express/aws4_request, \
                 SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-s3session-token, \
                 Signature=e3074dc3e788a2847999d4615a49ff8a6193fd8f597b37018dea5d0ed6126064\r\n\r\n"
            )
        );
    }

    fn any_key() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            " ", "+", "%2F", "=", "&", "ü", "日", "//", "~", "/", ".", "..", "a", "Z", "?", "#",
            "*", "'", "(", ":", "@", "$", ",", ";", "\\", "|", "^", "`", "\"", "<", "\u{7f}", "\n",
        ]);
        prop_oneof![
            prop::collection::vec(piece, 1..40).prop_map(|pieces| pieces.concat()),
            prop::collection::vec(any::<char>(), 1..100).prop_map(String::from_iter),
            Just("k".repeat(1_000)),
        ]
    }

    proptest! {
        // The failing input is printed; it becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_fast_way_is_the_general_way(
            key in any_key(),
            range in prop::option::of((0..1_u64 << 50, 1..1_u64 << 40)),
            etag in prop::sample::select(vec!["", "\"abc\"", "\"d41d-17\"", "W/\"a  b \""]),
            version_id in prop::sample::select(vec!["", "null", "3HL4+/kqtJ"]),
            token in prop::option::of("[A-Za-z0-9+/=]{1,900}"),
            seconds in 0..7_000_000_000_u64,
            with_checksum: bool,
            options: [bool; 3],
            region in prop::sample::select(vec!["us-east-1", "eu-west-1"]),
            place in prop::sample::select(vec![("h:9000", "/bucket/"), ("b.s3.eu.x", "/")]),
        ) {
            let mut endpoint = endpoint(place.0, place.1, region);
            let [requester_pays, with_key, is_directory] = options;
            let customer_key = with_key.then(customer_key);
            endpoint.headers = ExtraHeaders::new(requester_pays, customer_key.as_ref());
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            let mut keys = keys(token.as_deref());
            if is_directory {
                endpoint.service = DIRECTORY_SERVICE;
                let token = token.as_deref().unwrap_or("T");
                keys = SigningKeys::of_session(ACCESS, SECRET, token, now).expect("good keys");
            }
            let range = range.map(|(offset, length)| ByteRange { offset, length });
            let endpoint = &endpoint;
            let get = Get {
                endpoint,
                key: &key,
                target: None,
                version_id,
                range,
                if_match: etag,
                with_checksum,
                accepts_gzip: range.is_none(),
            };
            let mut writer = RequestWriter::new();
            let mut out = [0; REQUEST_HEAD_BYTES_MAX];
            // Twice: with a new signing key, and with the cached one.
            for _ in 0..2 {
                let length = writer.write_get(&mut out, &get, Some(&keys), now).expect("room");
                let head = std::str::from_utf8(&out[..length]).expect("text");
                let signed = authorization(head);
                prop_assert_eq!(signed, general(head, endpoint, &keys, now));
                let target = head.split(' ').nth(1).expect("a target");
                prop_assert_eq!(target.contains("?versionId="), !version_id.is_empty());
                for (name, there) in [
                    ("x-amz-request-payer", requester_pays),
                    ("x-amz-server-side-encryption-customer-algorithm", with_key),
                    ("x-amz-server-side-encryption-customer-key", with_key),
                    ("x-amz-server-side-encryption-customer-key-md5", with_key),
                    ("x-amz-s3session-token", is_directory),
                    ("x-amz-security-token", token.is_some() && !is_directory),
                ] {
                    let sent = head.contains(&format!("\r\n{name}: "));
                    let names = signed.split("SignedHeaders=").nth(1).expect("names");
                    let names = names.split(',').next().expect("names");
                    let is_signed = names.split(';').any(|signed| signed == name);
                    prop_assert_eq!((sent, is_signed), (there, there), "{}", name);
                }
            }
        }
    }
}
