//! The credentials of an instance's role, from its metadata service.

use aws_config::imds;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::provider::SharedCredentialsProvider;

use super::chain_http::ChainHttp;
use super::roles::Nothing;
use crate::control::endpoint::EndpointUrl;
use crate::control::limits::{METADATA_ATTEMPT_TIMEOUT, METADATA_TIMEOUT};
use crate::control::settings::{Found, Settings};
use crate::error::{Error, ErrorKind, Result};

/// The variables and profile settings with the metadata service's URL and IP version.
const METADATA_ENDPOINT: (&str, &str) =
    ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "ec2_metadata_service_endpoint");
const METADATA_MODE: (&str, &str) =
    ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "ec2_metadata_service_endpoint_mode");
/// Its URLs, over IPv4 and over IPv6.
const METADATA_URLS: [&str; 2] = ["http://169.254.169.254", "http://[fd00:ec2::254]"];

/// Whether the environment says that no metadata service is asked.
pub(super) fn is_disabled(settings: &Settings) -> bool {
    let said = settings.variable("AWS_EC2_METADATA_DISABLED");
    said.is_some_and(|said| said.eq_ignore_ascii_case("true"))
}

/// The role of this instance. Where its metadata service is stands in settings: aws-config would
/// read the profile files for that, by rules of its own.
pub(super) fn of_instance(
    settings: &Settings,
    http: &ChainHttp,
) -> Result<SharedCredentialsProvider> {
    if is_disabled(settings) {
        return Ok(SharedCredentialsProvider::new(Nothing));
    }
    let mode = settings.find(&[METADATA_MODE.0], METADATA_MODE.1);
    let mode = mode.map(|found| found.word(&["IPv4", "IPv6"])).transpose()?;
    let named = settings.find(&[METADATA_ENDPOINT.0], METADATA_ENDPOINT.1);
    let http = match &named {
        Some(Found { value, from }) => {
            EndpointUrl::parse(value, Some(from))?;
            http.by(from)
        }
        None => http.clone(),
    };
    let config = ProviderConfig::without_region().with_http_client(http);
    let usual = || METADATA_URLS[usize::from(mode == Some("IPv6"))].to_owned();
    let url = named.map_or_else(usual, |found| found.value);
    // The attempt's timeout must be the first to pass: only then can a silent service be
    // distinguished from none.
    let metadata = imds::Client::builder()
        .configure(&config)
        .connect_timeout(METADATA_TIMEOUT)
        .read_timeout(METADATA_TIMEOUT)
        .operation_attempt_timeout(METADATA_ATTEMPT_TIMEOUT)
        .operation_timeout(METADATA_TIMEOUT)
        .endpoint(&url)
        .map_err(|error| {
            let message = format!("{} is no URL: {error}", METADATA_ENDPOINT.0);
            Error::new(ErrorKind::Usage, message)
        })?
        .build();
    let builder = ImdsCredentialsProvider::builder().configure(&config).imds_client(metadata);
    Ok(SharedCredentialsProvider::new(builder.build()))
}
