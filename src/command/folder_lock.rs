//! One run of a kind at a time has a folder: the preparation of a training job's base folder, whose
//! configuration files a second run would overwrite; and a download over several folders, for two
//! that overlap could put one object into different ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Code;

use crate::engine::stream::lock::{FileLock, NotLocked, holder_in_words, not_regular_in_words};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::path::OWN_PREFIX;

/// How often the folder may vanish, with a run that made nothing in it, before that is no lock.
const VANISHED_MAX: u32 = 10;

/// What a folder is locked for.
#[derive(Debug)]
pub(super) struct Purpose {
    /// The name of the lock file, behind [`OWN_PREFIX`].
    name: &'static str,
    /// What its holder does, before the folder.
    does: &'static str,
    /// What whoever is refused may do.
    advice: &'static str,
}

/// The preparation of a training job.
pub(super) const TRAIN: Purpose = Purpose {
    name: "train.lock",
    does: "runs a training job in",
    advice: "wait for it, end it, or give --base-dir another folder",
};

/// A download over several folders.
pub(super) const SPREAD: Purpose = Purpose {
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

/// The right to a folder, for as long as it lives; the kernel frees it when this process dies.
#[derive(Debug, Default)]
pub(super) struct FolderLock {
    lock: Option<FileLock>,
    /// Why there is none.
    refused: Option<String>,
    /// Folders that were made for it, each below the one before.
    made: Vec<PathBuf>,
}

impl FolderLock {
    /// Takes the lock of this folder, which is made if it is not there. Where that cannot be done
    /// there is no lock: what keeps others from writing there is told with everything else that is
    /// in the way, and is no reason to refuse a job whose own folders can be written.
    ///
    /// # Errors
    /// When another run has it; nothing was changed then.
    pub(super) fn take(base: &Path, purpose: &Purpose) -> Result<Self> {
        let name = purpose.file_name();
        let mut found = Err(NotLocked::Unusable("open", Code::NOENT));
        let mut made = Vec::new();
        for _ in 0..VANISHED_MAX {
            made.extend(make(base));
            found = open(base).and_then(|folder| FileLock::take(&Arc::new(folder), &name));
            // A run that ends at once takes the folder with it that it has made.
            if !matches!(found, Err(NotLocked::Unusable(_, Code::NOENT))) {
                break;
            }
        }
        let refused = match found {
            Ok(lock) => return Ok(Self { lock: Some(lock), refused: None, made }),
            Err(NotLocked::Taken(number)) => return Err(purpose.taken(base, number)),
            Err(NotLocked::Unsupported) => "the file system does not support flock".to_owned(),
            Err(NotLocked::NotRegular) => not_regular_in_words(&name),
            Err(NotLocked::Unusable(what, errno)) => {
                format!("cannot {what} {name}: {errno}")
            }
        };
        Ok(Self { lock: None, refused: Some(refused), made })
    }

    /// Why nothing keeps a second run out, if nothing does.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Leaves the folders that were made for it where they are, even empty ones.
    pub(super) fn keep_folders(&mut self) {
        self.made.clear();
    }
}

impl Drop for FolderLock {
    /// A run that has made nothing else leaves nothing.
    fn drop(&mut self) {
        drop(self.lock.take());
        for folder in self.made.iter().rev() {
            // It stays where something is in it.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Makes a folder and those above it; those that were not there, the uppermost first. What cannot
/// be made is seen when it is opened.
fn make(base: &Path) -> Vec<PathBuf> {
    let is_missing = |folder: &&Path| folder.symlink_metadata().is_err();
    let mut missing: Vec<PathBuf> =
        base.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    missing.reverse();
    missing.retain(|folder| std::fs::create_dir(folder).is_ok());
    missing
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
        let told = error.to_string();
        let pid = format!("another process (pid {})", std::process::id());
        for words in [&*pid, &base.display().to_string(), "--base-dir", ".inrush-train.lock"] {
            assert!(told.contains(words), "{words}: {told}");
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
