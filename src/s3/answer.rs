//! Parses the error body of an S3 server's refusal.
//!
//! Pure and bounded. A body that is not S3's XML (a proxy's HTML, or empty) is no error of its own:
//! then only the status counts.

use std::fmt;
use std::time::SystemTime;

use http::HeaderMap;
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::error::{Error, ErrorKind, ErrorReason};
use crate::s3::sign::PublishedKeys;
use crate::text::instant::parse_instant;
use crate::text::shown::shown;

/// The header that requests an object's stored checksum.
pub const CHECKSUM_MODE: &str = "x-amz-checksum-mode";
/// Most bytes of an error body that are parsed.
pub const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// Most characters taken from a field of an error body.
const TEXT_CHARS_MAX: usize = 300;

/// True if this status may mean that the server does not know a header: some return 400
/// `InvalidArgument` then, others 501 `NotImplemented`.
#[must_use]
pub const fn may_refuse_header(status: u16) -> bool {
    matches!(status, 400 | 501)
}

/// True for a redirect that names another URL to be requested by GET (RFC 9110 section 15.4).
#[must_use]
pub const fn leads_elsewhere(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// A server's error response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerError {
    /// The HTTP status.
    pub status: u16,
    /// S3's code, such as `NoSuchKey`; empty if the body has none.
    pub code: String,
    /// S3's message; empty if the body has none.
    pub message: String,
    /// The server's ID of this request, for its support; may be empty.
    pub request_id: String,
    /// The region that the server says is right; mostly empty.
    pub region: String,
    /// Target of a redirect, without parts that may be a signature; mostly empty.
    pub leads_to: String,
    /// The server's time, sent with `RequestTimeTooSkewed`; mostly empty.
    pub server_time: String,
    /// The body is not S3's: probably a page from a proxy.
    pub is_foreign: bool,
    /// The request had no signature, as the user wanted.
    pub is_unsigned: bool,
    /// Where the refused keys come from, and what is known of newer ones; mostly empty.
    pub keys_outlook: String,
}

/// Parses an error body. `request_id`: the header's value, which is preferred to the body's.
#[must_use]
pub fn explain(status: u16, body: &[u8], request_id: &str) -> ServerError {
    let mut refusal = ServerError { status, ..ServerError::default() };
    let body = &body[..body.len().min(ERROR_BODY_BYTES_MAX)];
    read_body(&String::from_utf8_lossy(body), &mut refusal);
    refusal.is_foreign = !body.is_empty() && refusal.code.is_empty();
    if !request_id.is_empty() {
        refusal.request_id = said(request_id);
    }
    refusal
}

/// The error response as a failure of `what`, such as `get s3://bucket/key`.
#[must_use]
pub fn s3_error(status: u16, headers: &HeaderMap, body: &[u8], what: &str) -> Error {
    explain_answer(status, headers, body).into_error(what)
}

/// [`explain`] with the request ID, region and location from the headers.
#[must_use]
pub fn explain_answer(status: u16, headers: &HeaderMap, body: &[u8]) -> ServerError {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut refusal = explain(status, body, header("x-amz-request-id"));
    let region = header("x-amz-bucket-region");
    if !region.is_empty() {
        refusal.region = said(region);
    }
    refusal.note_location(header("location"));
    refusal
}

impl ServerError {
    /// Takes the target of a redirect from its `Location` if the body has none.
    pub fn note_location(&mut self, location: &str) {
        if matches!(self.status, 300..=399) && self.leads_to.is_empty() {
            self.leads_to = origin_of(location);
        }
    }
}

impl ServerError {
    /// The answer to a request of a URL: any server may have sent a page, and a message may repeat
    /// the request, whose query is a secret.
    #[must_use]
    pub fn of_url(mut self) -> Self {
        self.is_foreign = false;
        if self.message.contains(['?', '=', '&', '%']) {
            self.message.clear();
        }
        self
    }

