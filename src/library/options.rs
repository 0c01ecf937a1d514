//! Options of a client: server, credentials and request settings.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::control::ControlOptions;
use crate::control::auth::credentials::CredentialSource;
use crate::control::auth::customer_key::customer_key;
use crate::control::dns::interfaces::named;
use crate::control::endpoint::AddressingStyle;
use crate::control::tls::Trust;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{LIST_REQUESTS_MAX, RETRY_FOR_US, TIMEOUT_MAX, TIMEOUT_MIN};
use crate::link::attempt::Timeouts;
use crate::s3::proxy::Proxies;
use crate::s3::sign::SigningKeys;

/// Server and credentials. Options that are `None` come from the environment and the profile, as in
/// the AWS tools. Proxies come from `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ClientOptions {
    /// URL of the server [default: the environment, the profile, or AWS].
    pub endpoint_url: Option<String>,
    /// Region of the buckets [default: the environment, the profile, or us-east-1].
    pub region: Option<String>,
    /// Profile of the AWS configuration files [default: `AWS_PROFILE`, or `default`].
    pub profile: Option<String>,
    /// Access key and secret key [default: the credential chain of the AWS tools].
    pub keys: Option<(String, Zeroizing<String>)>,
    /// Send unsigned requests, for public buckets.
    pub anonymous: bool,
    /// File of CA certificates (PEM) to trust instead of the system's.
    pub ca_bundle: Option<PathBuf>,
    /// Do not verify TLS certificates: anyone on the network path can read and change the data.
    /// Certificates of the servers that issue credentials are still verified.
    pub no_verify_ssl: bool,
    /// Where requests put the bucket's name [default: the profile, or `Auto`].
    pub addressing_style: Option<AddressingStyle>,
    /// Use AWS endpoints with IPv4 and IPv6 addresses [default: the environment, the profile].
    pub use_dualstack_endpoint: bool,
    /// Use AWS endpoints with FIPS 140 validated cryptography [default: as above].
    pub use_fips_endpoint: bool,
    /// Pay for requests to requester-pays buckets.
    pub requester_pays: bool,
    /// File with the SSE-C key: 32 bytes, raw or in base64; https only [default: the base64 in
    /// `INRUSH_SSE_C_KEY`].
    pub sse_c_key_file: Option<PathBuf>,
    /// Names of the network interfaces to connect over: workers are divided among them, listings
    /// use the first [default: the system's routes decide].
    pub interfaces: Vec<String>,
    /// Maximum number of concurrent requests that list one source.
    pub list_requests: Option<usize>,
    /// How long to retry an endpoint that does not answer [default: one minute].
    pub retry_for: Option<Duration>,
    /// Timeout for connecting [default: 3 seconds for listings, 10 for ranges].
    pub connect_timeout: Option<Duration>,
    /// Timeout for an attempt that receives no data [default: 30 seconds].
    pub read_timeout: Option<Duration>,
}

impl fmt::Debug for ClientOptions {
    /// Omits the secret key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("endpoint_url", &self.endpoint_url)
            .field("region", &self.region)
            .field("profile", &self.profile)
            .field("access_key", &self.keys.as_ref().map(|(access_key, _)| access_key))
            .field("anonymous", &self.anonymous)
            .field("ca_bundle", &self.ca_bundle)
            .field("no_verify_ssl", &self.no_verify_ssl)
            .field("addressing_style", &self.addressing_style)
            .field("interfaces", &self.interfaces)
            .field("retry_for", &self.retry_for)
            .finish_non_exhaustive()
    }
}

impl ClientOptions {
    /// Options with all defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the URL of the server.
    #[must_use]
    pub fn endpoint_url(self, url: impl Into<String>) -> Self {
        Self { endpoint_url: Some(url.into()), ..self }
    }

    /// Sets the region of the buckets.
    #[must_use]
    pub fn region(self, region: impl Into<String>) -> Self {
        Self { region: Some(region.into()), ..self }
    }

    /// Sets access key and secret key.
    #[must_use]
    pub fn keys(self, access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Self { keys: Some((access_key.into(), Zeroizing::new(secret_key.into()))), ..self }
    }

    /// Sends unsigned requests.
    #[must_use]
    pub fn anonymous(self) -> Self {
        Self { anonymous: true, ..self }
    }

    /// Converts the options to those of the control plane.
    pub(super) fn control(self) -> Result<ControlOptions> {
        let credentials = match (self.anonymous, self.keys) {
            (true, _) => CredentialSource::Anonymous,
            (false, Some((access_key, secret_key))) => {
                CredentialSource::Fixed(SigningKeys::new(&access_key, &secret_key, None, None)?)
            }
            (false, None) => CredentialSource::Chain,
        };
        if let Some(count) = self.list_requests
            && !(1..=LIST_REQUESTS_MAX).contains(&count)
        {
            let message = format!("{count} requests that list are not 1 to {LIST_REQUESTS_MAX}");
            return Err(Error::new(ErrorKind::Usage, message));
        }
        Ok(ControlOptions {
            endpoint_url: self.endpoint_url,
            region: self.region,
            profile: self.profile,
            credentials,
            trust: match (self.no_verify_ssl, self.ca_bundle) {
                (true, _) => Trust::Anyone,
                (false, bundle) => bundle.map_or(Trust::System, Trust::Bundle),
            },
            addressing: self.addressing_style,
            dualstack: self.use_dualstack_endpoint.then_some(true),
            fips: self.use_fips_endpoint.then_some(true),
            list_requests: self.list_requests,
            requester_pays: self.requester_pays,
            customer_key: customer_key(self.sse_c_key_file.as_deref())?,
            interfaces: named(&self.interfaces)?,
            retry_for_us: self.retry_for.map_or(RETRY_FOR_US, micros),
            timeouts: timeouts(self.connect_timeout, self.read_timeout)?,
            proxies: Proxies::from_variables(|name| std::env::var_os(name)),
            ..ControlOptions::default()
        })
    }
}

/// Checks the timeouts that the caller gave; `None` leaves the default.
pub(super) fn timeouts(connect: Option<Duration>, read: Option<Duration>) -> Result<Timeouts> {
    for (name, time) in [("connect_timeout", connect), ("read_timeout", read)] {
        let Some(time) = time.filter(|time| !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(time)) else {
            continue;
        };
        let range = format!("{} s to {} s", TIMEOUT_MIN.as_secs_f64(), TIMEOUT_MAX.as_secs());
        let message = format!("{name}: {} s is not within {range}", time.as_secs_f64());
        return Err(Error::new(ErrorKind::Usage, message));
    }
    Ok(Timeouts { connect_us: connect.map(micros), read_us: read.map(micros) })
}

/// Microseconds, saturating at `u64::MAX`.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_do_not_print_the_secret() {
        let text = format!("{:?}", ClientOptions::new().keys("AKID", "hush"));
        assert!(text.contains("AKID") && !text.contains("hush"), "{text}");
    }
}
