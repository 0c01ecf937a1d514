//! `init-config.json`: the input of SageMaker's own agent on a training instance, in
//! `/opt/ml/input/config`. With this file no other description is needed.
//!
//! The file is undocumented. Its fields are those of a file that a real job of 2020 left behind;
//! values that this file lacks are accepted in the spelling of the API and in capitals. An unknown
//! field of a channel is an error, because it may change which bytes the job gets.

use std::path::{Path, PathBuf};

use super::check::{self, CONTENT_TYPE_CHARS_MAX};
use super::field::{Object, Spelling, read_description};
use super::job::{DataType, s3_data};
use super::problem::{Problem, Problems};
use super::{
    Channel, ChannelData, Compression, Distribution, Hosts, InputMode, RecordWrapper, S3Location,
    TrainingInput,
};
use crate::limits::JOB_HOSTS_MAX;
use crate::text::shown::shortened;

/// Reads the file.
///
/// # Errors
/// All that is wrong with it.
pub fn parse(text: &str) -> Result<TrainingInput, Vec<Problem>> {
    read_description(text, read)
}

fn read(config: &Object<'_>, problems: &mut Problems) -> TrainingInput {
    config.refuse_mistyped(&["inputMode", "channels", "checkpointChannel", "hostConfig"], problems);
    let mode = config.choice("inputMode", &InputMode::ALL, Spelling::Any, problems);
    let mode = mode.unwrap_or_default();
    let mut channels = Vec::new();
    if let Some(all) = config.object("channels", problems) {
        for (name, value) in all.values() {
            let path = all.at(&shortened(name));
            let before = problems.count();
            let channel = Object::of(value, path.clone(), problems)
                .and_then(|object| channel(&object, name, mode, problems));
            // What is wrong with a part of it would make other parts look wrong.
            channels.extend(channel.filter(|_| problems.count() == before).map(|one| (path, one)));
        }
    }
    let configured = checkpoints(config, problems);
    let is_empty = config.value("channels").is_none_or(|all| all == &serde_json::json!({}));
    if configured.is_none() && is_empty {
        let hint = match config.value("InputDataConfig") {
            Some(_) => "this looks like the request of CreateTrainingJob: use --job",
            None => "a job without channels has no data",
        };
        problems.add(config.at("channels"), format!("is missing: {hint}"));
    }
    channels.extend(configured);
    check::channels(&channels, problems);
    TrainingInput {
        channels: channels.into_iter().map(|(_, channel)| channel).collect(),
        hosts: hosts(config, problems),
        ..TrainingInput::default()
    }
}

fn channel(
    object: &Object<'_>,
    name: &str,
    mode: InputMode,
    problems: &mut Problems,
) -> Option<Channel> {
    const KNOWN: [&str; 9] = [
        "s3DataSource",
        "fileSystemDataSource",
        "contentType",
        "compressionType",
        "recordWrapper",
        "shuffleConfig",
        "inputMode",
        "sharded",
        "allowEmpty",
    ];
    const ANY: Spelling = Spelling::Any;
    object.refuse_unknown(&KNOWN, problems);
    let mode = object.choice("inputMode", &InputMode::ALL, ANY, problems).unwrap_or(mode);
    let compression = object.choice("compressionType", &Compression::ALL, ANY, problems);
    let record_wrapper = object.choice("recordWrapper", &RecordWrapper::ALL, ANY, problems);
    let content_type = object.text("contentType", &(0..=CONTENT_TYPE_CHARS_MAX), problems);
    let shuffle_seed = object.object("shuffleConfig", problems).and_then(|shuffle| {
        shuffle.refuse_unknown(&["seed"], problems);
        shuffle.required("seed", problems);
        shuffle.whole("seed", &(i64::MIN..=i64::MAX), problems)
    });
    let sharded = object.boolean("sharded", problems);
    let allow_empty = object.boolean("allowEmpty", problems);
    let (data, distribution) = source_of(object, sharded, problems)?;
    Some(Channel {
        mode,
        content_type: content_type.map(str::to_owned),
        distribution,
        compression: compression.unwrap_or_default(),
        record_wrapper: record_wrapper.unwrap_or_default(),
        shuffle_seed: shuffle_seed.map(i64::cast_unsigned),
        allow_empty: allow_empty.unwrap_or_default(),
        ..Channel::new(name, data)
    })
}

fn source_of(
    object: &Object<'_>,
    sharded: Option<bool>,
    problems: &mut Problems,
) -> Option<(ChannelData, Distribution)> {
    let s3 = object.object("s3DataSource", problems);
    let folder = object.object("fileSystemDataSource", problems);
    let (data, distribution) = match (s3, folder) {
        (Some(s3), None) => s3_source(&s3, problems)?,
        (None, Some(folder)) => (folder_source(&folder, problems)?, None),
        _ => {
            problems.add(&*object.path, "give one of s3DataSource and fileSystemDataSource");
            return None;
        }
    };
    let by_flag = sharded.map(|sharded| match sharded {
        true => Distribution::ShardedByS3Key,
        false => Distribution::FullyReplicated,
    });
    if distribution.is_some() && by_flag.is_some() && distribution != by_flag {
        problems.add(object.at("sharded"), "s3DataDistributionType says the opposite");
    }
    Some((data, distribution.or(by_flag).unwrap_or_default()))
}

