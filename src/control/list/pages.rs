//! The pages of one listing in order, fetched by several requests at once.
//!
//! [`crate::plan::split`] decides where pages begin; this module sends the requests. They continue
//! while no page is awaited, and are cancelled when this is dropped.

use std::rc::Rc;

use tokio::task::{JoinSet, yield_now};

use crate::control::Control;
use crate::control::limits::LIST_PAGES_AHEAD_MAX;
use crate::error::Result;
use crate::link::failure::RetryReason;
use crate::plan::repeats::Repeats;
use crate::plan::split::{ListFrom, PageRequest, Split, SplitLimits};
use crate::s3::list::{ListQuery, Page};
use crate::s3::uri::shown;
use crate::s3::{Endpoint, Object};

/// A listing in progress.
#[derive(Debug)]
pub(super) struct ListingPages {
    control: Rc<Control>,
    bucket: String,
    prefix: String,
    split: Split,
    repeats: Repeats,
    under_way: JoinSet<(u64, Result<Page>)>,
    /// True if other tasks have run since the last page; also after a future was dropped.
    has_yielded: bool,
    /// Number of slow-down answers at the last check.
    slowed: u64,
}

impl ListingPages {
    /// The listing of `prefix` with its first page, as one of `listings` that share the limits.
    pub(super) fn new(
        control: Rc<Control>,
        endpoint: &Endpoint,
        prefix: &str,
        first: Page,
        listings: usize,
    ) -> Self {
        // Directory buckets list without order, and cannot start after a key.
        let requests = if endpoint.is_directory() { 1 } else { control.list_requests() };
        let limits = SplitLimits {
            requests: (requests / listings.max(1)).max(1),
            pages: (LIST_PAGES_AHEAD_MAX / listings.max(1)).max(1),
        };
        Self {
            bucket: endpoint.bucket.clone(),
            prefix: prefix.to_owned(),
            split: Split::new(prefix, first, limits),
            repeats: Repeats::default(),
            under_way: JoinSet::new(),
            has_yielded: false,
            slowed: control.retries()[RetryReason::SlowDown as usize],
            control,
        }
    }

    /// True if the next page is available without waiting.
    pub(super) fn is_ready(&mut self) -> Result<bool> {
        while let Some(answer) = self.under_way.try_join_next() {
            self.take(answer.expect(NO_PANIC))?;
        }
        Ok(self.split.has_page() || self.split.is_done())
    }

    /// The objects of the next page, at least one; `None` at the end. Cancel safe: no page is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Object>>> {
        // A caller that finds every page ready would let no other task run.
        if !std::mem::replace(&mut self.has_yielded, true) {
            yield_now().await;
        }
        loop {
            let is_ready = self.is_ready()?;
            let page = self.split.take_page().map(|mut page| {
                self.repeats.remove_from(&mut page);
                page
            });
            self.ask();
            if page.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            if is_ready {
                self.has_yielded = false;
                return Ok(page);
            }
            self.split.note_wait();
            self.ask();
            match self.under_way.join_next().await {
                Some(answer) => self.take(answer.expect(NO_PANIC))?,
                None => unreachable!("a page is asked for as long as there are some to come"),
            }
        }
    }

    fn take(&mut self, (number, page): (u64, Result<Page>)) -> Result<()> {
        let slowed = self.control.retries()[RetryReason::SlowDown as usize];
        if slowed > self.slowed {
            self.slowed = slowed;
            self.split.slow_down();
        }
        let what = || format!("list s3://{}/{}", self.bucket, shown(&self.prefix));
        match page {
            Ok(page) => self.split.answer(number, page).map_err(|error| error.within(what())),
            // A speculative request that the server rejects, or that is no longer needed.
            Err(_) if self.split.refused(number) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn ask(&mut self) {
        while let Some(PageRequest { number, from }) = self.split.next_request() {
            let mut query = ListQuery::new(self.prefix.clone());
            match from {
                ListFrom::Start => {}
                ListFrom::Token(token) => query.token = Some(token),
                ListFrom::After(key) => query.start_after = Some(key),
            }
            let (control, bucket) = (Rc::clone(&self.control), self.bucket.clone());
            let fetch = async move { (number, control.list_page(&bucket, &query).await) };
            self.under_way.spawn_local(fetch);
        }
    }
}

const NO_PANIC: &str = "a request is not given up while its listing waits, and does not panic";
