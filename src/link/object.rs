//! One version of an object on its server, shared by those who request ranges of it.
//!
//! It does no I/O.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::checksum::{InOrder, unverified};
use crate::link::conn::EtagDigest;
use crate::s3::redirect::Elsewhere;
use crate::s3::{Endpoint, Object, address};

/// An object, where it is served, and what the requests for it have shown.
#[derive(Debug)]
pub struct ObjectRef {
    /// The object as it was listed or found.
    pub listed: Object,
    /// Where it is served.
    pub endpoint: Arc<Endpoint>,
    /// Digest of its ETag, if it has one.
    pub etag: Option<EtagDigest>,
    /// ETag of the first range's answer, if none was listed.
    seen_etag: OnceLock<EtagDigest>,
    /// `Last-Modified` of the first range's answer without an ETag.
    seen_last_modified: OnceLock<EtagDigest>,
    /// The stored checksum with which a stream compares its bytes, or why it has none. Boxed: most
    /// have none.
    checksum: OnceLock<Result<Box<InOrder>, &'static str>>,
    /// Where the redirects of its server lead, since there was one. Boxed: most have none.
    elsewhere: OnceLock<Box<RwLock<Option<Arc<Elsewhere>>>>>,
    retries: AtomicU32,
    begun_us: AtomicU64,
}

impl ObjectRef {
    /// An object of which nothing was requested.
    #[must_use]
    pub fn new(listed: Object, endpoint: Arc<Endpoint>) -> Self {
        let etag = (!listed.etag.is_empty()).then(|| EtagDigest::of(listed.etag.as_bytes()));
        Self {
            listed,
            endpoint,
            etag,
            seen_etag: OnceLock::new(),
            seen_last_modified: OnceLock::new(),
            checksum: OnceLock::new(),
            elsewhere: OnceLock::new(),
            retries: AtomicU32::new(0),
            begun_us: AtomicU64::new(u64::MAX),
        }
    }

    /// The object as it is now; its times and retries continue.
    #[must_use]
    pub fn anew(&self, listed: Object) -> Self {
        let endpoint = Arc::clone(&self.endpoint);
        Self {
            retries: AtomicU32::new(self.retries()),
            begun_us: AtomicU64::new(self.begun_us.load(Ordering::Relaxed)),
            ..Self::new(listed, endpoint)
        }
    }

    /// Its name in messages: `s3://bucket/key`, or its URL without the query.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.listed.web {
            Some(web) => web.source().to_string(),
            None => address(&self.endpoint.bucket, &self.listed.key),
        }
    }

    /// True if it is of a URL whose server gives a weak ETag, which matches no `If-Match` (RFC 9110
    /// section 13.1.1); answers are compared with it all the same.
    #[must_use]
    pub fn has_weak_etag(&self) -> bool {
        self.listed.web.is_some() && self.listed.etag.starts_with("W/")
    }

    /// Compares the ETag of one range's answer, or its `Last-Modified` if it has none, with those
    /// of the others; false if they are of two versions. If the listing gave an ETag, every
    /// answer's was compared with it already.
    #[must_use]
    pub fn agrees(&self, etag: Option<EtagDigest>, last_modified: Option<EtagDigest>) -> bool {
        let is_alike = |first: &OnceLock<EtagDigest>, seen: Option<EtagDigest>| {
            seen.is_none_or(|seen| *first.get_or_init(|| seen) == seen)
        };
        is_alike(&self.seen_etag, etag) && is_alike(&self.seen_last_modified, last_modified)
    }

    /// Makes a stream compare its bytes with this checksum, or says why it cannot; the first call
    /// counts.
    pub fn compare_with(&self, checksum: Result<InOrder, &'static str>) {
        let _ = self.checksum.set(checksum.map(Box::new));
    }

    /// The checksum with which a stream compares its bytes.
    ///
    /// # Errors
    /// Why it compares them with none.
    pub fn checksum(&self) -> Result<InOrder, &'static str> {
        match self.checksum.get() {
            Some(Ok(checksum)) => Ok(**checksum),
            Some(Err(reason)) => Err(reason),
            None => Err(unverified::OFF),
        }
    }

    /// Where a redirect of its server leads, as far as is known.
    #[must_use]
    pub fn elsewhere(&self) -> Option<Arc<Elsewhere>> {
        self.elsewhere.get()?.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records where a redirect leads.
    pub fn lead_to(&self, elsewhere: &Arc<Elsewhere>) {
        let place = self.elsewhere.get_or_init(Box::default);
        *place.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(elsewhere));
    }

    /// Records that this server does not have it; a newer redirect stays.
    pub fn leave(&self, elsewhere: &Arc<Elsewhere>) {
        let Some(place) = self.elsewhere.get() else { return };
        let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|known| Arc::ptr_eq(known, elsewhere)) {
            *place = None;
        }
    }

    /// Counts a failed attempt of a range that is retried.
    pub fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Failed attempts that were retried, over all its ranges; a move to another connection does
    /// not count.
    #[must_use]
    pub fn retries(&self) -> u32 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Records that work on it has begun; the earliest time stays.
    pub fn begin(&self, now_us: u64) {
        self.begun_us.fetch_min(now_us, Ordering::Relaxed);
    }

    /// When work on it began; `None` if it never did.
    #[must_use]
    pub fn begun_us(&self) -> Option<u64> {
        Some(self.begun_us.load(Ordering::Relaxed)).filter(|begun| *begun != u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::redirect::RedirectChain;
    use crate::s3::web::WebUrl;

    #[test]
    fn it_leaves_only_where_it_was_led_to_last() {
        let server = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
        let object = ObjectRef::new(Object::default(), Arc::clone(&server));
        let [one, other] = ["/1", "/2"].map(|target| {
            let chain = RedirectChain::from(WebUrl::at(false, "h", target.to_owned()));
            Arc::new(Elsewhere { chain, endpoint: Arc::clone(&server) })
        });
        let is_at =
            |wanted: &Arc<_>| object.elsewhere().is_some_and(|found| Arc::ptr_eq(&found, wanted));
        object.leave(&one);
        assert!(object.elsewhere().is_none());
        object.lead_to(&one);
        object.lead_to(&other);
        object.leave(&one);
        assert!(is_at(&other));
        object.leave(&other);
        assert!(object.elsewhere().is_none());
    }

    #[test]
    fn answers_without_a_listed_tag_must_agree() {
        let endpoint = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
        let object = ObjectRef::new(Object::default(), endpoint);
        let [one, other] = [b"1", b"2"].map(|tag| Some(EtagDigest::of(tag)));
        for is_etag in [true, false] {
            let agrees = |tag| match is_etag {
                true => object.agrees(tag, None),
                false => object.agrees(None, tag),
            };
            assert!(agrees(None) && agrees(one) && agrees(one) && !agrees(other));
        }
    }
}
