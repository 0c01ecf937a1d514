//! Deviations from S3 that servers have shown in their answers.

use std::sync::atomic::{AtomicU8, Ordering};

use super::answer::CHECKSUM_MODE;

/// A deviation, or proof that the server has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// It refuses requests with `x-amz-checksum-mode`; later requests omit it.
    RefusesChecksumMode = 1,
    /// It decompresses objects with `Content-Encoding: gzip` for clients that do not accept gzip,
    /// or sends every body in chunks as if it did; later requests accept gzip.
    UnpacksGzip = 2,
    /// It refused `If-Match` although the object had that ETag; later requests omit `If-Match`, and
    /// answers must have the ETag.
    MisreadsIfMatch = 4,
    /// It has answered a request with `If-Match`, so a 412 from it can be trusted.
    ReadsIfMatch = 8,
    /// It has answered a request with `x-amz-checksum-mode`, so a refusal has another cause.
    AcceptsChecksumMode = 16,
    /// It has once refused a request with `x-amz-checksum-mode`, and answered it without: whatever
    /// is between may have done so.
    MayRefuseChecksumMode = 32,
}

impl Habit {
    /// The consequence, for the log.
    #[must_use]
    pub fn explain(self) -> String {
        match self {
            Self::RefusesChecksumMode => format!(
                "the server refuses {CHECKSUM_MODE}: its objects are verified by length and ETag \
                 alone"
            ),
            Self::UnpacksGzip => "the server may unpack objects with Content-Encoding: gzip; it \
                                  is asked for them as they are stored"
                .to_owned(),
            Self::MisreadsIfMatch => "the server refuses If-Match; it is asked without, and its \
                                      answers must have the ETag"
                .to_owned(),
            Self::ReadsIfMatch => "the server understands If-Match".to_owned(),
            Self::AcceptsChecksumMode => format!("the server accepts {CHECKSUM_MODE}"),
            Self::MayRefuseChecksumMode => format!("the server may refuse {CHECKSUM_MODE}"),
        }
    }
}

/// The known deviations of one endpoint, shared by its workers.
#[derive(Debug, Default)]
pub struct Habits(AtomicU8);

impl Habits {
    /// True if this deviation is known.
    #[must_use]
    pub fn has(&self, habit: Habit) -> bool {
        self.0.load(Ordering::Relaxed) & habit as u8 != 0
    }

    /// True if requests omit `x-amz-checksum-mode`: it was refused, and never accepted.
    #[must_use]
    pub fn omits_checksum_mode(&self) -> bool {
        self.has(Habit::RefusesChecksumMode) && !self.has(Habit::AcceptsChecksumMode)
    }

    /// Records a deviation; true if it is new.
    pub fn note(&self, habit: Habit) -> bool {
        // Most are known already: avoid a write to memory that all workers read.
        !self.has(habit) && self.0.fetch_or(habit as u8, Ordering::Relaxed) & habit as u8 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_noted_by_itself() {
        let habits = Habits::default();
        let all = [
            Habit::RefusesChecksumMode,
            Habit::UnpacksGzip,
            Habit::MisreadsIfMatch,
            Habit::ReadsIfMatch,
            Habit::AcceptsChecksumMode,
            Habit::MayRefuseChecksumMode,
        ];
        for (at, habit) in all.into_iter().enumerate() {
            assert!(!habits.has(habit) && habits.note(habit) && !habits.note(habit), "{habit:?}");
            assert_eq!(all.iter().filter(|habit| habits.has(**habit)).count(), at + 1);
            let line = habit.explain();
            assert!(!line.contains("  ") && !line.ends_with('.'), "{line}");
        }
    }
}
