//! Memory lent by a caller, into which bytes are received directly.
//!
//! A [`Loan`] owns the lender of the memory and hands out disjoint parts of it as slots. Each part
//! shares ownership of the lender. So the memory returns to its caller only when no part is in use
//! by a connection, by an operation that the kernel still has, or by a ring that was dropped and
//! leaked one. Memory that the kernel never gives back is never freed.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::slot::{Keeper, Slot};

/// Memory of a caller that the engine fills.
///
/// The engine owns the value while the request is in flight, and nothing else may touch the memory
/// meanwhile, because the kernel writes to it. It drops or returns the value once the kernel has
/// given back every operation on it. `Vec<u8>` implements this trait. A caller that gets the value
/// back as a `Box<dyn Place>` can downcast it by [`Any`].
///
/// # Safety
/// [`Place::span`] returns the same span each time. As long as the value exists, wherever it is
/// moved:
/// * all bytes of the span may be read and written, and are initialized;
/// * only the owner of the value accesses them, and of this trait's methods only `span`;
/// * they are no part of the value itself, which moves.
pub unsafe trait Place: Any + Send + fmt::Debug {
    /// The memory, as long as the range that it is for.
    fn span(&mut self) -> NonNull<[u8]>;
}

// SAFETY: a vector's bytes are initialised, are in an allocation of their own, which does not move
// with the vector, and are reached through the vector alone.
unsafe impl Place for Vec<u8> {
    fn span(&mut self) -> NonNull<[u8]> {
        NonNull::from(self.as_mut_slice())
    }
}

/// The owner of lent memory.
#[derive(Debug)]
pub enum Lender {
    /// A buffer.
    Buffer(Vec<u8>),
    /// A caller's own type.
    Place(Box<dyn Place>),
}

impl Lender {
    fn span(&mut self) -> NonNull<[u8]> {
        match self {
            Self::Buffer(buffer) => buffer.span(),
            Self::Place(place) => place.span(),
        }
    }
}

/// Memory that a caller has lent, until it is given back.
pub struct Loan {
    span: NonNull<[u8]>,
    shared: Arc<LoanState>,
}

/// Shared by a loan and its parts.
struct LoanState {
    /// The parts in use: very few.
    out: Mutex<Vec<Range<usize>>>,
    /// Only the last owner uses it, so the lock is never taken.
    lender: Mutex<Lender>,
}

// SAFETY: the pointer goes with the lender that keeps its memory (`Place`), and a lender may change
// threads; the bytes are reached through slots alone, which are disjoint (`Loan::part`).
unsafe impl Send for Loan {}
// SAFETY: as above; a shared loan gives out parts under a lock.
unsafe impl Sync for Loan {}

/// A part in use.
pub(super) struct LentPart {
    shared: Arc<LoanState>,
    offset: usize,
}

impl Loan {
    /// Takes ownership of memory.
    #[must_use]
    pub fn new(mut lender: Lender) -> Self {
        let span = lender.span();
        let (out, lender) = (Mutex::new(Vec::with_capacity(2)), Mutex::new(lender));
        Self { span, shared: Arc::new(LoanState { out, lender }) }
    }

    /// Length in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.span.len() as u64
    }

    /// A slot for at most `most` bytes from `offset` on; `None` while a slot for any of them is in
    /// use.
    ///
    /// # Panics
    /// If `offset` is beyond the end.
    #[must_use]
    pub fn part(&self, offset: u64, most: u32) -> Option<Slot> {
        let start = usize::try_from(offset).ok().filter(|start| *start < self.span.len());
        let start = start.expect("a part of what was lent");
        let length = most.min(u32::try_from(self.span.len() - start).unwrap_or(u32::MAX));
        assert!(length > 0, "a part has bytes");
        let part = start..start + length as usize;
        let mut out = self.shared.out();
        if out.iter().any(|other| other.start < part.end && part.start < other.end) {
            return None;
        }
        out.push(part);
        let keeper = Keeper::Loan(LentPart { shared: Arc::clone(&self.shared), offset: start });
        // SAFETY: `add` needs the result to stay within the memory: `start` is below its length.
        let base = unsafe { self.span.cast::<u8>().add(start) };
        // SAFETY: `Place` promises the bytes of the span for as long as its lender is there, which
        // the keeper holds (`shared`), and that nobody else reaches them. Other slots do not: no
        // part that is out overlaps this one (above), and it is taken off that list, under its
        // lock, when its keeper is dropped.
        Some(unsafe { Slot::new(base, length, keeper) })
    }

    /// Gives the memory back. `None` if parts are in use: the last of them drops it.
    #[must_use]
    pub fn give_back(self) -> Option<Lender> {
        let shared = Arc::into_inner(self.shared)?;
        Some(shared.lender.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LoanState {
    fn out(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        // Each change is one push or one removal, so a panic leaves the list whole.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LentPart {
    /// Its first byte.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }
}

impl Drop for LentPart {
    fn drop(&mut self) {
        self.shared.out().retain(|part| part.start != self.offset);
    }
}

impl fmt::Debug for LentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentPart").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl fmt::Debug for Loan {
    /// Without the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan")
            .field("length_bytes", &self.length_bytes())
            .field("out", &self.shared.out())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A vector that reports its drop.
    #[derive(Debug)]
    struct Watched {
        bytes: Vec<u8>,
        is_gone: Arc<AtomicBool>,
    }

    // SAFETY: as for the vector.
    unsafe impl Place for Watched {
        fn span(&mut self) -> NonNull<[u8]> {
            self.bytes.span()
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.is_gone.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn parts_are_disjoint_and_their_bytes_are_the_lenders() {
        let loan = Loan::new(Lender::Buffer(vec![0; 1000]));
        let mut parts = [0, 400, 800].map(|offset| loan.part(offset, 400).expect("free"));
        assert_eq!(parts.each_ref().map(|part| part.len()), [400, 400, 200]);
        for offset in [0, 1, 399, 400, 799, 999] {
            assert!(loan.part(offset, 1).is_none(), "{offset} is out");
        }
        for (value, part) in (1..).zip(&mut parts) {
            part.fill(value);
        }
        let [first, second, third] = parts;
        drop(second);
        assert!(loan.part(399, 2).is_none() && loan.part(799, 2).is_none());
        assert_eq!(*loan.part(400, 400).expect("it is back"), [2; 400]);
        std::thread::spawn(move || drop((first, third))).join().expect("no panic");
        let Some(Lender::Buffer(bytes)) = loan.give_back() else { panic!("nothing is out") };
        assert_eq!(bytes, [[1; 400].as_slice(), &[2; 400], &[3; 200]].concat());
    }

    #[test]
    fn memory_stays_while_a_part_is_out() {
        let is_gone = Arc::new(AtomicBool::new(false));
        let watched = Watched { bytes: vec![0; 9], is_gone: Arc::clone(&is_gone) };
        let loan = Loan::new(Lender::Place(Box::new(watched)));
        let mut part = loan.part(3, 6).expect("free");
        assert!(loan.give_back().is_none(), "somebody has a part of it");
        assert!(!is_gone.load(Ordering::SeqCst));
        part.fill(7);
        assert_eq!(*part, [7; 6]);
        std::thread::spawn(move || drop(part)).join().expect("no panic");
        assert!(is_gone.load(Ordering::SeqCst), "the last part takes it along");
    }
}
