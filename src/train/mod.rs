//! The input of a SageMaker training job: its channels, as a job's description has them, and the
//! files under `/opt/ml/input/config` and the variables that a training container finds. The inputs
//! of a Processing job and of a Transform job are channels as well. Pure.
//!
//! Names and values are those of Amazon's `CreateTrainingJob` API and of the "Amazon SageMaker
//! training storage folders" page of its developer guide, if a comment does not say otherwise.
//!
//! * `document`, `field`: JSON or YAML as one kind of tree, and its fields with their places.
//! * [`job`], [`init_config`], [`typed`]: the three descriptions, read into a [`TrainingInput`].
//! * `processing`, `transform`: the other kinds of job that [`job`] reads.
//! * [`check`]: all that can be refused without a request; every reader ends with it.
//! * [`problem`]: what is wrong, all of it at once.
//! * [`ranks`]: which host of how many this is.
//! * [`files`], [`layout`]: the files that a training container finds, and where.
//! * [`variables`], `python`: the environment of the command, as Amazon's toolkit writes it.
//! * [`written`]: what earlier runs wrote there.

pub mod check;
mod document;
mod field;
pub mod files;
pub mod init_config;
pub mod job;
pub mod layout;
pub mod problem;
mod processing;
mod python;
pub mod ranks;
mod transform;
pub mod typed;
pub mod variables;
pub mod written;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::s3::uri::S3Uri;

/// Most channels of a training job (`InputDataConfig` of `CreateTrainingJob`).
pub const CHANNELS_MAX: usize = 20;

/// The name of the group of a job whose instances are all of one type.
pub const ONE_GROUP: &str = "homogeneousCluster";

/// What a training job is given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrainingInput {
    /// `TrainingJobName`; `None` where the description has none.
    pub job_name: Option<String>,
    /// In the order of the description; at most [`CHANNELS_MAX`], no name twice.
    pub channels: Vec<Channel>,
    /// `HyperParameters`: names and values are strings.
    pub hyperparameters: BTreeMap<String, String>,
    /// `Environment`: variables that the command gets.
    pub environment: BTreeMap<String, String>,
    /// `ResourceConfig`: the instances that the description asks for; empty where it does not say.
    pub instance_groups: Vec<InstanceGroup>,
    /// Which host this is of which; `None` where the description does not say.
    pub hosts: Option<Hosts>,
    /// What only a Processing job has; `None` for other jobs.
    pub processing: Option<Processing>,
}

/// What the container of a Processing job finds beside its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processing {
    /// The description as `processingjobconfig.json` has it.
    pub config: Value,
    /// `LocalPath` of each output: a folder that exists when the command starts.
    pub outputs: Vec<PathBuf>,
}

impl TrainingInput {
    /// The channels that the command reads: all but that of the checkpoints, which is no input to
    /// `inputdataconfig.json` and to the variables.
    pub fn inputs(&self) -> impl Iterator<Item = &Channel> {
        self.channels.iter().filter(|channel| channel.output_path.is_none())
    }

    /// This host's place among those that get a channel, and their number; `None` if it is a
    /// channel of other instance groups. A host that is not known is the only one.
    #[must_use]
    pub fn place_of(&self, channel: &Channel) -> Option<(u32, u32)> {
        let alone = || Cow::Owned(Hosts::numbered(0, 1));
        let hosts = self.hosts.as_ref().map_or_else(alone, Cow::Borrowed);
        if channel.instance_groups.is_empty() {
            return Some((hosts.rank, hosts.count));
        }
        let groups = files::hosts_of_groups(&hosts, &self.instance_groups);
        let named =
            groups.iter().filter(|(group, _)| channel.instance_groups.contains(&group.name));
        let names: Vec<&str> = named.flat_map(|(_, names)| names.iter().copied()).collect();
        let place = names.iter().position(|name| *name == hosts.current)?;
        Some((u32::try_from(place).ok()?, u32::try_from(names.len()).ok()?))
    }
}

