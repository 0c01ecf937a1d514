//! Gateways of S3 that redirect each request of an object to the node that has it: the nodes get no
//! credentials, and may change in mid-run.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{Program, Run};
use crate::publisher::{Head, Publisher, Reply, file};
use crate::{ACCESS, ENDPOINT, Place, SECRET, text};

/// The objects of the bucket, and their lengths: those of one request, and one of six in parts.
const OBJECTS_THERE: [(&str, usize); 4] =
    [("a b", 5_000), ("c", 900_000), ("d/large", (5 << 20) + 3), ("e", 1)];

fn bytes_of(key: &str) -> Option<Vec<u8>> {
    let (_, length) = OBJECTS_THERE.iter().find(|(known, _)| *known == key)?;
    let mut bytes = text(*length);
    // No object has the bytes of another.
    bytes[0] = key.as_bytes()[0];
    Some(bytes)
}

/// All bytes in the order of their keys.
fn all_bytes() -> Vec<u8> {
    OBJECTS_THERE.iter().filter_map(|(key, _)| bytes_of(key)).flatten().collect()
}

/// The key of a request for an object of the bucket.
fn key_of(head: &Head) -> Option<String> {
    let path = head.target().split('?').next()?;
    path.strip_prefix("/s3/lab/").map(|key| key.replace("%20", " "))
}

fn listing() -> Reply {
    let contents = OBJECTS_THERE.iter().map(|(key, length)| {
        let about = format!("<Size>{length}</Size><ETag>\"{key}\"</ETag>");
        format!("<Contents><Key>{key}</Key>{about}</Contents>")
    });
    let contents: String = contents.collect();
    Reply::new(
        200,
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"),
    )
}

/// What S3 answers to a request that is allowed.
fn answer(head: &Head) -> Reply {
    let Some(key) = key_of(head) else { return listing() };
    match bytes_of(&key) {
        Some(bytes) => file(head, &bytes, &format!("\"{key}\"")),
        None => Reply::new(404, ""),
    }
}

fn is_signed(head: &Head) -> bool {
    head.header("authorization").is_some() && head.header("x-amz-security-token").is_some()
}

/// A query as the gateway adds it; the node refuses a request without it.
const QUERY: &str = "pid=p1&utm=hunter2";

/// A node: it serves what it was asked for by way of the gateway.
fn node() -> Publisher {
    Publisher::start(|head| match head.target().ends_with(QUERY) {
        true => answer(head),
        false => Reply::new(403, ""),
    })
}

/// Where a node has what is requested.
fn location(node: &str, head: &Head) -> String {
    let target = head.target();
    format!("{node}{target}{}{QUERY}", if target.contains('?') { '&' } else { '?' })
}

/// A gateway with one status for its redirects. It lists the bucket and answers HEADs itself unless
/// it `redirects_all`, and refuses what is not signed.
fn gateway(status: u16, redirects_all: bool, nodes: [String; 2]) -> Publisher {
    Publisher::start(move |head| {
        if !is_signed(head) {
            return Reply::new(403, "");
        }
        let key = key_of(head);
        let is_get_of_object = head.0.starts_with("GET ") && key.is_some();
        match is_get_of_object || redirects_all {
            true => {
                let first = key.map_or(0, |key| key.as_bytes()[0]);
                let node = &nodes[usize::from(first % 2)];
                Reply::leading_to(status, &location(node, head))
            }
            false => answer(head),
        }
    })
}

/// The program with these words and keys, at this gateway below a path.
fn at(gateway: &Publisher, words: &[&str]) -> Program {
    let url = gateway.url("/s3");
    let program = Program::new(words).with(["--endpoint-url", &url, "--region", "us-east-1"]);
    program.with_keys("KEY", "SECRET").set("AWS_SESSION_TOKEN", SECRET)
}

/// Fails if a node has seen anything that only the gateway may see, or nothing at all.
#[track_caller]
fn assert_no_credentials(node: &Publisher) {
    let heads = node.all_heads();
    assert!(!heads.is_empty(), "it has its part");
    for Head(head) in heads {
        let lower = head.to_ascii_lowercase();
        for none in
            ["\r\nauthorization", "\r\nx-amz-security", "\r\nx-amz-date", "\r\nx-amz-content"]
        {
            assert!(!lower.contains(none), "{head}");
        }
        assert_eq!(lower.matches("hunter2").count(), 1, "its own query alone: {head}");
    }
}

