//! A lock on a file, so that only one process serves a channel. The base folder of a training job
//! has a lock of this kind, too.
//!
//! The holder of the lock (flock(2)) on `.inrush-CHANNEL.lock` owns the channel's pipes. The kernel
//! releases it when its holder dies in any way: a file left by a killed run locks nobody out.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno as Code;

use super::fifos::{is_named, stat_identity};
use crate::error::{Error, ErrorKind};
use crate::limits::{CHANNEL_LOCK_LOOKS_MAX, LOCK_PAUSE};
use crate::plan::path::OWN_PREFIX;
use crate::sys::descriptor::is_ours;

/// Permissions of a lock file, before the umask.
const LOCK_MODE: Mode = Mode::from_raw_mode(0o666);
/// How many times a lock file may vanish between opening and locking before that is an error.
const VANISHED_MAX: u32 = 100;

/// A lock on a file of a folder, held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    folder: Arc<OwnedFd>,
    name: String,
    file: OwnedFd,
    /// An earlier holder has left the file: it was killed.
    was_left: bool,
}

/// Why a lock was not taken; nothing was changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotLocked {
    /// Another process has it, with this PID if known.
    Taken(Option<u32>),
    /// The file system has no locks.
    Unsupported,
    /// The file of this name is not regular.
    NotRegular,
    /// The file cannot be used: what was tried, and the error.
    Unusable(&'static str, Code),
}

impl FileLock {
    /// Takes the lock on the file of this name.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn take(folder: &Arc<OwnedFd>, name: &str) -> Result<Self, NotLocked> {
        Self::take_by(folder, name, |file| {
            rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
        })
    }

    fn take_by(
        folder: &Arc<OwnedFd>,
        name: &str,
        lock: impl Fn(&OwnedFd) -> Result<(), Code>,
    ) -> Result<Self, NotLocked> {
        let mut looks = CHANNEL_LOCK_LOOKS_MAX;
        for _ in 0..VANISHED_MAX {
            let (file, is_ours) = match open(folder, name) {
                Ok(Some(opened)) => opened,
                Ok(None) => return Err(NotLocked::NotRegular),
                // It was removed in between.
                Err(Code::EXIST) => continue,
                Err(errno) => return Err(NotLocked::Unusable("open", errno)),
            };
            match locked(&file, &lock, &mut looks) {
                Ok(()) => {}
                Err(Code::WOULDBLOCK) => return Err(NotLocked::Taken(holder(&file))),
                Err(Code::NOSYS | Code::OPNOTSUPP | Code::NOLCK) => {
                    remove(folder, name, &file);
                    return Err(NotLocked::Unsupported);
                }
                Err(errno) => return Err(NotLocked::Unusable("lock", errno)),
            }
            // Its holder may have removed it before releasing it: then it locks nobody out.
            if !is_named(folder, name, stat_identity(&file)) {
                continue;
            }
            let was_left = is_ours && rustix::fs::fstat(&file).is_ok_and(|found| found.st_size > 0);
            // Without the PID a second run cannot name this one; nothing else depends on it.
            if is_ours {
                let number = format!("{}\n", std::process::id());
                let _ = rustix::fs::ftruncate(&file, 0);
                // The length first: after a power failure the file may have lost what was written,
                // but not its length, which says that it was left.
                let _ = rustix::fs::ftruncate(&file, number.len() as u64);
                let _ = rustix::io::pwrite(&file, number.as_bytes(), 0);
            }
            let (folder, name) = (Arc::clone(folder), name.to_owned());
            return Ok(Self { folder, name, file, was_left });
        }
        Err(NotLocked::Unusable("lock", Code::AGAIN))
    }
}

impl Drop for FileLock {
    /// Removes the file while it is still locked: processes that have opened it see that it is
    /// gone.
    fn drop(&mut self) {
        remove(&self.folder, &self.name, &self.file);
    }
}

/// The holder of a lock, in words.
#[must_use]
pub fn holder_in_words(number: Option<u32>) -> String {
    number.map_or_else(
        || "another process".to_owned(),
        |number| format!("another process (pid {number})"),
    )
}

/// Why a lock file is not used ([`NotLocked::NotRegular`]), in words.
#[must_use]
pub fn not_regular_in_words(name: &str) -> String {
    format!("{name} is not used as lock file: it is no regular file")
}

