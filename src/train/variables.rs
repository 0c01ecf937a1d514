//! The environment of the command: `TRAINING_JOB_NAME`, `Environment` of the description, and the
//! `SM_*` variables.
//!
//! SageMaker itself does not set the latter: the sagemaker-training toolkit in its containers
//! derives them from the files below `input/config`, and these are what its version 5.1.4 makes of
//! them (`environment.py`, `mapping.py`). Left out are those that only have a meaning inside of the
//! toolkit, which finds and starts the script by them: `SM_USER_ENTRY_POINT`, `SM_MODULE_NAME`,
//! `SM_MODULE_DIR`, `SM_FRAMEWORK_MODULE`, and `SM_TRAINING_ENV`, which has all of them again; and
//! `SM_TOPOLOGY`, which no description has. A Processing container has no such toolkit: its command
//! gets `Environment` alone.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::layout::Layout;
use super::python::Python;
use super::{Hosts, ONE_GROUP, TrainingInput, files};

/// What the toolkit finds out of the machine itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Processors that are online.
    pub cpus: u32,
    /// GPUs that `nvidia-smi` lists.
    pub gpus: u32,
    /// Neuron cores that `neuron-ls` lists.
    pub neurons: u32,
    /// The network interface between the hosts: `eth0` on SageMaker.
    pub network_interface: String,
}

/// Hyperparameters that are settings of the toolkit (`params.py`, `SAGEMAKER_HYPERPARAMETERS`).
const SETTINGS: [&str; 9] = [
    "sagemaker_program",
    "sagemaker_submit_directory",
    "sagemaker_enable_cloudwatch_metrics",
    "sagemaker_region",
    "sagemaker_container_log_level",
    "sagemaker_job_name",
    "default_user_module_name",
    "_tuning_objective_metric",
    "sagemaker_s3_output",
];
/// Others whose names begin so are of a framework.
const FRAMEWORK_PREFIX: &str = "sagemaker_";
/// Those that switch a kind of distributed training on: then the group of this host takes part.
const DISTRIBUTIONS: [&str; 7] = [
    "sagemaker_mpi_enabled",
    "sagemaker_parameter_server_enabled",
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_pytorch_ddp_enabled",
    "sagemaker_pytorch_xla_multi_worker_enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled",
    "sagemaker_torch_distributed_enabled",
];
/// The level of logs that the toolkit has unless a hyperparameter says another: INFO.
const LOG_LEVEL: &str = "20";

/// All variables that the command gets besides those that there are, which they replace.
///
/// Of two channels or hyperparameters whose names differ in case alone, the last has the variable,
/// as it does with the toolkit.
#[must_use]
pub fn variables(
    input: &TrainingInput,
    hosts: &Hosts,
    layout: &Layout,
    machine: &Machine,
) -> BTreeMap<String, String> {
    let mut found = input.environment.clone();
    found.extend(input.job_name.iter().map(|name| ("TRAINING_JOB_NAME".to_owned(), name.clone())));
    if layout.is_elsewhere() {
        found.insert("SAGEMAKER_BASE_DIR".to_owned(), shown(&layout.base));
    }
    if input.processing.is_some() {
        return found;
    }
    let mut set = |name: &str, value: String| {
        found.insert(format!("SM_{}", name.to_uppercase()), value);
    };
    set("channels", names(input.inputs().map(|channel| &*channel.name), true));
    set("input_data_config", dumps(&files::input_data_config_tree(input)));
    set("hosts", names(hosts.names.iter().map(String::as_str), false));
    set("current_host", hosts.current.clone());
    set("network_interface_name", machine.network_interface.clone());
    for (name, path) in [
        ("input_dir", layout.input()),
        ("input_config_dir", layout.config()),
        ("model_dir", layout.model()),
        ("output_dir", layout.output()),
        ("output_data_dir", layout.output_data()),
        ("output_intermediate_dir", layout.output_intermediate()),
    ] {
        set(name, shown(&path));
    }
    let counts = [("cpus", machine.cpus), ("gpus", machine.gpus), ("neurons", machine.neurons)];
    for (name, count) in counts {
        set(&format!("num_{name}"), count.to_string());
    }
    for channel in input.inputs() {
        set(&format!("channel_{}", channel.name), shown(&layout.channel(channel)));
    }
    let resources =
        files::resource_config_tree(hosts, &input.instance_groups, &machine.network_interface);
    let group = resources["current_group_name"].as_str().unwrap_or(ONE_GROUP).to_owned();
    of_resources(&resources, &group, &mut set);
    of_hyperparameters(input, &group, &mut set);
    found
}

