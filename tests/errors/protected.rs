//! Files and folders that the kernel protects from everybody, root too, or from all but their
//! owners: an EPERM is explained by what is there.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::{names, objects};

const MIB: usize = 1 << 20;

/// An attribute of a file or a folder, taken away when dropped.
struct Attribute<'a> {
    path: &'a Path,
    letter: char,
}

impl<'a> Attribute<'a> {
    /// `None`, with a line on standard error, where there are none or nobody may set one.
    fn set(path: &'a Path, letter: char) -> Option<Self> {
        if !changed(path, &format!("+{letter}")) {
            crate::skip::skip("attributes of files (chattr) cannot be set here");
            return None;
        }
        Some(Self { path, letter })
    }
}

impl Drop for Attribute<'_> {
    fn drop(&mut self) {
        changed(self.path, &format!("-{}", self.letter));
    }
}

fn changed(path: &Path, mode: &str) -> bool {
    let output = Command::new("chattr").arg(mode).arg(path).output();
    output.is_ok_and(|output| output.status.success())
}

/// A process that permissions bind, as they bind all users but root.
const UNPRIVILEGED: [&str; 3] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];

/// Downloads a small and a large object over files that are there.
fn replace(folder: &Path, before: &[&str]) -> Run {
    let origin = serve(&objects(&[("p/large", 3 * MIB), ("p/small", 3)]));
    let program = get(&origin, ["s3://lab/p/", "--overwrite", "always"]).with([folder]);
    program.by_way_of(before).run()
}

#[track_caller]
fn expect_each(run: Run, folder: &Path, why: &str, advice: &str) {
    for name in ["small", "large"] {
        let place = folder.join(name).display().to_string();
        let words = format!("name {place}: Operation not permitted (os error 1): {why}; {advice}");
        run.check(run.stderr.contains(&words), &words);
    }
}

#[test]
fn a_file_or_a_folder_with_an_attribute_is_named_by_it() {
    let advice = "see lsattr and chattr";
    for (letter, of_file, of_folder) in [
        ('i', "the file is immutable (chattr +i)", "the folder is immutable (chattr +i)"),
        ('a', "the file is append-only (chattr +a)", "the folder is append-only (chattr +a)"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let [small, large] = ["small", "large"].map(|name| folder.path().join(name));
        for path in [&small, &large] {
            fs::write(path, "as it was").expect("a file");
        }
        {
            let Some(_small) = Attribute::set(&small, letter) else { return };
            let Some(_large) = Attribute::set(&large, letter) else { return };
            expect_each(replace(folder.path(), &["env"]), folder.path(), of_file, advice);
            // What is not in the source is not removed either.
            let origin = serve(&objects(&[("p/other", 3)]));
            let sync = Program::new(["sync", "--quiet", "--delete", "s3://lab/p/"]);
            let sync = sync.with([folder.path()]).asking(&origin).with_keys(ACCESS_KEY, SECRET);
            let run = sync.run();
            run.expect_words(&["cannot remove ", "Operation not permitted", of_file]);
        }
        let Some(_folder) = Attribute::set(folder.path(), letter) else { return };
        let run = replace(folder.path(), &["env"]);
        let run = run.expect_words(&["Operation not permitted (os error 1): ", of_folder]);
        if letter == 'a' {
            expect_each(run, folder.path(), of_folder, advice);
        }
        for path in [&small, &large] {
            assert_eq!(fs::read(path).expect("a file"), b"as it was");
        }
    }
}

#[test]
fn another_users_file_in_a_sticky_folder_is_named_as_that() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    const OTHER: Option<u32> = Some(12_345);
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("sticky");
    fs::create_dir(&folder).expect("a folder");
    for path in [folder.join("small"), folder.join("large"), folder.clone()] {
        if path != folder {
            fs::write(&path, "as it was").expect("a file");
        }
        if chown(&path, OTHER, None).is_err() {
            return crate::skip::skip("only root may give files away");
        }
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).expect("root may");
    let why = "the file is another user's, in a sticky folder (chmod +t)";
    let run = replace(&folder, &UNPRIVILEGED);
    expect_each(run, &folder, why, "let its owner remove it, or choose another destination");
    assert_eq!(names(&folder), ["large", "small"], "nothing is left beside them");
}
