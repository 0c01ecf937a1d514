//! What single servers do otherwise than S3, as their answers have shown.

use std::sync::atomic::{AtomicU8, Ordering};

use super::answer::CHECKSUM_MODE;

/// One such thing, or what proves the opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// It refuses requests with `x-amz-checksum-mode`, and is asked for checksums no more.
    RefusesChecksumMode = 1,
    /// It unpacks objects with `Content-Encoding: gzip` for who does not accept gzip, or sends all
    /// in chunks as if it did, and is told that gzip is accepted.
    UnpacksGzip = 2,
    /// It answered 412 though the object had the ETag that `If-Match` named, and is asked without:
    /// its answers must have the ETag.
    MisreadsIfMatch = 4,
    /// It has answered a request with `If-Match`: what it says with 412 is so.
    ReadsIfMatch = 8,
}

impl Habit {
    /// What follows from it, for whoever looks at the log.
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
            Self::MisreadsIfMatch => "the server answers 412 to If-Match; it is asked without, \
                                      and its answers must have the ETag"
                .to_owned(),
            Self::ReadsIfMatch => "the server understands If-Match".to_owned(),
        }
    }
}

/// All that is known of one endpoint, shared by those who ask it.
#[derive(Debug, Default)]
pub struct Habits(AtomicU8);

impl Habits {
    /// Whether it has this one.
    #[must_use]
    pub fn has(&self, habit: Habit) -> bool {
        self.0.load(Ordering::Relaxed) & habit as u8 != 0
    }

    /// Notes this one; true where it was not known.
    pub fn note(&self, habit: Habit) -> bool {
        // Most are known already: no write where all workers look.
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
        ];
        for (at, habit) in all.into_iter().enumerate() {
            assert!(!habits.has(habit) && habits.note(habit) && !habits.note(habit), "{habit:?}");
            assert_eq!(all.iter().filter(|habit| habits.has(**habit)).count(), at + 1);
            let line = habit.explain();
            assert!(!line.contains("  ") && !line.ends_with('.'), "{line}");
        }
    }
}
