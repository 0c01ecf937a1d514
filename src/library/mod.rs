//! The public API: a client of a server, an engine that reads ranges of its objects, and downloads
//! of objects to files.
//!
//! Everything here is re-exported at the crate's root. The library changes no state of the process:
//! no limits, signals, environment or standard streams.

mod client;
mod download;
mod engine;
mod feed;
mod listing;
mod options;
mod order;
mod share;

pub use client::{Bucket, Client, RemoteObject};
pub use download::{Download, DownloadError, DownloadHandle, DownloadSummary};
pub use engine::{Engine, EngineOptions, Request, Requests, Waker};
pub use feed::{DownloadEvent, DownloadEvents, DownloadObject, DownloadProgress};
pub use listing::{Listed, Listing};
pub use options::ClientOptions;
