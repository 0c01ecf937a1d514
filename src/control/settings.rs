//! The environment and the profile files, read and checked before the AWS SDK sees them.
//!
//! The files are read like by the AWS CLI: by the rules of Python's configparser, and those of
//! botocore's `configloader` for names of sections and nested values. Syntax that the AWS CLI
//! refuses ends the command, with file and line: a file that is ignored may be the one with the
//! endpoint of signed requests. The SDK gets single settings, and no file. An empty variable counts
//! as unset.

pub(super) mod profile_file;

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;

use self::profile_file::{Kind, PROCESS, PROFILE_DEFAULT, Section, Wrong, parse};
use super::limits::PROFILE_FILE_BYTES_MAX;
use crate::control::auth::process::split;
use crate::control::auth::tokens::WEB_IDENTITY;
use crate::error::{Error, ErrorKind, Result};
use crate::link::waiting::Board;
use crate::s3::uri::shown;
use crate::sys::Errno;

/// Variables that select a profile, after the command line.
const PROFILE_VARIABLES: [&str; 2] = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"];

/// The variable with a file's path, and the default below the home folder.
pub(crate) const CONFIG: (&str, &str) = ("AWS_CONFIG_FILE", ".aws/config");
const CREDENTIALS: (&str, &str) = ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
const FILES: [(&str, &str); 2] = [CONFIG, CREDENTIALS];

/// Folders below the home folder where the AWS CLI keeps sessions.
const CACHES: [&str; 2] = [".aws/sso/cache", ".aws/cli/cache"];
/// The variable with the folder of sessions of `aws login`, and the default below the home folder.
pub(super) const LOGIN_SESSIONS: (&str, &str) = ("AWS_LOGIN_CACHE_DIRECTORY", ".aws/login/cache");

/// The settings that name a file.
const FILE_SETTINGS: [&str; 2] = ["ca_bundle", WEB_IDENTITY];

/// The variable that says where all services are.
pub(super) const ENDPOINT_URL: &str = "AWS_ENDPOINT_URL";

/// Disables all settings of endpoints.
const IGNORED: (&str, &str) =
    ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls");

/// The settings of a pair of keys.
pub(super) const KEYS: [&str; 2] = ["aws_access_key_id", "aws_secret_access_key"];

/// The keys in a profile.
pub(super) struct Keys<'a> {
    pub(super) access_key: &'a str,
    pub(super) secret_key: &'a str,
    pub(super) session_token: Option<&'a str>,
    pub(super) are_of_credentials_file: bool,
}

/// The option that selects a profile.
pub(crate) const BY_OPTION: &str = "--profile";

/// The selection of the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The command line.
    CommandLine,
    /// This variable.
    Variable(&'static str),
    /// None: it is the default one.
    Nobody,
}

impl Chosen {
    /// The name of the setting, for messages.
    pub(crate) const fn by(self) -> Option<&'static str> {
        match self {
            Self::CommandLine => Some(BY_OPTION),
            Self::Variable(name) => Some(name),
            Self::Nobody => None,
        }
    }
}

/// A setting, and its source: a variable, or a profile and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) value: String,
    pub(crate) from: String,
}

impl Found {
    /// What says so, with what it says, for messages.
    pub(super) fn named(&self) -> String {
        format!("{} ({})", self.from, shown(&self.value))
    }

    /// The one of these words that it is, in any case.
    ///
    /// # Errors
    /// If it is another word.
    pub(crate) fn word(&self, words: &[&'static str]) -> Result<&'static str> {
        let mut known = words.iter().filter(|word| self.value.eq_ignore_ascii_case(word));
        known.next().copied().ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("{} is '{}'", self.from, shown(&self.value)))
                .advise(format!("expected {}", words.join(" or ")))
        })
    }

    /// True if it is on.
    ///
    /// # Errors
    /// If it is neither `true` nor `false`.
    pub(crate) fn switch(&self) -> Result<bool> {
        Ok(self.word(&["true", "false"])? == "true")
    }
}

/// The value of a variable by its name.
type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The environment and the profile files.
pub(crate) struct Settings {
    variable: Variables,
    /// Of both files; those of the credentials file come last, and have precedence.
    sections: Vec<Section>,
    profile: String,
    chosen: Chosen,
}

