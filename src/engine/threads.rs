//! Starts and pins the workers, and collects their counts.
//!
//! One thread per worker, each with its own ring, slots and host; they share the scheduler.

mod agreement;
mod seen;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustls::ClientConfig;
use tokio::sync::Notify;

use crate::engine::config::{Config, descriptors_besides};
use crate::engine::metrics::{Gauge, WorkerMetrics};
use crate::engine::pace::{Bandwidth, Pacer};
use crate::engine::peers::SharedAddresses;
use crate::engine::placement::{self, Ground, WorkerPlace};
use crate::engine::schedule::Scheduler;
use crate::engine::worker::{Parts, Worker};
use crate::error::{Error, ErrorKind, Result};
use crate::files::sink::Sink;
use crate::files::system_host::{Persistence, Root, SystemHost};
use crate::limits::{
    CONTROL_SLOT_BYTES, FILE_HELPERS_MAX, FILE_HELPERS_PER_WORKER_MIN, FOLDERS_OPEN_MAX,
    RING_WRITERS_MAX, RING_WRITERS_PER_WORKER_MIN,
};
use crate::link::attempt::RetryPolicy;
use crate::s3::sign::PublishedKeys;
use crate::sys::choice::{ChosenRing, RingKind};
use crate::sys::pool::{Pages, RegionPart};
use crate::sys::topology::{self, Interface};
use crate::sys::uring::SetupError;
use crate::sys::usage::{self, DescriptorShare, ProcessorTime};
use crate::sys::{Handle, Pool, Region, descriptor};
use agreement::{Agreement, Seat};
pub use seen::{RunProgress, Watched};

/// The configuration of a run of the data plane.
#[derive(Debug)]
pub struct RunSetup {
    /// Workers, connections, slots.
    pub config: Config,
    /// The destination folders; none: all bytes are dropped.
    pub destination: Vec<Root>,
    /// What is stored for later runs.
    pub keeping: Persistence,
    /// TLS configuration, if an endpoint uses TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Credentials, refreshed by the control plane.
    pub keys: Arc<PublishedKeys>,
    /// How long a range is retried.
    pub retries: RetryPolicy,
    /// The user's limit.
    pub bandwidth: Option<Arc<Bandwidth>>,
    /// Interfaces to connect over; none: the kernel's routes decide.
    pub interfaces: Vec<Interface>,
    /// When the run began.
    pub begun: Instant,
}

/// The running workers.
#[derive(Debug)]
pub struct Workers {
    /// Takes objects and returns outcomes.
    pub scheduler: Arc<Scheduler>,
    /// Sets the requests in flight.
    pub pacer: Arc<Pacer>,
    gauges: Vec<Arc<Gauge>>,
    threads: Vec<JoinHandle<WorkerMetrics>>,
    ended: Arc<EndedWorkers>,
    pages: Pages,
    ring: ChosenRing,
    config: Config,
    interfaces: Vec<Interface>,
    places: Vec<WorkerPlace>,
    folder: Option<Root>,
    keys: Arc<PublishedKeys>,
    keeping: Persistence,
    begun: Instant,
    _descriptors: DescriptorShare,
}

/// The parts that a worker thread is started with.
struct Start {
    number: usize,
    cores: Vec<u32>,
    connections: usize,
    pacer: Arc<Pacer>,
    slot_length: u32,
    data: RegionPart,
    control: RegionPart,
    tls: Option<(Arc<ClientConfig>, RegionPart)>,
    cipher_length: u32,
    leases: usize,
    sink: Sink,
    retries: RetryPolicy,
    scheduler: Arc<Scheduler>,
    counter: Handle,
    gauge: Arc<Gauge>,
    addresses: Arc<SharedAddresses>,
    machine: SystemHost,
    seat: Seat,
    ready: SyncSender<Result<()>>,
    ended: Arc<EndedWorkers>,
}

/// Workers that have ended.
#[derive(Debug, Default)]
struct EndedWorkers {
    count: AtomicUsize,
    /// Notified after each.
    notify: Notify,
}

