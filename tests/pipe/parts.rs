//! Parts: `--shard`, the same of `pipe`, `get`, `ls` and `verify`; and `cat --range`.

use std::fs;
use std::path::Path;

use inrush_origin::Origin;

use crate::matrix::{Objects, bytes_of};
use crate::program::Program;
use crate::reader::Reader;
use crate::served::{ACCESS_KEY, SECRET, serve};
use crate::{MIB, NOT_FOUND, OBJECTS, Stage, assert_read, epochs_of, objects, pipe, sha256};

fn program(origin: &Origin, words: &[&str]) -> Program {
    Program::new(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

/// The keys that are below the source and in the shard, as `ls` has them.
fn listed(origin: &Origin, sources: &[&str], shard: &str) -> Vec<String> {
    let run = program(origin, &["ls", "--shard", shard]).with(sources).run().expect(0);
    let key = |line: &str| line.split("s3://lab/").nth(1).map(str::to_owned);
    run.stdout.lines().filter_map(key).collect()
}

/// The names of all files below a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        match path.is_dir() {
            true => names.extend(files(&path).iter().map(|below| format!("{name}/{below}"))),
            false => names.push(name),
        }
    }
    names.sort();
    names
}

#[test]
fn a_shard_is_the_same_objects_for_all_commands() {
    let mut all: Objects = (0..2_300)
        .map(|number| format!("s/{}/{number:05}", number % 7))
        .map(|key| {
            let bytes = bytes_of(&key, 31);
            (key, bytes)
        })
        .collect();
    all.insert("t/large".to_owned(), bytes_of("t/large", 3 * MIB));
    all.insert("t/more".to_owned(), bytes_of("t/more", 10));
    let origin = serve(&all);
    let sources = ["s3://lab/s/", "s3://lab/t/"];
    let mut seen = 0;
    for shard in ["0/3", "1/3", "2/3"] {
        let mine = listed(&origin, &sources, shard);
        assert!(mine.len().abs_diff(all.len() / 3) <= 1, "{shard}: {} objects", mine.len());
        seen += mine.len();
        let stage = Stage::new();
        let words = [&sources[..], &["--exclude", "none"]].concat();
        let program_of_pipe =
            pipe(&origin, words).with([stage.channel("train")]).with(["--shard", shard]);
        let running = stage.start(program_of_pipe);
        let epochs = Reader::start(&stage.channel("train"), &["all"]).finish();
        let stream: Vec<u8> = mine.iter().flat_map(|key| all[key].clone()).collect();
        assert_read(&epochs[0], &stream);
        let run = stage.end(running, 0);
        assert_eq!(epochs_of(&run, 0)[0]["bytes"], stream.len());

        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("place");
        let get = program(&origin, &["get", "--quiet", "--shard", shard]).with(sources);
        get.with([&place]).run().expect(0);
        let mut names: Vec<String> = mine.iter().map(|key| key[2..].to_owned()).collect();
        names.sort();
        assert_eq!(files(&place), names, "{shard}");
        let verify = program(&origin, &["verify", "--quiet", "--shard", shard]).with(sources);
        verify.with([&place]).run().expect(0);
    }
    assert_eq!(seen, all.len(), "all of them, each once");
}

#[test]
fn a_shard_may_be_empty() {
    let all = objects(&[("a", 5)]);
    let origin = serve(&all);
    assert_eq!(listed(&origin, &["s3://lab/"], "1/2"), Vec::<String>::new());
    let get = ["get", "s3://lab/", "--discard", "--quiet", "--json", "--shard", "1/2"];
    assert_eq!(program(&origin, &get).run().expect(0).json()["objects"], 0);
}

#[test]
fn some_bytes_of_an_object() {
    let all = objects(&[("large", 20 * MIB + 3), ("small", 1000), ("empty", 0), ("d/x", 5)]);
    let origin = serve(&all);
    let check = |key: &str, range: &str, start: usize, end: usize| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = fs::File::create(&path).expect("a file");
        let cat = program(&origin, &["cat", &format!("s3://lab/{key}"), "--range", range]);
        let running = cat
            .with(["--part-size", "1MiB"])
            .start_with(file.into(), std::process::Stdio::inherit());
        running.wait().expect(0);
        let bytes = fs::read(&path).expect("the file");
        let wanted = &all[key][start..end];
        assert_eq!((bytes.len(), sha256(&bytes)), (wanted.len(), sha256(wanted)), "{key} {range}");
    };
    check("small", "0-99", 0, 100);
    check("small", "999-", 999, 1000);
    check("small", "-10", 990, 1000);
    check("small", "500-20000", 500, 1000);
    check("small", "bytes=0-0", 0, 1);
    let size = 20 * MIB + 3;
    check("large", "0-0", 0, 1);
    check("large", "5000001-", 5_000_001, size);
    check("large", "-1", size - 1, size);
    check("large", &format!("{}-{}", MIB - 1, 3 * MIB), MIB - 1, 3 * MIB + 1);
    check("large", "-99999999999", 0, size);

    let refused = |words: &[&str], code: i32, expected: &str| {
        let before = origin.stats().gets;
        let run = program(&origin, &["cat"]).with(words).run().expect(code);
        run.expect_error(&[expected]);
        assert_eq!(origin.stats().gets, before, "nothing was asked for");
    };
    let beyond =
        "s3://lab/small: the range 1000- is not satisfiable (HTTP 416): the object has 1000";
    refused(&["s3://lab/small", "--range", "1000-"], OBJECTS, beyond);
    refused(&["s3://lab/empty", "--range", "0-"], OBJECTS, "the object has 0 bytes");
    refused(&["s3://lab/d", "--range", "0-"], 2, "it is a folder, and --range takes one object");
    refused(&["s3://lab/none", "--range", "0-"], NOT_FOUND, "s3://lab/none");
}
