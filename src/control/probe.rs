//! Requests for `doctor`, each sent once. Nothing is retried, so that a fault shows, and soon.

use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;

use http::Method;

use super::buckets::SERVICE;
use super::client::{Answer, Question, Trouble};
use super::endpoint::is_region;
use super::{Control, now, refusal, server_error};
use crate::error::{Error, ErrorKind, Result};
use crate::link::failure::RetryReason;
use crate::s3::Endpoint;
use crate::s3::answer::ERROR_BODY_BYTES_MAX;
use crate::s3::buckets::buckets_query;
use crate::s3::grants::{Grant, GrantTarget};
use crate::s3::list::{ListQuery, PAGE_BYTES_MAX, parse_page};
use crate::s3::uri::{KeyPattern, S3Uri, encode_key, encode_query, shown};

/// Keys listed to find one that is not a folder marker.
const KEYS_LISTED: u32 = 20;

/// Most pages that are listed to find a key that matches a glob.
const PAGES_LISTED_MAX: usize = 10;

/// Most times that one request follows a bucket to its region, and corrects its clock.
const FOLLOWS_MAX: usize = 2;

/// The findings, as far as they go.
#[derive(Debug, Default)]
pub struct Probe {
    /// The bucket's endpoint, or why its name has no address.
    pub endpoint: Option<Result<Arc<Endpoint>>>,
    /// The access grant and when its keys expire, `None` inside if the run's own keys are used, or
    /// why there is none. Only with access grants.
    pub access_grant: Option<Result<Option<(Grant, SystemTime)>>>,
    /// `Ok` if an answer came, else the reason.
    pub answered: Option<Result<()>>,
    /// `Ok` if the server's certificate is trusted, else the reason. Only over TLS.
    pub trusted: Option<Result<()>>,
    /// Seconds by which the Date of an answer is ahead of this machine's clock.
    pub server_ahead_seconds: Option<i64>,
    /// The bucket's region, if it is not the configured one.
    pub bucket_region: Option<String>,
    /// The last requested object, and its size in bytes.
    pub object: Option<(String, Result<u64>)>,
    /// The server that a redirect of the last request has led to.
    pub led_to: Option<String>,
}

impl Control {
    /// The credentials' source, their expiry, and true if the source gives newer ones before it;
    /// `None` if requests are not signed.
    #[must_use]
    pub fn credentials(&self) -> Option<(&'static str, Option<SystemTime>, bool)> {
        let keys = self.key_refresher.published().get()?;
        let from = self.key_refresher.from().unwrap_or("given");
        Some((from, keys.expires(), self.key_refresher.renews()))
    }

    /// Looks up the bucket, and requests one byte of an object of this address.
    pub async fn probe(&self, uri: &S3Uri) -> Probe {
        let mut probe = Probe::default();
        let (mut key, prefix) = match &uri.key {
            KeyPattern::Bucket => (None, String::new()),
            KeyPattern::Folder(prefix) | KeyPattern::Prefix(prefix) => (None, prefix.clone()),
            KeyPattern::Glob(glob) => (None, glob.list_prefix.clone()),
            KeyPattern::Key(key) => (Some(key.clone()), format!("{key}/")),
            KeyPattern::Exact { key, .. } => (Some(key.clone()), String::new()),
        };
        let about = key.as_deref().map_or(GrantTarget::Prefix(&prefix), GrantTarget::Object);
        let mut found = self.endpoint(&uri.bucket, about).await;
        let has_no_grant = match &found {
            Ok(endpoint) => self.grants.is_some() && endpoint.grant.is_none(),
            Err(refused) => self.may_lack_grant(refused),
        };
        if let (true, KeyPattern::Key(_)) = (has_no_grant, &uri.key)
            && let Ok(folder) = self.endpoint(&uri.bucket, GrantTarget::Prefix(&prefix)).await
            && folder.grant.is_some()
        {
            (found, key) = (Ok(folder), None);
        }
        if self.grants.is_some() {
            probe.access_grant = match &found {
                Ok(endpoint) => Some(Ok(endpoint.grant.clone().zip(endpoint.keys_expire()))),
                Err(error) if error.kind() == ErrorKind::Access => {
                    probe.access_grant = Some(Err(error.clone()));
                    return probe;
                }
                Err(_) => None,
            };
        }
        let is_found = found.is_ok();
        probe.endpoint = Some(found);
        if !is_found {
            return probe;
        }
        if let Some(key) = key {
            let read = self.probe_object(&mut probe, uri, &key).await;
            let is_other = matches!(&read, Some(Err(error)) if error.kind() == ErrorKind::NotFound
                && !error.message().contains("NoSuchBucket"));
            probe.object = read.map(|read| (named(&uri.bucket, &key), read));
            if !(is_other && matches!(uri.key, KeyPattern::Key(_))) {
                return probe;
            }
        }
        let what = format!("list s3://{}/{}", uri.bucket, shown(&prefix));
        match self.probe_listing(&mut probe, uri, &prefix, &what).await {
            None => {}
            Some(Err(error)) => probe.object = Some((what, Err(error))),
            Some(Ok(None)) if probe.object.is_some() => {}
            Some(Ok(None)) => {
                let why = match &uri.key {
                    KeyPattern::Glob(_) => "no object that matches is among the first ones",
                    _ => "no object is there",
                };
                let error = Error::new(ErrorKind::NotFound, format!("{what}: {why}"))
                    .advise("check the address: inrush ls s3://BUCKET/");
                probe.object = Some((what, Err(error)));
            }
            Some(Ok(Some(key))) => {
                let read = self.probe_object(&mut probe, uri, &key).await;
                probe.object = read.map(|read| (named(&uri.bucket, &key), read));
            }
        }
        probe
    }

