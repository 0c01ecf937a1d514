//! Detects listings whose pages repeat.
//!
//! Pure. A server that returns the tokens A, B, A, B, or the same keys with ever new tokens, would
//! be listed forever. Every page is compared with one earlier page, which is replaced after 1, 2,
//! 4, 8 pages and so on (Brent's algorithm): a cycle is found before it has been listed four times,
//! with the memory of one token and one key.

use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::s3::uri::shown;

/// Most consecutive pages without keys. S3 returns such pages if there are many delete markers.
const EMPTY_PAGES_MAX: u32 = 10_000;

/// Follows the pages of one listing.
#[derive(Debug, Clone, Default)]
pub struct CycleGuard {
    token: String,
    first: Option<String>,
    /// Pages since that page was stored, and the number after which the next one is.
    pages: u64,
    keep_after: u64,
    empty_pages: u32,
}

impl CycleGuard {
    /// Checks a page that is not the last: its first key, if any, and the token for the next page.
    ///
    /// # Errors
    /// [`ErrorKind::Endpoint`] if it repeats an earlier page, or too many pages had no key.
    pub fn follow(&mut self, first: Option<&str>, token: &str) -> Result<()> {
        let endless = |why: String| {
            Err(Error::new(ErrorKind::Endpoint, format!("the server's listing has no end: {why}"))
                .because(ErrorReason::Server)
                .advise("check that --endpoint-url is an S3 server with ListObjectsV2"))
        };
        self.empty_pages = if first.is_some() { 0 } else { self.empty_pages + 1 };
        if self.empty_pages > EMPTY_PAGES_MAX {
            return endless(format!("{EMPTY_PAGES_MAX} pages in a row have no key"));
        }
        if self.keep_after > 0 && self.token == token {
            return endless(format!("it gives the continuation token '{}' again", shown(token)));
        }
        if let Some(key) = first.filter(|_| self.first.as_deref() == first) {
            return endless(format!("another page begins with '{}'", shown(key)));
        }
        self.pages += 1;
        if self.pages >= self.keep_after {
            self.keep_after = (self.keep_after * 2).max(1);
            self.pages = 0;
            token.clone_into(&mut self.token);
            self.first = first.map(str::to_owned);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of pages after which a cycle is found, and the error.
    fn noticed(page: impl Fn(u64) -> (Option<String>, String)) -> Option<(u64, String)> {
        let mut guard = CycleGuard::default();
        (0..50_000).find_map(|number| {
            let (first, token) = page(number);
            let error = guard.follow(first.as_deref(), &token).err()?;
            assert_eq!(error.kind(), ErrorKind::Endpoint);
            Some((number, error.to_string()))
        })
    }

    #[test]
    fn circles_are_noticed_and_nothing_else_is() {
        for length in 1..100u64 {
            let tokens = |page: u64| (Some(format!("key {page}")), format!("T{}", page % length));
            let (pages, why) = noticed(tokens).expect("a circle of tokens");
            assert!(pages <= 4 * length && why.contains("token 'T"), "{length}: {pages}, {why}");
            let keys = |page: u64| (Some(format!("key {}", page % length)), format!("T{page}"));
            let (pages, why) = noticed(keys).expect("a circle of keys");
            assert!(pages <= 4 * length && why.contains("begins with 'key"), "{length}: {why}");
            // The cycle follows a beginning of its own.
            let late = |page: u64| (None, format!("T{}", page.min(70) + page.max(70) % length));
            assert!(noticed(late).expect("a circle").0 <= 70 + 4 * length.max(128));
        }
        assert_eq!(noticed(|page| (Some(format!("key {page}")), format!("T{page}"))), None);
        let some = |page: u64| page.is_multiple_of(9_999).then(|| format!("key {page}"));
        assert_eq!(noticed(|page| (some(page), format!("T{page}"))), None);
        let (pages, why) = noticed(|page| (None, format!("T{page}"))).expect("no key ever");
        assert!(pages == u64::from(EMPTY_PAGES_MAX) && why.contains("no key"), "{pages}, {why}");
    }
}