/// The right to serve a channel, held until it is dropped.
#[derive(Debug)]
pub struct ChannelLock(FileLock);

impl ChannelLock {
    /// Takes the lock of a channel in this folder; `None` if the file system has no locks.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if another process serves the channel, or the lock file cannot be
    /// used; then nothing was changed.
    pub fn take(folder: &Arc<OwnedFd>, channel: &str) -> Result<Option<Self>, Error> {
        let name = name_of(channel);
        Self::of(FileLock::take(folder, &name), &name)
    }

    /// True if an earlier run of the channel was killed: then its pipes may exist.
    pub(super) fn was_left(&self) -> bool {
        self.0.was_left
    }

    fn of(taken: Result<FileLock, NotLocked>, name: &str) -> Result<Option<Self>, Error> {
        let (message, advice) = match taken {
            Ok(lock) => return Ok(Some(Self(lock))),
            Err(NotLocked::Unsupported) => return Ok(None),
            Err(NotLocked::Taken(number)) => (
                format!("{} serves this channel and has locked {name}", holder_in_words(number)),
                "wait for it, end it, or give another folder or channel name",
            ),
            Err(NotLocked::NotRegular) => (
                not_regular_in_words(name),
                "remove it if no run serves the channel, or give another folder or channel name",
            ),
            Err(NotLocked::Unusable(_, Code::ROFS)) => (
                "the folder is on a read-only file system".to_owned(),
                "give a folder on another one, or remount it read-write (mount -o remount,rw)",
            ),
            Err(NotLocked::Unusable(_, errno @ (Code::ACCESS | Code::PERM))) => {
                (format!("no files can be made in the folder: {errno}"), "give a writable folder")
            }
            Err(NotLocked::Unusable(what, errno)) => (
                format!("cannot {what} {name}: {errno}"),
                "give a writable folder, or remove it if no run serves the channel",
            ),
        };
        Err(Error::new(ErrorKind::Destination, message).advise(advice))
    }
}

/// Name of a channel's lock file.
fn name_of(channel: &str) -> String {
    format!("{OWN_PREFIX}{channel}.lock")
}