impl Settings {
    /// Reads the files, on a helper thread: a file may be a pipe without a writer, so the read is
    /// reported on this board. `profile`: the one of the command line.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if a file cannot be read, or the AWS CLI would refuse it.
    pub(crate) async fn load(profile: Option<String>, board: Arc<Board>) -> Result<Self> {
        let file = move |path: &Path| {
            let _noted = board.begin_file(shown(&path.to_string_lossy()).to_string());
            read_bounded(path)
        };
        let read = move || Self::read(environment_and_home, file, profile.as_deref());
        spawn_blocking(read).await.expect("reading does not panic")
    }

    fn read(
        variable: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        file: impl Fn(&Path) -> io::Result<String>,
        profile: Option<&str>,
    ) -> Result<Self> {
        let variable = move |name: &str| {
            let value = variable(name)?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let mut sections = Vec::new();
        for (at, (named, usual)) in FILES.into_iter().enumerate() {
            let Some((path, is_named)) = place(&variable, named, usual) else { continue };
            sections.extend(sections_of(at, (&path, is_named), &file)?);
        }
        let by_variable = || {
            let named = |name| Some((variable(name)?, Chosen::Variable(name)));
            PROFILE_VARIABLES.into_iter().find_map(named)
        };
        let by_option = profile.map(|name| (name.to_owned(), Chosen::CommandLine));
        let by_default = || (PROFILE_DEFAULT.to_owned(), Chosen::Nobody);
        let (profile, chosen) = by_option.or_else(by_variable).unwrap_or_else(by_default);
        let found = Self { variable: Arc::new(variable), sections, profile, chosen };
        found.require_profile()?;
        Ok(found)
    }

    /// The settings that the files have now. What is no regular file stays as it was read: a pipe
    /// is empty by now.
    ///
    /// # Errors
    /// Those of [`Self::load`].
    pub(super) fn read_again(&self) -> Result<Self> {
        let mut sections = Vec::new();
        for (at, (named, usual)) in FILES.into_iter().enumerate() {
            let Some((path, is_named)) = place(&*self.variable, named, usual) else { continue };
            match path.metadata().is_ok_and(|found| !found.is_file()) {
                true => {
                    let kept = self.sections.iter().filter(|section| section.place.0 == at);
                    sections.extend(kept.cloned());
                }
                false => sections.extend(sections_of(at, (&path, is_named), read_bounded)?),
            }
        }
        let (variable, profile) = (Arc::clone(&self.variable), self.profile.clone());
        Ok(Self { variable, sections, profile, chosen: self.chosen })
    }

    /// Refuses a selected profile that does not exist: it may be the one with the endpoint.
    fn require_profile(&self) -> Result<()> {
        let Some(by) = self.chosen.by() else { return Ok(()) };
        if self.has_section(Kind::Profile, &self.profile) {
            return Ok(());
        }
        let message = format!("the profile '{}' does not exist", shown(&self.profile));
        let advice = match self.misnamed(&self.profile) {
            Some(advice) => advice,
            None => {
                self.unused_defaults().unwrap_or_else(|| format!("check {by}, {}", self.places()))
            }
        };
        Err(Error::new(ErrorKind::Access, message).advise(advice))
    }

    /// Advice about a section that is probably meant as this profile, if there is one: only the
    /// configuration file has the word `profile` in its names.
    pub(super) fn misnamed(&self, profile: &str) -> Option<String> {
        let prefixed = format!("profile {profile}");
        let is_meant = |section: &&Section| match section.place.0 {
            0 => section.kind == Kind::Other && section.name == profile,
            _ => section.name == prefixed,
        };
        let section = self.sections.iter().find(is_meant)?;
        let (name, file) = (shown(profile), self.file_in_words(section));
        let (right, wrong) = match section.place.0 {
            0 => (format!("[profile {name}]"), format!("[{name}]")),
            _ => (format!("[{name}]"), format!("[profile {name}]")),
        };
        Some(format!("write {right} for {wrong} in {file}, line {}", section.place.1))
    }

    /// Advice about a file with settings that the default profile does not have, because all are in
    /// `[DEFAULT]`, which is not a profile.
    pub(super) fn unused_defaults(&self) -> Option<String> {
        if self.profile != PROFILE_DEFAULT {
            return None;
        }
        let is_profile = |section: &&Section| section.kind == Kind::Profile;
        let has_profile =
            |file| self.sections.iter().filter(is_profile).any(|section| section.place.0 == file);
        let is_unused = |section: &&Section| {
            section.kind == Kind::Defaults
                && !section.defaults.is_empty()
                && !has_profile(section.place.0)
        };
        let section = self.sections.iter().find(is_unused)?;
        let (file, line) = (self.file_in_words(section), section.place.1);
        let right = format!("write [{PROFILE_DEFAULT}] for [DEFAULT] in {file}, line {line}");
        Some(format!("{right}: it is no profile, but what all profiles of a file share"))
    }

    fn has_section(&self, kind: Kind, name: &str) -> bool {
        self.sections.iter().any(|found| found.kind == kind && found.name == name)
    }

    /// True if a file has this profile.
    pub(super) fn has_profile(&self, name: &str) -> bool {
        self.has_section(Kind::Profile, name)
    }

    /// Advice for an error of a profile: the setting to check.
    pub(super) fn check_words(&self) -> String {
        match self.chosen.by() {
            Some(by) => format!("check {by}, {}", self.places()),
            None => format!("check {}", self.places()),
        }
    }

    fn places(&self) -> String {
        files_in_words(|name| self.variable(name))
    }

    fn file_in_words(&self, section: &Section) -> String {
        file_in_words(|name| self.variable(name), FILES[section.place.0])
    }

    /// The value of a variable, if not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    /// A path that a variable sets, or its default below the home folder; `None` without a home.
    pub(super) fn place(&self, (named, usual): (&str, &str)) -> Option<PathBuf> {
        place(&*self.variable, named, usual).map(|(path, _)| path)
    }

    /// The selected profile.
    pub(crate) fn profile(&self) -> &str {
        &self.profile
    }

    /// How the profile was selected.
    pub(crate) fn chosen(&self) -> Chosen {
        self.chosen
    }

    /// The value of the first set variable, else of the profile.
    pub(crate) fn find(&self, variables: &[&str], key: &str) -> Option<Found> {
        self.in_variables(variables).or_else(|| self.in_profile(key))
    }

    pub(super) fn in_variables(&self, variables: &[&str]) -> Option<Found> {
        let found = |name: &&str| Some(Found { value: self.variable(name)?, from: (*name).into() });
        variables.iter().find_map(found)
    }

    /// Where a service is, in the order of
    /// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html>: `service` is
    /// its name there, in lower case.
    ///
    /// # Errors
    /// If the setting that disables endpoints is invalid, or if the profile's section of services
    /// is missing.
    pub(crate) fn endpoint_url(&self, service: &str) -> Result<Option<Found>> {
        if self.switch(IGNORED.0, IGNORED.1)? {
            return Ok(None);
        }
        let own = format!("AWS_ENDPOINT_URL_{}", service.to_uppercase());
        let key = "endpoint_url";
        if let Some(found) = self.in_variables(&[&own, ENDPOINT_URL]) {
            return Ok(Some(found));
        }
        Ok(self.in_services(service, key)?.or_else(|| self.in_profile(key)))
    }

    /// True if a setting is on.
    ///
    /// # Errors
    /// If it is neither `true` nor `false`.
    pub(crate) fn switch(&self, variable: &str, key: &str) -> Result<bool> {
        Ok(self.find(&[variable], key).map(|found| found.switch()).transpose()?.unwrap_or(false))
    }

    /// A setting of S3 alone in the profile: below its `s3 =`, as `aws configure set
    /// default.s3.addressing_style path` writes it.
    pub(crate) fn in_s3(&self, key: &str) -> Option<Found> {
        let Found { value, from } = self.in_profile("s3")?;
        let value = nested(&value, key)?.to_owned();
        Some(Found { value, from: format!("{key} of {from}") })
    }

    /// A setting, and its section; of the credentials file if both have it.
    fn setting(&self, kind: Kind, name: &str, key: &str) -> Option<(&str, &Section)> {
        let is_of = |found: &&Section| (found.kind, &*found.name) == (kind, name);
        let mut of_name = self.sections.iter().rev().filter(is_of);
        of_name.find_map(|section| Some((section.said(key)?, section)))
    }

    /// A setting of any profile.
    pub(super) fn of_profile(&self, profile: &str, key: &str) -> Option<&str> {
        self.setting(Kind::Profile, profile, key).map(|(value, _)| value)
    }

    /// A setting of a session of single sign-on; `None` if there is no such section.
    pub(super) fn of_session(&self, session: &str, key: &str) -> Option<Option<&str>> {
        let value = || self.setting(Kind::SsoSession, session, key).map(|(value, _)| value);
        self.has_section(Kind::SsoSession, session).then(value)
    }

    /// The keys of a profile, all from one file; `None` if no file has both.
    pub(super) fn keys(&self, profile: &str) -> Option<Keys<'_>> {
        let is_of = |found: &&Section| (found.kind, &*found.name) == (Kind::Profile, profile);
        self.sections.iter().rev().filter(is_of).find_map(|section| {
            Some(Keys {
                access_key: section.said(KEYS[0])?,
                secret_key: section.said(KEYS[1])?,
                // By both names, like botocore.
                session_token: section
                    .said("aws_security_token")
                    .or_else(|| section.said("aws_session_token")),
                are_of_credentials_file: FILES[section.place.0] == CREDENTIALS,
            })
        })
    }

