//! Moves bodies into streams.
//!
//! Without TLS, `splice` moves bytes from the socket into a pipe, outside of user memory. With TLS,
//! bytes are decrypted into the stream's memory ([`crate::engine::backlog`]), or decrypted and
//! written into a client's pipe. Bytes that the stream compares with a checksum are always received
//! into its memory.
//!
//! A range waiting for its turn fills a pipe of its own. In its turn, that pipe is emptied into the
//! reader's pipe, and the rest is spliced there directly ([`crate::engine::handover`]).
//!
//! A full stream waits for its reader. This wait has no deadline, does not make the range late, and
//! is no sample of the network. A retry resumes after the last byte that was moved.

use std::ops::Range;
use std::sync::Arc;

use super::Worker;
use super::connection::{Connection, ConnectionState};
use super::job::{JobState, Route};
use super::link::Link;
use crate::engine::backlog::RangeBacklog;
use crate::engine::handover::Handover;
use crate::engine::request::Ticket;
use crate::error::{Error, ErrorKind};
use crate::files::host::FileHost;
use crate::limits::{
    PIPE_BYTES, SPLICE_BYTES_MAX, STREAM_LOW_WATER_BYTES, STREAM_LOW_WATER_US,
    STREAM_PIECES_PER_TURN_MAX, TLS_PIECE_BYTES,
};
use crate::link::conn::{Action, Event};
use crate::link::tls::session::Read;
use crate::sys::{Errno, Handle, Op, POLL_IN, POLL_OUT, Ring};

/// Where a stream's bytes go.
#[derive(Debug, Clone)]
pub(super) enum FlowInto {
    /// A client's pipe.
    Pipe(Handle),
    /// The range's own pipe; the reader's pipe in its turn.
    Handover(Arc<Handover>),
    /// The stream's memory: over TLS, or to be compared with a checksum.
    Memory(Arc<RangeBacklog>),
}

/// The state of a body that goes into a stream.
#[derive(Debug)]
pub(super) struct Flow {
    into: FlowInto,
    /// The reader's pipe; set in the range's turn.
    outlet: Option<Handle>,
    /// The range's own pipe is empty and no longer used.
    is_drained: bool,
    pub(super) ticket: Arc<Ticket>,
    /// Body bytes of this answer.
    answer_bytes: u64,
    /// Position in the control buffer of body bytes that came with the head.
    with_head: Range<usize>,
    /// Decrypted bytes that the pipe had no room for.
    held: Held,
    /// The last wait.
    waited: Waited,
}

/// The last wait of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    Bytes,
    Room,
    /// For room; the pipe has reported room, and nothing has moved since.
    RoomCame,
}

/// Bytes that wait for room, in a buffer of the worker's.
#[derive(Debug, Default)]
struct Held {
    buffer: Vec<u8>,
    left: Range<usize>,
}

impl Flow {
    pub(super) fn new(into: FlowInto, ticket: Arc<Ticket>) -> Self {
        Self {
            into,
            outlet: None,
            is_drained: false,
            ticket,
            answer_bytes: 0,
            with_head: 0..0,
            held: Held::default(),
            waited: Waited::Bytes,
        }
    }

    /// The state for a second connection, which requests the rest of the range.
    pub(super) fn of_rival(&self) -> Self {
        Self::new(self.into.clone(), Arc::clone(&self.ticket))
    }
}

/// The result of one step.
enum Moved {
    /// Number of bytes moved into the pipe; 0 means the end of the stream.
    Bytes(u64),
    /// Bytes moved from the range's own pipe into the reader's.
    Drained,
    /// The socket is empty.
    AwaitsBytes,
    /// The pipe is full.
    AwaitsRoom,
    /// An operation is in flight, or its failure was passed to the connection.
    Begun,
    Failed(Errno),
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Starts to move a body, or a chunk of a chunked one. `length` bytes at `from` in the control
    /// buffer came with the head.
    pub(super) fn begin_moving(&mut self, index: usize, from: u32, length: u32) {
        let connection = &mut self.connections[index];
        let flow = connection.state.job_mut().flow_mut();
        flow.answer_bytes = connection.conn.body_left();
        flow.with_head = from as usize..(from + length) as usize;
        flow.is_drained = false;
        // Bytes that an earlier attempt decrypted and did not write are received again.
        flow.held.left = 0..0;
        // If all of it is in the buffer, the next read of the socket goes into that buffer, too,
        // and may block.
        let is_of_socket = flow.answer_bytes > u64::from(length);
        if is_of_socket
            && !connection.is_secure()
            && let Err(errno) = self.set_nonblocking(index, true)
        {
            return self.connections[index].conn.handle(Event::Failed(errno));
        }
        self.move_on(index);
    }

