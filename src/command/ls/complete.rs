//! `inrush complete`: the candidates for a word, for the scripts of `inrush completions`. It must
//! not wait and cannot report: candidates that are not found soon, for any reason, are not offered.

use std::sync::Arc;

use tokio::time::timeout;

use crate::cli::CompleteArgs;
use crate::command::context::Context;
use crate::command::{on_runtime, ring, session};
use crate::control::limits::{COMPLETION_BUCKET_PAGES_MAX, COMPLETION_TIME};
use crate::control::{Control, profile_names};
use crate::error::Result;
use crate::report::out;
use crate::s3::list::ListQuery;
use crate::s3::uri::{SCHEME, shown};

/// Characters with a meaning in globs.
const GLOB_CHARACTERS: [char; 4] = ['*', '?', '[', '\\'];

/// Prints the candidates for the word, one per line.
pub(in crate::command) fn run(args: CompleteArgs, context: &Arc<Context>) -> Result<()> {
    let found = if let Some(start) = args.word.strip_prefix("--profile=") {
        profiles(start).into_iter().map(|name| format!("--profile={name}")).collect()
    } else if args.before == "--profile" {
        profiles(&args.word)
    } else if args.word.starts_with(SCHEME) {
        let asked = on_runtime(ring::of_control_plane(None), context, || async {
            timeout(COMPLETION_TIME, addresses(&args, context)).await
        });
        asked.ok().and_then(|asked| asked.ok()?.ok()).unwrap_or_default()
    } else {
        Vec::new()
    };
    // Characters that a terminal interprets cannot be typed either.
    let lines = found.iter().filter(|line| shown(line) == **line);
    out::print(lines.map(|line| format!("{line}\n")).collect::<String>().as_bytes())
}

/// Profiles of the AWS configuration files with this prefix.
fn profiles(start: &str) -> Vec<String> {
    let mut names = profile_names();
    names.retain(|name| name.starts_with(start));
    names
}

/// The buckets with this prefix; or the folders and objects on the word's level. As addresses.
async fn addresses(args: &CompleteArgs, context: &Arc<Context>) -> Result<Vec<String>> {
    let typed = args.word.strip_prefix(SCHEME).unwrap_or_default();
    let quiet = context.messages.progress(false);
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, (context, &quiet)).await?;
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

/// The buckets with this prefix, as addresses. They cannot be listed without credentials, and
/// credentials may allow only one bucket: then its whole name is offered if it exists.
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

/// A key as one would type it.
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

/// The key of typed text.
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
    fn keys_are_typed_and_read_again() {
        for key in ["a/b", "a*[b]?", "\\", "a\\*"] {
            assert_eq!(unescaped(&escaped(key)), key);
        }
        assert_eq!(escaped("a*"), "a\\*");
        assert_eq!(unescaped("a\\"), "a\\");
    }
}
