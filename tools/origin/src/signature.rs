//! Signature Version 4, the verifying side: headers or a presigned query; and 4A in headers.
//!
//! Written from S3's documentation and on purpose without the library that clients sign with, so
//! that a mistake there is not repeated here. A pure function of request, credentials and time, but
//! for credentials that end after a number of requests.
//!
//! Out of scope: chunked uploads (this origin is read-only), and SigV4A in a presigned query.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use hmac::{Hmac, KeyInit, Mac};
use hyper::header::{AUTHORIZATION, DATE, HOST, HeaderMap};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sha2::{Digest, Sha256};

use crate::config::Credentials;
use crate::dates::{basic_of_http, iso, parse_basic, seconds};
use crate::error::{Code, S3Error};
use crate::request::{Query, decode};
use crate::v4a;

type HmacSha256 = Hmac<Sha256>;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Hosts of multi-region access points, whose requests are for no region.
const GLOBAL_HOSTS: &str = ".accesspoint.s3-global.amazonaws.com";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// The SHA-256 of nothing: the payload of every request that only reads.
const EMPTY_HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// How far a request's time may be from ours.
const SKEW_SECONDS_MAX: i64 = 15 * 60;
/// The longest life of a presigned request: seven days.
const EXPIRES_SECONDS_MAX: i64 = 7 * 24 * 3600;

/// What AWS leaves unencoded in query names and values.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Bytes that are escaped in paths, where a slash separates.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// The parts of a request that a signature speaks about.
#[derive(Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    /// As it came over the wire.
    pub(crate) path: &'a str,
    /// Decoded once.
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) now: SystemTime,
}

/// Derived keys, so that a request costs two hashes and one HMAC instead of five. One per worker.
#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    entries: Vec<(CacheName, HmacSha256)>,
    /// Those of SigV4A, by the credentials.
    public_keys: BTreeMap<usize, v4a::PublicKey>,
}

#[derive(Debug, PartialEq, Eq)]
struct CacheName {
    credentials: usize,
    date: String,
    region: String,
}

/// Most derived keys that are kept: a few credentials, today and yesterday.
const CACHED_KEYS_MAX: usize = 64;

/// Who may read, and the region that signatures must name.
#[derive(Debug)]
pub(crate) struct Verifier {
    credentials: Vec<Credentials>,
    pub(crate) region: String,
    /// Requests that each of them has signed well.
    requests: Vec<AtomicU64>,
}

/// What a request says about its own signature.
struct Claim<'a> {
    algorithm: &'static str,
    access_key: &'a str,
    date: &'a str,
    /// With SigV4A the regions that it is for.
    region: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
    /// `20130524T000000Z`
    time: String,
    payload: &'a str,
    token: Option<&'a str>,
    presigned: bool,
}

impl Verifier {
    pub(crate) fn new(credentials: Vec<Credentials>, region: String) -> Self {
        let requests = credentials.iter().map(|_| AtomicU64::new(0)).collect();
        Self { credentials, region, requests }
    }

