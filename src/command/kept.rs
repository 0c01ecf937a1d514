//! What earlier runs left at the destination: objects that need no fetching, and unfinished ones
//! that go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::aside::{Aside, GivenUp};
use super::checksums::Settled;
use crate::cli::{Compare, KeepArgs, Overwrite, VerifyMode};
use crate::error::{Error, ErrorKind};
use crate::files::journal::Unfit;
use crate::files::system_host::{FileState, Left, Persistence, Root, SystemHost, WhenAll};
use crate::files::transfer::{Shape, Transfer};
use crate::limits::UNFINISHED_OPEN_MAX;
use crate::report::document::KeptReason;
use crate::s3::sign::PublishedKeys;
use crate::text::size::{Count, Decimal, counted};

/// What is to be done about an object.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Fetch it, or what is missing of it.
    Fetch(Transfer, Before),
    /// Leave the file as it is; so many bytes of unfinished files or older versions are free now.
    Keep(Transfer, KeptReason, u64),
    /// It can have no file.
    Fail(Box<(Transfer, Error)>),
}

/// What stands at the destination of an object that is to be fetched.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    /// Of its bytes so many are there, in an unfinished file.
    pub(super) done_bytes: u64,
    /// Space of an unfinished file that is used again, or free now.
    pub(super) reclaimed_bytes: u64,
    /// Space of the file that it replaces.
    pub(super) replaced_bytes: u64,
    /// It begins again, for this reason.
    pub(super) unfit: Option<Unfit>,
    /// It goes on.
    pub(super) resumed: bool,
}

/// Looks objects up at the destination before they are fetched, a page at a time on a helper
/// thread, and counts what it found.
#[derive(Debug)]
pub(super) struct ExistingFiles {
    judge: Aside<Judge, Vec<Verdict>>,
    /// Whether files that are there may be replaced.
    pub(super) may_replace: bool,
    rules: KeepArgs,
    begun: Instant,
    keys: Arc<PublishedKeys>,
    /// Objects and bytes that were left as they are.
    pub(super) kept: (u64, u64),
    /// Those of them that are known by what they were compared by alone.
    pub(super) unmarked: u64,
    /// Objects that go on, and their bytes that were there.
    pub(super) resumed: (u64, u64),
    /// Unfinished objects that begin again.
    anew: BTreeMap<Unfit, u64>,
}

/// What a run with these rules leaves for a later one.
pub(super) fn keeping(rules: &KeepArgs) -> Persistence {
    Persistence {
        resume: rules.resume(),
        times: !rules.no_times,
        sync_files: rules.syncs_files(),
        boot: crate::files::system_host::boot(),
    }
}

/// A machine of the control plane's own, for calls that the workers do not make.
fn machine(
    folder: Root,
    rules: &KeepArgs,
    begun: Instant,
    keys: &Arc<PublishedKeys>,
) -> SystemHost {
    SystemHost::new(begun, 0, Some(folder), Arc::clone(keys), keeping(rules))
}

impl ExistingFiles {
    /// Looks at these folders, of as many as there are; none where none is there, or nothing is
    /// written. With `dry` nothing is touched.
    pub(super) fn new(
        folders: Present,
        (rules, verify): (KeepArgs, VerifyMode),
        dry: bool,
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
        let judge =
            Judge { machines, are_several, remembers: false, dry, rules, when_all, resumed: 0 };
        let (kept, resumed, anew) = ((0, 0), (0, 0), BTreeMap::new());
        let judge = Aside::new(judge);
        Self { judge, may_replace, rules, begun, keys, kept, unmarked: 0, resumed, anew }
    }

    /// A machine of the control plane's own, for calls that the workers do not make.
    pub(super) fn machine_at(&self, folder: Root) -> SystemHost {
        machine(folder, &self.rules, self.begun, &self.keys)
    }