    /// Moves a body until it has to wait, or [`STREAM_PIECES_PER_TURN_MAX`] pieces were moved.
    pub(super) fn move_on(&mut self, index: usize) {
        for pieces in 0.. {
            if self.failure_of(index).is_some() || self.scheduler.is_stopped() {
                return self.connections[index].conn.handle(Event::Failed(Errno::CANCELED));
            }
            if pieces >= STREAM_PIECES_PER_TURN_MAX && self.rests_in_socket(index) {
                // Bytes already in the socket complete this poll at once.
                return self.await_bytes(index);
            }
            match self.move_piece(index) {
                Moved::Bytes(count) => {
                    self.moved(index, count);
                    // An immediate second splice would wait for the pipe's lock while the reader
                    // copies.
                    let is_outlet = self.connections[index].state.job_mut().flow_mut().is_drained;
                    if is_outlet && self.connections[index].conn.body_left() > 0 {
                        return self.await_bytes(index);
                    }
                }
                Moved::AwaitsBytes => return self.await_bytes(index),
                Moved::AwaitsRoom if self.await_room(index) => return,
                // There is room by now.
                Moved::AwaitsRoom | Moved::Drained => {}
                Moved::Begun => return,
                Moved::Failed(Errno::PIPE) => {
                    self.lose_reader(index);
                    let error =
                        Error::new(ErrorKind::Destination, "the reader has closed the pipe")
                            .advise("keep its read end open until the request has completed");
                    self.fail_job(index, error);
                    return self.connections[index].conn.handle(Event::Failed(Errno::CANCELED));
                }
                Moved::Failed(errno) => {
                    return self.connections[index].conn.handle(Event::Failed(errno));
                }
            }
            if self.connections[index].conn.body_left() == 0 {
                // The next chunk may take long: hand this one to the reader now.
                while let Some(Moved::Drained) = self.take_turn(index) {}
                return;
            }
        }
    }

    /// True if the rest of the body is in the socket, so that a poll reports it. False while there
    /// are bytes of TLS or bytes in a buffer, which a poll does not report; a buffer bounds them.
    fn rests_in_socket(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let is_plain = !connection.is_secure();
        let flow = connection.state.job_mut().flow_mut();
        let is_drained = flow.outlet.is_none() || flow.is_drained;
        is_plain && is_drained && flow.with_head.is_empty() && flow.held.left.is_empty()
    }

    /// Counts bytes moved into the stream, which makes this connection the only one of its range.
    fn moved(&mut self, index: usize, count: u64) {
        if count > 0 {
            self.won(index);
        }
        self.count_bytes(index, count);
        let connection = &mut self.connections[index];
        let job = connection.state.job_mut();
        job.state = JobState::Active;
        let flow = job.flow_mut();
        if flow.waited == Waited::RoomCame {
            flow.waited = Waited::Room;
        }
        flow.ticket.moved_on();
        connection.conn.handle(Event::Moved(count));
    }

    /// Moves bytes that arrived although the wait for them ended otherwise (timeout, cancel); true
    /// if there were some.
    pub(super) fn move_what_came(&mut self, index: usize) -> bool {
        let is_waiting = matches!(
            self.connections[index].state.job().state,
            JobState::ForBytes(Action::Move { .. })
        );
        if !is_waiting || self.failure_of(index).is_some() {
            return false;
        }
        loop {
            match self.move_piece(index) {
                Moved::Bytes(count) if count > 0 => {
                    self.moved(index, count);
                    return true;
                }
                Moved::Drained => {}
                _ => return false,
            }
        }
    }

    /// In a range's turn: takes the reader's pipe and empties the range's own pipe into it. `None`
    /// if it is not its turn, or its own pipe is empty.
    fn take_turn(&mut self, index: usize) -> Option<Moved> {
        let flow = self.connections[index].state.job_mut().flow_mut();
        let FlowInto::Handover(pipes) = &flow.into else { return None };
        if flow.is_drained {
            return None;
        }
        if flow.outlet.is_none() {
            flow.outlet = pipes.take();
        }
        let outlet = flow.outlet.as_ref()?;
        match self.host.unread(pipes.reader()) {
            Ok(0) => {
                // Bytes that came with the head go through the range's own pipe, because a write
                // into the reader's pipe may block.
                flow.is_drained = flow.with_head.is_empty();
                None
            }
            Ok(_) => {
                let host = &mut self.host;
                let moved = pipes.count_moved(|| host.splice(pipes.reader(), outlet, PIPE_BYTES));
                Some(match moved {
                    Ok(0) => Moved::Failed(Errno::IO),
                    Ok(_) => {
                        flow.ticket.moved_on();
                        Moved::Drained
                    }
                    // The reader's pipe is full, or the channel has emptied the range's own pipe.
                    Err(errno) if errno.is_transient() => Moved::AwaitsRoom,
                    Err(errno) => Moved::Failed(errno),
                })
            }
            Err(errno) => Some(Moved::Failed(errno)),
        }
    }

