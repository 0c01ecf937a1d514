//! Sessions of directory buckets: opened at the first request for a bucket, replaced before they
//! expire.
//!
//! A session's credentials sign every request to its bucket, on both planes. Its answer is parsed
//! in [`crate::s3::session`].

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::control::client::Question;
use crate::control::limits::{CREDENTIALS_TIMEOUT, GRANTS_MAX, SESSION_REFRESH_AHEAD};
use crate::control::{Control, refusal, server_error};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Endpoint;
use crate::s3::session::{SESSION_ANSWER_BYTES_MAX, parse_session};
use crate::s3::uri::shown;

impl Control {
    /// Opens a session if the bucket uses them, and publishes its credentials; those of an access
    /// grant are asked for again. Without credentials there are no sessions.
    pub(in crate::control) async fn open_session(&self, endpoint: &Endpoint) -> Result<()> {
        let Some(session) = &endpoint.session else { return Ok(()) };
        if self.key_refresher.published().get().is_none() {
            return Ok(());
        }
        if let Some(grant) = &endpoint.grant {
            return self.renew_grant(endpoint, session, grant).await;
        }
        let what = format!("open a session with s3://{}", endpoint.bucket);
        let question = Question::of_bucket("?session".to_owned(), SESSION_ANSWER_BYTES_MAX);
        let answer = self.ask_by_own_keys(&self.client, endpoint, &question, &what).await?;
        if answer.status == 200 {
            let keys = parse_session(&answer.body).map_err(|error| error.within(&what))?;
            session.publish(Some(keys));
            return Ok(());
        }
        Err(match answer.status {
            401 | 403 if server_error(&answer).code == "AccessDenied" => {
                Error::new(server_error(&answer).kind(), server_error(&answer).to_string())
                    .within(what)
                    .advise("the credentials need s3express:CreateSession on this bucket")
            }
            _ => refusal(&answer, &what),
        })
    }

    /// Waits for newer keys than this version, which a bucket's server refuses; false if there are
    /// none. `since`: when it refused the first ones for this request.
    pub(in crate::control) async fn replace_keys(
        &self,
        endpoint: &Endpoint,
        version: u64,
        since: &mut Option<Instant>,
    ) -> Result<bool> {
        let is_again = since.is_some();
        let since = *since.get_or_insert_with(Instant::now);
        let Some(session) = &endpoint.session else {
            return Ok(self.key_refresher.await_newer(version, since).await);
        };
        if session.version() == version && !is_again {
            self.open_session(endpoint).await?;
        }
        Ok(session.version() != version)
    }

