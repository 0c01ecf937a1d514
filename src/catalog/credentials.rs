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
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_types::region::Region;
use tokio::time::timeout;

use super::limits::{
    CREDENTIALS_TIMEOUT, METADATA_ATTEMPT_TIMEOUT, METADATA_TIMEOUT, REFRESH_AHEAD, REFRESH_PAUSE,
};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::sign::{PublishedKeys, SigningKeys};

/// Longest text of a failure taken over from the chain, in characters.
const REASON_CHARS_MAX: usize = 400;

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
pub(crate) struct Keeper {
    provider: Option<SharedCredentialsProvider>,
    published: Arc<PublishedKeys>,
    /// Before this the source is not asked again.
    not_before: Cell<SystemTime>,
}

impl Keeper {
    pub(crate) async fn new(
        source: &CredentialSource,
        profile: Option<&str>,
        region: &str,
    ) -> Result<Self> {
        match source {
            CredentialSource::Anonymous => Ok(Self::without_provider(None)),
            CredentialSource::Fixed(keys) => Ok(Self::without_provider(Some(keys.clone()))),
            CredentialSource::Chain => {
                let region = Region::new(region.to_owned());
                Self::with_provider(chain(profile, region).await).await
            }
        }
    }

    fn without_provider(keys: Option<SigningKeys>) -> Self {
        let published = Arc::new(PublishedKeys::new(keys));
        Self { provider: None, published, not_before: Cell::new(SystemTime::UNIX_EPOCH) }
    }

    async fn with_provider(provider: SharedCredentialsProvider) -> Result<Self> {
        let keys = ask(&provider).await?;
        Ok(Self { provider: Some(provider), ..Self::without_provider(Some(keys)) })
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

    /// Replaces the keys now, since the server does not take them; tells whether they differ.
    ///
    /// Many requests may fail for one reason: the source is asked once in [`REFRESH_PAUSE`].
    pub(crate) async fn refresh(&self, now: SystemTime) -> Result<bool> {
        let Some(provider) = &self.provider else { return Ok(false) };
        if now < self.not_before.get() {
            return Ok(false);
        }
        self.not_before.set(now + REFRESH_PAUSE);
        let keys = ask(provider).await?;
        if self.published.get().as_deref() == Some(&keys) {
            return Ok(false);
        }
        self.published.publish(Some(keys));
        Ok(true)
    }
}

/// The chain. A profile named on the command line stands alone: the environment's keys would
/// otherwise win over it, and nobody who names a profile means that.
async fn chain(profile: Option<&str>, region: Region) -> SharedCredentialsProvider {
    if let Some(name) = profile {
        let config = ProviderConfig::without_region().with_region(Some(region));
        let builder = ProfileFileCredentialsProvider::builder().configure(&config);
        return SharedCredentialsProvider::new(builder.profile_name(name).build());
    }
    let metadata = imds::Client::builder()
        .connect_timeout(METADATA_ATTEMPT_TIMEOUT)
        .read_timeout(METADATA_ATTEMPT_TIMEOUT)
        .operation_attempt_timeout(METADATA_ATTEMPT_TIMEOUT)
        .operation_timeout(METADATA_TIMEOUT)
        .build();
    let builder = DefaultCredentialsChain::builder().region(region).imds_client(metadata);
    SharedCredentialsProvider::new(builder.build().await)
}

async fn ask(provider: &SharedCredentialsProvider) -> Result<SigningKeys> {
    let given = match timeout(CREDENTIALS_TIMEOUT, provider.provide_credentials()).await {
        Ok(Ok(given)) => given,
        Ok(Err(error)) => return Err(explain(&error)),
        Err(_) => {
            let seconds = CREDENTIALS_TIMEOUT.as_secs();
            let message = format!("no credentials within {seconds} s");
            return Err(Error::new(ErrorKind::Access, message)
                .advise("check the profile's credential_process or single sign-on"));
        }
    };
    SigningKeys::new(
        given.access_key_id(),
        given.secret_access_key(),
        given.session_token(),
        given.expiry(),
    )
}

fn explain(error: &CredentialsError) -> Error {
    if matches!(error, CredentialsError::CredentialsNotLoaded(_)) {
        return Error::new(ErrorKind::Access, "no credentials found").advise(
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --profile, or for public data \
             --no-sign-request",
        );
    }
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        reason.push_str(&format!(": {next}"));
        cause = next.source();
    }
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
    Error::new(ErrorKind::Access, format!("credentials cannot be had: {reason}"))
        .advise("check --profile; after a long while: aws sso login")
}

#[cfg(test)]
mod tests {
    use super::super::loopback::run;
    use super::*;
    use aws_credential_types::Credentials;
    use aws_credential_types::provider::future;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, UNIX_EPOCH};

    /// Gives keys that live an hour each, and from `ends` on none.
    #[derive(Debug)]
    struct Hourly {
        given: AtomicU64,
        ends: u64,
    }

    impl ProvideCredentials for Hourly {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let hour = self.given.fetch_add(1, Ordering::SeqCst);
            future::ProvideCredentials::ready(if hour < self.ends {
                let expires = UNIX_EPOCH + Duration::from_secs(3600 * (hour + 1));
                Ok(Credentials::new(format!("KEY{hour}"), "SECRET", None, Some(expires), "test"))
            } else {
                Err(CredentialsError::provider_error("the service is\ndown"))
            })
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn keys_are_replaced_before_they_end() {
        run(async {
            let provider = SharedCredentialsProvider::new(Hourly { given: 0.into(), ends: 2 });
            let keeper = Keeper::with_provider(provider).await.expect("keys");
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
                let keeper = Keeper::new(&source, None, "us-east-1").await.expect("a keeper");
                assert_eq!(keeper.refresh_if_needed(at(9)).await, Ok(false));
                assert_eq!(keeper.published().version(), 1);
                let anonymous = matches!(source, CredentialSource::Anonymous);
                assert_eq!(keeper.published().get().is_none(), anonymous);
            }
        });
    }

    #[test]
    fn no_credentials_say_what_to_do() {
        let error = explain(&CredentialsError::not_loaded_no_source());
        assert_eq!(error.kind(), ErrorKind::Access);
        let line = error.to_string();
        assert!(line.starts_with("no credentials found; set AWS_ACCESS_KEY_ID"), "{line}");
        assert!(line.contains("--profile") && line.contains("--no-sign-request"), "{line}");
    }
}
