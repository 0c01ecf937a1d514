//! Multi-region access points: signed for all regions on both planes, at the host of their ARN and
//! nowhere else. The origin refuses what is signed for a region.

use std::fs;
use std::path::PathBuf;

use inrush_origin::{Config, Credentials, ObjectContent, ObjectSpec, Origin, TlsConfig};
use tempfile::TempDir;

use crate::between::Proxy;
use crate::matrix::{Objects, assert_same, bytes_of};
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, start};
use crate::{ACCESS, ENDPOINT, USAGE};

const ALIAS: &str = "mfzwi23gnjvgw.mrap";
const DOMAIN: &str = "accesspoint.s3-global.amazonaws.com";
const TOKEN: &str = "70k3n-of-a-session";
const NEXT_KEY: &str = "AKIDNEXT";

/// The origin in place of AWS, the way to it, and a folder.
struct Stage {
    origin: Origin,
    proxy: Proxy,
    folder: TempDir,
}

fn objects() -> Objects {
    let sizes = [("a/1 +ü", 5), ("a/2", 0), ("a/large", (3 << 20) + 1), ("b/3", 7)];
    sizes.into_iter().map(|(key, length)| (key.to_owned(), bytes_of(key, length))).collect()
}

fn session(access_key: &str) -> Credentials {
    Credentials::new(access_key, SECRET).with_session_token(TOKEN)
}

/// The address of these keys, in one of the two notations.
fn source(keys: &str, separator: char) -> String {
    format!("s3://arn:aws:s3::111122223333:accesspoint{separator}{ALIAS}/{keys}")
}

impl Stage {
    fn new(credentials: Vec<Credentials>) -> Self {
        Self::with(Config { credentials, ..Config::default() }, &format!("{ALIAS}.{DOMAIN}"))
    }

