//! Checksums, parts and ETags: in which answers they are, and of what.

use std::num::NonZeroU64;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use inrush_origin::{ChecksumAlgorithm, ChecksumPolicy, Config, ObjectContent, ObjectSpec, Origin};
use md5::Md5;
use sha2::{Digest as _, Sha256};

use crate::client::{Answer, ask};

const TEXT: &[u8] = b"0123456789abcdefghij";
const ASKED: &str = "x-amz-checksum-mode: ENABLED\r\n";
const SHA256: &str = "x-amz-checksum-sha256";
const CRC64: &str = "x-amz-checksum-crc64nvme";
/// Of `123456789`, from the CRC catalogue.
const CRC64_OF_DIGITS: &str = "rosUhgp5mIg=";

fn eight() -> NonZeroU64 {
    NonZeroU64::new(8).unwrap()
}

fn start(policy: ChecksumPolicy) -> Origin {
    let objects = vec![
        ObjectSpec::new("b", "k", TEXT),
        ObjectSpec::new("b", "digits", &b"123456789"[..])
            .with_checksum(ChecksumPolicy::full_object(ChecksumAlgorithm::Crc64Nvme)),
        ObjectSpec::new("b", "none", TEXT).without_checksum(),
        ObjectSpec::new("b", "empty", &b""[..]),
    ];
    let checksum = Some(policy);
    Origin::start(Config { objects, checksum, md5_etags: true, ..Config::default() }).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    STANDARD.encode(Sha256::digest(bytes))
}

/// Value and type, as they stand in the head.
fn checksum_of<'a>(answer: &'a Answer, name: &str) -> Option<(&'a str, &'a str)> {
    let kind = answer.header("x-amz-checksum-type");
    assert_eq!(answer.head.matches("x-amz-checksum-").count(), 2 * usize::from(kind.is_some()));
    answer.header(name).zip(kind)
}

#[test]
fn of_the_whole_object() {
    let origin = start(ChecksumPolicy::full_object(ChecksumAlgorithm::Sha256).with_parts(eight()));
    let value = sha256(TEXT);
    let full = Some((value.as_str(), "FULL_OBJECT"));
    for (line, headers, expected) in [
        ("GET /b/k", "", full),
        ("HEAD /b/k", "", full),
        ("GET /b/k", "Range: bytes=0-\r\n", full),
        ("GET /b/k", "Range: bytes=0-19\r\n", full),
        ("GET /b/k", "Range: bytes=0-18\r\n", None),
        ("GET /b/k", "Range: bytes=8-15\r\n", None),
        ("HEAD /b/k", "Range: bytes=0-2\r\n", None),
        ("GET /b/k?partNumber=2", "", None),
        ("GET /b/none", "", None),
    ] {
        let answer = ask(&origin, line, &format!("{ASKED}{headers}"));
        assert_eq!(checksum_of(&answer, SHA256), expected, "{line} {headers}");
        let silent = ask(&origin, line, headers);
        assert_eq!(checksum_of(&silent, SHA256), None, "nobody asked: {line} {headers}");
    }
    let digits = ask(&origin, "GET /b/digits", ASKED);
    assert_eq!(checksum_of(&digits, CRC64), Some((CRC64_OF_DIGITS, "FULL_OBJECT")));
    let empty = ask(&origin, "GET /b/empty", ASKED);
    assert_eq!(checksum_of(&empty, SHA256), Some((sha256(b"").as_str(), "FULL_OBJECT")));
    // Another content has another checksum, although the first was computed already.
    let other = b"0123456789ABCDEFGHIJ";
    origin.put_object(&ObjectSpec::new("b", "k", &other[..])).unwrap();
    let changed = ask(&origin, "GET /b/k", ASKED);
    assert_eq!(checksum_of(&changed, SHA256), Some((sha256(other).as_str(), "FULL_OBJECT")));
}

