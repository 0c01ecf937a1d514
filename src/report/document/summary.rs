//! The summary of a run: for `--json`, and as a few lines for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::endpoints::{AddressLine, DestinationLine, EndpointLine, InterfaceLine};
use super::{CoursePoint, Latencies, PaceReport, RequestLine, RingUse};
use super::{asked_again, by_name, clock_corrected, seconds, summary_json};
use super::{out_of_order, tcp_memory_in_words, tried_again};
use crate::checksum::unverified::of_many;
use crate::engine::metrics::WorkerMetrics;
use crate::error::{Error, ErrorKind};
use crate::files::sink::Sink;
use crate::link::failure::RetryCounts;
use crate::report::limit::{Limit, LimitFacts};
use crate::sys::pool::Pages;
use crate::sys::tcp_memory::TcpMemoryUse;
use crate::sys::topology::Interface;
use crate::text::size::{Binary, Count, Decimal, Seconds, counted, rate};

/// Exit codes of runs that may end before all objects are tried.
const SOME_FAILED: u8 = ErrorKind::Objects.exit_code();
const INTERRUPTED: u8 = ErrorKind::Interrupted.exit_code();
const DEADLINE: u8 = ErrorKind::Deadline.exit_code();

/// The input of a summary. All times are of one monotonic clock, in microseconds.
#[derive(Debug, Clone)]
pub struct SummaryInputs {
    /// The counts of each worker.
    pub workers: Vec<WorkerMetrics>,
    /// Where the bytes went.
    pub sink: Sink,
    /// The destination of the files, as typed; `None` if nothing was written.
    pub destination: Option<String>,
    /// Objects that failed.
    pub failed_objects: u64,
    /// Complete objects that match their stored checksum.
    pub validated_objects: u64,
    /// Complete objects with bytes that were compared with no checksum.
    pub not_validated_objects: u64,
    /// Number of these objects, by reason.
    pub not_validated: BTreeMap<&'static str, u64>,
    /// Complete objects without bytes.
    pub empty_objects: u64,
    /// Large files resumed from an earlier run: written past the page cache, and through it.
    pub resumed_files: (u64, u64),
    /// Counts about earlier runs.
    pub earlier: Earlier,
    /// From the start of the program to the end of its work.
    pub elapsed_us: u64,
    /// Part of `elapsed_us` spent on credentials, region and addresses.
    pub resolve_us: u64,
    /// Part of `resolve_us` spent on requests about the sources.
    pub asked_us: u64,
    /// From the first list request to the end of the listing; overlaps with the transfer.
    pub list_us: u64,
    /// From the start of the first worker to the end of the last.
    pub transfer_us: u64,
    /// Processor time of the whole process, in seconds.
    pub cpu_seconds: f64,
    /// Peak resident set size of the process.
    pub peak_rss_bytes: u64,
    /// Pages of the slots; `None` without slots.
    pub pages: Option<Pages>,
    /// Requests in flight over time, and why.
    pub pace: PaceReport,
    /// The addresses of the endpoints, by number.
    pub endpoints: Vec<String>,
    /// The named network interfaces, with the numbers of their workers.
    pub interfaces: Vec<(Interface, Vec<usize>)>,
    /// What each of several destinations received.
    pub destinations: Vec<DestinationLine>,
    /// Bytes and retries over time.
    pub course: Vec<CoursePoint>,
    /// Processors that the process may use.
    pub processors: u64,
    /// Maximum receive buffer of a socket, in bytes, if the kernel reports it.
    pub receive_buffer_bytes: Option<u64>,
    /// The machine's TCP memory.
    pub tcp_memory: Option<TcpMemoryUse>,
    /// The user's bandwidth limit, in bytes per second.
    pub bandwidth_limit: Option<u64>,
    /// Length of a range.
    pub part_size_bytes: u64,
    /// Length of a data slot.
    pub slot_length_bytes: u64,
    /// Total length of all slots.
    pub memory_bytes: u64,
    /// The maximum number of connections, if the memory limits it.
    pub memory_bounds: Option<u64>,
    /// Retried control-plane requests.
    pub control_retries: RetryCounts,
    /// Seconds by which the signing time was ahead of this machine's clock, according to a server;
    /// 0 if no correction was in use.
    pub clock_correction_seconds: i64,
    /// Why io_uring is unavailable, if it was wanted.
    pub io_uring_unavailable: Option<String>,
    /// The exit code.
    pub exit_code: u8,
    /// Objects that neither failed nor are complete; `None` if the total is unknown.
    pub untried_objects: Option<u64>,
    /// Sources without any object, which count as failed objects; and all sources.
    pub missing_sources: (u64, u64),
    /// The missing ones that do not exist; the others cannot be read.
    pub absent_sources: u64,
}

