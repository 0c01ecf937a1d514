//! `get --spread-to`: several destinations. Each object is in one of them, whole, whatever is there
//! before, whenever a run is killed, and where one destination is full.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "programs under test")]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
#[path = "../common/mount.rs"]
#[expect(dead_code, reason = "nothing is read-only here")]
mod mount;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "not all signals are sent here")]
mod program;
#[path = "../common/served.rs"]
mod served;
#[path = "../common/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use inrush_origin::{Config, Origin};
use rustix::process::Signal;
use serde_json::Value;

use matrix::{Objects, bytes_of};
use mount::Mount;
use program::{Program, Run};
use served::{config, get, serve, start};

const MIB: usize = 1 << 20;
/// The exit code where some objects failed.
const OBJECTS: i32 = 1;
/// The exit code of a destination that cannot be written to.
const DESTINATION: i32 = 5;

fn objects() -> Objects {
    let large = (0..6).map(|number| (format!("large/{number}"), 9 * MIB + number));
    let small = (0..60).map(|number| (format!("small/{}/{number}", number % 3), 39_000));
    let empty = [("empty".to_owned(), 0)];
    let all = large.chain(small).chain(empty);
    all.map(|(key, length)| (key.clone(), bytes_of(&key, length))).collect()
}

/// Two destinations that are not there yet.
struct Places {
    folder: tempfile::TempDir,
}

impl Places {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn two(&self) -> [PathBuf; 2] {
        ["one,", "two"].map(|name| self.folder.path().join(name))
    }
}

/// `get` of everything to these.
fn spread(origin: &Origin, [first, second]: &[PathBuf; 2]) -> Program {
    let [first, second] = [first, second].map(|path| path.to_str().expect("UTF-8"));
    get(origin, ["s3://lab/", first, "--spread-to", second, "--json"])
}

/// The files below a folder, by their paths; those of the program itself, too. A file that a run
/// renames or removes between the list and the read is left out.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let Ok(entries) = fs::read_dir(&next) else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below it").to_str().expect("UTF-8");
                match fs::read(&path) {
                    Ok(bytes) => drop(found.insert(name.to_owned(), bytes)),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => panic!("{}: {error}", path.display()),
                }
            }
        }
    }
    found
}

/// Every object is in one of the folders, with its bytes, and nothing else is in any; how many are
/// in each.
#[track_caller]
fn assert_each_once(places: &[PathBuf; 2], objects: &Objects) -> [usize; 2] {
    let each = places.each_ref().map(|place| files(place));
    for (key, bytes) in objects {
        let there: Vec<_> = each.iter().filter_map(|files| files.get(key)).collect();
        assert_eq!(there.len(), 1, "{key} is there {} times", there.len());
        assert!(there[0] == bytes, "{key} has other bytes");
    }
    let count = each.each_ref().map(BTreeMap::len);
    assert_eq!(
        count[0] + count[1],
        objects.len(),
        "nothing else: {:?}",
        each.map(|f| {
            f.into_keys().filter(|key| !objects.contains_key(key)).collect::<Vec<_>>()
        })
    );
    count
}

/// The summary's destinations: paths, objects, bytes.
fn destinations_of(run: &Run) -> Vec<(String, u64, u64)> {
    let lines = run.json()["destinations"].clone();
    let line = |line: &Value| {
        let number = |name: &str| line[name].as_u64().expect("a number");
        (line["path"].as_str().expect("a path").to_owned(), number("objects"), number("bytes"))
    };
    lines.as_array().expect("a list").iter().map(line).collect()
}

