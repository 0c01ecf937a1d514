//! Why an attempt at a range failed, as data that is counted, explained and decided upon; maps
//! refusals of S3 and of proxies to it.

use std::fmt;

use crate::error::Error;
use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::s3::Endpoint;
use crate::s3::answer::ServerError;
use crate::sys::Errno;

/// Why one attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The connection could not be made.
    Connect(Errno),
    /// The connection was not made in time.
    ConnectTimeout,
    /// The connection broke while it was used.
    Broken(Errno),
    /// A new connection broke before any byte of an answer came.
    BrokenUnanswered(Errno),
    /// The server closed a new connection before any byte of an answer came.
    ClosedUnanswered,
    /// The server had closed a reused connection before this request reached it.
    Stale,
    /// No first byte in time.
    FirstByteTimeout,
    /// The body stalled.
    Stall,
    /// The answer ended before its body was complete.
    Truncated,
    /// The answer's head is not HTTP/1, or contradicts itself.
    BadHead,
    /// The answer has more than [`HEADERS_MAX`] headers.
    TooManyHeaders,
    /// The answer has more than [`HEAD_BYTES_MAX`] bytes of headers.
    HeadTooLong,
    /// The answer's Content-Range is not the requested range.
    WrongRange,
    /// The answer's length is not the range's.
    WrongLength,
    /// The whole object was sent (200) although a range was requested.
    WholeAnswer,
    /// Nothing shows that the answer is of the listed version, or of the version that the bytes
    /// before it are of.
    Unversioned,
    /// The answer has a Content-Encoding, and not the length of the stored bytes.
    Encoded,
    /// The answer has a Transfer-Encoding, and nothing shows before its end that its body is the
    /// range.
    Chunked,
    /// The chunks of the answer are damaged.
    BadChunks,
    /// The body was longer or shorter than the object, and its bytes may be used already.
    OtherLength,
    /// The answer switches to another protocol (101) without being asked.
    Interim,
    /// The bytes do not match the stored checksum.
    Checksum,
    /// The server refuses the request, and has not shown yet that it understands one of its
    /// optional headers, which the next one omits.
    OptionalHeader,
    /// The session token has expired or was revoked.
    ExpiredToken,
    /// The clocks of server and client differ too much for a signature.
    ClockSkew,
    /// The server redirects to another one, whose addresses are looked up.
    Redirected,
    /// The ETag of the answer is not the listed one: the object has changed.
    WrongEtag,
    /// There is no checksum to compare the bytes with, but one is required.
    NoChecksum,
    /// The proxy refused to connect to the server, with this status.
    Proxy(u16),
    /// The server refused with this status.
    Status(u16),
    /// TLS broke off: an alert, an invalid record, or an end within the handshake.
    TlsBroken,
    /// The server closed the connection within the TLS handshake.
    TlsEnded,
    /// TLS is impossible: an untrusted certificate, no common version.
    TlsRefused,
}

/// The kinds of [`Failure`], for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryReason {
    /// See [`Failure::BadHead`], [`Failure::TooManyHeaders`], [`Failure::HeadTooLong`],
    /// [`Failure::Interim`], [`Failure::Chunked`] and [`Failure::BadChunks`].
    BadHead,
    /// See [`Failure::Broken`] and [`Failure::BrokenUnanswered`].
    Broken,
    /// See [`Failure::Checksum`] and [`Failure::NoChecksum`].
    Checksum,
    /// See [`Failure::ClockSkew`].
    ClockSkew,
    /// See [`Failure::Connect`].
    Connect,
    /// See [`Failure::ConnectTimeout`].
    ConnectTimeout,
    /// See [`Failure::ExpiredToken`].
    ExpiredToken,
    /// See [`Failure::FirstByteTimeout`].
    FirstByteTimeout,
    /// See [`Failure::Proxy`].
    Proxy,
    /// Status 500, 502, 504 and the like.
    ServerError,
    /// Status 503 or 429: the server asks for fewer requests.
    SlowDown,
    /// See [`Failure::Stale`].
    Stale,
    /// See [`Failure::Stall`].
    Stall,
    /// Any other status: a permanent refusal; [`Failure::OptionalHeader`] and
    /// [`Failure::Redirected`].
    Refused,
    /// See [`Failure::TlsBroken`], [`Failure::TlsEnded`] and [`Failure::TlsRefused`].
    Tls,
    /// See [`Failure::Truncated`] and [`Failure::ClosedUnanswered`].
    Truncated,
    /// See [`Failure::is_change`].
    WrongEtag,
    /// See [`Failure::WrongLength`] and [`Failure::Encoded`].
    WrongLength,
    /// See [`Failure::WrongRange`], [`Failure::WholeAnswer`] and [`Failure::Unversioned`].
    WrongRange,
}

