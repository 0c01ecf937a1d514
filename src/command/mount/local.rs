//! Files of a mount that are read from its cache: by the kernel alone where it can pass reads
//! through (FUSE passthrough, Linux 6.9), else by this process.
//!
//! The kernel has an inode in one way at a time: while somebody has it open whose reads come here,
//! it cannot be passed through, and while it is passed through all who open it get the same file
//! (fs/fuse/iomode.c).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{Errno, FileHandle, FopenFlags};

use super::keep::{self, Descriptor};
use super::reply::{OpenReply, ReadReply, Through};
use crate::files::cache::Found;
use crate::limits::MOUNT_READ_BYTES_MAX;
use crate::mount::tree::Inode;
use crate::s3::{Endpoint, Object};

/// Handles with this bit are of files that are read from the cache.
const LOCAL: u64 = 1 << 63;

/// Files of one mount that are open.
#[derive(Debug)]
pub(super) struct Local {
    keeper: Arc<keep::Shared>,
    state: Mutex<State>,
    /// The kernel passes reads through, as far as is known.
    passes: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    inodes: HashMap<Inode, Way>,
    /// Those that this process reads, by handle.
    files: HashMap<u64, Arc<OpenFile>>,
    handles: u64,
}

/// A file that this process reads.
#[derive(Debug)]
struct OpenFile {
    found: Found,
    _descriptor: Descriptor,
}

/// How the kernel has an inode, and how often it is open so.
#[derive(Debug)]
enum Way {
    /// Its reads come here.
    Here(usize),
    /// They are passed through to this file.
    Through(Through, usize),
}

impl Local {
    pub(super) fn new(keeper: Arc<keep::Shared>) -> Self {
        Self { keeper, state: Mutex::default(), passes: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel can pass reads through.
    pub(super) fn set_passes(&self) {
        self.passes.store(true, Ordering::Relaxed);
    }

    /// Opens a file that is kept; `note` gets its handle before a program does. Returns the reply
    /// where it is not: then it has to be fetched, and [`Self::close`] ends that, too.
    pub(super) fn open(
        &self,
        inode: Inode,
        endpoint: &Endpoint,
        object: &Object,
        is_direct: bool,
        reply: OpenReply,
        note: impl FnOnce(FileHandle),
    ) -> Option<OpenReply> {
        let passes = matches!(self.lock().inodes.get(&inode), Some(Way::Through(..)));
        if passes && !is_direct {
            // It is in the cache, or was when it was opened.
            self.keeper.note_hit();
            return self.open_found(inode, None, is_direct, reply, note);
        }
        // Without the lock: a disk may be slow.
        let found = self.keeper.descriptor().and_then(|descriptor| {
            let found = self.keeper.find(endpoint, object)?;
            Some(OpenFile { found, _descriptor: descriptor })
        });
        self.open_found(inode, found, is_direct, reply, note)
    }

    /// Opens what was found, in the way in which the kernel has the inode now.
    fn open_found(
        &self,
        inode: Inode,
        found: Option<OpenFile>,
        is_direct: bool,
        reply: OpenReply,
        note: impl FnOnce(FileHandle),
    ) -> Option<OpenReply> {
        let mut state = self.lock();
        let State { inodes, files, handles } = &mut *state;
        *handles += 1;
        let handle = *handles | LOCAL;
        if let Some(Way::Through(backing, opens)) = inodes.get_mut(&inode) {
            *opens += 1;
            let mut flags = FopenFlags::empty();
            if is_direct && let Some(file) = found {
                // Past the page cache its reads come here all the same: passed through they would
                // have to be of whole blocks of the disk.
                files.insert(handle, Arc::new(file));
                flags = FopenFlags::FOPEN_DIRECT_IO;
            }
            note(FileHandle(handle));
            reply.opened_through(FileHandle(handle), flags, backing);
            return None;
        }
        if let Some(OpenFile { found, .. }) = &found
            && self.passes.load(Ordering::Relaxed)
            && !is_direct
            && !inodes.contains_key(&inode)
        {
            match reply.open_backing(found) {
                Ok(backing) => {
                    note(FileHandle(handle));
                    reply.opened_through(FileHandle(handle), FopenFlags::empty(), &backing);
                    inodes.insert(inode, Way::Through(backing, 1));
                    return None;
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
        let Some(file) = found else { return Some(reply) };
        files.insert(handle, Arc::new(file));
        note(FileHandle(handle));
        let direct = FopenFlags::FOPEN_DIRECT_IO;
        let flags = if is_direct { direct } else { FopenFlags::FOPEN_KEEP_CACHE };
        reply.opened(FileHandle(handle), flags);
        None
    }

    /// Whether a handle is of a file that is kept.
    pub(super) const fn is_local(handle: FileHandle) -> bool {
        handle.0 & LOCAL != 0
    }

    /// Reads a file that is kept.
    pub(super) fn read(&self, handle: FileHandle, offset: u64, length: u32, reply: ReadReply) {
        let file = self.lock().files.get(&handle.0).map(Arc::clone);
        let Some(file) = file else { return reply.error(Errno::EBADF) };
        let length = usize::try_from(length.min(MOUNT_READ_BYTES_MAX)).expect("short");
        reply.fill(length, |bytes| file.found.read(bytes, offset));
    }

    /// A file was closed, kept or not.
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
