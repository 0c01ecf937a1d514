//! Detects which names the destination's file system treats as equal, with a probe file.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno as Code;

use super::sweep::{folds_names, open_folder_to_read};
use super::{nearest_folder, open_folder_at};
use crate::plan::folding::Folding;
use crate::plan::path::{NAMES_ENDING, OWN_PREFIX};
use crate::sys::descriptor::is_ours;

/// Creates a probe file in this folder, or in its nearest existing parent, looks it up by similar
/// names, and removes it. `None` if that is refused: the folding is unknown then.
///
/// The probe has the same name in every run, so that the next run removes one that a killed run
/// left; while another run has it locked, the name is random.
#[must_use]
pub fn folding(folder: &Path) -> Option<Folding> {
    let folder = open_folder_at(nearest_folder(folder)).ok()?;
    let others = [
        "A\u{e9}\u{df}",
        "a\u{c9}\u{df}",
        "ae\u{301}\u{df}",
        "a\u{e9}ss",
        "a\u{e9}\u{df}.",
        "a\u{e9}\u{df} ",
    ];
    match ask(&folder, "a\u{e9}\u{df}", others) {
        Ok([ascii_case, other_case, forms, expands, dots, spaces]) => {
            Some(Folding { ascii_case, other_case, forms, expands, dots, spaces })
        }
        // The file system allows ASCII names only.
        Err(Code::INVAL | Code::ILSEQ) => {
            let [ascii_case, dots, spaces] = ask(&folder, "a", ["A", "a.", "a "]).ok()?;
            Some(Folding { ascii_case, dots, spaces, ..Folding::default() })
        }
        Err(_) => None,
    }
}

/// Like [`folding`] without creating a file: tests the first name in the folder that contains a
/// letter. The result is all foldings or none.
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

/// For each of `others`: does the probe's stem with these letters open the probe named with
/// `letters`? No other file has its digits. Inode numbers are not compared, since some file systems
/// make one up per name.
fn ask<const COUNT: usize>(
    folder: &OwnedFd,
    letters: &str,
    others: [&str; COUNT],
) -> Result<[bool; COUNT], Code> {
    let open = |stem: &str, more: OFlags| {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
        rustix::fs::openat(folder, format!("{stem}{letters}"), flags, Mode::RUSR | Mode::WUSR)
    };
    let make = |stem: &str| open(stem, OFlags::CREATE | OFlags::EXCL);
    let stem = |number: u64| format!("{OWN_PREFIX}{number:016x}{NAMES_ENDING}");
    let lock = |file: &OwnedFd| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    let usual = match make(&stem(0)) {
        Err(Code::EXIST) => open(&stem(0), OFlags::empty()).and_then(|file| {
            lock(&file)?;
            if is_ours(&rustix::fs::fstat(&file)?) { Ok(file) } else { Err(Code::EXIST) }
        }),
        made => made.inspect(|file| {
            // Without a lock another run may take it for a leftover; then the folding is unknown.
            let _ = lock(file);
        }),
    };
    let (_file, stem) = match usual {
        Err(_) => {
            let stem = stem(fastrand::u64(1..));
            (make(&stem)?, stem)
        }
        Ok(file) => (file, stem(0)),
    };
    let name = |letters: &str| format!("{stem}{letters}");
    let is_there = |letters: &str| {
        let found = rustix::fs::statat(folder, name(letters), AtFlags::SYMLINK_NOFOLLOW);
        match found {
            Ok(_) => Ok(true),
            Err(Code::NOENT) => Ok(false),
            // Names may not end like this.
            Err(Code::INVAL) if letters.ends_with(['.', ' ']) => Ok(false),
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
    // No other run removed it before it was looked up.
    if was_there? { Ok(folds) } else { Err(Code::NOENT) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;
    use super::*;

    #[test]
    fn a_folder_that_distinguishes_names_is_left_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let none = Some(Folding::default());
        assert_eq!(folding(folder.path()), none);
        assert_eq!(folding(&folder.path().join("not/there")), none);
        assert_eq!(folding(Path::new("/proc/self")), None, "nothing can be made there");
        // Left by a killed run.
        let left = folder.path().join(".inrush-0000000000000000.names-a\u{e9}\u{df}");
        std::fs::write(left, "").expect("written");
        assert_eq!(folding(folder.path()), none);
        assert_eq!(names(folder.path()), Vec::<String>::new());
        // Another run is about to remove its own.
        let other = folder.path().join(".inrush-0000000000000000.names-a\u{e9}\u{df}");
        let flags = OFlags::CREATE | OFlags::RDWR;
        let other_file = rustix::fs::open(&other, flags, Mode::RUSR).expect("a file");
        rustix::fs::flock(&other_file, FlockOperation::LockExclusive).expect("nobody has it");
        assert_eq!(folding(folder.path()), none);
        assert!(other.exists());
        std::fs::remove_file(&other).expect("removed");
        for name in ["1", "Readme", "readme"] {
            assert_eq!(folding_seen(folder.path()), none);
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        assert_eq!(folding_seen(folder.path()), none, "two files");
        assert_eq!(names(folder.path()).len(), 3);
    }
}
