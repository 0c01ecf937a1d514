//! The program of a command: found as execvp(3) finds it, or why it does not start.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::error::{Error, ErrorKind};

/// The exit code if this machine, not the command, is why it does not start: that of env(1) and
/// timeout(1) for their own failures.
pub(super) const OWN_FAILURE: u8 = 125;
/// The exit code if the command cannot be executed, as in env(1), nohup(1) and shells.
const NOT_EXECUTABLE: u8 = 126;
/// The exit code if there is no such command.
const NOT_THERE: u8 = 127;

/// Why a command did not start, and the exit code of this process.
#[derive(Debug)]
pub(in crate::command::train) struct NotStarted {
    pub(in crate::command::train) code: u8,
    pub(in crate::command::train) error: Error,
}

/// execvp(3)'s search path without PATH.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Checks that there is such a command, like execvp(3), before any other work.
///
/// # Errors
/// Those of [`super::Child::start`], which may still fail afterwards.
pub(in crate::command::train) fn look_up(
    words: &[OsString],
    variables: &BTreeMap<String, String>,
) -> Result<(), NotStarted> {
    let Some(program) = words.first() else { return Ok(()) };
    let path = variables.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
    let path = path.unwrap_or_else(|| USUAL_PATH.into());
    let found = if program.as_bytes().contains(&b'/') {
        executable(Path::new(program))
    } else {
        in_path(program, &path)
    };
    found.map_err(|error| not_started(program, &error))
}

/// Finds it in the first folder that has it. A file that must not be executed is the error if no
/// other is found.
fn in_path(program: &OsStr, path: &OsStr) -> io::Result<()> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    if program.is_empty() {
        return outcome;
    }
    for folder in path.as_bytes().split(|byte| *byte == b':') {
        // An empty one is the working directory.
        let folder: PathBuf = OsStr::from_bytes(folder).into();
        match executable(&folder.join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => outcome = Err(error),
            Err(_) => {}
        }
    }
    outcome
}

/// Checks that it is an executable file.
fn executable(path: &Path) -> io::Result<()> {
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    match path.is_dir() {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => Ok(()),
    }
}

/// The error of a failed start.
pub(super) fn not_started(program: &OsStr, error: &io::Error) -> NotStarted {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "command not found".to_owned(),
        _ => error.to_string(),
    };
    let message = format!("cannot start {}: {why}", program.display());
    let (code, advice) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_THERE, "check its name and PATH"),
        // fork(2): no further process, or not for this user.
        io::ErrorKind::WouldBlock => {
            let why = Error::new(ErrorKind::Host, message).caused_by_io(error);
            let error = why.advise("raise the limit of processes (ulimit -u)");
            return NotStarted { code: OWN_FAILURE, error };
        }
        io::ErrorKind::PermissionDenied => (NOT_EXECUTABLE, "make it executable (chmod +x)"),
        _ => (NOT_EXECUTABLE, "check that it is a program for this machine"),
    };
    let error = Error::new(ErrorKind::Usage, message).advise(advice).caused_by_io(error);
    NotStarted { code, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_it_did_not_start_decides_the_code() {
        let code = |kind: io::ErrorKind| not_started("x".as_ref(), &kind.into()).code;
        assert_eq!(code(io::ErrorKind::NotFound), NOT_THERE);
        assert_eq!(code(io::ErrorKind::PermissionDenied), NOT_EXECUTABLE);
        assert_eq!(code(io::ErrorKind::ArgumentListTooLong), NOT_EXECUTABLE);
        assert_eq!(code(io::ErrorKind::WouldBlock), OWN_FAILURE);
    }

    #[test]
    fn a_command_is_looked_up_as_it_is_started() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        let file = |path: &Path, mode: u32| {
            std::fs::write(path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for place in [&first, &second] {
            std::fs::create_dir(place).unwrap();
        }
        file(&first.join("both"), 0o644);
        file(&second.join("both"), 0o755);
        file(&first.join("plain"), 0o644);
        std::fs::create_dir(second.join("folder")).unwrap();
        let path = format!("{}:{}", first.display(), second.display());
        let path = BTreeMap::from([("PATH".to_owned(), path)]);
        let code = |word: &Path| look_up(&[word.into()], &path).err().map(|wrong| wrong.code);
        assert_eq!(code(Path::new("both")), None, "the second may be executed");
        assert_eq!(code(Path::new("plain")), Some(NOT_EXECUTABLE));
        assert_eq!(code(Path::new("folder")), Some(NOT_EXECUTABLE));
        assert_eq!(code(Path::new("none")), Some(NOT_THERE));
        assert_eq!(code(Path::new("")), Some(NOT_THERE));
        assert_eq!(code(&second.join("both")), None);
        assert_eq!(code(&first.join("both")), Some(NOT_EXECUTABLE));
        assert_eq!(code(&first.join("none")), Some(NOT_THERE));
        assert!(look_up(&[], &path).is_ok(), "no command");
        assert!(look_up(&["sh".into()], &BTreeMap::new()).is_ok(), "PATH is that of this process");
    }
}
