//! `inrush bench` of the real program: its table, document, CSV and page say the same, an aborted
//! one keeps what it had, and nothing else is left.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

#[path = "common/fuse.rs"]
#[expect(dead_code, reason = "this test has no mount of its own")]
mod fuse;
#[path = "common/program.rs"]
#[expect(dead_code, reason = "servers and keys belong to other tests")]
mod program;
#[path = "common/skip.rs"]
mod skip;

use std::fs;
use std::path::Path;

use quick_xml::Reader;
use quick_xml::events::Event;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use program::Program;

/// A bench of few bytes, with files for all results.
fn bench(place: &Path, runs: &str, words: &[&str]) -> Program {
    let result = |name: &str| place.join(name).display().to_string();
    let files =
        ["--report", &result("b.json"), "--csv", &result("b.csv"), "--html", &result("b.html")];
    Program::new(["bench", "--size", "8MiB", "--runs", runs, "--warm-up", "0"])
        .with(files)
        .with(words)
}

fn place() -> (TempDir, TempDir) {
    let folder = || tempfile::tempdir().expect("a folder");
    (folder(), folder())
}

fn document(place: &Path) -> Value {
    let text = fs::read_to_string(place.join("b.json")).expect("a document");
    serde_json::from_str(&text).expect("JSON")
}

/// An element of the page, with its attributes.
type Element = (String, Vec<(String, String)>);

/// All elements, of a page that is well-formed: an end that is missing or wrong is an error.
fn elements(page: &str) -> Vec<Element> {
    let mut reader = Reader::from_str(page);
    let mut found = Vec::new();
    let mut depth = 0;
    loop {
        let event = reader.read_event().expect("well-formed");
        let start = match &event {
            Event::Start(start) => {
                depth += 1;
                start
            }
            Event::Empty(start) => start,
            Event::End(_) => {
                depth -= 1;
                continue;
            }
            Event::Eof => break,
            _ => continue,
        };
        let name: String = start.name().as_ref().into();
        let attributes = start.attributes().map(|attribute| {
            let attribute = attribute.expect("an attribute");
            (attribute.key.as_ref().into(), attribute.value.into_owned())
        });
        found.push((name, attributes.collect()));
    }
    assert_eq!(depth, 0, "every element ends");
    found
}

fn attribute<'a>(element: &'a Element, name: &str) -> Option<&'a str> {
    element.1.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// True when two numbers are equal but for the last digit, which reading JSON loses.
fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= other.abs() * 1e-12
}

/// Numbers that a picture of this class and name has in its elements.
fn drawn(all: &[Element], class: &str, name: &str) -> Vec<(String, f64)> {
    let begin = all.iter().position(|element| {
        attribute(element, "class") == Some(class) && attribute(element, "data-name") == Some(name)
    });
    let begin = begin.unwrap_or_else(|| panic!("no {class} of {name}"));
    let inside = all[begin + 1..].iter().take_while(|element| element.0 != "svg");
    let points = inside.filter_map(|element| {
        let x = attribute(element, "data-x")?.to_owned();
        Some((x, attribute(element, "data-y")?.parse().expect("a number")))
    });
    points.collect()
}

