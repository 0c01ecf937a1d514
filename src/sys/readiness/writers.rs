//! Threads that write to files: epoll reports a regular file as always ready, but a write to it
//! blocks on the disk.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::{Errno, Op, owned, short};

/// Stack of a thread in bytes: it makes one system call.
const STACK_BYTES: usize = 64 << 10;

/// A write for a thread.
#[derive(Debug)]
struct Lent {
    index: u32,
    op: Op,
}

/// A finished write.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) index: u32,
    pub(super) op: Op,
    pub(super) result: Result<u32, Errno>,
}

/// Shared by a ring and its threads.
#[derive(Debug)]
struct WriteThreads {
    state: Mutex<WriteQueue>,
    /// Notified when there is a write, and at the end.
    work: Condvar,
    /// Notified at the end by each thread that has finished its write.
    rest: Condvar,
    /// Raised when there are results.
    counter: OwnedFd,
}

#[derive(Debug, Default)]
struct WriteQueue {
    /// Writes that have not begun: at most the ring's capacity.
    waiting: VecDeque<Lent>,
    written: Vec<Written>,
    /// Threads that wait for a write.
    idle: usize,
    /// Threads that are writing.
    busy: usize,
    is_closed: bool,
}

impl WriteThreads {
    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        // No code below panics halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads of one ring.
#[derive(Debug)]
pub(super) struct Writers {
    shared: Arc<WriteThreads>,
    threads: Vec<JoinHandle<()>>,
    most: usize,
}

impl Writers {
    /// Up to `most` threads; starts none.
    pub(super) fn new(most: usize) -> Result<Self, Errno> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (work, rest) = (Condvar::new(), Condvar::new());
        let shared = WriteThreads { state: Mutex::default(), work, rest, counter };
        Ok(Self { shared: Arc::new(shared), threads: Vec::new(), most })
    }

    /// The counter that is raised when there are results.
    pub(super) fn counter(&self) -> &OwnedFd {
        &self.shared.counter
    }

    /// Number of threads.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Queues a write; returns it if there is no thread and none can be started.
    pub(super) fn give(&mut self, index: u32, op: Op) -> Result<(), Op> {
        let is_short = {
            let state = self.shared.lock();
            state.idle <= state.waiting.len()
        };
        if is_short && self.threads.len() < self.most {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("inrush-write".to_owned());
            let thread = thread.stack_size(STACK_BYTES).spawn(move || serve(&shared));
            // If this fails, fewer threads do the work.
            self.threads.extend(thread.ok());
        }
        if self.threads.is_empty() {
            return Err(op);
        }
        self.shared.lock().waiting.push_back(Lent { index, op });
        self.shared.work.notify_one();
        Ok(())
    }

    /// Takes back a write that no thread has begun.
    pub(super) fn recall(&mut self, index: u32) -> Option<Op> {
        let mut state = self.shared.lock();
        let place = state.waiting.iter().position(|lent| lent.index == index)?;
        state.waiting.remove(place).map(|lent| lent.op)
    }

    /// Swaps the results into an empty list.
    pub(super) fn take(&mut self, into: &mut Vec<Written>) {
        // Reset first: later results raise it again.
        let _ = rustix::io::read(&self.shared.counter, &mut [0u8; 8]);
        std::mem::swap(&mut self.shared.lock().written, into);
    }

    /// Ends the threads, and waits at most `at_most` for writes in progress.
    pub(super) fn close(&mut self, at_most: Duration) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        self.shared.work.notify_all();
        let rest = self.shared.rest.wait_timeout_while(state, at_most, |state| state.busy > 0);
        let is_at_rest = !rest.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        drop(waiting);
        for thread in self.threads.drain(..).filter(|_| is_at_rest) {
            let _ = thread.join();
        }
    }
}

/// Body of a thread.
fn serve(shared: &WriteThreads) {
    let mut state = shared.lock();
    loop {
        if let Some(Lent { index, op }) = state.waiting.pop_front() {
            state.busy += 1;
            drop(state);
            let result = write(&op);
            state = shared.lock();
            state.busy -= 1;
            let was_empty = state.written.is_empty();
            state.written.push(Written { index, op, result });
            if was_empty {
                // EAGAIN means that the counter is at its maximum: it is raised.
                let _ = rustix::io::write(&shared.counter, &1u64.to_ne_bytes());
            }
        } else if state.is_closed {
            drop(state);
            return shared.rest.notify_all();
        } else {
            state.idle += 1;
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// Writes to a file on the calling thread (pwrite(2)).
pub(super) fn write(op: &Op) -> Result<u32, Errno> {
    let Op::Write { file, slot, at, length, offset } = op else {
        unreachable!("only writes are lent")
    };
    let bytes = &slot[*at as usize..(*at + *length) as usize];
    Ok(short(rustix::io::retry_on_intr(|| rustix::io::pwrite(owned(file), bytes, *offset))?))
}
