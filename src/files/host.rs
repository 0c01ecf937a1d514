//! The operating system as a worker sees it, besides the ring: clock, random numbers, sockets, and
//! jobs at the destination's file system. Tests substitute a simulated one.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno as Named;

use crate::error::{Error, ErrorKind, ErrorReason};
use crate::files::file_download::FileDownload;
use crate::link::failure::Failure;
use crate::link::object::ObjectRef;
use crate::s3::ByteRange;
use crate::s3::answer::ServerError;
use crate::s3::redirect::Elsewhere;
use crate::sys::tcp_memory::TcpMemory;
use crate::sys::usage::ProcessorTime;
use crate::sys::{Errno, Handle, Slot, descriptor};

/// The operating system of a worker.
pub trait Host {
    /// Monotonic time in microseconds since the run began.
    fn now_us(&mut self) -> u64;

    /// Processor time of the calling thread; zero in a simulation.
    fn processor_time(&self) -> ProcessorTime {
        ProcessorTime::default()
    }

    /// A random number, for jitter and names.
    fn random(&mut self) -> u64;

    /// The interface that the next socket is bound to, if the user named any.
    fn next_interface(&self) -> Option<Arc<str>> {
        None
    }

    /// Creates a socket for this address.
    ///
    /// # Errors
    /// The error of socket(2).
    fn socket(&mut self, address: &SocketAddr) -> Result<Handle, Errno>;

    /// Wakes receives on a socket only once `bytes` have arrived; a hint that may be ignored.
    fn set_low_water(&mut self, socket: &Handle, bytes: u32);

    /// Packets received out of order on a connected socket ([`descriptor`]).
    fn out_of_order_packets(&mut self, socket: &Handle) -> Option<u32> {
        descriptor::out_of_order_packets(socket)
    }

    /// Switches O_NONBLOCK on a connected socket. Operations of a ring need a blocking socket.
    ///
    /// # Errors
    /// The error of fcntl(2).
    fn set_nonblocking(&mut self, socket: &Handle, is_on: bool) -> Result<(), Errno> {
        descriptor::set_nonblocking(socket, is_on)
    }

    /// Reads from a non-blocking socket (read(2)). 0 is the end of the stream.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the socket is empty, or the error of the connection.
    fn receive(&mut self, socket: &Handle, into: &mut [u8]) -> Result<usize, Errno> {
        descriptor::read(socket, into)
    }

    /// Writes into a pipe without blocking (write(2)).
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the pipe is full, [`Errno::PIPE`] if it has no reader.
    fn write_pipe(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        descriptor::write_pipe(pipe, bytes)
    }

    /// Moves bytes from a socket or a pipe into a pipe without copying them to user memory and
    /// without blocking (splice(2)). 0 is the end of the stream.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the source is empty or the pipe full, [`Errno::PIPE`] if it has no
    /// reader.
    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno> {
        descriptor::splice(from, to, length)
    }

    /// Unread bytes in a pipe (FIONREAD).
    ///
    /// # Errors
    /// The error of ioctl(2).
    fn unread(&mut self, pipe: &Handle) -> Result<u64, Errno> {
        descriptor::unread(pipe)
    }

    /// Writes a signed request for an object or a range of it into `out`; returns its length. Where
    /// a redirect led `elsewhere`, the request is for that URL, and not signed.
    ///
    /// # Errors
    /// If it does not fit, or there are no credentials.
    fn write_request(
        &mut self,
        out: &mut [u8],
        object: &ObjectRef,
        elsewhere: Option<&Elsewhere>,
        range: Option<ByteRange>,
        headers: OptionalHeaders,
    ) -> Result<u32, Error>;

    /// Version of the keys that sign for this object now; constant if keys never change.
    fn keys_version(&self, _object: &ObjectRef) -> u64 {
        0
    }

    /// How long to wait after a failed attempt, in microseconds: full jitter below this ceiling,
    /// which is not 0.
    fn backoff_us(&mut self, ceiling_us: u64) -> u64 {
        self.random() % ceiling_us
    }

    /// Called several times a second while requests are in flight.
    fn watch_machine(&mut self) {}

    /// Records that a server accepted a request signed with this version of the keys.
    fn note_accepted(&mut self, _object: &ObjectRef, _keys_version: u64) {}

