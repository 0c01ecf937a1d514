//! Which file each object becomes, byte for byte.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use inrush_origin::{ObjectContent, ObjectSpec, SyntheticSet, synthetic_bytes};

use crate::matrix::{Objects, many, names};
use crate::mount::Mount;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, BUCKET, SECRET, config, get, serve, start};
use crate::without::without;
use crate::{Place, objects, pick};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A small bucket with something of everything.
static TREE: LazyLock<Objects> = LazyLock::new(|| {
    objects(&[
        ("readme.txt", 10),
        ("train/a.bin", 700),
        ("train/b.bin", 2 * MIB + 3),
        ("train/deep/c.bin", 1),
        ("train/deep/d.txt", 50),
        ("train/deep/er/e.bin", 0),
        ("train-more/f.bin", 9),
        ("val/a.bin", 701),
        ("val/g.bin", 20),
    ])
});

/// Gets with these words, and sees that exactly these files are there.
#[track_caller]
fn check(words: &[&str], files: &[(&str, &str)]) {
    let origin = serve(&TREE);
    let place = Place::new();
    fs::create_dir(place.path()).expect("a folder");
    let run = get(&origin, words).with([place.path()]).run().expect(0);
    run.check(run.stderr.is_empty() && run.stdout.is_empty(), "quiet success says nothing");
    place.assert_holds(&pick(&TREE, files));
}

#[test]
fn folders() {
    let train = [
        ("a.bin", "train/a.bin"),
        ("b.bin", "train/b.bin"),
        ("deep/c.bin", "train/deep/c.bin"),
        ("deep/d.txt", "train/deep/d.txt"),
        ("deep/er/e.bin", "train/deep/er/e.bin"),
    ];
    check(&["s3://lab/train/"], &train);
    // A folder without its slash is the folder, and not what begins alike.
    check(&["s3://lab/train"], &train);
    check(&["s3://lab/train/deep/er/"], &[("e.bin", "train/deep/er/e.bin")]);
    let all: Vec<_> = TREE.keys().map(|key| (key.as_str(), key.as_str())).collect();
    check(&["s3://lab"], &all);
    check(&["s3://lab/"], &all);
}

#[test]
fn globs() {
    check(&["s3://lab/train/*.bin"], &[("a.bin", "train/a.bin"), ("b.bin", "train/b.bin")]);
    check(
        &["s3://lab/train/**/*.bin"],
        &[
            ("a.bin", "train/a.bin"),
            ("b.bin", "train/b.bin"),
            ("deep/c.bin", "train/deep/c.bin"),
            ("deep/er/e.bin", "train/deep/er/e.bin"),
        ],
    );
    check(&["s3://lab/*/a.bin"], &[("train/a.bin", "train/a.bin"), ("val/a.bin", "val/a.bin")]);
    check(&["s3://lab/val/[a-f].bin"], &[("a.bin", "val/a.bin")]);
    check(&["s3://lab/train/deep/?.txt"], &[("d.txt", "train/deep/d.txt")]);
}

#[test]
fn includes_and_excludes() {
    check(
        &["s3://lab/train/", "--include", "*.txt", "--include", "b.*"],
        &[("b.bin", "train/b.bin"), ("deep/d.txt", "train/deep/d.txt")],
    );
    check(
        &["s3://lab/train/", "--exclude", "deep/**", "--exclude", "b.bin"],
        &[("a.bin", "train/a.bin")],
    );
    check(
        &["s3://lab/train/", "--include", "*.bin", "--exclude", "deep/er/", "--exclude", "b*"],
        &[("a.bin", "train/a.bin"), ("deep/c.bin", "train/deep/c.bin")],
    );
    // The last one that matches decides, and everything is taken at first.
    check(&["s3://lab/train/", "--exclude", "*", "--include", "b.*"], &[("b.bin", "train/b.bin")]);
}

#[test]
fn several_sources() {
    check(
        &["s3://lab/val/g.bin", "s3://lab/train/deep/", "s3://lab/*.txt"],
        &[
            ("c.bin", "train/deep/c.bin"),
            ("d.txt", "train/deep/d.txt"),
            ("er/e.bin", "train/deep/er/e.bin"),
            ("g.bin", "val/g.bin"),
            ("readme.txt", "readme.txt"),
        ],
    );
}

