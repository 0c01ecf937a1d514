//! What later listings say of a mount that was listed before: names that were added, and folders
//! that are gone.
//!
//! The tree of the first listing is not changed, so inode numbers and positions in folders stay.
//! Names that it does not have are appended to their folder here, and never removed: a name that is
//! gone and comes back is the same name, at its old position. Which object a file's name leads to,
//! and whether it is gone, is in [`Versions`](crate::mount::versions::Versions).
//!
//! [`refresh`] takes a listing.

pub mod refresh;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::mount::tree::{ADDED_FROM, Facts, Inode, Kind, ROOT, Totals, Tree};
use crate::s3::{Endpoint, Object};

/// Names that are not in the tree, and folders that are gone.
#[derive(Debug, Default)]
pub struct Changes {
    /// By inode, from [`ADDED_FROM`] on.
    names: Vec<AddedName>,
    /// The added children of each folder that has any.
    children: HashMap<Inode, AddedChildren>,
    /// Folders that are gone, with everything below them; names below them are not noted.
    gone: HashSet<Inode>,
    /// Times of folders that are newer than at the first listing, in seconds since the Epoch.
    times: HashMap<Inode, i64>,
    /// Totals by the last complete listing.
    totals: Option<Totals>,
}

/// A name that is not in the tree.
#[derive(Debug)]
struct AddedName {
    parent: Inode,
    name: Arc<str>,
    /// When it was found: the time of what has none.
    found_seconds: i64,
    /// `None` for a folder.
    file: Option<Box<(Object, Arc<Endpoint>)>>,
}

/// The added children of a folder.
#[derive(Debug, Default)]
struct AddedChildren {
    /// In the order in which they were found.
    order: Vec<Inode>,
    files: HashMap<Arc<str>, Inode>,
    folders: HashMap<Arc<str>, Inode>,
}

/// The names of a folder that are alike: of them at most one is shown.
#[derive(Debug, Clone, Copy, Default)]
struct Alike {
    file: Option<Inode>,
    folder: Option<Inode>,
}

impl Changes {
    /// The inodes of the added names.
    fn inodes(&self) -> std::ops::Range<Inode> {
        ADDED_FROM..ADDED_FROM + self.names.len() as u64
    }

    fn added(&self, inode: Inode) -> Option<&AddedName> {
        let place = usize::try_from(inode.checked_sub(ADDED_FROM)?).ok()?;
        self.names.get(place)
    }

    /// True for a folder of the tree or an added one.
    #[must_use]
    pub fn is_folder(&self, tree: &Tree, inode: Inode) -> bool {
        match self.added(inode) {
            Some(added) => added.file.is_none(),
            None => tree.children(inode).is_some(),
        }
    }

    /// The file and the folder of this name, which may follow this one in the tree.
    fn alike(&self, tree: &Tree, parent: Inode, name: &str, before: Inode) -> Alike {
        let mut alike = match self.children.get(&parent) {
            None => Alike::default(),
            Some(children) => Alike {
                file: children.files.get(name).copied(),
                folder: children.folders.get(name).copied(),
            },
        };
        if let Some(listed) = tree.lookup_behind(parent, name.as_bytes(), before) {
            match tree.children(listed) {
                Some(_) => alike.folder = Some(listed),
                None => alike.file = Some(listed),
            }
        }
        alike
    }

    /// The child of this name. The object of a file may be gone: [`Versions`] says so.
    ///
    /// [`Versions`]: crate::mount::versions::Versions
    #[must_use]
    pub fn lookup(&self, tree: &Tree, parent: Inode, name: &[u8]) -> Option<Inode> {
        if self.is_removed(tree, parent) {
            return None;
        }
        let name = std::str::from_utf8(name).ok()?;
        let Alike { file, folder } = self.alike(tree, parent, name, ROOT);
        folder.filter(|folder| !self.is_gone(*folder)).or(file)
    }

    /// True for a folder that is gone.
    #[must_use]
    pub fn is_gone(&self, inode: Inode) -> bool {
        self.gone.contains(&inode)
    }

