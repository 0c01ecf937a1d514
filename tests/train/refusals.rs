//! What is refused before anything is begun: descriptions, command lines and commands.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::jobs::{channel, write_job};
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, serve};
use crate::{Stage, objects};

/// A process that permissions bind, as they bind all users but root.
pub(crate) const UNPRIVILEGED: [&str; 3] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];

/// Runs a job of this description with a command; it is a usage error with these words, and
/// nothing is begun.
#[track_caller]
fn refused(option: &str, job: &Value, more: &[&str], words: &[&str]) {
    let (origin, stage) = (serve(&objects(&[("data/a", 3)])), Stage::new());
    let path = write_job(&stage, job);
    let all = [&[option, &path], more].concat();
    let run = stage.shell(&origin, &all, "echo started").run().expect(2).expect_words(words);
    run.check(run.stdout.is_empty() && !stage.base().exists(), "something was begun");
    assert_eq!(origin.stats().gets, 0);
}

#[test]
fn a_description_without_channels_starts_nothing() {
    let request = json!({"InputDataConfig": [channel("train", "data/", &json!({}))]});
    let source = json!({"s3DataType": "S3_PREFIX", "s3Uri": "s3://lab/data/"});
    let config = json!({"channels": {"train": {"s3DataSource": source}}});
    refused("--job", &json!({}), &[], &["InputDataConfig: is missing"]);
    let within = json!({"TrainingJob": request});
    refused("--job", &within, &[], &["InputDataConfig: is missing: give what TrainingJob has"]);
    refused("--job", &config, &[], &["looks like an init-config.json: use --init-config"]);
    let words = ["looks like the request of CreateTrainingJob: use --job"];
    refused("--init-config", &request, &[], &words);
}

#[test]
fn a_job_has_as_many_hosts_as_instances() {
    let job = json!({
        "InputDataConfig": [channel("train", "data/", &json!({}))],
        "ResourceConfig": {"InstanceCount": 2, "InstanceType": "ml.c5.xlarge"},
    });
    let unknown = "2 instances (InstanceCount), but nothing says which host this is; ";
    let names = ["give --shard I/2", "INRUSH_HOST_RANK and INRUSH_HOST_COUNT", "SLURM_NODEID"];
    refused("--job", &job, &[], &[&[unknown][..], &names].concat());
    let differs = "2 instances (InstanceCount), but --shard says 3 hosts; ";
    refused("--job", &job, &["--shard", "0/3"], &[differs]);
    let (origin, stage) = (serve(&objects(&[("data/a", 3)])), Stage::new());
    let path = write_job(&stage, &job);
    let script = "echo $SM_CURRENT_HOST $SM_HOSTS > $o/hosts";
    stage.shell(&origin, &["--job", &path, "--shard", "1/2"], script).run().expect(0);
    assert_eq!(stage.output("hosts"), "algo-2 [\"algo-1\",\"algo-2\"]\n");
}

#[test]
fn checkpoints_do_not_go_among_the_channels() {
    for path in ["/opt/ml/input", "/opt/ml", "/opt/ml/input/data/train"] {
        let job = json!({
            "InputDataConfig": [channel("train", "data/", &json!({}))],
            "CheckpointConfig": {"S3Uri": "s3://lab/state", "LocalPath": path},
        });
        let words = ["CheckpointConfig.LocalPath: ", "is not apart from /opt/ml/input"];
        refused("--job", &job, &[], &words);
    }
}

#[test]
fn each_problem_has_a_line() {
    let mut channels = ["a", "b", "c"].map(|name| channel(name, "data/", &json!({})));
    channels[0]["InputMode"] = json!("FastFile");
    channels[0]["CompressionType"] = json!("Gzip");
    channels[1]["InputMode"] = json!("Fast");
    channels[2]["ShuffleConfig"] = json!({"Seed": "7"});
    let (origin, stage) = (serve(&objects(&[("data/a", 3)])), Stage::new());
    let path = write_job(&stage, &json!({"InputDataConfig": channels}));
    let run = stage.train(&origin, &["--job", &path]).run().expect(2);
    let lines: Vec<&str> = run.stderr.lines().collect();
    run.check(lines.len() == 4, "three problems and their number");
    for (line, words) in lines.iter().zip([
        "InputDataConfig[1].InputMode: invalid value 'Fast': expected",
        "InputDataConfig[2].ShuffleConfig.Seed: expected a number, but it is the string '7'",
        "InputDataConfig[0]: CompressionType Gzip is of Pipe mode only, and this is FastFile mode",
        "job.json: 3 problems, the first: InputDataConfig[1]",
    ]) {
        run.check(line.starts_with("error: ") && line.contains(words), words);
    }
}

