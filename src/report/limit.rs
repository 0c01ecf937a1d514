//! Which part of the machine, the network or the server was the limit of a run, and how far the run
//! was from it. Pure: counters in, a verdict and a sentence out.
//!
//! Each part has its share of the run's time: that in which the workers could do nothing before
//! this part had done something. Processors are different: their share is the time in which a
//! worker ran, or was ready to and had no processor. Where that is most of the time nothing else
//! counts, for a worker that runs waits for nobody.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::metrics::{FeedCount, WaitFor, WorkerMetrics};
use crate::sys::tcp_memory::TcpMemoryUse;
use crate::text::size::{Binary, Decimal, Short, counted};

/// From this share of the time on the processors are the limit, whatever else was waited for.
const PROCESSOR_SHARE: f64 = 0.7;
/// A kind of work is named where it has this share of the time on processors.
const WORK_SHARE: f64 = 0.25;
/// No part is the limit that has less of the time.
const LEAST_SHARE: f64 = 0.2;
/// A run that has this share of what the user allows was bounded by that.
const BOUND_SHARE: f64 = 0.9;
/// Of what a receive buffer holds so much is payload, and of that so much is had of a full one.
const WINDOW_SHARE: f64 = 0.2;
/// With fewer ranges for each connection, smaller ones keep more connections busy.
const FEW_RANGES: u64 = 2;
/// A round trip that is shorter fills any buffer, in seconds.
const ROUND_TRIP_LEAST: f64 = 0.001;

/// What may be the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// What the server and the network between bring.
    OriginBandwidth,
    /// The server asked for fewer requests (503, 429).
    RequestRate,
    /// Each of the requests in flight waits for its first byte.
    Latency,
    /// Attempts failed and were tried again.
    Retries,
    /// Receive buffers are too short for the round trip.
    SocketBuffers,
    /// TCP sockets of the machine have more memory than the kernel's pressure mark: it drops
    /// received packets of every program.
    TcpMemory,
    /// `--bandwidth-limit`.
    BandwidthLimit,
    /// Writes to files.
    Disk,
    /// Creating, writing whole and renaming files.
    Files,
    /// Who reads the pipe, or asks for what it reads.
    Reader,
    /// Processors.
    Cpu,
    /// `--memory`.
    Memory,
    /// Listing, and questions about objects.
    Listing,
    /// Credentials, addresses and the start.
    Startup,
    /// Nothing had much of the time.
    None,
}

/// What is known of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitFacts {
    /// Body bytes.
    pub bytes: u64,
    /// From the start of the program to the end of its work.
    pub seconds: f64,
    /// The same, and the time before the first reader of a stream came.
    pub whole_seconds: f64,
    /// Of that: credentials and addresses.
    pub startup_seconds: f64,
    /// Of that: listing, before there was a worker.
    pub listing_seconds: f64,
    /// Of that: after the last worker had ended (`--durability`).
    pub syncing_seconds: f64,
    /// How many workers there were.
    pub workers: u64,
    /// Of a worker on average: for what it waited, in seconds.
    pub waits: [f64; WaitFor::ALL.len()],
    /// The same: how long it ran, or was ready to.
    pub running_seconds: f64,
    /// The same: outside its ring, without a processor and without asking for one.
    pub blocked_seconds: f64,
    /// All processors' time of the process, in seconds, and how many processors it may use.
    pub cpu_seconds: f64,
    /// How many that are.
    pub processors: u64,
    /// Of the workers' processor time the share that was the program's own and not the kernel's: in
    /// it they compute. 0 to 1.
    pub user_share: f64,
    /// Of the workers together: their time outside their rings, in which they compute, in seconds.
    pub outside_seconds: f64,
    /// The same of checksums.
    pub verify_seconds: f64,
    /// The same of TLS.
    pub tls_seconds: f64,
    /// Requests together: to the first byte, and from there to the last, in seconds.
    pub first_byte_seconds: f64,
    /// The latter.
    pub body_seconds: f64,
    /// Answers.
    pub requests: u64,
    /// Bytes of a range; 0 where that is not known.
    pub part_bytes: u64,
    /// Most requests in flight.
    pub connections: u64,
    /// They were given (`--connections`).
    pub is_fixed: bool,
    /// A round trip, in seconds.
    pub round_trip_seconds: Option<f64>,
    /// Longest receive buffer of a socket, in bytes.
    pub receive_buffer_bytes: Option<u64>,
    /// What was seen of the machine's TCP memory.
    pub tcp_memory: Option<TcpMemoryUse>,
    /// Of a stream: its reader was waited for, or what had come was not decompressed, in seconds.
    pub reader_seconds: f64,
    /// The latter.
    pub inflating_seconds: f64,
    /// `--memory`, or what was taken of it, in bytes.
    pub memory_bytes: u64,
    /// There were as many connections as it has room for, and there might be more.
    pub is_memory_bound: bool,
    /// What the user bounds, in bytes a second.
    pub bandwidth_limit: Option<u64>,
    /// Who asks for what is fetched.
    pub asker: Asker,
}