    /// The files that any section names, and those of its command.
    fn files(&self) -> Vec<String> {
        let named = |section: &Section| -> Vec<String> {
            let files = FILE_SETTINGS.into_iter().filter_map(|key| section.said(key));
            let command = section.said(PROCESS).and_then(|command| split(command).ok());
            // A word may be a script itself, as that of `sh -c`.
            let is_between = |c: char| c.is_whitespace() || ";&|()<>`\"'=$".contains(c);
            let words = command.into_iter().flatten().flat_map(|word| {
                let inner = word.split(is_between).map(str::to_owned).collect::<Vec<_>>();
                inner.into_iter().chain([word])
            });
            files.map(str::to_owned).chain(words.filter(|word| word.contains('/'))).collect()
        };
        self.sections.iter().flat_map(named).collect()
    }

    /// The file that says this of a profile, in words.
    pub(super) fn file_of(&self, profile: &str, key: &str) -> String {
        let found = self.setting(Kind::Profile, profile, key);
        found.map_or_else(|| self.places(), |(_, section)| self.file_in_words(section))
    }

    fn in_profile(&self, key: &str) -> Option<Found> {
        self.found_in(&self.profile, key)
    }

    /// A setting of this profile, with the words that name its place.
    pub(super) fn found_in(&self, profile: &str, key: &str) -> Option<Found> {
        let value = self.of_profile(profile, key)?.to_owned();
        let (file, profile) = (self.file_of(profile, key), shown(profile));
        Some(Found { value, from: format!("{key} of the profile '{profile}' in {file}") })
    }

