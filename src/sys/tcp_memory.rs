//! Memory of the TCP socket buffers of the whole machine.
//!
//! Above the pressure mark of net.ipv4.tcp_mem (tcp(7)) the kernel drops received packets, and
//! peers retransmit them: every connection of the machine becomes slow.

use std::os::fd::OwnedFd;
use std::sync::{MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::process_state::TCP_MEMORY;

/// How long connections stay slow after drops, in seconds: a peer doubles its wait before each
/// retransmission, from 0.2 s on, so six failed ones take 12.6 s. Measured: streams over 600
/// connections were under pressure for 4 s of 14, and their reader waited for 12.4 s.
const AFTERMATH_SECONDS: f64 = 10.0;

/// Interval at which this memory is sampled while anything is in flight, in seconds.
const PERIOD_SECONDS: f64 = 1.0;

/// Age at which a sample is too old for those who need it several times a second, in seconds.
const RECENT_SECONDS: f64 = 0.2;

/// Two samples that are further apart, in seconds, have nothing in flight between them: what the
/// machine's other programs did meanwhile delayed nothing here.
const REST_SECONDS: f64 = 3.0;

/// The kernel's counters of this memory; `None` if the kernel lacks one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpMemory {
    /// Bytes in use by all TCP sockets of the machine, over IPv4 and IPv6.
    pub used_bytes: u64,
    /// The second number of tcp_mem: above it the kernel economizes on buffers. Containers with a
    /// network of their own have no tcp_mem.
    pub pressure_bytes: Option<u64>,
    /// The third number of tcp_mem: the hard limit.
    pub limit_bytes: Option<u64>,
    /// How many times pressure began since boot, caused by a socket of this network namespace
    /// (TCPMemoryPressures).
    pub pressures: Option<u64>,
    /// How many times a socket's queues were searched for memory to free, because its own buffer or
    /// the machine's memory was full (PruneCalled).
    pub pruned: Option<u64>,
    /// Received packets dropped for lack of memory (TCPRcvQDrop and TCPOFODrop, without RcvPruned,
    /// which counts drops of sockets whose own buffer was full).
    pub dropped: Option<u64>,
}

impl TcpMemory {
    /// Parses the texts of these files, for a machine with this page size.
    #[must_use]
    pub fn parse(sockstat: &str, tcp_mem: &str, netstat: &str, page_bytes: u64) -> Option<Self> {
        let bytes = |pages: &str| Some(pages.parse::<u64>().ok()?.saturating_mul(page_bytes));
        let mut of_tcp = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?.split(' ');
        of_tcp.find(|word| *word == "mem")?;
        let mark = |at: usize| bytes(tcp_mem.split_ascii_whitespace().nth(at)?);
        let counter = |name: &str| counter(netstat, "TcpExt:", name);
        let dropped = |queued: u64| {
            let out_of_order = counter("TCPOFODrop").unwrap_or(0);
            let own_buffer_full = counter("RcvPruned").unwrap_or(0);
            queued.saturating_add(out_of_order).saturating_sub(own_buffer_full)
        };
        Some(Self {
            used_bytes: bytes(of_tcp.next()?.trim_end())?,
            pressure_bytes: mark(1),
            limit_bytes: mark(2),
            pressures: counter("TCPMemoryPressures"),
            pruned: counter("PruneCalled"),
            dropped: counter("TCPRcvQDrop").map(dropped),
        })
    }

    /// True if the sockets use more than the pressure mark, or if since `before` pressure began or
    /// packets were dropped. Pruning alone is not pressure: a socket whose own buffer is full is
    /// pruned, too.
    #[must_use]
    pub fn is_under_pressure(&self, before: &Self) -> bool {
        let is_above = self.pressure_bytes.is_some_and(|mark| self.used_bytes > mark);
        let has_grown = |now: Option<u64>, then: Option<u64>| growth(now, then) > Some(0);
        is_above
            || has_grown(self.pressures, before.pressures)
            || has_grown(self.dropped, before.dropped)
    }
}

/// Page size in bytes, the unit of the kernel's counters.
#[must_use]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Growth of a counter; `None` if it was not read both times.
fn growth(now: Option<u64>, then: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(then?))
}

