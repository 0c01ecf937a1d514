//! Options that were typed with a command that does not have them, though another has.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command;

/// The refusal in these words where the option belongs to other commands; else as it is. clap would
/// suggest what is spelled alike.
pub(super) fn named(refusal: clap::Error, words: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(option)) = refusal.get(ContextKind::InvalidArg) else {
        return refusal;
    };
    if refusal.kind() != ErrorKind::UnknownArgument {
        return refusal;
    }
    let table = command();
    let words = || words.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    let typed = words().find(|word| table.find_subcommand(word).is_some()).unwrap_or_default();
    let is_before = words().take_while(|word| *word != typed).any(|word| word.starts_with(option));
    match owners(option).as_slice() {
        [] => refusal,
        owners if !is_before && owners.iter().any(|owner| owner == typed) => refusal,
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

/// The commands that have this option, of those that people see.
fn owners(option: &str) -> Vec<String> {
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
