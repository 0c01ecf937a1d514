//! Kernel, limits, memory and cores.

use super::Finding;
use super::facts::{Machine, RingTried};
use crate::limits::{
    CONNECTIONS_DEFAULT_MAX, DESCRIPTORS_OTHER, DESCRIPTORS_PER_WORKER, MEMORY_BYTES_DEFAULT_MAX,
    MEMORY_BYTES_MIN, MEMORY_CGROUP_SHARE, PIPE_BYTES, memory_bytes_default,
};
use crate::sys::choice::RingChoice;
use crate::text::size::Binary;

/// The oldest release with all that io_uring is used for (DEFER_TASKRUN).
const RELEASE_BEST: (u64, u64) = (6, 1);

/// Bits of capabilities(7).
const CAP_IPC_LOCK: u64 = 1 << 14;
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_SYS_RESOURCE: u64 = 1 << 24;

/// Bytes of a page in fs.pipe-user-pages-soft.
const PAGE_BYTES: u64 = 4096;

/// Pipes of [`PIPE_BYTES`] that a channel uses at once, about: fewer make it slower.
const PIPES_WANTED: u64 = 16;

/// Descriptors that a run needs at least, besides those of its workers: standard streams, runtime,
/// signals, a connection, a file. Two workers ran with 32 descriptors in all, and not with 28.
const OPEN_FILES_LEAST: u64 = 32;

/// Address space that a run needs besides its buffers: the program, stacks, and what the allocator
/// reserves. Two workers with buffers of 112 MiB ran in 384 MiB, and not in 256 MiB.
const ADDRESS_BYTES_BESIDES: u64 = 256 << 20;

/// The findings; `needed_bytes` of a destination, where they are known.
pub(super) fn judge(machine: &Machine, needed_bytes: Option<u64>) -> Vec<Finding> {
    let findings = [
        kernel(machine),
        ring(machine),
        seccomp(machine),
        locked(machine),
        open_files(machine),
        address_space(machine),
        file_size(machine, needed_bytes),
        pipes(machine),
        huge_pages(machine),
        memory(machine),
        cores(machine),
        quota(machine),
    ];
    findings.into_iter().flatten().collect()
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u64, u64)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(machine: &Machine) -> Option<Finding> {
    let release = machine.release.as_ref()?;
    let found = format!("Linux {release}");
    let (major, minor) = RELEASE_BEST;
    Some(match version(release)? {
        older if older < RELEASE_BEST => Finding::warn(
            "kernel",
            format!("{found}: io_uring of an older kernel takes more CPU time"),
            format!("use Linux {major}.{minor} or newer"),
        ),
        _ => Finding::ok("kernel", found),
    })
}

fn ring(machine: &Machine) -> Option<Finding> {
    const ADVICE: &str = "sysctl -w kernel.io_uring_disabled=0";
    match machine.ring_choice.as_ref() {
        Some(Ok(RingChoice::Epoll)) => {
            return Some(Finding::ok("io_uring", "epoll, as --ring or INRUSH_RING asks"));
        }
        Some(Err(trouble)) => {
            let advice = trouble.advice.as_deref().unwrap_or_default();
            return Some(Finding::bad("io_uring", &trouble.why, advice));
        }
        _ => {}
    }
    let is_required = matches!(machine.ring_choice, Some(Ok(RingChoice::IoUring)));
    let refused = |cause: String, advice: &str| match is_required {
        true => {
            let found = format!("{cause}, and --ring or INRUSH_RING asks for io_uring");
            Finding::bad("io_uring", found, advice)
        }
        false => Finding::warn("io_uring", format!("epoll: {cause}"), advice),
    };
    let is_root = machine.capabilities.is_some_and(|bits| bits & CAP_SYS_ADMIN != 0);
    match machine.io_uring_disabled {
        Some(value) if value >= 2 || (value == 1 && !is_root) => {
            return Some(refused(format!("kernel.io_uring_disabled is {value}"), ADVICE));
        }
        _ => {}
    }
    Some(match machine.ring.as_ref()? {
        RingTried::Made(mode) => Finding::ok("io_uring", format!("io_uring ({mode})")),
        RingTried::Refused { cause, advice } => {
            refused(format!("io_uring is not available ({cause})"), advice)
        }
    })
}

