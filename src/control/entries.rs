//! What a run fetches: the entries of a walk, or of several listings one after the other, of which
//! some were kept when they were looked at before.

use super::limits::BATCH_ENTRIES_MAX;
use super::resolve::Missing;
use super::walk::{Entry, Walk};
use crate::error::Result;
use crate::plan::epoch::Shard;
use crate::plan::kept::KeptListing;
use crate::plan::path::RelativePath;
use crate::s3::is_folder_mark;

/// Entries of one part after the other.
#[derive(Debug, Default)]
pub struct Entries {
    parts: Vec<Part>,
    /// The part whose entries come next.
    at: usize,
}

#[derive(Debug)]
enum Part {
    /// Listed as it is used.
    Walk(Box<Walk>),
    /// Listed before.
    Kept(KeptEntries),
    /// It was listed before, and its memory is free again.
    Over,
}

/// A listing that was kept, as the entries of a walk.
#[derive(Debug)]
pub struct KeptEntries {
    pub(super) listing: KeptListing,
    /// A folder of its own below the destination; none where it is empty.
    pub(super) folder: String,
    /// Which of the entries are handed out. Marks of folders are not counted, and always are.
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
            // A stream has keys that have no path, too: that begins at their end.
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
    /// Then come those of this walk. What is in each other's way is looked for in each part by
    /// itself: give them different folders ([`Walk::under`]).
    pub fn push_walk(&mut self, walk: Walk) {
        self.parts.push(Part::Walk(Box::new(walk)));
    }

    /// Then come these.
    pub fn push_kept(&mut self, kept: KeptEntries) {
        self.parts.push(Part::Kept(kept));
    }

    /// The next entries, at least one; `None` at the end.
    ///
    /// The future may be dropped and made again: no entry is lost.
    ///
    /// # Errors
    /// As those of [`Walk::next_batch`]; after one the part is over.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<Entry>>> {
        while let Some(part) = self.parts.get_mut(self.at) {
            let batch = match part {
                Part::Walk(walk) => walk.next_batch().await?,
                Part::Kept(kept) => kept.next_batch(),
                Part::Over => None,
            };
            if batch.is_some() {
                return Ok(batch);
            }
            if matches!(part, Part::Kept(_)) {
                *part = Part::Over;
            }
            self.at += 1;
        }
        Ok(None)
    }

    fn walks(&self) -> impl Iterator<Item = &Walk> {
        self.parts.iter().filter_map(|part| match part {
            Part::Walk(walk) => Some(&**walk),
            Part::Kept(_) | Part::Over => None,
        })
    }

    /// The sources that walks went past, since the last time.
    pub fn take_missing(&mut self) -> Vec<Missing> {
        let walks = self.parts.iter_mut().filter_map(|part| match part {
            Part::Walk(walk) => Some(walk),
            Part::Kept(_) | Part::Over => None,
        });
        walks.flat_map(|walk| walk.take_missing()).collect()
    }

    /// What is to be said of objects that were not handed out again.
    #[must_use]
    pub fn repeated(&self) -> Option<String> {
        self.walks().find_map(Walk::repeated)
    }
}
