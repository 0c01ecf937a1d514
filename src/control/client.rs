//! HTTP of the control plane: one request, one bounded answer, on reused connections.
//!
//! Retries transient failures (connections, 5xx, slow down) with backoff and full jitter, and
//! counts them. The meaning of answers is decided by the callers. Objects' data never comes this
//! way.

pub(super) mod connecting;
pub(super) mod handshake;
pub(super) mod idle;

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::error::Error as _;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::SendRequest;
use rustls::ClientConfig;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use self::connecting::open;
use self::idle::IdleConnections;
use super::limits::{
    ADDRESSES_MAX, ANSWER_BUFFER_BYTES_MAX, CONNECT_WAITS_MAX, MANIFEST_PIECE_BYTES,
    MORE_QUESTIONS_MAX, NEXT_QUESTION_AFTER, TRIES_MAX,
};
use super::retry_budget::{RetryBudget, pause};
use super::tls::{Trust, client_config};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::HEADERS_MAX;
use crate::link::attempt::{Attempts, Cause, NextTry};
use crate::link::failure::{Failure, RetryCounts, RetryReason};
use crate::link::http::ContentRange;
use crate::s3::Endpoint;
use crate::s3::answer::{ERROR_BODY_BYTES_MAX, ServerError, explain};
use crate::s3::proxy::Proxy;
use crate::s3::sign::{PublishedKeys, USER_AGENT, sign_request};
use crate::sys::topology::Over;

/// A request to a bucket's server.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) method: Method,
    /// The part after the endpoint's path prefix: the encoded key, or `?` and a query; empty for a
    /// bucket itself.
    pub(crate) target: String,
    /// The request is for an object, not for a bucket.
    pub(crate) of_object: bool,
    /// Additional headers: names and values.
    pub(crate) headers: Vec<(&'static str, Cow<'static, str>)>,
    /// Most bytes of an answer's body.
    pub(crate) body_bytes_max: usize,
    /// Of a longer body the rest is left unread, and the connection is closed; otherwise such a
    /// body is an error.
    pub(crate) leaves_rest: bool,
}

impl Question {
    /// A GET of a bucket, or of the service.
    pub(crate) const fn of_bucket(target: String, body_bytes_max: usize) -> Self {
        Self {
            method: Method::GET,
            target,
            of_object: false,
            headers: Vec::new(),
            body_bytes_max,
            leaves_rest: false,
        }
    }

    /// Its path and query at this server.
    pub(super) fn target_at(&self, endpoint: &Endpoint) -> String {
        match self.target.as_str() {
            // A bucket in path style is `/bucket`, not `/bucket/`, which some servers take for a
            // key.
            query if query.starts_with('?') || query.is_empty() && !self.of_object => {
                let place = endpoint.path_prefix.trim_end_matches('/');
                format!("{}{query}", if place.is_empty() { "/" } else { place })
            }
            key => format!("{}{key}", endpoint.path_prefix),
        }
    }
}

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Number of requests that were sent for it.
    pub(crate) tries: u32,
    /// The request had no signature.
    pub(crate) is_unsigned: bool,
    /// The region that the request was for.
    pub(crate) region: String,
    /// How long keys were waited for that are newer than its refused ones, and the outlook.
    pub(crate) refused_keys: (Duration, String),
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// True if the head declares an HTML page: an answer to HEAD says nothing else about its body.
    pub(super) fn is_page(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/html"))
    }
}

/// The error of a body.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The failure that an endpoint's refusal is, and its cause.
pub(super) fn cause_of(refusal: &ServerError, endpoint: &Endpoint) -> (Failure, Cause) {
    let failure = refusal.failure();
    let is_unreachable = endpoint.is_unreachable(failure, Some(refusal));
    (failure, Cause::new(is_unreachable, failure.is_overload()))
}

/// Why there was no answer.
pub(super) enum Trouble {
    /// Transient: its cause, the reason for the counters, and the error.
    Passing(Cause, RetryReason, Error),
    /// Permanent.
    Lasting(Error),
}

