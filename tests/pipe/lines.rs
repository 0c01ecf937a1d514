//! `--augmented-manifest`: lines of JSON whose attributes are streamed.

use std::path::{Path, PathBuf};

use inrush::plan::epoch::permutation;
use inrush_origin::{FaultPlan, Profile};

use crate::matrix::{Objects, many};
use crate::program::Program;
use crate::records::{origin_of, read_epoch, records, trusting};
use crate::served::serve;
use crate::{NOT_FOUND, Stage, objects, pipe};

/// The documented exit code.
const USAGE: i32 = 2;

/// A manifest of these lines, beside the folder of the pipes.
fn manifest(stage: &Stage, lines: &str) -> PathBuf {
    let path = stage.path().with_extension("jsonl");
    std::fs::write(&path, lines).expect("room");
    path
}

fn of(program: Program, manifest: &Path, attributes: &[&str]) -> Program {
    let program = program.with(["--augmented-manifest".as_ref(), manifest.as_os_str()]);
    program.with(attributes.iter().flat_map(|name| ["--attribute", name]))
}

/// A line for each object: its address, its number, and a box.
fn lines(all: &Objects) -> String {
    let line = |(number, key): (usize, &String)| {
        format!(
            "{{\"other\": [1], \"source-ref\": \"s3://lab/{key}\", \"class\": \"c\\n{number}\", \
             \"box\": {{\"left\" : {number}}}}}\n"
        )
    };
    all.keys().enumerate().map(line).collect()
}

/// What these attributes of a line are.
fn values(all: &Objects, line: usize) -> Vec<Vec<u8>> {
    values_of(line, all.values().nth(line).expect("a line"))
}

/// The values of a line whose object has these bytes.
fn values_of(line: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
    let box_of = format!("{{\"left\" : {line}}}");
    vec![format!("c\n{line}").into_bytes(), bytes.to_vec(), box_of.into_bytes()]
}

const ATTRIBUTES: [&str; 3] = ["class", "source-ref", "box"];

#[test]
fn each_value_is_a_record_in_the_order_of_the_names() {
    let mut all = many(900);
    all.extend(objects(&[("empty", 0), ("large", 9_000_000)]));
    for is_secure in [false, true] {
        let origin = origin_of(&all, is_secure, FaultPlan::none());
        let stage = Stage::new();
        let manifest = manifest(&stage, &lines(&all));
        let words = ["--record-wrapper", "recordio", "--epochs", "2"];
        let program = of(trusting(&stage, &origin, &words), &manifest, &ATTRIBUTES);
        let running = stage.start(program);
        let wanted: Vec<_> = (0..all.len()).flat_map(|line| values(&all, line)).collect();
        for epoch in 0..2 {
            let stream = read_epoch(&stage.channel("train"), epoch);
            assert!(records(&stream) == wanted, "epoch {epoch}, TLS {is_secure}");
        }
        stage.end(running, 0);
        std::fs::remove_file(manifest).expect("it is there");
    }
}

#[test]
fn lines_are_shuffled_and_then_sharded() {
    let all = many(500);
    let origin = serve(&all);
    let stage = Stage::new();
    let manifest = manifest(&stage, &lines(&all));
    let words = ["--shuffle-seed", "5", "--shard", "1/3", "--epochs", "2"];
    let program = pipe(&origin, words).with([stage.channel("train")]);
    let running = stage.start(of(program, &manifest, &ATTRIBUTES));
    for epoch in 0..2 {
        let order = permutation(5, epoch as u64, 500);
        let mine = order.iter().skip(1).step_by(3).map(|line| *line as usize);
        let wanted: Vec<u8> = mine.flat_map(|line| values(&all, line)).flatten().collect();
        assert!(read_epoch(&stage.channel("train"), epoch) == wanted, "epoch {epoch}");
    }
    stage.end(running, 0);
    std::fs::remove_file(manifest).expect("it is there");
}

#[test]
fn a_manifest_may_have_no_references() {
    let all = many(3000);
    let origin = serve(&all);
    let stage = Stage::new();
    let manifest = manifest(&stage, &lines(&all));
    let program = pipe(&origin, ["--epochs", "3"]).with([stage.channel("train")]);
    let running = stage.start(of(program, &manifest, &["class"]));
    let wanted: String = (0..all.len()).map(|line| format!("c\n{line}")).collect();
    for epoch in 0..3 {
        assert!(read_epoch(&stage.channel("train"), epoch) == wanted.as_bytes(), "epoch {epoch}");
    }
    stage.end(running, 0);
    std::fs::remove_file(manifest).expect("it is there");
}

#[test]
fn lines_are_whole_whatever_the_server_does() {
    let all = many(400);
    let origin = origin_of(&all, false, FaultPlan::seeded(3, Profile::Mixed));
    let stage = Stage::new();
    let manifest = manifest(&stage, &lines(&all));
    let words = ["--record-wrapper", "recordio", "--max-attempts", "30"];
    let running = stage.start(of(trusting(&stage, &origin, &words), &manifest, &ATTRIBUTES));
    let wanted: Vec<_> = (0..all.len()).flat_map(|line| values(&all, line)).collect();
    assert!(records(&read_epoch(&stage.channel("train"), 0)) == wanted);
    stage.end(running, 0);
    std::fs::remove_file(manifest).expect("it is there");
}

