//! What comes next in a channel's stream: objects and the ends of epochs, in order, bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::inline::InlineBytes;
use crate::error::{Error, ErrorKind};
use crate::files::transfer::{Outcome, Transfer};
use crate::limits::{FEED_OBJECTS_MAX, INLINE_AHEAD_BYTES_MAX};
use crate::plan::ranges::{PartSize, Ranges};
use crate::s3::ByteRange;
use crate::sys::{Handle, descriptor};

/// One step of the stream.
#[derive(Debug, Clone)]
pub enum StreamStep {
    /// Bytes of an object; of length 0 for an object without bytes, where each is told.
    Range(Arc<Transfer>, ByteRange),
    /// Bytes that are written as they stand here.
    Inline(InlineBytes),
    /// The end of an epoch.
    EpochEnd {
        /// How many objects it had, those without bytes among them.
        objects: u64,
    },
}

/// What a stream is made of, in order.
#[derive(Debug)]
pub enum FeedItem {
    /// All of an object.
    Object(Arc<Transfer>),
    /// Bytes beside those of objects; the place of the stream must be a pipe that does not wait.
    Inline(InlineBytes),
}

impl From<Arc<Transfer>> for FeedItem {
    fn from(transfer: Arc<Transfer>) -> Self {
        Self::Object(transfer)
    }
}

/// What the feed has now.
#[derive(Debug)]
pub enum NextStep {
    /// This.
    StreamStep(StreamStep),
    /// Nothing yet; the counter is raised when there is.
    Later,
    /// Nothing any more.
    Ended,
}

/// A channel's stream, from the control plane to its feeder.
#[derive(Debug)]
pub struct StreamFeed {
    state: Mutex<State>,
    stopped: AtomicBool,
    /// Stopped by the user, whatever stopped it before.
    interrupted: AtomicBool,
    /// The epoch that is being read, or waits for its reader.
    reading: AtomicU64,
    /// How many epochs have had a reader.
    opened: AtomicU64,
    counter: Handle,
    part: PartSize,
    /// How objects ended, where that is told of each.
    log: Option<Mutex<Vec<Streamed>>>,
    /// Something was taken out of it, or has become of the channel, since its supplier has looked.
    moved: Notify,
    /// Something has become of a channel since whoever serves it has looked: of all that share it.
    events: Arc<Notify>,
}

/// How an object of a stream ended: all of it was handed on, or it failed.
#[derive(Debug)]
pub struct Streamed {
    /// Its epoch, from 0.
    pub epoch: u64,
    /// The rest.
    pub outcome: Outcome,
}

#[derive(Debug, Default)]
struct State {
    objects: VecDeque<Entry>,
    /// The object in front, and which of its bytes are still to come.
    open: Option<(Arc<Transfer>, ByteRange)>,
    /// How many objects were pushed since the last end of an epoch.
    pushed: u64,
    /// Bytes beside those of objects that wait.
    inline_bytes: usize,
    complete: bool,
    asleep: bool,
    /// Epochs before this one are not wanted any more.
    wanted: u64,
    /// The epoch of what comes next.
    epoch: u64,
    stop: Option<Error>,
}

#[derive(Debug)]
enum Entry {
    /// All of an object, or these bytes of it.
    Object(Arc<Transfer>, Option<ByteRange>),
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

    /// The same, which notifies those who serve the channel of what becomes of it: it was stopped,
    /// an epoch begins or has a reader, an object has ended.
    #[must_use]
    pub fn notifying(self, events: Arc<Notify>) -> Self {
        Self { events, ..self }
    }

