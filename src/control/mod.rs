//! The control plane: finds the objects to move. LIST, HEAD, credentials, endpoints and DNS.
//!
//! Ordinary async Rust on a current-thread runtime; nothing here is `Send`, and no data passes
//! through it. The protocol is parsed in [`crate::s3`]; the path of an object is decided in
//! [`crate::plan`].
//!
//! * `settings`: the environment and the profile files.
//! * [`auth`]: the chain of credentials, its roles and tokens, sessions of directory buckets, and
//!   access grants.
//! * [`endpoint`], [`dns`], [`tls`]: the server of a bucket, its addresses, and whom TLS trusts.
//! * `client`: HTTP, one bounded answer for each request.
//! * `web`: objects that are named by a URL. `redirect`: redirects of signed requests.
//! * [`list`]: from a source to its objects, page by page.
//! * `object`, [`checksum`]: what HEAD says of one object.
//! * [`refresh`]: renews keys, sessions and addresses while the data plane works.

pub mod auth;
pub(crate) mod blocking;
mod buckets;
pub mod checksum;
pub(crate) mod client;
pub mod dns;
pub mod endpoint;
pub mod limits;
pub mod list;
#[cfg(test)]
pub(crate) mod loopback;
mod object;
pub mod probe;
mod redirect;
pub mod refresh;
mod retry_budget;
pub mod settings;
pub mod tls;
pub mod web;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tracing::info;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::LIST_REQUESTS_DEFAULT;
use crate::link::attempt::Timeouts;
use crate::link::failure::RetryCounts;
use crate::link::waiting::{Board, Wait};
use crate::s3::Endpoint;
use crate::s3::answer::{ServerError, explain_answer};
use crate::s3::aws::Variant;
use crate::s3::grants::GrantTarget;
use crate::s3::headers::CustomerKey;
use crate::s3::list::{ListQuery, Page, parse_page};
use crate::s3::proxy::Proxies;
use crate::s3::sign::{ALL_REGIONS, PublishedKeys};
use crate::s3::uri::shown;
use crate::sys::topology::Interface;
use auth::chain_http::{self, ChainHttp};
use auth::credentials::{CredentialSource, KeyRefresher};
use auth::grants::{AccessGrants, Grants};
use auth::key_refusals::{AfterRefusal, KeyRefusals};
use client::{Answer, Client, Question};
use dns::hosts::Names;
use endpoint::{
    AddressingStyle, Configured, EndpointUrl, Service, is_name_of_region, is_region,
    region_or_default,
};
use limits::{CHECKSUMS_ASKED_MAX, REGION_MOVES_MAX};
use object::{CheckedHeads, object_of};
use redirect::Detours;
use retry_budget::RetryBudget;
use settings::Found;
pub(crate) use settings::profile_names;
pub(crate) use settings::{Settings, aws_files};
use tls::Trust;
use web::WebObjects;

/// Settings of the server from the command line and the environment. The profile adds missing ones.
#[derive(Debug, Clone, Default)]
pub struct ControlOptions {
    /// The server's URL; AWS if neither this nor the profile has one.
    pub endpoint_url: Option<String>,
    /// The region; S3 corrects a wrong one.
    pub region: Option<String>,
    /// The profile from the command line; without it `AWS_PROFILE` is read.
    pub profile: Option<String>,
    /// Position of the bucket's name in requests; by the profile if `None`.
    pub addressing: Option<AddressingStyle>,
    /// Source of the credentials.
    pub credentials: CredentialSource,
    /// Trusted certificates; environment and profile may name a bundle instead of
    /// [`Trust::System`].
    pub trust: Trust,
    /// AWS's dual-stack endpoints; by environment and profile if `None`.
    pub dualstack: Option<bool>,
    /// AWS's FIPS endpoints; by environment and profile if `None`.
    pub fips: Option<bool>,
    /// Sessions for directory buckets; by environment and profile if `None`.
    pub sessions: Option<bool>,
    /// S3 Access Grants give the keys of buckets; the credentials sign the requests for them.
    pub access_grants: Option<AccessGrants>,
    /// Time for which an endpoint that does not answer is retried, in microseconds.
    pub retry_for_us: u64,
    /// Timeouts of an attempt.
    pub timeouts: Timeouts,
    /// Board for reporting waits, including those for credentials.
    pub board: Arc<Board>,
    /// Requests that list one source at once; the default of [`crate::limits`] if `None`.
    pub list_requests: Option<usize>,
    /// The requester pays.
    pub requester_pays: bool,
    /// The customer's key of SSE-C.
    pub customer_key: Option<CustomerKey>,
    /// Proxies by environment.
    pub proxies: Proxies,
    /// Network interfaces; if empty, by the routing table. Control requests use the first.
    pub interfaces: Vec<Interface>,
    /// Settings that were read before: a profile file that is a pipe can be read only once.
    pub(crate) settings: Option<Result<Arc<Settings>>>,
}

