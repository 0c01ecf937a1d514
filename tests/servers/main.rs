//! Servers that answer otherwise than S3, and give the right bytes all the same.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock, servers and files of its own"
)]

mod headers;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals and usage errors belong to other tests")]
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use program::Program;

/// One request, as far as the servers here care.
#[derive(Debug, Clone)]
struct Request {
    key: String,
    /// First byte and last.
    range: Option<(usize, usize)>,
    /// Lines of its head, in lower case.
    head: String,
}

impl Request {
    fn is_head(&self) -> bool {
        self.head.starts_with("head ")
    }

    fn has(&self, line: &str) -> bool {
        self.head.lines().any(|is| is == line)
    }
}

/// What a server sends.
struct Answer {
    /// Status line and headers, without the empty line.
    head: String,
    body: Vec<u8>,
    /// The connection ends behind it.
    ends: bool,
}

type Objects = BTreeMap<String, Vec<u8>>;

/// One that comes with its head, one in one request, and one in several; of text.
fn objects() -> Objects {
    let bytes = |length: usize, step: usize| -> Vec<u8> {
        (0..length)
            .map(|at| b' ' + u8::try_from((at * step + at / 97) % 95).expect("small"))
            .collect()
    };
    let all =
        [("small", bytes(5_000, 3)), ("medium", bytes(900_000, 7)), ("large", bytes(3 << 20, 11))];
    all.into_iter().map(|(key, bytes)| (key.to_owned(), bytes)).collect()
}

fn etag(bytes: &[u8]) -> String {
    format!("{:032x}", bytes.len())
}

