//! The events of a download on their way to the program: bounded, so that a slow listener holds up
//! no byte. Lines of the report are the exception: none may be lost, so the results of objects wait
//! for who reads them.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

use super::download::{DownloadError, DownloadSummary};
use crate::error::Error;

/// Most events that a listener has not read yet; further ones are only counted.
const EVENTS_MAX: usize = 4096;

/// Unread lines from which on the results of objects wait.
const LINES_MAX: usize = 1024;

/// An object of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DownloadObject {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its file; `None` if it can have none.
    pub file: Option<PathBuf>,
}

/// The state of a download.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DownloadProgress {
    /// Bytes downloaded.
    pub bytes_done: u64,
    /// Bytes of all objects known so far that are to be downloaded.
    pub bytes_known: u64,
    /// Objects that are complete or have failed.
    pub objects_done: u64,
    /// Objects known so far that are to be downloaded.
    pub objects_known: u64,
    /// Objects whose files exist already.
    pub existing_objects: u64,
    /// Objects that have failed.
    pub failed_objects: u64,
    /// Failed attempts that were retried.
    pub retries: u64,
    /// All objects are known.
    pub listing_complete: bool,
}

/// Something that has happened in a download.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DownloadEvent {
    /// An object is to be downloaded.
    Admitted(DownloadObject),
    /// An object needs no download: its file exists.
    Existing(DownloadObject),
    /// The state of the download. One that was not read is replaced by the next one.
    Progress(DownloadProgress),
    /// A server does not answer: which one, for how long, and why.
    Waiting(String),
    /// An object is downloaded again from its first byte, and why.
    Retried(DownloadObject, &'static str),
    /// The file of an object is complete.
    Done(DownloadObject),
    /// An object has failed.
    Failed(DownloadObject, Error),
    /// A line of the report ([`DownloadEvents::Lines`]).
    Line(String),
    /// The number of events that were dropped here because too many were not read.
    Missed(u64),
}

/// Which events a download sends to who started it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownloadEvents {
    /// All but [`DownloadEvent::Line`].
    #[default]
    Usual,
    /// [`DownloadEvent::Line`] alone: each line of `inrush get --report`, none of which is missed.
    /// So the results of objects wait for a listener that reads them late, and at last the
    /// download does.
    Lines,
    /// None: the end alone.
    Nothing,
}

/// The result of a download.
pub(super) type Ended = Result<DownloadSummary, DownloadError>;

/// The events that were not read yet, and the result.
#[derive(Debug, Default)]
struct Unread {
    /// Those that are sent.
    sent: DownloadEvents,
    events: VecDeque<DownloadEvent>,
    /// The newest state.
    progress: Option<DownloadProgress>,
    /// The last event that was read was a state.
    was_progress: bool,
    missed: u64,
    is_over: bool,
    result: Option<Ended>,
}

/// The way of events from the client's thread to a listener.
pub(super) struct Feed {
    unread: Mutex<Unread>,
    changed: Condvar,
    /// Wakes a download that waits for room for lines.
    room: Notify,
    /// Called after each change.
    notify: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("unread", &self.unread).finish_non_exhaustive()
    }
}

impl Feed {
    /// A feed of these events, and what is called when it may have something new.
    pub(super) fn new(sent: DownloadEvents, notify: impl Fn() + Send + Sync + 'static) -> Self {
        let unread = Mutex::new(Unread { sent, ..Unread::default() });
        let (changed, room) = (Condvar::new(), Notify::new());
        Self { unread, changed, room, notify: Box::new(notify) }
    }

    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if these events are sent.
    pub(super) fn sends(&self, events: DownloadEvents) -> bool {
        self.lock().sent == events
    }

    fn change(&self, change: impl FnOnce(&mut Unread)) {
        change(&mut self.lock());
        self.changed.notify_all();
        (self.notify)();
    }

    /// Adds an event, which is made only if there is room for it.
    pub(super) fn push(&self, event: impl FnOnce() -> DownloadEvent) {
        if !self.sends(DownloadEvents::Usual) {
            return;
        }
        self.change(|unread| {
            // An event more may say how many were missed.
            if unread.events.len() + 1 >= EVENTS_MAX {
                unread.missed += 1;
                return;
            }
            unread.note_missed();
            unread.events.push_back(event());
        });
    }

