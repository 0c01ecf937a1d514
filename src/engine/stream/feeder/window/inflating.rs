//! A window with inflated objects: received bytes go to the inflaters, object by object, also for
//! objects behind the front of the stream.

use std::sync::Arc;

use super::{Inlet, Lost, Range, StreamPiece, Window};
use crate::engine::backlog::{Backlog, BacklogBounds};
use crate::engine::stream::inflate::{InflateFailure, Inflaters, Inflation};
use crate::error::{Error, ErrorKind, ErrorReason};
use crate::files::host::PipeHost;
use crate::limits::{
    INFLATE_INPUT_SHARE, INFLATE_MEMORY_SHARE, INFLATE_OBJECTS_PER_THREAD, INFLATE_PIECES_MAX,
};
use crate::link::object::ObjectRef;
use crate::s3::uri::shown;
use crate::sys::{Errno, Handle};

/// Inflates the objects of a stream.
#[derive(Debug)]
pub(super) struct Inflating {
    inflaters: Arc<Inflaters>,
    backlog: Arc<Backlog>,
    /// Most objects that may have begun.
    begun_max: usize,
    /// Wakes the feeder.
    counter: Handle,
    /// The object requested last, and the number of objects.
    last: Option<Arc<Inflation>>,
    objects: u64,
    /// Bytes passed to the inflaters since the last call.
    taken: u64,
}

/// The front range, whose object is inflated.
#[derive(Debug)]
pub(in crate::engine::stream::feeder) struct InflatedRange {
    pub(in crate::engine::stream::feeder) inflation: Arc<Inflation>,
    /// All of it was received and passed to the inflater.
    is_taken: bool,
    is_last: bool,
}

impl InflatedRange {
    /// True if everything that it adds to the stream was passed on.
    pub(in crate::engine::stream::feeder) fn is_over(&self) -> bool {
        self.is_taken && (!self.is_last || self.inflation.is_handed_on())
    }
}

/// Divides a stream's room into received and inflated bytes, and computes how many objects may have
/// begun with this many threads. Input that waits for its inflater belongs to the inflated half.
pub(super) fn share(room: BacklogBounds, threads: usize) -> (BacklogBounds, BacklogBounds, usize) {
    let half_bytes = room.ahead_bytes / INFLATE_MEMORY_SHARE;
    let received = BacklogBounds { ahead_bytes: room.ahead_bytes - half_bytes, ..room };
    let object_bytes = (INFLATE_PIECES_MAX * room.buffer_bytes) as u64;
    let has_room_for = half_bytes / INFLATE_INPUT_SHARE / object_bytes.max(1);
    let wanted = threads * INFLATE_OBJECTS_PER_THREAD;
    // The front object always has room.
    let begun_max = usize::try_from(has_room_for).unwrap_or(wanted).clamp(1, wanted.max(1));
    let ahead_bytes = half_bytes.saturating_sub(begun_max as u64 * object_bytes);
    // As many objects as there are threads, besides the front one, may use all of it.
    let range_bytes = ahead_bytes / 2 / threads.max(1) as u64;
    (received, BacklogBounds { ahead_bytes, range_bytes, ..room }, begun_max)
}

impl Inflating {
    pub(super) fn new(
        inflaters: Arc<Inflaters>,
        (room, begun_max): (BacklogBounds, usize),
        counter: Handle,
    ) -> Self {
        let backlog = Arc::new(Backlog::new(room));
        Self { inflaters, backlog, begun_max, counter, last: None, objects: 0, taken: 0 }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.backlog.used_bytes()
    }

    /// The inflation of the next range's object.
    pub(super) fn inflation(&mut self, is_first: bool) -> Arc<Inflation> {
        if let Some(last) = self.last.as_ref().filter(|_| !is_first) {
            return Arc::clone(last);
        }
        let (backlog, counter) = (Arc::clone(&self.backlog), self.counter.clone());
        let inflation = Arc::new(Inflation::new(backlog, self.objects, counter));
        self.objects += 1;
        Arc::clone(self.last.insert(inflation))
    }
}

impl Range {
    /// True if inflated bytes of its object are ready to be passed on.
    pub(super) fn has_inflated(&self) -> bool {
        self.inflation.as_ref().is_some_and(|inflation| inflation.output().has_bytes())
    }

