//! `SigV4A`: signatures for several regions, with a key pair that is derived from the keys.
//!
//! Pure. Multi-region access points take no others. A signature takes about 15 µs, and a key pair
//! as long; [`super::RequestWriter`] keeps it. Two signatures of the same request differ, as ECDSA
//! has random numbers in them.
//!
//! From the pages on Signature Version 4 in AWS's IAM User Guide; the derivation of the key pair
//! from `aws-c-auth`, whose published vectors are cases of a test.

use std::fmt::Write as _;
use std::time::SystemTime;

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderName, HeaderValue, USER_AGENT};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::writer::{EMPTY_BODY_SHA256, Stamp};
use super::{ALL_REGIONS, SigningKeys};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Endpoint;

/// The name of the algorithm, in requests and in what is signed.
pub(super) const ALGORITHM: &str = "AWS4-ECDSA-P256-SHA256";
/// The header with the regions that a signature is for.
pub(super) const REGION_SET_HEADER: &str = "x-amz-region-set";
/// Before the secret in the key of the derivation.
const SECRET_PREFIX: &str = "AWS4A";
/// Length of a private key, in bytes.
const PRIVATE_KEY_BYTES: usize = 32;
/// The order of the curve P-256 (NIST SP 800-186, section 3.2.1.3) less 2: the largest number that
/// is one less than a private key.
const ORDER_LESS_2: [u8; PRIVATE_KEY_BYTES] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x4f,
];

/// The key pair of an access key and its secret. The library wipes it when it is dropped.
pub(super) struct KeyPair(EcdsaKeyPair);

impl KeyPair {
    /// Derives it.
    pub(super) fn derive(keys: &SigningKeys) -> Self {
        let private = private_key(&keys.access_key, &keys.secret);
        let public = PrivateKey::from_private_key(&ECDH_P256, &private[..])
            .expect("a number below the order of the curve is a private key")
            .compute_public_key()
            .expect("a private key has a public one");
        let pair = EcdsaKeyPair::from_private_key_and_public_key(
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            &private[..],
            public.as_ref(),
        );
        Self(pair.expect("the public key is that of the private key"))
    }

    /// The signature of a text, in hexadecimal: 144 digits at most.
    pub(super) fn sign(&self, text: &[u8]) -> String {
        let signature = self.0.sign(&SystemRandom::new(), text);
        hex::encode(signature.expect("every text can be signed").as_ref())
    }
}

/// The private key, by the counter mode of NIST SP 800-108 with HMAC-SHA256.
fn private_key(access_key: &str, secret: &str) -> Zeroizing<[u8; PRIVATE_KEY_BYTES]> {
    let input = Zeroizing::new([SECRET_PREFIX, secret].concat());
    let input = hmac::Key::new(hmac::HMAC_SHA256, input.as_bytes());
    let derived = (1..=u8::MAX).find_map(|number| {
        let mut mac = hmac::Context::with_key(&input);
        mac.update(&1_u32.to_be_bytes());
        mac.update(ALGORITHM.as_bytes());
        mac.update(&[0]);
        mac.update(access_key.as_bytes());
        mac.update(&[number]);
        mac.update(&256_u32.to_be_bytes());
        let mut candidate = Zeroizing::new([0; PRIVATE_KEY_BYTES]);
        candidate.copy_from_slice(mac.sign().as_ref());
        (*candidate <= ORDER_LESS_2).then_some(candidate)
    });
    let mut key = derived.expect("one number in 2^32 is too large");
    for byte in key.iter_mut().rev() {
        let (sum, carries) = byte.overflowing_add(1);
        *byte = sum;
        if !carries {
            break;
        }
    }
    key
}

/// Signs a request for all regions: one without a body, which has a `Host` header and an encoded
/// target.
pub(super) fn sign_request<B>(
    request: &mut http::Request<B>,
    endpoint: &Endpoint,
    keys: &SigningKeys,
    now: SystemTime,
) -> Result<()> {
    let stamp = Stamp::new(now);
    let (at, date) = (stamp.as_str(), &stamp.as_str()[..8]);
    let mut set = |name: &'static str, value: &str| {
        let mut value = HeaderValue::from_str(value).map_err(|error| {
            let message = format!("the request cannot be signed: {name}: {error}");
            Error::new(ErrorKind::Usage, message)
        })?;
        value.set_sensitive(name == keys.token_header);
        request.headers_mut().insert(HeaderName::from_static(name), value);
        Ok::<(), Error>(())
    };
    set("x-amz-content-sha256", EMPTY_BODY_SHA256)?;
    set("x-amz-date", at)?;
    set(REGION_SET_HEADER, ALL_REGIONS)?;
    if let Some(token) = &keys.session_token {
        set(keys.token_header, token)?;
    }
    let (canonical, names) = canonical_request(request);
    let scope = format!("{date}/{}/aws4_request", endpoint.service);
    let hash = hex::encode(Sha256::digest(canonical.as_bytes()));
    let to_sign = format!("{ALGORITHM}\n{at}\n{scope}\n{hash}");
    let signature = KeyPair::derive(keys).sign(to_sign.as_bytes());
    let authorization = format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        keys.access_key
    );
    let authorization = HeaderValue::from_str(&authorization).expect("made of plain characters");
    request.headers_mut().insert(AUTHORIZATION, authorization);
    Ok(())
}

