//! Which server and as whom: endpoints, regions, addressing, and where keys come from.

use std::fs;
use std::path::Path;

use inrush_origin::{Config, Credentials, Origin};

use crate::matrix::Objects;
use crate::program::{Program, url};
use crate::served::{ACCESS_KEY, SECRET, config, get, object, serve, start};
use crate::{Place, objects, pick};

fn some() -> Objects {
    objects(&[("p/a", 700), ("p/large", (2 << 20) + 3)])
}

/// `inrush get s3://lab/p/` and nothing else.
fn plain(place: &Place) -> Program {
    Program::new(["get", "--quiet", "s3://lab/p/"]).with([place.path()])
}

/// Fails unless the program gets both objects.
#[track_caller]
fn arrives(program: Program, place: &Place) {
    program.run().expect(0);
    place.assert_holds(&pick(&some(), &[("a", "p/a"), ("large", "p/large")]));
}

#[test]
fn endpoints_of_the_environment() {
    let origin = serve(&some());
    let wrong = "http://127.0.0.1:1";
    for variables in [
        &[("AWS_ENDPOINT_URL", url(&origin))][..],
        &[("AWS_ENDPOINT_URL_S3", url(&origin))],
        &[("AWS_ENDPOINT_URL_S3", url(&origin)), ("AWS_ENDPOINT_URL", wrong.to_owned())],
    ] {
        let place = Place::new();
        let mut program = plain(&place).with_keys(ACCESS_KEY, SECRET);
        for (name, value) in variables {
            program = program.set(name, value);
        }
        arrives(program, &place);
    }
    // What is typed comes first.
    let place = Place::new();
    let program = plain(&place).with_keys(ACCESS_KEY, SECRET).set("AWS_ENDPOINT_URL_S3", wrong);
    arrives(program.with(["--endpoint-url", &url(&origin)]), &place);
}

#[test]
fn regions() {
    let mut configuration = config(&some());
    configuration.region = "eu-west-3".to_owned();
    let origin = start(configuration);
    for region in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        let place = Place::new();
        let program = plain(&place).with_keys(ACCESS_KEY, SECRET).set(region, "eu-west-3");
        arrives(program.with(["--endpoint-url", &url(&origin)]), &place);
    }
    // A wrong one is corrected by the server's answer, for a folder and for a key.
    let place = Place::new();
    arrives(plain(&place).asking(&origin).with_keys(ACCESS_KEY, SECRET), &place);
    let place = Place::new();
    let run = get(&origin, ["s3://lab/p/large"]).with([place.path()]).run();
    run.expect(0);
    assert_eq!(fs::read(place.path()).expect("a file"), some()["p/large"]);
}

#[test]
fn a_bucket_that_lives_elsewhere_names_its_region() {
    let mut configuration = config(&some());
    configuration.moved_buckets.insert("moved".to_owned(), "eu-west-3".to_owned());
    let origin = start(configuration);
    let place = Place::new();
    let run = get(&origin, ["s3://moved/p/"]).with([place.path()]).run();
    // With an endpoint of one's own there is nowhere else to go.
    run.expect(6).expect_error(&["PermanentRedirect", "--region"]);
    assert!(!place.path().exists());
}

#[test]
fn session_tokens() {
    let token = "token/with+odd=characters";
    let keys = Credentials::new(ACCESS_KEY, SECRET).with_session_token(token);
    let origin = start(Config { credentials: vec![keys], ..config(&some()) });
    let place = Place::new();
    let program = plain(&place).asking(&origin).with_keys(ACCESS_KEY, SECRET);
    arrives(program.set("AWS_SESSION_TOKEN", token), &place);
    let place = Place::new();
    for wrong in [None, Some("another")] {
        let program = plain(&place).asking(&origin).with_keys(ACCESS_KEY, SECRET);
        let program = match wrong {
            Some(token) => program.set("AWS_SESSION_TOKEN", token),
            None => program,
        };
        program.run().expect(3).expect_error(&["AWS_"]);
    }
    assert!(!place.path().exists());
}

#[test]
fn no_signature() {
    let public = start(Config { credentials: Vec::new(), ..config(&some()) });
    let place = Place::new();
    arrives(plain(&place).asking(&public).with(["--no-sign-request"]), &place);
    // Keys that are there are not used.
    let private = serve(&some());
    let place = Place::new();
    let program = plain(&place).asking(&private).with_keys(ACCESS_KEY, SECRET);
    let run = program.with(["--no-sign-request"]).run();
    let run = run.expect(3).expect_error(&["AccessDenied", "only public data"]);
    run.check(!run.stderr.contains("--no-sign-request"), "it was given");
    assert!(!place.path().exists());
}

