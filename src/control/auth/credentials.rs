//! Credentials by the standard AWS chain, published to all signers and replaced before they expire.
//!
//! The chain has the order of the AWS CLI: environment, profile (see `roles.rs`) and web identity
//! (see `tokens.rs`), container, instance metadata. Signing is in [`crate::s3::sign`].

use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, SystemTime};

use aws_config::meta::credentials::CredentialsProviderChain;
use aws_credential_types::Credentials;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use rustix::fs::{Mode, OFlags};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::chain_http::ChainHttp;
use super::container::of_container;
use super::environment::{of_environment, require_whole_pair};
use super::instance::{is_disabled, of_instance};
use super::reasons::{cannot_get, explain, is_of_none, of_metadata, own, reasons};
use super::roles::{self, Named, Refused};
use super::services::Services;
use super::tokens::WebIdentity;
use crate::control::limits::{
    CREDENTIALS_TIMEOUT, PROCESS_TIMEOUT, REFRESH_AHEAD, REFRESH_PAUSE_MAX, REFRESH_PAUSE_MIN,
};
use crate::control::retry_budget::RetryBudget;
use crate::control::settings::profile_file::PROCESS;
use crate::control::settings::{Chosen, Settings, environment, files_in_words};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::sign::{PublishedKeys, SigningKeys};
use crate::s3::uri::shown;
use crate::text::instant::instant_text;

/// STS's error for a role that requires an MFA code.
const ACCESS_DENIED: &str = "AccessDenied";

/// The origin of keys in the variables of the process, which stay the same.
const OF_ENVIRONMENT: &str = "from the environment";
/// The origin of keys that a profile itself has.
const OF_PROFILE: &str = "from the profile";
/// The origin of keys that a command prints.
const OF_PROCESS: &str = "from the profile's credential_process";

/// The source of credentials.
#[derive(Debug, Clone, Default)]
pub enum CredentialSource {
    /// Requests without signatures (`--no-sign-request`).
    Anonymous,
    /// None, because all sources are URLs: no request goes to the S3 service.
    OfUrls,
    /// The standard AWS chain.
    #[default]
    Chain,
    /// These credentials, permanently.
    Fixed(SigningKeys),
}

/// The provider of credentials, and its description.
#[derive(Debug)]
struct KeySource {
    provider: SharedCredentialsProvider,
    /// The selected profile, for messages.
    profile: Option<NamedProfile>,
    /// Only that profile, if the chain has other sources, too: its error is more exact.
    alone: Option<SharedCredentialsProvider>,
    /// True if a role of the profile may require an MFA code, for which the AWS CLI would ask.
    has_mfa: bool,
    /// Advice about a profile file whose settings no profile has.
    hint: Option<String>,
    /// Whether the metadata service of an instance may be asked.
    asks_instance: bool,
    /// Longest wait for all of them.
    limit: Duration,
    /// The HTTP connector of its servers.
    http: ChainHttp,
    /// The awaited source in words, and where waits are reported.
    whom: String,
    retry_budget: RetryBudget,
    /// How long requests wait for newer credentials.
    retry_for: Duration,
    /// The profile that has the keys itself, and its file, in words.
    keys_place: Option<String>,
    /// Source of the newest credentials, in words.
    from: Cell<&'static str>,
}

/// A profile, and the setting that selects it.
#[derive(Debug, Clone)]
pub(super) struct NamedProfile {
    pub(super) name: String,
    pub(super) by: &'static str,
}

impl NamedProfile {
    /// What to check.
    pub(super) fn check(&self) -> String {
        format!("check {}, {}", self.by, files_in_words(environment))
    }
}

/// Holds the keys in force, and gets newer ones.
#[derive(Debug)]
pub(crate) struct KeyRefresher {
    source: Option<KeySource>,
    published: Arc<PublishedKeys>,
    /// The source is not asked again before this time, whatever the machine's clock is set to.
    not_before: Cell<Instant>,
    /// The pause after the last request to the source.
    pause: Cell<Duration>,
    /// Held during a request to the source: other callers wait for its result.
    asking: Mutex<()>,
}

