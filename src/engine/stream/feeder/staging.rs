//! Moves bytes from memory to the reader.
//!
//! They are written into a pipe of the channel's own and spliced from there: the reader's pipe is
//! locked only while pages change hands, not while bytes are copied, so its reader can copy at the
//! same time. Also, no call blocks: a splice can be non-blocking, but whether a write into standard
//! output blocks is a property of the open file (O_NONBLOCK), which other processes share.

use crate::engine::backlog::RangeBacklog;
use crate::files::host::{PipeHost, PrivatePipe};
use crate::limits::PIPE_BYTES;
use crate::sys::{Errno, Handle};

/// The pipe of a channel between memory and its reader.
#[derive(Debug, Default)]
pub(super) struct Staging {
    pipe: Option<PrivatePipe>,
    /// Bytes in the pipe.
    staged: u64,
    /// Size that the kernel granted.
    capacity_bytes: Option<u64>,
}

impl Staging {
    /// True if the pipe has bytes.
    pub(super) fn has_bytes(&self) -> bool {
        self.staged > 0
    }

    /// Size of the pipe in bytes, if there was one.
    pub(super) fn capacity_bytes(&self) -> Option<u64> {
        self.capacity_bytes
    }

    /// Moves bytes of this range to the reader; returns their number. `look` sees them first, some
    /// of them perhaps twice, and may refuse them.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there is nothing to move or no room, [`Errno::PIPE`] if there is no
    /// reader, EMFILE if no pipe can be created; or the error of `look`.
    pub(super) fn hand_on<E: From<Errno>>(
        &mut self,
        host: &mut impl PipeHost,
        range: &RangeBacklog,
        out: &Handle,
        look: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            none => {
                let pipe = host.private_pipe(PIPE_BYTES)?;
                self.capacity_bytes = Some(pipe.capacity_bytes);
                none.insert(pipe)
            }
        };
        if self.staged == 0 {
            let chunk = range.pop().ok_or(Errno::AGAIN)?;
            if let Err(error) = look(chunk.bytes()) {
                range.hand_on(chunk, 0);
                return Err(error);
            }
            let written = host.write_pipe(&pipe.writer, chunk.bytes());
            let count = *written.as_ref().unwrap_or(&0);
            range.hand_on(chunk, count);
            self.staged = written? as u64;
        }
        let moved = host.splice(&pipe.reader, out, self.staged)?;
        self.staged -= moved;
        Ok(moved)
    }

    /// Drops the content of the pipe.
    pub(super) fn clear(&mut self) {
        (self.pipe, self.staged) = (None, 0);
    }
}