    /// Adds a line of the report, room or not.
    pub(super) fn push_line(&self, line: String) {
        if self.sends(DownloadEvents::Lines) {
            self.change(|unread| unread.events.push_back(DownloadEvent::Line(line)));
        }
    }

    /// True while the results of objects should wait for the listener.
    pub(super) fn is_behind(&self) -> bool {
        let unread = self.lock();
        unread.sent == DownloadEvents::Lines && unread.events.len() >= LINES_MAX
    }

    /// Waits until they need not. Cancel safe.
    pub(super) async fn keep_up(&self) {
        while self.is_behind() {
            self.room.notified().await;
        }
    }

    /// Nobody reads events from now on: those that are there are dropped, and nothing waits.
    pub(super) fn hush(&self) {
        let mut unread = self.lock();
        let (is_over, result) = (unread.is_over, unread.result.take());
        let sent = DownloadEvents::Nothing;
        *unread = Unread { sent, is_over, result, ..Unread::default() };
        self.room.notify_one();
    }

    /// Replaces the state.
    pub(super) fn set_progress(&self, progress: DownloadProgress) {
        if self.sends(DownloadEvents::Usual) {
            self.change(|unread| unread.progress = Some(progress));
        }
    }

    /// Ends the feed with the result of the download.
    pub(super) fn end(&self, result: Ended) {
        self.change(|unread| {
            unread.is_over = true;
            unread.result = Some(result);
        });
    }

    /// The next event, which is waited for; `None` at the end.
    pub(super) fn next(&self) -> Option<DownloadEvent> {
        let unread = self.changed.wait_while(self.lock(), |unread| unread.is_empty());
        self.take(&mut unread.unwrap_or_else(PoisonError::into_inner))
    }

    /// The next event if it is there; `None` at the end.
    pub(super) fn try_next(&self) -> Poll<Option<DownloadEvent>> {
        let mut unread = self.lock();
        if unread.is_empty() { Poll::Pending } else { Poll::Ready(self.take(&mut unread)) }
    }

    fn take(&self, unread: &mut Unread) -> Option<DownloadEvent> {
        let event = unread.take();
        if matches!(event, Some(DownloadEvent::Line(_))) {
            self.room.notify_one();
        }
        event
    }

    /// Waits for the result, which is returned once.
    pub(super) fn result(&self) -> Option<Ended> {
        let unread = self.changed.wait_while(self.lock(), |unread| !unread.is_over);
        unread.unwrap_or_else(PoisonError::into_inner).result.take()
    }
}

impl Unread {
    /// True if there is nothing to take yet.
    fn is_empty(&self) -> bool {
        let has_none = self.events.is_empty() && self.progress.is_none();
        has_none && self.missed == 0 && !self.is_over
    }

    /// The next event. The newest state comes first, but not twice in a row while others wait: a
    /// slow listener would see nothing else.
    fn take(&mut self) -> Option<DownloadEvent> {
        let is_due = !self.was_progress || self.events.is_empty();
        if let Some(progress) = self.progress.take_if(|_| is_due) {
            self.was_progress = true;
            return Some(DownloadEvent::Progress(progress));
        }
        self.was_progress = false;
        if self.events.is_empty() {
            self.note_missed();
        }
        self.events.pop_front()
    }

