//! `cat`: to a pipe, to a file, to one who leaves, to a socket.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::matrix::{LARGE, Objects, many, names, sizes};
use crate::program::Program;
use crate::served::{ACCESS_KEY, SECRET, serve};
use crate::{
    DESTINATION, INTERRUPTED, MIB, NOT_FOUND, STOP_SECONDS, mixture, objects, sha256, stream,
};

fn cat(origin: &inrush_origin::Origin, words: &[&str]) -> Program {
    Program::new(["cat"]).with(words).asking(origin).with_keys(ACCESS_KEY, SECRET)
}

/// Writes all objects to a pipe and to a file.
#[track_caller]
fn write_all(all: &Objects, words: &[&str]) {
    let origin = serve(all);
    let wanted = stream(all);
    let folder = tempfile::tempdir().expect("a folder");
    let words = [&["s3://lab/"], words].concat();
    let stderr = || Stdio::from(File::create(folder.path().join("stderr")).expect("a file"));
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let running = cat(&origin, &words).start_with(Stdio::from(writer), stderr());
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("the stream");
    running.wait().expect(0);
    assert_eq!((bytes.len(), sha256(&bytes)), (wanted.len(), sha256(&wanted)), "to a pipe");

    let path = folder.path().join("file");
    let file = Stdio::from(File::create(&path).expect("a file"));
    cat(&origin, &words).start_with(file, stderr()).wait().expect(0);
    let bytes = fs::read(&path).expect("the file");
    assert_eq!((bytes.len(), sha256(&bytes)), (wanted.len(), sha256(&wanted)), "to a file");
    assert_eq!(fs::read_to_string(folder.path().join("stderr")).expect("UTF-8"), "");
}

#[test]
fn every_byte_to_a_pipe_and_to_a_file() {
    write_all(&mixture(), &[]);
    write_all(&mixture(), &["--ring", "epoll"]);
    write_all(&names(), &["--part-size", "1MiB"]);
    write_all(&sizes(), &["--connections", "2"]);
    write_all(&many(4000), &[]);
    write_all(&objects(&[("large", LARGE)]), &[]);
    write_all(&objects(&[("empty", 0)]), &[]);
}

#[test]
fn single_objects_and_several_sources() {
    let all = objects(&[("b", 3 * MIB), ("a b+c", 5), ("x/1", 7), ("x/2", 8), ("xy", 9)]);
    let origin = serve(&all);
    // Several are merged by what a key has after its source: "1", "2", "b".
    for (words, keys) in [
        (&["s3://lab/b"][..], &["b"][..]),
        (&["s3://lab/a b+c"], &["a b+c"]),
        (&["s3://lab/x/"], &["x/1", "x/2"]),
        (&["s3://lab/x/2", "s3://lab/b", "s3://lab/x/1"], &["x/1", "x/2", "b"]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = Stdio::from(File::create(&path).expect("a file"));
        cat(&origin, words).start_with(file, Stdio::inherit()).wait().expect(0);
        let wanted: Vec<u8> = keys.iter().flat_map(|key| all[*key].clone()).collect();
        assert_eq!(sha256(&fs::read(&path).expect("a file")), sha256(&wanted), "{words:?}");
    }
}

#[test]
fn one_who_has_enough_is_no_error() {
    let all = objects(&[("large", 50 * MIB), ("more", 50 * MIB)]);
    let origin = serve(&all);
    for count in [0, 10, 100_000] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("stderr");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let stderr = Stdio::from(File::create(&log).expect("a file"));
        let running = cat(&origin, &["s3://lab/"]).start_with(Stdio::from(writer), stderr);
        let mut bytes = vec![0; count];
        reader.read_exact(&mut bytes).expect("the first bytes");
        assert!(bytes == all["large"][..count]);
        drop(reader);
        let run = running.wait().expect(0);
        run.check(run.seconds < 20.0, "it goes when its reader goes");
        assert_eq!(fs::read_to_string(log).expect("UTF-8"), "", "nothing is said");
    }
}

#[test]
fn what_is_not_there() {
    let origin = serve(&objects(&[("there", 5)]));
    let run = cat(&origin, &["s3://lab/not-there"]).run().expect(NOT_FOUND);
    run.expect_error(&["not-there"]);
    let run = cat(&origin, &["s3://lab/folder/"]).run().expect(NOT_FOUND);
    run.expect_error(&["folder/"]);
    let run = cat(&origin, &["s3://no-such-bucket/a"]).run().expect(NOT_FOUND);
    run.expect_error(&["no-such-bucket"]);
}

