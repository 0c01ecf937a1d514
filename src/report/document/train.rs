//! The documents of `train`: its plan and its results.

use std::time::Duration;

use serde::Serialize;

use super::{CacheCounts, ChannelSummary, StreamSummary, Summary};
use crate::report::limit::Limit;
use crate::sys::tcp_memory::TcpMemoryUse;
use crate::text::shown::shown;
use crate::text::size::{Count, Decimal, counted};

/// The plan of a training job (`--check`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainPlan {
    /// Version of the program.
    pub version: &'static str,
    /// The exit code.
    pub exit_code: u8,
    /// This host's number, from 0.
    pub host: u32,
    /// Number of hosts that share the objects.
    pub hosts: u32,
    /// Each channel.
    pub channels: Vec<PlannedChannel>,
    /// Bytes that this host's channels still have to write on the file system of their common
    /// folder.
    pub needed_bytes: u64,
    /// `needed_bytes` is an upper bound: some files could not be inspected.
    pub needed_bytes_at_most: bool,
    /// Free bytes on that file system; null if unknown.
    pub free_bytes: Option<u64>,
}

/// The plan of a channel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedChannel {
    /// Its name.
    pub name: String,
    /// `File`, `FastFile`, `Pipe` or `link`: a local folder.
    pub mode: &'static str,
    /// The source of its data.
    pub source: String,
    /// When its data is ready, in words.
    pub begins: String,
    /// Lines of an augmented manifest; null without one.
    pub lines: Option<u64>,
    /// Lines for this host in each epoch.
    pub host_lines: Option<u64>,
    /// Objects of all hosts.
    pub objects: u64,
    /// Bytes of the channel; null if not all objects were looked up.
    pub bytes: Option<u64>,
    /// Objects of this host; in Pipe mode, of its first epoch.
    pub host_objects: u64,
    /// Bytes of this host; null if its objects were not looked up.
    pub host_bytes: Option<u64>,
    /// Foreign files in the folder of a channel in File mode; null if it was not read.
    pub other_files: Option<u64>,
}

impl TrainPlan {
    /// Makes a plan without channels for this host of `hosts`.
    #[must_use]
    pub fn new(host: u32, hosts: u32) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            exit_code: 0,
            host,
            hosts,
            channels: Vec::new(),
            needed_bytes: 0,
            needed_bytes_at_most: false,
            free_bytes: None,
        }
    }

    /// A line for each channel and one for the disk, for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.channels.iter().map(|channel| shown(&channel.in_words(self.hosts))).collect();
        if let Some(free) = self.free_bytes {
            let needed = Decimal(self.needed_bytes);
            let most = if self.needed_bytes_at_most { "at most " } else { "" };
            lines.push(format!("disk: {most}{needed} needed, {} free", Decimal(free)));
        }
        lines
    }
}

impl PlannedChannel {
    fn in_words(&self, hosts: u32) -> String {
        let Self { name, mode, source, begins, .. } = self;
        if *mode == "link" {
            return format!("channel {name}: {mode} to {source}, made {begins}");
        }
        let size = |bytes: Option<u64>| {
            bytes.map(|bytes| format!(", {}", Decimal(bytes))).unwrap_or_default()
        };
        let mut line = format!("channel {name}: {mode}");
        if let Some(lines) = self.lines {
            line += &format!(", {}", counted(lines, "line", "lines"));
        }
        if self.lines.is_none() || self.objects > 0 {
            line += &format!(", {}", counted(self.objects, "object", "objects"));
        }
        line += &size(self.bytes);
        if hosts > 1 {
            let mine = Count(self.host_lines.unwrap_or(self.host_objects));
            let what = if self.lines.is_some() { " lines" } else { "" };
            line += &format!("; this host: {mine}{what}{}", size(self.host_bytes));
        }
        if let Some(others) = self.other_files.filter(|others| *others > 0) {
            line += &format!("; {} of others in its folder", counted(others, "file", "files"));
        }
        let when = match *mode {
            "Pipe" => begins.clone(),
            "FastFile" => format!("mounted {begins}"),
            _ => format!("complete {begins}"),
        };
        line + &format!("; {when}; {source}")
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CommandExit {
    /// Its exit code; null if a signal ended it.
    pub exit_code: Option<u8>,
    /// The signal that ended it; null if none did.
    pub signal: Option<i32>,
    /// From its start to its end.
    pub seconds: f64,
}

/// The results of a channel in File mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FilesSummary {
    /// Its name.
    pub name: String,
    /// Objects downloaded, in full or from where an earlier run ended.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that were already there.
    pub kept_objects: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Objects that failed.
    pub failed_objects: u64,
    /// Foreign files that were in its folder before; null if it was not read.
    pub other_files: Option<u64>,
}

impl FilesSummary {
    /// Makes the results of a channel of which nothing is known yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// The results of the channels in File mode.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AllFilesSummary {
    /// Each channel.
    pub files: Vec<FilesSummary>,
    /// Each run that downloaded some of them.
    pub downloads: Vec<Summary>,
}

/// The results of a run of `train`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainSummary {
    /// Version of the program.
    pub version: &'static str,
    /// The exit code.
    pub exit_code: u8,
    /// From the start of the program to its end.
    pub seconds: f64,
    /// How the command ended; null if none was started.
    pub command: Option<CommandExit>,
    /// Each channel in File mode.
    files: Vec<FilesSummary>,
    /// The runs that downloaded them, with the fields of the summary of `get`; checkpoints have a
    /// run of their own.
    downloads: Vec<Summary>,
    /// Each channel in Pipe mode, as in the summary of `pipe`.
    pipes: Vec<ChannelSummary>,
    /// The limit of the channels in Pipe mode; null if there are none. Downloads have their own.
    limit: Option<Limit>,
    /// The results of the cache of the channels in FastFile mode; null without one.
    cache: Option<CacheCounts>,
    /// Processor time of the process, without the command's.
    pub cpu_seconds: f64,
    /// Peak resident set size of the process.
    pub peak_rss_bytes: u64,
    /// The machine's TCP memory; null if the kernel does not report it.
    pub tcp_memory: Option<TcpMemoryUse>,
    /// Packets of the channels in Pipe mode that arrived out of order; downloads have their own.
    pub out_of_order_packets: u64,
}

