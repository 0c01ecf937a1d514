//! Tests of the findings: facts are planted, one fault at a time.

use super::facts::{
    Block, Disk, Grant, Interface, Keys, Machine, Network, Proxy, RingTried, Service, Trouble,
};
use super::*;
use crate::sys::choice::RingChoice;
use crate::sys::tcp_memory::TcpMemory;

fn machine() -> Machine {
    Machine {
        release: Some("6.8.0-1021-aws".to_owned()),
        ring: Some(RingTried::Made("DEFER_TASKRUN".to_owned())),
        io_uring_disabled: Some(0),
        seccomp: Some(0),
        capabilities: Some(0),
        locked_bytes: Some(u64::MAX),
        ring_choice: Some(Ok(RingChoice::Auto)),
        open_files: Some(1 << 20),
        address_bytes: Some(u64::MAX),
        file_bytes: Some(u64::MAX),
        pipe_bytes_max: Some(1 << 20),
        pipe_pages_soft: Some(16_384),
        huge_pages: Some("madvise".to_owned()),
        memory_bytes: Some(64 << 30),
        available_bytes: Some(60 << 30),
        cgroup_bytes: None,
        quota_cores: None,
        allowed: Some((0..16).collect()),
        online: Some((0..16).collect()),
        nodes: vec![(0, (0..8).collect()), (1, (8..16).collect())],
    }
}

fn interface() -> Interface {
    Interface {
        name: "ens5".to_owned(),
        is_missing: false,
        state: Some("up".to_owned()),
        speed_mbit: Some(100_000),
        duplex: Some("full".to_owned()),
        mtu_bytes: Some(9001),
        receive_queues: 8,
        interrupts: (0..8).map(|queue| (40 + queue, vec![queue])).collect(),
        node: Some(1),
    }
}

fn disk() -> Disk {
    Disk {
        path: "/mnt".to_owned(),
        file_system: Some("xfs".to_owned()),
        in_the_way: None,
        writable: Some(Ok(())),
        direct: Some(Ok(())),
        direct_alignment: Some(512),
        free_bytes: Some(900 << 30),
        total_bytes: Some(1000 << 30),
        inodes: Some((1_000_000, 2_000_000)),
        needed_bytes: Some(1 << 30),
        device: Some(Block {
            name: "md0".to_owned(),
            scheduler: Some("none".to_owned()),
            rotational: Some(false),
            raid: Some("raid0".to_owned()),
            raid_disks: Some(4),
            degraded: Some(0),
        }),
    }
}

fn service() -> Service {
    let keys =
        Keys { from: "from the environment".to_owned(), left_seconds: Some(3600), renews: false };
    Service {
        credentials: Some(Ok(Some(keys))),
        access_grant: Some(Ok(Some(Grant {
            scope: "s3://bkt/*".to_owned(),
            account: "111122223333".to_owned(),
            left_seconds: 3600,
        }))),
        bucket: "bkt".to_owned(),
        host: "s3.example".to_owned(),
        proxy: None,
        addresses: Some(Ok(vec!["192.0.2.1:443".to_owned(), "192.0.2.2:443".to_owned()])),
        answered: Some(Ok(())),
        is_tls: true,
        trusts_anyone: false,
        trusted: Some(Ok(())),
        server_ahead_seconds: Some(-1),
        region: "us-east-1".to_owned(),
        bucket_region: None,
        is_multi_region: false,
        object: Some(("s3://bkt/k".to_owned(), Ok(9))),
        led_to: None,
    }
}

/// Of a machine with 64 GiB.
fn tcp_memory() -> TcpMemory {
    TcpMemory {
        used_bytes: 10 << 20,
        pressure_bytes: Some(4 << 30),
        limit_bytes: Some(6 << 30),
        ..TcpMemory::default()
    }
}

fn healthy() -> Facts {
    let network = Network {
        interfaces: vec![interface()],
        are_named: false,
        rmem_max: Some(212_992),
        tcp_rmem_max: Some(6 << 20),
        tcp_memory: Some((tcp_memory(), 4096)),
        congestion_control: Some("cubic".to_owned()),
    };
    Facts { machine: machine(), network, disk: Some(disk()), service: Some(service()) }
}