impl Workers {
    /// Starts all workers and waits until each has its ring.
    ///
    /// # Errors
    /// [`ErrorKind::Host`] if memory, descriptors or the requested ring are not available; then no
    /// worker is left.
    pub fn start(setup: RunSetup) -> Result<Self> {
        let RunSetup { config, destination, keeping, tls, keys, retries, .. } = setup;
        let RunSetup { bandwidth, interfaces, begun, .. } = setup;
        let (descriptors, (config, folders)) = share_descriptors(config, !destination.is_empty());
        let region = make_region(&config)?;
        let counters = (0..config.workers).map(|_| event_counter());
        let counters = counters.collect::<Result<Vec<Handle>>>()?;
        let scheduler = Arc::new(Scheduler::new(counters.clone()));
        let pacer = Arc::new(Pacer::new(config.pace, config.workers).within(bandwidth));
        let addresses = Arc::new(SharedAddresses::default());
        let sink = if destination.is_empty() { Sink::Null } else { Sink::File };
        let places = places_for(config.workers, &interfaces);
        let ended = Arc::<EndedWorkers>::default();
        let (ready, readiness) = sync_channel(config.workers);
        let mut workers = Self {
            scheduler: Arc::clone(&scheduler),
            pacer: Arc::clone(&pacer),
            gauges: Vec::new(),
            threads: Vec::new(),
            ended: Arc::clone(&ended),
            pages: region.pages(),
            ring: ChosenRing { choice: config.ring, kind: RingKind::IoUring, refused: None },
            folder: destination.first().cloned(),
            keys: Arc::clone(&keys),
            keeping,
            begun,
            config,
            interfaces: interfaces.clone(),
            places: places.clone(),
            _descriptors: descriptors,
        };
        // Dropped before the workers, which wait for it.
        let mut agreement = Agreement::new(config.ring, writers_of_a_worker(config.workers));
        for (number, (counter, place)) in counters.into_iter().zip(places).enumerate() {
            let (connections, _) = config.share(number);
            let gauge = Arc::new(Gauge::default());
            let (folder, keys) = (destination.first().cloned(), Arc::clone(&keys));
            let machine = SystemHost::new(begun, seed(number), folder, keys, keeping);
            let [data, control, cipher] = carve(&region, &config, number, tls.is_some());
            let start = Start {
                number,
                cores: place.cores.clone(),
                connections,
                pacer: Arc::clone(&pacer),
                slot_length: config.slot_length_bytes,
                data,
                control,
                tls: tls.clone().map(|tls| (tls, cipher)),
                cipher_length: config.cipher_length_bytes,
                leases: config.leases_of(config.share(number).1),
                sink,
                retries,
                scheduler: Arc::clone(&scheduler),
                counter: counter.clone(),
                gauge: Arc::clone(&gauge),
                addresses: Arc::clone(&addresses),
                machine: machine
                    .with_others(destination.get(1..).unwrap_or_default())
                    .with_folders_kept(folders)
                    .with_interfaces(placement::names(&place, &interfaces))
                    .with_helpers(helpers_of_a_worker(config.workers), counter),
                seat: agreement.seat(),
                ready: ready.clone(),
                ended: Arc::clone(&ended),
            };
            workers.spawn(start)?;
            workers.gauges.push(gauge);
        }
        drop(ready);
        workers.ring = agreement.settle().map_err(|error| workers.not_begun(error))?;
        workers.wait_until_ready(&readiness)?;
        Ok(workers)
    }

