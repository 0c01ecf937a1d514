//! `inrush verify`: compares existing files with the stored checksums of the source's objects. It
//! downloads nothing and writes only its report, and with `--adopt` marks.

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::context::Context;
use super::ending::{Done, exit_code};
use super::failures::FailureMessages;
use super::own_files::written;
use super::reporting::{finish, keep_up, open};
use super::session::{self, Interrupts};
use crate::control::blocking::{BlockingState, blocking};
use crate::download::cancel::Cancel as _;
use crate::download::failures::Failures;
use crate::download::own_files::TakenPaths;
use crate::download::sources::{self, Narrowed};
use crate::download::target::Target;

use crate::checksum::{Algorithm, InOrder, Sequence, unverified};
use crate::cli::{Destination, VerifyArgs};
use crate::control::Control;
use crate::control::checksum::PartsAsked;
use crate::control::limits::CHECKSUMS_ASKED_MAX;
use crate::control::list::walk::{Entry, Walk};
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::files::file_download::identity_of;
use crate::files::mark::Identity;
use crate::files::system_host::{Adopter, Adoption, Look, Proven, Reader, There};
use crate::limits::{CHECK_PIECE_BYTES, CHECK_READERS_MAX, VERIFY_DESCRIPTORS_BESIDES};
use crate::plan::filter::Filter;
use crate::plan::folding::Folding;
use crate::report::document::{CheckSummary, CheckedLine, Finding};
use crate::report::out::ReportWriter;
use crate::report::progress::{Progress, ProgressState};
use crate::s3::uri::shown;
use crate::sys::{process, usage};
use crate::text::size::counted;

/// Why a correct file is not marked.
const FOREIGN: &str = "its file belongs to another user or has several names (hard links), where \
                       a mark does not count";
/// The state of a run that is interrupted early.
const NOTHING_YET: &str = "before any file was compared";
/// Interval at which progress is updated.
const TICK: Duration = Duration::from_millis(100);

/// Verifies the files.
pub(super) async fn run(
    mut args: VerifyArgs,
    begun: Instant,
    context: &Arc<Context>,
) -> Result<Done> {
    let progress = context.messages.progress(!args.output.messages.quiet);
    process::raise_descriptor_limit();
    let filter = Filter::new(&args.selection.rules)?;
    let mut interrupts = Interrupts::listen(context)?;
    context.leaves(|| {
        "a read of a file, or a write to the reader of the output, has not returned; no data was \
         changed"
            .to_owned()
    });
    let added = sources::add(&mut args.sources, &args.selection, &context.board);
    interrupts.unless_reported(NOTHING_YET, added).await?;
    let found = find(&mut args, filter, (context, &progress), begun);
    let found = interrupts.unless_reported(NOTHING_YET, found).await?;
    // Not earlier: a run that fails early leaves the report of an earlier one.
    let report = open(args.report.as_deref(), &mut interrupts).await?;
    let readers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut check = Check {
        control: found.control.clone(),
        target: found.target,
        taken: found.taken,
        looks: BlockingState::new(found.folder),
        tasks: JoinSet::new(),
        at_once: share().min(CHECKSUMS_ASKED_MAX),
        readers: Rc::new(Semaphore::new(readers.min(CHECK_READERS_MAX))),
        read: Arc::default(),
        strict: args.strict,
        known: ProgressState::default(),
        summary: CheckSummary {
            adopted_objects: found.adopter.is_some().then_some(0),
            ..CheckSummary::default()
        },
        adopter: found.adopter,
        failures: Failures::default(),
        messages: FailureMessages::default(),
        progress,
        report,
    };
    let driven = tokio::select! {
        biased;
        () = interrupts.next() => Err(check.interrupted()),
        driven = check.work(found.walk) => driven,
        () = session::refresh(found.control) => unreachable!("refresh has no end"),
    };
    check.end(driven, begun.elapsed(), args.output.json, &mut interrupts).await
}

/// The share of this process's descriptors for each of: files being read, connections for checksum
/// requests, and open folders.
fn share() -> usize {
    let left = usage::descriptors_max().saturating_sub(VERIFY_DESCRIPTORS_BESIDES);
    usize::try_from(left / 4).unwrap_or(usize::MAX).max(1)
}

