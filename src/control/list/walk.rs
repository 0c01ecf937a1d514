//! The walk: every object of every source with its path at the destination, page by page.
//!
//! Several sources are merged by path, so that two objects of one file meet; the next pages of each
//! are fetched while the current one is used (`pages`). Links and files in the way at the
//! destination are the sink's matter.

use std::rc::Rc;
use std::sync::Arc;

use super::pages::ListingPages;
use super::sources::{Missing, Source, SourceKind, listed, listed_prefix, too_many_sources};
use crate::control::Control;
use crate::control::limits::{BATCH_ENTRIES_MAX, NAMESAKES_MAX, SOURCES_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::epoch::Shard;
use crate::plan::filter::Filter;
use crate::plan::merge::{Merge, PathGuard};
use crate::plan::path::{PathProblem, RelativePath};
use crate::plan::prefix::{Namesakes, is_beside_folder, is_folder, path_start};
use crate::s3::cycle::CycleGuard;
use crate::s3::list::ListQuery;
use crate::s3::uri::{KeyPattern, S3Uri, shown};
use crate::s3::{Endpoint, Object, is_folder_mark};

/// One object of the run.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Index of its source.
    pub source: usize,
    /// The endpoint of its bucket.
    pub endpoint: Arc<Endpoint>,
    /// The object.
    pub object: Object,
    /// Its path below the destination, or why it has none.
    pub path: Result<RelativePath, PathProblem>,
    /// An empty object that represents a folder: its key ends in a slash.
    pub folder: bool,
}

impl Entry {
    /// True if it only marks a folder, and has no bytes.
    #[must_use]
    pub fn is_mark(&self) -> bool {
        is_folder_mark(&self.object.key, self.object.size_bytes)
    }
}

/// A stream of entries.
///
/// Sources that are literal prefixes or exact keys are treated as SageMaker treats those of a
/// channel: folder markers are no objects, so shards do not count them, and every shard gets them.
#[derive(Debug)]
pub struct Walk {
    control: Rc<Control>,
    filter: Filter,
    /// All sources are such.
    is_channel: bool,
    /// Paths are not needed: exact keys come in the order of their sources.
    is_for_objects: bool,
    drops_marks: bool,
    /// Its folder below the destination.
    under: Option<String>,
    /// Objects of the sources so far, and objects that the filter left out.
    seen: u64,
    left_out: u64,
    feeds: Vec<SourceListing>,
    /// Feeds whose next object is not in `merge` yet.
    pending: Vec<usize>,
    /// Each object, with its path if the order is not by path.
    merge: Merge<(Option<String>, Object)>,
    guard: PathGuard,
    /// The part of the entries to return, and the number of entries so far.
    shard: Shard,
    place: u64,
    /// Missing sources, if the walk continues past them; `None` if a missing source ends the walk.
    missing: Option<Vec<Missing>>,
    /// The filter may leave nothing.
    may_be_empty: bool,
    /// Objects in several sources are returned once.
    once: bool,
    /// The first object with the last path, while needed: its source, and the object.
    last: Option<(usize, String, Object)>,
    /// Objects that were not repeated.
    repeated: u64,
    /// Entries not returned yet; stored here so that a dropped future loses none.
    batch: Vec<Entry>,
}

/// The error if filters leave none of this many objects or names.
#[must_use]
pub fn leaves_nothing(what: &str, seen: u64) -> Error {
    let message = format!("{what}: --include and --exclude leave none of {seen} objects");
    Error::new(ErrorKind::NotFound, message).advise(
        "the last filter typed that matches decides; '*' matches within one folder, '**' across \
         folders: see GLOBS in the help",
    )
}

/// The result of requesting the next page.
enum Turned {
    Page,
    /// There is no further page.
    End,
    /// There is no further page, and no key matched the glob.
    NoMatch,
}

/// The objects of one source.
#[derive(Debug)]
struct SourceListing {
    uri: S3Uri,
    endpoint: Arc<Endpoint>,
    found: SourceKind,
    current: std::vec::IntoIter<Object>,
    /// `None` after the last page.
    pages: Option<ListingPages>,
    /// True if any object matched the source, before the filter.
    any: bool,
    /// Of a literal prefix, once needed.
    namesakes: Option<Namesakes>,
}

