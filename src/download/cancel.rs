//! How a run ends before its objects are complete: it is cancelled, or its deadline passes.

use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};

/// What may end a run early.
pub(crate) trait Cancel {
    /// Waits until the run is cancelled. Cancel safe.
    async fn cancelled(&mut self);

    /// Runs `work` until the run is cancelled or its deadline passes, which the error reports with
    /// the words of `when`.
    async fn unless_reported<T>(
        &mut self,
        when: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T>;

    /// Runs `work`, before any download, like [`Self::unless_reported`].
    async fn unless<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.unless_reported("before anything was downloaded", work).await
    }
}

/// Waits for this time; without one forever.
pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// Runs `work` until `cancelled` ends or the deadline passes. The error says `when`, and whom
/// `blame` names as waited for.
pub(crate) async fn unless<T>(
    (cancelled, deadline): (impl Future<Output = ()>, Option<Instant>),
    (when, blame): (&str, impl Fn() -> String),
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        biased;
        // Evaluated before the work is dropped, which may block.
        blame = async { cancelled.await; blame() } => {
            Err(Error::new(ErrorKind::Interrupted, format!("interrupted {when}{blame}")))
        }
        blame = async { until(deadline).await; blame() } => {
            let message = format!("the deadline has passed {when}{blame}");
            let error = Error::new(ErrorKind::Deadline, message);
            Err(error.advise("run it again with a longer --deadline"))
        }
        done = work => done,
    }
}
