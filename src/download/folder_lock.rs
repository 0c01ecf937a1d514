//! Locks a folder for one run of a kind at a time: the preparation of a training job's base folder,
//! whose configuration files a second run would overwrite; and a download to several folders,
//! because two overlapping ones could put one object into different folders.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Code;

use crate::engine::stream::lock::{FileLock, NotLocked, holder_in_words, not_regular_in_words};
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host::MadeFolders;
use crate::plan::path::OWN_PREFIX;

/// Most times that the folder may vanish, together with a run that created nothing in it, before
/// locking fails.
const VANISHED_MAX: u32 = 10;

/// The purpose of a lock.
#[derive(Debug)]
pub(crate) struct Purpose {
    /// The name of the lock file after [`OWN_PREFIX`].
    name: &'static str,
    /// The holder's activity, before the folder's name.
    does: &'static str,
    /// Advice for the refused run.
    advice: &'static str,
}

/// The preparation of a training job.
pub(crate) const TRAIN: Purpose = Purpose {
    name: "train.lock",
    does: "runs a training job in",
    advice: "wait for it, end it, or give --base-dir another folder",
};

/// A download to several folders.
pub(crate) const SPREAD: Purpose = Purpose {
    name: "spread.lock",
    does: "spreads a download over",
    advice: "wait for it, end it, or give other folders",
};

impl Purpose {
    /// The name of the lock file.
    fn file_name(&self) -> String {
        format!("{OWN_PREFIX}{}", self.name)
    }

    fn taken(&self, folder: &Path, number: Option<u32>) -> Error {
        let (who, name) = (holder_in_words(number), self.file_name());
        let message = format!("{who} {} {} and has locked {name}", self.does, folder.display());
        Error::new(ErrorKind::Destination, message).advise(self.advice)
    }
}

/// The right to a folder until it is dropped; the kernel releases it when this process dies.
#[derive(Debug, Default)]
pub(crate) struct FolderLock {
    _lock: Option<FileLock>,
    /// Why there is no lock.
    refused: Option<String>,
    /// Folders that were created for it. A run that creates nothing else leaves nothing: the lock
    /// is dropped before them.
    made: MadeFolders,
}

impl FolderLock {
    /// Takes the lock of this folder, which is created if missing. If that fails there is no lock:
    /// an obstacle to writing there is reported with all others, and is no reason to refuse a job
    /// whose own folders are writable.
    ///
    /// # Errors
    /// If another run has it; then nothing was changed.
    pub(crate) fn take(base: &Path, purpose: &Purpose) -> Result<Self> {
        let name = purpose.file_name();
        let mut found = Err(NotLocked::Unusable("open", Code::NOENT));
        let mut made = MadeFolders::default();
        for _ in 0..VANISHED_MAX {
            made = made.with(base);
            found = open(base).and_then(|folder| FileLock::take(&Arc::new(folder), &name));
            // A run that ends at once also removes the folder that it has created.
            if !matches!(found, Err(NotLocked::Unusable(_, Code::NOENT))) {
                break;
            }
        }
        let refused = match found {
            Ok(lock) => return Ok(Self { _lock: Some(lock), refused: None, made }),
            Err(NotLocked::Taken(number)) => return Err(purpose.taken(base, number)),
            Err(NotLocked::Unsupported) => "the file system does not support flock".to_owned(),
            Err(NotLocked::NotRegular) => not_regular_in_words(&name),
            Err(NotLocked::Unusable(what, errno)) => {
                format!("cannot {what} {name}: {errno}")
            }
        };
        Ok(Self { _lock: None, refused: Some(refused), made })
    }

    /// Why there is no lock, if so.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Leaves the folders that were created for it, even if they are empty.
    pub(crate) fn keep_folders(&mut self) {
        self.made.keep();
    }
}

fn open(base: &Path) -> std::result::Result<std::os::fd::OwnedFd, NotLocked> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(base, flags, Mode::empty())
        .map_err(|errno| NotLocked::Unusable("use the folder of", errno))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_has_one_run_and_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("a/ml");
        let held = FolderLock::take(&base, &TRAIN).unwrap();
        assert_eq!(held.refused(), None);
        let error = FolderLock::take(&base, &TRAIN).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Destination);
        let message = error.to_string();
        let pid = format!("another process (pid {})", std::process::id());
        for words in [&*pid, &base.display().to_string(), "--base-dir", ".inrush-train.lock"] {
            assert!(message.contains(words), "{words}: {message}");
        }
        drop(held);
        assert!(!folder.path().join("a").exists(), "it had made nothing but the folder");
        let held = FolderLock::take(&base, &TRAIN).unwrap();
        fs::create_dir(base.join("input")).unwrap();
        drop(held);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1, "only the lock is gone");
        drop(FolderLock::take(&base, &TRAIN).unwrap());
        assert!(base.join("input").is_dir());
    }

    #[test]
    fn what_cannot_be_locked_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("ml");
        fs::write(&base, "").unwrap();
        let held = FolderLock::take(&base, &TRAIN).unwrap();
        assert!(held.refused().unwrap().contains(".inrush-train.lock"), "{held:?}");
        assert_eq!(fs::read(&base).unwrap(), b"");
        fs::remove_file(&base).unwrap();
        fs::create_dir_all(base.join(".inrush-train.lock")).unwrap();
        assert!(
            FolderLock::take(&base, &TRAIN).unwrap().refused().unwrap().contains("cannot open")
        );
    }
}
