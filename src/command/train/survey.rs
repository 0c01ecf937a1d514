//! The survey before a training job is set up: lists every channel, and collects all problems.

mod present;

use std::path::PathBuf;
use std::rc::Rc;

use tokio::task::spawn_local;

use super::files::AllFound;
use super::input::{InputSource, Sources, address, is_files};
use super::layout::JobFolders;
use super::streams::epochs_in_words;
use crate::cli::TrainArgs;
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::channel::{ChannelSource, KeyProblem, ListingBudget, Preflight};
use crate::download::space::Space;
use crate::engine::config::HostFacts;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::limits::{
    CHANNEL_PROBLEMS_REPORTED_MAX, KEPT_LISTINGS_BYTES_MAX, KEPT_LISTINGS_MEMORY_SHARE,
};
use crate::mount::serving::mounting::hindrance;
use crate::plan::augmented::AugmentedManifest;
use crate::plan::epoch::Shard;
use crate::plan::kept::KeptListing;
use crate::report::document::{PlannedChannel, TrainPlan};
use crate::s3::uri::shown;
use crate::text::size::Decimal;
use crate::train::{Channel, ChannelData, InputMode, TrainingInput};
use present::Present;

pub(super) use present::OtherFiles;

/// The findings about one channel.
#[derive(Debug, Default)]
struct ChannelFindings {
    /// The lines of an augmented manifest; and this host's of them.
    lines: Option<(u64, u64)>,
    objects: u64,
    /// `None` if they were not all requested.
    bytes: Option<u64>,
    /// This host's objects.
    host_objects: u64,
    host_bytes: Option<u64>,
    problems: Vec<Error>,
    /// Number of problems beyond the stored ones.
    unreported: u64,
    /// Of a channel in File or FastFile mode: the preflight of its files.
    files: Option<Preflight>,
    /// Of a channel in Pipe mode: its objects, if there was memory to retain them.
    stream: Option<KeptListing>,
}

/// The findings about all channels.
pub(super) struct Survey {
    pub(super) plan: TrainPlan,
    /// Of the channels in File and FastFile mode, in their order.
    pub(super) files: AllFound,
    /// Of the channels in Pipe mode, in their order: the objects of their first epochs.
    pub(super) streams: Vec<Option<KeptListing>>,
    /// All problems.
    pub(super) problems: Vec<Error>,
}

/// Lists all channels at once and checks their destinations.
pub(super) async fn survey(
    control: &Rc<Control>,
    (args, input, layout): (&TrainArgs, &TrainingInput, &JobFolders),
    sources: &Sources,
) -> Result<Survey> {
    let mut listings = Vec::new();
    let room = Rc::new(ListingBudget::new(kept_bytes_max(HostFacts::read())));
    for (channel, source) in input.channels.iter().zip(sources) {
        let (control, channel, source) = (Rc::clone(control), channel.clone(), source.clone());
        // A check needs no listings.
        let room = Some(Rc::clone(&room)).filter(|_| is_files(&channel) || !args.check);
        listings.push(spawn_local(async move {
            match source {
                InputSource::Objects(objects) => {
                    list(&control, &channel, &objects, room.as_deref()).await
                }
                InputSource::Lines(manifest, shard) => look_at_lines(&manifest, shard),
                InputSource::Folder => ChannelFindings::default(),
                InputSource::Unknown(error) => {
                    ChannelFindings { problems: vec![error], ..ChannelFindings::default() }
                }
            }
        }));
    }
    let (place, wanted) = (layout.clone(), input.clone());
    let (mut problems, occupied) = blocking(move || {
        let occupied: Vec<bool> =
            wanted.channels.iter().map(|channel| place.has_files(channel)).collect();
        (place.problems(&wanted), occupied)
    })
    .await;
    if input.channels.iter().any(|channel| channel.mode == InputMode::FastFile) {
        problems.extend(blocking(hindrance).await);
    }
    let (host, hosts) = input.hosts.as_ref().map_or((0, 1), |hosts| (hosts.rank, hosts.count));
    let mut plan = TrainPlan::new(host, hosts);
    let mut disks = Disks::new(layout.data()).await;
    let (mut files, mut streams) = (Vec::new(), Vec::new());
    let channels = input.channels.iter().zip(sources).zip(occupied);
    for (((channel, source), is_occupied), listing) in channels.zip(listings) {
        let lost = |_| Error::bug("a listing panicked");
        let mut found = listing.await.map_err(lost)?;
        let mut others = OtherFiles::default();
        // Mounted channels need no space.
        let is_stored = channel.mode == InputMode::File;
        if let (InputSource::Objects(source), true) = (source, is_stored)
            && let Some(listed) = found.files.take()
        {
            let folder = layout.channel(channel);
            let shard = source.kept_shard();
            let (listed, there) = look_at(folder, listed, shard, is_occupied).await;
            disks.add(&there);
            others = if layout.is_shared(channel, input) { others } else { there.others };
            found.files = Some(listed);
        }
        plan.channels.push(planned(args, channel, &found, &others));
        let within = |error: Error| error.within(format!("channel {}", channel.name));
        files.extend(found.files.map(|listed| (listed, others)));
        if channel.mode == InputMode::Pipe {
            streams.push(found.stream);
        }
        problems.extend(found.problems.into_iter().map(within));
        if found.unreported > 0 {
            let message = format!("{} objects more cannot be stored", found.unreported);
            problems.push(within(Error::new(ErrorKind::Destination, message)));
        }
    }
    if !args.keep.no_space_check {
        problems.extend(disks.problems());
    }
    let at_data = disks.of.swap_remove(0);
    plan.needed_bytes = at_data.space.needed_bytes();
    plan.needed_bytes_at_most = at_data.is_at_most;
    plan.free_bytes = at_data.space.free_bytes();
    Ok(Survey { plan, files, streams, problems })
}

