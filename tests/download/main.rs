//! Downloads by a program through the library, in this process, against the in-repo origin on
//! loopback.

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "other sizes of the matrix belong to other tests")]
mod matrix;

#[path = "../common/open_files.rs"]
mod open_files;

#[path = "../../tools/examples/download.rs"]
#[expect(dead_code, reason = "its arguments belong to its own process")]
mod example;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::Duration;

use inrush::{
    Client, ClientOptions, Download, DownloadEvent, DownloadEvents, EngineOptions, ErrorKind,
    FilterRule, ManifestPlace, Overwrite, Shard, VerifyMode,
};
use inrush_origin::{Config, Credentials, Fault, FaultPlan, Match, ObjectSpec, Operation, Origin};
use matrix::{Objects, assert_same, bytes_of, many, sizes};

const BUCKET: &str = "lab";
const ALL: &str = "s3://lab/";
const KEYS: (&str, &str) = ("AKIDLAB", "lab/secret+key");

/// Time limit of each wait: a longer one means that something hangs.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn serve(objects: &Objects, config: Config) -> Origin {
    let object = |(key, bytes): (&String, &Vec<u8>)| {
        ObjectSpec::new(BUCKET, key, bytes::Bytes::from(bytes.clone()))
    };
    let objects = objects.iter().map(object).collect();
    let credentials = vec![Credentials::new(KEYS.0, KEYS.1)];
    // For the connections of the servers of all tests.
    open_files::allow_all();
    Origin::start(Config { objects, credentials, ..config }).expect("an origin on loopback")
}

fn connect(origin: &Origin) -> Client {
    connect_to(&origin.url())
}

fn connect_to(url: &str) -> Client {
    let options = ClientOptions::new().endpoint_url(url).region("us-east-1");
    Client::connect(options.keys(KEYS.0, KEYS.1)).expect("a client")
}

/// A download of everything by half of the machine.
fn download(folder: &Path, number: usize) -> Download {
    let mut download = Download::new(ALL, folder);
    download.engine = EngineOptions::new().workers(2).share(number, 2);
    download
}

/// Runs a test, which fails if it hangs.
fn bounded(test: impl FnOnce() + Send + 'static) {
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        test();
        let _ = sender.send(());
    });
    ended.recv_timeout(WAIT_MAX).expect("it has failed, or hangs");
}

/// The signals that this process handles and ignores, and its limit of open files.
fn process_state() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc(5)");
    let limits = std::fs::read_to_string("/proc/self/limits").expect("proc(5)");
    let kinds = ["SigBlk", "SigIgn", "SigCgt"];
    let signals = status.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind)));
    let files = limits.lines().filter(|line| line.starts_with("Max open files"));
    signals.chain(files).map(str::to_owned).collect()
}

#[test]
fn the_example_downloads_a_folder_and_leaves_the_process_as_it_was() {
    bounded(|| {
        let objects: Objects = sizes().into_iter().chain(many(300)).collect();
        let origin = serve(&objects, Config::default());
        let folder = tempfile::tempdir().expect("a folder");
        let before = process_state();
        let client = connect(&origin);
        let path = folder.path().to_str().expect("UTF-8");
        let summary = example::fetch(&client, ALL, path).expect("all are there");
        assert_eq!(process_state(), before);
        assert_same(folder.path(), &objects);
        let bytes: usize = objects.values().map(Vec::len).sum();
        assert_eq!((summary.objects(), summary.bytes()), (objects.len() as u64, bytes as u64));
        assert_eq!(summary.failed_objects() + summary.existing_objects(), 0);
        assert!(summary.to_json().contains("\"failed_objects\":0"), "{}", summary.to_json());
        // Again: everything is there.
        let summary = example::fetch(&client, ALL, path).expect("all are there");
        assert_eq!((summary.objects(), summary.existing_objects()), (0, objects.len() as u64));
    });
}