/// The control plane: sends requests about buckets and objects.
#[derive(Debug)]
pub struct Control {
    client: Client,
    key_refresher: KeyRefresher,
    service: Service,
    region: String,
    list_requests: usize,
    checksums_only_when_required: bool,
    /// Limits the objects whose checksums are requested at once.
    checksums_asked: Semaphore,
    checked_heads: CheckedHeads,
    /// Access grants give the keys of buckets.
    grants: Option<Grants>,
    /// Those of known buckets, each in its final region, by their names and grants.
    endpoints: RefCell<HashMap<String, Arc<Endpoint>>>,
    /// Notified when there is another one.
    met: Notify,
    web: WebObjects,
    names: Names,
    interfaces: Vec<Interface>,
    /// Bytes of the augmented manifests fetched so far.
    augmented_bytes: Cell<u64>,
    hint: Option<String>,
}

/// A request about a bucket, and its name in errors.
struct Ask<'a> {
    bucket: &'a str,
    /// What it is about, for an access grant.
    about: GrantTarget<'a>,
    question: Question,
    what: &'a str,
}

impl Control {
    /// Reads the profile and gets credentials; sends no request to S3 yet.
    pub async fn new(options: ControlOptions) -> Result<Self> {
        let retry_budget = RetryBudget::new(options.retry_for_us, options.timeouts, options.board);
        let named = options.endpoint_url.is_some() && options.region.is_some();
        let switches = [options.dualstack, options.fips, options.sessions];
        let is_all_named = named && switches.iter().all(Option::is_some);
        let needs_settings = !is_all_named
            || options.access_grants.is_some()
            || matches!(options.credentials, CredentialSource::Chain);
        let settings = match needs_settings {
            true => Some(match options.settings {
                Some(settings) => settings?,
                None => Arc::new(Settings::load(options.profile, retry_budget.board()).await?),
            }),
            false => None,
        };
        let hint = settings.as_ref().and_then(|settings| settings.unused_defaults());
        let configured = match &settings {
            Some(settings) if !is_all_named => Configured::of(settings)?,
            _ => Configured::default(),
        };
        let url = chosen(options.endpoint_url, configured.endpoint_url);
        let (source, waits) = (&options.credentials, retry_budget.clone());
        let (url, region) = place(url, chosen(options.region, configured.region), source)?;
        let dualstack = configured.dualstack || configured.dualstack_of_s3 && url.is_none();
        let variant = variant([options.dualstack, options.fips], [dualstack, configured.fips]);
        let (trust, chain_trust) = trusted(options.trust, configured.ca_bundle);
        let urls = match (&options.credentials, &settings) {
            (CredentialSource::Chain, Some(it)) => urls_of(it, auth::roles::services(it))?,
            _ => vec![],
        };
        let interface = options.interfaces.first().map(|first| Arc::clone(&first.name));
        let grants = match (options.access_grants, &settings) {
            (Some(mode), Some(settings)) => {
                let client = Client::new(chain_trust.clone(), retry_budget.clone());
                Some(Grants::new(mode, source, settings, client.over(interface.clone()))?)
            }
            _ => None,
        };
        let http = ChainHttp::new(chain_trust, options.proxies.clone(), urls);
        Ok(Self {
            client: Client::new(trust, retry_budget).over(interface),
            key_refresher: KeyRefresher::new(source, settings.as_ref(), &region, http, waits)
                .await?,
            service: Service {
                url,
                addressing: options.addressing.unwrap_or(configured.addressing),
                accelerate: configured.accelerate,
                variant,
                sessions: options.sessions.unwrap_or(!configured.no_sessions),
                no_multi_region: configured.no_multi_region,
                requester_pays: options.requester_pays,
                customer_key: options.customer_key,
                proxies: options.proxies,
            },
            region,
            checksums_only_when_required: configured.checksums_only_when_required,
            checksums_asked: Semaphore::new(CHECKSUMS_ASKED_MAX),
            checked_heads: CheckedHeads::default(),
            list_requests: options.list_requests.unwrap_or(LIST_REQUESTS_DEFAULT),
            grants,
            endpoints: RefCell::default(),
            met: Notify::new(),
            web: WebObjects::default(),
            names: Names::over(&options.interfaces),
            interfaces: options.interfaces,
            augmented_bytes: Cell::default(),
            hint,
        })
    }

