//! Compares a channel's folder with its listing before the download: the space that the download
//! needs, and the other files there. The names are walked once; nothing is changed.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use crate::files::mark::Identity;
use crate::files::system_host::{DiskSpace, disk_space, look_through, nearest_folder};
use crate::limits::{OTHER_FILES_MAX, OTHER_FILES_NAMED_MAX, PRESENT_FILES_MAX};
use crate::plan::epoch::Shard;
use crate::plan::kept::KeptListing;
use crate::text::size::Count;

/// Files in a channel's folder that are not the channel's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::command::train) struct OtherFiles {
    /// Their number; `None` if unknown.
    pub(in crate::command::train) count: Option<u64>,
    named: Vec<String>,
}

impl OtherFiles {
    /// A note about them, if there are any.
    pub(in crate::command::train) fn in_words(&self) -> Option<String> {
        let count = self.count.filter(|count| *count > 0)?;
        let some = match count {
            1 => "1 file in its folder is".to_owned(),
            OTHER_FILES_MAX.. => format!("{} files or more in its folder are", Count(count)),
            _ => format!("{} files in its folder are", Count(count)),
        };
        let more = if count > self.named.len() as u64 { ", ..." } else { "" };
        Some(format!(
            "{some} not of this channel ({}{more}): COMMAND sees them; move them away, or give \
             --base-dir another folder",
            self.named.join(", ")
        ))
    }
}

/// The findings about a channel's folder.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// The number of the file system of the folder, existing or not, a folder on it, and its space;
    /// `None` if unknown.
    pub(super) disk: Option<(u64, PathBuf, DiskSpace)>,
    /// Bytes of the objects without a file.
    pub(super) new_bytes: u64,
    /// Sizes of objects, and of other files in their places.
    pub(super) changed: Vec<(u64, u64)>,
    /// Bytes in unfinished files.
    pub(super) unfinished_bytes: u64,
    /// Some of the counted bytes may exist already.
    pub(super) is_at_most: bool,
    pub(super) others: OtherFiles,
}

/// Checks the folder of a channel; its part of the listing has this many objects and bytes. An
/// unoccupied folder has no files.
pub(super) fn look(
    folder: &Path,
    kept: Option<(&KeptListing, Shard)>,
    (objects, bytes): (u64, u64),
    is_occupied: bool,
) -> Present {
    let existing = nearest_folder(folder);
    let disk = rustix::fs::stat(existing)
        .ok()
        .map(|found| found.st_dev)
        .and_then(|device| Some((device, existing.to_owned(), disk_space(existing)?)));
    let all_new = Present { disk, new_bytes: bytes, ..Present::default() };
    if !is_occupied {
        return Present { others: OtherFiles { count: Some(0), named: Vec::new() }, ..all_new };
    }
    let Some((kept, shard)) = kept.filter(|_| objects <= PRESENT_FILES_MAX) else {
        return Present { is_at_most: true, ..all_new };
    };
    let Some(there) = walk(folder, kept, shard) else {
        return Present { is_at_most: true, ..all_new };
    };
    let others = there.others;
    if others.count >= Some(OTHER_FILES_MAX) {
        return Present { is_at_most: true, others, ..all_new };
    }
    let unfinished_bytes = there.unfinished_bytes;
    let mut present = Present { new_bytes: 0, others, unfinished_bytes, ..all_new };
    for (path, size_bytes) in kept.files(shard) {
        match length_of(&there.lengths, path).and_then(Cell::get) {
            None => present.new_bytes = present.new_bytes.saturating_add(size_bytes),
            Some(length) if length == size_bytes => {}
            Some(length) => present.changed.push((size_bytes, length)),
        }
    }
    present
}

/// Digests of paths in their order, with the sizes of existing files. Two paths with equal digests
/// count as one.
type Lengths = Vec<(u64, Cell<Option<u64>>)>;

struct There {
    lengths: Lengths,
    unfinished_bytes: u64,
    others: OtherFiles,
}

fn digest(path: &str) -> u64 {
    Identity::of(&[path]).short()
}

fn length_of<'a>(lengths: &'a Lengths, path: &str) -> Option<&'a Cell<Option<u64>>> {
    let at = lengths.binary_search_by_key(&digest(path), |(digest, _)| *digest).ok()?;
    Some(&lengths[at].1)
}

