//! Lists the buckets that the credentials can see at the endpoint, page by page.

use super::client::Question;
use super::{Ask, Control, refusal, server_error};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::buckets::{BucketPage, buckets_query, parse_buckets};
use crate::s3::grants::GrantTarget;
use crate::s3::list::PAGE_BYTES_MAX;

/// Stands for the service itself instead of a bucket's name; no bucket has this name.
pub(super) const SERVICE: &str = "";

impl Control {
    /// One page of the list of buckets; `token` is the continuation token of the page before.
    ///
    /// # Errors
    /// If the server does not answer, refuses, or repeats the token.
    pub async fn list_buckets(&self, token: Option<&str>) -> Result<BucketPage> {
        let what = "list buckets";
        let question = Question::of_bucket(format!("?{}", buckets_query(token)), PAGE_BYTES_MAX);
        let answer =
            self.ask(Ask { bucket: SERVICE, about: GrantTarget::ALL, question, what }).await?;
        if answer.status != 200 {
            let error = refusal(&answer, what);
            return Err(match answer.status {
                401 | 403 if server_error(&answer).code == "AccessDenied" => error.advise(
                    "the credentials need s3:ListAllMyBuckets; a single bucket is listed with \
                     inrush ls s3://BUCKET/",
                ),
                _ => error,
            });
        }
        let page = parse_buckets(&answer.body).map_err(|error| error.within(what))?;
        if page.next_token.is_some() && page.next_token.as_deref() == token {
            let message = format!("{what}: the server gives the same continuation token again");
            return Err(Error::new(ErrorKind::Endpoint, message));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::super::loopback::{Reply, Server, control, run};
    use super::*;

    fn page(name: &str, next: &str) -> String {
        format!(
            "<ListAllMyBucketsResult><Buckets><Bucket><Name>{name}</Name></Bucket></Buckets>\
             <ContinuationToken>{next}</ContinuationToken></ListAllMyBucketsResult>"
        )
    }

    #[test]
    fn pages_are_asked_for_by_their_tokens_at_the_service_itself() {
        let server = Server::start(|head| {
            let second = head.starts_with("GET /?continuation-token=t%2F1&max-buckets=1000 ");
            Reply::new(200, if second { page("two", "") } else { page("one", "t/1") })
        });
        run(async {
            let control = control(&server).await;
            let first = control.list_buckets(None).await.expect("a page");
            assert_eq!(first.buckets[0].name, "one");
            let token = first.next_token.as_deref();
            let second = control.list_buckets(token).await.expect("a page");
            assert_eq!((second.buckets[0].name.as_str(), second.next_token), ("two", None));
        });
        let first = &server.seen()[0];
        assert!(first.starts_with("GET /?max-buckets=1000 "), "{first}");
        assert!(first.contains("/us-east-1/s3/aws4_request"), "{first}");
    }

    #[test]
    fn the_same_token_again_is_an_error() {
        let server = Server::start(|_| Reply::new(200, page("one", "t")));
        run(async {
            let control = control(&server).await;
            let error = control.list_buckets(Some("t")).await.expect_err("a loop");
            assert!(error.to_string().contains("same continuation token"), "{error}");
        });
    }

    #[test]
    fn a_refusal_is_of_access() {
        let body = "<Error><Code>AccessDenied</Code><RequestId>R1</RequestId></Error>";
        let server = Server::start(move |_| Reply::new(403, body));
        run(async {
            let error = control(&server).await.list_buckets(None).await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Access);
            let line = error.to_string();
            assert!(line.starts_with("list buckets: ") && line.contains("s3:ListAll"), "{line}");
        });
    }
}
