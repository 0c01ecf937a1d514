//! Tests of the verdict: each test sets counters, usually one wait at a time.

use super::*;
use crate::engine::metrics::EpochCount;
use crate::sys::usage::ProcessorTime;

/// A run of ten seconds with a worker that does almost nothing.
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
fn the_network_parts_differ_by_where_requests_spend_their_time() {
    let mut facts = waiting(WaitFor::Requests, 9.0);
    (facts.first_byte_seconds, facts.body_seconds) = (60.0, 10.0);
    check(&facts, Part::Latency, "8 connections, and 0.60 s to the first byte");
    (facts.first_byte_seconds, facts.body_seconds) = (10.0, 60.0);
    check(&facts, Part::OriginBandwidth, "with 8 connections");
    facts.is_fixed = true;
    check(&facts, Part::OriginBandwidth, "try more --connections");
    // 16.7 MB/s each at 50 ms: 833 kB are in flight.
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

/// Adds TCP memory pressure that slowed connections for `affected_seconds`.
fn under_pressure(mut facts: LimitFacts, affected_seconds: f64) -> LimitFacts {
    facts.tcp_memory = Some(TcpMemoryUse {
        peak_bytes: 1950 << 20,
        pressure_bytes: Some(1500 << 20),
        pressure_seconds: 1.0,
        affected_seconds,
        dropped: Some(2391),
        ..TcpMemoryUse::default()
    });
    facts
}

#[test]
fn tcp_memory_of_the_machine_is_the_limit_where_the_kernel_drops_packets() {
    let mut facts = under_pressure(waiting(WaitFor::Requests, 9.0), 10.0);
    (facts.first_byte_seconds, facts.body_seconds) = (10.0, 60.0);
    let sentence = "the limit: the machine's TCP memory, 1.90 GiB of socket buffers, above the \
                pressure mark of 1.46 GiB (net.ipv4.tcp_mem): the kernel drops received data of \
                every program (2,391 packets in this run), 90 % of the time; 100 MB/s of at most \
                111 MB/s; lower --max-connections, raise net.ipv4.tcp_mem, or see who holds it \
                (ss -tm)";
    check(&facts, Part::TcpMemory, sentence);
    facts.is_fixed = true;
    check(&facts, Part::TcpMemory, "lower --connections,");
    let limit = Limit::of(&facts);
    assert_eq!(limit.shares.get(&Part::OriginBandwidth), None, "{limit:?}");
    assert!(limit.to_json().contains(r#""part":"tcp_memory""#), "{}", limit.to_json());
    // Attempts stall and are retried because their packets were dropped.
    let retries = under_pressure(waiting(WaitFor::Retry, 8.0), 10.0);
    check(&retries, Part::TcpMemory, "80 % of the time");
    // A container sees drops and no mark.
    facts.tcp_memory.as_mut().expect("seen").pressure_bytes = None;
    check(&facts, Part::TcpMemory, "1.90 GiB of socket buffers: the kernel drops");
}

#[test]
fn a_short_pressure_is_not_the_limit_of_a_long_run() {
    let mut facts = under_pressure(waiting(WaitFor::Requests, 9.0), 2.0);
    (facts.first_byte_seconds, facts.body_seconds) = (10.0, 60.0);
    check(&facts, Part::OriginBandwidth, "72 % of the time");
    assert_eq!(Limit::of(&facts).shares[&Part::TcpMemory], 0.18);
    // If nobody waited for the network, the drops cost nothing.
    let reader = LimitFacts { reader_seconds: 9.0, ..idle() };
    check(&under_pressure(reader, 10.0), Part::Reader, "90 %");
    check(&under_pressure(waiting(WaitFor::Writes, 8.0), 10.0), Part::Disk, "80 %");
}

#[test]
fn advice_fits_objects_ranges_and_options() {
    let advice = |facts: &LimitFacts| {
        let sentence = Limit::of(facts).sentence;
        sentence.rsplit_once("; ").map(|(_, advice)| advice.to_owned()).unwrap_or(sentence)
    };
    // 100 requests of 8 MiB.
    let mut facts = LimitFacts { part_bytes: 8 << 20, ..waiting(WaitFor::Requests, 9.0) };
    (facts.first_byte_seconds, facts.body_seconds) = (60.0, 10.0);
    assert_eq!(advice(&facts), "measure a longer run, or use a larger --part-size");
    facts.is_fixed = true;
    facts.bytes = 100 * 20_000;
    assert_eq!(advice(&facts), "use more --connections, or use larger objects");
    let refused = LimitFacts { part_bytes: 8 << 20, bytes: 1, ..waiting(WaitFor::Refused, 9.0) };
    assert_eq!(advice(&refused), "use larger objects, or fewer clients");
    // Four objects of 32 MiB are 16 ranges.
    (facts.bytes, facts.requests, facts.connections) = (128 << 20, 16, 16);
    (facts.first_byte_seconds, facts.body_seconds) = (10.0, 60.0);
    assert_eq!(advice(&facts), "use a smaller --part-size: there were only 16 requests");
    facts.connections = 8;
    assert_eq!(advice(&facts), "try more --connections");
    (facts.bytes, facts.connections) = (16 * 20_000, 16);
    assert_eq!(advice(&facts), "try more --connections", "no range can be smaller");
}

#[test]
fn processors_come_first_and_their_work_is_named() {
    let mut facts = waiting(WaitFor::Requests, 9.0);
    facts.running_seconds = 9.0;
    check(&facts, Part::Cpu, "(2 workers), 90 %");
    // Both workers ran for 18 seconds, and computed for 13 of these by the clock.
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
    // Most of the time passed waiting for a processor before the work began.
    (facts.outside_seconds, facts.tls_seconds, facts.verify_seconds) = (2.0, 1.8, 0.1);
    assert_eq!(Limit::of(&facts).work, Some("tls"));
    facts.running_seconds = 3.0;
    check(&facts, Part::OriginBandwidth, "bandwidth");
    assert_eq!(Limit::of(&facts).work, None);
    facts.cpu_seconds = 19.0;
    check(&facts, Part::Cpu, "95 %");
    let gunzip = LimitFacts { inflating_seconds: 8.0, ..idle() };
    check(&gunzip, Part::Cpu, "decompress");
    // They are the limit although the network was waited for longer, unless a reader was waited for
    // even longer.
    let mut facts = waiting(WaitFor::Requests, 8.5);
    facts.running_seconds = 7.2;
    check(&facts, Part::Cpu, "72 %");
    facts.reader_seconds = 9.0;
    check(&facts, Part::Reader, "90 %");
}

#[test]
fn a_ceiling_is_of_what_was_waited_for() {
    // A share above one, which clocks can give, becomes one.
    let all = Limit::of(&waiting(WaitFor::Writes, 12.0));
    assert_eq!((all.share, all.ceiling_bytes_per_second), (1.0, Some(100_000_000)));
    let startup = Limit::of(&LimitFacts { startup_seconds: 8.0, ..idle() });
    assert_eq!(startup.ceiling_bytes_per_second, None, "it says nothing of more bytes");
    let nothing = Limit::of(&LimitFacts { bytes: 0, ..waiting(WaitFor::Work, 9.0) });
    assert_eq!((nothing.bytes_per_second, nothing.part), (None, Part::Listing));
}

#[test]
fn no_ceiling_is_above_the_users_bound() {
    let ceiling = |facts: &LimitFacts| Limit::of(facts).ceiling_bytes_per_second;
    let mut facts = waiting(WaitFor::Bandwidth, 5.0);
    assert_eq!(ceiling(&facts), Some(200_000_000), "it is not known");
    facts.bandwidth_limit = Some(105_000_000);
    check(&facts, Part::BandwidthLimit, "100 MB/s of at most 105 MB/s");
    facts.bandwidth_limit = Some(99_000_000);
    assert_eq!(ceiling(&facts), Some(100_000_000), "it was a little faster");
    let mut facts = waiting(WaitFor::Writes, 5.0);
    facts.bandwidth_limit = Some(150_000_000);
    assert_eq!(ceiling(&facts), Some(150_000_000));
    facts.bandwidth_limit = Some(250_000_000);
    assert_eq!(ceiling(&facts), Some(200_000_000));
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

/// A worker that ran for 2 of 10 seconds, and was blocked for one more outside its ring.
fn worker(what: WaitFor) -> WorkerMetrics {
    let mut worker = WorkerMetrics {
        loop_us: 3_000_000,
        processor: ProcessorTime { cpu_seconds: 1.5, user_seconds: 0.75, delay_seconds: 0.5 },
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
    // Time without work does not count: here three of ten seconds.
    facts.take_workers(&[worker(WaitFor::Requests), worker(WaitFor::Nothing)]);
    let waited = facts.waited(WaitFor::Requests);
    assert!((waited - 7.0 / 1.3).abs() < 1e-9, "{waited}");
}

#[test]
fn of_a_stream_its_feeders_say_what_was_waited_for() {
    let mut facts = idle();
    facts.take_workers(&[worker(WaitFor::Requests)]);
    let feed = |us| {
        let mut feed = FeedCount::default();
        feed.sent.requests = 3;
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
    // Between two epochs the next reader is waited for.
    let epoch = |opened_us| EpochCount { opened_us, elapsed_us: 500, ..EpochCount::default() };
    let epochs = [1_000_000, 4_000_500, 4_001_000].map(epoch).to_vec();
    let mut facts = idle();
    facts.take_feeds([FeedCount { epochs, ..FeedCount::default() }].iter());
    assert_eq!(facts.reader_seconds, 3.0, "the first came before the run was counted");
}

#[test]
fn who_keeps_to_a_bound_is_bounded_by_it_on_a_busy_machine_too() {
    // Runnable without a processor at most wake-ups, but what came late was caught up.
    let busy = LimitFacts { running_seconds: 7.5, bandwidth_limit: Some(104_000_000), ..idle() };
    let mut facts = busy.clone();
    facts.waits[WaitFor::Bandwidth as usize] = 9.9;
    check(&facts, Part::BandwidthLimit, "104 MB/s, 99 % of the time");
    // Far below it the processors are the limit.
    facts.bandwidth_limit = Some(150_000_000);
    check(&facts, Part::Cpu, "75 %");
    check(&busy, Part::Cpu, "75 %");
}

/// Ten seconds of two workers that counted `waits`, for a program that waited `waited_seconds`.
fn asked(waits: &[(WaitFor, f64)], waited_seconds: f64) -> LimitFacts {
    let mut facts = idle();
    for (what, seconds) in waits {
        facts.waits[*what as usize] = *seconds;
    }
    (facts.first_byte_seconds, facts.body_seconds) = (60.0, 10.0);
    facts.outside_seconds = 0.6;
    facts.take_asker(Asker::Mount, waited_seconds);
    facts
}

#[test]
fn who_asks_for_little_is_the_limit() {
    let idle = asked(&[(WaitFor::Work, 9.0), (WaitFor::Requests, 0.7)], 0.9);
    check(&idle, Part::Reader, "the programs that read: they waited for no read, 91 % of the time");
    let library = LimitFacts { asker: Asker::Library, ..idle };
    check(&library, Part::Reader, "the program: it waited for no read, 91 %");
    // Nobody waits for what is read ahead of a slow program.
    let ahead = asked(&[(WaitFor::Work, 1.0), (WaitFor::Requests, 8.7)], 1.0);
    check(&ahead, Part::Reader, "90 % of the time");
}

#[test]
fn who_waits_for_one_read_after_the_other_waits_for_it_all_the_time() {
    // Each of two workers had every second read.
    let waits = [(WaitFor::Work, 4.8), (WaitFor::Requests, 1.2), (WaitFor::MoreWork, 3.6)];
    let facts = asked(&waits, 9.9);
    check(&facts, Part::Latency, "8 connections, and 0.60 s to the first byte of each request");
    let limit = Limit::of(&facts);
    assert!(limit.share > 0.9 && limit.share <= 1.0, "{limit:?}");
    assert!(limit.sentence.ends_with("; read more at once, or use larger reads"));
    assert_eq!(limit.shares.get(&Part::Listing), None, "{limit:?}");
    let library = LimitFacts { bandwidth_limit: Some(5), ..waiting(WaitFor::Bandwidth, 9.0) };
    let library = LimitFacts { asker: Asker::Library, ..library };
    check(&library, Part::BandwidthLimit, "the limit: bandwidth_limit, 5 B/s");
}
