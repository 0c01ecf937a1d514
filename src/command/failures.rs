//! Failed objects: which of their messages are printed.

use crate::error::{Error, ErrorKind};
use crate::files::host::FOLDER_REFUSES;
use crate::limits::FAILURES_PRINTED_MAX;
use crate::text::size::counted;

/// The messages about the failures of a run that continues with other objects.
#[derive(Debug, Default)]
pub(super) struct FailureMessages {
    printed: usize,
    unreported: u64,
    /// The first folders that refused an object, each with the number of further objects that
    /// failed alike.
    folders_refused: Vec<(String, u64)>,
    /// Objects that failed because the run ended.
    with_run: u64,
}

impl FailureMessages {
    /// True if a failure with its own message is printed: the first [`FAILURES_PRINTED_MAX`] are.
    /// Objects that failed because the run ended are not: their cause is printed once.
    pub(super) fn is_reported(&mut self) -> bool {
        let is_reported = self.printed < FAILURES_PRINTED_MAX;
        self.printed += usize::from(is_reported);
        self.unreported += u64::from(!is_reported);
        is_reported
    }

    /// True if the failure of the object of this name is printed. A folder that cannot be used
    /// affects every object below it: that is printed once, and counted.
    pub(super) fn is_reported_of(&mut self, name: &str, error: &Error) -> bool {
        let cause = error.message().strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        let is_of_folder = |cause: &&str| cause.starts_with(FOLDER_REFUSES);
        if let Some(cause) = cause.filter(is_of_folder) {
            let known = self.folders_refused.iter_mut().find(|(known, _)| known == cause);
            if let Some((_, more)) = known {
                *more += 1;
                return false;
            }
            if self.folders_refused.len() < FAILURES_PRINTED_MAX {
                self.folders_refused.push((cause.to_owned(), 0));
            }
        }
        self.is_reported()
    }

    /// Counts one that failed because the run ended.
    pub(super) fn fail_with_run(&mut self) {
        self.with_run += 1;
    }

    /// The message about several objects that failed because the run ended; for one the cause
    /// suffices.
    fn alike(&self) -> Option<String> {
        let objects = counted(self.with_run, "object", "objects");
        (self.with_run > 1)
            .then(|| format!("{objects} were not completed, because this ended the run"))
    }

    /// The message about failures that were not printed.
    pub(super) fn rest(&self) -> Option<String> {
        let more = |count: u64| format!("{} failed", counted(count, "more object", "more objects"));
        let refused = self.folders_refused.iter().filter(|(_, count)| *count > 0);
        let refused = refused.map(|(why, count)| format!("{} for the same: {why}", more(*count)));
        let unreported = (self.unreported > 0)
            .then(|| format!("{}; use --report FILE to list all", more(self.unreported)));
        let words: Vec<String> = refused.chain(unreported).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// The messages at the end, in this order, of a run that ended early for this cause. A cause
    /// that affects one object precedes the count of the others. An interruption and a deadline
    /// come last, because they describe the state.
    pub(super) fn last_words(&self, cause: Option<(ErrorKind, String)>) -> [Option<String>; 3] {
        let (kind, cause) = cause.unzip();
        match kind {
            Some(ErrorKind::Interrupted | ErrorKind::Deadline) | None => [self.rest(), cause, None],
            Some(_) => [cause, self.alike(), self.rest()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_are_reported() {
        let mut failures = FailureMessages::default();
        for _ in 0..FAILURES_PRINTED_MAX {
            assert!(failures.is_reported() && failures.rest().is_none());
        }
        for _ in 0..2 {
            assert!(!failures.is_reported());
        }
        let rest = failures.rest().expect("two are left");
        assert!(rest.starts_with("2 more objects failed"), "{rest}");
        // The cause of the end precedes the count of the objects, unless it was the user.
        let words = |kind| failures.last_words(Some((kind, "cause".to_owned())));
        let (cause, rest) = (Some("cause".to_owned()), Some(rest));
        assert_eq!(words(ErrorKind::Destination), [cause.clone(), None, rest.clone()]);
        assert_eq!(words(ErrorKind::Interrupted), [rest.clone(), cause.clone(), None]);
        assert_eq!(words(ErrorKind::Deadline), [rest.clone(), cause.clone(), None]);
        assert_eq!(failures.last_words(None), [rest.clone(), None, None]);
        // One of those that failed with the run is its cause.
        failures.fail_with_run();
        let words = |failures: &FailureMessages, kind| {
            failures.last_words(Some((kind, "cause".to_owned())))
        };
        assert_eq!(words(&failures, ErrorKind::Destination)[1], None);
        failures.fail_with_run();
        failures.fail_with_run();
        let alike = words(&failures, ErrorKind::Destination)[1].clone();
        let alike = alike.expect("three ended");
        assert!(alike.starts_with("3 objects were not completed, because"), "{alike}");
        assert_eq!(words(&failures, ErrorKind::Interrupted), [rest, cause, None]);
    }

    #[test]
    fn what_keeps_a_folder_from_being_used_is_reported_once() {
        let mut failures = FailureMessages::default();
        let mut is_printed = |object: &str, why: &str| {
            failures.is_reported_of(object, &Error::new(ErrorKind::Destination, why).within(object))
        };
        let [no, other] = ["use folder d: no", "use folder e: no"];
        let cases = [("s3://b/a: b", no), ("s3://b/c", no), ("s3://b/d", other), ("x", no)];
        assert_eq!(cases.map(|(object, why)| is_printed(object, why)), [true, false, true, false]);
        assert!(!is_printed("s3://b/y", other), "a second folder is reported once, too");
        assert!(
            ["s3://b/e", "s3://b/f"]
                .map(|object| is_printed(object, "why"))
                .iter()
                .all(|printed| *printed)
        );
        let rest = "2 more objects failed for the same: use folder d: no; \
                    1 more object failed for the same: use folder e: no";
        assert_eq!(failures.rest().as_deref(), Some(rest));
        for _ in 0..FAILURES_PRINTED_MAX {
            let _ = failures.is_reported();
        }
        let rest = format!("{rest}; 4 more objects failed; use --report FILE to list all");
        assert_eq!(failures.rest(), Some(rest));
    }

    #[test]
    fn those_that_failed_with_the_run_hide_no_other() {
        let mut failures = FailureMessages::default();
        for _ in 0..=FAILURES_PRINTED_MAX {
            failures.fail_with_run();
        }
        assert!(failures.is_reported(), "it is the first with a message of its own");
        assert_eq!(failures.rest(), None);
    }
}
