//! An object whose bytes come in any order, until it is complete in the cache.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno as Code;

use super::{Descriptor, lock};
use crate::files::cache::{Cache, Unfinished, Wanted};
use crate::limits::CACHE_PIECES_MAX;

/// An object whose bytes are coming; it is abandoned when its last open file is closed.
#[derive(Debug)]
pub(in crate::mount::serving) struct Growing {
    wanted: Wanted,
    /// It is cached, or will not be.
    is_over: AtomicBool,
    /// Its written part. The writer holds the lock, so nothing is written after the object is
    /// complete.
    part: Mutex<Option<WrittenPart>>,
}

#[derive(Debug)]
struct WrittenPart {
    file: Unfinished,
    covered: Covered,
    _descriptor: Descriptor,
}

impl Growing {
    /// Nothing of it is written.
    pub(super) fn new(wanted: Wanted) -> Self {
        Self { wanted, is_over: AtomicBool::new(false), part: Mutex::new(None) }
    }

    /// Size of the whole object.
    pub(super) const fn size_bytes(&self) -> u64 {
        self.wanted.size_bytes
    }

    /// True if it is cached, or will not be.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// It will not be cached. Does not wait for its writer.
    pub(super) fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// It will not be cached; removes its written part.
    pub(super) fn drop_part(&self) {
        self.give_up();
        *lock(&self.part) = None;
    }

    /// Writes these bytes; `begin` creates the file for the first ones, and the last ones are
    /// followed by its publication. Returns true if it is complete now.
    ///
    /// # Errors
    /// Those of `begin`, of pwrite(2) and of the publication.
    pub(super) fn write(
        &self,
        cache: &Cache,
        offset: u64,
        bytes: &[u8],
        begin: impl FnOnce(&Wanted) -> Result<(Unfinished, Descriptor), Code>,
    ) -> Result<bool, Code> {
        let mut part = lock(&self.part);
        if self.is_over() {
            return Ok(false);
        }
        let WrittenPart { file, covered, .. } = match part.as_mut() {
            Some(written) => written,
            None => {
                let (file, descriptor) = begin(&self.wanted)?;
                let covered = Covered::default();
                part.insert(WrittenPart { file, covered, _descriptor: descriptor })
            }
        };
        let range = offset..offset + bytes.len() as u64;
        if covered.has(&range) {
            return Ok(false);
        }
        file.write(bytes, offset)?;
        covered.add(&range);
        let is_complete = covered.is_all(self.wanted.size_bytes);
        if is_complete {
            self.give_up();
            file.keep(cache)?;
            *part = None;
        } else if covered.0.len() > CACHE_PIECES_MAX {
            self.give_up();
            *part = None;
        }
        Ok(is_complete)
    }
}

/// Disjoint ranges of an object that do not touch: ends by starts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Adds a range.
    fn add(&mut self, range: &Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        while let Some((other, other_end)) =
            self.0.range(..=end).next_back().map(|(start, end)| (*start, *end))
            && other_end >= start
        {
            self.0.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.0.insert(start, end);
    }

    /// True if all of a range is included.
    fn has(&self, range: &Range<u64>) -> bool {
        self.0.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    /// True if the first `size_bytes` bytes are included.
    fn is_all(&self, size_bytes: u64) -> bool {
        self.has(&(0..size_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_any_order_are_all_of_an_object_at_the_last() {
        let pieces = [0..10, 10..15, 15..40, 40..41, 41..100];
        let mut chance = fastrand::Rng::with_seed(7);
        for round in 0..200 {
            let mut order: Vec<Range<u64>> = pieces.to_vec();
            chance.shuffle(&mut order);
            let (mut covered, mut bytes) = (Covered::default(), [false; 100]);
            let mut add = |covered: &mut Covered, range: Range<u64>| {
                covered.add(&range);
                range.for_each(|at| bytes[usize::try_from(at).expect("few")] = true);
                assert_eq!(covered.is_all(100), bytes == [true; 100], "{round}: {covered:?}");
                assert_eq!(covered.has(&(20..30)), bytes[20..30] == [true; 10], "{covered:?}");
            };
            for (number, range) in order.iter().enumerate() {
                add(&mut covered, range.clone());
                // Some ranges repeat or overlap.
                add(&mut covered, range.start.saturating_sub(chance.u64(..2))..range.end);
                let again = chance.choice(&order[..=number]).expect("one").clone();
                add(&mut covered, again);
            }
            assert_eq!(covered.0.len(), 1, "{covered:?}");
        }
        let mut disjoint = Covered::default();
        disjoint.add(&(0..10));
        disjoint.add(&(20..30));
        disjoint.add(&(11..20));
        assert_eq!(disjoint.0, BTreeMap::from([(0, 10), (11, 30)]), "a byte is missing");
        assert!(!disjoint.is_all(30));
    }
}
