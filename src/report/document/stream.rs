//! The summary of streams: for `--json`, and as a line for each epoch for people.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::endpoints::{AddressLine, EndpointLine};
use super::{PaceReport, RequestLine, RingReport, asked_again, by_name, clock_corrected};
use super::{out_of_order, tcp_memory_in_words, tried_again};
use crate::checksum::unverified::of_many;
use crate::engine::metrics::{EpochCount, FeedCount, WorkerMetrics};
use crate::limits::PIPE_BYTES;
use crate::link::failure::RetryCounts;
use crate::report::limit::{Limit, LimitFacts};
use crate::sys::tcp_memory::TcpMemoryUse;
use crate::text::size::{Binary, Decimal, Seconds, Short, counted, rate};

/// The name of the channel that writes to standard output.
pub const STDOUT_NAME: &str = "-";

/// The summary names who was waited for from this share of an epoch's time on.
const LIMIT_SHARE: f64 = 0.1;

/// The results of a run of `pipe` or `cat`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamSummary {
    /// Version of the program.
    pub version: &'static str,
    /// The exit code.
    pub exit_code: u8,
    /// From the start of the program to its end.
    pub seconds: f64,
    /// Bytes of all epochs of all channels.
    pub bytes: u64,
    /// Processor time for 10^12 bytes; null if there were no bytes.
    pub cpu_seconds_per_terabyte: Option<f64>,
    /// Processor time of the process.
    pub cpu_seconds: f64,
    /// Peak resident set size of the process.
    pub peak_rss_bytes: u64,
    /// The machine's TCP memory; null if the kernel does not report it.
    pub tcp_memory: Option<TcpMemoryUse>,
    /// Packets that arrived out of order: earlier ones were lost, or dropped by this machine.
    pub out_of_order_packets: u64,
    /// Retried control-plane requests (LIST, HEAD and the like), by reason.
    pub control_retries: BTreeMap<&'static str, u64>,
    /// Seconds by which the signing time was ahead of this machine's clock, according to a server;
    /// 0 if no correction was in use.
    pub clock_correction_seconds: i64,
    /// The workers' kernel interface; null if there were no workers.
    pub ring: Option<RingReport>,
    /// Which part of the machine, the network or the server was the limit; null without a stream.
    pub limit: Option<Limit>,
    /// Each channel.
    pub channels: Vec<ChannelSummary>,
}

/// The results of a channel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChannelSummary {
    /// Its name; `-` for standard output.
    pub name: String,
    /// Number of epochs before those in `epochs`.
    pub earlier_epochs: u64,
    /// Their bytes.
    pub earlier_bytes: u64,
    /// Each opened epoch; only the last ones if there were very many.
    pub epochs: Vec<EpochSummary>,
    /// Objects that match their stored checksums, over all epochs.
    pub validated_objects: u64,
    /// Objects with bytes that were compared with no checksum.
    pub not_validated_objects: u64,
    /// Number of these objects, by reason.
    pub not_validated: BTreeMap<&'static str, u64>,
    /// Requests, and what was sent again.
    #[serde(flatten)]
    pub sent: RequestLine,
    /// What came from each endpoint.
    pub endpoints: Vec<EndpointLine>,
    /// What came from each address of each endpoint; its times are those spent waiting for the
    /// network.
    pub addresses: Vec<AddressLine>,
    /// Requests in flight over time, and why.
    pub pace: PaceReport,
    /// Size of the smallest private pipe; null if none was needed. Below 1 MiB the kernel refused a
    /// larger one (pipe-user-pages-soft, pipe-max-size), which only costs speed.
    pub pipe_bytes_min: Option<u64>,
    /// Most bytes held in memory ahead of their turn.
    pub backlog_bytes_max: u64,
}

/// The results of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochSummary {
    /// Its number, from 0.
    pub epoch: u64,
    /// Bytes passed to the reader.
    pub bytes: u64,
    /// From the reader's open to the end.
    pub seconds: f64,
    /// `bytes` over `seconds`, in 10^9; null if it took no time.
    pub gigabytes_per_second: Option<f64>,
    /// From the reader's open to the first byte; null if there was none.
    pub first_byte_seconds: Option<f64>,
    /// The pipe was empty and the reader waited: the network is the bottleneck.
    pub reader_waited_seconds: f64,
    /// Part of that time in which received bytes waited for decompression: the processor is the
    /// bottleneck.
    pub gunzip_waited_seconds: f64,
    /// The pipe was full and inrush waited: the reader is the bottleneck.
    pub waited_for_reader_seconds: f64,
    /// The reader closed before the end.
    pub left_early: bool,
    /// Every byte was passed to the reader: it did not leave early, and the stream neither failed
    /// nor was interrupted.
    pub complete: bool,
}

/// Objects that were compared with no checksum, by reason, for people.
pub fn not_verified_lines(reasons: &BTreeMap<&'static str, u64>) -> impl Iterator<Item = String> {
    reasons.iter().map(|(reason, objects)| {
        let named = counted(*objects, "object", "objects");
        format!("{named} not verified: {}", of_many(reason, *objects))
    })
}

