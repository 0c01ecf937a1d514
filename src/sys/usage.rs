//! Resource usage of this process and thread: processor time and peak memory; and the limit of
//! descriptors, which the engines of a process share.

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;

use rustix::time::{ClockId, clock_gettime};

use super::process_state::DESCRIPTORS_SHARED;

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    #[expect(clippy::cast_precision_loss, reason = "seconds of processor time are far below 2^53")]
    let whole = time.tv_sec as f64;
    #[expect(clippy::cast_precision_loss, reason = "below 10^9")]
    let fraction = time.tv_nsec as f64 / 1e9;
    whole + fraction
}

/// Processor seconds of the whole process, user and system (CLOCK_PROCESS_CPUTIME_ID).
#[must_use]
pub fn process_cpu_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// Processor seconds of the calling thread.
#[must_use]
pub fn thread_cpu_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// A thread's use of processors, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessorTime {
    /// Running.
    pub cpu_seconds: f64,
    /// The part of `cpu_seconds` in user space.
    pub user_seconds: f64,
    /// Runnable without a processor; 0 if the kernel does not report it.
    pub delay_seconds: f64,
}

impl ProcessorTime {
    /// The times of the calling thread.
    #[must_use]
    pub fn of_thread() -> Self {
        let cpu_seconds = thread_cpu_seconds();
        let user_seconds = cpu_seconds * thread_user_share().unwrap_or(1.0);
        Self { cpu_seconds, user_seconds, delay_seconds: thread_delay_seconds() }
    }

    /// Adds another thread's.
    pub fn add(&mut self, other: &Self) {
        self.cpu_seconds += other.cpu_seconds;
        self.user_seconds += other.user_seconds;
        self.delay_seconds += other.delay_seconds;
    }
}

/// Share of the calling thread's processor time in user space, 0 to 1 (utime and stime of
/// proc_pid_stat(5)); `None` if the kernel does not report it, or has counted nothing yet.
#[must_use]
pub fn thread_user_share() -> Option<f64> {
    user_share(&std::fs::read_to_string("/proc/thread-self/stat").ok()?)
}

fn user_share(stat: &str) -> Option<f64> {
    let [user, system] = user_and_system_ticks(stat)?;
    (user + system > 0).then(|| user as f64 / (user + system) as f64)
}

/// Processor time of another process in seconds; `None` if unknown.
#[must_use]
pub fn cpu_seconds_of(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks: u64 = user_and_system_ticks(&stat)?.iter().sum();
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Fields 14 and 15 of proc_pid_stat(5).
fn user_and_system_ticks(stat: &str) -> Option<[u64; 2]> {
    // The second field is the name, which may contain spaces and brackets.
    let fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace();
    let ticks: Option<Vec<u64>> = fields.skip(11).take(2).map(|field| field.parse().ok()).collect();
    ticks?.try_into().ok()
}

/// Processors that this process may use.
#[must_use]
pub fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64
}

/// How long the calling thread was runnable without a processor, in seconds (the second field of
/// schedstat, sched-stats.rst of the kernel); 0 if the kernel does not report it.
#[must_use]
pub fn thread_delay_seconds() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds =
        schedstat.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    nanoseconds.map_or(0.0, |nanoseconds: f64| nanoseconds / 1e9)
}

/// Longest receive buffer that the kernel's autotuning gives a socket, in bytes (tcp_rmem of
/// tcp(7)); `None` if unknown.
#[must_use]
pub fn receive_buffer_bytes_max() -> Option<u64> {
    let tcp_rmem = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").ok()?;
    tcp_rmem.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Most descriptors that this process may have open (RLIMIT_NOFILE).
#[must_use]
pub fn descriptors_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// The descriptors that an engine counts on, until it is dropped.
#[derive(Debug)]
pub struct DescriptorShare {
    count: u32,
    process: u32,
}

impl DescriptorShare {
    /// Takes as many as `choose` wants, which gets the number that the engines of this process
    /// count on already. It returns a number, and what it has chosen by it; it may be called again.
    ///
    /// A forked process begins with none: it has no engine of its parent. No lock is taken, which
    /// another thread could hold at the fork.
    pub fn take<T>(mut choose: impl FnMut(u64) -> (u64, T)) -> (Self, T) {
        let process = std::process::id();
        let mut shared = DESCRIPTORS_SHARED.load(Ordering::Relaxed);
        loop {
            let before = count_of(shared, process);
            let (count, chosen) = choose(before.into());
            let count = u32::try_from(count).unwrap_or(u32::MAX).min(u32::MAX - before);
            let after = u64::from(process) << 32 | u64::from(before + count);
            match DESCRIPTORS_SHARED.compare_exchange(
                shared,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return (Self { count, process }, chosen),
                Err(now) => shared = now,
            }
        }
    }
}

impl Drop for DescriptorShare {
    fn drop(&mut self) {
        // Unless a forked process drops what is its parent's.
        let without = |shared| {
            let left = count_of(shared, self.process).checked_sub(self.count)?;
            (self.process == std::process::id())
                .then_some(u64::from(self.process) << 32 | u64::from(left))
        };
        let _ = DESCRIPTORS_SHARED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, without);
    }
}

/// The number that the engines of this process count on.
fn count_of(shared: u64, process: u32) -> u32 {
    let count = shared & u64::from(u32::MAX);
    if shared >> 32 == u64::from(process) { u32::try_from(count).expect("32 bits") } else { 0 }
}

/// Most bytes of address space that this process may have (RLIMIT_AS); `None` without a limit.
#[must_use]
pub fn address_space_bytes_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// Peak resident set of this process in bytes (VmHWM of proc_pid_status(5)); 0 if /proc is not
/// mounted.
#[must_use]
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_it_was_the_kernels() {
        let stat = |ticks: &str| format!("7 (a) b) S 1 2 3 0 -1 64 9 0 0 0 {ticks} 0 0 20 0 1");
        assert_eq!(user_share(&stat("30 10")), Some(0.75));
        assert_eq!(user_share(&stat("0 0")), None);
        assert_eq!(user_share("7 (a) S 1"), None);
        assert_eq!(user_and_system_ticks(&stat("70 30")), Some([70, 30]));
    }

    #[test]
    fn processor_time_of_another_process() {
        assert!(cpu_seconds_of(std::process::id()).is_some());
        assert_eq!(cpu_seconds_of(u32::MAX), None);
    }

    #[test]
    fn usage_is_read() {
        let before = thread_cpu_seconds();
        let spent: u64 = (0..1_000_000u64).map(std::hint::black_box).sum();
        assert!(spent > 0 && thread_cpu_seconds() > before);
        assert!(process_cpu_seconds() >= thread_cpu_seconds() - 1.0);
        assert!(peak_rss_bytes() > 100_000);
    }
}
