//! The `credential_process` of a profile: a command that prints credentials.
//!
//! It runs like in the AWS CLI: split into words like a shell does, but without a shell. Its
//! arguments and its output may be secret: no error has them. Its standard error is read while it
//! runs, and is part of the error if it fails.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IsTerminal as _};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::fields::{EXPIRATION, Fields};
use crate::control::limits::{
    CREDENTIALS_ANSWER_BYTES_MAX, PROCESS_END_TIMEOUT, PROCESS_STDERR_BYTES_MAX, PROCESS_TIMEOUT,
};
use crate::control::settings::Settings;
use crate::control::settings::profile_file::PROCESS;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;
use crate::sys::{orphans, process};
use crate::text::instant::instant_text;

/// The only version of such a command's output.
const VERSION: u64 = 1;

/// The field that only temporary credentials have.
const SESSION_TOKEN: &str = "SessionToken";

/// Bytes of one read.
const READ_BYTES: usize = 4 << 10;

/// A command that gives credentials.
pub(super) struct Process {
    /// The program and its arguments, or why the command is invalid.
    words: Result<Vec<String>, &'static str>,
    /// The profile and its file, for messages.
    named: String,
    limit: Duration,
}

impl fmt::Debug for Process {
    /// Shows no command, which may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("named", &self.named).finish_non_exhaustive()
    }
}

impl Process {
    /// The command of this profile, which has one.
    pub(super) fn of(settings: &Settings, profile: &str) -> Self {
        let command = settings.of_profile(profile, PROCESS).unwrap_or_default();
        let (file, profile) = (settings.file_of(profile, PROCESS), shown(profile));
        let named = format!("{file}: the {PROCESS} of the profile '{profile}'");
        Self { words: split(command), named, limit: PROCESS_TIMEOUT }
    }

    async fn ask(&self) -> Result<Credentials> {
        let (program, arguments) = match &self.words {
            Ok(words) => words.split_first().ok_or("is empty"),
            Err(why) => Err(*why),
        }
        .map_err(|why| self.failed(why))?;
        let mut command = Command::new(program);
        command.args(arguments).kill_on_drop(true);
        process::as_started(command.as_std_mut());
        // It may ask the user, but piped input of this program is not for it.
        if !io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let _awaited = orphans::awaits_child();
        let mut child =
            command.spawn().map_err(|error| self.failed(&format!("cannot be run: {error}")))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Both at once, or it would block when one pipe is full.
        let ending = async {
            let printed = stdout.expect("it is a pipe");
            let printed = first_bytes(printed, CREDENTIALS_ANSWER_BYTES_MAX);
            let said = last_bytes(stderr.expect("it is a pipe"), PROCESS_STDERR_BYTES_MAX);
            tokio::try_join!(printed, said, async { if_known(child.wait().await) })
        };
        let ended = match timeout(self.limit, ending).await {
            Ok(Ok(ended)) => Ok(ended),
            Ok(Err(error)) => Err(format!("cannot be read: {error}")),
            Err(_) if matches!(child.try_wait(), Ok(Some(_))) => {
                Err("has ended, but a process that it started keeps its output open".to_owned())
            }
            Err(_) => Err(format!("did not end within {} s", self.limit.as_secs())),
        };
        let (printed, said, status) = match ended {
            Ok(ended) => ended,
            Err(why) => {
                end(&mut child).await;
                return Err(self.failed(&why));
            }
        };
        let words: Vec<&str> = said.split_whitespace().collect();
        let said = match words.is_empty() {
            true => String::new(),
            false => format!(": {}", shown(&words.join(" "))),
        };
        let keys = match status {
            Some(status) if !status.success() => {
                return Err(self.failed(&format!("ended with {status}{said}")));
            }
            Some(_) => parse(&printed).map_err(|why| self.failed(&why))?,
            // It may have failed: then its message is the cause.
            None => parse(&printed).map_err(|why| self.failed(&format!("{why}{said}")))?,
        };
        // Like botocore: the server would refuse them.
        let Some(ended) = keys.expiry().filter(|ends| *ends <= crate::control::now()) else {
            return Ok(keys);
        };
        let ended = instant_text(ended).unwrap_or_default();
        let why = format!("prints keys that have expired: their Expiration is {ended}");
        Err(self.failed(&why).advise(
            "log in again, or run the command by itself to see why it prints old keys; check this \
             machine's clock, too",
        ))
    }

    fn failed(&self, why: &str) -> Error {
        let program = self.words.as_ref().ok().and_then(|words| words.first());
        let program = program.map(|word| format!(" ({})", shown(without_value(word))));
        let message = format!("{}{} {why}", self.named, program.unwrap_or_default());
        Error::new(ErrorKind::Access, message)
            .advise("run the command by itself to check it: it is run without a shell")
    }
}

/// The exit status of a command; `None` if it is unknown, because SIGCHLD is ignored, possibly by
/// this program's starter, or another library's thread has waited for it.
fn if_known(status: io::Result<ExitStatus>) -> io::Result<Option<ExitStatus>> {
    match status {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        status => status.map(Some),
    }
}