/// Writes a configuration file into a program's home.
fn file(home: &Path, name: &str, text: &str) -> String {
    let path = home.join(name);
    fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn profiles() {
    let mut configuration = config(&some());
    configuration.region = "eu-west-3".to_owned();
    let origin = start(configuration);
    let keys = format!(
        "[default]\naws_access_key_id = AKIDWRONG\naws_secret_access_key = wrong\n\
         [work]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET}\n"
    );
    let settings = format!("[profile work]\nregion = eu-west-3\nendpoint_url = {}\n", url(&origin));
    let with_files = |program: Program| {
        let keys = file(program.home(), "credentials", &keys);
        let settings = file(program.home(), "config", &settings);
        program.set("AWS_SHARED_CREDENTIALS_FILE", keys).set("AWS_CONFIG_FILE", settings)
    };
    let place = Place::new();
    arrives(with_files(plain(&place)).with(["--profile", "work"]), &place);
    let place = Place::new();
    arrives(with_files(plain(&place)).set("AWS_PROFILE", "work"), &place);
    // A profile that is named is meant, whatever keys the environment has.
    let place = Place::new();
    let program = with_files(plain(&place)).with_keys("AKIDOTHER", "other");
    arrives(program.with(["--profile", "work"]), &place);
    let place = Place::new();
    let run = with_files(plain(&place)).with(["--profile", "missing"]).asking(&origin).run();
    run.expect(3).expect_error(&["missing", "--profile"]);
    assert!(!place.path().exists());
}

#[test]
fn a_program_that_gives_keys() {
    let origin = serve(&some());
    let place = Place::new();
    let program = plain(&place).asking(&origin);
    let answer = format!(
        r#"{{"Version": 1, "AccessKeyId": "{ACCESS_KEY}", "SecretAccessKey": "{SECRET}"}}"#
    );
    let answer = file(program.home(), "answer", &answer);
    let settings = format!("[default]\ncredential_process = /bin/cat {answer}\n");
    let settings = file(program.home(), "config", &settings);
    arrives(program.set("AWS_CONFIG_FILE", settings), &place);
}

/// Gets with the bucket in the host's name, under names that mean loopback for this run alone.
fn virtual_hosted(origin: &Origin, host: &str, bucket: &str, place: &Place) {
    let port = origin.address().port();
    let hosts = place.folder.path().join("hosts");
    fs::write(&hosts, format!("127.0.0.1 localhost {bucket}.{host}\n")).expect("a file");
    // A mount of this run's own, gone with it.
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let hosts = hosts.to_str().expect("UTF-8");
    let before = ["unshare", "--mount", "sh", "-c", script, hosts];
    let source = format!("s3://{bucket}/p/");
    let run = Program::new(["get", "--quiet", &source, "--addressing-style", "virtual"])
        .with([place.path()])
        .with(["--endpoint-url", &format!("http://{host}:{port}")])
        .with_keys(ACCESS_KEY, SECRET)
        .by_way_of(before)
        .run();
    if run.stderr.contains("unshare") || run.stderr.contains("mount:") {
        crate::skip::skip(&format!("names cannot be added here\n{run}"));
        return;
    }
    run.expect(0);
    place.assert_holds(&pick(&some(), &[("a", "p/a"), ("large", "p/large")]));
}

#[test]
fn the_bucket_in_the_name_of_the_host() {
    let origin = start(Config { domain: Some("s3.test".to_owned()), ..config(&some()) });
    virtual_hosted(&origin, "localhost", "lab", &Place::new());
    virtual_hosted(&origin, "s3.test", "lab", &Place::new());
    // A name with dots, where it is asked for.
    let dotted = some().into_iter().map(|(key, bytes)| {
        let mut spec = object(&key, bytes);
        spec.bucket = "my.lab".to_owned();
        spec
    });
    let objects = dotted.collect();
    let origin = start(Config { objects, ..config(&Objects::new()) });
    virtual_hosted(&origin, "localhost", "my.lab", &Place::new());
}

#[test]
fn two_buckets_at_once() {
    let mut configuration = config(&some());
    let mut other = object("x", b"of another bucket".to_vec());
    other.bucket = "other".to_owned();
    configuration.objects.push(other);
    let origin = start(configuration);
    let place = Place::new();
    get(&origin, ["s3://lab/p/", "s3://other/"]).with([place.path()]).run().expect(0);
    let mut wanted = pick(&some(), &[("a", "p/a"), ("large", "p/large")]);
    wanted.insert("x".to_owned(), b"of another bucket".to_vec());
    place.assert_holds(&wanted);
}
