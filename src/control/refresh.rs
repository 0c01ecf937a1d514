//! Background tasks of a control plane: they refresh what expires.

use std::rc::Rc;

use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::timeout;

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
            tokio::time::sleep(limits::HELPER_USED_EVERY).await;
            drop(spawn_blocking(|| ()));
        }
    });
    Ok(())
}

/// Refreshes credentials, sessions and addresses while it is polled. Name servers that do not
/// answer do not delay new credentials.
pub async fn refresh(control: Rc<Control>) {
    tokio::join!(refresh_keys(&control), refresh_addresses(&control));
}

async fn refresh_keys(control: &Control) {
    let mut rounds = 0u32;
    loop {
        if timeout(limits::REFRESH_CHECK_PAUSE, control.refused()).await.is_ok() {
            control.renew_refused().await;
            // Credentials that could not be replaced are still refused.
            tokio::time::sleep(limits::REFUSED_PAUSE).await;
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(limits::REFRESH_CHECKS_PER_EXPIRY) {
            // A failure now is retried next time; requests report any error.
            let _ = control.refresh_if_needed(super::now()).await;
        }
    }
}

async fn refresh_addresses(control: &Control) {
    loop {
        tokio::time::sleep(limits::LOOKUPS_LOOK_PAUSE).await;
        control.refresh_addresses().await;
    }
}
