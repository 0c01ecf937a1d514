//! Where a `get` puts its bytes: a folder, one file, or nowhere.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::aside::aside;
use crate::cli::Destination;
use crate::control::resolve::{Source, SourceKind};
use crate::control::walk::Entry;
use crate::error::{Error, ErrorKind, Result};
use crate::files::sink::Sink;
use crate::files::system_host;
use crate::files::transfer::{Cut, Transfer};
use crate::s3::uri::shown;

/// Where the bytes go.
#[derive(Debug)]
pub(super) enum Target {
    /// Below this folder, each object at its relative path.
    Folder(PathBuf),
    /// One object to one file.
    File { folder: PathBuf, name: String },
    /// Nowhere.
    Discard,
}

impl Target {
    /// As people know it; `None` where nothing is written.
    pub(super) fn told(&self) -> Option<String> {
        match self {
            Self::Folder(path) => Some(path.display().to_string()),
            Self::File { folder, name } => Some(folder.join(name).display().to_string()),
            Self::Discard => None,
        }
    }

    /// One object goes into DEST if that is a folder or ends in `/`, else to that name; everything
    /// else needs a folder: with `many` sources, whatever is there of them, and with `sync`.
    pub(super) async fn choose(
        destination: &Destination,
        sources: &[Source],
        many: bool,
    ) -> Result<Self> {
        let Destination::Local(path) = destination else { return Ok(Self::Discard) };
        let one = matches!(sources, [Source { found: SourceKind::Object(_), .. }]);
        let as_folder = many || path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let asked = path.clone();
        let found = aside(move || rustix::fs::stat(&asked)).await;
        match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::Directory) => return Ok(Self::Folder(path.clone())),
            Ok(_) if !one || as_folder => {
                let message = format!("{} is a file, not a folder", path.display());
                return Err(Error::new(ErrorKind::Destination, message)
                    .advise("give a folder, or move the file"));
            }
            // A device or a pipe would be replaced by a file of its name.
            Ok(found) if found != FileType::RegularFile => {
                let message = format!("{} is not a regular file", path.display());
                return Err(Error::new(ErrorKind::Destination, message)
                    .advise("give a file or a folder; to write nothing, use --discard"));
            }
            _ => {}
        }
        if !one || as_folder {
            return Ok(Self::Folder(path.clone()));
        }
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Error::new(
                ErrorKind::Destination,
                format!("{} is not a valid file name", path.display()),
            )
            .advise("give a folder, or a file name in UTF-8")
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
        Ok(Self::File { folder, name: name.to_owned() })
    }

    pub(super) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) | Self::File { folder, .. } => Some(folder),
            Self::Discard => None,
        }
    }

    /// The whole path of a file as people know it, by its path below the folder; `None` where
    /// nothing is written.
    pub(super) fn place(&self, path: &str) -> Option<String> {
        self.folder().map(|folder| folder.join(path).display().to_string())
    }

    /// The folder, made if it is not there.
    pub(super) async fn open(&self) -> Result<Option<OwnedFd>> {
        let Some(folder) = self.folder().map(Path::to_owned) else { return Ok(None) };
        aside(move || system_host::open_destination(&folder)).await.map(Some)
    }

    /// The folder, if it is there already.
    pub(super) async fn present(&self) -> Option<OwnedFd> {
        let folder = self.folder()?.to_owned();
        aside(move || {
            folder.is_dir().then(|| system_host::open_destination(&folder).ok()).flatten()
        })
        .await
    }

    pub(super) fn sink(&self) -> Sink {
        if self.folder().is_some() { Sink::File } else { Sink::Null }
    }

    /// The transfer of an entry, or why it cannot be.
    pub(super) fn transfer(
        &self,
        entry: Entry,
        cut: Cut,
    ) -> Result<Transfer, Box<(Transfer, Error)>> {
        let path = self.path(&entry);
        let Entry { endpoint, object, .. } = entry;
        let (path, error) = match path {
            Ok(path) => (path, None),
            Err(error) => (String::new(), Some(error)),
        };
        let transfer = Transfer::new(object, endpoint, path, cut);
        match error {
            None => Ok(transfer),
            Some(error) => Err(Box::new((transfer, error))),
        }
    }

    /// The path of an entry below the folder, or why it can have none.
    pub(super) fn path(&self, entry: &Entry) -> Result<String> {
        match (self, &entry.path) {
            (Self::File { name, .. }, _) => Ok(name.clone()),
            (Self::Folder(_) | Self::Discard, Ok(path)) => Ok(path.as_str().to_owned()),
            // What is dropped needs no path.
            (Self::Discard, Err(_)) => Ok(String::new()),
            (Self::Folder(_), Err(problem)) => {
                let what = format!("s3://{}/{}", entry.endpoint.bucket, shown(&entry.object.key));
                Err(Error::new(ErrorKind::Destination, problem.explain()).within(what))
            }
        }
    }
}
