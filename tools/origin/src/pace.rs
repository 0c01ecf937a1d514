//! How fast an origin is: requests and bytes a second of all its connections together, a neighbor
//! that takes its share of both, and the pace of one connection. Pure: time is passed in, counted
//! from the start of the origin.
//!
//! Bytes leave as from a line of a fixed rate: a piece may leave when its last byte would have.
//! Whoever comes next is served next, and nobody waits with more than one piece at a time, so that
//! connections that always have something to send get equal shares.
//!
//! Not here: the clock and who waits (`handle.rs`, `body.rs`).

use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::parse::ParseError;

/// One request, as a bucket counts it.
const TOKEN: u128 = 1_000_000_000;
/// By default a bucket holds the requests of a second divided by this.
const BURSTS_PER_SECOND: u32 = 10;
/// Pieces of all who send take a second divided by this together: a few timer steps, so
/// that everybody has a piece in the line before the first one's turn comes again.
const LINE_ROUNDS_PER_SECOND: u64 = 250;
/// Smaller pieces cost more than they are worth.
const LINE_PIECE_BYTES_MIN: u64 = 16 << 10;
/// Longest idle time that a line makes up for: timers are a millisecond coarse, and a busy
/// machine makes them later still.
const LINE_CREDIT: Duration = Duration::from_millis(10);
/// Longest idle time that one connection makes up for, within one answer.
const CONNECTION_CREDIT: Duration = Duration::from_millis(20);
/// Batches a second in which a connection gets its bytes; each costs a timer and a write.
const CONNECTION_BATCHES_PER_SECOND: u64 = 100;
/// A slow one gets batches of this size, but at least 10 of them a second.
const CONNECTION_BATCH_BYTES: u64 = 64 << 10;
const CONNECTION_BATCHES_PER_SECOND_MIN: u64 = 10;

/// How many requests an origin serves; what is beyond is answered with 503 SlowDown.
///
/// Written as `N[:BURST]`.
///
/// ```
/// let rate: inrush_origin::RequestRate = "2000:500".parse()?;
/// assert_eq!((rate.per_second.get(), rate.burst.get()), (2000, 500));
/// # Ok::<(), inrush_origin::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    /// Requests a second, of all connections together.
    pub per_second: NonZeroU32,
    /// How many may come at once after a pause.
    pub burst: NonZeroU32,
}

impl RequestRate {
    /// `per_second` requests a second, and after a pause those of a tenth of a second at once.
    pub fn new(per_second: NonZeroU32) -> Self {
        let burst = per_second.get().div_ceil(BURSTS_PER_SECOND);
        Self { per_second, burst: NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN) }
    }
}

impl FromStr for RequestRate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse =
            || ParseError(format!("request rate '{text}': expected N or N:BURST, each 1 or more"));
        let (per_second, burst) = match text.split_once(':') {
            Some((per_second, burst)) => (per_second, Some(burst)),
            None => (text, None),
        };
        let rate = Self::new(per_second.parse().map_err(|_| refuse())?);
        match burst {
            Some(burst) => Ok(Self { burst: burst.parse().map_err(|_| refuse())?, ..rate }),
            None => Ok(rate),
        }
    }
}

/// Somebody else who for some time takes a share of an origin's capacity and request rate.
///
/// Written as `START_MS:LENGTH_MS:PERCENT`.
///
/// ```
/// let neighbor: inrush_origin::Neighbor = "3000:10000:50".parse()?;
/// assert_eq!((neighbor.length.as_secs(), neighbor.percent), (10, 50));
/// # Ok::<(), inrush_origin::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbor {
    /// How long after the first GET of an object it comes.
    pub start: Duration,
    /// How long it stays.
    pub length: Duration,
    /// What it takes, 1 to 99 of 100.
    pub percent: u8,
}

impl Neighbor {
    /// Percentage that is left at this time after the first GET.
    fn leaves(&self, since_first_get: Duration) -> u64 {
        let is_here = since_first_get >= self.start && since_first_get - self.start < self.length;
        if is_here { u64::from(100 - self.percent.min(99)) } else { 100 }
    }
}

