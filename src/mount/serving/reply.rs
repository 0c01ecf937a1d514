//! Answers to the kernel's requests: at the device that they were read from, or in the ring that
//! they came from. The callers need not distinguish them.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    BackingId, Errno, FileAttr, FileHandle, FopenFlags, Generation, ReplyData, ReplyEntry,
    ReplyOpen,
};
use rustix::io::Errno as Code;

use super::attributes::wire_attributes;
use super::mailbox::RingReply;
use crate::engine::lease::Lease;
use crate::mount::demand::Part;
use crate::mount::wire::Writer;
use crate::sys::fuse_ring::Backing;

/// The answer of a lookup.
#[derive(Debug)]
pub(super) enum NameReply {
    Device(ReplyEntry),
    Ring(RingReply),
}

impl NameReply {
    pub(super) fn name(self, valid: Duration, of: &FileAttr) {
        match self {
            Self::Device(reply) => reply.entry(&valid, of, Generation(0)),
            Self::Ring(reply) => {
                reply.write(|bytes| Writer::new(bytes).name(&wire_attributes(of), valid));
            }
        }
    }

    pub(super) fn error(self, errno: Errno) {
        match self {
            Self::Device(reply) => reply.error(errno),
            Self::Ring(reply) => reply.error(errno),
        }
    }
}

/// The answer of an open.
#[derive(Debug)]
pub(super) enum OpenReply {
    Device(ReplyOpen),
    Ring(RingReply),
}

/// A file that the kernel reads instead of one of the mount.
#[derive(Debug)]
pub(super) enum Through {
    Device(BackingId),
    Ring(Backing),
}

impl OpenReply {
    pub(super) fn opened(self, handle: FileHandle, flags: FopenFlags) {
        match self {
            Self::Device(reply) => reply.opened(handle, flags),
            Self::Ring(reply) => {
                reply.write(|bytes| Writer::new(bytes).opened(handle.0, flags.bits(), 0));
            }
        }
    }

    /// Registers this file for the kernel's reads of the opened one.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn open_backing(&self, file: impl AsFd) -> io::Result<Through> {
        match self {
            Self::Device(reply) => reply.open_backing(file).map(Through::Device),
            Self::Ring(reply) => {
                let device = reply.device();
                let id = BackingId::create_raw(&*device, file)?;
                Ok(Through::Ring(Backing::of(device, id)))
            }
        }
    }

    /// Answers an open for passthrough reads. All opens of one mount are of one kind.
    pub(super) fn opened_through(self, handle: FileHandle, flags: FopenFlags, through: &Through) {
        match (self, through) {
            (Self::Device(reply), Through::Device(id)) => {
                reply.opened_passthrough(handle, flags, id);
            }
            (Self::Ring(reply), Through::Ring(backing)) => {
                let flags = flags.union(FopenFlags::FOPEN_PASSTHROUGH).bits();
                reply.write(|bytes| Writer::new(bytes).opened(handle.0, flags, backing.id()));
            }
            (reply, _) => reply.error(Errno::EIO),
        }
    }

    pub(super) fn error(self, errno: Errno) {
        match self {
            Self::Device(reply) => reply.error(errno),
            Self::Ring(reply) => reply.error(errno),
        }
    }
}

/// The answer of a read.
#[derive(Debug)]
pub(super) enum ReadReply {
    Device(ReplyData),
    Ring(RingReply),
}

thread_local! {
    /// Joins the pieces of an answer: the device takes one. Each thread retains its buffer, as long
    /// as its longest answer, because fresh memory costs more than the copy.
    static JOINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl ReadReply {
    /// Answers with these consecutive pieces.
    pub(super) fn pieces(self, pieces: &[(Arc<Lease>, Part)]) {
        match self {
            Self::Device(reply) => match pieces {
                [(lease, part)] => reply.data(&lease[part.bytes.clone()]),
                pieces => JOINED.with_borrow_mut(|joined| {
                    joined.clear();
                    for (lease, part) in pieces {
                        joined.extend_from_slice(&lease[part.bytes.clone()]);
                    }
                    reply.data(joined);
                }),
            },
            Self::Ring(reply) => reply.write(|bytes| {
                let mut at = 0;
                for (lease, part) in pieces {
                    let piece = &lease[part.bytes.clone()];
                    // The kernel requests no more than fits.
                    bytes[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                at
            }),
        }
    }

    /// Answers with at most `length` bytes from `read`.
    pub(super) fn fill(self, length: usize, read: impl FnOnce(&mut [u8]) -> Result<usize, Code>) {
        match self {
            Self::Device(reply) => JOINED.with_borrow_mut(|joined| {
                joined.resize(length.max(joined.len()), 0);
                match read(&mut joined[..length]) {
                    Ok(read) => reply.data(&joined[..read]),
                    Err(error) => reply.error(refused(error)),
                }
            }),
            Self::Ring(reply) => reply.try_write(|bytes| {
                let length = length.min(bytes.len());
                read(&mut bytes[..length]).map_err(refused)
            }),
        }
    }

    pub(super) fn error(self, errno: Errno) {
        match self {
            Self::Device(reply) => reply.error(errno),
            Self::Ring(reply) => reply.error(errno),
        }
    }
}

fn refused(error: Code) -> Errno {
    tracing::warn!("read of the cache: {error}");
    Errno::EIO
}
