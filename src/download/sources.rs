//! Sources in a file or from standard input (`--files-from`), one per line, as an address or as a
//! line of `ls --json`; and lists of objects (`--manifest`).

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use serde::Deserialize;

use crate::cli::{ManifestPlace, SelectionArgs};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::limits::{
    MANIFEST_BYTES_MAX, MANIFEST_OBJECTS_MAX, SOURCE_LINE_BYTES_MAX, SOURCES_MAX,
};
use crate::control::list::sources::too_many_sources;
use crate::control::list::walk::leaves_nothing;
use crate::error::{Error, ErrorKind, Result};
use crate::link::waiting::{Board, Ticket};
use crate::plan::epoch::Shard;
use crate::plan::filter::Filter;
use crate::plan::manifest;
use crate::s3::uri::{KeyPattern, S3Uri, SCHEME, shown};

/// The parser of an address.
type ReadSource = fn(&str) -> Result<S3Uri>;

/// Stands for standard input.
const STDIN: &str = "-";

/// Reports the read of a file as a wait, until the ticket is dropped.
pub(crate) fn note_read(path: &Path, board: &Arc<Board>) -> Ticket {
    let name =
        if path.as_os_str() == STDIN { "standard input".into() } else { path.to_string_lossy() };
    board.begin_file(shown(&name).to_string())
}

/// Adds the sources in the file, if given, to the typed ones; reading it is a wait on the board.
pub(crate) async fn add(
    sources: &mut Vec<S3Uri>,
    selection: &SelectionArgs,
    board: &Arc<Board>,
) -> Result<()> {
    let Some(path) = selection.files_from.clone() else { return Ok(()) };
    let reads = selection.read_source();
    let room = SOURCES_MAX.saturating_sub(sources.len());
    // Standard input may be a terminal, and a file a pipe without a writer.
    let _noted = note_read(&path, board);
    sources.extend(blocking(move || read(&path, reads, room)).await?);
    if sources.is_empty() {
        let message = "no source is given, and the file of --files-from has none";
        return Err(Error::new(ErrorKind::Usage, message)
            .advise("write one per line, such as s3://BUCKET/KEY"));
    }
    Ok(())
}

/// Refuses a list that may be truncated unnoticed: files missing in it would be deleted.
///
/// # Errors
/// [`ErrorKind::Usage`] if it is standard input, a pipe or the like.
pub(crate) fn require_whole(selection: &SelectionArgs) -> Result<()> {
    match &selection.files_from {
        Some(path) if path.as_os_str() == STDIN || !path.is_file() => Err(Error::new(
            ErrorKind::Usage,
            "--delete needs a regular file for --files-from: a list that ends too early would \
             delete files",
        )
        .advise("write the list to a file first")),
        _ => Ok(()),
    }
}

/// Refuses URLs of one name: their files would be one.
///
/// # Errors
/// [`ErrorKind::Usage`] with the first two.
pub(crate) fn require_names_apart(sources: &[S3Uri]) -> Result<()> {
    let mut names = HashMap::new();
    for source in sources {
        let (Some(url), KeyPattern::Exact { key, path_start }) = (&source.url, &source.key) else {
            continue;
        };
        let name = &key[*path_start..];
        let first = *names.entry(name).or_insert(url);
        // What is given twice is downloaded once.
        if first != url {
            let message = format!("{first} and {url}: both have the name '{}'", shown(name));
            return Err(Error::new(ErrorKind::Usage, message).advise(
                "download one of them by itself, to another name: inrush get URL DEST/NAME",
            ));
        }
    }
    Ok(())
}

fn read(path: &Path, reads: ReadSource, room: usize) -> Result<Vec<S3Uri>> {
    let name = path.display().to_string();
    if path.as_os_str() == STDIN {
        return parse(io::stdin().lock(), "standard input", reads, room);
    }
    let file = Descriptor::open(path).map_err(|error| unreadable(&name, error))?;
    parse(BufReader::new(file), &name, reads, room)
}

/// Parses lines; `name` is their file's.
fn parse(
    mut lines: impl BufRead,
    name: &str,
    reads: ReadSource,
    room: usize,
) -> Result<Vec<S3Uri>> {
    let mut sources = Vec::new();
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let most = SOURCE_LINE_BYTES_MAX as u64 + 1;
        let read = lines.by_ref().take(most).read_until(b'\n', &mut line);
        if read.map_err(|error| unreadable(name, error))? == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        // The byte order mark of Windows editors.
        let text = text.strip_prefix("\u{feff}".as_bytes()).filter(|_| number == 1).unwrap_or(text);
        let at = |error: Error| error.within(format!("{name}, line {number}"));
        let refuse = |why: String| Err(at(Error::new(ErrorKind::Usage, why)));
        if line.len() > SOURCE_LINE_BYTES_MAX {
            return refuse(format!("it has more than {SOURCE_LINE_BYTES_MAX} bytes"));
        }
        let Ok(text) = std::str::from_utf8(text) else {
            return refuse("it is not UTF-8, but keys always are".to_owned());
        };
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        if sources.len() == room {
            return Err(at(too_many_sources()));
        }
        match text.starts_with('{') {
            true => sources.extend(read_listed(text).map_err(at)?),
            false => sources.push(reads(text).map_err(at)?),
        }
    }
    Ok(sources)
}

