//! Checks if a download can fit at the destination. Pure.
//!
//! A new file exists beside the one that it replaces until it is renamed, so an update needs more
//! than it adds in the end. The order in which objects are completed is not known beforehand; the
//! space computed here is needed in every order: refused objects certainly cannot fit. The others
//! are handed to the workers only as far as there is space.

use crate::files::system_host::DiskSpace;

/// Usual size of an object's journal: one block.
const JOURNAL_BYTES: u64 = BLOCK_BYTES;

/// Usual allocation unit of a file system, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// The space that a run needs, as far as known.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Of the destination's file system, when the run began; `None` if not checked.
    disk: Option<DiskSpace>,
    /// If true, existing files may be replaced: then objects that are not listed yet may free more
    /// space than they need.
    may_replace: bool,
    /// Bytes of the objects to download.
    size_bytes: u64,
    /// Bytes of the files that they replace.
    replaced_bytes: u64,
    /// Size of the smallest replaced file.
    replaced_min_bytes: Option<u64>,
    /// The largest size at one object's path, before or after.
    largest_bytes: u64,
    /// Sum of the differences of all objects that are smaller than the files that they replace.
    shrink_bytes: u64,
    /// Space allocated by earlier runs for these objects.
    reclaimed_bytes: u64,
    /// Space of the objects handed to the workers, including those that have ended.
    taken_bytes: u64,
    /// Space that was freed: replaced files, and failed objects.
    returned_bytes: u64,
    /// Objects that the workers have.
    under_way: u64,
}

impl Space {
    /// No space is needed yet.
    pub(crate) fn new(disk: Option<DiskSpace>, may_replace: bool) -> Self {
        Self { disk, may_replace, ..Self::default() }
    }

    /// Adds an object to download that replaces a file of `replaced_bytes` when complete.
    pub(crate) fn add(&mut self, size_bytes: u64, replaced_bytes: u64) {
        let least = self.replaced_min_bytes.unwrap_or(u64::MAX).min(replaced_bytes);
        self.replaced_min_bytes = Some(least);
        self.size_bytes = self.size_bytes.saturating_add(size_bytes);
        self.replaced_bytes = self.replaced_bytes.saturating_add(replaced_bytes);
        self.largest_bytes = self.largest_bytes.max(size_bytes).max(replaced_bytes);
        let shrink = replaced_bytes.saturating_sub(size_bytes);
        self.shrink_bytes = self.shrink_bytes.saturating_add(shrink);
    }

    /// Adds space of an unfinished file that is reused, or free now.
    pub(crate) fn reclaim(&mut self, bytes: u64) {
        self.reclaimed_bytes = self.reclaimed_bytes.saturating_add(bytes);
    }

    /// Free bytes that the objects need at least, in whatever order they are completed.
    pub(crate) fn needed_bytes(&self) -> u64 {
        // Before the last rename all other files exist, and of the replaced ones only its own.
        let last_bytes = self.replaced_min_bytes.unwrap_or(0);
        let at_the_end =
            self.size_bytes.saturating_add(last_bytes).saturating_sub(self.replaced_bytes);
        // The largest exists beside the file that it replaces; at best after all that shrink.
        let for_the_largest = self.largest_bytes.saturating_sub(self.shrink_bytes);
        at_the_end.max(for_the_largest)
    }

    /// Free bytes that the objects may use; `None` if not checked.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.disk.map(|disk| disk.free_bytes.saturating_add(self.reclaimed_bytes))
    }

    /// Hands an object to the workers, if there is space for it beside those that they have. A
    /// single one is always accepted: a full disk returns its own error.
    pub(crate) fn hand_out(&mut self, size_bytes: u64) -> bool {
        if self.has_room(size_bytes) || self.under_way == 0 {
            self.taken_bytes = self.taken_bytes.saturating_add(taken_by(size_bytes));
            self.under_way += 1;
            return true;
        }
        false
    }

    /// True if the workers have objects.
    pub(super) fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// True if there is space for an object beside those that the workers have.
    pub(super) fn has_room(&self, size_bytes: u64) -> bool {
        taken_by(size_bytes) <= self.left_bytes()
    }

    /// Free bytes beside the objects that the workers have.
    pub(crate) fn left_bytes(&self) -> u64 {
        let Some(free) = self.free_bytes() else { return u64::MAX };
        free.saturating_add(self.returned_bytes).saturating_sub(self.taken_bytes)
    }

    /// Records that an object has ended: its file replaced one of `replaced_bytes`, or does not
    /// exist (`None`).
    pub(crate) fn end(&mut self, size_bytes: u64, replaced_bytes: Option<u64>) {
        self.under_way = self.under_way.saturating_sub(1);
        let returned = match replaced_bytes {
            Some(bytes) => bytes.saturating_add(JOURNAL_BYTES),
            None => taken_by(size_bytes),
        };
        self.returned_bytes = self.returned_bytes.saturating_add(returned);
    }

    /// True if the objects known so far would not fit.
    fn is_short(&self) -> bool {
        self.free_bytes().is_some_and(|free| self.needed_bytes() > free)
    }

    /// True if all objects together certainly cannot fit. `all_known`: no more will be added.
    pub(crate) fn cannot_fit(&self, all_known: bool) -> bool {
        let final_for_all = all_known || !self.may_replace;
        let beyond_the_disk = self.disk.is_some_and(|disk| self.size_bytes > disk.total_bytes);
        self.is_short() && (final_for_all || beyond_the_disk)
    }

    /// True if the objects known so far would not fit, but others may free space.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_short() && !self.cannot_fit(false)
    }
}

