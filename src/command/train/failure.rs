//! Why a training job's run failed, and its exit code.

use super::child::NotStarted;
use crate::error::{Error, ErrorKind};

/// The exit code of a run with a command whose input failed: that of env(1) and timeout(1) for
/// their own failures.
pub(super) const INPUT_FAILED: u8 = 125;

/// Why a run failed.
pub(super) struct Failure {
    pub(super) error: Error,
    /// It was printed on standard error.
    pub(super) is_reported: bool,
    /// Its exit code, if the kind of the error has another.
    pub(super) code: Option<u8>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, is_reported: false, code: None }
    }
}

impl From<NotStarted> for Failure {
    fn from(NotStarted { code, error }: NotStarted) -> Self {
        Self { error, is_reported: false, code: Some(code) }
    }
}

impl Failure {
    /// The exit code of the process.
    pub(super) fn code(&self, has_command: bool) -> u8 {
        let own = self.error.kind().exit_code();
        let is_plain = matches!(self.error.kind(), ErrorKind::Usage | ErrorKind::Interrupted);
        self.code.unwrap_or(if has_command && !is_plain { INPUT_FAILED } else { own })
    }

    /// True if the job's files get the failure, too: an invalid command line starts no job.
    pub(super) fn is_of_the_job(&self) -> bool {
        let is_plain = matches!(self.error.kind(), ErrorKind::Usage | ErrorKind::Interrupted);
        self.code.is_some() || !is_plain
    }
}