/// Connections of the control plane, and the counts of their retries.
#[derive(Debug)]
pub(crate) struct Client {
    trust: Trust,
    retry_budget: RetryBudget,
    /// The network interface; `None`: by the routing table.
    interface: Option<Arc<str>>,
    tls: OnceCell<Arc<ClientConfig>>,
    idle: IdleConnections,
    /// Addresses that timed out and have not answered since.
    silent: RefCell<BTreeSet<SocketAddr>>,
    retries: RefCell<RetryCounts>,
}

/// A connection that can take a request.
#[derive(Debug)]
pub(super) struct HttpConnection {
    address: SocketAddr,
    pub(super) sender: SendRequest<Empty<Bytes>>,
}

impl Client {
    pub(crate) fn new(trust: Trust, retry_budget: RetryBudget) -> Self {
        let (idle, silent) = (IdleConnections::default(), RefCell::default());
        let (interface, tls, retries) = (None, OnceCell::new(), RefCell::default());
        Self { trust, retry_budget, interface, tls, idle, silent, retries }
    }

    /// Uses this network interface, if there is one.
    pub(crate) fn over(self, interface: Option<Arc<str>>) -> Self {
        Self { interface, ..self }
    }

    /// Retry policy and clock of its requests.
    pub(crate) fn retry_budget(&self) -> &RetryBudget {
        &self.retry_budget
    }