/// Number of retries by [`RetryReason`].
pub type RetryCounts = [u64; RetryReason::COUNT];

impl RetryReason {
    /// Number of reasons.
    pub const COUNT: usize = 19;

    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::BadHead,
        Self::Broken,
        Self::Checksum,
        Self::ClockSkew,
        Self::Connect,
        Self::ConnectTimeout,
        Self::ExpiredToken,
        Self::FirstByteTimeout,
        Self::Proxy,
        Self::ServerError,
        Self::SlowDown,
        Self::Stale,
        Self::Stall,
        Self::Refused,
        Self::Tls,
        Self::Truncated,
        Self::WrongEtag,
        Self::WrongLength,
        Self::WrongRange,
    ];

    /// Its name in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadHead => "bad_head",
            Self::Broken => "broken",
            Self::Checksum => "checksum",
            Self::ClockSkew => "clock_skew",
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::ExpiredToken => "expired_token",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::Proxy => "proxy",
            Self::ServerError => "server_error",
            Self::SlowDown => "slow_down",
            Self::Stale => "stale",
            Self::Stall => "stall",
            Self::Refused => "refused",
            Self::Tls => "tls",
            Self::Truncated => "truncated",
            Self::WrongEtag => "wrong_etag",
            Self::WrongLength => "wrong_length",
            Self::WrongRange => "wrong_range",
        }
    }

    /// The text for this reason in a summary.
    #[must_use]
    pub fn words(name: &str) -> String {
        match name {
            "bad_head" => "invalid response header".to_owned(),
            "wrong_etag" => "object changed".to_owned(),
            name => name.replace('_', " "),
        }
    }
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Try again at once, without counting a try.
    Repeat,
    /// Try again after a backoff, while tries are left.
    Backoff,
    /// Give up the object.
    GiveUp,
}

impl Failure {
    /// Its kind, for counters.
    #[must_use]
    pub const fn reason(self) -> RetryReason {
        match self {
            Self::Connect(_) => RetryReason::Connect,
            Self::ConnectTimeout => RetryReason::ConnectTimeout,
            Self::Broken(_) | Self::BrokenUnanswered(_) => RetryReason::Broken,
            Self::Stale => RetryReason::Stale,
            Self::FirstByteTimeout => RetryReason::FirstByteTimeout,
            Self::Stall => RetryReason::Stall,
            Self::Truncated | Self::ClosedUnanswered => RetryReason::Truncated,
            Self::BadHead
            | Self::TooManyHeaders
            | Self::HeadTooLong
            | Self::Interim
            | Self::Chunked
            | Self::BadChunks => RetryReason::BadHead,
            Self::WrongRange | Self::WholeAnswer | Self::Unversioned => RetryReason::WrongRange,
            Self::WrongLength | Self::Encoded => RetryReason::WrongLength,
            Self::Checksum | Self::NoChecksum => RetryReason::Checksum,
            Self::ExpiredToken => RetryReason::ExpiredToken,
            Self::ClockSkew => RetryReason::ClockSkew,
            Self::WrongEtag | Self::OtherLength | Self::Status(412 | 416) => RetryReason::WrongEtag,
            Self::TlsBroken | Self::TlsEnded | Self::TlsRefused => RetryReason::Tls,
            Self::Proxy(_) => RetryReason::Proxy,
            Self::Status(429 | 503) => RetryReason::SlowDown,
            Self::Status(500 | 502..) => RetryReason::ServerError,
            Self::OptionalHeader | Self::Redirected | Self::Status(_) => RetryReason::Refused,
        }
    }