    /// True if this folder is gone, or one above it.
    #[must_use]
    pub fn is_removed(&self, tree: &Tree, mut folder: Inode) -> bool {
        if self.gone.is_empty() {
            return false;
        }
        while folder != ROOT {
            if self.is_gone(folder) {
                return true;
            }
            folder = self.parent(tree, folder);
        }
        false
    }

    /// Added children of a folder, from this position on: at most this many, each with its name.
    /// Positions never change.
    #[must_use]
    pub fn children(&self, folder: Inode, from: usize, most: usize) -> Vec<(Inode, Arc<str>)> {
        let order = self.children.get(&folder).map_or(&[][..], |children| &children.order);
        let rest = order.get(from..).unwrap_or_default().iter().take(most);
        rest.filter_map(|inode| Some((*inode, Arc::clone(&self.added(*inode)?.name)))).collect()
    }

    /// All children of a folder, whatever became of them.
    fn all_children(&self, tree: &Tree, folder: Inode) -> Vec<Inode> {
        let listed = tree.children(folder).unwrap_or(0..0);
        let added = self.children.get(&folder).map_or(&[][..], |children| &children.order);
        listed.chain(added.iter().copied()).collect()
    }

    /// Attributes of an inode of the tree or an added one.
    #[must_use]
    pub fn facts(&self, tree: &Tree, inode: Inode) -> Option<Facts> {
        let facts = match self.added(inode) {
            None => tree.facts(inode)?,
            Some(AddedName { found_seconds, file, .. }) => match file.as_deref() {
                None => Facts { inode, kind: Kind::Folder, seconds: *found_seconds },
                Some((object, _)) => {
                    let seconds = object.modified_seconds().unwrap_or(*found_seconds);
                    let kind = Kind::File { size_bytes: object.size_bytes };
                    Facts { inode, kind, seconds }
                }
            },
        };
        let seconds = self.times.get(&inode).copied().unwrap_or(facts.seconds);
        Some(Facts { seconds, ..facts })
    }

    /// The name of an inode; empty for the top folder.
    ///
    /// # Panics
    /// If there is no such inode.
    #[must_use]
    pub fn name<'a>(&'a self, tree: &'a Tree, inode: Inode) -> &'a str {
        self.added(inode).map_or_else(|| tree.name(inode), |added| &added.name)
    }

    /// The parent folder.
    ///
    /// # Panics
    /// If there is no such inode.
    #[must_use]
    pub fn parent(&self, tree: &Tree, inode: Inode) -> Inode {
        self.added(inode).map_or_else(|| tree.parent(inode), |added| added.parent)
    }

    /// The object of a file as it was first listed, and its endpoint.
    #[must_use]
    pub fn object(&self, tree: &Tree, inode: Inode) -> Option<(Object, Arc<Endpoint>)> {
        match self.added(inode) {
            Some(added) => added.file.as_deref().cloned(),
            None => tree.object(inode),
        }
    }

    /// Totals by the last complete listing.
    #[must_use]
    pub fn totals(&self, tree: &Tree) -> Totals {
        self.totals.unwrap_or_else(|| tree.totals())
    }

    /// Appends a name.
    fn add(&mut self, added: AddedName) -> Inode {
        let inode = self.inodes().end;
        let children = self.children.entry(added.parent).or_default();
        children.order.push(inode);
        let names = match added.file {
            Some(_) => &mut children.files,
            None => &mut children.folders,
        };
        names.insert(Arc::clone(&added.name), inode);
        self.names.push(added);
        inode
    }

    /// Dates a folder, and all above it, at least as late as something new below. Adds those that
    /// have another time to `dated`.
    fn date(&mut self, tree: &Tree, mut folder: Inode, seconds: i64, dated: &mut BTreeSet<Inode>) {
        loop {
            let time = self.times.get(&folder).copied();
            let time = time.or_else(|| tree.facts(folder).map(|facts| facts.seconds));
            if time.is_none_or(|time| time < seconds) {
                self.times.insert(folder, seconds);
                dated.insert(folder);
            }
            if folder == ROOT {
                return;
            }
            folder = self.parent(tree, folder);
        }
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
