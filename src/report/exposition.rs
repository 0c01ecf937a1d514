//! A run's metrics in Prometheus' text format. Their names are stable. Pure.

use prometheus::core::Collector;
use prometheus::{Counter, Gauge, GaugeVec, Opts, Registry, TextEncoder};

/// The `Content-Type` of the text.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The metric that identifies the run: always 1, with labels.
pub const INFO: &str = "inrush_info";

/// The values of a run's metrics at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Numbers {
    /// Name of the command.
    pub command: &'static str,
    /// When it began, in seconds since 1970.
    pub started_seconds: f64,
    /// When it ended, in seconds since 1970; 0 while it runs.
    pub ended_seconds: f64,
    /// Its exit code; 0 while it runs.
    pub exit_code: u8,
    /// Body bytes received and delivered.
    pub bytes: u64,
    /// Objects that are complete.
    pub objects: u64,
    /// Objects that failed.
    pub failed_objects: u64,
    /// Objects that were already there.
    pub kept_objects: u64,
    /// Objects that were listed and are to be downloaded.
    pub known_objects: u64,
    /// Their bytes.
    pub known_bytes: u64,
    /// Failed attempts that were retried.
    pub retries: u64,
    /// Retried control-plane requests.
    pub control_retries: u64,
    /// Responses with the requested data.
    pub answers: u64,
    /// Responses that asked for fewer requests.
    pub refused: u64,
    /// Connections that wait before a retry.
    pub waiting: u32,
    /// Requests that may be in flight.
    pub wanted: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Processor seconds of the process.
    pub cpu_seconds: f64,
    /// Peak resident set size of the process, in bytes.
    pub peak_rss_bytes: u64,
    /// The machine's TCP memory in use, in bytes; 0 here and below if the kernel does not report
    /// it.
    pub tcp_memory_bytes: u64,
    /// Its maximum since the command began.
    pub tcp_memory_peak_bytes: u64,
    /// Its pressure mark.
    pub tcp_memory_pressure_bytes: u64,
    /// How often the pressure began.
    pub tcp_memory_pressures: u64,
    /// How often sockets were pruned.
    pub tcp_pruned: u64,
    /// Received packets dropped for lack of memory.
    pub tcp_dropped: u64,
    /// Files of mounts that were opened.
    pub opened_files: u64,
    /// Reads of them that the kernel asked for.
    pub reads: u64,
    /// Those that failed.
    pub failed_reads: u64,
    /// Bytes that it was given.
    pub read_bytes: u64,
    /// Opened files that were in the cache.
    pub cache_hits: u64,
    /// Those that were not.
    pub cache_misses: u64,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It may change either way.
    Gauge,
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// Its description.
    pub help: &'static str,
    value: fn(&Numbers) -> f64,
}

macro_rules! metrics {
    ($($name:literal $kind:ident $help:literal $value:expr;)*) => {
        /// All metrics except [`INFO`].
        pub const METRICS: &[Metric] = &[$(
            Metric { name: $name, kind: MetricKind::$kind, help: $help, value: $value }
        ),*];
    };
}

#[expect(clippy::cast_precision_loss, reason = "2^53 bytes are nine petabytes")]
const fn float(count: u64) -> f64 {
    count as f64
}

metrics! {
    "inrush_start_time_seconds" Gauge "Start of the command, in seconds since 1970."
        |of| of.started_seconds;
    "inrush_end_time_seconds" Gauge "End of the command, in seconds since 1970; 0 while it runs."
        |of| of.ended_seconds;
    "inrush_exit_code" Gauge "Exit code of the command; 0 while it runs."
        |of| f64::from(of.exit_code);
    "inrush_received_bytes_total" Counter "Bytes of objects received, as bytes in --json of files."
        |of| float(of.bytes);
    "inrush_objects_total" Counter "Objects downloaded to files, as objects in --json."
        |of| float(of.objects);
    "inrush_failed_objects_total" Counter "Objects that failed, as failed_objects in --json."
        |of| float(of.failed_objects);
    "inrush_kept_objects_total" Counter "Objects skipped because they were there already."
        |of| float(of.kept_objects);
    "inrush_known_objects" Gauge "Objects listed so far that are to be downloaded."
        |of| float(of.known_objects);
    "inrush_known_bytes" Gauge "Bytes of the objects listed so far that are to be downloaded."
        |of| float(of.known_bytes);
    "inrush_retries_total" Counter "Failed attempts to get a range that were followed by another."
        |of| float(of.retries);
    "inrush_control_retries_total" Counter "Listing and metadata requests that were sent again."
        |of| float(of.control_retries);
    "inrush_answers_total" Counter "Answers with the range that was requested."
        |of| float(of.answers);
    "inrush_refused_total" Counter "Answers that ask for fewer requests (503, 429)."
        |of| float(of.refused);
    "inrush_waiting_connections" Gauge "Connections that wait before their next attempt."
        |of| f64::from(of.waiting);
    "inrush_wanted_requests" Gauge "Requests that the pace allows in flight now."
        |of| f64::from(of.wanted);
    "inrush_requests_in_flight" Gauge "Requests in flight now."
        |of| f64::from(of.in_flight);
    "inrush_cpu_seconds_total" Counter "CPU time of the process, in seconds."
        |of| of.cpu_seconds;
    "inrush_peak_resident_bytes" Gauge "Highest resident set of the process."
        |of| float(of.peak_rss_bytes);
    "inrush_tcp_memory_bytes" Gauge "Memory of all TCP sockets of the machine now."
        |of| float(of.tcp_memory_bytes);
    "inrush_tcp_memory_peak_bytes" Gauge "The most of it that was seen since the command began."
        |of| float(of.tcp_memory_peak_bytes);
    "inrush_tcp_memory_pressure_bytes" Gauge "Its pressure mark (tcp_mem); 0 if it is unknown."
        |of| float(of.tcp_memory_pressure_bytes);
    "inrush_tcp_memory_pressures_total" Counter "How often its pressure began."
        |of| float(of.tcp_memory_pressures);
    "inrush_tcp_pruned_total" Counter "How often a socket of the machine was pruned."
        |of| float(of.tcp_pruned);
    "inrush_tcp_dropped_total" Counter "Packets that the machine dropped for lack of TCP memory."
        |of| float(of.tcp_dropped);
    "inrush_opened_files_total" Counter "Files of mounts that were opened, as opens in --json."
        |of| float(of.opened_files);
    "inrush_reads_total" Counter "Reads of them that the kernel requested, as reads in --json."
        |of| float(of.reads);
    "inrush_failed_reads_total" Counter "Reads that failed, as failed_reads in --json."
        |of| float(of.failed_reads);
    "inrush_read_bytes_total" Counter "Bytes that reads returned, as served_bytes in --json."
        |of| float(of.read_bytes);
    "inrush_cache_hits_total" Counter "Opened files that were in the cache of the mount."
        |of| float(of.cache_hits);
    "inrush_cache_misses_total" Counter "Opened files that were not in the cache of the mount."
        |of| float(of.cache_misses);
}

