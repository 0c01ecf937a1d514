//! The world's failures: what happened, to whom, what to do next, and which exit code says so.
//!
//! Not for our own bugs: those are assertions. Not for the outcome of a single read or write: that
//! is [`crate::sys::Errno`], an ordinary event of the data plane.

mod cause;

use std::{fmt, io};

use cause::Cause;

pub(crate) use cause::without_secrets;

/// What kind of trouble it is; it decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// Some objects failed; the others are complete.
    Objects,
    /// A wrong command line, option or input.
    Usage,
    /// No credentials, wrong credentials, or no permission.
    Access,
    /// The bucket, key or prefix does not exist.
    NotFound,
    /// The destination cannot be written: read-only, full, not a folder, an invalid name.
    Destination,
    /// The endpoint is unreachable, or answers incorrectly.
    Endpoint,
    /// This machine cannot run the data plane: too little memory, too few descriptors, or no
    /// io_uring where that is asked for.
    Host,
    /// The deadline has passed.
    Deadline,
    /// Stopped by the user (SIGINT, SIGTERM or SIGHUP).
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

    /// The process exit code of this kind.
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
            Self::Host => "this machine lacks a resource (memory, open files, io_uring)",
            Self::Deadline => "the --deadline has passed",
            Self::Interrupted => "interrupted (Ctrl-C, SIGTERM or SIGHUP)",
        }
    }
}

/// Why something failed, for programs: `error_kind` with `--json`. Finer than [`ErrorKind`], and
/// closed: a script may list all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorReason {
    /// Several objects failed, for reasons that differ.
    ObjectsFailed,
    /// The object changed while it was fetched, or since it was listed.
    Changed,
    /// Data is not what S3 stores, or cannot be compared with it though it must be.
    Integrity,
    /// The object is in an archive, and must be restored first.
    Archived,
    /// The command line or an input asks for something that cannot be.
    Usage,
    /// There are no credentials, or they are wrong or have expired.
    Credentials,
    /// The credentials do not permit the request.
    PermissionDenied,
    /// The bucket, key or prefix is not there.
    NotFound,
    /// The destination cannot be written or read.
    LocalIo,
    /// The destination is full, or too small.
    NoSpace,
    /// The endpoint cannot be reached, or connections to it break.
    Network,
    /// The server asked for fewer requests, for longer than was waited.
    Throttled,
    /// The server fails, or answers what it should not.
    Server,
    /// This machine lacks a resource: `io_uring`, memory, open files, threads.
    Host,
    /// The `--deadline` has passed.
    Deadline,
    /// SIGINT, SIGTERM or SIGHUP.
    Interrupted,
    /// A bug in inrush.
    Internal,
}

impl ErrorReason {
    /// Every reason, in the order of the exit codes.
    pub const ALL: [Self; 17] = [
        Self::ObjectsFailed,
        Self::Changed,
        Self::Integrity,
        Self::Archived,
        Self::Usage,
        Self::Credentials,
        Self::PermissionDenied,
        Self::NotFound,
        Self::LocalIo,
        Self::NoSpace,
        Self::Network,
        Self::Throttled,
        Self::Server,
        Self::Host,
        Self::Internal,
        Self::Deadline,
        Self::Interrupted,
    ];

