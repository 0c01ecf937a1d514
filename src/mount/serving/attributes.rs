//! The attributes of files as programs see them: of the mount's options, and of each object.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};

use crate::cli::PageCacheName;
use crate::limits::BLOCK_BYTES;
use crate::mount::tree::{Facts, Kind};
use crate::mount::wire;

/// Default permissions of files.
const MODE: u16 = 0o444;
/// Preferred length of programs' reads, in bytes (`st_blksize`).
pub(super) const PIECE_BYTES: u32 = 4096;

/// The options of a mount.
#[derive(Debug, Clone, Default)]
pub(crate) struct MountOptions {
    /// The source in the mount table.
    pub(crate) source: String,
    /// Other users may read, too.
    pub(crate) allow_other: bool,
    /// Owner of the files; `None`: the user that mounts.
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// Permissions of files.
    pub(crate) mode: Option<u16>,
    /// Files must not be executed.
    pub(crate) noexec: bool,
    /// The use of the page cache.
    pub(crate) page_cache: PageCacheName,
}

/// Owner and permissions of files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    uid: u32,
    gid: u32,
    mode: u16,
}

impl Attributes {
    pub(super) fn new(mount_options: &MountOptions) -> Self {
        let uid = mount_options.uid.unwrap_or_else(|| rustix::process::getuid().as_raw());
        let gid = mount_options.gid.unwrap_or_else(|| rustix::process::getgid().as_raw());
        Self { uid, gid, mode: mount_options.mode.unwrap_or(MODE) }
    }

    pub(super) fn attributes(self, facts: Facts) -> FileAttr {
        let seconds = Duration::from_secs(facts.seconds.unsigned_abs());
        let time = if facts.seconds < 0 { SystemTime::UNIX_EPOCH } else { UNIX_EPOCH + seconds };
        let (size, perm) = match facts.kind {
            // Read permission of a folder implies search permission.
            Kind::Folder => (0, self.mode | (self.mode & 0o444) >> 2),
            Kind::File { size_bytes } => (size_bytes, self.mode),
        };
        FileAttr {
            ino: INodeNo(facts.inode),
            size,
            blocks: size.div_ceil(BLOCK_BYTES),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: file_type(facts.kind),
            perm,
            // For a folder it means that its subfolders are not counted.
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: PIECE_BYTES,
            flags: 0,
        }
    }
}

const fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Folder => FileType::Directory,
        Kind::File { .. } => FileType::RegularFile,
    }
}

/// The attributes for the ring.
pub(super) fn wire_attributes(of: &FileAttr) -> wire::Attributes {
    let kind = if of.kind == FileType::Directory { libc::S_IFDIR } else { libc::S_IFREG };
    let seconds = of.mtime.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    wire::Attributes {
        inode: of.ino.0,
        size_bytes: of.size,
        blocks: of.blocks,
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        mode: kind | u32::from(of.perm),
        links: of.nlink,
        uid: of.uid,
        gid: of.gid,
        piece_bytes: of.blksize,
    }
}
