//! Finds which part of the machine, the network or the server was the limit of a run, and how far
//! the run was from it. Pure: counters in, a verdict and a sentence out.
//!
//! Each part's share is the fraction of the run's time in which the workers waited for it and could
//! do nothing else. The processors' share is the fraction in which a worker ran, or was runnable
//! without a processor. If that is most of the time, only the processors count, because a running
//! worker waits for nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::metrics::{FeedCount, WaitFor, WorkerMetrics};
use crate::sys::tcp_memory::TcpMemoryUse;
use crate::text::size::{Binary, Decimal, Short, counted};

/// From this share on the processors are the limit, whatever else was waited for.
const PROCESSOR_SHARE: f64 = 0.7;
/// A kind of work is named from this share of the processors' time on.
const WORK_SHARE: f64 = 0.25;
/// A part with a smaller share is not the limit.
const LEAST_SHARE: f64 = 0.2;
/// From this share of the user's bandwidth limit on, that limit is what bounded the run.
const BOUND_SHARE: f64 = 0.9;
/// A receive buffer is the limit if the bytes in flight reach this share of it: a part of the
/// buffer is overhead, and a full one still reaches only a part of the rest.
const WINDOW_SHARE: f64 = 0.2;
/// Below this number of ranges per connection, smaller ranges keep more connections busy.
const FEW_RANGES: u64 = 2;
/// A shorter round trip fills any buffer, in seconds.
const ROUND_TRIP_LEAST: f64 = 0.001;

/// What may be the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The bandwidth of the server and of the network to it.
    OriginBandwidth,
    /// The server asked for fewer requests (503, 429).
    RequestRate,
    /// Each request in flight waits for its first byte.
    Latency,
    /// Attempts failed and were retried.
    Retries,
    /// Receive buffers are too short for the round trip.
    SocketBuffers,
    /// The machine's TCP sockets exceed the kernel's memory pressure mark, so it drops received
    /// packets of every program.
    TcpMemory,
    /// `--bandwidth-limit`.
    BandwidthLimit,
    /// Writes to files.
    Disk,
    /// Creating, writing whole and renaming files.
    Files,
    /// The reader of the pipe, or the program that requests what it reads.
    Reader,
    /// Processors.
    Cpu,
    /// `--memory`.
    Memory,
    /// Listing, and requests about objects.
    Listing,
    /// Credentials, addresses and startup.
    Startup,
    /// No part had much of the time.
    None,
}

/// The facts about a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitFacts {
    /// Body bytes.
    pub bytes: u64,
    /// From the start of the program to the end of its work.
    pub seconds: f64,
    /// `seconds`, plus the time before the first reader of a stream came.
    pub whole_seconds: f64,
    /// Part of `seconds` spent on credentials and addresses.
    pub startup_seconds: f64,
    /// Part of `seconds` spent listing before there was a worker.
    pub listing_seconds: f64,
    /// Part of `seconds` after the last worker had ended (`--durability`).
    pub syncing_seconds: f64,
    /// Number of workers.
    pub workers: u64,
    /// Seconds that a worker waited on average, by cause.
    pub waits: [f64; WaitFor::ALL.len()],
    /// Seconds that a worker ran or was runnable, on average.
    pub running_seconds: f64,
    /// Seconds that a worker was blocked outside its ring, on average: neither running nor
    /// runnable.
    pub blocked_seconds: f64,
    /// Seconds of processor time of the process.
    pub cpu_seconds: f64,
    /// Processors that the process may use.
    pub processors: u64,
    /// Share of the workers' processor time spent in user mode, where they compute: 0 to 1.
    pub user_share: f64,
    /// Seconds outside the ring, where workers compute; the sum over the workers.
    pub outside_seconds: f64,
    /// Part of `outside_seconds` spent on checksums.
    pub verify_seconds: f64,
    /// Part of `outside_seconds` spent on TLS.
    pub tls_seconds: f64,
    /// Seconds to the first byte, summed over the requests.
    pub first_byte_seconds: f64,
    /// Seconds from the first byte to the last, summed over the requests.
    pub body_seconds: f64,
    /// Number of responses.
    pub requests: u64,
    /// Bytes of a range; 0 if unknown.
    pub part_bytes: u64,
    /// Maximum number of requests in flight.
    pub connections: u64,
    /// `connections` was given (`--connections`).
    pub is_fixed: bool,
    /// A round trip, in seconds.
    pub round_trip_seconds: Option<f64>,
    /// Maximum receive buffer of a socket, in bytes.
    pub receive_buffer_bytes: Option<u64>,
    /// The machine's TCP memory.
    pub tcp_memory: Option<TcpMemoryUse>,
    /// For a stream: seconds in which its reader was waited for.
    pub reader_seconds: f64,
    /// For a stream: seconds in which received bytes waited for decompression.
    pub inflating_seconds: f64,
    /// `--memory`, or the memory taken by default, in bytes.
    pub memory_bytes: u64,
    /// The connections reached the number that fits the memory, and more were possible.
    pub is_memory_bound: bool,
    /// The user's bandwidth limit, in bytes per second.
    pub bandwidth_limit: Option<u64>,
    /// Who requests what is fetched.
    pub asker: Asker,
}

