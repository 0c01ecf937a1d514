//! The request of `CreateTrainingJob`, as JSON or YAML: what `aws sagemaker create-training-job
//! --cli-input-json` takes, and what `describe-training-job` prints. Other kinds of job are known
//! by their fields, and are read by `processing` and `transform`.
//!
//! Bounds and names are those of the model of the API in botocore 1.44. A field of a channel that
//! is not known is refused, for it may change which bytes the job gets. Other fields are ignored,
//! unless their name is nearly that of one that is read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::check::{self, ATTRIBUTE_CHARS_MAX, ATTRIBUTES_MAX, CONTENT_TYPE_CHARS_MAX};
use super::field::{Object, Spelling, read_description, text};
use super::problem::{Problem, Problems};
use super::{
    CHANNELS_MAX, Channel, ChannelData, Compression, Distribution, InputMode, InstanceGroup,
    ONE_GROUP, RecordWrapper, S3Location, TrainingInput, processing, transform,
};
use crate::limits::JOB_HOSTS_MAX;
use crate::text::shown::shortened;

/// `S3Uri`, in characters.
const URI_CHARS: RangeInclusive<usize> = 0..=1024;
/// `DirectoryPath`, in characters.
const PATH_CHARS: RangeInclusive<usize> = 0..=4096;
/// Any number of characters: what is read is compared with names.
pub(super) const ANY: RangeInclusive<usize> = 0..=usize::MAX;
/// Most `InstanceGroups`.
const GROUPS_MAX: usize = 5;
/// Number and type of instances.
pub(super) const COUNT: &str = "InstanceCount";
pub(super) const TYPE: &str = "InstanceType";
/// Those of a job whose instances Amazon selected.
const SELECTED: [&str; 2] = ["SelectedInstanceCount", "SelectedInstanceType"];
/// `InstanceGroupName`, in characters.
const GROUP_CHARS: RangeInclusive<usize> = 1..=64;
/// `CheckpointConfig.LocalPath`, if it is not given.
const CHECKPOINTS: &str = "/opt/ml/checkpoints";

/// The fields of the request that are read.
const REQUEST: [&str; 8] = [
    "TrainingJobName",
    "AlgorithmSpecification",
    "HyperParameters",
    "InputDataConfig",
    "ResourceConfig",
    "CheckpointConfig",
    "Environment",
    SERVERLESS,
];

/// A job that Amazon runs without instances of its own.
const SERVERLESS: &str = "ServerlessJobConfig";
/// The groups whose hosts get a channel.
const GROUPS: &str = "InstanceGroupNames";

/// `S3DataType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataType {
    Prefix,
    Manifest,
    AugmentedManifest,
}

