//! Exports metrics of a running command: over HTTP for Prometheus, and to a file for node_exporter.
//! A separate thread reads the workers' published counters on request.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::context::Context;
use super::whole_file;
use crate::cli::MetricsArgs;
use crate::engine::pace::{PaceSeen, Pacer};
use crate::engine::threads::{Watched, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::metrics::{
    METRICS_CONNECTION_TIME, METRICS_CONNECTIONS_MAX, METRICS_FILE_PERIOD, METRICS_HEAD_BYTES_MAX,
};
use crate::link::failure::RetryCounts;
use crate::report::document::AllReads;
use crate::report::exposition::{CONTENT_TYPE, Numbers, text};
use crate::report::progress::{Progress, ProgressState};
use crate::sys::{tcp_memory, usage};

/// Returns the counters of some workers.
type Watch = Box<dyn Fn() -> Watched + Send>;

/// Returns the reads of mounts; `None` once they have ended.
type ReadsWatch = Box<dyn Fn() -> Option<AllReads> + Send>;

/// What a command's parts publish of themselves for its exports.
#[derive(Default)]
pub(super) struct Exported {
    /// The workers, and the channels. A command starts few: workers for its files and for its
    /// streams.
    watches: Mutex<Vec<Watch>>,
    /// The reads of mounts, and their last result.
    reads: Mutex<Option<(ReadsWatch, AllReads)>>,
    known_objects: AtomicU64,
    known_bytes: AtomicU64,
    kept_objects: AtomicU64,
    failed_objects: AtomicU64,
    control_retries: AtomicU64,
}

impl Exported {
    /// Adds these workers.
    pub(super) fn watch(&self, workers: &Workers) {
        self.add(workers.watch());
    }

    /// Adds workers whose channels have their own pace.
    pub(super) fn watch_streams(&self, workers: &Workers) {
        let watch = workers.watch();
        self.add(move || Watched { pace: PaceSeen::default(), ..watch() });
    }

    /// Adds the counters of this pacer.
    pub(super) fn watch_pace(&self, pacer: Arc<Pacer>) {
        self.add(move || Watched { pace: pacer.seen(), ..Watched::default() });
    }

    fn add(&self, watch: impl Fn() -> Watched + Send + 'static) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(watch));
    }

    /// Adds the reads of mounts.
    pub(super) fn watch_reads(&self, reads: impl Fn() -> Option<AllReads> + Send + 'static) {
        let mut watched = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        *watched = Some((Box::new(reads), AllReads::default()));
    }

    /// Publishes the final reads of mounts that have ended.
    pub(super) fn show_reads(&self, reads: AllReads) {
        let mut watched = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        *watched = Some((Box::new(|| None), reads));
    }

    /// The reads of mounts so far.
    fn reads(&self) -> AllReads {
        let mut watched = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((watch, last)) = watched.as_mut() else { return AllReads::default() };
        if let Some(now) = watch() {
            *last = now;
        }
        last.clone()
    }

    /// Publishes the progress of a download.
    pub(super) fn show(&self, known: &ProgressState, failed_objects: u64) {
        self.known_objects.store(known.objects_known, Ordering::Relaxed);
        self.known_bytes.store(known.bytes_known, Ordering::Relaxed);
        self.kept_objects.store(known.objects_kept, Ordering::Relaxed);
        self.failed_objects.store(failed_objects, Ordering::Relaxed);
    }

    /// Publishes the final counters of a download, and the control plane's retries.
    pub(super) fn show_end(
        &self,
        known: &ProgressState,
        failed_objects: u64,
        retries: &RetryCounts,
    ) {
        self.show(known, failed_objects);
        self.show_control_retries(retries.iter().sum());
    }

    /// Publishes the control plane's retries.
    pub(super) fn show_control_retries(&self, count: u64) {
        self.control_retries.store(count, Ordering::Relaxed);
    }
}

/// The exported command.
#[derive(Clone)]
struct Subject {
    command: &'static str,
    started_seconds: f64,
    context: Arc<Context>,
}

/// Seconds since 1970.
fn seconds_now() -> f64 {
    let now = crate::control::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

impl Subject {
    fn numbers(&self) -> Numbers {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let tcp = tcp_memory::seen().unwrap_or_default();
        let exported = &self.context.exported;
        let reads = exported.reads();
        let cache = reads.cache.unwrap_or_default();
        let mut numbers = Numbers {
            command: self.command,
            started_seconds: self.started_seconds,
            failed_objects: load(&exported.failed_objects),
            kept_objects: load(&exported.kept_objects),
            known_objects: load(&exported.known_objects),
            known_bytes: load(&exported.known_bytes),
            control_retries: load(&exported.control_retries),
            cpu_seconds: usage::process_cpu_seconds(),
            peak_rss_bytes: usage::peak_rss_bytes(),
            tcp_memory_bytes: tcp.used_bytes,
            tcp_memory_peak_bytes: tcp.peak_bytes,
            tcp_memory_pressure_bytes: tcp.pressure_bytes.unwrap_or(0),
            tcp_memory_pressures: tcp.pressures.unwrap_or(0),
            tcp_pruned: tcp.pruned.unwrap_or(0),
            tcp_dropped: tcp.dropped.unwrap_or(0),
            opened_files: reads.opens,
            reads: reads.counts.reads,
            failed_reads: reads.counts.failed_reads,
            read_bytes: reads.counts.served_bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            ..Numbers::default()
        };
        for watch in exported.watches.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let Watched { bytes, objects, retries, waiting, pace } = watch();
            numbers.bytes += bytes;
            numbers.objects += objects;
            numbers.retries += retries;
            numbers.answers += pace.answers;
            numbers.refused += pace.refused;
            numbers.waiting += waiting;
            numbers.wanted += pace.wanted;
            numbers.in_flight += pace.in_flight;
        }
        numbers
    }

    fn text(&self) -> String {
        text(&self.numbers()).expect("the names are tested")
    }

    /// The text with nothing in progress, at the end.
    fn last_text(&self, exit_code: u8) -> String {
        let ended = Numbers {
            waiting: 0,
            wanted: 0,
            in_flight: 0,
            ended_seconds: seconds_now(),
            exit_code,
            ..self.numbers()
        };
        text(&ended).expect("the names are tested")
    }
}

/// Exports until it is dropped.
#[derive(Debug)]
pub(super) struct Exporter {
    ended: Arc<Notify>,
    exit_code: Arc<AtomicU8>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Starts the requested exports; `None` if there are none.
    ///
    /// # Errors
    /// [`ErrorKind::Host`] if the address cannot be used, [`ErrorKind::Destination`] if the file
    /// cannot be written.
    pub(super) fn start(
        (command, args): (&'static str, &MetricsArgs),
        is_quiet: bool,
        context: &Arc<Context>,
    ) -> Result<Option<Self>> {
        if *args == MetricsArgs::default() {
            return Ok(None);
        }
        let context = Arc::clone(context);
        let subject = Subject { command, started_seconds: seconds_now(), context };
        let trouble = |why: std::io::Error| {
            Error::new(ErrorKind::Host, format!("cannot serve metrics: {why}")).caused_by(why)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(trouble)?;
        let listener = args.metrics_listen.map(|address| {
            runtime.block_on(TcpListener::bind(address)).map_err(|why| refused(address, &why))
        });
        let listener = listener.transpose()?;
        if let Some(path) = &args.metrics_file {
            write(path, &subject.text())?;
        }
        if let Some(listener) = &listener {
            let at = listener.local_addr().map_err(trouble)?;
            print_warning(at, &subject.context.messages.progress(!is_quiet));
        }
        let (ended, file) = (Arc::new(Notify::new()), args.metrics_file.clone());
        let (until, exit_code) = (Arc::clone(&ended), Arc::new(AtomicU8::new(0)));
        let code = Arc::clone(&exit_code);
        let thread = std::thread::Builder::new().name("inrush-metrics".to_owned());
        let thread = thread
            .spawn(move || {
                runtime.block_on(export(&subject, listener, file.as_deref(), &until));
                // Readers of the file recognize the end by these.
                if let Some(path) = &file
                    && let Err(error) =
                        write(path, &subject.last_text(code.load(Ordering::Relaxed)))
                {
                    subject.context.messages.progress(false).error(error);
                }
            })
            .map_err(Error::no_thread)?;
        Ok(Some(Self { ended, exit_code, thread }))
    }

    /// The command has ended with this code. The file has the final values when this returns.
    pub(super) fn end(self, exit_code: u8) {
        self.exit_code.store(exit_code, Ordering::Relaxed);
        self.ended.notify_one();
        // A panic has already been reported.
        let _ = self.thread.join();
    }
}

fn refused(address: SocketAddr, why: &std::io::Error) -> Error {
    Error::new(ErrorKind::Host, format!("cannot listen on {address} for metrics: {why}"))
        .advise("give --metrics-listen another port; 0 takes a free one")
        .caused_by_io(why)
}

fn print_warning(at: SocketAddr, progress: &Progress) {
    progress.note(format!("metrics: http://{at}/metrics"));
    warning(at).iter().for_each(|line| progress.warn(line));
}

/// A warning about an address that is reachable from other machines.
fn warning(at: SocketAddr) -> Option<String> {
    let others = "can read the metrics: listen on 127.0.0.1 unless that is wanted";
    (!at.ip().is_loopback()).then(|| format!("whoever reaches {at} {others}"))
}

/// Serves and writes until the end.
async fn export(
    subject: &Subject,
    listener: Option<TcpListener>,
    file: Option<&Path>,
    until: &Notify,
) {
    let served = async {
        match listener {
            Some(listener) => serve(subject, listener).await,
            None => std::future::pending().await,
        }
    };
    let written = async {
        let Some(path) = file else { return std::future::pending().await };
        let mut period = interval(METRICS_FILE_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let _ = period.tick().await;
            // It could be written at the start; a disk that is full now is the run's own failure.
            let _ = write(path, &subject.text());
        }
    };
    tokio::select! {
        () = until.notified() => {}
        () = served => {}
        () = written => {}
    }
}

async fn serve(subject: &Subject, listener: TcpListener) {
    let mut served: VecDeque<AbortHandle> = VecDeque::with_capacity(METRICS_CONNECTIONS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                served.retain(|other| !other.is_finished());
                // An answer takes milliseconds: the oldest connection is idle.
                if served.len() >= METRICS_CONNECTIONS_MAX
                    && let Some(oldest) = served.pop_front()
                {
                    oldest.abort();
                }
                let subject = subject.clone();
                let answering = tokio::spawn(async move {
                    // A slower client is not Prometheus.
                    let _ = timeout(METRICS_CONNECTION_TIME, answer_all(subject, stream)).await;
                });
                served.push_back(answering.abort_handle());
            }
            // Descriptors have run out: some may become free.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer_all(subject: Subject, stream: TcpStream) {
    let service = service_fn(move |request| std::future::ready(answer(&subject, &request)));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).keep_alive(false).max_buf_size(METRICS_HEAD_BYTES_MAX);
    // A client that disconnects is not our failure.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(
    subject: &Subject,
    request: &Request<Incoming>,
) -> Result<Response<Full<Bytes>>, http::Error> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, kind, body) = match request.uri().path() {
        "/metrics" if is_read => (StatusCode::OK, CONTENT_TYPE, subject.text()),
        "/metrics" => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "see /metrics\n".to_owned()),
    };
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(Full::new(Bytes::from(body)))
}

/// Replaces the file atomically by one of this text.
fn write(path: &Path, text: &str) -> Result<()> {
    whole_file::write_there(path, text.as_bytes(), ".inrush-metrics-").map_err(|why| {
        let message = format!("cannot write the metrics to {}: {why}", path.display());
        Error::new(ErrorKind::Destination, message)
            .advise("choose another --metrics-file")
            .of_call(why.raw_os_error())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_others_is_warned_of() {
        let line_for = |at: &str| warning(at.parse().expect("an address"));
        for own in ["127.0.0.1:9400", "127.8.8.8:1", "[::1]:9400"] {
            assert_eq!(line_for(own), None, "{own}");
        }
        for others in ["0.0.0.0:9400", "[::]:1", "192.0.2.7:9400"] {
            let line = line_for(others).expect("a warning");
            assert!(line.contains(others) && line.contains("listen on 127.0.0.1"), "{line}");
        }
    }
}
