//! Names of a mount whose folders are listed on first use, one level at a time, each once.
//!
//! A folder's content is a [`Tree`] of one level whose subfolders are empty. Its inode numbers
//! follow those of all earlier levels, so they are dense within a level and never reused. The first
//! caller that needs an unlisted folder starts the listing; others wait for it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::mount::tree::{Builder, Facts, Hidden, Inode, Kind, ROOT, Totals, Tree};
use crate::plan::path::{PathProblem, RelativePath};
use crate::s3::list::Page;
use crate::s3::uri::shown;
use crate::s3::{Endpoint, Object};

/// First inode number of versions that replace objects; names use smaller numbers.
pub const VERSIONS_FROM: Inode = 1 << 48;

/// The folder is not listed: see [`Lazy::wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlisted;

/// Outcome of waiting for a folder's listing.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn<W> {
    /// The first waiter: it must start the listing.
    First,
    /// A listing is in progress.
    Later,
    /// The folder is listed; the waiter is returned.
    Listed(W),
}

/// State of a folder that was requested.
#[derive(Debug)]
enum FolderState<W> {
    /// Being listed; these wait for it.
    Listing(Vec<W>),
    /// Listed; the index of its level.
    Listed(usize),
}

/// Content of one folder.
#[derive(Debug, Clone)]
pub struct Level {
    folder: Inode,
    /// Inode number of its first child.
    first: Inode,
    tree: Arc<Tree>,
}

impl Level {
    /// A child's number in this level's own tree.
    fn own(&self, inode: Inode) -> Option<Inode> {
        let own = inode.checked_sub(self.first)? + ROOT + 1;
        (own < ROOT + self.tree.count()).then_some(own)
    }

    /// The folder.
    #[must_use]
    pub const fn folder(&self) -> Inode {
        self.folder
    }

    /// Its children, in the order of their names.
    #[must_use]
    pub fn children(&self) -> Range<Inode> {
        self.first..self.first + (self.tree.count() - 1)
    }

    /// The child of this name.
    #[must_use]
    pub fn lookup(&self, name: &[u8]) -> Option<Inode> {
        self.tree.lookup(ROOT, name).map(|own| own - ROOT - 1 + self.first)
    }

    /// The name of a child.
    ///
    /// # Panics
    /// If there is no such child.
    #[must_use]
    pub fn name(&self, child: Inode) -> &str {
        self.tree.name(self.own(child).expect("a child of this folder"))
    }
}

/// All known names. `W` identifies a waiter.
#[derive(Debug)]
pub struct Lazy<W> {
    /// Key prefix of the top folder.
    prefix: String,
    /// Time of the mount, which is the time of all folders.
    seconds: i64,
    /// The folders, in the order of their inode numbers.
    levels: Vec<Level>,
    /// The states of the folders that were requested.
    states: HashMap<Inode, FolderState<W>>,
    /// First unused inode number.
    next: Inode,
    totals: Totals,
    hidden: u64,
}

impl<W> Lazy<W> {
    /// Only the top folder, with this key prefix.
    #[must_use]
    pub fn new(prefix: String, seconds: i64) -> Self {
        Self {
            prefix,
            seconds,
            levels: Vec::new(),
            states: HashMap::new(),
            next: ROOT + 1,
            totals: Totals { folders: 1, ..Totals::default() },
            hidden: 0,
        }
    }

    /// Time of the mount, in seconds since the Epoch.
    #[must_use]
    pub const fn seconds(&self) -> i64 {
        self.seconds
    }

    /// Totals of everything known so far.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Known keys that are hidden; a hidden folder counts as one.
    #[must_use]
    pub const fn hidden(&self) -> u64 {
        self.hidden
    }

    /// The level of an inode, and its number there; `None` for the top folder and unknown inodes.
    fn place(&self, inode: Inode) -> Option<(&Level, Inode)> {
        // An empty level starts at the same number as the next one.
        let behind = self.levels.partition_point(|level| level.first <= inode);
        let level = self.levels.get(behind.checked_sub(1)?)?;
        Some((level, level.own(inode)?))
    }

    /// Attributes of an inode.
    #[must_use]
    pub fn facts(&self, inode: Inode) -> Option<Facts> {
        if inode == ROOT {
            return Some(Facts { inode, kind: Kind::Folder, seconds: self.seconds });
        }
        let (level, own) = self.place(inode)?;
        Some(Facts { inode, ..level.tree.facts(own)? })
    }

