//! The course of a job once it serves its input: what happens, and what follows from it.

use super::child::{Child, Exit};
use super::failure::Failure;
use super::files::{AllFound, Downloads};
use super::job::Job;
use super::mounts::Mounts;
use super::results::write_failure;
use super::streams::{Streams, StreamsEvent};
use crate::command::session::Interrupts;
use crate::download::cancel::until;
use crate::error::{Error, ErrorKind};
use crate::report::document::AllFilesSummary;
use crate::report::progress::Progress;

/// An event of a running job.
enum Happened {
    /// All channels in File mode are complete, or one has failed.
    Files(Result<(), Failure>),
    /// A channel in Pipe mode has failed, or all epochs have ended.
    Streams(StreamsEvent),
    /// A channel in FastFile mode has failed.
    Mounts(Error),
    /// The command has ended.
    Exit(Exit),
    /// A signal ends a run without a command.
    Signal,
    /// The deadline has passed.
    Late,
}

impl Job<'_> {
    /// Downloads, serves, and waits for the command.
    pub(super) async fn drive(
        &mut self,
        downloads: &Downloads<'_>,
        found: AllFound,
        interrupts: &mut Interrupts,
    ) -> Result<(), Failure> {
        let mut theirs = Interrupts::listen(self.context)?;
        let halt = theirs.halt();
        let mut results = AllFilesSummary::default();
        let outcome = {
            let downloaded = async {
                let ended = downloads.run(found, &mut theirs, &mut results).await;
                ended.map_err(|(error, is_reported)| Failure { error, is_reported, code: None })
            };
            let mut downloaded = std::pin::pin!(downloaded);
            let (mut is_downloaded, mut is_last, mut failure) = (false, false, None);
            let mut deadline = interrupts.deadline();
            while !(is_last && is_downloaded && self.child.is_none()) {
                let is_free = self.child.is_none() && is_downloaded;
                let happened = tokio::select! {
                    done = &mut downloaded, if !is_downloaded => Happened::Files(done),
                    event = next(&mut self.streams, self.progress) => Happened::Streams(event),
                    error = lost(&mut self.mounts, self.progress) => Happened::Mounts(error),
                    exit = ended(&mut self.child) => Happened::Exit(exit),
                    () = interrupts.next(), if is_free => Happened::Signal,
                    () = until(deadline) => Happened::Late,
                };
                is_downloaded |= matches!(happened, Happened::Files(_));
                deadline = deadline.filter(|_| !matches!(happened, Happened::Late));
                is_last |= self.take(happened, is_downloaded, &mut failure).await;
                if is_last || failure.is_some() {
                    // If they are complete this has no effect.
                    halt.notify_one();
                }
            }
            failure.map_or(Ok(()), Err)
        };
        self.files = results;
        outcome
    }

    /// Handles an event; true if nothing else is to be awaited.
    async fn take(
        &mut self,
        happened: Happened,
        is_downloaded: bool,
        failure: &mut Option<Failure>,
    ) -> bool {
        // Further failures are then irrelevant.
        let is_ending = self.child.as_ref().is_some_and(|(child, _)| child.is_ending());
        let is_wanted = self.exit.is_none() && failure.is_none() && !is_ending;
        match happened {
            Happened::Files(Ok(())) => match (self.has_command(), is_wanted) {
                (true, true) if self.child.is_none() => {
                    *failure = self.start_command().err();
                    failure.is_some()
                }
                (true, _) => false,
                // Mounts exist until they are ended.
                (false, _) => self.mounts.is_none() && self.are_streams_over(),
            },
            Happened::Files(Err(error)) if is_wanted => self.fail(error, failure).await,
            Happened::Streams(StreamsEvent::Failed(error)) if is_wanted => {
                self.fail(Failure { error, is_reported: true, code: None }, failure).await
            }
            // The streams may have ended before the halted downloads.
            Happened::Files(Err(_)) => !self.has_command() && self.are_streams_over(),
            Happened::Mounts(error) if is_wanted => self.fail(error.into(), failure).await,
            Happened::Streams(StreamsEvent::Failed(_)) | Happened::Mounts(_) => false,
            Happened::Streams(StreamsEvent::Over) => {
                !self.has_command() && is_downloaded && (self.mounts.is_none() || !is_wanted)
            }
            Happened::Exit(exit) => {
                let started = self.child.take().map(|(_, started)| started);
                let seconds = started.map_or(0.0, |started| started.elapsed().as_secs_f64());
                self.exit = Some((exit, seconds));
                if is_wanted && !is_downloaded {
                    let early = "COMMAND ended before its channels in File mode were complete";
                    self.progress.note(early);
                }
                if let Some(missed) = self.missed().filter(|_| is_wanted) {
                    return self.fail(missed, failure).await;
                }
                true
            }
            Happened::Late if is_wanted => self.end_late(is_downloaded, failure).await,
            // A reader that is blocked after a failure is not waited for any longer.
            Happened::Late => self.child.is_none(),
            Happened::Signal => {
                let left = format!("interrupted: {}", self.left_in_words());
                let error = || Error::new(ErrorKind::Interrupted, left).into();
                failure.get_or_insert_with(error);
                true
            }
        }
    }

    /// Handles a passed deadline: as failed input, but a run without a command ends at once.
    async fn end_late(&mut self, is_downloaded: bool, failure: &mut Option<Failure>) -> bool {
        let left = match (&self.child, is_downloaded) {
            (Some(_), _) => "the command has not ended",
            (None, false) => "the channels in File mode are not complete",
            (None, true) => self.left_in_words(),
        };
        self.streams.iter().for_each(Streams::note_waits);
        let message = format!("the deadline has passed: {left}{}", self.context.blame());
        let error = Error::new(ErrorKind::Deadline, message);
        let error = error.advise("run it again with a longer --deadline");
        if self.child.is_some() {
            return self.fail(error.into(), failure).await;
        }
        // A reader of a pipe cannot be ended: it may look for the cause here when its stream ends.
        write_failure(self.layout, &error, self.progress).await;
        *failure = Some(error.into());
        true
    }

    /// The failure of the input before the command ended: a command that ends at once when its pipe
    /// is removed, or when a read fails, is faster than the next check.
    fn missed(&mut self) -> Option<Failure> {
        let error = self.streams.as_mut().and_then(|streams| streams.take_failure(self.progress));
        if let Some(error) = error {
            return Some(Failure { error, is_reported: true, code: None });
        }
        self.mounts.as_mut().and_then(Mounts::take_failure).map(Failure::from)
    }

    fn are_streams_over(&self) -> bool {
        self.streams.as_ref().is_none_or(Streams::are_over)
    }

    /// The parts of this run that others may use, and that end with it.
    fn left_in_words(&self) -> &'static str {
        match (&self.mounts, &self.streams) {
            (None, _) => "all named pipes that this run made are removed",
            (Some(_), None) => "all mounts are removed",
            (Some(_), Some(_)) => "all mounts and named pipes that this run made are removed",
        }
    }

    /// Handles failed input: a running command is asked to end. The cause is written to the job's
    /// files before: whoever notices the end may look there. True if nothing else is to be awaited.
    async fn fail(&mut self, of: Failure, failure: &mut Option<Failure>) -> bool {
        let (error, has_command) = (of.error.clone(), self.has_command());
        if self.child.is_none() && (has_command || self.streams.is_none()) {
            *failure = Some(of);
            return true;
        }
        if !of.is_reported {
            self.progress.error(&error);
        }
        *failure = Some(Failure { is_reported: true, ..of });
        write_failure(self.layout, &error, self.progress).await;
        if let Some((child, _)) = &mut self.child {
            child.end();
            return false;
        }
        // Readers get no end of file, and the run waits until they have closed their pipes.
        self.streams.as_ref().is_none_or(|streams| {
            streams.fail(&error);
            streams.are_over()
        })
    }
}

/// The next event of the streams; pending forever without streams.
async fn next(streams: &mut Option<Streams>, progress: &Progress) -> StreamsEvent {
    match streams {
        Some(streams) => streams.next(progress).await,
        None => std::future::pending().await,
    }
}

/// The failure of a mount; pending forever without mounts.
async fn lost(mounts: &mut Option<Mounts>, progress: &Progress) -> Error {
    match mounts {
        Some(mounts) => mounts.failure(progress).await,
        None => std::future::pending().await,
    }
}

/// The end of the command; pending forever without one.
async fn ended(child: &mut Option<(Child, tokio::time::Instant)>) -> Exit {
    match child {
        Some((child, _)) => child.ended().await,
        None => std::future::pending().await,
    }
}
