//! Credentials for a token: web identities, and sessions of single sign-on.
//!
//! The SDK's clients exchange the token. What they are asked stands in settings, which are read
//! here as the AWS CLI reads them.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::sso::SsoTokenProvider;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::{CredentialsError, TokenError};
use aws_credential_types::provider::token::ProvideToken as _;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use aws_credential_types::{Credentials, Token};
use aws_types::SdkConfig;
use aws_types::region::Region;
use tokio::task::spawn_blocking;

use super::chain_http::{ChainHttp, CredentialService};
use super::reasons::{reason_of, reasons};
use super::roles::{ROLE, ROLE_SESSION, Refused, refuse};
use super::services::Services;
use crate::control::settings::profile_file::PROFILE_DEFAULT;
use crate::control::settings::{Chosen, Found, Settings, environment, read_bounded};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;

pub(in crate::control) const WEB_IDENTITY: &str = "web_identity_token_file";
/// The variables of a web identity: its token, its role, and the name of its session.
const VARIABLES: [&str; 3] =
    ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME"];

/// The settings that make a profile one of single sign-on; without them the others are ignored.
pub(super) const SSO: [&str; 2] = ["sso_account_id", "sso_role_name"];
const SESSION: &str = "sso_session";
/// The settings of single sign-on in a profile or its session.
const PORTAL: [&str; 2] = ["sso_region", "sso_start_url"];

/// The error of an answer without keys.
const NO_KEYS: &str = "the answer has no keys";

/// A role that is assumed for the token in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WebIdentity {
    token_file: Found,
    role: String,
    session_name: Option<String>,
}

impl WebIdentity {
    /// True if the environment has one.
    pub(super) fn is_in_environment(settings: &Settings) -> bool {
        settings.variable(VARIABLES[0]).is_some()
    }

    /// The web identity of the environment, if it names a token file. As in botocore, the role and
    /// the session's name are those of the chosen profile if the environment has none.
    ///
    /// # Errors
    /// [`ErrorKind::Access`] where it has no role.
    pub(super) fn of_environment(settings: &Settings) -> Result<Option<Self>> {
        let token_file = settings.in_variables(&VARIABLES[..1]);
        let [role, session_name] = [VARIABLES[1], VARIABLES[2]].map(|name| settings.variable(name));
        let Some(token_file) = token_file else { return Ok(None) };
        let of_profile = |key| settings.of_profile(settings.profile(), key).map(str::to_owned);
        let Some(role) = role.or_else(|| of_profile(ROLE)) else {
            let [file, role, _] = VARIABLES;
            let message = format!("{file} is set, but {role} is not");
            return Err(Error::new(ErrorKind::Access, message).advise("set both or neither"));
        };
        let session_name = session_name.or_else(|| of_profile(ROLE_SESSION));
        Ok(Some(Self { token_file, role, session_name }))
    }

    /// The web identity of a profile with a token file. As in botocore, the role and the session's
    /// name of the environment take precedence unless `--profile` names the profile.
    ///
    /// # Errors
    /// Those of [`Self::of_environment`].
    pub(super) fn of_profile(settings: &Settings, profile: &str) -> Result<Self> {
        let is_alone = settings.chosen() == Chosen::CommandLine || profile != settings.profile();
        let found = |key, variable| {
            let of_environment = settings.in_variables(&[variable]).filter(|_| !is_alone);
            of_environment.or_else(|| settings.found_in(profile, key))
        };
        let missing = || {
            let why = format!("has {WEB_IDENTITY}, but no {ROLE}");
            refuse(settings, profile, WEB_IDENTITY, &why)
        };
        let [token_variable, role_variable, session_variable] = VARIABLES;
        let role = found(ROLE, role_variable).ok_or_else(missing)?;
        let token_file = found(WEB_IDENTITY, token_variable).ok_or_else(missing)?;
        let session_name = found(ROLE_SESSION, session_variable).map(|found| found.value);
        Ok(Self { token_file, role: role.value, session_name })
    }

    pub(super) fn provider(self, services: &Services) -> SharedCredentialsProvider {
        let client = aws_sdk_sts::Client::new(&services.config(CredentialService::Sts));
        SharedCredentialsProvider::new(RoleOfToken { identity: self, client })
    }
}

