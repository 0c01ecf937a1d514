//! Times of files: each has its object's before it has its name, and a file that another program
//! put there is known by it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inrush_origin::{Config, Origin};
use rustix::fs::XattrFlags;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::matrix::{Objects, assert_same};
use crate::mount::Mount;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, config, start};
use crate::{MIB, objects};

/// When the objects were last written: 2023-11-14, in seconds since the Epoch.
const WRITTEN: u64 = 1_700_000_000;
/// The name of a mark.
const MARK: &str = "user.inrush";

/// A bucket whose objects are files, so that each has a time of its own, and a folder.
struct Bucket {
    home: TempDir,
}

impl Bucket {
    /// With these objects, the first written at [`WRITTEN`] and each next one a day later.
    fn new(objects: &Objects) -> Self {
        let bucket = Self { home: tempfile::tempdir().expect("a folder") };
        for (index, (key, bytes)) in objects.iter().enumerate() {
            bucket.put(key, bytes, written(index));
        }
        fs::create_dir(bucket.data()).expect("made");
        bucket
    }

    fn put(&self, key: &str, bytes: &[u8], time: Duration) {
        place(&self.home.path().join("root/lab").join(key), bytes, time);
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Serves it as it is now, with `rate` MiB a second on each connection.
    fn serve(&self, rate: Option<u64>) -> Origin {
        let root = Some(self.home.path().join("root"));
        let connection_rate = rate.and_then(|rate| std::num::NonZeroU64::new(rate << 20));
        start(Config { root, connection_rate, ..config(&Objects::new()) })
    }

    fn run(&self, command: &str, options: &[&str]) -> Run {
        program(&self.serve(None), command, &self.data(), options).run().expect(0)
    }

    /// A file that another program put there.
    fn plant(&self, path: &str, bytes: &[u8], time: Duration) {
        place(&self.data().join(path), bytes, time);
    }
}

fn program(origin: &Origin, command: &str, folder: &Path, options: &[&str]) -> Program {
    let words = [command, "s3://lab/", "--part-size", "1MiB", "--connections", "4", "--json"];
    let program = Program::new(words).with([folder]).with(options).asking(origin);
    program.with_keys(ACCESS_KEY, SECRET)
}

/// When the object of this index was written.
fn written(index: usize) -> Duration {
    Duration::from_secs(WRITTEN + 86_400 * index as u64)
}

fn place(path: &Path, bytes: &[u8], time: Duration) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, bytes).expect("written");
    touch(path, time);
}

fn touch(path: &Path, time: Duration) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("a file");
    file.set_modified(UNIX_EPOCH + time).expect("set");
}

fn time_of(path: &Path) -> Duration {
    let modified = fs::metadata(path).expect("there").modified().expect("a time");
    modified.duration_since(UNIX_EPOCH).expect("after 1970")
}

fn number(run: &Run, name: &str) -> u64 {
    run.json()[name].as_u64().expect("a number")
}

/// How many objects were downloaded, kept, and kept by what was compared.
#[track_caller]
fn counts(run: &Run) -> [u64; 3] {
    ["objects", "kept_objects", "kept_unmarked_objects"].map(|name| number(run, name))
}

#[track_caller]
/// Fails unless whole seconds agree. Where an index holds the marks, fractions are the files' own.
fn assert_seconds(folder: &Path, objects: &Objects) {
    for (index, key) in objects.keys().enumerate() {
        let seconds = time_of(&folder.join(key)).as_secs();
        assert_eq!(seconds, written(index).as_secs(), "{key}");
    }
}

fn assert_times(folder: &Path, objects: &Objects) {
    for (index, key) in objects.keys().enumerate() {
        assert_eq!(time_of(&folder.join(key)), written(index), "{key}");
    }
}

/// Something of each shape: empty, in one piece, written past the page cache, in ranges.
fn some() -> Objects {
    objects(&[("a/empty", 0), ("a/small", 700), ("b/medium", 300_000), ("large", 3 * MIB + 5)])
}

