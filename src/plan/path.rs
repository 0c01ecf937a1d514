//! A key's path below the destination, checked so that no key can leave it.
//!
//! Pure: checks only names. [`crate::files`] handles links and files that exist at the destination.

use std::fmt;

/// Longest file or folder name on Linux, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path on Linux in bytes, including the final NUL.
pub const PATH_BYTES_MAX: usize = 4096;

/// Prefix of inrush's own files at a destination.
pub const OWN_PREFIX: &str = ".inrush-";

/// Follows the prefix and the digits in the name of a probe file that is looked up by other names.
pub const NAMES_ENDING: &str = ".names-";

/// True if inrush uses this name for its own files at a destination: no object's file may have it.
#[must_use]
pub fn is_own(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(OWN_PREFIX) else { return false };
    let (digits, ending) = rest.split_at_checked(16).unwrap_or(("", rest));
    let hexadecimal = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    hexadecimal
        && match ending {
            "index" => digits.is_empty(),
            ".part" | ".journal" | ".tmp" => !digits.is_empty(),
            _ => !digits.is_empty() && ending.starts_with(NAMES_ENDING),
        }
}

/// A path below the destination: names separated by single slashes, none of them `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath(String);

impl RelativePath {
    /// Checks a path from an untrusted key.
    pub fn parse(relative: &str) -> Result<Self, PathProblem> {
        if relative.starts_with('/') {
            return Err(PathProblem::Absolute);
        }
        if relative.len() >= PATH_BYTES_MAX {
            return Err(PathProblem::PathTooLong);
        }
        for name in relative.split('/') {
            match name {
                "" => return Err(PathProblem::EmptySegment),
                "." | ".." => return Err(PathProblem::DotSegment),
                _ if name.contains('\0') => return Err(PathProblem::Nul),
                _ if is_own(name) => return Err(PathProblem::OwnName),
                _ if name.len() > NAME_BYTES_MAX => return Err(PathProblem::NameTooLong),
                _ => {}
            }
        }
        Ok(Self(relative.to_owned()))
    }

    /// The path with its slashes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<std::path::Path> for RelativePath {
    fn as_ref(&self) -> &std::path::Path {
        self.0.as_ref()
    }
}

/// Why an object cannot have a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathProblem {
    /// The path starts with a slash.
    Absolute,
    /// A segment is `.` or `..`.
    DotSegment,
    /// Two sources have the same path.
    Duplicate {
        /// Index of the first source.
        first: usize,
        /// Index of the other source.
        again: usize,
    },
    /// Two consecutive slashes, or an empty path.
    EmptySegment,
    /// A parent of the path is a file: `a` and `a/b`.
    FileAndFolder {
        /// Index of the source of the file.
        file: usize,
        /// Index of the source of the path below it.
        below: usize,
    },
    /// The key ends in a slash like a folder, but the object has bytes.
    FolderWithBytes,
    /// A name is longer than file systems allow.
    NameTooLong,
    /// A NUL in the path.
    Nul,
    /// A name that inrush uses for its own files.
    OwnName,
    /// The path is longer than the kernel allows.
    PathTooLong,
    /// Another key of a literal prefix without a trailing slash has the same path.
    SharedPath,
}

impl PathProblem {
    /// The problem and its remedy, in one line.
    #[must_use]
    pub fn explain(self) -> String {
        self.explain_with(Remedy::Exclude)
    }

    /// [`Self::explain`], with a remedy that the command has.
    #[must_use]
    pub fn explain_with(self, remedy: Remedy) -> String {
        let (one, either) = (remedy.for_one(), remedy.for_either());
        match self {
            Self::Absolute => format!("the key is an absolute path: {one}"),
            Self::DotSegment => format!(
                "the key has a '.' or '..' between slashes and could leave the destination: {one}"
            ),
            Self::Duplicate { first, again } if first == again => {
                "the source lists the same path twice: run it again, and if that does not help, \
                 check the server"
                    .into()
            }
            Self::Duplicate { first, again } => format!(
                "sources {} and {} both have this path: give each its own destination",
                first + 1,
                again + 1
            ),
            Self::EmptySegment => {
                format!("the key has an empty name between two slashes: {one}")
            }
            Self::FileAndFolder { file, below } if file == below => {
                format!("another key is a file where this key needs a folder: {either}")
            }
            Self::FileAndFolder { file, below } => format!(
                "source {} has a file where this key of source {} needs a folder: give each a \
                 separate destination",
                file + 1,
                below + 1
            ),
            Self::FolderWithBytes => {
                format!("the key ends in a slash like a folder, but the object is not empty: {one}")
            }
            Self::NameTooLong => format!(
                "a name in the key has more than {NAME_BYTES_MAX} bytes, which is too long for a \
                 file name: {one}"
            ),
            Self::Nul => format!("the key contains a NUL byte, which a file name cannot: {one}"),
            Self::OwnName => {
                format!(
                    "a name in the key is reserved for inrush's own files, {OWN_PREFIX}*: {one}"
                )
            }
            Self::PathTooLong => format!(
                "the path has {PATH_BYTES_MAX} bytes or more, which is too long for a path: {one}"
            ),
            Self::SharedPath => format!(
                "another key in the folder of the prefix has the same path: end the prefix in a \
                 slash, or {either}"
            ),
        }
    }
}

