//! `--include` and `--exclude`: which relative paths move.
//!
//! Pure. A path moves if it matches any include, or there is none, and matches no exclude. The
//! order in which patterns are given has no meaning. A pattern without a slash is held against the
//! last name of the path, at any depth; one with a slash against the whole path, where a slash at
//! its start has no meaning of its own. `*` and `?` stay within one name, `**` crosses them. A
//! pattern that ends in a slash means everything below that folder.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::{Error, ErrorKind, Result};

/// How many patterns one run may have.
pub const PATTERNS_MAX: usize = 10_000;

/// Includes and excludes, compiled.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
}

impl Filter {
    /// Compiles the patterns as they were typed.
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self> {
        Ok(Self {
            include: compile("--include", include)?,
            exclude: compile("--exclude", exclude)?,
        })
    }

    /// Whether the object of this path moves; a folder's path comes without its last slash.
    #[must_use]
    pub fn takes(&self, relative: &str) -> bool {
        self.include.as_ref().is_none_or(|set| set.is_match(relative))
            && !self.exclude.as_ref().is_some_and(|set| set.is_match(relative))
    }
}

fn compile<S: AsRef<str>>(flag: &str, patterns: &[S]) -> Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    if patterns.len() > PATTERNS_MAX {
        let message = format!("{flag} is given {} times of at most {PATTERNS_MAX}", patterns.len());
        return Err(Error::new(ErrorKind::Usage, message));
    }
    let refuse = |pattern: &str, why: &dyn std::fmt::Display| {
        let shown: String = pattern.chars().take(200).flat_map(char::escape_debug).collect();
        Error::new(ErrorKind::Usage, format!("{flag} '{shown}' is not a pattern: {why}"))
            .advise("expected a glob such as '*.tar' or 'train/**/part-[0-9]*'")
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.as_ref();
        if pattern.is_empty() {
            return Err(refuse(pattern, &"it is empty"));
        }
        let glob = GlobBuilder::new(&anchored(pattern))
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| refuse(pattern, error.kind()))?;
        set.add(glob);
    }
    let set = set.build().map_err(|error| refuse("all together", error.kind()))?;
    Ok(Some(set))
}

/// The pattern as it is held against whole paths.
fn anchored(pattern: &str) -> String {
    let below = if pattern.ends_with('/') { "**" } else { "" };
    if pattern.contains('/') {
        format!("{}{below}", pattern.trim_start_matches('/'))
    } else {
        format!("**/{pattern}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_moves() {
        let check = |include: &[&str], exclude: &[&str], path: &str, expected: bool| {
            let filter = Filter::new(include, exclude).expect("good patterns");
            assert_eq!(filter.takes(path), expected, "{include:?} {exclude:?} {path}");
        };
        check(&[], &[], "a/b", true);
        check(&["*.tar"], &[], "x.tar", true);
        check(&["*.tar"], &[], "a/b/x.tar", true);
        check(&["*.tar"], &[], "a/x.tar.gz", false);
        check(&["a/*.tar"], &[], "a/x.tar", true);
        check(&["/a/*.tar"], &[], "a/x.tar", true);
        check(&["a/*.tar"], &[], "a/b/x.tar", false);
        check(&["a/*.tar"], &[], "b/a/x.tar", false);
        check(&["a/**/*.tar"], &[], "a/b/c/x.tar", true);
        check(&["a/"], &[], "a/b/c", true);
        check(&["a/"], &[], "b/a/c", false);
        check(&["*.tar", "*.idx"], &[], "a.idx", true);
        check(&["*.tar"], &["b*"], "b.tar", false);
        check(&[], &["b*"], "a/b.tar", false);
        check(&[], &["b*"], "a/c", true);
        check(&[], &["*"], "a/c", false);
        check(&[], &["{a,b}.txt"], "b.txt", false);
    }

    #[test]
    fn bad_patterns_are_refused() {
        let check = |pattern: &str, expected: &str| {
            let error = Filter::new(&[pattern], &[]).expect_err("a bad pattern");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(expected), "{error}");
        };
        check("", "--include '' is not a pattern: it is empty");
        check("a[", "--include 'a[' is not a pattern");
    }
}