    fn spawn(&mut self, start: Start) -> Result<()> {
        let name = format!("inrush-{}", start.number);
        let thread = std::thread::Builder::new().name(name).spawn(move || work(start));
        match thread {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                let error = Error::new(ErrorKind::Host, format!("cannot start a worker: {error}"))
                    .advise(
                        "raise the limits of processes (ulimit -u) and address space (ulimit -v), \
                         or lower --workers",
                    )
                    .caused_by(error);
                self.scheduler.stop(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, readiness: &Receiver<Result<()>>) -> Result<()> {
        for _ in 0..self.threads.len() {
            let lost = || Error::new(ErrorKind::Host, "a worker ended before it began");
            let answer = readiness.recv().unwrap_or_else(|_| Err(lost()));
            if let Err(error) = answer {
                return Err(self.not_begun(error));
            }
        }
        Ok(())
    }

    /// Ends the workers that have started, because another could not.
    fn not_begun(&mut self, error: Error) -> Error {
        self.scheduler.stop(error.clone());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        error
    }

    /// The ring of all workers, and why it was chosen.
    #[must_use]
    pub fn ring(&self) -> &ChosenRing {
        &self.ring
    }

    /// The resources in use.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The interfaces in use, each with the numbers of its workers.
    #[must_use]
    pub fn interfaces(&self) -> Vec<(Interface, Vec<usize>)> {
        let has = |number: usize| {
            let places = self.places.iter().enumerate();
            places.filter(move |(_, place)| place.interfaces.contains(&number)).map(|(at, _)| at)
        };
        let named = self.interfaces.iter().cloned().enumerate();
        named.map(|(number, interface)| (interface, has(number).collect())).collect()
    }

    /// The interfaces in use as lines of text, with the cores; none if no interface was named.
    #[must_use]
    pub fn places_in_words(&self) -> Vec<String> {
        let ground = Ground { cores: &[], nodes: &[], interfaces: &self.interfaces };
        ground.in_words(&self.places)
    }

    /// The kind of pages of the slots.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// True if every worker has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.count.load(Ordering::Acquire) >= self.threads.len()
    }

    /// Why requests are not served any more; `None` while there is a worker.
    #[must_use]
    pub fn lost(&self) -> Option<Error> {
        let lost = || Error::new(ErrorKind::Host, "all workers have ended");
        self.has_ended().then(|| self.scheduler.stop_reason().unwrap_or_else(lost))
    }

    /// Waits until a worker ends; may wake early.
    pub async fn worker_ended(&self) {
        self.ended.notify.notified().await;
    }

    /// Ends the run; returns the counts of the workers that did not panic.
    pub fn end(mut self) -> Vec<WorkerMetrics> {
        self.scheduler.stop(Error::new(ErrorKind::Interrupted, "the engine was ended"));
        let counted = self.threads.drain(..).filter_map(|thread| thread.join().ok()).collect();
        let _ = self.scheduler.abandon();
        counted
    }

    /// Joins the workers, and settles ranges that were never handed out.
    ///
    /// # Errors
    /// If a worker panicked: a bug, reported as such.
    pub fn join(mut self) -> Result<Vec<WorkerMetrics>> {
        let mut metrics = Vec::new();
        let mut bug = None;
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(counted) => metrics.push(counted),
                Err(_) => bug = Some("a worker panicked"),
            }
        }
        let (folder, keys) = (self.folder.take(), Arc::clone(&self.keys));
        let machine = SystemHost::new(self.begun, 0, folder, keys, self.keeping);
        let reason = self.scheduler.stop_reason();
        for download in self.scheduler.abandon() {
            let reason = reason.clone();
            download.fail(reason.unwrap_or_else(|| Error::new(ErrorKind::Host, "not begun")));
            if let Some(file) = download.created_file() {
                machine.abandon(file, download.can_go_on());
            }
            let result = download.failure().cloned().map_or(Ok(()), Err);
            let outcome = crate::files::file_download::Outcome { download, elapsed_us: 0, result };
            self.scheduler.finish(outcome);
        }
        match bug {
            Some(message) => Err(Error::new(ErrorKind::Host, message)),
            None => Ok(metrics),
        }
    }
}

impl Drop for Workers {
    /// Ends the run, and waits until no worker is left.
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.scheduler.stop(Error::new(ErrorKind::Interrupted, "the engine was ended"));
        // A worker that writes files may wait for a call that never returns; such a run joins its
        // workers.
        if self.folder.is_some() {
            return;
        }
        for thread in self.threads.drain(..) {
            // A panic has reported itself.
            let _ = thread.join();
        }
        // Queued requests complete, too; there are no objects without a run.
        let _ = self.scheduler.abandon();
    }
}

/// A counter that wakes a worker, a feeder or a client.
///
/// # Errors
/// [`ErrorKind::Host`] if descriptors run out.
pub fn event_counter() -> Result<Handle> {
    descriptor::event_counter().map_err(|errno| {
        Error::new(ErrorKind::Host, format!("cannot make an event counter: {errno}"))
            .advise("raise the limit of open files (ulimit -n)")
            .caused_by(io::Error::from(errno))
    })
}

