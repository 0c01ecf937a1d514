//! `--include`, `--exclude` and `--raw`: which objects a command takes, in the order typed.

use inrush_origin::Origin;

use crate::matrix::Objects;
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::{Place, objects, pick};

/// Exit code of a source in which there is nothing.
const NOT_FOUND: i32 = 4;

fn some() -> Objects {
    objects(&[
        ("d/a.tar", 5),
        ("d/a.txt", 6),
        ("d/img/1.tar", 7),
        ("d/img/x/2.txt", 8),
        ("d/x/img/3.tar", 9),
    ])
}

fn program(origin: &Origin, words: &[&str]) -> Program {
    Program::new(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

/// Fails unless `get` with these filters takes exactly these objects, and `ls` lists them.
#[track_caller]
fn assert_taken(origin: &Origin, filters: &[&str], expected: &[&str]) {
    let place = Place::new();
    get(origin, ["s3://lab/d/"]).with([place.path()]).with(filters).run().expect(0);
    let names: Vec<(String, String)> =
        expected.iter().map(|name| ((*name).to_owned(), format!("d/{name}"))).collect();
    let names: Vec<(&str, &str)> =
        names.iter().map(|(name, key)| (name.as_str(), key.as_str())).collect();
    place.assert_holds(&pick(&some(), &names));
    let run = program(origin, &["ls", "--recursive", "s3://lab/d/"]).with(filters).run().expect(0);
    let listed: Vec<&str> =
        run.stdout.lines().filter_map(|line| line.split("s3://lab/d/").nth(1)).collect();
    run.check(listed == expected, "ls takes the same");
}

#[test]
fn the_last_filter_typed_that_matches_decides() {
    let origin = serve(&some());
    let tars = ["a.tar", "img/1.tar", "x/img/3.tar"];
    assert_taken(&origin, &["--exclude", "*", "--include", "*.tar"], &tars);
    assert_taken(&origin, &["--include", "*.tar"], &tars);
    assert_taken(&origin, &["--include", "*.tar", "--exclude", "/img/"], &["a.tar", "x/img/3.tar"]);
    assert_taken(
        &origin,
        &["--exclude", "img", "--include=img/x/2.txt"],
        &["a.tar", "a.txt", "img/x/2.txt"],
    );
    for folder in ["img", "img/"] {
        assert_taken(&origin, &["--exclude", folder], &["a.tar", "a.txt"]);
    }
    for folder in ["/img/", "img/*", "/img"] {
        assert_taken(&origin, &["--exclude", folder], &["a.tar", "a.txt", "x/img/3.tar"]);
    }
    assert_taken(&origin, &["--include", "{a,3}.*"], &["a.tar", "a.txt", "x/img/3.tar"]);
}

#[test]
fn filters_that_leave_nothing_are_an_error() {
    let origin = serve(&some());
    let place = Place::new();
    let path = place.path();
    std::fs::create_dir(&path).expect("a folder");
    std::fs::write(path.join("mine"), "kept").expect("a file");
    let path = path.to_str().expect("UTF-8");
    for words in [
        &["get", "s3://lab/d/", path][..],
        &["get", "s3://lab/d/", "--discard"],
        &["get", "s3://lab/d/", path, "--dry-run"],
        &["sync", "s3://lab/d/", path, "--delete"],
        &["sync", "s3://lab/d/", path, "--delete", "--dry-run"],
        &["verify", "s3://lab/d/", path],
        &["ls", "--recursive", "s3://lab/d/"],
        &["cat", "s3://lab/d/"],
        &["cat", "s3://lab/d/a.txt"],
        &["pipe", "s3://lab/d/", &format!("{path}/channel")],
    ] {
        let run = program(&origin, words).with(["--quiet", "--include", "*.zip"]).run();
        let run = run.expect(NOT_FOUND);
        let count = if words.contains(&"s3://lab/d/") { 5 } else { 1 };
        run.expect_words(&[&format!("--exclude leave none of {count} objects"), "GLOBS"]);
    }
    let names = std::fs::read_dir(path).expect("a folder").count();
    assert_eq!(names, 1, "nothing was written, nothing removed");
}

#[test]
fn names_with_wildcards_are_taken_literally_where_that_is_said() {
    let all = objects(&[("d/[x].txt", 5), ("d/a*/b?", 6), ("d/ab/bc", 7)]);
    let origin = serve(&all);
    let fails = |source: &str, words: &[&str]| {
        program(&origin, &["ls", "--recursive", source])
            .run()
            .expect(NOT_FOUND)
            .expect_error(words);
    };
    fails("s3://lab/d/[y].txt", &["nothing matches; '*' matches within one folder"]);
    for (source, words, expected) in [
        (r"s3://lab/d/\[x\].txt", &[][..], &["[x].txt"][..]),
        ("s3://lab/d/[x].txt", &["--raw"], &["[x].txt"]),
        ("s3://lab/d/a*/", &["--raw"], &["b?"]),
        ("s3://lab/d/a*/b?", &["--raw"], &["b?"]),
        ("s3://lab/d/a*/b?", &[], &["b?"]),
        ("s3://lab/d/[x].txt", &[], &["[x].txt"]),
        ("s3://lab/d/a*/b*", &[], &["a*/b?", "ab/bc"]),
    ] {
        let place = Place::new();
        let destination = format!("{}/", place.path().display());
        get(&origin, [source, &destination]).with(words).run().expect(0);
        let names: Vec<(&str, &str)> = expected
            .iter()
            .map(|name| {
                let key = all.keys().find(|key| key.ends_with(name)).expect("one of them");
                (*name, key.as_str())
            })
            .collect();
        place.assert_holds(&pick(&all, &names));
    }
    let bytes = program(&origin, &["cat", "--raw", "s3://lab/d/[x].txt"]).run().expect(0).stdout;
    assert_eq!(bytes.as_bytes(), String::from_utf8_lossy(&all["d/[x].txt"]).as_bytes());
}