    /// Reports to the stream that nobody reads its pipe; its channel decides what follows.
    fn lose_reader(&mut self, index: usize) {
        let flow = self.connections[index].state.job_mut().flow_mut();
        if let FlowInto::Handover(pipes) = &flow.into {
            pipes.lose_reader();
        }
    }

    /// Polls the socket for more bytes: the number that [`Self::soon_bytes`] gives, or the rest.
    fn await_bytes(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let job = connection.state.job_mut();
        job.state = JobState::ForBytes(Action::Move { from: 0, length: 0 });
        job.flow_mut().waited = Waited::Bytes;
        let left = u32::try_from(connection.conn.body_left()).unwrap_or(u32::MAX);
        let handle = connection.link().socket.clone();
        self.set_low_water(index, left.min(self.soon_bytes(index)));
        self.submit(index, Op::Poll { handle, events: POLL_IN });
    }

    /// Number of bytes to wait for before a stream's body is read again: at most
    /// [`STREAM_LOW_WATER_BYTES`], which is also the number for other bodies.
    pub(super) fn soon_bytes(&self, index: usize) -> u32 {
        let connection = &self.connections[index];
        let ConnectionState::Busy(job) = &connection.state else { return STREAM_LOW_WATER_BYTES };
        let Route::Stream(_, flow) = &job.into else { return STREAM_LOW_WATER_BYTES };
        let came = flow.answer_bytes.saturating_sub(connection.conn.body_left());
        let times = job.times(self.now_us);
        soon_bytes(came, times.map_or(0, |times| times.first_byte_us + times.body_us))
    }

    /// Waits for room in the stream; false if there is room now.
    fn await_room(&mut self, index: usize) -> bool {
        let job = self.connections[index].state.job_mut();
        job.state = JobState::ForRoom;
        let flow = job.flow_mut();
        flow.waited = Waited::Room;
        let pipe = match &flow.into {
            FlowInto::Pipe(pipe) => pipe,
            FlowInto::Handover(pipes) => match &flow.outlet {
                None => pipes.writer(),
                Some(outlet) => {
                    pipes.wait_begins(self.now_us);
                    outlet
                }
            },
            FlowInto::Memory(range) => {
                range.wait_for_room(&self.counter);
                if !range.has_room() {
                    return true;
                }
                range.stop_waiting();
                job.state = JobState::Active;
                return false;
            }
        };
        let handle = pipe.clone();
        self.submit(index, Op::Poll { handle, events: POLL_OUT });
        true
    }

    /// Resumes a body that waits for room in memory; true if there was room. Called in each turn,
    /// because another range may have taken the room that caused the wake-up.
    pub(super) fn look_for_room(&mut self, index: usize) -> bool {
        let job = self.connections[index].state.job_mut();
        let FlowInto::Memory(range) = &job.flow_mut().into else { return false };
        range.wait_for_room(&self.counter);
        if !range.has_room() {
            return false;
        }
        range.stop_waiting();
        job.state = JobState::Active;
        self.move_on(index);
        self.drive(index);
        true
    }

    fn move_piece(&mut self, index: usize) -> Moved {
        if let Some(moved) = self.take_turn(index) {
            return moved;
        }
        let Connection { state, control, .. } = &mut self.connections[index];
        let flow = state.job_mut().flow_mut();
        let pipe = match &flow.into {
            FlowInto::Pipe(pipe) => pipe,
            // For bytes that came with the head; the rest is spliced below.
            FlowInto::Handover(pipes) => pipes.writer(),
            FlowInto::Memory(range) if !range.has_room() => return Moved::AwaitsRoom,
            FlowInto::Memory(_) if flow.with_head.is_empty() => return self.push_received(index),
            FlowInto::Memory(range) => {
                let count = push(range, &control.bytes()[flow.with_head.clone()]);
                flow.with_head.start += count;
                return Moved::Bytes(count as u64);
            }
        };
        let (bytes, left) = match flow.held.left.is_empty() {
            true => (control.bytes(), &mut flow.with_head),
            false => (&flow.held.buffer[..], &mut flow.held.left),
        };
        if left.start < left.end {
            let written = self.host.write_pipe(pipe, &bytes[left.clone()]);
            let moved = outcome(written);
            if let Moved::Bytes(count) = moved {
                left.start += usize::try_from(count).expect("at most what was given");
            }
            if flow.held.left.is_empty() && !flow.held.buffer.is_empty() {
                self.spare.push(std::mem::take(&mut flow.held).buffer);
            }
            return moved;
        }
        if self.connections[index].is_secure() {
            self.move_plaintext(index)
        } else {
            self.splice(index)
        }
    }

