//! Small GETs a second from one thread over keep-alive connections: a number, not a benchmark
//! suite. Usage: `gets ADDRESS PATH_PREFIX COUNT CONNECTIONS SECONDS`, for objects named
//! `PATH_PREFIX000000.bin` and on.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, prefix, count, connections, seconds] = &arguments[..] else {
        return Err("usage: gets ADDRESS PATH_PREFIX COUNT CONNECTIONS SECONDS".into());
    };
    let (count, connections): (u64, u64) = (count.parse()?, connections.parse()?);
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let (next, bytes) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let start = Instant::now();
    for _ in 0..connections {
        let (next, bytes) = (Rc::clone(&next), Rc::clone(&bytes));
        let (address, prefix) = (address.clone(), prefix.clone());
        local.spawn_local(async move {
            let mut stream = TcpStream::connect(address).await.expect("an origin that listens");
            let mut buffer = vec![0; 1 << 20];
            while Instant::now() < end {
                let index = next.get();
                next.set(index + 1);
                let key = index % count;
                let request = format!("GET {prefix}{key:06}.bin HTTP/1.1\r\nHost: x\r\n\r\n");
                stream.write_all(request.as_bytes()).await.expect("a connection that stays");
                let length = answer(&mut stream, &mut buffer).await;
                bytes.set(bytes.get() + length);
            }
        });
    }
    runtime.block_on(local);
    let (elapsed, gets) = (start.elapsed().as_secs_f64(), next.get());
    #[expect(clippy::cast_precision_loss, reason = "a rate with three digits")]
    let (rate, gigabytes) = (gets as f64 / elapsed, bytes.get() as f64 / elapsed / 1e9);
    println!("{gets} GETs, {rate:.0} GETs/s, {gigabytes:.2} GB/s");
    Ok(())
}

/// Reads one answer and returns the length of its body.
async fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> u64 {
    let mut filled = 0;
    loop {
        let count = stream.read(&mut buffer[filled..]).await.expect("an answer");
        assert!(count > 0, "the connection was closed");
        filled += count;
        let Some(end) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&buffer[..end]).expect("a head in ASCII");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let length = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length: usize = length.and_then(|(_, value)| value.parse().ok()).expect("a length");
        let mut left = (end + 4 + length) - filled;
        while left > 0 {
            left -= stream.read(buffer).await.expect("the rest of an answer");
        }
        return length as u64;
    }
}
