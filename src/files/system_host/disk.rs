//! Creates destination folders, and reads the space of their file systems.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno as Code;

/// Size of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that an ordinary user may still write.
    pub free_bytes: u64,
    /// Total bytes, used or not.
    pub total_bytes: u64,
}

/// The space at `folder`; `None` if the file system does not report it (statvfs(3)).
#[must_use]
pub fn disk_space(folder: &Path) -> Option<DiskSpace> {
    let stat = rustix::fs::statvfs(folder).ok().filter(|stat| stat.f_blocks > 0)?;
    Some(DiskSpace {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

/// True if the folder's file system has no inode left for a new file. One without a table of them
/// reports 0 in total.
pub(super) fn has_no_inode(folder: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(folder).is_ok_and(|stat| stat.f_files > 0 && stat.f_favail == 0)
}

/// The folder, or its nearest existing parent.
#[must_use]
pub fn nearest_folder(folder: &Path) -> &Path {
    let named = folder.ancestors().filter(|path| !path.as_os_str().is_empty());
    named.into_iter().find(|path| path.is_dir()).unwrap_or(Path::new("."))
}

/// Creates a folder and its parents. mkdir(2) returns EEXIST for a dangling link and for a FUSE
/// mount whose daemon has ended: this error says what is there.
///
/// # Errors
/// Why a folder cannot be created.
pub fn make_folders(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| match (error.kind(), what_is_there(folder)) {
        (kind @ (io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory), Some(words)) => {
            io::Error::new(kind, words)
        }
        _ => error,
    })
}

/// Creates the folder of a file that is below one of these folders, which need not exist yet.
/// Failures show when the file is opened.
pub fn make_folder_of(file: &Path, folders: &[PathBuf]) {
    let full = |path: &Path| std::path::absolute(path).ok();
    let Some(above) = file.parent().and_then(full) else { return };
    if folders.iter().filter_map(|folder| full(folder)).any(|folder| above.starts_with(folder)) {
        let _ = make_folders(&above);
    }
}

/// Folders that this created, each below the one before. Those that are empty are removed when it
/// is dropped.
#[derive(Debug, Default)]
pub struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Creates a folder and its parents where they are missing. Failures show when it is opened.
    #[must_use]
    pub fn with(mut self, folder: &Path) -> Self {
        let is_missing = |folder: &&Path| folder.symlink_metadata().is_err();
        let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
        let made = missing.into_iter().rev().filter(|folder| std::fs::create_dir(folder).is_ok());
        self.0.extend(made.map(Path::to_owned));
        self
    }

    /// Leaves them, even if they are empty.
    pub fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // A folder that is not empty stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// What is at the path of the folder, or of one of its parents, if it is not a folder.
pub(super) fn what_is_there(folder: &Path) -> Option<String> {
    // Components drop a trailing slash, which would make stat(2) follow a link.
    let folders = folder.components().as_path().ancestors();
    folders.filter(|at| !at.as_os_str().is_empty()).find_map(|at| {
        let named = at.display();
        match rustix::fs::stat(at).map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::Directory) | Err(Code::NOTDIR | Code::ACCESS) => None,
            Ok(_) => Some(format!("{named} is not a folder")),
            Err(Code::NOENT) => {
                let to = std::fs::read_link(at).ok()?;
                let to = to.display();
                Some(format!("{named} is a symbolic link to {to}, which does not exist"))
            }
            Err(errno @ Code::NOTCONN) => Some(format!(
                "the program of the FUSE mount on {named} has ended ({errno}); unmount it with \
                 fusermount3 -u"
            )),
            Err(errno) => Some(format!("look up {named}: {errno}")),
        }
    })
}

/// Space that each of these folders may use; they need not exist yet. Those on one file system
/// share its free space. `None` if a file system does not report it.
#[must_use]
pub fn disk_spaces(folders: &[PathBuf]) -> Vec<Option<DiskSpace>> {
    let places: Vec<&Path> = folders.iter().map(|folder| nearest_folder(folder)).collect();
    let device = |place: &&Path| rustix::fs::stat(*place).ok().map(|found| found.st_dev);
    let devices: Vec<_> = places.iter().map(device).collect();
    let share = |(place, device): (&&Path, &Option<_>)| {
        let shared = devices.iter().filter(|other| *other == device).count() as u64;
        disk_space(place).map(|disk| DiskSpace {
            free_bytes: disk.free_bytes / shared,
            total_bytes: disk.total_bytes / shared,
        })
    };
    places.iter().zip(&devices).map(share).collect()
}

/// Sum of the spaces; `None` if one is unknown.
#[must_use]
pub fn together(disks: &[Option<DiskSpace>]) -> Option<DiskSpace> {
    let all: Option<Vec<DiskSpace>> = disks.iter().copied().collect();
    all?.into_iter().reduce(|one, other| DiskSpace {
        free_bytes: one.free_bytes.saturating_add(other.free_bytes),
        total_bytes: one.total_bytes.saturating_add(other.total_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_one_file_system_share_its_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let folders = [folder.path().join("a/b"), folder.path().to_owned()];
        let both = disk_spaces(&folders);
        let alone = disk_space(folder.path()).expect("it says so");
        assert_eq!(both[0].map(|disk| disk.total_bytes), Some(alone.total_bytes / 2));
        assert_eq!(both[1].map(|disk| disk.total_bytes), Some(alone.total_bytes / 2));
        let sum = together(&both).expect("both say so");
        assert!(sum.total_bytes.abs_diff(alone.total_bytes) <= 1);
        assert_eq!(together(&[both[0], None]), None);
        assert_eq!(together(&[]), None);
    }
}