/// The token in a file, which may be a pipe; without white space around it, as of a line.
///
/// # Errors
/// [`ErrorKind::Access`] where there is none, by the file and what names it.
pub(super) async fn read_token(file: &Found) -> Result<String> {
    let path = PathBuf::from(&file.value);
    let read = spawn_blocking(move || read_bounded(&path)).await.expect("reading does not panic");
    let token = read.map(|text| text.trim().to_owned()).map_err(|error| error.to_string());
    let token = match token {
        Ok(token) if token.is_empty() => Err("it has no token".to_owned()),
        token => token,
    };
    token.map_err(|why| {
        let named = file.named();
        Error::new(ErrorKind::Access, format!("{named}: {why}")).advise("check the file")
    })
}

/// Assumes a role for a token.
#[derive(Debug)]
struct RoleOfToken {
    identity: WebIdentity,
    client: aws_sdk_sts::Client,
}

impl ProvideCredentials for RoleOfToken {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.ask())
    }
}

impl RoleOfToken {
    async fn ask(&self) -> provider::Result {
        let WebIdentity { token_file, role, session_name } = &self.identity;
        let token =
            read_token(token_file).await.map_err(CredentialsError::invalid_configuration)?;
        let unnamed = || {
            let now = crate::control::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("web-identity-token-{}", now.as_millis())
        };
        let request = self.client.assume_role_with_web_identity().role_arn(role);
        let request = request.web_identity_token(token);
        let request = request.role_session_name(session_name.clone().unwrap_or_else(unnamed));
        let answer = request.send().await.map_err(CredentialsError::provider_error)?;
        let given = answer.credentials.ok_or_else(|| CredentialsError::unhandled(NO_KEYS))?;
        let ends = SystemTime::try_from(given.expiration).map_err(CredentialsError::unhandled)?;
        let mut keys = Credentials::builder()
            .provider_name("WebIdentityToken")
            .access_key_id(given.access_key_id)
            .secret_access_key(given.secret_access_key)
            .session_token(given.session_token)
            .expiry(ends)
            .build();
        keys.set_property(vec![AwsCredentialFeature::CredentialsStsAssumeRoleWebId]);
        Ok(keys)
    }
}

/// A role of an account, for a session of single sign-on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SingleSignOn {
    profile: String,
    account: String,
    role: String,
    region: String,
    start_url: String,
    session: Option<String>,
}

impl SingleSignOn {
    /// The role of a profile.
    ///
    /// # Errors
    /// [`ErrorKind::Access`] where a part of it is missing.
    pub(super) fn of_profile(settings: &Settings, profile: &str) -> Result<Self> {
        let own = |key| settings.of_profile(profile, key);
        let session = own(SESSION);
        let said = |key| match session {
            None => Ok(own(key)),
            Some(name) => {
                let Some(found) = settings.of_session(name, key) else {
                    let name = shown(name);
                    let why =
                        format!("has {SESSION} = {name}, but there is no [sso-session {name}]");
                    return Err(refuse(settings, profile, SESSION, &why));
                };
                match (own(key), found) {
                    (Some(own), Some(found)) if own != found => {
                        let why = format!("has another {key} than its {SESSION}");
                        Err(refuse(settings, profile, key, &why))
                    }
                    (own, found) => Ok(found.or(own)),
                }
            }
        };
        let missing = |key, found: Option<&str>| {
            found.map(str::to_owned).ok_or_else(|| {
                let set = SSO.into_iter().find(|key| own(key).is_some()).unwrap_or(SSO[0]);
                refuse(settings, profile, set, &format!("has {set}, but no {key}"))
            })
        };
        let [account, role] = SSO.map(|key| missing(key, own(key)));
        let [region, start_url] = PORTAL.map(|key| missing(key, said(key)?));
        Ok(Self {
            profile: profile.to_owned(),
            account: account?,
            role: role?,
            region: region?,
            start_url: start_url?,
            session: session.map(str::to_owned),
        })
    }

    /// The SDK looks for the session below HOME, and takes an empty one for a folder.
    pub(super) fn provider(self, services: &Services) -> SharedCredentialsProvider {
        if environment("HOME").is_none() {
            let message = "HOME is not set: a session of single sign-on is in ~/.aws/sso/cache";
            let error = Error::new(ErrorKind::Access, message).advise("set HOME");
            return SharedCredentialsProvider::new(Refused(error));
        }
        let region = Region::new(self.region.clone());
        let sso = services.config_in(CredentialService::Sso, region.clone());
        let client = aws_sdk_sso::Client::new(&sso);
        let oidc = services.config_in(CredentialService::SsoOidc, region);
        let http = services.http.clone();
        SharedCredentialsProvider::new(RoleOfSession { of: self, oidc, client, http })
    }

