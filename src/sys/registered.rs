//! Registers slots with a ring: a block of slots when one of them is first written from.
//!
//! Registering memory pins it, and zeroes pages that were never touched. So slots that are never
//! written from (the bytes are dropped, or the pace never needs the slot) cost neither. Kernels
//! before 5.19 cannot add to the table: there all memory is registered at the start.

use io_uring::IoUring;

use super::Pool;

/// Shortest block: a huge page.
const BLOCK_BYTES_MIN: usize = 2 << 20;

/// EINVAL: the kernel does not know the call.
const INVALID: i32 = 22;

/// The registered blocks of one pool.
#[derive(Debug)]
pub(super) struct Registered {
    pool: Pool,
    base: usize,
    length: usize,
    block_bytes: usize,
    table: Table,
}

/// What is registered.
#[derive(Debug)]
enum Table {
    /// These blocks (Linux 5.19).
    Blocks(Vec<bool>),
    /// All memory as one block.
    Whole,
    /// RLIMIT_MEMLOCK or the kernel forbids more: these blocks only.
    Refused(Vec<bool>),
}

impl Registered {
    /// For writes from this pool's slots. The ring must have no operations in flight: before Linux
    /// 5.13 registration waits for them (io_uring_register(2)).
    pub(super) fn new(pool: Pool, ring: &IoUring) -> Self {
        let (base, length) = pool.span();
        let slot = pool.slot_length_bytes() as usize;
        // Whole slots, so that a write is within one block.
        let block_bytes = BLOCK_BYTES_MIN.div_ceil(slot) * slot;
        let mut new = Self { pool, base, length, block_bytes, table: Table::Whole };
        new.table = new.begin(ring);
        new
    }

    /// False once the kernel has refused to register memory.
    pub(super) fn is_granted(&self) -> bool {
        !matches!(self.table, Table::Refused(_))
    }

    /// The pool, which must not be freed while the kernel still has operations on it.
    pub(super) fn into_pool(self) -> Pool {
        self.pool
    }

    /// Index of the registered buffer of these bytes, which is registered now if needed
    /// (io_uring_register(2)); `None` if they are in none.
    pub(super) fn index(&mut self, ring: &IoUring, from: *const u8) -> Option<u16> {
        let at = (from as usize).checked_sub(self.base).filter(|at| *at < self.length)?;
        let block = u16::try_from(at / self.block_bytes).ok()?;
        let place = usize::from(block);
        match &mut self.table {
            Table::Whole => Some(0),
            Table::Refused(blocks) => blocks.get(place)?.then_some(block),
            Table::Blocks(blocks) => {
                if !blocks[place] {
                    let start = place * self.block_bytes;
                    let vector = libc::iovec {
                        iov_base: (self.base + start) as *mut _,
                        iov_len: self.block_bytes.min(self.length - start),
                    };
                    let submitter = ring.submitter();
                    // SAFETY: register_buffers_update needs memory that stays mapped while it is
                    // registered: the pool's region is kept alive by `pool`, which its ring keeps
                    // until after it is closed.
                    let outcome = unsafe {
                        submitter.register_buffers_update(u32::from(block), &[vector], None)
                    };
                    if outcome.is_err() {
                        self.table = Table::Refused(std::mem::take(blocks));
                        return None;
                    }
                    blocks[place] = true;
                }
                Some(block)
            }
        }
    }

    fn begin(&self, ring: &IoUring) -> Table {
        let count = self.length.div_ceil(self.block_bytes);
        let blocks = vec![false; count];
        let Ok(entries) = u16::try_from(count) else { return Table::Refused(blocks) };
        match ring.submitter().register_buffers_sparse(u32::from(entries)) {
            Ok(()) => Table::Blocks(blocks),
            Err(error) if error.raw_os_error() == Some(INVALID) => {
                // The kernel takes at most 1 GiB per buffer: longer memory is not registered.
                let vector = libc::iovec { iov_base: self.base as *mut _, iov_len: self.length };
                // SAFETY: register_buffers needs memory that stays mapped while registered: the
                // pool's region is kept alive by `pool`, which its ring keeps until after it is
                // closed.
                match unsafe { ring.submitter().register_buffers(&[vector]) } {
                    Ok(()) => Table::Whole,
                    Err(_) => Table::Refused(blocks),
                }
            }
            Err(_) => Table::Refused(blocks),
        }
    }
}
