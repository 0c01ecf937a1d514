//! What caused an error: the chain that [`std::error::Error::source`] returns, and its text without
//! secrets.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The error that caused another one; none by default.
///
/// Two errors are equal whatever caused them. The `Debug` form is the text without secrets: that of
/// the cause itself may have a whole answer in it.
#[derive(Clone, Default)]
pub(super) struct Cause(Option<Arc<dyn StdError + Send + Sync>>);

impl Cause {
    pub(super) fn new(error: impl StdError + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(error)))
    }

    pub(super) fn get(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.as_deref().map(|error| error as &(dyn StdError + 'static))
    }

    /// The text of each error of the chain, without secrets.
    pub(super) fn texts(&self) -> Vec<String> {
        chain(self.get()).map(|error| without_secrets(&error.to_string())).collect()
    }
}

impl PartialEq for Cause {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cause {}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.texts()).finish()
    }
}

fn chain<'a>(
    first: Option<&'a (dyn StdError + 'static)>,
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(first, |&error| error.source())
}

/// An error of which only the text is kept, without secrets.
#[derive(Debug)]
struct Text {
    text: String,
    source: Option<Box<Text>>,
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Text {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// The texts of a chain of errors as a chain; for errors that hold requests or answers.
pub(super) fn texts_of(error: &(dyn StdError + 'static)) -> Cause {
    let errors: Vec<_> = chain(Some(error)).collect();
    let wrap = |source: Option<Box<Text>>, error: &&(dyn StdError + 'static)| {
        Some(Box::new(Text { text: without_secrets(&error.to_string()), source }))
    };
    match errors.iter().rev().fold(None, wrap) {
        Some(first) => Cause::new(*first),
        None => Cause::default(),
    }
}

/// A copy of an error of the kernel or of the standard library.
pub(super) fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Names of secrets, in lower case, without punctuation. Their value follows after `:`, `=` or `>`.
const SECRETS: [&str; 12] = [
    "authorization",
    "password",
    "secretaccesskey",
    "securitytoken",
    "sessiontoken",
    "accesstoken",
    "identitytoken",
    "refreshtoken",
    "bearertoken",
    "metadatatoken",
    "clientsecret",
    "customerkey",
];

/// Parts of a signed request, whose value follows after `=`.
const SIGNED: [&str; 2] = ["credential", "signature"];

const LEFT_OUT: &str = "...";

/// The text in one line without values that may be secret: passwords and queries of URLs, since
/// signed URLs have their signature there; and everything from the value of a secret on, because a
/// header's value may have several words. STS and S3 repeat signed headers in their errors.
#[must_use]
pub(crate) fn without_secrets(text: &str) -> String {
    let mut kept = Vec::new();
    for word in text.split_whitespace() {
        let word = without_secrets_of_url(word);
        let end = match word.eq_ignore_ascii_case("bearer") {
            true => Some(word.len()),
            false => end_of_name(&word),
        };
        if let Some(end) = end {
            kept.push(format!("{}{LEFT_OUT}", &word[..end]));
            break;
        }
        kept.push(word);
    }
    kept.join(" ")
}

/// Where the value begins in a word that names a secret before `:`, `=` or `>`.
fn end_of_name(word: &str) -> Option<usize> {
    let is_secret = |(at, separator): &(usize, &str)| {
        let name: String = word[..*at].chars().filter(char::is_ascii_alphanumeric).collect();
        let name = name.to_ascii_lowercase();
        let ends = |secrets: &[&str]| secrets.iter().any(|secret| name.ends_with(secret));
        ends(&SECRETS) || *separator == "=" && ends(&SIGNED)
    };
    word.match_indices([':', '=', '>']).find(is_secret).map(|(at, _)| at + 1)
}

fn without_secrets_of_url(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let (path, query) = match rest.split_once('?') {
        Some((path, _)) => (path, "?..."),
        None => (rest, ""),
    };
    let (authority, path) = path.split_at(path.find('/').unwrap_or(path.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_of_texts() {
        let check = |text: &str, expected: &str| assert_eq!(without_secrets(text), expected);
        check("get https://me:hunter2@h:1/a/b", "get https://h:1/a/b");
        check(
            "cannot reach https://h/k?X-Amz-Credential=A&X-Amz-Signature=abc (io error)",
            "cannot reach https://h/k?... (io error)",
        );
        check("sent Authorization: AWS4-HMAC-SHA256 Signature=abc", "sent Authorization:...");
        check("AWS4-HMAC-SHA256 Credential=A/b, Signature=abc", "AWS4-HMAC-SHA256 Credential=...");
        check(
            "should have been 'GET\n/\nhost:h\nx-amz-security-token:abc\n",
            "should have been 'GET / host:h x-amz-security-token:...",
        );
        check(r#"{"Code":"x","SessionToken":"abc"}"#, r#"{"Code":"x","SessionToken":..."#);
        check(r#"{"SessionToken": "abc"}"#, r#"{"SessionToken":..."#);
        check("x-amz-sso_bearer_token, Bearer abc", "x-amz-sso_bearer_token, Bearer...");
        check("PASSWORD=hunter2 x", "PASSWORD=...");
        // Words about secrets are none.
        check("the security token is invalid: renew it", "the security token is invalid: renew it");
        check("invalid peer certificate: BadSignature", "invalid peer certificate: BadSignature");
        check("bad signature: expected", "bad signature: expected");
        check("s3://bucket/a@b: no such key", "s3://bucket/a@b: no such key");
    }

    #[test]
    fn a_chain_of_texts_has_neither_the_errors_nor_their_secrets() {
        let inner = io::Error::other("x-amz-security-token: hunter2");
        let outer = io::Error::other(inner);
        let cause = texts_of(&outer);
        let shown = format!("{cause:?} {:?}", cause.get().expect("a cause"));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(cause.texts()[0], "x-amz-security-token:...");
        assert!(chain(cause.get()).all(|error| !error.is::<io::Error>()));
    }

    #[test]
    fn a_copy_of_an_error_is_of_its_kind() {
        let full = copy_of(&io::Error::from_raw_os_error(28));
        assert_eq!((full.raw_os_error(), full.kind()), (Some(28), io::ErrorKind::StorageFull));
        let own = copy_of(&io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"));
        assert_eq!((own.kind(), own.to_string()), (io::ErrorKind::InvalidData, "not UTF-8".into()));
    }
}
