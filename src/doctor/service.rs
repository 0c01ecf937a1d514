//! The service: credentials, endpoint, clock, region, and an object.

use std::time::Duration;

use super::Finding;
use super::facts::{Service, Trouble};
use crate::limits::CLOCK_CORRECTION_MAX;

/// S3 refuses requests signed by a clock that is wrong by more than this, in seconds. Up to
/// [`CLOCK_CORRECTION_MAX`], requests are then signed by the server's clock.
const SKEW_REFUSED_SECONDS: u64 = 15 * 60;

/// A clock set over the network is never wrong by this much, in seconds.
const SKEW_SEEN_SECONDS: u64 = 60;

/// Credentials that expire sooner may expire during a run, in seconds.
const LEFT_SECONDS_LEAST: i64 = 15 * 60;

pub(super) fn judge(service: &Service) -> Vec<Finding> {
    let findings = [
        credentials(service),
        access_grant(service),
        endpoint(service),
        tls(service),
        clock(service),
        region(service),
        object(service),
    ];
    findings.into_iter().flatten().collect()
}

fn failed(check: &'static str, trouble: &Trouble, otherwise: &str) -> Finding {
    Finding::bad(check, &trouble.why, trouble.advice.as_deref().unwrap_or(otherwise))
}

/// A duration in words.
fn span(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

fn credentials(service: &Service) -> Option<Finding> {
    let keys = match service.credentials.as_ref()? {
        Err(trouble) => return Some(failed("credentials", trouble, "check --profile")),
        Ok(None) => return Some(Finding::ok("credentials", "none: requests are not signed")),
        Ok(Some(keys)) => keys,
    };
    let from = &keys.from;
    const FIX: &str = "get new ones, for example: aws login or aws sso login";
    Some(match keys.left_seconds {
        Some(left) if left <= 0 => {
            let ago = span(left.unsigned_abs());
            Finding::bad("credentials", format!("{from}: they have expired {ago} ago"), FIX)
        }
        Some(left) if left < LEFT_SECONDS_LEAST && !keys.renews => {
            let left = span(left.unsigned_abs());
            Finding::warn("credentials", format!("{from}: they expire in {left}"), FIX)
        }
        Some(left) => {
            let left = span(left.unsigned_abs());
            let then = if keys.renews { ", and are renewed then" } else { "" };
            Finding::ok("credentials", format!("{from}, for {left}{then}"))
        }
        None => Finding::ok("credentials", format!("{from}, without an end")),
    })
}

fn access_grant(service: &Service) -> Option<Finding> {
    const CHECK: &str = "access-grant";
    Some(match service.access_grant.as_ref()? {
        Err(trouble) => failed(CHECK, trouble, "ask for a grant with READ for the source"),
        Ok(None) => Finding::warn(
            CHECK,
            "none for the source: the credentials are used without one",
            "ask for a grant with READ for the source, or omit --access-grants",
        ),
        Ok(Some(grant)) => {
            let left = span(u64::try_from(grant.left_seconds).unwrap_or(0));
            let (scope, account) = (&grant.scope, &grant.account);
            let message =
                format!("{scope} of account {account}, for {left}, and its keys are renewed then");
            Finding::ok(CHECK, message)
        }
    })
}

fn endpoint(service: &Service) -> Option<Finding> {
    const FIX: &str = "check the network, --endpoint-url and --region";
    let fix = service.proxy.as_ref().map_or(FIX, |proxy| &proxy.advice);
    let host = match &service.proxy {
        Some(proxy) => &format!("{} by the proxy {}", service.host, proxy.place),
        None => &service.host,
    };
    let addresses = match service.addresses.as_ref()? {
        Err(trouble) => return Some(failed("endpoint", trouble, fix)),
        Ok(addresses) => addresses,
    };
    let named = match addresses.as_slice() {
        [one] if one == host => host.clone(),
        [one] => format!("{host} ({one})"),
        [one, ..] => format!("{host} ({one} and {} more)", addresses.len() - 1),
        [] => host.clone(),
    };
    Some(match service.answered.as_ref() {
        Some(Err(trouble)) => {
            // The error of a connection names its address itself.
            let behind =
                |name: &String| trouble.why.strip_prefix(name.as_str())?.strip_prefix(": ");
            let is_of_one = addresses.len() > 1 && addresses.iter().any(|at| behind(at).is_some());
            let named = if is_of_one { host } else { &named };
            let only = addresses.first().filter(|_| addresses.len() == 1);
            let why = only.and_then(behind).or_else(|| behind(&service.host));
            let why = format!("{named}: {}", why.unwrap_or(&trouble.why));
            failed("endpoint", &Trouble { why, ..trouble.clone() }, fix)
        }
        Some(Ok(())) => Finding::ok("endpoint", format!("{named} answers")),
        None => Finding::ok("endpoint", named),
    })
}

fn tls(service: &Service) -> Option<Finding> {
    if !service.is_tls {
        return None;
    }
    Some(match service.trusted.as_ref()? {
        Ok(()) if service.trusts_anyone => Finding::warn(
            "tls",
            "the certificate is not verified (--no-verify-ssl): anyone on the network path can \
             read and change the data",
            "omit --no-verify-ssl, and give its authority with --ca-bundle FILE",
        ),
        Ok(()) => Finding::ok("tls", "the certificate is trusted"),
        Err(trouble) => failed("tls", trouble, "give its authority with --ca-bundle FILE"),
    })
}

fn clock(service: &Service) -> Option<Finding> {
    const FIX: &str = "set it by the network: timedatectl set-ntp true, or chronyc makestep";
    let ahead = service.server_ahead_seconds?;
    let off = span(ahead.unsigned_abs());
    let side = if ahead > 0 { "behind" } else { "ahead of" };
    let found = format!("this machine's clock is {off} {side} the server's");
    Some(match ahead.unsigned_abs() {
        off if off > CLOCK_CORRECTION_MAX.as_secs() => {
            Finding::bad("clock", format!("{found}: S3 refuses what it signs"), FIX)
        }
        SKEW_REFUSED_SECONDS.. => Finding::warn(
            "clock",
            format!("{found}: requests are signed by the server's, after a refusal each run"),
            FIX,
        ),
        SKEW_SEEN_SECONDS.. => Finding::warn("clock", found, FIX),
        0..=1 => Finding::ok("clock", "as the server's"),
        _ => Finding::ok("clock", found),
    })
}

fn region(service: &Service) -> Option<Finding> {
    service.answered.as_ref()?.as_ref().ok()?;
    let (asked, bucket) = (&service.region, &service.bucket);
    if service.is_multi_region {
        let is_signed = matches!(service.credentials, Some(Ok(Some(_))));
        let how = if is_signed { "signed for all regions (SigV4A)" } else { "not signed" };
        let found = format!("{bucket} is a multi-region access point, and requests are {how}");
        return Some(Finding::ok("region", found));
    }
    Some(match &service.bucket_region {
        Some(other) if other != asked => Finding::warn(
            "region",
            format!("the bucket {bucket} is in {other}, not in {asked}: each run asks twice"),
            format!("give --region {other}, or export AWS_REGION={other}"),
        ),
        _ => Finding::ok("region", asked),
    })
}

fn object(service: &Service) -> Option<Finding> {
    let (asked, outcome) = service.object.as_ref()?;
    Some(match outcome {
        Ok(_) => {
            let at = service.led_to.as_ref().map_or_else(String::new, |server| {
                format!(" at {server}, where a redirect leads: requests to it are not signed")
            });
            Finding::ok("object", format!("{asked} can be read{at}"))
        }
        Err(trouble) => failed("object", trouble, "check SOURCE and the permissions"),
    })
}
