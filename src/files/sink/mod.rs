//! The sink of a run: files, or nothing. Chosen once.
//!
//! A sink only decides. The worker writes large objects through the ring, and gives all other work
//! to its host as jobs.

pub mod calls;
pub mod file;

use crate::files::file_download::Shape;

/// Where a run's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// Files below a folder.
    File,
    /// Counted and dropped: to measure the ceiling, and to verify a prefix.
    Null,
}

/// What to do with a delivered piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposal {
    /// Write it at its offset through the ring.
    WriteAt,
    /// It is the whole object: write and name the file in one job.
    WriteWhole,
    /// Nothing: it was counted.
    Drop,
}

impl Sink {
    /// What to do with a piece of an object of this shape.
    #[must_use]
    pub fn dispose(self, shape: Shape) -> Disposal {
        match (self, shape) {
            (Self::Null, _) => Disposal::Drop,
            (Self::File, Shape::Ranges) => Disposal::WriteAt,
            (Self::File, Shape::Whole | Shape::Empty | Shape::Folder) => Disposal::WriteWhole,
        }
    }
}
