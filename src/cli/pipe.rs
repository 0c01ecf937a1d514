//! Arguments of `pipe` and `cat`.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ValueEnum, ValueHint};

use super::operands::{parse_source, sources};
use super::options::metrics::MetricsArgs;
use super::options::selection::parse_manifest;
use super::{ManifestPlace, MessageArgs, SelectionArgs, ServiceArgs, VerifyMode, options, usage};
use crate::limits;
use crate::plan::epoch::Shard;
use crate::plan::typed_range::TypedRange;
use crate::s3::uri::{KeyPattern, S3Uri};
use crate::s3::web::without_query;
use crate::text::shown::shown;

/// Most channels of one process: the limit of a SageMaker training job.
pub(super) const CHANNELS_MAX: usize = 20;

/// A channel: its name and its sources.
#[derive(Debug, Clone)]
pub struct Channel {
    /// The name of a pipe is this name, `_` and the epoch's number.
    pub name: String,
    /// Its sources; empty only if a file lists them.
    pub sources: Vec<S3Uri>,
}

/// The effect of a failed stream on its reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// an early end of file: to the reader the epoch looks complete
    #[default]
    End,
    /// no more data and no end of file, until it closes the pipe or a signal ends the run
    Hold,
}

/// The framing of each object of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum RecordWrapper {
    /// nothing: the bytes of all objects are joined
    #[default]
    #[value(alias = "None")]
    None,
    /// each object, or value of a manifest, is one record of MXNet's RecordIO
    #[value(alias = "RecordIO")]
    Recordio,
}

/// An augmented manifest, and the streamed attributes of its lines.
#[derive(Debug, Clone)]
pub struct AugmentedArgs {
    /// Its location.
    pub manifest: ManifestPlace,
    /// The attributes, in the order of the stream; never empty.
    pub attributes: Vec<String>,
}

/// Arguments of `pipe`.
#[derive(Debug, Clone)]
pub struct PipeArgs {
    /// The channels; never empty, with unique names. Without sources if there is a manifest.
    pub channels: Vec<Channel>,
    /// The folder of the pipes.
    pub folder: PathBuf,
    /// Number of epochs; `None` for infinitely many.
    pub epochs: Option<NonZeroU64>,
    /// Seed of the shuffle; `None` for key order.
    pub shuffle_seed: Option<u64>,
    /// The part of every epoch.
    pub shard: Shard,
    /// Written when the first pipes exist.
    pub ready_file: Option<PathBuf>,
    /// The effect of a failed stream on its reader.
    pub on_failure: OnFailure,
    /// Mark each epoch that was completely read.
    pub epoch_markers: bool,
    /// The framing of each object.
    pub record_wrapper: RecordWrapper,
    /// A manifest instead of sources.
    pub augmented: Option<AugmentedArgs>,
    /// Filters of objects.
    pub selection: SelectionArgs,
    /// Download options of the stream.
    pub stream: StreamArgs,
    /// Server and credentials.
    pub service: ServiceArgs,
}

/// Arguments of `cat`.
#[derive(Debug, Clone)]
pub struct CatArgs {
    /// Sources to write; empty only if a file lists them.
    pub sources: Vec<S3Uri>,
    /// The bytes to write of the only source, which is neither folder nor glob.
    pub range: Option<TypedRange>,
    /// Filters of objects.
    pub selection: SelectionArgs,
    /// Download options of the stream.
    pub stream: StreamArgs,
    /// Server and credentials.
    pub service: ServiceArgs,
}

/// `cat` before its sources are parsed.
#[derive(Debug, clap::Args)]
pub(super) struct CatTyped {
    /// what to write: s3://BUCKET/KEY, s3://BUCKET/FOLDER/, a glob or the URL of a file; several
    /// are merged by the path below each
    #[arg(value_name = "SOURCE", required_unless_present_any = ["files_from", "manifest"])]
    sources: Vec<OsString>,
    /// write only these bytes of a single object: START-END with END included, START- or -SUFFIX
    #[arg(
        long,
        value_name = "RANGE",
        allow_hyphen_values = true,
        conflicts_with_all = ["files_from", "manifest", "report", "gunzip"]
    )]
    range: Option<TypedRange>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

impl CatTyped {
    pub(super) fn settle(mut self) -> Result<CatArgs, clap::Error> {
        self.selection.urls = true;
        let mut sources = sources("cat", self.sources, false, &self.selection)?;
        self.service.with_version(sources.iter_mut())?;
        let is_object = |one: &S3Uri| matches!(one.key, KeyPattern::Key(_)) || one.url.is_some();
        let is_one = matches!(sources.as_slice(), [one] if is_object(one));
        if self.range.is_some() && !is_one {
            return Err(usage("--range takes a single source that is one object"));
        }
        if self.range.is_some() && self.stream.verify != VerifyMode::Off {
            return Err(usage(
                "--range and --verify do not go together: the stored checksum is of the whole \
                 object",
            ));
        }
        self.stream.check()?;
        Ok(CatArgs {
            sources,
            range: self.range,
            selection: self.selection,
            stream: self.stream,
            service: self.service,
        })
    }
}

