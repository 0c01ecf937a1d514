//! What a training job would get, before anything of it is made: every channel is listed, and
//! everything that is wrong is collected.

use std::path::Path;
use std::rc::Rc;

use tokio::task::spawn_local;

use super::super::aside::aside;
use super::super::space::Space;
use super::input::{Sources, is_files};
use super::layout::Layout;
use super::streams::epochs_in_words;
use crate::cli::TrainArgs;
use crate::control::Control;
use crate::control::channel::{ChannelSource, KeyProblem};
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::files::system_host;
use crate::limits::CHANNEL_PROBLEMS_TOLD_MAX;
use crate::report::document::{PlannedChannel, TrainPlan};
use crate::s3::uri::shown;
use crate::text::size::Decimal;
use crate::train::{Channel, ChannelData, InputMode, TrainingInput};

/// What was found of one channel.
#[derive(Debug, Default)]
struct Found {
    objects: u64,
    bytes: u64,
    /// Of these: this host's.
    host_objects: u64,
    host_bytes: u64,
    problems: Vec<Error>,
    /// Problems beyond those that are kept.
    untold: u64,
}

/// Lists all channels at once and looks at the places where they are to go.
pub(super) async fn survey(
    control: &Rc<Control>,
    (args, input, layout): (&TrainArgs, &TrainingInput, &Layout),
    sources: &Sources,
) -> Result<(TrainPlan, Vec<Error>)> {
    let mut listings = Vec::new();
    for (channel, source) in input.channels.iter().zip(sources) {
        let (control, channel, source) = (Rc::clone(control), channel.clone(), source.clone());
        listings.push(spawn_local(async move {
            match source {
                Some(source) => list(&control, &channel, &source).await,
                None => Found::default(),
            }
        }));
    }
    let (place, wanted) = (layout.clone(), input.clone());
    let (mut problems, occupied) = aside(move || {
        let occupied: Vec<bool> =
            wanted.channels.iter().map(|channel| place.has_files(channel)).collect();
        (place.problems(&wanted), occupied)
    })
    .await;
    let (host, hosts) = input.hosts.as_ref().map_or((0, 1), |hosts| (hosts.rank, hosts.count));
    let mut plan = TrainPlan::new(host, hosts);
    let mut space = Space::new(free(layout.data()).await, false);
    for ((channel, listing), occupied) in input.channels.iter().zip(listings).zip(occupied) {
        let lost = |_| Error::bug("a listing panicked");
        let found = listing.await.map_err(lost)?;
        if is_files(channel) && !occupied {
            // What is there already may be complete: then only its download can say what is left.
            space.add(found.host_bytes, 0);
        }
        plan.channels.push(planned(args, channel, &found));
        let within = |error: Error| error.within(format!("channel {}", channel.name));
        problems.extend(found.problems.into_iter().map(within));
        if found.untold > 0 {
            let message = format!("{} objects more cannot be stored", found.untold);
            problems.push(within(Error::new(ErrorKind::Destination, message)));
        }
    }
    plan.needed_bytes = space.needed_bytes();
    plan.free_bytes = space.free_bytes();
    if let Some(free) = plan.free_bytes.filter(|_| space.cannot_fit(true)) {
        let message = format!(
            "{} has {} free, but the channels in File mode need {}",
            layout.data().display(),
            Decimal(free),
            Decimal(plan.needed_bytes)
        );
        let error = Error::new(ErrorKind::Destination, message).because(ErrorReason::NoSpace);
        if !args.keep.no_space_check {
            problems.push(error.advise("free space, or give --base-dir another folder"));
        }
    }
    Ok((plan, problems))
}

/// The space where a folder is, or will be.
async fn free(folder: std::path::PathBuf) -> Option<system_host::DiskSpace> {
    aside(move || {
        let existing = folder.ancestors().find(|path| path.exists());
        system_host::disk_space(existing.unwrap_or(Path::new("/")))
    })
    .await
}

/// Counts the objects of a channel.
async fn list(control: &Rc<Control>, channel: &Channel, source: &ChannelSource) -> Found {
    let found = control.preflight(source, is_files(channel), CHANNEL_PROBLEMS_TOLD_MAX).await;
    match found {
        Err(error) => Found { problems: vec![error], ..Found::default() },
        Ok(found) => {
            let told = |problem: &KeyProblem| {
                let what = format!("s3://{}/{}", problem.bucket, shown(&problem.key));
                Error::new(ErrorKind::Destination, problem.why.explain()).within(what)
            };
            Found {
                objects: found.objects,
                bytes: found.bytes.unwrap_or(found.shard_bytes),
                host_objects: found.shard_objects,
                host_bytes: found.shard_bytes,
                problems: found.problems.iter().map(told).collect(),
                untold: found.problem_count - found.problems.len() as u64,
            }
        }
    }
}

fn planned(args: &TrainArgs, channel: &Channel, found: &Found) -> PlannedChannel {
    let (source, mode, begins) = match (&channel.data, channel.mode) {
        (ChannelData::Folder { path, .. }, _) => {
            (path.display().to_string(), "link", "before COMMAND".to_owned())
        }
        (data, InputMode::Pipe) => (uri(data), "Pipe", epochs_in_words(args.epochs)),
        (data, InputMode::File | InputMode::FastFile) => {
            let begins = if args.start_early { "with COMMAND" } else { "before COMMAND" };
            (uri(data), "File", begins.to_owned())
        }
    };
    PlannedChannel {
        name: channel.name.clone(),
        mode,
        source,
        begins,
        objects: found.objects,
        bytes: found.bytes,
        host_objects: found.host_objects,
        host_bytes: found.host_bytes,
    }
}

fn uri(data: &ChannelData) -> String {
    match data {
        ChannelData::Prefix(place)
        | ChannelData::Manifest(place)
        | ChannelData::AugmentedManifest { manifest: place, .. } => {
            format!("s3://{}/{}", place.bucket, place.key)
        }
        ChannelData::Folder { path, .. } => path.display().to_string(),
    }
}
