//! What the bytes of a range become: a closed set of sinks, chosen once for a run.
//!
//! A sink decides; it does not write. The worker carries its decisions out on the ring (writes of
//! large objects) or by jobs of its host (all else).

pub mod calls;
pub mod file;

use crate::files::transfer::Shape;

/// Where a run's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// Files below a folder.
    File,
    /// Counted and dropped: for ceilings, and to verify a prefix.
    Null,
}

/// What to do with a delivered piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposal {
    /// Write it at its offset through the ring.
    WriteAt,
    /// It is the whole object: write it and name it in one go.
    WriteWhole,
    /// Nothing: it has been counted.
    Drop,
}

impl Sink {
    /// What becomes of a piece of an object of this shape.
    #[must_use]
    pub fn dispose(self, shape: Shape) -> Disposal {
        match (self, shape) {
            (Self::Null, _) => Disposal::Drop,
            (Self::File, Shape::Ranges) => Disposal::WriteAt,
            (Self::File, Shape::Whole | Shape::Empty | Shape::Folder) => Disposal::WriteWhole,
        }
    }
}
