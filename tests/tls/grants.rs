//! Access grants: who gets the keys of the caller, and whose keys read the bucket.

use std::sync::atomic::{AtomicUsize, Ordering};

use inrush_origin::{Config, Credentials, Origin};

use crate::fake::{Fake, listing, object, page};
use crate::matrix::Objects;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, config, start};
use crate::{ACCESS, USAGE};

const CALLER: &str = "111122223333";
const OWNER: &str = "444455556666";
/// What is secret of granted keys.
const GIVEN: &str = "53cr37-that-is-given";
const TOKEN: &str = "70k3n-that-is-given";

/// What `GetDataAccess` is asked for.
fn target_of(head: &str) -> Option<String> {
    let rest = head.split("/dataaccess?").nth(1)?.split("target=").nth(1)?;
    let encoded = rest.split(['&', ' ']).next()?;
    Some(encoded.replace("%3A", ":").replace("%2F", "/").replace("%2A", "*"))
}

/// The answer with these keys, for this scope.
fn given(key: &str, scope: &str) -> String {
    page(&format!(
        "<GetDataAccessResult><Credentials><AccessKeyId>{key}</AccessKeyId>\
         <SecretAccessKey>{GIVEN}</SecretAccessKey><SessionToken>{TOKEN}-{key}</SessionToken>\
         <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>\
         <MatchedGrantTarget>{scope}</MatchedGrantTarget></GetDataAccessResult>"
    ))
}

fn denied() -> String {
    page(
        "<ErrorResponse><Error><Code>AccessDenied</Code><Message>You do not have READ permissions \
         to the requested S3 Prefix</Message></Error></ErrorResponse>",
    )
    .replacen("200 OK", "403 Forbidden", 1)
}

