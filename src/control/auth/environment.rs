//! The keys of the environment.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::SharedCredentialsProvider;

use super::roles::{Nothing, Refused};
use crate::control::settings::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;
use crate::text::instant::{instant_text, parse_instant};

/// The variables of a pair of keys.
pub(super) const KEY_VARIABLES: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
/// The variables of the session's token, the old one first, as in botocore.
const TOKEN_VARIABLES: [&str; 2] = ["AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN"];
/// The second name of the secret, which the SDKs accept.
const SECRET_TOO: &str = "SECRET_ACCESS_KEY";

/// The variable of their expiry, as botocore reads it.
const EXPIRATION: &str = "AWS_CREDENTIAL_EXPIRATION";

/// The keys of the environment, if it has a pair.
pub(super) fn of_environment(settings: &Settings) -> SharedCredentialsProvider {
    let [key, secret] = KEY_VARIABLES.map(|name| settings.variable(name));
    let (Some(key), Some(secret)) = (key, secret.or_else(|| settings.variable(SECRET_TOO))) else {
        return SharedCredentialsProvider::new(Nothing);
    };
    let builder = Credentials::builder().provider_name("Environment");
    let mut builder = builder.access_key_id(key).secret_access_key(secret);
    let mut tokens = TOKEN_VARIABLES.iter().filter_map(|name| settings.variable(name));
    builder.set_session_token(tokens.next());
    match expiry_of_environment(settings) {
        Ok(expiry) => builder.set_expiry(expiry),
        Err(error) => return SharedCredentialsProvider::new(Refused(error)),
    };
    let mut keys = builder.build();
    keys.set_property(vec![AwsCredentialFeature::CredentialsEnvVars]);
    SharedCredentialsProvider::new(keys)
}

/// When the keys of the environment expire, if it says so. Nothing replaces them in a process, so
/// expired ones are an error, as with the AWS CLI.
fn expiry_of_environment(settings: &Settings) -> Result<Option<SystemTime>> {
    let Some(text) = settings.variable(EXPIRATION) else { return Ok(None) };
    let refuse = |why: &str| {
        Error::new(ErrorKind::Access, format!("{EXPIRATION} {why}")).advise(
            "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN to new keys, with \
             their expiry or without it; check this machine's clock, too",
        )
    };
    let ends = parse_instant(&text);
    let ends = ends.ok_or_else(|| refuse(&format!("is no time: {}", shown(&text))))?;
    if ends <= crate::control::now() {
        let at = instant_text(ends).unwrap_or(text);
        return Err(refuse(&format!("is {at}: the keys of the environment have expired")));
    }
    Ok(Some(ends))
}

/// Refuses half a pair of keys, which the chain would skip silently.
pub(super) fn require_whole_pair(settings: &Settings) -> Result<()> {
    let is_set = |name: &str| settings.variable(name).is_some();
    let [key, secret] = KEY_VARIABLES;
    let (set, missing) = match (is_set(key), is_set(secret) || is_set(SECRET_TOO)) {
        (true, false) => (key, secret),
        (false, true) if is_set(secret) => (secret, key),
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Access, format!("{set} is set, but {missing} is not"))
        .advise("set both or neither, or give --profile"))
}
