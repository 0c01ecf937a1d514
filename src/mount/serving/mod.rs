//! Serves mounts: the kernel's requests for names and bytes, from the mount to its end.
//!
//! It prints nothing and knows no signal: the server reports events. Several mounts may share one
//! server, with its workers and their memory.
//!
//! * `server`: the workers, the mounts, and what happens to them; `mounting` mounts with the
//!   kernel.
//! * `view`: what the kernel asks, answered from the names and by the reads; `attributes` are
//!   those of its files, and `bypass` says which of them are opened past the page cache.
//! * `transport`: how requests come: from the `device`, or over io_uring by `queues`.
//!   `reply` is an answer to either; `mailbox` has those for a ring.
//! * `reads`: reads that wait for bytes, which the workers receive.
//! * `names`: the names of one mount; `whole` has those that were all listed before, and
//!   `refresher` lists them again; `dir_lister` lists folders that are used, and `version_check`
//!   finds the versions of objects that were replaced.
//! * `cache_writer`: the cache of read objects; `local`: files that are read from it.
//! * `detach`: mount points, and the removal of mounts.

pub(crate) mod attributes;
mod bypass;
pub(crate) mod cache_writer;
pub(crate) mod detach;
mod device;
mod dir_lister;
mod local;
mod mailbox;
pub(crate) mod mounting;
pub(crate) mod names;
mod queues;
pub(crate) mod reads;
pub(crate) mod refresher;
mod reply;
pub(crate) mod server;
pub(crate) mod transport;
mod version_check;
mod view;
mod whole;
