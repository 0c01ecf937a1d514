//! Text as people write and read it.

pub mod glob;
pub mod instant;
pub mod shown;
pub mod size;