/// S3's answer to a request.
fn right(request: &Request, bytes: &[u8]) -> Answer {
    let mut head = match request.range {
        Some((first, last)) => {
            format!(
                "HTTP/1.1 206 Partial\r\nContent-Range: bytes {first}-{last}/{}\r\n",
                bytes.len()
            )
        }
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    let (first, last) = request.range.unwrap_or((0, bytes.len() - 1));
    head += &format!("Content-Length: {}\r\nETag: \"{}\"\r\n", last + 1 - first, etag(bytes));
    Answer { head, body: bytes[first..=last].to_vec(), ends: false }
}

/// Answers requests until the process of the tests ends; all heads that came.
fn serve(
    objects: &Objects,
    answer: impl Fn(&Request, &[u8]) -> Answer + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    serve_at_once(usize::MAX, objects, answer)
}

/// Serves at most `most` connections at a time, each until it is closed; the others wait.
fn serve_at_once(
    most: usize,
    objects: &Objects,
    answer: impl Fn(&Request, &[u8]) -> Answer + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let heads = Arc::new(Mutex::new(Vec::new()));
    let (objects, answer, seen) = (Arc::new(objects.clone()), Arc::new(answer), Arc::clone(&heads));
    let served = Arc::new((Mutex::new(0), Condvar::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().take(1_000).flatten() {
            let (objects, answer, seen) =
                (Arc::clone(&objects), Arc::clone(&answer), Arc::clone(&seen));
            let served = Arc::clone(&served);
            std::thread::spawn(move || {
                let (count, one_less) = &*served;
                let is_full = |count: &mut usize| *count >= most;
                let count_now = count.lock().expect("no panic under the lock");
                *one_less.wait_while(count_now, is_full).expect("no panic under the lock") += 1;
                // A client that goes away is nobody's fault.
                let _ = converse(stream, &objects, &*answer, &seen);
                *count.lock().expect("no panic under the lock") -= 1;
                one_less.notify_one();
            });
        }
    });
    (address, heads)
}

fn converse(
    mut stream: TcpStream,
    objects: &Objects,
    answer: &(impl Fn(&Request, &[u8]) -> Answer + ?Sized),
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let target = head.split(' ').nth(1).unwrap_or("").to_owned();
        let is_head = head.starts_with("HEAD");
        let head = head.to_lowercase();
        seen.lock().expect("no panic under the lock").push(head.clone());
        let key = target.trim_start_matches("/lab").trim_start_matches('/').to_owned();
        if target.contains("list-type=2") {
            let page = page_of(objects);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len())?;
            continue;
        }
        let Some(bytes) = objects.get(&key) else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
        let range = range.and_then(|range| {
            let (first, last) = range.split_once('-')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        let request = Request { key, range, head };
        if is_head {
            let Answer { head, ends, .. } = answer(&request, bytes);
            write!(stream, "{head}\r\n")?;
            if ends {
                return Ok(());
            }
            continue;
        }
        let Answer { head, body, ends } = answer(&request, bytes);
        write!(stream, "{head}\r\n")?;
        stream.write_all(&body)?;
        if ends {
            return Ok(());
        }
    }
}

fn page_of(objects: &Objects) -> String {
    let contents = objects.iter().map(|(key, bytes)| {
        let (size, etag) = (bytes.len(), etag(bytes));
        let about = format!("<Size>{size}</Size><ETag>\"{etag}\"</ETag>");
        format!("<Contents><Key>{key}</Key>{about}</Contents>")
    });
    let contents: String = contents.collect();
    format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
}

/// Gets all objects from such a server, into files and through a stream; returns all heads that the
/// server saw.
fn check(answer: impl Fn(&Request, &[u8]) -> Answer + Send + Sync + 'static) -> Vec<String> {
    let (objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
    let (address, heads) = serve(&objects, answer);
    let to = folder.path().join("data");
    let words = ["get", "--part-size", "1MiB", "s3://lab/", to.to_str().expect("UTF-8")];
    asking(address, &words).run().expect(0);
    for (key, bytes) in &objects {
        assert!(fs::read(to.join(key)).expect("it is there") == *bytes, "{key}");
    }
    let one = folder.path().join("one");
    asking(address, &["get", "s3://lab/small", one.to_str().expect("UTF-8")]).run().expect(0);
    assert!(fs::read(one).expect("it is there") == objects["small"]);
    let run = asking(address, &["cat", "s3://lab/"]).run().expect(0);
    let all: Vec<u8> = objects.values().flatten().copied().collect();
    assert!(run.stdout.as_bytes() == all, "a stream");
    heads.lock().expect("no panic under the lock").clone()
}

/// Gets all objects, each in one request, and compares the files.
fn get_whole(address: SocketAddr, objects: &Objects) {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("data");
    let words = ["get", "--part-size", "8MiB", "s3://lab/", to.to_str().expect("UTF-8")];
    asking(address, &words).run().expect(0);
    for (key, bytes) in objects {
        assert!(fs::read(to.join(key)).expect("it is there") == *bytes, "{key}");
    }
}

fn asking(address: SocketAddr, words: &[&str]) -> Program {
    let url = format!("http://{address}");
    let program = Program::new(words).with(["--endpoint-url", &url, "--region", "us-east-1"]);
    program.with_keys("KEY", "SECRET")
}

fn refused(status: u16) -> Answer {
    let head = format!("HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\n");
    Answer { head, body: Vec::new(), ends: false }
}

fn replaced(mut answer: Answer, from: &str, to: &str) -> Answer {
    assert!(answer.head.contains(from), "{}", answer.head);
    answer.head = answer.head.replace(from, to);
    answer
}

#[test]
fn etags_have_quotes_or_none_or_are_weak() {
    check(|request, bytes| {
        let tag = etag(bytes);
        let to = match request.key.as_str() {
            "small" => tag.clone(),
            _ => format!("W/\"{tag}\""),
        };
        replaced(right(request, bytes), &format!("\"{tag}\""), &to)
    });
}

/// Requests that may be on their way before the first answer says how a server wants them: those
/// that a stream begins with, and of `get` the few that these objects need.
const ASKED_AT_FIRST_MAX: usize = 32 + 10;

/// As rclone does; the size of an object is asked for by its first byte where HEAD is refused.
#[test]
fn ranges_may_have_the_status_of_whole_objects() {
    check(|request, bytes| match request.is_head() {
        true => refused(403),
        false => {
            let mut answer = right(request, bytes);
            answer.head = answer.head.replace("206 Partial", "200 OK");
            answer
        }
    });
}

#[test]
fn bodies_without_a_length_end_with_their_connection() {
    check(|request, bytes| {
        let right = right(request, bytes);
        let length = format!("Content-Length: {}\r\n", right.body.len());
        Answer { ends: true, ..replaced(right, &length, "") }
    });
}

/// Sends an answer in chunks.
fn in_chunks(answer: Answer) -> Answer {
    let length = format!("Content-Length: {}\r\n", answer.body.len());
    let mut chunked = replaced(answer, &length, "Transfer-Encoding: chunked\r\n");
    let body = std::mem::take(&mut chunked.body);
    for chunk in body.chunks(10_000).chain([&[][..]]) {
        chunked.body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.body.extend_from_slice(chunk);
        chunked.body.extend_from_slice(b"\r\n");
    }
    chunked
}

#[test]
fn bodies_in_chunks_are_decoded() {
    check(|request, bytes| in_chunks(right(request, bytes)));
}

/// And whole where a range was asked for: only who accepts gzip is surely sent what is stored.
#[test]
fn whole_objects_in_chunks_are_decoded() {
    let objects = objects();
    let (address, heads) = serve(&objects, |request, bytes| {
        in_chunks(right(&Request { range: None, ..request.clone() }, bytes))
    });
    get_whole(address, &objects);
    let heads = heads.lock().expect("no panic under the lock");
    let gets = heads.iter().filter(|head| head.starts_with("get /lab/large")).count();
    assert_eq!(gets, 2, "one without gzip, one with it");
}

#[test]
fn headers_that_are_none_change_nothing() {
    let odd = "x-amz-meta-a b: 1\r\nx-amz-meta-(c)/d: 2\r\nx-amz-meta-e: \u{1}\u{e9}\r\n: x\r\n\
               no colon\r\nx-amz-meta-f: 1\r\n  2\r\n";
    check(move |request, bytes| {
        let mut answer = right(request, bytes);
        answer.head += odd;
        answer
    });
}

/// It sends the whole object whatever is asked for, and all of it only the second time.
#[test]
fn a_cut_answer_of_who_ignores_ranges_begins_again() {
    let objects = objects();
    let cut = Mutex::new(BTreeSet::new());
    let (address, _) = serve(&objects, move |request, bytes| {
        assert!(!request.is_head(), "all is listed");
        let mut answer = right(&Request { range: None, ..request.clone() }, bytes);
        if cut.lock().expect("no panic under the lock").insert(request.key.clone()) {
            answer.body.truncate(bytes.len() / 2);
            answer.ends = true;
        }
        answer
    });
    get_whole(address, &objects);
}

/// As Google Cloud Storage does with what is stored with `Content-Encoding: gzip`.
#[test]
fn who_unpacks_gzip_is_asked_for_what_is_stored() {
    let heads = check(|request, bytes| {
        if request.has("accept-encoding: gzip, identity") {
            let mut answer = right(request, bytes);
            answer.head += "Content-Encoding: gzip\r\n";
            return answer;
        }
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n".to_owned();
        Answer { head, body: b"6\r\nplain!\r\n0\r\n\r\n".to_vec(), ends: false }
    });
    let gets = heads.iter().filter(|head| head.starts_with("get") && !head.contains("list-type"));
    let without = gets.filter(|head| !head.contains("accept-encoding")).count();
    assert!(without <= ASKED_AT_FIRST_MAX, "{without} of {}", heads.len());
}

#[test]
fn headers_beyond_all_bounds_are_reported() {
    let (objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
    let (address, heads) = serve(&objects, |request, bytes| {
        let mut answer = right(request, bytes);
        answer.head += &format!("x-amz-meta-long: {}\r\n", "v".repeat(70 << 10));
        answer
    });
    let to = folder.path().join("data");
    let run = asking(address, &["get", "s3://lab/", to.to_str().expect("UTF-8")]).run();
    run.expect(6).expect_words(&["headers of more than 64 KiB", "send fewer headers", "1 try"]);
    let heads = heads.lock().expect("no panic under the lock");
    let gets = heads.iter().filter(|head| head.starts_with("get /lab/small")).count();
    assert_eq!(gets, 1, "it is as long the next time");
}

#[test]
fn long_metadata_is_passed_over() {
    check(|request, bytes| {
        let mut answer = right(request, bytes);
        answer.head += &format!("x-amz-meta-long: {}\r\n", "v".repeat(20 << 10));
        answer.head += &format!("x-amz-meta-more: {}\r\n", "w".repeat(30 << 10));
        answer
    });
}

/// One that unpacks them into bodies that end with their connection: they begin with as many bytes
/// as are stored. Where some are used before that is seen, the object is another than was listed.
#[test]
fn longer_bodies_without_a_length_are_no_objects() {
    let cases = [
        ("small", 6, "longer or shorter than the range"),
        ("medium", 6, "longer or shorter than the range"),
        ("large", 1, "longer or shorter than it was listed"),
    ];
    for (key, code, why) in cases {
        let (mut objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
        objects.retain(|is, _| is == key);
        let (address, _) = serve(&objects, |request, bytes| {
            let right = right(&Request { range: None, ..request.clone() }, bytes);
            let length = format!("Content-Length: {}\r\n", right.body.len());
            let mut answer = replaced(right, &length, "");
            answer.body.push(b'x');
            Answer { ends: true, ..answer }
        });
        let to = folder.path().join("data");
        let words = ["get", "--part-size", "8MiB", "s3://lab/", to.to_str().expect("UTF-8")];
        let run = asking(address, &words).with(["--max-attempts", "2"]).run();
        run.expect(code).expect_words(&[why]).check(!to.join(key).exists(), "it has no name");
    }
}

/// Without ETags only its time distinguishes two versions of an object.
#[test]
fn without_etags_an_object_of_two_times_is_no_object() {
    let (mut objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
    objects.retain(|is, _| is == "large");
    let (address, _) = serve(&objects, |request, bytes| {
        let answer = right(request, bytes);
        let etag = format!("ETag: \"{}\"\r\n", etag(bytes));
        let day = if request.range.is_some_and(|(first, _)| first > 0) { 2 } else { 1 };
        let time = format!("Last-Modified: Tue, 0{day} Jan 2024 03:04:05 GMT\r\n");
        replaced(answer, &etag, &time)
    });
    let to = folder.path().join("data");
    let get = ["get", "--part-size", "1MiB", "s3://lab/", to.to_str().expect("UTF-8")];
    asking(address, &get).run().expect(1).expect_words(&["the object changed"]);
    assert!(!to.join("large").exists());
    let cat = ["cat", "--part-size", "1MiB", "s3://lab/large"];
    asking(address, &cat).run().expect(1).expect_words(&["changed", "Last-Modified"]);
}

/// What is wrong each time is asked for a few times, and the advice fits.
#[test]
fn what_is_wrong_each_time_is_soon_given_up() {
    type Wrong = fn(Answer) -> Answer;
    let cases: [(&str, &str, Wrong); 3] = [
        ("longer or shorter than the range", "check --endpoint-url", |answer| {
            replaced(answer, "Content-Length: 900000", "Content-Length: 900001")
        }),
        ("has no valid HTTP/1 header", "check --endpoint-url", |answer| {
            replaced(answer, "Content-Length: ", "Content-Length: x")
        }),
        ("has a Transfer-Encoding", "send Content-Length", |answer| {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n".to_owned();
            Answer { head, body: b"0\r\n\r\n".to_vec(), ..answer }
        }),
    ];
    for (why, advice, wrong) in cases {
        let mut objects = objects();
        objects.retain(|key, _| key == "medium");
        let (address, heads) = serve(&objects, move |request, bytes| wrong(right(request, bytes)));
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("data");
        let words = ["get", "s3://lab/", to.to_str().expect("UTF-8")];
        let run = asking(address, &words).run().expect(6).expect_words(&[why, advice]);
        let heads = heads.lock().expect("no panic under the lock");
        let gets = heads.iter().filter(|head| head.starts_with("get /lab/medium")).count();
        run.check(gets == 3, &format!("{gets} requests"));
    }
}

#[test]
fn a_redirect_names_where_it_leads() {
    let (objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
    let location = "Location: http://name:secret@other.test:9/lab/small?signature=1\r\n";
    let (address, _) = serve(&objects, move |_, _| Answer {
        head: format!("HTTP/1.1 307 Temporary Redirect\r\n{location}Content-Length: 0\r\n"),
        body: Vec::new(),
        ends: false,
    });
    let to = folder.path().join("data");
    let run = asking(address, &["get", "s3://lab/", to.to_str().expect("UTF-8")]).run();
    let run =
        run.expect(6).expect_words(&["is not followed", "'http://other.test:9/lab/small?...'"]);
    for secret in ["secret", "signature"] {
        run.check(!run.stderr.contains(secret), "no user and no query is reported");
    }
}

/// A server that takes its time is waited for, unless the user says for how long.
#[test]
fn an_attempt_ends_after_the_timeout_that_the_user_names() {
    let objects = Objects::from([("k".to_owned(), vec![b'a'; 5_000])]);
    let (address, _) = serve(&objects, |request, bytes| {
        if request.range.is_some() {
            std::thread::sleep(Duration::from_millis(1_500));
        }
        right(request, bytes)
    });
    let cat = |more: &[&str]| asking(address, &["cat", "s3://lab/k"]).with(more.to_vec()).run();
    let run = cat(&[]).expect(0);
    assert_eq!(run.stdout.len(), 5_000);
    let impatient = ["--read-timeout", "500ms", "--max-attempts", "2", "--retry-for", "0"];
    let run = cat(&impatient).expect(6);
    assert!(run.stderr.contains("timed out before the first byte"), "{}", run.stderr);
    let run = cat(&["--read-timeout", "2h"]).expect(2);
    assert!(run.stderr.contains("expected a time from 100ms to 3600s"), "{}", run.stderr);
}

/// Connections that it accepts and does not answer are closed, and those that it answers bring all.
#[test]
fn who_serves_few_connections_at_a_time_serves_all_objects() {
    for (most, count) in [(1, 20), (4, 60)] {
        let objects: Objects =
            (0..count).map(|at| (format!("k{at:02}"), vec![b'a' + at % 26; 100_000])).collect();
        let (address, _) = serve_at_once(most, &objects, right);
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("data");
        let words = ["get", "--json", "s3://lab/", to.to_str().expect("UTF-8")];
        let run = asking(address, &words).run().expect(0);
        for (key, bytes) in &objects {
            assert!(fs::read(to.join(key)).expect("it is there") == *bytes, "{key}");
        }
        let document: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        let retries = &document["retries"];
        let timeouts =
            ["first_byte_timeout", "connect_timeout"].map(|why| retries[why].as_u64().unwrap_or(0));
        assert!(timeouts.iter().sum::<u64>() <= 8, "{most} of {count}: {retries}");
        let run = asking(address, &["cat", "s3://lab/"]).run().expect(0);
        let all: Vec<u8> = objects.values().flatten().copied().collect();
        assert!(run.stdout.as_bytes() == all, "a stream");
    }
}

/// It serves ten requests a second and three at once after a pause, and refuses the others.
#[test]
fn a_server_of_ten_requests_a_second_refuses_fewer_than_it_serves() {
    const OBJECTS: usize = 120;
    let objects: Objects =
        (0..OBJECTS).map(|number| (format!("o{number}"), vec![b'o'; 1_000])).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let bucket = Mutex::new((3.0, Instant::now()));
    let refusals = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refusals);
    let (address, _) = serve(&objects, move |request, bytes| {
        let (tokens, at) = &mut *bucket.lock().expect("no panic under the lock");
        let elapsed = std::mem::replace(at, Instant::now()).elapsed();
        *tokens = (*tokens + elapsed.as_secs_f64() * 10.0).min(3.0);
        if *tokens < 1.0 {
            count.fetch_add(1, Ordering::Relaxed);
            return refused(503);
        }
        *tokens -= 1.0;
        right(request, bytes)
    });
    let to = folder.path().join("data");
    asking(address, &["get", "s3://lab/", to.to_str().expect("UTF-8")]).run().expect(0);
    assert_eq!(fs::read_dir(&to).expect("a folder").count(), OBJECTS);
    let refusals = refusals.load(Ordering::Relaxed);
    // Without a rate, 32 connections have about 70 within the first 0.1 s.
    assert!((1..OBJECTS * 5 / 4).contains(&refusals), "{refusals} refused");
}
