//! Finds the number of requests in flight, and the requests per second, while a run is in progress.
//! Pure.
//!
//! [`Controller`] decides: it takes the time and the totals so far ([`Totals`]) and returns limits
//! ([`Limits`]). Its signal is goodput. It climbs by doubling while that pays, keeps to the fewest
//! requests that nearly reached the best, and probes neighbouring levels from time to time, because
//! neighbours come and go. An endpoint that asks for fewer requests (503, 429) gets a request rate
//! (`rate`); the user's limit is a rate of bytes ([`Bandwidth`]). [`Pacer`] shares a run's
//! controller among its workers, each with its [`Share`].
//!
//! A run may have several endpoints ([`EndpointNumber`]), each with its own request rate. The
//! number of requests in flight is one for all of them, because the machine, its network and its
//! memory, and the user's limit, bound the sum; and goodput is that of all, because a controller
//! per endpoint would take what the others leave for its own knee. So the sum stays within its
//! bounds whatever each endpoint does, nothing has to be divided, and one endpoint is a case of
//! several. Requests that an endpoint holds back do not count: workers set them aside and have
//! others in flight.

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

/// Bounds on the requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest.
    pub least: u32,
    /// The start.
    pub start: u32,
    /// Most.
    pub most: u32,
    /// A choice takes effect after this many bytes of a connection: a slot, or for ordered bytes a
    /// whole range.
    pub piece_bytes: u64,
    /// Bytes are passed on in order: they wait for those before them, so a short time says little.
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

    /// False if there is no choice.
    #[must_use]
    pub const fn is_adaptive(&self) -> bool {
        self.least < self.most
    }
}

/// Totals so far, of one worker or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Body bytes.
    pub bytes: u64,
    /// Requests sent.
    pub asked: u64,
    /// Bytes that they request.
    pub asked_bytes: u64,
    /// Successful answers.
    pub answers: u64,
    /// Answers that asked for fewer requests (503, 429).
    pub refused: u64,
    /// From requests to the first bytes of their answers, in microseconds, summed.
    pub first_byte_us: u64,
    /// Requests whose last byte has arrived.
    pub ended: u64,
    /// From those requests to their last bytes, in microseconds, summed.
    pub ended_us: u64,
    /// Bytes of those requests.
    pub ended_bytes: u64,
    /// For a stream: how long its reader waited for bytes, in microseconds.
    pub reader_waited_us: u64,
    /// For a stream: how long bytes waited for its reader, in microseconds.
    pub reader_kept_us: u64,
    /// Requests in flight.
    pub busy: u32,
    /// There was more work than the limit allowed.
    pub is_bound: bool,
    /// Requests in flight without a slot because writes have the slots: the disk is slower than the
    /// network. For a stream all of them, while its byte budget is used up.
    pub held_up: u32,
}

/// The totals of one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndpointTotals {
    /// Successful answers.
    pub answers: u64,
    /// Answers that asked for fewer requests (503, 429).
    pub refused: u64,
}

impl EndpointTotals {
    /// The entry of an endpoint in a list, which grows as needed.
    pub fn of(all: &mut Vec<Self>, endpoint: EndpointNumber) -> &mut Self {
        if all.len() <= endpoint.index() {
            all.resize(endpoint.index() + 1, Self::default());
        }
        &mut all[endpoint.index()]
    }
}

/// Limits on requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight.
    pub requests_in_flight: u32,
    /// Requests per second of the first endpoint; `None` while it has not asked for fewer.
    pub requests_per_second: Option<u64>,
}
