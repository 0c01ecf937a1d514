//! What earlier runs left at the destination: objects that need no fetching, and unfinished ones
//! that go on.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::cli::{KeepArgs, Overwrite, VerifyMode};
use crate::journal::Unfit;
use crate::limits::UNFINISHED_OPEN_MAX;
use crate::machine::{Keeping, Left, Machine, Standing, WhenAll};
use crate::report::Kept;
use crate::s3::sign::PublishedKeys;
use crate::size::{Count, Decimal};
use crate::transfer::{Shape, Transfer};

/// What is to be done about an object.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Fetch it, or what is missing of it; of its bytes so many are there.
    Fetch(Transfer, u64),
    /// Leave the file as it is.
    Keep(Transfer, Kept),
}

/// Looks objects up at the destination before they are fetched.
#[derive(Debug)]
pub(super) struct Keeper {
    /// `None` where nothing can be there.
    machine: Option<Machine>,
    rules: KeepArgs,
    when_all: WhenAll,
    begun: Instant,
    keys: Arc<PublishedKeys>,
    /// Objects and bytes that were left as they are.
    pub(super) kept: (u64, u64),
    /// Objects that go on, and their bytes that were there.
    pub(super) resumed: (u64, u64),
    /// Unfinished objects that begin anew.
    anew: BTreeMap<Unfit, u64>,
    /// Space that unfinished files take already.
    pub(super) space_bytes: u64,
}

/// What a run with these rules leaves for a later one.
pub(super) fn keeping(rules: &KeepArgs) -> Keeping {
    Keeping {
        resume: rules.resume(),
        sync_files: rules.syncs_files(),
        boot: crate::machine::boot(),
    }
}

impl Keeper {
    /// Looks at this folder; `None` where it is not there, or nothing is written.
    pub(super) fn new(
        folder: Option<OwnedFd>,
        (rules, verify): (KeepArgs, VerifyMode),
        begun: Instant,
        keys: Arc<PublishedKeys>,
    ) -> Self {
        let when_all = match verify {
            VerifyMode::Off => WhenAll::Publish,
            VerifyMode::Auto | VerifyMode::Strict => WhenAll::LeaveOne,
        };
        let (kept, resumed) = ((0, 0), (0, 0));
        let (machine, anew, space_bytes) = (None, BTreeMap::new(), 0);
        let mut keeper =
            Self { machine, rules, when_all, begun, keys, kept, resumed, anew, space_bytes };
        keeper.machine = folder.map(|folder| {
            let mut machine = keeper.machine_at(folder);
            machine.remember();
            machine
        });
        keeper
    }

    /// A machine of the control plane's own, for calls that the workers do not make.
    pub(super) fn machine_at(&self, folder: OwnedFd) -> Machine {
        let (keys, keeping) = (Arc::clone(&self.keys), keeping(&self.rules));
        Machine::new(self.begun, 0, Some(Arc::new(folder)), keys, keeping)
    }

    /// What is to be done about an object.
    pub(super) fn judge(&mut self, transfer: Transfer) -> Verdict {
        let Some(machine) = &mut self.machine else { return Verdict::Fetch(transfer, 0) };
        if transfer.shape == Shape::Folder {
            return Verdict::Fetch(transfer, 0);
        }
        let kept = standing(machine, self.rules, &transfer);
        if kept.is_none() && self.rules.resume() {
            return self.go_on(transfer);
        }
        // A run that was killed, between a name and its last step or before, has left these.
        machine.clear(&transfer);
        match kept {
            Some(kept) => self.keep(transfer, kept),
            None => Verdict::Fetch(transfer, 0),
        }
    }

    /// Whether an object would be left as it is, for `--dry-run`; nothing is touched.
    pub(super) fn would_keep(&mut self, transfer: &Transfer) -> bool {
        let Some(machine) = &mut self.machine else { return false };
        transfer.shape != Shape::Folder && standing(machine, self.rules, transfer).is_some()
    }

    fn keep(&mut self, transfer: Transfer, kept: Kept) -> Verdict {
        self.kept.0 += 1;
        self.kept.1 = self.kept.1.saturating_add(transfer.object.size_bytes);
        Verdict::Keep(transfer, kept)
    }

    fn go_on(&mut self, transfer: Transfer) -> Verdict {
        let Some(machine) = &mut self.machine else { return Verdict::Fetch(transfer, 0) };
        if self.resumed.0 >= UNFINISHED_OPEN_MAX as u64 {
            return Verdict::Fetch(transfer, 0);
        }
        match machine.go_on(transfer, self.when_all) {
            Left::Nothing(transfer) => Verdict::Fetch(transfer, 0),
            Left::All(transfer) => self.keep(transfer, Kept::Finished),
            Left::Some(transfer) => {
                let done = transfer.resumed_bytes();
                self.resumed.0 += 1;
                self.resumed.1 = self.resumed.1.saturating_add(done);
                Verdict::Fetch(transfer, done)
            }
            Left::Unfit(transfer, unfit, space_bytes) => {
                *self.anew.entry(unfit).or_default() += 1;
                self.space_bytes = self.space_bytes.saturating_add(space_bytes);
                Verdict::Fetch(transfer, 0)
            }
        }
    }

    /// Unfinished objects that began anew.
    pub(super) fn anew(&self) -> u64 {
        self.anew.values().sum()
    }

    /// What there is to tell of it, in lines.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.kept.0 > 0 {
            let (objects, bytes) = self.kept;
            let verb = if objects == 1 { "was" } else { "were" };
            let objects = counted(objects);
            notes.push(format!("{objects} {verb} there already: {}", Decimal(bytes)));
        }
        if self.resumed.0 > 0 {
            let (objects, bytes) = self.resumed;
            let bytes = Decimal(bytes);
            notes.push(format!("{} went on where an earlier run ended: {bytes}", counted(objects)));
        }
        for (unfit, objects) in &self.anew {
            let why = unfit.explain();
            notes.push(format!("{} began anew: {why}", unfinished(*objects)));
        }
        notes
    }
}

/// Why the file that stands there is left as it is; `None` when it is not.
fn standing(machine: &mut Machine, rules: KeepArgs, transfer: &Transfer) -> Option<Kept> {
    let standing = match (rules.overwrite, rules.resume()) {
        (Overwrite::Never, _) | (Overwrite::Changed, true) => machine.look(transfer),
        (Overwrite::Always, _) | (Overwrite::Changed, false) => Standing::Absent,
    };
    match (standing, rules.overwrite) {
        (Standing::Same, _) => Some(Kept::Same),
        (Standing::Other, Overwrite::Never) => Some(Kept::Present),
        _ => None,
    }
}

fn counted(objects: u64) -> String {
    format!("{} {}", Count(objects), if objects == 1 { "object" } else { "objects" })
}

fn unfinished(objects: u64) -> String {
    let word = if objects == 1 { "unfinished object" } else { "unfinished objects" };
    format!("{} {word}", Count(objects))
}
