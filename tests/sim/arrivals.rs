//! Answers that come in pieces over virtual time, and their ends after them: for streams, whose
//! bytes are moved on as they come.

use std::collections::VecDeque;

use super::origin::Fault;
use super::plumbing::small;
use super::world::{Socket, World};

/// What of an answer is on its way.
#[derive(Debug, Default)]
pub(super) struct Transit {
    /// When the answer has come how far.
    arrivals: VecDeque<(u64, usize)>,
    arrived: usize,
    /// When what happens at its end happens.
    end_us: u64,
}

impl Transit {
    /// Bytes that have come.
    pub(super) fn arrived(&self) -> usize {
        self.arrived
    }

    /// Bytes at the front were taken, and are forgotten.
    pub(super) fn forget(&mut self, count: usize) {
        self.arrived = self.arrived.saturating_sub(count);
        self.arrivals.iter_mut().for_each(|(_, reached)| *reached -= count);
    }
}

impl Socket {
    /// Where its answer ends, or breaks off.
    fn stop(&self) -> usize {
        self.end.map_or(self.answer.len(), |(cut, _)| cut)
    }
}

impl World {
    /// True when what happens at the end of a socket's answer has happened.
    pub(super) fn has_ended(&self, socket: usize) -> bool {
        self.sockets[socket].transit.end_us <= self.now_us
    }

    /// Sends what a socket's answer has more than before: it comes in pieces, and its end behind
    /// them.
    pub(super) fn send_in_pieces(&mut self, socket: usize) {
        let uneven = self.plumbing.uneven;
        let piece_max = [64, 3000, 20_000, 100_000][small(self.chance.below(4))];
        let (slowest_us, end_us) = if uneven { (20_000, 3_000_000) } else { (500, 100_000) };
        let pace_us = [10, 500, slowest_us][small(self.chance.below(3))];
        let mut at_us = self.now_us + self.chance.below(3_000);
        let found = &mut self.sockets[socket];
        let stop = found.stop();
        let last = found.transit.arrivals.back().copied();
        let (last_us, mut reached) = last.unwrap_or((0, found.transit.arrived));
        at_us = at_us.max(last_us);
        let length = stop.saturating_sub(reached);
        while reached < stop {
            let piece = (length / 40).max(small(1 + self.chance.below(piece_max)));
            reached = stop.min(reached + piece);
            found.transit.arrivals.push_back((at_us, reached));
            at_us += self.chance.below(pace_us);
        }
        // Whatever comes at the end may come long after, while nobody takes what was sent.
        at_us += if self.chance.hits(300) { self.chance.below(end_us) } else { 0 };
        if found.end.is_some() && found.transit.end_us == 0 {
            found.transit.end_us = at_us;
        }
        if !self.plumbing.moving.contains(&socket) {
            self.plumbing.moving.push(socket);
        }
    }

    /// Lets bytes come whose time has come.
    pub(super) fn step_sockets(&mut self) {
        let mut moving = std::mem::take(&mut self.plumbing.moving);
        moving.retain(|socket| {
            let found = &mut self.sockets[*socket];
            let transit = &mut found.transit;
            while transit.arrivals.front().is_some_and(|(at_us, _)| *at_us <= self.now_us) {
                transit.arrived = transit.arrivals.pop_front().expect("just seen").1;
                self.plumbing.events += 1;
            }
            if !transit.arrivals.is_empty() || transit.end_us > self.now_us {
                return true;
            }
            self.plumbing.events += 1;
            // What was not read may be lost with a reset.
            let is_reset = matches!(found.end, Some((_, Fault::Reset)));
            if is_reset && self.chance.hits(300) {
                found.end = Some((found.given, Fault::Reset));
            }
            false
        });
        self.plumbing.moving = moving;
    }

    /// When bytes come next, or an end.
    pub(super) fn next_arrival_us(&self) -> u64 {
        let next = self.plumbing.moving.iter().map(|socket| {
            let transit = &self.sockets[*socket].transit;
            transit.arrivals.front().map_or(transit.end_us, |(at_us, _)| *at_us)
        });
        next.min().unwrap_or(u64::MAX)
    }
}
