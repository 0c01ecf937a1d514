//! A program that reads more slowly than the network brings: what is fetched ahead of it is
//! bounded, in the mount and in the kernel's sockets, and stops.

use std::fs::{self, File};
use std::io::Read as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use inrush_origin::{Origin, SyntheticSet};

use crate::bounded::within;
use crate::fuse::can_mount;
use crate::matrix::Objects;
use crate::mounted::Mounted;
use crate::served::{BUCKET, config, start};

const MIB: u64 = 1 << 20;
/// Several times the memory of the mount.
const OBJECT_BYTES: u64 = 512 * MIB;
/// The option `--memory`: what is fetched ahead is in leases of it.
const MEMORY_BYTES: u64 = 64 * MIB;
/// What the kernel's page cache reads ahead by itself, and heads of answers.
const SLACK_BYTES: u64 = 8 * MIB;
/// What the sockets of the mount may hold together.
const UNREAD_BYTES_MAX: u64 = 64 * MIB;
/// An origin that has sent nothing for this time has stopped.
const QUIET: Duration = Duration::from_millis(700);
/// Only against a mount that reads ahead for ever.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Bytes that the kernel has received from this port of loopback, and nobody has read
/// (proc_net_tcp.txt of the kernel's documentation).
fn unread_from(port: u16) -> u64 {
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
    let table = fs::read_to_string("/proc/net/tcp").expect("the table of sockets");
    let sockets = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let behind_colon = |field: &str| hex(field.split(':').nth(1).expect("two numbers"));
    sockets
        .filter(|fields| behind_colon(fields[2]) == u64::from(port))
        .map(|fields| behind_colon(fields[4]))
        .sum()
}

/// Waits until nothing is sent any more: bytes that were sent, and the most that were unread.
fn rest(origin: &Origin) -> (u64, u64) {
    let begun = Instant::now();
    let (mut sent, mut since, mut most) = (origin.stats().bytes_sent, Instant::now(), 0);
    while since.elapsed() < QUIET {
        assert!(begun.elapsed() < WAIT_MAX, "it does not stop");
        sleep(Duration::from_millis(20));
        most = most.max(unread_from(origin.address().port()));
        let now = origin.stats().bytes_sent;
        if now != sent {
            (sent, since) = (now, Instant::now());
        }
    }
    (sent, most)
}

#[test]
fn what_is_fetched_ahead_of_a_slow_reader_is_bounded_and_stops() {
    if !can_mount() {
        return;
    }
    for ring in ["auto", "epoll"] {
        let mut served = config(&Objects::new());
        served.synthetic.push(SyntheticSet::new(BUCKET, "d/", 1, OBJECT_BYTES));
        let origin = start(served);
        let mounted = Mounted::new(&origin, &["--memory", "64MiB", "--ring", ring]);
        within(mounted, 4 * WAIT_MAX, |mounted| {
            let mut file = File::open(mounted.at("000000.bin")).expect("it is there");
            // A mount reads ahead twice as far as a reader has come.
            let mut bytes = vec![0; 24 << 20];
            let (mut read, mut furthest) = (0, 0);
            for _ in 0..4 {
                file.read_exact(&mut bytes).expect("it serves");
                read += bytes.len() as u64;
                let (sent, unread) = rest(&origin);
                furthest = furthest.max(sent.saturating_sub(read));
                assert!(sent <= read + MEMORY_BYTES + SLACK_BYTES, "{sent} sent, {read} read");
                assert!(unread <= UNREAD_BYTES_MAX, "{unread} unread");
            }
            assert!(furthest > MEMORY_BYTES / 4, "it reads ahead: {furthest}");
        });
    }
}
