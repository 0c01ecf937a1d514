//! Listings: what a source stands for, and its objects page by page.

pub mod ahead;
pub mod channel;
pub mod entries;
pub mod heads;
pub mod level;
mod listed;
pub mod manifest;
mod pages;
pub mod sources;
pub mod walk;
