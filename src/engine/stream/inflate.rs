//! Inflates objects on their way into a stream.
//!
//! The feeder passes the bytes of an object to its [`Inflation`], a few pieces ahead; threads of
//! the run ([`Inflaters`]) inflate them into buffers of the stream ([`crate::engine::backlog`]),
//! which the feeder passes on. The current object may always have a few buffers; those behind it
//! share the rest. So several cores can inflate a stream of several objects, but only one core
//! inflates one object, because deflate has no points where another could start.
//!
//! No thread waits for a reader or for bytes: an inflation without input or room is set aside, and
//! the feeder queues it again when it has some. A turn fills at most one buffer of the stream,
//! however small its input.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::engine::backlog::{Backlog, RangeBacklog};
use crate::engine::gunzip::{Fault, Gunzip, Inflated};
use crate::error::Error;
use crate::limits::INFLATE_PIECES_MAX;
use crate::sys::{Handle, descriptor};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How an object ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All of its bytes are in the output.
    Whole,
    /// It failed.
    Failed(InflateFailure),
}

/// Why an object cannot be inflated completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InflateFailure {
    /// It is not a gzip file, or a damaged one.
    Faulty(Fault),
    /// A bug of inrush.
    Bug,
}

/// Input that waits for an inflater.
#[derive(Debug)]
struct InputPiece {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

#[derive(Debug, Default)]
struct InflationState {
    input: VecDeque<InputPiece>,
    /// All of the object was passed in.
    is_whole: bool,
    /// Consumed input has more output.
    is_pending: bool,
    /// It waits for a thread, or has one.
    is_queued: bool,
    is_dropped: bool,
    ended: Option<Ended>,
    /// Its failure was reported.
    is_reported: bool,
}

/// One object being inflated.
#[derive(Debug)]
pub struct Inflation {
    number: u64,
    output: RangeBacklog,
    /// Raised when there is output, or input is needed.
    counter: Handle,
    state: Mutex<InflationState>,
    gunzip: Mutex<Gunzip>,
}

impl Inflation {
    /// For the object with this number in the stream; `counter` wakes its feeder.
    #[must_use]
    pub fn new(backlog: Arc<Backlog>, number: u64, counter: Handle) -> Self {
        let output = RangeBacklog::new(backlog, number, None);
        let (state, gunzip) = (Mutex::default(), Mutex::default());
        Self { number, output, counter, state, gunzip }
    }

    /// Its number among the objects of the stream.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Inflated bytes that were not passed on yet.
    #[must_use]
    pub fn output(&self) -> &RangeBacklog {
        &self.output
    }

    /// True if one more piece of input may be passed in.
    #[must_use]
    pub fn takes_input(&self) -> bool {
        let state = lock(&self.state);
        state.ended.is_none() && state.input.len() < INFLATE_PIECES_MAX
    }

    /// Passes in the first `count` bytes of a buffer of the stream.
    pub fn push(&self, buffer: Vec<u8>, count: usize) {
        lock(&self.state).input.push_back(InputPiece { buffer, from: 0, to: count });
    }

    /// Marks the end of the input.
    pub fn complete(&self) {
        lock(&self.state).is_whole = true;
    }

    /// Abandons the rest of it.
    pub fn give_up(&self) {
        let mut state = lock(&self.state);
        state.is_dropped = true;
        let input = std::mem::take(&mut state.input);
        drop(state);
        input.into_iter().for_each(|piece| self.output.backlog().put_back(piece.buffer));
        self.output.clear();
    }

    /// How it ended; then all of its output is there.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        lock(&self.state).ended.clone()
    }

    /// Its failure, if any; reported once.
    #[must_use]
    pub fn take_failure(&self) -> Option<InflateFailure> {
        let mut state = lock(&self.state);
        let Some(Ended::Failed(failure)) = state.ended.clone() else { return None };
        (!std::mem::replace(&mut state.is_reported, true)).then_some(failure)
    }

    /// True if all of it is inflated and passed on.
    #[must_use]
    pub fn is_handed_on(&self) -> bool {
        // In this order: its last bytes precede its end.
        self.ended() == Some(Ended::Whole) && !self.output.has_bytes()
    }

    fn is_runnable(&self, state: &InflationState) -> bool {
        let has_work = state.is_pending || state.is_whole || !state.input.is_empty();
        has_work && state.ended.is_none() && !state.is_dropped && self.output.has_room()
    }