    /// The current credentials, for the data plane; `None` inside means unsigned requests.
    #[must_use]
    pub fn keys(&self) -> Arc<PublishedKeys> {
        self.key_refresher.published().clone()
    }

    /// The TLS configuration of the run, created at the first call; the data plane uses it, too.
    pub fn tls_config(&self) -> Result<Arc<rustls::ClientConfig>> {
        self.client.tls_config()
    }

    /// Replaces the credentials if they expire soon; true if there are new ones. Cheap to call
    /// often.
    pub async fn refresh_if_needed(&self, now: SystemTime) -> Result<bool> {
        // A slow source of credentials must not let a session expire.
        let keys = self.key_refresher.refresh_if_needed(now);
        let (keys, sessions) = tokio::join!(keys, self.refresh_sessions(now));
        Ok(keys? | sessions?)
    }

    /// Replaces credentials and sessions that the data plane's servers rejected as expired.
    pub async fn renew_refused(&self) {
        tokio::join!(self.key_refresher.renew_refused(), self.renew_refused_sessions());
    }

    async fn renew_refused_sessions(&self) {
        let is_refused = |endpoint: &Arc<Endpoint>| {
            let session = endpoint.session.as_ref().filter(|_| !endpoint.is_web());
            session.is_some_and(|session| session.are_refused())
        };
        let refused = self.endpoints().into_iter().filter(is_refused).collect();
        for (endpoint, renewed) in self.renew_sessions(refused).await {
            if let (Some(session), Err(error)) = (&endpoint.session, renewed) {
                session.set_outlook(error.message().to_owned());
            }
        }
    }

    /// True if environment or profile restrict checksum requests to required ones
    /// (`response_checksum_validation` of the AWS tools).
    #[must_use]
    pub const fn checksums_only_when_required(&self) -> bool {
        self.checksums_only_when_required
    }

    /// Advice about a profile file whose fault does no harm by itself.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Most simultaneous LIST requests.
    pub(crate) const fn list_requests(&self) -> usize {
        self.list_requests
    }

    /// Network interfaces for data; if empty, by the routing table.
    #[must_use]
    pub fn interfaces(&self) -> Vec<Interface> {
        self.interfaces.clone()
    }

    /// Retried requests (LIST, HEAD and the like) so far, by reason.
    #[must_use]
    pub fn retries(&self) -> RetryCounts {
        self.client.retries()
    }

    /// Seconds by which the signing clock is ahead of this machine's clock, if a server corrected
    /// it: the largest of all endpoints.
    #[must_use]
    pub fn clock_ahead_seconds(&self) -> i64 {
        let endpoints = self.endpoints.borrow();
        let sessions = endpoints.values().filter_map(|endpoint| endpoint.session.as_ref());
        let clocks =
            sessions.chain([self.key_refresher.published()]).map(|keys| keys.clock_ahead_seconds());
        clocks.max_by_key(|ahead| ahead.unsigned_abs()).unwrap_or(0)
    }

    /// The longest wait of a request, if it is long enough to report.
    pub(crate) fn longest_wait(&self) -> Option<Wait> {
        self.client.retry_budget().longest_wait()
    }

    /// The board for reporting waits.
    #[must_use]
    pub fn board(&self) -> Arc<Board> {
        self.client.retry_budget().board()
    }

    /// Looks up again the names of all endpoints whose TTL has passed; failures are retried later,
    /// and older addresses are used meanwhile. Cheap to call often.
    pub async fn refresh_addresses(&self) {
        self.forget_servers();
        self.names.refresh(&self.endpoints(), self.client.retry_budget().now_us()).await;
    }

