//! Options of mounts in the syntax of mount(8) and fstab(5), and the arguments of mount(8)'s
//! helpers.

use std::ffi::{OsStr, OsString};

use crate::cli::usage;

/// Options without effect on a read-only network mount.
const IDLE_OPTIONS: [&str; 32] = [
    "ro",
    "rw",
    "defaults",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "nodiratime",
    "diratime",
    "strictatime",
    "lazytime",
    "nolazytime",
    "async",
    "sync",
    "dirsync",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "silent",
    "nonempty",
    "comment",
    "default_permissions",
];

/// Expands each `-o a,b=c` of `mount` to `--a --b=c`, and removes the options that mount(8) adds.
///
/// # Errors
/// For an option that would be misunderstood.
pub(in crate::cli) fn without_lists(words: Vec<OsString>) -> Result<Vec<OsString>, clap::Error> {
    let mut plain = Vec::with_capacity(words.len());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let list = match word.to_str() {
            Some("--") => {
                plain.push(word);
                plain.extend(words);
                break;
            }
            Some("-o") => words.next().unwrap_or_default(),
            Some(text) if text.starts_with("-o") => OsString::from(&text[2..]),
            _ => {
                plain.push(word);
                continue;
            }
        };
        for option in list.to_string_lossy().split(',') {
            take(option, &mut plain)?;
        }
    }
    Ok(plain)
}

/// Appends an option of a list to the words.
fn take(option: &str, plain: &mut Vec<OsString>) -> Result<(), clap::Error> {
    let name = option.split('=').next().unwrap_or_default();
    let is_others = name.starts_with("x-") || name.starts_with("X-");
    match name {
        _ if name.is_empty() || is_others || IDLE_OPTIONS.contains(&name) => {}
        // The last of the two counts: in fstab(5) `user` implies noexec, and a later exec cancels
        // that.
        "exec" => plain.retain(|word| word != "--noexec"),
        "umask" | "fmask" | "dmask" => {
            return Err(usage(&format!(
                "-o {name}= is not an option of mount: give the permissions of files with \
                 --mode, or mode= in a list, such as mode=440"
            )));
        }
        _ => {
            let value = &option[name.len()..];
            plain.push(format!("--{}{value}", name.replace('_', "-")).into());
        }
    }
    Ok(())
}

/// Converts the arguments of a mount(8) helper, `SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t
/// TYPE]`, to those of `mount`.
///
/// # Errors
/// For a namespace.
pub(in crate::cli) fn of_helper(words: Vec<OsString>) -> Result<Vec<OsString>, clap::Error> {
    let mut plain = Vec::with_capacity(words.len() + 1);
    let mut words = words.into_iter();
    plain.extend(words.next());
    plain.push("mount".into());
    while let Some(word) = words.next() {
        let letters = word.to_str().and_then(|text| text.strip_prefix('-')).unwrap_or_default();
        match letters.as_bytes() {
            b"-" => {
                plain.push(word);
                plain.extend(words);
                break;
            }
            // Its value may look like an option.
            b"o" => {
                plain.push(word);
                plain.extend(words.next());
            }
            b"t" => drop(words.next()),
            [b't', ..] => {}
            [b'N', ..] => return Err(namespace(letters, words.next().as_deref())),
            [_, ..] if letters.bytes().all(|letter| b"fnsv".contains(&letter)) => {
                for letter in letters.bytes() {
                    match letter {
                        b'f' => plain.push("--fake".into()),
                        b'v' => plain.push("-v".into()),
                        // inrush writes no table of mounts, and ignores no option.
                        _ => {}
                    }
                }
            }
            _ => plain.push(word),
        }
    }
    Ok(plain)
}

/// The refusal to mount in another namespace.
fn namespace(letters: &str, next: Option<&OsStr>) -> clap::Error {
    let named = match &letters[1..] {
        "" => next.unwrap_or_default().to_string_lossy().into_owned(),
        named => named.to_owned(),
    };
    let named = crate::text::shown::shown(&named);
    usage(&format!(
        "-N {named}: a mount is made in the namespace of its own process, which reads files there: \
         start inrush in the other one (nsenter --mount={named} inrush mount ...)"
    ))
}
