//! `inrush complete`: how a word may go on, for the scripts of `inrush completions`. It has no time
//! to wait and nobody to tell: what is not found soon, for whatever reason, is not offered.

use std::path::PathBuf;

use tokio::time::timeout;

use super::{on_runtime, ring, session};
use crate::cli::CompleteArgs;
use crate::control::Control;
use crate::control::limits::{COMPLETION_BUCKET_PAGES_MAX, COMPLETION_TIME, PROFILES_BYTES_MAX};
use crate::error::Result;
use crate::report::out;
use crate::report::progress::Progress;
use crate::s3::list::ListQuery;
use crate::s3::uri::shown;

/// What an address starts with.
const SCHEME: &str = "s3://";
/// What would be read as a glob, or takes away that meaning.
const GLOB_CHARACTERS: [char; 4] = ['*', '?', '[', '\\'];

/// Prints how the word may go on, a line each.
pub(super) fn run(args: CompleteArgs) -> Result<()> {
    let found = if let Some(start) = args.word.strip_prefix("--profile=") {
        profiles(start).into_iter().map(|name| format!("--profile={name}")).collect()
    } else if args.before == "--profile" {
        profiles(&args.word)
    } else if args.word.starts_with(SCHEME) {
        let asked = on_runtime(ring::of_control_plane(None), || async {
            timeout(COMPLETION_TIME, addresses(&args)).await
        });
        asked.ok().and_then(|asked| asked.ok()?.ok()).unwrap_or_default()
    } else {
        Vec::new()
    };
    // What a terminal would obey cannot be typed either.
    let lines = found.iter().filter(|line| shown(line) == **line);
    out::print(lines.map(|line| format!("{line}\n")).collect::<String>().as_bytes())
}

/// Profiles of the AWS configuration files whose names start so.
fn profiles(start: &str) -> Vec<String> {
    let place = |variable: &str, name: &str| {
        let given = std::env::var_os(variable).map(PathBuf::from);
        given.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".aws").join(name)))
    };
    let config = place("AWS_CONFIG_FILE", "config").map(|path| (path, "profile "));
    let credentials = place("AWS_SHARED_CREDENTIALS_FILE", "credentials").map(|path| (path, ""));
    let mut names: Vec<String> = Vec::new();
    for (path, before) in [config, credentials].into_iter().flatten() {
        // Of anything but a file the end may never come.
        let is_short =
            |found: std::fs::Metadata| found.is_file() && found.len() <= PROFILES_BYTES_MAX;
        let is_short = path.metadata().is_ok_and(is_short);
        let text = is_short.then(|| std::fs::read_to_string(path).ok()).flatten();
        names.extend(sections(&text.unwrap_or_default(), before));
    }
    names.retain(|name| name.starts_with(start));
    names.sort_unstable();
    names.dedup();
    names
}

/// The profiles of such a file, where `before` stands in front of their names but `default`.
fn sections(text: &str, before: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let name = line.trim().strip_prefix('[')?.split_once(']')?.0.trim();
        match name {
            "default" => Some(name),
            _ => name.strip_prefix(before).map(str::trim),
        }
    });
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The buckets that start so; or the folders and objects on the level that the word is in. As
/// addresses.
async fn addresses(args: &CompleteArgs) -> Result<Vec<String>> {
    let typed = args.word.strip_prefix(SCHEME).unwrap_or_default();
    let quiet = Progress::new(false);
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, &quiet).await?;
    let Some((bucket, prefix)) = typed.split_once('/') else {
        return buckets(&control, typed).await;
    };
    let start = ListQuery::new(unescaped(prefix));
    let page = control.list_page(bucket, &ListQuery { by_folder: true, ..start }).await?;
    let keys = page.folders.into_iter().chain(page.objects.into_iter().map(|object| object.key));
    let mut keys: Vec<String> = keys.filter(|key| !key.is_empty()).collect();
    keys.sort_unstable();
    Ok(keys.iter().map(|key| format!("{SCHEME}{bucket}/{}", escaped(key))).collect())
}

/// The buckets whose names start so, as addresses. Nobody lists buckets without keys, and keys may
/// be for one bucket alone: then its whole name is offered when it is there.
async fn buckets(control: &Control, start: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut token = None;
    if control.keys().get().is_some() {
        for _ in 0..COMPLETION_BUCKET_PAGES_MAX {
            let Ok(page) = control.list_buckets(token.as_deref()).await else { break };
            names.extend(page.buckets.into_iter().map(|bucket| bucket.name));
            token = page.next_token;
            if token.is_none() {
                break;
            }
        }
    }
    names.retain(|name| name.starts_with(start));
    if names.is_empty() && !start.is_empty() {
        control.list_page(start, &ListQuery { by_folder: true, ..ListQuery::new("") }).await?;
        names.push(start.to_owned());
    }
    names.sort_unstable();
    names.dedup();
    Ok(names.iter().map(|name| format!("{SCHEME}{name}/")).collect())
}

/// A key as it is typed.
fn escaped(key: &str) -> String {
    let mut typed = String::with_capacity(key.len());
    for character in key.chars() {
        if GLOB_CHARACTERS.contains(&character) {
            typed.push('\\');
        }
        typed.push(character);
    }
    typed
}

/// A key that was typed.
fn unescaped(typed: &str) -> String {
    let mut characters = typed.chars();
    let mut key = String::with_capacity(typed.len());
    while let Some(character) = characters.next() {
        key.push(match character {
            '\\' => characters.next().unwrap_or('\\'),
            other => other,
        });
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_profiles() {
        let config = "[default]\na=[b]\n [profile one] # c\n[sso-session s]\n[profile  two]\n\
                      [services x]\n[";
        assert_eq!(sections(config, "profile "), ["default", "one", "two"]);
        assert_eq!(sections("[default]\n[three]\n[]\n", ""), ["default", "three"]);
    }

    #[test]
    fn keys_are_typed_and_read_again() {
        for key in ["a/b", "a*[b]?", "\\", "a\\*"] {
            assert_eq!(unescaped(&escaped(key)), key);
        }
        assert_eq!(escaped("a*"), "a\\*");
        assert_eq!(unescaped("a\\"), "a\\");
    }
}