    /// The content of a folder; `None` if it is not a folder.
    ///
    /// # Errors
    /// If it is not listed.
    pub fn level(&self, folder: Inode) -> Result<Option<Level>, Unlisted> {
        match self.states.get(&folder) {
            Some(FolderState::Listed(place)) => Ok(Some(self.levels[*place].clone())),
            Some(FolderState::Listing(_)) => Err(Unlisted),
            None if self.facts(folder).is_some_and(|facts| facts.kind == Kind::Folder) => {
                Err(Unlisted)
            }
            None => Ok(None),
        }
    }

    /// The child of this name.
    ///
    /// # Errors
    /// If the folder is not listed.
    pub fn lookup(&self, parent: Inode, name: &[u8]) -> Result<Option<Inode>, Unlisted> {
        match self.states.get(&parent) {
            Some(FolderState::Listed(place)) => Ok(self.levels[*place].lookup(name)),
            _ => self.level(parent).map(|_| None),
        }
    }

    /// The name of an inode; empty for the top folder.
    ///
    /// # Panics
    /// If there is no such inode.
    #[must_use]
    pub fn name(&self, inode: Inode) -> &str {
        if inode == ROOT {
            return "";
        }
        let (level, own) = self.place(inode).expect("an inode of this mount");
        level.tree.name(own)
    }

    /// The parent folder.
    ///
    /// # Panics
    /// If there is no such inode.
    #[must_use]
    pub fn parent(&self, inode: Inode) -> Inode {
        if inode == ROOT {
            return ROOT;
        }
        self.place(inode).expect("an inode of this mount").0.folder
    }

    /// The object of a file, and its endpoint.
    #[must_use]
    pub fn object(&self, inode: Inode) -> Option<(Object, Arc<Endpoint>)> {
        let (level, own) = self.place(inode)?;
        level.tree.object(own)
    }

    /// The key prefix of a folder; `None` if it is not a folder.
    #[must_use]
    pub fn folder_key(&self, folder: Inode) -> Option<&str> {
        if folder == ROOT {
            return Some(&self.prefix);
        }
        let (level, own) = self.place(folder)?;
        level.tree.folder_key(own)
    }

    /// Waits for a folder's listing. The first waiter must list it and report the result to
    /// [`Self::listed`] or [`Self::failed`].
    pub fn wait(&mut self, folder: Inode, waiter: W) -> Turn<W> {
        match self.states.get_mut(&folder) {
            Some(FolderState::Listed(_)) => Turn::Listed(waiter),
            Some(FolderState::Listing(waiting)) => {
                waiting.push(waiter);
                Turn::Later
            }
            None => {
                self.states.insert(folder, FolderState::Listing(vec![waiter]));
                Turn::First
            }
        }
    }

    /// Takes a folder's content. Returns the waiters.
    pub fn listed(&mut self, folder: Inode, content: (Tree, Hidden)) -> Vec<W> {
        let (tree, hidden) = content;
        // Only the first waiter lists it.
        let Some(waiting) = self.end_listing(folder) else { return Vec::new() };
        let level = Level { folder, first: self.next, tree: Arc::new(tree) };
        let of = level.tree.totals();
        self.next = level.children().end;
        self.totals.files += of.files;
        // The folder itself was counted as a child.
        self.totals.folders += of.folders - 1;
        self.totals.bytes = self.totals.bytes.saturating_add(of.bytes);
        self.totals.blocks = self.totals.blocks.saturating_add(of.blocks);
        self.hidden += hidden.count();
        self.states.insert(folder, FolderState::Listed(self.levels.len()));
        self.levels.push(level);
        waiting
    }

    /// A folder could not be listed; the next waiter tries again. Returns the waiters.
    pub fn failed(&mut self, folder: Inode) -> Vec<W> {
        self.end_listing(folder).unwrap_or_default()
    }

    /// Ends the listing of a folder; returns its waiters.
    fn end_listing(&mut self, folder: Inode) -> Option<Vec<W>> {
        let FolderState::Listing(waiting) = self.states.get_mut(&folder)? else { return None };
        let waiting = std::mem::take(waiting);
        self.states.remove(&folder);
        Some(waiting)
    }
}

/// Collects the pages of a listing of one level.
#[derive(Debug)]
pub struct Content {
    builder: Builder,
    prefix: String,
    endpoint: Arc<Endpoint>,
}

impl Content {
    /// For the folder of this key prefix.
    #[must_use]
    pub fn new(prefix: String, endpoint: Arc<Endpoint>) -> Self {
        Self { builder: Builder::default(), prefix, endpoint }
    }