    /// One turn; true if there is more to do at once.
    fn turn(&self) -> bool {
        let ended = catch_unwind(AssertUnwindSafe(|| self.inflate()));
        let ended = ended.unwrap_or(Some(Ended::Failed(InflateFailure::Bug)));
        let gunzip = lock(&self.gunzip);
        let mut state = lock(&self.state);
        state.is_pending = gunzip.is_pending();
        state.ended = ended;
        state.is_queued = self.is_runnable(&state);
        let is_queued = state.is_queued;
        drop(state);
        descriptor::raise(&self.counter);
        is_queued
    }

    /// Inflates into one buffer until it is full or the input is used up; returns how the object
    /// ended, if it did.
    fn inflate(&self) -> Option<Ended> {
        let mut gunzip = lock(&self.gunzip);
        let backlog = self.output.backlog();
        let (mut buffer, mut filled) = (backlog.take_buffer(), 0);
        let ended = loop {
            let mut state = lock(&self.state);
            let (piece, is_whole) = (state.input.pop_front(), state.is_whole);
            drop(state);
            if piece.is_none() && !gunzip.is_pending() {
                break is_whole.then(|| gunzip.finish());
            }
            let bytes = piece.as_ref().map_or(&[][..], |piece| &piece.buffer[piece.from..piece.to]);
            let Inflated { taken, written, result } = gunzip.inflate(bytes, &mut buffer[filled..]);
            filled += written;
            if let Some(mut piece) = piece {
                piece.from += taken;
                match piece.from < piece.to && result.is_ok() {
                    true => lock(&self.state).input.push_front(piece),
                    false => backlog.put_back(piece.buffer),
                }
            }
            if result.is_err() {
                break Some(result);
            }
            if filled == buffer.len() {
                break None;
            }
        };
        match filled {
            0 => backlog.put_back(buffer),
            _ => self.output.push(buffer, filled),
        }
        let failed = |fault| Ended::Failed(InflateFailure::Faulty(fault));
        ended.map(|result| result.map_or_else(failed, |()| Ended::Whole))
    }
}

#[derive(Debug, Default)]
struct InflationQueue {
    ready: VecDeque<Arc<Inflation>>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct InflaterPool {
    queue: Mutex<InflationQueue>,
    work: Condvar,
}

impl InflaterPool {
    /// The work of a thread.
    fn serve(&self) {
        loop {
            let queue = lock(&self.queue);
            let is_idle = |queue: &mut InflationQueue| queue.ready.is_empty() && !queue.is_over;
            let waited = self.work.wait_while(queue, is_idle);
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
            if queue.is_over {
                return;
            }
            let next = queue.ready.pop_front();
            drop(queue);
            if let Some(next) = next.filter(|next| next.turn()) {
                lock(&self.queue).ready.push_back(next);
            }
        }
    }
}

/// A run's threads for inflating, shared by all channels.
#[derive(Debug)]
pub struct Inflaters {
    /// Advice for an object that cannot be inflated.
    pub advice: &'static str,
    shared: Arc<InflaterPool>,
    threads: Vec<JoinHandle<()>>,
}

impl Inflaters {
    /// Starts threads. With 0, feeders inflate themselves: for single-threaded tests.
    ///
    /// # Errors
    /// If the machine cannot start a thread.
    pub fn start(count: usize, advice: &'static str) -> Result<Self, Error> {
        let threads = Vec::with_capacity(count);
        let mut inflaters = Self { advice, shared: Arc::default(), threads };
        for number in 0..count {
            let shared = Arc::clone(&inflaters.shared);
            let thread = std::thread::Builder::new().name(format!("inrush-gunzip-{number}"));
            let thread = thread.spawn(move || shared.serve()).map_err(Error::no_thread)?;
            inflaters.threads.push(thread);
        }
        Ok(inflaters)
    }

    /// Number of threads, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.threads.len().max(1)
    }

    /// Queues an inflation for a thread, if it has work.
    pub fn hand_over(&self, inflation: &Arc<Inflation>) {
        let mut state = lock(&inflation.state);
        if state.is_queued || !inflation.is_runnable(&state) {
            return;
        }
        state.is_queued = true;
        drop(state);
        if self.threads.is_empty() {
            while inflation.turn() {}
            return;
        }
        lock(&self.shared.queue).ready.push_back(Arc::clone(inflation));
        self.shared.work.notify_one();
    }
}

