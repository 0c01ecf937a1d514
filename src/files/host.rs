//! What a worker asks of its machine besides the ring: the time, chance, sockets, and jobs at the
//! destination's file system. Tests put a simulated machine in its place.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno as Named;

use crate::error::{Error, ErrorKind, ErrorReason};
use crate::files::transfer::Transfer;
use crate::link::failure::Failure;
use crate::s3::ByteRange;
use crate::s3::answer::ServerError;
use crate::sys::tcp_memory::TcpMemory;
use crate::sys::usage::ProcessorTime;
use crate::sys::{Errno, Handle, Slot, descriptor};

/// The machine as a worker sees it.
pub trait Host {
    /// Monotonic time in microseconds since the run began.
    fn now_us(&mut self) -> u64;

    /// What the calling thread had of the processors. A machine that is not real has none.
    fn processor_time(&self) -> ProcessorTime {
        ProcessorTime::default()
    }

    /// A random number, for jitter and names.
    fn random(&mut self) -> u64;

    /// The network interface that the next socket is bound to, where the user named some.
    fn next_interface(&self) -> Option<Arc<str>> {
        None
    }

    /// A socket for this address.
    ///
    /// # Errors
    /// What socket(2) says.
    fn socket(&mut self, address: &SocketAddr) -> Result<Handle, Errno>;

    /// Wakes receives on a socket only when so many bytes have come; a hint that may be ignored.
    fn set_low_water(&mut self, socket: &Handle, bytes: u32);

    /// Packets that have come over a connected socket out of order ([`descriptor`]).
    fn out_of_order_packets(&mut self, socket: &Handle) -> Option<u32> {
        descriptor::out_of_order_packets(socket)
    }

    /// Makes calls on a connected socket return at once (O_NONBLOCK), or wait again. Operations of
    /// a ring want a socket that waits.
    ///
    /// # Errors
    /// What fcntl(2) says.
    fn set_nonblocking(&mut self, socket: &Handle, is_on: bool) -> Result<(), Errno> {
        descriptor::set_nonblocking(socket, is_on)
    }

    /// Writes into a pipe without waiting (write(2)).
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there is no room now, [`Errno::PIPE`] when nobody reads.
    fn write_pipe(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        descriptor::write_pipe(pipe, bytes)
    }

    /// Moves bytes out of a socket or a pipe into a pipe without copying them to user memory,
    /// without waiting (splice(2)). 0 is the end of the stream.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there is nothing to take or no room, [`Errno::PIPE`] when nobody
    /// reads.
    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno> {
        descriptor::splice(from, to, length)
    }

    /// Bytes that stand in a pipe (FIONREAD).
    ///
    /// # Errors
    /// What ioctl(2) says.
    fn unread(&mut self, pipe: &Handle) -> Result<u64, Errno> {
        descriptor::unread(pipe)
    }

    /// Writes a signed request for an object or a range of it into `out`; returns its length.
    ///
    /// # Errors
    /// When it does not fit, or credentials are gone.
    fn write_request(
        &mut self,
        out: &mut [u8],
        transfer: &Transfer,
        range: Option<ByteRange>,
        headers: OptionalHeaders,
    ) -> Result<u32, Error>;

    /// The version of the keys that sign for this object now. A machine whose keys never change has
    /// one.
    fn keys_version(&self, _transfer: &Transfer) -> u64 {
        0
    }

    /// How long to wait after a failed attempt, in microseconds: full jitter below this ceiling,
    /// which is not 0.
    fn backoff_us(&mut self, ceiling_us: u64) -> u64 {
        self.random() % ceiling_us
    }

    /// Takes in what a server has against a request; false when asking again is in vain.
    fn on_objection(&mut self, _transfer: &Transfer, _objection: Objection) -> bool {
        true
    }
}

/// Headers of a request that some servers cannot bear, or need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalHeaders {
    /// `If-Match` with the object's ETag, which is known then.
    pub if_match: bool,
    /// `Accept-Encoding: gzip, identity`.
    pub accept_gzip: bool,
}

/// What a server has against a request, though the key is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objection {
    /// The session token of this version of the keys has expired.
    Expired {
        /// As [`Host::keys_version`] gave it.
        keys_version: u64,
    },
    /// The clocks differ; the server's time, where it said it.
    Clock(Option<SystemTime>),
    /// It must not ask for the stored checksum.
    ChecksumMode,
}