#[test]
fn an_option_that_is_none_is_no_command() {
    let (origin, stage) = (serve(&objects(&[("data/a", 3)])), Stage::new());
    let words = ["--channel", "t=s3://lab/data/", "--quiet"];
    let command = ["--no-such-option", "x", "--", "sh", "-c", "id"];
    let run = stage.train(&origin, &words).with(command).run().expect(2);
    let run = run.expect_words(&["unexpected argument '--no-such-option' found"]);
    run.check(!stage.base().exists(), "something was begun");
    // What follows the first word is the command's.
    let command = ["echo", "--exclude", "--", "-x"];
    let run = stage.train(&origin, &words).with(command).run().expect(0);
    assert_eq!(run.stdout, "--exclude -- -x\n");
}

#[test]
fn a_check_looks_for_the_command() {
    let (origin, stage) = (serve(&objects(&[("data/a", 3)])), Stage::new());
    let words = ["--channel", "t=s3://lab/data/", "--check"];
    let run = stage.train(&origin, &words).with(["--", "no-such-command"]).run().expect(127);
    run.expect_error(&["cannot start no-such-command", "check its name and PATH"]);
    let path = write_job(&stage, &json!({}));
    let run = stage.train(&origin, &words).with(["--", &path]).run().expect(126);
    run.expect_error(&["cannot start", "make it executable"]);
    assert!(!stage.base().exists(), "nothing is made");
}

#[test]
fn a_job_may_come_from_standard_input_or_have_a_scheme() {
    let (origin, stage) = (serve(&objects(&[("data/a", 3)])), Stage::new());
    let job = json!({"InputDataConfig": [channel("t", "data/", &json!({}))]});
    let path = write_job(&stage, &job);
    let check = |job: &str| stage.train(&origin, &["--check", "--job", job]).run();
    let run = check(&format!("file://{path}")).expect(0);
    run.check(run.stdout.starts_with("channel t: File, 1 object"), "the plan");
    // The harness closes standard input: nothing is read there.
    check("-").expect(2).expect_error(&["standard input: not YAML: it is empty"]);
    let mut program = Command::new(env!("CARGO_BIN_EXE_inrush"));
    program.args(["train", "--check", "--job", "-"]).env_clear();
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = program.spawn().expect("the program starts");
    let mut input = running.stdin.take().expect("a pipe");
    input.write_all(br#"{"InputDataConfig": [{"ChannelName": "x y"}]}"#).expect("it reads");
    drop(input);
    let output = running.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("standard input: InputDataConfig[0].DataSource: missing"), "{stderr}");
}

#[test]
fn a_base_that_is_not_writable_is_reported_once() {
    let (origin, stage) = (serve(&objects(&[("data/a", 3)])), Stage::new());
    fs::create_dir(stage.base()).expect("a folder");
    let permit = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(stage.base(), permissions).expect("it is ours");
    };
    permit(0o555);
    let is_root = rustix::process::geteuid().is_root();
    let before = if is_root { &UNPRIVILEGED[..] } else { &["env"] };
    let words = ["--channel", "t=s3://lab/data/", "--quiet"];
    let run = stage.train(&origin, &words).by_way_of(before).run().expect(5);
    permit(0o755);
    run.expect_error(&["Permission denied", "give --base-dir a folder that you may write to"]);
}

#[test]
fn without_a_base_the_folder_of_sagemaker_must_be_there() {
    if Path::new("/opt/ml").exists() {
        return crate::skip::skip("/opt/ml is there");
    }
    let origin = serve(&objects(&[("data/a", 3)]));
    for more in [&["--check"][..], &[]] {
        let program = Program::new(["train", "--channel", "t=s3://lab/data/"]).with(more);
        let run = program.asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(5);
        run.expect_error(&["/opt/ml is not there", "--base-dir DIR"]);
    }
    // Its own code could be the command's.
    let program = Program::new(["train", "--channel", "t=s3://lab/data/", "--", "true"]);
    let run = program.asking(&origin).with_keys(ACCESS_KEY, SECRET).run().expect(125);
    run.expect_error(&["/opt/ml is not there", "--base-dir DIR"]);
    assert!(!Path::new("/opt/ml").exists(), "nothing is made");
}

#[test]
fn a_cache_is_for_channels_in_fast_file_mode() {
    let origin = serve(&objects(&[("data/a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    for channel in ["d=s3://lab/data/", "d=s3://lab/data/,mode=Pipe"] {
        let (stage, cache) = (Stage::new(), folder.path().join("cache"));
        let words = ["--channel", channel, "--cache", cache.to_str().expect("UTF-8")];
        let run = stage.shell(&origin, &words, "echo started").run().expect(2);
        let run =
            run.expect_words(&["--cache is for channels in FastFile mode, and there is none"]);
        run.check(run.stdout.is_empty() && !stage.base().exists(), "something was begun");
        assert!(!cache.exists(), "the folder is made");
    }
    assert_eq!(origin.stats().gets, 0);
}
