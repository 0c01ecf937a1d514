//! What `bench` measured: the document, a table, CSV, a page ([`page()`]), the sentence at the end.
//! Pure: measurements in, text out.

mod page;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::text::size::Decimal;

pub use page::page;

/// What one run of a stage came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Bytes that were moved.
    pub bytes: u64,
    /// How long that took.
    pub seconds: f64,
    /// The former by the latter.
    pub bytes_per_second: f64,
    /// Processor time of whoever moved them.
    pub cpu_seconds: f64,
}

impl Measured {
    /// So many bytes in so much time.
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

/// What several runs came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle; of an even number the mean of both.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// The difference of both by the median.
    pub spread: f64,
}

impl Spread {
    /// Of some numbers.
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
    /// TCP segments that this machine sent again.
    pub tcp_segments_retransmitted: Option<u64>,
    /// Times that a receive queue was pruned for want of buffers.
    pub tcp_receive_queues_pruned: Option<u64>,
    /// The share of each core that was in use.
    pub core_use: Vec<f64>,
    /// What the ENAs held back, by the names of their driver; null where that cannot be read.
    pub ena_allowance_exceeded: Option<BTreeMap<String, u64>>,
    /// Why not.
    pub ena_unavailable: Option<String>,
}

/// One stage with one setting.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Step {
    /// The stage.
    pub stage: String,
    /// What was swept; null for the stages alone.
    pub setting: Option<Setting>,
    /// Each run after the warm-up.
    pub runs: Vec<Measured>,
    /// Bytes a second.
    pub bytes_per_second: Spread,
    /// Processor time for 10^12 bytes, the median.
    pub cpu_seconds_per_terabyte: f64,
    /// What was the limit of the last run, as in its own document; null of what has none.
    pub limit: Option<Value>,
    /// How long its requests took.
    pub latencies: Option<Value>,
    /// How it went on.
    pub course: Option<Value>,
    /// How many requests were in flight.
    pub pace: Option<Value>,
    /// What the machine counted.
    pub counted: Counted,
}

impl Step {
    /// Of these runs.
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

    /// Its setting as it was typed.
    fn set(&self) -> String {
        let setting = self.setting.as_ref();
        setting.map_or_else(|| "-".to_owned(), |set| format!("{}={}", set.name, set.value))
    }

    fn limiting_part(&self) -> &str {
        let part = self.limit.as_ref().and_then(|limit| limit["part"].as_str());
        part.unwrap_or("-")
    }
}

/// All that was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BenchReport {
    /// What it is: `bench`.
    pub kind: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// All steps are there.
    pub complete: bool,
    /// Where the objects were.
    pub source: String,
    /// Where files went.
    pub destination: Option<String>,
    /// The workload's name.
    pub workload: Option<String>,
    /// Options that all steps had, but for those that are swept.
    pub options: Vec<Setting>,
    /// Processors that the process may use.
    pub processors: u64,
    /// Runs that were not counted, before those of each step.
    pub warm_up: u32,
    /// Each step, in order.
    pub steps: Vec<Step>,
    /// Steps that cannot be had here, and why.
    pub skipped: Vec<String>,
    /// What the limit was.
    pub sentence: String,
}