impl Objection {
    /// What a failed attempt, signed with this version of the keys, says against its request.
    #[must_use]
    pub fn of(failure: Failure, told: Option<&ServerError>, keys_version: u64) -> Option<Self> {
        match failure {
            Failure::ExpiredToken => Some(Self::Expired { keys_version }),
            Failure::ClockSkew => Some(Self::Clock(told.and_then(ServerError::server_clock))),
            Failure::ChecksumMode => Some(Self::ChecksumMode),
            _ => None,
        }
    }
}

/// The machine of a worker that writes files: jobs in, their ends out. None is waited for, so a
/// destination whose calls take long slows its own objects only.
pub trait FileHost: Host {
    /// Takes a job. Where calls are quick it may be done at once; else it is done aside, beside
    /// others, and the worker's event counter is raised when it has ended. A worker gives the jobs
    /// of one object whose order matters one after the other.
    fn begin(&mut self, task: FileTask);

    /// Takes the end of a job; in no order.
    fn finished(&mut self) -> Option<FileDone>;

    /// Takes back the small object of a job that has not begun: a run that was stopped does not
    /// write what waits. It has no end then.
    fn recall(&mut self) -> Option<FileTask> {
        None
    }

    /// Told of each piece of an object that the sink is given, before anything becomes of it: a
    /// machine that checks its worker sees here that no byte comes twice.
    fn delivered(&mut self, _transfer: &Transfer, _offset: u64, _length: u32) {}
}

/// Work at the destination's file system, for one object.
#[derive(Debug)]
pub enum FileJob {
    /// Makes the folder of a key that ends in `/`, and those above it.
    MakeFolder,
    /// Writes an object's file whole and gives it its name; nothing is left behind when it fails.
    /// Without a piece the file is empty.
    WriteWhole(Option<SlotBytes>),
    /// Makes a large object's file under a temporary name beside its path, or without one, its
    /// blocks allocated, unless another worker has. Nothing is left behind when it fails.
    Create,
    /// Notes for a later run how many bytes stand at the start of a range; `None`: all of them.
    Note {
        /// Number of the range in its object.
        index: u64,
        /// What of it is written.
        prefix_bytes: Option<u64>,
    },
    /// Cuts a written file to its size and gives it its name. When it fails nothing is left behind,
    /// but for what a later run can go on with once there is room again.
    Publish,
    /// Lets go of a file that this run will not complete; removes it unless a later run can go on
    /// with it.
    Abandon,
}

impl FileJob {
    /// Whether its time says how long it takes to make a file here: a note is appended to an open
    /// one, and is quick where nothing else is.
    #[must_use]
    pub fn tells_pace(&self) -> bool {
        !matches!(self, Self::Note { .. } | Self::Abandon)
    }
}

/// A job, and for whom it is.
#[derive(Debug)]
pub struct FileTask {
    /// The worker's own; it comes back with the end.
    pub token: u64,
    /// The object.
    pub transfer: Arc<Transfer>,
    /// What is to be done.
    pub job: FileJob,
}

/// Bytes in a slot, which a job owns until it has ended.
#[derive(Debug)]
pub struct SlotBytes {
    /// The slot.
    pub slot: Slot,
    /// The first byte within it.
    pub at: u32,
    /// How many bytes.
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
    /// Whether it made something: another worker may have made the file. Or what the file system
    /// said.
    pub outcome: Result<bool, FileError>,
    /// How long its calls took, in microseconds.
    pub took_us: u64,
}

/// A pipe between a worker and a feeder: what is prefetched and not in turn yet waits there.
#[derive(Debug, Clone)]
pub struct PrivatePipe {
    /// Where bytes go in.
    pub writer: Handle,
    /// Where they come out.
    pub reader: Handle,
    /// Bytes that it may hold at most; the kernel may be full earlier.
    pub capacity_bytes: u64,
}

/// The machine of a feeder: calls that never wait, and the places where a reader looks.
pub trait PipeHost {
    /// Monotonic time in microseconds since the run began.
    fn now_us(&mut self) -> u64;

    /// Moves bytes from one pipe into another without copying them, without waiting (splice(2)). 0
    /// is the end of the stream.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there is nothing to take or no room, [`Errno::PIPE`] when nobody
    /// reads.
    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno>;

