//! The `credential_process` of a profile: a command that prints keys.
//!
//! It is run as the AWS SDKs run it, by the shell. Its arguments may be secret, and so may be what
//! it prints: no error has them. What it says on standard error is read while it runs, and is part
//! of the error if it fails.

use std::collections::VecDeque;
use std::process::Stdio;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use super::limits::{CREDENTIALS_ANSWER_BYTES_MAX, PROCESS_STDERR_BYTES_MAX, PROCESS_TIMEOUT};
use super::profile_file::PROCESS;
use super::settings::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;
use crate::text::instant::parse_instant;

/// The one version of what such a command prints.
const VERSION: u64 = 1;

/// How many bytes are read at once.
const READ_BYTES: usize = 4 << 10;

/// A command that gives keys.
#[derive(Debug)]
pub(super) struct Process {
    command: String,
    /// The profile that has it, and its file, for messages.
    named: String,
    limit: Duration,
}

impl Process {
    /// That of this profile, which has one.
    pub(super) fn of(settings: &Settings, profile: &str) -> Self {
        let command = settings.of_profile(profile, PROCESS).unwrap_or_default();
        let (file, profile) = (settings.file_of(profile, PROCESS), shown(profile));
        let named = format!("{file}: the {PROCESS} of the profile '{profile}'");
        Self { command: command.to_owned(), named, limit: PROCESS_TIMEOUT }
    }

    async fn ask(&self) -> Result<Credentials> {
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).kill_on_drop(true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| self.failed(&format!("cannot be run: {error}")))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Both at once, or it would stop where one pipe is full.
        let ending = async {
            let printed = stdout.expect("it is a pipe");
            let printed = first_bytes(printed, CREDENTIALS_ANSWER_BYTES_MAX);
            let said = last_bytes(stderr.expect("it is a pipe"), PROCESS_STDERR_BYTES_MAX);
            tokio::try_join!(printed, said, child.wait())
        };
        let seconds = self.limit.as_secs();
        let ended = timeout(self.limit, ending).await;
        let ended = ended.map_err(|_| self.failed(&format!("did not end within {seconds} s")))?;
        let (printed, said, status) =
            ended.map_err(|error| self.failed(&format!("cannot be read: {error}")))?;
        if !status.success() {
            let words: Vec<&str> = said.split_whitespace().collect();
            let said = match words.is_empty() {
                true => String::new(),
                false => format!(": {}", shown(&words.join(" "))),
            };
            return Err(self.failed(&format!("ended with {status}{said}")));
        }
        parse(&printed).map_err(|why| self.failed(&why))
    }

    fn failed(&self, why: &str) -> Error {
        let message = format!("{} ({}) {why}", self.named, first_word(&self.command));
        Error::new(ErrorKind::Access, message).advise("run the command by itself to check it")
    }
}

impl ProvideCredentials for Process {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            self.ask().await.map_err(CredentialsError::provider_error)
        })
    }
}

/// The program of a command, without its arguments, and without variables that are set before it.
fn first_word(command: &str) -> String {
    let command = command.trim_start();
    if let Some((quote, rest)) =
        ['"', '\''].iter().find_map(|quote| Some((*quote, command.strip_prefix(*quote)?)))
    {
        return shown(rest.split(quote).next().unwrap_or_default());
    }
    let word = command.split_whitespace().next().unwrap_or_default();
    shown(word.split('=').next().unwrap_or_default())
}

/// All that is printed.
async fn first_bytes(from: impl AsyncRead + Unpin, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max as u64 + 1).read_to_end(&mut bytes).await?;
    match bytes.len() > bytes_max {
        true => Err(std::io::Error::other(format!("it prints more than {bytes_max} bytes"))),
        false => Ok(bytes),
    }
}

/// The end of what is said, from the beginning of a word.
async fn last_bytes(mut from: impl AsyncRead + Unpin, bytes_max: usize) -> std::io::Result<String> {
    let mut last = VecDeque::with_capacity(bytes_max + READ_BYTES);
    let mut piece = [0; READ_BYTES];
    let mut is_cut = false;
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            break;
        }
        last.extend(&piece[..length]);
        is_cut |= last.len() > bytes_max;
        last.drain(..last.len().saturating_sub(bytes_max));
    }
    let text = String::from_utf8_lossy(last.make_contiguous()).into_owned();
    Ok(match text.split_once(char::is_whitespace) {
        Some((_, rest)) if is_cut => format!("... {rest}"),
        _ => text,
    })
}