fn s3_source(
    s3: &Object<'_>,
    problems: &mut Problems,
) -> Option<(ChannelData, Option<Distribution>)> {
    const KNOWN: [&str; 4] = ["s3DataType", "s3Uri", "s3DataDistributionType", "attributeNames"];
    s3.refuse_unknown(&KNOWN, problems);
    s3.required("s3DataType", problems);
    s3.required("s3Uri", problems);
    let kind = s3.choice("s3DataType", &DataType::ALL, Spelling::Any, problems);
    let uri = s3.text("s3Uri", &(0..=1024), problems);
    let location = uri.and_then(|uri| {
        S3Location::parse(uri).map_err(|what| problems.add(s3.at("s3Uri"), what)).ok()
    });
    let names = ["s3DataDistributionType", "attributeNames"];
    s3_data(s3, (kind, location), names, Spelling::Any, problems)
}

fn folder_source(folder: &Object<'_>, problems: &mut Problems) -> Option<ChannelData> {
    const KNOWN: [&str; 4] =
        ["fileSystemId", "fileSystemAccessMode", "fileSystemType", "directoryPath"];
    folder.refuse_unknown(&KNOWN, problems);
    folder.required("directoryPath", problems);
    let all = [("ro", false), ("rw", true)];
    let writable = folder.choice("fileSystemAccessMode", &all, Spelling::Any, problems);
    let path = folder.text("directoryPath", &(0..=4096), problems)?;
    Some(ChannelData::Folder { path: path.into(), writable: writable.unwrap_or_default() })
}

/// The channel whose files go to a path of its own.
fn checkpoints(config: &Object<'_>, problems: &mut Problems) -> Option<(String, Channel)> {
    let outer = config.object("checkpointChannel", problems)?;
    outer.refuse_unknown(&["name", "channel", "outputPath", "allowEmpty"], problems);
    for name in ["name", "channel", "outputPath"] {
        outer.required(name, problems);
    }
    let name = outer.text("name", &(0..=usize::MAX), problems);
    let path = outer.text("outputPath", &(0..=4096), problems);
    if let Some(what) = path.and_then(|path| check::output_path(Path::new(path))) {
        problems.add(outer.at("outputPath"), what);
    }
    let allow_empty = outer.boolean("allowEmpty", problems).unwrap_or_default();
    let inner = outer.object("channel", problems)?;
    let channel = channel(&inner, name?, InputMode::File, problems)?;
    let output_path = Some(PathBuf::from(path?));
    let allow_empty = allow_empty || channel.allow_empty;
    Some((outer.path, Channel { output_path, allow_empty, ..channel }))
}