    /// The remedy.
    #[must_use]
    pub const fn remedy(self) -> Remedy {
        match self {
            Self::Stale | Self::OptionalHeader => Remedy::Repeat,
            Self::Connect(_)
            | Self::ConnectTimeout
            | Self::Broken(_)
            | Self::BrokenUnanswered(_)
            | Self::ClosedUnanswered
            | Self::FirstByteTimeout
            | Self::Stall
            | Self::Truncated
            | Self::BadHead
            | Self::Interim
            | Self::Chunked
            | Self::BadChunks
            | Self::WrongRange
            | Self::WholeAnswer
            | Self::Encoded
            | Self::WrongLength
            | Self::Checksum
            | Self::ExpiredToken
            | Self::ClockSkew
            | Self::Redirected
            | Self::TlsBroken
            | Self::TlsEnded
            | Self::Proxy(408 | 429 | 500..)
            // A feature that is not implemented (501) will not be on the next try.
            | Self::Status(408 | 429 | 500 | 502..) => Remedy::Backoff,
            Self::TooManyHeaders
            | Self::HeadTooLong
            | Self::Unversioned
            | Self::WrongEtag
            | Self::OtherLength
            | Self::NoChecksum
            | Self::TlsRefused
            | Self::Proxy(_)
            | Self::Status(_) => Remedy::GiveUp,
        }
    }

    /// True if file descriptors ran out in the process or on the machine (EMFILE, ENFILE), which
    /// says nothing about network or endpoint.
    #[must_use]
    pub const fn is_of_descriptors(self) -> bool {
        matches!(self, Self::Connect(errno) if errno.is_of_descriptors())
    }

    /// Advice, unless the network itself should be checked.
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::TooManyHeaders | Self::HeadTooLong => {
                Some("configure the server, or the proxy in front of it, to send fewer headers")
            }
            _ if self.is_of_descriptors() => {
                Some("raise the limit of open files (ulimit -n), or lower --connections")
            }
            // The number of connections does not cause ECONNREFUSED, ENETUNREACH or EHOSTUNREACH.
            Self::Connect(errno) if errno.number() == Errno::REFUSED.number() => {
                Some("check --endpoint-url and its port: no server accepts connections there")
            }
            Self::Connect(errno) if matches!(errno.number(), 101 | 113) => {
                Some("check the network and --endpoint-url")
            }
            Self::Chunked => {
                Some("configure the server, or the proxy in front of it, to send Content-Length")
            }
            Self::OtherLength => Some(
                "run it again; where that does not help, the server sends other bytes than \
                      it lists",
            ),
            // A stream's ranges are shorter than a part while several are in flight.
            Self::WholeAnswer => Some(
                "whole objects alone can be read from it, each by one request: raise --part-size \
                 above their sizes (pipe and cat need --connections 1, too); cat --range and mount \
                 need a server with ranges",
            ),
            Self::Unversioned => {
                Some("run it again; a server with ETags, Last-Modified or ranges lets it continue")
            }
            Self::Encoded => Some(
                "configure the server, or the proxy in front of it, to send objects as they are \
                 stored, without compression",
            ),
            _ if self.is_of_server() => {
                Some("check --endpoint-url: another server, or a proxy, may have answered")
            }
            _ => None,
        }
    }

    /// The error of the kernel, if it is one.
    #[must_use]
    pub const fn errno(self) -> Option<Errno> {
        match self {
            Self::Connect(errno) | Self::Broken(errno) | Self::BrokenUnanswered(errno) => {
                Some(errno)
            }
            _ => None,
        }
    }

    /// True if every object of the run would fail alike: the refusal does not come from the server.
    #[must_use]
    pub const fn ends_run(self) -> bool {
        matches!(self, Self::TlsRefused | Self::Proxy(_)) && matches!(self.remedy(), Remedy::GiveUp)
    }

    /// True if the endpoint refuses, does not answer, or answers wrongly. Proxies and load
    /// balancers answer 502 and 504 for a server that they cannot reach (RFC 9110 section 15.6);
    /// their 503 differs from S3's "slow down" only if the proxy itself sent it.
    #[must_use]
    pub const fn is_unreachable(self) -> bool {
        if let Self::Connect(errno) = self {
            // EPERM, ENOMEM, EACCES, EINVAL, ENFILE, EMFILE: not caused by the endpoint.
            return !matches!(errno.number(), 1 | 12 | 13 | 22 | 23 | 24);
        }
        matches!(
            self,
            Self::ConnectTimeout
                | Self::BrokenUnanswered(_)
                | Self::ClosedUnanswered
                | Self::FirstByteTimeout
                | Self::TlsEnded
                | Self::Proxy(502..=504)
                | Self::Status(502 | 504)
        )
    }

    /// True if an answer came that violates HTTP or S3.
    #[must_use]
    pub const fn is_of_server(self) -> bool {
        matches!(
            self.reason(),
            RetryReason::BadHead | RetryReason::WrongRange | RetryReason::WrongLength
        )
    }

    /// True when the server asks for fewer requests.
    #[must_use]
    pub const fn is_overload(self) -> bool {
        matches!(self.reason(), RetryReason::SlowDown)
    }

    /// True if the address may be the cause.
    #[must_use]
    pub const fn is_of_address(self) -> bool {
        matches!(
            self,
            Self::Connect(_) | Self::ConnectTimeout | Self::FirstByteTimeout | Self::Stall
        )
    }

    /// True if the object is not the listed one (If-Match causes 412, RFC 9110 section 13.1.1; a
    /// shorter object causes 416).
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::WrongEtag | Self::OtherLength | Self::Status(412 | 416))
    }
}