/// Instances of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceGroup {
    /// `InstanceGroupName`, or [`ONE_GROUP`].
    pub name: String,
    /// `InstanceType`.
    pub instance_type: String,
    /// `InstanceCount`.
    pub count: u32,
}

/// The hosts of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// Which of them this one is, from 0.
    pub rank: u32,
    /// How many there are; not 0.
    pub count: u32,
    /// Their names in the order of `resourceconfig.json`, which is that of their bytes: `algo-10`
    /// stands before `algo-2`.
    pub names: Vec<String>,
    /// The name of this one, which is one of them.
    pub current: String,
    /// The names of each instance group's hosts, where `resourceconfig.json` has them; else the
    /// first hosts, by their numbers, are those of the description's first group.
    pub groups: Vec<(String, Vec<String>)>,
}

impl Hosts {
    /// Hosts that have the names SageMaker gives: `algo-1` has rank 0.
    #[must_use]
    pub fn numbered(rank: u32, count: u32) -> Self {
        let name = |rank: u32| format!("algo-{}", u64::from(rank) + 1);
        let mut names: Vec<String> = (0..count).map(name).collect();
        names.sort_unstable();
        Self { rank, count, names, current: name(rank), groups: Vec::new() }
    }
}

/// One input of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// `ChannelName`: 1 to 64 letters, digits, `.`, `-` and `_`.
    pub name: String,
    /// Where its data is.
    pub data: ChannelData,
    /// How the command reads it.
    pub mode: InputMode,
    /// `ContentType`, which only goes into `inputdataconfig.json`.
    pub content_type: Option<String>,
    /// Which hosts get which objects.
    pub distribution: Distribution,
    /// `InstanceGroupNames`: whose hosts get it; all hosts if it is empty.
    pub instance_groups: Vec<String>,
    /// Whether objects are inflated on the way.
    pub compression: Compression,
    /// Whether each object becomes a record.
    pub record_wrapper: RecordWrapper,
    /// `ShuffleConfig.Seed`.
    pub shuffle_seed: Option<u64>,
    /// Whether no object at all is no error.
    pub allow_empty: bool,
    /// Where the files go instead of the channel's folder: only that of the checkpoints has it.
    pub output_path: Option<PathBuf>,
    /// `LocalPath` of a Processing job's input, which takes the place of the channel's folder.
    pub local_path: Option<PathBuf>,
}

impl Channel {
    /// The channel with this data, and every other field as if it had not been given.
    #[must_use]
    pub fn new(name: impl Into<String>, data: ChannelData) -> Self {
        Self {
            name: name.into(),
            data,
            mode: InputMode::default(),
            content_type: None,
            distribution: Distribution::default(),
            instance_groups: Vec::new(),
            compression: Compression::default(),
            record_wrapper: RecordWrapper::default(),
            shuffle_seed: None,
            allow_empty: false,
            output_path: None,
            local_path: None,
        }
    }

    /// The path in a container that a channel has instead of its folder.
    #[must_use]
    pub fn own_path(&self) -> Option<&Path> {
        self.output_path.as_deref().or(self.local_path.as_deref())
    }
}

/// Where the data of a channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelData {
    /// `S3Prefix`: all objects whose key begins so, whether or not a slash follows.
    Prefix(S3Location),
    /// `ManifestFile`: the objects that this JSON file names.
    Manifest(S3Location),
    /// `AugmentedManifestFile`: the attributes of each line of this file, in this order.
    AugmentedManifest {
        /// The file.
        manifest: S3Location,
        /// `AttributeNames`; never empty.
        attributes: Vec<String>,
    },
    /// `FileSystemDataSource`: a folder of a file system that is mounted on this host.
    Folder {
        /// The folder.
        path: PathBuf,
        /// `FileSystemAccessMode` is `rw`.
        writable: bool,
    },
}

