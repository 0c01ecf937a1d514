//! The number of requests in flight over a run, and why it changed.

use serde::Serialize;

use super::endpoints::name_of;
use crate::engine::pace::{Change, Moment, Timeline};

/// The pace of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PaceReport {
    /// It was adapted; false if it was given (`--connections`).
    pub adaptive: bool,
    /// The choices, in order.
    pub timeline: Vec<PaceLine>,
    /// Number of choices omitted from the middle.
    pub left_out: u64,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PaceLine {
    /// Seconds since the run began.
    pub seconds: f64,
    /// Why.
    pub change: Change,
    /// The endpoint that asked for less; null for a choice about all of them.
    pub endpoint: Option<String>,
    /// Requests in flight from now on, one on each connection.
    pub requests_in_flight: u32,
    /// Requests per second from now on if the server asked for fewer; otherwise null.
    pub requests_per_second: Option<u64>,
    /// Bytes per second measured before the choice; 0 if not measured.
    pub bytes_per_second: u64,
}

impl PaceReport {
    /// Converts a timeline, with the names of the endpoints by number.
    #[must_use]
    pub fn new(adaptive: bool, timeline: &Timeline, endpoints: &[String]) -> Self {
        let lines = timeline.moments().iter().map(|moment| PaceLine::new(moment, endpoints));
        Self { adaptive, timeline: lines.collect(), left_out: timeline.left_out() }
    }

    /// The number of requests in flight, if it was given.
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
