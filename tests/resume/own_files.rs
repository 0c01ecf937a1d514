//! Files that a run itself reads or writes, below its destination.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::matrix::Objects;
use crate::mount::Mount;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, start};
use crate::{computed, objects};

/// Some objects of which one has the name of a file that the run writes.
fn some() -> Objects {
    objects(&[("a", 10), ("b/c", 2000), ("own", 20), ("sub/own", 30)])
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// Fails unless the others of [`some`] are there, with their bytes.
fn assert_others(folder: &Path, run: &Run, own: &str) {
    for (key, bytes) in some().iter().filter(|(key, _)| *key != own) {
        assert!(fs::read(folder.join(key)).expect("there") == *bytes, "{key}: {run}");
    }
}

#[test]
fn the_keys_in_use_and_what_names_them_stay() {
    let origin = start(computed(&some()));
    for is_linked in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("home");
        let at = |path: &str| home.join(path);
        let real = if is_linked { "dotfiles/aws" } else { ".aws" };
        let of = |path: &str| at(&format!("{real}/{path}"));
        let keys = format!(
            "[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET}\n"
        );
        let show = |path: &str| at(path).display().to_string();
        let config = format!(
            "[default]\nregion = us-east-1\n[profile other]\nca_bundle = {}\n\
             [profile web]\nweb_identity_token_file = {}\n\
             [profile run]\ncredential_process = '{}' --for me\n\
             [profile script]\ncredential_process = sh -c 'cd /; exec {} a'\n",
            show("own/ca.pem"),
            show("own/token"),
            show("own/a program"),
            show("own/script"),
        );
        let files =
            [of("credentials"), of("config"), of("sso/cache/x.json"), of("cli/cache/y.json")];
        let named = [
            "own/ca.pem",
            "own/token",
            "own/a program",
            "own/script",
            "by-variable/a",
            "by-variable/b",
        ];
        let others = [at("stale"), of("stale"), of("sso/stale"), at("own/stale")];
        write(&files[0], &keys);
        write(&files[1], &config);
        files[2..].iter().for_each(|path| write(path, "{}"));
        named.iter().for_each(|path| write(&at(path), "a token"));
        others.iter().for_each(|path| write(path, "stale"));
        if is_linked {
            symlink(real, at(".aws")).expect("a link");
        }
        let program = Program::new(["sync", "s3://lab/b/", "--delete", "--json"]).with([&home]);
        let program = program.asking(&origin).set("HOME", &home);
        let program = program.set("AWS_CONFIG_FILE", "").set("AWS_SHARED_CREDENTIALS_FILE", "");
        let program = program
            .set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", at("by-variable/a"))
            .set("AWS_CA_BUNDLE", at("by-variable/b"));
        let run = program.run().expect(0);
        for path in files.iter().chain(&named.map(at)) {
            assert!(path.exists(), "{} is gone: {run}", path.display());
        }
        assert!(at(".aws/credentials").exists(), "{run}");
        for path in &others {
            assert!(!path.exists(), "{} is left: {run}", path.display());
        }
    }
}

/// A run to `folder` with an option that names a file of its own.
fn run(command: &str, folder: &Path, option: &str, file: &Path) -> Run {
    let origin = start(computed(&some()));
    let program = Program::new([command, "s3://lab/"]).with([folder]).asking(&origin);
    program.with([option.as_ref(), file.as_os_str()]).with_keys(ACCESS_KEY, SECRET).run()
}

