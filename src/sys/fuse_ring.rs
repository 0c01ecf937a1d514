//! FUSE over io_uring (Linux 6.14, Documentation/filesystems/fuse-io-uring.rst; layouts from
//! include/uapi/linux/fuse.h).
//!
//! The kernel has one queue per processor. An entry of a queue is memory for a request and its
//! answer: one command submits the answer and waits for the next request. A [`FuseRequest`] is an
//! entry that this program owns, with its memory; while the kernel owns an entry, the ring holds
//! its memory.

use std::io;
use std::mem::{ManuallyDrop, forget};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::{Errno, Handle, Pool, Region, Slot};

/// `struct fuse_uring_req_header`: three parts.
const HEADER_BYTES: usize = OPERATION_AT + PART_BYTES + 32;
const PART_BYTES: usize = 128;
/// Offsets of the operation's arguments, and of the ring's data about the entry.
const OPERATION_AT: usize = PART_BYTES;
const ENTRY_AT: usize = OPERATION_AT + PART_BYTES;
/// Within `struct fuse_uring_ent_in_out`.
const COMMIT_AT: usize = ENTRY_AT + 8;
const PAYLOAD_LENGTH_AT: usize = ENTRY_AT + 16;
/// Slot length in the pool of headers.
const HEADER_SLOT_BYTES: u32 = 512;

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;

/// User data of the poll that wakes the thread.
const WAKER_DATA: u64 = u64::MAX;

/// Errors of commands when the connection ends.
const ENDED: [rustix::io::Errno; 3] =
    [rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED, rustix::io::Errno::CANCELED];

/// Offset of the length in `struct io_uring_sqe`.
const SQE_LENGTH_AT: usize = 24;
const _: () = assert!(size_of::<squeue::Entry128>() == 128, "the kernel's layout");

/// Shortest payload that the kernel accepts, in bytes (`FUSE_MIN_READ_BUFFER`).
pub const FUSE_PAYLOAD_BYTES_MIN: u32 = 8192;

/// Length of `struct fuse_in_header`.
pub const HEAD_BYTES: usize = 40;
/// Bytes of an operation's arguments that are read: no operation of a read-only mount has more.
pub const ARGUMENTS_BYTES: usize = 64;

/// A request of the kernel, and the memory for its answer.
#[derive(Debug)]
pub struct FuseRequest {
    entry: u32,
    /// `struct fuse_in_header`.
    pub head: [u8; HEAD_BYTES],
    /// The operation's arguments, padded with zeros.
    pub arguments: [u8; ARGUMENTS_BYTES],
    payload: Slot,
    /// Length of the request's payload.
    length: usize,
}

/// The answer to a request.
#[derive(Debug)]
pub struct FuseAnswer {
    entry: u32,
    payload: Slot,
    result: Result<usize, Errno>,
}

impl FuseRequest {
    /// What follows the arguments, such as names.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload[..self.length]
    }

    /// The memory for the answer, which contains the request's payload.
    pub fn memory(&mut self) -> &mut [u8] {
        &mut self.payload
    }

    /// Answers with the first bytes of the memory, or with an error.
    #[must_use]
    pub fn answer(self, result: Result<usize, Errno>) -> FuseAnswer {
        let result = result.map(|length| length.min(self.payload.len()));
        FuseAnswer { entry: self.entry, payload: self.payload, result }
    }
}

/// An entry of a queue.
struct QueueEntry {
    queue: u16,
    header: Slot,
    /// Present while the kernel owns the entry.
    payload: Option<Slot>,
    /// ID of the current request.
    unique: [u8; 8],
    commit: [u8; 8],
}

/// The entries that one thread serves, of one or several queues.
pub struct FuseRing {
    ring: ManuallyDrop<IoUring<squeue::Entry128, cqueue::Entry>>,
    device: Arc<OwnedFd>,
    waker: Handle,
    entries: Vec<QueueEntry>,
    /// Entries that the kernel owns.
    in_kernel: usize,
    /// Entries that the kernel does not accept any more.
    ended: usize,
    is_polling: bool,
}

impl std::fmt::Debug for FuseRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FuseRing").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

/// An io_uring with the 128-byte submissions that FUSE needs, for the calling thread.
pub struct EmptyRing(IoUring<squeue::Entry128, cqueue::Entry>);

impl std::fmt::Debug for EmptyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EmptyRing")
    }
}

impl EmptyRing {
    /// Creates a ring for `entries` entries.
    ///
    /// # Errors
    /// The error of io_uring_setup(2).
    pub fn new(entries: u32) -> Result<Self, Errno> {
        // One more for the poll of the waker.
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all().dontfork();
        builder.build((entries + 1).next_power_of_two()).map(Self).map_err(Into::into)
    }
}

/// Memory for entries.
#[derive(Debug, Clone)]
pub struct Memory {
    headers: Pool,
    payloads: Pool,
}

