//! Redirects of signed requests, which are followed without a signature: the user has not named the
//! server that they lead to. The requests of ranges are the data plane's, which asks here for the
//! addresses of such servers.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use tokio::time::sleep;
use tracing::info;

use super::client::{Answer, Client, Question, Trouble, cause_of, shouted};
use super::limits::TRIES_MAX;
use super::retry_budget::pause;
use super::web::follow;
use super::{Control, server_error};
use crate::error::{Error, ErrorKind, Result};
use crate::link::attempt::{Attempts, Cause, NextTry};
use crate::link::failure::RetryReason;
use crate::link::waiting::Ticket;
use crate::s3::Endpoint;
use crate::s3::answer::{ServerError, leads_elsewhere};
use crate::s3::redirect::{Elsewhere, RedirectChain, Redirects, ServerLookUp, refuse};
use crate::s3::sign::PublishedKeys;
use crate::s3::web::WebUrl;

/// Why the request of a redirect has no answer that counts.
pub(super) struct Astray {
    why: Why,
    /// Where it was sent; `None` if the redirect is not followed.
    elsewhere: Option<Elsewhere>,
    /// Its cause, and the reason for the counters, if it may pass.
    passing: Option<(Cause, RetryReason)>,
}

enum Why {
    Refused(ServerError),
    Failed(Error),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Failed(error) => f.write_str(error.message()),
        }
    }
}

impl From<Error> for Astray {
    fn from(error: Error) -> Self {
        Self { why: Why::Failed(error), elsewhere: None, passing: None }
    }
}

impl Astray {
    /// The error of the request with this name; `tried` is how often it was sent, or empty.
    pub(super) fn into_error(self, what: &str, tried: &str) -> Error {
        let at = self.elsewhere.as_ref().map_or_else(String::new, Elsewhere::in_words);
        let context = format!("{what}{at}{tried}");
        let error = match self.why {
            Why::Refused(refusal) => refusal.of_url().into_error(&context),
            Why::Failed(error) => error.within(context),
        };
        self.elsewhere.map_or(error.clone(), |elsewhere| elsewhere.advise(error))
    }
}

/// The look-up of a server. The task that makes it may end first.
struct UnderWay<'a> {
    of: &'a Redirects,
    url: &'a WebUrl,
    has_ended: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.of.give_up(self.url);
        }
    }
}

/// The tries of a request that is redirected to servers that do not answer: each time its own
/// server is asked again, which may lead to another one by then.
#[derive(Default)]
pub(super) struct Detours {
    attempts: Attempts,
    ticket: Option<Ticket>,
}

impl Detours {
    /// Waits until the request's own server is to be asked again.
    ///
    /// # Errors
    /// The failure, if it is final.
    pub(super) async fn wait(&mut self, client: &Client, what: &str, failed: Astray) -> Result<()> {
        let (Some((cause, reason)), Some(elsewhere)) = (failed.passing, &failed.elsewhere) else {
            return Err(failed.into_error(what, ""));
        };
        let budget = client.retry_budget();
        let now_us = budget.now_us();
        let next = self.attempts.failed(now_us, cause, budget.policy(TRIES_MAX));
        let (tries, why) = (self.attempts.tries(), failed.why.to_string());
        let NextTry::Again { ceiling_us } = next else {
            let tried = format!(" ({})", self.attempts.tried(now_us).times());
            return Err(failed.into_error(what, &tried).attempted(tries));
        };
        client.count(reason);
        info!("{}{} is tried again, try {tries}: {why}", shouted(what), elsewhere.in_words());
        let whom = elsewhere.endpoint.host_in_words();
        let begin = || budget.begin(&whom, format!("to answer {}", shouted(what)));
        self.ticket.get_or_insert_with(begin).try_again(tries, &why);
        sleep(pause(ceiling_us)).await;
        Ok(())
    }
}

