//! `inrush bench`: the stages of a download alone and together, and which one is the limit.
//!
//! Downloads are done by this program itself: one process per run, as its user would start it.
//! `stage` measures one stage: `child` runs a download, `mounted` reads a mount, `local` measures
//! disk and memory, `machine` reads the kernel's counters. After each step all results are written,
//! each file atomically.

mod child;
mod local;
mod machine;
mod mounted;
mod stage;

use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use inrush_origin::{Config as OriginConfig, Credentials, Origin, SyntheticSet};

use super::context::Context;
use super::ending::{Done, exit_code};
use super::ring;
use super::runtime::on_runtime;
use super::session::Interrupts;
use crate::cli::{BenchArgs, ServiceArgs, Stage, TuningArgs};
use crate::download::own_files::FILE_VARIABLES;
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host;
use crate::files::whole_file;
use crate::report::bench::{BenchReport, Setting, page};
use crate::report::out;
use crate::report::progress::Progress;
use crate::sys::usage;
use crate::text::size::Decimal;
use child::Source;

/// Credentials that are valid only for this process's own origin.
const ACCESS_KEY: &str = "INRUSHBENCH";
const SECRET: &str = "for/the/bench/alone";
const REGION: &str = "us-east-1";
const BUCKET: &str = "bench";
/// Number of generated objects without a workload.
const OBJECTS: u64 = 4;
/// Space left free besides the files, in bytes: other programs use this disk, too.
const SPARE_BYTES: u64 = 256 << 20;

/// Formats the results as a file.
type Writer = fn(&BenchReport) -> String;

/// A planned step.
#[derive(Debug, Clone)]
struct Planned {
    stage: Stage,
    setting: Option<Setting>,
}

/// The bench.
struct Bench {
    args: BenchArgs,
    progress: Progress,
    /// Generated objects; and the user's, if any.
    own: Source,
    source: Source,
    /// Bytes of the generated objects.
    bytes: u64,
    report: BenchReport,
}

/// Runs it.
pub(super) fn run(args: BenchArgs, context: &Arc<Context>) -> Result<Done> {
    if args.source.is_some() {
        require_files(&args.how.service)?;
    }
    let progress = context.messages.progress(!args.how.quiet);
    let (count, each) = match &args.how.workload {
        Some(workload) => (workload.count, workload.bytes),
        None => (OBJECTS, (args.how.size / OBJECTS).max(1)),
    };
    let bytes = count.saturating_mul(each);
    let ring = ring::probed(ring::choice(None)?)?;
    let origin = start_origin(count, each)?;
    let own = Source::own(&origin, &format!("s3://{BUCKET}/p/"), (ACCESS_KEY, SECRET, REGION));
    let source = match &args.source {
        None => own.clone(),
        Some(uri) => {
            let below = uri.to_string();
            let uri = match &args.how.workload {
                Some(workload) => format!("{}/{}", below.trim_end_matches('/'), workload.folder),
                None => below,
            };
            Source::of_user(&uri, &args.how.service)
        }
    };
    let report = BenchReport {
        kind: "bench",
        version: env!("CARGO_PKG_VERSION"),
        source: args
            .source
            .as_ref()
            .map_or_else(|| "generated objects".to_owned(), ToString::to_string),
        destination: args.destination.as_ref().map(|folder| folder.display().to_string()),
        workload: args.how.workload.as_ref().map(|workload| workload.name.clone()),
        options: settings(&args.how.tuning),
        processors: usage::processors(),
        warm_up: args.how.warm_up,
        ..BenchReport::default()
    };
    let bench = Bench { args, progress, own, source, bytes, report };
    let done = on_runtime(ring.choice, context, || bench.run(context)).and_then(|done| done);
    origin.stop();
    done
}

/// Refuses pipes for files that each run reads: the first run would empty them.
fn require_files(service: &ServiceArgs) -> Result<()> {
    let ServiceArgs { ca_bundle, sse_c_key_file, .. } = service;
    let options =
        [("--ca-bundle", ca_bundle.clone()), ("--sse-c-key-file", sse_c_key_file.clone())];
    let variables = FILE_VARIABLES.map(|name| (name, std::env::var_os(name).map(PathBuf::from)));
    let is_pipe = |path: &PathBuf| path.metadata().is_ok_and(|it| it.file_type().is_fifo());
    let mut named = options.into_iter().chain(variables);
    let piped = named.find_map(|(name, path)| Some((name, path.filter(is_pipe)?)));
    let Some((name, path)) = piped else { return Ok(()) };
    let message = format!(
        "{name} is {}, a pipe, which can be read once; bench reads it in each run",
        path.display()
    );
    Err(Error::new(ErrorKind::Usage, message).advise(format!("give {name} a regular file")))
}

fn settings(tuning: &TuningArgs) -> Vec<Setting> {
    let given = tuning.given().into_iter();
    given.map(|(name, value)| Setting { name: name.to_owned(), value }).collect()
}

