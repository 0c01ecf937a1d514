//! The way to the network: the interface, its queues and interrupts, TCP.

use std::collections::BTreeSet;

use super::Finding;
use super::facts::{Interface, Machine, Network};
use crate::engine::placement::Ground;
use crate::limits::{CONNECTIONS_DEFAULT_MAX, STREAM_BYTES_MAX};
use crate::sys::topology;
use crate::text::size::Binary;

/// Linux's default of the largest receive buffer of TCP, in bytes.
const TCP_RMEM_USUAL: u64 = 6 << 20;

/// Linux's default of net.core.rmem_max, in bytes.
const RMEM_MAX_USUAL: u64 = 212_992;

/// The pressure mark to set is this many times what is in use and may be added.
const TCP_MEMORY_ROOM: u64 = 2;

/// The pressure mark is at most the machine's memory divided by this; Linux's default is a 16th.
const TCP_MEMORY_SHARE: u64 = 4;

/// A slower interface limits a run, in Mb/s.
const SPEED_LEAST: u64 = 1000;

/// The smallest MTU of Ethernet, in bytes.
const MTU_USUAL: u64 = 1500;

pub(super) fn judge(network: &Network, machine: &Machine) -> Vec<Finding> {
    let of_each = network.interfaces.iter().enumerate().flat_map(|(number, interface)| {
        [
            numa(network, number, machine),
            Some(link(interface)),
            queues(interface, machine),
            interrupts(interface, machine),
        ]
    });
    let of_all = [
        buffers(network),
        tcp_memory(network, machine),
        network.congestion_control.as_ref().map(|name| Finding::ok("congestion-control", name)),
    ];
    of_each.chain(of_all).flatten().collect()
}

/// Where the workers of a run over the interfaces that were named would be: those of this one.
fn workers(network: &Network, number: usize, machine: &Machine) -> Option<String> {
    let cores = machine.allowed.as_ref().filter(|_| network.are_named)?;
    let interfaces = network.interfaces.iter().map(|interface| topology::Interface {
        name: interface.name.as_str().into(),
        node: interface.node,
    });
    let interfaces: Vec<_> = interfaces.collect();
    let ground = Ground { cores, nodes: &machine.nodes, interfaces: &interfaces };
    let line = ground.in_words(&ground.places(cores.len())).swap_remove(number);
    line.split_once(": ").map(|(_, workers)| format!(": {workers}"))
}

fn numa(network: &Network, number: usize, machine: &Machine) -> Option<Finding> {
    let interface = &network.interfaces[number];
    let allowed = machine.allowed.as_ref()?;
    if machine.nodes.len() <= 1 {
        return machine.nodes.first().map(|_| Finding::ok("numa", "one node"));
    }
    let count = machine.nodes.len();
    let node = interface.node?;
    let (_, near) = machine.nodes.iter().find(|(number, _)| *number == node)?;
    let name = &interface.name;
    if allowed.iter().any(|core| near.contains(core)) {
        let workers = workers(network, number, machine).unwrap_or_default();
        let found = format!("{count} nodes, {name} is on node {node}{workers}");
        return Some(Finding::ok("numa", found));
    }
    Some(Finding::warn(
        "numa",
        format!("{name} is on node {node}, and this process may use no core of it"),
        format!("numactl --cpunodebind={node} inrush ..."),
    ))
}

fn link(interface: &Interface) -> Finding {
    let name = &interface.name;
    if interface.is_missing {
        let found = format!("{name}: there is no such network interface");
        return Finding::bad("interface", found, "ip -brief link");
    }
    let mut words = vec![name.clone()];
    words.extend(interface.speed_mbit.map(|speed| format!("{speed} Mb/s")));
    words.extend(interface.mtu_bytes.map(|mtu| format!("MTU {mtu}")));
    let found = words.join(", ");
    if interface.state.as_deref() == Some("down") {
        let fix = format!("ip link set {name} up");
        return Finding::bad("interface", format!("{found}: it is down"), fix);
    }
    if interface.duplex.as_deref() == Some("half") {
        let fix = format!("ethtool -s {name} duplex full");
        return Finding::warn("interface", format!("{found}: half duplex"), fix);
    }
    if interface.speed_mbit.is_some_and(|speed| speed < SPEED_LEAST) {
        let fix = format!("check the cable and the switch: ethtool {name}");
        return Finding::warn("interface", format!("{found}: below {SPEED_LEAST} Mb/s"), fix);
    }
    if interface.mtu_bytes.is_some_and(|mtu| mtu < MTU_USUAL) {
        let fix = format!("ip link set {name} mtu {MTU_USUAL}, unless a tunnel needs less");
        return Finding::warn("interface", format!("{found}: small packets cost CPU time"), fix);
    }
    Finding::ok("interface", found)
}