impl ServerError {
    /// The failure of an attempt with this answer: by the code if it is more exact than the status.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self.code.as_str() {
            "ExpiredToken" | "TokenRefreshRequired" => Failure::ExpiredToken,
            "RequestTimeTooSkewed" => Failure::ClockSkew,
            // S3 sends it with status 400; its meaning is 408.
            "RequestTimeout" => Failure::Status(408),
            _ => Failure::Status(self.status),
        }
    }
}

impl Endpoint {
    /// The refusal of a proxy as an error, if the failed attempt has one.
    #[must_use]
    pub fn refusal_on_the_way(
        &self,
        failure: Failure,
        refusal: Option<&ServerError>,
    ) -> Option<Error> {
        match (failure, refusal) {
            (Failure::Proxy(status), _) => self.proxy_refusal(status),
            (_, Some(refusal)) => self.relay_refusal(refusal),
            _ => None,
        }
    }

    /// True if a failed attempt shows that the endpoint refuses or does not answer, or that its
    /// proxy says so. Some proxies say so with 503, which has another meaning in S3.
    #[must_use]
    pub fn is_unreachable(&self, failure: Failure, refusal: Option<&ServerError>) -> bool {
        let is_503 = failure == Failure::Status(503);
        failure.is_unreachable() || is_503 && self.refusal_on_the_way(failure, refusal).is_some()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(errno) => write!(f, "connect failed: {errno}"),
            Self::ConnectTimeout => f.write_str("connect timed out"),
            Self::Broken(errno) => write!(f, "the connection broke: {errno}"),
            Self::BrokenUnanswered(errno) => {
                write!(f, "the connection broke before an answer came: {errno}")
            }
            Self::ClosedUnanswered => {
                f.write_str("the server closed the connection without an answer")
            }
            Self::Stale => f.write_str("the server closed the idle connection"),
            Self::FirstByteTimeout => f.write_str("timed out before the first byte"),
            Self::Stall => f.write_str("timed out while reading the body"),
            Self::Truncated => f.write_str("the answer ended in the middle of its body"),
            Self::BadHead => f.write_str("the answer has no valid HTTP/1 header"),
            Self::TooManyHeaders => write!(f, "the answer has more than {HEADERS_MAX} headers"),
            Self::HeadTooLong => {
                write!(f, "the answer has headers of more than {} KiB", HEAD_BYTES_MAX >> 10)
            }
            Self::WrongRange => f.write_str("the response is not the requested range"),
            Self::Encoded => f.write_str(
                "the answer has a Content-Encoding and not the stored bytes: the server, or a \
                 proxy, compresses them",
            ),
            Self::WrongLength => f.write_str("the answer is longer or shorter than the range"),
            Self::WholeAnswer => {
                f.write_str("the server answered a range request with 200: it serves no ranges")
            }
            Self::Unversioned => f.write_str(
                "the server sends no ETag (or, where the connection broke within an object, no \
                 Last-Modified) that shows whether the object is unchanged",
            ),
            Self::Chunked => {
                f.write_str("the answer has a Transfer-Encoding, and not the bytes of the range")
            }
            Self::BadChunks => f.write_str("the chunks of the answer are damaged"),
            Self::OtherLength => f.write_str("the object is longer or shorter than it was listed"),
            Self::Interim => f.write_str("the server switched to another protocol (101)"),
            Self::Checksum => f.write_str("the data does not match the stored checksum"),
            Self::OptionalHeader => f.write_str("the server may refuse an optional header"),
            Self::ExpiredToken => f.write_str("the credentials have expired"),
            Self::ClockSkew => f.write_str("the server's clock and this machine's differ too much"),
            Self::Redirected => f.write_str("the server redirects to another one"),
            Self::WrongEtag => {
                f.write_str("the object changed since it was listed (other ETag or Last-Modified)")
            }
            Self::NoChecksum => f.write_str("there is no checksum to verify the data"),
            Self::Proxy(status) => write!(f, "the proxy answered {status}"),
            Self::Status(status) => write!(f, "the server answered {status}"),
            Self::TlsEnded => {
                f.write_str("the server closed the connection during the TLS handshake")
            }
            Self::TlsBroken => f.write_str("the TLS connection broke"),
            Self::TlsRefused => f.write_str("cannot use TLS with this server"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::answer::explain;

    #[test]
    fn every_reason_has_its_number_and_a_name_of_its_own() {
        for (number, reason) in RetryReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number, "{}", reason.name());
        }
        let mut names: Vec<_> = RetryReason::ALL.map(RetryReason::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RetryReason::COUNT);
    }

