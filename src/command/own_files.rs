//! The files that a command writes besides its objects, by its options.

use std::path::PathBuf;

use crate::cli::{Args, Destination, GetArgs};
use crate::download::own_files::{Written, is_same, streams};
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host::make_folder_of;
use crate::files::whole_file;

/// The files that a run with these options writes besides its objects.
pub(super) fn written(report: Option<&PathBuf>, metrics: Option<&PathBuf>) -> Vec<Written> {
    let options = [("--report", report), ("--metrics-file", metrics)];
    let options = options.into_iter().filter_map(|(name, path)| Some((name, path?.clone())));
    options.chain(streams()).collect()
}

/// [`written`], from the options of `get`.
pub(super) fn written_by(args: &GetArgs) -> Vec<Written> {
    written(args.report.as_ref(), args.metrics.metrics_file.as_ref())
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
                && is_same(other, path)
                && !whole_file::is_special(path)
        };
        let Some((other, _)) = named[..at].iter().find(may_be) else { continue };
        let message = format!("{other} and {name} are the same file: {}", path.display());
        return Err(
            Error::new(ErrorKind::Usage, message).advise(format!("give {name} another path"))
        );
    }
    Ok(())
}

/// Creates the folder of `--metrics-file` where it is below the destination: that file is written
/// before anything else.
pub(super) fn make_folder_of_metrics(args: &Args) {
    let folders = match args {
        Args::Get(args) => match &args.destination {
            Destination::Local(path) => {
                [std::slice::from_ref(path), args.spread_to.as_slice()].concat()
            }
            Destination::Discard => return,
        },
        Args::Pipe(args) => vec![args.folder.clone()],
        _ => return,
    };
    if let Some(file) = args.metrics().and_then(|(_, metrics)| metrics.metrics_file.as_ref()) {
        make_folder_of(file, &folders);
    }
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
