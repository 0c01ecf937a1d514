//! One listing after the first, entry by entry: what it adds, replaces and no longer has.
//!
//! Entries that agree with what is known cost one bit each. What the listing does not have is known
//! only at its end ([`Refresh::finish`]); a listing that fails before has removed nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{AddedName, Alike, Changes};
use crate::limits::BLOCK_BYTES;
use crate::mount::tree::{ADDED_FROM, Inode, Kind, ROOT, Totals, Tree};
use crate::mount::versions::{Current, Versions};
use crate::s3::{Endpoint, Object};

/// Everything that is known of a mount's names.
#[derive(Debug)]
pub struct KnownNames<'a> {
    /// The first listing.
    pub tree: &'a Tree,
    /// What was added to it, and the folders that are gone.
    pub changes: &'a mut Changes,
    /// What its files lead to.
    pub versions: &'a mut Versions,
}

/// An entry of a listing.
#[derive(Debug, Clone)]
pub struct Relisted {
    /// Its path, without a slash at its end.
    pub path: String,
    /// It marks a folder.
    pub is_folder: bool,
    /// The object.
    pub object: Object,
    /// The endpoint of its bucket.
    pub endpoint: Arc<Endpoint>,
}

/// What a listing has changed: numbers of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefreshCounts {
    /// Files that were not there before.
    pub new: u64,
    /// Files of another version.
    pub replaced: u64,
    /// Files that are not there any more.
    pub gone: u64,
    /// Entries for which there was no room: see [`Refresh::new`].
    pub left_out: u64,
}

/// What the kernel has to forget.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// Folders whose children or times have changed.
    pub folders: BTreeSet<Inode>,
    /// Names that led to something else.
    pub names: Vec<Inode>,
}

/// What became of an entry.
enum Placed {
    Done,
    /// It cannot be placed before it is known what is gone.
    Later,
    /// There is no room for more changes.
    Full,
}

/// A set of inodes: one bit for each of the tree and each added one.
#[derive(Debug, Default)]
struct InodeSet {
    listed: Vec<u64>,
    added: Vec<u64>,
}

impl InodeSet {
    fn place(inode: Inode) -> (bool, usize, u64) {
        let is_added = inode >= ADDED_FROM;
        let number = inode - if is_added { ADDED_FROM } else { ROOT };
        (is_added, usize::try_from(number / 64).expect("they are in memory"), 1 << (number % 64))
    }

    fn contains(&self, inode: Inode) -> bool {
        let (is_added, word, bit) = Self::place(inode);
        let words = if is_added { &self.added } else { &self.listed };
        words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// True if it was not in the set.
    fn insert(&mut self, inode: Inode) -> bool {
        let (is_added, word, bit) = Self::place(inode);
        let words = if is_added { &mut self.added } else { &mut self.listed };
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }
}

/// A listing that is being taken.
#[derive(Debug)]
pub struct Refresh {
    now_seconds: i64,
    changes_max: usize,
    /// What it has listed so far.
    seen: InodeSet,
    /// What was below a folder that was gone when it began.
    removed: InodeSet,
    /// Entries that wait for its end, in their order.
    later: Vec<Relisted>,
    /// All other entries were placed, and what is gone is known.
    is_ending: bool,
    /// The folder of the last entry.
    last: Option<(String, Inode)>,
    /// The last file of the tree.
    before: Inode,
    /// Totals of what it has listed, unless something of that is not shown.
    totals: Totals,
    has_hidden: bool,
    counts: RefreshCounts,
    stale: Stale,
}

impl Refresh {
    /// A listing that begins now. The mount keeps at most `changes_max` added names, also those
    /// that are gone again, and replaced objects; entries beyond that are left out.
    #[must_use]
    pub fn new(state: &mut KnownNames<'_>, now_seconds: i64, changes_max: usize) -> Self {
        state.versions.listing_begins();
        let mut removed = InodeSet::default();
        if !state.changes.gone.is_empty() {
            for inode in state.inodes() {
                let parent = state.changes.parent(state.tree, inode);
                if state.changes.is_gone(inode) || removed.contains(parent) {
                    removed.insert(inode);
                }
            }
        }
        Self {
            now_seconds,
            changes_max,
            seen: InodeSet::default(),
            removed,
            later: Vec::new(),
            is_ending: false,
            last: None,
            before: ROOT,
            totals: Totals { folders: 1, ..Totals::default() },
            has_hidden: false,
            counts: RefreshCounts::default(),
            stale: Stale::default(),
        }
    }

