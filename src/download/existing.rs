//! Files of earlier runs at the destination: complete ones that need no download, and unfinished
//! ones that are resumed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::Sender;

use super::checksums::Settled;
use super::mirror::Mirror;
use super::space::taken_by;
use crate::cli::{Compare, KeepArgs, Overwrite, VerifyMode};
use crate::control::blocking::{BlockingState, GivenUp};
use crate::error::{Error, ErrorKind, ErrorReason};
use crate::files::file_download::{FileDownload, Shape};
use crate::files::host::FileError;
use crate::files::journal::Unfit;
use crate::files::system_host::{FileState, Left, Persistence, Root, Swept, SystemHost};
use crate::files::system_host::{Unfinished, WhenAll, disk_space};
use crate::limits::UNFINISHED_OPEN_MAX;
use crate::report::document::KeptReason;
use crate::s3::sign::PublishedKeys;
use crate::text::size::{Count, Decimal, counted};

/// The decision on an object.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Download it, or its missing bytes.
    Fetch(FileDownload, Before),
    /// Leave the file as it is; this many bytes of unfinished files or older versions are free now.
    Keep(FileDownload, KeptReason, u64),
    /// It cannot have a file.
    Fail(Box<(FileDownload, Error)>),
    /// It cannot have a file unless an obstacle is removed: the destination is to equal the source.
    Blocked(Box<(FileDownload, Error)>),
    /// The unfinished file at this destination of several is removed, and this many bytes are free.
    Freed(u8, u64),
}

/// The existing files of an object that is to be downloaded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Before {
    /// Its bytes that exist in an unfinished file.
    pub(super) done_bytes: u64,
    /// Space of an unfinished file that is reused, or free now.
    pub(crate) reclaimed_bytes: u64,
    /// Space of the file that it replaces.
    pub(crate) replaced_bytes: u64,
    /// That file is marked as the object, but may have been written by another user.
    pub(super) foreign: bool,
    /// Why it begins again.
    pub(super) unfit: Option<Unfit>,
    /// It is resumed.
    pub(super) resumed: bool,
}

/// Checks objects at the destination before their download, one page at a time on a helper thread,
/// and counts the results.
#[derive(Debug)]
pub(crate) struct ExistingFiles {
    judge: BlockingState<Judge, Vec<Verdict>>,
    /// If true, existing files may be replaced.
    pub(crate) may_replace: bool,
    rules: KeepArgs,
    begun: Instant,
    keys: Arc<PublishedKeys>,
    /// Objects and bytes that were skipped.
    pub(super) kept: (u64, u64),
    /// Skipped objects that were recognized only by the compared properties.
    pub(super) unmarked: u64,
    /// Resumed objects, and their existing bytes.
    pub(super) resumed: (u64, u64),
    /// Objects that are downloaded although a file is marked as theirs, because it may have been
    /// written by another user.
    foreign: u64,
    /// Unfinished objects that begin again.
    anew: BTreeMap<Unfit, u64>,
}

/// The state that a run with these rules leaves for later runs.
pub(crate) fn persistence(rules: &KeepArgs) -> Persistence {
    Persistence {
        resume: rules.resume(),
        times: !rules.no_times,
        sync_files: rules.syncs_files(),
        boot: crate::files::system_host::boot(),
    }
}

/// A host of the control plane's own, for calls that the workers do not make.
fn machine(
    folder: Root,
    rules: &KeepArgs,
    begun: Instant,
    keys: &Arc<PublishedKeys>,
) -> SystemHost {
    SystemHost::new(begun, 0, Some(folder), Arc::clone(keys), persistence(rules))
}