#[test]
fn every_object_has_its_events_and_the_last_state_is_the_result() {
    bounded(|| {
        let objects: Objects = sizes().into_iter().chain(many(50)).collect();
        let origin = serve(&objects, Config::default());
        let folder = tempfile::tempdir().expect("a folder");
        let client = connect(&origin);
        let mut first = download(folder.path(), 0);
        first.selection.rules = vec![FilterRule::Include("sizes/*".to_owned())];
        let summary = first.run(&client).expect("those of one folder");
        assert_eq!(summary.objects(), sizes().len() as u64);
        let handle = download(folder.path(), 0).start(&client).expect("valid");
        let (mut counts, mut last) = (BTreeMap::new(), None);
        for event in handle.events() {
            let (kind, object) = match event {
                DownloadEvent::Admitted(object) => ("admitted", object),
                DownloadEvent::Existing(object) => ("existing", object),
                DownloadEvent::Done(object) => ("done", object),
                DownloadEvent::Progress(progress) => {
                    last = Some(progress);
                    continue;
                }
                // A machine that is busy.
                DownloadEvent::Waiting(_) => continue,
                other => panic!("{other:?}"),
            };
            assert_eq!(object.size_bytes, objects[&object.key].len() as u64, "{object:?}");
            assert_eq!(object.file, Some(folder.path().join(&object.key)), "{object:?}");
            *counts.entry(kind).or_insert(0) += 1;
        }
        let expected = [("admitted", 50), ("done", 50), ("existing", sizes().len())];
        assert_eq!(counts, BTreeMap::from(expected));
        let summary = handle.wait().expect("all are there");
        let last = last.expect("a state at least");
        assert_eq!((last.bytes_done, last.objects_done), (summary.bytes(), summary.objects()));
        assert_eq!((last.existing_objects, last.listing_complete), (sizes().len() as u64, true));
        assert_same(folder.path(), &objects);
    });
}

#[test]
fn downloads_side_by_side_do_not_disturb_each_other() {
    bounded(|| {
        let objects: Objects = sizes().into_iter().chain(many(2000)).collect();
        let origin = serve(&objects, Config::default());
        let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
        let (client, other) = (connect(&origin), connect(&origin));
        let start =
            |client, at: usize| download(folders[at].path(), at % 2).start(client).expect("valid");
        // Two of one client and one of another; no event is read, and one is given up.
        let [first, second] = [0, 1].map(|at| start(&client, at));
        drop(start(&other, 2));
        for handle in [second, first] {
            let summary = handle.wait().expect("all are there");
            assert_eq!(summary.objects(), objects.len() as u64);
        }
        assert_same(folders[0].path(), &objects);
        assert_same(folders[1].path(), &objects);
    });
}

/// Name the server and the destination to the process of
/// [`engines_of_a_process_share_its_open_files`].
const SERVER: &str = "INRUSH_TEST_SERVER";
const DESTINATION: &str = "INRUSH_TEST_DESTINATION";

/// How many downloads that process makes side by side.
const DOWNLOADS: usize = 4;

#[test]
fn engines_of_a_process_share_its_open_files() {
    let objects = many(2000);
    // As many requests at the same time as each engine may have.
    let slow = Config { first_byte_latency: Duration::from_millis(100), ..Config::default() };
    let origin = serve(&objects, slow);
    let folder = tempfile::tempdir().expect("a folder");
    let myself = std::env::current_exe().expect("this program");
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 400 && exec \"$@\"", "sh"])
        .arg(myself)
        .args(["--ignored", "--exact", "downloads_with_few_open_files"])
        .env(SERVER, origin.url())
        .env(DESTINATION, folder.path())
        .output()
        .expect("sh");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    for number in 0..DOWNLOADS {
        assert_same(&folder.path().join(number.to_string()), &objects);
    }
}

/// Not a test of its own: a program with several engines.
#[test]
#[ignore = "engines_of_a_process_share_its_open_files starts it"]
fn downloads_with_few_open_files() {
    let (Ok(url), Some(folder)) = (std::env::var(SERVER), std::env::var_os(DESTINATION)) else {
        return;
    };
    bounded(move || {
        let start = |number: usize| {
            let folder = Path::new(&folder).join(number.to_string());
            Download::new(ALL, folder).start(&connect_to(&url)).expect("valid")
        };
        let handles: Vec<_> = (0..DOWNLOADS).map(start).collect();
        handles.into_iter().for_each(|handle| drop(handle.wait().expect("all are there")));
    });
}

#[test]
fn each_failed_object_has_its_own_error_and_the_others_are_complete() {
    bounded(|| {
        let mut objects = many(40);
        let changed = ["many/1/00001", "many/2/00002"];
        let mut faults = FaultPlan::none();
        for key in changed {
            let operation = Some(Operation::GetObject);
            let when = Match { operation, key: Some(key.to_owned()), ..Match::default() };
            faults = faults.with_rule(when, Fault::PreconditionFailed);
        }
        let origin = serve(&objects, Config { faults, ..Config::default() });
        let folder = tempfile::tempdir().expect("a folder");
        let failed =
            download(folder.path(), 0).run(&connect(&origin)).expect_err("two have changed");
        let mut keys: Vec<&str> = failed.failed().iter().map(|(object, _)| &*object.key).collect();
        keys.sort_unstable();
        assert_eq!(keys, changed);
        for (object, error) in failed.failed() {
            assert!(error.to_string().contains(&object.key), "{error}");
        }
        let summary = failed.summary().expect("others are there");
        assert_eq!((summary.objects(), summary.failed_objects()), (38, 2));
        assert_eq!(failed.error().kind(), ErrorKind::Objects, "{failed}");
        changed.iter().for_each(|key| drop(objects.remove(*key)));
        assert_same(folder.path(), &objects);
    });
}

