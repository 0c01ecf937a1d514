//! From a request that makes sense to the answer S3 would give: status, headers, and which bytes.
//! No I/O but the mapping of a file.
//!
//! Not here: signatures, faults, and sending.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, RANGE,
};

use crate::buckets::BucketsRequest;
use crate::dates::http_date;
use crate::error::{Code, S3Error, element};
use crate::list::ListRequest;
use crate::request::{Operation, Query, Target, Wanted};
use crate::source::Source;
use crate::store::{About, Asked, Bucket, Store};

/// Where a bucket is, in every answer about one.
pub(crate) const BUCKET_REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
/// Asks for the checksum that was stored with an object.
pub(crate) const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
/// Whether a checksum is that of the bytes or that of the parts' checksums.
pub(crate) const CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
/// What the headers begin with that hold a checksum or speak of one.
pub(crate) const CHECKSUM: &str = "x-amz-checksum-";
/// In answers to requests of one part.
const PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");

/// What is sent, but for what goes wrong on the way.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) source: Source,
    /// First byte of the source.
    pub(crate) offset: u64,
    /// S3's code of an error.
    pub(crate) code: Option<Code>,
    /// What Content-Length says; HEAD says it too and sends nothing.
    pub(crate) length_bytes: u64,
}

impl Answer {
    fn empty(status: StatusCode) -> Self {
        Self::text(status, String::new())
    }

    fn text(status: StatusCode, text: String) -> Self {
        let mut headers = HeaderMap::with_capacity(12);
        if !text.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        }
        let bytes = Bytes::from(text);
        let length_bytes = bytes.len() as u64;
        let source = Source::Bytes(bytes);
        Self { status, headers, source, offset: 0, code: None, length_bytes }
    }

    /// What a proxy says that cannot reach S3, or wants a password.
    pub(crate) fn html(status: StatusCode) -> Self {
        let page = format!("<html>\r\n<head><title>{status}</title></head>\r\n</html>\r\n");
        let mut answer = Self::text(status, page);
        answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        answer
    }

    /// The answer to a request that failed.
    pub(crate) fn error(error: &S3Error, resource: &str, request_id: &str) -> Self {
        let mut answer = Self::text(error.code.status(), error.to_xml(resource, request_id));
        answer.code = Some(error.code);
        if error.code == Code::TemporaryRedirect
            && let Some(endpoint) = error.detail("Endpoint")
        {
            answer.set(LOCATION, &format!("http://{endpoint}{resource}"));
        }
        if let Some(region) = error.detail("Region") {
            answer.set(BUCKET_REGION, region);
        }
        if error.code == Code::InvalidRange
            && let Some(length) = error.detail("ActualObjectSize")
        {
            answer.set(CONTENT_RANGE, &format!("bytes */{length}"));
        }
        answer
    }

    pub(crate) fn set(&mut self, name: HeaderName, value: &str) {
        // What cannot stand in a header is left out: no value of ours is that strange.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }
}

/// Answers for one store in one region.
#[derive(Debug)]
pub(crate) struct Responder<'a> {
    pub(crate) store: &'a Store,
    pub(crate) region: &'a str,
}

