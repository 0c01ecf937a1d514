//! What limits inrush on a host of many cores and fast networks: the real scheduler, the real pace
//! and the real policies (ranges, slots, bounds) in virtual time, on a host of arithmetic.
//!
//! What is simulated: each network interface's capacity, each connection's rate and latency, each
//! worker's processor time, its slots, the lock of the hand-out, the way between NUMA nodes, and
//! the disks. What is not: the listing (there is always work), the kernel's own limits, and memory
//! bandwidth.

mod machine;
mod network;

pub use machine::{Machine, simulate};

/// A host, and what the work on it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// Processors; one worker each.
    pub processors: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// NUMA nodes; each has its even share of the processors and of the interfaces.
    pub nodes: usize,
    /// Network interfaces.
    pub interfaces: usize,
    /// What one of them carries, in bytes a second.
    pub interface_rate: f64,
    /// Disks.
    pub disks: usize,
    /// Bytes a second that one of them takes; `None`: bytes are dropped.
    pub disk_rate: Option<f64>,
}

/// Parameters that hosts have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// From a request to the first byte, in microseconds; up to a quarter more.
    pub latency_us: u64,
    /// Of one connection, in bytes a second; each answer's own is up to a quarter more or less.
    pub connection_rate: f64,
    /// Processor time for one byte, in nanoseconds: measured against `inrush-origin` on loopback.
    pub byte_ns: f64,
    /// Processor time for one request, in microseconds: measured the same way.
    pub request_us: f64,
    /// Time of the hand-out's lock for one call, in microseconds: an assumption, a line of the
    /// cache that goes from one socket's core to another's a few times.
    pub lock_us: f64,
    /// How much more processor time a byte takes that came over an interface of another node: an
    /// assumption.
    pub remote_factor: f64,
    /// Bytes a second between the nodes, in both directions together: an assumption.
    pub interconnect_rate: f64,
}

/// Over which interfaces the workers connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Over that of the best route, as without `--interface`.
    Route,
    /// Over all, as with `--interface`, but wherever the worker runs.
    Anywhere,
    /// Over all, and on the node of the interface: as with `--interface`.
    Near,
}

/// The work, and what the user asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// Bytes of each object.
    pub object_bytes: u64,
    /// Connections at most, where it is not the default.
    pub connections_max: Option<usize>,
    /// Bytes of one range, where it is not the default.
    pub part_bytes: Option<u64>,
    /// Over which interfaces, and where.
    pub placement: Placement,
    /// Objects are spread over all disks, as with `--spread-to`; else the first one takes them.
    pub spread: bool,
    /// Over TLS: there is memory for ciphertext.
    pub tls: bool,
    /// Virtual time, in microseconds; the last half is measured.
    pub time_us: u64,
    /// Of the jitter.
    pub seed: u64,
}

/// What came of it, in the last half of the time.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// Bytes a second.
    pub goodput: f64,
    /// Share of the line rate.
    pub of_line_rate: f64,
    /// Requests in flight that the pace chose at the end.
    pub connections: u32,
    /// The most that it might have.
    pub connections_max: u32,
    /// When the goodput first reached nine tenths of what it is in the end, in microseconds.
    pub settled_us: u64,
    /// Share of the processors' time that was used.
    pub processors: f64,
    /// Share of the busiest worker's time that was used.
    pub busiest: f64,
    /// Share of the time that the hand-out's lock was held.
    pub lock: f64,
    /// Share of the line rate of the interfaces that are used.
    pub of_used_interfaces: f64,
    /// Share of the bytes that went from one node to another.
    pub remote: f64,
    /// Share of what can go between the nodes.
    pub interconnect: f64,
    /// Share of the rate of the disks that are used.
    pub of_used_disks: f64,
    /// Share of the disks' rate, of all of them.
    pub disk: f64,
    /// Share of the connections with bytes that waited for a slot.
    pub waited_for_slots: f64,
    /// Objects that came completely, and whether each had its every byte exactly once.
    pub objects: u64,
    /// Memory of the slots, in bytes.
    pub memory_bytes: u64,
    /// What limits it first.
    pub limit: &'static str,
}
