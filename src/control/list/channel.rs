//! The objects of a channel of a SageMaker training job: the sources to download or stream, and a
//! preflight of them.
//!
//! A job checks all channels before it begins ([`Control::preflight`]), and downloads its `File`
//! channels in one run ([`Control::channel_entries`]), from the listings retained by the preflight
//! as far as memory allowed. A `Pipe` channel uses [`ChannelSource::stream_sources`], which are
//! ordinary sources.
//! SageMaker's assignment of objects to hosts is not documented. Observed in a job of 2020 with two
//! hosts: object `i` of all keys in byte order, across folders, goes to host `i % n`.

use std::borrow::Borrow;
use std::cell::Cell;
use std::rc::Rc;

use super::entries::{Entries, KeptEntries};
use super::sources::Source;
use super::walk::{Entry, Walk};
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::epoch::Shard;
use crate::plan::filter::Filter;
use crate::plan::kept::KeptListing;
use crate::plan::manifest;
use crate::plan::path::{PathProblem, Remedy};
use crate::s3::uri::S3Uri;

/// The input of a channel.
#[derive(Debug, Clone)]
pub struct ChannelSource {
    /// The folder of its files below the destination; empty for none.
    pub folder: String,
    /// Its objects.
    pub objects: ChannelObjects,
    /// This host's part. Keys of a prefix are counted in byte order, across folders; those of a
    /// list in its order. Empty objects whose key ends in a slash are folder markers: under a
    /// prefix they are not counted, and every host gets their folders.
    pub shard: Shard,
    /// If true, a channel without objects is no error; not for directory buckets.
    pub allow_empty: bool,
}

/// The objects of a channel.
#[derive(Debug, Clone)]
pub enum ChannelObjects {
    /// `S3Prefix`: of [`S3Uri::parse_prefix`].
    Prefix(Box<S3Uri>),
    /// `ManifestFile`: of [`Control::manifest`].
    List(Vec<S3Uri>),
}

/// Result of the preflight of a channel.
#[derive(Debug, Default)]
pub struct Preflight {
    /// Objects of all hosts.
    pub objects: u64,
    /// Their bytes; `None` if only this host's part of a list was checked.
    pub bytes: Option<u64>,
    /// Objects of this host.
    pub shard_objects: u64,
    /// Their bytes.
    pub shard_bytes: u64,
    /// The largest object of this host, in bytes.
    pub shard_largest_bytes: u64,
    /// Folder markers, which every host gets.
    pub marks: u64,
    /// A note about objects that a list repeats: they are downloaded once.
    pub repeated: Option<String>,
    /// The listing in its order, if there was memory for it: all objects of a prefix, or this
    /// host's part of a list.
    pub kept: Option<KeptListing>,
    /// Unusable keys, as many as are reported.
    pub problems: Vec<KeyProblem>,
    /// Number of all unusable keys.
    pub problem_count: u64,
}

/// Memory budget for the listings of all channels of a job.
#[derive(Debug)]
pub struct ListingBudget {
    left_bytes: Cell<u64>,
}

impl ListingBudget {
    /// A budget of this many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self { left_bytes: Cell::new(bytes) }
    }

    /// Takes the growth of a listing from the budget; false if it is exceeded.
    fn take(&self, bytes: u64) -> bool {
        let left = self.left_bytes.get().checked_sub(bytes);
        left.is_some_and(|left| {
            self.left_bytes.set(left);
            true
        })
    }

    fn give_back(&self, bytes: u64) {
        self.left_bytes.set(self.left_bytes.get().saturating_add(bytes));
    }
}

/// An unusable key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProblem {
    /// Its bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The reason.
    pub why: ChannelProblem,
}

/// Why a key is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelProblem {
    /// It has two consecutive slashes: SageMaker ends a job for that, wherever they are.
    DoubleSlash,
    /// It has a line break: the list of the channel's objects has one per line.
    LineBreak,
    /// It has no valid path.
    Path(PathProblem),
}

