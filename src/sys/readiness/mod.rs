//! Implements [`Ring`] with non-blocking calls, epoll(7), and a few threads for writes to files.
//! For hosts where io_uring is forbidden or missing.
//!
//! An operation is tried when the ring is entered. If it would block, epoll watches its descriptor,
//! and it is tried again when the descriptor is ready. The ring owns every operation until its
//! completion; a write is lent to a thread meanwhile. Completions mean the same as those of
//! [`super::uring`].

mod watch;
mod writers;

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags};

use super::{Completion, Errno, Handle, Op, Ring, Slot};
use watch::{Watched, Watches};
use writers::{Writers, Written};

/// Bytes that one [`Ring::enter`] moves before it returns, so that no descriptor waits long while
/// others have much data.
const BYTES_PER_ENTER: usize = 16 << 20;

/// Cost of each operation, in bytes of that budget, in addition to its bytes.
const BYTES_PER_OPERATION: usize = 64 << 10;

/// How long dropping a ring waits for writes in progress.
const DRAIN_WAIT: Duration = Duration::from_secs(5);

/// End of a list of slab indexes.
const NONE: u32 = u32::MAX;

/// Progress of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpStage {
    /// Queued to be tried.
    Queued,
    /// Its descriptor is watched for these events.
    Waiting(EventFlags),
    /// A thread has it.
    Lent,
}

/// An operation in flight.
struct OpInFlight {
    token: u64,
    /// `None` while a thread has it.
    op: Option<Op>,
    stage: OpStage,
    /// It was tried before.
    is_begun: bool,
    /// It was cancelled before it was tried.
    is_cancelled: bool,
    /// Bytes received so far by a receive with `fill`.
    received: u32,
    /// The next operation that waits for the same descriptor.
    next: u32,
}

impl OpInFlight {
    fn op(&self) -> &Op {
        self.op.as_ref().expect("no thread has it")
    }
}

/// Result of trying an operation.
enum Tried {
    /// It has ended.
    Done(Result<u32, Errno>),
    /// It waits for one of these events.
    Waits(EventFlags),
}

