//! A window whose objects are inflated: what has come of them goes to the inflaters, object by
//! object, those behind the head of the stream as well.

use std::sync::Arc;

use super::{Inlet, Lost, Range, StreamPiece, Window};
use crate::engine::backlog::{Backlog, Room};
use crate::engine::stream::inflate::{Ended, Inflaters, Inflation};
use crate::error::{Error, ErrorKind, ErrorReason};
use crate::files::host::PipeHost;
use crate::files::transfer::Transfer;
use crate::limits::{INFLATE_MEMORY_SHARE, INFLATE_OBJECTS_PER_THREAD};
use crate::s3::uri::shown;
use crate::sys::{Errno, Handle};

/// What inflates the objects of a stream.
#[derive(Debug)]
pub(super) struct Inflating {
    inflaters: Arc<Inflaters>,
    backlog: Arc<Backlog>,
    /// Wakes the feeder.
    counter: Handle,
    /// The object that was asked for last, and how many there were.
    last: Option<Arc<Inflation>>,
    objects: u64,
    /// Bytes that were handed over since this was asked last.
    taken: u64,
}

/// The range at the head of the stream, whose object is inflated.
#[derive(Debug)]
pub(in crate::engine::stream::feeder) struct InflatedRange {
    pub(in crate::engine::stream::feeder) inflation: Arc<Inflation>,
    /// All of it came and was handed over.
    is_taken: bool,
    is_last: bool,
}

impl InflatedRange {
    /// True when all that the stream has of it was handed on.
    pub(in crate::engine::stream::feeder) fn is_over(&self) -> bool {
        self.is_taken && (!self.is_last || self.inflation.is_handed_on())
    }
}

/// What of a stream's room is for bytes as they come, and what for those that are inflated.
pub(super) fn share(room: Room, inflaters: &Inflaters) -> (Room, Room) {
    let ahead_bytes = room.ahead_bytes / INFLATE_MEMORY_SHARE;
    let received = Room { ahead_bytes: room.ahead_bytes - ahead_bytes, ..room };
    // As many objects may take all of it as there are threads besides the one at the head.
    let range_bytes = ahead_bytes / 2 / inflaters.count() as u64;
    (received, Room { ahead_bytes, range_bytes, ..room })
}

impl Inflating {
    pub(super) fn new(inflaters: Arc<Inflaters>, room: Room, counter: Handle) -> Self {
        let backlog = Arc::new(Backlog::new(room));
        Self { inflaters, backlog, counter, last: None, objects: 0, taken: 0 }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.backlog.used_bytes()
    }

    /// What inflates the object of the next range.
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
    /// True when inflated bytes of its object are to be handed on.
    pub(super) fn has_inflated(&self) -> bool {
        self.inflation.as_ref().is_some_and(|inflation| inflation.output().has_bytes())
    }

    /// Hands over what has come of it, as far as there is room; true when that is all of it.
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

    /// Reads what has come of it; how many bytes.
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
    /// Hands what has come to the inflaters; returns the objects that cannot be inflated.
    ///
    /// # Errors
    /// What a read of a pipe says.
    pub(in crate::engine::stream::feeder) fn inflate(
        &mut self,
        host: &mut impl PipeHost,
    ) -> Result<Vec<Lost>, Errno> {
        self.set_turn_to_inflate();
        let Some(Inflating { inflaters, taken, .. }) = &mut self.inflating else {
            return Ok(Vec::new());
        };
        let most = inflaters.count() * INFLATE_OBJECTS_PER_THREAD;
        let (mut lost, mut epochs, mut objects) = (Vec::new(), 0, 0);
        // The object, and whether it lacks bytes that come before those of its next range.
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
            if let Some(ended) = inflation.take_failure() {
                let transfer = Arc::clone(&range.transfer);
                let error = faulty(&transfer, &ended);
                lost.push(Lost { error, has_no_reader: false, transfer, epochs });
            }
        }
        // What was taken made room for those that wait.
        self.wake();
        Ok(lost)
    }

    /// Bytes that were handed to the inflaters since the last call.
    pub(in crate::engine::stream::feeder) fn take_inflated(&mut self) -> u64 {
        self.inflating.as_mut().map_or(0, |inflating| std::mem::take(&mut inflating.taken))
    }

    /// The range at the head, where its object is inflated.
    pub(in crate::engine::stream::feeder) fn inflated_range(&self) -> Option<InflatedRange> {
        let StreamPiece::Range(range) = self.pieces.front()? else { return None };
        let inflation = Arc::clone(range.inflation.as_ref()?);
        let is_taken = range.came && range.left == 0;
        Some(InflatedRange { inflation, is_taken, is_last: range.is_last })
    }

    /// True when the object at the head has bytes enough, and waits for a processor.
    pub(in crate::engine::stream::feeder) fn is_inflating(&self) -> bool {
        self.inflated_range().is_some_and(|range| {
            let inflation = &range.inflation;
            !inflation.takes_input() && inflation.ended().is_none()
        })
    }

    /// It is the turn of the first object. Where no range is here it stays whose it was: more of
    /// that object may come.
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
fn faulty(transfer: &Transfer, ended: &Ended) -> Error {
    let (bucket, key) = (&transfer.endpoint.bucket, shown(&transfer.object.key));
    match ended {
        Ended::Faulty(fault) => {
            let message = format!("s3://{bucket}/{key}: {fault}");
            Error::new(ErrorKind::Objects, message)
                .because(ErrorReason::Integrity)
                .advise("exclude it, or store it again as gzip")
        }
        Ended::Whole | Ended::Bug => {
            Error::bug(format!("s3://{bucket}/{key}: a thread that inflates panicked"))
        }
    }
}