#[test]
fn no_object_takes_the_place_of_what_the_run_writes() {
    for (command, option, words) in [
        ("get", "--report", r#"{"kind":"object""#),
        ("sync", "--report", r#"{"kind":"object""#),
        ("get", "--metrics-file", "inrush_exit_code"),
        ("sync", "--metrics-file", "inrush_exit_code"),
    ] {
        for (way, own) in [
            ("data/own", "own"),
            ("data/sub/../own", "own"),
            ("./data/./sub/own", "sub/own"),
            ("link/sub/own", "sub/own"),
            ("to-file", "own"),
            ("data/to-sub/own", "sub/own"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let data = folder.path().join("data");
            fs::create_dir_all(data.join("sub")).expect("made");
            symlink("data", folder.path().join("link")).expect("a link");
            symlink("data/own", folder.path().join("to-file")).expect("a link");
            symlink("sub", data.join("to-sub")).expect("a link");
            let run = run(command, &data, option, &folder.path().join(way)).expect(1);
            let refusal = format!("s3://lab/{own}: its file is that of {option}");
            let run = run.expect_words(&[&refusal, &format!("give {option} another path")]);
            let found = fs::read_to_string(data.join(own)).expect("text");
            assert!(found.contains(words), "{way}: {found}\n{run}");
            assert_others(&data, &run, own);
        }
    }
}

#[test]
fn a_report_is_known_by_way_of_another_mount() {
    let Some(mount) = Mount::tmpfs("size=64M") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let [data, bound, bound_sub] =
        [mount.path().join("data"), folder.path().join("bound"), folder.path().join("bound-sub")];
    for made in [&data.join("sub"), &bound, &bound_sub] {
        fs::create_dir_all(made).expect("a folder");
    }
    let bind = |from: &Path, to: &Path| Mount::at(&["--bind".as_ref(), from.as_os_str()], to, None);
    let Some(_bound) = bind(mount.path(), &bound) else { return };
    let Some(_bound_sub) = bind(&data.join("sub"), &bound_sub) else { return };
    let origin = start(computed(&some()));
    let get = |data: &Path, report: &Path| {
        let program = Program::new(["get", "s3://lab/"]).with([data]).asking(&origin);
        program.with(["--report".as_ref(), report.as_os_str()]).with_keys(ACCESS_KEY, SECRET)
    };
    for (destination, report, own) in [
        (&data, bound.join("data/own"), "own"),
        (&data, bound_sub.join("own"), "sub/own"),
        (&bound.join("data"), data.join("own"), "own"),
    ] {
        let run = get(destination, &report).run().expect(1);
        let refusal = format!("s3://lab/{own}: its file is that of --report");
        let run = run.expect_words(&[&refusal]);
        let lines = fs::read_to_string(&report).expect("text");
        assert_eq!(lines.lines().count(), 4, "{lines}\n{run}");
        fs::remove_file(report).expect("removed");
    }
    let metrics = bound.join("data/own");
    let program = get(&folder.path().join("there"), &data.join("own"));
    let run = program.with(["--metrics-file".as_ref(), metrics.as_os_str()]).run().expect(2);
    run.expect_words(&["--report and --metrics-file are the same file"]);
}

#[test]
fn of_several_destinations_none_has_an_object_in_place_of_the_report() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    fs::create_dir_all(&other).expect("made");
    let report = other.join("own");
    let program = Program::new(["get", "s3://lab/"]).with([&one]).asking(&origin);
    let program = program.with(["--spread-to".as_ref(), other.as_os_str()]);
    let program = program.with(["--report".as_ref(), report.as_os_str()]);
    let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(1);
    let run = run.expect_words(&["s3://lab/own: its file is that of --report"]);
    let lines = fs::read_to_string(&report).expect("text");
    assert_eq!(lines.lines().count(), 4, "{lines}\n{run}");
    assert!(!one.join("own").exists(), "{run}");
}

#[test]
fn a_kept_file_is_not_taken_for_one_that_the_run_replaces() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    let fetch = || {
        let program = Program::new(["get", "s3://lab/"]).with([folder.path()]).asking(&origin);
        program.with_keys(ACCESS_KEY, SECRET)
    };
    fetch().run().expect(0);
    let own = folder.path().join("own");
    let run = fetch().with(["--report".as_ref(), own.as_os_str()]).run().expect(1);
    let run = run.expect_words(&["s3://lab/own: its file is that of --report"]);
    let lines = fs::read_to_string(own).expect("text");
    assert_eq!(lines.lines().filter(|line| line.contains(r#""status":"kept""#)).count(), 3);
    assert_others(folder.path(), &run, "own");
}

#[test]
fn one_file_is_refused_before_anything_is_written() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    let (own, other) = (folder.path().join("own"), folder.path().join("./own"));
    write(&own, "as it was");
    for option in ["--report", "--metrics-file"] {
        let program = Program::new(["get", "s3://lab/a"]).with([&own]).asking(&origin);
        let program = program.with([option.as_ref(), other.as_os_str()]);
        let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(2);
        run.expect_words(&["DEST and ", option, "are the same file", "another path"]);
        assert_eq!(fs::read_to_string(&own).expect("text"), "as it was");
    }
    let program = Program::new(["verify", "s3://lab/a"]).with([&own]).asking(&origin);
    let program = program.with(["--report".as_ref(), other.as_os_str()]);
    program.with_keys(ACCESS_KEY, SECRET).run().expect(2);
    assert_eq!(fs::read_to_string(&own).expect("text"), "as it was");
    let program = Program::new(["get", "s3://lab/"]).with([folder.path()]).asking(&origin);
    let program = program.with(["--report".as_ref(), own.as_os_str()]);
    let program = program.with(["--metrics-file".as_ref(), other.as_os_str()]);
    let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(2);
    run.expect_words(&["--report and --metrics-file are the same file"]);
    assert_eq!(fs::read_to_string(&own).expect("text"), "as it was");
}

#[test]
fn where_the_streams_go_stays() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["own", "b/out"] {
        let path = folder.path().join(name);
        write(&path, "");
        write(&folder.path().join("stale"), "stale");
        let (out, err) = (File::create(&path).expect("made"), File::create("/dev/null"));
        let program = Program::new(["sync", "s3://lab/", "--delete", "--json"]);
        let program = program.with([folder.path()]).asking(&origin).with_keys(ACCESS_KEY, SECRET);
        let run = program.start_with(out.into(), err.expect("open").into()).wait();
        assert_eq!(run.status.success(), name != "own", "{run}");
        let found = fs::read_to_string(&path).expect("it is there");
        assert!(found.contains(r#""kind":"summary""#), "{found}");
        assert_eq!(folder.path().join("stale").exists(), name == "own");
    }
}

#[test]
fn a_report_is_no_file_that_was_verified() {
    let origin = start(computed(&some()));
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own");
    let with_keys = |command| {
        let program = Program::new([command, "s3://lab/"]).with([folder.path()]).asking(&origin);
        program.with_keys(ACCESS_KEY, SECRET)
    };
    with_keys("get").run().expect(0);
    let run = with_keys("verify").with(["--report".as_ref(), own.as_os_str()]).run();
    run.check(!run.status.success(), "it is not the object any more");
    run.expect_words(&["s3://lab/own: its file is that of --report"]);
    assert!(fs::read_to_string(own).expect("text").contains(r#""kind":"object""#));
}