impl Walk {
    /// A walk through these sources; must run inside a `LocalSet`, as tokio-uring provides.
    pub fn new(control: Rc<Control>, sources: Vec<Source>, filter: Filter) -> Result<Self> {
        if sources.len() > SOURCES_MAX {
            return Err(too_many_sources());
        }
        let is_unordered = |source: &&Source| source.endpoint.is_directory() && !source.is_object();
        if sources.len() > 1
            && let Some(source) = sources.iter().find(is_unordered)
        {
            let message = format!(
                "{}: a directory bucket is not listed in key order, so several sources cannot be \
                 compared",
                source.uri
            );
            return Err(Error::new(ErrorKind::Usage, message).advise("give one source at a time"));
        }
        let is_mixed = |source: &&Source| match &source.found {
            SourceKind::Prefix { prefix } => !is_folder(prefix),
            _ => false,
        };
        if sources.len() > 1
            && let Some(source) = sources.iter().find(is_mixed)
        {
            let message = format!(
                "{}: the paths of a prefix without a slash at its end are not in key order, so \
                 several sources cannot be compared",
                source.uri
            );
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("give one source at a time, or end the prefix in a slash"));
        }
        let is_of_channel = |source: &Source| {
            matches!(source.uri.key, KeyPattern::Prefix(_) | KeyPattern::Exact { .. })
        };
        let is_channel = sources.iter().all(is_of_channel);
        let listings = sources.iter().filter(|source| !source.is_object()).count();
        let feed = |source| SourceListing::new(&control, source, listings);
        let feeds: Vec<SourceListing> = sources.into_iter().map(feed).collect();
        Ok(Self {
            control,
            filter,
            is_channel,
            is_for_objects: false,
            drops_marks: false,
            under: None,
            seen: 0,
            left_out: 0,
            pending: (0..feeds.len()).collect(),
            feeds,
            merge: Merge::default(),
            guard: PathGuard::default(),
            shard: Shard::WHOLE,
            place: 0,
            missing: None,
            may_be_empty: false,
            once: false,
            last: None,
            repeated: 0,
            batch: Vec::new(),
        })
    }

    /// Continues past missing sources: these, and globs without a match.
    #[must_use]
    pub fn passing_over(self, missing: Vec<Missing>) -> Self {
        Self { missing: Some(missing), ..self }
    }

    /// Ends without an error if the filter leaves nothing, as for sources that are listed again.
    #[must_use]
    pub fn allowing_none(self) -> Self {
        Self { may_be_empty: true, ..self }
    }

    /// The missing sources since the last call.
    pub fn take_missing(&mut self) -> Vec<Missing> {
        self.missing.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns an object once, however many sources have it under one path.
    #[must_use]
    pub fn without_repeated(self) -> Self {
        Self { once: self.feeds.len() > 1, ..self }
    }

    /// A note about objects that were not repeated.
    #[must_use]
    pub fn repeated(&self) -> Option<String> {
        match self.repeated {
            0 => None,
            1 => Some("1 object is given more than once".to_owned()),
            count => Some(format!("{count} objects are given more than once")),
        }
    }

    /// True if another source had this object under this path.
    fn is_repeated(&mut self, source: usize, relative: &str, object: &Object) -> bool {
        if !self.once {
            return false;
        }
        match &self.last {
            Some((first, path, known)) if path == relative => {
                let bucket = |source: usize| &self.feeds[source].endpoint.bucket;
                *first != source
                    && bucket(*first) == bucket(source)
                    && (&known.key, &known.version_id) == (&object.key, &object.version_id)
            }
            _ => {
                self.last = Some((source, relative.to_owned(), object.clone()));
                false
            }
        }
    }

    /// Returns only this part of the entries: every N-th in their order, like `pipe`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if a source lists without order: parts of several runs would not be
    /// disjoint.
    pub fn sharded(self, shard: Shard) -> Result<Self> {
        self.require_order(shard)?;
        Ok(Self { shard, ..self })
    }

    /// Refuses parts of a source that lists without order.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`].
    pub(super) fn require_order(&self, shard: Shard) -> Result<()> {
        let is_unordered =
            |feed: &&SourceListing| feed.endpoint.is_directory() && feed.pages.is_some();
        match self.feeds.iter().find(is_unordered) {
            Some(feed) if shard != Shard::WHOLE => {
                let message = format!(
                    "{}: a directory bucket lists in no order, so it has no shards",
                    feed.uri
                );
                Err(Error::new(ErrorKind::Usage, message)
                    .advise("use inrush pipe --shard, which sorts the listing first"))
            }
            _ => Ok(()),
        }
    }

    /// For callers without paths: conflicts between paths are not checked, and exact keys come in
    /// the order of their sources, not of their paths.
    #[must_use]
    pub fn for_objects(self) -> Self {
        Self { is_for_objects: true, ..self }
    }

    /// For a stream: like [`Self::for_objects`], but without folder markers if the sources are
    /// those of a channel.
    #[must_use]
    pub fn for_stream(self) -> Self {
        Self { drops_marks: true, ..self.for_objects() }
    }

    /// Moves all paths into a folder of this name; none if it is empty.
    #[must_use]
    pub fn under(self, folder: &str) -> Self {
        Self { under: Some(folder.to_owned()).filter(|folder| !folder.is_empty()), ..self }
    }

    /// The next entries, at least one; `None` at the end.
    ///
    /// Cancel safe: no entry is lost. After an error the walk has ended.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<Entry>>> {
        loop {
            let complete = self.feed().await?;
            if complete
                && self.batch.len() < BATCH_ENTRIES_MAX
                && let Some((source, rank, (path, object))) = self.merge.pop()
            {
                self.pending.push(source);
                let relative = path.unwrap_or(rank);
                if self.is_repeated(source, &relative, &object) {
                    self.repeated += 1;
                    continue;
                }
                let entry = self.entry(source, &relative, object)?;
                if self.takes(&entry) {
                    self.batch.push(entry);
                }
                continue;
            }
            if self.batch.is_empty() {
                return self.filtered().map(|()| None);
            }
            return Ok(Some(std::mem::take(&mut self.batch)));
        }
    }

    /// True if the next entry is returned.
    fn takes(&mut self, entry: &Entry) -> bool {
        if self.is_channel && entry.is_mark() {
            return !self.drops_marks;
        }
        self.place += 1;
        self.shard.takes(self.place - 1)
    }

    /// Gets the next object of every feed that has none in the merge. False if that would wait
    /// although there are entries to return.
    async fn feed(&mut self) -> Result<bool> {
        while let Some(source) = self.pending.last().copied() {
            let feed = &mut self.feeds[source];
            if !self.is_for_objects && feed.needs_namesakes() {
                if !self.batch.is_empty() {
                    return Ok(false);
                }
                feed.find_namesakes(&self.control, &self.filter).await?;
            }
            let Some(object) = feed.current.next() else {
                if !self.batch.is_empty() && !feed.is_ready()? {
                    return Ok(false);
                }
                match feed.turn_page().await? {
                    Turned::Page => continue,
                    Turned::End => {}
                    Turned::NoMatch => {
                        let nothing = feed.nothing_matches();
                        let Some(missing) = &mut self.missing else { return Err(nothing.error) };
                        missing.push(nothing);
                    }
                }
                self.pending.pop();
                continue;
            };
            let Some(relative) = feed.relative(&object)? else { continue };
            self.seen += 1;
            if self.filter.takes(&relative) {
                self.pending.pop();
                // Of equal ranks the first source comes first.
                let by_source = self.is_for_objects && feed.is_exact();
                let (rank, path) = match by_source {
                    true => (String::new(), Some(relative)),
                    false => (relative, None),
                };
                self.merge.push(source, rank, (path, object));
            } else {
                self.left_out += 1;
            }
        }
        Ok(true)
    }

    /// Fails at the end of a walk if the filter left nothing: that is hardly ever intended.
    fn filtered(&self) -> Result<()> {
        if self.may_be_empty || self.left_out == 0 || self.left_out < self.seen {
            return Ok(());
        }
        let what = match self.feeds.as_slice() {
            [feed] => feed.uri.to_string(),
            _ => "the sources".to_owned(),
        };
        Err(leaves_nothing(&what, self.seen))
    }

    fn entry(&mut self, source: usize, relative: &str, object: Object) -> Result<Entry> {
        let folder = object.key.ends_with('/');
        let path = match &self.under {
            Some(under) => own_path(&format!("{under}/{relative}"), &object),
            None => own_path(relative, &object),
        };
        let feed = &self.feeds[source];
        if self.is_for_objects && feed.is_exact() {
            return Ok(Entry { source, endpoint: feed.endpoint.clone(), object, path, folder });
        }
        let path = match path {
            Ok(path) => {
                let disjoint = feed.check_namesakes(source, &object.key, relative);
                // Both checks see all paths.
                self.guard.check(source, relative).and(disjoint).map(|()| path)
            }
            problem => problem,
        };
        if !self.guard.is_sorted() && self.feeds.len() > 1 {
            let message = format!(
                "{}: the listing is not in order, so several sources cannot be compared with each \
                 other",
                feed.uri
            );
            return Err(
                Error::new(ErrorKind::Endpoint, message).advise("give one source at a time")
            );
        }
        Ok(Entry { source, endpoint: feed.endpoint.clone(), object, path, folder })
    }
}

