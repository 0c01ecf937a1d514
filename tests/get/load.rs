//! `load`: the files of a model, chosen by its indexes.

use crate::matrix::Objects;
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, serve};
use crate::{Place, objects, pick};

/// Exit code of an object that is missing.
const NOT_FOUND: i32 = 4;

/// Names two of the files.
const INDEX: &[u8] = br#"{"metadata": {"total_size": 9}, "weight_map":
    {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}"#;

/// A model with an index, and more weights than a loader reads.
fn model() -> Objects {
    let mut model = objects(&[
        ("m/config.json", 20),
        ("m/1.safetensors", 9 << 20),
        ("m/2.safetensors", 70_000),
        ("m/consolidated.safetensors", 8000),
        ("m/pytorch_model.bin", 9000),
        ("m/original/0.pth", 7000),
        ("other/1.bin", 5),
    ]);
    model.insert("m/model.safetensors.index.json".to_owned(), INDEX.to_vec());
    model
}

/// Its objects that are downloaded, by the names of their files.
const READ: [(&str, &str); 4] = [
    ("config.json", "m/config.json"),
    ("1.safetensors", "m/1.safetensors"),
    ("2.safetensors", "m/2.safetensors"),
    ("model.safetensors.index.json", "m/model.safetensors.index.json"),
];

fn load(words: &[&str]) -> Program {
    Program::new(["load"]).with(words).with_keys(ACCESS_KEY, SECRET)
}

#[test]
fn what_a_loader_does_not_read_is_left_out_and_that_is_said() {
    let origin = serve(&model());
    let place = Place::new();
    let to = |words| load(words).asking(&origin).with(["--to"]).with([place.path()]).run();
    let run = to(&["s3://lab/m/"]).expect(0);
    place.assert_holds(&pick(&model(), &READ));
    let note = "left out 3 files, 24 kB, that loaders of safetensors do not read";
    run.check(run.stderr.contains(note), note);
    // Filters count, too, and nothing is downloaded twice.
    let run = to(&["s3://lab/m/", "--exclude", "config.json", "--dry-run"]).expect(0);
    run.check(run.stderr.contains("3 objects"), "three files are there");
    run.check(run.stderr.contains("nothing would be downloaded"), "nothing is to do");
}

#[test]
fn a_model_in_another_format_is_whole() {
    let origin = serve(&model());
    let place = Place::new();
    let to = load(&["s3://lab/other/", "--to"]).with([place.path()]);
    to.asking(&origin).run().expect(0);
    place.assert_holds(&pick(&model(), &[("1.bin", "other/1.bin")]));
}

#[test]
fn it_is_measured_without_a_file() {
    let origin = serve(&model());
    let run = load(&["s3://lab/m/", "--discard", "--json"]).asking(&origin).run().expect(0);
    let bytes: usize = READ.iter().map(|(_, key)| model()[*key].len()).sum();
    run.check(run.stdout.contains(&format!("\"bytes\":{bytes},")), "what was downloaded");
}

#[test]
fn a_file_that_an_index_names_and_that_is_missing_ends_it_before_a_byte() {
    let mut broken = model();
    broken.remove("m/2.safetensors");
    let origin = serve(&broken);
    let place = Place::new();
    let run = load(&["s3://lab/m/", "--to"]).with([place.path()]).asking(&origin).run();
    run.expect(NOT_FOUND)
        .expect_error(&["2.safetensors: model.safetensors.index.json names it, and it is missing"]);
    assert!(!place.path().exists(), "nothing is made");
    assert_eq!(origin.stop().gets, 1, "the index alone is read");
}

#[test]
fn an_index_that_is_none_ends_it() {
    let mut broken = model();
    broken.insert("m/model.safetensors.index.json".to_owned(), b"{".to_vec());
    let origin = serve(&broken);
    let run = load(&["s3://lab/m/", "--discard"]).asking(&origin).run();
    run.expect(1).expect_error(&["model.safetensors.index.json: it is no index of safetensors"]);
}

#[test]
fn one_model_and_one_place_are_given() {
    let check = |words: &[&str], expected: &str| {
        let run = load(words).run().expect(2);
        run.check(run.stderr.contains(expected), expected);
    };
    check(&[], "required arguments were not provided");
    check(&["s3://lab/m/"], "<--to <DIR>|--discard>");
    check(&["--discard"], "load takes one model");
    check(&["s3://lab/m/", "/tmp/model", "--discard"], "load takes one model");
    check(&["s3://lab/m/", "--discard", "--to", "x"], "cannot be used with");
    check(&["--files-from", "x", "--discard"], "load takes one model: get has --files-from");
    check(&["m", "--discard"], "unexpected destination 'm': --discard writes nothing");
}
