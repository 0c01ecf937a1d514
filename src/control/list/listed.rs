//! Resolves the objects of a manifest from listings: 1,000 by one request, where a HEAD resolves
//! one.
//!
//! If a bucket has enough of them, their folders are listed, several at once and in the order in
//! which they are named, while HEADs resolve the first objects. Of the listings only named objects
//! are stored, each in 44 bytes plus its key ([`crate::plan::listing`]). Failures here are no
//! errors of the stream, nor are listings that would be too long or too old: objects not found here
//! are requested by HEAD.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking, spawn_local};
use tokio::time::Instant;
use tracing::info;

use super::pages::ListingPages;
use crate::control::Control;
use crate::control::limits::{
    FOLDERS_LISTED_AT_ONCE_MAX, LISTED_AGE_MAX, LISTED_BYTES_MAX, LISTED_PER_WANTED_MAX,
    LISTED_WANTED_MIN,
};
use crate::error::Result;
use crate::plan::listing::Listing;
use crate::plan::named::{Named, NamedKeys};
use crate::s3::grants::GrantTarget;
use crate::s3::list::ListQuery;
use crate::s3::uri::S3Uri;
use crate::s3::{Endpoint, Object};

/// Limits of when a listing begins, ends and expires.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedLimits {
    pub(super) wanted_min: u64,
    pub(super) per_wanted_max: u64,
    pub(super) bytes_max: u64,
    pub(super) age_max: Duration,
}

impl Default for ListedLimits {
    fn default() -> Self {
        Self {
            wanted_min: LISTED_WANTED_MIN,
            per_wanted_max: LISTED_PER_WANTED_MAX,
            bytes_max: LISTED_BYTES_MAX,
            age_max: LISTED_AGE_MAX,
        }
    }
}

/// The named objects of one epoch. Dropping this cancels the requests in progress.
#[derive(Debug)]
pub(super) struct Listed {
    control: Rc<Control>,
    named: Arc<Named>,
    pub(super) limits: ListedLimits,
    /// Buckets that are worth a listing.
    buckets: HashMap<String, BucketObjects>,
}

#[derive(Debug)]
struct BucketObjects {
    /// Number of its wanted objects.
    wanted: u64,
    listing: Option<BucketListing>,
}

impl Listed {
    /// Nothing is listed yet. Each of the `hosts` wants its share of the named objects.
    pub(super) fn new(
        control: Rc<Control>,
        named: Arc<Named>,
        hosts: u64,
        limits: ListedLimits,
    ) -> Self {
        let worth = |(bucket, keys): (&str, &NamedKeys)| {
            let wanted = keys.references() / hosts.max(1);
            let listed_min = keys.count();
            let is_worth = wanted >= limits.wanted_min
                && listed_min <= wanted.saturating_mul(limits.per_wanted_max);
            is_worth.then(|| (bucket.to_owned(), BucketObjects { wanted, listing: None }))
        };
        let buckets = named.buckets().filter_map(worth).collect();
        Self { control, named, limits, buckets }
    }

    /// The object and its endpoint, if listed. The first call for a known bucket starts its
    /// listing.
    pub(super) fn find(&mut self, uri: &S3Uri) -> Option<(Object, Arc<Endpoint>)> {
        let bucket = self.buckets.get_mut(&uri.bucket).filter(|_| uri.version_id.is_empty())?;
        if let Some(listing) = &bucket.listing
            && listing.tables.is_old(self.limits.age_max)
        {
            // A slow reader needs no listing: HEADs cost less then.
            if listing.tables.was_worth(self.limits.per_wanted_max) {
                info!("bucket {}: what was listed is old", uri.bucket);
                bucket.listing = None;
            } else {
                listing.tables.retire();
            }
        }
        if bucket.listing.is_none() && self.control.has_met(&uri.bucket) {
            let tables =
                Tables::new(&uri.bucket, Arc::clone(&self.named), bucket.wanted, self.limits);
            bucket.listing = Some(BucketListing::begin(&self.control, tables));
        }
        bucket.listing.as_ref()?.tables.find(uri.literal_key())
    }

