//! Keys by the standard AWS chain, published to all who sign and replaced before they end.
//!
//! The chain itself is aws-config's: environment, profile (static, SSO, process, role), web
//! identity, container, instance metadata. How to sign is [`crate::s3::sign`]'s matter.

use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::imds;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_types::region::Region;
use tokio::time::timeout;
use tracing::info;

use super::chain_http::ChainHttp;
use super::limits::{
    CREDENTIALS_TIMEOUT, METADATA_ATTEMPT_TIMEOUT, METADATA_TIMEOUT, REFRESH_AHEAD, REFRESH_PAUSE,
};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::sign::{PublishedKeys, SigningKeys};

/// Longest text of a failure taken over from the chain, in characters.
const REASON_CHARS_MAX: usize = 400;

/// What names the metadata service in the chain's words.
const METADATA_WORD: &str = "IMDS";

/// Where keys come from.
#[derive(Debug, Clone, Default)]
pub enum CredentialSource {
    /// Requests without signatures (`--no-sign-request`).
    Anonymous,
    /// The standard AWS chain.
    #[default]
    Chain,
    /// These keys, for good.
    Fixed(SigningKeys),
}

/// Holds the keys in force, and gets newer ones.
#[derive(Debug)]
pub(crate) struct KeyRefresher {
    provider: Option<SharedCredentialsProvider>,
    /// The profile that was named, for messages.
    profile: Option<String>,
    published: Arc<PublishedKeys>,
    /// Before this the source is not asked again.
    not_before: Cell<SystemTime>,
}

impl KeyRefresher {
    pub(crate) async fn new(
        source: &CredentialSource,
        profile: Option<&str>,
        region: &str,
        http: ChainHttp,
    ) -> Result<Self> {
        match source {
            CredentialSource::Anonymous => Ok(Self::without_provider(None)),
            CredentialSource::Fixed(keys) => Ok(Self::without_provider(Some(keys.clone()))),
            CredentialSource::Chain => {
                let region = Region::new(region.to_owned());
                Self::with_provider(chain(profile, region, http).await, profile).await
            }
        }
    }

    fn without_provider(keys: Option<SigningKeys>) -> Self {
        if keys.is_none() {
            info!("credentials: none, requests are not signed");
        }
        let published = Arc::new(PublishedKeys::new(keys));
        let not_before = Cell::new(SystemTime::UNIX_EPOCH);
        Self { provider: None, profile: None, published, not_before }
    }

    async fn with_provider(
        provider: SharedCredentialsProvider,
        profile: Option<&str>,
    ) -> Result<Self> {
        let keys = ask(&provider, profile).await?;
        let profile = profile.map(str::to_owned);
        Ok(Self { provider: Some(provider), profile, ..Self::without_provider(Some(keys)) })
    }

    pub(crate) const fn published(&self) -> &Arc<PublishedKeys> {
        &self.published
    }

    /// Replaces the keys if they end soon; tells whether there are new ones.
    ///
    /// A failure counts only once the keys have ended: until then the old ones do.
    pub(crate) async fn refresh_if_needed(&self, now: SystemTime) -> Result<bool> {
        let Some(expires) = self.published.get().and_then(|keys| keys.expires()) else {
            return Ok(false);
        };
        if now + REFRESH_AHEAD < expires {
            return Ok(false);
        }
        match self.refresh(now).await {
            Err(_) if now < expires => Ok(false),
            outcome => outcome,
        }
    }

    /// Replaces the keys if the data plane met a server that calls them expired. Where there is no
    /// newer key that is said, so that nobody asks again in vain.
    pub(crate) async fn renew_refused(&self, now: SystemTime) {
        if !self.published.are_refused() || now < self.not_before.get() {
            return;
        }
        let version = self.published.version();
        if matches!(self.refresh(now).await, Ok(false)) {
            self.published.set_last(version);
        }
    }

