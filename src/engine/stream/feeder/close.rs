//! The end of a feeder: its FIFOs go, readers of a failed stream are held, and what workers and the
//! kernel still have of it comes back.

use super::outlet::Outlet;
use super::{Feeder, TOKEN_GONE, TOKEN_READER, TOKEN_ROOM, TOKEN_WAKE};
use crate::files::host::PipeHost;
use crate::limits::REST_WAIT_MAX_US;
use crate::sys::{Handle, Op, POLL_IN, Ring, descriptor};

/// Turns to wait for cancelled operations, which normally return at once.
const SETTLE_TURNS_MAX: u32 = 1000;
/// Longest wait of one of these turns, in microseconds.
const SETTLE_WAIT_US: u64 = 10_000;

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// Removes every FIFO and takes everything back from the kernel. Readers of a failed stream see
    /// its end, or are held.
    pub(super) fn close_up(&mut self) {
        let has_failed = self.feed.is_stopped() && !self.feed.is_interrupted();
        let held = if self.holds && has_failed { self.retire_places() } else { Vec::new() };
        if !matches!(self.outlet, Outlet::Closed) {
            self.host.withdraw(self.epoch);
            self.host.withdraw(self.epoch + 1);
        }
        self.staging.clear();
        // A worker moves bytes into the reader's pipe until it learns of the end.
        self.take_moved();
        let last = self.window.handover().cloned();
        self.settle();
        if matches!(self.outlet, Outlet::Open { .. } | Outlet::Left { .. }) {
            self.current.bytes += last.map_or(0, |pipes| pipes.take_moved());
            self.end_count();
        }
        self.outlet = Outlet::Closed;
        self.hold(held);
    }

    /// Removes the FIFOs; returns handles that keep their readers from seeing an end.
    fn retire_places(&mut self) -> Vec<Handle> {
        let mut held = Vec::new();
        if let Outlet::Open { handle, .. } | Outlet::Left { handle } = &self.outlet {
            held.push(handle.clone());
            self.host.withdraw(self.epoch);
        } else if !matches!(self.outlet, Outlet::Closed) {
            held.extend(self.host.retire(self.epoch));
        }
        held.extend(self.host.retire(self.epoch + 1));
        held
    }

    /// Waits until readers have left, or the user ends the run, which raises the counter.
    fn hold(&mut self, mut held: Vec<Handle>) {
        while !held.is_empty() && !self.feed.is_interrupted() {
            self.host.wait_left(&mut held, &self.counter, REST_WAIT_MAX_US);
        }
    }

    /// Takes everything back from the workers and the kernel.
    fn settle(&mut self) {
        self.window.clear();
        for turn in 0..SETTLE_TURNS_MAX {
            // Their errors were reported already.
            drop(self.window.take_completions());
            if self.window.requests() == 0 {
                self.ring.cancel(TOKEN_WAKE);
            } else if !self.awaiting {
                let op = Op::Poll { handle: self.counter.clone(), events: POLL_IN };
                self.awaiting = self.ring.submit(TOKEN_WAKE, op).is_ok();
            }
            if self.window.requests() == 0 && self.ring.in_flight() == 0 {
                break;
            }
            self.ring.cancel(TOKEN_ROOM);
            self.ring.cancel(TOKEN_GONE);
            self.ring.cancel(TOKEN_READER);
            if self.ring.enter(if turn == 0 { 0 } else { SETTLE_WAIT_US }).is_err() {
                break;
            }
            while let Some(completion) = self.ring.reap() {
                if completion.token == TOKEN_WAKE {
                    self.awaiting = false;
                    descriptor::lower(&self.counter);
                }
            }
        }
    }
}
