//! How a test starts the program: by way of tools that take something away from it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

use tempfile::TempDir;

use crate::cgroup::Cgroup;
use crate::program::Program;
use crate::python;
use crate::skip::skip;

/// What the program is started by way of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    before: Vec<String>,
    home: Home,
}

#[derive(Debug, Clone, Default)]
enum Home {
    /// An empty folder.
    #[default]
    Empty,
    None,
    Named(&'static str),
}

/// A copy of the program where every user may start it. It goes with the last test that holds it.
#[derive(Debug)]
pub(crate) struct Copied {
    path: String,
    _folder: TempDir,
}

impl Copied {
    /// The copy that all tests share, made where none is there.
    pub(crate) fn shared() -> Arc<Self> {
        static COPY: Mutex<Weak<Copied>> = Mutex::new(Weak::new());
        let mut copy = COPY.lock().expect("copying does not panic");
        if let Some(copied) = copy.upgrade() {
            return copied;
        }
        let folder = tempfile::tempdir().expect("a folder");
        open_to_all(folder.path());
        let path = folder.path().join("inrush");
        std::fs::copy(env!("CARGO_BIN_EXE_inrush"), &path).expect("a copy");
        let path = path.to_str().expect("UTF-8").to_owned();
        let copied = Arc::new(Self { path, _folder: folder });
        *copy = Arc::downgrade(&copied);
        copied
    }
}

/// Says on standard error that a test cannot run on this machine, whatever is installed and whoever
/// runs it: `INRUSH_TESTS_MUST_RUN` asks for no more than can be had.
pub(crate) fn skip_on_this_machine(reason: &str) {
    eprintln!("!! SKIPPED on this machine: {reason}");
}

/// Lets every user write into a folder.
pub(crate) fn open_to_all(folder: &Path) {
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder, all).expect("our own folder");
}

/// Becomes the copy with the program's words.
const BECOME: &str = "program=$0; shift; exec \"$program\" \"$@\"";

/// Where one folder can be written to and another not, nor anything else of the root's mount. The
/// folders get mounts of their own: what holds them may be one, too.
const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount --bind \"$1\" \"$1\" && \
                         mount -o remount,ro,bind \"$1\" && mount -o remount,ro,bind / && \
                         shift && exec \"$@\"";

impl Launch {
    /// By way of nothing.
    pub(crate) fn plain() -> Self {
        Self::default()
    }

    /// By way of these tools, each with its words. `None`, said on standard error, where they do
    /// not work.
    pub(crate) fn of_tools(tools: &[&[&str]]) -> Option<Self> {
        let before = tools.iter().flat_map(|words| words.iter().map(|word| (*word).to_owned()));
        Self { before: before.collect(), home: Home::Empty }.if_it_works()
    }

    /// By way of a Python program beside this file.
    pub(crate) fn python(file: &str, words: &[&str]) -> Option<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/restricted");
        let script = folder.join(file).to_str().expect("UTF-8").to_owned();
        let python = python::interpreter(&format!("for {file}"))?;
        let words = words.iter().map(|word| (*word).to_owned());
        let before = [python, script].into_iter().chain(words).collect();
        Self { before, home: Home::Empty }.if_it_works()
    }

    /// In a mount name space where `writable` can be written to, and neither `elsewhere` nor the
    /// root.
    pub(crate) fn read_only_root(writable: &Path, elsewhere: &Path) -> Option<Self> {
        let [writable, elsewhere] = [writable, elsewhere].map(|path| path.to_str().expect("UTF-8"));
        let apart = ["unshare", "--mount", "--propagation=private", "sh", "-c", READ_ONLY];
        Self::of_tools(&[&apart, &[writable, elsewhere]])
    }

    /// Within a cgroup, too.
    pub(crate) fn within(mut self, cgroup: &Cgroup) -> Self {
        self.before.splice(0..0, cgroup.enter());
        self
    }

    /// With no HOME at all.
    pub(crate) fn without_home(mut self) -> Self {
        self.home = Home::None;
        self
    }

    /// With this HOME.
    pub(crate) fn with_home(mut self, home: &'static str) -> Self {
        self.home = Home::Named(home);
        self
    }

    /// Starts this copy of the program, or what asks for it, this way.
    pub(crate) fn start(&self, copied: &Copied, program_words: Program) -> Program {
        let mut before = self.before.clone();
        if matches!(self.home, Home::None) {
            before.splice(0..0, ["env", "-u", "HOME"].map(str::to_owned));
        }
        before.extend(["sh", "-c", BECOME, &copied.path].map(str::to_owned));
        let started = match self.home {
            Home::Named(home) => program_words.set("HOME", home),
            Home::Empty | Home::None => program_words,
        };
        started.by_way_of(before)
    }

    fn if_it_works(self) -> Option<Self> {
        let mut command = Command::new(&self.before[0]);
        command.args(&self.before[1..]).arg("true").stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => Some(self),
            Ok(output) => {
                let words = String::from_utf8_lossy(&output.stderr);
                skip(&format!("{}: {}", self.before.join(" "), words.trim()));
                None
            }
            Err(error) => {
                skip(&format!("{}: {error}", self.before[0]));
                None
            }
        }
    }
}

/// The folder below which a version of cgroups keeps a controller.
pub(crate) fn controller_folder(name: &str) -> Option<PathBuf> {
    let one = Path::new("/sys/fs/cgroup").join(name);
    let two = Path::new("/sys/fs/cgroup");
    if one.join("cgroup.procs").is_file() {
        return Some(one);
    }
    // What its children get, and not what it has itself: a container's root gives them nothing.
    let controllers = std::fs::read_to_string(two.join("cgroup.subtree_control")).ok()?;
    controllers.split_whitespace().any(|word| word == name).then(|| two.to_owned())
}
