//! Text that people write and read.

pub mod glob;
pub mod instant;
pub mod shown;
pub mod size;