/// Walks the names below a folder, like `sync --delete`; `None` if that fails.
fn walk(folder: &Path, kept: &KeptListing, shard: Shard) -> Option<There> {
    let mut lengths: Lengths =
        kept.files(shard).map(|(path, _)| (digest(path), Cell::new(None))).collect();
    lengths.sort_unstable_by_key(|(digest, _)| *digest);
    let (count, named) = (Cell::new(0), RefCell::new(Vec::new()));
    let look = |path: &str| {
        if let Some(length) = length_of(&lengths, path) {
            let found = std::fs::metadata(folder.join(path)).ok();
            length.set(found.filter(std::fs::Metadata::is_file).map(|found| found.len()));
            return false;
        }
        if count.get() >= OTHER_FILES_MAX {
            return false;
        }
        count.set(count.get() + 1);
        if named.borrow().len() < OTHER_FILES_NAMED_MAX {
            named.borrow_mut().push(path.to_owned());
        }
        // A reported path ends the walk.
        count.get() == OTHER_FILES_MAX
    };
    let seen = look_through(folder, &look, &mut |_| false).ok()?;
    if seen.error.is_some() {
        return None;
    }
    let others = OtherFiles { count: Some(count.get()), named: named.into_inner() };
    Some(There { unfinished_bytes: seen.unfinished_bytes, others, lengths })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::s3::{Endpoint, Object};

    fn kept(files: &[(&str, u64)]) -> KeptListing {
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let mut kept = KeptListing::default();
        for (path, size_bytes) in files {
            let key = format!("k/{path}");
            let object = Object { key, size_bytes: *size_bytes, ..Object::default() };
            kept.push(&object, &endpoint, 2).expect("short");
        }
        kept
    }

    #[test]
    fn what_is_there_needs_no_space_and_others_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = kept(&[("a", 5), ("b/c", 7), ("d", 100), ("e", 9), ("f/", 0)]);
        let sizes = (4, 121);
        let looked = |shard| look(folder.path(), Some((&kept, shard)), sizes, true);
        let fresh = look(folder.path(), Some((&kept, Shard::WHOLE)), sizes, false);
        assert_eq!((fresh.new_bytes, fresh.is_at_most, fresh.others.count), (121, false, Some(0)));
        assert!(fresh.disk.is_some() && fresh.others.in_words().is_none());
        for (path, length) in [("a", 5), ("d", 30), ("x/old", 3), ("b/y", 1)] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, vec![0; length]).expect("written");
        }
        fs::write(folder.path().join(".inrush-index"), "x").expect("written");
        let part = folder.path().join(".inrush-0123456789abcdef.part");
        fs::write(part, vec![7; 9000]).expect("written");
        let found = looked(Shard::WHOLE);
        assert_eq!((found.new_bytes, &found.changed[..]), (16, &[(100, 30)][..]));
        assert!(!found.is_at_most && found.unfinished_bytes >= 9000, "{found:?}");
        assert_eq!(found.others.count, Some(2));
        let note = found.others.in_words().expect("two");
        assert!(note.starts_with("2 files in its folder are not of this channel ("), "{note}");
        assert!(note.contains("x/old") && note.contains("b/y") && !note.contains("..."), "{note}");
        // Another host's files are not in this host's part.
        let half = looked(Shard { index: 1, count: 2 });
        assert_eq!((half.new_bytes, half.others.count), (16, Some(4)));
        assert!(half.others.in_words().expect("four").contains(", ...)"));
        assert!(folder.path().join("x/old").exists(), "nothing is removed");
    }

    #[test]
    fn what_cannot_be_known_is_at_most() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a"), "12345").expect("written");
        let unknown = look(folder.path(), None, (2, 12), true);
        assert_eq!((unknown.new_bytes, unknown.is_at_most), (12, true));
        assert_eq!(unknown.others.count, None);
        let kept = kept(&[("a", 5)]);
        let too_many = (PRESENT_FILES_MAX + 1, 12);
        let unknown = look(folder.path(), Some((&kept, Shard::WHOLE)), too_many, true);
        assert!(unknown.is_at_most && unknown.new_bytes == 12);
    }

    #[test]
    fn others_are_counted_to_a_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..OTHER_FILES_MAX + 9 {
            fs::write(folder.path().join(number.to_string()), "").expect("written");
        }
        let kept = kept(&[("a", 5)]);
        let found = look(folder.path(), Some((&kept, Shard::WHOLE)), (1, 5), true);
        assert_eq!(found.others.count, Some(OTHER_FILES_MAX));
        assert!(found.is_at_most);
        let note = found.others.in_words().expect("many");
        assert!(note.starts_with("10,000 files or more in its folder are"), "{note}");
    }
}
