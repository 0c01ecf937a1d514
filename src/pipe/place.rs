//! The real machine of Pipe mode: named pipes below a folder, or standard output.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{PipeFlags, SpliceFlags};

use super::fifos::Fifos;
use crate::error::Error;
use crate::host::{Host, Objection, PipeHost, PrivatePipe, WholeEpoch};
use crate::limits::PIPE_BYTES;
use crate::machine::Machine;
use crate::s3::ByteRange;
use crate::sys::{Errno, Handle};
use crate::transfer::Transfer;

/// Where a channel's bytes go.
#[derive(Debug)]
pub enum Place {
    /// Named pipes in a folder.
    Fifos(Fifos),
    /// A pipe that is there already, for one epoch: standard output.
    Output(Handle),
}

/// The machine of one channel.
#[derive(Debug)]
pub struct Outfall {
    machine: Machine,
    place: Place,
}

impl Outfall {
    /// A machine that feeds this place.
    #[must_use]
    pub fn new(machine: Machine, place: Place) -> Self {
        Self { machine, place }
    }
}

impl Host for Outfall {
    fn now_us(&mut self) -> u64 {
        self.machine.now_us()
    }

    fn random(&mut self) -> u64 {
        self.machine.random()
    }

    fn socket(&mut self, address: &SocketAddr) -> Result<Handle, Errno> {
        self.machine.socket(address)
    }

    fn set_low_water(&mut self, socket: &Handle, bytes: u32) {
        self.machine.set_low_water(socket, bytes);
    }

    fn write_request(
        &mut self,
        out: &mut [u8],
        transfer: &Transfer,
        range: Option<ByteRange>,
    ) -> Result<u32, Error> {
        self.machine.write_request(out, transfer, range)
    }

    fn keys_version(&self, transfer: &Transfer) -> u64 {
        self.machine.keys_version(transfer)
    }

    fn heed(&mut self, transfer: &Transfer, objection: Objection) -> bool {
        self.machine.heed(transfer, objection)
    }
}

fn descriptor(handle: &Handle) -> Result<&OwnedFd, Errno> {
    match handle {
        Handle::Descriptor(descriptor) => Ok(descriptor),
        Handle::Simulated(_) => Err(Errno::BAD_DESCRIPTOR),
    }
}

impl PipeHost for Outfall {
    fn set_nonblocking(&mut self, socket: &Handle) -> Result<(), Errno> {
        let socket = descriptor(socket)?;
        let flags = rustix::fs::fcntl_getfl(socket)?;
        Ok(rustix::fs::fcntl_setfl(socket, flags | OFlags::NONBLOCK)?)
    }

    fn send(&mut self, socket: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(rustix::net::send(descriptor(socket)?, bytes, flags)?)
    }

    fn receive(&mut self, socket: &Handle, into: &mut [u8], peek: bool) -> Result<usize, Errno> {
        let peek = if peek { RecvFlags::PEEK } else { RecvFlags::empty() };
        let flags = peek | RecvFlags::DONTWAIT;
        let (count, _) = rustix::net::recv(descriptor(socket)?, into, flags)?;
        Ok(count)
    }

    fn write(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        Ok(rustix::io::write(descriptor(pipe)?, bytes)?)
    }

    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno> {
        let (from, to) = (descriptor(from)?, descriptor(to)?);
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(rustix::pipe::splice(from, None, to, None, length, flags)? as u64)
    }

    fn private_pipe(&mut self, wish_bytes: u64) -> Result<PrivatePipe, Errno> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let capacity_bytes = grow(writer.as_fd(), wish_bytes);
        Ok(PrivatePipe { reader: reader.into(), writer: writer.into(), capacity_bytes })
    }

    fn offer(&mut self, epoch: u64) -> Result<(), Error> {
        match &mut self.place {
            Place::Fifos(fifos) => fifos.offer(epoch),
            Place::Output(_) => Ok(()),
        }
    }

    fn open(&mut self, epoch: u64) -> Result<Option<Handle>, Error> {
        let fifos = match &self.place {
            Place::Output(handle) => return Ok(Some(handle.clone())),
            Place::Fifos(fifos) => fifos,
        };
        let Some(file) = fifos.open(epoch)? else { return Ok(None) };
        // A smaller pipe than wished for is right, only slower.
        let _ = grow(file.as_fd(), PIPE_BYTES);
        Ok(Some(Handle::from(file)))
    }

    fn unread(&mut self, outlet: &Handle) -> Result<u64, Errno> {
        Ok(rustix::io::ioctl_fionread(descriptor(outlet)?)?)
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

    fn wait_left(&mut self, outlet: &Handle, wait_us: u64) -> bool {
        let Ok(outlet) = descriptor(outlet) else { return true };
        let mut polled = [PollFd::new(outlet, PollFlags::empty())];
        let wait = Duration::from_micros(wait_us).try_into().ok();
        // One that is interrupted is followed by the next.
        let _ = rustix::event::poll(&mut polled, wait.as_ref());
        polled[0].revents().contains(PollFlags::ERR)
    }
}

/// Makes a pipe larger, as far as the kernel allows (F_SETPIPE_SZ); tells what it is then.
fn grow(pipe: std::os::fd::BorrowedFd<'_>, wish_bytes: u64) -> u64 {
    let wish = usize::try_from(wish_bytes).unwrap_or(usize::MAX);
    let granted = rustix::pipe::fcntl_setpipe_size(pipe, wish)
        .or_else(|_| rustix::pipe::fcntl_getpipe_size(pipe));
    granted.map_or(0, |bytes| bytes as u64)
}
