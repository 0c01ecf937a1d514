//! Files that a run itself reads or writes: no object takes the place of one that it writes, and
//! `sync --delete` leaves all of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::whole_file::LINKS_MAX;
use crate::cli::{Args, Destination, GetArgs};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::folding::{FoldedPaths, Folding};

/// The option or stream that writes a file, and the file's path as given.
pub(super) type Written = (&'static str, PathBuf);

/// Standard output and error, which a shell may redirect to a file below the destination.
const STREAMS: [(&str, &str); 2] =
    [("standard output", "/proc/self/fd/1"), ("standard error", "/proc/self/fd/2")];

/// The files that a run with these options writes besides its objects.
pub(super) fn written(report: Option<&PathBuf>, metrics: Option<&PathBuf>) -> Vec<Written> {
    let options = [("--report", report), ("--metrics-file", metrics)];
    let options = options.into_iter().filter_map(|(name, path)| Some((name, path?.clone())));
    options.chain(STREAMS.map(|(name, path)| (name, path.into()))).collect()
}

/// [`written`], from the options of `get`.
pub(super) fn written_by(args: &GetArgs) -> Vec<Written> {
    written(args.report.as_ref(), args.metrics.metrics_file.as_ref())
}

/// Files, and folders with all that is in them, of a run with this destination.
#[derive(Debug)]
pub(super) struct OwnFiles {
    /// The destination.
    pub(super) folder: PathBuf,
    /// The paths as given.
    pub(super) files: Vec<PathBuf>,
}

impl OwnFiles {
    /// Their paths below the destination, with those of links that lead to them.
    pub(super) fn below(&self) -> Vec<PathBuf> {
        self.files.iter().flat_map(|file| below(&self.folder, file)).collect()
    }
}

/// The paths below a folder that lead to a file.
fn below(folder: &Path, file: &Path) -> Vec<PathBuf> {
    let Some(folder) = ways(folder).pop() else { return Vec::new() };
    let below = |path: PathBuf| path.strip_prefix(&folder).map(Path::to_owned).ok();
    ways(file).into_iter().filter_map(below).collect()
}

/// Each link on the way to a file, existing or not, and last its path without links.
fn ways(file: &Path) -> Vec<PathBuf> {
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
pub(super) fn is_at(path: &str, own: &str) -> bool {
    let rest = path.strip_prefix(own);
    own.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Paths below the destination that an object may not have.
#[derive(Debug, Default)]
pub(super) struct TakenPaths {
    folding: Folding,
    /// Paths of objects, if the destination treats different names as equal.
    pub(super) folded: Option<FoldedPaths>,
    /// Paths of files that the run writes.
    own: Vec<(&'static str, String)>,
}

impl TakenPaths {
    /// Finds the paths of `written` below these folders. Makes calls of the file system.
    pub(super) fn new(folding: Folding, folders: &[PathBuf], written: &[Written]) -> Self {
        let mut own = Vec::new();
        for (folder, (name, file)) in
            folders.iter().flat_map(|at| written.iter().map(move |it| (at, it)))
        {
            let below = below(folder, file);
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
    pub(super) fn require_free(&self, path: &str) -> Result<()> {
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

/// Refuses two options that write the same file, before either is written.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub(super) fn require_distinct(args: &Args) -> Result<()> {
    let named: Vec<(&str, &PathBuf)> =
        files_of(args).into_iter().filter_map(|(name, path)| Some((name, path?))).collect();
    for (at, (name, path)) in named.iter().enumerate() {
        // The file system may hang: it is only used if the names are equal.
        let may_be = |(_, other): &&(&str, &PathBuf)| {
            other.file_name() == path.file_name()
                && ways(other).pop() == ways(path).pop()
                && !super::whole_file::is_special(path)
        };
        let Some((other, _)) = named[..at].iter().find(may_be) else { continue };
        let message = format!("{other} and {name} are the same file: {}", path.display());
        return Err(
            Error::new(ErrorKind::Usage, message).advise(format!("give {name} another path"))
        );
    }
    Ok(())
}

/// The files that a command writes, each with its option or argument.
fn files_of(args: &Args) -> Vec<(&'static str, Option<&PathBuf>)> {
    let metrics = args.metrics().and_then(|(_, metrics)| metrics.metrics_file.as_ref());
    let mut files = match args {
        Args::Get(args) => {
            let destination = match &args.destination {
                Destination::Local(path) => Some(path),
                Destination::Discard => None,
            };
            vec![("DEST", destination), ("--report", args.report.as_ref())]
        }
        Args::Verify(args) => vec![("DIR", Some(&args.folder)), ("--report", args.report.as_ref())],
        Args::Pipe(args) => vec![
            ("--ready-file", args.ready_file.as_ref()),
            ("--report", args.stream.report.as_ref()),
        ],
        Args::Cat(args) => vec![("--report", args.stream.report.as_ref())],
        Args::Train(args) => vec![("--report", args.report.as_ref())],
        Args::Mount(args) => vec![
            ("--ready-file", args.ready_file.as_ref()),
            ("--log-file", args.log_file.as_ref()),
            ("--report", args.report.as_ref()),
        ],
        Args::Bench(args) => vec![
            ("--csv", args.how.csv.as_ref()),
            ("--html", args.how.html.as_ref()),
            ("--report", args.how.report.as_ref()),
        ],
        _ => Vec::new(),
    };
    files.push(("--metrics-file", metrics));
    files
}