fn seccomp(machine: &Machine) -> Option<Finding> {
    let mode = machine.seccomp?;
    let is_asked = !matches!(machine.ring_choice, Some(Ok(RingChoice::Epoll)));
    let refused = is_asked && matches!(machine.ring, Some(RingTried::Refused { .. }));
    let is_off = machine.io_uring_disabled.is_none_or(|value| value == 0);
    Some(match mode {
        0 => Finding::ok("seccomp", "no filter"),
        _ if refused && is_off => Finding::warn(
            "seccomp",
            "a filter is in force, and io_uring is refused",
            "allow io_uring_setup, io_uring_enter and io_uring_register in the profile (Docker: \
             --security-opt seccomp=FILE; see inrush guide containers)",
        ),
        _ => Finding::ok("seccomp", "a filter is in force, and it allows io_uring"),
    })
}

fn locked(machine: &Machine) -> Option<Finding> {
    let limit = machine.locked_bytes?;
    if machine.capabilities.is_some_and(|bits| bits & CAP_IPC_LOCK != 0) {
        return Some(Finding::ok("locked-memory", "no limit for this user (CAP_IPC_LOCK)"));
    }
    if limit == u64::MAX {
        return Some(Finding::ok("locked-memory", "no limit"));
    }
    let shown = Binary(limit);
    if limit >= MEMORY_BYTES_DEFAULT_MAX {
        return Some(Finding::ok("locked-memory", shown.to_string()));
    }
    Some(Finding::warn(
        "locked-memory",
        format!(
            "{shown} may be locked, and buffers have up to {}: those that are not registered take \
             more CPU time",
            Binary(MEMORY_BYTES_DEFAULT_MAX)
        ),
        "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity; Docker: --ulimit memlock=-1)",
    ))
}

fn open_files(machine: &Machine) -> Option<Finding> {
    let limit = machine.open_files?;
    let workers = machine.allowed.as_ref().map_or(1, Vec::len) as u64;
    // As many files as connections.
    let wanted =
        DESCRIPTORS_OTHER + DESCRIPTORS_PER_WORKER * workers + 2 * CONNECTIONS_DEFAULT_MAX as u64;
    let fix = format!(
        "ulimit -Hn {} (systemd: LimitNOFILE=; Docker: --ulimit nofile=)",
        wanted.next_multiple_of(1024)
    );
    let found = format!("{limit} files may be open");
    Some(if limit < OPEN_FILES_LEAST + DESCRIPTORS_PER_WORKER * workers {
        Finding::bad("open-files", found, fix)
    } else if limit < wanted {
        let why = format!(
            "{found}: too few for {CONNECTIONS_DEFAULT_MAX} connections and files, so a run has \
             fewer"
        );
        Finding::warn("open-files", why, fix)
    } else if limit == u64::MAX {
        Finding::ok("open-files", "no limit")
    } else {
        Finding::ok("open-files", found)
    })
}

fn address_space(machine: &Machine) -> Option<Finding> {
    const FIX: &str = "ulimit -v unlimited (systemd: LimitAS=infinity), or a smaller --memory";
    let limit = machine.address_bytes?;
    if limit == u64::MAX {
        return Some(Finding::ok("address-space", "no limit"));
    }
    let workers = machine.allowed.as_ref().map_or(1, Vec::len);
    let needed = memory_bytes_default(workers) + ADDRESS_BYTES_BESIDES;
    let found = format!("the address space is limited to {}", Binary(limit));
    Some(if limit < needed {
        let why = format!("{found}, and a run needs about {}", Binary(needed));
        Finding::bad("address-space", why, FIX)
    } else {
        Finding::ok("address-space", found)
    })
}

fn file_size(machine: &Machine, needed_bytes: Option<u64>) -> Option<Finding> {
    const FIX: &str = "ulimit -f unlimited (systemd: LimitFSIZE=infinity)";
    let limit = machine.file_bytes?;
    if limit == u64::MAX {
        return Some(Finding::ok("file-size", "no limit"));
    }
    let found = format!("a file may have {} at most", Binary(limit));
    Some(match needed_bytes {
        Some(needed) if needed > limit => {
            let why = format!("{found}, and the object has {}", Binary(needed));
            Finding::bad("file-size", why, FIX)
        }
        _ => Finding::warn("file-size", format!("{found}: larger objects fail"), FIX),
    })
}