fn make_region(config: &Config) -> Result<Arc<Region>> {
    let length = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
    Region::new(length).map_err(|errno| {
        let advice = match usage::address_space_bytes_max() {
            Some(max) => format!(
                "this process may have {max} bytes of address space: raise that limit (ulimit -v), \
                 or lower --memory"
            ),
            None => "lower --memory".to_owned(),
        };
        Error::new(ErrorKind::Host, format!("cannot map {length} bytes for slots: {errno}"))
            .advise(advice)
            .caused_by(io::Error::from(errno))
    })
}

/// A worker's memory: for data, for heads, and for ciphertext over TLS.
fn carve(region: &Arc<Region>, config: &Config, number: usize, is_secure: bool) -> [RegionPart; 3] {
    let (connections, slots) = config.share(number);
    let secure = if is_secure { connections } else { 0 };
    [
        slots * config.slot_length_bytes as usize,
        connections * CONTROL_SLOT_BYTES as usize,
        secure * config.cipher_length_bytes as usize,
    ]
    .map(|length| region.carve(length).expect("the region was made for it"))
}

/// Places this many workers on the machine, and assigns interfaces.
fn places_for(workers: usize, interfaces: &[Interface]) -> Vec<WorkerPlace> {
    let root = Path::new("/");
    // NUMA nodes only matter for named interfaces.
    let nodes = if interfaces.is_empty() { Vec::new() } else { topology::nodes(root) };
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let cores: Vec<u32> =
        cores.into_iter().filter_map(|core| u32::try_from(core.id).ok()).collect();
    Ground { cores: &cores, nodes: &nodes, interfaces }.places(workers)
}

/// Pins the calling thread to these cores. If that is forbidden it runs anyway.
fn stay_on(cores: &[u32]) {
    match cores {
        [] => {}
        [core] => {
            let id = *core as usize;
            let _ = core_affinity::set_for_current(core_affinity::CoreId { id });
        }
        cores => {
            let mut set = CpuSet::new();
            let known = cores.iter().map(|core| *core as usize);
            known.filter(|core| *core < CpuSet::MAX_CPU).for_each(|core| set.set(core));
            let _ = sched_setaffinity(None, &set);
        }
    }
}

/// A random seed, for jitter and temporary names.
pub(crate) fn seed(number: usize) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(number)
}

/// Ends the run if a worker panics: its ranges will never be settled.
struct Guard {
    scheduler: Arc<Scheduler>,
    ended: Arc<EndedWorkers>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let bug = Error::bug("a worker panicked");
            self.scheduler.stop(bug);
        }
        self.ended.count.fetch_add(1, Ordering::Release);
        self.ended.notify.notify_one();
    }
}

/// A worker's thread, from pinning to its last count.
fn work(start: Start) -> WorkerMetrics {
    let Start { number, cores, scheduler, ready, ended, .. } = start;
    let gauge = Arc::clone(&start.gauge);
    let _guard = Guard { scheduler: Arc::clone(&scheduler), ended };
    // Before it touches its slots: their pages are allocated on the node of the first touch.
    stay_on(&cores);
    let data = Pool::new(start.data, start.slot_length);
    let control = Pool::new(start.control, CONTROL_SLOT_BYTES);
    let operations = (start.connections * 2 + data.count() * 2 + 2).next_power_of_two();
    let operations = u32::try_from(operations).expect("bounded by limits");
    let mut ring = match start.seat.ring(operations) {
        None => return WorkerMetrics::default(),
        Some(Ok(ring)) => ring,
        Some(Err(error)) => {
            let _ = ready.send(Err(no_ring(&error)));
            return WorkerMetrics::default();
        }
    };
    ring.register(&data);
    let features = ring.features();
    let _ = ready.send(Ok(()));
    drop(ready);
    let mut worker = Worker::new(Parts {
        ring,
        host: start.machine,
        data,
        control,
        tls: start.tls.map(|(tls, chunk)| (tls, Pool::new(chunk, start.cipher_length))),
        connections: start.connections,
        pacer: start.pacer,
        retries: start.retries,
        sink: start.sink,
        scheduler: Arc::clone(&scheduler),
        number,
        counter: start.counter,
        gauge: start.gauge,
        addresses: start.addresses,
    });
    scheduler.leases(number).set_most(start.leases);
    if let Err(errno) = worker.run() {
        scheduler.stop(
            Error::new(ErrorKind::Host, format!("a worker's ring failed: {errno}"))
                .advise(errno.advice_for_ring())
                .caused_by(io::Error::from(errno)),
        );
        gauge.snapshot.publish(u64::MAX, WorkerMetrics::default());
        return WorkerMetrics { features: Some(features), ..WorkerMetrics::default() };
    }
    let (mut metrics, ring, _machine) = worker.into_parts();
    metrics.features = Some(ring.features());
    metrics.processor = ProcessorTime::of_thread();
    gauge.snapshot.publish(u64::MAX, metrics.clone());
    metrics
}