    /// Refuses a service without settings of its own, as the AWS CLI does: they are not indented,
    /// and requests would go to AWS instead of the URL among them.
    fn require_nested(&self, services: &str, service: &str) -> Result<()> {
        let is_bare = |section: &&Section| {
            let is_of = (section.kind, &*section.name) == (Kind::Services, services);
            let mut own = section.settings.iter().filter(|(name, _)| name == service);
            let is_empty = section.settings.is_empty() && section.defaults.is_empty();
            is_of && (is_empty || own.any(|(_, value)| !value.contains('=')))
        };
        let Some(section) = self.sections.iter().find(is_bare) else { return Ok(()) };
        let (services, file) = (shown(services), self.file_in_words(section));
        let message = format!("{service} in [services {services}] of {file} has no settings");
        Err(Error::new(ErrorKind::Usage, message).advise("indent the lines below it"))
    }

    /// A setting of a service in the profile's section of services.
    fn in_services(&self, service: &str, key: &str) -> Result<Option<Found>> {
        let Some(Found { value: services, .. }) = self.in_profile("services") else {
            return Ok(None);
        };
        if !self.has_section(Kind::Services, &services) {
            let message = format!(
                "the profile '{}' has services = {}, but there is no section [services {1}]",
                shown(&self.profile),
                shown(&services)
            );
            return Err(
                Error::new(ErrorKind::Usage, message).advise(format!("check {}", self.places()))
            );
        }
        self.require_nested(&services, service)?;
        let Some((nested, section)) = self.setting(Kind::Services, &services, service) else {
            return Ok(None);
        };
        let value = self::nested(nested, key).map(str::to_owned);
        let (services, file) = (shown(&services), self.file_in_words(section));
        Ok(value.map(|value| Found {
            value,
            from: format!("{key} of {service} in [services {services}] of {file}"),
        }))
    }
}

/// A setting among the lines below another; the last one counts.
fn nested<'a>(lines: &'a str, key: &str) -> Option<&'a str> {
    let mut settings = lines.lines().rev().filter_map(|line| line.split_once('='));
    let (_, value) = settings.find(|(name, _)| name.trim() == key)?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

