//! How many requests a run had in flight, when and why, for its report.

use serde::Serialize;

use super::endpoints::name_of;
use crate::engine::pace::{Change, Moment, Timeline};

/// What the pace of a run was.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PaceTold {
    /// It was looked for; else it was given (`--connections`).
    pub adaptive: bool,
    /// What was chosen, in order.
    pub timeline: Vec<PaceLine>,
    /// Choices in the middle that are left out.
    pub left_out: u64,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PaceLine {
    /// When, since the run began.
    pub seconds: f64,
    /// Why.
    pub change: Change,
    /// The endpoint that asked for less; null for what concerns all of them together.
    pub endpoint: Option<String>,
    /// Requests in flight from here on, one on each connection.
    pub requests_in_flight: u32,
    /// Requests a second from here on, where the server asked for less; else null.
    pub requests_per_second: Option<u64>,
    /// Bytes a second that were seen before; 0 where that was not measured.
    pub bytes_per_second: u64,
}

impl PaceTold {
    /// What a timeline tells, with the names of the endpoints by number.
    #[must_use]
    pub fn new(adaptive: bool, timeline: &Timeline, endpoints: &[String]) -> Self {
        let lines = timeline.moments().iter().map(|moment| PaceLine::new(moment, endpoints));
        Self { adaptive, timeline: lines.collect(), left_out: timeline.left_out() }
    }

    /// The number that was given, if it was.
    #[must_use]
    pub fn fixed(&self) -> Option<u64> {
        let given = self.timeline.first().filter(|_| !self.adaptive);
        given.map(|line| u64::from(line.requests_in_flight))
    }
}

impl PaceLine {
    fn new(moment: &Moment, endpoints: &[String]) -> Self {
        Self {
            seconds: super::seconds(moment.at_us),
            change: moment.change,
            endpoint: moment.endpoint.map(|endpoint| name_of(endpoint, endpoints)),
            requests_in_flight: moment.requests_in_flight,
            requests_per_second: moment.requests_per_second,
            bytes_per_second: moment.bytes_per_second,
        }
    }
}
