//! The real program against an S3 server that nobody here wrote and that verifies signatures.
//!
//! The server is `s3s-fs`, in this process. `tools/interop.py` does the same with nginx and moto,
//! on more filesystems.

#[path = "common/s3s_server.rs"]
mod s3s_server;

use s3s_server::{BUCKET, SECRET, Server};

#[test]
fn the_server_verifies_signatures() {
    let server = Server::start();
    server.put("put", b"by the API");
    server.write("folder/written", b"as a file");
    let get = |key: &str, secret| server.ask("GET", &format!("/{BUCKET}/{key}"), b"", secret);
    for (key, bytes) in [("put", b"by the API".as_slice()), ("folder/written", b"as a file")] {
        let answer = get(key, Some(SECRET));
        assert_eq!((answer.status, answer.body.as_slice()), (200, bytes), "{key}");
    }
    for (secret, code) in [(Some("another"), "SignatureDoesNotMatch"), (None, "AccessDenied")] {
        let answer = get("put", secret);
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 403, "{body}");
        assert!(body.contains(code), "{body}");
    }
}
