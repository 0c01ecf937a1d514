//! A Transform job: the request of `CreateTransformJob`, and what `aws sagemaker
//! describe-transform-job` prints. Names and bounds are those of the model of the API in botocore
//! 1.44.8.
//!
//! SageMaker sends its container the objects as HTTP requests. Here they are the files of a channel
//! in File mode, for a command that reads them: what the description says of requests is ignored.

use super::check::{self, CONTENT_TYPE_CHARS_MAX};
use super::field::{Object, Spelling};
use super::job::{self, DataType};
use super::problem::Problems;
use super::{Channel, Compression, Distribution, TrainingInput};

/// The name of the channel.
const CHANNEL: &str = "transform";
/// The field that has the input.
pub(super) const INPUT: &str = "TransformInput";
/// The fields by which the job is known.
pub(super) const FIELDS: [&str; 3] = [INPUT, "TransformResources", "TransformJobName"];

pub(super) fn read(request: &Object<'_>, problems: &mut Problems) -> TrainingInput {
    request.refuse_mistyped(&[FIELDS[0], FIELDS[1], FIELDS[2], "Environment"], problems);
    let group = request.object("TransformResources", problems).and_then(|resources| {
        resources.refuse_mistyped(&[job::COUNT, job::TYPE], problems);
        job::one_group(&resources, problems)
    });
    job::require_channels(request, INPUT, problems);
    let given = request.value(INPUT).map(|value| (request.at(INPUT), value));
    let channels = job::channels(given.into_iter().collect(), channel, problems);
    check::channels(&channels, problems);
    TrainingInput {
        channels: channels.into_iter().map(|(_, channel)| channel).collect(),
        environment: job::environment(request, [1024, 10_240, 16], problems),
        instance_groups: group.into_iter().collect(),
        ..TrainingInput::default()
    }
}

fn channel(input: &Object<'_>, problems: &mut Problems) -> Option<Channel> {
    const COMPRESSION: &str = "CompressionType";
    const API: Spelling = Spelling::Api;
    input.refuse_unknown(&["DataSource", "ContentType", COMPRESSION, "SplitType"], problems);
    let content_type = input.text("ContentType", &(0..=CONTENT_TYPE_CHARS_MAX), problems);
    // Whatever a request has of an object, its file has all of it.
    let splits = ["None", "Line", "RecordIO", "TFRecord"].map(|name| (name, ()));
    input.choice("SplitType", &splits, API, problems);
    let compression = input.choice(COMPRESSION, &Compression::ALL, API, problems);
    if compression == Some(Compression::Gzip) {
        let what = "Gzip is not supported: SageMaker decompresses what it sends, but files are as \
                    they are stored; give None, and decompress them in COMMAND";
        problems.add(input.at(COMPRESSION), what);
    }
    input.required("DataSource", problems);
    let source = input.object("DataSource", problems)?;
    source.refuse_unknown(&["S3DataSource"], problems);
    source.required("S3DataSource", problems);
    let s3 = source.object("S3DataSource", problems)?;
    s3.refuse_unknown(&["S3DataType", "S3Uri"], problems);
    s3.required("S3DataType", problems);
    let kind = s3.choice("S3DataType", &DataType::OF_FILES, API, problems);
    let location = job::location(&s3, problems);
    let data = kind?.data(location?, Vec::new()).ok()?;
    Some(Channel {
        content_type: content_type.map(str::to_owned),
        // "Batch Transform partitions the Amazon S3 objects in the input by key and maps Amazon S3
        // objects to instances" (developer guide).
        distribution: Distribution::ShardedByS3Key,
        ..Channel::new(CHANNEL, data)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::train::{ChannelData, S3Location};

    /// All fields of the request and of its description in the model.
    fn job() -> Value {
        let mut job = json!({
            "TransformInput": {
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/in/"}},
                "ContentType": "text/csv", "CompressionType": "None", "SplitType": "Line",
            },
            "TransformResources": {
                "InstanceType": "ml.m4.xlarge", "InstanceCount": 2, "VolumeKmsKeyId": "k",
                "TransformAmiVersion": "al2-ami-sagemaker-batch-gpu-535",
            },
            "Environment": {"KEY": "VALUE"},
        });
        let ignored = "TransformJobName ModelName MaxConcurrentTransforms ModelClientConfig \
            MaxPayloadInMB BatchStrategy TransformOutput DataCaptureConfig DataProcessing \
            Tags ExperimentConfig TransformJobArn TransformJobStatus FailureReason \
            CreationTime TransformStartTime TransformEndTime LabelingJobArn AutoMLJobArn";
        for name in ignored.split_whitespace() {
            job[name] = json!("x");
        }
        job
    }

    #[test]
    fn its_input_is_a_channel() {
        let mut job = job();
        let input = job::parse(&job.to_string()).expect("a job");
        let location = |key: &str| S3Location { bucket: "b".to_owned(), key: key.to_owned() };
        let channel = Channel {
            content_type: Some("text/csv".to_owned()),
            distribution: Distribution::ShardedByS3Key,
            ..Channel::new("transform", ChannelData::Prefix(location("in/")))
        };
        assert_eq!(input.channels, [channel]);
        assert_eq!(input.environment["KEY"], "VALUE");
        assert_eq!((input.instance_groups[0].count, input.job_name), (2, None));
        job["TransformInput"]["DataSource"]["S3DataSource"] =
            json!({"S3DataType": "ManifestFile", "S3Uri": "s3://b/list.json"});
        let input = job::parse(&job.to_string()).expect("a job");
        assert_eq!(input.channels[0].data, ChannelData::Manifest(location("list.json")));
    }

    #[test]
    fn what_is_wrong_has_its_path() {
        let check = |pointer: &str, value: Value, expected: &str| {
            let mut job = job();
            let (object, name) = pointer.rsplit_once('/').expect("a pointer");
            job.pointer_mut(object).expect("an object")[name] = value;
            let problems = job::parse(&job.to_string()).expect_err("problems");
            let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(found, [expected], "{pointer}");
        };
        check(
            "/TransformInput/CompressionType",
            json!("Gzip"),
            "TransformInput.CompressionType: Gzip is not supported: SageMaker decompresses what it \
             sends, but files are as they are stored; give None, and decompress them in COMMAND",
        );
        check(
            "/TransformInput/SplitType",
            json!("Lines"),
            "TransformInput.SplitType: invalid value 'Lines': expected None, Line, RecordIO or \
             TFRecord",
        );
        check(
            "/TransformInput/DataSource/S3DataSource/S3DataType",
            json!("AugmentedManifestFile"),
            "TransformInput.DataSource.S3DataSource.S3DataType: invalid value \
             'AugmentedManifestFile': expected S3Prefix or ManifestFile",
        );
        check(
            "/TransformInput/DataSource/S3DataSource/S3Uri",
            json!(null),
            "TransformInput.DataSource.S3DataSource.S3Uri: missing",
        );
        check("/TransformInput/DataSource", json!(null), "TransformInput.DataSource: missing");
        check(
            "/TransformInput",
            json!(null),
            "TransformInput: is missing: a job without channels has no data",
        );
        check(
            "/ProcessingInputs",
            json!([]),
            "TransformInput: ProcessingInputs is of another job: describe one",
        );
    }
}
