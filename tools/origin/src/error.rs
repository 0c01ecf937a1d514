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
    /// A worker has nothing to run on, for want of descriptors as a rule.
    #[error("cannot start a worker: {0}; likely cause: too few open files (ulimit -n)")]
    Runtime(#[source] io::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// No certificate can be made, mostly for a name that is none.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS cannot be spoken so.
    #[error("cannot speak TLS: {0}")]
    Tls(#[source] rustls::Error),
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
    /// A header of an object cannot be sent.
    #[error("not a header: '{name}' of {bucket}/{key}")]
    Header {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// The header's name.
        name: String,
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
    InvalidPartNumber,
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
    ServiceUnavailable,
    SignatureDoesNotMatch,
    SlowDown,
    TemporaryRedirect,
    XAmzContentSha256Mismatch,
}

impl Code {
    /// The name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InvalidUri => "InvalidURI",
            Self::XAmzContentSha256Mismatch => "XAmzContentSHA256Mismatch",
            Self::AccessDenied => "AccessDenied",
            Self::AuthorizationHeaderMalformed => "AuthorizationHeaderMalformed",
            Self::AuthorizationQueryParametersError => "AuthorizationQueryParametersError",
            Self::ExpiredToken => "ExpiredToken",
            Self::InternalError => "InternalError",
            Self::InvalidAccessKeyId => "InvalidAccessKeyId",
            Self::InvalidArgument => "InvalidArgument",
            Self::InvalidPartNumber => "InvalidPartNumber",
            Self::InvalidRange => "InvalidRange",
            Self::InvalidRequest => "InvalidRequest",
            Self::InvalidToken => "InvalidToken",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NoSuchBucket => "NoSuchBucket",
            Self::NoSuchKey => "NoSuchKey",
            Self::NotImplemented => "NotImplemented",
            Self::PermanentRedirect => "PermanentRedirect",
            Self::PreconditionFailed => "PreconditionFailed",
            Self::RequestTimeTooSkewed => "RequestTimeTooSkewed",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::SignatureDoesNotMatch => "SignatureDoesNotMatch",
            Self::SlowDown => "SlowDown",
            Self::TemporaryRedirect => "TemporaryRedirect",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::AccessDenied
            | Self::InvalidAccessKeyId
            | Self::RequestTimeTooSkewed
            | Self::SignatureDoesNotMatch => StatusCode::FORBIDDEN,
            Self::AuthorizationHeaderMalformed
            | Self::AuthorizationQueryParametersError
            | Self::ExpiredToken
            | Self::InvalidArgument
            | Self::InvalidRequest
            | Self::InvalidToken
            | Self::InvalidUri
            | Self::XAmzContentSha256Mismatch => StatusCode::BAD_REQUEST,
            Self::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::InvalidPartNumber | Self::InvalidRange => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoSuchBucket | Self::NoSuchKey => StatusCode::NOT_FOUND,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::PermanentRedirect => StatusCode::MOVED_PERMANENTLY,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::ServiceUnavailable | Self::SlowDown => StatusCode::SERVICE_UNAVAILABLE,
            Self::TemporaryRedirect => StatusCode::TEMPORARY_REDIRECT,
        }
    }

    /// S3's usual words.
    fn message(self) -> &'static str {
        match self {
            Self::AccessDenied => "Access Denied",
            Self::AuthorizationHeaderMalformed => "The authorization header is malformed.",
            Self::AuthorizationQueryParametersError => {
                "Error parsing the authorization query parameters."
            }
            Self::ExpiredToken => "The provided token has expired.",
            Self::InternalError => "We encountered an internal error. Please try again.",
            Self::InvalidAccessKeyId => {
                "The AWS Access Key Id you provided does not exist in our records."
            }
            Self::InvalidArgument => "Invalid Argument",
            Self::InvalidPartNumber => "The requested partnumber is not satisfiable",
            Self::InvalidRange => "The requested range is not satisfiable",
            Self::InvalidRequest => "Invalid Request",
            Self::InvalidToken => "The provided token is malformed or otherwise invalid.",
            Self::InvalidUri => "Couldn't parse the specified URI.",
            Self::MethodNotAllowed => "The specified method is not allowed against this resource.",
            Self::NoSuchBucket => "The specified bucket does not exist",
            Self::NoSuchKey => "The specified key does not exist.",
            Self::NotImplemented => {
                "A header or query you provided implies functionality that is not implemented."
            }
            Self::PermanentRedirect => {
                "The bucket you are attempting to access must be addressed using the specified \
                 endpoint. Please send all future requests to this endpoint."
            }
            Self::PreconditionFailed => {
                "At least one of the pre-conditions you specified did not hold"
            }
            Self::RequestTimeTooSkewed => {
                "The difference between the request time and the current time is too large."
            }
            Self::SignatureDoesNotMatch => {
                "The request signature we calculated does not match the signature you provided. \
                 Check your key and signing method."
            }
            Self::ServiceUnavailable => "Service is unable to handle request.",
            Self::SlowDown => "Please reduce your request rate.",
            Self::TemporaryRedirect => {
                "Please re-send this request to the specified temporary endpoint. Continue to use \
                 the original request endpoint for future requests."
            }
            Self::XAmzContentSha256Mismatch => {
                "The provided 'x-amz-content-sha256' header does not match what was computed."
            }
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
        Self { code, message: code.message().to_owned(), details: Vec::new() }
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
        element(&mut xml, "Code", self.code.name());
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