    /// The session's token, as its file has it now: the user may have logged in again.
    async fn token(&self, oidc: &SdkConfig) -> Result<Token, TokenError> {
        let provider = SsoTokenProvider::builder()
            .configure(oidc)
            .region(Region::new(self.region.clone()))
            // A session without a name is kept by its URL.
            .session_name(self.session.as_ref().unwrap_or(&self.start_url))
            .start_url(&self.start_url)
            .build()
            .await;
        provider.provide_token().await
    }
}

/// Gets the keys of a role for a session of single sign-on.
#[derive(Debug)]
struct RoleOfSession {
    of: SingleSignOn,
    /// For a session that is refreshed.
    oidc: SdkConfig,
    client: aws_sdk_sso::Client,
    http: ChainHttp,
}

impl ProvideCredentials for RoleOfSession {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.ask())
    }
}

impl RoleOfSession {
    async fn ask(&self) -> provider::Result {
        let token = self.of.token(&self.oidc).await.map_err(|error| {
            let refused = Error::new(ErrorKind::Access, reason_of(&reasons_of_token(&error)));
            CredentialsError::provider_error(self.to_log_in(refused))
        })?;
        let request = self.client.get_role_credentials().access_token(token.token());
        let request = request.account_id(&self.of.account).role_name(&self.of.role);
        let answer = request.send().await.map_err(|error| {
            let error = CredentialsError::provider_error(error);
            match self.http.failed(&reason_of(&reasons(&error)), None) {
                Some(refused)
                    if refused.kind() == ErrorKind::Access && self.http.redirect().is_none() =>
                {
                    CredentialsError::provider_error(self.to_log_in(refused))
                }
                _ => error,
            }
        })?;
        let no_keys = || CredentialsError::unhandled(NO_KEYS);
        let given = answer.role_credentials.ok_or_else(no_keys)?;
        let ends = u64::try_from(given.expiration).map_err(CredentialsError::unhandled)?;
        let mut builder = Credentials::builder()
            .provider_name("SSO")
            .access_key_id(given.access_key_id.ok_or_else(no_keys)?)
            .secret_access_key(given.secret_access_key.ok_or_else(no_keys)?)
            .expiry(UNIX_EPOCH + Duration::from_millis(ends));
        builder.set_session_token(given.session_token);
        let mut keys = builder.build();
        keys.set_property(vec![AwsCredentialFeature::CredentialsSso]);
        Ok(keys)
    }

    fn to_log_in(&self, refused: Error) -> Error {
        to_log_in(refused, &self.of.profile, "aws sso login")
    }
}

/// The error of a session that gives no keys; `command` begins another one.
pub(super) fn to_log_in(refused: Error, profile: &str, command: &str) -> Error {
    let what = format!("cannot get credentials of the profile '{}'", shown(profile));
    refused.within(what).advise(match profile {
        PROFILE_DEFAULT => format!("to renew the session: {command}"),
        name => format!("to renew the session: {command} --profile {}", shown(name)),
    })
}