impl KeyRefresher {
    pub(crate) async fn new(
        source: &CredentialSource,
        settings: Option<&Arc<Settings>>,
        region: &str,
        http: ChainHttp,
        retry_budget: RetryBudget,
    ) -> Result<Self> {
        match (source, settings) {
            (CredentialSource::Fixed(keys), _) => Ok(Self::without_provider(Some(keys.clone()))),
            (CredentialSource::Chain, Some(settings)) => {
                if settings.chosen() != Chosen::CommandLine {
                    require_whole_pair(settings)?;
                }
                Self::with_source(chain(settings, region, http, retry_budget).await?).await
            }
            _ => Ok(Self::without_provider(None)),
        }
    }

    fn without_provider(keys: Option<SigningKeys>) -> Self {
        if keys.is_none() {
            info!("credentials: none, requests are not signed");
        }
        let refresher = Self::of(None, keys);
        refresher.published.set_final();
        refresher
    }

    async fn with_source(source: KeySource) -> Result<Self> {
        let keys = source.ask().await?;
        let (is_final, outlook) = (source.from.get() == OF_ENVIRONMENT, source.outlook());
        let refresher = Self::of(Some(source), Some(keys));
        if is_final {
            refresher.published.set_final();
        }
        refresher.published.set_outlook(outlook);
        Ok(refresher)
    }

    fn of(source: Option<KeySource>, keys: Option<SigningKeys>) -> Self {
        Self {
            source,
            published: Arc::new(PublishedKeys::new(keys)),
            not_before: Cell::new(Instant::now()),
            pause: Cell::new(REFRESH_PAUSE_MIN),
            asking: Mutex::default(),
        }
    }

    pub(crate) const fn published(&self) -> &Arc<PublishedKeys> {
        &self.published
    }

    /// Source of the current credentials, in words; `None` if there is none.
    pub(crate) fn from(&self) -> Option<&'static str> {
        self.source.as_ref().map(|source| source.from.get())
    }

    /// True if the source itself gives newer credentials before these expire. The environment has
    /// none, and a profile's file and its command only have what others renew.
    pub(crate) fn renews(&self) -> bool {
        self.from().is_some_and(|from| ![OF_ENVIRONMENT, OF_PROFILE, OF_PROCESS].contains(&from))
    }

    /// Replaces the credentials if they expire soon; true if there are new ones.
    ///
    /// A failure is an error only once the credentials have expired: until then the old ones are
    /// used.
    pub(crate) async fn refresh_if_needed(&self, now: SystemTime) -> Result<bool> {
        let Some(expires) = self.published.get().and_then(|keys| keys.expires()) else {
            return Ok(false);
        };
        if now + REFRESH_AHEAD < expires {
            return Ok(false);
        }
        match self.renew(self.published.version()).await {
            Err(error) if now < expires => {
                let until = instant_text(expires).unwrap_or_default();
                warn!("credentials: no newer ones yet, these are used until {until}: {error}");
                Ok(false)
            }
            outcome => outcome.map(|renewal| renewal == Renewal::New),
        }
    }

    /// True if a server has rejected the credentials as expired; else wakes this task when one
    /// does.
    pub(crate) fn are_refused(&self, waker: &Waker) -> bool {
        self.published.wake_when_refused(waker);
        self.published.are_refused()
    }

    /// Replaces the credentials if the data plane's servers rejected them as expired.
    pub(crate) async fn renew_refused(&self) {
        if self.published.are_refused() {
            // A failure is part of the outlook, and the next attempt follows.
            let _ = self.renew(self.published.version()).await;
        }
    }

    /// Waits for newer credentials than this version, which a server has rejected since then: for
    /// one request to the source, and as long as the run retries. False if there are none.
    pub(crate) async fn await_newer(&self, refused: u64, since: Instant) -> bool {
        let Some(source) = &self.source else { return false };
        let ticket = source.retry_budget.begin(&source.whom, "to give newer credentials".into());
        for tries in 1.. {
            match self.renew(refused).await {
                Ok(Renewal::New) => return true,
                Ok(Renewal::Never) => return false,
                Ok(Renewal::NotYet) | Err(_) => {}
            }
            let left = source.retry_for.saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            ticket.try_again(tries, "the old ones are refused");
            let pause = self.not_before.get().saturating_duration_since(Instant::now());
            sleep(pause.min(left)).await;
        }
        false
    }

    /// Asks the source for newer credentials than this version.
    ///
    /// Many requests may fail at once for this reason: one of them asks the source, the others wait
    /// for its result, and a pause follows before it is asked again.
    async fn renew(&self, refused: u64) -> Result<Renewal> {
        let source = self.source.as_ref().filter(|_| !self.published.are_final());
        let Some(source) = source else { return Ok(Renewal::Never) };
        let _asking = self.asking.lock().await;
        if self.published.version() > refused {
            return Ok(Renewal::New);
        }
        if Instant::now() < self.not_before.get() {
            return Ok(Renewal::NotYet);
        }
        self.lengthen_pause();
        let given = source.ask().await;
        self.not_before.set(Instant::now() + self.pause.get());
        let outlook = source.outlook();
        match given {
            Ok(keys) if self.published.get().as_deref() == Some(&keys) => {
                self.published.set_outlook(format!("{outlook}, which gives no newer ones"));
                Ok(Renewal::NotYet)
            }
            Ok(keys) => {
                self.published.set_outlook(outlook);
                self.published.publish(Some(keys));
                Ok(Renewal::New)
            }
            Err(error) => {
                let why = error.message();
                self.published.set_outlook(format!("{outlook}, which gives no newer ones: {why}"));
                Err(error)
            }
        }
    }

    fn lengthen_pause(&self) {
        let quiet = Instant::now().saturating_duration_since(self.not_before.get());
        self.pause.set(next_pause(self.pause.get(), quiet));
    }
}

