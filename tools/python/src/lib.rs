//! `inrush._native`: the library and the program as Python has them.
//!
//! It sits on the public face of the crate `inrush`; no byte takes another way than in the command.
//! What is Python's own (classes of exceptions, files, asyncio) is in `../inrush/*.py`.
//!
//! The interpreter is detached in every wait. Waits come in slices, between which signals are
//! looked at, so that Ctrl-C is a `KeyboardInterrupt`. A forked child leaves its parent's engine
//! alone (`session::Owned`).

mod aio;
#[expect(unsafe_code, reason = "the only file that touches memory of Python")]
mod buffer;
mod client;
mod download;
mod errors;
mod host;
mod info;
mod jobs;
mod listing;
mod many;
mod reader;
mod session;

use std::ffi::OsString;
use std::time::Instant;

use pyo3::prelude::*;

/// Runs the program with these words, the first of which is its name; returns the exit code. What
/// `program` has starts it again, with words behind. It takes over signals: once in a process.
#[pyfunction]
#[expect(clippy::disallowed_methods, reason = "a run begins when it is called")]
fn main(py: Python<'_>, program: Vec<OsString>, words: Vec<OsString>) -> u8 {
    let begun = Instant::now();
    py.detach(|| inrush::command::main_within(program, words, begun))
}

/// Asks for huge pages below memory that was allocated to be filled: contiguous, and writable.
#[pyfunction]
fn prefer_huge_pages(memory: &Bound<'_, PyAny>) -> PyResult<()> {
    buffer::Memory::lend(memory)?.prefer_huge_pages();
    Ok(())
}

/// The native part of the package `inrush`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<client::Core>()?;
    module.add_class::<info::ObjectInfo>()?;
    module.add_class::<info::Prefix>()?;
    module.add_class::<info::ReadResult>()?;
    module.add_class::<many::ReadMany>()?;
    module.add_class::<listing::List>()?;
    module.add_class::<download::Download>()?;
    module.add_class::<aio::Reactor>()?;
    module.add_function(wrap_pyfunction!(client::size_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(host::attach::inherited_sockets, module)?)?;
    module.add_function(wrap_pyfunction!(prefer_huge_pages, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)
}
