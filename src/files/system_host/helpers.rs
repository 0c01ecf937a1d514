//! Runs a worker's file jobs: on the worker's own thread while calls are fast, on helper threads
//! once they are slow ([`Calls`]).
//!
//! Helpers start on demand, each with a host of its own that shares the open folders. A job whose
//! call never returns blocks one helper; the run waits for it, but a signal or the deadline still
//! ends the run.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{SystemHost, parts};
use crate::error::Error;
use crate::files::file_download::FileDownload;
use crate::files::host::{FileDone, FileError, FileHost, FileJob, FileTask, Host, SlotBytes};
use crate::files::sink::calls::Calls;
use crate::sys::{Errno, Handle, descriptor};

/// A worker's jobs in progress.
#[derive(Debug, Default)]
pub(super) struct Desk {
    calls: Calls,
    ended: VecDeque<FileDone>,
    helpers: Option<Helpers>,
    /// Maximum number of helpers, and the event counter that they raise when a job has ended.
    terms: Option<(usize, Handle)>,
}

impl Desk {
    /// Takes back the small object of a job that has not begun.
    fn recall(&mut self) -> Option<FileTask> {
        let mut state = self.helpers.as_ref()?.shared.lock();
        let is_small = |task: &FileTask| matches!(task.job, FileJob::WriteWhole(_));
        let found = state.waiting.iter().position(is_small)?;
        state.waiting.remove(found)
    }

    fn note(&mut self, done: &FileDone) {
        if done.task.job.indicates_pace() {
            self.calls.note(done.took_us);
        }
    }
}

/// The helper threads of a worker.
#[derive(Debug)]
struct Helpers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    most: usize,
}

/// What a worker and its helpers share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified when there is a job, and at the end.
    work: Condvar,
    counter: Handle,
}

#[derive(Debug, Default)]
struct State {
    /// Jobs that have not begun. A worker bounds their number.
    waiting: VecDeque<FileTask>,
    ended: VecDeque<FileDone>,
    /// Helpers that wait for a job.
    idle: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code below panics halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SystemHost {
    /// Allows up to `most` helper threads, which raise this event counter. Each destination gets
    /// its share, so that a slow one does not delay the others.
    #[must_use]
    pub fn with_helpers(mut self, most: usize, counter: Handle) -> Self {
        let most = (most / (self.others.len() + 1)).max(1);
        let others = std::mem::take(&mut self.others).into_iter();
        self.others = others.map(|other| other.with_helpers(most, counter.clone())).collect();
        self.desk.terms = Some((most, counter));
        self
    }

    /// A host for a helper of this one.
    fn helper(&mut self) -> Self {
        let (folders, seed) = (self.folders.clone(), self.random());
        let published = Arc::clone(&self.published);
        let machine = Self::new(self.begun, seed, None, published, self.keeping);
        Self {
            folders,
            attributes_refused: self.attributes_refused,
            index_begun: self.index_begun,
            ..machine
        }
    }

    /// Gives a job to a helper; returns it if there can be none.
    fn hand_over(&mut self, task: FileTask) -> Option<FileTask> {
        let Some((most, counter)) = self.desk.terms.clone() else { return Some(task) };
        let helpers = self.desk.helpers.take();
        let mut helpers = helpers.unwrap_or_else(|| Helpers::new(most, counter));
        if helpers.is_short() {
            helpers.spawn(self.helper());
        }
        let left = if helpers.threads.is_empty() {
            Some(task)
        } else {
            helpers.give(task);
            None
        };
        self.desk.helpers = Some(helpers);
        left
    }

    /// Runs a job on this thread.
    fn carry_out(&mut self, task: FileTask) -> FileDone {
        let before_us = self.now_us();
        let outcome = self.outcome_of(&task);
        FileDone { task, outcome, took_us: self.now_us() - before_us }
    }

    /// Runs a job on a helper thread. A panic must not leave the worker waiting forever, so it
    /// becomes an error that ends the run.
    fn carry_out_safely(&mut self, task: FileTask) -> FileDone {
        let before_us = self.now_us();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.outcome_of(&task)));
        let outcome = outcome.unwrap_or_else(|_| {
            let path = self.folders().root.place(&task.download.path);
            Err(FileError::new("see the bug reported above:", path, Errno::IO))
        });
        FileDone { task, outcome, took_us: self.now_us() - before_us }
    }

    fn outcome_of(&mut self, task: &FileTask) -> Result<bool, FileError> {
        let download = &task.download;
        let done = match (&task.job, download.created_file()) {
            (FileJob::MakeFolder, _) => self.make_folder(&download.path),
            (FileJob::WriteWhole(piece), _) => {
                self.write_whole(download, piece.as_ref().map_or(&[], SlotBytes::bytes))
            }
            (FileJob::Create, _) => return self.create_once(download),
            (FileJob::Note { index, prefix_bytes }, Some(file)) => {
                parts::note(file, *index, *prefix_bytes);
                Ok(())
            }
            (FileJob::Publish, Some(file)) => self.publish(file, download),
            (FileJob::Abandon, Some(file)) => {
                self.abandon(file, download.can_go_on());
                Ok(())
            }
            (FileJob::Note { .. } | FileJob::Publish | FileJob::Abandon, None) => Ok(()),
        };
        done.map(|()| true)
    }

    /// Creates a large object's file unless it exists; concurrent callers wait.
    fn create_once(&mut self, download: &FileDownload) -> Result<bool, FileError> {
        let mut outcome = Ok(false);
        let _ = download.file(|| {
            let file = self.create(download);
            outcome = file.as_ref().map(|_| true).map_err(Clone::clone);
            file.map_err(|error| {
                let ends_run = error.ends_run();
                let error = Error::from(error).within(download.object.name());
                let _ = ends_run && download.fail_at_place(&error);
                error
            })
        });
        outcome
    }
}