/// Who requests what is fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Asker {
    /// The command itself: it fetches all of a listing, or what a pipe's reader needs next.
    #[default]
    Command,
    /// Programs that read the files of a mount.
    Mount,
    /// A program that uses the library.
    Library,
}

impl LimitFacts {
    /// Sets the facts that the workers of a run counted.
    pub fn take_workers(&mut self, workers: &[WorkerMetrics]) {
        let mut all = WorkerMetrics::default();
        workers.iter().for_each(|worker| all.add(worker));
        // A worker's time without work, because others took it all, does not count.
        let idle_us = all.waits.of(WaitFor::Nothing);
        let all_us = (all.loop_us + all.waits.all()).max(1);
        let busy = all_us.saturating_sub(idle_us) as f64 / all_us as f64;
        let count = (workers.len() as f64 * busy).max(1.0);
        let each = |us: u64| seconds(us) / count;
        self.workers = workers.len() as u64;
        self.waits = WaitFor::ALL.map(|what| each(all.waits.of(what)));
        let processor = all.processor;
        self.running_seconds = (processor.cpu_seconds + processor.delay_seconds) / count;
        self.blocked_seconds = (each(all.loop_us) - self.running_seconds).max(0.0);
        self.user_share = processor.user_seconds / processor.cpu_seconds.max(1e-9);
        self.outside_seconds = seconds(all.loop_us);
        self.verify_seconds = seconds(all.stages.verify_us);
        self.tls_seconds = seconds(all.stages.tls_us);
        self.first_byte_seconds = seconds(all.stages.first_byte_us);
        let body_us = all.stages.body_us.saturating_sub(all.stages.slot_wait_us);
        self.body_seconds = seconds(body_us);
        self.requests = all.answers;
        self.round_trip_seconds = all.connect_us_min.map(seconds);
    }