/// A line of `ls --json`, in which a key has every character.
#[derive(Deserialize)]
struct ListingLine {
    kind: String,
    #[serde(default)]
    bucket: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    error: String,
}

/// The source that a line of `ls --json` lists; `None` for its total.
///
/// # Errors
/// [`ErrorKind::Usage`] if it is none, or says that the listing failed: others are missing then.
fn read_listed(line: &str) -> Result<Option<S3Uri>> {
    let refuse = |why: &str| Err(Error::new(ErrorKind::Usage, why));
    let Ok(ListingLine { kind, bucket, key, error }) = serde_json::from_str(line) else {
        return refuse("it begins with {, but is no line of ls --json");
    };
    let address = format!("{SCHEME}{bucket}/{key}");
    match kind.as_str() {
        // The mark of a folder alone, without what is below it.
        "object" if key.ends_with('/') => {
            let name = key.trim_end_matches('/').rfind('/').map_or(0, |at| at + 1);
            S3Uri::parse_exact(&address, key.len() - name).map(Some)
        }
        "object" if !key.is_empty() => S3Uri::parse_raw(&address).map(Some),
        "folder" if key.ends_with('/') => S3Uri::parse_raw(&address).map(Some),
        "object" | "folder" => refuse("it lists no key"),
        "summary" => Ok(None),
        "error" => refuse(&format!("the listing failed: {}", shown(&error))),
        _ => refuse(&format!("'{}' is no kind of source", shown(&kind))),
    }
}

/// The rest of the selection, for a walk.
#[derive(Debug)]
pub(crate) struct Narrowed {
    pub(crate) filter: Filter,
    pub(crate) shard: Shard,
}

/// Adds the manifest's objects, if there is one. Filter and shard select from them before any
/// request: objects of a shard are counted in the order of the list.
pub(crate) async fn add_manifest(
    control: &Control,
    sources: &mut Vec<S3Uri>,
    selection: &SelectionArgs,
    Narrowed { filter, shard }: Narrowed,
    board: &Arc<Board>,
) -> Result<Narrowed> {
    let layout = selection.manifest_layout;
    let (name, objects) = match &selection.manifest {
        None => return Ok(Narrowed { filter, shard }),
        Some(ManifestPlace::S3(bucket, key)) => {
            let objects = control.manifest(bucket, key, layout).await?;
            (format!("s3://{bucket}/{}", shown(key)), objects)
        }
        Some(ManifestPlace::File(path)) => {
            let (name, path) = (path.display().to_string(), path.clone());
            let _noted = note_read(&path, board);
            let bytes = blocking(move || read_manifest(&path)).await?;
            let objects = manifest::parse(&bytes, layout, MANIFEST_OBJECTS_MAX);
            let objects = objects.map_err(|error| error.within(&name))?;
            (name, objects)
        }
    };
    if objects.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, format!("{name}: it lists no object")));
    }
    *sources =
        manifest::choose(objects, &filter, shard).map_err(|all| leaves_nothing(&name, all))?;
    Ok(Narrowed { filter: Filter::default(), shard: Shard::WHOLE })
}

fn read_manifest(path: &Path) -> Result<Vec<u8>> {
    let name = path.display();
    let mut bytes = Vec::new();
    let most = MANIFEST_BYTES_MAX as u64 + 1;
    let read = Descriptor::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map_err(|error| {
        Error::new(ErrorKind::Usage, format!("cannot read {name}: {error}"))
            .advise("give --manifest a file or s3://BUCKET/KEY")
            .caused_by(error)
    })?;
    if bytes.len() > MANIFEST_BYTES_MAX {
        let message = format!("{name}: a manifest has at most {MANIFEST_BYTES_MAX} bytes");
        return Err(
            Error::new(ErrorKind::Usage, message).advise("split it, or give a common prefix")
        );
    }
    Ok(bytes)
}

fn unreadable(name: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot read {name}: {error}"))
        .advise("give --files-from a file with one source per line, or - for standard input")
        .caused_by(error)
}

/// A file, read by its descriptor.
struct Descriptor(OwnedFd);

impl Descriptor {
    fn open(path: &Path) -> io::Result<Self> {
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(Self(opened?))
    }
}

