//! What users and their programs read of a run: progress, summary, document, data.

pub mod document;
pub mod exposition;
mod line;
pub mod log;
pub mod out;
pub mod progress;
