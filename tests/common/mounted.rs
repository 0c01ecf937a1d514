//! A mount of the in-repo origin by the real program, in the foreground.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use inrush_origin::Origin;
use tempfile::TempDir;

use crate::fuse::unmount_lazily;
use crate::program::{Program, Running};
use crate::served::{ACCESS_KEY, BUCKET, SECRET};

/// A mount in the foreground; unmounted when it goes.
pub(crate) struct Mounted {
    running: Option<Running>,
    pub(crate) point: PathBuf,
    pub(crate) folder: TempDir,
}

/// `inrush mount` of these words, quietly, of `d/`, with the origin's keys.
pub(crate) fn program(origin: &Origin, words: &[&str]) -> Program {
    talking(origin, &[&["--quiet"], words].concat())
}

/// `inrush mount` of these words and of `d/`, with its notes on standard error.
pub(crate) fn talking(origin: &Origin, words: &[&str]) -> Program {
    Program::new(["mount", &format!("s3://{BUCKET}/d/")])
        .with(words)
        .asking(origin)
        .with_keys(ACCESS_KEY, SECRET)
}

impl Mounted {
    /// Mounts `d/`, and waits until it serves. It believes the origin's own authority.
    pub(crate) fn new(origin: &Origin, words: &[&str]) -> Self {
        Self::of(origin, program(origin, words))
    }

    /// Starts this program, and waits until its mount serves.
    pub(crate) fn of(origin: &Origin, mut program: Program) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        if let Some(certificates) = origin.ca_pem() {
            let authority = folder.path().join("ca.pem");
            fs::write(&authority, certificates).expect("room");
            program = program.with([OsStr::new("--ca-bundle"), authority.as_os_str()]);
        }
        let point = folder.path().join("mount point");
        fs::create_dir(&point).expect("a folder");
        let ready = folder.path().join("ready");
        let program = program.with([point.as_os_str()]).with(["--foreground", "--ready-file"]);
        let mut running = program.with([ready.as_os_str()]).start();
        if !running.until(|| ready.exists()) {
            panic!("{}", running.wait());
        }
        Self { running: Some(running), point, folder }
    }

    /// A path in it.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.point.join(path)
    }

    /// The process; once.
    pub(crate) fn running(&mut self) -> Running {
        self.running.take().expect("once")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount_lazily(&self.point);
    }
}
