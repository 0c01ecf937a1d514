//! One piece of memory that bytes are received into and written from, held by exactly one owner.
//!
//! A slot is a piece of a pool ([`super::pool`]), or part of what a caller has lent
//! ([`super::loan`]): only those two can make one. Dropping it gives the piece back to where it is
//! from, on any thread. While the kernel works on a slot the ring holds it (see `uring`), so nobody
//! can touch its bytes.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::loan::Part;
use super::pool::Piece;

/// One piece of memory, held by exactly one owner; as a slice of bytes when in user hands.
pub struct Slot {
    base: NonNull<u8>,
    length: u32,
    keeper: Keeper,
}

/// Where a slot is from: keeps its memory in place, and takes it back when it is dropped.
#[derive(Debug)]
pub(super) enum Keeper {
    Pool(Piece),
    Loan(Part),
}

/// What goes to another thread with a slot.
const fn may_change_threads<T: Send + Sync>() {}
const _: () = may_change_threads::<Keeper>();

// SAFETY: a slot is the only owner of the bytes at `base` (`Slot::new`). So they go with it to
// another thread, as a boxed slice's would; its keeper may go there, too (checked above).
unsafe impl Send for Slot {}

// SAFETY: behind `&Slot` there is nothing but reads: of the bytes, which only `&mut Slot` and an
// operation that owns the slot write, and of its keeper, which may be shared (checked above).
unsafe impl Sync for Slot {}

impl Slot {
    /// A slot over these bytes.
    ///
    /// # Safety
    /// `base` is the first of `length` bytes that may be read and written and hold some value, and
    /// which nothing else reaches until `keeper` is dropped.
    pub(super) unsafe fn new(base: NonNull<u8>, length: u32, keeper: Keeper) -> Self {
        Self { base, length, keeper }
    }

    /// Address of the first byte, for an operation that will own this slot.
    pub(super) fn base(&mut self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// True for a part of a caller's memory.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        matches!(self.keeper, Keeper::Loan(_))
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: from_raw_parts needs memory that is valid, initialised and not written elsewhere
        // for the borrow: so `Slot::new` demands until the keeper is dropped, which this slot has;
        // and an operation in flight owns its slot, so the kernel writes only where nobody can
        // borrow.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length as usize) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length as usize) }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keeper {
            Keeper::Pool(piece) => write!(f, "Slot({})", piece.index()),
            Keeper::Loan(part) => write!(f, "Slot({} of a loan)", part.offset()),
        }
    }
}
