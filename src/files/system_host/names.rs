//! Which names the file system of a destination takes for one, found out by a file that has one of
//! them.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno as Code;

use super::{nearest_folder, open_folder_at};
use crate::plan::folding::Folding;
use crate::plan::path::OWN_PREFIX;

/// Makes a file in this folder, or in the nearest above it that is there, looks it up by other
/// names, and removes it. Where none can be made, no names are one.
#[must_use]
pub fn folding(folder: &Path) -> Folding {
    let Ok(folder) = open_folder_at(nearest_folder(folder)) else { return Folding::default() };
    let stem = format!("{OWN_PREFIX}{:016x}", fastrand::u64(..));
    match ask(&folder, &stem, "a\u{e9}", ["A\u{e9}", "a\u{c9}", "ae\u{301}"]) {
        Ok([ascii_case, other_case, forms]) => Folding { ascii_case, other_case, forms },
        // It cannot have a name beyond ASCII.
        Err(Code::INVAL | Code::ILSEQ) => ask(&folder, &stem, "a", ["A"])
            .map(|[ascii_case]| Folding { ascii_case, ..Folding::default() })
            .unwrap_or_default(),
        Err(_) => Folding::default(),
    }
}

/// Which of these letters at the end of a name lead to the file whose name has that one.
fn ask<const COUNT: usize>(
    folder: &OwnedFd,
    stem: &str,
    letter: &str,
    others: [&str; COUNT],
) -> Result<[bool; COUNT], Code> {
    let name = |letter: &str| format!("{stem}-{letter}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name(letter), flags, Mode::RUSR | Mode::WUSR)?;
    let ours = rustix::fs::fstat(&file).map(|stat| (stat.st_dev, stat.st_ino));
    let is_it = |other: &str| {
        let found = rustix::fs::statat(folder, name(other), AtFlags::SYMLINK_NOFOLLOW);
        found.map(|stat| (stat.st_dev, stat.st_ino)) == ours
    };
    let found = others.map(is_it);
    let _ = rustix::fs::unlinkat(folder, name(letter), AtFlags::empty());
    Ok(if ours.is_ok() { found } else { [false; COUNT] })
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;
    use super::*;

    #[test]
    fn a_folder_that_tells_names_apart_is_left_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(folding(folder.path()).is_none());
        assert!(folding(&folder.path().join("not/there")).is_none());
        assert!(folding(Path::new("/proc/self")).is_none(), "nothing can be made there");
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
