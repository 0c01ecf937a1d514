//! Why an attempt at a range failed, as data: counted, explained, decided upon; and which failure
//! the refusals of S3 and of a proxy are.

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
    /// A kept connection had been closed by the server before this request reached it.
    Stale,
    /// No first byte in time.
    FirstByteTimeout,
    /// The body stopped coming.
    Stall,
    /// The answer ended before its body did.
    Truncated,
    /// The answer's head is not HTTP/1, or contradicts itself.
    BadHead,
    /// The answer has more than [`HEADERS_MAX`] headers.
    TooManyHeaders,
    /// The answer has more than [`HEAD_BYTES_MAX`] bytes of headers.
    HeadTooLong,
    /// The answer's Content-Range is not the range that was asked for.
    WrongRange,
    /// The answer's length is not the range's.
    WrongLength,
    /// The whole object came (200) where a range was asked for.
    WholeAnswer,
    /// The answer has a Transfer-Encoding, and nothing shows that its body is the range before it
    /// has ended.
    Chunked,
    /// The chunks of the answer are damaged.
    BadChunks,
    /// The body was longer or shorter than the object, and bytes of it may be used already.
    OtherLength,
    /// An answer switched to another protocol (101), which nobody asked for.
    Interim,
    /// The bytes do not have the checksum that is stored with the object.
    Checksum,
    /// The server refuses requests that ask for the stored checksum.
    ChecksumMode,
    /// The server says 412, and nothing has shown yet that it understands `If-Match`.
    IfMatch,
    /// The session token has expired, or was withdrawn.
    ExpiredToken,
    /// The server's clock and ours differ too much for a signature.
    ClockSkew,
    /// The answer carries another ETag than the listing: the object has changed.
    WrongEtag,
    /// There is no checksum to compare the bytes with, and there must be one.
    NoChecksum,
    /// The proxy refused with this status to lead to the server.
    Proxy(u16),
    /// The server refused with this status.
    Status(u16),
    /// TLS broke off: an alert, a record that is none, an end within the handshake.
    TlsBroken,
    /// The server ended the connection within the handshake of TLS.
    TlsEnded,
    /// TLS will never do: a certificate that is not trusted, no common version.
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
    /// Status 503 or 429: the server asks for less.
    SlowDown,
    /// See [`Failure::Stale`].
    Stale,
    /// See [`Failure::Stall`].
    Stall,
    /// Any other status: refused for good; [`Failure::ChecksumMode`].
    Refused,
    /// See [`Failure::TlsBroken`], [`Failure::TlsEnded`] and [`Failure::TlsRefused`].
    Tls,
    /// See [`Failure::Truncated`] and [`Failure::ClosedUnanswered`].
    Truncated,
    /// See [`Failure::is_change`] and [`Failure::IfMatch`].
    WrongEtag,
    /// See [`Failure::WrongLength`].
    WrongLength,
    /// See [`Failure::WrongRange`] and [`Failure::WholeAnswer`].
    WrongRange,
}

/// How often something was tried again, by [`RetryReason`].
pub type RetryCounts = [u64; RetryReason::COUNT];

impl RetryReason {
    /// How many kinds there are.
    pub const COUNT: usize = 19;

    /// Every kind, in the order of their numbers.
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

    /// What a reason of this name is called in a summary.
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
    /// Again at once; it does not count as a try.
    Repeat,
    /// Again after a backoff, while tries are left.
    Backoff,
    /// Give the object up.
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
            Self::WrongRange | Self::WholeAnswer => RetryReason::WrongRange,
            Self::WrongLength => RetryReason::WrongLength,
            Self::Checksum | Self::NoChecksum => RetryReason::Checksum,
            Self::ExpiredToken => RetryReason::ExpiredToken,
            Self::ClockSkew => RetryReason::ClockSkew,
            Self::WrongEtag | Self::OtherLength | Self::IfMatch | Self::Status(412 | 416) => {
                RetryReason::WrongEtag
            }
            Self::TlsBroken | Self::TlsEnded | Self::TlsRefused => RetryReason::Tls,
            Self::Proxy(_) => RetryReason::Proxy,
            Self::Status(429 | 503) => RetryReason::SlowDown,
            Self::Status(500 | 502..) => RetryReason::ServerError,
            Self::ChecksumMode | Self::Status(_) => RetryReason::Refused,
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn remedy(self) -> Remedy {
        match self {
            Self::Stale | Self::IfMatch => Remedy::Repeat,
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
            | Self::WrongLength
            | Self::Checksum
            | Self::ChecksumMode
            | Self::ExpiredToken
            | Self::ClockSkew
            | Self::TlsBroken
            | Self::TlsEnded
            | Self::Proxy(408 | 429 | 500..)
            // What is not implemented (501) is not there the next time, either.
            | Self::Status(408 | 429 | 500 | 502..) => Remedy::Backoff,
            Self::TooManyHeaders
            | Self::HeadTooLong
            | Self::WrongEtag
            | Self::OtherLength
            | Self::NoChecksum
            | Self::TlsRefused
            | Self::Proxy(_)
            | Self::Status(_) => Remedy::GiveUp,
        }
    }

    /// Whether descriptors ran out here or on the whole machine, EMFILE and ENFILE: neither network
    /// nor endpoint has to do with it.
    #[must_use]
    pub const fn is_of_descriptors(self) -> bool {
        matches!(self, Self::Connect(errno) if matches!(errno.number(), 23 | 24))
    }

