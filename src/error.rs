//! The world's failures: what happened, to whom, what to do next, and which exit code says so.
//!
//! Not for our own bugs: those are assertions. Not for the outcome of a single read or write: that
//! is [`crate::sys::Errno`], an ordinary event of the data plane.

use std::fmt;

/// What kind of trouble it is; it decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// Some objects of the run failed; the others are whole.
    Objects,
    /// The command line or an input asks for something that cannot be.
    Usage,
    /// No credentials, wrong credentials, or no permission.
    Access,
    /// A bucket, key or prefix that is not there.
    NotFound,
    /// The destination cannot take the bytes: read-only, full, not a folder, a bad name.
    Destination,
    /// The endpoint cannot be reached, or answers what it should not.
    Endpoint,
    /// This machine cannot run the data plane: no io_uring, too little memory, too few descriptors.
    Host,
    /// The time that the user gave has passed.
    Deadline,
    /// Stopped by the user (SIGINT or SIGTERM).
    Interrupted,
}

impl ErrorKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Objects,
        Self::Usage,
        Self::Access,
        Self::NotFound,
        Self::Destination,
        Self::Endpoint,
        Self::Host,
        Self::Deadline,
        Self::Interrupted,
    ];

    /// The process exit code that stands for this kind.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Objects => 1,
            Self::Usage => 2,
            Self::Access => 3,
            Self::NotFound => 4,
            Self::Destination => 5,
            Self::Endpoint => 6,
            Self::Host => 7,
            Self::Deadline => 8,
            // 128 + SIGINT, as shells say it.
            Self::Interrupted => 130,
        }
    }

    /// The meaning of the exit code, for the help text.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Objects => "some objects failed, all others are complete",
            Self::Usage => "usage error: wrong command line or input",
            Self::Access => "credentials or permissions are missing or wrong",
            Self::NotFound => "bucket, key or prefix not found",
            Self::Destination => "cannot write to the destination",
            Self::Endpoint => "the endpoint is unreachable or answers incorrectly",
            Self::Host => "this machine lacks a resource (io_uring, memory, open files)",
            Self::Deadline => "the --deadline has passed",
            Self::Interrupted => "interrupted (Ctrl-C or SIGTERM)",
        }
    }
}

/// One failure, told in one line: what, where, why; then what to do.
///
/// Messages are lower case, without a final stop, and never hold a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    advice: Option<String>,
}

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of `kind`, told by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), advice: None }
    }

    /// This machine starts no thread more.
    #[must_use]
    pub fn no_thread(why: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Host, format!("cannot start a thread: {why}"))
            .advise("raise the limit of processes (ulimit -u)")
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Puts the circumstances in front: `context: message`.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// What kind of trouble it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message without the advice.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_with_advice() {
        let error = Error::new(ErrorKind::NotFound, "no such bucket: b")
            .within("list s3://b/")
            .advise("check the name");
        assert_eq!(error.to_string(), "list s3://b/: no such bucket: b; check the name");
        assert_eq!(error.kind().exit_code(), 4);
    }

    #[test]
    fn exit_codes_are_distinct_and_not_zero() {
        let mut codes: Vec<u8> = ErrorKind::ALL.iter().map(|kind| kind.exit_code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
        assert!(!codes.contains(&0));
    }
}
