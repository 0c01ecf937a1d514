//! What is not trusted, or is no TLS: said by name, and nothing is written.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use inrush_origin::{CertificateKind, TlsConfig, TlsVersions};

use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, serve};
use crate::{ENDPOINT, Objects, Stage, USAGE};

fn objects() -> Objects {
    Objects::from([("a".to_owned(), vec![1; 3])])
}

fn with_certificate(certificate: CertificateKind) -> Stage {
    Stage::new(&objects(), TlsConfig { certificate, ..TlsConfig::default() })
}

/// Each command is refused with these words, and no destination is made.
#[track_caller]
fn refused(stage: &Stage, trusting: bool, words: &[&str]) {
    for command in [
        &["get", "--quiet", "s3://lab/"][..],
        &["cat", "s3://lab/"],
        &["ls", "--recursive", "s3://lab/"],
    ] {
        let program = if trusting { stage.trusting(command) } else { stage.program(command) };
        let destination = (command[0] == "get").then(|| stage.destination());
        let run = program.with(destination).run().expect(ENDPOINT).expect_error(words);
        run.check(run.stdout.is_empty(), "nothing was printed");
    }
    assert!(!stage.destination().exists(), "nothing was made");
}

#[test]
fn certificates_that_are_not_believed() {
    let good = with_certificate(CertificateKind::Good);
    refused(&good, false, &["TLS with 127.0.0.1", "authority", "--ca-bundle", "--no-verify-ssl"]);
    let cases = [
        (CertificateKind::Expired, "expired on"),
        (CertificateKind::NotYetValid, "is valid from"),
        (CertificateKind::WrongName, "certificate is for"),
        (CertificateKind::UnknownAuthority, "authority"),
        (CertificateKind::SelfSigned, "certificate"),
    ];
    for (kind, why) in cases {
        let stage = with_certificate(kind);
        refused(&stage, true, &["TLS with 127.0.0.1", why, "--no-verify-ssl"]);
    }
}

#[test]
fn a_refused_certificate_has_its_cause_with_verbose() {
    let stage = with_certificate(CertificateKind::Expired);
    for (option, is_there) in [("-v", true), ("--no-progress", false)] {
        let run = stage.trusting(&["ls", option, "s3://lab/"]).run().expect(ENDPOINT);
        let cause = "\ncaused by: invalid peer certificate: certificate expired";
        run.check(run.stderr.contains(cause) == is_there, "the cause of the error");
    }
}

/// What `openssl req -x509` makes: it signed itself, and is an authority's.
#[test]
fn who_signed_itself_is_believed_where_it_is_named() {
    for versions in [TlsVersions::Only12, TlsVersions::Only13] {
        let certificate = CertificateKind::SelfSignedAuthority;
        let tls = TlsConfig { certificate, versions, ..TlsConfig::default() };
        let stage = Stage::new(&objects(), tls.clone());
        refused(&stage, false, &["TLS with 127.0.0.1", "--ca-bundle", "--no-verify-ssl"]);
        // Another of the same names that is not the server's.
        let other = Stage::new(&objects(), tls);
        let wrong = stage
            .program(&["ls", "s3://lab/"])
            .with(["--ca-bundle".as_ref(), other.bundle().as_os_str()]);
        wrong
            .run()
            .expect(ENDPOINT)
            .expect_error(&["its certificate is that of an authority", "--ca-bundle"]);
        let listed = stage.trusting(&["ls", "s3://lab/"]).run().expect(0);
        listed.check(listed.stdout.contains('a'), "its object was listed");
        let destination = stage.destination();
        stage.trusting(&["get", "--quiet", "s3://lab/"]).with([&destination]).run().expect(0);
        crate::matrix::assert_same(&destination, &objects());
        let printed = stage.trusting(&["cat", "--quiet", "s3://lab/a"]).run().expect(0);
        printed.check(printed.stdout.as_bytes() == [1; 3], "its bytes came");
    }
}

/// It warns once, and first of all.
#[track_caller]
fn warned(run: &Run) {
    let warning = "warning: certificates are not verified";
    run.check(run.stderr.starts_with(warning), "a warning");
    run.check(run.stderr.matches(warning).count() == 1, "one warning");
}

#[test]
fn who_believes_anyone_is_warned() {
    let stage = with_certificate(CertificateKind::SelfSigned);
    let destination = stage.destination();
    let words = ["get", "--quiet", "--no-verify-ssl", "s3://lab/"];
    // The second run finds its files there, and warns again.
    for _ in 0..2 {
        let run = stage.program(&words).with([&destination]).run().expect(0);
        warned(&run);
        crate::matrix::assert_same(&destination, &objects());
    }
    let channel = stage.folder.path().join("train");
    let channel = channel.to_str().expect("UTF-8");
    let others: [&[&str]; 4] = [
        &["ls", "--recursive", "s3://lab/"],
        &["cat", "--quiet", "s3://lab/a"],
        &["get", "--quiet", "--json", "--dry-run", "s3://lab/", "--discard"],
        // It is over before anyone reads: its objects are not there.
        &["pipe", "--quiet", "s3://lab/none", channel, "--epochs", "1"],
    ];
    for words in others {
        let run = stage.program(words).with(["--no-verify-ssl"]).run();
        warned(&run);
    }
}