    /// The run's TLS configuration.
    pub(crate) fn tls_config(&self) -> Result<Arc<ClientConfig>> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let config = client_config(&self.trust)?;
        Ok(self.tls.get_or_init(|| config).clone())
    }

    /// Retries so far, by reason.
    pub(crate) fn retries(&self) -> RetryCounts {
        *self.retries.borrow()
    }

    /// Counts a retry.
    pub(crate) fn count(&self, reason: RetryReason) {
        self.retries.borrow_mut()[reason as usize] += 1;
    }

    /// Sends a request until its answer is final. `what` names the request in messages.
    pub(crate) async fn ask(
        &self,
        endpoint: &Endpoint,
        question: &Question,
        keys: &PublishedKeys,
        what: &str,
    ) -> Result<Answer> {
        let policy = self.retry_budget.policy(TRIES_MAX);
        let mut attempts = Attempts::default();
        let ticket = self
            .retry_budget
            .begin(&endpoint.host_in_words(), format!("to answer {}", shouted(what)));
        loop {
            let outcome = self.ask_patiently(endpoint, question, keys, 0).await;
            let (trouble, answer) = match outcome {
                Ok(mut answer) => {
                    let id = answer.header("x-amz-request-id").unwrap_or("none");
                    let (status, host) = (answer.status, &endpoint.host);
                    debug!("{} at {host}: {status}, request id {id}", shouted(what));
                    answer.tries = attempts.tries();
                    let mut refusal = explain(answer.status, &answer.body, "");
                    refusal.is_foreign |= answer.is_page();
                    let (failure, cause) = cause_of(&refusal, endpoint);
                    let outcome = endpoint.relay_refusal(&refusal).map_or(Ok(answer), Err);
                    if !refusal.is_transient() {
                        return outcome;
                    }
                    let why = Error::new(ErrorKind::Endpoint, failure.to_string());
                    ((cause, failure.reason(), why), Some(outcome))
                }
                Err(Trouble::Lasting(error)) => return Err(error),
                Err(Trouble::Passing(cause, reason, why)) => ((cause, reason, why), None),
            };
            let (cause, reason, why) = trouble;
            let now_us = self.retry_budget.now_us();
            let NextTry::Again { ceiling_us } = attempts.failed(now_us, cause, policy) else {
                return answer.unwrap_or_else(|| {
                    let (host, tried) = (&endpoint.host, attempts.tried(now_us).times());
                    // An endpoint without a name is the address itself.
                    let text = why.message().strip_prefix(&format!("{host}: "));
                    let text = text.unwrap_or(why.message());
                    let message = format!("{host} does not answer: {text}, {tried}");
                    let advice = endpoint.advice(match endpoint.is_multi_region() {
                        true => "check the network",
                        false => "check the network, --endpoint-url and --region",
                    });
                    let error = Error::new(ErrorKind::Endpoint, message).advise(advice);
                    Err(error.attempted(attempts.tries()).caused_as(&why))
                });
            };
            self.count(reason);
            info!("{} is tried again, try {}: {why}", shouted(what), attempts.tries());
            ticket.try_again(attempts.tries(), why.message());
            sleep(pause(ceiling_us)).await;
        }
    }

    /// Sends the request, and again to another address each time that no answer comes in time; the
    /// first answer is used. `number` counts the requests, from 0.
    fn ask_patiently<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        question: &'a Question,
        keys: &'a PublishedKeys,
        number: u32,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Trouble>> + 'a>> {
        Box::pin(async move {
            let at = Cell::new(None);
            let mut first = pin!(self.ask_once(endpoint, question, keys, &at));
            if number == MORE_QUESTIONS_MAX {
                return first.await;
            }
            if let Ok(outcome) = timeout(NEXT_QUESTION_AFTER * (1 << number), &mut first).await {
                return outcome;
            }
            self.note_silent(at.get());
            self.count(RetryReason::FirstByteTimeout);
            let mut next = self.ask_patiently(endpoint, question, keys, number + 1);
            tokio::select! {
                outcome = &mut first => match outcome {
                    Err(Trouble::Passing(..)) => next.await,
                    outcome => outcome,
                },
                outcome = &mut next => match outcome {
                    Err(Trouble::Passing(..)) => first.await,
                    outcome => outcome,
                },
            }
        })
    }

    fn note_silent(&self, address: Option<SocketAddr>) {
        let mut silent = self.silent.borrow_mut();
        if silent.len() == ADDRESSES_MAX {
            silent.pop_first();
        }
        silent.extend(address);
    }

    /// Sends the request on one connection; `at` is its address.
    pub(super) async fn ask_once(
        &self,
        endpoint: &Endpoint,
        question: &Question,
        keys: &PublishedKeys,
        at: &Cell<Option<SocketAddr>>,
    ) -> Result<Answer, Trouble> {
        // An idle connection may have been closed meanwhile: that costs neither a try nor a pause.
        // Each round removes one, so this ends.
        while let Some(connection) = self.idle.take(endpoint) {
            at.set(Some(connection.address));
            let request = build(endpoint, question, keys).map_err(Trouble::Lasting)?;
            match self.exchange((endpoint, keys), connection, request, question).await {
                Err(Trouble::Passing(_, RetryReason::Broken, _)) => self.count(RetryReason::Stale),
                Err(Trouble::Passing(_, reason, _)) => self.count(reason),
                outcome => return outcome,
            }
        }
        let connection = self.connect(endpoint, at).await?;
        let request = build(endpoint, question, keys).map_err(Trouble::Lasting)?;
        self.exchange((endpoint, keys), connection, request, question).await
    }

    async fn exchange(
        &self,
        (endpoint, keys): (&Endpoint, &PublishedKeys),
        mut connection: HttpConnection,
        request: Request<Empty<Bytes>>,
        question: &Question,
    ) -> Result<Answer, Trouble> {
        let exchange = async {
            connection.sender.ready().await.map_err(|error| passing(&error))?;
            let response =
                connection.sender.send_request(request).await.map_err(|error| passing(&error))?;
            let (head, body) = response.into_parts();
            let status = status_of(question, &head);
            let bytes_max = question.body_bytes_max.min(body_bytes_of(status));
            let (body, is_all) = match question.leaves_rest {
                true => read_start(body, bytes_max).await?,
                false => (read_body(body, bytes_max).await?, true),
            };
            let answer = Answer {
                status,
                headers: head.headers,
                body,
                tries: 1,
                is_unsigned: keys.get().is_none(),
                region: endpoint.region.clone(),
                refused_keys: Default::default(),
            };
            Ok((answer, is_all))
        };
        let limit = self.retry_budget.answer_timeout();
        let (answer, is_all) = timeout(limit, exchange).await.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", limit.as_secs_f64());
            Err(unreachable(RetryReason::FirstByteTimeout, why))
        })?;
        self.silent.borrow_mut().remove(&connection.address);
        if is_all {
            self.idle.put(endpoint, connection);
        }
        Ok(answer)
    }

    async fn connect(
        &self,
        endpoint: &Endpoint,
        at: &Cell<Option<SocketAddr>>,
    ) -> Result<HttpConnection, Trouble> {
        let mut addresses = endpoint.addresses();
        fastrand::shuffle(&mut addresses);
        addresses.sort_by_key(|address| self.silent.borrow().contains(address));
        let tls = endpoint.tls.then(|| self.tls_config()).transpose().map_err(Trouble::Lasting)?;
        let mut last = unreachable(RetryReason::Connect, "it has no address".to_owned());
        let (mut waits, limit) = (0, self.retry_budget.connect_timeout());
        for address in addresses {
            at.set(Some(address));
            let over = self.interface.as_deref();
            match timeout(limit, open(endpoint, address, over, tls.clone())).await {
                Ok(Ok(sender)) => return Ok(HttpConnection { address, sender }),
                Ok(Err(trouble @ Trouble::Lasting(_))) => return Err(trouble),
                Ok(Err(trouble)) => last = trouble,
                Err(_) => {
                    let seconds = limit.as_secs_f64();
                    let why = format!("{address}{}: no connection within {seconds} s", Over(over));
                    last = unreachable(RetryReason::ConnectTimeout, why);
                    waits += 1;
                    if waits == CONNECT_WAITS_MAX {
                        break;
                    }
                }
            }
        }
        Err(last)
    }
}

