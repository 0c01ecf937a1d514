//! A small host: never above any limit, the same for the same seed, and limited by what is scarce.

use inrush_hosts::{Costs, Course, Findings, Host, Placement, simulate};

const HOST: Host = Host {
    processors: 2,
    memory_bytes: 8 << 30,
    nodes: 1,
    interfaces: 1,
    interface_rate: 1.25e9,
    disks: 1,
    disk_rate: None,
};
const COSTS: Costs = Costs {
    latency_us: 30_000,
    connection_rate: 90e6,
    byte_ns: 0.13,
    request_us: 40.0,
    lock_us: 1.5,
    remote_factor: 1.5,
    interconnect_rate: 0.5e9,
};
const COURSE: Course = Course {
    object_bytes: 64 << 20,
    connections_max: None,
    part_bytes: None,
    placement: Placement::Near,
    spread: false,
    tls: false,
    time_us: 4_000_000,
    seed: 1,
};

fn run(host: Host, costs: Costs, course: Course) -> Findings {
    let found = simulate(host, costs, course).expect("valid");
    assert!(found.of_line_rate <= 1.001, "above the line rate: {found:?}");
    assert!(found.busiest <= 1.01 && found.lock <= 1.001, "more time than there is: {found:?}");
    assert!(found.objects > 10, "{found:?}");
    found
}

#[test]
fn the_line_is_reached_and_a_seed_gives_one_result() {
    let found = run(HOST, COSTS, COURSE);
    assert!(found.of_line_rate > 0.95 && found.limit == "network interfaces", "{found:?}");
    assert!(found.settled_us < 2_000_000, "{found:?}");
    assert_eq!(found, run(HOST, COSTS, COURSE), "the same seed");
    let other = run(HOST, COSTS, Course { seed: 2, ..COURSE });
    assert_ne!(found.goodput.to_bits(), other.goodput.to_bits(), "another seed");
}

#[test]
fn what_is_scarce_is_the_limit() {
    // Long enough that what fills the slots at first counts for little.
    let long = Course { time_us: 30_000_000, ..COURSE };
    let disk = run(Host { disk_rate: Some(0.4e9), ..HOST }, COSTS, long);
    assert!(disk.limit == "disks" && disk.goodput < 0.42e9, "{disk:?}");
    let slow = run(HOST, Costs { byte_ns: 4.0, ..COSTS }, COURSE);
    assert!(slow.limit == "processors" && slow.goodput < 0.55e9, "{slow:?}");
    let few = run(HOST, COSTS, Course { connections_max: Some(8), ..COURSE });
    assert!(few.limit == "bound of connections" && few.goodput < 0.6e9, "{few:?}");
}

#[test]
fn all_interfaces_and_their_nodes_bring_more_than_one() {
    // Two interfaces of half the rate, each on a node of its own.
    let host = Host { processors: 4, nodes: 2, interfaces: 2, interface_rate: 0.6e9, ..HOST };
    let with = |placement| run(host, COSTS, Course { placement, ..COURSE });
    let route = with(Placement::Route);
    assert!(route.limit == "one of the interfaces" && route.goodput < 0.61e9, "{route:?}");
    let near = with(Placement::Near);
    assert!(near.limit == "network interfaces" && near.remote == 0.0, "{near:?}");
    // Cores 0 and 1 are on the first node, and have an interface each: half goes to the other.
    let anywhere = with(Placement::Anywhere);
    assert!((anywhere.remote - 0.5).abs() < 0.1, "{anywhere:?}");
    assert!(anywhere.processors > near.processors * 1.1, "{anywhere:?} {near:?}");
    let narrow = Costs { interconnect_rate: 0.2e9, ..COSTS };
    let narrow = run(host, narrow, Course { placement: Placement::Anywhere, ..COURSE });
    assert!(narrow.limit == "way between the nodes", "{narrow:?}");
    assert!(narrow.goodput < near.goodput * 0.9, "{narrow:?}");
}

#[test]
fn spread_objects_use_all_disks() {
    let host = Host { disks: 3, disk_rate: Some(0.2e9), ..HOST };
    let long = Course { time_us: 20_000_000, ..COURSE };
    let one = run(host, COSTS, long);
    assert!(one.limit == "one of the disks" && one.goodput < 0.21e9, "{one:?}");
    let all = run(host, COSTS, Course { spread: true, ..long });
    assert!(all.limit == "disks" && all.goodput > 0.54e9, "{all:?}");
}