#[test]
fn all_results_say_the_same() {
    let (results, destination) = place();
    let words = ["--sweep", "connections=2,5", "--sweep", "part-size=1MiB,8MiB"];
    let program = bench(results.path(), "2", &words).with([destination.path()]);
    let run = program.run().expect(0);
    let document = document(results.path());
    assert_eq!(document["complete"], true);
    let steps = document["steps"].as_array().expect("steps");
    let stages: Vec<_> = steps.iter().map(|step| step["stage"].as_str().expect("a name")).collect();
    let skipped = document["skipped"].as_array().expect("a list").len();
    for stage in ["network", "pipe", "tls", "verification", "disk-buffered", "get"] {
        run.check(stages.contains(&stage), stage);
    }
    run.check(stages.contains(&"disk") || skipped > 0, "the disk, or why not");
    let swept = |name: &str| {
        let steps = steps.iter().filter(|step| step["setting"]["name"] == name);
        steps.cloned().collect::<Vec<Value>>()
    };
    assert_eq!((swept("connections").len(), swept("part-size").len()), (2, 2));
    // The table and its last line.
    for stage in &stages {
        run.check(run.stdout.lines().any(|line| line.starts_with(stage)), stage);
    }
    assert_eq!(run.stdout.lines().last(), document["sentence"].as_str(), "{run}");
    // Rows.
    let csv = fs::read_to_string(results.path().join("b.csv")).expect("rows");
    let mut rows = csv.lines().skip(1);
    for step in steps {
        for measured in step["runs"].as_array().expect("runs") {
            let row: Vec<&str> = rows.next().expect("a row").split(',').collect();
            assert_eq!(row[0], step["stage"].as_str().expect("a name"));
            assert_eq!(row[4].parse().ok(), measured["bytes"].as_u64());
            let reported = measured["bytes_per_second"].as_f64().expect("a rate");
            assert!(is_same(row[6].parse().expect("a number"), reported), "{row:?}: {reported}");
        }
    }
    assert_eq!(rows.next(), None);
    // The page.
    let page = fs::read_to_string(results.path().join("b.html")).expect("a page");
    assert!(!page.contains("http://") && !page.contains("https://"), "it asks for nothing");
    let all = elements(&page);
    for name in ["connections", "part-size"] {
        for (class, number) in
            [("throughput", "/bytes_per_second/median"), ("cost", "/cpu_seconds_per_terabyte")]
        {
            let expected = swept(name).into_iter().map(|step| {
                let value = step["setting"]["value"].as_str().expect("a value").to_owned();
                (value, step.pointer(number).and_then(Value::as_f64).expect("a number"))
            });
            let drawn = drawn(&all, class, name);
            let both = drawn.iter().zip(expected.collect::<Vec<_>>());
            assert_eq!(both.len(), 2, "{class} {name}");
            for ((x, y), (value, number)) in both {
                assert!(*x == value && is_same(*y, number), "{class} {name}: {x} {y} {number}");
            }
        }
    }
    let get = steps.iter().find(|step| step["stage"] == "get").expect("a step");
    for kind in ["first_byte", "range"] {
        let buckets = get["latencies"][kind].as_array().expect("buckets");
        assert!(!buckets.is_empty(), "{kind}");
        let counts: Vec<f64> = drawn(&all, "histogram", &format!("get - {kind}"))
            .into_iter()
            .map(|(_, y)| y)
            .collect();
        let reported = buckets.iter().map(|bucket| bucket["count"].as_f64().expect("a count"));
        assert_eq!(counts, reported.collect::<Vec<_>>(), "{kind}");
    }
    let left = fs::read_dir(destination.path()).expect("a folder").count();
    assert_eq!(left, 0, "all files are removed");
    assert_eq!(fs::read_dir(results.path()).expect("a folder").count(), 3);
}

