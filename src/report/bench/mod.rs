//! The results of `bench`: the document, a table, CSV, a page ([`page()`]) and the verdict. Pure:
//! measurements in, text out.

mod page;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::text::size::Decimal;

pub use page::page;

/// The result of one run of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Bytes moved.
    pub bytes: u64,
    /// Elapsed time.
    pub seconds: f64,
    /// `bytes` over `seconds`.
    pub bytes_per_second: f64,
    /// Processor time used.
    pub cpu_seconds: f64,
}

impl Measured {
    /// Makes a result, and computes its throughput.
    #[must_use]
    pub fn new(bytes: u64, seconds: f64, cpu_seconds: f64) -> Self {
        let bytes_per_second = bytes as f64 / seconds.max(1e-9);
        Self { bytes, seconds, bytes_per_second, cpu_seconds }
    }
}

/// An option and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The option, without its dashes.
    pub name: String,
    /// The value as typed.
    pub value: String,
}

/// The spread of the results of several runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The median; of an even number, the mean of the middle two.
    pub median: f64,
    /// The minimum.
    pub least: f64,
    /// The maximum.
    pub most: f64,
    /// `(most - least) / median`.
    pub spread: f64,
}

impl Spread {
    /// Computes the spread of some numbers.
    #[must_use]
    pub fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (numbers.first(), numbers.last()) else {
            return Self::default();
        };
        let count = numbers.len();
        let median = f64::midpoint(numbers[(count - 1) / 2], numbers[count / 2]);
        Self { median, least: *least, most: *most, spread: (most - least) / median.max(1e-9) }
    }
}

/// What the machine counted while a step ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counted {
    /// Packets that interfaces received and dropped.
    pub received_packets_dropped: Option<u64>,
    /// TCP segments that this machine retransmitted.
    pub tcp_segments_retransmitted: Option<u64>,
    /// How often a receive queue was pruned for want of buffers.
    pub tcp_receive_queues_pruned: Option<u64>,
    /// The share of each core that was in use.
    pub core_use: Vec<f64>,
    /// Packets that the ENAs queued or dropped, by the driver's counter names; null if unreadable.
    pub ena_allowance_exceeded: Option<BTreeMap<String, u64>>,
    /// Why they are unreadable.
    pub ena_unavailable: Option<String>,
}

/// One stage with one setting.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Step {
    /// The stage.
    pub stage: String,
    /// The swept option and its value; null for a stage alone.
    pub setting: Option<Setting>,
    /// Each run after the warm-up.
    pub runs: Vec<Measured>,
    /// Bytes per second.
    pub bytes_per_second: Spread,
    /// Median processor time for 10^12 bytes.
    pub cpu_seconds_per_terabyte: f64,
    /// The limit of the run nearest to the median, as in its own document; null if it has none.
    pub limit: Option<Value>,
    /// Histograms of that run's request times.
    pub latencies: Option<Value>,
    /// Bytes and retries over time.
    pub course: Option<Value>,
    /// Requests in flight over time.
    pub pace: Option<Value>,
    /// What the machine counted.
    pub counted: Counted,
}

impl Step {
    /// Makes a step of these runs.
    #[must_use]
    pub fn new(stage: &str, setting: Option<Setting>, runs: Vec<Measured>) -> Self {
        let costs = runs.iter().map(|run| run.cpu_seconds * 1e12 / (run.bytes as f64).max(1.0));
        Self {
            stage: stage.to_owned(),
            setting,
            bytes_per_second: Spread::of(runs.iter().map(|run| run.bytes_per_second)),
            cpu_seconds_per_terabyte: Spread::of(costs).median,
            runs,
            ..Self::default()
        }
    }

    /// The setting as typed.
    fn set(&self) -> String {
        let setting = self.setting.as_ref();
        setting.map_or_else(|| "-".to_owned(), |set| format!("{}={}", set.name, set.value))
    }

    fn limiting_part(&self) -> &str {
        let part = self.limit.as_ref().and_then(|limit| limit["part"].as_str());
        part.unwrap_or("-")
    }
}

/// All results.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BenchReport {
    /// The kind of document: `bench`.
    pub kind: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// All steps were measured.
    pub complete: bool,
    /// The exit code; 0 while it runs.
    pub exit_code: u8,
    /// Why steps are missing; null if none are, and while it runs.
    pub error: Option<String>,
    /// The kind of `error`, from a closed set.
    pub error_kind: Option<&'static str>,
    /// Where the objects were.
    pub source: String,
    /// Where files went.
    pub destination: Option<String>,
    /// The workload's name.
    pub workload: Option<String>,
    /// Options that all steps had, without the swept ones.
    pub options: Vec<Setting>,
    /// Processors that the process may use.
    pub processors: u64,
    /// Uncounted runs before those of each step.
    pub warm_up: u32,
    /// Each step, in order.
    pub steps: Vec<Step>,
    /// Steps that cannot run here, and why.
    pub skipped: Vec<String>,
    /// The verdict.
    pub sentence: String,
}