/// What such a command prints; why it is not that.
fn parse(printed: &[u8]) -> Result<Credentials, String> {
    // The error of the parser may quote what is there.
    let fields: Map<String, Value> =
        serde_json::from_slice(printed).map_err(|_| "does not print one JSON object".to_owned())?;
    let field = |name: &str| {
        let mut fields = fields.iter();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    };
    match field("Version") {
        Some(version) if version.as_u64() == Some(VERSION) => {}
        Some(Value::Number(version)) => {
            return Err(format!("prints Version {version}, but only {VERSION} is known"));
        }
        Some(_) => return Err(format!("prints a Version that is not the number {VERSION}")),
        None => return Err("prints no Version".to_owned()),
    }
    let text = |name: &str| match field(name) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(format!("prints {name}, which is no text")),
    };
    let needed = |name: &str| text(name)?.ok_or_else(|| format!("prints no {name}"));
    let expiry = text("Expiration")?.map(|text| {
        parse_instant(&text)
            .ok_or_else(|| format!("prints Expiration, which is no time: {}", shown(&text)))
    });
    let mut builder = Credentials::builder()
        .provider_name("Process")
        .access_key_id(needed("AccessKeyId")?)
        .secret_access_key(needed("SecretAccessKey")?);
    builder.set_session_token(text("SessionToken")?);
    builder.set_expiry(expiry.transpose()?);
    let mut keys = builder.build();
    keys.set_property(vec![AwsCredentialFeature::CredentialsProcess]);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::super::loopback::run;
    use super::*;
    use std::time::UNIX_EPOCH;

    fn process(command: &str) -> Process {
        let named = "/config: the credential_process of the profile 'p'".to_owned();
        Process { command: command.to_owned(), named, limit: PROCESS_TIMEOUT }
    }

    fn printed(fields: &str) -> Result<Credentials, String> {
        parse(format!(r#"{{"AccessKeyId":"A","SecretAccessKey":"secret"{fields}}}"#).as_bytes())
    }

    #[test]
    fn all_notations_of_times_are_read() {
        let until = UNIX_EPOCH + Duration::from_secs(1_704_164_645);
        for text in [
            "2024-01-02T03:04:05Z",
            "2024-01-02T04:34:05+01:30",
            "20240102T030405Z",
            "2024-01-02 03:04:05 UTC",
            "2024-01-02T03:04:05",
        ] {
            let keys = printed(&format!(r#","Version":1,"Expiration":"{text}""#)).expect(text);
            assert_eq!(keys.expiry(), Some(until), "{text}");
        }
        let keys = printed(r#","Version":1,"SessionToken":null,"Expiration":null"#).expect("keys");
        assert_eq!((keys.expiry(), keys.session_token()), (None, None));
    }

    #[test]
    fn what_is_printed_wrong_is_told_without_secrets() {
        for (fields, why) in [
            (r#","Version":2"#, "prints Version 2, but only 1 is known"),
            (r#","Version":"1""#, "prints a Version that is not the number 1"),
            ("", "prints no Version"),
            (r#","Version":1,"SessionToken":["secret"]"#, "prints SessionToken, which is no text"),
            (r#","Version":1,"Expiration":"soon\u001b""#, r"which is no time: soon\u{1b}"),
        ] {
            let told = printed(fields).expect_err(fields);
            assert!(told.contains(why) && !told.contains("secret"), "{told}");
        }
        let missing = parse(br#"{"Version":1,"AccessKeyId":"A"}"#).expect_err("half");
        assert_eq!(missing, "prints no SecretAccessKey");
        assert_eq!(parse(b"secret {").expect_err("text"), "does not print one JSON object");
    }

    #[test]
    fn a_command_that_fails_is_told_with_the_end_of_what_it_said() {
        run(async {
            let told = |command: &str| {
                let process = process(command);
                async move { process.ask().await.expect_err("it fails").message().to_owned() }
            };
            let start = "/config: the credential_process of the profile 'p'";
            // More than a pipe holds, and more than is told.
            let many = "A=1 yes word secret-argument >/dev/null & yes said | head -c 200000 >&2; \
                        kill $!; printf 'last\\033[2J words' >&2; exit 3";
            let message = told(many).await;
            let expected = format!("{start} (A) ended with exit status: 3: ... said ");
            assert!(message.starts_with(&expected), "{message}");
            assert!(message.ends_with(r"said last\u{1b}[2J words"), "{message}");
            assert!(!message.contains("secret-argument"), "{message}");
            assert!(message.len() < PROCESS_STDERR_BYTES_MAX + 200, "{}", message.len());
            let gone = told("'/no such/helper' --secret").await;
            assert!(gone.starts_with(&format!("{start} (/no such/helper) ended with exit status")));
            assert_eq!(told("exit 4").await, format!("{start} (exit) ended with exit status: 4"));
        });
    }

    #[test]
    fn a_command_that_does_not_end_is_told_with_the_limit() {
        run(async {
            let slow = Process { limit: Duration::from_millis(10), ..process("sleep 5; : secret") };
            let error = slow.ask().await.expect_err("it sleeps");
            let expected = "the profile 'p' (sleep) did not end within 0 s; run the command by";
            assert!(error.to_string().contains(expected), "{error}");
            let endless = process("yes").ask().await.expect_err("too much");
            assert!(endless.to_string().contains("it prints more than 1048576 bytes"), "{endless}");
        });
    }
}
