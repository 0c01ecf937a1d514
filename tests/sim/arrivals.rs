//! Answers that come in pieces over virtual time, and their ends after them: for streams, whose
//! bytes are moved on as they come.

use std::collections::VecDeque;

use super::CALM;
use super::memory::Retransmission;
use super::origin::Fault;
use super::plumbing::small;
use super::seeds;
use super::world::World;

/// What of an answer is on its way.
#[derive(Debug, Default)]
pub(super) struct Transit {
    /// When the answer has come how far.
    arrivals: VecDeque<(u64, usize)>,
    arrived: usize,
    /// When what happens at its end happens.
    end_us: u64,
    retransmission: Retransmission,
}

impl Transit {
    /// Bytes that have come.
    pub(super) fn arrived(&self) -> usize {
        self.arrived
    }

    /// Delays what is on its way, and the end behind it.
    fn delay(&mut self, by_us: u64) {
        self.arrivals.iter_mut().for_each(|(at_us, _)| *at_us += by_us);
        if self.end_us > 0 {
            self.end_us += by_us;
        }
    }

    /// Bytes at the front were taken, and are forgotten.
    pub(super) fn forget(&mut self, count: usize) {
        self.arrived = self.arrived.saturating_sub(count);
        self.arrivals.iter_mut().for_each(|(_, reached)| *reached -= count);
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
        self.count_memory();
        let mut moving = std::mem::take(&mut self.plumbing.moving);
        moving.retain(|socket| {
            let found = &mut self.sockets[*socket];
            let is_open = found.is_open();
            let transit = &mut found.transit;
            while let Some((at_us, reached)) = transit.arrivals.front().copied()
                && at_us <= self.now_us
            {
                let bytes = if is_open { reached.saturating_sub(transit.arrived) } else { 0 };
                let retransmission = &mut transit.retransmission;
                if !self.memory.accepts(bytes as u64, retransmission, self.now_us) {
                    let again_us = retransmission.again_us;
                    transit.delay(again_us - at_us);
                    break;
                }
                transit.arrived = reached;
                transit.arrivals.pop_front();
                self.plumbing.events += 1;
            }
            if !transit.arrivals.is_empty() || transit.end_us > self.now_us {
                return true;
            }
            self.plumbing.events += 1;
            // What was not read may be lost with a reset.
            let is_reset = matches!(found.end, Some((_, Fault::Reset)));
            if is_reset && self.chance.hits(300) {
                let is_lost = found.given < found.transit.arrived;
                seeds::note("bytes lost with a reset", u64::from(is_lost));
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

/// Pieces that find the machine full come after a timer, in order, and what ends the answer behind
/// them.
#[test]
fn what_is_dropped_delays_what_is_behind_it() {
    let world = World::new(1, CALM);
    let mut world = world.borrow_mut();
    world.plumbing.arrives = true;
    world.memory.drops_above_bytes = 60_000;
    let held = [0, 1].map(|_| world.open(None));
    for socket in 0..2 {
        world.sockets[socket].answer = vec![7; 50_000];
        world.sockets[socket].end = Some((50_000, Fault::End));
        world.depart(socket, 50_000);
    }
    let go_on = |world: &mut World, until_us: u64| {
        while world.now_us < until_us {
            world.step();
            world.now_us = world.next_us().min(until_us);
        }
        world.step();
        [0, 1].map(|socket| world.come(socket, 50_000))
    };
    let come = go_on(&mut world, 1_000_000);
    assert!(come.iter().sum::<usize>() <= 60_000 && world.memory.drops > 1, "{come:?}");
    let late = come.iter().position(|come| *come < 50_000).expect("one of them is late");
    assert!(!world.has_ended(late), "its end is behind its bytes");
    world.sockets.iter_mut().zip(come).for_each(|(socket, come)| socket.given = come);
    assert_eq!(go_on(&mut world, 30_000_000), [50_000; 2]);
    assert!(world.has_ended(late) && world.memory.socket_bytes_peak <= 60_000);
    drop(held);
}
