//! What can go wrong with a request, and with which.
//!
//! Not here: when (`plan.rs`), and how it is carried out (`handle.rs` before the body, `gate.rs` in
//! the head, `body.rs` in the body).

use std::time::Duration;

use crate::request::Operation;

/// One thing that goes wrong with one request. Positions count bytes of the body that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Another ETag than before, in the answer to GET or HEAD.
    ChangedEtag,
    /// The whole body in chunks, with `Transfer-Encoding` instead of Content-Length.
    Chunked,
    /// The answer says `Connection: close`, and the connection is closed behind it.
    CloseAfterResponse,
    /// The body comes in small pieces with pauses.
    Drip {
        /// Bytes of each piece.
        bytes: u32,
        /// Pause after each.
        pause: Duration,
    },
    /// 400 ExpiredToken.
    ExpiredToken,
    /// One byte of the body is inverted.
    FlipByte {
        /// Which, from 0; beyond the end: the last.
        at: u64,
    },
    /// One byte of the object is inverted in every body that has it.
    FlipObjectByte {
        /// Its offset in the object.
        at: u64,
    },
    /// A proxy's page instead of S3's answer: `text/html`, and none of S3's headers.
    HtmlError {
        /// Such as 502; 200 too.
        status: u16,
    },
    /// The whole object and status 200, although a range was asked for.
    IgnoredRange,
    /// Interim answers come before the real one. Harmless.
    Interim {
        /// 100, 102 or 103.
        status: u16,
        /// How many.
        count: u32,
    },
    /// 500 InternalError.
    InternalError,
    /// A header with a value of this length.
    LargeHead {
        /// Of the value.
        bytes: u32,
    },
    /// Headers that mean nothing.
    ManyHeaders {
        /// At most 20,000.
        count: u32,
    },
    /// 301 PermanentRedirect: the bucket is in another region.
    PermanentRedirect {
        /// Its name, as header and in the body.
        region: &'static str,
    },
    /// 412 PreconditionFailed.
    PreconditionFailed,
    /// 403 RequestTimeTooSkewed, with a ServerTime and a Date that are off.
    RequestTimeTooSkewed {
        /// By how much they are later than the origin's own.
        ahead_seconds: i32,
    },
    /// The connection is reset after `bytes` bytes of the body.
    ResetAfter {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// The connection is reset instead of an answer.
    ResetBeforeHead,
    /// 503 ServiceUnavailable.
    ServiceUnavailable,
    /// 503 SlowDown.
    SlowDown,
    /// The head comes in small pieces with pauses.
    SlowHead {
        /// Bytes of each piece.
        bytes: u32,
        /// Pause after each.
        pause: Duration,
    },
    /// Nothing more comes after `bytes` bytes of the body, for a time or for ever.
    StallAfter {
        /// Beyond the end: before the last byte.
        bytes: u64,
        /// `None`: for ever.
        duration: Option<Duration>,
    },
    /// No answer, for a time or for ever.
    StallBeforeHead {
        /// `None`: for ever.
        duration: Option<Duration>,
    },
    /// 307 TemporaryRedirect, to a name that does not exist.
    TemporaryRedirect,
    /// A fatal alert after `bytes` bytes of the body, then the end. All that begin with `Tls` are
    /// for connections with TLS: on others they cannot happen.
    TlsAlert {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// An orderly end of the session after `bytes` bytes of the body. The connection stays open
    /// until the client closes it.
    TlsCloseNotify {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// The connection is closed after `bytes` bytes of the body, without an end of the session.
    TlsCut {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// After `bytes` bytes of the body comes a record that cannot be opened.
    TlsGarbage {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// The connection ends when the ClientHello has come. Of a rule for it, and for
    /// [`Fault::TlsPlaintext`], only `address` and `attempts` are looked at: the connections
    /// through an address, from 1.
    TlsHandshakeCut {
        /// With a reset instead of an orderly end.
        reset: bool,
    },
    /// New keys after `bytes` bytes of the body, and the wish that the client changes its own.
    /// Harmless; TLS 1.3 alone can do it.
    TlsKeyUpdate {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// The ClientHello is answered by HTTP without TLS. See [`Fault::TlsHandshakeCut`].
    TlsPlaintext,
    /// The answer, head and body, comes in records of `bytes` bytes. Harmless.
    TlsTinyRecords {
        /// Plaintext of each; at least 1.
        bytes: u32,
    },
    /// The right Content-Length, but the connection is closed after `bytes` bytes of the body;
    /// with TLS in good order, its session first.
    Truncate {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// Another checksum than that of the object or part, where the answer has one.
    WrongChecksum,
    /// Content-Length is not the number of bytes that come; Content-Range is right. Where too few
    /// come, the connection is closed behind them.
    WrongContentLength {
        /// What it says too much, or too little if below zero.
        by: i32,
    },
    /// Content-Range names a range one byte further on than the bytes that come.
    WrongContentRange,
}

impl Fault {
    /// The names of all kinds, as they stand in the counters.
    pub const NAMES: [&str; 36] = [
        "changed_etag",
        "chunked",
        "close_after_response",
        "drip",
        "expired_token",
        "flip_byte",
        "flip_object_byte",
        "html_error",
        "ignored_range",
        "interim",
        "internal_error",
        "large_head",
        "many_headers",
        "permanent_redirect",
        "precondition_failed",
        "request_time_too_skewed",
        "reset_after",
        "reset_before_head",
        "service_unavailable",
        "slow_down",
        "slow_head",
        "stall_after",
        "stall_before_head",
        "temporary_redirect",
        "tls_alert",
        "tls_close_notify",
        "tls_cut",
        "tls_garbage",
        "tls_handshake_cut",
        "tls_key_update",
        "tls_plaintext",
        "tls_tiny_records",
        "truncate",
        "wrong_checksum",
        "wrong_content_length",
        "wrong_content_range",
    ];

    /// The name of this kind.
    pub fn name(&self) -> &'static str {
        Self::NAMES[self.kind()]
    }

    /// The place of this kind in [`Fault::NAMES`].
    pub(crate) fn kind(&self) -> usize {
        match self {
            Self::ChangedEtag => 0,
            Self::Chunked => 1,
            Self::CloseAfterResponse => 2,
            Self::Drip { .. } => 3,
            Self::ExpiredToken => 4,
            Self::FlipByte { .. } => 5,
            Self::FlipObjectByte { .. } => 6,
            Self::HtmlError { .. } => 7,
            Self::IgnoredRange => 8,
            Self::Interim { .. } => 9,
            Self::InternalError => 10,
            Self::LargeHead { .. } => 11,
            Self::ManyHeaders { .. } => 12,
            Self::PermanentRedirect { .. } => 13,
            Self::PreconditionFailed => 14,
            Self::RequestTimeTooSkewed { .. } => 15,
            Self::ResetAfter { .. } => 16,
            Self::ResetBeforeHead => 17,
            Self::ServiceUnavailable => 18,
            Self::SlowDown => 19,
            Self::SlowHead { .. } => 20,
            Self::StallAfter { .. } => 21,
            Self::StallBeforeHead { .. } => 22,
            Self::TemporaryRedirect => 23,
            Self::TlsAlert { .. } => 24,
            Self::TlsCloseNotify { .. } => 25,
            Self::TlsCut { .. } => 26,
            Self::TlsGarbage { .. } => 27,
            Self::TlsHandshakeCut { .. } => 28,
            Self::TlsKeyUpdate { .. } => 29,
            Self::TlsPlaintext => 30,
            Self::TlsTinyRecords { .. } => 31,
            Self::Truncate { .. } => 32,
            Self::WrongChecksum => 33,
            Self::WrongContentLength { .. } => 34,
            Self::WrongContentRange => 35,
        }
    }

    /// Whether it can happen to this answer at all; one that cannot is neither drawn nor counted.
    pub(crate) fn applies(&self, request: &FaultRequest<'_>) -> bool {
        let object = matches!(request.operation, Operation::GetObject | Operation::HeadObject);
        match self {
            Self::CloseAfterResponse
            | Self::ExpiredToken
            | Self::HtmlError { .. }
            | Self::Interim { .. }
            | Self::InternalError
            | Self::LargeHead { .. }
            | Self::ManyHeaders { .. }
            | Self::PermanentRedirect { .. }
            | Self::PreconditionFailed
            | Self::RequestTimeTooSkewed { .. }
            | Self::ResetBeforeHead
            | Self::ServiceUnavailable
            | Self::SlowDown
            | Self::SlowHead { .. }
            | Self::StallBeforeHead { .. }
            | Self::TemporaryRedirect => true,
            Self::ChangedEtag => object,
            Self::WrongChecksum => request.checksummed,
            Self::IgnoredRange => request.ranged && request.body_bytes > 0,
            Self::FlipObjectByte { at } => {
                let end = request.offset.saturating_add(request.body_bytes);
                object && (request.offset..end).contains(at)
            }
            Self::WrongContentRange => request.partial,
            Self::Chunked
            | Self::Drip { .. }
            | Self::FlipByte { .. }
            | Self::ResetAfter { .. }
            | Self::StallAfter { .. }
            | Self::Truncate { .. }
            | Self::WrongContentLength { .. } => request.body_bytes > 0,
            Self::TlsAlert { .. }
            | Self::TlsCloseNotify { .. }
            | Self::TlsCut { .. }
            | Self::TlsGarbage { .. }
            | Self::TlsTinyRecords { .. } => request.secured && request.body_bytes > 0,
            Self::TlsKeyUpdate { .. } => request.renewable && request.body_bytes > 0,
            Self::TlsHandshakeCut { .. } | Self::TlsPlaintext => false,
        }
    }

    /// Whether it happens within the body, which then counts it: a client may leave before.
    pub(crate) fn is_of_body(&self) -> bool {
        matches!(
            self,
            Self::Drip { .. }
                | Self::FlipByte { .. }
                | Self::FlipObjectByte { .. }
                | Self::ResetAfter { .. }
                | Self::StallAfter { .. }
                | Self::TlsAlert { .. }
                | Self::TlsCloseNotify { .. }
                | Self::TlsCut { .. }
                | Self::TlsGarbage { .. }
                | Self::TlsKeyUpdate { .. }
                | Self::Truncate { .. }
        )
    }

    /// Whether it befalls connections instead of requests.
    pub(crate) fn is_of_handshake(&self) -> bool {
        matches!(self, Self::TlsHandshakeCut { .. } | Self::TlsPlaintext)
    }
}

/// What a plan looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultRequest<'a> {
    pub(crate) operation: Operation,
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    /// The query of a listing, by which requests of one name differ.
    pub(crate) detail: &'a str,
    /// First byte of the object that was asked for.
    pub(crate) offset: u64,
    /// Bytes of the body; 0 for HEAD.
    pub(crate) body_bytes: u64,
    /// Whether the answer has a Content-Range.
    pub(crate) partial: bool,
    /// Whether that is because of a Range header.
    pub(crate) ranged: bool,
    /// Whether the answer has a checksum.
    pub(crate) checksummed: bool,
    /// Through which address the client came.
    pub(crate) address_index: usize,
    /// Whether TLS is spoken.
    pub(crate) secured: bool,
    /// Whether its keys can be renewed.
    pub(crate) renewable: bool,
}