    #[test]
    fn another_version_is_counted_as_a_change() {
        for failure in [Failure::WrongEtag, Failure::Status(412), Failure::Status(416)] {
            assert!(failure.is_change() && failure.reason() == RetryReason::WrongEtag);
        }
        assert_eq!(Failure::OptionalHeader.reason(), RetryReason::Refused);
        assert_eq!(Failure::Status(403).reason(), RetryReason::Refused);
        let words = ["wrong_etag", "bad_head", "slow_down"].map(RetryReason::words);
        assert_eq!(words, ["object changed", "invalid response header", "slow down"]);
    }

    #[test]
    fn what_cannot_get_better_is_not_tried_again() {
        for status in [400, 401, 403, 404, 412, 416, 501] {
            assert_eq!(Failure::Status(status).remedy(), Remedy::GiveUp, "{status}");
        }
        for status in [408, 429, 500, 502, 503, 504] {
            assert_eq!(Failure::Status(status).remedy(), Remedy::Backoff, "{status}");
        }
        assert_eq!(Failure::WrongEtag.remedy(), Remedy::GiveUp);
        assert_eq!(Failure::TooManyHeaders.remedy(), Remedy::GiveUp);
        assert_eq!(Failure::HeadTooLong.remedy(), Remedy::GiveUp);
        for status in [401, 403, 407] {
            assert_eq!(Failure::Proxy(status).remedy(), Remedy::GiveUp, "{status}");
            assert!(Failure::Proxy(status).ends_run() && !Failure::Status(status).ends_run());
        }
        for status in [502, 503, 504] {
            assert_eq!(Failure::Proxy(status).remedy(), Remedy::Backoff, "{status}");
            assert!(!Failure::Proxy(status).ends_run());
        }
        for failure in [Failure::ConnectTimeout, Failure::ClosedUnanswered, Failure::Proxy(503)] {
            assert!(failure.is_unreachable() && failure.remedy() == Remedy::Backoff);
        }
        assert!(Failure::Connect(Errno::REFUSED).is_unreachable());
        let descriptors = Failure::Connect(Errno::new(24));
        assert!(!descriptors.is_unreachable() && descriptors.is_of_descriptors());
        assert!(descriptors.advice().is_some_and(|advice| advice.contains("ulimit -n")));
        // Fewer connections do not help with these.
        for errno in [Errno::REFUSED, Errno::new(101), Errno::new(113)] {
            let advice = Failure::Connect(errno).advice();
            assert!(advice.is_some_and(|advice| advice.contains("--endpoint-url")), "{errno}");
        }
        assert_eq!(Failure::ConnectTimeout.advice(), None);
        for failure in [Failure::Status(503), Failure::Truncated, Failure::Stall, Failure::Stale] {
            assert!(!failure.is_unreachable(), "{failure}");
        }
        assert!(Failure::TlsRefused.ends_run() && !Failure::WrongEtag.ends_run());
    }

    #[test]
    fn some_codes_say_more_than_their_status() {
        let failure = |status: u16, code: &str| {
            let body = format!("<Error><Code>{code}</Code></Error>");
            explain(status, body.as_bytes(), "").failure()
        };
        assert_eq!(failure(400, "ExpiredToken"), Failure::ExpiredToken);
        assert_eq!(failure(403, "RequestTimeTooSkewed"), Failure::ClockSkew);
        assert_eq!(failure(501, "NotImplemented"), Failure::Status(501));
        assert_eq!(failure(400, "RequestTimeout"), Failure::Status(408));
        assert_eq!(failure(403, "AccessDenied"), Failure::Status(403));
        assert_eq!(failure(503, ""), Failure::Status(503));
    }
}