/// The pause after the next request to a source, which could have been asked this long ago: it
/// grows while requests follow one another.
fn next_pause(pause: Duration, quiet: Duration) -> Duration {
    match quiet < REFRESH_PAUSE_MAX {
        true => (pause * 2).min(REFRESH_PAUSE_MAX),
        false => REFRESH_PAUSE_MIN,
    }
}

/// Outcome of a request for newer keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    /// Other keys are published, by this request or by one that it waited for.
    New,
    /// The source gives the keys that are published, or was asked just now.
    NotYet,
    /// There is no source, or its keys stay the same.
    Never,
}

/// True if this process has a terminal, on which a program may ask its user.
fn has_terminal() -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}

/// How long all of the chain is waited for, and whom, by what limit of its own.
fn waited_for(process: Option<&str>) -> (Duration, Duration, String) {
    match process {
        Some(profile) => (
            CREDENTIALS_TIMEOUT + PROCESS_TIMEOUT,
            PROCESS_TIMEOUT,
            format!("the {PROCESS} of the profile '{}'", shown(profile)),
        ),
        None => {
            let whom = "the source of credentials".to_owned();
            (CREDENTIALS_TIMEOUT, CREDENTIALS_TIMEOUT, whom)
        }
    }
}

/// The provider, or one that returns the error.
fn given(outcome: Result<SharedCredentialsProvider>) -> SharedCredentialsProvider {
    outcome.unwrap_or_else(|error| SharedCredentialsProvider::new(Refused(error)))
}

