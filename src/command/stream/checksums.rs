//! Requests the stored checksums of a stream's objects before they join the stream.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use tracing::debug;

use crate::checksum::{InOrder, unverified};
use crate::cli::VerifyMode;
use crate::control::Control;
use crate::control::checksum::PartsAsked;
use crate::control::limits::CHECKSUMS_ASKED_MAX;
use crate::engine::stream::feed::FeedItem;
use crate::error::Result;
use crate::link::object::ObjectRef;
use crate::s3::ListedChecksum;

/// Requests a checksum for each object.
#[derive(Debug, Clone)]
pub(in crate::command) struct StreamChecksums {
    control: Rc<Control>,
    is_strict: bool,
}

impl StreamChecksums {
    /// `None` if no object is to be compared.
    pub(in crate::command) fn of(control: &Rc<Control>, verify: VerifyMode) -> Option<Self> {
        let is_strict = match verify {
            VerifyMode::Off => return None,
            VerifyMode::Auto if control.checksums_only_when_required() => return None,
            VerifyMode::Auto => false,
            VerifyMode::Strict => true,
        };
        Some(Self { control: Rc::clone(control), is_strict })
    }

    /// These items in their order, each as soon as its checksum is known.
    pub(super) fn add(&self, items: Vec<FeedItem>) -> impl Stream<Item = Result<FeedItem>> {
        let known = items.into_iter().map(|item| async {
            if let FeedItem::Object(object) = &item {
                self.find(object).await?;
            }
            Ok(item)
        });
        stream::iter(known).buffered(CHECKSUMS_ASKED_MAX)
    }

    /// Gives an object its stored checksum.
    async fn find(&self, object: &Arc<ObjectRef>) -> Result<()> {
        let listed = &object.listed;
        if listed.size_bytes == 0 {
            return Ok(());
        }
        let checksum = match listed.checksum {
            _ if listed.web.is_some() => Err(unverified::OF_URL),
            ListedChecksum::Unnamed if !self.is_strict => Err(unverified::NOT_LISTED),
            _ => self.ask(object).await?,
        };
        if let Err(reason) = checksum
            && self.is_strict
        {
            return Err(unverified::error(reason).within(format!("get {}", object.name())));
        }
        object.compare_with(checksum);
        Ok(())
    }

    async fn ask(&self, object: &ObjectRef) -> Result<Result<InOrder, &'static str>> {
        // The bytes come once: a part length that is only assumed would end the stream.
        let (bucket, parts) = (&object.endpoint.bucket, PartsAsked::All);
        match self.control.checksum(bucket, &object.listed, parts).await {
            Ok(found) => Ok(found.in_order(self.is_strict)),
            Err(error) if self.is_strict => Err(error),
            Err(error) => {
                debug!("{error}");
                Ok(Err(unverified::NOT_ANSWERED))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::command::stream::framing::Framer;
    use crate::control::loopback::{self, Reply, Server};
    use crate::engine::stream::feed::StreamFeed;
    use crate::limits::FEED_OBJECTS_MAX;
    use crate::plan::ranges::PartSize;
    use crate::s3::{Endpoint, Object};
    use crate::sys::Handle;

    /// Checks of the answers before the test gives up.
    const LOOKS_MAX: u32 = 20_000;

    fn object(key: &str) -> Arc<ObjectRef> {
        let etag = "\"e\"".to_owned();
        let object = Object { key: key.to_owned(), etag, size_bytes: 9, ..Object::default() };
        let endpoint = Endpoint::new("bkt", false, "h", "/", "r", vec![]);
        Arc::new(ObjectRef::new(object, Arc::new(endpoint)))
    }

    fn server() -> Server {
        Server::start(|_| {
            let reply = Reply::new(200, "").header("Content-Length", "9").header("ETag", "\"e\"");
            reply.header("x-amz-checksum-crc32", "y/Q5Jg==")
        })
    }

    #[test]
    fn requests_under_way_do_not_wait_for_the_reader() {
        let server = server();
        loopback::run(async {
            let control = Rc::new(loopback::control(&server).await);
            let part = PartSize::new(1 << 20).expect("aligned");
            let feed = StreamFeed::new(Handle::Simulated(0), part);
            // Nobody takes anything from it.
            feed.push((0..FEED_OBJECTS_MAX).map(|number| object(&format!("full{number}"))));
            let checksums = StreamChecksums::of(&control, VerifyMode::Strict);
            let mut framer = Framer::new(&feed, None, checksums);
            let more: Vec<_> = (0..100).map(|number| object(&format!("k{number}"))).collect();
            for object in &more {
                framer.object(Arc::clone(object)).await.expect("it is not sent yet");
            }
            let answered = async {
                for _ in 0..LOOKS_MAX {
                    if more.iter().all(|object| object.checksum().is_ok()) {
                        return true;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                false
            };
            tokio::select! {
                sent = framer.send() => panic!("the feed has no room: {sent:?}"),
                is_answered = answered => assert!(is_answered, "they wait for the reader"),
            }
        });
        assert_eq!(server.seen().len(), 100);
    }

    #[test]
    fn the_reasons_are_kept() {
        let server = Server::start(|_| Reply::new(403, ""));
        loopback::run(async {
            let control = Rc::new(loopback::control(&server).await);
            for (verify, is_error) in [(VerifyMode::Auto, false), (VerifyMode::Strict, true)] {
                let checksums = StreamChecksums::of(&control, verify).expect("it compares");
                let object = object("a");
                assert_eq!(checksums.find(&object).await.is_err(), is_error);
                let reason = if is_error { unverified::OFF } else { unverified::NOT_ANSWERED };
                assert_eq!(object.checksum(), Err(reason));
            }
            assert!(StreamChecksums::of(&control, VerifyMode::Off).is_none());
        });
    }
}
