//! `inrush mount` and `inrush unmount`: a read-only file system of objects.
//!
//! The sources are listed into a tree; then workers start, the kernel is told, and threads answer
//! it until somebody unmounts. Without `--foreground` this process starts another one of itself,
//! which does all of that, and ends when the other says that it serves.

mod background;
mod detach;
mod reader;
mod view;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fuser::{Config as SessionConfig, MountOption, Session, SessionACL};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

use self::reader::Reader;
use self::view::View;
use super::aside::aside;
use super::ending::Done;
use super::get;
use super::interrupts;
use super::ready;
use super::ring;
use super::session::{self, Interrupts};
use super::sources::{self, Narrowed};
use crate::cli::{MountArgs, UnmountArgs};
use crate::control::Control;
use crate::control::walk::Walk;
use crate::engine::config::{Config, HostFacts};
use crate::engine::threads::{RunSetup, Workers};
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host::Persistence;
use crate::limits::{
    MOUNT_ERRORS_TOLD_MAX, MOUNT_READ_BYTES_MAX, MOUNT_READAHEAD_KIB, MOUNT_THREADS_MAX,
};
use crate::mount::tree::{Builder, Hidden, Tree};
use crate::plan::filter::Filter;
use crate::report::out::Lines;
use crate::report::progress::Progress;
use crate::s3::uri::shown;
use crate::text::size::{Binary, Count, counted};

/// Removes a mount.
pub(super) fn unmount(args: &UnmountArgs) -> Result<Done> {
    let point = detach::place(&args.mountpoint)?;
    detach::ours(&point)?;
    detach::detach(&point)?;
    Ok(Done::default())
}

/// Mounts, and serves until it is unmounted; or has another process do so.
pub(super) async fn run(mut args: MountArgs, begun: Instant) -> Result<Done> {
    if !args.foreground && !args.child && !args.check {
        return background::start().await;
    }
    let progress = Progress::new(!args.quiet);
    ring::require(ring::choice(args.tuning.ring)?)?;
    let deadline = args.deadline.map(|deadline| begun + deadline);
    let mut interrupts = Interrupts::listen()?;
    interrupts::leaves(|| "a system call has not returned; the mount may be left".to_owned());
    session::raise_descriptor_limit();
    interrupts.unless(sources::add(&mut args.sources, &args.selection)).await?;
    let point = match &args.mountpoint {
        Some(point) if !args.check => Some(detach::empty_place(point)?),
        _ => None,
    };
    let prepared = async {
        tokio::select! {
            prepared = prepare(&mut args, &progress) => prepared,
            () = interrupts::until(deadline) => {
                let blame = interrupts::blame();
                let message = format!("the deadline has passed before it was mounted{blame}");
                Err(Error::new(ErrorKind::Deadline, message).advise("give a longer --deadline"))
            }
        }
    };
    let prepared = interrupts.unless_told("before it was mounted", prepared).await?;
    let Prepared { control, tree, hidden } = prepared;
    let Some(point) = point else { return check(&tree, &hidden) };
    let (errors, told) = mpsc::channel(MOUNT_ERRORS_TOLD_MAX);
    let workers = start_workers(&args, &control, begun).await?;
    ring::tell(workers.ring(), &progress);
    let tree = Arc::new(tree);
    let reader = Reader::start(&workers, args.deadline, errors)?;
    let view = View::new(Arc::clone(&tree), Arc::clone(&reader.shared), &args);
    let source = args.sources.first().map_or_else(|| "s3://".to_owned(), ToString::to_string);
    let (session, ended) = mount(&point, view, &source, &args, reader.chunk_bytes()).await?;
    let mounted = Mounted { point: point.clone() };
    tell_mounted(&tree, &hidden, &point, &progress);
    let names = [point.display().to_string()];
    let _ready = match args.ready_file.clone() {
        Some(path) => Some(aside(move || ready::tell(&path, &names)).await?),
        None => None,
    };
    if args.child {
        background::say_ready(args.log_file.as_deref())?;
    }
    let served = serve((&control, &workers), ended, told, &mut interrupts, &progress).await;
    drop(mounted);
    reader.stop();
    drop(session);
    served.map(|()| Done::default())
}