#[track_caller]
fn assert_files(folder: &Path) {
    for (key, _) in OBJECTS_THERE {
        let found = fs::read(folder.join(key)).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(Some(&found) == bytes_of(key).as_ref(), "{key}");
    }
}

#[track_caller]
fn silent(run: Run) -> Run {
    let printed = format!("{}{}", run.stdout, run.stderr);
    run.check(!printed.contains(SECRET), "no token and no query is printed");
    run
}

#[test]
fn objects_come_from_the_nodes_which_get_no_credentials() {
    for (status, redirects_all) in [(307, false), (301, true), (302, true), (308, true)] {
        let (nodes, place) = ([node(), node()], Place::new());
        let gateway = gateway(status, redirects_all, [0, 1].map(|at| nodes[at].url("")));
        let to = place.path("to");
        let words = ["get", "--part-size", "1MiB", "s3://lab/", "-vv"];
        silent(at(&gateway, &words).with([&to]).set("RUST_LOG", "trace").run().expect(0));
        assert_files(&to);
        let run = at(&gateway, &["get", "s3://lab/a b"]).with([place.path("one")]).run().expect(0);
        assert!(fs::read(place.path("one")).ok() == bytes_of("a b"), "{run}");
        let run = at(&gateway, &["cat", "s3://lab/"]).run().expect(0);
        assert!(run.stdout.as_bytes() == all_bytes(), "a stream");
        let run = at(&gateway, &["cat", "--range", "10-19", "s3://lab/a b"]).run().expect(0);
        assert_eq!(run.stdout.as_bytes(), &text(5_000)[10..20]);
        let run = silent(at(&gateway, &["ls", "s3://lab/"]).run().expect(0));
        run.check(run.stdout.contains("a b") && run.stdout.contains("large"), "a listing");
        let synced = place.path("synced");
        at(&gateway, &["sync", "s3://lab/"]).with([&synced]).run().expect(0);
        assert_files(&synced);
        let run = at(&gateway, &["sync", "s3://lab/", "--json"]).with([&synced]).run().expect(0);
        run.check(run.json()["bytes"] == 0, "it is there already");
        nodes.iter().for_each(assert_no_credentials);
    }
}

#[test]
fn a_pipe_is_fed_by_the_nodes() {
    let (nodes, place) = ([node(), node()], Place::new());
    let gateway = gateway(307, false, [0, 1].map(|at| nodes[at].url("")));
    let words = ["pipe", "--epochs", "2", "s3://lab/"];
    let mut running = at(&gateway, &words).with([place.path("train")]).start();
    for epoch in ["train_0", "train_1"] {
        let pipe = place.path(epoch);
        if !running.until(|| pipe.exists()) {
            panic!("it ended before {epoch} was there\n{}", running.wait());
        }
        assert!(fs::read(pipe).expect("a pipe") == all_bytes(), "{epoch}");
    }
    silent(running.wait().expect(0));
    nodes.iter().for_each(assert_no_credentials);
}

/// Further ranges of an object go to its node at once, and no redirect counts as a retry.
#[test]
fn a_gateway_is_asked_once_for_an_object() {
    let (nodes, place) = ([node(), node()], Place::new());
    let gateway = gateway(307, false, [0, 1].map(|at| nodes[at].url("")));
    let words = ["get", "--part-size", "1MiB", "--connections", "1", "--workers", "1", "--json"];
    let run = at(&gateway, &words).with(["s3://lab/"]).with([place.path("to")]).run().expect(0);
    assert_files(&place.path("to"));
    let heads = gateway.all_heads();
    let asked = heads.iter().filter(|head| head.0.starts_with("GET ") && key_of(head).is_some());
    let (asked, most) = (asked.count(), OBJECTS_THERE.len() + 2 * nodes.len());
    run.check(asked <= most, &format!("{asked} requests to the gateway"));
    let retries = run.json()["retries"]["refused"].as_u64().unwrap_or(0);
    run.check(retries <= (asked - OBJECTS_THERE.len()) as u64, "only until a node is known");
}

