//! What is decided, and why, in lines on standard error: `--verbose`.
//!
//! Events come from the control plane's thread alone, by `tracing`: a worker logs nothing, and what
//! it did is told from what it counted. Without `--verbose` nobody listens, and an event costs one
//! comparison. Of the libraries below only warnings could be of use to users, and those come as
//! errors: their events are left out.

use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{MakeWriter, layer};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::report::progress;
use crate::text::shown::shown;

/// The events of this crate begin so.
const TARGET: &str = "inrush";

/// Logs from here on: decisions, files and retries once `--verbose` is given, every request of the
/// control plane when it is given twice. Does nothing for 0.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::INFO,
        2.. => LevelFilter::DEBUG,
    };
    progress::show_stages();
    let lines = layer().with_writer(Lines).with_ansi(false).without_time();
    let lines = lines.with_level(false).with_target(false);
    let chosen = lines.with_filter(Targets::new().with_target(TARGET, level));
    // A process has one: only its first command begins to log.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(chosen));
}

/// Standard error, a line for each event.
#[derive(Debug)]
struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { level: "info" }
    }

    fn make_writer_for(&'a self, about: &tracing::Metadata<'_>) -> Line {
        let is_more = *about.level() >= tracing::Level::DEBUG;
        Line { level: if is_more { "debug" } else { "info" } }
    }
}

#[derive(Debug)]
struct Line {
    level: &'static str,
}

impl Write for Line {
    /// Writes an event; names in it come from the world.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = shown(text.trim_end_matches('\n'));
        let line = progress::as_json(self.level, &text).unwrap_or_else(|| text.to_string());
        let line = format!("{line}\n");
        progress::above_bar(|| io::stderr().write_all(line.as_bytes()))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
