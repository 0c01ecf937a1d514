//! The kernel's counters of network and cores, before and after a step.

use std::collections::BTreeMap;

use crate::report::bench::Counted;
use crate::sys::tcp_memory::counter;
use crate::sys::{Errno, ethtool};

const NO_ENA: &str = "no interface is an ENA";
/// Suffix of an ENA's counters of packets beyond the instance's allowances: received, sent, and so
/// on.
const ALLOWANCE: &str = "_allowance_exceeded";

/// Counters at one time.
#[derive(Debug)]
pub(super) struct MachineCounters {
    dropped: Option<u64>,
    retransmitted: Option<u64>,
    pruned: Option<u64>,
    /// Of each core: busy ticks, and all ticks.
    cores: Vec<(u64, u64)>,
    ena: Allowances,
}

/// The packets that a machine's ENAs held back, by counter; or why they are unknown.
type Allowances = Result<BTreeMap<String, u64>, String>;

/// Reads the counters.
pub(super) fn read() -> MachineCounters {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    MachineCounters {
        dropped: dropped(&text("/proc/net/dev")),
        retransmitted: counter(&text("/proc/net/snmp"), "Tcp:", "RetransSegs"),
        pruned: counter(&text("/proc/net/netstat"), "TcpExt:", "PruneCalled"),
        cores: cores(&text("/proc/stat")),
        ena: allowances(&interfaces("ena"), ethtool::counters),
    }
}

impl MachineCounters {
    /// The differences since `before`.
    pub(super) fn since(&self, before: &Self) -> Counted {
        let more = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let used = self.cores.iter().zip(&before.cores).map(|(now, then)| {
            let all = now.1.saturating_sub(then.1).max(1);
            now.0.saturating_sub(then.0) as f64 / all as f64
        });
        let held_back = self.ena.as_ref().ok().zip(before.ena.as_ref().ok()).map(|(now, then)| {
            let since = now.iter().map(|(name, count)| {
                let then = then.get(name).copied().unwrap_or(0);
                (name.clone(), count.saturating_sub(then))
            });
            since.collect()
        });
        Counted {
            received_packets_dropped: more(self.dropped, before.dropped),
            tcp_segments_retransmitted: more(self.retransmitted, before.retransmitted),
            tcp_receive_queues_pruned: more(self.pruned, before.pruned),
            core_use: used.collect(),
            ena_allowance_exceeded: held_back,
            ena_unavailable: self.ena.as_ref().and(before.ena.as_ref()).err().cloned(),
        }
    }
}

/// The interfaces with this driver.
fn interfaces(driver: &str) -> Vec<String> {
    let interfaces = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let of_driver = interfaces.filter(|interface| {
        let link = std::fs::read_link(interface.path().join("device/driver"));
        link.is_ok_and(|link| link.file_name().is_some_and(|name| name == driver))
    });
    of_driver.filter_map(|interface| interface.file_name().into_string().ok()).collect()
}

/// The packets that these interfaces held back together, by their driver's counters.
fn allowances(
    interfaces: &[String],
    counters: impl Fn(&str) -> Result<Vec<(String, u64)>, Errno>,
) -> Allowances {
    let mut all = BTreeMap::new();
    for interface in interfaces {
        let counts = counters(interface)
            .map_err(|errno| format!("cannot read the counters of {interface}: {errno}"))?;
        for (name, count) in counts.into_iter().filter(|(name, _)| name.ends_with(ALLOWANCE)) {
            *all.entry(name).or_insert(0) += count;
        }
    }
    match (interfaces, all.is_empty()) {
        ([], _) => Err(NO_ENA.to_owned()),
        (_, true) => Err("the driver does not count what an ENA held back".to_owned()),
        _ => Ok(all),
    }
}

/// Received packets that were dropped, of all interfaces (proc_pid_net(5)).
fn dropped(text: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let counts: Vec<u64> = lines
        .filter_map(|(_, fields)| fields.split_ascii_whitespace().nth(3)?.parse().ok())
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// Ticks of each core: busy, and all (proc_stat(5)).
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
        assert_eq!(counter(snmp, "Tcp:", "RetransSegs"), Some(42));
        assert_eq!(counter(snmp, "Tcp:", "InErrs"), None);
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 5 5\ncpu1 0 0 0 50 0 0 0 50\n";
        assert_eq!(cores(stat), [(20, 100), (50, 100)]);
        let machine = |cores, dropped, ena| MachineCounters {
            dropped: Some(dropped),
            retransmitted: None,
            pruned: None,
            cores: vec![cores],
            ena,
        };
        let no_ena = || Err(NO_ENA.to_owned());
        let (now, then) = (machine((30, 120), 9, no_ena()), machine((20, 100), 7, no_ena()));
        let counted = now.since(&then);
        assert_eq!(counted.received_packets_dropped, Some(2));
        assert_eq!((counted.core_use, counted.tcp_segments_retransmitted), (vec![0.5], None));
        assert_eq!(
            (counted.ena_allowance_exceeded, counted.ena_unavailable),
            (None, no_ena().err())
        );
        let ena = |count| Ok(BTreeMap::from([("bw_in_allowance_exceeded".to_owned(), count)]));
        let counted = machine((2, 3), 9, ena(40)).since(&machine((1, 2), 7, ena(10)));
        assert_eq!((counted.ena_allowance_exceeded, counted.ena_unavailable), (ena(30).ok(), None));
    }

    /// A machine with two ENAs, whose driver answers like Linux's.
    #[test]
    fn what_enas_held_back() {
        let two = ["ens5", "ens6"].map(str::to_owned);
        let driver = |interface: &str| {
            let count = if interface == "ens5" { 3 } else { 4 };
            let names = ["tx_timeout", "bw_in_allowance_exceeded", "pps_allowance_exceeded"];
            Ok(names.map(|name| (name.to_owned(), count)).to_vec())
        };
        let counts = allowances(&two, driver).expect("counters");
        let names: Vec<&str> = counts.keys().map(String::as_str).collect();
        assert_eq!(names, ["bw_in_allowance_exceeded", "pps_allowance_exceeded"]);
        assert!(counts.values().all(|count| *count == 7), "{counts:?}");
        assert_eq!(allowances(&[], driver), Err(NO_ENA.to_owned()));
        let refused = allowances(&two, |_| Err(Errno::NOT_PERMITTED)).expect_err("refused");
        assert!(refused.contains("ens5") && refused.contains("not permitted"), "{refused}");
        let old = allowances(&two, |_| Ok(vec![("tx_timeout".to_owned(), 1)]));
        assert!(old.expect_err("an old driver").contains("does not count"));
        assert!(interfaces("no such driver").is_empty());
    }
}
