//! `--include` and `--exclude`: which relative paths are transferred.
//!
//! Pure. As in the AWS CLI, filters apply in the order typed, and the last match decides. Without a
//! match a path is transferred, unless the first filter is an `--include`.
//!
//! A pattern without a slash is compared with every name of the path, at any depth; one with a
//! slash with the path from its start, where a leading slash is ignored. A trailing slash only
//! means that it is a folder (as in gitignore(5) and rsync(1)). `*` and `?` stay within one name,
//! `**` crosses names. A match of a folder applies to everything below it: `/img` and `img/*` mean
//! the folder `img` at the top, and `img/` any folder of that name.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;
use crate::text::glob::{Glob, GlobSet};

/// Most patterns of one run.
pub const PATTERNS_MAX: usize = 10_000;

/// One filter as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// `--include`: transfer what matches.
    Include(String),
    /// `--exclude`: do not transfer what matches.
    Exclude(String),
}

impl Rule {
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Include(pattern) => ("--include", pattern),
            Self::Exclude(pattern) => ("--exclude", pattern),
        }
    }
}

/// Includes and excludes, compiled.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    set: GlobSet,
    /// For each glob of the set, in the order typed: whether a match is transferred.
    takes: Vec<bool>,
    /// Paths that are not transferred, whatever they match.
    except: Arc<BTreeSet<String>>,
}

impl Filter {
    /// Compiles the filters in the order typed.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if one is not a pattern, or there are more than [`PATTERNS_MAX`].
    pub fn new(rules: &[Rule]) -> Result<Self> {
        if rules.len() > PATTERNS_MAX {
            let message = format!(
                "{} --include and --exclude options, but at most {PATTERNS_MAX} are supported",
                rules.len()
            );
            return Err(Error::new(ErrorKind::Usage, message));
        }
        let mut globs = Vec::new();
        let mut takes = Vec::new();
        for rule in rules {
            let (flag, pattern) = rule.parts();
            let anchored =
                anchored(pattern).ok_or_else(|| refusal(flag, pattern, &"it is empty"))?;
            // A folder's path ends in a slash, so the first glob matches a folder and everything
            // below it.
            let itself = (!pattern.ends_with('/')).then(|| anchored.clone());
            for text in [Some(format!("{anchored}/**")), itself].into_iter().flatten() {
                let glob = Glob::new(&text);
                globs.push(glob.map_err(|error| refusal(flag, pattern, error.kind()))?);
                takes.push(matches!(rule, Rule::Include(_)));
            }
        }
        let set = GlobSet::new(globs).map_err(|why| refusal("a filter", "all together", &why))?;
        Ok(Self { set, takes, except: Arc::default() })
    }

    /// True if there is no filter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.takes.is_empty() && self.except.is_empty()
    }

    /// Leaves out these paths, too.
    #[must_use]
    pub fn except(self, paths: BTreeSet<String>) -> Self {
        Self { except: Arc::new(paths), ..self }
    }

    /// True if the object of this path is transferred; a folder's path ends in a slash.
    #[must_use]
    pub fn takes(&self, relative: &str) -> bool {
        if self.except.contains(relative) {
            return false;
        }
        let Some(first) = self.takes.first() else { return true };
        self.set.last_match(relative).map_or(!first, |index| self.takes[index])
    }
}

fn refusal(flag: &str, pattern: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, format!("{flag} '{}' is not a pattern: {why}", shown(pattern)))
        .advise("expected a glob such as '*.tar' or 'train/**/part-[0-9]*'")
}

