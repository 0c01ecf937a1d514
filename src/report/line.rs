//! The progress line: as many fields as fit the terminal's width, the most important first. Pure.

use crate::link::failure::RetryReason;
use crate::link::waiting::Wait;
use crate::text::shown::shown;
use crate::text::size::{Count, Decimal, PerSecond, Seconds, counted};

/// Columns of the bar between its brackets.
const BAR_COLUMNS: usize = 24;

/// Averaging time in seconds of the displayed speed.
const SHOWN_SECONDS: f64 = 5.0;

/// Averaging time in seconds of the speed behind the time left: longer than a stall, so that one
/// does not multiply the estimate.
const ETA_SECONDS: f64 = 60.0;

/// An object costs about as much time as this number of bytes: small objects transfer fewer bytes
/// per second than large ones.
const ETA_OBJECT_BYTES: u64 = 128 << 10;

/// The rank of the object count. Fields of this and the next two ranks make room for the bar.
const OBJECTS_RANK: u8 = 5;

/// The progress of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgressState {
    /// Body bytes delivered.
    pub bytes_done: u64,
    /// Bytes of all objects listed so far.
    pub bytes_known: u64,
    /// Objects that succeeded or failed.
    pub objects_done: u64,
    /// Objects listed so far.
    pub objects_known: u64,
    /// Objects that were already there, which `objects_known` excludes.
    pub objects_kept: u64,
    /// The listing is complete.
    pub listing_complete: bool,
    /// Failed attempts that were retried.
    pub retries: u64,
    /// Connections that wait before a retry, and the reason of the last of them.
    pub waiting: Option<(u32, RetryReason)>,
    /// What is in progress.
    pub under_way: UnderWay,
}

/// What a run has in progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// Requests in flight.
    pub requests_in_flight: u32,
    /// Maximum number of requests in flight, chosen by the pace.
    pub requests_wanted: u32,
    /// Unfinished writes to files.
    pub writes: u64,
    /// Other unfinished file system calls.
    pub file_jobs: u64,
}

/// A channel of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelState {
    /// Its name.
    pub name: String,
    /// The epoch that is being written, or whose reader is waited for.
    pub epoch: u64,
    /// Its reader has opened the pipe.
    pub has_reader: bool,
}

/// An exponential moving average of the speed, with time constant `over_seconds`.
#[derive(Debug, Clone, Copy)]
struct Mean {
    over_seconds: f64,
    weighted: f64,
    weight: f64,
}

impl Mean {
    const fn over(over_seconds: f64) -> Self {
        Self { over_seconds, weighted: 0.0, weight: 0.0 }
    }

    fn add(&mut self, bytes: f64, seconds: f64) {
        let kept = (-seconds / self.over_seconds).exp();
        self.weighted = self.weighted.mul_add(kept, bytes / seconds * (1.0 - kept));
        self.weight = self.weight.mul_add(kept, 1.0 - kept);
    }

    /// Bytes per second; 0 before the first [`Self::add`].
    fn bytes_per_second(&self) -> f64 {
        if self.weight > 0.0 { self.weighted / self.weight } else { 0.0 }
    }
}

/// The throughput: current and long-term.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    last: Option<(f64, u64, u64)>,
    shown: Mean,
    /// Counts bytes plus [`ETA_OBJECT_BYTES`] for each object.
    steady: Mean,
}

impl Default for Speed {
    fn default() -> Self {
        Self { last: None, shown: Mean::over(SHOWN_SECONDS), steady: Mean::over(ETA_SECONDS) }
    }
}

impl Speed {
    /// Records the bytes and objects done by this time, in seconds of any clock.
    pub(super) fn add(&mut self, at_seconds: f64, bytes_done: u64, objects_done: u64) {
        let now = (at_seconds, bytes_done, work(bytes_done, objects_done));
        let (then, before, work_before) = *self.last.get_or_insert(now);
        let seconds = at_seconds - then;
        if seconds <= 0.0 {
            return;
        }
        // The count can fall: a range that fails its checksum is no longer done.
        let bytes = bytes_done.saturating_sub(before) as f64;
        self.shown.add(bytes, seconds);
        self.steady.add(now.2.saturating_sub(work_before) as f64, seconds);
        self.last = Some(now);
    }