    /// Accepts the request or says why not. Without credentials everything is accepted.
    pub(crate) fn verify(&self, cache: &mut KeyCache, request: &Signed<'_>) -> Result<(), S3Error> {
        if self.credentials.is_empty() {
            return Ok(());
        }
        let claim = Claim::read(request)?;
        let is_for_several = claim.algorithm == v4a::ALGORITHM;
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok());
        if !is_for_several && host.is_some_and(|host| host.ends_with(GLOBAL_HOSTS)) {
            let why = "requests to a multi-region access point are signed with SigV4A";
            return Err(S3Error::new(Code::InvalidRequest, why));
        }
        let is_here = match is_for_several {
            true => v4a::includes(claim.region, &self.region),
            false => claim.region == self.region,
        };
        if !is_here {
            return Err(self.wrong_region(&claim));
        }
        let Some(index) = self.find(&claim) else {
            let error = S3Error::from(Code::InvalidAccessKeyId);
            return Err(error.with("AWSAccessKeyId", claim.access_key));
        };
        let credentials = &self.credentials[index];
        check_token(credentials, &claim, request.now)?;
        check_time(&claim, request)?;
        let headers = check_signed_headers(&claim, request.headers)?;
        let canonical = canonical_request(&claim, request, &headers);
        let scope = match is_for_several {
            true => format!("{}/s3/aws4_request", claim.date),
            false => format!("{}/{}/s3/aws4_request", claim.date, claim.region),
        };
        let (algorithm, hash) = (claim.algorithm, hex(&Sha256::digest(&canonical)));
        let to_sign = format!("{algorithm}\n{}\n{scope}\n{hash}", claim.time);
        match unhex(claim.signature) {
            Some(given) if self.is_signature(cache, &claim, index, &to_sign, &given) => {
                self.count(index)
            }
            _ => Err(S3Error::from(Code::SignatureDoesNotMatch)
                .with("AWSAccessKeyId", claim.access_key)
                .with("StringToSign", to_sign)
                .with("SignatureProvided", claim.signature)
                .with("CanonicalRequest", canonical)),
        }
    }

    fn is_signature(
        &self,
        cache: &mut KeyCache,
        claim: &Claim<'_>,
        index: usize,
        to_sign: &str,
        given: &[u8],
    ) -> bool {
        let Credentials { access_key, secret_key, .. } = &self.credentials[index];
        if claim.algorithm == v4a::ALGORITHM {
            let derive = || v4a::public_key(access_key, secret_key);
            let key = cache.public_keys.entry(index).or_insert_with(derive);
            return v4a::is_signature(key, to_sign.as_bytes(), given);
        }
        let (date, region) = (claim.date.to_owned(), claim.region.to_owned());
        let mut mac = cache.key(CacheName { credentials: index, date, region }, secret_key);
        mac.update(to_sign.as_bytes());
        // It compares in constant time.
        mac.verify_slice(given).is_ok()
    }

    /// Whose signature it says it is: of several of one name those with the right token.
    fn find(&self, claim: &Claim<'_>) -> Option<usize> {
        let named = |known: &Credentials| known.access_key == claim.access_key;
        let exact = self
            .credentials
            .iter()
            .position(|known| named(known) && known.session_token.as_deref() == claim.token);
        exact.or_else(|| self.credentials.iter().position(named))
    }

    fn count(&self, index: usize) -> Result<(), S3Error> {
        let before = self.requests[index].fetch_add(1, Ordering::Relaxed);
        match self.credentials[index].expires_after_requests {
            Some(limit) if before >= limit => Err(Code::ExpiredToken.into()),
            _ => Ok(()),
        }
    }

    fn wrong_region(&self, claim: &Claim<'_>) -> S3Error {
        let message = format!(
            "The authorization header is malformed; the region '{}' is wrong; expecting '{}'",
            claim.region, self.region
        );
        let code = if claim.presigned {
            Code::AuthorizationQueryParametersError
        } else {
            Code::AuthorizationHeaderMalformed
        };
        S3Error::new(code, message).with("Region", self.region.clone())
    }
}

impl KeyCache {
    fn key(&mut self, name: CacheName, secret: &str) -> HmacSha256 {
        if let Some((_, key)) = self.entries.iter().find(|(known, _)| *known == name) {
            return key.clone();
        }
        let mut key = hmac(format!("AWS4{secret}").as_bytes(), name.date.as_bytes());
        for part in [name.region.as_str(), "s3", "aws4_request"] {
            key = hmac(&key, part.as_bytes());
        }
        let key = keyed(&key);
        if self.entries.len() >= CACHED_KEYS_MAX {
            self.entries.clear();
        }
        self.entries.push((name, key.clone()));
        key
    }
}

impl<'a> Claim<'a> {
    fn read(request: &Signed<'a>) -> Result<Self, S3Error> {
        if let Some(header) = request.headers.get(AUTHORIZATION) {
            let text = header.to_str().map_err(|_| Code::AuthorizationHeaderMalformed)?;
            return Self::from_header(text, request);
        }
        if request.query.get("X-Amz-Signature").is_some()
            || request.query.get("X-Amz-Algorithm").is_some()
        {
            return Self::from_query(request.query);
        }
        Err(Code::AccessDenied.into())
    }

