//! An S3-compatible, read-only origin: for tests (with faults), demos and benchmarks.
//!
//! ```no_run
//! use inrush_origin::{Config, Origin, SyntheticSet};
//!
//! let config = Config {
//!     synthetic: vec![SyntheticSet::new("train", "shards/", 1000, 64 << 20)],
//!     ..Config::default()
//! };
//! let origin = Origin::start(config)?;
//! println!("http://{}/train?list-type=2", origin.address());
//! origin.stop();
//! # Ok::<(), inrush_origin::Error>(())
//! ```
//!
//! Rooms; each uses only those above it:
//!
//! * [`error`]: what can go wrong, S3's errors. [`parse`]: texts that a user gives. [`map`]: files
//!   as memory, the only `unsafe`. All pure but the last.
//! * [`synthetic`]: bytes as a function of key and offset. [`source`]: where bytes come from.
//! * [`request`]: operation, bucket, key, query, range. Pure.
//! * [`fault`]: what can go wrong on purpose. [`plan`]: when, from a seed or by rules. Pure;
//!   carried out in [`wire`], [`tunnel`], [`gate`], [`body`] and [`handle`].
//! * [`checksum`]: what is stored of objects beside their bytes.
//! * [`pace`]: requests and bytes a second, and who shares them. Pure; waited for in [`body`].
//! * [`certificate`]: an authority and what it signs. [`tls`]: how TLS is spoken.
//! * [`config`]: what is served, to whom, and how badly. Pure.
//! * [`v4a`]: the keys and regions of SigV4A. [`signature`]: SigV4 and SigV4A, the verifying side.
//!   Pure; share no code with any client.
//! * [`store`]: which objects exist. [`list`]: ListObjectsV2. [`buckets`]:
//!   ListBuckets. [`respond`]: what S3 would answer.
//! * [`stats`]: counters of what happened.
//! * [`link`]: what a connection and its bodies know of each other. [`wire`]: the socket below
//!   hyper. [`tunnel`]: the session of TLS between both. [`gate`]: heads on their way from hyper.
//! * [`body`]: bytes of an answer, when they are due.
//! * [`handle`]: one request from head to answer; reads the clock for requests.
//! * [`serve`]: threads, rings, listeners, connections.
//!
//! Out of scope: everything that writes, versions, HTTP/2, access control beyond "this key may
//! read". It listens on loopback by default.

#![expect(
    rustdoc::private_intra_doc_links,
    reason = "the map is for who reads the code; users see plain words"
)]

mod body;
mod buckets;
mod certificate;
mod checksum;
mod config;
mod dates;
mod error;
mod fault;
mod gate;
mod handle;
mod link;
mod list;
mod map;
mod pace;
mod parse;
mod plan;
mod request;
mod respond;
mod serve;
mod signature;
mod source;
mod stats;
mod store;
mod synthetic;
mod tls;
mod tunnel;
mod v4a;
mod wire;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

pub use certificate::CertificateKind;
pub use checksum::{ChecksumAlgorithm, ChecksumKind, ChecksumPolicy, StoredChecksum};
pub use config::{
    Config, Credentials, DeadAddress, ObjectChange, ObjectContent, ObjectSpec, SyntheticSet,
};
pub use error::Error;
pub use fault::Fault;
pub use pace::{Neighbor, RequestRate};
pub use parse::{ParseError, parse_size};
pub use plan::{FaultPlan, Match, Profile};
pub use request::Operation;
pub use stats::Stats;
pub use synthetic::synthetic_bytes;
pub use tls::{TlsConfig, TlsResumption, TlsSuite, TlsVersions};

/// A running origin; it stops when it is dropped.
#[derive(Debug)]
pub struct Origin {
    threads: serve::Threads,
    shared: Arc<handle::Shared>,
}

impl Origin {
    /// Reads the root, listens, and starts the workers; when it returns, requests are answered.
    pub fn start(config: Config) -> Result<Self, Error> {
        let shared = Arc::new(handle::Shared::new(&config)?);
        let threads = serve::Threads::start(&config, &shared)?;
        Ok(Self { threads, shared })
    }

    /// The first address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.threads.addresses[0]
    }

    /// All addresses, in the order of [`Config::listen`].
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.threads.addresses
    }

    /// The authority that clients have to believe, as PEM; `None` where no TLS is spoken. It is
    /// made when the origin starts, and its key is not kept.
    pub fn ca_pem(&self) -> Option<&str> {
        self.shared.tls.as_ref().map(|tls| tls.ca_pem.as_str())
    }

    /// The first address as a URL.
    pub fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    /// Adds an object, or replaces it: the next request sees the new one.
    pub fn put_object(&self, object: &ObjectSpec) -> Result<(), Error> {
        // Only a panic in here could break the store, and it holds no half object.
        self.shared.store.write().unwrap_or_else(PoisonError::into_inner).add_object(object)
    }

    /// Takes an object away that was added; true when it was there.
    pub fn remove_object(&self, bucket: &str, key: &str) -> bool {
        self.shared.store.write().unwrap_or_else(PoisonError::into_inner).remove(bucket, key)
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }

    /// Stops accepting, gives answers in flight 200 ms, closes what is left, and joins all
    /// threads. Returns the final counters.
    pub fn stop(mut self) -> Stats {
        self.threads.stop();
        self.stats()
    }
}
