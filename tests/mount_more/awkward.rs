//! Awkward names and sizes: what `diff`, `tar` and mappings see of a mount is what they see of the
//! files that the server serves.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use inrush_origin::{Config, Credentials, FaultPlan, Origin, Profile, TlsConfig};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::bounded::within;
use crate::fuse::can_mount;
use crate::mapper::Mapper;
use crate::mounted::Mounted;
use crate::names;
use crate::served::{ACCESS_KEY, BUCKET, SECRET, start};

/// Objects of a tree, unless `INRUSH_TEST_OBJECTS` gives another number.
const OBJECTS: usize = 400;

/// The files that are served, and are below the bucket's folder as their keys say.
struct Originals {
    folder: TempDir,
    /// Below [`Self::root`], with their lengths.
    files: Vec<(String, usize)>,
}

impl Originals {
    fn new(seed: u64) -> Self {
        let count = std::env::var("INRUSH_TEST_OBJECTS").ok().and_then(|count| count.parse().ok());
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = Vec::new();
        for (key, bytes) in names::objects(seed, count.unwrap_or(OBJECTS)) {
            let path = folder.path().join(BUCKET).join(&key);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
            fs::write(path, &bytes).expect("room");
            files.push((key.strip_prefix("d/").expect("all are below it").to_owned(), bytes.len()));
        }
        Self { folder, files }
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join(BUCKET).join("d")
    }

    /// Long enough for any machine, also where every tenth answer is late.
    fn limit(&self) -> Duration {
        Duration::from_secs(600 + self.files.len() as u64)
    }
}

/// Mounts what the origin serves, with these words more.
fn mount(origin: &Origin, words: &[&str]) -> Mounted {
    Mounted::new(origin, &[&["--memory", "32M"], words].concat())
}

/// Looks at the same tree in all ways, each with a mount and a page cache of its own.
pub(crate) fn expect_the_same(seed: u64, tls: bool, profile: Profile, words: &[&str]) {
    if !can_mount() {
        return;
    }
    let originals = Originals::new(seed);
    let origin = start(Config {
        root: Some(originals.folder.path().to_owned()),
        credentials: vec![Credentials::new(ACCESS_KEY, SECRET)],
        faults: FaultPlan::seeded(seed, profile),
        tls: tls.then(TlsConfig::default),
        ..Config::default()
    });
    let ways: [fn(&Originals, &Path); 3] = [expect_no_difference, expect_archive, expect_mapped];
    std::thread::scope(|scope| {
        for way in ways {
            let (originals, mounted) = (&originals, mount(&origin, words));
            scope.spawn(move || {
                within(mounted, originals.limit(), |mounted| way(originals, &mounted.point));
            });
        }
    });
}

fn expect_no_difference(originals: &Originals, point: &Path) {
    let diff = Command::new("diff")
        .args(["--recursive", "--no-dereference"])
        .args([&originals.root(), point])
        .env("LC_ALL", "C")
        .output()
        .expect("diff");
    let said = [diff.stdout, diff.stderr].concat();
    let said = String::from_utf8_lossy(&said[..said.len().min(5_000)]).into_owned();
    assert!(diff.status.success() && said.is_empty(), "{}: {said}", diff.status);
}

fn expect_archive(originals: &Originals, point: &Path) {
    let [expected, found] = [&originals.root(), point].map(archive);
    let Some(expected) = expected else { return };
    assert_eq!(Some(hex::encode(expected)), found.map(hex::encode), "sums of archives");
}

/// The SHA-256 of an archive of all that is in a folder, without what differs by intention: times,
/// owners and permissions. `None`, said on standard error, without GNU tar.
fn archive(folder: &Path) -> Option<[u8; 32]> {
    let version = Command::new("tar").arg("--version").output();
    if !version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("GNU tar")) {
        crate::skip::skip("there is no GNU tar");
        return None;
    }
    let mut tar = Command::new("tar")
        .args(["--format=gnu", "--sort=name", "--mtime=@0", "--owner=0", "--group=0"])
        .args(["--numeric-owner", "--mode=a=r", "--hard-dereference", "-c", "."])
        .current_dir(folder)
        .env("LC_ALL", "C")
        .stdout(Stdio::piped())
        .spawn()
        .expect("tar");
    let mut archive = tar.stdout.take().expect("a pipe");
    let (mut sum, mut piece) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let count = archive.read(&mut piece).expect("a pipe");
        if count == 0 {
            break;
        }
        sum.update(&piece[..count]);
    }
    let status = tar.wait().expect("tar has ended");
    assert!(status.success(), "tar in {}: {status}", folder.display());
    Some(sum.finalize().into())
}

fn expect_mapped(originals: &Originals, point: &Path) {
    let mut mapper = Mapper::new();
    let mut random = fastrand::Rng::with_seed(originals.files.len() as u64);
    for (path, length) in &originals.files {
        // Nothing cannot be mapped.
        if *length == 0 {
            continue;
        }
        let what = ["normal", "random", "sequential", "willneed"][random.usize(..4)];
        let touched = [length - 1, random.usize(..*length)];
        let bytes = mapper.read(what, &point.join(path), 0, *length, &touched);
        let bytes = bytes.unwrap_or_else(|error| panic!("{path:?}, {what}: {error}"));
        let expected = fs::read(originals.root().join(path)).expect("the original");
        assert!(bytes == expected, "{path:?}, {what}: other bytes in the mapping");
    }
}

#[test]
fn over_http_all_are_the_same() {
    expect_the_same(1, false, Profile::None, &[]);
}

#[test]
fn over_tls_all_are_the_same() {
    expect_the_same(2, true, Profile::None, &[]);
}

#[test]
fn over_http_with_faults_all_are_the_same() {
    expect_the_same(3, false, Profile::Mild, &[]);
}

#[test]
fn over_tls_with_faults_all_are_the_same() {
    expect_the_same(4, true, Profile::Mild, &[]);
}