impl Memory {
    /// For `count` entries with payloads of at least `payload_bytes`.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn new(count: usize, payload_bytes: u32) -> Result<Self, Errno> {
        let page = u32::try_from(rustix::param::page_size()).unwrap_or(FUSE_PAYLOAD_BYTES_MIN);
        let payload_bytes = payload_bytes.max(FUSE_PAYLOAD_BYTES_MIN).next_multiple_of(page);
        let bytes = |length: u32| count * length as usize;
        let lengths = [payload_bytes, HEADER_SLOT_BYTES];
        let region = Region::new(lengths.into_iter().map(bytes).sum())?;
        let pool = |length| Pool::new(region.carve(bytes(length)).expect("it is for both"), length);
        let [payloads, headers] = lengths.map(pool);
        Ok(Self { headers, payloads })
    }
}

impl FuseRing {
    /// Registers entries with the kernel, one for each element of `queues`, for this device's
    /// connection. The waker ends [`Self::wait`].
    ///
    /// # Errors
    /// The kernel's error if it refuses an entry. Then no request may be awaited on this ring;
    /// whether the mount can continue without it depends on the error.
    pub fn register(
        empty: EmptyRing,
        device: Arc<OwnedFd>,
        waker: Handle,
        queues: &[u16],
        memory: &Memory,
    ) -> Result<Self, Errno> {
        let mut made = Self {
            ring: ManuallyDrop::new(empty.0),
            device,
            waker,
            entries: Vec::with_capacity(queues.len()),
            in_kernel: 0,
            ended: 0,
            is_polling: false,
        };
        // The kernel reads the vectors at submission.
        let mut all_vectors = Vec::with_capacity(queues.len());
        for (number, queue) in (0u64..).zip(queues) {
            let mut header = memory.headers.take().ok_or(Errno::INVALID)?;
            let mut payload = memory.payloads.take().ok_or(Errno::INVALID)?;
            let vector = |slot: &mut Slot, length| libc::iovec {
                iov_base: slot.base().cast(),
                iov_len: length,
            };
            let length = payload.len();
            let vectors =
                Box::new([vector(&mut header, HEADER_BYTES), vector(&mut payload, length)]);
            let mut submission = opcode::UringCmd80::new(Fd(made.device.as_raw_fd()), REGISTER)
                .cmd(command(*queue, [0; 8]))
                .addr(Some(vectors.as_ptr() as u64))
                .build()
                .user_data(number);
            set_length(&mut submission, 2);
            made.entries.push(QueueEntry {
                queue: *queue,
                header,
                payload: Some(payload),
                unique: [0; 8],
                commit: [0; 8],
            });
            made.in_kernel += 1;
            made.push(&submission);
            all_vectors.push(vectors);
        }
        while !made.ring.submission().is_empty() {
            made.ring.submit().map_err(Errno::from)?;
        }
        // Requests only complete while they are waited for; an early completion is a refusal.
        let mut refused = None;
        while let Some(completion) = made.ring.completion().next() {
            made.in_kernel -= 1;
            refused = refused.or(Some(Errno::new(-completion.result())));
        }
        match refused {
            Some(errno) => Err(errno),
            None => Ok(made),
        }
    }