impl BenchReport {
    /// The document.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings under fixed names become JSON")
    }

    /// One row for each run.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text =
            "stage,option,value,run,bytes,seconds,bytes_per_second,cpu_seconds,limit\n".to_owned();
        for step in &self.steps {
            let (name, value) = step
                .setting
                .as_ref()
                .map_or(("", ""), |setting| (setting.name.as_str(), setting.value.as_str()));
            for (number, run) in step.runs.iter().enumerate() {
                let Measured { bytes, seconds, bytes_per_second, cpu_seconds } = run;
                let (stage, limit) = (&step.stage, step.limiting_part());
                let _ = writeln!(
                    text,
                    "{stage},{name},{value},{number},{bytes},{seconds},{bytes_per_second},\
                     {cpu_seconds},{limit}"
                );
            }
        }
        text
    }

    /// The table for people, and the verdict.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = format!(
            "{:<14} {:<20} {:>11} {:>11} {:>11} {:>7} {:>9}  {}\n",
            "STAGE", "SETTING", "MEDIAN/s", "LEAST/s", "MOST/s", "SPREAD", "CPU s/TB", "LIMIT"
        );
        for step in &self.steps {
            let Spread { median, least, most, spread } = step.bytes_per_second;
            let [median, least, most] = [median, least, most].map(|rate| decimal(rate).to_string());
            let _ = writeln!(
                text,
                "{:<14} {:<20} {median:>11} {least:>11} {most:>11} {:>5.0} % {:>9.0}  {}",
                step.stage,
                step.set(),
                spread * 100.0,
                step.cpu_seconds_per_terabyte,
                step.limiting_part()
            );
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "skipped: {skipped}");
        }
        let _ = writeln!(text, "{}", self.sentence);
        text
    }

    /// Names the limit, from what the whole run waited for and from the speed of each stage alone,
    /// and the best value of each sweep.
    #[must_use]
    pub fn verdict(&self) -> String {
        let of = |stage: &str| self.steps.iter().find(|step| step.stage == stage);
        let whole = ["get", "stream", "mount", "pipe", "network"].into_iter().find_map(of);
        let Some(whole) = whole.or(self.steps.first()) else {
            return "nothing was measured".to_owned();
        };
        let part = |name: &'static str, stages: &[&str]| {
            let step = stages.iter().find_map(|stage| of(stage))?;
            Some((name, step.bytes_per_second.median))
        };
        let parts = match whole.stage.as_str() {
            // Large files are written past the page cache where the file system supports it.
            "get" => [part(NETWORK, &["network"]), part(DISK, &["disk", "disk-buffered"])],
            "stream" => [part(NETWORK, &["network"]), part(PIPE, &["pipe"])],
            "mount" => [part(NETWORK, &["network"]), None],
            _ => [None, None],
        };
        let mut parts: Vec<_> = parts.into_iter().flatten().collect();
        parts.sort_by(|one, other| one.1.total_cmp(&other.1));
        let mut sentence = whole.held_against(&parts);
        if let Some(best) = self.best() {
            let _ = write!(sentence, "; {best}");
        }
        sentence
    }

    /// The fastest value of each option that was swept over several.
    fn best(&self) -> Option<String> {
        let mut swept: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
        for step in &self.steps {
            if let Some(setting) = &step.setting {
                swept.entry(&setting.name).or_default().push(step);
            }
        }
        let best = swept.into_values().filter(|steps| steps.len() > 1).filter_map(|steps| {
            let rate = |step: &Step| step.bytes_per_second.median;
            // The stage without the option: it wins unless a value is faster.
            let plain = |step: &&Step| step.stage == steps[0].stage && step.setting.is_none();
            let plain = self.steps.iter().find(plain);
            let name = steps[0].setting.as_ref().map(|setting| setting.name.clone())?;
            let all = steps.into_iter().chain(plain);
            let best = all.max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
            let set = match best.setting {
                Some(_) => best.set(),
                None => format!("no --{name}"),
            };
            Some(format!("best: {set} with {}/s", decimal(rate(best))))
        });
        let best: Vec<String> = best.collect();
        (!best.is_empty()).then(|| best.join("; "))
    }
}

/// The parts of a download, as the verdict names them.
const NETWORK: &str = "network";
const DISK: &str = "disk";
const PIPE: &str = "pipe";

