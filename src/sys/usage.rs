//! What this process and thread have used, processor time and peak memory; and how many descriptors
//! they may.

use std::num::NonZeroUsize;

use rustix::time::{ClockId, clock_gettime};

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

/// Processors that this process may use.
#[must_use]
pub fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64
}

/// How long the calling thread was ready and waited for a processor, in seconds (the second field
/// of schedstat, sched-stats.rst of the kernel); 0 where the kernel does not say.
#[must_use]
pub fn thread_delay_seconds() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    nanoseconds.map_or(0.0, |nanoseconds: f64| nanoseconds / 1e9)
}

/// Longest receive buffer that the kernel gives a socket by itself, in bytes (tcp_rmem of tcp(7));
/// `None` where it does not say.
#[must_use]
pub fn receive_buffer_bytes_max() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").ok()?;
    told.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// How many descriptors this process may have open (RLIMIT_NOFILE).
#[must_use]
pub fn descriptors_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// Highest resident set of this process in bytes (VmHWM of proc_pid_status(5)); 0 where /proc is
/// not mounted.
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
    fn usage_is_read() {
        let before = thread_cpu_seconds();
        let spent: u64 = (0..1_000_000u64).map(std::hint::black_box).sum();
        assert!(spent > 0 && thread_cpu_seconds() > before);
        assert!(process_cpu_seconds() >= thread_cpu_seconds() - 1.0);
        assert!(peak_rss_bytes() > 100_000);
    }
}