#[test]
fn one_object_to_a_name_or_into_a_folder() {
    let origin = serve(&TREE);
    let fetch = |destination: &Path, slash: &str, expected: &str| {
        let word = format!("{}{slash}", destination.display());
        get(&origin, ["s3://lab/train/b.bin", &word]).run().expect(0);
        let file = match expected {
            "" => destination.to_owned(),
            name => destination.join(name),
        };
        assert_eq!(fs::read(&file).expect("a file"), TREE["train/b.bin"], "{file:?}");
    };
    let folder = tempfile::tempdir().expect("a folder");
    // Into a folder that is there, with and without its slash.
    fetch(folder.path(), "", "b.bin");
    fetch(folder.path(), "/", "b.bin");
    // To a name, also one below folders that are not there.
    fetch(&folder.path().join("name"), "", "");
    fetch(&folder.path().join("not/there/name"), "", "");
    // Into a folder that is not there, which the slash says it is.
    fetch(&folder.path().join("new"), "/", "b.bin");
    // Over a file.
    fetch(&folder.path().join("name"), "", "");
    let inside = crate::program::Program::new(["get", "--quiet", "s3://lab/train/a.bin", "plain"]);
    let inside = inside.asking(&origin).with_keys(crate::served::ACCESS_KEY, crate::served::SECRET);
    let here = ["sh", "-c", "cd \"$0\" && exec \"$@\"", folder.path().to_str().expect("UTF-8")];
    inside.by_way_of(here).run().expect(0);
    let mut all = pick(
        &TREE,
        &[("b.bin", "train/b.bin"), ("name", "train/b.bin"), ("new/b.bin", "train/b.bin")],
    );
    all.extend(pick(&TREE, &[("not/there/name", "train/b.bin"), ("plain", "train/a.bin")]));
    crate::matrix::assert_same(folder.path(), &all);
}

#[test]
fn marks_of_folders_and_empty_objects() {
    let all = objects(&[
        ("p/", 0),
        ("p/empty", 0),
        ("p/mark/", 0),
        ("p/mark/inside", 4),
        ("p/other/", 0),
        ("p/very/deep/mark/", 0),
    ]);
    let origin = serve(&all);
    for options in [&[][..], &["--workers", "1", "--connections", "1"]] {
        let place = Place::new();
        let words = [&["s3://lab/p/", "--json"], options].concat();
        let run = get(&origin, words).with([place.path()]).run().expect(0);
        assert_eq!(run.json()["failed_objects"], 0, "{run}");
        place.assert_holds(&pick(&all, &[("empty", "p/empty"), ("mark/inside", "p/mark/inside")]));
        for folder in ["mark", "other", "very/deep/mark"] {
            assert!(place.path().join(folder).is_dir(), "{folder}");
        }
    }
    // A mark alone is an empty folder.
    let place = Place::new();
    get(&origin, ["s3://lab/p/other/"]).with([place.path()]).run().expect(0);
    place.assert_holds(&Objects::new());
}

