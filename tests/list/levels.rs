//! `ls` of one level, of all below it, of several sources, with totals and sizes for people.

use inrush_origin::{Config, ObjectContent, ObjectSpec, Origin};
use serde_json::Value;

use crate::config;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, BUCKET, SECRET, start};

const KEYS: [&str; 7] = ["a.txt", "d/", "d/1.tar", "d/2.txt", "d/e/3.tar", "d/e/f/4.txt", "d.x"];

fn served() -> Origin {
    let content = ObjectContent::Synthetic { length_bytes: 1536 };
    let object = |key: &&str| ObjectSpec::new(BUCKET, *key, content.clone());
    let mut objects: Vec<ObjectSpec> = KEYS.iter().map(object).collect();
    objects[1] = ObjectSpec::new(BUCKET, "d/", ObjectContent::Synthetic { length_bytes: 0 });
    start(Config { objects, ..config(&[]) })
}

fn ls(origin: &Origin, words: &[&str]) -> Program {
    Program::new(["ls"]).with(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

/// The addresses that are listed below the bucket, folders with `PRE` before them.
fn names(run: &Run) -> Vec<String> {
    let name = |line: &str| {
        let (before, name) = line.split_once("s3://lab/")?;
        let folder = if before.trim() == "PRE" { "PRE " } else { "" };
        Some(format!("{folder}{name}"))
    };
    run.stdout.lines().filter_map(name).collect()
}

#[track_caller]
fn assert_names(origin: &Origin, words: &[&str], expected: &[&str]) {
    let run = ls(origin, words).run().expect(0);
    run.check(names(&run) == expected, &format!("{expected:?}"));
}

#[test]
fn one_level_is_listed_unless_all_is_asked_for() {
    let origin = served();
    assert_names(&origin, &["s3://lab"], &["a.txt", "d.x", "PRE d/"]);
    assert_names(&origin, &["s3://lab/d"], &["d/1.tar", "d/2.txt", "PRE d/e/"]);
    assert_names(&origin, &["s3://lab/d/e/"], &["d/e/3.tar", "PRE d/e/f/"]);
    let all = ["d/1.tar", "d/2.txt", "d/e/3.tar", "d/e/f/4.txt"];
    assert_names(&origin, &["s3://lab/d/", "--recursive"], &all);
    assert_names(&origin, &["s3://lab/d/**/*.txt"], &["d/2.txt", "d/e/f/4.txt"]);
    assert_names(
        &origin,
        &["s3://lab/d/e/", "s3://lab/a.txt"],
        &["d/e/3.tar", "PRE d/e/f/", "a.txt"],
    );
    assert_names(&origin, &["s3://lab/d/", "--exclude", "e", "--exclude", "1*"], &["d/2.txt"]);
    assert_names(&origin, &["s3://lab/d/", "--include", "e/"], &["PRE d/e/"]);
    let filtered = ls(&origin, &["s3://lab/d/", "--include", "*.zip"]).run().expect(4);
    filtered.expect_error(&["s3://lab/d/: --include and --exclude leave none of 3 objects"]);
}

#[test]
fn a_level_of_many_pages_is_whole_and_in_order() {
    let keys: Vec<String> = (0..2_500).map(|number| format!("p/{number:05}/x")).collect();
    let origin = start(config(&keys));
    let run = ls(&origin, &["s3://lab/p/"]).run().expect(0);
    let expected: Vec<String> = (0..2_500).map(|number| format!("PRE p/{number:05}/")).collect();
    run.check(names(&run) == expected, "every folder once and in order");
}

#[test]
fn lines_of_json_say_what_they_are() {
    let origin = served();
    let run = ls(&origin, &["s3://lab/d/", "--json", "--summarize"]).run().expect(0);
    let lines: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let listed: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| (line["kind"].as_str().expect("a kind"), line["key"].as_str().unwrap_or("")))
        .collect();
    let objects = [("object", "d/1.tar"), ("object", "d/2.txt")];
    assert_eq!(listed, [&objects[..], &[("folder", "d/e/"), ("summary", "")]].concat());
    assert_eq!((&lines[3]["objects"], &lines[3]["bytes"]), (&2.into(), &3072.into()));
}

#[test]
fn totals_and_sizes_for_people() {
    let origin = served();
    let run = ls(&origin, &["s3://lab/d/", "--recursive", "--summarize"]).run().expect(0);
    run.check(run.stdout.ends_with("\nTotal Objects: 4\n   Total Size: 6144\n"), "bytes");
    let run = ls(&origin, &["s3://lab/d/", "-H", "--summarize"]).run().expect(0);
    run.check(run.stdout.ends_with("\nTotal Objects: 2\n   Total Size: 3 KiB\n"), "KiB");
    run.check(run.stdout.contains("1.50 KiB s3://lab/d/1.tar"), "of each");
}

#[test]
fn a_level_costs_a_request_for_each_of_its_pages() {
    let keys: Vec<String> = (0..2_500).map(|number| format!("p/{number:05}/x")).collect();
    let origin = start(config(&keys));
    for (source, lists, heads) in [("s3://lab/p/", 3, 0), ("s3://lab", 1, 0), ("s3://lab/p", 3, 1)]
    {
        let before = origin.stats();
        ls(&origin, &[source]).run().expect(0);
        let after = origin.stats();
        let asked = (after.lists - before.lists, after.heads - before.heads);
        assert_eq!(asked, (lists, heads), "{source}");
    }
    ls(&origin, &["s3://lab/none/"]).run().expect(4).expect_error(&["nothing in this folder"]);
}
