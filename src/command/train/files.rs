//! The channels in File mode: complete before the command starts. One run downloads all those below
//! one folder, from the listings of the survey.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::super::get::{self, Ended};
use super::super::output::Output;
use super::super::session::Interrupts;
use super::input::{self, Sources};
use super::layout::JobFolders;
use super::streams::SharedResources;
use super::survey::OtherFiles;
use crate::cli::{Destination, FailureArgs, GetArgs, GetVerb, SelectionArgs, TrainArgs};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::channel::{ChannelSource, Preflight};
use crate::download::cancel::Cancel as _;
use crate::download::job::{DownloadJob, OfChannels, Resolved};
use crate::download::run::Shares;
use crate::download::target::Target;
use crate::engine::config::{Config, HostFacts};
use crate::error::{Error, Result};
use crate::plan::epoch::Shard;
use crate::report::document::{AllFilesSummary, FilesSummary};
use crate::train::{Channel, InputMode, TrainingInput};

/// The preflight of each channel in File or FastFile mode, in their order, and the other files in
/// its folder.
pub(super) type AllFound = Vec<(Preflight, OtherFiles)>;

/// The parameters of the downloads.
pub(super) struct Downloads<'a> {
    pub(super) args: &'a TrainArgs,
    pub(super) input: &'a TrainingInput,
    pub(super) layout: &'a JobFolders,
    pub(super) sources: &'a Sources,
    pub(super) control: Rc<Control>,
    pub(super) begun: Instant,
    /// Only errors are printed: the command already runs.
    pub(super) is_quiet: bool,
    /// The resources shared with channels in Pipe mode.
    pub(super) shared: SharedResources,
}

/// A channel to download.
struct WantedChannel<'a> {
    channel: &'a Channel,
    source: ChannelSource,
    found: Preflight,
    others: OtherFiles,
}

impl WantedChannel<'_> {
    /// Its report before the download.
    fn result(&self) -> FilesSummary {
        FilesSummary { other_files: self.others.count, ..FilesSummary::new(&self.channel.name) }
    }

    /// Its notes before the download.
    fn notes(&self) -> impl Iterator<Item = String> {
        let none = (self.entries() == Some(0)).then(|| "no objects".to_owned());
        let notes = [none, self.found.repeated.clone(), self.others.in_words()];
        notes.into_iter().flatten().map(|note| format!("channel {}: {note}", self.channel.name))
    }

    /// Objects and folder markers to come; `None` if the channel is listed again.
    fn entries(&self) -> Option<u64> {
        self.found.kept.as_ref().map(|_| self.found.shard_objects + self.found.marks)
    }
}

/// Channels below one folder, which one run downloads.
struct Group<'a> {
    folder: PathBuf,
    channels: Vec<WantedChannel<'a>>,
}

impl Group<'_> {
    fn bytes(&self) -> u64 {
        self.channels.iter().map(|wanted| wanted.found.shard_bytes).sum()
    }

    /// Prefix of the lines about all of it.
    fn label(&self) -> String {
        match self.channels.as_slice() {
            [wanted] => format!("channel {}", wanted.channel.name),
            _ => "files".to_owned(),
        }
    }

    /// The counters per channel.
    fn shares(&self, data: &Path) -> Shares {
        let is_below = self.folder == data;
        let mut shares = if is_below { Shares::by_folder() } else { Shares::whole() };
        for wanted in &self.channels {
            shares.push(wanted.result(), wanted.entries());
        }
        shares
    }
}