/// The request with its headers and, if there are credentials, its signature for the current time.
fn build(
    endpoint: &Endpoint,
    question: &Question,
    keys: &PublishedKeys,
) -> Result<Request<Empty<Bytes>>> {
    let target = question.target_at(endpoint);
    let relay = endpoint.relay();
    let target = match relay {
        Some(_) => format!("http://{}{target}", endpoint.host),
        None => target,
    };
    let mut request = Request::builder()
        .method(question.method.clone())
        .uri(&target)
        .header(header::HOST, &endpoint.host)
        .header(header::USER_AGENT, USER_AGENT);
    for (name, value) in &question.headers {
        request = request.header(*name, value.as_ref());
    }
    for (name, value) in endpoint.headers.iter(question.of_object) {
        let mut value = HeaderValue::from_str(value).expect("made of plain characters");
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    let mut request = request.body(Empty::new()).map_err(|error| {
        // The target of a URL may be a signature.
        let named = if endpoint.is_web() { &endpoint.host } else { &target };
        Error::new(ErrorKind::Usage, format!("cannot request '{named}': {error}"))
    })?;
    let server_time = keys.server_time(super::now());
    if let Some(keys) = keys.get() {
        sign_request(&mut request, endpoint, &keys, server_time)?;
    }
    // Added after signing, which covers only the headers for the server.
    if let Some(authorization) = relay.and_then(Proxy::authorization) {
        let mut value = HeaderValue::from_str(authorization).expect("base64");
        value.set_sensitive(true);
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, value);
    }
    Ok(request)
}

pub(super) async fn read_body(mut body: Incoming, bytes_max: usize) -> Result<Bytes, Trouble> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    // A declared length alone allocates no more memory than this.
    let mut whole = Vec::with_capacity(declared.min(bytes_max).min(MANIFEST_PIECE_BYTES));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match passing(&error) {
            // The answer had begun.
            Trouble::Passing(_, reason, why) => Trouble::Passing(Cause::Faulty, reason, why),
            lasting => lasting,
        })?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > bytes_max {
                let message = format!("the server's answer has more than {bytes_max} bytes");
                return Err(Trouble::Lasting(Error::new(ErrorKind::Endpoint, message)));
            }
            let room = whole.try_reserve(data.len());
            room.map_err(|_| Trouble::Lasting(no_memory("an answer", whole.len() + data.len())))?;
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.into())
}

