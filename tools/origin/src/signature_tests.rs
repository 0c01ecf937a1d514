//! AWS's published examples of Signature Version 4, and every way to be refused.

use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};

use super::*;

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// 2013-05-24T00:00:00Z, the time of all the examples.
const EXAMPLE_SECONDS: u64 = 1_369_353_600;
const LIST_SIGNATURE: &str = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";

struct Example {
    method: &'static str,
    path: &'static str,
    query: &'static str,
    headers: Vec<(&'static str, String)>,
    now: u64,
    credentials: Credentials,
}

impl Example {
    fn new(path: &'static str, query: &'static str, signed: &str, signature: &str) -> Self {
        let authorization = format!(
            "{ALGORITHM} Credential={ACCESS_KEY}/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders={signed},Signature={signature}"
        );
        let headers = vec![
            ("host", "examplebucket.s3.amazonaws.com".to_owned()),
            ("x-amz-content-sha256", EMPTY_HASH.to_owned()),
            ("x-amz-date", "20130524T000000Z".to_owned()),
            ("authorization", authorization),
        ];
        let credentials = Credentials::new(ACCESS_KEY, SECRET_KEY);
        Self { method: "GET", path, query, headers, now: EXAMPLE_SECONDS, credentials }
    }

    fn list() -> Self {
        let signed = "host;x-amz-content-sha256;x-amz-date";
        Self::new("/", "max-keys=2&prefix=J", signed, LIST_SIGNATURE)
    }

    fn presigned() -> Self {
        let query = "X-Amz-Algorithm=AWS4-HMAC-SHA256\
            &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
            &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
            &X-Amz-Signature=\
            aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let mut example = Self::new("/test.txt", query, "", "");
        example.headers.truncate(1);
        example
    }

    fn set(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn verify(&self) -> Result<(), S3Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let verifier = Verifier::new(vec![self.credentials.clone()], "us-east-1".to_owned());
        let query = Query::parse(self.query);
        let request = Signed {
            method: self.method,
            path: self.path,
            query: &query,
            headers: &headers,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(self.now),
        };
        let mut cache = KeyCache::default();
        let first = verifier.verify(&mut cache, &request);
        assert_eq!(verifier.verify(&mut cache, &request), first, "a cached key changes nothing");
        first
    }