impl ExistingFiles {
    /// Checks these folders; none if none exists, or nothing is written. `dry`: changes nothing.
    /// Obstacles may be removed if the destination `follows_source`.
    pub(crate) fn new(
        folders: Present,
        (rules, verify): (KeepArgs, VerifyMode),
        (dry, follows_source): (bool, bool),
        begun: Instant,
        keys: Arc<PublishedKeys>,
    ) -> Self {
        let when_all = match verify {
            VerifyMode::Off => WhenAll::Publish,
            VerifyMode::Auto | VerifyMode::Strict => WhenAll::LeaveOne,
        };
        let may_replace = !folders.roots.is_empty() && rules.overwrite != Overwrite::Never;
        let roots = folders.roots.into_iter();
        let machines =
            roots.map(|(place, folder)| (place, machine(folder, &rules, begun, &keys))).collect();
        let are_several = folders.are_several;
        let judge = Judge {
            machines,
            are_several,
            remembers: false,
            dry,
            follows_source,
            rules,
            when_all,
            resumed: 0,
            freed: Vec::new(),
        };
        let (kept, resumed, anew) = ((0, 0), (0, 0), BTreeMap::new());
        let judge = BlockingState::new(judge);
        let (unmarked, foreign) = (0, 0);
        Self { judge, may_replace, rules, begun, keys, kept, unmarked, resumed, foreign, anew }
    }

    /// A host of the control plane's own, for calls that the workers do not make.
    pub(crate) fn machine_at(&self, folder: Root) -> SystemHost {
        machine(folder, &self.rules, self.begun, &self.keys)
    }

    /// Starts checking a page of objects. Those that cannot have a file are passed through, so that
    /// the order stays.
    ///
    /// # Panics
    /// While another page is checked.
    pub(crate) fn begin(&mut self, page: Vec<Settled>) {
        self.judge.begin(move |judge, given_up| judge.page(page, given_up));
    }

    /// Starts checking objects that were blocked, once the whole source is known: obstacles are
    /// removed before they are checked again, or they fail.
    ///
    /// # Panics
    /// While another page is checked.
    pub(crate) fn begin_cleared(&mut self, blocked: Vec<(FileDownload, Error)>, how: Clearing) {
        self.judge.begin(move |judge, given_up| judge.clear(blocked, &how, given_up));
    }

    /// True while a page is checked.
    pub(super) fn is_busy(&self) -> bool {
        self.judge.is_busy()
    }

    /// The decisions on the page's objects; pending forever if there is none. Cancel safe.
    pub(crate) async fn next(&mut self) -> Vec<Verdict> {
        self.judge.next().await
    }

    /// Cancels the check of the page, for a run that ends.
    pub(super) fn give_up(&mut self) {
        self.judge.give_up();
    }

    /// Counts a skipped object.
    pub(super) fn count_kept(&mut self, download: &FileDownload, kept: KeptReason) {
        self.unmarked += u64::from(matches!(kept, KeptReason::SizeAndTime | KeptReason::Size));
        self.kept.0 += 1;
        self.kept.1 = self.kept.1.saturating_add(download.object.listed.size_bytes);
    }

    /// Counts the existing bytes of an object that is downloaded.
    pub(super) fn count_before(&mut self, before: &Before) {
        self.foreign += u64::from(before.foreign);
        // A journal alone saves no bytes.
        if before.resumed && before.done_bytes > 0 {
            self.resumed.0 += 1;
            self.resumed.1 = self.resumed.1.saturating_add(before.done_bytes);
        }
        if let Some(unfit) = before.unfit {
            *self.anew.entry(unfit).or_default() += 1;
        }
    }

    /// Unfinished objects that began again.
    pub(super) fn anew(&self) -> u64 {
        self.anew.values().sum()
    }

    /// The notes to print, one per line.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.kept.0 > 0 {
            let (objects, bytes) = self.kept;
            let objects = counted(objects, "object", "objects");
            notes.push(format!("{objects} ({}) already present, skipped", Decimal(bytes)));
        }
        if self.unmarked > 0 {
            let by = match self.rules.compare() {
                Compare::Size => "size",
                Compare::SizeAndTime | Compare::Nothing => "size and time",
            };
            let objects = Count(self.unmarked);
            notes.push(format!("{objects} of these compared by {by}, not verified"));
        }
        if self.resumed.0 > 0 {
            let (objects, bytes) = self.resumed;
            let (objects, bytes) = (counted(objects, "object", "objects"), Decimal(bytes));
            notes.push(format!("{objects} resumed: {bytes} downloaded by an earlier run"));
        }
        if self.foreign > 0 {
            let files = counted(self.foreign, "file", "files");
            notes.push(format!(
                "{files} of other users or with several names (hard links) not trusted, downloaded \
                 again"
            ));
        }
        for (unfit, objects) in &self.anew {
            let why = unfit.explain();
            let unfinished = counted(*objects, "unfinished object", "unfinished objects");
            notes.push(format!("{unfinished} restarted from the first byte: {why}"));
        }
        let machines = self.judge.state().map(|judge| judge.machines.as_slice());
        let mut machines = machines.unwrap_or_default().iter().map(|(_, machine)| machine);
        if let Some(name) = machines.find_map(SystemHost::ignored) {
            notes.push(format!("ignored {name} at the destination: it belongs to another user"));
        }
        notes
    }
}

