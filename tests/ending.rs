//! What does not come back: Ctrl-C and the deadline end the program all the same, and it says what
//! it leaves.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

#[path = "common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of sizes and names belongs to other tests")]
mod matrix;
#[path = "common/program.rs"]
#[expect(dead_code, reason = "JSON and usage errors belong to other tests")]
mod program;
#[path = "common/served.rs"]
mod served;
#[path = "common/skip.rs"]
mod skip;

use std::fs::{self, File};
use std::net::TcpListener;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use inrush_origin::Operation::{HeadObject, ListObjects};
use inrush_origin::{Config, Fault, FaultPlan, Match, Origin};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use matrix::Objects;
use program::{Program, Running};
use served::{ACCESS_KEY, SECRET, config, get, serve, start};

const MIB: usize = 1 << 20;
/// The documented exit codes.
const DEADLINE: i32 = 8;
const INTERRUPTED: i32 = 130;
/// Longest time that anything is waited for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A connection without a byte for this time counts as stalled.
const STALL: Duration = Duration::from_secs(5);

fn many() -> Objects {
    (0..1500).map(|number| (format!("{number:04}"), vec![7; 10])).collect()
}

/// A run that waits for a reader of its report who does not read.
struct Stuck {
    running: Running,
    stderr: PathBuf,
    _origin: Origin,
    _reader: OwnedFd,
    _folder: tempfile::TempDir,
}

/// Starts it and waits until the pipe of its report is full.
fn stuck() -> Stuck {
    let folder = tempfile::tempdir().expect("a folder");
    let (report, stderr) = (folder.path().join("report"), folder.path().join("stderr"));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &report,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .expect("a pipe");
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = rustix::fs::open(&report, flags, Mode::empty()).expect("a reader");
    let origin = serve(&many());
    let program = get(&origin, ["s3://lab/"]).with([folder.path().join("data")]);
    let program = program.with(["--report".as_ref(), report.as_os_str()]);
    let said = File::create(&stderr).expect("a file");
    let mut running = program.start_with(Stdio::null(), Stdio::from(said));
    assert!(running.until(|| waiting(&reader) >= 60 << 10), "the report was not written");
    Stuck { running, stderr, _origin: origin, _reader: reader, _folder: folder }
}

/// Bytes in a pipe that nobody has read.
fn waiting(reader: &OwnedFd) -> u64 {
    rustix::io::ioctl_fionread(reader.as_fd()).expect("a pipe can be asked")
}

#[test]
fn a_report_that_nobody_reads_is_left_incomplete() {
    let Stuck { running, stderr, _reader, _origin, _folder } = stuck();
    running.signal(Signal::INT);
    running.wait().expect(INTERRUPTED);
    let said = fs::read_to_string(stderr).expect("a file");
    assert!(said.contains("interrupted: ") && said.contains(" complete"), "{said}");
    assert!(said.contains("the report") && said.contains("is incomplete"), "{said}");
}

/// A plan whose lines nobody reads: the thread that writes them cannot listen.
struct Unread {
    running: Running,
    stderr: PathBuf,
    folder: tempfile::TempDir,
    _reader: OwnedFd,
    _origin: Origin,
}

/// Starts it and waits until the pipe is full.
fn unread() -> Unread {
    let origin = serve(&Objects::from([("a".to_owned(), vec![1; 10])]));
    let folder = tempfile::tempdir().expect("a folder");
    let (data, stderr) = (folder.path().join("data"), folder.path().join("stderr"));
    fs::create_dir(&data).expect("a folder");
    for number in 0..4000 {
        fs::write(data.join(format!("a-file-that-the-source-has-not-{number:04}")), "x")
            .expect("written");
    }
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let program = Program::new(["sync", "--quiet", "--delete", "--dry-run", "s3://lab/"]);
    let program = program.with([&data]).asking(&origin).with_keys(ACCESS_KEY, SECRET);
    let said = File::create(&stderr).expect("a file");
    let mut running = program.start_with(Stdio::from(writer), Stdio::from(said));
    assert!(running.until(|| waiting(&reader) >= 60 << 10), "nothing was listed");
    Unread { running, stderr, folder, _reader: reader, _origin: origin }
}

#[test]
fn a_second_signal_ends_at_once() {
    let Unread { mut running, stderr, _reader, _origin, folder: _folder } = unread();
    let begun = Instant::now();
    // Two that come together are one, so it is sent until the program has ended.
    while !running.has_ended() && begun.elapsed() < WAIT_MAX {
        running.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(50));
    }
    running.wait().expect(INTERRUPTED);
    let said = fs::read_to_string(stderr).expect("a file");
    assert!(said.contains("interrupted again, ended at once"), "{said}");
}

#[test]
fn a_plan_that_nobody_reads_is_ended() {
    let Unread { running, stderr, _reader, _origin, folder } = unread();
    running.signal(Signal::TERM);
    running.wait().expect(INTERRUPTED);
    let said = fs::read_to_string(stderr).expect("a file");
    assert!(said.contains("interrupted: ") && said.contains("has not returned"), "{said}");
    let left = fs::read_dir(folder.path().join("data")).expect("a folder");
    assert_eq!(left.count(), 4000);
}