    /// The region of the first request.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// True if requests are encrypted, wherever buckets are.
    pub fn is_tls(&self) -> bool {
        self.service.url.as_ref().is_none_or(EndpointUrl::is_tls)
    }

    /// One page of a listing.
    pub async fn list_page(&self, bucket: &str, query: &ListQuery) -> Result<Page> {
        let what = format!("list s3://{bucket}/{}", shown(&query.prefix));
        let target = format!("?{}", query.to_query());
        let question = Question::of_bucket(target, query.page_bytes_max());
        let about = GrantTarget::Prefix(&query.prefix);
        let answer = self.ask(Ask { bucket, about, question, what: &what }).await?;
        if answer.status != 200 {
            let path = self.service.url.as_ref().and_then(EndpointUrl::given_path);
            let error = refusal(&answer, &what);
            return Err(match path.filter(|_| answer.status == 404) {
                // It often is the bucket's name, which the address already has.
                Some(path) => {
                    error.advise(format!("the endpoint URL has the path {path}: omit it"))
                }
                None => error,
            });
        }
        let page = parse_page(&answer.body).and_then(|page| page.require_asked(query));
        let page = page.map_err(|error| error.within(&what))?;
        if page.next_token.is_some() && page.next_token == query.token {
            let message = format!("{what}: the server gives the same continuation token again");
            return Err(Error::new(ErrorKind::Endpoint, message));
        }
        Ok(page)
    }

    /// Sends the request, and follows the bucket to its region and expired credentials to new ones.
    async fn ask(&self, ask: Ask<'_>) -> Result<Answer> {
        let mut region_moves = 0;
        let mut refusals = KeyRefusals::default();
        let mut detours = Detours::default();
        loop {
            let endpoint = self.endpoint(ask.bucket, ask.about).await?;
            let keys = endpoint.session.as_ref().unwrap_or(self.key_refresher.published());
            let keys_version = keys.version();
            let answer = self.client.ask(&endpoint, &ask.question, keys, ask.what).await;
            let mut answer = answer.map_err(|error| error.within(ask.what))?;
            if (200..300).contains(&answer.status) {
                keys.note_accepted(keys_version);
                return Ok(answer);
            }
            let refusal = server_error(&answer);
            let is_elsewhere = is_region(self.service.url.as_ref(), &refusal.region);
            if is_elsewhere && region_moves < REGION_MOVES_MAX {
                region_moves += 1;
                info!("redirect: bucket {} is in {}", ask.bucket, refusal.region);
                // A bucket whose name includes its region does not move.
                let moved = self.settle(ask.bucket, ask.about, &refusal.region).await?;
                if moved.region == endpoint.region {
                    return Ok(answer);
                }
                continue;
            }
            let replace = async |since: &mut Option<Instant>| {
                self.replace_keys(&endpoint, keys_version, since).await
            };
            let refused = (&refusal, &mut answer);
            let by = (&self.client, ask.what);
            match refusals.take(refused, (keys, keys_version), by, replace).await? {
                AfterRefusal::Again => {}
                AfterRefusal::Final => return Ok(answer),
                AfterRefusal::Unrelated => {
                    match self.follow_redirects(&endpoint, &ask.question, answer).await {
                        Ok((answer, _)) => return Ok(answer),
                        Err(failed) => detours.wait(&self.client, ask.what, failed).await?,
                    }
                }
            }
        }
    }
}

/// The time for signatures and expiry. This module is an edge, so it may read the clock.
#[expect(clippy::disallowed_methods, reason = "the control plane's only look at the clock")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// The variant of AWS's endpoints by options and settings: dual-stack, and FIPS.
fn variant(given: [Option<bool>; 2], configured: [bool; 2]) -> Variant {
    let chosen = |at: usize| given[at].unwrap_or(configured[at]);
    Variant { dualstack: chosen(0), fips: chosen(1) }
}

