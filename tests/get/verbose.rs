//! `--verbose`: what is decided and why, and no secret among it.

use inrush_origin::{Credentials, Fault, FaultPlan, Match, Operation, Origin};

use crate::matrix::Objects;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, config, get, serve, start};
use crate::{Place, objects};

const TOKEN: &str = "lab/session+token";

fn some() -> Objects {
    objects(&[("p/a", 700), ("p/deep/b", 3 << 20)])
}

fn loud(origin: &Origin, words: &[&str]) -> Program {
    Program::new(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

/// Fails unless standard error has all of these words.
#[track_caller]
fn check(run: &Run, expected: &[&str]) {
    for words in expected {
        run.check(run.stderr.contains(words), &format!("{words:?} was expected"));
    }
}

#[test]
fn decisions_files_and_retries_are_logged() {
    let mut configuration = config(&some());
    let when = Match { key: Some("p/a".to_owned()), attempts: Some(1..=2), ..Match::default() };
    let slow = Match {
        operation: Some(Operation::ListObjects),
        attempts: Some(1..=1),
        ..Match::default()
    };
    let faults = FaultPlan::none().with_rule(when, Fault::InternalError);
    configuration.faults = faults.with_rule(slow, Fault::InternalError);
    let origin = start(configuration);
    let place = Place::new();
    let data = place.path().display().to_string();
    let words = ["get", "-v", "s3://lab/p/", &data, "--workers", "1", "--connections", "3"];
    let run = loud(&origin, &words).run().expect(0);
    check(
        &run,
        &[
            "\nregion: us-east-1 (as given)\n",
            "(as given)\n",
            "credentials: from the environment\n",
            "bucket lab: http://127.0.0.1:",
            "\nLIST s3://lab/p/ is tried again, try 2: the server answered 500\n",
            "\nsource s3://lab/p/: everything below it\n",
            "\n1 worker, 3 connections, parts of 8 MiB, ",
            &format!("\nget: s3://lab/p/a -> {data}/a (700 B) after 2 retries\n"),
            &format!("\nget: s3://lab/p/deep/b -> {data}/deep/b (3.15 MB)\n"),
            "\nring: ",
            "\n2 retries because of server_error\n",
            "\nretry s3://lab/p/a in ",
            " ms: the server answered 500\n",
        ],
    );
    run.check(run.stderr.matches("\nretry ").count() == 2, "each retry has its line");
    run.check(!run.stderr.contains("request id"), "requests are for -vv");
    // Again nothing is fetched, and -vv says why.
    let run = loud(&origin, &["get", "-vv", "s3://lab/p/", &data]).run().expect(0);
    let kept = format!("\nskip get: s3://lab/p/a -> {data}/a (700 B): it was kept");
    check(&run, &[&kept, "LIST s3://lab/p/ at 127.0.0.1:", ": 200, request id "]);
}

#[test]
fn an_object_that_fails_is_reported_once() {
    let mut configuration = config(&some());
    let operation = Some(Operation::GetObject);
    let when = Match { operation, key: Some("p/a".to_owned()), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(when, Fault::InternalError);
    let origin = start(configuration);
    let place = Place::new();
    let data = place.path().display().to_string();
    let words = ["get", "-v", "s3://lab/p/", &data, "--max-attempts", "1", "--retry-for", "0s"];
    let run = loud(&origin, &words).run().expect(1);
    check(&run, &["error: get s3://lab/p/a", &format!("{data}/deep/b (3.15 MB)")]);
    run.check(run.stderr.matches("InternalError").count() == 1, "one line says why");
    run.check(!run.stderr.contains("failed: get:"), "the error says it");
}

#[test]
fn secrets_are_in_no_line() {
    let mut configuration = config(&some());
    configuration.credentials =
        vec![Credentials::new(ACCESS_KEY, SECRET).with_session_token(TOKEN)];
    let origin = start(configuration);
    let place = Place::new();
    let data = place.path().display().to_string();
    for words in [
        &["get", "s3://lab/p/", &data][..],
        &["sync", "s3://lab/p/", &data, "--delete"],
        &["verify", "s3://lab/p/", &data],
        &["ls", "s3://lab/p/", "--recursive"],
        &["cat", "s3://lab/p/deep/b"],
    ] {
        let run =
            loud(&origin, words).with(["-vv"]).set("AWS_SESSION_TOKEN", TOKEN).run().expect(0);
        check(&run, &["request id", "credentials: from", "bucket lab: "]);
        let stderr = run.stderr.to_ascii_lowercase();
        for secret in [SECRET, TOKEN, "signature", "authorization", "x-amz-", "aws4"] {
            run.check(!stderr.contains(&secret.to_ascii_lowercase()), "a secret is printed");
        }
    }
}

#[test]
fn without_it_nothing_is_logged_and_quiet_is_only_errors() {
    let origin = serve(&some());
    let place = Place::new();
    let run = get(&origin, ["s3://lab/p/"]).with([place.path()]).run().expect(0);
    run.check(run.stderr.is_empty(), "quiet");
    let run = loud(&origin, &["ls", "-q", "s3://lab/p/"]).run().expect(0);
    run.check(run.stderr.is_empty(), "quiet");
    let run = loud(&origin, &["ls", "s3://lab/p/"]).run().expect(0);
    run.check(run.stderr.is_empty(), "nothing is logged");
    let run = loud(&origin, &["ls", "-q", "s3://lab/none"]).run().expect(4);
    run.check(run.stderr.starts_with("error: "), "errors are printed");
    loud(&origin, &["ls", "-q", "-v", "s3://lab/p/"]).run().expect(2);
}
