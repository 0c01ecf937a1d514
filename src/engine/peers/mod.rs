//! Compares connections and addresses with each other, to find those far behind. Pure.
//!
//! [`Paces`]: usual durations of the steps of a connection. [`Addresses`]: where to connect, from
//! the knowledge of all workers ([`SharedAddresses`]). [`NetworkClock`]: the time by which they
//! judge. The drivers of connections decide what to do about a late one, within the bounds here.

mod addresses;
mod clock;
mod pace;
mod served;

pub use addresses::{Addresses, EndpointAddress, OpenConnection, RangeTimes, SharedAddresses};
pub use clock::NetworkClock;
pub use pace::Paces;

use crate::limits::{HEDGES_AT_ONCE_MAX, HEDGES_PER_100_REQUESTS_MAX};
use crate::link::conn::Conn;

/// What a connection waits for: each phase has its own pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Connecting, including the TLS handshake.
    Connect,
    /// Waiting for an answer's head.
    Head,
    /// Receiving a piece of a body.
    Body,
}

impl Phase {
    /// The phase of a connection that has a range.
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

/// Why an attempt is ended before its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateEnd {
    /// Its range continues at once on another connection.
    Move,
    /// It is stuck: the attempt has failed.
    Stuck,
    /// Its server answers no further connection: the range waits for one that is answered.
    Unserved,
}

/// True if one more late range may be requested again, after `asked_again` ones.
#[must_use]
pub fn is_within_budget(asked_again: u64, requests: u64, connections: usize) -> bool {
    let at_once = connections.min(HEDGES_AT_ONCE_MAX) as u64;
    asked_again < at_once + requests * HEDGES_PER_100_REQUESTS_MAX / 100
}

/// True if most of the busy connections are late and more than a quarter of all are busy: then the
/// network, the server or this machine is the cause, and another connection does not help.
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
