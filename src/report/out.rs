//! Standard output for data, and files for reports.
//!
//! Messages for people go to standard error: see [`crate::report::progress`]. A reader that closes
//! standard output early (`inrush ls .. | head`) ends the output, not the run's success.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::io::{self, BufWriter, ErrorKind as Io, StdoutLock, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::FileType;
use tokio::sync::Notify;
use tokio::task::{spawn_blocking, spawn_local};

use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::sys::descriptor;

/// io_uring's error if the kernel has no thread for an operation.
const CANCELED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

/// Buffer size of an output in bytes: some hundred lines per system call.
const BUFFER_BYTES: usize = 64 << 10;

/// Maximum bytes of report lines queued behind a write in progress: about a thousand lines.
const REPORT_WAITING_BYTES_MAX: usize = 4 * BUFFER_BYTES;

/// Standard output, locked. Writes wait for space, also if it is non-blocking.
#[derive(Debug)]
pub struct Stdout(StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        descriptor::write_all(self.0.as_fd(), bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Lines for standard output.
#[derive(Debug)]
pub struct Lines<W: Write = Stdout> {
    writer: BufWriter<W>,
    gone: bool,
}

impl Lines {
    /// Locks standard output for this writer.
    #[must_use]
    pub fn stdout() -> Self {
        Self::to(Stdout(io::stdout().lock()))
    }
}

impl<W: Write> Lines<W> {
    fn to(writer: W) -> Self {
        Self { writer: BufWriter::with_capacity(BUFFER_BYTES, writer), gone: false }
    }

    /// Writes one line; returns `Break` if the reader is gone.
    ///
    /// # Errors
    /// If standard output cannot be written for another reason, such as a full disk.
    pub fn line(&mut self, text: &str) -> Result<ControlFlow<()>> {
        self.attempt(|writer| writeln!(writer, "{text}"))
    }

    /// Writes bytes unchanged; returns `Break` if the reader is gone.
    ///
    /// # Errors
    /// As for [`Self::line`].
    pub fn raw(&mut self, bytes: &[u8]) -> Result<ControlFlow<()>> {
        self.attempt(|writer| writer.write_all(bytes))
    }

    /// Writes buffered data; for streams with pauses.
    ///
    /// # Errors
    /// As for [`Self::line`].
    pub fn flush(&mut self) -> Result<ControlFlow<()>> {
        self.attempt(BufWriter::flush)
    }

    fn attempt(
        &mut self,
        write: impl FnOnce(&mut BufWriter<W>) -> io::Result<()>,
    ) -> Result<ControlFlow<()>> {
        if self.gone {
            return Ok(ControlFlow::Break(()));
        }
        match write(&mut self.writer) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == Io::BrokenPipe => {
                self.gone = true;
                Ok(ControlFlow::Break(()))
            }
            Err(error) => {
                let message = format!("cannot write to standard output: {error}");
                Err(Error::new(ErrorKind::Destination, message).because(reason(&error)))
            }
        }
    }
}

/// The reason of an output error, for programs.
fn reason(error: &io::Error) -> ErrorReason {
    match error.kind() {
        Io::StorageFull | Io::QuotaExceeded => ErrorReason::NoSpace,
        _ => ErrorReason::LocalIo,
    }
}

/// Prints all bytes to standard output.
///
/// # Errors
/// As for [`Lines::line`]; a reader that is gone is no error.
pub fn print(bytes: &[u8]) -> Result<()> {
    let mut lines = Lines::stdout();
    let _ = lines.raw(bytes)?;
    let _ = lines.flush()?;
    Ok(())
}

/// Prints help or a usage error to the right stream. Returns the exit code: 0, 2, or that of a
/// standard output that cannot be written.
#[must_use]
pub fn leave(refusal: &clap::Error) -> u8 {
    let printed = refusal.print().and_then(|()| io::stdout().flush());
    match printed {
        // Standard error failed, so the failure cannot be reported.
        _ if refusal.use_stderr() => ErrorKind::Usage.exit_code(),
        Err(error) if error.kind() != Io::BrokenPipe => {
            let _ = writeln!(io::stderr(), "error: cannot write to standard output: {error}");
            ErrorKind::Destination.exit_code()
        }
        _ => 0,
    }
}

/// A file of lines, such as the report of every object. The runtime's ring writes it, or a helper
/// thread if there is no ring, so a slow disk or a pipe without reader blocks nothing else.
///
/// The file keeps an earlier run's lines until the first lines are written, or until
/// [`Self::finish`].
///
/// Clones write to the same file; each may be finished separately.
#[derive(Debug, Clone)]
pub struct ReportWriter {
    shared: Rc<WriterState>,
}

/// The open file.
enum File {
    /// Written through the runtime's ring, which does not exist with musl.
    #[cfg(not(target_env = "musl"))]
    Ring(tokio_uring::fs::File),
    /// Written by a helper thread.
    Plain(Arc<OwnedFd>),
}

impl File {
    /// Opens or creates the file; with `empties` truncates it.
    #[cfg_attr(
        target_env = "musl",
        expect(unused_variables, reason = "with musl there is no runtime with a ring")
    )]
    async fn open(path: &Path, ring: bool, empties: bool) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags, open};
        #[cfg(not(target_env = "musl"))]
        if ring {
            let mut options = tokio_uring::fs::OpenOptions::new();
            let options = options.write(true).create(true).truncate(empties);
            return options.open(path).await.map(Self::Ring);
        }
        let path = path.to_owned();
        let mut flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        flags.set(OFlags::TRUNC, empties);
        let opened = spawn_blocking(move || open(&path, flags, Mode::from_raw_mode(0o666)));
        Ok(Self::Plain(Arc::new(opened.await.expect("opening a file does not panic")?)))
    }

    /// Appends bytes to a file that is `end_bytes` long, and returns their buffer.
    #[cfg_attr(
        target_env = "musl",
        expect(unused_variables, reason = "other writes go where the last one ended")
    )]
    async fn append(&self, bytes: Vec<u8>, end_bytes: u64) -> (io::Result<()>, Vec<u8>) {
        match self {
            #[cfg(not(target_env = "musl"))]
            Self::Ring(file) => file.write_all_at(bytes, end_bytes).await,
            Self::Plain(file) => {
                let file = Arc::clone(file);
                let written =
                    spawn_blocking(move || (descriptor::write_all(file.as_fd(), &bytes), bytes));
                written.await.expect("a write does not panic")
            }
        }
    }
}

