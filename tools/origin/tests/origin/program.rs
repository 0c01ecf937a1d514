//! The program: its faults and what it reports of them at its end.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::client::try_ask;

const PROGRAM: &str = env!("CARGO_BIN_EXE_inrush-origin");

/// Runs the program, has it asked at its address, and returns what it wrote until its end.
fn run(arguments: &[&str], ask: impl FnOnce(std::net::SocketAddr)) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--ready-file").arg(&ready).stderr(Stdio::piped());
    let mut running = Running(Some(command.spawn().unwrap()));
    ask(address(&ready));
    let child = running.0.take().expect("it was started");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    child.wait_with_output().unwrap()
}

/// A program that does not outlive a test that fails.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Should it be gone already, there is nothing to do.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn address(ready: &Path) -> std::net::SocketAddr {
    let text = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        std::fs::read_to_string(ready).ok()
    });
    text.expect("it is ready").trim().parse().unwrap()
}

fn counters(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{output:?}");
    let text = std::str::from_utf8(&output.stderr).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn every_fault_that_a_client_saw_is_in_the_counters() {
    let mut seen = std::collections::BTreeMap::<&str, u64>::new();
    let arguments = ["--synthetic", "b/k/:100:1KiB", "--faults", "7:bursts"];
    let output = run(&arguments, |address| {
        for number in 0..100 {
            let answer = try_ask(address, &format!("GET /b/k/{number:06}.bin"), "").unwrap();
            let codes = ["InternalError", "ServiceUnavailable", "SlowDown"];
            let code = codes.into_iter().find(|code| {
                answer.status() >= 500 && answer.text().contains(&format!("<Code>{code}</Code>"))
            });
            assert_eq!(code.is_none(), answer.status() == 200, "{}", answer.head);
            *seen.entry(code.unwrap_or("none")).or_default() += 1;
        }
    });
    let counted = counters(&output);
    for (code, name) in [
        ("InternalError", "internal_error"),
        ("ServiceUnavailable", "service_unavailable"),
        ("SlowDown", "slow_down"),
    ] {
        assert_eq!(counted["faults"][name], seen[code], "{name}");
        assert_eq!(counted["codes"][code], seen[code], "{code}");
    }
    assert_eq!((&counted["requests"], seen.values().sum()), (&100.into(), 100_u64));
}

#[test]
fn samples_end_with_what_the_counters_say() {
    let folder = tempfile::tempdir().unwrap();
    let samples = folder.path().join("samples");
    let arguments = ["--synthetic", "b/k/:1:1KiB", "--requests-per-second", "1:2", "--samples"];
    let arguments = [&arguments[..], &[samples.to_str().unwrap()]].concat();
    let output = run(&arguments, |address| {
        for _ in 0..5 {
            try_ask(address, "GET /b/k/000000.bin", "").unwrap();
        }
    });
    let counted = counters(&output);
    let text = std::fs::read_to_string(&samples).unwrap();
    let lines: Vec<Vec<u64>> = text
        .lines()
        .map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect())
        .collect();
    assert!(lines.is_sorted(), "{lines:?}");
    let last = lines.last().unwrap();
    for (number, name) in last[1..].iter().zip(["bytes_sent", "requests", "throttled"]) {
        assert_eq!(&counted[name], number, "{name}");
    }
    assert_eq!((last.len(), last[2]), (4, 5));
    assert!(last[3] > 0, "{lines:?}");
}

#[test]
fn what_it_does_not_know_it_names() {
    let output = Command::new(PROGRAM).args(["--faults", "7:other"]).output().unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for name in inrush_origin::Profile::NAMES {
        assert!(stderr.contains(name), "{name} is not in: {stderr}");
        assert!(help.contains(name), "{name} is not in: {help}");
    }
}
