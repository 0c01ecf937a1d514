//! The source of a profile's credentials: its chain of assumed roles, and the credentials that
//! assume the first of them, like in the AWS CLI.
//!
//! aws-config has this, too, but ignores `duration_seconds`, and its errors name no file. It is
//! given no profile file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_config::sts::AssumeRoleProvider;
use aws_credential_types::Credentials;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::chain_http::CredentialService;
use super::container::AGENT_VARIABLES;
use super::environment::KEY_VARIABLES;
use super::login::{LOGIN, Login};
use super::process::Process;
use super::services::Services;
use super::tokens::{SSO, SingleSignOn, WEB_IDENTITY, WebIdentity};
use crate::control::limits::{CREDENTIALS_TIMEOUT, ROLE_SECONDS_MIN};
use crate::control::settings::profile_file::PROCESS;
use crate::control::settings::{KEYS, Settings};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;

pub(super) const ROLE: &str = "role_arn";
pub(super) const ROLE_SESSION: &str = "role_session_name";
const SOURCE_PROFILE: &str = "source_profile";
const SOURCE: &str = "credential_source";
const DURATION: &str = "duration_seconds";

/// The source of a profile's credentials.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    base: Base,
    /// The role of the profile itself comes first; it is assumed last.
    roles: Vec<Role>,
}

/// The source of the first credentials of a chain.
#[derive(Debug, PartialEq, Eq)]
enum Base {
    Named(Named),
    /// The keys of this profile.
    Keys(String),
    /// The `credential_process` of this profile.
    Process(String),
    WebIdentity(WebIdentity),
    SingleSignOn(SingleSignOn),
    Login(Login),
    /// None: the profile's settings are wrong.
    Refused(Error),
    /// None: the profile has no such settings.
    Nothing,
}

/// Values of `credential_source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Environment,
    Container,
    Instance,
}

impl Named {
    const ALL: [(&str, Self); 3] = [
        ("Environment", Self::Environment),
        ("EcsContainer", Self::Container),
        ("Ec2InstanceMetadata", Self::Instance),
    ];

    /// The variables of which it needs one at least.
    const fn variables(self) -> Option<[&'static str; 2]> {
        match self {
            Self::Environment => Some(KEY_VARIABLES),
            Self::Container => Some(AGENT_VARIABLES),
            Self::Instance => None,
        }
    }
}

/// A role to assume.
#[derive(Debug, PartialEq, Eq)]
struct Role {
    arn: String,
    session_name: Option<String>,
    external_id: Option<String>,
    duration: Option<Duration>,
    /// Its profile has `mfa_serial`: the AWS CLI asks for a code.
    has_mfa: bool,
}

/// The services that may give credentials.
pub(in crate::control) fn services(settings: &Settings) -> Vec<CredentialService> {
    let chain = Chain::of(settings).ok();
    let base = chain.as_ref().map(|chain| &chain.base);
    let asks_sts = WebIdentity::is_in_environment(settings)
        || chain.as_ref().is_some_and(Chain::has_role)
        || matches!(base, Some(Base::WebIdentity(_)));
    let mut services = if asks_sts { vec![CredentialService::Sts] } else { vec![] };
    match base {
        Some(Base::SingleSignOn(_)) => {
            services.extend([CredentialService::Sso, CredentialService::SsoOidc]);
        }
        Some(Base::Login(_)) => services.push(CredentialService::SignIn),
        _ => {}
    }
    services
}

