//! `inrush doctor` with the real program: each fault that is planted is found, with what mends it,
//! and nothing is said of what is well. /proc and /sys are a folder of the test's, or the
//! machine's own under real limits.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to other tests")]
mod matrix;
#[path = "../common/mount.rs"]
#[expect(dead_code, reason = "what is full need not be read-only")]
mod mount;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/python.rs"]
mod python;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "this test asks in another way than `get`")]
mod served;
#[path = "../common/skip.rs"]
mod skip;
mod tree;
#[path = "../common/without.rs"]
mod without;

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use inrush_origin::{Config, Credentials, DeadAddress, Fault, FaultPlan, Match, Origin, TlsConfig};
use serde_json::Value;

use matrix::Objects;
use mount::Mount;
use program::{Program, Run};
use served::{ACCESS_KEY, SECRET, config, start};
use tree::Tree;
use without::without;

const SOURCE: &str = "s3://lab/train/";

fn objects() -> Objects {
    [("train/", 0), ("train/a", 7_001)]
        .map(|(key, length)| (key.to_owned(), vec![7; length]))
        .into()
}

fn origin() -> Origin {
    start(config(&objects()))
}

/// `doctor --json` with these operands, on this machine.
fn doctor<W: AsRef<OsStr>>(tree: &Tree, words: impl IntoIterator<Item = W>) -> Program {
    let program = Program::new(["doctor", "--json"]).with(words);
    program.set("INRUSH_DOCTOR_ROOT", tree.path()).set("INRUSH_RING", "auto")
}