    /// Replaces the keys of sessions and access grants that expire soon; true if any are new.
    ///
    /// A failure is an error only once a session has expired: until then its credentials are used.
    pub(in crate::control) async fn refresh_sessions(&self, now: SystemTime) -> Result<bool> {
        let mut has_new = false;
        let mut failure = None;
        let is_due = |expires: SystemTime| now + SESSION_REFRESH_AHEAD >= expires;
        let endpoints = self.endpoints().into_iter();
        let due = endpoints.filter(|endpoint| endpoint.keys_expire().is_some_and(is_due)).collect();
        for (endpoint, renewed) in self.renew_sessions(due).await {
            match renewed {
                Ok(()) => has_new = true,
                Err(error) if endpoint.keys_expire().is_some_and(|expires| now < expires) => {
                    let bucket = shown(&endpoint.bucket);
                    warn!("credentials of bucket {bucket}: no newer ones yet: {error}");
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(has_new), Err)
    }

    /// Asks for newer keys of these endpoints, all at the same time: one that gets no answer holds
    /// up no other.
    pub(in crate::control) async fn renew_sessions(
        &self,
        due: Vec<Arc<Endpoint>>,
    ) -> Vec<(Arc<Endpoint>, Result<()>)> {
        let renewals = due.into_iter().map(async |endpoint| {
            let renewed = timeout(CREDENTIALS_TIMEOUT, self.open_session(&endpoint)).await;
            let renewed = renewed.unwrap_or_else(|_| {
                let seconds = CREDENTIALS_TIMEOUT.as_secs();
                let message = format!("no newer credentials within {seconds} s");
                Err(Error::new(ErrorKind::Endpoint, message))
            });
            (endpoint, renewed)
        });
        stream::iter(renewals).buffer_unordered(GRANTS_MAX).collect().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ListQuery;
    use crate::control::auth::credentials;
    use crate::control::loopback::{Reply, Server, control, run};
    use crate::link::failure::RetryReason;
    use crate::s3::grants::GrantTarget;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, UNIX_EPOCH};

    const BUCKET: &str = "train--usw2-az1--x-s3";

    /// The answer to CreateSession; its credentials expire at this minute after 2100.
    fn session(key: &str, minute: u64) -> Reply {
        Reply::new(
            200,
            format!(
                "<CreateSessionResult><Credentials><SessionToken>T-{key}</SessionToken>\
                 <SecretAccessKey>S</SecretAccessKey><AccessKeyId>{key}</AccessKeyId>\
                 <Expiration>2100-01-01T00:{minute:02}:00Z</Expiration></Credentials>\
                 </CreateSessionResult>"
            ),
        )
    }

    /// 2100-01-01T00:00:00Z plus `seconds`.
    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(4_102_444_800 + seconds)
    }

    fn is_session(head: &str) -> bool {
        head.starts_with(&format!("GET /{BUCKET}?session HTTP/1.1\r\n"))
    }

    /// Opens sessions in turn, the n-th until minute 5 n; answers listings.
    fn bucket() -> Server {
        let opened = AtomicU64::new(0);
        Server::start(move |head| {
            if is_session(head) {
                let number = opened.fetch_add(1, Ordering::SeqCst) + 1;
                return session(&format!("K{number}"), 5 * number);
            }
            Reply::new(200, Server::page(&[], None))
        })
    }

    async fn listed(control: &Control) -> Result<()> {
        control.list_page(BUCKET, &ListQuery::new("")).await.map(drop)
    }

    #[test]
    fn requests_are_signed_by_the_session() {
        let server = bucket();
        run(async {
            let control = control(&server).await;
            for _ in 0..2 {
                listed(&control).await.expect("a page");
            }
        });
        let seen = server.seen();
        assert_eq!(seen.len(), 3);
        assert!(is_session(&seen[0]), "{}", seen[0]);
        assert!(seen[0].contains("Credential=KEY/"), "{}", seen[0]);
        assert!(!seen[0].contains("token"), "{}", seen[0]);
        for head in &seen {
            assert!(head.contains("/us-east-1/s3express/aws4_request"), "{head}");
        }
        for head in &seen[1..] {
            assert!(head.contains("Credential=K1/"), "{head}");
            assert!(head.contains("\r\nx-amz-s3session-token: T-K1\r\n"), "{head}");
            assert!(head.contains(";x-amz-s3session-token"), "{head}");
            assert!(!head.contains("x-amz-security-token"), "{head}");
        }
    }

    #[test]
    fn a_session_is_replaced_before_it_ends() {
        let server = bucket();
        run(async {
            let control = control(&server).await;
            listed(&control).await.expect("a page");
            let endpoint = control.endpoint(BUCKET, GrantTarget::ALL).await.expect("it is known");
            let session = endpoint.session.clone().expect("a session");
            let key = || session.get().expect("keys").access_key().to_owned();
            assert_eq!(control.refresh_if_needed(at(179)).await, Ok(false));
            assert_eq!(key(), "K1");
            assert_eq!(control.refresh_if_needed(at(180)).await, Ok(true));
            assert_eq!(key(), "K2");
            assert_eq!(control.refresh_if_needed(at(200)).await, Ok(false));
            // Every holder of the endpoint has the new credentials, the data plane too.
            assert!(Arc::ptr_eq(
                &endpoint,
                &control.endpoint(BUCKET, GrantTarget::ALL).await.expect("known")
            ));
        });
        assert_eq!(server.seen().iter().filter(|head| is_session(head)).count(), 2);
    }

    #[test]
    fn a_session_that_cannot_be_replaced_counts_until_its_end() {
        let opened = AtomicU64::new(0);
        let server = Server::start(move |head| match opened.fetch_add(1, Ordering::SeqCst) {
            0 => session("K1", 5),
            _ if is_session(head) => Reply::new(403, "<Error><Code>AccessDenied</Code></Error>"),
            _ => Reply::new(200, Server::page(&[], None)),
        });
        run(async {
            let control = control(&server).await;
            listed(&control).await.expect("a page");
            assert_eq!(control.refresh_if_needed(at(299)).await, Ok(false));
            listed(&control).await.expect("the old keys count");
            let error = control.refresh_if_needed(at(300)).await.expect_err("it ended");
            assert_eq!(error.kind(), ErrorKind::Access);
        });
    }

    #[test]
    fn an_expired_session_is_replaced_once() {
        for (good, expected) in [("K2", None), ("K9", Some(ErrorKind::Access))] {
            let opened = AtomicU64::new(0);
            let server = Server::start(move |head| {
                if is_session(head) {
                    let number = opened.fetch_add(1, Ordering::SeqCst) + 1;
                    return session(&format!("K{number}"), 5);
                }
                match head.contains(&format!("Credential={good}/")) {
                    true => Reply::new(200, Server::page(&[], None)),
                    false => Reply::new(400, "<Error><Code>ExpiredToken</Code></Error>"),
                }
            });
            run(async {
                let control = control(&server).await;
                let outcome = listed(&control).await;
                assert_eq!(outcome.err().map(|error| error.kind()), expected);
            });
            assert_eq!(server.seen().len(), 4);
        }
    }

    #[test]
    fn expired_keys_are_replaced_before_a_session_is_given_up() {
        let server = Server::start(|head| match is_session(head) {
            true if head.contains("Credential=NEW/") => session("K1", 5),
            true => Reply::new(400, "<Error><Code>ExpiredToken</Code></Error>"),
            false => Reply::new(200, Server::page(&[], None)),
        });
        run(async {
            let mut control = control(&server).await;
            control.key_refresher = credentials::giving(&["OLD", "NEW"]).await;
            listed(&control).await.expect("a page");
            assert_eq!(control.retries()[RetryReason::ExpiredToken as usize], 1);
        });
    }

    #[test]
    fn a_busy_server_is_asked_for_a_session_again() {
        let busy = AtomicU64::new(0);
        let server = Server::start(move |head| match busy.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Reply::new(503, "<Error><Code>SlowDown</Code></Error>"),
            _ if is_session(head) => session("K1", 5),
            _ => Reply::new(200, Server::page(&[], None)),
        });
        run(async {
            let control = control(&server).await;
            listed(&control).await.expect("a page");
            assert_eq!(control.retries().iter().sum::<u64>(), 2);
        });
    }

