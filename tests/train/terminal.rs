//! On a terminal: Ctrl-C reaches the command once, Ctrl-Z stops both, and what is typed is the
//! command's. A script of Python has the terminal's other side.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::served::serve;
use crate::{MIB, Stage, objects, python};

#[test]
fn the_terminal_is_the_commands() {
    let Some(python) = python::interpreter("to make a terminal") else { return };
    let origin = serve(&objects(&[("a", MIB)]));
    let stage = Stage::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/train/terminal.py");
    let output = Command::new(python)
        .arg(script)
        .args([env!("CARGO_BIN_EXE_inrush"), &origin.url()])
        .arg(stage.base())
        .args([crate::ACCESS_KEY, crate::SECRET])
        .stdin(Stdio::null())
        .output()
        .expect("Python starts");
    let (printed, said) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{printed}\n{said}");
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}