/// The existing folders of a destination.
#[derive(Debug, Default)]
pub(crate) struct Present {
    /// Each with its number.
    pub(super) roots: Vec<(u8, Root)>,
    /// There are several destinations, existing or not.
    pub(super) are_several: bool,
}

impl Present {
    /// The first existing folder.
    pub(crate) fn first(self) -> Option<Root> {
        self.roots.into_iter().next().map(|(_, root)| root)
    }
}

/// How obstacles are removed.
#[derive(Debug)]
pub(crate) struct Clearing {
    pub(crate) mirror: Arc<Mirror>,
    /// Gets each removed path.
    pub(crate) removed: Sender<String>,
    /// The destination, and its free bytes; `None` if space is not checked.
    pub(crate) room: Option<(PathBuf, u64)>,
}

impl Clearing {
    /// Refuses objects without space before anything is removed.
    fn require_room(&self, blocked: &[(FileDownload, Error)]) -> Result<(), Error> {
        let Some((folder, left)) = &self.room else { return Ok(()) };
        let free = disk_space(folder).map_or(*left, |disk| disk.free_bytes.min(*left));
        let sizes = blocked.iter().map(|(download, _)| taken_by(download.object.listed.size_bytes));
        let needed = sizes.fold(0u64, u64::saturating_add);
        if needed <= free {
            return Ok(());
        }
        let message = format!(
            "what is in its way was not deleted: {} has {} free, but objects with something in \
             their way need {} before that is deleted",
            folder.display(),
            Decimal(free),
            Decimal(needed)
        );
        Err(Error::new(ErrorKind::Destination, message)
            .because(ErrorReason::NoSpace)
            .advise("free space, or use --no-space-check"))
    }
}

/// The path that an object needs; a folder's ends in a slash.
fn needed_path(download: &FileDownload) -> String {
    match download.shape {
        Shape::Folder => format!("{}/", download.path.trim_end_matches('/')),
        _ => download.path.clone(),
    }
}

/// Makes the file system calls.
#[derive(Debug)]
struct Judge {
    /// Each with the number of its destination; none if nothing can exist there.
    machines: Vec<(u8, SystemHost)>,
    /// An object may be at any of several destinations.
    are_several: bool,
    /// The records of earlier runs about whole destinations were read.
    remembers: bool,
    dry: bool,
    /// Obstacles of objects may be removed.
    follows_source: bool,
    rules: KeepArgs,
    when_all: WhenAll,
    /// Resumed objects.
    resumed: usize,
    /// Space freed at several destinations that is not reported yet.
    freed: Vec<(u8, u64)>,
}

/// The location of an object's files among several destinations.
#[derive(Debug, Default)]
struct Found {
    at: Option<usize>,
    /// It is a file of the object's name.
    is_file: bool,
    /// Why its unfinished file cannot be used.
    unfit: Option<Unfit>,
}

impl Judge {
    /// Checks a page, to its end or until its result is no longer awaited.
    fn page(&mut self, page: Vec<Settled>, given_up: &GivenUp) -> Vec<Verdict> {
        if !self.remembers {
            self.machines.iter_mut().for_each(|(_, machine)| machine.remember());
            self.remembers = true;
        }
        let mut verdicts = Vec::with_capacity(page.len());
        for settled in page.into_iter().take_while(|_| !given_up.get()) {
            verdicts.push(match settled {
                Ok(download) => self.judge(download),
                Err(failed) => Verdict::Fail(failed),
            });
            verdicts
                .extend(self.freed.drain(..).map(|(place, bytes)| Verdict::Freed(place, bytes)));
        }
        verdicts
    }