    /// Sets the facts about the channels of a stream; call it after [`Self::take_workers`].
    pub fn take_feeds<'a>(&mut self, feeds: impl Iterator<Item = &'a FeedCount>) {
        // The feeders' waits replace the workers': a worker of a stream waits for its feeder's
        // requests.
        self.waits = [0.0; WaitFor::ALL.len()];
        (self.first_byte_seconds, self.body_seconds) = (0.0, 0.0);
        let mut channels = 0.0;
        for feed in feeds {
            channels += 1.0;
            for (all, what) in self.waits.iter_mut().zip(WaitFor::ALL) {
                *all += seconds(feed.waits.of(what));
            }
            let mut ended_us = None;
            for epoch in &feed.epochs {
                // Between two epochs the next reader is waited for, until it opens the pipe.
                let absent_us = ended_us.map_or(0, |us| epoch.opened_us.saturating_sub(us));
                ended_us = Some(epoch.opened_us + epoch.elapsed_us);
                self.reader_seconds += seconds(epoch.reader_kept_us + absent_us);
                self.inflating_seconds += seconds(epoch.inflating_us);
            }
            for address in &feed.sent.addresses {
                self.first_byte_seconds += seconds(address.first_byte_us);
                self.body_seconds += seconds(address.body_us);
            }
            self.requests = self.requests.max(feed.sent.requests);
        }
        let channels = f64::max(channels, 1.0);
        self.waits.iter_mut().for_each(|waited| *waited /= channels);
        self.reader_seconds /= channels;
        self.inflating_seconds /= channels;
    }

    /// Sets how many seconds a program waited for what it asked for; call it after
    /// [`Self::take_workers`]. The rest of the time the programs asked for nothing, or for no more.
    pub fn take_asker(&mut self, asker: Asker, waited_seconds: f64) {
        self.asker = asker;
        let waited = waited_seconds.clamp(0.0, self.seconds);
        self.reader_seconds = self.seconds - waited;
        self.waits[WaitFor::Work as usize] = 0.0;
        self.waits[WaitFor::Nothing as usize] = 0.0;
        // The worker slept for lack of further work, but nobody asked for more: it waited for
        // requests.
        self.waits[WaitFor::Requests as usize] +=
            std::mem::take(&mut self.waits[WaitFor::MoreWork as usize]);
        // Scales the waits: one worker may have waited while others, or the programs, did not.
        let each = self.outside_seconds / f64::max(self.workers as f64, 1.0);
        let active = self.waits.iter().sum::<f64>() + each;
        let scale = waited / active.max(1e-9);
        self.waits.iter_mut().for_each(|waits| *waits *= scale);
        self.blocked_seconds *= scale.min(1.0);
    }

    /// An option's name in this asker's notation.
    fn option(&self, name: &str) -> String {
        match self.asker {
            Asker::Library => name.replace('-', "_"),
            Asker::Command | Asker::Mount => format!("--{name}"),
        }
    }

    /// True if objects are smaller than a range, so that no option makes requests larger.
    fn has_small_objects(&self) -> bool {
        self.part_bytes > 0 && self.bytes < self.requests.saturating_mul(self.part_bytes) / 2
    }

    /// True if there were too few ranges to keep more connections busy.
    fn has_few_ranges(&self) -> bool {
        let known = self.part_bytes > 0 && self.requests > 0;
        known && self.requests < FEW_RANGES * self.connections && !self.has_small_objects()
    }

    /// Advice to have more requests in flight, for connections of limited rate each.
    fn more_at_once(&self) -> Option<String> {
        if self.asker != Asker::Command {
            let connections = || format!("use more {}", self.option("connections"));
            return self.is_fixed.then(connections);
        }
        if self.has_few_ranges() {
            let requests = counted(self.requests, "request", "requests");
            return Some(format!("use a smaller --part-size: there were only {requests}"));
        }
        self.is_fixed.then(|| "try more --connections".to_owned())
    }

    /// Advice to have more requests in flight, and to make requests larger.
    fn fewer_requests(&self) -> (&'static str, &'static str) {
        if self.asker != Asker::Command {
            let more = if self.is_fixed { "allow more connections" } else { "read more at once" };
            return (more, "larger reads");
        }
        // An adaptive run raises the number by itself.
        let more = if self.is_fixed { "use more --connections" } else { "measure a longer run" };
        match self.has_small_objects() {
            true => (more, "larger objects"),
            false => (more, "a larger --part-size"),
        }
    }

    /// Applies the user's bandwidth limit to a part's ceiling: no ceiling exceeds it, and that of
    /// [`Part::BandwidthLimit`] is the limit itself. A short run may exceed it slightly, so the
    /// ceiling is at least the measured speed.
    fn bounded(&self, part: Part, speed: f64, ceiling: f64) -> f64 {
        let Some(limit) = self.bandwidth_limit.map(|limit| limit as f64) else { return ceiling };
        let ceiling = if part == Part::BandwidthLimit { limit } else { ceiling.min(limit) };
        ceiling.max(speed)
    }

    /// The share of the run's time in which pressure on the machine's TCP memory slowed
    /// connections, 0 to 1.
    fn tcp_pressure_share(&self) -> f64 {
        let affected_seconds = self.tcp_memory.map_or(0.0, |seen| seen.affected_seconds);
        (affected_seconds / self.seconds.max(self.whole_seconds).max(1e-9)).clamp(0.0, 1.0)
    }

    fn waited(&self, what: WaitFor) -> f64 {
        self.waits[what as usize]
    }

    /// The part to which waiting for the network is attributed.
    fn network(&self) -> Part {
        if self.is_memory_bound {
            return Part::Memory;
        }
        let has_body = self.body_seconds > 0.0;
        if self.first_byte_seconds > self.body_seconds {
            return Part::Latency;
        }
        if let (Some(trip), Some(buffer), true) =
            (self.round_trip_seconds, self.receive_buffer_bytes, has_body)
        {
            let each = self.bytes as f64 / self.body_seconds;
            if trip >= ROUND_TRIP_LEAST && each * trip >= buffer as f64 * WINDOW_SHARE {
                return Part::SocketBuffers;
            }
        }
        Part::OriginBandwidth
    }

    /// The kind of work with the largest share of the processors' time, if that share is large.
    ///
    /// Each kind's time is measured by the clock, which runs on while a worker has no processor. If
    /// other programs keep the processors busy, most of that delay occurs at wake-ups, outside any
    /// work. So the clock only gives a kind's share of the time outside the ring; that time is
    /// taken to have used the workers' user time, because receiving and writing is system time.
    fn work(&self) -> Option<&'static str> {
        let share = |seconds: f64| {
            self.user_share.clamp(0.0, 1.0) * (seconds / self.outside_seconds.max(1e-9)).min(1.0)
        };
        let kinds = [
            ("verification", share(self.verify_seconds)),
            ("tls", share(self.tls_seconds)),
            ("gunzip", self.inflating_seconds / self.seconds.max(1e-9)),
        ];
        let most = kinds.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
        most.filter(|(_, share)| *share >= WORK_SHARE).map(|(name, _)| name)
    }

    /// Each part's share of the run's time.
    fn shares(&self) -> BTreeMap<Part, f64> {
        let whole = self.seconds.max(1e-9);
        let running = self.running_seconds;
        let of_all = self.cpu_seconds / self.processors.max(1) as f64;
        let (requests, retries) = (self.waited(WaitFor::Requests), self.waited(WaitFor::Retry));
        // Waits that coincide with TCP memory pressure are attributed to it.
        let pressure = self.tcp_pressure_share();
        let times = [
            (self.network(), requests * (1.0 - pressure)),
            (Part::RequestRate, self.waited(WaitFor::Refused)),
            (Part::Retries, retries * (1.0 - pressure)),
            (Part::TcpMemory, (requests + retries) * pressure),
            (Part::BandwidthLimit, self.waited(WaitFor::Bandwidth)),
            (Part::Memory, self.waited(WaitFor::Memory)),
            (Part::Disk, self.waited(WaitFor::Writes) + self.syncing_seconds),
            (Part::Files, self.waited(WaitFor::Files) + self.blocked_seconds),
            (
                Part::Listing,
                self.waited(WaitFor::Work) + self.waited(WaitFor::MoreWork) + self.listing_seconds,
            ),
            (Part::Startup, self.startup_seconds),
            (Part::Reader, self.reader_seconds),
            (Part::Cpu, running.max(of_all).max(self.inflating_seconds)),
        ];
        let mut shares = BTreeMap::new();
        for (part, time) in times {
            *shares.entry(part).or_insert(0.0) += (time / whole).clamp(0.0, 1.0);
        }
        shares
    }
}