#[test]
fn each_object_is_in_one_destination_and_a_second_run_keeps_it() {
    let objects = objects();
    let origin = serve(&objects);
    let folder = Places::new();
    let places = folder.two();
    let report = folder.folder.path().join("report");
    let report = report.to_str().expect("UTF-8");
    let run = spread(&origin, &places).with(["--report", report]).run().expect(0);
    let counts = assert_each_once(&places, &objects);
    assert!(counts.iter().all(|count| *count > 0), "both take some: {counts:?}");
    let lines = destinations_of(&run);
    let paths = places.each_ref().map(|path| path.display().to_string());
    for (line, (path, count)) in lines.iter().zip(paths.iter().zip(counts)) {
        assert_eq!((&line.0, line.1), (path, count as u64), "{run}");
    }
    let all: usize = objects.values().map(Vec::len).sum();
    assert_eq!(lines[0].2 + lines[1].2, all as u64, "{run}");
    // The report says where each is.
    let lines = fs::read_to_string(report).expect("a report");
    assert_eq!(lines.lines().count(), objects.len());
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = |name: &str| line[name].as_str().expect("a text").to_owned();
        assert!(Path::new(&text("destination")).join(text("path")).is_file(), "{line}");
    }
    // In whichever order they are named: nothing is downloaded again.
    let [one, two] = places.clone();
    for places in [[one.clone(), two.clone()], [two, one]] {
        let run = spread(&origin, &places).run().expect(0);
        let summary = run.json();
        assert_eq!(summary["kept_objects"], objects.len(), "{run}");
        assert_eq!((&summary["objects"], &summary["requests"]), (&0.into(), &0.into()), "{run}");
        assert_each_once(&places, &objects);
    }
    // One alone has no such list, and goes by its own files.
    let words = ["s3://lab/", paths[0].as_str(), "--json", "--dry-run"];
    let run = get(&origin, words).run().expect(0);
    let planned = run.stdout.lines().filter(|line| line.contains("\"kind\":\"object\"")).count();
    assert_eq!(planned, counts[1], "{run}");
}

#[test]
fn an_object_that_has_changed_stays_where_it_was() {
    let before = objects();
    let folder = Places::new();
    let places = folder.two();
    spread(&serve(&before), &places).run().expect(0);
    let was = places.each_ref().map(|place| files(place));
    let changed = |(key, bytes): (&String, &Vec<u8>)| {
        (key.clone(), bytes_of(&format!("{key} changed"), bytes.len() + 5))
    };
    let after: Objects = before.iter().map(changed).collect();
    let origin = serve(&after);
    for words in [&[][..], &["--overwrite", "always"], &["--no-resume"]] {
        let run = spread(&origin, &places).with(words).run().expect(0);
        assert_each_once(&places, &after);
        let is = places.each_ref().map(|place| files(place));
        for (was, is) in was.iter().zip(&is) {
            assert!(was.keys().eq(is.keys()), "an object moved: {words:?}\n{run}");
        }
    }
}

/// While a run writes to both places, some of an object being noted in each: `during`; then it is
/// killed.
fn killed(objects: &Objects, places: &[PathBuf; 2], during: impl FnOnce(&Origin)) {
    // One of eight connections brings a range of 1 MiB in two seconds, and all of them the objects
    // in 15 s: `during` starts a program.
    let origin = start(Config { connection_rate: NonZeroU64::new(500_000), ..config(objects) });
    let words = ["--connections", "8", "--part-size", "1M"];
    let mut run = spread(&origin, places).with(words).start();
    let has_journal = |place: &PathBuf| {
        let journal =
            |(name, bytes): (&String, &Vec<u8>)| name.ends_with(".journal") && bytes.len() > 100;
        files(place).iter().any(journal)
    };
    assert!(run.until(|| places.iter().all(has_journal)), "it ended first");
    during(&origin);
    run.signal(Signal::KILL);
    run.wait().expect_killed(Signal::KILL);
}

#[test]
fn a_run_that_was_killed_goes_on_where_each_object_was() {
    let objects = objects();
    let folder = Places::new();
    let places = folder.two();
    killed(&objects, &places, |_| ());
    let unfinished = places.each_ref().map(|place| {
        files(place).into_keys().filter(|name| name.ends_with(".part")).collect::<Vec<_>>()
    });
    assert!(unfinished.iter().all(|names| !names.is_empty()), "{unfinished:?}");
    let origin = serve(&objects);
    // Nothing is made of an unfinished file but by the run that goes on with it.
    let [one, two] = places.clone();
    let run = spread(&origin, &[two, one]).run().expect(0);
    let resumed = run.json()["resumed_objects"].as_u64().expect("a number");
    let parts = unfinished.iter().map(Vec::len).sum::<usize>() as u64;
    assert!(resumed > 0 && resumed <= parts, "{resumed} of {parts}\n{run}");
    // What was there was not written by this run.
    let mut written: u64 = destinations_of(&run).iter().map(|line| line.2).sum();
    written += run.json()["kept_bytes"].as_u64().expect("a number");
    written += run.json()["resumed_bytes"].as_u64().expect("a number");
    assert_eq!(written, objects.values().map(Vec::len).sum::<usize>() as u64, "{run}");
    assert_each_once(&places, &objects);
}