/// Space of an object until it is renamed: whole blocks, and a journal.
pub(super) fn taken_by(size_bytes: u64) -> u64 {
    let blocks = size_bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX);
    blocks.saturating_add(JOURNAL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL_BYTES: u64 = 1000;

    fn space(free_bytes: u64, may_replace: bool, objects: &[(u64, u64)]) -> Space {
        let disk = DiskSpace { free_bytes, total_bytes: TOTAL_BYTES };
        let mut space = Space::new(Some(disk), may_replace);
        objects.iter().for_each(|(size, replaced)| space.add(*size, *replaced));
        space
    }

    /// Space needed in this order, one after the other.
    fn peak(order: &[(u64, u64)]) -> i64 {
        let (mut used, mut most) = (0i64, 0i64);
        for (size, replaced) in order {
            used += i64::try_from(*size).expect("small");
            most = most.max(used);
            used -= i64::try_from(*replaced).expect("small");
        }
        most
    }

    /// The least space needed over all orders (Heap's algorithm).
    fn least_peak(objects: &mut [(u64, u64)], count: usize) -> i64 {
        if count <= 1 {
            return peak(objects);
        }
        let mut least = i64::MAX;
        for index in 0..count {
            least = least.min(least_peak(objects, count - 1));
            objects.swap(if count.is_multiple_of(2) { index } else { 0 }, count - 1);
        }
        least
    }

    #[test]
    fn nothing_that_fits_in_any_order_is_refused() {
        let mut chance = 1u64;
        let mut drawn = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (chance >> 33) % below
        };
        let (mut exact, mut cases) = (0, 0);
        for _ in 0..3000 {
            let count = 1 + drawn(5);
            let mut objects: Vec<(u64, u64)> =
                (0..count).map(|_| (drawn(20), drawn(3) * drawn(12))).collect();
            let least = least_peak(&mut objects, usize::try_from(count).expect("small"));
            let needed = space(0, true, &objects).needed_bytes();
            let needed = i64::try_from(needed).expect("small");
            assert!(needed <= least, "{needed} of {least} for {objects:?}");
            cases += 1;
            exact += i32::from(needed == least);
        }
        assert!(exact * 2 > cases, "a bound that says something: {exact} of {cases}");
    }

    #[test]
    fn what_is_replaced_counts() {
        // One file beside its old version, one after the other.
        let update = [(100, 100), (60, 60), (100, 100)];
        assert_eq!(space(0, true, &update).needed_bytes(), 100);
        assert!(!space(100, true, &update).cannot_fit(true));
        assert!(space(99, true, &update).cannot_fit(true));
        // Growing files, beside the others until the end.
        assert_eq!(space(0, true, &[(100, 10), (100, 50)]).needed_bytes(), 150);
        // No existing file: the sum.
        assert_eq!(space(0, false, &[(100, 0), (1, 0)]).needed_bytes(), 101);
    }

    #[test]
    fn no_more_are_under_way_than_there_is_room_for() {
        const MIB: u64 = 1 << 20;
        let disk = DiskSpace { free_bytes: 3 * MIB, total_bytes: 64 * MIB };
        let mut space = Space::new(Some(disk), true);
        assert!(space.hand_out(MIB) && space.hand_out(MIB));
        assert!(!space.hand_out(MIB), "their journals take something too");
        // One has replaced its older version; another has failed.
        space.end(MIB, Some(MIB));
        assert!(space.hand_out(MIB) && !space.hand_out(MIB));
        space.end(MIB, None);
        assert!(space.hand_out(MIB) && !space.hand_out(MIB));
        // One without a replaced file stays.
        space.end(MIB, Some(0));
        assert!(!space.hand_out(MIB));
        space.end(MIB, Some(0));
        assert!(space.hand_out(9 * MIB), "nothing else is under way");
        let mut unchecked = Space::new(None, false);
        assert!((0..9).all(|_| unchecked.hand_out(u64::MAX)));
    }

    #[test]
    fn what_is_not_listed_yet_may_make_room() {
        let grown = [(200, 100)];
        assert!(space(150, true, &grown).is_in_doubt());
        assert!(!space(150, true, &grown).cannot_fit(false));
        assert!(space(150, true, &grown).cannot_fit(true));
        assert!(space(150, false, &grown).cannot_fit(false), "nothing can");
        assert!(space(150, true, &[(TOTAL_BYTES + 1, 900)]).cannot_fit(false), "nor here");
        let mut shrunk = space(150, true, &grown);
        shrunk.add(10, 200);
        assert!(!shrunk.is_in_doubt() && !shrunk.cannot_fit(true));
        let mut reclaimed = space(150, true, &grown);
        reclaimed.reclaim(50);
        assert!(!reclaimed.is_in_doubt() && !reclaimed.cannot_fit(true));
        let unchecked = Space { size_bytes: u64::MAX, ..Space::new(None, false) };
        assert!(!unchecked.cannot_fit(true) && !unchecked.is_in_doubt());
    }
}
