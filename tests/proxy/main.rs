//! The real program through an HTTP proxy: every byte, through tunnels and with whole URLs; whose
//! refusal it was; who is asked directly; and no password in anything that is printed. A tunnel
//! also leads to hosts of AWS that are not there: multi-region access points.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, files and sockets of its own"
)]

mod between;
#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to other tests")]
mod matrix;
mod multi_region;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "this test asks in more ways than `get` alone")]
mod served;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use inrush_origin::{Config, Origin, TlsConfig};
use tempfile::TempDir;

use between::Proxy;
use matrix::{Objects, assert_same, bytes_of};
use program::{Program, Run};
use served::{ACCESS_KEY, SECRET, config, serve, start};

/// The documented exit codes.
const USAGE: i32 = 2;
const ACCESS: i32 = 3;
const ENDPOINT: i32 = 6;

/// The proxy's user, with what must be percent-encoded, and what it is sent as: `printf
/// 'me:hunter2@' | base64`.
const USER: &str = "me:hunter2%40";
const AUTHORIZATION: &str = "Basic bWU6aHVudGVyMkA=";

/// An origin, with TLS or without, the program's folder, and the proxy before it.
struct Stage {
    origin: Origin,
    proxy: Proxy,
    folder: TempDir,
    tls: bool,
}

impl Stage {
    fn new(
        objects: &Objects,
        tls: bool,
        manner: impl Fn(u64) -> Option<u16> + Send + Sync + 'static,
    ) -> Self {
        let tls_config = tls.then(TlsConfig::default);
        let origin = start(Config { tls: tls_config, ..config(objects) });
        let folder = tempfile::tempdir().expect("a folder");
        let authority = origin.ca_pem().unwrap_or_default();
        fs::write(folder.path().join("ca.pem"), authority).expect("room");
        let proxy = Proxy::start(origin.address(), AUTHORIZATION, manner);
        Self { origin, proxy, folder, tls }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program, asking the origin. Without TLS by a name that only the proxy knows.
    fn program(&self, words: &[&str]) -> Program {
        let port = self.origin.address().port();
        let url = match self.tls {
            true => self.origin.url(),
            false => format!("http://store.invalid:{port}"),
        };
        let program = Program::new(words).with_keys(ACCESS_KEY, SECRET);
        let program = program.with(["--endpoint-url", &url, "--region", "us-east-1"]);
        match self.tls {
            true => program.with(["--ca-bundle".as_ref(), self.path("ca.pem").as_os_str()]),
            false => program,
        }
    }

    fn variable(&self) -> &'static str {
        if self.tls { "HTTPS_PROXY" } else { "http_proxy" }
    }

    /// The program through the proxy, as its user.
    fn proxied(&self, words: &[&str]) -> Program {
        let url = format!("http://{USER}@{}", self.proxy.address);
        self.program(words).set(self.variable(), url)
    }
}

fn mixture() -> Objects {
    let mut all = matrix::sizes();
    for (key, length) in [("large/a", (20 << 20) + 1), ("large/b", 9 << 20)] {
        all.insert(key.to_owned(), bytes_of(key, length));
    }
    all
}

fn one() -> Objects {
    Objects::from([("a".to_owned(), vec![1; 3])])
}

fn stream(all: &Objects) -> Vec<u8> {
    all.values().flatten().copied().collect()
}

/// Lists, gets, streams and pipes all of it.
#[track_caller]
fn fetch_all(stage: &Stage, all: &Objects) {
    let run = stage.proxied(&["ls", "--recursive", "--json", "s3://lab/"]).run().expect(0);
    run.check(run.stdout.lines().count() >= all.len(), "every object is listed");
    let destination = stage.path("destination");
    let words = ["get", "--quiet", "--part-size", "1MiB", "s3://lab/"];
    stage.proxied(&words).with([&destination]).run().expect(0);
    assert_same(&destination, all);
    let output = stage.path("stream");
    let file = fs::File::create(&output).expect("a file");
    let program = stage.proxied(&["cat", "s3://lab/", "--part-size", "1MiB"]);
    program.start_with(file.into(), Stdio::null()).wait().expect(0);
    assert!(fs::read(&output).expect("a file") == stream(all), "the stream");
    let (channel, ready) = (stage.path("train"), stage.path("ready"));
    let program = stage.proxied(&["pipe", "--quiet", "--epochs", "1", "s3://lab/"]);
    let program = program.with([&channel]).with(["--ready-file".as_ref(), ready.as_os_str()]);
    let mut running = program.start();
    assert!(running.until(|| ready.exists()), "it is ready");
    assert!(fs::read(stage.path("train_0")).expect("a pipe") == stream(all), "the epoch");
    running.wait().expect(0);
}

#[test]
fn every_byte_comes_through_tunnels() {
    let all = mixture();
    let stage = Stage::new(&all, true, |_| None);
    fetch_all(&stage, &all);
    let seen = stage.proxy.seen();
    let line = format!("CONNECT {} HTTP/1.1", stage.origin.address());
    assert!(seen.iter().all(|seen| *seen == line), "{seen:?}");
    let stats = stage.origin.stats();
    assert_eq!(stats.connections, seen.len() as u64, "nothing goes past the proxy");
    assert!(stats.tls_resumed > 0, "{stats:?}");
}

#[test]
fn every_byte_comes_for_whole_urls() {
    let all = mixture();
    let stage = Stage::new(&all, false, |_| None);
    fetch_all(&stage, &all);
    let port = stage.origin.address().port();
    let start = format!(" http://store.invalid:{port}/lab");
    let seen = stage.proxy.seen();
    assert!(seen.iter().all(|line| line.contains(&start)), "{seen:?}");
    assert_eq!(stage.origin.stats().requests, seen.len() as u64, "nothing goes past the proxy");
}