impl Chain {
    /// The chain of the selected profile.
    ///
    /// # Errors
    /// [`ErrorKind::Access`] if it has no source.
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        let mut names = vec![settings.profile()];
        let mut roles = Vec::new();
        loop {
            let name = *names.last().expect("it begins with one");
            let said = |key| settings.of_profile(name, key);
            let is_source = !roles.is_empty();
            let has_keys = settings.keys(name).is_some();
            // A web identity's role is not assumed with other credentials.
            let arn = said(ROLE).filter(|_| said(WEB_IDENTITY).is_none());
            let Some(arn) = arn.filter(|_| !(is_source && has_keys)) else {
                let base = base(settings, name);
                require_whole_keys(settings, name, &base)?;
                if is_source && base == Base::Nothing {
                    let (from, to) = (names[names.len() - 2], shown(name));
                    let why = format!("refers to the profile '{to}', which has no credentials");
                    return Err(refuse(settings, from, SOURCE_PROFILE, &why));
                }
                return Ok(Self { base, roles });
            };
            roles.push(Role::of(settings, name, arn)?);
            let source = match (said(SOURCE_PROFILE), said(SOURCE)) {
                (Some(_), Some(_)) => {
                    let why = format!("has both {SOURCE_PROFILE} and {SOURCE}");
                    return Err(refuse(settings, name, SOURCE, &why));
                }
                (None, None) => {
                    let why = format!("has {ROLE}, but neither {SOURCE_PROFILE} nor {SOURCE}");
                    return Err(refuse(settings, name, ROLE, &why));
                }
                (None, Some(source)) => {
                    let is_meant = |known: &&(&str, _)| known.0.eq_ignore_ascii_case(source);
                    let Some((known, named)) = Named::ALL.iter().find(is_meant) else {
                        let known = Named::ALL.map(|(name, _)| name).join(", ");
                        let source = shown(source);
                        let why = format!("has {SOURCE} = {source}, which is none of {known}");
                        return Err(refuse(settings, name, SOURCE, &why));
                    };
                    if let Some([first, second]) = named.variables()
                        && [first, second].iter().all(|name| settings.variable(name).is_none())
                    {
                        let why = format!(
                            "has {SOURCE} = {known}, but neither {first} nor {second} is set"
                        );
                        return Err(refuse(settings, name, SOURCE, &why));
                    }
                    return Ok(Self { base: Base::Named(*named), roles });
                }
                (Some(source), None) => source,
            };
            if !settings.has_profile(source) {
                let source_shown = shown(source);
                let why = format!("refers to the profile '{source_shown}', which does not exist");
                let refused = refuse(settings, name, SOURCE_PROFILE, &why);
                return Err(match settings.misnamed(source) {
                    Some(advice) => refused.advise(advice),
                    None => refused,
                });
            }
            // A profile may have both a role and the credentials that assume it.
            if source == name && (has_keys || said(PROCESS).is_some()) {
                return Ok(Self { base: base(settings, name), roles });
            }
            if names.contains(&source) {
                names.push(source);
                let way: Vec<String> = names.iter().map(|name| shown(name)).collect();
                let why = format!("is in a circle of {SOURCE_PROFILE}: {}", way.join(" -> "));
                return Err(refuse(settings, source, SOURCE_PROFILE, &why));
            }
            names.push(source);
        }
    }

    /// True if its first credentials are those of the environment.
    pub(super) fn is_of_environment(&self) -> bool {
        self.base == Base::Named(Named::Environment)
    }

    /// True if the profile assumes a role with other credentials.
    pub(super) fn has_role(&self) -> bool {
        !self.roles.is_empty()
    }

    /// True if the AWS CLI would ask for a code.
    pub(super) fn has_mfa(&self) -> bool {
        self.roles.iter().any(|role| role.has_mfa)
    }

    /// The profile whose `credential_process` is run, if any.
    pub(super) fn profile_of_process(&self) -> Option<&str> {
        match &self.base {
            Base::Process(profile) => Some(profile),
            _ => None,
        }
    }

    /// The profile that has the keys itself, and its file, in words.
    pub(super) fn keys_place(&self, settings: &Settings) -> Option<String> {
        let Base::Keys(profile) = &self.base else { return None };
        let file = settings.file_of(profile, KEYS[0]);
        Some(format!("the profile '{}' in {file}", shown(profile)))
    }

    /// The provider of these credentials; `named` gives those of a `credential_source`.
    pub(super) async fn provider(
        self,
        settings: &Arc<Settings>,
        services: &Services,
        named: impl FnOnce(Named) -> SharedCredentialsProvider,
    ) -> SharedCredentialsProvider {
        let mut provider = match self.base {
            Base::Named(source) => named(source),
            Base::Keys(profile) => SharedCredentialsProvider::new(FileKeys {
                settings: Arc::clone(settings),
                profile,
                are_read: AtomicBool::new(true),
            }),
            Base::Process(profile) => {
                let process = SharedCredentialsProvider::new(Process::of(settings, &profile));
                match self.roles.is_empty() {
                    true => process,
                    // Each attempt at STS requests the credentials that sign it.
                    false => SharedCredentialsProvider::new(Kept::new(process)),
                }
            }
            Base::WebIdentity(identity) => identity.provider(services),
            Base::SingleSignOn(session) => session.provider(services),
            Base::Login(session) => session.provider(services),
            Base::Refused(error) => SharedCredentialsProvider::new(Refused(error)),
            Base::Nothing => SharedCredentialsProvider::new(Nothing),
        };
        let sts = services.config(CredentialService::Sts);
        for role in self.roles.into_iter().rev() {
            let mut builder = AssumeRoleProvider::builder(role.arn).configure(&sts);
            if let Some(name) = role.session_name {
                builder = builder.session_name(name);
            }
            if let Some(id) = role.external_id {
                builder = builder.external_id(id);
            }
            if let Some(duration) = role.duration {
                builder = builder.session_length(duration);
            }
            let assumed = builder.build_from_provider(provider).await;
            provider = SharedCredentialsProvider::new(assumed);
        }
        provider
    }
}

