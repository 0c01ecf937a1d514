//! What happened: counters that all workers add to, and a snapshot of them.
//!
//! Not here: times. Who wants latencies measures them at the client.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::fault::Fault;
use crate::request::Operation;

/// A snapshot of an origin's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that are open now.
    pub connections_open: u64,
    /// Requests whose head arrived, whatever became of them.
    pub requests: u64,
    /// Requests at each address, in the order of [`Config::listen`](crate::Config::listen).
    pub requests_by_address: Vec<u64>,
    /// Connections that were accepted through each address, in the same order.
    pub connections_by_address: Vec<u64>,
    /// TLS handshakes that came to their end.
    pub tls_handshakes: u64,
    /// Those of them that went on with an earlier session.
    pub tls_resumed: u64,
    /// TLS handshakes that the client broke off, or that were none.
    pub tls_failed: u64,
    /// Handshakes by version and suite: `TLSv1_3 TLS13_AES_128_GCM_SHA256`.
    pub tls_suites: BTreeMap<String, u64>,
    /// GETs of objects.
    pub gets: u64,
    /// HEADs of objects and buckets.
    pub heads: u64,
    /// Listings.
    pub lists: u64,
    /// Answers with a status of 400 or more, injected ones included.
    pub errors: u64,
    /// S3's codes of these, for instance `SlowDown`; a proxy's page has none.
    pub codes: BTreeMap<&'static str, u64>,
    /// Requests that were refused because there were more than
    /// [`Config::request_rate`](crate::Config::request_rate) allows; answers of faults are not
    /// among them.
    pub throttled: u64,
    /// Objects that became others, see [`Config::changes`](crate::Config::changes).
    pub objects_changed: u64,
    /// Bytes of bodies that were handed to connections.
    pub body_bytes: u64,
    /// Bytes that the kernel took, heads included.
    pub bytes_sent: u64,
    /// Faults that were carried out, by name; kinds that never happened are left out. One within a
    /// body counts when its place is reached: not if the client left before.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// Faults of all kinds together.
    pub fn faults_total(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// The counters themselves; each is only a number, so relaxed order is enough.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connections: Counter,
    connections_by_address: Vec<Counter>,
    pub(crate) connections_open: Counter,
    requests: Counter,
    requests_by_address: Vec<Counter>,
    tls_handshakes: Counter,
    tls_resumed: Counter,
    pub(crate) tls_failed: Counter,
    /// Behind a lock: it is taken once in a connection's life.
    tls_suites: Mutex<BTreeMap<String, u64>>,
    gets: Counter,
    heads: Counter,
    lists: Counter,
    errors: Counter,
    /// Behind a lock: errors are rare.
    codes: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) throttled: Counter,
    pub(crate) objects_changed: Counter,
    pub(crate) body_bytes: Counter,
    pub(crate) bytes_sent: Counter,
    /// In the order of [`Fault::NAMES`].
    faults: Vec<Counter>,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, number: u64) {
        self.0.fetch_sub(number, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn new(addresses: usize) -> Self {
        let counters = |count| (0..count).map(|_| Counter::default()).collect();
        let (requests_by_address, connections_by_address) =
            (counters(addresses), counters(addresses));
        let faults = counters(Fault::NAMES.len());
        Self { requests_by_address, connections_by_address, faults, ..Self::default() }
    }

    pub(crate) fn count_connection(&self, address_index: usize) {
        self.connections.add(1);
        self.connections_by_address[address_index].add(1);
    }

    /// An answer with a status of 400 or more, or a redirect with S3's code.
    pub(crate) fn count_error(&self, status: u16, code: Option<&'static str>) {
        self.errors.add(u64::from(status >= 400));
        if let Some(code) = code {
            let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
            *codes.entry(code).or_default() += 1;
        }
    }

    pub(crate) fn count_request(&self, address_index: usize) {
        self.requests.add(1);
        self.requests_by_address[address_index].add(1);
    }

    pub(crate) fn count_handshake(&self, version: &str, suite: &str, resumed: bool) {
        self.tls_handshakes.add(1);
        self.tls_resumed.add(u64::from(resumed));
        let mut suites = self.tls_suites.lock().unwrap_or_else(PoisonError::into_inner);
        *suites.entry(format!("{version} {suite}")).or_default() += 1;
    }

    pub(crate) fn count_operation(&self, operation: Operation) {
        match operation {
            Operation::GetObject => self.gets.add(1),
            Operation::HeadBucket | Operation::HeadObject => self.heads.add(1),
            Operation::ListObjects => self.lists.add(1),
            Operation::GetBucketLocation | Operation::ListBuckets => {}
        }
    }

    pub(crate) fn count_fault(&self, fault: &Fault) {
        self.faults[fault.kind()].add(1);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let faults = Fault::NAMES.into_iter().zip(&self.faults);
        Stats {
            connections: self.connections.get(),
            connections_open: self.connections_open.get(),
            requests: self.requests.get(),
            requests_by_address: self.requests_by_address.iter().map(Counter::get).collect(),
            connections_by_address: self.connections_by_address.iter().map(Counter::get).collect(),
            tls_handshakes: self.tls_handshakes.get(),
            tls_resumed: self.tls_resumed.get(),
            tls_failed: self.tls_failed.get(),
            tls_suites: self.tls_suites.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            gets: self.gets.get(),
            heads: self.heads.get(),
            lists: self.lists.get(),
            errors: self.errors.get(),
            codes: self.codes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            throttled: self.throttled.get(),
            objects_changed: self.objects_changed.get(),
            body_bytes: self.body_bytes.get(),
            bytes_sent: self.bytes_sent.get(),
            faults: faults
                .map(|(name, counter)| (name, counter.get()))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_json() {
        let counters = Counters::new(2);
        for address_index in [0, 1, 1] {
            counters.count_request(address_index);
        }
        counters.count_operation(Operation::ListObjects);
        counters.count_fault(&Fault::SlowDown);
        let stats = counters.snapshot();
        assert_eq!(stats.requests_by_address, [1, 2]);
        assert_eq!((stats.requests, stats.lists, stats.faults_total()), (3, 1, 1));
        let json = serde_json::to_string(&stats).unwrap();
        assert!(json.contains("\"faults\":{\"slow_down\":1}"), "{json}");
    }
}