    /// Passes received bytes to the inflater, as far as there is room; true if that is all of the
    /// range.
    fn hand_over(
        &mut self,
        host: &mut impl PipeHost,
        inflation: &Inflation,
        taken: &mut u64,
    ) -> Result<bool, Errno> {
        while self.left > 0 {
            if !inflation.takes_input() {
                return Ok(false);
            }
            let backlog = inflation.output().backlog();
            let mut buffer = backlog.take_buffer();
            match self.read(host, &mut buffer) {
                Ok(count) => {
                    inflation.push(buffer, count);
                    self.left -= count as u64;
                    *taken += count as u64;
                }
                Err(errno) => {
                    backlog.put_back(buffer);
                    if !errno.is_transient() {
                        return Err(errno);
                    }
                    self.watch();
                    if !self.has_come(host) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Reads received bytes; returns their number.
    fn read(&self, host: &mut impl PipeHost, into: &mut [u8]) -> Result<usize, Errno> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        match &self.inlet {
            Inlet::Pipe { own, .. } => host.read_pipe(&own.reader, &mut into[..most]),
            Inlet::Memory(memory) => {
                let chunk = memory.pop().ok_or(Errno::AGAIN)?;
                let count = most.min(chunk.bytes().len());
                into[..count].copy_from_slice(&chunk.bytes()[..count]);
                memory.hand_on(chunk, count);
                Ok(count)
            }
        }
    }

    fn has_come(&self, host: &mut impl PipeHost) -> bool {
        match &self.inlet {
            Inlet::Pipe { own, .. } => host.unread(&own.reader).unwrap_or(0) > 0,
            Inlet::Memory(memory) => memory.has_bytes(),
        }
    }
}

impl Window {
    /// Passes received bytes to the inflaters; returns the objects that cannot be inflated.
    ///
    /// # Errors
    /// The error of reading a pipe.
    pub(in crate::engine::stream::feeder) fn inflate(
        &mut self,
        host: &mut impl PipeHost,
    ) -> Result<Vec<Lost>, Errno> {
        self.set_turn_to_inflate();
        let Some(Inflating { inflaters, begun_max, taken, .. }) = &mut self.inflating else {
            return Ok(Vec::new());
        };
        let most = *begun_max;
        let (mut lost, mut epochs, mut objects) = (Vec::new(), 0, 0);
        // The object, and whether it lacks bytes that precede its next range.
        let mut current: Option<(u64, bool)> = None;
        for piece in &mut self.pieces {
            let range = match piece {
                StreamPiece::Range(range) => range,
                StreamPiece::EpochEnd { .. } => {
                    epochs += 1;
                    continue;
                }
                StreamPiece::Empty(_) | StreamPiece::Inline(_) => continue,
            };
            let Some(inflation) = range.inflation.clone() else { continue };
            let number = inflation.number();
            let is_short = match current {
                Some((of, is_short)) if of == number => is_short,
                _ => {
                    objects += 1;
                    if objects > most {
                        break;
                    }
                    false
                }
            };
            let is_short = is_short || !range.hand_over(host, &inflation, taken)?;
            current = Some((number, is_short));
            if range.is_last && !is_short {
                inflation.complete();
            }
            inflaters.hand_over(&inflation);
            if let Some(failure) = inflation.take_failure() {
                let object = Arc::clone(&range.object);
                let error = faulty(&object, &failure, inflaters.advice);
                lost.push(Lost { error, has_no_reader: false, object, epochs });
            }
        }
        // Taken bytes made room for ranges that wait.
        self.wake();
        Ok(lost)
    }

    /// Bytes passed to the inflaters since the last call.
    pub(in crate::engine::stream::feeder) fn take_inflated(&mut self) -> u64 {
        self.inflating.as_mut().map_or(0, |inflating| std::mem::take(&mut inflating.taken))
    }

    /// The front range, if its object is inflated.
    pub(in crate::engine::stream::feeder) fn inflated_range(&self) -> Option<InflatedRange> {
        let StreamPiece::Range(range) = self.pieces.front()? else { return None };
        let inflation = Arc::clone(range.inflation.as_ref()?);
        let is_taken = range.came && range.left == 0;
        Some(InflatedRange { inflation, is_taken, is_last: range.is_last })
    }

    /// True if the front object has enough bytes and waits for a processor.
    pub(in crate::engine::stream::feeder) fn is_inflating(&self) -> bool {
        self.inflated_range().is_some_and(|range| {
            let inflation = &range.inflation;
            !inflation.takes_input() && inflation.ended().is_none()
        })
    }

    /// Makes the first object current. Without any range it stays the same: more of that object may
    /// arrive.
    fn set_turn_to_inflate(&self) {
        let first = self.pieces.iter().find_map(|piece| match piece {
            StreamPiece::Range(range) => range.inflation.as_ref(),
            _ => None,
        });
        if let (Some(inflating), Some(first)) = (&self.inflating, first) {
            inflating.backlog.set_turn(first.number());
        }
    }
}

/// The error of an object that cannot be inflated.
fn faulty(object: &ObjectRef, failure: &InflateFailure, advice: &'static str) -> Error {
    let name = shown(&object.name());
    match failure {
        InflateFailure::Faulty(fault) => {
            let message = format!("{name}: {fault}");
            Error::new(ErrorKind::Objects, message).because(ErrorReason::Integrity).advise(advice)
        }
        InflateFailure::Bug => Error::bug(format!("{name}: a thread that inflates panicked")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_inflaters_is_of_their_half() {
        const BUFFER_BYTES: u64 = 256 << 10;
        let check = |ahead_bytes: u64, threads: usize, expected: usize| {
            let buffer_bytes = usize::try_from(BUFFER_BYTES).expect("small");
            let room = BacklogBounds { buffer_bytes, ahead_bytes, range_bytes: 1 << 20 };
            let (received, inflated, begun_max) = share(room, threads);
            assert_eq!(begun_max, expected, "{ahead_bytes} bytes, {threads} threads");
            let waiting = begun_max as u64 * 2 * BUFFER_BYTES;
            let sum = received.ahead_bytes + inflated.ahead_bytes + waiting;
            // One object gets what it needs, however little there is.
            assert!(sum <= ahead_bytes.max(4 * BUFFER_BYTES), "{sum} of {ahead_bytes}");
        };
        check(1 << 30, 64, 128);
        check(64 << 20, 64, 32);
        check(64 << 20, 2, 4);
        check(4 << 20, 2, 2);
        check(1 << 20, 64, 1);
        check(0, 2, 1);
    }
}
