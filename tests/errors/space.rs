//! Destinations with little space: what fits by replacing what is there is fetched, what surely
//! cannot fit is refused before a byte moves, and an option tries all the same.

use std::fs;
use std::path::Path;

use crate::matrix::Objects;
use crate::mount::Mount;
use crate::served::{get, serve};
use crate::{DESTINATION, assert_whole, names, objects};

const MIB: usize = 1 << 20;

/// Objects with equal keys and other bytes.
fn changed(all: &Objects) -> Objects {
    let flipped = |bytes: &Vec<u8>| bytes.iter().map(|byte| !byte).collect();
    all.iter().map(|(key, bytes)| (key.clone(), flipped(bytes))).collect()
}

/// Fetches these objects into the folder.
#[track_caller]
fn fill(folder: &Path, all: &Objects) {
    get(&serve(all), ["s3://lab/"]).with([folder]).run().expect(0);
    assert_eq!(assert_whole(folder, all), all.len());
}

#[test]
fn an_update_that_fits_by_replacement_succeeds() {
    let Some(mount) = Mount::tmpfs("size=16m") else { return };
    let destination = mount.path().join("destination");
    let sizes: Vec<(String, usize)> =
        (0..11).map(|n| (format!("large-{n}"), MIB + n)).chain([("small".into(), 900)]).collect();
    let sizes: Vec<(&str, usize)> = sizes.iter().map(|(key, size)| (key.as_str(), *size)).collect();
    let old = objects(&sizes);
    fill(&destination, &old);
    let mut new = changed(&old);
    for options in [&[][..], &["--overwrite", "always"], &["--no-resume"]] {
        let origin = serve(&new);
        // Connections for all of them at once.
        let words = ["s3://lab/", "--connections", "16"];
        let run = get(&origin, words).with(options).with([&destination]).run();
        run.expect(0);
        assert_eq!(assert_whole(&destination, &new), new.len());
        new = changed(&new);
    }
}

#[test]
fn a_file_system_without_inodes_is_not_said_to_be_full() {
    let Some(mount) = Mount::tmpfs("size=16m,nr_inodes=16") else { return };
    let sizes: Vec<(String, usize)> = (0..40).map(|n| (format!("{n:02}"), 9)).collect();
    let sizes: Vec<(&str, usize)> = sizes.iter().map(|(key, size)| (key.as_str(), *size)).collect();
    let all = objects(&sizes);
    let destination = mount.path().join("destination");
    let run = get(&serve(&all), ["s3://lab/"]).with([&destination]).run().expect(DESTINATION);
    let run = run.expect_words(&["no free inode for ", "free inodes (df -i)"]);
    run.check(!run.stderr.contains("free space"), "there is space");
    assert_whole(&destination, &all);
}

#[test]
fn what_can_never_fit_beside_what_stays_is_refused() {
    let Some(mount) = Mount::tmpfs("size=16m") else { return };
    let destination = mount.path().join("destination");
    let mut all = objects(&[("a", MIB), ("b", 2 * MIB), ("other", 8 * MIB)]);
    fill(&destination, &all);
    all.remove("other");
    let mut new = objects(&[("a", 9 * MIB), ("b", 3)]);
    let refused = |new: &Objects| {
        let origin = serve(new);
        let run = get(&origin, ["s3://lab/"]).with([&destination]).run();
        run.expect(DESTINATION)
            .expect_error(&[" free, but the download needs at least ", "--no-space-check"]);
        assert_eq!(origin.stop().gets, 0);
        assert_eq!(fs::read(destination.join("a")).expect("a file"), all["a"]);
    };
    // In the end it would fit: not so beside the older file of its own name.
    refused(&new);
    new.insert("a".to_owned(), vec![7; 6 * MIB]);
    new.insert("c".to_owned(), vec![8; 6 * MIB]);
    refused(&new);
    // The option lets it try, and it meets the full disk.
    let words = ["s3://lab/", "--no-space-check", "--json"];
    let run = get(&serve(&new), words).with([&destination]).run().expect(DESTINATION);
    let run = run.expect_words(&["o space left on device", "free space at the"]);
    // Each failed object has an error line, or is in the count of objects that the run left.
    let errors = run.stderr.lines().filter(|line| line.starts_with("error: s3://lab/")).count();
    let rest = |line: &str| {
        line.strip_prefix("error: ")?.split_once(" objects were not ")?.0.parse::<usize>().ok()
    };
    let rest = run.stderr.lines().find_map(rest).unwrap_or(1);
    let failed = run.json()["failed_objects"].as_u64();
    run.check(failed == Some((errors + rest - 1) as u64), "a line for each that failed");
    // What is to be written is less than what is free: nothing is refused.
    for name in names(&destination).iter().filter(|name| name.starts_with(".inrush")) {
        fs::remove_file(destination.join(name)).expect("removed");
    }
    new.remove("c");
    new.insert("a".to_owned(), vec![9; 2 * MIB]);
    get(&serve(&new), ["s3://lab/"]).with([&destination]).run().expect(0);
    assert_eq!(fs::read(destination.join("a")).expect("a file"), new["a"]);
}
