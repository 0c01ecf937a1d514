//! Memory for buffers: what is taken when nothing is said.

use super::{CONNECTIONS_DEFAULT_MAX, CONNECTIONS_DEFAULT_PER_WORKER, CONTROL_SLOT_BYTES};

/// Memory for slots when nothing is said, at most; see [`MEMORY_CGROUP_SHARE`].
pub const MEMORY_BYTES_DEFAULT_MAX: u64 = 112 << 20;

/// The same for each worker, where there are so many that it is more.
pub const MEMORY_BYTES_PER_WORKER: u64 = 8 << 20;

/// Bytes of buffers that so many workers have, where the machine has the memory and nobody asks for
/// something else.
#[must_use]
pub const fn memory_bytes_default(workers: usize) -> u64 {
    let beyond = (workers * CONNECTIONS_DEFAULT_PER_WORKER).saturating_sub(CONNECTIONS_DEFAULT_MAX);
    let each = workers as u64 * MEMORY_BYTES_PER_WORKER;
    let needed = each + beyond as u64 * CONTROL_SLOT_BYTES as u64;
    if needed > MEMORY_BYTES_DEFAULT_MAX { needed } else { MEMORY_BYTES_DEFAULT_MAX }
}

/// The default takes at most one part in so many of the memory that the cgroup leaves.
pub const MEMORY_CGROUP_SHARE: u64 = 4;

/// Smallest `--memory`: a few connections with the shortest slots.
pub const MEMORY_BYTES_MIN: u64 = 4 << 20;
