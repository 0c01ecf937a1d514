//! Obstacles to an object's file that are better found before its bytes are fetched: a folder, a
//! device, a socket or a FIFO at the file's path, or a file at the path of one of its folders.

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno as Code;

use super::{SystemHost, open_folder};
use crate::error::{Error, ErrorKind};
use crate::files::file_download::{FileDownload, Shape};

impl SystemHost {
    /// The path of an object's file for messages.
    pub fn place(&mut self, download: &FileDownload) -> String {
        self.folders().root.place(&download.path)
    }

    /// True if the folder of this object exists.
    pub fn has_folder(&mut self, download: &FileDownload) -> bool {
        let path = download.path.trim_end_matches('/');
        download.shape == Shape::Folder && self.folders().walk(path, open_folder).is_ok()
    }

    /// Why the object's file cannot be created; `None` if no obstacle is known in advance.
    pub fn obstacle(&mut self, download: &FileDownload) -> Option<Error> {
        let path = download.path.trim_end_matches('/');
        let is_folder = download.shape == Shape::Folder;
        let (above, name) = match is_folder {
            true => (path, ""),
            false => path.rsplit_once('/').unwrap_or(("", path)),
        };
        let error = match self.folders().walk(above, open_folder) {
            Ok(_) if is_folder => return None,
            Ok(folder) => {
                let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile | FileType::Symlink => return None,
                    FileType::Directory => self.error("create", path, Code::ISDIR),
                    // Another program may be reading from it or writing to it.
                    _ => {
                        let place = self.folders().root.place(path);
                        let message = format!("{place} is not a regular file");
                        let error = Error::new(ErrorKind::Destination, message);
                        let error = error.within(download.object.name());
                        return Some(error.advise("remove it, or exclude the key (--exclude)"));
                    }
                }
            }
            Err(error) if [Code::NOTDIR, Code::LOOP].map(Into::into).contains(&error.errno) => {
                error
            }
            // It does not exist yet, or creating it reports a better error.
            Err(_) => return None,
        };
        Some(Error::from(error).within(download.object.name()))
    }
}
