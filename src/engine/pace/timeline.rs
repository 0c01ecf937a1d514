//! The choices of a controller: when and why, as many as fit a report.

use crate::engine::endpoints::EndpointNumber;
use crate::limits::TIMELINE_MOMENTS_MAX;

/// The reason of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The beginning.
    Start,
    /// More requests in flight brought more.
    More,
    /// Fewer bring as much.
    Fewer,
    /// More had brought no more.
    Back,
    /// Goodput has changed: everything is measured again.
    Changed,
    /// The server asked for fewer requests (503, 429).
    Refused,
    /// The reader is slower than the network: fewer requests suffice for it, or one step more than
    /// was tried.
    Reader,
    /// The byte budget has no room for more requests.
    Room,
}

impl Change {
    /// The reason, in words.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Start => "the start",
            Self::More => "more requests brought more",
            Self::Fewer => "fewer requests bring as much",
            Self::Back => "more requests brought no more",
            Self::Changed => "the throughput has changed",
            Self::Refused => "the server asked for less",
            Self::Room => "no room for the bytes of more",
            Self::Reader => "the reader is slower than the network",
        }
    }
}

/// One choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Time, in microseconds since the run began.
    pub at_us: u64,
    /// The reason.
    pub change: Change,
    /// The endpoint that asked for fewer requests; `None` if it concerns all.
    pub endpoint: Option<EndpointNumber>,
    /// Requests in flight from here on.
    pub requests_in_flight: u32,
    /// Requests per second from here on, if that endpoint, or the only one, has a rate.
    pub requests_per_second: Option<u64>,
    /// Bytes per second measured before.
    pub bytes_per_second: u64,
}

/// The choices in order. If there are too many, those in the middle are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    moments: Vec<Moment>,
    left_out: u64,
}

impl Timeline {
    pub(super) fn push(&mut self, moment: Moment) {
        if self.moments.len() == TIMELINE_MOMENTS_MAX {
            // The beginning shows how the number was found, the end what it is.
            self.moments.remove(TIMELINE_MOMENTS_MAX / 2);
            self.left_out += 1;
        }
        self.moments.push(moment);
    }

    /// The stored choices.
    #[must_use]
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Number of dropped choices.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