fn queues(interface: &Interface, machine: &Machine) -> Option<Finding> {
    let cores = machine.online.as_ref()?.len();
    let (name, queues) = (&interface.name, interface.receive_queues);
    if queues == 0 {
        return None;
    }
    let found = format!("{queues} receive queues for {cores} cores");
    if queues > 1 || cores == 1 || interface.interrupts.is_empty() {
        return Some(Finding::ok("queues", found));
    }
    Some(Finding::warn(
        "queues",
        format!("one receive queue for {cores} cores: one core handles all packets"),
        format!("ethtool -L {name} combined {cores}, if the device has more queues (ethtool -l)"),
    ))
}

fn interrupts(interface: &Interface, machine: &Machine) -> Option<Finding> {
    let online = machine.online.as_ref()?.len();
    let (name, all) = (&interface.name, &interface.interrupts);
    if all.is_empty() {
        return None;
    }
    let cores: BTreeSet<u32> = all.iter().flat_map(|(_, cores)| cores.iter().copied()).collect();
    let (queues, count) = (interface.receive_queues, all.len());
    let found = format!("{count} of {name} on {} cores", cores.len());
    if count == 1 && queues > 1 {
        return Some(Finding::warn(
            "interrupts",
            format!("one interrupt for all {queues} queues of {name}: one core handles them"),
            format!("ethtool -L {name} combined {}, or another driver", queues.min(online)),
        ));
    }
    if queues > 1 && cores.len() == 1 && online > 1 {
        return Some(Finding::warn(
            "interrupts",
            format!("all {count} interrupts of {name} are on one core"),
            "systemctl start irqbalance, or spread /proc/irq/N/smp_affinity_list",
        ));
    }
    Some(Finding::ok("interrupts", found))
}

fn buffers(network: &Network) -> Option<Finding> {
    let (most, rmem) = (network.tcp_rmem_max?, network.rmem_max);
    if most < TCP_RMEM_USUAL {
        return Some(Finding::warn(
            "socket-buffers",
            format!("tcp_rmem allows {} for a connection: less than usual", Binary(most)),
            format!("sysctl -w net.ipv4.tcp_rmem='4096 131072 {TCP_RMEM_USUAL}'"),
        ));
    }
    if let Some(rmem) = rmem.filter(|rmem| *rmem < RMEM_MAX_USUAL) {
        return Some(Finding::warn(
            "socket-buffers",
            format!("rmem_max is {}: less than usual", Binary(rmem)),
            format!("sysctl -w net.core.rmem_max={RMEM_MAX_USUAL}"),
        ));
    }
    Some(Finding::ok("socket-buffers", format!("tcp_rmem up to {}", Binary(most))))
}

/// The pressure mark of the machine's TCP memory, against what is in use and what a run may add:
/// as much as the buffers of all its connections, and no more than streams hold.
fn tcp_memory(network: &Network, machine: &Machine) -> Option<Finding> {
    let (memory, page_bytes) = network.tcp_memory?;
    let (used, mark) = (memory.used_bytes, memory.pressure_bytes?);
    let each = network.tcp_rmem_max.unwrap_or(TCP_RMEM_USUAL);
    let buffers = each.saturating_mul(CONNECTIONS_DEFAULT_MAX as u64);
    let added = buffers.min(STREAM_BYTES_MAX);
    let wanted = used.saturating_add(added);
    let found = format!("{} in use, pressure mark {}", Binary(used), Binary(mark));
    if used <= mark && wanted <= mark {
        return Some(Finding::ok("tcp-memory", found));
    }
    let trouble = if used > mark {
        "the kernel drops received data of every program now".to_owned()
    } else {
        format!("a run may add {}; above the mark the kernel drops received data", Binary(added))
    };
    // tcp_mem has the numbers 3, 4 and 6 parts of a whole when the kernel chooses them.
    let most = machine.memory_bytes.map_or(u64::MAX, |bytes| bytes / TCP_MEMORY_SHARE);
    let pages = wanted.saturating_mul(TCP_MEMORY_ROOM).min(most) / page_bytes.max(1);
    let [low, high] = [pages / 4 * 3, pages.saturating_add(pages / 2)];
    let holders = "see who holds it: ss -tm";
    let fix = match pages.saturating_mul(page_bytes) > mark {
        true => format!("sysctl -w net.ipv4.tcp_mem='{low} {pages} {high}', and {holders}"),
        false => format!("{holders}; give a run fewer connections (--max-connections)"),
    };
    Some(Finding::warn("tcp-memory", format!("{found}: {trouble}"), fix))
}
