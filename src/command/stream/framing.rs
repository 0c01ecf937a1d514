//! Frames the objects of a stream: records, and texts between them.
//!
//! The end of a record and the header of the next are one piece of the stream, so that an object
//! costs one write besides its own bytes; texts are joined up to [`INLINE_BYTES_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt as _;

use super::checksums::StreamChecksums;
use super::supply::room;
use crate::engine::stream::feed::{FeedItem, StreamFeed};
use crate::engine::stream::inline::InlineBytes;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::INLINE_BYTES_MAX;
use crate::link::object::ObjectRef;
use crate::plan::recordio::{self, RECORD_BYTES_MAX};
use crate::s3::uri::shown;
use crate::s3::{ByteRange, Endpoint, Object, address, is_folder_mark};

/// Most items added to the feed at once.
const BATCH_ITEMS_MAX: usize = 256;

/// Refuses an object that is too long for a record, with this advice.
///
/// # Errors
/// [`ErrorKind::Objects`] with its name.
pub(super) fn check_record(
    object: &Object,
    endpoint: &Endpoint,
    advice: &'static str,
) -> Result<()> {
    if object.size_bytes <= RECORD_BYTES_MAX {
        return Ok(());
    }
    let name = address(&endpoint.bucket, &shown(&object.key));
    let message = format!(
        "{name}: it has {} bytes, and a RecordIO record at most {RECORD_BYTES_MAX}",
        object.size_bytes
    );
    Err(Error::new(ErrorKind::Objects, message).advise(advice))
}

/// Adds objects and texts to a feed, each in its own record or unframed.
#[derive(Debug)]
pub(super) struct Framer<'a> {
    feed: &'a StreamFeed,
    /// Advice about objects that are too long for a record; `None` without records.
    wraps: Option<&'static str>,
    /// Where objects get the checksums from that they are compared with.
    checksums: Option<StreamChecksums>,
    /// Bytes after the last item of the batch.
    pending: Vec<u8>,
    batch: Vec<FeedItem>,
}

impl<'a> Framer<'a> {
    pub(in crate::command) fn new(
        feed: &'a StreamFeed,
        wraps: Option<&'static str>,
        checksums: Option<StreamChecksums>,
    ) -> Self {
        Self { feed, wraps, checksums, pending: Vec::new(), batch: Vec::new() }
    }

    /// Adds an object. A folder marker makes no record.
    ///
    /// # Errors
    /// If it is too long for a record, or as [`Self::send`].
    pub(super) async fn object(&mut self, object: Arc<ObjectRef>) -> Result<()> {
        let length = object.listed.size_bytes;
        let wraps = self.wraps.filter(|_| !is_folder_mark(&object.listed.key, length));
        if let Some(advice) = wraps {
            check_record(&object.listed, &object.endpoint, advice)?;
            self.pending.extend(recordio::header(length).into_iter().flatten());
        }
        self.close();
        self.batch.push(FeedItem::Object(object));
        if wraps.is_some() {
            self.pending.extend_from_slice(recordio::padding(length));
        }
        if self.batch.len() >= BATCH_ITEMS_MAX {
            self.send().await?;
        }
        Ok(())
    }

    /// Adds some bytes of an object, which are within it, without a record.
    pub(in crate::command) fn part(&self, object: Arc<ObjectRef>, window: ByteRange) {
        assert!(self.wraps.is_none() && self.batch.is_empty(), "it is alone, and as it is");
        self.feed.push_part(object, window);
    }

