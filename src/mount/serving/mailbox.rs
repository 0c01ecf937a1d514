//! Answers to requests from a ring, on their way to the thread of that ring.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::Errno;

use crate::sys::fuse_ring::{FuseAnswer, FuseRequest};
use crate::sys::{Handle, descriptor};

/// Answers for a thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<Mail>,
    waker: Handle,
    device: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct Mail {
    answers: Vec<FuseAnswer>,
    /// The thread waits, and must be woken.
    is_asleep: bool,
}

impl Mailbox {
    /// An empty one, whose thread waits for this counter.
    pub(super) fn new(waker: Handle, device: Arc<OwnedFd>) -> Self {
        Self { state: Mutex::default(), waker, device }
    }

    /// Takes all answers, of a thread that then waits.
    pub(super) fn take(&self, answers: &mut Vec<FuseAnswer>) {
        let mut mail = self.lock();
        std::mem::swap(&mut mail.answers, answers);
        // Later answers are not seen before the ring wakes.
        mail.is_asleep = true;
    }

    /// Notes that the thread has woken.
    pub(super) fn wake(&self) {
        self.lock().is_asleep = false;
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, answer: FuseAnswer) {
        let mut mail = self.lock();
        mail.answers.push(answer);
        let wakes = std::mem::take(&mut mail.is_asleep);
        drop(mail);
        if wakes {
            descriptor::raise(&self.waker);
        }
    }
}

/// The answer of a request from a ring. Dropping it unanswered sends EIO.
#[derive(Debug)]
pub(super) struct RingReply {
    to: Arc<Mailbox>,
    request: Option<FuseRequest>,
}

impl RingReply {
    /// The answer of this request, to the thread of this mailbox.
    pub(super) fn new(to: &Arc<Mailbox>, request: FuseRequest) -> Self {
        Self { to: Arc::clone(to), request: Some(request) }
    }

    /// Answers with the bytes that `write` writes; it returns their number.
    pub(super) fn write(self, write: impl FnOnce(&mut [u8]) -> usize) {
        self.try_write(|bytes| Ok(write(bytes)));
    }

    /// Answers with written bytes, or with the error.
    pub(super) fn try_write(mut self, write: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        let Some(mut request) = self.request.take() else { return };
        let result = write(request.memory());
        let result = result.map_err(|errno| crate::sys::Errno::new(errno.code()));
        self.to.put(request.answer(result));
    }

    pub(super) fn error(self, errno: Errno) {
        self.try_write(|_| Err(errno));
    }

    /// The device of the mount.
    pub(super) fn device(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.to.device)
    }
}

impl Drop for RingReply {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.to.put(request.answer(Err(crate::sys::Errno::IO)));
        }
    }
}
