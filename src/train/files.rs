//! The files that a training container finds, byte for byte as real jobs had them where such bytes
//! are known: `inputdataconfig.json`, `hyperparameters.json` and lists of objects end as they do
//! there, the JSON without and the lists with an end of line. And those of a Processing container.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::document;
use super::layout::{BASE, Layout};
use super::{Channel, ChannelData, Hosts, InputMode, InstanceGroup, Processing, TrainingInput};
use crate::limits::JOB_HOSTS_MAX;
use crate::text::shown::shortened;

/// The name of the file of [`input_data_config`].
pub const INPUT_DATA_CONFIG: &str = "inputdataconfig.json";
/// The name of the file of [`resource_config`].
pub const RESOURCE_CONFIG: &str = "resourceconfig.json";
/// The name of the file of [`hyperparameters`].
pub const HYPERPARAMETERS: &str = "hyperparameters.json";

/// The name of the file of [`super::written`]: hidden, and of no other program.
pub const WRITTEN: &str = ".inrush-written.json";

/// The name of the file of [`checkpoint_config`].
pub const CHECKPOINT_CONFIG: &str = "checkpointconfig.json";

/// The text of `checkpointconfig.json`: where the checkpoints are.
#[must_use]
pub fn checkpoint_config(path: &Path) -> String {
    json!({"LocalPath": path.to_string_lossy()}).to_string()
}

/// The name of the file of [`processing_job_config`].
pub const PROCESSING_JOB_CONFIG: &str = "processingjobconfig.json";

/// The text of `processingjobconfig.json`: the description, whose paths move with the base folder.
#[must_use]
pub fn processing_job_config(processing: &Processing, layout: &Layout) -> String {
    let mut config = processing.config.clone();
    for list in ["/ProcessingInputs", "/ProcessingOutputConfig/Outputs"] {
        let items = config.pointer_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            for part in ["S3Input", "DatasetDefinition", "S3Output"] {
                let Some(path) = item.pointer_mut(&format!("/{part}/LocalPath")) else { continue };
                // As text: a slash at its end stays.
                let below = path.as_str().and_then(|text| text.strip_prefix(BASE));
                if let Some(below) = below.filter(|below| below.starts_with('/')) {
                    *path = json!(format!("{}{below}", layout.base.display()));
                }
            }
        }
    }
    config.to_string()
}

/// The text of `inputdataconfig.json`: the channels in the order of the description.
///
/// FastFile mode is written as `File`, as the developer guide has it since 2025: the channel is a
/// folder all the same.
#[must_use]
pub fn input_data_config(input: &TrainingInput) -> String {
    let channels: Vec<String> = input
        .inputs()
        .map(|channel| {
            let fields: Vec<String> = config_of(channel)
                .into_iter()
                .map(|(name, value)| format!("\"{name}\":{}", quoted(value)))
                .collect();
            format!("{}:{{{}}}", quoted(&channel.name), fields.join(","))
        })
        .collect();
    format!("{{{}}}", channels.join(","))
}

/// The contents of `inputdataconfig.json` as a tree.
pub(super) fn input_data_config_tree(input: &TrainingInput) -> Value {
    let fields = |channel| Value::from_iter(config_of(channel));
    input.inputs().map(|channel| (channel.name.clone(), fields(channel))).collect()
}

