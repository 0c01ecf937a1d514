//! Names that a file system treats as equal: `Readme` and `readme` if it folds case, the two forms
//! of `é` (NFC, NFD) if it normalizes Unicode.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use unicode_normalization::UnicodeNormalization as _;

/// Which differences between names a file system ignores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Folding {
    /// Upper and lower case of ASCII letters.
    pub ascii_case: bool,
    /// Upper and lower case of other letters.
    pub other_case: bool,
    /// Composed and decomposed characters.
    pub forms: bool,
    /// One letter and several, such as `ß` and `ss`.
    pub expands: bool,
    /// Trailing dots (vfat, NTFS, SMB).
    pub dots: bool,
    /// Trailing spaces (NTFS, SMB).
    pub spaces: bool,
}

impl Folding {
    /// Every difference that any file system ignores.
    pub const ALL: Self = Self {
        ascii_case: true,
        other_case: true,
        forms: true,
        expands: true,
        dots: true,
        spaces: true,
    };

    /// True if no two names are equal.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The differences that at least one of two file systems ignores.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            ascii_case: self.ascii_case || other.ascii_case,
            other_case: self.other_case || other.other_case,
            forms: self.forms || other.forms,
            expands: self.expands || other.expands,
            dots: self.dots || other.dots,
            spaces: self.spaces || other.spaces,
        }
    }

    /// Includes all letters that a file system of this kind may treat as equal: for deciding what
    /// to keep, not what to refuse.
    #[must_use]
    pub fn widened(self) -> Self {
        Self { expands: self.expands || self.other_case, ..self }
    }

    /// The path's canonical form: equal for all paths that are equal to the file system.
    #[must_use]
    pub fn fold(self, path: &str) -> Cow<'_, str> {
        if self.is_none() {
            return path.into();
        }
        let trimmed = self.trim(path);
        let mut folded = if self.forms { trimmed.nfd().collect() } else { trimmed };
        if self.other_case && !self.expands {
            folded = folded.chars().map(lower).collect();
        } else if self.other_case {
            // Full case folding: `ß` becomes `ss`, through its upper case.
            let upper = folded.chars().flat_map(char::to_uppercase);
            folded = upper.flat_map(char::to_lowercase).collect();
        } else if self.ascii_case {
            folded.to_mut().make_ascii_lowercase();
        }
        if self.forms && self.other_case { folded.nfd().collect() } else { folded }
    }

    /// Removes the trailing dots and spaces of names that the file system ignores.
    fn trim(self, path: &str) -> Cow<'_, str> {
        let is_dropped =
            |letter: char| (self.dots && letter == '.') || (self.spaces && letter == ' ');
        let has_some = path.split('/').any(|name| name.ends_with(is_dropped));
        if !has_some {
            return path.into();
        }
        let names: Vec<&str> =
            path.split('/').map(|name| name.trim_end_matches(is_dropped)).collect();
        names.join("/").into()
    }
}

/// The lower case of a letter if that is one letter, otherwise the letter.
fn lower(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) => lower,
        _ => letter,
    }
}

/// The paths of a run, for a destination that treats some as equal.
#[derive(Debug)]
pub struct FoldedPaths {
    folding: Folding,
    /// Digests of the folded paths.
    seen: HashSet<u64>,
    state: RandomState,
}

impl FoldedPaths {
    /// An empty set; `None` if no two paths are equal.
    #[must_use]
    pub fn new(folding: Folding) -> Option<Self> {
        let (seen, state) = (HashSet::new(), RandomState::new());
        (!folding.is_none()).then_some(Self { folding, seen, state })
    }

    /// Adds a path; false if an equal one was added before.
    pub fn take(&mut self, path: &str) -> bool {
        self.seen.insert(self.state.hash_one(self.folding.fold(path)))
    }

    /// Number of paths added.
    #[must_use]
    pub fn count(&self) -> usize {
        self.seen.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_one_name_folds_to_one_path() {
        let none = Folding::default();
        let ascii = Folding { ascii_case: true, ..none };
        let all = Folding::ALL;
        let simple = Folding { ascii_case: true, other_case: true, ..none };
        let forms = Folding { forms: true, ..none };
        let dots = Folding { dots: true, ..none };
        for (one, other, foldings) in [
            ("Readme", "readme", &[ascii, simple, all][..]),
            ("d/\u{c9}t\u{e9}", "D/\u{e9}T\u{c9}", &[simple, all]),
            ("caf\u{e9}", "cafe\u{301}", &[forms, all]),
            ("CAF\u{c9}", "cafe\u{301}", &[all]),
            ("Stra\u{df}e", "STRASSE", &[all]),
            ("d./a.b..", "d/a.b", &[dots, all]),
            ("d /a .", "d/a", &[all]),
            ("a b", "ab", &[]),
            ("a", "b", &[]),
        ] {
            for folding in [none, ascii, forms, simple, dots, all] {
                let is_one = folding.fold(one) == folding.fold(other);
                assert_eq!(is_one, foldings.contains(&folding), "{one} {other} {folding:?}");
            }
        }
        assert_eq!(ascii.or(forms), Folding { ascii_case: true, forms: true, ..none });
        assert_eq!(simple.widened(), Folding { expands: true, ..simple });
        assert_eq!(ascii.widened(), ascii);
    }

    #[test]
    fn the_second_of_two_paths_that_are_one_is_found() {
        let mut paths = FoldedPaths::new(Folding { ascii_case: true, ..Folding::default() });
        let paths = paths.as_mut().expect("it folds");
        assert_eq!(["a/b", "c", "A/b"].map(|path| paths.take(path)), [true, true, false]);
        assert_eq!(paths.count(), 2);
        assert!(FoldedPaths::new(Folding::default()).is_none());
    }
}
