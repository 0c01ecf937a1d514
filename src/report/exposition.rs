//! A run's metrics in Prometheus' text format. Their names are stable. Pure.

use prometheus::core::Collector;
use prometheus::{Counter, Gauge, GaugeVec, Opts, Registry, TextEncoder};

/// The `Content-Type` of the text.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The metric that identifies the run: always 1, with labels.
pub const INFO: &str = "inrush_info";

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

/// A number as Prometheus has it.
trait Value: Copy {
    fn value(self) -> f64;
}

impl Value for u64 {
    #[expect(clippy::cast_precision_loss, reason = "2^53 bytes are nine petabytes")]
    fn value(self) -> f64 {
        self as f64
    }
}

impl Value for u32 {
    fn value(self) -> f64 {
        self.into()
    }
}

impl Value for u8 {
    fn value(self) -> f64 {
        self.into()
    }
}

impl Value for f64 {
    fn value(self) -> f64 {
        self
    }
}

/// Declares each metric once: its field, its type and its name. Its meaning is its help, too.
macro_rules! metrics {
    ($(#[doc = $help:literal] $field:ident: $type:ty = $kind:ident $name:literal;)*) => {
        /// The values of a run's metrics at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq)]
        pub struct Numbers {
            /// Name of the command.
            pub command: &'static str,
            $(#[doc = $help] pub $field: $type,)*
        }

        /// All metrics except [`INFO`].
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            help: $help.trim_ascii_start(),
            value: |of| of.$field.value(),
        }),*];
    };
}

metrics! {
    /// Start of the command, in seconds since 1970.
    started_seconds: f64 = Gauge "inrush_start_time_seconds";
    /// End of the command, in seconds since 1970; 0 while it runs.
    ended_seconds: f64 = Gauge "inrush_end_time_seconds";
    /// Exit code of the command; 0 while it runs.
    exit_code: u8 = Gauge "inrush_exit_code";
    /// Bytes of objects received, as bytes in --json of files.
    bytes: u64 = Counter "inrush_received_bytes_total";
    /// Objects downloaded to files, as objects in --json.
    objects: u64 = Counter "inrush_objects_total";
    /// Objects that failed, as failed_objects in --json.
    failed_objects: u64 = Counter "inrush_failed_objects_total";
    /// Objects skipped because they were there already.
    kept_objects: u64 = Counter "inrush_kept_objects_total";
    /// Objects listed so far that are to be downloaded.
    known_objects: u64 = Gauge "inrush_known_objects";
    /// Bytes of the objects listed so far that are to be downloaded.
    known_bytes: u64 = Gauge "inrush_known_bytes";
    /// Failed attempts to get a range that were followed by another.
    retries: u64 = Counter "inrush_retries_total";
    /// Listing and metadata requests that were sent again.
    control_retries: u64 = Counter "inrush_control_retries_total";
    /// Answers with the range that was requested.
    answers: u64 = Counter "inrush_answers_total";
    /// Answers that ask for fewer requests (503, 429).
    refused: u64 = Counter "inrush_refused_total";
    /// Connections that wait before their next attempt.
    waiting: u32 = Gauge "inrush_waiting_connections";
    /// Requests that the pace allows in flight now.
    wanted: u32 = Gauge "inrush_wanted_requests";
    /// Requests in flight now.
    in_flight: u32 = Gauge "inrush_requests_in_flight";
    /// CPU time of the process, in seconds.
    cpu_seconds: f64 = Counter "inrush_cpu_seconds_total";
    /// Highest resident set of the process.
    peak_rss_bytes: u64 = Gauge "inrush_peak_resident_bytes";
    /// Memory of all TCP sockets of the machine now.
    tcp_memory_bytes: u64 = Gauge "inrush_tcp_memory_bytes";
    /// The most of it that was seen since the command began.
    tcp_memory_peak_bytes: u64 = Gauge "inrush_tcp_memory_peak_bytes";
    /// Its pressure mark (tcp_mem); 0 if it is unknown.
    tcp_memory_pressure_bytes: u64 = Gauge "inrush_tcp_memory_pressure_bytes";
    /// How often its pressure began.
    tcp_memory_pressures: u64 = Counter "inrush_tcp_memory_pressures_total";
    /// How often a socket of the machine was pruned.
    tcp_pruned: u64 = Counter "inrush_tcp_pruned_total";
    /// Packets that the machine dropped for lack of TCP memory.
    tcp_dropped: u64 = Counter "inrush_tcp_dropped_total";
    /// Files of mounts that were opened, as opens in --json.
    opened_files: u64 = Counter "inrush_opened_files_total";
    /// Reads of them that the kernel requested, as reads in --json.
    reads: u64 = Counter "inrush_reads_total";
    /// Reads that failed, as failed_reads in --json.
    failed_reads: u64 = Counter "inrush_failed_reads_total";
    /// Bytes that reads returned, as served_bytes in --json.
    read_bytes: u64 = Counter "inrush_read_bytes_total";
    /// Opened files that were in the cache of the mount.
    cache_hits: u64 = Counter "inrush_cache_hits_total";
    /// Opened files that were not in the cache of the mount.
    cache_misses: u64 = Counter "inrush_cache_misses_total";
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