/// Checks the folder of a channel, and returns its listing.
async fn look_at(
    folder: PathBuf,
    mut listed: Preflight,
    shard: Shard,
    is_occupied: bool,
) -> (Preflight, Present) {
    let (kept, sizes) = (listed.kept.take(), (listed.shard_objects, listed.shard_bytes));
    let work = move || {
        let parts = kept.as_ref().map(|kept| (kept, shard));
        let there = present::look(&folder, parts, sizes, is_occupied);
        (kept, there)
    };
    let (kept, there) = blocking(work).await;
    listed.kept = kept;
    (listed, there)
}

/// A file system of channels in File mode.
struct Disk {
    device: Option<u64>,
    folder: PathBuf,
    space: Space,
    /// Some of the needed files may exist already.
    is_at_most: bool,
}

/// All file systems; the first one has the folder of all channels.
struct Disks {
    of: Vec<Disk>,
}

impl Disks {
    async fn new(data: PathBuf) -> Self {
        let folder = data.clone();
        let there = blocking(move || present::look(&folder, None, (0, 0), false)).await;
        let (device, space) = match there.disk {
            Some((device, _, space)) => (Some(device), Space::new(Some(space), true)),
            None => (None, Space::new(None, true)),
        };
        Self { of: vec![Disk { device, folder: data, space, is_at_most: false }] }
    }

    /// Adds the needs of a channel.
    fn add(&mut self, there: &Present) {
        let Some((device, folder, space)) = &there.disk else { return };
        let known = self.of.iter().position(|disk| disk.device == Some(*device));
        let at = known.unwrap_or(self.of.len());
        if known.is_none() {
            let (device, folder) = (Some(*device), folder.clone());
            let space = Space::new(Some(*space), true);
            self.of.push(Disk { device, folder, space, is_at_most: false });
        }
        let disk = &mut self.of[at];
        disk.is_at_most |= there.is_at_most;
        if there.new_bytes > 0 {
            disk.space.add(there.new_bytes, 0);
        }
        there.changed.iter().for_each(|(size, replaced)| disk.space.add(*size, *replaced));
        disk.space.reclaim(there.unfinished_bytes);
    }

    /// File systems that certainly have too little space.
    fn problems(&self) -> Vec<Error> {
        let short = self.of.iter().filter(|disk| !disk.is_at_most && disk.space.cannot_fit(true));
        let as_error = |disk: &Disk| {
            let message = format!(
                "{} has {} free, but the channels in File mode need {}",
                disk.folder.display(),
                Decimal(disk.space.free_bytes().unwrap_or(0)),
                Decimal(disk.space.needed_bytes())
            );
            let error = Error::new(ErrorKind::Destination, message);
            let error = error.because(ErrorReason::NoSpace);
            error.advise("free space, or give --base-dir another folder")
        };
        short.map(as_error).collect()
    }
}

