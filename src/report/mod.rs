//! What users and programs see of a run: progress, logs, summaries, documents and data.

pub mod asked;
pub mod bench;
pub mod document;
pub mod exposition;
pub mod limit;
pub(crate) mod line;
pub mod log;
pub mod out;
pub mod progress;
pub mod stages;
pub mod stderr;