    /// Takes a page.
    ///
    /// # Errors
    /// [`ErrorKind::Endpoint`] if it has keys outside the folder.
    pub fn add(&mut self, page: Page) -> Result<()> {
        for object in &page.objects {
            self.take(object)?;
        }
        for key in page.folders {
            self.take(&Object { key, ..Object::default() })?;
        }
        Ok(())
    }

    fn take(&mut self, object: &Object) -> Result<()> {
        let key = object.key.as_str();
        let relative = key.strip_prefix(&self.prefix);
        let name = relative.map(|relative| relative.strip_suffix('/').unwrap_or(relative));
        let (Some(relative), Some(name)) = (relative, name.filter(|name| !name.contains('/')))
        else {
            let message = format!("the server returned '{}', which was not requested", shown(key));
            return Err(Error::new(ErrorKind::Endpoint, message));
        };
        // The marker object of the folder itself.
        if relative.is_empty() && object.size_bytes == 0 {
            return Ok(());
        }
        let is_folder = relative.is_empty() || relative.ends_with('/');
        let problem = match is_folder && object.size_bytes > 0 {
            true => Some(PathProblem::FolderWithBytes),
            false => RelativePath::parse(name).err(),
        };
        match problem {
            Some(problem) => self.builder.hide(key, problem),
            None => self.builder.add(object, &self.endpoint, self.prefix.len())?,
        }
        Ok(())
    }

