//! Resolves addresses to sources ahead of their use, several requests at once.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::rc::Rc;

use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_local};

use super::sources::{Depth, Missing, Source, Unresolved};
use crate::control::Control;
use crate::control::limits::{SOURCES_ASKED_MAX, URLS_AHEAD_MAX};
use crate::error::Result;
use crate::limits::FAILURES_PRINTED_MAX;
use crate::s3::uri::S3Uri;

/// Sources in the order of their addresses. Dropping this cancels the requests in progress.
#[derive(Debug)]
pub struct ResolveAhead {
    control: Rc<Control>,
    depth: Depth,
    rest: Peekable<std::vec::IntoIter<S3Uri>>,
    under_way: VecDeque<JoinHandle<Result<Source, Unresolved>>>,
    /// The right to request something: of [`SOURCES_ASKED_MAX`] at once.
    turns: Rc<Semaphore>,
    /// Missing sources so far. Near matches are looked up only for the first ones, which are
    /// reported.
    missing: usize,
}

impl ResolveAhead {
    /// The sources of these addresses; must run inside a `LocalSet`, as tokio-uring provides.
    #[must_use]
    pub fn new(control: Rc<Control>, uris: Vec<S3Uri>, depth: Depth) -> Self {
        let rest = uris.into_iter().peekable();
        let turns = Rc::new(Semaphore::new(SOURCES_ASKED_MAX));
        Self { control, depth, rest, under_way: VecDeque::new(), turns, missing: 0 }
    }

    /// The next source; `None` after the last. Cancel safe.
    ///
    /// # Errors
    /// Those of [`Control::resolve`]. Later sources can still be requested.
    ///
    /// # Panics
    /// If a request panics.
    pub async fn next(&mut self) -> Result<Option<Source>> {
        match self.next_or_missing().await? {
            Some(Err(missing)) => Err(missing.error),
            Some(Ok(source)) => Ok(Some(source)),
            None => Ok(None),
        }
    }

    /// Like [`Self::next`], but a missing source is no error.
    ///
    /// # Errors
    /// Those of [`Control::resolve`], except for missing sources.
    ///
    /// # Panics
    /// If a request panics.
    pub async fn next_or_missing(&mut self) -> Result<Option<Result<Source, Box<Missing>>>> {
        self.ask();
        let Some(first) = self.under_way.front_mut() else { return Ok(None) };
        let source = first.await.expect("a request is not given up, and does not panic");
        self.under_way.pop_front();
        match source {
            Ok(source) => Ok(Some(Ok(source))),
            Err(Unresolved::Failed(error)) => Err(error),
            Err(Unresolved::Missing(missing)) => {
                self.missing += 1;
                Ok(Some(Err(missing)))
            }
        }
    }

    fn ask(&mut self) {
        while let Some(uri) = self.rest.peek() {
            // Each URL may be of another server, and a slow one must not hold up the others.
            let most = if uri.url.is_some() { URLS_AHEAD_MAX } else { SOURCES_ASKED_MAX };
            if self.under_way.len() >= most {
                return;
            }
            // An unknown bucket is requested alone: so its name is resolved, its region found and
            // its session opened once, not by all requests.
            let is_new = uri.url.is_none() && !self.control.has_met(&uri.bucket);
            if is_new && !self.under_way.is_empty() {
                return;
            }
            let Some(uri) = self.rest.next() else { return };
            let (control, depth) = (Rc::clone(&self.control), self.depth);
            let (turns, helps) = (Rc::clone(&self.turns), self.missing < FAILURES_PRINTED_MAX);
            let resolve = async move {
                let _turn = turns.acquire().await.expect("it is never closed");
                control.resolve_to(&uri, depth, helps).await
            };
            self.under_way.push_back(spawn_local(resolve));
            if is_new {
                return;
            }
        }
    }
}