    /// Waits until something was taken out of it, an epoch begins or has a reader, or it is
    /// stopped: since the last wait.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    fn notify(&self) {
        self.moved.notify_one();
        self.events.notify_one();
    }

    /// The same, which keeps how each object ended until [`Self::collect`] takes that.
    #[must_use]
    pub fn logged(self) -> Self {
        Self { log: Some(Mutex::default()), ..self }
    }

    /// True when it is told how each object ends.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Notes how an object of an epoch ended, at this time.
    pub fn note_end(
        &self,
        epoch: u64,
        transfer: Arc<Transfer>,
        now_us: u64,
        result: Result<(), Error>,
    ) {
        let Some(log) = &self.log else { return };
        let elapsed_us = now_us.saturating_sub(transfer.begun_us().unwrap_or(now_us));
        let outcome = Outcome { transfer, elapsed_us, result };
        log.lock().unwrap_or_else(PoisonError::into_inner).push(Streamed { epoch, outcome });
        self.events.notify_one();
    }

    /// Moves what was noted since the last call into `into`.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, state: &mut State) {
        if std::mem::take(&mut state.asleep) {
            descriptor::raise(&self.counter);
        }
    }

    /// How many more items it takes now; what was noted and not collected takes room, too.
    #[must_use]
    pub fn room(&self) -> usize {
        let state = self.lock();
        if state.inline_bytes >= INLINE_AHEAD_BYTES_MAX {
            return 0;
        }
        FEED_OBJECTS_MAX.saturating_sub(state.objects.len() + self.log_length())
    }

    /// How many ranges wait to be taken, the next epoch's included.
    #[must_use]
    pub fn ranges_left(&self) -> u64 {
        let state = self.lock();
        let waiting = state.objects.iter().map(|entry| match entry {
            Entry::Object(transfer, window) => self.ranges(window_of(transfer, *window)),
            Entry::Inline(_) | Entry::EpochEnd { .. } => 0,
        });
        waiting.sum::<u64>() + state.open.as_ref().map_or(0, |(_, left)| self.ranges(*left))
    }

    /// Takes what comes next; objects without bytes add nothing to the stream, and stand in it only
    /// where it is told how each object ends.
    pub fn push<I: Into<FeedItem>>(&self, items: impl IntoIterator<Item = I>) {
        let mut state = self.lock();
        for item in items {
            match item.into() {
                FeedItem::Object(transfer) => {
                    state.pushed += 1;
                    if transfer.object.size_bytes > 0 || self.is_logged() {
                        state.objects.push_back(Entry::Object(transfer, None));
                    }
                }
                FeedItem::Inline(inline) => {
                    state.inline_bytes += inline.bytes().len();
                    state.objects.push_back(Entry::Inline(inline));
                }
            }
        }
        self.wake(&mut state);
    }

    /// Takes some bytes of an object, which must lie in it, as the next object.
    pub fn push_part(&self, transfer: Arc<Transfer>, window: ByteRange) {
        let mut state = self.lock();
        state.pushed += 1;
        state.objects.push_back(Entry::Object(transfer, Some(window)));
        self.wake(&mut state);
    }

    /// How many ranges these bytes are, if none is cut shorter than usual.
    fn ranges(&self, bytes: ByteRange) -> u64 {
        Ranges::count_of(bytes.length, self.part)
    }

    /// Ends the epoch.
    pub fn end_epoch(&self) {
        let mut state = self.lock();
        let objects = std::mem::take(&mut state.pushed);
        state.objects.push_back(Entry::EpochEnd { objects });
        self.wake(&mut state);
    }

    /// Says that no epoch follows.
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

    /// True when the channel was ended early.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// True when the user has ended the channel, be it after a failure.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// The epoch that is being read, or waits for its reader.
    #[must_use]
    pub fn reading(&self) -> u64 {
        self.reading.load(Ordering::Acquire)
    }

    /// Says which epoch that is.
    pub fn set_reading(&self, epoch: u64) {
        self.reading.store(epoch, Ordering::Release);
        self.notify();
    }

    /// How many epochs have had a reader.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// Says how many those are.
    pub fn set_opened(&self, epochs: u64) {
        self.opened.store(epochs, Ordering::Release);
        self.notify();
    }

    /// Why it was ended early.
    #[must_use]
    pub fn stop_reason(&self) -> Option<Error> {
        self.lock().stop.clone()
    }

    /// The epoch that a reader has closed early is not wanted any more: its rest is passed over.
    pub fn skip_epoch(&self, epoch: u64) {
        let mut state = self.lock();
        state.wanted = state.wanted.max(epoch + 1);
        if state.epoch <= epoch {
            state.open = None;
            self.moved.notify_one();
        }
    }

    /// The next step of the stream; a range is at most `part` long.
    pub fn next(&self, part: PartSize) -> NextStep {
        let mut state = self.lock();
        let waiting = state.objects.len();
        let next = state.take(part);
        // What is passed over makes room as well, though it is no step.
        let has_moved = state.objects.len() < waiting || matches!(next, NextStep::StreamStep(_));
        drop(state);
        if has_moved {
            self.moved.notify_one();
        }
        next
    }
}