    /// Removes the obstacles of these objects, and checks them. Nothing is removed unless all
    /// obstacles may be removed and there is space for all objects; after a failure nothing else is
    /// removed.
    fn clear(
        &mut self,
        blocked: Vec<(FileDownload, Error)>,
        how: &Clearing,
        given_up: &GivenUp,
    ) -> Vec<Verdict> {
        self.follows_source = false;
        let fail = |blocked| Verdict::Fail(Box::new(blocked));
        if let Err(error) = how.require_room(&blocked) {
            let because = |(download, _): (FileDownload, Error)| {
                let error = error.clone().within(download.object.name());
                fail((download, error))
            };
            return blocked.into_iter().map(because).collect();
        }
        let may_go = |judge: &mut Self, download: &FileDownload| {
            let swept = judge.clear_way(download, true, how, given_up);
            swept.left == 0 && swept.error.is_none()
        };
        if !blocked.iter().all(|(download, _)| may_go(self, download)) {
            return blocked.into_iter().map(fail).collect();
        }
        let mut verdicts = Vec::with_capacity(blocked.len());
        let mut has_failed = false;
        for (download, error) in blocked {
            let verdict = if self.dry {
                Verdict::Fetch(download, Before::default())
            } else if has_failed || given_up.get() {
                fail((download, error))
            } else {
                let swept = self.clear_way(&download, false, how, given_up);
                match (self.judge(download), swept.error) {
                    (Verdict::Fail(failed), Some(error)) => {
                        let error = error.within(failed.0.object.name());
                        fail((failed.0, error))
                    }
                    (verdict, _) => verdict,
                }
            };
            has_failed |= matches!(verdict, Verdict::Fail(_));
            verdicts.push(verdict);
        }
        verdicts
    }

    /// Removes the obstacles of an object, or checks if that is allowed (`dry`).
    fn clear_way(
        &mut self,
        download: &FileDownload,
        dry: bool,
        how: &Clearing,
        given_up: &GivenUp,
    ) -> Swept {
        let path = needed_path(download);
        let Some((_, machine)) = self.machines.first_mut() else { return Swept::default() };
        how.mirror.clear_way(machine, (&path, dry), given_up, |path| {
            if !dry {
                // The receiver outlives the removal.
                let _ = how.removed.blocking_send(path.to_owned());
            }
        })
    }

    /// The decision on an object.
    fn judge(&mut self, mut download: FileDownload) -> Verdict {
        let mut before = Before::default();
        let obstacle = |(_, machine): &mut (u8, SystemHost)| machine.obstacle(&download);
        if let Some(error) = self.machines.iter_mut().find_map(obstacle) {
            let failed = Box::new((download, error));
            return match self.follows_source {
                true => Verdict::Blocked(failed),
                false => Verdict::Fail(failed),
            };
        }
        if download.shape == Shape::Folder {
            // For a folder it suffices that no destination has an obstacle.
            download.place = self.are_several.then_some(0);
            // It is created at the first one.
            let first = self.machines.iter_mut().find(|(place, _)| *place == 0);
            let is_there = first.is_some_and(|(_, machine)| machine.has_folder(&download));
            return match is_there && keeps(self.rules) {
                true => Verdict::Keep(download, KeptReason::Folder, 0),
                false => Verdict::Fetch(download, before),
            };
        }
        if self.machines.is_empty() {
            return Verdict::Fetch(download, before);
        }
        let found = match self.are_several {
            false => Found { at: Some(0), ..Found::default() },
            true => match self.find(&download) {
                Ok(found) => found,
                Err(error) => return Verdict::Fail(Box::new((download, error))),
            },
        };
        before.unfit = found.unfit;
        // None of several destinations has a usable file of it.
        let Some(at) = found.at else { return Verdict::Fetch(download, before) };
        let (place, machine) = &mut self.machines[at];
        download.place = Some(*place).filter(|_| self.are_several);
        download.stays = found.is_file;
        let standing = match standing(machine, self.rules, &download) {
            Ok(found) => found,
            // If it may be replaced, and can only be in one place, its own calls will report the
            // error.
            Err(_) if !self.are_several && self.rules.overwrite != Overwrite::Never => {
                Standing::default()
            }
            Err(error) => {
                let error = Error::from(error).within(download.object.name());
                return Verdict::Fail(Box::new((download, error)));
            }
        };
        let kept = standing.kept;
        (before.replaced_bytes, before.foreign) = (standing.space_bytes, standing.is_foreign);
        match kept {
            _ if self.dry => {}
            None if self.rules.resume() => return self.go_on(at, download, before),
            // Left by a run that was killed between the rename and its last step, or earlier.
            _ => before.reclaimed_bytes = machine.clear(&download),
        }
        match kept {
            Some(kept) => Verdict::Keep(download, kept, before.reclaimed_bytes),
            None => Verdict::Fetch(download, before),
        }
    }

