//! Prints what limits inrush on three hosts: 16 processors at 100 Gb/s, 64 at 400, and 192 at 3,200
//! on eight interfaces.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use clap::Parser;
use inrush_hosts::{Costs, Course, Host, simulate};

/// Simulates inrush on large hosts, in virtual time: the real scheduler, pace and policies on a
/// host of arithmetic. Prints what each reaches of its line rate and what limits it first.
#[derive(Debug, Parser)]
#[command(name = "inrush-hosts", version)]
struct Options {
    /// Milliseconds from a request to the first byte
    #[arg(long, default_value_t = 30)]
    latency_ms: u64,
    /// Megabytes a second of one connection
    #[arg(long, default_value_t = 90.0)]
    connection_rate: f64,
    /// CPU-seconds for a gigabyte; 0.13 as measured, over TLS 0.30
    #[arg(long)]
    cpu_per_gigabyte: Option<f64>,
    /// CPU-microseconds for a request, as measured
    #[arg(long, default_value_t = 40.0)]
    cpu_per_request: f64,
    /// Microseconds of the hand-out's lock for each call, an assumption
    #[arg(long, default_value_t = 1.5)]
    lock: f64,
    /// Fetch over TLS
    #[arg(long)]
    tls: bool,
    /// Write to disks of so many gigabytes a second
    #[arg(long)]
    disk_rate: Option<f64>,
    /// Bytes of each object
    #[arg(long, default_value_t = 1 << 30)]
    object_bytes: u64,
    /// Connections at most, as `--max-connections` of inrush
    #[arg(long)]
    max_connections: Option<usize>,
    /// Bytes of one range, as `--part-size` of inrush
    #[arg(long)]
    part_size: Option<u64>,
    /// Virtual seconds; the last half is measured
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Seed of the jitter
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const HOSTS: [(usize, u64, usize, f64); 3] =
    [(16, 64, 1, 100.0), (64, 512, 1, 400.0), (192, 2048, 8, 400.0)];

fn main() {
    let options = Options::parse();
    let usual = if options.tls { 0.30 } else { 0.13 };
    let costs = Costs {
        latency_us: options.latency_ms * 1000,
        connection_rate: options.connection_rate * 1e6,
        byte_ns: options.cpu_per_gigabyte.unwrap_or(usual),
        request_us: options.cpu_per_request,
        lock_us: options.lock,
    };
    let course = Course {
        object_bytes: options.object_bytes,
        connections_max: options.max_connections,
        part_bytes: options.part_size,
        tls: options.tls,
        time_us: options.seconds * 1_000_000,
        seed: options.seed,
    };
    println!(
        "| host | reaches | of the line | connections (bound) | after | CPU | lock | \
         waits for slots | disk | memory | limit |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for (processors, gibibytes, interfaces, gigabits) in HOSTS {
        let host = Host {
            processors,
            memory_bytes: gibibytes << 30,
            interfaces,
            interface_rate: gigabits / 8.0 * 1e9,
            disk_rate: options.disk_rate.map(|rate| rate * 1e9),
        };
        let found = match simulate(host, costs, course) {
            Ok(found) => found,
            Err(error) => {
                // What is too much for a small host may be right for a large one.
                println!("| {processors} cores | {error} |");
                continue;
            }
        };
        println!(
            "| {processors} cores, {interfaces} x {gigabits} Gb/s | {:.1} GB/s | {:.0} % | {} ({}) \
             | {:.1} s | {:.0} % | {:.1} % | {:.0} % | {:.0} % | {} MiB | {} |",
            found.goodput / 1e9,
            found.of_line_rate * 100.0,
            found.connections,
            found.connections_max,
            std::time::Duration::from_micros(found.settled_us).as_secs_f64(),
            found.processors * 100.0,
            found.lock * 100.0,
            found.waited_for_slots * 100.0,
            found.disk * 100.0,
            found.memory_bytes >> 20,
            found.limit,
        );
    }
}
