//! The kernel's requests over io_uring: one kernel queue per processor, and threads that serve
//! them.
//!
//! A thread takes the requests of its ring, lets the view answer them, and returns answers with the
//! call that waits for more. Later answers, from other threads, are put into its mailbox; a wake-up
//! follows.

use std::num::NonZero;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use fuser::{Errno, FileHandle, OpenFlags};

use super::attributes::wire_attributes;
use super::detach::Own;
use super::mailbox::{Mailbox, RingReply};
use super::reply::{NameReply, OpenReply, ReadReply};
use super::transport::{Transport, unavailable};
use super::view::View;
use crate::engine::threads::event_counter;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{
    MOUNT_NAMES_TTL, MOUNT_QUEUE_ENTRIES_MAX, MOUNT_QUEUE_ENTRIES_MIN, MOUNT_QUEUE_WAIT,
};
use crate::mount::wire::{self, Call, DirEntries, Writer};
use crate::plan::path::NAME_BYTES_MAX;
use crate::sys::fuse_ring::{EmptyRing, FuseRequest, FuseRing, Memory};
use crate::sys::topology;

/// The queues, decided before anything is mounted.
#[derive(Debug)]
struct Plan {
    /// The queues of each thread: one queue number per entry.
    threads: Vec<Vec<u16>>,
    memory: Memory,
}

/// Threads that have their rings, and wait for a device.
pub(super) struct Queues {
    threads: Vec<Started>,
    memory: Memory,
}

struct Started {
    go: SyncSender<Go>,
    registered: Receiver<Result<(), crate::sys::Errno>>,
}

/// The parameters of a thread's start.
struct Go {
    view: Arc<View>,
    device: Arc<OwnedFd>,
    memory: Memory,
    /// The mount; `None` if unknown.
    own: Option<Own>,
}

/// Starts threads with rings of this much memory for requests of at most `request_bytes`; the inner
/// error is why that is impossible.
///
/// # Errors
/// If io_uring is required but impossible, or if a thread cannot be started.
pub(super) fn prepare(
    transport: Transport,
    bytes: u64,
    request_bytes: u32,
) -> Result<Result<Queues, String>> {
    if let Transport::Device(why) = transport {
        return Ok(Err(why.to_owned()));
    }
    let is_required = transport.is_required();
    // If few requests fit at once they wait for each other; the device has no such limit.
    let least = if is_required { MOUNT_QUEUE_ENTRIES_MIN } else { MOUNT_QUEUE_ENTRIES_MAX };
    let prepared = match Plan::new(bytes, request_bytes, least) {
        Ok(plan) => Queues::start(plan)?,
        Err(why) => Err(why),
    };
    match prepared {
        Err(why) if is_required => {
            Err(Error::new(ErrorKind::Host, unavailable(&why)).advise("use --fuse auto"))
        }
        prepared => Ok(prepared),
    }
}

impl Plan {
    /// Divides this much memory among the queues; the error is why that is impossible.
    fn new(bytes: u64, request_bytes: u32, least: usize) -> Result<Self, String> {
        let (possible, online) =
            topology::processors(Path::new("/")).ok_or("its processors are not known")?;
        let fits = usize::try_from(bytes / u64::from(request_bytes)).unwrap_or(usize::MAX);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = divide(&possible, &online, least..=fits, threads)?;
        let count = threads.iter().map(Vec::len).sum();
        let memory = Memory::new(count, request_bytes).map_err(|errno| errno.to_string())?;
        Ok(Self { threads, memory })
    }
}

/// The queues of each thread, one queue number per entry: at least `least` per processor, and as
/// many as fit in the memory.
fn divide(
    possible: &[u32],
    online: &[u32],
    entries: RangeInclusive<usize>,
    threads: usize,
) -> Result<Vec<Vec<u16>>, String> {
    // The kernel numbers them consecutively.
    if !possible.iter().copied().eq((0..).take(possible.len())) {
        return Err("the numbers of its processors have gaps".to_owned());
    }
    let each = entries.end() / online.len().max(1);
    if each < *entries.start() {
        return Err("there is not enough memory for its queues".to_owned());
    }
    let each = each.min(MOUNT_QUEUE_ENTRIES_MAX);
    let mut divided = vec![Vec::new(); threads.clamp(1, online.len().max(1))];
    for (number, queue) in possible.iter().enumerate() {
        // The kernel needs an entry of each queue, also of offline processors; their memory is not
        // touched until they come online.
        let entries = if online.contains(queue) { each } else { 1 };
        let queue = u16::try_from(*queue).map_err(|_| "there are too many processors")?;
        let thread = number % divided.len();
        divided[thread].extend(std::iter::repeat_n(queue, entries));
    }
    Ok(divided)
}

