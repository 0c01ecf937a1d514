//! Text as people write and read it.

pub mod shown;
pub mod size;
