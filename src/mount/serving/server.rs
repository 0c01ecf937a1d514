//! Serves mounts: workers, waiting reads, and for each mount the threads that answer the kernel.
//! Several mounts share the workers and their memory.

use std::num::{NonZero, NonZeroU64};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{Config as SessionConfig, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustls::ClientConfig;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_local};

use super::cache_writer::{CacheWriter, UNCACHED_REPORTS_MAX, Uncached};
use super::detach::Own;
use super::names::Names;
use super::queues::{self, Queues};
use super::reads::{Reader, Reads};
use super::transport::{self, Transport};
use super::version_check::{self, VersionCheck, VersionRequest};
use super::view::{Attributes, Device, MountOptions, View};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::engine::config::{Config, HostFacts, ResourceOptions};
use crate::engine::pace::Bandwidth;
use crate::engine::threads::{RunSetup, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::files::cache::Cache;
use crate::files::system_host::Persistence;
use crate::limits::{
    MOUNT_ERRORS_PRINTED_MAX, MOUNT_LOOKUPS_QUEUED_MAX, MOUNT_READ_BYTES_MAX, MOUNT_READAHEAD_KIB,
    MOUNT_THREADS_MAX,
};
use crate::link::attempt::RetryPolicy;
use crate::report::asked::Asked;
use crate::report::document::{AllReads, CacheCounts, FuseReport, FuseTransport};
use crate::report::limit::{Asker, Limit};
use crate::sys::choice::ChosenRing;
use crate::sys::orphans;

/// What a server may use of this machine.
pub(crate) struct MountResources {
    pub(crate) config: Config,
    transport: Transport,
    /// Memory for the kernel's requests over io_uring, in bytes.
    queue_bytes: u64,
    /// The number of requests in flight was set by the user.
    is_fixed: bool,
}

impl MountResources {
    /// Chooses them by these options; the endpoints may have TLS.
    ///
    /// # Errors
    /// If the machine has not enough.
    pub(crate) fn resolve(
        mut options: ResourceOptions,
        transport: Transport,
        has_tls: bool,
    ) -> Result<Self> {
        let facts = HostFacts::read();
        let queue_bytes =
            transport::memory_bytes(transport, options.memory_bytes, facts.memory_bytes);
        // They take a part of the memory that the user has set.
        options.memory_bytes = options.memory_bytes.map(|named| named - queue_bytes);
        let is_fixed = options.connections.is_some();
        let config = Config::resolve(options, facts)?;
        let config = if has_tls { config.secured() } else { config }.of_leases();
        Ok(Self { config, transport, queue_bytes, is_fixed })
    }
}

/// The parts of a server.
pub(crate) struct ServerParts<'a> {
    pub(crate) control: &'a Rc<Control>,
    pub(crate) resources: MountResources,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) retries: RetryPolicy,
    pub(crate) bandwidth: Option<Arc<Bandwidth>>,
    /// The user's limit, for the report.
    pub(crate) bandwidth_limit: Option<NonZeroU64>,
    /// Longest duration of a read.
    pub(crate) deadline: Option<Duration>,
    pub(crate) begun: Instant,
    /// The cache of read objects.
    pub(crate) cache: Option<Cache>,
    /// Gets the counters of all reads once they have ended.
    pub(crate) on_end: Box<dyn FnOnce(AllReads)>,
}

/// An event of a running mount.
#[derive(Debug)]
pub(crate) enum Event {
    /// A read has failed, the first of its open file, or a name could not be looked up, in the
    /// mount of this number.
    ReadFailed(usize, Error),
    /// Objects are not cached; reads continue.
    Uncached(Uncached),
    /// The mount of this number was unmounted.
    Unmounted(usize),
    /// Nothing is served any more.
    Lost(Error),
}

/// Running mounts. Dropping this unmounts all of them, and fails waiting reads.
pub(crate) struct Server {
    workers: Workers,
    reader: Option<Reader>,
    failures: mpsc::Receiver<(usize, Error)>,
    /// Reports of objects that are not cached.
    uncached: mpsc::Receiver<Uncached>,
    /// Requests of views for names whose objects were replaced.
    asks: mpsc::Sender<VersionRequest>,
    /// The task that serves them.
    names: JoinHandle<()>,
    mounts: Vec<Mounted>,
    cache_writer: Option<CacheWriter>,
    transport: Transport,
    queue_bytes: u64,
    fuse: FuseReport,
    /// Its start.
    started: Instant,
    is_fixed: bool,
    bandwidth_limit: Option<NonZeroU64>,
    on_end: Option<Box<dyn FnOnce(AllReads)>>,
}

/// One mount.
struct Mounted {
    /// `None` once it was removed.
    own: Option<Own>,
    /// The result of the threads that answer the kernel; `None` once it was reported.
    ended: Option<oneshot::Receiver<std::io::Result<()>>>,
}