/// A gateway whose nodes change after some requests: what the first node does then.
fn changing(after: usize, then: fn(&Head) -> Reply) -> [Publisher; 3] {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let first = Publisher::start(move |head| match count.fetch_add(1, Ordering::SeqCst) < after {
        true => answer(head),
        false => then(head),
    });
    let second = node();
    let to = [first.url(""), second.url("")];
    let gateway = Publisher::start(move |head| {
        let is_get_of_object = head.0.starts_with("GET ") && key_of(head).is_some();
        match (is_signed(head), is_get_of_object) {
            (false, _) => Reply::new(403, ""),
            (true, false) => answer(head),
            (true, true) => {
                let has_changed = served.load(Ordering::SeqCst) > after;
                Reply::leading_to(307, &location(&to[usize::from(has_changed)], head))
            }
        }
    });
    [gateway, first, second]
}

#[test]
fn a_node_that_goes_away_is_replaced_by_the_one_that_the_gateway_names() {
    let ends: [fn(&Head) -> Reply; 7] = [
        |_| Reply::new(403, "<Error><Code>ExpiredToken</Code></Error>"),
        |_| Reply::new(404, ""),
        |_| Reply::new(410, ""),
        |_| Reply::new(503, ""),
        |_| Reply::leading_to(307, "http://127.0.0.1:1/s3/lab/other?x=hunter2"),
        |_| Reply::none(),
        |head| answer(head).cut(),
    ];
    for (number, then) in ends.into_iter().enumerate() {
        for verb in ["get", "cat"] {
            let place = Place::new();
            let [gateway, first, second] = changing(4, then);
            let words = [verb, "--part-size", "1MiB", "--connections", "1", "s3://lab/"];
            let program = at(&gateway, &words);
            if verb == "get" {
                let program = program.with(["--workers", "1"]).with([place.path("to")]);
                silent(program.run().expect(0));
                assert_files(&place.path("to"));
            } else {
                let run = program.run().expect(0);
                assert!(run.stdout.as_bytes() == all_bytes(), "{number}: a stream");
            }
            assert!(first.all_heads().len() > 4, "{number}: it went away in mid-run");
            assert_no_credentials(&first);
            assert_no_credentials(&second);
        }
    }
}

/// Nobody listens at the node that the gateway names first.
#[test]
fn a_node_that_does_not_listen_is_replaced() {
    let place = Place::new();
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one");
    let node = node();
    let (asked, to) = (AtomicUsize::new(0), node.url(""));
    let gateway = Publisher::start(move |head| {
        if key_of(head).is_none() || head.0.starts_with("HEAD ") {
            return answer(head);
        }
        let is_early = asked.fetch_add(1, Ordering::SeqCst) < 8;
        let node = if is_early { format!("http://{nobody}") } else { to.clone() };
        Reply::leading_to(307, &location(&node, head))
    });
    let words = ["get", "--part-size", "1MiB", "s3://lab/"];
    silent(at(&gateway, &words).with([place.path("to")]).run().expect(0));
    assert_files(&place.path("to"));
    assert_no_credentials(&node);
    let run = at(&gateway, &["cat", "s3://lab/"]).run().expect(0);
    assert!(run.stdout.as_bytes() == all_bytes(), "a stream");
}

