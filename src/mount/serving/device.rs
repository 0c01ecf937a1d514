//! Requests that are read from the device of FUSE: each is answered by the view.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use fuser::{
    Errno, FileHandle, Filesystem, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, Request,
};

use super::reply::{NameReply, OpenReply, ReadReply};
use super::view::View;
use crate::limits::{MOUNT_BACKGROUND_MAX, MOUNT_NAMES_TTL};
use crate::mount::wire;

/// The view for requests that are read from the device.
#[derive(Debug)]
pub(super) struct Device(pub(super) Arc<View>);

impl Filesystem for Device {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let view = &self.0;
        for wanted in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            // Capabilities that an older kernel does not have are not used.
            let _ = config.add_capabilities(wanted);
        }
        // Also for files of the cache that are opened with O_DIRECT.
        if config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok() {
            view.bypass().set_can_map();
        }
        let _ = config.set_max_write(view.request_bytes());
        let _ = config.set_max_background(MOUNT_BACKGROUND_MAX);
        let has_ring =
            view.is_over_ring() && config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok();
        view.set_over_ring(has_ring);
        if has_ring {
            // Payloads must be as long as the kernel's longest request.
            let _ = config.set_max_readahead(view.request_bytes());
        }
        if let Some(local) = view.local()
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
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // A read for the page cache is nobody's.
        let is_past = lock_owner.is_some();
        self.0.read_file(handle, (offset, size), is_past, ReadReply::Device(reply));
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
