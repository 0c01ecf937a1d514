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
    /// The one that was used last is the last.
    servers: Vec<RedirectServer>,
    /// Who may find their addresses.
    finders: Vec<Waker>,
    /// Who waits until one is found.
    waiting: Vec<Waker>,
}

#[derive(Debug)]
struct RedirectServer {
    /// A URL of it.
    url: WebUrl,
    /// A look-up is to begin.
    is_wanted: bool,
    /// One is to begin or under way.
    is_looked_up: bool,
    /// How many have ended.
    look_ups: LookUpNumber,
    /// The result of the last one.
    found: Option<Result<Arc<Endpoint>>>,
}

/// Number of a look-up of one server, from 1.
pub type LookUpNumber = u64;

/// What is known of the server of a URL.
#[derive(Debug)]
pub enum ServerLookUp {
    /// Its addresses are known.
    Found(Arc<Endpoint>),
    /// They are looked up, by this look-up.
    Awaited(LookUpNumber),
}

impl KnownServers {
    /// The number of this server, which becomes the one that was used last.
    ///
    /// # Errors
    /// All places are taken by servers that are looked up.
    fn number_of(&mut self, url: &WebUrl) -> Result<usize> {
        let known = self.servers.iter().position(|server| server.url.is_of_server_of(url));
        let is_full = known.is_none() && self.servers.len() == REDIRECT_SERVERS_MAX;
        if is_full {
            let unused = self.servers.iter().position(|server| !server.is_looked_up);
            let unused = unused.ok_or_else(|| {
                refuse(&format!("redirects lead to more than {REDIRECT_SERVERS_MAX} new servers"))
            })?;
            self.servers.remove(unused);
        }
        let server = match known {
            Some(at) => self.servers.remove(at),
            None => RedirectServer {
                url: url.server(),
                is_wanted: false,
                is_looked_up: false,
                look_ups: 0,
                found: None,
            },
        };
        self.servers.push(server);
        Ok(self.servers.len() - 1)
    }

    /// The server of a URL, if it is known.
    fn server(&mut self, url: &WebUrl) -> Option<&mut RedirectServer> {
        self.servers.iter_mut().find(|server| server.url.is_of_server_of(url))
    }

    /// See [`Redirects::find`].
    fn find(&mut self, url: &WebUrl, awaited: Option<LookUpNumber>) -> Result<ServerLookUp> {
        let number = self.number_of(url)?;
        let server = &mut self.servers[number];
        let has_ended = awaited.is_some_and(|look_up| look_up <= server.look_ups);
        match &server.found {
            Some(Ok(endpoint)) => return Ok(ServerLookUp::Found(Arc::clone(endpoint))),
            Some(Err(error)) if has_ended => return Err(error.clone()),
            _ => {}
        }
        let look_up = server.look_ups + 1;
        if !server.is_looked_up {
            (server.is_looked_up, server.is_wanted) = (true, true);
            self.finders.drain(..).for_each(Waker::wake);
        }
        Ok(ServerLookUp::Awaited(look_up))
    }
}

impl Redirects {
    fn lock(&self) -> MutexGuard<'_, KnownServers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server of a URL, or the look-up of its addresses, whose end wakes `waker` once. One that
    /// had no address is looked up again, unless its look-up is the one that is `awaited`.
    ///
    /// # Errors
    /// The awaited look-up, or a later one, has found no address. Or too many servers are looked
    /// up.
    pub fn find(
        &self,
        url: &WebUrl,
        awaited: Option<LookUpNumber>,
        waker: &Waker,
    ) -> Result<ServerLookUp> {
        let mut state = self.lock();
        let found = state.find(url, awaited);
        if matches!(found, Ok(ServerLookUp::Awaited(_)))
            && !state.waiting.iter().any(|it| it.will_wake(waker))
        {
            state.waiting.push(waker.clone());
        }
        found
    }

