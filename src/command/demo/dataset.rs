//! The demo's objects: large, small, empty, of awkward sizes, under awkward names.
//!
//! Plain data. All bytes are the origin's synthetic ones, so no copy is stored for comparison.

use bytes::Bytes;
use inrush_origin::{ObjectContent, ObjectSpec};

/// The bucket of all objects.
pub(super) const BUCKET: &str = "demo";

/// Small objects: number, number of folders, and size in bytes; like images of a training set.
const SMALL_OBJECTS: u64 = 2_000;
const SMALL_FOLDERS: u64 = 20;
const SMALL_BYTES: u64 = 39_000;

/// Number of empty objects.
const EMPTY_OBJECTS: u64 = 100;

/// Size of a large object with an odd end, in bytes.
const RAGGED_BYTES: u64 = (100 << 20) + 3;

/// Keys that a terminal, a shell, a URL, XML or a file system might misinterpret.
const NAMES: [&str; 36] = [
    "with space",
    " leading and trailing ",
    "plus+and+percent%25%2F%00",
    "equals=and&amp;",
    "&lt;<angle>]]>",
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
    "-",
    "Case",
    "case",
    "tab\tnewline\ndelete\u{7f}escape\u{1b}[2J",
    // One accent, composed and decomposed: two names.
    "caf\u{e9}",
    "cafe\u{301}",
    "\u{4e2d}\u{6587}\u{952e}",
    "\u{1f980} crab",
    "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
    "\u{202e}right to left",
    "year=2026/month=11/part-0000",
    // Beside a folder whose name sorts between them.
    "a-b",
    "a/b/c/d/e/f/g",
    "aa",
    // The demo's own temporary names have this form.
    ".inrush-0123456789abcdef.part.txt",
];

/// One object; a key that ends in `/` represents a folder.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) key: String,
    pub(super) size_bytes: u64,
}

/// Objects that are downloaded together, all below the folder of their name.
#[derive(Debug, Clone)]
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) items: Vec<Item>,
}

impl Set {
    pub(super) fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.size_bytes).sum()
    }
}

/// The demo's sets. `large_bytes` is divided among the large objects; `slot` and `part` are the
/// lengths at which the run splits objects, for sizes around them.
pub(super) fn sets(large_bytes: u64, slot: u64, part: u64) -> Vec<Set> {
    vec![large(large_bytes), small(), empty(), odd_sizes(slot, part), odd_names()]
}

/// One object of half the bytes and four of an eighth each.
fn large(bytes: u64) -> Set {
    let sizes = [bytes / 2, bytes / 8, bytes / 8, bytes / 8, bytes / 8];
    let items = sizes
        .into_iter()
        .enumerate()
        .map(|(number, size_bytes)| Item { key: format!("large/shard-{number}.tar"), size_bytes });
    Set { name: "large", items: items.collect() }
}

fn small() -> Set {
    let items = (0..SMALL_OBJECTS).map(|number| Item {
        key: format!("small/{:02}/{number:06}.jpg", number % SMALL_FOLDERS),
        size_bytes: SMALL_BYTES,
    });
    Set { name: "small", items: items.collect() }
}

fn empty() -> Set {
    let item = |key| Item { key, size_bytes: 0 };
    let mut items: Vec<_> =
        (0..EMPTY_OBJECTS).map(|number| item(format!("empty/{number:03}"))).collect();
    items.push(item("empty/a folder of its own/".to_owned()));
    Set { name: "empty", items }
}

fn odd_sizes(slot: u64, part: u64) -> Set {
    let mut sizes = vec![1, 511, 512, 513, 4095, 4096, 4097, RAGGED_BYTES];
    sizes.extend([slot, part].into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]));
    sizes.sort_unstable();
    sizes.dedup();
    let item = |size_bytes| Item { key: format!("odd sizes/{size_bytes}"), size_bytes };
    Set { name: "odd sizes", items: sizes.into_iter().map(item).collect() }
}

fn odd_names() -> Set {
    const FOLDER: &str = "odd names/";
    let longest_name = "\u{4e2d}".repeat(85);
    // A key has at most 1,024 bytes.
    let mut longest_key = ["deep"; 210].join("/");
    longest_key.truncate(1024 - FOLDER.len() - 2);
    longest_key.push_str("/x");
    let names = NAMES.into_iter().map(str::to_owned).chain([longest_name, longest_key]);
    let items = names
        .zip(1_000..)
        .map(|(name, size_bytes)| Item { key: format!("{FOLDER}{name}"), size_bytes });
    Set { name: "odd names", items: items.collect() }
}

/// The objects as the origin serves them.
pub(super) fn specs(sets: &[Set]) -> Vec<ObjectSpec> {
    let items = sets.iter().flat_map(|set| &set.items);
    let spec = |item: &Item| {
        let content = match item.size_bytes {
            0 => ObjectContent::Bytes(Bytes::new()),
            length_bytes => ObjectContent::Synthetic { length_bytes },
        };
        ObjectSpec::new(BUCKET, &item.key, content)
    };
    items.map(spec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_below_their_set_and_no_longer_than_a_key_can_be() {
        let sets = sets(64 << 20, 1 << 20, 8 << 20);
        let mut seen = std::collections::BTreeSet::new();
        for set in &sets {
            for item in &set.items {
                assert!(item.key.starts_with(&format!("{}/", set.name)), "{}", item.key);
                assert!(item.key.len() <= 1024 && seen.insert(item.key.clone()), "{}", item.key);
            }
        }
        assert!(seen.iter().any(|key| key.len() == 1024), "the longest key is there");
        assert_eq!(sets[0].bytes(), 64 << 20);
    }

    #[test]
    fn edges_that_fall_together_are_visited_once() {
        let set = odd_sizes(4096, 1 << 20);
        let sizes: Vec<u64> = set.items.iter().map(|item| item.size_bytes).collect();
        assert!(sizes.is_sorted_by(|one, other| one < other), "{sizes:?}");
    }
}
