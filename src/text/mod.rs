//! Text as people write and read it.

pub mod glob;
pub mod shown;
pub mod size;