/// A counter of /proc/net/netstat or /proc/net/snmp, where a line of names and a line of numbers
/// begin with the protocol.
#[must_use]
pub fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let at = lines.next()?.split_ascii_whitespace().position(|field| field == name)?;
    lines.next()?.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// Use of this memory since sampling began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TcpMemoryUse {
    /// Bytes in use at the last sample.
    #[serde(skip)]
    pub used_bytes: u64,
    /// Most bytes in use in any sample.
    pub peak_bytes: u64,
    /// The pressure mark; null if the kernel does not report it.
    pub pressure_bytes: Option<u64>,
    /// How long the machine was under pressure, as in [`TcpMemory::is_under_pressure`].
    pub pressure_seconds: f64,
    /// That, plus the time in which connections were still slow after drops.
    pub affected_seconds: f64,
    /// Growth of [`TcpMemory::pressures`].
    pub pressures: Option<u64>,
    /// Growth of [`TcpMemory::pruned`].
    pub pruned: Option<u64>,
    /// Growth of [`TcpMemory::dropped`].
    pub dropped: Option<u64>,
}

/// The first sample, and the last one with its time in seconds.
#[derive(Debug, Clone, Copy)]
struct Watch {
    first: TcpMemory,
    last: (f64, TcpMemory),
    /// When the last drops no longer slow connections.
    affected_until: f64,
    seen: TcpMemoryUse,
}

impl Watch {
    fn new(at_seconds: f64, now: TcpMemory) -> Self {
        let last = (at_seconds, now);
        let seen = TcpMemoryUse::default();
        let mut watch = Self { first: now, last, affected_until: at_seconds, seen };
        watch.add(at_seconds, now);
        watch
    }

    fn add(&mut self, at_seconds: f64, now: TcpMemory) {
        let (then_seconds, then) = self.last;
        let span = at_seconds - then_seconds;
        let is_rest = span > REST_SECONDS;
        let aftermath = (self.affected_until.min(at_seconds) - then_seconds).max(0.0);
        let (pressure, affected) = match now.is_under_pressure(&then) {
            true if !is_rest => (span, span),
            _ => (0.0, aftermath),
        };
        if growth(now.dropped, then.dropped) > Some(0) && !is_rest {
            self.affected_until = at_seconds + AFTERMATH_SECONDS;
        }
        self.seen = TcpMemoryUse {
            used_bytes: now.used_bytes,
            peak_bytes: self.seen.peak_bytes.max(now.used_bytes),
            pressure_bytes: now.pressure_bytes,
            pressure_seconds: self.seen.pressure_seconds + pressure,
            affected_seconds: self.seen.affected_seconds + affected,
            pressures: growth(now.pressures, self.first.pressures),
            pruned: growth(now.pruned, self.first.pruned),
            dropped: growth(now.dropped, self.first.dropped),
        };
        self.last = (at_seconds, now);
    }
}

/// The kernel's files, which stay open: each sample reads each of them once.
#[derive(Debug)]
struct Files {
    sockstat: OwnedFd,
    /// Containers with a network of their own lack it.
    tcp_mem: Option<OwnedFd>,
    netstat: Option<OwnedFd>,
    /// Room for the longest of them.
    room: Vec<u8>,
}

/// More than the longest of these files: /proc/net/netstat has 4 kB.
const FILE_BYTES_MAX: usize = 32 << 10;

impl Files {
    fn open() -> Option<Self> {
        let open = |path: &str| {
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
        };
        Some(Self {
            sockstat: open("/proc/net/sockstat")?,
            tcp_mem: open("/proc/sys/net/ipv4/tcp_mem"),
            netstat: open("/proc/net/netstat"),
            room: vec![0; FILE_BYTES_MAX],
        })
    }

    /// `None` if the kernel reports nothing.
    fn read(&mut self) -> Option<TcpMemory> {
        let Self { sockstat, tcp_mem, netstat, room } = self;
        let mut text = |file: Option<&OwnedFd>| {
            let read = |file| rustix::io::pread(file, &mut room[..], 0).unwrap_or(0);
            let count = file.map_or(0, read);
            String::from_utf8_lossy(&room[..count]).into_owned()
        };
        let texts = [Some(&*sockstat), tcp_mem.as_ref(), netstat.as_ref()].map(&mut text);
        TcpMemory::parse(&texts[0], &texts[1], &texts[2], page_bytes())
    }
}

/// The reader of this process: the memory is the machine's, so one serves all.
#[derive(Debug)]
pub(super) struct Sampler {
    files: Option<Files>,
    /// The last sample, with its time in seconds.
    last: Option<(f64, TcpMemory)>,
    /// Since [`begin`].
    watch: Option<Watch>,
}

fn reader() -> MutexGuard<'static, Sampler> {
    TCP_MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sampler {
    pub(super) const fn new() -> Self {
        Self { files: None, last: None, watch: None }
    }

    /// The last sample if it is younger than `period_seconds`, else another.
    fn sample(&mut self, period_seconds: f64) -> Option<TcpMemory> {
        let time = clock_gettime(ClockId::Monotonic);
        let at_seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        if let Some((then_seconds, memory)) = self.last
            && at_seconds < then_seconds + period_seconds
        {
            return Some(memory);
        }
        // If descriptors have run out, the next sample tries again.
        self.files = self.files.take().or_else(Files::open);
        let now = self.files.as_mut()?.read()?;
        self.last = Some((at_seconds, now));
        if let Some(watch) = &mut self.watch {
            watch.add(at_seconds, now);
        }
        Some(now)
    }
}

