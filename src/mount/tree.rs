//! The tree of a mount: compact and immutable; inode numbers follow the order of the listing.
//!
//! Names are slices of the keys in [`KeptListing`]: a node takes 16 bytes beside its object. A
//! folder's children are contiguous and ordered by name. Keys that cannot be file names are hidden
//! and counted ([`Hidden`]).

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::limits::{BLOCK_BYTES, HIDDEN_KEPT_MAX};
use crate::plan::kept::KeptListing;
use crate::plan::path::PathProblem;
use crate::s3::{Endpoint, Object};

/// Inode number; the top folder is 1, as FUSE requires.
pub type Inode = u64;

/// The top folder.
pub const ROOT: Inode = 1;

/// First inode number of names that later listings add: above all of a tree, and of all versions.
pub const ADDED_FROM: Inode = 1 << 52;

/// Index that marks a file.
const NO_FOLDER: u32 = u32::MAX;

/// Hidden keys: the first ones, and their number.
#[derive(Debug, Default)]
pub struct Hidden {
    keys: Vec<(String, PathProblem)>,
    count: u64,
    repeated: u64,
}

impl Hidden {
    fn add(&mut self, key: &str, problem: PathProblem) {
        self.count += 1;
        self.repeated += u64::from(matches!(problem, PathProblem::Duplicate { .. }));
        if self.keys.len() < HIDDEN_KEPT_MAX {
            self.keys.push((key.to_owned(), problem));
        }
    }

    /// Number of hidden keys.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Number of hidden keys whose path another source has, too.
    #[must_use]
    pub const fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The first ones, each with the reason.
    #[must_use]
    pub fn keys(&self) -> &[(String, PathProblem)] {
        &self.keys
    }
}

/// A file or a folder. Its name is a slice of its own key, or of a key below it.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// Object whose key contains its name; for a file its own.
    object: u32,
    /// Index among the folders, or [`NO_FOLDER`].
    folder: u32,
    parent: u32,
    name_start: u16,
    name_length: u16,
}

#[derive(Debug, Clone, Copy)]
struct Folder {
    /// Its first child.
    first: u32,
    count: u32,
    /// Time of the newest object below it.
    seconds: i64,
}

/// Attributes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Inode number.
    pub inode: Inode,
    /// Folder or file.
    pub kind: Kind,
    /// Modification time in seconds since the Epoch.
    pub seconds: i64,
}

/// Type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A file.
    File {
        /// Its length.
        size_bytes: u64,
    },
}

/// Totals of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Folders, including the top one.
    pub folders: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Blocks of [`BLOCK_BYTES`] that the files would occupy.
    pub blocks: u64,
}

/// Takes objects in listing order.
#[derive(Debug, Default)]
pub struct Builder {
    objects: KeptListing,
    hidden: Hidden,
}

impl Builder {
    /// Takes an object whose path is its key from byte `path_start` on; the path of a folder marker
    /// ends in a slash.
    ///
    /// # Errors
    /// The errors of [`KeptListing::push`].
    pub fn add(
        &mut self,
        object: &Object,
        endpoint: &Arc<Endpoint>,
        path_start: usize,
    ) -> Result<()> {
        self.objects.push(object, endpoint, path_start)
    }

    /// Counts an object that cannot have a name.
    pub fn hide(&mut self, key: &str, problem: PathProblem) {
        self.hidden.add(key, problem);
    }

    /// Builds the tree; entries without a time get `now_seconds`.
    #[must_use]
    pub fn finish(self, now_seconds: i64) -> (Tree, Hidden) {
        let Self { mut objects, hidden } = self;
        objects.shrink();
        let mut order: Vec<u32> = (0..objects.count()).collect();
        // Sorted runs, as listings are, cost one comparison per element.
        order.sort_by(|one, other| objects.path(*one).cmp(objects.path(*other)));
        let mut growing = Growing {
            tree: Tree {
                objects,
                nodes: Vec::with_capacity(order.len() + 1),
                folders: Vec::new(),
                totals: Totals::default(),
                now_seconds,
            },
            hidden,
            order,
            open: Vec::new(),
        };
        growing.grow();
        let Growing { mut tree, hidden, .. } = growing;
        tree.date_folders();
        tree.nodes.shrink_to_fit();
        (tree, hidden)
    }
}