/// The path of an object by itself; a folder's may end in a slash.
fn own_path(relative: &str, object: &Object) -> Result<RelativePath, PathProblem> {
    match object.key.ends_with('/') && object.size_bytes > 0 {
        true => Err(PathProblem::FolderWithBytes),
        false => RelativePath::parse(relative.strip_suffix('/').unwrap_or(relative)),
    }
}

impl SourceListing {
    fn new(control: &Rc<Control>, source: Source, listings: usize) -> Self {
        let (found, endpoint) = (source.found, source.endpoint);
        // Without a first page there is nothing, which `resolve` rejects.
        let page = source.first_page.unwrap_or_default();
        let pages_of = |prefix: &str| {
            Some(ListingPages::new(Rc::clone(control), &endpoint, prefix, page, listings))
        };
        // There may be very many single objects: they store no more than they need.
        let (current, pages) = match &found {
            SourceKind::Object(object) => (vec![object.clone()], None),
            SourceKind::Folder { prefix } => (Vec::new(), pages_of(prefix)),
            SourceKind::Glob(glob) => (Vec::new(), pages_of(listed(glob, &endpoint))),
            SourceKind::Prefix { prefix } => {
                (Vec::new(), pages_of(listed_prefix(prefix, &endpoint)))
            }
        };
        let current = current.into_iter();
        Self { uri: source.uri, endpoint, found, current, pages, any: false, namesakes: None }
    }