impl Role {
    fn of(settings: &Settings, profile: &str, arn: &str) -> Result<Self> {
        let said = |key| settings.of_profile(profile, key).map(str::to_owned);
        let duration = said(DURATION).map(|text| {
            // The upper limit is the server's: AWS has 43200 s, others have more.
            let seconds = text.parse::<i32>().ok().filter(|seconds| *seconds >= ROLE_SECONDS_MIN);
            seconds.map(|seconds| Duration::from_secs(seconds.unsigned_abs().into())).ok_or_else(
                || {
                    let why = format!(
                        "has {DURATION} = {}, which is no number of {ROLE_SECONDS_MIN} or more",
                        shown(&text)
                    );
                    refuse(settings, profile, DURATION, &why)
                },
            )
        });
        Ok(Self {
            arn: arn.to_owned(),
            session_name: said(ROLE_SESSION),
            external_id: said("external_id"),
            duration: duration.transpose()?,
            has_mfa: said("mfa_serial").is_some(),
        })
    }
}

/// The source of a profile's credentials without a role, in the order of the AWS CLI.
fn base(settings: &Settings, profile: &str) -> Base {
    let name = profile.to_owned();
    let is_said = |key: &str| settings.of_profile(profile, key).is_some();
    let keys = settings.keys(profile);
    match keys {
        _ if is_said(WEB_IDENTITY) => {
            WebIdentity::of_profile(settings, profile).map_or_else(Base::Refused, Base::WebIdentity)
        }
        _ if SSO.into_iter().any(is_said) => SingleSignOn::of_profile(settings, profile)
            .map_or_else(Base::Refused, Base::SingleSignOn),
        Some(keys) if keys.are_of_credentials_file => Base::Keys(name),
        _ if is_said(LOGIN) => {
            Login::of_profile(settings, profile).map_or_else(Base::Refused, Base::Login)
        }
        _ if is_said(PROCESS) => Base::Process(name),
        Some(_) => Base::Keys(name),
        None => Base::Nothing,
    }
}