    /// True if another URL of the object may help against this answer: where its redirects lead
    /// was signed for a time that has passed, or is elsewhere now.
    #[must_use]
    pub fn wants_newer_url(&self) -> bool {
        matches!(self.status, 401 | 403 | 410)
            || leads_elsewhere(self.status)
            || self.code == "ExpiredToken"
    }
}

/// Scheme and host of a URL, or the path if it has neither.
fn origin_of(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or("");
    let (scheme, rest) = match plain.split_once("//") {
        Some((scheme, rest)) => (format!("{scheme}//"), rest),
        None if plain.starts_with('/') => return said(plain),
        // A host only, as in `<Endpoint>`.
        None => (String::new(), plain),
    };
    let host = rest.split(['/', '\\']).next().unwrap_or("");
    let host = host.rsplit('@').next().unwrap_or("");
    said(&format!("{scheme}{host}"))
}

/// Fills in the fields of `<Error>`; stops silently at the first thing that is not XML.
fn read_body(body: &str, refusal: &mut ServerError) {
    let mut reader = Reader::from_str(body);
    let mut names: Vec<String> = Vec::new();
    let mut text = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                let name = start.local_name().as_ref().to_owned();
                match (names.is_empty(), name.as_str()) {
                    // STS and S3 Control wrap it.
                    (true, "ErrorResponse") => continue,
                    (true, "Error") | (false, _) => names.push(name),
                    (true, _) => return,
                }
                text.clear();
            }
            Ok(Event::Text(piece)) => text.push_str(&piece.xml10_content()),
            Ok(Event::CData(piece)) => text.push_str(&piece.xml10_content()),
            Ok(Event::GeneralRef(reference)) => {
                text.extend(crate::s3::list::resolve_reference(&reference));
            }
            Ok(Event::End(_)) => {
                let field = match (names.len(), names.last().map(String::as_str)) {
                    (2, Some("Code")) => Some(&mut refusal.code),
                    (2, Some("Message")) => Some(&mut refusal.message),
                    (2, Some("RequestId")) => Some(&mut refusal.request_id),
                    (2, Some("Region")) => Some(&mut refusal.region),
                    (2, Some("ServerTime")) => Some(&mut refusal.server_time),
                    _ => None,
                };
                if let Some(field) = field {
                    *field = said(&text);
                }
                if names.len() == 2 && names[1] == "Endpoint" {
                    refusal.leads_to = origin_of(&text);
                }
                names.pop();
                text.clear();
            }
            Ok(Event::Eof) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// One line without control characters, of bounded length, for a terminal.
fn said(text: &str) -> String {
    shown(text.trim().trim_end_matches('.')).chars().take(TEXT_CHARS_MAX).collect()
}