impl ChannelProblem {
    /// Describes the problem in one line.
    #[must_use]
    pub fn explain(self) -> String {
        match self {
            Self::DoubleSlash => {
                "the key contains '//', for which SageMaker ends a training job: copy the object \
                 to another key"
                    .into()
            }
            Self::LineBreak => {
                "the key contains a line break, and the list of the objects of a channel has one \
                 key a line: copy the object to another key, or take the channel in Pipe mode"
                    .into()
            }
            Self::Path(problem) => problem.explain_with(Remedy::Copy),
        }
    }

    /// Describes the problem if the channel's sources are the entries of this manifest.
    #[must_use]
    pub fn explain_in(self, manifest: &str) -> String {
        match self {
            Self::Path(PathProblem::Duplicate { first, again }) if first != again => format!(
                "entries {} and {} of {manifest} both have this path: list one of them, or give \
                 each a channel of its own",
                first + 1,
                again + 1
            ),
            Self::Path(PathProblem::FileAndFolder { file, below }) if file != below => format!(
                "entry {} of {manifest} has a file where this key of entry {} needs a folder: list \
                 one of them, or give each a channel of its own",
                file + 1,
                below + 1
            ),
            other => other.explain(),
        }
    }
}

impl ChannelSource {
    /// The entries of its retained listing.
    fn entries(&self, kept: KeptListing) -> KeptEntries {
        let shard = self.kept_shard();
        KeptEntries::new(kept, self.folder.clone(), shard)
    }

    /// The first epoch of a `Pipe` channel from its retained listing, as of its
    /// [`Self::stream_sources`]. `None` if the listing does not have all of it.
    #[must_use]
    pub fn kept_stream(&self, kept: KeptListing, is_shuffled: bool) -> Option<Entries> {
        let is_cut = matches!(self.objects, ChannelObjects::List(_)) && self.shard != Shard::WHOLE;
        if is_shuffled && is_cut {
            return None;
        }
        let mut entries = Entries::default();
        entries.push_kept(KeptEntries::new(kept, String::new(), Shard::WHOLE));
        Some(entries)
    }

    /// This host's part of the retained listing.
    #[must_use]
    pub const fn kept_shard(&self) -> Shard {
        match &self.objects {
            ChannelObjects::Prefix(_) => self.shard,
            // A list was reduced to this host's part before the preflight.
            ChannelObjects::List(_) => Shard::WHOLE,
        }
    }

    /// The problem with positions in the whole list instead of in this host's part.
    fn in_list(&self, problem: PathProblem) -> PathProblem {
        let ChannelObjects::List(_) = &self.objects else { return problem };
        let Shard { index, count } = self.shard;
        let place = |source: usize| index as usize + source * count as usize;
        match problem {
            PathProblem::Duplicate { first, again } => {
                PathProblem::Duplicate { first: place(first), again: place(again) }
            }
            PathProblem::FileAndFolder { file, below } => {
                PathProblem::FileAndFolder { file: place(file), below: place(below) }
            }
            other => other,
        }
    }

    /// The sources of a `Pipe` channel, and this host's part of each of its epochs. A shuffle
    /// covers all objects: only without one is a list reduced to this host's part beforehand.
    #[must_use]
    pub fn stream_sources(&self, is_shuffled: bool) -> (Vec<S3Uri>, Shard) {
        match &self.objects {
            ChannelObjects::Prefix(prefix) => (vec![S3Uri::clone(prefix)], self.shard),
            ChannelObjects::List(list) if is_shuffled => (list.clone(), self.shard),
            ChannelObjects::List(list) => (cut(list, self.shard), Shard::WHOLE),
        }
    }
}

/// A host's part of a list.
fn cut(list: &[S3Uri], shard: Shard) -> Vec<S3Uri> {
    manifest::choose(list.to_vec(), &Filter::default(), shard).unwrap_or_default()
}

