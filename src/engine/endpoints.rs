//! Identifies endpoints by small numbers: an endpoint is a host and port, over TLS or not. Pure.
//!
//! Buckets in path style share their server's endpoint. Buckets with a host of their own
//! (virtual-hosted style), and those of S3 Express, are separate endpoints, because S3 limits the
//! requests of each separately. Numbers are per engine, which has at most [`ENDPOINTS_MAX`]; all
//! further endpoints share the last number and its state.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::limits::ENDPOINTS_MAX;
use crate::s3::Endpoint;

/// Number of an endpoint in its engine, from 0 in the order of first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EndpointNumber(u8);

impl EndpointNumber {
    /// The first endpoint; there may be no other.
    pub const FIRST: Self = Self(0);

    /// The number with this index; indexes beyond the last number map to the last one.
    #[must_use]
    pub fn at(index: usize) -> Self {
        Self(u8::try_from(index.min(ENDPOINTS_MAX - 1)).expect("few"))
    }

    /// Its index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of endpoints of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointSet(u32);

const _: () = assert!(ENDPOINTS_MAX <= u32::BITS as usize, "a bit for each");

impl EndpointSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Adds an endpoint.
    pub fn insert(&mut self, endpoint: EndpointNumber) {
        self.0 |= 1 << endpoint.0;
    }

    /// True if the endpoint is in the set.
    #[must_use]
    pub fn has(self, endpoint: EndpointNumber) -> bool {
        self.0 & (1 << endpoint.0) != 0
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Known {
    host: String,
    tls: bool,
}

/// The endpoints that an engine has used.
#[derive(Debug, Default)]
pub struct Endpoints {
    known: RwLock<Vec<Known>>,
    /// Their number, for frequent readers.
    count: AtomicUsize,
    /// Some endpoints share the last number.
    has_beyond: AtomicBool,
}

impl Endpoints {
    /// The number of an endpoint; assigns a new one if needed.
    ///
    /// Called once per object or request; for each range only where a redirect leads.
    #[must_use]
    pub fn number_of(&self, endpoint: &Endpoint) -> EndpointNumber {
        let is_same = |known: &Known| {
            known.tls == endpoint.tls && known.host.eq_ignore_ascii_case(&endpoint.host)
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = known.iter().position(is_same) {
            return EndpointNumber::at(index);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been first.
        let index = known.iter().position(is_same).unwrap_or(known.len());
        if index == ENDPOINTS_MAX {
            self.has_beyond.store(true, Ordering::Relaxed);
        } else if index == known.len() {
            known.push(Known { host: endpoint.host.clone(), tls: endpoint.tls });
            self.count.store(known.len(), Ordering::Relaxed);
        }
        EndpointNumber::at(index)
    }

    /// Number of endpoints with numbers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// True if there are several, so that one may delay another.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.count() > 1
    }

    /// Their addresses by number: `https://host` or `http://host:port`. The last one says so if
    /// others share its number.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let name = |known: &Known| {
            format!("{}://{}", if known.tls { "https" } else { "http" }, known.host)
        };
        let mut names: Vec<String> = known.iter().map(name).collect();
        if self.has_beyond.load(Ordering::Relaxed)
            && let Some(last) = names.last_mut()
        {
            last.push_str(" and others");
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(bucket: &str, tls: bool, host: &str) -> Endpoint {
        Endpoint::new(bucket, tls, host, "/", "us-east-1", vec![])
    }

    #[test]
    fn a_host_and_port_over_tls_or_not_is_one_endpoint() {
        let all = Endpoints::default();
        let number = |bucket, tls, host| all.number_of(&endpoint(bucket, tls, host)).index();
        assert_eq!(number("a", true, "s3.test"), 0);
        assert!(!all.are_several());
        assert_eq!(number("b", true, "S3.Test"), 0, "a bucket by path; names have no case");
        assert_eq!(number("a", false, "s3.test"), 1);
        assert_eq!(number("a", true, "s3.test:444"), 2);
        assert_eq!(number("a", true, "a.s3.test"), 3);
        assert_eq!(number("c", false, "s3.test"), 1);
        assert!(all.are_several() && all.count() == 4);
        let names = ["https://s3.test", "http://s3.test", "https://s3.test:444"];
        assert_eq!(all.names()[..3], names);
    }

    #[test]
    fn those_beyond_the_last_one_share_its_number() {
        let all = Endpoints::default();
        for index in 0..2 * ENDPOINTS_MAX {
            let number = all.number_of(&endpoint("b", true, &format!("h{index}")));
            assert_eq!(number.index(), index.min(ENDPOINTS_MAX - 1));
        }
        assert_eq!(all.count(), ENDPOINTS_MAX);
        let names = all.names();
        assert_eq!(names[0], "https://h0");
        assert_eq!(names[ENDPOINTS_MAX - 1], format!("https://h{} and others", ENDPOINTS_MAX - 1));
    }

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let mut set = EndpointSet::EMPTY;
        assert!(set.is_empty());
        for index in [0, 7, ENDPOINTS_MAX - 1] {
            set.insert(EndpointNumber::at(index));
        }
        let has = (0..ENDPOINTS_MAX).filter(|index| set.has(EndpointNumber::at(*index)));
        assert_eq!(has.collect::<Vec<_>>(), [0, 7, ENDPOINTS_MAX - 1]);
    }
}