#[test]
fn what_fails_before_anything_is_downloaded_says_why() {
    bounded(|| {
        let origin = serve(&many(1), Config::default());
        let folder = tempfile::tempdir().expect("a folder");
        let client = connect(&origin);
        let none = Download::new("s3://lab/nothing/", folder.path()).run(&client);
        let none = none.expect_err("there is nothing");
        assert_eq!((none.error().kind(), none.failed().len()), (ErrorKind::NotFound, 0));
        assert!(none.summary().is_none());
        let wrong =
            Download::new("bucket/key", folder.path()).start(&client).expect_err("no address");
        assert_eq!(wrong.kind(), ErrorKind::Usage);
        let mut without = download(folder.path(), 0);
        without.sources.clear();
        assert_eq!(without.start(&client).expect_err("no source").kind(), ErrorKind::Usage);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    });
}

#[test]
fn a_cancelled_download_leaves_what_is_complete_and_goes_on_next_time() {
    bounded(|| {
        let large = "large".to_owned();
        let mut objects = many(20);
        objects.insert(large.clone(), bytes_of(&large, 24 << 20));
        // It would take minutes.
        let slow = Config { connection_rate: NonZeroU64::new(50_000), ..Config::default() };
        let origin = serve(&objects, slow);
        let folder = tempfile::tempdir().expect("a folder");
        let client = connect(&origin);
        let handle = download(folder.path(), 0).start(&client).expect("valid");
        let is_done = |event: &DownloadEvent| matches!(event, DownloadEvent::Done(_));
        assert_eq!(handle.events().filter(is_done).take(20).count(), 20);
        handle.cancel();
        let failed = handle.wait().expect_err("it was cancelled");
        assert_eq!(failed.error().kind(), ErrorKind::Interrupted);
        assert!(failed.to_string().starts_with("interrupted: 20 "), "{failed}");
        assert_eq!(failed.failed().iter().filter(|(object, _)| object.key == large).count(), 1);
        let origin = serve(&objects, Config::default());
        let mut again = download(folder.path(), 0);
        (again.keep.overwrite, again.verify) = (Overwrite::Changed, VerifyMode::Auto);
        let summary = again.run(&connect(&origin)).expect("all are there");
        assert_eq!((summary.objects(), summary.existing_objects()), (1, 20));
        assert_same(folder.path(), &objects);
    });
}

/// The names below a folder, without those of unfinished files.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    names
}

#[test]
fn lines_are_those_of_the_report_and_none_is_missed() {
    bounded(|| {
        let objects = many(6000);
        let origin = serve(&objects, Config::default());
        let (folder, other) =
            (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
        let client = connect(&origin);
        let mut wanted = download(folder.path(), 0);
        wanted.events = DownloadEvents::Lines;
        wanted.report = Some(other.path().join("report"));
        let (ring, rings) = channel();
        let notify = move || {
            let _ = ring.send(());
        };
        let handle = wanted.clone().start_with(&client, notify).expect("valid");
        let mut lines = Vec::new();
        loop {
            match handle.try_next() {
                Poll::Pending => rings.recv().expect("it rings before its end"),
                Poll::Ready(Some(DownloadEvent::Line(line))) => lines.push(line),
                Poll::Ready(Some(other)) => panic!("{other:?}"),
                Poll::Ready(None) => break,
            }
        }
        assert_eq!(handle.wait().expect("all are there").objects(), 6000);
        let report = std::fs::read_to_string(other.path().join("report")).expect("written");
        assert!(report.lines().eq(&lines), "{} lines", lines.len());
        let key = |line: &String| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line["key"].as_str().expect("a key").to_owned()
        };
        let mut keys: Vec<String> = lines.iter().map(key).collect();
        keys.sort_unstable();
        assert!(keys.iter().eq(objects.keys()));
        // Who reads none holds up what is left to do, not the end.
        wanted.keep.overwrite = Overwrite::Always;
        let handle = wanted.start(&client).expect("valid");
        assert_eq!(handle.wait().expect("all are there").objects(), 6000);
        assert_same(folder.path(), &objects);
    });
}