fn config_of(channel: &Channel) -> Vec<(&'static str, &str)> {
    let mode = match channel.mode {
        InputMode::FastFile => InputMode::File,
        mode => mode,
    };
    let content_type = channel.content_type.as_deref().map(|value| ("ContentType", value));
    content_type
        .into_iter()
        .chain([
            ("TrainingInputMode", mode.name()),
            ("S3DistributionType", channel.distribution.name()),
            ("RecordWrapperType", channel.record_wrapper.name()),
        ])
        .collect()
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The text of `hyperparameters.json`, in the order of the names.
#[must_use]
pub fn hyperparameters(input: &TrainingInput) -> String {
    let pairs = input.hyperparameters.iter();
    let pairs = pairs.map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

/// The text of `resourceconfig.json`: that of 2020, and with the fields of the groups that newer
/// jobs have as well, where the description says of which types the instances are.
///
/// `network_interface` is `eth0` on SageMaker.
#[must_use]
pub fn resource_config(hosts: &Hosts, groups: &[InstanceGroup], network_interface: &str) -> String {
    let tree = resource_config_tree(hosts, groups, network_interface);
    spaced(&tree)
}

/// The contents of `resourceconfig.json` as a tree.
pub(super) fn resource_config_tree(
    hosts: &Hosts,
    groups: &[InstanceGroup],
    network_interface: &str,
) -> Value {
    let mut tree = json!({
        "current_host": hosts.current,
        "hosts": hosts.names,
        "network_interface_name": network_interface,
    });
    let of_groups = hosts_of_groups(hosts, groups);
    let current = of_groups.iter().find(|(_, names)| names.contains(&&*hosts.current));
    if let Some((group, _)) = current {
        let groups = of_groups.iter().map(|(group, names)| {
            json!({
                "hosts": names,
                "instance_group_name": group.name,
                "instance_type": group.instance_type,
            })
        });
        tree["current_group_name"] = json!(group.name);
        tree["current_instance_type"] = json!(group.instance_type);
        tree["instance_groups"] = groups.collect();
    }
    tree
}

/// The hosts of each group: those that [`Hosts::groups`] names, or else in the order of their
/// numbers the first hosts for the first group. None where the groups have other types or other
/// hosts than these.
pub(super) fn hosts_of_groups<'a>(
    hosts: &'a Hosts,
    groups: &'a [InstanceGroup],
) -> Vec<(&'a InstanceGroup, Vec<&'a str>)> {
    if !hosts.groups.is_empty() {
        let of_group = |group: &'a InstanceGroup| {
            let (_, names) = hosts.groups.iter().find(|(name, _)| *name == group.name)?;
            Some((group, names.iter().map(String::as_str).collect()))
        };
        return groups.iter().map(of_group).collect::<Option<_>>().unwrap_or_default();
    }
    let count: u64 = groups.iter().map(|group| u64::from(group.count)).sum();
    let is_known = groups.iter().all(|group| !group.instance_type.is_empty());
    if !is_known || count != u64::from(hosts.count) {
        return Vec::new();
    }
    let mut names: Vec<&str> = hosts.names.iter().map(String::as_str).collect();
    // By number: shorter names are those with fewer digits.
    names.sort_by_key(|name| (name.len(), *name));
    let mut names = names.into_iter();
    let of_group = |group: &'a InstanceGroup| {
        let mut names: Vec<&str> = names.by_ref().take(group.count as usize).collect();
        names.sort_unstable();
        (group, names)
    };
    groups.iter().map(of_group).collect()
}

