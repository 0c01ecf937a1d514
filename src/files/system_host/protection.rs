//! What an EPERM of the file system is due to: attributes of a file or its folder (chattr(1)), or a
//! sticky folder (inode(7)). Asked only once a call has failed, and of what is there by then.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{Root, open_folder, open_folder_at};
use crate::files::host::{FOLDER_REFUSES, Protection};

/// The mode of a folder in which users remove and replace their own files only (S_ISVTX).
const STICKY: u16 = 0o1000;

impl Root {
    /// What this error at a path below the destination is due to: what protects the name there, or
    /// for a step about a folder what protects the folder.
    pub(super) fn protection(&self, step: &str, path: &str, errno: Errno) -> Option<Protection> {
        if errno != Errno::PERM {
            return None;
        }
        let path = path.trim_end_matches('/');
        let (above, name) = match step {
            FOLDER_REFUSES => (path, ""),
            _ => path.rsplit_once('/').unwrap_or(("", path)),
        };
        let mut folder = self.folder.try_clone().ok()?;
        for below in above.split('/').filter(|below| !below.is_empty()) {
            match open_folder(&folder, below) {
                Ok(found) => folder = found,
                // It could not be created in the last one.
                Err(_) if name.is_empty() => break,
                Err(_) => return None,
            }
        }
        protection_in(&folder, name, errno)
    }
}

/// Like [`protection_in`], in the folder of this path.
#[must_use]
pub fn protection_at(folder: &Path, name: &str, errno: Errno) -> Option<Protection> {
    // Nothing is opened for other errors.
    let folder = (errno == Errno::PERM).then(|| open_folder_at(folder));
    protection_in(&folder?.ok()?, name, errno)
}

/// What this error at a name in a folder is due to: what protects the name, or without one the
/// folder. `None` for other errors than EPERM.
#[must_use]
pub fn protection_in(folder: &OwnedFd, name: &str, errno: Errno) -> Option<Protection> {
    if errno != Errno::PERM {
        return None;
    }
    let above = look(folder, "")?;
    let has = |found: &Statx, attribute| found.stx_attributes.contains(attribute);
    if has(&above, StatxAttributes::IMMUTABLE) {
        return Some(Protection::ImmutableFolder);
    }
    if name.is_empty() {
        return has(&above, StatxAttributes::APPEND).then_some(Protection::AppendOnlyFolder);
    }
    let file = look(folder, name)?;
    let own = geteuid().as_raw();
    if has(&file, StatxAttributes::IMMUTABLE) {
        Some(Protection::ImmutableFile)
    } else if has(&file, StatxAttributes::APPEND) {
        Some(Protection::AppendOnlyFile)
    } else if has(&above, StatxAttributes::APPEND) {
        Some(Protection::AppendOnlyFolder)
    } else {
        let is_sticky =
            above.stx_mode & STICKY != 0 && ![file.stx_uid, above.stx_uid].contains(&own);
        is_sticky.then_some(Protection::Sticky)
    }
}

/// Attributes, mode and owner of a name in a folder, or of the folder itself.
fn look(folder: &OwnedFd, name: &str) -> Option<Statx> {
    let at = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    rustix::fs::statx(folder, name, at, StatxFlags::MODE | StatxFlags::UID).ok()
}