impl Drop for ResolveAhead {
    fn drop(&mut self) {
        self.under_way.iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::control::loopback::{AtOnce, Reply, Server, control, run};
    use crate::error::ErrorKind;

    fn uris(count: usize) -> Vec<S3Uri> {
        let uri = |number| S3Uri::parse(&format!("s3://bkt/{number:03}")).expect("a good address");
        (0..count).map(uri).collect()
    }

    #[test]
    fn many_are_asked_for_at_once_and_come_in_their_order() {
        static AT_ONCE: AtOnce = AtOnce::new();
        let server = Server::start(|_| {
            AT_ONCE.take_a_moment();
            Reply::new(200, "").header("Content-Length", "3")
        });
        let keys = run(async {
            let control = Rc::new(control(&server).await);
            let sources = control.resolve_all(&uris(200)).await.expect("all are there");
            sources.into_iter().map(|source| source.uri.to_string()).collect::<Vec<_>>()
        });
        let expected: Vec<String> = uris(200).iter().map(ToString::to_string).collect();
        assert_eq!(keys, expected);
        let most = AT_ONCE.most();
        assert!((2..=SOURCES_ASKED_MAX).contains(&most), "{most} at once");
        assert_eq!(server.seen().len(), 200, "one request each");
    }

    /// Its server answers once it has been asked for all others, or for a while in vain.
    #[test]
    fn a_url_that_is_slow_holds_up_no_other() {
        const COUNT: usize = 4 * SOURCES_ASKED_MAX;
        static OTHERS: AtomicUsize = AtomicUsize::new(0);
        static WAS_HELD_UP: AtomicBool = AtomicBool::new(false);
        let server = Server::start(|head| {
            if head.contains("/slow ") {
                let all = (0..500).any(|_| {
                    std::thread::sleep(Duration::from_millis(20));
                    OTHERS.load(Ordering::SeqCst) == COUNT
                });
                WAS_HELD_UP.fetch_or(!all, Ordering::SeqCst);
            } else {
                OTHERS.fetch_add(1, Ordering::SeqCst);
            }
            Reply::new(200, "").header("Content-Length", "0")
        });
        run(async {
            let control = Rc::new(control(&server).await);
            let names = (0..COUNT).map(|number| number.to_string());
            let names = std::iter::once("slow".to_owned()).chain(names);
            let uri = |name| S3Uri::parse_or_url(&format!("http://{}/{name}", server.address));
            let uris: Vec<_> = names.map(|name| uri(name).expect("a URL")).collect();
            assert_eq!(control.resolve_all(&uris).await.expect("all are there").len(), COUNT + 1);
        });
        assert!(!WAS_HELD_UP.load(Ordering::SeqCst), "it waited for the others in vain");
    }

    #[test]
    fn nothing_is_asked_for_behind_the_first_that_is_missing() {
        let server = Server::start(|head| match head.contains("/000 ") || head.contains("list-") {
            true if head.contains("list-") => Reply::new(200, Server::page(&[], None)),
            true => Reply::new(404, ""),
            false => Reply::new(200, "").header("Content-Length", "3"),
        });
        run(async {
            let control = Rc::new(control(&server).await);
            let error = control.resolve_all(&uris(900)).await.expect_err("one is missing");
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains("s3://bkt/000"), "{error}");
        });
        let asked = server.seen().len();
        assert!(asked < 2 * SOURCES_ASKED_MAX, "{asked} requests");
    }

    #[test]
    fn the_first_failure_in_their_order_is_reported() {
        let server = Server::start(|head| match head.contains("/017 ") || head.contains("/018 ") {
            true => Reply::new(403, "<Error><Code>AccessDenied</Code></Error>"),
            false => Reply::new(200, "").header("Content-Length", "3"),
        });
        run(async {
            let control = Rc::new(control(&server).await);
            let error = control.resolve_all(&uris(40)).await.expect_err("one is refused");
            assert_eq!(error.kind(), ErrorKind::Access);
            assert!(error.to_string().contains("s3://bkt/017"), "{error}");
        });
    }
}
