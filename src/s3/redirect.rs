//! Redirects of requests that are signed: to which servers they lead, and where one object is.
//!
//! Pure. Some servers of S3 are gateways: they redirect a request of an object to the node that has
//! it. The user has not named that node, so it gets the URL of the `Location` alone: no signature,
//! no token, no customer's key.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Endpoint;
use super::web::WebUrl;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::limits::{REDIRECT_SERVERS_MAX, URL_REDIRECTS_MAX};

/// Advice about a redirect that is not followed.
pub const ADVICE: &str = "check --endpoint-url and the redirects of the server";

/// The end of a chain of redirects: a URL and its server.
#[derive(Debug)]
pub struct Elsewhere {
    /// The redirects, from the server that the user named.
    pub chain: RedirectChain,
    /// The server at its end; requests to it are not signed.
    pub endpoint: Arc<Endpoint>,
}

impl Elsewhere {
    /// The URL; its path and query are requested as they are.
    #[must_use]
    pub const fn url(&self) -> &WebUrl {
        self.chain.url()
    }

    /// Gives an error of a request to it the advice for a server that the user has not named and
    /// that gets no credentials.
    #[must_use]
    pub fn advise(&self, error: Error) -> Error {
        let origin = self.url().origin();
        match error.kind() {
            ErrorKind::Access => error.advise(format!(
                "a redirect leads to {origin}, which gets no credentials: if they are for it, give \
                 it with --endpoint-url"
            )),
            ErrorKind::Endpoint
                if error.advice().is_none_or(|advice| advice.contains("--endpoint-url")) =>
            {
                error.advise(format!(
                    "this machine must reach {origin}, too: check the network, and the server's \
                     settings of its nodes"
                ))
            }
            _ => error,
        }
    }

    /// Where it is, for the middle of a message.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!(" at {}, where a redirect leads", self.url().origin())
    }
}

/// The error that a redirect is not followed.
#[must_use]
pub fn refuse(why: &str) -> Error {
    let message = format!("its redirect is not followed: {why}");
    Error::new(ErrorKind::Endpoint, message).because(ErrorReason::Server).advise(ADVICE)
}

/// The redirects of one request: its URLs in turn.
#[derive(Debug, Clone)]
pub struct RedirectChain {
    passed: Vec<WebUrl>,
    url: WebUrl,
}

impl RedirectChain {
    /// None yet, from this URL.
    #[must_use]
    pub const fn from(url: WebUrl) -> Self {
        Self { passed: Vec::new(), url }
    }

    /// The last URL.
    #[must_use]
    pub const fn url(&self) -> &WebUrl {
        &self.url
    }

    /// Follows a `Location`.
    ///
    /// # Errors
    /// Why it is not followed, and advice for who gave the first URL; no part of a query.
    pub fn follow(&mut self, location: &str) -> Result<(), (String, &'static str)> {
        let next = self
            .url
            .follow(location)
            .map_err(|why| (why, "check the URL, or give the one that it leads to"))?;
        self.passed.push(std::mem::replace(&mut self.url, next));
        let next = &self.url;
        if self.passed.contains(next) {
            let why = format!("its redirects are a loop: they lead to {next} again");
            return Err((why, "check the URL; it may need a login"));
        }
        if self.passed.len() > URL_REDIRECTS_MAX {
            let why = format!("it has more than {URL_REDIRECTS_MAX} redirects");
            return Err((why, "check the URL"));
        }
        Ok(())
    }
}

/// The servers to which an endpoint redirects. Who follows a redirect finds its server here; the
/// control plane finds their addresses.
#[derive(Debug, Default)]
pub struct Redirects(Mutex<KnownServers>);

#[derive(Debug, Default)]
struct KnownServers {
    servers: Vec<RedirectServer>,
    /// Who finds their addresses.
    waker: Option<Waker>,
    /// Who waits until one is found.
    waiting: Vec<Waker>,
}

#[derive(Debug)]
struct RedirectServer {
    /// A URL of it.
    url: WebUrl,
    /// It is to be looked up.
    is_wanted: bool,
    found: Option<Result<Arc<Endpoint>>>,
}

