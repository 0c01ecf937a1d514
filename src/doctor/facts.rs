//! What is known of a machine, a destination and a service. `None`: it could not be read.

use crate::sys::choice::RingChoice;
use crate::sys::tcp_memory::TcpMemory;

/// Everything that is judged.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Kernel, limits, memory, cores.
    pub machine: Machine,
    /// The way to the network.
    pub network: Network,
    /// The destination, where one was named.
    pub disk: Option<Disk>,
    /// The service, where a source was named.
    pub service: Option<Service>,
}

/// Kernel, limits, memory, cores.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Release of the kernel, as uname(2) says it.
    pub release: Option<String>,
    /// What came of making a ring.
    pub ring: Option<RingTried>,
    /// Which kind `--ring` asks for, or else INRUSH_RING; or that it names none.
    pub ring_choice: Option<Result<RingChoice, Trouble>>,
    /// Value of kernel.io_uring_disabled.
    pub io_uring_disabled: Option<u64>,
    /// Mode of seccomp(2): 0 without, 2 with a filter.
    pub seccomp: Option<u64>,
    /// Bits of the capabilities in force.
    pub capabilities: Option<u64>,
    /// RLIMIT_MEMLOCK in bytes; `u64::MAX` without a limit.
    pub locked_bytes: Option<u64>,
    /// RLIMIT_NOFILE, the hard one: a run raises the soft one to it.
    pub open_files: Option<u64>,
    /// RLIMIT_AS in bytes; `u64::MAX` without a limit.
    pub address_bytes: Option<u64>,
    /// RLIMIT_FSIZE in bytes; `u64::MAX` without a limit.
    pub file_bytes: Option<u64>,
    /// fs.pipe-max-size in bytes.
    pub pipe_bytes_max: Option<u64>,
    /// fs.pipe-user-pages-soft; 0 without a limit.
    pub pipe_pages_soft: Option<u64>,
    /// The mode of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// MemTotal in bytes.
    pub memory_bytes: Option<u64>,
    /// MemAvailable in bytes.
    pub available_bytes: Option<u64>,
    /// The least memory limit of the control groups, in bytes.
    pub cgroup_bytes: Option<u64>,
    /// CPU quota of the control groups, in cores.
    pub quota_cores: Option<f64>,
    /// Cores that this process may run on.
    pub allowed: Option<Vec<u32>>,
    /// Cores that are online.
    pub online: Option<Vec<u32>>,
    /// The cores of each NUMA node.
    pub nodes: Vec<(u32, Vec<u32>)>,
}

/// What came of making a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RingTried {
    /// io_uring, set up so.
    Made(String),
    /// None, with why and what to do.
    Refused {
        /// Why.
        cause: String,
        /// What to do.
        advice: String,
    },
}

/// The way to the network.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// The interfaces that were named; else that of the default route.
    pub interfaces: Vec<Interface>,
    /// They were named.
    pub are_named: bool,
    /// net.core.rmem_max in bytes.
    pub rmem_max: Option<u64>,
    /// The largest of net.ipv4.tcp_rmem in bytes.
    pub tcp_rmem_max: Option<u64>,
    /// The memory of all TCP sockets, and the bytes of a page, in which net.ipv4.tcp_mem counts.
    pub tcp_memory: Option<(TcpMemory, u64)>,
    /// net.ipv4.tcp_congestion_control.
    pub congestion_control: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// There is none of this name.
    pub is_missing: bool,
    /// operstate: `up`, `down`, `unknown`.
    pub state: Option<String>,
    /// Speed in Mb/s, where the driver says it.
    pub speed_mbit: Option<u64>,
    /// `full` or `half`.
    pub duplex: Option<String>,
    /// MTU in bytes.
    pub mtu_bytes: Option<u64>,
    /// Receive queues.
    pub receive_queues: usize,
    /// Its interrupts, and the cores that handle each.
    pub interrupts: Vec<(u32, Vec<u32>)>,
    /// Its NUMA node.
    pub node: Option<u32>,
}