    /// True if newer keys may help against the refusal of a request signed with this version.
    fn wants_newer_keys(&self, _: &ObjectRef, refusal: &ServerError, _keys_version: u64) -> bool {
        refusal.failure() == Failure::ExpiredToken
    }

    /// Where the keys come from, and what is known of newer ones, in words; may be empty.
    fn keys_outlook(&self, _object: &ObjectRef) -> String {
        String::new()
    }

    /// Handles a server's objection to a request; false if a retry would fail again.
    fn on_objection(&mut self, _object: &ObjectRef, _objection: Objection) -> bool {
        true
    }
}

/// Request headers that some servers reject and others need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalHeaders {
    /// `If-Match` with the object's ETag, which is known then.
    pub if_match: bool,
    /// `Accept-Encoding: gzip, identity`.
    pub accept_gzip: bool,
    /// `x-amz-checksum-mode`, in a request for the whole object.
    pub with_checksum: bool,
}

/// A server's objection to a request although the key is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objection {
    /// The session token of this version of the keys has expired.
    Expired {
        /// As returned by [`Host::keys_version`].
        keys_version: u64,
    },
    /// The clocks differ; the server's time, if it sent it.
    Clock(Option<SystemTime>),
}

impl Objection {
    /// The objection in the answer to a request signed with this version of the keys.
    #[must_use]
    pub fn of(failure: Failure, error: Option<&ServerError>, keys_version: u64) -> Option<Self> {
        match failure {
            Failure::ExpiredToken => Some(Self::Expired { keys_version }),
            Failure::ClockSkew => Some(Self::Clock(error.and_then(ServerError::server_clock))),
            _ => None,
        }
    }
}

/// The operating system of a worker that writes files: it takes jobs and returns their results. The
/// worker never waits for a job, so a slow destination delays its own objects only.
pub trait FileHost: Host {
    /// Starts a job. If calls are fast it may run at once; otherwise a helper thread runs it, and
    /// raises the worker's event counter at its end. A worker submits jobs whose order matters one
    /// after the other.
    fn begin(&mut self, task: FileTask);

    /// Takes the result of a job that has ended; in no order.
    fn finished(&mut self) -> Option<FileDone>;

    /// Takes back the small object of a job that has not begun; it returns no result then. A
    /// stopped run does not write queued objects.
    fn recall(&mut self) -> Option<FileTask> {
        None
    }

    /// Called with each piece that is delivered to the sink, before it is processed. Simulations
    /// check here that no byte is delivered twice.
    fn delivered(&mut self, _download: &FileDownload, _offset: u64, _length: u32) {}
}

/// Work at the destination's file system, for one object.
#[derive(Debug)]
pub enum FileJob {
    /// Creates the folder of a key that ends in `/`, and its parents.
    MakeFolder,
    /// Writes an object's whole file and names it; removes it on failure. Without a piece the file
    /// is empty.
    WriteWhole(Option<SlotBytes>),
    /// Creates a large object's file, unnamed or under a temporary name in its folder, and
    /// allocates its blocks, unless another worker has. Removes it on failure.
    Create,
    /// Records for a later run how many bytes at the start of a range are written; `None`: all of
    /// them.
    Note {
        /// Index of the range in its object.
        index: u64,
        /// Bytes written at its start.
        prefix_bytes: Option<u64>,
    },
    /// Truncates a written file to its size and names it. On failure removes it, unless a later run
    /// can resume it once there is room again.
    Publish,
    /// Closes a file that this run will not complete; removes it unless a later run can resume it.
    Abandon,
}

impl FileJob {
    /// True if its duration indicates how long it takes to create a file here. A note is appended
    /// to an open file and is fast even where creating files is slow.
    #[must_use]
    pub fn indicates_pace(&self) -> bool {
        !matches!(self, Self::Note { .. } | Self::Abandon)
    }
}

/// A job and its object.
#[derive(Debug)]
pub struct FileTask {
    /// Chosen by the worker; returned with the result.
    pub token: u64,
    /// The object.
    pub download: Arc<FileDownload>,
    /// The work.
    pub job: FileJob,
}

/// Bytes in a slot, owned by a job until it has ended.
#[derive(Debug)]
pub struct SlotBytes {
    /// The slot.
    pub slot: Slot,
    /// Offset of the first byte in the slot.
    pub at: u32,
    /// Number of bytes.
    pub length: u32,
}

