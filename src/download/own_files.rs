//! Files that a run itself reads or writes: no object takes the place of one that it writes, and
//! what removes files that the source does not have leaves all of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::cli::{ManifestPlace, SelectionArgs};
use crate::control::{Settings, aws_files};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LINKS_MAX;
use crate::mount::table;
use crate::plan::folding::{FoldedPaths, Folding};

/// Files of the user that variables name.
pub(crate) const FILE_VARIABLES: [&str; 5] = [
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// Standard output and error, which a shell may redirect to a file below the destination.
const STREAMS: [(&str, &str); 2] =
    [("standard output", "/proc/self/fd/1"), ("standard error", "/proc/self/fd/2")];

/// The option or stream that writes a file, and the file's path as given.
pub(crate) type Written = (&'static str, PathBuf);

/// The streams that a process writes.
pub(crate) fn streams() -> impl Iterator<Item = Written> {
    STREAMS.into_iter().map(|(name, path)| (name, path.into()))
}

/// Files that a run itself reads or writes, and those of the user's keys, as they are named: those
/// of its selection, of its options, and of the environment.
pub(crate) fn own_files(
    selection: &SelectionArgs,
    named: impl IntoIterator<Item = PathBuf>,
    written: &[Written],
    settings: Option<&Settings>,
) -> Vec<PathBuf> {
    let manifest = match &selection.manifest {
        Some(ManifestPlace::File(path)) => Some(path),
        Some(ManifestPlace::S3(..)) | None => None,
    };
    let lists = selection.files_from.iter().chain(manifest).cloned();
    let variables = FILE_VARIABLES.iter().filter_map(std::env::var_os).map(PathBuf::from);
    let written = written.iter().map(|(_, path)| path.clone());
    let all = lists.chain(named).chain(variables).chain(written);
    all.chain(aws_files(settings)).collect()
}

/// Files, and folders with all that is in them, of a run with this destination.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    /// The destination.
    pub(crate) folder: PathBuf,
    /// The paths as given.
    pub(crate) files: Vec<PathBuf>,
}

impl OwnFiles {
    /// Their paths below the destination, with those of links that lead to them.
    pub(crate) fn below(&self) -> Vec<PathBuf> {
        let mounts = mounts();
        self.files.iter().flat_map(|file| below(&self.folder, file, &mounts)).collect()
    }
}

/// The mounts of this process; none if they cannot be read: then ways through bind mounts are
/// unknown.
pub(super) fn mounts() -> Vec<u8> {
    std::fs::read("/proc/self/mountinfo").unwrap_or_default()
}

/// The paths below a folder that lead to a file, also through links and mounts.
fn below(folder: &Path, file: &Path, mounts: &[u8]) -> Vec<PathBuf> {
    let Some(folder) = ways(folder).pop() else { return Vec::new() };
    let on_device = table::place(mounts, &folder);
    let below = |path: PathBuf| match (path.strip_prefix(&folder), &on_device) {
        (Ok(below), _) => Some(below.to_owned()),
        // A bind mount (mount --bind) has other folders above it.
        (Err(_), Some((device, above))) => {
            let (_, path) = table::place(mounts, &path).filter(|(on, _)| on == device)?;
            let below = table::below(&path, above)?;
            Some(OsStr::from_bytes(below.strip_prefix(b"/").unwrap_or(below)).into())
        }
        (Err(_), None) => None,
    };
    ways(file).into_iter().filter_map(below).collect()
}

/// True if both paths are of one file, existing or not.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(|path| ways(path).pop());
    let place = |path: &Option<PathBuf>| table::place(&mounts(), path.as_deref()?);
    one == other || place(&one).is_some_and(|place_of_one| Some(place_of_one) == place(&other))
}

/// Each link on the way to a file, existing or not, and last its path without links.
pub(crate) fn ways(file: &Path) -> Vec<PathBuf> {
    let parts = |path: &Path| -> Vec<PathBuf> {
        path.components().rev().map(|part| Path::new(part.as_os_str()).to_owned()).collect()
    };
    let Ok(absolute) = std::path::absolute(file) else { return Vec::new() };
    let (mut found, mut at, mut left) = (Vec::new(), PathBuf::new(), parts(&absolute));
    while let Some(part) = left.pop() {
        match part.components().next() {
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                at.push(name);
                if found.len() < LINKS_MAX
                    && let Ok(target) = rustix::fs::readlink(&at, Vec::new())
                {
                    found.push(at.clone());
                    at.pop();
                    left.extend(parts(Path::new(OsStr::from_bytes(target.as_bytes()))));
                }
            }
            Some(Component::RootDir) => at = part,
            _ => {}
        }
    }
    found.push(at);
    found
}

/// True if a path is `own`, or below it.
pub(crate) fn is_at(path: &str, own: &str) -> bool {
    let rest = path.strip_prefix(own);
    own.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Paths below the destination that an object may not have.
#[derive(Debug, Default)]
pub(crate) struct TakenPaths {
    folding: Folding,
    /// Paths of objects, if the destination treats different names as equal.
    pub(crate) folded: Option<FoldedPaths>,
    /// Paths of files that the run writes.
    own: Vec<(&'static str, String)>,
}

impl TakenPaths {
    /// Finds the paths of `written` below these folders. Makes calls of the file system.
    pub(crate) fn new(folding: Folding, folders: &[PathBuf], written: &[Written]) -> Self {
        let (mut own, mounts) = (Vec::new(), mounts());
        for (folder, (name, file)) in
            folders.iter().flat_map(|at| written.iter().map(move |it| (at, it)))
        {
            let below = below(folder, file, &mounts);
            let paths = below.iter().filter_map(|path| path.to_str());
            let paths = paths.filter(|path| !path.is_empty());
            own.extend(paths.map(|path| (*name, folding.fold(path).into_owned())));
        }
        Self { folding, folded: FoldedPaths::new(folding), own }
    }

    /// Refuses a path at which the run writes a file of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`].
    pub(crate) fn require_free(&self, path: &str) -> Result<()> {
        if self.own.is_empty() {
            return Ok(());
        }
        let path = self.folding.fold(path.trim_end_matches('/'));
        let Some((name, _)) = self.own.iter().find(|(_, own)| is_at(&path, own)) else {
            return Ok(());
        };
        let message = format!("its file is that of {name}, which this run writes itself");
        Err(Error::new(ErrorKind::Destination, message).advise(match name.starts_with('-') {
            true => format!("give {name} another path"),
            false => format!("redirect {name} to another file"),
        }))
    }
}
