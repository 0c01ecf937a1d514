//! The report of a mount: a line for each file that was open, and the summary at its end.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::{RequestLine, RingReport, asked_again, by_name, json, tried_again};
use crate::engine::metrics::RequestCounts;
use crate::error::Error;
use crate::link::failure::RetryCounts;
use crate::report::limit::Limit;
use crate::s3::Object;
use crate::sys::tcp_memory::TcpMemoryUse;
use crate::text::size::{Count, Decimal, counted};

/// What was read, of one open file or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ReadCounts {
    /// Read requests of the kernel.
    pub reads: u64,
    /// Those that failed.
    pub failed_reads: u64,
    /// Bytes requested, up to the end of the file.
    pub asked_bytes: u64,
    /// Bytes returned to the kernel.
    pub served_bytes: u64,
    /// Bytes received from the server for them, including readahead.
    pub received_bytes: u64,
}

/// The line of a file that was open (`mount --report`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadFileLine<'a> {
    /// The kind of line: `file`.
    pub kind: &'static str,
    /// Its object's bucket.
    pub bucket: &'a str,
    /// Its object's key.
    pub key: &'a str,
    /// Its object's size.
    pub bytes: u64,
    /// How long it was open.
    pub seconds: f64,
    /// It was read from the cache.
    pub cached: bool,
    /// What was read; absent for a cached file, which the kernel may read by itself.
    #[serde(flatten)]
    pub counts: Option<ReadCounts>,
    /// The first error of its reads; null if there was none.
    pub error: Option<String>,
}

impl<'a> ReadFileLine<'a> {
    /// Makes the line of a file that was open for `open`. Without counts it was read from the
    /// cache.
    #[must_use]
    pub fn new(
        bucket: &'a str,
        object: &'a Object,
        counts: Option<ReadCounts>,
        open: Duration,
        error: Option<&Error>,
    ) -> Self {
        Self {
            kind: "file",
            bucket,
            key: &object.key,
            bytes: object.size_bytes,
            seconds: open.as_secs_f64(),
            cached: counts.is_none(),
            counts,
            error: error.map(ToString::to_string),
        }
    }

    /// The line of the report.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}

/// What was listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MountedCounts {
    /// Visible files.
    pub files: u64,
    /// The sum of their sizes.
    pub bytes: u64,
    /// Keys that are no valid names.
    pub hidden_keys: u64,
    /// Only the folders that programs used were listed and counted.
    pub lazy: bool,
}

/// The results of a mount's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CacheCounts {
    /// Opened files that were read from the cache.
    pub hits: u64,
    /// Opened files that were not.
    pub misses: u64,
    /// Objects written to the cache.
    pub kept_objects: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Objects removed to make room.
    pub evicted_objects: u64,
}

impl CacheCounts {
    /// The results for people.
    #[must_use]
    pub fn in_words(self) -> String {
        let Self { hits, misses, kept_objects, kept_bytes, evicted_objects } = self;
        let opened = counted(hits + misses, "open file", "open files");
        let evicted = match evicted_objects {
            0 => String::new(),
            count => format!(", {} removed to make room", Count(count)),
        };
        let kept = counted(kept_objects, "object", "objects");
        let bytes = Decimal(kept_bytes);
        format!("cache: {} of {opened} read from it; {kept} kept, {bytes}{evicted}", Count(hits))
    }
}

/// What listings after the first changed in a mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RefreshReport {
    /// Complete listings.
    pub refreshes: u64,
    /// Listings that failed.
    pub failed_refreshes: u64,
    /// Files that appeared.
    pub new_files: u64,
    /// Files whose objects were replaced.
    pub replaced_files: u64,
    /// Files that vanished.
    pub gone_files: u64,
}

