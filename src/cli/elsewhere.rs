//! Refuses options that belong to another command or another program, with advice.

pub(super) mod guess;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command;

/// Replaces the refusal with advice if the option belongs to other commands or other programs; else
/// returns it unchanged. clap alone would suggest options with similar spelling.
pub(super) fn named(mut refusal: clap::Error, words: &[OsString]) -> clap::Error {
    if refusal.kind() == ErrorKind::InvalidValue {
        forget_a_far_value(&mut refusal);
    }
    let Some(ContextValue::String(option)) = refusal.get(ContextKind::InvalidArg) else {
        return refusal;
    };
    if refusal.kind() != ErrorKind::UnknownArgument {
        return refusal;
    }
    let table = command();
    let words = || words.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    let typed = words().find(|word| table.find_subcommand(word).is_some()).unwrap_or_default();
    if let Some(instead) = guess::of_option(option, typed, words()) {
        let message = format!("unexpected argument '{option}': {instead}\n");
        return clap::Error::raw(ErrorKind::UnknownArgument, message);
    }
    let is_before = words().take_while(|word| *word != typed).any(|word| word.starts_with(option));
    match owners(option).as_slice() {
        [] => without_dashes(refusal),
        owners if !is_before && owners.iter().any(|owner| owner == typed) => {
            without_dashes(refusal)
        }
        [owners @ .., last] => {
            let all = match owners {
                [] => last.clone(),
                _ => format!("{} and {last}", owners.join(", ")),
            };
            let message = if is_before {
                format!("{option} is an option of {all}; options go behind the command\n")
            } else {
                format!("{option} is an option of {all}, not of {typed}\n")
            };
            clap::Error::raw(ErrorKind::UnknownArgument, message)
        }
    }
}

/// Removes the tip to type the option as an operand after `--`: no source or destination begins
/// with dashes.
fn without_dashes(mut refusal: clap::Error) -> clap::Error {
    refusal.remove(ContextKind::Suggested);
    refusal
}

/// The visible commands that have this option.
pub(super) fn owners(option: &str) -> Vec<String> {
    let mut table = command();
    table.build();
    let has = |child: &&clap::Command| {
        child.get_arguments().any(|arg| {
            let long = option.strip_prefix("--").is_some_and(|name| {
                let aliases = arg.get_all_aliases().unwrap_or_default();
                arg.get_long() == Some(name) || aliases.contains(&name)
            });
            let short = arg.get_short().is_some_and(|short| option == format!("-{short}"));
            !arg.is_hide_set() && (long || short)
        })
    };
    table.get_subcommands().filter(has).map(|child| child.get_name().to_owned()).collect()
}

/// Removes the suggestion of a value that begins differently: a value that is similar only in its
/// middle is rarely meant.
fn forget_a_far_value(refusal: &mut clap::Error) {
    let text = |kind| match refusal.get(kind) {
        Some(ContextValue::String(text)) => text.to_ascii_lowercase(),
        _ => String::new(),
    };
    let (typed, meant) = (text(ContextKind::InvalidValue), text(ContextKind::SuggestedValue));
    if typed.chars().next() != meant.chars().next() {
        refusal.remove(ContextKind::SuggestedValue);
    }
}
