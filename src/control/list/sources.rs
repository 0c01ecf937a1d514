//! Resolves an address to a source: an object, a folder, a glob or a prefix, if it exists.
//!
//! A missing key is reported with the nearest names. The pages of a source are read in
//! [`super::walk`].

use std::rc::Rc;
use std::sync::Arc;

use super::ahead::ResolveAhead;
use crate::control::Control;
use crate::control::limits::{LISTED_SOURCES_MAX, NEAR_MATCHES_MAX, SOURCES_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::grants::GrantTarget;
use crate::s3::list::{ListQuery, Page};
use crate::s3::uri::{KEY_BYTES_MAX, KeyGlob, KeyPattern, S3Uri, shown};
use crate::s3::{Endpoint, Object};

/// An existing source.
#[derive(Debug)]
pub struct Source {
    /// The address as given.
    pub uri: S3Uri,
    /// The endpoint of its bucket.
    pub endpoint: Arc<Endpoint>,
    /// Its kind.
    pub found: SourceKind,
    /// The first page of its listing, from resolving it; the walk does not request it again.
    pub(crate) first_page: Option<Page>,
}

impl Source {
    /// True if the address reads as a glob, but an object or a folder has exactly this name.
    #[must_use]
    pub const fn is_literal(&self) -> bool {
        matches!(self.uri.key, KeyPattern::Glob(_)) && !matches!(self.found, SourceKind::Glob(_))
    }

    /// True if it is one object, which is not listed.
    #[must_use]
    pub const fn is_object(&self) -> bool {
        matches!(self.found, SourceKind::Object(_))
    }
}

/// The meaning of an address.
#[derive(Debug)]
pub enum SourceKind {
    /// One object.
    Object(Object),
    /// All objects with this prefix: empty, or with a slash at its end.
    Folder {
        /// The prefix of every key.
        prefix: String,
    },
    /// All objects that match. If there are any is known at the end of the walk.
    Glob(KeyGlob),
    /// All objects with this prefix, with or without a following slash. In directory buckets the
    /// end of the walk shows if there are any.
    Prefix {
        /// The prefix of every key; may be empty.
        prefix: String,
    },
}

/// An address without object, folder or match, in an existing bucket.
#[derive(Debug)]
pub struct Missing {
    /// The address as given.
    pub uri: S3Uri,
    /// The endpoint of its bucket.
    pub endpoint: Arc<Endpoint>,
    /// The error to report.
    pub error: Error,
}

impl Missing {
    /// Its name in a report: a key, or the typed text.
    #[must_use]
    pub fn key(&self) -> &str {
        match &self.uri.key {
            KeyPattern::Key(key) => key,
            _ => self.uri.literal_key(),
        }
    }
}

/// Why an address has no source.
#[derive(Debug)]
pub(in crate::control) enum Unresolved {
    /// Nothing exists there.
    Missing(Box<Missing>),
    /// It cannot be determined.
    Failed(Error),
}

impl From<Error> for Unresolved {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Unresolved> for Error {
    fn from(unresolved: Unresolved) -> Self {
        match unresolved {
            Unresolved::Missing(missing) => missing.error,
            Unresolved::Failed(error) => error,
        }
    }
}

/// The kind of a source, and the first page of the listing that showed it.
type Found = (SourceKind, Option<Page>);

/// How deep a folder is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Everything.
    All,
    /// One level: its objects, and the names of its subfolders.
    Level,
    /// Only the first key, to see if there is any.
    First,
}

impl Depth {
    /// The query that shows if a prefix has keys.
    fn query(self, prefix: &str) -> ListQuery {
        let by_folder = self == Self::Level;
        let keys_max = (self == Self::First).then_some(1);
        ListQuery { by_folder, keys_max, ..ListQuery::new(prefix) }
    }
}

/// The error for more sources than [`SOURCES_MAX`].
#[must_use]
pub fn too_many_sources() -> Error {
    Error::new(ErrorKind::Usage, format!("more than {SOURCES_MAX} sources are given"))
        .advise("give a common folder and --include instead")
}

impl Control {
    /// Resolves all of these addresses, several at once.
    ///
    /// # Errors
    /// That of the first, in their order, which is missing or cannot be determined: the later ones
    /// are cancelled; and [`ErrorKind::Usage`] if there are too many.
    pub async fn resolve_all(self: &Rc<Self>, uris: &[S3Uri]) -> Result<Vec<Source>> {
        let (mut sources, mut listed) = (Vec::with_capacity(uris.len()), 0);
        let mut ahead = self.ahead(uris)?;
        while let Some(source) = ahead.next().await? {
            count_listed(&mut listed, &source)?;
            sources.push(source);
        }
        Ok(sources)
    }

    /// Resolves all of these addresses; returns missing ones separately.
    ///
    /// # Errors
    /// Those of [`Control::resolve_all`], except for missing sources.
    pub async fn resolve_there(
        self: &Rc<Self>,
        uris: &[S3Uri],
    ) -> Result<(Vec<Source>, Vec<Missing>)> {
        let (mut sources, mut absent) = (Vec::with_capacity(uris.len()), Vec::new());
        let mut listed = 0;
        let mut ahead = self.ahead(uris)?;
        while let Some(found) = ahead.next_or_missing().await? {
            let source = match found {
                Ok(source) => source,
                Err(missing) => {
                    absent.push(*missing);
                    continue;
                }
            };
            count_listed(&mut listed, &source)?;
            sources.push(source);
        }
        Ok((sources, absent))
    }

    fn ahead(self: &Rc<Self>, uris: &[S3Uri]) -> Result<ResolveAhead> {
        if uris.len() > SOURCES_MAX {
            return Err(too_many_sources());
        }
        Ok(ResolveAhead::new(Rc::clone(self), uris.to_vec(), Depth::All))
    }

    /// Resolves the address; a missing one is an error with near matches.
    pub async fn resolve(&self, uri: &S3Uri) -> Result<Source> {
        self.resolve_to(uri, Depth::All, true).await.map_err(Error::from)
    }

    /// Resolves the address, with the first page of a folder of this depth. `helps`: look up near
    /// matches of a missing name.
    pub(super) async fn resolve_to(
        &self,
        uri: &S3Uri,
        depth: Depth,
        helps: bool,
    ) -> Result<Source, Unresolved> {
        if let Some(url) = &uri.url {
            return self.resolve_url(uri, url).await;
        }
        let bucket = uri.bucket.as_str();
        let (found, first_page) = match &uri.key {
            KeyPattern::Bucket => self.folder(uri, "", depth, helps).await?,
            KeyPattern::Folder(prefix) => self.folder(uri, prefix, depth, helps).await?,
            KeyPattern::Glob(glob) => self.glob_or_literal(uri, glob, depth).await?,
            KeyPattern::Key(key) => match self.head_key(uri, key).await {
                Ok(Some(object)) => (SourceKind::Object(object), None),
                Ok(None) if !uri.version_id.is_empty() => {
                    let message = format!("{uri}: there is no version {}", shown(&uri.version_id));
                    return Err(Error::new(ErrorKind::NotFound, message)
                        .advise("check the key and --version-id")
                        .into());
                }
                Ok(None) => match self.folder(uri, &format!("{key}/"), depth, helps).await {
                    // An access grant of the object alone is none of a folder with its name.
                    Err(Unresolved::Failed(error)) if self.may_lack_grant(&error) => {
                        return Err(self.missing(uri, key, false).await?);
                    }
                    outcome => outcome?,
                },
                // An access grant of a folder is none of an object with its name.
                Err(refused)
                    if self.may_lack_grant(&refused)
                        && uri.version_id.is_empty()
                        && !self.has_grant(bucket, GrantTarget::Object(key)) =>
                {
                    let folder = self.folder(uri, &format!("{key}/"), depth, false).await;
                    folder.map_err(|_| refused)?
                }
                Err(error) => return Err(error.into()),
            },
            KeyPattern::Prefix(prefix) => self.prefix(uri, prefix, helps).await?,
            KeyPattern::Exact { key, .. } => match self.head(bucket, key, "").await? {
                Some(object) => (SourceKind::Object(object), None),
                None => return Err(self.missing(uri, key, helps).await?),
            },
        };
        // The request may have found another region.
        let about = match &found {
            SourceKind::Object(object) => GrantTarget::Object(&object.key),
            SourceKind::Folder { prefix } | SourceKind::Prefix { prefix } => {
                GrantTarget::Prefix(prefix)
            }
            SourceKind::Glob(glob) => GrantTarget::Prefix(&glob.list_prefix),
        };
        let endpoint = self.endpoint(bucket, about).await?;
        Ok(Source { uri: uri.clone(), endpoint, found, first_page })
    }

    async fn folder(
        &self,
        uri: &S3Uri,
        prefix: &str,
        depth: Depth,
        helps: bool,
    ) -> Result<Found, Unresolved> {
        let page = self.list_page(&uri.bucket, &depth.query(prefix)).await?;
        if page.has_nothing() {
            return Err(self.missing(uri, prefix, helps).await?);
        }
        Ok((SourceKind::Folder { prefix: prefix.to_owned() }, Some(page)))
    }

    async fn prefix(&self, uri: &S3Uri, prefix: &str, helps: bool) -> Result<Found, Unresolved> {
        let endpoint = self.endpoint(&uri.bucket, GrantTarget::Prefix(prefix)).await?;
        let listed = listed_prefix(prefix, &endpoint);
        let page = self.list_page(&uri.bucket, &ListQuery::new(listed)).await?;
        if page.has_nothing() {
            return Err(self.missing(uri, prefix, helps).await?);
        }
        Ok((SourceKind::Prefix { prefix: prefix.to_owned() }, Some(page)))
    }

    /// The error that nothing exists at this address.
    async fn missing(&self, uri: &S3Uri, prefix: &str, helps: bool) -> Result<Unresolved> {
        let error = self.nothing_there(uri, prefix, helps).await;
        let endpoint = match self.endpoint(&uri.bucket, GrantTarget::Prefix(prefix)).await {
            Err(refused) if self.may_lack_grant(&refused) => {
                self.endpoint(&uri.bucket, GrantTarget::Object(prefix)).await?
            }
            outcome => outcome?,
        };
        Ok(Unresolved::Missing(Box::new(Missing { uri: uri.clone(), endpoint, error })))
    }

    /// The object of this key, else of the key exactly as typed: with its backslashes.
    async fn head_key(&self, uri: &S3Uri, key: &str) -> Result<Option<Object>> {
        let found = self.head(&uri.bucket, key, &uri.version_id).await?;
        let typed = uri.literal_key();
        if found.is_some() || typed == key {
            return Ok(found);
        }
        self.head(&uri.bucket, typed, &uri.version_id).await
    }

    /// The meaning of a glob: an object or a folder of exactly this name has precedence. The glob's
    /// listing mostly shows if there is one.
    async fn glob_or_literal(&self, uri: &S3Uri, glob: &KeyGlob, depth: Depth) -> Result<Found> {
        let (bucket, key) = (uri.bucket.as_str(), uri.literal_key());
        let listing = async {
            let endpoint = self.endpoint(bucket, GrantTarget::Prefix(&glob.list_prefix)).await?;
            let prefix = listed(glob, &endpoint);
            let page = self.list_page(bucket, &ListQuery::new(prefix)).await?;
            Ok::<_, Error>((endpoint, prefix, page))
        };
        let (endpoint, prefix, page) = match listing.await {
            Ok(listing) => listing,
            // Without permission to list, the object may still be readable.
            Err(refused) if refused.kind() == ErrorKind::Access && !key.ends_with('/') => {
                return match self.head(bucket, key, "").await {
                    Ok(Some(object)) => Ok((SourceKind::Object(object), None)),
                    _ => Err(refused),
                };
            }
            Err(error) => return Err(error),
        };
        // With a backslash in the text, the glob was meant.
        let may_be = key.starts_with(prefix) && key.len() <= KEY_BYTES_MAX;
        if !may_be || page.proves_absence(key, endpoint.is_directory()) {
            return Ok((SourceKind::Glob(glob.clone()), Some(page)));
        }
        if key.ends_with('/') {
            let below = self.list_page(bucket, &depth.query(key)).await?;
            if !below.has_nothing() {
                return Ok((SourceKind::Folder { prefix: key.to_owned() }, Some(below)));
            }
        } else {
            match self.head(bucket, key, "").await {
                Ok(Some(object)) => return Ok((SourceKind::Object(object), None)),
                Ok(None) => {}
                // It could not be fetched.
                Err(refused) if refused.kind() == ErrorKind::Access => {}
                Err(error) => return Err(error),
            }
        }
        Ok((SourceKind::Glob(glob.clone()), Some(page)))
    }

    async fn nothing_there(&self, uri: &S3Uri, prefix: &str, helps: bool) -> Error {
        let nothing = |message: String| Error::new(ErrorKind::NotFound, message);
        let message = match (&uri.key, &uri.not_a_glob) {
            (KeyPattern::Bucket, _) => return nothing(format!("{uri}: the bucket is empty")),
            (KeyPattern::Prefix(_), _) if prefix.is_empty() => {
                return nothing(format!("{uri}: the bucket is empty"));
            }
            (KeyPattern::Prefix(_), _) => format!("{uri}: no key begins with this prefix"),
            (KeyPattern::Exact { .. }, _) => format!("{uri}: there is no object with this key"),
            (KeyPattern::Key(_), None) => {
                format!("{uri}: there is no object with this key and no such folder")
            }
            (_, None) => format!("{uri}: there is nothing in this folder"),
            (_, Some(why)) => {
                let message = format!("{uri}: there is no object with this key");
                return nothing(message).advise(format!("as a glob it is invalid: {why}"));
            }
        };
        if !helps {
            return nothing(message);
        }
        // This is optional: if it fails, the error has no near matches.
        let near = self.near_matches(&uri.bucket, prefix.trim_end_matches('/')).await;
        match near.unwrap_or_default().as_slice() {
            [] => nothing(message).advise("check the bucket and the name"),
            near => {
                let near: Vec<_> = near
                    .iter()
                    .map(|near| format!("s3://{}/{}", uri.bucket, shown(near)))
                    .collect();
                nothing(message).advise(format!("did you mean {}?", near.join(" or ")))
            }
        }
    }

    /// The names beside the key that are most similar: first among those with a common prefix.
    async fn near_matches(&self, bucket: &str, key: &str) -> Result<Vec<String>> {
        // Of what is beside the source there may be no access grant.
        if self.grants.is_some() {
            return Ok(Vec::new());
        }
        let folder_end = key.rfind('/').map_or(0, |at| at + 1);
        let (folder, name) = key.split_at(folder_end);
        let half = name.chars().count() / 2;
        let start: String = name.chars().take(half).collect();
        let mut prefixes = vec![format!("{folder}{start}"), folder.to_owned()];
        if Self::is_directory(bucket) {
            prefixes.remove(0);
        }
        for prefix in prefixes {
            let query = ListQuery { by_folder: true, ..ListQuery::new(prefix) };
            let page = self.list_page(bucket, &query).await?;
            let names = page.objects.into_iter().map(|object| object.key).chain(page.folders);
            let near = closest(key, names);
            if !near.is_empty() {
                return Ok(near);
            }
        }
        Ok(Vec::new())
    }
}

/// Counts one more source; an error if too many of them are listed.
fn count_listed(listed: &mut usize, source: &Source) -> Result<()> {
    *listed += usize::from(!source.is_object());
    if *listed <= LISTED_SOURCES_MAX {
        return Ok(());
    }
    let message = format!("more than {LISTED_SOURCES_MAX} folders and globs are given");
    Err(Error::new(ErrorKind::Usage, message).advise("give a common folder and --include instead"))
}

/// The listed prefix of a glob. Directory buckets accept only a folder's prefix.
pub(super) fn listed<'a>(glob: &'a KeyGlob, endpoint: &Endpoint) -> &'a str {
    if endpoint.is_directory() { &glob.folder } else { &glob.list_prefix }
}

