//! What follows when a server refuses the keys of a request: newer ones where they have expired,
//! and once the server's clock.

use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use crate::control::client::{Answer, Client};
use crate::control::now;
use crate::error::Result;
use crate::link::failure::RetryReason;
use crate::s3::answer::ServerError;
use crate::s3::sign::PublishedKeys;

/// The refusals of one request so far.
#[derive(Debug, Default)]
pub(in crate::control) struct KeyRefusals {
    /// When a server refused the first keys.
    since: Option<Instant>,
    has_set_clock: bool,
}

/// What a refusal means for its request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::control) enum AfterRefusal {
    /// Send it again.
    Again,
    /// The answer stays.
    Final,
    /// It is not about keys.
    Unrelated,
}

impl KeyRefusals {
    /// Takes a refusal of the request that is to do `what`, signed with this version of these keys.
    /// `replace` waits for newer keys, and is true if there are; it gets and sets the time of the
    /// first refusal.
    ///
    /// # Errors
    /// That of `replace`.
    pub(in crate::control) async fn take(
        &mut self,
        (refusal, answer): (&ServerError, &mut Answer),
        (keys, version): (&PublishedKeys, u64),
        (client, what): (&Client, &str),
        replace: impl AsyncFnOnce(&mut Option<Instant>) -> Result<bool>,
    ) -> Result<AfterRefusal> {
        if refusal.wants_newer_keys(keys, version) {
            info!("{what}: the credentials have expired: asking for newer ones");
            client.count(RetryReason::ExpiredToken);
            if replace(&mut self.since).await? {
                return Ok(AfterRefusal::Again);
            }
            let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
            answer.refused_keys = (waited, keys.outlook());
            return Ok(AfterRefusal::Final);
        }
        let Some(server) = refusal.server_clock().filter(|_| !self.has_set_clock) else {
            return Ok(AfterRefusal::Unrelated);
        };
        self.has_set_clock = true;
        if !keys.set_clock(server, now()) {
            return Ok(AfterRefusal::Final);
        }
        client.count(RetryReason::ClockSkew);
        Ok(AfterRefusal::Again)
    }
}