#[test]
fn a_second_run_over_one_of_the_folders_is_refused() {
    let objects = objects();
    let folder = Places::new();
    let places = folder.two();
    killed(&objects, &places, |origin| {
        let [one, two] = places.clone();
        let third = folder.folder.path().join("third");
        for overlapping in [[two, one.clone()], [third.clone(), one]] {
            let run = spread(origin, &overlapping).run().expect(DESTINATION);
            run.expect_error(&["spreads a download over", ".inrush-spread.lock", "pid"]);
            // What would be done may be asked.
            spread(origin, &overlapping).with(["--dry-run"]).run().expect(0);
        }
        assert!(!third.exists(), "what was made for it goes with it");
    });
    // Its lock went with it.
    spread(&serve(&objects), &places).run().expect(0);
    assert_each_once(&places, &objects);
}

#[test]
fn a_folder_that_is_named_twice_keeps_what_is_unfinished_in_it() {
    let objects = objects();
    let folder = Places::new();
    let [one, two] = folder.two();
    killed(&objects, &[one.clone(), two.clone()], |_| ());
    let before = files(&one);
    let origin = serve(&objects);
    let link = folder.folder.path().join("link");
    std::os::unix::fs::symlink(&one, &link).expect("a link");
    for other in [link.clone(), one.join("."), link.join("below")] {
        for words in [&[][..], &["--dry-run"]] {
            for pair in [[one.clone(), other.clone()], [other.clone(), one.clone()]] {
                let run = spread(&origin, &pair).with(words).run().expect(DESTINATION);
                run.expect_error(&["or below it", "none is within another"]);
                assert!(files(&one) == before, "{words:?} {pair:?}: something was changed");
            }
        }
    }
}

#[test]
fn a_folder_that_is_mounted_twice_is_refused() {
    let Some(mount) = Mount::tmpfs("size=64M") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (inner, bound) = (mount.path().join("a/b"), folder.path().join("bound"));
    fs::create_dir_all(&inner).expect("folders");
    fs::create_dir(&bound).expect("a folder");
    let words = ["--bind".as_ref(), inner.as_os_str()];
    let Some(_bound) = Mount::at(&words, &bound, None) else { return };
    let origin = serve(&objects());
    let above = mount.path().join("a");
    for other in [inner, mount.path().to_owned(), above.join("b/new"), above] {
        for pair in [[bound.clone(), other.clone()], [other.clone(), bound.clone()]] {
            let run = spread(&origin, &pair).run().expect(DESTINATION);
            run.expect_error(&["or below it"]);
            assert!(files(mount.path()).is_empty(), "nothing was downloaded");
        }
    }
}

#[test]
fn an_object_that_is_in_two_places_is_reported() {
    let objects = objects();
    let origin = serve(&objects);
    let folder = Places::new();
    let places = folder.two();
    for place in &places {
        fs::create_dir_all(place.join("large")).expect("a folder");
        fs::write(place.join("large/3"), "mine").expect("a file");
    }
    let run = spread(&origin, &places).run().expect(OBJECTS);
    run.check(run.json()["failed_objects"] == 1, "one failed");
    let run = run.expect_words(&["s3://lab/large/3", "are both there", "remove one of them"]);
    for place in &places {
        assert_eq!(fs::read(place.join("large/3")).expect("it stays"), b"mine", "{run}");
        fs::remove_file(place.join("large/3")).expect("a file");
    }
    spread(&origin, &places).run().expect(0);
    assert_each_once(&places, &objects);
}

#[test]
fn folders_within_each_other_are_refused() {
    let origin = serve(&objects());
    let folder = Places::new();
    let [one, two] = folder.two();
    fs::create_dir(&one).expect("a folder");
    std::os::unix::fs::symlink(&one, &two).expect("a link");
    for other in [one.clone(), one.join("below"), two] {
        let run = spread(&origin, &[one.clone(), other.clone()]).run().expect(DESTINATION);
        run.expect_error(&["or below it", "none is within another"]);
        let run = spread(&origin, &[other, one.clone()]).run().expect(DESTINATION);
        run.expect_error(&["or below it"]);
    }
    let file = folder.folder.path().join("file");
    fs::write(&file, "x").expect("a file");
    spread(&origin, &[one.clone(), file]).run().expect(DESTINATION).expect_error(&["is a file"]);
    assert!(files(&one).is_empty(), "nothing was downloaded");
}