impl State {
    fn take(&mut self, part: PartSize) -> NextStep {
        loop {
            if let Some((transfer, left)) = &mut self.open {
                if left.length > 0 {
                    let length = left.length.min(part.bytes());
                    let range = ByteRange { length, ..*left };
                    left.offset += length;
                    left.length -= length;
                    return NextStep::StreamStep(StreamStep::Range(Arc::clone(transfer), range));
                }
                self.open = None;
            }
            match self.objects.pop_front() {
                Some(Entry::Object(transfer, window)) => {
                    if self.epoch >= self.wanted && transfer.object.size_bytes == 0 {
                        let nothing = transfer.whole_range();
                        return NextStep::StreamStep(StreamStep::Range(transfer, nothing));
                    }
                    if self.epoch >= self.wanted {
                        let bytes = window_of(&transfer, window);
                        self.open = Some((transfer, bytes));
                    }
                }
                Some(Entry::Inline(inline)) => {
                    self.inline_bytes -= inline.bytes().len();
                    if self.epoch >= self.wanted {
                        return NextStep::StreamStep(StreamStep::Inline(inline));
                    }
                }
                Some(Entry::EpochEnd { objects }) => {
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
fn window_of(transfer: &Transfer, window: Option<ByteRange>) -> ByteRange {
    window.unwrap_or(ByteRange { offset: 0, length: transfer.object.size_bytes })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::files::transfer::Cut;
    use crate::s3::{Endpoint, Object};

    const PART: PartSize = PartSize::new(4096).expect("aligned");

    fn feed() -> StreamFeed {
        StreamFeed::new(Handle::Simulated(0), PART)
    }

    fn transfer(key: &str, size_bytes: u64) -> Arc<Transfer> {
        let object = Object { key: key.to_owned(), size_bytes, ..Object::default() };
        let endpoint = Endpoint::new("b", false, "h", "/", "r", vec![]);
        let cut = Cut { part: PART, slot_length_bytes: 64 << 10 };
        Arc::new(Transfer::new(object, Arc::new(endpoint), key.to_owned(), cut))
    }

    /// The next step as a text: `key first+length`, "end of" objects, "later" or "ended".
    fn next(feed: &StreamFeed) -> String {
        match feed.next(PART) {
            NextStep::StreamStep(StreamStep::Range(transfer, range)) => {
                format!("{} {}+{}", transfer.object.key, range.offset, range.length)
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
        feed.push([transfer("a", 5000), transfer("none", 0), transfer("b", 1)]);
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
        feed.push_part(transfer("a", 50_000), ByteRange { offset: 4000, length: 5000 });
        feed.end_epoch();
        assert_eq!(feed.ranges_left(), 2);
        assert_eq!(take(&feed), ["a 4000+4096", "a 8096+904", "end of 1", "later"]);
    }

    #[test]
    fn each_range_is_as_long_as_it_may_be_whatever_those_before_were() {
        let feed = feed();
        feed.push([transfer("a", 50_000)]);
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
        feed.push([inline("head"), transfer("a", 5000).into(), inline("tail")]);
        assert_eq!(feed.ranges_left(), 2);
        assert_eq!(take(&feed), ["\"head\"", "a 0+4096", "a 4096+904", "\"tail\"", "later"]);
        feed.push([inline("x"), transfer("b", 1).into(), inline("y")]);
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
        feed.push([transfer("none", 0), transfer("a", 5000)]);
        assert_eq!(take(&feed), ["none 0+0", "a 0+4096", "a 4096+904", "later"]);
        feed.note_end(3, transfer("a", 5000), 7, Ok(()));
        assert_eq!(feed.room(), FEED_OBJECTS_MAX - 1);
        let mut ended = Vec::new();
        feed.collect(&mut ended);
        assert_eq!((ended.len(), ended[0].epoch, feed.room()), (1, 3, FEED_OBJECTS_MAX));
    }

    #[test]
    fn a_skipped_epoch_is_passed_over_to_its_end() {
        let feed = feed();
        feed.push([transfer("a", 9000), transfer("b", 1)]);
        assert_eq!(next(&feed), "a 0+4096");
        feed.skip_epoch(0);
        assert_eq!(next(&feed), "later", "its end is not there yet");
        feed.push([transfer("c", 1)]);
        feed.end_epoch();
        feed.push([transfer("d", 1)]);
        feed.end_epoch();
        assert_eq!(take(&feed), ["end of 3", "d 0+1", "end of 1", "later"]);
    }

    #[test]
    fn skipping_what_was_already_taken_leaves_the_next_epoch_whole() {
        let feed = feed();
        feed.push([transfer("a", 1)]);
        feed.end_epoch();
        feed.push([transfer("b", 9000)]);
        assert_eq!(take(&feed), ["a 0+1", "end of 1", "b 0+4096"]);
        feed.skip_epoch(0);
        assert_eq!(take(&feed), ["b 4096+4096", "b 8192+808", "later"]);
    }

    /// Whether something was taken out, or has become of the channel, since this was asked last.
    fn has_moved(feed: &StreamFeed) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(feed.moved()).poll(&mut context).is_ready()
    }

    #[test]
    fn its_supplier_is_notified_of_what_is_passed_over() {
        let feed = feed();
        feed.push((0..FEED_OBJECTS_MAX).map(|_| transfer("a", 1)));
        assert_eq!((take(&feed), has_moved(&feed)), (["a 0+1".to_owned()], true));
        feed.push([transfer("a", 1)]);
        feed.skip_epoch(0);
        // The supplier looks before anything is passed over, finds no room and waits again.
        assert!(has_moved(&feed) && !has_moved(&feed));
        assert_eq!((next(&feed), feed.room()), ("later".to_owned(), FEED_OBJECTS_MAX));
        assert!(has_moved(&feed), "there is room");
        assert_eq!((next(&feed), has_moved(&feed)), ("later".to_owned(), false));
    }

    #[test]
    fn it_is_bounded_and_takes_again_what_was_made_room_for() {
        let feed = feed();
        assert_eq!(feed.room(), FEED_OBJECTS_MAX);
        feed.push((0..FEED_OBJECTS_MAX).map(|_| transfer("a", 1)));
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
