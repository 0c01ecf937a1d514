//! The documents of a run: its summary, and a line for each object, in JSON and in words.
//!
//! Pure: plain data in, text out. [`crate::report::out`] prints the lines,
//! [`crate::report::progress`] the words for people. Scripts read the field names: they may be
//! added, not renamed.

mod bucket;
mod check;
mod course;
mod ending;
mod endpoints;
mod mount;
mod object;
mod pace;
mod requests;
mod ring;
mod stream;
mod streamed;
mod summary;
mod train;

use crate::sys::tcp_memory::TcpMemoryUse;
use crate::text::size::{Binary, Count, Seconds, counted};

use requests::{asked_again, by_name, tried_again};

pub use bucket::ListedBucket;
pub use check::{CheckSummary, CheckedLine, Finding};
pub use course::{Course, CoursePoint, Latencies};
pub use ending::{failure_json, summary_json};
pub use endpoints::{AddressLine, DestinationLine, EndpointLine};
pub use mount::{
    AllReads, CacheCounts, FuseReport, FuseTransport, MountSummary, MountedCounts, ReadCounts,
    ReadFileLine, RefreshReport,
};
pub use object::{
    KeptReason, ListedFolder, ListedLine, ListedTotal, ObjectLine, PlannedLine, PlannedTotal,
    RemovedLine, Sizes, Status, Verified, moved,
};
pub use pace::{PaceLine, PaceReport};
pub use requests::RequestLine;
pub use ring::{RingReport, RingUse};
pub use stream::{ChannelSummary, EpochSummary, STDOUT_NAME, StreamSummary, not_verified_lines};
pub use streamed::StreamedLine;
pub use summary::{DirectIo, Earlier, StageSeconds, Summary, SummaryInputs};
pub use train::{
    AllFilesSummary, CommandExit, FilesSummary, PlannedChannel, TrainPlan, TrainSummary,
};

/// A notice that requests were signed with the server's time; `None` if they were not.
fn clock_corrected(ahead_seconds: i64) -> Option<String> {
    let side = if ahead_seconds < 0 { "behind" } else { "ahead of" };
    let seconds = Count(ahead_seconds.unsigned_abs());
    (ahead_seconds != 0).then(|| {
        format!(
            "the server's clock is {seconds} s {side} this machine's: requests were signed with \
             the server's time; set this machine's clock"
        )
    })
}

/// The machine's TCP memory, in words.
fn tcp_memory_in_words(seen: &TcpMemoryUse) -> String {
    let mut line = format!("TCP memory of the machine: at most {}", Binary(seen.peak_bytes));
    if let Some(mark) = seen.pressure_bytes {
        line += &format!(", pressure mark {}", Binary(mark));
    }
    if seen.pressure_seconds > 0.0 {
        line += &format!(", under pressure for {}", Seconds(seen.pressure_seconds));
    }
    if let Some(dropped) = seen.dropped.filter(|dropped| *dropped > 0) {
        line += &format!(", {} dropped", counted(dropped, "received packet", "received packets"));
    }
    line
}

/// Packets that arrived out of order, in words; `None` if there were none.
fn out_of_order(packets: u64) -> Option<String> {
    let count = counted(packets, "packet", "packets");
    (packets > 0).then(|| format!("{count} came out of order: earlier ones were lost or dropped"))
}

/// Microseconds as seconds.
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Bytes in 10^9.
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Plain data as one line of JSON.
pub(crate) fn json(data: &impl serde::Serialize) -> String {
    serde_json::to_string(data).expect("numbers and strings under fixed names become JSON")
}