    fn from_header(text: &'a str, request: &Signed<'a>) -> Result<Self, S3Error> {
        let malformed = |why: &str| {
            let message = format!("The authorization header is malformed; {why}");
            S3Error::new(Code::AuthorizationHeaderMalformed, message)
        };
        let known = [ALGORITHM, v4a::ALGORITHM].into_iter().find_map(|algorithm| {
            let fields = text.strip_prefix(algorithm)?;
            fields.starts_with(' ').then_some((algorithm, fields))
        });
        let Some((algorithm, fields)) = known else {
            let message = "Unsupported Authorization Type";
            return Err(S3Error::new(Code::InvalidArgument, message));
        };
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for field in fields.split(',') {
            match field.trim().split_once('=') {
                Some(("Credential", value)) => credential = Some(value),
                Some(("SignedHeaders", value)) => signed_headers = Some(value),
                Some(("Signature", value)) => signature = Some(value),
                _ => return Err(malformed("a field is not known")),
            }
        }
        let (Some(credential), Some(signed_headers), Some(signature)) =
            (credential, signed_headers, signature)
        else {
            return Err(malformed("Credential, SignedHeaders and Signature are required"));
        };
        let is_for_several = algorithm == v4a::ALGORITHM;
        let named = if is_for_several { scope_of_all(credential) } else { scope(credential) };
        let (access_key, date, region) = named
            .ok_or_else(|| malformed("expecting \"<key>/YYYYMMDD/REGION/s3/aws4_request\""))?;
        let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
        let time = match (header("x-amz-date"), header(DATE.as_str())) {
            (Some(time), _) => time.to_owned(),
            (None, Some(date)) => basic_of_http(date).ok_or(Code::AccessDenied)?,
            (None, None) => {
                let why = "AWS authentication requires a valid Date or x-amz-date header";
                return Err(S3Error::new(Code::AccessDenied, why));
            }
        };
        let payload = header("x-amz-content-sha256").ok_or_else(|| {
            let why = "Missing required header for this request: x-amz-content-sha256";
            S3Error::new(Code::InvalidRequest, why)
        })?;
        if payload != UNSIGNED && payload != EMPTY_HASH {
            return Err(Code::XAmzContentSha256Mismatch.into());
        }
        let region = match is_for_several {
            true => header(v4a::REGION_SET)
                .ok_or_else(|| malformed("SigV4A requires x-amz-region-set"))?,
            false => region,
        };
        let token = header("x-amz-security-token");
        let presigned = false;
        Ok(Self {
            algorithm,
            access_key,
            date,
            region,
            signed_headers,
            signature,
            time,
            payload,
            token,
            presigned,
        })
    }

    fn from_query(query: &'a Query) -> Result<Self, S3Error> {
        let error = |why: String| S3Error::new(Code::AuthorizationQueryParametersError, why);
        let need = |name: &str| {
            query.get(name).ok_or_else(|| {
                error(format!("Query-string authentication requires the parameter {name}"))
            })
        };
        if need("X-Amz-Algorithm")? != ALGORITHM {
            return Err(error(format!("X-Amz-Algorithm only supports \"{ALGORITHM}\"")));
        }
        let (access_key, date, region) = scope(need("X-Amz-Credential")?)
            .ok_or_else(|| error("Error parsing the X-Amz-Credential parameter".to_owned()))?;
        Ok(Self {
            algorithm: ALGORITHM,
            access_key,
            date,
            region,
            signed_headers: need("X-Amz-SignedHeaders")?,
            signature: need("X-Amz-Signature")?,
            time: need("X-Amz-Date")?.to_owned(),
            payload: query.get("X-Amz-Content-Sha256").unwrap_or(UNSIGNED),
            token: query.get("X-Amz-Security-Token"),
            presigned: true,
        })
    }
}

/// `key/20130524/us-east-1/s3/aws4_request`; a key may itself hold slashes.
fn scope(credential: &str) -> Option<(&str, &str, &str)> {
    let rest = credential.strip_suffix("/s3/aws4_request")?;
    let (rest, region) = rest.rsplit_once('/')?;
    let (access_key, date) = rest.rsplit_once('/')?;
    let is_date = date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
    (is_date && !access_key.is_empty()).then_some((access_key, date, region))
}

/// `key/20130524/s3/aws4_request`: a signature for several regions names none here.
fn scope_of_all(credential: &str) -> Option<(&str, &str, &str)> {
    let rest = credential.strip_suffix("/s3/aws4_request")?;
    let (access_key, date) = rest.rsplit_once('/')?;
    let is_date = date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
    (is_date && !access_key.is_empty()).then_some((access_key, date, ""))
}

fn check_token(
    credentials: &Credentials,
    claim: &Claim<'_>,
    now: SystemTime,
) -> Result<(), S3Error> {
    match (&credentials.session_token, claim.token) {
        // S3 does not know a temporary key by its name alone.
        (Some(_), None) => {
            return Err(
                S3Error::from(Code::InvalidAccessKeyId).with("AWSAccessKeyId", claim.access_key)
            );
        }
        (Some(expected), Some(given)) if !same(expected, given) => {
            return Err(Code::InvalidToken.into());
        }
        (None, Some(_)) => return Err(Code::InvalidToken.into()),
        _ => {}
    }
    if credentials.expires_at.is_some_and(|end| now >= end) {
        return Err(Code::ExpiredToken.into());
    }
    Ok(())
}