    /// True if the kernel has ended the connection and returned all entries.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended == self.entries.len()
    }

    /// Submits an answer with the next [`Self::wait`], and offers the request's memory for the next
    /// request.
    pub fn answer(&mut self, answer: FuseAnswer) {
        let FuseAnswer { entry: number, payload, result } = answer;
        let entry = &mut self.entries[number as usize];
        let (error, length) = match result {
            Ok(length) => (0, u32::try_from(length).expect("a slot is short")),
            Err(errno) => (-errno.number(), 0),
        };
        // struct fuse_out_header: length, error, unique. The kernel ignores the length here.
        entry.header[..4].copy_from_slice(&16u32.to_ne_bytes());
        entry.header[4..8].copy_from_slice(&error.to_ne_bytes());
        entry.header[8..16].copy_from_slice(&entry.unique);
        entry.header[PAYLOAD_LENGTH_AT..PAYLOAD_LENGTH_AT + 4]
            .copy_from_slice(&length.to_ne_bytes());
        entry.payload = Some(payload);
        let submission = opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), COMMIT_AND_FETCH)
            .cmd(command(entry.queue, entry.commit))
            .build()
            .user_data(u64::from(number));
        self.in_kernel += 1;
        self.push(&submission);
    }

    /// Submits pending entries, and waits at most `at_most` for requests or the waker.
    ///
    /// # Errors
    /// The error of io_uring_enter(2), except interruptions.
    pub fn wait(
        &mut self,
        at_most: std::time::Duration,
        arrived: &mut Vec<FuseRequest>,
    ) -> Result<(), Errno> {
        if !self.is_polling
            && let Handle::Descriptor(waker) = &self.waker
        {
            let poll = opcode::PollAdd::new(Fd(waker.as_fd().as_raw_fd()), libc::POLLIN as u32)
                .build()
                .user_data(WAKER_DATA);
            self.push(&poll.into());
            self.is_polling = true;
        }
        let time = Timespec::from(at_most);
        let waits = SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &waits) {
            Ok(_) => {}
            Err(error) => {
                let known = [libc::EINTR, libc::ETIME, libc::EAGAIN, libc::EBUSY];
                if !error.raw_os_error().is_some_and(|code| known.contains(&code)) {
                    return Err(error.into());
                }
            }
        }
        let mut failed = None;
        while let Some(completion) = self.ring.completion().next() {
            if completion.user_data() == WAKER_DATA {
                self.is_polling = false;
                super::descriptor::lower(&self.waker);
                continue;
            }
            let number = u32::try_from(completion.user_data()).expect("a number of an entry");
            self.in_kernel -= 1;
            let entry = &mut self.entries[number as usize];
            let payload = entry.payload.take().expect("the kernel had it");
            // An entry does not return once the kernel has ended the connection. After any other
            // error its request would hang, so the ring fails.
            if completion.result() < 0 {
                let errno = Errno::new(-completion.result());
                if !ENDED.contains(&errno.named()) {
                    failed = Some(errno);
                }
                self.ended += 1;
                continue;
            }
            let header = &entry.header;
            entry.commit = header[COMMIT_AT..COMMIT_AT + 8].try_into().expect("8 bytes");
            entry.unique = header[8..16].try_into().expect("8 bytes");
            let length = header[PAYLOAD_LENGTH_AT..PAYLOAD_LENGTH_AT + 4].try_into();
            let length = u32::from_ne_bytes(length.expect("4 bytes")) as usize;
            arrived.push(FuseRequest {
                entry: number,
                head: header[..HEAD_BYTES].try_into().expect("a fixed length"),
                arguments: header[OPERATION_AT..OPERATION_AT + ARGUMENTS_BYTES]
                    .try_into()
                    .expect("a fixed length"),
                length: length.min(payload.len()),
                payload,
            });
        }
        failed.map_or(Ok(()), Err)
    }

    fn push(&mut self, submission: &squeue::Entry128) {
        // SAFETY: what the submission names stays in place for as long as the kernel may use it:
        // the descriptors are this ring's, `register` keeps the vectors until all is submitted, and
        // header and payload are slots of an entry, which has the payload until its completion;
        // `Drop` forgets them where there was none.
        while unsafe { self.ring.submission().push(submission) }.is_err() {
            // The queue has room for every entry and the poll, so some are not submitted yet.
            let _ = self.ring.submit();
        }
    }
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        drop(unsafe { ManuallyDrop::take(&mut self.ring) });
        if self.in_kernel > 0 {
            // The kernel may still write to them. The mount or the process is about to end.
            forget(std::mem::take(&mut self.entries));
        }
    }
}

/// `struct fuse_uring_cmd_req`: flags, commit ID, queue.
fn command(queue: u16, commit: [u8; 8]) -> [u8; 80] {
    let mut command = [0; 80];
    command[8..16].copy_from_slice(&commit);
    command[16..18].copy_from_slice(&queue.to_ne_bytes());
    command
}

/// Sets the number of vectors, for which the crate has no method.
fn set_length(submission: &mut squeue::Entry128, length: u32) {
    let at = std::ptr::from_mut(submission).cast::<u8>();
    // SAFETY: it is as long as the kernel's structure (checked above), so the place is within it.
    let at = unsafe { at.add(SQE_LENGTH_AT) }.cast::<u32>();
    // SAFETY: the submission is laid out as the kernel's structure (repr(C) around it), so these 4
    // bytes are its length, borrowed here alone; any value is one of an integer.
    unsafe { at.write_unaligned(length) };
}

/// A file that the kernel reads directly in place of a file of the mount (FUSE passthrough).
#[derive(Debug)]
pub struct Backing {
    device: Arc<OwnedFd>,
    id: u32,
}

impl Backing {
    /// Takes over the backing file that the kernel registered under this ID for the connection.
    #[must_use]
    pub const fn of(device: Arc<OwnedFd>, id: u32) -> Self {
        Self { device, id }
    }

    /// Its ID.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        /// `FUSE_DEV_IOC_BACKING_CLOSE`.
        const CLOSE: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<u32>(229, 2);
        // SAFETY: the call reads the 4 bytes at the pointer, which it has borrowed; the descriptor
        // is open.
        let closed =
            unsafe { libc::ioctl(self.device.as_raw_fd(), CLOSE.into(), &raw const self.id) };
        if closed < 0 {
            tracing::info!("close a file that is passed through: {}", io::Error::last_os_error());
        }
    }
}
