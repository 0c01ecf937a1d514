//! File systems for a test: a small tmpfs, one without attributes, one that is read-only. Gone when
//! dropped.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A mounted file system.
pub(crate) struct Mount {
    point: PathBuf,
    _folder: Option<TempDir>,
}

impl Mount {
    /// A tmpfs of these options; `None`, said on standard error, where nobody may mount.
    pub(crate) fn tmpfs(options: &str) -> Option<Self> {
        Self::of("tmpfs", options)
    }

    /// Mounts another file system without a device, by its type and options.
    pub(crate) fn of(kind: &str, options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let point = folder.path().join("mount");
        std::fs::create_dir(&point).expect("a folder");
        let words = ["-t", kind, "-o", options, kind].map(OsStr::new);
        Self::at(&words, &point, Some(folder))
    }

    /// Runs mount(8) with these words at `point`; `inside` is a folder around it that is removed
    /// with the mount. `None`, with a line on standard error, where mounting is not permitted.
    pub(crate) fn at(words: &[&OsStr], point: &Path, inside: Option<TempDir>) -> Option<Self> {
        if !run(Command::new("mount").args(words).arg(point)) {
            crate::skip::skip(&format!("mount {words:?} is not possible here"));
            return None;
        }
        Some(Self { point: point.to_owned(), _folder: inside })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.point
    }

    /// Lets nobody write to it any more.
    pub(crate) fn make_read_only(&self) {
        let remounted = run(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.point));
        assert!(remounted, "what was mounted can be mounted again");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily, so that it goes even while a killed program still holds it.
        run(Command::new("umount").arg("-l").arg(&self.point));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
