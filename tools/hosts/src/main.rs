//! Prints what limits inrush on three hosts: 16 processors at 100 Gb/s, 64 at 400, and 192 at 3,200
//! on eight interfaces and two NUMA nodes.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use clap::{Parser, ValueEnum};
use inrush_hosts::{Costs, Course, Host, Placement, simulate};

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
    /// Write to disks of this rate each, in gigabytes a second
    #[arg(long)]
    disk_rate: Option<f64>,
    /// Disks
    #[arg(long, default_value_t = 1)]
    disks: usize,
    /// Spread the objects over all disks, as `--spread-to` of inrush; else the first takes them
    #[arg(long)]
    spread: bool,
    /// Over which interfaces the workers connect, and on which NUMA nodes they run
    #[arg(long, value_enum, default_value_t = Over::Near)]
    placement: Over,
    /// How much more processor time a byte from another NUMA node takes, an assumption
    #[arg(long, default_value_t = 1.5)]
    remote_factor: f64,
    /// Gigabytes a second between the NUMA nodes, an assumption
    #[arg(long, default_value_t = 150.0)]
    interconnect_rate: f64,
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

/// [`Placement`] in words for the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Over {
    /// All over the interface of the best route, as without `--interface` of inrush
    Route,
    /// Over all interfaces, on any node
    Anywhere,
    /// Over all interfaces, on the node of the interface, as with `--interface` of inrush
    Near,
}

/// Processors, GiB of memory, NUMA nodes, interfaces, and gigabits a second of each of those.
const HOSTS: [(usize, u64, usize, usize, f64); 3] =
    [(16, 64, 1, 1, 100.0), (64, 512, 1, 1, 400.0), (192, 2048, 2, 8, 400.0)];

fn main() {
    let options = Options::parse();
    let usual = if options.tls { 0.30 } else { 0.13 };
    let costs = Costs {
        latency_us: options.latency_ms * 1000,
        connection_rate: options.connection_rate * 1e6,
        byte_ns: options.cpu_per_gigabyte.unwrap_or(usual),
        request_us: options.cpu_per_request,
        lock_us: options.lock,
        remote_factor: options.remote_factor,
        interconnect_rate: options.interconnect_rate * 1e9,
    };
    let course = Course {
        object_bytes: options.object_bytes,
        connections_max: options.max_connections,
        part_bytes: options.part_size,
        placement: match options.placement {
            Over::Route => Placement::Route,
            Over::Anywhere => Placement::Anywhere,
            Over::Near => Placement::Near,
        },
        spread: options.spread,
        tls: options.tls,
        time_us: options.seconds * 1_000_000,
        seed: options.seed,
    };
    println!(
        "| host | reaches | of the line | connections (bound) | after | CPU | lock | \
         waits for slots | other node | disk | memory | limit |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for (processors, gibibytes, nodes, interfaces, gigabits) in HOSTS {
        let host = Host {
            processors,
            memory_bytes: gibibytes << 30,
            nodes,
            interfaces,
            interface_rate: gigabits / 8.0 * 1e9,
            disks: options.disks.max(1),
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
             | {:.1} s | {:.0} % | {:.1} % | {:.0} % | {:.0} % | {:.0} % | {} MiB | {} |",
            found.goodput / 1e9,
            found.of_line_rate * 100.0,
            found.connections,
            found.connections_max,
            std::time::Duration::from_micros(found.settled_us).as_secs_f64(),
            found.processors * 100.0,
            found.lock * 100.0,
            found.waited_for_slots * 100.0,
            found.remote * 100.0,
            found.disk * 100.0,
            found.memory_bytes >> 20,
            found.limit,
        );
    }
}
