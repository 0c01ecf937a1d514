//! Downloads a folder, and prints how far it is.
//!
//! ```text
//! cargo run --release --example download -- s3://bucket/folder/ DEST
//! ```

#![expect(clippy::print_stdout, reason = "that is where a program says how far it is")]

use inrush::{Client, ClientOptions, Download, DownloadEvent, DownloadSummary, Result};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(source), Some(folder)) = (words.next(), words.next()) else {
        println!("usage: download s3://BUCKET/FOLDER/ DEST");
        return Ok(());
    };
    fetch(&Client::connect(ClientOptions::new())?, &source, &folder).map(drop)
}

pub(crate) fn fetch(client: &Client, source: &str, folder: &str) -> Result<DownloadSummary> {
    let download = Download::new(source, folder).start(client)?;
    for event in download.events() {
        match event {
            DownloadEvent::Progress(now) => {
                println!("{} of {} bytes", now.bytes_done, now.bytes_known);
            }
            DownloadEvent::Failed(object, error) => println!("{}: {error}", object.key),
            _ => {}
        }
    }
    let summary = download.wait()?;
    println!("{} objects in {:.1} s", summary.objects(), summary.elapsed().as_secs_f64());
    Ok(summary)
}
