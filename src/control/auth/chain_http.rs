//! HTTP of the credential chain: sends its requests to STS, single sign-on, AWS's sign-in service,
//! a container's agent and the instance's metadata service.
//!
//! Most of them are made and repeated by aws-config and the SDK's clients. All use the certificates
//! and proxies of the run, each on its own connection: a run makes a handful of them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header, uri};
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use rustls::ClientConfig;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::chain_answers;
use crate::control::client::connecting::open;
use crate::control::client::{Trouble, passing, read_body};
use crate::control::dns::resolver::{Resolver, is_local, reachable};
use crate::control::limits::{
    ANSWER_TIMEOUT, CONNECT_TIMEOUT, CONNECT_WAITS_MAX, CREDENTIALS_ANSWER_BYTES_MAX,
    KEYS_ATTEMPTS_MAX, KEYS_PAUSE,
};
use crate::control::settings::{ENDPOINT_URL, Found};
use crate::control::tls::{Trust, client_config};
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::s3::Endpoint;
use crate::s3::answer::{self, ServerError};
use crate::s3::proxy::{Proxies, Proxy};

/// A service that gives credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialService {
    Sts,
    /// Single sign-on: the credentials of a role.
    Sso,
    /// Single sign-on: refreshes a session.
    SsoOidc,
    /// Renews the keys of a session of `aws login`.
    SignIn,
}

impl CredentialService {
    /// Its name in settings.
    pub(in crate::control) const fn name(self) -> &'static str {
        match self {
            Self::Sts => "sts",
            Self::Sso => "sso",
            Self::SsoOidc => "sso_oidc",
            Self::SignIn => "signin",
        }
    }

    /// Its name in messages.
    const fn label(self) -> &'static str {
        match self {
            Self::Sts => "STS",
            Self::Sso | Self::SsoOidc => "single sign-on",
            Self::SignIn => "AWS Sign-In",
        }
    }

    /// False if the body cannot be an answer of this service: then it is one of another server, or
    /// a page of a proxy.
    fn may_say(self, body: &[u8]) -> bool {
        match (self, std::str::from_utf8(body)) {
            (_, Err(_)) => false,
            // `AssumeRoleResponse`, `ErrorResponse`; errors of S3 are an `Error`.
            (Self::Sts, Ok(text)) => {
                text.is_empty() || root_of(text).is_some_and(|name| name.ends_with("Response"))
            }
            (_, Ok(text)) => text.is_empty() || text.trim_start().starts_with('{'),
        }
    }
}

/// The name of the outermost element of XML, with its prefix; `None` if the text begins otherwise.
fn root_of(text: &str) -> Option<&str> {
    let mut rest = text.trim_start();
    if let Some(declared) = rest.strip_prefix("<?") {
        rest = declared.split_once("?>")?.1.trim_start();
    }
    rest.strip_prefix('<')?.split(|end: char| end.is_whitespace() || "/>".contains(end)).next()
}

/// URLs of services by environment and profile; other services are at AWS.
pub(crate) type Urls = Vec<(CredentialService, Found)>;

/// The chain's HTTP connector.
#[derive(Debug, Clone)]
pub(crate) struct ChainHttp {
    way: Arc<Way>,
    /// The service that is requested; `None` for the agents of a container and an instance.
    service: Option<CredentialService>,
    /// The setting with the URL that is requested; `None`: that of AWS.
    from: Option<Arc<str>>,
}

#[derive(Debug)]
struct Way {
    trust: Trust,
    proxies: Proxies,
    urls: Urls,
    tls: OnceLock<Arc<ClientConfig>>,
    last: Mutex<Option<Asked>>,
}

/// The last request.
#[derive(Debug)]
struct Asked {
    /// Its destination, and the proxy.
    endpoint: Arc<Endpoint>,
    /// Its answer's status.
    status: Option<u16>,
    service: Option<CredentialService>,
    /// The service does not answer like this; code and message if S3 does.
    foreign: Option<String>,
    /// The setting with its URL.
    from: Option<Arc<str>>,
    /// The error of its answer, if that is a redirect.
    redirect: Option<Error>,
}

impl ChainHttp {
    pub(crate) fn new(trust: Trust, proxies: Proxies, urls: Urls) -> Self {
        let (tls, last) = (OnceLock::new(), Mutex::default());
        let way = Arc::new(Way { trust, proxies, urls, tls, last });
        Self { way, service: None, from: None }
    }

