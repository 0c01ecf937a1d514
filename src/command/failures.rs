//! Objects that failed: what is told of them, and what they make of the exit code.

use crate::error::ErrorKind;
use crate::limits::FAILURES_TOLD_MAX;

/// The failures of a run that goes on with other objects.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u64,
    /// The kind of all, while they are of one kind.
    kind: Option<ErrorKind>,
    told: usize,
    untold: u64,
}

impl Failures {
    /// Counts one.
    pub(super) fn add(&mut self, kind: ErrorKind) {
        self.kind = if self.count == 0 { Some(kind) } else { self.kind.filter(|of| *of == kind) };
        self.count += 1;
    }

    /// Whether one with a message of its own is told: the first [`FAILURES_TOLD_MAX`] are. Not of
    /// those that failed with the run: their cause is told once, however many they are.
    pub(super) fn is_told(&mut self) -> bool {
        let is_told = self.told < FAILURES_TOLD_MAX;
        self.told += usize::from(is_told);
        self.untold += u64::from(!is_told);
        is_told
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The kind of all, or that of several that differ.
    pub(super) fn kind(&self) -> ErrorKind {
        self.kind.unwrap_or(ErrorKind::Objects)
    }

    /// What is to be said of those that were not told.
    pub(super) fn rest(&self) -> Option<String> {
        let untold = self.untold;
        (untold > 0).then(|| format!("{untold} more objects failed; use --report FILE to list all"))
    }

    /// What is said at the end, in this order, where the run ended early for this cause. What kept
    /// one object ended the run: it stands with the objects, before the count of the others. An
    /// interrupt and a deadline come last, for they say how things stand.
    pub(super) fn last_words(&self, cause: Option<(ErrorKind, String)>) -> [Option<String>; 2] {
        let (kind, cause) = cause.unzip();
        match kind {
            Some(ErrorKind::Interrupted | ErrorKind::Deadline) | None => [self.rest(), cause],
            Some(_) => [cause, self.rest()],
        }
    }

    /// The exit code where so many other objects fared well; 0 without failures.
    pub(super) fn exit_code(&self, passed: u64) -> u8 {
        match (self.count, passed) {
            (0, _) => 0,
            (_, 0) => self.kind().exit_code(),
            _ => ErrorKind::Objects.exit_code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_has_its_exit_code_and_several_have_that_of_objects() {
        let mut failures = Failures::default();
        assert_eq!((failures.exit_code(0), failures.count()), (0, 0));
        failures.add(ErrorKind::Access);
        failures.add(ErrorKind::Access);
        assert_eq!(failures.exit_code(0), ErrorKind::Access.exit_code());
        assert_eq!(failures.exit_code(1), ErrorKind::Objects.exit_code());
        failures.add(ErrorKind::Destination);
        failures.add(ErrorKind::Destination);
        assert_eq!(failures.exit_code(0), ErrorKind::Objects.exit_code());
        assert_eq!((failures.kind(), failures.count()), (ErrorKind::Objects, 4));
    }

    #[test]
    fn the_first_few_are_told() {
        let mut failures = Failures::default();
        for _ in 0..FAILURES_TOLD_MAX {
            failures.add(ErrorKind::Objects);
            assert!(failures.is_told() && failures.rest().is_none());
        }
        for _ in 0..2 {
            failures.add(ErrorKind::Objects);
            assert!(!failures.is_told());
        }
        let rest = failures.rest().expect("two are left");
        assert!(rest.starts_with("2 more objects failed"), "{rest}");
        // What ended the run stands with the objects, unless it was the user.
        let words = |kind| failures.last_words(Some((kind, "cause".to_owned())));
        let (cause, rest) = (Some("cause".to_owned()), Some(rest));
        assert_eq!(words(ErrorKind::Destination), [cause.clone(), rest.clone()]);
        assert_eq!(words(ErrorKind::Interrupted), [rest.clone(), cause.clone()]);
        assert_eq!(words(ErrorKind::Deadline), [rest.clone(), cause]);
        assert_eq!(failures.last_words(None), [rest, None]);
    }

    #[test]
    fn those_that_failed_with_the_run_hide_no_other() {
        let mut failures = Failures::default();
        for _ in 0..=FAILURES_TOLD_MAX {
            failures.add(ErrorKind::Destination);
        }
        failures.add(ErrorKind::Destination);
        assert!(failures.is_told(), "it is the first with a message of its own");
        assert_eq!(failures.rest(), None);
    }
}
