//! The size of the cache, and its eviction.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, Stat};

use super::{FOLDER_DIGITS, NAME_DIGITS, folder_of, marked};
use crate::limits::{
    CACHE_DISK_FULL_PAUSE, CACHE_EVICTED_MAX, CACHE_FREE_BYTES_MIN, CACHE_ROOM_SHARE,
    CACHE_SCAN_SHARE,
};
use crate::sys::descriptor::is_ours;
use crate::text::size::Binary;

/// What the folder holds, as far as this process knows.
#[derive(Debug, Default)]
struct Space {
    /// Bytes of whole objects.
    whole_bytes: u64,
    /// Bytes of objects that this process is writing.
    unfinished_bytes: u64,
    /// Bytes added since the folder was last scanned.
    added_bytes: u64,
    /// Objects evicted.
    evicted: u64,
    /// When objects were last evicted because the disk was full. Other processes may have them
    /// open, and a file system may free space with a delay.
    disk_full: Option<Instant>,
}

/// Size limits and use of a cache.
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: u64,
    space: Arc<Mutex<Space>>,
    /// Held while the folder is scanned.
    scan: Mutex<()>,
}

/// Space reserved for an unfinished object, released on drop.
#[derive(Debug)]
pub(super) struct Taken {
    space: Arc<Mutex<Space>>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        lock(&self.space).unfinished_bytes -= self.bytes;
    }
}

/// A whole cached object.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept {
    /// Access time: seconds and nanoseconds since the Epoch.
    used_at: (i64, u64),
    folder: String,
    name: String,
    size_bytes: u64,
}

impl Room {
    /// For an existing folder. `bytes_max`: [default: nine tenths of its size plus the free space].
    pub(super) fn new(root: &OwnedFd, bytes_max: Option<u64>) -> Self {
        let used = look_through(root, 0).0;
        let all = used.saturating_add(free_bytes(root).unwrap_or(u64::MAX));
        let bytes_max = bytes_max.unwrap_or(all - all / 10);
        let space = Arc::new(Mutex::new(Space { whole_bytes: used, ..Space::default() }));
        Self { bytes_max, space, scan: Mutex::default() }
    }

    pub(super) fn evicted(&self) -> u64 {
        lock(&self.space).evicted
    }

    #[cfg(test)]
    pub(super) fn unfinished_bytes(&self) -> u64 {
        lock(&self.space).unfinished_bytes
    }

    /// Reserves disk space for an object; `None` if there is none. Only a full disk makes it evict
    /// others, and only for a small object: most of an object may never be read.
    pub(super) fn take(&self, root: &OwnedFd, bytes: u64) -> Option<Taken> {
        if bytes > self.bytes_max {
            return None;
        }
        let lacks = |wanted: u64| {
            let wanted = wanted.saturating_add(CACHE_FREE_BYTES_MIN);
            wanted.saturating_sub(free_bytes(root).unwrap_or(u64::MAX))
        };
        let lacking = lacks(bytes);
        if lacking > 0 {
            if bytes > self.bytes_max / CACHE_ROOM_SHARE || self.is_pausing() {
                return None;
            }
            self.evict(root, lacking);
        }
        let mut space = lock(&self.space);
        // Concurrent writers use their reservations later.
        if lacks(space.unfinished_bytes.saturating_add(bytes)) > 0 {
            return None;
        }
        space.unfinished_bytes += bytes;
        Some(Taken { space: Arc::clone(&self.space), bytes })
    }

    /// Why nothing can be cached at all; `None` if something is or may be.
    pub(super) fn why_empty(&self, root: &OwnedFd) -> Option<String> {
        let has_some = lock(&self.space).whole_bytes > 0;
        let has_room = free_bytes(root).is_none_or(|free| free > CACHE_FREE_BYTES_MIN);
        (!has_some && !has_room).then(|| self.why_none(root, 1))
    }

    /// Why an object of this size is refused.
    pub(super) fn why_none(&self, root: &OwnedFd, bytes: u64) -> String {
        let free = free_bytes(root).unwrap_or(u64::MAX);
        let kept = Binary(CACHE_FREE_BYTES_MIN);
        match bytes.saturating_add(CACHE_FREE_BYTES_MIN) > free {
            true => format!("{} of the file system are free, and {kept} stay free", Binary(free)),
            false if bytes > self.bytes_max => {
                format!("the cache is bounded to {}", Binary(self.bytes_max))
            }
            false => "there is no room beside what is being written".to_owned(),
        }
    }

