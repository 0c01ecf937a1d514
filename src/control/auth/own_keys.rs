//! Requests for other keys, which the run's own keys sign.

use tokio::time::Instant;

use crate::control::client::{Answer, Client, Question};
use crate::control::{Control, now, server_error};
use crate::error::Result;
use crate::link::failure::RetryReason;
use crate::s3::Endpoint;

impl Control {
    /// Sends a request with the run's own keys, and again with newer ones where they have expired,
    /// and once by the server's clock.
    pub(super) async fn ask_by_own_keys(
        &self,
        client: &Client,
        endpoint: &Endpoint,
        question: &Question,
        what: &str,
    ) -> Result<Answer> {
        let keys = self.key_refresher.published();
        let (mut refused_since, mut may_set_clock) = (None, true);
        loop {
            let version = keys.version();
            let answer = client.ask(endpoint, question, keys, what).await;
            let mut answer = answer.map_err(|error| error.within(what))?;
            if answer.status == 200 {
                keys.note_accepted(version);
                return Ok(answer);
            }
            let refusal = server_error(&answer);
            if refusal.wants_newer_keys(keys, version) {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if self.key_refresher.await_newer(version, since).await {
                    continue;
                }
                answer.refused_keys = (since.elapsed(), keys.outlook());
            } else if let Some(server) = refusal.server_clock().filter(|_| may_set_clock) {
                may_set_clock = false;
                if keys.set_clock(server, now()) {
                    client.count(RetryReason::ClockSkew);
                    continue;
                }
            }
            return Ok(answer);
        }
    }
}
