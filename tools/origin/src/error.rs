//! What can go wrong: for a client an [`S3Error`], for whoever starts an origin an [`Error`].
//!
//! Not here: faults, which are injected and not found (`fault.rs`).

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use hyper::StatusCode;

/// Why an origin could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refuses io_uring.
    #[error(
        "io_uring is not available: {0}; likely cause: an old kernel, kernel.io_uring_disabled, \
         or a container's seccomp profile"
    )]
    Ring(#[source] io::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The configuration names no address.
    #[error("no address to listen on")]
    NoAddress,
    /// A folder or file below the root cannot be served.
    #[error("cannot serve {path}: {source}")]
    Root {
        /// The folder or file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// An object's key is empty or too long.
    #[error("a key must have 1 to 1024 bytes, got {length_bytes}: {bucket}/{key}")]
    Key {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// Its length.
        length_bytes: usize,
    },
    /// A thread could not be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(#[source] io::Error),
}

/// The errors of S3 that this origin knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    AccessDenied,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    ExpiredToken,
    InternalError,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidRange,
    InvalidRequest,
    InvalidToken,
    InvalidUri,
    MethodNotAllowed,
    NoSuchBucket,
    NoSuchKey,
    NotImplemented,
    PermanentRedirect,
    PreconditionFailed,
    RequestTimeTooSkewed,
    SignatureDoesNotMatch,
    SlowDown,
    XAmzContentSha256Mismatch,
}

impl Code {
    /// The name on the wire, the status, and S3's usual message.
    pub(crate) fn parts(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::AccessDenied => ("AccessDenied", S::FORBIDDEN, "Access Denied"),
            Self::AuthorizationHeaderMalformed => (
                "AuthorizationHeaderMalformed",
                S::BAD_REQUEST,
                "The authorization header is malformed.",
            ),
            Self::AuthorizationQueryParametersError => (
                "AuthorizationQueryParametersError",
                S::BAD_REQUEST,
                "Error parsing the authorization query parameters.",
            ),
            Self::ExpiredToken => {
                ("ExpiredToken", S::BAD_REQUEST, "The provided token has expired.")
            }
            Self::InternalError => (
                "InternalError",
                S::INTERNAL_SERVER_ERROR,
                "We encountered an internal error. Please try again.",
            ),
            Self::InvalidAccessKeyId => (
                "InvalidAccessKeyId",
                S::FORBIDDEN,
                "The AWS Access Key Id you provided does not exist in our records.",
            ),
            Self::InvalidArgument => ("InvalidArgument", S::BAD_REQUEST, "Invalid Argument"),
            Self::InvalidRange => {
                ("InvalidRange", S::RANGE_NOT_SATISFIABLE, "The requested range is not satisfiable")
            }
            Self::InvalidRequest => ("InvalidRequest", S::BAD_REQUEST, "Invalid Request"),
            Self::InvalidToken => (
                "InvalidToken",
                S::BAD_REQUEST,
                "The provided token is malformed or otherwise invalid.",
            ),
            Self::InvalidUri => ("InvalidURI", S::BAD_REQUEST, "Couldn't parse the specified URI."),
            Self::MethodNotAllowed => (
                "MethodNotAllowed",
                S::METHOD_NOT_ALLOWED,
                "The specified method is not allowed against this resource.",
            ),
            Self::NoSuchBucket => {
                ("NoSuchBucket", S::NOT_FOUND, "The specified bucket does not exist")
            }
            Self::NoSuchKey => ("NoSuchKey", S::NOT_FOUND, "The specified key does not exist."),
            Self::NotImplemented => (
                "NotImplemented",
                S::NOT_IMPLEMENTED,
                "A header or query you provided implies functionality that is not implemented.",
            ),
            Self::PermanentRedirect => (
                "PermanentRedirect",
                S::MOVED_PERMANENTLY,
                "The bucket you are attempting to access must be addressed using the specified \
                 endpoint. Please send all future requests to this endpoint.",
            ),
            Self::PreconditionFailed => (
                "PreconditionFailed",
                S::PRECONDITION_FAILED,
                "At least one of the pre-conditions you specified did not hold",
            ),
            Self::RequestTimeTooSkewed => (
                "RequestTimeTooSkewed",
                S::FORBIDDEN,
                "The difference between the request time and the current time is too large.",
            ),
            Self::SignatureDoesNotMatch => (
                "SignatureDoesNotMatch",
                S::FORBIDDEN,
                "The request signature we calculated does not match the signature you provided. \
                 Check your key and signing method.",
            ),
            Self::SlowDown => {
                ("SlowDown", S::SERVICE_UNAVAILABLE, "Please reduce your request rate.")
            }
            Self::XAmzContentSha256Mismatch => (
                "XAmzContentSHA256Mismatch",
                S::BAD_REQUEST,
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
            ),
        }
    }
}

/// An answer that is an error: code, message, and the elements that belong to this code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct S3Error {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) details: Vec<(&'static str, String)>,
}

impl From<Code> for S3Error {
    fn from(code: Code) -> Self {
        Self { code, message: code.parts().2.to_owned(), details: Vec::new() }
    }
}

impl S3Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new() }
    }

    /// Adds an element such as `<Region>` or `<BucketName>`.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.details.push((name, value.into()));
        self
    }

    pub(crate) fn detail(&self, name: &str) -> Option<&str> {
        self.details.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The body of the answer.
    pub(crate) fn to_xml(&self, resource: &str, request_id: &str) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
        element(&mut xml, "Code", self.code.parts().0);
        element(&mut xml, "Message", &self.message);
        for (name, value) in &self.details {
            element(&mut xml, name, value);
        }
        element(&mut xml, "Resource", resource);
        element(&mut xml, "RequestId", request_id);
        xml.push_str("</Error>");
        xml
    }
}

/// Writes `<name>text</name>`.
pub(crate) fn element(xml: &mut String, name: &str, text: &str) {
    xml.push('<');
    xml.push_str(name);
    xml.push('>');
    escape_into(xml, text);
    xml.push_str("</");
    xml.push_str(name);
    xml.push('>');
}

/// Escapes what XML gives a meaning, and control characters as S3 does: as references, although
/// XML 1.0 forbids most of them even so (that is why clients ask for `encoding-type=url`).
fn escape_into(xml: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\'' => xml.push_str("&apos;"),
            '\0'..='\u{1f}' | '\u{7f}' | '\u{fffe}' | '\u{ffff}' => {
                // Writing to a String cannot fail.
                let _ = write!(xml, "&#x{:x};", u32::from(character));
            }
            other => xml.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_bodies_are_escaped() {
        let error = S3Error::from(Code::NoSuchKey).with("Key", "a<b>&\"c\"\n");
        let xml = error.to_xml("/b/a", "ID");
        assert!(xml.contains("<Code>NoSuchKey</Code>"), "{xml}");
        assert!(xml.contains("<Key>a&lt;b&gt;&amp;&quot;c&quot;&#xa;</Key>"), "{xml}");
        assert!(xml.ends_with("<Resource>/b/a</Resource><RequestId>ID</RequestId></Error>"));
    }
}
