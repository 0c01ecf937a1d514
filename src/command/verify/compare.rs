//! Compares one file with the stored checksum of its object, and marks it if it is to be adopted.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use tokio::sync::Semaphore;

use crate::checksum::{Algorithm, InOrder, Sequence, unverified};
use crate::control::Control;
use crate::control::checksum::PartsAsked;
use crate::control::list::walk::Entry;
use crate::error::{Error, ErrorKind, Result};
use crate::files::mark::Identity;
use crate::files::system_host::{Adopter, Adoption, Look, Proven};
use crate::limits::CHECK_PIECE_BYTES;
use crate::report::document::Finding;

/// Why a correct file is not marked.
const FOREIGN: &str = "its file belongs to another user or has several names (hard links), where \
                       a mark does not count";

/// The finding about a file of another size.
pub(super) fn other_size(found: u64, expected: u64) -> Finding {
    Finding::Mismatch(format!("the file has {found} bytes, the object {expected}"))
}

/// A file of its object's size.
pub(super) struct VerifiedFile {
    pub(super) file: OwnedFd,
    pub(super) size_bytes: u64,
    /// It is to be adopted.
    pub(super) claim: Option<Claim>,
}

/// The mark for a correct file.
pub(super) struct Claim {
    pub(super) adopter: Arc<Adopter>,
    pub(super) path: String,
    pub(super) identity: Identity,
}

impl Claim {
    /// Marks a file that was verified.
    fn take(
        &self,
        subject: &VerifiedFile,
        before: Look,
        algorithm: Option<&'static str>,
    ) -> Finding {
        let Self { adopter, path, identity } = self;
        let changed = || Finding::NotAdopted(algorithm, "it changed while it was read".to_owned());
        if before.length_bytes() != subject.size_bytes {
            return changed();
        }
        let named = Algorithm::ALL.into_iter().find(|known| Some(known.name()) == algorithm);
        let verdict = named.map_or(unverified::UNKNOWN, |named| unverified::encode(Ok(named)));
        let proven = Proven { file: &subject.file, path, before, identity: *identity, verdict };
        match adopter.adopt(&proven) {
            Ok(Adoption::Marked) => Finding::Adopted(algorithm),
            Ok(Adoption::Known) => algorithm.map_or(Finding::Empty, Finding::Validated),
            Ok(Adoption::Changed) => changed(),
            Ok(Adoption::Foreign) => Finding::NotAdopted(algorithm, FOREIGN.to_owned()),
            Err(errno) => {
                Finding::NotAdopted(algorithm, format!("its file cannot be marked: {errno}"))
            }
        }
    }
}

impl VerifiedFile {
    /// Reads the file and compares it with a checksum, if it has bytes.
    fn check(&self, goal: Option<InOrder>, read: &AtomicU64) -> Result<Finding, Errno> {
        let before = self.claim.as_ref().map(|_| Look::before(&self.file)).transpose()?;
        let finding = match goal {
            Some(goal) => digest(&self.file, goal, self.size_bytes, read)?,
            None => Finding::Empty,
        };
        Ok(match (&self.claim, before, &finding) {
            (Some(claim), Some(before), Finding::Validated(algorithm)) => {
                claim.take(self, before, Some(algorithm))
            }
            (Some(claim), Some(before), Finding::Empty) => claim.take(self, before, None),
            _ => finding,
        })
    }
}

/// Requests the checksum of an object, and compares its file with it.
pub(super) async fn compare(
    control: &Control,
    entry: &Entry,
    subject: VerifiedFile,
    readers: &Semaphore,
    read: Arc<AtomicU64>,
) -> Result<Finding> {
    let goal = match subject.size_bytes {
        0 => None,
        _ => match goal(control, entry, PartsAsked::FirstAndLast).await? {
            Ok(goal) => Some(goal),
            Err(reason) => return Ok(Finding::NotValidated(reason)),
        },
    };
    let turn = readers.acquire().await.expect("it is never closed");
    let compared = tokio::task::spawn_blocking(move || subject.check(goal, &read)).await;
    drop(turn);
    let finding = compared.expect("reading does not panic").map_err(|errno| {
        Error::new(ErrorKind::Destination, format!("cannot read its file: {errno}"))
            .advise("check the kernel log: the disk may have lost it")
            .of_call(Some(errno.raw_os_error()))
    })?;
    let Finding::Mismatch(mismatch) = finding else { return Ok(finding) };
    if !goal.is_some_and(|goal| goal.is_of_parts()) {
        return Ok(Finding::Mismatch(mismatch));
    }
    // Its parts may not have the assumed length.
    Ok(match self::goal(control, entry, PartsAsked::All).await {
        Ok(Ok(_)) => Finding::Mismatch(mismatch),
        Ok(Err(reason)) => Finding::NotValidated(reason),
        Err(error) => Finding::Mismatch(format!(
            "{mismatch}; the sizes of its parts, which may differ, are not known: {error}"
        )),
    })
}

/// The checksum to compare with, or why there is none.
async fn goal(
    control: &Control,
    entry: &Entry,
    parts: PartsAsked,
) -> Result<Result<InOrder, &'static str>> {
    let checksums = control.checksum(&entry.endpoint.bucket, &entry.object, parts).await?;
    let stored = match checksums.stored.or_else(|why| checksums.etag.ok_or(why)) {
        Ok(stored) => stored,
        Err(reason) => return Ok(Err(reason)),
    };
    Ok(InOrder::new(stored, checksums.part_bytes).ok_or(unverified::PARTS_DIFFER))
}

/// Reads a file and compares it with a checksum.
fn digest(
    file: &OwnedFd,
    goal: InOrder,
    size_bytes: u64,
    read: &AtomicU64,
) -> Result<Finding, Errno> {
    let piece_bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX).min(CHECK_PIECE_BYTES);
    let mut piece = vec![0; piece_bytes];
    let mut sequence = Sequence::new(goal);
    let mut done = 0;
    // A file that grows meanwhile is read only until that shows.
    while done <= size_bytes {
        match rustix::io::read(file, &mut piece[..]) {
            Ok(0) => break,
            Ok(count) => {
                sequence.update(&piece[..count]);
                read.fetch_add(count as u64, Ordering::Relaxed);
                done += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    if done != size_bytes {
        return Ok(other_size(done, size_bytes));
    }
    Ok(match sequence.finish() {
        Ok(()) => Finding::Validated(goal.algorithm().name()),
        Err(mismatch) if goal.is_etag() => Finding::OtherEtag(mismatch.to_string()),
        Err(mismatch) => Finding::Mismatch(mismatch.to_string()),
    })
}
