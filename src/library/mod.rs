//! The public face of the library: a client of a server, and an engine that reads ranges of
//! its objects.
//!
//! Everything here is also at the crate's root. Nothing of the process is touched: no limits, no
//! signals, no environment, no standard streams.

mod client;
mod engine;
mod listing;
mod options;
mod share;

pub use client::{Bucket, Client, RemoteObject};
pub use engine::{Engine, EngineOptions, Request, Requests, Waker};
pub use listing::{Listed, Listing};
pub use options::ClientOptions;
