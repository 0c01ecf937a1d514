//! Large objects that a run left unfinished: their ranges are not fetched again, and nothing is
//! left once they are complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use inrush_origin::{Config, Fault, FaultPlan, Match, Operation, Origin};
use rustix::process::Signal;

use crate::matrix::Objects;
use crate::mount::Mount;
use crate::program::Run;
use crate::served::{serve, start};
use crate::{MIB, assert_complete, computed, fetch, objects, slow, temporaries};

/// Ranges in flight: each connection receives one, and one of its may wait to be written.
const IN_FLIGHT: u64 = 2 * 4 * MIB as u64;
/// Those, and ranges that a killed run may not have noted.
const LOST_BY_KILL: u64 = 12 * MIB as u64;

fn large() -> Objects {
    objects(&[("deep/a", 24 * MIB + 1), ("b", 17 * MIB), ("small", 999)])
}

fn length(objects: &Objects) -> u64 {
    objects.values().map(|bytes| bytes.len() as u64).sum()
}

/// Runs until `megabytes` MiB have been sent in all, and then sends a signal.
#[track_caller]
fn interrupt(origin: &Origin, folder: &Path, megabytes: u64, signal: Signal) -> Run {
    let mut running = fetch(origin, folder).start();
    let until = megabytes * MIB as u64;
    assert!(running.until(|| origin.stats().body_bytes >= until), "it was too fast");
    running.signal(signal);
    running.wait()
}

/// False if an interrupted run has not waited for its last writes, because a busy disk took longer
/// than a program may take to end.
#[track_caller]
fn has_waited_for_writes(run: Run) -> bool {
    let run = run.expect(130).expect_words(&["run it again"]);
    let has_not = run.stderr.contains("writes to") && run.stderr.contains("have not returned");
    run.check(has_not || run.stderr.contains("partly downloaded"), "it says what is left");
    !has_not
}

fn number(run: &Run, name: &str) -> u64 {
    run.json()[name].as_u64().expect("a number")
}

#[test]
fn an_interrupted_object_goes_on() {
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let origin = start(slow(&large(), 20));
        let folder = tempfile::tempdir().expect("a folder");
        let mut lost = 0;
        for (interrupted, megabytes) in (1..).zip([10, 20, 30]) {
            let run = interrupt(&origin, folder.path(), megabytes, signal);
            let has_noted = if signal == Signal::KILL {
                run.expect_killed(signal);
                false
            } else {
                has_waited_for_writes(run)
            };
            // What its sockets hold was sent, too.
            lost += if has_noted { IN_FLIGHT } else { LOST_BY_KILL };
            assert!(!folder.path().join("deep/a").exists(), "after {interrupted}");
            let names = temporaries(folder.path());
            assert!(names.len() <= 4 && !names.is_empty(), "{names:?}");
        }
        let run = fetch(&origin, folder.path()).run().expect(0);
        assert!(number(&run, "resumed_objects") > 0, "{run}");
        assert_complete(folder.path(), &large());
        let sent = origin.stats().body_bytes;
        let most = length(&large()) + lost;
        assert!(sent <= most, "{signal:?}: {sent} of at most {most} bytes");
        let resumed = number(&run, "resumed_bytes") + number(&run, "kept_bytes");
        let fetched = number(&run, "bytes");
        assert_eq!(resumed + fetched, length(&large()), "{run}");
    }
}

#[test]
fn what_one_ring_left_the_other_goes_on_with() {
    let origin = start(slow(&large(), 20));
    let folder = tempfile::tempdir().expect("a folder");
    for (ring, megabytes) in [("epoll", 10), ("io_uring", 20)] {
        let mut running = fetch(&origin, folder.path()).set("INRUSH_RING", ring).start();
        let until = megabytes * MIB as u64;
        assert!(running.until(|| origin.stats().body_bytes >= until), "it was too fast");
        running.signal(Signal::INT);
        has_waited_for_writes(running.wait());
    }
    let run = fetch(&origin, folder.path()).with(["--ring", "epoll"]).run().expect(0);
    assert!(number(&run, "resumed_objects") > 0, "{run}");
    assert_complete(folder.path(), &large());
}

#[test]
fn what_changed_begins_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    interrupt(&start(slow(&large(), 20)), folder.path(), 10, Signal::KILL);
    let mut after = large();
    after.values_mut().for_each(|bytes| bytes.fill(3));
    let run = crate::program::Program::new(["get", "s3://lab/", "--part-size", "1MiB"]);
    let origin = serve(&after);
    let run = run.with([folder.path()]).asking(&origin);
    let run = run.with_keys(crate::served::ACCESS_KEY, crate::served::SECRET).run().expect(0);
    run.expect_words(&["restarted from the first byte: ", "the object has changed"]);
    assert_complete(folder.path(), &after);
}

