//! Names that were all listed before the mount serves, and what later listings change in them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::mount::changes::Changes;
use crate::mount::changes::refresh::KnownNames;
use crate::mount::tree::{Facts, Hidden, Inode, Totals, Tree};
use crate::mount::versions::Versions;
use crate::s3::{Endpoint, Object};

/// All names of a mount.
#[derive(Debug)]
pub(crate) struct WholeNames {
    pub(super) tree: Tree,
    pub(super) hidden: Hidden,
    /// Locked after the versions, and never while the kernel is called.
    changes: RwLock<Changes>,
    /// A later listing was taken.
    is_changed: AtomicBool,
}

impl WholeNames {
    pub(super) fn new(tree: Tree, hidden: Hidden) -> Self {
        Self { tree, hidden, changes: RwLock::default(), is_changed: AtomicBool::new(false) }
    }

    /// What later listings changed, if there were any.
    fn changes(&self) -> Option<RwLockReadGuard<'_, Changes>> {
        let is_changed = self.is_changed.load(Ordering::Acquire);
        is_changed.then(|| self.changes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes them.
    pub(super) fn update<T>(
        &self,
        versions: &mut Versions,
        change: impl FnOnce(&mut KnownNames<'_>) -> T,
    ) -> T {
        let mut changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
        self.is_changed.store(true, Ordering::Release);
        change(&mut KnownNames { tree: &self.tree, changes: &mut changes, versions })
    }

    pub(super) fn totals(&self) -> Totals {
        match self.changes() {
            None => self.tree.totals(),
            Some(changes) => changes.totals(&self.tree),
        }
    }

    pub(super) fn facts(&self, inode: Inode) -> Option<Facts> {
        match self.changes() {
            None => self.tree.facts(inode),
            Some(changes) => changes.facts(&self.tree, inode),
        }
    }

    pub(super) fn lookup(&self, parent: Inode, name: &[u8]) -> Option<Inode> {
        match self.changes() {
            None => self.tree.lookup(parent, name),
            Some(changes) => changes.lookup(&self.tree, parent, name),
        }
    }

    /// The listed children of a folder, none if it is gone or was added; `None` for a file.
    pub(super) fn children(&self, folder: Inode) -> Option<Range<Inode>> {
        let listed = self.tree.children(folder);
        let Some(changes) = self.changes() else { return listed };
        match listed {
            Some(_) if changes.is_removed(&self.tree, folder) => Some(0..0),
            Some(listed) => Some(listed),
            None => changes.is_folder(&self.tree, folder).then_some(0..0),
        }
    }

    /// Added children of a folder, from this position on: at most this many.
    pub(super) fn added(&self, folder: Inode, from: usize, most: usize) -> Vec<(Inode, Arc<str>)> {
        match self.changes() {
            Some(changes) if !changes.is_removed(&self.tree, folder) => {
                changes.children(folder, from, most)
            }
            _ => Vec::new(),
        }
    }

    /// True for a folder that is gone.
    pub(super) fn is_gone(&self, inode: Inode) -> bool {
        self.changes().is_some_and(|changes| changes.is_gone(inode))
    }

    pub(super) fn name(&self, inode: Inode) -> String {
        match self.changes() {
            None => self.tree.name(inode).to_owned(),
            Some(changes) => changes.name(&self.tree, inode).to_owned(),
        }
    }

    pub(super) fn parent(&self, inode: Inode) -> Inode {
        match self.changes() {
            None => self.tree.parent(inode),
            Some(changes) => changes.parent(&self.tree, inode),
        }
    }

    pub(super) fn object(&self, inode: Inode) -> Option<(Object, Arc<Endpoint>)> {
        match self.changes() {
            None => self.tree.object(inode),
            Some(changes) => changes.object(&self.tree, inode),
        }
    }
}
