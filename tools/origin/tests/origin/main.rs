//! A whole origin on a free port, driven with plain sockets: what a client really sees.

mod checksums;
mod client;
mod faults;
mod load;
mod program;

use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::{Duration, Instant, SystemTime};

use hmac::{Hmac, KeyInit as _, Mac as _};
use inrush_origin::{
    Config, Credentials, Fault, FaultPlan, Match, ObjectContent, ObjectSpec, Operation, Origin,
    Profile, SyntheticSet, synthetic_bytes,
};
use sha2::{Digest as _, Sha256};

use client::{Answer, ask, connect, receive, send, try_ask};

const SMALL: &[u8] = b"0123456789";
const BIG_BYTES: u64 = 3_000_017;

fn config() -> Config {
    let mut config = Config::default();
    for key in ["small", "a b+c%2F=&é/.x"] {
        config.objects.push(ObjectSpec::new("b", key, SMALL));
    }
    config.synthetic.push(SyntheticSet::new("b", "big/", 10, BIG_BYTES));
    let content = ObjectContent::Synthetic { length_bytes: 1 << 40 };
    config.objects.push(ObjectSpec::new("b", "terabyte", content));
    config
}

fn faulty(fault: Fault) -> Config {
    let when = Match { operation: Some(Operation::GetObject), ..Match::default() };
    Config { faults: FaultPlan::none().with_rule(when, fault), ..config() }
}

fn expected(key: &str, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    synthetic_bytes(key, offset, &mut bytes);
    bytes
}

#[test]
fn objects_of_all_kinds() {
    let origin = Origin::start(config()).unwrap();
    let whole = ask(&origin, "GET /b/small", "");
    assert_eq!((whole.status(), &whole.body[..]), (200, SMALL));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert!(whole.header("x-amz-request-id").is_some() && whole.header("last-modified").is_some());
    let strange = ask(&origin, "GET /b/a%20b+c%252F=&%C3%A9/.x", "Range: bytes=-3\r\n");
    assert_eq!((strange.status(), strange.text()), (206, "789"));
    assert_eq!(strange.header("content-range"), Some("bytes 7-9/10"));

    let key = "big/000003.bin";
    let big = ask(&origin, "GET /b/big/000003.bin", "");
    assert!(big.body == expected(key, 0, 3_000_017));
    let part = ask(&origin, "GET /b/big/000003.bin", "Range: bytes=4095-1000002\r\n");
    assert!(part.body == expected(key, 4095, 995_908));
    let far = ask(&origin, "GET /b/terabyte", "Range: bytes=1099511627770-\r\n");
    assert_eq!(far.body, expected("terabyte", 1_099_511_627_770, 6));
    let head = ask(&origin, "HEAD /b/terabyte", "");
    assert_eq!(head.header("content-length"), Some("1099511627776"));
    assert_eq!(head.header("etag"), far.header("etag"));

    let stats = origin.stop();
    assert_eq!((stats.requests, stats.gets, stats.heads, stats.connections), (6, 5, 1, 6));
    assert_eq!(stats.body_bytes, 10 + 3 + 3_000_017 + 995_908 + 6);
    assert!(stats.bytes_sent > stats.body_bytes);
    assert_eq!((stats.connections_open, stats.faults_total(), stats.errors), (0, 0, 0));
}

