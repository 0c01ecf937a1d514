//! What the environment and the profile files say, read and checked before the AWS SDK sees them.
//!
//! The files are read as the AWS CLI reads them: by the rules of Python's configparser, and those
//! of botocore's `configloader` for names of sections and nested values. What the AWS CLI does not
//! accept ends the command, with file and line: a file that is passed over may be the one that says
//! where signed requests go. The SDK has its own, stricter parser; it is given what was read, in
//! the form that it knows. An empty variable is none.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};

use super::limits::PROFILE_FILE_BYTES_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;

/// What names a profile beside the command line.
const PROFILE_VARIABLES: [&str; 2] = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"];

/// The profile of who names none.
const PROFILE_DEFAULT: &str = "default";

/// A variable that names a file, and where that is without it, below the home folder.
pub(crate) const CONFIG: (&str, &str) = ("AWS_CONFIG_FILE", ".aws/config");
const CREDENTIALS: (&str, &str) = ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");

/// The setting that is a command.
const PROCESS: &str = "credential_process";

/// Why a command is refused.
const CUT: &str = "credential_process has ' #' or ' ;', which the AWS SDKs take for a comment";

/// What a section of a profile file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Profile,
    Services,
    SsoSession,
}

impl Kind {
    /// All of them, by the word that a section of the configuration file begins with.
    const ALL: [(&str, Self); 3] = [
        ("profile", Self::Profile),
        ("services", Self::Services),
        ("sso-session", Self::SsoSession),
    ];
}

/// A section of a profile file.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    kind: Kind,
    name: String,
    /// Names in lower case, and values. A value of several lines has nested settings where its
    /// first line is empty.
    settings: Vec<(String, String)>,
}

/// What names a profile on the command line.
pub(crate) const BY_OPTION: &str = "--profile";

/// Who chose the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The command line.
    CommandLine,
    /// This variable.
    Variable(&'static str),
    /// Nobody: it is the default one.
    Nobody,
}

impl Chosen {
    /// What names it, for messages.
    pub(crate) const fn by(self) -> Option<&'static str> {
        match self {
            Self::CommandLine => Some(BY_OPTION),
            Self::Variable(name) => Some(name),
            Self::Nobody => None,
        }
    }
}

/// The value of a variable by its name.
type Variables = Box<dyn Fn(&str) -> Option<String>>;

/// What the environment and the profile files say.
pub(crate) struct Settings {
    variable: Variables,
    /// Of both files; those of the credentials file come last, and count first.
    sections: Vec<Section>,
    /// The files in the form of the SDK: configuration and credentials.
    canonical: [String; 2],
    profile: String,
    chosen: Chosen,
}

impl Settings {
    /// Reads them. `profile`: the one that the command line names.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where a file cannot be read, or is not what the AWS CLI accepts.
    pub(crate) fn load(profile: Option<&str>) -> Result<Self> {
        let variable = |name: &str| {
            let found = environment(name);
            // Without HOME the database of users says it, as in the AWS CLI.
            let home = || std::env::home_dir()?.into_os_string().into_string().ok();
            found.or_else(|| if name == "HOME" { home() } else { None })
        };
        Self::read(variable, read_bounded, profile)
    }

