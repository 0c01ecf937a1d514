//! Whatever else reads objects, behind a gateway that redirects to nodes: the channels of a
//! training job, a mount, and programs with the library.

use std::fs;
use std::ops::Range;
use std::path::Path;

use inrush::{
    Client, ClientOptions, Destination, Download, Engine, EngineOptions, Priority, Request,
};

use crate::Place;
use crate::fuse::{can_mount, unmount_lazily};
use crate::gateway::{
    OBJECTS_THERE, all_bytes, assert_files, assert_no_credentials, at, bytes_of, gateway, node,
    silent,
};
use crate::publisher::Publisher;

/// A gateway, and its nodes.
fn cluster() -> (Publisher, [Publisher; 2]) {
    let nodes = [node(), node()];
    (gateway(307, false, [0, 1].map(|at| nodes[at].url(""))), nodes)
}

#[test]
fn channels_of_a_job_come_from_the_nodes() {
    let ((gateway, nodes), place) = (cluster(), Place::new());
    let base = place.path("ml");
    let words = ["train", "--channel", "f=s3://lab/", "--channel", "p=s3://lab/,mode=Pipe"];
    let pipe = base.join("input/data/p_0");
    let script = format!("cat '{}' > '{}'", pipe.display(), place.path("read").display());
    let program = at(&gateway, &words).with(["--base-dir"]).with([&base]);
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    silent(program.set("PATH", path).with(["--", "sh", "-c", &script]).run().expect(0));
    assert_files(&base.join("input/data/f"));
    assert!(fs::read(place.path("read")).expect("a copy") == all_bytes(), "the pipe");
    nodes.iter().for_each(assert_no_credentials);
}

/// A mount that goes with the test.
struct Point<'a>(&'a Path);

impl Drop for Point<'_> {
    fn drop(&mut self) {
        unmount_lazily(self.0);
    }
}

#[test]
fn a_mount_reads_from_the_nodes() {
    if !can_mount() {
        return;
    }
    let ((gateway, nodes), place) = (cluster(), Place::new());
    let (point, ready) = (place.path("point"), place.path("ready"));
    fs::create_dir(&point).expect("room");
    let program = at(&gateway, &["mount", "s3://lab/"]).with([&point]);
    let program = program.with(["--foreground", "--ready-file"]).with([&ready]);
    let mut running = program.start();
    let mounted = Point(&point);
    if !running.until(|| ready.exists()) {
        panic!("{}", running.wait());
    }
    assert_files(&point);
    drop(mounted);
    silent(running.wait().expect(0));
    nodes.iter().for_each(assert_no_credentials);
}

#[test]
fn programs_read_from_the_nodes() {
    let ((gateway, nodes), place) = (cluster(), Place::new());
    let options = ClientOptions::new().endpoint_url(gateway.url("/s3")).region("us-east-1");
    let client = Client::connect(options.keys("KEY", "SECRET")).expect("a client");
    let engine = Engine::start(&client, EngineOptions::new().workers(1)).expect("an engine");
    for (key, length) in OBJECTS_THERE {
        let object = client.head(&format!("s3://lab/{key}")).expect("it is there");
        let read = engine.read(&object, 0..length as u64).expect("it is read");
        assert!(Some(read) == bytes_of(key), "{key}");
    }
    let object = client.head("s3://lab/d/large").expect("it is there");
    let requests = engine.requests().expect("a descriptor");
    let ranges: [Range<u64>; 3] = [0..10, 1_000_000..3_000_000, 5_000_000..5_000_001];
    for (token, range) in (0..).zip(ranges.clone()) {
        let length = usize::try_from(range.end - range.start).expect("small");
        let (object, into) = (object.clone(), Destination::Memory(vec![0; length]));
        let request = Request { object, range, into, priority: Priority::Normal, token };
        requests.submit(request).expect("a good request");
    }
    let bytes = bytes_of("d/large").expect("it is there");
    while requests.under_way() > 0 {
        for completion in requests.wait(std::time::Duration::from_secs(1)) {
            completion.result.expect("it is read");
            let Destination::Memory(read) = completion.into else { panic!("it comes back") };
            let Range { start, end } = ranges[usize::try_from(completion.token).expect("small")];
            let at = |place: u64| usize::try_from(place).expect("small");
            assert!(read == bytes[at(start)..at(end)]);
        }
    }
    let to = place.path("to");
    Download::new("s3://lab/", &to).run(&client).expect("it is downloaded");
    assert_files(&to);
    nodes.iter().for_each(assert_no_credentials);
}
