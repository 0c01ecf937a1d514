//! Starts the server of a command's mounts: its resources and its cache by the options, its numbers
//! for the exports, and what it prints.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::cli::{CacheArgs, TuningArgs};
use crate::command::context::Context;
use crate::command::{get, log};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::engine::pace::Bandwidth;
use crate::error::{Error, ErrorKind, Result};
use crate::files::cache::Cache;
use crate::link::attempt::RetryPolicy;
use crate::mount::serving::cache_writer::Uncached;
use crate::mount::serving::server::{MountResources, Server, ServerParts};
use crate::mount::serving::transport::Transport;
use crate::report::progress::Progress;

/// The parameters of a server.
pub(in crate::command) struct Supply<'a> {
    pub(in crate::command) context: &'a Arc<Context>,
    pub(in crate::command) control: &'a Rc<Control>,
    pub(in crate::command) tuning: &'a TuningArgs,
    pub(in crate::command) tls: Option<Arc<ClientConfig>>,
    pub(in crate::command) retries: RetryPolicy,
    pub(in crate::command) bandwidth: Option<Arc<Bandwidth>>,
    /// Longest duration of a read.
    pub(in crate::command) deadline: Option<Duration>,
    pub(in crate::command) begun: Instant,
    /// The cache of read objects.
    pub(in crate::command) cache: Option<Cache>,
    /// The transport of the kernel's requests.
    pub(in crate::command) fuse: Transport,
}

/// Starts the workers; nothing is mounted yet.
///
/// # Errors
/// If the machine has not enough resources for them.
pub(in crate::command) fn start_server(supply: Supply<'_>) -> Result<Server> {
    let Supply { context, control, tuning, tls, retries, bandwidth, .. } = supply;
    let Supply { deadline, begun, cache, fuse, .. } = supply;
    let resources = MountResources::resolve(get::options(tuning)?, fuse, tls.is_some())?;
    log::config(&resources.config);
    let exports = Arc::clone(context);
    let server = Server::start(ServerParts {
        control,
        resources,
        tls,
        retries,
        bandwidth,
        bandwidth_limit: tuning.bandwidth_limit,
        deadline,
        begun,
        cache,
        on_end: Box::new(move |reads| exports.exported.show_reads(reads)),
    })?;
    log::places(&server.workers().places_in_words());
    context.exported.watch(server.workers());
    let reads = Arc::downgrade(&server.reads());
    context.exported.watch_reads(move || reads.upgrade().map(|reads| reads.all()));
    Ok(server)
}

/// Refuses a cache that the mount would cover.
pub(super) fn check_place(args: &CacheArgs, point: &Path) -> Result<()> {
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
pub(in crate::command) async fn cache(args: &CacheArgs) -> Result<Option<Cache>> {
    let CacheArgs { cache: Some(folder), cache_size } = args.clone() else { return Ok(None) };
    blocking(move || Cache::open(&folder, cache_size)).await.map(Some)
}

/// Prints a report of objects that are not cached.
pub(in crate::command) fn print_uncached(uncached: Uncached, progress: &Progress) {
    match uncached {
        Uncached::Rest(error) => progress.error(error),
        Uncached::NoRoom(why) => progress.note(why),
    }
}

/// Prints the pending reports of objects that are not cached.
pub(in crate::command) fn print_pending(server: &mut Server, progress: &Progress) {
    while let Some(uncached) = server.take_uncached() {
        print_uncached(uncached, progress);
    }
}
