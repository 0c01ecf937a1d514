//! Objects of awkward sizes and names, and the check that a download brought them all.
//!
//! The bytes depend on the key, so an object in another's place is seen. Names are those that a
//! server over a folder can hold; see `s3s_server` for the ones that it cannot list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// Several parts and a few bytes, in bytes.
pub(crate) const LARGE: usize = 100 * MIB + 3;
/// Sizes on and beside the edges of sectors, pages, slots (1 MiB) and parts (8 MiB).
const SIZES: [usize; 14] = [
    0,
    1,
    511,
    512,
    4 * KIB - 1,
    4 * KIB,
    4 * KIB + 1,
    MIB - 1,
    MIB,
    MIB + 1,
    8 * MIB - 1,
    8 * MIB,
    8 * MIB + 1,
    16 * MIB + 1,
];
/// Names that are awkward for a shell, for XML or in a URL.
pub(crate) const NAMES: [&str; 34] = [
    "plain",
    "with space",
    " leading and trailing ",
    "equals=and&amp",
    "&lt;",
    "<angle>",
    "semi;colon:at@dollar$comma,",
    "hash#question?star*",
    "single'quote",
    "double\"quote",
    "back`tick",
    "back\\slash",
    "pipe|caret^",
    "[square]",
    "{curly}",
    "(round)!",
    "~tilde",
    ".leading-dot",
    "..two-dots",
    "...",
    "trailing.",
    "--help",
    "Case",
    "case",
    "caf\u{e9}",
    "cafe\u{301}",
    "\u{4e2d}\u{6587}\u{952e}",
    "\u{1f980} crab",
    "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
    "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
    "\u{ff21} wide",
    "year=2026/month=11/part-0000",
    "a-b",
    "a/b/c/d/e/f/g",
];

/// Objects by key.
pub(crate) type Objects = BTreeMap<String, Vec<u8>>;

/// `length` bytes that depend on `key`.
pub(crate) fn bytes_of(key: &str, length: usize) -> Vec<u8> {
    let seed = key.bytes().fold(14_695_981_039_346_656_037, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    });
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// One object of each size.
pub(crate) fn sizes() -> Objects {
    SIZES
        .iter()
        .map(|&size| {
            let key = format!("sizes/{size:010}");
            let bytes = bytes_of(&key, size);
            (key, bytes)
        })
        .collect()
}

/// One small object of each name, names of 255 bytes and keys of 1,000 bytes among them.
pub(crate) fn names() -> Objects {
    let longest = ["l", "\u{e9}", "\u{4e2d}"].map(|letter| {
        let segment = letter.repeat(240 / letter.len());
        let folders = [segment.as_str(); 4].join("/");
        // 6 bytes of "names/", and one more for the last separator.
        let rest = 1_000 - 6 - 1 - folders.len();
        format!("{folders}/{}", "x".repeat(rest))
    });
    NAMES
        .iter()
        .map(|&name| name.to_owned())
        .chain(["s".repeat(255), "\u{4e2d}".repeat(85)])
        .chain(longest)
        .map(|name| {
            let key = format!("names/{name}");
            let bytes = bytes_of(&key, 64 + name.len());
            (key, bytes)
        })
        .collect()
}

/// `count` small objects in a few folders.
pub(crate) fn many(count: usize) -> Objects {
    (0..count)
        .map(|number| {
            let key = format!("many/{}/{number:05}", number % 7);
            let bytes = bytes_of(&key, 100 + number % 400);
            (key, bytes)
        })
        .collect()
}

/// Fails unless `folder` holds exactly `objects`, byte for byte.
pub(crate) fn assert_same(folder: &Path, objects: &Objects) {
    let mut found = BTreeSet::new();
    walk(folder, folder, &mut found);
    let wanted: BTreeSet<String> = objects.keys().cloned().collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    let extra: Vec<_> = found.difference(&wanted).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:?}, extra {extra:?}");
    for (key, bytes) in objects {
        let file = fs::read(folder.join(key)).expect("a file that can be read");
        assert_eq!(file.len(), bytes.len(), "length of {key:?}");
        let differs = file.iter().zip(bytes).position(|(ours, theirs)| ours != theirs);
        assert_eq!(differs, None, "first byte of {key:?} that differs");
    }
}

/// The keys of all files below `folder`, folders aside.
fn walk(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder that can be read") {
        let path = entry.expect("an entry that can be read").path();
        if path.is_dir() && !path.is_symlink() {
            walk(root, &path, found);
        } else {
            let key = path.strip_prefix(root).expect("a path below its root");
            found.insert(key.to_str().expect("a name in UTF-8").to_owned());
        }
    }
}
