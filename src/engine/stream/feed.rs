//! The content of a channel's stream: objects and ends of epochs, in order, bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::inline::InlineBytes;
use crate::error::{Error, ErrorKind};
use crate::limits::{FEED_OBJECTS_MAX, INLINE_AHEAD_BYTES_MAX};
use crate::link::object::ObjectRef;
use crate::plan::ranges::{PartSize, Ranges};
use crate::s3::ByteRange;
use crate::sys::{Handle, descriptor};

/// One step of the stream.
#[derive(Debug, Clone)]
pub enum StreamStep {
    /// Bytes of an object; of length 0 for an object without bytes, if objects are logged.
    Range(Arc<ObjectRef>, ByteRange),
    /// Bytes to be written as they are.
    Inline(InlineBytes),
    /// The end of an epoch.
    EpochEnd {
        /// Number of its objects, including those without bytes.
        objects: u64,
    },
}

/// One item of a stream, in order.
#[derive(Debug)]
pub enum FeedItem {
    /// A whole object.
    Object(Arc<ObjectRef>),
    /// Bytes between objects; the outlet of the stream must be a non-blocking pipe.
    Inline(InlineBytes),
}

impl From<Arc<ObjectRef>> for FeedItem {
    fn from(object: Arc<ObjectRef>) -> Self {
        Self::Object(object)
    }
}

/// The next step of the feed.
#[derive(Debug)]
pub enum NextStep {
    /// A step.
    StreamStep(StreamStep),
    /// Nothing yet; the counter is raised when there is.
    Later,
    /// The stream has ended.
    Ended,
}

/// A channel's stream, from the control plane to its feeder.
#[derive(Debug)]
pub struct StreamFeed {
    state: Mutex<FeedState>,
    stopped: AtomicBool,
    /// Stopped by the user, perhaps after another reason.
    interrupted: AtomicBool,
    /// The epoch that is being read, or waits for its reader.
    reading: AtomicU64,
    /// Number of epochs that have had a reader.
    opened: AtomicU64,
    counter: Handle,
    part: PartSize,
    /// How objects ended, if they are logged.
    log: Option<Mutex<Vec<Streamed>>>,
    /// Notified when something was taken or the channel's state has changed.
    moved: Notify,
    /// Notified when the state of any channel that shares it has changed.
    events: Arc<Notify>,
}

/// The end of an object of a stream: all of it was passed on, or it failed.
#[derive(Debug)]
pub struct Streamed {
    /// Its epoch, from 0.
    pub epoch: u64,
    /// The object.
    pub object: Arc<ObjectRef>,
    /// From its first request until its last byte was passed on, in microseconds.
    pub elapsed_us: u64,
    /// Success, or the error.
    pub result: Result<(), Error>,
}

#[derive(Debug, Default)]
struct FeedState {
    objects: VecDeque<FeedEntry>,
    /// The current object, and its remaining bytes.
    open: Option<(Arc<ObjectRef>, ByteRange)>,
    /// Objects pushed since the last end of an epoch.
    pushed: u64,
    /// Queued bytes between objects.
    inline_bytes: usize,
    complete: bool,
    asleep: bool,
    /// Earlier epochs are skipped.
    wanted: u64,
    /// The epoch of the next item.
    epoch: u64,
    stop: Option<Error>,
}

#[derive(Debug)]
enum FeedEntry {
    /// A whole object, or these bytes of it.
    Object(Arc<ObjectRef>, Option<ByteRange>),
    Inline(InlineBytes),
    EpochEnd {
        objects: u64,
    },
}

impl StreamFeed {
    /// An empty feed whose reader sleeps on `counter`.
    #[must_use]
    pub fn new(counter: Handle, part: PartSize) -> Self {
        Self {
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            reading: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            counter,
            part,
            log: None,
            moved: Notify::new(),
            events: Arc::default(),
        }
    }

    /// Notifies `events` of changes of the channel: it was stopped, an epoch begins or has a
    /// reader, an object has ended.
    #[must_use]
    pub fn notifying(self, events: Arc<Notify>) -> Self {
        Self { events, ..self }
    }

