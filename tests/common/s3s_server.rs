//! An S3 server by other people, in this process: `s3s-fs` over a folder, signatures verified.
//!
//! It listens on loopback only and stops when it is dropped. Objects get in by its own API, or, to
//! save time, as files below its root, where it looks for them. What it answers wrongly:
//!
//! * Asked for `encoding-type=url`, it says so in its answer and then lists keys unencoded. A key
//!   with `%` or `+` cannot be read from such a page, so the tests put none into this server.
//! * It ignores `If-Match`, and lists objects without entity tags.
//! * Without a PUT by its API, it computes the MD5 of the whole file for every GET.

#[path = "open_files.rs"]
mod open_files;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::sync::oneshot;

/// The access key that the server knows.
pub(crate) const ACCESS_KEY: &str = "AKIDS3S";
/// Its secret.
pub(crate) const SECRET: &str = "s3s/secret+key";
/// The bucket that is there from the start.
pub(crate) const BUCKET: &str = "lab";
/// Longest time for one exchange of the helper itself.
const EXCHANGE_SECONDS: u64 = 60;

/// A running server; it stops when dropped.
pub(crate) struct Server {
    address: SocketAddr,
    root: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// An answer: status and body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Server {
    /// Serves an empty bucket.
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(root.path().join(BUCKET)).expect("the bucket's folder");
        let files = s3s_fs::FileSystem::new(root.path()).expect("the server's root");
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET));
        let service = builder.build();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let address = listener.local_addr().expect("the listener's address");
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || serve(listener, service, stopped));
        Self { address, root, stop: Some(stop), thread: Some(thread) }
    }

    /// The endpoint in path style.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts an object in as a file, which takes any key that is a path.
    pub(crate) fn write(&self, key: &str, bytes: &[u8]) {
        let path: PathBuf = self.root.path().join(BUCKET).join(key);
        fs::create_dir_all(path.parent().expect("a key below its bucket")).expect("folders");
        fs::write(path, bytes).expect("the object's file");
    }

    /// Puts an object in by the server's API, which then remembers its MD5.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let answer = self.ask("PUT", &format!("/{BUCKET}/{key}"), bytes, Some(SECRET));
        assert_eq!(answer.status, 200, "PUT {key}: {}", String::from_utf8_lossy(&answer.body));
    }

    /// One request to `target`, which is encoded already; signed when there is a secret.
    pub(crate) fn ask(
        &self,
        method: &str,
        target: &str,
        body: &[u8],
        secret: Option<&str>,
    ) -> Answer {
        let url = format!("{}{target}", self.url());
        let host = self.address.to_string();
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             content-length: {}\r\n",
            body.len()
        );
        for (name, value) in
            secret.map(|secret| signature(method, &url, &host, secret)).iter().flatten()
        {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        let limit = Some(Duration::from_secs(EXCHANGE_SECONDS));
        stream.set_read_timeout(limit).expect("a limit on reading");
        stream.set_write_timeout(limit).expect("a limit on writing");
        stream.write_all(head.as_bytes()).expect("the head is sent");
        stream.write_all(body).expect("the body is sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the answer ends");
        parse(&answer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server's thread ends well");
        }
    }
}

/// The server's thread: until `stopped` says so, or its other end is gone.
fn serve(listener: TcpListener, service: S3Service, stopped: oneshot::Receiver<()>) {
    open_files::allow_all();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for the server");
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        while let Ok((stream, _)) = listener.accept().await {
            // Head and body are two writes: without this, each answer waits for a delayed ACK.
            stream.set_nodelay(true).expect("a socket that takes options");
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service.clone());
            tokio::spawn(connection);
        }
    });
    // An error means that the sender was dropped, which is the signal to stop.
    let _ = runtime.block_on(stopped);
}

/// The headers of a signature, made by AWS's own crate and not by the code under test.
fn signature(method: &str, url: &str, host: &str, secret: &str) -> Vec<(String, String)> {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    let identity = Credentials::new(ACCESS_KEY, secret, None, None, "test").into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name("s3")
        .time(SystemTime::now())
        .settings(settings)
        .build()
        .expect("complete parameters")
        .into();
    let headers = [("host", host)].into_iter();
    let request = SignableRequest::new(method, url, headers, SignableBody::UnsignedPayload)
        .expect("a request that can be signed");
    let (instructions, _) = sign(request, &params).expect("a signature").into_parts();
    instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Status and body of an answer that ended with its connection.
fn parse(answer: &[u8]) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(answer).expect("an answer in HTTP");
    let httparse::Status::Complete(length) = parsed else { panic!("an answer cut short") };
    Answer { status: response.code.expect("a status"), body: answer[length..].to_vec() }
}