/// STS and S3 Control, which takes requests of the caller alone and answers those for keys like
/// this.
fn services(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Fake {
    Fake::start(None, move |head| {
        if !head.contains(&format!("Credential={ACCESS_KEY}/")) {
            return "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_owned();
        }
        if head.starts_with("GET /?Action=GetCallerIdentity") {
            return page(&format!(
                "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>{CALLER}</Account>\
                 </GetCallerIdentityResult></GetCallerIdentityResponse>"
            ));
        }
        match target_of(head) {
            Some(target) => answer(&target),
            None => page(&format!(
                "<GetAccessGrantsInstanceForPrefixResult><AccessGrantsInstanceArn>arn:aws:s3:\
                 us-east-1:{OWNER}:access-grants/default</AccessGrantsInstanceArn>\
                 </GetAccessGrantsInstanceForPrefixResult>"
            )),
        }
    })
}

/// The program with these words, by the keys of the caller.
fn asking(services: &Fake, url: &str, words: &[&str]) -> Program {
    Program::new(words)
        .with(["--endpoint-url", url, "--region", "us-east-1"])
        .with_keys(ACCESS_KEY, SECRET)
        .set("AWS_ENDPOINT_URL_STS", services.url())
        .set("AWS_ENDPOINT_URL_S3_CONTROL", services.url())
        .set("RUST_LOG", "trace")
}

fn nothing_shown(run: &Run) {
    let printed = format!("{}{}", run.stdout, run.stderr);
    for hidden in [SECRET, GIVEN, TOKEN] {
        run.check(!printed.contains(hidden), "no secret was printed");
    }
}

fn objects() -> Objects {
    (0..40).map(|number| (format!("a/{number:02}"), vec![b'x'; 1_000 + number])).collect()
}

/// An origin that knows these keys alone, with their tokens.
fn origin(keys: Vec<Credentials>) -> Origin {
    start(Config { credentials: keys, ..config(&objects()) })
}

fn granted(key: &str) -> Credentials {
    Credentials::new(key, GIVEN).with_session_token(format!("{TOKEN}-{key}"))
}

#[test]
fn each_source_is_read_with_the_keys_of_its_grant() {
    let services = services(|target| match target.starts_with("s3://lab/a/") {
        true => given("AKIDA", "s3://lab/a/*"),
        false => given("AKIDB", "s3://lab/b*"),
    });
    let bucket = Fake::start(None, |head| match head {
        _ if !head.to_ascii_lowercase().contains("\r\nauthorization:") => {
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned()
        }
        _ if head.contains("prefix=a") => listing(&[("a/1", "1"), ("a/2", "2")]),
        _ if head.contains("list-type=2") => listing(&[("b/3", "3")]),
        _ => object(head, "9"),
    });
    let words = ["get", "s3://lab/a/", "s3://lab/b/", "--discard", "--access-grants"];
    let run = asking(&services, &bucket.url(), &words).run().expect(0);
    nothing_shown(&run);
    let seen = bucket.seen();
    let (signed, unsigned): (Vec<_>, Vec<_>) =
        seen.iter().partition(|head| head.contains("Credential="));
    run.check(unsigned.len() == 1 && unsigned[0].starts_with("HEAD /lab "), "the region, once");
    for head in &signed {
        let target = head.split(' ').nth(1).expect("a target");
        let is_of_a = target.contains("prefix=a") || target.contains("/a/");
        let key = if is_of_a { "AKIDA" } else { "AKIDB" };
        run.check(head.contains(&format!("Credential={key}/")), &format!("{key}: {head}"));
        run.check(head.contains(&format!("{TOKEN}-{key}\r\n")), "its token");
    }
    run.check(signed.iter().filter(|head| head.contains(" /lab/b/3 ")).count() > 0, "read");
    let asked: Vec<_> = services.seen().iter().filter_map(|head| target_of(head)).collect();
    run.check(asked.len() == 2, &format!("once for each grant: {asked:?}"));
    for head in services.seen() {
        run.check(!head.contains(TOKEN), "granted keys stay with the bucket");
    }
}

#[test]
fn keys_that_expire_in_mid_run_are_asked_for_again() {
    let number = AtomicUsize::new(0);
    let services = services(move |target| match target {
        "s3://lab/a" => denied(),
        _ if number.fetch_add(1, Ordering::SeqCst) == 0 => given("AKIDFIRST", "s3://lab/a/*"),
        _ => given("AKIDSECOND", "s3://lab/a/*"),
    });
    let origin = origin(vec![granted("AKIDFIRST").with_request_limit(7), granted("AKIDSECOND")]);
    let folder = tempfile::tempdir().expect("a folder");
    let destination = folder.path().to_str().expect("UTF-8");
    // The name without a slash is that of the folder.
    let words = ["get", "s3://lab/a", destination, "--access-grants", "--connections", "2"];
    let run = asking(&services, &crate::program::url(&origin), &words).run().expect(0);
    nothing_shown(&run);
    for (key, bytes) in objects() {
        let path = folder.path().join(key.strip_prefix("a/").expect("its folder"));
        run.check(std::fs::read(path).is_ok_and(|found| found == bytes), &key);
    }
    let codes = origin.stats().codes;
    run.check(codes.contains_key("ExpiredToken"), "the first keys expired");
    run.check(!codes.contains_key("InvalidAccessKeyId"), "the caller's keys stay with AWS");
}

#[test]
fn without_a_grant_the_own_keys_are_used_where_that_is_asked_for() {
    let services = services(|_| denied());
    let origin = origin(vec![Credentials::new(ACCESS_KEY, SECRET)]);
    let url = crate::program::url(&origin);
    let run =
        asking(&services, &url, &["get", "s3://lab/a/", "--discard", "--access-grants"]).run();
    let run = run.expect(ACCESS).expect_error(&[
        "get access to s3://lab/a/* by the access grants of account 444455556666 in us-east-1",
        "AccessDenied (You do not have READ permissions",
        "--access-grants=fallback",
    ]);
    nothing_shown(&run);
    assert_eq!(origin.stats().requests, 1, "the region alone was asked for");
    let words = ["get", "s3://lab/a/", "--discard", "--access-grants=fallback", "-v"];
    let run = asking(&services, &url, &words).run().expect(0);
    nothing_shown(&run.expect_words(&["the run's own credentials are used"]));
}

#[test]
fn the_doctor_names_the_grant() {
    let services = services(|target| match target.starts_with("s3://lab/a") {
        true => given("AKIDA", "s3://lab/a/*"),
        false => denied(),
    });
    let origin = origin(vec![granted("AKIDA")]);
    let url = crate::program::url(&origin);
    let doctor = |source| {
        let run = asking(&services, &url, &["doctor", source, "--access-grants", "--json"]).run();
        nothing_shown(&run);
        let report = run.json();
        let checks = report["checks"].as_array().expect("a list").clone();
        move |name: &str| {
            let found = checks.iter().find(|check| check["check"] == name);
            found.map(|check| format!("{}: {}", check["verdict"], check["found"]))
        }
    };
    let of_a = doctor("s3://lab/a/");
    let grant = of_a("access-grant").expect("a check");
    assert!(grant.contains("ok") && grant.contains("s3://lab/a/* of account 444455556666, for "));
    assert!(of_a("object").expect("a check").contains("ok"));
    let of_b = doctor("s3://lab/b/");
    let grant = of_b("access-grant").expect("a check");
    assert!(grant.contains("bad") && grant.contains("AccessDenied"), "{grant}");
    assert_eq!(of_b("object"), None);
}

#[test]
fn what_grants_do_not_go_together_with_is_a_usage_error() {
    let services = services(|_| denied());
    for (source, more, words) in [
        ("s3://lab/a/", "--no-sign-request", "cannot be used with '--no-sign-request'"),
        ("s3://lab--use1-az4--x-s3/", "--quiet", "access grants are of buckets alone"),
    ] {
        let words_of = ["get", source, "--discard", "--access-grants", more];
        let run = asking(&services, "http://127.0.0.1:9", &words_of).run();
        run.expect(USAGE).expect_words(&[words]);
    }
    assert!(services.seen().is_empty());
}