impl Responder<'_> {
    pub(crate) fn answer(
        &self,
        target: &Target,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Answer, S3Error> {
        if target.operation == Operation::ListBuckets {
            let page = BucketsRequest::parse(query)?.answer(self.store.bucket_names(), self.region);
            return Ok(Answer::text(StatusCode::OK, page));
        }
        let bucket = self.store.bucket(&target.bucket).ok_or_else(|| {
            S3Error::from(Code::NoSuchBucket).with("BucketName", target.bucket.clone())
        })?;
        match target.operation {
            Operation::GetObject | Operation::HeadObject => {
                self.object(bucket, target, headers, query)
            }
            Operation::GetBucketLocation | Operation::ListBuckets => Ok(self.location()),
            Operation::HeadBucket => {
                let mut answer = Answer::empty(StatusCode::OK);
                answer.set(BUCKET_REGION, self.region);
                Ok(answer)
            }
            Operation::ListObjects => {
                let page = ListRequest::parse(query)?.answer(self.store, &target.bucket, bucket);
                let mut answer = Answer::text(StatusCode::OK, page.map_err(internal)?);
                answer.set(BUCKET_REGION, self.region);
                Ok(answer)
            }
        }
    }

    fn object(
        &self,
        bucket: &Bucket,
        target: &Target,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Answer, S3Error> {
        let mut about = bucket
            .about(&target.key)
            .ok_or_else(|| S3Error::from(Code::NoSuchKey).with("Key", target.key.clone()))?;
        let named = (target.bucket.as_str(), bucket);
        about.etag = self.store.etag(named, &target.key, &about).map_err(internal)?;
        let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if header(IF_MATCH).is_some_and(|wanted| !names_etag(wanted, &about.etag)) {
            return Err(S3Error::from(Code::PreconditionFailed).with("Condition", "If-Match"));
        }
        if header(IF_NONE_MATCH).is_some_and(|known| names_etag(known, &about.etag)) {
            let mut answer = Answer::empty(StatusCode::NOT_MODIFIED);
            describe(&mut answer, &about);
            return Ok(answer);
        }
        let (asked, part) = match (header(RANGE), query.get("partNumber")) {
            (range, None) => ranged(range, about.length_bytes)?,
            (None, Some(number)) => self.numbered(bucket, &target.key, number, &about)?,
            (Some(_), Some(_)) => {
                let why = "Cannot specify both Range header and partNumber query parameter";
                return Err(S3Error::new(Code::InvalidRequest, why));
            }
        };
        let partial = asked != Asked::Whole && !part.is_empty();
        let status = if partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut answer = Answer::empty(status);
        if target.operation == Operation::GetObject {
            answer.source = self.store.source(bucket, &target.key).map_err(internal)?;
        }
        answer.offset = part.start;
        answer.length_bytes = part.end - part.start;
        describe(&mut answer, &about);
        answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("binary/octet-stream"));
        if partial {
            answer.set(CONTENT_RANGE, &content_range(part.start, part.end, about.length_bytes));
        }
        if let Some(parts) = self.store.parts(bucket, &target.key, about.length_bytes)
            && asked == Asked::Part
        {
            answer.set(PARTS_COUNT, &parts.count().to_string());
        }
        let checksums =
            header(CHECKSUM_MODE).is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"));
        if checksums {
            let stored = self.store.checksum(named, &target.key, &about, &part, asked);
            if let Some((policy, value)) = stored.map_err(internal)? {
                let name = format!("{CHECKSUM}{}", policy.algorithm.name());
                answer.set(name.parse().expect("the name of a header"), &value);
                answer.set(CHECKSUM_TYPE, policy.kind.name());
            }
        }
        for (name, value) in bucket.headers(&target.key).into_iter().flatten() {
            if (checksums && !partial) || !name.as_str().starts_with(CHECKSUM) {
                answer.headers.insert(name, value.clone());
            }
        }
        Ok(answer)
    }

    /// The bytes of the part with this number; of an object that has none, the first is all.
    fn numbered(
        &self,
        bucket: &Bucket,
        key: &str,
        number: &str,
        about: &About,
    ) -> Result<(Asked, Range<u64>), S3Error> {
        let Some(wanted) = number.parse().ok().filter(|number| (1..=10_000).contains(number))
        else {
            let why = "Part number must be an integer between 1 and 10000, inclusive";
            let error = S3Error::new(Code::InvalidArgument, why);
            return Err(error.with("ArgumentName", "partNumber").with("ArgumentValue", number));
        };
        let part = match self.store.parts(bucket, key, about.length_bytes) {
            Some(parts) => parts.range(wanted),
            None => (wanted == 1).then_some(0..about.length_bytes),
        };
        let unknown = || {
            S3Error::from(Code::InvalidPartNumber).with("PartNumberRequested", wanted.to_string())
        };
        Ok((Asked::Part, part.ok_or_else(unknown)?))
    }

    fn location(&self) -> Answer {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let space = "LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
        // S3 gives its first region no name here.
        if self.region == "us-east-1" {
            xml.push_str(&format!("<{space}/>"));
        } else {
            element(&mut xml, "LocationConstraint", self.region);
            xml = xml.replacen("LocationConstraint", space, 1);
        }
        Answer::text(StatusCode::OK, xml)
    }
}

/// What a Range header asks for.
fn ranged(header: Option<&str>, length_bytes: u64) -> Result<(Asked, Range<u64>), S3Error> {
    match Wanted::parse(header, length_bytes) {
        Wanted::Whole => Ok((Asked::Whole, 0..length_bytes)),
        Wanted::Part(part) => Ok((Asked::Range, part)),
        Wanted::Unsatisfiable => Err(S3Error::from(Code::InvalidRange)
            .with("RangeRequested", header.unwrap_or_default())
            .with("ActualObjectSize", length_bytes.to_string())),
    }
}

/// A file that is not what it was.
fn internal(why: io::Error) -> S3Error {
    S3Error::new(Code::InternalError, why.to_string())
}

/// `bytes 0-9/100`; `end` is the byte behind the last.
pub(crate) fn content_range(start: u64, end: u64, length_bytes: u64) -> String {
    format!("bytes {start}-{}/{length_bytes}", end - 1)
}