/// What is hashed and signed of a request without a body, and the names of its signed headers. It
/// is wiped: the session token is part of it.
pub(super) fn canonical_request<B>(request: &http::Request<B>) -> (Zeroizing<String>, String) {
    let target = request.uri().path_and_query();
    let (path, query) =
        target.map_or(("/", ""), |target| (target.path(), target.query().unwrap_or_default()));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<_> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    pairs.sort_unstable();
    let query: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // Proxies between may change these.
    let is_signed =
        |name: &&HeaderName| ![USER_AGENT, ACCEPT_ENCODING, AUTHORIZATION].contains(name);
    let mut names: Vec<_> = request.headers().keys().filter(is_signed).collect();
    names.sort_unstable_by_key(|name| name.as_str());
    let headers_bytes =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    // Enough for all of it: a text that grows leaves unwiped pieces behind.
    let room = 512 + 2 * (path.len() + query.len() + headers_bytes.sum::<usize>());
    let mut canonical = Zeroizing::new(String::with_capacity(room));
    write!(canonical, "{}\n{path}\n{}\n", request.method(), query.join("&")).expect("room");
    for name in &names {
        canonical.push_str(name.as_str());
        for (number, value) in request.headers().get_all(*name).iter().enumerate() {
            canonical.push(if number == 0 { ':' } else { ',' });
            let words = value.to_str().unwrap_or_default().split_ascii_whitespace();
            for (number, word) in words.enumerate() {
                canonical.push_str(if number == 0 { "" } else { " " });
                canonical.push_str(word);
            }
        }
        canonical.push('\n');
    }
    let names = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(";");
    write!(canonical, "\n{names}\n{EMPTY_BODY_SHA256}").expect("room");
    (canonical, names)
}

