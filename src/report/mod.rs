//! What a run comes to: a summary of all, a line for each object. Numbers into JSON and words.
//!
//! Pure: plain data in, text out. Lines leave the program through [`crate::out`], words for people
//! through [`crate::progress`]. Field names are read by scripts: they may be added, not renamed.

mod check;
mod object;
mod stream;
mod summary;

pub use check::{CheckSummary, CheckedLine, Finding};
pub use object::{Kept, ListedLine, ObjectLine, PlannedLine, RemovedLine, Status, Verified};
pub use stream::{ChannelSummary, EpochSummary, StreamSummary};
pub use summary::{DirectIo, Earlier, RingUse, StageSeconds, Summary, SummaryInputs};

/// Microseconds as seconds.
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Bytes in 10^9.
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// The line of JSON that stands for plain data.
pub(crate) fn json(data: &impl serde::Serialize) -> String {
    serde_json::to_string(data).expect("numbers and strings under fixed names become JSON")
}