impl Control {
    /// The files of these channels, one channel after the other, each in its folder: this host's
    /// part. Channels without a retained listing are listed again.
    ///
    /// # Errors
    /// Those of [`Control::resolve_all`]; also if a listed object is missing, or if a channel has
    /// no objects and that is not allowed.
    pub async fn channel_entries(
        self: &Rc<Self>,
        channels: impl IntoIterator<Item = (impl Borrow<ChannelSource>, Option<KeptListing>)>,
    ) -> Result<Entries> {
        let mut entries = Entries::default();
        for (channel, kept) in channels {
            let channel = channel.borrow();
            match kept {
                Some(kept) => entries.push_kept(channel.entries(kept)),
                None => {
                    let (sources, shard) = self.sources_of(channel).await?;
                    let walk = Walk::new(Rc::clone(self), sources, Filter::default())?;
                    let walk = walk.without_repeated().sharded(shard)?;
                    entries.push_walk(walk.under(&channel.folder));
                }
            }
        }
        Ok(entries)
    }

    /// All objects of a channel, of all hosts.
    ///
    /// # Errors
    /// Those of [`Control::channel_entries`].
    pub async fn channel_walk(self: &Rc<Self>, channel: &ChannelSource) -> Result<Walk> {
        let (sources, _) = self.sources_of(channel).await?;
        Ok(Walk::new(Rc::clone(self), sources, Filter::default())?.for_stream())
    }

    /// Lists a whole channel before its first byte is requested. Returns at most `problems_max`
    /// problems of keys; `for_files` if keys need valid paths. The listing is retained if there is
    /// `room` for it.
    ///
    /// # Errors
    /// Those of [`Control::channel_entries`], and of the listing.
    pub async fn preflight(
        self: &Rc<Self>,
        channel: &ChannelSource,
        for_files: bool,
        problems_max: usize,
        room: Option<&ListingBudget>,
    ) -> Result<Preflight> {
        let (sources, shard) = self.sources_of(channel).await?;
        let walk = Walk::new(Rc::clone(self), sources, Filter::default())?.under(&channel.folder);
        let mut walk = if for_files { walk.without_repeated() } else { walk.for_stream() };
        if for_files {
            walk.require_order(shard)?;
        }
        let kept = room.map(|_| KeptListing::default());
        let mut found = Preflight { kept, ..Preflight::default() };
        let mut bytes = 0u64;
        while let Some(batch) = walk.next_batch().await? {
            if let Some(room) = room {
                found.retain(&batch, &channel.folder, room)?;
            }
            for entry in batch {
                found.note_problem(channel, &entry, for_files, problems_max);
                if entry.is_mark() {
                    found.marks += 1;
                    continue;
                }
                let size_bytes = entry.object.size_bytes;
                if shard.takes(found.objects) {
                    found.shard_objects += 1;
                    found.shard_bytes = found.shard_bytes.saturating_add(size_bytes);
                    found.shard_largest_bytes = found.shard_largest_bytes.max(size_bytes);
                }
                found.objects += 1;
                bytes = bytes.saturating_add(size_bytes);
            }
        }
        (found.bytes, found.repeated) = (Some(bytes), walk.repeated());
        if let ChannelObjects::List(list) = &channel.objects
            && channel.shard != Shard::WHOLE
        {
            (found.objects, found.bytes) = (list.len() as u64, None);
        }
        Ok(found)
    }

