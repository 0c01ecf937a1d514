//! `kill -9` again and again: whatever moment it hits, the next run goes on, the bytes are right in
//! the end, nothing is left beside them, and little is fetched twice.
//!
//! `cargo test --test kill -- --ignored --nocapture` is the long form: 50 kills over 2 GiB.
//! `INRUSH_KILL_SEED` repeats the moments of a run, as far as a machine can.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

#[path = "common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
#[path = "common/program.rs"]
#[expect(dead_code, reason = "usage errors belong to other tests")]
mod program;
#[path = "common/served.rs"]
#[expect(dead_code, reason = "these objects are computed")]
mod served;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::{Duration, Instant};

use inrush_origin::{Config, ObjectContent, ObjectSpec, Origin, synthetic_bytes};
use rustix::process::Signal;

use served::{BUCKET, config, get, start};

const MIB: u64 = 1 << 20;
const CONNECTIONS: u64 = 8;
/// Length of a range.
const PART_BYTES: u64 = MIB;
/// Of each connection, in MiB a second: slow enough to be hit in the middle.
const RATE_MIB: u64 = 12;

/// Sizes by key: some large, some of a few ranges, and many small ones.
fn dataset(total: u64) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for index in 0..3 {
        sizes.insert(format!("large/{index}"), total / 5 + 4097 * index);
    }
    for index in 0..16 {
        sizes.insert(format!("middle/{index:02}"), total / 64 + index);
    }
    let small = [0, 1, 700, 4096, 39_000, 300_000, MIB - 1, MIB + 1];
    let mut left = total - sizes.values().sum::<u64>().min(total);
    for (index, size) in small.iter().cycle().enumerate() {
        sizes.insert(format!("small/{:02}/{index:05}", index % 7), *size);
        left = left.saturating_sub(*size);
        if left == 0 {
            break;
        }
    }
    sizes
}

fn serve(sizes: &BTreeMap<String, u64>) -> Origin {
    let spec = |(key, size): (&String, &u64)| {
        let content = ObjectContent::Synthetic { length_bytes: *size };
        ObjectSpec::new(BUCKET, key, content)
    };
    start(Config {
        objects: sizes.iter().map(spec).collect(),
        connection_rate: NonZeroU64::new(RATE_MIB * MIB),
        ..config(&matrix::Objects::new())
    })
}

fn fetch(origin: &Origin, folder: &Path) -> program::Program {
    let (part, connections) = (PART_BYTES.to_string(), CONNECTIONS.to_string());
    let options = ["s3://lab/", "--json", "--part-size", &part, "--connections", &connections];
    get(origin, options).with([folder])
}

/// What stands at the destination: names of the program's own, and how many files are whole. A file
/// that has its name has its length.
fn look(folder: &Path, sizes: &BTreeMap<String, u64>) -> (Vec<String>, usize) {
    let (mut own, mut whole) = (Vec::new(), 0);
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = entry.path();
            let name = entry.file_name().into_string().expect("UTF-8");
            if entry.file_type().expect("a type").is_dir() {
                folders.push(path);
            } else if name.starts_with(".inrush") {
                own.push(name);
            } else {
                let key = path.strip_prefix(folder).expect("below").to_str().expect("UTF-8");
                let length = entry.metadata().expect("there").len();
                assert_eq!(Some(&length), sizes.get(key), "{key} has its name and is not whole");
                whole += 1;
            }
        }
    }
    (own, whole)
}

fn assert_right(folder: &Path, sizes: &BTreeMap<String, u64>) {
    let (mut is, mut should) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for (key, size) in sizes {
        let mut file = File::open(folder.join(key)).expect("a file");
        let mut offset = 0;
        while offset < *size {
            let length = usize::try_from(MIB.min(size - offset)).expect("a piece");
            file.read_exact(&mut is[..length]).expect("as long as it should be");
            synthetic_bytes(key, offset, &mut should[..length]);
            assert!(is[..length] == should[..length], "{key} is wrong behind byte {offset}");
            offset += length as u64;
        }
    }
}

/// Fetches `mib` MiB, with `kills` kills on the way; each kill may cost `ranges` ranges of each
/// connection.
fn fetch_and_kill(mib: u64, kills: u64, ranges: u64) {
    let seed = std::env::var("INRUSH_KILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("INRUSH_KILL_SEED={seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let sizes = dataset(mib * MIB);
    let total: u64 = sizes.values().sum();
    let origin = serve(&sizes);
    let folder = tempfile::tempdir().expect("a folder");
    let began = Instant::now();
    let (mut killed, mut early) = (0, 0);
    for kill in 0..kills {
        let mut running = fetch(&origin, folder.path()).start();
        // A share of what is left, and some of its time: so that a kill also hits where no byte
        // moves. What is left is at least this: a busy machine sends more before a kill hits.
        let sent = origin.stats().body_bytes;
        let left = total.saturating_sub(sent);
        let until = sent + chance.u64(0..=left * 9 / 5 / (kills - kill + 1));
        let pause = Duration::from_millis(chance.u64(0..20));
        if !running.until(|| origin.stats().body_bytes >= until) {
            running.wait().expect(0);
            early += 1;
            continue;
        }
        std::thread::sleep(pause);
        running.signal(Signal::KILL);
        let run = running.wait();
        killed += u64::from(run.status.code().is_none());
        look(folder.path(), &sizes);
    }
    let (left, whole) = look(folder.path(), &sizes);
    println!("before the last run: {whole} of {} whole, {} files beside", sizes.len(), left.len());
    let run = fetch(&origin, folder.path()).run().expect(0);
    let sent = origin.stats().body_bytes;
    let (left, whole) = look(folder.path(), &sizes);
    let most = killed * CONNECTIONS * PART_BYTES * ranges;
    println!(
        "{killed} kills ({early} too late), {whole} objects of {total} bytes in {:.1} s; sent \
         {sent}, {} more than once, at most {most} of them may be",
        began.elapsed().as_secs_f64(),
        sent - total,
    );
    assert_eq!((left, whole), (Vec::new(), sizes.len()), "{run}");
    assert!(killed * 5 >= kills * 4, "most of them hit: {killed} of {kills}");
    assert!(sent - total <= most, "{} bytes more than once", sent - total);
    assert_right(folder.path(), &sizes);
}

#[test]
fn killed_runs_go_on() {
    // One that it receives, and one that waits to be written: there are no more slots.
    fetch_and_kill(256, 10, 2);
}

#[test]
#[ignore = "2 GiB and 50 kills take a minute on an idle machine: by hand, with --ignored"]
fn killed_runs_go_on_for_long() {
    // Most are hit before the end of their range, and writes seldom wait.
    fetch_and_kill(2048, 50, 1);
}