/// A child of a folder before it has a number.
struct NewChild {
    object: u32,
    name_start: u16,
    name_length: u16,
    /// For a folder: its content, as a range of the order.
    below: Option<Range<usize>>,
}

/// A folder whose children have no numbers yet.
struct OpenFolder {
    node: u32,
    below: Range<usize>,
    /// Length of its path in bytes, including the final slash.
    depth: usize,
}

struct Growing {
    tree: Tree,
    hidden: Hidden,
    /// Objects by path.
    order: Vec<u32>,
    open: Vec<OpenFolder>,
}

impl Growing {
    /// Breadth first, so that a folder's children are contiguous.
    fn grow(&mut self) {
        let root = Node { object: 0, folder: 0, parent: 0, name_start: 0, name_length: 0 };
        self.tree.nodes.push(root);
        self.tree.folders.push(Folder { first: 0, count: 0, seconds: i64::MIN });
        self.open.push(OpenFolder { node: 0, below: 0..self.order.len(), depth: 0 });
        let mut level = Vec::new();
        while !self.open.is_empty() {
            std::mem::swap(&mut level, &mut self.open);
            for folder in level.drain(..) {
                let children = self.children(&folder);
                self.number(&folder, children);
            }
        }
        self.tree.totals.folders = self.tree.folders.len() as u64;
    }

    /// The children of a folder, by name. Of equal names the first file stays.
    fn children(&mut self, folder: &OpenFolder) -> Vec<NewChild> {
        let mut children: Vec<NewChild> = Vec::new();
        let objects = &self.tree.objects;
        let mut at = folder.below.start;
        while at < folder.below.end {
            let object = self.order[at];
            let start = at;
            let rest = &objects.path(object)[folder.depth..];
            let name_length = rest.find('/').unwrap_or(rest.len());
            at += 1;
            // The marker object of the folder itself.
            if rest.is_empty() {
                continue;
            }
            let below = (name_length < rest.len()).then(|| {
                let with_slash = &objects.path(object)[..=folder.depth + name_length];
                while at < folder.below.end && objects.path(self.order[at]).starts_with(with_slash)
                {
                    at += 1;
                }
                start..at
            });
            let name_start = objects.path_start(object) + folder.depth;
            let short = |length: usize| u16::try_from(length).expect("keys are short");
            children.push(NewChild {
                object,
                name_start: short(name_start),
                name_length: short(name_length),
                below,
            });
        }
        let name = |child: &NewChild| {
            let start = usize::from(child.name_start);
            &objects.key(child.object).0[start..start + usize::from(child.name_length)]
        };
        children.sort_by(|one, other| name(one).cmp(name(other)));
        let hidden = &mut self.hidden;
        let order = &self.order;
        // The sort is stable, and a file precedes the folder of its name.
        children.dedup_by(|later, first| {
            let alike = name(later) == name(first);
            if alike {
                let problem = match later.below {
                    Some(_) => PathProblem::FileAndFolder { file: 0, below: 0 },
                    None => PathProblem::Duplicate { first: 0, again: 0 },
                };
                match &later.below {
                    Some(below) => order[below.clone()]
                        .iter()
                        .for_each(|object| hidden.add(objects.key(*object).0, problem)),
                    None => hidden.add(objects.key(later.object).0, problem),
                }
            }
            alike
        });
        children
    }

    fn number(&mut self, folder: &OpenFolder, children: Vec<NewChild>) {
        let tree = &mut self.tree;
        let short = |length: usize| u32::try_from(length).expect("as many as objects");
        let first = short(tree.nodes.len());
        let place = tree.nodes[folder.node as usize].folder as usize;
        tree.folders[place] = Folder { first, count: short(children.len()), seconds: i64::MIN };
        for NewChild { object, name_start, name_length, below } in children {
            let number = short(tree.nodes.len());
            let child = match below {
                None => {
                    let size_bytes = tree.objects.key(object).1;
                    tree.totals.files += 1;
                    tree.totals.bytes = tree.totals.bytes.saturating_add(size_bytes);
                    tree.totals.blocks += size_bytes.div_ceil(BLOCK_BYTES);
                    NO_FOLDER
                }
                Some(below) => {
                    let depth = folder.depth + usize::from(name_length) + 1;
                    self.open.push(OpenFolder { node: number, below, depth });
                    tree.folders.push(Folder { first: 0, count: 0, seconds: i64::MIN });
                    short(tree.folders.len() - 1)
                }
            };
            let parent = folder.node;
            tree.nodes.push(Node { object, folder: child, parent, name_start, name_length });
        }
    }
}