    /// The sources of a channel, and this host's part of them.
    async fn sources_of(self: &Rc<Self>, channel: &ChannelSource) -> Result<(Vec<Source>, Shard)> {
        let (uris, shard) = channel.stream_sources(false);
        let sources = match &channel.objects {
            ChannelObjects::Prefix(_) if channel.allow_empty => self.resolve_there(&uris).await?.0,
            ChannelObjects::List(list) if list.is_empty() && !channel.allow_empty => {
                let message = "the manifest lists no object".to_owned();
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            _ => self.resolve_all(&uris).await?,
        };
        Ok((sources, shard))
    }
}

impl Preflight {
    /// Adds these entries to the retained listing, or drops the whole listing.
    fn retain(&mut self, batch: &[Entry], folder: &str, room: &ListingBudget) -> Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let before = kept.bytes();
        for entry in batch {
            let key = &entry.object.key;
            let under = if folder.is_empty() { 0 } else { folder.len() + 1 };
            // An entry without a path has a problem, which ends the job.
            let path = entry.path.as_ref().map_or(0, |path| path.as_str().len() - under);
            let start = key.len() - usize::from(entry.folder && path > 0) - path;
            kept.push(&entry.object, &entry.endpoint, start)?;
        }
        if !room.take(kept.bytes() - before) {
            room.give_back(before);
            self.kept = None;
        }
        Ok(())
    }