    /// Which of several destinations has the object: its file, or else the unfinished one with most
    /// bytes. Unfinished files at the others are removed, unless another process works on them.
    ///
    /// # Errors
    /// If more than one has a file of its name, because the right one is unknown; and if one cannot
    /// be checked, because it may have the file.
    fn find(&mut self, download: &FileDownload) -> Result<Found, Error> {
        let trouble = |error| Error::from(error).within(download.object.name());
        let mut files = Vec::new();
        for (at, (_, machine)) in self.machines.iter_mut().enumerate() {
            if machine.look(download).map_err(trouble)?.0 != FileState::Absent {
                files.push(at);
            }
        }
        if let [first, second, ..] = files[..] {
            let [first, second] = [first, second].map(|at| self.machines[at].1.place(download));
            let message = format!("{first} and {second} are both there, but it needs one file");
            let error = Error::new(ErrorKind::Destination, message).advise("remove one of them");
            return Err(error.within(download.object.name()));
        }
        let found = match files.first() {
            Some(at) => Found { at: Some(*at), is_file: true, unfit: None },
            None => self.find_unfinished(download).map_err(trouble)?,
        };
        let others = self.machines.iter_mut().enumerate();
        for (_, (place, machine)) in others.filter(|(at, _)| !self.dry && found.at != Some(*at)) {
            let bytes = machine.clear(download);
            self.freed.extend((bytes > 0).then_some((*place, bytes)));
        }
        Ok(found)
    }

    /// Which of several destinations has most of an object in an unfinished file.
    fn find_unfinished(&mut self, download: &FileDownload) -> Result<Found, FileError> {
        let (mut found, mut most_bytes) = (Found::default(), 0);
        for (at, (_, machine)) in self.machines.iter_mut().enumerate() {
            match machine.unfinished(download)? {
                Unfinished::Nothing => {}
                Unfinished::Unfit(unfit) => found.unfit = Some(unfit),
                Unfinished::Fit(bytes) if found.at.is_none() || bytes > most_bytes => {
                    (found.at, most_bytes) = (Some(at), bytes);
                }
                Unfinished::Fit(_) => {}
            }
        }
        found.unfit = found.unfit.filter(|_| found.at.is_none());
        Ok(found)
    }

    fn go_on(&mut self, at: usize, download: FileDownload, before: Before) -> Verdict {
        let (_, machine) = &mut self.machines[at];
        if self.resumed >= UNFINISHED_OPEN_MAX {
            return Verdict::Fetch(download, before);
        }
        match machine.go_on(download, self.when_all) {
            Left::Nothing(download) => Verdict::Fetch(download, before),
            Left::All(download) => {
                Verdict::Keep(download, KeptReason::Finished, before.replaced_bytes)
            }
            Left::Some(download) => {
                self.resumed += 1;
                let done_bytes = download.resumed_bytes();
                // Its blocks were allocated at its beginning.
                let reclaimed_bytes = download.object.listed.size_bytes;
                let before = Before { done_bytes, reclaimed_bytes, resumed: true, ..before };
                Verdict::Fetch(download, before)
            }
            Left::Unfit(download, unfit, reclaimed_bytes) => {
                let unfit = Some(unfit);
                Verdict::Fetch(download, Before { reclaimed_bytes, unfit, ..before })
            }
        }
    }
}

