//! The part of a stream that is in flight, in stream order: ranges that workers receive, each into
//! its own pipe or into memory, our own bytes, and the ends of epochs.

mod inflating;

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::inflate::{Inflaters, Inflation};
use super::super::inline::InlineBytes;
use crate::engine::backlog::{Backlog, BacklogBounds, RangeBacklog};
use crate::engine::budget::RangeRoom;
use crate::engine::endpoints::EndpointNumber;
use crate::engine::handover::Handover;
use crate::engine::metrics::RequestCounts;
use crate::engine::request::{ClientRequest, Completion, Destination, Inbox, Priority, Ticket};
use crate::engine::schedule::Scheduler;
use crate::error::{Error, ErrorKind};
use crate::files::host::{PipeHost, PrivatePipe};
use crate::limits::{INLINE_AHEAD_BYTES_MAX, INLINE_AHEAD_PIECES_MAX, PIPE_BYTES};
use crate::link::object::ObjectRef;
use crate::s3::ByteRange;
use crate::sys::{Errno, Handle};
use inflating::Inflating;

/// The source of a range's bytes.
#[derive(Debug)]
pub(super) enum Inlet {
    /// They are spliced into its own pipe, and in its turn into the reader's.
    Pipe { own: PrivatePipe, handover: Arc<Handover> },
    /// They are received, or decrypted, into memory.
    Memory(Arc<RangeBacklog>),
}

/// A range of the stream.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) object: Arc<ObjectRef>,
    /// Its end in the object.
    pub(super) end: u64,
    /// It is the last range of its object.
    is_last: bool,
    ticket: Arc<Ticket>,
    pub(super) inlet: Inlet,
    /// Inflates its object, if that is to be inflated.
    pub(super) inflation: Option<Arc<Inflation>>,
    /// Bytes not passed on yet, to the reader or to the inflater.
    pub(super) left: u64,
    /// The worker has received all of it.
    pub(super) came: bool,
}

impl Range {
    /// Wakes the channel when more of it arrives.
    pub(super) fn watch(&self) {
        self.ticket.watch();
    }

    /// Takes the number of bytes that its worker has moved into the reader's pipe.
    pub(super) fn take_moved(&mut self) -> u64 {
        let Inlet::Pipe { handover, .. } = &self.inlet else { return 0 };
        let moved = handover.take_moved();
        self.left -= moved;
        moved
    }
}

/// Bytes that the feeder itself writes.
#[derive(Debug)]
pub(super) struct Inline {
    bytes: InlineBytes,
    written: usize,
}

impl Inline {
    /// The bytes not passed on yet.
    pub(super) fn left(&self) -> &[u8] {
        &self.bytes.bytes()[self.written..]
    }

    /// Records that `count` of them were passed on.
    pub(super) fn hand_on(&mut self, count: usize) {
        self.written += count;
    }
}

/// One piece of the stream, in order.
#[derive(Debug)]
pub(super) enum StreamPiece {
    Range(Range),
    /// An object without bytes.
    Empty(Arc<ObjectRef>),
    Inline(Inline),
    EpochEnd {
        objects: u64,
    },
}

/// A range that cannot be fetched.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) error: Error,
    /// Its worker found that the stream has no reader.
    pub(super) has_no_reader: bool,
    pub(super) object: Arc<ObjectRef>,
    /// Ends of epochs before it in the window.
    pub(super) epochs: u64,
}

/// The pieces not passed on yet.
#[derive(Debug)]
pub(super) struct Window {
    scheduler: Arc<Scheduler>,
    inbox: Arc<Inbox>,
    backlog: Arc<Backlog>,
    inflating: Option<Inflating>,
    pieces: VecDeque<StreamPiece>,
    /// Number of the first piece. Numbers are consecutive, and the token of a range's request.
    first: u64,
    /// Ranges among the pieces, and ranges removed before them.
    ranges: usize,
    ranges_before: u64,
    /// Pieces of our own bytes, and their length.
    inlines: usize,
    inline_bytes: usize,
    /// Requests that have not completed, including abandoned ones.
    requests: usize,
    /// Empty pipes.
    free: Vec<PrivatePipe>,
    arrived: Vec<Completion>,
    pipe_bytes_min: Option<u64>,
}

impl Window {
    /// An empty window; requests go to this scheduler and complete in this inbox.
    pub(super) fn new(scheduler: Arc<Scheduler>, inbox: Arc<Inbox>, room: BacklogBounds) -> Self {
        Self {
            scheduler,
            inbox,
            backlog: Arc::new(Backlog::new(room)),
            inflating: None,
            pieces: VecDeque::new(),
            first: 0,
            ranges: 0,
            ranges_before: 0,
            inlines: 0,
            inline_bytes: 0,
            requests: 0,
            free: Vec::new(),
            arrived: Vec::new(),
            pipe_bytes_min: None,
        }
    }