/// `S3Uri`: a bucket and the start of keys, exactly as written: no character is a wildcard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Location {
    /// The bucket.
    pub bucket: String,
    /// The key, or what keys begin with; may be empty.
    pub key: String,
}

impl S3Location {
    /// Reads `s3://BUCKET/KEY`; an access point's ARN may stand in place of the bucket.
    ///
    /// The model of the API also allows `https://`, without saying what its parts would be; no
    /// documented example has it.
    ///
    /// # Errors
    /// Why it is no such address, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let uri = S3Uri::parse_raw(text).map_err(|error| error.message().to_owned())?;
        Ok(Self { key: uri.literal_key().to_owned(), bucket: uri.bucket })
    }
}

/// `InputMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InputMode {
    /// Files in the channel's folder, complete before the command starts.
    #[default]
    File,
    /// A named pipe for each epoch.
    Pipe,
    /// Files that are downloaded as they are read.
    FastFile,
}

impl InputMode {
    /// Every value with its name in the API.
    pub const ALL: [(&'static str, Self); 3] =
        [("File", Self::File), ("Pipe", Self::Pipe), ("FastFile", Self::FastFile)];

    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "File",
            Self::Pipe => "Pipe",
            Self::FastFile => "FastFile",
        }
    }
}

/// `S3DataDistributionType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// Every host gets all objects.
    #[default]
    FullyReplicated,
    /// Every host gets its share of the objects: object `i` in key order goes to host `i % n`.
    ShardedByS3Key,
}

impl Distribution {
    /// Every value with its name in the API.
    pub const ALL: [(&'static str, Self); 2] =
        [("FullyReplicated", Self::FullyReplicated), ("ShardedByS3Key", Self::ShardedByS3Key)];

    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FullyReplicated => "FullyReplicated",
            Self::ShardedByS3Key => "ShardedByS3Key",
        }
    }
}

/// `CompressionType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Bytes are handed on as they are stored.
    #[default]
    None,
    /// Objects are gzip (RFC 1952), and are inflated.
    Gzip,
}

impl Compression {
    /// Every value with its name in the API.
    pub const ALL: [(&'static str, Self); 2] = [("None", Self::None), ("Gzip", Self::Gzip)];

    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Gzip => "Gzip",
        }
    }
}

/// `RecordWrapperType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordWrapper {
    /// Objects follow one another without anything between them.
    #[default]
    None,
    /// Each object, or attribute of an augmented manifest, is a record of the `RecordIO` format of
    /// MXNet.
    RecordIo,
}