impl StreamSummary {
    /// Combines a run's counts.
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
            tcp_memory: None,
            out_of_order_packets: 0,
            control_retries: by_name(control_retries),
            clock_correction_seconds: 0,
            ring: None,
            limit: None,
            channels,
        }
    }

    /// Judges the limit from the counts of workers and feeders. `known` has the facts about the
    /// machine, the user's options, and the workers' and feeders' processor time.
    pub fn explain<'a>(
        &mut self,
        known: LimitFacts,
        workers: &[WorkerMetrics],
        feeds: impl Iterator<Item = &'a FeedCount> + Clone,
    ) {
        let out_of_order = workers.iter().map(|worker| worker.out_of_order_packets);
        self.out_of_order_packets = out_of_order.sum();
        // The time before the first reader came is not the stream's.
        let opened_us =
            feeds.clone().filter_map(|feed| feed.epochs.first()).map(|epoch| epoch.opened_us);
        let opened_us = opened_us.min();
        let before = opened_us.map_or(0.0, super::seconds);
        let in_flight = feeds.clone().filter_map(|feed| feed.pace.moments().last());
        let in_flight = in_flight.map(|moment| u64::from(moment.requests_in_flight)).sum();
        let mut facts = LimitFacts {
            bytes: self.bytes,
            seconds: (self.seconds - before).max(0.0),
            whole_seconds: self.seconds,
            connections: in_flight,
            ..known
        };
        facts.take_workers(workers);
        let is_fed = feeds.clone().next().is_some();
        facts.take_feeds(feeds);
        if is_fed && opened_us.is_none() {
            // No reader came.
            facts.reader_seconds = facts.seconds;
        }
        self.limit = Some(Limit::of(&facts));
    }

    /// How many objects match their checksums, and why others were not compared, for people.
    #[must_use]
    pub fn verified_lines(&self) -> Vec<String> {
        let validated = self.channels.iter().map(|channel| channel.validated_objects).sum();
        let mut reasons = BTreeMap::new();
        for (reason, objects) in self.channels.iter().flat_map(|channel| &channel.not_validated) {
            *reasons.entry(*reason).or_default() += *objects;
        }
        let mut lines = vec![format!("{} verified", counted(validated, "object", "objects"))];
        lines.extend(not_verified_lines(&reasons));
        lines
    }

    /// A line for each epoch, for people; with `stats`, also what the run cost.
    #[must_use]
    pub fn lines(&self, stats: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for channel in &self.channels {
            lines.extend(channel.lines(stats));
        }
        lines.extend(asked_again(&self.control_retries));
        lines.extend(clock_corrected(self.clock_correction_seconds));
        if stats {
            let cost = self.cpu_seconds_per_terabyte;
            let cost = cost.map(|cost| format!(" ({cost:.0} s per TB)")).unwrap_or_default();
            let (cpu, memory) = (Seconds(self.cpu_seconds), Binary(self.peak_rss_bytes));
            lines.push(format!("CPU time {cpu}{cost}, peak memory {memory}"));
            lines.extend(out_of_order(self.out_of_order_packets));
            lines.extend(self.tcp_memory.as_ref().map(tcp_memory_in_words));
            lines.extend(self.ring.as_ref().map(RingReport::in_words));
        }
        lines
    }
}

impl ChannelSummary {
    fn lines(&self, stats: bool) -> Vec<String> {
        let is_stdout = self.name == STDOUT_NAME;
        let named = |line: String| match is_stdout {
            true => line,
            false => format!("{}: {line}", self.name),
        };
        let mut lines = Vec::new();
        for epoch in &self.epochs {
            lines.push(match is_stdout {
                true => epoch.in_words(),
                false => format!("{}_{}: {}", self.name, epoch.epoch, epoch.in_words()),
            });
        }
        lines.extend(tried_again("retry", "retries", &self.sent.retries).map(named));
        if let Some(bytes) = self.pipe_bytes_min.filter(|bytes| *bytes < PIPE_BYTES) {
            lines.push(named(format!(
                "pipe buffers of {} only: raise fs.pipe-user-pages-soft or fs.pipe-max-size",
                Binary(bytes)
            )));
        }
        if !stats {
            return lines;
        }
        let requests = counted(self.sent.requests, "request", "requests");
        let connects = counted(self.sent.connects, "connection", "connections");
        lines.push(named(format!("{requests} over {connects}")));
        lines.extend(self.sent.moved().map(named));
        lines.extend(EndpointLine::in_words(&self.endpoints).into_iter().map(named));
        lines
    }

    fn new(name: &str, count: &FeedCount) -> Self {
        Self {
            name: name.to_owned(),
            earlier_epochs: count.earlier_epochs,
            earlier_bytes: count.earlier_bytes,
            epochs: count.epochs.iter().map(EpochSummary::new).collect(),
            validated_objects: count.validated_objects,
            not_validated_objects: count.not_validated.values().sum(),
            not_validated: count.not_validated.clone(),
            sent: RequestLine::new(&count.sent),
            endpoints: EndpointLine::all(&count.sent.addresses, &count.endpoints),
            addresses: AddressLine::all(&count.sent.addresses, &count.endpoints),
            pace: PaceReport::new(count.pace.moments().len() > 1, &count.pace, &count.endpoints),
            pipe_bytes_min: count.pipe_bytes_min,
            backlog_bytes_max: count.backlog_bytes_max,
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
            gunzip_waited_seconds: super::seconds(count.inflating_us),
            waited_for_reader_seconds: super::seconds(count.reader_kept_us),
            left_early: count.left_early,
            complete: count.complete,
        }
    }