/// All names and their objects.
#[derive(Debug)]
pub struct Tree {
    objects: KeptListing,
    nodes: Vec<Node>,
    folders: Vec<Folder>,
    totals: Totals,
    now_seconds: i64,
}

impl Tree {
    /// A folder is as new as its newest content.
    fn date_folders(&mut self) {
        // Children follow their parents.
        for place in (0..self.nodes.len()).rev() {
            let node = self.nodes[place];
            let seconds = match self.folders.get(node.folder as usize) {
                Some(folder) => folder.seconds,
                None => self.objects.seconds(node.object).unwrap_or(i64::MIN),
            };
            let parent = self.nodes[node.parent as usize].folder as usize;
            let parent = &mut self.folders[parent];
            parent.seconds = parent.seconds.max(seconds);
        }
        for folder in &mut self.folders {
            if folder.seconds == i64::MIN {
                folder.seconds = self.now_seconds;
            }
        }
    }

    fn node(&self, inode: Inode) -> Option<Node> {
        let place = usize::try_from(inode.checked_sub(ROOT)?).ok()?;
        self.nodes.get(place).copied()
    }

    fn name_of(&self, node: Node) -> &str {
        let start = usize::from(node.name_start);
        &self.objects.key(node.object).0[start..start + usize::from(node.name_length)]
    }