/// Pins the calling thread to the processor of its queue, if it has only one: the requesting
/// program waits there, and the answer is in that core's cache. If pinning is forbidden it runs
/// anywhere.
fn stay(queues: &[u16]) {
    if let [first, rest @ ..] = queues
        && rest.iter().all(|queue| queue == first)
    {
        let _ = core_affinity::set_for_current(core_affinity::CoreId { id: usize::from(*first) });
    }
}

impl Queues {
    /// Starts the threads; the inner error is why the kernel lets them have no rings.
    ///
    /// # Errors
    /// If a thread cannot be started.
    fn start(plan: Plan) -> Result<Result<Self, String>> {
        let Plan { threads: planned, memory } = plan;
        let mut threads = Vec::new();
        let (sender, receiver) = sync_channel(planned.len());
        let count = planned.len();
        for queues in planned {
            let (go, went) = sync_channel::<Go>(1);
            let (registered_sender, registered) = sync_channel(1);
            let sender = sender.clone();
            let waker = event_counter()?;
            let work = move || {
                stay(&queues);
                let entries = u32::try_from(queues.len()).expect("few");
                let empty = match EmptyRing::new(entries) {
                    Ok(empty) => empty,
                    Err(errno) => {
                        let _ = sender.send(Err(errno));
                        return;
                    }
                };
                // If another thread has failed the receiver is gone.
                let _ = sender.send(Ok(()));
                let Ok(Go { view, device, memory, own }) = went.recv() else { return };
                let registered =
                    FuseRing::register(empty, Arc::clone(&device), waker.clone(), &queues, &memory);
                let ring = match registered {
                    Ok(ring) => ring,
                    Err(errno) => {
                        let _ = registered_sender.send(Err(errno));
                        return;
                    }
                };
                let _ = registered_sender.send(Ok(()));
                serve(ring, &view, &Arc::new(Mailbox::new(waker, device)), own);
            };
            let thread = std::thread::Builder::new().name("inrush-fuse".to_owned());
            // It ends with the connection, which open files may prolong.
            thread.spawn(work).map_err(Error::no_thread)?;
            threads.push(Started { go, registered });
        }
        // A thread that ends without a message must not block the receiver.
        drop(sender);
        for _ in 0..count {
            if let Ok(Err(errno)) = receiver.recv() {
                return Ok(Err(errno.to_string()));
            }
        }
        Ok(Ok(Self { threads, memory }))
    }

    /// Starts serving the connection of this device on all threads.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn serve(
        self,
        view: &Arc<View>,
        device: &Arc<OwnedFd>,
        own: Option<&Own>,
    ) -> Result<(), crate::sys::Errno> {
        for started in &self.threads {
            let (view, device) = (Arc::clone(view), Arc::clone(device));
            let memory = self.memory.clone();
            let own = own.cloned();
            let _ = started.go.send(Go { view, device, memory, own });
        }
        for started in self.threads {
            started.registered.recv().unwrap_or(Err(crate::sys::Errno::IO))?;
        }
        Ok(())
    }
}

/// Aborts the mount of a thread that cannot continue: its queues would never be answered. `None`
/// once the connection has ended.
struct Unserved(Option<Own>);

impl Drop for Unserved {
    fn drop(&mut self) {
        if let Some(own) = &self.0 {
            own.abort();
        }
    }
}