#[test]
fn what_is_wrong_is_reported_with_line_and_attribute() {
    let all = many(300);
    let origin = serve(&all);
    let stage = Stage::new();
    let good = lines(&all);
    let refused = |text: &str, code: i32, expected: &str| {
        let path = manifest(&stage, text);
        let program = pipe(&origin, ["--quiet"]).with([stage.channel("train")]);
        let run = of(program, &path, &ATTRIBUTES).run().expect(code);
        let stderr = run.stderr.replace(path.to_str().expect("UTF-8"), "list");
        run.check(stderr.contains(expected), &format!("expected {expected}"));
        run.check(stage.names().is_empty() && origin.stats().gets == 0, "nothing was begun");
        path
    };
    let line = "{\"class\": 1, \"box\": 2, \"source-ref\": \"s3://lab/none\"}\n";
    let missing = "list, line 301: it has no attribute 'source-ref'";
    refused(&format!("{good}{{\"class\": 1}}"), USAGE, missing);
    let folder = line.replace("none", "none/");
    let expected = "list, line 1: attribute 'source-ref': s3://lab/none/ is a folder";
    refused(&folder, USAGE, expected);
    refused("\n", USAGE, "list: it has no lines");
    let expected = "list, line 2, attribute 'source-ref': s3://lab/none: there is no object";
    let path = refused(&format!("\n{line}{good}"), NOT_FOUND, expected);
    std::fs::remove_file(&path).expect("it is there");
    let program = pipe(&origin, ["--quiet"]).with([stage.channel("train")]);
    of(program, &path, &["class"]).run().expect(USAGE).expect_error(&["cannot read"]);

    // Behind the first: the stream fails, and is never short in silence.
    let path = manifest(&stage, &format!("{good}{line}"));
    let program = pipe(&origin, ["--record-wrapper", "recordio"]).with([stage.channel("train")]);
    let running = stage.start(of(program, &path, &ATTRIBUTES));
    read_epoch(&stage.channel("train"), 0);
    let run = stage.end(running, NOT_FOUND);
    let stderr = run.stderr.replace(path.to_str().expect("UTF-8"), "list");
    let expected = "list, line 301, attribute 'source-ref': s3://lab/none: there is no object";
    run.check(stderr.contains(expected), "line and attribute");
    std::fs::remove_file(path).expect("it is there");
}

#[test]
fn objects_of_many_lines_are_listed_and_not_asked_about() {
    let all = many(12_000);
    let origin = serve(&all);
    let stage = Stage::new();
    let line = "{\"class\": 1, \"box\": 2, \"source-ref\": \"s3://lab/many/3/none\"}\n";
    for (more, code) in [("", 0), (line, NOT_FOUND)] {
        let path = manifest(&stage, &(lines(&all) + more));
        let before = origin.stats();
        let words = ["--shuffle-seed", "9", "--record-wrapper", "recordio", "--verbose"];
        let program = trusting(&stage, &origin, &words[if code == 0 { 0 } else { 2 }..]);
        let log = program.home().join("stderr");
        let mut running = stage.start(of(program, &path, &ATTRIBUTES));
        // Until the first reader comes, the stream is a few thousand objects ahead.
        let is_listed = running.until(|| {
            let log = std::fs::read_to_string(&log).expect("a log");
            log.contains("12000 of") && log.contains("named objects found among 12000 listed")
        });
        assert!(is_listed, "it ended before all was listed");
        let read = read_epoch(&stage.channel("train"), 0);
        let run = stage.end(running, code);
        if code == 0 {
            let bodies: Vec<&Vec<u8>> = all.values().collect();
            let order = permutation(9, 0, 12_000).into_iter().map(|line| line as usize);
            let wanted: Vec<_> = order.flat_map(|line| values_of(line, bodies[line])).collect();
            assert!(records(&read) == wanted);
        } else {
            let stderr = run.stderr.replace(path.to_str().expect("UTF-8"), "list");
            let expected = "list, line 12001, attribute 'source-ref': s3://lab/many/3/none: there \
                            is no object";
            run.check(stderr.contains(expected), "line and attribute");
        }
        let heads = origin.stats().heads - before.heads;
        let lists = origin.stats().lists - before.lists;
        run.check((1..4_000).contains(&heads), &format!("{heads} HEADs"));
        run.check((14..100).contains(&lists), &format!("{lists} pages of seven folders"));
        std::fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn a_list_may_be_an_object() {
    let mut all = many(40);
    let text = lines(&all);
    let wanted: Vec<_> = (0..40).flat_map(|line| values(&all, line)).collect();
    all.insert("lists/lines.jsonl".to_owned(), text.into_bytes());
    let origin = serve(&all);
    let stage = Stage::new();
    let words = ["--record-wrapper", "recordio"];
    let program = pipe(&origin, words).with([stage.channel("train")]);
    let manifest = Path::new("s3://lab/lists/lines.jsonl");
    let running = stage.start(of(program, manifest, &ATTRIBUTES));
    assert!(records(&read_epoch(&stage.channel("train"), 0)) == wanted);
    stage.end(running, 0);
    let missing = Path::new("s3://lab/lists/no.jsonl");
    let program = pipe(&origin, words).with([stage.channel("train")]);
    let run = of(program, missing, &ATTRIBUTES).run().expect(NOT_FOUND);
    run.expect_error(&["s3://lab/lists/no.jsonl", "no such manifest"]);
}
