//! Requests for other keys, which the run's own keys sign.

use tokio::time::Instant;

use super::key_refusals::{AfterRefusal, KeyRefusals};
use crate::control::client::{Answer, Client, Question};
use crate::control::{Control, server_error};
use crate::error::Result;
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
        let mut refusals = KeyRefusals::default();
        loop {
            let version = keys.version();
            let answer = client.ask(endpoint, question, keys, what).await;
            let mut answer = answer.map_err(|error| error.within(what))?;
            if answer.status == 200 {
                keys.note_accepted(version);
                return Ok(answer);
            }
            let refusal = server_error(&answer);
            let replace = async |since: &mut Option<Instant>| {
                let since = *since.get_or_insert_with(Instant::now);
                Ok(self.key_refresher.await_newer(version, since).await)
            };
            let refused = (&refusal, &mut answer);
            if refusals.take(refused, (keys, version), (client, what), replace).await?
                == AfterRefusal::Again
            {
                continue;
            }
            return Ok(answer);
        }
    }
}
