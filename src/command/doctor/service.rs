//! Facts about the source's service, by a few requests.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::cli::{DoctorArgs, ServiceArgs};
use crate::command::context::Context;
use crate::command::session;
use crate::control::probe::{Probe, named};
use crate::control::{Control, Settings, now};
use crate::doctor::facts::{Grant, Keys, Proxy, Service, Trouble};
use crate::error::{Error, ErrorKind, Result};
use crate::report::progress::Progress;
use crate::s3::uri::{KeyPattern, S3Uri};

/// Size of the object at this address in bytes; `None` if it is a folder's, or may be.
pub(super) fn bytes_of_one(service: &Service, source: &S3Uri) -> Option<u64> {
    let (KeyPattern::Key(key) | KeyPattern::Exact { key, .. }) = &source.key else { return None };
    let (what, read) = service.object.as_ref()?;
    // For a folder without its slash, another object was read.
    read.as_ref().ok().copied().filter(|_| *what == named(&source.bucket, key))
}

/// Sends each request once: about the source, or without one about the service only.
pub(super) async fn look(
    args: &DoctorArgs,
    settings: &Result<Arc<Settings>>,
    outputs: (&Arc<Context>, &Progress),
) -> Service {
    let given = || Some(settings.clone());
    let source = args.source.as_ref();
    // A server that does not answer is not retried.
    let args = ServiceArgs {
        retry_for: args.service.retry_for.or(Some(Duration::ZERO)),
        ..args.service.clone()
    };
    let mut service = Service {
        bucket: source.map(|source| source.bucket.clone()).unwrap_or_default(),
        trusts_anyone: args.no_verify_ssl,
        ..Service::default()
    };
    let control = match session::control_with(&args, session::credentials(&args), outputs, given())
        .await
    {
        Ok(control) => control,
        Err(error) => {
            // Everything else works without them, except access to private objects.
            let args = ServiceArgs { no_sign_request: true, access_grants: None, ..args };
            let anonymous =
                session::control_with(&args, session::credentials(&args), outputs, given()).await;
            let is_access = error.kind() == ErrorKind::Access;
            // If a profile file is refused it gives no credentials either.
            match is_access || settings.is_err() || anonymous.is_ok() {
                true => service.credentials = Some(Err(trouble(error))),
                false => service.addresses = Some(Err(trouble(error))),
            }
            if let Ok(control) = anonymous {
                let probe = probe(&control, source).await;
                note(&mut service, &control, probe);
                service.object = None;
            }
            return service;
        }
    };
    let keys = control.credentials().map(|(from, ends, renews)| {
        let left_seconds = ends.map(left_seconds);
        Keys { from: from.to_owned(), left_seconds, renews }
    });
    service.credentials = Some(Ok(keys));
    let probe = probe(&control, source).await;
    note(&mut service, &control, probe);
    service
}

async fn probe(control: &Control, source: Option<&S3Uri>) -> Probe {
    match source {
        Some(source) => control.probe(source).await,
        None => control.probe_service().await,
    }
}

fn note(service: &mut Service, control: &Control, probe: Probe) {
    service.region = control.region().to_owned();
    service.addresses = probe.endpoint.map(|found| {
        let endpoint = found.map_err(trouble)?;
        service.host = endpoint.host.clone();
        service.is_tls = endpoint.tls;
        service.is_multi_region = endpoint.is_multi_region();
        service.proxy = endpoint
            .proxy
            .as_ref()
            .map(|proxy| Proxy { place: proxy.to_string(), advice: proxy.advice() });
        Ok(endpoint.addresses().iter().map(ToString::to_string).collect())
    });
    service.access_grant = probe.access_grant.map(|found| {
        let found = found.map_err(trouble)?.map(|(grant, ends)| Grant {
            scope: grant.scope,
            account: grant.account,
            left_seconds: left_seconds(ends),
        });
        Ok(found)
    });
    service.answered = probe.answered.map(|answered| answered.map_err(trouble));
    service.trusted = probe.trusted.map(|trusted| trusted.map_err(trouble));
    service.server_ahead_seconds = probe.server_ahead_seconds;
    service.bucket_region = probe.bucket_region;
    service.object = probe.object.map(|(what, read)| (what, read.map_err(trouble)));
    service.led_to = probe.led_to;
}

pub(super) fn trouble(error: Error) -> Trouble {
    Trouble { why: error.message().to_owned(), advice: error.advice().map(str::to_owned) }
}

/// Seconds until then; negative if it has passed.
fn left_seconds(ends: SystemTime) -> i64 {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match ends.duration_since(now()) {
        Ok(left) => seconds(left),
        Err(ago) => -seconds(ago.duration()),
    }
}
