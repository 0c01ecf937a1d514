//! Processing jobs and Transform jobs: what the command finds.

use std::fs;

use serde_json::{Value, json};

use crate::jobs::write_job;
use crate::served::{BUCKET, serve};
use crate::{Stage, objects, stream};

/// An input of a Processing job below `/opt/ml/processing`.
fn input(name: &str, key: &str, path: &str, more: &Value) -> Value {
    let mut s3 = json!({
        "S3Uri": format!("s3://{BUCKET}/{key}"),
        "LocalPath": format!("/opt/ml/processing/{path}"),
        "S3DataType": "S3Prefix",
    });
    for (name, value) in more.as_object().expect("fields") {
        s3[name] = value.clone();
    }
    json!({"InputName": name, "S3Input": s3})
}

/// A job of two hosts with an input of each kind.
fn processing_job() -> Value {
    let outputs = json!([{"OutputName": "out", "S3Output": {
        "S3Uri": "s3://lab/out/", "LocalPath": "/opt/ml/processing/out/x",
        "S3UploadMode": "EndOfJob",
    }}]);
    json!({
        "ProcessingJobName": "job-7",
        "AppSpecification": {"ImageUri": "image", "ContainerEntrypoint": ["python3"]},
        "Environment": {"COLOUR": "blue"},
        "ProcessingResources": {"ClusterConfig": {
            "InstanceCount": 2, "InstanceType": "ml.m5.xlarge", "VolumeSizeInGB": 30,
        }},
        "ProcessingInputs": [
            // The script of a ScriptProcessor lies in the input that examples have.
            input("code", "scripts/run.py", "input/code/", &json!({})),
            input("input-1", "data/", "input", &json!({})),
            input("more", "more/", "more", &json!({"S3DataDistributionType": "ShardedByS3Key"})),
            input("piped", "piped/", "in/stream", &json!({"S3InputMode": "Pipe"})),
            json!({"InputName": "own", "AppManaged": true}),
        ],
        "ProcessingOutputConfig": {"Outputs": outputs},
        "RoleArn": "arn", "Tags": [],
    })
}

#[test]
fn a_processing_job_has_its_inputs_where_it_says() {
    let all = objects(&[
        ("data/a", 10),
        ("data/code/run.py", 5),
        ("data/code/x", 7),
        ("more/0", 1),
        ("more/1", 2),
        ("more/2", 3),
        ("scripts/run.py", 4),
        ("piped/a", 300_000),
        ("piped/b", 5),
    ]);
    let origin = serve(&all);
    let stage = Stage::new();
    let job = processing_job();
    let path = write_job(&stage, &job);
    let base = stage.base();
    let script = format!(
        "cd {}/processing && cat in/stream_0 > $o/stream; find input more out | sort > $o/files; \
         cat input/code/run.py > $o/script; \
         echo $COLOUR \"$SM_CHANNELS$TRAINING_JOB_NAME\" > $o/env",
        base.display()
    );
    for _ in 0..2 {
        let program = stage.shell(&origin, &["--job", &path, "--epochs", "1"], &script);
        let program = program.set("INRUSH_HOST_RANK", "1").set("INRUSH_HOST_COUNT", "2");
        let run = stage.end(program.start(), 0);
        run.check(!run.stderr.contains("other file"), "the script is of another input");
        let files = "input\ninput/a\ninput/code\ninput/code/run.py\ninput/code/x\n\
                     more\nmore/1\nout\nout/x\n";
        assert_eq!(stage.output("files"), files);
        let read = |name: &str| fs::read(base.join("output/data").join(name)).expect(name);
        assert!(read("stream") == stream(&all, "piped/"));
        assert!(read("script") == all["scripts/run.py"]);
        assert_eq!(stage.output("env"), "blue \n");
    }
    assert_eq!(fs::read_dir(base.join("processing/in")).expect("a folder").count(), 0);
    let config = |name: &str| -> Value {
        let text = fs::read_to_string(base.join("config").join(name)).expect(name);
        serde_json::from_str(&text).expect("JSON")
    };
    assert_eq!(config("resourceconfig.json")["current_host"], "algo-2");
    let found = config("processingjobconfig.json");
    let local = format!("{}/processing/input/code/", base.display());
    assert_eq!(found["ProcessingInputs"][0]["S3Input"]["LocalPath"], local);
    assert_eq!(found["AppSpecification"], job["AppSpecification"]);
    assert_eq!(found["Tags"], Value::Null);
    assert!(!base.join("input/config").exists(), "a training job has it");
    // The next run takes the hosts from the file that SageMaker has there.
    let theirs = r#"{"current_host":"algo-1","hosts":["algo-1","algo-2"]}"#;
    fs::write(base.join("config/resourceconfig.json"), theirs).expect("a file");
    let run = stage.train(&origin, &["--job", &path, "--check"]).run().expect(0);
    run.expect_words(&["host 1 of 2", "resourceconfig.json"]);
}

#[test]
fn what_a_processing_job_cannot_have_here_is_refused_by_name() {
    let (origin, stage) = (serve(&objects(&[("data/a", 3)])), Stage::new());
    let mut dataset = input("a", "data/", "a", &json!({}));
    dataset["DatasetDefinition"] = json!({"LocalPath": "/opt/ml/processing/a"});
    let outside = input("b", "data/", "../b", &json!({}));
    let same = ["c", "d"].map(|name| input(name, "data/", "same", &json!({})));
    let [first, second] = same;
    let path = write_job(&stage, &json!({"ProcessingInputs": [dataset, outside, first, second]}));
    let run = stage.train(&origin, &["--job", &path]).run().expect(2);
    let run = run.expect_words(&[
        "ProcessingInputs[0].DatasetDefinition: not supported",
        "ProcessingInputs[1].S3Input.LocalPath: contains '..'",
        "ProcessingInputs[3]: the folder, same, has the name of the folder of ProcessingInputs[2]",
    ]);
    run.check(!stage.base().exists(), "nothing is begun");
}

#[test]
fn the_objects_of_a_transform_job_are_divided_among_its_hosts() {
    let origin = serve(&objects(&[("in/a.csv", 1), ("in/b.csv", 2), ("in/c.csv", 3)]));
    let stage = Stage::new();
    let source = json!({"S3DataType": "S3Prefix", "S3Uri": format!("s3://{BUCKET}/in/")});
    let job = json!({
        "TransformJobName": "t", "ModelName": "m", "MaxPayloadInMB": 6,
        "TransformInput": {
            "DataSource": {"S3DataSource": source}, "ContentType": "text/csv", "SplitType": "Line",
        },
        "TransformOutput": {"S3OutputPath": "s3://lab/out/"},
        "TransformResources": {"InstanceType": "ml.m4.xlarge", "InstanceCount": 2},
    });
    let path = write_job(&stage, &job);
    let script = "ls $SM_CHANNEL_TRANSFORM > $o/files; cat $d/transform-manifest >> $o/files";
    stage.shell(&origin, &["--job", &path, "--shard", "0/2"], script).run().expect(0);
    let list = ["a", "b", "c"].map(|name| format!("s3://{BUCKET}/in/{name}.csv\n")).concat();
    assert_eq!(stage.output("files"), format!("a.csv\nc.csv\nin/\n{list}"));
    let run = stage.shell(&origin, &["--job", &path], script).run().expect(2);
    run.expect_words(&["the description asks for 2 instances (InstanceCount), but nothing says"]);
}