/// A redirect of a GET, and of a listing, that is not followed; nothing of a query is printed.
#[test]
fn redirects_that_are_not_followed_are_named() {
    let place = Place::new();
    let bundle = place.path("ca.pem");
    let node = node();
    let plain = node.url(&format!("/s3/lab/x?{QUERY}"));
    let cases: [(&str, &[&str]); 6] = [
        (&plain, &["from https to", "/s3/lab/x?..., which is not encrypted", "--endpoint-url"]),
        ("/s3/lab/loop?x=hunter2", &["are a loop", "--endpoint-url"]),
        ("https://me:hunter2@h.test/x?x=hunter2", &["it has a user"]),
        ("file:///etc/passwd?x=hunter2", &["does not begin with http"]),
        ("https://no.host.invalid/x?x=hunter2", &["no.host.invalid", "name servers"]),
        ("", &["answered 307", "does not say where to: check --endpoint-url"]),
    ];
    for (to, words) in cases {
        for of_listing in [false, true] {
            let to = to.to_owned();
            let gateway = Publisher::over(Some(&bundle), move |head| {
                let is_get_of_object = head.0.starts_with("GET ") && key_of(head).is_some();
                match (is_get_of_object || of_listing, to.is_empty()) {
                    (false, _) => answer(head),
                    (true, true) => Reply::new(307, ""),
                    (true, false) => Reply::leading_to(307, &to),
                }
            });
            let source = if of_listing { "s3://lab/" } else { "s3://lab/c" };
            let program = at(&gateway, &["get", source]).with([place.path("to")]);
            let program = program.with(["--ca-bundle".as_ref(), bundle.as_os_str()]);
            silent(program.with(["--retry-for", "2s"]).run().expect(ENDPOINT).expect_words(words));
            let run = at(&gateway, &["cat", "s3://lab/c"]).with(["--retry-for", "2s"]);
            let run = run.with(["--ca-bundle".as_ref(), bundle.as_os_str()]);
            silent(run.run().expect(ENDPOINT).expect_words(words));
        }
    }
    assert!(node.all_heads().is_empty(), "nothing leaves the encrypted gateway");
}

#[test]
fn a_gateway_and_its_nodes_are_encrypted() {
    let place = Place::new();
    let bundles = ["node.pem", "gateway.pem"].map(|name| place.path(name));
    let node = Publisher::over(Some(&bundles[0]), answer);
    let to = node.url("");
    let gateway = Publisher::over(Some(&bundles[1]), move |head| {
        match head.0.starts_with("GET ") && key_of(head).is_some() {
            true => Reply::leading_to(307, &location(&to, head)),
            false => answer(head),
        }
    });
    let bundle = place.path("ca.pem");
    let trusted = bundles.map(|path| fs::read_to_string(path).expect("a certificate"));
    fs::write(&bundle, trusted.concat()).expect("room");
    let run = |words: &[&str]| {
        let program = at(&gateway, words).with(["--ca-bundle".as_ref(), bundle.as_os_str()]);
        silent(program.run().expect(0))
    };
    let to = place.path("to");
    run(&["get", "--part-size", "1MiB", "s3://lab/", to.to_str().expect("UTF-8")]);
    assert_files(&to);
    assert!(run(&["cat", "s3://lab/"]).stdout.as_bytes() == all_bytes(), "a stream");
    assert_no_credentials(&node);
}

#[test]
fn encrypted_nodes_of_a_plain_gateway_are_named() {
    let place = Place::new();
    let node = Publisher::over(Some(&place.path("ca.pem")), answer);
    let gateway = gateway(307, false, [0, 1].map(|_| node.url("")));
    let run = at(&gateway, &["get", "s3://lab/c"]).with([place.path("to")]).run();
    let words = ["it leads from http to https://", "give an https:// server with --endpoint-url"];
    silent(run.expect(ENDPOINT).expect_words(&words));
    assert!(node.all_heads().is_empty());
}

#[test]
fn a_node_that_wants_credentials_is_named_and_gets_none() {
    let place = Place::new();
    let node = Publisher::start(|head| match is_signed(head) {
        true => answer(head),
        false => {
            let message = format!("<Message>no {}</Message>", head.target());
            Reply::new(403, format!("<Error><Code>AccessDenied</Code>{message}</Error>"))
        }
    });
    let url = node.url("");
    let words = [&url, "gets no credentials", "with --endpoint-url"];
    for redirects_all in [false, true] {
        let gateway = gateway(307, redirects_all, [0, 1].map(|_| node.url("")));
        let run = at(&gateway, &["get", "s3://lab/c"]).with([place.path("to")]).run();
        silent(run.expect(ACCESS).expect_words(&words));
        let run = at(&gateway, &["get", "s3://lab/c", "s3://lab/e"]).with([place.path("all")]);
        silent(run.run().expect(ACCESS).expect_words(&words));
    }
    assert_no_credentials(&node);
}