    /// Adds threads that inflate its objects; they raise `counter`.
    pub(super) fn inflated(
        self,
        inflaters: Option<Arc<Inflaters>>,
        room: BacklogBounds,
        counter: &Handle,
    ) -> Self {
        let Some(inflaters) = inflaters else { return self };
        let (received, inflated, begun_max) = inflating::share(room, inflaters.count());
        Self {
            backlog: Arc::new(Backlog::new(received)),
            inflating: Some(Inflating::new(inflaters, (inflated, begun_max), counter.clone())),
            ..self
        }
    }

    /// Number of pieces.
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// True if one more piece may be added, within `pieces_max` besides our own bytes.
    pub(super) fn takes_more(&self, pieces_max: usize) -> bool {
        self.pieces.len() - self.inlines <= pieces_max
            && self.inlines < INLINE_AHEAD_PIECES_MAX
            && self.inline_bytes < INLINE_AHEAD_BYTES_MAX
    }

    /// Number of ranges.
    pub(super) fn ranges(&self) -> usize {
        self.ranges
    }

    /// Ranges requested since the stream began.
    pub(super) fn requested(&self) -> u64 {
        self.ranges_before + self.ranges as u64
    }

    /// Requests that have not completed.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    /// The channel's counts, and the size of its smallest pipe.
    pub(super) fn counts(&self) -> (RequestCounts, Option<u64>) {
        (self.inbox.counts(), self.pipe_bytes_min)
    }

    /// Memory that holds bytes of the stream.
    pub(super) fn backlog_bytes(&self) -> u64 {
        let inflated = self.inflating.as_ref().map_or(0, Inflating::used_bytes);
        self.backlog.used_bytes() + inflated
    }

    /// The inbox of its requests.
    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The endpoint of an object.
    pub(super) fn endpoint_of(&self, object: &ObjectRef) -> EndpointNumber {
        self.scheduler.endpoints().number_of(&object.endpoint)
    }

    /// The endpoints' addresses, by number.
    pub(super) fn endpoint_names(&self) -> Vec<String> {
        self.scheduler.endpoints().names()
    }

    /// Requests the next range of the stream, with its room in the byte budget; an object without
    /// bytes needs none.
    ///
    /// # Errors
    /// If no pipe can be created for it.
    pub(super) fn ask(
        &mut self,
        host: &mut impl PipeHost,
        object: Arc<ObjectRef>,
        range: ByteRange,
        room: Option<RangeRoom>,
    ) -> Result<(), Error> {
        if range.length == 0 {
            self.pieces.push_back(StreamPiece::Empty(object));
            return Ok(());
        }
        let token = self.first + self.pieces.len() as u64;
        let (inlet, into) = if object.endpoint.tls || object.checksum().is_ok() {
            let number = self.requested();
            let range = Arc::new(RangeBacklog::new(Arc::clone(&self.backlog), number, room));
            (Inlet::Memory(Arc::clone(&range)), Destination::Backlog(range))
        } else {
            let own = self.pipe(host)?;
            let handover = Arc::new(Handover::new(own.writer.clone(), own.reader.clone(), room));
            let into = Destination::Handover(Arc::clone(&handover));
            (Inlet::Pipe { own, handover }, into)
        };
        let ticket = Arc::new(Ticket::new(token, Arc::clone(&self.inbox)));
        let request = ClientRequest::new(Arc::clone(&ticket), into);
        let left = range.length;
        let end = range.offset + range.length;
        let is_last = end == object.listed.size_bytes;
        let inflating = self.inflating.as_mut();
        let inflation = inflating.map(|inflating| inflating.inflation(range.offset == 0));
        self.pieces.push_back(StreamPiece::Range(Range {
            object: Arc::clone(&object),
            end,
            is_last,
            ticket,
            inlet,
            inflation,
            left,
            came: false,
        }));
        self.ranges += 1;
        self.requests += 1;
        self.scheduler.submit(object, range, request, Priority::Normal);
        Ok(())
    }

    /// Takes an empty pipe, or creates one.
    fn pipe(&mut self, host: &mut impl PipeHost) -> Result<PrivatePipe, Error> {
        if let Some(pipe) = self.free.pop() {
            return Ok(pipe);
        }
        let pipe = host.private_pipe(PIPE_BYTES).map_err(no_pipe)?;
        let least = self.pipe_bytes_min.get_or_insert(pipe.capacity_bytes);
        *least = pipe.capacity_bytes.min(*least);
        Ok(pipe)
    }

    /// Appends our own bytes.
    pub(super) fn push_inline(&mut self, bytes: InlineBytes) {
        self.inlines += 1;
        self.inline_bytes += bytes.bytes().len();
        self.pieces.push_back(StreamPiece::Inline(Inline { bytes, written: 0 }));
    }

    /// Appends the end of the epoch.
    pub(super) fn end_epoch(&mut self, objects: u64) {
        self.pieces.push_back(StreamPiece::EpochEnd { objects });
    }

