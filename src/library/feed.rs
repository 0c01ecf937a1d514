//! The events of a download on their way to the program: bounded, so that a slow listener holds up
//! no byte.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::download::{DownloadError, DownloadSummary};
use crate::error::Error;

/// Most events that a listener has not read yet; further ones are only counted.
const EVENTS_MAX: usize = 4096;

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
    /// The number of events that were dropped here because too many were not read.
    Missed(u64),
}

/// The result of a download.
pub(super) type Ended = Result<DownloadSummary, DownloadError>;

/// The events that were not read yet, and the result.
#[derive(Debug, Default)]
struct Unread {
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
#[derive(Debug)]
pub(super) struct Feed {
    unread: Mutex<Unread>,
    changed: Condvar,
    /// Nobody reads the events.
    is_unheard: bool,
}

impl Feed {
    /// A feed with a listener.
    pub(super) fn new() -> Self {
        Self { unread: Mutex::default(), changed: Condvar::new(), is_unheard: false }
    }

    /// A feed for a result alone.
    pub(super) fn unheard() -> Self {
        Self { is_unheard: true, ..Self::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Unread)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Adds an event, which is made only if there is room for it.
    pub(super) fn push(&self, event: impl FnOnce() -> DownloadEvent) {
        if self.is_unheard {
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

    /// Replaces the state.
    pub(super) fn set_progress(&self, progress: DownloadProgress) {
        if !self.is_unheard {
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

    /// The next event, which is waited for; `None` at the end. The newest state comes first, but
    /// not twice in a row while others wait: a slow listener would see nothing else.
    pub(super) fn next(&self) -> Option<DownloadEvent> {
        let is_empty = |unread: &mut Unread| {
            let has_none = unread.events.is_empty() && unread.progress.is_none();
            has_none && unread.missed == 0 && !unread.is_over
        };
        let unread = self.changed.wait_while(self.lock(), is_empty);
        let mut unread = unread.unwrap_or_else(PoisonError::into_inner);
        let is_due = !unread.was_progress || unread.events.is_empty();
        if let Some(progress) = unread.progress.take_if(|_| is_due) {
            unread.was_progress = true;
            return Some(DownloadEvent::Progress(progress));
        }
        unread.was_progress = false;
        if unread.events.is_empty() {
            unread.note_missed();
        }
        unread.events.pop_front()
    }

    /// Waits for the result, which is returned once.
    pub(super) fn result(&self) -> Option<Ended> {
        let unread = self.changed.wait_while(self.lock(), |unread| !unread.is_over);
        unread.unwrap_or_else(PoisonError::into_inner).result.take()
    }
}

impl Unread {
    /// Adds the number of missed events at their place.
    fn note_missed(&mut self) {
        if self.missed > 0 {
            self.events.push_back(DownloadEvent::Missed(std::mem::take(&mut self.missed)));
        }
    }
}

#[cfg(test)]
mod tests {
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
        let feed = Feed::new();
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
        let feed = Feed::new();
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
        let feed = Feed::new();
        (0..=EVENTS_MAX as u64).for_each(|number| feed.push(|| event(number)));
        end(&feed);
        assert_eq!(sizes(&feed).last(), Some(&1_000_002));
    }

    #[test]
    fn without_a_listener_no_event_is_made() {
        let feed = Feed::unheard();
        feed.push(|| panic!("nobody reads it"));
        feed.set_progress(DownloadProgress::default());
        end(&feed);
        assert!(feed.next().is_none());
    }
}