impl Downloads<'_> {
    /// Downloads the channels in File mode; adds the results of each.
    ///
    /// # Errors
    /// That of the first run that is not complete; with `true` if it was already printed.
    pub(super) async fn run(
        &self,
        found: AllFound,
        interrupts: &mut Interrupts,
        results: &mut AllFilesSummary,
    ) -> Result<(), (Error, bool)> {
        for group in self.groups(found).await {
            let label = group.label();
            let is_one = group.channels.len() == 1;
            let within = |error: Error| if is_one { error.within(&label) } else { error };
            let ended = self.download(group, &label, interrupts, results).await;
            let Some(ended) = ended.map_err(|error| (within(error), false))? else { continue };
            let Ended { summary, error, shares, .. } = ended;
            results.downloads.extend(summary);
            results.files.extend(shares.into_iter().flat_map(Shares::into_results));
            if let Some(error) = error {
                // An object's error names its channel.
                return Err((error, true));
            }
        }
        Ok(())
    }

    /// The channels by the folder of their run, the smallest group first: a small channel does not
    /// wait for a large one. A channel with its own path or file system has its own run. One that
    /// is in the folder of another comes after it: of two files of one path its own remains.
    async fn groups(&self, found: AllFound) -> Vec<Group<'_>> {
        let data = self.layout.data();
        let mut groups: Vec<Group<'_>> = Vec::new();
        let files = input::files(self.input, self.sources);
        let files = files.zip(found).filter(|((channel, _), _)| channel.mode == InputMode::File);
        for ((channel, source), (found, others)) in files {
            let folder = self.layout.channel(channel);
            let is_apart = channel.own_path().is_some() || is_mounted(&folder, &data).await;
            let mut source = source.clone();
            if is_apart {
                source.folder.clear();
            }
            let folder = if is_apart { folder } else { data.clone() };
            let wanted = WantedChannel { channel, source, found, others };
            match groups.iter_mut().find(|group| group.folder == folder) {
                Some(group) => group.channels.push(wanted),
                None => groups.push(Group { folder, channels: vec![wanted] }),
            }
        }
        for group in &mut groups {
            group.channels.sort_by_key(|wanted| wanted.found.shard_bytes);
        }
        let folders: Vec<PathBuf> = groups.iter().map(|group| group.folder.clone()).collect();
        let above = |group: &Group<'_>| {
            let is_above = |path: &&PathBuf| **path != data && group.folder.starts_with(path);
            folders.iter().filter(is_above).count().saturating_sub(1)
        };
        groups.sort_by_key(|group| (above(group), group.bytes()));
        groups
    }

    /// Downloads a group; `None` if it is empty.
    async fn download(
        &self,
        group: Group<'_>,
        label: &str,
        interrupts: &mut Interrupts,
        results: &mut AllFilesSummary,
    ) -> Result<Option<Ended>> {
        let Self { args, control, .. } = self;
        let context = &self.shared.context;
        let progress = context.messages.progress(!args.output.messages.quiet && !self.is_quiet);
        group.channels.iter().flat_map(WantedChannel::notes).for_each(|note| progress.note(note));
        if group.channels.iter().all(|wanted| wanted.entries() == Some(0)) {
            results.files.extend(group.channels.iter().map(WantedChannel::result));
            return Ok(None);
        }
        let shares = Some(group.shares(&self.layout.data()));
        let largest = group.channels.iter().map(|wanted| wanted.found.shard_largest_bytes).max();
        let (largest_bytes, bandwidth) = (largest.unwrap_or(0), self.shared.bandwidth.clone());
        let channels = OfChannels { shares, largest_bytes, bandwidth };
        let target = Target::Folder(group.folder.clone());
        let config = Config::resolve(get::options(&args.tuning)?, HostFacts::read())?;
        let parts: Vec<_> =
            group.channels.into_iter().map(|one| (one.source, one.found.kept)).collect();
        let found = async {
            let walk = control.channel_entries(parts).await?;
            let present = target.present().await?;
            Ok((walk, present))
        };
        let (walk, present) = interrupts.unless(found).await?;
        let (control, tls) = (Rc::clone(control), self.shared.tls.clone());
        let args = self.as_get(group.folder);
        let resolved = Resolved {
            board: control.board(),
            control,
            rules: get::rules(&args),
            tls,
            target,
            locks: Vec::new(),
            walk,
            mirror: None,
            channels,
            sources: 0,
            asked: Duration::ZERO,
        };
        let job = DownloadJob { resolved, present };
        let (label, report) = (Some(label.to_owned()), self.shared.report.clone());
        let output = Output::new(context, progress, label, report);
        // Each run has its own times.
        let begun = self.begun + self.begun.elapsed();
        get::fetch(job, &args, config, output, interrupts, begun).await.map(Some)
    }

    /// The arguments of an equivalent `get`.
    fn as_get(&self, folder: PathBuf) -> GetArgs {
        let args = self.args;
        GetArgs {
            metrics: args.metrics.clone(),
            verb: GetVerb::Get,
            // The entries are only this host's part.
            shard: Shard::WHOLE,
            sources: Vec::new(),
            destination: Destination::Local(folder),
            spread_to: Vec::new(),
            dry_run: false,
            verify: args.verify,
            report: args.report.clone(),
            stats: args.stats,
            explain: false,
            keep: args.keep,
            selection: SelectionArgs::default(),
            service: args.service.clone(),
            tuning: args.tuning.clone(),
            failures: FailureArgs::default(),
            output: args.output,
        }
    }
}

/// True if a folder is on another file system than the one above it.
async fn is_mounted(folder: &Path, above: &Path) -> bool {
    let both = [folder.to_owned(), above.to_owned()];
    blocking(move || {
        let [device, other] = both.map(|path| rustix::fs::stat(&path).map(|found| found.st_dev));
        matches!((device, other), (Ok(device), Ok(other)) if device != other)
    })
    .await
}