/// What is not ok once these facts are planted: one finding.
fn found(plant: impl FnOnce(&mut Facts)) -> Finding {
    let mut facts = healthy();
    plant(&mut facts);
    let diagnosis = Diagnosis::of(&facts);
    let wrong: Vec<_> =
        diagnosis.checks.iter().filter(|found| found.verdict != Verdict::Ok).cloned().collect();
    let [one] = wrong.as_slice() else { panic!("one was expected: {wrong:#?}") };
    assert_eq!((diagnosis.verdict, diagnosis.warn + diagnosis.bad), (one.verdict, 1));
    assert_eq!(diagnosis.exit_code, u8::from(one.verdict == Verdict::Bad));
    one.clone()
}

#[track_caller]
fn check(name: &str, verdict: Verdict, words: [&str; 2], plant: impl FnOnce(&mut Facts)) {
    let one = found(plant);
    assert_eq!((one.check, one.verdict), (name, verdict), "{one:?}");
    let fix = one.fix.as_deref().expect("what to do");
    assert!(one.found.contains(words[0]) && fix.contains(words[1]), "{one:?}");
}

fn trouble(why: &str) -> Trouble {
    Trouble { why: why.to_owned(), advice: Some("mend it".to_owned()) }
}

#[test]
fn a_healthy_machine_is_ok_in_every_check() {
    let diagnosis = Diagnosis::of(&healthy());
    let names: Vec<&str> = diagnosis.checks.iter().map(|found| found.check).collect();
    assert_eq!(names, CHECKS.map(|(name, _)| name));
    let wrong: Vec<_> = diagnosis.checks.iter().filter(|found| found.fix.is_some()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!((diagnosis.verdict, diagnosis.exit_code), (Verdict::Ok, 0));
    assert_eq!(diagnosis.summary(), format!("{} ok, 0 warn, 0 bad", CHECKS.len()));
}

#[test]
fn what_is_not_known_is_no_finding() {
    assert!(Diagnosis::of(&Facts::default()).checks.is_empty());
}

#[test]
fn the_guide_has_every_check() {
    let page = crate::guide::topic("doctor").expect("a page").text;
    for (name, about) in CHECKS {
        assert!(page.contains(&format!("| `{name}` | {about} |\n")), "{name}");
    }
}

#[test]
fn faults_of_the_ring() {
    use Verdict::{Bad, Warn};
    let refused = RingTried::Refused { cause: "no".to_owned(), advice: "allow it".to_owned() };
    check("io_uring", Warn, ["disabled is 2", "sysctl -w kernel.io_uring_disabled=0"], |facts| {
        facts.machine.io_uring_disabled = Some(2);
    });
    let asked = refused.clone();
    check("io_uring", Bad, ["(no), and --ring or INRUSH_RING asks", "allow it"], |facts| {
        facts.machine.ring = Some(asked);
        facts.machine.ring_choice = Some(Ok(RingChoice::IoUring));
    });
    check("io_uring", Bad, ["is 2, and --ring or INRUSH_RING asks", "sysctl"], |facts| {
        facts.machine.io_uring_disabled = Some(2);
        facts.machine.ring_choice = Some(Ok(RingChoice::IoUring));
    });
    check("io_uring", Bad, ["'x' is not a ring", "expected auto"], |facts| {
        let (why, advice) = ("'x' is not a ring".to_owned(), Some("expected auto".to_owned()));
        facts.machine.ring_choice = Some(Err(Trouble { why, advice }));
    });
    let unasked = refused.clone();
    fine(|facts| {
        facts.machine.ring = Some(unasked);
        facts.machine.ring_choice = Some(Ok(RingChoice::Epoll));
    });
    let other = refused.clone();
    check("io_uring", Warn, ["not available (no)", "allow it"], |facts| {
        facts.machine.ring = Some(other);
    });
    let mut facts = healthy();
    facts.machine.ring = Some(refused);
    facts.machine.seccomp = Some(2);
    let diagnosis = Diagnosis::of(&facts);
    assert!(diagnosis.checks.iter().any(|one| one.check == "seccomp" && one.verdict == Warn));
}

#[test]
fn limits_of_the_process() {
    use Verdict::{Bad, Warn};
    check("locked-memory", Warn, ["64 KiB", "ulimit -l"], |facts| {
        facts.machine.locked_bytes = Some(64 << 10);
    });
    // 16 workers have 48 of them.
    check("open-files", Bad, ["79 files", "ulimit -Hn"], |facts| {
        facts.machine.open_files = Some(79);
    });
    check("open-files", Warn, ["80 files may be open: too few", "ulimit -Hn"], |facts| {
        facts.machine.open_files = Some(80);
    });
    check("address-space", Bad, ["255 MiB, and a run needs about 384 MiB", "ulimit -v"], |facts| {
        facts.machine.address_bytes = Some(255 << 20);
    });
    check("file-size", Warn, ["2 GiB at most: larger objects fail", "ulimit -f"], |facts| {
        facts.machine.file_bytes = Some(2 << 30);
    });
    check("file-size", Bad, ["1 MiB at most, and the object has 1 GiB", "ulimit -f"], |facts| {
        facts.machine.file_bytes = Some(1 << 20);
    });
    check("open-files", Warn, ["too few", "ulimit -Hn"], |facts| {
        facts.machine.open_files = Some(1024);
    });
}

#[test]
fn faults_of_the_machine() {
    use Verdict::{Bad, Warn};
    check("kernel", Warn, ["5.15", "6.1"], |facts| {
        facts.machine.release = Some("5.15.0-generic".to_owned());
    });
    check("pipes", Warn, ["64 KiB at most", "fs.pipe-max-size=1048576"], |facts| {
        facts.machine.pipe_bytes_max = Some(64 << 10);
    });
    check("pipes", Warn, ["together", "fs.pipe-user-pages-soft=16384"], |facts| {
        facts.machine.pipe_pages_soft = Some(64);
    });
    check("huge-pages", Warn, ["off", "madvise"], |facts| {
        facts.machine.huge_pages = Some("never".to_owned());
    });
    check("memory", Warn, ["cgroup allows 256 MiB", "--memory"], |facts| {
        facts.machine.cgroup_bytes = Some(256 << 20);
    });
    check("memory", Bad, ["cgroup allows 8 MiB", "--memory"], |facts| {
        facts.machine.cgroup_bytes = Some(8 << 20);
    });
    check("cpu-quota", Warn, ["2.5 cores of 16", "--cpus"], |facts| {
        facts.machine.quota_cores = Some(2.5);
    });
    check("cores", Warn, ["1 of 16", "taskset -c 0-15"], |facts| {
        facts.machine.allowed = Some(vec![9]);
    });
    // A superuser's pipes and locked memory have no bounds.
    let mut facts = healthy();
    facts.machine.capabilities = Some(u64::MAX);
    facts.machine.locked_bytes = Some(0);
    facts.machine.pipe_pages_soft = Some(1);
    assert_eq!(Diagnosis::of(&facts).exit_code, 0);
    assert_eq!(Diagnosis::of(&facts).warn, 0);
}

#[test]
fn interfaces_that_are_named_are_reported_with_their_workers() {
    let mut facts = healthy();
    facts.network.are_named = true;
    let other = Interface { name: "ens6".to_owned(), node: Some(0), ..interface() };
    facts.network.interfaces.push(other);
    let diagnosis = Diagnosis::of(&facts);
    let of = |check: &str| {
        let found = diagnosis.checks.iter().filter(|found| found.check == check);
        found.map(|found| found.found.clone()).collect::<Vec<_>>()
    };
    let numa = [
        "2 nodes, ens5 is on node 1: 8 workers on cores 8-15",
        "2 nodes, ens6 is on node 0: 8 workers on cores 0-7",
    ];
    assert_eq!(of("numa"), numa);
    assert_eq!((of("interface").len(), of("socket-buffers").len()), (2, 1));
}

#[test]
fn faults_of_the_network() {
    use Verdict::{Bad, Warn};
    fn at(facts: &mut Facts) -> &mut Interface {
        &mut facts.network.interfaces[0]
    }
    check("numa", Warn, ["no core of it", "numactl --cpunodebind=2"], |facts| {
        facts.machine.nodes.push((2, vec![30]));
        at(facts).node = Some(2);
    });
    check("interface", Bad, ["there is no such", "ip -brief link"], |facts| {
        at(facts).is_missing = true;
    });
    check("interface", Bad, ["down", "ip link set ens5 up"], |facts| {
        at(facts).state = Some("down".to_owned());
    });
    check("interface", Warn, ["100 Mb/s", "ethtool ens5"], |facts| {
        at(facts).speed_mbit = Some(100);
    });
    check("interface", Warn, ["half duplex", "ethtool"], |facts| {
        at(facts).duplex = Some("half".to_owned());
    });
    check("interface", Warn, ["MTU 1280", "mtu 1500"], |facts| {
        at(facts).mtu_bytes = Some(1280);
    });
    check("queues", Warn, ["one receive queue for 16", "ethtool -L ens5 combined 16"], |facts| {
        at(facts).receive_queues = 1;
        at(facts).interrupts.truncate(1);
    });
    check("interrupts", Warn, ["one interrupt for all 8 queues", "ethtool -L"], |facts| {
        at(facts).interrupts.truncate(1);
    });
    check("interrupts", Warn, ["8 interrupts of ens5 are on one core", "irqbalance"], |facts| {
        at(facts).interrupts.iter_mut().for_each(|(_, cores)| *cores = vec![0]);
    });
    check("socket-buffers", Warn, ["rmem_max is 64 KiB", "net.core.rmem_max=212992"], |facts| {
        facts.network.rmem_max = Some(64 << 10);
    });
    check("socket-buffers", Warn, ["tcp_rmem", "net.ipv4.tcp_rmem="], |facts| {
        facts.network.tcp_rmem_max = Some(1 << 20);
    });
}

#[test]
fn faults_of_tcp_memory() {
    use Verdict::Warn;
    fn set(facts: &mut Facts, used_bytes: u64, mark_bytes: u64) {
        let (memory, _) = facts.network.tcp_memory.as_mut().expect("known");
        (memory.used_bytes, memory.pressure_bytes) = (used_bytes, Some(mark_bytes));
    }
    let now = "5 GiB in use, pressure mark 4 GiB: the kernel drops received data of every program";
    // Twice what is in use and what a run may add: 10.5 GiB in pages of 4 KiB.
    let more = "sysctl -w net.ipv4.tcp_mem='2064384 2752512 4128768', and see who holds it: ss -tm";
    check("tcp-memory", Warn, [now, more], |facts| set(facts, 5 << 30, 4 << 30));
    let soon = "4 MiB in use, pressure mark 100 MiB: a run may add 256 MiB;";
    let more = "net.ipv4.tcp_mem='99840 133120 199680'";
    check("tcp-memory", Warn, [soon, more], |facts| set(facts, 4 << 20, 100 << 20));
    // A small machine has no more to give, and of one that is full others must give back.
    check("tcp-memory", Warn, [soon, "tcp_mem='98304 131072 196608'"], |facts| {
        set(facts, 4 << 20, 100 << 20);
        facts.machine.memory_bytes = Some(2 << 30);
        facts.machine.available_bytes = Some(1 << 30);
    });
    check(
        "tcp-memory",
        Warn,
        ["pressure mark 16 GiB", "see who holds it: ss -tm; give"],
        |facts| {
            set(facts, 17 << 30, 16 << 30);
        },
    );
    // Just enough.
    fine(|facts| set(facts, 4 << 20, 260 << 20));
    // Buffers of 64 KiB for each of 1024 connections are less than streams may hold.
    let verdict = |mark_bytes| {
        let mut facts = healthy();
        set(&mut facts, 4 << 20, mark_bytes);
        facts.network.tcp_rmem_max = Some(64 << 10);
        let mut found = Diagnosis::of(&facts).checks.into_iter();
        found.find(|found| found.check == "tcp-memory").expect("one").verdict
    };
    assert_eq!((verdict(67 << 20), verdict(68 << 20)), (Warn, Verdict::Ok));
}

#[test]
fn faults_of_the_destination() {
    use Verdict::{Bad, Warn};
    fn at(facts: &mut Facts) -> &mut Disk {
        facts.disk.as_mut().expect("one")
    }
    fn device(facts: &mut Facts) -> &mut Block {
        at(facts).device.as_mut().expect("one")
    }
    check("destination", Bad, ["Read-only", "findmnt"], |facts| {
        at(facts).writable = Some(Err("Read-only file system".to_owned()));
    });
    check("destination", Bad, ["is a file", "mend it"], |facts| {
        at(facts).in_the_way = Some(trouble("/mnt is a file, not a folder"));
    });
    check("direct-io", Warn, ["no O_DIRECT: Invalid", "page cache"], |facts| {
        at(facts).direct = Some(Err("Invalid argument".to_owned()));
    });
    check("direct-io", Warn, ["memory", "ext4"], |facts| {
        at(facts).file_system = Some("tmpfs".to_owned());
    });
    check("direct-io", Bad, ["16384 bytes", "another"], |facts| {
        at(facts).direct_alignment = Some(16_384);
    });
    check("space", Bad, ["the object has 1 GiB", "df -h"], |facts| {
        at(facts).free_bytes = Some(500 << 20);
    });
    check("space", Bad, ["4 MiB of", "df -h"], |facts| {
        at(facts).needed_bytes = None;
        at(facts).free_bytes = Some(4 << 20);
    });
    check("space", Warn, ["20 GiB of", "df -h"], |facts| at(facts).free_bytes = Some(20 << 30));
    check("space", Bad, ["0 of 2000000 inodes", "df -i"], |facts| {
        at(facts).inodes = Some((0, 2_000_000));
    });
    check("block-device", Bad, ["raid0 of 4: a disk is missing", "mdadm"], |facts| {
        device(facts).degraded = Some(1);
    });
    check("block-device", Warn, ["scheduler bfq", "/sys/block/nvme1n1/queue"], |facts| {
        device(facts).name = "nvme1n1".to_owned();
        device(facts).scheduler = Some("bfq".to_owned());
    });
    check("block-device", Warn, ["turns", "NVMe"], |facts| {
        device(facts).name = "sda".to_owned();
        device(facts).rotational = Some(true);
    });
}

/// Errors of a connection name its address themselves.
#[test]
fn an_address_is_printed_once() {
    for (addresses, host, why, expected) in [
        (&["h:1"][..], "h:1", "h:1: refused", "h:1: refused"),
        (&["192.0.2.1:443"], "h", "192.0.2.1:443: refused", "h (192.0.2.1:443): refused"),
        (&["192.0.2.1:443", "b"], "h", "192.0.2.1:443: refused", "h: 192.0.2.1:443: refused"),
        (&["192.0.2.1:443"], "h", "h: refused", "h (192.0.2.1:443): refused"),
    ] {
        let one = found(|facts| {
            let service = facts.service.as_mut().expect("one");
            let addresses = addresses.iter().map(|at| (*at).to_owned()).collect();
            service.addresses = Some(Ok(addresses));
            service.host = host.to_owned();
            service.answered = Some(Err(trouble(why)));
            service.object = None;
        });
        assert_eq!(one.found, expected);
    }
}

#[test]
fn faults_of_the_service() {
    use Verdict::{Bad, Warn};
    fn at(facts: &mut Facts) -> &mut Service {
        facts.service.as_mut().expect("one")
    }
    fn left(facts: &mut Facts, seconds: i64) {
        let from = "from the profile".to_owned();
        let keys = Keys { from, left_seconds: Some(seconds), renews: false };
        at(facts).credentials = Some(Ok(Some(keys)));
    }
    check("credentials", Bad, ["none found", "mend it"], |facts| {
        at(facts).credentials = Some(Err(trouble("none found")));
    });
    check("credentials", Bad, ["expired 2m ago", "sso login"], |facts| left(facts, -120));
    check("credentials", Warn, ["expire in 1m", "sso login"], |facts| left(facts, 60));
    check("access-grant", Bad, ["none found", "mend it"], |facts| {
        at(facts).access_grant = Some(Err(trouble("none found")));
    });
    check("access-grant", Warn, ["none for the source", "grant with READ"], |facts| {
        at(facts).access_grant = Some(Ok(None));
    });
    check("endpoint", Bad, ["no such name", "mend it"], |facts| {
        at(facts).addresses = Some(Err(trouble("no such name")));
    });
    check("endpoint", Bad, ["192.0.2.1:443 and 1 more): refused", "mend it"], |facts| {
        at(facts).answered = Some(Err(trouble("refused")));
        at(facts).object = None;
    });
    check(
        "endpoint",
        Bad,
        ["by the proxy p:1 (192.0.2.1:443 and 1 more): gone", "look"],
        |facts| {
            let (place, advice) = ("p:1".to_owned(), "look at it".to_owned());
            at(facts).proxy = Some(Proxy { place, advice });
            let why = Trouble { why: "gone".to_owned(), advice: None };
            at(facts).answered = Some(Err(why));
            at(facts).object = None;
        },
    );
    check("tls", Bad, ["unknown issuer", "mend it"], |facts| {
        at(facts).trusted = Some(Err(trouble("unknown issuer")));
    });
    check("tls", Warn, ["not verified (--no-verify-ssl)", "omit"], |facts| {
        at(facts).trusts_anyone = true;
    });
    check("clock", Bad, ["16h behind the server's: S3 refuses", "timedatectl"], |facts| {
        at(facts).server_ahead_seconds = Some(16 * 3600);
    });
    check(
        "clock",
        Warn,
        ["20m behind the server's: requests are signed", "timedatectl"],
        |facts| {
            at(facts).server_ahead_seconds = Some(1200);
        },
    );
    check("clock", Warn, ["clock is 2m ahead of the server's", "timedatectl"], |facts| {
        at(facts).server_ahead_seconds = Some(-120);
    });
    check("region", Warn, ["in eu-west-1, not in us-east-1", "--region eu-west-1"], |facts| {
        at(facts).bucket_region = Some("eu-west-1".to_owned());
    });
    check("object", Bad, ["403 AccessDenied", "mend it"], |facts| {
        at(facts).object = Some(("s3://bkt/k".to_owned(), Err(trouble("403 AccessDenied"))));
    });
}

#[test]
fn a_multi_region_access_point_is_in_no_region() {
    let region = |credentials| {
        let mut facts = healthy();
        let service = facts.service.as_mut().expect("one");
        (service.is_multi_region, service.credentials) = (true, Some(credentials));
        let mut checks = Diagnosis::of(&facts).checks.into_iter();
        let found = checks.find(|found| found.check == "region").expect("a finding");
        assert_eq!(found.verdict, Verdict::Ok);
        found.found
    };
    let start = "bkt is a multi-region access point, and requests are";
    let keys = Keys { from: "given".to_owned(), left_seconds: None, renews: false };
    assert_eq!(region(Ok(Some(keys))), format!("{start} signed for all regions (SigV4A)"));
    assert_eq!(region(Ok(None)), format!("{start} not signed"));
    assert_eq!(region(Err(trouble("no keys"))), format!("{start} not signed"));
}

#[test]
fn texts_of_the_kernel_are_read() {
    use super::parse::*;
    assert_eq!(list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
    assert_eq!(list(""), Some(vec![]));
    assert_eq!((list("a"), list("3-1"), list("0-4000000000")), (None, None, None));
    let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n\
                  Max locked memory  65536  unlimited  bytes\n";
    assert_eq!(hard_limit(limits, "Max open files"), Some(4096));
    assert_eq!(soft_limit(limits, "Max open files"), Some(1024));
    assert_eq!(hard_limit(limits, "Max locked memory"), Some(u64::MAX));
    assert_eq!(soft_limit(limits, "Max other"), None);
    assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
    assert_eq!(chosen("none\n").as_deref(), Some("none"));
    assert_eq!(chosen(" "), None);
    assert_eq!(
        (quota("250000 100000"), quota("max 100000"), quota("-1 9")),
        (Some(2.5), None, None)
    );
    let route = "Iface Destination\nens5 000200C0 0\nens6 00000000 010200C0\n";
    assert_eq!(default_interface(route).as_deref(), Some("ens6"));
    assert_eq!(kibibytes("MemTotal:  16 kB\n", "MemTotal"), Some(16_384));
    assert_eq!(field("CapEff:\t00ff\n", "CapEff"), Some("00ff"));
    let groups = "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/c\n";
    assert_eq!(cgroups(groups, "memory"), ["/memory/a/b", "/memory/a", "/memory", "/c", ""]);
    assert_eq!(cgroups(groups, "cpu"), ["/cpu", "/c", ""]);
}

/// Nothing is wrong once these facts are planted: they are next to a fault.
#[track_caller]
fn fine(plant: impl FnOnce(&mut Facts)) {
    let mut facts = healthy();
    plant(&mut facts);
    let diagnosis = Diagnosis::of(&facts);
    let wrong: Vec<_> =
        diagnosis.checks.iter().filter(|found| found.verdict != Verdict::Ok).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_next_to_a_fault_of_the_machine_is_none() {
    fine(|facts| facts.machine.release = Some("6.1.0".to_owned()));
    // Only privileged processes may, and this is one.
    fine(|facts| {
        facts.machine.io_uring_disabled = Some(1);
        facts.machine.capabilities = Some(1 << 21);
    });
    check("io_uring", Verdict::Warn, ["disabled is 1", "sysctl"], |facts| {
        facts.machine.io_uring_disabled = Some(1);
    });
    // It is off, so the filter is not why it is refused.
    check("io_uring", Verdict::Warn, ["disabled is 2", "sysctl"], |facts| {
        facts.machine.io_uring_disabled = Some(2);
        facts.machine.seccomp = Some(2);
        let (cause, advice) = ("no".to_owned(), "allow it".to_owned());
        facts.machine.ring = Some(RingTried::Refused { cause, advice });
    });
    fine(|facts| facts.machine.seccomp = Some(2));
    // 0 is no bound, and a privileged process has none.
    fine(|facts| facts.machine.pipe_pages_soft = Some(0));
    fine(|facts| {
        facts.machine.pipe_bytes_max = Some(64 << 10);
        facts.machine.capabilities = Some(1 << 24);
    });
    fine(|facts| facts.machine.open_files = Some(u64::MAX));
    // The kernel writes a number beyond all memory where a cgroup has no limit.
    let mut facts = healthy();
    facts.machine.cgroup_bytes = Some(1 << 62);
    let diagnosis = Diagnosis::of(&facts);
    let memory = diagnosis.checks.iter().find(|found| found.check == "memory");
    assert_eq!(memory.expect("one").found, "the machine has 64 GiB, 60 GiB available");
    fine(|facts| facts.machine.quota_cores = Some(16.0));
}

#[test]
fn what_is_next_to_another_fault_is_none() {
    // A virtual interface has one queue and no interrupts of its own.
    fine(|facts| {
        let interface = facts.network.interfaces.first_mut().expect("one");
        interface.receive_queues = 1;
        interface.interrupts.clear();
    });
    fine(|facts| {
        let interface = facts.network.interfaces.first_mut().expect("one");
        (interface.speed_mbit, interface.mtu_bytes) = (Some(1000), Some(1500));
    });
    // A virtual disk says that it turns, and does not know.
    for name in ["vda", "md0"] {
        fine(|facts| {
            let device = facts.disk.as_mut().and_then(|disk| disk.device.as_mut()).expect("one");
            (device.name, device.rotational) = (name.to_owned(), Some(true));
        });
    }
    check("space", Verdict::Warn, ["9999 of 2000000 inodes", "df -i"], |facts| {
        facts.disk.as_mut().expect("one").inodes = Some((9_999, 2_000_000));
    });
    // A file system without inodes of a fixed number has 0 of 0.
    fine(|facts| facts.disk.as_mut().expect("one").inodes = Some((0, 0)));
    let keys = |facts: &mut Facts, seconds| {
        let renews = seconds == Some(60);
        let keys = Keys { from: "from somewhere".to_owned(), left_seconds: seconds, renews };
        facts.service.as_mut().expect("one").credentials = Some(Ok(Some(keys)));
    };
    check("credentials", Verdict::Bad, ["expired 0s ago", "sso"], |facts| keys(facts, Some(0)));
    fine(|facts| keys(facts, Some(15 * 60)));
    // Of a session of aws login, whose keys are valid for 15 minutes at most.
    fine(|facts| keys(facts, Some(60)));
    fine(|facts| keys(facts, None));
    fine(|facts| facts.service.as_mut().expect("one").server_ahead_seconds = Some(59));
    fine(|facts| {
        let service = facts.service.as_mut().expect("one");
        service.bucket_region = Some(service.region.clone());
    });
}