impl FromStr for Neighbor {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let numbers: Option<Vec<u32>> = text.split(':').map(|text| text.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[start_ms, length_ms, percent @ 1..=99]) => Ok(Self {
                start: Duration::from_millis(start_ms.into()),
                length: Duration::from_millis(length_ms.into()),
                percent: u8::try_from(percent).unwrap_or(99),
            }),
            _ => Err(ParseError(format!(
                "neighbor '{text}': expected START_MS:LENGTH_MS:PERCENT, PERCENT from 1 to 99"
            ))),
        }
    }
}

/// What all connections of an origin share.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    requests: Option<Mutex<Bucket>>,
    line: Option<Mutex<Line>>,
    neighbor: Option<Neighbor>,
    first_get: OnceLock<Duration>,
}

impl Pace {
    pub(crate) fn new(
        requests: Option<RequestRate>,
        capacity: Option<NonZeroU64>,
        neighbor: Option<Neighbor>,
    ) -> Self {
        let requests = requests.map(|rate| Mutex::new(Bucket::new(rate)));
        let line = |rate| Mutex::new(Line { rate, free_at: Duration::ZERO, senders: 0 });
        let line = capacity.map(line);
        Self { requests, line, neighbor, first_get: OnceLock::new() }
    }

    /// Whether a request is served that arrives now.
    pub(crate) fn admits(&self, now: Duration, is_get: bool) -> bool {
        if is_get {
            self.first_get.get_or_init(|| now);
        }
        let Some(bucket) = &self.requests else { return true };
        let left = self.left(now);
        bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now, left)
    }

    pub(crate) fn has_capacity(&self) -> bool {
        self.line.is_some()
    }

    /// One sender more, or one less, among whom capacity is divided.
    pub(crate) fn count_sender(&self, is_new: bool) {
        if let Some(line) = &self.line {
            let senders = &mut line.lock().unwrap_or_else(PoisonError::into_inner).senders;
            *senders = if is_new { *senders + 1 } else { senders.saturating_sub(1) };
        }
    }

    /// The next piece of a sender that has `bytes` left, at least one: its length, and when it may
    /// leave. `None`: nobody limits it.
    pub(crate) fn reserve(&self, now: Duration, bytes: u64) -> Option<(u64, Duration)> {
        let mut line = self.line.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.left(line.free_at.max(now));
        Some(line.reserve(now, bytes, left))
    }

    /// What a neighbor leaves, of 100.
    fn left(&self, at: Duration) -> u64 {
        match (self.neighbor, self.first_get.get()) {
            (Some(neighbor), Some(first)) => neighbor.leaves(at.saturating_sub(*first)),
            _ => 100,
        }
    }
}

/// Tokens that come at a rate, as many as it holds; each request takes one.
#[derive(Debug)]
struct Bucket {
    rate: RequestRate,
    level: u128,
    filled_at: Duration,
}

impl Bucket {
    fn new(rate: RequestRate) -> Self {
        let level = u128::from(rate.burst.get()) * TOKEN;
        Self { rate, level, filled_at: Duration::ZERO }
    }

    fn take(&mut self, now: Duration, percent: u64) -> bool {
        // Another thread may have looked at the clock later and come first.
        let passed = now.saturating_sub(self.filled_at).as_nanos();
        self.filled_at = self.filled_at.max(now);
        let most = u128::from(self.rate.burst.get()) * TOKEN;
        let came = passed * u128::from(self.rate.per_second.get()) * u128::from(percent) / 100;
        self.level = (self.level + came).min(most);
        let is_enough = self.level >= TOKEN;
        if is_enough {
            self.level -= TOKEN;
        }
        is_enough
    }
}

/// A line of a fixed rate that sends one piece after the other.
#[derive(Debug)]
struct Line {
    rate: NonZeroU64,
    free_at: Duration,
    senders: u64,
}

impl Line {
    fn reserve(&mut self, now: Duration, bytes: u64, percent: u64) -> (u64, Duration) {
        let rate = (self.rate.get() * percent / 100).max(1);
        let share = rate / LINE_ROUNDS_PER_SECOND / self.senders.max(1);
        let length = bytes.min(share.max(LINE_PIECE_BYTES_MIN));
        let start = self.free_at.max(now.saturating_sub(LINE_CREDIT));
        self.free_at = start + time_of(length, rate);
        (length, self.free_at)
    }
}

/// When one connection's own line is free.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Own {
    free_at: Duration,
}

