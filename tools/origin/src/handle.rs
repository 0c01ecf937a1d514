//! One request from head to answer: signature, answer, fault, latency, in this order.
//!
//! The edge where time is read. Not here: sockets and threads (`serve.rs`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderName, HeaderValue, RANGE, SERVER,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::time::Instant;

use crate::body::{BodyOf, Ended, InFlight, ReplyBody};
use crate::config::{Config, ObjectChange};
use crate::dates::{http_date, iso, seconds};
use crate::error::{Code, Error, S3Error};
use crate::fault::{Fault, FaultRequest};
use crate::link::{HeadAct, Link};
use crate::pace::Pace;
use crate::plan::Injector;
use crate::request::{Operation, Query, Target};
use crate::respond::{Answer, CHECKSUM, CHECKSUM_MODE, CHECKSUM_TYPE, Responder};
use crate::signature::{KeyCache, Signed, Verifier};
use crate::source::Source;
use crate::stats::Counters;
use crate::store::Store;
use crate::synthetic::mix;
use crate::tls::{self, TlsConfig};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
/// hyper's map of headers takes no more than 32,768.
const MANY_HEADERS_MAX: u32 = 20_000;
const EXTENDED_REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: RwLock<Store>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) injector: Injector,
    pub(crate) tls: Option<Tls>,
    verifier: Verifier,
    moved_buckets: BTreeMap<String, String>,
    domain: Option<String>,
    first_byte_latency: Duration,
    first_byte_jitter: Duration,
    connection_rate: Option<NonZeroU64>,
    pace: Arc<Pace>,
    started: Instant,
    request_number: AtomicU64,
    clock_offset_seconds: i64,
    refuses_checksum_mode: bool,
    /// Objects that become others, each with the GETs of it so far.
    changes: Mutex<Vec<(ObjectChange, u64)>>,
}

impl Shared {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        for change in &config.changes {
            // Whether it is an object at all is said now, not in the middle of a run.
            Store::default().add_object(&change.object)?;
        }
        let changes = config.changes.iter().map(|change| (change.clone(), 0)).collect();
        Ok(Self {
            store: RwLock::new(Store::new(config)?),
            counters: Arc::new(Counters::new(config.listen.len())),
            injector: Injector::new(config.faults.clone()),
            tls: config.tls.as_ref().map(Tls::new).transpose()?,
            verifier: Verifier::new(config.credentials.clone(), config.region.clone()),
            moved_buckets: config.moved_buckets.clone(),
            domain: config.domain.clone(),
            first_byte_latency: config.first_byte_latency,
            first_byte_jitter: config.first_byte_jitter,
            connection_rate: config.connection_rate,
            pace: Arc::new(Pace::new(config.request_rate, config.capacity, config.neighbor)),
            started: Instant::now(),
            request_number: AtomicU64::new(0),
            clock_offset_seconds: config.clock_offset_seconds,
            refuses_checksum_mode: config.refuses_checksum_mode,
            changes: Mutex::new(changes),
        })
    }

    /// The origin's own time, `ahead_seconds` later.
    fn now(&self, ahead_seconds: i64) -> SystemTime {
        let offset = self.clock_offset_seconds.saturating_add(ahead_seconds);
        let distance = Duration::from_secs(offset.unsigned_abs());
        let now = SystemTime::now();
        let moved = if offset < 0 { now.checked_sub(distance) } else { now.checked_add(distance) };
        moved.unwrap_or(now)
    }

    /// Puts the new object in the place of the old, if this GET is the one that it is due with.
    fn change(&self, target: &Target) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        for (change, gets) in changes.iter_mut() {
            let object = &change.object;
            if (&object.bucket, &object.key) != (&target.bucket, &target.key) {
                continue;
            }
            *gets += 1;
            if *gets == change.from_get {
                let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
                store.add_object(object).expect("tried at start");
                self.counters.objects_changed.add(1);
            }
        }
    }
}

impl Shared {
    /// How long the first byte of an answer takes; `drawn` is the request's own random number.
    fn latency(&self, drawn: u64) -> Duration {
        let (usual, jitter) = (self.first_byte_latency, self.first_byte_jitter);
        let span = u64::try_from(jitter.as_micros()).unwrap_or(u64::MAX).saturating_mul(2);
        let later = Duration::from_micros(drawn % span.saturating_add(1));
        (usual + later).saturating_sub(jitter)
    }

