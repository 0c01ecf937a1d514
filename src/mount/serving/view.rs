//! The kernel's view of a mount: names and attributes of the tree; forwards reads.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};

use super::cache_writer;
use super::local::Local;
use super::names::{Children, Names, Waiting};
use super::reads::Reads;
use super::reply::{NameReply, OpenReply, ReadReply};
use super::version_check::VersionCheck;
use crate::limits::{BLOCK_BYTES, MOUNT_BACKGROUND_MAX, MOUNT_NAMES_TTL};
use crate::mount::demand::FileId;
use crate::mount::lazy::Unlisted;
use crate::mount::tree::{Facts, Inode, Kind};
use crate::mount::wire;
use crate::plan::path::NAME_BYTES_MAX;
use crate::s3::Object;

/// Default permissions of files.
const MODE: u16 = 0o444;
/// Preferred length of programs' reads, in bytes (`st_blksize`).
const PIECE_BYTES: u32 = 4096;

/// The attributes of a mount.
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
}

/// The tree as the kernel sees it.
#[derive(Debug)]
pub(super) struct View {
    names: Arc<Names>,
    reader: Arc<Reads>,
    version_check: Arc<VersionCheck>,
    base: Attributes,
    /// Files that are read from the cache, if there is one.
    local: Option<Local>,
    /// Longest request, in bytes.
    request_bytes: u32,
    /// io_uring is requested from the kernel, and later: it is in use.
    over_ring: AtomicBool,
}

/// The view for requests that are read from the device.
#[derive(Debug)]
pub(super) struct Device(pub(super) Arc<View>);

/// The kernel caches the listing of a folder.
pub(super) const FOLDER_FLAGS: FopenFlags =
    FopenFlags::FOPEN_CACHE_DIR.union(FopenFlags::FOPEN_KEEP_CACHE);

/// Owner and permissions of files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    uid: u32,
    gid: u32,
    mode: u16,
}

impl View {
    pub(super) fn new(
        names: Arc<Names>,
        reader: Arc<Reads>,
        version_check: Arc<VersionCheck>,
        base: Attributes,
        cache_writer: Option<Arc<cache_writer::CacheState>>,
        request_bytes: u32,
    ) -> Self {
        let local = cache_writer.map(Local::new);
        let over_ring = AtomicBool::new(false);
        Self { names, reader, version_check, base, local, request_bytes, over_ring }
    }

    /// Sets whether io_uring is requested from the kernel at the mount.
    pub(super) fn want_ring(&self, is_wanted: bool) {
        self.over_ring.store(is_wanted, Ordering::Relaxed);
    }

    /// True if requests come over io_uring.
    pub(super) fn is_over_ring(&self) -> bool {
        self.over_ring.load(Ordering::Relaxed)
    }

    /// Answers a lookup in a folder.
    pub(super) fn look_up(&self, parent: Inode, name: &[u8], reply: NameReply) {
        match self.names.lookup(parent, name) {
            Ok(Some(name)) => self.version_check.look_up(name, reply),
            Ok(None) => reply.error(Errno::ENOENT),
            Err(Unlisted) => {
                self.version_check.when_listed(parent, Waiting::Name { name: name.into(), reply });
            }
        }
    }

    /// Opens a folder, once it is listed: so reading it need not wait.
    pub(super) fn open_folder(&self, folder: Inode, reply: OpenReply) {
        match self.names.children(folder) {
            Ok(_) => reply.opened(FileHandle(0), FOLDER_FLAGS),
            Err(Unlisted) => self.version_check.when_listed(folder, Waiting::Folder(reply)),
        }
    }

    /// The attributes of an inode; `None` if its object was replaced or deleted.
    pub(super) fn attributes(&self, inode: Inode) -> Option<FileAttr> {
        self.version_check.facts(inode).map(|facts| self.base.attributes(facts))
    }