/// Most bytes of retained listings on this machine, or in this cgroup.
fn kept_bytes_max(facts: HostFacts) -> u64 {
    KEPT_LISTINGS_BYTES_MAX.min(facts.memory_bytes / KEPT_LISTINGS_MEMORY_SHARE)
}

/// Counts the objects of a channel.
async fn list(
    control: &Rc<Control>,
    channel: &Channel,
    source: &ChannelSource,
    room: Option<&ListingBudget>,
) -> ChannelFindings {
    let (is_files, most) = (is_files(channel), CHANNEL_PROBLEMS_REPORTED_MAX);
    match control.preflight(source, is_files, most, room).await {
        Err(error) => {
            let error = match &channel.data {
                // It names a key that only the manifest has.
                ChannelData::Manifest(_) => {
                    error.within(format!("manifest {}", address(&channel.data)))
                }
                _ => error,
            };
            ChannelFindings { problems: vec![error], ..ChannelFindings::default() }
        }
        Ok(mut found) => {
            let as_error = |problem: &KeyProblem| {
                let what = format!("s3://{}/{}", problem.bucket, shown(&problem.key));
                let why = match &channel.data {
                    ChannelData::Manifest(_) => problem.why.explain_in(&address(&channel.data)),
                    _ => problem.why.explain(),
                };
                Error::new(ErrorKind::Destination, why).within(what)
            };
            ChannelFindings {
                objects: found.objects,
                bytes: found.bytes,
                host_objects: found.shard_objects,
                host_bytes: Some(found.shard_bytes),
                problems: found.problems.iter().map(as_error).collect(),
                unreported: found.problem_count - found.problems.len() as u64,
                lines: None,
                stream: if is_files { None } else { found.kept.take() },
                files: is_files.then_some(found),
            }
        }
    }
}

/// Counts the lines of an augmented manifest. Their objects are not requested before their turn:
/// there may be millions.
fn look_at_lines(manifest: &AugmentedManifest, shard: Shard) -> ChannelFindings {
    let lines = u64::from(manifest.count());
    let host_lines = shard.share_of(lines);
    let each = manifest.references() as u64;
    let bytes = manifest.bytes();
    ChannelFindings {
        lines: Some((lines, host_lines)),
        objects: lines * each,
        bytes,
        host_objects: host_lines * each,
        host_bytes: bytes.filter(|_| shard == Shard::WHOLE),
        ..ChannelFindings::default()
    }
}

fn planned(
    args: &TrainArgs,
    channel: &Channel,
    found: &ChannelFindings,
    others: &OtherFiles,
) -> PlannedChannel {
    let (source, mode, begins) = match (&channel.data, channel.mode) {
        (ChannelData::Folder { path, .. }, _) => {
            (path.display().to_string(), "link", "before COMMAND".to_owned())
        }
        (data, InputMode::Pipe) => (address(data), "Pipe", epochs_in_words(args.epochs)),
        (data, InputMode::FastFile) => {
            (address(data), InputMode::FastFile.name(), "before COMMAND".to_owned())
        }
        (data, InputMode::File) => {
            let begins = if args.start_early { "with COMMAND" } else { "before COMMAND" };
            (address(data), "File", begins.to_owned())
        }
    };
    PlannedChannel {
        name: channel.name.clone(),
        mode,
        source,
        begins,
        lines: found.lines.map(|(lines, _)| lines),
        host_lines: found.lines.map(|(_, mine)| mine),
        objects: found.objects,
        bytes: found.bytes,
        host_objects: found.host_objects,
        host_bytes: found.host_bytes,
        other_files: others.count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_listings_take_a_share_of_the_memory() {
        let facts = |memory_bytes| HostFacts { processors: 2, memory_bytes, descriptors: 1024 };
        assert_eq!(kept_bytes_max(facts(512 << 20)), 64 << 20);
        assert_eq!(kept_bytes_max(facts(64 << 30)), 1 << 30);
    }
}
