//! What a controller chose, when and why: as many moments as fit a report.

use crate::engine::endpoints::EndpointNumber;
use crate::limits::TIMELINE_MOMENTS_MAX;

/// Why a controller chose.
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
    /// What came has changed: all is looked at again.
    Changed,
    /// The server asked for less (503, 429).
    Refused,
    /// The reader is slower than the network: fewer requests are enough for it, or one step more
    /// than was tried.
    Reader,
    /// The bytes of more requests have no room.
    Room,
}

impl Change {
    /// Why, in words.
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
    /// When, in microseconds since the run began.
    pub at_us: u64,
    /// Why.
    pub change: Change,
    /// The endpoint that asked for less; `None` for what concerns all of them.
    pub endpoint: Option<EndpointNumber>,
    /// Requests in flight from here on.
    pub requests_in_flight: u32,
    /// Requests a second from here on, where that endpoint asked for less, or the only one.
    pub requests_per_second: Option<u64>,
    /// Bytes a second that were seen before.
    pub bytes_per_second: u64,
}

/// The choices in order. Where there are too many, those in the middle of the past go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    moments: Vec<Moment>,
    left_out: u64,
}

impl Timeline {
    pub(super) fn push(&mut self, moment: Moment) {
        if self.moments.len() == TIMELINE_MOMENTS_MAX {
            // The beginning tells how it was found, the end how it is.
            self.moments.remove(TIMELINE_MOMENTS_MAX / 2);
            self.left_out += 1;
        }
        self.moments.push(moment);
    }

    /// Those that are kept.
    #[must_use]
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// How many are not.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
