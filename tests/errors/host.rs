//! A machine that cannot run it: no io_uring, no descriptors, no memory.

use crate::matrix::bytes_of;
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::without::without;
use crate::{HOST, Nowhere, assert_whole, objects};

#[test]
fn without_io_uring_the_setting_is_named() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    for (what, reason) in [("io_uring:1", "not permitted"), ("io_uring:38", "not implemented")] {
        let Some(before) = without(what) else { return };
        let words = ["io_uring is not available", reason, "seccomp", "io_uring_setup"];
        let run = get(&origin, ["s3://lab/"]).with([nowhere.path()]).by_way_of(&before).run();
        run.expect(HOST).expect_error(&words);
        let run = Program::new(["ls", "--recursive", "s3://lab/"])
            .asking(&origin)
            .with_keys(ACCESS_KEY, SECRET);
        run.by_way_of(&before).run().expect(HOST).expect_error(&words);
        // What needs no ring works.
        Program::new(["--help"]).by_way_of(&before).run().expect(0);
    }
    nowhere.assert_untouched();
    assert_eq!(origin.stop().requests, 0);
}

#[test]
fn few_descriptors_are_enough_or_named() {
    let mut all = objects(&[("a", 3), ("b/c", 2 << 20), ("d/e/f", 100)]);
    all.extend((0..60).map(|number| (format!("{number}/x"), bytes_of("x", 3_000 * number))));
    let origin = serve(&all);
    for limit in ["8", "16", "24", "32", "48", "64", "100"] {
        let nowhere = Nowhere::new();
        let before = ["sh", "-c", "ulimit -n $0 && exec \"$@\"", limit];
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
            run.check(run.status.code().is_some_and(|code| (1..=7).contains(&code)), "exit code");
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
    run.expect(HOST).expect_error(&["cannot map", "lower --memory"]);
}