/// Roots are found by the flag, the environment, the profile, in the system's store; in this order.
#[test]
fn roots_are_found_where_the_user_put_them() {
    let stage = with_certificate(CertificateKind::Good);
    let other = with_certificate(CertificateKind::Good);
    let (good, wrong) = (stage.bundle(), other.bundle());
    let profile = |bundle: &std::path::Path| {
        let file = stage.folder.path().join("config");
        let text = format!("[default]\nca_bundle = {}\n", bundle.display());
        std::fs::write(&file, text).expect("room");
        file
    };
    let list = || stage.program(&["ls", "--recursive", "s3://lab/"]);
    // The system's store is a file, too.
    list().set("SSL_CERT_FILE", &good).run().expect(0);
    list().set("SSL_CERT_FILE", &wrong).run().expect(ENDPOINT);
    list().set("SSL_CERT_FILE", &wrong).set("AWS_CONFIG_FILE", profile(&good)).run().expect(0);
    list()
        .set("SSL_CERT_FILE", &good)
        .set("AWS_CONFIG_FILE", profile(&wrong))
        .run()
        .expect(ENDPOINT);
    let by_profile = |bundle| list().set("AWS_CONFIG_FILE", profile(bundle));
    by_profile(&wrong).set("AWS_CA_BUNDLE", &good).run().expect(0);
    by_profile(&good).set("AWS_CA_BUNDLE", &wrong).run().expect(ENDPOINT);
    let flag = |bundle: &std::path::Path| ["--ca-bundle".into(), bundle.as_os_str().to_owned()];
    list().set("AWS_CA_BUNDLE", &wrong).with(flag(&good)).run().expect(0);
    list().set("AWS_CA_BUNDLE", &good).with(flag(&wrong)).run().expect(ENDPOINT);
    // An empty one is none.
    list().set("AWS_CA_BUNDLE", "").set("SSL_CERT_FILE", &good).run().expect(0);
    let unset = list().run();
    let empty = list().set("SSL_CERT_FILE", "").set("SSL_CERT_DIR", "").run();
    assert_eq!((empty.status, empty.stderr), (unset.status, unset.stderr));
    // The data plane trusts the same.
    let words = ["get", "--quiet", "s3://lab/", "--discard"];
    stage.program(&words).set("SSL_CERT_FILE", &good).run().expect(0);
    stage.program(&words).set("AWS_CONFIG_FILE", profile(&good)).run().expect(0);
}

#[test]
fn a_bundle_that_is_none() {
    let stage = with_certificate(CertificateKind::Good);
    for bundle in ["/dev/null", "not/there.pem"] {
        let words = ["ls", "--recursive", "--ca-bundle", bundle, "s3://lab/"];
        stage.program(&words).run().expect(USAGE).expect_error(&[bundle, "PEM"]);
    }
    let bundle = stage.bundle();
    stage.program(&["ls", "--recursive", "s3://lab/"]).set("AWS_CA_BUNDLE", bundle).run().expect(0);
}

/// `inrush ls` of a URL.
fn list(url: &str) -> Program {
    let words = [
        "ls",
        "--recursive",
        "--quiet",
        "s3://lab/",
        "--region",
        "us-east-1",
        "--endpoint-url",
        url,
    ];
    Program::new(words).with_keys(ACCESS_KEY, SECRET)
}

#[test]
fn the_wrong_protocol_on_a_port() {
    let plain = serve(&objects());
    let url = format!("https://{}", plain.address());
    list(&url).run().expect(ENDPOINT).expect_error(&["does not speak TLS", "http://"]);
    let stage = with_certificate(CertificateKind::Good);
    let url = format!("http://{}", stage.origin.address());
    list(&url).run().expect(ENDPOINT).expect_error(&["127.0.0.1", "https://"]);
}

#[test]
fn no_version_in_common() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    let url = format!("https://{}", listener.local_addr().expect("its address"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut hello = [0; 512];
        let _ = stream.read(&mut hello);
        // The fatal alert protocol_version (RFC 8446 section 6).
        let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 70]);
    });
    list(&url)
        .run()
        .expect(ENDPOINT)
        .expect_error(&["TLS with 127.0.0.1", "neither TLS 1.2 nor TLS 1.3"]);
    server.join().expect("it ends");
}
