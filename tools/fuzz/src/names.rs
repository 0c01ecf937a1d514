//! Names of the world: addresses as users write them, and keys as paths below a destination.

use std::path::{Component, Path};

use inrush::plan::merge::PathGuard;
use inrush::plan::path::{NAME_BYTES_MAX, PATH_BYTES_MAX, PathProblem, RelativePath};
use inrush::s3::uri::{KEY_BYTES_MAX, KeyPattern, S3Uri};
use inrush::s3::web::{WebUrl, is_url, without_query};

/// Most keys of one input that are checked together.
const KEYS_MAX: usize = 24;

/// `s3://` addresses: the forms of keys are what they say, a glob matches nothing outside of what
/// is listed for it, and any key can be written so that it means itself.
pub fn uri(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(uri) = S3Uri::parse(&text) {
        assert!(text.starts_with("s3://"), "{text:?}");
        assert!(!uri.bucket.is_empty() && !uri.to_string().contains(char::is_control));
        wanted(&uri.key, &text);
    }
    // The rest of the text after the scheme and the bucket, or all of it.
    let key = text.splitn(4, '/').nth(3).unwrap_or(&text);
    means_itself(key);
}

fn wanted(pattern: &KeyPattern, text: &str) {
    match pattern {
        KeyPattern::Bucket => {}
        KeyPattern::Folder(key) => assert!(key.ends_with('/') && key.len() <= KEY_BYTES_MAX),
        KeyPattern::Key(key) => {
            assert!(!key.is_empty() && !key.ends_with('/') && key.len() <= KEY_BYTES_MAX);
        }
        KeyPattern::Glob(glob) => {
            let (folder, listed) = (&glob.folder, &glob.list_prefix);
            assert!(folder.is_empty() || folder.ends_with('/'), "{folder:?}");
            assert!(listed.starts_with(folder), "{folder:?} of {listed:?}");
            assert!(!listed[folder.len()..].contains('/'), "{folder:?} is not all of {listed:?}");
            let tail = text.splitn(4, '/').nth(3).unwrap_or("");
            for key in [tail, &tail.replace(['*', '?', '['], "a"), &format!("{listed}a"), listed] {
                assert!(
                    !glob.matches(key) || key.starts_with(listed.as_str()),
                    "{key:?} is wanted, and {listed:?} is listed"
                );
            }
        }
        KeyPattern::Prefix(_) | KeyPattern::Exact { .. } => panic!("{text:?} is an address"),
    }
}

fn means_itself(key: &str) {
    let special = |found: char| matches!(found, '*' | '?' | '[' | ']' | '{' | '}' | '\\');
    let mut text = "s3://bucket/".to_owned();
    for found in key.chars() {
        text.extend(special(found).then_some('\\'));
        text.push(found);
    }
    if text.trim() != text || key.contains('\0') || key.len() > KEY_BYTES_MAX {
        assert!(S3Uri::parse(&text).is_err(), "{text:?}");
        return;
    }
    let uri = S3Uri::parse(&text).expect("a good address");
    assert_eq!(uri.bucket, "bucket");
    match uri.key {
        KeyPattern::Bucket => assert!(key.is_empty()),
        KeyPattern::Folder(folder) => assert_eq!(folder, key),
        KeyPattern::Key(other) => assert_eq!(other, key),
        KeyPattern::Glob(_) => panic!("{text:?} has no wildcard"),
        KeyPattern::Prefix(_) | KeyPattern::Exact { .. } => panic!("{text:?} is an address"),
    }
}

/// URLs, and behind a line end the `Location` of a redirect: a request of one is one line, its text
/// has no query, it names a file, it is read again as what it is, and nothing leads from https to
/// http.
pub fn web(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (first, location) = text.split_once('\n').unwrap_or((&text, "/"));
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let left = without_query(first);
    assert!(!is_url(first) || left.matches('?').count() <= 1, "{left:?}");
    assert!(!is_url(first) || !left.contains('?') || left.ends_with("?..."), "{left:?}");
    let Ok(url) = WebUrl::parse(first) else { return };
    assert!(url.target().starts_with('/') && is_plain(url.target()), "{url:?}");
    assert!(is_plain(&url.origin()) && !url.origin().contains(['?', '@']), "{url:?}");
    let shown = url.to_string();
    assert_eq!(shown.ends_with("?..."), url.target().contains('?'), "{shown:?}");
    assert_eq!(shown.matches('?').count(), usize::from(url.target().contains('?')), "{shown:?}");
    let (key, start) = url.name().expect("it was read so");
    assert!(!key[start..].is_empty() && !key[start..].contains(['/', '\0']), "{key:?}");
    let again = format!("{}{}", url.origin(), url.target());
    assert_eq!(WebUrl::parse(&again).as_ref().ok(), Some(&url), "{again:?}");
    let _ = url.ends();
    if let Ok(next) = url.follow(location) {
        assert!(next.is_tls() || !url.is_tls(), "{url:?} leads to {next:?}");
        assert!(next.target().starts_with('/') && is_plain(next.target()), "{next:?}");
    }
}

/// Keys, one a line: a path never leaves the destination and is the key unchanged; and of a sorted
/// listing no two paths are in each other's way.
pub fn paths(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut keys: Vec<&str> = text.split('\n').take(KEYS_MAX).collect();
    keys.iter().for_each(|key| stays_below(key));
    keys.sort_unstable();
    let mut guard = PathGuard::default();
    let mut written: Vec<&str> = Vec::new();
    for key in keys {
        if RelativePath::parse(key).is_err() {
            continue;
        }
        let below = |file: &str| {
            key.strip_prefix(file).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let clash = written.iter().any(|file| below(file));
        assert_eq!(guard.check(0, key).is_err(), clash, "{key:?} after {written:?}");
        if !clash {
            written.push(key);
        }
    }
    assert!(guard.is_sorted());
}

fn stays_below(key: &str) {
    let destination = Path::new("/destination");
    match RelativePath::parse(key) {
        Ok(relative) => {
            assert_eq!(relative.as_str(), key);
            let path = destination.join(&relative);
            let below = path.strip_prefix(destination).expect("below the destination");
            assert!(below.components().next().is_some(), "the destination itself");
            let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
            assert!(below.components().all(normal), "{key:?} leaves the destination");
            let mut names = below.iter().map(|name| name.len());
            assert!(names.all(|length| length <= NAME_BYTES_MAX) && key.len() < PATH_BYTES_MAX);
            assert_eq!(below.to_str(), Some(key), "not the key");
            assert!(!key.contains('\0'), "no file name has a NUL");
        }
        Err(problem) => assert!(is_so(problem, key), "{key:?}: {problem:?}"),
    }
}

/// Whether the key has that problem, as its words say.
fn is_so(problem: PathProblem, key: &str) -> bool {
    let mut names = key.split('/');
    match problem {
        PathProblem::Absolute => key.starts_with('/'),
        PathProblem::DotSegment => names.any(|name| name == "." || name == ".."),
        PathProblem::EmptySegment => names.any(str::is_empty),
        PathProblem::NameTooLong => names.any(|name| name.len() > NAME_BYTES_MAX),
        PathProblem::Nul => key.contains('\0'),
        PathProblem::OwnName => names.any(|name| name.starts_with(".inrush-")),
        PathProblem::PathTooLong => key.len() >= PATH_BYTES_MAX,
        PathProblem::Duplicate { .. }
        | PathProblem::FileAndFolder { .. }
        | PathProblem::FolderWithBytes
        | PathProblem::SharedPath => false,
    }
}
