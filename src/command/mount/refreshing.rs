//! `--refresh` of a mount: SIGHUP, and what is printed of each listing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::command::context::Context;
use crate::command::session::{Hangups, Interrupts};
use crate::error::Result;
use crate::mount::changes::refresh::RefreshCounts;
use crate::mount::serving::refresher::Relisting;
use crate::mount::serving::server::Server;
use crate::report::document::RefreshReport;
use crate::report::progress::Progress;
use crate::text::size::{Count, counted};

/// The refreshes of a mount; without `--refresh` there are none.
pub(super) struct Refreshing {
    /// The interval, and SIGHUPs.
    wanted: Option<(Duration, Hangups)>,
    /// To be notified to refresh now.
    now: Arc<Notify>,
    report: RefreshReport,
    /// The last one failed.
    has_failed: bool,
    /// It was said that there is no room for more changes.
    is_full: bool,
}

impl Refreshing {
    /// Listens for signals; with an interval, SIGHUP refreshes.
    pub(super) fn listen(
        interval: Option<Duration>,
        context: &Arc<Context>,
    ) -> Result<(Interrupts, Self)> {
        let (interrupts, wanted) = match interval {
            None => (Interrupts::listen(context)?, None),
            Some(interval) => {
                let (interrupts, hangups) = Interrupts::listen_except_hangup(context)?;
                (interrupts, Some((interval, hangups)))
            }
        };
        let (now, report) = (Arc::default(), RefreshReport::default());
        Ok((interrupts, Self { wanted, now, report, has_failed: false, is_full: false }))
    }

    /// Starts them, for the mount of this server.
    pub(super) fn start(&mut self, server: &mut Server, relisting: Option<Relisting>) {
        if let (Some((interval, _)), Some(relisting)) = (&self.wanted, relisting) {
            self.now = server.refresh(relisting, *interval);
        }
    }

    /// Refreshes at every SIGHUP, endlessly. Cancel safe.
    pub(super) async fn at_hangups(&mut self) -> std::convert::Infallible {
        let Some((_, hangups)) = &mut self.wanted else { return std::future::pending().await };
        loop {
            hangups.next().await;
            self.now.notify_one();
        }
    }

    /// Counts a refresh, and prints what users have to know of it.
    pub(super) fn note(&mut self, result: Result<RefreshCounts>, progress: &Progress) {
        let counts = match result {
            Ok(counts) => counts,
            Err(error) => {
                self.report.failed_refreshes += 1;
                let error = error.within("refresh");
                // The later ones of an outage say nothing new.
                match std::mem::replace(&mut self.has_failed, true) {
                    false => progress.error(&error),
                    true => tracing::info!("{error}"),
                }
                return;
            }
        };
        let RefreshCounts { new, replaced, gone, left_out } = counts;
        self.has_failed = false;
        self.report.refreshes += 1;
        self.report.new_files += new;
        self.report.replaced_files += replaced;
        self.report.gone_files += gone;
        let numbers = [new, replaced, gone].map(Count);
        tracing::info!(
            "refreshed: {} new, {} replaced, {} gone",
            numbers[0],
            numbers[1],
            numbers[2]
        );
        let was_full = std::mem::replace(&mut self.is_full, left_out > 0);
        if self.is_full && !was_full {
            progress.warn(format!(
                "no room for more changes: {} not shown as listed now until it is mounted again",
                counted(left_out, "object is", "objects are")
            ));
        }
    }

    /// What they came to, if there could be any.
    pub(super) fn report(&self) -> Option<RefreshReport> {
        self.wanted.as_ref().map(|_| self.report)
    }
}
