//! Standard output for data, and files for reports: where lines leave the program.
//!
//! What people read goes to standard error: see [`crate::progress`]. A reader of standard output
//! that has seen enough (`inrush ls .. | head`) ends the output, not the run's success.

#![expect(clippy::disallowed_types, reason = "reports are files; no object's bytes pass here")]

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind as Io, StdoutLock, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Buffer of an output in bytes: some hundred lines for one system call.
const BUFFER_BYTES: usize = 64 << 10;

/// Lines to standard output.
#[derive(Debug)]
pub struct Lines<W: Write = StdoutLock<'static>> {
    writer: BufWriter<W>,
    gone: bool,
}

impl Lines {
    /// Standard output, for this writer alone.
    #[must_use]
    pub fn stdout() -> Self {
        Self::to(io::stdout().lock())
    }
}

impl<W: Write> Lines<W> {
    fn to(writer: W) -> Self {
        Self { writer: BufWriter::with_capacity(BUFFER_BYTES, writer), gone: false }
    }

    /// Writes one line; `Break` when nobody reads any more.
    ///
    /// # Errors
    /// When standard output takes no bytes for another reason, a full disk for one.
    pub fn line(&mut self, text: &str) -> Result<ControlFlow<()>> {
        self.attempt(|writer| writeln!(writer, "{text}"))
    }

    /// Writes bytes as they are; `Break` when nobody reads any more.
    ///
    /// # Errors
    /// As for [`Self::line`].
    pub fn raw(&mut self, bytes: &[u8]) -> Result<ControlFlow<()>> {
        self.attempt(|writer| writer.write_all(bytes))
    }

    /// Hands over what is still held back; for streams with pauses.
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
                let message = format!("write to standard output: {error}");
                Err(Error::new(ErrorKind::Destination, message))
            }
        }
    }
}

/// Prints all of these bytes to standard output.
///
/// # Errors
/// As for [`Lines::line`]; a reader that is gone is none.
pub fn print(bytes: &[u8]) -> Result<()> {
    let mut lines = Lines::stdout();
    let _ = lines.raw(bytes)?;
    let _ = lines.flush()?;
    Ok(())
}

/// Prints help or a usage error where it belongs; returns the exit code, 0 or 2.
#[must_use]
pub fn leave(refusal: &clap::Error) -> u8 {
    // Nobody to tell: neither stream can be written.
    let _ = refusal.print();
    if refusal.use_stderr() { ErrorKind::Usage.exit_code() } else { 0 }
}

/// A file of lines, such as the report of every object.
#[derive(Debug)]
pub struct ReportWriter {
    writer: BufWriter<File>,
    path: PathBuf,
}

impl ReportWriter {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// When it cannot be written: that is found out before any byte moves.
    pub fn create(path: &Path) -> Result<Self> {
        match File::create(path) {
            Ok(file) => {
                let writer = BufWriter::with_capacity(BUFFER_BYTES, file);
                Ok(Self { writer, path: path.to_owned() })
            }
            Err(error) => {
                let message = format!("create the report {}: {error}", path.display());
                Err(Error::new(ErrorKind::Usage, message)
                    .advise("give --report a file in a folder that can be written"))
            }
        }
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When the file takes no more.
    pub fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.writer, "{line}").map_err(|error| self.trouble(&error))
    }

    /// Hands everything over to the file.
    ///
    /// # Errors
    /// When the file takes no more.
    pub fn finish(mut self) -> Result<()> {
        self.writer.flush().map_err(|error| self.trouble(&error))
    }

    fn trouble(&self, error: &io::Error) -> Error {
        let message = format!("write the report {}: {error}", self.path.display());
        Error::new(ErrorKind::Destination, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(error.to_string().starts_with("write to standard output: "), "{error}");
    }

    #[test]
    fn a_report_that_cannot_be_written_is_a_usage_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = ReportWriter::create(&folder.path().join("a/b")).expect_err("no folder a");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(!error.to_string().contains('\n') && error.to_string().contains("a/b"), "{error}");
        let error = ReportWriter::create(folder.path()).expect_err("it is a folder");
        assert_eq!(error.kind(), ErrorKind::Usage);
    }

    #[test]
    fn a_report_has_its_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r");
        std::fs::write(&path, "old").expect("written");
        let mut report = ReportWriter::create(&path).expect("created");
        report.line("one").expect("taken");
        report.line("two").expect("taken");
        report.finish().expect("taken");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "one\ntwo\n");
    }

    #[test]
    fn a_report_on_a_full_disk_is_told() {
        let full = Path::new("/dev/full");
        if full.exists() {
            let mut report = ReportWriter::create(full).expect("it opens");
            report.line("one").expect("held back");
            let error = report.finish().expect_err("no room");
            assert_eq!(error.kind(), ErrorKind::Destination);
            assert!(error.to_string().starts_with("write the report /dev/full: "), "{error}");
        }
    }
}