    /// True if objects were evicted for a full disk within [`CACHE_DISK_FULL_PAUSE`].
    #[expect(clippy::disallowed_methods, reason = "the disk is asked again after a while")]
    fn is_pausing(&self) -> bool {
        let now = Instant::now();
        let mut space = lock(&self.space);
        let recent = |at: Instant| now.saturating_duration_since(at) < CACHE_DISK_FULL_PAUSE;
        let pauses = space.disk_full.is_some_and(recent);
        if !pauses {
            space.disk_full = Some(now);
        }
        pauses
    }

    /// Counts an object that is now whole, and evicts the least recently used ones to fit.
    pub(super) fn add(&self, root: &OwnedFd, bytes: u64) {
        let mut space = lock(&self.space);
        space.whole_bytes += bytes;
        space.added_bytes += bytes;
        // Other processes may share the folder and may have added or removed objects.
        let is_due = space.added_bytes > self.bytes_max / CACHE_SCAN_SHARE;
        let is_over = space.whole_bytes > self.bytes_max;
        drop(space);
        if is_due || is_over {
            self.evict(root, 0);
        }
    }

    /// Scans the folder and evicts the excess, at least `least_bytes`.
    fn evict(&self, root: &OwnedFd, least_bytes: u64) {
        // Callers that only count do not take this lock.
        let _scan = self.scan.lock().unwrap_or_else(PoisonError::into_inner);
        let (whole, oldest) = look_through(root, CACHE_EVICTED_MAX);
        let lacking = least_bytes.max(whole.saturating_sub(self.bytes_max));
        // Evict more than needed, so that not every object causes a scan.
        let goal = if lacking > 0 { lacking + self.bytes_max / CACHE_ROOM_SHARE } else { 0 };
        let (mut gone, mut count) = (0, 0);
        for kept in &oldest {
            if gone >= goal {
                break;
            }
            if kept.remove(root) {
                gone += kept.size_bytes;
                count += 1;
            }
        }
        let mut space = lock(&self.space);
        space.whole_bytes = whole - gone.min(whole);
        space.added_bytes = 0;
        space.evicted += count;
    }
}

impl Kept {
    /// Removes the file if it is still a marked file of ours.
    fn remove(&self, root: &OwnedFd) -> bool {
        let Ok(folder) = folder_of(root, &self.folder) else { return false };
        marked(&folder, &self.name).is_some()
            && rustix::fs::unlinkat(&folder, &self.name, AtFlags::empty()).is_ok()
    }
}

fn lock(space: &Mutex<Space>) -> MutexGuard<'_, Space> {
    space.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that this user may still write to the file system; `None` if unknown.
fn free_bytes(root: &OwnedFd) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(root).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Disk space of a file.
fn space_bytes(stat: &Stat) -> u64 {
    let allocated = stat.st_blocks.unsigned_abs().saturating_mul(512);
    stat.st_size.unsigned_abs().max(allocated)
}

/// Total bytes of whole objects, and the `most` least recently used of them. Unreadable entries are
/// skipped.
pub(super) fn look_through(root: &OwnedFd, most: usize) -> (u64, BTreeSet<Kept>) {
    let (mut whole, mut oldest) = (0, BTreeSet::new());
    each(root, |folder, opened, name| {
        let Ok(stat) = rustix::fs::statat(opened, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        if !is_ours(&stat) {
            return;
        }
        let size_bytes = space_bytes(&stat);
        whole += size_bytes;
        if most > 0 {
            let used_at = (stat.st_atime, stat.st_atime_nsec);
            let (folder, name) = (folder.to_owned(), name.to_owned());
            oldest.insert(Kept { used_at, folder, name, size_bytes });
            if oldest.len() > most {
                oldest.pop_last();
            }
        }
    });
    (whole, oldest)
}

/// Calls `show` with each object's folder name, opened folder and file name.
pub(super) fn each(root: &OwnedFd, mut show: impl FnMut(&str, &OwnedFd, &str)) {
    for folder in names(root, FOLDER_DIGITS) {
        let Ok(opened) = folder_of(root, &folder) else { continue };
        for name in names(&opened, NAME_DIGITS - FOLDER_DIGITS) {
            show(&folder, &opened, &name);
        }
    }
}

/// Names in a folder that consist of exactly `digits` hexadecimal digits.
fn names(folder: &OwnedFd, digits: usize) -> impl Iterator<Item = String> + use<> {
    let entries = Dir::read_from(folder).into_iter().flatten();
    let names = entries.filter_map(std::result::Result::ok);
    let names = names.filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok());
    names.filter(move |name| {
        name.len() == digits && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}