    /// Its name in `error_kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ObjectsFailed => "objects_failed",
            Self::Changed => "changed",
            Self::Integrity => "integrity",
            Self::Archived => "archived",
            Self::Usage => "usage",
            Self::Credentials => "credentials",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::LocalIo => "local_io",
            Self::NoSpace => "no_space",
            Self::Network => "network",
            Self::Throttled => "throttled",
            Self::Server => "server",
            Self::Host => "host",
            Self::Deadline => "deadline",
            Self::Interrupted => "interrupted",
            Self::Internal => "internal",
        }
    }

    /// Its meaning, for the manual page.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::ObjectsFailed => "several objects failed, for different reasons",
            Self::Changed => "an object changed during the run",
            Self::Integrity => "data does not match the stored checksum, or cannot be verified",
            Self::Archived => "an object is archived and must be restored first",
            Self::Usage => "wrong command line or input",
            Self::Credentials => "credentials are missing, wrong or expired",
            Self::PermissionDenied => "the credentials do not permit the request",
            Self::NotFound => "bucket, key or prefix not found",
            Self::LocalIo => "the destination cannot be read or written",
            Self::NoSpace => "the destination is full or too small",
            Self::Network => "the endpoint cannot be reached, or connections break",
            Self::Throttled => "the server asks for fewer requests",
            Self::Server => "the server fails or answers incorrectly",
            Self::Host => "this machine lacks a resource (memory, open files, io_uring)",
            Self::Deadline => "the --deadline has passed",
            Self::Interrupted => "interrupted (Ctrl-C, SIGTERM or SIGHUP)",
            Self::Internal => "a bug in inrush",
        }
    }

    /// What a failure of this kind is due to unless more is known.
    const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Objects => Self::ObjectsFailed,
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Access => Self::Credentials,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Destination => Self::LocalIo,
            ErrorKind::Endpoint => Self::Network,
            ErrorKind::Host => Self::Host,
            ErrorKind::Deadline => Self::Deadline,
            ErrorKind::Interrupted => Self::Interrupted,
        }
    }
}

