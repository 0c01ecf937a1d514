//! `SigV4` signatures, and the complete head of a range GET.
//!
//! Pure: the time is an argument. [`sign_request`] is general and takes 10 to 12 µs.
//! [`RequestWriter`], for the data plane, writes into the caller's memory, caches the day's signing
//! key, and takes 2 to 3 µs. A test checks that both agree. [`crate::control`] provides the keys.
//! Both sign for all regions, too ([`ALL_REGIONS`], `v4a`), which takes longer.

mod keys;
mod v4a;
mod writer;

use std::fmt;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;

use crate::error::{Error, ErrorKind, Result};
use crate::s3::Endpoint;

pub use keys::{KeptKeys, PublishedKeys, SigningKeys};
pub use writer::{Get, HeadProblem, REQUEST_HEAD_BYTES_MAX, RequestWriter};

/// The user agent.
pub const USER_AGENT: &str = concat!("inrush/", env!("CARGO_PKG_VERSION"));
/// The service's name in signatures.
pub const SERVICE: &str = "s3";
/// The service's name in signatures for directory buckets.
pub const DIRECTORY_SERVICE: &str = "s3express";

/// The region of an endpoint whose requests are signed for all regions: by `SigV4A`. No region has
/// this name.
pub const ALL_REGIONS: &str = "*";

/// In place of a service's name: requests are not signed.
pub const NO_SERVICE: &str = "";

/// Signs a request without a body, which has a `Host` header and an encoded target.
pub fn sign_request<B>(
    request: &mut http::Request<B>,
    endpoint: &Endpoint,
    keys: &SigningKeys,
    now: SystemTime,
) -> Result<()> {
    if endpoint.is_multi_region() {
        return v4a::sign_request(request, endpoint, keys, now);
    }
    let trouble = |why: &dyn fmt::Display| {
        Error::new(ErrorKind::Usage, format!("the request cannot be signed: {why}"))
    };
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.session_token_name_override = Some(keys.token_header);
    let identity = Credentials::new(
        keys.access_key.as_str(),
        keys.secret.as_str(),
        keys.session_token.as_deref().cloned(),
        keys.expires,
        "inrush",
    )
    .into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(&endpoint.region)
        .name(endpoint.service)
        .time(now)
        .settings(settings)
        .build()
        .map_err(|error| trouble(&error))?
        .into();
    let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = host.ok_or_else(|| trouble(&"it has no host"))?;
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    // The scheme is not signed.
    let url = format!("http://{host}{target}");
    let headers = request
        .headers()
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let body = SignableBody::Bytes(&[]);
    let signable = SignableRequest::new(request.method().as_str(), url, headers, body)
        .map_err(|error| trouble(&error))?;
    let signed = sign(signable, &params).map_err(|error| trouble(&error))?;
    signed.into_parts().0.apply_to_request_http1x(request);
    Ok(())
}