    /// Adds a text, shorter than the longest record.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(super) async fn text(&mut self, text: &str) -> Result<()> {
        let length = text.len() as u64;
        if self.wraps.is_some() {
            self.pending.extend(recordio::header(length).expect("no line is as long"));
        }
        self.pending.extend_from_slice(text.as_bytes());
        if self.wraps.is_some() {
            self.pending.extend_from_slice(recordio::padding(length));
        }
        if self.pending.len() >= INLINE_BYTES_MAX {
            self.close();
            self.send().await?;
        }
        Ok(())
    }

    fn close(&mut self) {
        let pieces = self.pending.chunks(INLINE_BYTES_MAX);
        self.batch.extend(pieces.map(|bytes| FeedItem::Inline(InlineBytes::new(bytes))));
        self.pending.clear();
    }

    /// Sends the batch, except the bytes after the last object.
    ///
    /// # Errors
    /// If the checksum of an object that must be compared is not known.
    pub(super) async fn send(&mut self) -> Result<()> {
        if let Some(checksums) = &self.checksums {
            let mut items = std::pin::pin!(checksums.add(std::mem::take(&mut self.batch)));
            let (mut ready, mut is_over) = (VecDeque::new(), false);
            while !is_over || !ready.is_empty() {
                // Requests continue while the feed is full: an answer must not wait for a reader.
                tokio::select! {
                    item = items.next(), if !is_over => match item {
                        Some(item) => ready.push_back(item?),
                        None => is_over = true,
                    },
                    count = room(self.feed), if !ready.is_empty() => {
                        self.feed.push(ready.drain(..count.min(ready.len())));
                    }
                }
            }
        }
        while !self.batch.is_empty() {
            let count = room(self.feed).await.min(self.batch.len());
            self.feed.push(self.batch.drain(..count));
        }
        Ok(())
    }

    /// Ends the epoch.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(super) async fn finish(mut self) -> Result<()> {
        self.close();
        self.send().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stream::feed::{NextStep, StreamStep};
    use crate::plan::ranges::PartSize;
    use crate::sys::Handle;

    const PART: PartSize = PartSize::new(1 << 20).expect("aligned");

    fn object(key: &str, size_bytes: u64) -> Arc<ObjectRef> {
        let object = Object { key: key.to_owned(), size_bytes, ..Object::default() };
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        Arc::new(ObjectRef::new(object, endpoint))
    }

    /// The content of the feed: lengths of our own bytes, and keys.
    fn taken(feed: &StreamFeed) -> Vec<String> {
        let mut items = Vec::new();
        loop {
            match feed.next(PART) {
                NextStep::StreamStep(StreamStep::Range(object, _)) => {
                    items.push(object.listed.key.clone())
                }
                NextStep::StreamStep(StreamStep::Inline(bytes)) => {
                    items.push(bytes.bytes().len().to_string())
                }
                _ => return items,
            }
        }
    }

    /// Frames the items that `fill` adds.
    fn framed(wraps: bool, fill: impl AsyncFnOnce(&mut Framer<'_>)) -> Vec<String> {
        let feed = StreamFeed::new(Handle::Simulated(0), PART);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut framer = Framer::new(&feed, wraps.then_some("do without"), None);
            fill(&mut framer).await;
            framer.finish().await.expect("no checksum is requested");
        });
        taken(&feed)
    }

    #[test]
    fn what_stands_between_two_objects_is_one_piece() {
        let fill = async |framer: &mut Framer<'_>| {
            for (key, length) in [("a", 5), ("b", 4), ("folder/", 0), ("none", 0), ("c", 1)] {
                framer.object(object(key, length)).await.expect("short enough");
            }
        };
        // A header; padding and a header; a header, twice, since an object's result may be reported
        // in between.
        assert_eq!(framed(true, fill), ["8", "a", "11", "b", "8", "8", "c", "3"]);
        assert_eq!(framed(false, fill), ["a", "b", "c"]);
    }

    #[test]
    fn texts_join_what_is_around_them_and_are_cut_where_they_are_long() {
        let fill = async |framer: &mut Framer<'_>| {
            framer.text("12345").await.expect("no checksum");
            framer.object(object("a", 3)).await.expect("short enough");
            framer.text("").await.expect("no checksum");
            framer.text("1").await.expect("no checksum");
            framer.object(object("b", 4)).await.expect("short enough");
            framer.text(&"x".repeat(INLINE_BYTES_MAX + 1)).await.expect("no checksum");
            framer.text("last").await.expect("no checksum");
        };
        let long = INLINE_BYTES_MAX.to_string();
        assert_eq!(framed(true, fill), ["24", "a", "29", "b", &long, "12", "12"]);
        assert_eq!(framed(false, fill), ["5", "a", "1", "b", &long, "1", "4"]);
    }

    #[test]
    fn an_object_that_fits_no_record_is_refused_by_its_name() {
        let long = object("long", 1 << 29);
        framed(false, async |framer| framer.object(Arc::clone(&long)).await.expect("no record"));
        framed(true, async |framer| {
            let just = framer.object(object("just", (1 << 29) - 1)).await;
            assert!(just.is_ok());
            let error = framer.object(Arc::clone(&long)).await.expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::Objects);
            let message = "s3://bkt/long: it has 536870912 bytes, and a RecordIO record at most \
                        536870911";
            assert_eq!(error.to_string(), format!("{message}; do without"));
        });
    }
}