    fn refused(&self) -> Code {
        self.verify().unwrap_err().code
    }
}

#[test]
fn get_object_example() {
    let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    let signed = "host;range;x-amz-content-sha256;x-amz-date";
    let example = Example::new("/test.txt", "", signed, signature).set("range", "bytes=0-9");
    assert_eq!(example.verify(), Ok(()));
    assert_eq!(example.set("range", "bytes=0-8").refused(), Code::SignatureDoesNotMatch);
}

#[test]
fn get_lifecycle_example() {
    let signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
    let signed = "host;x-amz-content-sha256;x-amz-date";
    assert_eq!(Example::new("/", "lifecycle", signed, signature).verify(), Ok(()));
}

#[test]
fn list_example_in_any_order_of_the_query() {
    assert_eq!(Example::list().verify(), Ok(()));
    let reordered = Example { query: "prefix=%4A&max-keys=2", ..Example::list() };
    assert_eq!(reordered.verify(), Ok(()));
    let other = Example { query: "prefix=K&max-keys=2", ..Example::list() };
    assert_eq!(other.refused(), Code::SignatureDoesNotMatch);
    assert_eq!(
        Example { method: "HEAD", ..Example::list() }.refused(),
        Code::SignatureDoesNotMatch
    );
}

#[test]
fn presigned_example() {
    assert_eq!(Example::presigned().verify(), Ok(()));
    let last = Example { now: EXAMPLE_SECONDS + 86400, ..Example::presigned() };
    assert_eq!(last.verify(), Ok(()));
    let late = Example { now: EXAMPLE_SECONDS + 86401, ..Example::presigned() };
    assert_eq!(late.refused(), Code::AccessDenied);
    let early = Example { now: EXAMPLE_SECONDS - 901, ..Example::presigned() };
    assert_eq!(early.refused(), Code::AccessDenied);
    let other = Example { path: "/test.txu", ..Example::presigned() };
    assert_eq!(other.refused(), Code::SignatureDoesNotMatch);
}

#[test]
fn time_may_differ_by_fifteen_minutes() {
    for (now, expected) in [(900, Ok(())), (901, Err(Code::RequestTimeTooSkewed))] {
        for now in [EXAMPLE_SECONDS + now, EXAMPLE_SECONDS - now] {
            let result = Example { now, ..Example::list() }.verify();
            assert_eq!(result.map_err(|error| error.code), expected);
        }
    }
    assert_eq!(Example::list().set("x-amz-date", "20130524").refused(), Code::AccessDenied);
    let other_day = Example::list().set("x-amz-date", "20130523T235959Z");
    assert_eq!(other_day.refused(), Code::SignatureDoesNotMatch);
}

#[test]
fn refusals() {
    let mut anonymous = Example::list();
    anonymous.headers.retain(|(name, _)| *name != "authorization");
    assert_eq!(anonymous.refused(), Code::AccessDenied);
    let stranger = Credentials::new("AKIDOTHER", SECRET_KEY);
    assert_eq!(
        Example { credentials: stranger, ..Example::list() }.refused(),
        Code::InvalidAccessKeyId
    );
    let secret = Credentials::new(ACCESS_KEY, "other");
    assert_eq!(
        Example { credentials: secret, ..Example::list() }.refused(),
        Code::SignatureDoesNotMatch
    );
    let uploaded = Example::list().set("x-amz-content-sha256", &"0".repeat(64));
    assert_eq!(uploaded.refused(), Code::XAmzContentSha256Mismatch);
    let unsigned = Example::list().set("x-amz-checksum-mode", "ENABLED");
    assert_eq!(unsigned.refused(), Code::AccessDenied);
    for authorization in ["AWS4-HMAC-SHA256 Credential=a/b", "AWS4-HMAC-SHA256 x"] {
        let malformed = Example::list().set("authorization", authorization);
        assert_eq!(malformed.refused(), Code::AuthorizationHeaderMalformed);
    }
    let basic = Example::list().set("authorization", "Basic QTpC");
    assert_eq!(basic.refused(), Code::InvalidArgument);
}

#[test]
fn a_wrong_region_names_the_right_one() {
    let mut example = Example::list();
    let header = example.headers.pop().unwrap().1.replace("us-east-1", "eu-west-3");
    let error = example.set("authorization", &header).verify().unwrap_err();
    assert_eq!(error.code, Code::AuthorizationHeaderMalformed);
    assert_eq!(error.detail("Region"), Some("us-east-1"));
}

#[test]
fn session_tokens() {
    let credentials = Credentials::new(ACCESS_KEY, SECRET_KEY).with_session_token("token");
    let with =
        |credentials: &Credentials| Example { credentials: credentials.clone(), ..Example::list() };
    assert_eq!(with(&credentials).refused(), Code::InvalidAccessKeyId);
    let wrong = with(&credentials).set("x-amz-security-token", "tokem");
    assert_eq!(wrong.refused(), Code::InvalidToken);
    // The right token passes this check and fails the next: the example did not sign it.
    let unsigned = with(&credentials).set("x-amz-security-token", "token");
    assert_eq!(unsigned.refused(), Code::AccessDenied);
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(EXAMPLE_SECONDS);
    let expired = with(&credentials.with_expiry(end)).set("x-amz-security-token", "token");
    assert_eq!(expired.refused(), Code::ExpiredToken);
}

/// Signatures of the listing for these regions, by the integers, hashlib and hmac of Python: from
/// the definition of the curve, and a number of its own.
const FOR_ALL: &str = "304402204f975e35e8990a04138d70ffdd7e7be828c78a6a42064754be7311802bb46ac3\
    022024428b1ffd9649357d9084c091f0e5f5a9f211b65adeb213b3bcc015a5e9d6cb";
const FOR_TWO: &str = "30450221009dcf40479a4f64eca7158756db8942d4f924dc4a44977592bb0900c546923a6b\
    0220662fd8507a4c4753a062f6e1fdddbbd635d55d1fec2aa16a2873321a6b8dbc8a";
const FOR_ANOTHER: &str = "3045022100f8d41c4ae49476296d92245a38f235b56a151624f58af2e6bd40b45fafcc\
    acab0220558d3384b04e2ead04be86fa5c6e0146abe0d554bfbaa4b630032c7753044526";
/// A host of multi-region access points.
const GLOBAL: &str = "x.mrap.accesspoint.s3-global.amazonaws.com";

/// The listing, signed with SigV4A for these regions.
fn for_regions(regions: &str, signature: &str) -> Example {
    let authorization = format!(
        "AWS4-ECDSA-P256-SHA256 Credential={ACCESS_KEY}/20130524/s3/aws4_request,\
         SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-region-set,Signature={signature}"
    );
    let example = Example::list().set("authorization", &authorization);
    example.set("x-amz-region-set", regions).set("host", GLOBAL)
}

#[test]
fn signatures_for_several_regions() {
    assert_eq!(for_regions("*", FOR_ALL).verify(), Ok(()));
    assert_eq!(for_regions("us-east-1,eu-west-3", FOR_TWO).verify(), Ok(()));
    let elsewhere = for_regions("eu-west-3", FOR_ANOTHER);
    assert_eq!(elsewhere.refused(), Code::AuthorizationHeaderMalformed);
    let other_text = for_regions("us-*", FOR_ALL);
    assert_eq!(other_text.refused(), Code::SignatureDoesNotMatch);
    assert_eq!(for_regions("*", FOR_TWO).refused(), Code::SignatureDoesNotMatch);
    assert_eq!(for_regions("*", "3044").refused(), Code::SignatureDoesNotMatch);
    let secret = Credentials::new(ACCESS_KEY, "other");
    let other = Example { credentials: secret, ..for_regions("*", FOR_ALL) };
    assert_eq!(other.refused(), Code::SignatureDoesNotMatch);
    let mut without = for_regions("*", FOR_ALL);
    without.headers.retain(|(name, _)| *name != "x-amz-region-set");
    assert_eq!(without.refused(), Code::AuthorizationHeaderMalformed);
}

#[test]
fn multi_region_access_points_take_no_signature_of_a_region() {
    assert_eq!(Example::list().set("host", GLOBAL).refused(), Code::InvalidRequest);
}

#[test]
fn paths_are_encoded_once_and_not_normalised() {
    let query = Query::parse("");
    let headers = HeaderMap::new();
    for (path, expected) in [
        ("/a b", "/a%20b"),
        ("/a%20b+c", "/a%20b%2Bc"),
        ("/a%252Fb", "/a%252Fb"),
        ("/%7ea//../.b=&", "/~a//../.b%3D%26"),
        ("/caf%c3%a9", "/caf%C3%A9"),
    ] {
        let example = Example::list();
        let authorization = example.headers[3].1.clone();
        let now = SystemTime::UNIX_EPOCH;
        let request = Signed { method: "GET", path, query: &query, headers: &headers, now };
        let claim = Claim {
            algorithm: ALGORITHM,
            access_key: "",
            date: "",
            region: "",
            signed_headers: "",
            signature: &authorization,
            time: String::new(),
            payload: "",
            token: None,
            presigned: false,
        };
        let text = canonical_request(&claim, &request, &[]);
        assert_eq!(text.lines().nth(1), Some(expected), "{path}");
    }
}
