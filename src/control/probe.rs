//! A few questions, each asked once: what `doctor` wants to know of a service. Nothing is tried
//! again, so that what is wrong is seen, and soon.

use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;

use http::Method;

use super::buckets::SERVICE;
use super::client::{Answer, Question, Trouble};
use super::endpoint::is_region;
use super::{Control, now, refusal, told};
use crate::error::{Error, ErrorKind, Result};
use crate::link::failure::RetryReason;
use crate::s3::Endpoint;
use crate::s3::answer::ERROR_BODY_BYTES_MAX;
use crate::s3::buckets::buckets_query;
use crate::s3::list::{ListQuery, PAGE_BYTES_MAX, parse_page};
use crate::s3::uri::{KeyPattern, S3Uri, encode_key, encode_query, shown};

/// How many keys are listed to find one that is no folder's mark.
const KEYS_LISTED: u32 = 20;

/// How often one question follows a bucket to its region, and is signed by the server's clock.
const FOLLOWS_MAX: usize = 2;

/// What was found out, as far as it came.
#[derive(Debug, Default)]
pub struct Probe {
    /// Where the bucket is; why its name has no address.
    pub endpoint: Option<Result<Arc<Endpoint>>>,
    /// Whether an answer came; why not.
    pub answered: Option<Result<()>>,
    /// Whether the server's certificate is trusted, or why not. Only over TLS.
    pub trusted: Option<Result<()>>,
    /// By how many seconds the Date of an answer is ahead of this machine's clock.
    pub server_ahead_seconds: Option<i64>,
    /// The region that the bucket turned out to be in, where it is another one.
    pub bucket_region: Option<String>,
    /// What was asked for last, and how many bytes that object has.
    pub object: Option<(String, Result<u64>)>,
}

impl Control {
    /// Where the credentials are from, and when they end; `None` where requests are not signed.
    #[must_use]
    pub fn credentials(&self) -> Option<(&'static str, Option<SystemTime>)> {
        let keys = self.keeper.published().get()?;
        Some((self.keeper.from().unwrap_or("given"), keys.expires()))
    }

    /// Looks up the bucket, and asks for a byte of an object of this address.
    pub async fn probe(&self, uri: &S3Uri) -> Probe {
        let mut probe = Probe::default();
        let found = self.endpoint(&uri.bucket).await;
        let is_found = found.is_ok();
        probe.endpoint = Some(found);
        if !is_found {
            return probe;
        }
        let (key, prefix) = match &uri.key {
            KeyPattern::Bucket => (None, String::new()),
            KeyPattern::Folder(prefix) | KeyPattern::Prefix(prefix) => (None, prefix.clone()),
            KeyPattern::Glob(glob) => (None, glob.list_prefix.clone()),
            KeyPattern::Key(key) => (Some(key.clone()), format!("{key}/")),
            KeyPattern::Exact { key, .. } => (Some(key.clone()), String::new()),
        };
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
                let error = Error::new(ErrorKind::NotFound, format!("{what}: no object is there"))
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

    /// Looks up the service, and asks it for its buckets: who answers that, be it by a refusal, is
    /// reached.
    pub async fn probe_service(&self) -> Probe {
        let found = self.endpoint(SERVICE).await;
        let is_found = found.is_ok();
        let mut probe = Probe { endpoint: Some(found), ..Probe::default() };
        if is_found {
            let target = format!("?{}", buckets_query(None));
            let question = Question::of_bucket(target, PAGE_BYTES_MAX);
            let _ = self.ask_plainly(&mut probe, SERVICE, &question).await;
        }
        // Of no bucket.
        Probe { bucket_region: None, ..probe }
    }

    /// The first key below the prefix that is an object with bytes, or else any.
    async fn probe_listing(
        &self,
        probe: &mut Probe,
        uri: &S3Uri,
        prefix: &str,
        what: &str,
    ) -> Option<Result<Option<String>>> {
        let query = ListQuery { keys_max: Some(KEYS_LISTED), ..ListQuery::new(prefix) };
        let question = Question::of_bucket(format!("?{}", query.to_query()), PAGE_BYTES_MAX);
        let answer = self.ask_plainly(probe, &uri.bucket, &question).await?;
        if answer.status != 200 {
            return Some(Err(refusal(&answer, what)));
        }
        Some(parse_page(&answer.body).map_err(|error| error.within(what)).map(|page| {
            let objects = page.objects;
            let full = objects.iter().find(|object| object.size_bytes > 0);
            full.or(objects.first()).map(|object| object.key.clone())
        }))
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
            header: Some(("range", "bytes=0-0".into())),
            body_bytes_max: ERROR_BODY_BYTES_MAX,
        };
        let answer = self.ask_plainly(probe, &uri.bucket, &question).await?;
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

    /// Asks once, in the bucket's region and by the server's clock; `None` where no answer came.
    async fn ask_plainly(
        &self,
        probe: &mut Probe,
        bucket: &str,
        question: &Question,
    ) -> Option<Answer> {
        for _ in 0..=FOLLOWS_MAX {
            let endpoint = self.endpoint(bucket).await.ok()?;
            let keys = endpoint.session.as_ref().unwrap_or(self.keeper.published());
            let at = Cell::new(None);
            let what = format!("to answer {}", question.method);
            let _noted = self.client.patience().begin(&endpoint.host_in_words(), what);
            let mut answer = match self.client.ask_once(&endpoint, question, keys, &at).await {
                Ok(answer) => answer,
                Err(trouble) => {
                    note_trouble(probe, endpoint.tls, trouble);
                    return None;
                }
            };
            answer.is_unsigned = keys.get().is_none();
            probe.answered = Some(Ok(()));
            probe.trusted = endpoint.tls.then_some(Ok(()));
            let ahead = answer.header("date").and_then(ahead_seconds);
            probe.server_ahead_seconds = ahead.or(probe.server_ahead_seconds);
            let told = told(&answer);
            let is_fit = is_region(self.service.url.as_ref(), &told.region);
            if is_fit && told.region != endpoint.region && answer.status != 200 {
                probe.bucket_region = Some(told.region.clone());
                let moved = self.settle(bucket, &told.region).await;
                if moved.is_ok_and(|moved| moved.region != endpoint.region) {
                    continue;
                }
            } else if let Some(server) = told.server_clock()
                && keys.set_clock(server, now())
            {
                continue;
            }
            return Some(answer);
        }
        None
    }
}

/// An object as [`Probe::object`] names it.
#[must_use]
pub fn named(bucket: &str, key: &str) -> String {
    format!("s3://{bucket}/{}", shown(key))
}

/// By how many seconds this Date is ahead of the clock.
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
            (Error::new(ErrorKind::Endpoint, why), of_tls)
        }
    };
    if of_tls {
        // Something did answer, or there would be no certificate.
        probe.answered = Some(Ok(()));
        probe.trusted = Some(Err(error));
    } else {
        probe.answered = Some(Err(error));
    }
}