fn pipes(machine: &Machine) -> Option<Finding> {
    let (largest, pages) = (machine.pipe_bytes_max?, machine.pipe_pages_soft?);
    let privileged = CAP_SYS_ADMIN | CAP_SYS_RESOURCE;
    let bound = machine.capabilities.is_none_or(|bits| bits & privileged == 0);
    let wanted = PIPES_WANTED * PIPE_BYTES / PAGE_BYTES;
    if bound && largest < PIPE_BYTES {
        let found = format!("a pipe holds {} at most: streams are slower", Binary(largest));
        let fix = format!("sysctl -w fs.pipe-max-size={PIPE_BYTES}");
        return Some(Finding::warn("pipes", found, fix));
    }
    if bound && pages != 0 && pages < wanted {
        let found = format!(
            "all pipes of a user hold {} together: the pipes of streams get small",
            Binary(pages * PAGE_BYTES)
        );
        let fix = format!("sysctl -w fs.pipe-user-pages-soft={}", wanted * 4);
        return Some(Finding::warn("pipes", found, fix));
    }
    Some(Finding::ok("pipes", format!("{} each", Binary(largest))))
}

fn huge_pages(machine: &Machine) -> Option<Finding> {
    let mode = machine.huge_pages.as_deref()?;
    Some(match mode {
        "never" => Finding::warn(
            "huge-pages",
            "transparent huge pages are off: buffers take more CPU time",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        mode => Finding::ok("huge-pages", mode),
    })
}

fn memory(machine: &Machine) -> Option<Finding> {
    let total = machine.memory_bytes?;
    let limit = machine.cgroup_bytes.filter(|limit| *limit < total);
    let (bytes, whose, fix) = match limit {
        Some(limit) => {
            let fix = "raise the limit (Docker: --memory; systemd: MemoryMax=; Kubernetes: \
                resources.limits.memory)";
            (limit, "the cgroup allows", fix)
        }
        None => (total, "the machine has", "use a machine with more memory"),
    };
    let available = match machine.available_bytes {
        Some(available) => format!(", {} available", Binary(available.min(bytes))),
        None => String::new(),
    };
    let found = format!("{whose} {}{available}", Binary(bytes));
    Some(if bytes / MEMORY_CGROUP_SHARE < MEMORY_BYTES_MIN {
        Finding::bad("memory", found, fix)
    } else if bytes / MEMORY_CGROUP_SHARE < MEMORY_BYTES_DEFAULT_MAX {
        let buffers = Binary(bytes / MEMORY_CGROUP_SHARE);
        Finding::warn("memory", format!("{found}: only {buffers} are used for buffers"), fix)
    } else {
        Finding::ok("memory", found)
    })
}

fn cores(machine: &Machine) -> Option<Finding> {
    let (allowed, online) = (machine.allowed.as_ref()?.len(), machine.online.as_ref()?.len());
    let found = format!("{allowed} of {online} cores");
    if allowed >= online {
        return Some(Finding::ok("cores", found));
    }
    let last = machine.online.as_ref()?.iter().max().copied().unwrap_or(0);
    Some(Finding::warn(
        "cores",
        format!("this process may use {found}: it starts {allowed} workers"),
        format!("taskset -c 0-{last} inrush ... (Docker: --cpuset-cpus; Slurm: --cpus-per-task)"),
    ))
}

fn quota(machine: &Machine) -> Option<Finding> {
    let allowed = machine.allowed.as_ref()?.len();
    let Some(quota) = machine.quota_cores else {
        return Some(Finding::ok("cpu-quota", "none"));
    };
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let is_less = quota < allowed as f64;
    let found = format!("{quota:.1} cores");
    Some(if is_less {
        Finding::warn(
            "cpu-quota",
            format!("the cgroup has {found} of {allowed}: workers are paused when it is used up"),
            "raise it (Docker: --cpus; systemd: CPUQuota=; Kubernetes: resources.limits.cpu)",
        )
    } else {
        Finding::ok("cpu-quota", found)
    })
}
