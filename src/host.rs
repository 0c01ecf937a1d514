//! What a worker asks of its machine besides the ring: the time, chance, sockets, and the calls
//! that are faster made directly. Tests put a simulated machine in its place.

use std::fmt;
use std::net::SocketAddr;

use crate::error::{Error, ErrorKind};
use crate::s3::ByteRange;
use crate::sink::file::OpenFile;
use crate::sys::{Errno, Handle};
use crate::transfer::Transfer;

/// The machine as a worker sees it.
pub trait Host {
    /// Monotonic time in microseconds since the run began.
    fn now_us(&mut self) -> u64;

    /// A random number, for jitter and names.
    fn random(&mut self) -> u64;

    /// A socket for this address.
    ///
    /// # Errors
    /// What socket(2) says.
    fn socket(&mut self, address: &SocketAddr) -> Result<Handle, Errno>;

    /// Wakes receives on a socket only when so many bytes have come; a hint that may be ignored.
    fn set_low_water(&mut self, socket: &Handle, bytes: u32);

    /// Writes a signed request for an object or a range of it into `out`; returns its length.
    ///
    /// # Errors
    /// When it does not fit, or credentials are gone.
    fn write_request(
        &mut self,
        out: &mut [u8],
        transfer: &Transfer,
        range: Option<ByteRange>,
    ) -> Result<u32, Error>;
}

/// The machine of a worker that writes files.
pub trait FileHost: Host {
    /// Makes a folder and those above it.
    ///
    /// # Errors
    /// What the file system says.
    fn make_folder(&mut self, path: &str) -> Result<(), FileError>;

    /// Writes a small file whole and gives it its name.
    ///
    /// # Errors
    /// What the file system says; then nothing is left behind.
    fn write_whole(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError>;

    /// Makes a file of `size_bytes` under a temporary name beside `path`, its blocks allocated.
    ///
    /// # Errors
    /// What the file system says; then nothing is left behind.
    fn create(&mut self, path: &str, size_bytes: u64) -> Result<OpenFile, FileError>;

    /// Cuts a written file to its size and gives it its name.
    ///
    /// # Errors
    /// What the file system says; then nothing is left behind.
    fn publish(&mut self, file: &OpenFile, size_bytes: u64) -> Result<(), FileError>;

    /// Removes a file that will not be completed.
    fn abandon(&mut self, file: &OpenFile);
}

/// A file system call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// What was tried: "create", "write", "rename".
    pub step: &'static str,
    /// On which path below the destination.
    pub path: String,
    /// What the kernel said.
    pub errno: Errno,
}

const EXIST: i32 = 17;
const NOT_DIRECTORY: i32 = 20;
const IS_DIRECTORY: i32 = 21;
const TOO_MANY_FILES: i32 = 24;
const FILE_TOO_LARGE: i32 = 27;
const READ_ONLY: i32 = 30;
const NAME_TOO_LONG: i32 = 36;
const LOOP: i32 = 40;
const CROSS_DEVICE: i32 = 18;
const QUOTA: i32 = 122;
const ACCESS: i32 = 13;

impl FileError {
    /// True when no other object can fare better: the run ends.
    #[must_use]
    pub fn ends_run(&self) -> bool {
        matches!(self.errno, Errno::NO_SPACE | Errno::IO)
            || matches!(self.errno.number(), QUOTA | READ_ONLY)
    }

    fn advice(&self) -> &'static str {
        match self.errno.number() {
            28 | QUOTA => "free space at the destination and run it again",
            READ_ONLY | ACCESS => "choose a destination that can be written",
            NAME_TOO_LONG => "this file system cannot hold the name; exclude the key",
            EXIST | NOT_DIRECTORY | IS_DIRECTORY => {
                "a file and a folder want the same name; remove one or exclude the key"
            }
            LOOP | CROSS_DEVICE => "a symbolic link stands in the path; remove it",
            TOO_MANY_FILES => "raise the limit of open files (ulimit -n)",
            FILE_TOO_LARGE => "raise the limit of file size (ulimit -f)",
            _ => "see the destination's file system",
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.step, self.path, self.errno)
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        let advice = error.advice();
        Self::new(ErrorKind::Destination, error.to_string()).advise(advice)
    }
}