    fn respond(
        &self,
        target: &Target,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Answer, S3Error> {
        if self.refuses_checksum_mode && headers.contains_key(CHECKSUM_MODE) {
            // As S3 says it of a header that it does not know: without its name.
            let why = "A header you provided implies functionality that is not implemented";
            return Err(S3Error::new(Code::NotImplemented, why));
        }
        // Only a panic while an object is added could break the store, and it holds no half object.
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        let responder = Responder { store: &store, region: &self.verifier.region };
        responder.answer(target, headers, query)
    }
}

/// What handshakes are made with.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) server: Arc<rustls::ServerConfig>,
    pub(crate) ca_pem: String,
}

impl Tls {
    fn new(config: &TlsConfig) -> Result<Self, Error> {
        let (server, ca_pem) = tls::server(config)?;
        Ok(Self { server, ca_pem })
    }
}

/// What belongs to one thread.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// Requests whose answer is not out yet.
    pub(crate) in_flight: Rc<Cell<usize>>,
    keys: RefCell<KeyCache>,
}

/// What can be said of a request at once, before anything is waited for.
struct Decision {
    request_id: String,
    latency: Duration,
    answer: Answer,
    fault: Option<Fault>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, in_flight: Rc::default(), keys: RefCell::default() }
    }

    /// The answer, or `Err` when the connection is to be closed without one.
    pub(crate) async fn handle(
        &self,
        link: Rc<Link>,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, Ended> {
        let _in_flight = InFlight::new(&self.in_flight);
        let (head, body) = request.into_parts();
        // Nothing that is uploaded is ever looked at.
        drop(body);
        let Decision { request_id, latency, mut answer, fault } = self.decide(&head, &link);
        let ahead_seconds = match fault {
            Some(Fault::RequestTimeTooSkewed { ahead_seconds }) => i64::from(ahead_seconds),
            _ => 0,
        };
        if ahead_seconds != 0 || self.shared.clock_offset_seconds != 0 {
            answer.set(DATE, &http_date(seconds(self.shared.now(ahead_seconds))));
        }
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        link.record_bytes.set(match fault {
            Some(Fault::TlsTinyRecords { bytes }) => usize::try_from(bytes.max(1)).ok(),
            _ => None,
        });
        if let Some(fault) = fault.filter(|fault| !fault.is_of_body()) {
            self.shared.counters.count_fault(&fault);
        }
        match fault {
            Some(Fault::ResetBeforeHead) => {
                link.reset.set(true);
                return Err(Ended);
            }
            Some(Fault::StallBeforeHead { duration: Some(duration) }) => {
                tokio::time::sleep(duration).await;
            }
            Some(Fault::StallBeforeHead { duration: None }) => std::future::pending().await,
            _ => {}
        }
        link.head_act.set(fault.and_then(head_act));
        self.shared.counters.count_error(answer.status.as_u16(), answer.code.map(Code::name));
        let shared = &self.shared;
        let of = BodyOf {
            link,
            counters: Arc::clone(&shared.counters),
            rate: shared.connection_rate,
            pace: Arc::clone(&shared.pace),
            started: shared.started,
            _in_flight,
        };
        Ok(assemble(&head, answer, &request_id, fault, of))
    }

    fn decide(&self, head: &Parts, link: &Link) -> Decision {
        let shared = &self.shared;
        shared.counters.count_request(link.address_index);
        let number = shared.request_number.fetch_add(1, Ordering::Relaxed);
        let drawn = mix(number);
        let (request_id, latency) = (format!("{drawn:016X}"), shared.latency(drawn));
        let raw_query = head.uri.query().unwrap_or("");
        let query = Query::parse(raw_query);
        let domain = shared.domain.as_deref();
        let target = Target::parse(&head.method, &head.uri, &head.headers, &query, domain);
        let failed = |error: &S3Error| Answer::error(error, head.uri.path(), &request_id);
        let target = match target {
            Ok(target) => target,
            Err(error) => {
                let answer = failed(&error);
                return Decision { request_id, latency, answer, fault: None };
            }
        };
        shared.counters.count_operation(target.operation);
        let is_get = target.operation == Operation::GetObject;
        if !shared.pace.admits(shared.started.elapsed(), is_get) {
            shared.counters.throttled.add(1);
            let answer = failed(&Code::SlowDown.into());
            return Decision { request_id, latency, answer, fault: None };
        }
        if is_get {
            shared.change(&target);
        }
        let answer = self.answer(&target, head, &head.headers, &query);
        let mut answer = answer.unwrap_or_else(|error| failed(&error));
        let partial = answer.status == StatusCode::PARTIAL_CONTENT;
        let fault = shared.injector.decide(&FaultRequest {
            operation: target.operation,
            bucket: &target.bucket,
            key: &target.key,
            detail: if target.key.is_empty() { raw_query } else { "" },
            offset: answer.offset,
            body_bytes: if head.method == Method::HEAD { 0 } else { answer.length_bytes },
            partial,
            ranged: partial && head.headers.contains_key(RANGE),
            checksummed: answer.headers.keys().any(is_checksum),
            address_index: link.address_index,
            secured: link.secured.get(),
            renewable: link.renewable.get(),
        });
        match fault {
            Some(Fault::HtmlError { status }) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
                answer = Answer::html(status);
            }
            Some(Fault::IgnoredRange) => {
                let mut headers = head.headers.clone();
                headers.remove(RANGE);
                let whole = self.shared.respond(&target, &headers, &query);
                answer = whole.unwrap_or_else(|error| failed(&error));
            }
            _ => {}
        }
        if let Some(error) = fault.and_then(|fault| self.injected(fault, &target, head)) {
            answer = failed(&error);
        }
        Decision { request_id, latency, answer, fault }
    }

    /// The error that a fault is, if it is one.
    fn injected(&self, fault: Fault, target: &Target, head: &Parts) -> Option<S3Error> {
        Some(match fault {
            Fault::ExpiredToken => Code::ExpiredToken.into(),
            Fault::InternalError => Code::InternalError.into(),
            Fault::PermanentRedirect { region } => S3Error::from(Code::PermanentRedirect)
                .with("Endpoint", format!("{}.s3.{region}.invalid", target.bucket))
                .with("Bucket", target.bucket.clone())
                .with("Region", region),
            Fault::PreconditionFailed => {
                S3Error::from(Code::PreconditionFailed).with("Condition", "If-Match")
            }
            Fault::RequestTimeTooSkewed { ahead_seconds } => {
                let time = head.headers.get("x-amz-date").and_then(|value| value.to_str().ok());
                let now = self.shared.now(i64::from(ahead_seconds));
                S3Error::from(Code::RequestTimeTooSkewed)
                    .with("RequestTime", time.unwrap_or_default())
                    .with("ServerTime", iso(seconds(now)))
                    .with("MaxAllowedSkewMilliseconds", "900000")
            }
            Fault::ServiceUnavailable => Code::ServiceUnavailable.into(),
            Fault::SlowDown => Code::SlowDown.into(),
            // A name that nobody can have: no test is to leave this machine.
            Fault::TemporaryRedirect => S3Error::from(Code::TemporaryRedirect)
                .with("Endpoint", format!("{}.s3.invalid", target.bucket))
                .with("Bucket", target.bucket.clone()),
            _ => return None,
        })
    }

    fn answer(
        &self,
        target: &Target,
        head: &Parts,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Answer, S3Error> {
        let shared = &self.shared;
        if let Some(region) = shared.moved_buckets.get(&target.bucket) {
            return Err(S3Error::from(Code::PermanentRedirect)
                .with("Bucket", target.bucket.clone())
                .with("Region", region.clone()));
        }
        let signed = Signed {
            method: head.method.as_str(),
            path: head.uri.path(),
            query,
            headers: &head.headers,
            now: shared.now(0),
        };
        shared.verifier.verify(&mut self.keys.borrow_mut(), &signed)?;
        shared.respond(target, headers, query)
    }
}

