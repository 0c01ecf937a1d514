//! A listing for callers that must not block: the client's thread fetches a few pages ahead and
//! notifies the reader of each.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::mpsc;

use super::client::{RemoteObject, Shared, gone, remote};
use crate::control::Control;
use crate::control::list::level::LevelPages;
use crate::control::list::sources::{Depth, listed_prefix};
use crate::control::list::walk::Walk;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::filter::Filter;
use crate::s3::grants::GrantTarget;
use crate::s3::list::Page;
use crate::s3::uri::{KeyPattern, S3Uri, shown};
use crate::s3::{Endpoint, Object, is_folder_mark};

/// Maximum number of pages queued for the reader.
const PAGES_MAX: usize = 4;

/// One entry of a listing.
#[derive(Debug, Clone)]
pub enum Listed {
    /// An object.
    Object(RemoteObject),
    /// A common prefix of keys, up to and including the next slash.
    Prefix(String),
}

/// The pages of a listing ([`crate::Client::pages`]). Dropping it ends the listing.
#[derive(Debug)]
pub struct Listing {
    pages: mpsc::Receiver<Result<Vec<Listed>>>,
    is_over: bool,
}

impl Listing {
    /// The next page if it is available; `None` at the end. An error ends the listing.
    pub fn try_next(&mut self) -> Poll<Option<Result<Vec<Listed>>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // An empty page marks the end. A closed channel without one means that the client has
        // ended.
        let page = match self.pages.try_recv() {
            Err(mpsc::error::TryRecvError::Empty) => return Poll::Pending,
            Err(mpsc::error::TryRecvError::Disconnected) => Err(gone()),
            Ok(page) => page,
        };
        self.is_over = page.as_ref().map_or(true, Vec::is_empty);
        Poll::Ready(if page.as_ref().is_ok_and(Vec::is_empty) { None } else { Some(page) })
    }
}

/// The client's side of a listing. Dropping it notifies the reader, too.
pub(super) struct Pages {
    pages: Option<mpsc::Sender<Result<Vec<Listed>>>>,
    notify: Box<dyn Fn() + Send>,
}

/// Makes both sides of a listing.
pub(super) fn channel(notify: impl Fn() + Send + 'static) -> (Pages, Listing) {
    let (sender, receiver) = mpsc::channel(PAGES_MAX);
    let pages = Pages { pages: Some(sender), notify: Box::new(notify) };
    (pages, Listing { pages: receiver, is_over: false })
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.pages = None;
        (self.notify)();
    }
}

impl Pages {
    /// Lists the objects, and sends all pages and the end.
    pub(super) async fn fill(
        self,
        control: &Rc<Control>,
        shared: &Arc<Shared>,
        uri: S3Uri,
        depth: Depth,
    ) {
        let listed = match depth {
            Depth::Level => self.level(control, shared, &uri).await,
            // Callers ask for all keys or for one level only.
            Depth::All | Depth::First => self.all(control, shared, uri).await,
        };
        self.hand_on(listed.map(|()| Vec::new())).await;
    }

    /// Sends a page and notifies the reader. Returns false if the reader is gone.
    async fn hand_on(&self, page: Result<Vec<Listed>>) -> bool {
        let Some(pages) = &self.pages else { return false };
        let is_read = pages.send(page).await.is_ok();
        (self.notify)();
        is_read
    }

    async fn all(&self, control: &Rc<Control>, shared: &Arc<Shared>, uri: S3Uri) -> Result<()> {
        let (found, _nothing) = control.resolve_there(&[uri]).await?;
        if found.is_empty() {
            return Ok(());
        }
        let walk = Walk::new(Rc::clone(control), found, Filter::default())?;
        let mut walk = walk.for_objects().passing_over(Vec::new());
        while let Some(batch) = walk.next_batch().await? {
            let objects = batch.into_iter().map(|entry| (entry.object, entry.endpoint));
            let page = objects.map(|found| Listed::Object(remote(found, shared))).collect();
            if !self.hand_on(Ok(page)).await {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn level(&self, control: &Control, shared: &Arc<Shared>, uri: &S3Uri) -> Result<()> {
        let KeyPattern::Prefix(prefix) = &uri.key else { unreachable!("it was parsed so") };
        let about = GrantTarget::Prefix(prefix);
        let endpoint = control.endpoint(&uri.bucket, about).await?;
        let listed = listed_prefix(prefix, &endpoint).to_owned();
        let mut pages = LevelPages::new(control, &uri.bucket, &listed);
        while let Some(page) = pages.next().await? {
            // The request may have found another region.
            let endpoint = control.endpoint(&uri.bucket, about).await?;
            let wanted = Wanted { uri, listed: &listed, prefix };
            let page = wanted.of(in_order(page), &endpoint, shared)?;
            if !page.is_empty() && !self.hand_on(Ok(page)).await {
                break;
            }
        }
        Ok(())
    }
}

/// Merges the objects and folders of a page into one list, ordered by name.
fn in_order(page: Page) -> Vec<(String, Option<Object>)> {
    let objects = page.objects.into_iter().map(|object| (object.key.clone(), Some(object)));
    let mut all: Vec<_> =
        objects.chain(page.folders.into_iter().map(|name| (name, None))).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// The requested part of a level.
struct Wanted<'a> {
    uri: &'a S3Uri,
    /// The prefix sent to the server: in directory buckets, the folder of the wanted prefix.
    listed: &'a str,
    prefix: &'a str,
}

impl Wanted<'_> {
    fn of(
        &self,
        level: Vec<(String, Option<Object>)>,
        endpoint: &Arc<Endpoint>,
        shared: &Arc<Shared>,
    ) -> Result<Vec<Listed>> {
        let mut page = Vec::with_capacity(level.len());
        for (name, object) in level {
            if !name.starts_with(self.listed) {
                let message = format!(
                    "list {}: the server returned '{}', which was not requested",
                    self.uri,
                    shown(&name)
                );
                return Err(Error::new(ErrorKind::Endpoint, message));
            }
            let size_bytes = object.as_ref().map_or(1, |object| object.size_bytes);
            // The folder's own marker object: recursive listings omit it, too.
            let is_own_mark = name == self.prefix && is_folder_mark(&name, size_bytes);
            if !name.starts_with(self.prefix) || is_own_mark {
                continue;
            }
            page.push(match object {
                Some(object) => Listed::Object(remote((object, Arc::clone(endpoint)), shared)),
                None => Listed::Prefix(name),
            });
        }
        Ok(page)
    }
}
