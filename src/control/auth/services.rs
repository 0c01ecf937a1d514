//! Configurations of the SDK's clients for STS and single sign-on, from single settings.
//!
//! A client reads the environment and the profile if its configuration has a `service_config`. None
//! has: the client would read values that `settings.rs` has not checked, and take an empty variable
//! for a URL.

use aws_config::BehaviorVersion;
use aws_types::SdkConfig;
use aws_types::region::Region;
use aws_types::sdk_config::{RetryConfig, SharedTimeSource};

use super::chain_http::{ChainHttp, CredentialService};
use super::roles;
use crate::control::settings::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::aws::Variant;

/// The one variable that clients read in any case. They panic if it does not name a valid file.
const PARTITIONS: &str = "SMITHY_CLIENT_SDK_CUSTOM_PARTITION";

/// Settings that the clients of all services share.
#[derive(Debug, Clone)]
pub(super) struct Services {
    pub(super) http: ChainHttp,
    region: Region,
    variant: Variant,
}

impl Services {
    /// # Errors
    /// [`ErrorKind::Usage`] if a switch of the endpoints' variants is neither true nor false, or
    /// [`PARTITIONS`] is set.
    pub(super) fn new(settings: &Settings, region: &str, http: ChainHttp) -> Result<Self> {
        if std::env::var_os(PARTITIONS).is_some() && !roles::services(settings).is_empty() {
            let message = format!("{PARTITIONS} is set, which is not supported");
            return Err(Error::new(ErrorKind::Usage, message).advise(format!("unset {PARTITIONS}")));
        }
        Ok(Self {
            http,
            region: Region::new(region.to_owned()),
            variant: Variant {
                fips: settings.switch("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint")?,
                dualstack: settings
                    .switch("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint")?,
            },
        })
    }

    /// The configuration for a service, in the region of the run.
    pub(super) fn config(&self, service: CredentialService) -> SdkConfig {
        self.config_in(service, self.region.clone())
    }

    /// The configuration for a service in another region.
    pub(super) fn config_in(&self, service: CredentialService, region: Region) -> SdkConfig {
        let url = self.http.url(service).map(str::to_owned);
        // Only AWS has these variants.
        let is_at_aws = url.is_none();
        let mut config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .retry_config(RetryConfig::standard())
            .time_source(SharedTimeSource::default())
            .http_client(self.http.of(service))
            .region(region)
            .use_fips(self.variant.fips && is_at_aws)
            .use_dual_stack(self.variant.dualstack && is_at_aws);
        config.set_endpoint_url(url);
        config.build()
    }

    /// The URL that renews the keys of a session of `aws login`; at AWS in this region, or in that
    /// of the run.
    pub(super) fn sign_in_url(&self, region: Option<&str>) -> String {
        let at_aws = || {
            let region = region.unwrap_or(self.region.as_ref());
            format!("https://{}", self.variant.sign_in_host(region))
        };
        let base = self.http.url(CredentialService::SignIn).map_or_else(at_aws, str::to_owned);
        format!("{}/v1/token", base.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::settings::Found;
    use crate::control::tls::Trust;
    use crate::s3::proxy::Proxies;

    /// Which variants of STS are asked does not depend on where other services are.
    #[test]
    fn validated_endpoints_of_sts_are_used_unless_it_is_elsewhere() {
        let variables = [("AWS_USE_FIPS_ENDPOINT", "true"), ("AWS_USE_DUALSTACK_ENDPOINT", "true")];
        let settings = Settings::of(&variables, &[], None).expect("words");
        for (service, expected) in [
            (None, true),
            (Some(CredentialService::Sso), true),
            (Some(CredentialService::Sts), false),
        ] {
            let found = Found { value: "http://host".to_owned(), from: "URL".to_owned() };
            let urls = service.map(|service| (service, found));
            let http =
                ChainHttp::new(Trust::System, Proxies::default(), urls.into_iter().collect());
            let services = Services::new(&settings, "us-east-1", http).expect("switches");
            let sts = services.config(CredentialService::Sts);
            assert_eq!((sts.use_fips(), sts.use_dual_stack()), (Some(expected), Some(expected)));
            assert!(sts.service_config().is_none(), "nothing of the environment");
        }
    }
}