    /// True while a listing is in progress.
    #[cfg(test)]
    pub(super) fn is_under_way(&self) -> bool {
        let mut listings = self.buckets.values().filter_map(|bucket| bucket.listing.as_ref());
        listings.any(|listing| listing.tables.state.borrow().tasks > 0)
    }
}

/// The listing of one bucket, in progress or finished.
#[derive(Debug)]
struct BucketListing {
    tables: Rc<Tables>,
    tasks: Vec<JoinHandle<()>>,
}

impl BucketListing {
    fn begin(control: &Rc<Control>, tables: Tables) -> Self {
        let folders = tables.state.borrow().tables.len();
        let tasks = folders.min(FOLDERS_LISTED_AT_ONCE_MAX).min(control.list_requests());
        tables.state.borrow_mut().tasks = tasks;
        let tables = Rc::new(tables);
        let list = |_| spawn_local(list(Rc::clone(control), Rc::clone(&tables), tasks));
        Self { tasks: (0..tasks).map(list).collect(), tables }
    }
}

impl Drop for BucketListing {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The listed objects of a bucket so far.
#[derive(Debug)]
struct Tables {
    bucket: String,
    named: Arc<Named>,
    listed_max: u64,
    bytes_max: u64,
    state: RefCell<TablesState>,
}

#[derive(Debug, Default)]
struct TablesState {
    /// One table per folder.
    tables: Vec<Table>,
    /// The first folder without a task.
    next: usize,
    /// Number of tasks that list.
    tasks: usize,
    /// Keys listed, keys among them that are named, and keys requested.
    listed: u64,
    found: u64,
    answered: u64,
    /// Why the listing stopped.
    stopped: Option<String>,
    ended: Option<Instant>,
}

#[derive(Debug)]
struct Table {
    folder: String,
    listing: Listing,
    /// The table may be searched.
    is_sorted: bool,
}

impl Tables {
    fn new(bucket: &str, named: Arc<Named>, wanted: u64, limits: ListedLimits) -> Self {
        let bytes_max = limits.bytes_max;
        let table = |folder| Table { folder, listing: Listing::new(bytes_max), is_sorted: true };
        let keys = named.bucket(bucket);
        let tables: Vec<Table> =
            keys.map(NamedKeys::folders).unwrap_or_default().into_iter().map(table).collect();
        info!(
            "bucket {bucket}: {wanted} objects are named: listing folders ahead ({})",
            tables.len()
        );
        Self {
            bucket: bucket.to_owned(),
            named,
            listed_max: wanted.saturating_mul(limits.per_wanted_max),
            bytes_max,
            state: RefCell::new(TablesState { tables, ..TablesState::default() }),
        }
    }

    /// The next folder to list, and its number.
    fn next_folder(&self) -> Option<(usize, String)> {
        let mut state = self.state.borrow_mut();
        let at = state.next;
        let folder = state.tables.get(at).filter(|_| state.stopped.is_none())?.folder.clone();
        state.next += 1;
        Some((at, folder))
    }

    /// Adds listed objects of a folder; false if listing should stop.
    fn take(&self, at: usize, objects: &[Object], endpoint: &Arc<Endpoint>) -> bool {
        let Some(keys) = self.named.bucket(&self.bucket) else { return false };
        let state = &mut *self.state.borrow_mut();
        let Some(table) = state.tables.get_mut(at) else { return false };
        state.listed += objects.len() as u64;
        // Without an ETag a replaced object could not be noticed.
        let is_wanted = |object: &&Object| !object.etag.is_empty() && keys.has(&object.key);
        for object in objects.iter().filter(is_wanted) {
            let last = table.listing.last_key();
            table.is_sorted &= last.is_none_or(|last| last < object.key.as_str());
            // An object that does not fit is requested by HEAD.
            state.found += u64::from(table.listing.push(object, endpoint).is_ok());
        }
        let bytes: u64 = state.tables.iter().map(|table| table.listing.bytes()).sum();
        let why = if state.found >= keys.count() {
            "all are found".to_owned()
        } else if state.listed >= self.listed_max {
            format!("{} keys were listed, the rest is asked about", state.listed)
        } else if bytes >= self.bytes_max {
            format!("what is known takes {bytes} bytes, the rest is asked about")
        } else {
            return state.stopped.is_none();
        };
        state.stopped.get_or_insert(why);
        false
    }

