//! Faults as they come over the wire, and what is counted of them.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use inrush_origin::{
    ChecksumAlgorithm, ChecksumPolicy, Config, Credentials, DeadAddress, Fault, FaultPlan, Match,
    ObjectChange, ObjectSpec, Operation, Origin, Stats,
};

use crate::client::{Answer, ask, connect, receive, send, try_ask};
use crate::{SMALL, config, expected, faulty, sign};

const KEY: &str = "big/000001.bin";
const GET: &str = "GET /b/big/000001.bin";
const RANGE: &str = "Range: bytes=10-1000009\r\n";

/// One answer of an origin with this fault, and that it was counted once.
fn meet(fault: Fault, line: &str, headers: &str) -> Answer {
    let origin = Origin::start(faulty(fault)).unwrap();
    let answer = ask(&origin, line, headers);
    assert_eq!(origin.stop().faults, BTreeMap::from([(fault.name(), 1)]), "{fault:?}");
    answer
}

fn right() -> Vec<u8> {
    expected(KEY, 10, 1_000_000)
}

#[test]
fn heads_may_be_long() {
    let large = meet(Fault::LargeHead { bytes: 20_000 }, GET, RANGE);
    assert!(large.head.len() > 20_000 && large.body == right());
    let many = meet(Fault::ManyHeaders { count: 300 }, GET, RANGE);
    assert!(many.head.lines().count() > 300 && many.body == right());
}

#[test]
fn heads_may_be_slow() {
    let start = Instant::now();
    let pause = Duration::from_millis(10);
    let slow = meet(Fault::SlowHead { bytes: 10, pause }, GET, RANGE);
    let pieces = u32::try_from(slow.head.len() / 10).unwrap();
    assert!(start.elapsed() >= pause * (pieces - 1), "{:?} for {pieces}", start.elapsed());
    assert!(slow.status() == 206 && slow.body == right());
}

#[test]
fn interim_answers_come_first() {
    for (status, words) in [(100, "100 Continue"), (103, "103 Early Hints")] {
        let origin = Origin::start(faulty(Fault::Interim { status, count: 2 })).unwrap();
        let mut stream = connect(origin.address());
        send(&mut stream, GET, RANGE);
        for _ in 0..2 {
            let head = receive(&mut stream, false).unwrap().head;
            assert!(head.starts_with(&format!("HTTP/1.1 {words}\r\n")), "{head}");
        }
        let answer = receive(&mut stream, true).unwrap();
        assert!(answer.status() == 206 && answer.body == right());
    }
}

