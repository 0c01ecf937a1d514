//! The feeder's side of the simulated machine of Pipe mode: its ring and its host.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use inrush::error::Error;
use inrush::host::{FileError, Host, PipeHost, PrivatePipe, WholeEpoch};
use inrush::s3::ByteRange;
use inrush::sys::{Completion, Errno, Handle, Op, Ring};
use inrush::transfer::Transfer;

use super::plumbing::{End, LOST_CANCELS_MAX, Lab, Socket};
use super::secure::Server;

pub(crate) type SharedLab = Rc<RefCell<Lab>>;

/// The feeder's machine.
#[derive(Debug)]
pub(crate) struct LabHost(pub(crate) SharedLab);

impl Host for LabHost {
    fn now_us(&mut self) -> u64 {
        let mut lab = self.0.borrow_mut();
        lab.now_us += 1;
        lab.now_us
    }

    fn random(&mut self) -> u64 {
        self.0.borrow_mut().chance.next()
    }

    fn socket(&mut self, _address: &SocketAddr) -> Result<Handle, Errno> {
        let mut lab = self.0.borrow_mut();
        let rate = lab.rates.network_per_mille / 4;
        if lab.chance.hits(rate) {
            lab.inject("no socket");
            return Err(Errno::new(24));
        }
        lab.events += 1;
        let server = lab.sides.as_ref().map(Server::new);
        lab.sockets.push(Socket::new(server));
        Ok(Handle::Simulated(lab.sockets.len() as u64 - 1))
    }

    fn set_low_water(&mut self, _socket: &Handle, _bytes: u32) {
        unreachable!("a splice takes what is there")
    }

    fn write_request(
        &mut self,
        out: &mut [u8],
        transfer: &Transfer,
        range: Option<ByteRange>,
    ) -> Result<u32, Error> {
        let range = range.expect("a stream asks for ranges");
        let last = range.offset + range.length - 1;
        let text = format!("{} {}-{last}\n", transfer.object.key, range.offset);
        out[..text.len()].copy_from_slice(text.as_bytes());
        Ok(u32::try_from(text.len()).expect("short"))
    }
}

impl PipeHost for LabHost {
    fn set_nonblocking(&mut self, socket: &Handle) -> Result<(), Errno> {
        self.0.borrow_mut().socket(socket).nonblocking = true;
        Ok(())
    }

    fn send(&mut self, socket: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let mut lab = self.0.borrow_mut();
        if lab.is_down() { Err(Errno::RESET) } else { lab.send(socket, bytes) }
    }

    fn receive(&mut self, socket: &Handle, into: &mut [u8], peek: bool) -> Result<usize, Errno> {
        self.0.borrow_mut().receive(socket, into, peek)
    }

    fn write(&mut self, pipe: &Handle, bytes: &[u8]) -> Result<usize, Errno> {
        self.0.borrow_mut().write(pipe, bytes)
    }

    fn splice(&mut self, from: &Handle, to: &Handle, length: u64) -> Result<u64, Errno> {
        self.0.borrow_mut().splice(from, to, length)
    }

    fn private_pipe(&mut self, _wish_bytes: u64) -> Result<PrivatePipe, Errno> {
        let mut lab = self.0.borrow_mut();
        let rate = lab.rates.disk_per_mille;
        if lab.chance.hits(rate) {
            lab.inject("no pipe");
            return Err(Errno::new(24));
        }
        let (handle, capacity_bytes) = lab.make_pipe();
        Ok(PrivatePipe { writer: handle.clone(), reader: handle, capacity_bytes })
    }

    fn offer(&mut self, epoch: u64) -> Result<(), Error> {
        let mut lab = self.0.borrow_mut();
        let rate = lab.rates.disk_per_mille;
        if lab.chance.hits(rate) {
            lab.inject("no place");
            let path = format!("place_{epoch}");
            return Err(FileError { step: "make pipe", path, errno: Errno::NO_SPACE }.into());
        }
        lab.offer(epoch);
        Ok(())
    }

    fn open(&mut self, epoch: u64) -> Result<Option<Handle>, Error> {
        Ok(self.0.borrow_mut().open(epoch))
    }

    fn unread(&mut self, outlet: &Handle) -> Result<u64, Errno> {
        Ok(self.0.borrow().unread(outlet))
    }

    fn mark(&mut self, whole: WholeEpoch) -> Result<(), Error> {
        let mut lab = self.0.borrow_mut();
        let rate = lab.rates.disk_per_mille;
        if lab.chance.hits(rate) {
            lab.inject("no marker");
            let path = format!("place_{}.ok", whole.epoch);
            return Err(FileError { step: "make", path, errno: Errno::NO_SPACE }.into());
        }
        lab.mark(whole);
        Ok(())
    }

    fn unmark(&mut self, epoch: u64) -> Result<(), Error> {
        self.0.borrow_mut().unmark(epoch);
        Ok(())
    }

    fn withdraw(&mut self, epoch: u64) {
        self.0.borrow_mut().withdraw(epoch);
    }

    fn retire(&mut self, epoch: u64) -> Option<Handle> {
        self.0.borrow_mut().retire(epoch)
    }

    fn wait_left(&mut self, outlet: &Handle, wait_us: u64) -> bool {
        self.0.borrow_mut().wait_left(outlet, wait_us)
    }
}