    fn note_problem(
        &mut self,
        channel: &ChannelSource,
        entry: &Entry,
        for_files: bool,
        problems_max: usize,
    ) {
        let why = match &entry.path {
            _ if entry.object.key.contains("//") => ChannelProblem::DoubleSlash,
            Err(problem) if for_files => ChannelProblem::Path(channel.in_list(*problem)),
            _ if for_files && entry.object.key.contains('\n') => ChannelProblem::LineBreak,
            _ => return,
        };
        self.problem_count += 1;
        if self.problems.len() < problems_max {
            let (bucket, key) = (entry.endpoint.bucket.clone(), entry.object.key.clone());
            self.problems.push(KeyProblem { bucket, key, why });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::control::loopback::{Reply, Server, closed_url, control, control_at, run};
    use crate::plan::kept::KEPT_OBJECT_BYTES;
    use crate::plan::manifest::{Layout, parse};
    use crate::plan::path::RelativePath;
    use crate::s3::{Endpoint, Object};

    /// A bucket of these keys, each as many bytes long as its key, except folders; in pages of
    /// three.
    fn bucket(keys: impl IntoIterator<Item = String>) -> Server {
        let keys: BTreeSet<String> = keys.into_iter().collect();
        let size = |key: &str| if key.ends_with('/') { 0 } else { key.len() as u64 };
        Server::start(move |head| {
            let target = head.split(' ').nth(1).unwrap_or("").replace("%2F", "/");
            let Some((_, query)) = target.split_once('?') else {
                let key = target.trim_start_matches("/bkt/");
                let status = if keys.contains(key) { 200 } else { 404 };
                return Reply::new(status, "").header("Content-Length", &size(key).to_string());
            };
            let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
            let prefix = value("prefix=").unwrap_or("");
            let below: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).collect();
            let start = match (value("continuation-token="), value("start-after=")) {
                (Some(token), _) => token.parse().expect("one of ours"),
                (None, Some(after)) => below.partition_point(|key| key.as_str() <= after),
                (None, None) => 0,
            };
            let end = below.len().min(start + 3);
            let page: Vec<_> =
                below[start..end].iter().map(|key| (key.as_str(), size(key))).collect();
            let next = (end < below.len()).then(|| end.to_string());
            Reply::new(200, Server::page(&page, next.as_deref()))
        })
    }

    fn channel(folder: &str, prefix: &str, shard: Shard) -> ChannelSource {
        let prefix = S3Uri::parse_prefix(&format!("s3://bkt/{prefix}")).expect("an address");
        let objects = ChannelObjects::Prefix(Box::new(prefix));
        ChannelSource { folder: folder.to_owned(), objects, shard, allow_empty: false }
    }

    fn list(folder: &str, names: &[&str], shard: Shard) -> ChannelSource {
        let names: String = names.iter().map(|name| format!(",\"{name}\"")).collect();
        let text = format!("[{{\"prefix\":\"s3://bkt/d/\"}}{names}]");
        let list = parse(text.as_bytes(), Layout::Relative, 100).expect("a list");
        ChannelSource { objects: ChannelObjects::List(list), ..channel(folder, "", shard) }
    }

    /// Each entry as its key and its path or problem.
    async fn lines(entries: impl Into<Entries>) -> Result<Vec<String>> {
        let (mut lines, mut entries) = (Vec::new(), entries.into());
        while let Some(batch) = entries.next_batch().await? {
            for entry in batch {
                let path = match entry.path {
                    Ok(path) => path.to_string(),
                    Err(problem) => format!("{problem:?}"),
                };
                lines.push(format!(
                    "{} > {path}{}",
                    entry.object.key,
                    ["", "/"][usize::from(entry.folder)]
                ));
            }
        }
        Ok(lines)
    }

    /// The files of a run of these channels: listed during the run, and from the retained listings,
    /// which must agree.
    fn files(server: &Server, channels: &[ChannelSource]) -> Result<Vec<String>> {
        run(async {
            let control = Rc::new(control(server).await);
            let walks = channels.iter().map(|channel| (channel, None));
            let listed = lines(control.channel_entries(walks).await?).await?;
            let (mut kept, room) = (Vec::new(), ListingBudget::new(1 << 20));
            for channel in channels {
                let found = control.preflight(channel, true, 2, Some(&room)).await?;
                if found.problem_count > 0 {
                    return Ok(listed);
                }
                kept.push(Some(found.kept.expect("there is room")));
            }
            // Another request finds no server. A speculative page that was cancelled may arrive at
            // the server at any time, so its requests are not counted.
            let control = Rc::new(control_at(closed_url()).await);
            let entries = control.channel_entries(channels.iter().zip(kept)).await?;
            assert_eq!(lines(entries).await?, listed);
            Ok(listed)
        })
    }

    fn looked(server: &Server, channel: &ChannelSource, for_files: bool) -> Result<Preflight> {
        run(async {
            let control = Rc::new(control(server).await);
            control.preflight(channel, for_files, 2, None).await
        })
    }

    fn keys(keys: &[&str]) -> Server {
        bucket(keys.iter().map(|key| (*key).to_owned()))
    }

    const HALF: Shard = Shard { index: 1, count: 2 };

    #[test]
    fn channels_come_one_after_the_other_each_in_its_folder() {
        let server = keys(&["a/x", "a/y/", "a/y/z", "a2/x", "d/1", "d/2", "d/3", "e/", "e/f"]);
        let channels = [
            channel("train", "a", Shard::WHOLE),
            channel("again", "a/", HALF),
            list("listed", &["3", "1", "2"], HALF),
            channel("e", "e", Shard { index: 5, count: 6 }),
        ];
        assert_eq!(
            files(&server, &channels).expect("a walk"),
            [
                "a/x > train/x",
                "a/y/ > train/y/",
                "a/y/z > train/y/z",
                "a2/x > train/a2/x",
                // A folder marker has no position, and every host gets the folder.
                "a/y/ > again/y/",
                "a/y/z > again/y/z",
                "d/1 > listed/1",
            ]
        );
        assert_eq!(files(&server, &[]).expect("nothing"), Vec::<String>::new());
    }

    #[test]
    fn a_channel_without_objects_is_an_error_where_that_is_not_allowed() {
        let server = keys(&["d/1"]);
        let check = |mut channel: ChannelSource, expected: &str| {
            let error = files(&server, std::slice::from_ref(&channel)).expect_err(expected);
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains(expected), "{error}");
            channel.allow_empty = true;
            assert_eq!(files(&server, std::slice::from_ref(&channel)), Ok(vec![]));
            let found = looked(&server, &channel, true).expect("nothing is enough");
            assert_eq!((found.objects, found.bytes), (0, Some(0)));
        };
        check(channel("c", "e", Shard::WHOLE), "s3://bkt/e: no key begins with this prefix");
        check(list("c", &[], Shard::WHOLE), "the manifest lists no object");
        let missing = ChannelSource { allow_empty: true, ..list("c", &["1", "2"], Shard::WHOLE) };
        let error = files(&server, &[missing]).expect_err("one is missing");
        assert!(error.to_string().contains("s3://bkt/d/2: there is no object"), "{error}");
    }