    /// This way, for requests to `service`.
    pub(super) fn of(&self, service: CredentialService) -> Self {
        let from = self.found(service).map(|found| found.from.as_str().into());
        Self { way: Arc::clone(&self.way), service: Some(service), from }
    }

    /// This way, for requests to the URL of this setting.
    pub(super) fn by(&self, setting: &str) -> Self {
        Self { from: Some(setting.into()), ..self.clone() }
    }

    /// The error of a timeout after this time; `None` if no request was sent.
    pub(crate) fn late(&self, within: Duration) -> Option<Error> {
        let why = format!("no credentials within {} s", within.as_secs());
        let last = self.way.last();
        last.as_ref().map(|asked| away(&asked.endpoint, asked.from.as_deref(), &why))
    }

    /// The setting with the URL of the last request, if it is not AWS's.
    pub(super) fn led_by(&self) -> Option<Arc<str>> {
        self.way.last().as_ref().and_then(|asked| asked.from.clone())
    }

    /// Forgets the last request.
    pub(crate) fn begin(&self) {
        *self.way.last() = None;
    }

    /// The error of the last request, if its answer has no keys, with the answer's `reason`. With a
    /// status of 500 or more the server has failed, and the request is not at fault. `of_profile`:
    /// the advice about it, where no setting of a URL is.
    pub(crate) fn failed(&self, reason: &str, of_profile: Option<String>) -> Option<Error> {
        let last = self.way.last();
        let Asked { endpoint, status, service, foreign, from, .. } = last.as_ref()?;
        let (status, host) = ((*status)?, &endpoint.host);
        let is_good = (200..300).contains(&status);
        let service = service.map(CredentialService::label);
        let message = match service.zip(foreign.as_ref()) {
            Some((service, _)) if is_good => {
                format!("the answer of {host} is not one of {service}")
            }
            Some((service, said)) => {
                format!("{host} answers {status}{said}, and not as {service} does")
            }
            None if is_good && !reason.is_empty() => return None,
            None if is_good => format!("the answer of {host} has no keys"),
            None if reason.is_empty() => format!("{host} answers {status}"),
            None => format!("{host} answers {status}: {reason}"),
        };
        // Where the service itself refuses, it is the right one.
        let is_right = service.is_some() && foreign.is_none() && !reason.is_empty();
        let from = from.as_deref().filter(|_| !is_right);
        let advice = check(from);
        if status < 500 {
            let advice = of_profile.filter(|_| from.is_none()).unwrap_or(advice);
            return Some(Error::new(ErrorKind::Access, message).advise(advice));
        }
        let error = Error::new(ErrorKind::Endpoint, message).because(ErrorReason::Server);
        let advice = format!("try again later, or {advice}");
        Some(error.advise(endpoint.advice(&advice)))
    }

    /// The error of the last request, whose good answer has no keys for this reason.
    pub(super) fn without_keys(&self, why: &str) -> ConnectorError {
        let host = self.last_host().unwrap_or_default();
        let error = Error::new(ErrorKind::Access, format!("the answer of {host} {why}"));
        lasting(error.advise(check(self.from.as_deref())))
    }

    /// The error of the last request, if its answer is a redirect.
    pub(super) fn redirect(&self) -> Option<Error> {
        self.way.last().as_ref().and_then(|asked| asked.redirect.clone())
    }

    /// The host of the last request.
    pub(crate) fn last_host(&self) -> Option<String> {
        self.way.last().as_ref().map(|asked| asked.endpoint.host.clone())
    }

    /// Sends a request that no client of the SDK makes, again where it gets no answer or the server
    /// fails; returns status and body. With `addresses` its host is asked there, through no proxy:
    /// a second look-up might find others.
    pub(super) async fn send(
        &self,
        request: impl Fn() -> http::Result<Request<SdkBody>>,
        addresses: Option<&[IpAddr]>,
    ) -> Result<(u16, Bytes), ConnectorError> {
        let connector = self.connector(CONNECT_TIMEOUT, ANSWER_TIMEOUT);
        let connector = Connector { addresses: addresses.map(<[_]>::to_vec), ..connector };
        let mut attempt = 1;
        loop {
            let request = request().map_err(|error| unusable(&error))?;
            let outcome = connector.exchange(request).await;
            let may_pass = match &outcome {
                Ok(answer) => {
                    let status = answer.status();
                    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
                }
                Err(error) => error.is_io() || error.is_timeout(),
            };
            if attempt == KEYS_ATTEMPTS_MAX || !may_pass {
                let answer = outcome?;
                return Ok((answer.status().as_u16(), answer.into_body()));
            }
            sleep(KEYS_PAUSE.mul_f64(fastrand::f64()) * attempt).await;
            attempt += 1;
        }
    }

