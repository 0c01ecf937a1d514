//! A thread that opens named pipes for writing, and blocks in open(2) until each has a reader.
//!
//! No other event reports that a reader waits in open(2) for a writer: inotify(7) reports an open
//! once it has returned, which is after the writer has come. Even a reader that comes and goes at
//! once is noticed, because the kernel counts readers for processes that wait for one.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Code;

use crate::sys::{Handle, descriptor};

type Opened = Result<OwnedFd, Code>;

/// The thread, which ends when this is dropped and its call has returned.
#[derive(Debug)]
pub(super) struct Opener {
    asked: SyncSender<Arc<OwnedFd>>,
    opened: Receiver<Opened>,
    /// Raised when a call has returned.
    event: Handle,
    is_asked: bool,
}

impl Opener {
    /// Starts the thread; `None` if the system has no thread or no descriptor left.
    pub(super) fn start() -> Option<Self> {
        let event = descriptor::event_counter().ok()?;
        let (asked, pipes) = sync_channel::<Arc<OwnedFd>>(1);
        let (report, opened) = sync_channel(1);
        let raised = event.clone();
        let work = move || {
            while let Ok(pipe) = pipes.recv() {
                if report.send(open(&pipe)).is_err() {
                    return;
                }
                descriptor::raise(&raised);
            }
        };
        let thread = std::thread::Builder::new().name("inrush-open".to_owned());
        thread.spawn(work).ok()?;
        Some(Self { asked, opened, event, is_asked: false })
    }

    /// Requests the opening of this pipe, unless a request is pending. Returns the counter that is
    /// raised when [`Self::take`] has the result.
    pub(super) fn ask(&mut self, pipe: &Arc<OwnedFd>) -> Option<Handle> {
        self.is_asked = self.is_asked || self.asked.try_send(Arc::clone(pipe)).is_ok();
        self.is_asked.then(|| self.event.clone())
    }

    /// The requested pipe, once it has a reader, or the error of opening it.
    pub(super) fn take(&mut self) -> Option<Opened> {
        let opened = match self.opened.try_recv() {
            Err(TryRecvError::Empty) => return None,
            opened => opened.unwrap_or(Err(Code::IO)),
        };
        self.is_asked = false;
        Some(opened)
    }

    /// Waits for the end of a call whose pipe has a reader now, and closes what it opened.
    pub(super) fn finish(&mut self) {
        if std::mem::take(&mut self.is_asked) {
            drop(self.opened.recv());
        }
    }
}

/// Blocks until this pipe has a reader, and opens it.
fn open(pipe: &OwnedFd) -> Opened {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let file = loop {
        match rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Code::INTR) => {}
            opened => break opened?,
        }
    };
    rustix::fs::fcntl_setfl(&file, OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify;

    use super::super::fifos::Fifos;
    use super::*;

    /// The pipes of a channel in a folder, and the folder.
    fn pipes() -> (Fifos, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = rustix::fs::open(folder.path(), OFlags::RDONLY, Mode::empty());
        let opened = Arc::new(opened.expect("the folder"));
        (Fifos::new(opened, "c".to_owned(), None), folder)
    }

    /// Waits until a counter is raised, and lowers it.
    fn wait(event: &Handle) {
        let Handle::Descriptor(descriptor) = event else { panic!("a descriptor") };
        let longest = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&longest));
        assert_eq!(ready, Ok(1), "it is raised");
        descriptor::lower(event);
    }

    #[test]
    fn a_reader_is_seen_that_has_left_already() {
        let (mut fifos, folder) = pipes();
        for epoch in 0..3 {
            fifos.offer(epoch).expect("a pipe");
            assert!(fifos.open(epoch).expect("it is there").is_none());
            let event = fifos.await_reader(epoch).expect("a thread");
            assert!(fifos.open(epoch).expect("it is there").is_none());
            assert!(fifos.await_reader(epoch).is_some(), "as often as one likes");
            let path = folder.path().join(format!("c_{epoch}"));
            drop(rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("it has a writer"));
            wait(&event);
            let opened = fifos.open(epoch).expect("it is there").expect("open");
            let flags = rustix::fs::fcntl_getfl(&opened).expect("flags");
            assert!(flags.contains(OFlags::NONBLOCK), "its calls do not wait");
            fifos.withdraw(epoch);
        }
    }

    /// A descriptor for reading would be a reader as long as a child that is forked meanwhile has a
    /// copy of it.
    #[test]
    fn a_wait_opens_the_pipe_for_nothing() {
        let (mut fifos, folder) = pipes();
        fifos.offer(0).expect("a pipe");
        let events = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify(7)");
        let path = folder.path().join("c_0");
        inotify::add_watch(&events, &path, inotify::WatchFlags::OPEN).expect("the pipe");
        let seen = || rustix::io::read(&events, &mut [0; 4096]).map(|bytes| bytes > 0);
        assert!(fifos.open(0).expect("it is there").is_none());
        assert!(fifos.await_reader(0).is_some());
        assert_eq!(seen(), Err(Code::AGAIN), "nobody has opened it");
        drop(rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()));
        assert_eq!(seen(), Ok(true), "a reader is an event");
    }

    #[test]
    fn a_wait_ends_with_its_pipe_and_another_follows() {
        let (mut fifos, folder) = pipes();
        for epoch in 0..4 {
            fifos.offer(epoch).expect("a pipe");
            assert!(fifos.open(epoch).expect("it is there").is_none());
            assert!(fifos.await_reader(epoch).is_some());
            match epoch % 2 {
                0 => fifos.withdraw(epoch),
                _ => assert!(fifos.retire(epoch).is_none(), "nobody reads"),
            }
            assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
        }
    }

    #[test]
    fn a_pipe_that_is_removed_meanwhile_is_an_error() {
        let (mut fifos, folder) = pipes();
        fifos.offer(0).expect("a pipe");
        assert!(fifos.open(0).expect("it is there").is_none());
        assert!(fifos.await_reader(0).is_some());
        std::fs::remove_file(folder.path().join("c_0")).expect("the pipe");
        assert!(fifos.open(0).is_err());
    }

    #[test]
    fn a_reader_of_another_pipe_that_has_left_hides_no_replaced_one() {
        let (mut fifos, folder) = pipes();
        fifos.offer(0).expect("a pipe");
        assert!(fifos.open(0).expect("it is there").is_none());
        let event = fifos.await_reader(0).expect("a thread");
        let (path, moved) = (folder.path().join("c_0"), folder.path().join("moved"));
        std::fs::rename(path, &moved).expect("the pipe");
        drop(rustix::fs::open(moved, OFlags::RDONLY, Mode::empty()).expect("it has a writer"));
        wait(&event);
        assert!(fifos.open(0).is_err());
    }
}