/// Counts about earlier runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Earlier {
    /// Objects whose existing files were kept.
    pub kept_objects: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Kept files without the mark of a download: they were compared by size and, unless the user
    /// asked for sizes only, by time.
    pub kept_unmarked_objects: u64,
    /// Unfinished objects that were resumed.
    pub resumed_objects: u64,
    /// Their bytes that were already there.
    pub resumed_bytes: u64,
    /// Unfinished objects that were restarted.
    pub anew_objects: u64,
    /// Failed objects of which a later run can resume some bytes.
    pub unfinished_objects: u64,
    /// Files removed because the source no longer has their objects.
    pub deleted_files: u64,
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Version of the program.
    pub version: &'static str,
    /// The exit code.
    pub exit_code: u8,
    /// Objects that are complete.
    pub objects: u64,
    /// Objects that failed.
    pub failed_objects: u64,
    /// Objects that neither failed nor are complete, for people; `None` if the total is unknown.
    #[serde(skip)]
    pub untried_objects: Option<u64>,
    /// Sources without any object, which count as failed objects; and all sources.
    #[serde(skip)]
    pub missing_sources: (u64, u64),
    /// The missing ones that do not exist; the others cannot be read.
    #[serde(skip)]
    pub absent_sources: u64,
    /// Complete objects that match their stored checksum.
    pub validated_objects: u64,
    /// Complete objects with bytes that were compared with no checksum.
    pub not_validated_objects: u64,
    /// Number of these objects, by reason.
    pub not_validated: BTreeMap<&'static str, u64>,
    /// Complete objects without bytes.
    pub empty_objects: u64,
    /// The destination of the files, for people.
    #[serde(skip)]
    pub destination: Option<String>,
    /// Counts about earlier runs.
    #[serde(flatten)]
    pub earlier: Earlier,
    /// Body bytes received and delivered, including those of failed objects, in whole buffers. What
    /// a failed attempt had in its last buffer is received again.
    pub bytes: u64,
    /// Those of the complete objects, for people; less than `bytes` if others are incomplete.
    #[serde(skip)]
    pub complete_bytes: u64,
    /// From the start of the program to the end of its work.
    pub seconds: f64,
    /// `bytes` over `seconds`, in 10^9; null if it took no time.
    pub gigabytes_per_second: Option<f64>,
    /// Processor time for 10^12 bytes; null if there were no bytes.
    pub cpu_seconds_per_terabyte: Option<f64>,
    /// Processor time of the process.
    pub cpu_seconds: f64,
    /// Part of that used by worker threads, without the threads that write files for epoll.
    pub worker_cpu_seconds: f64,
    /// Peak resident set size of the process.
    pub peak_rss_bytes: u64,
    /// The machine's TCP memory; null if the kernel does not report it.
    pub tcp_memory: Option<TcpMemoryUse>,
    /// Requests, and what was sent again.
    #[serde(flatten)]
    pub sent: RequestLine,
    /// Retried control-plane requests (LIST, HEAD and the like), by reason.
    pub control_retries: BTreeMap<&'static str, u64>,
    /// Seconds by which the signing time was ahead of this machine's clock, according to a server;
    /// 0 if no correction was in use.
    pub clock_correction_seconds: i64,
    /// When the first worker ran out of work, since the run began; null without workers.
    pub first_worker_done_seconds: Option<f64>,
    /// When the last worker did.
    pub last_worker_done_seconds: Option<f64>,
    /// Kernel features that the rings used; null without rings.
    pub ring: Option<RingUse>,
    /// Pages of the slots.
    pub pages: Option<Pages>,
    /// How large files were written.
    pub direct_io: DirectIo,
    /// `files`, or `discard`: nothing was written.
    pub sink: &'static str,
    /// Number of workers.
    pub workers: u64,
    /// Connections of all workers: the requested number, or the maximum open at once.
    pub connections: u64,
    /// Requests in flight over time, and why.
    pub pace: PaceReport,
    /// Length of a range.
    pub part_size_bytes: u64,
    /// Length of a data slot.
    pub slot_length_bytes: u64,
    /// Total length of all slots.
    pub memory_bytes: u64,
    /// Time spent in each stage.
    pub stages: StageSeconds,
    /// Iterations of the workers' loops, with one system call each.
    pub turns: u64,
    /// Partial writes, which were continued.
    pub short_writes: u64,
    /// Hedges where the second response came first.
    pub hedges_won: u64,
    /// Packets that arrived out of order: earlier ones were lost, or dropped by this machine.
    pub out_of_order_packets: u64,
    /// Which part of the machine, the network or the server was the limit.
    pub limit: Limit,
    /// Histograms of request times.
    pub latencies: Latencies,
    /// Bytes and retries over time.
    pub course: Vec<CoursePoint>,
    /// What came from each endpoint.
    pub endpoints: Vec<EndpointLine>,
    /// What came from each address of each endpoint.
    pub addresses: Vec<AddressLine>,
    /// What came over each of the named network interfaces.
    pub interfaces: Vec<InterfaceLine>,
    /// What each of several destinations received; empty for one.
    pub destinations: Vec<DestinationLine>,
}