/// Refuses half a pair of keys if nothing else of the profile gives credentials.
fn require_whole_keys(settings: &Settings, profile: &str, base: &Base) -> Result<()> {
    if *base != Base::Nothing {
        return Ok(());
    }
    let is_said = |key: &str| settings.of_profile(profile, key).is_some();
    let (set, missing) = match KEYS.map(is_said) {
        [true, false] => (KEYS[0], KEYS[1]),
        [false, true] => (KEYS[1], KEYS[0]),
        _ => return Ok(()),
    };
    Err(refuse(settings, profile, set, &format!("has {set}, but no {missing}")))
}

/// The keys of a profile, for as long as a run lasts: other programs replace them in the files.
#[derive(Debug)]
struct FileKeys {
    settings: Arc<Settings>,
    profile: String,
    /// The settings were read just now, and nobody was given their keys.
    are_read: AtomicBool,
}

impl FileKeys {
    async fn ask(&self) -> Result<Credentials> {
        if self.are_read.swap(false, Ordering::Relaxed) {
            return keys_of(&self.settings, &self.profile);
        }
        let settings = Arc::clone(&self.settings);
        let read = spawn_blocking(move || settings.read_again()).await;
        keys_of(&read.expect("reading does not panic")?, &self.profile)
    }
}

impl ProvideCredentials for FileKeys {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            self.ask().await.map_err(CredentialsError::provider_error)
        })
    }
}

fn keys_of(settings: &Settings, profile: &str) -> Result<Credentials> {
    let keys = settings.keys(profile);
    let keys = keys.ok_or_else(|| refuse(settings, profile, KEYS[0], "has no keys any more"))?;
    let mut builder = Credentials::builder()
        .provider_name("Profile")
        .access_key_id(keys.access_key)
        .secret_access_key(keys.secret_key);
    builder.set_session_token(keys.session_token.map(str::to_owned));
    let mut keys = builder.build();
    keys.set_property(vec![AwsCredentialFeature::CredentialsProfile]);
    Ok(keys)
}

/// The error about this setting of a profile.
pub(super) fn refuse(settings: &Settings, profile: &str, key: &str, why: &str) -> Error {
    let (file, profile) = (settings.file_of(profile, key), shown(profile));
    Error::new(ErrorKind::Access, format!("{file}: the profile '{profile}' {why}"))
        .advise(settings.check_words())
}

/// Caches another provider's credentials for the attempts of one renewal: until shortly before they
/// expire, and for [`CREDENTIALS_TIMEOUT`] at most, because servers may refuse them earlier.
#[derive(Debug)]
struct Kept {
    provider: SharedCredentialsProvider,
    given: Mutex<Option<(Credentials, Instant)>>,
}

impl Kept {
    fn new(provider: SharedCredentialsProvider) -> Self {
        Self { provider, given: Mutex::default() }
    }
}

impl ProvideCredentials for Kept {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let mut given = self.given.lock().await;
            let soon = crate::control::now() + CREDENTIALS_TIMEOUT;
            let lasts = |(keys, at): &&(Credentials, Instant)| {
                at.elapsed() < CREDENTIALS_TIMEOUT && keys.expiry().is_none_or(|ends| ends > soon)
            };
            if let Some((keys, _)) = given.as_ref().filter(lasts) {
                return Ok(keys.clone());
            }
            let keys = self.provider.provide_credentials().await?;
            *given = Some((keys.clone(), Instant::now()));
            Ok(keys)
        })
    }
}

/// Gives nothing, so that the next provider of the chain is asked.
#[derive(Debug)]
pub(super) struct Nothing;

impl ProvideCredentials for Nothing {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(CredentialsError::not_loaded_no_source()))
    }
}

/// Fails with this error.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Error);

