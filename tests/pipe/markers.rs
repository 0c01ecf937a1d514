//! The completion marker of an epoch: it is there before the end of file, or never, so that its
//! absence means a failed epoch.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use crate::hold::broken;
use crate::reader::soon;
use crate::served::serve;
use crate::{DESTINATION, ENDPOINT, MIB, Stage, objects, pipe, stream};

/// What the marker of an epoch says, if there is one.
fn marker(stage: &Stage, epoch: u64) -> Option<serde_json::Value> {
    let text = fs::read_to_string(stage.channel(&format!("train_{epoch}.ok"))).ok()?;
    assert!(text.ends_with('\n') && text.lines().count() == 1, "one line: {text:?}");
    Some(serde_json::from_str(&text).expect("JSON"))
}

fn opened(path: &Path) -> File {
    soon("the pipe", || path.exists());
    File::open(path).expect("a pipe")
}

#[test]
fn the_marker_is_there_before_the_end_of_file() {
    let all = objects(&[("a", 9 * MIB + 5), ("b", 0), ("c", 70_000)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "3", "--epoch-markers"]);
    for epoch in 0..3 {
        let mut bytes = Vec::new();
        let mut pipe = opened(&stage.channel(&format!("train_{epoch}")));
        assert_eq!(marker(&stage, epoch), None, "nothing was handed over yet");
        pipe.read_to_end(&mut bytes).expect("a stream");
        // No wait: who sees the end of file sees the marker.
        let found = marker(&stage, epoch).expect("a marker");
        assert!(bytes == stream(&all), "the stream is whole");
        let wanted = serde_json::json!({"epoch": epoch, "objects": 3, "bytes": bytes.len()});
        assert_eq!(found, wanted);
    }
    running.wait().expect(0);
    assert_eq!(stage.names(), ["train_0.ok", "train_1.ok", "train_2.ok"]);
}

#[test]
fn one_who_leaves_early_gets_none_though_all_was_handed_on() {
    // All of it fits into the pipe: the program is done with it long before its reader.
    let all = objects(&[("a", 20_000)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", "2", "--epoch-markers"]);
    let mut leaver = opened(&stage.channel("train_0"));
    leaver.read_exact(&mut [0; 19_999]).expect("nearly all");
    drop(leaver);
    let mut bytes = Vec::new();
    opened(&stage.channel("train_1")).read_to_end(&mut bytes).expect("a stream");
    assert!(bytes == all["a"]);
    let run = running.wait().expect(0);
    assert_eq!(stage.names(), ["train_1.ok"]);
    let epochs = crate::epochs_of(&run, 0);
    run.check(epochs[0]["left_early"] == true, "it left early");
}

/// It knows how much there is, and closes without waiting for the end of file.
#[test]
fn one_who_takes_every_byte_and_closes_at_once_gets_one() {
    const EPOCHS: u64 = 20;
    let all = objects(&[("a", 20_000)]);
    let origin = serve(&all);
    let stage = Stage::new();
    let running = stage.serve(&origin, &["--epochs", &EPOCHS.to_string(), "--epoch-markers"]);
    for epoch in 0..EPOCHS {
        let mut pipe = opened(&stage.channel(&format!("train_{epoch}")));
        // While an epoch's listing has no end, more bytes may follow. The next epoch's object is
        // requested once that end has come.
        let asked = || epoch + 1 == EPOCHS || origin.stats().gets >= epoch + 2;
        soon("the next epoch's object", asked);
        let mut bytes = vec![0; 20_000];
        pipe.read_exact(&mut bytes).expect("all of it");
        if epoch + 1 == EPOCHS {
            pipe.read_to_end(&mut bytes).expect("its end");
        }
        drop(pipe);
        assert!(bytes == all["a"], "the stream is whole");
    }
    let run = running.wait().expect(0);
    for epoch in 0..EPOCHS {
        let wanted = serde_json::json!({"epoch": epoch, "objects": 1, "bytes": 20_000});
        assert_eq!(marker(&stage, epoch), Some(wanted));
    }
    let left = crate::epochs_of(&run, 0).iter().any(|epoch| epoch["left_early"] == true);
    run.check(!left, "nobody left early");
}

#[test]
fn a_failed_epoch_has_none_and_a_stale_one_goes_before_its_pipe_appears() {
    let (_, origin) = broken();
    let stage = Stage::new();
    for name in ["train_0.ok", ".inrush-train.ok", "train_1.ok", "train_2.ok"] {
        fs::write(stage.channel(name), "stale").expect("a file of an earlier run");
    }
    let words = ["--epochs", "2", "--epoch-markers", "--max-attempts", "2"];
    let running = stage.serve(&origin, &words);
    assert!(!stage.channel("train_0.ok").exists(), "its pipe is there");
    let mut pipe = opened(&stage.channel("train_0"));
    soon("the next pipe", || stage.channel("train_1").exists());
    assert!(!stage.channel("train_1.ok").exists(), "its pipe is there, too");
    pipe.read_to_end(&mut Vec::new()).expect("an end");
    assert_eq!(marker(&stage, 0), None, "an end of file without a marker: it failed");
    running.wait().expect(ENDPOINT);
    // What was never written over stays: no epoch 2 was asked for.
    assert_eq!(stage.names(), [".inrush-train.ok", "train_2.ok"]);
}

#[test]
fn a_marker_that_cannot_be_made_is_an_error() {
    let origin = serve(&objects(&[("a", 5)]));
    let stage = Stage::new();
    fs::create_dir(stage.channel("train_0.ok")).expect("a folder");
    let program = pipe(&origin, ["s3://lab/", "--epoch-markers"]).with([stage.channel("train")]);
    program.run().expect(DESTINATION).expect_error(&["train_0.ok"]);
    assert_eq!(stage.names(), ["train_0.ok"]);
}

#[test]
fn nothing_is_marked_or_removed_where_nothing_is_said() {
    let origin = serve(&objects(&[("a", 5)]));
    let stage = Stage::new();
    fs::write(stage.channel("train_0.ok"), "somebody's").expect("a file");
    let running = stage.serve(&origin, &[]);
    opened(&stage.channel("train_0")).read_to_end(&mut Vec::new()).expect("a stream");
    running.wait().expect(0);
    assert_eq!(fs::read_to_string(stage.channel("train_0.ok")).expect("a file"), "somebody's");
}