#[test]
fn an_aborted_sweep_keeps_its_finished_steps() {
    let (results, destination) = place();
    let words = ["--stages", "network,get", "--sweep", "connections=1,2,3,4,5,6,7,8"];
    let program = bench(results.path(), "9", &words).set("TMPDIR", destination.path());
    let mut running = program.with([destination.path()]).start();
    let steps = |place: &Path| {
        let text = fs::read_to_string(place.join("b.json")).unwrap_or_default();
        let document: Value = serde_json::from_str(&text).unwrap_or_default();
        document["steps"].as_array().map_or(0, Vec::len)
    };
    assert!(running.until(|| steps(results.path()) >= 3), "it was too fast");
    running.signal(Signal::INT);
    let run = running.wait().expect(130);
    let document = document(results.path());
    run.check(document["complete"] == false, "it is not complete");
    run.check(steps(results.path()) >= 3, "its steps are kept");
    assert!(
        !elements(&fs::read_to_string(results.path().join("b.html")).expect("a page")).is_empty()
    );
    let left: Vec<_> = fs::read_dir(destination.path()).expect("a folder").flatten().collect();
    run.check(left.is_empty(), &format!("nothing is left: {left:?}"));
    run.check(
        run.stdout.lines().filter(|line| line.starts_with("network ")).count() == 1,
        "one line of the step",
    );
    assert_eq!(run.stdout.lines().last(), document["sentence"].as_str(), "{run}");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_measured() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("none/b.csv").display().to_string();
    let run = Program::new(["bench", "--stages", "tls", "--csv", &file]).run().expect(5);
    let run = run.expect_words(&["cannot write", "none/b.csv"]);
    run.check(!run.stderr.lines().any(|line| line == "tls"), "nothing is measured");
    for (words, expected) in [
        (&["--stages", "tls,tls"][..], "twice"),
        (&["--sweep", "connections=2,2"], "twice"),
        (&["--sweep", "connections=99999"], "1 to"),
        (&["--stages", "tls", "--sweep", "workers=1,2"], "--sweep needs"),
        (&["--csv", "b", "--html", "b"], "a file each"),
        (
            &["--max-connections", "4", "--sweep", "connections=4,8"],
            "connections=8 is more than --max-connections 4",
        ),
    ] {
        Program::new(["bench"]).with(words).run().expect(2).expect_words(&[expected]);
    }
}

#[test]
fn a_pipe_that_every_run_would_read_is_refused_and_not_opened() {
    let place = tempfile::tempdir().expect("a folder");
    // Nobody writes to it: who opens it waits.
    let pipe = place.path().join("settings");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
    let words = ["bench", "--size", "1MiB", "--runs", "1", "--stages", "network"];
    let source = ["s3://lab/", "--endpoint-url", "http://127.0.0.1:1", "--retry-for", "0"];
    for name in ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
        let program = Program::new(words).with(source).set(name, &pipe);
        let expected = [name, "a pipe, which can be read once", "give", "a regular file"];
        program.run().expect(2).expect_error(&expected);
    }
    for name in ["--ca-bundle", "--sse-c-key-file"] {
        let program = Program::new(words).with(source).with([name]).with([&pipe]);
        program.run().expect(2).expect_error(&[name, "a pipe, which can be read once"]);
    }
    // Objects of its own need no settings of the user's.
    let program = Program::new(words).set("AWS_CONFIG_FILE", &pipe).set("AWS_PROFILE", "mine");
    program.run().expect(0);
}

#[test]
fn a_step_that_fails_leaves_those_before_it() {
    let place = tempfile::tempdir().expect("a folder");
    let words = ["--size", "1MiB", "--runs", "1", "--warm-up", "0", "--stages", "tls,network"];
    let failing = ["s3://lab/nothing/", "--endpoint-url", "http://127.0.0.1:1", "--region", "x-1"];
    let bench = || {
        let program = Program::new(["bench", "--retry-for", "0"]).with(words).with(failing);
        program.set("AWS_ACCESS_KEY_ID", "a").set("AWS_SECRET_ACCESS_KEY", "b")
    };
    let run = bench().run();
    run.check(run.status.code() != Some(0) && run.stderr.contains("a run failed"), "it fails");
    run.check(run.stdout.lines().any(|line| line.starts_with("tls ")), "the finished step");
    let run = bench().with(["--json"]).set("TMPDIR", place.path()).run();
    let document = run.json();
    run.check(document["steps"][0]["stage"] == "tls", "the finished step");
    run.check(document["complete"] == false && document["error"].is_string(), "why");
    run.check(document["error_kind"].is_string(), "out of a closed set");
    assert_eq!(document["exit_code"].as_i64(), run.status.code().map(i64::from), "{run}");
}

