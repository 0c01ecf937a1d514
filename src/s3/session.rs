//! CreateSession: the keys of a directory bucket, which are valid for some minutes.
//!
//! Pure. An unreadable answer is never quoted: it may contain a secret.

use crate::error::{Error, ErrorKind, Result};
use crate::s3::leaves::{KeyFields, NO_KEYS, read_leaves};
use crate::s3::sign::SigningKeys;

/// Longest answer in bytes; a session's token has up to some thousand.
pub const SESSION_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Parses the keys of a session.
pub fn parse_session(body: &[u8]) -> Result<SigningKeys> {
    let unreadable = |why: &str| {
        Error::new(ErrorKind::Endpoint, format!("the session's answer cannot be read: {why}"))
            .advise(
                "for a server without sessions, set \
                 AWS_S3_DISABLE_EXPRESS_SESSION_AUTH=true",
            )
    };
    let mut keys = KeyFields::default();
    read_leaves(body, "CreateSessionResult", |path, text| {
        if let ["Credentials", name] = path {
            keys.take(name, text);
        }
    })
    .and_then(|()| keys.parts())
    .and_then(|(access_key, secret, token, expires)| {
        SigningKeys::of_session(access_key, secret, token, expires).map_err(|_| NO_KEYS)
    })
    .map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// In the format of <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateSession.html>.
    const ANSWER: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<CreateSessionResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Credentials>
<SessionToken>EXPRESS&#x2B;TOKEN</SessionToken><SecretAccessKey>EXPRESS_53cr37</SecretAccessKey>
<AccessKeyId>EXPRESS_AKIDEXAMPLE</AccessKeyId><Expiration>2023-11-28T01:46:39Z</Expiration>
</Credentials></CreateSessionResult>"#;

    #[test]
    fn a_session_is_read() {
        let keys = parse_session(ANSWER.as_bytes()).expect("a session");
        assert_eq!(keys.access_key(), "EXPRESS_AKIDEXAMPLE");
        let ends = UNIX_EPOCH + Duration::from_secs(1_701_135_999);
        assert_eq!(keys.expires(), Some(ends));
        let fraction = ANSWER.replace("39Z", "39.000Z");
        assert_eq!(parse_session(fraction.as_bytes()).as_ref(), Ok(&keys));
    }

    #[test]
    fn every_prefix_is_an_error_and_reveals_no_secret() {
        for end in 0..ANSWER.len() {
            let error = parse_session(&ANSWER.as_bytes()[..end]).expect_err("cut short");
            assert!(!error.to_string().contains("53cr37"), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |from: &str, to: &str, expected: &str| {
            let error = parse_session(ANSWER.replace(from, to).as_bytes()).expect_err("no session");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.to_string().contains("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH"), "{error}");
            assert!(!error.to_string().contains("53cr37"), "{error}");
        };
        check("AccessKeyId", "Other", "a part of the keys is missing");
        check("2023-11-28", "soon", "does not say when");
        check("EXPRESS&#x2B;TOKEN", " ", "cannot be keys");
        check("EXPRESS_53cr37", "EXPRESS 53cr37", "cannot be keys");
        check("CreateSessionResult", "ListBucketResult", "no complete answer");
    }
}