/// The certificates that servers of buckets, and those that servers of credentials are verified
/// with. The latter get secrets, too: they are verified in any case.
fn trusted(given: Trust, bundle: Option<PathBuf>) -> (Trust, Trust) {
    let configured = bundle.map_or(Trust::System, Trust::Bundle);
    match given {
        Trust::System => (configured.clone(), configured),
        Trust::Anyone => (Trust::Anyone, configured),
        trust => (trust.clone(), trust),
    }
}

/// The endpoint and the region from these settings; they are logged unless all sources are URLs.
fn place(
    (url, url_from): Said,
    (region, region_from): Said,
    credentials: &CredentialSource,
) -> Result<(Option<EndpointUrl>, String)> {
    let is_used = !matches!(credentials, CredentialSource::OfUrls);
    let origin = |from: &Option<String>, is_given: bool| match from {
        Some(from) => from.clone(),
        None if is_given => "as given".to_owned(),
        None => "the default".to_owned(),
    };
    if is_used {
        let shown_url = url.as_deref().map_or("AWS", without_user);
        info!("endpoint: {shown_url} ({})", origin(&url_from, url.is_some()));
    }
    let url = url.as_deref().map(|url| EndpointUrl::parse(url, url_from.as_deref()));
    let url = url.transpose()?;
    let region_origin = origin(&region_from, region.is_some());
    let region = region_or_default(region);
    if is_used {
        info!("region: {region} ({region_origin})");
    }
    // For AWS it becomes part of a host name.
    if !is_region(url.as_ref(), &region) {
        let from = region_from.map_or_else(String::new, |from| format!("{from}: "));
        let message = format!("{from}'{}' is not a region", shown(&region));
        return Err(Error::new(ErrorKind::Usage, message)
            .advise("expected a name such as eu-west-1; check --region and AWS_REGION"));
    }
    Ok((url, region))
}

/// True if environment or profile set an endpoint of S3, or cannot be read.
#[must_use]
pub(crate) fn is_endpoint_set(settings: &Result<Arc<Settings>>) -> bool {
    !matches!(settings.as_ref().map(|settings| settings.endpoint_url("s3")), Ok(Ok(None)))
}

/// A value, and the variable or profile that set it; `None`: the command line.
type Said = (Option<String>, Option<String>);

/// URLs of the services that give credentials, checked before the SDK gets them, because its errors
/// repeat a URL with its password.
fn urls_of(
    settings: &Settings,
    services: Vec<chain_http::CredentialService>,
) -> Result<chain_http::Urls> {
    let mut urls = Vec::new();
    for service in services {
        if let Some(found) = settings.endpoint_url(service.name())? {
            EndpointUrl::parse(&found.value, Some(&found.from))?;
            urls.push((service, found));
        }
    }
    Ok(urls)
}

/// The given value, else the found one.
fn chosen(given: Option<String>, found: Option<Found>) -> Said {
    match (given, found) {
        (Some(given), _) => (Some(given), None),
        (None, Some(Found { value, from })) => (Some(value), Some(from)),
        (None, None) => (None, None),
    }
}

/// A URL without user info, which may have a password.
fn without_user(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, host)| host)
}

fn server_error(answer: &Answer) -> ServerError {
    let mut refusal = explain_answer(answer.status, &answer.headers, &answer.body);
    // A server that names the region that was asked names no other place, and what is no region is
    // no advice. A request that was signed for all regions is in no wrong one.
    let is_in_place = answer.region == ALL_REGIONS || refusal.region == answer.region;
    if is_in_place || !is_name_of_region(&refusal.region) {
        refusal.region.clear();
    }
    let (_, keys_outlook) = answer.refused_keys.clone();
    ServerError { is_unsigned: answer.is_unsigned, keys_outlook, ..refusal }
}