    /// Begins to look up a page of objects. Those that can have no file pass through, so that the
    /// order stays.
    ///
    /// # Panics
    /// While another page is looked up.
    pub(super) fn begin(&mut self, page: Vec<Settled>) {
        self.judge.begin(move |judge, given_up| judge.page(page, given_up));
    }

    /// True while a page is looked up.
    pub(super) fn is_busy(&self) -> bool {
        self.judge.is_busy()
    }

    /// What is to be done about the page's objects; waits for ever when there is none. The future
    /// may be dropped and made again.
    pub(super) async fn next(&mut self) -> Vec<Verdict> {
        self.judge.next().await
    }

    /// Gives the page that is looked up up, for a run that ends.
    pub(super) fn give_up(&mut self) {
        self.judge.give_up();
    }

    /// Counts an object that is left as it is.
    pub(super) fn count_kept(&mut self, transfer: &Transfer, kept: KeptReason) {
        self.unmarked += u64::from(matches!(kept, KeptReason::SizeAndTime | KeptReason::Size));
        self.kept.0 += 1;
        self.kept.1 = self.kept.1.saturating_add(transfer.object.size_bytes);
    }

    /// Counts what was there of an object that is fetched.
    pub(super) fn count_before(&mut self, before: &Before) {
        // A journal alone saves nothing.
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

    /// What there is to tell of it, in lines.
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

/// The folders of a destination that are there already.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// Each with its number.
    pub(super) roots: Vec<(u8, Root)>,
    /// There are several destinations, be they there or not.
    pub(super) are_several: bool,
}

impl Present {
    /// The first of them that is there.
    pub(super) fn first(self) -> Option<Root> {
        self.roots.into_iter().next().map(|(_, root)| root)
    }
}

/// Makes the calls of the file system.
#[derive(Debug)]
struct Judge {
    /// Each with the number of its destination; none where nothing can be there.
    machines: Vec<(u8, SystemHost)>,
    /// An object may be at any of several destinations.
    are_several: bool,
    /// What earlier runs left at the destinations as a whole was read.
    remembers: bool,
    dry: bool,
    rules: KeepArgs,
    when_all: WhenAll,
    /// Objects that go on.
    resumed: usize,
}

impl Judge {
    /// Looks a page up, to its end or until nobody waits for it.
    fn page(&mut self, page: Vec<Settled>, given_up: &GivenUp) -> Vec<Verdict> {
        if !self.remembers {
            self.machines.iter_mut().for_each(|(_, machine)| machine.remember());
            self.remembers = true;
        }
        let judge = |settled| match settled {
            Ok(transfer) => self.judge(transfer),
            Err(failed) => Verdict::Fail(failed),
        };
        page.into_iter().take_while(|_| !given_up.get()).map(judge).collect()
    }

    /// What is to be done about an object.
    fn judge(&mut self, mut transfer: Transfer) -> Verdict {
        let mut before = Before::default();
        if transfer.shape == Shape::Folder {
            // Of a folder that nothing is in one is enough.
            transfer.place = self.are_several.then_some(0);
            return Verdict::Fetch(transfer, before);
        }
        if self.machines.is_empty() {
            return Verdict::Fetch(transfer, before);
        }
        let obstacle = |(_, machine): &mut (u8, SystemHost)| machine.obstacle(&transfer);
        if let Some(error) = self.machines.iter_mut().find_map(obstacle) {
            return Verdict::Fail(Box::new((transfer, error)));
        }
        let found = match self.are_several {
            false => Some(0),
            true => match self.find(&transfer) {
                Ok(found) => found,
                Err(error) => return Verdict::Fail(Box::new((transfer, error))),
            },
        };
        // Nothing of it is at any of several destinations.
        let Some(at) = found else { return Verdict::Fetch(transfer, before) };
        let (place, machine) = &mut self.machines[at];
        transfer.place = Some(*place).filter(|_| self.are_several);
        let (kept, replaced_bytes) = standing(machine, self.rules, &transfer);
        before.replaced_bytes = replaced_bytes;
        match kept {
            _ if self.dry => {}
            None if self.rules.resume() => return self.go_on(at, transfer, before),
            // A run that was killed, between a name and its last step or before, has left these.
            _ => before.reclaimed_bytes = machine.clear(&transfer),
        }
        match kept {
            Some(kept) => Verdict::Keep(transfer, kept, before.reclaimed_bytes),
            None => Verdict::Fetch(transfer, before),
        }
    }

