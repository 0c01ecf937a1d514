//! Servers of URLs that do not answer, so that many URLs of one do not wait for it one after the
//! other.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::control::limits::URL_SERVER_GONE_US;
use crate::error::{Error, ErrorKind, Result};

/// What the look-ups of URLs have shown of each server, by its scheme and host.
#[derive(Debug, Default)]
pub(super) struct WebServers(RefCell<HashMap<String, WebServer>>);

#[derive(Debug, Default)]
struct WebServer {
    /// Number of its answers.
    answers: u64,
    /// Why it was given up, if it has not answered since, and until when nobody asks it.
    gone: Option<(Error, u64)>,
}

impl WebServers {
    /// The number of answers so far of a server that is about to be asked.
    ///
    /// # Errors
    /// Why it was given up for another URL a short time ago.
    pub(super) fn begin(&self, origin: &str, now_us: u64) -> Result<u64> {
        match self.0.borrow().get(origin) {
            Some(WebServer { gone: Some((error, until_us)), .. }) if now_us < *until_us => {
                Err(error.clone())
            }
            Some(server) => Ok(server.answers),
            None => Ok(0),
        }
    }

    /// Records how a request has ended that began after this number of answers. One that was
    /// retried in vain shows that the server is gone, unless it answered others meanwhile.
    pub(super) fn end<T>(
        &self,
        origin: &str,
        answers_before: u64,
        outcome: &Result<T>,
        now_us: u64,
    ) {
        let mut servers = self.0.borrow_mut();
        let server = servers.entry(origin.to_owned()).or_default();
        match outcome {
            Ok(_) => {
                server.answers += 1;
                server.gone = None;
            }
            Err(error) => {
                let was_retried = error.attempts().is_some_and(|attempts| attempts > 1);
                let is_away = was_retried && error.kind() == ErrorKind::Endpoint;
                if is_away && server.answers == answers_before {
                    server.gone = Some((error.clone(), now_us + URL_SERVER_GONE_US));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_retried_in_vain_is_not_asked_again() {
        const ORIGIN: &str = "http://h";
        let servers = WebServers::default();
        let away = |tries| Err::<(), _>(Error::new(ErrorKind::Endpoint, "away").attempted(tries));
        assert_eq!(servers.begin(ORIGIN, 0), Ok(0));
        // Its answer is wrong, which says nothing of others.
        servers.end(ORIGIN, 0, &away(1), 0);
        let slow = servers.begin(ORIGIN, 0).expect("it is there");
        servers.end(ORIGIN, slow, &Ok(()), 0);
        servers.end(ORIGIN, slow, &away(9), 0);
        let next = servers.begin(ORIGIN, 0).expect("it has answered meanwhile");
        servers.end(ORIGIN, next, &away(9), 7);
        let gone = servers.begin(ORIGIN, 6 + URL_SERVER_GONE_US).expect_err("gone");
        assert_eq!(gone.message(), "away");
        assert_eq!(servers.begin("http://other", 8), Ok(0));
        assert_eq!(servers.begin(ORIGIN, 7 + URL_SERVER_GONE_US), Ok(1), "it may be back");
        // One that was asked before.
        servers.end(ORIGIN, next, &Ok(()), 8);
        assert_eq!(servers.begin(ORIGIN, 8), Ok(2));
    }
}
