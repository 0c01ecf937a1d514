//! Compares the objects of a stream with their stored checksums, while their bytes are passed on.
//!
//! Pure. Bytes are compared in the order of the stream, so any algorithm serves. The last piece of
//! an object is passed on only if all of its bytes match: a reader never gets the whole of an
//! object that differs.

use std::sync::Arc;

use crate::checksum::{Mismatch, Sequence};
use crate::link::object::ObjectRef;
use crate::sys::Errno;

/// Why bytes were not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unmoved {
    /// A system call failed, perhaps for now.
    Failed(Errno),
    /// They end an object that differs from its stored checksum.
    Differs(Mismatch),
}

impl From<Errno> for Unmoved {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl From<Mismatch> for Unmoved {
    fn from(mismatch: Mismatch) -> Self {
        Self::Differs(mismatch)
    }
}

/// What is known of the current object.
#[derive(Debug, Default)]
enum Compared {
    /// All of its bytes were added, and match. So it is before the first object.
    #[default]
    Matches,
    /// The checksum of the bytes so far.
    Partial(Box<Sequence>),
    /// All of its bytes were added, and differ.
    Differs(Mismatch),
}

/// The comparison of the stream's current object.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Each epoch has objects of its own.
    object: Option<Arc<ObjectRef>>,
    state: Compared,
    /// Bytes of the object that were added.
    added: u64,
    /// Objects that match.
    validated: u64,
}

impl Comparison {
    /// Number of objects that match their checksums.
    pub(super) fn validated(&self) -> u64 {
        self.validated
    }

    /// Adds bytes of an object that are about to be passed on, at this offset; those that were
    /// added before count once. Objects without a checksum are not compared.
    ///
    /// # Errors
    /// If they are its last bytes, and it differs from its checksum.
    pub(super) fn add(
        &mut self,
        object: &Arc<ObjectRef>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Mismatch> {
        let Ok(checksum) = object.checksum() else { return Ok(()) };
        if !self.object.as_ref().is_some_and(|current| Arc::ptr_eq(current, object)) {
            self.object = Some(Arc::clone(object));
            (self.state, self.added) = (Compared::Partial(Box::new(Sequence::new(checksum))), 0);
        }
        let mut sequence = match std::mem::take(&mut self.state) {
            Compared::Matches => return Ok(()),
            Compared::Partial(sequence) => sequence,
            Compared::Differs(mismatch) => {
                self.state = Compared::Differs(mismatch);
                return Err(mismatch);
            }
        };
        let known = usize::try_from(self.added - offset).expect("within one buffer");
        sequence.update(&bytes[known..]);
        self.added += (bytes.len() - known) as u64;
        if self.added < object.listed.size_bytes {
            self.state = Compared::Partial(sequence);
            return Ok(());
        }
        match sequence.finish() {
            Ok(()) => self.validated += 1,
            Err(mismatch) => {
                self.state = Compared::Differs(mismatch);
                return Err(mismatch);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{Algorithm, Form, InOrder, Stored};
    use crate::s3::{Endpoint, Object};

    fn object(bytes: &[u8], stored: &[u8]) -> Arc<ObjectRef> {
        let listed = Object { size_bytes: bytes.len() as u64, ..Object::default() };
        let endpoint = Endpoint::new("b", false, "h", "/", "r", vec![]);
        let object = ObjectRef::new(listed, Arc::new(endpoint));
        let (algorithm, form) = (Algorithm::Sha256, Form::FullObject);
        let stored = Stored { algorithm, form, digest: algorithm.digest(stored) };
        object.compare_with(Ok(InOrder::of_one_piece(stored)));
        Arc::new(object)
    }

    #[test]
    fn pieces_that_come_again_count_once() {
        let mut comparison = Comparison::default();
        for (stored, holds) in [(b"0123456789", true), (b"012345678x", false)] {
            let object = object(b"0123456789", stored);
            // A write that took nothing, one that took a part, and a buffer that has grown.
            for (offset, bytes) in [(0, "0123"), (0, "01234"), (2, "23456"), (2, "23456")] {
                assert_eq!(comparison.add(&object, offset, bytes.as_bytes()), Ok(()));
            }
            for _ in 0..2 {
                assert_eq!(comparison.add(&object, 7, b"789").is_ok(), holds);
            }
        }
        assert_eq!(comparison.validated(), 1);
    }

    #[test]
    fn an_object_that_was_left_does_not_count_for_the_next() {
        let mut comparison = Comparison::default();
        for bytes in [&b"abcd"[..2], b"abcd", b"abcd"] {
            assert_eq!(comparison.add(&object(b"abcd", b"abcd"), 0, bytes), Ok(()));
        }
        assert_eq!(comparison.validated(), 2);
        let whole = object(b"abcd", b"abcd");
        for _ in 0..2 {
            assert_eq!(comparison.add(&whole, 0, b"abcd"), Ok(()), "nothing of it was written");
        }
        assert_eq!(comparison.validated(), 3);
    }
}
