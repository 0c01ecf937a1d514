//! Every function on its checked-in inputs and on seeded changes to them: the same on every run.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use inrush_fuzz::{TARGETS, Target};

/// Changed inputs of each function.
const CHANGES: u64 = 20_000;
/// No input grows beyond this many bytes.
const INPUT_BYTES_MAX: usize = 4096;
/// Pieces that mean something to one parser or another.
const WORDS: [&str; 40] = [
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\0",
    "/",
    "//",
    "..",
    ".",
    "\\",
    "*",
    "**",
    "?",
    "[a-z]",
    "{",
    "%2F",
    "%",
    "+",
    "\"",
    "'",
    "<",
    "</",
    ">",
    "/>",
    "&amp;",
    "&#10;",
    "<![CDATA[",
    "]]>",
    "<Key>",
    "</Key>",
    "<Size>",
    "-",
    "*/",
    "0",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "9007199254740993",
    ": ",
    "s3://",
    "\u{202e}",
];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

fn names(folder: &Path) -> BTreeSet<String> {
    let name = |path: PathBuf| path.file_stem().and_then(|name| name.to_str().map(str::to_owned));
    entries(folder).into_iter().filter_map(name).collect()
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let paths = entries(&folder().join("seeds").join(name));
    paths.iter().map(|path| std::fs::read(path).expect("an input")).collect()
}

/// One change: to a bit, a byte, a piece, or the length; or a part of another input.
fn change(input: &mut Vec<u8>, all: &[Vec<u8>], random: &mut Rng) {
    let at = random.usize(..=input.len());
    let end = (at + random.usize(..=16)).min(input.len());
    match random.u8(..8) {
        0 if at < input.len() => input[at] ^= 1 << random.u8(..8),
        1 if at < input.len() => input[at] = random.u8(..),
        2 => drop(input.drain(at..end)),
        3 => input.truncate(at),
        4 => {
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece.into_iter().cycle().take(16));
        }
        5 => {
            let other = &all[random.usize(..all.len())];
            let from = random.usize(..=other.len());
            input.splice(at..end, other[from..].iter().copied().take(64));
        }
        _ => {
            let word = WORDS[random.usize(..WORDS.len())];
            input.splice(at..end, word.bytes());
        }
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn meet(name: &str, target: Target, input: &[u8]) {
    let met = catch_unwind(AssertUnwindSafe(|| target(input)));
    assert!(met.is_ok(), "{name} does not hold on b\"{}\"", input.escape_ascii());
}

fn smoke(name: &str) {
    let known = TARGETS.into_iter().find(|(other, _)| *other == name);
    let (_, target) = known.expect("a function of that name");
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "{name} has no inputs");
    seeds.iter().for_each(|seed| meet(name, target, seed));
    for number in 0..CHANGES {
        let mut random = Rng::with_seed(number);
        let mut input = seeds[random.usize(..seeds.len())].clone();
        for _ in 0..random.usize(1..=4) {
            change(&mut input, &seeds, &mut random);
        }
        meet(name, target, &input);
    }
}

/// A test for each function, so that they run beside each other.
macro_rules! smoke_tests {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                smoke(stringify!($name));
            }
        )+

        #[test]
        fn every_function_has_a_test_inputs_and_a_program() {
            let known: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
            let tested = BTreeSet::from([$(stringify!($name).to_owned()),+]);
            assert_eq!(tested, known, "tests");
            assert_eq!(names(&folder().join("seeds")), known, "seeds/");
            assert_eq!(names(&folder().join("libfuzzer/targets")), known, "libfuzzer/targets/");
            let manifest = std::fs::read_to_string(folder().join("libfuzzer/Cargo.toml")).unwrap();
            let named = manifest.split("[[bin]]\nname = \"").skip(1);
            let named = named.map(|rest| rest.split('"').next().unwrap().to_owned());
            assert_eq!(named.collect::<BTreeSet<_>>(), known, "libfuzzer/Cargo.toml");
        }
    };
}

smoke_tests!(chunks, content_range, error, grant, head, journal, list, paths, session, uri, web);