/// How large files were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DirectIo {
    /// At least one was written past the page cache.
    pub used: bool,
    /// Number of files written past the page cache.
    pub files_direct: u64,
    /// Number of files written through it because their file system refused O_DIRECT.
    pub files_buffered: u64,
}

/// Time spent in each stage. The first three are elapsed times and overlap. The others are sums
/// over connections or operations, so they may exceed the run's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageSeconds {
    /// Credentials, region and addresses.
    pub resolve: f64,
    /// From the first list request to the end of the listing.
    pub list: f64,
    /// From the start of the first worker to the end of the last.
    pub transfer: f64,
    /// Sum: from a request's start to the complete head of its response.
    pub first_byte: f64,
    /// Sum: from the head to the last body byte.
    pub body: f64,
    /// Sum: writes through the ring.
    pub write: f64,
    /// Sum: connections waited for a free slot.
    pub slot_wait: f64,
    /// Sum: file system calls outside the ring: create, small writes, rename.
    pub file: f64,
    /// Sum: connections waited before a retry.
    pub backoff: f64,
    /// Sum: checksums of ranges.
    pub verify: f64,
    /// Sum: TLS.
    pub tls: f64,
}

impl Summary {
    /// Adds up the workers' counts.
    #[must_use]
    pub fn new(inputs: &SummaryInputs) -> Self {
        let mut all = WorkerMetrics::default();
        inputs.workers.iter().for_each(|worker| all.add(worker));
        let files_direct = all.files_direct + inputs.resumed_files.0;
        let files_buffered = all.files_buffered + inputs.resumed_files.1;
        let done = || inputs.workers.iter().map(|worker| worker.done_us);
        let elapsed = seconds(inputs.elapsed_us);
        let (gigabytes, terabytes) = (all.bytes as f64 / 1e9, all.bytes as f64 / 1e12);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            exit_code: inputs.exit_code,
            untried_objects: inputs.untried_objects,
            missing_sources: inputs.missing_sources,
            absent_sources: inputs.absent_sources,
            objects: all.objects,
            failed_objects: inputs.failed_objects,
            validated_objects: inputs.validated_objects,
            not_validated_objects: inputs.not_validated_objects,
            not_validated: inputs.not_validated.clone(),
            empty_objects: inputs.empty_objects,
            destination: inputs.destination.clone(),
            earlier: inputs.earlier,
            bytes: all.bytes,
            complete_bytes: all.complete_bytes.min(all.bytes),
            seconds: elapsed,
            gigabytes_per_second: (inputs.elapsed_us > 0).then(|| gigabytes / elapsed),
            cpu_seconds_per_terabyte: (all.bytes > 0).then(|| inputs.cpu_seconds / terabytes),
            cpu_seconds: inputs.cpu_seconds,
            worker_cpu_seconds: all.processor.cpu_seconds,
            peak_rss_bytes: inputs.peak_rss_bytes,
            tcp_memory: inputs.tcp_memory,
            sent: RequestLine::new(&all.sent),
            control_retries: by_name(&inputs.control_retries),
            clock_correction_seconds: inputs.clock_correction_seconds,
            first_worker_done_seconds: done().min().map(seconds),
            last_worker_done_seconds: done().max().map(seconds),
            ring: RingUse::of(&inputs.workers, inputs.io_uring_unavailable.as_deref()),
            pages: inputs.pages,
            direct_io: DirectIo { used: files_direct > 0, files_direct, files_buffered },
            sink: match inputs.sink {
                Sink::File => "files",
                Sink::Null => "discard",
            },
            workers: inputs.workers.len() as u64,
            connections: inputs.pace.fixed().unwrap_or(all.connections),
            pace: inputs.pace.clone(),
            part_size_bytes: inputs.part_size_bytes,
            slot_length_bytes: inputs.slot_length_bytes,
            memory_bytes: inputs.memory_bytes,
            stages: stage_seconds(inputs, &all),
            turns: all.turns,
            short_writes: all.short_writes,
            hedges_won: all.hedges_won,
            out_of_order_packets: all.out_of_order_packets,
            latencies: Latencies::new(&all.first_bytes, &all.ranges),
            course: inputs.course.clone(),
            limit: Limit::of(&limit_facts(inputs, &all)),
            endpoints: EndpointLine::all(&all.sent.addresses, &inputs.endpoints),
            addresses: AddressLine::all(&all.sent.addresses, &inputs.endpoints),
            interfaces: InterfaceLine::all(&inputs.interfaces, &inputs.workers),
            destinations: inputs.destinations.clone(),
        }
    }

    /// The summary as one line of JSON, with the error if the run failed.
    #[must_use]
    pub fn to_json(&self, error: Option<&Error>) -> String {
        summary_json(self, error)
    }

    /// The summary in a few lines for people; with `stats`, also what it cost.
    #[must_use]
    pub fn lines(&self, stats: bool) -> Vec<String> {
        let mut lines = vec![self.headline()];
        for (reason, objects) in &self.not_validated {
            let reason = of_many(reason, *objects);
            let objects = counted(*objects, "object", "objects");
            lines.push(format!("{objects} not verified: {reason}"));
        }
        lines.extend(tried_again("retry", "retries", &self.sent.retries));
        lines.extend(asked_again(&self.control_retries));
        lines.extend(clock_corrected(self.clock_correction_seconds));
        let (missing, sources) = self.missing_sources;
        if missing > 0 {
            let exist = match self.absent_sources {
                0 => "cannot be read",
                1 if missing == 1 => "does not exist",
                absent if absent == missing => "do not exist",
                _ => "do not exist or cannot be read",
            };
            let text = format!("{missing} of {} {exist}", counted(sources, "source", "sources"));
            lines.push(match self.exit_code {
                SOME_FAILED if self.failed_objects == missing => {
                    format!("{text}; the objects of the others are complete")
                }
                _ => text,
            });
        }
        let failed_objects = self.failed_objects - missing;
        if failed_objects > 0 {
            let failed = counted(failed_objects, "object", "objects");
            lines.push(match self.exit_code {
                INTERRUPTED | DEADLINE => format!("{failed} not downloaded completely"),
                SOME_FAILED if self.objects + self.earlier.kept_objects == 0 => {
                    format!("{failed} failed")
                }
                SOME_FAILED => format!("{failed} failed; all others are complete"),
                _ => match self.untried_objects {
                    Some(0) => format!("{failed} failed"),
                    Some(1) => format!("{failed} failed, 1 was not tried"),
                    Some(untried) => format!("{failed} failed, {} were not tried", Count(untried)),
                    None => format!("{failed} failed; the run ended before all objects were tried"),
                },
            });
        }
        if stats {
            lines.extend(self.stats());
        }
        lines
    }

    /// True if there was nothing to do: every object was already there.
    #[must_use]
    pub fn is_all_present(&self) -> bool {
        let is_whole = self.exit_code == 0 && self.failed_objects == 0;
        is_whole && self.objects == 0 && self.earlier.kept_objects > 0
    }

    fn headline(&self) -> String {
        let objects = counted(self.objects, "object", "objects");
        // Without failures, repeated requests are the difference.
        let (missing, _) = self.missing_sources;
        let incomplete = match self.failed_objects.saturating_sub(missing) {
            0 => 0,
            _ => self.bytes - self.complete_bytes,
        };
        let mut line = format!("{objects}, {}", Decimal(self.bytes - incomplete));
        if incomplete > 0 {
            line += &format!(", and {} of incomplete ones", Decimal(incomplete));
        }
        if self.is_all_present() {
            let kept = counted(self.earlier.kept_objects, "object", "objects");
            line =
                format!("{kept} ({}) already present, skipped", Decimal(self.earlier.kept_bytes));
        }
        line += &match &self.destination {
            Some(destination) => format!(" -> {destination}"),
            None => " read and discarded".to_owned(),
        };
        line += &format!(" in {}", Seconds(self.seconds));
        if let Some(rate) = rate(self.bytes, self.seconds) {
            line += &format!(" ({rate})");
        }
        line += &match (self.validated_objects, self.not_validated_objects) {
            (0, 0) => return line,
            (0, _) => ", not verified".to_owned(),
            (_, 0) if self.empty_objects == 0 => return line + ", all verified",
            (validated, _) => format!(", {} verified", Count(validated)),
        };
        // Empty objects are neither verified nor unverified; with them the counts add up.
        match self.empty_objects {
            0 => line,
            empty => line + &format!(", {} empty", Count(empty)),
        }
    }

    /// The run's use of the machine and the network, in words.
    fn stats(&self) -> Vec<String> {
        let per_terabyte = self.cpu_seconds_per_terabyte;
        let per_terabyte = per_terabyte.map(|cost| format!(" ({cost:.0} s per TB)"));
        let mut lines = vec![
            format!(
                "CPU time {}{}, peak memory {}",
                Seconds(self.cpu_seconds),
                per_terabyte.unwrap_or_default(),
                Binary(self.peak_rss_bytes)
            ),
            format!(
                "{}, {}, {}",
                counted(self.workers, "worker", "workers"),
                counted(self.connections, "connection", "connections"),
                counted(self.sent.requests, "request", "requests")
            ),
        ];
        if self.sent.hedges > 0 {
            let slow = counted(self.sent.hedges, "slow request", "slow requests");
            let won = counted(self.hedges_won, "time", "times");
            lines.push(format!("{slow} sent twice; the second response came first {won}"));
        }
        lines.extend(self.sent.moved());
        lines.extend(out_of_order(self.out_of_order_packets));
        lines.extend(self.tcp_memory.as_ref().map(tcp_memory_in_words));
        lines.extend(EndpointLine::in_words(&self.endpoints));
        lines.extend(self.direct_io_in_words());
        lines.extend(self.ring.as_ref().map(RingUse::in_words));
        lines
    }

    /// How large files were written, in words; `None` if there were none.
    fn direct_io_in_words(&self) -> Option<String> {
        let DirectIo { files_direct, files_buffered, .. } = self.direct_io;
        let direct = counted(files_direct, "large file", "large files");
        let buffered = counted(files_buffered, "large file", "large files");
        match (files_direct, files_buffered) {
            (0, 0) => None,
            (_, 0) => Some(format!("O_DIRECT: {direct}")),
            (0, _) => Some(format!("O_DIRECT: not supported by the file system ({buffered})")),
            (_, _) => Some(format!(
                "O_DIRECT: {direct}; {} not, as the file system does not support it",
                Count(files_buffered)
            )),
        }
    }
}