impl TrainSummary {
    /// Combines the results of a run's parts.
    #[must_use]
    pub fn new(
        files: AllFilesSummary,
        pipes: StreamSummary,
        cache: Option<CacheCounts>,
        command: Option<CommandExit>,
        elapsed: Duration,
        exit_code: u8,
    ) -> Self {
        let AllFilesSummary { files, downloads } = files;
        Self {
            version: env!("CARGO_PKG_VERSION"),
            exit_code,
            seconds: elapsed.as_secs_f64(),
            command,
            files,
            downloads,
            cpu_seconds: pipes.cpu_seconds,
            peak_rss_bytes: pipes.peak_rss_bytes,
            tcp_memory: pipes.tcp_memory,
            out_of_order_packets: pipes.out_of_order_packets,
            limit: pipes.limit,
            cache,
            pipes: pipes.channels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(mode: &'static str, begins: &str) -> PlannedChannel {
        PlannedChannel {
            name: "train".to_owned(),
            mode,
            source: "s3://bkt/a/".to_owned(),
            begins: begins.to_owned(),
            objects: 1004,
            lines: None,
            host_lines: None,
            bytes: Some(307_000_000),
            host_objects: 502,
            host_bytes: Some(153_500_000),
            other_files: Some(0),
        }
    }

    #[test]
    fn a_plan_in_words() {
        let plan = |hosts, channel| {
            let free_bytes = Some(2_000_000_000);
            let mut plan = TrainPlan { needed_bytes: 1, free_bytes, ..TrainPlan::new(0, hosts) };
            plan.channels.push(channel);
            plan.lines()
        };
        assert_eq!(
            plan(1, channel("File", "before COMMAND")),
            [
                "channel train: File, 1,004 objects, 307 MB; complete before COMMAND; s3://bkt/a/",
                "disk: 1 B needed, 2 GB free"
            ]
        );
        let pipe = &plan(2, channel("Pipe", "3 epochs"))[0];
        assert_eq!(
            pipe,
            "channel train: Pipe, 1,004 objects, 307 MB; this host: 502, 154 MB; 3 epochs; \
             s3://bkt/a/"
        );
        let (lines, host_lines) = (Some(1004), Some(502));
        let mut labels = PlannedChannel { lines, host_lines, ..channel("Pipe", "1 epoch") };
        (labels.bytes, labels.host_bytes) = (None, None);
        assert_eq!(
            plan(2, labels.clone())[0],
            "channel train: Pipe, 1,004 lines, 1,004 objects; this host: 502 lines; 1 epoch; \
             s3://bkt/a/"
        );
        (labels.objects, labels.bytes) = (0, Some(9));
        assert_eq!(
            plan(1, labels)[0],
            "channel train: Pipe, 1,004 lines, 9 B; 1 epoch; s3://bkt/a/"
        );
        let dirty = PlannedChannel { other_files: Some(2), ..channel("File", "with COMMAND") };
        assert_eq!(
            plan(1, dirty)[0],
            "channel train: File, 1,004 objects, 307 MB; 2 files of others in its folder; complete \
             with COMMAND; s3://bkt/a/"
        );
        let fast = &plan(1, channel("FastFile", "before COMMAND"))[0];
        assert!(fast.ends_with("307 MB; mounted before COMMAND; s3://bkt/a/"), "{fast}");
        let link = &plan(2, channel("link", "before COMMAND"))[0];
        assert_eq!(link, "channel train: link to s3://bkt/a/, made before COMMAND");
    }
}