    /// Waits until servers are to be looked up. Each of several tasks is woken once.
    pub fn poll_wanted(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.servers.iter().any(|server| server.is_wanted) {
            return Poll::Ready(());
        }
        if !state.finders.iter().any(|it| it.will_wake(context.waker())) {
            state.finders.push(context.waker().clone());
        }
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

    /// A look-up was given up before its end: another one is to begin.
    pub fn give_up(&self, url: &WebUrl) {
        let mut state = self.lock();
        if let Some(server) = state.server(url).filter(|server| server.is_looked_up) {
            server.is_wanted = true;
            state.finders.drain(..).for_each(Waker::wake);
        }
    }

    /// Records the server of a URL, or why it has no address.
    pub fn settle(&self, url: &WebUrl, found: Result<Arc<Endpoint>>) {
        let mut state = self.lock();
        if let Some(server) = state.server(url) {
            (server.is_looked_up, server.look_ups) = (false, server.look_ups + 1);
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
        let find = |url: &WebUrl, awaited| redirects.find(url, awaited, &waker);
        let awaited = |url: &WebUrl, awaited| match find(url, awaited) {
            Ok(ServerLookUp::Awaited(look_up)) => look_up,
            other => panic!("{other:?}"),
        };
        assert!(awaited(&one, None) == 1 && !asleep());
        assert_eq!(awaited(&same, None), 1);
        let wanted = redirects.take_wanted();
        assert_eq!(wanted.iter().map(WebUrl::target).collect::<Vec<_>>(), ["/"]);
        assert!(asleep() && redirects.take_wanted().is_empty());
        assert_eq!(Arc::strong_count(&bell), 3, "it waits once");
        redirects.settle(&wanted[0], Err(Error::new(ErrorKind::Endpoint, "no name")));
        assert_eq!(bell.0.load(Ordering::Relaxed), 1, "it is woken once");
        for _ in 0..2 {
            // All who have waited for it learn of it.
            assert_eq!(find(&same, Some(1)).expect_err("none").message(), "no name");
        }
        assert_eq!(awaited(&same, None), 2, "it is looked up again");
        assert_eq!(find(&same, Some(1)).expect_err("none").message(), "no name");
        assert!(!asleep() && redirects.take_wanted() == wanted);
        redirects.settle(&wanted[0], Ok(server("h:1")));
        for before in [None, Some(1), Some(2)] {
            let Ok(ServerLookUp::Found(found)) = find(&one, before) else { panic!("it is known") };
            assert_eq!(found.host, "h:1");
        }
        let other = url("https://h:1/a");
        assert_eq!(awaited(&other, None), 1, "another server");
        assert!(redirects.take_wanted() == [other.server()] && asleep());
        redirects.give_up(&other);
        assert_eq!(redirects.take_wanted(), [other.server()], "who looked it up has ended");
        assert!(!format!("{redirects:?}").contains("hunter2"));
    }

    #[test]
    fn the_servers_that_were_used_last_are_known() {
        let redirects = Redirects::default();
        let of = |number: usize| url(&format!("http://h{number}/a"));
        let find = |number| redirects.find(&of(number), None, Waker::noop());
        assert!((0..REDIRECT_SERVERS_MAX).all(|number| find(number).is_ok()));
        let error = find(REDIRECT_SERVERS_MAX).expect_err("all are looked up").to_string();
        assert!(error.contains("more than 256 new servers"), "{error}");
        redirects.take_wanted();
        (0..REDIRECT_SERVERS_MAX).for_each(|number| redirects.settle(&of(number), Ok(server("h"))));
        assert!(matches!(find(0), Ok(ServerLookUp::Found(_))), "it is the last one now");
        assert!(matches!(find(REDIRECT_SERVERS_MAX), Ok(ServerLookUp::Awaited(1))));
        assert_eq!(redirects.take_wanted(), [of(REDIRECT_SERVERS_MAX).server()]);
        assert!(matches!(find(0), Ok(ServerLookUp::Found(_))));
        assert!(matches!(find(2), Ok(ServerLookUp::Found(_))));
        assert!(matches!(find(1), Ok(ServerLookUp::Awaited(1))), "the first one made room");
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
