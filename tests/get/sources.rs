//! `--files-from`: sources that stand in a file or come from standard input.

use std::fs;
use std::path::Path;

use inrush_origin::Origin;

use crate::matrix::Objects;
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::{Place, objects, pick};

fn some() -> Objects {
    objects(&[("a", 5), ("d/1.tar", 6), ("d/2.tar", 7), ("d/3.txt", 8), ("e/4", 9), ("[f]", 10)])
}

fn program(origin: &Origin, words: &[&str]) -> Program {
    Program::new(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

/// A file of these lines, in this folder.
fn list(folder: &Path, lines: &str) -> String {
    let path = folder.join("list");
    fs::write(&path, lines).expect("a list");
    path.display().to_string()
}

const LINES: &str = "# what to take\r\n\r\ns3://lab/d/*.tar\r\ns3://lab/a\r\n";

#[test]
fn all_commands_take_sources_of_a_file_beside_those_typed() {
    let (origin, place) = (serve(&some()), Place::new());
    let list = list(place.folder.path(), LINES);
    let from = ["--files-from", &list];
    let expected = pick(&some(), &[("a", "a"), ("1.tar", "d/1.tar"), ("2.tar", "d/2.tar")]);
    get(&origin, from).with([place.path()]).run().expect(0);
    place.assert_holds(&expected);
    program(&origin, &["verify", "--quiet"]).with(from).with([place.path()]).run().expect(0);

    let mut more = expected.clone();
    more.insert("4".to_owned(), some()["e/4"].clone());
    let sync = program(&origin, &["sync", "--quiet", "s3://lab/e/"]).with([place.path()]);
    sync.with(from).run().expect(0);
    place.assert_holds(&more);

    let run = program(&origin, &["ls"]).with(from).run().expect(0);
    let names: Vec<&str> =
        run.stdout.lines().filter_map(|line| line.split("s3://lab/").nth(1)).collect();
    run.check(names == ["d/1.tar", "d/2.tar", "a"], "in the order of the lines");
    let run = get(&origin, from).with(["--discard", "--json"]).run().expect(0);
    assert_eq!(run.json()["objects"], 3);
}

#[test]
fn a_list_of_one_line_goes_into_a_folder_as_longer_ones_do() {
    let (origin, place) = (serve(&some()), Place::new());
    let list = list(place.folder.path(), "s3://lab/d/3.txt\n");
    let from = ["--files-from", &list];
    get(&origin, from).with([place.path()]).run().expect(0);
    place.assert_holds(&pick(&some(), &[("3.txt", "d/3.txt")]));
    program(&origin, &["verify", "--quiet"]).with(from).with([place.path()]).run().expect(0);
    let file = place.path().join("3.txt");
    for command in ["get", "verify"] {
        let run = program(&origin, &[command]).with(from).with([&file]).run();
        run.expect(5).expect_error(&["3.txt is a file, not a folder"]);
    }
}

#[test]
fn standard_input_is_a_file_of_sources_too() {
    let (origin, place) = (serve(&some()), Place::new());
    let list = list(place.folder.path(), "s3://lab/d/3.txt\ns3://lab/[f]\n");
    let fed = format!("cat {list} | \"$0\" \"$@\"");
    let words = ["sh", "-c", &fed];
    let cat = program(&origin, &["cat", "--files-from", "-", "--raw"]).by_way_of(words);
    let run = cat.run().expect(0);
    let expected: Vec<u8> =
        ["d/3.txt", "[f]"].iter().flat_map(|key| some()[*key].clone()).collect();
    // Merged by name: "3.txt" comes before "[f]".
    run.check(run.stdout == String::from_utf8_lossy(&expected), "both objects");
    get(&origin, ["--files-from", "-", "--raw"])
        .with([place.path()])
        .by_way_of(words)
        .run()
        .expect(0);
    place.assert_holds(&pick(&some(), &[("3.txt", "d/3.txt"), ("[f]", "[f]")]));
}

#[test]
fn what_is_wrong_with_the_file_is_reported_before_anything_is_asked() {
    let (origin, place) = (serve(&some()), Place::new());
    let expect_message = |lines: &str, expected: &str| {
        let list = list(place.folder.path(), lines);
        let run = get(&origin, ["--files-from", &list]).with([place.path()]).run().expect(2);
        run.expect_error(&[&list, expected]);
    };
    expect_message("s3://lab/a\nlab/b\n", "line 2: 'lab/b' is not an S3 address");
    expect_message("s3://lab/a\n\ns3://*/b\n", "line 3: ");
    let empty = list(place.folder.path(), "# nothing\n\n");
    let run = program(&origin, &["ls", "--files-from", &empty]).run().expect(2);
    run.expect_error(&["no source is given", "--files-from"]);
    let absent = place.folder.path().join("absent").display().to_string();
    let run = program(&origin, &["cat", "--files-from", &absent]).run().expect(2);
    run.expect_error(&["cannot read", "absent", "No such file"]);
    assert_eq!(origin.stats().requests, 0, "nobody was asked");
    let missing = list(place.folder.path(), "s3://lab/none\n");
    let run = get(&origin, ["--files-from", &missing]).with([place.path()]).run().expect(4);
    run.expect_error(&["s3://lab/none"]);
    assert!(!place.path().exists(), "nothing was made");
}

#[test]
fn thousands_of_objects_cost_a_request_each_and_many_at_once() {
    let keys: Vec<(String, usize)> =
        (0..3_000).map(|number| (format!("k/{number:05}"), 3)).collect();
    let keys: Vec<(&str, usize)> = keys.iter().map(|(key, size)| (key.as_str(), *size)).collect();
    let (origin, place) = (serve(&objects(&keys)), Place::new());
    let lines: String = keys.iter().map(|(key, _)| format!("s3://lab/{key}\n")).collect();
    let list = list(place.folder.path(), &lines);
    let run = get(&origin, ["--files-from", &list, "--discard", "--json"]).run().expect(0);
    assert_eq!(run.json()["objects"], 3_000);
    let stats = origin.stats();
    assert_eq!((stats.heads, stats.lists), (3_000, 0));
    let run = program(&origin, &["ls", "--files-from", &list]).run().expect(0);
    let listed: Vec<&str> =
        run.stdout.lines().filter_map(|line| line.split('/').nth_back(0)).collect();
    let expected: Vec<&str> = keys.iter().map(|(key, _)| &key[2..]).collect();
    run.check(listed == expected, "in the order of the lines");
}
