//! A feeder's side of the simulated machine: calls that never wait, and its places.

use std::rc::Weak;

use inrush::error::Error;
use inrush::files::host::{FileError, PipeHost, PrivatePipe, WholeEpoch};
use inrush::sys::tcp_memory::TcpMemory;
use inrush::sys::{Errno, Handle, descriptor};

use super::crew::is_raised;
use super::plumbing::End;
use super::stage::Stage;
use super::world::{Shared, World};

/// The machine of the feeder of one channel.
#[derive(Debug)]
pub(crate) struct FeedHost {
    pub(super) world: Shared,
    pub(super) stage: Weak<Stage>,
    pub(super) channel: usize,
}

impl FeedHost {
    /// An error at the file system, as rarely as the rates say.
    fn trouble(&self, what: &'static str, step: &'static str, path: String) -> Result<(), Error> {
        let mut world = self.world.borrow_mut();
        let rate = world.rates.disk_per_mille;
        if !world.chance.hits(rate) {
            return Ok(());
        }
        world.count(what);
        Err(FileError::new(step, path, Errno::NO_SPACE).into())
    }
}

impl PipeHost for FeedHost {
    fn now_us(&mut self) -> u64 {
        let mut world = self.world.borrow_mut();
        world.now_us += 1;
        world.now_us
    }

    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno> {
        let mut world = self.world.borrow_mut();
        let from = world.end(from);
        assert!(matches!(from, End::Reader(_)), "out of a pipe");
        world.splice(from, to, length)
    }

    fn write_pipe(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        self.world.borrow_mut().write_pipe(pipe, bytes)
    }

    fn private_pipe(&mut self, _wish_bytes: u64) -> Result<PrivatePipe, Errno> {
        let mut world = self.world.borrow_mut();
        let rate = world.rates.disk_per_mille;
        if world.chance.hits(rate) {
            world.count("no pipe");
            return Err(Errno::new(24));
        }
        let (writer, reader, capacity_bytes) = world.make_pipe(true);
        Ok(PrivatePipe { writer, reader: reader.expect("it has one"), capacity_bytes })
    }

    fn offer(&mut self, epoch: u64) -> Result<(), Error> {
        self.trouble("no place", "make pipe", format!("place_{epoch}"))?;
        self.world.borrow_mut().offer(self.channel, epoch);
        Ok(())
    }

    fn open(&mut self, epoch: u64) -> Result<Option<Handle>, Error> {
        Ok(self.world.borrow_mut().open_place(self.channel, epoch))
    }

    fn tcp_memory(&mut self) -> Option<TcpMemory> {
        None
    }

    fn unread(&mut self, pipe: &Handle) -> Result<u64, Errno> {
        Ok(self.world.borrow().unread(pipe))
    }

    fn mark(&mut self, whole: WholeEpoch) -> Result<(), Error> {
        self.trouble("no marker", "make", format!("place_{}.ok", whole.epoch))?;
        self.world.borrow_mut().mark(self.channel, whole);
        Ok(())
    }

    fn unmark(&mut self, epoch: u64) -> Result<(), Error> {
        self.world.borrow_mut().unmark(self.channel, epoch);
        Ok(())
    }

    fn withdraw(&mut self, epoch: u64) {
        self.world.borrow_mut().withdraw(self.channel, epoch);
    }

    fn retire(&mut self, epoch: u64) -> Option<Handle> {
        self.world.borrow_mut().retire(self.channel, epoch)
    }

    fn wait_left(&mut self, outlets: &mut Vec<Handle>, counter: &Handle, wait_us: u64) {
        let stage = self.stage.upgrade().expect("it is played on a stage");
        stage.has_settled();
        for outlet in outlets.iter() {
            self.world.borrow_mut().keep(self.channel, outlet);
        }
        let until_us = self.world.borrow().now_us + wait_us;
        let is_woken = |world: &World| {
            is_raised(counter) || outlets.iter().any(|outlet| world.has_left(outlet))
        };
        stage.play(|world| if is_woken(world) { 0 } else { u64::MAX }, until_us);
        outlets.retain(|outlet| !self.world.borrow().has_left(outlet));
        descriptor::lower(counter);
    }
}
