//! Chooses the demo's folder: a temporary one on a disk with enough space.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host;
use crate::limits::{DEMO_LARGE_BYTES_DEFAULT, DEMO_LARGE_BYTES_MIN};
use crate::text::size::Decimal;

/// Space left free besides the demo's files, in bytes: other programs use this disk, too.
const SPARE_BYTES: u64 = 256 << 20;

/// statfs(2), TMPFS_MAGIC: files in such a folder are in memory, which says nothing about a disk.
const TMPFS: u64 = 0x0102_1994;

/// A usable folder, and the size of the files in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UsableFolder {
    pub(super) folder: PathBuf,
    /// Size of the large objects together, in bytes.
    pub(super) large_bytes: u64,
}

/// A folder, and its properties.
#[derive(Debug, Clone)]
struct Candidate {
    folder: PathBuf,
    free_bytes: u64,
    in_memory: bool,
}

impl UsableFolder {
    /// The current folder or TMPDIR: the first with enough space, preferably on a disk; else the
    /// one with most space, for a smaller demo if its size was not `asked` for.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if neither has enough space.
    pub(super) fn choose(asked: Option<u64>, other_bytes: u64) -> Result<Self> {
        let folders = [std::env::current_dir().ok(), Some(std::env::temp_dir())];
        decide(folders.into_iter().flatten().filter_map(look).collect(), asked, other_bytes)
    }

    /// Creates the demo's own folder in it.
    pub(super) fn make(&self) -> Result<TempDir> {
        tempfile::Builder::new().prefix("inrush-demo-").tempdir_in(&self.folder).map_err(|error| {
            let message = format!("cannot make a folder in {}: {error}", self.folder.display());
            Error::new(ErrorKind::Destination, message)
                .advise("run it in a writable folder, or set TMPDIR to one")
        })
    }
}

fn look(folder: PathBuf) -> Option<Candidate> {
    let writable = rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK).is_ok();
    let free_bytes = system_host::disk_space(&folder).filter(|_| writable)?.free_bytes;
    Some(Candidate { free_bytes, in_memory: is_in_memory(&folder), folder })
}

fn is_in_memory(folder: &Path) -> bool {
    // The magic number's type differs between platforms.
    rustix::fs::statfs(folder).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(TMPFS))
}

fn decide(mut found: Vec<Candidate>, asked: Option<u64>, other_bytes: u64) -> Result<UsableFolder> {
    let wanted = asked.unwrap_or(DEMO_LARGE_BYTES_DEFAULT);
    let room = |place: &Candidate| place.free_bytes.saturating_sub(other_bytes + SPARE_BYTES);
    // Stable: of equals the current folder stays first.
    found.sort_by_key(|place| (room(place) < wanted, place.in_memory));
    if let Some(place) = found.first().filter(|place| room(place) >= wanted) {
        return Ok(UsableFolder { folder: place.folder.clone(), large_bytes: wanted });
    }
    let roomiest = found.iter().max_by_key(|place| room(place)).ok_or_else(|| {
        Error::new(ErrorKind::Destination, "neither the current folder nor TMPDIR can be written")
            .advise("run it in a writable folder, or set TMPDIR to one")
    })?;
    // In multiples of the least size, so that sizes stay readable.
    let large_bytes = room(roomiest) / DEMO_LARGE_BYTES_MIN * DEMO_LARGE_BYTES_MIN;
    if asked.is_none() && large_bytes > 0 {
        return Ok(UsableFolder { folder: roomiest.folder.clone(), large_bytes });
    }
    let least = if asked.is_some() { wanted } else { DEMO_LARGE_BYTES_MIN };
    let message = format!(
        "the demo needs {} on a disk, and {} has {} free",
        Decimal(least + other_bytes + SPARE_BYTES),
        roomiest.folder.display(),
        Decimal(roomiest.free_bytes)
    );
    Err(Error::new(ErrorKind::Destination, message)
        .advise("free space, or set TMPDIR to a folder with room"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: u64 = 300 << 20;

    fn candidate(folder: &str, free_bytes: u64, in_memory: bool) -> Candidate {
        Candidate { folder: folder.into(), free_bytes, in_memory }
    }

    fn check(found: &[(&str, u64, bool)], asked: Option<u64>, expected: Option<(&str, u64)>) {
        let found =
            found.iter().map(|(name, free, memory)| candidate(name, free << 20, *memory)).collect();
        let place = decide(found, asked, OTHER).ok();
        let expected = expected.map(|(folder, large)| UsableFolder {
            folder: folder.into(),
            large_bytes: large << 20,
        });
        assert_eq!(place, expected);
    }

    #[test]
    fn the_first_disk_with_room_is_taken() {
        check(&[("here", 9000, false), ("tmp", 9000, false)], None, Some(("here", 2048)));
        check(&[("here", 1000, false), ("tmp", 9000, false)], None, Some(("tmp", 2048)));
        check(&[("here", 9000, true), ("tmp", 9000, false)], None, Some(("tmp", 2048)));
        check(&[("here", 9000, true), ("tmp", 100, false)], None, Some(("here", 2048)));
    }

    #[test]
    fn where_room_is_short_the_demo_is_smaller_unless_its_size_was_asked_for() {
        check(&[("here", 700, false), ("tmp", 1000, false)], None, Some(("tmp", 384)));
        check(&[("here", 620, false)], None, Some(("here", 64)));
        check(&[("here", 619, false)], None, None);
        check(&[("here", 1000, false)], Some(1 << 30), None);
        check(&[], None, None);
        let error = decide(vec![candidate("here", 1 << 20, false)], None, OTHER).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::Destination);
        assert!(error.to_string().contains("here has 1.05 MB free"), "{error}");
    }
}