    /// What may help, where that is not looking at the network.
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::TooManyHeaders | Self::HeadTooLong => {
                Some("configure the server, or the proxy in front of it, to send fewer headers")
            }
            _ if self.is_of_descriptors() => {
                Some("raise the limit of open files (ulimit -n), or lower --connections")
            }
            // The number of connections has no part in ECONNREFUSED, nor in ENETUNREACH and
            // EHOSTUNREACH.
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
            Self::WholeAnswer => {
                Some("raise --part-size, so that each object is downloaded by one request")
            }
            _ if self.is_of_server() => {
                Some("check --endpoint-url: another server, or a proxy, may have answered")
            }
            _ => None,
        }
    }

    /// True when no object of the run can fare better: what refuses for good is before the server.
    #[must_use]
    pub const fn ends_run(self) -> bool {
        matches!(self, Self::TlsRefused | Self::Proxy(_)) && matches!(self.remedy(), Remedy::GiveUp)
    }

    /// Whether the endpoint refuses or does not answer, or answers wrongly. 502 and 504 are what a
    /// proxy or load balancer says for a server that it cannot reach (RFC 9110 section 15.6); its
    /// 503 is told from S3's "slow down" only where the proxy itself sent it.
    #[must_use]
    pub const fn is_unreachable(self) -> bool {
        if let Self::Connect(errno) = self {
            // EPERM, ENOMEM, EACCES, EINVAL, ENFILE, EMFILE: no word of the endpoint.
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

    /// True when an answer came, and it is not what HTTP and S3 say it must be.
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

    /// True when the address may be what is wrong.
    #[must_use]
    pub const fn is_of_address(self) -> bool {
        matches!(
            self,
            Self::Connect(_) | Self::ConnectTimeout | Self::FirstByteTimeout | Self::Stall
        )
    }

    /// True when the object is another than was listed (412 is what If-Match brings, RFC 9110
    /// section 13.1.1; 416 a shorter object).
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::WrongEtag | Self::OtherLength | Self::Status(412 | 416))
    }
}

impl ServerError {
    /// Why an attempt failed that got this answer: what the code says where it says more than the
    /// status.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self.code.as_str() {
            "ExpiredToken" | "TokenRefreshRequired" => Failure::ExpiredToken,
            "RequestTimeTooSkewed" => Failure::ClockSkew,
            // S3 says 400 to this one; 408 is what it means.
            "RequestTimeout" => Failure::Status(408),
            _ if self.is_about_checksum_mode() => Failure::ChecksumMode,
            _ => Failure::Status(self.status),
        }
    }
}

impl Endpoint {
    /// The proxy's refusal, as an error, where a failed attempt is that.
    #[must_use]
    pub fn refusal_on_the_way(
        &self,
        failure: Failure,
        told: Option<&ServerError>,
    ) -> Option<Error> {
        match (failure, told) {
            (Failure::Proxy(status), _) => self.proxy_refusal(status),
            (_, Some(told)) => self.relay_refusal(told),
            _ => None,
        }
    }

    /// Whether a failed attempt says that the endpoint refuses or does not answer: for itself, or
    /// its proxy for it. Some proxies say that with 503, which of S3 means another thing.
    #[must_use]
    pub fn is_unreachable(&self, failure: Failure, told: Option<&ServerError>) -> bool {
        let is_503 = failure == Failure::Status(503);
        failure.is_unreachable() || is_503 && self.refusal_on_the_way(failure, told).is_some()
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
            Self::WrongLength => f.write_str("the answer does not have the length of the range"),
            Self::WholeAnswer => {
                f.write_str("the server answered a range request with 200: it serves no ranges")
            }
            Self::Chunked => {
                f.write_str("the answer has a Transfer-Encoding, and not the bytes of the range")
            }
            Self::BadChunks => f.write_str("the chunks of the answer are damaged"),
            Self::OtherLength => f.write_str("the object is longer or shorter than it was listed"),
            Self::Interim => f.write_str("the server switched to another protocol (101)"),
            Self::Checksum => f.write_str("the data does not match the stored checksum"),
            Self::ChecksumMode => f.write_str("the server refuses x-amz-checksum-mode"),
            Self::IfMatch => f.write_str("the server answered 412 to If-Match"),
            Self::ExpiredToken => f.write_str("the credentials have expired"),
            Self::ClockSkew => f.write_str("the server's clock and this machine's differ too much"),
            Self::WrongEtag => f.write_str("the object changed since it was listed (other ETag)"),
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
        assert_eq!(Failure::IfMatch.reason(), RetryReason::WrongEtag);
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
        // Fewer connections mend nothing of these.
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
        for (status, code, message) in [
            (400, "InvalidArgument", "Unsupported header 'x-amz-checksum-mode' received"),
            (501, "NotImplemented", "Header 'X-Amz-Checksum-Mode' is not implemented"),
        ] {
            let body = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
            let failure = explain(status, body.as_bytes(), "").failure();
            assert_eq!((failure, failure.remedy()), (Failure::ChecksumMode, Remedy::Backoff));
        }
        assert_eq!(failure(400, "RequestTimeout"), Failure::Status(408));
        assert_eq!(failure(403, "AccessDenied"), Failure::Status(403));
        assert_eq!(failure(503, ""), Failure::Status(503));
    }
}