impl SlotBytes {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.slot[self.at as usize..][..self.length as usize]
    }
}

/// A job that has ended.
#[derive(Debug)]
pub struct FileDone {
    /// The job, with its slot.
    pub task: FileTask,
    /// True if it created something (another worker may have created the file), or the file
    /// system's error.
    pub outcome: Result<bool, FileError>,
    /// Duration of its calls in microseconds.
    pub took_us: u64,
}

/// A pipe from a worker to a feeder, which holds prefetched bytes until their turn.
#[derive(Debug, Clone)]
pub struct PrivatePipe {
    /// Write end.
    pub writer: Handle,
    /// Read end.
    pub reader: Handle,
    /// Capacity in bytes; the kernel may refuse writes earlier.
    pub capacity_bytes: u64,
}

/// The operating system of a feeder: non-blocking calls, and the FIFOs that readers open.
pub trait PipeHost {
    /// Monotonic time in microseconds since the run began.
    fn now_us(&mut self) -> u64;

    /// Moves bytes from one pipe into another without copying or blocking (splice(2)). 0 is the end
    /// of the stream.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the source is empty or the target full, [`Errno::PIPE`] if it has no
    /// reader.
    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno>;

    /// Writes into a pipe without blocking; returns how many bytes it took.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the pipe is full, [`Errno::PIPE`] if it has no reader.
    fn write_pipe(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno>;

    /// Reads from a pipe of our own without blocking; returns how many bytes.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the pipe is empty.
    fn read_pipe(&mut self, pipe: &Handle, into: &mut [u8]) -> Result<usize, Errno> {
        descriptor::read(pipe, into)
    }

    /// Creates a pipe of our own, as large as the kernel allows up to `wish_bytes`.
    ///
    /// # Errors
    /// EMFILE and ENFILE if descriptors run out.
    fn private_pipe(&mut self, wish_bytes: u64) -> Result<PrivatePipe, Errno>;

    /// Creates the FIFO of an epoch, so that a reader can open it.
    ///
    /// # Errors
    /// The file system's error.
    fn offer(&mut self, epoch: u64) -> Result<(), Error>;

    /// Opens an epoch's FIFO for writing; `None` if it has no reader yet.
    ///
    /// # Errors
    /// The file system's error, or if another file has taken its place.
    fn open(&mut self, epoch: u64) -> Result<Option<Handle>, Error>;

    /// Waits for a reader after [`Self::open`] found none. Returns an event counter that is raised
    /// when the FIFO can be opened; `None` if the caller must poll.
    fn await_reader(&mut self, _epoch: u64) -> Option<Handle> {
        None
    }

    /// Memory of the machine's TCP buffers (tcp_mem, see tcp(7)); `None` if unknown.
    fn tcp_memory(&mut self) -> Option<TcpMemory>;

    /// Unread bytes in a pipe.
    ///
    /// # Errors
    /// The error of ioctl(2).
    fn unread(&mut self, pipe: &Handle) -> Result<u64, Errno>;

    /// Writes the completion marker of an epoch whose reader got all of it.
    ///
    /// # Errors
    /// The file system's error.
    fn mark(&mut self, whole: WholeEpoch) -> Result<(), Error>;

    /// Removes an epoch's completion marker, also one of an earlier run.
    ///
    /// # Errors
    /// The file system's error.
    fn unmark(&mut self, epoch: u64) -> Result<(), Error>;

    /// Removes an epoch's FIFO, so that no later reader opens it. A reader that is waiting for its
    /// writer sees the end of the stream.
    fn withdraw(&mut self, epoch: u64);

    /// Like [`Self::withdraw`], but a reader that is waiting sees no end while the returned handle
    /// is open. `None` if no reader waits.
    fn retire(&mut self, epoch: u64) -> Option<Handle>;

    /// Waits at most `wait_us` until the reader of one of these FIFOs has closed it, or `counter`
    /// is raised; lowers that, and drops the outlets of readers that have closed.
    fn wait_left(&mut self, outlets: &mut Vec<Handle>, counter: &Handle, wait_us: u64);
}

/// An epoch that its reader got whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeEpoch {
    /// Number, from 0.
    pub epoch: u64,
    /// Its objects.
    pub objects: u64,
    /// Bytes of its objects.
    pub bytes: u64,
}

