//! The log on standard error (`--verbose`): decisions and their reasons.
//!
//! Only the control plane's thread emits events (`tracing`). Workers log nothing; their counts are
//! logged instead. Without `--verbose` there is no subscriber, and an event costs one comparison.
//! Events of dependencies are left out: only their warnings could help users, and those also come
//! as errors.

use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{MakeWriter, layer};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::report::progress::Messages;
use crate::report::stderr;
use crate::text::shown::shown;

/// The target prefix of this crate's events.
const TARGET: &str = "inrush";

/// Starts the log: decisions, files and retries with one `--verbose`, every control-plane request
/// with two. Does nothing for 0.
pub fn start(verbose: u8, messages: &Messages) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::INFO,
        2.. => LevelFilter::DEBUG,
    };
    let lines = layer().with_writer(Lines(messages.clone())).with_ansi(false).without_time();
    let lines = lines.with_level(false).with_target(false);
    let chosen = lines.with_filter(Targets::new().with_target(TARGET, level));
    // A process has one subscriber: only its first command starts the log.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(chosen));
}

/// Standard error, with a line for each event.
#[derive(Debug)]
struct Lines(Messages);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { messages: &self.0, level: "info" }
    }

    fn make_writer_for(&'a self, about: &tracing::Metadata<'_>) -> Line<'a> {
        let is_more = *about.level() >= tracing::Level::DEBUG;
        Line { messages: &self.0, level: if is_more { "debug" } else { "info" } }
    }
}

#[derive(Debug)]
struct Line<'a> {
    messages: &'a Messages,
    level: &'static str,
}

impl Write for Line<'_> {
    /// Writes an event. It may contain names from outside, so control characters are escaped.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = shown(text.trim_end_matches('\n'));
        let line = stderr::as_json(self.level, &text).unwrap_or_else(|| text.to_string());
        self.messages.above_bar(|| stderr::line(&line));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