/// What is to be mounted.
struct Prepared {
    control: Rc<Control>,
    tree: Tree,
    hidden: Hidden,
}

/// Lists all sources into a tree.
async fn prepare(args: &mut MountArgs, progress: &Progress) -> Result<Prepared> {
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, progress).await?;
    let filter = Filter::new(&args.selection.rules)?;
    let narrowed = Narrowed { filter, shard: args.shard };
    let narrowed =
        sources::add_manifest(&control, &mut args.sources, &args.selection, narrowed).await?;
    let Narrowed { filter, shard } = narrowed;
    let found = control.resolve_all(&args.sources).await?;
    super::log::sources(&found);
    let walk = Walk::new(control.clone(), found, filter)?.sharded(shard)?.without_repeated();
    let builder = list(walk, &control).await?;
    let (tree, hidden) = aside(move || builder.finish(now_seconds())).await;
    Ok(Prepared { control, tree, hidden })
}

async fn list(mut walk: Walk, control: &Rc<Control>) -> Result<Builder> {
    let upkeep = spawn_local(session::upkeep(Rc::clone(control)));
    let mut builder = Builder::default();
    let listed = async {
        while let Some(batch) = walk.next_batch().await? {
            for entry in batch {
                let key = &entry.object.key;
                match &entry.path {
                    Err(problem) => builder.hide(key, *problem),
                    Ok(path) => {
                        let length = path.as_str().len() + usize::from(entry.folder);
                        let start = key.len().checked_sub(length).ok_or_else(|| {
                            Error::bug(format!("the path of {} is longer", shown(key)))
                        })?;
                        builder.add(&entry.object, &entry.endpoint, start)?;
                    }
                }
            }
        }
        Ok(())
    };
    let listed = listed.await;
    upkeep.abort();
    listed.map(|()| builder)
}

fn now_seconds() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "what has no time has that of the mount")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// Prints what would be mounted, and the keys that would be hidden.
fn check(tree: &Tree, hidden: &Hidden) -> Result<Done> {
    let mut lines = Lines::stdout();
    let mut print = |line: &str| lines.line(line);
    for (key, problem) in hidden.keys() {
        if print(&format!("hidden: {}: {problem}", shown(key)))?.is_break() {
            return Ok(Done::default());
        }
    }
    let rest = hidden.count() - hidden.keys().len() as u64;
    if rest > 0 && print(&format!("hidden: {} more", Count(rest)))?.is_break() {
        return Ok(Done::default());
    }
    let _ = print(&summary(tree, hidden))?;
    lines.flush().map(|_| Done::default())
}

fn summary(tree: &Tree, hidden: &Hidden) -> String {
    let totals = tree.totals();
    let files = counted(totals.files, "file", "files");
    let hidden = match hidden.count() {
        0 => String::new(),
        count => format!(", {} hidden", counted(count, "key", "keys")),
    };
    format!("{files}, {}{hidden}", Binary(totals.bytes))
}

fn tell_mounted(tree: &Tree, hidden: &Hidden, point: &Path, progress: &Progress) {
    progress.note(format!("mounted at {}: {}", point.display(), summary(tree, hidden)));
    if hidden.count() > 0 {
        progress.note("keys that cannot be names are hidden: inrush mount --check lists them");
    }
}

/// Starts the workers that bring what is read.
async fn start_workers(args: &MountArgs, control: &Rc<Control>, begun: Instant) -> Result<Workers> {
    let options = get::options(&args.tuning)?;
    let tls = session::tls(control, &args.sources).await?;
    let config = Config::resolve(options, HostFacts::read())?;
    let config = if tls.is_some() { config.secured() } else { config };
    super::log::config(&config);
    Workers::start(RunSetup {
        config,
        destination: None,
        keeping: Persistence::default(),
        tls,
        keys: control.keys(),
        retries: session::retries(&args.service, args.tuning.max_attempts),
        bandwidth: session::bandwidth(args.tuning.bandwidth_limit),
        begun,
    })
}