/// True if this is a signature of the text by these keys.
#[cfg(test)]
pub(super) fn is_signature(keys: &SigningKeys, text: &[u8], signature: &str) -> bool {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, KeyPair as _, UnparsedPublicKey};
    let pair = KeyPair::derive(keys);
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, pair.0.public_key().as_ref());
    hex::decode(signature).is_ok_and(|signature| public.verify(text, &signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::{SERVICE, sign_request};
    use super::*;
    use crate::s3::uri::{encode_key, encode_query};
    use aws_lc_rs::signature::KeyPair as _;
    use aws_sigv4::sign::v4;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// A line for each case.
    const CASES: &str = include_str!("v4a_cases.txt");
    const ACCESS: &str = "AKIDEXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    /// The time of all cases.
    const CASES_AT: &str = "20150830T123600Z";

    fn keys(token: Option<&str>) -> SigningKeys {
        SigningKeys::new(ACCESS, SECRET, token, None).expect("good keys")
    }

    /// `public-key.json` of all cases, which was not derived here.
    #[test]
    fn the_key_pair_is_the_published_one() {
        let pair = KeyPair::derive(&keys(None));
        assert_eq!(
            hex::encode(pair.0.public_key().as_ref()),
            "04b6618f6a65740a99e650b33b6b4b5bd0d43b176d721a3edfea7e7d2d56d936b1\
             865ed22a7eadc9c5cb9d2cbaca1b3699139fedc5043dc6661864218330c8e518"
        );
    }

    #[test]
    fn keys_decide_the_key_pair() {
        let public = |access: &str, secret: &str| {
            let keys = SigningKeys::new(access, secret, None, None).expect("good keys");
            KeyPair::derive(&keys).0.public_key().as_ref().to_vec()
        };
        let first = public(ACCESS, SECRET);
        assert_eq!(first, public(ACCESS, SECRET));
        assert!(first != public("AKIDOTHER", SECRET) && first != public(ACCESS, "other"));
    }

    /// A target as a client sends it.
    fn encoded(target: &str) -> String {
        if target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return target.to_owned();
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = encode_key(path);
        match query.split_once('=') {
            Some((name, value)) => format!("{path}?{}={}", encode_query(name), encode_query(value)),
            None => path.to_string(),
        }
    }

    #[test]
    fn the_published_requests_are_signed() {
        let mut count = 0;
        for case in CASES.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = case.split('\t').collect();
            let [name, method, target, headers, token, hash, signature] = fields[..] else {
                panic!("seven fields: {case}");
            };
            count += 1;
            let mut request = http::Request::builder().method(method).uri(encoded(target));
            for header in headers.split('|') {
                let (name, value) = header.split_once(':').expect("a header");
                request = request.header(name, value.trim());
            }
            request = request.header("x-amz-date", CASES_AT).header(REGION_SET_HEADER, "us-east-1");
            if token != "-" {
                request = request.header("x-amz-security-token", token);
            }
            let (canonical, _) = canonical_request(&request.body(()).expect("a request"));
            let found = hex::encode(Sha256::digest(canonical.as_bytes()));
            assert_eq!(found, hash, "{name}: {}", *canonical);
            let scope = "20150830/service/aws4_request";
            let to_sign = format!("{ALGORITHM}\n{CASES_AT}\n{scope}\n{hash}");
            assert!(is_signature(&keys(None), to_sign.as_bytes(), signature), "{name}");
            assert!(!is_signature(&keys(None), b"another text", signature), "{name}");
            let own = KeyPair::derive(&keys(None)).sign(to_sign.as_bytes());
            assert!(is_signature(&keys(None), to_sign.as_bytes(), &own), "{name}");
        }
        assert!(CASES.contains(&format!("{count} of its ")), "the list has {count}");
    }

    fn endpoint(region: &str) -> Endpoint {
        Endpoint::new("bucket", true, "host.example", "/", region, vec![])
    }

    #[test]
    fn a_request_is_signed_for_all_regions() {
        let (keys, now) = (keys(Some("TOKEN")), UNIX_EPOCH + Duration::from_secs(1_440_938_160));
        let request =
            http::Request::get("/?prefix=a%2F&list-type=2").header("host", "host.example");
        let request = request.header("user-agent", "x").header("accept-encoding", "gzip, identity");
        let mut request = request.body(()).expect("a request");
        sign_request(&mut request, &endpoint(ALL_REGIONS), &keys, now).expect("it can be signed");
        let value = |name: &str| request.headers()[name].to_str().expect("text");
        assert_eq!((value(REGION_SET_HEADER), value("x-amz-date")), ("*", CASES_AT));
        assert_eq!(value("x-amz-security-token"), "TOKEN");
        assert!(request.headers()["x-amz-security-token"].is_sensitive());
        let signed = value("authorization").strip_prefix(
            "AWS4-ECDSA-P256-SHA256 Credential=AKIDEXAMPLE/20150830/s3/aws4_request, \
             SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-region-set;\
             x-amz-security-token, Signature=",
        );
        let canonical = format!(
            "GET\n/\nlist-type=2&prefix=a%2F\nhost:host.example\n\
             x-amz-content-sha256:{EMPTY_BODY_SHA256}\nx-amz-date:{CASES_AT}\n\
             x-amz-region-set:*\nx-amz-security-token:TOKEN\n\n\
             host;x-amz-content-sha256;x-amz-date;x-amz-region-set;x-amz-security-token\n\
             {EMPTY_BODY_SHA256}"
        );
        let hash = hex::encode(Sha256::digest(canonical));
        let to_sign = format!("{ALGORITHM}\n{CASES_AT}\n20150830/s3/aws4_request\n{hash}");
        assert!(is_signature(&keys, to_sign.as_bytes(), signed.expect("its parts")));
    }

    proptest! {
        // The failing input is printed; it becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// A canonical request is that of aws-sigv4, which shows no more than its signature.
        #[test]
        fn canonical_requests_are_those_of_sigv4(
            method in prop::sample::select(vec!["GET", "HEAD"]),
            key in "[a-z/.~ +%=?&*ü日]{0,40}",
            query in prop::collection::vec(("[a-cA-C%&-]{1,4}", "[a-z/+= ü]{0,8}"), 0..6),
            value in "[a-z\"]{1,4}( {1,3}[a-z]{1,4}){0,3}",
            token in prop::option::of("[A-Za-z0-9+/=]{1,90}"),
            seconds in 0..7_000_000_000_u64,
        ) {
            let (keys, endpoint) = (keys(token.as_deref()), endpoint("eu-west-3"));
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            let query = query.iter().map(|(name, value)| {
                format!("{}={}", encode_query(name), encode_query(value))
            });
            let query = query.collect::<Vec<_>>().join("&");
            let target = format!("/{}?{query}", encode_key(&key));
            let request = http::Request::builder().method(method).uri(target);
            let request = request.header("host", "host.example").header("if-match", value);
            let request = request.header("user-agent", "x").header("range", "bytes=0-0");
            let mut request = request.body(()).expect("a request");
            sign_request(&mut request, &endpoint, &keys, now).expect("it can be signed");
            let (canonical, names) = canonical_request(&request);
            let stamp = Stamp::new(now);
            let scope = format!("{}/eu-west-3/s3/aws4_request", &stamp.as_str()[..8]);
            let hash = hex::encode(Sha256::digest(canonical.as_bytes()));
            let to_sign = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{hash}", stamp.as_str());
            let key = v4::generate_signing_key(SECRET, now, "eu-west-3", SERVICE);
            let signature = v4::calculate_signature(key, to_sign.as_bytes());
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, \
                 Signature={signature}"
            );
            prop_assert_eq!(request.headers()["authorization"].to_str().expect("text"), expected);
        }
    }
}