    /// Waits until something was taken, an epoch begins or has a reader, or the feed is stopped,
    /// since the last wait.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    fn notify(&self) {
        self.moved.notify_one();
        self.events.notify_one();
    }

    /// Logs how each object ends, until [`Self::collect`].
    #[must_use]
    pub fn logged(self) -> Self {
        Self { log: Some(Mutex::default()), ..self }
    }

    /// True if it logs how each object ends.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Logs the end of an object of an epoch.
    pub fn note_end(
        &self,
        epoch: u64,
        object: Arc<ObjectRef>,
        now_us: u64,
        result: Result<(), Error>,
    ) {
        let Some(log) = &self.log else { return };
        let elapsed_us = now_us.saturating_sub(object.begun_us().unwrap_or(now_us));
        let streamed = Streamed { epoch, object, elapsed_us, result };
        log.lock().unwrap_or_else(PoisonError::into_inner).push(streamed);
        self.events.notify_one();
    }

    /// Moves the log since the last call into `into`.
    pub fn collect(&self, into: &mut Vec<Streamed>) {
        if let Some(log) = &self.log {
            into.append(&mut log.lock().unwrap_or_else(PoisonError::into_inner));
            self.moved.notify_one();
        }
    }

    fn log_length(&self) -> usize {
        let length = |log: &Mutex<Vec<_>>| log.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.log.as_ref().map_or(0, length)
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, state: &mut FeedState) {
        if std::mem::take(&mut state.asleep) {
            descriptor::raise(&self.counter);
        }
    }

    /// How many more items it takes now; uncollected log entries use room, too.
    #[must_use]
    pub fn room(&self) -> usize {
        let state = self.lock();
        if state.inline_bytes >= INLINE_AHEAD_BYTES_MAX {
            return 0;
        }
        FEED_OBJECTS_MAX.saturating_sub(state.objects.len() + self.log_length())
    }

    /// Number of ranges that wait to be taken, including those of the next epoch.
    #[must_use]
    pub fn ranges_left(&self) -> u64 {
        let state = self.lock();
        let waiting = state.objects.iter().map(|entry| match entry {
            FeedEntry::Object(object, window) => self.ranges(window_of(object, *window)),
            FeedEntry::Inline(_) | FeedEntry::EpochEnd { .. } => 0,
        });
        waiting.sum::<u64>() + state.open.as_ref().map_or(0, |(_, left)| self.ranges(*left))
    }

    /// Appends items. Objects without bytes add nothing to the stream, and become steps only if
    /// objects are logged.
    pub fn push<I: Into<FeedItem>>(&self, items: impl IntoIterator<Item = I>) {
        let mut state = self.lock();
        for item in items {
            match item.into() {
                FeedItem::Object(object) => {
                    state.pushed += 1;
                    if object.listed.size_bytes > 0 || self.is_logged() {
                        state.objects.push_back(FeedEntry::Object(object, None));
                    }
                }
                FeedItem::Inline(inline) => {
                    state.inline_bytes += inline.bytes().len();
                    state.objects.push_back(FeedEntry::Inline(inline));
                }
            }
        }
        self.wake(&mut state);
    }

    /// Appends bytes of an object, which must be inside it, as the next object.
    pub fn push_part(&self, object: Arc<ObjectRef>, window: ByteRange) {
        let mut state = self.lock();
        state.pushed += 1;
        state.objects.push_back(FeedEntry::Object(object, Some(window)));
        self.wake(&mut state);
    }

    /// Number of ranges of these bytes, at the usual length.
    fn ranges(&self, bytes: ByteRange) -> u64 {
        Ranges::count_of(bytes.length, self.part)
    }

    /// Ends the epoch.
    pub fn end_epoch(&self) {
        let mut state = self.lock();
        let objects = std::mem::take(&mut state.pushed);
        state.objects.push_back(FeedEntry::EpochEnd { objects });
        self.wake(&mut state);
    }

    /// Ends the stream: no epoch follows.
    pub fn complete(&self) {
        let mut state = self.lock();
        state.complete = true;
        self.wake(&mut state);
    }

    /// Ends the channel early. The first reason stays.
    pub fn stop(&self, reason: Error) {
        let mut state = self.lock();
        if reason.kind() == ErrorKind::Interrupted {
            self.interrupted.store(true, Ordering::Release);
        }
        state.stop.get_or_insert(reason);
        self.stopped.store(true, Ordering::Release);
        state.asleep = true;
        self.wake(&mut state);
        self.notify();
    }

    /// True if the channel was ended early.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// True if the user has ended the channel, perhaps after a failure.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// The epoch that is being read, or waits for its reader.
    #[must_use]
    pub fn reading(&self) -> u64 {
        self.reading.load(Ordering::Acquire)
    }

    /// Sets the epoch that is being read.
    pub fn set_reading(&self, epoch: u64) {
        self.reading.store(epoch, Ordering::Release);
        self.notify();
    }

    /// Number of epochs that have had a reader.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// Sets the number of epochs that have had a reader.
    pub fn set_opened(&self, epochs: u64) {
        self.opened.store(epochs, Ordering::Release);
        self.notify();
    }

    /// Why it was ended early.
    #[must_use]
    pub fn stop_reason(&self) -> Option<Error> {
        self.lock().stop.clone()
    }

    /// Skips the rest of an epoch whose reader has closed early.
    pub fn skip_epoch(&self, epoch: u64) {
        let mut state = self.lock();
        state.wanted = state.wanted.max(epoch + 1);
        if state.epoch <= epoch {
            state.open = None;
            self.moved.notify_one();
        }
    }

    /// The next step of the stream; a range is at most `part` long, but all of an object whose
    /// server sends no ranges.
    pub fn next(&self, part: PartSize) -> NextStep {
        let mut state = self.lock();
        let waiting = state.objects.len();
        let next = state.take(part);
        // Skipped items free room, too, although they are no step.
        let has_moved = state.objects.len() < waiting || matches!(next, NextStep::StreamStep(_));
        drop(state);
        if has_moved {
            self.moved.notify_one();
        }
        next
    }
}