impl DataType {
    /// Every value with its name in the API. The objects of `Converse` are those of a prefix.
    pub(super) const ALL: [(&'static str, Self); 4] = [
        ("S3Prefix", Self::Prefix),
        ("ManifestFile", Self::Manifest),
        ("AugmentedManifestFile", Self::AugmentedManifest),
        ("Converse", Self::Prefix),
    ];

    /// The values that the other kinds of job have.
    pub(super) const OF_FILES: [(&'static str, Self); 2] = [Self::ALL[0], Self::ALL[1]];

    /// The data of a channel of this type.
    ///
    /// # Errors
    /// When there are attributes, and it is no augmented manifest.
    pub(super) fn data(
        self,
        location: S3Location,
        attributes: Vec<String>,
    ) -> Result<ChannelData, &'static str> {
        match self {
            Self::AugmentedManifest => {
                Ok(ChannelData::AugmentedManifest { manifest: location, attributes })
            }
            _ if !attributes.is_empty() => Err("only AugmentedManifestFile has attributes"),
            Self::Prefix => Ok(ChannelData::Prefix(location)),
            Self::Manifest => Ok(ChannelData::Manifest(location)),
        }
    }
}

/// Reads a description.
///
/// # Errors
/// All that is wrong with it.
pub fn parse(text: &str) -> Result<TrainingInput, Vec<Problem>> {
    read_description(text, read)
}

/// The field of each kind of job that has its channels.
const INPUTS: [&str; 3] = ["InputDataConfig", processing::INPUTS, transform::INPUT];

fn read(request: &Object<'_>, problems: &mut Problems) -> TrainingInput {
    let has = |name: &&str| request.value(name).is_some();
    if let [first, second, ..] = INPUTS.into_iter().filter(has).collect::<Vec<_>>()[..] {
        problems.add(request.at(second), format!("{first} is of another job: describe one"));
        return TrainingInput::default();
    }
    if processing::FIELDS.iter().any(has) {
        processing::read(request, problems)
    } else if transform::FIELDS.iter().any(has) {
        transform::read(request, problems)
    } else {
        training(request, problems)
    }
}

fn training(request: &Object<'_>, problems: &mut Problems) -> TrainingInput {
    request.refuse_mistyped(&REQUEST, problems);
    let job_name = request.text("TrainingJobName", &(1..=63), problems);
    if job_name.is_some_and(|name| !is_job_name(name)) {
        let what = "expected letters and digits, with hyphens between them";
        problems.add(request.at("TrainingJobName"), what);
    }
    let algorithm = request.object("AlgorithmSpecification", problems);
    let mode = algorithm.and_then(|algorithm| {
        algorithm.refuse_mistyped(&["TrainingInputMode"], problems);
        algorithm.choice("TrainingInputMode", &InputMode::ALL, Spelling::Api, problems)
    });
    if request.value(SERVERLESS).is_some() {
        let what = "not supported: SageMaker alone has its base model, and runs no command";
        problems.add(request.at(SERVERLESS), what);
    }
    let before = problems.count();
    let groups = instance_groups(request, problems);
    // A group that is wrong is not known to be missing.
    let known = (problems.count() == before).then_some(&*groups);
    let given = request.list(INPUTS[0], &(1..=CHANNELS_MAX), problems);
    let read = |object: &Object<'_>, problems: &mut Problems| {
        channel(object, (mode.unwrap_or_default(), known), problems)
    };
    let mut channels = channels(given, read, problems);
    let configured = checkpoints(request, problems);
    if configured.is_none() {
        require_channels(request, INPUTS[0], problems);
    }
    channels.extend(configured);
    check::channels(&channels, problems);
    let hyperparameters = pairs(request, "HyperParameters", [256, 2500, 100], problems);
    TrainingInput {
        job_name: job_name.map(str::to_owned),
        channels: channels.into_iter().map(|(_, channel)| channel).collect(),
        hyperparameters,
        environment: environment(request, [512, 512, 100], problems),
        instance_groups: groups,
        ..TrainingInput::default()
    }
}

/// The channels of a list, each with its place. Objects that `read` has no channel of are none.
pub(super) fn channels(
    given: Vec<(String, &Value)>,
    read: impl Fn(&Object<'_>, &mut Problems) -> Option<Channel>,
    problems: &mut Problems,
) -> Vec<(String, Channel)> {
    let mut channels = Vec::new();
    for (path, value) in given {
        let before = problems.count();
        let Some(object) = Object::of(value, path, problems) else { continue };
        let channel = read(&object, problems);
        // What is wrong with a part of it would make other parts look wrong.
        if let Some(channel) = channel.filter(|_| problems.count() == before) {
            channels.push((object.path, channel));
        }
    }
    channels
}

/// Refuses a job without this field. A job of its checkpoints alone has no need of any channels;
/// what is described otherwise would run without its data.
pub(super) fn require_channels(request: &Object<'_>, field: &str, problems: &mut Problems) {
    let has = |name: &str| request.value(name).is_some();
    if has(field) {
        return;
    }
    let around =
        ["TrainingJob", "ProcessingJob", "TransformJob"].into_iter().find(|name| has(name));
    let hint = if ["channels", "checkpointChannel", "hostConfig"].into_iter().any(has) {
        "this looks like an init-config.json: use --init-config".to_owned()
    } else if let Some(around) = around {
        format!("give what {around} has, without it around")
    } else {
        "a job without channels has no data".to_owned()
    };
    problems.add(request.at(field), format!("is missing: {hint}"));
}

fn is_job_name(name: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(is_end)
        && name.ends_with(is_end)
        && name.chars().all(|c| is_end(c) || c == '-')
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A channel of a request with this mode and these groups.
fn channel(
    object: &Object<'_>,
    (mode, groups): (InputMode, Option<&[InstanceGroup]>),
    problems: &mut Problems,
) -> Option<Channel> {
    const KNOWN: [&str; 7] = [
        "ChannelName",
        "DataSource",
        "ContentType",
        "CompressionType",
        "RecordWrapperType",
        "InputMode",
        "ShuffleConfig",
    ];
    object.refuse_unknown(&KNOWN, problems);
    object.required("ChannelName", problems);
    object.required("DataSource", problems);
    let name = object.text("ChannelName", &ANY, problems);
    let content_type = object.text("ContentType", &(0..=CONTENT_TYPE_CHARS_MAX), problems);
    let (all, api) = (&Compression::ALL, Spelling::Api);
    let compression = object.choice("CompressionType", all, api, problems);
    let all = &RecordWrapper::ALL;
    let record_wrapper = object.choice("RecordWrapperType", all, api, problems);
    let mode = object.choice("InputMode", &InputMode::ALL, api, problems).unwrap_or(mode);
    let shuffle_seed = object.object("ShuffleConfig", problems).and_then(|shuffle| {
        shuffle.refuse_unknown(&["Seed"], problems);
        shuffle.required("Seed", problems);
        shuffle.whole("Seed", &(i64::MIN..=i64::MAX), problems)
    });
    let source = object.object("DataSource", problems)?;
    let (data, distribution, instance_groups) = source_of(&source, groups, problems)?;
    Some(Channel {
        mode,
        content_type: content_type.map(str::to_owned),
        distribution,
        instance_groups,
        compression: compression.unwrap_or_default(),
        record_wrapper: record_wrapper.unwrap_or_default(),
        shuffle_seed: shuffle_seed.map(i64::cast_unsigned),
        ..Channel::new(name?, data)
    })
}

/// What a channel has, how hosts share it, and the groups whose hosts get it; none for all.
type Source = (ChannelData, Distribution, Vec<String>);

fn source_of(
    source: &Object<'_>,
    groups: Option<&[InstanceGroup]>,
    problems: &mut Problems,
) -> Option<Source> {
    const KNOWN: [&str; 2] = ["S3DataSource", "FileSystemDataSource"];
    const DATASET: &str = "DatasetSource";
    source.refuse_unknown(&[KNOWN[0], KNOWN[1], DATASET], problems);
    if source.value(DATASET).is_some() {
        let what = "not supported: only SageMaker knows the objects of a hub's data set; give an \
                    S3DataSource";
        problems.add(source.at(DATASET), what);
        return None;
    }
    let s3 = source.object(KNOWN[0], problems);
    let folder = source.object(KNOWN[1], problems);
    match (s3, folder) {
        (Some(s3), None) => s3_source(&s3, groups, problems),
        (None, Some(folder)) => folder_source(&folder, problems),
        (Some(_), Some(_)) => {
            problems.add(&*source.path, "S3DataSource and FileSystemDataSource: give one of them");
            None
        }
        (None, None) => {
            if !KNOWN.iter().any(|name| source.value(name).is_some()) {
                problems.add(&*source.path, "give S3DataSource or FileSystemDataSource");
            }
            None
        }
    }
}

fn s3_source(
    s3: &Object<'_>,
    groups: Option<&[InstanceGroup]>,
    problems: &mut Problems,
) -> Option<Source> {
    // ModelAccessConfig accepts a licence, and HubAccessConfig names the model that the objects
    // are of: neither says which they are.
    const KNOWN: [&str; 7] = [
        "S3DataType",
        "S3Uri",
        "S3DataDistributionType",
        "AttributeNames",
        GROUPS,
        "ModelAccessConfig",
        "HubAccessConfig",
    ];
    s3.refuse_unknown(&KNOWN, problems);
    s3.required("S3DataType", problems);
    let kind = s3.choice("S3DataType", &DataType::ALL, Spelling::Api, problems);
    let location = location(s3, problems);
    let names = ["S3DataDistributionType", "AttributeNames"];
    let found = s3_data(s3, (kind, location), names, Spelling::Api, problems);
    let mut named = Vec::new();
    for (path, value) in s3.list(GROUPS, &(0..=GROUPS_MAX), problems) {
        let Some(name) = text(value, &path, &GROUP_CHARS, problems) else { continue };
        if groups.is_some_and(|groups| groups.iter().all(|group| group.name != name)) {
            let what = format!("ResourceConfig.InstanceGroups has no '{}'", shortened(name));
            problems.add(path, what);
        }
        named.push(name.to_owned());
    }
    let (data, distribution) = found?;
    Some((data, distribution.unwrap_or_default(), named))
}

/// What an object of S3 says beside its type and its place: how hosts share it, and the attributes.
/// The names are those of these two fields.
pub(super) fn s3_data(
    s3: &Object<'_>,
    (kind, location): (Option<DataType>, Option<S3Location>),
    [distribution, attributes]: [&str; 2],
    spelling: Spelling,
    problems: &mut Problems,
) -> Option<(ChannelData, Option<Distribution>)> {
    let shared = s3.choice(distribution, &Distribution::ALL, spelling, problems);
    let named = s3.list(attributes, &(0..=ATTRIBUTES_MAX), problems);
    let named = named.into_iter().filter_map(|(path, value)| {
        text(value, &path, &(1..=ATTRIBUTE_CHARS_MAX), problems).map(str::to_owned)
    });
    let named = named.collect();
    let data = kind?.data(location?, named);
    let data = data.map_err(|what| problems.add(s3.at(attributes), what)).ok()?;
    Some((data, shared))
}

/// `S3Uri`, which must be there.
pub(super) fn location(object: &Object<'_>, problems: &mut Problems) -> Option<S3Location> {
    object.required("S3Uri", problems);
    let uri = object.text("S3Uri", &URI_CHARS, problems)?;
    S3Location::parse(uri).map_err(|what| problems.add(object.at("S3Uri"), what)).ok()
}

fn folder_source(folder: &Object<'_>, problems: &mut Problems) -> Option<Source> {
    const KNOWN: [&str; 4] =
        ["FileSystemId", "FileSystemAccessMode", "FileSystemType", "DirectoryPath"];
    folder.refuse_unknown(&KNOWN, problems);
    folder.required("DirectoryPath", problems);
    let path = folder.text("DirectoryPath", &PATH_CHARS, problems);
    let all = [("ro", false), ("rw", true)];
    let writable = folder.choice("FileSystemAccessMode", &all, Spelling::Api, problems);
    folder.choice("FileSystemType", &[("EFS", ()), ("FSxLustre", ())], Spelling::Api, problems);
    let (path, writable) = (PathBuf::from(path?), writable.unwrap_or_default());
    Some((ChannelData::Folder { path, writable }, Distribution::FullyReplicated, Vec::new()))
}

/// The channel of the checkpoints, which are there when the command starts. An empty prefix is no
/// error: the first run of a job has none.
fn checkpoints(request: &Object<'_>, problems: &mut Problems) -> Option<(String, Channel)> {
    let config = request.object("CheckpointConfig", problems)?;
    config.refuse_unknown(&["S3Uri", "LocalPath"], problems);
    let location = location(&config, problems);
    let path = config.text("LocalPath", &PATH_CHARS, problems).unwrap_or(CHECKPOINTS);
    if let Some(what) = check::output_path(Path::new(path)) {
        problems.add(config.at("LocalPath"), what);
    }
    let channel = Channel {
        allow_empty: true,
        output_path: Some(PathBuf::from(path)),
        ..Channel::new("checkpoints", ChannelData::Prefix(location?))
    };
    Some((config.path, channel))
}

/// `Environment`, with the bounds of [`pairs`].
pub(super) fn environment(
    request: &Object<'_>,
    most: [usize; 3],
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let environment = pairs(request, "Environment", most, problems);
    for name in environment.keys().filter(|name| !is_variable(name)) {
        let what = "expected letters, digits and underscores, and no digit first";
        problems.add(format!("Environment.{}", shortened(name)), what);
    }
    environment
}

/// Names and values: most characters of each, and most of them.
fn pairs(
    request: &Object<'_>,
    name: &str,
    [name_chars_max, value_chars_max, pairs_max]: [usize; 3],
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let Some(object) = request.object(name, problems) else { return BTreeMap::new() };
    let mut pairs = BTreeMap::new();
    for (key, value) in object.values() {
        let path = object.at(&shortened(key));
        if key.chars().count() > name_chars_max {
            problems.add(&*path, format!("its name has over {name_chars_max} characters"));
        }
        if let Some(value) = text(value, &path, &(0..=value_chars_max), problems) {
            pairs.insert(key.clone(), value.to_owned());
        }
    }
    if pairs.len() > pairs_max {
        problems.add(&*object.path, format!("{} items; 0 to {pairs_max} are allowed", pairs.len()));
    }
    check::variables(&object.path, &pairs, problems);
    pairs
}

fn instance_groups(request: &Object<'_>, problems: &mut Problems) -> Vec<InstanceGroup> {
    let Some(config) = request.object("ResourceConfig", problems) else { return Vec::new() };
    config.refuse_mistyped(&[COUNT, TYPE, "InstanceGroups"], problems);
    let groups = config.list("InstanceGroups", &(0..=GROUPS_MAX), problems);
    if groups.is_empty() {
        return one_group(&config, problems).into_iter().collect();
    }
    let (mut found, mut names) = (Vec::new(), BTreeSet::new());
    for (path, value) in groups {
        let Some(group) = Object::of(value, path, problems) else { continue };
        for name in ["InstanceGroupName", TYPE, COUNT] {
            group.required(name, problems);
        }
        let read = instance_group(&group, [COUNT, TYPE], problems);
        let name = group.text("InstanceGroupName", &GROUP_CHARS, problems);
        if let Some(name) = name.filter(|name| !names.insert(*name)) {
            let what = format!("'{}' is the name of another group", shortened(name));
            problems.add(group.at("InstanceGroupName"), what);
        }
        let named = name.zip(read);
        found.extend(named.map(|(name, read)| InstanceGroup { name: name.to_owned(), ..read }));
    }
    found
}

/// The group of a job whose instances are all of one type.
pub(super) fn one_group(config: &Object<'_>, problems: &mut Problems) -> Option<InstanceGroup> {
    // A job with InstancePreferences is described with what was selected.
    let name = |(given, selected)| match config.value(given) {
        None if config.value(selected).is_some() => selected,
        _ => given,
    };
    let names = [(COUNT, SELECTED[0]), (TYPE, SELECTED[1])].map(name);
    instance_group(config, names, problems)
}

/// A group by the names of these two fields.
fn instance_group(
    object: &Object<'_>,
    [count, instance_type]: [&str; 2],
    problems: &mut Problems,
) -> Option<InstanceGroup> {
    let count = object.whole(count, &(1..=i64::from(JOB_HOSTS_MAX)), problems);
    let instance_type = object.text(instance_type, &(1..=64), problems);
    let count = u32::try_from(count?).expect("at most the most hosts");
    let instance_type = instance_type.unwrap_or_default().to_owned();
    Some(InstanceGroup { name: ONE_GROUP.to_owned(), instance_type, count })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Those of a job that has channels, unless it says otherwise.
    fn problems(request: &Value) -> Vec<String> {
        let mut request = request.clone();
        if request.get("InputDataConfig").is_none() {
            request["InputDataConfig"] = json!([prefix("a")]);
        }
        problems_in(&request)
    }

    fn problems_in(request: &Value) -> Vec<String> {
        let problems = parse(&request.to_string()).expect_err("problems");
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_job_without_channels_is_refused() {
        let check = |request: Value, hint: &str| {
            assert_eq!(problems_in(&request), [format!("InputDataConfig: is missing: {hint}")]);
        };
        check(json!({}), "a job without channels has no data");
        check(json!({"InputDataConfig": null}), "a job without channels has no data");
        let within = json!({"TrainingJob": {"InputDataConfig": [prefix("a")]}});
        check(within, "give what TrainingJob has, without it around");
        let within = json!({"ProcessingJob": {"ProcessingInputs": []}});
        check(within, "give what ProcessingJob has, without it around");
        for name in ["channels", "checkpointChannel", "hostConfig"] {
            let hint = "this looks like an init-config.json: use --init-config";
            check(json!({name: {}}), hint);
        }
        let alone = r#"{"CheckpointConfig": {"S3Uri": "s3://bucket/state"}}"#;
        assert_eq!(parse(alone).expect("checkpoints").channels.len(), 1);
    }

    #[test]
    fn the_path_of_checkpoints_has_its_name() {
        let check = |path: &str, expected: &str| {
            let config = json!({"S3Uri": "s3://bucket/state", "LocalPath": path});
            let found = problems(&json!({"CheckpointConfig": config}));
            assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        };
        check("state", "CheckpointConfig.LocalPath: must be absolute");
        let beginning = "CheckpointConfig.LocalPath: '/opt/ml/input/data' is not apart from";
        check("/opt/ml/input/data", beginning);
    }

    fn prefix(name: &str) -> Value {
        let source = json!({"S3DataType": "S3Prefix", "S3Uri": format!("s3://bucket/{name}/")});
        json!({"ChannelName": name, "DataSource": {"S3DataSource": source}})
    }

    fn location(key: &str) -> S3Location {
        S3Location { bucket: "bucket".to_owned(), key: key.to_owned() }
    }

    const WHOLE: &str = r#"
        TrainingJobName: Task1-2020
        RoleArn: arn:aws:iam::123456789012:role/training
        Tags: [{Key: a, Value: b}]
        AlgorithmSpecification: {TrainingImage: image, TrainingInputMode: Pipe}
        InputDataConfig:
          - ChannelName: train
            ContentType: application/x-recordio
            CompressionType: Gzip
            ShuffleConfig: {Seed: -1}
            DataSource:
              S3DataSource:
                S3DataType: S3Prefix
                S3Uri: s3://bucket/train
                S3DataDistributionType: ShardedByS3Key
          - ChannelName: labels
            DataSource:
              S3DataSource:
                S3DataType: AugmentedManifestFile
                S3Uri: s3://bucket/labels.jsonl
                AttributeNames: [image-ref, class]
          - ChannelName: list
            InputMode: File
            DataSource: {S3DataSource: {S3DataType: ManifestFile, S3Uri: "s3://bucket/l.json"}}
          - ChannelName: scratch
            InputMode: File
            DataSource:
              FileSystemDataSource:
                FileSystemId: fs-01234567
                FileSystemType: EFS
                FileSystemAccessMode: rw
                DirectoryPath: /mnt/scratch
        ResourceConfig: {InstanceCount: 2, InstanceType: ml.c5.xlarge, VolumeSizeInGB: 50}
        CheckpointConfig: {S3Uri: "s3://bucket/state"}
        HyperParameters: {epochs: "5", "sagemaker_program": '"train.py"'}
        Environment: {NCCL_DEBUG: INFO}
        StoppingCondition: {MaxRuntimeInSeconds: 3600}
    "#;

    #[test]
    fn a_whole_request_is_read() {
        let input = parse(WHOLE).expect("a job");
        let train = Channel {
            mode: InputMode::Pipe,
            content_type: Some("application/x-recordio".to_owned()),
            distribution: Distribution::ShardedByS3Key,
            compression: Compression::Gzip,
            shuffle_seed: Some(u64::MAX),
            ..Channel::new("train", ChannelData::Prefix(location("train")))
        };
        let attributes = vec!["image-ref".to_owned(), "class".to_owned()];
        let manifest = location("labels.jsonl");
        let labels = ChannelData::AugmentedManifest { manifest, attributes };
        let folder = ChannelData::Folder { path: "/mnt/scratch".into(), writable: true };
        let checkpoints = Channel {
            allow_empty: true,
            output_path: Some("/opt/ml/checkpoints".into()),
            ..Channel::new("checkpoints", ChannelData::Prefix(location("state")))
        };
        let expected = [
            train,
            Channel { mode: InputMode::Pipe, ..Channel::new("labels", labels) },
            Channel::new("list", ChannelData::Manifest(location("l.json"))),
            Channel::new("scratch", folder),
            checkpoints,
        ];
        assert_eq!(input.channels, expected);
        assert_eq!(input.inputs().count(), 4);
        assert_eq!(input.job_name.as_deref(), Some("Task1-2020"));
        assert_eq!(input.hyperparameters["sagemaker_program"], "\"train.py\"");
        assert_eq!(input.environment["NCCL_DEBUG"], "INFO");
        let name = ONE_GROUP.to_owned();
        let group = InstanceGroup { name, instance_type: "ml.c5.xlarge".to_owned(), count: 2 };
        assert_eq!(input.instance_groups, [group]);
        assert_eq!(input.hosts, None);
    }

    #[test]
    fn the_agents_own_copy_of_a_request_is_read() {
        // `trainingjobconfig.json` of a real job spells enumerations in capitals.
        let request = r#"{"EnableManagedSpotTraining":true,"InputDataConfig":[{"ChannelName":"data",
            "DataSource":{"S3DataSource":{"S3DataType":"S3_PREFIX","S3Uri":"s3://bucket/input",
            "S3DataDistributionType":"SHARDED_BY_S3_KEY"}},"CompressionType":"NONE",
            "RecordWrapperType":"NONE"}]}"#;
        let input = parse(request).expect("a job");
        let data = ChannelData::Prefix(location("input"));
        let distribution = Distribution::ShardedByS3Key;
        assert_eq!(input.channels, [Channel { distribution, ..Channel::new("data", data) }]);
    }

    #[test]
    fn all_problems_are_found_at_once() {
        let mut channels = vec![prefix("a"), prefix("b"), prefix("c"), prefix("a"), json!("x")];
        channels[1]["InputMode"] = json!("Fast");
        channels[1]["CompressionType"] = json!("Gzip");
        channels[2]["DataSource"]["S3DataSource"]["S3DataType"] = json!("S3Prefx");
        channels[2]["DataSource"]["S3DataSource"]["S3Uri"] = json!("https://bucket/c");
        let request = json!({
            "TrainingJobName": "-a", "InputDataConfig": channels, "HyperParameter": {},
            "HyperParameters": {"epochs": 5}, "Environment": {"1A": "x"},
            "AlgorithmSpecification": {"TrainingInputMode": "file"},
            "ResourceConfig": {"InstanceCount": 0}, "SecondaryStatus": "Training",
        });
        let expected = [
            "HyperParameter: unknown field; did you mean HyperParameters?",
            "TrainingJobName: expected letters and digits, with hyphens between them",
            "AlgorithmSpecification.TrainingInputMode: invalid value 'file': expected File, \
             Pipe or FastFile",
            "ResourceConfig.InstanceCount: expected 1 to 65536, but it is 0",
            "InputDataConfig[1].InputMode: invalid value 'Fast': expected File, Pipe or FastFile",
            "InputDataConfig[2].DataSource.S3DataSource.S3DataType: invalid value 'S3Prefx': \
             expected S3Prefix, ManifestFile, AugmentedManifestFile or Converse",
            "InputDataConfig[2].DataSource.S3DataSource.S3Uri: 'https://bucket/c' is not an S3 \
             address: it is a URL; give s3://BUCKET/KEY, and the server with --endpoint-url",
            "InputDataConfig[4]: expected an object, but it is 'x'",
            "InputDataConfig[3]: the name 'a' is that of InputDataConfig[0]",
            "HyperParameters.epochs: expected a string, but it is 5: put it between quotes",
            "Environment.1A: expected letters, digits and underscores, and no digit first",
        ];
        assert_eq!(problems(&request), expected);
    }

    #[test]
    fn what_would_change_the_data_is_refused() {
        let check = |pointer: &str, value: Value, expected: &str| {
            let mut channel = prefix("a");
            let (object, name) = pointer.rsplit_once('/').expect("a pointer");
            channel.pointer_mut(object).expect("an object")[name] = value;
            let found = problems(&json!({"InputDataConfig": [channel]}));
            assert_eq!(found, [format!("InputDataConfig[0]{expected}")], "{pointer}");
        };
        let s3 = "/DataSource/S3DataSource";
        let s3 = |name: &str| format!("{s3}/{name}");
        let known = "ChannelName, DataSource, ContentType, CompressionType, RecordWrapperType, \
                     InputMode, ShuffleConfig";
        let unknown = format!(".X: unknown field; it may change the data. Known are {known}");
        check("/X", json!(1), &unknown);
        check("/ContentTyp", json!("a"), ".ContentTyp: unknown field; did you mean ContentType?");
        check("/ChannelName", json!(null), ".ChannelName: missing");
        check("/DataSource", json!({}), ".DataSource: give S3DataSource or FileSystemDataSource");
        check("/ShuffleConfig", json!({}), ".ShuffleConfig.Seed: missing");
        check(&s3("S3Uri"), json!(null), ".DataSource.S3DataSource.S3Uri: missing");
        check(
            &s3("AttributeNames"),
            json!(["a"]),
            ".DataSource.S3DataSource.AttributeNames: only AugmentedManifestFile has attributes",
        );
        check(
            &s3("InstanceGroupNames"),
            json!(["a"]),
            ".DataSource.S3DataSource.InstanceGroupNames[0]: ResourceConfig.InstanceGroups has no \
             'a'",
        );
        check(
            &s3("S3Region"),
            json!("x"),
            ".DataSource.S3DataSource.S3Region: unknown field; it may change the data. Known are \
             S3DataType, S3Uri, S3DataDistributionType, AttributeNames, InstanceGroupNames, \
             ModelAccessConfig, HubAccessConfig",
        );
        check(
            "/DataSource/DatasetSource",
            json!({"DatasetArn": "arn"}),
            ".DataSource.DatasetSource: not supported: only SageMaker knows the objects of a hub's \
             data set; give an S3DataSource",
        );
        check(
            "/RecordWrapperType",
            json!("RecordIO"),
            ": RecordIO is of Pipe mode only, and this is File mode",
        );
    }

    /// All fields of the request, of its description and of its configurations in the model of
    /// botocore 1.44.8 that say nothing about the bytes.
    #[test]
    fn what_changes_no_data_is_accepted() {
        let mut request = json!({
            "TrainingJobName": "a", "RoleArn": "arn",
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "AlgorithmSpecification": {
                "TrainingImage": "i", "AlgorithmName": "n", "TrainingInputMode": "File",
                "MetricDefinitions": [], "EnableSageMakerMetricsTimeSeries": true,
                "ContainerEntrypoint": ["e"], "ContainerArguments": ["a"],
                "TrainingImageConfig": {"TrainingRepositoryAccessMode": "Vpc"},
            },
            "ResourceConfig": {
                "VolumeSizeInGB": 1, "VolumeKmsKeyId": "k", "KeepAlivePeriodInSeconds": 1,
                "TrainingPlanArn": "arn", "InstancePlacementConfig": {"EnableMultipleJobs": true},
                "InstancePreferences": [{"InstanceType": "ml.c5.xlarge"}],
                "SelectedInstanceType": "ml.c5.xlarge", "SelectedInstanceCount": 3,
            },
        });
        let ignored = "VpcConfig StoppingCondition Tags EnableNetworkIsolation \
            EnableInterContainerTrafficEncryption EnableManagedSpotTraining DebugHookConfig \
            DebugRuleConfigurations TensorBoardOutputConfig ExperimentConfig ProfilerConfig \
            ProfilerRuleConfigurations RetryStrategy RemoteDebugConfig InfraCheckConfig \
            SessionChainingConfig MlflowConfig ModelPackageConfig TrainingJobArn TuningJobArn \
            LabelingJobArn AutoMLJobArn ModelArtifacts TrainingJobStatus SecondaryStatus \
            FailureReason WarmPoolStatus CreationTime TrainingStartTime TrainingEndTime \
            LastModifiedTime SecondaryStatusTransitions FinalMetricDataList \
            TrainingTimeInSeconds BillableTimeInSeconds BillableTokenCount \
            DebugRuleEvaluationStatuses ProfilerRuleEvaluationStatuses ProfilingStatus \
            MlflowDetails ProgressInfo OutputModelPackageArn";
        for name in ignored.split_whitespace() {
            request[name] = json!({});
        }
        let mut channel = prefix("a");
        let source = &mut channel["DataSource"]["S3DataSource"];
        source["S3DataType"] = json!("Converse");
        source["ModelAccessConfig"] = json!({"AcceptEula": true});
        source["HubAccessConfig"] = json!({"HubContentArn": "arn"});
        request["InputDataConfig"] = json!([channel]);
        let input = parse(&request.to_string()).expect("a job");
        assert_eq!(input.channels, [Channel::new("a", ChannelData::Prefix(location("a/")))]);
        let selected = &input.instance_groups[0];
        assert_eq!((&*selected.instance_type, selected.count), ("ml.c5.xlarge", 3));
        request["ResourceConfig"]["InstanceCount"] = json!(2);
        let input = parse(&request.to_string()).expect("a job");
        let both = &input.instance_groups[0];
        assert_eq!((&*both.instance_type, both.count), ("ml.c5.xlarge", 2));
        request["ServerlessJobConfig"] = json!({"JobType": "FineTuning"});
        let expected = "ServerlessJobConfig: not supported: SageMaker alone has its base model, \
                        and runs no command";
        assert_eq!(problems(&request), [expected]);
    }

    #[test]
    fn bounds_are_those_of_the_api() {
        let check = |request: Value, expected: &str| {
            assert_eq!(problems(&request).first().map(String::as_str), Some(expected));
        };
        check(json!({"InputDataConfig": []}), "InputDataConfig: 0 items; 1 to 20 are allowed");
        let many: Vec<Value> = (0..21).map(|at| prefix(&format!("c{at}"))).collect();
        check(json!({"InputDataConfig": many}), "InputDataConfig: 21 items; 1 to 20 are allowed");
        let many: BTreeMap<String, &str> = (0..101).map(|at| (format!("h{at}"), "")).collect();
        let expected = "HyperParameters: 101 items; 0 to 100 are allowed";
        check(json!({"HyperParameters": many}), expected);
        let expected = "HyperParameters.a: 2501 characters; 0 to 2500 are allowed";
        check(json!({"HyperParameters": {"a": "x".repeat(2501)}}), expected);
        let expected = "Environment.A: a variable's name has no '=', and nothing in it is NUL";
        check(json!({"Environment": {"A": "\0"}}), expected);
        let expected = "TrainingJobName: 64 characters; 1 to 63 are allowed";
        check(json!({"TrainingJobName": "a".repeat(64)}), expected);
        let mut channel = prefix("a");
        channel["DataSource"]["S3DataSource"]["S3Uri"] =
            json!("s3://bucket/".to_owned() + &"x".repeat(1013));
        let expected = "InputDataConfig[0].DataSource.S3DataSource.S3Uri: 1025 characters; \
                        0 to 1024 are allowed";
        check(json!({"InputDataConfig": [channel]}), expected);
    }

    #[test]
    fn instances_may_be_in_groups() {
        let groups = json!([
            {"InstanceGroupName": "b", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
            {"InstanceGroupName": "a", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
        ]);
        let request = json!({"InputDataConfig": [prefix("a")],
            "ResourceConfig": {"InstanceGroups": groups, "VolumeSizeInGB": 1}});
        let input = parse(&request.to_string()).expect("a job");
        let named: Vec<_> =
            input.instance_groups.iter().map(|group| (&*group.name, group.count)).collect();
        assert_eq!(named, [("b", 1), ("a", 2)]);
        let mut request = request;
        let source = "/InputDataConfig/0/DataSource/S3DataSource";
        request.pointer_mut(source).expect("a source")["InstanceGroupNames"] = json!(["a"]);
        let input = parse(&request.to_string()).expect("a job");
        assert_eq!(input.channels[0].instance_groups, ["a"]);
        let request = json!({"ResourceConfig": {"InstanceGroups": [{"InstanceCount": 1}]}});
        let expected = [
            "ResourceConfig.InstanceGroups[0].InstanceGroupName: missing",
            "ResourceConfig.InstanceGroups[0].InstanceType: missing",
        ];
        assert_eq!(problems(&request), expected);
        let group = json!({"InstanceGroupName": "a", "InstanceType": "x", "InstanceCount": 1});
        let request = json!({"ResourceConfig": {"InstanceGroups": [group, group]}});
        let expected = "ResourceConfig.InstanceGroups[1].InstanceGroupName: 'a' is the name of \
                        another group";
        assert_eq!(problems(&request), [expected]);
    }
}