/// JSON with a space after each comma and colon, as this file has it, and names in order.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<String> = fields
                .into_iter()
                .map(|(name, value)| format!("{}: {}", quoted(name), spaced(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Writes the list of the objects of a channel: the key of its description, then the address of
/// each object, all of them and not only this host's share. One line at a time, whatever their
/// number. `bucket` is the objects' own, which a manifest may have elsewhere than itself.
///
/// A file system has no objects, and no list: then nothing is written, and this is false. Keys
/// are written as they are: the format has no escape for one with an end of line.
///
/// # Errors
/// Those of `out`.
pub fn write_manifest<K: AsRef<str>>(
    channel: &Channel,
    bucket: &str,
    keys: impl IntoIterator<Item = K>,
    out: &mut impl Write,
) -> io::Result<bool> {
    let location = match &channel.data {
        ChannelData::Prefix(location) | ChannelData::Manifest(location) => location,
        ChannelData::AugmentedManifest { manifest, .. } => manifest,
        ChannelData::Folder { .. } => return Ok(false),
    };
    writeln!(out, "{}", location.key)?;
    for key in keys {
        write_manifest_line(bucket, key.as_ref(), out)?;
    }
    Ok(true)
}

/// Writes one more line of such a list.
///
/// # Errors
/// Those of `out`.
pub fn write_manifest_line(bucket: &str, key: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "s3://{bucket}/{key}")
}

/// The hosts that the text of a `resourceconfig.json` names; which one this is, is where it stands
/// among them.
///
/// # Errors
/// What is wrong with the text.
pub fn hosts_of_resource_config(text: &str) -> Result<Hosts, String> {
    let tree: Value = serde_json::from_str(text).map_err(|why| document::not_json(&why))?;
    let current = tree["current_host"].as_str().ok_or("current_host is no string")?;
    let hosts = tree["hosts"].as_array().ok_or("hosts is no list")?;
    let names: Option<Vec<String>> =
        hosts.iter().map(|host| host.as_str().map(str::to_owned)).collect();
    let names = names.ok_or("hosts has an item that is no string")?;
    let count = u32::try_from(names.len()).ok().filter(|count| *count <= JOB_HOSTS_MAX);
    let count = count.ok_or_else(|| format!("more than {JOB_HOSTS_MAX} hosts"))?;
    let rank = names.iter().position(|name| name == current);
    let rank = rank.and_then(|rank| u32::try_from(rank).ok());
    let rank =
        rank.ok_or_else(|| format!("current_host '{}' is not one of hosts", shortened(current)))?;
    let groups = groups_of_resource_config(&tree, &names)?;
    Ok(Hosts { rank, count, names, current: current.to_owned(), groups })
}

/// The hosts of each instance group; none in files of jobs that are older than groups.
fn groups_of_resource_config(
    tree: &Value,
    names: &[String],
) -> Result<Vec<(String, Vec<String>)>, String> {
    let Some(groups) = tree.get("instance_groups").filter(|groups| !groups.is_null()) else {
        return Ok(Vec::new());
    };
    let group = |group: &Value| {
        let hosts = group["hosts"].as_array()?.iter();
        let hosts = hosts.map(|host| host.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        Some((group["instance_group_name"].as_str()?.to_owned(), hosts))
    };
    let groups = groups.as_array().and_then(|groups| groups.iter().map(group).collect());
    let groups: Vec<(String, Vec<String>)> =
        groups.ok_or("instance_groups is no list of names and hosts")?;
    let mut grouped: Vec<&String> = groups.iter().flat_map(|(_, hosts)| hosts).collect();
    let mut all: Vec<&String> = names.iter().collect();
    grouped.sort_unstable();
    all.sort_unstable();
    match grouped == all {
        true => Ok(groups),
        false => Err("instance_groups has not each host once".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::tests::group;
    use crate::train::{Compression, Distribution, ONE_GROUP, RecordWrapper, S3Location};

    fn prefix(name: &str, key: &str) -> Channel {
        let location = S3Location { bucket: "bucket".to_owned(), key: key.to_owned() };
        Channel::new(name, ChannelData::Prefix(location))
    }

    fn with(channels: Vec<Channel>) -> TrainingInput {
        TrainingInput { channels, ..TrainingInput::default() }
    }

    #[test]
    fn the_channels_are_written_as_a_real_job_has_them() {
        let data =
            Channel { distribution: Distribution::ShardedByS3Key, ..prefix("data", "input") };
        let output_path = Some("/opt/ml/checkpoints".into());
        let checkpoints = Channel { output_path, ..prefix("checkpoints", "state") };
        // Byte for byte a file of October 2020.
        let captured = concat!(
            r#"{"data":{"TrainingInputMode":"File","S3DistributionType":"ShardedByS3Key","#,
            r#""RecordWrapperType":"None"}}"#
        );
        assert_eq!(input_data_config(&with(vec![data, checkpoints])), captured);
        assert_eq!(input_data_config(&TrainingInput::default()), "{}");
    }

    #[test]
    fn every_field_of_a_channel_is_written() {
        let pipe = Channel {
            mode: InputMode::Pipe,
            content_type: Some("text/csv; x=\"ä\"".to_owned()),
            record_wrapper: RecordWrapper::RecordIo,
            compression: Compression::Gzip,
            shuffle_seed: Some(1),
            ..prefix("b", "k")
        };
        let fast = Channel { mode: InputMode::FastFile, ..prefix("a", "k") };
        let expected = concat!(
            r#"{"b":{"ContentType":"text/csv; x=\"ä\"","TrainingInputMode":"Pipe","#,
            r#""S3DistributionType":"FullyReplicated","RecordWrapperType":"RecordIO"},"#,
            r#""a":{"TrainingInputMode":"File","S3DistributionType":"FullyReplicated","#,
            r#""RecordWrapperType":"None"}}"#
        );
        let input = with(vec![pipe, fast]);
        assert_eq!(input_data_config(&input), expected);
        let tree: Value = serde_json::from_str(expected).expect("JSON");
        assert_eq!(input_data_config_tree(&input), tree);
    }

    #[test]
    fn hyperparameters_are_strings() {
        let mut input = TrainingInput::default();
        assert_eq!(hyperparameters(&input), "{}");
        for (name, value) in [("arg2", "\"hello\""), ("arg1", "5")] {
            input.hyperparameters.insert(name.to_owned(), value.to_owned());
        }
        assert_eq!(hyperparameters(&input), r#"{"arg1":"5","arg2":"\"hello\""}"#);
    }

    #[test]
    fn the_resources_are_written_as_real_jobs_have_them() {
        // Byte for byte a file of October 2020.
        let captured = concat!(
            r#"{"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "#,
            r#""network_interface_name": "eth0"}"#
        );
        assert_eq!(resource_config(&Hosts::numbered(0, 2), &[], "eth0"), captured);
        // A log of December 2025, by its fields.
        let newer = json!({
            "current_group_name": "homogeneousCluster", "current_host": "algo-1",
            "current_instance_type": "ml.c5.xlarge", "hosts": ["algo-1"],
            "instance_groups": [{"hosts": ["algo-1"], "instance_group_name": "homogeneousCluster",
                                 "instance_type": "ml.c5.xlarge"}],
            "network_interface_name": "eth0",
        });
        let hosts = Hosts::numbered(0, 1);
        let text = resource_config(&hosts, &[group(ONE_GROUP, 1)], "eth0");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), newer);
        assert!(text.starts_with(r#"{"current_group_name": "homogeneousCluster", "current_host""#));
        // Eleven hosts of two groups: by number, then in the order of names.
        let hosts = Hosts::numbered(10, 11);
        let tree = resource_config_tree(&hosts, &[group("a", 2), group("b", 9)], "eth0");
        assert_eq!(tree["hosts"].as_array().expect("hosts")[..3], ["algo-1", "algo-10", "algo-11"]);
        assert_eq!(tree["current_group_name"], "b");
        assert_eq!(tree["instance_groups"][0]["hosts"], json!(["algo-1", "algo-2"]));
        let second = tree["instance_groups"][1]["hosts"].as_array().expect("hosts");
        assert_eq!((&second[0], second.len()), (&json!("algo-10"), 9));
        // Another number of hosts than the description asks for: nothing is invented.
        assert_eq!(
            resource_config_tree(&hosts, &[group("a", 12)], "eth0")["instance_groups"],
            json!(null)
        );
    }

    #[test]
    fn the_objects_are_listed_as_a_real_job_has_them() {
        let written = |channel: &Channel, keys: &[&str]| {
            let mut text = Vec::new();
            let is_written = write_manifest(channel, "bucket", keys, &mut text).expect("memory");
            (is_written, String::from_utf8(text).expect("UTF-8"))
        };
        let prefix = prefix("data", "Task1/input");
        let listed = "Task1/input\ns3://bucket/Task1/input/test\ns3://bucket/Task1/input/test2\n";
        let keys = ["Task1/input/test", "Task1/input/test2"];
        assert_eq!(written(&prefix, &keys), (true, listed.to_owned()));
        assert_eq!(written(&prefix, &[]), (true, "Task1/input\n".to_owned()));
        let folder = ChannelData::Folder { path: "/mnt".into(), writable: false };
        assert_eq!(written(&Channel::new("a", folder), &[]), (false, String::new()));
    }

    #[test]
    fn the_hosts_are_read_again() {
        for (rank, count) in [(0, 1), (1, 2), (9, 12)] {
            let hosts = Hosts::numbered(rank, count);
            let read = hosts_of_resource_config(&resource_config(&hosts, &[], "eth0"));
            let read = read.expect("hosts");
            let place = hosts.names.iter().position(|name| *name == hosts.current);
            assert_eq!(Some(read.rank as usize), place, "where it stands in the list");
            assert_eq!((read.count, read.current, read.names), (count, hosts.current, hosts.names));
        }
        let check = |text: &str, expected: &str| {
            assert_eq!(hosts_of_resource_config(text), Err(expected.to_owned()));
        };
        check(r#"{"hosts":["a"]}"#, "current_host is no string");
        check(r#"{"current_host":"a"}"#, "hosts is no list");
        check(r#"{"current_host":"a","hosts":["b"]}"#, "current_host 'a' is not one of hosts");
        check(r#"{"current_host":"a","hosts":["a", 1]}"#, "hosts has an item that is no string");
        assert!(hosts_of_resource_config("{").expect_err("cut").starts_with("not JSON"));
    }
}
