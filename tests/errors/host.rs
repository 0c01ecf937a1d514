//! A machine that cannot run it, or not all of it: no io_uring, no descriptors, no memory.

use std::process::Command;

use inrush_origin::Config;

use crate::matrix::bytes_of;
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, config, get, serve, start};
use crate::without::without;
use crate::{DESTINATION, HOST, Nowhere, assert_whole, objects};

/// Refused (EPERM), not there (ENOSYS), and without room in locked memory (ENOMEM).
const REFUSALS: [&str; 3] = ["io_uring:1", "io_uring:38", "io_uring:12"];

#[test]
fn without_io_uring_what_is_there_is_listed_and_verified() {
    let all = objects(&[("a", 3), ("b/c", 2 << 20)]);
    let origin = start(Config { md5_etags: true, ..config(&all) });
    let nowhere = Nowhere::new();
    get(&origin, ["s3://lab/"]).with([nowhere.path()]).run().expect(0);
    let report = nowhere.path().with_extension("report");
    let asking = |words: &[&str]| Program::new(words).asking(&origin).with_keys(ACCESS_KEY, SECRET);
    for what in REFUSALS {
        let Some(before) = without(what) else { return };
        let run = asking(&["ls", "--recursive", "s3://lab/"]).by_way_of(&before).run().expect(0);
        run.check(run.stdout.contains("b/c"), "it lists");
        let elsewhere = Nowhere::new();
        let run = get(&origin, ["s3://lab/", "--dry-run"]).with([elsewhere.path()]);
        run.by_way_of(&before).run().expect(0);
        elsewhere.assert_untouched();
        let verify = || {
            let verify = asking(&["verify", "--strict", "s3://lab/"]).with([nowhere.path()]);
            verify.with(["--report".as_ref(), report.as_os_str()]).by_way_of(&before).run()
        };
        verify().expect(0);
        let lines = std::fs::read_to_string(&report).expect("a report");
        assert_eq!(lines.lines().count(), all.len(), "{lines}");
        // It reads them: other bytes of the same length are found.
        let file = nowhere.path().join("a");
        let right = std::fs::read(&file).expect("it is there");
        std::fs::write(&file, [!right[0], right[1], right[2]]).expect("it is a file");
        let run = verify();
        run.check(run.status.code().is_some_and(|code| code != 0), "it differs");
        run.check(run.stderr.contains("lab/a"), "it is named");
        std::fs::write(&file, right).expect("it is a file");
    }
}

#[test]
fn a_closed_standard_output_is_reported_before_anything_is_done() {
    let all = objects(&[("a", 3)]);
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let path = nowhere.path();
    let asking = |words: &[&str]| Program::new(words).asking(&origin).with_keys(ACCESS_KEY, SECRET);
    let closed = ["sh", "-c", "exec \"$0\" \"$@\" >&-"];
    // As Python's subprocess.DEVNULL: what the program would find where it was closed, too.
    let devnull = ["sh", "-c", "exec \"$0\" \"$@\" 1<>/dev/null"];
    let programs = || {
        [
            asking(&["ls", "s3://lab/"]),
            asking(&["cat", "s3://lab/a"]),
            asking(&["get", "--dry-run", "s3://lab/"]).with([&path]),
            asking(&["get", "--json", "s3://lab/"]).with([&path]),
            Program::new(["guide"]),
        ]
    };
    for program in programs() {
        let run = program.by_way_of(closed).run().expect(DESTINATION);
        run.expect_words(&["error: standard output is closed; redirect it"]);
    }
    nowhere.assert_untouched();
    for program in programs() {
        program.by_way_of(devnull).run().expect(0);
    }
    nowhere.assert_holds(&all);
    let run = asking(&["get", "--quiet", "--overwrite", "always", "s3://lab/"]).with([&path]);
    run.by_way_of(closed).run().expect(0);
}

#[test]
fn few_descriptors_are_enough_or_named() {
    let mut all = objects(&[("a", 3), ("b/c", 2 << 20), ("d/e/f", 100)]);
    all.extend((0..60).map(|number| (format!("{number}/x"), bytes_of("x", 3_000 * number))));
    let origin = serve(&all);
    for limit in ["8", "16", "18", "20", "22", "24", "32", "48", "64", "100"] {
        let nowhere = Nowhere::new();
        let close = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n $0 && exec \"$@\"";
        let before = ["sh", "-c", close, limit];
        let run = get(&origin, ["s3://lab/"]).with([nowhere.path()]).by_way_of(before).run();
        // Folders that are only kept open give way.
        run.check(
            !["64", "100"].contains(&limit) || run.status.code() == Some(0),
            "these are enough",
        );
        if run.status.code() == Some(0) {
            nowhere.assert_holds(&all);
        } else {
            assert_whole(&nowhere.path(), &all);
            run.check([Some(1), Some(HOST)].contains(&run.status.code()), "exit code");
            run.check(run.stderr.starts_with("error: "), "an error was expected");
            run.check(!run.stderr.contains("panicked"), "it panicked");
            let few = run.stderr.contains("oo many open files");
            run.check(few && !run.stderr.contains("Linux 5.11"), "the reason was expected");
        }
    }
}

#[test]
fn little_memory_is_named() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    let before = ["sh", "-c", "ulimit -v $0 && exec \"$@\"", "1000000"];
    let words = ["s3://lab/", "--memory", "8GiB", "--connections", "4096", "--workers", "8"];
    let run = get(&origin, words).with([nowhere.path()]).by_way_of(before).run();
    run.expect(HOST).expect_error(&[
        "cannot map",
        "1024000000 bytes",
        "(ulimit -v)",
        "lower --memory",
    ]);
}

#[test]
fn a_small_stack_is_enough() {
    let all = objects(&[("a", 3), ("b/c", 2 << 20)]);
    let origin = serve(&all);
    let before = ["sh", "-c", "ulimit -s $0 && exec \"$@\"", "256"];
    let nowhere = Nowhere::new();
    get(&origin, ["s3://lab/"]).with([nowhere.path()]).by_way_of(before).run().expect(0);
    nowhere.assert_holds(&all);
    Program::new(["get", "--help"]).by_way_of(before).run().expect(0);
}

/// Libraries take `TMPDIR=` for the path of the current folder, which is gone here.
#[test]
fn an_empty_tmpdir_is_an_unset_one() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let gone = folder.path().join("gone");
    std::fs::create_dir(&gone).expect("room");
    let output = Command::new("sh")
        .args(["-c", "rmdir \"$PWD\" && exec \"$0\" demo --size 64MiB --quiet"])
        .arg(env!("CARGO_BIN_EXE_inrush"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PWD", &gone)
        .env("TMPDIR", "")
        .current_dir(&gone)
        .output()
        .expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
}
