//! Files as memory: the only place of this crate that needs `unsafe`.
//!
//! Not here: which files are objects, and how long a mapping is kept (`store.rs`).

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;

/// Maps the whole file for reading, if it still has the length the listing promised.
#[expect(unsafe_code, reason = "memmap2 cannot promise that nobody changes the file")]
pub(crate) fn map_file(path: &Path, length_bytes: u64) -> io::Result<Bytes> {
    let file = File::open(path)?;
    if file.metadata()?.len() != length_bytes {
        return Err(io::Error::other("the file's length changed since the origin started"));
    }
    if length_bytes == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: `Mmap::map` requires that the file is not modified or truncated while it is mapped.
    // This process opens it for reading only; that nobody else writes below --root while the
    // origin runs is asked of the user in `--help` and in `Config::root`. Who breaks it gets other
    // bytes in a response, or, after truncation, EFAULT from the socket (the body itself is read
    // by the kernel) and SIGBUS only where this process reads it: the fault that flips a byte.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}