    #[test]
    fn what_is_beside_a_folder_is_held_against_what_is_in_it() {
        let server = keys(&[
            "t", "t-", "t/", "t/a", "t/b//c", "t/t", "t/t2/x", "t/t3", "t2", "t3", "t4/", "t5",
        ]);
        let found = files(&server, &[channel("c", "t", Shard::WHOLE)]).expect("a walk");
        assert_eq!(
            found,
            [
                "t > SharedPath",
                "t- > c/t-",
                "t/a > c/a",
                "t/b//c > EmptySegment",
                "t/t > c/t",
                "t/t2/x > c/t2/x",
                "t/t3 > c/t3",
                "t2 > FileAndFolder { file: 0, below: 0 }",
                "t3 > SharedPath",
                "t4/ > c/t4/",
                "t5 > c/t5",
            ]
        );
        // Nothing more is requested if there is nothing beside the folder.
        let before = server.seen().len();
        files(&server, &[channel("c", "t/", Shard::WHOLE)]).expect("a walk");
        let asked = server.seen().split_off(before);
        assert!(asked.iter().all(|head| !head.contains("prefix=t%2Ft")), "{asked:?}");
    }

    #[test]
    fn a_look_ahead_counts_and_reports_what_is_wrong() {
        let server = keys(&["d/1", "d/22", "d/3//", "d/3/.inrush-index", "d/4//5", "d/5", "d/5/6"]);
        let found = looked(&server, &channel("c", "d", HALF), true).expect("a look");
        assert_eq!((found.objects, found.bytes), (6, Some(3 + 4 + 17 + 6 + 3 + 5)));
        assert_eq!((found.shard_objects, found.shard_bytes), (3, 4 + 6 + 5));
        assert_eq!(found.shard_largest_bytes, 6);
        assert_eq!(found.problem_count, 4);
        let problem = |key: &str, why| {
            let (bucket, key) = ("bkt".to_owned(), key.to_owned());
            KeyProblem { bucket, key, why }
        };
        let own = ChannelProblem::Path(PathProblem::OwnName);
        let double = ChannelProblem::DoubleSlash;
        let expected = vec![problem("d/3/.inrush-index", own), problem("d/3//", double)];
        assert_eq!(found.problems, expected);
        // A stream needs no paths.
        let found = looked(&server, &channel("c", "d", HALF), false).expect("a look");
        assert_eq!((found.objects, found.shard_objects, found.problem_count), (6, 3, 1));

        let server = keys(&["d/1", "d/22", "d/5"]);
        let found = looked(&server, &list("c", &["5", "1", "22"], HALF), true).expect("a look");
        assert_eq!((found.objects, found.bytes, found.shard_objects), (3, None, 1));
        assert_eq!(server.seen().len(), 1, "nothing is asked of other hosts' objects");
        let whole = list("c", &["5", "1", "1"], Shard::WHOLE);
        let found = looked(&server, &whole, true).expect("a look");
        assert_eq!((found.objects, found.bytes, found.problem_count), (2, Some(6), 0));
        assert_eq!(found.repeated.as_deref(), Some("1 object is given more than once"));
        let found = looked(&server, &whole, false).expect("a look");
        assert_eq!((found.objects, found.repeated), (3, None), "a stream has it twice");
        for why in [double, own, ChannelProblem::LineBreak] {
            let line = why.explain();
            assert!(!line.contains('\n') && !line.ends_with('.'), "{line}");
        }
    }

