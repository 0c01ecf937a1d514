//! How a run went on: bytes and retries by time, in as many points as fit a report; and how long
//! its requests took.

use std::time::Duration;

use serde::Serialize;

use crate::engine::metrics::Durations;

/// Most points that are kept.
const POINTS_MAX: usize = 512;

/// How far a run was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CoursePoint {
    /// When, since the program began.
    pub seconds: f64,
    /// Body bytes so far.
    pub bytes: u64,
    /// Failed attempts so far that were followed by another.
    pub retries: u64,
}

impl CoursePoint {
    /// So far was it after this time.
    #[must_use]
    pub fn new(elapsed: Duration, bytes: u64, retries: u64) -> Self {
        Self { seconds: elapsed.as_secs_f64(), bytes, retries }
    }
}

/// Points of a run in order. Where there would be too many, every other one goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    points: Vec<CoursePoint>,
    /// One of so many is kept.
    stride: usize,
    left_out: usize,
}

impl Default for Course {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1, left_out: 0 }
    }
}

impl Course {
    /// Takes the next point in.
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

    /// Those that are kept.
    #[must_use]
    pub fn points(&self) -> &[CoursePoint] {
        &self.points
    }
}

/// So many took less than a time, and no less than half of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bucket {
    /// That time.
    pub below_seconds: f64,
    /// How many.
    pub count: u32,
}

/// How long requests took.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// To the first byte of the answer.
    pub first_byte: Vec<Bucket>,
    /// To the last byte of a range.
    pub range: Vec<Bucket>,
}

impl Latencies {
    /// Of what was counted.
    #[must_use]
    pub fn new(first_bytes: &Durations, ranges: &Durations) -> Self {
        let told = |counted: &Durations| {
            let counts = counted.counts();
            let bucket = |(us, count)| Bucket { below_seconds: super::seconds(us), count };
            counts.map(bucket).collect()
        };
        Self { first_byte: told(first_bytes), range: told(ranges) }
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
    fn durations_are_told_by_powers_of_two() {
        let mut first = Durations::default();
        [3, 4, 7, 1 << 40].into_iter().for_each(|us| first.note(us));
        let told = Latencies::new(&first, &Durations::default());
        let counts: Vec<_> = told.first_byte.iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [1, 2, 1]);
        assert!((told.first_byte[1].below_seconds - 8e-6).abs() < 1e-12);
        assert!(told.range.is_empty());
    }
}