#[test]
fn a_proxy_that_refuses_every_third_request_is_asked_again() {
    let all = mixture();
    for (tls, reason) in [(true, "proxy"), (false, "server_error")] {
        let stage = Stage::new(&all, tls, |number| (number % 3 == 2).then_some(502));
        let destination = stage.path("destination");
        let words = ["get", "--json", "--connections", "8", "--max-attempts", "30", "s3://lab/"];
        let run = stage.proxied(&words).with([&destination]).run().expect(0);
        assert_same(&destination, &all);
        let retries = run.json()["retries"][reason].as_u64();
        run.check(retries.is_some_and(|count| count > 0), "retries by their reason");
    }
}

/// Nothing that a run has said has a secret in it.
#[track_caller]
fn no_secret(run: &Run) {
    let printed = format!("{}{}", run.stdout, run.stderr);
    for secret in ["hunter2", "hunter3", "bWU6", "Basic ", SECRET] {
        run.check(!printed.contains(secret), &format!("{secret} was printed"));
    }
}

#[test]
fn whose_refusal_it_was() {
    for tls in [true, false] {
        for (status, advice) in [(407, "password in"), (403, "NO_PROXY"), (502, "proxy")] {
            let stage = Stage::new(&one(), tls, move |_| (status != 407).then_some(status));
            let (proxy, variable) = (stage.proxy.address, stage.variable());
            let destination = stage.path("destination");
            let commands: [&[&str]; 3] = [
                &["get", "s3://lab/", destination.to_str().expect("UTF-8")],
                &["cat", "s3://lab/a"],
                &["ls", "--recursive", "s3://lab/"],
            ];
            for words in commands {
                let user = if status == 407 { "me:hunter3" } else { USER };
                let program = stage.program(words).with(["--quiet", "--retry-for", "0s"]);
                let program = program.set("RUST_LOG", "trace");
                let run = program.set(variable, format!("{user}@{proxy}")).run().expect(ENDPOINT);
                no_secret(&run);
                let place = proxy.to_string();
                run.expect_error(&["the proxy", &place, &format!("answered {status}"), advice]);
            }
            assert!(!destination.exists(), "nothing was made");
            assert_eq!(stage.origin.stats().requests, 0, "the origin heard nothing");
        }
    }
}

#[test]
fn a_refusal_on_the_way_ends_the_run() {
    for status in [407, 403] {
        // The control plane is led on, which then keeps its connection.
        let stage = Stage::new(&one(), true, move |number| (number > 0).then_some(status));
        let destination = stage.path("destination");
        let said = format!("the proxy {} answered {status}", stage.proxy.address);
        let run = stage.proxied(&["get", "--quiet", "s3://lab/a"]).with([&destination]).run();
        no_secret(&run);
        run.check(!run.status.success(), "it failed");
        run.expect_words(&[&said]);
        let run = stage.proxied(&["cat", "s3://lab/a"]).run();
        no_secret(&run);
        run.check(!run.status.success(), "it failed");
        run.expect_words(&[&said]);
    }
}

#[test]
fn a_user_is_asked_for() {
    let stage = Stage::new(&one(), true, |_| None);
    let proxy = stage.proxy.address;
    let wanted = format!("ALL_PROXY=http://USER:PASSWORD@{proxy}");
    let program =
        stage.program(&["ls", "--recursive", "s3://lab/"]).set("ALL_PROXY", proxy.to_string());
    program.run().expect(ENDPOINT).expect_error(&["answered 407", &wanted]);
}

#[test]
fn nobody_there() {
    for tls in [true, false] {
        let stage = Stage::new(&one(), tls, |_| None);
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let closed = listener.local_addr().expect("its address");
        drop(listener);
        let program =
            stage.program(&["ls", "--recursive", "--quiet", "--retry-for", "0s", "s3://lab/"]);
        let run = program.set(stage.variable(), format!("{USER}@{closed}")).run();
        no_secret(&run);
        let place = format!("the proxy {closed} of {}", stage.variable());
        run.expect(ENDPOINT).expect_error(&["refused", "tried 6 times", &place]);
    }
}

#[test]
fn what_is_no_http_proxy_is_refused() {
    let stage = Stage::new(&one(), true, |_| None);
    let place = stage.proxy.address;
    for (value, why) in [
        (format!("socks5h://{USER}@{place}"), "not socks5h://"),
        (format!("https://{USER}@{place}"), "not https://"),
        (format!("http://{USER}@127.0.0.1:port"), "invalid port"),
    ] {
        for words in [&["ls", "--recursive", "s3://lab/"][..], &["cat", "s3://lab/a"]] {
            let run = stage.program(words).set("https_proxy", &value).run().expect(USAGE);
            no_secret(&run);
            run.expect_error(&["https_proxy", why, "http://proxy.example.com:3128"]);
        }
    }
    assert_eq!(stage.proxy.seen(), [""; 0], "it was not asked");
}

#[test]
fn who_is_asked_directly() {
    let origin = serve(&one());
    let proxy = Proxy::start(origin.address(), "", |_| None);
    let port = origin.address().port();
    let list = |no: &str| {
        let program = Program::new(["ls", "--recursive", "s3://lab/"]).asking(&origin);
        let program = program.with_keys(ACCESS_KEY, SECRET).set("NO_PROXY", no);
        program.set("HTTP_PROXY", format!("http://{}", proxy.address)).run().expect(0);
        proxy.seen().len()
    };
    for no in ["127.0.0.1", "127.0.0.0/8", "*", &format!("x, 127.0.0.1:{port}")] {
        assert_eq!(list(no), 0, "{no}");
    }
    assert!(list("127.0.0.1:1") > 0, "another port");
    assert!(list("127.0.0.2,example.com") > 0, "others");
}
