//! Measures one stage: warms up, repeats its run, and takes what is typical of the runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::child::{Child, RunResult};
use super::{Bench, Planned, interrupted, local, machine, mounted};
use crate::cli::Stage;
use crate::command::session::Interrupts;
use crate::error::{Error, ErrorKind, Result};
use crate::mount::serving::mounting::hindrance;
use crate::report::bench::{Measured, Setting, Step};

impl Bench {
    /// Measures one stage with one setting.
    pub(super) async fn step(&mut self, planned: Planned, signals: &mut Interrupts) -> Result<()> {
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
                if let Some(hindrance) = hindrance() {
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
