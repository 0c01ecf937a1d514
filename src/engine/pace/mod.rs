//! How many requests are in flight, and how many are sent a second: found out while they run. Pure.
//!
//! [`Controller`] decides: it is told the time and what has come so far ([`Totals`]) and says what
//! may be asked for ([`Limits`]). Goodput is its signal. It climbs by doubling while that pays,
//! keeps to the fewest requests with which nearly the best was reached, and looks beside from time
//! to time, for neighbours come and go. An endpoint that asks for less (503, 429) is given a rate
//! of requests (`rate`); what a user bounds is a rate of bytes ([`Bandwidth`]). [`Pacer`] is the
//! controller of a run as its workers share it, each by its [`Share`].
//!
//! A run may have several endpoints ([`EndpointNumber`]). What each asks for is its own: there is a
//! rate for each. How many requests are in flight is one number for all of them, for that is what
//! the machine, its network and its memory take, and what the user bounds; and goodput is that of
//! all, for a controller of each would take for its own knee what the others leave it. So the sum
//! stays within its bounds whatever each endpoint does, there is nothing to divide, and one
//! endpoint is the case of several where there is one. Requests that an endpoint holds back count
//! for nothing: the workers keep them aside, and have others in flight meanwhile.

mod bandwidth;
mod controller;
mod levels;
mod pacer;
mod rate;
mod share;
mod timeline;
mod window;

pub use bandwidth::{Bandwidth, part_bytes};
pub use controller::Controller;
pub use pacer::{PaceSeen, Pacer};
pub use share::Share;
pub use timeline::{Change, Moment, Timeline};

use crate::engine::endpoints::EndpointNumber;
use crate::limits::PACE_PIECE_BYTES;

/// Between which numbers of requests in flight a controller may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest.
    pub least: u32,
    /// Where it begins.
    pub start: u32,
    /// Most.
    pub most: u32,
    /// A choice shows in what comes after so many bytes of a connection: a slot's, or for what must
    /// come in order a whole range's.
    pub piece_bytes: u64,
    /// What is asked for is handed on in order: bytes that came wait for those before them, and
    /// what was handed on in a short time says little.
    pub is_ordered: bool,
}

impl Bounds {
    /// No choice.
    #[must_use]
    pub const fn fixed(requests: u32) -> Self {
        Self {
            least: requests,
            start: requests,
            most: requests,
            piece_bytes: PACE_PIECE_BYTES,
            is_ordered: false,
        }
    }

    /// False where there is no choice.
    #[must_use]
    pub const fn is_adaptive(&self) -> bool {
        self.least < self.most
    }
}

/// What has come so far: of one worker, or of all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Body bytes.
    pub bytes: u64,
    /// Requests that were sent.
    pub asked: u64,
    /// Bytes that they ask for.
    pub asked_bytes: u64,
    /// Answers that were what was asked for.
    pub answers: u64,
    /// Answers that asked for less (503, 429).
    pub refused: u64,
    /// From requests to the first bytes of their answers, in microseconds together.
    pub first_byte_us: u64,
    /// Requests whose last byte has come.
    pub ended: u64,
    /// From those requests to their last bytes, in microseconds together.
    pub ended_us: u64,
    /// Bytes of those requests.
    pub ended_bytes: u64,
    /// Of a stream: time that its reader waited for bytes, and time that bytes waited for it, in
    /// microseconds.
    pub reader_waited_us: u64,
    /// See above.
    pub reader_kept_us: u64,
    /// Requests in flight now.
    pub busy: u32,
    /// There was more to ask for than might be.
    pub is_bound: bool,
    /// Requests among them whose bytes find no slot free because writes have the slots: the disk is
    /// slower than the network. Of a stream all of them, while its bytes have no room for more.
    pub held_up: u32,
}

/// Of that, what one endpoint has said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndpointTotals {
    /// Answers that were what was asked for.
    pub answers: u64,
    /// Answers that asked for less (503, 429).
    pub refused: u64,
}

impl EndpointTotals {
    /// Those of one endpoint, in a list that has as many as were needed so far.
    pub fn of(all: &mut Vec<Self>, endpoint: EndpointNumber) -> &mut Self {
        if all.len() <= endpoint.index() {
            all.resize(endpoint.index() + 1, Self::default());
        }
        &mut all[endpoint.index()]
    }
}

/// What may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight.
    pub requests_in_flight: u32,
    /// Requests a second of the first endpoint; `None` while it has not asked for less.
    pub requests_per_second: Option<u64>,
}