/// Step of a [`FileError`] about a folder; it is the same for all objects below that folder.
pub const FOLDER_REFUSES: &str = "use folder";

/// Step of a [`FileError`] for want of an inode: ENOSPC, whatever space there is.
pub const NO_INODE: &str = "no free inode for";

/// A file system call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// What was tried: "create", "write", "rename".
    pub step: &'static str,
    /// The path for messages: below the destination as it was typed.
    pub path: String,
    /// The kernel's error.
    pub errno: Errno,
    /// What it is due to, if that is known: of EPERM.
    pub protection: Option<Protection>,
}

/// What keeps a name from being created, replaced or removed whatever its mode permits: the kernel
/// answers EPERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Nothing in the folder may change.
    ImmutableFolder,
    /// Names may only be added to the folder.
    AppendOnlyFolder,
    /// The file that has the name may not change.
    ImmutableFile,
    /// The file that has the name may only grow.
    AppendOnlyFile,
    /// The file that has the name is another user's, and so is the folder.
    Sticky,
}

impl Protection {
    /// The cause in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::ImmutableFolder => "the folder is immutable (chattr +i)",
            Self::AppendOnlyFolder => "the folder is append-only (chattr +a)",
            Self::ImmutableFile => "the file is immutable (chattr +i)",
            Self::AppendOnlyFile => "the file is append-only (chattr +a)",
            Self::Sticky => "the file is another user's, in a sticky folder (chmod +t)",
        }
    }

    /// The cause, as the end of a message.
    #[must_use]
    pub fn suffix(self) -> String {
        format!(": {}", self.words())
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Sticky => "let its owner remove it, or choose another destination",
            _ => "see lsattr and chattr, or choose another destination",
        }
    }
}

impl FileError {
    /// An error of the kernel whose cause is not known.
    #[must_use]
    pub fn new(step: &'static str, path: String, errno: impl Into<Errno>) -> Self {
        Self { step, path, errno: errno.into(), protection: None }
    }

    /// True if every other object would fail at this destination, too; a run with one destination
    /// ends.
    #[must_use]
    pub fn ends_run(&self) -> bool {
        matches!(self.errno.named(), Named::NOSPC | Named::IO | Named::DQUOT | Named::ROFS)
    }

    fn advice(&self) -> &'static str {
        if let Some(protection) = self.protection {
            return protection.advice();
        }
        match self.errno.named() {
            Named::INVAL if self.step == "write" => {
                "its O_DIRECT alignment may be over 4,096 bytes; choose another destination"
            }
            Named::NOSPC if self.step == NO_INODE => {
                "remove files there, or choose a file system with free inodes (df -i)"
            }
            Named::NOSPC | Named::DQUOT => "free space at the destination and run it again",
            Named::ROFS => "the file system is read-only; choose a writable destination",
            Named::ACCESS => "choose a writable destination",
            Named::NAMETOOLONG => "this file system cannot hold the name; exclude the key",
            Named::EXIST | Named::NOTDIR | Named::ISDIR => {
                "a file and a folder need the same name; remove one or exclude the key"
            }
            Named::LOOP => {
                "replace it by a folder, mount the other disk there (mount --bind), or give the \
                 folder that it leads to as DEST"
            }
            Named::XDEV => "the path contains a symbolic link; remove it",
            Named::FBIG => "raise the limit of file size (ulimit -f)",
            _ => "check the file system of the destination",
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno.named() {
            Named::LOOP => write!(
                f,
                "{} {}: it is a symbolic link, which inrush does not follow below DEST",
                self.step, self.path
            ),
            _ => write!(f, "{} {}: {}", self.step, self.path, self.errno),
        }?;
        self.protection.map_or(Ok(()), |protection| f.write_str(&protection.suffix()))
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        let advice = error.advice();
        let reason = match error.errno.named() {
            Named::NOSPC | Named::DQUOT => ErrorReason::NoSpace,
            _ => ErrorReason::LocalIo,
        };
        Self::new(ErrorKind::Destination, error.to_string())
            .because(reason)
            .advise(advice)
            .of_call(Some(error.errno.named().raw_os_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_direct_write_names_its_alignment() {
        let error = |step| FileError::new(step, "p".to_owned(), Errno::INVALID);
        assert!(error("write").advice().contains("O_DIRECT alignment"));
        assert!(!error("name").advice().contains("O_DIRECT"));
    }
}