/// Sizes on and beside every boundary: sectors, pages, slots with and without the room for a head,
/// parts.
fn boundaries() -> Vec<usize> {
    let edges = [512, 4 * KIB, 16 * KIB, 48 * KIB, 64 * KIB, MIB - 16 * KIB, MIB, 2 * MIB, 8 * MIB];
    let around = edges.into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]);
    let mut sizes: Vec<usize> = around.chain([0, 1, 3 * MIB + 4095, 8 * MIB + 4097]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Objects that the origin computes, and their bytes.
fn computed() -> (Vec<ObjectSpec>, Objects) {
    let object = |size: usize| {
        let key = format!("{size:08}");
        let mut bytes = vec![0; size];
        synthetic_bytes(&key, 0, &mut bytes);
        let content = ObjectContent::Synthetic { length_bytes: size as u64 };
        (ObjectSpec::new(BUCKET, &key, content), (key, bytes))
    };
    boundaries().into_iter().map(object).unzip()
}

#[test]
fn sizes_around_every_boundary() {
    let (specs, all) = computed();
    let mut configuration = config(&Objects::new());
    configuration.objects = specs;
    let origin = start(configuration);
    let tuned = [
        &[][..],
        &["--part-size", "1MiB", "--connections", "3", "--workers", "2"],
        &["--memory", "4MiB"],
        &["--workers", "1", "--connections", "1", "--memory", "4MiB", "--part-size", "1MiB"],
    ];
    let total: usize = all.values().map(Vec::len).sum();
    for options in tuned {
        let place = Place::new();
        let words = [&["s3://lab/", "--json"], options].concat();
        let run = get(&origin, &words).with([place.path()]).run().expect(0);
        place.assert_holds(&all);
        assert_eq!(run.json()["bytes"], total, "{run}");
        let words = [&["s3://lab/", "--json", "--discard"], options].concat();
        let summary = get(&origin, &words).run().expect(0).json();
        assert_eq!((&summary["bytes"], &summary["objects"]), (&total.into(), &all.len().into()));
        assert_eq!(summary["sink"], "discard");
    }
}

/// 50 TB (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html>).
#[test]
fn the_largest_object_of_s3_is_an_object_like_any_other() {
    const HUGE_BYTES: u64 = 50_000_000_000_000;
    let content = ObjectContent::Synthetic { length_bytes: HUGE_BYTES };
    let mut configuration = config(&Objects::new());
    configuration.objects = vec![ObjectSpec::new(BUCKET, "huge", content)];
    let origin = start(configuration);
    let mut last = [0; 20];
    synthetic_bytes("huge", HUGE_BYTES - 20, &mut last);
    let range = format!("{}-", HUGE_BYTES - 20);
    let cat = Program::new(["cat", "s3://lab/huge", "--range", &range]).asking(&origin);
    let run = cat.with_keys(ACCESS_KEY, SECRET).run().expect(0);
    run.check(run.stdout == String::from_utf8_lossy(&last), "its last bytes");
    let place = Place::new();
    let run = get(&origin, ["s3://lab/huge"]).with([place.path()]).run().expect(5);
    run.expect_error(&["the download needs at least 50 TB"]).check(!place.path().exists(), "none");
    let words = ["s3://lab/huge", "--discard", "--json", "--deadline", "3s"];
    let summary = get(&origin, words).run().expect(8).json();
    assert!(summary["peak_rss_bytes"].as_f64().expect("a number") < 4e8, "{summary}");
}

#[test]
fn names_of_every_kind() {
    let mut all = names();
    for name in ["100%", "a+b", "%41", "tab\there", "new\nline", "\u{1b}[31m", "\u{7f}", "\u{202e}"]
    {
        all.insert(format!("names/{name}"), name.as_bytes().to_vec());
    }
    let origin = serve(&all);
    let place = Place::new();
    get(&origin, ["s3://lab/"]).with([place.path()]).run().expect(0);
    place.assert_holds(&all);
    // One by one as well: HEAD instead of a listing.
    for name in ["100%", "a+b", "%41", "with space", "new\nline", "caf\u{e9}"] {
        let place = Place::new();
        let source = format!("s3://lab/names/{name}");
        get(&origin, [&source]).with([place.path()]).run().expect(0);
        let bytes = fs::read(place.path()).expect("a file");
        assert_eq!(bytes, all[&format!("names/{name}")], "{name:?}");
    }
}

#[test]
fn several_pages() {
    let all = many(3_100);
    let origin = serve(&all);
    let place = Place::new();
    let run = get(&origin, ["s3://lab/", "--json"]).with([place.path()]).run().expect(0);
    place.assert_holds(&all);
    let stats = origin.stop();
    assert_asked_once(&run, stats.gets, 3_100);
    // Four pages; where several are asked for at once, as 16 are at most, guesses may be in vain.
    assert!((4..4 + 16).contains(&stats.lists), "{} requests", stats.lists);
}

#[test]
fn thousands_of_objects_beyond_the_queue_arrive() {
    let mut configuration = config(&Objects::new());
    configuration.synthetic = vec![SyntheticSet::new(BUCKET, "s/", 10_000, 10)];
    let origin = start(configuration);
    let run = get(&origin, ["s3://lab/s/", "--discard", "--json"]).run().expect(0);
    assert_eq!((&run.json()["objects"], &run.json()["bytes"]), (&10_000.into(), &100_000.into()));
    assert_asked_once(&run, origin.stop().gets, 10_000);
}

/// That the server was asked once for each object, and a second time only for late ones, which a
/// busy machine can have.
fn assert_asked_once(run: &Run, gets: u64, objects: u64) {
    let late = run.json()["hedges"].as_u64().expect("a number");
    assert!((objects..=objects + late).contains(&gets), "{gets} requests, {late} late ranges");
}

#[test]
fn older_files_are_replaced_and_a_rerun_changes_nothing() {
    let all = objects(&[("a", 300), ("b/large", 3 * MIB), ("b/small", 40), ("empty", 0)]);
    let origin = serve(&all);
    let place = Place::new();
    let path = place.path();
    fs::create_dir_all(path.join("b")).expect("a folder");
    // Longer ones, so that a rest of them would show.
    for (name, length) in [("a", 9 * KIB), ("b/large", 4 * MIB), ("empty", 10)] {
        fs::write(path.join(name), vec![0xee; length]).expect("a file");
    }
    fs::write(path.join("kept"), "not of the run").expect("a file");
    let mut wanted = all.clone();
    wanted.insert("kept".to_owned(), b"not of the run".to_vec());
    for _ in 0..3 {
        get(&origin, ["s3://lab/"]).with([&path]).run().expect(0);
        place.assert_holds(&wanted);
    }
    // Who had the old file open keeps it whole: it is replaced, not written over.
    let before = fs::File::open(path.join("b/large")).expect("a file");
    origin.put_object(&crate::served::object("b/large", vec![1; 2 * MIB])).expect("a key");
    get(&origin, ["s3://lab/"]).with([&path]).run().expect(0);
    assert_eq!(before.metadata().expect("it is open").len(), 3 * MIB as u64);
    assert_eq!(fs::read(path.join("b/large")).expect("a file"), vec![1; 2 * MIB]);
}

#[test]
fn permissions_are_those_of_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let origin = serve(&objects(&[("f/large", 2 * MIB), ("f/small", 5)]));
    for (mask, file, folder) in [("022", 0o644, 0o755), ("077", 0o600, 0o700)] {
        let place = Place::new();
        let before = ["sh", "-c", "umask $0 && exec \"$@\"", mask];
        get(&origin, ["s3://lab/"]).with([place.path()]).by_way_of(before).run().expect(0);
        let mode = |name: &str| {
            let metadata = fs::metadata(place.path().join(name)).expect("it is there");
            metadata.permissions().mode() & 0o7777
        };
        assert_eq!((mode("f/large"), mode("f/small"), mode("f")), (file, file, folder));
    }
}