impl FileHost for SystemHost {
    fn begin(&mut self, task: FileTask) {
        // The hosts of further destinations have no others.
        let number = task.download.place.and_then(|place| usize::from(place).checked_sub(1));
        if let Some(other) = number.and_then(|number| self.others.get_mut(number)) {
            return other.begin(task);
        }
        let is_slow = self.desk.calls.are_slow();
        let ours = if is_slow { self.hand_over(task) } else { Some(task) };
        if let Some(task) = ours {
            let done = self.carry_out(task);
            self.desk.note(&done);
            self.desk.ended.push_back(done);
        }
    }

    fn finished(&mut self) -> Option<FileDone> {
        let desk = &mut self.desk;
        if desk.ended.is_empty()
            && let Some(helpers) = &desk.helpers
        {
            let ended = std::mem::take(&mut helpers.shared.lock().ended);
            ended.iter().for_each(|done| desk.note(done));
            desk.ended = ended;
        }
        let others = &mut self.others;
        desk.ended.pop_front().or_else(|| others.iter_mut().find_map(Self::finished))
    }

    fn recall(&mut self) -> Option<FileTask> {
        self.desk.recall().or_else(|| self.others.iter_mut().find_map(Self::recall))
    }
}

impl Helpers {
    fn new(most: usize, counter: Handle) -> Self {
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), counter };
        Self { shared: Arc::new(shared), threads: Vec::new(), most }
    }

    /// Starts one more. If the system has no room for it, the existing ones do all jobs.
    fn spawn(&mut self, machine: SystemHost) {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("inrush-files".to_owned());
        self.threads.extend(thread.spawn(move || help(&shared, machine)));
    }

    /// True if all helpers are busy and another one is allowed.
    fn is_short(&self) -> bool {
        let state = self.shared.lock();
        state.idle <= state.waiting.len() && self.threads.len() < self.most
    }

    /// Queues a job.
    fn give(&self, task: FileTask) {
        self.shared.lock().waiting.push_back(task);
        self.shared.work.notify_one();
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let left = {
            let mut state = self.shared.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(left);
        self.shared.work.notify_all();
        // A panicking worker does not wait for a call that may never return.
        if !std::thread::panicking() {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

/// A helper's thread: runs jobs until the worker has ended.
fn help(shared: &Shared, mut machine: SystemHost) {
    while let Some(task) = next(shared) {
        let done = machine.carry_out_safely(task);
        let is_first = {
            let mut state = shared.lock();
            state.ended.push_back(done);
            state.ended.len() == 1
        };
        // The worker takes all ended jobs at once.
        if is_first {
            descriptor::raise(&shared.counter);
        }
    }
}

fn next(shared: &Shared) -> Option<FileTask> {
    let mut state = shared.lock();
    loop {
        if let Some(task) = state.waiting.pop_front() {
            return Some(task);
        }
        if state.closed {
            return None;
        }
        state.idle += 1;
        state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::super::tests::{machine, names, object};
    use super::*;
    use crate::error::ErrorKind;

    fn task(download: &Arc<FileDownload>, job: FileJob) -> FileTask {
        FileTask { token: 0, download: Arc::clone(download), job }
    }

    /// The next result that the event counter announces; fails if none comes within a minute.
    fn wait(machine: &mut SystemHost, counter: &Handle) -> FileDone {
        let Handle::Descriptor(descriptor) = counter else { unreachable!("a counter") };
        loop {
            descriptor::lower(counter);
            if let Some(done) = machine.finished() {
                return done;
            }
            let mut polls = [rustix::event::PollFd::new(descriptor, rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
            let woken = rustix::event::poll(&mut polls, Some(&limit)).expect("a poll");
            assert!(woken > 0, "nobody raised the counter");
        }
    }

    /// Runs `during` while every call for this object waits.
    fn while_held(download: &Arc<FileDownload>, during: impl FnOnce()) {
        let (begun, has_begun) = channel();
        let (release, released) = channel::<()>();
        let held = Arc::clone(download);
        let holder = std::thread::spawn(move || {
            let _ = held.file(|| {
                begun.send(()).expect("somebody waits");
                let _ = released.recv();
                Err(Error::new(ErrorKind::Host, "not this time"))
            });
        });
        has_begun.recv().expect("it is held");
        during();
        drop(release);
        holder.join().expect("no panic");
    }

    #[test]
    fn quick_jobs_are_done_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let counter = descriptor::event_counter().expect("a descriptor");
        let mut machine = machine(folder.path()).with_helpers(2, counter);
        for path in ["a/1", "a/2", "b"] {
            // Calls were fast so far, however busy this machine is.
            machine.desk.calls = Calls::default();
            machine.begin(task(&Arc::new(object(path, 0)), FileJob::WriteWhole(None)));
            let done = machine.finished().expect("it is done");
            assert_eq!((done.outcome, done.task.download.path.as_str()), (Ok(true), path));
        }
        assert!(machine.desk.helpers.is_none() && machine.finished().is_none());
        assert_eq!(names(&folder.path().join("a")), ["1", "2"]);
    }

    #[test]
    fn a_call_that_does_not_come_back_keeps_no_other_object_waiting() {
        let folder = tempfile::tempdir().expect("a folder");
        let counter = descriptor::event_counter().expect("a descriptor");
        let mut machine = machine(folder.path()).with_helpers(2, counter.clone());
        machine.desk.calls.note(u64::MAX);
        let large = Arc::new(object("large", 5 << 20));
        while_held(&large, || {
            machine.begin(task(&large, FileJob::Create));
            for path in ["x/1", "x/2", "x/3"] {
                machine.begin(task(&Arc::new(object(path, 0)), FileJob::WriteWhole(None)));
            }
            let mut ended: Vec<String> =
                (0..3).map(|_| wait(&mut machine, &counter).task.download.path.clone()).collect();
            ended.sort_unstable();
            assert_eq!(ended, ["x/1", "x/2", "x/3"]);
            assert_eq!(names(&folder.path().join("x")), ["1", "2", "3"]);
            assert!(machine.finished().is_none(), "the call is held");
        });
        let done = wait(&mut machine, &counter);
        assert_eq!((done.outcome, done.task.download.path.as_str()), (Ok(false), "large"));
    }

    #[test]
    fn what_has_not_begun_is_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let counter = descriptor::event_counter().expect("a descriptor");
        let mut machine = machine(folder.path()).with_helpers(1, counter.clone());
        machine.desk.calls.note(u64::MAX);
        let large = Arc::new(object("large", 5 << 20));
        while_held(&large, || {
            machine.begin(task(&large, FileJob::Create));
            machine.begin(task(&Arc::new(object("f/", 0)), FileJob::MakeFolder));
            machine.begin(task(&Arc::new(object("x", 0)), FileJob::WriteWhole(None)));
            let back = machine.recall().expect("it waits");
            assert_eq!(back.download.path, "x");
            assert!(machine.recall().is_none(), "folders are made, and files that are begun");
        });
        let ended = [wait(&mut machine, &counter), wait(&mut machine, &counter)];
        assert_eq!(ended.map(|done| done.task.download.path.clone()), ["large", "f/"]);
        assert_eq!(names(folder.path()), ["f"]);
    }
}
