//! Sources that are exactly a name that exists, whatever characters are in it; and sources of which
//! there is nothing, beside others.

use std::fs;

use inrush_origin::Origin;

use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::{Place, objects, pick};

const NOT_FOUND: i32 = 4;

fn program(origin: &Origin, words: &[&str]) -> Program {
    Program::new(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

/// What is listed below the bucket.
fn names(run: &Run) -> Vec<&str> {
    run.stdout.lines().filter_map(|line| line.split("s3://lab/").nth(1)).collect()
}

#[test]
fn a_name_that_exists_comes_before_its_reading_as_a_glob() {
    let all = [
        ("d/[x].txt", 5),
        ("d/a*/b?", 6),
        ("d/ab/bc", 7),
        ("d/open[1", 8),
        ("d/x.txt", 9),
        (r"d/back\*slash", 10),
        ("d/{1,2}", 11),
    ];
    let origin = serve(&objects(&all));
    let lists = |source: &str, expected: &[&str]| {
        let run = program(&origin, &["ls", "--recursive", source]).run().expect(0);
        assert_eq!(names(&run), expected, "{source}");
    };
    for (key, _) in all {
        lists(&format!("s3://lab/{key}"), &[key]);
    }
    lists("s3://lab/d/a*/", &["d/a*/b?"]);
    lists("s3://lab/d/a*/b*", &["d/a*/b?", "d/ab/bc"]);
    lists("s3://lab/d/[w-y].txt", &["d/x.txt"]);
    let run = program(&origin, &["ls", "s3://lab/d/none[1"]).run().expect(NOT_FOUND);
    run.expect_error(&["no object with this key", "as a glob it is invalid: unclosed"]);

    // What `ls` prints is what --files-from reads; of what was meant as a glob it is said.
    let place = Place::new();
    let list = place.folder.path().join("list");
    let run = program(&origin, &["ls", "--recursive", "s3://lab/d/"]).run().expect(0);
    let lines: String = names(&run).iter().map(|key| format!("s3://lab/{key}\n")).collect();
    fs::write(&list, &lines).expect("a list");
    let words = ["get", "--files-from", &list.display().to_string()];
    let run = program(&origin, &words).with([place.path()]).run().expect(0);
    run.check(run.stderr.contains("s3://lab/d/[x].txt: taken as a name that exists"), "a note");
    let keys: Vec<(&str, &str)> =
        all.iter().map(|(key, _)| (key.rsplit('/').next().unwrap_or(key), *key)).collect();
    place.assert_holds(&pick(&objects(&all), &keys));
}

#[test]
fn a_glob_costs_a_question_more_only_where_its_listing_leaves_it_open() {
    let mut keys: Vec<String> = (0..2_500).map(|number| format!("d/{number:05}.tar")).collect();
    keys.push("d/~".to_owned());
    let keys: Vec<(&str, usize)> = keys.iter().map(|key| (key.as_str(), 1)).collect();
    let origin = serve(&objects(&keys));
    let costs = |source: &str, heads: u64| {
        let before = origin.stats().heads;
        program(&origin, &["ls", "--recursive", source]).run().expect(0);
        let asked = origin.stats().heads - before;
        // On a busy machine a question may be asked again.
        assert!((heads..=heads * 4).contains(&asked), "{source}: {asked}");
    };
    // The star comes before the digits, so the first page has gone past it.
    costs("s3://lab/d/*.tar", 0);
    costs("s3://lab/d/00*.tar", 0);
    costs("s3://lab/d/*", 0);
    costs("s3://lab/d/0?000.tar", 1);
}

#[test]
fn sources_that_are_missing_keep_no_other_from_coming() {
    let all = objects(&[("a", 5), ("b", 6), ("d/1", 7)]);
    let (origin, place) = (serve(&all), Place::new());
    let report = place.folder.path().join("report");
    let words = ["s3://lab/a", "s3://lab/none", "s3://lab/d/", "s3://lab/*.tar", "s3://lab/e/"];
    let report_words = ["--json", "--report", report.to_str().expect("UTF-8")];
    let run = get(&origin, words).with([place.path()]).with(report_words).run().expect(1);
    let summary = run.json();
    assert_eq!((&summary["objects"], &summary["failed_objects"]), (&2.into(), &3.into()), "{run}");
    assert_eq!(summary["error_kind"], "not_found");
    let run = run.expect_words(&["s3://lab/none: there is no object with this key"]);
    let run = run.expect_words(&["s3://lab/*.tar: nothing matches", "s3://lab/e/: there is noth"]);
    run.check(!place.path().join("none").exists(), "a file");
    place.assert_holds(&pick(&all, &[("a", "a"), ("1", "d/1")]));
    let lines = fs::read_to_string(&report).expect("a report");
    let failed: Vec<_> = lines.lines().filter(|line| line.contains(r#""failed""#)).collect();
    assert!(failed.len() == 3 && failed.iter().any(|line| line.contains(r#""none""#)), "{lines}");

    // Nor where all the others are there already; and --delete deletes nothing.
    fs::write(place.path().join("own"), "x").expect("a file");
    let sync = ["sync", "--delete", "s3://lab/d/", "s3://lab/e/"];
    let run = program(&origin, &sync).with([place.path()]).run().expect(1);
    run.expect_words(&["s3://lab/e/: there is nothing", "no file was deleted"]);
    assert!(place.path().join("own").exists());
    let dry = get(&origin, ["--dry-run", "s3://lab/a", "s3://lab/none"]).with([place.path()]);
    dry.run().expect(1).expect_words(&["s3://lab/none: there is no object"]);
}

#[test]
fn one_of_several_goes_into_the_folder_even_when_the_others_are_missing() {
    let all = objects(&[("a", 5)]);
    let (origin, place) = (serve(&all), Place::new());
    get(&origin, ["s3://lab/none", "s3://lab/a"]).with([place.path()]).run().expect(1);
    place.assert_holds(&pick(&all, &[("a", "a")]));
}

#[test]
fn what_else_is_wrong_with_sources_ends_the_run_before_any_byte() {
    let all = objects(&[("a", 5)]);
    let (origin, place) = (serve(&all), Place::new());
    let ends = |words: &[&str], code: i32, expected: &[&str]| {
        let run = get(&origin, words).with([place.path()]).run().expect(code);
        run.expect_error(expected);
        assert!(!place.path().exists(), "nothing was made");
    };
    ends(&["s3://lab/a", "s3://nobody-has-this/b"], NOT_FOUND, &["NoSuchBucket"]);
    ends(&["s3://lab/none"], NOT_FOUND, &["s3://lab/none: there is no object with this key"]);
    let both = ["s3://lab/none", "s3://lab/neither/"];
    let names = "none of 2 sources was found (s3://lab/none, s3://lab/neither/), the first: ";
    ends(&both, NOT_FOUND, &[names, "s3://lab/none: there is"]);
    let globs = get(&origin, ["s3://lab/*.x", "s3://lab/*.y"]).with([place.path()]).run();
    globs
        .expect(NOT_FOUND)
        .expect_words(&["*.x: nothing matches", "nothing was found to download"]);
    let wrong = Program::new(["get", "s3://lab/a", "s3://lab/none"]).asking(&origin);
    wrong.with_keys(ACCESS_KEY, "wrong").with([place.path()]).run().expect(3);
}

#[test]
fn very_many_missing_are_reported_in_part_and_cost_little() {
    let all = objects(&[("a", 5), ("key", 3)]);
    let (origin, place) = (serve(&all), Place::new());
    let list = place.folder.path().join("list");
    let lines: String = (0..500).map(|number| format!("s3://lab/keys-{number}\n")).collect();
    fs::write(&list, format!("{lines}s3://lab/a\n")).expect("a list");
    let run = get(&origin, ["--files-from", &list.display().to_string(), "--json"]);
    let run = run.with([place.path()]).run().expect(1);
    assert_eq!(run.json()["failed_objects"], 500);
    let run = run.expect_words(&["more objects failed; use --report FILE"]);
    run.check(run.stderr.lines().count() < 40, "a few lines");
    place.assert_holds(&pick(&all, &[("a", "a")]));
    // A HEAD and a LIST each; help for the first ones. A slow question may be asked again.
    let (heads, lists) = (origin.stats().heads, origin.stats().lists);
    assert!((501..=501 * 4).contains(&heads) && lists < 700 * 4, "{heads} {lists}");
}
