//! Reasons why bytes were not verified, and the code of a verdict in a file's mark, with which a
//! later run reports how a kept file was verified.

use super::Algorithm;
use crate::error::{Error, ErrorKind, ErrorReason};

/// There are no bytes to check.
pub const NO_BYTES: &str = "it is empty";
/// The user wants no verification.
pub const OFF: &str = "--verify off";
/// Neither the listing nor the answers to range requests name a checksum.
pub const NOT_LISTED: &str = "the listing names no checksum";
/// A hash needs all bytes in order, and ranges arrive in any order.
pub const HASH: &str = "a hash cannot be combined from ranges";
/// The HEAD request for it failed.
pub const NOT_ANSWERED: &str = "the request for its checksum failed";
/// A composite checksum whose parts have unknown boundaries.
pub const PARTS_DIFFER: &str = "the parts that its checksum covers differ in size";
/// A composite checksum in an answer, whose parts have unknown boundaries.
pub const PARTS_UNKNOWN: &str = "the checksum covers parts of unknown size";
/// The HEAD request returned another version.
pub const CHANGED: &str = "it has changed since it was listed";
/// Its header is not in S3's documented format.
pub const UNREADABLE: &str = "the stored checksum cannot be read";
/// It may be of all bytes, or of the checksums of parts.
pub const UNTYPED: &str = "the server does not say what the stored checksum is of";
/// An algorithm that inrush does not know.
pub const UNSUPPORTED: &str = "the checksum algorithm is not supported";
/// The server has none.
pub const NOT_STORED: &str = "the server stores no checksum for it";
/// No checksum has been requested yet.
pub const NOT_REQUESTED: &str = "no checksum was requested";
/// Servers of URLs have no checksums that are known; their ETags may be anything.
pub const OF_URL: &str = "no checksum comes with a URL";

/// The error of an object that must be verified and cannot be.
#[must_use]
pub fn error(reason: &str) -> Error {
    Error::new(ErrorKind::Objects, format!("it cannot be verified: {reason}"))
        .because(ErrorReason::Integrity)
        .advise("--verify auto takes such objects and says so")
}

/// The reason, in the plural if there are several objects.
#[must_use]
pub fn of_many(reason: &str, objects: u64) -> &str {
    match reason {
        _ if objects == 1 => reason,
        NO_BYTES => "they are empty",
        NOT_ANSWERED => "the requests for their checksums failed",
        PARTS_DIFFER => "the parts that their checksums cover differ in size",
        CHANGED => "they have changed since they were listed",
        UNREADABLE => "the stored checksums cannot be read",
        UNTYPED => "the server does not say what the stored checksums are of",
        NOT_STORED => "the server stores no checksum for them",
        _ => reason,
    }
}

/// Codes in marks are below this.
pub const CODES: u8 = 128;
/// Code of an unknown verdict.
pub const UNKNOWN: u8 = 0;
/// Code of the first algorithm.
const ALGORITHMS_AT: u8 = 1;
/// Code of the first reason.
const REASONS_AT: u8 = 16;

/// The reasons in the order of their codes, which marks of earlier runs contain: only append.
const REASONS: [&str; 14] = [
    NO_BYTES,
    OFF,
    NOT_LISTED,
    HASH,
    NOT_ANSWERED,
    PARTS_DIFFER,
    PARTS_UNKNOWN,
    CHANGED,
    UNREADABLE,
    UNSUPPORTED,
    NOT_STORED,
    NOT_REQUESTED,
    OF_URL,
    UNTYPED,
];

/// The algorithms in the order of their codes: only append. [`Algorithm::ALL`] is ordered by cost.
const ALGORITHMS: [Algorithm; 10] = [
    Algorithm::Crc64Nvme,
    Algorithm::Crc32c,
    Algorithm::Crc32,
    Algorithm::Sha256,
    Algorithm::Sha1,
    Algorithm::Md5,
    Algorithm::Sha512,
    Algorithm::Xxhash64,
    Algorithm::Xxhash3,
    Algorithm::Xxhash128,
];

/// The code of a verdict; [`UNKNOWN`] if it has none.
#[must_use]
pub fn encode(verdict: Result<Algorithm, &'static str>) -> u8 {
    let (start, place) = match verdict {
        Ok(algorithm) => (ALGORITHMS_AT, ALGORITHMS.iter().position(|known| *known == algorithm)),
        Err(reason) => (REASONS_AT, REASONS.iter().position(|known| *known == reason)),
    };
    let place = place.and_then(|place| u8::try_from(place).ok());
    place.map_or(UNKNOWN, |place| start + place)
}

/// The verdict of a code; `None` if it is unknown.
#[must_use]
pub fn decode(code: u8) -> Option<Result<Algorithm, &'static str>> {
    let at = |start: u8| code.checked_sub(start).map(usize::from);
    match at(REASONS_AT) {
        Some(place) => REASONS.get(place).map(|reason| Err(*reason)),
        None => ALGORITHMS.get(at(ALGORITHMS_AT)?).map(|algorithm| Ok(*algorithm)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_a_form_for_many_objects() {
        for reason in REASONS {
            assert_eq!(of_many(reason, 1), reason);
            let many = of_many(reason, 2);
            let words = || many.split(' ');
            assert!(!words().any(|word| matches!(word, "it" | "its")), "{many}");
        }
        assert_eq!(of_many(NOT_STORED, 22), "the server stores no checksum for them");
    }

    #[test]
    fn verdicts_have_codes_that_come_back() {
        let all = Algorithm::ALL.map(Ok).into_iter().chain(REASONS.map(Err));
        let codes: Vec<u8> = all
            .map(|verdict| {
                let code = encode(verdict);
                assert_eq!(decode(code), Some(verdict), "{code}");
                code
            })
            .collect();
        assert!(codes.iter().all(|code| *code != UNKNOWN && *code < CODES), "{codes:?}");
        assert_eq!(encode(Err("something new")), UNKNOWN);
        for code in [UNKNOWN, 11, 15, 127, 255] {
            assert_eq!(decode(code), None, "{code}");
        }
        // Marks store these codes.
        assert_eq!((encode(Ok(Algorithm::Crc64Nvme)), encode(Ok(Algorithm::Md5))), (1, 6));
        assert_eq!((encode(Ok(Algorithm::Sha512)), encode(Ok(Algorithm::Xxhash128))), (7, 10));
        assert_eq!((encode(Err(NO_BYTES)), encode(Err(NOT_REQUESTED))), (16, 27));
        assert_eq!(encode(Err(OF_URL)), 28);
    }
}
