//! The transport of a mount's requests: io_uring or the device of FUSE, and why.

use std::ffi::OsStr;
use std::path::Path;

use clap::ValueEnum as _;

use crate::cli::FuseName;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{
    MEMORY_BYTES_MIN, MOUNT_QUEUE_ENTRIES_MAX, MOUNT_QUEUE_MACHINE_SHARE,
    MOUNT_QUEUE_MEAN_BYTES_MAX, MOUNT_QUEUE_MEMORY_SHARE, MOUNT_READ_BYTES_MAX,
};
use crate::mount::tree::Totals;
use crate::s3::uri::shown;
use crate::sys::topology;

/// The variable that selects the transport without an option.
const FUSE_VARIABLE: &str = "INRUSH_FUSE";

/// True if the kernel is configured to let mounts use io_uring.
fn is_enabled() -> bool {
    let setting = std::fs::read("/sys/module/fuse/parameters/enable_uring");
    setting.is_ok_and(|setting| setting.first() == Some(&b'Y'))
}

/// The error if io_uring is requested and unavailable.
pub(super) fn unavailable(why: &str) -> String {
    format!("FUSE over io_uring is not available: {why}")
}

/// The option's transport, else the environment's.
///
/// # Errors
/// If io_uring is requested, and the kernel does not allow it.
pub(crate) fn choice(typed: Option<FuseName>) -> Result<FuseName> {
    let choice = match typed {
        Some(typed) => typed,
        None => named(std::env::var_os(FUSE_VARIABLE).as_deref())?,
    };
    if choice == FuseName::IoUring && !is_enabled() {
        let message = unavailable("the kernel does not allow it");
        return Err(Error::new(ErrorKind::Host, message).advise(
            "Linux 6.14 or newer with CONFIG_FUSE_IO_URING is needed; as root: \
             echo Y > /sys/module/fuse/parameters/enable_uring",
        ));
    }
    Ok(choice)
}

fn named(value: Option<&OsStr>) -> Result<FuseName> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(FuseName::default());
    };
    let text = value.to_string_lossy();
    FuseName::from_str(&text, false).map_err(|_| {
        let message = format!("{FUSE_VARIABLE}: '{}' is not a transport", shown(&text));
        Error::new(ErrorKind::Usage, message).advise("expected auto, io_uring or device")
    })
}

/// Memory for queues in bytes: a part of the memory that the user has set, which leaves enough for
/// everything else; without that a part of the machine's.
pub(super) fn memory_bytes(transport: Transport, named: Option<u64>, of_machine: u64) -> u64 {
    let Transport::IoUring { is_required } = transport else { return 0 };
    let processors = topology::processors(Path::new("/")).map_or(1, |(_, online)| online.len());
    let wanted = (processors * MOUNT_QUEUE_ENTRIES_MAX) as u64 * u64::from(MOUNT_READ_BYTES_MAX);
    let most = match named {
        Some(named) => {
            (named / MOUNT_QUEUE_MEMORY_SHARE).min(named.saturating_sub(MEMORY_BYTES_MIN))
        }
        None => of_machine / MOUNT_QUEUE_MACHINE_SHARE,
    };
    // Unless it is required, the preferred size or nothing, like [`super::queues::prepare`].
    if is_required || wanted <= most { wanted.min(most) } else { 0 }
}

/// The transport of a mount's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// io_uring; if unavailable, an error or the device.
    IoUring { is_required: bool },
    /// The device, and the reason.
    Device(&'static str),
}

impl Transport {
    /// Chooses for a mount of these files, by what is allowed and faster; `None` if they are listed
    /// when they are used.
    pub(crate) fn new(wanted: FuseName, mounted: Option<Totals>) -> Self {
        let mean = |of: Totals| of.bytes.checked_div(of.files).unwrap_or(0);
        match wanted {
            FuseName::Device => Self::Device("--fuse device"),
            FuseName::IoUring => Self::IoUring { is_required: true },
            FuseName::Auto if !is_enabled() => {
                Self::Device("the kernel does not allow it (enable_uring)")
            }
            // A request that waits for a listing would delay all others of its processor.
            FuseName::Auto if mounted.is_none() => Self::Device("folders are listed when used"),
            FuseName::Auto if mounted.map(mean) > Some(MOUNT_QUEUE_MEAN_BYTES_MAX) => {
                Self::Device("the device is faster for files of this size")
            }
            FuseName::Auto => Self::IoUring { is_required: false },
        }
    }

    /// True if only io_uring is acceptable.
    pub(super) const fn is_required(self) -> bool {
        matches!(self, Self::IoUring { is_required: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_before_what_is_faster() {
        let totals = Totals { files: 2, bytes: 1 << 40, ..Totals::default() };
        let required = Transport::IoUring { is_required: true };
        assert_eq!(Transport::new(FuseName::IoUring, Some(totals)), required);
        assert_eq!(Transport::new(FuseName::IoUring, None), required);
        let device = Transport::new(FuseName::Device, None);
        assert_eq!(device, Transport::Device("--fuse device"));
        // Either way, whether this kernel allows it or not.
        for mounted in [Some(totals), None] {
            let by_itself = Transport::new(FuseName::Auto, mounted);
            assert!(matches!(by_itself, Transport::Device(_)), "{by_itself:?}");
        }
        assert_eq!(named(Some(OsStr::new("device"))).ok(), Some(FuseName::Device));
        assert_eq!(named(None).ok(), Some(FuseName::Auto));
        let error = named(Some(OsStr::new("ring"))).expect_err("no such thing");
        assert!(error.to_string().contains("INRUSH_FUSE: 'ring' is not a transport"), "{error}");
    }
}