    /// Sorts the listing of a folder if it was not in order.
    async fn sort(&self, at: usize) {
        let unsorted = match self.state.borrow_mut().tables.get_mut(at) {
            Some(table) if !table.is_sorted => {
                std::mem::replace(&mut table.listing, Listing::new(0))
            }
            _ => return,
        };
        let sort = |mut listing: Listing| {
            listing.sort();
            listing
        };
        let sorted = spawn_blocking(move || sort(unsorted)).await.expect("a sort does not panic");
        if let Some(table) = self.state.borrow_mut().tables.get_mut(at) {
            (table.listing, table.is_sorted) = (sorted, true);
        }
    }

    fn stop(&self, why: String) {
        self.state.borrow_mut().stopped.get_or_insert(why);
    }

    /// A task has ended; the last one logs the result.
    fn end(&self) {
        let mut state = self.state.borrow_mut();
        state.tasks -= 1;
        if state.tasks > 0 {
            return;
        }
        state.ended = Some(Instant::now());
        let keys = self.named.bucket(&self.bucket).map_or(0, NamedKeys::count);
        let TablesState { listed, found, .. } = *state;
        let why = state.stopped.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        info!(
            "bucket {}: {found} of {keys} named objects found among {listed} listed{why}",
            self.bucket
        );
    }

    fn find(&self, key: &str) -> Option<(Object, Arc<Endpoint>)> {
        let state = &mut *self.state.borrow_mut();
        let table = state.tables.iter().find(|table| key.starts_with(&table.folder))?;
        let listing = Some(&table.listing).filter(|_| table.is_sorted)?;
        let index = listing.find(key)?;
        state.answered += 1;
        Some((listing.object(index), Arc::clone(listing.endpoint(index))))
    }

    fn is_old(&self, age_max: Duration) -> bool {
        self.state.borrow().ended.is_some_and(|ended| ended.elapsed() >= age_max)
    }

    /// True if it resolved enough objects to be repeated.
    fn was_worth(&self, per_wanted_max: u64) -> bool {
        let state = self.state.borrow();
        state.answered.saturating_mul(per_wanted_max) >= state.listed.max(1)
    }

    /// Drops all listed objects: HEADs are sent from now on.
    fn retire(&self) {
        info!("bucket {}: what was listed is old: objects are asked about", self.bucket);
        *self.state.borrow_mut() = TablesState::default();
    }
}

/// Lists folders while there are some without a task.
async fn list(control: Rc<Control>, tables: Rc<Tables>, listings: usize) {
    while let Some((at, folder)) = tables.next_folder() {
        if let Err(error) = list_folder(&control, &tables, (at, &folder), listings).await {
            tables.stop(format!("{error}: objects are asked about"));
        }
        tables.sort(at).await;
    }
    tables.end();
}

async fn list_folder(
    control: &Rc<Control>,
    tables: &Tables,
    (at, folder): (usize, &str),
    listings: usize,
) -> Result<()> {
    let first = control.list_page(&tables.bucket, &ListQuery::new(folder)).await?;
    // The request may have found another region.
    let endpoint = control.endpoint(&tables.bucket, GrantTarget::Prefix(folder)).await?;
    let mut pages = ListingPages::new(Rc::clone(control), &endpoint, folder, first, listings);
    while let Some(objects) = pages.next().await? {
        if !tables.take(at, &objects, &endpoint) {
            break;
        }
    }
    Ok(())
}