#[test]
fn files_have_the_times_of_their_objects() {
    for (command, options) in [
        ("get", &[][..]),
        ("sync", &["--durability", "file"]),
        ("sync", &["--no-resume"]),
        ("get", &["--verify", "off"]),
    ] {
        let bucket = Bucket::new(&some());
        let run = bucket.run(command, options);
        assert_eq!(counts(&run), [4, 0, 0], "{run}");
        assert_same(&bucket.data(), &some());
        assert_times(&bucket.data(), &some());
        let run = bucket.run("sync", &[]);
        assert_eq!(counts(&run), [0, 4, 0], "they are known by their marks\n{run}");
    }
    // HEAD gives the time of a single object in another form.
    let bucket = Bucket::new(&some());
    let file = bucket.data().join("other name");
    for kept in [0, 1] {
        let words = ["get", "s3://lab/large", "--json"];
        let origin = bucket.serve(None);
        let program = Program::new(words).with([&file]).asking(&origin);
        let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(0);
        assert_eq!(counts(&run), [1 - kept, kept, 0], "{run}");
        assert_eq!(time_of(&file), written(3));
    }
}

#[test]
fn without_times_files_are_of_now() {
    let bucket = Bucket::new(&some());
    let run = bucket.run("get", &["--no-times"]);
    assert_eq!(counts(&run), [4, 0, 0], "{run}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    for key in some().keys() {
        let age = now.saturating_sub(time_of(&bucket.data().join(key)));
        assert!(age < Duration::from_secs(600), "{key}: {age:?}");
    }
    assert_eq!(counts(&bucket.run("sync", &["--no-times"])), [0, 4, 0]);
    // What is kept is left as it is.
    assert_eq!(counts(&bucket.run("sync", &[])), [0, 4, 0]);
    assert_ne!(time_of(&bucket.data().join("large")), written(3));
    let run = bucket.run("sync", &["--overwrite", "always"]);
    assert_eq!(counts(&run), [4, 0, 0], "{run}");
    assert_times(&bucket.data(), &some());
}

#[test]
fn no_file_is_seen_with_another_time_or_half() {
    let many: Vec<(String, usize)> =
        (0..400).map(|index| (format!("{index:03}"), 3000 + 997 * (index % 700))).collect();
    let mut all: Vec<(&str, usize)> = many.iter().map(|(key, size)| (&**key, *size)).collect();
    all.push(("z-large", 24 * MIB + 3));
    let all = objects(&all);
    let bucket = Bucket::new(&all);
    // Of another program: the first is as it should be, the second was replaced in the bucket.
    bucket.plant("000", &all["000"], written(0));
    bucket.plant("001", &vec![1; all["001"].len()], written(1) - Duration::from_secs(1));
    let look = || {
        for (index, (key, bytes)) in all.iter().enumerate() {
            let path = bucket.data().join(key);
            let Ok(file) = fs::File::open(path) else { continue };
            let modified = file.metadata().expect("there").modified().expect("a time");
            let time = modified.duration_since(UNIX_EPOCH).expect("after 1970");
            if key == "001" && time == written(1) - Duration::from_secs(1) {
                continue;
            }
            assert_eq!(time, written(index), "{key}");
            let length = file.metadata().expect("there").len();
            assert_eq!(length, bytes.len() as u64, "{key}");
        }
    };
    for signal in [Signal::KILL, Signal::INT, Signal::KILL] {
        let origin = bucket.serve(Some(8));
        let mut running = program(&origin, "sync", &bucket.data(), &[]).start();
        let until = 10 * MIB as u64;
        let has_begun = running.until(|| {
            look();
            origin.stats().body_bytes >= until
        });
        assert!(has_begun, "it was too fast");
        running.signal(signal);
        running.wait();
        look();
    }
    let run = bucket.run("sync", &[]);
    assert_eq!((number(&run, "failed_objects"), counts(&run)[2]), (0, 1), "{run}");
    assert_same(&bucket.data(), &all);
    assert_times(&bucket.data(), &all);
}

