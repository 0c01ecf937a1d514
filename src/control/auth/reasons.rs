//! Why the chain gives no credentials, in words: its own are for debugging.

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_sso::operation::get_role_credentials::GetRoleCredentialsError;
use aws_sdk_sts::operation::assume_role::AssumeRoleError;
use aws_sdk_sts::operation::assume_role_with_web_identity::AssumeRoleWithWebIdentityError;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::error::metadata::{ErrorMetadata, ProvideErrorMetadata};

use super::chain_http::{ChainHttp, check, check_network};
use super::credentials::NamedProfile;
use crate::control::settings::{BY_OPTION, environment, files_in_words};
use crate::error::{Error, ErrorKind, without_secrets};
use crate::s3::uri::shown;

/// Most characters of the chain's own message in an error.
const REASON_CHARS_MAX: usize = 400;

/// The word for the metadata service in the chain's messages.
const METADATA_WORD: &str = "IMDS";

/// True if no source has credentials, which is not a failure.
pub(super) fn is_of_none(error: &CredentialsError) -> bool {
    matches!(error, CredentialsError::CredentialsNotLoaded(_))
}

/// The metadata service is asked last; most machines have none.
pub(super) fn of_metadata(reason: &str) -> bool {
    reason.contains(METADATA_WORD)
}

/// The causes of an error. Its outermost words only say that there was one.
pub(super) fn reasons(error: &(dyn std::error::Error + 'static)) -> String {
    let mut reasons: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(next) = cause {
        if let Some(refusal) = of_service(next) {
            // What is around it only says that there was one.
            return refusal;
        }
        let words = next.to_string();
        if words != error.to_string() && !reasons.contains(&words) {
            reasons.push(words);
        }
        // Our own messages are complete without their causes.
        cause = next.source().filter(|_| !next.is::<Error>());
    }
    reasons.join(": ")
}

/// The refusal of a service, as those of S3 are shown: its own words are for debugging. Empty if
/// the answer has neither code nor message.
fn of_service(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let role = error.downcast_ref::<AssumeRoleError>().map(ProvideErrorMetadata::meta);
    let identity = || Some(error.downcast_ref::<AssumeRoleWithWebIdentityError>()?.meta());
    let session = || Some(error.downcast_ref::<GetRoleCredentialsError>()?.meta());
    let other = || error.downcast_ref::<ErrorMetadata>();
    let refusal = role.or_else(identity).or_else(session).or_else(other)?;
    let message = refusal.message().filter(|message| !message.is_empty());
    let words = match (refusal.code(), message) {
        (Some(code), Some(message)) => format!("{code} ({message})"),
        (code, message) => code.or(message).unwrap_or_default().to_owned(),
    };
    let request_id = refusal.extra("aws_request_id");
    Some(match request_id {
        Some(id) if words.is_empty() => format!("request id {id}"),
        Some(id) => format!("{words}, request id {id}"),
        None => words,
    })
}

/// Causes in one line, which is not too long.
pub(super) fn reason_of(reasons: &str) -> String {
    // STS repeats the signed headers, the session token among them, of a request that it refuses.
    let words = without_secrets(reasons);
    words.chars().take(REASON_CHARS_MAX).collect()
}

/// The error of one of our own providers, in the causes of this one.
pub(super) fn own(error: &CredentialsError) -> Option<Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(next) = cause {
        cause = next.source();
        if next.is::<CredentialsError>()
            && let Some(own) = cause.and_then(|cause| cause.downcast_ref::<Error>())
        {
            return Some(own.clone());
        }
    }
    None
}

/// The error of the connection to a server, among the causes: a network error is not the profile's.
fn on_the_way(error: &CredentialsError) -> Option<Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        cause = next.source();
        if next.is::<ConnectorError>() {
            return cause?.downcast_ref::<Error>().cloned();
        }
    }
    None
}

/// True if a connection broke or no answer came, as detected by aws-config.
fn is_of_network(error: &CredentialsError) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        if let Some(error) = next.downcast_ref::<ConnectorError>() {
            return error.is_timeout() || error.is_io();
        }
        cause = next.source();
    }
    false
}

/// The failed action, for messages.
pub(super) fn cannot_get(profile: Option<&NamedProfile>) -> String {
    match profile {
        Some(NamedProfile { name, .. }) => {
            format!("cannot get credentials of the profile '{}'", shown(name))
        }
        None => "cannot get credentials".to_owned(),
    }
}

/// The error for the user. `http`: by which the last server was asked.
pub(super) fn explain(
    error: &CredentialsError,
    profile: Option<&NamedProfile>,
    asks_instance: bool,
    http: &ChainHttp,
) -> Error {
    own(error).unwrap_or_else(|| {
        // The SDK's errors hold whole answers, with keys in them.
        explained(error, profile, asks_instance, http).caused_by_text_of(error)
    })
}

fn explained(
    error: &CredentialsError,
    profile: Option<&NamedProfile>,
    asks_instance: bool,
    http: &ChainHttp,
) -> Error {
    let led_by = http.led_by();
    let reason = reasons(error);
    if is_of_none(error) {
        if let Some(profile) = profile {
            let message = format!("the profile '{}' has no credentials", shown(&profile.name));
            return Error::new(ErrorKind::Access, message).advise(profile.check());
        }
        return no_credentials(asks_instance.then_some(""));
    }
    if profile.is_none_or(|profile| profile.by != BY_OPTION) && of_metadata(&reason) {
        let why = match reason.to_ascii_lowercase() {
            why if why.contains("forbidden") => "refuses to give any",
            why if why.contains("timeout") || why.contains("timed out") => "does not answer",
            _ => "gives none",
        };
        let by = led_by.map_or_else(String::new, |by| format!(", named by {by},"));
        return no_credentials(Some(&format!(" (its metadata service{by} {why})")));
    }
    if let Some(on_the_way) = on_the_way(error) {
        return on_the_way.within(cannot_get(profile));
    }
    let reason = reason_of(&reason);
    if let Some(failed) = http.failed(&reason, profile.map(NamedProfile::check)) {
        return failed.within(cannot_get(profile));
    }
    if is_of_network(error) {
        let message = format!("{}: {reason}", cannot_get(profile));
        return Error::new(ErrorKind::Endpoint, message).advise(check_network(led_by.as_deref()));
    }
    let message = format!("{}: {reason}", cannot_get(profile));
    let source = || check(led_by.as_deref());
    let profile = profile.filter(|_| led_by.is_none());
    Error::new(ErrorKind::Access, message).advise(profile.map_or_else(source, NamedProfile::check))
}

/// The error where nobody has any, with what is known of this instance; `None` where that is not
/// asked.
fn no_credentials(instance: Option<&str>) -> Error {
    let roles = match instance {
        None => "no role of a container (AWS_EC2_METADATA_DISABLED is true)".to_owned(),
        Some(instance) => format!("no role of a container or of this instance{instance}"),
    };
    let message = format!(
        "no credentials found: not in the environment, not in {}, and {roles}",
        files_in_words(environment)
    );
    Error::new(ErrorKind::Access, message).advise(
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --profile, or for public data \
         --no-sign-request",
    )
}