/// Ranges of another length, as options have it or a bandwidth that is bounded: what is there
/// counts.
#[test]
fn what_was_cut_otherwise_goes_on() {
    for words in [&["--part-size", "2MiB"][..], &["--bandwidth-limit", "10GB"]] {
        let folder = tempfile::tempdir().expect("a folder");
        // A killed run may not have noted any range yet.
        interrupt(&start(slow(&large(), 20)), folder.path(), 10, Signal::INT);
        let origin = start(computed(&large()));
        let options = ["get", "s3://lab/", "--connections", "4", "--json"];
        let run = crate::program::Program::new(options).with(words).with([folder.path()]);
        let run = run.asking(&origin).with_keys(crate::served::ACCESS_KEY, crate::served::SECRET);
        let run = run.run().expect(0);
        assert!(number(&run, "resumed_objects") > 0, "{run}");
        assert_eq!(number(&run, "anew_objects"), 0, "{run}");
        assert_complete(folder.path(), &large());
    }
}

#[test]
fn a_garbled_journal_is_ignored() {
    let spoil: [fn(&Path); 4] = [
        |journal| fs::remove_file(journal).expect("removed"),
        |journal| fs::write(journal, "").expect("written"),
        |journal| {
            let mut bytes = fs::read(journal).expect("there");
            // A record, or where none is there yet the header's end.
            let at = bytes.len().min(71) - 1;
            bytes[at] ^= 4;
            fs::write(journal, bytes).expect("written");
        },
        |journal| {
            let bytes = fs::read(journal).expect("there");
            fs::write(journal, &bytes[..bytes.len() - 7]).expect("written");
        },
    ];
    for (index, spoil) in spoil.into_iter().enumerate() {
        let origin = start(slow(&large(), 20));
        let folder = tempfile::tempdir().expect("a folder");
        interrupt(&origin, folder.path(), 12, Signal::INT);
        for name in temporaries(folder.path()) {
            let path = match folder.path().join(&name) {
                path if path.exists() => path,
                _ => folder.path().join("deep").join(&name),
            };
            if name.ends_with(".journal") {
                spoil(&path);
            }
        }
        let run = fetch(&start(computed(&large())), folder.path()).run().expect(0);
        let anew = number(&run, "anew_objects");
        assert_eq!(anew > 0, index < 3, "a torn end is no damage: {index}\n{run}");
        assert_complete(folder.path(), &large());
    }
}

#[test]
fn another_users_unfinished_files_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    interrupt(&start(slow(&large(), 20)), folder.path(), 12, Signal::KILL);
    let foreign: Vec<_> = [folder.path().to_owned(), folder.path().join("deep")]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    assert!(!foreign.is_empty());
    for path in &foreign {
        if std::os::unix::fs::chown(path, Some(12_345), None).is_err() {
            crate::skip::skip("only root may give files away");
            return;
        }
    }
    let options = ["get", "s3://lab/", "--part-size", "1MiB", "--connections", "4", "--json"];
    let origin = start(computed(&large()));
    let run = crate::program::Program::new(options).with([folder.path()]).asking(&origin);
    let run = run.with_keys(crate::served::ACCESS_KEY, crate::served::SECRET).run().expect(0);
    assert_eq!(number(&run, "resumed_objects"), 0, "{run}");
    run.expect_words(&["their temporary names are used by files of another user"]);
    for path in foreign.iter().filter(|path| path.to_string_lossy().contains(".inrush")) {
        let found = fs::metadata(path).expect("it is still there");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&found), 12_345, "{}", path.display());
    }
    for (key, bytes) in large() {
        assert!(fs::read(folder.path().join(&key)).expect("a file") == bytes, "{key}");
    }
}

#[test]
fn without_resume_nothing_is_left_and_nothing_counts() {
    let origin = start(slow(&large(), 20));
    let folder = tempfile::tempdir().expect("a folder");
    interrupt(&origin, folder.path(), 10, Signal::KILL);
    assert!(!temporaries(folder.path()).is_empty());
    let mut running = fetch(&origin, folder.path()).with(["--no-resume"]).start();
    assert!(running.until(|| origin.stats().body_bytes > 20 << 20), "it was too fast");
    running.signal(Signal::INT);
    running.wait().expect(130).expect_words(&["partial data was discarded"]);
    assert!(temporaries(folder.path()).is_empty());
}

#[test]
fn two_at_once_do_not_harm_each_other() {
    let origin = start(slow(&large(), 30));
    let folder = tempfile::tempdir().expect("a folder");
    interrupt(&origin, folder.path(), 10, Signal::KILL);
    let running = [0; 3].map(|_| fetch(&origin, folder.path()).start());
    for running in running {
        running.wait().expect(0);
    }
    assert_complete(folder.path(), &large());
}

#[test]
fn an_object_that_cannot_be_had_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    interrupt(&start(slow(&large(), 20)), folder.path(), 10, Signal::KILL);
    let when = Match { operation: Some(Operation::GetObject), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::ChangedEtag);
    let origin = start(Config { faults, ..computed(&large()) });
    let run = fetch(&origin, folder.path()).run();
    run.check(!run.status.success(), "nothing could be fetched");
    assert!(temporaries(folder.path()).is_empty(), "{run}");
}