impl Read for Descriptor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8], reads: ReadSource) -> Result<Vec<String>> {
        let sources = parse(text, "list", reads, 3)?;
        Ok(sources.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn lines() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(parsed(text.as_bytes(), S3Uri::parse).expect(text), expected, "{text:?}");
        };
        check("", &[]);
        check("\n\n  \n# s3://bkt/no\n", &[]);
        check("s3://bkt/a\ns3://bkt/b/\n", &["s3://bkt/a", "s3://bkt/b/"]);
        check("s3://bkt/a\r\n\r\ns3://bkt/b #\r\n", &["s3://bkt/a", "s3://bkt/b #"]);
        check("\u{feff}s3://bkt/a\ns3://bkt/no-end", &["s3://bkt/a", "s3://bkt/no-end"]);
        check(&format!("# {}\n", "x".repeat(SOURCE_LINE_BYTES_MAX - 3)), &[]);
        let parse =
            |reads| parse(&b"s3://bkt/[a]\n"[..], "list", reads, 1).expect("one").remove(0).key;
        assert!(matches!(parse(S3Uri::parse), KeyPattern::Glob(_)));
        assert!(matches!(parse(S3Uri::parse_raw), KeyPattern::Key(_)));
        assert!(matches!(parse(S3Uri::parse_prefix), KeyPattern::Prefix(_)));
    }

    #[test]
    fn urls_of_one_name_are_refused_before_anything_is_requested() {
        let sources = |urls: &[&str]| -> Vec<S3Uri> {
            urls.iter().map(|url| S3Uri::parse_or_url(url).expect(url)).collect()
        };
        let error = require_names_apart(&sources(&[
            "s3://bkt/x/f",
            "https://a/f?sig=hunter2",
            "https://a/g",
            "https://b/x/f?sig=hunter3",
        ]));
        let error = error.expect_err("one name").to_string();
        assert!(error.starts_with("https://a/f?... and https://b/x/f?...: both have"), "{error}");
        assert!(error.contains("the name 'f'") && !error.contains("hunter"), "{error}");
        let same = require_names_apart(&sources(&["https://a/f?id=1", "https://a/f?id=2"]));
        same.expect_err("two objects of one path");
        require_names_apart(&sources(&["https://a/f?x", "https://a/f?x"])).expect("one object");
        require_names_apart(&sources(&["https://a/f", "s3://bkt/f"])).expect("seen later");
    }

    /// Whatever characters a key has, it is that object and no other.
    #[test]
    fn lines_of_a_listing_have_every_key() {
        use crate::report::document::{ListedFolder, ListedLine};
        use crate::s3::Object;
        for key in ["a\nb", "d/\u{1b}[2J\r", "d/a*[b]\\ ", "\u{202e}gpj.exe", "#", "d/mark/"] {
            let object = Object { key: key.to_owned(), ..Object::default() };
            let text = ListedLine::new("bkt", &object).to_json() + "\n";
            let found = parse(text.as_bytes(), "list", S3Uri::parse, 3).expect(key).remove(0);
            match found.key {
                KeyPattern::Key(found) => assert_eq!(found, key),
                KeyPattern::Exact { key: found, path_start } => {
                    assert_eq!((found.as_str(), &found[..path_start]), (key, "d/"));
                }
                other => panic!("{key}: {other:?}"),
            }
        }
        let folder = ListedFolder::new("bkt", "d/a\n*/").to_json();
        let total = r#"{"kind":"summary","objects":1,"bytes":2}"#;
        let text = format!("{folder}\n{total}\n");
        let found = parse(text.as_bytes(), "list", S3Uri::parse, 3).expect("lines");
        assert_eq!(found.len(), 1);
        assert!(matches!(&found[0].key, KeyPattern::Folder(prefix) if prefix == "d/a\n*/"));
    }

    #[test]
    fn a_wrong_line_is_reported_with_its_number() {
        let check = |text: &[u8], expected: &str| {
            let error = parsed(text, S3Uri::parse).expect_err(expected);
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().starts_with(expected), "{error}");
        };
        check(b"# no\n\nbucket/a\n", "list, line 3: 'bucket/a' is not an S3 address: it does not");
        check(b"s3://bkt/\xff\n", "list, line 1: it is not UTF-8");
        check(b"{\"kind\":1}\n", "list, line 1: it begins with {, but is no line of ls --json");
        check(br#"{"kind":"x"}"#, "list, line 1: 'x' is no kind of source");
        check(br#"{"kind":"object","bucket":"b"}"#, "list, line 1: it lists no key");
        let failed = br#"{"kind":"error","error":"no such bucket"}"#;
        check(failed, "list, line 1: the listing failed: no such bucket");
        check(b"s3://bkt/a \n", "list, line 1: 's3://bkt/a ' is not an S3 address");
        let four = b"s3://bkt/1\ns3://bkt/2\ns3://bkt/3\n#\ns3://bkt/4\n";
        check(four, "list, line 5: more than 1000000 sources");
        let long = format!("\ns3://bkt/{}\n", "k".repeat(SOURCE_LINE_BYTES_MAX));
        check(long.as_bytes(), "list, line 2: it has more than 8192 bytes");
    }
}