impl KnownServers {
    fn want(&mut self, at: usize) {
        self.servers[at].is_wanted = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn position(&self, url: &WebUrl) -> Option<usize> {
        self.servers.iter().position(|server| server.url.is_of_server_of(url))
    }

    /// See [`Redirects::find`].
    fn find(&mut self, url: &WebUrl) -> Result<Option<Arc<Endpoint>>> {
        let Some(at) = self.position(url) else {
            if self.servers.len() == REDIRECT_SERVERS_MAX {
                let why = format!("redirects lead to more than {REDIRECT_SERVERS_MAX} servers");
                return Err(refuse(&why));
            }
            let at = self.servers.len();
            self.servers.push(RedirectServer { url: url.server(), is_wanted: false, found: None });
            self.want(at);
            return Ok(None);
        };
        match self.servers[at].found.take() {
            Some(Ok(endpoint)) => {
                self.servers[at].found = Some(Ok(Arc::clone(&endpoint)));
                Ok(Some(endpoint))
            }
            // Who comes next waits for the next look-up.
            Some(Err(error)) => {
                self.want(at);
                Err(error)
            }
            None => Ok(None),
        }
    }
}

impl Redirects {
    fn lock(&self) -> MutexGuard<'_, KnownServers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server of a URL; `None` while it is looked up, whose end wakes `waker` once.
    ///
    /// # Errors
    /// Why it has no address; it is looked up again. Or that there are too many servers.
    pub fn find(&self, url: &WebUrl, waker: &Waker) -> Result<Option<Arc<Endpoint>>> {
        let mut state = self.lock();
        let found = state.find(url);
        if matches!(found, Ok(None)) && !state.waiting.iter().any(|it| it.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
        found
    }

    /// Waits until servers are to be looked up; one task at a time.
    pub fn poll_wanted(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.servers.iter().any(|server| server.is_wanted) {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Takes the URLs of servers that are to be looked up.
    pub fn take_wanted(&self) -> Vec<WebUrl> {
        let mut state = self.lock();
        let wanted = state.servers.iter_mut().filter(|server| server.is_wanted);
        let taken = wanted.map(|server| {
            server.is_wanted = false;
            server.url.clone()
        });
        taken.collect()
    }

    /// Records the server of a URL, or why it has no address.
    pub fn settle(&self, url: &WebUrl, found: Result<Arc<Endpoint>>) {
        let mut state = self.lock();
        if let Some(at) = state.position(url) {
            let server = &mut state.servers[at];
            // Two may have looked it up: what is found stays.
            if found.is_ok() || !matches!(server.found, Some(Ok(_))) {
                server.found = Some(found);
            }
        }
        state.waiting.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn bell() -> (Arc<Bell>, Waker) {
        let bell = Arc::new(Bell::default());
        (Arc::clone(&bell), Waker::from(bell))
    }

    fn url(text: &str) -> WebUrl {
        WebUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn server(host: &str) -> Arc<Endpoint> {
        Arc::new(Endpoint::new("", false, host, "", "", vec![]))
    }

    #[test]
    fn a_server_is_looked_up_once_and_again_when_it_had_no_address() {
        let redirects = Redirects::default();
        let asleep = || redirects.poll_wanted(&Context::from_waker(Waker::noop())).is_pending();
        let (one, same) = (url("http://h:1/a?sig=hunter2"), url("http://h:1/b"));
        assert!(asleep());
        let (bell, waker) = bell();
        let find = |url: &WebUrl| redirects.find(url, &waker);
        assert!(find(&one).expect("new").is_none() && !asleep());
        assert!(find(&same).expect("known").is_none());
        let wanted = redirects.take_wanted();
        assert_eq!(wanted.iter().map(WebUrl::target).collect::<Vec<_>>(), ["/"]);
        assert!(asleep() && redirects.take_wanted().is_empty());
        assert_eq!(Arc::strong_count(&bell), 3, "it waits once");
        redirects.settle(&wanted[0], Err(Error::new(ErrorKind::Endpoint, "no name")));
        assert_eq!(bell.0.load(Ordering::Relaxed), 1, "it is woken once");
        assert_eq!(find(&same).expect_err("none").message(), "no name");
        assert!(find(&same).expect("it is looked up again").is_none());
        assert!(!asleep() && redirects.take_wanted() == wanted);
        redirects.settle(&wanted[0], Ok(server("h:1")));
        assert_eq!(find(&one).expect("found").expect("found").host, "h:1");
        assert!(find(&url("https://h:1/a")).expect("another").is_none());
        assert!(!format!("{redirects:?}").contains("hunter2"));
    }

    #[test]
    fn servers_are_few() {
        let redirects = Redirects::default();
        let find =
            |number: usize| redirects.find(&url(&format!("http://h{number}/a")), Waker::noop());
        assert!((0..REDIRECT_SERVERS_MAX).all(|number| find(number).is_ok()));
        let error = find(REDIRECT_SERVERS_MAX).expect_err("too many").to_string();
        assert!(error.contains("more than 256 servers"), "{error}");
        assert!(find(0).is_ok());
    }

    #[test]
    fn chains_end() {
        let mut chain = RedirectChain::from(url("http://h/a?sig=hunter2"));
        assert_eq!(chain.follow("/b"), Ok(()));
        let (why, _) = chain.follow("/a?sig=hunter2").expect_err("a loop");
        assert!(why.contains("are a loop: they lead to http://h/a?... again"), "{why}");
        let mut chain = RedirectChain::from(url("http://h/0"));
        let (why, _) =
            (1..).find_map(|step| chain.follow(&format!("/{step}")).err()).expect("an end");
        assert!(why.contains("more than 10 redirects") && chain.url().path() == "/11", "{why}");
    }
}