impl Drop for Inflaters {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_over = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic has reported itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::engine::backlog::BacklogBounds;

    const BUFFER_BYTES: usize = 1000;

    /// Room for `ahead` buffers ahead of the current object.
    fn backlog(ahead: u64) -> Arc<Backlog> {
        let (buffer_bytes, ahead_bytes) = (BUFFER_BYTES, ahead * BUFFER_BYTES as u64);
        Arc::new(Backlog::new(BacklogBounds { buffer_bytes, ahead_bytes, range_bytes: 1 << 20 }))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    /// An object in flight, and its input that was not passed in yet.
    struct Object {
        inflation: Arc<Inflation>,
        file: Vec<u8>,
        got: Vec<u8>,
    }

    impl Object {
        fn new(backlog: &Arc<Backlog>, number: u64, file: Vec<u8>) -> Self {
            let counter = descriptor::event_counter().expect("a descriptor");
            let inflation = Arc::new(Inflation::new(Arc::clone(backlog), number, counter));
            Self { inflation, file, got: Vec::new() }
        }

        /// A feeder's turn, except for passing bytes on.
        fn feed(&mut self, inflaters: &Inflaters) {
            while self.inflation.takes_input() && !self.file.is_empty() {
                let mut buffer = self.inflation.output().backlog().take_buffer();
                let count = buffer.len().min(self.file.len());
                buffer[..count].copy_from_slice(&self.file[..count]);
                self.file.drain(..count);
                self.inflation.push(buffer, count);
            }
            if self.file.is_empty() {
                self.inflation.complete();
            }
            inflaters.hand_over(&self.inflation);
        }

        /// Takes one chunk; true if there was one.
        fn take(&mut self) -> bool {
            let output = self.inflation.output();
            let Some(chunk) = output.pop() else { return false };
            self.got.extend_from_slice(chunk.bytes());
            let count = chunk.bytes().len();
            output.hand_on(chunk, count);
            true
        }
    }

    #[test]
    fn objects_come_out_in_order_and_memory_is_bounded() {
        for threads in [0, 1, 3] {
            let inflaters = Inflaters::start(threads, "").expect("threads");
            let backlog = backlog(5);
            let plain = |number: u8| vec![number; 40_000 * usize::from(number)];
            let files = (0..6).map(|number| gzip(&plain(number)));
            let mut objects: Vec<Object> =
                (0..).zip(files).map(|(at, file)| Object::new(&backlog, at, file)).collect();
            for turn in 0..objects.len() {
                backlog.set_turn(turn as u64);
                while !objects[turn].inflation.is_handed_on() {
                    objects.iter_mut().skip(turn).for_each(|object| object.feed(&inflaters));
                    objects[turn].take();
                    // Threads that check for room at the same time may all find the last buffer.
                    let most = (5 + 4 + threads) * BUFFER_BYTES;
                    assert!(backlog.used_bytes() <= most as u64, "{}", backlog.used_bytes());
                }
                let number = u8::try_from(turn).expect("few");
                assert!(objects[turn].got == plain(number), "object {turn} of {threads}");
            }
        }
    }

    #[test]
    fn what_is_given_up_gives_its_buffers_back() {
        let inflaters = Inflaters::start(0, "").expect("no threads");
        let backlog = backlog(5);
        let mut object = Object::new(&backlog, 0, gzip(&vec![7; 100_000]));
        object.feed(&inflaters);
        assert!(object.inflation.output().has_bytes() && backlog.used_bytes() > 0);
        object.inflation.give_up();
        assert_eq!(backlog.used_bytes(), 0);
        object.feed(&inflaters);
        assert!(!object.inflation.output().has_bytes(), "it does not go on");
    }

    #[test]
    fn a_failure_is_reported_once_and_behind_what_came_before_it() {
        let inflaters = Inflaters::start(0, "").expect("no threads");
        let backlog = backlog(5);
        let file = [gzip(&[7; 500]), vec![0]].concat();
        let mut object = Object::new(&backlog, 0, file);
        object.feed(&inflaters);
        assert!(object.take() && object.got == [7; 500] && !object.take());
        let failure = object.inflation.take_failure().expect("a zero behind it");
        assert!(matches!(failure, InflateFailure::Faulty(_)), "{failure:?}");
        assert_eq!(object.inflation.take_failure(), None);
        assert!(!object.inflation.is_handed_on() && !object.inflation.takes_input());
    }
}