    /// Looks up the service, and requests its list of buckets: any answer, even a refusal, shows
    /// that it is reachable.
    pub async fn probe_service(&self) -> Probe {
        let found = self.endpoint(SERVICE, GrantTarget::ALL).await;
        let is_found = found.is_ok();
        let mut probe = Probe { endpoint: Some(found), ..Probe::default() };
        if is_found {
            let target = format!("?{}", buckets_query(None));
            let question = Question::of_bucket(target, PAGE_BYTES_MAX);
            let request = (&question, "list buckets");
            let _ = self.ask_plainly(&mut probe, (SERVICE, GrantTarget::ALL), request).await;
        }
        // Without a bucket.
        Probe { bucket_region: None, ..probe }
    }

    /// The first key below the prefix that is a non-empty object, or else any; for a glob one that
    /// matches, in one of the first [`PAGES_LISTED_MAX`] pages.
    async fn probe_listing(
        &self,
        probe: &mut Probe,
        uri: &S3Uri,
        prefix: &str,
        what: &str,
    ) -> Option<Result<Option<String>>> {
        let (glob, keys_max) = match &uri.key {
            KeyPattern::Glob(glob) => (Some(glob), None),
            _ => (None, Some(KEYS_LISTED)),
        };
        let mut query = ListQuery { keys_max, ..ListQuery::new(prefix) };
        for _ in 0..PAGES_LISTED_MAX {
            let question = Question::of_bucket(format!("?{}", query.to_query()), PAGE_BYTES_MAX);
            let about = GrantTarget::Prefix(prefix);
            let asked = self.ask_plainly(probe, (&uri.bucket, about), (&question, what)).await?;
            let answer = match asked {
                Ok(answer) => answer,
                Err(error) => return Some(Err(error)),
            };
            if answer.status != 200 {
                return Some(Err(refusal(&answer, what)));
            }
            let page = match parse_page(&answer.body) {
                Ok(page) => page,
                Err(error) => return Some(Err(error.within(what))),
            };
            let objects = page.objects.iter();
            let mut wanted =
                objects.filter(|object| glob.is_none_or(|glob| glob.matches(&object.key)));
            let first = wanted.next();
            let full = first.into_iter().chain(wanted).find(|object| object.size_bytes > 0);
            if let Some(object) = full.or(first) {
                return Some(Ok(Some(object.key.clone())));
            }
            query.token = page.next_token;
            if query.token.is_none() || glob.is_none() {
                break;
            }
        }
        Some(Ok(None))
    }

