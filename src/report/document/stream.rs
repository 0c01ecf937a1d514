//! The summary of streams: for `--json`, and in a line per epoch for people.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::summary::{AddressLine, moved};
use super::{PaceTold, asked_again, by_name, clock_corrected, tried_again};
use crate::engine::metrics::{EpochCount, FeedCount};
use crate::limits::PIPE_BYTES;
use crate::link::failure::RetryCounts;
use crate::text::size::{Binary, Decimal};

/// What a run of `pipe` or `cat` came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamSummary {
    /// Version of the program.
    pub version: &'static str,
    /// What the process exits with.
    pub exit_code: u8,
    /// From the start of the program to its end.
    pub seconds: f64,
    /// Bytes of all epochs of all channels.
    pub bytes: u64,
    /// Processor time of the process for 10^12 bytes; null when there were none.
    pub cpu_seconds_per_terabyte: Option<f64>,
    /// Processor time of the process.
    pub cpu_seconds: f64,
    /// Highest resident set of the process.
    pub peak_rss_bytes: u64,
    /// Questions of the control plane (LIST, HEAD and the like) that were asked again, by reason.
    pub control_retries: BTreeMap<&'static str, u64>,
    /// By how many seconds the time that signed was ahead of this machine's clock, as a server
    /// said; 0 where no correction was in use.
    pub clock_correction_seconds: i64,
    /// Each channel.
    pub channels: Vec<ChannelSummary>,
}

/// What a channel came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChannelSummary {
    /// Its name; `-` for standard output.
    pub name: String,
    /// Epochs before those that are told.
    pub earlier_epochs: u64,
    /// Their bytes.
    pub earlier_bytes: u64,
    /// Each epoch that was opened, the last ones when there were very many.
    pub epochs: Vec<EpochSummary>,
    /// Failed attempts that were followed by another, by reason; only those there were.
    pub retries: BTreeMap<&'static str, u64>,
    /// Late ranges that were asked for anew on another connection.
    pub moves: u64,
    /// What came from which address; the times are those that were waited for the network.
    pub addresses: Vec<AddressLine>,
    /// Requests sent.
    pub requests: u64,
    /// Connections made.
    pub connects: u64,
    /// How many requests were in flight, and why.
    pub pace: PaceTold,
    /// Size of the smallest private pipe; null when none was needed. Below 1 MiB the kernel refused
    /// more (pipe-user-pages-soft, pipe-max-size): right, only slower.
    pub pipe_bytes_min: Option<u64>,
}

/// What an epoch came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochSummary {
    /// Its number, from 0.
    pub epoch: u64,
    /// Bytes handed to the reader.
    pub bytes: u64,
    /// From the reader's coming to the end.
    pub seconds: f64,
    /// `bytes` over `seconds`, in 10^9; null for an epoch that took no time.
    pub gigabytes_per_second: Option<f64>,
    /// From the reader's coming to the first byte; null when there was none.
    pub first_byte_seconds: Option<f64>,
    /// The reader had taken all there was and waited for us: the network is the bottleneck.
    pub reader_waited_seconds: f64,
    /// The pipe was full and we waited: the reader is the bottleneck.
    pub waited_for_reader_seconds: f64,
    /// The reader closed before the end.
    pub left_early: bool,
}

impl StreamSummary {
    /// Puts a run's counts together.
    pub fn new<'a>(
        channels: impl Iterator<Item = (&'a str, &'a FeedCount)>,
        elapsed: Duration,
        cpu_seconds: f64,
        peak_rss_bytes: u64,
        control_retries: &RetryCounts,
        exit_code: u8,
    ) -> Self {
        let channels: Vec<ChannelSummary> =
            channels.map(|(name, count)| ChannelSummary::new(name, count)).collect();
        let bytes = channels.iter().flat_map(|channel| &channel.epochs).map(|epoch| epoch.bytes);
        let earlier = channels.iter().map(|channel| channel.earlier_bytes);
        let bytes: u64 = bytes.chain(earlier).sum();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            exit_code,
            seconds: elapsed.as_secs_f64(),
            bytes,
            cpu_seconds_per_terabyte: (bytes > 0)
                .then(|| cpu_seconds / (super::gigabytes(bytes) / 1e3)),
            cpu_seconds,
            peak_rss_bytes,
            control_retries: by_name(control_retries),
            clock_correction_seconds: 0,
            channels,
        }
    }

    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for channel in &self.channels {
            for epoch in &channel.epochs {
                lines.push(format!(
                    "{}_{}: {} in {:.2} s: {:.2} GB/s, first byte after {:.0} ms; the reader \
                     waited {:.2} s for bytes, the bytes {:.2} s for the reader{}",
                    channel.name,
                    epoch.epoch,
                    Decimal(epoch.bytes),
                    epoch.seconds,
                    epoch.gigabytes_per_second.unwrap_or(0.0),
                    epoch.first_byte_seconds.unwrap_or(0.0) * 1e3,
                    epoch.reader_waited_seconds,
                    epoch.waited_for_reader_seconds,
                    if epoch.left_early { "; it left early" } else { "" },
                ));
            }
            let retries = tried_again("retry", "retries", &channel.retries);
            lines.extend(retries.map(|told| format!("{}: {told}", channel.name)));
            if channel.moves > 0 {
                lines.push(format!("{}: {}", channel.name, moved(channel.moves)));
            }
            if let Some(bytes) = channel.pipe_bytes_min.filter(|bytes| *bytes < PIPE_BYTES) {
                lines.push(format!(
                    "{}: pipes of {} only: the kernel refuses more (pipe-user-pages-soft, \
                     pipe-max-size)",
                    channel.name,
                    Binary(bytes)
                ));
            }
        }
        lines.extend(asked_again(&self.control_retries));
        lines.extend(clock_corrected(self.clock_correction_seconds));
        lines
    }
}

impl ChannelSummary {
    fn new(name: &str, count: &FeedCount) -> Self {
        Self {
            name: name.to_owned(),
            earlier_epochs: count.earlier_epochs,
            earlier_bytes: count.earlier_bytes,
            epochs: count.epochs.iter().map(EpochSummary::new).collect(),
            retries: by_name(&count.retries),
            moves: count.moves,
            addresses: count.addresses.iter().map(AddressLine::new).collect(),
            requests: count.requests,
            connects: count.connects,
            pace: PaceTold::new(count.pace.moments().len() > 1, &count.pace),
            pipe_bytes_min: count.pipe_bytes_min,
        }
    }
}

impl EpochSummary {
    fn new(count: &EpochCount) -> Self {
        let seconds = super::seconds(count.elapsed_us);
        let speed = (count.elapsed_us > 0).then(|| super::gigabytes(count.bytes) / seconds);
        Self {
            epoch: count.epoch,
            bytes: count.bytes,
            seconds,
            gigabytes_per_second: speed,
            first_byte_seconds: count.first_byte_us.map(super::seconds),
            reader_waited_seconds: super::seconds(count.reader_waited_us),
            waited_for_reader_seconds: super::seconds(count.reader_kept_us),
            left_early: count.left_early,
        }
    }
}