    fn connector(&self, connect_timeout: Duration, answer_timeout: Duration) -> Connector {
        let (way, service, from) = (Arc::clone(&self.way), self.service, self.from.clone());
        Connector { way, service, from, addresses: None, connect_timeout, answer_timeout }
    }

    /// The URL of a service by environment and profile; `None`: at AWS.
    pub(crate) fn url(&self, service: CredentialService) -> Option<&str> {
        self.found(service).map(|found| found.value.as_str())
    }

    fn found(&self, service: CredentialService) -> Option<&Found> {
        self.way.urls.iter().find(|(named, _)| *named == service).map(|(_, found)| found)
    }
}

impl HttpClient for ChainHttp {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.connector(
            settings.connect_timeout().unwrap_or(CONNECT_TIMEOUT),
            settings.read_timeout().unwrap_or(ANSWER_TIMEOUT),
        ))
    }
}

/// The connector with the timeouts of one kind of request.
#[derive(Debug, Clone)]
struct Connector {
    way: Arc<Way>,
    service: Option<CredentialService>,
    from: Option<Arc<str>>,
    /// Those of the server; `None`: by its name, or through a proxy.
    addresses: Option<Vec<IpAddr>>,
    /// For the name, the connection and TLS together.
    connect_timeout: Duration,
    /// For the whole answer.
    answer_timeout: Duration,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let connector = self.clone();
        HttpConnectorFuture::new(async move { connector.ask(request).await })
    }
}

impl Connector {
    async fn ask(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let request = request.try_into_http1x().map_err(|error| unusable(&error))?;
        let answer = self.exchange(request).await?;
        HttpResponse::try_from(answer.map(SdkBody::from)).map_err(|error| unusable(&error))
    }

    async fn exchange(&self, request: Request<SdkBody>) -> Result<Response<Bytes>, ConnectorError> {
        let mut endpoint = self.way.endpoint(request.uri())?;
        if self.addresses.is_some() {
            endpoint.proxy = None;
        }
        let endpoint = Arc::new(endpoint);
        let begun = Asked {
            endpoint: Arc::clone(&endpoint),
            status: None,
            service: self.service,
            foreign: None,
            from: self.from.clone(),
            redirect: None,
        };
        *self.way.last() = Some(begun);
        let request = for_wire(request, &endpoint)?;
        let method = request.method().clone();
        let (sender, address) = timeout(self.connect_timeout, self.connect(&endpoint))
            .await
            .unwrap_or_else(|_| Err(self.late("connection to", &endpoint, self.connect_timeout)))?;
        let answer = timeout(self.answer_timeout, exchange(sender, request))
            .await
            .map_err(|_| self.late("answer from", &endpoint, self.answer_timeout))?
            .map_err(|trouble| self.failed(trouble, &endpoint))?;
        let (status, host) = (answer.status().as_u16(), &endpoint.host);
        debug!("credentials: {method} at {host} ({address}): {status}");
        let foreign = self.service.filter(|service| !service.may_say(answer.body()));
        let foreign = foreign.map(|_| said_as_s3(status, answer.body()));
        let redirect = redirect(status, answer.headers(), host, self.from.as_deref());
        *self.way.last() = Some(Asked {
            endpoint: Arc::clone(&endpoint),
            status: Some(status),
            service: self.service,
            foreign,
            from: self.from.clone(),
            redirect,
        });
        if let Some(relay) = endpoint.relay().filter(|_| status == 407) {
            return Err(lasting(relay.refusal(status, host)));
        }
        let (mut head, body) = answer.into_parts();
        head.headers.remove(header::CONTENT_LENGTH);
        let body = chain_answers::answered(body)
            .map_err(|why| unusable(&format_args!("{host}: {why}")))?;
        Ok(Response::from_parts(head, body))
    }