    /// With a certificate for this name.
    fn with(config: Config, name: &str) -> Self {
        let object = |(key, bytes): (String, Vec<u8>)| {
            ObjectSpec::new(ALIAS, key, ObjectContent::Bytes(bytes.into()))
        };
        let origin = start(Config {
            objects: objects().into_iter().map(object).collect(),
            domain: Some(DOMAIN.to_owned()),
            tls: Some(TlsConfig { names: vec![name.to_owned()], ..TlsConfig::default() }),
            // No configured region signs here.
            region: "eu-west-3".to_owned(),
            ..config
        });
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("ca.pem"), origin.ca_pem().expect("over TLS")).expect("room");
        let proxy = Proxy::start(origin.address(), "", |_| None);
        Self { origin, proxy, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program with these words, with keys of a session.
    fn program(&self, words: &[&str]) -> Program {
        let proxy = format!("http://{}", self.proxy.address);
        let program = Program::new(words).set("HTTPS_PROXY", proxy).set("RUST_LOG", "trace");
        let program = program.with_keys(ACCESS_KEY, SECRET).set("AWS_SESSION_TOKEN", TOKEN);
        program.set("AWS_CA_BUNDLE", self.path("ca.pem")).set("AWS_REGION", "us-west-2")
    }

    /// Nobody was asked but the access point, and nothing secret was printed.
    #[track_caller]
    fn check(&self, run: &Run) {
        let printed = format!("{}{}", run.stdout, run.stderr);
        for secret in [SECRET, TOKEN] {
            run.check(!printed.contains(secret), "no secret was printed");
        }
        let line = format!("CONNECT {ALIAS}.{DOMAIN}:443 HTTP/1.1");
        let seen = self.proxy.seen();
        run.check(seen.iter().all(|seen| *seen == line), &format!("another host: {seen:?}"));
        let connections = self.origin.stats().connections;
        run.check(connections <= seen.len() as u64, "nothing goes past the tunnel");
    }
}

#[test]
fn both_planes_sign_for_all_regions() {
    let stage = Stage::new(vec![session(ACCESS_KEY)]);
    let all = objects();
    for separator in [':', '/'] {
        let run = stage.program(&["ls", "--recursive", &source("", separator)]).run().expect(0);
        stage.check(&run);
        run.check(run.stdout.lines().count() == all.len(), "every object is listed");
        let destination = stage.path(&format!("destination{}", u32::from(separator)));
        let source = source("", separator);
        let words = ["get", "--quiet", "--part-size", "1MiB", &source];
        let run = stage.program(&words).with([&destination]).run().expect(0);
        stage.check(&run);
        assert_same(&destination, &all);
        let sync = stage.program(&["sync", "--quiet", &source]).with([&destination]).run();
        stage.check(&sync.expect(0));
        let verify = stage.program(&["verify", &source]).with([&destination]).run();
        stage.check(&verify.expect(0));
    }
    let run = stage.program(&["cat", "--part-size", "1MiB", &source("b/", ':')]).run().expect(0);
    stage.check(&run);
    let stream = run.stdout.as_bytes() == String::from_utf8_lossy(&all["b/3"]).as_bytes();
    run.check(stream, "the object was expected");
    let ready = stage.path("ready");
    let words = ["pipe", "--quiet", "--epochs", "1", &source("", ':')];
    let program = stage.program(&words).with([stage.path("train")]);
    let mut running = program.with(["--ready-file".as_ref(), ready.as_os_str()]).start();
    assert!(running.until(|| ready.exists()), "it is ready");
    let stream: Vec<u8> = all.values().flatten().copied().collect();
    assert!(fs::read(stage.path("train_0")).expect("a pipe") == stream, "the epoch");
    stage.check(&running.wait().expect(0));
    let codes = stage.origin.stats().codes;
    assert!(codes.is_empty(), "no request was refused: {codes:?}");
}

/// An object whose name has nothing below it: a HEAD, and a range.
#[test]
fn keys_without_a_session_sign_too() {
    let stage = Stage::new(vec![Credentials::new(ACCESS_KEY, SECRET)]);
    let destination = stage.path("one");
    let program =
        stage.program(&["get", "--quiet", &source("b/3", ':')]).set("AWS_SESSION_TOKEN", "");
    stage.check(&program.with([&destination]).run().expect(0));
    assert!(stage.origin.stats().codes.keys().all(|code| *code == "NoSuchKey"));
}

#[test]
fn keys_that_expire_in_mid_run_are_replaced() {
    let keys = vec![session(ACCESS_KEY).with_request_limit(3), session(NEXT_KEY)];
    let stage = Stage::new(keys);
    let file = stage.path("keys");
    let replace = |access_key: &str| {
        let text = format!(
            "[default]\naws_access_key_id = {access_key}\naws_secret_access_key = {SECRET}\n\
             aws_session_token = {TOKEN}\n"
        );
        fs::write(stage.path("beside"), text).expect("room");
        fs::rename(stage.path("beside"), &file).expect("one folder");
    };
    replace(ACCESS_KEY);
    let destination = stage.path("destination");
    let words = ["get", "--quiet", "--part-size", "1MiB", &source("", ':')];
    let program = stage.program(&words).with([&destination]);
    let program = program.set("AWS_SHARED_CREDENTIALS_FILE", &file);
    let variables = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
    let program = variables.into_iter().fold(program, |program, name| program.set(name, ""));
    let mut running = program.start();
    running.until(|| stage.origin.stats().codes.contains_key("ExpiredToken"));
    replace(NEXT_KEY);
    stage.check(&running.wait().expect(0));
    assert_same(&destination, &objects());
    let codes = stage.origin.stats().codes;
    assert!(codes.keys().all(|code| *code == "ExpiredToken"), "{codes:?}");
}

#[test]
fn a_clock_that_is_wrong_is_corrected() {
    let config = Config {
        credentials: vec![session(ACCESS_KEY)],
        clock_offset_seconds: -7_200,
        ..Config::default()
    };
    let stage = Stage::with(config, &format!("{ALIAS}.{DOMAIN}"));
    let destination = stage.path("destination");
    let words = ["get", "--quiet", &source("", ':')];
    stage.check(&stage.program(&words).with([&destination]).run().expect(0));
    assert_same(&destination, &objects());
    assert!(stage.origin.stats().codes.contains_key("RequestTimeTooSkewed"));
}

#[test]
fn refusals_are_those_of_access() {
    let stage = Stage::new(vec![Credentials::new(ACCESS_KEY, "another").with_session_token(TOKEN)]);
    let (address, destination) = (source("", ':'), stage.path("destination"));
    let destination = destination.to_str().expect("UTF-8");
    for words in [&["ls", &address][..], &["get", "--quiet", &address, destination]] {
        let run = stage.program(words).run().expect(ACCESS);
        stage.check(&run);
        run.expect_error(&["SignatureDoesNotMatch", "accesspoint"]);
    }
    let run = stage.program(&["ls", "--no-sign-request", &address]).run().expect(ACCESS);
    stage.check(&run);
    run.expect_error(&["AccessDenied", "only public data can be read without a signature"]);
}

#[test]
fn public_data_is_read_without_a_signature() {
    let stage = Stage::new(Vec::new());
    let destination = stage.path("destination");
    let words = ["get", "--quiet", "--no-sign-request", &source("", ':')];
    stage.check(&stage.program(&words).with([&destination]).run().expect(0));
    assert_same(&destination, &objects());
}

/// A redirect is not followed: a second host sees no request and no key.
#[test]
fn no_other_host_is_asked() {
    let config = Config {
        credentials: vec![session(ACCESS_KEY)],
        moved_buckets: [(ALIAS.to_owned(), "eu-north-1".to_owned())].into(),
        ..Config::default()
    };
    let stage = Stage::with(config, &format!("{ALIAS}.{DOMAIN}"));
    let run = stage.program(&["ls", &source("", ':')]).run().expect(ENDPOINT);
    stage.check(&run);
    run.check(!run.stderr.contains("eu-north-1"), "it is in no region");
    assert_eq!(stage.origin.stats().requests, 1, "it is asked once");
    // Whose certificate is for another name sees no request.
    let other = Stage::with(Config::default(), "s3.us-west-2.amazonaws.com");
    let words = ["ls", "--retry-for", "0s", &source("", ':')];
    let run = other.program(&words).run().expect(ENDPOINT).expect_words(&["certificate"]);
    other.check(&run);
    assert_eq!(other.origin.stats().requests, 0);
}

#[test]
fn what_botocore_refuses_is_a_usage_error() {
    let stage = Stage::new(vec![session(ACCESS_KEY)]);
    let address = source("a/2", ':');
    let refused = |address: &str, words: &[&str], variable: (&str, &str), expected: &[&str]| {
        let program = stage.program(&["get", "--quiet", address, "--discard"]).with(words);
        program.set(variable.0, variable.1).run().expect(USAGE).expect_words(expected);
    };
    let none = ("INRUSH_NOTHING", "");
    refused(&address, &["--use-fips-endpoint"], none, &["have no FIPS endpoints"]);
    refused(&address, &["--use-dualstack-endpoint"], none, &["have no dual-stack endpoints"]);
    refused(&address, &["--addressing-style", "path"], none, &["not in the path"]);
    let disabled = ("AWS_S3_DISABLE_MULTIREGION_ACCESS_POINTS", "true");
    refused(&address, &[], disabled, &["disabled by a setting", disabled.0]);
    let elsewhere = ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9");
    refused(&address, &[], elsewhere, &["only in AWS", "omit the endpoint URL"]);
    refused(&address, &["--access-grants"], none, &["access grants are of buckets alone"]);
    let china = address.replace(":aws:", ":aws-cn:");
    refused(&china, &[], none, &["in the partition aws-cn, but us-west-2 is in aws"]);
    let alias = format!("s3://{ALIAS}/a");
    refused(&alias, &[], none, &["named by its ARN", "s3://arn:aws:s3::ACCOUNT:accesspoint:"]);
    assert_eq!(stage.origin.stats().requests, 0);
}

#[test]
fn the_doctor_names_it() {
    let stage = Stage::new(vec![session(ACCESS_KEY)]);
    let region = |words: &[&str]| {
        let run = stage.program(&["doctor", "--json"]).with(words).run();
        stage.check(&run);
        let report = run.json();
        let checks = report["checks"].as_array().expect("a list");
        let found = |name: &str| {
            let check = checks.iter().find(|check| check["check"] == name).expect("a check");
            format!("{} {}", check["verdict"], check["found"])
        };
        assert!(found("object").starts_with("\"ok\""), "{}", found("object"));
        found("region")
    };
    let found = region(&[&source("b/3", ':')]);
    let how = "is a multi-region access point, and requests are signed for all regions (SigV4A)";
    assert!(found.starts_with("\"ok\"") && found.contains(how), "{found}");
}
