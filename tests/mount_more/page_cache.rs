//! `inrush mount --page-cache`: which files are opened past the page cache, and that whatever
//! programs do with them gives the same bytes.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use inrush_origin::{Origin, SyntheticSet};
use rustix::fs::OFlags;
use rustix::process::Signal;
use serde_json::Value;

use crate::fuse::can_mount;
use crate::mapper::Mapper;
use crate::matrix::{Objects, bytes_of};
use crate::mounted::Mounted;
use crate::served::{BUCKET, config, serve, start};
use crate::skip::skip;
use crate::transport::is_allowed;

/// The smallest file that is opened past the page cache by itself.
const LARGE: usize = 16 << 20;
const LONG_READ: usize = 1 << 20;
const NAMES: [&str; 6] = ["0", "1", "2", "3", "4", "5"];

/// Objects, and their server.
struct Ground {
    objects: Objects,
    origin: Origin,
}

/// More than memory has.
const HUGE: u64 = 1 << 44;

/// With an object that does not fit memory. `None` where nothing can be mounted, or where the
/// kernel cannot map such files.
fn ground() -> Option<Ground> {
    let Ground { objects, .. } = small_ground()?;
    let synthetic = vec![SyntheticSet::new(BUCKET, "d/huge", 1, HUGE)];
    let origin = start(inrush_origin::Config { synthetic, ..config(&objects) });
    Some(Ground { objects, origin })
}

fn small_ground() -> Option<Ground> {
    if !can_mount() {
        return None;
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(6)) {
        skip("FUSE_DIRECT_IO_ALLOW_MMAP takes Linux 6.6");
        return None;
    }
    let named = NAMES.map(|name| (format!("d/{name}"), bytes_of(name, LARGE)));
    let mut objects = Objects::from(named);
    objects.insert("d/small".to_owned(), bytes_of("small", 39_000));
    let origin = serve(&objects);
    Some(Ground { objects, origin })
}

impl Ground {
    fn mount(&self, words: &[&str]) -> Mounted {
        Mounted::new(&self.origin, &[&["--json"], words].concat())
    }

    fn bytes(&self, name: &str) -> &[u8] {
        &self.objects[&format!("d/{name}")]
    }

    /// Reads a file whole, in order, by reads of this length.
    #[track_caller]
    fn read(&self, mounted: &Mounted, name: &str, length: usize) {
        let mut file = File::open(mounted.at(name)).expect("it opens");
        self.read_on(&mut file, name, length);
    }

    #[track_caller]
    fn read_on(&self, file: &mut File, name: &str, length: usize) {
        let (mut found, mut buffer) = (Vec::new(), vec![0; length]);
        loop {
            let count = file.read(&mut buffer).expect("bytes");
            if count == 0 {
                break;
            }
            found.extend_from_slice(&buffer[..count]);
        }
        assert!(found == self.bytes(name), "{name}");
    }

    /// Maps a file whole.
    #[track_caller]
    fn map(&self, mapper: &mut Mapper, path: &Path, name: &str) {
        let bytes = mapper.read("normal", path, 0, LARGE, &[LARGE - 1, 0]).expect("a mapping");
        assert!(bytes == self.bytes(name), "{name}");
    }
}

/// Ends a mount; its summary.
fn end(mut mounted: Mounted) -> Value {
    let running = mounted.running();
    running.signal(Signal::TERM);
    running.wait().expect(130).json()
}

/// Ends a mount, in which this number of files was opened past the page cache; its summary.
#[track_caller]
fn end_with(mounted: Mounted, direct_opens: u64) -> Value {
    let summary = end(mounted);
    assert_eq!(summary["direct_opens"], direct_opens, "{summary}");
    summary
}

#[test]
fn files_that_are_read_in_order_skip_the_page_cache_and_others_do_not() {
    let Some(ground) = ground() else { return };
    for transport in ["device", "io_uring"] {
        if transport == "io_uring" && !is_allowed() {
            return;
        }
        let mounted = ground.mount(&["--fuse", transport]);
        // It shows long reads in order to its end; the next one is the trial.
        ground.read(&mounted, "0", LONG_READ);
        let mut trial = File::open(mounted.at("1")).expect("it opens");
        ground.read(&mounted, "2", LONG_READ);
        ground.read_on(&mut trial, "1", LONG_READ);
        // All further ones, also beside each other, and by several threads.
        let all = ["3", "4"].map(|name| File::open(mounted.at(name)).expect("it opens"));
        std::thread::scope(|scope| {
            for (mut file, name) in all.into_iter().zip(["3", "4"]) {
                let ground = &ground;
                scope.spawn(move || ground.read_on(&mut file, name, LONG_READ));
            }
        });
        ground.read(&mounted, "small", 100);
        let summary = end_with(mounted, 3);
        let all: usize = ground.objects.values().map(Vec::len).sum();
        let expected = all - ground.bytes("5").len();
        assert_eq!(summary["served_bytes"], expected, "each byte once: {summary}");
    }
}

