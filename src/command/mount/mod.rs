//! `inrush mount` and `inrush unmount`: a read-only file system of objects.
//!
//! The sources are listed into a tree, or with `--lazy` each folder when it is used. Workers start,
//! the file system is mounted, and threads answer the kernel until it is unmounted. Without
//! `--foreground` this process starts another one of itself, which does all of that, and exits when
//! the other reports that it serves.

mod background;
mod file_report;
mod start;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::spawn_local;

use self::file_report::{FileReport, MountResults};
pub(super) use self::start::{Supply, print_pending, print_uncached, start_server};
use super::context::Context;
use super::ending::Done;
use super::ready;
use super::ring;
use super::session::{self, Interrupts};
use crate::cli::{CacheArgs, MountArgs, UnmountArgs};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::ahead::ResolveAhead;
use crate::control::list::sources::{Depth, SourceKind};
use crate::control::list::walk::Walk;
use crate::download::cancel::{Cancel as _, until};
use crate::download::sources::{self, Narrowed};
use crate::engine::pace::Bandwidth;
use crate::error::{Error, ErrorKind, Result};
use crate::files::cache::Cache;
use crate::mount::serving::attributes::MountOptions;
use crate::mount::serving::detach;
use crate::mount::serving::names::{LazyNames, Names};
use crate::mount::serving::server::{Event, Server};
use crate::mount::serving::transport::{self, Transport};
use crate::plan::filter::Filter;
use crate::plan::path::PathProblem;
use crate::report::document::{MountedCounts, RingReport};
use crate::report::out::Lines;
use crate::report::progress::Progress;
use crate::s3::uri::{S3Uri, shown};
use crate::sys::process;
use crate::text::size::{Binary, Count, counted};

/// Unmounts.
pub(super) fn unmount(args: &UnmountArgs) -> Result<Done> {
    let point = detach::place(&args.mountpoint)?;
    detach::ours(&point)?;
    detach::detach(&point)?;
    Ok(Done::default())
}

/// Mounts, and serves until it is unmounted; or starts a background process for that.
pub(super) async fn run(
    mut args: MountArgs,
    begun: Instant,
    context: &Arc<Context>,
) -> Result<Done> {
    if args.fake {
        return Ok(Done::default());
    }
    if !args.foreground && !args.child && !args.check {
        return background::start(context).await;
    }
    let progress = context.messages.progress(!args.messages.quiet);
    ring::require(ring::choice(args.tuning.ring)?)?;
    let fuse = transport::choice(args.fuse)?;
    let deadline = args.deadline.map(|deadline| begun + deadline);
    let mut interrupts = Interrupts::listen(context)?;
    context.leaves(|| "a system call has not returned; the mount may be left".to_owned());
    process::raise_descriptor_limit();
    let added = sources::add(&mut args.sources, &args.selection, &context.board);
    interrupts.unless(added).await?;
    let point = match &args.mountpoint {
        Some(point) if !args.check => Some(detach::empty_place(point)?),
        _ => None,
    };
    let prepared = prepare_until(deadline, &mut args, (context, &progress));
    let prepared = interrupts.unless_reported("before it was mounted", prepared).await?;
    let Prepared { control, names } = prepared;
    let Some(point) = point else { return check(&names) };
    let mut report = FileReport::open(args.report.as_deref(), &mut interrupts).await?;
    let transport = Transport::new(fuse, (!args.lazy).then(|| names.totals()));
    let mut server = start(&args, &point, transport, (context, &control), begun).await?;
    if let Some(sender) = report.take_sender() {
        server.reads().report_closed(sender);
    }
    ring::report_fallback(server.ring(), context, &progress);
    // While the terminal is there.
    print_pending(&mut server, &progress);
    let names = Arc::new(names);
    server.mount(&point, Arc::clone(&names), &mount_options(&args)).await?;
    let _ready = say_ready(&args, &names, &point, &progress).await?;
    let served = serve(&control, &mut server, &mut interrupts, &mut report, &progress).await;
    let mounted = counts(&names);
    let (reads, ring, limit) = (server.reads(), RingReport::new(server.ring()), server.limit());
    let fuse = server.fuse();
    // If it was not yet, and waiting reads have ended.
    let is_left = !server.unmount();
    print_pending(&mut server, &progress);
    context.leaves(|| "the cache has not been synced".to_owned());
    let failed = match (served, is_left) {
        (Ok(()), false) => None,
        (Ok(()), true) => Some(left(&point)),
        (Err(error), false) => Some(error),
        (Err(error), true) => {
            progress.error(left(&point));
            Some(error)
        }
    };
    let ended = MountResults {
        control: &control,
        mounted,
        ring,
        fuse,
        limit,
        explains: args.explain,
        reads,
        begun,
        json: args.json,
        failed,
        is_left,
    };
    let done = ended.conclude(report, &progress, &mut interrupts).await;
    server.close();
    print_pending(&mut server, &progress);
    Ok(done)
}

