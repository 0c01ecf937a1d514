//! `inrush demo`: an origin in this process, `get` from it, and a comparison of every byte.
//!
//! The demo runs the real [`get::run`] of the command line, with signed requests over loopback
//! sockets and files on a disk. `dataset` defines the objects, `arguments` the commands, `place`
//! chooses the folder, `verify` compares the files, `table` formats the results.

mod arguments;
mod dataset;
mod place;
mod stream;
mod table;
mod verify;

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use inrush_origin::{Config as OriginConfig, Credentials, Origin, TlsConfig};
use tempfile::NamedTempFile;

use super::context::Context;
use super::ending::Done;
use super::get;
use super::ring;
use super::runtime::on_runtime;
use super::session::Interrupts;
use crate::cli::DemoArgs;
use crate::control::auth::credentials::CredentialSource;
use crate::engine::config::{Config, HostFacts};
use crate::error::{Error, ErrorKind, Result};
use crate::report::document::{Summary, failure_json, summary_json};
use crate::report::progress::Progress;
use crate::s3::sign::SigningKeys;
use crate::sys::choice::RingKind;
use crate::sys::usage;
use crate::text::size::Decimal;
use dataset::Set;
use place::UsableFolder;
use table::{Outcome, Row};
use verify::Findings;

/// Credentials that are valid only for this process's own origin.
const ACCESS_KEY: &str = "INRUSHDEMO";
const SECRET: &str = "for/the/demo/alone";
const REGION: &str = "us-east-1";

/// Runs the demo.
pub(super) fn run(args: &DemoArgs, context: &Arc<Context>) -> Result<Done> {
    let progress = context.messages.progress(!args.output.messages.quiet);
    let resources = get::options(&args.tuning)?;
    let ring = ring::probed(resources.ring)?;
    ring::report_fallback(&ring, context, &progress);
    let config = Config::resolve(resources, HostFacts::read())?;
    let (slot, part) = (u64::from(config.slot_length_bytes), config.part.bytes());
    let others = dataset::sets(0, slot, part).iter().map(Set::bytes).sum();
    let place = UsableFolder::choose(args.size, others)?;
    let sets = dataset::sets(place.large_bytes, slot, part);
    let origin = start_origin(&sets, args.tls, ring.kind)?;
    progress.note(format!(
        "test server on {}, signatures verified; files go to {}{}",
        origin.url(),
        place.folder.display(),
        match args.size.is_none() && place.large_bytes < crate::limits::DEMO_LARGE_BYTES_DEFAULT {
            true => format!(", which has room for {} of large objects", Decimal(place.large_bytes)),
            false => String::new(),
        }
    ));
    let demo = Demo {
        args,
        context,
        origin: &origin,
        progress: &progress,
        bundle: None,
        rows: Vec::new(),
        is_fallback_reported: ring.refused.is_some(),
    };
    let done = on_runtime(ring.choice, context, || demo.run(&place, sets)).and_then(|done| done);
    origin.stop();
    done
}

/// Starts an origin that serves these objects to requests with the demo's credentials.
fn start_origin(sets: &[Set], tls: bool, ring: RingKind) -> Result<Origin> {
    let config = OriginConfig {
        workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        objects: dataset::specs(sets),
        credentials: vec![Credentials::new(ACCESS_KEY, SECRET)],
        region: REGION.to_owned(),
        tls: tls.then(TlsConfig::default),
        io_uring: ring == RingKind::IoUring,
        ..OriginConfig::default()
    };
    Origin::start(config).map_err(|error| {
        Error::new(ErrorKind::Host, format!("cannot start the demo's server: {error}"))
    })
}

/// The running demo.
struct Demo<'a> {
    args: &'a DemoArgs,
    context: &'a Arc<Context>,
    origin: &'a Origin,
    progress: &'a Progress,
    /// With TLS: the certificate authority of the origin.
    bundle: Option<NamedTempFile>,
    rows: Vec<Row>,
    /// The reason for not using io_uring was printed.
    is_fallback_reported: bool,
}

