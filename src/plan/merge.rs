//! Merges sorted listings, and finds paths that exclude each other.
//!
//! Pure. [`Merge`] yields the smallest path of all sources; [`PathGuard`] finds duplicates and
//! files that are also folders. Both hold one path per source, regardless of the number of objects:
//! they rely on sorted listings, and [`PathGuard::is_sorted`] says whether they were.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::plan::path::PathProblem;

/// The next item of each source, smallest path first; equal paths in the order of the sources.
#[derive(Debug)]
pub struct Merge<T> {
    heads: BinaryHeap<Head<T>>,
}

/// Above this number of sources test builds skip the search for a second head, which takes too
/// long.
const CHECKED_MAX: usize = 1_000;

#[derive(Debug)]
struct Head<T> {
    relative: String,
    source: usize,
    item: T,
}

impl<T> Head<T> {
    fn rank(&self) -> (&[u8], usize) {
        (self.relative.as_bytes(), self.source)
    }
}

impl<T> Ord for Head<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // BinaryHeap is a max-heap; reverse the order.
        other.rank().cmp(&self.rank())
    }
}

impl<T> PartialOrd for Head<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Head<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<T> Eq for Head<T> {}

impl<T> Default for Merge<T> {
    fn default() -> Self {
        Self { heads: BinaryHeap::new() }
    }
}

impl<T> Merge<T> {
    /// Adds the next item of a source, which must have none in the heap.
    pub fn push(&mut self, source: usize, relative: String, item: T) {
        debug_assert!(
            self.heads.len() > CHECKED_MAX || self.heads.iter().all(|head| head.source != source),
            "one head a source"
        );
        self.heads.push(Head { relative, source, item });
    }

    /// Removes the smallest item; push its source's next item before calling this again.
    pub fn pop(&mut self) -> Option<(usize, String, T)> {
        self.heads.pop().map(|head| (head.source, head.relative, head.item))
    }
}

/// Checks the merged paths one by one.
///
/// Of all files seen only those whose path is a prefix of the current one matter. They are prefixes
/// of each other, too, so the last path and a list of lengths represent them all.
#[derive(Debug, Default)]
pub struct PathGuard {
    last: String,
    /// Files whose path is a string prefix of `last`: length and source.
    files: Vec<(usize, usize)>,
    unsorted: bool,
}

impl PathGuard {
    /// Checks the next path; a folder's ends in a slash.
    ///
    /// Only pass paths that will be written: a path with a problem of its own blocks no other.
    pub fn check(&mut self, source: usize, relative: &str) -> Result<(), PathProblem> {
        self.unsorted |= self.last.as_str() > relative;
        let shared = self.last.bytes().zip(relative.bytes()).take_while(|(a, b)| a == b).count();
        while self.files.pop_if(|(end, _)| *end > shared).is_some() {}
        relative.clone_into(&mut self.last);
        let bytes = relative.as_bytes();
        let through = self.files.iter().find(|(end, _)| bytes.get(*end) == Some(&b'/'));
        if let Some((_, file)) = through {
            return Err(PathProblem::FileAndFolder { file: *file, below: source });
        }
        if relative.ends_with('/') {
            return Ok(());
        }
        if let Some((_, first)) = self.files.last().filter(|(end, _)| *end == bytes.len()) {
            return Err(PathProblem::Duplicate { first: *first, again: source });
        }
        self.files.push((bytes.len(), source));
        Ok(())
    }

    /// False once a path preceded its predecessor: then problems may have been missed.
    #[must_use]
    pub const fn is_sorted(&self) -> bool {
        !self.unsorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn problems(paths: &[(usize, &str)]) -> Vec<Option<PathProblem>> {
        let mut guard = PathGuard::default();
        paths.iter().map(|(source, path)| guard.check(*source, path).err()).collect()
    }

    #[test]
    fn files_that_are_folders() {
        let through = |file, below| Some(PathProblem::FileAndFolder { file, below });
        let again = |first, again| Some(PathProblem::Duplicate { first, again });
        let check = |paths: &[(usize, &str)], expected: &[Option<PathProblem>]| {
            assert_eq!(problems(paths), expected, "{paths:?}");
        };
        check(&[(0, "a"), (0, "a/b")], &[None, through(0, 0)]);
        check(&[(0, "a"), (1, "a-b"), (2, "a/b")], &[None, None, through(0, 2)]);
        check(&[(0, "a"), (0, "a/")], &[None, through(0, 0)]);
        check(&[(0, "a/"), (1, "a/"), (0, "a/b")], &[None, None, None]);
        check(&[(0, "a"), (1, "a"), (2, "a")], &[None, again(0, 1), again(0, 2)]);
        check(
            &[(0, "a"), (0, "a/b"), (0, "a/b/c"), (0, "b"), (0, "b/c/d")],
            &[None, through(0, 0), through(0, 0), None, through(0, 0)],
        );
        check(&[(0, "ab"), (0, "abc"), (0, "b")], &[None, None, None]);
    }

    #[test]
    fn disorder_is_seen() {
        let mut guard = PathGuard::default();
        for path in ["b", "c", "a"] {
            assert!(guard.is_sorted());
            assert_eq!(guard.check(0, path), Ok(()));
        }
        assert!(!guard.is_sorted());
    }

    fn any_paths() -> impl Strategy<Value = Vec<String>> {
        let path = prop::collection::vec(prop::sample::select(vec!["a", "b", "-", "/"]), 1..7);
        prop::collection::btree_set(path.prop_map(|pieces| pieces.concat()), 0..20)
            .prop_map(|paths| paths.into_iter().collect())
    }

    proptest! {
        // The failing input is printed; it becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn merged_is_sorted_and_whole(sources in prop::collection::vec(any_paths(), 1..5)) {
            let mut rest: Vec<_> = sources.iter().map(|paths| paths.iter()).collect();
            let mut merge = Merge::default();
            for (source, paths) in rest.iter_mut().enumerate() {
                if let Some(path) = paths.next() {
                    merge.push(source, path.clone(), ());
                }
            }
            let mut merged = Vec::new();
            while let Some((source, path, ())) = merge.pop() {
                if let Some(path) = rest[source].next() {
                    merge.push(source, path.clone(), ());
                }
                merged.push((path, source));
            }
            let mut expected: Vec<_> = sources
                .iter()
                .enumerate()
                .flat_map(|(source, paths)| paths.iter().map(move |path| (path.clone(), source)))
                .collect();
            expected.sort();
            prop_assert_eq!(&merged, &expected);

            // Compares the guard with a model that remembers every file.
            let mut guard = PathGuard::default();
            let mut files: BTreeMap<&str, usize> = BTreeMap::new();
            for (path, source) in &merged {
                let cuts = path.match_indices('/').map(|(at, _)| &path[..at]);
                let below = cuts.filter_map(|cut| files.get(cut)).next();
                let expected = if let Some(file) = below {
                    Some(PathProblem::FileAndFolder { file: *file, below: *source })
                } else if path.ends_with('/') {
                    None
                } else if let Some(first) = files.get(path.as_str()) {
                    Some(PathProblem::Duplicate { first: *first, again: *source })
                } else {
                    files.insert(path, *source);
                    None
                };
                prop_assert_eq!(guard.check(*source, path).err(), expected, "{}", path);
            }
            prop_assert!(guard.is_sorted());
        }
    }
}