#[test]
fn a_mapping_a_short_read_or_a_second_reader_leads_back_to_the_page_cache() {
    let Some(ground) = ground() else { return };
    let mut mapper = Mapper::new();
    let begin = || {
        let mounted = ground.mount(&[]);
        ground.read(&mounted, "0", LONG_READ);
        mounted
    };
    // Without anything against it the files 1, 2 and 3 skip it: the case above.
    let mapped = begin();
    ground.map(&mut mapper, &mapped.at("1"), "1");
    ground.read(&mapped, "2", LONG_READ);
    ground.read(&mapped, "3", LONG_READ);
    end_with(mapped, 1);
    let short = begin();
    ground.read(&short, "1", 4096);
    ground.read(&short, "2", LONG_READ);
    ground.read(&short, "3", LONG_READ);
    end_with(short, 1);
    let again = begin();
    ground.read(&again, "1", LONG_READ);
    // The second epoch, and a third one that the page cache alone serves.
    ground.read(&again, "1", LONG_READ);
    ground.read(&again, "1", LONG_READ);
    ground.read(&again, "2", LONG_READ);
    let summary = end_with(again, 1);
    assert_eq!(summary["served_bytes"], 4 * LARGE, "{summary}");
}

#[test]
fn files_that_fit_memory_together_use_the_page_cache() {
    let Some(ground) = small_ground() else { return };
    let mounted = ground.mount(&[]);
    for name in NAMES.into_iter().chain(NAMES) {
        ground.read(&mounted, name, LONG_READ);
    }
    let summary = end_with(mounted, 0);
    assert_eq!(summary["served_bytes"], NAMES.len() * LARGE, "{summary}");
}

#[test]
fn short_reads_through_the_page_cache_stay_there() {
    let Some(ground) = ground() else { return };
    let mounted = ground.mount(&[]);
    for name in NAMES {
        ground.read(&mounted, name, 4096);
    }
    end_with(mounted, 0);
}

#[test]
fn never_and_always_are_of_all_files() {
    let Some(ground) = ground() else { return };
    let mut mapper = Mapper::new();
    for transport in ["device", "io_uring"] {
        if transport == "io_uring" && !is_allowed() {
            return;
        }
        let never = ground.mount(&["--fuse", transport, "--page-cache", "never"]);
        for _ in 0..2 {
            ground.read(&never, "small", 1000);
            ground.read(&never, "0", 300_001);
        }
        // Reads anywhere, beyond the end, with O_DIRECT, and of a mapping of the same open file.
        let file = File::open(never.at("0")).expect("it opens");
        let mut bytes = [0; 5000];
        for at in [LARGE - 4000, 12_345, 0] {
            let count = file.read_at(&mut bytes, at as u64).expect("bytes");
            assert_eq!(count, bytes.len().min(LARGE - at));
            assert!(bytes[..count] == ground.bytes("0")[at..at + count], "at {at}");
        }
        assert_eq!(file.read_at(&mut bytes, LARGE as u64).expect("none"), 0);
        ground.map(&mut mapper, &never.at("0"), "0");
        let mut direct = OpenOptions::new();
        let direct = direct.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        let mut direct = direct.open(never.at("1")).expect("it opens");
        ground.read_on(&mut direct, "1", LONG_READ);
        drop((file, direct));
        let summary = end_with(never, 7);
        let served = summary["served_bytes"].as_u64().expect("a number");
        assert!(served >= 4 * LARGE as u64 + 2 * 39_000, "nothing is kept: {summary}");
        let always = ground.mount(&["--fuse", transport, "--page-cache", "always"]);
        for name in NAMES.into_iter().chain(["0", "small"]) {
            ground.read(&always, name, LONG_READ);
        }
        let summary = end_with(always, 0);
        let all: usize = ground.objects.values().map(Vec::len).sum();
        assert_eq!(summary["served_bytes"], all, "{summary}");
    }
}

#[test]
fn what_skips_the_page_cache_is_kept_in_the_cache_of_the_disk() {
    let Some(ground) = ground() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("cache");
    let words = ["--cache", cache.to_str().expect("UTF-8")];
    let first = ground.mount(&words);
    for name in NAMES {
        ground.read(&first, name, LONG_READ);
    }
    let summary = end_with(first, 5);
    assert_eq!(summary["cache"]["kept_objects"], NAMES.len(), "{summary}");
    let second = ground.mount(&words);
    for name in NAMES {
        ground.read(&second, name, LONG_READ);
    }
    let summary = end_with(second, 0);
    assert_eq!((&summary["cache"]["hits"], &summary["requests"]), (&6.into(), &0.into()));
}