    /// Adds the number of missed events at their place.
    fn note_missed(&mut self) {
        if self.missed > 0 {
            self.events.push_back(DownloadEvent::Missed(std::mem::take(&mut self.missed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Waker};

    use super::*;
    use crate::error::ErrorKind;

    fn event(bytes: u64) -> DownloadEvent {
        let (bucket, key) = ("b".to_owned(), bytes.to_string());
        DownloadEvent::Done(DownloadObject { bucket, key, size_bytes: bytes, file: None })
    }

    fn sizes(feed: &Feed) -> Vec<u64> {
        let size = |event| match event {
            DownloadEvent::Done(object) => object.size_bytes,
            DownloadEvent::Progress(progress) => progress.bytes_done,
            DownloadEvent::Missed(count) => 1_000_000 + count,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| feed.next()).map(size).collect()
    }

    fn end(feed: &Feed) {
        feed.end(Err(Error::new(ErrorKind::Interrupted, "over").into()));
    }

    #[test]
    fn a_listener_that_does_not_read_holds_nothing_up_and_learns_what_it_missed() {
        let feed = Feed::new(DownloadEvents::Usual, || {});
        let many = EVENTS_MAX as u64 + 9;
        for number in 0..many {
            feed.push(|| event(number));
            let progress = DownloadProgress { bytes_done: number, ..DownloadProgress::default() };
            feed.set_progress(progress);
        }
        assert!(feed.lock().events.len() <= EVENTS_MAX);
        let newest = feed.next().expect("the state");
        assert!(matches!(newest, DownloadEvent::Progress(one) if one.bytes_done == many - 1));
        assert!(matches!(feed.next(), Some(DownloadEvent::Done(first)) if first.key == "0"));
        feed.push(|| event(many));
        end(&feed);
        let sizes = sizes(&feed);
        let kept = EVENTS_MAX as u64 - 1;
        let expected = (1..kept).chain([1_000_000 + many - kept, many]);
        assert_eq!(sizes, expected.collect::<Vec<_>>());
        assert!(feed.next().is_none() && feed.result().is_some() && feed.result().is_none());
    }

    #[test]
    fn a_listener_that_is_slow_gets_events_between_states() {
        let feed = Feed::new(DownloadEvents::Usual, || {});
        let state = |bytes_done| DownloadProgress { bytes_done, ..DownloadProgress::default() };
        feed.push(|| event(1));
        feed.push(|| event(2));
        for bytes_done in [10, 11] {
            feed.set_progress(state(bytes_done));
            let Some(DownloadEvent::Progress(now)) = feed.next() else { panic!("no state") };
            assert_eq!(now.bytes_done, bytes_done);
            feed.set_progress(state(99));
            assert!(matches!(feed.next(), Some(DownloadEvent::Done(_))));
        }
        assert!(matches!(feed.next(), Some(DownloadEvent::Progress(_))), "nothing else waits");
    }

    #[test]
    fn the_last_missed_ones_are_counted_too() {
        let feed = Feed::new(DownloadEvents::Usual, || {});
        (0..=EVENTS_MAX as u64).for_each(|number| feed.push(|| event(number)));
        end(&feed);
        assert_eq!(sizes(&feed).last(), Some(&1_000_002));
    }

    #[test]
    fn no_line_is_missed_and_who_reads_late_holds_the_results_up() {
        let rings = Arc::new(AtomicUsize::new(0));
        let rung = Arc::clone(&rings);
        let ring = move || {
            rung.fetch_add(1, Ordering::Relaxed);
        };
        let feed = Feed::new(DownloadEvents::Lines, ring);
        assert!(matches!(feed.try_next(), Poll::Pending));
        let mut lines = 0;
        while !feed.is_behind() {
            feed.push(|| panic!("lines alone are sent"));
            feed.push_line(lines.to_string());
            lines += 1;
        }
        assert_eq!((lines, rings.load(Ordering::Relaxed)), (LINES_MAX, LINES_MAX));
        // What an observer has at once is there, however much that is.
        (0..EVENTS_MAX).for_each(|more| feed.push_line((lines + more).to_string()));
        let mut waits = std::pin::pin!(feed.keep_up());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        end(&feed);
        let line = |event| match event {
            DownloadEvent::Line(line) => line,
            other => panic!("{other:?}"),
        };
        let read = std::iter::from_fn(|| feed.next()).map(line);
        assert!(read.eq((0..lines + EVENTS_MAX).map(|number| number.to_string())));
        assert!(waits.as_mut().poll(&mut context).is_ready());
        assert!(matches!(feed.try_next(), Poll::Ready(None)));
    }

    #[test]
    fn a_listener_that_is_gone_holds_nothing_up() {
        let feed = Feed::new(DownloadEvents::Lines, || {});
        (0..LINES_MAX).for_each(|number| feed.push_line(number.to_string()));
        let mut waits = std::pin::pin!(feed.keep_up());
        let mut context = Context::from_waker(Waker::noop());
        assert!(feed.is_behind() && waits.as_mut().poll(&mut context).is_pending());
        feed.hush();
        assert!(!feed.is_behind() && waits.as_mut().poll(&mut context).is_ready());
        feed.push_line("more".to_owned());
        end(&feed);
        assert!(feed.next().is_none() && feed.result().is_some());
    }

    #[test]
    fn without_a_listener_no_event_is_made() {
        let feed = Feed::new(DownloadEvents::Nothing, || {});
        feed.push(|| panic!("nobody reads it"));
        feed.set_progress(DownloadProgress::default());
        end(&feed);
        assert!(feed.next().is_none());
    }
}