/// State shared by the writer, its clones and its writing task.
struct WriterState {
    /// The file as opened, with an earlier run's lines.
    found: File,
    /// The truncated file; unset for a pipe or a device, which cannot be truncated.
    emptied: OnceCell<File>,
    path: PathBuf,
    ring: bool,
    is_regular: bool,
    state: RefCell<QueuedLines>,
    /// Notified when a write has ended.
    ended: Notify,
}

impl fmt::Debug for WriterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterState").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct QueuedLines {
    /// Lines that are queued for the file.
    waiting: Vec<u8>,
    /// Their offset in the file.
    offset_bytes: u64,
    /// A write is in progress.
    writing: bool,
    /// The error of a failed write; no further lines are taken.
    failed: Option<io::Error>,
}

impl ReportWriter {
    /// Opens or creates the file; with `ring` inside a tokio-uring runtime.
    ///
    /// # Errors
    /// If it cannot be written; the caller learns this before any data is transferred.
    pub async fn create(path: &Path, ring: bool) -> Result<Self> {
        match File::open(path, ring, false).await {
            Ok(found) => {
                let looked = path.to_owned();
                let kind = spawn_blocking(move || rustix::fs::stat(&looked)).await;
                let kind = kind.expect("a look at a file does not panic");
                let kind = kind.map(|found| FileType::from_raw_mode(found.st_mode));
                let shared = Rc::new(WriterState {
                    found,
                    emptied: OnceCell::new(),
                    path: path.to_owned(),
                    ring,
                    is_regular: kind.is_ok_and(|kind| kind == FileType::RegularFile),
                    state: RefCell::default(),
                    ended: Notify::new(),
                });
                Ok(Self { shared })
            }
            // io_uring opens it in a kernel thread, which counts against the user's limit.
            Err(error) if error.raw_os_error() == Some(CANCELED) => {
                let why = format!("{error}, when creating the report {}", path.display());
                Err(Error::no_thread(why))
            }
            Err(error) => {
                let message = format!("create the report {}: {error}", path.display());
                Err(Error::new(ErrorKind::Destination, message)
                    .because(reason(&error))
                    .advise("give --report a file in a writable folder")
                    .of_call(error.raw_os_error()))
            }
        }
    }