    #[test]
    fn an_object_that_is_listed_twice_is_downloaded_once() {
        let server = keys(&["d/1", "d/2", "d/3", "d/4/", "d/e/1"]);
        let whole = list("c", &["3", "1", "4/", "3", "1"], Shard::WHOLE);
        let found = files(&server, &[whole]).expect("a walk");
        assert_eq!(found, ["d/1 > c/1", "d/3 > c/3", "d/4/ > c/4/"]);
        // Each host gets the entries at its positions.
        let half = list("c", &["3", "1", "2", "1", "3", "3"], HALF);
        assert_eq!(files(&server, &[half]).expect("a walk"), ["d/1 > c/1", "d/3 > c/3"]);
    }

    #[test]
    fn what_is_in_each_others_way_is_reported_by_its_places_in_the_list() {
        let server = keys(&["d/1", "d/2", "d/1/x"]);
        for shard in [Shard::WHOLE, HALF] {
            let channel = list("c", &["2", "1", "2", "1/x"], shard);
            let found = looked(&server, &channel, true).expect("a look");
            assert_eq!(found.problem_count, 1);
            let found = found.problems[0].why.explain_in("s3://bkt/l");
            let expected = "entry 2 of s3://bkt/l has a file where this key of entry 4 needs";
            assert!(found.starts_with(expected), "{found}");
        }
        let both = ChannelProblem::Path(PathProblem::Duplicate { first: 1, again: 3 });
        let found = both.explain_in("s3://bkt/l");
        assert!(found.starts_with("entries 2 and 4 of s3://bkt/l both have this path"), "{found}");
        let once = ChannelProblem::Path(PathProblem::Duplicate { first: 1, again: 1 });
        assert_eq!(once.explain_in("s3://bkt/l"), once.explain());
    }

    #[test]
    fn a_key_with_a_line_break_has_no_line_in_a_list() {
        let mut found = Preflight::default();
        let entry = Entry {
            source: 0,
            endpoint: Endpoint::new("bkt", false, "h", "/", "r", vec![]).into(),
            object: Object { key: "d/2\nx".to_owned(), ..Object::default() },
            path: RelativePath::parse("2\nx"),
            folder: false,
        };
        let channel = channel("c", "d/", Shard::WHOLE);
        found.note_problem(&channel, &entry, false, 9);
        assert_eq!(found.problem_count, 0, "a stream has no list");
        found.note_problem(&channel, &entry, true, 9);
        assert_eq!(found.problems[0].why, ChannelProblem::LineBreak);
    }

    #[test]
    fn what_there_is_no_room_for_is_listed_again() {
        let server = keys(&["a/1", "a/2", "b/1", "b/2", "b/3", "b/4", "b/5", "b/6", "b/7"]);
        let channels = [channel("a", "a", HALF), channel("b", "b", HALF)];
        let lines = run(async {
            let control = Rc::new(control(&server).await);
            // For both objects of the first channel, and one page of the second.
            // A key has three bytes, and an ETag that is not an MD5, too.
            let room = ListingBudget::new(6 * (KEPT_OBJECT_BYTES + 6));
            let mut kept = Vec::new();
            for channel in &channels {
                let found = control.preflight(channel, true, 2, Some(&room)).await?;
                kept.push(found.kept);
            }
            assert_eq!([kept[0].is_some(), kept[1].is_some()], [true, false]);
            assert_eq!(room.left_bytes.get(), 4 * (KEPT_OBJECT_BYTES + 6), "it is given back");
            lines(control.channel_entries(channels.iter().zip(kept)).await?).await
        });
        let lines = lines.expect("entries");
        assert_eq!(lines, ["a/2 > a/2", "b/2 > b/2", "b/4 > b/4", "b/6 > b/6"]);
    }

