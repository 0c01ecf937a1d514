//! The plan: how sources are listed, which objects move, under which names, in which ranges. Pure:
//! no clock, no file.

pub mod epoch;
pub mod filter;
pub mod guess;
pub mod listing;
pub mod merge;
pub mod path;
pub mod ranges;
pub mod split;
pub mod splitmix;
pub mod typed_range;