    /// Adds a line. It is written soon, at the latest by [`Self::finish`].
    ///
    /// # Errors
    /// If an earlier write failed.
    pub fn line(&mut self, line: &str) -> Result<()> {
        let mut state = self.shared.state.borrow_mut();
        if let Some(error) = &state.failed {
            return Err(self.trouble(error));
        }
        state.waiting.extend_from_slice(line.as_bytes());
        state.waiting.push(b'\n');
        if state.waiting.len() >= BUFFER_BYTES && !state.writing {
            state.writing = true;
            drop(spawn_local(Rc::clone(&self.shared).write()));
        }
        Ok(())
    }

    /// True if the queue is full: add no lines before [`Self::keep_up`] returns.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let state = self.shared.state.borrow();
        state.writing && state.waiting.len() >= REPORT_WAITING_BYTES_MAX
    }

    /// Waits until the queue has room. The future may be dropped and made again.
    pub async fn keep_up(&self) {
        while self.is_behind() {
            self.shared.ended.notified().await;
        }
    }

    /// True if no line has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let state = self.shared.state.borrow();
        state.offset_bytes == 0 && state.waiting.is_empty() && !state.writing
    }

    /// Writes all queued lines.
    ///
    /// # Errors
    /// If a write fails.
    pub async fn finish(self) -> Result<()> {
        // A spawned task writes: if this future were the writer and were dropped, clones would wait
        // forever for the end of its write.
        if !std::mem::replace(&mut self.shared.state.borrow_mut().writing, true) {
            drop(spawn_local(Rc::clone(&self.shared).write()));
        }
        while self.shared.state.borrow().writing {
            self.shared.ended.notified().await;
        }
        match &self.shared.state.borrow().failed {
            Some(error) => Err(self.trouble(error)),
            None => Ok(()),
        }
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    fn trouble(&self, error: &io::Error) -> Error {
        let message = format!("write the report {}: {error}", self.shared.path.display());
        Error::new(ErrorKind::Destination, message).because(reason(error)).caused_by_io(error)
    }
}

impl WriterState {
    /// The file to write to; a regular file is truncated on first use.
    async fn file(&self) -> io::Result<&File> {
        if !self.is_regular {
            return Ok(&self.found);
        }
        if self.emptied.get().is_none() {
            // Only one task writes at a time, so the cell is still unset.
            let _ = self.emptied.set(File::open(&self.path, self.ring, true).await?);
        }
        Ok(self.emptied.get().unwrap_or(&self.found))
    }

    /// Writes the queue, including lines added meanwhile, until it is empty.
    async fn write(self: Rc<Self>) {
        let file = match self.file().await {
            Ok(file) => file,
            Err(error) => {
                let mut state = self.state.borrow_mut();
                state.failed = Some(error);
                state.writing = false;
                self.ended.notify_waiters();
                return;
            }
        };
        loop {
            let (lines, offset_bytes) = {
                let mut state = self.state.borrow_mut();
                if state.waiting.is_empty() || state.failed.is_some() {
                    state.writing = false;
                    break;
                }
                (std::mem::take(&mut state.waiting), state.offset_bytes)
            };
            let (written, mut lines) = file.append(lines, offset_bytes).await;
            let mut state = self.state.borrow_mut();
            state.offset_bytes += lines.len() as u64;
            state.failed = written.err();
            if state.waiting.is_empty() {
                // The buffer is reused.
                lines.clear();
                state.waiting = lines;
            }
            drop(state);
            self.ended.notify_waiters();
        }
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the case on both runtimes of the control plane.
    fn with_and_without_a_ring(case: impl AsyncFn(bool)) {
        #[cfg(not(target_env = "musl"))]
        tokio_uring::start(case(true));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, case(false));
    }

    /// A pipe in a folder, and both its ends: opening it does not block, and nobody reads it.
    fn unread_pipe(folder: &Path) -> (PathBuf, OwnedFd) {
        let path = folder.join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
        let both = rustix::fs::OFlags::RDWR;
        let reader = rustix::fs::open(&path, both, mode).expect("a pipe");
        (path, reader)
    }

