//! What a channel is fed: its listing, epoch by epoch, in the order that was given.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Control;
use crate::catalog::walk::{Entry, Walk};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::SLOT_BYTES_MAX;
use crate::pipe::feed::Feed;
use crate::plan::epoch::{Shard, permutation};
use crate::plan::filter::Filter;
use crate::plan::ranges::PartSize;
use crate::s3::uri::S3Uri;
use crate::transfer::{Cut, Transfer};

/// Pause before the feed is looked at again when it is full.
const FEED_PAUSE: Duration = Duration::from_millis(5);
/// Pause before the next epoch is listed when this one has no reader yet.
const EPOCH_PAUSE: Duration = Duration::from_millis(20);

/// How the epochs are ordered.
#[derive(Debug, Clone, Copy)]
pub(super) struct EpochOrder {
    pub(super) epochs: Option<NonZeroU64>,
    pub(super) shuffle_seed: Option<u64>,
    pub(super) shard: Shard,
}

/// Fills a channel's feed, epoch by epoch, at most one ahead of the reader. `opening` is the first
/// epoch's listing, where it was begun before.
pub(super) async fn supply(
    control: &Rc<Control>,
    sources: &[S3Uri],
    part: PartSize,
    feed: &Feed,
    order: EpochOrder,
    mut opening: Option<Opening>,
) -> Result<()> {
    let cut = Cut { part, slot_length_bytes: SLOT_BYTES_MAX };
    // A directory bucket lists in no order: key order, shuffle and shards want it all, sorted.
    let unordered = match sources {
        [source] => control.endpoint(&source.bucket).await?.is_directory(),
        _ => false,
    };
    let mut all: Vec<Arc<Transfer>> = Vec::new();
    let mut epoch = 0u64;
    while order.epochs.is_none_or(|epochs| epoch < epochs.get()) {
        while feed.reading() + 1 < epoch {
            tokio::time::sleep(EPOCH_PAUSE).await;
        }
        if order.shuffle_seed.is_some() || unordered {
            if epoch == 0 {
                let listing = match opening.take() {
                    Some(opening) => opening,
                    None => Opening::of(control, sources).await?,
                };
                listing
                    .list(async |batch| {
                        all.extend(batch.into_iter().map(|entry| transfer(entry, cut)));
                        Ok(())
                    })
                    .await?;
                if unordered {
                    all.sort_by(|one, other| one.object.key.cmp(&other.object.key));
                }
            }
            let count = u32::try_from(all.len()).map_err(|_| {
                Error::new(
                    ErrorKind::Usage,
                    format!("{} objects are too many to be put in order", all.len()),
                )
                .advise("leave --shuffle-seed out")
            })?;
            let permuted = match order.shuffle_seed {
                Some(seed) => permutation(seed, epoch, count),
                None => (0..count).collect(),
            };
            let places = permuted.into_iter().zip(0u64..);
            let mine = places.filter(|(_, place)| order.shard.takes(*place));
            let mut mine = mine.map(|(index, _)| Arc::clone(&all[index as usize])).peekable();
            while mine.peek().is_some() {
                let room = room(feed).await;
                feed.push(mine.by_ref().take(room).collect::<Vec<_>>());
            }
        } else {
            let mut place = 0u64;
            let listing = match opening.take() {
                Some(opening) => opening,
                None => Opening::of(control, sources).await?,
            };
            listing
                .list(async |batch| {
                    let mine = batch.into_iter().filter(|_| {
                        place += 1;
                        order.shard.takes(place - 1)
                    });
                    let mut rest: Vec<_> = mine.map(|entry| transfer(entry, cut)).collect();
                    while !rest.is_empty() {
                        let count = room(feed).await.min(rest.len());
                        feed.push(rest.drain(..count).collect::<Vec<_>>());
                    }
                    Ok(())
                })
                .await?;
        }
        room(feed).await;
        feed.end_epoch();
        epoch += 1;
    }
    feed.complete();
    Ok(())
}

/// Waits for room in the feed.
async fn room(feed: &Feed) -> usize {
    loop {
        match feed.room() {
            0 => tokio::time::sleep(FEED_PAUSE).await,
            room => return room,
        }
    }
}

/// A listing that has begun: its sources are there, its first objects are known.
#[derive(Debug)]
pub(super) struct Opening {
    walk: Walk,
    first: Option<Vec<Entry>>,
}

impl Opening {
    /// Asks for the sources and their first objects: a name that is not there, and keys or
    /// permissions that do not do, are its errors.
    pub(super) async fn of(control: &Rc<Control>, sources: &[S3Uri]) -> Result<Self> {
        let found = control.resolve_all(sources).await?;
        let mut walk = Walk::new(Rc::clone(control), found, Filter::default())?;
        let first = walk.next_batch().await?;
        Ok(Self { walk, first })
    }

    /// Hands on what is listed, page by page.
    async fn list(self, mut take: impl AsyncFnMut(Vec<Entry>) -> Result<()>) -> Result<()> {
        let Self { mut walk, first } = self;
        let mut next = first;
        while let Some(batch) = next {
            take(batch).await?;
            next = walk.next_batch().await?;
        }
        Ok(())
    }
}

/// An object on its way.
fn transfer(entry: Entry, cut: Cut) -> Arc<Transfer> {
    Arc::new(Transfer::new(entry.object, entry.endpoint, String::new(), cut))
}