fn of_resources(resources: &Value, group: &str, set: &mut impl FnMut(&str, String)) {
    let none = Vec::new();
    let groups = resources["instance_groups"].as_array().unwrap_or(&none);
    let name = |group: &Value| group["instance_group_name"].as_str().unwrap_or_default().to_owned();
    let current = groups.iter().find(|one| name(one) == group);
    let hosts = current.map_or_else(|| Value::Array(Vec::new()), |one| one["hosts"].clone());
    let instance_type = resources["current_instance_type"].as_str().unwrap_or("local");
    let by_name: Value = groups.iter().map(|group| (name(group), group.clone())).collect();
    set("resource_config", dumps(resources));
    set("current_instance_type", instance_type.to_owned());
    set("current_instance_group", group.to_owned());
    set("current_instance_group_hosts", dumps(&hosts));
    set("instance_groups", dumps(&groups.iter().map(name).collect()));
    set("instance_groups_dict", dumps(&by_name));
    set("is_hetero", (groups.len() > 1).to_string());
}

fn of_hyperparameters(input: &TrainingInput, group: &str, set: &mut impl FnMut(&str, String)) {
    let (mut user, mut framework) = (Vec::new(), Vec::new());
    let mut log_level = LOG_LEVEL.to_owned();
    for (name, text) in &input.hyperparameters {
        let value = Python::loads(text).unwrap_or_else(|| Python::Text(text.clone()));
        if name == "sagemaker_container_log_level" {
            log_level = variable(&value);
        }
        if !SETTINGS.contains(&&**name) {
            let to = if name.starts_with(FRAMEWORK_PREFIX) { &mut framework } else { &mut user };
            to.push((name.clone(), value));
        }
    }
    for (name, value) in &user {
        set(&format!("hp_{name}"), variable(value));
    }
    let switched_on =
        |(name, value): &(String, Python)| DISTRIBUTIONS.contains(&&**name) && value.is_true();
    let given = framework.iter().find(|(name, _)| name == "sagemaker_distribution_instance_groups");
    let groups = match given {
        Some((_, groups)) => variable(groups),
        None => names(framework.iter().any(switched_on).then_some(group), false),
    };
    let arguments: Vec<String> =
        user.iter().flat_map(|(name, value)| argument(name, value)).collect();
    set("distribution_instance_groups", groups);
    set("log_level", log_level);
    set("user_args", names(arguments.iter().map(String::as_str), false));
    set("framework_params", Python::Dict(framework).dumps());
    set("hps", Python::Dict(user).dumps());
}

/// A hyperparameter as an option of the script (`mapping.to_cmd_args`).
fn argument(name: &str, value: &Python) -> [String; 2] {
    let option = match name.chars().count() {
        0 => String::new(),
        1 => format!("-{name}"),
        _ => format!("--{name}"),
    };
    let value = match value {
        Python::None => String::new(),
        Python::Dict(pairs) => {
            let mut pairs: Vec<_> = pairs.iter().collect();
            pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
            let pairs = pairs.into_iter().map(|(name, value)| format!("{name}={}", value.str()));
            pairs.collect::<Vec<_>>().join(",")
        }
        other => other.str(),
    };
    [option, value]
}

/// A value as a variable has it: texts as they are, none as nothing, all else as JSON.
fn variable(value: &Python) -> String {
    match value {
        Python::None => String::new(),
        Python::Text(text) => text.clone(),
        other => other.dumps(),
    }
}

fn dumps(value: &Value) -> String {
    Python::from(value).dumps()
}

/// A list of texts as JSON.
fn names<'a>(texts: impl IntoIterator<Item = &'a str>, is_sorted: bool) -> String {
    let mut texts: Vec<&str> = texts.into_iter().collect();
    if is_sorted {
        texts.sort_unstable();
    }
    Python::List(texts.into_iter().map(|text| Python::Text(text.to_owned())).collect()).dumps()
}

