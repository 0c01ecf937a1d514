//! Requests of a FUSE mount over io_uring (Linux 6.14, Documentation/filesystems/fuse-io-uring.rst;
//! the layouts are those of include/uapi/linux/fuse.h).
//!
//! The kernel has a queue for each processor. An entry of a queue is memory that a request comes
//! into, and that its answer is read from: one call gives the answer and waits for the next
//! request. A [`FuseRequest`] is such an entry in this program's hands, with its memory; while the
//! kernel has it the ring holds that memory.

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
/// Where the arguments of the operation begin, and what the ring says of the entry.
const OPERATION_AT: usize = PART_BYTES;
const ENTRY_AT: usize = OPERATION_AT + PART_BYTES;
/// Within `struct fuse_uring_ent_in_out`.
const COMMIT_AT: usize = ENTRY_AT + 8;
const PAYLOAD_LENGTH_AT: usize = ENTRY_AT + 16;
/// A header in the pool of headers.
const HEADER_SLOT_BYTES: u32 = 512;

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;

/// Marks the completion of the poll that wakes the thread.
const BELL_DATA: u64 = u64::MAX;

/// How commands end when the connection does.
const ENDED: [rustix::io::Errno; 3] =
    [rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED, rustix::io::Errno::CANCELED];

/// Where the length is in `struct io_uring_sqe`.
const SQE_LENGTH_AT: usize = 24;
const _: () = assert!(size_of::<squeue::Entry128>() == 128, "the kernel's layout");

/// The kernel wants no shorter payload, in bytes (`FUSE_MIN_READ_BUFFER`).
pub const FUSE_PAYLOAD_BYTES_MIN: u32 = 8192;

/// Length of `struct fuse_in_header`.
pub const HEAD_BYTES: usize = 40;
/// Bytes of an operation's arguments that are looked at: no operation of a reader has more.
pub const ARGUMENTS_BYTES: usize = 64;

/// A request of the kernel, and the memory of its answer.
#[derive(Debug)]
pub struct FuseRequest {
    entry: u32,
    /// `struct fuse_in_header`.
    pub head: [u8; HEAD_BYTES],
    /// The operation's own arguments, zeros behind them.
    pub arguments: [u8; ARGUMENTS_BYTES],
    payload: Slot,
    /// Bytes of the payload that are the request's.
    length: usize,
}

/// What the kernel is answered.
#[derive(Debug)]
pub struct FuseAnswer {
    entry: u32,
    payload: Slot,
    result: Result<usize, Errno>,
}

impl FuseRequest {
    /// What comes behind the arguments, names for example.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload[..self.length]
    }

    /// The memory of the answer, in which the payload is, too.
    pub fn memory(&mut self) -> &mut [u8] {
        &mut self.payload
    }

    /// Ends it with so many bytes of its payload, or with an error.
    #[must_use]
    pub fn answer(self, result: Result<usize, Errno>) -> FuseAnswer {
        let result = result.map(|length| length.min(self.payload.len()));
        FuseAnswer { entry: self.entry, payload: self.payload, result }
    }
}

/// What the kernel has of an entry, or would have.
struct Entry {
    queue: u16,
    header: Slot,
    /// While the kernel has it.
    payload: Option<Slot>,
    /// Of the request that it has brought.
    unique: [u8; 8],
    commit: [u8; 8],
}

/// The entries that one thread serves, of one queue or of several.
pub struct FuseRing {
    ring: ManuallyDrop<IoUring<squeue::Entry128, cqueue::Entry>>,
    device: Arc<OwnedFd>,
    bell: Handle,
    entries: Vec<Entry>,
    /// Entries that the kernel has.
    in_kernel: usize,
    /// Entries that it takes no more.
    ended: usize,
    is_polling: bool,
}

impl std::fmt::Debug for FuseRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FuseRing").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

/// A ring with the long submissions that FUSE's commands need, for the calling thread.
pub struct EmptyRing(IoUring<squeue::Entry128, cqueue::Entry>);

impl std::fmt::Debug for EmptyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EmptyRing")
    }
}

impl EmptyRing {
    /// Sets up a ring for so many entries.
    ///
    /// # Errors
    /// What io_uring_setup(2) says.
    pub fn new(entries: u32) -> Result<Self, Errno> {
        // One more: the poll of the bell.
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all().dontfork();
        builder.build((entries + 1).next_power_of_two()).map(Self).map_err(Into::into)
    }
}

/// Memory of entries.
#[derive(Debug, Clone)]
pub struct Memory {
    headers: Pool,
    payloads: Pool,
}