#[test]
fn a_full_disk_is_an_error() {
    let origin = serve(&objects(&[("a", 3 * MIB)]));
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("stderr");
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let stderr = Stdio::from(File::create(&log).expect("a file"));
    cat(&origin, &["s3://lab/"]).start_with(Stdio::from(full), stderr).wait().expect(DESTINATION);
    let said = fs::read_to_string(log).expect("UTF-8");
    assert!(said.contains("error: ") && said.contains("No space left"), "{said}");
}

#[test]
fn the_summary_goes_to_standard_error() {
    let all = objects(&[("a", 3000)]);
    let run = cat(&serve(&all), &["s3://lab/", "--json", "--quiet"]).run().expect(0);
    let summary: serde_json::Value = serde_json::from_str(&run.stderr).expect("JSON");
    run.check(summary["bytes"] == 3000, "3000 bytes");
}

#[test]
fn a_signal_ends_it_even_when_nobody_reads() {
    let origin = serve(&objects(&[("a", 60 * MIB)]));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let (socket, peer) = UnixStream::pair().expect("a pair of sockets");
    let outputs = [Stdio::from(writer), Stdio::from(std::os::fd::OwnedFd::from(socket))];
    for output in outputs {
        let gets = origin.stats().gets;
        let mut running = cat(&origin, &["s3://lab/"]).start_with(output, Stdio::null());
        assert!(running.until(|| origin.stats().gets > gets), "it ended by itself");
        // Its output has room for a moment.
        std::thread::sleep(Duration::from_millis(700));
        let sent = Instant::now();
        running.signal(Signal::TERM);
        let run = running.wait().expect(INTERRUPTED);
        let seconds = sent.elapsed().as_secs_f64();
        run.check(seconds < STOP_SECONDS, &format!("it took {seconds:.2} s to stop"));
    }
    drop((reader, peer));
}

/// Standard output that another process, which shares it, has made non-blocking.
#[test]
fn an_output_that_does_not_block_is_waited_for() {
    use rustix::io::ioctl_fionbio;
    let all = objects(&[("a", 20 * MIB)]);
    let origin = serve(&all);
    let (socket, mut peer) = UnixStream::pair().expect("a pair of sockets");
    ioctl_fionbio(&socket, true).expect("a socket");
    let output = Stdio::from(std::os::fd::OwnedFd::from(socket));
    let mut running = cat(&origin, &["s3://lab/"]).start_with(output, Stdio::null());
    // It is full before it is read.
    assert!(running.until(|| rustix::io::ioctl_fionread(&peer).is_ok_and(|bytes| bytes > 0)));
    let mut bytes = Vec::new();
    peer.read_to_end(&mut bytes).expect("the stream");
    running.wait().expect(0);
    assert!(bytes == all["a"], "{} bytes, or others", bytes.len());

    let origin = serve(&many(4000));
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    ioctl_fionbio(&writer, true).expect("a pipe");
    let ls = Program::new(["ls", "--recursive", "s3://lab/"]).asking(&origin);
    let ls = ls.with_keys(ACCESS_KEY, SECRET);
    let mut running = ls.start_with(Stdio::from(writer), Stdio::null());
    assert!(running.until(|| rustix::io::ioctl_fionread(&reader).is_ok_and(|bytes| bytes > 0)));
    let mut listed = String::new();
    reader.read_to_string(&mut listed).expect("a list");
    running.wait().expect(0);
    assert_eq!(listed.lines().count(), many(4000).len());
}

/// Time does what it must at least, however busy the machine is.
#[test]
fn a_bandwidth_limit_is_kept_on_average() {
    let begun = Instant::now();
    write_all(&objects(&[("a", MIB), ("b", MIB), ("c", MIB)]), &["--bandwidth-limit", "2MiB"]);
    assert!(begun.elapsed() >= Duration::from_secs(2), "twice 3 MiB, each but its last range");
}

/// No range of a stream is shorter.
const ONE_RANGE: usize = 64 << 10;

/// The last range is charged for as long as a test may take; its end waits for nobody.
#[test]
fn the_end_of_a_stream_does_not_wait_for_the_bandwidth() {
    let origin = serve(&objects(&[("a", ONE_RANGE)]));
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let running = cat(&origin, &["s3://lab/a", "--bandwidth-limit", "1kB"])
        .start_with(Stdio::from(writer), Stdio::null());
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("the stream");
    running.wait().expect(0);
    assert_eq!(bytes.len(), ONE_RANGE);
}