/// The destination.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// As it was typed.
    pub path: String,
    /// The type of its file system.
    pub file_system: Option<String>,
    /// What stands where a folder or the file is needed, as a run refuses it.
    pub in_the_way: Option<Trouble>,
    /// Whether a file can be made there; why not.
    pub writable: Option<Result<(), String>>,
    /// Whether a write past the page cache went well; why not.
    pub direct: Option<Result<(), String>>,
    /// Alignment of such writes in bytes, as statx(2) says it; 0 where there are none.
    pub direct_alignment: Option<u32>,
    /// Bytes that may be written.
    pub free_bytes: Option<u64>,
    /// Bytes of the file system.
    pub total_bytes: Option<u64>,
    /// Free and all inodes; file systems without a fixed number say 0 of 0.
    pub inodes: Option<(u64, u64)>,
    /// Bytes that the source has, where it is one object.
    pub needed_bytes: Option<u64>,
    /// The device below.
    pub device: Option<Block>,
}

/// A block device.
#[derive(Debug, Clone, Default)]
pub struct Block {
    /// Its name.
    pub name: String,
    /// The scheduler in force.
    pub scheduler: Option<String>,
    /// A disk that turns.
    pub rotational: Option<bool>,
    /// Level of its RAID (`raid0`).
    pub raid: Option<String>,
    /// Devices that a RAID has.
    pub raid_disks: Option<u64>,
    /// Devices that are missing in it.
    pub degraded: Option<u64>,
}

/// Why something failed, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What failed, and why.
    pub why: String,
    /// What to do.
    pub advice: Option<String>,
}

/// The service that has the source, or that was named alone. A `None` was not reached: what comes
/// before it failed.
#[derive(Debug, Clone, Default)]
pub struct Service {
    /// Where credentials are from and how many seconds they last; `None` inside: requests are not
    /// signed.
    pub credentials: Option<Result<Option<Keys>, Trouble>>,
    /// The access grant for the source, `None` inside where the credentials are used without one,
    /// or why there is none. Only with access grants.
    pub access_grant: Option<Result<Option<Grant>, Trouble>>,
    /// The bucket.
    pub bucket: String,
    /// The host, as it is addressed.
    pub host: String,
    /// What leads to it, where something does, and what to look at when that does not.
    pub proxy: Option<Proxy>,
    /// Its addresses, those of the proxy where there is one, or why there are none.
    pub addresses: Option<Result<Vec<String>, Trouble>>,
    /// Whether it answered over one of them.
    pub answered: Option<Result<(), Trouble>>,
    /// It is asked over TLS.
    pub is_tls: bool,
    /// Any certificate is accepted (`--no-verify-ssl`).
    pub trusts_anyone: bool,
    /// Whether its certificate is trusted.
    pub trusted: Option<Result<(), Trouble>>,
    /// By how many seconds the server's Date is ahead of this machine's clock.
    pub server_ahead_seconds: Option<i64>,
    /// The region that was configured.
    pub region: String,
    /// The region that the bucket is in.
    pub bucket_region: Option<String>,
    /// The source is a multi-region access point.
    pub is_multi_region: bool,
    /// What was asked for, and what came of it.
    pub object: Option<(String, Result<u64, Trouble>)>,
    /// The server that a redirect of the request for it has led to.
    pub led_to: Option<String>,
}

/// A proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Where it is.
    pub place: String,
    /// What to look at when it does not lead on.
    pub advice: String,
}

/// An access grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What its keys are for.
    pub scope: String,
    /// The account that gives it.
    pub account: String,
    /// How many seconds its keys last.
    pub left_seconds: i64,
}

/// Credentials, without what is secret of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// Where they are from, in words.
    pub from: String,
    /// Seconds until they end; below 0 they have.
    pub left_seconds: Option<i64>,
    /// Their source gives newer ones before they end.
    pub renews: bool,
}