impl Own {
    /// The next batch of an answer that has `bytes` left: its length, and when it may leave. A
    /// timer that came late within an answer is made up for; the time before it is not.
    pub(crate) fn batch(
        &mut self,
        now: Duration,
        rate: NonZeroU64,
        bytes: u64,
        is_first: bool,
    ) -> (u64, Duration) {
        let most = rate.get() / CONNECTION_BATCHES_PER_SECOND_MIN;
        let batch = (rate.get() / CONNECTION_BATCHES_PER_SECOND)
            .max(CONNECTION_BATCH_BYTES.min(most))
            .max(1);
        let length = bytes.min(batch);
        let credit = if is_first { Duration::ZERO } else { CONNECTION_CREDIT };
        let start = self.free_at.max(now.saturating_sub(credit));
        self.free_at = start + time_of(length, rate.get());
        (length, self.free_at)
    }
}

/// Time that `bytes` take at a rate.
fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn requests(text: &str, neighbor: Option<&str>) -> Pace {
        let neighbor = neighbor.map(|text| text.parse().unwrap());
        Pace::new(Some(text.parse().unwrap()), None, neighbor)
    }

    fn line(rate: u64, neighbor: Option<&str>) -> Pace {
        Pace::new(None, NonZeroU64::new(rate), neighbor.map(|text| text.parse().unwrap()))
    }

    /// How many of the requests that come every 100 us from `from` to `to` are served.
    fn served(pace: &Pace, from: Duration, to: Duration) -> u32 {
        let mut count = 0;
        let mut now = from;
        while now < to {
            count += u32::from(pace.admits(now, true));
            now += MS / 10;
        }
        count
    }

    #[test]
    fn requests_beyond_the_rate_are_refused() {
        let pace = requests("2000", None);
        // The bucket is full at first: a tenth of a second's.
        assert_eq!(served(&pace, Duration::ZERO, MS * 1000), 200 + 1999);
        assert_eq!(served(&pace, MS * 1000, MS * 2000), 2000);
        // It holds no more after a long pause, and no token is lost by asking in vain.
        let at_once = (0..1000).filter(|_| pace.admits(MS * 60_000, true)).count();
        assert_eq!(at_once, 200);
        let pace = requests("1:3", None);
        let fates = [0, 0, 0, 0, 999, 1000, 1000, 1999, 2000].map(|at| pace.admits(MS * at, true));
        assert_eq!(fates, [true, true, true, false, false, true, false, false, true]);
    }

    #[test]
    fn a_clock_that_another_thread_read_earlier_gives_nothing_twice() {
        let pace = requests("1000:1", None);
        assert!(pace.admits(MS * 10, true));
        assert!(pace.admits(MS * 11, true));
        assert!(!pace.admits(MS * 10, true));
        assert!(!pace.admits(MS * 11, true));
    }

    #[test]
    fn a_neighbor_takes_requests_after_the_first_get() {
        let pace = requests("1000:1", Some("2000:1000:75"));
        // No GET of an object: a LIST.
        assert!(pace.admits(MS * 100, false));
        let start = MS * 5000;
        assert_eq!(served(&pace, start, start + MS * 2000), 2000);
        assert_eq!(served(&pace, start + MS * 2000, start + MS * 3000), 250);
        assert_eq!(served(&pace, start + MS * 3000, start + MS * 4000), 1000);
    }

    /// What connections get from `from` to `to` that always have more to send.
    fn sent(pace: &Pace, connections: usize, from: Duration, to: Duration) -> Vec<u64> {
        let reserve = |now| pace.reserve(now, 1 << 40).unwrap();
        let mut got = vec![0; connections];
        pace.line.as_ref().unwrap().lock().unwrap().senders = connections as u64;
        let mut waiting: VecDeque<_> =
            (0..connections).map(|connection| (connection, reserve(from))).collect();
        let mut now = from;
        while now < to {
            // A timer that is a millisecond coarse, and wakes those first who waited first.
            now += MS;
            while let Some((connection, (length, at))) = waiting.front().copied()
                && at <= now.min(to)
            {
                got[connection] += length;
                waiting.pop_front();
                waiting.push_back((connection, reserve(now)));
            }
        }
        got
    }

    #[test]
    fn capacity_is_shared_and_held_over_a_tenth_of_a_second() {
        for connections in [1, 7, 300] {
            let pace = line(1_000_000_000, None);
            // What the line makes up for when it was idle comes first.
            sent(&pace, connections, MS * 40, MS * 50);
            for _ in 0..5 {
                // What was reserved and not counted is the next tenth's.
                let from = pace.line.as_ref().unwrap().lock().unwrap().free_at;
                let got = sent(&pace, connections, from, from + MS * 100);
                let total: u64 = got.iter().sum();
                assert!((94_000_000..106_000_000).contains(&total), "{connections}: {total}");
                let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
                let piece = (1_000_000_000 / 250 / connections as u64).max(16 << 10);
                assert!(most - least <= piece, "{connections}: {least} to {most}");
            }
        }
    }

    #[test]
    fn a_line_that_was_idle_owes_little() {
        let pace = line(1_000_000, None);
        let (length, at) = pace.reserve(MS * 5000, 1 << 30).unwrap();
        assert_eq!((length, at), (16_384, MS * 4990 + Duration::from_micros(16_384)));
        assert_eq!(pace.reserve(MS * 5000, 1).unwrap().0, 1);
        assert_eq!(Pace::default().reserve(MS, 1), None);
    }

    #[test]
    fn pieces_are_smaller_where_more_send() {
        let pace = line(100_000_000, None);
        let lengths = [true, true, true, false, false].map(|is_new| {
            pace.count_sender(is_new);
            pace.reserve(MS, 1 << 30).unwrap().0
        });
        assert_eq!(lengths, [400_000, 200_000, 133_333, 200_000, 400_000]);
    }

    #[test]
    fn a_neighbor_takes_capacity() {
        let pace = line(100_000_000, Some("300:500:40"));
        assert!(pace.admits(Duration::ZERO, true));
        for (from, to, expected) in [(0, 300, 30_000_000), (300, 800, 30_000_000)] {
            let total: u64 = sent(&pace, 3, MS * from, MS * to).iter().sum();
            assert!(total.abs_diff(expected) < 2_000_000, "{from}: {total}");
        }
        let total: u64 = sent(&pace, 3, MS * 800, MS * 900).iter().sum();
        assert!(total.abs_diff(10_000_000) < 2_000_000, "{total}");
    }

    #[test]
    fn one_connection_gets_its_bytes_when_the_last_would_have_come() {
        let rate = NonZeroU64::new(100_000_000).unwrap();
        let mut own = Own::default();
        let batch = |own: &mut Own, now, bytes, is_first| own.batch(now, rate, bytes, is_first);
        let now = MS * 1000;
        assert_eq!(batch(&mut own, now, 8 << 20, true), (1_000_000, MS * 1010));
        // Late by 3 ms: the next is still due on time.
        assert_eq!(batch(&mut own, MS * 1013, 1 << 20, false), (1_000_000, MS * 1020));
        // Late by more than is made up for.
        assert_eq!(batch(&mut own, MS * 1120, 1 << 20, false), (1_000_000, MS * 1110));
        // Another answer: what was idle before it is lost, what is owed is not.
        assert_eq!(batch(&mut own, MS * 1200, 100_000, true), (100_000, MS * 1201));
        assert_eq!(batch(&mut own, MS * 1200, 100_000, true), (100_000, MS * 1202));
        let batches = [1, 100_000, 1_000_000, 20_000_000]
            .map(|rate| Own::default().batch(now, NonZeroU64::new(rate).unwrap(), 8 << 20, true).0);
        assert_eq!(batches, [1, 10_000, 65_536, 200_000]);
    }

    #[test]
    fn what_is_written_wrong_is_refused() {
        for text in ["", "0", "x", "1:0", "1:", "-1", "1:2:3"] {
            let error = text.parse::<RequestRate>().unwrap_err().to_string();
            assert!(error.contains("BURST"), "{text}: {error}");
        }
        for text in ["", "1:2", "1:2:0", "1:2:100", "a:2:3", "1:2:3:4"] {
            let error = text.parse::<Neighbor>().unwrap_err().to_string();
            assert!(error.contains("PERCENT"), "{text}: {error}");
        }
        let rate: RequestRate = "7".parse().unwrap();
        assert_eq!(rate.burst.get(), 1);
    }
}
