//! What is wrong with the description of a job: all of it at once, each with its place.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::limits::JOB_PROBLEMS_MAX;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path of the field, as in `InputDataConfig[2].DataSource`; empty for the whole.
    pub place: String,
    /// What is wrong with it, in words that are fit for a screen.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)
    }
}

/// The problems as one usage error of one line; if there are several, the caller prints them
/// before. `source` is the name of the file or command that was read.
#[must_use]
pub fn error(source: &str, problems: &[Problem]) -> Error {
    let message = match problems {
        [] => format!("{source}: it cannot be read"),
        [only] => format!("{source}: {only}"),
        [first, ..] => format!("{source}: {} problems, the first: {first}", problems.len()),
    };
    Error::new(ErrorKind::Usage, message)
}

/// Problems as they are found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<Problem>,
    more: usize,
}

impl Problems {
    pub(super) fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.push(Problem::new(place, what));
    }

    pub(super) fn push(&mut self, problem: Problem) {
        if self.found.len() < JOB_PROBLEMS_MAX {
            self.found.push(problem);
        } else {
            self.more += 1;
        }
    }

    /// How many there are so far.
    pub(super) const fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// The value, if nothing was wrong.
    pub(super) fn settle<T>(mut self, value: T) -> Result<T, Vec<Problem>> {
        if self.more > 0 {
            self.found.push(Problem::new("", format!("and {} problems more", self.more)));
        }
        if self.found.is_empty() { Ok(value) } else { Err(self.found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_listed_up_to_a_bound() {
        assert_eq!(Problems::default().settle(7), Ok(7));
        let mut problems = Problems::default();
        for at in 0..JOB_PROBLEMS_MAX + 3 {
            problems.add(format!("Tags[{at}]"), "wrong");
        }
        assert_eq!(problems.count(), JOB_PROBLEMS_MAX + 3);
        let listed = problems.settle(()).expect_err("problems");
        assert_eq!(listed.len(), JOB_PROBLEMS_MAX + 1);
        assert_eq!(listed[JOB_PROBLEMS_MAX].to_string(), "and 3 problems more");
        let error_of = |count: usize| error("job.json", &listed[..count]);
        assert_eq!(error_of(1).to_string(), "job.json: Tags[0]: wrong");
        assert_eq!(error_of(2).to_string(), "job.json: 2 problems, the first: Tags[0]: wrong");
        assert_eq!(error_of(2).kind(), ErrorKind::Usage);
    }
}