    /// Replaces the keys now, since the server does not take them; tells whether they differ.
    ///
    /// Many requests may fail for one reason: the source is asked once in [`REFRESH_PAUSE`].
    pub(crate) async fn refresh(&self, now: SystemTime) -> Result<bool> {
        let Some(provider) = &self.provider else { return Ok(false) };
        if now < self.not_before.get() {
            return Ok(false);
        }
        self.not_before.set(now + REFRESH_PAUSE);
        let keys = ask(provider, self.profile.as_deref()).await?;
        if self.published.get().as_deref() == Some(&keys) {
            return Ok(false);
        }
        self.published.publish(Some(keys));
        Ok(true)
    }
}

/// The chain. A profile named on the command line stands alone: the environment's keys would
/// otherwise win over it, and nobody who names a profile means that.
async fn chain(
    profile: Option<&str>,
    region: Region,
    http: ChainHttp,
) -> SharedCredentialsProvider {
    let config = ProviderConfig::without_region().with_http_client(http);
    if let Some(name) = profile {
        let config = config.with_region(Some(region));
        let builder = ProfileFileCredentialsProvider::builder().configure(&config);
        return SharedCredentialsProvider::new(builder.profile_name(name).build());
    }
    // That of an attempt is the first to pass: only then is a silent service told from none.
    let metadata = imds::Client::builder()
        .configure(&config)
        .connect_timeout(METADATA_TIMEOUT)
        .read_timeout(METADATA_TIMEOUT)
        .operation_attempt_timeout(METADATA_ATTEMPT_TIMEOUT)
        .operation_timeout(METADATA_TIMEOUT)
        .build();
    let builder = DefaultCredentialsChain::builder().configure(config).region(region);
    SharedCredentialsProvider::new(builder.imds_client(metadata).build().await)
}

async fn ask(provider: &SharedCredentialsProvider, profile: Option<&str>) -> Result<SigningKeys> {
    let given = match timeout(CREDENTIALS_TIMEOUT, provider.provide_credentials()).await {
        Ok(Ok(given)) => given,
        Ok(Err(error)) => return Err(explain(&error, profile)),
        Err(_) => {
            let seconds = CREDENTIALS_TIMEOUT.as_secs();
            let message = format!("no credentials within {seconds} s");
            return Err(Error::new(ErrorKind::Access, message)
                .advise("check the profile's credential_process or single sign-on"));
        }
    };
    let providers = given.get_property::<Vec<AwsCredentialFeature>>();
    let ends =
        given.expiry().map(|at| format!(", until {}", humantime::format_rfc3339_seconds(at)));
    info!(
        "credentials: by {:?}{}",
        providers.map_or(&[][..], Vec::as_slice),
        ends.unwrap_or_default()
    );
    SigningKeys::new(
        given.access_key_id(),
        given.secret_access_key(),
        given.session_token(),
        given.expiry(),
    )
}

fn explain(error: &CredentialsError, profile: Option<&str>) -> Error {
    if matches!(error, CredentialsError::CredentialsNotLoaded(_)) {
        if let Some(profile) = profile {
            let message = format!("the profile '{profile}' has no credentials");
            return Error::new(ErrorKind::Access, message)
                .advise("check --profile, ~/.aws/config and ~/.aws/credentials");
        }
        return no_credentials("");
    }
    // The outermost words only say that there was an error; the causes say which.
    let mut reasons: Vec<String> = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let words = next.to_string();
        if words != error.to_string() && !reasons.contains(&words) {
            reasons.push(words);
        }
        cause = next.source();
    }
    let reason = reasons.join(": ");
    // It is asked last, when nobody else had any; on most machines there is none.
    if profile.is_none() && reason.contains(METADATA_WORD) {
        return no_credentials(match reason.to_ascii_lowercase() {
            why if why.contains("forbidden") => " (its metadata service refuses to give any)",
            why if why.contains("timeout") || why.contains("timed out") => {
                " (its metadata service does not answer)"
            }
            _ => " (its metadata service gives none)",
        });
    }
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
    Error::new(ErrorKind::Access, format!("cannot get credentials: {reason}"))
        .advise("check --profile; to renew a single sign-on session: aws sso login")
}

/// The error where nobody has any, with what is known of the last that was asked.
fn no_credentials(instance: &str) -> Error {
    let message = format!(
        "no credentials found: not in the environment, not in ~/.aws, and no role of a container \
         or of this instance{instance}"
    );
    Error::new(ErrorKind::Access, message).advise(
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --profile, or for public data \
         --no-sign-request",
    )
}

