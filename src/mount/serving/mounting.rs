//! Mounts with the kernel: over io_uring or from the device, with which options, or why it cannot.

use std::num::NonZero;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fuser::{Config as SessionConfig, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use super::attributes::MountOptions;
use super::detach::Own;
use super::device::Device;
use super::queues::Queues;
use super::transport;
use super::version_check::VersionCheck;
use super::view::View;
use crate::error::{Error, ErrorKind};
use crate::limits::{MOUNT_READAHEAD_KIB, MOUNT_THREADS_MAX};
use crate::report::document::{FuseReport, FuseTransport};

/// Advice after a failed mount.
pub(super) const ADVICE: &str = "check that /dev/fuse is there, and that you are root or have \
                                 fusermount3 (fuse3); in a container: --device /dev/fuse \
                                 --cap-add SYS_ADMIN";

/// The result of the threads that answer the kernel.
type SessionEnd = std::io::Result<()>;

/// One mount.
pub(super) struct Mounted {
    /// `None` once it was removed.
    own: Option<Own>,
    /// The result of the threads that answer the kernel; `None` once it was reported.
    ended: Option<oneshot::Receiver<SessionEnd>>,
    /// What its names lead to.
    pub(super) version_check: Arc<VersionCheck>,
}

impl Mounted {
    /// A mount whose threads send their result when they end.
    pub(super) fn new(
        own: Option<Own>,
        ended: oneshot::Receiver<SessionEnd>,
        version_check: Arc<VersionCheck>,
    ) -> Self {
        Self { own, ended: Some(ended), version_check }
    }

    /// The result of its threads, once.
    pub(super) fn poll_ended(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<SessionEnd, RecvError>> {
        let Some(ended) = &mut self.ended else { return Poll::Pending };
        let end = Pin::new(ended).poll(context);
        if end.is_ready() {
            self.ended = None;
        }
        end
    }

    /// Removes it; false if that failed.
    pub(super) fn remove(&mut self) -> bool {
        self.own.take().is_none_or(|own| own.remove())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Mounts, with the kernel's requests over io_uring if there are queues.
pub(super) fn mount_on(
    place: &Path,
    view: &Arc<View>,
    config: &SessionConfig,
    queues: Result<Queues, String>,
    is_required: bool,
) -> std::io::Result<(Session<Device>, FuseReport)> {
    let why = match queues {
        Err(why) => why,
        Ok(queues) => match mount_over_ring(place, view, config, queues)? {
            Ok(session) => {
                let transport = FuseTransport::IoUring;
                return Ok((session, FuseReport { transport, io_uring_unavailable: None }));
            }
            Err(why) if is_required => {
                return Err(std::io::Error::other(transport::unavailable(&why)));
            }
            Err(why) => why,
        },
    };
    tracing::info!("FUSE over io_uring is not used: {why}");
    view.set_over_ring(false);
    let session = Session::new(Device(Arc::clone(view)), place, config)?;
    let transport = FuseTransport::Device;
    Ok((session, FuseReport { transport, io_uring_unavailable: Some(why) }))
}

/// Mounts with io_uring; the inner error is why the kernel does not accept it. Then nothing is
/// mounted: requests of such a mount might wait forever.
fn mount_over_ring(
    place: &Path,
    view: &Arc<View>,
    config: &SessionConfig,
    queues: Queues,
) -> std::io::Result<Result<Session<Device>, String>> {
    view.set_over_ring(true);
    let session = Session::new(Device(Arc::clone(view)), place, config)?;
    if !view.is_over_ring() {
        return Ok(Err("the kernel does not offer it".to_owned()));
    }
    let device = Arc::new(session.as_fd().try_clone_to_owned()?);
    let served = queues.serve(view, &device, Own::at(place).as_ref());
    Ok(served.map(|()| session).map_err(|errno| errno.to_string()))
}

/// When its session ends, the library unmounts this place, even if another process has mounted
/// there since: it takes an ended connection for a mount (`is_mounted` of fuser 0.18). It tries
/// this once, so it is made to try now, while that fails because the mount is busy. If fusermount3
/// would be used, the mount is not busy, and the library is left as it is.
pub(super) fn keep_from_unmounting(session: &mut Session<Device>, place: &Path) {
    use rustix::fs::{Mode, OFlags, open};
    let busy = open(place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let Ok(busy) = busy else { return };
    // By its descriptor: the path may belong to another mount by now.
    let place = format!("/proc/self/fd/{}", busy.as_raw_fd());
    if unmount(place, UnmountFlags::empty()) == Err(Errno::BUSY) {
        let _ = session.unmount_callable().unmount();
    }
}

/// Why this process certainly cannot mount, as far as that is known beforehand.
pub(crate) fn hindrance() -> Option<Error> {
    use rustix::fs::{Mode, OFlags, open};
    let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).err();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    why_not(device, may_mount(), &paths).map(|why| {
        Error::new(ErrorKind::Host, format!("FUSE file systems cannot be mounted here: {why}"))
            .advise(ADVICE)
    })
}

/// True if the kernel permits this process to mount.
fn may_mount() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    let sets = capabilities(None);
    // If that is unknown, the kernel's own error suffices.
    sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn why_not(device: Option<Errno>, may_mount: bool, paths: &std::ffi::OsStr) -> Option<String> {
    if let Some(error) = device {
        return Some(format!("open /dev/fuse: {error}"));
    }
    let helpers = ["fusermount3", "fusermount"];
    let has_helper = std::env::split_paths(paths)
        .chain(["/bin".into(), "/usr/bin".into()])
        .any(|folder| helpers.iter().any(|helper| folder.join(helper).exists()));
    (!may_mount && !has_helper)
        .then(|| "this user may not mount, and there is no fusermount3".to_owned())
}

/// The source of a mount as `fsname`. Without permission to mount, fusermount does it, which parses
/// one string of options: there a comma would start another option, so it is escaped by a
/// backslash.
fn source_option(source: &str, by_helper: bool) -> String {
    match by_helper {
        true => source.replace('\\', "\\\\").replace(',', "\\,"),
        false => source.to_owned(),
    }
}

/// The options of a mount whose longest request has this length.
pub(super) fn session_config(mount_options: &MountOptions, request_bytes: u32) -> SessionConfig {
    let mut config = SessionConfig::default();
    config.mount_options = vec![
        MountOption::FSName(source_option(&mount_options.source, !may_mount())),
        // The library's own option is passed to fusermount only.
        MountOption::CUSTOM("subtype=inrush".to_owned()),
        MountOption::CUSTOM(format!("max_read={request_bytes}")),
        MountOption::RO,
        MountOption::DefaultPermissions,
    ];
    if mount_options.noexec {
        config.mount_options.push(MountOption::NoExec);
    }
    config.acl = if mount_options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    config.n_threads = Some(processors.clamp(2, MOUNT_THREADS_MAX));
    config.clone_fd = true;
    config
}

/// Raises the kernel's read-ahead to the longest request. Only root may; otherwise its usual 128
/// KiB stay.
pub(super) fn widen_readahead(own: &Own) {
    let path = format!("/sys/class/bdi/{}/read_ahead_kb", own.device);
    if let Err(error) = std::fs::write(&path, MOUNT_READAHEAD_KIB.to_string()) {
        tracing::info!("{path} stays as it is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_source_becomes_an_option_of_fusermount() {
        for (source, escaped) in [
            ("s3://b/k/", "s3://b/k/"),
            ("s3://b/date=2024,region=us/", "s3://b/date=2024\\,region=us/"),
            ("s3://b/x\\,allow_other", "s3://b/x\\\\\\,allow_other"),
        ] {
            assert_eq!(source_option(source, true), escaped);
            assert_eq!(source_option(source, false), source, "mount(2) has it by itself");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = folder.path().as_os_str();
        let message = why_not(Some(Errno::NOENT), true, paths).expect("no device");
        assert!(message.starts_with("open /dev/fuse: No such file"), "{message}");
        assert_eq!(why_not(None, true, paths), None);
        std::fs::write(folder.path().join("fusermount3"), "").expect("room");
        assert_eq!(why_not(None, false, paths), None);
    }
}
