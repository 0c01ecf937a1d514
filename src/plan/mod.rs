//! The plan: how sources are listed, which objects are transferred, under which names, in which
//! ranges, and how records of a stream are framed. Pure: no clock, no file.

pub mod augmented;
pub mod epoch;
pub mod filter;
pub mod folding;
pub mod guess;
pub mod kept;
pub mod listing;
pub mod manifest;
pub mod merge;
pub mod named;
pub mod path;
pub mod prefix;
pub mod ranges;
pub mod recordio;
pub mod repeats;
pub mod split;
pub mod splitmix;
pub mod typed_range;