/// The summary of a mount.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MountSummary {
    /// Version of the program.
    pub version: &'static str,
    /// The exit code.
    pub exit_code: u8,
    /// From the start of the program to its end.
    pub seconds: f64,
    /// What was listed.
    #[serde(flatten)]
    pub mounted: MountedCounts,
    /// Number of times that programs opened files.
    pub opens: u64,
    /// Number of times that files were opened past the page cache.
    pub direct_opens: u64,
    /// What was read of all files.
    #[serde(flatten)]
    pub counts: ReadCounts,
    /// Bytes received for each byte served; null if none was served.
    pub read_amplification: Option<f64>,
    /// Open files whose objects turned out to be replaced or deleted.
    pub changed_files: u64,
    /// The results of the cache; null without one.
    pub cache: Option<CacheCounts>,
    /// What `--refresh` came to; null without it.
    pub refresh: Option<RefreshReport>,
    /// Files closed while the file of `--report` was too far behind to take their lines.
    pub unreported_files: u64,
    /// Requests for reads, and what was sent again.
    #[serde(flatten)]
    pub sent: RequestLine,
    /// Retried control-plane requests (LIST, HEAD and the like), by reason.
    pub control_retries: BTreeMap<&'static str, u64>,
    /// Processor time of the process.
    pub cpu_seconds: f64,
    /// Peak resident set size of the process.
    pub peak_rss_bytes: u64,
    /// The machine's TCP memory; null if the kernel does not report it.
    pub tcp_memory: Option<TcpMemoryUse>,
    /// The workers' kernel interface.
    pub ring: RingReport,
    /// The transport of the kernel's FUSE requests.
    pub fuse: FuseReport,
    /// Which part of the machine, the network, the server or the programs was the limit.
    pub limit: Limit,
}

/// The transport of the kernel's FUSE requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FuseTransport {
    /// `/dev/fuse`, one request at a time.
    #[default]
    Device,
    /// FUSE over io_uring.
    IoUring,
}

/// The transport of the kernel's FUSE requests, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FuseReport {
    /// `io_uring` or `device`.
    pub transport: FuseTransport,
    /// If io_uring was wanted and is unavailable: why; otherwise null.
    pub io_uring_unavailable: Option<String>,
}

/// Counts over all files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AllReads {
    /// Files opened.
    pub opens: u64,
    /// Files opened past the page cache.
    pub direct_opens: u64,
    /// What was read.
    pub counts: ReadCounts,
    /// Open files whose objects were replaced or deleted.
    pub changed_files: u64,
    /// Files without a line in the report.
    pub unreported_files: u64,
    /// Counts of the client's requests.
    pub client: RequestCounts,
    /// The results of the cache, if there is one.
    pub cache: Option<CacheCounts>,
}

impl MountSummary {
    /// Combines a mount's counts. The caller fills in what the process used.
    #[must_use]
    pub fn new(
        mounted: MountedCounts,
        read: &AllReads,
        control_retries: &RetryCounts,
        ring: RingReport,
        limit: Limit,
    ) -> Self {
        let client = &read.client;
        let received_bytes = client.addresses.iter().map(|address| address.bytes).sum();
        let counts = ReadCounts { received_bytes, ..read.counts };
        let served = counts.served_bytes;
        Self {
            version: env!("CARGO_PKG_VERSION"),
            exit_code: 0,
            seconds: 0.0,
            mounted,
            opens: read.opens,
            direct_opens: read.direct_opens,
            counts,
            read_amplification: (served > 0).then(|| received_bytes as f64 / served as f64),
            changed_files: read.changed_files,
            cache: read.cache,
            refresh: None,
            unreported_files: read.unreported_files,
            sent: RequestLine::new(client),
            control_retries: by_name(control_retries),
            cpu_seconds: 0.0,
            peak_rss_bytes: 0,
            tcp_memory: None,
            ring,
            fuse: FuseReport::default(),
            limit,
        }
    }

