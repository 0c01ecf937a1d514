//! Credentials for a token: web identities, and sessions of single sign-on.
//!
//! aws-config exchanges the token. It gets single settings, which are read here like in the AWS
//! CLI, and no profile file.

use std::time::UNIX_EPOCH;

use aws_config::provider_config::ProviderConfig;
use aws_config::sso::SsoCredentialsProvider;
use aws_config::web_identity_token::{StaticConfiguration, WebIdentityTokenCredentialsProvider};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_types::region::Region;

use super::chain_http::Service;
use super::roles::{ROLE, ROLE_SESSION, refuse};
use crate::control::settings::{Chosen, Settings};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;

pub(super) const WEB_IDENTITY: &str = "web_identity_token_file";
/// The variables of a web identity: its token, its role, and the name of its session.
const VARIABLES: [&str; 3] =
    ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME"];

/// The settings that make a profile one of single sign-on; without them the others are ignored.
pub(super) const SSO: [&str; 2] = ["sso_account_id", "sso_role_name"];
const SESSION: &str = "sso_session";
/// The settings of single sign-on in a profile or its session.
const PORTAL: [&str; 2] = ["sso_region", "sso_start_url"];

/// A role that is assumed for the token in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WebIdentity {
    token_file: String,
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
    /// [`ErrorKind::Access`] if it has no role; see [`require_followed`].
    pub(super) fn of_environment(settings: &Settings) -> Result<Option<Self>> {
        let [token_file, role, session_name] = VARIABLES.map(|name| settings.variable(name));
        let Some(token_file) = token_file else { return Ok(None) };
        let of_profile = |key| settings.of_profile(settings.profile(), key).map(str::to_owned);
        let Some(role) = role.or_else(|| of_profile(ROLE)) else {
            let [file, role, _] = VARIABLES;
            let message = format!("{file} is set, but {role} is not");
            return Err(Error::new(ErrorKind::Access, message).advise("set both or neither"));
        };
        require_followed(settings, &[Service::Sts])?;
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
            let of_environment = settings.variable(variable).filter(|_| !is_alone);
            of_environment.or_else(|| settings.of_profile(profile, key).map(str::to_owned))
        };
        let missing = || {
            let why = format!("has {WEB_IDENTITY}, but no {ROLE}");
            refuse(settings, profile, WEB_IDENTITY, &why)
        };
        let [token_variable, role_variable, session_variable] = VARIABLES;
        let role = found(ROLE, role_variable).ok_or_else(missing)?;
        let token_file = found(WEB_IDENTITY, token_variable).ok_or_else(missing)?;
        require_followed(settings, &[Service::Sts])?;
        Ok(Self { token_file, role, session_name: found(ROLE_SESSION, session_variable) })
    }

    pub(super) fn provider(self, config: &ProviderConfig) -> SharedCredentialsProvider {
        let unnamed = || {
            let now = crate::control::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("web-identity-token-{}", now.as_millis())
        };
        let known = StaticConfiguration {
            web_identity_token_file: self.token_file.into(),
            role_arn: self.role,
            session_name: self.session_name.unwrap_or_else(unnamed),
        };
        let builder = WebIdentityTokenCredentialsProvider::builder().configure(config);
        SharedCredentialsProvider::new(builder.static_configuration(known).build())
    }
}

/// A role of an account, for a session of single sign-on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SingleSignOn {
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
    /// [`ErrorKind::Access`] if a part of it is missing; see [`require_followed`].
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
        require_followed(settings, &[Service::Sso, Service::SsoOidc])?;
        Ok(Self {
            account: account?,
            role: role?,
            region: region?,
            start_url: start_url?,
            session: session.map(str::to_owned),
        })
    }

    pub(super) fn provider(self, config: &ProviderConfig) -> SharedCredentialsProvider {
        let mut builder = SsoCredentialsProvider::builder()
            .configure(config)
            .account_id(self.account)
            .role_name(self.role)
            .region(Region::new(self.region))
            .start_url(self.start_url);
        builder.set_session_name(self.session);
        SharedCredentialsProvider::new(builder.build())
    }
}

/// Refuses a variable with a service's endpoint that is to be ignored: aws-config would use it, and
/// send the token there.
fn require_followed(settings: &Settings, services: &[Service]) -> Result<()> {
    for service in services {
        if let Some(name) = settings.ignored_variable(service.name())? {
            let message =
                format!("{name} is set, but is to be ignored: a token could be sent there");
            return Err(Error::new(ErrorKind::Usage, message).advise(format!("unset {name}")));
        }
    }
    Ok(())
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
        let identity = |token_file: &str, role: &str| WebIdentity {
            token_file: token_file.to_owned(),
            role: role.to_owned(),
            session_name: Some("n".to_owned()),
        };
        let read = |variables: &[_], profile| {
            Settings::of(variables, &files, profile).expect("good words")
        };
        // Of the profile that nobody names, and of one that AWS_PROFILE names.
        let settings = read(&variables, None);
        let of = |settings: &Settings, profile| WebIdentity::of_profile(settings, profile);
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
        assert_eq!(WebIdentity::of_environment(&settings), expected);
    }
}
