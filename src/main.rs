//! The program: parse, run, exit code.

use std::process::ExitCode;
use std::time::Instant;

use inrush::{cli, command};

#[expect(clippy::disallowed_methods, reason = "a run begins when the process does")]
fn main() -> ExitCode {
    let begun = Instant::now();
    let words: Vec<_> = std::env::args_os().collect();
    match cli::parse(words.iter()) {
        Ok(args) => ExitCode::from(command::run(args, begun)),
        // Help and version, or a usage error.
        Err(refusal) => ExitCode::from(command::refuse(&refusal, &words)),
    }
}
