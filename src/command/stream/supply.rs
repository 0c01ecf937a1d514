//! Supplies a channel's feed: its listing, epoch by epoch, in the requested order.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::checksums::StreamChecksums;
use super::framing::{Framer, check_record};
use super::lines::LineWalk;
use crate::cli::VerifyMode;
use crate::control::Control;
use crate::control::list::entries::Entries;
use crate::control::list::sources::{Source, SourceKind};
use crate::control::list::walk::{Entry, Walk};
use crate::engine::stream::feed::StreamFeed;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::limits::{LISTED_AHEAD_RANGES_MIN, LISTED_AHEAD_SHARE, LISTING_BYTES_MAX};
use crate::link::object::ObjectRef;
use crate::plan::augmented::AugmentedManifest;
use crate::plan::epoch::{Shard, permutation};
use crate::plan::filter::Filter;
use crate::plan::listing::Listing;
use crate::plan::typed_range::TypedRange;
use crate::s3::ByteRange;
use crate::s3::uri::S3Uri;

/// Pause before a full feed is checked again, after an item was taken from it: items taken
/// meanwhile free space together.
const FEED_PAUSE: Duration = Duration::from_millis(5);
/// Pause before a full feed is checked again if the next epoch's listing may be due.
const EPOCH_PAUSE: Duration = Duration::from_millis(20);

/// The order of the epochs.
#[derive(Debug, Clone, Copy)]
pub(in crate::command) struct EpochOrder {
    pub(in crate::command) epochs: Option<NonZeroU64>,
    pub(in crate::command) shuffle_seed: Option<u64>,
    pub(in crate::command) shard: Shard,
}

/// The objects of a channel.
#[derive(Debug, Clone)]
pub(in crate::command) struct WantedObjects {
    /// Empty if a manifest has the objects, or if its shard has none.
    pub(in crate::command) sources: Vec<S3Uri>,
    /// A manifest's lines, instead of sources.
    pub(in crate::command) manifest: Option<Arc<AugmentedManifest>>,
    /// If each object, and each value of a line, becomes a record: the advice for objects that are
    /// too long.
    pub(in crate::command) wraps: Option<&'static str>,
    /// If true, an epoch may have no objects.
    pub(in crate::command) allows_none: bool,
    pub(in crate::command) filter: Filter,
    /// These bytes of the only source, which is one object.
    pub(in crate::command) range: Option<TypedRange>,
    /// Which objects are compared with their stored checksums.
    pub(in crate::command) verify: VerifyMode,
}

/// Fills a channel's feed, epoch by epoch, at most one ahead of the reader. Each epoch has its own
/// listing; `opening` is the first one's, if begun earlier.
pub(in crate::command) async fn supply(
    control: &Rc<Control>,
    wanted: &WantedObjects,
    feed: &StreamFeed,
    order: EpochOrder,
    mut opening: Option<Opening>,
) -> Result<()> {
    // A directory bucket lists without order: key order, shuffle and shards need the whole listing,
    // sorted.
    let unordered = match wanted.sources.as_slice() {
        // One object has no order.
        [source] if wanted.range.is_none() => Control::is_directory(&source.bucket),
        _ => false,
    };
    let mut epoch = 0u64;
    while order.epochs.is_none_or(|epochs| epoch < epochs.get()) {
        let handed_on = async {
            let begun = opening.take();
            let is_ahead = epoch > 0 && feed.opened() <= epoch;
            let opened = match open(control, wanted, order, epoch, unordered, begun).await {
                // None of it was supplied, and it was listed before its reader came: the cause may
                // be gone by then.
                Err(_) if is_ahead => {
                    await_reader(feed, epoch).await;
                    open(control, wanted, order, epoch, unordered, None).await?
                }
                outcome => outcome?,
            };
            let framer =
                Framer::new(feed, wanted.wraps, StreamChecksums::of(control, wanted.verify));
            match opened {
                Opening::Lines(lines) => lines.hand_on(framer).await,
                Opening::Listing(listing) => listing.hand_on(framer, order.shard).await,
                Opening::Whole(listing) => {
                    hand_on_in_order(&listing, epoch, framer, order).await?;
                    Ok(u64::from(listing.count()))
                }
            }
        };
        let objects = match handed_on.await {
            Ok(objects) => objects,
            Err(error) => {
                // The earlier epochs have all they need: their readers get them completely. This
                // one may never be read.
                await_reader(feed, epoch).await;
                return Err(error);
            }
        };
        room(feed).await;
        feed.end_epoch();
        epoch += 1;
        // The next epoch is listed late, so that it has the objects of that time.
        let ahead = (objects / LISTED_AHEAD_SHARE).max(LISTED_AHEAD_RANGES_MIN);
        while feed.reading() + 1 < epoch || feed.ranges_left() > ahead {
            feed.moved().await;
            tokio::time::sleep(EPOCH_PAUSE).await;
        }
    }
    feed.complete();
    Ok(())
}

