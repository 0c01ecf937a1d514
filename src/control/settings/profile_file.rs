//! Parses profile files.

use std::collections::HashSet;
use std::sync::Arc;

/// The profile without a selection.
pub(in crate::control) const PROFILE_DEFAULT: &str = "default";

/// The header of settings that apply to all sections of a file that do not set them. configparser
/// recognizes only this exact name, any number of times.
const DEFAULTS: &str = "DEFAULT";

/// The setting whose value is a command.
pub(in crate::control) const PROCESS: &str = "credential_process";

/// The kind of a section of a profile file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Profile,
    Services,
    SsoSession,
    /// Defaults of the other sections.
    Defaults,
    /// Any other section; its name is its whole header.
    Other,
}

impl Kind {
    /// Our sections, by the word before their name in the configuration file.
    const ALL: [(&str, Self); 3] = [
        ("profile", Self::Profile),
        ("services", Self::Services),
        ("sso-session", Self::SsoSession),
    ];
}

/// A section of a profile file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// Its file, 0 for the configuration and 1 for the credentials, and the line of its header.
    pub(super) place: (usize, usize),
    /// Names in lower case, and values. A value of several lines has nested settings if its first
    /// line is empty.
    pub(super) settings: Vec<(String, String)>,
    /// The settings of `[DEFAULT]`, which all sections of a file share.
    pub(super) defaults: Arc<[(String, String)]>,
}

impl Section {
    /// A setting; an empty one counts as not set, even in `[DEFAULT]`.
    pub(super) fn said(&self, key: &str) -> Option<&str> {
        let mut all = self.settings.iter().chain(&*self.defaults);
        let (_, value) = all.find(|(name, _)| name == key)?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }
}

/// Why a line is refused, and the advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) why: &'static str,
    pub(super) advice: &'static str,
}

impl Wrong {
    /// A line that is not a setting of a section.
    const fn form(why: &'static str) -> Self {
        Self { why, advice: "write NAME = VALUE below a [SECTION]" }
    }
}

/// Parses the file of this number, like configparser; a refused line is returned by its number.
pub(super) fn parse(content: &str, file: usize) -> Result<Vec<Section>, (usize, Wrong)> {
    // The byte order mark of other systems' editors.
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let mut sections: Vec<Section> = Vec::new();
    // The section of the next setting: `[DEFAULT]` may be repeated.
    let mut current = 0;
    let mut defaults_at = None;
    let mut names_seen = SeenNames::default();
    // Indentation of the last name: lines that are indented further continue its value.
    let mut of_value: Option<usize> = None;
    let mut is_nested = false;
    for (number, line) in content.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        let text = line.trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if of_value.is_some_and(|of_name| indent > of_name) {
            let Some((name, value)) = last(&mut sections, current) else { continue };
            go_on(name == PROCESS, is_nested, value, text).map_err(|wrong| (number, wrong))?;
            continue;
        }
        if let Some(header) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            of_value = None;
            let (kind, name) = header_of(header.0, file == 0);
            if let (Kind::Defaults, Some(at)) = (kind, defaults_at) {
                current = at;
                continue;
            }
            if !names_seen.headers.insert(header.0.to_owned()) {
                let advice = "write its settings below the first one, and remove this one";
                let why = "this section is a second time in the file";
                return Err((number, Wrong { why, advice }));
            }
            // As botocore: of one section that is written in two ways the later one counts.
            let mut ours = sections.iter_mut().filter(|found| found.kind != Kind::Other);
            if let Some(earlier) = ours.find(|found| (found.kind, &found.name) == (kind, &name)) {
                earlier.kind = Kind::Other;
            }
            current = sections.len();
            defaults_at = defaults_at.or((kind == Kind::Defaults).then_some(current));
            let (settings, defaults) = (Vec::new(), Arc::default());
            sections.push(Section { kind, name, place: (file, number), settings, defaults });
            continue;
        }
        let Some(at) = text.find(['=', ':']) else {
            return Err((number, Wrong::form("neither a section nor a setting")));
        };
        let (name, value) = (text[..at].trim_end().to_lowercase(), text[at + 1..].trim());
        let Some(section) = sections.get_mut(current) else {
            return Err((number, Wrong::form("a setting before the first section")));
        };
        if name.is_empty() {
            return Err((number, Wrong::form("a setting has no name")));
        }
        if !names_seen.is_new_setting(current, &name) {
            return Err((
                number,
                Wrong {
                    why: "this setting is a second time in its section",
                    advice: "remove one of them",
                },
            ));
        }
        let is_command = name == PROCESS;
        (of_value, is_nested) = (Some(indent), value.is_empty() && !is_command);
        section.settings.push((name, value.to_owned()));
    }
    if let Some(at) = defaults_at {
        let defaults: Arc<[_]> = std::mem::take(&mut sections[at].settings).into();
        sections.iter_mut().for_each(|section| section.defaults = Arc::clone(&defaults));
    }
    Ok(sections)
}

/// Appends a line to the value above it: of a command, or a nested setting.
fn go_on(is_command: bool, is_nested: bool, value: &mut String, text: &str) -> Result<(), Wrong> {
    if is_nested && !text.contains('=') {
        let why = "a nested setting has no value";
        return Err(Wrong { why, advice: "write NAME = VALUE" });
    }
    // A multi-line value may be a region, or an address, with a secret in it.
    if !is_nested && !is_command {
        let why = "a setting goes on here, with white space before it";
        let advice = "write the value in one line; for another setting remove the white space";
        return Err(Wrong { why, advice });
    }
    value.push(if is_command { ' ' } else { '\n' });
    value.push_str(text);
    Ok(())
}

/// The names of a file so far: configparser refuses duplicates, and of two equal names the intended
/// one is unknown.
#[derive(Default)]
struct SeenNames {
    headers: HashSet<String>,
    /// With the index of their section.
    settings: HashSet<(usize, String)>,
}

impl SeenNames {
    fn is_new_setting(&mut self, section: usize, name: &str) -> bool {
        self.settings.insert((section, name.to_owned()))
    }
}

fn last(sections: &mut [Section], current: usize) -> Option<&mut (String, String)> {
    sections.get_mut(current)?.settings.last_mut()
}

/// The kind and the name of a section.
fn header_of(header: &str, is_config: bool) -> (Kind, String) {
    if header == DEFAULTS {
        return (Kind::Defaults, header.to_owned());
    }
    let header = header.trim();
    if !is_config || header == PROFILE_DEFAULT {
        return (Kind::Profile, header.to_owned());
    }
    let ours = || {
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
    };
    ours().unwrap_or_else(|| (Kind::Other, header.to_owned()))
}