/// How a key that has no file is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// By an option of the command.
    Exclude,
    /// The channels of a training job have no filter.
    Copy,
}

impl Remedy {
    /// For one object.
    const fn for_one(self) -> &'static str {
        match self {
            Self::Exclude => "use --exclude",
            Self::Copy => "copy the object to another key, and name that by a manifest",
        }
    }

    /// For either of two.
    const fn for_either(self) -> &'static str {
        match self {
            Self::Exclude => "use --exclude for one of them",
            Self::Copy => "name one of them by a manifest",
        }
    }
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    #[test]
    fn own_names_are_refused() {
        for own in [
            ".inrush-index",
            ".inrush-0123456789abcdef.part",
            ".inrush-0123456789abcdef.journal",
            ".inrush-0123456789abcdef.tmp",
            ".inrush-0123456789abcdef.names-a\u{e9}",
        ] {
            let refused = RelativePath::parse(&format!("a/{own}"));
            assert_eq!(refused, Err(PathProblem::OwnName), "{own}");
        }
        for other in [
            ".inrush",
            ".inrush-",
            ".inrush-index.txt",
            ".inrush-0123456789abcdefindex",
            ".inrush-0123456789abcdef.part.txt",
            ".inrush-0123456789ABCDEF.part",
            ".inrush-0123456789abcde.part",
            ".inrush-.part",
            ".inrush-.names-a",
            "a.inrush-0123456789abcdef.part",
        ] {
            assert!(RelativePath::parse(other).is_ok(), "{other}");
        }
    }

    #[test]
    fn paths() {
        let check = |relative: &str, expected: Result<(), PathProblem>| {
            assert_eq!(RelativePath::parse(relative).map(|_| ()), expected, "{relative:?}");
        };
        check("a", Ok(()));
        check("a/b c/…/ü", Ok(()));
        check("...", Ok(()));
        check("a/..b/c..", Ok(()));
        check("a\\b\nc", Ok(()));
        check(&"n".repeat(255), Ok(()));
        check("", Err(PathProblem::EmptySegment));
        check("/", Err(PathProblem::Absolute));
        check("/etc/passwd", Err(PathProblem::Absolute));
        check("a//b", Err(PathProblem::EmptySegment));
        check("a/", Err(PathProblem::EmptySegment));
        check("..", Err(PathProblem::DotSegment));
        check("a/../../b", Err(PathProblem::DotSegment));
        check("a/./b", Err(PathProblem::DotSegment));
        check("a\0b", Err(PathProblem::Nul));
        check(&"n".repeat(256), Err(PathProblem::NameTooLong));
        check(&"ü".repeat(128), Err(PathProblem::NameTooLong));
        check(&"n/".repeat(2_048), Err(PathProblem::PathTooLong));
    }

    #[test]
    fn problems_are_one_line() {
        for problem in [
            PathProblem::Absolute,
            PathProblem::DotSegment,
            PathProblem::Duplicate { first: 0, again: 0 },
            PathProblem::Duplicate { first: 0, again: 2 },
            PathProblem::EmptySegment,
            PathProblem::FileAndFolder { file: 0, below: 0 },
            PathProblem::FileAndFolder { file: 1, below: 0 },
            PathProblem::FolderWithBytes,
            PathProblem::NameTooLong,
            PathProblem::Nul,
            PathProblem::PathTooLong,
            PathProblem::SharedPath,
        ] {
            let line = problem.explain();
            assert!(!line.contains('\n') && !line.contains("  ") && !line.ends_with('.'), "{line}");
        }
        let both = PathProblem::Duplicate { first: 0, again: 2 }.explain();
        assert!(both.contains("sources 1 and 3"), "{both}");
    }

    proptest! {
        // The failing input is printed; it becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_key_leaves_the_destination(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["..", ".", "/", "//", "a", "ü", "\0", "..a", "\\"]),
                0..12,
            ),
        ) {
            let relative = pieces.concat();
            if let Ok(path) = RelativePath::parse(&relative) {
                prop_assert_eq!(path.as_str(), &relative);
                let path: &Path = path.as_ref();
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                let names: Vec<_> = path.iter().filter_map(|name| name.to_str()).collect();
                prop_assert_eq!(names.join("/"), relative);
            } else {
                let bad = |name: &str| matches!(name, "" | "." | "..") || name.contains('\0');
                prop_assert!(relative.split('/').any(bad));
            }
        }
    }
}
