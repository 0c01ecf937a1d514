//! A Processing job: the request of `CreateProcessingJob`, what `aws sagemaker
//! describe-processing-job` prints, and the `processingjobconfig.json` of a container.
//!
//! Names and bounds are those of the model of the API in botocore 1.44.8, and what a container
//! finds is that of "Build Your Own Processing Container" in the developer guide.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::check;
use super::field::{Object, Spelling};
use super::job::{self, ANY, DataType};
use super::problem::Problems;
use super::{Channel, Compression, Distribution, InputMode, Processing, TrainingInput};

/// The field that has the inputs.
pub(super) const INPUTS: &str = "ProcessingInputs";
/// The fields by which the job is known.
pub(super) const FIELDS: [&str; 3] = [INPUTS, "ProcessingResources", "ProcessingJobName"];

/// The other fields of the request that are read.
const OUTPUTS: &str = "ProcessingOutputConfig";
const ENVIRONMENT: &str = "Environment";
/// Those of `processingjobconfig.json`.
const CONFIG: [&str; 9] = [
    "ProcessingJobArn",
    "ProcessingJobName",
    "AppSpecification",
    ENVIRONMENT,
    INPUTS,
    OUTPUTS,
    "ProcessingResources",
    "RoleArn",
    "StoppingCondition",
];
/// The field of an input or an output that the command transfers by itself.
const APP_MANAGED: &str = "AppManaged";
/// The path in the container, and most of its characters.
const LOCAL_PATH: &str = "LocalPath";
const PATH_CHARS: RangeInclusive<usize> = 0..=256;
/// Most inputs, and most outputs.
const PLACES_MAX: usize = 10;

pub(super) fn read(request: &Object<'_>, problems: &mut Problems) -> TrainingInput {
    request.refuse_mistyped(&[FIELDS[0], FIELDS[1], FIELDS[2], ENVIRONMENT, OUTPUTS], problems);
    let resources = request.object("ProcessingResources", problems);
    let cluster = resources.and_then(|resources| {
        resources.refuse_mistyped(&["ClusterConfig"], problems);
        resources.object("ClusterConfig", problems)
    });
    let group = cluster.and_then(|cluster| {
        cluster.refuse_mistyped(&[job::COUNT, job::TYPE], problems);
        job::one_group(&cluster, problems)
    });
    job::require_channels(request, INPUTS, problems);
    let given = request.list(INPUTS, &(1..=PLACES_MAX), problems);
    let (is_given, before) = (!given.is_empty(), problems.count());
    let channels = job::channels(given, channel, problems);
    if is_given && channels.is_empty() && problems.count() == before {
        let what = "each is AppManaged: COMMAND downloads it by itself, and has no need of inrush";
        problems.add(request.at(INPUTS), what);
    }
    check::channels(&channels, problems);
    let config = CONFIG.into_iter().filter_map(|name| Some((name, request.value(name)?.clone())));
    let config = Value::from_iter(config);
    TrainingInput {
        channels: channels.into_iter().map(|(_, channel)| channel).collect(),
        environment: job::environment(request, [256, 256, 100], problems),
        instance_groups: group.into_iter().collect(),
        processing: Some(Processing { config, outputs: outputs(request, problems) }),
        ..TrainingInput::default()
    }
}

/// The channel of an input; `None` for one that is not downloaded.
fn channel(input: &Object<'_>, problems: &mut Problems) -> Option<Channel> {
    const DATASET: &str = "DatasetDefinition";
    input.refuse_unknown(&["InputName", APP_MANAGED, "S3Input", DATASET], problems);
    if input.boolean(APP_MANAGED, problems) == Some(true) {
        return None;
    }
    if input.value(DATASET).is_some() {
        let what = "not supported: SageMaker has Athena or Redshift write this data to its \
                    OutputS3Uri; give an S3Input with what is there";
        problems.add(input.at(DATASET), what);
        return None;
    }
    input.required("InputName", problems);
    input.required("S3Input", problems);
    let name = input.text("InputName", &ANY, problems);
    let s3 = input.object("S3Input", problems)?;
    let known = [
        "S3Uri",
        LOCAL_PATH,
        "S3DataType",
        "S3InputMode",
        "S3DataDistributionType",
        "S3CompressionType",
        "S3DownloadMode",
    ];
    s3.refuse_unknown(&known, problems);
    s3.required(LOCAL_PATH, problems);
    s3.required("S3DataType", problems);
    let (modes, api) = (&InputMode::ALL[..2], Spelling::Api);
    let location = job::location(&s3, problems);
    let local_path = local_path(&s3, problems);
    let kind = s3.choice("S3DataType", &DataType::OF_FILES, api, problems);
    let mode = s3.choice("S3InputMode", modes, api, problems);
    let all = &Distribution::ALL;
    let distribution = s3.choice("S3DataDistributionType", all, api, problems);
    let all = &Compression::ALL;
    let compression = s3.choice("S3CompressionType", all, api, problems);
    // Of the developer guide; the model of the API has none.
    s3.choice("S3DownloadMode", &[("StartOfJob", ())], api, problems);
    let data = kind?.data(location?, Vec::new()).ok()?;
    Some(Channel {
        mode: mode.unwrap_or_default(),
        distribution: distribution.unwrap_or_default(),
        compression: compression.unwrap_or_default(),
        local_path,
        ..Channel::new(name?, data)
    })
}