/// A ring over epoll(7).
pub struct Readiness {
    entries: Vec<Option<OpInFlight>>,
    free: Vec<u32>,
    /// Operations to try next, with the events that occurred.
    queue: VecDeque<(u32, EventFlags)>,
    watches: Watches,
    writers: Writers,
    /// A reused buffer for results of the writers; empty.
    written: Vec<Written>,
    completions: VecDeque<Completion>,
    /// The error that has made the ring unusable.
    broken: Option<Errno>,
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl Readiness {
    /// A ring with room for `entries` operations in flight, and up to `writers` threads for writes
    /// to files, which start on demand.
    ///
    /// # Errors
    /// EMFILE or ENFILE if descriptors run out (epoll_create1(2), eventfd(2)).
    pub fn new(entries: u32, writers: usize) -> Result<Self, Errno> {
        let writers = Writers::new(writers)?;
        let watches = Watches::new(writers.counter())?;
        let room = entries as usize;
        Ok(Self {
            entries: (0..entries).map(|_| None).collect(),
            free: (0..entries).rev().collect(),
            queue: VecDeque::with_capacity(room),
            watches,
            writers,
            written: Vec::with_capacity(room),
            completions: VecDeque::with_capacity(room),
            broken: None,
        })
    }

    fn entry(&mut self, index: u32) -> &mut OpInFlight {
        self.entries[index as usize].as_mut().expect("it is in flight")
    }

    /// Tries queued operations until `budget` bytes are used up.
    fn work(&mut self, budget: &mut usize) {
        while *budget > 0 {
            let Some((index, events)) = self.queue.pop_front() else { return };
            let moved = self.advance(index, events);
            *budget = budget.saturating_sub(moved + BYTES_PER_OPERATION);
        }
    }

    /// Tries one operation; returns how many bytes it moved.
    fn advance(&mut self, index: u32, events: EventFlags) -> usize {
        let entry = self.entry(index);
        if matches!(entry.op(), Op::Write { .. }) {
            self.lend(index);
            return 0;
        }
        let before = entry.received;
        let tried = entry.attempt(events);
        entry.is_begun = true;
        let moved = match tried {
            Tried::Done(Ok(count)) => count.saturating_sub(before),
            Tried::Done(Err(_)) => 0,
            Tried::Waits(_) => entry.received - before,
        };
        match tried {
            Tried::Done(result) => self.complete(index, result),
            Tried::Waits(_) if entry.is_cancelled => self.end(index),
            Tried::Waits(events) => self.wait_for(index, events),
        }
        moved as usize
    }

    /// Gives a write to a thread; without a thread it is done at once.
    fn lend(&mut self, index: u32) {
        let entry = self.entry(index);
        if entry.is_cancelled {
            return self.end(index);
        }
        entry.stage = OpStage::Lent;
        let op = entry.op.take().expect("just queued");
        if let Err(op) = self.writers.give(index, op) {
            let result = writers::write(&op);
            self.entry(index).op = Some(op);
            self.complete(index, result);
        }
    }

    /// Watches the descriptor of an operation that would block.
    fn wait_for(&mut self, index: u32, events: EventFlags) {
        let entry = self.entry(index);
        entry.stage = OpStage::Waiting(events);
        let handle = Arc::clone(descriptor(entry.op()));
        let refused = match self.watches.add(&mut self.entries, index, &handle, events) {
            Ok(()) => return,
            // EPERM: a regular file, for example, is always ready.
            Err(Errno::NOT_PERMITTED) => {
                let ready = events & (EventFlags::IN | EventFlags::OUT);
                if ready.is_empty() { Err(Errno::INVALID) } else { Ok(ready.bits()) }
            }
            // Nothing more can be watched, and trying again would not block. ENOSPC would be taken
            // for a full disk.
            Err(errno) if is_of_room(errno) => {
                self.broken = Some(errno);
                Err(Errno::from(rustix::io::Errno::NOBUFS))
            }
            Err(errno) => Err(errno),
        };
        self.complete(index, refused);
    }

    /// Ends a cancelled operation.
    fn end(&mut self, index: u32) {
        let received = self.entry(index).received;
        let result = if received > 0 { Ok(received) } else { Err(Errno::CANCELED) };
        self.complete(index, result);
    }

    fn complete(&mut self, index: u32, result: Result<u32, Errno>) {
        let entry = self.entries[index as usize].take().expect("one completion per operation");
        self.free.push(index);
        let op = entry.op.expect("no thread has it");
        self.completions.push_back(Completion { token: entry.token, op, result });
    }

    /// Takes the results of the threads.
    fn take_written(&mut self) {
        let mut written = std::mem::take(&mut self.written);
        self.writers.take(&mut written);
        for Written { index, op, result } in written.drain(..) {
            self.entry(index).op = Some(op);
            self.complete(index, result);
        }
        self.written = written;
    }

    /// Waits for events, and queues the operations that they concern; true if there were some.
    fn wait(&mut self, wait_us: u64) -> Result<bool, Errno> {
        let count = self.watches.wait(wait_us)?;
        for number in 0..count {
            match self.watches.event(number) {
                (Watched::Writers, _) => self.take_written(),
                (Watched::Descriptor(place), events) => {
                    self.watches.fired(&mut self.entries, place, events, &mut self.queue);
                }
            }
        }
        Ok(count > 0)
    }
}

impl OpInFlight {
    /// Tries the operation without blocking. `events` have occurred; none at the first attempt.
    fn attempt(&mut self, events: EventFlags) -> Tried {
        let is_begun = self.is_begun;
        let received = &mut self.received;
        match self.op.as_mut().expect("no thread has it") {
            Op::Connect { socket, address } => connect(owned(socket), address, is_begun),
            Op::Send { socket, slot, at, length } => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let bytes = &piece(slot, *at, *length)[..];
                outcome(again(|| rustix::net::send(owned(socket), bytes, flags)), EventFlags::OUT)
            }
            Op::Receive { socket, slot, at, length, fill } => {
                let into = &mut piece(slot, *at, *length)[*received as usize..];
                let room = into.len();
                let socket = owned(socket);
                let flags = RecvFlags::DONTWAIT;
                let got = again(|| Ok(rustix::net::recv(socket, &mut *into, flags)?.1));
                match got {
                    Ok(count) if *fill && 0 < count && count < room => {
                        *received += short(count);
                        Tried::Waits(EventFlags::IN)
                    }
                    Ok(count) => Tried::Done(Ok(*received + short(count))),
                    Err(rustix::io::Errno::AGAIN) => Tried::Waits(EventFlags::IN),
                    // Report the bytes first; the next receive returns the error.
                    Err(_) if *received > 0 => Tried::Done(Ok(*received)),
                    Err(errno) => Tried::Done(Err(errno.into())),
                }
            }
            Op::Poll { handle, events: wanted } => {
                let wanted = EventFlags::from_bits_retain(u32::from(*wanted)) | EventFlags::RDHUP;
                let always = EventFlags::ERR | EventFlags::HUP;
                let found = match self.is_cancelled {
                    true => look(owned(handle), wanted),
                    false => events,
                };
                match found & (wanted | always) {
                    found if found.is_empty() => Tried::Waits(wanted),
                    found => Tried::Done(Ok(found.bits())),
                }
            }
            Op::Write { .. } => unreachable!("threads write"),
        }
    }
}

