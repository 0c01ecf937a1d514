//! A mounted view of objects: the tree of names that programs see, and what is fetched when they
//! read. Pure: no clock, no socket, no kernel.
//!
//! * [`tree`]: names, sizes and times of all objects, as the listing has them.
//! * [`lazy`]: the same of folders that are listed when they are used.
//! * [`demand`]: which bytes are fetched for the reads of programs, ahead of them and never beyond
//!   the memory that there is.
//!   `file`: of one of them, and how its reads follow each other.
//! * [`versions`]: what names lead to whose objects were replaced since then.
//! * [`table`]: lines of `/proc/self/mountinfo`.
//! * [`wire`]: requests of the kernel and their answers, as bytes.

pub mod demand;
mod file;
pub mod lazy;
pub mod table;
pub mod tree;
pub mod versions;
pub mod wire;