    /// Reads `count` bytes in a thread.
    fn read(reader: OwnedFd, count: usize) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = vec![0; count];
            let mut done = 0;
            while done < bytes.len() {
                done += rustix::io::read(&reader, &mut bytes[done..]).expect("readable");
            }
            bytes
        })
    }

    struct Failing(Io);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_success_and_a_full_disk_is_not() {
        let mut lines = Lines::to(Failing(Io::BrokenPipe));
        assert_eq!(lines.line("a"), Ok(ControlFlow::Continue(())));
        assert_eq!(lines.flush(), Ok(ControlFlow::Break(())));
        assert_eq!(lines.line("b"), Ok(ControlFlow::Break(())));
        let mut lines = Lines::to(Failing(Io::StorageFull));
        assert_eq!(lines.line("a"), Ok(ControlFlow::Continue(())));
        let error = lines.flush().expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::Destination);
        assert!(error.to_string().starts_with("cannot write to standard output: "), "{error}");
    }

    #[test]
    fn a_report_that_cannot_be_written_is_an_error_of_the_destination() {
        with_and_without_a_ring(async |ring| {
            let folder = tempfile::tempdir().expect("a folder");
            for path in [folder.path().join("a/b"), folder.path().to_owned()] {
                let error =
                    ReportWriter::create(&path, ring).await.expect_err("no file can be there");
                assert_eq!(error.kind(), ErrorKind::Destination);
                let text = error.to_string();
                assert!(!text.contains('\n') && text.contains(path.to_str().expect("UTF-8")));
            }
        });
    }

    #[test]
    fn a_report_has_its_lines() {
        with_and_without_a_ring(async |ring| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("r");
            std::fs::write(&path, "old").expect("written");
            for count in [0, 2, 50_000] {
                let mut report = ReportWriter::create(&path, ring).await.expect("created");
                let mut expected = String::new();
                for number in 0..count {
                    report.keep_up().await;
                    report.line(&format!("line {number}")).expect("taken");
                    expected.push_str(&format!("line {number}\n"));
                }
                report.finish().await.expect("taken");
                let found = std::fs::read_to_string(&path).expect("readable");
                assert!(found == expected, "{} of {} bytes", found.len(), expected.len());
            }
        });
    }

    #[test]
    fn a_report_stays_as_it_was_until_there_is_another() {
        with_and_without_a_ring(async |ring| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("r");
            let read = || std::fs::read_to_string(&path).expect("readable");
            std::fs::write(&path, "old\n").expect("written");
            let mut report = ReportWriter::create(&path, ring).await.expect("opened");
            assert!(report.is_empty());
            report.line("n").expect("taken");
            assert!(!report.is_empty());
            assert_eq!(read(), "old\n");
            report.finish().await.expect("written");
            assert_eq!(read(), "n\n");
            drop(ReportWriter::create(&path, ring).await.expect("opened"));
            assert_eq!(read(), "n\n");
        });
    }

    #[test]
    fn a_report_that_nobody_reads_is_behind_and_goes_on() {
        with_and_without_a_ring(async |ring| {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, reader) = unread_pipe(folder.path());
            let mut report = ReportWriter::create(&path, ring).await.expect("created");
            let mut lines = 0usize;
            while !report.is_behind() {
                assert!(lines < 1 << 20, "it is bounded");
                report.line("0123456").expect("taken");
                lines += 1;
                tokio::task::yield_now().await;
            }
            let reading = read(reader, lines * 8);
            report.keep_up().await;
            report.finish().await.expect("taken");
            assert!(reading.join().expect("it ends") == b"0123456\n".repeat(lines));
        });
    }

    #[test]
    fn a_finish_that_is_given_up_holds_up_no_clone() {
        with_and_without_a_ring(async |ring| {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, reader) = unread_pipe(folder.path());
            let full = rustix::pipe::fcntl_getpipe_size(&reader).expect("a size");
            let filler = vec![b'-'; full];
            assert_eq!(rustix::io::write(&reader, &filler), Ok(full));
            let mut report = ReportWriter::create(&path, ring).await.expect("created");
            report.line("one").expect("taken");
            let other = report.clone();
            tokio::select! {
                _ = report.finish() => panic!("there is no room"),
                () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {}
            }
            let reading = read(reader, full + 4);
            other.finish().await.expect("taken");
            assert_eq!(&reading.join().expect("it ends")[full..], b"one\n");
        });
    }

    #[test]
    fn a_report_on_a_full_disk_is_an_error() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        with_and_without_a_ring(async |ring| {
            let mut report = ReportWriter::create(full, ring).await.expect("it opens");
            report.line("one").expect("held back");
            let error = report.finish().await.expect_err("no room");
            assert_eq!(error.kind(), ErrorKind::Destination);
            assert!(error.to_string().starts_with("write the report /dev/full: "), "{error}");
            let mut report = ReportWriter::create(full, ring).await.expect("it opens");
            report.line(&"x".repeat(BUFFER_BYTES)).expect("held back");
            report.shared.ended.notified().await;
            report.line("two").expect_err("known by now");
        });
    }
}
