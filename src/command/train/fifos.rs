//! The named pipes of a channel: locked for this run, and those of a killed one removed.

use std::iter;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::is_number;
use crate::command::stream::channel::lock_channels;
use crate::control::blocking::blocking;
use crate::engine::stream::fifos::Fifos;
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host;
use crate::report::progress::Progress;

/// The pipes of a channel in this folder and with this beginning of their names: locked, and none
/// of them exists.
pub(super) async fn lock((path, name): (PathBuf, String), progress: &Progress) -> Result<Fifos> {
    let folder = Arc::new(system_host::open_destination(&path)?);
    let mut locks = lock_channels(iter::once(name.as_str()), (&path, &folder), progress)?;
    remove_left(&path, &name).await?;
    Ok(Fifos::new(folder, name, locks.pop().flatten()))
}

/// Removes pipes left by a run that was killed: a command would block on them, or take a part of an
/// old stream for an epoch. The channel is locked.
async fn remove_left(folder: &Path, channel: &str) -> Result<()> {
    let (at, begin) = (folder.to_owned(), format!("{channel}_"));
    let removed = blocking(move || {
        for entry in std::fs::read_dir(&at)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(begin.as_str()));
            if entry.file_type()?.is_fifo() && number.is_some_and(is_number) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    });
    removed.await.map_err(|error: std::io::Error| {
        let message = format!("cannot remove old pipes in {}: {error}", folder.display());
        Error::new(ErrorKind::Destination, message).of_call(error.raw_os_error())
    })
}
