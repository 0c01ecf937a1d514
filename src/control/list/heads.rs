//! Requests individually named objects by HEAD, many at once, ahead of their use.
//!
//! Like [`super::ahead`] for sources, but an address here is always one object, and further objects
//! are added while earlier answers are used. Objects in a listing (`listed`) need no HEAD.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_local};

use super::listed::{Listed, ListedLimits};
use crate::control::Control;
use crate::control::limits::{FOUND_AHEAD_MAX, HEADS_ASKED_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::named::Named;
use crate::s3::grants::GrantTarget;
use crate::s3::uri::S3Uri;
use crate::s3::{Endpoint, Object};

/// An existing object, and its endpoint.
pub type Found = (Object, Arc<Endpoint>);

/// Objects in the order of their addresses. Dropping this cancels the requests in progress.
#[derive(Debug)]
pub struct HeadsAhead {
    control: Rc<Control>,
    listed: Option<Listed>,
    asked: VecDeque<RequestState>,
    /// Objects in progress that use a HEAD.
    heads: usize,
    /// The last one is the first of its bucket.
    is_new: bool,
}

#[derive(Debug)]
enum RequestState {
    Head(JoinHandle<Result<Found>>),
    Listed(Found),
}

impl RequestState {
    fn is_answered(&self) -> bool {
        match self {
            Self::Head(question) => question.is_finished(),
            Self::Listed(_) => true,
        }
    }
}

impl HeadsAhead {
    /// Empty; must run inside a `LocalSet`, as tokio-uring provides.
    #[must_use]
    pub fn new(control: Rc<Control>) -> Self {
        Self { control, listed: None, asked: VecDeque::new(), heads: 0, is_new: false }
    }

    /// Announces the objects that will be requested, once or repeatedly, each of the `hosts`
    /// requesting its share: they are listed if that pays.
    #[must_use]
    pub fn listing(self, named: Arc<Named>, hosts: u64) -> Self {
        self.listing_within(named, hosts, ListedLimits::default())
    }

    fn listing_within(mut self, named: Arc<Named>, hosts: u64, limits: ListedLimits) -> Self {
        let control = Rc::clone(&self.control);
        // A folder that is listed may have no access grant where its objects have some.
        if control.grants.is_none() {
            self.listed = Some(Listed::new(control, named, hosts, limits));
        }
        self
    }

    /// True if a HEAD of this address may be sent now. An unknown bucket is requested alone: so its
    /// name is resolved, its region found and its session opened once.
    fn takes(&self, uri: &S3Uri) -> bool {
        let is_met = self.control.has_met(&uri.bucket);
        self.heads < HEADS_ASKED_MAX && (is_met || self.asked.is_empty())
    }

    /// True while the last one is the first of its bucket, and not answered.
    fn waits(&self) -> bool {
        self.is_new && self.asked.back().is_some_and(|last| !last.is_answered())
    }

    /// Requests one more object; returns its address if that must wait until another is taken.
    #[must_use]
    pub fn ask(&mut self, uri: S3Uri) -> Option<S3Uri> {
        if self.asked.len() >= FOUND_AHEAD_MAX || self.waits() {
            return Some(uri);
        }
        if let Some(found) = self.listed.as_mut().and_then(|listed| listed.find(&uri)) {
            self.is_new = false;
            self.asked.push_back(RequestState::Listed(found));
            return None;
        }
        if !self.takes(&uri) {
            return Some(uri);
        }
        let control = Rc::clone(&self.control);
        self.is_new = !control.has_met(&uri.bucket);
        self.heads += 1;
        self.asked.push_back(RequestState::Head(spawn_local(async move {
            let object = control.head(&uri.bucket, uri.literal_key(), "").await?;
            let object = object.ok_or_else(|| {
                let message = format!("{uri}: there is no object with this key");
                Error::new(ErrorKind::NotFound, message)
            })?;
            // The request may have found another region.
            let about = GrantTarget::Object(uri.literal_key());
            Ok((object, control.endpoint(&uri.bucket, about).await?))
        })));
        None
    }

    /// True when [`Self::next`] need not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.asked.front().is_some_and(RequestState::is_answered)
    }

    /// The first object not taken yet; `None` if there is none. Cancel safe.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such object, and those of [`Control::head`].
    ///
    /// # Panics
    /// If a request panics.
    pub async fn next(&mut self) -> Result<Option<Found>> {
        if let Some(RequestState::Head(first)) = self.asked.front_mut() {
            let found = first.await.expect("a question is not given up, and does not panic");
            self.asked.pop_front();
            self.heads -= 1;
            return found.map(Some);
        }
        Ok(self.asked.pop_front().and_then(|first| match first {
            RequestState::Listed(found) => Some(found),
            RequestState::Head(_) => None,
        }))
    }
}

