//! A piece of memory that bytes are received into and written from, with exactly one owner.
//!
//! A slot is a piece of a pool ([`super::pool`]) or part of lent memory ([`super::loan`]); only
//! those two create slots. Dropping a slot returns its piece, on any thread. While the kernel works
//! on a slot the ring owns it (see `uring`), so no other code can access its bytes.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::loan::LentPart;
use super::pool::Piece;

/// A piece of memory with exactly one owner; dereferences to its bytes.
pub struct Slot {
    base: NonNull<u8>,
    length: u32,
    keeper: Keeper,
}

/// Origin of a slot: keeps its memory alive, and takes it back on drop.
#[derive(Debug)]
pub(super) enum Keeper {
    Pool(Piece),
    Loan(LentPart),
}

/// Checks that a slot's keeper may move to another thread.
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
    /// `base` is the first of `length` initialized bytes that may be read and written, and that
    /// nothing else accesses until `keeper` is dropped.
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
