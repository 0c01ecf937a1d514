//! Files of a mount that are read from its cache: by the kernel alone if it can pass reads through
//! (FUSE passthrough, Linux 6.9), else by this process.
//!
//! The kernel has an inode in one mode at a time: while it is open for reads by this process, it
//! cannot be passed through, and while it is passed through all opens get that file
//! (fs/fuse/iomode.c).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{Errno, FileHandle, FopenFlags};

use super::cache_writer::{self, Descriptor};
use super::reply::{OpenReply, ReadReply, Through};
use crate::files::cache::CachedObject;
use crate::limits::MOUNT_READ_BYTES_MAX;
use crate::mount::tree::Inode;
use crate::s3::{Endpoint, Object};

/// Bit of handles of files that are read from the cache.
const LOCAL: u64 = 1 << 63;

/// Open files of one mount.
#[derive(Debug)]
pub(super) struct Local {
    cache_writer: Arc<cache_writer::CacheState>,
    state: Mutex<OpenFiles>,
    /// The kernel passes reads through, as far as known.
    passes: AtomicBool,
}

#[derive(Debug, Default)]
struct OpenFiles {
    inodes: HashMap<Inode, Way>,
    /// Files that this process reads, by handle.
    files: HashMap<u64, Arc<OpenFile>>,
    handles: u64,
}

/// A file that this process reads.
#[derive(Debug)]
struct OpenFile {
    found: CachedObject,
    _descriptor: Descriptor,
}

/// The kernel's mode of an inode, and its number of opens.
#[derive(Debug)]
enum Way {
    /// This process reads it.
    Here(usize),
    /// Reads are passed through to this file.
    Through(Through, usize),
}

impl Local {
    pub(super) fn new(cache_writer: Arc<cache_writer::CacheState>) -> Self {
        Self { cache_writer, state: Mutex::default(), passes: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, OpenFiles> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the kernel can pass reads through.
    pub(super) fn set_passes(&self) {
        self.passes.store(true, Ordering::Relaxed);
    }

    /// Opens a file. If it is cached, `begin` gets its handle before a program does; else it
    /// creates one, for a file that is downloaded, and says how it uses the page cache.
    /// [`Self::close`] ends either.
    pub(super) fn open(
        &self,
        inode: Inode,
        (object, endpoint): (Object, Arc<Endpoint>),
        is_direct: bool,
        reply: OpenReply,
        begin: impl FnOnce(Object, Arc<Endpoint>, Option<FileHandle>) -> (FileHandle, FopenFlags),
    ) {
        let state = self.lock();
        if !is_direct && matches!(state.inodes.get(&inode), Some(Way::Through(..))) {
            // It is in the cache, or was when it was opened. A close waits for this.
            self.cache_writer.note_hit();
            let begin = |kept| begin(object, endpoint, kept);
            return self.open_found(state, inode, None, is_direct, reply, begin);
        }
        drop(state);
        // Without the lock: a disk may be slow.
        let found = self.cache_writer.descriptor().and_then(|descriptor| {
            let found = self.cache_writer.find(&endpoint, &object)?;
            Some(OpenFile { found, _descriptor: descriptor })
        });
        let begin = |kept| begin(object, endpoint, kept);
        self.open_found(self.lock(), inode, found, is_direct, reply, begin);
    }

    /// Opens the found file, in the kernel's current mode of the inode.
    fn open_found(
        &self,
        mut state: MutexGuard<'_, OpenFiles>,
        inode: Inode,
        found: Option<OpenFile>,
        is_direct: bool,
        reply: OpenReply,
        begin: impl FnOnce(Option<FileHandle>) -> (FileHandle, FopenFlags),
    ) {
        let OpenFiles { inodes, files, handles } = &mut *state;
        *handles += 1;
        let handle = *handles | LOCAL;
        let kept = Some(FileHandle(handle));
        if let Some(Way::Through(backing, opens)) = inodes.get_mut(&inode) {
            *opens += 1;
            if !is_direct {
                return reply.opened_through(begin(kept).0, FopenFlags::empty(), backing);
            }
            // With O_DIRECT this process reads it nevertheless: passed through, its reads would
            // have to be of whole disk blocks.
            let (handle, _) = match found {
                Some(file) => {
                    files.insert(handle, Arc::new(file));
                    begin(kept)
                }
                // It was removed from the cache while it was passed through.
                None => begin(None),
            };
            return reply.opened_through(handle, FopenFlags::FOPEN_DIRECT_IO, backing);
        }
        if let Some(OpenFile { found, .. }) = &found
            && self.passes.load(Ordering::Relaxed)
            && !is_direct
            && !inodes.contains_key(&inode)
        {
            match reply.open_backing(found) {
                Ok(backing) => {
                    reply.opened_through(begin(kept).0, FopenFlags::empty(), &backing);
                    inodes.insert(inode, Way::Through(backing, 1));
                    return;
                }
                Err(error) => {
                    tracing::info!("the kernel passes no reads through to the cache: {error}");
                    self.passes.store(false, Ordering::Relaxed);
                }
            }
        }
        match inodes.entry(inode).or_insert(Way::Here(0)) {
            Way::Here(opens) => *opens += 1,
            Way::Through(..) => unreachable!("it was looked for"),
        }
        let Some(file) = found else {
            drop(state);
            let (handle, flags) = begin(None);
            return reply.opened(handle, flags);
        };
        files.insert(handle, Arc::new(file));
        let direct = FopenFlags::FOPEN_DIRECT_IO;
        let flags = if is_direct { direct } else { FopenFlags::FOPEN_KEEP_CACHE };
        reply.opened(begin(kept).0, flags);
    }

    /// True for a handle of a cached file.
    pub(super) const fn is_local(handle: FileHandle) -> bool {
        handle.0 & LOCAL != 0
    }

    /// Reads a cached file.
    pub(super) fn read(&self, handle: FileHandle, offset: u64, length: u32, reply: ReadReply) {
        let file = self.lock().files.get(&handle.0).map(Arc::clone);
        let Some(file) = file else { return reply.error(Errno::EBADF) };
        let length = usize::try_from(length.min(MOUNT_READ_BYTES_MAX)).expect("short");
        reply.fill(length, |bytes| file.found.read(bytes, offset));
    }

    /// Closes a file, cached or not.
    pub(super) fn close(&self, inode: Inode, handle: FileHandle) {
        let mut state = self.lock();
        state.files.remove(&handle.0);
        let is_last = match state.inodes.get_mut(&inode) {
            Some(Way::Here(opens) | Way::Through(_, opens)) => {
                *opens -= 1;
                *opens == 0
            }
            None => false,
        };
        if is_last {
            state.inodes.remove(&inode);
        }
    }
}