/// The causes of an error of a session's token, with those of its file: aws-config returns them by
/// the older of the two methods for that.
#[expect(deprecated, reason = "the only method by which aws-config returns the file's error")]
fn reasons_of_token(error: &TokenError) -> String {
    let mut causes = reasons(error);
    let of_file = error.source().and_then(StdError::cause);
    for cause in of_file.into_iter().flat_map(|cause| [Some(cause), cause.cause()]).flatten() {
        let words = cause.to_string();
        if !causes.contains(&words) {
            causes = format!("{causes}: {words}");
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)], config: &'static str) -> Settings {
        let variables = [&[("AWS_CONFIG_FILE", "/config")], variables].concat();
        Settings::of(&variables, &[("/config", config)], None).expect("good words")
    }

    #[test]
    fn single_sign_on_is_read_as_by_the_aws_cli() {
        let role = "[default]\nsso_account_id = 1\nsso_role_name = r\n";
        let portal = "sso_region = eu-west-1\nsso_start_url = https://x/start\n";
        let session = "sso_session = s o\n[sso-session 's o']\n";
        let expected = |session: Option<&str>| SingleSignOn {
            profile: "default".to_owned(),
            account: "1".to_owned(),
            role: "r".to_owned(),
            region: "eu-west-1".to_owned(),
            start_url: "https://x/start".to_owned(),
            session: session.map(str::to_owned),
        };
        let read = |config: String| {
            let found = settings(&[], config.leak());
            SingleSignOn::of_profile(&found, "default")
        };
        assert_eq!(read(format!("{role}{portal}")), Ok(expected(None)));
        // The name of a session is part of its token's file name: it stays unchanged.
        assert_eq!(read(format!("{role}{session}{portal}")), Ok(expected(Some("s o"))));
        assert_eq!(read(format!("{role}{portal}{session}{portal}")), Ok(expected(Some("s o"))));
        for (config, why) in [
            (format!("[default]\nsso_account_id = 1\n{portal}"), "has sso_account_id, but no sso_"),
            (format!("[default]\nsso_role_name = 1\n{portal}"), "has sso_role_name, but no sso_a"),
            (role.to_owned(), "has sso_account_id, but no sso_region"),
            (
                format!("{role}{session}sso_region = x\n"),
                "has sso_account_id, but no sso_start_url",
            ),
            (format!("{role}sso_session = t\n"), "has sso_session = t, but there is no [sso-sess"),
            (
                format!("{role}sso_region = x\n{session}{portal}"),
                "has another sso_region than its sso_session",
            ),
        ] {
            let error = read(config).expect_err(why);
            let expected = format!("/config: the profile 'default' {why}");
            assert!(error.message().starts_with(&expected), "{why}: {error}");
            assert_eq!(error.kind(), ErrorKind::Access);
        }
    }

    #[test]
    fn a_web_identity_needs_its_role() {
        let file = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/jwt");
        let of = |variables: &[_]| WebIdentity::of_environment(&settings(variables, ""));
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("AWS_WEB_IDENTITY_TOKEN_FILE", ""), ("AWS_ROLE_ARN", "r")]), Ok(None));
        let error = of(&[file]).expect_err("there is no role");
        let expected = "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not";
        assert_eq!(error.message(), expected);
        assert!(of(&[file, ("AWS_ROLE_ARN", "r")]).is_ok_and(|found| found.is_some()));
        let found = settings(&[], "[default]\nweb_identity_token_file = /jwt\n");
        let error = WebIdentity::of_profile(&found, "default").expect_err("there is no role");
        assert!(error.message().ends_with("has web_identity_token_file, but no role_arn"));
    }
    #[test]
    fn a_web_identity_is_of_the_environment_first() {
        let config = "[default]\nrole_arn = own\nrole_session_name = n\n\
            web_identity_token_file = /jwt\n\
            [profile named]\nrole_arn = own\nrole_session_name = n\n\
            web_identity_token_file = /jwt\n\
            [profile other]\nrole_arn = own\nrole_session_name = n\n\
            web_identity_token_file = /jwt\n";
        let files = [("/config", config)];
        let variables = [("AWS_CONFIG_FILE", "/config"), ("AWS_ROLE_ARN", "of-environment")];
        let token = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token");
        let identity = |token_file: &str, role: &str| {
            (token_file.to_owned(), role.to_owned(), Some("n".to_owned()))
        };
        let fields = |found: WebIdentity| (found.token_file.value, found.role, found.session_name);
        let read = |variables: &[_], profile| {
            Settings::of(variables, &files, profile).expect("good words")
        };
        // Of the profile that nobody names, and of one that AWS_PROFILE names.
        let settings = read(&variables, None);
        let of =
            |settings: &Settings, profile| WebIdentity::of_profile(settings, profile).map(fields);
        assert_eq!(of(&settings, "default"), Ok(identity("/jwt", "of-environment")));
        let settings = read(&[variables[0], variables[1], ("AWS_PROFILE", "named")], None);
        assert_eq!(of(&settings, "named"), Ok(identity("/jwt", "of-environment")));
        // Not of one whose keys it uses, nor of one that the command line names.
        assert_eq!(of(&settings, "other"), Ok(identity("/jwt", "own")));
        let settings = read(&variables, Some("named"));
        assert_eq!(of(&settings, "named"), Ok(identity("/jwt", "own")));
        // What the environment lacks, its profile has.
        let settings = read(&[variables[0], token], None);
        let expected = Ok(Some(identity("/token", "own")));
        let found = WebIdentity::of_environment(&settings);
        assert_eq!(found.map(|found| found.map(fields)), expected);
    }
}
