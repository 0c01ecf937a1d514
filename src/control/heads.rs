//! Objects that are named one by one, asked about ahead of the one that is used, many at once.
//!
//! As [`super::ahead`] for sources, but an address here is one object and nothing else, and they
//! come one after the other while the answers to others are used.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_local};

use super::Control;
use super::limits::HEADS_ASKED_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::S3Uri;
use crate::s3::{Endpoint, Object};

/// An object that is there, and where it is served.
pub type Found = (Object, Arc<Endpoint>);

/// Objects in the order of their addresses. Questions that are under way are given up when this is
/// dropped.
#[derive(Debug)]
pub struct HeadsAhead {
    control: Rc<Control>,
    under_way: VecDeque<JoinHandle<Result<Found>>>,
    /// The last one is the first of its bucket.
    is_new: bool,
}

impl HeadsAhead {
    /// None yet; it must run inside a `LocalSet`, as tokio-uring has one.
    #[must_use]
    pub fn new(control: Rc<Control>) -> Self {
        Self { control, under_way: VecDeque::new(), is_new: false }
    }

    /// True when this address may be asked about now. A bucket that was not met is asked about
    /// alone: its name is resolved, its region found and its session opened once.
    #[must_use]
    pub fn takes(&self, uri: &S3Uri) -> bool {
        let is_alone = self.under_way.is_empty();
        let waits = self.is_new && self.under_way.back().is_some_and(|last| !last.is_finished());
        let is_met = self.control.has_met(&uri.bucket);
        self.under_way.len() < HEADS_ASKED_MAX && (is_alone || is_met && !waits)
    }

    /// Asks about an object behind the others.
    pub fn ask(&mut self, uri: S3Uri) {
        let control = Rc::clone(&self.control);
        self.is_new = !control.has_met(&uri.bucket);
        self.under_way.push_back(spawn_local(async move {
            let object = control.head(&uri.bucket, uri.literal_key(), "").await?;
            let object = object.ok_or_else(|| {
                let message = format!("{uri}: there is no object with this key");
                Error::new(ErrorKind::NotFound, message)
            })?;
            // Asking may have led to another region.
            Ok((object, control.endpoint(&uri.bucket).await?))
        }));
    }

    /// True when [`Self::next`] need not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.under_way.front().is_some_and(JoinHandle::is_finished)
    }

    /// The first that was asked about and not taken; `None` where there is none. The future may be
    /// dropped and made again.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such object, and those of [`Control::head`].
    ///
    /// # Panics
    /// When a question does.
    pub async fn next(&mut self) -> Result<Option<Found>> {
        let Some(first) = self.under_way.front_mut() else { return Ok(None) };
        let found = first.await.expect("a question is not given up, and does not panic");
        self.under_way.pop_front();
        found.map(Some)
    }
}

impl Drop for HeadsAhead {
    fn drop(&mut self) {
        self.under_way.iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::super::loopback::{Reply, Server, control, run};
    use super::*;

    fn uri(number: usize) -> S3Uri {
        S3Uri::parse_raw(&format!("s3://bkt/{number:03}")).expect("a good address")
    }

    #[test]
    fn many_are_asked_about_at_once_and_come_in_their_order() {
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let server = Server::start(|head| {
            let now = NOW.fetch_add(1, Ordering::SeqCst) + 1;
            MOST.fetch_max(now, Ordering::SeqCst);
            // Long enough for the others to come.
            std::thread::sleep(Duration::from_millis(30));
            NOW.fetch_sub(1, Ordering::SeqCst);
            let is_there = !head.contains("/299 ");
            let reply = Reply::new(if is_there { 200 } else { 404 }, "");
            reply.header("Content-Length", "3")
        });
        run(async {
            let mut heads = HeadsAhead::new(Rc::new(control(&server).await));
            let (mut asked, mut keys) = (0, Vec::new());
            let error = loop {
                while asked < 300 && heads.takes(&uri(asked)) {
                    heads.ask(uri(asked));
                    asked += 1;
                }
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
        let most = MOST.load(Ordering::SeqCst);
        assert!((2..=HEADS_ASKED_MAX).contains(&most), "{most} at once");
        assert_eq!(server.seen().len(), 300, "one question each");
    }

    #[test]
    fn a_bucket_that_was_not_met_is_asked_about_alone() {
        let server = Server::start(|_| Reply::new(200, "").header("Content-Length", "3"));
        run(async {
            let mut heads = HeadsAhead::new(Rc::new(control(&server).await));
            let other = S3Uri::parse_raw("s3://other/key").expect("a good address");
            assert!(heads.takes(&uri(0)) && heads.takes(&other));
            heads.ask(uri(0));
            assert!(!heads.takes(&uri(1)) && !heads.takes(&other), "the first is under way");
            heads.next().await.expect("an answer").expect("an object");
            heads.ask(uri(1));
            assert!(heads.takes(&uri(2)) && !heads.takes(&other));
        });
    }
}