/// Whether files in this folder may be opened past the page cache.
fn takes_direct(folder: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = folder.join("probe");
    let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("one flag");
    let opened = fs::OpenOptions::new().write(true).create(true).custom_flags(flags).open(&path);
    // It may be made although it is not opened (open(2)).
    fs::remove_file(&path).ok();
    opened.is_ok()
}

#[track_caller]
fn check_direct(folder: &Path) {
    check_direct_by_way_of(folder, &[], takes_direct(folder));
    if let Some(before) = without("direct") {
        check_direct_by_way_of(folder, &before, false);
    }
}

#[track_caller]
fn check_direct_by_way_of(folder: &Path, before: &[String], expected: bool) {
    let all = objects(&[("large", 2 * MIB + 9), ("larger", 9 * MIB), ("small", 50)]);
    let origin = serve(&all);
    let path = folder.join("destination");
    let options = ["s3://lab/", "--json", "--overwrite", "always"];
    let program = get(&origin, options).with([&path]).by_way_of(before);
    let run = program.run().expect(0);
    crate::matrix::assert_same(&path, &all);
    let reported = &run.json()["direct_io"];
    let count = |yes: bool| if yes { 2 } else { 0 };
    assert_eq!(reported["used"], expected, "{run}");
    assert_eq!(reported["files_direct"], count(expected), "{run}");
    assert_eq!(reported["files_buffered"], count(!expected), "{run}");
}

#[test]
fn the_summary_is_right_about_direct_io() {
    let folder = tempfile::tempdir().expect("a folder");
    check_direct(folder.path());
    if let Some(mount) = Mount::tmpfs("size=64m") {
        check_direct(mount.path());
    }
    if let Some(mount) = Mount::tmpfs("size=64m,huge=always") {
        check_direct(mount.path());
    }
}

#[test]
fn a_dry_run_and_a_discard_write_nothing() {
    let origin = serve(&TREE);
    let place = Place::new();
    get(&origin, ["s3://lab/", "--dry-run"]).with([place.path()]).run().expect(0);
    assert_eq!(origin.stats().gets, 0);
    get(&origin, ["s3://lab/", "--discard"]).run().expect(0);
    let gets = TREE.values().filter(|bytes| !bytes.is_empty()).count() as u64;
    assert_eq!(origin.stats().gets, gets, "empty ones are not asked for");
    assert_eq!(fs::read_dir(place.folder.path()).expect("a folder").count(), 0);
}

/// What is asked for at once comes at once: with a bound that is less.
#[test]
fn parts_are_short_where_the_bandwidth_is_bounded() {
    let all = objects(&[("a", 3_000_000)]);
    let origin = serve(&all);
    for (words, expected) in [
        (&[][..], 8 << 20),
        (&["--bandwidth-limit=20MB"], 4 << 20),
        (&["--bandwidth-limit=20MB", "--part-size=5MiB"], 5 << 20),
        (&["--bandwidth-limit=10GB"], 8 << 20),
    ] {
        let run = get(&origin, ["s3://lab/", "--discard", "--json"]).with(words).run().expect(0);
        assert_eq!(run.json()["part_size_bytes"], expected, "{words:?}");
    }
}

/// Time does what it must at least, however busy the machine is.
#[test]
fn a_bandwidth_limit_is_kept_on_average() {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let all = objects(&keys.map(|key| (key, 250_000)));
    let origin = serve(&all);
    for spelling in ["--bandwidth-limit=1MB", "--limit-rate=1MB/s", "--bwlimit=1000kB"] {
        let (place, begun) = (Place::new(), Instant::now());
        get(&origin, ["s3://lab/", spelling]).with([place.path()]).run().expect(0);
        let elapsed = begun.elapsed();
        place.assert_holds(&all);
        // Two workers may begin at the same time; what they begin with is charged all the same.
        assert!(elapsed >= Duration::from_millis(1_250), "2 MB in {elapsed:?}");
    }
}