/// One failure, in one line: what, where, why; then what to do.
///
/// Messages are lower case, without a final stop, and never hold a secret. They are complete
/// without the error that caused this one, which [`std::error::Error::source`] returns if it is
/// known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    reason: ErrorReason,
    message: String,
    advice: Option<String>,
    attempts: Option<u32>,
    request_id: Option<Box<str>>,
    cause: Cause,
}

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of `kind` with a message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            reason: ErrorReason::of(kind),
            message: message.into(),
            advice: None,
            attempts: None,
            request_id: None,
            cause: Cause::default(),
        }
    }

    /// This machine starts no thread more.
    #[must_use]
    pub fn no_thread(why: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Host, format!("cannot start a thread: {why}"))
            .advise("raise the limits of processes (ulimit -u) and address space (ulimit -v)")
    }

    /// Of a call to the kernel that failed with this error number: what this machine lacks is a
    /// failure of the host, whatever the call was for.
    #[must_use]
    pub fn of_call(self, errno: Option<i32>) -> Self {
        // EMFILE, ENFILE and ENOMEM of Linux on all processors.
        const OPEN_FILES: Option<i32> = Some(24);
        const ALL_OPEN_FILES: Option<i32> = Some(23);
        const MEMORY: Option<i32> = Some(12);
        let of_call = match errno {
            Some(errno) => self.caused_by(io::Error::from_raw_os_error(errno)),
            None => self,
        };
        let advice = match errno {
            OPEN_FILES => "raise the limit of open files (ulimit -n)",
            ALL_OPEN_FILES => "raise the machine's limit of open files (sysctl fs.file-max)",
            MEMORY => {
                "free memory, or raise this process's limits (ulimit -v, memory.max of its \
                 control group)"
            }
            _ => return of_call,
        };
        let (kind, reason) = (ErrorKind::Host, ErrorReason::Host);
        Self { kind, reason, ..of_call }.advise(advice)
    }

    /// Keeps what caused it. For an error that may hold an answer of a server or a request there is
    /// [`Self::caused_by_text_of`].
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Cause::new(cause);
        self
    }

    /// Keeps a copy of the I/O error that caused it.
    #[must_use]
    pub fn caused_by_io(self, cause: &io::Error) -> Self {
        self.caused_by(cause::copy_of(cause))
    }

    /// Keeps the texts of the errors that caused it, without secrets.
    #[must_use]
    pub fn caused_by_text_of(mut self, cause: &(dyn std::error::Error + 'static)) -> Self {
        self.cause = cause::texts_of(cause);
        self
    }

    /// Keeps what caused the other error, whose message is part of this one's.
    #[must_use]
    pub(crate) fn caused_as(mut self, other: &Self) -> Self {
        self.cause.clone_from(&other.cause);
        self
    }

    /// What caused it, the nearest error first, each in one line without secrets.
    #[must_use]
    pub fn causes(&self) -> Vec<String> {
        self.cause.texts()
    }

    /// Our own bug, where it costs a run and not the process.
    #[must_use]
    pub fn bug(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Host, format!("{what}: this is a bug in inrush"))
            .because(ErrorReason::Internal)
    }

    /// Says more exactly why, for programs.
    #[must_use]
    pub const fn because(mut self, reason: ErrorReason) -> Self {
        self.reason = reason;
        self
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

    /// Says how often it was tried, for programs.
    #[must_use]
    pub const fn attempted(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Says by which identifier the server knows the request, for programs; empty for none.
    #[must_use]
    pub fn of_request(mut self, id: &str) -> Self {
        self.request_id = (!id.is_empty()).then(|| id.into());
        self
    }

    /// How often it was tried in a row without new data, where it could be tried again.
    #[must_use]
    pub const fn attempts(&self) -> Option<u32> {
        self.attempts
    }

    /// By which identifier the server knows the request that failed, where it said one.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// What kind of trouble it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Why, for programs.
    #[must_use]
    pub const fn reason(&self) -> ErrorReason {
        self.reason
    }

    /// What the user can do about it.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// The message without the advice.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    /// With `{:#}`, a line follows for each cause whose text is not there yet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        if f.alternate() {
            let mut printed = self.message.clone();
            for cause in self.causes() {
                if !printed.contains(&cause) {
                    write!(f, "\ncaused by: {cause}")?;
                    printed += &cause;
                }
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.get()
    }
}

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
    fn programs_hear_how_often_and_of_which_request() {
        let error = Error::new(ErrorKind::Endpoint, "broken");
        assert_eq!((error.attempts(), error.clone().of_request("").request_id()), (None, None));
        let whole = error.attempted(3).of_request("R1").within("get s3://b/k");
        assert_eq!((whole.attempts(), whole.request_id()), (Some(3), Some("R1")));
        assert_eq!(whole.to_string(), "get s3://b/k: broken", "the message has its own words");
    }

    #[test]
    fn the_error_that_caused_it_stays_through_all_that_is_added() {
        use std::error::Error as _;

        let full = io::Error::from_raw_os_error(28);
        let error = Error::new(ErrorKind::Destination, "cannot write").caused_by_io(&full);
        let error = error.within("get s3://b/k").advise("free space").attempted(2).clone();
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(28));
        assert_eq!(error.causes(), [full.to_string()]);
        assert_eq!(error.to_string(), "get s3://b/k: cannot write; free space", "as without it");
        let of_call = Error::new(ErrorKind::Destination, "cannot open").of_call(Some(24));
        assert_eq!(of_call.causes(), [io::Error::from_raw_os_error(24).to_string()]);
        assert_eq!(of_call.kind(), ErrorKind::Host);
        let none = Error::new(ErrorKind::Destination, "cannot write");
        assert!(none.source().is_none() && none.causes().is_empty());
        assert_eq!(none, none.clone().caused_by(full), "what failed is the same");
    }

    #[test]
    fn reasons_have_the_names_that_json_has() {
        for reason in ErrorReason::ALL {
            assert_eq!(serde_json::json!(reason), reason.name());
        }
        let mut names = ErrorReason::ALL.map(ErrorReason::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
        for kind in ErrorKind::ALL {
            assert!(ErrorReason::ALL.contains(&Error::new(kind, "").reason()), "{kind:?}");
        }
        let full = Error::new(ErrorKind::Destination, "full").because(ErrorReason::NoSpace);
        assert_eq!((full.kind(), full.reason()), (ErrorKind::Destination, ErrorReason::NoSpace));
        assert_eq!(Error::bug("lost").to_string(), "lost: this is a bug in inrush");
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
