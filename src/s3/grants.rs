//! S3 Access Grants: what keys are asked for, which requests they are for, and the answers.
//!
//! Pure. An unreadable answer is never quoted: it may contain a secret.

use crate::error::{Error, ErrorKind, Result};
use crate::s3::leaves::{KeyFields, NO_KEYS, read_leaves};
use crate::s3::sign::SigningKeys;
use crate::s3::uri::encode_query;

/// Longest answer of STS or S3 Control, in bytes; a session token has up to some thousand.
pub const GRANT_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Longest scope of a grant, in bytes: S3 has 2,000 characters at most.
const SCOPE_BYTES_MAX: usize = 8_000;
/// Digits of an account.
const ACCOUNT_DIGITS: usize = 12;

/// The keys of a bucket that a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantTarget<'a> {
    /// One object.
    Object(&'a str),
    /// All objects whose keys begin like this.
    Prefix(&'a str),
}

impl GrantTarget<'_> {
    /// All objects.
    pub const ALL: Self = Self::Prefix("");

    /// The target in the form of `GetDataAccess`: a prefix ends in an asterisk.
    #[must_use]
    pub fn within(self, bucket: &str) -> String {
        match self {
            Self::Object(key) => format!("s3://{bucket}/{key}"),
            Self::Prefix(prefix) => format!("s3://{bucket}/{prefix}*"),
        }
    }
}

/// True if a grant of this scope, or a refusal of it, is about all of the target, too.
#[must_use]
pub fn includes(scope: &str, target: &str) -> bool {
    let prefix = scope.strip_suffix('*');
    scope == target || prefix.is_some_and(|prefix| target.starts_with(prefix))
}

/// The grant that the keys of an endpoint are from, and how it is requested again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The account of the Access Grants instance.
    pub account: String,
    /// What was requested, in the form of `GetDataAccess`.
    pub target: String,
    /// The target is one object.
    pub is_object: bool,
    /// What the keys are for: the scope of the grant.
    pub scope: String,
}

/// The path and query of `GetDataAccess`, with permission to read.
#[must_use]
pub fn data_access_query(target: &str, is_object: bool) -> String {
    let kind = if is_object { "&targetType=Object" } else { "" };
    format!(
        "v20180820/accessgrantsinstance/dataaccess?permission=READ&privilege=Default\
         &target={}{kind}",
        encode_query(target)
    )
}

/// The path and query of `GetAccessGrantsInstanceForPrefix`.
#[must_use]
pub fn instance_query(target: &str) -> String {
    let prefix = target.strip_suffix('*').unwrap_or(target);
    format!("v20180820/accessgrantsinstance/prefix?s3prefix={}", encode_query(prefix))
}

/// The query of STS for the account of the caller.
pub const CALLER_QUERY: &str = "?Action=GetCallerIdentity&Version=2011-06-15";

/// Parses the keys that `GetDataAccess` gives, and the scope that they are for.
pub fn parse_data_access(body: &[u8]) -> Result<(SigningKeys, String)> {
    let (mut keys, mut scope) = (KeyFields::default(), String::new());
    read_leaves(body, "GetDataAccessResult", |path, text| match path {
        ["Credentials", name] => keys.take(name, text),
        ["MatchedGrantTarget"] => scope = text.trim().to_owned(),
        _ => {}
    })
    .and_then(|()| keys.parts())
    .and_then(|(access_key, secret, token, expires)| {
        SigningKeys::new(access_key, secret, Some(token), Some(expires)).map_err(|_| NO_KEYS)
    })
    .and_then(|keys| match scope.starts_with("s3://") && scope.len() <= SCOPE_BYTES_MAX {
        true => Ok((keys, scope)),
        false => Err("it does not say what the keys are for"),
    })
    .map_err(|why| unreadable("S3 Access Grants", why))
}

/// Parses the account of the Access Grants instance.
pub fn parse_instance(body: &[u8]) -> Result<String> {
    let mut arn = String::new();
    read_leaves(body, "GetAccessGrantsInstanceForPrefixResult", |path, text| {
        if path == ["AccessGrantsInstanceArn"] {
            arn = text.trim().to_owned();
        }
    })
    .and_then(|()| account(arn.split(':').nth(4)))
    .map_err(|why| unreadable("S3 Access Grants", why))
}

/// Parses the account of the caller, as STS gives it.
pub fn parse_caller(body: &[u8]) -> Result<String> {
    let mut found = String::new();
    read_leaves(body, "GetCallerIdentityResponse", |path, text| {
        if path == ["GetCallerIdentityResult", "Account"] {
            found = text.trim().to_owned();
        }
    })
    .and_then(|()| account(Some(&found)))
    .map_err(|why| unreadable("STS", why))
}

/// The account, which becomes part of a host name.
fn account(text: Option<&str>) -> std::result::Result<String, &'static str> {
    let is_account = |text: &&str| {
        text.len() == ACCOUNT_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.filter(is_account).map(str::to_owned).ok_or("it names no account")
}

