//! Keys that cannot be files: each is an error of its own, and the other objects arrive.

use std::fs;
use std::os::unix::fs::symlink;

use crate::matrix::Objects;
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::{DESTINATION, NOT_FOUND, Nowhere, OBJECTS, below, names, objects};

/// Gets everything below `prefix`; the errors are those of `bad`, with these words, and nothing
/// but the other objects arrives.
#[track_caller]
fn check(prefix: &str, good: &[(&str, usize)], bad: &[(&str, &str)]) {
    let mut all = objects(good);
    let wanted = below(prefix, &all);
    all.extend(objects(&bad.iter().map(|(key, _)| (*key, 100)).collect::<Vec<_>>()));
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let source = format!("s3://lab/{prefix}");
    let words = [source.as_str(), nowhere.path().to_str().expect("UTF-8")].map(str::to_owned);
    let run = get(&origin, words).run().expect(OBJECTS);
    let lines: Vec<&str> = run.stderr.lines().collect();
    run.check(lines.len() == bad.len(), "one line for each key was expected");
    run.check(run.stdout.is_empty(), "nothing was expected on standard output");
    for (key, words) in bad {
        let shown: String = key.chars().take(200).flat_map(char::escape_debug).collect();
        let is_error = |line: &&&str| {
            line.starts_with("error: ") && line.contains(&shown) && line.contains(words)
        };
        run.check(
            lines.iter().any(|line| is_error(&line)),
            &format!("an error for {key:?}: {words}"),
        );
        let once = |line: &&str| line.matches("--exclude").count() == 1;
        run.check(lines.iter().all(once), "each says once what to do");
    }
    nowhere.assert_holds(&wanted);
}

const GOOD: [(&str, usize); 3] = [("p/good", 9), ("p/more/large", 3 << 20), ("p/zero", 0)];

#[test]
fn keys_that_lead_elsewhere_stay_out() {
    let dots = "use --exclude";
    let bad = [
        ("p/..", dots),
        ("p/../beside", dots),
        ("p/../../above", dots),
        ("p/a/../../beside", dots),
        ("p/.", dots),
        ("p/./here", dots),
        ("p//etc/inrush-absolute", "absolute"),
        ("p/a//b", "empty name"),
        ("p/nul\0key", "NUL"),
    ];
    check("p/", &GOOD, &bad);
}

#[test]
fn keys_from_the_top_of_a_bucket_stay_out_as_well() {
    let good = [("good", 9)];
    let bad = [("/absolute", "absolute"), ("../above", "'..'"), ("a//b", "empty name")];
    check("", &good, &bad);
}

#[test]
fn names_that_no_file_can_have_are_reported() {
    let long = format!("p/{}", "n".repeat(256));
    let wide = format!("p/{}/x", "\u{fc}".repeat(128));
    let fits = format!("p/{}", "n".repeat(255));
    let mut good = GOOD.to_vec();
    good.push((&fits, 7));
    check("p/", &good, &[(&long, "255"), (&wide, "255"), ("p/with-bytes/", "is not empty")]);
}

#[test]
fn a_file_beside_a_folder_of_its_name() {
    // In the order of the listing the file comes first, and others may stand between.
    let good = [("p/a", 5), ("p/a-b", 5), ("p/z", 5)];
    check("p/", &good, &[("p/a/b", "needs a folder"), ("p/a/b/c", "needs a folder")]);
}

#[test]
fn only_bad_keys_write_nothing() {
    let origin = serve(&objects(&[("p/..", 3), ("p//a", 3)]));
    let nowhere = Nowhere::new();
    let run = get(&origin, ["s3://lab/p/"]).with([nowhere.path()]).run().expect(DESTINATION);
    let lines: Vec<_> = run.stderr.lines().collect();
    run.check(lines.len() == 3, "an error for each key and one for all was expected");
    run.check(lines.iter().all(|line| line.starts_with("error: ")), "only errors were expected");
    nowhere.assert_untouched();
}

#[test]
fn pages_of_bad_keys_are_not_the_end() {
    // More than one page of them, before the first that is good.
    let mut all: Objects = (0..2_100).map(|n| (format!("p//{n:04}"), vec![1])).collect();
    let good = objects(&[("p/good", 5), ("p/large", 2 << 20)]);
    all.extend(good.clone());
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let run = get(&origin, ["s3://lab/p/"]).with([nowhere.path()]).run().expect(OBJECTS);
    run.check(run.stderr.lines().count() == 21, "twenty errors and the number of the others");
    let rest = "error: 2,080 more objects failed; use --report FILE to list all";
    let run = run.expect_words(&[rest]);
    run.check(run.stdout.is_empty(), "nothing was expected on standard output");
    nowhere.assert_holds(&below("p/", &good));
}

#[test]
fn a_key_named_for_a_glob_or_a_file_goes_where_it_is_sent() {
    // One object to a name of its own needs no path from its key.
    let all = objects(&[("p/..", 3)]);
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    get(&origin, ["s3://lab/p/.."]).with([nowhere.path()]).run().expect(0);
    assert_eq!(fs::read(nowhere.path()).expect("a file"), all["p/.."]);
    let run = get(&origin, ["s3://lab/p/..."]).with([nowhere.path()]).run();
    run.expect(NOT_FOUND).expect_error(&["did you mean s3://lab/p/..?"]);
}