fn asking(tree: &Tree, source: &str, origin: &Origin) -> Program {
    doctor(tree, [source]).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

/// The finding of this check.
#[track_caller]
fn finding(run: &Run, check: &str) -> Value {
    let document = run.json();
    let checks = document["checks"].as_array().expect("findings");
    let found = checks.iter().find(|found| found["check"] == check);
    found.unwrap_or_else(|| panic!("{check} was expected\n{run}")).clone()
}

/// Fails unless exactly this check is not ok, with these words, and the exit code says so.
#[track_caller]
fn alone(run: Run, check: &str, verdict: &str, words: &str, fix: &str) {
    let run = run.expect(i32::from(verdict == "bad"));
    let document = run.json();
    let checks = document["checks"].as_array().expect("findings");
    let wrong: Vec<_> = checks.iter().filter(|found| found["verdict"] != "ok").collect();
    let [one] = wrong.as_slice() else { panic!("one was expected: {wrong:#?}\n{run}") };
    assert_eq!((&one["check"], &one["verdict"]), (&check.into(), &verdict.into()), "{run}");
    let has =
        |field: &str, words: &str| one[field].as_str().is_some_and(|text| text.contains(words));
    assert!(has("found", words) && has("fix", fix), "{one:#}\n{run}");
    run.check(!run.stdout.contains(SECRET), "no secret is printed");
}

/// One fault of the machine in the planted tree.
#[track_caller]
fn planted(check: &str, verdict: &str, words: &str, fix: &str, plant: impl FnOnce(&Tree)) {
    let tree = Tree::healthy();
    plant(&tree);
    alone(doctor(&tree, [""; 0]).run(), check, verdict, words, fix);
}

#[test]
fn a_configuration_that_is_a_pipe_is_read_once() {
    let (tree, origin) = (Tree::healthy(), origin());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
    let config = format!(
        "[default]\nregion = us-east-1\nendpoint_url = {}\naws_access_key_id = {ACCESS_KEY}\n\
         aws_secret_access_key = {SECRET}\n",
        origin.url()
    );
    let program = doctor(&tree, [SOURCE]).set("AWS_CONFIG_FILE", &path);
    // Where nobody reads, it ends with the process of the tests.
    std::thread::spawn(move || fs::write(path, config));
    let run = program.run().expect(0);
    for check in ["credentials", "endpoint", "region"] {
        run.check(finding(&run, check)["verdict"] == "ok", check);
    }
    run.check(!run.stdout.contains(SECRET), "no secret is printed");
}

#[test]
fn the_object_of_a_glob_matches_it() {
    let tree = Tree::healthy();
    // Those that match come late.
    let other = (0..1500).map(|number| (format!("train/a{number:04}"), vec![7; 10]));
    let wanted = [("train/b.tar".to_owned(), vec![7; 20])];
    let origin = start(config(&other.chain(wanted).collect()));
    let run = asking(&tree, "s3://lab/train/*.tar", &origin).run().expect(0);
    assert_eq!(finding(&run, "object")["found"], "s3://lab/train/b.tar can be read", "{run}");
    let run = asking(&tree, "s3://lab/train/*.zip", &origin).run().expect(1);
    let found = finding(&run, "object");
    let says = found["found"].as_str().is_some_and(|text| text.contains("no object that matches"));
    run.check(says, "no object was asked for");
}

#[test]
fn what_it_waits_for_is_reported_meanwhile() {
    let tree = Tree::healthy();
    let folder = tempfile::tempdir().expect("a folder");
    // Nobody writes to it.
    let pipe = folder.path().join("config");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
    let stall = Fault::StallBeforeHead { duration: None };
    let faults = FaultPlan::none().with_rule(Match::default(), stall);
    let silent = start(Config { faults, ..config(&objects()) });
    let waits = |program: Program, line: &str| {
        let stderr = program.home().join("stderr");
        let mut running = program.start();
        let has_line = || fs::read_to_string(&stderr).unwrap_or_default().contains(line);
        assert!(running.until(has_line), "{line}\n{}", running.wait());
    };
    waits(asking(&tree, SOURCE, &silent), "waiting for 127.0.0.1:");
    let line = format!("waiting for {} to be readable", pipe.display());
    waits(asking(&tree, SOURCE, &silent).set("AWS_CONFIG_FILE", &pipe), &line);
}

#[test]
fn interfaces_that_are_named_are_reported_with_their_workers() {
    let tree = Tree::healthy();
    tree.plant("sys/devices/system/node/node0/cpulist", "0-7");
    tree.plant("sys/devices/system/node/node1/cpulist", "8-15");
    tree.plant("sys/class/net/ens5/device/numa_node", "1");
    tree.plant("sys/class/net/ens6/device/numa_node", "0");
    tree.plant("proc/self/net/dev", "  ens5: 1 2\n  ens6: 3 4\n");
    let run = doctor(&tree, ["--interface", "ens6,ens5"]).run().expect(0);
    let document = run.json();
    let checks = document["checks"].as_array().expect("findings").iter();
    let numa = checks.filter(|found| found["check"] == "numa").map(|found| &found["found"]);
    let expected = [
        "2 nodes, ens6 is on node 0: 8 workers on cores 0-7",
        "2 nodes, ens5 is on node 1: 8 workers on cores 8-15",
    ];
    assert!(numa.eq(expected), "{run}");
    // By the default route nothing is known of workers.
    let run = doctor(&tree, [""; 0]).run().expect(0);
    run.check(finding(&run, "numa")["found"] == "2 nodes, ens5 is on node 1", "the default route");
    let run = doctor(&tree, ["--interface", "ens5,ens7"]).run();
    alone(run, "interface", "bad", "ens7: there is no such network interface", "ip -brief link");
}

#[test]
fn a_healthy_machine_is_ok() {
    let (tree, origin) = (Tree::healthy(), origin());
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let destination = folder.path().join("not/there/yet");
    let run = asking(&tree, SOURCE, &origin).with([&destination]).run();
    // The disk is the real one, and may be nearly full; all other facts are planted.
    let space = finding(&run, "space")["verdict"].clone();
    let run = run.expect(i32::from(space == "bad"));
    let document = run.json();
    assert_eq!(document["verdict"], space, "{run}");
    let checks = document["checks"].as_array().expect("findings");
    let others = checks.iter().filter(|found| found["check"] != "space");
    others.for_each(|found| assert_eq!(found["verdict"], "ok", "{found:#}\n{run}"));
    let names: Vec<&str> = checks.iter().filter_map(|found| found["check"].as_str()).collect();
    let expected: Vec<&str> = inrush::doctor::CHECKS
        .map(|(name, _)| name)
        .into_iter()
        // The planted tree has no disk, the origin no TLS, and no access grant is requested.
        .filter(|name| !["access-grant", "block-device", "tls"].contains(name))
        .collect();
    assert_eq!(names, expected, "{run}");
    run.check(finding(&run, "object")["found"] == "s3://lab/train/a can be read", "not the mark");
    run.check(finding(&run, "credentials")["found"].to_string().contains("environment"), "whose");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left");
    // For people: a line for each, and the sum.
    let run = Program::new(["doctor"]).set("INRUSH_DOCTOR_ROOT", tree.path()).run().expect(0);
    run.check(run.stdout.ends_with(" ok, 0 warn, 0 bad\n"), "the sum");
    run.check(run.stdout.lines().all(|line| line.starts_with("ok  ") || line.contains(", ")), "ok");
    let run = Program::new(["doctor", "-q"]).set("INRUSH_DOCTOR_ROOT", tree.path()).run().expect(0);
    run.check(run.stdout.is_empty() && run.stderr.is_empty(), "nothing is wrong");
    // This machine, whatever it is.
    let run = Program::new(["doctor", "--json"]).run();
    run.check(run.json()["checks"].as_array().is_some_and(|all| all.len() > 10), "many checks");
}

#[test]
fn faults_of_the_machine() {
    planted("io_uring", "warn", "io_uring_disabled is 2", "sysctl -w", |tree| {
        tree.plant("proc/sys/kernel/io_uring_disabled", "2");
    });
    planted("locked-memory", "warn", "64 KiB may be locked", "ulimit -l", |tree| {
        tree.limits("65536", 1 << 20);
    });
    planted("open-files", "bad", "64 files", "ulimit -Hn", |tree| tree.limits("unlimited", 64));
    planted("pipes", "warn", "64 KiB at most", "sysctl -w fs.pipe-max-size", |tree| {
        tree.plant("proc/sys/fs/pipe-max-size", "65536");
    });
    planted("pipes", "warn", "256 KiB together", "fs.pipe-user-pages-soft", |tree| {
        tree.plant("proc/sys/fs/pipe-user-pages-soft", "64");
    });
    planted("huge-pages", "warn", "off", "transparent_hugepage", |tree| {
        tree.plant("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
    });
    planted("memory", "warn", "the cgroup allows 256 MiB", "--memory", |tree| {
        tree.plant("sys/fs/cgroup/job/memory.max", "268435456");
    });
    planted("cpu-quota", "warn", "1.5 cores of 16", "--cpus", |tree| {
        tree.plant("sys/fs/cgroup/job/cpu.max", "150000 100000");
    });
    planted("cores", "warn", "1 of 16 cores", "taskset -c 0-15", |tree| {
        let status = "CapEff:\t0000000000000000\nSeccomp:\t0\nCpus_allowed_list:\t3";
        tree.plant("proc/self/status", status);
    });
    planted("kernel", "warn", "5.4.0", "6.1", |tree| {
        tree.plant("proc/sys/kernel/osrelease", "5.4.0-1000-aws");
    });
}

#[test]
fn faults_of_the_network() {
    planted("interrupts", "warn", "one interrupt for all 4 queues", "ethtool -L ens5", |tree| {
        tree.interrupts(1);
    });
    planted("interrupts", "warn", "4 interrupts of ens5 are on one core", "irqbalance", |tree| {
        (40..44).for_each(|irq| {
            tree.plant(&format!("proc/irq/{irq}/effective_affinity_list"), "0");
        });
    });
    planted("tcp-memory", "warn", "the kernel drops received data", "net.ipv4.tcp_mem", |tree| {
        tree.plant("proc/net/sockstat", "TCP: inuse 4 orphan 0 tw 0 alloc 4 mem 1048577");
    });
    planted("socket-buffers", "warn", "rmem_max is 64 KiB", "net.core.rmem_max", |tree| {
        tree.plant("proc/sys/net/core/rmem_max", "65536");
    });
    planted("interface", "warn", "half duplex", "ethtool", |tree| {
        tree.plant("sys/class/net/ens5/duplex", "half");
    });
}

#[test]
fn real_limits_of_a_process() {
    let run = Program::new(["doctor", "--json"]);
    let limited = run.by_way_of(["sh", "-c", "ulimit -n 33 && exec \"$@\"", "sh"]).run().expect(1);
    let found = finding(&limited, "open-files");
    assert_eq!(found["found"], "33 files may be open", "{limited}");
    for (limit, check, verdict, words) in [
        ("-v 300000", "address-space", "bad", "and a run needs about"),
        ("-f 2048", "file-size", "warn", "larger objects fail"),
    ] {
        let script = format!("ulimit {limit} && exec \"$@\"");
        let run = Program::new(["doctor", "--json"]).by_way_of(["sh", "-c", &script, "sh"]).run();
        let found = finding(&run, check);
        assert_eq!(found["verdict"], verdict, "{run}");
        run.check(found["found"].to_string().contains(words), words);
    }
    let one = Program::new(["doctor", "--json"]).by_way_of(["taskset", "-c", "0"]).run();
    let found = finding(&one, "cores")["found"].to_string();
    one.check(found.contains("1 of ") || found.contains("\"1 core"), "one core");
    let Some(launch) = without("io_uring:1") else { return };
    let refused = Program::new(["doctor", "--json"]).by_way_of(launch).run();
    for (check, words) in [("io_uring", "epoll"), ("seccomp", "a filter is in force")] {
        let found = finding(&refused, check);
        assert_eq!(found["verdict"], "warn", "{refused}");
        refused.check(found["found"].to_string().contains(words), words);
    }
}

#[test]
fn faults_of_the_destination() {
    let tree = Tree::healthy();
    let check_finding = |run: Run, check: &str, verdict: &str, words: &str| {
        let found = finding(&run, check);
        assert_eq!(found["verdict"], verdict, "{run}");
        run.check(found["found"].to_string().contains(words), words);
        assert_eq!(run.status.code(), Some(i32::from(run.json()["bad"] != 0)), "{run}");
    };
    if let Some(small) = Mount::tmpfs("size=1M") {
        fs::write(small.path().join("filler"), vec![1; 900 << 10]).expect("room");
        check_finding(doctor(&tree, [small.path()]).run(), "space", "bad", "of 1 MiB free");
        check_finding(doctor(&tree, [small.path()]).run(), "direct-io", "warn", "tmpfs");
        // An object that has no room.
        let origin = origin();
        let run = asking(&tree, "s3://lab/train/a", &origin).with([small.path()]).run();
        check_finding(run, "space", "bad", "");
        fs::write(small.path().join("filler"), b"").expect("room");
        assert_eq!(fs::metadata(small.path().join("filler")).expect("a file").len(), 0);
    }
    if let Some(closed) = Mount::tmpfs("ro,size=64M") {
        check_finding(doctor(&tree, [closed.path()]).run(), "destination", "bad", "Read-only");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    if let Some(launch) = without("direct") {
        let run = doctor(&tree, [folder.path()]).by_way_of(launch).run();
        check_finding(run, "direct-io", "warn", "has no O_DIRECT: Invalid argument");
    }
    let device = fs::metadata(folder.path()).expect("a folder").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let plant =
        |file: &str, text| tree.plant(&format!("sys/dev/block/{major}:{minor}/{file}"), text);
    for (file, text) in [
        ("uevent", "MAJOR=9\nDEVNAME=md0"),
        ("queue/scheduler", "[none] bfq"),
        ("queue/rotational", "0"),
        ("md/level", "raid0"),
        ("md/raid_disks", "4"),
        ("md/degraded", "1"),
    ] {
        plant(file, text);
    }
    let run = doctor(&tree, [folder.path()]).run();
    check_finding(run, "block-device", "bad", "raid0 of 4: a disk is missing");
    plant("md/degraded", "0");
    plant("queue/scheduler", "none [bfq]");
    check_finding(doctor(&tree, [folder.path()]).run(), "block-device", "warn", "scheduler bfq");
}

#[test]
fn faults_of_the_service() {
    let tree = Tree::healthy();
    let wrong = |config: Config, check: &str, verdict: &str, words: &str, fix: &str| {
        let origin = start(config);
        alone(asking(&tree, SOURCE, &origin).run(), check, verdict, words, fix);
    };
    let usual = || config(&objects());
    for (ahead, words) in [(1200, "20m behind"), (-1200, "20m ahead of")] {
        let skewed = Config { clock_offset_seconds: ahead, ..usual() };
        let origin = start(skewed);
        let run = asking(&tree, SOURCE, &origin).run().expect(0);
        let found = finding(&run, "clock");
        assert_eq!(found["verdict"], "warn", "{run}");
        // Or a second less, by when it was asked.
        let off = found["found"].as_str().expect("words").replace("19m 59s", "20m");
        run.check(off.replace("20m 1s", "20m").contains(words), words);
        run.check(finding(&run, "object")["verdict"] == "ok", "signed by the server's clock");
        assert_eq!(run.json()["warn"], 1, "{run}");
        // As a run fares.
        let run = served::get(&origin, [SOURCE, "--discard"]).run().expect(0);
        assert_eq!(run.stderr, "", "{run}");
    }
    let elsewhere = Config { region: "eu-west-1".to_owned(), ..usual() };
    wrong(elsewhere, "region", "warn", "in eu-west-1, not in us-east-1", "--region eu-west-1");
    let ended = Credentials::new(ACCESS_KEY, SECRET).with_session_token("token");
    let ended = ended.with_expiry(SystemTime::now() - Duration::from_secs(60));
    let origin = start(Config { credentials: vec![ended], ..usual() });
    let run = asking(&tree, SOURCE, &origin).set("AWS_SESSION_TOKEN", "token").run();
    alone(run, "object", "bad", "ExpiredToken", "aws sso login");
    let origin = start(usual());
    let run = asking(&tree, SOURCE, &origin).with_keys(ACCESS_KEY, "another").run();
    alone(run, "object", "bad", "403 SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY");
    let run = doctor(&tree, [SOURCE, "--no-sign-request"]).asking(&origin).run();
    alone(run, "object", "bad", "403 AccessDenied", "");
    let run = asking(&tree, "s3://absent/train/", &origin).run();
    alone(run, "object", "bad", "404 NoSuchBucket", "");
    let run = asking(&tree, "s3://lab/nothing/", &origin).run();
    alone(run, "object", "bad", "no object is there", "inrush ls");
    asking(&tree, "s3://lab/train", &origin).run().expect(0);
    let run = doctor(&tree, [SOURCE]).asking(&origin).run();
    alone(run, "credentials", "bad", "no credentials found", "AWS_ACCESS_KEY_ID");
    drop(origin);
    // Its port is kept: no server of another test gets it.
    let dead = [(0, DeadAddress::Refuses)].into();
    let stopped = start(Config { dead, ..usual() });
    let run = doctor(&tree, [SOURCE, "--endpoint-url", &stopped.url(), "--region", "us-east-1"]);
    let run = run.with_keys(ACCESS_KEY, SECRET).run();
    alone(run, "endpoint", "bad", "Connection refused", "--endpoint-url");
    let when = Match::default();
    let faults = FaultPlan::none().with_rule(when, Fault::IgnoredRange);
    wrong(Config { faults, ..usual() }, "object", "bad", "ignores Range", "nothing between");
}

#[test]
fn an_endpoint_alone_is_asked() {
    let (tree, origin) = (Tree::healthy(), origin());
    let run = doctor(&tree, [""; 0]).asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(0);
    let found = finding(&run, "endpoint")["found"].to_string();
    run.check(found.contains(" answers"), "it is there");
    run.check(finding(&run, "clock")["verdict"] == "ok", "it reported the time");
    // Whoever may not list buckets has reached it, too.
    let run = doctor(&tree, ["--no-sign-request"]).asking(&origin).run().expect(0);
    run.check(finding(&run, "endpoint")["verdict"] == "ok", "a refusal is an answer");
    // One of the environment or of the profile is as good.
    let named = |program: Program| program.with_keys(ACCESS_KEY, SECRET);
    let run = named(doctor(&tree, [""; 0]).set("AWS_ENDPOINT_URL_S3", origin.url())).run();
    let found = finding(&run.expect(0), "endpoint")["found"].to_string();
    assert!(found.contains(" answers"), "{found}");
    let program = named(doctor(&tree, [""; 0]));
    let config = program.home().join("config");
    fs::write(&config, "[default]\nregion = EU west\nendpoint_url = http://h\n").expect("room");
    let run = program.set("AWS_CONFIG_FILE", &config).run();
    let words = format!("region of the profile 'default' in {}: 'EU west'", config.display());
    alone(run, "endpoint", "bad", &words, "eu-west-1");
    let stopped = origin.url();
    drop(origin);
    let run = doctor(&tree, ["--endpoint-url", &stopped, "--region", "us-east-1"]);
    let run = run.with_keys(ACCESS_KEY, SECRET).run();
    alone(run, "endpoint", "bad", "Connection refused", "--endpoint-url");
}

#[test]
fn a_proxy_that_is_gone_is_named() {
    let (tree, origin) = (Tree::healthy(), origin());
    let stopped = origin.url();
    drop(origin);
    let run = doctor(&tree, [SOURCE, "--endpoint-url", "http://far.test:9000"])
        .with(["--region", "us-east-1"])
        .with_keys(ACCESS_KEY, SECRET)
        .set("http_proxy", &stopped)
        .run();
    let place = stopped.strip_prefix("http://").expect("an address");
    let words = format!("far.test:9000 by the proxy {place}");
    alone(run, "endpoint", "bad", &words, &format!("the proxy {place} of http_proxy"));
}

#[test]
fn the_ring_that_is_asked_for_is_reported() {
    let tree = Tree::healthy();
    let run = doctor(&tree, ["--ring", "epoll"]).run().expect(0);
    run.check(finding(&run, "io_uring")["found"] == "epoll, as --ring or INRUSH_RING asks", "it");
    let run = doctor(&tree, [""; 0]).set("INRUSH_RING", "epoll").run().expect(0);
    run.check(finding(&run, "io_uring")["found"].to_string().contains("epoll, as"), "the variable");
    let run = doctor(&tree, [""; 0]).set("INRUSH_RING", "uring").run();
    alone(run, "io_uring", "bad", "INRUSH_RING: 'uring' is not a ring", "expected auto");
    let run = doctor(&tree, ["--ring", "io_uring"]);
    tree.plant("proc/sys/kernel/io_uring_disabled", "2");
    alone(run.run(), "io_uring", "bad", "asks for io_uring", "sysctl -w");
}

#[test]
fn credentials_that_end() {
    let (tree, origin) = (Tree::healthy(), origin());
    for (seconds, verdict, words) in [(600, "warn", "they expire in"), (-600, "bad", "xpired")] {
        let program = asking(&tree, SOURCE, &origin);
        let ends = humantime::format_rfc3339_seconds(match seconds {
            0.. => SystemTime::now() + Duration::from_secs(600),
            _ => SystemTime::now() - Duration::from_secs(600),
        });
        let answer = format!(
            "{{\"Version\":1,\"AccessKeyId\":\"{ACCESS_KEY}\",\
             \"SecretAccessKey\":\"{SECRET}\",\"Expiration\":\"{ends}\"}}"
        );
        fs::write(program.home().join("answer"), answer).expect("room");
        let file = program.home().join("answer").display().to_string();
        let text = format!("[default]\ncredential_process = cat {file}\n");
        let profiles = program.home().join("config");
        fs::write(&profiles, text).expect("room");
        let program = program.set("AWS_ACCESS_KEY_ID", "").set("AWS_SECRET_ACCESS_KEY", "");
        let run = program.set("AWS_CONFIG_FILE", &profiles).run();
        alone(run, "credentials", verdict, words, "");
    }
}

/// Not of the endpoint, which is there.
#[test]
fn what_keeps_credentials_from_being_read_is_reported_of_them() {
    let (tree, origin) = (Tree::healthy(), origin());
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    let gone = listener.local_addr().expect("its address");
    drop(listener);
    let role = "[default]\nrole_arn = r\nsource_profile = b\n[profile b]\n\
                aws_access_key_id = A\naws_secret_access_key = S\n";
    for (text, words, fix) in [
        (
            "[profile p]\n[profile p]\n",
            "config, line 2: this section is a second",
            "below the first",
        ),
        (role, "does not answer: Connection refused", "check the network"),
    ] {
        let program = asking(&tree, SOURCE, &origin);
        let config = program.home().join("config");
        fs::write(&config, text).expect("room");
        let program = program.set("AWS_ACCESS_KEY_ID", "").set("AWS_SECRET_ACCESS_KEY", "");
        let program = program.set("AWS_ENDPOINT_URL_STS", format!("http://{gone}"));
        let run = program.set("AWS_CONFIG_FILE", &config).run();
        alone(run, "credentials", "bad", words, fix);
    }
}

#[test]
fn certificates() {
    let tree = Tree::healthy();
    let origin = start(Config { tls: Some(TlsConfig::default()), ..config(&objects()) });
    let run = asking(&tree, SOURCE, &origin).run();
    alone(run, "tls", "bad", "certificate", "--ca-bundle");
    let bundle = tree.path().join("ca.pem");
    fs::write(&bundle, origin.ca_pem().expect("over TLS")).expect("room");
    let run = asking(&tree, SOURCE, &origin).with(["--ca-bundle".as_ref(), bundle.as_os_str()]);
    let run = run.run().expect(0);
    assert_eq!(finding(&run, "tls")["found"], "the certificate is trusted", "{run}");
    // Nobody looked at it.
    let run = asking(&tree, SOURCE, &origin).with(["--no-verify-ssl"]).run();
    alone(run, "tls", "warn", "not verified (--no-verify-ssl)", "omit");
}

#[test]
fn what_a_run_refuses_as_its_destination() {
    let (tree, origin) = (Tree::healthy(), origin());
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "text").expect("room");
    std::os::unix::fs::symlink("nowhere", at("link")).expect("a link");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0)
        .expect("a pipe");
    for (source, name, words) in [
        (SOURCE, "file", "is a file, not a folder"),
        (SOURCE, "file/below", "is a file, not a folder"),
        (SOURCE, "fifo", "is a named pipe, not a folder"),
        (SOURCE, "link", "is a symbolic link to nothing"),
        (SOURCE, "link/below", "is a symbolic link to nothing"),
        ("s3://lab/train/a", "fifo", "is not a regular file"),
        ("s3://lab/train/a", "link/below", "is a symbolic link to nothing"),
    ] {
        let run = asking(&tree, source, &origin).with([at(name)]).run();
        let found = finding(&run, "destination");
        assert_eq!(found["verdict"], "bad", "{source} {name}\n{run}");
        run.check(found["found"].to_string().contains(words), words);
        served::get(&origin, [source.as_ref(), at(name).as_os_str()]).run().expect(5);
    }
    // One object replaces a file.
    let run = asking(&tree, "s3://lab/train/a", &origin).with([at("file")]).run();
    assert_eq!(finding(&run, "destination")["verdict"], "ok", "{run}");
    assert_eq!(fs::read(at("file")).expect("a file"), b"text", "nothing was written");
}

#[test]
fn operands_that_do_not_fit() {
    for words in [&["s3://a1b/", "s3://a1b/c"][..], &["one", "two"], &["one", "s3://a1b", "two"]] {
        let run = Program::new(["doctor"]).with(words).run().expect(2);
        run.check(run.stderr.contains("one source and one destination at most"), "one of each");
    }
}