    #[test]
    fn refusals_say_what_is_missing() {
        let check = |reply: fn() -> Reply, kind: ErrorKind, expected: &str| {
            let server = Server::start(move |_| reply());
            run(async {
                let control = control(&server).await;
                let error = listed(&control).await.expect_err("no session");
                assert_eq!(error.kind(), kind);
                let line = error.to_string();
                assert!(line.starts_with("open a session with s3://train--"), "{line}");
                assert!(line.contains(expected), "{line}");
            });
        };
        let denied = || Reply::new(403, "<Error><Code>AccessDenied</Code></Error>");
        check(denied, ErrorKind::Access, "s3express:CreateSession");
        let none = || Reply::new(404, "<Error><Code>NoSuchBucket</Code></Error>");
        check(none, ErrorKind::NotFound, "NoSuchBucket");
        let other = || Reply::new(200, Server::page(&[], None));
        check(other, ErrorKind::Endpoint, "AWS_S3_DISABLE_EXPRESS_SESSION_AUTH=true");
    }

    #[test]
    fn without_sessions_the_ordinary_keys_sign() {
        let server = bucket();
        run(async {
            let mut control = control(&server).await;
            control.service.sessions = false;
            listed(&control).await.expect("a page");
        });
        let seen = server.seen();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].contains("Credential=KEY/"), "{}", seen[0]);
        assert!(seen[0].contains("/s3express/aws4_request"), "{}", seen[0]);
    }
}