/// Kills a command, and waits for its end.
async fn end(child: &mut Child) {
    let _ = child.start_kill();
    let _ = timeout(PROCESS_END_TIMEOUT, child.wait()).await;
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

/// The first word of a command, without the value of a shell's variable assignment.
fn without_value(word: &str) -> &str {
    word.split('=').next().unwrap_or_default()
}

/// The words of a command as `shlex.split` of Python has them, by which the AWS CLI goes; why there
/// are none. The crate of that name takes a `#` for a comment.
pub(in crate::control) fn split(command: &str) -> Result<Vec<String>, &'static str> {
    const BACKSLASH: &str = "ends in a backslash";
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut signs = command.chars();
    while let Some(sign) = signs.next() {
        match sign {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(signs.next().ok_or(BACKSLASH)?),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match signs.next().ok_or("has a quote that does not end")? {
                        end if end == sign => break,
                        '\\' if sign == '"' => match signs.next().ok_or(BACKSLASH)? {
                            escaped @ ('"' | '\\') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        inside => word.push(inside),
                    }
                }
            }
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads all output, up to a limit.
async fn first_bytes(from: impl AsyncRead + Unpin, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max as u64 + 1).read_to_end(&mut bytes).await?;
    match bytes.len() > bytes_max {
        true => Err(io::Error::other(format!("it prints more than {bytes_max} bytes"))),
        false => Ok(bytes),
    }
}

/// The end of the messages, from the beginning of a word.
async fn last_bytes(mut from: impl AsyncRead + Unpin, bytes_max: usize) -> io::Result<String> {
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

/// Parses the command's output; the error is why that fails.
fn parse(printed: &[u8]) -> Result<Credentials, String> {
    let fields = Fields::parse(printed, "prints");
    let fields = fields.ok_or_else(|| "does not print one JSON object".to_owned())?;
    match fields.get("Version") {
        Some(version) if version.as_u64() == Some(VERSION) => {}
        Some(Value::Number(version)) => {
            return Err(format!("prints Version {version}, but only {VERSION} is known"));
        }
        Some(_) => return Err(format!("prints a Version that is not the number {VERSION}")),
        None => return Err("prints no Version".to_owned()),
    }
    let mut keys = fields.keys(SESSION_TOKEN, EXPIRATION, "Process")?;
    keys.set_property(vec![AwsCredentialFeature::CredentialsProcess]);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::loopback::run;
    use std::time::UNIX_EPOCH;

    fn process(command: &str) -> Process {
        let named = "/config: the credential_process of the profile 'p'".to_owned();
        Process { words: split(command), named, limit: PROCESS_TIMEOUT }
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
        let keys = printed(r#","Version":1,"SessionToken":"""#).expect("keys");
        assert_eq!(keys.session_token(), None, "as botocore");
    }

    #[test]
    fn what_is_printed_wrong_is_reported_without_secrets() {
        for (fields, why) in [
            (r#","Version":2"#, "prints Version 2, but only 1 is known"),
            (r#","Version":"1""#, "prints a Version that is not the number 1"),
            ("", "prints no Version"),
            (r#","Version":1,"SessionToken":["secret"]"#, "prints SessionToken, which is no text"),
            (r#","Version":1,"Expiration":"""#, "prints Expiration, which is empty"),
            (r#","Version":1,"Expiration":"soon\u001b""#, r"which is no time: soon\u{1b}"),
        ] {
            let message = printed(fields).expect_err(fields);
            assert!(message.contains(why) && !message.contains("secret"), "{message}");
        }
        let missing = parse(br#"{"Version":1,"AccessKeyId":"A"}"#).expect_err("half");
        assert_eq!(missing, "prints no SecretAccessKey");
        let empty = br#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":""}"#;
        assert_eq!(parse(empty).expect_err("half"), "prints SecretAccessKey, which is empty");
        assert_eq!(parse(b"secret {").expect_err("text"), "does not print one JSON object");
    }

    #[test]
    fn keys_that_have_expired_are_refused() {
        run(async {
            let printing = |until: &str| {
                let fields = r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"secret""#;
                process(&format!("echo '{fields},\"Expiration\":\"{until}\"}}'"))
            };
            let error = printing("2024-01-02T04:04:05+01:00").ask().await.expect_err("old keys");
            assert_eq!(error.kind(), ErrorKind::Access);
            let expected = "/config: the credential_process of the profile 'p' (echo) prints keys \
                            that have expired: their Expiration is 2024-01-02T03:04:05Z";
            assert_eq!(error.message(), expected);
            let advice = error.advice().expect("some");
            assert!(advice.contains("log in again") && advice.contains("clock"), "{advice}");
            let keys = printing("2100-01-01T00:00:00Z").ask().await.expect("new keys");
            assert_eq!(keys.access_key_id(), "A");
        });
    }

    #[test]
    fn a_command_that_fails_is_reported_with_the_end_of_what_it_said() {
        run(async {
            let error_of = |command: &str| {
                let process = process(command);
                async move { process.ask().await.expect_err("it fails").message().to_owned() }
            };
            let start = "/config: the credential_process of the profile 'p'";
            // More than a pipe holds, and more than an error shows.
            let many = "sh -c 'yes said | head -c 200000 >&2; printf \"last\\033[2J words\" >&2; \
                        exit 3' secret-argument";
            let message = error_of(many).await;
            let expected = format!("{start} (sh) ended with exit status: 3: ... said ");
            assert!(message.starts_with(&expected), "{message}");
            assert!(message.ends_with(r"said last\u{1b}[2J words"), "{message}");
            assert!(!message.contains("secret-argument"), "{message}");
            assert!(message.len() < PROCESS_STDERR_BYTES_MAX + 200, "{}", message.len());
            let gone = error_of("'/no such/helper' --secret").await;
            let none = "cannot be run: No such file or directory (os error 2)";
            assert_eq!(gone, format!("{start} (/no such/helper) {none}"));
            // It would be an assignment only in a shell.
            assert_eq!(error_of("PASSWORD=secret sh").await, format!("{start} (PASSWORD) {none}"));
            let unbalanced = error_of("helper --password pa(SECRET'").await;
            assert_eq!(unbalanced, format!("{start} has a quote that does not end"));
            assert_eq!(
                error_of("sh -c 'exit 4'").await,
                format!("{start} (sh) ended with exit status: 4")
            );
        });
    }

    /// Compared with Python's shlex.split.
    #[test]
    fn commands_are_split_as_by_the_aws_cli() {
        for (command, words) in [
            ("a b", &["a", "b"][..]),
            (" a\t'b c'\r\n", &["a", "b c"]),
            (r#"a "b \" \\ \c \$" '\d'"#, &["a", r#"b " \ \c \$"#, r"\d"]),
            (r"a\ b \'", &["a b", "'"]),
            ("a'b'\"c\"d '' e", &["abcd", "", "e"]),
            ("a $HOME & ; # b | > ~ *", &["a", "$HOME", "&", ";", "#", "b", "|", ">", "~", "*"]),
            ("", &[]),
        ] {
            let split = split(command).expect(command);
            assert_eq!(split, words, "{command}");
        }
        for command in ["a 'b", "a \"b", "a\\", "a \"b\\"] {
            assert!(split(command).is_err(), "{command}");
        }
    }

    #[test]
    fn arguments_come_as_they_are_and_standard_input_is_empty() {
        run(async {
            let script = "read -r line; printf '{\"Version\":1,\"AccessKeyId\":\"%s%s\",\
                          \"SecretAccessKey\":\"s\"}' \"$line\" \"$1\"";
            let script = script.replace('\\', r"\\").replace('"', "\\\"");
            let command = format!("sh -c \"{script}\" sh '$HOME&;#'");
            // Not if it is a terminal: then the test does not wait for input, either.
            if !io::stdin().is_terminal() {
                let keys = process(&command).ask().await.expect("keys");
                assert_eq!(keys.access_key_id(), "$HOME&;#");
            }
        });
    }

    /// SIGCHLD is ignored, or another thread waited: the output counts.
    #[test]
    fn an_end_that_nobody_knows_is_no_failure() {
        let reaped = Err(io::Error::from_raw_os_error(libc::ECHILD));
        assert_eq!(if_known(reaped).expect("no failure"), None);
        assert_eq!(if_known(Ok(ExitStatus::default())).expect("it"), Some(ExitStatus::default()));
        assert!(if_known(Err(io::Error::from_raw_os_error(libc::EINTR))).is_err());
    }

    #[test]
    fn no_command_is_shown() {
        assert!(!format!("{:?}", process("helper --secret")).contains("secret"));
    }

    #[test]
    fn a_command_that_does_not_end_is_reported_with_the_limit() {
        run(async {
            let folder = tempfile::tempdir().expect("a folder");
            let noted = folder.path().join("pid");
            let command = format!(
                "sh -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 60' secret",
                noted.display()
            );
            let process = Process { limit: Duration::from_secs(1), ..process(&command) };
            let error = process.ask().await.expect_err("it sleeps");
            let expected = "the profile 'p' (sh) did not end within 1 s; run the command by";
            assert!(error.to_string().contains(expected), "{error}");
            // It is killed and reaped completely.
            if let Ok(pid) = std::fs::read_to_string(noted) {
                let path = format!("/proc/{}", pid.trim());
                assert!(!std::path::Path::new(&path).exists(), "{path}");
            }
            let left = super::tests::process("sh -c 'sleep 9 & exit 0'");
            let left = Process { limit: Duration::from_secs(3), ..left };
            let error = left.ask().await.expect_err("no end of its output");
            let expected = "(sh) has ended, but a process that it started keeps its output open";
            assert!(error.to_string().contains(expected), "{error}");
            let endless = super::tests::process("yes").ask().await.expect_err("too much");
            assert!(endless.to_string().contains("it prints more than 1048576 bytes"), "{endless}");
        });
    }
}