    /// Takes completions; returns the ranges that cannot be fetched.
    pub(super) fn take_completions(&mut self) -> Vec<Lost> {
        self.inbox.collect(&mut self.arrived);
        let mut lost = Vec::new();
        for Completion { token, result, .. } in self.arrived.drain(..) {
            self.requests -= 1;
            // Ranges dropped from the window complete, too, and are ignored.
            let Some(index) = token.checked_sub(self.first) else { continue };
            let index = usize::try_from(index).expect("a place in the window");
            let StreamPiece::Range(range) = &mut self.pieces[index] else {
                unreachable!("the token of a range")
            };
            match result {
                Ok(()) => range.came = true,
                Err(error) => {
                    let object = Arc::clone(&range.object);
                    let has_no_reader = match &range.inlet {
                        Inlet::Pipe { handover, .. } => handover.has_no_reader(),
                        Inlet::Memory(_) => false,
                    };
                    let is_end =
                        |piece: &&StreamPiece| matches!(piece, StreamPiece::EpochEnd { .. });
                    let epochs = self.pieces.iter().take(index).filter(is_end).count() as u64;
                    lost.push(Lost { error, has_no_reader, object, epochs });
                }
            }
        }
        lost
    }

    /// The front of the stream.
    pub(super) fn front(&mut self) -> Option<&mut StreamPiece> {
        self.pieces.front_mut()
    }

    /// The pipes of the front range, if it has some.
    pub(super) fn handover(&self) -> Option<&Arc<Handover>> {
        match self.pieces.front()? {
            StreamPiece::Range(Range { inlet: Inlet::Pipe { handover, .. }, .. }) => Some(handover),
            _ => None,
        }
    }

    /// Number of objects of the epoch, if its end is the front.
    pub(super) fn epoch_end(&self) -> Option<u64> {
        match self.pieces.front()? {
            StreamPiece::EpochEnd { objects } => Some(*objects),
            StreamPiece::Range(_) | StreamPiece::Empty(_) | StreamPiece::Inline(_) => None,
        }
    }

    /// True if the end of the epoch follows and everything before it was passed on, as far as is
    /// known for inflated objects.
    pub(super) fn is_epoch_handed_on(&self) -> bool {
        let mut ranges = self.pieces.iter().skip_while(|piece| match piece {
            StreamPiece::Range(range) => range.left == 0 && !range.has_inflated(),
            StreamPiece::Empty(_) => true,
            StreamPiece::Inline(_) | StreamPiece::EpochEnd { .. } => false,
        });
        matches!(ranges.next(), Some(StreamPiece::EpochEnd { .. }))
    }

    /// Removes the front piece, which was passed on completely; returns the object that ends with
    /// it.
    pub(super) fn pop(&mut self) -> Option<Arc<ObjectRef>> {
        self.first += 1;
        let object = match self.pieces.pop_front()? {
            StreamPiece::Range(range) => {
                assert!(range.came && range.left == 0, "all of it was handed on");
                self.drop_range();
                if let Inlet::Pipe { own, .. } = range.inlet {
                    self.free.push(own);
                }
                range.is_last.then_some(range.object)
            }
            StreamPiece::Empty(object) => Some(object),
            StreamPiece::Inline(inline) => {
                assert!(inline.left().is_empty(), "all of it was handed on");
                self.drop_inline(&inline);
                return None;
            }
            StreamPiece::EpochEnd { .. } => None,
        };
        self.next_turn();
        object
    }

    fn drop_range(&mut self) {
        self.ranges -= 1;
        self.ranges_before += 1;
    }

    fn drop_inline(&mut self, inline: &Inline) {
        self.inlines -= 1;
        self.inline_bytes -= inline.bytes.bytes().len();
    }

    /// Makes the first range current: ranges that waited for room may have it now.
    fn next_turn(&self) {
        self.backlog.set_turn(self.ranges_before);
        self.wake();
    }

    /// Wakes ranges that wait for room in memory, if there is some.
    pub(super) fn wake(&self) {
        if !self.backlog.is_awaited() {
            return;
        }
        for piece in &self.pieces {
            if let StreamPiece::Range(Range { inlet: Inlet::Memory(range), .. }) = piece {
                range.wake();
            }
        }
    }

    /// Drops the rest of the current epoch; true if that included its end.
    pub(super) fn drop_epoch(&mut self) -> bool {
        let mut over = false;
        while !over && let Some(piece) = self.pieces.pop_front() {
            self.first += 1;
            match piece {
                StreamPiece::EpochEnd { .. } => over = true,
                StreamPiece::Empty(_) => {}
                StreamPiece::Inline(inline) => self.drop_inline(&inline),
                StreamPiece::Range(range) => {
                    self.drop_range();
                    range.ticket.cancel();
                    if let Inlet::Memory(memory) = &range.inlet {
                        memory.clear();
                    }
                    if let Some(inflation) = &range.inflation {
                        inflation.give_up();
                    }
                }
            }
        }
        self.next_turn();
        self.scheduler.cancel();
        over
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        while !self.pieces.is_empty() {
            self.drop_epoch();
        }
        self.free.clear();
    }
}

/// The error of a pipe that cannot be created.
pub(super) fn no_pipe(errno: Errno) -> Error {
    Error::new(ErrorKind::Host, format!("cannot make a pipe: {errno}"))
        .advise("raise the limit of open files (ulimit -n)")
        .caused_by(std::io::Error::from(errno))
}
