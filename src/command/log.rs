//! Log lines of the control plane with `--verbose`: sources, the settings chosen for this machine,
//! the result of each object, and the workers' counters.

use tracing::{debug, enabled, info};

use crate::control::list::sources::{Source, SourceKind};
use crate::download::target::Target;
use crate::engine::config::Config;
use crate::engine::pace::Timeline;
use crate::error::Error;
use crate::files::file_download::FileDownload;
use crate::report::document::{KeptReason, RingUse, Summary, moved};
use crate::sys::uring::SetupMode;
use crate::text::size::{Binary, counted};

/// Logs the kind of each source.
pub(super) fn sources(sources: &[Source]) {
    for source in sources {
        let what = match &source.found {
            SourceKind::Object(object) => format!("one object of {}", Binary(object.size_bytes)),
            SourceKind::Folder { .. } => "everything below it".to_owned(),
            SourceKind::Glob(_) => "every object that matches".to_owned(),
            SourceKind::Prefix { .. } => "every object whose key begins so".to_owned(),
        };
        info!("source {}: {what}", source.uri);
    }
}

/// Logs the settings chosen for this machine.
pub(super) fn config(config: &Config) {
    let (least, most) = (config.pace.start, config.connections());
    let connections = match config.pace.is_adaptive() {
        true => format!("{least} connections, at most {most}"),
        false => counted(most as u64, "connection", "connections"),
    };
    info!(
        "{}, {connections}, parts of {}, {} slots of {}, {} of buffers",
        counted(config.workers as u64, "worker", "workers"),
        Binary(config.part.bytes()),
        config.slots,
        Binary(u64::from(config.slot_length_bytes)),
        Binary(config.memory_bytes),
    );
}

/// Logs the workers' network interfaces and cores.
pub(super) fn places(lines: &[String]) {
    lines.iter().for_each(|line| info!("{line}"));
}

/// Logs a complete object.
pub(super) fn complete(download: &FileDownload, target: &Target) {
    if enabled!(tracing::Level::INFO) {
        info!("{}", line_with_retries(download, target));
    }
}

/// Logs a failed object without an error message of its own, with the cause. An object without one
/// was not complete when its run ended: the cause of that is reported at the end.
pub(super) fn failed(download: &FileDownload, why: Option<&Error>, target: &Target) {
    if enabled!(tracing::Level::INFO) {
        let line = line_with_retries(download, target);
        match why {
            Some(why) => info!("failed: {line}: {why}"),
            None => info!("not complete: {line}"),
        }
    }
}

fn line_with_retries(download: &FileDownload, target: &Target) -> String {
    let line = line(download, target);
    match download.object.retries() {
        0 => line,
        retries => format!("{line} after {}", counted(u64::from(retries), "retry", "retries")),
    }
}

/// Logs a skipped object.
pub(super) fn kept(download: &FileDownload, kept: KeptReason, target: &Target) {
    if enabled!(tracing::Level::DEBUG) {
        debug!("skip {}: {}", line(download, target), kept.explain());
    }
}

fn line(download: &FileDownload, target: &Target) -> String {
    let has_path = !download.path.is_empty();
    let place = has_path.then(|| target.place_of(download)).flatten();
    let (bucket, object) = (&download.object.endpoint.bucket, &download.object.listed);
    moved(bucket, &object.key, place.as_deref(), object.size_bytes)
}

/// Logs decisions of the pace that are new since the last call.
#[derive(Debug, Default)]
pub(super) struct PaceLog {
    logged_us: Option<u64>,
}

impl PaceLog {
    /// Logs the new decisions; `of` is the prefix of their lines.
    pub(super) fn log(&mut self, of: &str, timeline: impl FnOnce() -> (Timeline, Vec<String>)) {
        if !enabled!(tracing::Level::INFO) {
            return;
        }
        let (timeline, endpoints) = timeline();
        for moment in timeline.moments() {
            if self.logged_us.is_some_and(|logged| moment.at_us <= logged) {
                continue;
            }
            self.logged_us = Some(moment.at_us);
            let name = moment.endpoint.filter(|_| endpoints.len() > 1);
            let name = name.and_then(|endpoint| endpoints.get(endpoint.index()));
            let at = name.map(|name| format!(" of {name}")).unwrap_or_default();
            let rate = match moment.requests_per_second {
                Some(rate) => format!(", at most {rate} a second{at}"),
                None => String::new(),
            };
            info!(
                "{of}pace after {:.1} s: {} requests in flight{rate} ({})",
                moment.at_us as f64 / 1e6,
                moment.requests_in_flight,
                moment.change.in_words()
            );
        }
    }
}

/// Logs the workers' use of the kernel, their failures, and the addresses that served the bytes.
pub(super) fn ended(summary: &Summary) {
    if let Some(ring) = &summary.ring {
        info!("{}", ring_in_words(ring));
    }
    for (reason, count) in &summary.sent.retries {
        info!("{} because of {reason}", counted(*count, "retry", "retries"));
    }
    for address in &summary.addresses {
        info!(
            "{}: {}, {}",
            address.address,
            counted(address.connects, "connection", "connections"),
            counted(address.ranges, "range", "ranges")
        );
    }
}

fn ring_in_words(ring: &RingUse) -> String {
    let mode = match ring.mode {
        None => return ring.in_words(),
        Some(SetupMode::DeferTaskrun) => "DEFER_TASKRUN",
        Some(SetupMode::CoopTaskrun) => "COOP_TASKRUN; missing: DEFER_TASKRUN (Linux 6.1)",
        Some(SetupMode::Plain) => {
            "no flags; missing: COOP_TASKRUN (Linux 5.19), DEFER_TASKRUN (Linux 6.1)"
        }
    };
    match ring.registered_slots {
        true => format!("ring: {}, {mode}; slots are registered", ring.kind),
        false => format!("ring: {}, {mode}; slots are not registered", ring.kind),
    }
}