/// Who asks for what is fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Asker {
    /// The command itself: all of a listing, or the reader of a pipe what is next.
    #[default]
    Command,
    /// Programs that read the files of a mount.
    Mount,
    /// A program that uses the library.
    Library,
}

impl LimitFacts {
    /// What the workers of a run counted.
    pub fn take_workers(&mut self, workers: &[WorkerMetrics]) {
        let mut all = WorkerMetrics::default();
        workers.iter().for_each(|worker| all.add(worker));
        // One that others left nothing to do tells nothing.
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

    /// Of the channels of a stream, after [`Self::take_workers`]: who waited for whom.
    pub fn take_feeds<'a>(&mut self, feeds: impl Iterator<Item = &'a FeedCount>) {
        // What a worker of a stream waits for is what its feeder has not asked for.
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
                // Until it opens the pipe again, the next reader is waited for.
                let absent_us = ended_us.map_or(0, |us| epoch.opened_us.saturating_sub(us));
                ended_us = Some(epoch.opened_us + epoch.elapsed_us);
                self.reader_seconds += seconds(epoch.reader_kept_us + absent_us);
                self.inflating_seconds += seconds(epoch.inflating_us);
            }
            for address in &feed.addresses {
                self.first_byte_seconds += seconds(address.first_byte_us);
                self.body_seconds += seconds(address.body_us);
            }
            self.requests = self.requests.max(feed.requests);
        }
        let channels = f64::max(channels, 1.0);
        self.waits.iter_mut().for_each(|waited| *waited /= channels);
        self.reader_seconds /= channels;
        self.inflating_seconds /= channels;
    }

    /// Of programs that ask for what they need, after [`Self::take_workers`]: how long one of them
    /// waited for it, in seconds. The rest of the time they asked for nothing, or for no more.
    pub fn take_asker(&mut self, asker: Asker, waited_seconds: f64) {
        self.asker = asker;
        let waited = waited_seconds.clamp(0.0, self.seconds);
        self.reader_seconds = self.seconds - waited;
        self.waits[WaitFor::Work as usize] = 0.0;
        self.waits[WaitFor::Nothing as usize] = 0.0;
        // With more under way a worker would not have slept so, but nobody asked for more.
        self.waits[WaitFor::Requests as usize] +=
            std::mem::take(&mut self.waits[WaitFor::MoreWork as usize]);
        // One worker may have waited while others did not, and while nobody waited for it.
        let each = self.outside_seconds / f64::max(self.workers as f64, 1.0);
        let active = self.waits.iter().sum::<f64>() + each;
        let scale = waited / active.max(1e-9);
        self.waits.iter_mut().for_each(|waits| *waits *= scale);
        self.blocked_seconds *= scale.min(1.0);
    }

    /// An option as this asker writes it.
    fn option(&self, name: &str) -> String {
        match self.asker {
            Asker::Library => name.replace('-', "_"),
            Asker::Command | Asker::Mount => format!("--{name}"),
        }
    }

    /// Requests are smaller than they may be: objects are, and no option makes them larger.
    fn has_small_objects(&self) -> bool {
        self.part_bytes > 0 && self.bytes < self.requests.saturating_mul(self.part_bytes) / 2
    }

    /// There were too few ranges for more connections to have something to do.
    fn has_few_ranges(&self) -> bool {
        let known = self.part_bytes > 0 && self.requests > 0;
        known && self.requests < FEW_RANGES * self.connections && !self.has_small_objects()
    }

    /// What brings more bytes at the same time where each connection has its rate.
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

    /// What makes fewer requests, or more of them at the same time.
    fn fewer_requests(&self) -> (&'static str, &'static str) {
        if self.asker != Asker::Command {
            let more = if self.is_fixed { "allow more connections" } else { "read more at once" };
            return (more, "larger reads");
        }
        // It goes on to more by itself.
        let more = if self.is_fixed { "use more --connections" } else { "measure a longer run" };
        match self.has_small_objects() {
            true => (more, "larger objects"),
            false => (more, "a larger --part-size"),
        }
    }

    /// What a part alone would have allowed, where without all other waiting it were so much: with
    /// a bound of the user's never more than that, and of it just that. A short run may have been a
    /// little faster.
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

    /// What of a run's time the network, and who is behind it, has: for what of that.
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

    /// The kind of work that had most of the processors' time, where one had much of it.
    ///
    /// Each is known by the clock, which goes on while a worker has no processor. Where others keep
    /// the processors busy most of that time passes at wake-ups, outside of any work. So a kind has
    /// the share of the time outside the ring that it has by the clock, and that time has what of
    /// the processors' time was not the kernel's: to receive and to write is the kernel's work.
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

    /// The share of the run's time that each part has.
    fn shares(&self) -> BTreeMap<Part, f64> {
        let whole = self.seconds.max(1e-9);
        let running = self.running_seconds;
        let of_all = self.cpu_seconds / self.processors.max(1) as f64;
        let (requests, retries) = (self.waited(WaitFor::Requests), self.waited(WaitFor::Retry));
        // While the kernel drops what the network brings, that is why it is waited for.
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

/// What was the limit of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// Which part.
    pub part: Part,
    /// Of the processors: for what they were needed most, where one kind of work had much of it.
    pub work: Option<&'static str>,
    /// The share of the run's time in which it was waited for, 0 to 1.
    pub share: f64,
    /// What the run came to; null where no byte came.
    pub bytes_per_second: Option<u64>,
    /// What this part alone would have allowed: the run without all other waiting, within
    /// `--bandwidth-limit`.
    pub ceiling_bytes_per_second: Option<u64>,
    /// The share of each part.
    pub shares: BTreeMap<Part, f64>,
    /// All that in a sentence.
    pub sentence: String,
}