/// The error of a failed unmount.
fn left(point: &Path) -> Error {
    let point = point.display();
    let message = format!("{point} is still mounted: it cannot be unmounted");
    Error::new(ErrorKind::Host, message).advise(format!("unmount it with: inrush unmount {point}"))
}

/// Reports that it serves; the ready file exists until the result is dropped.
async fn say_ready(
    args: &MountArgs,
    names: &Names,
    point: &Path,
    progress: &Progress,
) -> Result<Option<ready::ReadyFile>> {
    let lines = [point.display().to_string()];
    // Before any report that it is mounted: if the file cannot be written the mount is removed.
    let log = if args.child { background::open_log(args.log_file.as_deref())? } else { None };
    let file = match args.ready_file.clone() {
        Some(path) => Some(blocking(move || ready::announce(&path, &lines)).await?),
        None => None,
    };
    print_mounted(names, point, progress);
    if args.child {
        background::say_ready(log.as_ref())?;
    }
    Ok(file)
}

/// Counts of the mounted objects.
fn counts(names: &Names) -> MountedCounts {
    let totals = names.totals();
    MountedCounts {
        files: totals.files,
        bytes: totals.bytes,
        hidden_keys: names.hidden_count(),
        lazy: matches!(names, Names::Lazy(_)),
    }
}

/// The attributes of the mount.
fn mount_options(args: &MountArgs) -> MountOptions {
    MountOptions {
        source: args.sources.first().map_or_else(|| "s3://".to_owned(), ToString::to_string),
        allow_other: args.allow_other,
        uid: args.uid,
        gid: args.gid,
        mode: args.mode,
        noexec: args.noexec,
    }
}

/// The sources to mount.
struct Prepared {
    control: Rc<Control>,
    names: Names,
}

/// Runs [`prepare`] until the deadline.
async fn prepare_until(
    deadline: Option<Instant>,
    args: &mut MountArgs,
    (context, progress): (&Arc<Context>, &Progress),
) -> Result<Prepared> {
    tokio::select! {
        prepared = prepare(args, (context, progress)) => prepared,
        () = until(deadline) => {
            let blame = context.blame();
            let message = format!("the deadline has passed before it was mounted{blame}");
            Err(Error::new(ErrorKind::Deadline, message).advise("give a longer --deadline"))
        }
    }
}

/// Lists all sources, or only checks if there is one.
async fn prepare(
    args: &mut MountArgs,
    (context, progress): (&Arc<Context>, &Progress),
) -> Result<Prepared> {
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, (context, progress)).await?;
    if args.lazy {
        let names = Names::Lazy(lazy(&control, &args.sources).await?);
        return Ok(Prepared { control, names });
    }
    let filter = Filter::new(&args.selection.rules)?;
    let narrowed = Narrowed { filter, shard: args.shard };
    let (uris, board) = (&mut args.sources, &context.board);
    let narrowed = sources::add_manifest(&control, uris, &args.selection, narrowed, board).await?;
    let Narrowed { filter, shard } = narrowed;
    let found = control.resolve_all(&args.sources).await?;
    super::log::sources(&found);
    let walk = Walk::new(control.clone(), found, filter)?.sharded(shard)?.without_repeated();
    let refresh = spawn_local(session::refresh(Rc::clone(&control)));
    let names = Names::listed(walk.into()).await;
    refresh.abort();
    Ok(Prepared { control, names: names? })
}

/// Names without a listing. One request shows that the folder exists, and may be listed.
async fn lazy(control: &Rc<Control>, sources: &[S3Uri]) -> Result<LazyNames> {
    let mut found = ResolveAhead::new(Rc::clone(control), sources.to_vec(), Depth::First);
    let source = found.next().await?.ok_or_else(|| Error::bug("a mount without a source"))?;
    super::log::sources(std::slice::from_ref(&source));
    let SourceKind::Folder { prefix } = source.found else {
        let message = format!("{}: this is an object, but --lazy mounts a folder", source.uri);
        return Err(Error::new(ErrorKind::Usage, message).advise("omit --lazy"));
    };
    Ok(LazyNames::new(source.uri.bucket, prefix))
}