#[test]
fn a_small_disk_takes_what_fits_and_the_other_the_rest() {
    // A quarter of the objects, and more than all of them.
    let mounts = ["size=16M", "size=96M"].map(Mount::tmpfs);
    let [Some(small), Some(large)] = mounts else { return };
    let objects = objects();
    let origin = serve(&objects);
    let places = [small.path().to_owned(), large.path().to_owned()];
    spread(&origin, &places).run().expect(0);
    let counts = assert_each_once(&places, &objects);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    // Both are too small: the run fails before anything moves.
    let mounts = ["size=16M", "size=20M"].map(Mount::tmpfs);
    let [Some(small), Some(other)] = mounts else { return };
    let places = [small.path().to_owned(), other.path().to_owned()];
    let run = spread(&origin, &places).run().expect(DESTINATION);
    run.expect_error(&["have together", "free, but the download needs at least"]);
    assert!(places.iter().all(|place| files(place).is_empty()), "nothing was downloaded");
}

/// A destination's line of the summary.
fn line_of(run: &Run, place: usize) -> Value {
    run.json()["destinations"][place].clone()
}

#[test]
fn a_disk_that_is_full_before_its_time_is_left_out() {
    let objects = objects();
    let origin = serve(&objects);
    // What is free is not looked at: the disk says so.
    let blindly = |places: &[PathBuf; 2]| spread(&origin, places).with(["--no-space-check"]);
    for order in [[0, 1], [1, 0]] {
        let mounts = ["size=16M", "size=96M"].map(Mount::tmpfs);
        let [Some(small), Some(large)] = mounts else { return };
        let paths = [small.path().to_owned(), large.path().to_owned()];
        let places = order.map(|at| paths[at].clone());
        let run = blindly(&places).run().expect(DESTINATION);
        assert_each_once(&places, &objects);
        let at = order.iter().position(|at| *at == 0).expect("it is one of them");
        let (full, other) = (line_of(&run, at), line_of(&run, 1 - at));
        run.check(full["left_out"].to_string().contains("No space left"), "why");
        run.check(full["moved_objects"].as_u64().is_some_and(|count| count > 0), "how many");
        assert_eq!((&other["left_out"], &other["moved_objects"]), (&Value::Null, &0.into()));
        let summary = run.json();
        assert_eq!(summary["objects"], objects.len(), "{run}");
        assert_eq!(summary["failed_objects"], 0, "{run}");
        assert_eq!(summary["error_kind"], "no_space", "{run}");
        let path = small.path().display().to_string();
        let expected = format!("{path} is left out from now on");
        assert_eq!(run.stderr.matches(&expected).count(), 1, "{run}");
        // All is there now.
        let run = spread(&origin, &places).run().expect(0);
        assert_eq!(run.json()["kept_objects"], objects.len(), "{run}");
        assert_each_once(&places, &objects);
    }
}

#[test]
fn the_run_ends_when_no_disk_is_left() {
    let mounts = ["size=16M", "size=20M"].map(Mount::tmpfs);
    let [Some(small), Some(other)] = mounts else { return };
    let places = [small.path().to_owned(), other.path().to_owned()];
    let origin = serve(&objects());
    let run = spread(&origin, &places).with(["--no-space-check"]).run().expect(DESTINATION);
    run.check(run.stderr.contains("No space left"), "why");
    for place in [0, 1] {
        run.check(line_of(&run, place)["left_out"].is_string(), "both");
    }
    assert_eq!(run.json()["error_kind"], "no_space", "{run}");
}

#[test]
fn a_file_on_a_full_disk_gets_no_twin() {
    let mounts = ["size=4M", "size=96M"].map(Mount::tmpfs);
    let [Some(small), Some(large)] = mounts else { return };
    let places = [small.path().to_owned(), large.path().to_owned()];
    let objects = objects();
    fs::create_dir_all(small.path().join("large")).expect("a folder");
    fs::write(small.path().join("large/3"), "mine").expect("a file");
    let origin = serve(&objects);
    let run = spread(&origin, &places).with(["--no-space-check", "--overwrite", "always"]);
    let run = run.run().expect(OBJECTS);
    run.check(run.json()["failed_objects"] == 1, "one failed");
    let run = run.expect_words(&["s3://lab/large/3: a file of its name is in", "left out"]);
    let there = places.each_ref().map(|place| files(place));
    assert_eq!(there[0].get("large/3").map(Vec::as_slice), Some(&b"mine"[..]), "{run}");
    assert!(!there[1].contains_key("large/3"), "{run}");
    let count = there.each_ref().map(BTreeMap::len);
    assert_eq!(count[0] + count[1], objects.len(), "{run}");
}

#[test]
fn data_is_synced_in_all_destinations() {
    let objects = objects();
    let origin = serve(&objects);
    for durability in ["end", "file"] {
        let folder = Places::new();
        let places = folder.two();
        spread(&origin, &places).with(["--durability", durability]).run().expect(0);
        assert_each_once(&places, &objects);
    }
}