    /// Number of inodes; they start at [`ROOT`].
    #[must_use]
    pub fn count(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Totals of the tree.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Attributes of an inode.
    #[must_use]
    pub fn facts(&self, inode: Inode) -> Option<Facts> {
        let node = self.node(inode)?;
        let (kind, seconds) = match self.folders.get(node.folder as usize) {
            Some(folder) => (Kind::Folder, folder.seconds),
            None => {
                let size_bytes = self.objects.key(node.object).1;
                let seconds = self.objects.seconds(node.object);
                (Kind::File { size_bytes }, seconds.unwrap_or(self.now_seconds))
            }
        };
        Some(Facts { inode, kind, seconds })
    }

    /// The child of this name.
    #[must_use]
    pub fn lookup(&self, parent: Inode, name: &[u8]) -> Option<Inode> {
        let children = self.children(parent)?;
        let place = |inode: Inode| usize::try_from(inode - ROOT).expect("it is in memory");
        let nodes = &self.nodes[place(children.start)..place(children.end)];
        let found = nodes.binary_search_by(|node| self.name_of(*node).as_bytes().cmp(name)).ok()?;
        Some(children.start + found as u64)
    }

    /// The child of this name, found at once if it follows this one: names that are looked up in
    /// their order need no search.
    #[must_use]
    pub fn lookup_behind(&self, parent: Inode, name: &[u8], before: Inode) -> Option<Inode> {
        let next = before + 1;
        let is_child =
            |inode: Inode| self.node(inode).is_some_and(|_| self.parent(inode) == parent);
        match next > ROOT && is_child(next) && self.name(next).as_bytes() == name {
            true => Some(next),
            false => self.lookup(parent, name),
        }
    }

    /// The children of a folder, by name; `None` if it is not a folder.
    #[must_use]
    pub fn children(&self, inode: Inode) -> Option<Range<Inode>> {
        let folder = self.folders.get(self.node(inode)?.folder as usize)?;
        let first = u64::from(folder.first) + ROOT;
        Some(first..first + u64::from(folder.count))
    }

    /// The name of an inode; empty for the top folder.
    ///
    /// # Panics
    /// If there is no such inode.
    #[must_use]
    pub fn name(&self, inode: Inode) -> &str {
        self.name_of(self.node(inode).expect("an inode of this tree"))
    }

    /// The parent folder.
    ///
    /// # Panics
    /// If there is no such inode.
    #[must_use]
    pub fn parent(&self, inode: Inode) -> Inode {
        u64::from(self.node(inode).expect("an inode of this tree").parent) + ROOT
    }

    /// The key prefix of a folder, including the slash; `None` for a file, and for the top folder,
    /// whose keys may have no common prefix.
    #[must_use]
    pub fn folder_key(&self, inode: Inode) -> Option<&str> {
        let node = self.node(inode).filter(|node| node.folder != NO_FOLDER && inode != ROOT)?;
        let end = usize::from(node.name_start) + usize::from(node.name_length);
        Some(&self.objects.key(node.object).0[..=end])
    }

    /// The object of a file, and its endpoint.
    #[must_use]
    pub fn object(&self, inode: Inode) -> Option<(Object, Arc<Endpoint>)> {
        let node = self.node(inode).filter(|node| node.folder == NO_FOLDER)?;
        let endpoint = Arc::clone(self.objects.endpoint(node.object));
        Some((self.objects.object(node.object).0, endpoint))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::splitmix::SplitMix64;

    fn object(key: &str, size_bytes: u64, last_modified: &str) -> Object {
        Object {
            key: key.to_owned(),
            etag: "\"0123456789abcdef0123456789abcdef\"".to_owned(),
            size_bytes,
            last_modified: last_modified.to_owned(),
            ..Object::default()
        }
    }

    fn of(keys: &[&str]) -> (Tree, Hidden) {
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let mut builder = Builder::default();
        for key in keys {
            let size = if key.ends_with('/') { 0 } else { key.len() as u64 };
            builder.add(&object(key, size, ""), &endpoint, 2).expect("short");
        }
        builder.finish(77)
    }

    fn names(tree: &Tree, inode: Inode) -> Vec<String> {
        let children = tree.children(inode).expect("a folder");
        children.map(|child| tree.name(child).to_owned()).collect()
    }

    fn find(tree: &Tree, path: &str) -> Option<Inode> {
        path.split('/').try_fold(ROOT, |inode, name| tree.lookup(inode, name.as_bytes()))
    }

    #[test]
    fn names_stand_in_their_order_whatever_the_listings_is() {
        // In a listing, `a-b` precedes `a/x`.
        let (tree, hidden) = of(&["p/a-b", "p/a/x", "p/a/y/z", "p/ü", "p/B"]);
        assert_eq!(hidden.count(), 0);
        assert_eq!(names(&tree, ROOT), ["B", "a", "a-b", "ü"]);
        assert_eq!(names(&tree, find(&tree, "a").expect("a folder")), ["x", "y"]);
        let z = find(&tree, "a/y/z").expect("a file");
        assert_eq!(tree.facts(z).map(|facts| facts.kind), Some(Kind::File { size_bytes: 7 }));
        assert_eq!(tree.object(z).map(|(object, _)| object.key), Some("p/a/y/z".to_owned()));
        let y = tree.parent(z);
        assert_eq!((tree.name(y), tree.parent(tree.parent(y))), ("y", ROOT));
        assert!(tree.object(y).is_none() && tree.children(z).is_none());
        assert!(find(&tree, "a/nothing").is_none() && tree.lookup(z, b"z").is_none());
        assert!(tree.facts(0).is_none() && tree.facts(9).is_none());
        let totals = Totals { files: 5, folders: 3, bytes: 5 + 5 + 7 + 4 + 3, blocks: 5 };
        assert_eq!(tree.totals(), totals);
        let (again, _) = of(&["p/B", "p/ü", "p/a/y/z", "p/a/x", "p/a-b"]);
        assert_eq!(find(&again, "a/y/z"), Some(z), "its number does not depend on the order");
    }

    #[test]
    fn an_empty_folder_is_there_by_its_mark_and_nothing_by_nothing() {
        let (tree, hidden) = of(&["p/", "p/e/", "p/f/", "p/f/x"]);
        assert_eq!(hidden.count(), 0);
        assert_eq!(names(&tree, ROOT), ["e", "f"]);
        assert_eq!(names(&tree, find(&tree, "e").expect("a folder")), Vec::<String>::new());
        assert_eq!(names(&tree, find(&tree, "f").expect("a folder")), ["x"]);
        assert_eq!(tree.totals(), Totals { files: 1, folders: 3, bytes: 5, blocks: 1 });
        let (empty, _) = of(&[]);
        assert_eq!(names(&empty, ROOT), Vec::<String>::new());
        assert_eq!(empty.facts(ROOT).map(|facts| facts.seconds), Some(77));
    }

    #[test]
    fn a_file_hides_the_folder_of_its_name_and_all_below_it() {
        let (tree, hidden) = of(&["p/a", "p/a-b", "p/a/b", "p/a/c/d", "p/z", "p/z"]);
        assert_eq!(names(&tree, ROOT), ["a", "a-b", "z"]);
        let keys: Vec<&str> = hidden.keys().iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!((keys, hidden.count()), (vec!["p/a/b", "p/a/c/d", "p/z"], 3));
        assert_eq!(hidden.repeated(), 1);
        assert_eq!(hidden.keys()[0].1, PathProblem::FileAndFolder { file: 0, below: 0 });
        assert_eq!(hidden.keys()[2].1, PathProblem::Duplicate { first: 0, again: 0 });
        assert_eq!(tree.totals().files, 3);
    }

    #[test]
    fn folders_are_as_new_as_what_is_in_them() {
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let mut builder = Builder::default();
        for (key, time) in [
            ("a/b/new", "2024-01-01T00:00:00.000Z"),
            ("a/old", "2001-01-01T00:00:00.500Z"),
            ("c/none", ""),
        ] {
            builder.add(&object(key, 1, time), &endpoint, 0).expect("short");
        }
        let (tree, _) = builder.finish(77);
        let seconds = |path| tree.facts(find(&tree, path).expect(path)).expect(path).seconds;
        assert_eq!(
            (seconds("a"), seconds("a/b"), seconds("a/old")),
            (1704067200, 1704067200, 978307200)
        );
        assert_eq!((seconds("c"), seconds("c/none")), (77, 77));
        assert_eq!(tree.facts(ROOT).map(|facts| facts.seconds), Some(1704067200));
    }

    #[test]
    fn any_set_of_paths_is_found_again() {
        for seed in 0..200 {
            let mut random = SplitMix64(seed);
            let mut below = |most: u64| random.next_word() % most;
            let mut paths = BTreeMap::new();
            for _ in 0..below(60) {
                let depth = below(4) + 1;
                let names = ["a", "b", "a-", "a.b", "ä", "0"];
                let names = (0..depth).map(|_| names[usize::try_from(below(6)).expect("below 6")]);
                paths.insert(names.collect::<Vec<_>>().join("/"), below(10_000));
            }
            let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
            let mut builder = Builder::default();
            for (path, size) in &paths {
                builder.add(&object(path, *size, ""), &endpoint, 0).expect("short");
            }
            let (tree, hidden) = builder.finish(0);
            let is_file = |path: &str| paths.contains_key(path);
            let is_below_file =
                |path: &str| path.match_indices('/').any(|(at, _)| is_file(&path[..at]));
            let mut seen = 0;
            for (path, size) in &paths {
                let found = find(&tree, path);
                if is_below_file(path) {
                    assert_eq!(found, None, "{seed}: {path}");
                    seen += 1;
                    continue;
                }
                let facts = tree.facts(found.expect(path)).expect(path);
                assert_eq!(facts.kind, Kind::File { size_bytes: *size }, "{seed}: {path}");
            }
            assert_eq!(hidden.count(), seen, "{seed}");
            assert_eq!(tree.totals().files + seen, paths.len() as u64, "{seed}");
            for inode in ROOT.. {
                if tree.facts(inode).is_none() {
                    break;
                }
                let names = tree.children(inode).map(|_| names(&tree, inode)).unwrap_or_default();
                assert!(names.is_sorted(), "{seed}: {names:?}");
                for name in names {
                    let child = tree.lookup(inode, name.as_bytes()).expect("listed");
                    for before in [0, ROOT, child - 1, child, child + 1, ADDED_FROM] {
                        let found = tree.lookup_behind(inode, name.as_bytes(), before);
                        assert_eq!(found, Some(child), "{seed}: behind {before}");
                    }
                    assert_eq!((tree.name(child), tree.parent(child)), (name.as_str(), inode));
                }
            }
        }
    }
}
