//! Gateways of S3 that redirect each request of an object to the node that has it: the nodes get no
//! credentials, and may change in mid-run.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{Program, Run};
use crate::publisher::{Head, Publisher, Reply, file};
use crate::{ACCESS, ENDPOINT, OBJECTS, Place, SECRET, text};

/// The objects of the bucket, and their lengths: those of one request, and one of six in parts.
pub(crate) const OBJECTS_THERE: [(&str, usize); 4] =
    [("a b", 5_000), ("c", 900_000), ("d/large", (5 << 20) + 3), ("e", 1)];

pub(crate) fn bytes_of(key: &str) -> Option<Vec<u8>> {
    let (_, length) = OBJECTS_THERE.iter().find(|(known, _)| *known == key)?;
    let mut bytes = text(*length);
    // No object has the bytes of another.
    bytes[0] = key.as_bytes()[0];
    Some(bytes)
}

/// All bytes in the order of their keys.
pub(crate) fn all_bytes() -> Vec<u8> {
    OBJECTS_THERE.iter().filter_map(|(key, _)| bytes_of(key)).flatten().collect()
}

/// The key of a request for an object of the bucket.
pub(crate) fn key_of(head: &Head) -> Option<String> {
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
pub(crate) fn answer(head: &Head) -> Reply {
    let Some(key) = key_of(head) else { return listing() };
    match bytes_of(&key) {
        Some(bytes) => file(head, &bytes, &format!("\"{key}\"")),
        None => Reply::new(404, ""),
    }
}

fn is_signed(head: &Head) -> bool {
    head.header("authorization").is_some()
}

/// A query as the gateway adds it; the node refuses a request without it.
const QUERY: &str = "pid=p1&utm=hunter2";

/// A node: it serves what it was asked for by way of the gateway.
pub(crate) fn node() -> Publisher {
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
pub(crate) fn gateway(status: u16, redirects_all: bool, nodes: [String; 2]) -> Publisher {
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
pub(crate) fn at(gateway: &Publisher, words: &[&str]) -> Program {
    let url = gateway.url("/s3");
    let program = Program::new(words).with(["--endpoint-url", &url, "--region", "us-east-1"]);
    program.with_keys("KEY", "SECRET").set("AWS_SESSION_TOKEN", SECRET)
}

/// Fails if a node has seen anything that only the gateway may see, or nothing at all.
#[track_caller]
pub(crate) fn assert_no_credentials(node: &Publisher) {
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
pub(crate) fn assert_files(folder: &Path) {
    for (key, _) in OBJECTS_THERE {
        let found = fs::read(folder.join(key)).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(Some(&found) == bytes_of(key).as_ref(), "{key}");
    }
}

#[track_caller]
pub(crate) fn silent(run: Run) -> Run {
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
    assert_eq!(asked.count(), OBJECTS_THERE.len(), "while a node is looked up, too");
    run.check(run.json()["retries"] == serde_json::json!({}), "no request fails");
}

#[test]
fn doctor_reads_from_the_node_and_names_it() {
    let nodes = [node(), node()];
    let urls = [0, 1].map(|at| nodes[at].url(""));
    for redirects_all in [false, true] {
        let gateway = gateway(307, redirects_all, urls.clone());
        let object = |source: &str| {
            let run = silent(at(&gateway, &["doctor", source, "--json"]).run());
            let checks = run.json()["checks"].as_array().expect("findings").clone();
            let found = checks.into_iter().find(|found| found["check"] == "object");
            found.unwrap_or_else(|| panic!("nothing of the object\n{run}"))
        };
        for (source, key, node) in [("s3://lab/c", "c", 1), ("s3://lab/", "a b", 1)] {
            let found = object(source);
            let place = format!("s3://lab/{key} can be read at {}, where a", urls[node]);
            let says = found["found"].as_str().is_some_and(|text| text.starts_with(&place));
            assert!(says && found["verdict"] == "ok", "{found}");
        }
    }
    assert_no_credentials(&nodes[1]);
    let away = away();
    let gateway = gateway(307, false, [0, 1].map(|_| away.clone()));
    let run = at(&gateway, &["doctor", "s3://lab/c"]).run();
    let run = silent(run.expect(OBJECTS));
    let words = [away.as_str(), "where a redirect leads", "must reach"];
    run.check(words.iter().all(|word| run.stdout.contains(word)), "the node is named");
}

/// The URL of a node where nobody listens.
fn away() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

/// What waits for a node, and what fails there, is not said to be the gateway's.
#[test]
fn a_node_that_is_away_is_named() {
    let (place, away) = (Place::new(), away());
    let host = away.trim_start_matches("http://");
    for (redirects_all, source) in [(false, "s3://lab/c"), (true, "s3://lab/")] {
        let gateway = gateway(307, redirects_all, [0, 1].map(|_| away.clone()));
        let words = ["get", source, "--retry-for", "5s", "-v"];
        let run = silent(at(&gateway, &words).with([place.path("to")]).run().expect(ENDPOINT));
        let waits = format!("waiting for {host}, where a redirect leads, to answer");
        let at_node = format!(" at {away}, where a redirect leads");
        let advice = format!("this machine must reach {away}, too");
        let run = run.expect_words(&[&waits, &at_node, &advice]);
        let gateway = gateway.address().to_string();
        run.check(!run.stderr.contains(&format!("waiting for {gateway}")), "it answers");
        run.check(!run.stderr.contains("check --endpoint-url"), "that is right");
    }
}

/// Strictly verified, too: the answer about the object has its checksum.
#[test]
fn a_stream_of_one_object_asks_once_about_it() {
    // The MD5 of its only byte.
    let one = |head: &Head| file(head, b"e", "\"e1671797c52e15f763380b45e841ec32\"");
    let node = Publisher::start(one);
    let to = node.url("");
    let gateway = Publisher::start(move |head| match head.0.starts_with("GET ") {
        true => Reply::leading_to(307, &location(&to, head)),
        false => one(head),
    });
    let run = at(&gateway, &["cat", "--verify", "strict", "s3://lab/e"]).run().expect(0);
    assert_eq!(run.stdout, "e");
    let heads = gateway.all_heads();
    let asked = heads.iter().filter(|head| head.0.starts_with("HEAD ")).count();
    run.check(asked == 1, &format!("{asked} requests about it"));
}

/// A node's refusal counts once the gateway has led there again.
#[test]
fn a_node_that_refuses_is_asked_twice() {
    for status in [401, 403, 404, 410] {
        let (place, refused) = (Place::new(), Publisher::start(move |_| Reply::new(status, "")));
        let gateway = gateway(307, false, [0, 1].map(|_| refused.url("")));
        for (verb, asked) in [("get", 2), ("cat", 4)] {
            let run = at(&gateway, &[verb, "s3://lab/e"]);
            let run = if verb == "get" { run.with([place.path("to")]) } else { run };
            let run = silent(run.run());
            run.check(!run.status.success(), "it is refused");
            let run = run.expect_words(&[&status.to_string(), "where a redirect leads", "2 tries"]);
            run.check(refused.all_heads().len() == asked, "twice");
        }
    }
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

/// Of listings and HEADs, too: the gateway is asked again each time.
#[test]
fn a_node_of_a_listing_that_does_not_listen_is_replaced() {
    let (place, away, node) = (Place::new(), away(), node());
    let (asked, to) = (AtomicUsize::new(0), node.url(""));
    let gateway = Publisher::start(move |head| {
        let is_early = asked.fetch_add(1, Ordering::SeqCst) % 3 < 2;
        Reply::leading_to(307, &location(if is_early { &away } else { &to }, head))
    });
    let run = silent(at(&gateway, &["ls", "s3://lab/"]).run().expect(0));
    run.check(run.stdout.contains("large"), "a listing");
    silent(at(&gateway, &["get", "s3://lab/c"]).with([place.path("c")]).run().expect(0));
    assert!(fs::read(place.path("c")).ok() == bytes_of("c"));
    assert_no_credentials(&node);
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
