//! The public API: a client of a server, and an engine that reads ranges of its objects.
//!
//! Everything here is re-exported at the crate's root. The library changes no state of the process:
//! no limits, signals, environment or standard streams.

mod client;
mod engine;
mod listing;
mod options;
mod share;

pub use client::{Bucket, Client, RemoteObject};
pub use engine::{Engine, EngineOptions, Request, Requests, Waker};
pub use listing::{Listed, Listing};
pub use options::ClientOptions;
