//! Exports metrics of a running command: over HTTP for Prometheus, and to a file for node_exporter.
//! A separate thread reads the workers' published counters on request.

mod exported;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
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

pub(super) use self::exported::Exported;
use super::context::Context;
use crate::cli::MetricsArgs;
use crate::error::{Error, ErrorKind, Result};
use crate::files::whole_file;
use crate::limits::metrics::{
    METRICS_CONNECTION_TIME, METRICS_CONNECTIONS_MAX, METRICS_FILE_PERIOD, METRICS_HEAD_BYTES_MAX,
};
use crate::report::exposition::{CONTENT_TYPE, Numbers, text};
use crate::report::progress::Progress;
use crate::sys::{tcp_memory, usage};

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
        let tcp = tcp_memory::seen().unwrap_or_default();
        Numbers {
            command: self.command,
            started_seconds: self.started_seconds,
            cpu_seconds: usage::process_cpu_seconds(),
            peak_rss_bytes: usage::peak_rss_bytes(),
            tcp_memory_bytes: tcp.used_bytes,
            tcp_memory_peak_bytes: tcp.peak_bytes,
            tcp_memory_pressure_bytes: tcp.pressure_bytes.unwrap_or(0),
            tcp_memory_pressures: tcp.pressures.unwrap_or(0),
            tcp_pruned: tcp.pruned.unwrap_or(0),
            tcp_dropped: tcp.dropped.unwrap_or(0),
            ..self.context.exported.numbers()
        }
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
