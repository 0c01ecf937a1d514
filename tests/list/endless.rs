//! A server whose pages come in a circle: its listing ends, with an error that says why.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET};

const ENDPOINT: i32 = 6;

/// Answers every question with the page that its token asks for; stops when dropped.
struct Circle {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Circle {
    /// `page` gets the token, empty for the first page, and gives the body.
    fn start(page: fn(&str) -> String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let address = listener.local_addr().expect("an address");
        let stopped = Arc::new(AtomicBool::new(false));
        let their_stopped = Arc::clone(&stopped);
        let thread = std::thread::spawn(move || {
            for client in listener.incoming() {
                if their_stopped.load(Ordering::Acquire) {
                    return;
                }
                let _ = client.map(|client| answer(client, page));
            }
        });
        Self { address, stopped, thread: Some(thread) }
    }

    fn run(&self, words: &[&str]) -> Run {
        let program = Program::new(words).with_keys(ACCESS_KEY, SECRET);
        program.with(["--endpoint-url", &format!("http://{}", self.address)]).run()
    }
}

impl Drop for Circle {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // It looks when somebody comes.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}

/// One question, one answer, and the end of the connection.
fn answer(client: TcpStream, page: fn(&str) -> String) -> std::io::Result<()> {
    let mut lines = BufReader::new(&client).lines();
    let target = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let token = target.split("continuation-token=").nth(1).unwrap_or("");
    let token = token.split(['&', ' ']).next().unwrap_or("");
    let body = page(token);
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    (&client).write_all(format!("{head}{body}").as_bytes())
}

/// A page of a key, or of none, and the token behind it.
fn page(key: Option<&str>, next: &str) -> String {
    let contents = key.map_or_else(String::new, |key| {
        format!("<Contents><Key>{key}</Key><Size>1</Size><ETag>&quot;e&quot;</ETag></Contents>")
    });
    format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated>{contents}\
         <NextContinuationToken>{next}</NextContinuationToken></ListBucketResult>"
    )
}

#[test]
fn tokens_that_come_again_end_the_listing() {
    // The keys go on, or there are none.
    let tokens = Circle::start(|token| match token {
        "" | "B" => page(Some("b"), "A"),
        _ => page(Some("a"), "B"),
    });
    let empty = Circle::start(|token| page(None, if token == "A" { "B" } else { "A" }));
    for (server, way) in [(&tokens, "tokens"), (&empty, "empty")] {
        for words in [&["ls", "s3://lab/"][..], &["ls", "--recursive", "s3://lab/"]] {
            let run = server.run(words).expect(ENDPOINT);
            run.check(run.stderr.contains("list s3://lab/: the server's listing has no end"), way);
            run.check(run.stdout.lines().count() < 20, "few lines");
        }
    }
    let run = empty.run(&["ls", "--recursive", "--list-requests", "1", "s3://lab/"]);
    run.expect(ENDPOINT).expect_error(&["it gives the continuation token '"]);
}

#[test]
fn keys_that_come_again_end_the_listing() {
    let server = Circle::start(|token| {
        let number = token.parse().unwrap_or(0);
        page(Some(["b", "a", "c"][number % 3]), &(number + 1).to_string())
    });
    let run = server.run(&["ls", "--recursive", "s3://lab/"]).expect(ENDPOINT);
    run.expect_words(&["the server's listing has no end: another page begins with '"]);
    let run = server.run(&["get", "--quiet", "--discard", "s3://lab/"]);
    run.check(matches!(run.status.code(), Some(1 | ENDPOINT)), "an end");
}

#[test]
fn buckets_that_come_again_end_the_listing() {
    let server = Circle::start(|token| {
        let next = if token == "A" { "B" } else { "A" };
        format!(
            "<ListAllMyBucketsResult><Buckets><Bucket><Name>one</Name></Bucket></Buckets>\
             <ContinuationToken>{next}</ContinuationToken></ListAllMyBucketsResult>"
        )
    });
    let run = server.run(&["ls"]).expect(ENDPOINT);
    run.expect_words(&["list buckets: the server's listing has no end: "]);
}