    /// The epoch in words, and who was waited for.
    fn in_words(&self) -> String {
        let mut line = format!("{} in {}", Decimal(self.bytes), Seconds(self.seconds));
        if let Some(rate) = rate(self.bytes, self.seconds) {
            line += &format!(" ({rate})");
        }
        if let Some(seconds) = self.first_byte_seconds {
            line += &format!(", first byte after {}", Short(seconds));
        }
        let (network, reader) = (self.reader_waited_seconds, self.waited_for_reader_seconds);
        if network.max(reader) >= self.seconds * LIMIT_SHARE && network.max(reader) > 0.0 {
            let is_gunzip = self.gunzip_waited_seconds > network / 2.0;
            line += &match network >= reader {
                true if is_gunzip => {
                    format!("; waited {} for gunzip: the processor is the limit", Seconds(network))
                }
                true => format!("; waited {} for the network", Seconds(network)),
                false => {
                    format!("; inrush was idle for {}: the reader is the limit", Seconds(reader))
                }
            };
        }
        line + match (self.left_early, self.complete) {
            (true, _) => "; the reader closed early",
            (false, true) => "",
            (false, false) => "; incomplete",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(name: &str, epoch: EpochCount) -> StreamSummary {
        let count = FeedCount { epochs: vec![epoch], ..FeedCount::default() };
        let all = [(name, &count)].into_iter();
        let retries = RetryCounts::default();
        StreamSummary::new(all, Duration::from_secs(9), 0.5, 61 << 20, &retries, 0)
    }

    fn epoch() -> EpochCount {
        EpochCount {
            epoch: 3,
            bytes: 136_000_000,
            elapsed_us: 8_500_000,
            first_byte_us: Some(12_000),
            complete: true,
            ..EpochCount::default()
        }
    }

    #[test]
    fn who_is_the_limit_is_said() {
        let text = |epoch| summary("train", epoch).lines(false).concat();
        let start = "train_3: 136 MB in 8.5 s (16 MB/s), first byte after 12 ms";
        assert_eq!(text(epoch()), start);
        let kept = EpochCount { reader_kept_us: 5_100_000, reader_waited_us: 9, ..epoch() };
        let limit = "; inrush was idle for 5.1 s: the reader is the limit";
        assert_eq!(text(kept.clone()), format!("{start}{limit}"));
        let waited = EpochCount { reader_waited_us: 6_000_000, left_early: true, ..kept };
        let limit = "; waited 6.0 s for the network; the reader closed early";
        assert_eq!(text(waited), format!("{start}{limit}"));
        let waited = EpochCount { reader_waited_us: 6_000_000, inflating_us: 4_000_000, ..epoch() };
        let limit = "; waited 6.0 s for gunzip: the processor is the limit";
        assert_eq!(text(waited), format!("{start}{limit}"));
        let cut = EpochCount { complete: false, ..epoch() };
        assert_eq!(text(cut), format!("{start}; incomplete"));
        let none = EpochCount { elapsed_us: 10, complete: true, ..EpochCount::default() };
        assert_eq!(text(none), "train_0: 0 B in 1 ms");
    }

    #[test]
    fn memory_and_order_of_packets_are_in_words() {
        let seen = TcpMemoryUse {
            peak_bytes: 1 << 31,
            pressure_bytes: Some(1500 << 20),
            pressure_seconds: 12.0,
            dropped: Some(2391),
            ..TcpMemoryUse::default()
        };
        let mut summary = summary("train", epoch());
        summary.tcp_memory = Some(seen);
        let worker = WorkerMetrics { out_of_order_packets: 21, ..WorkerMetrics::default() };
        summary.explain(LimitFacts::default(), &[worker.clone(), worker], [].iter());
        assert_eq!(summary.out_of_order_packets, 42);
        let text = "TCP memory of the machine: at most 2 GiB, pressure mark 1.46 GiB, under \
                    pressure for 12 s, 2,391 received packets dropped";
        assert!(summary.lines(true).contains(&text.to_owned()), "{:?}", summary.lines(true));
        assert!(!summary.lines(false).contains(&text.to_owned()));
        let text = "42 packets came out of order: earlier ones were lost or dropped";
        assert!(summary.lines(true).contains(&text.to_owned()), "{:?}", summary.lines(true));
    }

    #[test]
    fn standard_output_has_no_channel() {
        let lines = summary(STDOUT_NAME, epoch()).lines(true);
        assert_eq!(
            lines,
            [
                "136 MB in 8.5 s (16 MB/s), first byte after 12 ms",
                "0 requests over 0 connections",
                "CPU time 0.50 s (3676 s per TB), peak memory 61 MiB",
            ]
        );
    }
}
