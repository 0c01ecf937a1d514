//! The check of all objects: which files are looked at, read and compared at the same time, and
//! what is known so far.

use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::Intake;
use super::compare::{Claim, VerifiedFile, compare, other_size};
use crate::command::ending::{Done, exit_code};
use crate::command::failures::FailureMessages;
use crate::command::reporting::{finish, keep_up};
use crate::command::session::Interrupts;
use crate::control::Control;
use crate::control::blocking::{BlockingState, blocking};
use crate::control::limits::CHECKSUMS_ASKED_MAX;
use crate::control::list::walk::{Entry, Walk};
use crate::download::failures::Failures;
use crate::download::own_files::TakenPaths;
use crate::download::target::Target;
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::files::file_download::identity_of;
use crate::files::system_host::{Adopter, Reader, There};
use crate::limits::{CHECK_READERS_MAX, VERIFY_DESCRIPTORS_BESIDES};
use crate::report::document::{CheckSummary, CheckedLine, Finding};
use crate::report::out::ReportWriter;
use crate::report::progress::{Progress, ProgressState};
use crate::s3::uri::shown;
use crate::sys::usage;
use crate::text::size::counted;

/// Interval at which progress is updated.
const TICK: Duration = Duration::from_millis(100);

/// The share of this process's descriptors for each of: files being read, connections for checksum
/// requests, and open folders.
pub(super) fn share() -> usize {
    let left = usage::descriptors_max().saturating_sub(VERIFY_DESCRIPTORS_BESIDES);
    usize::try_from(left / 4).unwrap_or(usize::MAX).max(1)
}

/// An object, the path of its file, and the file's state; without a path the reason.
type Looked = (Entry, String, Result<There>);

/// An object, the path of its file, and the result.
struct Checked {
    entry: Entry,
    path: String,
    found: Result<Finding>,
}

/// The objects in progress, and the results so far.
pub(super) struct Check {
    control: Rc<Control>,
    target: Target,
    /// Where the run writes files of its own.
    taken: TakenPaths,
    /// Checks files on a helper thread.
    looks: BlockingState<Reader, Vec<Looked>>,
    tasks: JoinSet<Checked>,
    /// Most tasks at once.
    at_once: usize,
    /// Limits the number of files read at once.
    readers: Rc<Semaphore>,
    /// Bytes of files that were read.
    read: Arc<AtomicU64>,
    strict: bool,
    known: ProgressState,
    summary: CheckSummary,
    adopter: Option<Arc<Adopter>>,
    failures: Failures,
    messages: FailureMessages,
    progress: Progress,
    report: Option<ReportWriter>,
}