    /// Resumes a body whose pipe has reported room, or the end of its reader.
    pub(super) fn room_came(&mut self, index: usize) {
        let flow = self.connections[index].state.job_mut().flow_mut();
        flow.waited = Waited::RoomCame;
        if let FlowInto::Handover(pipes) = &flow.into {
            pipes.wait_ends(self.now_us);
        }
        self.move_on(index);
    }

    /// Splices the socket into the pipe.
    ///
    /// EAGAIN means that the socket is empty or that the pipe is full. If one of them has just
    /// reported that it is ready, it is the other one. That report counts once, because a poll may
    /// complete spuriously. Without a report, the cause of the last wait is assumed.
    fn splice(&mut self, index: usize) -> Moved {
        let Connection { conn, state, link, .. } = &mut self.connections[index];
        let job = state.job_mut();
        let was_readable = matches!(job.state, JobState::Readable);
        let Flow { into, outlet, waited, .. } = job.flow_mut();
        let waited = *waited;
        let socket = &link.as_ref().expect("it is connected").socket;
        let length = conn.body_left().min(SPLICE_BYTES_MAX);
        let host = &mut self.host;
        let moved = match (into, outlet) {
            (FlowInto::Pipe(pipe), _) => host.splice(socket, pipe, length),
            (FlowInto::Handover(pipes), Some(outlet)) => {
                pipes.count_moved(|| host.splice(socket, outlet, length))
            }
            (FlowInto::Handover(pipes), None) => host.splice(socket, pipes.writer(), length),
            (FlowInto::Memory(_), _) => unreachable!("it is received into memory"),
        };
        match moved {
            Ok(count) => Moved::Bytes(count),
            Err(errno) if errno.is_transient() && was_readable => Moved::AwaitsRoom,
            Err(errno) if errno.is_transient() && waited == Waited::Room => Moved::AwaitsRoom,
            Err(errno) if errno.is_transient() => Moved::AwaitsBytes,
            Err(errno) => Moved::Failed(errno),
        }
    }

    /// Receives bytes into the stream's memory, or decrypts received ones.
    fn push_received(&mut self, index: usize) -> Moved {
        let flow = self.connections[index].state.job_mut().flow_mut();
        let FlowInto::Memory(range) = &flow.into else { unreachable!("only into memory") };
        let range = Arc::clone(range);
        let mut piece = range.backlog().take_buffer();
        let received = match self.connections[index].is_secure() {
            true => self.decrypt(index, &mut piece),
            false => self.receive(index, &mut piece),
        };
        match received {
            Ok(count) => {
                range.push(piece, count);
                Moved::Bytes(count as u64)
            }
            Err(moved) => {
                range.backlog().put_back(piece);
                moved
            }
        }
    }

    /// Reads bytes of a socket without TLS. Returns their number; as an error, what to do instead.
    fn receive(&mut self, index: usize, into: &mut [u8]) -> Result<usize, Moved> {
        let Connection { conn, link, .. } = &self.connections[index];
        let left = usize::try_from(conn.body_left()).unwrap_or(usize::MAX);
        let room = left.min(into.len());
        let socket = &link.as_ref().expect("it is connected").socket;
        match self.host.receive(socket, &mut into[..room]) {
            Ok(0) => Err(Moved::Bytes(0)),
            Ok(count) => Ok(count),
            Err(errno) if errno.is_transient() => Err(Moved::AwaitsBytes),
            Err(errno) => Err(Moved::Failed(errno)),
        }
    }

    /// Decrypts received bytes. Returns their number; as an error, what was done instead.
    fn decrypt(&mut self, index: usize, into: &mut [u8]) -> Result<usize, Moved> {
        let Connection { conn, link, cipher, .. } = &mut self.connections[index];
        let left = usize::try_from(conn.body_left()).unwrap_or(usize::MAX);
        let room = left.min(into.len());
        let begun_us = self.host.now_us();
        let read = Link::session_mut(link).read(cipher.bytes_mut(), &mut into[..room]);
        self.metrics.stages.tls_us += self.host.now_us().saturating_sub(begun_us);
        match read {
            Ok(Read::Bytes(count)) => return Ok(count),
            Ok(Read::End) => return Err(Moved::Bytes(0)),
            Ok(Read::More) => self.secure_await(index),
            Err(fault) => self.secure_failed(index, fault),
        }
        Err(Moved::Begun)
    }