    /// True if it is one key of a list of keys.
    const fn is_exact(&self) -> bool {
        matches!(self.uri.key, KeyPattern::Exact { .. })
    }

    /// True if the next object is the first one beside the folder of a literal prefix.
    fn needs_namesakes(&self) -> bool {
        let SourceKind::Prefix { prefix } = &self.found else { return false };
        let next = self.current.as_slice().first();
        let is_beside = |object: &Object| {
            object.key.starts_with(prefix) && is_beside_folder(prefix, &object.key)
        };
        self.namesakes.is_none() && next.is_some_and(is_beside)
    }

    /// Lists the keys in the folder of a literal prefix that may conflict with keys beside it.
    async fn find_namesakes(&mut self, control: &Control, filter: &Filter) -> Result<()> {
        let SourceKind::Prefix { prefix } = &self.found else { return Ok(()) };
        let wanted = Namesakes::prefix(prefix);
        let bucket = &self.endpoint.bucket;
        let mut query = ListQuery::new(listed_prefix(&wanted, &self.endpoint));
        let (mut found, mut cycle) = (Namesakes::default(), CycleGuard::default());
        loop {
            let page = control.list_page(bucket, &query).await?;
            if let Some(token) = &page.next_token {
                let first = page.objects.first().map(|object| object.key.as_str());
                let followed = cycle.follow(first, token);
                followed.map_err(|error| error.within(format!("list {}", self.uri)))?;
            }
            for object in page.objects.iter().filter(|object| object.key.starts_with(&wanted)) {
                let relative = &object.key[path_start(prefix, &object.key)..];
                // An object with a problem of its own does not conflict.
                let path = own_path(relative, object);
                if path.is_ok() && filter.takes(relative) {
                    let count = found.insert(relative.to_owned());
                    if count > NAMESAKES_MAX {
                        return Err(self.too_many_namesakes(&wanted));
                    }
                }
            }
            query.token = page.next_token;
            if query.token.is_none() {
                self.namesakes = Some(found);
                return Ok(());
            }
        }
    }

    fn too_many_namesakes(&self, wanted: &str) -> Error {
        let message = format!(
            "{}: more than {NAMESAKES_MAX} keys begin with '{}', too many to be compared with \
             those beside that folder",
            self.uri,
            shown(wanted)
        );
        Error::new(ErrorKind::Usage, message).advise("end the prefix in a slash")
    }

    /// Checks if a path beside the folder of a literal prefix conflicts with one in it.
    fn check_namesakes(&self, source: usize, key: &str, relative: &str) -> Result<(), PathProblem> {
        match (&self.found, &self.namesakes) {
            (SourceKind::Prefix { prefix }, Some(namesakes)) if is_beside_folder(prefix, key) => {
                namesakes.check(source, relative)
            }
            _ => Ok(()),
        }
    }