/// Begins an epoch, unless it has `begun`, and reads the whole listing if the epoch's order needs
/// it.
async fn open(
    control: &Rc<Control>,
    wanted: &WantedObjects,
    order: EpochOrder,
    epoch: u64,
    unordered: bool,
    begun: Option<Opening>,
) -> Result<Opening> {
    let opening = match begun {
        Some(opening) => opening,
        None => Opening::of(control, wanted, order, epoch).await?,
    };
    match opening {
        Opening::Listing(listing) if order.shuffle_seed.is_some() || unordered => {
            let mut whole = listing.collect(wanted.wraps).await?;
            if unordered {
                whole.sort();
            }
            Ok(Opening::Whole(Box::new(whole)))
        }
        opening => Ok(opening),
    }
}

/// Waits until a reader has opened this epoch, one after the first, or the channel is stopped.
async fn await_reader(feed: &StreamFeed, epoch: u64) {
    while epoch > 0 && feed.opened() <= epoch && !feed.is_stopped() {
        feed.moved().await;
    }
}

/// Supplies the epoch's part of a whole listing, shuffled or in its order.
async fn hand_on_in_order(
    listing: &Listing,
    epoch: u64,
    mut framer: Framer<'_>,
    order: EpochOrder,
) -> Result<()> {
    let count = listing.count();
    let permuted = order.shuffle_seed.map(|seed| permutation(seed, epoch, count));
    let at = |place: u32| permuted.as_ref().map_or(place, |permuted| permuted[place as usize]);
    for index in (0..count).filter(|place| order.shard.takes(u64::from(*place))).map(at) {
        let endpoint = Arc::clone(listing.endpoint(index));
        framer.object(Arc::new(ObjectRef::new(listing.object(index), endpoint))).await?;
    }
    framer.finish().await
}

/// Waits for space in the feed.
pub(super) async fn room(feed: &StreamFeed) -> usize {
    loop {
        match feed.room() {
            0 => {
                feed.moved().await;
                tokio::time::sleep(FEED_PAUSE).await;
            }
            room => return room,
        }
    }
}

/// An epoch that has begun: its first objects are known.
#[derive(Debug)]
pub(in crate::command) enum Opening {
    /// The lines of a manifest.
    Lines(Box<LineWalk>),
    /// The objects of the sources.
    Listing(Box<OpenListing>),
    /// All of them, in memory.
    Whole(Box<Listing>),
}

impl Opening {
    /// The first epoch, from a complete listing.
    ///
    /// # Errors
    /// If its first objects are too long for a record.
    pub(in crate::command) async fn listed(
        entries: Entries,
        wanted: &WantedObjects,
    ) -> Result<Self> {
        let opened = OpenListing::begin(entries, wanted, None).await;
        opened.map(|it| Self::Listing(Box::new(it)))
    }

