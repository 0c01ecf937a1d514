//! Mounts of users who may not mount: fusermount3 does it, and reads one string of options.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, object, start};
use crate::skip::skip;

/// Runs a program as nobody, with a device of FUSE that everybody may open, in a name space of its
/// own. `$0` is a folder for the device.
const AS_NOBODY: &str = r#"mknod "$0/fuse" c 10 229 && chmod 666 "$0/fuse" &&
    mount --bind "$0/fuse" /dev/fuse &&
    exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@""#;

fn as_nobody(folder: &Path) -> Vec<std::ffi::OsString> {
    let words = ["unshare", "--mount", "sh", "-c", AS_NOBODY].map(Into::into);
    words.into_iter().chain([folder.as_os_str().to_owned()]).collect()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn a_comma_in_the_source_begins_no_other_option() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    set_mode(folder.path(), 0o755);
    for name in ["bin", "point", "device"] {
        fs::create_dir(at(name)).expect("made");
    }
    let words = as_nobody(&at("device"));
    let mut check = std::process::Command::new(&words[0]);
    let program = env!("CARGO_BIN_EXE_inrush");
    let is_possible =
        check.args(&words[1..]).args(["test", "-w", "/dev/fuse", "-a", "-x", program]);
    if !is_possible.status().is_ok_and(|status| status.success()) {
        skip("nobody cannot run the program with a device of FUSE");
        return;
    }
    fs::remove_file(at("device/fuse")).expect("it was made");
    // Instead of fusermount3: says how it was called, and mounts nothing.
    let said = at("said");
    fs::write(&said, "").expect("written");
    set_mode(&said, 0o666);
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > {}\nexit 1\n", said.display());
    fs::write(at("bin/fusermount3"), script).expect("written");
    set_mode(&at("bin/fusermount3"), 0o755);
    let origin = start(inrush_origin::Config {
        objects: vec![object("date=2024,allow_other/a", b"abc".to_vec())],
        credentials: vec![inrush_origin::Credentials::new(ACCESS_KEY, SECRET)],
        ..Default::default()
    });
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", at("bin").display());
    let mount = Program::new(["mount", "s3://lab/date=2024,allow_other/", "--foreground"]);
    let mount = mount.with([at("point")]).asking(&origin).with_keys(ACCESS_KEY, SECRET);
    let mount = mount.by_way_of(words).set("PATH", path).set("HOME", "/nonexistent");
    let none = "/nonexistent/file";
    let mount = mount.set("AWS_CONFIG_FILE", none).set("AWS_SHARED_CREDENTIALS_FILE", none);
    let run = mount.run();
    run.check(!run.status.success(), "nothing was mounted");
    let said = fs::read_to_string(said).expect("there");
    assert!(said.contains("fsname=s3://lab/date=2024\\,allow_other/,"), "{said}{run}");
}
