//! Files that somebody else may have written: neither their marks nor their times count.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use inrush_origin::{Config, Origin};
use rustix::fs::{Mode, XattrFlags};

use crate::matrix::assert_same;
use crate::program::Run;
use crate::served::{ACCESS_KEY, SECRET, config, serve, start};
use crate::skip::skip;
use crate::{MIB, objects};

/// The name of a mark.
const MARK: &CStr = c"user.inrush";
/// A user who is not this one.
const OTHER_USER: u32 = 12_345;
/// What is said of them.
const NOTE: &str =
    "of other users or with several names (hard links) not trusted, downloaded again";

/// `inrush get` with its notes, into a folder.
fn get(origin: &Origin, folder: &Path, options: &[&str]) -> Run {
    let program = crate::program::Program::new(["get", "s3://lab/", "--json"]).with(options);
    let program = program.with([folder]).asking(origin).with_keys(ACCESS_KEY, SECRET);
    program.run().expect(0)
}

/// Puts a file of other bytes in the place of this one, as long, with its time and, if `marked`,
/// its mark.
fn forge(path: &Path, marked: bool) {
    let before = fs::metadata(path).expect("there");
    let mut mark = [0; 64];
    let length = rustix::fs::getxattr(path, MARK, &mut mark[..]).expect("it has a mark");
    fs::remove_file(path).expect("removed");
    fs::write(path, vec![7; usize::try_from(before.len()).expect("short")]).expect("written");
    if marked {
        rustix::fs::setxattr(path, MARK, &mark[..length], XattrFlags::empty()).expect("set");
    }
    let open = fs::OpenOptions::new().write(true).open(path).expect("there");
    open.set_modified(before.modified().expect("a time")).expect("set");
}

fn number(run: &Run, name: &str) -> u64 {
    run.json()[name].as_u64().unwrap_or_else(|| panic!("{name} is no number\n{run}"))
}

#[test]
fn another_users_file_is_downloaded_again_whatever_it_says_of_itself() {
    let all = objects(&[("marked", 900), ("large", 3 * MIB), ("timed", 900), ("ours", 5)]);
    let origin = start(Config { md5_etags: true, ..config(&all) });
    for options in [&[][..], &["--ignore-times", "--verify", "strict"]] {
        let folder = tempfile::tempdir().expect("a folder");
        get(&origin, folder.path(), &[]);
        rustix::fs::chmod(folder.path(), Mode::from_raw_mode(0o1777)).expect("its owner may");
        for name in ["marked", "large", "timed"] {
            let path = folder.path().join(name);
            forge(&path, name != "timed");
            if std::os::unix::fs::chown(&path, Some(OTHER_USER), None).is_err() {
                skip("only root may give files away");
                return;
            }
        }
        let run = get(&origin, folder.path(), options);
        assert_eq!(number(&run, "kept_objects"), 1, "{run}");
        assert_same(folder.path(), &all);
        run.expect_words(&["3 files ", NOTE]);
        assert_eq!(number(&get(&origin, folder.path(), options), "kept_objects"), 4);
    }
}

#[test]
fn who_compares_by_size_alone_keeps_another_users_file() {
    let all = objects(&[("a", 900)]);
    let (origin, folder) = (serve(&all), tempfile::tempdir().expect("a folder"));
    get(&origin, folder.path(), &[]);
    if std::os::unix::fs::chown(folder.path().join("a"), Some(OTHER_USER), None).is_err() {
        skip("only root may give files away");
        return;
    }
    let run = get(&origin, folder.path(), &["--size-only"]);
    assert_eq!(number(&run, "kept_unmarked_objects"), 1, "{run}");
    assert!(!run.stderr.contains(NOTE), "{run}");
}

#[test]
fn the_mark_of_a_file_with_two_names_does_not_count() {
    let all = objects(&[("a", 900), ("b", 900)]);
    let (origin, folder) = (serve(&all), tempfile::tempdir().expect("a folder"));
    let outside = tempfile::tempdir().expect("a folder");
    get(&origin, folder.path(), &[]);
    let other = outside.path().join("other");
    if fs::hard_link(folder.path().join("a"), &other).is_err() {
        skip("the folder for temporary files is on several file systems");
        return;
    }
    let run = get(&origin, folder.path(), &[]);
    assert_eq!(number(&run, "kept_objects"), 1, "{run}");
    run.expect_words(&["1 file ", NOTE]);
    assert_same(folder.path(), &all);
    assert_eq!(fs::read(other).expect("there"), all["a"], "the other name keeps its bytes");
}
