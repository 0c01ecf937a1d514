//! Memory that a caller has lent: bytes are received straight into it, as into the engine's own.
//!
//! A [`Loan`] owns what keeps the memory, and hands out parts of it as slots, never a byte twice.
//! Each part holds the same owner. So the memory goes back to its caller only when no part is out,
//! whoever has one: a connection, an operation that the kernel has not given back, or a ring that
//! was dropped and leaked one. What the kernel never gives back is never freed.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::slot::{Keeper, Slot};

/// Memory of a caller that the engine fills.
///
/// The engine owns the value while the request is under way, and nothing else may touch the memory
/// meanwhile: the kernel writes there. It drops or returns the value when the kernel has given
/// every operation on it back, wherever that happens. A `Vec<u8>` is such memory. Who gets it back
/// as a `Box<dyn Place>` finds its own type by [`Any`].
///
/// # Safety
/// [`Place::span`] gives the same span each time. As long as the value is there, wherever it is
/// moved:
/// * all bytes of the span may be read and written, and hold some value;
/// * nothing but whoever has the value reaches them, and no method of this trait but `span`;
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

/// What keeps lent memory.
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
    shared: Arc<Shared>,
}

/// What a loan and its parts share.
struct Shared {
    /// The parts that are out: very few.
    out: Mutex<Vec<Range<usize>>>,
    /// Only its last owner looks at it: the lock is never taken.
    lender: Mutex<Lender>,
}

// SAFETY: the pointer goes with the lender that keeps its memory (`Place`), and a lender may change
// threads; the bytes are reached through slots alone, which are disjoint (`Loan::part`).
unsafe impl Send for Loan {}
// SAFETY: as above; a shared loan gives out parts under a lock.
unsafe impl Sync for Loan {}

/// A part that is out.
pub(super) struct Part {
    shared: Arc<Shared>,
    offset: usize,
}

impl Loan {
    /// Takes memory over.
    #[must_use]
    pub fn new(mut lender: Lender) -> Self {
        let span = lender.span();
        let (out, lender) = (Mutex::new(Vec::with_capacity(2)), Mutex::new(lender));
        Self { span, shared: Arc::new(Shared { out, lender }) }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.span.len() as u64
    }

    /// The bytes from `offset` on, at most `most` of them; `None` while somebody has one of them.
    ///
    /// # Panics
    /// When no byte is there.
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
        let keeper = Keeper::Loan(Part { shared: Arc::clone(&self.shared), offset: start });
        // SAFETY: `add` needs the result to stay within the memory: `start` is below its length.
        let base = unsafe { self.span.cast::<u8>().add(start) };
        // SAFETY: `Place` promises the bytes of the span for as long as its lender is there, which
        // the keeper holds (`shared`), and that nobody else reaches them. Other slots do not: no
        // part that is out overlaps this one (above), and it is taken off that list, under its
        // lock, when its keeper is dropped.
        Some(unsafe { Slot::new(base, length, keeper) })
    }

    /// Gives the memory back. `None` when parts of it are out: the last of them drops it.
    #[must_use]
    pub fn give_back(self) -> Option<Lender> {
        let shared = Arc::into_inner(self.shared)?;
        Some(shared.lender.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    fn out(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        // Each change is one push or one removal: whoever panics leaves it whole.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// Where it begins.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.shared.out().retain(|part| part.start != self.offset);
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("offset", &self.offset).finish_non_exhaustive()
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

    /// A vector that tells when it goes.
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