/// Opens the lock file, creating it if needed, without changing it. `None`:
/// [`NotLocked::NotRegular`]. Also returns whether it may be written to: the content of another
/// user's file, or of one with a second hard link, may be needed. Such a file still locks others
/// out, as on a server that shows this user's files as another's.
///
/// # Errors
/// [`Code::EXIST`] if it is gone again.
fn open(folder: &OwnedFd, name: &str) -> Result<Option<(OwnedFd, bool)>, Code> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let new = flags | OFlags::CREATE | OFlags::EXCL;
    match rustix::fs::openat(folder, name, new, LOCK_MODE) {
        // Ours, even if a server assigns it to nobody.
        Ok(file) => return Ok(Some((file, true))),
        Err(Code::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    // Without O_NONBLOCK, opening a device or pipe of that name could block.
    let flags = flags | OFlags::NONBLOCK;
    let mut opened = rustix::fs::openat(folder, name, flags, Mode::empty());
    if opened.as_ref().is_err_and(|errno| [Code::ACCESS, Code::PERM].contains(errno)) {
        // Read access is enough for flock(2).
        opened = rustix::fs::openat(folder, name, flags - OFlags::RDWR, Mode::empty());
    }
    match opened {
        Ok(file) => {
            let stat = rustix::fs::fstat(&file)?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            Ok(is_file.then(|| (file, is_ours(&stat))))
        }
        Err(Code::NOENT) => Err(Code::EXIST),
        Err(errno) => Err(errno),
    }
}

/// Takes the lock; retries, because the lock of a process that was just killed is released a little
/// later.
fn locked(
    file: &OwnedFd,
    lock: &impl Fn(&OwnedFd) -> Result<(), Code>,
    looks: &mut u32,
) -> Result<(), Code> {
    loop {
        match lock(file) {
            Err(Code::INTR) => {}
            Err(Code::WOULDBLOCK) if *looks > 0 => {
                *looks -= 1;
                std::thread::sleep(LOCK_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// The PID in the file.
fn holder(file: &OwnedFd) -> Option<u32> {
    let mut text = [0; 16];
    let count = rustix::io::pread(file, &mut text, 0).unwrap_or(0);
    std::str::from_utf8(&text[..count]).ok()?.trim().parse().ok()
}

/// Removes the lock file, if it still has its name.
fn remove(folder: &OwnedFd, name: &str, file: &OwnedFd) {
    if is_named(folder, name, stat_identity(file)) {
        // If it cannot be removed, the next run takes it over.
        let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::files::system_host::open_destination;

    const NAME: &str = ".inrush-train.lock";

    fn take(folder: &Path) -> Result<Option<ChannelLock>, Error> {
        ChannelLock::take(&Arc::new(open_destination(folder).unwrap()), "train")
    }

    #[test]
    fn a_channel_has_one_holder_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let held = take(folder.path()).unwrap().unwrap();
        let error = take(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Destination);
        let pid = format!("(pid {})", std::process::id());
        assert!(error.to_string().contains(&pid) && error.to_string().contains(NAME), "{error}");
        let other = Arc::new(open_destination(folder.path()).unwrap());
        drop(ChannelLock::take(&other, "test").unwrap().unwrap());
        drop(held);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        assert!(take(folder.path()).unwrap().is_some());
    }

    #[test]
    fn a_file_that_nobody_holds_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), "a longer text than a number\n").unwrap();
        let held = take(folder.path()).unwrap().unwrap();
        let text = fs::read_to_string(folder.path().join(NAME)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
        drop(held);
    }

    #[test]
    fn a_lock_on_a_removed_file_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let root = Arc::new(open_destination(folder.path()).unwrap());
        let removals = std::cell::Cell::new(3);
        let held = FileLock::take_by(&root, NAME, |_| {
            // Its holder removes it just before releasing it.
            if removals.get() > 0 {
                removals.set(removals.get() - 1);
                fs::remove_file(folder.path().join(NAME)).unwrap();
            }
            Ok(())
        });
        let held = held.unwrap();
        assert!(folder.path().join(NAME).exists(), "what is locked has the name");
        assert_eq!(removals.get(), 0);
        drop(held);
    }

    #[test]
    fn somebody_elses_file_is_left_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let held = take(folder.path()).unwrap().unwrap();
        fs::remove_file(folder.path().join(NAME)).unwrap();
        fs::write(folder.path().join(NAME), "other").unwrap();
        drop(held);
        assert_eq!(fs::read_to_string(folder.path().join(NAME)).unwrap(), "other");
    }

    #[test]
    fn where_there_are_no_locks_it_says_so_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = Arc::new(open_destination(folder.path()).unwrap());
        for errno in [Code::NOSYS, Code::OPNOTSUPP, Code::NOLCK] {
            let outcome = FileLock::take_by(&root, NAME, |_| Err(errno));
            assert!(ChannelLock::of(outcome, NAME).unwrap().is_none());
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        let outcome = FileLock::take_by(&root, NAME, |_| Err(Code::IO));
        assert_eq!(outcome.unwrap_err(), NotLocked::Unusable("lock", Code::IO));
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("precious"), "precious").unwrap();
        std::os::unix::fs::symlink("precious", folder.path().join(NAME)).unwrap();
        assert!(take(folder.path()).is_err());
        assert_eq!(fs::read_to_string(folder.path().join("precious")).unwrap(), "precious");
        fs::remove_file(folder.path().join(NAME)).unwrap();
        fs::create_dir(folder.path().join(NAME)).unwrap();
        assert!(take(folder.path()).is_err());
    }

    #[test]
    fn a_file_that_is_not_this_users_alone_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (precious, lock) = (folder.path().join("precious"), folder.path().join(NAME));
        fs::write(&precious, "precious").unwrap();
        fs::hard_link(&precious, &lock).unwrap();
        let held = take(folder.path()).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(take(folder.path()).is_err(), "it locks others out");
        drop(held);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        if std::os::unix::fs::chown(&precious, Some(12_345), None).is_err() {
            eprintln!("skipped: only root may give files away");
            return;
        }
        fs::rename(&precious, &lock).unwrap();
        let held = take(folder.path()).unwrap().unwrap();
        assert!(take(folder.path()).is_err(), "it locks others out");
        assert_eq!(fs::read_to_string(&lock).unwrap(), "precious");
        drop(held);
    }
}
