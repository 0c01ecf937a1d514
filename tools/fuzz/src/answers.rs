//! What servers say beside objects: refusals, and the keys of a session and of an access grant.

use inrush::s3::answer::{ServerError, explain};
use inrush::s3::grants::{includes, parse_caller, parse_data_access, parse_instance};
use inrush::s3::session::parse_session;

/// Longest text taken over from a refusal, in characters.
const TEXT_CHARS_MAX: usize = 300;

/// A refusal: whatever the body holds, lines stay lines, of bounded length; the status and the
/// header's request id stay what they were; and what is said plainly is understood.
pub fn error(data: &[u8]) {
    let status = 300 + data.first().map_or(0, |byte| u16::from(*byte));
    let error = explain(status, data, "");
    plain(&error);
    assert_eq!(error.status, status);
    // Only a code shows that it was S3 who spoke.
    assert_eq!(error.is_foreign, error.code.is_empty() && !data.is_empty());
    let named = explain(status, data, "R1");
    assert_eq!(named, ServerError { request_id: "R1".to_owned(), ..error.clone() });
    // Total, and in agreement: only RequestTimeTooSkewed has the server's clock.
    assert!(error.server_clock().is_none() || error.code == "RequestTimeTooSkewed");
    let line = error.into_error("get").to_string();
    assert!(line.starts_with("get: the server answered "), "{line}");

    let word: String = data
        .iter()
        .map(|byte| char::from(*byte))
        .filter(char::is_ascii_alphanumeric)
        .take(TEXT_CHARS_MAX)
        .collect();
    if word.is_empty() {
        return;
    }
    let said = explain(status, format!("<Error><Code>{word}</Code></Error>").as_bytes(), "");
    assert_eq!(said, ServerError { status, code: word, ..ServerError::default() });
}

fn plain(error: &ServerError) {
    for text in [&error.code, &error.message, &error.request_id, &error.region, &error.server_time]
    {
        assert!(!text.contains(char::is_control), "{text:?} goes to a terminal");
        assert!(text.chars().count() <= TEXT_CHARS_MAX, "{} bytes", text.len());
    }
}

/// The answer to CreateSession: keys whose secret nobody prints, or an error that holds nothing of
/// the answer.
pub fn session(data: &[u8]) {
    if let Err(refused) = parse_session(data) {
        let line = refused.to_string();
        assert!(line.starts_with("the session's answer cannot be read: "), "{line}");
        assert!(line.is_ascii() && line.len() < 300, "{line}");
    }
    let secret: String = data.iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    let text = format!(
        "<CreateSessionResult><Credentials><SessionToken>70k3n{secret}</SessionToken>\
         <SecretAccessKey>53cr37{secret}</SecretAccessKey><AccessKeyId>name</AccessKeyId>\
         <Expiration>2023-11-28T01:46:39Z</Expiration></Credentials></CreateSessionResult>"
    );
    let keys = parse_session(text.as_bytes()).expect("a session");
    let shown = format!("{keys:?}");
    assert_eq!(keys.access_key(), "name");
    assert!(!shown.contains(&format!("53cr37{secret}")), "the secret is shown");
    assert!(!shown.contains(&format!("70k3n{secret}")), "the token is shown");
    // Cut anywhere: nothing half.
    let end = data.first().map_or(0, |byte| usize::from(*byte)).min(text.len() - 1);
    let refused = parse_session(&text.as_bytes()[..end]).expect_err("cut short").to_string();
    assert!(!refused.contains("53cr37"), "{refused}");
}

/// The answers about access grants: keys and their scope, or an account, or an error that holds
/// nothing of the answer.
pub fn grant(data: &[u8]) {
    let refusals = [
        parse_data_access(data).map(|(_, scope)| {
            assert!(scope.starts_with("s3://") && includes(&scope, &scope), "{scope:?}");
        }),
        parse_caller(data).map(|account| is_account(&account)),
        parse_instance(data).map(|account| is_account(&account)),
    ];
    for refused in refusals.into_iter().filter_map(Result::err) {
        let line = refused.to_string();
        assert!(line.starts_with("the answer of "), "{line}");
        assert!(line.is_ascii() && line.len() < 300, "{line}");
    }
    let secret: String = data.iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    let text = format!(
        "<GetDataAccessResult><Credentials><SessionToken>70k3n{secret}</SessionToken>\
         <SecretAccessKey>53cr37{secret}</SecretAccessKey><AccessKeyId>name</AccessKeyId>\
         <Expiration>2023-11-28T01:46:39Z</Expiration></Credentials>\
         <MatchedGrantTarget>s3://b/{secret}*</MatchedGrantTarget></GetDataAccessResult>"
    );
    let (keys, scope) = parse_data_access(text.as_bytes()).expect("keys");
    let shown = format!("{keys:?}");
    assert_eq!((keys.access_key(), scope), ("name", format!("s3://b/{secret}*")));
    assert!(!shown.contains("53cr37") && !shown.contains("70k3n"), "a secret is shown");
    // Cut anywhere: nothing half.
    let end = data.first().map_or(0, |byte| usize::from(*byte)).min(text.len() - 1);
    let refused = parse_data_access(&text.as_bytes()[..end]).expect_err("cut short").to_string();
    assert!(!refused.contains("53cr37"), "{refused}");
}

/// It becomes part of a host name.
fn is_account(account: &str) {
    assert!(account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit()));
}