/// A path as text: all that are made here are, as far as the base folder is.
fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{
        Channel, ChannelData, Distribution, InputMode, InstanceGroup, Processing, S3Location,
    };

    fn machine() -> Machine {
        Machine { cpus: 2, gpus: 0, neurons: 0, network_interface: "eth0".to_owned() }
    }

    fn lines(variables: &BTreeMap<String, String>) -> Vec<String> {
        variables.iter().map(|(name, value)| format!("{name} {value}")).collect()
    }

    /// The result of `Environment().to_env_vars()` of sagemaker-training 5.1.4 for the files of
    /// this input, without the five omitted variables.
    const OF_THE_TOOLKIT: &str = include_str!("golden/variables_full.txt");

    /// Its result for a job without channels, on one host of unknown type.
    const OF_NOTHING: &str = include_str!("golden/variables_empty.txt");

    fn prefix(name: &str) -> Channel {
        let location = S3Location { bucket: "bucket".to_owned(), key: "k".to_owned() };
        Channel::new(name, ChannelData::Prefix(location))
    }

    #[test]
    fn the_variables_are_those_of_the_toolkit() {
        let train = Channel {
            mode: InputMode::Pipe,
            content_type: Some("text/csv".to_owned()),
            ..prefix("train")
        };
        let distribution = Distribution::ShardedByS3Key;
        let other = Channel { distribution, ..prefix("my-chan.x") };
        let checkpoints =
            Channel { output_path: Some("/opt/ml/checkpoints".into()), ..prefix("checkpoints") };
        let hyperparameters = [
            ("arg1", "5"),
            ("arg2", "\"hello\""),
            ("plain", "a \u{e4}\u{7f}/\"q\" \u{1f600}"),
            ("lr", "1e-05"),
            ("big", "123456789012345678901234567890"),
            ("nan", "NaN"),
            ("inf", " -Infinity "),
            ("over", "1e999"),
            ("flag", "true"),
            ("none", "null"),
            ("neg", "-0"),
            ("list", r#"[1, 2.50, "x'y", null, {"b": 1e16, "a": [true]}]"#),
            ("dict", r#"{"b": 1e22, "a": null, "c": ["t"]}"#),
            ("f", "100.0"),
            ("g", "0.0001"),
            ("h", "123456789012345680.0"),
            ("i", "1.5E+300"),
            ("n-1", ""),
            ("x", "7"),
            ("sagemaker_program", "\"train.py\""),
            ("sagemaker_container_log_level", "20"),
            ("sagemaker_region", "\"us-east-1\""),
            ("sagemaker_mpi_enabled", "true"),
            ("_tuning_objective_metric", "loss"),
            ("sagemaker_job_name", "\"j\""),
        ];
        let hyperparameters =
            hyperparameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let input = TrainingInput {
            channels: vec![train, other, checkpoints],
            hyperparameters: hyperparameters.into(),
            instance_groups: vec![InstanceGroup {
                name: ONE_GROUP.to_owned(),
                instance_type: "ml.c5.xlarge".to_owned(),
                count: 2,
            }],
            ..TrainingInput::default()
        };
        let found = variables(&input, &Hosts::numbered(1, 2), &Layout::default(), &machine());
        let expected: Vec<&str> = OF_THE_TOOLKIT.lines().collect();
        assert_eq!(lines(&found), expected);
    }

    #[test]
    fn a_job_without_anything_has_variables() {
        let input = TrainingInput::default();
        let found = variables(&input, &Hosts::numbered(0, 1), &Layout::default(), &machine());
        assert_eq!(lines(&found), OF_NOTHING.lines().collect::<Vec<_>>());
    }

    #[test]
    fn the_description_has_its_variables_too() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let input = TrainingInput {
            job_name: Some("job-1".to_owned()),
            environment: [pair("NCCL_DEBUG", "INFO"), pair("SM_NUM_CPUS", "7")].into(),
            ..TrainingInput::default()
        };
        let layout = Layout { base: "/tmp/ml".into(), ..Layout::default() };
        let found = variables(&input, &Hosts::numbered(0, 1), &layout, &machine());
        let value = |name: &str| found.get(name).map(String::as_str);
        assert_eq!(value("TRAINING_JOB_NAME"), Some("job-1"));
        assert_eq!(value("NCCL_DEBUG"), Some("INFO"));
        assert_eq!(value("SM_NUM_CPUS"), Some("2"), "as with the toolkit");
        assert_eq!(value("SAGEMAKER_BASE_DIR"), Some("/tmp/ml"));
        assert_eq!(value("SM_MODEL_DIR"), Some("/tmp/ml/model"));
        let processing = Some(Processing { config: Value::Null, outputs: Vec::new() });
        let input = TrainingInput { job_name: None, processing, ..input };
        let found = variables(&input, &Hosts::numbered(0, 1), &Layout::default(), &machine());
        assert_eq!(lines(&found), ["NCCL_DEBUG INFO", "SM_NUM_CPUS 7"]);
    }
}
