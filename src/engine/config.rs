//! Resources of a run: workers, connections, slots. Resolved once, then immutable.
//!
//! Pure except for [`HostFacts::read`]; [`crate::limits`] has the bounds.

use std::num::NonZeroUsize;

use crate::engine::lease::{leases_alone_of, leases_of};
use crate::engine::pace::Bounds;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file_download::Cut;
use crate::limits::{
    CONNECTIONS_DEFAULT_MAX, CONNECTIONS_DEFAULT_PER_WORKER, CONNECTIONS_LEAST, CONNECTIONS_MAX,
    CONNECTIONS_PER_WORKER_MAX, CONNECTIONS_PER_WORKER_START, CONNECTIONS_START_MAX,
    CONTROL_MEMORY_SHARE, CONTROL_SLOT_BYTES, DESCRIPTORS_OTHER, DESCRIPTORS_PER_WORKER,
    MEMORY_BYTES_MIN, MEMORY_CGROUP_SHARE, PART_BYTES_DEFAULT, PART_BYTES_MAX, PART_BYTES_MIN,
    SLOT_BYTES_MAX, SLOT_BYTES_MIN, SLOT_BYTES_SMALL, SLOTS_PER_CONNECTION, SLOTS_PER_WORKER_MIN,
    TLS_CONNECTIONS_PER_WORKER, TLS_MEMORY_SHARE, TLS_SLOT_BYTES, TLS_SLOT_BYTES_MIN, WORKERS_MAX,
    fits_whole, memory_bytes_default,
};
use crate::plan::ranges::PartSize;
use crate::sys::choice::RingChoice;

/// The user's options; `None` if not given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceOptions {
    /// Worker threads.
    pub workers: Option<usize>,
    /// Exact number of connections of the whole run.
    pub connections: Option<usize>,
    /// Most connections of the whole run.
    pub max_connections: Option<usize>,
    /// Bytes of one range GET.
    pub part_size_bytes: Option<u64>,
    /// Bytes of slot memory.
    pub memory_bytes: Option<u64>,
    /// Requested ring.
    pub ring: RingChoice,
}

/// Resources of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFacts {
    /// Processors by cpuset and cgroup quota.
    pub processors: usize,
    /// Memory in bytes: the smaller of the cgroup's limit and the machine's size.
    pub memory_bytes: u64,
    /// Most open descriptors.
    pub descriptors: u64,
}

impl HostFacts {
    /// Reads them from the kernel; assumes the minimum for what it does not report.
    #[must_use]
    pub fn read() -> Self {
        // available_parallelism reads the affinity mask and the cgroup's quota (v1 and v2).
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        let limits = limits.into_iter().map(String::from).chain(own_cgroup_limits());
        let cgroup = limits.filter_map(|path| read_number(&path)).min();
        let total = std::fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| parse_meminfo(&text))
            .unwrap_or(MEMORY_BYTES_MIN * MEMORY_CGROUP_SHARE);
        Self {
            processors,
            memory_bytes: cgroup.unwrap_or(total).min(total),
            descriptors: crate::sys::usage::descriptors_max(),
        }
    }
}