/// Download and output options of a stream.
#[derive(Debug, Clone, clap::Args)]
pub struct StreamArgs {
    /// use N connections per channel, as far as their bytes have room [default: adapt to the
    /// throughput]
    #[arg(long, value_name = "N", value_parser = parse_connections)]
    pub connections: Option<usize>,
    /// use at most N connections per channel [default: 1024 for all channels, 256 over TLS]
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_connections,
        conflicts_with = "connections"
    )]
    pub max_connections: Option<usize>,
    /// Length of one request, in bytes.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = options::parse_part_size,
        help = options::help_part_size()
    )]
    pub part_size: Option<u64>,
    /// fail a range after N attempts in a row without new data; while the endpoint does not
    /// answer, only after --retry-for has passed as well
    #[arg(
        long,
        value_name = "N",
        value_parser = options::parse_attempts,
        default_value_t = limits::ATTEMPTS_MAX
    )]
    pub max_attempts: u32,
    /// Memory for buffers of all workers together, in bytes.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = options::parse_memory,
        help = help_memory()
    )]
    pub memory: Option<u64>,
    /// limit the run to this many bytes a second on average, such as 50MB or 1GiB
    #[arg(
        long,
        value_name = "RATE",
        value_parser = options::parse_rate,
        aliases = options::RATE_ALIASES
    )]
    pub bandwidth_limit: Option<NonZeroU64>,
    /// how to talk to the kernel [default: INRUSH_RING, or auto]
    #[arg(long, value_name = "RING")]
    pub ring: Option<options::RingName>,
    /// decompress objects of gzip while they are streamed; one that is damaged or no gzip ends the
    /// stream
    #[arg(long)]
    pub gunzip: bool,
    /// whether each object is compared with its stored checksum; the stream fails before the end
    /// of an object that differs
    #[arg(long, value_name = "MODE", value_enum, default_value_t = VerifyMode::Off)]
    pub verify: VerifyMode,
    /// stop the run after this time, such as 90s or 1h30m; objects that are not complete by then
    /// have failed
    #[arg(
        long,
        help_heading = "Failures",
        value_name = "TIME",
        value_parser = super::options::times::parse_deadline
    )]
    pub deadline: Option<Duration>,
    /// write one JSON line per object to this file
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = options::parse_report
    )]
    pub report: Option<PathBuf>,
    /// Output on standard error.
    #[command(flatten)]
    pub messages: MessageArgs,
    /// print one JSON object with the summary to standard output (cat: to standard error); after a
    /// failure, however early, it has 'error' and 'error_kind'
    #[arg(long)]
    pub json: bool,
    /// print CPU time, memory, connections and I/O modes after the summary
    #[arg(long)]
    pub stats: bool,
    /// Metrics while it runs.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// print which part of the machine, the network or the server was the limit
    #[arg(long)]
    pub explain: bool,
}

impl StreamArgs {
    fn check(&self) -> Result<(), clap::Error> {
        if self.gunzip && self.verify != VerifyMode::Off {
            return Err(usage(
                "--gunzip and --verify do not go together: decompression already compares the \
                 CRC-32 that gzip stores with the data",
            ));
        }
        Ok(())
    }
}

fn help_memory() -> String {
    format!(
        "memory for buffers and for what is on its way to all readers, {} or more [default: {} and \
         {}, each at most 1/{} of the free memory]",
        options::typed(limits::MEMORY_BYTES_MIN),
        options::typed(limits::MEMORY_BYTES_DEFAULT_MAX),
        options::typed(limits::STREAM_BYTES_MAX),
        limits::MEMORY_CGROUP_SHARE
    )
}

fn parse_connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=limits::CONNECTIONS_PER_CHANNEL_MAX).contains(&count) => Ok(count),
        _ => Err(format!("expected a number from 1 to {}", limits::CONNECTIONS_PER_CHANNEL_MAX)),
    }
}

