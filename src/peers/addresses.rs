//! How the addresses of the endpoints fare: where to connect next. Pure.

use std::net::SocketAddr;

use crate::failure::Failure;
use crate::limits::{ADDRESS_AVOID_BASE_US, ADDRESS_AVOID_MAX_US, ADDRESSES_KEPT_MAX};
use crate::metrics::AddressCount;

/// What a worker or a feeder knows of all addresses that it met.
#[derive(Debug, Default)]
pub struct Addresses(Vec<Known>);

#[derive(Debug)]
struct Known {
    count: AddressCount,
    /// Failures since the last range that came from here.
    failed_in_a_row: u32,
    avoid_until_us: u64,
}

impl Addresses {
    fn find(&mut self, address: SocketAddr) -> &mut Known {
        let at = self.0.iter().position(|known| known.count.address == address);
        let at = at.unwrap_or_else(|| {
            // Names that are resolved again and again bring new ones: the oldest goes.
            if self.0.len() == ADDRESSES_KEPT_MAX {
                self.0.remove(0);
            }
            let count = AddressCount::new(address);
            self.0.push(Known { count, failed_in_a_row: 0, avoid_until_us: 0 });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// The address to connect to: none that failed lately, not `other_than` where there is a
    /// choice, and then the one with the fewest connections, in turn.
    pub fn choose(
        &mut self,
        of: &[SocketAddr],
        other_than: Option<SocketAddr>,
        turn: usize,
        now_us: u64,
        mut connections: impl FnMut(SocketAddr) -> usize,
    ) -> Option<SocketAddr> {
        let rotated = (0..of.len()).map(|index| of[(turn + index) % of.len()]);
        rotated.min_by_key(|address| {
            let known = self.0.iter().find(|known| known.count.address == *address);
            let avoid_until_us = known.map_or(0, |known| known.avoid_until_us);
            let avoided_us = if avoid_until_us > now_us { avoid_until_us } else { 0 };
            (avoided_us, Some(*address) == other_than, connections(*address))
        })
    }

    /// A connection to it is begun.
    pub fn connecting(&mut self, address: SocketAddr) {
        self.find(address).count.connects += 1;
    }

    /// It failed, or was far slower than its peers: for a while it is avoided, longer each time.
    pub fn failed(&mut self, address: SocketAddr, now_us: u64) {
        let known = self.find(address);
        known.count.failures += 1;
        let doubled = ADDRESS_AVOID_BASE_US << known.failed_in_a_row.min(16);
        known.failed_in_a_row = known.failed_in_a_row.saturating_add(1);
        known.avoid_until_us = now_us + doubled.min(ADDRESS_AVOID_MAX_US);
    }

    /// An attempt failed there, before its time where it was ended as late. That alone says little
    /// of an address from which ranges came.
    pub fn blame(&mut self, address: SocketAddr, failure: Failure, was_late: bool, now_us: u64) {
        if !was_late || failure == Failure::ConnectTimeout || !self.is_good(address) {
            self.failed(address, now_us);
        }
    }

    /// True when ranges came from it, and it has not failed since.
    fn is_good(&self, address: SocketAddr) -> bool {
        let known = self.0.iter().find(|known| known.count.address == address);
        known.is_some_and(|known| known.count.ranges > 0 && known.failed_in_a_row == 0)
    }

    /// A range came from it.
    pub fn brought(&mut self, address: SocketAddr, bytes: u64, times: Times) {
        let known = self.find(address);
        known.count.ranges += 1;
        known.count.bytes += bytes;
        known.count.first_byte_us += times.first_byte_us;
        known.count.body_us += times.body_us;
        (known.failed_in_a_row, known.avoid_until_us) = (0, 0);
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> Vec<AddressCount> {
        self.0.iter().map(|known| known.count).collect()
    }
}

/// How long a range took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// From the request to the head of its answer, in microseconds.
    pub first_byte_us: u64,
    /// From there to its last byte, in microseconds.
    pub body_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 80))
    }

    const QUICK: Times = Times { first_byte_us: 1, body_us: 2 };

    #[test]
    fn connections_are_spread() {
        let mut addresses = Addresses::default();
        let all = [address(1), address(2), address(3)];
        let mut open = [0usize; 4];
        for turn in 0..9 {
            let chosen = addresses.choose(&all, None, turn, 0, |at| open[last(at)]);
            open[last(chosen.expect("one"))] += 1;
        }
        assert_eq!(open, [0, 3, 3, 3]);
        assert_eq!(addresses.choose(&[], None, 0, 0, |_| 0), None);
    }

    fn last(address: SocketAddr) -> usize {
        let SocketAddr::V4(address) = address else { unreachable!("made above") };
        usize::from(address.ip().octets()[3])
    }

    #[test]
    fn what_fails_is_avoided_for_a_while() {
        let mut addresses = Addresses::default();
        let all = [address(1), address(2)];
        addresses.failed(address(1), 0);
        for turn in 0..4 {
            let chosen = |now_us| addresses_chosen(&mut addresses, &all, turn, now_us);
            let mut chosen = chosen;
            assert_eq!(chosen(0), address(2), "{turn}");
            assert_eq!(chosen(ADDRESS_AVOID_BASE_US), all[turn % 2]);
        }
        // Longer each time, and not for ever.
        for _ in 0..40 {
            addresses.failed(address(1), 0);
        }
        assert_eq!(addresses_chosen(&mut addresses, &all, 0, ADDRESS_AVOID_MAX_US - 1), address(2));
        assert_eq!(addresses_chosen(&mut addresses, &all, 0, ADDRESS_AVOID_MAX_US), address(1));
        assert!(!addresses.is_good(address(1)));
        addresses.brought(address(1), 5, QUICK);
        assert!(addresses.is_good(address(1)) && !addresses.is_good(address(2)));
        assert_eq!(addresses_chosen(&mut addresses, &all, 0, 0), address(1));
        let counts = addresses.counts();
        assert_eq!((counts[0].failures, counts[0].ranges, counts[0].bytes), (41, 1, 5));
    }

    fn addresses_chosen(
        addresses: &mut Addresses,
        all: &[SocketAddr],
        turn: usize,
        now_us: u64,
    ) -> SocketAddr {
        addresses.choose(all, None, turn, now_us, |_| 0).expect("one of them")
    }

    #[test]
    fn where_all_fail_the_one_that_is_free_first_is_taken() {
        let mut addresses = Addresses::default();
        let all = [address(1), address(2)];
        addresses.failed(address(1), 0);
        addresses.failed(address(1), 0);
        addresses.failed(address(2), 0);
        assert_eq!(addresses_chosen(&mut addresses, &all, 0, 1), address(2));
    }

    #[test]
    fn another_one_is_taken_where_there_is_a_choice() {
        let mut addresses = Addresses::default();
        let all = [address(1), address(2)];
        let busy = |at: SocketAddr| if at == address(2) { 9 } else { 0 };
        let other = addresses.choose(&all, Some(address(1)), 0, 0, busy);
        assert_eq!(other, Some(address(2)));
        assert_eq!(addresses.choose(&all[..1], Some(address(1)), 0, 0, busy), Some(address(1)));
    }

    #[test]
    fn only_so_many_are_kept() {
        let mut addresses = Addresses::default();
        for number in 0..2 * ADDRESSES_KEPT_MAX {
            let port = u16::try_from(number + 1).expect("a port");
            addresses.connecting(SocketAddr::from(([127, 0, 0, 1], port)));
        }
        assert_eq!(addresses.counts().len(), ADDRESSES_KEPT_MAX);
    }
}