    /// Connects to one of the addresses, and returns which; each has its share of the time.
    async fn connect(
        &self,
        endpoint: &Endpoint,
    ) -> Result<(SendRequest<Full<Bytes>>, SocketAddr), ConnectorError> {
        let tls = endpoint.tls.then(|| self.way.tls_config()).transpose()?;
        let (name, port) = endpoint.next_hop();
        let found = match &self.addresses {
            Some(addresses) => addresses.clone(),
            None => Resolver::System.look_up(name).await.map(|found| found.addresses).map_err(
                |not_found| {
                    let why = format!("the name {name} cannot be resolved: {}", not_found.why);
                    ConnectorError::io(self.away(endpoint, &why).into())
                },
            )?,
        };
        let addresses = found.into_iter().map(|address| (address, port).into());
        let mut addresses = reachable(addresses.collect(), &[]);
        fastrand::shuffle(&mut addresses);
        addresses.truncate(CONNECT_WAITS_MAX);
        let share = self.connect_timeout / u32::try_from(addresses.len().max(1)).unwrap_or(1);
        let why = format!("{name} has no address");
        let mut last = ConnectorError::io(self.away(endpoint, &why).into());
        for address in addresses {
            match timeout(share, open(endpoint, address, None, tls.clone())).await {
                Ok(Ok(sender)) => return Ok((sender, address)),
                Ok(Err(Trouble::Lasting(error))) => return Err(lasting(error)),
                Ok(Err(trouble)) => last = self.failed(trouble, endpoint),
                Err(_) => last = self.late("connection to", endpoint, share),
            }
        }
        Err(last)
    }

    /// The failure for aws-config, which retries transient ones.
    fn failed(&self, trouble: Trouble, endpoint: &Endpoint) -> ConnectorError {
        match trouble {
            Trouble::Passing(_, _, why) => {
                ConnectorError::io(self.away(endpoint, why.message()).caused_as(&why).into())
            }
            Trouble::Lasting(error) => lasting(error),
        }
    }

    fn late(&self, what: &str, endpoint: &Endpoint, within: Duration) -> ConnectorError {
        let why = format!("no {what} it within {} s", within.as_secs_f32());
        ConnectorError::timeout(self.away(endpoint, &why).into())
    }

    fn away(&self, endpoint: &Endpoint, why: &str) -> Error {
        away(endpoint, self.from.as_deref(), why)
    }
}

impl Way {
    fn last(&self) -> MutexGuard<'_, Option<Asked>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoint of a URL, and the proxy for it.
    fn endpoint(&self, url: &Uri) -> Result<Endpoint, ConnectorError> {
        let tls = url.scheme() == Some(&uri::Scheme::HTTPS);
        let authority = url.authority().ok_or_else(|| unusable(&"the URL has no host"))?;
        if authority.as_str().contains('@') {
            // It may have a password: neither is repeated.
            return Err(unusable(&"the URL has a user name before its host; omit it"));
        }
        let default = if tls { 443 } else { 80 };
        // As in signatures: without the scheme's default port.
        let host = match authority.port_u16() {
            Some(port) if port != default => format!("{}:{port}", authority.host()),
            _ => authority.host().to_owned(),
        };
        let mut endpoint = Endpoint::new("", tls, &host, "/", "", vec![]);
        if !is_near(endpoint.server_name()) {
            endpoint.proxy = self.proxies.of(&endpoint).map_err(lasting)?;
        }
        Ok(endpoint)
    }

    fn tls_config(&self) -> Result<Arc<ClientConfig>, ConnectorError> {
        if let Some(config) = self.tls.get() {
            return Ok(Arc::clone(config));
        }
        let config = client_config(&self.trust).map_err(lasting)?;
        Ok(Arc::clone(self.tls.get_or_init(|| config)))
    }
}

/// True for hosts on this machine or its link, and for the metadata of EC2 and EKS over IPv6. A
/// proxy would answer for its own machine, and would see the secrets.
fn is_near(name: &str) -> bool {
    match name.parse().map(|address: IpAddr| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            let is_metadata = address.segments()[..2] == [0xfd00, 0x0ec2];
            address.is_loopback() || address.is_unicast_link_local() || is_metadata
        }
        Err(_) => is_local(name),
    }
}