/// Begins to record the use of this memory, in this sample and all later ones.
pub fn begin() {
    let mut reader = reader();
    if reader.watch.is_none()
        && let Some(now) = reader.sample(0.0)
        && let Some((at_seconds, _)) = reader.last
    {
        reader.watch = Some(Watch::new(at_seconds, now));
    }
}

/// Takes a sample if use is recorded and the last one is old. Does not wait for another thread that
/// takes one.
pub fn keep_up() {
    if let Ok(mut reader) = TCP_MEMORY.try_lock()
        && reader.watch.is_some()
    {
        let _ = reader.sample(PERIOD_SECONDS);
    }
}

/// The use recorded until now, in another sample; `None` if nothing is recorded, or the kernel
/// reports nothing.
#[must_use]
pub fn seen() -> Option<TcpMemoryUse> {
    let mut reader = reader();
    reader.watch?;
    let _ = reader.sample(0.0);
    reader.watch.map(|watch| watch.seen)
}

/// A sample that is new enough for a stream's budget; `None` if the kernel reports nothing.
#[must_use]
pub fn recent() -> Option<TcpMemory> {
    reader().sample(RECENT_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKSTAT: &str =
        "sockets: used 17\nTCP: inuse 4 orphan 0 tw 0 alloc 4 mem 314\nUDP: inuse 0 mem 7\n";
    const TCP_MEM: &str = "287898\t383867\t575796\n";
    const NETSTAT: &str = concat!(
        "TcpExt: PruneCalled RcvPruned TCPMemoryPressures TCPMemoryPressuresChrono TCPOFODrop ",
        "TCPRcvQDrop\nTcpExt: 2425 40 1 45396 775 1646\nIpExt: A\nIpExt: 5\n"
    );

    fn memory() -> TcpMemory {
        TcpMemory {
            used_bytes: 314 << 12,
            pressure_bytes: Some(383_867 << 12),
            limit_bytes: Some(575_796 << 12),
            pressures: Some(1),
            pruned: Some(2425),
            dropped: Some(1646 + 775 - 40),
        }
    }

    #[test]
    fn the_texts_of_the_kernel_are_read() {
        assert_eq!(TcpMemory::parse(SOCKSTAT, TCP_MEM, NETSTAT, 4096), Some(memory()));
        let large = TcpMemory::parse(SOCKSTAT, TCP_MEM, NETSTAT, 65_536).expect("all is there");
        assert_eq!((large.used_bytes, large.limit_bytes), (314 << 16, Some(575_796 << 16)));
    }

    #[test]
    fn what_is_not_there_is_unknown() {
        let unknown = TcpMemory { used_bytes: 314 << 12, ..TcpMemory::default() };
        assert_eq!(TcpMemory::parse(SOCKSTAT, "", "", 4096), Some(unknown));
        for sockstat in ["", "TCP:", "TCP: inuse 4 mem", "TCP: mem x", "TCP: mem -1", "UDP: mem 9"]
        {
            assert_eq!(TcpMemory::parse(sockstat, TCP_MEM, NETSTAT, 4096), None, "{sockstat}");
        }
        // An old kernel counts neither drops nor pressures.
        let old = "TcpExt: PruneCalled RcvPruned\nTcpExt: 3 1\n";
        let read = TcpMemory::parse(SOCKSTAT, "1 2", old, 4096).expect("what is used");
        assert_eq!((read.pruned, read.dropped, read.pressures), (Some(3), None, None));
        assert_eq!((read.pressure_bytes, read.limit_bytes), (Some(8192), None));
    }

    #[test]
    fn no_text_makes_it_fail() {
        let huge = format!("TCP: mem {}", u64::MAX);
        let read = TcpMemory::parse(&huge, "a b c", NETSTAT, 4096).expect("a number");
        assert_eq!((read.used_bytes, read.pressure_bytes), (u64::MAX, None));
        for netstat in [
            "TcpExt: PruneCalled TCPRcvQDrop",
            "TcpExt: PruneCalled TCPRcvQDrop\nTcpExt:",
            "TcpExt: PruneCalled TCPRcvQDrop\nTcpExt: x -3",
            "TcpExt: PruneCalled TCPRcvQDrop\nTcpExt: 99999999999999999999 1e9",
            "TcpExt:\nTcpExt: 1 2",
            "\u{0}\u{fffd}\n\n",
        ] {
            let read = TcpMemory::parse(SOCKSTAT, TCP_MEM, netstat, 4096).expect("what is used");
            assert_eq!((read.pruned, read.dropped), (None, None), "{netstat:?}");
        }
        let most = u64::MAX;
        let drops = format!("TcpExt: TCPRcvQDrop TCPOFODrop\nTcpExt: {most} {most}\n");
        let read = TcpMemory::parse(SOCKSTAT, TCP_MEM, &drops, 4096).expect("what is used");
        assert_eq!(read.dropped, Some(most));
    }

    #[test]
    fn pressure_is_use_above_the_mark_or_drops_since() {
        let before = memory();
        assert!(!before.is_under_pressure(&before), "counters of earlier hours say nothing");
        let mark = before.pressure_bytes.expect("known");
        assert!(!TcpMemory { used_bytes: mark, ..before }.is_under_pressure(&before));
        let above = TcpMemory { used_bytes: mark + 1, ..before };
        assert!(above.is_under_pressure(&before));
        assert!(TcpMemory { pressures: Some(2), ..before }.is_under_pressure(&before));
        let dropped = TcpMemory { dropped: Some(2382), ..before };
        assert!(dropped.is_under_pressure(&before));
        assert!(!before.is_under_pressure(&dropped), "a counter that went back");
        assert!(!TcpMemory { pruned: Some(9999), ..before }.is_under_pressure(&before));
        // Unknown is not pressure.
        let container = TcpMemory { pressure_bytes: None, ..above };
        assert!(!container.is_under_pressure(&before));
        let unknown = TcpMemory { dropped: None, pressures: None, ..before };
        assert!(!before.is_under_pressure(&unknown));
    }

    #[test]
    fn a_watch_has_the_peak_and_what_grew() {
        let first = memory();
        let mut watch = Watch::new(100.0, first);
        let calm = TcpMemoryUse {
            used_bytes: first.used_bytes,
            peak_bytes: first.used_bytes,
            pressure_bytes: first.pressure_bytes,
            pressure_seconds: 0.0,
            affected_seconds: 0.0,
            pressures: Some(0),
            pruned: Some(0),
            dropped: Some(0),
        };
        assert_eq!(watch.seen, calm);
        let peak_bytes = 2_000_000_000;
        let above = TcpMemory { used_bytes: peak_bytes, pressures: Some(2), ..first };
        watch.add(101.5, above);
        let last = TcpMemory { dropped: Some(2391), pressures: None, ..first };
        watch.add(102.0, last);
        watch.add(109.0, last);
        watch.add(150.0, last);
        let expected = TcpMemoryUse {
            peak_bytes,
            pressure_seconds: 2.0,
            // Ten seconds more from the sample that saw the drops.
            affected_seconds: 12.0,
            pressures: None,
            dropped: Some(10),
            ..calm
        };
        assert_eq!(watch.seen, expected);
        let json = serde_json::to_string(&watch.seen).expect("plain data");
        let expected = concat!(
            r#"{"peak_bytes":2000000000,"pressure_bytes":1572319232,"pressure_seconds":2.0,"#,
            r#""affected_seconds":12.0,"pressures":null,"pruned":0,"dropped":10}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn this_machine_says_what_it_has() {
        let Some(memory) = recent() else { return };
        assert!(memory.limit_bytes >= memory.pressure_bytes, "{memory:?}");
        // By the same descriptors, and again.
        let mut files = Files::open().expect("they were read before");
        for _ in 0..3 {
            let again = files.read().expect("they were read before");
            let known = |memory: TcpMemory| {
                (memory.pressures.is_some(), memory.pruned.is_some(), memory.dropped.is_some())
            };
            assert_eq!((again.limit_bytes, known(again)), (memory.limit_bytes, known(memory)));
        }
        begin();
        let seen = seen().expect("it was read before");
        assert!(seen.peak_bytes >= seen.used_bytes, "{seen:?}");
    }

    #[test]
    fn pressure_while_nothing_is_in_flight_is_of_others() {
        let mut watch = Watch::new(100.0, memory());
        let above = TcpMemory { used_bytes: 2_000_000_000, dropped: Some(9_999), ..memory() };
        watch.add(100.0 + 2.0 * REST_SECONDS, above);
        let seen = watch.seen;
        assert_eq!((seen.pressure_seconds, seen.affected_seconds), (0.0, 0.0));
        assert_eq!((seen.peak_bytes, seen.dropped), (2_000_000_000, Some(9_999 - 2_381)));
        watch.add(101.0 + 2.0 * REST_SECONDS, above);
        assert_eq!(watch.seen.pressure_seconds, 1.0);
    }
}