#[test]
fn a_body_in_chunks_is_whole() {
    let origin = Origin::start(faulty(Fault::Chunked)).unwrap();
    let mut stream = connect(origin.address());
    send(&mut stream, GET, &format!("{RANGE}Connection: close\r\n"));
    let head = receive(&mut stream, false).unwrap();
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    assert_eq!(head.header("content-length"), None);
    assert_eq!(head.header("content-range"), Some("bytes 10-1000009/3000017"));
    let (mut rest, mut body) = (Vec::new(), Vec::new());
    stream.read_to_end(&mut rest).unwrap();
    let mut left = &rest[..];
    loop {
        let end = left.windows(2).position(|window| window == b"\r\n").unwrap();
        let size = std::str::from_utf8(&left[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let chunk = &left[end + 2..];
        assert_eq!(&chunk[size..size + 2], b"\r\n");
        body.extend_from_slice(&chunk[..size]);
        left = &chunk[size + 2..];
        if size == 0 {
            break;
        }
    }
    assert!(left.is_empty() && body == right());
}

#[test]
fn lengths_that_are_not_true() {
    let more = meet(Fault::WrongContentLength { by: 7 }, GET, RANGE);
    assert_eq!(more.header("content-length"), Some("1000007"));
    assert_eq!(more.header("content-range"), Some("bytes 10-1000009/3000017"));
    assert!(more.body == right() && more.end.unwrap().kind() == io::ErrorKind::UnexpectedEof);
    let origin = Origin::start(faulty(Fault::WrongContentLength { by: -7 })).unwrap();
    let mut stream = connect(origin.address());
    send(&mut stream, GET, RANGE);
    let less = receive(&mut stream, true).unwrap();
    assert_eq!(less.header("content-length"), Some("999993"));
    assert!(less.body == right()[..999_993]);
    let mut stray = [0; 7];
    stream.read_exact(&mut stray).unwrap();
    assert_eq!(stray, right()[999_993..]);
}

#[test]
fn answers_that_are_not_s3_s() {
    for status in [502, 200] {
        let page = meet(Fault::HtmlError { status }, GET, RANGE);
        assert_eq!((page.status(), page.header("content-type")), (status, Some("text/html")));
        assert!(page.text().starts_with("<html>") && page.header("x-amz-request-id").is_none());
    }
    let whole = meet(Fault::IgnoredRange, GET, RANGE);
    assert_eq!((whole.status(), whole.header("content-range")), (200, None));
    assert!(whole.body == expected(KEY, 0, 3_000_017));
    // Who asks for the whole gets it, and nothing is counted.
    let origin = Origin::start(faulty(Fault::IgnoredRange)).unwrap();
    assert_eq!(ask(&origin, GET, "").status(), 200);
    assert_eq!(origin.stop().faults_total(), 0);
}

#[test]
fn refusals_have_s3_s_words() {
    for (fault, status, code) in [
        (Fault::ExpiredToken, 400, "ExpiredToken"),
        (Fault::PermanentRedirect { region: "eu-west-3" }, 301, "PermanentRedirect"),
        (Fault::PreconditionFailed, 412, "PreconditionFailed"),
        (Fault::RequestTimeTooSkewed { ahead_seconds: 0 }, 403, "RequestTimeTooSkewed"),
        (Fault::ServiceUnavailable, 503, "ServiceUnavailable"),
        (Fault::TemporaryRedirect, 307, "TemporaryRedirect"),
    ] {
        let origin = Origin::start(faulty(fault)).unwrap();
        let answer = ask(&origin, GET, RANGE);
        assert_eq!(answer.status(), status);
        assert!(answer.text().contains(&format!("<Code>{code}</Code>")), "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/xml"));
        let stats = origin.stop();
        assert_eq!(stats.codes, BTreeMap::from([(code, 1)]));
        assert_eq!(stats.errors, u64::from(status >= 400));
    }
    let moved = meet(Fault::PermanentRedirect { region: "eu-west-3" }, GET, "");
    assert_eq!(moved.header("x-amz-bucket-region"), Some("eu-west-3"));
    let elsewhere = meet(Fault::TemporaryRedirect, GET, "");
    assert_eq!(elsewhere.header("location"), Some("http://b.s3.invalid/b/big/000001.bin"));
    assert!(elsewhere.text().contains("<Endpoint>b.s3.invalid</Endpoint>"));
}

/// Seconds since 1970 of what stands between these two, as `parse` reads it.
fn time_in(text: &str, before: &str, after: char) -> i64 {
    let (_, rest) = text.split_once(before).expect(before);
    let (time, _) = rest.split_once(after).unwrap();
    let parsed = humantime::parse_rfc3339(time.trim()).ok();
    let parsed = parsed.or_else(|| httpdate::parse_http_date(time.trim()).ok());
    seconds(parsed.expect(time))
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("not so late")
}

#[test]
fn a_skewed_clock_is_reported_twice() {
    let fault = Fault::RequestTimeTooSkewed { ahead_seconds: -3600 };
    let answer = meet(fault, GET, "x-amz-date: 20260101T000000Z\r\n");
    let now = seconds(SystemTime::now());
    for (text, before, after) in
        [(answer.text(), "<ServerTime>", '<'), (&answer.head, "date: ", '\r')]
    {
        let server_time = time_in(text, before, after);
        assert!((now - 3610..=now - 3590).contains(&server_time), "{server_time} at {now}");
    }
    assert!(answer.text().contains("<RequestTime>20260101T000000Z</RequestTime>"));
}

#[test]
fn checksums_may_be_wrong() {
    let policy = ChecksumPolicy::full_object(ChecksumAlgorithm::Crc64Nvme);
    let when = Match { key: Some("small".into()), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::WrongChecksum);
    let origin = Origin::start(Config { faults, checksum: Some(policy), ..config() }).unwrap();
    let good = Origin::start(Config { checksum: Some(policy), ..config() }).unwrap();
    let asked = "x-amz-checksum-mode: ENABLED\r\n";
    for line in ["GET /b/small", "HEAD /b/small"] {
        let (wrong, right) = (ask(&origin, line, asked), ask(&good, line, asked));
        let value = |answer: &Answer| answer.header("x-amz-checksum-crc64nvme").map(str::to_owned);
        let (wrong_value, right_value) = (value(&wrong).unwrap(), value(&right).unwrap());
        assert!(wrong_value != right_value && wrong_value[1..] == right_value[1..]);
        assert_eq!(wrong.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
        assert_eq!(wrong.body, right.body);
    }
    // Where there is no checksum, there is no wrong one.
    ask(&origin, "GET /b/small", "");
    assert_eq!(origin.stop().faults, BTreeMap::from([("wrong_checksum", 2)]));
}

#[test]
fn a_byte_of_an_object_may_be_wrong_for_ever() {
    let origin = Origin::start(faulty(Fault::FlipObjectByte { at: 4 })).unwrap();
    let with = |headers| ask(&origin, "GET /b/small", headers).body;
    let mut wrong = SMALL.to_vec();
    wrong[4] ^= 0xff;
    assert_eq!(with(""), wrong);
    assert_eq!(with("Range: bytes=3-5\r\n"), wrong[3..6]);
    assert_eq!(with("Range: bytes=5-\r\n"), SMALL[5..]);
    assert_eq!(with("Range: bytes=0-3\r\n"), SMALL[..4]);
    assert_eq!(origin.stop().faults, BTreeMap::from([("flip_object_byte", 2)]));
}

#[test]
fn what_did_not_happen_is_not_counted() {
    let fault = Fault::ResetAfter { bytes: 2_000_000_000 };
    let when = Match { operation: Some(Operation::GetObject), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, fault);
    let origin = Origin::start(Config { faults, ..config() }).unwrap();
    let mut stream = connect(origin.address());
    send(&mut stream, "GET /b/terabyte", "");
    receive(&mut stream, false).unwrap();
    drop(stream);
    let gone = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        origin.stats().connections_open == 0
    });
    assert!(gone);
    assert_eq!(origin.stop().faults_total(), 0);
}