impl Step {
    /// Compares this step with the parts alone, given slowest first.
    fn held_against(&self, parts: &[(&str, f64)]) -> String {
        let rate = self.bytes_per_second.median;
        let is_limit = |(name, ceiling): &(&str, f64)| {
            let reached = ceiling * REACHED_SHARE..=ceiling * EXCEEDED_SHARE;
            reached.contains(&rate) && self.may_be_limited_by(name)
        };
        let limit = parts.iter().position(is_limit);
        let mut sentence = match limit.map(|limit| &parts[limit]) {
            // The whole was faster than the part alone: the part's speed varies.
            Some((name, ceiling)) if rate > *ceiling => {
                let (rate, ceiling) = (decimal(rate), decimal(*ceiling));
                format!("the {name} is the limit: {rate}/s, and {ceiling}/s alone")
            }
            Some((name, ceiling)) => {
                format!("the {name} is the limit: {} of {}/s", decimal(rate), decimal(*ceiling))
            }
            None => {
                let limit = self.limit.as_ref().and_then(|limit| limit["sentence"].as_str());
                let limit = limit.unwrap_or(match self.stage.as_str() {
                    "tls" | "verification" => "one core",
                    "disk" | "disk-buffered" => "the disk",
                    _ => "the limit is not known",
                });
                format!("{}: {}/s: {limit}", self.stage, decimal(rate))
            }
        };
        let others = parts.iter().enumerate().filter(|(index, _)| Some(*index) != limit);
        for (_, (name, ceiling)) in others {
            let (how, ceiling) = (synced(name), decimal(*ceiling));
            let _ = write!(sentence, "; the {name} alone did {ceiling}/s{how}");
        }
        sentence
    }

    /// True if what the run waited for allows this part as its limit. All parts share the
    /// processors, so where those were the limit no part was.
    fn may_be_limited_by(&self, name: &str) -> bool {
        match self.limiting_part() {
            "-" | "none" => true,
            "cpu" | "startup" | "listing" => false,
            "disk" | "files" => name == DISK,
            "reader" => name == PIPE,
            _ => name != DISK,
        }
    }
}

/// What a part does alone and not in a download.
fn synced(name: &str) -> &'static str {
    if name == DISK { ", synced at the end" } else { "" }
}

/// A part is the limit if the whole reached at least this share of the part's speed alone.
const REACHED_SHARE: f64 = 0.75;