impl ServerError {
    /// The kind of error for the exit code.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.code.as_str() {
            "InvalidObjectState" => ErrorKind::Objects,
            "RequestTimeout" | "InternalError" | "SlowDown" | "ServiceUnavailable" => {
                ErrorKind::Endpoint
            }
            "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "AuthorizationHeaderMalformed"
            | "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "RequestTimeTooSkewed"
            | "AccessDenied" => ErrorKind::Access,
            "NoSuchBucket" | "NoSuchKey" | "NoSuchVersion" => ErrorKind::NotFound,
            "PreconditionFailed" | "InvalidRange" => ErrorKind::Objects,
            "InvalidBucketName" | "KeyTooLongError" => ErrorKind::Usage,
            _ => match self.status {
                401 | 403 => ErrorKind::Access,
                404 | 410 => ErrorKind::NotFound,
                412 | 416 => ErrorKind::Objects,
                _ => ErrorKind::Endpoint,
            },
        }
    }

    /// The reason, for programs.
    fn reason(&self) -> ErrorReason {
        match (self.kind(), self.code.as_str(), self.status) {
            (_, "InvalidObjectState", _) => ErrorReason::Archived,
            (_, "RequestTimeout", _) => ErrorReason::Network,
            (_, "SlowDown" | "ServiceUnavailable", _) | (ErrorKind::Endpoint, _, 429 | 503) => {
                ErrorReason::Throttled
            }
            (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired", _)
            | (_, "AuthorizationHeaderMalformed" | "InvalidAccessKeyId", _)
            | (_, "SignatureDoesNotMatch" | "RequestTimeTooSkewed", _) => ErrorReason::Credentials,
            (ErrorKind::Access, ..) => ErrorReason::PermissionDenied,
            (ErrorKind::Objects, ..) => ErrorReason::Changed,
            (ErrorKind::NotFound, ..) => ErrorReason::NotFound,
            (ErrorKind::Usage, ..) => ErrorReason::Usage,
            _ => ErrorReason::Server,
        }
    }

    /// True if the same request may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 429 | 500 | 502 | 503 | 504)
            || matches!(self.code.as_str(), "RequestTimeout" | "SlowDown" | "InternalError")
    }

    /// The server's time, if the answer says that the clocks differ.
    #[must_use]
    pub fn server_clock(&self) -> Option<SystemTime> {
        let at = parse_instant(&self.server_time)?;
        (self.code == "RequestTimeTooSkewed").then_some(at)
    }

    /// True if newer keys may help against the refusal of a request that this version of `keys`
    /// signed. Servers forget keys that have expired, and programs replace the settings of a
    /// profile one after the other: then the keys were right before. Keys that never were stay
    /// wrong.
    #[must_use]
    pub fn wants_newer_keys(&self, keys: &PublishedKeys, version: u64) -> bool {
        match self.code.as_str() {
            "ExpiredToken" | "TokenRefreshRequired" => true,
            "InvalidToken" | "InvalidTokenId" | "InvalidAccessKeyId" => keys.accepted() > 0,
            "SignatureDoesNotMatch" => (1..version).contains(&keys.accepted()),
            _ => false,
        }
    }

    /// The failure of `what`, with the server's message and advice.
    #[must_use]
    pub fn into_error(self, what: &str) -> Error {
        let error = Error::new(self.kind(), self.to_string()).because(self.reason()).within(what);
        let error = error.of_request(&self.request_id);
        match self.advice() {
            Some(advice) => error.advise(advice),
            None => error,
        }
    }

    fn advice(&self) -> Option<String> {
        let fixed = match (self.code.as_str(), self.status) {
            _ if self.is_foreign && self.status != 404 => {
                "a proxy or another server may have answered: check --endpoint-url and the network"
            }
            ("SignatureDoesNotMatch", _) => {
                "check AWS_SECRET_ACCESS_KEY (or the profile's secret) and --region"
            }
            ("InvalidAccessKeyId", _) => {
                "check AWS_ACCESS_KEY_ID (or --profile), and that the key belongs to this endpoint"
            }
            ("ExpiredToken" | "TokenRefreshRequired", _) => {
                "get new temporary credentials (for example: aws login or aws sso login)"
            }
            ("InvalidToken", _) => {
                "check the session token (AWS_SESSION_TOKEN, AWS_SECURITY_TOKEN, or that of the \
                 profile or role): it belongs to one access key, and long-lived keys have none; \
                 regions that an account enables refuse those of the global STS endpoint"
            }
            ("RequestTimeTooSkewed", _) => {
                "set this machine's clock: at most 15 hours are corrected"
            }
            ("AuthorizationHeaderMalformed" | "PermanentRedirect", _)
                if !self.region.is_empty() =>
            {
                return Some(format!("use --region {}", self.region));
            }
            ("InvalidObjectState", _) => "the object is archived: restore it first",
            ("NoSuchBucket", _) => "check the bucket name and --endpoint-url",
            ("PreconditionFailed", _) | (_, 412) => {
                "the object changed while it was read: run again to get the new one"
            }
            ("InvalidRange", _) | (_, 416) => {
                "the object is shorter than it was listed: run again to get the new one"
            }
            (_, 401 | 403) if self.is_unsigned => {
                "only public data can be read without a signature"
            }
            (_, 401 | 403) => {
                "the credentials need s3:GetObject and s3:ListBucket here; for public data \
                 use --no-sign-request"
            }
            (_, 300..=399) if !self.leads_to.is_empty() => {
                let to = &self.leads_to;
                return Some(format!("it leads to {to}: check --endpoint-url and --region"));
            }
            (_, 300..=399) => "it does not say where to: check --endpoint-url and --region",
            (_, 429 | 503) => "the server asks to slow down: lower --connections or try later",
            ("RequestTimeout", _) | (_, 408) => {
                "check the network, or lower --connections, and run it again"
            }
            (_, 405 | 501) => {
                "the server does not support this request: check --endpoint-url, and whether it is \
                 a server of S3"
            }
            (_, 500..) => {
                "the server has failed: run it again later; its log, or who runs it, knows why"
            }
            _ => return None,
        };
        Some(fixed.to_owned())
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.status)?;
        if !self.code.is_empty() {
            write!(f, " {}", self.code)?;
        }
        if !self.message.is_empty() {
            write!(f, " ({})", self.message)?;
        }
        if self.is_foreign {
            write!(f, " with a page that is not from S3")?;
        }
        if !self.request_id.is_empty() {
            write!(f, ", request id {}", self.request_id)?;
        }
        if !self.keys_outlook.is_empty() {
            write!(f, ": {}", self.keys_outlook)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied\
        </Code><Message>Access &lt;Denied&gt;.</Message><RequestId>R1</RequestId><HostId>x</HostId>\
        </Error>";

    #[test]
    fn the_body_speaks() {
        let refusal = explain(403, DENIED, "");
        assert_eq!(refusal.code, "AccessDenied");
        assert_eq!(refusal.message, "Access <Denied>");
        assert_eq!(refusal.request_id, "R1");
        assert_eq!(explain(403, DENIED, "H1").request_id, "H1");
        let line = refusal.into_error("get s3://b/k").to_string();
        assert!(line.starts_with("get s3://b/k: the server answered 403 AccessDenied"), "{line}");
        assert!(line.contains("request id R1") && line.contains("s3:GetObject"), "{line}");
        assert_eq!(explain(403, DENIED, "").into_error("get").request_id(), Some("R1"));
    }

    #[test]
    fn errors_of_other_services_are_wrapped() {
        let wrapped = b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>\
            <Message>No.</Message></Error><RequestId>R1</RequestId></ErrorResponse>";
        let refusal = explain(403, wrapped, "");
        assert_eq!((refusal.code.as_str(), refusal.message.as_str()), ("AccessDenied", "No"));
        assert!(!refusal.is_foreign);
        assert!(explain(403, b"<Page><Error><Code>X</Code></Error></Page>", "").is_foreign);
    }

    #[test]
    fn keys_that_were_never_right_are_not_replaced() {
        let keys = PublishedKeys::new(None);
        let version = keys.version();
        let wants = |code: &str, version| {
            let refusal = ServerError { code: code.to_owned(), ..ServerError::default() };
            refusal.wants_newer_keys(&keys, version)
        };
        let wrong = ["InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"];
        assert!(wants("ExpiredToken", version) && wants("TokenRefreshRequired", version));
        assert_eq!(wrong.map(|code| wants(code, version)), [false; 3]);
        keys.note_accepted(version);
        assert_eq!(wrong.map(|code| wants(code, version)), [true, true, false]);
        assert_eq!(wrong.map(|code| wants(code, version + 1)), [true; 3], "half of them is new");
        keys.note_accepted(version + 1);
        assert!(!wants("SignatureDoesNotMatch", version + 1) && !wants("AccessDenied", version));
    }

    #[test]
    fn answers_to_urls_repeat_no_query() {
        let refusal = |message: &str| {
            let body = format!("<Error><Code>X</Code><Message>{message}</Message></Error>");
            explain(403, body.as_bytes(), "").of_url().to_string()
        };
        assert_eq!(refusal("Expired"), "the server answered 403 X (Expired)");
        assert_eq!(refusal("no /f?sig=hunter2"), "the server answered 403 X");
        assert_eq!(explain(403, b"<html>", "").of_url().to_string(), "the server answered 403");
        let wants = |status, code: &str| {
            let (code, rest) = (code.to_owned(), ServerError::default());
            ServerError { status, code, ..rest }.wants_newer_url()
        };
        let refused = [301, 302, 303, 307, 308, 401, 403, 410];
        assert!(refused.iter().all(|status| wants(*status, "")));
        assert!([304, 400, 404, 412, 416, 503].iter().all(|status| !wants(*status, "")));
        assert!(wants(400, "ExpiredToken"));
    }

    #[test]
    fn redirects_show_where_they_lead() {
        let line = |location: &'static str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("location", http::HeaderValue::from_static(location));
            s3_error(307, &headers, body, "list s3://b/").to_string()
        };
        let refusal = line("https://u:secret@node-2:9000/b/k?X-Amz-Signature=abc", b"");
        assert!(
            refusal.contains("it leads to https://node-2:9000: check --endpoint-url"),
            "{refusal}"
        );
        assert!(!refusal.contains("secret") && !refusal.contains("abc"), "{refusal}");
        assert!(line("/v2/b/k?x=y", b"").contains("it leads to /v2/b/k: check"));
        assert!(line("//u:p@node/b/k", b"").contains("it leads to //node: check"));
        let body =
            b"<Error><Code>X</Code><Endpoint>https://u:p@h/?X-Amz-Signature=1</Endpoint></Error>";
        assert!(line("", body).contains("it leads to https://h: check"));
        let body = b"<Error><Code>TemporaryRedirect</Code><Endpoint>b.s3.eu-x.example</Endpoint>\
            </Error>";
        assert!(line("", body).contains("it leads to b.s3.eu-x.example: check"));
        assert!(line("", b"").contains("; it does not say where to: check --endpoint-url"));
    }

    #[test]
    fn programs_hear_why() {
        let check = |status: u16, code: &str, expected: ErrorReason| {
            let body = format!("<Error><Code>{code}</Code></Error>");
            let error = explain(status, body.as_bytes(), "").into_error("get s3://b/k");
            assert_eq!(error.reason(), expected, "{status} {code}");
        };
        check(403, "SignatureDoesNotMatch", ErrorReason::Credentials);
        check(400, "ExpiredToken", ErrorReason::Credentials);
        check(403, "AccessDenied", ErrorReason::PermissionDenied);
        check(401, "", ErrorReason::PermissionDenied);
        check(403, "InvalidObjectState", ErrorReason::Archived);
        check(404, "NoSuchKey", ErrorReason::NotFound);
        check(412, "", ErrorReason::Changed);
        check(416, "InvalidRange", ErrorReason::Changed);
        check(503, "SlowDown", ErrorReason::Throttled);
        check(429, "", ErrorReason::Throttled);
        check(400, "RequestTimeout", ErrorReason::Network);
        check(500, "InternalError", ErrorReason::Server);
        check(400, "InvalidBucketName", ErrorReason::Usage);
    }

    #[test]
    fn codes_and_statuses_have_their_kind() {
        let check = |status: u16, code: &str, expected: ErrorKind| {
            let body = format!("<Error><Code>{code}</Code></Error>");
            assert_eq!(explain(status, body.as_bytes(), "").kind(), expected, "{status} {code}");
        };
        check(403, "SignatureDoesNotMatch", ErrorKind::Access);
        check(403, "InvalidAccessKeyId", ErrorKind::Access);
        check(400, "ExpiredToken", ErrorKind::Access);
        check(400, "InvalidToken", ErrorKind::Access);
        check(403, "InvalidObjectState", ErrorKind::Objects);
        check(404, "NoSuchBucket", ErrorKind::NotFound);
        check(404, "NoSuchKey", ErrorKind::NotFound);
        check(412, "PreconditionFailed", ErrorKind::Objects);
        check(412, "", ErrorKind::Objects);
        check(416, "InvalidRange", ErrorKind::Objects);
        check(500, "InternalError", ErrorKind::Endpoint);
        check(503, "SlowDown", ErrorKind::Endpoint);
        check(400, "RequestTimeout", ErrorKind::Endpoint);
        check(301, "PermanentRedirect", ErrorKind::Endpoint);
        check(403, "", ErrorKind::Access);
        check(418, "", ErrorKind::Endpoint);
        assert!(explain(503, b"", "").is_transient());
        assert!(!explain(403, b"", "").is_transient());
    }

    #[test]
    fn the_servers_clock_is_read() {
        let body = b"<Error><Code>RequestTimeTooSkewed</Code><RequestTime>20150101T000000Z\
            </RequestTime><ServerTime>2015-01-01T01:00:00Z</ServerTime></Error>";
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_420_074_000);
        assert_eq!(explain(403, body, "").server_clock(), Some(at));
        let other =
            b"<Error><Code>AccessDenied</Code><ServerTime>2015-01-01T01:00:00Z</ServerTime>\
            </Error>";
        assert_eq!(explain(403, other, "").server_clock(), None);
        let wrong =
            b"<Error><Code>RequestTimeTooSkewed</Code><ServerTime>soon</ServerTime></Error>";
        assert_eq!(explain(403, wrong, "").server_clock(), None);
    }

    #[test]
    fn bodies_that_are_not_xml_are_no_trouble() {
        for body in [
            &b""[..],
            b"<html><head><title>502</title></head><body><Code>x</Code></body></html>",
            b"<Error><Code>Half",
            b"\xff\xfe\x00garbage & more <<<>>>",
            b"plain words",
        ] {
            let refusal = explain(502, body, "");
            assert_eq!(refusal.code, "", "{body:?}");
            let error = refusal.into_error("list").to_string();
            assert!(error.starts_with("list: the server answered 502"), "{error}");
        }
    }

    #[test]
    fn every_prefix_is_tolerated() {
        for end in 0..DENIED.len() {
            let refusal = explain(403, &DENIED[..end], "");
            assert!(refusal.code.is_empty() || refusal.code == "AccessDenied", "{}", refusal.code);
        }
    }

    #[test]
    fn nothing_dirty_reaches_the_terminal() {
        let body = format!("<Error><Message>a\x1b[31m\nb{}</Message></Error>", "c".repeat(9_000));
        let refusal = explain(500, body.as_bytes(), "id\r\n");
        assert!(refusal.message.starts_with("a\\u{1b}[31m\\nb"));
        assert_eq!(refusal.message.chars().count(), TEXT_CHARS_MAX);
        assert_eq!(refusal.request_id, "id");
        let body = "<Error><Code>C</Code><Message>a\u{202e}b</Message></Error>";
        assert_eq!(explain(500, body.as_bytes(), "").message, "a\\u{202e}b");
    }

    #[test]
    fn the_region_comes_from_header_or_body() {
        let body =
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>";
        let refusal = explain_answer(400, &HeaderMap::new(), body);
        assert_eq!(refusal.region, "eu-west-1");
        assert!(refusal.into_error("list").to_string().ends_with("use --region eu-west-1"));
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-bucket-region", "eu-north-1".parse().expect("a header value"));
        assert_eq!(explain_answer(301, &headers, b"").region, "eu-north-1");
    }
}