/// Fails unless the deadline ends a run that waits for ever.
#[track_caller]
fn assert_in_time(program: Program) {
    let folder = tempfile::tempdir().expect("a folder");
    let run = program.with([&folder.path().join("data")]).with(["--deadline", "1s"]).run();
    run.expect(DEADLINE).expect_error(&["the deadline has passed before anything was downloaded"]);
    assert!(!folder.path().join("data").exists(), "nothing was to be made");
}

#[test]
fn the_deadline_holds_before_the_first_byte() {
    let silent = |operation| {
        let when = Match { operation: Some(operation), ..Match::default() };
        let fault = Fault::StallBeforeHead { duration: None };
        let faults = FaultPlan::none().with_rule(when, fault);
        start(Config { faults, ..config(&Objects::from([("a".to_owned(), vec![1; 10])])) })
    };
    let origin = silent(ListObjects);
    assert_in_time(get(&origin, ["s3://lab/"]));
    let origin = silent(HeadObject);
    assert_in_time(get(&origin, ["s3://lab/a"]));
}

#[test]
fn the_deadline_holds_while_credentials_are_waited_for() {
    // It accepts (the kernel does), and never answers. Who asks gives up after two seconds.
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = format!("http://{}/", silent.local_addr().expect("an address"));
    let origin = serve(&Objects::from([("a".to_owned(), vec![1; 10])]));
    let program = Program::new(["get", "--quiet", "s3://lab/"]).asking(&origin);
    let program = program
        .set("AWS_EC2_METADATA_DISABLED", "false")
        .set("AWS_EC2_METADATA_SERVICE_ENDPOINT", address);
    assert_in_time(program);
}

/// An ext4 on a loop device; unmounted when dropped.
struct Disk {
    point: PathBuf,
    _folder: tempfile::TempDir,
}

impl Disk {
    /// `None`, said on standard error, where nobody may mount one.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let (image, point) = (folder.path().join("image"), folder.path().join("mount"));
        fs::create_dir(&point).expect("a folder");
        File::create(&image).expect("a file").set_len(96 << 20).expect("a length");
        let made = run(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point));
        if !made {
            crate::skip::skip("an ext4 on a loop device cannot be mounted here");
            return None;
        }
        Some(Self { point, _folder: folder })
    }

    /// `None`, said on standard error, where that is not possible.
    fn freeze(&self) -> Option<Frozen> {
        if !run(Command::new("fsfreeze").arg("-f").arg(&self.point)) {
            crate::skip::skip("a file system cannot be frozen here");
            return None;
        }
        Some(Frozen { point: self.point.clone() })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(&self.point));
    }
}

/// A frozen file system; thawed when dropped. It must be dropped before the program is, which ends
/// no earlier.
struct Frozen {
    point: PathBuf,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        run(Command::new("fsfreeze").arg("-u").arg(&self.point));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Waits until a file has these words.
#[track_caller]
fn wait_for(file: &Path, words: &str) {
    let begun = Instant::now();
    while !fs::read_to_string(file).is_ok_and(|text| text.contains(words)) {
        let said = fs::read_to_string(file);
        assert!(begun.elapsed() < WAIT_MAX, "{words:?} was expected: {said:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_frozen_file_system_does_not_silence_it() {
    let Some(disk) = Disk::new() else { return };
    let objects = Objects::from([("a".to_owned(), vec![7; 48 * MIB])]);
    let origin = start(Config { connection_rate: NonZeroU64::new(4 << 20), ..config(&objects) });
    let folder = tempfile::tempdir().expect("a folder");
    let stderr = folder.path().join("stderr");
    let said = File::create(&stderr).expect("a file");
    let program = get(&origin, ["s3://lab/", "--connections", "3"]).with([&disk.point]);
    let mut running = program.start_with(Stdio::null(), Stdio::from(said));
    assert!(running.until(|| origin.stats().body_bytes > 6 << 20), "it was too fast");
    let Some(frozen) = disk.freeze() else { return };
    // More than all slots that are being filled: some wait for the disk from here on. So they do
    // where no byte comes any more: most were full when it froze.
    let before = origin.stats().body_bytes;
    let mut last = (before, Instant::now());
    let waits = || {
        let came = origin.stats().body_bytes;
        if came > last.0 {
            last = (came, Instant::now());
        }
        came > before + (6 << 20) || last.1.elapsed() > STALL
    };
    assert!(running.until(waits), "it has ended");
    running.signal(Signal::INT);
    // Writes, or where no slot was full in time, the call of a helper thread.
    wait_for(&stderr, "not returned");
    wait_for(&stderr, "run it again to resume");
    // The kernel keeps a process whose writes it has until the file system answers.
    drop(frozen);
    running.wait().expect(INTERRUPTED);
}