/// The start of a body, and true if that is all of it. Of one that is declared longer nothing is
/// read.
async fn read_start(mut body: Incoming, bytes_max: usize) -> Result<(Bytes, bool), Trouble> {
    let mut start = Vec::new();
    if body.size_hint().lower() > bytes_max as u64 {
        return Ok((start.into(), false));
    }
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| passing(&error))?.into_data() else { continue };
        let room = bytes_max - start.len();
        start.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok((start.into(), false));
        }
    }
    Ok((start.into(), true))
}

/// The status of an answer; see [`ContentRange::status_of`].
fn status_of(question: &Question, head: &Parts) -> u16 {
    let status = head.status.as_u16();
    let is_asked = question.headers.iter().any(|(name, _)| *name == "range");
    let range = head.headers.get(header::CONTENT_RANGE).filter(|_| is_asked);
    let length = head.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let range = range.and_then(|range| ContentRange::parse(range.as_bytes()));
    range.map_or(status, |range| range.status_of(status, length))
}

/// Most bytes of a body with this status: of a partial answer as many as were requested, of an
/// error as many as are parsed.
const fn body_bytes_of(status: u16) -> usize {
    match status {
        206 => MANIFEST_PIECE_BYTES + 1,
        300.. => ERROR_BODY_BYTES_MAX,
        _ => usize::MAX,
    }
}

/// The error for a failed allocation of `bytes`.
pub(super) fn no_memory(what: &str, bytes: usize) -> Error {
    let message = format!("there is no memory for the {bytes} bytes of {what}");
    Error::new(ErrorKind::Host, message).advise("give the process more memory")
}

/// hyper's error with its causes, which have the reason.
pub(super) fn passing(error: &hyper::Error) -> Trouble {
    if error.is_parse_too_large() {
        let message = format!(
            "the answer has more than {HEADERS_MAX} headers, or headers of more than {} KiB",
            ANSWER_BUFFER_BYTES_MAX >> 10
        );
        let error = Error::new(ErrorKind::Endpoint, message);
        return Trouble::Lasting(match Failure::TooManyHeaders.advice() {
            Some(advice) => error.advise(advice),
            None => error,
        });
    }
    let mut why = error.to_string();
    let mut cause = error.source();
    let mut deepest = None;
    while let Some(next) = cause {
        why.push_str(&format!(": {next}"));
        deepest = Some(next);
        cause = next.source();
    }
    if error.is_parse() {
        // A server with TLS answers plain HTTP with an alert.
        why.push_str(" (if it speaks TLS on this port, use https://)");
    }
    let is_end = |io: &std::io::Error| io.kind() == std::io::ErrorKind::UnexpectedEof;
    let reason = match deepest {
        Some(cause) if cause.is::<rustls::Error>() => RetryReason::Tls,
        Some(cause) if cause.downcast_ref().is_some_and(is_end) => RetryReason::Truncated,
        _ if error.is_parse() => RetryReason::BadHead,
        _ if error.is_canceled() || error.is_closed() => RetryReason::Stale,
        _ => RetryReason::Broken,
    };
    let is_fault = matches!(reason, RetryReason::Tls | RetryReason::BadHead);
    let why = Error::new(ErrorKind::Endpoint, why).caused_by_text_of(error);
    Trouble::Passing(Cause::new(!is_fault, false), reason, why)
}

pub(super) fn unreachable(reason: RetryReason, why: String) -> Trouble {
    Trouble::Passing(Cause::Unreachable, reason, Error::new(ErrorKind::Endpoint, why))
}

/// `list s3://bucket/` as `LIST s3://bucket/`, for messages about requests.
pub(super) fn shouted(what: &str) -> String {
    match what.split_once(' ') {
        Some((verb @ ("list" | "head" | "get"), rest)) => {
            format!("{} {rest}", verb.to_ascii_uppercase())
        }
        _ => what.to_owned(),
    }
}