    /// Builds the level; entries without a time get `seconds`.
    #[must_use]
    pub fn finish(self, seconds: i64) -> (Tree, Hidden) {
        self.builder.finish(seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::plan::splitmix::SplitMix64;

    const PREFIX: &str = "p/";
    const NOW: i64 = 77;

    fn endpoint() -> Arc<Endpoint> {
        Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]))
    }

    fn object(key: &str, size_bytes: u64) -> Object {
        Object { key: key.to_owned(), size_bytes, ..Object::default() }
    }

    /// A server's listing of one level, in pages.
    fn level(keys: &BTreeMap<String, u64>, prefix: &str, length: usize) -> Vec<Page> {
        let mut folders = BTreeSet::new();
        let mut pages = vec![Page::default()];
        for (key, size) in keys.iter().filter(|(key, _)| key.starts_with(prefix)) {
            let page = pages.last_mut().expect("one at least");
            match key[prefix.len()..].find('/') {
                None => page.objects.push(object(key, *size)),
                Some(at) => {
                    let folder = key[..=prefix.len() + at].to_owned();
                    if folders.insert(folder.clone()) {
                        page.folders.push(folder);
                    }
                }
            }
            if page.objects.len() + page.folders.len() == length {
                pages.push(Page::default());
            }
        }
        pages
    }

    fn content(keys: &BTreeMap<String, u64>, prefix: &str, length: usize) -> (Tree, Hidden) {
        let mut content = Content::new(prefix.to_owned(), endpoint());
        for page in level(keys, prefix, length) {
            content.add(page).expect("what was requested");
        }
        content.finish(NOW)
    }

    /// All names, listed in advance.
    fn whole(keys: &BTreeMap<String, u64>) -> (Tree, Hidden) {
        let mut builder = Builder::default();
        let endpoint = endpoint();
        for (key, size) in keys {
            let path = &key[PREFIX.len()..];
            if path.is_empty() {
                if *size > 0 {
                    builder.hide(key, PathProblem::FolderWithBytes);
                }
                continue;
            }
            match RelativePath::parse(path.strip_suffix('/').unwrap_or(path)) {
                Ok(_) if path.ends_with('/') && *size > 0 => {
                    builder.hide(key, PathProblem::FolderWithBytes);
                }
                Ok(_) => builder.add(&object(key, *size), &endpoint, PREFIX.len()).expect("short"),
                Err(problem) => builder.hide(key, problem),
            }
        }
        builder.finish(NOW)
    }

    fn paths(tree: &Tree) -> BTreeMap<String, Kind> {
        let mut all = BTreeMap::new();
        let mut open = vec![(ROOT, String::new())];
        while let Some((folder, below)) = open.pop() {
            for child in tree.children(folder).expect("a folder") {
                let path = format!("{below}{}", tree.name(child));
                let kind = tree.facts(child).expect("it is there").kind;
                if kind == Kind::Folder {
                    open.push((child, format!("{path}/")));
                }
                all.insert(path, kind);
            }
        }
        all
    }

    fn below(random: &mut SplitMix64, most: u64) -> u64 {
        random.next_word() % most
    }

    fn keys(random: &mut SplitMix64) -> BTreeMap<String, u64> {
        let long = "x".repeat(256);
        let names = ["a", "b", "a-b", "a.", "B", "ü", "", ".", "..", ".inrush-index", &long];
        let count = below(random, 60);
        let mut keys = BTreeMap::new();
        for _ in 0..count {
            let depth = 1 + below(random, 4);
            // Most have a name.
            let kinds = if below(random, 4) == 0 { names.len() as u64 } else { 6 };
            let mut name = |_| names[usize::try_from(below(random, kinds)).expect("few")];
            let path: Vec<&str> = (0..depth).map(&mut name).collect();
            let mark = if below(random, 5) == 0 { "/" } else { "" };
            let size = if below(random, 4) == 0 { 1 + below(random, 2_000) } else { 0 };
            let size = if mark.is_empty() { 1 + below(random, 2_000) } else { size };
            keys.insert(format!("{PREFIX}{}{mark}", path.join("/")), size);
        }
        keys
    }

    /// Lists all folders in random order, each for several waiters.
    fn grown(keys: &BTreeMap<String, u64>, random: &mut SplitMix64) -> Lazy<u64> {
        let mut lazy = Lazy::new(PREFIX.to_owned(), NOW);
        let mut unlisted = vec![ROOT];
        let mut answered = BTreeMap::<u64, u32>::new();
        let mut waiters = 0;
        while !unlisted.is_empty() {
            let place = usize::try_from(below(random, unlisted.len() as u64)).expect("few");
            let folder = unlisted.swap_remove(place);
            assert_eq!(lazy.lookup(folder, b"a"), Err(Unlisted));
            assert_eq!(lazy.level(folder).err(), Some(Unlisted));
            let mut fails = below(random, 3) == 0;
            loop {
                let those = waiters..waiters + 1 + below(random, 3);
                waiters = those.end;
                for (number, waiter) in those.enumerate() {
                    let expected = if number == 0 { Turn::First } else { Turn::Later };
                    assert_eq!(lazy.wait(folder, waiter), expected);
                }
                assert_eq!(lazy.lookup(folder, b"a"), Err(Unlisted), "it is being listed");
                let waiters = match fails {
                    true => lazy.failed(folder),
                    false => {
                        let prefix = lazy.folder_key(folder).expect("a folder").to_owned();
                        let length = usize::try_from(1 + below(random, 5)).expect("few");
                        lazy.listed(folder, content(keys, &prefix, length))
                    }
                };
                waiters.into_iter().for_each(|waiter| *answered.entry(waiter).or_default() += 1);
                if !std::mem::take(&mut fails) {
                    break;
                }
            }
            assert_eq!(lazy.wait(folder, u64::MAX), Turn::Listed(u64::MAX));
            assert_eq!((lazy.failed(folder), lazy.listed(folder, whole(keys))), (vec![], vec![]));
            let children = lazy.level(folder).expect("listed").expect("a folder").children();
            let is_folder = |child: &Inode| lazy.facts(*child).expect("there").kind == Kind::Folder;
            unlisted.extend(children.filter(is_folder));
        }
        let once: BTreeMap<u64, u32> = (0..waiters).map(|waiter| (waiter, 1)).collect();
        assert_eq!(answered, once, "each is answered once");
        lazy
    }

    /// All paths and their kinds; every number is used once, and leads to where it came from.
    fn grown_paths(lazy: &Lazy<u64>) -> BTreeMap<String, Kind> {
        let mut all = BTreeMap::new();
        let mut numbers = BTreeSet::from([ROOT]);
        let mut open = vec![(ROOT, String::new())];
        while let Some((folder, below)) = open.pop() {
            let level = lazy.level(folder).expect("listed").expect("a folder");
            assert_eq!(level.folder(), folder);
            let mut last = String::new();
            for child in level.children() {
                assert!(numbers.insert(child), "{child} is there twice");
                let name = lazy.name(child);
                assert!(last.as_str() < name, "in the order of names, each once");
                name.clone_into(&mut last);
                assert_eq!((level.name(child), level.lookup(name.as_bytes())), (name, Some(child)));
                assert_eq!(lazy.lookup(folder, name.as_bytes()), Ok(Some(child)));
                assert_eq!(lazy.parent(child), folder);
                let facts = lazy.facts(child).expect("it is there");
                assert_eq!((facts.inode, facts.seconds), (child, NOW));
                let path = format!("{below}{name}");
                let key = format!("{PREFIX}{path}");
                match facts.kind {
                    Kind::Folder => {
                        assert_eq!(lazy.folder_key(child), Some(format!("{key}/").as_str()));
                        assert!(lazy.object(child).is_none());
                        open.push((child, format!("{path}/")));
                    }
                    Kind::File { size_bytes } => {
                        let (object, _) = lazy.object(child).expect("a file");
                        assert_eq!((&object.key, object.size_bytes), (&key, size_bytes));
                        assert_eq!(lazy.folder_key(child), None);
                        assert_eq!(lazy.lookup(child, b"a"), Ok(None), "it is no folder");
                    }
                }
                all.insert(path, facts.kind);
            }
            assert_eq!(lazy.lookup(folder, b"nothing"), Ok(None));
        }
        let count = numbers.len() as u64;
        assert_eq!(numbers.last(), Some(&(ROOT + count - 1)), "they are dense");
        assert_eq!((lazy.facts(ROOT + count), lazy.facts(0)), (None, None));
        assert_eq!(lazy.facts(VERSIONS_FROM), None);
        all
    }

    /// Hidden keys by path; everything below a hidden folder counts as one.
    fn hidden_at(keys: &BTreeMap<String, u64>) -> BTreeSet<String> {
        let mut hidden = BTreeSet::new();
        for (key, size) in keys {
            let path = &key[PREFIX.len()..];
            let (mut at, mut rest) = (PREFIX.len(), path);
            if path.is_empty() && *size > 0 {
                hidden.insert(key.clone());
            }
            while let Some((name, below)) = rest.split_once('/') {
                let folder = &key[..=at + name.len()];
                let is_file = keys.contains_key(&key[..at + name.len()]);
                if is_file || RelativePath::parse(name).is_err() {
                    hidden.insert(folder.to_owned());
                    break;
                }
                (at, rest) = (at + name.len() + 1, below);
                // The folder's own marker, which cannot be a file.
                if rest.is_empty() && *size > 0 {
                    hidden.insert(key.clone());
                }
            }
            if !rest.is_empty() && !rest.contains('/') && RelativePath::parse(rest).is_err() {
                hidden.insert(key.clone());
            }
        }
        hidden
    }

    #[test]
    fn levels_in_any_order_are_the_whole_tree() {
        let mut shown = 0;
        for seed in 0..300 {
            let mut random = SplitMix64(seed);
            let keys = keys(&mut random);
            let lazy = grown(&keys, &mut random);
            let (tree, hidden) = whole(&keys);
            let (all, expected) = (grown_paths(&lazy), paths(&tree));
            for (path, kind) in &expected {
                assert_eq!(all.get(path), Some(kind), "seed {seed}: {path}");
            }
            // It is not known in advance that all of a folder's content is hidden.
            for (path, kind) in all.iter().filter(|(path, _)| !expected.contains_key(*path)) {
                assert_eq!(*kind, Kind::Folder, "seed {seed}: {path}");
            }
            let (known, listed) = (lazy.totals(), tree.totals());
            assert_eq!((known.files, known.bytes), (listed.files, listed.bytes), "seed {seed}");
            assert_eq!(known.blocks, listed.blocks, "seed {seed}");
            let folders = all.values().filter(|kind| **kind == Kind::Folder).count() as u64;
            assert_eq!(known.folders, folders + 1, "seed {seed}");
            let at = hidden_at(&keys);
            assert_eq!(lazy.hidden(), at.len() as u64, "seed {seed}: {at:?}");
            assert_eq!(lazy.hidden() > 0, hidden.count() > 0, "seed {seed}");
            shown += expected.len();
        }
        assert!(shown > 3_000, "{shown} names are too few to judge");
    }

    #[test]
    fn what_was_not_requested_is_refused() {
        let add = |page: Page| Content::new("p/".to_owned(), endpoint()).add(page);
        for key in ["q", "p", "p/a/b", "p/a/b/"] {
            let page = Page { objects: vec![object(key, 1)], ..Page::default() };
            let error = add(page).expect_err(key).to_string();
            assert!(error.contains(&format!("'{key}', which was not requested")), "{error}");
        }
        for folder in ["q/", "p/a/b/"] {
            add(Page { folders: vec![folder.to_owned()], ..Page::default() }).expect_err(folder);
        }
        // Some servers list the folder's own marker, too.
        let mut content = Content::new("p/".to_owned(), endpoint());
        let (objects, folders) = (vec![object("p/a/", 0)], vec!["p/a/".to_owned()]);
        content.add(Page { objects, folders, next_token: None }).expect("both are the folder");
        let (tree, hidden) = content.finish(NOW);
        assert_eq!((tree.totals().folders, hidden.count()), (2, 0));
    }
}
