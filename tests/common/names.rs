//! Objects whose names and sizes are awkward, by a seed: what a shell, a URL, XML, a terminal or a
//! file system may take for something else.

use std::collections::BTreeSet;

use fastrand::Rng;

use crate::matrix::{NAMES, Objects, bytes_of};

/// Of these names are made, alone and together.
const PIECES: [&str; 97] = [
    " ",
    "  ",
    "\n",
    "\t",
    "\r",
    "\r\n",
    "\u{1}",
    "\u{8}",
    "\u{b}",
    "\u{1b}[31m",
    "\u{1f}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{ad}",
    "\u{200b}",
    "\u{2028}",
    "\u{202e}",
    "\u{feff}",
    "\u{fffd}",
    "\u{ffff}",
    "\u{e000}",
    "\u{10ffff}",
    "\u{e9}",
    "e\u{301}",
    "\u{301}",
    "\u{c5}",
    "A\u{30a}",
    "\u{212b}",
    "\u{fb01}",
    "\u{df}",
    "\u{1e9e}",
    "\u{130}",
    "\u{131}",
    "\u{17f}",
    "\u{3c9}",
    "\u{2126}",
    "\u{d55c}",
    "\u{1112}\u{1161}\u{11ab}",
    "\u{65e5}\u{672c}",
    "\u{e44}\u{e17}\u{e22}",
    "\u{939}\u{93f}",
    "\u{5e9}\u{5dc}",
    "\u{639}\u{631}",
    "\u{1f980}",
    "\u{1f468}\u{200d}\u{1f469}",
    "\u{436}",
    "'",
    "\"",
    "`",
    "\\",
    "\\n",
    "\\\\",
    "\\040",
    "-",
    "--",
    "-rf",
    "%",
    "%2F",
    "%2f",
    "%25",
    "%00",
    "%C3",
    "+",
    "&",
    "&amp;",
    "&#10;",
    "<",
    "]]>",
    "=",
    "?",
    "#",
    ";",
    ":",
    "|",
    "*",
    "[a]",
    "{}",
    "()",
    "!",
    "$",
    "$(x)",
    "~",
    ".",
    "..",
    "...",
    "^",
    "@",
    ",",
    "a",
    "A",
    "b",
    "B",
    "s3:",
    "nul",
    "?versionId=1",
    "0",
];

/// Pairs that are alike to whom folds cases, normalises Unicode or decodes URLs.
const TWINS: [(&str, &str); 10] = [
    ("a", "A"),
    ("B", "b"),
    ("\u{e9}", "e\u{301}"),
    ("\u{212b}", "\u{c5}"),
    ("\u{c5}", "A\u{30a}"),
    ("\u{d55c}", "\u{1112}\u{1161}\u{11ab}"),
    ("%2F", "%2f"),
    ("+", " "),
    ("%25", "%"),
    ("&amp;", "&"),
];

/// On and beside the edges of pages, of the kernel's readahead, and of what the mount reads at
/// once. The first ones are small.
const EDGES: [usize; 12] = [
    0,
    1,
    4095,
    4096,
    4097,
    (128 << 10) - 1,
    128 << 10,
    (128 << 10) + 1,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    (3 << 20) + 5,
];
/// How many of [`EDGES`] are small.
const SMALL_EDGES: usize = 5;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Longest path of a folder, in bytes: a file in it has a key of 1,024 bytes at most.
const FOLDER_BYTES_MAX: usize = 1024 - 2 - NAME_BYTES_MAX - 1;
/// Folders in folders.
const DEPTH_MAX: usize = 50;

/// `count` objects below `d/`, always the same for a seed.
pub(crate) fn objects(seed: u64, count: usize) -> Objects {
    let mut random = Rng::with_seed(seed);
    let mut sizes: Vec<usize> = EDGES.iter().rev().copied().collect();
    // Those of a small tree are at any of its names.
    sizes.truncate(count.div_ceil(2));
    let mut paths: Vec<String> = paths(&mut random, count).into_iter().collect();
    random.shuffle(&mut paths);
    let object = |path: String| {
        let length = sizes.pop().unwrap_or_else(|| size(&mut random));
        let key = format!("d/{path}");
        let bytes = bytes_of(&key, length);
        (key, bytes)
    };
    paths.into_iter().map(object).collect()
}

fn size(random: &mut Rng) -> usize {
    match random.u32(..200) {
        0..100 => random.usize(..5_000),
        100..170 => EDGES[random.usize(..SMALL_EDGES)],
        170..193 => random.usize(..100_000),
        193..199 => EDGES[random.usize(SMALL_EDGES..EDGES.len())],
        _ => random.usize(1 << 20..5 << 20),
    }
}

/// `count` paths of files, of which none is a folder of another's.
fn paths(random: &mut Rng, count: usize) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut taken = BTreeSet::new();
    let mut folders = vec![String::new(), "deep/".repeat(DEPTH_MAX)];
    taken.insert("deep".to_owned());
    // Each alone, as far as there is room, in an order of the seed's.
    let known = NAMES.iter().filter(|name| !name.contains('/')).chain(&PIECES);
    let mut known: Vec<String> = known.map(|name| (*name).to_owned()).collect();
    known.extend(["s", "\u{e9}", "\u{4e2d}", "\u{1f980}"].map(|letter| padded("", letter)));
    random.shuffle(&mut known);
    let mut last = "a".to_owned();
    while files.len() < count {
        let folder = random.choice(&folders).expect("one at least").clone();
        let name = match (known.pop(), random.u32(..6)) {
            (Some(name), _) => name,
            (None, 0) => twin(random, &last),
            (None, _) => name(random),
        };
        let path = format!("{folder}{name}");
        let is_name = !matches!(name.as_str(), "" | "." | "..") && name.len() <= NAME_BYTES_MAX;
        if !is_name || !taken.insert(path.clone()) {
            continue;
        }
        let depth = folder.matches('/').count();
        if random.u32(..8) == 0 && path.len() < FOLDER_BYTES_MAX && depth < DEPTH_MAX {
            // Without a file there would be no folder.
            let first = format!("{path}/{}", padded("", "x"));
            taken.insert(first.clone());
            files.insert(first);
            folders.push(format!("{path}/"));
        } else {
            files.insert(path);
        }
        last = name;
    }
    files
}

fn name(random: &mut Rng) -> String {
    let pieces = random.usize(1..6);
    let mut name = String::new();
    for _ in 0..pieces {
        match random.u32(..8) {
            0 => name.push(random.char('\u{1}'..=' ')),
            1 => name.push(random.char('\u{80}'..)),
            _ => name.push_str(random.choice(&PIECES).expect("some")),
        }
    }
    match random.u32(..30) {
        0 => padded(&name, random.choice(["z", "\u{e9}", "\u{4e2d}"]).expect("some")),
        _ => name,
    }
}

/// A name that is the same to whom is not careful.
fn twin(random: &mut Rng, name: &str) -> String {
    let (one, other) = TWINS[random.usize(..TWINS.len())];
    match random.u32(..4) {
        0 => format!("{name}."),
        1 => format!("{name} "),
        _ if name.contains(one) => name.replace(one, other),
        _ if name.contains(other) => name.replace(other, one),
        _ => format!("{name}{one}"),
    }
}

/// A name that begins so, as long as a name may be.
fn padded(name: &str, letter: &str) -> String {
    let mut name = name.to_owned();
    while name.len() + letter.len() <= NAME_BYTES_MAX {
        name.push_str(letter);
    }
    while name.len() < NAME_BYTES_MAX {
        name.push('.');
    }
    name
}
