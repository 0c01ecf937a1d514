//! The program: parse, run, exit code.

use std::process::ExitCode;
use std::time::Instant;

use inrush::{cli, command, report::out};

#[expect(clippy::disallowed_methods, reason = "a run begins when the process does")]
fn main() -> ExitCode {
    let begun = Instant::now();
    match cli::parse(std::env::args_os()) {
        Ok(args) => ExitCode::from(command::run(args, begun)),
        // Help and version, or a usage error.
        Err(refusal) => ExitCode::from(out::leave(&refusal)),
    }
}