impl Mounted {
    /// Removes it; false if that failed.
    fn remove(&mut self) -> bool {
        self.own.take().is_none_or(|own| own.remove())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.unmount();
        // Before the workers, whose memory it writes from.
        self.cache_writer = None;
    }
}

impl Server {
    /// Starts the workers; nothing is mounted yet.
    ///
    /// # Errors
    /// If the machine has not enough resources for them.
    pub(crate) fn start(parts: ServerParts<'_>) -> Result<Self> {
        let ServerParts { control, resources, tls, retries, bandwidth, deadline, .. } = parts;
        let MountResources { config, transport, queue_bytes, is_fixed } = resources;
        let workers = Workers::start(RunSetup {
            config,
            destination: Vec::new(),
            keeping: Persistence::default(),
            tls,
            keys: control.keys(),
            retries,
            bandwidth,
            interfaces: control.interfaces(),
            begun: parts.begun,
        })?;
        let (errors, failures) = mpsc::channel(MOUNT_ERRORS_PRINTED_MAX);
        let (report_uncached, uncached) = mpsc::channel(UNCACHED_REPORTS_MAX);
        let cache_writer =
            parts.cache.map(|cache| CacheWriter::start(cache, report_uncached)).transpose()?;
        let kept = cache_writer.as_ref().map(CacheWriter::shared);
        let reader = Reader::start(&workers, deadline, errors.clone(), kept)?;
        let (asks, asked) = mpsc::channel(MOUNT_LOOKUPS_QUEUED_MAX);
        let names = spawn_local(version_check::answer(Rc::clone(control), asked, deadline, errors));
        Ok(Self {
            workers,
            reader: Some(reader),
            failures,
            uncached,
            asks,
            names,
            mounts: Vec::new(),
            cache_writer,
            transport,
            queue_bytes,
            fuse: FuseReport::default(),
            started: now(),
            is_fixed,
            bandwidth_limit: parts.bandwidth_limit,
            on_end: Some(parts.on_end),
        })
    }

    /// Removes all mounts; waiting reads fail. Objects to cache are written now, and synced when
    /// this is dropped. Returns false if one could not be removed.
    pub(crate) fn unmount(&mut self) -> bool {
        self.names.abort();
        let mut are_gone = true;
        for mut mounted in self.mounts.drain(..) {
            are_gone &= mounted.remove();
        }
        if let Some(reader) = self.reader.take() {
            let reads = Arc::clone(&reader.shared);
            reader.stop();
            self.on_end.take().into_iter().for_each(|on_end| on_end(reads.all()));
        }
        if let Some(cache_writer) = &mut self.cache_writer {
            cache_writer.finish();
        }
        are_gone
    }

    /// Ends it. Cached objects are synced, which may take long.
    pub(crate) fn close(&mut self) {
        self.unmount();
        self.cache_writer = None;
    }

    /// The limiting part of all reads so far.
    pub(crate) fn limit(&self) -> Limit {
        let asked = Asked {
            asker: Asker::Mount,
            elapsed: self.started.elapsed(),
            waited: self.reads().waited(),
            is_fixed: self.is_fixed,
            bandwidth_limit: self.bandwidth_limit,
        };
        asked.limit(self.workers.config(), &self.workers.counted())
    }

    /// The transport of the kernel's requests.
    pub(crate) fn fuse(&self) -> FuseReport {
        self.fuse.clone()
    }

    /// The workers that download what is read.
    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The workers' ring.
    pub(crate) fn ring(&self) -> &ChosenRing {
        self.workers.ring()
    }

    fn reader(&self) -> &Reader {
        self.reader.as_ref().expect("until it goes")
    }

    /// A handle that can end all reads, from anywhere.
    pub(crate) fn reads(&self) -> Arc<Reads> {
        Arc::clone(&self.reader().shared)
    }