/// `pipe` before its operands are distinguished.
#[derive(Debug, clap::Args)]
pub(super) struct PipeTyped {
    /// sources, then the place of the pipes
    // The help lists them separately: help::COMMANDS.
    #[arg(value_name = "SOURCE... DIR/CHANNEL", hide = true, value_hint = ValueHint::AnyPath)]
    operands: Vec<OsString>,
    /// a channel and its source; repeatable; the only operand is then the folder DIR
    #[arg(long, value_name = "NAME=SOURCE")]
    channel: Vec<String>,
    /// number of epochs, or 'forever'
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_epochs)]
    epochs: Epochs,
    /// shuffle every epoch with this seed
    #[arg(long, value_name = "SEED")]
    shuffle_seed: Option<u64>,
    /// take only part I of N of the objects of every epoch; I starts at 0
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    /// create this file with the names of the first pipes when they exist; removed at the end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ready_file: Option<PathBuf>,
    /// what the reader sees when its stream fails
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    on_failure: OnFailure,
    /// create the file CHANNEL_N.ok next to the pipes when the reader of epoch N got every byte
    #[arg(long)]
    epoch_markers: bool,
    /// the framing of each object, and of each value of --augmented-manifest
    #[arg(long, value_name = "WRAPPER", value_enum, default_value_t)]
    record_wrapper: RecordWrapper,
    /// stream what the lines of this file or s3://BUCKET/KEY (JSON Lines) name, instead of sources
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = parse_manifest,
        requires = "attribute",
        conflicts_with_all = [
            "channel", "include", "exclude", "raw", "files_from", "version_id", "gunzip",
        ]
    )]
    augmented_manifest: Option<ManifestPlace>,
    /// an attribute of the lines that is streamed; repeatable, in the order of the stream: of
    /// NAME-ref the object of that address, of any other name the value
    #[arg(
        long,
        value_name = "NAME",
        requires = "augmented_manifest",
        value_parser = parse_attribute
    )]
    attribute: Vec<String>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Epochs(pub(super) Option<NonZeroU64>);

pub(super) fn parse_epochs(text: &str) -> Result<Epochs, String> {
    match text {
        "forever" => Ok(Epochs(None)),
        _ => text
            .parse()
            .map(|count| Epochs(Some(count)))
            .map_err(|_| "expected a number of at least 1, or 'forever'".to_owned()),
    }
}

fn parse_attribute(text: &str) -> Result<String, String> {
    match text.chars().count() {
        1..=limits::ATTRIBUTE_NAME_CHARS_MAX => Ok(text.to_owned()),
        _ => Err(format!("expected 1 to {} characters", limits::ATTRIBUTE_NAME_CHARS_MAX)),
    }
}

/// The manifest, if given: then there are no sources.
fn augmented(
    manifest: Option<ManifestPlace>,
    attributes: Vec<String>,
    operands: &[OsString],
) -> Result<Option<AugmentedArgs>, clap::Error> {
    let Some(manifest) = manifest else { return Ok(None) };
    if attributes.len() > limits::AUGMENTED_ATTRIBUTES_MAX {
        let (count, most) = (attributes.len(), limits::AUGMENTED_ATTRIBUTES_MAX);
        return Err(usage(&format!("too many attributes: {count}, at most {most}")));
    }
    match operands {
        [] => Ok(Some(AugmentedArgs { manifest, attributes })),
        _ => Err(usage("with --augmented-manifest the only operand is DIR/CHANNEL")),
    }
}

impl PipeTyped {
    pub(super) fn settle(self) -> Result<PipeArgs, clap::Error> {
        self.stream.check()?;
        if self.stream.gunzip && self.record_wrapper == RecordWrapper::Recordio {
            return Err(usage(
                "--gunzip and --record-wrapper recordio do not go together: a record begins with \
                 its length, and that of an object is not known before it is decompressed",
            ));
        }
        let mut operands = self.operands;
        let place = operands.pop().map(PathBuf::from);
        let place = place.filter(|place| !place.as_os_str().as_encoded_bytes().starts_with(b"s3:"));
        let Some(place) = place else {
            return Err(usage("the destination is missing: add DIR/CHANNEL after the sources"));
        };
        let augmented = augmented(self.augmented_manifest, self.attribute, &operands)?;
        let (folder, mut channels) = if self.channel.is_empty() {
            let name = place
                .file_name()
                .and_then(|name| name.to_str())
                .filter(|_| !place.as_os_str().as_encoded_bytes().ends_with(b"/"));
            let Some(name) = name else {
                return Err(usage("the destination is DIR/CHANNEL: the channel is missing"));
            };
            if place.as_os_str() == "-" {
                return Err(usage("for standard output, use inrush cat SOURCE"));
            }
            let name = check_name(name)?;
            let sources = match &augmented {
                Some(_) => Vec::new(),
                None => sources("pipe", operands, false, &self.selection)?,
            };
            let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
            let folder = parent.map_or_else(|| PathBuf::from("."), PathBuf::from);
            (folder, vec![Channel { name, sources }])
        } else {
            let more = [
                (self.selection.files_from.is_some(), "--files-from"),
                (self.selection.manifest.is_some(), "--manifest"),
            ];
            if let Some((_, option)) = more.iter().find(|(given, _)| *given) {
                return Err(usage(&format!(
                    "--channel and {option} do not go together: give DIR/CHANNEL for the sources \
                     of a file"
                )));
            }
            if !operands.is_empty() {
                return Err(usage("with --channel the only operand is the folder of the pipes"));
            }
            (place, channels(&self.channel, &self.selection)?)
        };
        let sources = channels.iter_mut().flat_map(|channel| channel.sources.iter_mut());
        self.service.with_version(sources)?;
        Ok(PipeArgs {
            channels,
            folder,
            epochs: self.epochs.0,
            shuffle_seed: self.shuffle_seed,
            shard: self.shard,
            ready_file: self.ready_file,
            on_failure: self.on_failure,
            epoch_markers: self.epoch_markers,
            record_wrapper: self.record_wrapper,
            augmented,
            selection: self.selection,
            stream: self.stream,
            service: self.service,
        })
    }
}

