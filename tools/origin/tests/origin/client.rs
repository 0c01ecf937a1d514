//! The least a client can do: plain sockets, one request, and an answer as far as it came.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use inrush_origin::Origin;

/// One answer: head as text, body as far as it came, and how the body ended if it ended early.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) end: Option<io::Error>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

pub(crate) fn send(stream: &mut TcpStream, line: &str, headers: &str) {
    let host = if headers.to_ascii_lowercase().contains("host:") { "" } else { "Host: x\r\n" };
    stream.write_all(format!("{line} HTTP/1.1\r\n{host}{headers}\r\n").as_bytes()).unwrap();
}

pub(crate) fn receive(stream: &mut TcpStream, has_body: bool) -> io::Result<Answer> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut answer = Answer { head, body: Vec::new(), end: None };
    let length = answer.header("content-length").map_or(0, |text| text.parse().unwrap());
    let mut buffer = vec![0; 1 << 16];
    while has_body && answer.body.len() < length {
        let most = buffer.len().min(length - answer.body.len());
        match stream.read(&mut buffer[..most]) {
            Ok(0) => {
                answer.end = Some(io::ErrorKind::UnexpectedEof.into());
                break;
            }
            Ok(count) => answer.body.extend_from_slice(&buffer[..count]),
            Err(error) => {
                answer.end = Some(error);
                break;
            }
        }
    }
    Ok(answer)
}

pub(crate) fn try_ask(address: SocketAddr, line: &str, headers: &str) -> io::Result<Answer> {
    let mut stream = connect(address);
    send(&mut stream, line, headers);
    receive(&mut stream, !line.starts_with("HEAD"))
}

pub(crate) fn ask(origin: &Origin, line: &str, headers: &str) -> Answer {
    try_ask(origin.address(), line, headers).unwrap()
}
