//! Serves mounts: workers, waiting reads, and for each mount the threads that answer the kernel.
//! Several mounts share the workers and their memory.

use std::num::NonZeroU64;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustls::ClientConfig;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_local};

use super::attributes::{Attributes, MountOptions};
use super::bypass::Bypass;
use super::cache_writer::{CacheWriter, UNCACHED_REPORTS_MAX, Uncached};
use super::detach::Own;
use super::mounting::{self, ADVICE, Mounted};
use super::names::Names;
use super::queues;
use super::reads::{Reader, Reads};
use super::refresher::{self, Relisting};
use super::transport::{self, Transport};
use super::version_check::{self, VersionCheck, VersionRequest};
use super::view::View;
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::engine::config::{Config, HostFacts, ResourceOptions};
use crate::engine::pace::Bandwidth;
use crate::engine::threads::{RunSetup, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::files::cache::Cache;
use crate::files::system_host::Persistence;
use crate::limits::{
    MOUNT_ERRORS_PRINTED_MAX, MOUNT_LOOKUPS_QUEUED_MAX, MOUNT_READ_BYTES_MAX,
    MOUNT_REFRESHES_QUEUED_MAX,
};
use crate::link::attempt::RetryPolicy;
use crate::mount::changes::refresh::RefreshCounts;
use crate::report::asked::Asked;
use crate::report::document::{AllReads, CacheCounts, FuseReport};
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
    /// Memory of the machine, or of this process's cgroup, in bytes.
    machine_bytes: u64,
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
        let machine_bytes = facts.memory_bytes;
        Ok(Self { config, transport, queue_bytes, is_fixed, machine_bytes })
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
    /// A mount was listed again, or that failed; then nothing was removed.
    Refreshed(Result<RefreshCounts>),
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
    /// The task that lists a mount again.
    refresher: Option<JoinHandle<()>>,
    refreshes: Option<mpsc::Receiver<Result<RefreshCounts>>>,
    cache_writer: Option<CacheWriter>,
    transport: Transport,
    queue_bytes: u64,
    machine_bytes: u64,
    fuse: FuseReport,
    /// Its start.
    started: Instant,
    is_fixed: bool,
    bandwidth_limit: Option<NonZeroU64>,
    on_end: Option<Box<dyn FnOnce(AllReads)>>,
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
        let MountResources { config, transport, queue_bytes, is_fixed, machine_bytes } = resources;
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
            refresher: None,
            refreshes: None,
            cache_writer,
            transport,
            queue_bytes,
            machine_bytes,
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
        self.refresher.take().inspect(JoinHandle::abort);
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
        let config = mounting::session_config(mount_options, request_bytes);
        let number = self.mounts.len();
        let base = Attributes::new(mount_options);
        let version_check = VersionCheck::new(number, Arc::clone(&names), base, self.asks.clone());
        let version_check = Arc::new(version_check);
        let kept = self.cache_writer.as_ref().map(CacheWriter::shared);
        let reads = self.reads();
        let bypass = Bypass::new(mount_options.page_cache, self.machine_bytes);
        let files = (kept, bypass);
        let view = View::new(names, reads, Arc::clone(&version_check), base, files, request_bytes);
        let view = Arc::new(view);
        let queues = queues::prepare(self.transport, self.queue_bytes, request_bytes)?;
        let place = point.to_owned();
        let is_required = self.transport.is_required();
        let mounted = blocking(move || {
            // The library may start fusermount3.
            let _awaited = orphans::awaits_child();
            let (mut session, fuse) =
                mounting::mount_on(&place, &view, &config, queues, is_required)?;
            let own = Own::at(&place);
            if own.is_some() {
                mounting::keep_from_unmounting(&mut session, &place);
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
        self.mounts.push(Mounted::new(own.clone(), ended, version_check));
        let thread = std::thread::Builder::new().name("inrush-mount".to_owned());
        // It is not joined: files that are open at the unmount prolong it.
        let thread = thread.spawn(move || {
            let _ = sender.send(session.run());
        });
        thread.map(drop).map_err(Error::no_thread)?;
        if let Some(own) = own {
            blocking(move || mounting::widen_readahead(&own)).await;
        }
        Ok(())
    }

    /// Lists the first mount again after each interval, and when the result is notified. Its names
    /// were all listed before.
    pub(crate) fn refresh(&mut self, relisting: Relisting, interval: Duration) -> Arc<Notify> {
        let wanted = Arc::new(Notify::new());
        let (sender, refreshes) = mpsc::channel(MOUNT_REFRESHES_QUEUED_MAX);
        if let Some(mounted) = self.mounts.first() {
            let of = Arc::clone(&mounted.version_check);
            let refresh = refresher::refresh(of, relisting, interval, Arc::clone(&wanted), sender);
            self.refresher = Some(spawn_local(refresh));
            self.refreshes = Some(refreshes);
        }
        wanted
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Event {
        let Self { workers, failures, uncached, mounts, refreshes, .. } = self;
        let unmounted = std::future::poll_fn(|context| {
            for (number, mounted) in mounts.iter_mut().enumerate() {
                if let Poll::Ready(end) = mounted.poll_ended(context) {
                    return Poll::Ready((number, end));
                }
            }
            Poll::Pending
        });
        let lost = tokio::select! {
            biased;
            error = failures.recv() => match error {
                Some((number, error)) => return Event::ReadFailed(number, error),
                None => Error::bug("the thread that completes reads has ended"),
            },
            Some(uncached) = uncached.recv() => return Event::Uncached(uncached),
            Some(result) = next_of(refreshes) => return Event::Refreshed(result),
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

#[expect(clippy::disallowed_methods, reason = "how long it has served is reported")]
fn now() -> Instant {
    Instant::now()
}

/// The next result of a refresh; without a refresher it waits for ever.
async fn next_of(
    refreshes: &mut Option<mpsc::Receiver<Result<RefreshCounts>>>,
) -> Option<Result<RefreshCounts>> {
    match refreshes {
        Some(refreshes) => refreshes.recv().await,
        None => std::future::pending().await,
    }
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