    /// Writes into a pipe, without waiting; returns how many bytes it took.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there is no room, [`Errno::PIPE`] when nobody reads.
    fn write_pipe(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno>;

    /// Reads from a pipe of our own, without waiting; returns how many bytes.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there are none.
    fn read_pipe(&mut self, pipe: &Handle, into: &mut [u8]) -> Result<usize, Errno> {
        descriptor::read_pipe(pipe, into)
    }

    /// A pipe of our own, as large as the kernel lets it be up to `wish_bytes`.
    ///
    /// # Errors
    /// EMFILE and ENFILE when descriptors run out.
    fn private_pipe(&mut self, wish_bytes: u64) -> Result<PrivatePipe, Errno>;

    /// Makes the place for this epoch, so that a reader can open it.
    ///
    /// # Errors
    /// What the file system says.
    fn offer(&mut self, epoch: u64) -> Result<(), Error>;

    /// Opens an offered place for writing; `None` while nobody reads there.
    ///
    /// # Errors
    /// What the file system says, and when something else is in that place now.
    fn open(&mut self, epoch: u64) -> Result<Option<Handle>, Error>;

    /// Waits for the reader of an offered place, where [`Self::open`] has just found none. Returns
    /// a counter that is raised when that place can be opened; `None` where nothing says that, so
    /// it is opened again and again.
    fn await_reader(&mut self, _epoch: u64) -> Option<Handle> {
        None
    }

    /// What the TCP buffers of the machine have of its memory (tcp_mem, see tcp(7)); `None` where
    /// the kernel does not say it.
    fn tcp_memory(&mut self) -> Option<TcpMemory>;

    /// Bytes that stand in a pipe.
    ///
    /// # Errors
    /// What ioctl(2) says.
    fn unread(&mut self, pipe: &Handle) -> Result<u64, Errno>;

    /// Tells the reader's side that it got an epoch whole.
    ///
    /// # Errors
    /// What the file system says.
    fn mark(&mut self, whole: WholeEpoch) -> Result<(), Error>;

    /// Takes away what says that of an epoch, be it of an earlier run.
    ///
    /// # Errors
    /// What the file system says.
    fn unmark(&mut self, epoch: u64) -> Result<(), Error>;

    /// Takes the place of an epoch away, so that no later reader waits there. Who waits there now
    /// sees the end.
    fn withdraw(&mut self, epoch: u64);

    /// The same without the end: who waits there now goes on waiting for as long as what is
    /// returned is open. `None` when nobody does.
    fn retire(&mut self, epoch: u64) -> Option<Handle>;

    /// Waits until nobody reads there any more, at most so long; true when that is so.
    fn wait_left(&mut self, outlet: &Handle, wait_us: u64) -> bool;
}

/// An epoch that its reader got whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeEpoch {
    /// Its number, from 0.
    pub epoch: u64,
    /// How many objects it had.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The step of a [`FileError`] that is about a folder, and alike for all objects below it.
pub const FOLDER_REFUSES: &str = "use folder";

/// A file system call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// What was tried: "create", "write", "rename".
    pub step: &'static str,
    /// On which path, as people know it: below the destination as it was typed.
    pub path: String,
    /// What the kernel said.
    pub errno: Errno,
}

impl FileError {
    /// True when no other object can fare better at this destination: where it is the only one,
    /// the run ends.
    #[must_use]
    pub fn ends_run(&self) -> bool {
        matches!(self.errno.named(), Named::NOSPC | Named::IO | Named::DQUOT | Named::ROFS)
    }

    fn advice(&self) -> &'static str {
        match self.errno.named() {
            Named::INVAL if self.step == "write" => {
                "its O_DIRECT alignment may be over 4,096 bytes; choose another destination"
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
            Named::MFILE => "raise the limit of open files (ulimit -n)",
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
        }
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        let advice = error.advice();
        let reason = match error.errno.named() {
            Named::NOSPC | Named::DQUOT => ErrorReason::NoSpace,
            _ => ErrorReason::LocalIo,
        };
        Self::new(ErrorKind::Destination, error.to_string()).because(reason).advise(advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_direct_write_names_its_alignment() {
        let error = |step| FileError { step, path: "p".to_owned(), errno: Errno::INVALID };
        assert!(error("write").advice().contains("O_DIRECT alignment"));
        assert!(!error("name").advice().contains("O_DIRECT"));
    }
}