    /// Which of several destinations has the object: its file, or else an unfinished one. What the
    /// others have of it that is unfinished goes.
    ///
    /// # Errors
    /// When more than one has a file of its name: none is taken for the right one.
    fn find(&mut self, transfer: &Transfer) -> Result<Option<usize>, Error> {
        let machines = self.machines.iter_mut().enumerate();
        let has_file = machines.filter_map(|(at, (_, machine))| {
            (machine.look(transfer).0 != FileState::Absent).then_some(at)
        });
        let files: Vec<usize> = has_file.collect();
        if let [first, second, ..] = files[..] {
            let [first, second] = [first, second].map(|at| self.machines[at].1.place(transfer));
            let message = format!("{first} and {second} are both there, but it needs one file");
            let error = Error::new(ErrorKind::Destination, message).advise("remove one of them");
            return Err(error.within(transfer.name()));
        }
        let mut found = files.first().copied();
        for (at, (_, machine)) in self.machines.iter_mut().enumerate() {
            match found {
                None if machine.has_unfinished(transfer) => found = Some(at),
                Some(other) if other != at && !self.dry => {
                    machine.clear(transfer);
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn go_on(&mut self, at: usize, transfer: Transfer, before: Before) -> Verdict {
        let (_, machine) = &mut self.machines[at];
        if self.resumed >= UNFINISHED_OPEN_MAX {
            return Verdict::Fetch(transfer, before);
        }
        match machine.go_on(transfer, self.when_all) {
            Left::Nothing(transfer) => Verdict::Fetch(transfer, before),
            Left::All(transfer) => {
                Verdict::Keep(transfer, KeptReason::Finished, before.replaced_bytes)
            }
            Left::Some(transfer) => {
                self.resumed += 1;
                let done_bytes = transfer.resumed_bytes();
                // Its blocks are allocated at its begin.
                let reclaimed_bytes = transfer.object.size_bytes;
                let before = Before { done_bytes, reclaimed_bytes, resumed: true, ..before };
                Verdict::Fetch(transfer, before)
            }
            Left::Unfit(transfer, unfit, reclaimed_bytes) => {
                let unfit = Some(unfit);
                Verdict::Fetch(transfer, Before { reclaimed_bytes, unfit, ..before })
            }
        }
    }
}

/// Why the file that stands there is left as it is, `None` when it is not; and its space.
fn standing(
    machine: &mut SystemHost,
    rules: KeepArgs,
    transfer: &Transfer,
) -> (Option<KeptReason>, u64) {
    let (standing, space_bytes) = match (rules.overwrite, rules.resume()) {
        (Overwrite::Never, _) | (Overwrite::Changed, true) => machine.look(transfer),
        (Overwrite::Always, _) | (Overwrite::Changed, false) => {
            (FileState::Absent, machine.replaced_bytes(transfer))
        }
    };
    let kept = match (standing, rules.overwrite, rules.compare()) {
        (FileState::Absent, ..) => None,
        (FileState::Same, ..) => Some(KeptReason::Same),
        (_, Overwrite::Never, _) => Some(KeptReason::Present),
        (FileState::Unmarked { .. }, _, Compare::Size) => Some(KeptReason::Size),
        (FileState::Unmarked { same_time: true }, _, Compare::SizeAndTime) => {
            Some(KeptReason::SizeAndTime)
        }
        (FileState::Unmarked { .. } | FileState::Other, ..) => None,
    };
    (kept, space_bytes)
}