impl Metric {
    /// Its value.
    #[must_use]
    pub fn value(&self, numbers: &Numbers) -> f64 {
        (self.value)(numbers)
    }
}

/// The text of all metrics.
///
/// # Errors
/// If a metric's name is invalid: a bug.
pub fn text(numbers: &Numbers) -> Result<String, prometheus::Error> {
    let registry = Registry::new();
    let info = GaugeVec::new(
        Opts::new(INFO, "What runs: the version and the command."),
        &["version", "command"],
    )?;
    info.with_label_values(&[env!("CARGO_PKG_VERSION"), numbers.command]).set(1.0);
    registry.register(Box::new(info))?;
    for metric in METRICS {
        let value = metric.value(numbers);
        let collector: Box<dyn Collector> = match metric.kind {
            MetricKind::Gauge => {
                let gauge = Gauge::new(metric.name, metric.help)?;
                gauge.set(value);
                Box::new(gauge)
            }
            MetricKind::Counter => {
                let counter = Counter::new(metric.name, metric.help)?;
                counter.inc_by(value);
                Box::new(counter)
            }
        };
        registry.register(collector)?;
    }
    TextEncoder::new().encode_to_string(&registry.gather())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_number() {
        let numbers = Numbers {
            command: "get",
            started_seconds: 1.5,
            ended_seconds: 1.75,
            exit_code: 1,
            bytes: 2,
            objects: 3,
            failed_objects: 4,
            kept_objects: 5,
            known_objects: 6,
            known_bytes: 7,
            retries: 8,
            control_retries: 9,
            answers: 10,
            refused: 11,
            waiting: 12,
            wanted: 13,
            in_flight: 14,
            cpu_seconds: 15.5,
            peak_rss_bytes: 16,
            tcp_memory_bytes: 17,
            tcp_memory_peak_bytes: 18,
            tcp_memory_pressure_bytes: 19,
            tcp_memory_pressures: 20,
            tcp_pruned: 21,
            tcp_dropped: 22,
            opened_files: 23,
            reads: 24,
            failed_reads: 25,
            read_bytes: 26,
            cache_hits: 27,
            cache_misses: 28,
        };
        // In the order of the table, which is that of the fields.
        let values: Vec<f64> = METRICS.iter().map(|metric| metric.value(&numbers)).collect();
        let whole = (1..=14).map(f64::from);
        let rest = [15.5].into_iter().chain((16..=28).map(f64::from));
        let expected: Vec<f64> = [1.5, 1.75].into_iter().chain(whole).chain(rest).collect();
        assert_eq!(values, expected);
    }

    #[test]
    fn every_name_is_documented_and_written_once() {
        let text = text(&Numbers { command: "get", bytes: 1 << 52, ..Numbers::default() });
        let text = text.expect("good names");
        let page = crate::guide::topic("metrics").expect("a page").text;
        for metric in METRICS {
            let kind = if metric.kind == MetricKind::Counter { "counter" } else { "gauge" };
            let (name, help) = (metric.name, metric.help);
            assert_eq!(text.matches(&format!("\n{name} ")).count(), 1, "{name}");
            assert!(text.contains(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")));
            assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
            let row = format!("| `{name}` | {kind} | {} |\n", help.trim_end_matches('.'));
            assert!(page.contains(&row), "{row}");
        }
        assert!(text.contains("\ninrush_received_bytes_total 4503599627370496\n"), "{text}");
        let labels = format!("command=\"get\",version=\"{}\"", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&format!("{INFO}{{{labels}}} 1\n")), "{text}");
        assert!(page.contains(&format!("| `{INFO}` |")));
    }
}
