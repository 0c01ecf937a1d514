//! Readiness behind the [`Ring`] trait: non-blocking calls, epoll(7) for what would wait, and a few
//! threads for writes to files. For hosts where io_uring is forbidden or missing.
//!
//! An operation is tried when the ring is entered. One that would wait is watched by epoll, and
//! tried again when its descriptor is ready. The ring owns every operation until its completion;
//! a write is lent to a thread meanwhile. A completion means what it means with [`super::uring`].

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

/// Bytes that one call of [`Ring::enter`] moves before it returns, so that no descriptor waits for
/// long while others have much to give.
const BYTES_PER_ENTER: usize = 16 << 20;

/// What each operation counts besides its bytes.
const BYTES_PER_OPERATION: usize = 64 << 10;

/// How long dropping a ring waits for writes that have begun.
const DRAIN_WAIT: Duration = Duration::from_secs(5);

/// No entry of the slab.
const NONE: u32 = u32::MAX;

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is in the queue of those that are tried next.
    Queued,
    /// Its descriptor is watched for these events.
    Waiting(EventFlags),
    /// A thread has it.
    Lent,
}

/// An operation in flight.
struct Entry {
    token: u64,
    /// `None` while a thread has it.
    op: Option<Op>,
    stage: Stage,
    /// It was tried before.
    is_begun: bool,
    /// Its end was asked for before it was tried.
    is_cancelled: bool,
    /// What a receive that is to fill its place has got so far.
    received: u32,
    /// The next operation that waits for the same descriptor.
    next: u32,
}

impl Entry {
    fn op(&self) -> &Op {
        self.op.as_ref().expect("no thread has it")
    }
}

/// What came of trying an operation.
enum Tried {
    /// It is over.
    Done(Result<u32, Errno>),
    /// It waits for one of these events.
    Waits(EventFlags),
}

/// A ring over epoll(7).
pub struct Readiness {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// What is tried next, with the events that were there.
    queue: VecDeque<(u32, EventFlags)>,
    watches: Watches,
    writers: Writers,
    /// What they gave back last: empty, for its room.
    written: Vec<Written>,
    completions: VecDeque<Completion>,
    /// Why it is of no use any more.
    broken: Option<Errno>,
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl Readiness {
    /// A ring with room for `entries` operations in flight, and at most so many threads for writes
    /// to files, which are started when they are needed.
    ///
    /// # Errors
    /// EMFILE or ENFILE when descriptors run out (epoll_create1(2), eventfd(2)).
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

    fn entry(&mut self, index: u32) -> &mut Entry {
        self.entries[index as usize].as_mut().expect("it is in flight")
    }

    /// Tries what is queued, as far as `budget` bytes go.
    fn work(&mut self, budget: &mut usize) {
        while *budget > 0 {
            let Some((index, events)) = self.queue.pop_front() else { return };
            let moved = self.advance(index, events);
            *budget = budget.saturating_sub(moved + BYTES_PER_OPERATION);
        }
    }

    /// Tries one operation; how many bytes it moved.
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

    /// Hands a write to a thread; where there is none it is done here and now.
    fn lend(&mut self, index: u32) {
        let entry = self.entry(index);
        if entry.is_cancelled {
            return self.end(index);
        }
        entry.stage = Stage::Lent;
        let op = entry.op.take().expect("just queued");
        if let Err(op) = self.writers.give(index, op) {
            let result = writers::write(&op);
            self.entry(index).op = Some(op);
            self.complete(index, result);
        }
    }

    /// Watches the descriptor of an operation that would wait.
    fn wait_for(&mut self, index: u32, events: EventFlags) {
        let entry = self.entry(index);
        entry.stage = Stage::Waiting(events);
        let handle = Arc::clone(descriptor(entry.op()));
        let refused = match self.watches.add(&mut self.entries, index, &handle, events) {
            Ok(()) => return,
            // It has no state to wait for, as a regular file: always ready.
            Err(Errno::NOT_PERMITTED) => {
                let ready = events & (EventFlags::IN | EventFlags::OUT);
                if ready.is_empty() { Err(Errno::INVALID) } else { Ok(ready.bits()) }
            }
            // Nothing more can be watched: whoever tries again would not wait. No disk is full.
            Err(errno) if is_of_room(errno) => {
                self.broken = Some(errno);
                Err(Errno::from(rustix::io::Errno::NOBUFS))
            }
            Err(errno) => Err(errno),
        };
        self.complete(index, refused);
    }

    /// Ends an operation because that was asked for.
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

    /// Takes what the threads have written.
    fn take_written(&mut self) {
        let mut written = std::mem::take(&mut self.written);
        self.writers.take(&mut written);
        for Written { index, op, result } in written.drain(..) {
            self.entry(index).op = Some(op);
            self.complete(index, result);
        }
        self.written = written;
    }

    /// Waits for events, and queues what they concern; true when there were some.
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

impl Entry {
    /// Tries the operation, without waiting. `events` are there; none when it is tried first.
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
                    // What had come comes first; the next receive tells why there is no more.
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

/// Begins to connect, or asks what came of it (connect(2)): asked again, the kernel tells the
/// error, as SO_ERROR would, and notes that the socket is connected. Calls on it wait again after.
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
        // Other systems that run programs for Linux say it so.
        Err(Named::ISCONN) if is_begun => Tried::Done(Ok(0)),
        Err(errno) => Tried::Done(Err(errno.into())),
    }
}

/// The events that are there now.
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

/// True where epoll_ctl(2) has no room, in the user's limit (ENOSPC) or in memory (ENOMEM).
fn is_of_room(errno: Errno) -> bool {
    matches!(errno.named(), rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM)
}

/// What an operation acts on.
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

/// True for an operation that names bytes inside its slot and a real descriptor.
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
        self.entries[index as usize] = Some(Entry {
            token,
            op: Some(op),
            stage: Stage::Queued,
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
            // It is tried once, as it would have been without this.
            Stage::Queued => entry.is_cancelled = true,
            Stage::Waiting(_) => {
                let handle = Arc::clone(descriptor(entry.op()));
                self.watches.remove(&mut self.entries, index, &handle);
                self.end(index);
            }
            Stage::Lent => {
                // One that has begun completes by itself.
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
    /// Waits for the writes that have begun. A thread whose write does not come back in bounded
    /// time keeps what it has: its file and its slot.
    fn drop(&mut self) {
        self.writers.close(DRAIN_WAIT);
    }
}

#[cfg(test)]
mod tests;