impl FeedState {
    fn take(&mut self, part: PartSize) -> NextStep {
        loop {
            if let Some((object, left)) = &mut self.open {
                if left.length > 0 {
                    let length = match object.listed.is_whole_only() {
                        true => left.length,
                        false => left.length.min(part.bytes()),
                    };
                    let range = ByteRange { length, ..*left };
                    left.offset += length;
                    left.length -= length;
                    return NextStep::StreamStep(StreamStep::Range(Arc::clone(object), range));
                }
                self.open = None;
            }
            match self.objects.pop_front() {
                Some(FeedEntry::Object(object, window)) => {
                    if self.epoch >= self.wanted && object.listed.size_bytes == 0 {
                        let nothing = ByteRange { offset: 0, length: 0 };
                        return NextStep::StreamStep(StreamStep::Range(object, nothing));
                    }
                    if self.epoch >= self.wanted {
                        let bytes = window_of(&object, window);
                        self.open = Some((object, bytes));
                    }
                }
                Some(FeedEntry::Inline(inline)) => {
                    self.inline_bytes -= inline.bytes().len();
                    if self.epoch >= self.wanted {
                        return NextStep::StreamStep(StreamStep::Inline(inline));
                    }
                }
                Some(FeedEntry::EpochEnd { objects }) => {
                    self.epoch += 1;
                    return NextStep::StreamStep(StreamStep::EpochEnd { objects });
                }
                None if self.complete => return NextStep::Ended,
                None => {
                    self.asleep = true;
                    return NextStep::Later;
                }
            }
        }
    }
}

