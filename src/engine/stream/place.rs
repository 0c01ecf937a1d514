//! The real host of Pipe mode: named pipes in a folder, or standard output.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::fifos::Fifos;
use crate::error::Error;
use crate::files::host::{PipeHost, PrivatePipe, WholeEpoch};
use crate::limits::PIPE_BYTES;
use crate::sys::tcp_memory::{self, TcpMemory};
use crate::sys::{Errno, Handle, descriptor};

/// The destination of a channel's bytes.
#[derive(Debug)]
pub enum Place {
    /// Named pipes in a folder.
    Fifos(Fifos),
    /// An existing pipe, for one epoch: standard output.
    Output(Handle),
}

/// The host of one channel.
#[derive(Debug)]
pub struct SystemPipeHost {
    begun: Instant,
    place: Place,
}

impl SystemPipeHost {
    /// A host that feeds this place, in a run that began at `begun`.
    #[must_use]
    pub fn new(begun: Instant, place: Place) -> Self {
        Self { begun, place }
    }
}

impl PipeHost for SystemPipeHost {
    fn now_us(&mut self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno> {
        descriptor::splice(from, to, length)
    }

    fn write_pipe(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        descriptor::write_pipe(pipe, bytes)
    }

    fn private_pipe(&mut self, wish_bytes: u64) -> Result<PrivatePipe, Errno> {
        let (writer, reader, capacity_bytes) = descriptor::pipe(wish_bytes)?;
        Ok(PrivatePipe { writer, reader, capacity_bytes })
    }

    fn offer(&mut self, epoch: u64) -> Result<(), Error> {
        match &mut self.place {
            Place::Fifos(fifos) => fifos.offer(epoch),
            Place::Output(_) => Ok(()),
        }
    }

    fn open(&mut self, epoch: u64) -> Result<Option<Handle>, Error> {
        let fifos = match &mut self.place {
            Place::Output(handle) => return Ok(Some(handle.clone())),
            Place::Fifos(fifos) => fifos,
        };
        let Some(file) = fifos.open(epoch)? else { return Ok(None) };
        // A smaller pipe works, too, only slower.
        let _ = descriptor::grow_pipe(file.as_fd(), PIPE_BYTES);
        Ok(Some(Handle::from(file)))
    }

    fn await_reader(&mut self, epoch: u64) -> Option<Handle> {
        match &mut self.place {
            Place::Fifos(fifos) => fifos.await_reader(epoch),
            Place::Output(_) => None,
        }
    }

    fn tcp_memory(&mut self) -> Option<TcpMemory> {
        tcp_memory::recent()
    }

    fn unread(&mut self, pipe: &Handle) -> Result<u64, Errno> {
        descriptor::unread(pipe)
    }

    fn mark(&mut self, whole: WholeEpoch) -> Result<(), Error> {
        match &self.place {
            Place::Fifos(fifos) => fifos.mark(whole),
            Place::Output(_) => Ok(()),
        }
    }

    fn unmark(&mut self, epoch: u64) -> Result<(), Error> {
        match &self.place {
            Place::Fifos(fifos) => fifos.unmark(epoch),
            Place::Output(_) => Ok(()),
        }
    }

    fn withdraw(&mut self, epoch: u64) {
        if let Place::Fifos(fifos) = &mut self.place {
            fifos.withdraw(epoch);
        }
    }

    fn retire(&mut self, epoch: u64) -> Option<Handle> {
        match &mut self.place {
            Place::Fifos(fifos) => fifos.retire(epoch).map(Handle::from),
            Place::Output(_) => None,
        }
    }

    fn wait_left(&mut self, outlets: &mut Vec<Handle>, counter: &Handle, wait_us: u64) {
        fn watched(handle: &Handle, events: PollFlags) -> PollFd<'_> {
            let Handle::Descriptor(descriptor) = handle else { unreachable!("a real one") };
            PollFd::new(descriptor, events)
        }
        let readers = outlets.iter().map(|outlet| watched(outlet, PollFlags::empty()));
        let mut polled: Vec<PollFd<'_>> =
            readers.chain([watched(counter, PollFlags::IN)]).collect();
        let wait = Duration::from_micros(wait_us).try_into().ok();
        // An interrupted wait is followed by the next one.
        let _ = rustix::event::poll(&mut polled, wait.as_ref());
        let has_left: Vec<bool> =
            polled.iter().map(|one| one.revents().contains(PollFlags::ERR)).collect();
        let mut has_left = has_left.into_iter();
        outlets.retain(|_| has_left.next() == Some(false));
        descriptor::lower(counter);
    }
}