    pub(super) fn open_file(&self, inode: Inode, flags: OpenFlags, reply: OpenReply) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let object = match self.version_check.object(inode) {
            Ok(found) => found,
            // If it was replaced the kernel then looks the name up again.
            Err(errno) => return reply.error(errno),
        };
        let is_direct = flags.0 & libc::O_DIRECT != 0;
        let begin = |object: Object, endpoint, kept| match kept {
            Some(handle) => {
                self.reader.open_kept(handle, &object, &endpoint);
                handle
            }
            None => FileHandle(self.reader.open(&self.version_check, inode, object, endpoint).0),
        };
        match &self.local {
            Some(local) => local.open(inode, object, is_direct, reply, begin),
            // An inode's content never changes.
            None => reply.opened(begin(object.0, object.1, None), FopenFlags::FOPEN_KEEP_CACHE),
        }
    }

    pub(super) fn read_file(&self, handle: FileHandle, offset: u64, length: u32, reply: ReadReply) {
        match &self.local {
            Some(local) if Local::is_local(handle) => local.read(handle, offset, length, reply),
            _ => self.reader.read(FileId(handle.0), offset, length, reply),
        }
    }

    pub(super) fn close_file(&self, inode: Inode, handle: FileHandle) {
        match Local::is_local(handle) {
            true => self.reader.close_kept(handle),
            false => self.reader.close(FileId(handle.0)),
        }
        if let Some(local) = &self.local {
            local.close(inode, handle);
        }
    }

    /// Lists a folder from an offset on: the attributes of each name, their lifetime, the next
    /// offset, and the name, until `add` is full.
    pub(super) fn list(
        &self,
        folder: Inode,
        from: u64,
        mut add: impl FnMut(&FileAttr, Duration, u64, &str) -> bool,
    ) -> Result<(), Errno> {
        // A folder is opened before it is read.
        let children = self.names.children(folder).map_err(|Unlisted| Errno::EIO)?;
        let children = children.ok_or(Errno::ENOTDIR)?;
        for (next, inode, name) in self.listing(folder, &children, from) {
            let Some((facts, valid)) = self.version_check.listed(inode) else { continue };
            if !add(&self.base.attributes(facts), valid, next, name) {
                break;
            }
        }
        Ok(())
    }

    /// The data of statfs(2).
    pub(super) fn file_system(&self) -> wire::FileSystem {
        let totals = self.names.totals();
        wire::FileSystem {
            blocks: totals.blocks,
            inodes: totals.files + totals.folders,
            piece_bytes: PIECE_BYTES,
            name_bytes_max: u32::try_from(NAME_BYTES_MAX).expect("short"),
            block_bytes: u32::try_from(BLOCK_BYTES).expect("short"),
        }
    }

    /// The entries of a folder from an offset on: itself, its parent, its children; each with the
    /// next offset.
    fn listing<'a>(
        &self,
        folder: Inode,
        children: &'a Children<'_>,
        from: u64,
    ) -> impl Iterator<Item = (u64, Inode, &'a str)> {
        let numbers = children.numbers();
        let dots = [(folder, "."), (self.names.parent(folder), "..")];
        let dots = dots.into_iter().zip(1u64..).map(|((inode, name), next)| (next, inode, name));
        let dots = dots.skip(usize::try_from(from.min(2)).expect("two at most"));
        let first = numbers.start;
        let rest = first.saturating_add(from.saturating_sub(2))..numbers.end;
        let rest = rest.map(move |inode| (inode - first + 3, inode, children.name(inode)));
        dots.chain(rest)
    }
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

impl Filesystem for Device {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let view = &self.0;
        for wanted in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            // For cached files that are opened with O_DIRECT.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            // Capabilities that an older kernel does not have are not used.
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(view.request_bytes);
        let _ = config.set_max_background(MOUNT_BACKGROUND_MAX);
        let has_ring =
            view.is_over_ring() && config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok();
        view.over_ring.store(has_ring, Ordering::Relaxed);
        if has_ring {
            // Payloads must be as long as the kernel's longest request.
            let _ = config.set_max_readahead(view.request_bytes);
        }
        if let Some(local) = &view.local
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok()
        {
            local.set_passes();
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.look_up(parent.0, name.as_bytes(), NameReply::Device(reply));
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.0.attributes(inode.0) {
            Some(known) => reply.attr(&MOUNT_NAMES_TTL, &known),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.0.open_file(inode.0, flags, OpenReply::Device(reply));
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
        self.0.read_file(handle, offset, size, ReadReply::Device(reply));
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
        self.0.close_file(inode.0, handle);
        reply.ok();
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.0.open_folder(inode.0, OpenReply::Device(reply));
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.0.list(inode.0, offset, |known, _, next, name| {
            !reply.add(known.ino, next, known.kind, name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.0.list(inode.0, offset, |known, valid, next, name| {
            !reply.add(known.ino, next, name, &valid, known, Generation(0))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let of = self.0.file_system();
        let wire::FileSystem { blocks, inodes, piece_bytes, name_bytes_max, block_bytes } = of;
        reply.statfs(blocks, 0, 0, inodes, 0, piece_bytes, name_bytes_max, block_bytes);
    }
}
