//! Redirects of signed requests, which are followed without a signature: the user has not named the
//! server that they lead to. The requests of ranges are the data plane's, which asks here for the
//! addresses of such servers.

use std::sync::Arc;

use tracing::info;

use super::client::{Answer, Question};
use super::web::follow;
use super::{Ask, Control, server_error};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Endpoint;
use crate::s3::answer::leads_elsewhere;
use crate::s3::redirect::{Elsewhere, RedirectChain, refuse};
use crate::s3::sign::PublishedKeys;
use crate::s3::web::WebUrl;

impl Control {
    /// The answer behind the redirects that this one begins, if it does: to a request of the URL
    /// that they lead to, without a signature and without headers of the user's options.
    pub(super) async fn follow_redirects(
        &self,
        endpoint: &Endpoint,
        ask: &Ask<'_>,
        first: Answer,
    ) -> Result<Answer> {
        let Some(redirects) = &endpoint.redirects else { return Ok(first) };
        let names_region = !server_error(&first).region.is_empty();
        let leads_nowhere = first.header("location").is_none();
        if !leads_elsewhere(first.status) || names_region || leads_nowhere {
            return Ok(first);
        }
        let target = ask.question.target_at(endpoint);
        let mut chain = RedirectChain::from(WebUrl::at(endpoint.tls, &endpoint.host, target));
        let mut answer = first;
        loop {
            let from = chain.url().clone();
            follow(&mut chain, &answer).map_err(|(why, _)| refuse(&why).within(ask.what))?;
            info!("redirect: {from} leads to {}", chain.url());
            let known = redirects.find(chain.url()).map_err(|error| error.within(ask.what))?;
            let server = match known {
                Some(known) => known,
                None => {
                    let found = self.server_of(chain.url()).await;
                    redirects.settle(chain.url(), found.clone());
                    found.map_err(|error| error.within(ask.what))?
                }
            };
            let question =
                Question { target: chain.url().target().to_owned(), ..ask.question.clone() };
            let unsigned = PublishedKeys::new(None);
            let asked = self.client.ask(&server, &question, &unsigned, ask.what).await;
            answer = asked.map_err(|error| error.within(ask.what))?;
            match answer.status {
                200..=299 | 404 | 416 => return Ok(answer),
                status if leads_elsewhere(status) => {}
                _ => {
                    return Err(refused(&answer, ask.what, &Elsewhere { chain, endpoint: server }));
                }
            }
        }
    }

    /// The server of a URL that a redirect leads to, with its addresses.
    async fn server_of(&self, url: &WebUrl) -> Result<Arc<Endpoint>> {
        let name = format!("redirect {}", url.origin());
        if let Some(known) = self.endpoints.borrow().get(&name) {
            return Ok(Arc::clone(known));
        }
        let placed = self.place_web(url, url).await.map_err(|error| {
            let message = format!("a redirect leads to {}: {}", url.origin(), error.message());
            Error::new(ErrorKind::Endpoint, message).caused_as(&error).advise(
                "check the server's settings of its nodes, and the name servers of \
                 /etc/resolv.conf: this machine must reach the nodes, too",
            )
        })?;
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

    /// Looks up such a server.
    pub(super) async fn settle_redirect(&self, from: Arc<Endpoint>, url: WebUrl) {
        let found = self.server_of(&url).await;
        if let Some(redirects) = &from.redirects {
            redirects.settle(&url, found);
        }
    }
}

/// The error that a server to which redirects lead refuses the request.
fn refused(answer: &Answer, what: &str, elsewhere: &Elsewhere) -> Error {
    let what = format!("{what} at {}, where a redirect leads", elsewhere.url().origin());
    elsewhere.advise(server_error(answer).of_url().into_error(&what).attempted(answer.tries))
}