fn check_time(claim: &Claim<'_>, request: &Signed<'_>) -> Result<(), S3Error> {
    let now = seconds(request.now);
    let Some(time) = parse_basic(&claim.time) else {
        let why = "AWS authentication requires a valid Date or x-amz-date header";
        return Err(S3Error::new(Code::AccessDenied, why));
    };
    if !claim.time.starts_with(claim.date) {
        return Err(Code::SignatureDoesNotMatch.into());
    }
    if !claim.presigned {
        if (now - time).abs() <= SKEW_SECONDS_MAX {
            return Ok(());
        }
        return Err(S3Error::from(Code::RequestTimeTooSkewed)
            .with("RequestTime", claim.time.clone())
            .with("ServerTime", iso(now))
            .with("MaxAllowedSkewMilliseconds", (SKEW_SECONDS_MAX * 1000).to_string()));
    }
    let expires = request.query.get("X-Amz-Expires").and_then(|text| text.parse::<i64>().ok());
    let Some(expires) = expires.filter(|expires| (0..=EXPIRES_SECONDS_MAX).contains(expires))
    else {
        let why = "X-Amz-Expires must be a number of seconds, at most a week";
        return Err(S3Error::new(Code::AuthorizationQueryParametersError, why));
    };
    if time - now > SKEW_SECONDS_MAX {
        return Err(S3Error::new(Code::AccessDenied, "Request is not valid yet"));
    }
    if now > time + expires {
        let error = S3Error::new(Code::AccessDenied, "Request has expired");
        return Err(error
            .with("X-Amz-Expires", expires.to_string())
            .with("Expires", iso(time + expires))
            .with("ServerTime", iso(now)));
    }
    Ok(())
}

/// The signed headers, sorted as signed; `host` and every `x-amz-*` header must be among them.
fn check_signed_headers<'a>(
    claim: &Claim<'a>,
    headers: &HeaderMap,
) -> Result<Vec<&'a str>, S3Error> {
    let names: Vec<&str> = claim.signed_headers.split(';').collect();
    let unsigned: Vec<&str> = headers
        .keys()
        .map(hyper::header::HeaderName::as_str)
        .filter(|name| name.starts_with("x-amz-") || *name == HOST)
        // Sent with presigned requests by some clients, and then not signed.
        .filter(|name| !(claim.presigned && *name == "x-amz-content-sha256"))
        .filter(|name| !names.contains(name))
        .collect();
    if unsigned.is_empty() && names.contains(&HOST.as_str()) {
        return Ok(names);
    }
    let why = "There were headers present in the request which were not signed";
    Err(S3Error::new(Code::AccessDenied, why).with("HeadersNotSigned", unsigned.join(", ")))
}

fn canonical_request(claim: &Claim<'_>, request: &Signed<'_>, names: &[&str]) -> String {
    let mut text = String::with_capacity(512);
    text.push_str(request.method);
    text.push('\n');
    // S3 encodes a path once and never normalises it.
    text.extend(percent_encode(&decode(request.path), PATH));
    text.push('\n');
    let mut pairs: Vec<(Cow<'_, str>, Cow<'_, str>)> = request
        .query
        .pairs()
        .filter(|(name, _)| !(claim.presigned && *name == "X-Amz-Signature"))
        .map(|(name, value)| {
            let encode = |part: &'_ str| percent_encode(part.as_bytes(), QUERY).to_string();
            (Cow::from(encode(name)), Cow::from(encode(value)))
        })
        .collect();
    pairs.sort();
    for (index, (name, value)) in pairs.iter().enumerate() {
        if index > 0 {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }
    text.push('\n');
    for name in names {
        text.push_str(name);
        text.push(':');
        for (index, value) in request.headers.get_all(*name).iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            let value = String::from_utf8_lossy(value.as_bytes());
            for (index, word) in value.split_ascii_whitespace().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                text.push_str(word);
            }
        }
        text.push('\n');
    }
    text.push('\n');
    text.push_str(claim.signed_headers);
    text.push('\n');
    text.push_str(claim.payload);
    text
}

fn keyed(key: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("HMAC takes keys of every length")
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = keyed(key);
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// Constant-time: the time reveals nothing but the length.
fn same(left: &str, right: &str) -> bool {
    let difference = left.bytes().zip(right.bytes()).fold(0, |all, (l, r)| all | (l ^ r));
    left.len() == right.len() && std::hint::black_box(difference) == 0
}

/// Lower-case hexadecimal, as signatures and ETags are written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