/// Prints the names that would be mounted, and the keys that would be hidden.
fn check(names: &Names) -> Result<Done> {
    let mut lines = Lines::stdout();
    let mut print = |line: &str| lines.line(line);
    let hidden = names.hidden_keys();
    for (key, problem) in hidden {
        let why = why_hidden(*problem);
        if print(&format!("hidden: {}: {why}", shown(key)))?.is_break() {
            return Ok(Done::default());
        }
    }
    let rest = names.hidden_count() - hidden.len() as u64;
    if rest > 0 && print(&format!("hidden: {} more", Count(rest)))?.is_break() {
        return Ok(Done::default());
    }
    let _ = print(&summary(names))?;
    lines.flush().map(|_| Done::default())
}

/// Why a key is hidden: below a mount point, not in a folder of files.
fn why_hidden(problem: PathProblem) -> String {
    match problem {
        PathProblem::DotSegment => "the key has a '.' or '..' between slashes, which would be \
             another folder below the mount point: use --exclude"
            .to_owned(),
        PathProblem::Duplicate { .. } => "another source has the same name: give each a mount \
             point of its own"
            .to_owned(),
        problem => problem.explain(),
    }
}

fn summary(names: &Names) -> String {
    let totals = names.totals();
    let files = counted(totals.files, "file", "files");
    let hidden = match names.hidden_count() {
        0 => String::new(),
        count => format!(", {} hidden", counted(count, "key", "keys")),
    };
    format!("{files}, {}{hidden}", Binary(totals.bytes))
}

fn print_mounted(names: &Names, point: &Path, progress: &Progress) {
    let point = point.display();
    if let Names::Lazy(_) = names {
        return progress.note(format!("mounted at {point}: folders are listed when they are used"));
    }
    progress.note(format!("mounted at {point}: {}", summary(names)));
    let hidden = names.hidden_count();
    let repeated = names.repeated_count();
    if repeated > 0 {
        let keys = counted(repeated, "key is", "keys are");
        progress.note(format!(
            "{keys} hidden because another source has the same name: see inrush mount --check"
        ));
    }
    if hidden > repeated {
        progress.note("keys that cannot be names are hidden: inrush mount --check lists them");
    }
}

/// Starts the workers that download the requested bytes.
async fn start(
    args: &MountArgs,
    point: &Path,
    fuse: Transport,
    (context, control): (&Arc<Context>, &Rc<Control>),
    begun: Instant,
) -> Result<Server> {
    check_place(&args.cache, point)?;
    start_server(Supply {
        context,
        control,
        tuning: &args.tuning,
        tls: control.tls_for(&args.sources).await?,
        retries: session::retries(&args.service, args.tuning.max_attempts),
        bandwidth: Bandwidth::of(args.tuning.bandwidth_limit),
        deadline: args.deadline,
        begun,
        cache: cache(&args.cache).await?,
        fuse,
    })
}

/// Refuses a cache that the mount would cover.
fn check_place(args: &CacheArgs, point: &Path) -> Result<()> {
    let Some(folder) = &args.cache else { return Ok(()) };
    // A folder that does not exist yet has no links.
    let place = folder.canonicalize().or_else(|_| std::path::absolute(folder));
    if !place.is_ok_and(|place| place.starts_with(point)) {
        return Ok(());
    }
    let message = format!("--cache {} is below the mount point", folder.display());
    Err(Error::new(ErrorKind::Usage, message).advise("give a folder elsewhere"))
}

/// Opens the cache folder, if given.
pub(super) async fn cache(args: &CacheArgs) -> Result<Option<Cache>> {
    let CacheArgs { cache: Some(folder), cache_size } = args.clone() else { return Ok(None) };
    blocking(move || Cache::open(&folder, cache_size)).await.map(Some)
}

/// Waits until it is unmounted, a signal comes, or no worker is left.
async fn serve(
    control: &Rc<Control>,
    server: &mut Server,
    interrupts: &mut Interrupts,
    report: &mut FileReport,
    progress: &Progress,
) -> Result<()> {
    let refresh = session::refresh(Rc::clone(control));
    tokio::pin!(refresh);
    loop {
        tokio::select! {
            biased;
            () = interrupts.next() => {
                // Errors that programs have already got are reported before the end.
                while let Some((_, error)) = server.take_failure() {
                    progress.error(&error);
                }
                return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
            }
            event = server.next() => match event {
                Event::ReadFailed(_, error) => progress.error(&error),
                Event::Uncached(uncached) => print_uncached(uncached, progress),
                Event::Unmounted(_) => return Ok(()),
                Event::Lost(error) => return Err(error),
            },
            never = report.keep_up(progress) => match never {},
            () = &mut refresh => unreachable!("refresh has no end"),
        }
    }
}
