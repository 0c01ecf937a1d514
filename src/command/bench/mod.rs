//! `inrush bench`: the stages of a download alone and together, and which one is the limit.
//!
//! Downloads are done by this program itself: one process per run, as its user would start it.
//! `child` runs it, `mounted` reads a mount, `local` measures disk and memory, `machine` reads the
//! kernel's counters. After each step all results are written, each file atomically.

mod child;
mod local;
mod machine;
mod mounted;

use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use inrush_origin::{Config as OriginConfig, Credentials, Origin, SyntheticSet};
use tempfile::TempDir;

use super::context::Context;
use super::ending::{Done, exit_code};
use super::mount;
use super::ring;
use super::runtime::on_runtime;
use super::session::Interrupts;
use super::whole_file;
use crate::cli::{BenchArgs, ServiceArgs, Stage, TuningArgs};
use crate::download::own_files::FILE_VARIABLES;
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host;
use crate::report::bench::{BenchReport, Measured, Setting, Step, page};
use crate::report::out;
use crate::report::progress::Progress;
use crate::sys::usage;
use crate::text::size::Decimal;
use child::{Child, RunResult, Source};

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

/// The words of the options of all steps, and of the swept option instead: those that affect this
/// stage.
fn words(options: &[Setting], swept: Option<&Setting>, stage: Stage) -> Vec<String> {
    let is_taken = |option: &&Setting| stage.takes(&option.name);
    let is_replaced = |option: &&Setting| {
        let swept = swept.map(|swept| swept.name.as_str());
        swept == Some(&option.name)
            || swept == Some("connections") && option.name == "max-connections"
    };
    let fixed = options.iter().filter(|option| !is_replaced(option));
    let options = fixed.chain(swept).filter(is_taken);
    options.flat_map(|set| [format!("--{}", set.name), set.value.clone()]).collect()
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

    /// Measures one stage with one setting.
    async fn step(&mut self, planned: Planned, signals: &mut Interrupts) -> Result<()> {
        let Planned { stage, setting } = planned;
        let set =
            setting.as_ref().map_or(String::new(), |set| format!(" {}={}", set.name, set.value));
        self.progress.note(format!("{}{set}", stage.name()));
        for _ in 0..self.args.how.warm_up {
            if !self.measure(stage, setting.as_ref(), signals).await?.is_there() {
                return Ok(());
            }
        }
        let before = machine::read();
        let (mut runs, mut all) = (Vec::new(), Vec::new());
        for _ in 0..self.args.how.runs {
            let result = self.measure(stage, setting.as_ref(), signals).await?;
            match result.measured {
                Some(measured) => runs.push(measured),
                None => return Ok(()),
            }
            all.push(result);
        }
        let counted = machine::read().since(&before);
        let step = Step::new(stage.name(), setting, runs);
        let median = step.bytes_per_second.median;
        // Notes of one run are those of the run in the table.
        let far = |result: &RunResult| {
            result.measured.map_or(f64::MAX, |run| (run.bytes_per_second - median).abs())
        };
        let typical = all.into_iter().min_by(|one, other| far(one).total_cmp(&far(other)));
        let RunResult { limit, latencies, course, pace, .. } = typical.unwrap_or_default();
        self.report.steps.push(Step { limit, latencies, course, pace, counted, ..step });
        Ok(())
    }

    /// Measures one run.
    async fn measure(
        &mut self,
        stage: Stage,
        setting: Option<&Setting>,
        signals: &mut Interrupts,
    ) -> Result<RunResult> {
        let options = words(&self.report.options, setting, stage);
        let stop = Arc::new(AtomicBool::new(false));
        match stage {
            Stage::Network => {
                let more = ["--discard", "--verify", "off"].map(str::to_owned);
                let child = Child::new("get", &self.source).with(more).with(options);
                child.run(signals).await
            }
            Stage::Get => {
                let folder = self.folder()?;
                let place = folder.path().join("data").display().to_string();
                let child = Child::new("get", &self.source).with([place]).with(options);
                child.run(signals).await
            }
            Stage::Pipe | Stage::Stream => {
                let source = if stage == Stage::Pipe { &self.own } else { &self.source };
                let folder = temporary(&std::env::temp_dir())?;
                let channel = folder.path().join("bench");
                let words = [channel.display().to_string(), "--epochs".into(), "1".into()];
                let child = Child::new("pipe", source).with(words).with(options);
                child.run_with_reader(&channel, signals).await
            }
            Stage::Mount => {
                if let Some(hindrance) = mount::hindrance() {
                    self.skip(format!("mount: {hindrance}"));
                    return Ok(RunResult::default());
                }
                let folder = temporary(&std::env::temp_dir())?;
                mounted::run(&self.source, options, folder.path(), signals).await
            }
            Stage::Disk | Stage::DiskBuffered => {
                let (folder, bytes) = (self.folder()?, self.bytes);
                let (path, stopped) = (folder.path().to_owned(), Arc::clone(&stop));
                let direct = stage == Stage::Disk;
                let work = move || local::write(&path, bytes, direct, &stopped);
                let result = interruptible(work, &stop, signals).await?;
                // Before the folder is removed.
                drop(folder);
                self.or_skip(stage, result)
            }
            Stage::Tls | Stage::Verification => {
                let bytes = self.bytes.min(local::MEMORY_BYTES_MAX);
                let stopped = Arc::clone(&stop);
                let work = move || match stage {
                    Stage::Tls => Ok(local::encrypt(bytes, &stopped)),
                    _ => Ok(local::sum(bytes, &stopped)),
                };
                let result = interruptible(work, &stop, signals).await?;
                self.or_skip(stage, result)
            }
        }
    }

    /// The result, or a note that it cannot be measured here.
    fn or_skip(&mut self, stage: Stage, result: std::io::Result<Measured>) -> Result<RunResult> {
        match result {
            Ok(measured) => Ok(RunResult { measured: Some(measured), ..RunResult::default() }),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                self.skip(format!("{}: the file system has no O_DIRECT", stage.name()));
                Ok(RunResult::default())
            }
            Err(error) => {
                let what = format!("cannot write to the destination: {error}");
                Err(Error::new(ErrorKind::Destination, what).advise("see df and the permissions"))
            }
        }
    }

    fn skip(&mut self, why: String) {
        self.progress.note(&why);
        self.report.skipped.push(why);
    }

    /// A temporary folder at the destination.
    fn folder(&self) -> Result<TempDir> {
        temporary(self.args.destination.as_deref().unwrap_or(Path::new(".")))
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

fn temporary(below: &Path) -> Result<TempDir> {
    tempfile::Builder::new().prefix("inrush-bench-").tempdir_in(below).map_err(|error| {
        let message = format!("cannot make a folder in {}: {error}", below.display());
        Error::new(ErrorKind::Destination, message).advise("give a writable folder")
    })
}

/// Runs `work` on a separate thread, which a signal ends.
async fn interruptible<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    stop: &AtomicBool,
    signals: &mut Interrupts,
) -> Result<T> {
    let mut work = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        done = &mut work => return Ok(done.expect("it does not panic")),
        () = signals.next() => stop.store(true, Ordering::Relaxed),
    }
    // It checks that soon, and its files are removed after it.
    let _ = work.await;
    Err(interrupted())
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "interrupted: results are of the steps that were finished")
}

/// The current time. Commands are an edge, so this may read the clock.
#[expect(clippy::disallowed_methods, reason = "the bench's only look at the clock")]
fn now() -> Instant {
    Instant::now()
}
