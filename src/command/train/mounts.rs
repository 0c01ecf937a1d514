//! The channels in FastFile mode: each is a mount, which exists before the command starts and is
//! removed when it has ended. All share one set of workers.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::{JoinHandle, spawn_local};

use super::super::mount::{self, Supply, print_pending, print_uncached, start_server};
use super::super::ring;
use super::super::session;
use super::files::AllFound;
use super::input::{self, Sources};
use super::layout::JobFolders;
use super::streams::SharedResources;
use crate::cli::{TrainArgs, TuningArgs};
use crate::command::context::Context;
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::channel::{ChannelSource, Preflight};
use crate::error::{Error, ErrorKind, Result};
use crate::mount::serving::attributes::MountOptions;
use crate::mount::serving::detach::empty_place;
use crate::mount::serving::names::Names;
use crate::mount::serving::reads::Reads;
use crate::mount::serving::server::{Event, Server};
use crate::mount::serving::transport::Transport;
use crate::report::document::CacheCounts;
use crate::report::progress::Progress;
use crate::s3::uri::shown;
use crate::text::size::{Decimal, counted};
use crate::train::{InputMode, TrainingInput};

/// A channel before it is mounted.
struct Ready {
    name: String,
    point: PathBuf,
    source: String,
    names: Arc<Names>,
}

/// Channels that are served.
pub(super) struct Mounts {
    server: Server,
    refresh: JoinHandle<()>,
    ready: Vec<Ready>,
    names: Vec<String>,
}

impl Drop for Mounts {
    fn drop(&mut self) {
        self.refresh.abort();
    }
}

impl Mounts {
    /// Takes the channels in FastFile mode from the survey, and starts their workers; `None` if
    /// there are none. Nothing is mounted yet.
    pub(super) async fn prepare(
        (args, input, layout, sources): (&TrainArgs, &TrainingInput, &JobFolders, &Sources),
        control: &Rc<Control>,
        found: &mut AllFound,
        shared: &SharedResources,
        begun: Instant,
    ) -> Result<Option<Self>> {
        let mut ready = Vec::new();
        for (place, (channel, source)) in input::files(input, sources).enumerate() {
            if channel.mode != InputMode::FastFile {
                continue;
            }
            let name = channel.name.clone();
            let within = |error: Error| error.within(format!("channel {name}"));
            let point = layout.channel(channel);
            let point = blocking(move || empty_place(&point)).await.map_err(within)?;
            let names = names(control, source, &mut found[place].0).await.map_err(within)?;
            let source = input::address(&channel.data);
            ready.push(Ready { name, point, source, names });
        }
        if ready.is_empty() {
            return Ok(None);
        }
        // Programs determine the reads.
        let tuning = TuningArgs { part_size: None, ..args.tuning.clone() };
        let server = start_server(Supply {
            cache: mount::cache(&args.cache).await?,
            // Each channel would need its own queues.
            fuse: Transport::Device("a channel of train"),
            context: &shared.context,
            control,
            tuning: &tuning,
            tls: shared.tls.clone(),
            retries: session::retries(&args.service, args.tuning.max_attempts),
            bandwidth: shared.bandwidth.clone(),
            // The run's deadline ends everything.
            deadline: None,
            begun,
        })?;
        let refresh = spawn_local(session::refresh(Rc::clone(control)));
        Ok(Some(Self { server, refresh, ready, names: Vec::new() }))
    }

    /// Mounts all of them. The future must not be dropped, like that of [`Server::mount`].
    pub(super) async fn mount(&mut self, context: &Context, progress: &Progress) -> Result<()> {
        ring::report_fallback(self.server.ring(), context, progress);
        // The command of a job started by root may run as another user.
        let allow_other = rustix::process::geteuid().is_root();
        for Ready { name, point, source, names } in std::mem::take(&mut self.ready) {
            let look = MountOptions { source, allow_other, ..MountOptions::default() };
            let totals = names.totals();
            self.names.push(name.clone());
            let mounted = self.server.mount(&point, names, &look).await;
            mounted.map_err(|error| error.within(format!("channel {name}")))?;
            let files = counted(totals.files, "file", "files");
            progress.note(format!("channel {name}: mounted, {files}, {}", Decimal(totals.bytes)));
        }
        Ok(())
    }

    /// Waits until the input fails. Cancel safe.
    pub(super) async fn failure(&mut self, progress: &Progress) -> Error {
        let (number, error) = loop {
            match self.server.next().await {
                Event::ReadFailed(number, error) => break (number, error),
                Event::Lost(error) => return error.within("channels in FastFile mode"),
                // Reads then come from the server, as without a cache.
                // Channels are not listed again.
                Event::Refreshed(..) => {}
                Event::Uncached(uncached) => print_uncached(uncached, progress),
                Event::Unmounted(number) => {
                    let message = "somebody has unmounted it while the job ran".to_owned();
                    break (number, Error::new(ErrorKind::Destination, message));
                }
            }
        };
        self.within(number, error)
    }

    /// Removes all of them; returns the cache's counters, if there is one. The cache is synced when
    /// this is dropped, which may take long.
    pub(super) fn end(&mut self, progress: &Progress) -> Option<CacheCounts> {
        self.server.unmount();
        print_pending(&mut self.server, progress);
        self.server.cache()
    }

    /// Ends them. Cached objects are synced, which may take long.
    pub(super) fn close(&mut self, progress: &Progress) {
        self.server.close();
        print_pending(&mut self.server, progress);
    }

    fn within(&self, number: usize, error: Error) -> Error {
        error.within(format!("channel {}", self.names[number]))
    }

    /// The next failed read, if there is one.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        let (number, error) = self.server.take_failure()?;
        Some(self.within(number, error))
    }

    /// A handle that can end all reads.
    pub(super) fn reads(&self) -> Arc<Reads> {
        self.server.reads()
    }
}

/// The files of a channel: this host's part of the listing, which is listed again if it was not
/// retained.
async fn names(
    control: &Rc<Control>,
    source: &ChannelSource,
    found: &mut Preflight,
) -> Result<Arc<Names>> {
    let source = ChannelSource { folder: String::new(), ..source.clone() };
    let entries = control.channel_entries([(source, found.kept.take())]).await?;
    let names = Names::listed(entries).await?;
    // Keys without a name were refused before the job began, unless they are new.
    match names.hidden_keys().first() {
        None => Ok(Arc::new(names)),
        Some((key, problem)) => {
            let error = Error::new(ErrorKind::Destination, problem.explain());
            Err(error.within(shown(key)))
        }
    }
}