impl Demo<'_> {
    /// Downloads and compares set by set, in a folder that is removed unless it is to be kept.
    async fn run(mut self, place: &UsableFolder, sets: Vec<Set>) -> Result<Done> {
        // From here on an interruption does not kill: the demo always removes its folder.
        let mut signals = Interrupts::listen(self.context)?;
        self.bundle = self.origin.ca_pem().map(write_bundle).transpose()?;
        let begun = now();
        let folder = place.make()?;
        self.progress.note(table::HEADING);
        let mut code = 0;
        let names: Vec<&str> = sets.iter().map(|set| set.name).collect();
        let first = sets.first().cloned().map(Arc::new);
        for set in sets {
            let step = self.step(folder.path(), Arc::new(set), &mut signals).await?;
            if step == ErrorKind::Interrupted.exit_code() {
                return Ok(self.interrupted());
            }
            code = code.max(step);
        }
        for stranger in verify::strangers(folder.path(), &names) {
            self.progress.error(format!("{stranger}: unexpected file"));
            code = code.max(ErrorKind::Objects.exit_code());
        }
        if let Some(set) = first.filter(|_| code == 0) {
            code = self.stream(place, set).await?;
            if code == ErrorKind::Interrupted.exit_code() {
                return Ok(self.interrupted());
            }
        }
        let peak_rss_bytes = usage::peak_rss_bytes();
        let seconds = begun.elapsed().as_secs_f64();
        self.progress.note(table::footnote(peak_rss_bytes));
        for (suite, sessions) in &self.origin.stats().tls_suites {
            self.progress.note(format!("{sessions} TLS sessions with {suite}"));
        }
        let kept = self.args.keep.then(|| folder.keep());
        if let Some(kept) = &kept {
            self.progress.note(format!("files kept in {}", kept.display()));
        }
        let document = self.args.output.json.then(|| {
            let outcome = Outcome {
                version: env!("CARGO_PKG_VERSION"),
                exit_code: code,
                verified: code == 0,
                seconds,
                peak_rss_bytes,
                kept,
                sets: self.rows,
            };
            let kind = ErrorKind::ALL.into_iter().find(|kind| kind.exit_code() == code);
            let failed = kind.map(|kind| Error::new(kind, "the demo failed: see standard error"));
            summary_json(&outcome, failed.as_ref())
        });
        Ok(Done { code, document })
    }

    /// The end of a demo that the user interrupted, which was already reported.
    fn interrupted(&self) -> Done {
        let error = Error::new(ErrorKind::Interrupted, "interrupted");
        let document = self.args.output.json.then(|| failure_json(&error));
        Done { code: error.kind().exit_code(), document }
    }

    /// Downloads one set and compares it; returns the exit code so far.
    async fn step(&mut self, folder: &Path, set: Arc<Set>, signals: &mut Interrupts) -> Result<u8> {
        let destination = folder.join(set.name);
        let keys = SigningKeys::new(ACCESS_KEY, SECRET, None, None)?;
        let args = self.get_args(&set, &destination);
        let ended = get::run(args, CredentialSource::Fixed(keys), now(), self.context).await?;
        let Some(summary) = ended.summary.filter(|_| ended.code == 0) else {
            return Ok(ended.code);
        };
        let Some(findings) = compare(&destination, &set, signals).await else {
            self.progress.error("interrupted: the demo folder is removed");
            return Ok(ErrorKind::Interrupted.exit_code());
        };
        let whole = findings.problem_count == 0
            && findings.bytes == set.bytes()
            && summary.objects == set.items.len() as u64;
        self.report_fallback(&summary);
        let row = Row::new(&set, &summary, whole);
        self.progress.note(row.to_text());
        self.rows.push(row);
        if whole {
            return Ok(0);
        }
        findings.problems.iter().for_each(|problem| self.progress.error(problem));
        self.progress.error(format!(
            "{} of {} objects of '{}' are not what was served: this is a bug in inrush",
            findings.problem_count.max(1),
            set.items.len(),
            set.name
        ));
        Ok(ErrorKind::Objects.exit_code())
    }

    /// Reports why the workers have no io_uring, if the check before them had found one.
    fn report_fallback(&mut self, summary: &Summary) {
        let ring = summary.ring.as_ref().filter(|ring| ring.io_uring_unavailable.is_some());
        if let Some(ring) = ring.filter(|_| !self.is_fallback_reported) {
            self.progress.note(format!("inrush: {}", ring.in_words()));
            self.is_fallback_reported = true;
        }
    }

    /// Serves one set through named pipes to a reader in this process, which compares it.
    async fn stream(&mut self, place: &UsableFolder, set: Arc<Set>) -> Result<u8> {
        let folder = place.make()?;
        let channel = folder.path().join(set.name);
        let keys = SigningKeys::new(ACCESS_KEY, SECRET, None, None)?;
        let args = self.pipe_args(&set, folder.path());
        let reader = {
            let (channel, set) = (channel.clone(), Arc::clone(&set));
            tokio::task::spawn_blocking(move || stream::read_epochs(&channel, &set))
        };
        let begun = now();
        let code = {
            let keys = CredentialSource::Fixed(keys);
            super::stream::pipe(args, keys, begun, self.context).await?.code
        };
        if code != 0 {
            return Ok(code);
        }
        let seconds = begun.elapsed().as_secs_f64();
        match reader.await.expect("the reader does not panic") {
            Ok(bytes) => {
                self.progress.note(table::stream_row(set.name, stream::EPOCHS, bytes, seconds));
                Ok(0)
            }
            Err(problem) => {
                self.progress.error(format!("{problem}: this is a bug in inrush"));
                Ok(ErrorKind::Objects.exit_code())
            }
        }
    }
}

/// The authority's certificate as a temporary file.
fn write_bundle(pem: &str) -> Result<NamedTempFile> {
    let written = NamedTempFile::new().and_then(|mut file| {
        file.write_all(pem.as_bytes())?;
        Ok(file)
    });
    written.map_err(|error| {
        Error::new(ErrorKind::Host, format!("cannot write the demo's certificate: {error}"))
            .advise("set TMPDIR to a writable folder")
            .caused_by(error)
    })
}

/// Compares on a separate thread; `None` if a signal came first.
async fn compare(root: &Path, set: &Arc<Set>, signals: &mut Interrupts) -> Option<Findings> {
    let stop = Arc::new(AtomicBool::new(false));
    let (root, set, stopped) = (root.to_path_buf(), Arc::clone(set), Arc::clone(&stop));
    let comparison =
        tokio::task::spawn_blocking(move || verify::compare(&root, &set, stopped.as_ref()));
    tokio::select! {
        biased;
        () = signals.next() => {
            stop.store(true, Ordering::Relaxed);
            None
        }
        findings = comparison => Some(findings.expect("a comparison does not panic")),
    }
}

/// The current time. Commands are an edge, so this may read the clock.
#[expect(clippy::disallowed_methods, reason = "the demo's only look at the clock")]
fn now() -> Instant {
    Instant::now()
}