fn describe(answer: &mut Answer, about: &About) {
    answer.headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answer.set(ETAG, &format!("\"{}\"", about.etag));
    answer.set(LAST_MODIFIED, &http_date(about.modified_seconds));
}

/// Whether `If-Match: "a", "b"` or `*` names this ETag; S3 takes it without quotes too.
fn names_etag(header: &str, etag: &str) -> bool {
    header.split(',').map(str::trim).any(|named| {
        let named = named.strip_prefix("W/").unwrap_or(named);
        named == "*" || named.trim_matches('"') == etag
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ObjectSpec};

    const BYTES: &[u8] = b"0123456789";

    fn ask(
        operation: Operation,
        key: &str,
        headers: &[(HeaderName, &str)],
    ) -> Result<Answer, S3Error> {
        let object = ObjectSpec::new("b", "k", BYTES)
            .with_header("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")
            .with_header("x-amz-meta-colour", "blue");
        let config = Config { objects: vec![object], ..Config::default() };
        let store = Store::new(&config).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(name, value.parse().unwrap());
        }
        let target = Target { operation, bucket: "b".into(), key: key.into() };
        let responder = Responder { store: &store, region: "eu-west-3" };
        responder.answer(&target, &map, &Query::parse(""))
    }

    fn get(headers: &[(HeaderName, &str)]) -> Result<Answer, S3Error> {
        ask(Operation::GetObject, "k", headers)
    }

    #[test]
    fn ranges_and_their_heads() {
        let whole = get(&[]).unwrap();
        assert_eq!((whole.status, whole.offset, whole.length_bytes), (StatusCode::OK, 0, 10));
        assert!(!whole.headers.contains_key(CONTENT_RANGE));
        let part = get(&[(RANGE, "bytes=2-4")]).unwrap();
        assert_eq!((part.status.as_u16(), part.offset, part.length_bytes), (206, 2, 3));
        assert_eq!(part.headers[CONTENT_RANGE], "bytes 2-4/10");
        let error = get(&[(RANGE, "bytes=10-")]).unwrap_err();
        let answer = Answer::error(&error, "/b/k", "ID");
        assert_eq!(answer.status.as_u16(), 416);
        assert_eq!(answer.headers[CONTENT_RANGE], "bytes */10");
    }

    #[test]
    fn conditions() {
        let etag = get(&[]).unwrap().headers[ETAG].to_str().unwrap().to_owned();
        assert!(etag.starts_with('"') && etag.len() == 34);
        assert!(get(&[(IF_MATCH, &etag)]).is_ok());
        assert!(get(&[(IF_MATCH, "*")]).is_ok());
        assert!(get(&[(IF_MATCH, &format!("\"x\", {etag}"))]).is_ok());
        let error = get(&[(IF_MATCH, "\"x\"")]).unwrap_err();
        assert_eq!(error.code, Code::PreconditionFailed);
        let unchanged = get(&[(IF_NONE_MATCH, &etag)]).unwrap();
        assert_eq!((unchanged.status.as_u16(), unchanged.length_bytes), (304, 0));
        assert!(get(&[(IF_NONE_MATCH, "\"x\"")]).unwrap().status.is_success());
    }

    #[test]
    fn checksums_are_reported_when_asked_for() {
        const CHECKSUM: &str = "x-amz-checksum-crc64nvme";
        let asked = [(CHECKSUM_MODE, "ENABLED")];
        assert!(get(&asked).unwrap().headers.contains_key(CHECKSUM));
        let head = ask(Operation::HeadObject, "k", &asked).unwrap();
        assert!(head.headers.contains_key(CHECKSUM));
        let part = get(&[(CHECKSUM_MODE, "ENABLED"), (RANGE, "bytes=0-1")]).unwrap();
        assert!(!part.headers.contains_key(CHECKSUM));
        let plain = get(&[]).unwrap();
        assert!(!plain.headers.contains_key(CHECKSUM));
        assert_eq!(plain.headers["x-amz-meta-colour"], "blue");
    }

    #[test]
    fn heads_and_what_is_missing() {
        let head = ask(Operation::HeadObject, "k", &[]).unwrap();
        assert_eq!(head.length_bytes, 10);
        assert_eq!(head.headers[LAST_MODIFIED], "Mon, 01 Jan 2024 00:00:00 GMT");
        assert_eq!(ask(Operation::GetObject, "x", &[]).unwrap_err().code, Code::NoSuchKey);
        let bucket = ask(Operation::HeadBucket, "", &[]).unwrap();
        assert_eq!(bucket.headers[BUCKET_REGION], "eu-west-3");
    }
}