impl BenchReport {
    /// The document.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings under fixed names become JSON")
    }

    /// A row for each run.
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

    /// The table for people, and the sentence.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = format!(
            "{:<14} {:<20} {:>11} {:>11} {:>11} {:>7} {:>9}  {}\n",
            "STAGE", "SETTING", "MEDIAN/s", "LEAST/s", "MOST/s", "SPREAD", "CPU s/TB", "LIMIT"
        );
        for step in &self.steps {
            let Spread { median, least, most, spread } = step.bytes_per_second;
            let [median, least, most] = [median, least, most].map(|rate| told(rate).to_string());
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

    /// Says what the limit was, by what the stages alone could do.
    #[must_use]
    pub fn verdict(&self) -> String {
        let of = |stage: &str| self.steps.iter().find(|step| step.stage == stage);
        let alone = |name: &'static str, stages: &[&str]| {
            let steps = self.steps.iter().filter(|step| stages.contains(&step.stage.as_str()));
            let rates = steps.map(|step| step.bytes_per_second.median);
            rates.reduce(f64::max).map(|rate| (name, rate))
        };
        let whole = ["get", "stream", "mount", "pipe", "network"].into_iter().find_map(of);
        let Some(whole) = whole.or(self.steps.first()) else {
            return "nothing was measured".to_owned();
        };
        let rate = whole.bytes_per_second.median;
        let parts = match whole.stage.as_str() {
            "get" => [alone("network", &["network"]), alone("disk", &["disk", "disk-buffered"])],
            "stream" => [alone("network", &["network"]), alone("pipe", &["pipe"])],
            "mount" => [alone("network", &["network"]), None],
            _ => [None, None],
        };
        let mut parts: Vec<_> = parts.into_iter().flatten().collect();
        parts.sort_by(|one, other| one.1.total_cmp(&other.1));
        match parts.split_first() {
            Some(((name, ceiling), others)) if rate >= ceiling * REACHED_SHARE => {
                let mut sentence = match rate > *ceiling {
                    // It varies by more than it holds back.
                    true => {
                        let (rate, ceiling) = (told(rate), told(*ceiling));
                        format!("the {name} is the limit: {rate}/s, and {ceiling}/s alone")
                    }
                    false => {
                        format!("the {name} is the limit: {} of {}/s", told(rate), told(*ceiling))
                    }
                };
                for (other, rate) in others {
                    let _ = write!(sentence, "; the {other} could do {}/s", told(*rate));
                }
                sentence
            }
            _ => {
                let limit = whole.limit.as_ref().and_then(|limit| limit["sentence"].as_str());
                let limit = limit.unwrap_or("the limit is not known");
                let stages = parts
                    .iter()
                    .map(|(name, rate)| format!("; the {name} alone did {}/s", told(*rate)));
                format!("{}: {}/s: {limit}{}", whole.stage, told(rate), stages.collect::<String>())
            }
        }
    }
}

/// A stage alone is the limit where all of them together did so much of what it does.
const REACHED_SHARE: f64 = 0.75;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes a second")]
fn told(rate: f64) -> Decimal {
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
            "the disk is the limit: 3 GB of 3.10 GB/s; the network could do 4.20 GB/s"
        );
        let told = report(whole(1_000_000_000)).verdict();
        assert_eq!(
            told,
            "get: 1 GB/s: the limit is not known; the disk alone did 3.10 GB/s; the network alone \
             did 4.20 GB/s"
        );
        let told = report(whole(3_200_000_000)).verdict();
        assert!(
            told.starts_with("the disk is the limit: 3.20 GB/s, and 3.10 GB/s alone;"),
            "{told}"
        );
        assert_eq!(report(vec![]).verdict(), "nothing was measured");
    }

    #[test]
    fn each_kind_of_run_is_held_against_its_stages() {
        // The better of two ways to write is what the disk can do.
        let disks = [step("disk", 1_000), step("disk-buffered", 4_000), step("get", 3_900)];
        let told = report(disks.to_vec()).verdict();
        assert_eq!(told, "the disk is the limit: 3.90 kB of 4 kB/s");
        let streams = [step("network", 9_000), step("pipe", 2_000), step("stream", 1_900)];
        let told = report(streams.to_vec()).verdict();
        assert!(
            told.starts_with("the pipe is the limit: 1.90 kB of 2 kB/s; the network"),
            "{told}"
        );
        let mounts = [step("network", 2_000), step("mount", 1_900)];
        let told = report(mounts.to_vec()).verdict();
        assert_eq!(told, "the network is the limit: 1.90 kB of 2 kB/s");
        let limit = serde_json::json!({ "part": "cpu", "sentence": "the limit: the processors" });
        let alone = Step { limit: Some(limit), ..step("network", 5_000) };
        assert_eq!(report(vec![alone]).verdict(), "network: 5 kB/s: the limit: the processors");
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