    /// The time left for `bytes` and `objects`; `None` before any were done.
    fn left(&self, bytes: u64, objects: u64) -> Option<String> {
        let speed = self.steady.bytes_per_second();
        let seconds = (speed > 0.0).then(|| (work(bytes, objects) as f64 / speed).ceil())?;
        Some(match seconds < 60.0 {
            true => format!("{seconds} s left"),
            false => format!("{} left", Seconds(seconds)),
        })
    }
}

/// The work of bytes and objects, in bytes.
fn work(bytes: u64, objects: u64) -> u64 {
    bytes.saturating_add(objects.saturating_mul(ETA_OBJECT_BYTES))
}

/// The line's fields in order: the rank, of which the highest is left out first, and the text.
type Fields = Vec<(u8, String)>;

/// The line for a terminal of `columns` columns; the last one stays free.
pub(super) fn line(
    state: &ProgressState,
    speed: &Speed,
    wait: Option<&Wait>,
    columns: usize,
) -> String {
    let room = columns.saturating_sub(1);
    if let Some(wait) = wait {
        let bytes = bytes_in_words(state);
        let left = room.saturating_sub(bytes.chars().count() + 2);
        return match waiting(wait, left) {
            Some(words) => format!("{bytes}, {words}"),
            None => waiting(wait, room).unwrap_or_default(),
        };
    }
    fit(fields(state, speed), state, room)
}

/// All that the line may have, without a bar: for a log.
pub(super) fn log_line(state: &ProgressState, speed: &Speed) -> String {
    joined(&fields(state, speed))
}

/// How much has come: never more than all.
fn bytes_in_words(state: &ProgressState) -> String {
    let done = state.bytes_done.min(state.bytes_known);
    format!("{} of {}", Decimal(done), Decimal(state.bytes_known))
}

fn fields(state: &ProgressState, speed: &Speed) -> Fields {
    let mut fields: Fields = vec![(0, bytes_in_words(state))];
    fields.push((1, PerSecond(speed.shown.bytes_per_second()).to_string()));
    if state.listing_complete {
        let objects = state.objects_known.saturating_sub(state.objects_done);
        let bytes = state.bytes_known.saturating_sub(state.bytes_done);
        fields.extend(speed.left(bytes, objects).map(|left| (2, left)));
    } else {
        fields.push((2, "listing".to_owned()));
    }
    if let Some((count, why)) = state.waiting {
        fields.push((3, format!("{count} waiting after {}", why.name().replace('_', " "))));
    }
    if state.retries > 0 {
        fields.push((4, counted(state.retries, "retry", "retries")));
    }
    let known = counted(state.objects_known, "object", "objects");
    fields.push((OBJECTS_RANK, format!("{} of {known}", Count(state.objects_done))));
    if state.objects_kept > 0 {
        fields.push((6, format!("{} skipped", Count(state.objects_kept))));
    }
    fields
}

/// Leaves out the least important fields until the rest fits, and puts the bar in front if there is
/// room.
fn fit(fields: Fields, state: &ProgressState, room: usize) -> String {
    for rank in (OBJECTS_RANK..OBJECTS_RANK + 3).rev().filter(|_| state.listing_complete) {
        let kept: Fields = fields.iter().filter(|(other, _)| *other < rank).cloned().collect();
        let line = joined(&kept);
        if line.chars().count() + BAR_COLUMNS + 3 <= room {
            return format!("[{}] {line}", bar(state.bytes_done, state.bytes_known));
        }
    }
    shorten(fields, room)
}

/// Leaves out the least important fields until the rest fits.
fn shorten(mut fields: Fields, room: usize) -> String {
    loop {
        let line = joined(&fields);
        let length = line.chars().count();
        let least = fields.iter().map(|(rank, _)| *rank).max().filter(|rank| *rank > 0);
        let Some(least) = least.filter(|_| length > room) else { return line };
        fields.retain(|(rank, _)| *rank != least);
    }
}

fn joined(fields: &[(u8, String)]) -> String {
    let words: Vec<&str> = fields.iter().map(|(_, words)| words.as_str()).collect();
    words.join(", ")
}

/// The progress line of streams.
pub(super) fn stream_line(
    received_bytes: u64,
    speed: &Speed,
    channels: &[ChannelState],
    wait: Option<&Wait>,
    columns: usize,
) -> String {
    let room = columns.saturating_sub(1);
    let received = format!("{} received", Decimal(received_bytes));
    if let Some(wait) = wait {
        let left = room.saturating_sub(received.chars().count() + 2);
        return waiting(wait, left)
            .map_or(received.clone(), |words| format!("{received}, {words}"));
    }
    let mut fields: Fields = vec![(0, received)];
    fields.push((1, PerSecond(speed.shown.bytes_per_second()).to_string()));
    for (rank, channel) in (2..).zip(channels) {
        let (name, epoch) = (shown(&channel.name), channel.epoch);
        fields.push(match channel.has_reader {
            true => (rank, format!("{name} epoch {epoch}")),
            false => (rank, format!("{name} waits for a reader of epoch {epoch}")),
        });
    }
    shorten(fields, room)
}

