//! Reads an object in ranges, many at once, and prints how fast they come.
//!
//! ```text
//! cargo run --release --example ranges -- s3://bucket/key [ENDPOINT_URL]
//! ```

#![expect(clippy::disallowed_methods, reason = "it measures how long it takes")]
#![expect(clippy::print_stdout, reason = "that is where a program says what it came to")]

use std::time::{Duration, Instant};

use inrush::{
    Client, ClientOptions, Destination, Engine, EngineOptions, Priority, Request, Result,
};

/// Bytes of one request.
const PART_BYTES: u64 = 8 << 20;
/// Requests that are asked for at once: what they bring takes memory.
const UNDER_WAY_MAX: usize = 64;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let Some(uri) = words.next() else {
        println!("usage: ranges s3://BUCKET/KEY [ENDPOINT_URL]");
        return Ok(());
    };
    let options = ClientOptions::new();
    let options = match words.next() {
        Some(url) => options.endpoint_url(url).region("us-east-1").anonymous(),
        None => options,
    };
    let client = Client::connect(options)?;
    let object = client.head(&uri)?;
    let engine = Engine::start(&client, EngineOptions::new())?;
    let requests = engine.requests()?;
    let begun = Instant::now();
    let (mut next, mut bytes) = (0, 0);
    while next < object.size_bytes() || requests.under_way() > 0 {
        while next < object.size_bytes() && requests.under_way() < UNDER_WAY_MAX {
            let range = next..object.size_bytes().min(next + PART_BYTES);
            next = range.end;
            let length = usize::try_from(range.end - range.start).expect("a few megabytes");
            let into = Destination::Memory(vec![0; length]);
            let (object, token) = (object.clone(), range.start);
            let priority = Priority::Normal;
            requests.submit(Request { object, range, into, priority, token })?;
        }
        for completion in requests.wait(Duration::from_secs(1)) {
            completion.result?;
            if let Destination::Memory(part) = completion.into {
                bytes += part.len();
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{bytes} bytes in {seconds:.3} s: {:.3} GB/s", bytes as f64 / seconds / 1e9);
    Ok(())
}