fn start_origin(count: u64, each: u64) -> Result<Origin> {
    let config = OriginConfig {
        workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        synthetic: vec![SyntheticSet::new(BUCKET, "p/", count, each)],
        credentials: vec![Credentials::new(ACCESS_KEY, SECRET)],
        region: REGION.to_owned(),
        ..OriginConfig::default()
    };
    Origin::start(config).map_err(|error| {
        Error::new(
            ErrorKind::Host,
            format!("cannot start the server of generated objects: {error}"),
        )
    })
}

impl Bench {
    async fn run(mut self, context: &Arc<Context>) -> Result<Done> {
        // From here on an interruption does not kill: the bench always removes its folders.
        let mut signals = Interrupts::listen(context)?;
        self.check_space()?;
        // A file that cannot be written is reported before any measurement.
        self.write(false)?;
        let failed = self.steps(&mut signals).await.err();
        self.report.complete = failed.is_none();
        self.report.error = failed.as_ref().map(ToString::to_string);
        self.report.error_kind = failed.as_ref().map(|error| error.reason().name());
        self.report.exit_code = exit_code(failed.as_ref());
        let written = self.write(true);
        if failed.is_none() {
            written?;
        }
        if let Some(error) = &failed {
            context.messages.progress(false).error(error);
        }
        let code = self.report.exit_code;
        if self.args.how.json {
            return Ok(Done { code, document: Some(self.report.to_json()) });
        }
        if failed.is_none() || !self.report.steps.is_empty() {
            out::print(self.report.to_table().as_bytes())?;
        }
        Ok(Done { code, document: None })
    }

    /// Measures all planned steps; results before an error stay in the report.
    async fn steps(&mut self, signals: &mut Interrupts) -> Result<()> {
        for planned in self.plan() {
            self.step(planned, signals).await?;
            self.report.sentence = self.report.verdict();
            self.write(false)?;
        }
        Ok(())
    }

    /// Single stages first, then combined ones; and the sweeps last.
    fn plan(&self) -> Vec<Planned> {
        let has_disk = self.args.destination.is_some();
        let in_memory = self.args.how.workload.as_ref().is_some_and(|workload| workload.in_memory);
        let mut stages = self.args.how.stages.clone();
        if stages.is_empty() {
            stages = vec![Stage::Network, Stage::Pipe, Stage::Tls, Stage::Verification];
            stages.extend(self.args.source.as_ref().map(|_| Stage::Stream));
            if has_disk && !in_memory {
                stages.extend([Stage::Disk, Stage::DiskBuffered, Stage::Get]);
            }
        }
        let swept = Stage::swept(&stages);
        let mut plan: Vec<Planned> =
            stages.into_iter().map(|stage| Planned { stage, setting: None }).collect();
        for sweep in &self.args.how.sweep {
            for value in &sweep.values {
                let setting = Setting { name: sweep.name.to_owned(), value: value.clone() };
                let stage = swept.unwrap_or(Stage::Network);
                plan.push(Planned { stage, setting: Some(setting) });
            }
        }
        plan
    }

    /// Refuses to fill the disk. For the user's objects, `get` itself checks the space.
    fn check_space(&self) -> Result<()> {
        let Some(folder) = &self.args.destination else { return Ok(()) };
        let trouble = |what: String| {
            Error::new(ErrorKind::Destination, what)
                .advise("give an existing, writable folder with room, or a smaller --size")
        };
        if !folder.is_dir() {
            return Err(trouble(format!("{} is not a folder", folder.display())));
        }
        let free = system_host::disk_space(folder).map_or(u64::MAX, |space| space.free_bytes);
        let needed = self.bytes.saturating_add(SPARE_BYTES);
        if free >= needed {
            return Ok(());
        }
        Err(trouble(format!(
            "bench needs {} in {}, and leaves {} free; {} are free there",
            Decimal(self.bytes),
            folder.display(),
            Decimal(SPARE_BYTES),
            Decimal(free)
        )))
    }

    /// Writes all results so far, each file atomically.
    fn write(&self, is_last: bool) -> Result<()> {
        let files: [(&Option<PathBuf>, Writer); 3] = [
            (&self.args.how.report, |report| report.to_json() + "\n"),
            (&self.args.how.csv, BenchReport::to_csv),
            (&self.args.how.html, page),
        ];
        for (path, text) in files {
            let Some(path) = path else { continue };
            // A device or a pipe takes the results only once.
            if !is_last && whole_file::is_special(path) {
                continue;
            }
            let text = text(&self.report);
            whole_file::write_there(path, text.as_bytes(), ".inrush-bench-").map_err(|error| {
                let what = format!("cannot write {}: {error}", path.display());
                Error::new(ErrorKind::Destination, what).advise("give a writable file")
            })?;
        }
        Ok(())
    }
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "interrupted: results are of the steps that were finished")
}

/// The current time. Commands are an edge, so this may read the clock.
#[expect(clippy::disallowed_methods, reason = "the bench's only look at the clock")]
fn now() -> Instant {
    Instant::now()
}