/// `hostConfig`, whose numbers begin with 1: that of `algo-1`.
fn hosts(config: &Object<'_>, problems: &mut Problems) -> Option<Hosts> {
    let config = config.object("hostConfig", problems)?;
    config.required("clusterSize", problems);
    config.required("hostNumber", problems);
    let count = config.whole("clusterSize", &(1..=i64::from(JOB_HOSTS_MAX)), problems);
    let most = count.unwrap_or(i64::from(JOB_HOSTS_MAX));
    let number = config.whole("hostNumber", &(1..=most), problems);
    let small = |whole| u32::try_from(whole).expect("at most the most hosts");
    Some(Hosts::numbered(small(number? - 1), small(count?)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The file of a real job of October 2020, with another bucket.
    const CAPTURED: &str = concat!(
        r#"{"inputMode":"FILE","channels":{"data":{"s3DataSource":{"s3DataType":"S3_PREFIX","#,
        r#""s3Uri":"s3://bucket/Task1/input","s3DataDistributionType":"SHARDED_BY_S3_KEY","#,
        r#""attributeNames":null},"fileSystemDataSource":null,"compressionType":"NONE","#,
        r#""recordWrapper":"NONE","shuffleConfig":null,"inputMode":"FILE","sharded":true}},"#,
        r#""checkpointChannel":{"name":"checkpoints","channel":{"s3DataSource":{"s3DataType":"#,
        r#""S3_PREFIX","s3Uri":"s3://bucket/Task1/state","s3DataDistributionType":null,"#,
        r#""attributeNames":null},"fileSystemDataSource":null,"compressionType":null,"#,
        r#""recordWrapper":null,"shuffleConfig":null,"inputMode":"FILE","sharded":false},"#,
        r#""outputPath":"/opt/ml/checkpoints","allowEmpty":true},"hostConfig":{"clusterSize":2,"#,
        r#""hostNumber":1},"enableAdditionalPlatformLoggingForCustomer":false,"jobRunInfo":"#,
        r#"{"jobRunNumber":1}}"#
    );

    fn location(key: &str) -> S3Location {
        S3Location { bucket: "bucket".to_owned(), key: key.to_owned() }
    }

    #[test]
    fn the_file_of_a_real_job_is_read() {
        let input = parse(CAPTURED).expect("an input");
        let data = Channel {
            distribution: Distribution::ShardedByS3Key,
            ..Channel::new("data", ChannelData::Prefix(location("Task1/input")))
        };
        let checkpoints = Channel {
            allow_empty: true,
            output_path: Some("/opt/ml/checkpoints".into()),
            ..Channel::new("checkpoints", ChannelData::Prefix(location("Task1/state")))
        };
        assert_eq!(input.channels, [data, checkpoints]);
        assert_eq!(input.inputs().map(|channel| &*channel.name).collect::<Vec<_>>(), ["data"]);
        assert_eq!(input.hosts, Some(Hosts::numbered(0, 2)));
    }

    fn changed(pointer: &str, value: Value) -> Result<TrainingInput, Vec<String>> {
        let mut config: Value = serde_json::from_str(CAPTURED).expect("JSON");
        let (object, name) = pointer.rsplit_once('/').expect("a pointer");
        config.pointer_mut(object).expect("an object")[name] = value;
        parse(&config.to_string())
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn values_have_either_spelling() {
        let mut modes = Vec::new();
        for mode in ["PIPE", "Pipe", "FILE", "File", "FASTFILE", "FAST_FILE", "FastFile"] {
            let input = changed("/channels/data/inputMode", json!(mode)).expect("an input");
            modes.push(input.channels[0].mode.name());
        }
        let fast = ["FastFile"; 3];
        assert_eq!(modes, [&["Pipe", "Pipe", "File", "File"][..], &fast].concat());
        let source = "/channels/data/s3DataSource";
        for kind in ["MANIFEST_FILE", "ManifestFile"] {
            let input = changed(&format!("{source}/s3DataType"), json!(kind)).expect("an input");
            assert_eq!(input.channels[0].data, ChannelData::Manifest(location("Task1/input")));
        }
        let records = json!({
            "s3DataSource": {"s3DataType": "AUGMENTED_MANIFEST_FILE", "s3Uri": "s3://bucket/l",
                             "attributeNames": ["a-ref", "b"]},
            "recordWrapper": "RECORD_IO", "inputMode": "PIPE", "shuffleConfig": {"seed": 7},
            "allowEmpty": true,
        });
        let input = changed("/channels/x", records).expect("an input");
        let attributes = vec!["a-ref".to_owned(), "b".to_owned()];
        let expected = Channel {
            mode: InputMode::Pipe,
            record_wrapper: RecordWrapper::RecordIo,
            shuffle_seed: Some(7),
            allow_empty: true,
            ..Channel::new(
                "x",
                ChannelData::AugmentedManifest { manifest: location("l"), attributes },
            )
        };
        assert_eq!(input.channels[1], expected);
        let files = json!({"fileSystemDataSource": {"directoryPath": "/mnt/a",
            "fileSystemAccessMode": "RW", "fileSystemId": "fs-01234567"}});
        let input = changed("/channels/x", files).expect("an input");
        let folder = ChannelData::Folder { path: "/mnt/a".into(), writable: true };
        assert_eq!(input.channels[1].data, folder);
    }

    #[test]
    fn every_problem_has_its_place() {
        let check = |pointer: &str, value: Value, expected: &str| {
            assert_eq!(changed(pointer, value), Err(vec![expected.to_owned()]));
        };
        let number = "/hostConfig/hostNumber";
        check(number, json!(0), "hostConfig.hostNumber: expected 1 to 2, but it is 0");
        check(number, json!(3), "hostConfig.hostNumber: expected 1 to 2, but it is 3");
        check(number, json!(null), "hostConfig.hostNumber: missing");
        check(
            "/channels/data/sharded",
            json!(false),
            "channels.data.sharded: s3DataDistributionType says the opposite",
        );
        check(
            "/channels/data/s3DataSource",
            json!(null),
            "channels.data: give one of s3DataSource and fileSystemDataSource",
        );
        check(
            "/channels/data/shuffled",
            json!(1),
            "channels.data.shuffled: unknown field; it may change the data. Known are \
             s3DataSource, fileSystemDataSource, contentType, compressionType, recordWrapper, \
             shuffleConfig, inputMode, sharded, allowEmpty",
        );
        check(
            "/checkpointChannel/outputPath",
            json!("relative"),
            "checkpointChannel.outputPath: must be absolute",
        );
        let first_problem = |text: &str| parse(text).expect_err("no channels")[0].to_string();
        assert_eq!(first_problem("{}"), "channels: is missing: a job without channels has no data");
        assert_eq!(
            first_problem(r#"{"channels": {}}"#),
            "channels: is missing: a job without channels has no data"
        );
        assert_eq!(
            first_problem(r#"{"InputDataConfig": []}"#),
            "channels: is missing: this looks like the request of CreateTrainingJob: use --job"
        );
        check("/chanels", json!({}), "chanels: unknown field; did you mean channels?");
        check(
            "/channels/data/recordWrapper",
            json!("RECORDIO"),
            "channels.data: RecordIO is of Pipe mode only, and this is File mode",
        );
    }
}
