//! `inrush ls`: a listing on standard output, page by page: the buckets, one level of a folder, or
//! everything below it.

pub(super) mod complete;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use super::context::Context;
use super::session;
use crate::cli::LsArgs;
use crate::control::Control;
use crate::control::list::ahead::ResolveAhead;
use crate::control::list::level::LevelPages;
use crate::control::list::sources::{Depth, Source, SourceKind};
use crate::control::list::walk::{Walk, leaves_nothing};
use crate::download::sources::{self, Narrowed};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::epoch::Shard;
use crate::plan::filter::Filter;
use crate::report::document::{ListedBucket, ListedFolder, ListedLine, ListedTotal, Sizes};
use crate::report::out::Lines;
use crate::s3::cycle::CycleGuard;
use crate::s3::list::Page;
use crate::s3::uri::shown;
use crate::s3::{Endpoint, Object};

/// Lists the sources one after the other. If the output's reader is gone it ends successfully.
pub(super) async fn run(mut args: LsArgs, context: &Arc<Context>) -> Result<()> {
    let progress = context.messages.progress(!args.messages.quiet);
    let filter = Filter::new(&args.selection.rules)?;
    sources::add(&mut args.sources, &args.selection, &context.board).await?;
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, (context, &progress)).await?;
    if args.buckets {
        return buckets(&control, args.json).await;
    }
    let narrowed = Narrowed { filter, shard: args.shard };
    let (uris, board) = (&mut args.sources, &context.board);
    let narrowed = sources::add_manifest(&control, uris, &args.selection, narrowed, board).await?;
    let Narrowed { filter, shard } = narrowed;
    let sizes = if args.human_readable { Sizes::Human } else { Sizes::Bytes };
    let mut listing = ListOutput {
        json: args.json,
        sizes,
        filter,
        lines: Lines::stdout(),
        total: ListedTotal::default(),
    };
    if shard != Shard::WHOLE {
        // Like other commands: all sources in one order.
        let sources = control.resolve_all(&args.sources).await?;
        let walk = Walk::new(control, sources, listing.filter.clone())?.sharded(shard)?;
        let listed = listing.walk(walk.for_objects(), true).await?;
        return listing.end(args.summarize, listed);
    }
    let depth = if args.recursive { Depth::All } else { Depth::Level };
    let mut ahead = ResolveAhead::new(Rc::clone(&control), args.sources, depth);
    while let Some(source) = ahead.next().await? {
        let listed = match &source.found {
            SourceKind::Folder { .. } if !args.recursive => listing.level(&control, source).await?,
            _ => listing.all(&control, source).await?,
        };
        if listed == ControlFlow::Break(()) {
            return Ok(());
        }
    }
    listing.end(args.summarize, ControlFlow::Continue(()))
}

/// Lists the buckets that the credentials can see, page by page.
async fn buckets(control: &Control, json: bool) -> Result<()> {
    let mut lines = Lines::stdout();
    let mut token = None;
    let mut cycle = CycleGuard::default();
    loop {
        let page = control.list_buckets(token.as_deref()).await?;
        if let Some(token) = &page.next_token {
            let first = page.buckets.first().map(|bucket| bucket.name.as_str());
            cycle.follow(first, token).map_err(|error| error.within("list buckets"))?;
        }
        for bucket in &page.buckets {
            let line = ListedBucket::new(bucket);
            let line = if json { line.to_json() } else { line.to_text() };
            if lines.line(&line)? == ControlFlow::Break(()) {
                return Ok(());
            }
        }
        if lines.flush()? == ControlFlow::Break(()) || page.next_token.is_none() {
            return Ok(());
        }
        token = page.next_token;
    }
}

/// The output and its format.
struct ListOutput {
    json: bool,
    sizes: Sizes,
    filter: Filter,
    lines: Lines,
    total: ListedTotal,
}

impl ListOutput {
    /// Lists all objects of a source; `Break` if the output's reader is gone.
    async fn all(&mut self, control: &Rc<Control>, source: Source) -> Result<ControlFlow<()>> {
        // For very many single objects, lines are not written one by one.
        let flushes = !source.is_object();
        let walk = Walk::new(Rc::clone(control), vec![source], self.filter.clone())?;
        self.walk(walk.for_objects(), flushes).await
    }