    /// True if the next page is available without waiting.
    fn is_ready(&mut self) -> Result<bool> {
        self.pages.as_mut().map_or(Ok(true), ListingPages::is_ready)
    }

    /// Goes to the next page.
    async fn turn_page(&mut self) -> Result<Turned> {
        let Some(pages) = &mut self.pages else { return Ok(Turned::End) };
        if let Some(objects) = pages.next().await? {
            self.current = objects.into_iter();
            return Ok(Turned::Page);
        }
        self.pages = None;
        let may_match = matches!(self.found, SourceKind::Glob(_) | SourceKind::Prefix { .. });
        Ok(if may_match && !self.any { Turned::NoMatch } else { Turned::End })
    }

    /// The error for a glob without a match, which is not the name of an object either; or for a
    /// prefix.
    fn nothing_matches(&self) -> Missing {
        let nothing = |why: &str| Error::new(ErrorKind::NotFound, format!("{}: {why}", self.uri));
        let error = match &self.found {
            SourceKind::Prefix { .. } => nothing("no key begins with this prefix"),
            _ => nothing("nothing matches")
                .advise("'*' matches within one folder, '**' across folders"),
        };
        Missing { uri: self.uri.clone(), endpoint: self.endpoint.clone(), error }
    }

    /// The object's path below the destination, a folder's with its slash; `None` if it does not
    /// match, or is the marker of the source's own folder.
    fn relative(&mut self, object: &Object) -> Result<Option<String>> {
        let key = object.key.as_str();
        let (prefix, start) = match &self.found {
            SourceKind::Object(_) => match &self.uri.key {
                KeyPattern::Exact { path_start, .. } => ("", *path_start),
                _ => ("", key.rfind('/').map_or(0, |at| at + 1)),
            },
            SourceKind::Folder { prefix } => (prefix.as_str(), prefix.len()),
            SourceKind::Glob(glob) => (listed(glob, &self.endpoint), glob.folder.len()),
            SourceKind::Prefix { prefix } if key.starts_with(prefix) => {
                (prefix.as_str(), path_start(prefix, key))
            }
            // A directory bucket lists the folder of the prefix.
            SourceKind::Prefix { prefix } => (listed_prefix(prefix, &self.endpoint), key.len()),
        };
        if !key.starts_with(prefix) {
            let message = format!(
                "list {}: the server returned '{}', which was not requested",
                self.uri,
                shown(key)
            );
            return Err(Error::new(ErrorKind::Endpoint, message));
        }
        let is_wanted = match &self.found {
            SourceKind::Glob(glob) => glob.matches(key),
            SourceKind::Prefix { prefix } => key.starts_with(prefix),
            SourceKind::Object(_) | SourceKind::Folder { .. } => true,
        };
        if !is_wanted {
            return Ok(None);
        }
        self.any = true;
        let relative = &key[start..];
        let own_mark = relative.is_empty() && object.size_bytes == 0;
        Ok((!own_mark).then(|| relative.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::loopback::{Reply, Server, control, run};
    use crate::plan::filter::Rule;

    /// Serves pages of two keys each, with tokens that say where to continue.
    fn bucket(keys: &'static [(&'static str, u64)]) -> Server {
        bucket_that(keys, StartAfter::Known)
    }

    /// The server's handling of `start-after`.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum StartAfter {
        Known,
        /// It begins at the first key whatever the parameter.
        Ignored,
        Refused,
    }