#[test]
fn what_is_at_the_destination_stands_in_the_way_of_its_own_key_only() {
    let all = objects(&[("a/b", 5), ("a/large", 2 << 20), ("c", 5), ("d", 2 << 20), ("e/f", 5)]);
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let destination = nowhere.path();
    fs::create_dir_all(destination.join("c/inside")).expect("a folder");
    fs::create_dir_all(destination.join("d/inside")).expect("a folder");
    fs::write(destination.join("a"), "a file").expect("a file");
    let run = get(&origin, ["s3://lab/"]).with([&destination]).run().expect(OBJECTS);
    for key in ["a/b", "a/large", "c", "d"] {
        let is_error = |line: &str| {
            line.starts_with(&format!("error: s3://lab/{key}: ")) && line.contains("the same name")
        };
        run.check(run.stderr.lines().any(is_error), key);
    }
    run.check(run.stderr.lines().count() == 4, "four lines were expected");
    assert_eq!(fs::read(destination.join("a")).expect("a file"), b"a file");
    assert_eq!(names(&destination), ["a", "c", "d", "e"]);
    assert_eq!(fs::read(destination.join("e/f")).expect("a file"), all["e/f"]);
    assert_eq!(
        (names(&destination.join("c")), names(&destination.join("e"))),
        (vec!["inside".to_owned()], vec!["f".to_owned()])
    );
}

#[test]
fn links_at_the_destination_lead_nowhere() {
    let all = objects(&[
        ("file", 5),
        ("large", 2 << 20),
        ("link/deep/x", 5),
        ("link/large", 2 << 20),
        ("link/x", 5),
        ("mark/", 0),
        ("plain", 5),
    ]);
    let origin = serve(&all);
    let outside = tempfile::tempdir().expect("a folder");
    let victim = outside.path().join("victim");
    fs::write(&victim, "as it was").expect("a file");
    let nowhere = Nowhere::new();
    let destination = nowhere.path();
    fs::create_dir(&destination).expect("a folder");
    for (name, target) in [
        ("file", &victim),
        ("large", &victim),
        ("link", &outside.path().to_owned()),
        ("mark", &outside.path().to_owned()),
    ] {
        symlink(target, destination.join(name)).expect("a link");
    }
    let run = get(&origin, ["s3://lab/"]).with([&destination]).run().expect(OBJECTS);
    for key in ["link/deep/x", "link/large", "link/x", "mark/"] {
        let is_error = |line: &str| line.starts_with(&format!("error: s3://lab/{key}: "));
        run.check(run.stderr.lines().any(is_error), key);
    }
    run.check(run.stderr.lines().count() == 4, "four lines were expected");
    let why = "/link: it is a symbolic link, which inrush does not follow below DEST; replace it";
    run.check(run.stderr.matches(why).count() == 3, "what is below the link says why");
    run.check(!run.stderr.contains("a file and a folder need"), "no names clash");
    assert_eq!(names(outside.path()), ["victim"], "something was written outside\n{run}");
    assert_eq!(fs::read(&victim).expect("a file"), b"as it was", "{run}");
    for key in ["file", "large", "plain"] {
        let path = destination.join(key);
        assert!(!path.is_symlink(), "{key} is replaced, not followed");
        assert_eq!(fs::read(path).expect("a file"), all[key], "{key}");
    }
}

#[test]
fn two_sources_for_one_file_are_an_error_of_the_second() {
    let all = objects(&[("one/a", 5), ("one/same", 5), ("two/b", 6), ("two/same", 6)]);
    let origin = serve(&all);
    let nowhere = Nowhere::new();
    let sources = ["s3://lab/one/", "s3://lab/two/"];
    let run = get(&origin, sources).with([nowhere.path()]).run().expect(OBJECTS);
    run.expect_error(&["s3://lab/two/same", "sources 1 and 2"]);
    let mut wanted = below("one/", &all);
    wanted.insert("b".to_owned(), all["two/b"].clone());
    nowhere.assert_holds(&wanted);
}

/// What the program lists, it reads: no character of a key is lost on the way.
#[test]
fn keys_that_no_line_can_hold_go_from_a_listing_to_a_download() {
    let all = objects(&[("p/a\nb", 3), ("p/\u{1b}[2J", 4), ("p/*[x]\\", 5), ("p/end ", 6)]);
    let origin = serve(&all);
    let program = Program::new(["ls", "--recursive", "--json", "--summarize", "s3://lab/p/"]);
    let listed = program.asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(0);
    let nowhere = Nowhere::new();
    let list = nowhere.folder.path().join("list");
    std::fs::write(&list, &listed.stdout).expect("written");
    let words = ["--files-from", list.to_str().expect("UTF-8")];
    get(&origin, words).with([nowhere.path()]).run().expect(0);
    std::fs::remove_file(&list).expect("it is there");
    nowhere.assert_holds(&crate::below("p/", &all));
}
