//! Which names the file system of a destination takes for one, found out by a file that has one of
//! them.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno as Code;

use super::sweep::{folds_names, open_folder_to_read};
use super::{nearest_folder, open_folder_at};
use crate::plan::folding::Folding;
use crate::plan::path::{NAMES_ENDING, OWN_PREFIX};

/// Makes a file in this folder, or in the nearest above it that is there, looks it up by other
/// names, and removes it. `None` where that is refused: then it is not known.
#[must_use]
pub fn folding(folder: &Path) -> Option<Folding> {
    let folder = open_folder_at(nearest_folder(folder)).ok()?;
    let stem = format!("{OWN_PREFIX}{:016x}{NAMES_ENDING}", fastrand::u64(..));
    let others = ["A\u{e9}\u{df}", "a\u{c9}\u{df}", "ae\u{301}\u{df}", "a\u{e9}ss"];
    match ask(&folder, &stem, "a\u{e9}\u{df}", others) {
        Ok([ascii_case, other_case, forms, expands]) => {
            Some(Folding { ascii_case, other_case, forms, expands })
        }
        // It cannot have a name beyond ASCII.
        Err(Code::INVAL | Code::ILSEQ) => {
            let [ascii_case] = ask(&folder, &stem, "a", ["A"]).ok()?;
            Some(Folding { ascii_case, ..Folding::default() })
        }
        Err(_) => None,
    }
}

/// The same without making a file, by the first name in the folder that has another case: all
/// names are folded, or none.
#[must_use]
pub fn folding_seen(folder: &Path) -> Option<Folding> {
    let folder = open_folder_to_read(&open_folder_at(folder).ok()?, ".").ok()?;
    for entry in Dir::read_from(&folder).ok()? {
        let entry = entry.ok()?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.bytes().any(|byte| byte.is_ascii_alphabetic()) {
            let folds = folds_names(&folder, name);
            return Some(if folds { Folding::ALL } else { Folding::default() });
        }
    }
    Some(Folding::default())
}

/// Which of these letters at the end of a name lead to the file whose name has that one. No other
/// file has its random digits: inode numbers are not compared, which some file systems make up for
/// each name.
fn ask<const COUNT: usize>(
    folder: &OwnedFd,
    stem: &str,
    letters: &str,
    others: [&str; COUNT],
) -> Result<[bool; COUNT], Code> {
    let name = |letters: &str| format!("{stem}{letters}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    drop(rustix::fs::openat(folder, name(letters), flags, Mode::RUSR | Mode::WUSR)?);
    let is_there = |letters: &str| {
        let found = rustix::fs::statat(folder, name(letters), AtFlags::SYMLINK_NOFOLLOW);
        match found {
            Ok(_) => Ok(true),
            Err(Code::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    };
    let found = others.map(is_there);
    let was_there = is_there(letters);
    let _ = rustix::fs::unlinkat(folder, name(letters), AtFlags::empty());
    let mut folds = [false; COUNT];
    for (folds, found) in folds.iter_mut().zip(found) {
        *folds = found?;
    }
    // Nobody removed it before it was looked up.
    if was_there? { Ok(folds) } else { Err(Code::NOENT) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;
    use super::*;

    #[test]
    fn a_folder_that_tells_names_apart_is_left_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let none = Some(Folding::default());
        assert_eq!(folding(folder.path()), none);
        assert_eq!(folding(&folder.path().join("not/there")), none);
        assert_eq!(folding(Path::new("/proc/self")), None, "nothing can be made there");
        assert_eq!(names(folder.path()), Vec::<String>::new());
        for name in ["1", "Readme", "readme"] {
            assert_eq!(folding_seen(folder.path()), none);
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        assert_eq!(folding_seen(folder.path()), none, "two files");
        assert_eq!(names(folder.path()).len(), 3);
    }
}
