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
//! Rooms, in the direction of flow:
//!
//! * [`config`]: what is served, to whom; parsing of sizes and sets. Pure.
//! * [`serve`]: threads, rings, listeners, connections. [`wire`]: the socket below hyper.
//! * [`gate`]: heads on their way from hyper to either.
//! * [`tls`]: how TLS is spoken. [`certificate`]: an authority and what it signs. [`tunnel`]: the
//!   session between [`wire`] and hyper.
//! * [`handle`]: one request from head to answer; the only room that reads the clock for requests.
//! * [`request`]: operation, bucket, key, query, range. Pure.
//! * [`signature`]: SigV4, the verifying side. Pure; shares no code with any client.
//! * [`respond`]: what S3 would answer. [`list`]: ListObjectsV2. [`error`]: S3's errors. Pure.
//! * [`store`]: which objects exist. [`synthetic`]: bytes as a function of key and offset.
//!   [`checksum`]: what is stored of them beside their bytes.
//! * [`fault`]: what can go wrong. [`plan`]: when, from a seed or by rules. Pure; carried out in
//!   [`body`], [`gate`], [`wire`], [`tunnel`] and [`handle`].
//! * [`pace`]: requests and bytes a second, and who shares them. Pure; waited for in [`body`].
//! * [`stats`]: counters. [`map`]: files as memory, the only `unsafe`.
//!
//! Out of scope: everything that writes, versions, HTTP/2, access control beyond "this key may
//! read". It listens on loopback unless told otherwise.

#![expect(
    rustdoc::private_intra_doc_links,
    reason = "the map is for who reads the code; users see plain words"
)]

mod body;
mod certificate;
mod checksum;
mod config;
mod error;
mod fault;
mod gate;
mod handle;
mod list;
mod map;
mod pace;
mod plan;
mod request;
mod respond;
mod serve;
mod signature;
mod stats;
mod store;
mod synthetic;
mod tls;
mod tunnel;
mod wire;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

pub use checksum::{ChecksumAlgorithm, ChecksumKind, ChecksumPolicy, StoredChecksum};
pub use config::{
    Config, Credentials, DeadAddress, ObjectChange, ObjectContent, ObjectSpec, ParseError,
    SyntheticSet, parse_size,
};
pub use error::Error;
pub use fault::Fault;
pub use pace::{Neighbor, RequestRate};
pub use plan::{FaultPlan, Match, Profile};
pub use request::Operation;
pub use stats::Stats;
pub use synthetic::synthetic_bytes;
pub use tls::{CertificateKind, TlsConfig, TlsResumption, TlsSuite, TlsVersions};

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