#[test]
fn errors_and_conditions() {
    let mut config = config();
    config.moved_buckets.insert("far".into(), "eu-west-3".into());
    let origin = Origin::start(config).unwrap();
    for (line, status, code) in [
        ("GET /b/none", 404, "<Code>NoSuchKey</Code>"),
        ("GET /none/k", 404, "<Code>NoSuchBucket</Code>"),
        ("PUT /b/small", 405, "<Code>MethodNotAllowed</Code>"),
        ("GET /far/k", 301, "<Code>PermanentRedirect</Code>"),
        ("GET /b?list-type=2&continuation-token=x", 400, "<Code>InvalidArgument</Code>"),
    ] {
        let answer = ask(&origin, line, "");
        assert_eq!(answer.status(), status, "{line}");
        assert!(answer.text().contains(code), "{line}: {}", answer.text());
        let id = answer.header("x-amz-request-id").unwrap();
        assert!(answer.text().contains(&format!("<RequestId>{id}</RequestId>")));
    }
    let moved = ask(&origin, "HEAD /far", "");
    assert_eq!((moved.status(), moved.header("x-amz-bucket-region")), (301, Some("eu-west-3")));
    let bucket = ask(&origin, "HEAD /", "Host: b.localhost:80\r\n");
    assert_eq!((bucket.status(), bucket.header("x-amz-bucket-region")), (200, Some("us-east-1")));
    assert_eq!(ask(&origin, "HEAD /b/none", "").status(), 404);
    let past = ask(&origin, "GET /b/small", "Range: bytes=10-\r\n");
    assert_eq!((past.status(), past.header("content-range")), (416, Some("bytes */10")));
    assert_eq!(ask(&origin, "GET /b/small", "If-Match: \"x\"\r\n").status(), 412);
    let etag = ask(&origin, "HEAD /b/small", "").header("etag").unwrap().to_owned();
    let same = ask(&origin, "GET /b/small", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((same.status(), same.body.len()), (304, 0));
    // Another version: another ETag, and the old one is refused.
    let spec = ObjectSpec::new("b", "small", &b"new"[..]);
    origin.put_object(&spec).unwrap();
    assert_eq!(ask(&origin, "GET /b/small", &format!("If-Match: {etag}\r\n")).status(), 412);
    assert_eq!(ask(&origin, "GET /b/small", "").text(), "new");
}

#[test]
fn one_connection_answers_many_requests() {
    let origin = Origin::start(config()).unwrap();
    let mut stream = connect(origin.address());
    for index in 0..10 {
        let key = format!("big/00000{index}.bin");
        send(&mut stream, &format!("GET /b/{key}"), "Range: bytes=100-100099\r\n");
        assert!(receive(&mut stream, true).unwrap().body == expected(&key, 100, 100_000));
        send(&mut stream, "HEAD /b/small", "");
        assert_eq!(receive(&mut stream, false).unwrap().status(), 200);
    }
    send(&mut stream, "GET /?list-type=2&max-keys=2&prefix=big/", "Host: b.localhost\r\n");
    let list = receive(&mut stream, true).unwrap();
    assert!(list.text().contains("<KeyCount>2</KeyCount>"), "{}", list.text());
    assert!(list.text().contains("<IsTruncated>true</IsTruncated>"));
    assert_eq!((origin.stats().connections, origin.stats().lists), (1, 1));
}

#[test]
fn strangers_are_refused() {
    let credentials = vec![Credentials::new("AKID", "secret")];
    let origin = Origin::start(Config { credentials, ..config() }).unwrap();
    let anonymous = ask(&origin, "GET /b/small", "");
    assert_eq!(anonymous.status(), 403);
    assert!(anonymous.text().contains("<Code>AccessDenied</Code>"));
    // Names of objects are refused to all, too.
    assert_eq!(ask(&origin, "GET /none/k", "").status(), 403);
    let headers = "Authorization: AWS4-HMAC-SHA256 \
        Credential=AKID/20240101/eu-west-3/s3/aws4_request,SignedHeaders=host,Signature=00\r\n\
        x-amz-date: 20240101T000000Z\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n";
    let elsewhere = ask(&origin, "GET /b/small", headers);
    assert_eq!(elsewhere.status(), 400);
    assert_eq!(elsewhere.header("x-amz-bucket-region"), Some("us-east-1"));
    assert!(elsewhere.text().contains("<Region>us-east-1</Region>"));
    let old = ask(&origin, "GET /b/small", &headers.replace("eu-west-3", "us-east-1"));
    assert!(old.text().contains("<Code>RequestTimeTooSkewed</Code>"), "{}", old.text());
}

/// Headers that sign a GET of `path?query`: the least a client can do.
fn sign(path: &str, query: &str, secret: &str, token: &str) -> String {
    let hmac = |key: &[u8], message: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(message.as_bytes());
        mac.finalize().into_bytes().to_vec()
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let time = time.replace(['-', ':'], "");
    let scope = format!("{}/eu-west-3/s3/aws4_request", &time[..8]);
    let names = "host;x-amz-content-sha256;x-amz-date;x-amz-security-token";
    let canonical = format!(
        "GET\n{path}\n{query}\nhost:x\nx-amz-content-sha256:UNSIGNED-PAYLOAD\n\
         x-amz-date:{time}\nx-amz-security-token:{token}\n\n{names}\nUNSIGNED-PAYLOAD"
    );
    let hash = hex(&Sha256::digest(canonical));
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/') {
        key = hmac(&key, part);
    }
    let signature = hex(&hmac(&key, &format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}")));
    format!(
        "x-amz-date: {time}\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n\
         x-amz-security-token: {token}\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential=AKID/{scope}, SignedHeaders={names}, Signature={signature}\r\n"
    )
}

#[test]
fn signed_requests_are_accepted() {
    let credentials = vec![Credentials::new("AKID", "secret").with_session_token("token")];
    let region = "eu-west-3".to_owned();
    let origin = Origin::start(Config { credentials, region, ..config() }).unwrap();
    let path = "/b/a%20b%2Bc%252F%3D%26%C3%A9/.x";
    let answer = ask(&origin, &format!("GET {path}"), &sign(path, "", "secret", "token"));
    assert_eq!((answer.status(), answer.text()), (200, "0123456789"));
    // The path is compared in its canonical form, however the client wrote it.
    let lazy = ask(&origin, "GET /b/a%20b+c%252F=&%c3%a9/.x", &sign(path, "", "secret", "token"));
    assert_eq!(lazy.text(), "0123456789");
    let wrong = ask(&origin, &format!("GET {path}"), &sign(path, "", "secreT", "token"));
    assert_eq!(wrong.status(), 403);
    assert!(wrong.text().contains("<Code>SignatureDoesNotMatch</Code>"));

    let page = "list-type=2&max-keys=5&prefix=big%2F";
    let first = ask(&origin, &format!("GET /b?{page}"), &sign("/b", page, "secret", "token"));
    assert_eq!(first.text().matches("<Key>").count(), 5, "{}", first.text());
    let (_, token) = first.text().split_once("<NextContinuationToken>").unwrap();
    let (token, _) = token.split_once('<').unwrap();
    let token = token.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
    let page = format!("continuation-token={token}&{page}");
    let second = ask(&origin, &format!("GET /b?{page}"), &sign("/b", &page, "secret", "token"));
    assert!(second.text().contains("<Key>big/000005.bin</Key>"), "{}", second.text());
    assert!(second.text().contains("<IsTruncated>false</IsTruncated>"));
}

#[test]
fn faults_in_the_body() {
    let key = "big/000001.bin";
    let ask_with = |fault| {
        let origin = Origin::start(faulty(fault)).unwrap();
        let answer = ask(&origin, "GET /b/big/000001.bin", "Range: bytes=10-1000009\r\n");
        let stats = origin.stop();
        assert_eq!(stats.faults.get(fault.name()), Some(&1), "{fault:?}");
        answer
    };
    let right = expected(key, 10, 1_000_000);

    let reset = ask_with(Fault::ResetAfter { bytes: 70_000 });
    assert_eq!(reset.end.unwrap().kind(), io::ErrorKind::ConnectionReset);
    assert!(reset.body == right[..70_000]);
    for (asked, came) in [(0, 0), (70_000, 70_000), (u64::MAX, 999_999)] {
        let cut = ask_with(Fault::Truncate { bytes: asked });
        assert_eq!(cut.header("content-length"), Some("1000000"));
        assert_eq!(cut.end.unwrap().kind(), io::ErrorKind::UnexpectedEof);
        assert!(cut.body == right[..came], "{} of {came}", cut.body.len());
    }
    let flipped = ask_with(Fault::FlipByte { at: 500_000 });
    let wrong: Vec<_> = (0..1_000_000).filter(|at| flipped.body[*at] != right[*at]).collect();
    assert_eq!(wrong, [500_000]);
    let start = Instant::now();
    let duration = Some(Duration::from_millis(300));
    let stalled = ask_with(Fault::StallAfter { bytes: 1000, duration });
    assert!(stalled.body == right && start.elapsed() >= Duration::from_millis(300));
    let start = Instant::now();
    let drip = ask_with(Fault::Drip { bytes: 50_000, pause: Duration::from_millis(10) });
    assert!(drip.body == right && start.elapsed() >= Duration::from_millis(190));
}

#[test]
fn faults_in_the_head() {
    let ask_with = |fault| {
        let origin = Origin::start(faulty(fault)).unwrap();
        try_ask(origin.address(), "GET /b/small", "Range: bytes=0-4\r\n")
    };
    let reset = ask_with(Fault::ResetBeforeHead).unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(ask_with(Fault::InternalError).unwrap().status(), 500);
    let slow_down = ask_with(Fault::SlowDown).unwrap();
    assert_eq!(slow_down.status(), 503);
    assert!(slow_down.text().contains("<Code>SlowDown</Code>"));
    let range = ask_with(Fault::WrongContentRange).unwrap();
    assert_eq!(range.header("content-range"), Some("bytes 1-5/10"));
    assert_eq!(range.text(), "01234");
    let closed = ask_with(Fault::CloseAfterResponse).unwrap();
    assert_eq!((closed.header("connection"), closed.text()), (Some("close"), "01234"));
    let etag = |answer: Answer| answer.header("etag").unwrap().to_owned();
    let right = etag(ask(&Origin::start(config()).unwrap(), "HEAD /b/small", ""));
    assert_ne!(etag(ask_with(Fault::ChangedEtag).unwrap()), right);
    let start = Instant::now();
    let duration = Some(Duration::from_millis(200));
    assert_eq!(ask_with(Fault::StallBeforeHead { duration }).unwrap().text(), "01234");
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn a_client_that_retries_gets_everything_in_the_end() {
    let origin = Origin::start(Config {
        faults: FaultPlan::seeded(7, Profile::Mixed),
        synthetic: vec![SyntheticSet::new("b", "k/", 200, 10_000)],
        ..Config::default()
    });
    let origin = origin.unwrap();
    for index in 0..200 {
        let path = format!("k/{index:06}.bin");
        let whole = (0..20).any(|_| {
            let answer = try_ask(origin.address(), &format!("GET /b/{path}"), "");
            answer.is_ok_and(|answer| answer.body == expected(&path, 0, 10_000))
        });
        assert!(whole, "{path} after 20 attempts");
    }
    let stats = origin.stop();
    assert_eq!(stats.gets, 200 + stats.faults_total() - harmless(&stats.faults));
    assert!(stats.faults.len() > 4, "{:?}", stats.faults);
}

/// Faults after which the answer is still complete and right.
fn harmless(faults: &std::collections::BTreeMap<&'static str, u64>) -> u64 {
    ["close_after_response", "drip", "stall_after", "stall_before_head"]
        .iter()
        .filter_map(|name| faults.get(name))
        .sum()
}

#[test]
fn stopping_is_quick_whatever_clients_do() {
    let origin = Origin::start(Config {
        workers: NonZeroUsize::new(2).unwrap(),
        faults: FaultPlan::none().with_rule(
            Match { key: Some("small".into()), ..Match::default() },
            Fault::StallBeforeHead { duration: None },
        ),
        ..config()
    })
    .unwrap();
    let _idle = connect(origin.address());
    let mut stalled = connect(origin.address());
    send(&mut stalled, "GET /b/small", "");
    let mut unread = connect(origin.address());
    send(&mut unread, "GET /b/terabyte", "");
    assert!(soon(|| origin.stats().connections_open == 3));
    let start = Instant::now();
    let stats = origin.stop();
    // None of these would ever end by itself.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(stats.connections_open, 0);
    // Whatever came before is followed by an end.
    assert!(receive(&mut stalled, true).is_err());
}

#[test]
fn a_client_that_leaves_a_stalled_answer_frees_its_connection() {
    let fault = Fault::StallAfter { bytes: 3, duration: None };
    let origin = Origin::start(faulty(fault)).unwrap();
    let mut stream = connect(origin.address());
    send(&mut stream, "GET /b/small", "");
    // All bytes that come are there before the client's read timeout becomes short.
    let mut seen = vec![0; 1 << 16];
    assert!(soon(|| {
        let count = stream.peek(&mut seen).unwrap();
        seen[..count].ends_with(b"\r\n\r\n012")
    }));
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let answer = receive(&mut stream, true).unwrap();
    assert_eq!(answer.text(), "012");
    assert_eq!(answer.end.unwrap().kind(), io::ErrorKind::WouldBlock);
    drop(stream);
    let gone = soon(|| origin.stats().connections_open == 0);
    assert!(gone, "the connection is still open long after its client left");
}

/// Waits for something that a busy machine may take its time for.
fn soon(mut condition: impl FnMut() -> bool) -> bool {
    (0..1000).any(|_| {
        let is_so = condition();
        if !is_so {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_so
    })
}

#[test]
fn addresses_share_a_port_and_workers_share_addresses() {
    let listen = (1..=4).map(|last| SocketAddr::from(([127, 0, 0, last], 0))).collect();
    let workers = NonZeroUsize::new(2).unwrap();
    let when = Match { address: Some(2), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::SlowDown);
    let origin = Origin::start(Config { listen, workers, faults, ..config() }).unwrap();
    let port = origin.address().port();
    assert_eq!(origin.addresses().len(), 4);
    for (index, address) in origin.addresses().iter().enumerate() {
        assert_eq!(address.port(), port);
        for _ in 0..8 {
            let answer = try_ask(*address, "GET /b/small", "").unwrap();
            assert_eq!(answer.status(), if index == 2 { 503 } else { 200 });
        }
    }
    assert_eq!(origin.stats().requests_by_address, [8; 4]);
    // A second origin fails because the port is taken, instead of sharing it.
    let taken = Config { listen: vec![origin.address()], workers, ..config() };
    assert!(Origin::start(taken).unwrap_err().to_string().contains("cannot listen on"));
    let listen = vec![origin.address()];
    origin.stop();
    assert!(Origin::start(Config { listen, ..config() }).is_ok(), "the port is free again");
}

#[test]
fn pace_and_latency() {
    let origin = Origin::start(Config {
        connection_rate: NonZeroU64::new(10_000_000),
        first_byte_latency: Duration::from_millis(100),
        ..config()
    })
    .unwrap();
    let start = Instant::now();
    let answer = ask(&origin, "GET /b/big/000000.bin", "");
    let elapsed = start.elapsed();
    assert!(answer.body == expected("big/000000.bin", 0, 3_000_017));
    // 100 ms before the head, 300 ms for the body but its last piece.
    assert!(elapsed >= Duration::from_millis(370), "{elapsed:?}");
}