/// A part is not the limit if the whole was faster than this multiple of the part alone; two runs
/// differ by up to 10 % anyway.
const EXCEEDED_SHARE: f64 = 1.1;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes a second")]
fn decimal(rate: f64) -> Decimal {
    Decimal(rate.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(stage: &str, rate: u64) -> Step {
        Step::new(stage, None, vec![Measured::new(rate, 1.0, 0.5)])
    }

    fn report(steps: Vec<Step>) -> BenchReport {
        BenchReport { steps, ..BenchReport::default() }
    }

    #[test]
    fn the_narrowest_stage_that_is_reached_is_the_limit() {
        let steps = vec![step("network", 4_200_000_000), step("disk", 3_100_000_000)];
        let whole = |rate| [steps.clone(), vec![step("get", rate)]].concat();
        assert_eq!(
            report(whole(3_000_000_000)).verdict(),
            "the disk is the limit: 3 GB of 3.10 GB/s; the network alone did 4.20 GB/s"
        );
        let verdict = report(whole(1_000_000_000)).verdict();
        assert_eq!(
            verdict,
            "get: 1 GB/s: the limit is not known; the disk alone did 3.10 GB/s, synced at the end; \
             the network alone did 4.20 GB/s"
        );
        let verdict = report(whole(3_200_000_000)).verdict();
        assert!(
            verdict.starts_with("the disk is the limit: 3.20 GB/s, and 3.10 GB/s alone;"),
            "{verdict}"
        );
        assert_eq!(report(vec![]).verdict(), "nothing was measured");
    }

    #[test]
    fn each_kind_of_run_is_held_against_its_stages() {
        // Files are written past the page cache, or through it if the file system cannot do that.
        let disks = [step("disk", 4_000), step("disk-buffered", 9_000), step("get", 3_900)];
        let verdict = report(disks.to_vec()).verdict();
        assert_eq!(verdict, "the disk is the limit: 3.90 kB of 4 kB/s");
        let verdict = report(vec![step("disk-buffered", 4_000), step("get", 3_900)]).verdict();
        assert_eq!(verdict, "the disk is the limit: 3.90 kB of 4 kB/s");
        let streams = [step("network", 9_000), step("pipe", 2_000), step("stream", 1_900)];
        let verdict = report(streams.to_vec()).verdict();
        assert!(
            verdict.starts_with("the pipe is the limit: 1.90 kB of 2 kB/s; the network"),
            "{verdict}"
        );
        let mounts = [step("network", 2_000), step("mount", 1_900)];
        let verdict = report(mounts.to_vec()).verdict();
        assert_eq!(verdict, "the network is the limit: 1.90 kB of 2 kB/s");
        let limit = serde_json::json!({ "part": "cpu", "sentence": "the limit: the processors" });
        let alone = Step { limit: Some(limit), ..step("network", 5_000) };
        assert_eq!(report(vec![alone]).verdict(), "network: 5 kB/s: the limit: the processors");
    }

    fn limited(step: Step, part: &str) -> Step {
        let sentence = format!("the limit: {part}");
        Step { limit: Some(serde_json::json!({ "part": part, "sentence": sentence })), ..step }
    }

    #[test]
    fn no_part_is_the_limit_that_alone_does_less_or_was_not_waited_for() {
        let parts = [step("network", 584_000_000), step("disk", 328_000_000)];
        let whole = |rate, part| {
            report([parts.as_slice(), &[limited(step("get", rate), part)]].concat()).verdict()
        };
        let alone = "; the disk alone did 328 MB/s, synced at the end; the network alone did 584 \
                     MB/s";
        assert_eq!(whole(409_000_000, "cpu"), format!("get: 409 MB/s: the limit: cpu{alone}"));
        assert_eq!(whole(409_000_000, "none"), format!("get: 409 MB/s: the limit: none{alone}"));
        assert_eq!(whole(320_000_000, "cpu"), format!("get: 320 MB/s: the limit: cpu{alone}"));
        assert!(whole(320_000_000, "files").starts_with("the disk is the limit: 320 MB of 328"));
        assert!(whole(320_000_000, "latency").starts_with("get: 320 MB/s: the limit: latency"));
        let verdict = whole(500_000_000, "origin_bandwidth");
        assert!(
            verdict.starts_with("the network is the limit: 500 MB of 584 MB/s; the disk"),
            "{verdict}"
        );
    }

    #[test]
    fn the_best_of_a_sweep_is_named() {
        let swept = |value: &str, rate| {
            let setting = Setting { name: "connections".to_owned(), value: value.to_owned() };
            Step::new("network", Some(setting), vec![Measured::new(rate, 1.0, 0.5)])
        };
        let first = limited(step("network", 5_000), "cpu");
        let steps = vec![first.clone(), swept("2", 3_000), swept("8", 7_000), swept("16", 6_000)];
        let verdict = report(steps).verdict();
        assert_eq!(verdict, "network: 5 kB/s: the limit: cpu; best: connections=8 with 7 kB/s");
        let fast = limited(step("network", 8_000), "cpu");
        let verdict = report(vec![fast, swept("2", 3_000), swept("8", 7_000)]).verdict();
        assert!(verdict.ends_with("; best: no --connections with 8 kB/s"), "{verdict}");
        let verdict = report(vec![first, swept("2", 3_000)]).verdict();
        assert!(!verdict.contains("best"), "{verdict}");
        assert_eq!(report(vec![step("tls", 5_000)]).verdict(), "tls: 5 kB/s: one core");
    }

    #[test]
    fn medians_and_spreads() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!((spread.median, spread.least, spread.most), (2.0, 1.0, 3.0));
        assert!((spread.spread - 1.0).abs() < 1e-9);
        assert_eq!(Spread::of([4.0, 2.0].into_iter()).median, 3.0);
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
    }

    #[test]
    fn rows_and_tables() {
        let setting = Setting { name: "connections".to_owned(), value: "8".to_owned() };
        let run = Measured::new(2_000_000, 2.0, 0.5);
        let report = report(vec![Step::new("network", Some(setting), vec![run, run])]);
        let csv = report.to_csv();
        assert_eq!(csv.lines().count(), 3);
        assert_eq!(csv.lines().nth(2), Some("network,connections,8,1,2000000,2,1000000,0.5,-"));
        let table = report.to_table();
        assert!(table.contains("connections=8") && table.contains("1 MB"), "{table}");
        // Half a second for two megabytes.
        assert!(table.contains("    250000  -"), "{table}");
        let skipped = vec!["disk: no O_DIRECT".to_owned(), "mount: no /dev/fuse".to_owned()];
        let table = BenchReport { skipped, sentence: "so it is".to_owned(), ..report }.to_table();
        let ends = "skipped: disk: no O_DIRECT\nskipped: mount: no /dev/fuse\nso it is\n";
        assert!(table.ends_with(ends), "{table}");
    }
}
