//! The real program against an S3 server that nobody here wrote and that verifies signatures.
//!
//! The server is `s3s-fs`, in this process. `tools/check.py interop` does the same with nginx and
//! moto, on more filesystems.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and sockets of its own"
)]

#[path = "common/matrix.rs"]
mod matrix;
#[path = "common/s3s_server.rs"]
mod s3s_server;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use matrix::{LARGE, Objects, assert_same, bytes_of, many, names, sizes};
use s3s_server::{ACCESS_KEY, BUCKET, SECRET, Server};

/// Longest time for one run of the program.
const RUN_SECONDS: u64 = 120;
/// The documented exit code for credentials and permission.
const ACCESS: i32 = 3;

/// How a run ended.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// `inrush get` of the whole bucket into `destination`, with nothing in its environment but keys.
fn get(server: &Server, destination: &Path, secret: &str, options: &[&str]) -> Run {
    let home = tempfile::tempdir().expect("an empty home");
    let output = |name| home.path().join(name);
    let create = |name| Stdio::from(File::create(output(name)).expect("a file for its output"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_inrush"))
        .args(["get", &format!("s3://{BUCKET}/")])
        .arg(destination)
        .args(["--endpoint-url", &server.url(), "--region", "us-east-1", "--quiet", "--json"])
        .args(options)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "INRUSH_RING"))
        .env("HOME", home.path())
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", secret)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .stdin(Stdio::null())
        .stdout(create("stdout"))
        .stderr(create("stderr"))
        .spawn()
        .expect("the program starts");
    let deadline = Instant::now() + Duration::from_secs(RUN_SECONDS);
    let status = loop {
        if let Some(status) = child.try_wait().expect("the program can be waited for") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("the program can be stopped");
            child.wait().expect("the program ends");
            panic!("not done after {RUN_SECONDS} s");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let read = |name| std::fs::read_to_string(output(name)).expect("its output in UTF-8");
    Run { code: status.code(), stdout: read("stdout"), stderr: read("stderr") }
}

/// Downloads the bucket and sees that exactly `objects` arrive and are counted.
fn assert_arrives(server: &Server, objects: &Objects, options: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder to download to");
    let destination = folder.path().join("destination");
    let run = get(server, &destination, SECRET, options);
    assert_eq!(run.code, Some(0), "{options:?}: {}", run.stderr);
    assert_same(&destination, objects);
    let summary: serde_json::Value = serde_json::from_str(&run.stdout).expect("a JSON summary");
    let bytes: usize = objects.values().map(Vec::len).sum();
    assert_eq!(summary["objects"], objects.len(), "{summary}");
    assert_eq!(summary["bytes"], bytes, "{summary}");
}

#[test]
fn the_server_verifies_signatures() {
    let server = Server::start();
    server.put("put", b"by the API");
    server.write("folder/written", b"as a file");
    let get = |key: &str, secret| server.ask("GET", &format!("/{BUCKET}/{key}"), b"", secret);
    for (key, bytes) in [("put", b"by the API".as_slice()), ("folder/written", b"as a file")] {
        let answer = get(key, Some(SECRET));
        assert_eq!((answer.status, answer.body.as_slice()), (200, bytes), "{key}");
    }
    for (secret, code) in [(Some("another"), "SignatureDoesNotMatch"), (None, "AccessDenied")] {
        let answer = get("put", secret);
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 403, "{body}");
        assert!(body.contains(code), "{body}");
    }
}

#[test]
fn every_size_arrives() {
    let server = Server::start();
    let objects = sizes();
    for (key, bytes) in &objects {
        server.put(key, bytes);
    }
    assert_arrives(&server, &objects, &[]);
    assert_arrives(&server, &objects, &["--workers", "1", "--memory", "64MiB"]);
}

#[test]
fn every_name_arrives() {
    let server = Server::start();
    let objects = names();
    for (key, bytes) in &objects {
        server.write(key, bytes);
    }
    assert_arrives(&server, &objects, &[]);
}

#[test]
fn three_pages_of_keys_arrive() {
    let server = Server::start();
    let objects = many(2_500);
    for (key, bytes) in &objects {
        server.write(key, bytes);
    }
    assert_arrives(&server, &objects, &[]);
}

#[test]
fn a_large_object_arrives_in_parts() {
    let server = Server::start();
    let key = "large";
    let objects = Objects::from([(key.to_owned(), bytes_of(key, LARGE))]);
    server.put(key, &objects[key]);
    assert_arrives(&server, &objects, &["--part-size", "8MiB"]);
}

#[test]
fn a_wrong_secret_is_reported_as_such() {
    let server = Server::start();
    server.write("key", b"bytes");
    let folder = tempfile::tempdir().expect("a folder to download to");
    let run = get(&server, folder.path(), "another", &[]);
    assert_eq!(run.code, Some(ACCESS), "{}", run.stderr);
    assert!(run.stderr.contains("SignatureDoesNotMatch"), "{}", run.stderr);
    assert_same(folder.path(), &Objects::new());
}