/// Takes the descriptors of a run, which other engines of this process leave; returns its resources
/// within them, and how many folders each worker may keep open.
fn share_descriptors(config: Config, has_files: bool) -> (DescriptorShare, (Config, usize)) {
    let limit = usage::descriptors_max();
    DescriptorShare::take(|of_others| {
        let config = config.beside_others(limit, of_others);
        let folders = folders_kept(&config, limit.saturating_sub(of_others));
        let of_folders = if has_files { folders * config.workers } else { 0 };
        (descriptors_needed(&config) + of_folders as u64, (config, folders))
    })
}

/// Folders that each worker may keep open: half of the remaining descriptors are for files.
fn folders_kept(config: &Config, descriptors: u64) -> usize {
    let each = descriptors.saturating_sub(descriptors_needed(config)) / 2 / config.workers as u64;
    usize::try_from(each).unwrap_or(usize::MAX).clamp(1, FOLDERS_OPEN_MAX)
}

/// Descriptors of the workers and of all their connections.
fn descriptors_needed(config: &Config) -> u64 {
    descriptors_besides(config.workers) + config.connections() as u64
}

/// Helper threads per worker for slow file system calls.
fn helpers_of_a_worker(workers: usize) -> usize {
    (FILE_HELPERS_MAX / workers).max(FILE_HELPERS_PER_WORKER_MIN)
}

/// Threads per worker that write to files, if its ring is epoll.
fn writers_of_a_worker(workers: usize) -> usize {
    (RING_WRITERS_MAX / workers).max(RING_WRITERS_PER_WORKER_MIN)
}

/// The error that there is no ring, with advice.
#[must_use]
pub fn no_ring(error: &SetupError) -> Error {
    Error::new(ErrorKind::Host, error.reason()).advise(error.advice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::config::{HostFacts, ResourceOptions};

    #[test]
    fn folders_leave_descriptors_to_connections_and_files() {
        let options = ResourceOptions { workers: Some(16), ..ResourceOptions::default() };
        let config = Config::resolve(options, HostFacts::read()).expect("it fits");
        for limit in [0, 64, 1024, 4096] {
            let kept = (folders_kept(&config, limit) * config.workers) as u64;
            let rest = limit.saturating_sub(config.connections() as u64 + descriptors_besides(16));
            assert!(kept <= (rest / 2).max(config.workers as u64), "{kept} of {limit}");
        }
        assert_eq!(folders_kept(&config, 1 << 20), FOLDERS_OPEN_MAX);
        assert_eq!(folders_kept(&config, u64::MAX), FOLDERS_OPEN_MAX);
    }

    fn allowed() -> usize {
        core_affinity::get_core_ids().map_or(0, |cores| cores.len())
    }

    #[test]
    fn a_worker_stays_on_its_cores() {
        let all = places_for(allowed(), &[]);
        let cores: Vec<u32> = all.iter().flat_map(|place| place.cores.clone()).collect();
        assert_eq!(cores.len(), allowed(), "each worker has one");
        let now = || {
            let set = rustix::thread::sched_getaffinity(None).expect("it can be asked");
            (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).count()
        };
        // In a thread of its own, because tests share theirs.
        let counts = std::thread::spawn(move || {
            stay_on(&[]);
            let any = now();
            stay_on(&cores);
            let some = now();
            stay_on(&cores[..1]);
            (any, some, now())
        });
        let all = allowed();
        assert_eq!(counts.join().expect("no panic"), (all, all, 1));
    }
}
