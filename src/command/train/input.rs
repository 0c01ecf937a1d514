//! The input of a training job as given: its description, parsed and checked, and this host's rank.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use super::layout::JobFolders;
use crate::cli::{JobSource, ManifestPlace, TrainArgs};
use crate::command::context::Context;
use crate::command::stream::lines;
use crate::control::Control;
use crate::control::list::channel::{ChannelObjects, ChannelSource};
use crate::error::{Error, ErrorKind, Result};
use crate::files::whole_file;
use crate::limits::JOB_BYTES_MAX;
use crate::plan::augmented::AugmentedManifest;
use crate::plan::epoch::Shard;
use crate::plan::manifest::Layout as ManifestLayout;
use crate::s3::uri::S3Uri;
use crate::train::problem::{self, Problem};
use crate::train::ranks::{self, Given, Rank, Unit};
use crate::train::{
    Channel, ChannelData, Distribution, InputMode, S3Location, TrainingInput, check, files,
    init_config, job, typed,
};

/// A job, and this host's rank in it.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) input: TrainingInput,
    /// This host's rank and its source; `None` if unknown.
    pub(super) rank: Option<Rank>,
    /// Names of channels that only other instance groups get.
    pub(super) of_others: Vec<String>,
}

/// The described input.
///
/// # Errors
/// [`ErrorKind::Usage`] with all errors of the description, and for unsupported input.
pub(super) fn of(
    args: &TrainArgs,
    layout: &mut JobFolders,
    context: &Context,
) -> Result<Described> {
    let (source, parsed, beside) = match &args.source {
        JobSource::Channels(channels) => {
            // With `--shard` and without a distribution every channel is sharded.
            let distribution = match args.shard {
                Some(_) => Distribution::ShardedByS3Key,
                None => Distribution::default(),
            };
            let typed = typed::parse(channels.iter().map(String::as_str), distribution);
            (String::new(), typed, Some(layout.resource_config()))
        }
        JobSource::Job(path) => {
            let path = local(path);
            let parsed = job::parse(&read(path)?);
            if parsed.as_ref().is_ok_and(|input| input.processing.is_some()) {
                layout.use_processing();
            }
            (name(path), parsed, Some(layout.resource_config()))
        }
        JobSource::InitConfig(path) => {
            let path = local(path);
            let beside = path.with_file_name(files::RESOURCE_CONFIG);
            let beside = Some(beside).filter(|_| path != Path::new(STDIN));
            (name(path), init_config::parse(&read(path)?), beside)
        }
    };
    // Without a shard and the like it identifies this host, unless it is ours.
    let listed = beside.filter(|path| path.exists());
    let listed = listed.map(|path| read(&path).map(|text| (name(&path), text))).transpose()?;
    let listed = listed.filter(|(_, text)| !layout.has_written(text));
    let mut input = parsed.map_err(|problems| refused(&source, &problems, context))?;
    let instances = input.instance_groups.iter().map(|group| group.count);
    let given = Given {
        shard: args.shard,
        host_config: input.hosts.as_ref(),
        resource_config: listed.as_ref().map(|(name, text)| (name.as_str(), text.as_str())),
        instances: instances.reduce(u32::saturating_add),
    };
    let rank = ranks::find(Unit::Host, &given, |name| std::env::var(name).ok())?;
    if let Some(rank) = &rank {
        input.hosts = Some(rank.hosts.clone());
    }
    check::hosts(&input).map_err(|problem| refused(&source, &[problem], context))?;
    let mut modes = input.channels.iter().map(|channel| channel.mode);
    if args.cache.cache.is_some() && !modes.any(|mode| mode == InputMode::FastFile) {
        let message = "--cache is for channels in FastFile mode, and there is none";
        let error = Error::new(ErrorKind::Usage, message.to_owned());
        return Err(error.advise("give a channel mode=FastFile, or leave --cache out"));
    }
    layout.require(args.base_dir.is_some())?;
    let all = std::mem::take(&mut input.channels);
    let (own, of_others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|channel| input.place_of(channel).is_some());
    input.channels = own;
    let of_others = of_others.into_iter().map(|channel| channel.name).collect();
    Ok(Described { input, rank, of_others })
}

