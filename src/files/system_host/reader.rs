//! Opens existing files for reading, with the same walk that follows no links; creates and writes
//! nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno as Code;

use super::{Folders, Root, open_folder};
use crate::error::{Error, ErrorKind};
use crate::files::host::{FOLDER_REFUSES, FileError};
use crate::limits::FOLDERS_OPEN_MAX;

/// A destination that is only read.
#[derive(Debug)]
pub struct Reader {
    folders: Folders,
}

/// What is at a path.
#[derive(Debug)]
pub enum There {
    /// A regular file, opened, and its size.
    File(OwnedFd, u64),
    /// A folder.
    Folder,
    /// Neither, and why.
    Nothing(String),
}

impl Reader {
    /// Reads below this folder.
    ///
    /// # Errors
    /// If it does not exist, is not a folder, or cannot be opened.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Ok(Self { folders: Folders::new(Root::present(folder)?, false) })
    }

    /// Bounds the number of folders kept open.
    #[must_use]
    pub fn with_folders_kept(mut self, most: usize) -> Self {
        self.folders.kept_max = most.min(FOLDERS_OPEN_MAX);
        self
    }

    /// What is at a path below the folder; links are not followed.
    ///
    /// # Errors
    /// If the file system does not say.
    pub fn look(&mut self, path: &str) -> Result<There, Error> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = match self.folders.walk(above, open_folder) {
            Ok(folder) => folder,
            Err(error) if error.errno == Code::NOENT.into() => return Ok(absent()),
            Err(error) if [Code::NOTDIR, Code::LOOP].map(Into::into).contains(&error.errno) => {
                let why = format!("'{}' is not a folder (links are not followed)", error.path);
                return Ok(There::Nothing(why));
            }
            Err(error) => return Err(trouble(&error)),
        };
        look_in(&folder, name)
            .map_err(|(step, errno)| trouble(&self.folders.root.error(step, path, errno)))
    }
}

/// What has this name in a folder; the failed step and its error.
fn look_in(folder: &OwnedFd, name: &str) -> Result<There, (&'static str, Code)> {
    let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Code::NOENT) => return Ok(absent()),
        Err(errno) => return Err(("look up", errno)),
    };
    // Checked before it is opened: opening a device or a pipe may have side effects.
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Ok(There::Folder),
        FileType::Symlink => {
            let why = "it is a symbolic link, which is not followed";
            return Ok(There::Nothing(why.to_owned()));
        }
        _ => return Ok(There::Nothing("it is not a regular file".to_owned())),
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |errno| ("open", errno);
    let file = rustix::fs::openat(folder.as_fd(), name, flags, Mode::empty()).map_err(open)?;
    let size_bytes = rustix::fs::fstat(&file).map_err(open)?.st_size.unsigned_abs();
    Ok(There::File(file, size_bytes))
}

fn absent() -> There {
    There::Nothing("it does not exist".to_owned())
}

fn trouble(error: &FileError) -> Error {
    let FileError { step, path, errno, .. } = error;
    let message = match *step {
        FOLDER_REFUSES => error.to_string(),
        _ => format!("cannot inspect '{path}': {errno}"),
    };
    Error::new(ErrorKind::Destination, message)
        .advise("make sure that its folders and files are readable")
        .of_call(Some(errno.named().raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::names;
    use super::*;

    #[test]
    fn files_are_opened_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        std::fs::write(outside.path().join("file"), "secret").expect("written");
        std::fs::create_dir(folder.path().join("a")).expect("made");
        std::fs::write(folder.path().join("a/file"), "12345").expect("written");
        symlink(outside.path(), folder.path().join("link")).expect("a link");
        symlink(outside.path().join("file"), folder.path().join("a/to")).expect("a link");
        let mut reader = Reader::open(folder.path()).expect("a folder");
        let mut look = |path: &str| match reader.look(path).expect("it can be looked at") {
            There::File(_, size_bytes) => size_bytes.to_string(),
            There::Folder => "a folder".to_owned(),
            There::Nothing(why) => why,
        };
        assert_eq!(look("a/file"), "5");
        assert_eq!(look("a"), "a folder");
        assert_eq!(look("b"), "it does not exist");
        assert_eq!(look("b/c/d"), "it does not exist");
        let no_folder = |path: &str| {
            let path = folder.path().join(path);
            format!("'{}' is not a folder (links are not followed)", path.display())
        };
        assert_eq!(look("link/file"), no_folder("link"));
        assert_eq!(look("a/file/x"), no_folder("a/file"));
        assert_eq!(look("a/to"), "it is a symbolic link, which is not followed");
        let socket = std::os::unix::net::UnixListener::bind(folder.path().join("s"));
        assert_eq!(look("s"), "it is not a regular file", "{socket:?}");
        assert_eq!(names(folder.path()), ["a", "link", "s"]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Reader::open(&folder.path().join("a")).expect_err("it is not there");
        assert_eq!(error.kind(), ErrorKind::Destination);
        assert!(names(folder.path()).is_empty());
    }
}