impl RecordWrapper {
    /// Every value with its name in the API.
    pub const ALL: [(&'static str, Self); 2] = [("None", Self::None), ("RecordIO", Self::RecordIo)];

    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::RecordIo => "RecordIO",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::epoch::{Shard, permutation};

    #[test]
    fn the_guide_has_the_orders_that_epochs_have() {
        let page = include_str!("../guide/training.md");
        let numbers = |cell: &str| -> Vec<u32> {
            cell.split_whitespace().map(|word| word.parse().expect("a number")).collect()
        };
        let rows = page.split_once("| seed | epoch |").expect("a table").1;
        let rows = rows.lines().skip(2).take_while(|line| line.starts_with('|'));
        let mut checked = 0;
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let seed: i64 = cells[0].parse().expect("a seed");
            let order = permutation(seed.cast_unsigned(), cells[1].parse().expect("an epoch"), 8);
            assert_eq!(numbers(cells[2]), order, "{row}");
            for index in 0..2 {
                let shard = Shard { index, count: 2 };
                let places = (0..).zip(&order).filter(|(place, _)| shard.takes(*place));
                let of_shard: Vec<u32> = places.map(|(_, object)| *object).collect();
                assert_eq!(numbers(cells[3 + index as usize]), of_shard, "{row}");
            }
            checked += 1;
        }
        assert_eq!(checked, 3);
    }

    pub(super) fn group(name: &str, count: u32) -> InstanceGroup {
        InstanceGroup { name: name.to_owned(), instance_type: "ml.c5.xlarge".to_owned(), count }
    }

    #[test]
    fn hosts_of_some_groups_share_a_channel_among_themselves() {
        let mut input = TrainingInput {
            instance_groups: vec![group("a", 2), group("b", 1), group("c", 2)],
            ..TrainingInput::default()
        };
        let mut places = |of: &[&str]| -> Vec<Option<(u32, u32)>> {
            let data = ChannelData::Folder { path: "/x".into(), writable: false };
            let instance_groups = of.iter().map(|name| (*name).to_owned()).collect();
            let channel = Channel { instance_groups, ..Channel::new("c", data) };
            let mut place = |rank| {
                input.hosts = Some(Hosts::numbered(rank, 5));
                input.place_of(&channel)
            };
            (0..5).map(&mut place).collect()
        };
        let of = |count: u32, places: [i64; 5]| -> Vec<Option<(u32, u32)>> {
            places.map(|place| u32::try_from(place).ok().map(|place| (place, count))).to_vec()
        };
        assert_eq!(places(&[]), of(5, [0, 1, 2, 3, 4]));
        assert_eq!(places(&["a"]), of(2, [0, 1, -1, -1, -1]));
        assert_eq!(places(&["b"]), of(1, [-1, -1, 0, -1, -1]));
        assert_eq!(places(&["c", "a"]), of(4, [0, 1, -1, 2, 3]));
        assert_eq!(places(&["d"]), of(0, [-1; 5]));
    }

    /// A list of hosts has the order of bytes: algo-10 stands before algo-2.
    #[test]
    fn the_group_of_a_host_is_that_of_its_name() {
        let groups = vec![group("a", 2), group("b", 9)];
        let listed = |current: &str, more: &str| {
            let hosts = Hosts::numbered(0, 11).names;
            let names: Vec<String> = hosts.iter().map(|name| format!("\"{name}\"")).collect();
            let names = names.join(",");
            let text = format!("{{\"current_host\":\"{current}\",\"hosts\":[{names}]{more}}}");
            files::hosts_of_resource_config(&text)
        };
        let data = ChannelData::Folder { path: "/x".into(), writable: false };
        let of_a = Channel { instance_groups: vec!["a".to_owned()], ..Channel::new("c", data) };
        let place = |current: &str, more: &str| {
            let hosts = Some(listed(current, more).expect("hosts"));
            let instance_groups = groups.clone();
            TrainingInput { hosts, instance_groups, ..TrainingInput::default() }.place_of(&of_a)
        };
        assert_eq!(place("algo-2", ""), Some((1, 2)));
        assert_eq!(place("algo-10", ""), None);
        // What the file says counts.
        let of_b: Vec<String> = (1..10).map(|number| format!("\"algo-{number}\"")).collect();
        let of_b = of_b.join(",");
        let said = format!(
            ",\"instance_groups\":[{{\"instance_group_name\":\"a\",\"hosts\":[\"algo-10\",\
             \"algo-11\"]}},{{\"instance_group_name\":\"b\",\"hosts\":[{of_b}]}}]"
        );
        assert_eq!(place("algo-2", &said), None);
        assert_eq!(place("algo-11", &said), Some((1, 2)));
        let half = ",\"instance_groups\":[{\"instance_group_name\":\"a\",\"hosts\":[]}]";
        let error = listed("algo-1", half).expect_err("hosts of no group");
        assert_eq!(error, "instance_groups has not each host once");
    }

    #[test]
    fn hosts_are_listed_by_their_bytes() {
        let hosts = Hosts::numbered(1, 11);
        assert_eq!(hosts.current, "algo-2");
        assert_eq!(hosts.names[..4], ["algo-1", "algo-10", "algo-11", "algo-2"]);
    }
}