/// These bytes of an object, or all of it.
fn window_of(object: &ObjectRef, window: Option<ByteRange>) -> ByteRange {
    window.unwrap_or(ByteRange { offset: 0, length: object.listed.size_bytes })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::s3::web::{WebTarget, WebUrl};
    use crate::s3::{Endpoint, Object};

    const PART: PartSize = PartSize::new(4096).expect("aligned");

    fn feed() -> StreamFeed {
        StreamFeed::new(Handle::Simulated(0), PART)
    }

    fn object(key: &str, size_bytes: u64) -> Arc<ObjectRef> {
        let object = Object { key: key.to_owned(), size_bytes, ..Object::default() };
        let endpoint = Endpoint::new("b", false, "h", "/", "r", vec![]);
        Arc::new(ObjectRef::new(object, Arc::new(endpoint)))
    }

    /// The next step as text: `key first+length`, "end of" objects, "later" or "ended".
    fn next(feed: &StreamFeed) -> String {
        match feed.next(PART) {
            NextStep::StreamStep(StreamStep::Range(object, range)) => {
                format!("{} {}+{}", object.listed.key, range.offset, range.length)
            }
            NextStep::StreamStep(StreamStep::Inline(inline)) => {
                format!("{:?}", String::from_utf8_lossy(inline.bytes()))
            }
            NextStep::StreamStep(StreamStep::EpochEnd { objects }) => format!("end of {objects}"),
            NextStep::Later => "later".to_owned(),
            NextStep::Ended => "ended".to_owned(),
        }
    }

    fn take<const COUNT: usize>(feed: &StreamFeed) -> [String; COUNT] {
        std::array::from_fn(|_| next(feed))
    }

    #[test]
    fn ranges_come_in_order_and_empty_objects_not_at_all() {
        let feed = feed();
        assert_eq!(next(&feed), "later");
        feed.push([object("a", 5000), object("none", 0), object("b", 1)]);
        feed.end_epoch();
        assert_eq!(feed.ranges_left(), 3);
        assert_eq!(take(&feed), ["a 0+4096"]);
        assert_eq!(feed.ranges_left(), 2);
        assert_eq!(take(&feed), ["a 4096+904", "b 0+1", "end of 3", "later"]);
        assert_eq!(feed.ranges_left(), 0);
        feed.end_epoch();
        feed.complete();
        assert_eq!(take(&feed), ["end of 0", "ended", "ended"], "an epoch may be empty");
    }

    #[test]
    fn some_bytes_of_an_object_come_alone() {
        let feed = feed();
        feed.push_part(object("a", 50_000), ByteRange { offset: 4000, length: 5000 });
        feed.end_epoch();
        assert_eq!(feed.ranges_left(), 2);
        assert_eq!(take(&feed), ["a 4000+4096", "a 8096+904", "end of 1", "later"]);
    }

    #[test]
    fn an_object_whose_server_sends_no_ranges_comes_whole() {
        let url = WebUrl::parse("http://h/f").expect("a URL");
        let web = Some(Arc::new(WebTarget::new(url.clone(), &url, true)));
        let listed = Object { key: "f".to_owned(), size_bytes: 5 << 30, web, ..Object::default() };
        let endpoint = Endpoint::new("b", false, "h", "/", "r", vec![]);
        let feed = feed();
        feed.push([object("a", 5000), Arc::new(ObjectRef::new(listed, Arc::new(endpoint)))]);
        feed.end_epoch();
        let whole = format!("f 0+{}", 5_u64 << 30);
        assert_eq!(take(&feed), ["a 0+4096", "a 4096+904", &whole, "end of 2"]);
    }

    #[test]
    fn each_range_is_as_long_as_it_may_be_whatever_those_before_were() {
        let feed = feed();
        feed.push([object("a", 50_000)]);
        let lengths = [4096, 8192, 12_288, 16_384, 16_384].map(|part| {
            let part = PartSize::new(part).expect("aligned");
            match feed.next(part) {
                NextStep::StreamStep(StreamStep::Range(_, range)) => range.length,
                other => unreachable!("{other:?}"),
            }
        });
        assert_eq!(lengths, [4096, 8192, 12_288, 16_384, 9040]);
    }

    fn inline(text: &str) -> FeedItem {
        FeedItem::Inline(InlineBytes::new(text.as_bytes()))
    }

    #[test]
    fn bytes_of_ours_stand_between_objects_and_are_none() {
        let feed = feed();
        feed.push([inline("head"), object("a", 5000).into(), inline("tail")]);
        assert_eq!(feed.ranges_left(), 2);
        assert_eq!(take(&feed), ["\"head\"", "a 0+4096", "a 4096+904", "\"tail\"", "later"]);
        feed.push([inline("x"), object("b", 1).into(), inline("y")]);
        feed.end_epoch();
        feed.push([inline("next")]);
        feed.end_epoch();
        assert_eq!(take(&feed), ["\"x\""]);
        feed.skip_epoch(0);
        assert_eq!(take(&feed), ["end of 2", "\"next\"", "end of 0", "later"]);
    }

    #[test]
    fn bytes_of_ours_are_bounded_whether_they_are_taken_or_passed_over() {
        let feed = feed();
        let long = "x".repeat(INLINE_AHEAD_BYTES_MAX / 16);
        feed.push((0..15).map(|_| inline(&long)));
        assert_eq!(feed.room(), FEED_OBJECTS_MAX - 15);
        feed.push([inline(&long)]);
        assert_eq!(feed.room(), 0);
        assert!(next(&feed).starts_with("\"xxx"));
        assert_eq!(feed.room(), FEED_OBJECTS_MAX - 15);
        feed.push([inline(&long)]);
        feed.end_epoch();
        feed.skip_epoch(0);
        assert_eq!((take(&feed), feed.room()), (["end of 0".to_owned()], FEED_OBJECTS_MAX));
    }

    #[test]
    fn what_ended_takes_room_until_it_is_collected() {
        let feed = feed().logged();
        feed.push([object("none", 0), object("a", 5000)]);
        assert_eq!(take(&feed), ["none 0+0", "a 0+4096", "a 4096+904", "later"]);
        feed.note_end(3, object("a", 5000), 7, Ok(()));
        assert_eq!(feed.room(), FEED_OBJECTS_MAX - 1);
        let mut ended = Vec::new();
        feed.collect(&mut ended);
        assert_eq!((ended.len(), ended[0].epoch, feed.room()), (1, 3, FEED_OBJECTS_MAX));
    }

    #[test]
    fn a_skipped_epoch_is_passed_over_to_its_end() {
        let feed = feed();
        feed.push([object("a", 9000), object("b", 1)]);
        assert_eq!(next(&feed), "a 0+4096");
        feed.skip_epoch(0);
        assert_eq!(next(&feed), "later", "its end is not there yet");
        feed.push([object("c", 1)]);
        feed.end_epoch();
        feed.push([object("d", 1)]);
        feed.end_epoch();
        assert_eq!(take(&feed), ["end of 3", "d 0+1", "end of 1", "later"]);
    }

    #[test]
    fn skipping_what_was_already_taken_leaves_the_next_epoch_whole() {
        let feed = feed();
        feed.push([object("a", 1)]);
        feed.end_epoch();
        feed.push([object("b", 9000)]);
        assert_eq!(take(&feed), ["a 0+1", "end of 1", "b 0+4096"]);
        feed.skip_epoch(0);
        assert_eq!(take(&feed), ["b 4096+4096", "b 8192+808", "later"]);
    }

    /// True if something was taken, or the channel's state has changed, since the last call.
    fn has_moved(feed: &StreamFeed) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(feed.moved()).poll(&mut context).is_ready()
    }

    #[test]
    fn its_supplier_is_notified_of_what_is_passed_over() {
        let feed = feed();
        feed.push((0..FEED_OBJECTS_MAX).map(|_| object("a", 1)));
        assert_eq!((take(&feed), has_moved(&feed)), (["a 0+1".to_owned()], true));
        feed.push([object("a", 1)]);
        feed.skip_epoch(0);
        // The supplier checks before anything is skipped, finds no room and waits again.
        assert!(has_moved(&feed) && !has_moved(&feed));
        assert_eq!((next(&feed), feed.room()), ("later".to_owned(), FEED_OBJECTS_MAX));
        assert!(has_moved(&feed), "there is room");
        assert_eq!((next(&feed), has_moved(&feed)), ("later".to_owned(), false));
    }

    #[test]
    fn it_is_bounded_and_takes_again_what_was_made_room_for() {
        let feed = feed();
        assert_eq!(feed.room(), FEED_OBJECTS_MAX);
        feed.push((0..FEED_OBJECTS_MAX).map(|_| object("a", 1)));
        assert_eq!(feed.room(), 0);
        feed.end_epoch();
        assert_eq!(feed.room(), 0, "an end too many is no room below zero");
        assert_eq!(take(&feed), ["a 0+1", "a 0+1"]);
        assert_eq!(feed.room(), 1);
    }

    #[test]
    fn the_first_reason_to_stop_stays() {
        let feed = feed();
        assert!(!feed.is_stopped() && feed.stop_reason().is_none());
        feed.stop(Error::new(ErrorKind::Host, "first"));
        assert!(feed.is_stopped() && !feed.is_interrupted());
        feed.stop(Error::new(ErrorKind::Interrupted, "second"));
        assert!(feed.is_interrupted(), "the user ends what has failed, too");
        assert_eq!(feed.stop_reason().map(|error| error.kind()), Some(ErrorKind::Host));
    }
}
