//! One run at a time prepares a base folder: a second one would overwrite its configuration files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Code;

use crate::engine::stream::lock::{FileLock, NotLocked, holder_in_words};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::path::OWN_PREFIX;

/// How often the folder may vanish, with a run that made nothing in it, before that is no lock.
const VANISHED_MAX: u32 = 10;

/// The right to prepare a base folder, for as long as it lives; the kernel frees it when this
/// process dies.
#[derive(Debug, Default)]
pub(super) struct BaseLock {
    lock: Option<FileLock>,
    /// Why there is none.
    refused: Option<String>,
    /// Folders that were made for it, each below the one before.
    made: Vec<PathBuf>,
}

impl BaseLock {
    /// Takes the lock of this folder, which is made if it is not there. Where that cannot be done
    /// there is no lock: what keeps others from writing there is told with everything else that is
    /// in the way, and is no reason to refuse a job whose own folders can be written.
    ///
    /// # Errors
    /// When another run has it; nothing was changed then.
    pub(super) fn take(base: &Path) -> Result<Self> {
        let mut found = Err(NotLocked::Unusable("open", Code::NOENT));
        let mut made = Vec::new();
        for _ in 0..VANISHED_MAX {
            made.extend(make(base));
            found = open(base).and_then(|folder| FileLock::take(&Arc::new(folder), &name()));
            // A run that ends at once takes the folder with it that it has made.
            if !matches!(found, Err(NotLocked::Unusable(_, Code::NOENT))) {
                break;
            }
        }
        let refused = match found {
            Ok(lock) => return Ok(Self { lock: Some(lock), refused: None, made }),
            Err(NotLocked::Taken(number)) => return Err(taken(base, number)),
            Err(NotLocked::Unsupported) => "the file system does not support flock".to_owned(),
            Err(NotLocked::Unusable(what, errno)) => {
                format!("cannot {what} {}: {errno}", name())
            }
        };
        Ok(Self { lock: None, refused: Some(refused), made })
    }

    /// Why nothing keeps a second run out, if nothing does.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

impl Drop for BaseLock {
    /// A run that has made nothing else leaves nothing.
    fn drop(&mut self) {
        drop(self.lock.take());
        for folder in self.made.iter().rev() {
            // It stays where something is in it.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// The name of the lock file.
fn name() -> String {
    format!("{OWN_PREFIX}train.lock")
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

fn taken(base: &Path, number: Option<u32>) -> Error {
    let who = holder_in_words(number);
    let base = base.display();
    let message = format!("{who} runs a training job in {base} and has locked {}", name());
    Error::new(ErrorKind::Destination, message)
        .advise("wait for it, end it, or give --base-dir another folder")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_has_one_run_and_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("a/ml");
        let held = BaseLock::take(&base).unwrap();
        assert_eq!(held.refused(), None);
        let error = BaseLock::take(&base).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Destination);
        let told = error.to_string();
        let pid = format!("another process (pid {})", std::process::id());
        for words in [&*pid, &base.display().to_string(), "--base-dir", ".inrush-train.lock"] {
            assert!(told.contains(words), "{words}: {told}");
        }
        drop(held);
        assert!(!folder.path().join("a").exists(), "it had made nothing but the folder");
        let held = BaseLock::take(&base).unwrap();
        fs::create_dir(base.join("input")).unwrap();
        drop(held);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1, "only the lock is gone");
        drop(BaseLock::take(&base).unwrap());
        assert!(base.join("input").is_dir());
    }

    #[test]
    fn what_cannot_be_locked_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("ml");
        fs::write(&base, "").unwrap();
        let held = BaseLock::take(&base).unwrap();
        assert!(held.refused().unwrap().contains(".inrush-train.lock"), "{held:?}");
        assert_eq!(fs::read(&base).unwrap(), b"");
        fs::remove_file(&base).unwrap();
        fs::create_dir_all(base.join(".inrush-train.lock")).unwrap();
        assert!(BaseLock::take(&base).unwrap().refused().unwrap().contains("cannot open"));
    }
}