fn assemble(
    head: &Parts,
    mut answer: Answer,
    request_id: &str,
    fault: Option<Fault>,
    of: BodyOf,
) -> Response<ReplyBody> {
    match fault {
        Some(Fault::ChangedEtag) => change(&mut answer, ETAG, |etag| {
            let other = if etag.starts_with("\"0") { "\"1" } else { "\"0" };
            format!("{other}{}", &etag[2..])
        }),
        Some(Fault::WrongContentRange) => change(&mut answer, CONTENT_RANGE, one_further),
        Some(Fault::CloseAfterResponse) => {
            answer.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // Whoever waits for more is to learn soon that none comes.
        Some(Fault::WrongContentLength { by: 1.. }) => {
            answer.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Some(Fault::WrongChecksum) => falsify(&mut answer.headers),
        Some(Fault::LargeHead { bytes }) => {
            let padding = "x".repeat(usize::try_from(bytes).unwrap_or(0));
            answer.set(HeaderName::from_static("x-padding"), &padding);
        }
        Some(Fault::ManyHeaders { count }) => {
            for number in 0..count.min(MANY_HEADERS_MAX) {
                let name = format!("x-padding-{number}").parse().expect("the name of a header");
                answer.set(name, "x");
            }
        }
        _ => {}
    }
    if !matches!(fault, Some(Fault::HtmlError { .. })) {
        answer.set(REQUEST_ID, request_id);
        answer.set(EXTENDED_REQUEST_ID, request_id);
        answer.headers.insert(SERVER, HeaderValue::from_static("inrush-origin"));
    }
    let chunked = fault == Some(Fault::Chunked);
    if answer.status != StatusCode::NOT_MODIFIED && !chunked {
        answer.headers.insert(CONTENT_LENGTH, HeaderValue::from(answer.length_bytes));
    }
    let body = if head.method == Method::HEAD {
        ReplyBody::new(Source::Bytes(bytes::Bytes::new()), 0, 0, None, of)
    } else {
        ReplyBody::new(answer.source, answer.offset, answer.length_bytes, fault, of)
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

/// What becomes of the head, if the fault is one of those.
fn head_act(fault: Fault) -> Option<HeadAct> {
    match fault {
        Fault::Interim { status, count } => Some(HeadAct::Interim { status, count }),
        Fault::SlowHead { bytes, pause } => {
            Some(HeadAct::Drip { bytes: usize::try_from(bytes).unwrap_or(usize::MAX), pause })
        }
        Fault::WrongContentLength { by } => Some(HeadAct::Length { by }),
        _ => None,
    }
}

/// Whether a header holds a checksum.
fn is_checksum(name: &HeaderName) -> bool {
    name.as_str().starts_with(CHECKSUM) && *name != CHECKSUM_TYPE
}

/// Another value of the same form: its first digit of base 64 is another.
fn falsify(headers: &mut HeaderMap) {
    for (_, value) in headers.iter_mut().filter(|(name, _)| is_checksum(name)) {
        let mut text = value.as_bytes().to_vec();
        if let Some(first) = text.first_mut() {
            *first = if *first == b'A' { b'B' } else { b'A' };
        }
        if let Ok(wrong) = HeaderValue::from_bytes(&text) {
            *value = wrong;
        }
    }
}

fn change(answer: &mut Answer, name: HeaderName, to: impl FnOnce(&str) -> String) {
    let changed = answer.headers.get(&name).and_then(|value| value.to_str().ok()).map(to);
    if let Some(changed) = changed {
        answer.set(name, &changed);
    }
}

/// `bytes 0-9/100` -> `bytes 1-10/100`.
fn one_further(content_range: &str) -> String {
    let parts = content_range
        .strip_prefix("bytes ")
        .and_then(|rest| rest.split_once('/'))
        .and_then(|(range, total)| Some((range.split_once('-')?, total)))
        .and_then(|((first, last), total)| {
            Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?, total))
        });
    match parts {
        Some((first, last, total)) => format!("bytes {}-{}/{total}", first + 1, last + 1),
        None => content_range.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_spread_over_the_jitter() {
        let first_byte_latency = Duration::from_millis(30);
        let first_byte_jitter = Duration::from_millis(10);
        let latencies = |config: Config| {
            let shared = Shared::new(&config).unwrap();
            let drawn: Vec<_> = (0..1000).map(|number| shared.latency(mix(number))).collect();
            let milliseconds = |time: &Duration| time.as_millis();
            (drawn.iter().min().map(milliseconds), drawn.iter().max().map(milliseconds))
        };
        let config = Config { first_byte_latency, ..Config::default() };
        assert_eq!(latencies(config.clone()), (Some(30), Some(30)));
        let (least, most) = latencies(Config { first_byte_jitter, ..config });
        assert_eq!((least, most), (Some(20), Some(39)));
    }

    #[test]
    fn a_wrong_content_range_is_one_further() {
        assert_eq!(one_further("bytes 0-9/100"), "bytes 1-10/100");
    }
}