#[test]
fn json_takes_the_place_of_the_table() {
    let words = ["--size", "1MiB", "--runs", "1", "--stages", "tls,verification", "--json"];
    let run = Program::new(["bench"]).with(words).run().expect(0);
    let document = run.json();
    assert_eq!(document["kind"], "bench");
    assert_eq!((&document["exit_code"], &document["error_kind"]), (&0.into(), &Value::Null));
    let rate = document["steps"][0]["bytes_per_second"]["median"].as_f64().expect("a rate");
    run.check(rate > 1e6, "more than nothing");
    assert!(document["steps"][0]["counted"]["ena_unavailable"].is_string());
}

#[test]
fn a_disk_is_not_filled() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = Program::new(["bench", "--workload", "download-1000000GiB-1x"]);
    let run = program.with([folder.path()]).run().expect(5);
    let run = run.expect_words(&["bench needs", "free", "--size"]);
    run.check(fs::read_dir(folder.path()).expect("a folder").count() == 0, "nothing is made");
    Program::new(["bench", "--stages", "get"]).run().expect(2).expect_words(&["need a DEST"]);
    Program::new(["bench", "--sweep", "depth=1"]).run().expect(2).expect_words(&["part-size"]);
}

#[test]
fn options_hold_for_all_steps_but_for_what_is_swept() {
    let words = ["--connections", "3", "--part-size", "1MiB", "--workers", "1"];
    let program = Program::new(["bench", "--size", "4MiB", "--runs", "1", "--warm-up", "0"]);
    let program = program.with(["--stages", "network,pipe", "--json"]).with(words);
    let run = program.with(["--sweep", "connections=2"]).run().expect(0);
    let document = run.json();
    let options = document["options"].as_array().expect("options");
    let given = [("workers", "1"), ("connections", "3"), ("part-size", "1048576")];
    run.check(options.len() == given.len(), "what was given");
    for (option, (name, value)) in options.iter().zip(given) {
        run.check(option["name"] == name && option["value"] == value, name);
    }
    let steps = document["steps"].as_array().expect("steps");
    let reported: Vec<_> = steps
        .iter()
        .map(|step| {
            let connections = &step["pace"]["timeline"][0]["requests_in_flight"];
            (step["stage"].as_str().expect("a name"), connections.as_u64())
        })
        .collect();
    // A pipe has no document with its pace.
    assert_eq!(reported, [("network", Some(3)), ("pipe", None), ("network", Some(2))], "{run}");
    let program = Program::new(["bench", "--connections", "0"]);
    program.run().expect(2).expect_words(&["--connections", "1 to"]);
}

#[test]
fn a_mount_is_read_and_gone() {
    if !fuse::can_mount() {
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    let program = Program::new(["bench", "--size", "8MiB", "--runs", "1", "--json"]);
    let program = program.with(["--stages", "network,mount", "--part-size", "1MiB"]);
    let run = program.set("TMPDIR", place.path()).run().expect(0);
    let document = run.json();
    let mount = &document["steps"][1];
    assert_eq!(mount["stage"], "mount", "{run}");
    assert_eq!(mount["runs"][0]["bytes"], 8 << 20, "{run}");
    let sentence = document["sentence"].as_str().expect("a sentence");
    run.check(sentence.contains("network") || sentence.contains("mount"), sentence);
    let left = fs::read_dir(place.path()).expect("a folder").count();
    run.check(left == 0, "no folder is left, and no mount in it");
    let mounts = fs::read_to_string("/proc/mounts").expect("the table");
    run.check(!mounts.contains(&place.path().display().to_string()), "no mount is left");
}

#[test]
fn a_workload_by_its_name() {
    let words =
        ["--workload", "download-64KiB-1_2x", "--stages", "network", "--runs", "1", "--json"];
    let run = Program::new(["bench", "--warm-up", "0"]).with(words).run().expect(0);
    let document = run.json();
    assert_eq!(document["workload"], "download-64KiB-1_2x");
    assert_eq!(document["steps"][0]["runs"][0]["bytes"], 12 * 65536);
}
