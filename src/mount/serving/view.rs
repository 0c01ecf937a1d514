//! The kernel's view of a mount: names and attributes of the tree; forwards reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuser::{Errno, FileAttr, FileHandle, FopenFlags, OpenAccMode, OpenFlags};

use super::attributes::{Attributes, PIECE_BYTES};
use super::bypass::Bypass;
use super::cache_writer;
use super::local::Local;
use super::names::{Children, Names, Waiting};
use super::reads::Reads;
use super::reply::{NameReply, OpenReply, ReadReply};
use super::version_check::VersionCheck;
use crate::limits::BLOCK_BYTES;
use crate::mount::demand::FileId;
use crate::mount::lazy::Unlisted;
use crate::mount::tree::Inode;
use crate::mount::wire;
use crate::plan::path::NAME_BYTES_MAX;
use crate::s3::Object;

/// The tree as the kernel sees it.
#[derive(Debug)]
pub(super) struct View {
    names: Arc<Names>,
    reader: Arc<Reads>,
    version_check: Arc<VersionCheck>,
    base: Attributes,
    /// Files that are read from the cache, if there is one.
    local: Option<Local>,
    bypass: Bypass,
    /// Longest request, in bytes.
    request_bytes: u32,
    /// io_uring is requested from the kernel, and later: it is in use.
    over_ring: AtomicBool,
}

/// The kernel caches the listing of a folder.
pub(super) const FOLDER_FLAGS: FopenFlags =
    FopenFlags::FOPEN_CACHE_DIR.union(FopenFlags::FOPEN_KEEP_CACHE);

/// Added names of a folder that are looked up at once: about as many as an answer has.
const ADDED_AT_ONCE: usize = 64;

impl View {
    pub(super) fn new(
        names: Arc<Names>,
        reader: Arc<Reads>,
        version_check: Arc<VersionCheck>,
        base: Attributes,
        (cache_writer, bypass): (Option<Arc<cache_writer::CacheState>>, Bypass),
        request_bytes: u32,
    ) -> Self {
        let local = cache_writer.map(Local::new);
        let over_ring = AtomicBool::new(false);
        Self { names, reader, version_check, base, local, bypass, request_bytes, over_ring }
    }

    /// Sets whether io_uring is requested from the kernel at the mount, and later: is in use.
    pub(super) fn set_over_ring(&self, is_over_ring: bool) {
        self.over_ring.store(is_over_ring, Ordering::Relaxed);
    }

    /// True if requests come over io_uring.
    pub(super) fn is_over_ring(&self) -> bool {
        self.over_ring.load(Ordering::Relaxed)
    }

    /// Longest request, in bytes.
    pub(super) const fn request_bytes(&self) -> u32 {
        self.request_bytes
    }

    /// Files that are read from the cache, if there is one.
    pub(super) const fn local(&self) -> Option<&Local> {
        self.local.as_ref()
    }

    /// How opened files use the page cache.
    pub(super) const fn bypass(&self) -> &Bypass {
        &self.bypass
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
                (handle, FopenFlags::FOPEN_KEEP_CACHE)
            }
            None => {
                let size_bytes = object.size_bytes;
                let id = self.reader.open(&self.version_check, inode, object, endpoint);
                let handle = FileHandle(id.0);
                let mount_bytes = || self.names.totals().bytes;
                let file = (inode, size_bytes);
                let flags = self.bypass.open(handle, file, is_direct, mount_bytes);
                if flags.contains(FopenFlags::FOPEN_DIRECT_IO) {
                    self.reader.note_direct_open();
                }
                (handle, flags)
            }
        };
        match &self.local {
            Some(local) => local.open(inode, object, is_direct, reply, begin),
            None => {
                let (handle, flags) = begin(object.0, object.1, None);
                reply.opened(handle, flags);
            }
        }
    }

    /// Reads a file; `is_past`: for a program itself, not for the page cache.
    pub(super) fn read_file(
        &self,
        handle: FileHandle,
        (offset, length): (u64, u32),
        is_past: bool,
        reply: ReadReply,
    ) {
        match &self.local {
            Some(local) if Local::is_local(handle) => local.read(handle, offset, length, reply),
            _ => {
                self.bypass.read(handle, offset, length, is_past);
                self.reader.read(FileId(handle.0), offset, length, reply);
            }
        }
    }

    pub(super) fn close_file(&self, inode: Inode, handle: FileHandle) {
        match Local::is_local(handle) {
            true => self.reader.close_kept(handle),
            false => {
                self.bypass.close(handle);
                self.reader.close(FileId(handle.0));
            }
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
                return Ok(());
            }
        }
        self.list_added(folder, &children, from, add);
        Ok(())
    }

    /// Lists what later listings added to a folder, behind the listed children.
    fn list_added(
        &self,
        folder: Inode,
        children: &Children<'_>,
        from: u64,
        mut add: impl FnMut(&FileAttr, Duration, u64, &str) -> bool,
    ) {
        let numbers = children.numbers();
        let before = 2 + (numbers.end - numbers.start);
        let mut next = from.max(before);
        loop {
            let place = usize::try_from(next - before).unwrap_or(usize::MAX);
            let more = self.names.added(folder, place, ADDED_AT_ONCE);
            if more.is_empty() {
                return;
            }
            for (inode, name) in more {
                next += 1;
                let Some((facts, valid)) = self.version_check.listed(inode) else { continue };
                if !add(&self.base.attributes(facts), valid, next, &name) {
                    return;
                }
            }
        }
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