    /// The summary for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let Self { counts, .. } = self;
        let mut line = format!(
            "{}, {}: {} served, {} received in {}",
            counted(self.opens, "open file", "open files"),
            counted(counts.reads, "read", "reads"),
            Decimal(counts.served_bytes),
            Decimal(counts.received_bytes),
            counted(self.sent.requests, "request", "requests"),
        );
        if counts.failed_reads > 0 {
            line += &format!(", {} failed", Count(counts.failed_reads));
        }
        let mut lines = vec![line];
        lines.extend(self.cache.map(CacheCounts::in_words));
        lines.extend(tried_again("retry", "retries", &self.sent.retries));
        lines.extend(asked_again(&self.control_retries));
        if self.unreported_files > 0 {
            let files = counted(self.unreported_files, "file has", "files have");
            lines.push(format!("{files} no line in the report: it was too slow"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::endpoints::EndpointNumber;
    use crate::engine::metrics::AddressCount;
    use crate::error::ErrorKind;
    use crate::report::limit::LimitFacts;
    use crate::sys::choice::RingKind;

    fn limit() -> Limit {
        Limit::of(&LimitFacts::default())
    }

    fn ring() -> RingReport {
        RingReport { kind: RingKind::Epoll, io_uring_unavailable: None }
    }

    #[test]
    fn a_file_is_a_line() {
        let object = Object { key: "a\"b".to_owned(), size_bytes: 10, ..Object::default() };
        let counts = ReadCounts {
            reads: 2,
            failed_reads: 1,
            asked_bytes: 9,
            served_bytes: 4,
            received_bytes: 8,
        };
        let error = Error::new(ErrorKind::Endpoint, "gone");
        let millis = Duration::from_millis;
        let line = ReadFileLine::new("b", &object, Some(counts), millis(1500), None);
        let expected = concat!(
            r#"{"kind":"file","bucket":"b","key":"a\"b","bytes":10,"seconds":1.5,"cached":false,"#,
            r#""reads":2,"failed_reads":1,"asked_bytes":9,"served_bytes":4,"#,
            r#""received_bytes":8,"error":null}"#
        );
        assert_eq!(line.to_json(), expected);
        let failed = ReadFileLine::new("b", &object, Some(counts), millis(0), Some(&error));
        assert_eq!(failed.error.as_deref(), Some("gone"));
        let cached = ReadFileLine::new("b", &object, None, millis(500), None);
        let expected = r#""bytes":10,"seconds":0.5,"cached":true,"error":null}"#;
        assert!(cached.to_json().ends_with(expected), "{}", cached.to_json());
    }

    #[test]
    fn what_was_received_is_held_against_what_was_served() {
        let address = "127.0.0.1:80".parse().expect("an address");
        let came = AddressCount { bytes: 30, ..AddressCount::new(EndpointNumber::at(0), address) };
        let client =
            RequestCounts { addresses: vec![came], requests: 3, ..RequestCounts::default() };
        let counts = ReadCounts { reads: 5, served_bytes: 20, ..ReadCounts::default() };
        let mut read = AllReads { opens: 1, counts, client, ..AllReads::default() };
        let retries = RetryCounts::default();
        let of = |read: &AllReads| {
            MountSummary::new(MountedCounts::default(), read, &retries, ring(), limit())
        };
        let summary = of(&read);
        assert_eq!(summary.read_amplification, Some(1.5));
        assert_eq!(summary.counts.received_bytes, 30);
        let lines = summary.lines();
        assert_eq!(lines, ["1 open file, 5 reads: 20 B served, 30 B received in 3 requests"]);
        read.counts = ReadCounts { failed_reads: 1, ..ReadCounts::default() };
        read.unreported_files = 2;
        let summary = of(&read);
        assert_eq!(summary.read_amplification, None);
        assert!(summary.lines()[0].ends_with(", 1 failed"), "{:?}", summary.lines());
        assert!(summary.lines()[1].starts_with("2 files have no line"), "{:?}", summary.lines());
    }
}
