//! Mappings of files (mmap(2)) and readahead(2), which Rust calls unsafe: Python makes them.

use std::io::{BufRead as _, BufReader, Error, Read as _, Result, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that maps files; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Mapper {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Mapper {
    /// Starts it.
    pub(crate) fn new() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/mapper.py");
        let mut python = Command::new("python3");
        python.arg("-u").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().expect("Python");
        let requests = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, requests, answers }
    }

    /// Bytes of a file through a mapping, after these places of them were touched; `mapper.py`
    /// lists the advice for the kernel. A mapping that cannot be read ends the process, by SIGBUS.
    pub(crate) fn read(
        &mut self,
        what: &str,
        path: &Path,
        at: usize,
        length: usize,
        touched: &[usize],
    ) -> Result<Vec<u8>> {
        let path = hex::encode(path.as_os_str().as_bytes());
        let touched: Vec<String> = touched.iter().map(ToString::to_string).collect();
        writeln!(self.requests, "{what} {path} {at} {length} {}", touched.join(","))?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim_end().split_once(' ') {
            Some(("ok", length)) => {
                let mut bytes = vec![0; length.parse().map_err(Error::other)?];
                self.answers.read_exact(&mut bytes)?;
                Ok(bytes)
            }
            Some(("error", errno)) => {
                Err(Error::from_raw_os_error(errno.parse().map_err(Error::other)?))
            }
            _ => Err(Error::other("the process that maps files has ended")),
        }
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