    /// The size of the object, by a GET of its first byte.
    async fn probe_object(&self, probe: &mut Probe, uri: &S3Uri, key: &str) -> Option<Result<u64>> {
        let what = format!("get {}", named(&uri.bucket, key));
        let mut target = encode_key(key).to_string();
        if !uri.version_id.is_empty() {
            target.push_str(&format!("?versionId={}", encode_query(&uri.version_id)));
        }
        let question = Question {
            method: Method::GET,
            target,
            of_object: true,
            headers: vec![("range", "bytes=0-0".into())],
            body_bytes_max: ERROR_BODY_BYTES_MAX,
            leaves_rest: false,
        };
        let about = GrantTarget::Object(key);
        let asked = self.ask_plainly(probe, (&uri.bucket, about), (&question, &what)).await?;
        let answer = match asked {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error)),
        };
        Some(match answer.status {
            206 | 416 => super::object_of(key, &answer)
                .map(|found| found.size_bytes)
                .map_err(|error| error.within(&what)),
            200 => Err(Error::new(
                ErrorKind::Endpoint,
                format!("{what}: the server ignores Range, and sent the whole object"),
            )
            .advise("check that nothing between changes requests")),
            _ => Err(refusal(&answer, &what)),
        })
    }

    /// Sends a request once, in the bucket's region and with the server's clock, and once to each
    /// server that redirects lead to; `None` without an answer.
    async fn ask_plainly(
        &self,
        probe: &mut Probe,
        (bucket, about): (&str, GrantTarget<'_>),
        (question, what): (&Question, &str),
    ) -> Option<Result<Answer>> {
        probe.led_to = None;
        for _ in 0..=FOLLOWS_MAX {
            let endpoint = self.endpoint(bucket, about).await.ok()?;
            let keys = endpoint.session.as_ref().unwrap_or(self.key_refresher.published());
            let at = Cell::new(None);
            let awaited = format!("to answer {}", question.method);
            let _noted = self.client.retry_budget().begin(&endpoint.host_in_words(), awaited);
            let answer = match self.client.ask_once(&endpoint, question, keys, &at).await {
                Ok(answer) => answer,
                Err(trouble) => {
                    note_trouble(probe, endpoint.tls, trouble);
                    return None;
                }
            };
            probe.answered = Some(Ok(()));
            probe.trusted = endpoint.tls.then_some(Ok(()));
            let ahead = answer.header("date").and_then(ahead_seconds);
            probe.server_ahead_seconds = ahead.or(probe.server_ahead_seconds);
            let refusal = server_error(&answer);
            let is_fit = is_region(self.service.url.as_ref(), &refusal.region);
            if is_fit && answer.status != 200 {
                probe.bucket_region = Some(refusal.region.clone());
                let moved = self.settle(bucket, about, &refusal.region).await;
                if moved.is_ok_and(|moved| moved.region != endpoint.region) {
                    continue;
                }
            } else if let Some(server) = refusal.server_clock()
                && keys.set_clock(server, now())
            {
                continue;
            }
            let followed = self.follow_redirects(&endpoint, question, answer).await;
            return Some(match followed {
                Ok((answer, elsewhere)) => {
                    probe.led_to = elsewhere.map(|elsewhere| elsewhere.url().origin());
                    Ok(answer)
                }
                Err(failed) => Err(failed.into_error(what, "")),
            });
        }
        None
    }
}

/// The name of an object in [`Probe::object`].
#[must_use]
pub fn named(bucket: &str, key: &str) -> String {
    format!("s3://{bucket}/{}", shown(key))
}

/// Seconds by which this Date is ahead of the clock.
fn ahead_seconds(date: &str) -> Option<i64> {
    let server = httpdate::parse_http_date(date).ok()?;
    let seconds = |time: std::time::Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Some(match server.duration_since(now()) {
        Ok(ahead) => seconds(ahead),
        Err(behind) => -seconds(behind.duration()),
    })
}

fn note_trouble(probe: &mut Probe, is_tls: bool, trouble: Trouble) {
    let (error, of_tls) = match trouble {
        Trouble::Lasting(error) => (error, is_tls),
        Trouble::Passing(_, reason, why) => {
            let of_tls = is_tls && reason == RetryReason::Tls;
            (why, of_tls)
        }
    };
    if of_tls {
        // Something answered, or there would be no certificate.
        probe.answered = Some(Ok(()));
        probe.trusted = Some(Err(error));
    } else {
        probe.answered = Some(Err(error));
    }
}
