//! What the kernel is told: names and attributes of the tree, and reads handed on.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};

use super::keep;
use super::local::Local;
use super::reader::Shared;
use super::replaced::Replaced;
use crate::limits::{BLOCK_BYTES, MOUNT_BACKGROUND_MAX, MOUNT_NAMES_TTL, MOUNT_READ_BYTES_MAX};
use crate::mount::demand::FileId;
use crate::mount::tree::{Facts, Inode, Kind, Tree};
use crate::plan::path::NAME_BYTES_MAX;

/// Permissions of files where nothing is said.
const MODE: u16 = 0o444;
/// Length of the pieces in which programs should read, in bytes.
const PIECE_BYTES: u32 = 4096;

/// How a mount looks.
#[derive(Debug, Clone, Default)]
pub(in crate::command) struct Shown {
    /// What the table of mounts has as its source.
    pub(in crate::command) source: String,
    /// Other users may read, too.
    pub(in crate::command) allow_other: bool,
    /// Whose the files are; `None`: of the user that mounts.
    pub(in crate::command) uid: Option<u32>,
    pub(in crate::command) gid: Option<u32>,
    /// Permissions of files.
    pub(in crate::command) mode: Option<u16>,
}

/// The tree as the kernel sees it.
#[derive(Debug)]
pub(super) struct View {
    tree: Arc<Tree>,
    reader: Arc<Shared>,
    replaced: Arc<Replaced>,
    looks: Looks,
    /// What is read from the cache, where there is one.
    local: Option<Local>,
}

/// Whose files are, and what may be done with them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    uid: u32,
    gid: u32,
    mode: u16,
}

impl View {
    pub(super) fn new(
        tree: Arc<Tree>,
        reader: Arc<Shared>,
        replaced: Arc<Replaced>,
        looks: Looks,
        keeper: Option<Arc<keep::Shared>>,
    ) -> Self {
        Self { tree, reader, replaced, looks, local: keeper.map(Local::new) }
    }

    /// What a folder lists from a place on: itself, the one above, its children; each with the
    /// place behind it.
    fn listing(
        &self,
        folder: Inode,
        from: u64,
    ) -> Option<impl Iterator<Item = (u64, Inode, &str)>> {
        let children = self.tree.children(folder)?;
        let dots = [(folder, "."), (self.tree.parent(folder), "..")];
        let dots = dots.into_iter().zip(1u64..).map(|((inode, name), next)| (next, inode, name));
        let dots = dots.skip(usize::try_from(from.min(2)).expect("two at most"));
        let first = children.start;
        let rest = children.start.saturating_add(from.saturating_sub(2))..children.end;
        let rest = rest.map(move |inode| (inode - first + 3, inode, self.tree.name(inode)));
        Some(dots.chain(rest))
    }
}

impl Looks {
    pub(super) fn new(shown: &Shown) -> Self {
        let uid = shown.uid.unwrap_or_else(|| rustix::process::getuid().as_raw());
        let gid = shown.gid.unwrap_or_else(|| rustix::process::getgid().as_raw());
        Self { uid, gid, mode: shown.mode.unwrap_or(MODE) }
    }

    pub(super) fn attributes(self, facts: Facts) -> FileAttr {
        let seconds = Duration::from_secs(facts.seconds.unsigned_abs());
        let time = if facts.seconds < 0 { SystemTime::UNIX_EPOCH } else { UNIX_EPOCH + seconds };
        let (size, perm) = match facts.kind {
            // Whoever may read a folder may enter it.
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
            // Of a folder it says that nobody has counted what is in it.
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

impl Filesystem for View {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            // What an older kernel does not have it does without.
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(MOUNT_READ_BYTES_MAX);
        let _ = config.set_max_background(MOUNT_BACKGROUND_MAX);
        if let Some(local) = &self.local
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok()
        {
            local.set_passes();
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.tree.lookup(parent.0, name.as_bytes());
        match found {
            Some(name) => self.replaced.look_up(name, reply),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.replaced.facts(inode.0) {
            Some(facts) => reply.attr(&MOUNT_NAMES_TTL, &self.looks.attributes(facts)),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let (object, endpoint) = match self.replaced.object(inode.0) {
            Ok(found) => found,
            // Of one that was replaced the kernel then looks the name up again.
            Err(errno) => return reply.error(errno),
        };
        let reply = match &self.local {
            None => reply,
            Some(local) => match local.open(inode.0, &endpoint, &object, reply) {
                Some(reply) => reply,
                None => return,
            },
        };
        let file = self.reader.open(&self.replaced, inode.0, object, endpoint);
        // An inode is of one version for ever.
        reply.opened(FileHandle(file.0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match &self.local {
            Some(local) if Local::is_local(handle) => local.read(handle, offset, size, reply),
            _ => self.reader.read(FileId(handle.0), offset, size, reply),
        }
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if !Local::is_local(handle) {
            self.reader.close(FileId(handle.0));
        }
        if let Some(local) = &self.local {
            local.close(inode.0, handle);
        }
        reply.ok();
    }

    fn opendir(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(listing) = self.listing(inode.0, offset) else {
            return reply.error(Errno::ENOTDIR);
        };
        for (next, inode, name) in listing {
            let Some((facts, _)) = self.replaced.listed(inode) else { continue };
            if reply.add(INodeNo(facts.inode), next, file_type(facts.kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Some(listing) = self.listing(inode.0, offset) else {
            return reply.error(Errno::ENOTDIR);
        };
        for (next, inode, name) in listing {
            let Some((facts, ttl)) = self.replaced.listed(inode) else { continue };
            let attributes = self.looks.attributes(facts);
            let inode = INodeNo(facts.inode);
            if reply.add(inode, next, name, &ttl, &attributes, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let totals = self.tree.totals();
        let block = u32::try_from(BLOCK_BYTES).expect("short");
        let names = u32::try_from(NAME_BYTES_MAX).expect("short");
        let inodes = totals.files + totals.folders;
        reply.statfs(totals.blocks, 0, 0, inodes, 0, PIECE_BYTES, names, block);
    }
}