    /// Takes an entry.
    pub fn take(&mut self, state: &mut KnownNames<'_>, listed: Relisted) {
        match self.place(state, &listed) {
            Placed::Done => {}
            Placed::Later if self.has_room(state, 1) => self.later.push(listed),
            Placed::Later | Placed::Full => self.counts.left_out += 1,
        }
    }

    /// What the kernel has to forget of the entries since the last call.
    pub fn take_stale(&mut self) -> Stale {
        std::mem::take(&mut self.stale)
    }

    /// Takes the end of a complete listing: what it did not have is gone.
    #[must_use]
    pub fn finish(mut self, state: &mut KnownNames<'_>) -> (RefreshCounts, Stale) {
        self.is_ending = true;
        self.last = None;
        for listed in std::mem::take(&mut self.later) {
            if matches!(self.place(state, &listed), Placed::Full) {
                self.counts.left_out += 1;
            }
        }
        self.remove_unseen(state);
        let totals = if self.has_hidden { self.totals(state) } else { self.totals };
        state.changes.totals = Some(totals);
        (self.counts, self.stale)
    }

    /// True if there is room for this many more changes.
    fn has_room(&self, state: &KnownNames<'_>, count: usize) -> bool {
        let changes = state.changes.names.len() + state.versions.count() + self.later.len();
        changes + count <= self.changes_max
    }

    fn place(&mut self, state: &mut KnownNames<'_>, listed: &Relisted) -> Placed {
        let path = listed.path.as_str();
        let (folder, name) = match path.rsplit_once('/') {
            _ if listed.is_folder => (path, None),
            Some((folder, name)) => (folder, Some(name)),
            None => ("", Some(path)),
        };
        match (self.folder(state, folder), name) {
            (Ok(folder), Some(name)) => self.file(state, folder, name, listed),
            (Ok(_), None) => Placed::Done,
            (Err(placed), _) => placed,
        }
    }

    /// The folder of this path, which an entry says is there.
    fn folder(&mut self, state: &mut KnownNames<'_>, path: &str) -> Result<Inode, Placed> {
        if path.is_empty() {
            return Ok(ROOT);
        }
        if let Some((last, inode)) = &self.last
            && last == path
        {
            return Ok(*inode);
        }
        let mut folder = ROOT;
        let mut rest = path.split('/').count() + 1;
        for name in path.split('/') {
            let alike = state.changes.alike(state.tree, folder, name, ROOT);
            if let Some(file) = alike.file {
                // A file hides the folder of its name, as in the first listing.
                if self.seen.contains(file) || state.versions.is_newer(file) {
                    return Err(Placed::Done);
                }
                if state.versions.of_name(file) != Current::Gone {
                    if !self.is_ending {
                        return Err(Placed::Later);
                    }
                    self.remove_file(state, folder, file);
                }
            }
            folder = match alike.folder {
                Some(known) => self.see_folder(state, folder, known),
                None if self.has_room(state, rest) => self.add_folder(state, folder, name),
                None => return Err(Placed::Full),
            };
            rest -= 1;
        }
        self.last = Some((path.to_owned(), folder));
        Ok(folder)
    }

    fn see_folder(&mut self, state: &mut KnownNames<'_>, parent: Inode, folder: Inode) -> Inode {
        if self.seen.insert(folder) {
            self.totals.folders += 1;
            if state.changes.gone.remove(&folder) {
                self.stale.folders.insert(parent);
                self.empty(state, folder);
            }
        }
        folder
    }