    /// Requests the sources and their first objects, or the first object of a manifest: missing
    /// names, and missing credentials or permissions, are its errors.
    pub(in crate::command) async fn of(
        control: &Rc<Control>,
        wanted: &WantedObjects,
        order: EpochOrder,
        epoch: u64,
    ) -> Result<Self> {
        match &wanted.manifest {
            Some(manifest) => {
                let lines = LineWalk::begin(control, manifest, wanted.wraps, order, epoch);
                lines.await.map(|it| Self::Lines(Box::new(it)))
            }
            None => OpenListing::of(control, wanted).await.map(|it| Self::Listing(Box::new(it))),
        }
    }
}

/// A listing that has begun: its sources exist, its first objects are known.
#[derive(Debug)]
pub(in crate::command) struct OpenListing {
    walk: Entries,
    first: Option<Vec<Entry>>,
    /// The bytes of the only object.
    window: Option<ByteRange>,
}

impl OpenListing {
    async fn of(control: &Rc<Control>, wanted: &WantedObjects) -> Result<Self> {
        if wanted.verify == VerifyMode::Strict {
            control.check_heads();
        }
        let found = match wanted.allows_none {
            true => control.resolve_there(&wanted.sources).await?.0,
            false => control.resolve_all(&wanted.sources).await?,
        };
        let window = match (wanted.range, found.as_slice()) {
            (Some(range), [source]) => Some(window(range, source)?),
            _ => None,
        };
        let walk = Walk::new(Rc::clone(control), found, wanted.filter.clone())?.for_stream();
        Self::begin(walk.into(), wanted, window).await
    }

    async fn begin(
        mut walk: Entries,
        wanted: &WantedObjects,
        window: Option<ByteRange>,
    ) -> Result<Self> {
        let first = walk.next_batch().await?;
        if let Some(advice) = wanted.wraps {
            check_records(first.iter().flatten(), advice)?;
        }
        Ok(Self { walk, first, window })
    }

    /// Supplies the epoch's part of the listing, in its order, page by page; returns the number of
    /// listed objects.
    async fn hand_on(self, mut framer: Framer<'_>, shard: Shard) -> Result<u64> {
        let Self { mut walk, first, window } = self;
        let mut place = 0u64;
        let mut next = first;
        if let Some(window) = window {
            let entry = next.take().into_iter().flatten().next();
            if let Some(entry) = entry {
                framer.part(object(entry), window);
                place += 1;
            }
        }
        while let Some(batch) = next {
            let mine = batch.into_iter().filter(|_| {
                place += 1;
                shard.takes(place - 1)
            });
            for entry in mine {
                framer.object(object(entry)).await?;
            }
            framer.send().await?;
            next = walk.next_batch().await?;
        }
        framer.finish().await?;
        Ok(place)
    }

    /// Reads the whole listing into memory.
    async fn collect(self, wraps: Option<&'static str>) -> Result<Listing> {
        let Self { mut walk, first, window, .. } = self;
        assert!(window.is_none(), "part of one object is no listing");
        let mut listing = Listing::new(LISTING_BYTES_MAX);
        let mut next = first;
        while let Some(batch) = next {
            if let Some(advice) = wraps {
                check_records(&batch, advice)?;
            }
            for entry in batch {
                listing.push(&entry.object, &entry.endpoint)?;
            }
            next = walk.next_batch().await?;
        }
        Ok(listing)
    }
}

/// Refuses objects that are too long for a record, in any shard: a data set with one is invalid.
fn check_records<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
    advice: &'static str,
) -> Result<()> {
    let check = |entry: &Entry| check_record(&entry.object, &entry.endpoint, advice);
    entries.into_iter().try_for_each(check)
}

/// The requested bytes of a source that is one object.
fn window(range: TypedRange, source: &Source) -> Result<ByteRange> {
    let SourceKind::Object(object) = &source.found else {
        let message = format!("{}: it is a folder, and --range takes one object", source.uri);
        return Err(Error::new(ErrorKind::Usage, message));
    };
    if object.is_whole_only() {
        let message = format!("{}: its server ignores Range, and sends all its bytes", source.uri);
        let error = Error::new(ErrorKind::Endpoint, message).because(ErrorReason::Server);
        return Err(error.advise("omit --range: cat then writes all of them"));
    }
    let refuse = |why| Error::new(ErrorKind::Objects, format!("{}: {why}", source.uri));
    range.within(object.size_bytes).map_err(refuse)
}

