//! How much a cache holds, and what goes when there is no room for more.

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
    /// Bytes of objects that this process writes.
    unfinished_bytes: u64,
    /// What came since the folder was last looked through.
    added_bytes: u64,
    /// Objects that were removed to make room.
    evicted: u64,
    /// When objects were last removed because the disk was full: others may have them open, and a
    /// file system may give space back later.
    disk_full: Option<Instant>,
}

/// The room of a cache.
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: u64,
    space: Arc<Mutex<Space>>,
    /// Who looks through the folder has it.
    scan: Mutex<()>,
}

/// Room that an unfinished object takes, until it is dropped.
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

/// A whole object that is kept.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept {
    /// Seconds and nanoseconds of the epoch.
    used_at: (i64, u64),
    folder: String,
    name: String,
    size_bytes: u64,
}

impl Room {
    /// Of a folder that holds what it holds. `bytes_max`: [default: nine tenths of what it has and
    /// what is free].
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

    /// Takes room on the disk for an object that may become whole; `None` where there is none. What
    /// is kept goes for it only where the disk is full, and only for a small one: most of it may
    /// never come.
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
        // Others write what they have taken.
        if lacks(space.unfinished_bytes.saturating_add(bytes)) > 0 {
            return None;
        }
        space.unfinished_bytes += bytes;
        Some(Taken { space: Arc::clone(&self.space), bytes })
    }

    /// Why nothing at all will be kept; `None` where something may be, or is.
    pub(super) fn why_empty(&self, root: &OwnedFd) -> Option<String> {
        let has_some = lock(&self.space).whole_bytes > 0;
        let has_room = free_bytes(root).is_none_or(|free| free > CACHE_FREE_BYTES_MIN);
        (!has_some && !has_room).then(|| self.why_none(root, 1))
    }

    /// Why an object of so many bytes is refused.
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

    /// Objects were removed for the disk a short while ago.
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

    /// Makes room for an object that is whole now, and counts it: what was used longest ago goes.
    pub(super) fn add(&self, root: &OwnedFd, bytes: u64) {
        let mut space = lock(&self.space);
        space.whole_bytes += bytes;
        space.added_bytes += bytes;
        // Others may share it, and may have removed or added much.
        let is_due = space.added_bytes > self.bytes_max / CACHE_SCAN_SHARE;
        let is_over = space.whole_bytes > self.bytes_max;
        drop(space);
        if is_due || is_over {
            self.evict(root, 0);
        }
    }

    /// Looks through the folder, and removes what is too much, and at least so many bytes.
    fn evict(&self, root: &OwnedFd, least_bytes: u64) {
        // Nobody waits who only counts.
        let _scan = self.scan.lock().unwrap_or_else(PoisonError::into_inner);
        let (whole, oldest) = look_through(root, CACHE_EVICTED_MAX);
        let lacking = least_bytes.max(whole.saturating_sub(self.bytes_max));
        // More than that, so that not every object looks through all.
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
    /// Removes it, where it is what it seems.
    fn remove(&self, root: &OwnedFd) -> bool {
        let Ok(folder) = folder_of(root, &self.folder) else { return false };
        marked(&folder, &self.name).is_some()
            && rustix::fs::unlinkat(&folder, &self.name, AtFlags::empty()).is_ok()
    }
}

fn lock(space: &Mutex<Space>) -> MutexGuard<'_, Space> {
    space.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that this user may still write to the file system; `None` where it does not say.
fn free_bytes(root: &OwnedFd) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(root).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What a file takes of the disk.
fn space_bytes(stat: &Stat) -> u64 {
    let allocated = stat.st_blocks.unsigned_abs().saturating_mul(512);
    stat.st_size.unsigned_abs().max(allocated)
}

/// The bytes of all whole objects, and so many of them, those used longest ago first. What cannot
/// be read is passed over.
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

/// Shows all names of objects, each with its folder.
pub(super) fn each(root: &OwnedFd, mut show: impl FnMut(&str, &OwnedFd, &str)) {
    for folder in names(root, FOLDER_DIGITS) {
        let Ok(opened) = folder_of(root, &folder) else { continue };
        for name in names(&opened, NAME_DIGITS - FOLDER_DIGITS) {
            show(&folder, &opened, &name);
        }
    }
}

/// The names in a folder that are so many hexadecimal digits.
fn names(folder: &OwnedFd, digits: usize) -> impl Iterator<Item = String> + use<> {
    let entries = Dir::read_from(folder).into_iter().flatten();
    let names = entries.filter_map(std::result::Result::ok);
    let names = names.filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok());
    names.filter(move |name| {
        name.len() == digits && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}