    /// Removes everything from a folder that has come back: it is there only if it is listed. The
    /// kernel may have kept some of it for who is in that folder.
    fn empty(&mut self, state: &mut KnownNames<'_>, folder: Inode) {
        self.stale.folders.insert(folder);
        for child in state.changes.all_children(state.tree, folder) {
            match state.changes.is_folder(state.tree, child) {
                true => drop(state.changes.gone.insert(child)),
                false if state.versions.is_newer(child) => {}
                false => state.versions.set(child, None),
            }
            self.stale.names.push(child);
        }
    }

    fn add_folder(&mut self, state: &mut KnownNames<'_>, parent: Inode, name: &str) -> Inode {
        let found_seconds = self.now_seconds;
        let name = Arc::from(name);
        let folder = state.changes.add(AddedName { parent, name, found_seconds, file: None });
        self.seen.insert(folder);
        self.totals.folders += 1;
        self.stale.folders.insert(parent);
        folder
    }

    fn file(
        &mut self,
        state: &mut KnownNames<'_>,
        parent: Inode,
        name: &str,
        listed: &Relisted,
    ) -> Placed {
        let Alike { file, folder } = state.changes.alike(state.tree, parent, name, self.before);
        if let Some(folder) = folder.filter(|folder| !state.changes.is_gone(*folder)) {
            if !self.is_ending {
                return Placed::Later;
            }
            // If it was seen the listing has both, and not in order.
            self.has_hidden |= self.seen.contains(folder);
            self.remove_folder(state, parent, folder);
            self.last = None;
        }
        if let Some(file) = file {
            return self.see_file(state, parent, file, listed);
        }
        if !self.has_room(state, 1) {
            return Placed::Full;
        }
        let found_seconds = self.now_seconds;
        let object = Box::new((listed.object.clone(), Arc::clone(&listed.endpoint)));
        let (name, file) = (Arc::from(name), Some(object));
        let file = state.changes.add(AddedName { parent, name, found_seconds, file });
        self.seen.insert(file);
        self.count(listed.object.size_bytes);
        self.counts.new += 1;
        self.changed(state, parent, &listed.object);
        Placed::Done
    }

    /// Takes the object of a file whose name is known.
    fn see_file(
        &mut self,
        state: &mut KnownNames<'_>,
        parent: Inode,
        file: Inode,
        listed: &Relisted,
    ) -> Placed {
        if !self.seen.insert(file) {
            // Another source has this name, too: the first one stays.
            return Placed::Done;
        }
        if file < ADDED_FROM {
            self.before = file;
        }
        if state.versions.is_newer(file) {
            self.has_hidden = true;
            return Placed::Done;
        }
        let current = state.versions.of_name(file);
        let (was_there, needs_room) =
            (current != Current::Gone, !matches!(current, Current::Version(..)));
        if !was_there && state.first_led_to(file, listed) {
            state.versions.restore(file);
        }
        let is_same = state.leads_to(file, listed);
        if !is_same {
            if needs_room && !self.has_room(state, 1) {
                self.has_hidden = true;
                return Placed::Full;
            }
            let found = (listed.object.clone(), Arc::clone(&listed.endpoint));
            state.versions.set(file, Some(found));
        }
        self.count(listed.object.size_bytes);
        match was_there && !self.removed.contains(file) {
            true if is_same => return Placed::Done,
            true => {
                self.counts.replaced += 1;
                self.stale.names.push(file);
            }
            false => self.counts.new += 1,
        }
        self.changed(state, parent, &listed.object);
        Placed::Done
    }

    fn count(&mut self, size_bytes: u64) {
        self.totals.files += 1;
        self.totals.bytes = self.totals.bytes.saturating_add(size_bytes);
        self.totals.blocks = self.totals.blocks.saturating_add(size_bytes.div_ceil(BLOCK_BYTES));
    }

    /// Notes that a folder has something new.
    fn changed(&mut self, state: &mut KnownNames<'_>, folder: Inode, object: &Object) {
        self.stale.folders.insert(folder);
        if let Some(seconds) = object.modified_seconds() {
            state.changes.date(state.tree, folder, seconds, &mut self.stale.folders);
        }
    }

    fn remove_folder(&mut self, state: &mut KnownNames<'_>, parent: Inode, folder: Inode) {
        if state.changes.gone.insert(folder) {
            self.stale.folders.insert(parent);
            self.stale.names.push(folder);
        }
    }

