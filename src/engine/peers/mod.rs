//! How connections and addresses fare beside each other, so that one far behind is noticed. Pure.
//!
//! [`Paces`]: how long the steps of a connection usually take. [`Addresses`]: where to connect
//! next, by what all workers know ([`SharedAddresses`]). [`NetworkClock`]: the time that all of it
//! goes by. What is done about a late one is for those who drive the connections to say, within the
//! bounds that are given here.

mod addresses;
mod clock;
mod pace;
mod served;

pub use addresses::{Addresses, OpenConnection, Place, RangeTimes, SharedAddresses};
pub use clock::NetworkClock;
pub use pace::Paces;

use crate::limits::{HEDGES_AT_ONCE_MAX, HEDGES_PER_100_REQUESTS_MAX};
use crate::link::conn::Conn;

/// What a connection waits for: each has its own pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The connection is made, its handshake included.
    Connect,
    /// An answer's head is waited for.
    Head,
    /// A piece of a body is on its way.
    Body,
}

impl Phase {
    /// Where a connection is that has a range.
    #[must_use]
    pub fn of(conn: &Conn) -> Self {
        if conn.is_connecting() {
            Self::Connect
        } else if conn.awaits_head() {
            Self::Head
        } else {
            Self::Body
        }
    }
}

/// Why a connection's attempt is ended before its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateEnd {
    /// Its range goes on at once on another connection.
    Move,
    /// It is stuck: the attempt has failed.
    Stuck,
    /// Its server answers no more connections than it has: the range waits for one of those.
    Unserved,
}

/// Whether one more late range may be asked for again, of so many that were.
#[must_use]
pub fn is_within_budget(asked_again: u64, requests: u64, connections: usize) -> bool {
    let at_once = connections.min(HEDGES_AT_ONCE_MAX) as u64;
    asked_again < at_once + requests * HEDGES_PER_100_REQUESTS_MAX / 100
}

/// Whether so many of the busy connections are late that it is the network, the server or this
/// machine, and another connection does not help.
#[must_use]
pub fn is_general(late: usize, busy: usize, connections: usize) -> bool {
    late * 2 > busy && busy * 4 > connections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_one_for_each_connection_and_a_share_of_the_requests() {
        assert!(is_within_budget(7, 19, 8) && !is_within_budget(8, 19, 8));
        assert!(is_within_budget(12, 100, 8) && !is_within_budget(13, 100, 8));
    }

    #[test]
    fn a_few_that_are_late_are_not_all() {
        assert!(!is_general(1, 2, 4) && is_general(2, 3, 4));
        assert!(!is_general(1, 1, 4), "the others have nothing to wait for");
        assert!(is_general(1, 1, 3));
    }
}