impl Memory {
    /// For so many entries, with payloads of at least so many bytes.
    ///
    /// # Errors
    /// What mmap(2) says.
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
    /// Has the kernel take entries, one for each number of a queue, of the connection of this
    /// device. The bell wakes [`Self::wait`].
    ///
    /// # Errors
    /// What the kernel says when it does not take one of them. Then nobody may wait for anything of
    /// this connection: whether it goes on with the device depends on the reason.
    pub fn register(
        empty: EmptyRing,
        device: Arc<OwnedFd>,
        bell: Handle,
        queues: &[u16],
        memory: &Memory,
    ) -> Result<Self, Errno> {
        let mut made = Self {
            ring: ManuallyDrop::new(empty.0),
            device,
            bell,
            entries: Vec::with_capacity(queues.len()),
            in_kernel: 0,
            ended: 0,
            is_polling: false,
        };
        // The kernel reads them when they are submitted.
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
            made.entries.push(Entry {
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
        // Requests come when they are waited for; what is there already was refused.
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

    /// Whether the kernel has ended the connection, and given everything back.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended == self.entries.len()
    }

    /// Hands the kernel an answer with the next [`Self::wait`], and the memory of the request for
    /// the next one.
    pub fn answer(&mut self, answer: FuseAnswer) {
        let FuseAnswer { entry: number, payload, result } = answer;
        let entry = &mut self.entries[number as usize];
        let (error, length) = match result {
            Ok(length) => (0, u32::try_from(length).expect("a slot is short")),
            Err(errno) => (-errno.number(), 0),
        };
        // struct fuse_out_header: length, error, unique. The length is not looked at here.
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

    /// Submits what is to be submitted, and waits for requests, or for the bell, at most so long.
    ///
    /// # Errors
    /// What io_uring_enter(2) says, but for interruptions.
    pub fn wait(
        &mut self,
        at_most: std::time::Duration,
        arrived: &mut Vec<FuseRequest>,
    ) -> Result<(), Errno> {
        if !self.is_polling
            && let Handle::Descriptor(bell) = &self.bell
        {
            let poll = opcode::PollAdd::new(Fd(bell.as_fd().as_raw_fd()), libc::POLLIN as u32)
                .build()
                .user_data(BELL_DATA);
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
            if completion.user_data() == BELL_DATA {
                self.is_polling = false;
                super::descriptor::lower(&self.bell);
                continue;
            }
            let number = u32::try_from(completion.user_data()).expect("a number of an entry");
            self.in_kernel -= 1;
            let entry = &mut self.entries[number as usize];
            let payload = entry.payload.take().expect("the kernel had it");
            // It does not come back where the kernel has ended the connection. For anything else
            // its request would wait for ever, so the ring is over.
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
                head: header[..HEAD_BYTES].try_into().expect("so many bytes"),
                arguments: header[OPERATION_AT..OPERATION_AT + ARGUMENTS_BYTES]
                    .try_into()
                    .expect("so many bytes"),
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
            // The queue has room for every entry and the bell: so it was not submitted yet.
            let _ = self.ring.submit();
        }
    }
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        drop(unsafe { ManuallyDrop::take(&mut self.ring) });
        if self.in_kernel > 0 {
            // The kernel may be about to fill them. It is the end of the mount, or of the process.
            forget(std::mem::take(&mut self.entries));
        }
    }
}

/// `struct fuse_uring_cmd_req`: flags, the number of the request, the queue.
fn command(queue: u16, commit: [u8; 8]) -> [u8; 80] {
    let mut command = [0; 80];
    command[8..16].copy_from_slice(&commit);
    command[16..18].copy_from_slice(&queue.to_ne_bytes());
    command
}

/// Sets the number of vectors, for which the library has no word.
fn set_length(submission: &mut squeue::Entry128, length: u32) {
    let at = std::ptr::from_mut(submission).cast::<u8>();
    // SAFETY: it is as long as the kernel's structure (checked above), so the place is within it.
    let at = unsafe { at.add(SQE_LENGTH_AT) }.cast::<u32>();
    // SAFETY: the submission is laid out as the kernel's structure (repr(C) around it), so these 4
    // bytes are its length, borrowed here alone; any value is one of an integer.
    unsafe { at.write_unaligned(length) };
}

/// A file that the kernel reads itself in place of a file of the mount (FUSE passthrough).
#[derive(Debug)]
pub struct Backing {
    device: Arc<OwnedFd>,
    id: u32,
}

impl Backing {
    /// One that the kernel has under this number, of this connection, which takes it over.
    #[must_use]
    pub const fn of(device: Arc<OwnedFd>, id: u32) -> Self {
        Self { device, id }
    }

    /// Its number.
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