impl Check {
    /// The check of these objects, none of which is looked at yet.
    pub(super) fn new(
        found: Intake,
        strict: bool,
        progress: Progress,
        report: Option<ReportWriter>,
    ) -> Self {
        let Intake { control, target, folder, adopter, taken } = found;
        let readers = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            control,
            target,
            taken,
            looks: BlockingState::new(folder),
            tasks: JoinSet::new(),
            at_once: share().min(CHECKSUMS_ASKED_MAX),
            readers: Rc::new(Semaphore::new(readers.min(CHECK_READERS_MAX))),
            read: Arc::default(),
            strict,
            known: ProgressState::default(),
            summary: CheckSummary {
                adopted_objects: adopter.is_some().then_some(0),
                ..CheckSummary::default()
            },
            adopter,
            failures: Failures::default(),
            messages: FailureMessages::default(),
            progress,
            report,
        }
    }

    /// Verifies all objects, and syncs new marks.
    pub(super) async fn work(&mut self, walk: Walk) -> Result<()> {
        self.drive(walk).await?;
        match &self.adopter {
            Some(adopter) if self.summary.adopted_objects > Some(0) => {
                let adopter = Arc::clone(adopter);
                blocking(move || adopter.sync()).await
            }
            _ => Ok(()),
        }
    }

    /// Verifies all objects of the listing, including those that were listed before the listing
    /// failed.
    async fn drive(&mut self, mut walk: Walk) -> Result<()> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut waiting = Vec::new().into_iter();
        let mut listed = None;
        loop {
            let room = self.at_once - self.tasks.len();
            if room > 0 && !self.looks.is_busy() && !waiting.as_slice().is_empty() {
                self.look(waiting.by_ref().take(room));
            }
            let wants_more = listed.is_none() && waiting.as_slice().is_empty();
            let behind = self.report.as_ref().is_some_and(ReportWriter::is_behind);
            tokio::select! {
                () = keep_up(self.report.as_ref()), if behind => {}
                looked = self.looks.next(), if self.looks.is_busy() && !behind => {
                    looked.into_iter().try_for_each(|looked| self.begin(looked))?;
                }
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() && !behind => {
                    self.note(done.expect("a check is not given up and does not panic"))?;
                }
                batch = walk.next_batch(), if wants_more => match batch {
                    Ok(Some(batch)) => waiting = batch.into_iter(),
                    Ok(None) => {
                        if let Some(repeated) = walk.repeated() {
                            self.progress.note(repeated);
                        }
                        listed = Some(Ok(()));
                    }
                    Err(error) => listed = Some(Err(error)),
                },
                _ = tick.tick() => self.draw(listed.is_some()),
            }
            if let Some(ended) = &listed
                && self.tasks.is_empty()
                && !self.looks.is_busy()
                && waiting.as_slice().is_empty()
            {
                return ended.clone();
            }
        }
    }

    /// Starts checking the files of these objects.
    fn look(&mut self, entries: impl Iterator<Item = Entry>) {
        let path = |entry: &Entry| {
            let path = self.target.path(entry)?;
            self.taken.require_free(&path).map(|()| path)
        };
        let paths: Vec<_> = entries.map(|entry| (path(&entry), entry)).collect();
        self.known.objects_known += paths.len() as u64;
        self.looks.begin(move |folder, given_up| {
            let paths = paths.into_iter().take_while(|_| !given_up.get());
            let look = |(path, entry): (Result<String>, Entry)| match path {
                Ok(path) => {
                    let there = folder.look(&path);
                    (entry, path, there)
                }
                Err(error) => (entry, String::new(), Err(error)),
            };
            paths.map(look).collect()
        });
    }

    /// Takes the state of an object's file, and starts reading it if that is not conclusive.
    fn begin(&mut self, (entry, path, there): Looked) -> Result<()> {
        let size_bytes = entry.object.size_bytes;
        let found = match there {
            // The other files would fail alike.
            Err(error) if error.kind() == ErrorKind::Host => return Err(error),
            Err(error) => Err(error),
            Ok(There::Folder) if entry.folder => Ok(Finding::Empty),
            Ok(There::Folder) => Ok(Finding::Missing("it is a folder".to_owned())),
            Ok(There::File(..)) if entry.folder => {
                Ok(Finding::Missing("it is a file, not a folder".to_owned()))
            }
            Ok(There::Nothing(why)) => Ok(Finding::Missing(why)),
            Ok(There::File(_, size)) if size != size_bytes => Ok(other_size(size, size_bytes)),
            Ok(There::File(..)) if size_bytes == 0 && self.adopter.is_none() => Ok(Finding::Empty),
            Ok(There::File(file, _)) => {
                self.known.bytes_known = self.known.bytes_known.saturating_add(size_bytes);
                let (control, readers) = (Rc::clone(&self.control), Rc::clone(&self.readers));
                let read = Arc::clone(&self.read);
                let claim = self.claim(&entry, &path);
                self.tasks.spawn_local(async move {
                    let subject = VerifiedFile { file, size_bytes, claim };
                    let found = compare(&control, &entry, subject, &readers, read).await;
                    Checked { entry, path, found }
                });
                return Ok(());
            }
        };
        self.note(Checked { entry, path, found })
    }

    /// The mark for a file if it is correct.
    fn claim(&self, entry: &Entry, path: &str) -> Option<Claim> {
        let adopter = Arc::clone(self.adopter.as_ref()?);
        let identity = identity_of(&entry.endpoint.bucket, &entry.object)?;
        Some(Claim { adopter, path: path.to_owned(), identity })
    }

    /// Counts and reports a result.
    fn note(&mut self, checked: Checked) -> Result<()> {
        let Checked { entry, path, found } = checked;
        let (bucket, object) = (&entry.endpoint.bucket, &entry.object);
        let (finding, kind, reason) = match found {
            Ok(finding) => (finding, ErrorKind::Objects, ErrorReason::Integrity),
            Err(error) => (Finding::Unknown(error.to_string()), error.kind(), error.reason()),
        };
        self.known.objects_done += 1;
        if let Finding::NotValidated(_) = finding {
            // It is not read after all.
            self.known.bytes_known = self.known.bytes_known.saturating_sub(object.size_bytes);
        }
        self.summary.count(&finding, object.size_bytes, self.strict);
        if let Some(report) = &mut self.report {
            let line = CheckedLine::new(bucket, object, &path, &finding, self.strict);
            report.line(&line.to_json())?;
        }
        let Some(failure) = finding.failure(self.strict) else { return Ok(()) };
        let error = Error::new(kind, failure).because(reason);
        let name = format!("verify s3://{bucket}/{}", shown(&object.key));
        let error = error.within(&name);
        self.failures.add(&error);
        if self.messages.is_reported_of(&name, &error) {
            self.progress.error(with_advice(error, &finding));
        }
        Ok(())
    }

    fn draw(&mut self, listing_complete: bool) {
        self.known.listing_complete = listing_complete;
        self.known.bytes_done = self.read.load(Ordering::Relaxed);
        self.progress.update(&self.known);
    }

    /// The error of a check that a signal ends.
    pub(super) fn interrupted(&self) -> Error {
        let objects = counted(self.summary.objects, "object was", "objects were");
        Error::new(ErrorKind::Interrupted, format!("interrupted: {objects} checked"))
    }

    /// Reports the result, and decides the exit code.
    pub(super) async fn end(
        &mut self,
        driven: Result<()>,
        elapsed: Duration,
        json: bool,
        interrupts: &mut Interrupts,
    ) -> Result<Done> {
        self.progress.finish();
        if let Some(rest) = self.messages.rest() {
            self.progress.error(rest);
        }
        let reported = if let Some(report) = self.report.take() {
            let stopped = driven.as_ref().err().map(Error::kind);
            finish(report, stopped, interrupts).await
        } else {
            Ok(())
        };
        let passed = self.summary.objects - self.summary.failed_objects;
        let failed = driven.as_ref().err().cloned().or_else(|| self.failures.error(passed));
        let failed = failed.or_else(|| reported.as_ref().err().cloned());
        let code = exit_code(failed.as_ref());
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let (read, retries) = (self.read.load(Ordering::Relaxed), self.control.retries());
        self.summary.end(read, elapsed_us, &retries, code);
        self.summary.clock_correction_seconds = self.control.clock_ahead_seconds();
        for error in [driven.err(), reported.err()].into_iter().flatten() {
            self.progress.error(error);
        }
        self.summary.lines().into_iter().for_each(|line| self.progress.note(line));
        let document = json.then(|| self.summary.to_json(failed.as_ref()));
        Ok(Done { code, document })
    }
}

/// Adds what a user can do about this finding.
fn with_advice(error: Error, finding: &Finding) -> Error {
    match finding {
        Finding::Missing(_) => error.advise("download it with inrush get"),
        Finding::Mismatch(_) => {
            error.advise("download it again with inrush get --overwrite always")
        }
        Finding::OtherEtag(_) => error.advise(
            "omit --strict if the server's ETags are not MD5s; if they are, download it again \
             with inrush get --overwrite always",
        ),
        Finding::NotValidated(_) => error.advise("omit --strict to let it pass"),
        Finding::NotAdopted(..) => {
            error.advise("check that it can be written, and that nothing writes to it")
        }
        _ => error,
    }
}
