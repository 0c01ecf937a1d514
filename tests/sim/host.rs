//! A worker's machine but for its file jobs: the clock, chance, sockets, requests.

use std::net::SocketAddr;

use inrush::error::Error;
use inrush::files::host::{Host, OptionalHeaders};
use inrush::link::object::ObjectRef;
use inrush::s3::ByteRange;
use inrush::s3::redirect::Elsewhere;
use inrush::sys::{Errno, Handle};

use super::jobs::Desk;
use super::plumbing::End;
use super::ring::STOP_US;
use super::secure::Server;
use super::world::Shared;

/// Packets that came out of order over each socket.
pub(crate) const OUT_OF_ORDER: u32 = 3;

/// A worker's machine.
#[derive(Debug)]
pub(crate) struct SimHost {
    pub(super) world: Shared,
    pub(super) worker: usize,
    pub(super) desk: Desk,
}

impl Host for SimHost {
    fn now_us(&mut self) -> u64 {
        let mut world = self.world.borrow_mut();
        world.pause("stopped", STOP_US);
        world.now_us += 1;
        world.now_us
    }

    fn random(&mut self) -> u64 {
        self.world.borrow_mut().chance.next()
    }

    fn socket(&mut self, address: &SocketAddr) -> Result<Handle, Errno> {
        let mut world = self.world.borrow_mut();
        let rate = world.rates.network_per_mille / 4;
        if world.chance.hits(rate) {
            world.count("no socket");
            return Err(Errno::new(24));
        }
        let now_us = world.now_us;
        world.connects.push((*address, now_us));
        let server = world.sides.as_ref().map(Server::new);
        Ok(world.open(server))
    }

    fn out_of_order_packets(&mut self, _socket: &Handle) -> Option<u32> {
        Some(OUT_OF_ORDER)
    }

    fn set_low_water(&mut self, socket: &Handle, bytes: u32) {
        let mut world = self.world.borrow_mut();
        let socket = world.socket(socket);
        world.sockets[socket].low_water = bytes as usize;
    }

    fn set_nonblocking(&mut self, socket: &Handle, is_on: bool) -> Result<(), Errno> {
        let mut world = self.world.borrow_mut();
        let socket = world.socket(socket);
        world.sockets[socket].nonblocking = is_on;
        Ok(())
    }

    fn receive(&mut self, socket: &Handle, into: &mut [u8]) -> Result<usize, Errno> {
        let mut world = self.world.borrow_mut();
        let from = world.end(socket);
        let End::Socket(socket) = from else { unreachable!("a socket") };
        assert!(world.sockets[socket].nonblocking, "a call on it may not wait");
        world.read_socket(from, into)
    }

    fn write_pipe(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        self.world.borrow_mut().write_pipe(pipe, bytes)
    }

    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno> {
        let mut world = self.world.borrow_mut();
        let from = world.end(from);
        if let End::Socket(socket) = from {
            assert!(world.sockets[socket].nonblocking, "a call on it may not wait");
        }
        world.splice(from, to, length)
    }

    fn unread(&mut self, pipe: &Handle) -> Result<u64, Errno> {
        Ok(self.world.borrow().unread(pipe))
    }

    fn write_request(
        &mut self,
        out: &mut [u8],
        object: &ObjectRef,
        elsewhere: Option<&Elsewhere>,
        range: Option<ByteRange>,
        _headers: OptionalHeaders,
    ) -> Result<u32, Error> {
        let range = range
            .map(|range| format!("{}-{}", range.offset, range.offset + range.length - 1))
            .unwrap_or_default();
        let to = elsewhere.map(|elsewhere| format!(" @{}", elsewhere.endpoint.host));
        let text = format!("{} {range}{}\n", object.listed.key, to.unwrap_or_default());
        out[..text.len()].copy_from_slice(text.as_bytes());
        Ok(u32::try_from(text.len()).expect("short"))
    }
}