fn channels(typed: &[String], selection: &SelectionArgs) -> Result<Vec<Channel>, clap::Error> {
    if typed.len() > CHANNELS_MAX {
        return Err(usage(&format!("too many channels: {}, at most {CHANNELS_MAX}", typed.len())));
    }
    let mut channels: Vec<Channel> = Vec::new();
    for text in typed {
        let Some((name, source)) = text.split_once('=') else {
            return Err(usage(&format!(
                "'{}' is not a channel: expected NAME=s3://BUCKET/FOLDER/",
                without_query(text)
            )));
        };
        let name = check_name(name)?;
        if channels.iter().any(|channel| channel.name == name) {
            return Err(usage(&format!("the channel '{name}' is given twice")));
        }
        let source = parse_source(source, selection)?;
        channels.push(Channel { name, sources: vec![source] });
    }
    Ok(channels)
}

/// Longest channel name: file names also need `_` and the number of an epoch.
const CHANNEL_NAME_BYTES_MAX: usize = 200;

fn check_name(name: &str) -> Result<String, clap::Error> {
    let plain = !name.is_empty() && name.len() <= CHANNEL_NAME_BYTES_MAX;
    if plain && !name.contains(['/', '\0']) && name != "." && name != ".." {
        return Ok(name.to_owned());
    }
    Err(usage(&format!("'{}' is not a valid channel name", shown(name))))
}

#[cfg(test)]
mod tests {
    use super::super::{Args, parse};
    use super::*;

    fn pipe(words: &str) -> Result<PipeArgs, String> {
        let words = ["inrush", "pipe"].into_iter().chain(words.split_whitespace());
        match parse(words) {
            Ok(Args::Pipe(args)) => Ok(*args),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn wrappers_are_spelled_as_options_or_as_sagemaker_does() {
        let wrapper = |words: &str| pipe(words).expect(words).record_wrapper;
        assert_eq!(wrapper("s3://bkt/ d/c"), RecordWrapper::None);
        for (name, expected) in [
            ("none", RecordWrapper::None),
            ("None", RecordWrapper::None),
            ("recordio", RecordWrapper::Recordio),
            ("RecordIO", RecordWrapper::Recordio),
        ] {
            assert_eq!(wrapper(&format!("s3://bkt/ d/c --record-wrapper {name}")), expected);
        }
        let error = pipe("s3://bkt/ d/c --record-wrapper tar").expect_err("no wrapper");
        assert!(error.contains("[possible values: none, recordio]"), "{error}");
    }

    #[test]
    fn a_manifest_stands_in_place_of_sources() {
        let words = "--augmented-manifest m.jsonl --attribute b-ref --attribute a d/c";
        let args = pipe(words).expect("a manifest");
        let augmented = args.augmented.expect("a manifest");
        assert_eq!(augmented.manifest, ManifestPlace::File(PathBuf::from("m.jsonl")));
        assert_eq!(augmented.attributes, ["b-ref", "a"]);
        assert!(args.channels.len() == 1 && args.channels[0].sources.is_empty());
        let refused = |words: &str, expected: &str| {
            let error = pipe(words).expect_err(expected);
            assert!(error.contains(expected), "{words}: {error}");
        };
        refused("--augmented-manifest m d/c", "--attribute <NAME>");
        refused("--attribute a s3://bkt/ d/c", "--augmented-manifest <FILE>");
        refused(&format!("s3://bkt/ {words}"), "the only operand is DIR/CHANNEL");
        refused(&format!("{words} --include x"), "cannot be used with");
        refused("--augmented-manifest m --attribute a --channel c=s3://bkt/ d", "cannot be used");
        let many = " --attribute x".repeat(limits::AUGMENTED_ATTRIBUTES_MAX - 1);
        refused(&format!("{words}{many}"), "too many attributes: 17, at most 16");
        assert!(pipe(&format!("{words}{}", &many[" --attribute x".len()..])).is_ok());
        let long = "x".repeat(limits::ATTRIBUTE_NAME_CHARS_MAX + 1);
        refused(&format!("{words} --attribute {long}"), "expected 1 to 256 characters");
    }
}
