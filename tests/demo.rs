//! `inrush demo` with the real binary: it says that all is well when it is, and leaves nothing.

#![expect(clippy::disallowed_methods, reason = "a test waits for a while, not for ever")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for the demo's folder to appear.
const BEGIN_SECONDS: u64 = 30;

fn demo(folder: &Path, options: &[&str]) -> Command {
    // Whoever started the tests may ignore it.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_inrush")]);
    command.args(["demo", "--size", "64MiB"]).args(options).stdin(Stdio::null());
    // Keys of the environment are not looked at, and neither is its profile.
    command.env_clear().env("AWS_ACCESS_KEY_ID", "x").env("AWS_PROFILE", "none of that name");
    command.env("TMPDIR", folder).current_dir(folder);
    // It is run on either ring.
    command.envs(std::env::vars_os().filter(|(name, _)| name == "INRUSH_RING"));
    command
}

fn code(output: &Output) -> Option<i32> {
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.code()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect()
}

/// A folder on the build's disk: the machine's temporary one may be in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

#[test]
fn every_byte_is_compared_and_nothing_is_left() {
    let folder = folder();
    let output = demo(folder.path(), &["--json"]).output().expect("the demo starts");
    assert_eq!(code(&output), Some(0));
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&outcome["verified"], &outcome["exit_code"]), (&true.into(), &0.into()));
    let sets = outcome["sets"].as_array().expect("sets");
    let compared: Vec<_> = sets.iter().map(|set| set["set"].as_str().expect("a name")).collect();
    assert_eq!(compared, ["large", "small", "empty", "odd sizes", "odd names"]);
    assert_eq!(sets[0]["bytes"], 64 << 20);
    assert_eq!((&sets[1]["objects"], &sets[1]["bytes"]), (&2_000.into(), &78_000_000.into()));
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    let words = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(words.contains("\nlarge ") && !words.contains("NO"), "{words}");
}

#[test]
fn every_byte_is_compared_over_tls() {
    let folder = folder();
    let output = demo(folder.path(), &["--tls", "--json"]).output().expect("the demo starts");
    assert_eq!(code(&output), Some(0));
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(outcome["verified"], true);
    let words = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(words.contains("test server on https://"), "{words}");
    assert!(words.contains("TLS sessions with TLSv1_3 TLS13_AES_128_GCM_SHA256"), "{words}");
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
}

#[test]
fn what_is_to_be_kept_is_kept() {
    let folder = folder();
    let options = ["--keep", "--quiet", "--json", "--workers", "1", "--memory", "8MiB"];
    let output = demo(folder.path(), &options).output().expect("the demo starts");
    assert_eq!((code(&output), output.stderr.len()), (Some(0), 0));
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let kept = Path::new(outcome["kept"].as_str().expect("a path"));
    let mut sets = names(kept);
    sets.sort_unstable();
    assert_eq!(sets, ["empty", "large", "odd names", "odd sizes", "small"]);
    assert_eq!(kept.parent(), Some(folder.path()));
}

#[test]
fn an_interrupt_leaves_nothing() {
    let folder = folder();
    let mut child = demo(folder.path(), &["--quiet"]).spawn().expect("the demo starts");
    let deadline = Instant::now() + Duration::from_secs(BEGIN_SECONDS);
    while names(folder.path()).is_empty() {
        assert!(Instant::now() < deadline, "no folder after {BEGIN_SECONDS} s");
        std::thread::sleep(Duration::from_millis(2));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill starts").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
}