#[test]
fn a_network_that_went_away_costs_what_was_in_flight() {
    let folder = tempfile::tempdir().expect("a folder");
    let offsets = Some(10 * MIB as u64..u64::MAX);
    let when = Match { operation: Some(Operation::GetObject), offsets, ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::ResetBeforeHead);
    let origin = start(Config { faults, ..computed(&large()) });
    let run =
        fetch(&origin, folder.path()).with(["--max-attempts", "2", "--retry-for", "0s"]).run();
    run.check(!run.status.success(), "there was nobody to ask");
    assert_eq!(number(&run, "unfinished_objects"), 2, "{run}");
    let sent = origin.stats().body_bytes;
    let origin = start(computed(&large()));
    let run = fetch(&origin, folder.path()).run().expect(0);
    assert!(number(&run, "resumed_objects") > 0, "{run}");
    assert_complete(folder.path(), &large());
    let sent = sent + origin.stats().body_bytes;
    assert!(sent <= length(&large()) + IN_FLIGHT, "{sent} bytes");
}

#[test]
fn what_begins_anew_within_a_run_keeps_nothing_of_before() {
    let folder = tempfile::tempdir().expect("a folder");
    interrupt(&start(slow(&large(), 20)), folder.path(), 10, Signal::KILL);
    // Ranges of both that cannot have been fetched yet.
    for restart in [false, true] {
        let mut faults = FaultPlan::none();
        for (key, last) in [("deep/a", 24), ("b", 16)] {
            let last = last * MIB as u64;
            let when = Match {
                key: Some(key.to_owned()),
                offsets: Some(last..last + 1),
                attempts: Some(1..=1),
                ..Match::default()
            };
            faults = faults.with_rule(when, Fault::ChangedEtag);
        }
        let origin = start(Config { faults, ..computed(&large()) });
        if restart {
            let run = fetch(&origin, folder.path()).with(["--on-change", "restart"]).run();
            let run = run.expect(0);
            let anew = number(&run, "bytes") >= length(&large());
            run.check(anew, "nothing of what was there, or came before, counts");
            assert_complete(folder.path(), &large());
        } else {
            let run = fetch(&origin, folder.path()).run();
            run.check(!run.status.success(), "both changed");
            assert!(temporaries(folder.path()).is_empty(), "{run}");
            interrupt(&start(slow(&large(), 20)), folder.path(), 10, Signal::KILL);
        }
    }
}

#[test]
fn a_file_system_without_attributes_has_an_index() {
    let Some(mount) = Mount::of("ramfs", "mode=777") else { return };
    let folder = mount.path().join("data");
    let origin = start(slow(&large(), 20));
    interrupt(&origin, &folder, 10, Signal::INT);
    let run = fetch(&origin, &folder).run().expect(0);
    assert!(number(&run, "resumed_objects") > 0, "{run}");
    let index: BTreeSet<String> = [".inrush-index".to_owned()].into();
    assert_eq!(temporaries(&folder), index, "its one file");
    let run = fetch(&origin, &folder).run().expect(0);
    assert_eq!(number(&run, "kept_objects"), 3, "{run}");
    // What the index knows is of the file as it was.
    fs::write(folder.join("small"), vec![1; 999]).expect("written");
    fs::write(folder.join("b"), "another").expect("written");
    let run = fetch(&origin, &folder).run().expect(0);
    assert_eq!(number(&run, "kept_objects"), 1, "{run}");
    fs::remove_file(folder.join(".inrush-index")).expect("removed");
    // Without it they are known by their times, or not at all.
    let run = fetch(&origin, &folder).with(["--ignore-times"]).run().expect(0);
    assert_eq!(number(&run, "kept_objects"), 0, "{run}");
    fs::remove_file(folder.join(".inrush-index")).expect("written again");
    assert_complete(&folder, &large());
}

/// Killed before its journal says anything of its bytes.
#[test]
fn an_unfinished_file_without_bytes_is_not_resumed() {
    let all = objects(&[("a", 8 * MIB)]);
    let folder = tempfile::tempdir().expect("a folder");
    let origin = start(slow(&all, 1));
    let mut running = fetch(&origin, folder.path()).start();
    assert!(running.until(|| temporaries(folder.path()).len() == 2), "it begins");
    running.signal(Signal::KILL);
    running.wait();
    let run = fetch(&start(computed(&all)), folder.path()).run().expect(0);
    let summary = run.json();
    let (objects, bytes) = (&summary["resumed_objects"], &summary["resumed_bytes"]);
    run.check((objects == 0) == (bytes == 0), "what is resumed has bytes");
    run.check(!run.stderr.contains("resumed: 0 B"), "that says nothing");
    assert_complete(folder.path(), &all);
}
