//! Lists again what a mount shows, and shows what is new, replaced or gone.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use super::names::{Names, now_seconds};
use super::version_check::VersionCheck;
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::entries::Entries;
use crate::control::list::walk::{Entry, Walk};
use crate::error::{Error, Result};
use crate::limits::MOUNT_CHANGES_MAX;
use crate::mount::changes::refresh::{KnownNames, Refresh, RefreshCounts, Relisted};
use crate::plan::filter::Filter;
use crate::s3::uri::S3Uri;

/// Entries that are taken while the names are locked.
const AT_ONCE: usize = 64;

/// What a mount shows, to be listed again.
#[derive(Debug)]
pub(crate) struct Relisting {
    pub(crate) control: Rc<Control>,
    pub(crate) sources: Vec<S3Uri>,
    pub(crate) filter: Filter,
}

impl Relisting {
    /// Its entries as they are now. A source may have none.
    async fn entries(&self) -> Result<Entries> {
        let (found, missing) = self.control.resolve_there(&self.sources).await?;
        let walk = Walk::new(Rc::clone(&self.control), found, self.filter.clone())?;
        Ok(walk.without_repeated().passing_over(missing).allowing_none().into())
    }
}

/// Lists again after each interval, and when it is notified, until it is aborted: one listing at a
/// time.
pub(super) async fn refresh(
    of: Arc<VersionCheck>,
    relisting: Relisting,
    interval: Duration,
    wanted: Arc<Notify>,
    results: mpsc::Sender<Result<RefreshCounts>>,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = wanted.notified() => {}
        }
        let result = once(&of, &relisting).await;
        if results.send(result).await.is_err() {
            return;
        }
    }
}

/// Takes one listing. If it fails, what it has listed until then is shown, and nothing is removed.
async fn once(of: &Arc<VersionCheck>, relisting: &Relisting) -> Result<RefreshCounts> {
    let mut entries = relisting.entries().await?;
    let mut refresh = {
        let of = Arc::clone(of);
        let new = move || of.change(|state| Refresh::new(state, now_seconds(), MOUNT_CHANGES_MAX));
        blocking(new).await?
    };
    while let Some(batch) = entries.next_batch().await? {
        let of = Arc::clone(of);
        refresh = blocking(move || of.take(refresh, batch)).await?;
    }
    let of = Arc::clone(of);
    blocking(move || of.finish(refresh)).await
}

impl VersionCheck {
    /// Changes all that is known of the names.
    fn change<T>(&self, change: impl FnOnce(&mut KnownNames<'_>) -> T) -> Result<T> {
        match self.names() {
            Names::Whole(names) => Ok(self.update(|versions| names.update(versions, change))),
            Names::Lazy(_) => Err(Error::bug("folders that are listed lazily are not refreshed")),
        }
    }

    /// Takes entries of a listing, and invalidates what the kernel has of those that changed.
    fn take(&self, mut refresh: Refresh, batch: Vec<Entry>) -> Result<Refresh> {
        let mut batch = batch.into_iter();
        while batch.len() > 0 {
            // Lookups of programs wait for it.
            self.change(|state| {
                for entry in batch.by_ref().take(AT_ONCE) {
                    // Others are hidden, as in the first listing.
                    let Ok(path) = entry.path else { continue };
                    let Entry { endpoint, object, folder: is_folder, .. } = entry;
                    let path = path.as_str().to_owned();
                    refresh.take(state, Relisted { path, is_folder, object, endpoint });
                }
            })?;
        }
        let stale = refresh.take_stale();
        self.invalidate_all(stale.folders, stale.names);
        Ok(refresh)
    }

    /// Takes the end of a listing.
    fn finish(&self, refresh: Refresh) -> Result<RefreshCounts> {
        let (counts, stale) = self.change(|state| refresh.finish(state))?;
        self.invalidate_all(stale.folders, stale.names);
        Ok(counts)
    }
}