/// The pattern for comparison with whole paths, without a trailing slash; `None` if it is empty.
fn anchored(pattern: &str) -> Option<String> {
    let path = pattern.trim_start_matches('/').trim_end_matches('/');
    match pattern {
        "" => None,
        // The top folder and everything below it.
        _ if path.is_empty() => Some("**".to_owned()),
        _ if pattern.starts_with('/') || path.contains('/') => Some(path.to_owned()),
        _ => Some(format!("**/{path}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` marks an include, `-` an exclude.
    fn filter(typed: &str) -> Filter {
        let rule = |word: &str| match word.split_at(1) {
            ("+", pattern) => Rule::Include(pattern.to_owned()),
            (_, pattern) => Rule::Exclude(pattern.to_owned()),
        };
        let rules: Vec<Rule> = typed.split_whitespace().map(rule).collect();
        Filter::new(&rules).expect("good patterns")
    }

    fn check(typed: &str, path: &str, expected: bool) {
        assert_eq!(filter(typed).takes(path), expected, "{typed} {path}");
    }

    #[test]
    fn who_moves() {
        check("", "a/b", true);
        check("+*.tar", "x.tar", true);
        check("+*.tar", "a/b/x.tar", true);
        check("+*.tar", "a/x.tar.gz", false);
        check("+a/*.tar", "a/x.tar", true);
        check("+/a/*.tar", "a/x.tar", true);
        check("+a/*.tar", "a/b/x.tar", false);
        check("+a/*.tar", "b/a/x.tar", false);
        check("+a/**/*.tar", "a/b/c/x.tar", true);
        check("+a/", "a/b/c", true);
        check("+a/", "b/a/c", true);
        check("+a/", "a", false);
        check("+a/b/", "a/b/c", true);
        check("+a/b/", "a/b", false);
        check("+a/b/", "x/a/b/c", false);
        check("+*.tar +*.idx", "a.idx", true);
        check("-b*", "a/b.tar", false);
        check("-b*", "a/c", true);
        check("-*", "a/c", false);
        check("-/", "a/c", false);
        check("-**", "a/c", false);
        check("-{a,b}.txt", "b.txt", false);
        check(r"-\[1\].txt", "[1].txt", false);
        check("-[!0-9].txt", "x/1.txt", true);
        check("-?br.txt", "x/übr.txt", false);
        check("-[é]*", "ô9.txt", true);
    }

    #[test]
    fn the_last_that_matches_decides() {
        check("-* +*.tar", "a/x.tar", true);
        check("-* +*.tar", "a/x.idx", false);
        check("+*.tar -*", "a/x.tar", false);
        check("+*.tar -b*", "b.tar", false);
        check("-b* +*.tar", "b.tar", true);
        // The first filter decides about paths that no filter matches.
        check("-b* +*.tar", "c.txt", true);
        check("+*.tar -b*", "c.txt", false);
        check("-* +a/ -*.tmp", "a/x", true);
        check("-* +a/ -*.tmp", "a/x.tmp", false);
        check("-img +img/keep.txt", "img/keep.txt", true);
    }

    #[test]
    fn a_folder_counts_for_all_below_it() {
        for typed in ["-img", "-img/", "-/img", "-img/*", "-img/**"] {
            for (path, left) in
                [("img/", false), ("img/a", false), ("img/a/b", false), ("imgs/a", true)]
            {
                check(typed, path, left);
            }
            // Only a pattern without a slash, or with only a trailing one, matches at every depth.
            check(typed, "x/img/a", !["-img", "-img/"].contains(&typed));
        }
        check("+*.d", "x/y.d/z", true);
        check("-/img/", "x/img/", true);
    }

    #[test]
    fn a_path_that_is_left_out_matches_nothing() {
        let filter = filter("+*.tar").except(BTreeSet::from(["a/x.tar".to_owned()]));
        assert!(filter.takes("a/y.tar") && filter.takes("x.tar") && !filter.takes("a/x.tar"));
        let filter = Filter::default().except(BTreeSet::from(["x".to_owned()]));
        assert!(!filter.is_empty() && filter.takes("y") && !filter.takes("x"));
    }

    #[test]
    fn bad_patterns_are_refused() {
        let check = |pattern: &str, expected: &str| {
            let rules = [Rule::Include(pattern.to_owned())];
            let error = Filter::new(&rules).expect_err("a bad pattern");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(expected), "{error}");
        };
        check("", "--include '' is not a pattern: it is empty");
        check("a[", "--include 'a[' is not a pattern");
        check("a\\", "is not a pattern");
        let many = vec![Rule::Exclude("a".to_owned()); PATTERNS_MAX + 1];
        let error = Filter::new(&many).expect_err("too many");
        let expected = "10001 --include and --exclude options, but at most 10000";
        assert!(error.to_string().contains(expected), "{error}");
    }
}