    /// Decrypts received bytes and writes them into a client's pipe.
    fn move_plaintext(&mut self, index: usize) -> Moved {
        let mut piece = self.spare.pop().unwrap_or_default();
        piece.resize(TLS_PIECE_BYTES as usize, 0);
        let count = match self.decrypt(index, &mut piece) {
            Ok(count) => count,
            Err(moved) => {
                self.spare.push(piece);
                return moved;
            }
        };
        let flow = self.connections[index].state.job_mut().flow_mut();
        let FlowInto::Pipe(pipe) = &flow.into else { unreachable!("only into a pipe") };
        let moved = outcome(self.host.write_pipe(pipe, &piece[..count]));
        let written = match moved {
            Moved::Bytes(written) => usize::try_from(written).expect("at most what was given"),
            _ => 0,
        };
        if written < count {
            flow.held = Held { buffer: piece, left: written..count };
        } else {
            self.spare.push(piece);
        }
        moved
    }

    /// Makes a connection's socket non-blocking, or blocking.
    pub(super) fn set_nonblocking(&mut self, index: usize, is_on: bool) -> Result<(), Errno> {
        let link = self.connections[index].link_mut();
        if link.is_nonblocking != is_on {
            self.host.set_nonblocking(&link.socket, is_on)?;
            link.is_nonblocking = is_on;
        }
        Ok(())
    }

    /// Ends a connection's wait for room.
    pub(super) fn end_waiting(&mut self, index: usize) {
        let Route::Stream(_, flow) = &self.connections[index].state.job().into else { return };
        match &flow.into {
            FlowInto::Memory(range) => range.stop_waiting(),
            FlowInto::Handover(pipes) => pipes.wait_ends(self.now_us),
            FlowInto::Pipe(_) => {}
        }
    }

    /// Ends the move of a body: returns its buffer, and makes the socket blocking again.
    pub(super) fn end_moving(&mut self, index: usize) {
        self.end_waiting(index);
        let Connection { state, link, .. } = &mut self.connections[index];
        let Route::Stream(_, flow) = &mut state.job_mut().into else { return };
        if !flow.held.buffer.is_empty() {
            self.spare.push(std::mem::take(&mut flow.held).buffer);
        }
        if link.is_some() && self.set_nonblocking(index, false).is_err() {
            // The next request needs a blocking socket.
            self.hang_up(index);
        }
    }
}

/// Number of bytes that arrive in [`STREAM_LOW_WATER_US`] at the rate of `came` bytes in `came_us`,
/// rounded down to a power of two so that the socket's low-water mark seldom changes.
fn soon_bytes(came: u64, came_us: u64) -> u32 {
    let soon = came.saturating_mul(STREAM_LOW_WATER_US).checked_div(came_us).unwrap_or(u64::MAX);
    let soon = u32::try_from(soon).unwrap_or(u32::MAX).clamp(1, STREAM_LOW_WATER_BYTES);
    1 << soon.ilog2()
}

/// Copies bytes into the memory of a stream.
fn push(range: &RangeBacklog, bytes: &[u8]) -> usize {
    let mut piece = range.backlog().take_buffer();
    let count = bytes.len().min(piece.len());
    piece[..count].copy_from_slice(&bytes[..count]);
    range.push(piece, count);
    count
}

/// The result of a write into a pipe.
fn outcome(written: Result<usize, Errno>) -> Moved {
    match written {
        Ok(count) => Moved::Bytes(count as u64),
        Err(errno) if errno.is_transient() => Moved::AwaitsRoom,
        Err(errno) => Moved::Failed(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_body_is_looked_at_20_times_a_second() {
        assert_eq!(soon_bytes(90_000_000, 1_000_000), STREAM_LOW_WATER_BYTES, "a fast one seldom");
        assert_eq!(soon_bytes(1_000_000, 1_000_000), 32 << 10);
        assert_eq!(soon_bytes(0, 1_000_000), 1, "nothing has come");
        assert_eq!(soon_bytes(3_000, 0), STREAM_LOW_WATER_BYTES, "at once");
        assert_eq!(soon_bytes(u64::MAX, 1), STREAM_LOW_WATER_BYTES);
    }
}