/// An existing file.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    /// Why it is skipped; `None` if it is not.
    kept: Option<KeptReason>,
    /// It is replaced because it may have been written by another user.
    is_foreign: bool,
    /// Its space.
    space_bytes: u64,
}

/// True if files that exist may be kept.
fn keeps(rules: KeepArgs) -> bool {
    rules.overwrite == Overwrite::Never || (rules.overwrite == Overwrite::Changed && rules.resume())
}

/// Checks the existing file.
///
/// # Errors
/// If the file system returns an error.
fn standing(
    machine: &mut SystemHost,
    rules: KeepArgs,
    download: &FileDownload,
) -> Result<Standing, FileError> {
    let (standing, space_bytes) = match keeps(rules) {
        true => machine.look(download)?,
        false => (FileState::Absent, machine.replaced_bytes(download)?),
    };
    let kept = match (standing, rules.overwrite, rules.compare()) {
        (FileState::Absent, ..) => None,
        (FileState::Same, ..) => Some(KeptReason::Same),
        (_, Overwrite::Never, _) => Some(KeptReason::Present),
        (FileState::Unmarked { .. } | FileState::Foreign, _, Compare::Size) => {
            Some(KeptReason::Size)
        }
        (FileState::Unmarked { same_time: true }, _, Compare::SizeAndTime) => {
            Some(KeptReason::SizeAndTime)
        }
        (FileState::Unmarked { .. } | FileState::Other | FileState::Foreign, ..) => None,
    };
    Ok(Standing { kept, is_foreign: standing == FileState::Foreign && kept.is_none(), space_bytes })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::files::file_download::Cut;
    use crate::files::host::{FileHost, FileJob, FileTask};
    use crate::plan::ranges::PartSize;
    use crate::s3::{Endpoint, Object};

    const MIB: u64 = 1 << 20;

    /// A version of a large object, in ranges of 1 MiB.
    fn object(etag: &str) -> FileDownload {
        let endpoint = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
        let part = PartSize::new(MIB).expect("aligned");
        let (key, etag) = ("d/large".to_owned(), format!("\"{etag}\""));
        let object = Object { key, etag, size_bytes: 5 * MIB + 3, ..Object::default() };
        FileDownload::new(
            object,
            endpoint,
            "d/large".to_owned(),
            Cut { part, slot_length_bytes: 1 << 16 },
        )
    }

    #[expect(clippy::disallowed_methods, reason = "a machine of a test begins now")]
    fn machine_of(folder: &Path) -> SystemHost {
        let root = Root::open(folder, folder.to_owned()).expect("a folder");
        let keys = Arc::new(PublishedKeys::new(None));
        machine(root, &KeepArgs::default(), Instant::now(), &keys)
    }

    /// Begins an object here, completes this many ranges, and stops.
    fn begin(folder: &Path, download: FileDownload, ranges: u64) -> Arc<FileDownload> {
        let (mut machine, download) = (machine_of(folder), Arc::new(download));
        let notes = (0..ranges).map(|index| FileJob::Note { index, prefix_bytes: None });
        for job in [FileJob::Create].into_iter().chain(notes) {
            machine.begin(FileTask { token: 0, download: Arc::clone(&download), job });
            let done = machine.finished().expect("done at once");
            assert!(done.outcome.is_ok(), "{done:?}");
        }
        download
    }

    struct Places {
        folder: tempfile::TempDir,
    }

    impl Places {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            for name in ["0", "1", "2"] {
                std::fs::create_dir(folder.path().join(name)).expect("new");
            }
            Self { folder }
        }

        fn at(&self, place: u8) -> PathBuf {
            self.folder.path().join(place.to_string())
        }

        /// Number of files in each.
        fn counts(&self) -> [usize; 3] {
            [0, 1, 2]
                .map(|place| std::fs::read_dir(self.at(place).join("d")).map_or(0, Iterator::count))
        }

        /// The decision on the object.
        fn judge(&self, dry: bool) -> Vec<Verdict> {
            let machines = (0..3).map(|place| (place, machine_of(&self.at(place)))).collect();
            let mut judge = Judge {
                machines,
                are_several: true,
                remembers: false,
                dry,
                follows_source: false,
                rules: KeepArgs::default(),
                when_all: WhenAll::LeaveOne,
                resumed: 0,
                freed: Vec::new(),
            };
            judge.page(vec![Ok(object("1"))], &GivenUp::default())
        }
    }

    /// Its destination, its existing bytes, and why it begins again.
    fn fetched(verdicts: &[Verdict]) -> (Option<u8>, u64, Option<Unfit>) {
        match &verdicts[0] {
            Verdict::Fetch(download, before) => (download.place, before.done_bytes, before.unfit),
            other => panic!("not fetched: {other:?}"),
        }
    }

    #[test]
    fn of_several_unfinished_files_the_one_with_most_bytes_goes_on() {
        let places = Places::new();
        for (place, ranges) in [(0, 1), (1, 3), (2, 2)] {
            drop(begin(&places.at(place), object("1"), ranges));
        }
        assert_eq!(fetched(&places.judge(true)).0, Some(1));
        assert_eq!(places.counts(), [2, 2, 2], "nothing is touched");
        let verdicts = places.judge(false);
        assert_eq!(fetched(&verdicts), (Some(1), 3 * MIB, None));
        assert_eq!(places.counts(), [0, 2, 0], "the others are not needed any more");
        let freed = verdicts.iter().filter_map(|verdict| match verdict {
            Verdict::Freed(place, bytes) if *bytes > 0 => Some(*place),
            _ => None,
        });
        assert_eq!(freed.collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn what_cannot_go_on_decides_nothing() {
        let places = Places::new();
        drop(begin(&places.at(0), object("0"), 4));
        drop(begin(&places.at(1), object("1"), 1));
        let held = begin(&places.at(2), object("1"), 3);
        assert_eq!(fetched(&places.judge(false)), (Some(1), MIB, None), "the only one of use");
        assert_eq!(places.counts(), [0, 2, 2], "somebody is at work on the last");
        drop(held);
        // Only another version: it may go anywhere.
        let places = Places::new();
        drop(begin(&places.at(1), object("0"), 4));
        assert_eq!(fetched(&places.judge(false)), (None, 0, Some(Unfit::Changed)));
        assert_eq!(places.counts(), [0, 0, 0]);
        // And a file that is not ours.
        let journal = places.at(2).join("d");
        drop(begin(&places.at(2), object("1"), 1));
        for entry in std::fs::read_dir(&journal).expect("there") {
            let path = entry.expect("an entry").path();
            std::fs::hard_link(&path, places.at(0).join(path.file_name().expect("it has one")))
                .expect("a second name");
        }
        assert_eq!(fetched(&places.judge(false)), (None, 0, Some(Unfit::Foreign)));
        assert_eq!(places.counts(), [0, 0, 2]);
    }

    #[test]
    fn a_folder_that_cannot_be_looked_into_is_no_empty_one() {
        use std::os::unix::fs::PermissionsExt;
        let places = Places::new();
        drop(begin(&places.at(0), object("1"), 1));
        let closed = places.at(1).join("d");
        std::fs::create_dir(&closed).expect("a folder");
        let allow = |mode| {
            std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).expect("ours");
        };
        allow(0);
        // For this thread only: root could read everything.
        let mut sets = capabilities(None).expect("they are known");
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).expect("less is always allowed");
        for dry in [true, false] {
            let verdicts = places.judge(dry);
            let Verdict::Fail(failed) = &verdicts[0] else { panic!("{verdicts:?}") };
            let message = failed.1.to_string();
            for words in ["d/large", &closed.display().to_string(), "Permission denied"] {
                assert!(message.contains(words), "{words}: {message}");
            }
            assert_eq!(places.counts()[0], 2, "nothing is removed");
        }
        allow(0o755);
        assert_eq!(fetched(&places.judge(false)), (Some(0), MIB, None));
    }
}