/// The listed part of a literal prefix: all of it except in directory buckets.
#[must_use]
pub fn listed_prefix<'a>(prefix: &'a str, endpoint: &Endpoint) -> &'a str {
    match endpoint.is_directory() {
        true => &prefix[..prefix.rfind('/').map_or(0, |at| at + 1)],
        false => prefix,
    }
}

/// Up to three names, nearest first; none that differs too much.
fn closest(key: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let distance_max = key.chars().count().div_ceil(3).clamp(2, 10);
    let mut near: Vec<(usize, String)> = names
        .map(|name| (strsim::damerau_levenshtein(key, name.trim_end_matches('/')), name))
        .filter(|(distance, name)| {
            *distance <= distance_max || name.starts_with(key) && !key.ends_with('/')
        })
        .collect();
    near.sort();
    near.into_iter().map(|(_, name)| name).take(NEAR_MATCHES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::loopback::{Reply, Server, control, run};

    /// A bucket of these keys; answers HEAD and one page of LIST.
    fn bucket(keys: &'static [&'static str]) -> Server {
        Server::start(move |head| {
            let target = head.split(' ').nth(1).unwrap_or("");
            let Some((_, query)) = target.split_once('?') else {
                let key = target.trim_start_matches("/bkt/");
                let there = keys.contains(&key);
                return Reply::new(if there { 200 } else { 404 }, "").header("Content-Length", "3");
            };
            let value = |name: &str| {
                let pair = query.split('&').find_map(|pair| pair.strip_prefix(name));
                pair.unwrap_or("").replace("%2F", "/")
            };
            let prefix = value("prefix=");
            let below = keys.iter().filter(|key| key.starts_with(&prefix));
            if value("delimiter=").is_empty() {
                let objects: Vec<_> = below.map(|key| (*key, 3)).collect();
                return Reply::new(200, Server::page(&objects, None));
            }
            let mut folders: Vec<_> = below
                .map(|key| {
                    key[prefix.len()..].find('/').map_or(*key, |at| &key[..=prefix.len() + at])
                })
                .collect();
            folders.dedup();
            Reply::new(200, Server::folders(&folders))
        })
    }

    const KEYS: &[&str] = &["eval/a", "models/x.bin", "train/a", "train/b/c", "train2/a"];

    fn resolved(server: &Server, text: &str) -> Result<Source> {
        let uri = S3Uri::parse(text).expect("a good address");
        run(async { control(server).await.resolve(&uri).await })
    }

    #[test]
    fn addresses_are_found_out() {
        let server = bucket(KEYS);
        let check = |text: &str, expected: &str| {
            let source = resolved(&server, text).expect("it is there");
            let found = match source.found {
                SourceKind::Object(object) => {
                    format!("object {} {}", object.key, object.size_bytes)
                }
                SourceKind::Folder { prefix } => format!("folder {prefix}"),
                SourceKind::Glob(glob) => format!("glob {}", glob.list_prefix),
                SourceKind::Prefix { prefix } => format!("prefix {prefix}"),
            };
            assert_eq!(found, expected, "{text}");
            assert_eq!(source.endpoint.bucket, "bkt");
        };
        check("s3://bkt", "folder ");
        check("s3://bkt/train/", "folder train/");
        check("s3://bkt/train", "folder train/");
        check("s3://bkt/train/a", "object train/a 3");
        check("s3://bkt/train/b", "folder train/b/");
        check("s3://bkt/train/*", "glob train/");
    }

    #[test]
    fn what_is_not_there_has_near_matches() {
        let server = bucket(KEYS);
        let check = |text: &str, expected: &str| {
            let error = resolved(&server, text).expect_err("it is not there");
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains(expected), "{error}");
        };
        check(
            "s3://bkt/trian",
            "no such folder; did you mean s3://bkt/train/ or s3://bkt/train2/?",
        );
        check("s3://bkt/train3/", "nothing in this folder; did you mean s3://bkt/train");
        check("s3://bkt/models/y.bin", "did you mean s3://bkt/models/x.bin?");
        check("s3://bkt/nothing/like/it", "check the bucket and the name");
        let empty = bucket(&[]);
        let error = resolved(&empty, "s3://bkt/").expect_err("nothing");
        assert_eq!(error.to_string(), "s3://bkt/: the bucket is empty");
    }

    #[test]
    fn a_version_that_is_not_there_is_no_folder() {
        let server = Server::start(|_| Reply::new(404, ""));
        let check = |text: &str| {
            let uri = S3Uri::parse(text).and_then(|uri| uri.with_version("V1")).expect("an object");
            run(async { control(&server).await.resolve(&uri).await })
        };
        let error = check("s3://bkt/train").expect_err("a folder has no version");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("there is no version V1"), "{error}");
        assert!(server.seen().iter().all(|head| !head.contains("list-type")));
    }

    #[test]
    fn refusals_are_not_mistaken_for_absence() {
        let body = "<Error><Code>AccessDenied</Code><RequestId>R1</RequestId></Error>";
        let server = Server::start(move |head| {
            Reply::new(403, if head.starts_with("HEAD") { "" } else { body })
        });
        for text in ["s3://bkt/key", "s3://bkt/folder/", "s3://bkt/*", "s3://bkt"] {
            let error = resolved(&server, text).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Access, "{error}");
            assert!(error.to_string().contains("request id R1"), "{error}");
        }
    }
}
