//! Runs without something of the kernel: `without.py` forbids it to one process.

use std::path::Path;

use crate::python;

/// What to start a program by way of, so that it has no `what`: `io_uring:ERRNO` or another
/// call that fails with an errno, `tmpfile` or `direct`.
/// `None`, said on standard error, where there is no Python 3 to do it.
pub(crate) fn without(what: &str) -> Option<[String; 3]> {
    let python = python::interpreter(&format!("to forbid {what} with"))?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/without.py");
    Some([python, script.to_str().expect("UTF-8").to_owned(), what.to_owned()])
}