impl Limit {
    /// Judges.
    #[must_use]
    pub fn of(facts: &LimitFacts) -> Self {
        let shares = facts.shares();
        let cpu = shares[&Part::Cpu];
        let largest = shares.iter().max_by(|one, other| one.1.total_cmp(other.1));
        let (mut part, mut share) =
            largest.map_or((Part::None, 0.0), |(part, share)| (*part, *share));
        let speed =
            (facts.bytes > 0 && facts.seconds > 0.0).then(|| facts.bytes as f64 / facts.seconds);
        // Late wake-ups are made up for: then processors cost nothing.
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
    /// As it stands in summaries.
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

/// The verdict in words: what, how much of the time, how far from it, what helps.
fn sentence(
    facts: &LimitFacts,
    part: Part,
    work: Option<&'static str>,
    share: f64,
    speeds: Option<(f64, f64)>,
) -> String {
    let (what, advice) = words(facts, part, work);
    let mut told = format!("the limit: {what}, {:.0} % of the time", share * 100.0);
    if part == Part::None {
        return format!("the limit: {what}");
    }
    if let Some((speed, ceiling)) = speeds {
        let (speed, ceiling) = (Decimal(whole(speed)), Decimal(whole(ceiling)));
        told += &format!("; {speed}/s of at most {ceiling}/s");
    }
    if let Some(advice) = advice {
        told += &format!("; {advice}");
    }
    told
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

/// The processors, and for what they were needed most.
fn processors(facts: &LimitFacts, work: Option<&'static str>) -> String {
    let kind = match work {
        Some("verification") => ", most of all for checksums",
        Some("tls") => ", most of all for TLS",
        Some(_) => ", most of all to decompress",
        None => "",
    };
    format!("the processors ({}){kind}", counted(facts.workers, "worker", "workers"))
}

/// That of the machine's TCP memory: how much there was, against which mark, and what it cost.
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
