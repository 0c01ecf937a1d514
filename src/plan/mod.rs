//! The plan: which objects move, under which names, in which ranges. Pure: no clock, no file.

pub mod epoch;
pub mod filter;
pub mod listing;
pub mod merge;
pub mod path;
pub mod ranges;