/// An operation that the simulated kernel owns.
#[derive(Debug)]
struct Flight {
    token: u64,
    op: Op,
    /// It does not complete earlier.
    from_us: u64,
    /// A poll completes then, for nothing.
    spurious_us: u64,
    cancelled: bool,
    /// Cancels of it that were lost.
    lost: u32,
    refused: bool,
}

/// A ring over the machine.
#[derive(Debug)]
pub(crate) struct LabRing {
    lab: SharedLab,
    flights: Vec<Flight>,
    done: Vec<Completion>,
}

impl LabRing {
    pub(crate) fn new(lab: SharedLab) -> Self {
        Self { lab, flights: Vec::new(), done: Vec::new() }
    }
}

impl Flight {
    /// What it completes with now, if it does.
    fn result(&self, lab: &mut Lab) -> Option<Result<u32, Errno>> {
        if self.cancelled {
            lab.events += 1;
            return Some(Err(Errno::CANCELED));
        }
        match &self.op {
            _ if self.from_us > lab.now_us => None,
            Op::Connect { .. } => {
                lab.events += 1;
                Some(if self.refused { Err(Errno::REFUSED) } else { Ok(0) })
            }
            Op::Poll { handle, events } => {
                let ready = lab.readiness(handle, *events);
                if ready == 0 && self.spurious_us <= lab.now_us {
                    lab.inject("spurious");
                    return Some(Ok(u32::from(*events)));
                }
                (ready != 0).then_some(Ok(u32::from(ready)))
            }
            _ => unreachable!("a feeder connects and polls"),
        }
    }
}

impl Ring for LabRing {
    fn submit(&mut self, token: u64, op: Op) -> Result<(), Op> {
        let unique = self.flights.iter().all(|flight| flight.token != token);
        assert!(unique && self.done.iter().all(|done| done.token != token), "tokens are unique");
        let mut lab = self.lab.borrow_mut();
        let connects = matches!(op, Op::Connect { .. });
        let (network, hang) = (lab.rates.network_per_mille, lab.rates.hang_per_mille);
        if lab.chance.hits(network / 8) {
            lab.inject(if token < 1 << 40 { "ring full" } else { "ring full for a watch" });
            return Err(op);
        }
        let mut from_us = lab.now_us + lab.chance.below(500);
        let mut refused = false;
        if connects && lab.chance.hits(hang) {
            lab.inject("hang");
            from_us = u64::MAX;
        } else if connects && lab.is_down() {
            lab.inject("down");
            refused = true;
        } else if connects && lab.chance.hits(network) {
            lab.inject("refused");
            refused = true;
        }
        let rate = lab.spurious_per_mille;
        let spurious = lab.chance.hits(rate);
        let lost_per_mille = lab.lost_per_mille;
        let is_wait =
            matches!(&op, Op::Poll { handle, .. } if matches!(lab.end(handle), End::Counter));
        if is_wait && lab.chance.hits(lost_per_mille) {
            lab.inject("lost wake-up");
            from_us = u64::MAX;
        }
        let later_us = from_us.saturating_add(lab.chance.below(50_000));
        let spurious_us = if spurious { later_us } else { u64::MAX };
        self.flights.push(Flight {
            token,
            op,
            from_us,
            spurious_us,
            cancelled: false,
            lost: 0,
            refused,
        });
        Ok(())
    }

    fn cancel(&mut self, token: u64) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.token == token) {
            let mut lab = self.lab.borrow_mut();
            let lost_per_mille = lab.lost_per_mille;
            if flight.lost < LOST_CANCELS_MAX && lab.chance.hits(lost_per_mille) {
                flight.lost += 1;
                lab.inject("lost cancel");
                return;
            }
            flight.cancelled = true;
        }
    }

    fn enter(&mut self, wait_us: u64) -> Result<(), Errno> {
        let mut lab = self.lab.borrow_mut();
        let until_us = lab.now_us + wait_us;
        loop {
            lab.step();
            let mut index = 0;
            while index < self.flights.len() {
                if let Some(result) = self.flights[index].result(&mut lab) {
                    let Flight { token, op, .. } = self.flights.swap_remove(index);
                    self.done.push(Completion { token, op, result });
                } else {
                    index += 1;
                }
            }
            if !self.done.is_empty() || lab.now_us >= until_us {
                break;
            }
            let now_us = lab.now_us;
            let own = self.flights.iter().flat_map(|flight| [flight.from_us, flight.spurious_us]);
            let own = own.filter(|at_us| *at_us > now_us).min().unwrap_or(u64::MAX);
            lab.now_us = own.min(lab.next_us()).min(until_us).max(now_us);
        }
        // The process is stopped for a while (SIGSTOP).
        let pauses = lab.rates.pause_per_mille;
        if pauses > 0 && lab.chance.hits(pauses) {
            lab.now_us += 1_000_000 + lab.chance.below(60_000_000);
        }
        // Completions come in any order.
        for last in (1..self.done.len()).rev() {
            let other = usize::try_from(lab.chance.below(last as u64 + 1)).expect("small");
            self.done.swap(last, other);
        }
        Ok(())
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop()
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.done.len()
    }
}
