//! Keys that expire during a run: what replaces them is used as soon as it is there, and waited for
//! as long as an endpoint is.

use std::fs;
use std::path::{Path, PathBuf};

use inrush_origin::{Credentials, Origin};
use tempfile::TempDir;

use crate::matrix::Objects;
use crate::program::{Program, Running};
use crate::served::{ACCESS_KEY, SECRET, config, serve, start};
use crate::{ACCESS, Nowhere, assert_whole, below, objects};

const OLD: &str = "AKIDOLD";
const NEW: &str = "AKIDNEW";
/// More refusals in a row than one range has tries where the time does not count.
const REFUSALS: u64 = 10;
/// The code of expired keys.
const EXPIRED: &str = "ExpiredToken";
const EXPIRATION: &str = "AWS_CREDENTIAL_EXPIRATION";

fn token(access_key: &str) -> String {
    format!("token-of-{access_key}")
}

/// An origin whose old keys expire after this many requests, and that knows newer ones.
fn expiring(objects: &Objects, requests: u64) -> Origin {
    let keys = |name| Credentials::new(name, SECRET).with_session_token(token(name));
    let credentials = vec![keys(OLD).with_request_limit(requests), keys(NEW)];
    start(inrush_origin::Config { credentials, ..config(objects) })
}

fn profile(access_key: &str, token: &str) -> String {
    format!(
        "[default]\naws_access_key_id = {access_key}\naws_secret_access_key = {SECRET}\n\
         aws_session_token = {token}\n"
    )
}

/// A file with keys, replaced as programs do it: in one step.
struct KeysFile {
    folder: TempDir,
}

impl KeysFile {
    fn of(access_key: &str) -> Self {
        let file = Self { folder: tempfile::tempdir().expect("a folder") };
        file.replace(&profile(access_key, &token(access_key)));
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keys")
    }

    fn replace(&self, content: &str) {
        let beside = self.folder.path().join("beside");
        fs::write(&beside, content).expect("room");
        fs::rename(beside, self.path()).expect("the same folder");
    }
}

/// The program with these words, with the keys of a file that this variable names.
fn with_file(words: &[&str], origin: &Origin, variable: &str, file: &Path) -> Program {
    Program::new(words).asking(origin).set(variable, file)
}

fn refusals(origin: &Origin, code: &str) -> u64 {
    origin.stats().codes.get(code).copied().unwrap_or(0)
}

/// Waits until this many requests were refused with this code.
fn await_refusals(run: &mut Running, origin: &Origin, code: &str, count: u64) {
    // One that has ended fails below, with what it said.
    run.until(|| refusals(origin, code) >= count);
}

const CREDENTIALS_FILE: &str = "AWS_SHARED_CREDENTIALS_FILE";

#[test]
fn keys_that_another_program_replaces_in_a_file_are_used() {
    let all = objects(&[("p/a", 3 << 20), ("p/b", 5), ("p/c", 1 << 20)]);
    for variable in [CREDENTIALS_FILE, "AWS_CONFIG_FILE"] {
        let (origin, keys, nowhere) = (expiring(&all, 1), KeysFile::of(OLD), Nowhere::new());
        let destination = nowhere.path();
        let words = ["get", "--quiet", "s3://lab/p/", destination.to_str().expect("UTF-8")];
        let mut run = with_file(&words, &origin, variable, &keys.path()).start();
        await_refusals(&mut run, &origin, EXPIRED, 1);
        keys.replace(&profile(NEW, &token(NEW)));
        run.wait().expect(0);
        nowhere.assert_holds(&below("p/", &all));
    }
}

#[test]
fn a_range_waits_for_keys_longer_than_its_tries_last() {
    let all = objects(&[("p/a", 5)]);
    let (origin, keys, nowhere) = (expiring(&all, 1), KeysFile::of(OLD), Nowhere::new());
    let destination = nowhere.path();
    let words = ["get", "--quiet", "s3://lab/p/", destination.to_str().expect("UTF-8")];
    let mut run = with_file(&words, &origin, CREDENTIALS_FILE, &keys.path()).start();
    await_refusals(&mut run, &origin, EXPIRED, REFUSALS);
    keys.replace(&profile(NEW, &token(NEW)));
    run.wait().expect(0);
    nowhere.assert_holds(&below("p/", &all));
}

#[test]
fn a_stream_waits_for_keys() {
    let all = objects(&[("p/a", 3 << 20), ("p/b", 5)]);
    let (origin, keys) = (expiring(&all, 1), KeysFile::of(OLD));
    let words = ["cat", "--quiet", "s3://lab/p/"];
    let mut run = with_file(&words, &origin, CREDENTIALS_FILE, &keys.path()).start();
    await_refusals(&mut run, &origin, EXPIRED, 1);
    keys.replace(&profile(NEW, &token(NEW)));
    let run = run.wait().expect(0);
    let expected = all.values().flatten().copied().collect::<Vec<u8>>();
    run.check(run.stdout == String::from_utf8_lossy(&expected), "the objects were expected");
}