#[test]
fn files_of_other_programs_are_compared_by_size_and_time() {
    let all = objects(&[("a", 900), ("b", 900), ("c", 900), ("d", 900), ("e", 900)]);
    let other = vec![7; 900];
    let second = Duration::from_secs(1);
    let bucket = || {
        let bucket = Bucket::new(&all);
        bucket.plant("a", &other, written(0));
        // Some programs set fractions of a second.
        bucket.plant("b", &other, written(1) + Duration::from_millis(999));
        bucket.plant("c", &other, written(2) - second);
        bucket.plant("d", &other, written(3) + second);
        bucket.plant("e", &other[..899], written(4));
        bucket
    };
    let left_alone = |bucket: &Bucket, keys: &[&str]| {
        for (key, bytes) in &all {
            let found = fs::read(bucket.data().join(key)).expect("there");
            let expected = if keys.contains(&key.as_str()) { &other } else { bytes };
            assert!(found == *expected, "{key}");
        }
    };
    for (options, kept) in [
        (&[][..], &["a", "b"][..]),
        (&["--exact-timestamps"], &["a", "b"]),
        (&["--size-only"], &["a", "b", "c", "d"]),
        (&["--ignore-times"], &[]),
        (&["--overwrite", "always"], &[]),
        (&["--no-resume"], &[]),
    ] {
        for command in ["sync", "get"] {
            let bucket = bucket();
            let dry = [&["--dry-run"], options].concat();
            // With the total.
            let lines = bucket.run(command, &dry).stdout.lines().count();
            assert_eq!(lines, 5 - kept.len() + 1, "{options:?}");
            let report = bucket.home.path().join("report");
            let name = report.to_str().expect("UTF-8");
            let run = bucket.run(command, &[options, &["--report", name]].concat());
            let number = kept.len() as u64;
            assert_eq!(counts(&run), [5 - number, number, number], "{options:?}\n{run}");
            left_alone(&bucket, kept);
            let lines = fs::read_to_string(report).expect("a report");
            let by = if options == ["--size-only"] { "its size is that" } else { "size and time" };
            let reported = lines.lines().filter(|line| {
                line.contains(r#""status":"kept""#)
                    && line.contains(r#""verdict":"not validated""#)
                    && line.contains(by)
            });
            assert_eq!(reported.count(), kept.len(), "{lines}");
            let note = format!("{number} of these compared by size");
            assert_eq!(run.stderr.contains(&note), number > 0, "{run}");
        }
    }
}

#[test]
fn where_there_is_a_mark_it_decides() {
    let all = objects(&[("a", 900), ("b", 900), ("c", 900), ("d", 3 * MIB), ("e", 900), ("f", 0)]);
    for options in [&[][..], &["--size-only"]] {
        let bucket = Bucket::new(&all);
        bucket.run("sync", &[]);
        let data = bucket.data();
        // Other bytes under the same size; then with another time; the same bytes with another
        // time; a mark that is none.
        fs::write(data.join("a"), vec![1; 900]).expect("written");
        fs::write(data.join("b"), vec![1; 900]).expect("written");
        touch(&data.join("b"), Duration::from_secs(WRITTEN - 1));
        touch(&data.join("c"), Duration::from_secs(WRITTEN - 1));
        rustix::fs::setxattr(data.join("e"), MARK, b"something", XattrFlags::empty()).expect("set");
        // Replaced in the bucket, by as many bytes.
        let mut after = all.clone();
        after.insert("d".to_owned(), vec![5; 3 * MIB]);
        bucket.put("d", &after["d"], written(3) + Duration::from_millis(1));
        let run = bucket.run("sync", options);
        assert_eq!(counts(&run), [5, 1, 0], "{options:?}\n{run}");
        assert_same(&data, &after);
        assert_times(&data, &after);
        // Without their marks, as after a copy, they are compared as those of others.
        for key in after.keys() {
            rustix::fs::removexattr(data.join(key), MARK).expect("it had one");
        }
        let run = bucket.run("sync", options);
        assert_eq!(counts(&run), [0, 6, 6], "{options:?}\n{run}");
        // Replaced again: only the time differs.
        bucket.put("a", &[8; 900], written(9));
        let run = bucket.run("sync", &[]);
        assert_eq!(counts(&run), [1, 5, 5], "{run}");
        assert_eq!(fs::read(data.join("a")).expect("there"), [8; 900]);
    }
}

#[test]
fn without_attributes_files_of_others_are_compared_all_the_same() {
    let Some(mount) = Mount::of("ramfs", "mode=777") else { return };
    let all = objects(&[("a", 900), ("b", 900), ("large", 3 * MIB + 5)]);
    let bucket = Bucket::new(&all);
    let data = mount.path().join("data");
    place(&data.join("a"), &all["a"], written(0));
    let sync = || program(&bucket.serve(None), "sync", &data, &[]).run().expect(0);
    assert_eq!(counts(&sync()), [2, 1, 1]);
    assert!(data.join(".inrush-index").exists());
    assert_seconds(&data, &all);
    assert_eq!(counts(&sync()), [0, 3, 1]);
    // What the index knows decides.
    touch(&data.join("b"), written(7));
    let run = sync();
    assert_eq!(counts(&run), [1, 2, 1], "{run}");
    fs::remove_file(data.join(".inrush-index")).expect("removed");
    assert_same(&data, &all);
    assert_seconds(&data, &all);
}