/// Files with the memory limits of this process's own cgroup and its parents (cgroups(7)).
fn own_cgroup_limits() -> Vec<String> {
    cgroup_limits(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// The files for a text of `/proc/self/cgroup`: of version 2, and of version 1 if it has the memory
/// controller.
fn cgroup_limits(text: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next(), fields.next(), fields.next());
        let (folder, file) = match (number, controllers) {
            (Some("0"), Some("")) => ("", "memory.max"),
            (_, Some(names)) if names.split(',').any(|name| name == "memory") => {
                ("/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.unwrap_or_default().trim_end_matches('/');
        while !path.is_empty() {
            files.push(format!("/sys/fs/cgroup{folder}{path}/{file}"));
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    files
}

/// The number in a file; `None` for `max` and unreadable files.
fn read_number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The resources of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Worker threads.
    pub workers: usize,
    /// Bounds on the requests in flight; each has a connection.
    pub pace: Bounds,
    /// Length of a data slot in bytes.
    pub slot_length_bytes: u32,
    /// Data slots of the whole run.
    pub slots: usize,
    /// Length of a range.
    pub part: PartSize,
    /// Length of a connection's ciphertext buffer; 0 without TLS.
    pub cipher_length_bytes: u32,
    /// Only leases use data slots.
    pub leases_alone: bool,
    /// Slot memory in bytes, including control slots and ciphertext buffers.
    pub memory_bytes: u64,
    /// More memory would allow more connections.
    is_memory_scarce: bool,
    /// Requested ring.
    pub ring: RingChoice,
}

impl Config {
    /// Resolves options with the facts.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if an option is out of bounds or does not fit the memory.
    pub fn resolve(options: ResourceOptions, facts: HostFacts) -> Result<Self> {
        let part_size = options.part_size_bytes.unwrap_or(PART_BYTES_DEFAULT);
        check("--part-size", part_size, PART_BYTES_MIN, PART_BYTES_MAX)?;
        let part_size = part_size.next_multiple_of(u64::from(SLOT_BYTES_MAX));
        let part = PartSize::new(part_size).expect("a multiple of the slot's length");
        let workers = options.workers.unwrap_or(facts.processors.min(WORKERS_MAX));
        check("--workers", workers as u64, 1, WORKERS_MAX as u64)?;
        let memory = options.memory_bytes.unwrap_or_else(|| {
            let asked = options.connections.or(options.max_connections).unwrap_or(0);
            let most = memory_bytes_default(workers)
                .max(asked.min(CONNECTIONS_MAX) as u64 * CONNECTION_MEMORY_BYTES);
            (facts.memory_bytes / MEMORY_CGROUP_SHARE).clamp(MEMORY_BYTES_MIN, most)
        });
        check("--memory", memory, MEMORY_BYTES_MIN, u64::MAX)?;
        let pace = bounds(options, facts, workers, memory)?;
        let mut config = Self {
            workers,
            pace,
            slot_length_bytes: SLOT_BYTES_MAX,
            slots: 0,
            part,
            cipher_length_bytes: 0,
            leases_alone: false,
            memory_bytes: memory,
            is_memory_scarce: pace.is_adaptive()
                && u64::from(pace.most) == memory / CONNECTION_MEMORY_BYTES,
            ring: options.ring,
        };
        config.fit(memory);
        Ok(config)
    }

    /// Most connections of the whole run; every worker has its share.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pace.most as usize
    }

    /// The resources of an engine that is not the first one of its process: of its descriptors the
    /// others count on `of_others`. It has fewer connections, but not fewer than it starts with, or
    /// than were given.
    #[must_use]
    pub fn beside_others(mut self, descriptors: u64, of_others: u64) -> Self {
        if of_others > 0 && self.pace.is_adaptive() {
            let sockets = sockets_max(descriptors.saturating_sub(of_others), self.workers);
            let sockets = u32::try_from(sockets).unwrap_or(u32::MAX);
            self.pace.most = self.pace.most.min(sockets).max(self.pace.start);
        }
        self
    }

    /// Most connections, if memory limits them.
    #[must_use]
    pub fn memory_bounds(&self) -> Option<u64> {
        self.is_memory_scarce.then_some(u64::from(self.pace.most))
    }

    /// Bytes of one connection's control slot and ciphertext buffer.
    fn connection_bytes(&self) -> u64 {
        u64::from(CONTROL_SLOT_BYTES) + u64::from(self.cipher_length_bytes)
    }

    /// Fits workers, slots and their length into this memory beside the connections. Every worker
    /// has its minimum of slots; if memory is scarce they are shorter.
    fn fit(&mut self, memory: u64) {
        let connections = self.connections();
        let room = memory.saturating_sub(connections as u64 * self.connection_bytes());
        let slots = usize::try_from(room / u64::from(SLOT_BYTES_MIN)).unwrap_or(usize::MAX);
        let workers = (slots / SLOTS_PER_WORKER_MIN).max(1);
        self.workers = self.workers.min(connections).min(workers);
        let length = slot_length(self.workers, connections, room);
        self.slot_length_bytes = self.slot_length_bytes.min(length);
        self.cut_slots(room);
    }

    /// As many slots as fit, and as the connections can use.
    fn cut_slots(&mut self, room: u64) {
        let least = (self.workers * SLOTS_PER_WORKER_MIN) as u64;
        let most = (self.connections() as u64 * u64::from(SLOTS_PER_CONNECTION)).max(least);
        let slots = (room / u64::from(self.slot_length_bytes)).clamp(least, most);
        self.slots = usize::try_from(slots).expect("twice the connections at most");
        self.memory_bytes = self.memory();
    }

    /// The configuration over TLS, within the same memory, which must also hold ciphertext buffers.
    /// If memory is scarce there are fewer connections.
    #[must_use]
    pub fn secured(mut self) -> Self {
        let budget = self.memory_bytes;
        let share = budget / TLS_MEMORY_SHARE;
        let usual = self.connections().min(self.workers * TLS_CONNECTIONS_PER_WORKER);
        // On machines that allow more connections, TLS uses fewer of them, since each needs more
        // memory.
        let usual = usual.min(CONNECTIONS_DEFAULT_MAX) as u64;
        self.cipher_length_bytes = TLS_SLOT_BYTES;
        while usual * self.connection_bytes() > share
            && self.cipher_length_bytes > TLS_SLOT_BYTES_MIN
        {
            self.cipher_length_bytes /= 2;
        }
        // A requested number may use more of the memory than a possible one.
        let share = if self.pace.is_adaptive() { share } else { budget * 3 / 4 };
        let affordable = share / self.connection_bytes();
        let most = u32::try_from(affordable).unwrap_or(u32::MAX).clamp(1, self.pace.most);
        self.pace = Bounds {
            least: self.pace.least.min(most),
            start: self.pace.start.min(most),
            ..Bounds::fixed(most)
        };
        self.fit(budget);
        self
    }

    /// The configuration for streams, whose bytes go into pipes and use no data slots.
    #[must_use]
    pub fn of_streams(mut self) -> Self {
        self.slot_length_bytes = SLOT_BYTES_MIN;
        self.slots = self.workers * SLOTS_PER_WORKER_MIN;
        self.memory_bytes = self.memory();
        self
    }

    /// The configuration for clients that lease all data slots.
    #[must_use]
    pub const fn of_leases(mut self) -> Self {
        self.leases_alone = true;
        self
    }

    /// Bytes of all slots.
    fn memory(&self) -> u64 {
        self.slots as u64 * u64::from(self.slot_length_bytes)
            + self.connections() as u64 * self.connection_bytes()
    }

    /// The configuration with shorter slots, if the largest known object fits a short one whole.
    #[must_use]
    pub fn fitted(mut self, largest_bytes: u64) -> Self {
        let is_shorter = self.slot_length_bytes > SLOT_BYTES_SMALL;
        if is_shorter && fits_whole(largest_bytes, SLOT_BYTES_SMALL) {
            let room = self.slots as u64 * u64::from(self.slot_length_bytes);
            self.slot_length_bytes = SLOT_BYTES_SMALL;
            self.cut_slots(room);
        }
        self
    }

    /// How objects are cut into ranges.
    #[must_use]
    pub fn cut(&self) -> Cut {
        Cut { part: self.part, slot_length_bytes: self.slot_length_bytes }
    }

    /// Connections and data slots of worker `number`: an even share; the first workers take the
    /// rest.
    #[must_use]
    pub fn share(&self, number: usize) -> (usize, usize) {
        let share =
            |total: usize| total / self.workers + usize::from(number < total % self.workers);
        (share(self.connections()), share(self.slots))
    }

    /// Most data slots of all workers that clients may lease at the same time.
    #[must_use]
    pub fn leases_max(&self) -> usize {
        (0..self.workers).map(|number| self.leases_of(self.share(number).1)).sum()
    }

    /// Most data slots that may be leased at the same time of a worker with `slots` slots.
    #[must_use]
    pub fn leases_of(&self, slots: usize) -> usize {
        if self.leases_alone { leases_alone_of(slots) } else { leases_of(slots) }
    }
}

/// Bounds on requests in flight, and the number that the pace starts with.
fn bounds(
    options: ResourceOptions,
    facts: HostFacts,
    workers: usize,
    memory: u64,
) -> Result<Bounds> {
    let most = CONNECTIONS_MAX.min(workers * CONNECTIONS_PER_WORKER_MAX);
    let short = |count: usize| u32::try_from(count).expect("at most CONNECTIONS_MAX");
    let check_connections = |flag: &str, count: usize| {
        if (most + 1..=CONNECTIONS_MAX).contains(&count) {
            let message = format!("{flag} {count} is too large for {workers} workers");
            return Err(Error::new(ErrorKind::Usage, message).advise(format!(
                "give at most {most}, {CONNECTIONS_PER_WORKER_MAX} a worker, or more --workers"
            )));
        }
        check(flag, count as u64, 1, most as u64)
    };
    if let Some(connections) = options.connections {
        check_connections("--connections", connections)?;
        check_memory(connections, memory)?;
        check_descriptors(connections, 1, workers, facts.descriptors)?;
        return Ok(Bounds::fixed(short(connections)));
    }
    let usual = CONNECTIONS_DEFAULT_MAX.max(workers * CONNECTIONS_DEFAULT_PER_WORKER);
    let wanted = options.max_connections.unwrap_or(usual.min(most));
    check_connections("--max-connections", wanted)?;
    let sockets = sockets_max(facts.descriptors, workers);
    let affordable = (memory / CONNECTION_MEMORY_BYTES).min(sockets);
    let most = wanted.min(usize::try_from(affordable).unwrap_or(usize::MAX).max(1));
    let start = (workers * CONNECTIONS_PER_WORKER_START).min(CONNECTIONS_START_MAX).min(most);
    let least = workers.max(CONNECTIONS_LEAST).min(start);
    Ok(Bounds { least: short(least), start: short(start), ..Bounds::fixed(short(most)) })
}

/// Memory per connection in bytes: its control slot, plus enough for data that control slots take
/// only their share.
const CONNECTION_MEMORY_BYTES: u64 = CONTROL_SLOT_BYTES as u64 * CONTROL_MEMORY_SHARE;

/// Most connections with this limit of descriptors: files need some, too.
fn sockets_max(descriptors: u64, workers: usize) -> u64 {
    descriptors.saturating_sub(descriptors_besides(workers)) / 2
}

/// Descriptors of a run with this many workers, except its connections.
#[must_use]
pub fn descriptors_besides(workers: usize) -> u64 {
    DESCRIPTORS_OTHER + DESCRIPTORS_PER_WORKER * workers as u64
}

/// Checks that these connections, with `each` descriptors each, and the workers fit the limit of
/// open files.
///
/// # Errors
/// [`ErrorKind::Host`] if the limit is too low.
pub fn check_descriptors(
    connections: usize,
    each: u64,
    workers: usize,
    descriptors: u64,
) -> Result<()> {
    let besides = descriptors_besides(workers);
    let needed = (connections as u64).saturating_mul(each).saturating_add(besides);
    if needed <= descriptors {
        return Ok(());
    }
    let message = format!(
        "--connections {connections} needs {needed} open files, but this process may have only \
         {descriptors}"
    );
    Err(Error::new(ErrorKind::Host, message)
        .advise("raise the limit (ulimit -n) or use fewer --connections"))
}

fn check_memory(connections: usize, memory: u64) -> Result<()> {
    let needed = connections as u64 * CONNECTION_MEMORY_BYTES;
    if needed <= memory {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Usage,
        format!("--memory {memory} is too small for {connections} connections"),
    )
    .advise(format!("give at least --memory {needed}, or fewer --connections")))
}

/// The longest slot that leaves every worker enough slots to keep receiving and writing;
/// connections that wait for a slot leave their bytes in the socket's buffer.
fn slot_length(workers: usize, connections: usize, room: u64) -> u32 {
    let busy = connections.min(workers * CONNECTIONS_PER_WORKER_START);
    let busy = busy.min(CONNECTIONS_DEFAULT_MAX) as u64;
    let wanted = busy * u64::from(SLOTS_PER_CONNECTION);
    let mut length = SLOT_BYTES_MAX;
    while length > SLOT_BYTES_MIN && u64::from(length) * wanted > room {
        length /= 2;
    }
    length
}

fn check(flag: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let (what, bound) = if value < least { ("small", least) } else { ("large", most) };
    let limit = if value < least { "at least" } else { "at most" };
    Err(Error::new(ErrorKind::Usage, format!("{flag} {value} is too {what}"))
        .advise(format!("give {limit} {bound}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: HostFacts =
        HostFacts { processors: 2, memory_bytes: 24 << 30, descriptors: 1 << 20 };

    fn resolve(options: ResourceOptions) -> Config {
        Config::resolve(options, FACTS).expect("valid")
    }

    #[test]
    fn tls_stays_within_the_memory() {
        for (memory, connections) in [(192 << 20, 32), (64 << 20, 32), (4 << 20, 4), (4 << 20, 51)]
        {
            let options = ResourceOptions {
                memory_bytes: Some(memory),
                connections: Some(connections),
                ..ResourceOptions::default()
            };
            let facts = HostFacts { memory_bytes: 1 << 40, ..FACTS };
            let secured = Config::resolve(options, facts).expect("it fits").secured();
            assert!(secured.memory_bytes <= memory, "{secured:?}");
            assert!(secured.slots >= secured.workers * SLOTS_PER_WORKER_MIN, "{secured:?}");
            assert!(secured.cipher_length_bytes >= TLS_SLOT_BYTES_MIN, "{secured:?}");
            assert!(
                secured.connections() <= connections && secured.workers <= secured.connections()
            );
        }
    }

    #[test]
    fn defaults_on_a_small_machine() {
        let config = resolve(ResourceOptions::default());
        assert_eq!((config.workers, config.connections()), (2, 1024));
        assert_eq!(config.pace, Bounds { least: 4, start: 32, ..Bounds::fixed(1024) });
        assert_eq!((config.slot_length_bytes, config.slots), (1 << 20, 96));
        let few = HostFacts { descriptors: 1024, ..FACTS };
        let config = Config::resolve(ResourceOptions::default(), few).expect("valid");
        assert_eq!(config.pace.most, 485);
        let beside = |others| config.beside_others(1024, others).pace;
        assert_eq!((beside(0), beside(1)), (config.pace, Bounds { most: 484, ..config.pace }));
        assert_eq!(beside(735).most, 117);
        assert_eq!([beside(1000).most, beside(2000).most], [config.pace.start; 2]);
        let large = HostFacts { processors: 192, memory_bytes: 2 << 40, ..FACTS };
        let config = Config::resolve(ResourceOptions::default(), large).expect("valid");
        assert_eq!((config.workers, config.pace.start, config.pace.most), (192, 256, 12_288));
    }

    #[test]
    fn what_is_asked_for_binds_the_pace() {
        let fixed =
            resolve(ResourceOptions { connections: Some(2000), ..ResourceOptions::default() });
        assert_eq!((fixed.pace, fixed.connections()), (Bounds::fixed(2000), 2000));
        let few = HostFacts { descriptors: 64, ..FACTS };
        let error = Config::resolve(
            ResourceOptions { connections: Some(64), ..ResourceOptions::default() },
            few,
        );
        assert_eq!(error.expect_err("too many").kind(), ErrorKind::Host);
        assert_eq!(fixed.beside_others(4096, 4000), fixed);
        let clamped = ResourceOptions { max_connections: Some(64), ..ResourceOptions::default() };
        assert_eq!(Config::resolve(clamped, few).expect("clamped").pace.most, 5);
        let bounded =
            resolve(ResourceOptions { max_connections: Some(20), ..ResourceOptions::default() });
        assert_eq!(bounded.pace, Bounds { least: 4, start: 20, ..Bounds::fixed(20) });
    }

    #[test]
    fn whatever_is_asked_for_fits_the_memory_and_every_worker_has_slots() {
        for memory in [4u64 << 20, 5 << 20, 64 << 20, 192 << 20, 1 << 30] {
            for workers in [1, 2, 3, 72, 256] {
                let options = ResourceOptions {
                    memory_bytes: Some(memory),
                    workers: Some(workers),
                    ..ResourceOptions::default()
                };
                let config = resolve(options);
                assert!(config.memory_bytes <= memory, "{options:?} {config:?}");
                let shares: Vec<_> = (0..config.workers).map(|n| config.share(n)).collect();
                let connections: usize = shares.iter().map(|share| share.0).sum();
                assert_eq!(connections, config.connections());
                assert!(shares.iter().all(|(_, slots)| *slots >= SLOTS_PER_WORKER_MIN));
                assert!(shares.iter().all(|(connections, _)| *connections > 0));
            }
        }
    }

    #[test]
    fn small_objects_get_short_slots() {
        let config = resolve(ResourceOptions::default());
        let fitted = config.fitted(39_000);
        assert_eq!((fitted.slot_length_bytes, fitted.slots), (SLOT_BYTES_SMALL, 4 * config.slots));
        assert!(fitted.memory_bytes <= config.memory_bytes);
        let room = u64::from(crate::limits::HEAD_ROOM_BYTES);
        assert_eq!(config.fitted(u64::from(SLOT_BYTES_SMALL) - room + 1), config);
        let options = ResourceOptions { memory_bytes: Some(4 << 20), ..ResourceOptions::default() };
        assert_eq!(
            resolve(options).fitted(1).slot_length_bytes,
            resolve(options).slot_length_bytes
        );
    }

    #[test]
    fn a_small_cgroup_gets_a_small_share() {
        let facts = HostFacts { memory_bytes: 128 << 20, ..FACTS };
        let config = Config::resolve(ResourceOptions::default(), facts).expect("valid");
        assert!(config.memory_bytes <= 32 << 20);
    }

    fn check_error(options: ResourceOptions, expected: &str) {
        let error = Config::resolve(options, FACTS).expect_err("out of bounds");
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Usage, expected));
    }

    #[test]
    fn what_is_out_of_bounds_is_reported_with_the_bound() {
        check_error(
            ResourceOptions { memory_bytes: Some(1000), ..ResourceOptions::default() },
            "--memory 1000 is too small; give at least 4194304",
        );
        check_error(
            ResourceOptions { workers: Some(0), ..ResourceOptions::default() },
            "--workers 0 is too small; give at least 1",
        );
        check_error(
            ResourceOptions { part_size_bytes: Some(2 << 30), ..ResourceOptions::default() },
            "--part-size 2147483648 is too large; give at most 1073741824",
        );
        check_error(
            ResourceOptions { connections: Some(5000), ..ResourceOptions::default() },
            "--connections 5000 is too large for 2 workers; give at most 4096, 2048 a worker, \
             or more --workers",
        );
        check_error(
            ResourceOptions {
                connections: Some(200),
                memory_bytes: Some(4 << 20),
                ..ResourceOptions::default()
            },
            "--memory 4194304 is too small for 200 connections; give at least --memory 13107200, \
             or fewer --connections",
        );
    }

    #[test]
    fn the_files_of_a_cgroup_are_named() {
        let first = "9:name=systemd:/a\n4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/\n";
        let folder = "/sys/fs/cgroup/memory/a";
        let files = [
            format!("{folder}/b/memory.limit_in_bytes"),
            format!("{folder}/memory.limit_in_bytes"),
        ];
        assert_eq!(cgroup_limits(first), files);
        assert_eq!(cgroup_limits("0::/a:b\n"), ["/sys/fs/cgroup/a:b/memory.max"]);
        assert_eq!(cgroup_limits("4:memory:/\n0::/\nodd\n"), Vec::<String>::new());
    }

    #[test]
    fn meminfo_is_read() {
        assert_eq!(parse_meminfo("MemTotal:       2 kB\nMemFree: 1 kB\n"), Some(2048));
        assert_eq!(parse_meminfo(""), None);
    }
}