/// The limit of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// The part.
    pub part: Part,
    /// For [`Part::Cpu`]: the kind of work that needed most of the processors' time, if one did.
    pub work: Option<&'static str>,
    /// The share of the run's time in which it was waited for, 0 to 1.
    pub share: f64,
    /// The run's throughput; null without bytes.
    pub bytes_per_second: Option<u64>,
    /// The throughput if only this part had been waited for, within `--bandwidth-limit`.
    pub ceiling_bytes_per_second: Option<u64>,
    /// The share of each part.
    pub shares: BTreeMap<Part, f64>,
    /// The verdict in a sentence.
    pub sentence: String,
}

impl Limit {
    /// Finds the limit.
    #[must_use]
    pub fn of(facts: &LimitFacts) -> Self {
        let shares = facts.shares();
        let cpu = shares[&Part::Cpu];
        let largest = shares.iter().max_by(|one, other| one.1.total_cmp(other.1));
        let (mut part, mut share) =
            largest.map_or((Part::None, 0.0), |(part, share)| (*part, *share));
        let speed =
            (facts.bytes > 0 && facts.seconds > 0.0).then(|| facts.bytes as f64 / facts.seconds);
        // At the bandwidth limit late wake-ups are caught up, so busy processors cost nothing.
        let is_at_bound = part == Part::BandwidthLimit
            && speed
                .zip(facts.bandwidth_limit)
                .is_some_and(|(speed, limit)| speed >= limit as f64 * BOUND_SHARE);
        let is_read = facts.reader_seconds < facts.seconds * cpu;
        if cpu >= PROCESSOR_SHARE && is_read && !is_at_bound {
            (part, share) = (Part::Cpu, cpu);
        }
        if share < LEAST_SHARE {
            part = Part::None;
        }
        let ceiling = speed.filter(|_| part != Part::None && part != Part::Startup);
        let ceiling = ceiling.map(|speed| facts.bounded(part, speed, speed / share));
        let work = facts.work().filter(|_| part == Part::Cpu);
        let sentence = sentence(facts, part, work, share, speed.zip(ceiling));
        let rounded = shares.into_iter().map(|(part, share)| (part, thousandths(share)));
        Self {
            part,
            work,
            share: thousandths(share),
            bytes_per_second: speed.map(whole),
            ceiling_bytes_per_second: ceiling.map(whole),
            shares: rounded.filter(|(_, share)| *share > 0.0).collect(),
            sentence,
        }
    }
}

