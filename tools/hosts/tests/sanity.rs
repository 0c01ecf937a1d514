//! A small host: never above any limit, the same for the same seed, and limited by what is scarce.

use inrush_hosts::{Costs, Course, Findings, Host, simulate};

const HOST: Host = Host {
    processors: 2,
    memory_bytes: 8 << 30,
    interfaces: 1,
    interface_rate: 1.25e9,
    disk_rate: None,
};
const COSTS: Costs = Costs {
    latency_us: 30_000,
    connection_rate: 90e6,
    byte_ns: 0.13,
    request_us: 40.0,
    lock_us: 1.5,
};
const COURSE: Course = Course {
    object_bytes: 64 << 20,
    connections_max: None,
    part_bytes: None,
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
