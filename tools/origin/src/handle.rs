//! One request from head to answer: signature, answer, fault, latency, in this order.
//!
//! The edge where time is read. Not here: sockets and threads (`serve.rs`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, SERVER,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};

use crate::body::{BodyOf, Ended, InFlight, Link, ReplyBody};
use crate::config::Config;
use crate::error::{Code, Error, S3Error};
use crate::fault::{Fault, FaultRequest, Injector};
use crate::request::{Query, Target};
use crate::respond::{Answer, Responder};
use crate::signature::{KeyCache, Signed, Verifier};
use crate::stats::Counters;
use crate::store::{Source, Store};
use crate::synthetic::mix;
use crate::tls::{self, TlsConfig};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
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
    connection_rate: Option<NonZeroU64>,
    request_number: AtomicU64,
}

impl Shared {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            store: RwLock::new(Store::new(config)?),
            counters: Arc::new(Counters::new(config.listen.len())),
            injector: Injector::new(config.faults.clone()),
            tls: config.tls.as_ref().map(Tls::new).transpose()?,
            verifier: Verifier {
                credentials: config.credentials.clone(),
                region: config.region.clone(),
            },
            moved_buckets: config.moved_buckets.clone(),
            domain: config.domain.clone(),
            first_byte_latency: config.first_byte_latency,
            connection_rate: config.connection_rate,
            request_number: AtomicU64::new(0),
        })
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
        let Decision { request_id, answer, fault } = self.decide(&head, &link);
        if !self.shared.first_byte_latency.is_zero() {
            tokio::time::sleep(self.shared.first_byte_latency).await;
        }
        link.record_bytes.set(match fault {
            Some(Fault::TlsTinyRecords { bytes }) => usize::try_from(bytes.max(1)).ok(),
            _ => None,
        });
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
        if answer.status.as_u16() >= 400 {
            self.shared.counters.errors.add(1);
        }
        let counters = Arc::clone(&self.shared.counters);
        let of = BodyOf { link, counters, rate: self.shared.connection_rate, _in_flight };
        Ok(assemble(&head, answer, &request_id, fault, of))
    }

    fn decide(&self, head: &Parts, link: &Link) -> Decision {
        let shared = &self.shared;
        shared.counters.count_request(link.address_index);
        let number = shared.request_number.fetch_add(1, Ordering::Relaxed);
        let request_id = format!("{:016X}", mix(number));
        let raw_query = head.uri.query().unwrap_or("");
        let query = Query::parse(raw_query);
        let domain = shared.domain.as_deref();
        let target = Target::parse(&head.method, &head.uri, &head.headers, &query, domain);
        let failed = |error: &S3Error| Answer::error(error, head.uri.path(), &request_id);
        let target = match target {
            Ok(target) => target,
            Err(error) => {
                let answer = failed(&error);
                return Decision { request_id, answer, fault: None };
            }
        };
        shared.counters.count_operation(target.operation);
        let mut answer = self.answer(&target, head, &query).unwrap_or_else(|error| failed(&error));
        let fault = shared.injector.decide(&FaultRequest {
            operation: target.operation,
            bucket: &target.bucket,
            key: &target.key,
            detail: if target.key.is_empty() { raw_query } else { "" },
            offset: answer.offset,
            body_bytes: if head.method == Method::HEAD { 0 } else { answer.length_bytes },
            partial: answer.status == StatusCode::PARTIAL_CONTENT,
            address_index: link.address_index,
            secured: link.secured.get(),
            renewable: link.renewable.get(),
        });
        if let Some(fault) = &fault {
            shared.counters.count_fault(fault);
        }
        match fault {
            Some(Fault::InternalError) => answer = failed(&Code::InternalError.into()),
            Some(Fault::SlowDown) => answer = failed(&Code::SlowDown.into()),
            _ => {}
        }
        Decision { request_id, answer, fault }
    }

    fn answer(&self, target: &Target, head: &Parts, query: &Query) -> Result<Answer, S3Error> {
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
            now: SystemTime::now(),
        };
        shared.verifier.verify(&mut self.keys.borrow_mut(), &signed)?;
        // Only a panic while an object is added could break the store, and it holds no half object.
        let store = shared.store.read().unwrap_or_else(PoisonError::into_inner);
        let responder = Responder { store: &store, region: &shared.verifier.region };
        responder.answer(target, &head.headers, query)
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
        _ => {}
    }
    answer.set(REQUEST_ID, request_id);
    answer.set(EXTENDED_REQUEST_ID, request_id);
    answer.headers.insert(SERVER, HeaderValue::from_static("inrush-origin"));
    if answer.status != StatusCode::NOT_MODIFIED {
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
    fn a_wrong_content_range_is_one_further() {
        assert_eq!(one_further("bytes 0-9/100"), "bytes 1-10/100");
    }
}
