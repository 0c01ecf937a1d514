//! TLS delivers equal bytes, whatever the version and whatever breaks.

use inrush_origin::{Config, FaultPlan, Profile, TlsConfig, TlsVersions};

use crate::matrix::{Objects, assert_same};
use crate::served::config;
use crate::{Stage, mixture};

fn stream(all: &Objects) -> Vec<u8> {
    all.values().flatten().copied().collect()
}

/// Gets, streams and pipes all of it.
#[track_caller]
fn fetch_all(stage: &Stage, all: &Objects, words: &[&str]) {
    let destination = stage.destination();
    let run = stage.trusting(&[&["get", "--quiet", "s3://lab/"], words].concat());
    run.with([&destination]).run().expect(0);
    assert_same(&destination, all);
    std::fs::remove_dir_all(&destination).expect("a folder");
    let output = stage.folder.path().join("stream");
    let file = std::fs::File::create(&output).expect("a file");
    let run = stage.trusting(&[&["cat", "s3://lab/"], words].concat());
    let run = run.start_with(file.into(), std::process::Stdio::null());
    run.wait().expect(0);
    assert!(std::fs::read(&output).expect("a file") == stream(all), "the stream");
    let channel = stage.folder.path().join("train");
    let ready = stage.folder.path().join("ready");
    let words = [&["pipe", "--quiet", "--epochs", "2", "s3://lab/"], words].concat();
    let program = stage.trusting(&words).with([&channel]);
    let mut running = program.with(["--ready-file".as_ref(), ready.as_os_str()]).start();
    assert!(running.until(|| ready.exists()), "it is ready");
    for epoch in 0..2 {
        let pipe = stage.folder.path().join(format!("train_{epoch}"));
        assert!(running.until(|| pipe.exists()), "epoch {epoch} has a pipe");
        assert!(std::fs::read(&pipe).expect("a pipe") == stream(all), "epoch {epoch}");
    }
    running.wait().expect(0);
    assert!(!ready.exists(), "it goes with its run");
}

#[test]
fn both_versions_bring_every_byte() {
    let all = mixture();
    for (versions, name) in [(TlsVersions::Only12, "TLSv1_2"), (TlsVersions::Only13, "TLSv1_3")] {
        let stage = Stage::new(&all, TlsConfig { versions, ..TlsConfig::default() });
        fetch_all(&stage, &all, &[]);
        fetch_all(&stage, &all, &["--ring", "epoll"]);
        let stats = stage.origin.stats();
        assert!(stats.tls_suites.keys().all(|suite| suite.starts_with(name)), "{stats:?}");
        assert!(stats.tls_resumed > 0, "sessions are resumed: {stats:?}");
    }
}

#[test]
fn little_memory_suffices() {
    let all = mixture();
    let stage = Stage::new(&all, TlsConfig::default());
    let destination = stage.destination();
    let words = ["get", "--quiet", "--memory", "4MiB", "--part-size", "1MiB", "s3://lab/"];
    stage.trusting(&words).with([&destination]).run().expect(0);
    assert_same(&destination, &all);
}

#[test]
fn every_byte_is_right_whatever_breaks() {
    let all = mixture();
    for seed in 1..=3 {
        let faults = FaultPlan::seeded(seed, Profile::Tls);
        let tls = Some(TlsConfig::default());
        let stage = Stage::with(Config { tls, faults, ..config(&all) });
        fetch_all(&stage, &all, &["--part-size", "1MiB", "--max-attempts", "30"]);
        let injected: u64 = stage.origin.stats().faults.values().sum();
        assert!(injected > 0, "seed {seed} has faults");
    }
}