#[test]
fn a_burst_is_for_whoever_comes() {
    let when =
        Match { operation: Some(Operation::GetObject), requests: Some(2..=4), ..Match::default() };
    let faults = FaultPlan::none().with_rule(when, Fault::SlowDown);
    let origin = Origin::start(Config { faults, ..config() }).unwrap();
    let keys = ["small", "big/000000.bin", "big/000001.bin", "small", "small"];
    let statuses = keys.map(|key| ask(&origin, &format!("GET /b/{key}"), "").status());
    assert_eq!(statuses, [200, 503, 503, 503, 200]);
    let Stats { faults, codes, .. } = origin.stop();
    assert_eq!((faults["slow_down"], codes["SlowDown"]), (3, 3));
}

#[test]
fn an_object_changes_under_its_readers() {
    let object = ObjectSpec::new("b", "small", &b"ABCDEFGHIJ"[..]);
    let changes = vec![ObjectChange { from_get: 3, object }];
    let origin = Origin::start(Config { changes, ..config() }).unwrap();
    let etag = ask(&origin, "HEAD /b/small", "").header("etag").unwrap().to_owned();
    let condition = format!("Range: bytes=0-3\r\nIf-Match: {etag}\r\n");
    let statuses: [u16; 4] =
        std::array::from_fn(|_| ask(&origin, "GET /b/small", &condition).status());
    assert_eq!(statuses, [206, 206, 412, 412]);
    assert_ne!(ask(&origin, "HEAD /b/small", "").header("etag"), Some(etag.as_str()));
    assert_eq!(ask(&origin, "GET /b/small", "").text(), "ABCDEFGHIJ");
    let stats = origin.stop();
    assert_eq!((stats.objects_changed, stats.codes["PreconditionFailed"]), (1, 2));
    let object = ObjectSpec::new("b", "", SMALL);
    let changes = vec![ObjectChange { from_get: 1, object }];
    assert!(Origin::start(Config { changes, ..config() }).is_err(), "no key is that short");
}

