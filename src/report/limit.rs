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
use crate::text::size::{Binary, Decimal, Short, counted};

/// From this share of the time on the processors are the limit, whatever else was waited for.
const PROCESSOR_SHARE: f64 = 0.7;
/// A kind of work is named where it has this share of the time on processors.
const WORK_SHARE: f64 = 0.25;
/// No part is the limit that has less of the time.
const LEAST_SHARE: f64 = 0.2;
/// Of what a receive buffer holds so much is payload, and of that so much is had of a full one.
const WINDOW_SHARE: f64 = 0.2;
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
    /// `--bandwidth-limit`.
    BandwidthLimit,
    /// Writes to files.
    Disk,
    /// Creating, writing whole and renaming files.
    Files,
    /// Who reads the pipe.
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
    /// Most requests in flight.
    pub connections: u64,
    /// They were given (`--connections`).
    pub is_fixed: bool,
    /// A round trip, in seconds.
    pub round_trip_seconds: Option<f64>,
    /// Longest receive buffer of a socket, in bytes.
    pub receive_buffer_bytes: Option<u64>,
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
        self.running_seconds = (all.cpu_seconds + all.delay_seconds) / count;
        self.blocked_seconds = (each(all.loop_us) - self.running_seconds).max(0.0);
        self.user_share = all.user_seconds / all.cpu_seconds.max(1e-9);
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
            for epoch in &feed.epochs {
                self.reader_seconds += seconds(epoch.reader_kept_us);
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
        let times = [
            (self.network(), self.waited(WaitFor::Requests)),
            (Part::RequestRate, self.waited(WaitFor::Refused)),
            (Part::Retries, self.waited(WaitFor::Retry)),
            (Part::BandwidthLimit, self.waited(WaitFor::Bandwidth)),
            (Part::Memory, self.waited(WaitFor::Memory)),
            (Part::Disk, self.waited(WaitFor::Writes) + self.syncing_seconds),
            (Part::Files, self.waited(WaitFor::Files) + self.blocked_seconds),
            (Part::Listing, self.waited(WaitFor::Work) + self.listing_seconds),
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
    /// What this part alone would have allowed: the run without all other waiting.
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
        if cpu >= PROCESSOR_SHARE && facts.reader_seconds < facts.seconds * cpu {
            (part, share) = (Part::Cpu, cpu);
        }
        if share < LEAST_SHARE {
            part = Part::None;
        }
        let speed =
            (facts.bytes > 0 && facts.seconds > 0.0).then(|| facts.bytes as f64 / facts.seconds);
        let ceiling = speed.filter(|_| part != Part::None && part != Part::Startup);
        let ceiling = ceiling.map(|speed| speed / share);
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

fn words(
    facts: &LimitFacts,
    part: Part,
    work: Option<&'static str>,
) -> (String, Option<&'static str>) {
    let in_flight = counted(facts.connections, "connection", "connections");
    let each = |seconds: f64| Short(seconds / facts.requests.max(1) as f64);
    match part {
        Part::OriginBandwidth => (
            format!("the bandwidth of the server or of the network, with {in_flight}"),
            facts.is_fixed.then_some("try more --connections"),
        ),
        Part::RequestRate => (
            "the server's request rate (503, 429)".to_owned(),
            Some("use a larger --part-size, or fewer clients"),
        ),
        Part::Latency => (
            format!(
                "latency: {in_flight}, and {} to the first byte of each request",
                each(facts.first_byte_seconds)
            ),
            Some("use more --connections, or a larger --part-size"),
        ),
        Part::Retries => (
            "failed attempts that were tried again".to_owned(),
            Some("see the retries in the summary"),
        ),
        Part::SocketBuffers => (
            format!(
                "socket buffers of {} for a round trip of {}",
                Binary(facts.receive_buffer_bytes.unwrap_or(0)),
                Short(facts.round_trip_seconds.unwrap_or(0.0))
            ),
            Some("raise net.ipv4.tcp_rmem, or use more --connections"),
        ),
        Part::BandwidthLimit => match facts.bandwidth_limit {
            Some(limit) => (format!("--bandwidth-limit, {}/s", Decimal(limit)), None),
            None => ("--bandwidth-limit".to_owned(), None),
        },
        Part::Disk => ("the disk: writes to files".to_owned(), Some("use a faster disk")),
        Part::Files => (
            "creating, writing and renaming files".to_owned(),
            Some("use a faster file system, or fewer and larger objects"),
        ),
        Part::Reader => ("the reader of the pipe".to_owned(), None),
        Part::Cpu => {
            let kind = match work {
                Some("verification") => ", most of all for checksums",
                Some("tls") => ", most of all for TLS",
                Some(_) => ", most of all to decompress",
                None => "",
            };
            let workers = counted(facts.workers, "worker", "workers");
            (format!("the processors ({workers}){kind}"), Some("use more cores"))
        }
        Part::Memory => {
            (format!("memory for buffers, {}", Binary(facts.memory_bytes)), Some("raise --memory"))
        }
        Part::Listing => (
            "listing and questions about objects".to_owned(),
            Some("use more --list-requests, or a manifest"),
        ),
        Part::Startup => (
            "the start: credentials, region and addresses".to_owned(),
            Some("measure a longer run"),
        ),
        Part::None => ("none: no part was waited for long".to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::metrics::EpochCount;

    /// A run of ten seconds with a worker that does next to nothing.
    fn idle() -> LimitFacts {
        LimitFacts {
            bytes: 1_000_000_000,
            seconds: 10.0,
            workers: 2,
            running_seconds: 0.3,
            cpu_seconds: 0.6,
            processors: 2,
            requests: 100,
            connections: 8,
            ..LimitFacts::default()
        }
    }

    fn waiting(what: WaitFor, seconds: f64) -> LimitFacts {
        let mut facts = idle();
        facts.waits[what as usize] = seconds;
        facts
    }

    #[track_caller]
    fn check(facts: &LimitFacts, part: Part, words: &str) {
        let limit = Limit::of(facts);
        assert_eq!(limit.part, part, "{limit:?}");
        assert!(limit.sentence.contains(words), "{}", limit.sentence);
    }

    #[test]
    fn what_is_waited_for_most_is_the_limit() {
        for (what, part) in [
            (WaitFor::Refused, Part::RequestRate),
            (WaitFor::Retry, Part::Retries),
            (WaitFor::Bandwidth, Part::BandwidthLimit),
            (WaitFor::Memory, Part::Memory),
            (WaitFor::Writes, Part::Disk),
            (WaitFor::Files, Part::Files),
            (WaitFor::Work, Part::Listing),
        ] {
            check(&waiting(what, 8.0), part, "80 % of the time; 100 MB/s of at most 125 MB/s");
        }
        let none = Limit::of(&idle());
        assert_eq!((none.part, none.ceiling_bytes_per_second), (Part::None, None));
        let startup = LimitFacts { startup_seconds: 8.0, ..idle() };
        check(&startup, Part::Startup, "longer run");
        check(&LimitFacts { listing_seconds: 6.0, ..idle() }, Part::Listing, "60 %");
        check(&LimitFacts { syncing_seconds: 6.0, ..idle() }, Part::Disk, "disk");
        check(&LimitFacts { blocked_seconds: 6.0, ..idle() }, Part::Files, "creating");
        check(&LimitFacts { reader_seconds: 6.0, ..idle() }, Part::Reader, "reader");
    }

    #[test]
    fn the_network_is_told_apart_by_where_requests_spend_their_time() {
        let mut facts = waiting(WaitFor::Requests, 9.0);
        (facts.first_byte_seconds, facts.body_seconds) = (60.0, 10.0);
        check(&facts, Part::Latency, "8 connections, and 0.60 s to the first byte");
        (facts.first_byte_seconds, facts.body_seconds) = (10.0, 60.0);
        check(&facts, Part::OriginBandwidth, "with 8 connections");
        facts.is_fixed = true;
        check(&facts, Part::OriginBandwidth, "try more --connections");
        // 16.7 MB/s each, 50 ms: 833 kB are on their way.
        facts.round_trip_seconds = Some(0.05);
        facts.receive_buffer_bytes = Some(32 << 20);
        check(&facts, Part::OriginBandwidth, "bandwidth");
        facts.receive_buffer_bytes = Some(2 << 20);
        check(&facts, Part::SocketBuffers, "socket buffers of 2 MiB for a round trip of 50 ms");
        facts.round_trip_seconds = Some(0.0001);
        check(&facts, Part::OriginBandwidth, "bandwidth");
        facts.is_memory_bound = true;
        check(&facts, Part::Memory, "raise --memory");
    }

    #[test]
    fn processors_come_first_and_their_work_is_named() {
        let mut facts = waiting(WaitFor::Requests, 9.0);
        facts.running_seconds = 9.0;
        check(&facts, Part::Cpu, "(2 workers), 90 %");
        // Both workers ran for 18 seconds, and of these they computed for 13, as the clock has it.
        (facts.user_share, facts.outside_seconds) = (0.6, 13.0);
        facts.verify_seconds = 6.0;
        check(&facts, Part::Cpu, "most of all for checksums");
        facts.tls_seconds = 7.0;
        check(&facts, Part::Cpu, "most of all for TLS");
        assert_eq!(Limit::of(&facts).work, Some("tls"));
        // The rest of the time outside passed without a processor, or in the kernel.
        facts.outside_seconds = 18.0;
        assert_eq!(Limit::of(&facts).work, None);
        (facts.outside_seconds, facts.user_share) = (13.0, 0.4);
        assert_eq!(Limit::of(&facts).work, None);
        facts.user_share = 1.0;
        // Most of the time was waited for a processor when the work was about to begin.
        (facts.outside_seconds, facts.tls_seconds, facts.verify_seconds) = (2.0, 1.8, 0.1);
        assert_eq!(Limit::of(&facts).work, Some("tls"));
        facts.running_seconds = 3.0;
        check(&facts, Part::OriginBandwidth, "bandwidth");
        assert_eq!(Limit::of(&facts).work, None);
        facts.cpu_seconds = 19.0;
        check(&facts, Part::Cpu, "95 %");
        let gunzip = LimitFacts { inflating_seconds: 8.0, ..idle() };
        check(&gunzip, Part::Cpu, "decompress");
        // They are the limit although more of the time was waited for the network, unless a reader
        // was waited for even longer.
        let mut facts = waiting(WaitFor::Requests, 8.5);
        facts.running_seconds = 7.2;
        check(&facts, Part::Cpu, "72 %");
        facts.reader_seconds = 9.0;
        check(&facts, Part::Reader, "90 %");
    }

    #[test]
    fn a_ceiling_is_of_what_was_waited_for() {
        // More than all of the time, as clocks have it, is all of it.
        let all = Limit::of(&waiting(WaitFor::Writes, 12.0));
        assert_eq!((all.share, all.ceiling_bytes_per_second), (1.0, Some(100_000_000)));
        let startup = Limit::of(&LimitFacts { startup_seconds: 8.0, ..idle() });
        assert_eq!(startup.ceiling_bytes_per_second, None, "it says nothing of more bytes");
        let nothing = Limit::of(&LimitFacts { bytes: 0, ..waiting(WaitFor::Work, 9.0) });
        assert_eq!((nothing.bytes_per_second, nothing.part), (None, Part::Listing));
    }

    #[test]
    fn a_short_round_trip_fills_any_buffer() {
        let mut facts = waiting(WaitFor::Requests, 9.0);
        (facts.first_byte_seconds, facts.body_seconds) = (10.0, 60.0);
        facts.receive_buffer_bytes = Some(8192);
        facts.round_trip_seconds = Some(0.0009);
        check(&facts, Part::OriginBandwidth, "bandwidth");
        facts.round_trip_seconds = Some(0.0011);
        check(&facts, Part::SocketBuffers, "round trip");
    }

    /// A worker that ran for 2 of 10 seconds, and was not on a processor for one more outside its
    /// ring.
    fn worker(what: WaitFor) -> WorkerMetrics {
        let mut worker = WorkerMetrics {
            loop_us: 3_000_000,
            cpu_seconds: 1.5,
            user_seconds: 0.75,
            delay_seconds: 0.5,
            answers: 4,
            ..WorkerMetrics::default()
        };
        worker.waits.note(what, 7_000_000);
        worker.stages.body_us = 9_000_000;
        worker.stages.slot_wait_us = 4_000_000;
        worker.stages.tls_us = 1_000_000;
        worker
    }

    #[test]
    fn workers_are_counted_as_one_on_average() {
        let mut facts = idle();
        facts.take_workers(&[worker(WaitFor::Requests), worker(WaitFor::Requests)]);
        assert_eq!(facts.waited(WaitFor::Requests), 7.0);
        assert_eq!((facts.running_seconds, facts.blocked_seconds), (2.0, 1.0));
        assert_eq!(facts.body_seconds, 10.0, "without the time that slots were waited for");
        assert_eq!((facts.requests, facts.workers), (8, 2));
        assert_eq!((facts.user_share, facts.outside_seconds), (0.5, 6.0));
        assert_eq!(facts.tls_seconds, 2.0);
        // One that others left nothing to do does not count: here for three of ten seconds.
        facts.take_workers(&[worker(WaitFor::Requests), worker(WaitFor::Nothing)]);
        let waited = facts.waited(WaitFor::Requests);
        assert!((waited - 7.0 / 1.3).abs() < 1e-9, "{waited}");
    }

    #[test]
    fn of_a_stream_its_feeders_say_what_was_waited_for() {
        let mut facts = idle();
        facts.take_workers(&[worker(WaitFor::Requests)]);
        let feed = |us| {
            let mut feed = FeedCount { requests: 3, ..FeedCount::default() };
            feed.waits.note(WaitFor::Retry, us);
            let (reader_kept_us, inflating_us) = (us, us / 2);
            feed.epochs.push(EpochCount { reader_kept_us, inflating_us, ..EpochCount::default() });
            feed
        };
        let feeds = [feed(2_000_000), feed(4_000_000)];
        facts.take_feeds(feeds.iter());
        assert_eq!(facts.waited(WaitFor::Requests), 0.0, "the feeders had not asked");
        assert_eq!(facts.waited(WaitFor::Retry), 3.0, "each of the channels on average");
        assert_eq!((facts.reader_seconds, facts.inflating_seconds), (3.0, 1.5));
        assert_eq!(facts.requests, 4);
    }
}