impl std::fmt::Debug for Settings {
    /// Shows nothing of the files, which have secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// The profiles of both files, sorted, for completion. Unreadable files have none, and anything but
/// a file is not opened: its end may never come.
pub(crate) fn profile_names() -> Vec<String> {
    let mut names = BTreeSet::new();
    for (at, (named, usual)) in FILES.into_iter().enumerate() {
        let Some((path, _)) = place(&environment_and_home, named, usual) else { continue };
        let is_file = path.metadata().is_ok_and(|found| found.is_file());
        let content = is_file.then(|| read_bounded(&path).ok()).flatten();
        let sections = content.and_then(|content| parse(&content, at).ok()).unwrap_or_default();
        let profiles = sections.into_iter().filter(|found| found.kind == Kind::Profile);
        names.extend(profiles.map(|found| found.name));
    }
    names.into_iter().collect()
}

/// Files that say who the user is, and folders of such: those of the AWS CLI, be they read or not,
/// and those that variables and profiles name, whichever profile is chosen.
pub(crate) fn aws_files(settings: Option<&Settings>) -> Vec<PathBuf> {
    let home = environment_and_home("HOME").map(PathBuf::from);
    let below_home = |path: &str| Some(home.as_ref()?.join(path));
    let places = || FILES.into_iter().chain([LOGIN_SESSIONS]);
    let named = places().filter_map(|(named, usual)| {
        place(&environment_and_home, named, usual).map(|(path, _)| path)
    });
    let usual = places().map(|(_, usual)| usual).chain(CACHES).filter_map(below_home);
    let of_profiles = settings.into_iter().flat_map(Settings::files).flat_map(|file| {
        let of_home = file.strip_prefix("~/").and_then(below_home);
        [Some(PathBuf::from(file)), of_home].into_iter().flatten()
    });
    named.chain(usual).chain(of_profiles).collect()
}

/// A variable of the environment; without HOME the database of users says it, as in the AWS CLI.
fn environment_and_home(name: &str) -> Option<String> {
    let home = || std::env::home_dir()?.into_os_string().into_string().ok();
    environment(name).or_else(|| if name == "HOME" { home() } else { None })
}

/// A variable of the environment, if it is set and not empty.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The location of a profile file, in words.
pub(crate) fn file_in_words(
    variable: impl Fn(&str) -> Option<String>,
    (named, usual): (&str, &str),
) -> String {
    variable(named).map_or_else(|| format!("~/{usual}"), |name| shown(&name).to_string())
}

/// The locations of the profile files, in words.
pub(crate) fn files_in_words(variable: impl Fn(&str) -> Option<String>) -> String {
    let [config, credentials] = FILES.map(|file| file_in_words(&variable, file));
    format!("{config} and {credentials}")
}

/// The path of a profile file, and true if a variable sets it.
fn place(
    variable: &(impl Fn(&str) -> Option<String> + ?Sized),
    named: &str,
    usual: &str,
) -> Option<(PathBuf, bool)> {
    let home = variable("HOME").map(PathBuf::from);
    let Some(path) = variable(named) else { return Some((home?.join(usual), false)) };
    Some(match (path.strip_prefix("~/"), home) {
        (Some(below), Some(home)) => (home.join(below), true),
        _ => (PathBuf::from(path), true),
    })
}

/// A whole file, which may be a pipe of the shell's.
pub(super) fn read_bounded(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = std::fs::OpenOptions::new().read(true).open(path)?;
    file.take(PROFILE_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PROFILE_FILE_BYTES_MAX {
        return Err(io::Error::other("it is too long"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// True if there is no such file. A file in another user's home folder counts as missing, and so
/// does a folder, as in the AWS CLI: a container's mount of a missing file creates one.
fn is_missing(error: &io::Error, is_named: bool) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            true
        }
        io::ErrorKind::PermissionDenied => !is_named,
        _ => false,
    }
}

/// The sections of the file of this number; a missing one has none. True: a variable names it.
fn sections_of(
    at: usize,
    (path, is_named): (&Path, bool),
    file: impl Fn(&Path) -> io::Result<String>,
) -> Result<Vec<Section>> {
    match file(path) {
        Ok(content) => parse(&content, at).map_err(|at| malformed(path, at)),
        Err(error) if is_missing(&error, is_named) => Ok(Vec::new()),
        Err(error) => Err(unreadable(path, &error, FILES[at].0)),
    }
}

fn unreadable(path: &Path, error: &io::Error, named: &str) -> Error {
    let message = format!("cannot read {}: {error}", shown(&path.to_string_lossy()));
    let (kind, advice) = match Errno::from(error).is_of_descriptors() {
        true => (ErrorKind::Host, "raise the limit of open files (ulimit -n)".to_owned()),
        false => (ErrorKind::Usage, format!("check the file, and {named}")),
    };
    Error::new(kind, message).advise(advice).caused_by_io(error)
}

/// The error about a line does not repeat it: it may be a secret.
fn malformed(path: &Path, (line, Wrong { why, advice }): (usize, Wrong)) -> Error {
    let message = format!("{}, line {line}: {why}", shown(&path.to_string_lossy()));
    Error::new(ErrorKind::Usage, message).advise(advice)
}

#[cfg(test)]
impl Settings {
    /// The settings of these variables and files only.
    pub(crate) fn of(
        variables: &[(&str, &str)],
        files: &[(&'static str, &'static str)],
        profile: Option<&str>,
    ) -> Result<Self> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: std::collections::HashMap<_, _> = variables.iter().map(own).collect();
        let file = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Self::read(move |name| variables.get(name).cloned(), file, profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &'static str) -> Result<Settings> {
        Settings::of(&[("AWS_CONFIG_FILE", "/config")], &[("/config", config)], None)
    }

    fn region(found: &Settings) -> String {
        found.find(&["AWS_REGION"], "region").map(|found| found.value).unwrap_or_default()
    }

    /// Most by the rules of configparser; a byte order mark is accepted, too.
    #[test]
    fn forms_that_the_aws_cli_accepts() {
        let forms = [
            "[default]\nendpoint_url = http://x:1\nregion = r\n",
            "\u{feff}[default]\r\nendpoint_url=http://x:1\r\nregion=r\r\n",
            "[default]\n  endpoint_url = http://x:1\n  region = r\n",
            "[default]\n\tendpoint_url = http://x:1\n\tregion = r\n",
            "[default]\nENDPOINT_URL: http://x:1\nRegion: r\n",
            "# mine\n[default] ; mine\n; mine\nendpoint_url = http://x:1\n\nregion = r",
            "[profile default]\nendpoint_url = http://x:1\nregion = r\n",
            "[default]\nregion = r\nservices = m\n[services m]\ns3 =\n   a = b\n   endpoint_url = \
             http://x:1\nsts =\n   endpoint_url = http://y:1\n",
            "[default]\ns3 =\n  addressing_style = path\nendpoint_url = http://x:1\nregion = r\n",
            "[plugins]\nx = y\n[default]\nendpoint_url = http://x:1\nregion = r\n[profile a b c]\n\
             region = no\n[profile d/é]\nregion = no\n",
        ];
        for form in forms {
            let found = read(form).unwrap_or_else(|error| panic!("{form}: {error}"));
            let url = found.endpoint_url("s3").expect("a switch");
            assert_eq!(url.map(|found| found.value).as_deref(), Some("http://x:1"), "{form}");
            assert_eq!(region(&found), "r", "{form}");
        }
        let quoted = "[profile \"my own\"]\nregion = r\n";
        let variables = [("AWS_CONFIG_FILE", "/config"), ("AWS_PROFILE", "my own")];
        let found = Settings::of(&variables, &[("/config", quoted)], None).expect("a name");
        assert_eq!(region(&found), "r");
        assert_eq!(found.chosen(), Chosen::Variable("AWS_PROFILE"));
        let found = Settings::of(&variables, &[("/config", quoted)], Some("my own"));
        assert_eq!(found.expect("a name").chosen(), Chosen::CommandLine);
    }

    /// Like botocore 1.44.
    #[test]
    fn defaults_are_those_of_all_sections_of_a_file() {
        let config = "[DEFAULT]\nregion = d\nrole_arn = a\n[profile p]\nrole_arn =\n\
                      [profile q]\nregion = q\n[services s]\n[DEFAULT]\nservices = s\n\
                      s3 =\n  endpoint_url = http://x:1\n[DEFAULT ]\nregion = no\n";
        let keys = "[DEFAULT]\naws_session_token = t\n[p]\nregion = k\n[r]\n";
        let variables = [("AWS_CONFIG_FILE", "/config"), ("AWS_SHARED_CREDENTIALS_FILE", "/keys")];
        let of = |profile: &str| {
            Settings::of(&variables, &[("/config", config), ("/keys", keys)], Some(profile))
        };
        let said = |profile: &str, key| {
            let found = of(profile).unwrap_or_else(|error| panic!("{profile}: {error}"));
            found.of_profile(profile, key).map(str::to_owned).unwrap_or_default()
        };
        assert_eq!([said("p", "region"), said("q", "region")], ["k", "q"]);
        // Empty values are returned as such.
        assert_eq!([said("p", "role_arn"), said("q", "role_arn")], ["", "a"]);
        assert_eq!(
            ["p", "q", "r"].map(|profile| said(profile, "aws_session_token")),
            ["t", "", "t"]
        );
        let url = of("q").expect("a profile").endpoint_url("s3").expect("a section of services");
        assert_eq!(url.map(|found| found.value).as_deref(), Some("http://x:1"));
        // It is not a profile, and its settings are not duplicates.
        assert!(of("DEFAULT").is_err());
        let alone = read("\n[DEFAULT]\nregion = d\n").expect("words");
        assert_eq!(region(&alone), "");
        let hint = alone.unused_defaults().expect("nobody has it");
        assert!(hint.starts_with("write [default] for [DEFAULT] in /config, line 2: "), "{hint}");
        let named = [("AWS_CONFIG_FILE", "/config"), ("AWS_PROFILE", "default")];
        let error = Settings::of(&named, &[("/config", "\n[DEFAULT]\nregion = d\n")], None);
        assert_eq!(error.map(|_| ()).expect_err("no profile").advice(), Some(&*hint));
        for used in ["[DEFAULT]\nregion = d\n[profile x]\n", "[DEFAULT]\n", "[default]\nx = y\n"] {
            assert_eq!(read(used).expect(used).unused_defaults(), None, "{used}");
        }
        let twice = read("[DEFAULT]\nx = 1\n[default]\nx = 2\n[DEFAULT]\nx = 3\n");
        let error = twice.expect_err("it is there twice");
        assert!(
            error.message().starts_with("/config, line 6: this setting is a second"),
            "{error}"
        );
    }

    #[test]
    fn of_a_section_in_two_ways_the_later_one_counts() {
        for (first, second) in [
            ("[default]", "[profile default]"),
            ("[profile default]", "[default]"),
            ("[profile 'default']", "[profile default]"),
            ("[default]", "[profile \"default\"]"),
        ] {
            let text = format!("{first}\nregion = a\nca_bundle = x\n{second}\nregion = b\n").leak();
            let found = read(text).expect(second);
            assert_eq!(region(&found), "b", "{second}");
            assert_eq!(found.find(&[], "ca_bundle"), None, "nothing of the earlier one");
        }
    }

    #[test]
    fn what_the_aws_cli_refuses_is_refused_by_file_and_line() {
        for (form, expected) in [
            ("[default]\nregion = r\n[profile other]\nrole_arn\n", "/config, line 4: neither"),
            ("[default]\nregion = r\n[profile other\nregion = x\n", "/config, line 3: neither"),
            ("region = r\n", "/config, line 1: a setting before"),
            ("[default]\n= r\n", "/config, line 2: a setting has no name"),
            ("[default]\ns3 =\n  secret\n", "/config, line 3: a nested setting"),
            ("[nobody's]\nsecret\n", "/config, line 2: neither"),
            ("[default]\nregion = r\n  aws_secret_access_key = secret\n", "/config, line 3: a set"),
            ("[x]\n[default]\nregion=r\n[x]\n", "/config, line 4: this section is a second"),
            ("[x]\nregion=r\n[y]\nregion=r\nRegion=secret\n", "/config, line 5: this setting"),
        ] {
            let error = read(form).expect_err(form);
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().starts_with(expected), "{form}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for (form, advice) in [
            ("[x]\n[x]\n", "write its settings below the first one, and remove this one"),
            ("[x]\na=1\na=1\n", "remove one of them"),
            ("[x]\na\n", "write NAME = VALUE below a [SECTION]"),
        ] {
            assert_eq!(read(form).expect_err(form).advice(), Some(advice), "{form}");
        }
    }

    #[test]
    fn what_is_named_and_not_there_is_not_passed_over() {
        let text = "[default]\nendpoint_url = http://x:1\n[profile p]\nservices = m\n";
        let read = |variables: &[(&str, &str)], profile| {
            let variables = [&[("AWS_CONFIG_FILE", "/config")], variables].concat();
            Settings::of(&variables, &[("/config", text)], profile)
        };
        for (variables, profile, by) in [
            (&[("AWS_PROFILE", "typo")][..], None, "check AWS_PROFILE, /config"),
            (&[], Some("typo"), "check --profile, /config and ~/.aws/credentials"),
        ] {
            let error = read(variables, profile).map(|_| ()).expect_err("there is none");
            assert_eq!(error.kind(), ErrorKind::Access);
            let message = error.to_string();
            assert!(
                message.starts_with("the profile 'typo' does not exist") && message.contains(by)
            );
        }
        // The word `profile` is missing, or does not belong there.
        let files = [("/config", "[one]\n[profile x]\n"), ("/keys", "\n[profile two]\n")];
        let both = [("AWS_CONFIG_FILE", "/config"), ("AWS_SHARED_CREDENTIALS_FILE", "/keys")];
        for (profile, advice) in [
            ("one", "write [profile one] for [one] in /config, line 1"),
            ("two", "write [two] for [profile two] in /keys, line 2"),
            ("three", "check --profile, /config and /keys"),
        ] {
            let error = Settings::of(&both, &files, Some(profile)).map(|_| ()).expect_err("none");
            assert_eq!(error.advice(), Some(advice));
        }
        for text in [
            "[default]\nservices = m\n[services m]\n",
            "[default]\nservices = m\n[services m]\ns3 =\n",
            "[default]\nservices = m\n[services m]\ns3 =\nendpoint_url = http://x:1\n",
            "[default]\nservices = m\n[services m]\ns3 = endpoint_url\n",
        ] {
            let variables = [("AWS_CONFIG_FILE", "/config")];
            let found = Settings::of(&variables, &[("/config", text)], None).expect("readable");
            let error = found.endpoint_url("s3").expect_err("the AWS CLI refuses it, too");
            assert!(
                error.to_string().starts_with("s3 in [services m] of /config has no"),
                "{error}"
            );
            assert_eq!(error.advice(), Some("indent the lines below it"));
        }
        let found = read(&[], Some("p")).expect("it is there");
        let error = found.endpoint_url("s3").expect_err("no such services");
        assert!(error.to_string().contains("no section [services m]"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        let read = |kind: io::ErrorKind, variables: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let variables: std::collections::HashMap<_, _> = variables.iter().map(own).collect();
            let variable = move |name: &str| variables.get(name).cloned();
            Settings::read(variable, |_| Err(kind.into()), None).map(|_| ())
        };
        let home = [("HOME", "/home")];
        let named = [("HOME", "/home"), ("AWS_SHARED_CREDENTIALS_FILE", "~/keys")];
        assert_eq!(read(io::ErrorKind::NotFound, &named), Ok(()));
        assert_eq!(read(io::ErrorKind::IsADirectory, &named), Ok(()), "as in the AWS CLI");
        assert_eq!(read(io::ErrorKind::PermissionDenied, &home), Ok(()), "another's home");
        let error = read(io::ErrorKind::PermissionDenied, &named).expect_err("it was named");
        assert!(error.to_string().starts_with("cannot read /home/keys: permission"), "{error}");
        assert!(read(io::ErrorKind::Other, &home).is_err());
        let none_left = |_: &Path| Err(io::Error::from_raw_os_error(libc::EMFILE));
        let error = Settings::read(|_| Some("/home".to_owned()), none_left, None).map(|_| ());
        let error = error.expect_err("no descriptor is left");
        assert!(error.kind() == ErrorKind::Host && error.to_string().contains("ulimit"), "{error}");
        assert_eq!(read(io::ErrorKind::Other, &[]), Ok(()), "there is no place to look");
    }

    #[test]
    fn the_credentials_file_counts_first() {
        let variables = [("AWS_CONFIG_FILE", "/config"), ("AWS_SHARED_CREDENTIALS_FILE", "/keys")];
        let both = [("/config", "[default]\nregion = c\n"), ("/keys", "[default]\nregion = k\n")];
        let found = Settings::of(&variables, &both, None).expect("good words");
        assert_eq!(region(&found), "k");
        let from = found.find(&[], "region").map(|found| found.from);
        assert_eq!(from.as_deref(), Some("region of the profile 'default' in /keys"));
        assert!(!format!("{found:?}").contains("region"), "no contents are shown");
    }
}
