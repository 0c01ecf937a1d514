//! Slow connections and long ranges: what is written of a range is not fetched again.

use std::fs;
use std::path::Path;

use inrush_origin::{ChecksumAlgorithm, ChecksumPolicy, Config};
use rustix::process::Signal;

use crate::matrix::Objects;
use crate::program::{Program, Run};
use crate::served::{get, start};
use crate::{MIB, assert_complete, computed, objects, slow, temporaries};

/// Three ranges, one for each connection: none is complete when the run ends.
fn large() -> Objects {
    objects(&[("a", 24 * MIB)])
}

fn fetch(origin: &inrush_origin::Origin, folder: &Path) -> Program {
    let options = ["s3://lab/", "--part-size", "8MiB", "--connections", "3", "--json"];
    get(origin, options).with([folder])
}

fn with_checksums(mut configuration: Config) -> Config {
    let policy = ChecksumPolicy::full_object(ChecksumAlgorithm::Crc64Nvme);
    for object in &mut configuration.objects {
        *object = object.clone().with_checksum(policy);
    }
    configuration
}

/// Goes on, and fails unless exactly what was not there is fetched, and all of it validated.
#[track_caller]
fn assert_goes_on(folder: &Path, before: &Run) {
    let origin = start(with_checksums(computed(&large())));
    let run = fetch(&origin, folder).run().expect(0);
    let summary = run.json();
    let number = |name: &str| summary[name].as_u64().expect("a number");
    run.check(number("resumed_bytes") > 0, &format!("what came before is lost\n{before}"));
    let length = 24 * MIB as u64;
    assert_eq!(number("resumed_bytes") + number("bytes"), length, "{run}");
    // The listing and what HEAD is answered have some hundred bytes.
    let sent = origin.stats().body_bytes;
    let retries = summary["retries"].as_object().expect("reasons").len();
    // On a machine that stands still a range may be late, and be asked for elsewhere.
    if number("hedges") + number("moves") == 0 && retries == 0 {
        assert!(sent < number("bytes") + 65_536, "only the rest is sent: {sent}\n{run}");
    }
    assert_eq!(number("validated_objects"), 1, "{run}");
    assert_complete(folder, &large());
}

#[test]
fn an_interruption_keeps_what_is_written_of_each_range() {
    for signal in [Signal::INT, Signal::TERM] {
        let origin = start(with_checksums(slow(&large(), 2)));
        let folder = tempfile::tempdir().expect("a folder");
        let mut running = fetch(&origin, folder.path()).start();
        assert!(running.until(|| origin.stats().body_bytes >= 9 << 20), "it was too fast");
        running.signal(signal);
        let run = running.wait().expect(130).expect_words(&["partly downloaded", "run it again"]);
        assert_goes_on(folder.path(), &run);
    }
}

#[test]
fn a_deadline_keeps_it_too() {
    let origin = start(with_checksums(slow(&large(), 1)));
    let folder = tempfile::tempdir().expect("a folder");
    let run = fetch(&origin, folder.path()).with(["--deadline", "6s"]).run().expect(8);
    assert_goes_on(folder.path(), &run);
}

#[test]
fn a_kill_costs_what_a_connection_brought_in_a_few_seconds() {
    let origin = start(with_checksums(slow(&large(), 1)));
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = fetch(&origin, folder.path()).start();
    let noted = || {
        let journal = temporaries(folder.path()).into_iter().find(|name| name.ends_with("journal"));
        let journal = journal.and_then(|name| fs::metadata(folder.path().join(name)).ok());
        // A header alone has 60 bytes.
        journal.is_some_and(|journal| journal.len() > 60)
    };
    assert!(running.until(noted), "nothing was noted while ranges were under way");
    running.signal(Signal::KILL);
    let run = running.wait().expect_killed(Signal::KILL);
    assert_goes_on(folder.path(), &run);
}

/// The slots of the second run are sixteen times as long, and a range begins within one of them.
#[test]
fn another_length_of_slots_goes_on_all_the_same() {
    let origin = start(with_checksums(slow(&large(), 2)));
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = fetch(&origin, folder.path()).with(["--memory", "4MiB"]).start();
    assert!(running.until(|| origin.stats().body_bytes >= 5 << 20), "it was too fast");
    running.signal(Signal::INT);
    let run = running.wait().expect(130);
    assert_goes_on(folder.path(), &run);
}