/// The text between the brackets of a bar.
pub(super) fn bar(done: u64, known: u64) -> String {
    let columns = |step: &usize| {
        let done = u128::from(done) * BAR_COLUMNS as u128;
        done >= u128::from(known) * (*step as u128)
    };
    let full = (1..=BAR_COLUMNS).take_while(columns).count();
    let head = if full < BAR_COLUMNS { ">" } else { "" };
    format!("{:BAR_COLUMNS$}", format!("{}{head}", "=".repeat(full)))
}

/// The bar when the total is unknown.
pub(super) fn bar_of_unknown() -> String {
    ".".repeat(BAR_COLUMNS)
}

/// The wait in at most `room` columns, shortened if necessary; `None` if no form fits.
pub(super) fn waiting(wait: &Wait, room: usize) -> Option<String> {
    let elapsed = wait.elapsed_us / 1_000_000;
    let (whom, tries) = (&wait.whom, wait.tries);
    let forms = [
        wait.to_string(),
        format!("waiting for {whom} {}: try {tries}, {elapsed} s", wait.what),
        format!("waiting for {whom}: try {tries}, {elapsed} s, {}", wait.why),
        format!("waiting for {whom}: try {tries}, {elapsed} s"),
        format!("waiting for {whom}"),
        format!("waiting: try {tries}, {elapsed} s"),
    ];
    let fits = |form: &String| form.chars().count() <= room && !form.ends_with(", ");
    forms.iter().map(|form| shown(form)).find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: ProgressState = ProgressState {
        bytes_done: 1_000_000_000,
        bytes_known: 4_000_000_000,
        objects_done: 12,
        objects_known: 1_234,
        objects_kept: 9,
        listing_complete: true,
        retries: 7,
        waiting: Some((3, RetryReason::SlowDown)),
        under_way: UnderWay { requests_in_flight: 0, requests_wanted: 0, writes: 0, file_jobs: 0 },
    };

    #[test]
    fn streams_say_which_epochs_readers_take_and_which_wait() {
        let channel = |name: &str, epoch, has_reader| ChannelState {
            name: name.to_owned(),
            epoch,
            has_reader,
        };
        let channels = [channel("train", 3, true), channel("eval", 0, false)];
        let text = |columns| stream_line(1_240_000_000, &speed(), &channels, None, columns);
        let short = "1.24 GB received, 100 MB/s, train epoch 3";
        assert_eq!(text(120), format!("{short}, eval waits for a reader of epoch 0"));
        assert_eq!(text(60), short);
        assert_eq!(text(20), "1.24 GB received");
    }

    fn speed() -> Speed {
        let mut speed = Speed::default();
        for second in 0..10u32 {
            speed.add(f64::from(second), u64::from(second) * 100_000_000, 0);
        }
        speed
    }

    #[test]
    fn what_matters_least_is_left_out_first() {
        let text = |columns| line(&KNOWN, &speed(), None, columns);
        let all = "1 GB of 4 GB, 100 MB/s, 32 s left, 3 waiting after slow down, 7 retries, \
                   12 of 1,234 objects, 9 skipped";
        assert_eq!(text(200), format!("[======>                 ] {all}"));
        assert_eq!(log_line(&KNOWN, &speed()), all);
        let bar = "[======>                 ]";
        assert_eq!(text(120), format!("{bar} {}", all.trim_end_matches(", 9 skipped")));
        let short = all.split(", 12 of").next().expect("a part");
        assert_eq!(text(100), format!("{bar} {short}"));
        assert_eq!(text(80), short);
        assert_eq!(text(40), "1 GB of 4 GB, 100 MB/s, 32 s left");
        let calm = ProgressState { retries: 1, waiting: None, objects_kept: 0, ..KNOWN };
        let known = "1 GB of 4 GB, 100 MB/s, 32 s left, 1 retry";
        assert_eq!(line(&calm, &speed(), None, 80), format!("{bar} {known}"));
        // The line's form is final from the first byte on.
        let start = ProgressState { bytes_done: 0, objects_known: 1, objects_done: 0, ..calm };
        let text = line(&start, &Speed::default(), None, 80);
        assert_eq!(
            text,
            format!("[>{}] 0 B of 4 GB, 0 B/s, 1 retry, 0 of 1 object", " ".repeat(23))
        );
        let listing = ProgressState { listing_complete: false, retries: 0, ..calm };
        let known = "1 GB of 4 GB, 100 MB/s, listing, 12 of 1,234 objects";
        assert_eq!(line(&listing, &speed(), None, 200), known);
    }

    #[test]
    fn every_width_is_kept_and_no_word_is_cut() {
        let wait = Wait {
            whom: "s3.eu-west-1.amazonaws.com:443".to_owned(),
            what: "to answer GET s3://bucket/a/long/key".to_owned(),
            tries: 3,
            elapsed_us: 4_000_000,
            retry_for_us: 60_000_000,
            why: "connect failed: refused".to_owned(),
            may_prompt: false,
        };
        for columns in 40..=200 {
            let text = line(&KNOWN, &speed(), None, columns);
            assert!(text.chars().count() < columns, "{columns}: {text}");
            let ends = ["left", "down", "retries", "objects", "skipped"];
            assert!(ends.iter().any(|end| text.ends_with(end)), "{columns}: {text}");
            let text = line(&KNOWN, &speed(), Some(&wait), columns);
            assert!(text.chars().count() < columns, "{columns}: {text}");
            let ends = ["try 3, 4 s", ":443", " s, connect failed: refused"];
            assert!(ends.iter().any(|end| text.ends_with(end)), "{columns}: {text}");
        }
        let text = line(&KNOWN, &speed(), Some(&wait), 200);
        assert_eq!(text, format!("1 GB of 4 GB, {wait}"));
        assert_eq!(line(&KNOWN, &speed(), Some(&wait), 40), "1 GB of 4 GB, waiting: try 3, 4 s");
        let first = Wait { why: String::new(), ..wait };
        let text = line(&KNOWN, &speed(), Some(&first), 70);
        assert_eq!(text, "1 GB of 4 GB, waiting for s3.eu-west-1.amazonaws.com:443: try 3, 4 s");
    }

    #[test]
    fn two_stalls_do_not_multiply_the_time_left() {
        let (mut speed, mut done) = (Speed::default(), 0u64);
        let mut longest = 0.0f64;
        for tenth in 0..1500u32 {
            let second = f64::from(tenth) / 10.0;
            let stalls = (60.0..80.0).contains(&second) || (90.0..110.0).contains(&second);
            done += if stalls { 0 } else { 10_000_000 };
            speed.add(second, done, 0);
            if second >= 1.0 {
                longest = longest.max(1e8 / speed.steady.bytes_per_second());
            }
        }
        assert!(longest > 1.1, "a stall counts: {longest}");
        assert!(longest < 2.5, "the estimate was {longest} times what it should be");
        // The displayed speed follows at once.
        assert!((speed.shown.bytes_per_second() / 1e8 - 1.0).abs() < 0.01);
        assert_eq!(Speed::default().left(1, 1), None);
        assert_eq!(speed.left(0, 0).as_deref(), Some("0 s left"));
        let left = speed.left(12_500_000_000, 0).expect("bytes came");
        assert!(left.contains(" min ") && left.ends_with(" s left"), "{left}");
    }

    /// 2 GB/s of large objects, and then 8,000 small ones per second.
    #[test]
    fn small_objects_after_large_ones_have_their_time_from_the_start() {
        let mut speed = Speed::default();
        for second in 0..=10u32 {
            speed.add(f64::from(second), u64::from(second) * 2_000_000_000, u64::from(second) * 2);
        }
        let (bytes, objects) = (80_000 * 40_000, 80_000);
        let left = speed.left(bytes, objects).expect("bytes came");
        let seconds: f64 = left.trim_end_matches(" s left").parse().expect("below a minute");
        assert!((5.0..20.0).contains(&seconds), "{left}; by bytes alone it would be 2 s");
    }

    #[test]
    fn more_than_all_is_shown_as_all() {
        let more = ProgressState { bytes_done: 5_000_000_000, ..KNOWN };
        let text = line(&more, &Speed::default(), None, 200);
        assert!(
            text.starts_with("[========================] 4 GB of 4 GB, 0 B/s, 3 wait"),
            "{text}"
        );
    }
}