#[test]
fn of_parts() {
    let origin = start(ChecksumPolicy::composite(ChecksumAlgorithm::Sha256, eight()));
    let digests: Vec<u8> = TEXT.chunks(8).flat_map(Sha256::digest).collect();
    let together = sha256(&digests);
    let numbered = format!("{together}-3");
    let (second, last) = (sha256(&TEXT[8..16]), sha256(&TEXT[16..]));
    // An upload in one part is still one in parts.
    origin.put_object(&ObjectSpec::new("b", "one", &TEXT[..5])).unwrap();
    let only = sha256(&TEXT[..5]);
    let of_one = format!("{}-1", sha256(&Sha256::digest(&TEXT[..5])));
    for (line, headers, expected) in [
        ("GET /b/k", "", Some(&numbered)),
        ("HEAD /b/k", "", Some(&numbered)),
        ("GET /b/k", "Range: bytes=0-\r\n", Some(&together)),
        ("GET /b/k", "Range: bytes=8-15\r\n", Some(&second)),
        ("GET /b/k", "Range: bytes=16-\r\n", Some(&last)),
        ("GET /b/k", "Range: bytes=0-15\r\n", None),
        ("GET /b/k", "Range: bytes=8-14\r\n", None),
        ("GET /b/k?partNumber=2", "", Some(&second)),
        ("HEAD /b/k?partNumber=3", "", Some(&last)),
        ("GET /b/one", "", Some(&of_one)),
        ("GET /b/one?partNumber=1", "", Some(&only)),
    ] {
        let answer = ask(&origin, line, &format!("{ASKED}{headers}"));
        let expected = expected.map(|value| (value.as_str(), "COMPOSITE"));
        assert_eq!(checksum_of(&answer, SHA256), expected, "{line} {headers}");
    }
}

#[test]
fn parts_by_number() {
    let origin = start(ChecksumPolicy::composite(ChecksumAlgorithm::Crc32c, eight()));
    for (line, status, range, count) in [
        ("GET /b/k?partNumber=1", 206, Some("bytes 0-7/20"), Some("3")),
        ("HEAD /b/k?partNumber=1", 206, Some("bytes 0-7/20"), Some("3")),
        ("GET /b/k?partNumber=3", 206, Some("bytes 16-19/20"), Some("3")),
        ("GET /b/none?partNumber=1", 206, Some("bytes 0-19/20"), None),
        ("GET /b/empty?partNumber=1", 200, None, Some("1")),
        ("GET /b/k", 200, None, None),
        ("GET /b/k?partNumber=4", 416, None, None),
        ("GET /b/none?partNumber=2", 416, None, None),
        ("GET /b/k?partNumber=0", 400, None, None),
    ] {
        let answer = ask(&origin, line, "");
        assert_eq!(answer.status(), status, "{line}");
        assert_eq!(answer.header("content-range"), range, "{line}");
        assert_eq!(answer.header("x-amz-mp-parts-count"), count, "{line}");
    }
    assert_eq!(ask(&origin, "GET /b/k?partNumber=2", "").body, TEXT[8..16]);
    let both = ask(&origin, "GET /b/k?partNumber=1", "Range: bytes=0-1\r\n");
    assert!(both.text().contains("<Code>InvalidRequest</Code>"), "{}", both.text());
}

#[test]
fn etags_are_md5s() {
    let origin = start(ChecksumPolicy::composite(ChecksumAlgorithm::Crc32, eight()));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let digests: Vec<u8> = TEXT.chunks(8).flat_map(Md5::digest).collect();
    let in_parts = format!("\"{}-3\"", hex(&Md5::digest(&digests)));
    let at_once = format!("\"{}\"", hex(&Md5::digest(TEXT)));
    for (key, etag) in [("k", &in_parts), ("none", &at_once)] {
        let answer = ask(&origin, &format!("HEAD /b/{key}"), "");
        assert_eq!(answer.header("etag"), Some(etag.as_str()));
        let headers = format!("If-Match: {etag}\r\n");
        assert_eq!(ask(&origin, &format!("GET /b/{key}"), &headers).status(), 200);
    }
    let list = ask(&origin, "GET /b?list-type=2", "");
    let of_k = "<Key>k</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>";
    let (_, rest) = list.text().split_once(of_k).unwrap();
    let expected = format!(
        "<ETag>{}</ETag><ChecksumAlgorithm>CRC32</ChecksumAlgorithm>\
         <ChecksumType>COMPOSITE</ChecksumType><Size>20</Size>",
        in_parts.replace('"', "&quot;")
    );
    assert!(rest.starts_with(&expected), "{rest}");
    let (_, none) = list.text().split_once("<Key>none</Key>").unwrap();
    assert!(!none.contains("Checksum"), "{none}");
}

#[test]
fn a_large_object_s_checksum_is_quick() {
    let content = ObjectContent::Synthetic { length_bytes: 256 << 20 };
    let config = Config {
        objects: vec![ObjectSpec::new("b", "big", content)],
        checksum: Some("crc64nvme:64MiB".parse().unwrap()),
        ..Config::default()
    };
    let origin = Origin::start(config).unwrap();
    // The client of this test waits ten seconds for an answer.
    let first = ask(&origin, "HEAD /b/big", ASKED);
    assert!(first.header(CRC64).is_some());
    assert!(first.header("etag").unwrap().ends_with("-4\""), "{}", first.head);
    assert_eq!(ask(&origin, "HEAD /b/big", ASKED).header(CRC64), first.header(CRC64));
}
