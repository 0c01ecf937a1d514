//! Objects that are named by a URL: looked up by a GET of their first byte, without a signature,
//! and their redirects followed; and again when the server of the last target refuses it.
//!
//! A URL that is presigned for a GET refuses HEAD. Each server gets the URL that leads to it, and
//! nothing of the others: no query, no `Referer`, no credentials.

mod servers;

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use futures_util::{StreamExt as _, stream};
use http::Method;
use tokio::time::timeout;
use tracing::{info, warn};

use self::servers::WebServers;
use super::client::{Answer, Question};
use super::limits::{SOURCES_ASKED_MAX, URL_RENEWAL_TIMEOUT};
use super::list::sources::{Missing, Source, SourceKind, Unresolved};
use super::{Control, dns, now, object_of, server_error};
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::s3::answer::{ERROR_BODY_BYTES_MAX, leads_elsewhere};
use crate::s3::redirect::RedirectChain;
use crate::s3::sign::{NO_SERVICE, PublishedKeys};
use crate::s3::uri::S3Uri;
use crate::s3::web::{WebTarget, WebUrl};
use crate::s3::{Endpoint, Object};

/// The objects of a run that URLs name.
#[derive(Debug, Default)]
pub(super) struct WebObjects {
    /// Each while it is used, and their endpoints.
    targets: RefCell<Vec<(Weak<WebTarget>, Arc<Endpoint>)>>,
    servers: WebServers,
}

impl WebObjects {
    /// Those whose targets were refused since the last call.
    fn take_refused(&self) -> Vec<(Arc<WebTarget>, Arc<Endpoint>)> {
        let mut all = self.targets.borrow_mut();
        all.retain(|(web, _)| web.strong_count() > 0);
        let used = all.iter().filter_map(|(web, endpoint)| Some((web.upgrade()?, endpoint)));
        let refused = used.filter(|(web, _)| web.take_refusal());
        refused.map(|(web, endpoint)| (web, Arc::clone(endpoint))).collect()
    }
}

/// The end of a URL's redirects.
struct Landing {
    url: WebUrl,
    endpoint: Endpoint,
    answer: Answer,
    /// The request, for messages.
    what: String,
}

impl Landing {
    /// True if there is no such object.
    fn is_missing(&self) -> bool {
        matches!(self.answer.status, 404 | 410)
    }

    /// The object.
    ///
    /// # Errors
    /// The server's refusal, or what is wrong with its answer.
    fn object(&self, key: &str) -> Result<Object> {
        match self.answer.status {
            200 | 206 | 416 => object_of(key, &self.answer).map_err(|error| {
                let error = error.because(ErrorReason::Server).within(&self.what);
                error.advise("a URL is downloaded only if its server says how long it is")
            }),
            _ => Err(self.refusal()),
        }
    }

    fn refusal(&self) -> Error {
        let tries = self.answer.tries;
        let tried = if tries > 1 { format!(" (tried {tries} times)") } else { String::new() };
        let refusal = server_error(&self.answer).of_url();
        let error = refusal.into_error(&format!("{}{tried}", self.what)).attempted(tries);
        self.url.advise(error, Some(now()))
    }

    /// True if it is at this endpoint.
    fn is_at(&self, endpoint: &Endpoint) -> bool {
        (self.endpoint.tls, &self.endpoint.host) == (endpoint.tls, &endpoint.host)
    }
}

impl Control {
    /// Resolves a URL to its object. What fails with its server says nothing of other URLs.
    pub(super) async fn resolve_url(
        &self,
        uri: &S3Uri,
        source: &WebUrl,
    ) -> Result<Source, Unresolved> {
        self.find_url(uri, source).await.map_err(|error| match error.kind() {
            ErrorKind::Access | ErrorKind::NotFound | ErrorKind::Endpoint | ErrorKind::Objects => {
                let (uri, endpoint) = (uri.clone(), Arc::new(endpoint_of(source, source)));
                Unresolved::Missing(Box::new(Missing { uri, endpoint, error }))
            }
            _ => Unresolved::Failed(error),
        })
    }

    async fn find_url(&self, uri: &S3Uri, source: &WebUrl) -> Result<Source> {
        let landing = self.look_up(source, Some(&self.web.servers)).await?;
        let object = landing.object(uri.literal_key())?;
        let is_whole_only = landing.answer.status == 200;
        if is_whole_only && object.size_bytes > 0 {
            info!("{source}: the server ignores Range: it is downloaded by one request");
        }
        let web = Arc::new(WebTarget::new(source.clone(), &landing.url, is_whole_only));
        let endpoint = self.settle_web(source, landing).await?;
        let known = (Arc::downgrade(&web), Arc::clone(&endpoint));
        self.web.targets.borrow_mut().push(known);
        let found = SourceKind::Object(Object { web: Some(web), ..object });
        Ok(Source { uri: uri.clone(), endpoint, found, first_page: None })
    }

