//! `--check`: what would be done, and that nothing is.

use crate::served::serve;
use crate::{Stage, objects};

const CHANNELS: [&str; 4] =
    ["--channel", "train=s3://lab/train/", "--channel", "test=s3://lab/test/,mode=Pipe"];

#[test]
fn a_check_costs_no_object_and_makes_nothing() {
    let origin = serve(&objects(&[("train/a", 1000), ("train/b", 500), ("test/c", 7)]));
    let stage = Stage::new();
    let words = [&CHANNELS[..], &["--check", "--shard", "0/2"]].concat();
    let run = stage.shell(&origin, &words, "echo started").run().expect(0);
    let lines: Vec<&str> = run.stdout.lines().collect();
    run.check(lines.len() == 3, "a line for each channel and one for the disk");
    run.check(
        lines[0].starts_with("channel train: File, 2 objects, 1.50 kB; this host: 1, 1 kB;"),
        lines[0],
    );
    run.check(lines[1].starts_with("channel test: Pipe, 1 object, 7 B;"), lines[1]);
    run.check(lines[2].starts_with("disk: "), lines[2]);
    assert_eq!(origin.stats().gets, 0);
    assert!(!stage.base().exists(), "nothing was made");
    let plan = stage.train(&origin, &[&words[..], &["--json"]].concat()).run().expect(0).json();
    assert_eq!(plan["channels"][0]["host_bytes"], 1000, "{plan}");
    assert_eq!((&plan["hosts"], &plan["error"]), (&2.into(), &serde_json::Value::Null), "{plan}");
}

#[test]
fn a_check_reports_all_that_is_wrong() {
    let origin = serve(&objects(&[("train/a", 5), ("train/a/b", 5)]));
    let stage = Stage::new();
    std::fs::create_dir_all(stage.data("test_0")).expect("a folder");
    let run = stage.train(&origin, &[&CHANNELS[..], &["--check"]].concat()).run();
    let words = ["test_0 is not a named pipe", "channel test: ", "channel train: s3://lab/train/a"];
    run.expect(5).expect_words(&words).check(origin.stats().gets == 0, "nothing is fetched");
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_fetched() {
    use inrush_origin::{Config, ObjectContent, ObjectSpec};
    let content = ObjectContent::Synthetic { length_bytes: 1 << 52 };
    let large = |key: &str| ObjectSpec::new(crate::served::BUCKET, key, content.clone());
    let config = Config {
        objects: vec![large("train/a"), large("test/b")],
        ..crate::served::config(&objects(&[]))
    };
    let origin = crate::served::start(config);
    let stage = Stage::new();
    let run = stage.shell(&origin, &CHANNELS, "echo started").run().expect(crate::INPUT_FAILED);
    // What is streamed needs no room.
    let run = run.expect_words(&["free, but the channels in File mode need 4.50 PB"]);
    run.check(run.stdout.is_empty() && origin.stats().gets == 0, "nothing is begun");
    assert!(stage.failure().expect("it says why").contains("free, but"));
}