/// Prints each of several problems on a line, and returns an error that summarizes them.
fn refused(source: &str, problems: &[Problem], context: &Context) -> Error {
    // Each problem of a command line names its option.
    let source = if source.is_empty() { "train" } else { source };
    if problems.len() > 1 {
        let progress = context.messages.progress(false);
        problems.iter().for_each(|problem| progress.error(format_args!("{source}: {problem}")));
    }
    problem::error(source, problems)
}

/// Stands for standard input.
const STDIN: &str = "-";

/// The file of a description; the AWS CLI writes it as `file://PATH`.
fn local(path: &Path) -> &Path {
    let rest = path.as_os_str().as_bytes().strip_prefix(b"file://");
    rest.map_or(path, |rest| Path::new(OsStr::from_bytes(rest)))
}

fn name(path: &Path) -> String {
    match path == Path::new(STDIN) {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

/// The text of a description.
fn read(path: &Path) -> Result<String> {
    let name = name(path);
    let refused = |why: String| Err(Error::new(ErrorKind::Usage, why));
    let most = JOB_BYTES_MAX as u64;
    let read = if path == Path::new(STDIN) {
        let mut text = Vec::new();
        let read = io::stdin().lock().take(most + 1).read_to_end(&mut text);
        read.map(|_| text)
    } else {
        whole_file::read(path, most).map_err(io::Error::from)
    };
    let text = match read {
        Ok(text) if text.len() as u64 > most => {
            return refused(format!("{name} has more than {most} bytes"));
        }
        Ok(text) => text,
        Err(error) => return refused(format!("cannot read {name}: {error}")),
    };
    String::from_utf8(text).or_else(|_| refused(format!("cannot read {name}: it is not UTF-8")))
}

/// The location of a channel's data.
#[derive(Debug, Clone)]
pub(super) enum InputSource {
    /// A local folder.
    Folder,
    /// These objects.
    Objects(ChannelSource),
    /// The lines of an augmented manifest, and this host's part of them.
    Lines(Arc<AugmentedManifest>, Shard),
    /// Its list is missing or invalid.
    Unknown(Error),
}

/// The location of each channel's data, in the order of the channels.
pub(super) type Sources = Vec<InputSource>;

/// Resolves the locations of the channels' data: lists of objects are downloaded.
pub(super) async fn sources(
    control: &Control,
    input: &TrainingInput,
    layout: ManifestLayout,
) -> Sources {
    let mut sources = Vec::with_capacity(input.channels.len());
    for channel in &input.channels {
        let source = source(control, channel, shard(channel, input), layout).await;
        sources.push(source.unwrap_or_else(InputSource::Unknown));
    }
    sources
}

async fn source(
    control: &Control,
    channel: &Channel,
    shard: Shard,
    layout: ManifestLayout,
) -> Result<InputSource> {
    let objects = match &channel.data {
        ChannelData::Folder { .. } => return Ok(InputSource::Folder),
        ChannelData::AugmentedManifest { manifest, attributes } => {
            let S3Location { bucket, key } = manifest.clone();
            let place = ManifestPlace::S3(bucket, key);
            return Ok(InputSource::Lines(lines::read(control, &place, attributes).await?, shard));
        }
        ChannelData::Prefix(S3Location { bucket, key }) => {
            let prefix = S3Uri::parse_prefix(&format!("s3://{bucket}/{key}"))?;
            ChannelObjects::Prefix(Box::new(prefix))
        }
        ChannelData::Manifest(S3Location { bucket, key }) => {
            ChannelObjects::List(control.manifest(bucket, key, layout).await?)
        }
    };
    // With a path of its own, the channel's folder is not used.
    let (folder, allow_empty) = (channel.name.clone(), channel.allow_empty);
    Ok(InputSource::Objects(ChannelSource { folder, objects, shard, allow_empty }))
}

/// One address of each bucket, for properties of buckets.
pub(super) fn buckets(sources: &Sources) -> Vec<&S3Uri> {
    let of_source = |source| match source {
        &InputSource::Objects(ChannelSource {
            objects: ChannelObjects::Prefix(ref prefix),
            ..
        }) => std::slice::from_ref(&**prefix),
        InputSource::Objects(ChannelSource { objects: ChannelObjects::List(list), .. }) => {
            &list[..list.len().min(1)]
        }
        InputSource::Lines(manifest, _) => manifest.buckets(),
        InputSource::Folder | InputSource::Unknown(_) => &[],
    };
    sources.iter().flat_map(of_source).collect()
}

/// This host's part of a channel's objects.
fn shard(channel: &Channel, input: &TrainingInput) -> Shard {
    match (channel.distribution, input.place_of(channel)) {
        (Distribution::ShardedByS3Key, Some((index, count))) => Shard { index, count },
        _ => Shard::WHOLE,
    }
}

/// The address of its data, as written.
pub(super) fn address(data: &ChannelData) -> String {
    match data {
        ChannelData::Prefix(place)
        | ChannelData::Manifest(place)
        | ChannelData::AugmentedManifest { manifest: place, .. } => {
            format!("s3://{}/{}", place.bucket, place.key)
        }
        ChannelData::Folder { path, .. } => path.display().to_string(),
    }
}

/// True if a channel is a folder of files that are downloaded or mounted.
pub(super) fn is_files(channel: &Channel) -> bool {
    channel.mode != InputMode::Pipe && !matches!(channel.data, ChannelData::Folder { .. })
}

/// The channels that are files, with their objects.
pub(super) fn files<'a>(
    input: &'a TrainingInput,
    sources: &'a Sources,
) -> impl Iterator<Item = (&'a Channel, &'a ChannelSource)> {
    let both = input.channels.iter().zip(sources);
    both.filter(|(channel, _)| is_files(channel)).filter_map(|(channel, source)| match source {
        InputSource::Objects(objects) => Some((channel, objects)),
        _ => None,
    })
}

/// The channels that are streams, with their sources.
pub(super) fn streams<'a>(
    input: &'a TrainingInput,
    sources: &'a Sources,
) -> impl Iterator<Item = (&'a Channel, &'a InputSource)> {
    let both = input.channels.iter().zip(sources);
    both.filter(|(channel, _)| channel.mode == InputMode::Pipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Hosts;

    fn channel() -> Channel {
        let place = S3Location { bucket: "bkt".to_owned(), key: "a/".to_owned() };
        Channel::new("train", ChannelData::Prefix(place))
    }

    #[test]
    fn only_sharded_channels_have_shards() {
        let mut sharded = channel();
        let hosts = Some(Hosts::numbered(2, 3));
        let input = TrainingInput { hosts, ..TrainingInput::default() };
        assert_eq!(shard(&sharded, &input), Shard::WHOLE);
        sharded.distribution = Distribution::ShardedByS3Key;
        assert_eq!(shard(&sharded, &input), Shard { index: 2, count: 3 });
        assert_eq!(shard(&sharded, &TrainingInput::default()), Shard::WHOLE);
    }

    #[test]
    fn a_file_may_have_a_scheme() {
        let check = |typed: &str, path: &str| assert_eq!(local(Path::new(typed)), Path::new(path));
        check("job.json", "job.json");
        check("file://job.json", "job.json");
        check("file:///tmp/job.json", "/tmp/job.json");
        check("-", "-");
        assert_eq!(name(Path::new("-")), "standard input");
    }

    #[test]
    fn a_text_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.json");
        std::fs::write(&path, vec![b' '; JOB_BYTES_MAX]).unwrap();
        assert_eq!(read(&path).expect("as much as may be").len(), JOB_BYTES_MAX);
        std::fs::write(&path, vec![b' '; JOB_BYTES_MAX + 1]).unwrap();
        let error = read(&path).expect_err("a byte too many");
        assert!(error.to_string().contains("job.json has more than"), "{error}");
    }
}