/// The command gives the old keys again at first, as one does that has a cache of its own.
#[test]
fn a_listing_waits_for_keys_that_come_late() {
    let all: Objects = (0..1_001).map(|n| (format!("p/{n:04}"), vec![1])).collect();
    let (origin, folder) = (expiring(&all, 1), tempfile::tempdir().expect("a folder"));
    let path = |name| folder.path().join(name);
    let printed = |name| {
        format!(
            "{{\"Version\":1,\"AccessKeyId\":\"{name}\",\"SecretAccessKey\":\"{SECRET}\",\
             \"SessionToken\":\"{}\"}}",
            token(name)
        )
    };
    fs::write(path("old"), printed(OLD)).expect("room");
    let script = "echo x >> runs\nif [ -e new ]; then cat new; else cat old; fi\n";
    fs::write(path("script"), format!("cd {}\n{script}", folder.path().display())).expect("room");
    let config = format!("[default]\ncredential_process = sh {}\n", path("script").display());
    fs::write(path("config"), config).expect("room");
    let words = ["ls", "s3://lab/p/"];
    let run = with_file(&words, &origin, "AWS_CONFIG_FILE", &path("config"));
    let mut run = run.set("PATH", "/usr/bin:/bin").start();
    let runs = || fs::read_to_string(path("runs")).unwrap_or_default().lines().count();
    run.until(|| runs() >= 3);
    fs::write(path("beside"), printed(NEW)).expect("room");
    fs::rename(path("beside"), path("new")).expect("the same folder");
    let run = run.wait().expect(0);
    run.check(run.stdout.lines().count() == 1_001, "all were expected");
}

/// `aws configure set` writes one setting after the other: what stands there between is refused.
#[test]
fn keys_that_are_replaced_piece_by_piece_are_waited_for() {
    let all = objects(&[("p/a", 5), ("p/b", 1 << 20)]);
    let (origin, keys, nowhere) = (expiring(&all, 1), KeysFile::of(OLD), Nowhere::new());
    let destination = nowhere.path();
    let words = ["get", "--quiet", "s3://lab/p/", destination.to_str().expect("UTF-8")];
    let mut run = with_file(&words, &origin, CREDENTIALS_FILE, &keys.path()).start();
    await_refusals(&mut run, &origin, EXPIRED, 1);
    keys.replace(&profile(NEW, &token(OLD)));
    await_refusals(&mut run, &origin, "InvalidToken", 1);
    keys.replace(&profile(NEW, &token(NEW)));
    run.wait().expect(0);
    nowhere.assert_holds(&below("p/", &all));
}

#[test]
fn keys_that_nobody_replaces_fail_with_where_they_come_from() {
    let all = objects(&[("p/a", 5)]);
    let words = ["get", "--quiet", "--retry-for", "1s", "s3://lab/p/"];
    for requests in [0, 1] {
        let (origin, keys, nowhere) = (expiring(&all, requests), KeysFile::of(OLD), Nowhere::new());
        let run = with_file(&words, &origin, CREDENTIALS_FILE, &keys.path()).with([nowhere.path()]);
        let file = keys.path().display().to_string();
        let from =
            format!("the keys are from the profile 'default' in {file}, which gives no newer");
        let waited = match requests {
            0 => "(waited 1 s for newer credentials)",
            _ => " tries in ",
        };
        let run = run.run().expect(ACCESS);
        run.expect_error(&[EXPIRED, &from, waited, "get new temporary credentials"]);
        assert_eq!(assert_whole(nowhere.folder.path(), &all), 0);
    }
    // What stands in the environment of a process stays the same: nothing is waited for.
    for requests in [0, 1] {
        let (origin, nowhere) = (expiring(&all, requests), Nowhere::new());
        let run = Program::new(["get", "--quiet", "s3://lab/p/"]).asking(&origin);
        let run = run.with_keys(OLD, SECRET).set("AWS_SESSION_TOKEN", token(OLD));
        let run = run.with([nowhere.path()]).run().expect(ACCESS);
        let from = "the keys are from the environment, which stays the same during a run";
        run.expect_error(&[EXPIRED, from, "get new temporary credentials"]);
        assert_eq!(refusals(&origin, EXPIRED), 1);
        assert_eq!(assert_whole(nowhere.folder.path(), &all), 0);
    }
}

#[test]
fn keys_that_were_never_right_are_not_waited_for() {
    let origin = expiring(&objects(&[("p/a", 5)]), 9);
    for (content, code) in [
        (profile("AKIDUNKNOWN", &token(OLD)), "InvalidAccessKeyId"),
        (profile(OLD, &token(NEW)), "InvalidToken"),
        (profile(OLD, &token(OLD)).replace(SECRET, "another"), "SignatureDoesNotMatch"),
    ] {
        let (keys, nowhere) = (KeysFile::of(OLD), Nowhere::new());
        keys.replace(&content);
        let words = ["get", "--quiet", "s3://lab/p/"];
        let run = with_file(&words, &origin, CREDENTIALS_FILE, &keys.path());
        run.with([nowhere.path()]).run().expect(ACCESS).expect_error(&[code]);
        assert_eq!(refusals(&origin, code), 1);
        nowhere.assert_untouched();
    }
}

#[test]
fn the_time_of_the_environments_keys_counts() {
    let all = objects(&[("p/a", 5)]);
    let origin = serve(&all);
    let get = |until: &str| {
        let nowhere = Nowhere::new();
        let run = Program::new(["get", "--quiet", "s3://lab/p/"]).asking(&origin);
        let run = run.with_keys(ACCESS_KEY, SECRET).set(EXPIRATION, until);
        (run.with([nowhere.path()]).run(), nowhere)
    };
    for (until, words) in [
        (
            "2001-01-01T00:00:00Z",
            "is 2001-01-01T00:00:00Z: the keys of the environment have expired",
        ),
        ("2001-01-01T02:00:00+02:00", "is 2001-01-01T00:00:00Z: the keys of the environment have"),
        ("soon", "is no time: soon"),
    ] {
        let (run, nowhere) = get(until);
        run.expect(ACCESS).expect_error(&[&format!("error: {EXPIRATION} {words}")]);
        assert_eq!(origin.stats().requests, 0, "{until}");
        nowhere.assert_untouched();
    }
    for until in ["", "2100-01-01T00:00:00Z", "2100-01-01T00:00:00+00:00"] {
        let (run, nowhere) = get(until);
        run.expect(0);
        nowhere.assert_holds(&below("p/", &all));
    }
}