    fn read(
        variable: impl Fn(&str) -> Option<String> + 'static,
        file: impl Fn(&Path) -> io::Result<String>,
        profile: Option<&str>,
    ) -> Result<Self> {
        let variable = move |name: &str| {
            let value = variable(name)?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let mut sections = Vec::new();
        let mut canonical = [String::new(), String::new()];
        for (text, (named, usual)) in canonical.iter_mut().zip([CONFIG, CREDENTIALS]) {
            let is_config = named == CONFIG.0;
            let Some((path, is_named)) = place(&variable, named, usual) else { continue };
            let content = match file(&path) {
                Ok(content) => content,
                Err(error) if is_missing(&error, is_named) => continue,
                Err(error) => return Err(unreadable(&path, &error, named)),
            };
            let found = parse(&content, is_config).map_err(|at| malformed(&path, at))?;
            *text = in_form_of_sdk(&found, is_config);
            sections.extend(found);
        }
        let by_variable = || {
            let named = |name| Some((variable(name)?, Chosen::Variable(name)));
            PROFILE_VARIABLES.into_iter().find_map(named)
        };
        let by_option = profile.map(|name| (name.to_owned(), Chosen::CommandLine));
        let by_default = || (PROFILE_DEFAULT.to_owned(), Chosen::Nobody);
        let (profile, chosen) = by_option.or_else(by_variable).unwrap_or_else(by_default);
        let found = Self { variable: Box::new(variable), sections, canonical, profile, chosen };
        found.require_profile()?;
        Ok(found)
    }

    /// A profile that was named and is nowhere is not passed over: it may be the one that says
    /// where requests go.
    fn require_profile(&self) -> Result<()> {
        let Some(by) = self.chosen.by() else { return Ok(()) };
        if self.has_section(Kind::Profile, &self.profile) {
            return Ok(());
        }
        let message = format!("the profile '{}' does not exist", shown(&self.profile));
        Err(Error::new(ErrorKind::Access, message).advise(format!("check {by}, {}", self.places())))
    }

    fn has_section(&self, kind: Kind, name: &str) -> bool {
        self.sections.iter().any(|found| found.kind == kind && found.name == name)
    }

    fn places(&self) -> String {
        files_in_words(|name| self.variable(name))
    }

    /// The profile that was chosen, as the SDK is given it.
    pub(crate) fn profile_of_sdk(&self) -> String {
        alias(&self.profile)
    }

    /// A variable that is set, and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    /// The profile that was chosen.
    pub(crate) fn profile(&self) -> &str {
        &self.profile
    }

    /// Who chose it.
    pub(crate) fn chosen(&self) -> Chosen {
        self.chosen
    }

    /// What the variable says, else what the profile does.
    pub(crate) fn value(&self, variable: &str, key: &str) -> Option<String> {
        self.variable(variable).or_else(|| self.in_profile(key))
    }

    /// Where a service is, in the order of
    /// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html>: `service` is
    /// its name there, in lower case.
    ///
    /// # Errors
    /// Where it is not clear whether they are to be ignored, and where the profile's section of
    /// services is missing.
    pub(crate) fn endpoint_url(&self, service: &str) -> Result<Option<String>> {
        let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls");
        if self.switch(ignored.0, ignored.1)? {
            return Ok(None);
        }
        let own = format!("AWS_ENDPOINT_URL_{}", service.to_uppercase());
        let key = "endpoint_url";
        if let Some(found) = self.variable(&own).or_else(|| self.variable("AWS_ENDPOINT_URL")) {
            return Ok(Some(found));
        }
        Ok(self.in_services(service, key)?.or_else(|| self.in_profile(key)))
    }

    /// Whether something is on.
    ///
    /// # Errors
    /// Where that is neither `true` nor `false`.
    pub(crate) fn switch(&self, variable: &str, key: &str) -> Result<bool> {
        let Some(found) = self.value(variable, key) else { return Ok(false) };
        match found.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Error::new(
                ErrorKind::Usage,
                format!("{variable} or {key} is '{}'", shown(&found)),
            )
            .advise("expected true or false")),
        }
    }

    /// The files, for the SDK.
    pub(crate) fn files(&self) -> EnvConfigFiles {
        let [config, credentials] = &self.canonical;
        EnvConfigFiles::builder()
            .with_contents(EnvConfigFileKind::Config, config)
            .with_contents(EnvConfigFileKind::Credentials, credentials)
            .build()
    }

    fn setting(&self, kind: Kind, name: &str, key: &str) -> Option<&str> {
        let of_name =
            self.sections.iter().rev().filter(|found| (found.kind, &*found.name) == (kind, name));
        let mut settings = of_name.flat_map(|section| section.settings.iter().rev());
        settings.find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    fn in_profile(&self, key: &str) -> Option<String> {
        let found = self.setting(Kind::Profile, &self.profile, key)?.trim();
        (!found.is_empty()).then(|| found.to_owned())
    }

    /// What the profile's section of services says of one.
    fn in_services(&self, service: &str, key: &str) -> Result<Option<String>> {
        let Some(services) = self.in_profile("services") else { return Ok(None) };
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
        let nested = self.setting(Kind::Services, &services, service).unwrap_or_default();
        let lines = nested.lines().rev().filter_map(|line| line.split_once('='));
        let mut found = lines.filter(|(name, _)| name.trim() == key);
        let found = found.next().map(|(_, value)| value.trim().to_owned());
        Ok(found.filter(|found| !found.is_empty()))
    }
}

