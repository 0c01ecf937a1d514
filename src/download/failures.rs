//! Failed objects: how many there are, and the error of their run.

use crate::error::{Error, ErrorKind, ErrorReason};
use crate::text::size::counted;

/// The failures of a run that continues with other objects.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: u64,
    /// The kind of all, while they are of one kind.
    kind: Option<ErrorKind>,
    /// The reason of all, while they have one, for programs.
    reason: Option<ErrorReason>,
    /// The first message.
    first: Option<String>,
}

impl Failures {
    /// Counts one.
    pub(crate) fn add(&mut self, error: &Error) {
        let (kind, reason) = (error.kind(), error.reason());
        if self.count == 0 {
            (self.kind, self.reason) = (Some(kind), Some(reason));
            self.first = Some(error.to_string());
        }
        self.kind = self.kind.filter(|of| *of == kind);
        self.reason = self.reason.filter(|of| *of == reason);
        self.count += 1;
    }

    /// Number of failures.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The kind of all, or the one for several different kinds.
    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind.unwrap_or(ErrorKind::Objects)
    }

    /// The reason of all, if they have one.
    pub(crate) fn reason(&self) -> Option<ErrorReason> {
        self.reason
    }

    /// The error of the run, if this many other objects succeeded; `None` without failures.
    pub(crate) fn error(&self, passed: u64) -> Option<Error> {
        let first = self.first.as_ref()?;
        let message = match self.count {
            1 => first.clone(),
            count => format!("{} failed, the first: {first}", counted(count, "object", "objects")),
        };
        let kind = if passed == 0 { self.kind() } else { ErrorKind::Objects };
        Some(Error::new(kind, message).because(self.reason.unwrap_or(ErrorReason::ObjectsFailed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ErrorKind) -> Error {
        Error::new(kind, "why")
    }

    #[test]
    fn one_kind_has_its_exit_code_and_several_have_that_of_objects() {
        let mut failures = Failures::default();
        assert_eq!((failures.error(0), failures.count()), (None, 0));
        failures.add(&of(ErrorKind::Access));
        let one = failures.error(0).expect("one failed");
        assert_eq!((one.to_string().as_str(), one.reason()), ("why", ErrorReason::Credentials));
        failures.add(&of(ErrorKind::Access));
        let alike = |passed| {
            let error = failures.error(passed).expect("some failed");
            (error.kind(), error.reason())
        };
        assert_eq!(alike(0), (ErrorKind::Access, ErrorReason::Credentials));
        assert_eq!(alike(1), (ErrorKind::Objects, ErrorReason::Credentials));
        failures.add(&of(ErrorKind::Destination));
        failures.add(&of(ErrorKind::Destination));
        let error = failures.error(0).expect("some failed");
        assert_eq!(error.to_string(), "4 objects failed, the first: why");
        assert_eq!(
            (error.kind(), error.reason()),
            (ErrorKind::Objects, ErrorReason::ObjectsFailed)
        );
        assert_eq!((failures.kind(), failures.count()), (ErrorKind::Objects, 4));
    }
}
