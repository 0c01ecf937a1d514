//! How opened files use the kernel's page cache: as `--page-cache` says, and by the reads before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use fuser::{FileHandle, FopenFlags};

use crate::cli::PageCacheName;
use crate::mount::page_cache::PageCachePolicy;
use crate::mount::tree::Inode;

/// The files of one mount.
#[derive(Debug)]
pub(super) struct Bypass {
    wanted: PageCacheName,
    policy: Mutex<PageCachePolicy>,
    /// The kernel can map files that are opened past the page cache.
    can_map: AtomicBool,
}

impl Bypass {
    /// As `wanted`, on a machine with this much memory.
    pub(super) fn new(wanted: PageCacheName, memory_bytes: u64) -> Self {
        let policy = Mutex::new(PageCachePolicy::new(memory_bytes));
        Self { wanted, policy, can_map: AtomicBool::new(false) }
    }

    /// Records that the kernel can map files that are opened past the page cache.
    pub(super) fn set_can_map(&self) {
        self.can_map.store(true, Ordering::Relaxed);
    }

    /// The policy, if it decides. Where a mapping would fail, nothing is opened past the page cache
    /// unless that was demanded: no one can know which files programs will map.
    fn policy<T>(&self, decide: impl FnOnce(&mut PageCachePolicy) -> T) -> Option<T> {
        let decides = self.wanted == PageCacheName::Auto && self.can_map.load(Ordering::Relaxed);
        decides.then(|| decide(&mut self.policy.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The flags of an opened file. `is_direct`: a program opens it with O_DIRECT, whose reads skip
    /// the page cache by themselves, and show nothing of other programs. `mount_bytes`: of all
    /// files of the mount.
    pub(super) fn open(
        &self,
        handle: FileHandle,
        file: (Inode, u64),
        is_direct: bool,
        mount_bytes: impl FnOnce() -> u64,
    ) -> FopenFlags {
        let is_past = match self.wanted {
            PageCacheName::Never => true,
            PageCacheName::Always => false,
            PageCacheName::Auto if is_direct => false,
            PageCacheName::Auto => {
                self.policy(|policy| policy.open(handle.0, file, mount_bytes)) == Some(true)
            }
        };
        // An inode's content never changes, so its pages stay in any case.
        let kept = FopenFlags::FOPEN_KEEP_CACHE;
        if is_past { kept.union(FopenFlags::FOPEN_DIRECT_IO) } else { kept }
    }

    /// Records a request for bytes; `is_past`: of a program itself, not of the page cache.
    pub(super) fn read(&self, handle: FileHandle, offset: u64, length: u32, is_past: bool) {
        let range = offset..offset.saturating_add(u64::from(length));
        self.policy(|policy| policy.read(handle.0, &range, is_past));
    }

    /// Records a close.
    pub(super) fn close(&self, handle: FileHandle) {
        self.policy(|policy| policy.close(handle.0));
    }
}