/// Serves until the kernel has ended the connection and returned all its entries.
fn serve(mut ring: FuseRing, view: &View, mailbox: &Arc<Mailbox>, own: Option<Own>) {
    let mut unserved = Unserved(own);
    let mut arrived = Vec::new();
    let mut answers = Vec::new();
    loop {
        mailbox.take(&mut answers);
        answers.drain(..).for_each(|answer| ring.answer(answer));
        if ring.has_ended() {
            unserved.0 = None;
            return;
        }
        if let Err(errno) = ring.wait(MOUNT_QUEUE_WAIT, &mut arrived) {
            tracing::error!("the ring of a mount failed: {errno}; it is unmounted");
            return;
        }
        mailbox.wake();
        for request in arrived.drain(..) {
            answer(view, mailbox, request);
        }
    }
}

/// Answers a request, now or later.
fn answer(view: &View, mailbox: &Arc<Mailbox>, request: FuseRequest) {
    let call = wire::parse(&request.head, &request.arguments);
    // The answer overwrites the name.
    let mut name = [0; NAME_BYTES_MAX];
    let typed = wire::name(request.payload());
    // A longer name matches nothing.
    let length = Some(typed.len()).filter(|length| *length <= NAME_BYTES_MAX);
    if let (Some(Call::LookUp { .. }), Some(length)) = (&call, length) {
        name[..length].copy_from_slice(typed);
    }
    let reply = RingReply::new(mailbox, request);
    match call {
        Some(Call::LookUp { parent }) => match length {
            Some(length) => view.look_up(parent, &name[..length], NameReply::Ring(reply)),
            None => reply.error(Errno::ENOENT),
        },
        Some(Call::Attributes { inode }) => match view.attributes(inode) {
            Some(known) => reply
                .write(|bytes| Writer::new(bytes).known(&wire_attributes(&known), MOUNT_NAMES_TTL)),
            None => reply.error(Errno::ESTALE),
        },
        Some(Call::Open { inode, flags }) => {
            view.open_file(inode, OpenFlags(flags), OpenReply::Ring(reply));
        }
        Some(Call::Read { handle, offset, length, has_owner }) => {
            let reply = ReadReply::Ring(reply);
            view.read_file(FileHandle(handle), (offset, length), has_owner, reply);
        }
        Some(Call::Release { inode, handle }) => {
            view.close_file(inode, FileHandle(handle));
            reply.write(|_| 0);
        }
        Some(Call::OpenFolder { inode }) => view.open_folder(inode, OpenReply::Ring(reply)),
        Some(Call::ReadFolder { inode, offset, length, has_attributes }) => {
            reply.try_write(|bytes| {
                let length = bytes.len().min(length as usize);
                let mut listing = DirEntries::new(&mut bytes[..length]);
                view.list(inode, offset, |known, valid, next, name| {
                    let valid = has_attributes.then_some(valid);
                    listing.add(&wire_attributes(known), next, name.as_bytes(), valid)
                })?;
                Ok(listing.length())
            });
        }
        Some(Call::ReleaseFolder) => reply.write(|_| 0),
        Some(Call::FileSystem) => {
            reply.write(|bytes| Writer::new(bytes).file_system(&view.file_system()));
        }
        Some(Call::Other) => reply.error(Errno::ENOSYS),
        None => reply.error(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_an_entry_and_those_that_work_have_most() {
        let divided = divide(&[0, 1, 2, 3], &[0, 1], 8..=100, 2).expect("room");
        let count =
            |thread: usize, queue| divided[thread].iter().filter(|of| **of == queue).count();
        let most = MOUNT_QUEUE_ENTRIES_MAX;
        let counts = [count(0, 0), count(0, 2), count(1, 1), count(1, 3)];
        assert_eq!(counts, [most, 1, most, 1]);
        assert_eq!(divided[0].len() + divided[1].len(), 2 * most + 2);
        let few = divide(&[0, 1], &[0, 1], 8..=16, 8).expect("room");
        assert_eq!(few, [vec![0; 8], vec![1; 8]]);
        let none = divide(&[0, 1], &[0, 1], 8..=15, 2);
        assert_eq!(none, Err("there is not enough memory for its queues".to_owned()));
        assert!(divide(&[0, 2], &[0, 2], 8..=100, 2).is_err(), "there is no queue of the number 2");
    }
}
