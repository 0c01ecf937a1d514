//! The entries that a run fetches: of a walk, or of several listings in turn, some of which were
//! retained from an earlier look.

use super::sources::Missing;
use super::walk::{Entry, Walk};
use crate::control::limits::BATCH_ENTRIES_MAX;
use crate::error::Result;
use crate::plan::epoch::Shard;
use crate::plan::kept::KeptListing;
use crate::plan::path::RelativePath;
use crate::s3::is_folder_mark;

/// Entries of several parts, one after the other.
#[derive(Debug, Default)]
pub struct Entries {
    parts: Vec<EntrySource>,
    /// Index of the current part.
    at: usize,
}

#[derive(Debug)]
enum EntrySource {
    /// Listed while it is used.
    Walk(Box<Walk>),
    /// Listed earlier.
    Kept(KeptEntries),
    /// Finished; its memory is free.
    Over,
}

/// The entries of a retained listing, like those of a walk.
#[derive(Debug)]
pub struct KeptEntries {
    pub(super) listing: KeptListing,
    /// Its folder below the destination; empty for none.
    pub(super) folder: String,
    /// The part of the entries to return. Folder markers are not counted and are always returned.
    pub(super) shard: Shard,
    next: u32,
    place: u64,
}

impl KeptEntries {
    pub(super) fn new(listing: KeptListing, folder: String, shard: Shard) -> Self {
        Self { listing, folder, shard, next: 0, place: 0 }
    }

    fn next_batch(&mut self) -> Option<Vec<Entry>> {
        let mut batch = Vec::new();
        while batch.len() < BATCH_ENTRIES_MAX && self.next < self.listing.count() {
            let index = self.next;
            self.next += 1;
            let (key, size_bytes) = self.listing.key(index);
            let folder = key.ends_with('/');
            if !is_folder_mark(key, size_bytes) {
                self.place += 1;
                if !self.shard.takes(self.place - 1) {
                    continue;
                }
            }
            let (object, path_start) = self.listing.object(index);
            // A stream also has keys without a path: those begin at their end.
            let end = object.key.len() - usize::from(folder);
            let below = object.key.get(path_start..end).unwrap_or_default();
            let path = match self.folder.as_str() {
                "" => RelativePath::parse(below),
                under => RelativePath::parse(&format!("{under}/{below}")),
            };
            let endpoint = self.listing.endpoint(index).clone();
            batch.push(Entry { source: 0, endpoint, object, path, folder });
        }
        (!batch.is_empty()).then_some(batch)
    }
}

impl From<Walk> for Entries {
    fn from(walk: Walk) -> Self {
        let mut entries = Self::default();
        entries.push_walk(walk);
        entries
    }
}

impl Entries {
    /// Appends the entries of this walk. Conflicts between paths are found within each part only:
    /// give the parts different folders ([`Walk::under`]).
    pub fn push_walk(&mut self, walk: Walk) {
        self.parts.push(EntrySource::Walk(Box::new(walk)));
    }

    /// Appends these entries.
    pub fn push_kept(&mut self, kept: KeptEntries) {
        self.parts.push(EntrySource::Kept(kept));
    }

    /// The next entries, at least one; `None` at the end.
    ///
    /// Cancel safe: no entry is lost.
    ///
    /// # Errors
    /// Those of [`Walk::next_batch`]; after one the part has ended.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<Entry>>> {
        while let Some(part) = self.parts.get_mut(self.at) {
            let batch = match part {
                EntrySource::Walk(walk) => walk.next_batch().await?,
                EntrySource::Kept(kept) => kept.next_batch(),
                EntrySource::Over => None,
            };
            if batch.is_some() {
                return Ok(batch);
            }
            if matches!(part, EntrySource::Kept(_)) {
                *part = EntrySource::Over;
            }
            self.at += 1;
        }
        Ok(None)
    }

    fn walks(&self) -> impl Iterator<Item = &Walk> {
        self.parts.iter().filter_map(|part| match part {
            EntrySource::Walk(walk) => Some(&**walk),
            EntrySource::Kept(_) | EntrySource::Over => None,
        })
    }

    /// The missing sources that walks have skipped since the last call.
    pub fn take_missing(&mut self) -> Vec<Missing> {
        let walks = self.parts.iter_mut().filter_map(|part| match part {
            EntrySource::Walk(walk) => Some(walk),
            EntrySource::Kept(_) | EntrySource::Over => None,
        });
        walks.flat_map(|walk| walk.take_missing()).collect()
    }

    /// A note about objects that were not repeated.
    #[must_use]
    pub fn repeated(&self) -> Option<String> {
        self.walks().find_map(Walk::repeated)
    }
}