    /// The object as it is now; `None` if it is gone.
    pub(crate) async fn object_now(
        &self,
        endpoint: &Endpoint,
        object: &Object,
    ) -> Result<Option<Object>> {
        let Some(web) = &object.web else {
            return self.head(&endpoint.bucket, &object.key, &object.version_id).await;
        };
        let landing = self.look_up(web.source(), None).await?;
        if landing.is_missing() {
            return Ok(None);
        }
        let now = landing.object(&object.key)?;
        if !landing.is_at(endpoint) {
            return Err(moved(&landing, endpoint));
        }
        web.publish(&landing.url);
        Ok(Some(Object { web: Some(Arc::clone(web)), ..now }))
    }

    /// Follows the redirects of URLs again whose last targets were refused.
    pub(super) async fn renew_refused_urls(&self) {
        let refused = self.web.take_refused();
        let renewals = refused.into_iter().map(async |(web, endpoint)| {
            let renewed = match web.renew() {
                true => match timeout(URL_RENEWAL_TIMEOUT, self.renewed(&web, &endpoint)).await {
                    Ok(renewed) => renewed,
                    // Its ranges are refused again, and it is looked up again.
                    Err(_) => return endpoint.session.iter().for_each(|it| it.publish(None)),
                },
                false => {
                    let message = "the server refuses it again each time that it is looked up";
                    Err(Error::new(ErrorKind::Access, message))
                }
            };
            match renewed {
                Ok(url) => web.publish(&url),
                Err(error) => {
                    warn!("{}: no newer address: {error}", web.source());
                    let request = format!("get {}: ", web.source());
                    let why = error.message();
                    let why = why.strip_prefix(&request).unwrap_or(why);
                    web.fail(format!("looked up again: {why}"));
                }
            }
            // Its ranges look at what is new.
            endpoint.session.iter().for_each(|session| session.publish(None));
        });
        stream::iter(renewals).buffer_unordered(SOURCES_ASKED_MAX).collect::<()>().await;
    }

    async fn renewed(&self, web: &WebTarget, endpoint: &Endpoint) -> Result<WebUrl> {
        info!("{}: the server refuses it now: looking it up again", web.source());
        let landing = self.look_up(web.source(), None).await?;
        landing.object("")?;
        match landing.is_at(endpoint) {
            true => Ok(landing.url),
            false => Err(moved(&landing, endpoint)),
        }
    }

    /// Requests the first byte of a URL's object, and follows redirects to it. `servers`: what is
    /// known of servers, of which those that are gone are not asked.
    async fn look_up(&self, source: &WebUrl, servers: Option<&WebServers>) -> Result<Landing> {
        let mut what = format!("get {source}");
        let mut chain = RedirectChain::from(source.clone());
        loop {
            let url = chain.url().clone();
            let asked = self.ask_known(source, &url, &what, servers).await;
            let (endpoint, answer) =
                asked.map_err(|error| url.advise(error, None).within(&what))?;
            if !leads_elsewhere(answer.status) {
                return Ok(Landing { url, endpoint, answer, what });
            }
            follow(&mut chain, &answer).map_err(|(why, advice)| {
                let error = Error::new(ErrorKind::Endpoint, why).because(ErrorReason::Server);
                error.within(&what).advise(advice)
            })?;
            info!("redirect: {url} leads to {}", chain.url());
            what = format!("get {source}, which leads to {}", chain.url());
        }
    }

    /// Asks a URL's server, unless it is known to be gone.
    async fn ask_known(
        &self,
        source: &WebUrl,
        url: &WebUrl,
        what: &str,
        servers: Option<&WebServers>,
    ) -> Result<(Endpoint, Answer)> {
        let origin = url.origin();
        let answers = servers
            .map_or(Ok(0), |servers| servers.begin(&origin, self.client.retry_budget().now_us()))?;
        let asked = async {
            let endpoint = self.place_web(source, url).await?;
            let answer = self.ask_web(&endpoint, url, what).await?;
            Ok((endpoint, answer))
        };
        let asked = asked.await;
        servers.into_iter().for_each(|servers| {
            servers.end(&origin, answers, &asked, self.client.retry_budget().now_us());
        });
        asked
    }

    async fn ask_web(&self, endpoint: &Endpoint, url: &WebUrl, what: &str) -> Result<Answer> {
        let question = Question {
            method: Method::GET,
            target: url.target().to_owned(),
            of_object: true,
            headers: vec![("range", "bytes=0-0".into())],
            body_bytes_max: ERROR_BODY_BYTES_MAX,
            leaves_rest: true,
        };
        self.client.ask(endpoint, &question, &PublishedKeys::new(None), what).await
    }

