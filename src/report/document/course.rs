//! The course of a run: bytes and retries over time, with at most [`POINTS_MAX`] points; and
//! histograms of its request times.

use std::time::Duration;

use serde::Serialize;

use crate::engine::metrics::Durations;

/// Maximum number of points kept.
const POINTS_MAX: usize = 512;

/// The progress of a run at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CoursePoint {
    /// Seconds since the program began.
    pub seconds: f64,
    /// Body bytes so far.
    pub bytes: u64,
    /// Failed attempts so far that were retried.
    pub retries: u64,
}

impl CoursePoint {
    /// Makes a point.
    #[must_use]
    pub fn new(elapsed: Duration, bytes: u64, retries: u64) -> Self {
        Self { seconds: elapsed.as_secs_f64(), bytes, retries }
    }
}

/// Points of a run, in order. When there are too many, every other one is dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    points: Vec<CoursePoint>,
    /// One of `stride` points is kept.
    stride: usize,
    left_out: usize,
}

impl Default for Course {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1, left_out: 0 }
    }
}

impl Course {
    /// Adds the next point.
    pub fn note(&mut self, point: CoursePoint) {
        if self.left_out + 1 < self.stride {
            self.left_out += 1;
            return;
        }
        self.left_out = 0;
        self.points.push(point);
        if self.points.len() == POINTS_MAX {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.stride *= 2;
        }
    }

    /// The points kept.
    #[must_use]
    pub fn points(&self) -> &[CoursePoint] {
        &self.points
    }
}

/// A bucket of a histogram: times below `below_seconds`, and at least half of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HistogramBucket {
    /// The upper bound.
    pub below_seconds: f64,
    /// Number of times in the bucket.
    pub count: u32,
}

/// Histograms of request times.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// From the request to the first byte of the response.
    pub first_byte: Vec<HistogramBucket>,
    /// From the request to the last byte of the range.
    pub range: Vec<HistogramBucket>,
}

impl Latencies {
    /// Makes the histograms of these counts.
    #[must_use]
    pub fn new(first_bytes: &Durations, ranges: &Durations) -> Self {
        let buckets = |counted: &Durations| {
            let counts = counted.counts();
            let bucket = |(us, count)| HistogramBucket { below_seconds: super::seconds(us), count };
            counts.map(bucket).collect()
        };
        Self { first_byte: buckets(first_bytes), range: buckets(ranges) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_bounded_and_spans_the_run() {
        let mut course = Course::default();
        for number in 0..10_000u32 {
            let seconds = f64::from(number);
            course.note(CoursePoint { seconds, bytes: u64::from(number), retries: 0 });
        }
        let points = course.points();
        assert!((POINTS_MAX / 2..POINTS_MAX).contains(&points.len()), "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].seconds < pair[1].seconds));
        assert!(points[0].bytes < 100 && points[points.len() - 1].bytes > 9_900);
    }

    #[test]
    fn durations_are_counted_by_powers_of_two() {
        let mut first = Durations::default();
        [3, 4, 7, 1 << 40].into_iter().for_each(|us| first.note(us));
        let latencies = Latencies::new(&first, &Durations::default());
        let counts: Vec<_> = latencies.first_byte.iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [1, 2, 1]);
        assert!((latencies.first_byte[1].below_seconds - 8e-6).abs() < 1e-12);
        assert!(latencies.range.is_empty());
    }
}