/// The chain, in the order of the AWS SDKs. A profile named on the command line is the only source:
/// otherwise the environment's keys would have precedence, which is never intended.
async fn chain(
    settings: &Arc<Settings>,
    region: &str,
    http: ChainHttp,
    retry_budget: RetryBudget,
) -> Result<KeySource> {
    let services = Services::new(settings, region, http.clone())?;
    let named = |named| match named {
        Named::Environment => of_environment(settings),
        Named::Container => of_container(settings, &http),
        Named::Instance => given(of_instance(settings, &http)),
    };
    let followed = roles::Chain::of(settings);
    let process = followed.as_ref().ok().and_then(roles::Chain::profile_of_process);
    let (limit, reported_limit, whom) = waited_for(process);
    // It asks there, whatever its standard input is.
    let may_prompt = process.is_some() && has_terminal();
    if followed.as_ref().is_ok_and(roles::Chain::is_of_environment) {
        require_whole_pair(settings)?;
    }
    let has_role = followed.as_ref().map_or(true, roles::Chain::has_role);
    let has_mfa = followed.as_ref().is_ok_and(roles::Chain::has_mfa);
    let keys_place = followed.as_ref().ok().and_then(|followed| followed.keys_place(settings));
    let of_profile = match followed {
        Ok(followed) => followed.provider(settings, &services, named).await,
        Err(error) => given(Err(error)),
    };
    let by = settings.chosen().by();
    let profile = by.map(|by| NamedProfile { name: settings.profile().to_owned(), by });
    let (provider, alone) = match settings.chosen() {
        Chosen::CommandLine => (of_profile, None),
        _ => {
            let identity = WebIdentity::of_environment(settings);
            let of_token = given(identity.map(|identity| match identity {
                Some(identity) => identity.provider(&services),
                None => SharedCredentialsProvider::new(roles::Nothing),
            }));
            let of_token = ("WebIdentityToken", of_token);
            let named_profile = ("Profile", of_profile.clone());
            // Like botocore: of a profile its role comes first, the rest after a web identity.
            let [first, second] = match has_role {
                true => [named_profile, of_token],
                false => [of_token, named_profile],
            };
            let provider =
                CredentialsProviderChain::first_try("Environment", named(Named::Environment))
                    .or_else(first.0, first.1)
                    .or_else(second.0, second.1)
                    .or_else("EcsContainer", named(Named::Container))
                    .or_else("Ec2InstanceMetadata", named(Named::Instance));
            (SharedCredentialsProvider::new(provider), by.map(|_| of_profile))
        }
    };
    let retry_for = Duration::from_micros(retry_budget.policy(1).retry_for_us);
    let retry_budget = retry_budget.within(reported_limit).of_prompt(may_prompt);
    let asks_instance = !is_disabled(settings);
    Ok(KeySource {
        provider,
        profile,
        alone,
        has_mfa,
        hint: settings.unused_defaults(),
        asks_instance,
        limit,
        http,
        whom,
        retry_budget,
        retry_for,
        keys_place,
        from: Cell::default(),
    })
}

impl KeySource {
    /// Where the newest keys come from, in words.
    fn outlook(&self) -> String {
        match (self.from.get(), &self.keys_place) {
            (OF_ENVIRONMENT, _) => {
                format!("the keys are {OF_ENVIRONMENT}, which stays the same during a run")
            }
            (OF_PROFILE, Some(place)) => format!("the keys are from {place}"),
            (from, _) => format!("the keys are {from}"),
        }
    }

    async fn ask(&self) -> Result<SigningKeys> {
        let _ticket = self.retry_budget.begin(&self.whom, "to give credentials".to_owned());
        self.http.begin();
        match timeout(self.limit, self.provider.provide_credentials()).await {
            Ok(Ok(given)) => {
                self.require_unexpired(&given)?;
                self.from.set(origin_of(&given));
                keys_of(&given)
            }
            Ok(Err(error)) => Err(self.explain(&error).await),
            Err(_) => Err(match self.http.late(self.limit) {
                Some(away) => away.within(cannot_get(self.profile.as_ref())),
                None => {
                    let seconds = self.limit.as_secs();
                    let message = format!("no credentials within {seconds} s from {}", self.whom);
                    Error::new(ErrorKind::Access, message)
                        .advise("check what the profile or the environment names")
                }
            }),
        }
    }

    /// As of a command: the server would refuse them.
    fn require_unexpired(&self, given: &Credentials) -> Result<()> {
        let Some(ended) = given.expiry().filter(|ends| *ends <= crate::control::now()) else {
            return Ok(());
        };
        let Some(host) = self.http.last_host() else { return Ok(()) };
        let (what, ended) = (cannot_get(self.profile.as_ref()), instant_text(ended));
        let message = format!(
            "{what}: {host} gives keys that have expired: their Expiration is {}",
            ended.unwrap_or_default()
        );
        Err(Error::new(ErrorKind::Access, message)
            .advise("check the service that gives them, and this machine's clock"))
    }

