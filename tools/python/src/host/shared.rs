//! Memory that the engine of a host and one of its clients map: the engine receives bytes there,
//! and the client copies them from there.
//!
//! It is a file without a name (memfd_create(2)) whose size cannot change any more: a page of it
//! that were gone would be a signal for who touches it (SIGBUS). It is gone when nobody has it.

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use inrush::Place;
use memmap2::{Advice, MmapRaw};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;

use crate::buffer::Piece;

/// What keeps a memory file as long as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The memory of one connection, mapped into this process until all parts of it are dropped.
pub(super) struct Shared {
    map: MmapRaw,
}

impl Shared {
    /// New memory, zeros, and the descriptor to send.
    ///
    /// # Errors
    /// The kernel has no memory files, allows none, or has no memory.
    pub(super) fn create(length_bytes: u64) -> Result<(Arc<Self>, OwnedFd), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"inrush-shared", flags)?;
        ftruncate(&file, length_bytes)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Self::map(&file)?, file))
    }

    /// The memory that another process has sent.
    ///
    /// # Errors
    /// It may become shorter, or cannot be mapped.
    pub(super) fn open(file: &OwnedFd) -> Result<Arc<Self>, Errno> {
        if !fcntl_get_seals(file)?.contains(SEALS) {
            return Err(Errno::PERM);
        }
        Self::map(file)
    }

    fn map(file: &OwnedFd) -> Result<Arc<Self>, Errno> {
        let mapped = MmapRaw::map_raw(file.as_raw_fd());
        let map = mapped.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
        // A forked child has no use for it, and would keep it. That is no reason to fail.
        let _ = map.advise(Advice::DontFork);
        Ok(Arc::new(Self { map }))
    }

    pub(super) fn length_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// The address of a part of it.
    fn at(&self, part: &Range<u64>) -> NonNull<u8> {
        assert!(part.start <= part.end && part.end <= self.length_bytes(), "a part of the memory");
        let offset = usize::try_from(part.start).expect("it is mapped");
        // SAFETY: the offset is within the mapping (the assertion), which is one allocation.
        let at = unsafe { self.map.as_mut_ptr().add(offset) };
        NonNull::new(at).expect("a mapping has an address")
    }

    /// Copies a part of it to where a caller wants it. The engine has answered the read of this
    /// part and has got no other one for it.
    ///
    /// # Panics
    /// When the lengths differ, or the part is not within the memory.
    pub(super) fn copy_to(&self, part: &Range<u64>, mut piece: Piece) {
        let from = self.at(part);
        let span = piece.span();
        assert_eq!(span.len() as u64, part.end - part.start, "as much as was read");
        // SAFETY: both have this many bytes: the part is within the mapping (`at`), which `self`
        // keeps and whose file cannot become shorter (its seals); the piece is in memory that its
        // owner keeps (`Place`). They do not overlap: the mapping is handed to nobody else. Nobody
        // writes to either meanwhile: the engine has answered for this part, and the piece is this
        // function's. The engine is a process of the same user that keeps to this (`server`); one
        // that did not could write to all memory of this process as well (ptrace(2)).
        unsafe {
            span.cast::<u8>().as_ptr().copy_from_nonoverlapping(from.as_ptr(), span.len());
        }
    }
}

/// Where the engine receives one range. It keeps the memory mapped.
#[derive(Debug)]
pub(super) struct SharedPart {
    pub(super) memory: Arc<Shared>,
    pub(super) part: Range<u64>,
}

// SAFETY: the part is within the mapping (`at` asserts it), which `memory` keeps in place wherever
// the value goes, and whose file cannot become shorter (its seals). Its bytes were zeros at first,
// so they are initialized. `server` hands out no part that overlaps another one of the same memory
// while that is in use. The client does not touch a part before its read is answered (`link`); it
// is a process of the same user, as in `copy_to`.
unsafe impl Place for SharedPart {
    fn span(&mut self) -> NonNull<[u8]> {
        let at = self.memory.at(&self.part);
        let length = usize::try_from(self.part.end - self.part.start).expect("it is mapped");
        NonNull::slice_from_raw_parts(at, length)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("length_bytes", &self.length_bytes()).finish_non_exhaustive()
    }
}