impl Control {
    /// The answer behind the redirects that this one begins, if it does: to a request of the URL
    /// that they lead to, which is sent once, without a signature and without headers of the user's
    /// options. And where they lead.
    pub(super) async fn follow_redirects(
        &self,
        endpoint: &Endpoint,
        question: &Question,
        first: Answer,
    ) -> Result<(Answer, Option<Elsewhere>), Astray> {
        let Some(redirects) = &endpoint.redirects else { return Ok((first, None)) };
        let names_region = !server_error(&first).region.is_empty();
        let leads_nowhere = first.header("location").is_none();
        if !leads_elsewhere(first.status) || names_region || leads_nowhere {
            return Ok((first, None));
        }
        let target = question.target_at(endpoint);
        let mut chain = RedirectChain::from(WebUrl::at(endpoint.tls, &endpoint.host, target));
        let mut answer = first;
        loop {
            let from = chain.url().clone();
            follow(&mut chain, &answer).map_err(|(why, _)| refuse(&why))?;
            info!("redirect: {from} leads to {}", chain.url());
            let endpoint = match redirects.find(chain.url(), None, Waker::noop())? {
                ServerLookUp::Found(known) => known,
                ServerLookUp::Awaited(_) => {
                    let found = self.server_of(chain.url()).await;
                    redirects.settle(chain.url(), found.clone());
                    found?
                }
            };
            let elsewhere = Elsewhere { chain: chain.clone(), endpoint };
            match self.ask_elsewhere(&elsewhere, question).await {
                Ok(next) if leads_elsewhere(next.status) => answer = next,
                Ok(last) => return Ok((last, Some(elsewhere))),
                Err((why, passing)) => {
                    return Err(Astray { why, elsewhere: Some(elsewhere), passing });
                }
            }
        }
    }

    /// Sends this request once to where a redirect leads; an answer that is neither a redirect nor
    /// the object's is a failure.
    async fn ask_elsewhere(
        &self,
        elsewhere: &Elsewhere,
        question: &Question,
    ) -> Result<Answer, (Why, Option<(Cause, RetryReason)>)> {
        let is_of_page = is_page(&question.target);
        let target = elsewhere.url().target().to_owned();
        let question = Question { target, ..question.clone() };
        let (server, unsigned) = (&elsewhere.endpoint, PublishedKeys::new(None));
        match self.client.ask_once(server, &question, &unsigned, &Cell::new(None)).await {
            Ok(answer) if answer.status == 200 && answer.is_page() && !is_of_page => {
                Err((Why::Failed(refuse("it leads to an HTML page, not to the object")), None))
            }
            Ok(answer) if matches!(answer.status, 200..=299 | 404 | 416) => Ok(answer),
            Ok(answer) if leads_elsewhere(answer.status) => Ok(answer),
            Ok(answer) => {
                let refusal = server_error(&answer);
                let (failure, cause) = cause_of(&refusal, server);
                let passing = refusal.is_transient().then(|| (cause, failure.reason()));
                Err((Why::Refused(refusal), passing))
            }
            Err(Trouble::Lasting(error)) => Err((Why::Failed(error), None)),
            Err(Trouble::Passing(cause, reason, error)) => {
                Err((Why::Failed(error), Some((cause, reason))))
            }
        }
    }

    /// The server of a URL that a redirect leads to, with its addresses.
    async fn server_of(&self, url: &WebUrl) -> Result<Arc<Endpoint>> {
        let name = format!("redirect {}", url.origin());
        if let Some(known) = self.endpoints.borrow().get(&name) {
            return Ok(Arc::clone(known));
        }
        let mut placed = self.place_web(url, url).await.map_err(|error| {
            let message = format!("a redirect leads to {}: {}", url.origin(), error.message());
            Error::new(ErrorKind::Endpoint, message).caused_as(&error).advise(
                "check the server's settings of its nodes, and the name servers of \
                 /etc/resolv.conf: this machine must reach the nodes, too",
            )
        })?;
        placed.is_led_to = true;
        self.keep_web(name, placed).await
    }

    /// The servers that the data plane is redirected to and whose addresses are not known, each
    /// with the endpoint that redirects.
    pub(super) fn redirects_wanted(&self) -> Vec<(Arc<Endpoint>, WebUrl)> {
        let all = self.endpoints().into_iter();
        let wanted = all.flat_map(|endpoint| {
            let urls = endpoint.redirects.as_ref().map_or_else(Vec::new, |it| it.take_wanted());
            urls.into_iter().map(move |url| (Arc::clone(&endpoint), url))
        });
        wanted.collect()
    }

    /// Forgets the servers of redirects that nobody uses any more.
    pub(super) fn forget_servers(&self) {
        self.endpoints.borrow_mut().retain(|_, endpoint| {
            let is_used = !endpoint.is_led_to || Arc::strong_count(endpoint) > 1;
            if !is_used {
                self.names.forget(endpoint);
            }
            is_used
        });
    }

    /// Looks up such a server.
    pub(super) async fn settle_redirect(&self, from: Arc<Endpoint>, url: WebUrl) {
        let Some(redirects) = &from.redirects else { return };
        let mut under_way = UnderWay { of: redirects, url: &url, has_ended: false };
        let found = self.server_of(&url).await;
        redirects.settle(&url, found);
        under_way.has_ended = true;
    }
}

/// True if a target is that of an HTML page by its name. An answer that says so of another object
/// is a proxy's, which redirects to a login.
fn is_page(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default().to_ascii_lowercase();
    path.ends_with(".html") || path.ends_with(".htm")
}