/// The request in HTTP/1.1 form: with the whole URL for a proxy that relays.
fn for_wire(
    request: Request<SdkBody>,
    endpoint: &Endpoint,
) -> Result<Request<Full<Bytes>>, ConnectorError> {
    let (mut head, body) = request.into_parts();
    let body = body.bytes().map(Bytes::copy_from_slice);
    let body = body.ok_or_else(|| unusable(&"the request's body is a stream"))?;
    head.headers.remove(header::CONTENT_LENGTH);
    let header = |text: &str| HeaderValue::from_str(text).map_err(|error| unusable(&error));
    if !head.headers.contains_key(header::HOST) {
        head.headers.insert(header::HOST, header(&endpoint.host)?);
    }
    let relay = endpoint.relay();
    if let Some(authorization) = relay.and_then(Proxy::authorization) {
        let mut value = header(authorization)?;
        value.set_sensitive(true);
        head.headers.insert(header::PROXY_AUTHORIZATION, value);
    }
    if relay.is_none() {
        let target = head.uri.path_and_query().map_or("/", uri::PathAndQuery::as_str);
        head.uri = target.parse().map_err(|error: uri::InvalidUri| unusable(&error))?;
    }
    Ok(Request::from_parts(head, Full::new(body)))
}

async fn exchange(
    mut sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, Trouble> {
    let response = sender.send_request(request).await.map_err(|error| passing(&error))?;
    let (head, body) = response.into_parts();
    let body = read_body(body, CREDENTIALS_ANSWER_BYTES_MAX).await?;
    Ok(Response::from_parts(head, body))
}

/// Code and message of an error as S3 words it, with a space in front; empty if it is none.
fn said_as_s3(status: u16, body: &[u8]) -> String {
    let ServerError { code, message, .. } = answer::explain(status, body, "");
    match (code.is_empty(), message.is_empty()) {
        (true, _) => String::new(),
        (_, true) => format!(" {code}"),
        _ => format!(" {code} ({message})"),
    }
}

/// What to check if the URL of this setting leads nowhere: then AWS's own service may be right.
pub(super) fn check(from: Option<&str>) -> String {
    match from {
        None => "check what the profile or the environment names".to_owned(),
        Some(ENDPOINT_URL) => format!(
            "check {ENDPOINT_URL}: it is for all services, {ENDPOINT_URL}_S3 for S3 alone and \
             {ENDPOINT_URL}_STS for STS"
        ),
        Some(from) => format!("check {from}"),
    }
}

/// The advice if nobody answers there.
pub(super) fn check_network(from: Option<&str>) -> String {
    let named = "the service that the profile or the environment names";
    format!("check the network and {}", from.unwrap_or(named))
}

/// The error of an answer that names another place. What is asked there would get secrets.
fn redirect(status: u16, headers: &HeaderMap, host: &str, from: Option<&str>) -> Option<Error> {
    let mut refusal = ServerError { status, ..ServerError::default() };
    refusal.note_location(headers.get(header::LOCATION)?.to_str().ok()?);
    let to = Some(refusal.leads_to).filter(|to| !to.is_empty())?;
    let message = format!("{host} answers {status}, a redirect to {to}, which is not followed");
    Some(Error::new(ErrorKind::Access, message).advise(check(from)))
}

fn lasting(error: Error) -> ConnectorError {
    ConnectorError::other(error.into(), None)
}

/// The error of a server that cannot be reached or does not answer.
fn away(endpoint: &Endpoint, from: Option<&str>, why: &str) -> Error {
    let host = &endpoint.host;
    // An endpoint without a name is the address itself.
    let why = why.strip_prefix(&format!("{host}: ")).unwrap_or(why);
    Error::new(ErrorKind::Endpoint, format!("{host} does not answer: {why}"))
        .advise(endpoint.advice(&check_network(from)))
}

fn unusable(why: &dyn std::fmt::Display) -> ConnectorError {
    ConnectorError::user(why.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::loopback::{Reply, Server, run};

    fn proxies() -> Proxies {
        let proxy = |name: &str| (name == "all_proxy").then(|| "http://u:p@127.0.0.1:3128".into());
        Proxies::from_variables(proxy)
    }

    fn way() -> Way {
        let (tls, last) = (OnceLock::new(), Mutex::default());
        Way { trust: Trust::System, proxies: proxies(), urls: vec![], tls, last }
    }

    fn endpoint(url: &str) -> Endpoint {
        way().endpoint(&url.parse().expect("a URL")).expect("an endpoint")
    }

    #[test]
    fn nobody_near_is_asked_through_a_proxy() {
        for url in [
            "http://169.254.169.254/latest/api/token",
            "http://[fd00:ec2::254]/latest/api/token",
            "http://169.254.170.2/v2/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
            "http://127.0.0.1:9911/",
            "http://[::1]:9911/",
            "http://[fe80::1]/",
            "https://localhost:9911/",
            "http://LOCALHOST.:9911/",
            "http://sts.localhost/",
            "http://[::ffff:127.0.0.1]:9911/",
            "http://[::ffff:169.254.169.254]/latest/api/token",
        ] {
            assert_eq!(endpoint(url).proxy, None, "{url}");
        }
        for url in [
            "https://sts.eu-west-1.amazonaws.com/",
            "http://10.0.0.1/",
            "http://[fd00::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://notlocalhost/",
        ] {
            assert!(endpoint(url).proxy.is_some(), "{url}");
        }
    }

    /// Neither a name server nor a proxy decides where its token goes.
    #[test]
    fn a_host_with_known_addresses_is_asked_at_these() {
        let server = Server::start(|_| Reply::new(200, "{}"));
        let http = ChainHttp::new(Trust::System, proxies(), vec![]);
        let url = format!("http://agent.invalid:{}/c", server.address.port());
        let url: Uri = url.parse().expect("a URL");
        let request = || Request::get(&url).body(SdkBody::empty());
        let answer = run(http.send(request, Some(&[server.address.ip()])));
        assert_eq!(answer.expect("an answer").0, 200);
        assert!(server.seen()[0].starts_with("GET /c HTTP/1.1\r\n"), "{:?}", server.seen());
    }

    #[test]
    fn hosts_are_as_signatures_have_them() {
        for (url, host, name, port) in [
            ("https://sts.test:443/", "sts.test", "sts.test", 443),
            ("http://sts.test:80/", "sts.test", "sts.test", 80),
            ("http://sts.test:443/", "sts.test:443", "sts.test", 443),
            ("https://sts.test:/", "sts.test", "sts.test", 443),
            ("https://[fd00::1]:443/", "[fd00::1]", "fd00::1", 443),
            ("https://[fd00::1]:80/", "[fd00::1]:80", "fd00::1", 80),
            ("https://[fd00::1]/", "[fd00::1]", "fd00::1", 443),
        ] {
            let endpoint = endpoint(url);
            let found = (endpoint.host.as_str(), endpoint.server_name(), endpoint.port());
            assert_eq!(found, (host, name, port), "{url}");
        }
    }

    #[test]
    fn a_user_in_a_url_is_refused_and_not_repeated() {
        for url in ["https://me:pass@sts.test/", "http://me@127.0.0.1:9/", "http://:pass@[::1]/"] {
            let refused = way().endpoint(&url.parse().expect("a URL")).expect_err("a user");
            let message = format!("{refused:?} {refused}");
            assert!(message.contains("user name before its host"), "{message}");
            assert!(!message.contains("me:") && !message.contains("pass"), "{message}");
        }
    }

    #[test]
    fn requests_name_the_server_and_relays_get_the_whole_url() {
        let written = |url: &str| {
            let request = Request::get(url).body(SdkBody::from("x")).expect("a request");
            let request = for_wire(request, &endpoint(url)).expect("a request");
            let header =
                |name| request.headers().get(name).map(|value| value.to_str().expect("text"));
            let authorization = header(header::PROXY_AUTHORIZATION).map(str::to_owned);
            (request.uri().to_string(), header(header::HOST).map(str::to_owned), authorization)
        };
        let near = ("/a?b=c".to_owned(), Some("127.0.0.1:99".to_owned()), None);
        assert_eq!(written("http://127.0.0.1:99/a?b=c"), near);
        let tunnelled = ("/".to_owned(), Some("sts.test".to_owned()), None);
        assert_eq!(written("https://sts.test"), tunnelled);
        // `printf u:p | base64`
        let basic = Some("Basic dTpw".to_owned());
        let relayed = ("http://sts.test/a?b".to_owned(), Some("sts.test".to_owned()), basic);
        assert_eq!(written("http://sts.test/a?b"), relayed);
    }
}