#[test]
fn a_token_ends_after_some_requests() {
    let temporary = |token| Credentials::new("AKID", "secret").with_session_token(token);
    let credentials = vec![temporary("token").with_request_limit(2), temporary("next")];
    let region = "eu-west-3".to_owned();
    let origin = Origin::start(Config { credentials, region, ..config() }).unwrap();
    let with = |secret, token| {
        let headers = sign("/b/small", "", secret, token);
        ask(&origin, "GET /b/small", &headers).status()
    };
    // Who signs badly uses nothing up.
    let seen = [with("wrong", "token"), with("secret", "token"), with("secret", "token")];
    assert_eq!(seen, [403, 200, 200]);
    assert_eq!([with("secret", "token"), with("secret", "token")], [400, 400]);
    assert_eq!([with("secret", "next"), with("secret", "next")], [200, 200]);
    assert_eq!(with("secret", "token"), 400);
    assert_eq!(origin.stop().codes["ExpiredToken"], 3);
}

#[test]
fn a_clock_that_is_off_refuses_signatures() {
    for (clock_offset_seconds, status) in [(840, 200), (-840, 200), (960, 403), (-960, 403)] {
        let origin = Origin::start(Config {
            credentials: vec![Credentials::new("AKID", "secret").with_session_token("token")],
            region: "eu-west-3".to_owned(),
            clock_offset_seconds,
            ..config()
        })
        .unwrap();
        let headers = sign("/b/small", "", "secret", "token");
        let answer = ask(&origin, "GET /b/small", &headers);
        assert_eq!(answer.status(), status, "{clock_offset_seconds}");
        let off = time_in(&answer.head, "date: ", '\r') - seconds(SystemTime::now());
        assert!((off - clock_offset_seconds).abs() < 10, "{off} s, not {clock_offset_seconds}");
        if status == 403 {
            assert!(answer.text().contains("<Code>RequestTimeTooSkewed</Code>"));
            let server_time = time_in(answer.text(), "<ServerTime>", '<');
            assert!((server_time - seconds(SystemTime::now()) - clock_offset_seconds).abs() < 10);
        }
    }
}

#[test]
fn at_some_addresses_nobody_answers() {
    let listen = (1..=4).map(|last| SocketAddr::from(([127, 0, 0, last], 0))).collect();
    let dead = BTreeMap::from([(1, DeadAddress::Silent), (2, DeadAddress::Refuses)]);
    let workers = std::num::NonZeroUsize::new(2).unwrap();
    let origin = Origin::start(Config { listen, dead, workers, ..config() }).unwrap();
    let addresses = origin.addresses().to_vec();
    for alive in [0, 3] {
        assert_eq!(try_ask(addresses[alive], "GET /b/small", "").unwrap().status(), 200);
    }
    let refused = std::net::TcpStream::connect(addresses[2]).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let mut silent = connect(addresses[1]);
    silent.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    send(&mut silent, "GET /b/small", "");
    assert_eq!(receive(&mut silent, true).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let stats = origin.stop();
    assert_eq!(stats.connections_by_address, [1, 1, 0, 1]);
    assert_eq!(stats.requests_by_address, [1, 0, 0, 1]);
}
