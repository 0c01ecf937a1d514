//! The reader's end of a feeder: waits for a reader, watches it, and closes after it.

use std::sync::Arc;

use super::comparison::Unmoved;
use super::window::{Inlet, StreamPiece, no_pipe};
use super::{Feeder, TOKEN_GONE, TOKEN_READER, TOKEN_ROOM, TOKEN_WAKE, pause_us};
use crate::engine::metrics::EpochCount;
use crate::error::{Error, ErrorKind};
use crate::files::host::{PipeHost, WholeEpoch};
use crate::limits::{
    EPOCHS_REPORTED_MAX, READER_WAIT_FIRST_US, REST_WAIT_MAX_US, UNREAD_PAUSE_FIRST_US,
};
use crate::sys::{Errno, Handle, Op, POLL_ERROR, POLL_IN, POLL_OUT, Ring};

/// The reader's end of the current epoch.
#[derive(Debug)]
pub(super) enum Outlet {
    /// No reader yet; `look_us`: the next check.
    Wanted { since_us: u64, look_us: u64 },
    /// Open for writing.
    Open { handle: Handle, full: bool },
    /// The reader has closed after everything was passed on: waits until that is known to be
    /// complete.
    Left { handle: Handle },
    /// The reader left before the end of its epoch was listed: waits for that end.
    Skipping,
    /// All epochs are over.
    Closed,
}

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// Opens the epoch's FIFO once it has a reader, and creates that of the next epoch.
    pub(super) fn look_for_reader(&mut self) {
        let Outlet::Wanted { since_us, look_us } = self.outlet else { return };
        // After a failure nothing is opened: creating the next FIFO may be what failed.
        if look_us > self.now_us || self.failure.is_some() {
            return;
        }
        // It could not be created while the epoch before was read.
        if self.offered <= self.epoch
            && let Err(error) = self.offer_next()
        {
            self.failure = Some(error);
            return;
        }
        match self.host.open(self.epoch) {
            Ok(Some(handle)) => {
                let epoch = self.epoch;
                self.current =
                    EpochCount { epoch, opened_us: self.now_us, ..EpochCount::default() };
                self.outlet = Outlet::Open { handle, full: false };
                self.feed.set_opened(epoch + 1);
                self.offer_look_us = self.now_us;
                self.offer_ahead();
            }
            Ok(None) => {
                self.reader_event = self.host.await_reader(self.epoch);
                // If a reader is reported by an event, a check only confirms that the FIFO is still
                // there.
                let pause_us = match self.reader_event {
                    Some(_) => REST_WAIT_MAX_US,
                    None => pause_us(READER_WAIT_FIRST_US, self.now_us - since_us),
                };
                self.outlet = Outlet::Wanted { since_us, look_us: self.now_us + pause_us };
            }
            Err(error) => self.failure = Some(error),
        }
    }

    /// Passes the front of the stream on, until the reader's pipe is full or nothing has arrived.
    pub(super) fn deliver(&mut self) {
        loop {
            if let Outlet::Left { handle } = &self.outlet {
                let handle = handle.clone();
                if !self.end_behind_reader(&handle) {
                    return;
                }
            }
            let out = match (&self.outlet, self.window.epoch_end()) {
                (Outlet::Open { handle, full: false }, _) => handle.clone(),
                (Outlet::Skipping, Some(_)) => {
                    self.pop();
                    self.finish_epoch();
                    continue;
                }
                _ => break,
            };
            match self.window.epoch_end() {
                Some(objects) => {
                    if self.marks && !self.is_marked(&out, objects) {
                        return;
                    }
                    self.pop();
                    self.finish_epoch();
                }
                None if self.window.pieces() == 0 => break,
                None => {
                    if !self.deliver_range(&out) {
                        return;
                    }
                    self.pop();
                    self.assign();
                }
            }
        }
        if self.ended && self.window.pieces() == 0 {
            self.outlet = Outlet::Closed;
        }
    }

    /// Removes what was passed on.
    fn pop(&mut self) {
        if let Some(object) = self.window.pop() {
            if object.listed.size_bytes > 0
                && let Err(reason) = object.checksum()
            {
                *self.count.not_validated.entry(reason).or_default() += 1;
            }
            self.feed.note_end(self.epoch, object, self.now_us, Ok(()));
        }
    }

    /// Passes on what has arrived of the front range; true if that is all of it.
    fn deliver_range(&mut self, out: &Handle) -> bool {
        if self.window.inflated_range().is_some() {
            return self.deliver_inflated(out);
        }
        loop {
            self.take_moved();
            let range = match self.window.front() {
                Some(StreamPiece::Range(range)) => range,
                Some(StreamPiece::Empty(_)) => return true,
                Some(StreamPiece::Inline(_)) => return self.deliver_inline(out),
                _ => return false,
            };
            if range.left == 0 {
                // Its last bytes may still be rejected.
                return range.came;
            }
            let moved = match &mut range.inlet {
                Inlet::Pipe { handover, .. } if handover.is_taken() && !range.came => {
                    // Its worker moves the rest; the count is taken at its end, or earlier.
                    if self.current.first_byte_us.is_none() {
                        range.watch();
                    }
                    return false;
                }
                Inlet::Pipe { own, handover } => {
                    handover.offer(out);
                    self.host.splice(&own.reader, out, range.left).map_err(Unmoved::from)
                }
                Inlet::Memory(memory) => {
                    let (object, offset) = (&range.object, range.end - range.left);
                    let look = |bytes: &[u8]| Ok(self.comparison.add(object, offset, bytes)?);
                    self.staging.hand_on(&mut self.host, memory, out, look)
                }
            };
            match moved {
                Ok(count) if count > 0 => {
                    range.left -= count;
                    let is_over = range.left == 0;
                    self.delivered(count);
                    // Another call at once would wait for the pipe's lock while its reader copies.
                    if !is_over && self.is_held_up() {
                        return false;
                    }
                }
                Err(Unmoved::Failed(errno)) if errno.is_transient() => {
                    if self.is_held_up() {
                        return false;
                    }
                }
                Err(Unmoved::Failed(errno)) => {
                    self.write_failed(errno);
                    return false;
                }
                Err(Unmoved::Differs(mismatch)) => {
                    let object = Arc::clone(&range.object);
                    self.note_difference(object, &mismatch);
                    return false;
                }
                Ok(_) => {
                    self.nothing_moved();
                    return false;
                }
            }
        }
    }

    /// Passes on inflated bytes of the front object; true if that is everything that its range
    /// adds.
    fn deliver_inflated(&mut self, out: &Handle) -> bool {
        while let Some(range) = self.window.inflated_range() {
            if range.is_over() && !self.staging.has_bytes() {
                return true;
            }
            let output = range.inflation.output();
            match self.staging.hand_on(&mut self.host, output, out, |_| Ok::<_, Errno>(())) {
                Ok(count) if count > 0 => {
                    self.handed_on(count);
                }
                Err(errno) if errno.is_transient() => {
                    if self.staging.has_bytes() {
                        self.set_full();
                        return false;
                    }
                    // Later bytes, and its end, wake the channel.
                    if !range.inflation.output().has_bytes() {
                        return range.is_over();
                    }
                }
                Err(errno) => {
                    self.write_failed(errno);
                    return false;
                }
                Ok(_) => {
                    self.nothing_moved();
                    return false;
                }
            }
        }
        false
    }

    /// The reader's pipe failed with this error, which is not transient.
    fn write_failed(&mut self, errno: Errno) {
        match errno {
            Errno::PIPE => self.reader_left(),
            _ => self.failure = Some(unwritable(errno)),
        }
    }

    /// Writes our own bytes; true if that is all of them. They come from no endpoint, so the pace
    /// ignores them, and they do not count as the first byte.
    fn deliver_inline(&mut self, out: &Handle) -> bool {
        while let Some(StreamPiece::Inline(inline)) = self.window.front()
            && !inline.left().is_empty()
        {
            match self.host.write_pipe(out, inline.left()) {
                Ok(count) if count > 0 => {
                    inline.hand_on(count);
                    self.current.bytes += count as u64;
                }
                Ok(_) => {
                    self.failure = Some(Error::new(ErrorKind::Host, "a write wrote nothing"));
                    return false;
                }
                Err(Errno::AGAIN) => {
                    self.set_full();
                    return false;
                }
                Err(errno) if errno.is_transient() => {}
                Err(errno) => {
                    self.write_failed(errno);
                    return false;
                }
            }
        }
        true
    }

    /// True if a splice that moved less than it could waits for a pipe: the range's, which is
    /// empty, or the reader's, which is full. False if bytes have arrived meanwhile.
    fn is_held_up(&mut self) -> bool {
        let Some(StreamPiece::Range(range)) = self.window.front() else { return false };
        let has_more = match &range.inlet {
            Inlet::Pipe { own, .. } => self.host.unread(&own.reader).unwrap_or(1) > 0,
            Inlet::Memory(_) => self.staging.has_bytes(),
        };
        if has_more {
            // If bytes have only just arrived there is still room, and the poll reports it.
            self.set_full();
            return true;
        }
        range.watch();
        match &mut range.inlet {
            Inlet::Pipe { own, .. } => self.host.unread(&own.reader).unwrap_or(0) == 0,
            Inlet::Memory(memory) => !memory.has_bytes(),
        }
    }

    /// Counts what the front range's worker has moved into the reader's pipe.
    pub(super) fn take_moved(&mut self) {
        let Some(StreamPiece::Range(range)) = self.window.front() else { return };
        let moved = range.take_moved();
        if moved > 0 {
            self.delivered(moved);
        }
    }

    /// Counts received bytes that are in the reader's pipe.
    fn delivered(&mut self, count: u64) {
        self.handed_on(count);
        self.came.bytes += count;
    }

    /// Counts bytes in the reader's pipe; for inflated objects the received bytes differ.
    fn handed_on(&mut self, count: u64) {
        let since = self.now_us.saturating_sub(self.current.opened_us);
        self.current.first_byte_us.get_or_insert(since);
        self.current.bytes += count;
    }

    /// Records that the reader's pipe is full.
    fn set_full(&mut self) {
        if let Outlet::Open { full, .. } = &mut self.outlet {
            *full = true;
        }
    }

    /// A splice from a non-empty pipe into one with room moved nothing: the kernel contradicts
    /// itself.
    fn nothing_moved(&mut self) {
        self.failure = Some(Error::new(ErrorKind::Host, "a splice moved nothing"));
    }

    /// The reader has closed: drops the rest of the epoch. A reader that took all of it has not
    /// left early, even if it saw no end of file.
    pub(super) fn reader_left(&mut self) {
        // It may have uncounted bytes. The next poll reports the hang-up again.
        if self.window.handover().is_some_and(|pipes| pipes.is_moving()) {
            return;
        }
        self.take_moved();
        if let Outlet::Open { handle, .. } = &self.outlet
            && self.window.is_epoch_handed_on()
            && !self.staging.has_bytes()
        {
            self.outlet = Outlet::Left { handle: handle.clone() };
            return;
        }
        self.leave_early();
    }

    /// The whole epoch was passed on, and its reader has closed: ends the epoch once it is known to
    /// be complete; true if it has ended.
    fn end_behind_reader(&mut self, handle: &Handle) -> bool {
        loop {
            if let Some(range) = self.window.inflated_range()
                && !range.is_over()
            {
                if !range.inflation.output().has_bytes() {
                    return false;
                }
                // There was more, which its reader did not wait for.
                self.leave_early();
                return self.failure.is_none();
            }
            match self.window.front() {
                Some(StreamPiece::Range(range)) if !range.came => return false,
                Some(StreamPiece::Range(_) | StreamPiece::Empty(_)) => self.pop(),
                Some(StreamPiece::Inline(_) | StreamPiece::EpochEnd { .. }) | None => break,
            }
        }
        let Some(objects) = self.window.epoch_end() else { return false };
        // The pipe has no reader any more: check it now.
        self.unread = None;
        let is_taken = match self.marks {
            true => self.is_marked(handle, objects),
            false => self.host.unread(handle).unwrap_or(0) == 0,
        };
        if is_taken {
            self.pop();
            self.finish_epoch();
        } else {
            self.leave_early();
        }
        self.failure.is_none()
    }

    /// Drops the rest of the epoch.
    fn leave_early(&mut self) {
        self.current.left_early = true;
        if let Outlet::Open { handle, .. } | Outlet::Left { handle } = &self.outlet {
            // What stands in the pipe goes with it.
            let unread = self.host.unread(handle).unwrap_or(0);
            self.current.bytes = self.current.bytes.saturating_sub(unread);
        }
        self.staging.clear();
        self.feed.skip_epoch(self.epoch);
        if self.window.drop_epoch() {
            self.finish_epoch();
        } else {
            // Its end is still in the feed, and comes next, because the rest is skipped.
            self.pending = None;
            self.lacks_room = false;
            self.leave_outlet();
            self.fed = true;
        }
    }

    /// Adds the current epoch to the counts.
    pub(super) fn end_count(&mut self) {
        self.current.elapsed_us = self.now_us.saturating_sub(self.current.opened_us);
        if self.count.epochs.len() == EPOCHS_REPORTED_MAX {
            let oldest = self.count.epochs.remove(0);
            self.count.earlier_epochs += 1;
            self.count.earlier_bytes += oldest.bytes;
        }
        self.count.epochs.push(std::mem::take(&mut self.current));
    }

    /// True once the reader has taken the epoch's last byte and the completion marker exists, which
    /// precedes the end of file. No event reports an empty pipe: poll(2) reports room, and
    /// inotify(7) on older kernels no reader that uses splice(2). So it is looked at again after
    /// pauses that [`pause_us`] bounds, once the epoch's last byte was written.
    pub(super) fn is_marked(&mut self, outlet: &Handle, objects: u64) -> bool {
        let (look_us, since_us) = self.unread.unwrap_or((self.now_us, self.now_us));
        if self.now_us < look_us {
            return false;
        }
        let outcome = match self.host.unread(outlet) {
            Ok(0) => {
                let (epoch, bytes) = (self.epoch, self.current.bytes);
                self.host.mark(WholeEpoch { epoch, objects, bytes })
            }
            Ok(_) => {
                let pause_us = pause_us(UNREAD_PAUSE_FIRST_US, self.now_us - since_us);
                self.unread = Some((self.now_us + pause_us, since_us));
                return false;
            }
            Err(errno) => {
                Err(Error::new(ErrorKind::Host, format!("cannot look into a pipe: {errno}"))
                    .advise("leave --epoch-markers out")
                    .caused_by(std::io::Error::from(errno)))
            }
        };
        outcome.map_err(|error| self.failure = Some(error)).is_ok()
    }

    /// Unlinks the FIFO, then closes it: no reader can open it in between and wait for bytes.
    fn leave_outlet(&mut self) {
        self.unread = None;
        self.host.withdraw(self.epoch);
        self.end_count();
        // The next turn ends the polls that still hold it open: see `end_stale_polls`.
        self.outlet = Outlet::Skipping;
    }

    pub(super) fn finish_epoch(&mut self) {
        if matches!(self.outlet, Outlet::Open { .. } | Outlet::Left { .. }) {
            self.current.complete = !self.current.left_early;
            self.leave_outlet();
        }
        self.epoch += 1;
        self.feed.set_reading(self.epoch);
        self.outlet = if self.epochs == Some(self.epoch) {
            Outlet::Closed
        } else {
            Outlet::Wanted { since_us: self.now_us, look_us: self.now_us }
        };
        self.look_for_reader();
    }

    /// Keeps polling the counter and the reader's end.
    pub(super) fn watch(&mut self) {
        if !self.awaiting {
            let op = Op::Poll { handle: self.counter.clone(), events: POLL_IN };
            self.awaiting = self.ring.submit(TOKEN_WAKE, op).is_ok();
        }
        self.end_stale_polls();
        if let Some(event) = &self.reader_event
            && matches!(self.outlet, Outlet::Wanted { .. })
            && !self.reader_polled
        {
            let op = Op::Poll { handle: event.clone(), events: POLL_IN };
            self.reader_polled = self.ring.submit(TOKEN_READER, op).is_ok();
        }
        let epoch = self.epoch;
        let Outlet::Open { handle, full } = &self.outlet else { return };
        if *full && self.room_polled.is_none() {
            let op = Op::Poll { handle: handle.clone(), events: POLL_OUT };
            self.room_polled = self.ring.submit(TOKEN_ROOM, op).is_ok().then_some(epoch);
        }
        // While it is full the other poll reports the hang-up, too.
        if !*full && self.gone_polled.is_none() {
            let op = Op::Poll { handle: handle.clone(), events: 0 };
            self.gone_polled = self.ring.submit(TOKEN_GONE, op).is_ok().then_some(epoch);
        }
    }

    /// Ends the polls of a closed outlet: they hold its pipe open, so its reader sees no end of
    /// file before. A cancel may be lost, so each turn repeats it.
    fn end_stale_polls(&mut self) {
        let open = matches!(self.outlet, Outlet::Open { .. }).then_some(self.epoch);
        for (polled, token) in [(self.room_polled, TOKEN_ROOM), (self.gone_polled, TOKEN_GONE)] {
            if polled.is_some() && polled != open {
                self.ring.cancel(token);
            }
        }
    }

    pub(super) fn on_reader_event(&mut self, op: &Op, result: Result<u32, Errno>) {
        let Outlet::Open { handle, full } = &mut self.outlet else { return };
        let Op::Poll { handle: polled, .. } = op else { unreachable!("a poll") };
        let same = match (&*handle, polled) {
            (Handle::Descriptor(now), Handle::Descriptor(then)) => Arc::ptr_eq(now, then),
            (Handle::Simulated(now), Handle::Simulated(then)) => now == then,
            _ => false,
        };
        match result {
            Ok(events) if same => {
                *full = false;
                if events & u32::from(POLL_ERROR) != 0 {
                    self.reader_left();
                }
            }
            _ => {}
        }
    }
}

/// The error of a failed write to the reader's pipe, or to one before it.
fn unwritable(errno: Errno) -> Error {
    if errno.is_of_descriptors() {
        return no_pipe(errno);
    }
    Error::new(ErrorKind::Destination, format!("cannot write: {errno}"))
        .advise("see the reader's end")
        .caused_by(std::io::Error::from(errno))
}