/// The refusal as an error, with the number of tries or the time that newer keys were waited for.
fn refusal(answer: &Answer, what: &str) -> Error {
    let tries = answer.tries;
    let waited_s = answer.refused_keys.0.as_secs();
    let context = match (waited_s, tries) {
        (0, 0 | 1) => what.to_owned(),
        (0, tries) => format!("{what} (tried {tries} times)"),
        (seconds, _) => format!("{what} (waited {seconds} s for newer credentials)"),
    };
    server_error(answer).into_error(&context).attempted(tries)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::limits::NEXT_QUESTION_AFTER;
    use super::loopback::{Reply, Server, control, run};
    use super::*;
    use crate::link::failure::RetryReason;
    use crate::s3::answer::ERROR_BODY_BYTES_MAX;

    #[test]
    fn head_returns_size_and_tag() {
        let server = Server::start(|_| {
            let reply = Reply::new(200, "").header("ETag", "\"e\"").header("Content-Length", "17");
            reply.header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        });
        run(async {
            let control = control(&server).await;
            let object =
                control.head("bkt", "a b/ü", "").await.expect("an answer").expect("it is there");
            assert_eq!((object.key.as_str(), object.size_bytes), ("a b/ü", 17));
            assert_eq!(object.etag, "\"e\"");
            assert_eq!(object.last_modified, "2024-01-01T00:00:00.000Z", "as a listing has it");
        });
        let seen = server.seen();
        assert!(seen[0].starts_with("HEAD /bkt/a%20b/%C3%BC HTTP/1.1\r\n"), "{}", seen[0]);
        assert!(seen[0].contains("authorization: AWS4-HMAC-SHA256 Credential=KEY/"), "{}", seen[0]);
    }

    #[test]
    fn wishes_go_with_every_request() {
        let server = Server::start(|head| match head.starts_with("HEAD") {
            true => Reply::new(403, ""),
            false if head.contains("list-type") => Reply::new(200, Server::page(&[], None)),
            false => Reply::new(206, "x").header("Content-Range", "bytes 0-0/99"),
        });
        run(async {
            let mut control = control(&server).await;
            control.service.requester_pays = true;
            let object = control.head("bkt", "k", "a+b/c").await.expect("an answer");
            assert_eq!(object.expect("an object").version_id, "a+b/c");
            control.list_page("bkt", &ListQuery::new("")).await.expect("a page");
        });
        let seen = server.seen();
        assert_eq!(seen.len(), 3);
        assert!(seen[0].starts_with("HEAD /bkt/k?versionId=a%2Bb%2Fc HTTP/1.1\r\n"), "{}", seen[0]);
        assert!(seen[1].starts_with("GET /bkt/k?versionId=a%2Bb%2Fc HTTP/1.1\r\n"), "{}", seen[1]);
        for head in seen {
            assert!(head.contains("\r\nx-amz-request-payer: requester\r\n"), "{head}");
            assert!(head.contains(";x-amz-request-payer"), "{head}");
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_refused() {
        let server =
            Server::start(|_| Reply::new(200, "").header("Content-Length", "9007199254740993"));
        run(async {
            let control = control(&server).await;
            let error = control.head("bkt", "key", "").await.expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::Endpoint);
            assert!(error.to_string().contains("over 2^53 bytes"), "{error}");
        });
    }

    #[test]
    fn a_refused_head_gets_its_reason() {
        let server = Server::start(|head| {
            let body = "<Error><Code>SignatureDoesNotMatch</Code><RequestId>R7</RequestId></Error>";
            Reply::new(403, if head.starts_with("HEAD") { "" } else { body })
        });
        run(async {
            let control = control(&server).await;
            let error = control.head("bkt", "key", "").await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Access);
            let line = error.to_string();
            assert!(line.contains("SignatureDoesNotMatch") && line.contains("R7"), "{line}");
            assert!(line.contains("check AWS_SECRET_ACCESS_KEY"), "{line}");
        });
        assert_eq!(server.seen().len(), 2);
        assert!(server.seen()[1].contains("\r\nrange: bytes=0-0\r\n"));
    }

    #[test]
    fn a_refused_head_whose_get_is_granted_is_an_object() {
        let server = Server::start(|head| match head.starts_with("HEAD") {
            true => Reply::new(403, ""),
            false => Reply::new(206, "x").header("Content-Range", "bytes 0-0/99"),
        });
        run(async {
            let control = control(&server).await;
            let object =
                control.head("bkt", "key", "").await.expect("an answer").expect("an object");
            assert_eq!((object.size_bytes, object.etag.as_str()), (99, ""));
        });
    }

    #[test]
    fn the_bucket_is_followed_to_its_region() {
        for (status, as_header) in [(301, true), (400, false), (307, true)] {
            let server = Server::start(move |head| {
                if head.contains("/eu-west-1/s3/aws4_request") {
                    return Reply::new(200, Server::page(&[("k", 1)], None));
                }
                let region = "<Error><Code>Moved</Code><Region>eu-west-1</Region></Error>";
                match as_header {
                    true => Reply::new(status, "").header("x-amz-bucket-region", "eu-west-1"),
                    false => Reply::new(status, region),
                }
            });
            run(async {
                let control = control(&server).await;
                let page = control.list_page("bkt", &ListQuery::new("")).await.expect("a page");
                assert_eq!(page.objects.len(), 1);
                let endpoint =
                    control.endpoint("bkt", GrantTarget::ALL).await.expect("an endpoint");
                assert_eq!(endpoint.region, "eu-west-1");
            });
            assert_eq!(server.seen().len(), 2);
        }
    }

    #[test]
    fn a_region_that_was_asked_or_is_none_is_not_advised() {
        for region in ["us-east-1", "example.com/"] {
            let server = Server::start(move |_| {
                let body = "<Error><Code>PermanentRedirect</Code></Error>";
                Reply::new(301, body).header("x-amz-bucket-region", region)
            });
            run(async {
                let control = control(&server).await;
                let page = control.list_page("bkt", &ListQuery::new("")).await;
                let error = page.expect_err("no place");
                let advice = "it does not say where to: check --endpoint-url and --region";
                assert_eq!(error.advice(), Some(advice), "{region}");
            });
            assert_eq!(server.seen().len(), 1);
        }
    }

    /// The keys below it would be missing, and `sync --delete` would remove their files.
    #[test]
    fn folders_that_were_not_asked_for_are_refused() {
        let server = Server::start(|_| Reply::new(200, Server::folders(&["other/"])));
        run(async {
            let control = control(&server).await;
            let by_folder = ListQuery { by_folder: true, ..ListQuery::new("") };
            assert_eq!(control.list_page("bkt", &by_folder).await.expect("one").folders.len(), 1);
            let error = control.list_page("bkt", &ListQuery::new("")).await.expect_err("keys lack");
            assert!(
                error.to_string().contains("has the folder 'other/' instead of the keys"),
                "{error}"
            );
        });
    }

    #[test]
    fn a_bucket_that_moves_for_ever_is_an_error() {
        let server = Server::start(|head| {
            let next = if head.contains("/eu-1/") { "eu-2" } else { "eu-1" };
            Reply::new(301, "").header("x-amz-bucket-region", next)
        });
        run(async {
            let control = control(&server).await;
            let error = control.list_page("bkt", &ListQuery::new("")).await.expect_err("no end");
            assert_eq!(error.kind(), ErrorKind::Endpoint);
        });
        assert_eq!(server.seen().len(), 3);
    }

    #[test]
    fn a_busy_server_is_asked_again() {
        let busy = std::sync::atomic::AtomicU32::new(2);
        let server = Server::start(move |_| {
            use std::sync::atomic::Ordering::SeqCst;
            if busy.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Reply::new(503, "<Error><Code>SlowDown</Code></Error>");
            }
            Reply::new(200, Server::page(&[("k", 1)], None))
        });
        run(async {
            let control = control(&server).await;
            let page = control.list_page("bkt", &ListQuery::new("")).await.expect("a page");
            assert_eq!(page.objects[0].key, "k");
            assert_eq!(control.retries().iter().sum::<u64>(), 2);
        });
    }

    #[test]
    fn a_connection_closed_while_idle_is_stale_and_no_failure() {
        let server = Server::start(|_| Reply::new(200, Server::page(&[], None)).closing());
        run(async {
            let control = control(&server).await;
            for _ in 0..3 {
                control.list_page("bkt", &ListQuery::new("")).await.expect("a page");
            }
            let mut retries = control.retries();
            // Or its end was noticed before it was reused.
            assert!(std::mem::take(&mut retries[RetryReason::Stale as usize]) <= 2);
            assert_eq!(retries, RetryCounts::default());
        });
    }

    #[test]
    fn a_server_that_is_silent_is_asked_once_more() {
        let asked = AtomicU32::new(0);
        let server = Server::start(move |_| {
            let key = match asked.fetch_add(1, Ordering::SeqCst) {
                0 => {
                    std::thread::sleep(NEXT_QUESTION_AFTER * 3);
                    "first"
                }
                _ => "second",
            };
            Reply::new(200, Server::page(&[(key, 1)], None))
        });
        run(async {
            let control = control(&server).await;
            let page = control.list_page("bkt", &ListQuery::new("")).await.expect("a page");
            assert_eq!(
                (page.objects[0].key.as_str(), control.retries().iter().sum::<u64>()),
                ("second", 1)
            );
        });
    }

    #[test]
    fn refusals_name_the_bucket_and_the_reason() {
        let body = "<Error><Code>NoSuchBucket</Code><Message>none</Message></Error>";
        let server = Server::start(move |_| Reply::new(404, body));
        run(async {
            let control = control(&server).await;
            let error = control.list_page("bkt", &ListQuery::new("a/")).await.expect_err("none");
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let line = error.to_string();
            assert!(
                line.starts_with("list s3://bkt/a/: the server answered 404 NoSuchBucket"),
                "{line}"
            );
        });
    }

    #[test]
    fn the_same_token_again_is_an_error() {
        let server = Server::start(|_| Reply::new(200, Server::page(&[("k", 1)], Some("t"))));
        run(async {
            let control = control(&server).await;
            let mut query = ListQuery::new("");
            query.token = control.list_page("bkt", &query).await.expect("a page").next_token;
            let error = control.list_page("bkt", &query).await.expect_err("a loop");
            assert!(error.to_string().contains("same continuation token"), "{error}");
        });
    }

    #[test]
    fn a_server_that_is_not_there_is_reported() {
        run(async {
            let options = ControlOptions {
                endpoint_url: Some(loopback::closed_url()),
                region: Some("us-east-1".to_owned()),
                credentials: CredentialSource::Anonymous,
                ..ControlOptions::default()
            };
            let control = Control::new(options).await.expect("a control");
            let error = control.list_page("bkt", &ListQuery::new("")).await.expect_err("nobody");
            assert_eq!(error.kind(), ErrorKind::Endpoint);
            let line = error.to_string();
            assert!(line.contains("tried 6 times") && line.contains("127.0.0.1:"), "{line}");
        });
    }

    #[test]
    fn keys_that_have_expired_are_replaced() {
        let server = Server::start(|head| match head.contains("Credential=NEW/") {
            true => Reply::new(200, Server::page(&[], None)),
            false => Reply::new(400, "<Error><Code>ExpiredToken</Code></Error>"),
        });
        for (given, expected) in
            [(&["OLD", "NEW"], None), (&["OLD", "LATE"], Some(ErrorKind::Access))]
        {
            run(async {
                let mut control = control(&server).await;
                control.key_refresher = auth::credentials::giving(given).await;
                let outcome = control.list_page("bkt", &ListQuery::new("")).await;
                assert_eq!(outcome.err().map(|error| error.kind()), expected);
                assert_eq!(control.keys().version(), 2);
            });
        }
    }

    #[test]
    fn answers_are_bounded() {
        let server = Server::start(|head| {
            let long = " ".repeat(ERROR_BODY_BYTES_MAX + 1);
            Reply::new(403, if head.starts_with("HEAD") { String::new() } else { long })
        });
        run(async {
            let control = control(&server).await;
            let error = control.head("bkt", "key", "").await.expect_err("too long");
            assert!(error.to_string().contains("more than 65536 bytes"), "{error}");
        });
    }

    #[test]
    fn a_password_in_the_url_of_sts_is_not_repeated() {
        for url in ["me:hunter2@minio.test", "https://me:hunter2@minio.test"] {
            let settings = Settings::of(&[("AWS_ENDPOINT_URL_STS", url)], &[], None);
            let error =
                urls_of(&settings.expect("no files"), vec![chain_http::CredentialService::Sts]);
            let error = error.expect_err(url).to_string();
            assert!(error.starts_with("AWS_ENDPOINT_URL_STS: "), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_region_that_is_none_is_refused() {
        run(async {
            let options = ControlOptions {
                endpoint_url: Some("http://127.0.0.1:1".to_owned()),
                region: Some("evil.example/".to_owned()),
                credentials: CredentialSource::Anonymous,
                ..ControlOptions::default()
            };
            let error = Control::new(options).await.expect_err("no region");
            assert_eq!(error.kind(), ErrorKind::Usage);
        });
    }
}