impl std::fmt::Debug for Settings {
    /// Nothing of the files, which have secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// A variable of the environment that is set, and not empty.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Where one of the profile files is, in words.
pub(crate) fn file_in_words(
    variable: impl Fn(&str) -> Option<String>,
    (named, usual): (&str, &str),
) -> String {
    variable(named).map_or_else(|| format!("~/{usual}"), |name| shown(&name).to_string())
}

/// Where profiles are looked for, in words.
pub(crate) fn files_in_words(variable: impl Fn(&str) -> Option<String>) -> String {
    let [config, credentials] = [CONFIG, CREDENTIALS].map(|file| file_in_words(&variable, file));
    format!("{config} and {credentials}")
}

/// Where a profile file is, and whether a variable says so.
fn place(
    variable: &impl Fn(&str) -> Option<String>,
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
fn read_bounded(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = std::fs::OpenOptions::new().read(true).open(path)?;
    file.take(PROFILE_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PROFILE_FILE_BYTES_MAX {
        return Err(io::Error::other("it is too long"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// Whether there is no such file. In the home folder of another user there is none for us.
fn is_missing(error: &io::Error, is_named: bool) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => true,
        // A container's mount of a file that is not there makes a folder.
        io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => !is_named,
        _ => false,
    }
}

fn unreadable(path: &Path, error: &io::Error, named: &str) -> Error {
    let message = format!("cannot read {}: {error}", shown(&path.to_string_lossy()));
    Error::new(ErrorKind::Usage, message).advise(format!("check the file, and {named}"))
}

/// What is said of a line does not repeat it: it may be a secret.
fn malformed(path: &Path, (line, what): (usize, &str)) -> Error {
    let message = format!("{}, line {line}: {what}", shown(&path.to_string_lossy()));
    Error::new(ErrorKind::Usage, message).advise("write NAME = VALUE below a [SECTION]")
}

/// Reads a file as configparser does; a line that it refuses, by its number, and why.
fn parse(content: &str, is_config: bool) -> Result<Vec<Section>, (usize, &'static str)> {
    // What editors of other systems begin a file with.
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let mut sections: Vec<Section> = Vec::new();
    // No section yet; one that is not about us, whose lines must be right all the same.
    let (mut is_in_one, mut is_kept) = (false, false);
    // How far the last name is indented: what is further is part of its value.
    let mut of_value: Option<usize> = None;
    let mut is_nested = false;
    for (number, line) in content.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        let text = line.trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if of_value.is_some_and(|of_name| indent > of_name) {
            let is_command =
                is_kept && last(&mut sections).is_some_and(|(name, _)| name == PROCESS);
            if is_nested && !text.contains('=') {
                return Err((number, "a nested setting has no value"));
            }
            // One value of several lines is a region, or an address, with a secret in it.
            if !is_nested && !is_command {
                return Err((number, "a setting goes on here, with white space before it"));
            }
            if is_command && is_cut_by_sdk(text) {
                return Err((number, CUT));
            }
            if is_kept && let Some((_, value)) = last(&mut sections) {
                value.push(if is_command { ' ' } else { '\n' });
                value.push_str(text);
            }
            continue;
        }
        if let Some(header) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let found = header_of(header.0, is_config);
            (is_in_one, is_kept, of_value) = (true, found.is_some(), None);
            if let Some((kind, name)) = found {
                sections.push(Section { kind, name, settings: Vec::new() });
            }
            continue;
        }
        let Some(at) = text.find(['=', ':']) else {
            return Err((number, "neither a section nor a setting"));
        };
        let (name, value) = (text[..at].trim_end(), text[at + 1..].trim());
        if !is_in_one {
            return Err((number, "a setting before the first section"));
        }
        if name.is_empty() {
            return Err((number, "a setting has no name"));
        }
        let is_command = name.eq_ignore_ascii_case(PROCESS);
        if is_command && is_cut_by_sdk(value) {
            return Err((number, CUT));
        }
        (of_value, is_nested) = (Some(indent), value.is_empty() && !is_command);
        if is_kept && let Some(section) = sections.last_mut() {
            section.settings.push((name.to_lowercase(), value.to_owned()));
        }
    }
    Ok(sections)
}

/// Whether the SDK would take a part of this for a comment, and run the rest as another command.
fn is_cut_by_sdk(command: &str) -> bool {
    let mut pairs = command.chars().zip(command.chars().skip(1));
    pairs.any(|(before, sign)| before.is_whitespace() && matches!(sign, '#' | ';'))
}

fn last(sections: &mut [Section]) -> Option<&mut (String, String)> {
    sections.last_mut()?.settings.last_mut()
}

/// What a section is about, where that is ours to know.
fn header_of(header: &str, is_config: bool) -> Option<(Kind, String)> {
    let header = header.trim();
    if !is_config || header == PROFILE_DEFAULT {
        return Some((Kind::Profile, header.to_owned()));
    }
    let (word, name) = header.split_once(char::is_whitespace)?;
    let kind = Kind::ALL.iter().find(|(known, _)| *known == word)?.1;
    let name = name.trim();
    let quoted = ['"', '\''].iter().find_map(|quote| {
        name.strip_prefix(*quote)?.strip_suffix(*quote).filter(|name| !name.contains(*quote))
    });
    match quoted {
        Some(name) => Some((kind, name.to_owned())),
        None if name.contains(char::is_whitespace) || name.is_empty() => None,
        None => Some((kind, name.to_owned())),
    }
}

/// Whether the SDK's parser takes this for a name.
fn is_plain(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/.%@:+".contains(&byte);
    !name.is_empty() && name.bytes().all(is_fit)
}

/// The name of a section as the SDK is given it: one that it takes.
fn alias(name: &str) -> String {
    if is_plain(name) {
        return name.to_owned();
    }
    name.bytes().fold("named-".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The same as the SDK's parser knows it: without what it would refuse the whole file for.
fn in_form_of_sdk(sections: &[Section], is_config: bool) -> String {
    let mut text = String::new();
    for Section { kind, name, settings } in sections {
        let word = Kind::ALL.iter().find(|(_, known)| known == kind).map_or("", |(word, _)| word);
        let _ = match name.as_str() {
            PROFILE_DEFAULT if *kind == Kind::Profile => writeln!(text, "[{name}]"),
            _ if is_config => writeln!(text, "[{word} {}]", alias(name)),
            _ => writeln!(text, "[{}]", alias(name)),
        };
        // It takes an empty value for one.
        let is_one = |(name, value): &&(String, String)| is_plain(name) && !value.is_empty();
        for (name, value) in settings.iter().filter(is_one) {
            let value = match name.as_str() {
                "source_profile" | "sso_session" | "services" => alias(value),
                _ => value.clone(),
            };
            let mut lines = value.lines();
            let _ = writeln!(text, "{name} = {}", lines.next().unwrap_or_default());
            let is_nested =
                |line: &&str| line.split_once('=').is_some_and(|(name, _)| is_plain(name.trim()));
            lines.filter(is_nested).for_each(|line| text.extend(["  ", line, "\n"]));
        }
    }
    text
}

#[cfg(test)]
impl Settings {
    /// With these variables and files alone.
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

    /// Most by the rules of configparser; a byte order mark and a repeated name are forgiven.
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
            "[default]\nregion = first\nregion = r\nendpoint_url = http://x:1\n",
        ];
        for form in forms {
            let found = read(form).unwrap_or_else(|error| panic!("{form}: {error}"));
            let url = found.endpoint_url("s3").expect("a switch");
            assert_eq!(url.as_deref(), Some("http://x:1"), "{form}");
            assert_eq!(found.value("AWS_DEFAULT_REGION", "region").as_deref(), Some("r"), "{form}");
        }
        let quoted = "[profile \"my own\"]\nregion = r\n";
        let variables = [("AWS_CONFIG_FILE", "/config"), ("AWS_PROFILE", "my own")];
        let found = Settings::of(&variables, &[("/config", quoted)], None).expect("a name");
        assert_eq!(found.value("AWS_REGION", "region").as_deref(), Some("r"));
        assert_eq!(found.chosen(), Chosen::Variable("AWS_PROFILE"));
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
            ("[default]\ncredential_process = a ; secret\n", "/config, line 2: credential_proc"),
            ("[default]\ncredential_process = a\n  b #secret\n", "/config, line 3: credential_p"),
        ] {
            let error = read(form).expect_err(form);
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().starts_with(expected), "{form}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
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
            let told = error.to_string();
            assert!(told.starts_with("the profile 'typo' does not exist") && told.contains(by));
        }
        let found = read(&[], Some("p")).expect("it is there");
        let error = found.endpoint_url("s3").expect_err("no such services");
        assert!(error.to_string().contains("no section [services m]"), "{error}");
    }

    /// One odd name in a file would else make the SDK refuse all of it.
    #[test]
    fn the_sdk_is_given_names_that_it_takes() {
        let config = "[profile \"my own\"]\nrole_arn =\nsource_profile = a#b\nx #y = z\n[x = y\n\
                      s3 =\n  = b\n  c = d\n[profile a#b]\nregion = r\n";
        let variables = [("AWS_CONFIG_FILE", "/config")];
        let found = Settings::of(&variables, &[("/config", config)], Some("my own"));
        let found = found.expect("it is there");
        assert_eq!(
            found.canonical[0],
            "[profile named-6d79206f776e]\nsource_profile = named-612362\ns3 = \n  c = d\n\
             [profile named-612362]\nregion = r\n"
        );
        assert_eq!(found.profile_of_sdk(), "named-6d79206f776e");
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
        assert_eq!(read(io::ErrorKind::PermissionDenied, &home), Ok(()), "another's home");
        let error = read(io::ErrorKind::PermissionDenied, &named).expect_err("it was named");
        assert!(error.to_string().starts_with("cannot read /home/keys: permission"), "{error}");
        assert!(read(io::ErrorKind::Other, &home).is_err());
        assert_eq!(read(io::ErrorKind::Other, &[]), Ok(()), "there is no place to look");
    }

    #[test]
    fn the_sdk_is_given_what_was_read() {
        let config = "[default]\n  Region: r ; mine\n  s3 =\n    a = b\n\n    c = d\n[plugins]\n\
                      x = y\n[profile 'p']\ncredential_process = one\n   two\n\
                      [sso-session s]\nsso_region=x\n";
        let files = [("/config", config), ("/keys", "[p]\naws_access_key_id=A\n")];
        let variables = [("AWS_CONFIG_FILE", "/config"), ("AWS_SHARED_CREDENTIALS_FILE", "/keys")];
        let found = Settings::of(&variables, &files, Some("p")).expect("good words");
        assert_eq!(
            found.canonical[0],
            "[default]\nregion = r ; mine\ns3 = \n  a = b\n  c = d\n[profile p]\n\
             credential_process = one two\n[sso-session s]\nsso_region = x\n"
        );
        assert_eq!(found.canonical[1], "[p]\naws_access_key_id = A\n");
        assert_eq!(found.chosen(), Chosen::CommandLine);
        // The credentials file counts first.
        let both = [("/config", "[default]\nregion = c\n"), ("/keys", "[default]\nregion = k\n")];
        let found = Settings::of(&variables, &both, None).expect("good words");
        assert_eq!(found.value("AWS_REGION", "region").as_deref(), Some("k"));
        assert!(!format!("{found:?}").contains("region"), "no contents are shown");
    }
}
