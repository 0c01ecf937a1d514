//! The demo's output: a row for each set, and one JSON object for scripts.
//!
//! Plain data in, text out.

use std::path::PathBuf;

use serde::Serialize;

use super::dataset::Set;
use crate::report::document::{DirectIo, RingUse, Summary};
use crate::sys::uring::SetupMode;
use crate::text::size::{Binary, Count, Decimal, Seconds, rate};

/// Fewest bytes for a rate: below that it would be the rate of starting and of creating files.
const RATED_BYTES_MIN: u64 = 1_000_000;

/// The result of one set.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) set: &'static str,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) gigabytes_per_second: f64,
    /// Of the workers; the origin has its own threads in this process.
    pub(super) worker_cpu_seconds_per_terabyte: Option<f64>,
    pub(super) verified: bool,
    pub(super) direct_io: DirectIo,
    pub(super) ring: Option<RingUse>,
    pub(super) retries: u64,
}

/// The row of a stream through named pipes, under [`HEADING`].
pub(super) fn stream_row(set: &str, epochs: u64, bytes: u64, seconds: f64) -> String {
    format!(
        "pipe mode: {epochs} epochs of '{set}' through named pipes: {} in {} ({}), every byte \
         compared",
        Decimal(bytes),
        Seconds(seconds),
        rate(bytes, seconds).unwrap_or_default()
    )
}

/// The demo as one JSON object.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) version: &'static str,
    pub(super) exit_code: u8,
    pub(super) verified: bool,
    /// From the first request to the last comparison.
    pub(super) seconds: f64,
    /// Peak resident set of the process, including the origin.
    pub(super) peak_rss_bytes: u64,
    /// The folder with the files, if kept.
    pub(super) kept: Option<PathBuf>,
    pub(super) sets: Vec<Row>,
}

impl Row {
    /// A row from the summary of a `get` of this set.
    pub(super) fn new(set: &Set, summary: &Summary, verified: bool) -> Self {
        let terabytes = summary.bytes as f64 / 1e12;
        Self {
            set: set.name,
            objects: summary.objects,
            bytes: summary.bytes,
            seconds: summary.seconds,
            gigabytes_per_second: summary.gigabytes_per_second.unwrap_or(0.0),
            worker_cpu_seconds_per_terabyte: (summary.bytes > 0)
                .then(|| summary.worker_cpu_seconds / terabytes),
            verified,
            direct_io: summary.direct_io,
            ring: summary.ring.clone(),
            retries: summary.sent.retries.values().sum(),
        }
    }

    /// The row for users, under [`HEADING`].
    pub(super) fn to_text(&self) -> String {
        let if_rated =
            |value: String| if self.bytes < RATED_BYTES_MIN { "-".to_owned() } else { value };
        format!(
            "{:10} {:>7} {:>9} {:>8} {:>7} {:>9}  {:8}  {:14}  {}",
            self.set,
            Count(self.objects).to_string(),
            Decimal(self.bytes).to_string(),
            format!("{:.2} s", self.seconds),
            if_rated(format!("{:.2}", self.gigabytes_per_second)),
            if_rated(format!("{:.0}", self.worker_cpu_seconds_per_terabyte.unwrap_or(0.0))),
            if self.verified { "yes" } else { "NO" },
            direct_io(self.direct_io),
            ring(self.ring.as_ref()),
        )
    }
}

/// The columns of [`Row::to_text`].
pub(super) const HEADING: &str = "what       objects     bytes     time    GB/s  CPU-s/TB  \
     verified  O_DIRECT        io_uring";

/// Explains the columns.
pub(super) fn footnote(peak_rss_bytes: u64) -> String {
    format!(
        "peak memory {} including the test server; CPU-s/TB counts the workers only; verified: \
         every byte compared, no unexpected files",
        Binary(peak_rss_bytes)
    )
}

fn direct_io(direct: DirectIo) -> String {
    match (direct.files_direct, direct.files_buffered) {
        // Files of one slot are written in one call.
        (0, 0) => "-".to_owned(),
        (direct, 0) => format!("{direct} files"),
        (direct, buffered) => format!("{direct}, {buffered} refused"),
    }
}

fn ring(ring: Option<&RingUse>) -> String {
    let Some(ring) = ring else { return "-".to_owned() };
    let mode = match ring.mode {
        None => return format!("none: {}", ring.kind),
        Some(SetupMode::DeferTaskrun) => "defer_taskrun",
        Some(SetupMode::CoopTaskrun) => "coop_taskrun",
        Some(SetupMode::Plain) => "plain",
    };
    let slots = if ring.registered_slots { "" } else { ", buffers not registered" };
    format!("{mode}{slots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_headings() {
        let row = Row {
            set: "odd sizes",
            objects: 2_000,
            bytes: 2_147_483_648,
            seconds: 1.5,
            gigabytes_per_second: 1.43,
            worker_cpu_seconds_per_terabyte: Some(151.2),
            verified: false,
            direct_io: DirectIo { used: true, files_direct: 5, files_buffered: 2 },
            ring: None,
            retries: 0,
        };
        let ends = ["objects", "bytes", "time", "GB/s", "CPU-s/TB"]
            .map(|column| HEADING.find(column).expect("a column") + column.len());
        let text = row.to_text();
        let values: Vec<&str> = ends.iter().map(|end| &text[..*end]).collect();
        for (value, expected) in values.iter().zip(["2,000", "2.15 GB", "1.50 s", "1.43", "151"]) {
            assert!(value.ends_with(expected), "{value:?} {expected}");
        }
        for (column, expected) in [("verified", "NO"), ("O_DIRECT", "5, 2 refused")] {
            let at = HEADING.find(column).expect("a column");
            assert!(text[at..].starts_with(expected), "{text}");
        }
    }
}