    /// Mounts these names, and serves them. The folder is that of [`super::detach::empty_place`].
    /// The future must not be dropped: the mount would be lost.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) async fn mount(
        &mut self,
        point: &Path,
        names: Arc<Names>,
        mount_options: &MountOptions,
    ) -> Result<()> {
        let request_bytes = self.reader().chunk_bytes().min(u64::from(MOUNT_READ_BYTES_MAX));
        let request_bytes = u32::try_from(request_bytes).expect("the lesser of both");
        let config = session_config(mount_options, request_bytes);
        let number = self.mounts.len();
        let base = Attributes::new(mount_options);
        let version_check = VersionCheck::new(number, Arc::clone(&names), base, self.asks.clone());
        let version_check = Arc::new(version_check);
        let kept = self.cache_writer.as_ref().map(CacheWriter::shared);
        let reads = self.reads();
        let view = View::new(names, reads, Arc::clone(&version_check), base, kept, request_bytes);
        let view = Arc::new(view);
        let queues = queues::prepare(self.transport, self.queue_bytes, request_bytes)?;
        let place = point.to_owned();
        let is_required = self.transport.is_required();
        let mounted = blocking(move || {
            // The library may start fusermount3.
            let _awaited = orphans::awaits_child();
            let (mut session, fuse) = mount_on(&place, &view, &config, queues, is_required)?;
            let own = Own::at(&place);
            if own.is_some() {
                keep_from_unmounting(&mut session, &place);
            }
            Ok((session, own, fuse))
        });
        let (session, own, fuse) = mounted.await.map_err(|error: std::io::Error| {
            let message = format!("cannot mount on {}: {error}", point.display());
            Error::new(ErrorKind::Host, message).advise(ADVICE)
        })?;
        self.fuse = fuse;
        version_check.mounted(session.notifier());
        let (sender, ended) = oneshot::channel();
        self.mounts.push(Mounted { own: own.clone(), ended: Some(ended) });
        let thread = std::thread::Builder::new().name("inrush-mount".to_owned());
        // It is not joined: files that are open at the unmount prolong it.
        let thread = thread.spawn(move || {
            let _ = sender.send(session.run());
        });
        thread.map(drop).map_err(Error::no_thread)?;
        if let Some(own) = own {
            blocking(move || widen_readahead(&own)).await;
        }
        Ok(())
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Event {
        let Self { workers, failures, uncached, mounts, .. } = self;
        let unmounted = std::future::poll_fn(|context| {
            for (number, mounted) in mounts.iter_mut().enumerate() {
                let Some(ended) = &mut mounted.ended else { continue };
                if let std::task::Poll::Ready(end) = std::pin::Pin::new(ended).poll(context) {
                    mounted.ended = None;
                    return std::task::Poll::Ready((number, end));
                }
            }
            std::task::Poll::Pending
        });
        let lost = tokio::select! {
            biased;
            error = failures.recv() => match error {
                Some((number, error)) => return Event::ReadFailed(number, error),
                None => Error::bug("the thread that completes reads has ended"),
            },
            Some(uncached) = uncached.recv() => return Event::Uncached(uncached),
            (number, end) = unmounted => match end {
                Ok(Ok(())) => return Event::Unmounted(number),
                // The error of a request in progress at the unmount.
                Ok(Err(error)) if Errno::from_io_error(&error) == Some(Errno::CONNABORTED) => {
                    return Event::Unmounted(number);
                }
                Ok(Err(error)) => {
                    let message = format!("the connection to the kernel broke: {error}");
                    Error::new(ErrorKind::Host, message)
                }
                Err(_) => Error::bug("the threads of the mount have ended"),
            },
            lost = lost(workers) => lost,
        };
        Event::Lost(lost)
    }

    /// The next failed read and its mount, if there is one.
    pub(crate) fn take_failure(&mut self) -> Option<(usize, Error)> {
        self.failures.try_recv().ok()
    }

    /// The cache's counters so far, if there is one.
    pub(crate) fn cache(&self) -> Option<CacheCounts> {
        self.cache_writer.as_ref().map(|cache_writer| cache_writer.shared().counts())
    }

    /// The next report of objects that are not cached, if there is one.
    pub(crate) fn take_uncached(&mut self) -> Option<Uncached> {
        self.uncached.try_recv().ok()
    }
}

/// Mounts, with the kernel's requests over io_uring if there are queues.
fn mount_on(
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
    view.want_ring(false);
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
    view.want_ring(true);
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
fn keep_from_unmounting(session: &mut Session<Device>, place: &Path) {
    use rustix::fs::{Mode, OFlags, open};
    let busy = open(place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let Ok(busy) = busy else { return };
    // By its descriptor: the path may belong to another mount by now.
    let place = format!("/proc/self/fd/{}", busy.as_raw_fd());
    if unmount(place, UnmountFlags::empty()) == Err(Errno::BUSY) {
        let _ = session.unmount_callable().unmount();
    }
}

#[expect(clippy::disallowed_methods, reason = "how long it has served is reported")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until no worker is left; returns the reason.
async fn lost(workers: &Workers) -> Error {
    loop {
        if let Some(reason) = workers.lost() {
            return reason;
        }
        workers.worker_ended().await;
    }
}

/// Advice after a failed mount.
const ADVICE: &str = "check that /dev/fuse is there, and that you are root or have fusermount3 \
                      (fuse3); in a container: --device /dev/fuse --cap-add SYS_ADMIN";

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

fn session_config(mount_options: &MountOptions, request_bytes: u32) -> SessionConfig {
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
fn widen_readahead(own: &Own) {
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