impl Limit {
    /// The verdict as it stands in summaries.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings under fixed names become JSON")
    }
}

fn thousandths(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes a second")]
fn whole(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// The verdict in words: the part, its share, the possible speed and advice.
fn sentence(
    facts: &LimitFacts,
    part: Part,
    work: Option<&'static str>,
    share: f64,
    speeds: Option<(f64, f64)>,
) -> String {
    let (what, advice) = words(facts, part, work);
    let mut text = format!("the limit: {what}, {:.0} % of the time", share * 100.0);
    if part == Part::None {
        return format!("the limit: {what}");
    }
    if let Some((speed, ceiling)) = speeds {
        let (speed, ceiling) = (Decimal(whole(speed)), Decimal(whole(ceiling)));
        text += &format!("; {speed}/s of at most {ceiling}/s");
    }
    if let Some(advice) = advice {
        text += &format!("; {advice}");
    }
    text
}

fn words(facts: &LimitFacts, part: Part, work: Option<&'static str>) -> (String, Option<String>) {
    let (more, larger) = facts.fewer_requests();
    let in_flight = counted(facts.connections, "connection", "connections");
    let owned = |advice: &str| Some(advice.to_owned());
    let each = |seconds: f64| Short(seconds / facts.requests.max(1) as f64);
    match part {
        Part::OriginBandwidth => (
            format!("the bandwidth of the server or of the network, with {in_flight}"),
            facts.more_at_once(),
        ),
        Part::RequestRate => (
            "the server's request rate (503, 429)".to_owned(),
            Some(format!("use {larger}, or fewer clients")),
        ),
        Part::Latency => (
            format!(
                "latency: {in_flight}, and {} to the first byte of each request",
                each(facts.first_byte_seconds)
            ),
            Some(format!("{more}, or use {larger}")),
        ),
        Part::Retries => (
            "failed attempts that were tried again".to_owned(),
            owned("see the retries in the summary"),
        ),
        Part::SocketBuffers => (
            format!(
                "socket buffers of {} for a round trip of {}",
                Binary(facts.receive_buffer_bytes.unwrap_or(0)),
                Short(facts.round_trip_seconds.unwrap_or(0.0))
            ),
            Some(format!("raise net.ipv4.tcp_rmem, or {more}")),
        ),
        Part::TcpMemory => tcp_memory(facts),
        Part::BandwidthLimit => {
            let limit = facts.bandwidth_limit.map(|limit| format!(", {}/s", Decimal(limit)));
            (facts.option("bandwidth-limit") + &limit.unwrap_or_default(), None)
        }
        Part::Disk => ("the disk: writes to files".to_owned(), owned("use a faster disk")),
        Part::Files => (
            "creating, writing and renaming files".to_owned(),
            owned("use a faster file system, or fewer and larger objects"),
        ),
        Part::Reader => match facts.asker {
            Asker::Command => ("the reader of the pipe".to_owned(), None),
            Asker::Mount => ("the programs that read: they waited for no read".to_owned(), None),
            Asker::Library => ("the program: it waited for no read".to_owned(), None),
        },
        Part::Cpu => (processors(facts, work), owned("use more cores")),
        Part::Memory => {
            let words = format!("memory for buffers, {}", Binary(facts.memory_bytes));
            (words, Some(format!("raise {}", facts.option("memory"))))
        }
        Part::Listing => (
            "listing and questions about objects".to_owned(),
            owned("use more --list-requests, or a manifest"),
        ),
        Part::Startup => (
            "the start: credentials, region and addresses".to_owned(),
            owned("measure a longer run"),
        ),
        Part::None => ("none: no part was waited for long".to_owned(), None),
    }
}

/// The processors, and the kind of work that needed most of their time.
fn processors(facts: &LimitFacts, work: Option<&'static str>) -> String {
    let kind = match work {
        Some("verification") => ", most of all for checksums",
        Some("tls") => ", most of all for TLS",
        Some(_) => ", most of all to decompress",
        None => "",
    };
    format!("the processors ({}){kind}", counted(facts.workers, "worker", "workers"))
}

/// The machine's TCP memory: its use, the pressure mark and the damage.
fn tcp_memory(facts: &LimitFacts) -> (String, Option<String>) {
    let seen = facts.tcp_memory.unwrap_or_default();
    let mut what =
        format!("the machine's TCP memory, {} of socket buffers", Binary(seen.peak_bytes));
    if let Some(mark) = seen.pressure_bytes.filter(|mark| seen.peak_bytes > *mark) {
        what += &format!(", above the pressure mark of {} (net.ipv4.tcp_mem)", Binary(mark));
    }
    what += ": the kernel drops received data of every program";
    if let Some(dropped) = seen.dropped.filter(|dropped| *dropped > 0) {
        what += &format!(" ({} in this run)", counted(dropped, "packet", "packets"));
    }
    let fewer = facts.option(if facts.is_fixed { "connections" } else { "max-connections" });
    let advice = format!("lower {fewer}, raise net.ipv4.tcp_mem, or see who holds it (ss -tm)");
    (what, Some(advice))
}

#[cfg(test)]
mod tests;