/// The folders of the outputs that SageMaker would upload.
fn outputs(request: &Object<'_>, problems: &mut Problems) -> Vec<PathBuf> {
    let Some(config) = request.object(OUTPUTS, problems) else { return Vec::new() };
    config.refuse_mistyped(&["Outputs"], problems);
    let mut folders = Vec::new();
    for (path, value) in config.list("Outputs", &(0..=PLACES_MAX), problems) {
        let Some(output) = Object::of(value, path, problems) else { continue };
        output.refuse_mistyped(&[APP_MANAGED, "S3Output"], problems);
        let is_own = output.boolean(APP_MANAGED, problems) == Some(true);
        let s3 = output.object("S3Output", problems).filter(|_| !is_own);
        folders.extend(s3.and_then(|s3| local_path(&s3, problems)));
    }
    folders
}

/// `LocalPath`, without a slash at its end.
fn local_path(s3: &Object<'_>, problems: &mut Problems) -> Option<PathBuf> {
    let path = Path::new(s3.text(LOCAL_PATH, &PATH_CHARS, problems)?);
    match check::local_path(path) {
        None => Some(path.components().collect()),
        Some(what) => {
            problems.add(s3.at(LOCAL_PATH), what);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::train::layout::Layout;
    use crate::train::{ChannelData, S3Location, files};

    /// That of the developer guide, and an input of each other kind.
    fn job() -> Value {
        let s3 = |uri: &str, path: &str, kind: &str| {
            json!({
                "S3Uri": uri, "LocalPath": path, "S3DataType": kind,
            })
        };
        let mut dataset = s3("s3://b/in", "/opt/ml/processing/input/dataset/", "S3Prefix");
        dataset["S3DataDistributionType"] = json!("FullyReplicated");
        dataset["S3InputMode"] = json!("File");
        dataset["S3CompressionType"] = json!("None");
        dataset["S3DownloadMode"] = json!("StartOfJob");
        let mut piped = s3("s3://b/list.json", "/opt/ml/processing/p", "MANIFEST_FILE");
        piped["S3InputMode"] = json!("PIPE");
        piped["S3DataDistributionType"] = json!("SHARDEDBYS3KEY");
        piped["S3CompressionType"] = json!("GZIP");
        json!({
            "ProcessingJobArn": "arn", "ProcessingJobName": "job",
            "AppSpecification": {
                "ImageUri": "i", "ContainerEntrypoint": null, "ContainerArguments": null,
            },
            "Environment": {"KEY": "VALUE"},
            "ProcessingInputs": [
                {"InputName": "input-1", "S3Input": dataset},
                {"InputName": "p", "AppManaged": false, "S3Input": piped},
                {"InputName": "own", "AppManaged": true, "DatasetDefinition": {"LocalPath": "/a"}},
            ],
            "ProcessingOutputConfig": {
                "Outputs": [
                    {"OutputName": "o", "S3Output": {
                        "LocalPath": "/opt/ml/processing/output/dataset",
                        "S3Uri": "s3://b/out", "S3UploadMode": "EndOfJob",
                    }},
                    {"OutputName": "f", "AppManaged": true,
                     "FeatureStoreOutput": {"FeatureGroupName": "g"}},
                ],
                "KmsKeyId": null,
            },
            "ProcessingResources": {"ClusterConfig": {
                "InstanceCount": 2, "InstanceType": "ml.m5.xlarge", "VolumeSizeInGB": 30,
                "VolumeKmsKeyId": null,
            }},
            "RoleArn": "arn", "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        })
    }

    fn problems(job: &Value) -> Vec<String> {
        let problems = job::parse(&job.to_string()).expect_err("problems");
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_whole_job_is_read() {
        let input = job::parse(&job().to_string()).expect("a job");
        let location = |key: &str| S3Location { bucket: "b".to_owned(), key: key.to_owned() };
        let dataset = Channel {
            local_path: Some("/opt/ml/processing/input/dataset".into()),
            ..Channel::new("input-1", ChannelData::Prefix(location("in")))
        };
        let piped = Channel {
            mode: InputMode::Pipe,
            distribution: Distribution::ShardedByS3Key,
            compression: Compression::Gzip,
            local_path: Some("/opt/ml/processing/p".into()),
            ..Channel::new("p", ChannelData::Manifest(location("list.json")))
        };
        assert_eq!(input.channels, [dataset, piped]);
        assert_eq!(input.environment["KEY"], "VALUE");
        let group = &input.instance_groups[0];
        assert_eq!((&*group.instance_type, group.count), ("ml.m5.xlarge", 2));
        let processing = input.processing.expect("it is one");
        assert_eq!(processing.outputs, [Path::new("/opt/ml/processing/output/dataset")]);
        // The container finds it as it was given, and elsewhere with the paths that are there.
        let config = |layout: &Layout| {
            let text = files::processing_job_config(&processing, layout);
            serde_json::from_str::<Value>(&text).expect("JSON")
        };
        assert_eq!(config(&Layout::default()), job());
        let path = "/ProcessingInputs/0/S3Input/LocalPath";
        let elsewhere = config(&Layout { base: "/tmp/ml".into(), is_processing: true });
        assert_eq!(elsewhere.pointer(path), Some(&json!("/tmp/ml/processing/input/dataset/")));
        let path = "/ProcessingOutputConfig/Outputs/0/S3Output/LocalPath";
        let moved = json!("/tmp/ml/processing/output/dataset");
        assert_eq!(elsewhere.pointer(path), Some(&moved));
    }

    #[test]
    fn what_is_wrong_has_its_path() {
        let check = |pointer: &str, value: Value, expected: &[&str]| {
            let mut job = job();
            let (object, name) = pointer.rsplit_once('/').expect("a pointer");
            job.pointer_mut(object).expect("an object")[name] = value;
            assert_eq!(problems(&job), expected, "{pointer}");
        };
        let s3 = |name: &str| format!("/ProcessingInputs/0/S3Input/{name}");
        check(&s3("LocalPath"), json!(null), &["ProcessingInputs[0].S3Input.LocalPath: missing"]);
        check(
            &s3("LocalPath"),
            json!("/opt/ml/input/data/a"),
            &["ProcessingInputs[0].S3Input.LocalPath: '/opt/ml/input/data/a' does not begin with \
               /opt/ml/processing/"],
        );
        check(
            &s3("S3Uri"),
            json!("https://b/in"),
            &["ProcessingInputs[0].S3Input.S3Uri: 'https://b/in' is not an S3 address: it is a \
               URL; give s3://BUCKET/KEY, and the server with --endpoint-url"],
        );
        check(
            &s3("S3InputMode"),
            json!("FastFile"),
            &["ProcessingInputs[0].S3Input.S3InputMode: invalid value 'FastFile': expected File \
               or Pipe"],
        );
        check(
            &s3("S3DataType"),
            json!("AugmentedManifestFile"),
            &["ProcessingInputs[0].S3Input.S3DataType: invalid value 'AugmentedManifestFile': \
               expected S3Prefix or ManifestFile"],
        );
        check(
            &s3("S3CompressionType"),
            json!("Gzip"),
            &["ProcessingInputs[0]: CompressionType Gzip is of Pipe mode only, and this is File \
               mode: use InputMode Pipe, or CompressionType None, and decompress the files in \
               COMMAND"],
        );
        check(
            "/ProcessingInputs/0/DatasetDefinition",
            json!({"LocalPath": "/opt/ml/processing/a"}),
            &["ProcessingInputs[0].DatasetDefinition: not supported: SageMaker has Athena or \
               Redshift write this data to its OutputS3Uri; give an S3Input with what is there"],
        );
        check(
            "/ProcessingOutputConfig/Outputs/0/S3Output/LocalPath",
            json!("out"),
            &["ProcessingOutputConfig.Outputs[0].S3Output.LocalPath: must be absolute"],
        );
        check(
            "/InputDataConfig",
            json!([]),
            &["ProcessingInputs: InputDataConfig is of another job: describe one"],
        );
        check(
            "/ProcessingInputs",
            json!(null),
            &["ProcessingInputs: is missing: a job without channels has no data"],
        );
        check(
            "/ProcessingInputs",
            json!([{"InputName": "a", "AppManaged": true}]),
            &["ProcessingInputs: each is AppManaged: COMMAND downloads it by itself, and has no \
               need of inrush"],
        );
    }

    /// All fields of the request, of its description and of its configurations in the model of
    /// botocore 1.44.8 that say nothing about the bytes.
    #[test]
    fn what_changes_no_data_is_accepted() {
        let mut job = job();
        let ignored = "NetworkConfig Tags ExperimentConfig ProcessingJobStatus ExitMessage \
            FailureReason ProcessingEndTime ProcessingStartTime LastModifiedTime \
            CreationTime MonitoringScheduleArn AutoMLJobArn TrainingJobArn";
        for name in ignored.split_whitespace() {
            job[name] = json!({});
        }
        job["ProcessingResources"]["ClusterConfig"] = json!({
            "VolumeSizeInGB": 1, "InstancePreferences": [{"InstanceType": "ml.m5.large"}],
            "SelectedInstanceType": "ml.m5.large", "SelectedInstanceCount": 3,
        });
        let input = job::parse(&job.to_string()).expect("a job");
        assert_eq!(input.instance_groups[0].count, 3);
    }
}
