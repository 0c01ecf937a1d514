//! How the texts around the options become tables and paragraphs.

use std::fmt::Write as _;

use super::{About, COMMANDS, CREDENTIALS, FILTERS, GLOBS, VARIABLES};
use crate::error::{ErrorKind, ErrorReason};

/// Exit codes and their meanings, including success.
pub(in crate::cli) fn exit_codes() -> impl Iterator<Item = (u8, &'static str)> {
    let failures = ErrorKind::ALL.into_iter().map(|kind| (kind.exit_code(), kind.meaning()));
    std::iter::once((0, "success")).chain(failures)
}

/// The help template of a command whose operands the table of options cannot distinguish.
pub(in crate::cli) fn template(about: &About) -> Option<String> {
    let width = about.operands.iter().map(|(name, _)| name.len()).max()?;
    let mut operands = String::new();
    for (name, lines) in about.operands {
        for (index, line) in lines.iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            let _ = writeln!(operands, "  {name:width$}  {line}");
        }
    }
    Some(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n\
         Arguments:\n{operands}\n{{all-args}}{{after-help}}"
    ))
}

/// The help text after the options of a command.
pub(in crate::cli) fn after(about: &About) -> String {
    let mut text = String::new();
    if !about.details.is_empty() {
        text += about.details;
        text += "\n\n";
    }
    text += "Examples:\n";
    for (what, typed) in about.examples {
        text += &format!("  # {what}\n  {typed}\n");
    }
    if about.takes_globs() {
        text += "\nGLOBS:\n";
        text += &columns(GLOBS.into_iter());
        text += &format!("\n{FILTERS}\n");
    }
    if about.remote {
        text += "\nEnvironment:\n";
        text += &columns(VARIABLES.into_iter());
        text += &format!("\n{CREDENTIALS}\n");
    }
    text += "\nExit codes:\n";
    text += &exit_code_table();
    if about.remote {
        text += &format!("\n{ERROR_KINDS}\n");
        text += &columns(ErrorReason::ALL.iter().map(|reason| (reason.name(), reason.meaning())));
    }
    text
}

/// Heading of the table of error kinds.
pub(in crate::cli) const ERROR_KINDS: &str = "Values of error_kind with --json:";

/// The help text after the commands.
pub(in crate::cli) fn after_all() -> String {
    let mut text = String::from("Examples:\n");
    for about in &COMMANDS {
        for (what, typed) in about.examples.iter().take(1) {
            text += &format!("  # {what}\n  {typed}\n");
        }
    }
    text + "\nExit codes:\n" + &exit_code_table()
}

fn exit_code_table() -> String {
    exit_codes().fold(String::new(), |mut table, (code, meaning)| {
        let _ = writeln!(table, "  {code:>3}  {meaning}");
        table
    })
}

/// Width of the tables, in columns: on a terminal clap breaks longer lines, and continues them in
/// the column of the names.
const TABLE_COLUMNS: usize = 80;

pub(in crate::cli) fn columns<'a>(
    rows: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> String {
    let width = rows.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    let room = TABLE_COLUMNS.saturating_sub(width + "    ".len());
    rows.fold(String::new(), |mut table, (name, meaning)| {
        let mut name = name;
        for line in broken(meaning, room) {
            let _ = writeln!(table, "  {name:width$}  {line}");
            name = "";
        }
        table
    })
}

/// Breaks the text into lines of at most `columns` columns, as far as its words allow.
fn broken(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
