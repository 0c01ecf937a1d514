//! `inrush mount` and `inrush unmount`: a read-only file system of objects.
//!
//! The sources are listed into a tree, or with `--lazy` each folder when it is used. Workers start,
//! the file system is mounted, and threads answer the kernel until it is unmounted. Without
//! `--foreground` this process starts another one of itself, which does all of that, and exits when
//! the other reports that it serves.

mod background;
mod file_report;
mod mounted;
mod prepare;
mod refreshing;
mod start;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use self::file_report::{FileReport, MountResults};
use self::mounted::{check, counts, print_mounted};
use self::prepare::{Prepared, prepare_until};
use self::refreshing::Refreshing;
use self::start::check_place;
pub(super) use self::start::{Supply, cache, print_pending, print_uncached, start_server};
use super::context::Context;
use super::ending::Done;
use super::ready;
use super::ring;
use super::session::{self, Interrupts};
use crate::cli::{MountArgs, UnmountArgs};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::download::cancel::Cancel as _;
use crate::download::sources;
use crate::engine::pace::Bandwidth;
use crate::error::{Error, ErrorKind, Result};
use crate::mount::serving::attributes::MountOptions;
use crate::mount::serving::detach;
use crate::mount::serving::names::Names;
use crate::mount::serving::server::{Event, Server};
use crate::mount::serving::transport::{self, Transport};
use crate::report::document::RingReport;
use crate::report::progress::Progress;
use crate::sys::process;

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
    let (mut interrupts, mut refreshing) = Refreshing::listen(args.refresh, context)?;
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
    let Prepared { control, names, relisting } = prepared;
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
    refreshing.start(&mut server, relisting);
    let serving = (&mut server, &mut refreshing, &mut report);
    let served = serve(&control, serving, &mut interrupts, &progress).await;
    let mounted = counts(&names);
    let (reads, ring, limit) = (server.reads(), RingReport::new(server.ring()), server.limit());
    let fuse = server.fuse();
    // If it was not yet, and waiting reads have ended.
    let is_left = !server.unmount();
    print_pending(&mut server, &progress);
    context.leaves(|| "the cache has not been synced".to_owned());
    let failed = failure(served.err(), is_left.then(|| left(&point)), &progress);
    let ended = MountResults {
        control: &control,
        mounted,
        ring,
        fuse,
        limit,
        explains: args.explain,
        reads,
        refresh: refreshing.report(),
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

/// The error of a mount that has ended, by why it ended and whether it is left.
fn failure(ended: Option<Error>, left: Option<Error>, progress: &Progress) -> Option<Error> {
    match (ended, left) {
        (Some(error), Some(left)) => {
            progress.error(left);
            Some(error)
        }
        (ended, left) => ended.or(left),
    }
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

/// The attributes of the mount.
fn mount_options(args: &MountArgs) -> MountOptions {
    MountOptions {
        source: args.sources.first().map_or_else(|| "s3://".to_owned(), ToString::to_string),
        allow_other: args.allow_other,
        uid: args.uid,
        gid: args.gid,
        mode: args.mode,
        noexec: args.noexec,
        page_cache: args.page_cache,
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

/// Waits until it is unmounted, a signal comes, or no worker is left.
async fn serve(
    control: &Rc<Control>,
    (server, refreshing, report): (&mut Server, &mut Refreshing, &mut FileReport),
    interrupts: &mut Interrupts,
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
                Event::Refreshed(result) => refreshing.note(result, progress),
                Event::Unmounted(_) => return Ok(()),
                Event::Lost(error) => return Err(error),
            },
            never = refreshing.at_hangups() => match never {},
            never = report.keep_up(progress) => match never {},
            () = &mut refresh => unreachable!("refresh has no end"),
        }
    }
}
