//! The data plane: requests, the workers that carry them out, their pace, and streams.

pub mod backlog;
pub mod budget;
pub mod config;
pub mod endpoints;
pub mod gunzip;
pub mod handover;
pub mod lease;
pub mod metrics;
pub mod pace;
pub mod peers;
pub mod placement;
pub mod request;
pub mod schedule;
pub mod snapshot;
pub mod stream;
pub mod threads;
pub mod waited;
pub mod worker;
