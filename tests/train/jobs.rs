//! Jobs as files describe them: what the command finds.

use std::fs;

use serde_json::{Value, json};

use crate::served::{BUCKET, serve};
use crate::{Stage, objects, record};

/// A channel of `CreateTrainingJob`.
pub(crate) fn channel(name: &str, key: &str, more: &Value) -> Value {
    let source = json!({"S3DataType": "S3Prefix", "S3Uri": format!("s3://{BUCKET}/{key}")});
    let mut channel = json!({"ChannelName": name, "DataSource": {"S3DataSource": source}});
    for (name, value) in more.as_object().expect("fields") {
        match name.as_str() {
            "S3DataType" | "S3DataDistributionType" | "AttributeNames" | "InstanceGroupNames" => {
                channel["DataSource"]["S3DataSource"][name] = value.clone();
            }
            _ => channel[name] = value.clone(),
        }
    }
    channel
}

pub(crate) fn write_job(stage: &Stage, job: &Value) -> String {
    let path = stage.folder.path().join("job.json");
    fs::write(&path, job.to_string()).expect("a job");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_job_has_its_channels_files_and_variables() {
    let origin = serve(&objects(&[
        ("data/train-a", 10),
        ("data/train/b", 20),
        ("data/train2/c", 30),
        ("data/val/0", 1),
        ("data/val/1", 2),
        ("data/val/2", 3),
    ]));
    let stage = Stage::new();
    let job = json!({
        "TrainingJobName": "job-7",
        "HyperParameters": {"epochs": "3"},
        "Environment": {"COLOUR": "blue"},
        "ResourceConfig": {"InstanceCount": 2, "InstanceType": "ml.c5.xlarge"},
        "InputDataConfig": [
            channel("train", "data/train", &json!({"ContentType": "text/csv"})),
            channel("val", "data/val/", &json!({"S3DataDistributionType": "ShardedByS3Key"})),
        ],
    });
    let path = write_job(&stage, &job);
    let script = "cd $d; find train val -type f | sort > $o/files; \
                  echo $TRAINING_JOB_NAME $COLOUR $SM_HP_EPOCHS $SM_CURRENT_HOST > $o/variables; \
                  echo \"$SM_CHANNELS $SM_CHANNEL_VAL\" >> $o/variables";
    let program = stage.shell(&origin, &["--job", &path], script);
    let run = program.set("SLURM_NODEID", "1").set("SLURM_NNODES", "2").run().expect(0);
    run.expect_words(&["host 2 of 2 (shard 1/2), by SLURM_NODEID"]);
    // A prefix is no folder: what merely begins so has its whole last name.
    let files = "train/b\ntrain/train-a\ntrain/train2/c\nval/1\n";
    assert_eq!(stage.output("files"), files);
    let val = stage.data("val").display().to_string();
    let expected = format!("job-7 blue 3 algo-2\n[\"train\",\"val\"] {val}\n");
    assert_eq!(stage.output("variables"), expected);
    let config = stage.base().join("input/config");
    let read = |name: &str| fs::read_to_string(config.join(name)).expect(name);
    assert_eq!(read("hyperparameters.json"), r#"{"epochs":"3"}"#);
    let resources: Value = serde_json::from_str(&read("resourceconfig.json")).expect("JSON");
    assert_eq!(resources["current_host"], "algo-2");
    assert_eq!(resources["hosts"], json!(["algo-1", "algo-2"]));
    let inputs: Value = serde_json::from_str(&read("inputdataconfig.json")).expect("JSON");
    assert_eq!(inputs["train"]["ContentType"], "text/csv");
    assert_eq!(inputs["val"]["S3DistributionType"], "ShardedByS3Key");
}

#[test]
fn a_manifest_is_downloaded_and_streamed_in_records() {
    let list = json!([{"prefix": format!("s3://{BUCKET}/data/")}, "b", "sub/a"]);
    let mut all = objects(&[("data/b", 3), ("data/sub/a", 4), ("data/other", 5)]);
    all.insert("list.json".to_owned(), list.to_string().into_bytes());
    let origin = serve(&all);
    let stage = Stage::new();
    let manifest = json!({"S3DataType": "ManifestFile"});
    let mut piped = manifest.clone();
    piped["InputMode"] = "Pipe".into();
    piped["RecordWrapperType"] = "RecordIO".into();
    let job = json!({"InputDataConfig": [
        channel("files", "list.json", &manifest),
        channel("stream", "list.json", &piped),
    ]});
    let path = write_job(&stage, &job);
    let script = "cat $d/stream_0 > $o/stream; cd $d; find files -type f | sort > $o/files";
    stage.shell(&origin, &["--job", &path], script).run().expect(0);
    assert_eq!(stage.output("files"), "files/b\nfiles/sub/a\n");
    let streamed = fs::read(stage.base().join("output/data/stream")).expect("a stream");
    let expected = ["data/b", "data/sub/a"].map(|key| record(&all[key]));
    assert_eq!(streamed, expected.concat());
}

#[test]
fn a_job_that_is_wrong_is_refused_with_all_that_is() {
    let origin = serve(&objects(&[("data/b", 3)]));
    let stage = Stage::new();
    let job = json!({"InputDataConfig": [
        channel("a b", "data/", &json!({})),
        channel("train", "data/", &json!({"S3DataType": "S3Prefx"})),
    ]});
    let path = write_job(&stage, &job);
    let run = stage.shell(&origin, &["--job", &path], "echo started").run().expect(2);
    let run = run.expect_words(&["job.json", "'a b'", "'S3Prefx'", "InputDataConfig[1]"]);
    run.check(run.stdout.is_empty() && !stage.base().exists(), "nothing is begun");
    let missing = json!({"InputDataConfig": [
        channel("train", "list.json", &json!({"S3DataType": "ManifestFile"})),
    ]});
    let path = write_job(&stage, &missing);
    let run = stage.shell(&origin, &["--job", &path], "echo started").run();
    run.expect(crate::INPUT_FAILED).expect_words(&["channel train", "list.json"]);
    assert_eq!(origin.stats().gets, 1, "the list that is not there");
}

/// Objects as gzip files, and a channel of each.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn gzip_is_decompressed_where_a_channel_says_so() {
    let plain = objects(&[("t/a", 300_000), ("t/b", 5), ("u/a", 7)]);
    let packed = |(key, bytes): (&String, &Vec<u8>)| match key.starts_with("t/") {
        true => (key.clone(), gzip(bytes)),
        false => (key.clone(), bytes.clone()),
    };
    let mut all: crate::matrix::Objects = plain.iter().map(packed).collect();
    let origin = serve(&all);
    let wanted = crate::stream(&plain, "t/");
    let check = |words: &[&str], stage: &Stage| {
        let script = "for e in 0 1; do while [ ! -p $d/t_$e ]; do sleep 0.01; done; \
                      cat $d/t_$e > $o/t_$e; done; cat $d/u_0 > $o/u";
        let words = [words, &["--epochs", "2"]].concat();
        stage.end(stage.shell(&origin, &words, script).start(), 0);
        let read = |name: &str| fs::read(stage.base().join("output/data").join(name)).expect(name);
        assert!(read("t_0") == wanted && read("t_1") == wanted && read("u") == plain["u/a"]);
    };
    let typed = ["t=s3://lab/t/,mode=Pipe,compression=Gzip", "u=s3://lab/u/,mode=Pipe"];
    check(&["--channel", typed[0], "--channel", typed[1]], &Stage::new());
    let stage = Stage::new();
    let pipe = |compression: &str| json!({"InputMode": "Pipe", "CompressionType": compression});
    let channels = [channel("t", "t/", &pipe("Gzip")), channel("u", "u/", &pipe("None"))];
    let path = write_job(&stage, &json!({"InputDataConfig": channels}));
    check(&["--job", &path], &stage);
    // Beside an object that is none the epoch has no end, and the command ends.
    all.insert("t/c".to_owned(), b"no gzip".to_vec());
    let (origin, stage) = (serve(&all), Stage::new());
    let script = "cat $d/t_0 > $o/t_0 && echo whole > $o/whole";
    let program = stage.shell(&origin, &["--channel", typed[0]], script);
    let run = stage.end(program.start(), crate::INPUT_FAILED);
    let expected = "s3://lab/t/c: it is not gzip: byte 0 is 0x6e";
    let run = run.expect_words(&["error: channel t: ", expected]);
    run.check(!stage.has_output("whole"), "the epoch seemed to end");
    // There is no --exclude.
    let run =
        run.expect_words(&["; store it again as gzip, or move it out of the channel's prefix"]);
    run.check(!run.stderr.contains("exclude"), "no option of another command");
    assert!(stage.failure().expect("it says why").contains(expected));
}

#[test]
fn gzip_goes_with_pipes_and_without_records() {
    let (origin, stage) = (serve(&objects(&[("t/a", 5)])), Stage::new());
    for (options, expected) in [
        ("compression=Gzip", "CompressionType Gzip is of Pipe mode only, and this is File"),
        ("mode=Pipe,compression=Gzip,record-wrapper=RecordIO", "Gzip and RecordIO do not go"),
    ] {
        let channel = format!("t=s3://lab/t/,{options}");
        let program = stage.shell(&origin, &["--channel", &channel], "echo started");
        program.run().expect_words(&[expected]);
    }
}