    #[test]
    fn the_first_epoch_of_a_stream_is_what_was_kept_of_it() {
        // A stream needs no paths: keys that cannot be files are valid.
        let server = keys(&["d/", "d/../1", "d/1", "d/2", "d/3", "d/4/", "e"]);
        let listed = ["3", "1", "3", "2"];
        let whole = [channel("c", "d/", Shard::WHOLE), list("c", &listed, Shard::WHOLE)];
        let parts = [channel("c", "d", HALF), list("c", &listed, HALF)];
        let channels = whole.iter().chain(&parts);
        for (channel, is_shuffled) in channels.flat_map(|it| [(it, false), (it, true)]) {
            let both = run(async {
                let control = Rc::new(control(&server).await);
                let room = ListingBudget::new(1 << 20);
                let found = control.preflight(channel, false, 2, Some(&room)).await?;
                let kept = found.kept.expect("there is room");
                let (sources, _) = channel.stream_sources(is_shuffled);
                let sources = control.resolve_all(&sources).await?;
                let walk = Walk::new(control, sources, Filter::default())?.for_stream();
                let walked = lines(walk).await?;
                let kept = match channel.kept_stream(kept, is_shuffled) {
                    Some(entries) => Some(lines(entries).await?),
                    None => None,
                };
                Ok::<_, Error>((walked, kept))
            });
            let (walked, kept) = both.expect("a walk");
            let keys = |lines: &[String]| -> Vec<String> {
                lines
                    .iter()
                    .filter_map(|line| line.split(" > ").next())
                    .map(str::to_owned)
                    .collect()
            };
            // A shuffle covers all objects, and a list is reduced beforehand.
            let is_part = is_shuffled && channel.shard == HALF && !walked[0].starts_with("d/..");
            assert_eq!(kept.is_none(), is_part, "{channel:?}");
            assert!(kept.is_none_or(|kept| keys(&kept) == keys(&walked)), "{channel:?}");
        }
    }

    #[test]
    fn a_list_is_streamed_in_its_order_and_cut_behind_the_shuffle() {
        let server = keys(&["d/1", "d/2", "d/3", "d/4/"]);
        let channel = list("c", &["3", "4/", "1", "3", "2"], HALF);
        let (sources, shard) = channel.stream_sources(true);
        assert_eq!((sources.len(), shard), (5, HALF));
        let order = run(async {
            let control = Rc::new(control(&server).await);
            let sources = control.resolve_all(&sources).await?;
            lines(Walk::new(control, sources, Filter::default())?.for_stream()).await
        });
        assert_eq!(order.expect("a walk"), ["d/3 > 3", "d/1 > 1", "d/3 > 3", "d/2 > 2"]);
        let (sources, shard) = channel.stream_sources(false);
        let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
        assert_eq!(sources, ["s3://bkt/d/4/", "s3://bkt/d/3"]);
        assert_eq!(shard, Shard::WHOLE);
    }

    proptest! {
        // The failing input is printed; it becomes a separate test, not a file.
        #![proptest_config(ProptestConfig {
            failure_persistence: None, cases: 12, ..Default::default()
        })]

        #[test]
        fn hosts_have_each_object_once(
            all in prop::collection::btree_set("t(/|u|0|-){0,4}", 1..20),
            hosts in 1u32..6,
        ) {
            let server = bucket(all.iter().cloned());
            let objects: Vec<&String> = all.iter().filter(|key| !key.ends_with('/')).collect();
            for index in 0..hosts {
                let channel = channel("c", "t", Shard { index, count: hosts });
                let found = files(&server, std::slice::from_ref(&channel)).expect("a walk");
                let mine = found.iter().filter_map(|line| line.split(" > ").next());
                let mine: Vec<&str> = mine.filter(|key| !key.ends_with('/')).collect();
                // Object i of the keys in order goes to host i modulo n.
                let expected: Vec<&String> =
                    objects.iter().copied().skip(index as usize).step_by(hosts as usize).collect();
                prop_assert_eq!(&mine, &expected);
                let found = looked(&server, &channel, true).expect("a look");
                prop_assert_eq!(found.shard_objects, expected.len() as u64);
                prop_assert_eq!(found.objects, objects.len() as u64);
            }
        }
    }
}
