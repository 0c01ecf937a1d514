//! What the kernel counts of the network and the cores, before and after a step.

use crate::report::bench::Counted;

/// Where an ENA's counters are.
const ENA_ELSEWHERE: &str =
    "the driver tells bw_in_allowance_exceeded to ethtool alone: see ethtool -S INTERFACE";
const NO_ENA: &str = "no interface is an ENA";

/// Counters at one time.
#[derive(Debug, Default)]
pub(super) struct Machine {
    dropped: Option<u64>,
    retransmitted: Option<u64>,
    pruned: Option<u64>,
    /// Of each core: ticks in use, and all.
    cores: Vec<(u64, u64)>,
    has_ena: bool,
}

/// Reads them.
pub(super) fn read() -> Machine {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Machine {
        dropped: dropped(&text("/proc/net/dev")),
        retransmitted: field(&text("/proc/net/snmp"), "Tcp:", "RetransSegs"),
        pruned: field(&text("/proc/net/netstat"), "TcpExt:", "PruneCalled"),
        cores: cores(&text("/proc/stat")),
        has_ena: has_ena(),
    }
}

impl Machine {
    /// What was counted since then.
    pub(super) fn since(&self, before: &Self) -> Counted {
        let more = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let used = self.cores.iter().zip(&before.cores).map(|(now, then)| {
            let all = now.1.saturating_sub(then.1).max(1);
            now.0.saturating_sub(then.0) as f64 / all as f64
        });
        Counted {
            received_packets_dropped: more(self.dropped, before.dropped),
            tcp_segments_retransmitted: more(self.retransmitted, before.retransmitted),
            tcp_receive_queues_pruned: more(self.pruned, before.pruned),
            core_use: used.collect(),
            ena_allowance_exceeded: None,
            ena_unavailable: Some(if self.has_ena { ENA_ELSEWHERE } else { NO_ENA }),
        }
    }
}

/// An interface's driver is ena.
fn has_ena() -> bool {
    let interfaces = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let drivers = interfaces
        .filter_map(|interface| std::fs::read_link(interface.path().join("device/driver")).ok());
    drivers.into_iter().any(|driver| driver.file_name().is_some_and(|name| name == "ena"))
}

/// Packets that were received and dropped, of all interfaces (proc_pid_net(5)).
fn dropped(text: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let counts: Vec<u64> = lines
        .filter_map(|(_, fields)| fields.split_ascii_whitespace().nth(3)?.parse().ok())
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// A field of a pair of lines, of which the first has names and the second numbers.
fn field(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let at = lines.next()?.split_ascii_whitespace().position(|field| field == name)?;
    lines.next()?.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// Ticks of each core: in use, and all (proc_stat(5)).
fn cores(text: &str) -> Vec<(u64, u64)> {
    let lines = text.lines().filter(|line| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let ticks = lines.map(|line| {
        let fields = line.split_ascii_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        let all: u64 = ticks.iter().sum();
        // idle and iowait.
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        (all - idle, all)
    });
    ticks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let dev = "Inter-| Receive | Transmit\n face |bytes\n  lo: 1 2 0 3 0\neth0:9 8 0 4\n";
        assert_eq!(dropped(dev), Some(7));
        assert_eq!(dropped("no table"), None);
        let snmp = "Ip: A B\nIp: 1 2\nTcp: MaxConn RetransSegs\nTcp: -1 42\n";
        assert_eq!(field(snmp, "Tcp:", "RetransSegs"), Some(42));
        assert_eq!(field(snmp, "Tcp:", "InErrs"), None);
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 5 5\ncpu1 0 0 0 50 0 0 0 50\n";
        assert_eq!(cores(stat), [(20, 100), (50, 100)]);
        let now = Machine { cores: vec![(30, 120)], dropped: Some(9), ..Machine::default() };
        let then = Machine { cores: vec![(20, 100)], dropped: Some(7), ..Machine::default() };
        let counted = now.since(&then);
        assert_eq!(counted.received_packets_dropped, Some(2));
        assert_eq!((counted.core_use, counted.tcp_segments_retransmitted), (vec![0.5], None));
    }
}