/// The object of an entry.
fn object(entry: Entry) -> Arc<ObjectRef> {
    Arc::new(ObjectRef::new(entry.object, entry.endpoint))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::control::loopback::{self, Reply, Server};
    use crate::engine::stream::feed::{NextStep, StreamStep};
    use crate::plan::ranges::PartSize;
    use crate::sys::Handle;

    /// Everything below this source, unframed.
    fn wanted(source: S3Uri) -> WantedObjects {
        let (sources, filter) = (vec![source], Filter::default());
        WantedObjects {
            sources,
            manifest: None,
            wraps: None,
            allows_none: false,
            filter,
            range: None,
            verify: VerifyMode::Off,
        }
    }

    /// Most checks of the reader for the next object before it gives up.
    const LOOKS_MAX: u32 = 20_000;

    /// The inputs of a channel's supply from this server.
    async fn set_up(server: &Server) -> (Rc<Control>, PartSize, StreamFeed) {
        let control = Rc::new(loopback::control(server).await);
        let part = PartSize::new(1 << 20).expect("aligned");
        (control, part, StreamFeed::new(Handle::Simulated(0), part))
    }

    /// The epochs that a channel of this bucket is fed, each as keys in their order.
    fn fed(server: &Server, bucket: &str, epochs: u64, order: EpochOrder) -> Vec<Vec<String>> {
        let order = EpochOrder { epochs: NonZeroU64::new(epochs), ..order };
        let source = S3Uri::parse(&format!("s3://{bucket}/")).expect("a good address");
        loopback::run(async {
            let (control, part, feed) = set_up(server).await;
            let wanted = wanted(source);
            let supplied = supply(&control, &wanted, &feed, order, None);
            let (supplied, epochs) = tokio::join!(supplied, read(&feed, part));
            supplied.expect("it is listed");
            epochs
        })
    }

    async fn read(feed: &StreamFeed, part: PartSize) -> Vec<Vec<String>> {
        let (mut epochs, mut keys) = (Vec::new(), Vec::new());
        for _ in 0..LOOKS_MAX {
            match feed.next(part) {
                NextStep::StreamStep(StreamStep::Range(object, _)) => {
                    keys.push(object.listed.key.clone())
                }
                NextStep::StreamStep(StreamStep::Inline(_)) => panic!("no wrapper is asked for"),
                NextStep::StreamStep(StreamStep::EpochEnd { .. }) => {
                    epochs.push(std::mem::take(&mut keys));
                    feed.set_reading(epochs.len() as u64);
                }
                NextStep::Later => tokio::time::sleep(Duration::from_millis(1)).await,
                NextStep::Ended => return epochs,
            }
        }
        panic!("no end after {epochs:?} and {keys:?}");
    }

    /// A bucket with another listing each time, in pages of one object, out of order for a
    /// directory bucket.
    fn changing(listings: &'static [&'static [&'static str]]) -> Server {
        let listed = AtomicUsize::new(0);
        Server::start(move |head| {
            let target = head.split(' ').nth(1).unwrap_or("");
            let (_, query) = target.split_once('?').unwrap_or((target, ""));
            if query == "session" {
                return Reply::new(
                    200,
                    "<CreateSessionResult><Credentials><AccessKeyId>SK</AccessKeyId>\
                     <SecretAccessKey>SS</SecretAccessKey><SessionToken>ST</SessionToken>\
                     <Expiration>2099-01-01T00:00:00Z</Expiration>\
                     </Credentials></CreateSessionResult>",
                );
            }
            let token = query.split('&').find_map(|pair| pair.strip_prefix("continuation-token="));
            let (listing, at) = match token.and_then(|token| token.split_once('.')) {
                Some((listing, at)) => (listing.parse().expect("ours"), at.parse().expect("ours")),
                None => (listed.fetch_add(1, Ordering::SeqCst), 0),
            };
            let keys = listings[listing];
            if keys[at] == REFUSED {
                return Reply::new(403, "<Error><Code>AccessDenied</Code></Error>");
            }
            let next = (at + 1 < keys.len()).then(|| format!("{listing}.{}", at + 1));
            Reply::new(200, Server::page(&[(keys[at], 9)], next.as_deref()))
        })
    }

    /// Stands for a page that is refused.
    const REFUSED: &str = "!";

    const KEY_ORDER: EpochOrder =
        EpochOrder { epochs: None, shuffle_seed: None, shard: Shard::WHOLE };

    #[test]
    fn every_epoch_is_listed_when_its_turn_comes() {
        let shuffled = EpochOrder { shuffle_seed: Some(42), ..KEY_ORDER };
        // Eight keys in the documented order for this seed: 5, 6, 4, 3, 0, 2, 7, 1 and then 3, 6,
        // 0, 1, 4, 5, 7, 2.
        let server = changing(&[
            &["a", "b", "c", "d", "e", "f", "g", "h"],
            &["A", "b", "c", "d", "e", "f", "g", "new"],
        ]);
        let epochs = fed(&server, "bkt", 2, shuffled);
        assert_eq!(epochs[0].concat(), "fgedachb");
        assert_eq!(epochs[1].concat(), "dgAbefnewc");
        let server = changing(&[&["a", "b"], &["b", "c"], &["d"]]);
        assert_eq!(fed(&server, "bkt", 3, KEY_ORDER), [vec!["a", "b"], vec!["b", "c"], vec!["d"]]);
    }

    /// The keys that a feeder takes from a channel whose second listing fails before its reader
    /// begins, and the error.
    fn fed_until_stopped(server: &Server, bucket: &str, order: EpochOrder) -> (String, ErrorKind) {
        let source = S3Uri::parse(&format!("s3://{bucket}/")).expect("a good address");
        loopback::run(async {
            let (control, part, feed) = set_up(server).await;
            let wanted = wanted(source);
            let supplied = async {
                let error = supply(&control, &wanted, &feed, order, None).await;
                feed.stop(error.expect_err("a listing is refused"));
            };
            let read = async {
                // Long enough for the refusal; a later one is awaited below.
                tokio::time::sleep(Duration::from_millis(300)).await;
                let mut taken = String::new();
                for _ in 0..LOOKS_MAX {
                    // Like a feeder: nothing is taken from a stopped feed.
                    if feed.is_stopped() {
                        return taken;
                    }
                    match feed.next(part) {
                        NextStep::StreamStep(StreamStep::Range(object, _)) => {
                            taken += &object.listed.key
                        }
                        NextStep::StreamStep(StreamStep::Inline(_)) => panic!("no wrapper"),
                        NextStep::StreamStep(StreamStep::EpochEnd { .. }) => {
                            taken.push('.');
                            feed.set_reading(1);
                            // The next epoch may have no reader: it may fail when one comes.
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            assert!(!feed.is_stopped(), "nobody wants it yet");
                            feed.set_opened(2);
                        }
                        NextStep::Later => tokio::time::sleep(Duration::from_millis(1)).await,
                        NextStep::Ended => panic!("it ends after {taken}"),
                    }
                }
                panic!("it never fails after {taken}");
            };
            let ((), taken) = tokio::join!(supplied, read);
            (taken, feed.stop_reason().expect("it failed").kind())
        })
    }

    #[test]
    fn a_listing_that_fails_leaves_the_epoch_before_it_whole() {
        let shuffled = EpochOrder { shuffle_seed: Some(42), ..KEY_ORDER };
        let orders = [("bkt", KEY_ORDER), ("bkt", shuffled), ("train--usw2-az1--x-s3", KEY_ORDER)];
        for (bucket, order) in orders {
            for second in [&[REFUSED][..], &["c", REFUSED]] {
                let listings = Box::leak(Box::new([&["a", "b"][..], second, second]));
                let (taken, kind) = fed_until_stopped(&changing(listings), bucket, order);
                let first = taken.split_once('.').map(|(first, _)| first);
                assert!(matches!(first, Some("ab" | "ba")), "{bucket} {order:?}: {taken:?}");
                assert_eq!(kind, ErrorKind::Access);
            }
        }
    }

    #[test]
    fn a_listing_that_failed_ahead_of_its_reader_is_made_again() {
        let shuffled = EpochOrder { shuffle_seed: Some(42), ..KEY_ORDER };
        let partly = &["x", REFUSED][..];
        for (bucket, order, second) in [
            ("bkt", KEY_ORDER, &[REFUSED][..]),
            ("bkt", shuffled, partly),
            ("train--usw2-az1--x-s3", KEY_ORDER, partly),
        ] {
            let server = changing(Box::leak(Box::new([&["a", "b"][..], second, &["c"]])));
            let refused_at = 2 + second.len();
            let pages = || server.seen().iter().filter(|head| head.contains("list-type=2")).count();
            let order = EpochOrder { epochs: NonZeroU64::new(2), ..order };
            let source = S3Uri::parse(&format!("s3://{bucket}/")).expect("a good address");
            let epochs = loopback::run(async {
                let (control, part, feed) = set_up(&server).await;
                let wanted = wanted(source);
                let supplied = supply(&control, &wanted, &feed, order, None);
                let read = async {
                    for _ in 0..LOOKS_MAX {
                        if pages() >= refused_at {
                            break;
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    feed.set_opened(2);
                    read(&feed, part).await
                };
                let (supplied, epochs) = tokio::join!(supplied, read);
                supplied.expect("it is listed again");
                epochs
            });
            assert_eq!((epochs.len(), &epochs[1]), (2, &vec!["c".to_owned()]), "{bucket}");
        }
    }

    #[test]
    fn a_directory_bucket_is_listed_for_every_epoch_and_sorted() {
        let bucket = "train--usw2-az1--x-s3";
        let server = changing(&[&["c", "a", "b"], &["b", "d", "a/x", "c"]]);
        let epochs = fed(&server, bucket, 2, KEY_ORDER);
        assert_eq!(epochs, [vec!["a", "b", "c"], vec!["a/x", "b", "c", "d"]]);
        let server = changing(&[&["h", "g", "f", "e", "d", "c", "b", "a"]]);
        let half =
            EpochOrder { shuffle_seed: Some(42), shard: Shard { index: 1, count: 2 }, ..KEY_ORDER };
        assert_eq!(fed(&server, bucket, 1, half)[0].concat(), "gdcb");
    }

    /// A directory bucket lists without order, but one object of it is not listed.
    #[test]
    fn part_of_an_object_of_a_directory_bucket_is_part_of_it() {
        let server = Server::start(|head| match head.contains("session") {
            true => Reply::new(
                200,
                "<CreateSessionResult><Credentials><AccessKeyId>SK</AccessKeyId>\
                 <SecretAccessKey>SS</SecretAccessKey><SessionToken>ST</SessionToken>\
                 <Expiration>2099-01-01T00:00:00Z</Expiration>\
                 </Credentials></CreateSessionResult>",
            ),
            false => Reply::new(200, "").header("Content-Length", "1000").header("ETag", "\"e\""),
        });
        let source = S3Uri::parse("s3://train--usw2-az1--x-s3/key").expect("a good address");
        loopback::run(async {
            let (control, part, feed) = set_up(&server).await;
            let range = Some("100-199".parse().expect("a range"));
            let wanted = WantedObjects { range, ..wanted(source) };
            let order = EpochOrder { epochs: NonZeroU64::new(1), ..KEY_ORDER };
            supply(&control, &wanted, &feed, order, None).await.expect("it is there");
            let NextStep::StreamStep(StreamStep::Range(_, range)) = feed.next(part) else {
                panic!("there are bytes")
            };
            assert_eq!((range.offset, range.length), (100, 100));
        });
    }
}