#[test]
fn a_mirror_has_what_the_source_has_and_its_own_files() {
    bounded(|| {
        let objects = many(20);
        let origin = serve(&objects, Config::default());
        let folder = tempfile::tempdir().expect("a folder");
        let client = connect(&origin);
        let (extra, report) = (folder.path().join("many/extra"), folder.path().join("report"));
        std::fs::create_dir(folder.path().join("many")).expect("a folder");
        std::fs::write(&extra, "old").expect("written");
        let mut mirror = download(folder.path(), 0);
        (mirror.delete, mirror.report) = (true, Some(report.clone()));
        let summary = mirror.run(&client).expect("all are there");
        assert_eq!((summary.objects(), summary.deleted_files()), (20, 1));
        assert!(!extra.exists() && report.exists());
        std::fs::remove_file(report).expect("it is there");
        assert_same(folder.path(), &objects);
        // The destination is a folder, also of a single object.
        let mut one = Download::new("s3://lab/many/0/00000", folder.path().join("one"));
        one.into_folder = true;
        one.run(&client).expect("it is there");
        assert_eq!(names(&folder.path().join("one")), ["00000"]);
    });
}

#[test]
fn lists_parts_and_several_destinations_are_those_of_the_command() {
    bounded(|| {
        let objects = many(30);
        let origin = serve(&objects, Config::default());
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let client = connect(&origin);
        let keys: Vec<&String> = objects.keys().collect();
        let list: String = keys[..5].iter().map(|key| format!("s3://lab/{key}\n")).collect();
        std::fs::write(at("list"), list).expect("written");
        let mut listed = download(&at("listed"), 0);
        listed.sources.clear();
        listed.selection.files_from = Some(at("list"));
        assert_eq!(listed.run(&client).expect("all are there").objects(), 5);
        let mut entries = vec![serde_json::json!({ "prefix": "s3://lab/" })];
        entries.extend(keys[..7].iter().map(|key| serde_json::json!(key)));
        let text = serde_json::Value::from(entries).to_string();
        std::fs::write(at("manifest"), text).expect("written");
        let mut manifest = download(&at("of-manifest"), 0);
        manifest.sources.clear();
        manifest.selection.manifest = Some(ManifestPlace::File(at("manifest")));
        assert_eq!(manifest.run(&client).expect("all are there").objects(), 7);
        for index in 0..2 {
            let mut part = download(&at("parts"), 0);
            part.shard = Shard { index, count: 2 };
            assert_eq!(part.run(&client).expect("all are there").objects(), 15);
        }
        assert_same(&at("parts"), &objects);
        let mut spread = download(&at("one"), 0);
        spread.spread_to = vec![at("two")];
        assert_eq!(spread.run(&client).expect("all are there").objects(), 30);
        let is_in = |name: &str, key: &String| at(name).join(key).exists();
        assert!(keys.iter().all(|key| is_in("one", key) != is_in("two", key)));
    });
}

#[test]
fn a_deadline_ends_a_download() {
    bounded(|| {
        let objects = Objects::from([("large".to_owned(), bytes_of("large", 24 << 20))]);
        let slow = Config { connection_rate: NonZeroU64::new(50_000), ..Config::default() };
        let origin = serve(&objects, slow);
        let folder = tempfile::tempdir().expect("a folder");
        let mut late = download(folder.path(), 0);
        late.deadline = Some(Duration::from_millis(300));
        let failed = late.run(&connect(&origin)).expect_err("it would take minutes");
        assert_eq!(failed.error().kind(), ErrorKind::Deadline, "{failed}");
        assert!(failed.to_json().contains("\"error_kind\":\"deadline\""), "{}", failed.to_json());
        assert!(names(folder.path()).is_empty());
    });
}

#[test]
fn a_list_that_nobody_writes_holds_up_no_end() {
    bounded(|| {
        let origin = serve(&many(1), Config::default());
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("list");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &list, mode).expect("a pipe");
        let client = connect(&origin);
        let mut waits = download(&folder.path().join("to"), 0);
        waits.selection.files_from = Some(list);
        let handle = waits.start(&client).expect("valid");
        handle.cancel();
        let failed = handle.wait().expect_err("it was cancelled");
        assert_eq!(failed.error().kind(), ErrorKind::Interrupted);
        // Its thread is given up.
        drop(client);
    });
}