/// The sources and the folder.
struct Intake {
    control: Rc<Control>,
    target: Target,
    folder: Reader,
    adopter: Option<Arc<Adopter>>,
    walk: Walk,
    /// Paths of no files that can be compared.
    taken: TakenPaths,
}

async fn find(
    args: &mut VerifyArgs,
    filter: Filter,
    (context, progress): (&Arc<Context>, &Progress),
    begun: Instant,
) -> Result<Intake> {
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, (context, progress)).await?;
    let narrowed = Narrowed { filter, shard: args.shard };
    let (uris, board) = (&mut args.sources, &context.board);
    let narrowed = sources::add_manifest(&control, uris, &args.selection, narrowed, board).await?;
    let Narrowed { filter, shard } = narrowed;
    let sources = control.resolve_all(&args.sources).await?;
    super::log::sources(&sources);
    let many = args.selection.has_more();
    let target = Target::choose(&Destination::Local(args.folder.clone()), &sources, many).await?;
    let folder = target.folder().expect("a local destination has a folder").to_owned();
    let adopts = args.adopt;
    let (folder, adopter) = blocking(move || {
        let adopter = adopts.then(|| Adopter::open(&folder, begun)).transpose()?;
        let reader = Reader::open(&folder)?.with_folders_kept(share());
        Ok::<_, Error>((reader, adopter.map(Arc::new)))
    })
    .await?;
    let walk = Walk::new(control.clone(), sources, filter)?.sharded(shard)?.without_repeated();
    let (folders, written) = (target.owned_folders(), written(args.report.as_ref(), None));
    let taken = blocking(move || TakenPaths::new(Folding::default(), &folders, &written)).await;
    Ok(Intake { control, target, folder, adopter, walk, taken })
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
struct Check {
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
    /// Verifies all objects, and syncs new marks.
    async fn work(&mut self, walk: Walk) -> Result<()> {
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
            self.progress.error(match finding {
                Finding::Missing(_) => error.advise("download it with inrush get"),
                Finding::Mismatch(_) => {
                    error.advise("download it again with inrush get --overwrite always")
                }
                Finding::OtherEtag(_) => error.advise(
                    "omit --strict if the server's ETags are not MD5s; if they are, download it \
                     again with inrush get --overwrite always",
                ),
                Finding::NotValidated(_) => error.advise("omit --strict to let it pass"),
                Finding::NotAdopted(..) => {
                    error.advise("check that it can be written, and that nothing writes to it")
                }
                _ => error,
            });
        }
        Ok(())
    }

    fn draw(&mut self, listing_complete: bool) {
        self.known.listing_complete = listing_complete;
        self.known.bytes_done = self.read.load(Ordering::Relaxed);
        self.progress.update(&self.known);
    }

    fn interrupted(&self) -> Error {
        let objects = counted(self.summary.objects, "object was", "objects were");
        Error::new(ErrorKind::Interrupted, format!("interrupted: {objects} checked"))
    }

    /// Reports the result, and decides the exit code.
    async fn end(
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

fn other_size(found: u64, expected: u64) -> Finding {
    Finding::Mismatch(format!("the file has {found} bytes, the object {expected}"))
}

/// A file of its object's size.
struct VerifiedFile {
    file: OwnedFd,
    size_bytes: u64,
    /// It is to be adopted.
    claim: Option<Claim>,
}

/// The mark for a correct file.
struct Claim {
    adopter: Arc<Adopter>,
    path: String,
    identity: Identity,
}

impl Claim {
    /// Marks a file that was verified.
    fn take(
        &self,
        subject: &VerifiedFile,
        before: Look,
        algorithm: Option<&'static str>,
    ) -> Finding {
        let Self { adopter, path, identity } = self;
        let changed = || Finding::NotAdopted(algorithm, "it changed while it was read".to_owned());
        if before.length_bytes() != subject.size_bytes {
            return changed();
        }
        let named = Algorithm::ALL.into_iter().find(|known| Some(known.name()) == algorithm);
        let verdict = named.map_or(unverified::UNKNOWN, |named| unverified::encode(Ok(named)));
        let proven = Proven { file: &subject.file, path, before, identity: *identity, verdict };
        match adopter.adopt(&proven) {
            Ok(Adoption::Marked) => Finding::Adopted(algorithm),
            Ok(Adoption::Known) => algorithm.map_or(Finding::Empty, Finding::Validated),
            Ok(Adoption::Changed) => changed(),
            Ok(Adoption::Foreign) => Finding::NotAdopted(algorithm, FOREIGN.to_owned()),
            Err(errno) => {
                Finding::NotAdopted(algorithm, format!("its file cannot be marked: {errno}"))
            }
        }
    }
}

impl VerifiedFile {
    /// Reads the file and compares it with a checksum, if it has bytes.
    fn check(&self, goal: Option<InOrder>, read: &AtomicU64) -> Result<Finding, Errno> {
        let before = self.claim.as_ref().map(|_| Look::before(&self.file)).transpose()?;
        let finding = match goal {
            Some(goal) => digest(&self.file, goal, self.size_bytes, read)?,
            None => Finding::Empty,
        };
        Ok(match (&self.claim, before, &finding) {
            (Some(claim), Some(before), Finding::Validated(algorithm)) => {
                claim.take(self, before, Some(algorithm))
            }
            (Some(claim), Some(before), Finding::Empty) => claim.take(self, before, None),
            _ => finding,
        })
    }
}

/// Requests the checksum of an object, and compares its file with it.
async fn compare(
    control: &Control,
    entry: &Entry,
    subject: VerifiedFile,
    readers: &Semaphore,
    read: Arc<AtomicU64>,
) -> Result<Finding> {
    let goal = match subject.size_bytes {
        0 => None,
        _ => match goal(control, entry, PartsAsked::FirstAndLast).await? {
            Ok(goal) => Some(goal),
            Err(reason) => return Ok(Finding::NotValidated(reason)),
        },
    };
    let turn = readers.acquire().await.expect("it is never closed");
    let compared = tokio::task::spawn_blocking(move || subject.check(goal, &read)).await;
    drop(turn);
    let finding = compared.expect("reading does not panic").map_err(|errno| {
        Error::new(ErrorKind::Destination, format!("cannot read its file: {errno}"))
            .advise("check the kernel log: the disk may have lost it")
            .of_call(Some(errno.raw_os_error()))
    })?;
    let Finding::Mismatch(mismatch) = finding else { return Ok(finding) };
    if !goal.is_some_and(|goal| goal.is_of_parts()) {
        return Ok(Finding::Mismatch(mismatch));
    }
    // Its parts may not have the assumed length.
    Ok(match self::goal(control, entry, PartsAsked::All).await {
        Ok(Ok(_)) => Finding::Mismatch(mismatch),
        Ok(Err(reason)) => Finding::NotValidated(reason),
        Err(error) => Finding::Mismatch(format!(
            "{mismatch}; the sizes of its parts, which may differ, are not known: {error}"
        )),
    })
}

/// The checksum to compare with, or why there is none.
async fn goal(
    control: &Control,
    entry: &Entry,
    parts: PartsAsked,
) -> Result<Result<InOrder, &'static str>> {
    let checksums = control.checksum(&entry.endpoint.bucket, &entry.object, parts).await?;
    let stored = match checksums.stored.or_else(|why| checksums.etag.ok_or(why)) {
        Ok(stored) => stored,
        Err(reason) => return Ok(Err(reason)),
    };
    Ok(InOrder::new(stored, checksums.part_bytes).ok_or(unverified::PARTS_DIFFER))
}

/// Reads a file and compares it with a checksum.
fn digest(
    file: &OwnedFd,
    goal: InOrder,
    size_bytes: u64,
    read: &AtomicU64,
) -> Result<Finding, Errno> {
    let piece_bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX).min(CHECK_PIECE_BYTES);
    let mut piece = vec![0; piece_bytes];
    let mut sequence = Sequence::new(goal);
    let mut done = 0;
    // A file that grows meanwhile is read only until that shows.
    while done <= size_bytes {
        match rustix::io::read(file, &mut piece[..]) {
            Ok(0) => break,
            Ok(count) => {
                sequence.update(&piece[..count]);
                read.fetch_add(count as u64, Ordering::Relaxed);
                done += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    if done != size_bytes {
        return Ok(other_size(done, size_bytes));
    }
    Ok(match sequence.finish() {
        Ok(()) => Finding::Validated(goal.algorithm().name()),
        Err(mismatch) if goal.is_etag() => Finding::OtherEtag(mismatch.to_string()),
        Err(mismatch) => Finding::Mismatch(mismatch.to_string()),
    })
}