    /// Why there are no keys. The chain goes past a profile that has none without a word: then it
    /// is asked by itself.
    async fn explain(&self, error: &CredentialsError) -> Error {
        if let Some(own) = own(error) {
            return own;
        }
        if let Some(alone) = &self.alone
            && (is_of_none(error) || of_metadata(&reasons(error)))
            && let Ok(Err(error)) = timeout(self.limit, alone.provide_credentials()).await
        {
            return self.explain_of(&error);
        }
        let explained = self.explain_of(error);
        if self.has_mfa && reasons(error).contains(ACCESS_DENIED) {
            return explained.advise(
                "the profile has mfa_serial, but inrush asks for no code: use the keys of \
                 aws configure export-credentials",
            );
        }
        let hint = self.hint.as_ref().filter(|_| is_of_none(error) || of_metadata(&reasons(error)));
        hint.map_or(explained.clone(), |hint| explained.advise(hint))
    }

    fn explain_of(&self, error: &CredentialsError) -> Error {
        if let Some(redirect) = self.http.redirect() {
            return redirect.within(cannot_get(self.profile.as_ref())).caused_by_text_of(error);
        }
        explain(error, self.profile.as_ref(), self.asks_instance, &self.http)
    }
}

fn keys_of(given: &Credentials) -> Result<SigningKeys> {
    let ends = given.expiry().and_then(instant_text).map(|at| format!(", until {at}"));
    info!("credentials: {}{}", origin_of(given), ends.unwrap_or_default());
    SigningKeys::new(
        given.access_key_id(),
        given.secret_access_key(),
        given.session_token(),
        given.expiry(),
    )
}

/// The source of these credentials, in words.
fn origin_of(given: &Credentials) -> &'static str {
    let providers = given.get_property::<Vec<AwsCredentialFeature>>();
    origin(providers.map_or(&[][..], Vec::as_slice))
}

/// The source of credentials, in the words of the AWS CLI's documentation.
fn origin(features: &[AwsCredentialFeature]) -> &'static str {
    use AwsCredentialFeature as Feature;
    let words = |feature: &Feature| {
        Some(match feature {
            Feature::CredentialsEnvVars => OF_ENVIRONMENT,
            Feature::CredentialsImds => "from the role of this instance",
            Feature::CredentialsHttp => "from the role of this container",
            Feature::CredentialsProcess | Feature::CredentialsProfileProcess => OF_PROCESS,
            Feature::CredentialsSso | Feature::CredentialsProfileSso => "from single sign-on",
            Feature::CredentialsProfileLogin => "from a session of aws login",
            Feature::CredentialsEnvVarsStsWebIdToken
            | Feature::CredentialsStsAssumeRoleWebId
            | Feature::CredentialsProfileStsWebIdToken => "from a web identity token",
            Feature::CredentialsStsAssumeRole
            | Feature::CredentialsProfileSourceProfile
            | Feature::CredentialsProfileNamedProvider => "from a role of the profile",
            Feature::CredentialsProfile => OF_PROFILE,
            _ => return None,
        })
    };
    features.iter().find_map(words).unwrap_or("from the chain of the AWS SDKs")
}