/// Unmounts when it goes.
struct Mounted {
    point: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Where it is not ours any more it was unmounted, or covered, by somebody else.
        if detach::ours(&self.point).is_ok() {
            let _ = detach::detach(&self.point);
        }
    }
}

/// What of the session is kept: nothing that unmounts, for that is done here.
type SessionThread = std::thread::JoinHandle<()>;

/// Tells the kernel, and starts the threads that answer it; the receiver is told when they end.
async fn mount(
    point: &Path,
    view: View,
    source: &str,
    args: &MountArgs,
    read_bytes: u64,
) -> Result<(SessionThread, oneshot::Receiver<std::io::Result<()>>)> {
    let read_bytes = read_bytes.min(u64::from(MOUNT_READ_BYTES_MAX));
    let mut config = SessionConfig::default();
    config.mount_options = vec![
        MountOption::FSName(source.to_owned()),
        // The library has an option for it, which it passes to fusermount alone.
        MountOption::CUSTOM("subtype=inrush".to_owned()),
        MountOption::CUSTOM(format!("max_read={read_bytes}")),
        MountOption::RO,
        MountOption::DefaultPermissions,
    ];
    config.acl = if args.allow_other { SessionACL::All } else { SessionACL::Owner };
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    config.n_threads = Some(processors.clamp(2, MOUNT_THREADS_MAX));
    config.clone_fd = true;
    let place = point.to_owned();
    let session = aside(move || Session::new(view, &place, &config)).await;
    let session = session.map_err(|error| {
        let message = format!("cannot mount on {}: {error}", point.display());
        Error::new(ErrorKind::Host, message).advise(
            "check that /dev/fuse is there, and that you are root or have fusermount3 (fuse3)",
        )
    })?;
    let (tell, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("inrush-mount".to_owned());
    let thread = thread.spawn(move || {
        let _ = tell.send(session.run());
    });
    let thread = thread.map_err(Error::no_thread)?;
    let place = point.to_owned();
    aside(move || widen_readahead(&place)).await;
    Ok((thread, ended))
}

/// Has the kernel read on in pieces as long as its requests may be. Only root may; others go on
/// with its usual 128 KiB.
fn widen_readahead(point: &Path) {
    let Ok(mounted) = detach::ours(point) else { return };
    let path = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device);
    if let Err(error) = std::fs::write(&path, MOUNT_READAHEAD_KIB.to_string()) {
        tracing::info!("{path} stays as it is: {error}");
    }
}

/// Waits until somebody unmounts, a signal comes, or no worker is left.
async fn serve(
    (control, workers): (&Rc<Control>, &Workers),
    mut ended: oneshot::Receiver<std::io::Result<()>>,
    mut told: mpsc::Receiver<Error>,
    interrupts: &mut Interrupts,
    progress: &Progress,
) -> Result<()> {
    let upkeep = session::upkeep(Rc::clone(control));
    tokio::pin!(upkeep);
    loop {
        tokio::select! {
            biased;
            () = interrupts.next() => {
                return Err(Error::new(ErrorKind::Interrupted, "interrupted: it is unmounted"));
            }
            end = &mut ended => return match end {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    let message = format!("the connection to the kernel broke: {error}");
                    Err(Error::new(ErrorKind::Host, message))
                }
                Err(_) => Err(Error::bug("the threads of the mount have ended")),
            },
            error = told.recv() => {
                let Some(error) = error else {
                    return Err(Error::bug("the thread that completes reads has ended"));
                };
                progress.error(&error);
            }
            () = workers.worker_ended() => {
                if workers.has_ended() {
                    let lost = || Error::new(ErrorKind::Host, "all workers have ended");
                    return Err(workers.scheduler.stop_reason().unwrap_or_else(lost));
                }
            }
            () = &mut upkeep => unreachable!("upkeep has no end"),
        }
    }
}
