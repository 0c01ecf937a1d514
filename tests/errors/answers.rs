//! Servers that answer otherwise than S3 does: the error says how, and what to change.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use inrush_origin::Operation::GetObject;
use inrush_origin::{Fault, FaultPlan, Match};

use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, config, start};
use crate::{ENDPOINT, Nowhere, objects};

const MIB: usize = 1 << 20;

/// A server that answers every request by its head; it ends with the process of the tests. Returns
/// its host and port.
pub(crate) fn answering(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    let host = listener.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut piece = [0; 4096];
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(count) if count > 0 => head.extend_from_slice(&piece[..count]),
                    _ => break,
                }
            }
            let _ = stream.write_all(answer(&String::from_utf8_lossy(&head)).as_bytes());
        }
    });
    host
}

/// A proxy that compresses what it relays, whether it says how long it is then or not.
#[test]
fn what_is_compressed_on_its_way_is_named() {
    for length in ["Content-Length: 50\r\n", "Transfer-Encoding: chunked\r\n", ""] {
        let host = answering(move |head| {
            let version = "ETag: \"1\"\r\nLast-Modified: Tue, 02 Jan 2024 03:04:05 GMT\r\n\
                           Connection: close\r\n";
            if head.starts_with("HEAD") {
                return format!("HTTP/1.1 200 OK\r\n{version}Content-Length: 3000000\r\n\r\n");
            }
            let body = match length.contains("chunked") {
                true => format!("32\r\n{}\r\n0\r\n\r\n", "x".repeat(50)),
                false => "x".repeat(50),
            };
            format!("HTTP/1.1 200 OK\r\n{version}Content-Encoding: gzip\r\n{length}\r\n{body}")
        });
        for part in ["1MiB", "8MiB"] {
            let nowhere = Nowhere::new();
            let program = Program::new(["get", "--quiet", "s3://lab/a"]).with([nowhere.path()]);
            let program = program.with(["--part-size", part, "--max-attempts", "2"]);
            let endpoint = format!("http://{host}");
            let program = program.with(["--endpoint-url", &endpoint, "--region", "us-east-1"]);
            let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(ENDPOINT);
            run.expect_error(&["s3://lab/a", "Content-Encoding", "without compression"]);
        }
    }
}

#[test]
fn a_part_of_an_object_needs_a_server_with_ranges() {
    let mut configuration = config(&objects(&[("a", MIB)]));
    let when = Match { operation: Some(GetObject), ..Match::default() };
    configuration.faults = FaultPlan::none().with_rule(when, Fault::IgnoredRange);
    let origin = start(configuration);
    let program = Program::new(["cat", "s3://lab/a", "--range", "10-19"]).asking(&origin);
    let program = program.with(["--max-attempts", "1"]).with_keys(ACCESS_KEY, SECRET);
    let run = program.run().expect(ENDPOINT);
    let words = ["it serves no ranges", "cat --range and mount need a server with ranges"];
    run.expect_error(&words);
}
