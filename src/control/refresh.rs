//! Background tasks of a control plane: they refresh what expires.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Control, limits};
use crate::error::{Error, Result};
use crate::sys::threads::start_in_library;

/// Starts the first helper thread of this runtime, and keeps it alive while its tasks run. Without
/// any, tokio's `spawn_blocking` panics if the system has no thread left; with one, work is queued
/// for it.
///
/// # Errors
/// [`crate::error::ErrorKind::Host`] if no thread can be started.
pub fn keep_helper() -> Result<()> {
    start_in_library(|| spawn_blocking(|| ())).map_err(Error::no_thread)?;
    spawn_local(async {
        loop {
            sleep(limits::HELPER_USED_EVERY).await;
            drop(spawn_blocking(|| ()));
        }
    });
    Ok(())
}

/// Refreshes credentials, sessions, targets of URLs and addresses while it is polled, and looks up
/// servers to which redirects lead. Name servers
/// and servers of URLs that do not answer do not delay new credentials.
pub async fn refresh(control: Rc<Control>) {
    tokio::join!(
        refresh_keys(&control),
        refresh_urls(&control),
        look_up_redirects(&control),
        refresh_addresses(&control),
    );
}

async fn refresh_keys(control: &Control) {
    let mut check_at = Instant::now() + limits::EXPIRY_CHECK_PAUSE;
    loop {
        tokio::select! {
            biased;
            () = sleep_until(check_at) => {
                // A failure now is retried next time; requests report any error.
                let _ = control.refresh_if_needed(super::now()).await;
                check_at = Instant::now() + limits::EXPIRY_CHECK_PAUSE;
            }
            () = control.refused(false) => {
                control.renew_refused().await;
                // Credentials that could not be replaced are still refused.
                sleep(limits::REFUSED_PAUSE).await;
            }
            // Its session may be refused, too.
            () = control.met_bucket() => {}
        }
    }
}

async fn refresh_urls(control: &Control) {
    loop {
        tokio::select! {
            biased;
            () = control.refused(true) => {
                control.renew_refused_urls().await;
                sleep(limits::URL_RENEWAL_PAUSE).await;
            }
            // Its target may be refused, too.
            () = control.met_bucket() => {}
        }
    }
}

/// A server without an address holds up no other.
async fn look_up_redirects(control: &Control) {
    let mut asked = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = control.redirected() => {
                asked.extend(control.redirects_wanted().into_iter().map(|(from, url)| {
                    control.settle_redirect(from, url)
                }));
            }
            Some(()) = asked.next() => {}
            // Its redirects may be wanted, too.
            () = control.met_bucket() => {}
        }
    }
}

async fn refresh_addresses(control: &Control) {
    loop {
        tokio::select! {
            () = sleep(control.lookup_pause()) => control.refresh_addresses().await,
            // Its name may be due first.
            () = control.met_bucket() => {}
        }
    }
}

impl Control {
    /// Waits until the data plane's servers reject the credentials as expired, or a known bucket's
    /// session; if `of_urls`, the target of a URL instead.
    async fn refused(&self, of_urls: bool) {
        poll_fn(|context| {
            let waker = context.waker();
            let mut are_refused = !of_urls && self.key_refresher.are_refused(waker);
            let endpoints = self.endpoints();
            let mine = endpoints.iter().filter(|endpoint| endpoint.is_web() == of_urls);
            for session in mine.filter_map(|endpoint| endpoint.session.as_ref()) {
                session.wake_when_refused(waker);
                are_refused |= session.are_refused();
            }
            if are_refused { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Waits until the data plane is redirected to a server without known addresses.
    async fn redirected(&self) {
        poll_fn(|context| {
            let endpoints = self.endpoints();
            let redirects = endpoints.iter().filter_map(|known| known.redirects.as_ref());
            // All of them, so that each wakes this task.
            redirects.fold(Poll::Pending, |outcome, one| match one.poll_wanted(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => outcome,
            })
        })
        .await;
    }

    /// Waits for another bucket.
    async fn met_bucket(&self) {
        self.met.notified().await;
    }

    /// Time until the first name is due for a lookup, and at least a short pause.
    fn lookup_pause(&self) -> Duration {
        let now_us = self.client.retry_budget().now_us();
        let left = |next_us: u64| Duration::from_micros(next_us.saturating_sub(now_us));
        let due = self.names.next_us(&self.endpoints()).map_or(limits::LOOKUP_PAUSE_MAX, left);
        due.clamp(limits::LOOKUPS_LOOK_PAUSE, limits::LOOKUP_PAUSE_MAX)
    }
}