fn unreadable(service: &str, why: &str) -> Error {
    let message = format!("the answer of {service} cannot be read: {why}");
    Error::new(ErrorKind::Endpoint, message)
        .advise("check the endpoint_url settings of sts and s3_control, and the network")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// In the format of
    /// <https://docs.aws.amazon.com/AmazonS3/latest/API/API_control_GetDataAccess.html>.
    const ANSWER: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<GetDataAccessResult><Credentials><AccessKeyId>ASIAEXAMPLE</AccessKeyId>
<SecretAccessKey>53cr37</SecretAccessKey><SessionToken>70k3n&#x2B;</SessionToken>
<Expiration>2023-06-14T18:56:45+00:00</Expiration></Credentials>
<MatchedGrantTarget>s3://lab/a&amp;b/*</MatchedGrantTarget>
<Grantee><GranteeType>IAM</GranteeType><GranteeIdentifier>arn</GranteeIdentifier></Grantee>
</GetDataAccessResult>"#;

    #[test]
    fn keys_and_their_scope_are_read() {
        let (keys, scope) = parse_data_access(ANSWER.as_bytes()).expect("keys");
        assert_eq!((keys.access_key(), scope.as_str()), ("ASIAEXAMPLE", "s3://lab/a&b/*"));
        assert_eq!(keys.expires(), Some(UNIX_EPOCH + Duration::from_secs(1_686_769_005)));
        let shown = format!("{keys:?}");
        assert!(!shown.contains("53cr37") && !shown.contains("70k3n"), "{shown}");
    }

    #[test]
    fn every_prefix_is_an_error_and_reveals_no_secret() {
        for end in 0..ANSWER.len() {
            let error = parse_data_access(&ANSWER.as_bytes()[..end]).expect_err("cut short");
            assert!(!format!("{error:?}").contains("53cr37"), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |from: &str, to: &str, expected: &str| {
            let answer = ANSWER.replace(from, to);
            let error = parse_data_access(answer.as_bytes()).expect_err(expected);
            assert_eq!(error.kind(), ErrorKind::Endpoint);
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!error.to_string().contains("53cr37"), "{error}");
        };
        check("SessionToken", "Other", "a part of the keys is missing");
        check("70k3n&#x2B;", "", "cannot be keys");
        check("53cr37", "", "cannot be keys");
        check("ASIAEXAMPLE", "A\r\nHost: h", "cannot be keys");
        check("2023-06-14T18:56:45+00:00", "", "when the keys end");
        check("MatchedGrantTarget", "Target", "what the keys are for");
        check("s3://lab/a&amp;b/*", "", "what the keys are for");
        check("s3://lab/a", &format!("s3://lab/{}", "a".repeat(9_000)), "what the keys are for");
        check("GetDataAccessResult", "CreateSessionResult", "no complete answer");
        check("<Grantee>", "<Grantee", "not XML");
        let mut bytes = ANSWER.as_bytes().to_vec();
        bytes[60] = 0xff;
        assert!(parse_data_access(&bytes).is_err());
    }

    #[test]
    fn accounts_are_twelve_digits() {
        let instance = |arn: &str| {
            parse_instance(
                format!(
                    "<GetAccessGrantsInstanceForPrefixResult><AccessGrantsInstanceArn>{arn}\
                     </AccessGrantsInstanceArn><AccessGrantsInstanceId>default\
                     </AccessGrantsInstanceId></GetAccessGrantsInstanceForPrefixResult>"
                )
                .as_bytes(),
            )
        };
        let found = instance("arn:aws:s3:us-east-2:111122223333:access-grants/default");
        assert_eq!(found.as_deref(), Ok("111122223333"));
        let caller = |account: &str| {
            parse_caller(
                format!(
                    "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/\">\
                     <GetCallerIdentityResult><Arn>arn</Arn><UserId>u</UserId>\
                     <Account>{account}</Account></GetCallerIdentityResult>\
                     </GetCallerIdentityResponse>"
                )
                .as_bytes(),
            )
        };
        assert_eq!(caller("111122223333").as_deref(), Ok("111122223333"));
        for wrong in ["", "11112222333", "1111222233334", "evil.host/#3", "١١١١٢٢"] {
            assert!(caller(wrong).is_err(), "{wrong}");
            assert!(instance(&format!("arn:aws:s3:r:{wrong}:access-grants/default")).is_err());
        }
        assert!(instance("arn").is_err());
    }

    #[test]
    fn scopes_include_what_is_below_them() {
        let object = GrantTarget::Object("a/b").within("lab");
        let folder = GrantTarget::Prefix("a/").within("lab");
        assert_eq!((object.as_str(), folder.as_str()), ("s3://lab/a/b", "s3://lab/a/*"));
        for (scope, of_object, of_folder) in [
            ("s3://lab/*", true, true),
            ("s3://lab/a*", true, true),
            ("s3://lab/a/*", true, true),
            ("s3://lab/a/b", true, false),
            ("s3://lab/a/b*", true, false),
            ("s3://lab/a", false, false),
            ("s3://lab/b/*", false, false),
            ("s3://la/*", false, false),
        ] {
            assert_eq!(includes(scope, &object), of_object, "{scope}");
            assert_eq!(includes(scope, &folder), of_folder, "{scope}");
        }
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(
            data_access_query("s3://lab/a b/*", false),
            "v20180820/accessgrantsinstance/dataaccess?permission=READ&privilege=Default\
             &target=s3%3A%2F%2Flab%2Fa%20b%2F%2A"
        );
        assert!(data_access_query("s3://lab/k", true).ends_with("Flab%2Fk&targetType=Object"));
        assert!(instance_query("s3://lab/a/*").ends_with("/prefix?s3prefix=s3%3A%2F%2Flab%2Fa%2F"));
    }
}