fn stage_seconds(inputs: &SummaryInputs, all: &WorkerMetrics) -> StageSeconds {
    StageSeconds {
        resolve: seconds(inputs.resolve_us),
        list: seconds(inputs.list_us),
        transfer: seconds(inputs.transfer_us),
        first_byte: seconds(all.stages.first_byte_us),
        body: seconds(all.stages.body_us),
        write: seconds(all.stages.write_us),
        slot_wait: seconds(all.stages.slot_wait_us),
        file: seconds(all.stages.file_us),
        backoff: seconds(all.stages.backoff_us),
        verify: seconds(all.stages.verify_us),
        tls: seconds(all.stages.tls_us),
    }
}

fn limit_facts(inputs: &SummaryInputs, all: &WorkerMetrics) -> LimitFacts {
    // Time outside the transfer comes before it.
    let before_us = inputs.elapsed_us.saturating_sub(inputs.transfer_us);
    let done_us = inputs.workers.iter().map(|worker| worker.done_us).max();
    let after_us = done_us.map_or(0, |done_us| inputs.elapsed_us.saturating_sub(done_us));
    let mut facts = LimitFacts {
        bytes: all.bytes,
        seconds: seconds(inputs.elapsed_us),
        startup_seconds: seconds(inputs.resolve_us.saturating_sub(inputs.asked_us)),
        listing_seconds: seconds(before_us.saturating_sub(inputs.resolve_us) + inputs.asked_us),
        syncing_seconds: seconds(after_us),
        cpu_seconds: inputs.cpu_seconds,
        processors: inputs.processors,
        part_bytes: inputs.part_size_bytes,
        connections: inputs.pace.fixed().unwrap_or(all.connections),
        is_fixed: inputs.pace.fixed().is_some(),
        receive_buffer_bytes: inputs.receive_buffer_bytes,
        tcp_memory: inputs.tcp_memory,
        memory_bytes: inputs.memory_bytes,
        is_memory_bound: inputs.memory_bounds.is_some_and(|most| all.connections >= most),
        bandwidth_limit: inputs.bandwidth_limit,
        ..LimitFacts::default()
    };
    facts.take_workers(&inputs.workers);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::endpoints::EndpointNumber;
    use crate::engine::metrics::{AddressCount, RequestCounts, Stages};
    use crate::engine::pace::{Bounds, Pacer, Timeline};
    use crate::link::failure::RetryReason;
    use crate::sys::choice::{Features, RingKind};
    use crate::sys::uring::SetupMode;
    use crate::sys::usage::ProcessorTime;

    fn empty() -> SummaryInputs {
        SummaryInputs {
            workers: vec![],
            sink: Sink::File,
            destination: Some("t1/".to_owned()),
            failed_objects: 0,
            validated_objects: 0,
            not_validated_objects: 0,
            not_validated: BTreeMap::new(),
            empty_objects: 0,
            resumed_files: (0, 0),
            earlier: Earlier::default(),
            elapsed_us: 0,
            resolve_us: 0,
            asked_us: 0,
            list_us: 0,
            transfer_us: 0,
            cpu_seconds: 0.0,
            peak_rss_bytes: 61 << 20,
            pages: None,
            pace: PaceReport::default(),
            endpoints: vec!["https://s3.test".to_owned()],
            interfaces: Vec::new(),
            destinations: Vec::new(),
            course: Vec::new(),
            processors: 2,
            receive_buffer_bytes: None,
            tcp_memory: None,
            bandwidth_limit: None,
            part_size_bytes: 8 << 20,
            slot_length_bytes: 1 << 20,
            memory_bytes: 64 << 20,
            memory_bounds: None,
            control_retries: RetryCounts::default(),
            clock_correction_seconds: 0,
            io_uring_unavailable: None,
            exit_code: 0,
            untried_objects: None,
            missing_sources: (0, 1),
            absent_sources: 0,
        }
    }

    fn worker() -> WorkerMetrics {
        let mut retries = RetryCounts::default();
        retries[RetryReason::SlowDown as usize] = 2;
        retries[RetryReason::Stall as usize] = 1;
        WorkerMetrics {
            bytes: 2_145_000_000,
            objects: 617,
            sent: RequestCounts {
                requests: 700,
                connects: 16,
                retries,
                hedges: 2,
                moves: 3,
                addresses: vec![AddressCount {
                    connects: 16,
                    ranges: 4,
                    bytes: 8_000_000,
                    first_byte_us: 2_000_000,
                    body_us: 4_000_000,
                    busy_us: Some((0, 1_000_000)),
                    ..AddressCount::new(EndpointNumber::FIRST, ([10, 0, 0, 1], 443).into())
                }],
            },
            answers: 690,
            connections: 16,
            turns: 9_000,
            last_retry: None,
            waiting: 0,
            hedges_won: 1,
            out_of_order_packets: 21,
            short_writes: 1,
            files_direct: 10,
            files_buffered: 0,
            stages: Stages { first_byte_us: 1, body_us: 2, write_us: 3, ..Stages::default() },
            done_us: 1_400_000,
            processor: ProcessorTime { cpu_seconds: 0.25, ..ProcessorTime::default() },
            features: Some(Features {
                kind: RingKind::IoUring,
                mode: Some(SetupMode::DeferTaskrun),
                registered_slots: true,
                registered_ring: true,
            }),
            ..WorkerMetrics::default()
        }
    }

    fn timeline() -> Timeline {
        let pacer = Pacer::new(Bounds { least: 4, start: 32, ..Bounds::fixed(64) }, 1);
        pacer.timeline()
    }

    fn full() -> SummaryInputs {
        SummaryInputs {
            workers: vec![worker(), WorkerMetrics { done_us: 1_500_000, ..worker() }],
            elapsed_us: 1_520_000,
            resolve_us: 10_000,
            list_us: 200_000,
            transfer_us: 1_500_000,
            cpu_seconds: 0.609_18,
            pages: Some(Pages::Transparent),
            pace: PaceReport::new(true, &timeline(), &[]),
            validated_objects: 1200,
            not_validated_objects: 34,
            not_validated: BTreeMap::from([("no checksum is stored", 34)]),
            control_retries: {
                let mut counts = RetryCounts::default();
                counts[RetryReason::Connect as usize] = 1;
                counts
            },
            ..empty()
        }
    }

    #[test]
    fn a_run_of_nothing_divides_by_nothing() {
        let summary = Summary::new(&empty());
        assert_eq!(summary.gigabytes_per_second, None);
        assert_eq!(summary.cpu_seconds_per_terabyte, None);
        assert_eq!(summary.first_worker_done_seconds, None);
        assert_eq!(summary.lines(false), ["0 objects, 0 B -> t1/ in 0 s"]);
        let mut present = Summary::new(&empty());
        (present.earlier.kept_objects, present.earlier.kept_bytes) = (3, 2_100_000);
        let all = "3 objects (2.10 MB) already present, skipped -> t1/ in 0 s";
        assert_eq!(present.lines(false), [all]);
        // The run ended before it tried the others.
        for early in [INTERRUPTED, DEADLINE] {
            present.exit_code = early;
            assert_eq!(present.lines(false), ["0 objects, 0 B -> t1/ in 0 s"]);
        }
        assert_eq!(summary.lines(true)[1], "CPU time 0 s, peak memory 61 MiB");
        let json: serde_json::Value = serde_json::from_str(&summary.to_json(None)).expect("JSON");
        assert!(json["ring"].is_null() && json["gigabytes_per_second"].is_null());
        assert_eq!(json["retries"], serde_json::json!({}));
        let idle = SummaryInputs { elapsed_us: 100_000, ..empty() };
        assert_eq!(Summary::new(&idle).gigabytes_per_second, Some(0.0));
    }

    #[test]
    fn what_came_of_incomplete_objects_is_a_number_of_its_own() {
        let of = |failed_objects, missing| {
            let (bytes, complete_bytes) = (7_000_000, 5_000_000);
            let worker = WorkerMetrics { bytes, complete_bytes, objects: 1, ..worker() };
            let missing_sources = (missing, 2);
            let inputs =
                SummaryInputs { workers: vec![worker], failed_objects, missing_sources, ..empty() };
            Summary::new(&SummaryInputs { elapsed_us: 1_000_000, exit_code: 1, ..inputs })
        };
        let line = "1 object, 5 MB, and 2 MB of incomplete ones -> t1/ in 1.0 s (7 MB/s)";
        assert_eq!(of(1, 0).lines(false)[0], line);
        // What was requested twice is no incomplete object's.
        for (failed, missing) in [(0, 0), (1, 1)] {
            let line = "1 object, 7 MB -> t1/ in 1.0 s (7 MB/s)";
            assert_eq!(of(failed, missing).lines(false)[0], line);
        }
    }

    #[test]
    fn sources_that_are_refused_are_not_said_to_be_absent() {
        let check = |missing, absent, expected: &str| {
            let (missing_sources, absent_sources) = ((missing, 4), absent);
            let inputs = SummaryInputs { missing_sources, absent_sources, ..empty() };
            let inputs = SummaryInputs { failed_objects: missing, exit_code: 1, ..inputs };
            let expected = format!("{expected}; the objects of the others are complete");
            assert_eq!(Summary::new(&inputs).lines(false)[1], expected);
        };
        check(1, 1, "1 of 4 sources does not exist");
        check(2, 2, "2 of 4 sources do not exist");
        check(1, 0, "1 of 4 sources cannot be read");
        check(2, 1, "2 of 4 sources do not exist or cannot be read");
    }

    #[test]
    fn workers_are_added_up() {
        let summary = Summary::new(&full());
        assert_eq!(
            (summary.objects, summary.bytes, summary.sent.requests),
            (1_234, 4_290_000_000, 1400)
        );
        assert_eq!(summary.first_worker_done_seconds, Some(1.4));
        assert_eq!(summary.last_worker_done_seconds, Some(1.5));
        assert_eq!((summary.workers, summary.sent.connects, summary.turns), (2, 32, 18_000));
        assert!((summary.cpu_seconds_per_terabyte.expect("bytes") - 142.0).abs() < 1e-9);
    }

    #[test]
    fn the_names_of_the_fields_stay() {
        let json: serde_json::Value =
            serde_json::from_str(&Summary::new(&full()).to_json(None)).expect("JSON");
        let names = |value: &serde_json::Value| {
            let fields = value.as_object().expect("an object");
            let mut names: Vec<_> = fields.keys().map(String::as_str).collect();
            names.sort_unstable();
            names.join(" ")
        };
        assert_eq!(
            names(&json),
            "addresses anew_objects bytes clock_correction_seconds connections connects \
             control_retries course cpu_seconds cpu_seconds_per_terabyte deleted_files \
             destinations direct_io \
             empty_objects endpoints error error_kind exit_code failed_objects \
             first_worker_done_seconds gigabytes_per_second hedges hedges_won interfaces \
             kept_bytes \
             kept_objects kept_unmarked_objects kind last_worker_done_seconds latencies limit \
             memory_bytes moves \
             not_validated not_validated_objects objects out_of_order_packets pace pages \
             part_size_bytes \
             peak_rss_bytes requests resumed_bytes resumed_objects retries ring seconds \
             short_writes sink slot_length_bytes stages tcp_memory turns unfinished_objects \
             validated_objects version worker_cpu_seconds workers"
        );
        assert_eq!(
            names(&json["stages"]),
            "backoff body file first_byte list resolve slot_wait tls transfer verify write"
        );
        assert_eq!(json["connections"], 32);
        assert_eq!(
            json["pace"],
            serde_json::json!({"adaptive": true, "left_out": 0, "timeline": [{
                "seconds": 0.0, "change": "start", "endpoint": null, "requests_in_flight": 32,
                "requests_per_second": null, "bytes_per_second": 0
            }]})
        );
        assert_eq!(json["retries"], serde_json::json!({"slow_down": 4, "stall": 2}));
        assert_eq!(json["control_retries"], serde_json::json!({"connect": 1}));
        assert_eq!(
            json["ring"],
            serde_json::json!({
                "kind": "io_uring", "mode": "defer_taskrun", "registered_slots": true,
                "registered_ring": true, "io_uring_unavailable": null
            })
        );
        assert_eq!(
            json["direct_io"],
            serde_json::json!({"used": true, "files_direct": 20, "files_buffered": 0})
        );
        assert_eq!((&json["hedges"], &json["hedges_won"]), (&4.into(), &2.into()));
        assert_eq!(json["moves"], 6);
        assert_eq!(json["out_of_order_packets"], 42);
        assert_eq!(
            json["addresses"],
            serde_json::json!([{
                "endpoint": "https://s3.test", "address": "10.0.0.1:443", "connects": 32,
                "ranges": 8, "bytes": 16_000_000, "failures": 0, "slow_downs": 0,
                "first_byte_seconds": 0.5, "bytes_per_second": 2e6,
                "goodput_bytes_per_second": 16e6
            }])
        );
        assert_eq!(
            names(&json["endpoints"][0]),
            "bytes connects endpoint failures first_byte_seconds goodput_bytes_per_second ranges \
             slow_downs"
        );
        assert_eq!((&json["pages"], &json["sink"]), (&"transparent".into(), &"files".into()));
    }

    #[test]
    fn in_words() {
        assert_eq!(
            Summary::new(&full()).lines(false),
            [
                "1,234 objects, 4.29 GB -> t1/ in 1.5 s (2.82 GB/s), 1,200 verified",
                "34 objects not verified: no checksum is stored",
                "6 retries: 4 slow down, 2 stall",
                "1 listing or metadata request was retried: 1 connect",
            ]
        );
        assert_eq!(
            Summary::new(&full()).lines(true)[4..],
            [
                "CPU time 0.61 s (142 s per TB), peak memory 61 MiB",
                "2 workers, 32 connections, 1,400 requests",
                "4 slow requests sent twice; the second response came first 2 times",
                "6 slow requests moved to another connection",
                "42 packets came out of order: earlier ones were lost or dropped",
                "O_DIRECT: 20 large files",
                "io_uring: DEFER_TASKRUN, registered buffers",
            ]
        );
    }

    #[test]
    fn a_run_without_incident_is_one_line() {
        let quiet = WorkerMetrics {
            bytes: 136_000_000,
            objects: 44,
            sent: RequestCounts { retries: RetryCounts::default(), ..worker().sent },
            ..worker()
        };
        let one = SummaryInputs {
            workers: vec![quiet.clone()],
            elapsed_us: 8_500_000,
            not_validated_objects: 0,
            not_validated: BTreeMap::new(),
            control_retries: RetryCounts::default(),
            ..full()
        };
        let lines = |inputs: &SummaryInputs| Summary::new(inputs).lines(false);
        let all = ["44 objects, 136 MB -> t1/ in 8.5 s (16 MB/s), all verified"];
        assert_eq!(lines(&one), all);
        let with_empty = SummaryInputs { validated_objects: 43, empty_objects: 1, ..one.clone() };
        let text = "44 objects, 136 MB -> t1/ in 8.5 s (16 MB/s), 43 verified, 1 empty";
        assert_eq!(lines(&with_empty), [text]);
        let workers = vec![WorkerMetrics { objects: 1, bytes: 900, ..quiet }];
        let small = SummaryInputs {
            workers,
            destination: None,
            validated_objects: 0,
            not_validated_objects: 1,
            ..one
        };
        let text = "1 object, 900 B read and discarded in 8.5 s (106 B/s), not verified";
        assert_eq!(lines(&small), [text]);
    }

    #[test]
    fn what_could_be_better_is_said() {
        let check = |change: fn(&mut SummaryInputs), expected: &str| {
            let mut inputs = full();
            change(&mut inputs);
            let lines = Summary::new(&inputs).lines(true);
            assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:?}");
        };
        let failed = |inputs: &mut SummaryInputs| {
            (inputs.failed_objects, inputs.exit_code) = (1, SOME_FAILED);
        };
        check(failed, "1 object failed; all others are complete");
        let ended = |inputs: &mut SummaryInputs| {
            (inputs.failed_objects, inputs.exit_code) = (2, ErrorKind::Endpoint.exit_code());
        };
        check(ended, "2 objects failed; the run ended before all objects were tried");
        let untried = |inputs: &mut SummaryInputs| {
            (inputs.failed_objects, inputs.exit_code) = (2, ErrorKind::Endpoint.exit_code());
            inputs.untried_objects = Some(485);
        };
        check(untried, "2 objects failed, 485 were not tried");
        let interrupted = |inputs: &mut SummaryInputs| {
            (inputs.failed_objects, inputs.exit_code) = (2, INTERRUPTED);
        };
        check(interrupted, "2 objects not downloaded completely");
        check(
            |inputs| inputs.workers[1].features.as_mut().expect("set").registered_slots = false,
            "ulimit -l",
        );
        check(|inputs| inputs.workers[1].files_buffered = 3, "O_DIRECT: 20 large files; 3 not, as");
        check(
            |inputs| {
                for worker in &mut inputs.workers {
                    (worker.files_direct, worker.files_buffered) = (0, 1);
                }
            },
            "O_DIRECT: not supported by the file system (2 large files)",
        );
        let mut none = SummaryInputs { resumed_files: (1, 0), ..full() };
        none.workers.iter_mut().for_each(|worker| worker.files_direct = 0);
        let lines = Summary::new(&none).lines(true);
        assert!(lines.contains(&"O_DIRECT: 1 large file".to_owned()), "{lines:?}");
        none.resumed_files = (0, 0);
        let lines = Summary::new(&none).lines(true);
        assert!(!lines.iter().any(|line| line.contains("O_DIRECT")), "{lines:?}");
    }

    #[test]
    fn rings_that_differ_are_reported_by_the_least() {
        let mut inputs = full();
        let weak = Features {
            kind: RingKind::IoUring,
            mode: Some(SetupMode::Plain),
            registered_slots: false,
            registered_ring: true,
        };
        inputs.workers[0].features = Some(weak);
        let ring = Summary::new(&inputs).ring.expect("there are rings");
        assert_eq!((ring.mode, ring.registered_slots), (Some(SetupMode::Plain), false));
        assert!(ring.registered_ring);
    }
}