impl Drop for HeadsAhead {
    fn drop(&mut self) {
        for asked in &self.asked {
            if let RequestState::Head(question) = asked {
                question.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::control::loopback::{AtOnce, Reply, Server, control, run};
    use crate::plan::listing::OBJECT_BYTES;

    fn uri(number: usize) -> S3Uri {
        S3Uri::parse_raw(&format!("s3://bkt/{number:03}")).expect("a good address")
    }

    #[test]
    fn many_are_asked_about_at_once_and_come_in_their_order() {
        static AT_ONCE: AtOnce = AtOnce::new();
        let server = Server::start(|head| {
            AT_ONCE.take_a_moment();
            let is_there = !head.contains("/299 ");
            let reply = Reply::new(if is_there { 200 } else { 404 }, "");
            reply.header("Content-Length", "3")
        });
        run(async {
            let mut heads = HeadsAhead::new(Rc::new(control(&server).await));
            let (mut asked, mut keys) = (0, Vec::new());
            let error = loop {
                while asked < 300 && heads.ask(uri(asked)).is_none() {
                    asked += 1;
                }
                assert!(asked - keys.len() <= HEADS_ASKED_MAX, "{asked} asked");
                match heads.next().await {
                    Ok(Some((object, _))) => keys.push(object.key),
                    Ok(None) => panic!("299 is not there"),
                    Err(error) => break error,
                }
            };
            assert!(keys.into_iter().eq((0..299).map(|number| format!("{number:03}"))));
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().starts_with("s3://bkt/299: there is no object"), "{error}");
        });
        let most = AT_ONCE.most();
        assert!((2..=HEADS_ASKED_MAX).contains(&most), "{most} at once");
        assert_eq!(server.seen().len(), 300, "one question each");
    }

    #[test]
    fn a_bucket_that_was_not_met_is_asked_about_alone() {
        let server = Server::start(|_| Reply::new(200, "").header("Content-Length", "3"));
        run(async {
            let mut heads = HeadsAhead::new(Rc::new(control(&server).await));
            let other = || S3Uri::parse_raw("s3://other/key").expect("a good address");
            assert!(heads.ask(uri(0)).is_none());
            assert!(heads.ask(uri(1)).is_some() && heads.ask(other()).is_some(), "under way");
            heads.next().await.expect("an answer").expect("an object");
            assert!(heads.ask(uri(1)).is_none());
            assert!(heads.ask(uri(2)).is_none() && heads.ask(other()).is_some());
        });
    }

    /// The size of every object by HEAD, and by the first listing; each further listing has one
    /// byte more.
    const HEAD_BYTES: u64 = 1;
    const LISTED_BYTES: u64 = 7;

    const LIMITS: ListedLimits = ListedLimits {
        wanted_min: 10,
        per_wanted_max: 2,
        bytes_max: 1 << 20,
        age_max: Duration::from_secs(3600),
    };

    /// Lists these keys in this order, in pages of `page_keys`; a HEAD finds every key but `none`.
    /// Pages begin after a key, or at a token.
    fn bucket(keys: Vec<String>, page_keys: usize) -> Server {
        let listings = AtomicU64::new(LISTED_BYTES);
        Server::start(move |head| {
            let target = head.split(' ').nth(1).unwrap_or("");
            let Some((_, query)) = target.split_once('?') else {
                let is_there = !target.ends_with("none");
                let reply = Reply::new(if is_there { 200 } else { 404 }, "");
                return reply.header("Content-Length", &HEAD_BYTES.to_string());
            };
            let value = |name: &str| {
                let value = query.split('&').find_map(|pair| pair.strip_prefix(name));
                value.map(|value| value.replace("%2F", "/"))
            };
            let (token, after) = (value("continuation-token="), value("start-after="));
            if token.is_none() && after.is_none() {
                listings.fetch_add(1, Ordering::SeqCst);
            }
            let size = listings.load(Ordering::SeqCst) - 1;
            let prefix = value("prefix=").unwrap_or_default();
            let listed: Vec<(&str, u64)> = keys
                .iter()
                .filter(|key| key.starts_with(&prefix))
                .map(|key| (key.as_str(), size))
                .collect();
            let behind = |after: String| listed.iter().position(|(key, _)| *key > after.as_str());
            let start = match (token, after) {
                (Some(token), _) => token.parse().expect("ours"),
                (None, Some(after)) => behind(after).unwrap_or(listed.len()),
                (None, None) => 0,
            };
            let end = listed.len().min(start + page_keys);
            let next = (end < listed.len()).then(|| end.to_string());
            Reply::new(200, Server::page(&listed[start..end], next.as_deref()))
        })
    }

    /// Number of HEADs, and of requests for pages.
    fn asked(server: &Server) -> (usize, usize) {
        let seen = server.seen();
        let heads = seen.iter().filter(|head| head.starts_with("HEAD")).count();
        (heads, seen.len() - heads)
    }

    fn keys(folder: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{folder}/{number:03}")).collect()
    }

    fn uri_of(key: &str) -> S3Uri {
        S3Uri::parse_raw(&format!("s3://bkt/{key}")).expect("a good address")
    }

    /// Objects of a manifest of these keys, the first of which exists.
    async fn begun(server: &Server, named: &[String], hosts: u64) -> HeadsAhead {
        let mut all = Named::default();
        named.iter().for_each(|key| all.push("bkt", key));
        all.finish();
        let heads = HeadsAhead::new(Rc::new(control(server).await));
        let mut heads = heads.listing_within(Arc::new(all), hosts, LIMITS);
        assert!(heads.ask(uri_of(&named[0])).is_none());
        let first = heads.next().await.expect("an answer").expect("an object");
        assert_eq!((&first.0.key, first.0.size_bytes), (&named[0], HEAD_BYTES));
        heads
    }

    /// Starts a listing by requesting this key, and waits for its end.
    async fn list_by(heads: &mut HeadsAhead, key: &str) {
        assert_eq!(sizes(heads, &[key.to_owned()]).await, [HEAD_BYTES]);
        while heads.listed.as_ref().expect("what is named").is_under_way() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The sizes of these objects, which must come in this order.
    async fn sizes(heads: &mut HeadsAhead, keys: &[String]) -> Vec<u64> {
        let mut rest = keys.iter().peekable();
        let mut sizes = Vec::new();
        while sizes.len() < keys.len() {
            while let Some(key) = rest.peek()
                && heads.ask(uri_of(key)).is_none()
            {
                rest.next();
            }
            let (object, endpoint) = heads.next().await.expect("an answer").expect("an object");
            assert_eq!((&object.key, endpoint.bucket.as_str()), (&keys[sizes.len()], "bkt"));
            sizes.push(object.size_bytes);
        }
        sizes
    }

    #[test]
    fn what_is_listed_is_not_asked_about_and_comes_in_its_order() {
        let named: Vec<String> = keys("b", 30).into_iter().rev().chain(keys("a/c", 30)).collect();
        let mut there = [keys("a/c", 40), keys("b", 30), keys("c", 30)].concat();
        let ordered = bucket(there.clone(), 7);
        there.reverse();
        let reversed = bucket(there, 7);
        for server in [ordered, reversed] {
            run(async {
                let mut heads = begun(&server, &named, 1).await;
                list_by(&mut heads, &named[1]).await;
                let most = named.iter().skip(2).step_by(2).chain(&named[3..]);
                let most: Vec<String> = most.cloned().collect();
                for key in &most {
                    assert!(heads.ask(uri_of(key)).is_none() && heads.is_ready());
                    let (object, _) = heads.next().await.expect("known").expect("an object");
                    assert_eq!((&object.key, object.etag.as_str()), (key, "\"e\""));
                }
                let found = sizes(&mut heads, &most).await;
                assert!(found.iter().all(|size| *size > HEAD_BYTES), "{found:?}");
            });
            assert_eq!(asked(&server).0, 2, "the first two");
            let pages = server.seen().into_iter().filter(|head| head.starts_with("GET"));
            let of = |folder: &str| pages.clone().filter(|page| page.contains(folder)).count();
            let [a, b, all] = [of("prefix=a%2Fc%2F"), of("prefix=b%2F"), of("")];
            assert!(a > 0 && b > 0 && a + b == all, "{a} and {b} of {all}");
        }
    }

    #[test]
    fn objects_known_ahead_are_bounded() {
        let named = keys("a", 60);
        let server = bucket(named.clone(), 100);
        run(async {
            let mut heads = begun(&server, &named, 1).await;
            list_by(&mut heads, &named[1]).await;
            for _ in 0..FOUND_AHEAD_MAX {
                assert!(heads.ask(uri_of(&named[2])).is_none());
            }
            assert!(heads.ask(uri_of(&named[2])).is_some());
            heads.next().await.expect("known").expect("an object");
            assert!(heads.ask(uri_of(&named[2])).is_none());
        });
    }

    #[test]
    fn what_no_listing_has_is_asked_about() {
        let mut named = keys("a", 60);
        let server = bucket(named[..50].to_vec(), 100);
        named.push("a/none".to_owned());
        run(async {
            let mut heads = begun(&server, &named, 1).await;
            list_by(&mut heads, &named[1]).await;
            let found = sizes(&mut heads, &named[40..60]).await;
            assert_eq!(found, [[LISTED_BYTES; 10], [HEAD_BYTES; 10]].concat());
            assert!(heads.ask(uri_of("a/none")).is_none());
            let error = heads.next().await.expect_err("not there");
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().starts_with("s3://bkt/a/none: there is no object"));
        });
        assert_eq!(asked(&server), (2 + 10 + 1, 1));
    }

    #[test]
    fn without_a_listing_all_are_asked_about() {
        let named = keys("a", 60);
        let server = Server::start(|head| match head.starts_with("HEAD") {
            true => Reply::new(200, "").header("Content-Length", &HEAD_BYTES.to_string()),
            false => Reply::new(403, "<Error><Code>AccessDenied</Code></Error>"),
        });
        run(async {
            let mut heads = begun(&server, &named, 1).await;
            list_by(&mut heads, &named[1]).await;
            assert_eq!(sizes(&mut heads, &named).await, [HEAD_BYTES; 60]);
        });
        assert_eq!(asked(&server), (62, 1), "listed once");
        // Too few to be worth it; and for one host's part too many would be listed.
        for (named, hosts) in [(keys("a", 9), 1), (keys("a", 60), 5), (keys("a", 60), 7)] {
            let server = bucket(named.clone(), 100);
            run(async {
                let mut heads = begun(&server, &named, hosts).await;
                list_by(&mut heads, &named[1]).await;
                let count = named.len();
                assert_eq!(sizes(&mut heads, &named).await, vec![HEAD_BYTES; count]);
            });
            assert_eq!(asked(&server).1, 0, "{} of {hosts}", named.len());
        }
    }

    #[test]
    fn a_listing_stops_at_its_limits() {
        let named = keys("b", 10);
        let others: Vec<String> = (0..1000).map(|number| format!("b/!{number:04}")).collect();
        let server = bucket([others, named.clone()].concat(), 10);
        run(async {
            let mut heads = begun(&server, &named, 1).await;
            list_by(&mut heads, &named[1]).await;
            assert_eq!(sizes(&mut heads, &named).await, [HEAD_BYTES; 10]);
        });
        let (_, pages) = asked(&server);
        // Two pages, and those requested ahead of them.
        assert!((2..50).contains(&pages), "{pages} pages of 101");

        let server = bucket(named.clone(), 100);
        run(async {
            let mut heads = begun(&server, &named, 1).await;
            let room = 2 * (OBJECT_BYTES + named[0].len() as u64 + "\"e\"".len() as u64);
            heads.listed.as_mut().expect("what is named").limits.bytes_max = room;
            list_by(&mut heads, &named[1]).await;
            let found = sizes(&mut heads, &named).await;
            assert_eq!(found, [&[LISTED_BYTES; 2][..], &[HEAD_BYTES; 8]].concat(), "two fit");
        });
    }

    #[test]
    fn what_is_old_is_listed_again_where_that_pays() {
        let named = keys("a", 40);
        let server = bucket(named.clone(), 100);
        run(async {
            let mut heads = begun(&server, &named, 1).await;
            list_by(&mut heads, &named[1]).await;
            // Half of the listed ones: enough to be worth it.
            assert_eq!(sizes(&mut heads, &named[..20]).await, [LISTED_BYTES; 20]);
            let age = |heads: &mut HeadsAhead, age_max| {
                heads.listed.as_mut().expect("what is named").limits.age_max = age_max;
            };
            age(&mut heads, Duration::ZERO);
            assert!(heads.ask(uri_of(&named[0])).is_none());
            age(&mut heads, LIMITS.age_max);
            let (object, _) = heads.next().await.expect("an answer").expect("an object");
            assert_eq!(object.size_bytes, HEAD_BYTES, "it may have been replaced");
            while heads.listed.as_ref().expect("what is named").is_under_way() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(sizes(&mut heads, &named[..19]).await, [LISTED_BYTES + 1; 19]);
            age(&mut heads, Duration::ZERO);
            assert_eq!(sizes(&mut heads, &named).await, [HEAD_BYTES; 40], "one too few");
        });
        assert_eq!(asked(&server).1, 2);
    }
}