/// A keeper whose source gives these access keys, one after the other, then none.
#[cfg(test)]
pub(crate) async fn giving(access_keys: &'static [&'static str; 2]) -> KeyRefresher {
    let provider = SharedCredentialsProvider::new(tests::Listed::new(access_keys));
    KeyRefresher::with_provider(provider, None).await.expect("the first keys")
}

#[cfg(test)]
mod tests {
    use super::super::loopback::run;
    use super::super::tls::Trust;
    use super::*;
    use crate::s3::proxy::Proxies;
    use aws_credential_types::Credentials;
    use aws_credential_types::provider::future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, UNIX_EPOCH};

    /// Gives these keys, which live an hour each, and then none.
    #[derive(Debug)]
    pub(super) struct Listed {
        access_keys: &'static [&'static str],
        given: AtomicUsize,
    }

    impl Listed {
        pub(super) const fn new(access_keys: &'static [&'static str]) -> Self {
            Self { access_keys, given: AtomicUsize::new(0) }
        }
    }

    impl ProvideCredentials for Listed {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let hour = self.given.fetch_add(1, Ordering::SeqCst);
            future::ProvideCredentials::ready(match self.access_keys.get(hour) {
                Some(key) => {
                    let expires = at(3600 * (hour as u64 + 1));
                    Ok(Credentials::new(*key, "SECRET", None, Some(expires), "test"))
                }
                None => Err(CredentialsError::provider_error("the service is\ndown")),
            })
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn keys_are_replaced_before_they_end() {
        run(async {
            let provider = SharedCredentialsProvider::new(Listed::new(&["KEY0", "KEY1"]));
            let keeper = KeyRefresher::with_provider(provider, None).await.expect("keys");
            let version = keeper.published().version();
            assert_eq!(keeper.refresh_if_needed(at(0)).await, Ok(false));
            assert_eq!(keeper.refresh_if_needed(at(3299)).await, Ok(false));
            assert_eq!(keeper.refresh_if_needed(at(3301)).await, Ok(true));
            assert_eq!(keeper.published().version(), version + 1);
            assert_eq!(keeper.published().get().expect("keys").access_key(), "KEY1");
            // The source has failed, the keys have not.
            assert_eq!(keeper.refresh_if_needed(at(7000)).await, Ok(false));
            assert_eq!(keeper.refresh_if_needed(at(7001)).await, Ok(false));
            let error = keeper.refresh_if_needed(at(7200)).await.expect_err("they ended");
            assert_eq!(error.kind(), ErrorKind::Access);
            assert!(error.to_string().contains("the service is down"), "{error}");
        });
    }

    #[test]
    fn fixed_and_no_keys_stay() {
        run(async {
            let keys = SigningKeys::new("A", "S", None, Some(at(1))).expect("keys");
            for source in [CredentialSource::Anonymous, CredentialSource::Fixed(keys)] {
                let http = ChainHttp::new(Trust::System, Proxies::default());
                let keeper = KeyRefresher::new(&source, None, "us-east-1", http).await;
                let keeper = keeper.expect("a keeper");
                assert_eq!(keeper.refresh_if_needed(at(9)).await, Ok(false));
                assert_eq!(keeper.published().version(), 1);
                let anonymous = matches!(source, CredentialSource::Anonymous);
                assert_eq!(keeper.published().get().is_none(), anonymous);
            }
        });
    }

    #[test]
    fn no_credentials_say_what_to_do() {
        let error = explain(&CredentialsError::not_loaded_no_source(), Some("p"));
        assert!(error.to_string().starts_with("the profile 'p' has no credentials"), "{error}");
        let error = explain(&CredentialsError::not_loaded_no_source(), None);
        assert_eq!(error.kind(), ErrorKind::Access);
        let line = error.to_string();
        assert!(line.starts_with("no credentials found: not in the environment"), "{line}");
        assert!(line.contains("this instance; set AWS_ACCESS_KEY_ID"), "{line}");
        assert!(line.contains("--profile") && line.contains("--no-sign-request"), "{line}");
    }
}