    fn remove_file(&mut self, state: &mut KnownNames<'_>, parent: Inode, file: Inode) {
        self.counts.gone += u64::from(!self.removed.contains(file));
        state.versions.set(file, None);
        self.stale.folders.insert(parent);
        self.stale.names.push(file);
    }

    /// Removes what the listing did not have.
    fn remove_unseen(&mut self, state: &mut KnownNames<'_>) {
        for inode in state.inodes() {
            if self.seen.contains(inode) {
                continue;
            }
            let parent = state.changes.parent(state.tree, inode);
            // Otherwise it goes with its folder.
            let is_first = parent == ROOT || self.seen.contains(parent);
            if state.changes.is_folder(state.tree, inode) {
                if is_first {
                    self.remove_folder(state, parent, inode);
                }
            } else if state.versions.of_name(inode) != Current::Gone
                && !state.versions.is_newer(inode)
            {
                match is_first {
                    true => self.remove_file(state, parent, inode),
                    false => self.counts.gone += u64::from(!self.removed.contains(inode)),
                }
            }
        }
    }

    /// Totals of what is shown after a complete listing, counted one by one.
    fn totals(&self, state: &KnownNames<'_>) -> Totals {
        let mut totals = Totals { folders: 1, ..Totals::default() };
        // Most children of a folder follow each other.
        let mut last = (ROOT, false);
        for inode in state.inodes().filter(|inode| self.seen.contains(*inode)) {
            let parent = state.changes.parent(state.tree, inode);
            if last.0 != parent {
                last = (parent, state.changes.is_removed(state.tree, parent));
            }
            if last.1 || state.changes.is_gone(inode) {
                continue;
            }
            let facts = state.changes.facts(state.tree, inode);
            let size_bytes = match (state.versions.of_name(inode), facts.map(|facts| facts.kind)) {
                (Current::Version(_, object), _) => object.size_bytes,
                (Current::Listed | Current::Unknown, Some(Kind::File { size_bytes })) => size_bytes,
                (_, Some(Kind::Folder)) => {
                    totals.folders += 1;
                    continue;
                }
                _ => continue,
            };
            totals.files += 1;
            totals.bytes = totals.bytes.saturating_add(size_bytes);
            totals.blocks = totals.blocks.saturating_add(size_bytes.div_ceil(BLOCK_BYTES));
        }
        totals
    }
}

impl KnownNames<'_> {
    /// All inodes of names but the top folder's: parents precede their children.
    fn inodes(&self) -> impl Iterator<Item = Inode> + use<> {
        (ROOT + 1..ROOT + self.tree.count()).chain(self.changes.inodes())
    }

    /// True if this name was first listed with this version of this object.
    fn first_led_to(&self, file: Inode, listed: &Relisted) -> bool {
        self.changes.object(self.tree, file).is_some_and(|(object, endpoint)| {
            is_same(&object, &listed.object) && endpoint.bucket == listed.endpoint.bucket
        })
    }

    /// True if this name leads to this version of this object.
    fn leads_to(&self, file: Inode, listed: &Relisted) -> bool {
        let first = || self.changes.object(self.tree, file);
        match self.versions.of_name(file) {
            Current::Gone | Current::Unknown => false,
            Current::Listed => self.first_led_to(file, listed),
            Current::Version(_, object) => {
                let bucket = match self.versions.endpoint(file) {
                    Some(endpoint) => endpoint.bucket == listed.endpoint.bucket,
                    None => {
                        first().is_some_and(|(_, first)| first.bucket == listed.endpoint.bucket)
                    }
                };
                bucket && is_same(object, &listed.object)
            }
        }
    }
}

/// True if both are one version of one object.
fn is_same(one: &Object, other: &Object) -> bool {
    let of = |object: &Object| (object.size_bytes, object.modified_seconds());
    let has_etag = !one.etag.is_empty() && !other.etag.is_empty();
    one.key == other.key
        && one.version_id == other.version_id
        && match has_etag {
            true => one.etag == other.etag && one.size_bytes == other.size_bytes,
            false => one.etag == other.etag && of(one) == of(other),
        }
}