/// Starts a connect, or completes it (connect(2)): a second call returns the error, as SO_ERROR
/// would, and makes the kernel mark the socket as connected. The socket is blocking again
/// afterwards.
fn connect(socket: &OwnedFd, address: &std::net::SocketAddr, is_begun: bool) -> Tried {
    use rustix::io::Errno as Named;
    let asked = || {
        rustix::io::ioctl_fionbio(socket, true)?;
        let asked = rustix::net::connect(socket, address);
        rustix::io::ioctl_fionbio(socket, false)?;
        asked
    };
    match asked() {
        Ok(()) => Tried::Done(Ok(0)),
        Err(Named::INPROGRESS | Named::ALREADY | Named::INTR) => Tried::Waits(EventFlags::OUT),
        // Other implementations of Linux's system calls return this.
        Err(Named::ISCONN) if is_begun => Tried::Done(Ok(0)),
        Err(errno) => Tried::Done(Err(errno.into())),
    }
}

/// The events that have occurred.
fn look(descriptor: &OwnedFd, wanted: EventFlags) -> EventFlags {
    let wanted = PollFlags::from_bits_retain(u16::try_from(wanted.bits()).unwrap_or(0));
    let mut asked = [PollFd::new(descriptor, wanted)];
    let _ = rustix::event::poll(&mut asked, Some(&rustix::time::Timespec::default()));
    EventFlags::from_bits_retain(u32::from(asked[0].revents().bits()))
}

fn outcome(moved: rustix::io::Result<usize>, events: EventFlags) -> Tried {
    match moved {
        Ok(count) => Tried::Done(Ok(short(count))),
        Err(rustix::io::Errno::AGAIN) => Tried::Waits(events),
        Err(errno) => Tried::Done(Err(errno.into())),
    }
}

/// Repeats a call that a signal has interrupted.
fn again<T>(call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    rustix::io::retry_on_intr(call)
}

fn short(count: usize) -> u32 {
    u32::try_from(count).expect("at most a slot")
}

fn owned(handle: &Handle) -> &Arc<OwnedFd> {
    match handle {
        Handle::Descriptor(descriptor) => descriptor,
        Handle::Simulated(_) => unreachable!("it was checked when it was submitted"),
    }
}

/// True if epoll_ctl(2) is out of watches (ENOSPC) or memory (ENOMEM).
fn is_of_room(errno: Errno) -> bool {
    matches!(errno.named(), rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM)
}