    /// The server of a URL, with its addresses.
    pub(super) async fn place_web(&self, source: &WebUrl, url: &WebUrl) -> Result<Endpoint> {
        let mut endpoint = endpoint_of(source, url);
        endpoint.proxy = self.service.proxies.of(&endpoint)?;
        self.names.resolve(&endpoint, self.client.retry_budget()).await?;
        Ok(endpoint)
    }

    /// The endpoint of all URLs of this source's host that end at this server.
    async fn settle_web(&self, source: &WebUrl, landing: Landing) -> Result<Arc<Endpoint>> {
        let name = format!("{} {}", source.origin(), landing.url.origin());
        if let Some(known) = self.endpoints.borrow().get(&name) {
            return Ok(Arc::clone(known));
        }
        self.keep_web(name, landing.endpoint).await
    }

    /// Keeps a server that is named by a URL under this name; its addresses stay fresh.
    pub(super) async fn keep_web(&self, name: String, endpoint: Endpoint) -> Result<Arc<Endpoint>> {
        dns::interfaces::try_each(&self.interfaces, &endpoint).await?;
        let scheme = if endpoint.tls { "https" } else { "http" };
        info!("{scheme}://{}: {:?}", endpoint.host, endpoint.addresses());
        let mut endpoints = self.endpoints.borrow_mut();
        // Another URL may have been first.
        let endpoint = Arc::clone(endpoints.entry(name).or_insert_with(|| Arc::new(endpoint)));
        drop(endpoints);
        self.met.notify_waiters();
        Ok(endpoint)
    }
}

/// The server of a URL, which `source` leads to. Nothing of the S3 service is for it.
fn endpoint_of(source: &WebUrl, url: &WebUrl) -> Endpoint {
    let mut endpoint = Endpoint::new(&source.origin(), url.is_tls(), url.host(), "", "", vec![]);
    endpoint.service = NO_SERVICE;
    // Never signed; its versions are those of the targets.
    endpoint.session = Some(Arc::new(PublishedKeys::new(None)));
    endpoint
}

/// Follows a redirect.
///
/// # Errors
/// Why it is not followed, and advice for who gave the first URL; no part of a query.
pub(super) fn follow(
    chain: &mut RedirectChain,
    answer: &Answer,
) -> Result<(), (String, &'static str)> {
    let location = answer.headers.get("location");
    let location = location.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let location = location.ok_or_else(|| {
        (format!("the server answered {} without a Location", answer.status), "check the URL")
    })?;
    chain.follow(location)
}

