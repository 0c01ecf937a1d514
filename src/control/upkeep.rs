//! What a control plane does while nobody asks it anything.

use std::rc::Rc;

use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::timeout;

use super::{Control, limits};
use crate::error::{Error, Result};
use crate::sys::threads::start_in_library;

/// Starts the first helper thread of this runtime, and keeps it for as long as its tasks run.
/// Without any, tokio's `spawn_blocking` panics where the system has no thread left; with one, work
/// waits for it.
///
/// # Errors
/// [`crate::error::ErrorKind::Host`] where there is none to be had.
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

/// Keeps credentials, sessions and addresses fresh, for as long as it is polled. Name servers that
/// do not answer keep nobody's keys from being replaced.
pub async fn upkeep(control: Rc<Control>) {
    tokio::join!(keep_keys(&control), keep_addresses(&control));
}

async fn keep_keys(control: &Control) {
    let mut rounds = 0u32;
    loop {
        if timeout(limits::UPKEEP_PAUSE, control.refused()).await.is_ok() {
            control.renew_refused(super::now()).await;
            // What could not be replaced is still refused.
            tokio::time::sleep(limits::REFUSED_PAUSE).await;
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(limits::UPKEEP_ROUNDS_PER_EXPIRY) {
            // What fails now is tried again next time; requests say what is wrong, if anything is.
            let _ = control.refresh_if_needed(super::now()).await;
        }
    }
}

async fn keep_addresses(control: &Control) {
    loop {
        tokio::time::sleep(limits::LOOKUPS_LOOK_PAUSE).await;
        control.refresh_addresses().await;
    }
}
