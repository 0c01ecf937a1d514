//! The plan: which objects move, under which names, in which ranges. Pure: no clock, file or socket.

pub mod filter;
pub mod merge;
pub mod path;
pub mod ranges;