    /// A bucket with this handling of `start-after`.
    fn bucket_that(keys: &'static [(&'static str, u64)], start_after: StartAfter) -> Server {
        Server::start(move |head| {
            let target = head.split(' ').nth(1).unwrap_or("");
            let Some((_, query)) = target.split_once('?') else { return Reply::new(404, "") };
            let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
            let prefix = value("prefix=").unwrap_or("").replace("%2F", "/");
            let below: Vec<_> =
                keys.iter().copied().filter(|(key, _)| key.starts_with(&prefix)).collect();
            let after = value("start-after=");
            if after.is_some() && start_after == StartAfter::Refused {
                return Reply::new(400, "");
            }
            let after = after.filter(|_| start_after == StartAfter::Known);
            let after = after.unwrap_or("").replace("%2F", "/");
            let start = match value("continuation-token=") {
                Some(token) => token.parse().expect("one of ours"),
                None => below.partition_point(|(key, _)| *key <= after.as_str()),
            };
            let end = below.len().min(start + 2);
            let next = (end < below.len()).then(|| end.to_string());
            Reply::new(200, Server::page(&below[start..end], next.as_deref()))
        })
    }

    fn walked(server: &Server, uris: &[&str], filter: Filter) -> Result<Vec<String>> {
        run(async {
            let control = Rc::new(control(server).await);
            let mut sources = Vec::new();
            for uri in uris {
                let uri = S3Uri::parse(uri).expect("a good address");
                sources.push(control.resolve(&uri).await?);
            }
            let mut walk = Walk::new(control, sources, filter)?;
            let mut paths = Vec::new();
            while let Some(batch) = walk.next_batch().await? {
                assert!(!batch.is_empty());
                for entry in batch {
                    let path = match entry.path {
                        Ok(path) if entry.folder => format!("{path}/"),
                        Ok(path) => path.to_string(),
                        Err(problem) => format!("{:?} {}", problem, entry.object.key),
                    };
                    paths.push(format!("{} {path}", entry.source));
                }
            }
            Ok(paths)
        })
    }

    #[test]
    fn three_pages_of_a_folder() {
        let server =
            bucket(&[("d/", 0), ("d/a", 1), ("d/b/", 0), ("d/b/c", 2), ("d/e", 3), ("x", 1)]);
        let paths = walked(&server, &["s3://bkt/d/"], Filter::default()).expect("a walk");
        assert_eq!(paths, ["0 a", "0 b/", "0 b/c", "0 e"]);
        // Three pages, and one that a speculative request may cost.
        assert!((3..=4).contains(&server.seen().len()), "{:?}", server.seen());
    }

    #[test]
    fn keys_that_have_no_file_are_entries_too() {
        let server = bucket(&[
            ("d/", 7),
            ("d/../evil", 1),
            ("d//x", 1),
            ("d/a", 1),
            ("d/a/b", 1),
            ("d/f/", 5),
            ("d/z", 1),
        ]);
        let paths = walked(&server, &["s3://bkt/d/"], Filter::default()).expect("a walk");
        assert_eq!(
            paths,
            [
                "0 FolderWithBytes d/",
                "0 DotSegment d/../evil",
                "0 Absolute d//x",
                "0 a",
                "0 FileAndFolder { file: 0, below: 0 } d/a/b",
                "0 FolderWithBytes d/f/",
                "0 z",
            ]
        );
    }

    #[test]
    fn sources_are_merged_and_clashes_found() {
        let server = bucket(&[
            ("p/a", 1),
            ("p/b", 1),
            ("p/c", 1),
            ("p/n", 1),
            ("q/0", 1),
            ("q/b", 1),
            ("q/n/x", 1),
            ("q/z", 1),
        ]);
        let paths = walked(&server, &["s3://bkt/p/", "s3://bkt/q/"], Filter::default());
        assert_eq!(
            paths.expect("a walk"),
            [
                "1 0",
                "0 a",
                "0 b",
                "1 Duplicate { first: 0, again: 1 } q/b",
                "0 c",
                "0 n",
                "1 FileAndFolder { file: 0, below: 1 } q/n/x",
                "1 z",
            ]
        );
    }

    #[test]
    fn globs_and_filters_choose() {
        let server = bucket(&[
            ("d/a-1.tar", 1),
            ("d/a-2.idx", 1),
            ("d/a-3.tar", 1),
            ("d/a-4/x.tar", 1),
            ("d/b.tar", 1),
        ]);
        let check = |uri: &str, include: &[&str], exclude: &[&str], expected: &[&str]| {
            let filter = filter(include, exclude);
            assert_eq!(walked(&server, &[uri], filter).expect("a walk"), expected, "{uri}");
        };
        check("s3://bkt/d/a-*.tar", &[], &[], &["0 a-1.tar", "0 a-3.tar"]);
        check("s3://bkt/d/a-*.tar", &[], &["*-3*"], &["0 a-1.tar"]);
        check("s3://bkt/*/a-?.idx", &[], &[], &["0 d/a-2.idx"]);
        check("s3://bkt/d/**/x.tar", &[], &[], &["0 a-4/x.tar"]);
        check("s3://bkt/d/", &["*.tar"], &["a-4/"], &["0 a-1.tar", "0 a-3.tar", "0 b.tar"]);
        let error = walked(&server, &["s3://bkt/d/*.zip"], Filter::default()).expect_err("none");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().starts_with("s3://bkt/d/*.zip: nothing matches"), "{error}");
        let error = walked(&server, &["s3://bkt/d/"], filter(&["nothing"], &[])).expect_err("none");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.to_string().starts_with(
                "s3://bkt/d/: --include and --exclude leave none of 5 objects; the last"
            ) && error.to_string().contains("'**' across folders"),
            "{error}"
        );
        let uris = ["s3://bkt/d/a-4/", "s3://bkt/d/b*.tar"];
        let error = walked(&server, &uris, filter(&[], &["*"]));
        assert!(error.is_err_and(|error| error.to_string().starts_with("the sources: --include")));
        // One of two sources may have no match.
        assert_eq!(walked(&server, &uris, filter(&["b.*"], &[])).expect("a walk"), ["1 b.tar"]);
    }

    /// Includes, then excludes.
    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let includes = include.iter().map(|pattern| Rule::Include((*pattern).to_owned()));
        let excludes = exclude.iter().map(|pattern| Rule::Exclude((*pattern).to_owned()));
        Filter::new(&includes.chain(excludes).collect::<Vec<_>>()).expect("good patterns")
    }

    /// A directory bucket: accepts only a folder's prefix, and lists without order.
    fn directory(keys: &'static [(&'static str, u64)]) -> Server {
        Server::start(move |head| {
            let target = head.split(' ').nth(1).unwrap_or("");
            let Some((_, query)) = target.split_once('?') else {
                let there = target.ends_with("/one");
                return Reply::new(if there { 200 } else { 404 }, "").header("Content-Length", "3");
            };
            if query == "session" {
                return Reply::new(
                    200,
                    "<CreateSessionResult><Credentials><SessionToken>T</SessionToken>\
                     <SecretAccessKey>S</SecretAccessKey><AccessKeyId>K</AccessKeyId>\
                     <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>\
                     </CreateSessionResult>",
                );
            }
            let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
            let prefix = prefix.unwrap_or("").replace("%2F", "/");
            if !prefix.is_empty() && !prefix.ends_with('/') {
                return Reply::new(400, "<Error><Code>InvalidRequest</Code></Error>");
            }
            let below: Vec<_> =
                keys.iter().copied().filter(|(key, _)| key.starts_with(&prefix)).collect();
            Reply::new(200, Server::page(&below, None))
        })
    }

    #[test]
    fn directory_buckets_are_listed_by_folder_and_alone() {
        let server = directory(&[("d/b.tar", 1), ("d/a-2.tar", 1), ("d/a/x", 1), ("d/a-1.tar", 1)]);
        let bucket = "s3://train--usw2-az1--x-s3";
        let walked = |uris: &[&str]| {
            let uris: Vec<_> = uris.iter().map(|uri| format!("{bucket}/{uri}")).collect();
            let uris: Vec<_> = uris.iter().map(String::as_str).collect();
            walked(&server, &uris, Filter::default())
        };
        let all = walked(&["d/"]).expect("a walk");
        assert_eq!(all, ["0 b.tar", "0 a-2.tar", "0 a/x", "0 a-1.tar"]);
        assert_eq!(walked(&["d/a-*.tar"]).expect("a walk"), ["0 a-2.tar", "0 a-1.tar"]);
        let paths = walked(&["d/one", "e/one"]).expect("each is one object");
        assert_eq!(paths, ["0 one", "1 Duplicate { first: 0, again: 1 } e/one"]);
        for uris in [["d/", "e/one"], ["e/one", "d/*.tar"]] {
            let error = walked(&uris).expect_err("no order");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("not listed in key order"), "{error}");
        }
        // Near matches of a missing name are listed by folder, too.
        let error = walked(&["d/c.tar"]).expect_err("not there");
        assert!(error.to_string().contains("did you mean"), "{error}");
    }

    #[test]
    fn disorder_is_an_error_only_between_sources() {
        let server = bucket(&[("p/b", 1), ("p/a", 1), ("q/x", 1)]);
        let paths = walked(&server, &["s3://bkt/p/"], Filter::default());
        assert_eq!(paths.expect("a walk"), ["0 b", "0 a"]);
        let error = walked(&server, &["s3://bkt/p/", "s3://bkt/q/"], Filter::default());
        let error = error.expect_err("no order");
        assert!(error.to_string().contains("not in order"), "{error}");
    }

    #[test]
    fn a_server_without_start_after_is_listed_page_by_page() {
        let keys: &'static [(String, u64)] =
            (0..300).map(|at| (format!("d/{at:04}"), 1)).collect::<Vec<_>>().leak();
        let keys: Vec<_> = keys.iter().map(|(key, size)| (key.as_str(), *size)).collect();
        for start_after in [StartAfter::Known, StartAfter::Ignored, StartAfter::Refused] {
            let server = bucket_that(keys.clone().leak(), start_after);
            let paths = walked(&server, &["s3://bkt/d/"], Filter::default()).expect("a walk");
            let expected: Vec<_> = (0..300).map(|at| format!("0 {at:04}")).collect();
            assert_eq!(paths, expected);
            let split = server.seen().iter().filter(|head| head.contains("start-after=")).count();
            assert!(split > 0);
            assert!(start_after == StartAfter::Known || split < 10, "{split} in vain");
        }
    }

    #[test]
    fn a_server_that_gives_other_keys_is_not_believed() {
        let server = Server::start(|_| Reply::new(200, Server::page(&[("etc/passwd", 1)], None)));
        let error =
            walked(&server, &["s3://bkt/d/"], Filter::default()).expect_err("not asked for");
        assert_eq!(error.kind(), ErrorKind::Endpoint);
        assert!(error.to_string().contains("etc/passwd"), "{error}");
    }

    #[test]
    fn a_key_that_is_listed_twice_is_one_object() {
        type Keys = &'static [(&'static str, u64)];
        let all = |first: Keys, second: Keys| {
            let server = Server::start(move |head| match head.contains("continuation-token=2") {
                true => Reply::new(200, Server::page(second, None)),
                false => Reply::new(200, Server::page(first, Some("2"))),
            });
            walked(&server, &["s3://bkt/d/"], Filter::default()).expect("a listing")
        };
        let found = all(&[("d/a", 1), ("d/a", 1), ("d/b", 2)], &[("d/b", 2), ("d/c", 3)]);
        assert_eq!(found, ["0 a", "0 b", "0 c"]);
        let found = all(&[("d/z", 1), ("d/a", 1), ("d/m", 1), ("d/a", 1)], &[("d/m", 1)]);
        assert_eq!(found, ["0 z", "0 a", "0 m"]);
    }

    #[test]
    fn one_page_is_fetched_ahead_and_no_more() {
        let server =
            bucket(&[("d/a", 1), ("d/b", 1), ("d/c", 1), ("d/e", 1), ("d/f", 1), ("d/g", 1)]);
        run(async {
            let control = Rc::new(control(&server).await);
            let uri = S3Uri::parse("s3://bkt/d/").expect("a good address");
            let source = control.resolve(&uri).await.expect("a source");
            let mut walk = Walk::new(control, vec![source], Filter::default()).expect("a walk");
            let first = walk.next_batch().await.expect("a batch").expect("not the end");
            assert_eq!(first.len(), 2);
            // No page is requested, and still the second one comes; the third does not.
            for _ in 0..5_000 {
                if walk.feeds[0].is_ready().expect("no error") {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            assert!(walk.feeds[0].is_ready().expect("no error"));
            assert_eq!(server.seen().len(), 2);
            let second = walk.next_batch().await.expect("a batch").expect("not the end");
            assert_eq!(second[0].object.key, "d/c");
        });
    }

    #[test]
    fn a_dropped_future_loses_nothing() {
        let server = bucket(&[("d/a", 1), ("d/b", 1), ("d/c", 1), ("d/e", 1), ("d/f", 1)]);
        run(async {
            let control = Rc::new(control(&server).await);
            let uri = S3Uri::parse("s3://bkt/d/").expect("a good address");
            let source = control.resolve(&uri).await.expect("a source");
            let mut walk = Walk::new(control, vec![source], Filter::default()).expect("a walk");
            let mut keys = Vec::new();
            // Ready or not, each round polls once and drops the future; pages come meanwhile.
            for _ in 0..10_000 {
                let polled = {
                    let mut next = std::pin::pin!(walk.next_batch());
                    std::future::poll_fn(|context| {
                        std::task::Poll::Ready(next.as_mut().poll(context))
                    })
                    .await
                };
                match polled {
                    std::task::Poll::Ready(Ok(Some(batch))) => {
                        keys.extend(batch.into_iter().map(|entry| entry.object.key));
                    }
                    std::task::Poll::Ready(Ok(None)) => break,
                    std::task::Poll::Ready(Err(error)) => panic!("{error}"),
                    std::task::Poll::Pending => {
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    }
                }
            }
            assert_eq!(keys, ["d/a", "d/b", "d/c", "d/e", "d/f"]);
        });
    }
}