impl ProvideCredentials for Refused {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let refused = CredentialsError::invalid_configuration(self.0.clone());
        future::ProvideCredentials::ready(Err(refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
        [default]\nrole_arn = first\nsource_profile = middle\nduration_seconds = 900\n\
        [profile middle]\nrole_arn = second\nsource_profile = base\nexternal_id = e\n\
        role_session_name = n\n\
        [profile base]\naws_access_key_id = A\naws_secret_access_key = S\nrole_arn = never\n\
        [profile env]\nrole_arn = r\ncredential_source = environment\nmfa_serial = m\n\
        [profile self]\nrole_arn = r\nsource_profile = self\naws_access_key_id = A\n\
        aws_secret_access_key = S\n\
        [profile both]\ncredential_process = p\naws_access_key_id = A\n\
        aws_secret_access_key = S\n\
        [profile web]\nrole_arn = r\nweb_identity_token_file = f\nduration_seconds = 900\n\
        [profile mixed]\ncredential_process = p\n\
        [profile missing]\nrole_arn = r\nsource_profile = nowhere\n\
        [profile left]\nsso_session = s\nsso_start_url = u\naws_access_key_id = A\n\
        aws_secret_access_key = S\n\
        [profile empty]\nrole_arn = r\nsource_profile = nothing\n\
        [profile nothing]\nregion = r\n\
        [profile alone]\nrole_arn = r\n\
        [profile two]\nrole_arn = r\nsource_profile = base\ncredential_source = Environment\n\
        [profile odd]\nrole_arn = r\ncredential_source = Nonsense\n\
        [profile mirror]\nrole_arn = r\nsource_profile = mirror\n\
        [profile a]\nrole_arn = r\nsource_profile = b\n\
        [profile b]\nrole_arn = r\nsource_profile = a\n\
        [profile long]\nrole_arn = r\nsource_profile = base\nduration_seconds = 604800\n\
        [profile brief]\nrole_arn = r\nsource_profile = base\nduration_seconds = 899\n\
        [profile short]\nrole_arn = r\nsource_profile = base\nduration_seconds = 1h\n\
        [profile key]\naws_access_key_id = A\n\
        [profile secret]\naws_secret_access_key = S\naws_session_token = T\n\
        [profile of-key]\nrole_arn = r\nsource_profile = key\n";

    fn settings(profile: &str) -> Settings {
        let variables = [
            ("AWS_CONFIG_FILE", "/config"),
            ("AWS_SHARED_CREDENTIALS_FILE", "/keys"),
            ("AWS_ACCESS_KEY_ID", "A"),
        ];
        let keys = "[mixed]\naws_access_key_id = A\naws_secret_access_key = S\n";
        let files = [("/config", CONFIG), ("/keys", keys)];
        Settings::of(&variables, &files, Some(profile)).expect("good words")
    }

    #[test]
    fn roles_are_followed_to_their_keys() {
        let role = |arn: &str| Role {
            arn: arn.to_owned(),
            session_name: None,
            external_id: None,
            duration: None,
            has_mfa: false,
        };
        let first = Role { duration: Some(Duration::from_secs(900)), ..role("first") };
        let long = Role { duration: Some(Duration::from_secs(604_800)), ..role("r") };
        let named = |text: &str| Some(text.to_owned());
        let second = Role { session_name: named("n"), external_id: named("e"), ..role("second") };
        let web = WebIdentity::of_profile(&settings("web"), "web").expect("a web identity");
        let keys = |profile: &str| Base::Keys(profile.to_owned());
        for (profile, base, roles) in [
            ("default", keys("base"), vec![first, second]),
            // The server refuses more than AWS allows: MinIO allows seven days.
            ("long", keys("base"), vec![long]),
            ("env", Base::Named(Named::Environment), vec![Role { has_mfa: true, ..role("r") }]),
            ("self", keys("self"), vec![role("r")]),
            ("both", Base::Process("both".to_owned()), vec![]),
            // Like botocore: the credentials file has precedence.
            ("mixed", keys("mixed"), vec![]),
            ("nothing", Base::Nothing, vec![]),
            // A web identity's role is not assumed with other credentials.
            ("web", Base::WebIdentity(web), vec![]),
            // Without the role of single sign-on its other settings are ignored.
            ("left", keys("left"), vec![]),
        ] {
            assert_eq!(Chain::of(&settings(profile)), Ok(Chain { base, roles }), "{profile}");
        }
    }

    /// Keys that are read once would be refused for ever after they were replaced.
    #[test]
    fn keys_are_given_anew_at_each_renewal() {
        crate::control::loopback::run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("keys");
            let write = |key: &str| {
                let keys = format!("aws_access_key_id = {key}\naws_secret_access_key = S\n");
                std::fs::write(&path, format!("[default]\n{keys}")).expect("room");
            };
            let file = path.to_str().expect("UTF-8");
            let read = [(
                file.to_owned().leak() as &'static str,
                "[default]\n\
                aws_access_key_id = A\naws_secret_access_key = S\n",
            )];
            let variables = [("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_CONFIG_FILE", "/nope")];
            let settings = Arc::new(Settings::of(&variables, &read, None).expect("good words"));
            let profile = "default".to_owned();
            let keys = FileKeys { settings, profile, are_read: AtomicBool::new(true) };
            let key = async || keys.ask().await.map(|keys| keys.access_key_id().to_owned());
            write("B");
            assert_eq!(key().await.as_deref(), Ok("A"), "as the settings were read");
            assert_eq!(key().await.as_deref(), Ok("B"));
            std::fs::write(&path, "[default]\naws_access_key_id\n").expect("room");
            assert!(key().await.expect_err("half").message().contains("keys, line 2"));
            std::fs::remove_file(&path).expect("it is there");
            let error = key().await.expect_err("it is gone");
            assert!(error.message().ends_with("'default' has no keys any more"), "{error}");
            write("C");
            assert_eq!(key().await.as_deref(), Ok("C"));
            // What is no file, such as a pipe, was read once.
            std::fs::remove_file(&path).expect("it is there");
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).expect("a pipe");
            assert_eq!(key().await.as_deref(), Ok("A"));

            let kept = Kept::new(SharedCredentialsProvider::new(keys));
            let other = Credentials::new("OTHER", "S", None, None, "test");
            *kept.given.lock().await = Some((other, Instant::now()));
            assert_eq!(kept.provide_credentials().await.expect("keys").access_key_id(), "OTHER");
            let old = Instant::now().checked_sub(CREDENTIALS_TIMEOUT).expect("a running machine");
            kept.given.lock().await.as_mut().expect("some").1 = old;
            assert_eq!(kept.provide_credentials().await.expect("keys").access_key_id(), "A");
        });
    }

    #[test]
    fn chains_that_lead_nowhere_are_reported_by_file_and_profile() {
        for (profile, why) in [
            ("missing", "'missing' refers to the profile 'nowhere', which does not exist"),
            ("empty", "'empty' refers to the profile 'nothing', which has no credentials"),
            ("alone", "'alone' has role_arn, but neither source_profile nor credential_source"),
            ("two", "'two' has both source_profile and credential_source"),
            ("odd", "'odd' has credential_source = Nonsense, which is none of Environment, "),
            ("mirror", "'mirror' is in a circle of source_profile: mirror -> mirror"),
            ("a", "'a' is in a circle of source_profile: a -> b -> a"),
            ("brief", "'brief' has duration_seconds = 899, which is no number of 900 or more"),
            ("short", "'short' has duration_seconds = 1h, which is no number"),
            ("key", "'key' has aws_access_key_id, but no aws_secret_access_key"),
            ("secret", "'secret' has aws_secret_access_key, but no aws_access_key_id"),
            ("of-key", "'key' has aws_access_key_id, but no aws_secret_access_key"),
        ] {
            let error = Chain::of(&settings(profile)).expect_err(profile);
            assert_eq!(error.kind(), ErrorKind::Access);
            let expected = format!("/config: the profile {why}");
            assert!(error.to_string().starts_with(&expected), "{profile}: {error}");
            assert_eq!(error.advice(), Some("check --profile, /config and /keys"));
        }
    }
}
