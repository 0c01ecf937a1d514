//! `--prefix` and `--manifest`: sources as SageMaker's channels have them.

use std::fs;

use inrush_origin::Origin;

use crate::matrix::Objects;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::{Place, objects, pick};

const USAGE: i32 = 2;
const NOT_FOUND: i32 = 4;

fn some() -> Objects {
    objects(&[
        ("d/train", 4),
        ("d/train-1.csv", 5),
        ("d/train/a", 6),
        ("d/train/b/c", 7),
        ("d/train2/x", 8),
        ("d/tra*/y", 9),
        ("e/z", 10),
    ])
}

fn program(origin: &Origin, words: &[&str]) -> Program {
    Program::new(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

fn names(run: &Run) -> Vec<&str> {
    run.stdout.lines().filter_map(|line| line.split("s3://lab/").nth(1)).collect()
}

/// Writes a manifest of these entries behind the prefix.
fn manifest(place: &Place, prefix: &str, entries: &[&str]) -> String {
    let path = place.folder.path().join("manifest");
    let mut list = vec![serde_json::json!({ "prefix": prefix })];
    list.extend(entries.iter().map(|entry| serde_json::json!(entry)));
    fs::write(&path, serde_json::Value::from(list).to_string()).expect("a manifest");
    path.display().to_string()
}

#[test]
fn a_prefix_is_the_start_of_keys_for_all_commands() {
    let all = some();
    let origin = serve(&all);
    for (prefix, taken) in [
        (
            "d/train",
            &[
                ("train", "d/train"),
                ("train-1.csv", "d/train-1.csv"),
                ("a", "d/train/a"),
                ("b/c", "d/train/b/c"),
                ("train2/x", "d/train2/x"),
            ][..],
        ),
        ("d/train/", &[("a", "d/train/a"), ("b/c", "d/train/b/c")]),
        ("d/train/b/c", &[("c", "d/train/b/c")]),
        ("d/tra*", &[("y", "d/tra*/y")]),
        ("e", &[("z", "e/z")]),
    ] {
        let (source, place) = (format!("s3://lab/{prefix}"), Place::new());
        let words = ["--prefix", source.as_str()];
        get(&origin, words).with([place.path()]).run().expect(0);
        place.assert_holds(&pick(&all, taken));
        let sync = program(&origin, &["sync", "--json", "--quiet"]).with(words);
        assert_eq!(sync.with([place.path()]).run().expect(0).json()["objects"], 0, "{prefix}");
        program(&origin, &["verify", "-q"]).with(words).with([place.path()]).run().expect(0);
        let keys: Vec<&str> = taken.iter().map(|(_, key)| *key).collect();
        let run = program(&origin, &["ls"]).with(words).run().expect(0);
        run.check(names(&run) == keys, "in key order");
        let cat = program(&origin, &["cat"]).with(words).run().expect(0);
        let bytes: Vec<u8> = keys.iter().flat_map(|key| all[*key].clone()).collect();
        cat.check(cat.stdout == String::from_utf8_lossy(&bytes), "in key order");
    }
    // The empty prefix is the bucket: there `d/train` is a file and a folder.
    let words = ["--prefix", "s3://lab", "--json", "--discard", "--exclude", "/d/train/*"];
    assert_eq!(get(&origin, words).run().expect(0).json()["objects"], 5);
}

#[test]
fn what_a_prefix_cannot_be_is_reported() {
    let origin = serve(&some());
    let expect_message = |words: &[&str], code: i32, expected: &str| {
        program(&origin, words).run().expect(code).expect_error(&[expected]);
    };
    let none = ["get", "--prefix", "s3://lab/d/trains", "--discard"];
    expect_message(
        &none,
        NOT_FOUND,
        "s3://lab/d/trains: no key begins with this prefix; did you mean",
    );
    let several = ["get", "--prefix", "s3://lab/d/train", "s3://lab/e/", "--discard"];
    expect_message(&several, USAGE, "a prefix without a slash at its end are not in key order");
    let place = Place::new();
    let path = place.path().display().to_string();
    let delete = ["sync", "--delete", "--prefix", "s3://lab/e/", path.as_str()];
    expect_message(&delete, USAGE, "--delete requires folders");
    let range = ["cat", "--prefix", "--range", "0-9", "s3://lab/e/z"];
    expect_message(&range, USAGE, "--range takes a single source that is one object");
    expect_message(&["ls", "--prefix"], USAGE, "--prefix needs a source");
    // Several folders are merged as ever.
    let folders = ["get", "--prefix", "s3://lab/d/train/", "s3://lab/e/", "-q"];
    program(&origin, &folders).with([place.path()]).run().expect(0);
    let expected = [("a", "d/train/a"), ("b/c", "d/train/b/c"), ("z", "e/z")];
    place.assert_holds(&pick(&some(), &expected));
}

#[test]
fn two_keys_of_a_prefix_for_one_file_are_reported() {
    let all = objects(&[("t/t2", 5), ("t/t3/a", 6), ("t2", 7), ("t3", 8), ("t4", 9)]);
    let (origin, place) = (serve(&all), Place::new());
    let run = get(&origin, ["--prefix", "s3://lab/t"]).with([place.path()]).run().expect(1);
    let run = run.expect_words(&["s3://lab/t2: another key in the folder of the prefix has the"]);
    run.expect_words(&["s3://lab/t3: another key is a file where this key needs a folder"]);
    place.assert_holds(&pick(&all, &[("t2", "t/t2"), ("t3/a", "t/t3/a"), ("t4", "t4")]));
    let other = Place::new();
    let words = ["--prefix", "s3://lab/t", "--exclude", "/t2", "--include", "t4"];
    get(&origin, words).with(["--exclude", "t3"]).with([other.path()]).run().expect(0);
    other.assert_holds(&pick(&all, &[("t4", "t4")]));
}

#[test]
fn shards_of_a_prefix_are_those_of_key_order_without_marks_of_folders() {
    let mut all = objects(&[("p/0", 1), ("p/a/1", 2), ("p/a/2", 3), ("p/b", 4), ("p2/c", 5)]);
    all.extend(objects(&[("p/a/", 0), ("p/e/", 0), ("p2/", 0)]));
    let origin = serve(&all);
    for (shard, expected) in
        [("0/2", &["p/0", "p/a/2", "p2/c"][..]), ("1/2", &["p/a/1", "p/b"]), ("7/8", &[])]
    {
        let words = ["--prefix", "s3://lab/p", "--shard", shard];
        let marks = ["p/a/", "p/e/", "p2/"];
        let mut with_marks: Vec<&str> = expected.iter().chain(&marks).copied().collect();
        with_marks.sort_unstable();
        let run = program(&origin, &["ls"]).with(words).run().expect(0);
        run.check(names(&run) == with_marks, shard);
        let cat: Vec<u8> = expected.iter().flat_map(|key| all[*key].clone()).collect();
        let get = get(&origin, words).with(["--discard", "--json"]).run().expect(0);
        assert_eq!(get.json()["bytes"], cat.len(), "{shard}");
    }
}

#[test]
fn a_manifest_lists_the_objects_for_all_commands() {
    let all = some();
    let origin = serve(&all);
    let place = Place::new();
    let list = manifest(&place, "s3://lab/d/tra", &["in2/x", "in/b/c", "*/y"]);
    let words = ["--manifest", list.as_str()];
    get(&origin, words).with([place.path()]).run().expect(0);
    let keys = ["d/train2/x", "d/train/b/c", "d/tra*/y"];
    let relative = [("in2/x", keys[0]), ("in/b/c", keys[1]), ("*/y", keys[2])];
    place.assert_holds(&pick(&all, &relative));
    program(&origin, &["verify", "-q"]).with(words).with([place.path()]).run().expect(0);
    let stats = origin.stats();
    assert_eq!(stats.lists, 0, "nothing is listed");

    let (other, full) = (Place::new(), ["--manifest-layout", "full"]);
    get(&origin, words).with(full).with([other.path()]).run().expect(0);
    other.assert_holds(&pick(&all, &keys.map(|key| (key, key))));

    let run = program(&origin, &["ls"]).with(words).run().expect(0);
    run.check(names(&run) == keys, "in the order of the list");
    let run = program(&origin, &["ls", "--shard", "1/2"]).with(words).run().expect(0);
    run.check(names(&run) == [keys[1]], "in the order of the list");
    let cat = program(&origin, &["cat", "--exclude", "b"]).with(words).run().expect(0);
    let bytes: Vec<u8> = [keys[0], keys[2]].iter().flat_map(|key| all[*key].clone()).collect();
    cat.check(cat.stdout == String::from_utf8_lossy(&bytes), "in the order of the list");
    // One object goes into a folder, too; a part may be empty.
    let (third, one) = (Place::new(), manifest(&place, "s3://lab/e/", &["z"]));
    get(&origin, ["--manifest", &one]).with([third.path()]).run().expect(0);
    third.assert_holds(&pick(&all, &[("z", "e/z")]));
    let before = origin.stats().heads;
    let empty = get(&origin, ["--manifest", &one, "--shard", "1/2", "--discard", "--json"]);
    assert_eq!(empty.run().expect(0).json()["objects"], 0);
    assert_eq!(origin.stats().heads, before, "nothing is asked of other shards' objects");
}

#[test]
fn what_is_wrong_with_a_manifest_is_reported_before_any_byte() {
    let mut all = some();
    all.insert("lists/good".to_owned(), br#"[{"prefix":"s3://lab/"},"e/z"]"#.to_vec());
    all.insert("lists/bad".to_owned(), br#"[{"prefix":"s3://lab/"},"e/z",7]"#.to_vec());
    all.insert("lists/empty".to_owned(), Vec::new());
    let (origin, place) = (serve(&all), Place::new());
    let expect_message = |name: &str, code: i32, expected: &str| {
        let run = get(&origin, ["--manifest", name]).with([place.path()]).run().expect(code);
        run.expect_error(&[expected]);
        assert!(!place.path().exists(), "nothing was made");
    };
    let bad = "s3://lab/lists/bad: it is not a manifest: invalid type: integer `7`, expected a \
               string in entry 2";
    expect_message("s3://lab/lists/bad", USAGE, bad);
    expect_message("s3://lab/lists/empty", USAGE, "it is not a manifest: EOF");
    expect_message(
        "s3://lab/lists/none",
        NOT_FOUND,
        "s3://lab/lists/none: there is no such manifest",
    );
    expect_message("/nowhere/list", USAGE, "cannot read /nowhere/list: No such file");
    let none = manifest(&place, "s3://lab/e/", &[]);
    expect_message(&none, NOT_FOUND, "it lists no object");
    let missing = manifest(&place, "s3://lab/e/", &["none", "neither"]);
    expect_message(
        &missing,
        NOT_FOUND,
        "none of 2 sources was found (s3://lab/e/none, s3://lab/e/neither), the first: \
         s3://lab/e/none: there is",
    );
    // A folder of that name is no object.
    let folder = manifest(&place, "s3://lab/d/", &["train2"]);
    expect_message(&folder, NOT_FOUND, "s3://lab/d/train2: there is no object with this key");
    let words = ["get", "s3://lab/e/z", "--manifest", &none, "--discard"];
    program(&origin, &words).run().expect(USAGE).expect_error(&["give no source besides"]);
    let folder = ["get", "--manifest", "s3://lab/lists/", "--discard"];
    let run = program(&origin, &folder).run().expect(USAGE);
    run.check(run.stderr.contains("expected a file or s3://BUCKET/KEY"), "no folder");
    let layout = ["get", "s3://lab/e/z", "--manifest-layout", "full", "--discard"];
    let run = program(&origin, &layout).run().expect(USAGE);
    run.check(run.stderr.contains("--manifest <FILE>"), "what is missing");

    // Of several the others are fetched, as of other lists.
    let some = manifest(&place, "s3://lab/e/", &["none", "z"]);
    let run = get(&origin, ["--manifest", &some]).with([place.path()]).run().expect(1);
    run.expect_words(&["s3://lab/e/none: there is no object with this key"]);
    place.assert_holds(&pick(&all, &[("z", "e/z")]));
    let twice = manifest(&place, "s3://lab/e/", &["z", "z"]);
    let elsewhere = Place::new();
    let run = get(&origin, ["--manifest", &twice, "-n"]).with([elsewhere.path()]).run().expect(0);
    run.check(run.stdout.lines().count() == 1, "an object is downloaded once");
    let words = ["--manifest", "s3://lab/lists/good", "--discard", "--json"];
    assert_eq!(get(&origin, words).run().expect(0).json()["bytes"], 10);
}