    /// Lists all objects of a walk; `flushes` to show them as they come.
    async fn walk(&mut self, mut walk: Walk, flushes: bool) -> Result<ControlFlow<()>> {
        while let Some(batch) = walk.next_batch().await? {
            for entry in batch {
                if self.object(&entry.endpoint, &entry.object)? == ControlFlow::Break(()) {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if flushes && self.lines.flush()? == ControlFlow::Break(()) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Lists the folders and objects of one level, each page in the order of their names. The first
    /// page showed that the folder exists.
    async fn level(&mut self, control: &Control, source: Source) -> Result<ControlFlow<()>> {
        let (prefix, page) = match (&source.found, source.first_page) {
            (SourceKind::Folder { prefix }, Some(page)) => (prefix.as_str(), page),
            _ => unreachable!("a folder was found by its first page"),
        };
        let mut pages = LevelPages::new(control, &source.endpoint.bucket, prefix).from_first(page);
        let (mut seen, mut taken) = (0u64, 0u64);
        while let Some(page) = pages.next().await? {
            let level = in_order(page);
            for named in level {
                let name = named.name();
                let Some(relative) = name.strip_prefix(prefix) else {
                    let message = format!(
                        "list {}: the server returned '{}', which was not requested",
                        source.uri,
                        shown(name)
                    );
                    return Err(Error::new(ErrorKind::Endpoint, message));
                };
                // The marker of the folder itself.
                if relative.is_empty()
                    && matches!(&named, LevelEntry::Object(o) if o.size_bytes == 0)
                {
                    continue;
                }
                seen += 1;
                if !self.filter.takes(relative) {
                    continue;
                }
                taken += 1;
                let printed = match &named {
                    LevelEntry::Folder(key) => self.folder(&source.endpoint, key)?,
                    LevelEntry::Object(object) => self.object(&source.endpoint, object)?,
                };
                if printed == ControlFlow::Break(()) {
                    return Ok(printed);
                }
            }
            if self.lines.flush()? == ControlFlow::Break(()) {
                return Ok(ControlFlow::Break(()));
            }
        }
        if seen > 0 && taken == 0 {
            return Err(leaves_nothing(&source.uri.to_string(), seen));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn object(&mut self, endpoint: &Endpoint, object: &Object) -> Result<ControlFlow<()>> {
        self.total.add(object);
        let line = ListedLine::new(&endpoint.bucket, object);
        let line = if self.json { line.to_json() } else { line.to_text(self.sizes) };
        self.lines.line(&line)
    }

    fn folder(&mut self, endpoint: &Endpoint, key: &str) -> Result<ControlFlow<()>> {
        let line = ListedFolder::new(&endpoint.bucket, key);
        let line = if self.json { line.to_json() } else { line.to_text() };
        self.lines.line(&line)
    }

    /// Prints the summary, unless the output's reader is gone.
    fn end(mut self, summarizes: bool, listed: ControlFlow<()>) -> Result<()> {
        if listed == ControlFlow::Continue(()) && summarizes {
            let _ = self.summarize()?;
        }
        self.lines.flush().map(|_| ())
    }

    fn summarize(&mut self) -> Result<ControlFlow<()>> {
        let total = &self.total;
        let line = if self.json { total.to_json() } else { total.to_text(self.sizes) };
        self.lines.line(&line)
    }
}

/// An entry of one level.
enum LevelEntry {
    Folder(String),
    Object(Object),
}

impl LevelEntry {
    fn name(&self) -> &str {
        match self {
            Self::Folder(name) => name,
            Self::Object(object) => &object.key,
        }
    }
}

/// A page lists objects and folders separately; here in one order.
fn in_order(page: Page) -> Vec<LevelEntry> {
    let objects = page.objects.into_iter().map(LevelEntry::Object);
    let mut all: Vec<LevelEntry> =
        objects.chain(page.folders.into_iter().map(LevelEntry::Folder)).collect();
    all.sort_by(|one, other| one.name().cmp(other.name()));
    all
}
