//! Facts about the machine and its network.

use super::tree::Tree;
use crate::cli::RingName;
use crate::command::ring;
use crate::doctor::facts::{Interface, Machine, Network, RingTried};
use crate::doctor::parse;
use crate::sys::choice::{AnyRing, RingKind};
use crate::sys::tcp_memory::{TcpMemory, page_bytes};
use crate::sys::topology;
use crate::sys::uring::SetupMode;

/// Entries of the ring created as a check: the smallest number.
const ENTRIES: u32 = 8;

/// For the ring of the option.
pub(super) fn machine(tree: &Tree, ring: Option<RingName>) -> Machine {
    let status = tree.text("proc/self/status").unwrap_or_default();
    let limits = tree.text("proc/self/limits").unwrap_or_default();
    let memory = tree.text("proc/meminfo").unwrap_or_default();
    let status_number = |name| parse::number(parse::field(&status, name)?);
    let cores = |text: Option<String>| parse::list(&text?).filter(|cores| !cores.is_empty());
    Machine {
        release: tree.word("proc/sys/kernel/osrelease"),
        ring: Some(try_ring()),
        ring_choice: Some(ring::choice(ring).map_err(super::service::trouble)),
        io_uring_disabled: tree.number("proc/sys/kernel/io_uring_disabled"),
        seccomp: status_number("Seccomp"),
        capabilities: parse::field(&status, "CapEff")
            .and_then(|bits| u64::from_str_radix(bits, 16).ok()),
        locked_bytes: parse::soft_limit(&limits, "Max locked memory"),
        open_files: parse::hard_limit(&limits, "Max open files"),
        address_bytes: parse::soft_limit(&limits, "Max address space"),
        file_bytes: parse::soft_limit(&limits, "Max file size"),
        pipe_bytes_max: tree.number("proc/sys/fs/pipe-max-size"),
        pipe_pages_soft: tree.number("proc/sys/fs/pipe-user-pages-soft"),
        huge_pages: tree
            .text("sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| parse::chosen(&text)),
        memory_bytes: parse::kibibytes(&memory, "MemTotal"),
        available_bytes: parse::kibibytes(&memory, "MemAvailable"),
        cgroup_bytes: cgroup_bytes(tree),
        quota_cores: quota_cores(tree),
        allowed: cores(parse::field(&status, "Cpus_allowed_list").map(str::to_owned)),
        online: cores(tree.text("sys/devices/system/cpu/online")),
        nodes: topology::nodes(tree.root()),
    }
}

fn try_ring() -> RingTried {
    match AnyRing::new(RingKind::IoUring, ENTRIES, 0) {
        Ok(ring) => RingTried::Made(
            match ring.features().mode {
                Some(SetupMode::DeferTaskrun) => "DEFER_TASKRUN",
                Some(SetupMode::CoopTaskrun) => "COOP_TASKRUN",
                Some(SetupMode::Plain) | None => "without flags",
            }
            .to_owned(),
        ),
        Err(refused) => RingTried::Refused { cause: refused.cause(), advice: refused.advice() },
    }
}

/// The folders of a controller's cgroups, including those of version 2.
fn groups(tree: &Tree, controller: &str) -> Vec<String> {
    parse::cgroups(&tree.text("proc/self/cgroup").unwrap_or_default(), controller)
}

fn cgroup_bytes(tree: &Tree) -> Option<u64> {
    let files = groups(tree, "memory").into_iter().flat_map(|folder| {
        ["memory.max", "memory.limit_in_bytes"].map(|file| format!("sys/fs/cgroup{folder}/{file}"))
    });
    files.filter_map(|file| tree.number(file)).min()
}

fn quota_cores(tree: &Tree) -> Option<f64> {
    let quotas = groups(tree, "cpu").into_iter().filter_map(|folder| {
        let folder = format!("sys/fs/cgroup{folder}");
        let first = |file: &str| tree.word(format!("{folder}/{file}"));
        match tree.text(format!("{folder}/cpu.max")) {
            Some(text) => parse::quota(&text),
            None => {
                let (quota, period) = (first("cpu.cfs_quota_us")?, first("cpu.cfs_period_us")?);
                parse::quota(&format!("{quota} {period}"))
            }
        }
    });
    quotas.min_by(f64::total_cmp)
}

/// The route to the network: over these interfaces, or without any over that of the default route.
pub(super) fn network(tree: &Tree, named: &[String]) -> Network {
    let known = topology::interfaces(tree.root());
    let named = named.iter().map(|name| Interface {
        is_missing: !known.contains(name),
        ..interface(tree, name.clone())
    });
    let named: Vec<Interface> = named.collect();
    let route = tree.text("proc/net/route").unwrap_or_default();
    let rmem = tree.text("proc/sys/net/ipv4/tcp_rmem");
    let of_default_route = || parse::default_interface(&route).map(|name| interface(tree, name));
    Network {
        are_named: !named.is_empty(),
        interfaces: if named.is_empty() { of_default_route().into_iter().collect() } else { named },
        rmem_max: tree.number("proc/sys/net/core/rmem_max"),
        tcp_rmem_max: rmem.and_then(|text| parse::number(text.split_whitespace().nth(2)?)),
        tcp_memory: tcp_memory(tree),
        congestion_control: tree.word("proc/sys/net/ipv4/tcp_congestion_control"),
    }
}

fn tcp_memory(tree: &Tree) -> Option<(TcpMemory, u64)> {
    let text = |below: &str| tree.text(below).unwrap_or_default();
    let (marks, counters) = (text("proc/sys/net/ipv4/tcp_mem"), text("proc/net/netstat"));
    let page_bytes = page_bytes();
    let memory = TcpMemory::parse(&text("proc/net/sockstat"), &marks, &counters, page_bytes);
    memory.map(|memory| (memory, page_bytes))
}

fn interface(tree: &Tree, name: String) -> Interface {
    let folder = format!("sys/class/net/{name}");
    let number = |file: &str| tree.number(format!("{folder}/{file}"));
    let queues = tree.names(format!("{folder}/queues"));
    Interface {
        state: tree.word(format!("{folder}/operstate")),
        // -1 if the driver does not report it.
        speed_mbit: number("speed").filter(|speed| *speed > 0),
        duplex: tree.word(format!("{folder}/duplex")),
        mtu_bytes: number("mtu"),
        receive_queues: queues.iter().filter(|name| name.starts_with("rx-")).count(),
        interrupts: interrupts(tree, &folder, &name),
        node: topology::node_of(tree.root(), &name),
        is_missing: false,
        name,
    }
}

/// The interrupts of the device that have the interface's name or belong to its queues, and the
/// cores that handle each.
fn interrupts(tree: &Tree, folder: &str, name: &str) -> Vec<(u32, Vec<u32>)> {
    let all = tree.text("proc/interrupts").unwrap_or_default();
    // A virtio device's interrupts are its parent's.
    let of_device = ["device/msi_irqs", "device/../msi_irqs"]
        .iter()
        .map(|below| tree.names(format!("{folder}/{below}")))
        .find(|names| !names.is_empty())
        .unwrap_or_default();
    let lines = all.lines().filter_map(|line| {
        let (number, rest) = line.trim_start().split_once(':')?;
        let last = rest.split_whitespace().last()?;
        let is_named = last.contains(name);
        let is_queue = of_device.iter().any(|known| known == number) && !is_for_no_queue(last);
        (is_named || is_queue).then(|| number.parse::<u32>().ok())?
    });
    let cores = |number: &u32| {
        let below = format!("proc/irq/{number}");
        let files = ["effective_affinity_list", "smp_affinity_list"];
        let text = files.iter().find_map(|file| {
            tree.text(format!("{below}/{file}")).filter(|text| !text.trim().is_empty())
        });
        parse::list(&text?)
    };
    lines.filter_map(|number| Some((number, cores(&number)?))).collect()
}

/// True if an interrupt belongs to no queue, by its name.
fn is_for_no_queue(name: &str) -> bool {
    ["config", "mgmnt", "async", "control", "misc"].iter().any(|word| name.contains(word))
}
