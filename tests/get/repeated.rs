//! Sources that overlap: an object that several of them have is downloaded once.

use std::fs;

use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::{Place, objects, pick};

#[test]
fn an_object_that_is_given_twice_is_downloaded_once() {
    let all = objects(&[("d/a", 5), ("d/b", 6), ("e/a", 7)]);
    let (origin, place) = (serve(&all), Place::new());
    let expected = pick(&all, &[("a", "d/a"), ("b", "d/b")]);
    let list = place.folder.path().join("list");
    fs::write(&list, "s3://lab/d/a\ns3://lab/d/b\ns3://lab/d/a\ns3://lab/d/a\n").expect("a list");
    let list = list.display().to_string();
    for (words, note) in [
        (&["--files-from", &list][..], "2 objects are given more than once"),
        (&["s3://lab/d/", "s3://lab/d/b"], "1 object is given more than once"),
    ] {
        let program = |command: &str| {
            let program = Program::new([command]).with(words).with([place.path()]);
            program.asking(&origin).with_keys(ACCESS_KEY, SECRET)
        };
        program("get").with(["--dry-run"]).run().expect(0).expect_words(&[note]);
        let before = origin.stats().gets;
        program("get").with(["--overwrite", "always"]).run().expect(0).expect_words(&[note]);
        assert_eq!(origin.stats().gets - before, 2);
        place.assert_holds(&expected);
        program("verify").run().expect(0).expect_words(&[note]);
    }
    // Two objects for one path are none that is given twice.
    let run = get(&origin, ["s3://lab/d/a", "s3://lab/e/a", "s3://lab/d/b"]).with([place.path()]);
    run.run().expect(1).expect_words(&["s3://lab/e/a: "]);
}

#[test]
fn a_source_that_is_missing_is_no_object_that_failed() {
    let all = objects(&[("d/a", 5), ("d/b", 6)]);
    let (origin, place) = (serve(&all), Place::new());
    let words = ["get", "s3://lab/d/", "s3://lab/none"];
    let program = Program::new(words).with([place.path()]).asking(&origin);
    let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(1);
    let expected = "1 of 2 sources does not exist; the objects of the others are complete";
    let run = run.expect_words(&[expected]);
    run.check(!run.stderr.contains("object failed"), "no object failed");
}
