//! Gives files their final names.
//!
//! A file that is complete gets its name in one step, so that no other process sees a part of it.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FlockOperation};
use rustix::io::Errno as Code;

use super::{Folders, marks, parts};

/// A temporary name that no object's file can have.
pub(super) fn temporary_name(random: u64) -> String {
    format!(".inrush-{random:016x}.tmp")
}

impl Folders {
    /// Gives a file its final name atomically; replaces an older file of that name.
    pub(super) fn rename(
        &mut self,
        folder: &OwnedFd,
        file: BorrowedFd<'_>,
        temporary: &str,
        name: &str,
        random: u64,
    ) -> Result<(), Code> {
        if !temporary.is_empty() {
            return rustix::fs::renameat(folder, temporary, folder, name);
        }
        match self.link(folder, file, name) {
            Err(Code::EXIST) => {}
            outcome => return outcome,
        }
        // linkat(2) does not replace: link under a temporary name, then rename.
        let beside = self.link_beside(folder, file, name, random)?;
        rustix::fs::renameat(folder, &beside, folder, name).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(folder, &beside, AtFlags::empty());
        })
    }

    /// Links a file under a temporary name, and returns the name. It is derived from the final name
    /// if possible, and the file is locked: so the next replacement finds and removes what a killed
    /// process or a power failure has left, and nothing that a process is working on. Otherwise it
    /// is random, because process IDs repeat between containers.
    fn link_beside(
        &mut self,
        folder: &OwnedFd,
        file: BorrowedFd<'_>,
        name: &str,
        random: u64,
    ) -> Result<String, Code> {
        let derived = temporary_name(marks::digest(name));
        if rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let mut linked = self.link(folder, file, &derived);
            if linked == Err(Code::EXIST) && parts::remove_left(folder, &derived) {
                linked = self.link(folder, file, &derived);
            }
            if linked != Err(Code::EXIST) {
                return linked.map(|()| derived);
            }
        }
        let beside = temporary_name(random);
        self.link(folder, file, &beside).map(|()| beside)
    }

    fn link(&mut self, folder: &OwnedFd, file: BorrowedFd<'_>, name: &str) -> Result<(), Code> {
        if self.by_descriptor {
            match rustix::fs::linkat(file, "", folder, name, AtFlags::EMPTY_PATH) {
                // Older kernels require CAP_DAC_READ_SEARCH and return ENOENT (linkat(2)).
                Err(Code::NOENT | Code::PERM) => self.by_descriptor = false,
                outcome => return outcome,
            }
        }
        link_unnamed(file, folder, name)
    }
}

/// Names an unnamed file, by way of /proc (open(2), `O_TMPFILE`).
///
/// # Errors
/// EEXIST if there is a file of this name, and others of linkat(2).
pub fn link_unnamed(file: BorrowedFd<'_>, folder: &OwnedFd, name: &str) -> Result<(), Code> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, unnamed, folder, name, AtFlags::SYMLINK_FOLLOW)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{machine, names, object};
    use super::*;

    #[test]
    fn what_was_to_replace_a_file_goes_with_the_next_replacement_unless_it_is_locked() {
        let folder = tempfile::tempdir().expect("a folder");
        let beside = temporary_name(marks::digest("a"));
        let mut machine = machine(folder.path());
        machine.write_whole(&object("a", 3), b"one").expect("written");
        std::fs::write(folder.path().join(&beside), "killed before its rename").expect("written");
        machine.write_whole(&object("a", 3), b"two").expect("written");
        assert_eq!(names(folder.path()), ["a"]);
        std::fs::write(folder.path().join(&beside), "of another process").expect("written");
        let held = std::fs::OpenOptions::new().write(true).open(folder.path().join(&beside));
        let held = OwnedFd::from(held.expect("there"));
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
        machine.write_whole(&object("a", 3), b"six").expect("written");
        assert_eq!(names(folder.path()), [beside.as_str(), "a"]);
        assert_eq!(std::fs::read(folder.path().join("a")).expect("there"), b"six");
    }
}
