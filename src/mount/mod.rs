//! A mounted view of objects: the names that programs see, and the bytes fetched for their reads.
//!
//! [`serving`] serves it to the kernel. All else is pure: no clock, no socket, no kernel.
//!
//! * [`tree`]: names, sizes and times of all objects, from a complete listing.
//! * [`lazy`]: the names of folders that are listed on first use.
//! * [`demand`]: which bytes to fetch for reads and read-ahead within the memory limit; its `file`
//!   is the state of one file, and its `stride` finds reads at equal distances.
//! * [`page_cache`]: which files are opened past the kernel's page cache.
//! * [`versions`]: names whose objects were replaced or deleted since the listing.
//! * [`changes`]: names that later listings add, and folders that are gone.
//! * [`table`]: lines of `/proc/self/mountinfo`.
//! * [`wire`]: requests of the kernel and their answers, as bytes.

pub mod changes;
pub mod demand;
pub mod lazy;
pub mod page_cache;
pub mod serving;
pub mod table;
pub mod tree;
pub mod versions;
pub mod wire;