/// A refresher whose source gives these access keys in turn, then none.
#[cfg(test)]
pub(crate) async fn giving(access_keys: &'static [&'static str; 2]) -> KeyRefresher {
    let provider = SharedCredentialsProvider::new(tests::Listed::new(access_keys));
    KeyRefresher::with_source(tests::only(provider)).await.expect("the first keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::auth::chain_http::CredentialService;
    use crate::control::loopback::run;
    use crate::control::settings::Found;
    use crate::control::tls::Trust;
    use crate::error::ErrorReason;
    use crate::s3::proxy::Proxies;
    use aws_credential_types::provider::future;
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::UNIX_EPOCH;

    /// Credentials only from this provider.
    pub(super) fn only(provider: SharedCredentialsProvider) -> KeySource {
        KeySource {
            provider,
            profile: None,
            alone: None,
            has_mfa: false,
            hint: None,
            asks_instance: true,
            limit: CREDENTIALS_TIMEOUT,
            http: no_http(),
            whom: String::new(),
            retry_budget: RetryBudget::default(),
            retry_for: Duration::ZERO,
            keys_place: None,
            from: Cell::default(),
        }
    }

    fn no_http() -> ChainHttp {
        ChainHttp::new(Trust::System, Proxies::default(), vec![])
    }

    /// Gives these keys, which are valid for an hour each, and then none.
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
            let keeper = KeyRefresher::with_source(only(provider)).await.expect("keys");
            let version = keeper.published().version();
            assert_eq!(keeper.refresh_if_needed(at(0)).await, Ok(false));
            assert_eq!(keeper.refresh_if_needed(at(3299)).await, Ok(false));
            assert_eq!(keeper.refresh_if_needed(at(3301)).await, Ok(true));
            assert_eq!(keeper.published().version(), version + 1);
            assert_eq!(keeper.published().get().expect("keys").access_key(), "KEY1");
            // The source has failed, but the credentials are still valid: `-v` says so.
            let log = tempfile::NamedTempFile::new().expect("a file");
            let writer = Arc::new(log.reopen().expect("the same file"));
            let lines = tracing_subscriber::fmt().with_writer(writer).finish();
            let logs = tracing::subscriber::set_default(lines);
            keeper.not_before.set(Instant::now());
            assert_eq!(keeper.refresh_if_needed(at(7000)).await, Ok(false));
            drop(logs);
            let said = std::fs::read_to_string(log.path()).expect("UTF-8");
            let expected = "are used until 1970-01-01T02:00:00Z: ";
            assert!(said.contains(expected) && said.contains("the service is down"), "{said}");
            assert_eq!(keeper.refresh_if_needed(at(7001)).await, Ok(false));
            keeper.not_before.set(Instant::now());
            let error = keeper.refresh_if_needed(at(7200)).await.expect_err("they ended");
            assert_eq!(error.kind(), ErrorKind::Access);
            assert!(error.to_string().contains("the service is down"), "{error}");
        });
    }

    /// Gives keys after a delay, other ones each time.
    #[derive(Debug, Default)]
    struct Slow(AtomicUsize);

    impl ProvideCredentials for Slow {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(async {
                tokio::task::yield_now().await;
                let key = format!("KEY{}", self.0.fetch_add(1, Ordering::SeqCst));
                Ok(Credentials::new(key, "SECRET", None, None, "test"))
            })
        }
    }

    #[test]
    fn who_is_refused_waits_for_the_keys_that_another_asks_for() {
        run(async {
            let provider = SharedCredentialsProvider::new(Slow::default());
            let keeper = KeyRefresher::with_source(only(provider)).await.expect("keys");
            let version = || keeper.published().version();
            let both = tokio::join!(keeper.renew(version()), keeper.renew(version()));
            assert_eq!(both, (Ok(Renewal::New), Ok(Renewal::New)));
            let key = || keeper.published().get().expect("keys").access_key().to_owned();
            assert_eq!(key(), "KEY1", "asked once");
            assert_eq!(keeper.renew(version()).await, Ok(Renewal::NotYet), "a moment ago");
            assert_eq!(keeper.renew(version() - 1).await, Ok(Renewal::New), "it is there");
            keeper.not_before.set(Instant::now());
            assert_eq!(keeper.renew(version()).await, Ok(Renewal::New));
            assert_eq!(key(), "KEY2");
        });
    }

    /// It is this program's time that passes, not that of a clock which may be set back.
    #[test]
    fn pauses_grow_and_do_not_depend_on_the_clock() {
        run(async {
            let provider = SharedCredentialsProvider::new(Listed::new(&["KEY0", "KEY1"]));
            let keeper = KeyRefresher::with_source(only(provider)).await.expect("keys");
            assert_eq!(keeper.refresh_if_needed(at(1_000_000)).await, Ok(true));
            keeper.not_before.set(Instant::now());
            let error = keeper.refresh_if_needed(at(7_200)).await.expect_err("it is asked again");
            assert!(error.message().contains("the service is down"), "{error}");
            let mut pauses = Vec::new();
            for _ in 0..4 {
                keeper.not_before.set(Instant::now());
                keeper.renew(keeper.published().version()).await.expect_err("it is down");
                pauses.push(keeper.pause.get().as_secs());
            }
            // Not by a clock: a busy machine may stop this thread for seconds.
            for quiet in [9, 11] {
                let pause = next_pause(keeper.pause.get(), Duration::from_secs(quiet));
                pauses.push(pause.as_secs());
            }
            assert_eq!(pauses, [8, 10, 10, 10, 10, 1]);
        });
    }

    #[test]
    fn who_waits_for_newer_keys_gives_up_when_the_run_does() {
        run(async {
            let of = |retry_for| async move {
                let provider = SharedCredentialsProvider::new(Listed::new(&["KEY0"]));
                let source = KeySource { retry_for, ..only(provider) };
                KeyRefresher::with_source(source).await.expect("keys")
            };
            let (keeper, since) = (of(Duration::ZERO).await, Instant::now());
            assert!(!keeper.await_newer(keeper.published().version(), since).await);
            let outlook = keeper.published().outlook();
            let expected = "the keys are from the chain of the AWS SDKs, which gives no newer \
                            ones: cannot get credentials: the service is down";
            assert_eq!(outlook, expected);
            let (keeper, limit) = (of(Duration::from_millis(50)).await, Duration::from_millis(50));
            let since = Instant::now();
            assert!(!keeper.await_newer(keeper.published().version(), since).await);
            assert!(since.elapsed() >= limit, "{:?}", since.elapsed());
            assert!(keeper.await_newer(keeper.published().version() - 1, since).await);
        });
    }

    /// The chain of the default profile alone, with this configuration file.
    async fn chain_of(config: &'static str, sts: Option<String>) -> Result<KeySource> {
        let variables = [("AWS_CONFIG_FILE", "/config"), ("AWS_ACCESS_KEY_ID", "A")];
        let settings = Settings::of(&variables, &[("/config", config)], Some("default"));
        let found = |value| Found { value, from: "AWS_ENDPOINT_URL".to_owned() };
        let urls = sts.map(|url| (CredentialService::Sts, found(url))).into_iter().collect();
        let http = ChainHttp::new(Trust::System, Proxies::default(), urls);
        let settings = settings.expect("words");
        chain(&Arc::new(settings), "us-east-1", http, RetryBudget::default()).await
    }

    /// The guide and the error of the command have equal times.
    #[test]
    fn a_command_is_waited_for_as_long_as_is_configured() {
        run(async {
            let config = "[default]\ncredential_process = p\n";
            let source = chain_of(config, None).await.expect("a chain");
            let limit_us = source.retry_budget.policy(1).retry_for_us;
            assert_eq!(u128::from(limit_us), PROCESS_TIMEOUT.as_micros());
            assert!(source.limit > PROCESS_TIMEOUT, "STS may be asked after it");
        });
        let words = format!("stopped after {} seconds", PROCESS_TIMEOUT.as_secs());
        assert!(include_str!("../../guide/endpoints.md").contains(&words), "{words}");
    }

    #[test]
    fn who_names_the_keys_of_the_environment_is_reported_which_is_missing() {
        run(async {
            let config = "[default]\nrole_arn = r\ncredential_source = Environment\n";
            let error = chain_of(config, None).await.map(|_| ()).expect_err("half a pair");
            let expected = "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not";
            assert_eq!(error.message(), expected);
        });
    }

    #[test]
    fn a_server_that_gives_nothing_in_time_is_the_networks_failure() {
        run(async {
            let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
            let address = silent.local_addr().expect("its address");
            let config = "[default]\nrole_arn = r\nsource_profile = b\n[profile b]\n\
                          aws_access_key_id = A\naws_secret_access_key = S\n";
            let source = chain_of(config, Some(format!("http://{address}"))).await;
            let source = KeySource { limit: Duration::from_secs(1), ..source.expect("a chain") };
            let error = source.ask().await.expect_err("nobody answers");
            assert_eq!((error.kind(), error.reason()), (ErrorKind::Endpoint, ErrorReason::Network));
            let words = "cannot get credentials of the profile 'default'";
            let words = format!("{words}: {address} does not answer: no credentials within 1 s");
            assert_eq!(error.message(), words);
        });
    }

    #[test]
    fn fixed_and_no_keys_stay() {
        run(async {
            let keys = SigningKeys::new("A", "S", None, Some(at(1))).expect("keys");
            for source in [CredentialSource::Anonymous, CredentialSource::Fixed(keys)] {
                let http = no_http();
                let retry_budget = RetryBudget::default();
                let keeper =
                    KeyRefresher::new(&source, None, "us-east-1", http, retry_budget).await;
                let keeper = keeper.expect("a keeper");
                assert_eq!(keeper.refresh_if_needed(at(9)).await, Ok(false));
                assert_eq!(keeper.published().version(), 1);
                let anonymous = matches!(source, CredentialSource::Anonymous);
                assert_eq!(keeper.published().get().is_none(), anonymous);
            }
        });
    }

    #[test]
    fn where_credentials_came_from_is_reported_in_words() {
        use AwsCredentialFeature as Feature;
        let process = [Feature::CredentialsProfileProcess, Feature::CredentialsProcess];
        assert_eq!(origin(&process), "from the profile's credential_process");
        assert_eq!(origin(&[Feature::CredentialsEnvVars]), "from the environment");
        assert_eq!(
            origin(&[Feature::ResolvedAccountId, Feature::CredentialsProfile]),
            "from the profile"
        );
        assert_eq!(origin(&[]), "from the chain of the AWS SDKs");
    }

    /// aws-config ends an answer that stalls, without our message.
    #[test]
    fn an_answer_that_stops_is_the_networks_failure() {
        let kind = |cause: ConnectorError| {
            explain(&CredentialsError::provider_error(cause), None, true, &no_http()).kind()
        };
        assert_eq!(kind(ConnectorError::timeout("too slow".into())), ErrorKind::Endpoint);
        assert_eq!(kind(ConnectorError::io("it broke".into())), ErrorKind::Endpoint);
        assert_eq!(kind(ConnectorError::user("no URL".into())), ErrorKind::Access);
    }

    #[test]
    fn what_sts_repeats_of_a_request_is_in_no_error() {
        let repeated = "SignatureDoesNotMatch: The Canonical String should have been 'POST\n/\n\n\
                        host:h\nx-amz-security-token:hunter2\n'";
        let error = CredentialsError::provider_error(std::io::Error::other(repeated));
        let error = explain(&error, None, true, &no_http());
        assert!(error.to_string().contains("host:h x-amz-security-token:..."), "{error}");
        assert!(!error.causes().is_empty(), "its causes are kept");
        let shown = format!("{error:#} {error:?} {:?}", error.causes());
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn no_credentials_say_what_to_do() {
        let profile = NamedProfile { name: "p".to_owned(), by: "--profile" };
        let error =
            explain(&CredentialsError::not_loaded_no_source(), Some(&profile), true, &no_http());
        assert!(error.to_string().starts_with("the profile 'p' has no credentials"), "{error}");
        let error = explain(&CredentialsError::not_loaded_no_source(), None, true, &no_http());
        assert_eq!(error.kind(), ErrorKind::Access);
        let line = error.to_string();
        assert!(line.starts_with("no credentials found: not in the environment"), "{line}");
        assert!(line.contains("this instance; set AWS_ACCESS_KEY_ID"), "{line}");
        assert!(line.contains("--profile") && line.contains("--no-sign-request"), "{line}");
    }
}
