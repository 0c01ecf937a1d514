//! Limits of memory for buffers without `--memory`.

use super::{CONNECTIONS_DEFAULT_MAX, CONNECTIONS_DEFAULT_PER_WORKER, CONTROL_SLOT_BYTES};

/// Most memory for slots by default, in bytes; see [`MEMORY_CGROUP_SHARE`].
pub const MEMORY_BYTES_DEFAULT_MAX: u64 = 112 << 20;

/// Memory for slots per worker, in bytes, if there are enough workers that it is more.
pub const MEMORY_BYTES_PER_WORKER: u64 = 8 << 20;

/// Default memory for buffers of this many workers, in bytes, if the machine has it.
#[must_use]
pub const fn memory_bytes_default(workers: usize) -> u64 {
    let beyond = (workers * CONNECTIONS_DEFAULT_PER_WORKER).saturating_sub(CONNECTIONS_DEFAULT_MAX);
    let each = workers as u64 * MEMORY_BYTES_PER_WORKER;
    let needed = each + beyond as u64 * CONTROL_SLOT_BYTES as u64;
    if needed > MEMORY_BYTES_DEFAULT_MAX { needed } else { MEMORY_BYTES_DEFAULT_MAX }
}

/// The default takes at most one part in this many of the memory left in the cgroup.
pub const MEMORY_CGROUP_SHARE: u64 = 4;

/// Smallest `--memory`: a few connections with the shortest slots.
pub const MEMORY_BYTES_MIN: u64 = 4 << 20;