/// The descriptor of an operation.
fn descriptor(op: &Op) -> &Arc<OwnedFd> {
    match op {
        Op::Connect { socket: handle, .. }
        | Op::Send { socket: handle, .. }
        | Op::Receive { socket: handle, .. }
        | Op::Write { file: handle, .. }
        | Op::Poll { handle, .. } => owned(handle),
    }
}

/// `length` bytes at `at` within a slot.
fn piece(slot: &mut Slot, at: u32, length: u32) -> &mut [u8] {
    &mut slot[at as usize..(at + length) as usize]
}

/// True if an operation's bytes are inside its slot and its descriptor is real.
fn is_sound(op: &Op) -> bool {
    match op {
        Op::Connect { socket: handle, .. } | Op::Poll { handle, .. } => is_real(handle),
        Op::Send { socket: handle, slot, at, length }
        | Op::Receive { socket: handle, slot, at, length, .. }
        | Op::Write { file: handle, slot, at, length, .. } => {
            let end = at.checked_add(*length);
            let inside = end.is_some_and(|end| end as usize <= slot.len() && *length > 0);
            inside && is_real(handle)
        }
    }
}

fn is_real(handle: &Handle) -> bool {
    matches!(handle, Handle::Descriptor(_))
}

impl Ring for Readiness {
    fn submit(&mut self, token: u64, op: Op) -> Result<(), Op> {
        assert!(is_sound(&op), "an operation names bytes inside its slot: {op:?}");
        let Some(index) = self.free.pop() else { return Err(op) };
        self.entries[index as usize] = Some(OpInFlight {
            token,
            op: Some(op),
            stage: OpStage::Queued,
            is_begun: false,
            is_cancelled: false,
            received: 0,
            next: NONE,
        });
        self.queue.push_back((index, EventFlags::empty()));
        Ok(())
    }

    fn cancel(&mut self, token: u64) {
        let found = self
            .entries
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|entry| entry.token == token));
        let Some(index) = found.and_then(|index| u32::try_from(index).ok()) else { return };
        let entry = self.entry(index);
        match entry.stage {
            // It is still tried once.
            OpStage::Queued => entry.is_cancelled = true,
            OpStage::Waiting(_) => {
                let handle = Arc::clone(descriptor(entry.op()));
                self.watches.remove(&mut self.entries, index, &handle);
                self.end(index);
            }
            OpStage::Lent => {
                // A write in progress completes by itself.
                if let Some(op) = self.writers.recall(index) {
                    self.entry(index).op = Some(op);
                    self.end(index);
                }
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it waits once more for what is left of a wait")]
    fn enter(&mut self, wait_us: u64) -> Result<(), Errno> {
        if let Some(errno) = self.broken.filter(|_| self.completions.is_empty()) {
            return Err(errno);
        }
        let mut budget = BYTES_PER_ENTER;
        self.work(&mut budget);
        let mut left_us = wait_us;
        let mut begun = None;
        loop {
            let is_idle = self.completions.is_empty() && self.queue.is_empty();
            if is_idle && left_us > 0 && begun.is_none() {
                begun = Some(Instant::now());
            }
            let is_woken = self.wait(if is_idle { left_us } else { 0 })?;
            self.work(&mut budget);
            if !is_woken || budget == 0 || !self.completions.is_empty() {
                return Ok(());
            }
            let elapsed_us = begun.map_or(0, |begun| begun.elapsed().as_micros());
            left_us = wait_us.saturating_sub(u64::try_from(elapsed_us).unwrap_or(u64::MAX));
            if left_us == 0 {
                return Ok(());
            }
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.entries.len() - self.free.len() + self.completions.len()
    }
}

impl Drop for Readiness {
    /// Waits for writes in progress. A thread whose write does not end in bounded time keeps its
    /// file and slot.
    fn drop(&mut self) {
        self.writers.close(DRAIN_WAIT);
    }
}

#[cfg(test)]
mod tests;