/// The error if a URL leads to another server than before.
fn moved(landing: &Landing, endpoint: &Endpoint) -> Error {
    let message = format!("it leads to another server now, not to {}", endpoint.host);
    let error = Error::new(ErrorKind::Endpoint, message).because(ErrorReason::Server);
    error.within(&landing.what).advise("run it again: what is complete is not downloaded again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::loopback::{Reply, Server, control, run};
    use std::sync::Mutex;

    const SECRET: &str = "X-Amz-Signature=hunter2";

    fn uri(server: &Server, path: &str) -> S3Uri {
        S3Uri::parse_or_url(&format!("http://{}{path}", server.address)).expect("a URL")
    }

    fn there(size: u64) -> Reply {
        Reply::new(206, "x").header("Content-Range", &format!("bytes 0-0/{size}"))
    }

    async fn resolved(server: &Server, path: &str) -> Result<Source> {
        control(server).await.resolve(&uri(server, path)).await
    }

    fn found(source: &Source) -> &Object {
        match &source.found {
            SourceKind::Object(object) => object,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_url_is_asked_for_its_first_byte_without_a_signature() {
        let server = Server::start(|_| there(99).header("ETag", "\"e\""));
        run(async {
            let path = format!("/a%20b/f?{SECRET}");
            let source = resolved(&server, &path).await.expect("it is there");
            let object = found(&source);
            assert_eq!((object.key.as_str(), object.size_bytes), ("a b/f", 99));
            assert_eq!((object.etag.as_str(), object.is_whole_only()), ("\"e\"", false));
            let web = object.web.as_ref().expect("a target");
            assert_eq!(web.current().as_str(), path);
            assert!(!format!("{source:?}").contains("hunter2"));
        });
        let seen = server.seen();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].starts_with(&format!("GET /a%20b/f?{SECRET} HTTP/1.1\r\n")), "{}", seen[0]);
        let head = seen[0].to_ascii_lowercase();
        assert!(head.contains("\r\nrange: bytes=0-0\r\n"), "{head}");
        assert!(!head.contains("authorization") && !head.contains("\r\nx-amz-"), "{head}");
    }

    #[test]
    fn a_server_without_ranges_sends_the_whole_of_which_little_is_read() {
        let body = "x".repeat(3 * ERROR_BODY_BYTES_MAX);
        let server = Server::start(move |_| Reply::new(200, body.clone()));
        run(async {
            let source = resolved(&server, "/f").await.expect("it is there");
            assert!(found(&source).is_whole_only());
            assert_eq!(found(&source).size_bytes, 3 * ERROR_BODY_BYTES_MAX as u64);
        });
    }

    #[test]
    fn what_is_refused_is_explained_without_the_query() {
        let refused = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message>\
                       </Error>";
        let ended = "X-Amz-Date=20240102T030405Z&X-Amz-Expires=60";
        for (reply, kind, expected) in [
            ((403, refused), ErrorKind::Access, "it was valid until 2024-01-02T03:05:05Z"),
            ((401, "<html>"), ErrorKind::Access, "the server answered 401; it has expired"),
            ((404, ""), ErrorKind::NotFound, "check the URL"),
            ((410, ""), ErrorKind::NotFound, "check the URL"),
            ((400, ""), ErrorKind::Endpoint, "check the URL and the network"),
            ((302, ""), ErrorKind::Endpoint, "answered 302 without a Location"),
        ] {
            let server = Server::start(move |_| Reply::new(reply.0, reply.1));
            let path = format!("/f?{ended}&{SECRET}");
            let error = run(async { resolved(&server, &path).await }).expect_err(expected);
            let line = error.to_string();
            assert!(error.kind() == kind && line.contains(expected), "{line}");
            assert!(line.starts_with(&format!("get http://{}/f?...: ", server.address)), "{line}");
            assert!(!line.contains("hunter2") && !line.contains("X-Amz"), "{line}");
        }
    }

    /// Redirects to the number in the path, one less each time, with a secret of its own.
    fn stairs() -> Server {
        Server::start(|head| {
            let path = head.split([' ', '?']).nth(1).unwrap_or_default();
            let step: usize = path.trim_start_matches("/f").parse().unwrap_or(0);
            match step {
                0 => there(7),
                99 => Reply::new(307, "").header("Location", "/f99"),
                step => Reply::new(302, "").header("Location", &format!("f{}?t={step}", step - 1)),
            }
        })
    }

    #[test]
    fn redirects_are_followed_as_far_as_is_usual() {
        let server = stairs();
        run(async {
            let source = resolved(&server, &format!("/f10?{SECRET}")).await.expect("ten");
            assert_eq!(found(&source).web.as_ref().expect("one").current().as_str(), "/f0?t=1");
            assert_eq!((found(&source).key.as_str(), found(&source).size_bytes), ("f10", 7));
            let error = resolved(&server, "/f11").await.expect_err("eleven").to_string();
            assert!(error.contains("more than 10 redirects"), "{error}");
            let error = resolved(&server, "/f99").await.expect_err("a loop").to_string();
            assert!(error.contains("are a loop"), "{error}");
        });
        let seen = server.seen();
        let behind: Vec<_> = seen.iter().filter(|head| !head.starts_with("GET /f10")).collect();
        assert!(behind.iter().all(|head| !head.contains("hunter2")), "{behind:?}");
        assert!(seen.iter().all(|head| !head.to_ascii_lowercase().contains("referer")));
    }

    #[test]
    fn a_refused_target_is_looked_up_again_and_moves_to_no_other_server() {
        let other = Server::start(|_| there(7));
        let location = Arc::new(Mutex::new("/x?n=1".to_owned()));
        let to = Arc::clone(&location);
        let server = Server::start(move |head| match head.starts_with("GET /f") {
            true => Reply::new(302, "").header("Location", &to.lock().expect("no panic")),
            false => there(7),
        });
        run(async {
            let control = control(&server).await;
            let source = control.resolve(&uri(&server, "/f")).await.expect("it is there");
            let web = found(&source).web.clone().expect("a target");
            let session = source.endpoint.session.clone().expect("versions");
            let refuse = async |to: &str| {
                to.clone_into(&mut location.lock().expect("no panic"));
                assert!(web.refuse());
                let version = session.version();
                session.refuse(version);
                assert!(session.are_refused());
                control.renew_refused_urls().await;
                assert!(session.version() == version + 1 && !session.are_refused());
            };
            refuse("/x?n=2").await;
            assert_eq!((web.current().as_str(), web.failure().as_str()), ("/x?n=2", ""));
            refuse(&format!("http://{}/x", other.address)).await;
            assert!(web.failure().contains("it leads to another server now"), "{}", web.failure());
            assert_eq!(web.current().as_str(), "/x?n=2");
            assert!(!web.refuse(), "there will be no newer one");
        });
    }
}
